# SPDX-License-Identifier: Apache-2.0
#
# Training programs that are killed at random moments and go on from their checkpoints. scripts/kills runs more of them.
cohort_program(kills_train tests kills_train
    "${PROJECT_SOURCE_DIR}/tests/kills/train.c" "${PROJECT_SOURCE_DIR}/tests/kills/moments.c")
set_target_properties(kills_train PROPERTIES ENABLE_EXPORTS ON) # its write is found before that of the system
foreach(how IN ITEMS eager captured)
    foreach(place IN ITEMS one mirrored)
        cohort_test(kills.${place}.${how}
            "${PROJECT_SOURCE_DIR}/tests/kills/run" $<TARGET_FILE:kills_train> ${place} ${how})
    endforeach()
    if(TARGET cohort_mpi)
        cohort_ranks_test(kills.processes.${how}
            "${PROJECT_SOURCE_DIR}/tests/kills/run" $<TARGET_FILE:kills_train> processes ${how})
    else()
        cohort_skipped_test(kills.processes.${how} "${COHORT_WITHOUT_MPI}")
    endif()
endforeach()

# SPDX-License-Identifier: Apache-2.0
#
# Three processes too (an odd number has another tree), ranks that die, and a host with an MPI of its own.
if(NOT TARGET cohort_mpi)
    foreach(name IN ITEMS survive survive.steps guest faults)
        cohort_skipped_test(ranks.${name} "${COHORT_WITHOUT_MPI}")
    endforeach()
    return()
endif()

cohort_ranks_test(ranks.collective.3
    "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n 3 $<TARGET_FILE:ranks_collective>)
cohort_ranks_test(ranks.uneven.3
    "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n 3 $<TARGET_FILE:ranks_uneven>)

add_executable(ranks_survive "${PROJECT_SOURCE_DIR}/tests/ranks/survive/survive.c")
set_target_properties(ranks_survive PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_link_libraries(ranks_survive PRIVATE cohort_flags cohort_internal)
foreach(scenario IN ITEMS killed killed-in-transfer ends)
    foreach(size IN ITEMS 2 3)
        cohort_ranks_test(ranks.survive.${scenario}.${size} "${PROJECT_SOURCE_DIR}/tests/ranks/survive/run"
            $<TARGET_FILE:ranks_survive> ${scenario} ${size})
    endforeach()
endforeach()

cohort_program(ranks_survive_steps tests ranks_survive_steps "${PROJECT_SOURCE_DIR}/tests/ranks/survive/steps.c")
foreach(size IN ITEMS 2 3)
    cohort_ranks_test(ranks.survive.steps.${size} "${PROJECT_SOURCE_DIR}/tests/ranks/survive/run-steps"
        $<TARGET_FILE:ranks_survive_steps> ${size})
endforeach()

add_executable(ranks_guest "${PROJECT_SOURCE_DIR}/tests/ranks/guest/guest.c")
set_target_properties(ranks_guest PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_include_directories(ranks_guest PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_link_libraries(ranks_guest PRIVATE cohort_flags cohort_internal MPI::MPI_C)
foreach(size IN ITEMS 1 2 3)
    cohort_ranks_test(ranks.guest.${size} "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n ${size} $<TARGET_FILE:ranks_guest>)
endforeach()

# An MPI that fails and lies, and a hostile peer. Its symbols must be seen by the plug-in before those of MPI.
add_executable(ranks_faults "${PROJECT_SOURCE_DIR}/tests/ranks/faults/faults.c")
set_target_properties(ranks_faults PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests" ENABLE_EXPORTS ON)
target_include_directories(ranks_faults PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_link_libraries(ranks_faults PRIVATE cohort_flags cohort_internal MPI::MPI_C)
cohort_ranks_test(ranks.faults "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n 2 $<TARGET_FILE:ranks_faults>)
set_tests_properties(ranks.faults PROPERTIES PROCESSORS 1) # its ranks wait most of the time

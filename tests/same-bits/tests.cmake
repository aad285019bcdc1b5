# SPDX-License-Identifier: Apache-2.0
#
# The same bits on devices, threads and, under the launcher, processes.
cohort_test_program(test_same_bits test_same_bits "${PROJECT_SOURCE_DIR}/tests/same-bits/same_bits.c")
cohort_test(conformance.same-bits test_same_bits)
if(TARGET cohort_mpi)
    foreach(size IN ITEMS 2 4)
        cohort_ranks_test(ranks.same-bits.${size}
            "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n ${size} $<TARGET_FILE:test_same_bits> may processes)
    endforeach()
else()
    cohort_skipped_test(ranks.same-bits "${COHORT_WITHOUT_MPI}")
endif()

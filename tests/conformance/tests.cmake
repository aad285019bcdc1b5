# SPDX-License-Identifier: Apache-2.0
#
# The conformance suite: one program, one test for each row of strategies.c.
file(GLOB conformance_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/conformance/*.c")
add_executable(conformance ${conformance_sources})
set_target_properties(conformance PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_include_directories(conformance PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_link_libraries(conformance PRIVATE cohort_flags cohort_test_harness cohort m)
add_dependencies(conformance cohort_backend_test) # rows on devices of tests/backend

file(STRINGS "${PROJECT_SOURCE_DIR}/tests/conformance/strategies.c" rows
    REGEX "^    ((MIRRORED|WORKERS)\\(|{ \\.row = )\"")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/tests/conformance/strategies.c")
foreach(line IN LISTS rows)
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*$" "\\1" row "${line}")
    if(NOT row MATCHES "^workers-([2-9])x")
        cohort_test(conformance.${row} $<TARGET_FILE:conformance> --row ${row})
    elseif(NOT TARGET cohort_mpi)
        cohort_skipped_test(conformance.${row} "${COHORT_WITHOUT_MPI}")
    else()
        cohort_test(conformance.${row} "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n ${CMAKE_MATCH_1}
            $<TARGET_FILE:conformance> --row ${row})
        # The MPI library keeps memory to its end; the harness counts what the library keeps itself.
        set_tests_properties(conformance.${row} PROPERTIES PROCESSORS 2
            ENVIRONMENT "${COHORT_TEST_ENVIRONMENT};COHORT_TEST_NAME=conformance.${row};ASAN_OPTIONS=detect_leaks=0")
    endif()
endforeach()

# The same bodies with captured steps.
add_executable(conformance_captured ${conformance_sources})
set_target_properties(conformance_captured PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_include_directories(conformance_captured PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_compile_definitions(conformance_captured PRIVATE SUITE_CAPTURED=1)
target_link_libraries(conformance_captured PRIVATE cohort_flags cohort_test_harness cohort m)
add_dependencies(conformance_captured cohort_backend_test)
foreach(row IN ITEMS default one-device mirrored-2 mirrored-4 mirrored-test-2 workers-1x2)
    cohort_test(conformance.captured-${row} $<TARGET_FILE:conformance_captured> --row ${row})
endforeach()
if(TARGET cohort_mpi)
    cohort_test(conformance.captured-workers-2x1 "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n 2
        $<TARGET_FILE:conformance_captured> --row workers-2x1)
    set_tests_properties(conformance.captured-workers-2x1 PROPERTIES PROCESSORS 2
        ENVIRONMENT "${COHORT_TEST_ENVIRONMENT};COHORT_TEST_NAME=conformance.captured-workers-2x1;ASAN_OPTIONS=detect_leaks=0")
else()
    cohort_skipped_test(conformance.captured-workers-2x1 "${COHORT_WITHOUT_MPI}")
endif()

# The same bodies with an observer that keeps account (tests/unit/account.h): nothing goes round the executor.
add_executable(conformance_account ${conformance_sources})
set_target_properties(conformance_account PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_include_directories(conformance_account PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_compile_definitions(conformance_account PRIVATE SUITE_ACCOUNT=1)
target_link_libraries(conformance_account PRIVATE cohort_flags cohort_test_harness cohort_internal m)
cohort_keeps_account(conformance_account)
add_dependencies(conformance_account cohort_backend_test)
foreach(row IN ITEMS default one-device mirrored-2 mirrored-4 mirrored-test-2 workers-1x2)
    cohort_test(conformance.account-${row} $<TARGET_FILE:conformance_account> --row ${row})
endforeach()
if(TARGET cohort_mpi)
    cohort_test(conformance.account-workers-2x1 "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n 2
        $<TARGET_FILE:conformance_account> --row workers-2x1)
    set_tests_properties(conformance.account-workers-2x1 PROPERTIES PROCESSORS 2
        ENVIRONMENT "${COHORT_TEST_ENVIRONMENT};COHORT_TEST_NAME=conformance.account-workers-2x1;ASAN_OPTIONS=detect_leaks=0")
else()
    cohort_skipped_test(conformance.account-workers-2x1 "${COHORT_WITHOUT_MPI}")
endif()

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

# A variant of the suite, on some rows: PREFIX-ROW.
function(conformance_rows target prefix)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
    add_dependencies(${target} cohort_backend_test)
    foreach(row IN ITEMS default one-device mirrored-2 mirrored-4 mirrored-test-2 workers-1x2)
        cohort_test(conformance.${prefix}-${row} $<TARGET_FILE:${target}> --row ${row})
    endforeach()
    set(name conformance.${prefix}-workers-2x1)
    if(NOT TARGET cohort_mpi)
        cohort_skipped_test(${name} "${COHORT_WITHOUT_MPI}")
        return()
    endif()
    cohort_test(${name} "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n 2 $<TARGET_FILE:${target}> --row workers-2x1)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2
        ENVIRONMENT "${COHORT_TEST_ENVIRONMENT};COHORT_TEST_NAME=${name};ASAN_OPTIONS=detect_leaks=0")
endfunction()

# The same bodies with captured steps.
add_executable(conformance_captured ${conformance_sources})
target_compile_definitions(conformance_captured PRIVATE SUITE_CAPTURED=1)
target_link_libraries(conformance_captured PRIVATE cohort_flags cohort_test_harness cohort m)
conformance_rows(conformance_captured captured)

# The same bodies with an observer that keeps account (tests/unit/account.h): nothing goes round the executor.
add_executable(conformance_account ${conformance_sources})
target_compile_definitions(conformance_account PRIVATE SUITE_ACCOUNT=1)
target_link_libraries(conformance_account PRIVATE cohort_flags cohort_test_harness cohort_internal m)
cohort_keeps_account(conformance_account)
conformance_rows(conformance_account account)

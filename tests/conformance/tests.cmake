# SPDX-License-Identifier: Apache-2.0
#
# The conformance suite: one program, one test for each row of strategies.c.
file(GLOB conformance_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/conformance/*.c")
add_executable(conformance ${conformance_sources})
set_target_properties(conformance PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_include_directories(conformance PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
target_link_libraries(conformance PRIVATE cohort_flags cohort_test_harness cohort m)

file(STRINGS "${PROJECT_SOURCE_DIR}/tests/conformance/strategies.c" rows
    REGEX "^    ((MIRRORED|WORKERS)\\(|{ \\.row = )\"")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/tests/conformance/strategies.c")
foreach(line IN LISTS rows)
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*$" "\\1" row "${line}")
    set(launcher "")
    set(test conformance.${row})
    if(row MATCHES "^workers-([2-9])x")
        if(NOT TARGET cohort_mpi)
            continue()
        endif()
        set(launcher "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n ${CMAKE_MATCH_1})
        set(test ranks.conformance.${row})
    endif()
    cohort_test(${test} ${launcher} $<TARGET_FILE:conformance> --row ${row})
    if(launcher)
        set_tests_properties(${test} PROPERTIES PROCESSORS 2)
    endif()
endforeach()

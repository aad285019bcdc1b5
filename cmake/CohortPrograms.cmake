# SPDX-License-Identifier: Apache-2.0
#
# Programs around the library: tool, tests, benchmarks, examples. Every folder may be empty.
#
#   tools/cohort/*.c         build/<tree>/tools/cohort
#   tests/unit/NAME.c        build/<tree>/tests/test_NAME, one program per file, with the harness of tests/unit/test.h
#   tests/ranks/NAME.c       build/<tree>/tests/ranks_NAME, run by the MPI launcher with 1, 2 and 4 processes
#   tests/conformance/*.c    build/<tree>/tests/conformance, run once for each strategy of its table
#   tests/harness/cases.c    build/<tree>/tests/harness_cases
#   tests/golden-runner/*.c  build/<tree>/tests/golden
#   tests/fuzz/NAME.c        build/<tree>/tests/fuzz_NAME, run over tests/fuzz/corpus/NAME
#   tests/scripts/NAME.sh    run as they are
#   bench/*.c                build/<tree>/bench/cohort-bench
#   examples/NAME.c          build/<tree>/examples/NAME, output compared with examples/expected/NAME.txt
#   examples/demo/*.c        build/<tree>/examples/demo
#   tests/*/tests.cmake      more tests of a folder, where the rules above do not reach

if(TARGET cohort)
    file(GLOB tool_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/cohort/*.c")
    if(tool_sources)
        add_executable(cohort_tool ${tool_sources})
        set_target_properties(cohort_tool PROPERTIES
            OUTPUT_NAME cohort RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tools")
        target_link_libraries(cohort_tool PRIVATE cohort_flags cohort)
    endif()
endif()

if(NOT COHORT_TESTS)
    return()
endif()
enable_testing()

# What tests find in their environment: where the uninstalled plug-in is, and how sanitizers report.
set(COHORT_TEST_ENVIRONMENT
    "COHORT_PLUGIN_PATH=${CMAKE_BINARY_DIR}/lib/cohort"
    "COHORT_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "COHORT_BUILD_DIR=${CMAKE_BINARY_DIR}"
    "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1")

# cohort_test(NAME COMMAND...): one entry of ctest.
function(cohort_test name)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES
        TIMEOUT 900 SKIP_RETURN_CODE 77
        ENVIRONMENT "${COHORT_TEST_ENVIRONMENT};COHORT_TEST_NAME=${name}")
endfunction()

# cohort_skipped_test(NAME REASON): an entry of ctest for what this build cannot run; the runner names it with the reason.
function(cohort_skipped_test name reason)
    cohort_test(${name} "${PROJECT_SOURCE_DIR}/scripts/skip-test" "${reason}")
endfunction()
set(COHORT_WITHOUT_MPI "it needs MPI, which this build was configured without")

# cohort_ranks_test(NAME COMMAND...): one entry of ctest whose processes use MPI. What MPI itself leaks is no failure. Whose a
# leak is, the whole stack says, and only the slow unwinder finds its way through an MPI built without frame pointers.
function(cohort_ranks_test name)
    cohort_test(${name} ${ARGN})
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
        "LSAN_OPTIONS=suppressions='${PROJECT_SOURCE_DIR}/tests/ranks/leaks-of-mpi.txt':fast_unwind_on_malloc=0:print_suppressions=0")
endfunction()

# A program of the source tree that uses the public headers and the shared library.
function(cohort_program target folder name)
    add_executable(${target} ${ARGN})
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}")
    target_link_libraries(${target} PRIVATE cohort_flags cohort m)
endfunction()

# Tests see the public headers. One that includes a header of src/ is linked with the static library instead of the
# shared one, so that it never holds two copies of the library.
function(cohort_test_program target name source)
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" internal REGEX "^#include \"(config\\.h|[a-z]+/.*)\"")
    add_executable(${target} "${source}")
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/unit")
    target_link_libraries(${target} PRIVATE cohort_flags cohort_test_harness m)
    if(internal)
        target_link_libraries(${target} PRIVATE cohort_internal)
    else()
        target_link_libraries(${target} PRIVATE cohort)
    endif()
endfunction()

# A test with tests/unit/account.h, which counts the calls of functions of the library.
function(cohort_keeps_account target)
    foreach(name IN ITEMS coi_buffer_alloc coi_device_upload coi_device_download coi_device_copy)
        target_link_options(${target} PRIVATE "LINKER:--wrap=${name}")
    endforeach()
endfunction()

file(GLOB script_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/scripts/*.sh")
foreach(script IN LISTS script_tests)
    get_filename_component(name "${script}" NAME_WE)
    cohort_test(script.${name} bash "${script}")
endforeach()

if(NOT TARGET cohort)
    return()
endif()

file(GLOB unit_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/unit/*.c")
list(FILTER unit_sources EXCLUDE REGEX "/tests/unit/test\\.c$")
file(GLOB ranks_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/ranks/*.c")

add_library(cohort_test_harness OBJECT "${PROJECT_SOURCE_DIR}/tests/unit/test.c")
target_include_directories(cohort_test_harness PRIVATE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(cohort_test_harness PRIVATE cohort_flags)

# Proves the harness; tests/scripts/harness.sh runs it.
cohort_test_program(harness_cases harness_cases "${PROJECT_SOURCE_DIR}/tests/harness/cases.c")

foreach(source IN LISTS unit_sources)
    get_filename_component(name "${source}" NAME_WE)
    cohort_test_program(test_${name} test_${name} "${source}")
    cohort_test(unit.${name} test_${name})
endforeach()
cohort_keeps_account(test_account)
add_dependencies(test_account cohort_backend_test)

foreach(source IN LISTS ranks_sources)
    get_filename_component(name "${source}" NAME_WE)
    if(NOT TARGET cohort_mpi)
        cohort_skipped_test(ranks.${name} "${COHORT_WITHOUT_MPI}")
        continue()
    endif()
    cohort_test_program(ranks_${name} ranks_${name} "${source}")
    foreach(size IN ITEMS 1 2 4)
        cohort_ranks_test(ranks.${name}.${size}
            "${PROJECT_SOURCE_DIR}/scripts/mpirun-here" -n ${size} $<TARGET_FILE:ranks_${name}>)
    endforeach()
endforeach()

file(GLOB golden_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/golden-runner/*.c")
if(golden_sources AND COI_HAVE_JANSSON)
    cohort_program(golden tests golden ${golden_sources})
    target_include_directories(golden SYSTEM PRIVATE "${COHORT_JANSSON_INCLUDE_DIR}")
    target_link_libraries(golden PRIVATE "${COHORT_JANSSON_LIBRARY}")
elseif(golden_sources)
    message(STATUS "tests/golden: left out, it reads its data with jansson")
endif()

file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.c")
if(bench_sources)
    cohort_program(cohort_bench bench cohort-bench ${bench_sources})
    # Loops that operators are compared with, as one would compile them for a program of one's own.
    set_source_files_properties("${PROJECT_SOURCE_DIR}/bench/hand_written.c" PROPERTIES
        COMPILE_OPTIONS "-O3;-ffast-math;$<$<BOOL:${COI_HAVE_ISA_V3}>:-march=x86-64-v3>")
    # It starts processes that train together.
    set_source_files_properties("${PROJECT_SOURCE_DIR}/bench/train.c" PROPERTIES
        COMPILE_DEFINITIONS "COHORT_MPIRUN=\"${PROJECT_SOURCE_DIR}/scripts/mpirun-here\"")
    if(TARGET cohort_mpi)
        add_dependencies(cohort_bench cohort_mpi)
    endif()
endif()

file(GLOB example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.c")
foreach(source IN LISTS example_sources)
    get_filename_component(name "${source}" NAME_WE)
    cohort_program(example_${name} examples ${name} "${source}")
    cohort_test(example.${name} "${PROJECT_SOURCE_DIR}/scripts/run-example"
        $<TARGET_FILE:example_${name}> "${PROJECT_SOURCE_DIR}/examples/expected/${name}.txt")
endforeach()

file(GLOB demo_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/demo/*.c")
if(demo_sources)
    cohort_program(cohort_demo examples demo ${demo_sources})
endif()

file(GLOB more_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*/tests.cmake")
foreach(file IN LISTS more_tests)
    include("${file}")
endforeach()

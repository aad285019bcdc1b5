# SPDX-License-Identifier: Apache-2.0
#
# What a person may choose, and the compiler flags that follow from it: `cohort_flags` carries the flags
# of every file of the project, nothing of it reaches programs that use an installed library.

option(COHORT_CORE_ONLY "Use libc, libm and pthreads and no optional library" OFF)
option(COHORT_BASELINE_ONLY "Compile kernels for the baseline alone, as on processors that are no x86-64" OFF)
option(COHORT_WERROR "Treat warnings as errors, as CI and scripts/check do" OFF)
option(COHORT_TESTS "Build tests, benchmarks and examples" ON)
option(COHORT_COVERAGE "Count executed lines (gcov)" OFF)
option(COHORT_FUZZ "Build tests/fuzz for libFuzzer (clang)" OFF)
set(COHORT_SANITIZE "" CACHE STRING "Sanitizers: empty, address+undefined or thread")
set_property(CACHE COHORT_SANITIZE PROPERTY STRINGS "" "address+undefined" "thread")

get_property(is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT is_multi_config AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(cohort_flags INTERFACE)
# Contraction would let the compiler decide where a product is rounded, and with it the bits of a result.
target_compile_options(cohort_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    -ffp-contract=off "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
target_compile_definitions(cohort_flags INTERFACE
    _GNU_SOURCE $<$<CONFIG:Debug>:COI_DEBUG=1>)
target_link_libraries(cohort_flags INTERFACE Threads::Threads)

if(COHORT_WERROR)
    target_compile_options(cohort_flags INTERFACE -Werror)
endif()

if(COHORT_SANITIZE STREQUAL "address+undefined")
    set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(COHORT_SANITIZE STREQUAL "thread")
    set(sanitize -fsanitize=thread)
elseif(COHORT_SANITIZE)
    message(FATAL_ERROR
        "COHORT_SANITIZE is '${COHORT_SANITIZE}'; use address+undefined, thread, or leave it empty")
endif()
if(COHORT_SANITIZE)
    target_compile_options(cohort_flags INTERFACE ${sanitize} -g -fno-omit-frame-pointer)
    target_link_options(cohort_flags INTERFACE ${sanitize})
endif()

if(COHORT_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "COHORT_FUZZ needs clang, which brings libFuzzer; the compiler is ${CMAKE_C_COMPILER_ID}")
    endif()
    target_compile_options(cohort_flags INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(cohort_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(COHORT_COVERAGE)
    # Threads count too: counts that lose an increment make gcov take branches for untaken.
    target_compile_options(cohort_flags INTERFACE --coverage -fprofile-update=atomic -g)
    target_compile_definitions(cohort_flags INTERFACE TEST_COVERAGE)
    target_link_options(cohort_flags INTERFACE --coverage)
endif()

# SPDX-License-Identifier: Apache-2.0
#
# Fuzz targets: tests/fuzz/NAME.c with the inputs tests/fuzz/corpus/NAME. Replaying the corpus is a test in every build; with
# COHORT_FUZZ the same programs are libFuzzer's (scripts/fuzz).

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*.c")
list(FILTER fuzz_sources EXCLUDE REGEX "/replay\\.c$")
foreach(source IN LISTS fuzz_sources)
    get_filename_component(name "${source}" NAME_WE)
    if(COHORT_FUZZ)
        cohort_program(fuzz_${name} tests fuzz_${name} "${source}")
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    else()
        cohort_program(fuzz_${name} tests fuzz_${name} "${source}" "${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c")
        cohort_test(fuzz.${name} $<TARGET_FILE:fuzz_${name}> "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
    endif()
endforeach()

# SPDX-License-Identifier: Apache-2.0
#
# Fuzz targets: tests/fuzz/NAME.c with the inputs tests/fuzz/corpus/NAME. Replaying the corpus is a test in every build; with
# COHORT_FUZZ the same programs are libFuzzer's (scripts/fuzz).

# One that includes a header of src/ is linked with the static library, as cohort_test_program has it.
function(cohort_fuzz_program target source)
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" internal REGEX "^#include \"[a-z]+/.*\"")
    add_executable(${target} "${source}")
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${target} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    if(internal)
        target_link_libraries(${target} PRIVATE cohort_flags cohort_internal m)
    else()
        target_link_libraries(${target} PRIVATE cohort_flags cohort m)
    endif()
endfunction()

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*.c")
list(FILTER fuzz_sources EXCLUDE REGEX "/replay\\.c$")
foreach(source IN LISTS fuzz_sources)
    get_filename_component(name "${source}" NAME_WE)
    cohort_fuzz_program(fuzz_${name} "${source}")
    if(COHORT_FUZZ)
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    else()
        target_sources(fuzz_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c")
        cohort_test(fuzz.${name} $<TARGET_FILE:fuzz_${name}> "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
    endif()
endforeach()

# SPDX-License-Identifier: Apache-2.0
#
# A device backend that catches mistakes of the library, and what runs on it. It lies where plug-ins of the build tree are
# found, so that devices=TEST:2 is enough, and is not installed.
add_library(cohort_backend_test MODULE "${PROJECT_SOURCE_DIR}/tests/backend/test_backend.c")
set_target_properties(cohort_backend_test PROPERTIES
    C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/cohort")
target_include_directories(cohort_backend_test PRIVATE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(cohort_backend_test PRIVATE cohort_flags Threads::Threads m ${CMAKE_DL_LIBS})

# One with host memory, found in the same way.
add_library(cohort_backend_unified MODULE "${PROJECT_SOURCE_DIR}/tests/backend/unified_backend.c")
set_target_properties(cohort_backend_unified PROPERTIES
    C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/cohort")
target_include_directories(cohort_backend_unified PRIVATE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(cohort_backend_unified PRIVATE cohort_flags)

# cohort_fake_backend(NAME SYMBOL ABI TYPE [DEFINITION...]): what the loader must refuse, but for `whole`.
function(cohort_fake_backend name symbol abi type)
    add_library(fake_backend_${name} MODULE "${PROJECT_SOURCE_DIR}/tests/backend/fake_backend.c")
    set_target_properties(fake_backend_${name} PROPERTIES
        OUTPUT_NAME backend_${name} LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/backend")
    target_compile_definitions(fake_backend_${name} PRIVATE
        FAKE_SYMBOL=${symbol} FAKE_ABI=${abi} "FAKE_TYPE=\"${type}\"" ${ARGN})
    target_include_directories(fake_backend_${name} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(fake_backend_${name} PRIVATE cohort_flags)
endfunction()
cohort_fake_backend(symbol co_some_other_name 0 FAKE FAKE_WHOLE)
cohort_fake_backend(abi co_backend_plugin 1 FAKE FAKE_WHOLE)
cohort_fake_backend(size co_backend_plugin 0 FAKE FAKE_WHOLE FAKE_MISSING=8)
cohort_fake_backend(slots co_backend_plugin 0 FAKE)
cohort_fake_backend(type co_backend_plugin 0 fake FAKE_WHOLE)
cohort_fake_backend(cpu co_backend_plugin 0 CPU FAKE_WHOLE)
cohort_fake_backend(whole co_backend_plugin 0 FAKE FAKE_WHOLE)
foreach(fault IN ITEMS 1 2 3 4 5)
    add_library(faulty_backend_${fault} MODULE "${PROJECT_SOURCE_DIR}/tests/backend/faulty_backend.c")
    set_target_properties(faulty_backend_${fault} PROPERTIES
        OUTPUT_NAME faulty_${fault} LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/backend")
    target_compile_definitions(faulty_backend_${fault} PRIVATE FAULT=${fault})
    target_include_directories(faulty_backend_${fault} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(faulty_backend_${fault} PRIVATE cohort_flags)
endforeach()
file(WRITE "${CMAKE_BINARY_DIR}/tests/backend/text.so" "This is no library.\n")

cohort_test_program(test_backend test_backend "${PROJECT_SOURCE_DIR}/tests/backend/backend.c")
cohort_test(unit.backend test_backend)
add_dependencies(test_backend cohort_backend_test cohort_backend_unified
    fake_backend_symbol fake_backend_abi fake_backend_size fake_backend_slots fake_backend_type fake_backend_cpu fake_backend_whole
    faulty_backend_1 faulty_backend_2 faulty_backend_3 faulty_backend_4 faulty_backend_5)

# The families of golden data that run operators, and the demo, on it.
if(TARGET golden)
    add_dependencies(golden cohort_backend_test cohort_backend_unified)
    cohort_test(backend.golden "${PROJECT_SOURCE_DIR}/tests/backend/check_golden.sh" $<TARGET_FILE:golden>)
endif()
if(TARGET cohort_demo)
    add_dependencies(cohort_demo cohort_backend_test)
    cohort_test(backend.demo "${PROJECT_SOURCE_DIR}/tests/backend/check_demo.sh" $<TARGET_FILE:cohort_demo>)
endif()

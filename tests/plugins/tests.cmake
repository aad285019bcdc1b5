# SPDX-License-Identifier: Apache-2.0
#
# The loader of plug-ins, with fakes: each is a libcohort_mpi.so in a folder of its own.
set(plugins_dir "${CMAKE_BINARY_DIR}/tests/plugins")

function(cohort_fake_plugin name abi hello group)
    add_library(fake_${name} MODULE "${PROJECT_SOURCE_DIR}/tests/plugins/fake.c")
    set_target_properties(fake_${name} PROPERTIES
        OUTPUT_NAME cohort_mpi PREFIX lib SUFFIX .so LIBRARY_OUTPUT_DIRECTORY "${plugins_dir}/${name}")
    target_compile_definitions(fake_${name} PRIVATE FAKE_ABI=${abi} FAKE_HELLO=${hello} FAKE_GROUP=${group})
    target_include_directories(fake_${name} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(fake_${name} PRIVATE cohort_flags)
endfunction()

cohort_fake_plugin(good 0 0 0)
cohort_fake_plugin(abi 1 0 0)
cohort_fake_plugin(hello 0 8 0)
cohort_fake_plugin(group 0 0 8)
file(WRITE "${plugins_dir}/text/libcohort_mpi.so" "This is no library.\n")

# It answers for an MPI, as a host that runs one does; so its symbols must be seen from outside.
cohort_test_program(test_plugins test_plugins "${PROJECT_SOURCE_DIR}/tests/plugins/plugins.c")
set_target_properties(test_plugins PROPERTIES
    ENABLE_EXPORTS ON RUNTIME_OUTPUT_DIRECTORY "${plugins_dir}/bin")
cohort_test(unit.plugins test_plugins)

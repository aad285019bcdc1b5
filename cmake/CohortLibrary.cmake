# SPDX-License-Identifier: Apache-2.0
#
# The library: every object is compiled once (position independent) and goes into both libcohort.so and libcohort.a.

# In the order in which a program first needs them: the linker keeps it, so the start of a program touches few pages.
set(COHORT_LAYERS
    base device value context ops/engine ops/math ops/kernels ops/array ops/nn ops/random
    variable function io data collective strategy train checkpoint compat)
set(COHORT_GENERATED_DIR "${CMAKE_BINARY_DIR}/generated")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

set(COI_HAVE_ISA_V3 0)
set(COI_HAVE_ISA_V4 0)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8 AND NOT COHORT_BASELINE_ONLY)
    set(COI_HAVE_ISA_V3 1)
    set(COI_HAVE_ISA_V4 1)
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/config.h.in" "${COHORT_GENERATED_DIR}/config.h" @ONLY)

# Sources of the core: all layers, less the kernels (compiled per instruction set), the plug-ins, and the folders
# named after an optional library that is absent.
set(COHORT_SOURCES "")
foreach(layer IN LISTS COHORT_LAYERS)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${layer}/*.c")
    list(APPEND COHORT_SOURCES ${found})
endforeach()
list(FILTER COHORT_SOURCES EXCLUDE REGEX "/src/ops/kernels/simd/")
list(FILTER COHORT_SOURCES EXCLUDE REGEX "/src/collective/mpi/")
foreach(name IN LISTS COHORT_OPTIONAL_NAMES)
    if(NOT COI_HAVE_${name})
        string(TOLOWER ${name} folder)
        list(FILTER COHORT_SOURCES EXCLUDE REGEX "/src/.*/${folder}/[^/]*$")
    endif()
endforeach()
file(GLOB COHORT_SIMD_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/*.c")
file(GLOB COHORT_MPI_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/collective/mpi/*.c")

# An object library with the flags and folders every file of the library sees.
function(cohort_add_objects target)
    add_library(${target} OBJECT ${ARGN})
    set_target_properties(${target} PROPERTIES C_VISIBILITY_PRESET hidden)
    target_compile_definitions(${target} PRIVATE COI_BUILDING_LIBRARY=1)
    target_include_directories(${target} PRIVATE
        "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src" "${COHORT_GENERATED_DIR}")
    target_link_libraries(${target} PRIVATE cohort_flags cohort_dependencies)
endfunction()

if(NOT COHORT_SOURCES)
    message(STATUS "src/ holds no sources: no library is built")
    return()
endif()

# What a step or a pipeline passes through again and again is compiled for speed, everything else for size: reference kernels,
# operators that only call others, what waits for a disk, what runs once.
set(fast_sources
    "base/(event|lock|memory|team|thread|wire)" "device/memory_pool" "device/cpu/.*" "value/(cell|heap|keeps|structure|tensor)"
    "context/(check|context|context_error|convert|value_constructors|modes|statements|structures|tape)"
    "ops/(engine|math|array|nn|random|kernels|kernels/drivers|kernels/generic)/[^/]*" "variable/variable"
    "function/(function|plan|region|replay|signature|value_tree)"
    "io/(crc32c|example|frame|source)" "data/(batch|batch_assembly|iterator|memory_source|rebatch|repeat|shard|shuffle|split)"
    "collective/(all_reduce|reduce_kernels|reduction_tree|local/ranks|self/self)"
    "strategy/(cross_replica_reduce|distributed_variables|flight_recorder|merge|rendezvous|replica_collectives|replica_threads|run|scope)" "train/[^/]*")
set(small_sources ${COHORT_SOURCES})
foreach(pattern IN LISTS fast_sources)
    list(FILTER small_sources EXCLUDE REGEX "/src/${pattern}[.]c$")
endforeach()
foreach(name IN ITEMS
    engine/call_by_name kernels/generic/float64_kernels
    kernels/drivers/conv2d_kernels kernels/drivers/conv2d_pooled_grad_kernels kernels/drivers/cross_entropy_kernels
    kernels/drivers/layer_norm_kernels nn/conv2d_ops nn/conv2d_pooled_grad_ops nn/cross_entropy_ops nn/layer_norm_ops
    array/composite_array_ops array/like_ops array/pad_ops array/scatter_nd_ops math/composite_reductions math/einsum_ops
    nn/composite_conv2d nn/composite_losses nn/composite_norms nn/dropout_ops)
    list(APPEND small_sources "${PROJECT_SOURCE_DIR}/src/ops/${name}.c")
endforeach()
set_source_files_properties(${small_sources} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Os>")

cohort_add_objects(cohort_objects ${COHORT_SOURCES})
# Where a jump goes is aligned in the kernels alone.
target_compile_options(cohort_objects PRIVATE $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-fno-align-jumps>)
set(objects $<TARGET_OBJECTS:cohort_objects>)

# The operator table: what the objects define, so that no list of operators has to be kept.
set(op_table "${COHORT_GENERATED_DIR}/op_table_entries.c")
file(GENERATE OUTPUT "${COHORT_GENERATED_DIR}/objects.txt" CONTENT "$<JOIN:$<TARGET_OBJECTS:cohort_objects>,\n>\n")
add_custom_command(OUTPUT "${op_table}"
    COMMAND "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}" "-DOBJECTS=${COHORT_GENERATED_DIR}/objects.txt" "-DOUTPUT=${op_table}"
        -P "${PROJECT_SOURCE_DIR}/cmake/CohortOpTable.cmake"
    DEPENDS $<TARGET_OBJECTS:cohort_objects> "${PROJECT_SOURCE_DIR}/cmake/CohortOpTable.cmake"
    COMMENT "Collecting the operators" VERBATIM)
cohort_add_objects(cohort_op_table "${op_table}")
list(APPEND objects $<TARGET_OBJECTS:cohort_op_table>)

# The kernels, once per instruction set. Contraction stays off: fused multiply-add is used where a kernel asks for
# it by name, and nowhere else. Nobody reads errno or the exception flags after a kernel; without those two promises
# loops with square roots or conditions would stay scalar. Results are the same.
# -O2 with the vectoriser gives loops of half the size that -O3 gives, and the same speed; two files are the exceptions
# (docs/decisions/kernels.md), where the baseline is not a mere fallback.
if(COHORT_SIMD_SOURCES)
    set(is_fallback "$<AND:$<BOOL:${COI_HAVE_ISA_V3}>,$<STREQUAL:$<TARGET_PROPERTY:NAME>,cohort_simd_base>>")
    set_source_files_properties(
        "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_softmax.c" "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_reduction.c" PROPERTIES
        COMPILE_OPTIONS "$<$<CONFIG:Release>:$<IF:${is_fallback},-Os,-O3>>;$<$<C_COMPILER_ID:GNU>:-fno-unswitch-loops>")
    # Where there is v3, the baseline serves processors from before 2013: these are compiled for size there. What the compiler made
    # vectors of (all but simd_gemm.c) then has none.
    set_source_files_properties(
        "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_gemm.c" "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_pool2d.c"
        "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_unary.c" "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_binary.c"
        "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_half.c" "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_cast.c"
        "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_optimizer_update.c" PROPERTIES
        COMPILE_OPTIONS "$<$<AND:$<CONFIG:Release>,${is_fallback}>:-Os>")
    # All of simd_row_kernels.c that should be vectors is written as vectors; gcc would turn the few elements behind them into more.
    set_source_files_properties(
        "${PROJECT_SOURCE_DIR}/src/ops/kernels/simd/simd_row_kernels.c" PROPERTIES
        COMPILE_OPTIONS "$<$<AND:$<CONFIG:Release>,${is_fallback}>:-Os>;$<$<C_COMPILER_ID:GNU>:-fno-tree-vectorize>")
    set(isa_flags_base "")
    set(isa_flags_v3 -march=x86-64-v3)
    set(isa_flags_v4 -march=x86-64-v4)
    set(isas base)
    if(COI_HAVE_ISA_V3)
        list(APPEND isas v3)
    endif()
    if(COI_HAVE_ISA_V4)
        list(APPEND isas v4)
    endif()
    foreach(isa IN LISTS isas)
        cohort_add_objects(cohort_simd_${isa} ${COHORT_SIMD_SOURCES})
        target_compile_definitions(cohort_simd_${isa} PRIVATE COI_ISA=${isa} COI_ISA_${isa}=1)
        target_compile_options(cohort_simd_${isa} PRIVATE
            ${isa_flags_${isa}} -fno-math-errno -fno-trapping-math
            $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-ftree-vectorize>
            $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-fvect-cost-model=dynamic>)
        list(APPEND objects $<TARGET_OBJECTS:cohort_simd_${isa}>)
    endforeach()
endif()

set(system_libraries Threads::Threads m ${CMAKE_DL_LIBS})

add_library(cohort SHARED ${objects})
add_library(cohort::cohort ALIAS cohort)
set_target_properties(cohort PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    LINKER_LANGUAGE C
    LINK_DEPENDS "${PROJECT_SOURCE_DIR}/src/cohort.map")
target_link_options(cohort PRIVATE
    "-Wl,--version-script=${PROJECT_SOURCE_DIR}/src/cohort.map"
    $<$<NOT:$<BOOL:${COHORT_SANITIZE}>>:-Wl,--no-undefined>
    # Calls of public functions within the library are direct: smaller and faster than by the table.
    -Wl,-Bsymbolic-functions -Wl,--as-needed)
target_link_libraries(cohort PRIVATE cohort_flags cohort_dependencies ${system_libraries})

# The tables of operators are full of pointers, each of which costs 24 bytes as a relocation. Packed, they cost two bits. That a
# program which is linked so runs here proves that linker and loader both know how.
if(NOT CMAKE_CROSSCOMPILING)
    include(CheckCSourceRuns)
    set(CMAKE_REQUIRED_FLAGS "-fPIE")
    set(CMAKE_REQUIRED_LINK_OPTIONS -pie -Wl,-z,pack-relative-relocs)
    check_c_source_runs("static int zero; int *volatile table[] = { &zero, &zero }; int main(void) { return *table[1]; }"
        COHORT_PACKED_RELOCATIONS)
    unset(CMAKE_REQUIRED_FLAGS)
    unset(CMAKE_REQUIRED_LINK_OPTIONS)
    if(COHORT_PACKED_RELOCATIONS)
        target_link_options(cohort PRIVATE -Wl,-z,pack-relative-relocs)
    endif()
endif()

add_library(cohort_static STATIC ${objects})
add_library(cohort::static ALIAS cohort_static)
set_target_properties(cohort_static PROPERTIES OUTPUT_NAME cohort EXPORT_NAME static LINKER_LANGUAGE C)
target_link_libraries(cohort_static
    PRIVATE $<BUILD_INTERFACE:cohort_flags> $<BUILD_INTERFACE:cohort_dependencies>
    INTERFACE ${system_libraries})

foreach(target IN ITEMS cohort cohort_static)
    target_include_directories(${target} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

# For tests of the inside: the static library with the private folders in sight.
add_library(cohort_internal INTERFACE)
target_link_libraries(cohort_internal INTERFACE cohort_static cohort_dependencies)
target_include_directories(cohort_internal INTERFACE
    "${PROJECT_SOURCE_DIR}/src" "${COHORT_GENERATED_DIR}")

# The MPI plug-in shares no global names with the core, so it works beside a shared and a static library alike: it is handed
# the objects of the core when it is opened, and carries a hidden copy of the few base functions it calls on them.
if(COI_HAVE_MPI AND COHORT_MPI_SOURCES)
    add_library(cohort_mpi MODULE ${COHORT_MPI_SOURCES})
    set_target_properties(cohort_mpi PROPERTIES
        C_VISIBILITY_PRESET hidden
        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/cohort")
    target_include_directories(cohort_mpi PRIVATE
        "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src" "${COHORT_GENERATED_DIR}")
    target_link_options(cohort_mpi PRIVATE
        $<$<NOT:$<BOOL:${COHORT_SANITIZE}>>:-Wl,--no-undefined> -Wl,--exclude-libs,ALL -Wl,--as-needed)
    target_link_libraries(cohort_mpi PRIVATE cohort_flags MPI::MPI_C cohort_static)
endif()

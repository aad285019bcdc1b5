# SPDX-License-Identifier: Apache-2.0
#
# Run by the build (cmake -P): writes the operator table from the objects of the library. Every global symbol coi_op_NAME
# that they define is an entry, so an operator is added by defining it, in whichever folder it belongs to.
#
#   NM       the program that lists symbols
#   OBJECTS  a file with the names of the objects, one to a line
#   OUTPUT   the C file to write
file(STRINGS "${OBJECTS}" objects)
# A few at a time: command lines have a limit.
set(symbols "")
set(some "")
list(LENGTH objects left)
foreach(object IN LISTS objects)
    list(APPEND some "${object}")
    list(LENGTH some count)
    math(EXPR left "${left} - 1")
    if(count EQUAL 100 OR left EQUAL 0)
        execute_process(COMMAND "${NM}" --defined-only --extern-only ${some}
            OUTPUT_VARIABLE text ERROR_VARIABLE problem RESULT_VARIABLE result)
        if(NOT result EQUAL 0)
            message(FATAL_ERROR "${NM} cannot list the symbols of the objects: ${problem}")
        endif()
        string(APPEND symbols "${text}")
        set(some "")
    endif()
endforeach()
# Data of any section: D, R, B, G, S or V, as nm marks it. Functions (T) such as coi_op_find are no entries.
string(REGEX MATCHALL "[0-9a-fA-F]+ [DRBGSV] coi_op_[a-z0-9_]+" found "${symbols}")
list(TRANSFORM found REPLACE ".* coi_op_" "")
list(SORT found COMPARE STRING)
list(LENGTH found count)
if(count EQUAL 0)
    message(FATAL_ERROR "no operator was found in the objects; with link-time optimisation, -DCMAKE_NM=gcc-nm can read them")
endif()
set(declarations "")
set(entries "")
foreach(name IN LISTS found)
    string(APPEND declarations "COI_USES_OP(${name})\n")
    string(APPEND entries "    &coi_op_${name},\n")
endforeach()
file(WRITE "${OUTPUT}.new" "/* Made by cmake/CohortOpTable.cmake: every operator that the objects of the library define, by name. */
#include \"ops/engine/op.h\"

${declarations}
const coi_op *const coi_op_table[] = {
${entries}};
const size_t coi_num_ops = ${count};
")
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)

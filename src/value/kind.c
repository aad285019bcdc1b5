/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of values and their names in messages.
 */
#include "value/value.h"

static const char *const kind_names[CO_NUM_KINDS] = {
    [CO_KIND_NULL] = "NULL",
    [CO_KIND_TENSOR] = "tensor",
    [CO_KIND_INT] = "host integer",
    [CO_KIND_FLOAT] = "host float",
    [CO_KIND_BOOL] = "host bool",
    [CO_KIND_STRING] = "host string",
    [CO_KIND_NONE] = "none",
    [CO_KIND_VARIABLE] = "variable",
    [CO_KIND_PER_REPLICA] = "per-replica value",
    [CO_KIND_MIRRORED] = "mirrored value",
    [CO_KIND_SLICES] = "indexed slices",
    [CO_KIND_SPEC] = "spec",
    [CO_KIND_LIST] = "list",
    [CO_KIND_TUPLE] = "tuple",
    [CO_KIND_NAMED_TUPLE] = "named tuple",
    [CO_KIND_DICT] = "map",
    [CO_KIND_DATASET] = "dataset",
};

co_kind
co_value_kind(const co_value *value)
{
    return value != NULL ? (co_kind)value->kind : CO_KIND_NULL;
}

const char *
coi_a_kind(int kind)
{
    static const char *const phrases[CO_NUM_KINDS] = {
        [CO_KIND_NULL] = "NULL",
        [CO_KIND_TENSOR] = "a tensor",
        [CO_KIND_INT] = "a host integer",
        [CO_KIND_FLOAT] = "a host float",
        [CO_KIND_BOOL] = "a host bool",
        [CO_KIND_STRING] = "a host string",
        [CO_KIND_NONE] = "none",
        [CO_KIND_VARIABLE] = "a variable",
        [CO_KIND_PER_REPLICA] = "a per-replica value",
        [CO_KIND_MIRRORED] = "a mirrored value",
        [CO_KIND_SLICES] = "indexed slices",
        [CO_KIND_SPEC] = "a spec",
        [CO_KIND_LIST] = "a list",
        [CO_KIND_TUPLE] = "a tuple",
        [CO_KIND_NAMED_TUPLE] = "a named tuple",
        [CO_KIND_DICT] = "a map",
        [CO_KIND_DATASET] = "a dataset",
    };

    return (unsigned)kind < CO_NUM_KINDS ? phrases[kind] : "a value of no kind";
}

const char *
co_kind_name(co_kind kind)
{
    return (unsigned)kind < CO_NUM_KINDS ? kind_names[kind] : "invalid kind";
}

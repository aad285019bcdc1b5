/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of operators, and what can be asked about it. Calling by name is in call_by_name.c.
 */
#include "ops/engine/op.h"

#include <string.h>

const coi_op *
coi_op_find(const char *name)
{
    size_t low = 0, high = coi_num_ops;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int    order = strcmp(name, coi_entry_name(coi_op_table[middle]));

        if (order == 0)
            return coi_op_table[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

size_t
co_num_ops(void)
{
    return coi_num_ops;
}

bool
co_op_describe(size_t i, co_op_info *info)
{
    const coi_op *op;
    co_op_info    full;
    size_t        num_attrs = 0;

    if (i >= coi_num_ops || info == NULL || info->struct_size < sizeof(info->struct_size))
        return false;
    op = coi_op_table[i];
    while (op->attr_texts != NULL && op->attr_texts[num_attrs] != NULL)
        ++num_attrs;
    full = (co_op_info){
        .struct_size = info->struct_size,
        .name = coi_entry_name(op),
        .doc = op->doc,
        .inputs = op->inputs,
        .num_inputs = op->num_inputs,
        .variadic = op->variadic,
        .attrs = op->attr_texts,
        .num_attrs = num_attrs,
        .differentiable = (op->grad != NULL || op->composite != NULL) && !op->not_differentiable,
        .internal = op->internal,
        .dtypes = op->dtypes,
        .reads = op->reads,
        .writes = op->writes,
        .by_name = coi_is_by_name(op),
    };
    memcpy(info, &full, info->struct_size < sizeof(full) ? info->struct_size : sizeof(full));
    return true;
}

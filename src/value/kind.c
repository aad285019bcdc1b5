/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of all kinds, and what is asked of any value without a context.
 */
#include "value/kind.h"

/* Each row is in the file named beside it. The list only names them: nothing is included from
 * below. */
extern const coi_kind_ops coi_tensor_kind, coi_spec_kind,
    coi_symbolic_kind;                       /* value/kinds_leaf.c */
extern const coi_kind_ops coi_variable_kind; /* value/cell.c */
extern const coi_kind_ops coi_int_kind, coi_float_kind, coi_bool_kind, coi_string_kind,
    coi_none_kind;                                                 /* context/kinds_host.c */
extern const coi_kind_ops coi_per_replica_kind, coi_mirrored_kind; /* context/kinds_distributed.c */
extern const coi_kind_ops coi_list_kind, coi_tuple_kind, coi_named_tuple_kind,
    coi_dict_kind;                                             /* context/kinds_structure.c */
extern const coi_kind_ops coi_slices_kind;                     /* ops/array/kinds_slices.c */
extern const coi_kind_ops coi_dataset_kind, coi_iterator_kind; /* data/kinds_input.c */
extern const coi_kind_ops coi_function_kind;                   /* function/function.c */

static const coi_kind_ops null_kind = { .name = "NULL", .a_name = "NULL" };

const coi_kind_ops *coi_kinds[COI_NUM_KINDS] = {
    [CO_KIND_NULL] = &null_kind,
    [CO_KIND_TENSOR] = &coi_tensor_kind,
    [CO_KIND_INT] = &coi_int_kind,
    [CO_KIND_FLOAT] = &coi_float_kind,
    [CO_KIND_BOOL] = &coi_bool_kind,
    [CO_KIND_STRING] = &coi_string_kind,
    [CO_KIND_NONE] = &coi_none_kind,
    [CO_KIND_VARIABLE] = &coi_variable_kind,
    [CO_KIND_PER_REPLICA] = &coi_per_replica_kind,
    [CO_KIND_MIRRORED] = &coi_mirrored_kind,
    [CO_KIND_SLICES] = &coi_slices_kind,
    [CO_KIND_SPEC] = &coi_spec_kind,
    [CO_KIND_LIST] = &coi_list_kind,
    [CO_KIND_TUPLE] = &coi_tuple_kind,
    [CO_KIND_NAMED_TUPLE] = &coi_named_tuple_kind,
    [CO_KIND_DICT] = &coi_dict_kind,
    [CO_KIND_DATASET] = &coi_dataset_kind,
    [CO_KIND_SYMBOLIC] = &coi_symbolic_kind,
    [CO_KIND_ITERATOR] = &coi_iterator_kind,
    [CO_KIND_FUNCTION] = &coi_function_kind,
};
_Static_assert(CO_NUM_KINDS <= COI_PRIVATE_KINDS, "public kinds come before private ones");

void
coi_kind_add(int kind, const coi_kind_ops *ops)
{
    if (kind >= COI_PRIVATE_KINDS && kind < COI_NUM_KINDS)
        coi_kinds[kind] = ops;
}

static const coi_kind_ops *
row_of(int kind)
{
    return (unsigned)kind < COI_NUM_KINDS ? coi_kinds[kind] : NULL;
}

co_kind
co_value_kind(const co_value *value)
{
    return value != NULL ? (co_kind)value->kind : CO_KIND_NULL;
}

const char *
coi_a_kind(int kind)
{
    const coi_kind_ops *row = row_of(kind);

    return row != NULL ? row->a_name : "a value of no kind";
}

const char *
co_kind_name(co_kind kind)
{
    const coi_kind_ops *row = row_of((int)kind);

    return row != NULL ? row->name : "invalid kind";
}

coi_values
coi_items_of(const co_value *value)
{
    const coi_kind_ops *row = coi_kind_of(value);

    return row->items != NULL ? row->items(value) : (coi_values){ NULL, 0 };
}

coi_values
coi_replicas_of(const co_value *value, bool *equal)
{
    const coi_kind_ops *row = coi_kind_of(value);
    bool                unused;

    return row->replicas != NULL ? row->replicas(value, equal != NULL ? equal : &unused)
                                 : (coi_values){ NULL, 0 };
}

const coi_text *
coi_texts_of(const co_value *value, coi_text *room, int64_t *n)
{
    const coi_kind_ops *row = coi_kind_of(value);

    return row->texts != NULL ? row->texts(value, room, n) : NULL;
}

int64_t
coi_rows_of(const co_value *value)
{
    const coi_kind_ops *row = coi_kind_of(value);

    return row->rows != NULL ? row->rows(value) : -1;
}

co_value *
coi_type_of(coi_heap *heap, co_value *leaf, co_error_info *err)
{
    const coi_kind_ops *row = coi_kind_of(leaf);
    coi_shape           shape;
    co_dtype            dtype;

    if (row->type != NULL)
        return row->type(heap, leaf, err);
    if (row->is_host)
        return coi_tensor_spec(heap, row->host_dtype(leaf), NULL, 0, err);
    if (row->describe == NULL) {
        coi_error(err, CO_TYPE_ERROR, "%s has no spec", row->a_name);
        return NULL;
    }
    row->describe(leaf, &shape, &dtype);
    return coi_tensor_spec(heap, dtype, shape.dims, shape.ndim, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of structures: lists, tuples, named tuples and dicts. Lists and tuples convert to a
 * tensor where their items do.
 */
#include "context/context.h"

#include <stdio.h>
#include <string.h>

/* --- a nested list as a tensor --- */

/* A nested list on its way to a tensor: dimensions of the lists, then those of their leaves. */
typedef struct nested {
    co_context *ctx;
    co_dtype    dtype;
    int         depth; /* dimensions that are lists */
    coi_shape   shape;
    int64_t     leaf_elements;
    char       *at; /* where the next leaf goes */
    int64_t     index[CO_MAX_DIMS];
} nested;

/* Where in the list something is wrong: "[1][0]". */
static bool
refuse_list(nested *list, int depth, const char *what)
{
    char path[CO_MAX_DIMS * 24] = "";
    int  at = 0;

    for (int i = 0; i < depth; ++i)
        at += snprintf(path + at, sizeof(path) - (size_t)at, "[%lld]", (long long)list->index[i]);
    coi_fail(list->ctx, CO_VALUE_ERROR, "a list does not convert to a tensor: %s at %s", what,
             path);
    return false;
}

/* The dtype of the first leaf that has one of its own; host numbers follow it, or take the widest
 * of theirs. */
static co_dtype
list_dtype(co_context *ctx, co_value *list, co_dtype *hosts)
{
    co_dtype  dtype = CO_DTYPE_NONE;
    coi_shape unused;

    if (coi_is_distributed(list) && (list = coi_component_here(ctx, list)) == NULL)
        return CO_DTYPE_NONE;
    if (coi_kind_of(list)->describe != NULL) {
        coi_kind_of(list)->describe(list, &unused, &dtype);
        return dtype;
    }
    if (coi_is_composite(list))
        return (co_dtype)list->dtype;
    if (!coi_is_structure(list)) {
        *hosts = coi_wider_dtype(*hosts, coi_host_dtype(list));
        return CO_DTYPE_NONE;
    }
    for (size_t i = 0; i < list->u.items.n && dtype == CO_DTYPE_NONE; ++i)
        dtype = list_dtype(ctx, list->u.items.items[i], hosts);
    return dtype;
}

/* The shape, from the first item of each level and the first leaf. */
static bool
list_shape(nested *list, co_value *value)
{
    co_value *leaf;

    for (; coi_is_structure(value); value = value->u.items.items[0]) {
        if (list->depth == CO_MAX_DIMS) {
            coi_fail(list->ctx, CO_INVALID_ARGUMENT,
                     "a list of more than %d levels; a tensor has "
                     "at most so many dimensions",
                     CO_MAX_DIMS);
            return false;
        }
        list->shape.dims[list->depth++] = (int64_t)value->u.items.n;
        if (value->u.items.n == 0)
            break;
    }
    list->shape.ndim = list->depth;
    if (coi_is_structure(value) || coi_host_dtype(value) != CO_DTYPE_NONE)
        return true;
    leaf = coi_as_tensor(list->ctx, value, list->dtype);
    if (leaf == NULL)
        return false;
    for (int i = 0; i < leaf->ndim && list->shape.ndim < CO_MAX_DIMS; ++i)
        list->shape.dims[list->shape.ndim++] = leaf->u.tensor.dims[i];
    list->leaf_elements = leaf->u.tensor.num_elements;
    if (list->shape.ndim < list->depth + leaf->ndim)
        coi_fail(list->ctx, CO_INVALID_ARGUMENT,
                 "a list of %d level%s of tensors of rank %d; a tensor has at most %d dimensions",
                 list->depth, COI_S(list->depth), leaf->ndim, CO_MAX_DIMS);
    coi_unref(&list->ctx->heap, leaf);
    return list->ctx->error.code == CO_OK;
}

static bool
put_leaf(nested *list, co_value *value)
{
    size_t    size = coi_dtypes[list->dtype].size, nbytes = (size_t)list->leaf_elements * size;
    co_value *leaf;
    bool      fits;

    if (coi_host_dtype(value) != CO_DTYPE_NONE && list->shape.ndim == list->depth) {
        list->at += size;
        return coi_put_host(list->ctx, value, list->dtype, list->at - size);
    }
    leaf = coi_as_tensor(list->ctx, value, list->dtype);
    if (leaf == NULL)
        return false;
    fits = leaf->dtype == list->dtype && leaf->ndim == list->shape.ndim - list->depth;
    for (int i = 0; fits && i < leaf->ndim; ++i)
        fits = leaf->u.tensor.dims[i] == list->shape.dims[list->depth + i];
    if (fits)
        coi_download(list->ctx, leaf, list->at);
    list->at += nbytes;
    coi_unref(&list->ctx->heap, leaf);
    if (coi_failed(list->ctx) != CO_OK)
        return false;
    if (!fits)
        return refuse_list(list, list->depth, "another shape or dtype than before");
    return true;
}

static bool
put_list(nested *list, co_value *value, int depth)
{
    if (depth == list->depth)
        return coi_is_structure(value) ? refuse_list(list, depth, "a list where others have none")
                                       : put_leaf(list, value);
    if (!coi_is_structure(value))
        return refuse_list(list, depth, "no list where others have one");
    if (!coi_is_sequence(value))
        return refuse_list(list, depth, co_kind_name((co_kind)value->kind));
    if ((int64_t)value->u.items.n != list->shape.dims[depth])
        return refuse_list(list, depth, "another number of items than before");
    for (size_t i = 0; i < value->u.items.n; ++i) {
        list->index[depth] = (int64_t)i;
        if (!put_list(list, value->u.items.items[i], depth + 1))
            return false;
    }
    return true;
}

/* A list, and the dtype that is asked for. */
typedef struct listed {
    co_value *value;
    co_dtype  dtype;
} listed;

static co_value *
stack(co_context *ctx, void *arg)
{
    const listed *of = arg;
    co_value     *value = of->value;
    co_dtype      dtype = of->dtype, hosts = CO_DTYPE_NONE;
    nested        list = { .ctx = ctx, .dtype = dtype, .leaf_elements = 1 };
    co_device    *device = coi_current_device(ctx);
    co_value     *tensor;
    int64_t       count;

    if (device == NULL)
        return NULL;
    if (dtype == CO_DTYPE_NONE && (list.dtype = list_dtype(ctx, value, &hosts)) == CO_DTYPE_NONE)
        list.dtype = hosts != CO_DTYPE_NONE ? hosts
                                            : CO_FLOAT32; /* of no numbers at all: float32 */
    if (list.dtype == CO_STRING) {
        coi_fail(ctx, CO_TYPE_ERROR, "a list of strings does not convert; use co_tensor_bytes");
        return NULL;
    }
    if (ctx->error.code != CO_OK || !list_shape(&list, value) ||
        coi_shape_check(list.shape.dims, (size_t)list.shape.ndim, coi_dtypes[list.dtype].size,
                        &count, coi_err(ctx)) != CO_OK)
        return NULL;
    tensor = coi_tensor_new(&ctx->heap, device->host, list.dtype, list.shape.dims, list.shape.ndim,
                            count, coi_err(ctx));
    if (tensor == NULL)
        return NULL;
    list.at = coi_data_on_host(tensor);
    if (!put_list(&list, value, 0)) {
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    return coi_place_tensor(ctx, tensor, device);
}

/* An entry of the operator table, whether it holds tensors or numbers alone. */
static co_value *
list_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    listed of = { value, dtype };

    return coi_stack_values(ctx, (coi_values){ value->u.items.items, value->u.items.n }, stack,
                            &of);
}

/* --- the rows --- */

/* The dtype of a list of nothing but host values. */
static co_dtype
items_dtype(const co_value *list)
{
    co_dtype dtype = CO_DTYPE_NONE;

    for (size_t i = 0; i < list->u.items.n; ++i) {
        co_dtype other = coi_host_dtype(list->u.items.items[i]);

        if (other == CO_DTYPE_NONE)
            return CO_DTYPE_NONE;
        dtype = coi_wider_dtype(dtype, other);
    }
    return dtype;
}

static coi_values
items(const co_value *structure)
{
    return (coi_values){ structure->u.items.items, structure->u.items.n };
}

static void
destroy(coi_heap *heap, co_value *structure)
{
    size_t nbytes;

    coi_items_free(heap, structure->u.items.items, structure->u.items.n, structure->u.items.room);
    if (structure->u.items.keys == NULL)
        return;
    memcpy(&nbytes, structure->u.items.keys, sizeof(nbytes));
    coi_small_free(heap, structure->u.items.keys, nbytes);
}

/* Items between brackets, each behind its key where there are words around one. */
static void
print_items(coi_printer *out, const co_value *structure, const char *open, const char *close,
            const char *before_key, const char *after_key)
{
    coi_print(out, "%s", open);
    for (size_t i = 0; i < structure->u.items.n; ++i) {
        coi_print(out, i > 0 ? ", " : "");
        if (after_key != NULL)
            coi_print(out, "%s%s%s", before_key, structure->u.items.keys[i + 1], after_key);
        coi_print_value(out, structure->u.items.items[i]);
    }
    coi_print(out, "%s", close);
}

static void
print_list(coi_printer *out, const co_value *list)
{
    print_items(out, list, "[", "]", NULL, NULL);
}

static void
print_tuple(coi_printer *out, const co_value *tuple)
{
    print_items(out, tuple, "(", tuple->u.items.n == 1 ? ",)" : ")", NULL, NULL);
}

static void
print_named_tuple(coi_printer *out, const co_value *tuple)
{
    coi_print(out, "%s", tuple->u.items.type_name != NULL ? tuple->u.items.type_name : "");
    print_items(out, tuple, "(", ")", "", "=");
}

static void
print_dict(coi_printer *out, const co_value *dict)
{
    print_items(out, dict, "{", "}", "'", "': ");
}

const coi_kind_ops coi_list_kind = {
    .name = "list",
    .a_name = "a list",
    .is_sequence = true,
    .destroy = destroy,
    .print = print_list,
    .as_tensor = list_tensor,
    .host_dtype = items_dtype,
    .items = items,
};

const coi_kind_ops coi_tuple_kind = {
    .name = "tuple",
    .a_name = "a tuple",
    .is_sequence = true,
    .destroy = destroy,
    .print = print_tuple,
    .as_tensor = list_tensor,
    .host_dtype = items_dtype,
    .items = items,
};

const coi_kind_ops coi_named_tuple_kind = {
    .name = "named tuple",
    .a_name = "a named tuple",
    .destroy = destroy,
    .print = print_named_tuple,
    .items = items,
};

const coi_kind_ops coi_dict_kind = {
    .name = "dict",
    .a_name = "a dict",
    .has_sorted_keys = true,
    .destroy = destroy,
    .print = print_dict,
    .items = items,
};

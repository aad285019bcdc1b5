/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From any value to the tensor that it is where a context runs: variables are read, bundles give
 * the component of this replica (DV-USE-1 to DV-USE-3), host values become tensors (C-VAL-4).
 */
#include "context/context.h"

#include <stdio.h>
#include <string.h>

co_value *
coi_select(co_value *value, int local_replica)
{
    if ((value->kind == CO_KIND_PER_REPLICA || value->kind == CO_KIND_MIRRORED) &&
        (size_t)local_replica < value->u.per_replica.n)
        return value->u.per_replica.items[local_replica];
    return value;
}

co_dtype
coi_wider_dtype(co_dtype a, co_dtype b)
{
    static const uint8_t widths[CO_NUM_DTYPES] = {
        [CO_INT32] = 1, [CO_INT64] = 2, [CO_FLOAT32] = 3
    };

    if (a == CO_DTYPE_NONE)
        return b;
    return widths[a] > 0 && widths[b] > widths[a] ? b : a;
}

co_dtype
coi_host_dtype(const co_value *value)
{
    co_dtype dtype = CO_DTYPE_NONE;

    switch (value->kind) {
    case CO_KIND_INT:
        return value->u.i >= INT32_MIN && value->u.i <= INT32_MAX ? CO_INT32 : CO_INT64;
    case CO_KIND_FLOAT: return CO_FLOAT32;
    case CO_KIND_BOOL: return CO_BOOL;
    case CO_KIND_STRING: return CO_STRING;
    case CO_KIND_LIST:
    case CO_KIND_TUPLE:
        for (size_t i = 0; i < value->u.items.n; ++i) {
            co_dtype other = coi_host_dtype(value->u.items.items[i]);

            if (other == CO_DTYPE_NONE)
                return CO_DTYPE_NONE;
            dtype = coi_wider_dtype(dtype, other);
        }
        return dtype;
    default: return CO_DTYPE_NONE;
    }
}

/* Whether a host integer is a value of dtype; what does not fit is an error, not a wrap. */
static bool
integer_fits(int64_t i, co_dtype dtype)
{
    int64_t low, high;

    coi_integer_limits(dtype, &low, &high);
    return !coi_dtypes[dtype].integer || (i >= low && i <= high);
}

/* A host number goes to any number type that holds it; a float never to an integer, a bool only to
 * bool. */
static bool
host_converts(co_context *ctx, const co_value *value, co_dtype dtype)
{
    bool fits;

    switch (value->kind) {
    case CO_KIND_INT: fits = (coi_dtypes[dtype].integer || coi_dtypes[dtype].floating); break;
    case CO_KIND_FLOAT: fits = coi_dtypes[dtype].floating; break;
    case CO_KIND_BOOL: fits = dtype == CO_BOOL; break;
    default: fits = dtype == CO_STRING; break;
    }
    if (!fits) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "a %s does not convert to %s; use co_cast or a value of that dtype",
                 co_kind_name((co_kind)value->kind), co_dtype_name(dtype));
        return false;
    }
    if (value->kind == CO_KIND_INT && !integer_fits(value->u.i, dtype)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "the number %lld does not fit in %s",
                 (long long)value->u.i, co_dtype_name(dtype));
        return false;
    }
    return true;
}

/* A host number as an element of dtype. */
static bool
put_host(co_context *ctx, const co_value *value, co_dtype dtype, void *out)
{
    if (!host_converts(ctx, value, dtype))
        return false;
    if (value->kind == CO_KIND_INT)
        coi_convert(CO_INT64, &value->u.i, dtype, out, 1);
    else if (value->kind == CO_KIND_FLOAT)
        coi_convert(CO_FLOAT64, &value->u.f, dtype, out, 1);
    else
        *(uint8_t *)out = value->u.b;
    return true;
}

static co_value *
string_tensor(co_context *ctx, const co_value *value, co_dtype dtype, co_device *device)
{
    coi_text text = { value->u.string.data, value->u.string.nbytes };

    if (!host_converts(ctx, value, dtype))
        return NULL;
    return coi_tensor_strings(&ctx->heap, device, NULL, 0, 1, &text, coi_err(ctx));
}

static co_value *
host_tensor(co_context *ctx, const co_value *value, co_dtype dtype)
{
    co_device *device = coi_current_device(ctx);
    co_value  *tensor;

    if (device == NULL)
        return NULL;
    if (dtype == CO_DTYPE_NONE)
        dtype = coi_host_dtype(value);
    if (value->kind == CO_KIND_STRING)
        return string_tensor(ctx, value, dtype, device);
    tensor = coi_tensor_new(&ctx->heap, device, dtype, NULL, 0, 1, coi_err(ctx));
    if (tensor != NULL && !put_host(ctx, value, dtype, tensor->u.tensor.data)) {
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    return tensor;
}

/* The component of a bundle that the context sees; NULL with DV-USE-1's error. */
static co_value *
component(co_context *ctx, co_value *per_replica)
{
    size_t n = per_replica->u.per_replica.n;

    if (ctx->mode.update_id >= 0 && (size_t)ctx->mode.update_id < n)
        return per_replica->u.per_replica.items[ctx->mode.update_id];
    if (coi_in_replica(ctx)) {
        if ((size_t)ctx->mode.local_replica < n)
            return per_replica->u.per_replica.items[ctx->mode.local_replica];
        coi_fail(ctx, CO_VALUE_ERROR, "a %s of %zu components is used in local replica %d",
                 co_kind_name((co_kind)per_replica->kind), n, ctx->mode.local_replica);
        return NULL;
    }
    if (per_replica->kind == CO_KIND_PER_REPLICA) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "a per-replica value is used as a tensor outside a replica; pass it to co_run, or "
                 "take its parts with co_local_results");
        return NULL;
    }
    for (size_t i = 0; i < n && ctx->mode.cross; ++i) {
        co_value *item = per_replica->u.per_replica.items[i];

        if (item->kind == CO_KIND_TENSOR && item->u.tensor.device == ctx->device)
            return item;
    }
    return per_replica->u.per_replica.items[0];
}

static co_value *as_tensor(co_context *ctx, co_value *value, co_dtype dtype);

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
    co_dtype dtype = CO_DTYPE_NONE;

    if (list->kind == CO_KIND_PER_REPLICA || list->kind == CO_KIND_MIRRORED)
        list = component(ctx, list);
    if (list == NULL || list->kind == CO_KIND_TENSOR || list->kind == CO_KIND_SLICES)
        return list != NULL ? (co_dtype)list->dtype : CO_DTYPE_NONE;
    if (list->kind == CO_KIND_VARIABLE)
        return (co_dtype)list->u.variable->dtype;
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
    leaf = as_tensor(list->ctx, value, list->dtype);
    if (leaf == NULL)
        return false;
    for (int i = 0; i < leaf->ndim && list->shape.ndim < CO_MAX_DIMS; ++i)
        list->shape.dims[list->shape.ndim++] = leaf->u.tensor.dims[i];
    list->leaf_elements = leaf->u.tensor.num_elements;
    if (list->shape.ndim < list->depth + leaf->ndim)
        coi_fail(list->ctx, CO_INVALID_ARGUMENT,
                 "a list of %d levels of tensors of rank %d; a tensor has at most %d dimensions",
                 list->depth, leaf->ndim, CO_MAX_DIMS);
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
        return put_host(list->ctx, value, list->dtype, list->at - size);
    }
    leaf = as_tensor(list->ctx, value, list->dtype);
    if (leaf == NULL)
        return false;
    fits = leaf->dtype == list->dtype && leaf->ndim == list->shape.ndim - list->depth;
    for (int i = 0; fits && i < leaf->ndim; ++i)
        fits = leaf->u.tensor.dims[i] == list->shape.dims[list->depth + i];
    if (fits && nbytes > 0)
        memcpy(list->at, leaf->u.tensor.data, nbytes);
    list->at += nbytes;
    coi_unref(&list->ctx->heap, leaf);
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
    if (value->kind != CO_KIND_LIST && value->kind != CO_KIND_TUPLE)
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

static co_value *
list_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    nested     list = { .ctx = ctx, .dtype = dtype, .leaf_elements = 1 };
    co_device *device = coi_current_device(ctx);
    co_dtype   hosts = CO_DTYPE_NONE;
    co_value  *tensor;
    int64_t    count;

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
    tensor = coi_tensor_new(&ctx->heap, device, list.dtype, list.shape.dims, list.shape.ndim, count,
                            coi_err(ctx));
    if (tensor == NULL)
        return NULL;
    list.at = tensor->u.tensor.data;
    if (!put_list(&list, value, 0)) {
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    return tensor;
}

static co_value *
as_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    switch (value->kind) {
    case CO_KIND_TENSOR: coi_ref(value); return value;
    case CO_KIND_INT:
    case CO_KIND_FLOAT:
    case CO_KIND_BOOL:
    case CO_KIND_STRING: return host_tensor(ctx, value, dtype);
    case CO_KIND_VARIABLE: return value->u.variable->ops->read(ctx, value);
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED: {
        co_value *part = component(ctx, value);

        return part != NULL ? as_tensor(ctx, part, dtype) : NULL;
    }
    case CO_KIND_LIST:
    case CO_KIND_TUPLE: return list_tensor(ctx, value, dtype);
    case CO_KIND_SLICES: return coi_slices_dense(&ctx->heap, value, coi_err(ctx));
    default:
        coi_fail(ctx, CO_TYPE_ERROR, "%s does not convert to a tensor", coi_a_kind(value->kind));
        return NULL;
    }
}

co_value *
coi_as_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    co_value *tensor = as_tensor(ctx, value, dtype);

    if (tensor == NULL)
        coi_failed(ctx);
    return tensor;
}

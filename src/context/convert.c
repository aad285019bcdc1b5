/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From any value to the tensor that it is where a context runs: variables are read, bundles give the component of this
 * replica (DV-USE-1 to DV-USE-3), host values become tensors (C-VAL-4).
 */
#include "context/context.h"

#include <math.h>
#include <string.h>

co_value *
coi_select(co_value *value, int local_replica)
{
    if ((value->kind == CO_KIND_PER_REPLICA || value->kind == CO_KIND_MIRRORED) &&
        local_replica >= 0 && (size_t)local_replica < value->u.bundle.n)
        return value->u.bundle.items[local_replica];
    return value;
}

/* The dtype that a host value has alone. */
static co_dtype
natural_dtype(const co_value *value)
{
    switch (value->kind) {
    case CO_KIND_INT:
        return value->u.i >= INT32_MIN && value->u.i <= INT32_MAX ? CO_INT32 : CO_INT64;
    case CO_KIND_FLOAT: return CO_FLOAT32;
    case CO_KIND_BOOL: return CO_BOOL;
    default: return CO_STRING;
    }
}

/* Whether a host integer is a value of dtype; what does not fit is an error, not a wrap. */
static bool
integer_fits(int64_t i, co_dtype dtype)
{
    size_t  bits = coi_dtypes[dtype].size * 8;
    int64_t top;

    if (!coi_dtypes[dtype].integer || dtype == CO_INT64)
        return true;
    if (dtype == CO_UINT64)
        return i >= 0;
    top = coi_dtypes[dtype].is_signed ? (int64_t)1 << (bits - 1) : (int64_t)1 << bits;
    return i < top && i >= (coi_dtypes[dtype].is_signed ? -top : 0);
}

/* A host number goes to any number type that holds it; a float never to an integer, a bool only to bool. */
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

static co_value *
host_tensor(co_context *ctx, const co_value *value, co_dtype dtype)
{
    co_device *device = coi_current_device(ctx);
    co_value  *tensor;
    uint8_t    byte;

    if (device == NULL)
        return NULL;
    if (dtype == CO_DTYPE_NONE)
        dtype = natural_dtype(value);
    else if (!host_converts(ctx, value, dtype))
        return NULL;
    if (value->kind == CO_KIND_STRING) {
        coi_text text = { value->u.string.data, value->u.string.nbytes };

        return coi_tensor_strings(&ctx->heap, device, NULL, 0, 1, &text, coi_err(ctx));
    }
    tensor = coi_tensor_new(&ctx->heap, device, dtype, NULL, 0, 1, coi_err(ctx));
    if (tensor == NULL)
        return NULL;
    if (value->kind == CO_KIND_INT) {
        coi_convert(CO_INT64, &value->u.i, dtype, tensor->u.tensor.data, 1);
    } else if (value->kind == CO_KIND_FLOAT) {
        coi_convert(CO_FLOAT64, &value->u.f, dtype, tensor->u.tensor.data, 1);
    } else {
        byte = value->u.b;
        memcpy(tensor->u.tensor.data, &byte, 1);
    }
    return tensor;
}

/* The component of a bundle that the context sees; NULL with DV-USE-1's error. */
static co_value *
component(co_context *ctx, co_value *bundle)
{
    size_t n = bundle->u.bundle.n;

    if (ctx->mode.update_id >= 0 && (size_t)ctx->mode.update_id < n)
        return bundle->u.bundle.items[ctx->mode.update_id];
    if (ctx->mode.step != NULL && !ctx->mode.cross) {
        if ((size_t)ctx->mode.local_replica < n)
            return bundle->u.bundle.items[ctx->mode.local_replica];
        coi_fail(ctx, CO_VALUE, "a %s of %zu components is used in local replica %d",
                 co_kind_name((co_kind)bundle->kind), n, ctx->mode.local_replica);
        return NULL;
    }
    if (bundle->kind == CO_KIND_PER_REPLICA) {
        coi_fail(
            ctx, CO_VALUE,
            "a per-replica value is used as a tensor outside a replica; pass it to co_run, or take "
            "its parts with co_local_results");
        return NULL;
    }
    for (size_t i = 0; i < n && ctx->mode.cross; ++i) {
        co_value *item = bundle->u.bundle.items[i];

        if (item->kind == CO_KIND_TENSOR && item->u.tensor.device == ctx->device)
            return item;
    }
    return bundle->u.bundle.items[0];
}

static co_value *as_tensor(co_context *ctx, co_value *value, co_dtype dtype);

/* The shape and dtype of nested lists of numbers, from the first of each level. */
static bool
list_shape(co_context *ctx, const co_value *list, coi_shape *shape, const co_value **first)
{
    while (coi_is_structure(list)) {
        if (list->kind == CO_KIND_MAP || list->kind == CO_KIND_NAMED_TUPLE ||
            shape->ndim == CO_MAX_DIMS) {
            coi_fail(ctx, CO_TYPE, "a %s does not convert to a tensor",
                     co_kind_name((co_kind)list->kind));
            return false;
        }
        shape->dims[shape->ndim++] = (int64_t)list->u.items.n;
        if (list->u.items.n == 0)
            break;
        list = list->u.items.items[0];
    }
    *first = list;
    return true;
}

static bool
fill_from_list(co_context *ctx, co_value *list, int depth, const coi_shape *shape, co_value *tensor,
               char **at)
{
    size_t    size = coi_dtypes[tensor->dtype].size;
    co_value *scalar;

    if (depth < shape->ndim) {
        if (!coi_is_structure(list) || (int64_t)list->u.items.n != shape->dims[depth]) {
            coi_fail(ctx, CO_VALUE, "a list is ragged at depth %d: expected %lld items", depth,
                     (long long)shape->dims[depth]);
            return false;
        }
        for (size_t i = 0; i < list->u.items.n; ++i)
            if (!fill_from_list(ctx, list->u.items.items[i], depth + 1, shape, tensor, at))
                return false;
        return true;
    }
    scalar = as_tensor(ctx, list, (co_dtype)tensor->dtype);
    if (scalar == NULL)
        return false;
    if (scalar->u.tensor.num_elements != 1 || scalar->dtype != tensor->dtype) {
        coi_fail(ctx, CO_VALUE, "a list mixes numbers with a tensor of %lld %s elements",
                 (long long)scalar->u.tensor.num_elements, co_dtype_name((co_dtype)scalar->dtype));
        coi_unref(&ctx->heap, scalar);
        return false;
    }
    memcpy(*at, scalar->u.tensor.data, size);
    *at += size;
    coi_unref(&ctx->heap, scalar);
    return true;
}

/* An integer list is float as soon as one number is. */
static co_dtype
widest(const co_value *list, co_dtype so_far)
{
    if (!coi_is_structure(list)) {
        co_dtype mine = list->kind == CO_KIND_TENSOR ? (co_dtype)list->dtype
                        : list->kind >= CO_KIND_INT && list->kind <= CO_KIND_STRING
                            ? natural_dtype(list)
                            : so_far;
        if (so_far == CO_DTYPE_NONE || mine == CO_FLOAT32 ||
            (mine == CO_INT64 && so_far == CO_INT32))
            return mine;
        return so_far;
    }
    for (size_t i = 0; i < list->u.items.n; ++i)
        so_far = widest(list->u.items.items[i], so_far);
    return so_far;
}

static co_value *
list_tensor(co_context *ctx, co_value *list, co_dtype dtype)
{
    coi_shape       shape = { 0, { 0 } };
    const co_value *first = NULL;
    co_device      *device = coi_current_device(ctx);
    co_value       *tensor;
    int64_t         count;
    char           *at;

    if (device == NULL || !list_shape(ctx, list, &shape, &first))
        return NULL;
    if (dtype == CO_DTYPE_NONE)
        dtype = widest(list, CO_DTYPE_NONE);
    if (dtype == CO_DTYPE_NONE)
        dtype = CO_FLOAT32; /* an empty list, as the reference has it */
    if (dtype == CO_STRING) {
        coi_fail(ctx, CO_TYPE, "a list of strings does not convert; use co_tensor_bytes");
        return NULL;
    }
    if (coi_shape_check(shape.dims, (size_t)shape.ndim, coi_dtypes[dtype].size, &count,
                        coi_err(ctx)) != CO_OK)
        return NULL;
    tensor = coi_tensor_new(&ctx->heap, device, dtype, shape.dims, shape.ndim, count, coi_err(ctx));
    if (tensor == NULL)
        return NULL;
    at = tensor->u.tensor.data;
    if (!fill_from_list(ctx, list, 0, &shape, tensor, &at)) {
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
        coi_fail(ctx, CO_TYPE, "a %s does not convert to a tensor",
                 co_kind_name((co_kind)value->kind));
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

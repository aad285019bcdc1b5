/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From any value to the tensor that it is where a context runs, as the row of its kind says:
 * variables are read, distributed values give the part of this replica (kinds_distributed.c), host
 * values and lists of them become tensors (kinds_host.c, kinds_structure.c).
 */
#include "context/context.h"

co_value *
coi_select(co_value *value, int local_replica)
{
    if (coi_is_distributed(value) && (size_t)local_replica < value->u.per_replica.n)
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
    const coi_kind_ops *row = coi_kind_of(value);

    return row->host_dtype != NULL ? row->host_dtype(value) : CO_DTYPE_NONE;
}

co_value *
coi_as_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    const coi_kind_ops *row;
    co_value           *tensor;

    if (value->kind == CO_KIND_TENSOR) { /* most are */
        coi_ref(value);
        return value;
    }
    row = coi_kind_of(value);
    if (value->kind == CO_KIND_SYMBOLIC || (ctx->capture != NULL && row->is_variable)) {
        coi_fail_symbolic(ctx, value);
        return NULL;
    }
    if (row->as_tensor == NULL ||
        (row->composite != NULL && !coi_composite_is_whole(value))) { /* the type of one */
        coi_fail(ctx, CO_TYPE_ERROR, "%s%s does not convert to a tensor",
                 row->as_tensor != NULL ? "the type of " : "", row->a_name);
        return NULL;
    }
    tensor = row->as_tensor(ctx, value, dtype);
    if (tensor == NULL)
        coi_failed(ctx);
    return tensor;
}

co_value *
coi_copy_to_host(co_context *ctx, co_value *tensor)
{
    return coi_give(ctx, coi_bring_tensor_to_host(ctx, tensor));
}

co_value *
coi_host_zeros(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    co_device *host = coi_current_host(ctx);
    int64_t    count;
    co_value  *made;

    if (host == NULL || !coi_check_shape(ctx, dtype, dims, ndim, &count))
        return NULL;
    made = coi_tensor_new(&ctx->heap, host, dtype, dims, ndim, count, coi_err(ctx));
    if (made != NULL)
        coi_tensor_clear(made, NULL); /* which cannot fail on the host */
    coi_note_host_made(ctx, made);
    return coi_give(ctx, made);
}

co_value *
coi_place_here(co_context *ctx, co_value *tensor)
{
    co_device *device = tensor != NULL ? coi_current_device(ctx) : NULL;

    if (device == NULL || tensor->u.tensor.device == device)
        return device != NULL ? tensor : NULL;
    return coi_give(ctx, coi_copy_tensor(ctx, tensor, device));
}

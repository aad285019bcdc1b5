/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients through all_reduce and all_gather. They are collectives themselves: every replica that
 * computes one has recorded the same call. The operators inside them are recorded too, so there
 * are gradients of gradients.
 */
#include <cohort/ops.h>
#include <cohort/strategy.h>

#include "ops/engine/gradient.h"
#include "ops/engine/execute.h"
#include "strategy/cross_replica_reduce.h"

#include <string.h>

/* The sum over replicas of the incoming gradients: all replicas have the same result, and each has
 * its own gradient of it. */
static co_value *
total_upstream(const coi_grad *grad)
{
    return co_all_reduce(grad->ctx, CO_REDUCE_SUM, grad->upstream[0]);
}

/* RC-AR-9. */
static co_value *
grad_mean(const coi_grad *grad)
{
    return co_all_reduce(grad->ctx, CO_REDUCE_MEAN, grad->upstream[0]);
}

/* To the replicas that had the extreme value, in equal parts if several had it. */
static co_value *
grad_extreme(const coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *x = grad->in[0], *had = co_equal(ctx, x, grad->out[0]);

    had = co_cast(ctx, had, (co_dtype)x->dtype);
    return co_mul(ctx, co_div(ctx, had, co_all_reduce(ctx, CO_REDUCE_SUM, had)),
                  total_upstream(grad));
}

/* Times the product of the others, which division alone does not give where a factor is zero: with
 * one zero only its replica has a gradient, with two none. */
static co_value *
grad_product(const coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *x = grad->in[0], *zero = co_float(ctx, 0);
    co_dtype    dtype = (co_dtype)x->dtype;
    co_value   *is_zero = co_cast(ctx, co_equal(ctx, x, zero), dtype), *factor, *others, *counts;

    factor = co_add(ctx, x, is_zero); /* one for zero */
    others = co_div(ctx, co_all_reduce(ctx, CO_REDUCE_PROD, factor), factor);
    counts = co_equal(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, is_zero), is_zero);
    return co_mul(ctx, co_mul(ctx, others, co_cast(ctx, counts, dtype)), total_upstream(grad));
}

static co_value *(*const reduce_grads[])(const coi_grad *grad) = {
    [CO_REDUCE_SUM] = total_upstream, [CO_REDUCE_MEAN] = grad_mean,
    [CO_REDUCE_MIN] = grad_extreme,   [CO_REDUCE_MAX] = grad_extreme,
    [CO_REDUCE_PROD] = grad_product,
};

static co_code
grad_all_reduce(coi_grad *grad)
{
    int32_t op;

    memcpy(&op, grad->attrs, sizeof(op));
    grad->grads[0] = reduce_grads[op](grad);
    return grad->ctx->error.code;
}

/* The replica's own rows of the sum. Where they begin is asked for now: a result is gathered more
 * often than differentiated. */
static co_code
grad_all_gather(coi_grad *grad)
{
    co_context     *ctx = grad->ctx;
    const co_value *x = grad->in[0];
    int64_t         begin[CO_MAX_DIMS] = { 0 }, one = 1;
    int32_t         axis;
    co_value       *total = total_upstream(grad), *extents;
    const int64_t  *lengths;

    memcpy(&axis, grad->attrs, sizeof(axis));
    extents = co_all_gather(ctx, co_tensor(ctx, CO_INT64, &one, 1, &x->u.tensor.dims[axis]), 0);
    lengths = extents != NULL ? coi_host_data(ctx, extents) : NULL;
    if (total == NULL || lengths == NULL)
        return coi_failed(ctx);
    for (int i = 0; i < ctx->mode.replica; ++i)
        begin[axis] += lengths[i];
    grad->grads[0] = co_slice(ctx, total, begin, x->u.tensor.dims, (size_t)x->ndim);
    return ctx->error.code;
}

/* It reads how many rows the others have. */
static bool
is_known_later(const coi_grad *grad)
{
    (void)grad;
    return false;
}

const coi_op coi_op_all_reduce = {
    COI_EFFECT("all_reduce", "Combines tensors over replicas, on every replica; co_all_reduce.",
               coi_body_effect, CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS,
               CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS),
    .variadic = true, .num_outputs = 1, .attrs_rule.size = COI_ATTRS_SIZE(int32_t),
    .grad = grad_all_reduce
};
const coi_op coi_op_all_gather = {
    COI_EFFECT("all_gather", "Concatenates tensors over replicas, on every replica; co_all_gather.",
               coi_body_effect, CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS,
               CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS),
    .variadic = true,
    .num_outputs = 1,
    .attrs_rule.size = COI_ATTRS_SIZE(int32_t),
    .grad = grad_all_gather,
    .grad_is_known = is_known_later
};

bool
coi_record_collective(co_context *ctx, bool gather, int32_t how, co_value *leaf, co_value *in,
                      co_value *result)
{
    uint32_t node;

    if (!ctx->recording || (result->kind != CO_KIND_TENSOR && !coi_is_type(result)) ||
        !coi_dtypes[result->dtype].floating)
        return true;
    node = coi_tape_node(ctx, leaf, in);
    return node == COI_NO_NODE ||
           coi_tape_record(ctx, gather ? &coi_op_all_gather : &coi_op_all_reduce, &how, sizeof(how),
                           &in, &node, 1, &result, 1);
}

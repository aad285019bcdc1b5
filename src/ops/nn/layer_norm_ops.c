/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm over the last axes and its gradient, each as one operator. The statistics of rows are
 * a second result, so that the gradient has none to compute. While a tape records the gradient, it
 * is a composite of other operators, which have gradients of any order.
 */
#include "ops/kernels/layer_norm.h"

#include "ops/engine/like_ops.h"
#include "ops/kernels/row_kernels.h"
#include "ops/engine/type_rules.h"
#include "ops/nn/nn_ops.h"

#define NORM_ATTRS(X)                                                                              \
    X(coi_norm_attrs, epsilon, FLOAT, "", NULL)                                                    \
    X(coi_norm_attrs, num_axes, INT, "", NULL)
COI_ATTR_TABLE(coi_norm_attrs, NORM_ATTRS)

/* Whether y is one row of x: its last dimensions are those of x, the others, if there are any,
 * are 1. */
static bool
is_one_row(const co_value *x, const co_value *y, int num_axes)
{
    bool is_one = y->ndim >= num_axes;

    for (int d = 1; is_one && d <= y->ndim; ++d)
        is_one = y->u.tensor.dims[y->ndim - d] ==
                 (d <= num_axes ? x->u.tensor.dims[x->ndim - d] : 1);
    return is_one;
}

bool
coi_norm_is_rows(co_value *const *in, int num_axes)
{
    return is_one_row(in[0], in[1], num_axes) && is_one_row(in[0], in[2], num_axes);
}

/* Statistics and partial sums of halves are floats. */
static co_dtype
wide_dtype(const co_value *x)
{
    return x->dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32;
}

/* A matrix of floats with a line for each `rows` rows of x. */
static coi_out
lines(const co_value *x, const coi_norm_attrs *attrs, int64_t rows, int64_t columns)
{
    int64_t num_rows = COI_UNKNOWN;

    if (coi_is_known_shape(x))
        num_rows = (coi_norm_dims_product(x, 0, x->ndim - (int)attrs->num_axes) + rows - 1) / rows;
    return (coi_out){ .dtype = wide_dtype(x), .ndim = 2, .dims = { num_rows, columns } };
}

static co_code
norm_infer(coi_call *call, coi_out *outs)
{
    outs[1] = lines(call->in[0], call->attrs, 1, COI_NORM_STATISTICS);
    return coi_rule_same(call, outs);
}

/* The gradient of x, and sums for those of gamma and beta, a row for each chunk. */
static co_code
norm_grad_infer(coi_call *call, coi_out *outs)
{
    bool    knows = coi_is_known_shape(call->in[0]);
    int64_t dim = knows ? coi_norm_row_elements(call->in[0], call->attrs) : COI_UNKNOWN;

    outs[1] = outs[2] = lines(call->in[0], call->attrs, knows ? coi_norm_chunk_rows(dim) : 1, dim);
    return coi_rule_same(call, outs);
}

const coi_op coi_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .doc =
        "The gradient of layer_norm_rows for x, and sums of chunks of rows for those of gamma and beta.",
    .inputs = { "x", "gamma", "g", "statistics" },
    .num_inputs = 4,
    .num_outputs = 3,
    COI_ATTRS(coi_norm_attrs),
    .internal = true,
    .not_by_name = true,
    .not_differentiable = true,
    .infer = norm_grad_infer,
    .upcasts = true,
    .ref = coi_ref_norm_grad,
    .run = coi_norm_run,
};

/* Sums of chunks as the gradient of gamma or beta. */
static co_value *
total(co_context *ctx, co_value *parts, co_value *like)
{
    co_value *sum = co_reduce_sum(ctx, parts, CO_AXES(0), false);

    return coi_reshape_like(ctx, co_cast(ctx, sum, (co_dtype)like->dtype), like);
}

static co_value *
row_mean(co_context *ctx, co_value *x, const coi_norm_attrs *attrs)
{
    int axes[CO_MAX_DIMS];

    for (int i = 0; i < attrs->num_axes; ++i)
        axes[i] = -1 - i;
    return co_reduce_mean(ctx, x, axes, (size_t)attrs->num_axes, true);
}

/* The gradients as compositions, for gradients of them: with z the x that was normalised and h = g
 * gamma, those of x are (h - mean(h) - z mean(h z)) / deviation. */
static co_code
composed_gradient(coi_grad *grad)
{
    const coi_norm_attrs *attrs = grad->attrs;
    co_context           *ctx = grad->ctx;
    co_value             *x = grad->in[0], *gamma = grad->in[1], *g = grad->upstream[0];
    co_value             *z = co_sub(ctx, x, row_mean(ctx, x, attrs)), *h = co_mul(ctx, g, gamma);
    co_value             *scale = co_rsqrt(ctx, co_add(ctx, row_mean(ctx, co_square(ctx, z), attrs),
                                                       co_float(ctx, attrs->epsilon)));

    z = co_mul(ctx, z, scale);
    if (grad->needed[0]) {
        co_value *along = co_mul(ctx, z, row_mean(ctx, co_mul(ctx, h, z), attrs));

        grad->grads[0] = co_mul(ctx, co_sub(ctx, co_sub(ctx, h, row_mean(ctx, h, attrs)), along),
                                scale);
    }
    if (grad->needed[1])
        grad->grads[1] = coi_unbroadcast(ctx, co_mul(ctx, g, z), gamma);
    if (grad->needed[2])
        grad->grads[2] = coi_unbroadcast(ctx, g, grad->in[2]);
    return ctx->error.code;
}

static co_code
norm_gradient(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *in[4] = { grad->in[0], grad->in[1], grad->upstream[0], grad->out[1] }, *outs[3];

    if (ctx->recording)
        return composed_gradient(grad);
    if (coi_apply_many(ctx, &coi_op_layer_norm_grad, in, 4, grad->attrs, outs) != CO_OK)
        return ctx->error.code;
    grad->grads[0] = outs[0];
    for (int i = 1; i < 3; ++i)
        if (grad->needed[i])
            grad->grads[i] = total(ctx, outs[i], grad->in[i]);
    return ctx->error.code;
}

const coi_op coi_op_layer_norm_rows = {
    .name = "layer_norm",
    .entry = "layer_norm_rows",
    .doc =
        "layer_norm over the last axes with one row of gamma and beta, and the statistics of each row.",
    .inputs = { "x", "gamma", "beta" },
    .num_inputs = 3,
    .num_outputs = 2,
    COI_ATTRS(coi_norm_attrs),
    .internal = true,
    .not_by_name = true,
    .infer = norm_infer,
    .upcasts = true,
    .ref = coi_ref_norm,
    .run = coi_norm_run,
    .grad = norm_gradient,
};

co_value *
coi_norm_rows(co_context *ctx, co_value *const *in, int num_axes, double epsilon)
{
    coi_norm_attrs attrs = { .epsilon = epsilon, .num_axes = num_axes };
    co_value      *outs[2];

    return coi_apply_many(ctx, &coi_op_layer_norm_rows, in, 3, &attrs, outs) == CO_OK ? outs[0]
                                                                                      : NULL;
}

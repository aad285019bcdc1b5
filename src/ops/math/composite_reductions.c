/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composite reductions: logic, norms, variances and moments, and where the
 * smallest element is.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/reduction.h"
#include "ops/math/math_ops.h"
#include "ops/engine/shared_ops.h"

/* Entries of other files. */
COI_USES_OP(argmax)

#define REDUCE_ATTRS(X)                                                                            \
    X(coi_reduce_attrs, axis, INTS, "=null", NULL)                                                 \
    X(coi_reduce_attrs, keepdims, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_reduce_attrs, REDUCE_ATTRS)

/* The two arguments and keepdims, from the attributes of a call. */
static const coi_reduce_attrs *
axes_of(const coi_call *call, coi_axes *axes)
{
    const coi_reduce_attrs *attrs = call->attrs;

    coi_axes_of(&attrs->axis, axes);
    return attrs;
}

/* Whether one is true: the largest of them as numbers. */
static co_value *
any_of(coi_call *call, co_value *x)
{
    co_context             *ctx = call->ctx;
    coi_axes                axes;
    const coi_reduce_attrs *attrs = axes_of(call, &axes);

    x = co_reduce_max(ctx, co_cast(ctx, x, CO_UINT8), axes.axes, axes.n, attrs->keepdims);
    return co_cast(ctx, x, CO_BOOL);
}

static co_value *
reduce_any_composite(coi_call *call)
{
    return any_of(call, call->in[0]);
}

static co_value *
reduce_all_composite(coi_call *call)
{
    return co_logical_not(call->ctx, any_of(call, co_logical_not(call->ctx, call->in[0])));
}

/* The maximum is taken out before exp; where it is infinite or NaN nothing is, or inf - inf would
 * come up. */
static co_value *
reduce_logsumexp_composite(coi_call *call)
{
    co_context             *ctx = call->ctx;
    co_value               *x = call->in[0], *max, *sum;
    coi_axes                axes;
    const coi_reduce_attrs *attrs = axes_of(call, &axes);

    max = co_stop_gradient(ctx, co_reduce_max(ctx, x, axes.axes, axes.n, true));
    max = co_where(ctx, co_isfinite(ctx, max), max, co_zeros(ctx, (co_dtype)x->dtype, NULL, 0));
    sum = co_reduce_sum(ctx, co_exp(ctx, co_sub(ctx, x, max)), axes.axes, axes.n, attrs->keepdims);
    sum = co_log(ctx, sum);
    if (sum == NULL)
        return NULL;
    return co_add(ctx, sum, coi_reshape_like(ctx, max, sum));
}

/* The mean of the squares of what the mean leaves. */
static co_value *
variance(co_context *ctx, co_value *x, co_value *mean, const coi_axes *axes, bool keepdims)
{
    return co_reduce_mean(ctx, co_square(ctx, co_sub(ctx, x, mean)), axes->axes, axes->n, keepdims);
}

static co_value *
reduce_variance_composite(coi_call *call)
{
    coi_axes                axes;
    const coi_reduce_attrs *attrs = axes_of(call, &axes);
    co_value               *mean = co_reduce_mean(call->ctx, call->in[0], axes.axes, axes.n, true);

    return variance(call->ctx, call->in[0], mean, &axes, attrs->keepdims);
}

static co_value *
reduce_std_composite(coi_call *call)
{
    return co_sqrt(call->ctx, reduce_variance_composite(call));
}

static co_value *
reduce_euclidean_norm_composite(coi_call *call)
{
    coi_axes                axes;
    const coi_reduce_attrs *attrs = axes_of(call, &axes);

    return co_sqrt(call->ctx, co_reduce_sum(call->ctx, co_square(call->ctx, call->in[0]), axes.axes,
                                            axes.n, attrs->keepdims));
}

/* x (dy / y), which does not overflow where the squares do. */
static co_code
reduce_euclidean_norm_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *slope = co_div(ctx, g->upstream[0], g->out[0]);

    g->grads[0] = co_mul(ctx, g->in[0], coi_reduced_as_ones(g, slope));
    return ctx->error.code;
}

/* grad_ is NULL where gradients come by the parts. */
#define REDUCTION(name_, dtypes_, grad_, doc_)                                                     \
    const coi_op coi_op_##name_ = {                                                                \
        COI_COMPOSITE(#name_, doc_, "x"),                                                          \
        .dtypes = dtypes_,                                                                         \
        COI_ATTRS(coi_reduce_attrs),                                                               \
        .infer = coi_reduce_rule,                                                                  \
        .composite = name_##_composite,                                                            \
        .grad = grad_,                                                                             \
        .parts_are_known = coi_parts_of_any,                                                       \
        .not_differentiable = (dtypes_) == COI_DTYPE_BIT(CO_BOOL),                                 \
    };                                                                                             \
    co_value *co_##name_(co_context *ctx, co_value *x, const int *axes, size_t num_axes,           \
                         bool keepdims)                                                            \
    {                                                                                              \
        coi_reduce_attrs attrs = { .keepdims = keepdims };                                         \
                                                                                                   \
        COI_ENTER(ctx, #name_, NULL);                                                              \
        if (!coi_ints_from_axes(ctx, #name_ ": axes", axes, num_axes, &attrs.axis))                \
            return NULL;                                                                           \
        return coi_apply_composite(ctx, &coi_op_##name_, &x, 1, &attrs);                           \
    }

REDUCTION(reduce_all, COI_DTYPE_BIT(CO_BOOL), NULL, "Whether all elements along axes are true.")
REDUCTION(reduce_any, COI_DTYPE_BIT(CO_BOOL), NULL, "Whether any element along axes is true.")
REDUCTION(reduce_logsumexp, COI_FLOATS, NULL,
          "log(sum(exp(x))) over axes, without overflow of the exponentials.")
REDUCTION(reduce_variance, COI_FLOATS, NULL,
          "The variance over axes, divided by the number of elements.")
REDUCTION(reduce_std, COI_FLOATS, NULL, "The square root of reduce_variance.")
REDUCTION(reduce_euclidean_norm, COI_FLOATS, reduce_euclidean_norm_grad,
          "The square root of the sum of squares over axes.")

typedef struct moments_attrs {
    coi_ints axes;
    bool     keepdims;
} moments_attrs;
#define MOMENTS_ATTRS(X)                                                                           \
    X(moments_attrs, axes, INTS, "=null", NULL)                                                    \
    X(moments_attrs, keepdims, BOOL, "=false", NULL)
COI_ATTR_TABLE(moments_attrs, MOMENTS_ATTRS)

static co_code
moments_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_reduce_rule(call, outs);

    outs[1] = outs[0];
    return code;
}

static co_value *
moments_composite(coi_call *call)
{
    co_context             *ctx = call->ctx;
    coi_axes                axes;
    const coi_reduce_attrs *attrs = axes_of(call, &axes); /* moments_attrs are laid out alike */
    co_value               *both[2], *mean;

    mean = co_reduce_mean(ctx, call->in[0], axes.axes, axes.n, true);
    both[1] = variance(ctx, call->in[0], mean, &axes, attrs->keepdims);
    if (both[1] == NULL)
        return NULL;
    both[0] = coi_reshape_like(ctx, mean, both[1]);
    return co_tuple(ctx, both, 2);
}

const coi_op coi_op_moments = {
    COI_COMPOSED_TUPLE(2, "moments", "Mean and variance over axes, as a tuple.", "x"),
    .dtypes = COI_FLOATS,
    COI_ATTRS(moments_attrs),
    .infer = moments_rule,
    .composite = moments_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_moments(co_context *ctx, co_value *x, const int *axes, size_t num_axes, bool keepdims)
{
    coi_reduce_attrs attrs = { .keepdims = keepdims };

    COI_ENTER(ctx, "moments", NULL);
    if (!coi_ints_from_axes(ctx, "moments: axes", axes, num_axes, &attrs.axis))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_moments, &x, 1, &attrs);
}

#define ARGMIN_ATTRS(X)                                                                            \
    X(coi_argmax_attrs, axis, INT, "=0", NULL)                                                     \
    X(coi_argmax_attrs, output_type, DTYPE, "=int64", NULL)
COI_ATTR_TABLE(coi_argmax_attrs, ARGMIN_ATTRS)

static co_value *
argmin_composite(coi_call *call)
{
    return coi_apply1(call->ctx, &coi_op_argmax, coi_reversed_order(call->ctx, call->in[0]),
                      call->attrs);
}

const coi_op coi_op_argmin = {
    COI_COMPOSITE(
        "argmin",
        "The index of the smallest element along an axis, the first of equals; NaN is skipped.",
        "x"),
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    .not_differentiable = true,
    COI_ATTRS(coi_argmax_attrs),
    .infer = coi_argmax_rule,
    .composite = argmin_composite,
};

co_value *
co_argmin(co_context *ctx, co_value *x, int axis, co_dtype dtype)
{
    coi_argmax_attrs attrs = { axis, coi_dtype_attr(dtype == CO_DTYPE_NONE ? CO_INT64 : dtype) };

    return coi_apply_composite(ctx, &coi_op_argmin, &x, 1, &attrs);
}

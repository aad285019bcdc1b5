/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums, means, maxima, minima and products over axes: rules and gradients.
 */
#include "ops/kernels/reduction.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/ref/ref.h"
#include "ops/math/math_ops.h"
#include "ops/engine/shared_ops.h"

/* Entries of other files. */
COI_USES_OP(reduce_sum)

#define REDUCE_ATTRS(X)                                                                            \
    X(coi_reduce_attrs, axis, INTS, "=null", NULL)                                                 \
    X(coi_reduce_attrs, keepdims, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_reduce_attrs, REDUCE_ATTRS)

co_code
coi_reduce_rule(coi_call *call, coi_out *outs)
{
    const coi_reduce_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0];
    bool                    seen[CO_MAX_DIMS] = { false };
    bool                    reduced[CO_MAX_DIMS];

    if (coi_is_unknown_rank(x)) { /* all axes of any rank leave a scalar */
        coi_out_unknown(outs, (co_dtype)x->dtype);
        outs[0].ndim = attrs->axis.n < 0 && !attrs->keepdims ? 0 : COI_UNKNOWN;
        return CO_OK;
    }
    for (int i = 0; i < attrs->axis.n; ++i) {
        int     axis;
        co_code code = coi_rule_axis(call, attrs->axis.at[i], x->ndim, &axis);

        if (code != CO_OK)
            return code;
        if (seen[axis])
            return coi_invalid(call, "axis %d is given twice; name every axis once", axis);
        seen[axis] = true;
    }
    coi_reduced_axes(&attrs->axis, x->ndim, reduced);
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = 0;
    for (int d = 0; d < x->ndim; ++d)
        if (!reduced[d] || attrs->keepdims)
            outs[0].dims[outs[0].ndim++] = reduced[d] ? 1 : x->u.tensor.dims[d];
    return CO_OK;
}

typedef struct axis_attrs {
    coi_ints axis;
} axis_attrs;
#define AXIS_ATTRS(X) X(axis_attrs, axis, INTS, "=null", NULL)
COI_ATTR_TABLE(axis_attrs, AXIS_ATTRS)

/* What the reduction left of `like`, with 1 where its axes were. */
static co_code
restore_axes_rule(coi_call *call, coi_out *outs)
{
    const co_value  *x = call->in[0], *like = call->in[1];
    coi_reduce_attrs attrs = { ((const axis_attrs *)call->attrs)->axis, true };
    co_value        *reduced[1] = { call->in[1] };
    coi_call         reduction = *call;
    char             a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    coi_out          left;
    co_code          code;
    bool             axes[CO_MAX_DIMS];
    int              ndim, axis;

    reduction.in = reduced;
    reduction.attrs = &attrs;
    code = coi_reduce_rule(&reduction, outs);
    attrs.keepdims = false;
    if (code == CO_OK)
        code = coi_reduce_rule(&reduction, &left);
    outs[0].dtype = (co_dtype)x->dtype;
    if (code == CO_OK && !coi_merge_shape(&left, x->u.tensor.dims, x->ndim))
        return coi_invalid(call, "x has shape %s, which is not that of like, %s, without the axes",
                           coi_shape_text(x->u.tensor.dims, x->ndim, a),
                           coi_shape_text(like->u.tensor.dims, like->ndim, b));
    ndim = coi_is_unknown_rank(like) && attrs.axis.n >= 0 && x->ndim >= 0 ? x->ndim + attrs.axis.n
                                                                          : like->ndim;
    if (code != CO_OK || ndim < 0 || ndim > CO_MAX_DIMS)
        return code;
    for (int i = 0; code == CO_OK && i < attrs.axis.n; ++i)
        code = coi_rule_axis(call, attrs.axis.at[i], ndim, &axis);
    if (code != CO_OK)
        return code;
    coi_reduced_axes(&attrs.axis, ndim, axes);
    outs[0].ndim = ndim;
    for (int d = 0, from = 0; d < ndim; ++d)
        outs[0].dims[d] = axes[d] ? 1 : from < left.ndim ? left.dims[from++] : COI_UNKNOWN;
    return CO_OK;
}

static co_code
restore_axes_grad(coi_grad *g)
{
    g->grads[0] = coi_reshape_like(g->ctx, g->upstream[0], g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_restore_axes = {
    .name = "restore_axes",
    .doc = "What a reduction of like left, with a dimension of 1 for each of its axes.",
    .inputs = { "x", "like" },
    .num_inputs = 2,
    .num_outputs = 1,
    .internal = true,
    COI_ATTRS(axis_attrs),
    .infer = restore_axes_rule,
    .view = true,
    .grad = restore_axes_grad,
};

co_value *
coi_reduced_as_ones(coi_grad *g, co_value *value)
{
    const coi_reduce_attrs *reduce = g->attrs;
    axis_attrs              attrs = { reduce->axis };

    if (value == NULL || reduce->keepdims || (value->ndim >= 0 && value->ndim == g->in[0]->ndim))
        return value;
    return coi_apply2(g->ctx, &coi_op_restore_axes, value, g->in[0], &attrs);
}

static co_value *
spread(coi_grad *g, co_value *dy)
{
    return coi_broadcast_like(g->ctx, coi_reduced_as_ones(g, dy), g->in[0]);
}

static co_code
reduce_sum_grad(coi_grad *g)
{
    g->grads[0] = spread(g, g->upstream[0]);
    return g->ctx->error.code;
}

/* How many elements go into one result: a number where that is known, else an operator finds it. */
static co_value *
elements_per_result(coi_grad *g)
{
    co_context *ctx = g->ctx;
    int64_t     in = coi_known_elements(g->in[0]), out = coi_known_elements(g->out[0]);

    if (in >= 0 && out >= 0)
        return co_float(ctx, (double)(out > 0 ? in / out : 1));
    return co_cast(ctx,
                   co_div(ctx, co_cast(ctx, co_size(ctx, g->in[0]), CO_FLOAT64),
                          co_maximum(ctx, co_cast(ctx, co_size(ctx, g->out[0]), CO_FLOAT64),
                                     co_int(ctx, 1))),
                   (co_dtype)g->upstream[0]->dtype);
}

/* dy / count; divided before it is spread, which is less work. */
static co_code
reduce_mean_grad(coi_grad *g)
{
    g->grads[0] = spread(g, co_div(g->ctx, g->upstream[0], elements_per_result(g)));
    return g->ctx->error.code;
}

/* Elements that are the maximum, or minimum, share the gradient. A NaN is equal to nothing, so it
 * gives NaN. */
static co_code
reduce_max_grad(coi_grad *g)
{
    co_context             *ctx = g->ctx;
    const coi_reduce_attrs *attrs = g->attrs;
    co_value               *x = g->in[0];
    co_value        *chosen = co_cast(ctx, co_equal(ctx, coi_reduced_as_ones(g, g->out[0]), x),
                                      (co_dtype)x->dtype);
    coi_reduce_attrs keep = { attrs->axis, true };
    co_value        *count = coi_apply1(ctx, &coi_op_reduce_sum, chosen, &keep);

    g->grads[0] = co_mul(ctx, co_div(ctx, chosen, count), coi_reduced_as_ones(g, g->upstream[0]));
    return ctx->error.code;
}

/*
 * The product of the others, from running products of both sides, so that zeros need no division:
 * the reduced axes are brought to the front and made one.
 */
static co_code
reduce_prod_grad(coi_grad *g)
{
    co_context             *ctx = g->ctx;
    const coi_reduce_attrs *attrs = g->attrs;
    co_value               *x = g->in[0], *others;
    bool                    reduced[CO_MAX_DIMS];
    int                     perm[CO_MAX_DIMS], back[CO_MAX_DIMS], n = 0, num_reduced = 0;

    coi_reduced_axes(&attrs->axis, x->ndim, reduced);
    for (int pass = 0; pass < 2; ++pass)
        for (int d = 0; d < x->ndim; ++d)
            if (reduced[d] == (pass == 0)) {
                num_reduced += pass == 0;
                back[d] = n;
                perm[n++] = d;
            }
    x = co_transpose(ctx, x, perm, (size_t)n);
    others = coi_merge_dims(ctx, coi_merge_dims(ctx, x, 0, num_reduced), 1, n - num_reduced);
    others = co_mul(ctx, co_cumprod(ctx, others, 0, true, false),
                    co_cumprod(ctx, others, 0, true, true));
    others = co_transpose(ctx, coi_reshape_like(ctx, others, x), back, (size_t)n);
    g->grads[0] = co_mul(ctx, coi_reduced_as_ones(g, g->upstream[0]), others);
    return ctx->error.code;
}

#define reduce_min_grad reduce_max_grad

/* known_: grad_is_known. */
#define REDUCTION(name_, known_, doc_)                                                             \
    const coi_op coi_op_##name_ = {                                                                \
        .name = #name_,                                                                            \
        .doc = doc_,                                                                               \
        .inputs = { "x" },                                                                         \
        .num_inputs = 1,                                                                           \
        .num_outputs = 1,                                                                          \
        .dtypes = COI_NUMBERS,                                                                     \
        COI_ATTRS(coi_reduce_attrs),                                                               \
        .infer = coi_reduce_rule,                                                                  \
        .ref = coi_ref_##name_,                                                                    \
        .run = coi_##name_##_run,                                                                  \
        .grad = name_##_grad,                                                                      \
        .grad_is_known = known_,                                                                   \
    };                                                                                             \
    co_value *co_##name_(co_context *ctx, co_value *x, const int *axes, size_t num_axes,           \
                         bool keepdims)                                                            \
    {                                                                                              \
        coi_reduce_attrs attrs = { .keepdims = keepdims };                                         \
                                                                                                   \
        COI_ENTER(ctx, #name_, NULL);                                                              \
        if (!coi_ints_from_axes(ctx, #name_ ": axes", axes, num_axes, &attrs.axis))                \
            return NULL;                                                                           \
        return coi_apply1(ctx, &coi_op_##name_, x, &attrs);                                        \
    }

REDUCTION(reduce_sum, NULL, "The sum over axes; integers wrap.")
REDUCTION(reduce_mean, NULL, "The mean over axes; for integers truncated towards zero.")
REDUCTION(reduce_max, NULL, "The maximum over axes; NaN if any element is NaN.")
REDUCTION(reduce_min, NULL, "The minimum over axes; NaN if any element is NaN.")
REDUCTION(reduce_prod, coi_grad_with_ranks, "The product over axes; integers wrap.")

static co_code
sum_to_like_rule(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *like = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    coi_out         both;
    bool            knows = !coi_is_unknown_rank(x);

    coi_out_like(outs, like);
    outs[0].dtype = (co_dtype)x->dtype;
    if ((!knows || like->ndim <= x->ndim) &&
        coi_broadcast(like->u.tensor.dims, like->ndim, x->u.tensor.dims, x->ndim, &both) &&
        coi_merge_shape(&both, x->u.tensor.dims, x->ndim))
        return CO_OK;
    return coi_invalid(call, "like has shape %s, which does not broadcast to that of x, %s",
                       coi_shape_text(like->u.tensor.dims, like->ndim, a),
                       coi_shape_text(x->u.tensor.dims, x->ndim, b));
}

static co_code
sum_to_like_grad(coi_grad *g)
{
    g->grads[0] = coi_broadcast_like(g->ctx, g->upstream[0], g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_sum_to_like = {
    .name = "sum_to_like",
    .doc = "The sum of x over the dimensions along which like would be repeated to become as x.",
    .inputs = { "x", "like" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_NUMBERS,
    .internal = true,
    .infer = sum_to_like_rule,
    .ref = coi_sum_to_like_ref,
    .run = coi_sum_to_like_run,
    .grad = sum_to_like_grad,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_softmax and losses as composite operators. Cross entropy with integer labels is in
 * cross_entropy_ops.c.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/softmax.h"
#include "ops/engine/type_rules.h"
#include "ops/nn/nn_ops.h"

#define SOFTMAX_ATTRS(X) X(coi_softmax_attrs, axis, INT, "=-1", NULL)
COI_ATTR_TABLE(coi_softmax_attrs, SOFTMAX_ATTRS)

static co_code
axis_rule(coi_call *call, coi_out *outs)
{
    int axis;

    coi_rule_same(call, outs);
    return coi_rule_axis(call, ((const coi_softmax_attrs *)call->attrs)->axis, call->in[0]->ndim,
                         &axis);
}

static co_value *
log_softmax_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    int         axis = (int)((const coi_softmax_attrs *)call->attrs)->axis;
    co_value   *x = co_sub(ctx, call->in[0], co_reduce_max(ctx, call->in[0], &axis, 1, true));

    return co_sub(ctx, x, co_log(ctx, co_reduce_sum(ctx, co_exp(ctx, x), &axis, 1, true)));
}

/* dy - softmax sum(dy) */
static co_code
log_softmax_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    int         axis = (int)((const coi_softmax_attrs *)g->attrs)->axis;
    co_value   *dy = g->upstream[0];
    co_value   *p = co_exp(ctx, g->out[0]);

    g->grads[0] = co_sub(ctx, dy, co_mul(ctx, p, co_reduce_sum(ctx, dy, &axis, 1, true)));
    return ctx->error.code;
}

const coi_op coi_op_log_softmax = {
    COI_COMPOSITE("log_softmax",
                  "log(softmax(x)) along an axis, computed without loss of accuracy.", "x"),
    .dtypes = COI_FLOATS,
    COI_ATTRS(coi_softmax_attrs),
    .infer = axis_rule,
    .grad = log_softmax_grad,
    .composite = log_softmax_composite,
};

co_value *
co_log_softmax(co_context *ctx, co_value *logits, int axis)
{
    coi_softmax_attrs attrs = { .axis = axis };

    return coi_apply_composite(ctx, &coi_op_log_softmax, &logits, 1, &attrs);
}

static co_code
refuse_shapes(coi_call *call, const char *rule)
{
    const co_value *x = call->in[0], *y = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    return coi_invalid(call, "%s has shape %s and %s %s; they must be %s", call->op->inputs[0],
                       coi_shape_text(x->u.tensor.dims, x->ndim, a), call->op->inputs[1],
                       coi_shape_text(y->u.tensor.dims, y->ndim, b), rule);
}

/* A rank that is unknown is that of the other. */
static bool
broadcast_of_one_rank(const co_value *x, const co_value *y, coi_out *out)
{
    int            ndim = coi_is_unknown_rank(x) ? y->ndim : x->ndim;
    int64_t        room_x[CO_MAX_DIMS], room_y[CO_MAX_DIMS];
    const int64_t *x_dims = coi_dims_of_rank(x, ndim, room_x);
    const int64_t *y_dims = coi_dims_of_rank(y, ndim, room_y);

    return x_dims != NULL && y_dims != NULL && coi_broadcast(x_dims, ndim, y_dims, ndim, out);
}

/* Labels and logits broadcast against each other; the axis is one of what comes of it. */
static co_code
cross_entropy_rule(coi_call *call, coi_out *outs)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    int             axis;
    co_code         code;

    if (!coi_dtypes[logits->dtype].floating)
        return coi_invalid(call, "logits has dtype %s; it must be floating (co_cast converts)",
                           co_dtype_name((co_dtype)logits->dtype));
    if (!broadcast_of_one_rank(labels, logits, &outs[0]))
        return refuse_shapes(call, "of one rank and broadcast against each other");
    outs[0].dtype = (co_dtype)logits->dtype;
    code = coi_rule_axis(call, ((const coi_softmax_attrs *)call->attrs)->axis, outs[0].ndim, &axis);
    if (code == CO_OK)
        coi_out_drop(outs, axis);
    return code;
}

/* A class whose logit is -inf makes NaN of the loss even where its label is 0, as in TensorFlow. */
static co_value *
cross_entropy_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    int         axis = (int)((const coi_softmax_attrs *)call->attrs)->axis;
    co_value   *logs = co_log_softmax(ctx, call->in[1], axis);
    co_value   *losses = co_sub(ctx, co_int(ctx, 0), logs); /* never -0 */

    return co_reduce_sum(ctx, co_mul(ctx, call->in[0], losses), &axis, 1, false);
}

/* dy (softmax - labels) for logits, whatever the labels add up to; -dy log_softmax for labels. */
co_code
coi_soft_cross_entropy_gradient(coi_grad *g)
{
    co_context *ctx = g->ctx;
    int         axis = (int)((const coi_softmax_attrs *)g->attrs)->axis;
    co_value   *labels = g->in[0], *logits = g->in[1], *dy;
    co_value   *slope;

    dy = co_expand_dims(ctx, g->upstream[0], axis);
    if (g->needed[0]) {
        slope = co_mul(ctx, dy, co_neg(ctx, co_log_softmax(ctx, logits, axis)));
        g->grads[0] = coi_unbroadcast(ctx, slope, labels);
    }
    if (g->needed[1]) {
        slope = co_mul(ctx, dy, co_sub(ctx, co_softmax(ctx, logits, axis), labels));
        g->grads[1] = coi_unbroadcast(ctx, slope, logits);
    }
    return ctx->error.code;
}

#define CROSS_ENTROPY(doc_)                                                                        \
    COI_COMPOSITE("softmax_cross_entropy_with_logits", doc_, "labels", "logits"),                  \
        COI_ATTRS(coi_softmax_attrs)

const coi_op coi_op_softmax_cross_entropy_general = {
    CROSS_ENTROPY("softmax_cross_entropy_with_logits of floats along any axis, with broadcasting."),
    .entry = "softmax_cross_entropy_general",
    .internal = true,
    .not_by_name = true,
    .dtypes = COI_FLOATS,
    .infer = cross_entropy_rule,
    .grad = coi_soft_cross_entropy_gradient,
    .composite = cross_entropy_composite,
};

static co_value *
as_dtype(co_context *ctx, co_value *x, co_dtype dtype)
{
    return x == NULL || x->dtype == dtype ? x : co_cast(ctx, x, dtype);
}

/* Labels of another dtype become logits', and halves float for the way, in which logits far apart
 * would not fit. Rows of one shape have kernels of their own, in ops/nn/cross_entropy_ops.c. */
static co_value *
cross_entropy_choose(coi_call *call)
{
    co_context *ctx = call->ctx;
    co_dtype    dtype = (co_dtype)call->in[1]->dtype;
    co_dtype    wide = coi_dtypes[dtype].size < 4 ? CO_FLOAT32 : dtype;
    co_value   *in[2] = { as_dtype(ctx, call->in[0], wide), as_dtype(ctx, call->in[1], wide) };
    int64_t     axis = ((const coi_softmax_attrs *)call->attrs)->axis;
    bool        is_last = axis == -1 || axis == call->in[1]->ndim - 1;

    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    return as_dtype(ctx,
                    is_last && coi_same_shape(in[0], in[1])
                        ? coi_soft_cross_entropy(ctx, in)
                        : coi_apply_composite(ctx, &coi_op_softmax_cross_entropy_general, in, 2,
                                              call->attrs),
                    dtype);
}

const coi_op coi_op_softmax_cross_entropy_with_logits = {
    CROSS_ENTROPY(
        "Cross entropy of softmax(logits) with labels that are probabilities, along an axis."),
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    .infer = cross_entropy_rule,
    .composite = cross_entropy_choose,
};

co_value *
co_softmax_cross_entropy(co_context *ctx, co_value *labels, co_value *logits, int axis)
{
    coi_softmax_attrs attrs = { .axis = axis };
    co_value *const   given[2] = { labels, logits };

    return coi_apply_composite(ctx, &coi_op_softmax_cross_entropy_with_logits, given, 2, &attrs);
}

static co_code
same_shapes(coi_call *call, coi_out *outs)
{
    const co_value *y = call->in[1];

    coi_rule_same(call, outs);
    return coi_merge_shape(outs, y->u.tensor.dims, y->ndim) ? CO_OK : refuse_shapes(call, "equal");
}

/* max(x, 0) - x z + log1p(exp(-|x|)), written so that no exponential overflows and gradients at 0
 * are those of x. */
static co_value *
sigmoid_cross_entropy_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    co_value   *z = call->in[0], *x = call->in[1];
    co_value   *zero = co_zeros(ctx, (co_dtype)x->dtype, NULL, 0);
    co_value   *is_positive = co_greater_equal(ctx, x, zero);
    co_value   *above = co_where(ctx, is_positive, x, zero);
    co_value   *below = co_where(ctx, is_positive, co_neg(ctx, x), x);

    return co_add(ctx, co_sub(ctx, above, co_mul(ctx, x, z)), co_log1p(ctx, co_exp(ctx, below)));
}

const coi_op coi_op_sigmoid_cross_entropy_with_logits = {
    COI_COMPOSITE("sigmoid_cross_entropy_with_logits",
                  "Cross entropy of sigmoid(logits) with labels, element by element.", "labels",
                  "logits"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .infer = same_shapes,
    .composite = sigmoid_cross_entropy_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_sigmoid_cross_entropy(co_context *ctx, co_value *labels, co_value *logits)
{
    co_value *const given[2] = { labels, logits };

    return coi_apply_composite(ctx, &coi_op_sigmoid_cross_entropy_with_logits, given, 2, NULL);
}

static co_value *
mse_composite(coi_call *call)
{
    co_context *ctx = call->ctx;

    return co_reduce_mean(ctx, co_squared_difference(ctx, call->in[1], call->in[0]), CO_AXES(-1),
                          false);
}

static co_code
mse_rule(coi_call *call, coi_out *outs)
{
    co_code code;

    if (call->in[0]->ndim == 0 || call->in[1]->ndim == 0)
        return coi_invalid(call, "a scalar has no last axis to take the mean over");
    code = coi_rule_broadcast(call, outs);
    if (code == CO_OK)
        coi_out_drop(outs, outs->ndim - 1);
    return code;
}

const coi_op coi_op_mse = {
    COI_COMPOSITE("mse", "The mean of squared differences over the last axis.", "y_true", "y_pred"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .infer = mse_rule,
    .composite = mse_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_mse(co_context *ctx, co_value *y_true, co_value *y_pred)
{
    co_value *const given[2] = { y_true, y_pred };

    return coi_apply_composite(ctx, &coi_op_mse, given, 2, NULL);
}

static co_value *
l2_loss_composite(coi_call *call)
{
    co_context *ctx = call->ctx;

    return co_mul(ctx, co_reduce_sum(ctx, co_square(ctx, call->in[0]), CO_ALL_AXES, false),
                  co_float(ctx, 0.5));
}

/* dy x, which does not overflow where the square does. */
static co_code
l2_loss_grad(coi_grad *g)
{
    g->grads[0] = co_mul(g->ctx, g->in[0], g->upstream[0]);
    return g->ctx->error.code;
}

static co_code
l2_loss_rule(coi_call *call, coi_out *outs)
{
    coi_out_scalar(outs, (co_dtype)call->in[0]->dtype);
    return CO_OK;
}

const coi_op coi_op_l2_loss = {
    COI_COMPOSITE("l2_loss", "Half the sum of squares.", "x"),
    .dtypes = COI_FLOATS,
    .infer = l2_loss_rule,
    .grad = l2_loss_grad,
    .composite = l2_loss_composite,
};

co_value *
co_l2_loss(co_context *ctx, co_value *x)
{
    return coi_apply_composite(ctx, &coi_op_l2_loss, &x, 1, NULL);
}

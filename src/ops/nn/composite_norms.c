/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation and clipping as composite operators.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/reduction.h"
#include "ops/engine/type_rules.h"
#include "ops/nn/nn_ops.h"
#include "ops/engine/shared_ops.h"

#include <math.h>

co_code
coi_check_epsilon(co_context *ctx, const char *op, double epsilon)
{
    if (isfinite(epsilon) && epsilon >= 0)
        return CO_OK;
    return coi_fail(ctx, CO_INVALID_ARGUMENT,
                    "%s: epsilon is %g; it must be finite and not negative", op, epsilon);
}

co_code
coi_check_momentum(co_context *ctx, const char *op, double momentum)
{
    if (momentum >= 0 && momentum <= 1)
        return CO_OK;
    return coi_fail(ctx, CO_INVALID_ARGUMENT, "%s: momentum is %g; it must be in [0, 1]", op,
                    momentum);
}

/* gamma (x - mean) / sqrt(variance + epsilon) + beta, with the factor of x computed once. */
static co_value *
normalized(co_context *ctx, co_value *x, co_value *mean, co_value *variance, co_value *gamma,
           co_value *beta, double epsilon)
{
    co_value *factor = co_mul(ctx, co_rsqrt(ctx, co_add(ctx, variance, co_float(ctx, epsilon))),
                              gamma);

    return co_add(ctx, co_mul(ctx, x, factor), co_sub(ctx, beta, co_mul(ctx, mean, factor)));
}

static co_value *
variance_about(co_context *ctx, co_value *x, co_value *mean, const coi_axes *axes)
{
    return co_reduce_mean(ctx, co_squared_difference(ctx, x, mean), axes->axes, axes->n, true);
}

/* Input i broadcasts against x, whose type is in `out`, without making it larger. What is known of
 * it may be known of x then. */
static co_code
check_fits(coi_call *call, int i, coi_out *out)
{
    const co_value *x = call->in[0], *y = call->in[i];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    coi_out         both;

    if (coi_is_unknown_rank(x) || coi_is_unknown_rank(y))
        return CO_OK;
    if (y->ndim <= x->ndim && coi_broadcast(out->dims, x->ndim, y->u.tensor.dims, y->ndim, &both) &&
        coi_merge_shape(out, both.dims, both.ndim))
        return CO_OK;
    return coi_invalid(call, "%s has shape %s, which does not broadcast to that of x, %s",
                       call->op->inputs[i], coi_shape_text(y->u.tensor.dims, y->ndim, b),
                       coi_shape_text(x->u.tensor.dims, x->ndim, a));
}

static co_code
all_fit(coi_call *call, coi_out *out)
{
    co_code code = CO_OK;

    coi_out_like(out, call->in[0]);
    for (int i = 1; code == CO_OK && i < call->num_in; ++i)
        code = check_fits(call, i, out);
    return code;
}

typedef struct epsilon_attrs {
    double epsilon;
} epsilon_attrs;
#define EPSILON_ATTRS(X) X(epsilon_attrs, epsilon, FLOAT, "=0.001", NULL)
COI_ATTR_TABLE(epsilon_attrs, EPSILON_ATTRS)

static co_code
inference_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_check_epsilon(call->ctx, call->op->name,
                                     ((const epsilon_attrs *)call->attrs)->epsilon);

    return code == CO_OK ? all_fit(call, outs) : code;
}

static co_value *
batch_norm_inference_composite(coi_call *call)
{
    return normalized(call->ctx, call->in[0], call->in[1], call->in[2], call->in[3], call->in[4],
                      ((const epsilon_attrs *)call->attrs)->epsilon);
}

const coi_op coi_op_batch_norm_inference = {
    COI_COMPOSITE("batch_norm_inference",
                  "gamma (x - mean) / sqrt(var + epsilon) + beta; the other inputs broadcast to x.",
                  "x", "mean", "var", "gamma", "beta"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(epsilon_attrs),
    .infer = inference_rule,
    .composite = batch_norm_inference_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_batch_norm_inference(co_context *ctx, co_value *x, co_value *gamma, co_value *beta,
                        co_value *mean, co_value *variance, const co_batch_norm_options *options)
{
    co_batch_norm_options all = CO_BATCH_NORM_OPTIONS_INIT;
    epsilon_attrs         attrs;
    /* in the order of the table, which is that of TensorFlow */
    co_value *const given[5] = { x, mean, variance, gamma, beta };

    COI_ENTER(ctx, "batch_norm_inference", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 7))
        return NULL;
    attrs.epsilon = all.epsilon;
    return coi_apply_composite(ctx, &coi_op_batch_norm_inference, given, 5, &attrs);
}

/* Axes first, so that coi_reduce_rule reads them as a reduction's. */
typedef struct train_attrs {
    coi_ints axes;
    bool     keepdims; /* never */
    double   momentum, epsilon;
} train_attrs;
#define TRAIN_ATTRS(X)                                                                             \
    X(train_attrs, axes, INTS, "", NULL)                                                           \
    X(train_attrs, momentum, FLOAT, "=0.99", NULL)                                                 \
    X(train_attrs, epsilon, FLOAT, "=0.001", NULL)
COI_ATTR_TABLE(train_attrs, TRAIN_ATTRS)
typedef train_attrs train_grad_attrs;
#define TRAIN_GRAD_ATTRS(X)                                                                        \
    X(train_attrs, axes, INTS, "", NULL)                                                           \
    X(train_attrs, epsilon, FLOAT, "=0.001", NULL)
COI_ATTR_TABLE(train_grad_attrs, TRAIN_GRAD_ATTRS)

static co_code
train_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_reduce_rule(call, outs);

    return code == CO_OK ? all_fit(call, outs) : code;
}

/* x, and statistics like gamma. Those that are moved on broadcast against the moving ones. */
static co_code
batch_norm_train_rule(coi_call *call, coi_out *outs)
{
    const train_attrs *attrs = call->attrs;
    co_code            code = coi_check_momentum(call->ctx, call->op->name, attrs->momentum);

    if (code == CO_OK)
        code = coi_check_epsilon(call->ctx, call->op->name, attrs->epsilon);
    if (code == CO_OK)
        code = train_rule(call, outs);
    for (int i = 1; code == CO_OK && i < 5; ++i) {
        const co_value *moving = call->in[i];

        coi_out_like(&outs[i], call->in[1]);
        if (i >= 3)
            coi_broadcast(outs[1].dims, outs[1].ndim, moving->u.tensor.dims, moving->ndim,
                          &outs[i]);
    }
    return code;
}

/* Of two types, of which the tensors of one will be taken, what both know. */
static co_code
unless_empty_rule(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *otherwise = call->in[1];

    coi_out_like(outs, x);
    if (x->ndim != otherwise->ndim)
        coi_out_unknown(outs, (co_dtype)x->dtype);
    for (int d = 0; d < outs[0].ndim; ++d)
        if (x->u.tensor.dims[d] != otherwise->u.tensor.dims[d])
            outs[0].dims[d] = COI_UNKNOWN;
    return CO_OK;
}

static co_value *
unless_empty_composite(coi_call *call)
{
    return co_identity(call->ctx, call->in[coi_known_elements(call->in[2]) == 0 ? 1 : 0]);
}

static co_code unless_empty_grad(coi_grad *g);

const coi_op coi_op_unless_empty = {
    COI_COMPOSITE("unless_empty", "x, or `otherwise` where `like` has no elements.", "x",
                  "otherwise", "like"),
    .internal = true,
    .not_by_name = true,
    .infer = unless_empty_rule,
    .grad = unless_empty_grad,
    .composite = unless_empty_composite,
};

/* What takes the place of x has no gradient. */
static co_code
unless_empty_grad(coi_grad *g)
{
    co_value *const given[3] = { g->upstream[0], coi_zeros_of(g->ctx, g->upstream[0]), g->in[2] };

    if (g->needed[0])
        g->grads[0] = coi_apply_composite(g->ctx, &coi_op_unless_empty, given, 3, NULL);
    return g->ctx->error.code;
}

/* `otherwise` in the place of a value if the batch has no rows, where nobody knows that yet. */
static co_value *
known_or(co_context *ctx, co_value *value, co_value *otherwise, co_value *batch)
{
    co_value *const given[3] = { value, otherwise, batch };

    return coi_apply_composite(ctx, &coi_op_unless_empty, given, 3, NULL);
}

/* The batch's mean and variance over axes, kept as dimensions of 1, and x normalised by them. A
 * batch without rows has none (they are NaN): they stay out of what its gradient is made of, so
 * that gamma and beta have gradients of 0, as in TensorFlow. */
static co_value *
batch_normalized(coi_call *call, co_value **mean, co_value **variance)
{
    const train_attrs *attrs = call->attrs;
    co_context        *ctx = call->ctx;
    co_value          *x = call->in[0], *zeros;
    int64_t            elements = coi_known_elements(x);
    coi_axes           axes;

    coi_axes_of(&attrs->axes, &axes);
    *mean = co_reduce_mean(ctx, x, axes.axes, axes.n, true);
    *variance = variance_about(ctx, x, *mean, &axes);
    if (elements == 0)
        return co_add(ctx, co_mul(ctx, x, call->in[1]), call->in[2]);
    if (elements > 0 || *variance == NULL)
        return normalized(ctx, x, *mean, *variance, call->in[1], call->in[2], attrs->epsilon);
    zeros = co_zeros_like(ctx, *mean);
    return normalized(ctx, x, known_or(ctx, *mean, zeros, x), known_or(ctx, *variance, zeros, x),
                      call->in[1], call->in[2], attrs->epsilon);
}

/* A statistic without its dimensions of 1, like the gamma that goes with it. */
static co_value *
plain(co_context *ctx, co_value *statistic, co_value *gamma)
{
    return coi_reshape_like(ctx, statistic, gamma);
}

/* A moving statistic as it is, in the shape that it would have been moved on to, without
 * gradient. */
static co_value *
unmoved(co_context *ctx, co_value *moving, co_value *batch)
{
    co_value *same = co_stop_gradient(ctx, moving);

    if (same == NULL || batch == NULL || coi_same_shape(same, batch))
        return same;
    return co_stop_gradient(ctx, co_where(ctx, co_scalar_bool(ctx, false), batch, same));
}

co_value *
coi_moving_average(co_context *ctx, co_value *moving, co_value *batch, double momentum, bool empty)
{
    if (empty)
        return unmoved(ctx, moving, batch);
    return co_stop_gradient(ctx, co_add(ctx, co_mul(ctx, moving, co_float(ctx, momentum)),
                                        co_mul(ctx, batch, co_float(ctx, 1 - momentum))));
}

static co_value *
batch_norm_train_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    double      momentum = ((const train_attrs *)call->attrs)->momentum;
    int64_t     elements = coi_known_elements(call->in[0]);
    co_value   *mean, *variance, *outs[5];

    outs[0] = batch_normalized(call, &mean, &variance);
    outs[1] = plain(ctx, mean, call->in[1]);
    outs[2] = plain(ctx, variance, call->in[1]);
    for (int i = 3; i < 5; ++i) {
        outs[i] = coi_moving_average(ctx, call->in[i], outs[i - 2], momentum, elements == 0);
        if (elements < 0)
            outs[i] = co_stop_gradient(
                ctx, known_or(ctx, outs[i], unmoved(ctx, call->in[i], outs[i - 2]), call->in[0]));
    }
    return co_tuple(ctx, outs, 5);
}

const coi_op coi_op_batch_norm_train = {
    COI_COMPOSED_TUPLE(
        5, "batch_norm_train",
        "x normalised over axes, the mean and variance of the batch, the updated moving mean and variance.",
        "x", "gamma", "beta", "moving_mean", "moving_var"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(train_attrs),
    .infer = batch_norm_train_rule,
    .composite = batch_norm_train_composite,
    .parts_are_known = coi_parts_of_any,
    .num_reached = 3,
};

bool
coi_batch_norm_axes(co_context *ctx, co_value *x, const co_batch_norm_options *options,
                    int axes[CO_MAX_DIMS], size_t *num_axes)
{
    const char *call = ctx->call;
    int         ndim = co_value_ndim(ctx, x);
    size_t n = options->axes == NULL && options->num_axes == 0 ? (size_t)(ndim > 0 ? ndim - 1 : 0)
                                                               : options->num_axes;

    if (ctx->error.code != CO_OK)
        return false;
    ctx->call = call;
    if (options->axes == NULL && options->num_axes > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "axes is NULL with %zu entr%s; give the entries, or 0 for all but the last", n,
                 COI_IES(n));
        return false;
    }
    if (n == 0 || n > CO_MAX_DIMS) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "x has rank %d and %zu of its axes are normalised; give from 1 to %d, or NULL for "
                 "all but the last",
                 ndim, n, CO_MAX_DIMS);
        return false;
    }
    for (size_t i = 0; i < n; ++i)
        axes[i] = options->axes != NULL ? options->axes[i] : (int)i;
    *num_axes = n;
    return true;
}

co_value *
co_batch_norm_train(co_context *ctx, co_value *x, co_value *gamma, co_value *beta,
                    co_value *moving_mean, co_value *moving_variance,
                    const co_batch_norm_options *options)
{
    co_batch_norm_options all = CO_BATCH_NORM_OPTIONS_INIT;
    train_attrs           attrs = { .keepdims = false };
    co_value *const       given[5] = { x, gamma, beta, moving_mean, moving_variance };
    int                   axes[CO_MAX_DIMS];
    size_t                num_axes;

    COI_ENTER(ctx, "batch_norm_train", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 7) || !coi_check_value(ctx, x, 2, "x") ||
        !coi_batch_norm_axes(ctx, x, &all, axes, &num_axes) ||
        !coi_ints_from_axes(ctx, "batch_norm_train: axes", axes, num_axes, &attrs.axes))
        return NULL;
    attrs.momentum = all.momentum;
    attrs.epsilon = all.epsilon;
    return coi_apply_composite(ctx, &coi_op_batch_norm_train, given, 5, &attrs);
}

static co_value *
batch_norm_only_composite(coi_call *call)
{
    co_value *mean, *variance;

    return batch_normalized(call, &mean, &variance);
}

const coi_op coi_op_batch_norm_train_grad = {
    COI_COMPOSITE("batch_norm_train_grad",
                  "The first result of batch_norm_train alone, for its gradient.", "x", "gamma",
                  "beta"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(train_grad_attrs),
    .infer = train_rule,
    .composite = batch_norm_only_composite,
    .parts_are_known = coi_parts_of_any,
};

/* All axes but the last, the channels. */
static co_code
fused_rule(coi_call *call, coi_out *outs)
{
    if (call->in[0]->ndim == 0 || call->in[0]->ndim == 1)
        return coi_invalid(call, "x has rank %d; it must have channels and an axis before them",
                           call->in[0]->ndim);
    return all_fit(call, outs);
}

static co_code
fused_train_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_check_epsilon(call->ctx, call->op->name,
                                     ((const epsilon_attrs *)call->attrs)->epsilon);

    if (code == CO_OK)
        code = fused_rule(call, outs);
    coi_out_like(&outs[1], call->in[1]);
    outs[2] = outs[1];
    return code;
}

static co_value *
fused_normalized(coi_call *call, co_value **mean, co_value **variance)
{
    train_attrs attrs = { .axes = { .n = call->in[0]->ndim - 1 },
                          .epsilon = ((const epsilon_attrs *)call->attrs)->epsilon };
    coi_call    like = *call;

    for (int d = 0; d < attrs.axes.n; ++d)
        attrs.axes.at[d] = d;
    like.attrs = &attrs;
    return batch_normalized(&like, mean, variance);
}

/* Bessel's correction n / (n - 1) of n rows: a number, or by operators where n is not known. */
static co_value *
correction(co_context *ctx, co_value *x)
{
    int64_t   channels = x->u.tensor.dims[x->ndim - 1], elements = coi_known_elements(x);
    int64_t   num_rows = channels > 0 ? elements / channels : 0;
    double    n = (double)num_rows;
    co_value *rows, *less;

    if (elements >= 0)
        return co_float(ctx, n / fmax(n - 1, 1));
    rows = co_div(ctx, co_cast(ctx, co_size(ctx, x), CO_FLOAT64), co_int(ctx, channels));
    less = co_maximum(ctx, co_sub(ctx, rows, co_int(ctx, 1)), co_int(ctx, 1));
    return co_cast(ctx, co_div(ctx, rows, less), (co_dtype)x->dtype);
}

static co_value *
fused_batch_norm_train_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    co_value   *mean, *variance, *outs[3];

    outs[0] = fused_normalized(call, &mean, &variance);
    outs[1] = plain(ctx, mean, call->in[1]);
    outs[2] = co_mul(ctx, plain(ctx, variance, call->in[1]), correction(ctx, call->in[0]));
    return co_tuple(ctx, outs, 3);
}

/* The channels are known, and how many axes are before them. */
static bool
fused_is_known(const coi_call *call)
{
    return coi_knows_axis(call->in[0], -1);
}

static co_value *
fused_batch_norm_only_composite(coi_call *call)
{
    co_value *mean, *variance;

    return fused_normalized(call, &mean, &variance);
}

const coi_op coi_op_fused_batch_norm_train = {
    COI_COMPOSED_TUPLE(3, "fused_batch_norm_train",
                       "x normalised per channel, the mean of the batch, and its variance with "
                       "Bessel's correction n / (n - 1).",
                       "x", "scale", "offset"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(epsilon_attrs),
    .infer = fused_train_rule,
    .composite = fused_batch_norm_train_composite,
    .parts_are_known = fused_is_known,
};

co_value *
co_fused_batch_norm_train(co_context *ctx, co_value *x, co_value *scale, co_value *offset,
                          double epsilon)
{
    epsilon_attrs   attrs = { epsilon };
    co_value *const given[3] = { x, scale, offset };

    return coi_apply_composite(ctx, &coi_op_fused_batch_norm_train, given, 3, &attrs);
}

const coi_op coi_op_fused_batch_norm_train_grad = {
    COI_COMPOSITE("fused_batch_norm_train_grad",
                  "The first result of fused_batch_norm_train alone, for its gradient.", "x",
                  "scale", "offset"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(epsilon_attrs),
    .infer = fused_rule,
    .composite = fused_batch_norm_only_composite,
    .parts_are_known = fused_is_known,
};

/* The axis first, as coi_reduce_rule reads it. */
typedef struct layer_attrs {
    coi_ints axis;
    bool     keepdims; /* never */
    double   epsilon;
} layer_attrs;
#define LAYER_ATTRS(X)                                                                             \
    X(layer_attrs, axis, INTS, "=-1", NULL)                                                        \
    X(layer_attrs, epsilon, FLOAT, "=0.001", NULL)
COI_ATTR_TABLE(layer_attrs, LAYER_ATTRS)

static co_code
layer_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_check_epsilon(call->ctx, call->op->name,
                                     ((const layer_attrs *)call->attrs)->epsilon);

    return code == CO_OK ? train_rule(call, outs) : code;
}

/* How many axes there are if they are the last ones, in any order; 0 if they are not. */
static int
last_axes(const coi_ints *axis, int ndim)
{
    bool reduced[CO_MAX_DIMS];
    int  n = 0;

    coi_reduced_axes(axis, ndim, reduced);
    while (n < ndim && reduced[ndim - 1 - n])
        ++n;
    return axis->n < 0 || axis->n == n ? n : 0;
}

/* Whether an example is a row is known; how many examples there are makes no difference. */
static bool
layer_norm_is_known(const coi_call *call)
{
    const layer_attrs *attrs = call->attrs;
    const co_value    *x = call->in[0];
    bool               is_known = !coi_is_unknown_rank(x) && coi_is_known_shape(call->in[1]) &&
                    coi_is_known_shape(call->in[2]);

    for (int i = is_known ? last_axes(&attrs->axis, x->ndim) : 0; i > 0; --i)
        is_known = is_known && x->u.tensor.dims[x->ndim - i] >= 0;
    return is_known;
}

/* Over the elements of each example, so mean and variance have a number per example and gamma one
 * per feature. Where an example is a row, kernels of ops/nn/layer_norm_ops.c do it. */
static co_value *
layer_norm_composite(coi_call *call)
{
    const layer_attrs *attrs = call->attrs;
    co_context        *ctx = call->ctx;
    co_value          *x = call->in[0], *mean, *variance, *centred;
    int                num_last = last_axes(&attrs->axis, x->ndim);
    coi_axes           axes;

    if (num_last > 0 && coi_norm_is_rows(call->in, num_last)) {
        /* Rows without elements have no statistics, and there may be more of them than memory has
         * room for. */
        if (coi_known_elements(x) == 0)
            return co_add(ctx, co_mul(ctx, x, call->in[1]), call->in[2]);
        return coi_norm_rows(ctx, call->in, num_last, attrs->epsilon);
    }
    coi_axes_of(&attrs->axis, &axes);
    mean = co_reduce_mean(ctx, x, axes.axes, axes.n, true);
    centred = co_sub(ctx, x, mean);
    variance = co_reduce_mean(ctx, co_square(ctx, centred), axes.axes, axes.n, true);
    variance = co_add(ctx, variance, co_float(ctx, attrs->epsilon));
    return co_add(ctx, co_mul(ctx, co_mul(ctx, centred, co_rsqrt(ctx, variance)), call->in[1]),
                  call->in[2]);
}

const coi_op coi_op_layer_norm = {
    COI_COMPOSITE("layer_norm", "x normalised over axes of each example, times gamma, plus beta.",
                  "x", "gamma", "beta"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(layer_attrs),
    .infer = layer_rule,
    .composite = layer_norm_composite,
    .parts_are_known = layer_norm_is_known,
};

co_value *
co_layer_norm(co_context *ctx, co_value *x, co_value *gamma, co_value *beta,
              const co_layer_norm_options *options)
{
    static const int      last[1] = { -1 };
    co_layer_norm_options all = CO_LAYER_NORM_OPTIONS_INIT;
    layer_attrs           attrs = { .keepdims = false };
    co_value *const       given[3] = { x, gamma, beta };

    COI_ENTER(ctx, "layer_norm", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 5))
        return NULL;
    if (all.axes == NULL && all.num_axes == 0) {
        all.axes = last;
        all.num_axes = 1;
    }
    attrs.epsilon = all.epsilon;
    if (!coi_ints_from_axes(ctx, "layer_norm: axes", all.axes, all.num_axes, &attrs.axis))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_layer_norm, given, 3, &attrs);
}

/* Axes as those of a reduction, and a result like x. */
static co_code
along_axes_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_reduce_rule(call, outs);

    return code == CO_OK ? coi_rule_same(call, outs) : code;
}

typedef layer_attrs l2_attrs;
#define L2_ATTRS(X)                                                                                \
    X(layer_attrs, axis, INTS, "=null", NULL)                                                      \
    X(layer_attrs, epsilon, FLOAT, "=0.000000000001", NULL)
COI_ATTR_TABLE(l2_attrs, L2_ATTRS)

static co_code
l2_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_check_epsilon(call->ctx, call->op->name,
                                     ((const layer_attrs *)call->attrs)->epsilon);

    return code == CO_OK ? along_axes_rule(call, outs) : code;
}

static co_value *
l2_normalize_composite(coi_call *call)
{
    const layer_attrs *attrs = call->attrs;
    co_context        *ctx = call->ctx;
    co_value          *x = call->in[0], *sum;
    coi_axes           axes;

    coi_axes_of(&attrs->axis, &axes);
    sum = co_reduce_sum(ctx, co_square(ctx, x), axes.axes, axes.n, true);
    return co_mul(ctx, x, co_rsqrt(ctx, co_maximum(ctx, sum, co_float(ctx, attrs->epsilon))));
}

const coi_op coi_op_l2_normalize = {
    COI_COMPOSITE("l2_normalize", "x divided by sqrt(max(sum of squares along axes, epsilon)).",
                  "x"),
    .dtypes = COI_FLOATS,
    COI_ATTRS(l2_attrs),
    .infer = l2_rule,
    .composite = l2_normalize_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_l2_normalize(co_context *ctx, co_value *x, const int *axes, size_t num_axes, double epsilon)
{
    layer_attrs attrs = { .epsilon = epsilon };

    COI_ENTER(ctx, "l2_normalize", NULL);
    if (!coi_ints_from_axes(ctx, "l2_normalize: axes", axes, num_axes, &attrs.axis))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_l2_normalize, &x, 1, &attrs);
}

typedef struct bounds_attrs {
    coi_scalar min, max;
} bounds_attrs;
#define BOUNDS_ATTRS(X)                                                                            \
    X(bounds_attrs, min, SCALAR, "", NULL)                                                         \
    X(bounds_attrs, max, SCALAR, "", NULL)
COI_ATTR_TABLE(bounds_attrs, BOUNDS_ATTRS)

static co_code
clip_by_value_rule(coi_call *call, coi_out *outs)
{
    const bounds_attrs *attrs = call->attrs;
    co_dtype            dtype = (co_dtype)call->in[0]->dtype;
    co_code             code = coi_rule_number(call, "min", &attrs->min, dtype);

    coi_out_like(outs, call->in[0]);
    return code == CO_OK ? coi_rule_number(call, "max", &attrs->max, dtype) : code;
}

static co_value *
clip_by_value_composite(coi_call *call)
{
    const bounds_attrs *attrs = call->attrs;
    co_context         *ctx = call->ctx;

    return co_maximum(ctx, co_minimum(ctx, call->in[0], coi_scalar_value(ctx, &attrs->max)),
                      coi_scalar_value(ctx, &attrs->min));
}

const coi_op coi_op_clip_by_value = {
    COI_COMPOSITE("clip_by_value", "x limited to at most max, then to at least min; NaN stays.",
                  "x"),
    .dtypes = COI_NUMBERS,
    COI_ATTRS(bounds_attrs),
    .infer = clip_by_value_rule,
    .composite = clip_by_value_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_clip_by_value(co_context *ctx, co_value *x, double min, double max)
{
    bounds_attrs attrs = { coi_scalar_of(min), coi_scalar_of(max) };

    return coi_apply_composite(ctx, &coi_op_clip_by_value, &x, 1, &attrs);
}

typedef struct clip_attrs {
    coi_ints axes;
    bool     keepdims; /* never */
    double   clip_norm;
} clip_attrs;
#define CLIP_ATTRS(X)                                                                              \
    X(clip_attrs, axes, INTS, "=null", NULL)                                                       \
    X(clip_attrs, clip_norm, FLOAT, "", NULL)
COI_ATTR_TABLE(clip_attrs, CLIP_ATTRS)

/* The norm of nothing but zeros is 0, with a gradient of 0 and not of NaN. */
static co_value *
clip_by_norm_composite(coi_call *call)
{
    const clip_attrs *attrs = call->attrs;
    co_context       *ctx = call->ctx;
    co_value         *x = call->in[0], *sum, *is_positive, *norm, *limit;
    coi_axes          axes;

    coi_axes_of(&attrs->axes, &axes);
    sum = co_reduce_sum(ctx, co_mul(ctx, x, x), axes.axes, axes.n, true);
    is_positive = co_greater(ctx, sum, co_int(ctx, 0));
    norm = co_sqrt(ctx, co_where(ctx, is_positive, sum, co_ones(ctx, (co_dtype)x->dtype, NULL, 0)));
    norm = co_where(ctx, is_positive, norm, sum);
    limit = co_float(ctx, attrs->clip_norm);
    return co_div(ctx, co_mul(ctx, x, limit), co_maximum(ctx, norm, limit));
}

const coi_op coi_op_clip_by_norm = {
    COI_COMPOSITE("clip_by_norm", "x, scaled down if its norm over axes is above clip_norm.", "x"),
    .dtypes = COI_FLOATS,
    COI_ATTRS(clip_attrs),
    .infer = along_axes_rule,
    .composite = clip_by_norm_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_clip_by_norm(co_context *ctx, co_value *x, const int *axes, size_t num_axes, double clip_norm)
{
    clip_attrs attrs = { .clip_norm = clip_norm };

    COI_ENTER(ctx, "clip_by_norm", NULL);
    if (!coi_ints_from_axes(ctx, "clip_by_norm: axes", axes, num_axes, &attrs.axes))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_clip_by_norm, &x, 1, &attrs);
}

/* Half the squares are added up and doubled, as the reference does. */
static co_value *
global_norm_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    co_value   *sum = co_l2_loss(ctx, call->in[0]);

    for (int i = 1; i < call->num_in; ++i)
        sum = co_add(ctx, sum, co_l2_loss(ctx, call->in[i]));
    return co_sqrt(ctx, co_mul(ctx, sum, co_float(ctx, 2)));
}

static co_code
global_norm_rule(coi_call *call, coi_out *outs)
{
    coi_out_scalar(outs, (co_dtype)call->in[0]->dtype);
    return CO_OK;
}

const coi_op coi_op_global_norm = {
    COI_COMPOSITE("global_norm", "The square root of the sum of squares of several tensors.", "xs"),
    .variadic = true,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .infer = global_norm_rule,
    .composite = global_norm_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_global_norm(co_context *ctx, co_value *xs)
{
    return coi_apply_composite_list(ctx, &coi_op_global_norm, xs, NULL);
}

typedef struct global_attrs {
    double clip_norm;
} global_attrs;
#define GLOBAL_ATTRS(X) X(global_attrs, clip_norm, FLOAT, "", NULL)
COI_ATTR_TABLE(global_attrs, GLOBAL_ATTRS)

/* A norm that is not finite makes everything NaN: infinity minus itself. */
static co_value *
clip_scale(co_context *ctx, co_value *norm, double clip_norm)
{
    co_value *scale = co_minimum(ctx, co_reciprocal(ctx, norm), co_float(ctx, 1 / clip_norm));

    return co_add(ctx, co_mul(ctx, scale, co_float(ctx, clip_norm)), co_sub(ctx, norm, norm));
}

/* The tensors, and behind them the norm. */
static co_code
clip_by_global_norm_rule(coi_call *call, coi_out *outs)
{
    (void)outs;
    call->num_out = call->num_in + 1;
    return CO_OK;
}

static void
clip_by_global_norm_result(coi_call *call, int64_t i, coi_out *out)
{
    if (i < call->num_in)
        coi_out_like(out, call->in[i]);
    else
        coi_out_scalar(out, (co_dtype)call->in[0]->dtype);
}

static co_value *
clip_by_global_norm_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    size_t      n = (size_t)call->num_in;
    co_value  **outs = coi_parts(ctx, call->op->name, n + 1), *scale;

    if (outs == NULL)
        return NULL;
    outs[n] = global_norm_composite(call);
    scale = clip_scale(ctx, outs[n], ((const global_attrs *)call->attrs)->clip_norm);
    for (size_t i = 0; i < n; ++i)
        outs[i] = co_mul(ctx, call->in[i], scale);
    return coi_tuple_of_parts(ctx, outs, n + 1);
}

const coi_op coi_op_clip_by_global_norm = {
    COI_COMPOSED_TUPLE(
        0, "clip_by_global_norm",
        "Tensors scaled down together if global_norm is above clip_norm; then the norm itself.",
        "xs"),
    .variadic = true,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(global_attrs),
    .infer = clip_by_global_norm_rule,
    .infer_result = clip_by_global_norm_result,
    .composite = clip_by_global_norm_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_clip_by_global_norm(co_context *ctx, co_value *xs, double clip_norm)
{
    global_attrs attrs = { clip_norm };

    return coi_apply_composite_list(ctx, &coi_op_clip_by_global_norm, xs, &attrs);
}

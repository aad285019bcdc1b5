/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F scores and R2, whose state has a number for each class or output.
 */
#include "train/metric.h"

#include <math.h>

/* The last dimension of [examples, classes]; 0 with an error. */
static int64_t
classes_of(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch)
{
    const co_value *t = batch->y_true, *p = batch->y_pred;
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    if (t->ndim != 2 || p->ndim != 2) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s takes y_true and y_pred of shape [examples, classes]; they have %s and %s",
                 metric->row->class_name, coi_shape_text(t->u.tensor.dims, t->ndim, a),
                 coi_shape_text(p->u.tensor.dims, p->ndim, b));
        return 0;
    }
    if (p->u.tensor.dims[1] > 0)
        return p->u.tensor.dims[1];
    coi_fail(ctx, CO_VALUE_ERROR,
             p->u.tensor.dims[1] == 0
                 ? "y_pred of %s has no classes, its last dimension is 0"
                 : "the number of classes of y_pred of %s is not known while the function is "
                   "captured; give the function a signature with the last dimension",
             metric->row->class_name);
    return 0;
}

static bool
check_classes(co_context *ctx, co_metric *metric)
{
    (void)ctx;
    metric->classes = metric->options.num_classes;
    return true;
}

static void
describe(co_metric *metric, const char *name, int ndim)
{
    int64_t classes = metric->classes > 0 ? metric->classes : COI_CLASSES;

    metric->state[metric->num_variables++] = (coi_metric_state){
        name, CO_FLOAT64, ndim, { classes }, 0
    };
}

/* --- F scores --- */

static bool
is_micro(const co_metric *metric)
{
    return metric->options.average == CO_AVERAGE_MICRO;
}

static bool
check_score(co_context *ctx, co_metric *metric)
{
    if (!is_micro(metric))
        return check_classes(ctx, metric);
    return true;
}

static bool
describe_score(co_context *ctx, co_metric *metric)
{
    static const char *const names[] = { "true_positives", "false_positives", "false_negatives",
                                         "intermediate_weights" };

    (void)ctx;
    for (int i = 0; i < 4; ++i)
        describe(metric, names[i], is_micro(metric) ? 0 : 1);
    return true;
}

static int64_t
classes_of_score(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch)
{
    int64_t classes = classes_of(ctx, metric, batch);

    return is_micro(metric) ? 0 : classes;
}

/* Which predictions are positive: those above the threshold, or the largest of a row, each of equal
 * ones, unless they are zero. */
static co_value *
positive(co_context *ctx, const co_metric *metric, co_value *y_pred)
{
    co_value *largest;

    if (!isnan(metric->options.threshold))
        return co_greater(ctx, y_pred, co_float(ctx, metric->options.threshold));
    largest = co_reduce_max(ctx, y_pred, CO_AXES(-1), true);
    return co_logical_and(ctx, co_greater_equal(ctx, y_pred, largest),
                          co_greater(ctx, co_abs(ctx, y_pred), co_float(ctx, 1e-9)));
}

/* Keras cannot take the largest of no row. Alone that is an error here too; a replica whose part of
 * a batch is empty adds nothing. */
static bool
check_rows(co_context *ctx, const co_metric *metric, const co_value *y_pred)
{
    if (y_pred->u.tensor.dims[0] != 0 || !isnan(metric->options.threshold) ||
        ctx->mode.num_replicas > 1)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "%s without a threshold is given a batch of 0 examples, which has no largest "
             "prediction; leave the batch out",
             metric->row->class_name);
    return false;
}

static co_value *
weighted_sum(co_context *ctx, const co_metric *metric, co_value *x, co_value *weight)
{
    if (weight != NULL)
        x = co_mul(ctx, x, weight);
    return is_micro(metric) ? co_reduce_sum(ctx, x, CO_ALL_AXES, false)
                            : co_reduce_sum(ctx, x, CO_AXES(0), false);
}

static bool
update_score(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
             co_value **added)
{
    co_value *weight = coi_batch_weight(ctx, batch, CO_FLOAT64);
    co_value *t = coi_metric_cast(ctx, batch->y_true, CO_FLOAT64), *p;
    co_value *one = co_int(ctx, 1);

    if (ctx->error.code != CO_OK || !check_rows(ctx, metric, batch->y_pred))
        return false;
    if (weight != NULL) {
        weight = co_expand_dims(ctx, weight, 1);
        weight = coi_metric_broadcast(ctx, "sample weights", weight, t);
    }
    p = coi_metric_cast(ctx, batch->y_pred, metric->compute);
    p = co_cast(ctx, positive(ctx, metric, p), CO_FLOAT64);
    added[0] = weighted_sum(ctx, metric, co_mul(ctx, p, t), weight);
    added[1] = weighted_sum(ctx, metric, co_mul(ctx, p, co_sub(ctx, one, t)), weight);
    added[2] = weighted_sum(ctx, metric, co_mul(ctx, co_sub(ctx, one, p), t), weight);
    added[3] = weighted_sum(ctx, metric, t, weight);
    return ctx->error.code == CO_OK;
}

/* With Keras' epsilon in every denominator. */
static co_value *
ratio(co_context *ctx, co_value *x, co_value *y)
{
    return co_div(ctx, x, co_add(ctx, y, co_float(ctx, 1e-7)));
}

static co_value *
result_score(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    double    square = metric->options.beta * metric->options.beta;
    co_value *tp = state[0], *weights, *score;
    co_value *precision = ratio(ctx, tp, co_add(ctx, tp, state[1]));
    co_value *recall = ratio(ctx, tp, co_add(ctx, tp, state[2]));

    score = co_add(ctx, co_mul(ctx, precision, co_float(ctx, square)), recall);
    score = ratio(ctx, co_mul(ctx, precision, recall), score);
    score = co_mul(ctx, score, co_float(ctx, 1 + square));
    if (metric->options.average == CO_AVERAGE_WEIGHTED) {
        weights = ratio(ctx, state[3], co_reduce_sum(ctx, state[3], CO_ALL_AXES, false));
        score = co_reduce_sum(ctx, co_mul(ctx, score, weights), CO_ALL_AXES, false);
    } else if (metric->options.average != CO_AVERAGE_NONE) {
        score = co_reduce_mean(ctx, score, CO_ALL_AXES, false);
    }
    return coi_metric_cast(ctx, score, metric->dtype);
}

const coi_metric_family coi_score_family = {
    .check = check_score,
    .describe = describe_score,
    .classes = classes_of_score,
    .update = update_score,
    .result = result_score,
};

/* --- R2 --- */

static bool
describe_r2(co_context *ctx, co_metric *metric)
{
    static const char *const names[] = { "squared_sum", "sum", "residual", "count" };

    (void)ctx;
    describe(metric, "num_samples", 0);
    for (int i = 0; i < 4; ++i)
        describe(metric, names[i], 1);
    return true;
}

/* Labels and predictions of one rank. */
static bool
match_r2(co_context *ctx, const coi_metric_batch *batch, coi_metric_batch *out)
{
    *out = *batch;
    return coi_match_ranks(ctx, &out->y_true, &out->y_pred, true);
}

static int64_t
outputs_of(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch)
{
    coi_metric_batch matched;

    return match_r2(ctx, batch, &matched) ? classes_of(ctx, metric, &matched) : 0;
}

static bool
update_r2(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch, co_value **added)
{
    co_value        *weight = coi_batch_weight(ctx, batch, CO_FLOAT64), *t, *p, *weighted;
    coi_metric_batch matched;

    (void)metric;
    if (ctx->error.code != CO_OK || !match_r2(ctx, batch, &matched))
        return false;
    t = coi_metric_cast(ctx, matched.y_true, CO_FLOAT64);
    p = coi_metric_cast(ctx, matched.y_pred, CO_FLOAT64);
    if (t == NULL || p == NULL)
        return false;
    if (weight == NULL)
        weight = co_ones_like(ctx, t);
    else if (weight->ndim == 1)
        weight = co_expand_dims(ctx, weight, 1);
    weight = coi_metric_broadcast(ctx, "sample weights", weight, t);
    weighted = co_mul(ctx, t, weight);
    added[0] = co_cast(ctx, co_size(ctx, t), CO_FLOAT64);
    added[1] = co_reduce_sum(ctx, co_mul(ctx, t, weighted), CO_AXES(0), false);
    added[2] = co_reduce_sum(ctx, weighted, CO_AXES(0), false);
    added[3] = co_reduce_sum(ctx, co_mul(ctx, co_squared_difference(ctx, t, p), weight), CO_AXES(0),
                             false);
    added[4] = co_reduce_sum(ctx, weight, CO_AXES(0), false);
    return ctx->error.code == CO_OK;
}

/* 1 - (1 - score) (n - 1) / (n - regressors - 1), where that is above 0; otherwise the score. */
static co_value *
adjust(co_context *ctx, const co_metric *metric, co_value *score, co_value *n)
{
    co_value *before = co_sub(ctx, n, co_int(ctx, 1)), *divisor, *can, *adjusted;

    divisor = co_sub(ctx, before, co_float(ctx, (double)metric->options.num_regressors));
    can = co_greater(ctx, divisor, co_int(ctx, 0));
    divisor = co_where(ctx, can, divisor, co_int(ctx, 1));
    adjusted = co_mul(ctx, co_sub(ctx, co_int(ctx, 1), score), before);
    adjusted = co_sub(ctx, co_int(ctx, 1), co_div(ctx, adjusted, divisor));
    return co_where(ctx, can, adjusted, score);
}

static co_value *
result_r2(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    co_metric_aggregation how = metric->options.class_aggregation;
    co_value             *total = co_div(ctx, co_square(ctx, state[2]), state[4]), *score;

    total = co_sub(ctx, state[1], total);
    score = co_sub(ctx, co_int(ctx, 1), co_div(ctx, state[3], total));
    score = co_where(ctx, co_isinf(ctx, score), co_int(ctx, 0), score);
    if (how == CO_R2_UNIFORM_AVERAGE)
        score = co_reduce_mean(ctx, score, CO_ALL_AXES, false);
    else if (how == CO_R2_VARIANCE_WEIGHTED_AVERAGE)
        score = co_div(ctx, co_reduce_sum(ctx, co_mul(ctx, total, score), CO_ALL_AXES, false),
                       co_reduce_sum(ctx, total, CO_ALL_AXES, false));
    if (metric->options.num_regressors > 0)
        score = adjust(ctx, metric, score, state[0]);
    return coi_metric_cast(ctx, score, metric->dtype);
}

const coi_metric_family coi_r2_family = {
    .check = check_classes,
    .describe = describe_r2,
    .classes = outputs_of,
    .update = update_r2,
    .result = result_r2,
};

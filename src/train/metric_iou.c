/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intersection over union, from a confusion matrix [label, prediction] that is the state. Class ids
 * out of range are left out.
 */
#include "train/metric.h"

#include <math.h>

/* All classes, where none are given. */
static bool
take_targets(co_context *ctx, co_metric *metric)
{
    co_metric_options *o = &metric->options;
    size_t             n = (size_t)o->num_classes;
    int64_t           *ids;

    if (o->target_class_ids != NULL)
        return true;
    ids = coi_metric_copy(ctx, metric, NULL, n * sizeof(*ids));
    for (size_t i = 0; ids != NULL && i < n; ++i)
        ids[i] = (int64_t)i;
    o->target_class_ids = ids;
    o->num_target_class_ids = n;
    return ids != NULL;
}

static bool
check_targets(co_context *ctx, const co_metric *metric)
{
    const co_metric_options *o = &metric->options;

    if (o->num_target_class_ids == 0) {
        coi_fail(ctx, CO_VALUE_ERROR, "target_class_ids of %s are an empty list; give at least one",
                 metric->row->class_name);
        return false;
    }
    for (size_t i = 0; i < o->num_target_class_ids; ++i)
        if (o->target_class_ids[i] < 0 || o->target_class_ids[i] >= o->num_classes) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "target_class_ids[%zu] of %s is %lld; with %lld classes it must be 0 to %lld",
                     i, metric->row->class_name, (long long)o->target_class_ids[i],
                     (long long)o->num_classes, (long long)o->num_classes - 1);
            return false;
        }
    return true;
}

static bool
check(co_context *ctx, co_metric *metric)
{
    static const int64_t most = 32768; /* a matrix of 8 GiB */

    co_metric_options *o = &metric->options;
    int               *sparse[2] = { &o->sparse_y_true, &o->sparse_y_pred };

    if (metric->kind == CO_METRIC_BINARY_IOU)
        o->num_classes = 2;
    if (isnan(o->threshold))
        o->threshold = 0.5;
    if (o->num_classes < 1 || o->num_classes > most) {
        coi_fail(ctx, CO_VALUE_ERROR, "num_classes of %s is %lld; it must be 1 to %lld",
                 metric->row->class_name, (long long)o->num_classes, (long long)most);
        return false;
    }
    for (int i = 0; i < 2; ++i) {
        if (*sparse[i] == -1)
            *sparse[i] = !metric->row->one_hot;
        if (*sparse[i] != 0 && *sparse[i] != 1) {
            coi_fail(ctx, CO_VALUE_ERROR, "%s of %s is %d; it must be 0, 1 or -1",
                     i == 0 ? "sparse_y_true" : "sparse_y_pred", metric->row->class_name,
                     *sparse[i]);
            return false;
        }
    }
    return take_targets(ctx, metric) && check_targets(ctx, metric);
}

/* A matrix of integers is kept in int64, one of floats in float64. */
static bool
describe(co_context *ctx, co_metric *metric)
{
    int64_t n = metric->options.num_classes;

    (void)ctx;
    metric->state[0] = (coi_metric_state){ "total_confusion_matrix",
                                           coi_dtypes[metric->dtype].floating ? CO_FLOAT64
                                                                              : CO_INT64,
                                           2,
                                           { n, n },
                                           0 };
    metric->num_variables = 1;
    return true;
}

/* Class ids in the dtype of the matrix, flat. */
static co_value *
ids_of(co_context *ctx, const co_metric *metric, co_value *x, int is_sparse)
{
    if (!is_sparse)
        x = co_argmax(ctx, x, metric->options.axis, CO_INT64);
    return coi_flat(ctx, coi_metric_cast(ctx, x, metric->dtype));
}

static co_value *
predicted(co_context *ctx, const co_metric *metric, co_value *y_pred)
{
    if (metric->kind == CO_METRIC_BINARY_IOU)
        y_pred = co_greater_equal(ctx, coi_metric_cast(ctx, y_pred, CO_FLOAT32),
                                  co_float(ctx, metric->options.threshold));
    return ids_of(ctx, metric, y_pred, metric->options.sparse_y_pred);
}

static co_value *
in_range(co_context *ctx, co_value *ids, int64_t n)
{
    return co_logical_and(ctx, co_greater_equal(ctx, ids, co_int(ctx, 0)),
                          co_less(ctx, ids, co_int(ctx, n)));
}

/* Weights in the dtype of the matrix: in one of integers floating weights are cut. */
static co_value *
weights_of(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch, co_value *like)
{
    bool is_floating = batch->weight != NULL &&
                       coi_dtypes[co_value_dtype(ctx, batch->weight)].floating;
    co_value *weight = coi_batch_weight(ctx, batch, is_floating ? CO_FLOAT64 : metric->dtype);

    if (weight == NULL)
        return co_ones_like(ctx, like);
    return coi_metric_broadcast(ctx, "sample weights",
                                coi_flat(ctx, coi_metric_cast(ctx, weight, metric->dtype)), like);
}

static bool
update(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch, co_value **added)
{
    const co_metric_options *o = &metric->options;
    int64_t                  n = o->num_classes;
    co_value *t = ids_of(ctx, metric, batch->y_true, o->sparse_y_true), *weight, *valid, *at;
    co_value *p = predicted(ctx, metric, batch->y_pred);

    if (t == NULL || p == NULL)
        return false;
    valid = co_logical_and(ctx, in_range(ctx, t, n), in_range(ctx, p, n));
    if (o->ignore_class != CO_METRIC_NOT_GIVEN)
        valid = co_logical_and(ctx, valid, co_not_equal(ctx, t, co_int(ctx, o->ignore_class)));
    t = coi_metric_cast(ctx, t, CO_INT64);
    p = coi_metric_cast(ctx, p, CO_INT64);
    at = co_add(ctx, co_mul(ctx, t, co_int(ctx, n)), p);
    at = co_where(ctx, valid, at, co_int(ctx, -1));
    weight = at != NULL ? weights_of(ctx, metric, batch, at) : NULL;
    weight = coi_metric_cast(ctx, weight, metric->state[0].dtype);
    added[0] = co_reshape(ctx, co_unsorted_segment_sum(ctx, weight, at, n * n), CO_SHAPE(n, n));
    return ctx->error.code == CO_OK;
}

/* The mean over those target classes that occur. */
static co_value *
result(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    const co_metric_options *o = &metric->options;
    int64_t                  n = o->num_classes, num_ids = (int64_t)o->num_target_class_ids;
    co_value *matrix = coi_metric_cast(ctx, state[0], CO_FLOAT64), *diagonal, *both, *ids, *occurs;
    co_value *epsilon = co_float(ctx, 1e-7), *iou;

    ids = co_tensor(ctx, CO_INT64, CO_SHAPE(num_ids), o->target_class_ids);
    diagonal = co_reduce_sum(ctx, co_mul(ctx, matrix, co_eye(ctx, CO_FLOAT64, n, n)), CO_AXES(0),
                             false);
    both = co_add(ctx, co_reduce_sum(ctx, matrix, CO_AXES(0), false),
                  co_reduce_sum(ctx, matrix, CO_AXES(1), false));
    both = co_gather(ctx, co_sub(ctx, both, diagonal), ids, 0, 0);
    occurs = co_greater(ctx, both, co_float(ctx, 1e-9));
    iou = co_div(ctx, co_gather(ctx, diagonal, ids, 0, 0), co_add(ctx, both, epsilon));
    iou = co_reduce_sum(ctx, co_where(ctx, occurs, iou, co_int(ctx, 0)), CO_ALL_AXES, false);
    occurs = co_reduce_sum(ctx, coi_metric_cast(ctx, occurs, CO_FLOAT64), CO_ALL_AXES, false);
    return coi_metric_cast(ctx, co_div(ctx, iou, co_add(ctx, occurs, epsilon)), CO_FLOAT32);
}

const coi_metric_family coi_iou_family = {
    .check = check,
    .describe = describe,
    .update = update,
    .result = result,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Means and sums. What an update adds is one number: the sum of the values of its examples, each of
 * which is first reduced to one value for each row.
 */
#include "train/metric.h"

static bool
check_mean(co_context *ctx, co_metric *metric)
{
    (void)ctx;
    if (!(metric->options.threshold == metric->options.threshold)) /* NaN: not given */
        metric->options.threshold = 0.5;
    return true;
}

static bool
describe_sum(co_context *ctx, co_metric *metric)
{
    (void)ctx;
    metric->state[0] = (coi_metric_state){ "total", CO_FLOAT64, 0, { 0 }, 0 };
    metric->num_variables = 1;
    return true;
}

static bool
describe_mean(co_context *ctx, co_metric *metric)
{
    describe_sum(ctx, metric);
    metric->state[1] = (coi_metric_state){ "count", CO_FLOAT64, 0, { 0 }, 0 };
    metric->num_variables = 2;
    return true;
}

/* A loss ignores examples of a class. In Keras that is a mask of the values, which takes effect on
 * weights alone. */
static bool
leave_out_ignored(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
                  co_value **weight)
{
    int64_t   class_id = metric->options.ignore_class;
    co_value *counts;

    if (class_id == CO_METRIC_NOT_GIVEN || *weight == NULL)
        return true;
    counts = co_not_equal(ctx, batch->y_true, co_int(ctx, class_id));
    counts = coi_metric_cast(ctx, counts, CO_FLOAT64);
    if (counts == NULL || !coi_match_ranks(ctx, &counts, weight, true))
        return false;
    *weight = co_mul(ctx, counts, *weight);
    return *weight != NULL;
}

/* The weighted values of rows, and the weights of rows. */
static bool
weigh(co_context *ctx, co_value **values, co_value **weight, bool mean)
{
    int ndim;

    *values = coi_metric_cast(ctx, *values, CO_FLOAT64);
    if (*values == NULL || !coi_match_ranks(ctx, values, weight, true))
        return false;
    ndim = (*weight)->ndim;
    *values = coi_reduce_from(ctx, *values, ndim, mean);
    *weight = coi_metric_broadcast(ctx, "sample weights", *weight, *values);
    *values = co_mul(ctx, *values, *weight);
    *weight = coi_reduce_from(ctx, *weight, ndim > 1 ? 1 : ndim, mean);
    return *values != NULL && *weight != NULL;
}

/* How many rows there are; one if the value is a scalar. */
static co_value *
num_rows(co_context *ctx, co_value *rows)
{
    int64_t n = rows->ndim == 0 ? 1 : rows->u.tensor.dims[0];

    return n >= 0 ? co_scalar_double(ctx, (double)n) : co_cast(ctx, co_size(ctx, rows), CO_FLOAT64);
}

/* added[1] is the count; `count` false: there is none. */
static bool
add_values(co_context *ctx, co_value *values, co_value *weight, bool mean, co_value **added)
{
    if (values == NULL || !coi_check_known_rank(ctx, "values", values))
        return false;
    if (weight != NULL && !weigh(ctx, &values, &weight, mean))
        return false;
    if (!coi_dtypes[co_value_dtype(ctx, values)].floating)
        values = co_cast(ctx, values, CO_FLOAT64);
    values = coi_metric_cast(ctx, coi_reduce_from(ctx, values, 1, mean), CO_FLOAT64);
    if (values == NULL)
        return false;
    added[0] = co_reduce_sum(ctx, values, CO_ALL_AXES, false);
    if (mean)
        added[1] = weight != NULL ? co_reduce_sum(ctx, weight, CO_ALL_AXES, false)
                                  : num_rows(ctx, values);
    return ctx->error.code == CO_OK;
}

/* A loss drops a last dimension of 1 of y_pred where that makes the ranks equal. As a metric the
 * sparse crossentropy does not: it is the one class. */
static co_value *
keep_one_class(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch)
{
    int ndim = co_value_ndim(ctx, batch->y_pred);

    if (metric->row->loss == CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY && ndim > 1 &&
        co_value_ndim(ctx, batch->y_true) == ndim - 1 &&
        co_value_dim(ctx, batch->y_pred, ndim - 1) == 1)
        return co_expand_dims(ctx, batch->y_true, -1);
    return batch->y_true;
}

static co_value *
values_of(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch)
{
    coi_metric_values values = metric->row->values;

    if (metric->family->takes_values)
        return batch->y_true;
    return values != NULL ? values(ctx, metric, batch->y_true, batch->y_pred)
                          : co_loss_per_example(ctx, metric->loss,
                                                keep_one_class(ctx, metric, batch), batch->y_pred);
}

static bool
update_mean(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
            co_value **added)
{
    co_value *weight = coi_batch_weight(ctx, batch, CO_FLOAT64), *values;

    if (ctx->error.code != CO_OK || !leave_out_ignored(ctx, metric, batch, &weight))
        return false;
    values = values_of(ctx, metric, batch);
    return add_values(ctx, values, weight, true, added);
}

static bool
update_sum(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
           co_value **added)
{
    co_value *weight = coi_batch_weight(ctx, batch, CO_FLOAT64);

    (void)metric;
    return ctx->error.code == CO_OK && add_values(ctx, batch->y_true, weight, false, added);
}

static co_value *
result_sum(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    return coi_metric_cast(ctx, state[0], metric->dtype);
}

static co_value *
result_mean(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    return coi_metric_cast(ctx, coi_divide_no_nan(ctx, state[0], state[1]), metric->dtype);
}

static co_value *
result_root_mean(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    co_value *mean = coi_divide_no_nan(ctx, state[0], state[1]);

    return coi_metric_cast(ctx, co_sqrt(ctx, mean), metric->dtype);
}

const coi_metric_family coi_mean_family = {
    .check = check_mean,
    .describe = describe_mean,
    .update = update_mean,
    .result = result_mean,
};
const coi_metric_family coi_values_family = {
    .describe = describe_mean,
    .update = update_mean,
    .result = result_mean,
    .takes_values = true,
};
const coi_metric_family coi_root_mean_family = {
    .describe = describe_mean,
    .update = update_mean,
    .result = result_root_mean,
};
const coi_metric_family coi_sum_family = {
    .describe = describe_sum,
    .update = update_sum,
    .result = result_sum,
    .takes_values = true,
};

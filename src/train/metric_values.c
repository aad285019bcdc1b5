/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of examples, over which metrics are means: whether a prediction is right, and the few that
 * are no loss. The others are co_loss_per_example.
 */
#include "train/metric.h"

#include <math.h>

/* Labels in the dtype of predictions, and both of one rank. */
static bool
match_labels(co_context *ctx, co_value **y_true, co_value **y_pred)
{
    *y_true = coi_metric_cast(ctx, *y_true, co_value_dtype(ctx, *y_pred));
    return *y_true != NULL && coi_match_ranks(ctx, y_true, y_pred, true);
}

/* Both as floats: those of predictions, or the dtype of the metric. */
static bool
match_floats(co_context *ctx, const co_metric *m, co_value **y_true, co_value **y_pred)
{
    co_dtype dtype = co_value_dtype(ctx, *y_pred) == CO_FLOAT64 ? CO_FLOAT64 : m->compute;

    *y_pred = coi_metric_cast(ctx, *y_pred, dtype);
    return *y_pred != NULL && match_labels(ctx, y_true, y_pred);
}

co_value *
coi_values_own(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    const char *call = ctx->call;
    co_value   *values = m->options.fn(ctx, y_true, y_pred, m->options.fn_user);

    if (values == NULL) {
        if (ctx->error.code == CO_OK) {
            ctx->call = call;
            coi_fail(ctx, CO_TYPE_ERROR,
                     "fn of the metric returned NULL without an error; it must "
                     "return the values of the examples");
        }
        return NULL;
    }
    if (!coi_check_result(ctx, values, call, "function of values"))
        return NULL;
    return values->kind == CO_KIND_TENSOR || values->kind == CO_KIND_SYMBOLIC
               ? values
               : co_to_tensor(ctx, values, CO_DTYPE_NONE);
}

co_value *
coi_values_accuracy(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    (void)m;
    return match_labels(ctx, &y_true, &y_pred) ? co_equal(ctx, y_true, y_pred) : NULL;
}

/* What is above the threshold is 1, which the label must be as it is. */
co_value *
coi_values_binary_accuracy(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    co_dtype dtype = co_value_dtype(ctx, y_pred);

    if (!coi_match_ranks(ctx, &y_true, &y_pred, true))
        return NULL;
    if (!coi_dtypes[dtype].floating)
        y_pred = co_cast(ctx, y_pred, m->compute);
    y_pred = co_greater(ctx, y_pred, co_float(ctx, m->options.threshold));
    return co_equal(ctx, y_true, coi_metric_cast(ctx, y_pred, co_value_dtype(ctx, y_true)));
}

/* Whether class ids are those of the largest predictions. Floating ids are compared as they are. */
static co_value *
is_largest(co_context *ctx, co_value *ids, co_value *y_pred)
{
    co_dtype  dtype = co_value_dtype(ctx, ids);
    co_value *best = co_argmax(ctx, y_pred, -1, CO_INT64);

    if (coi_dtypes[dtype].floating)
        return co_equal(ctx, ids, coi_metric_cast(ctx, best, dtype));
    return co_equal(ctx, coi_metric_cast(ctx, ids, CO_INT64), best);
}

/* Predictions have an axis of classes. */
static bool
check_scores(co_context *ctx, const co_metric *m, const co_value *y_pred)
{
    if (y_pred->ndim >= 1)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "y_pred of %s is a scalar; its last dimension must be the classes",
             m->row->class_name);
    return false;
}

co_value *
coi_values_categorical_accuracy(co_context *ctx, const co_metric *m, co_value *y_true,
                                co_value *y_pred)
{
    co_value *ids, *matches;

    if (!check_scores(ctx, m, y_pred) || !check_scores(ctx, m, y_true))
        return NULL;
    ids = co_argmax(ctx, y_true, -1, CO_INT64);
    if (ids == NULL || ids->ndim != y_pred->ndim)
        return ids != NULL ? is_largest(ctx, ids, y_pred) : NULL;
    matches = is_largest(ctx, co_squeeze(ctx, ids, CO_AXES(-1)), y_pred);
    return co_expand_dims(ctx, matches, -1);
}

static bool
ends_in_one(const co_value *x)
{
    return x->ndim > 0 && x->u.tensor.dims[x->ndim - 1] == 1;
}

co_value *
coi_values_sparse_categorical_accuracy(co_context *ctx, const co_metric *m, co_value *y_true,
                                       co_value *y_pred)
{
    co_value *matches;

    if (!check_scores(ctx, m, y_pred))
        return NULL;
    if (y_true->ndim == y_pred->ndim && ends_in_one(y_true))
        y_true = co_squeeze(ctx, y_true, CO_AXES(-1));
    matches = y_true != NULL ? is_largest(ctx, y_true, y_pred) : NULL;
    return matches != NULL && matches->ndim > 1 && ends_in_one(matches)
               ? co_squeeze(ctx, matches, CO_AXES(-1))
               : matches;
}

/* The last dimension of predictions, which must be known; 0 with an error. */
static int64_t
num_scores(co_context *ctx, const co_metric *m, const co_value *y_pred)
{
    int64_t n;

    if (!check_scores(ctx, m, y_pred))
        return 0;
    n = y_pred->u.tensor.dims[y_pred->ndim - 1];
    if (n > 0)
        return n;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             n == 0 ? "y_pred of %s has no classes, its last dimension is 0"
                    : "the number of classes of y_pred of %s is not known while the function is "
                      "captured; give the function a signature with the last dimension",
             m->row->class_name);
    return 0;
}

/* Whether fewer than k scores are larger than that of the class `ids`; never where one is not
 * finite, which counts as infinitely many, or the class is none. `ids` has the shape of scores
 * without their last dimension. */
static co_value *
is_in_top_k(co_context *ctx, const co_metric *m, co_value *ids, co_value *scores)
{
    co_one_hot_options bits = CO_ONE_HOT_OPTIONS_INIT;
    int64_t            n = num_scores(ctx, m, scores);
    co_value          *at, *score, *larger, *is_class;

    if (n == 0)
        return NULL;
    bits.dtype = CO_BOOL;
    ids = coi_metric_cast(ctx, ids, CO_INT64);
    at = co_one_hot(ctx, ids, n, &bits);
    score = co_reduce_sum(ctx, co_where(ctx, at, scores, co_int(ctx, 0)), CO_AXES(-1), true);
    larger = coi_metric_cast(ctx, co_greater(ctx, scores, score), CO_FLOAT32);
    larger = co_where(ctx, co_isfinite(ctx, scores), larger, co_float(ctx, INFINITY));
    larger = co_reduce_sum(ctx, larger, CO_AXES(-1), false);
    is_class = co_logical_and(ctx, co_greater_equal(ctx, ids, co_int(ctx, 0)),
                              co_less(ctx, ids, co_int(ctx, n)));
    return co_logical_and(ctx, is_class, co_less(ctx, larger, co_float(ctx, (double)m->options.k)));
}

/* The same for ids that may have a last dimension of 1 more, which the values keep. */
static co_value *
top_k(co_context *ctx, const co_metric *m, co_value *ids, co_value *y_pred)
{
    bool has_one = ids != NULL && ids->ndim == y_pred->ndim && ends_in_one(ids);

    if (ids == NULL)
        return NULL;
    if (!coi_dtypes[co_value_dtype(ctx, y_pred)].floating)
        y_pred = co_cast(ctx, y_pred, m->compute);
    if (!has_one)
        return is_in_top_k(ctx, m, ids, y_pred);
    return co_expand_dims(ctx, is_in_top_k(ctx, m, co_squeeze(ctx, ids, CO_AXES(-1)), y_pred), -1);
}

co_value *
coi_values_top_k(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    if (!check_scores(ctx, m, y_true) || !check_scores(ctx, m, y_pred))
        return NULL;
    return top_k(ctx, m, co_argmax(ctx, y_true, -1, CO_INT64), y_pred);
}

/* Whether the class is one of the first k ids. */
static co_value *
is_among_first(co_context *ctx, const co_metric *m, co_value *y_true, co_value *ids)
{
    co_slice_masks masks = CO_SLICE_MASKS_INIT;
    bool           has_one = y_true->ndim == ids->ndim && ends_in_one(y_true);

    y_true = coi_metric_cast(ctx, y_true, co_value_dtype(ctx, ids));
    masks.ellipsis = 1;
    masks.begin = 2;
    ids = co_strided_slice(ctx, ids, (int64_t[]){ 0, 0 }, (int64_t[]){ 0, m->options.k }, NULL, 2,
                           &masks);
    if (!has_one)
        y_true = co_expand_dims(ctx, y_true, -1);
    return co_reduce_any(ctx, co_equal(ctx, y_true, ids), CO_AXES(-1), has_one);
}

co_value *
coi_values_sparse_top_k(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    if (!check_scores(ctx, m, y_pred))
        return NULL;
    return m->options.from_sorted_ids ? is_among_first(ctx, m, y_true, y_pred)
                                      : top_k(ctx, m, y_true, y_pred);
}

/* The loss is its negative. */
co_value *
coi_values_cosine(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    return co_neg(ctx, co_loss_per_example(ctx, m->loss, y_true, y_pred));
}

co_value *
coi_values_squared_error(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    return match_floats(ctx, m, &y_true, &y_pred) ? co_squared_difference(ctx, y_pred, y_true)
                                                  : NULL;
}

static co_value *
centered(co_context *ctx, co_value *x, int axis)
{
    return co_sub(ctx, x, co_reduce_mean(ctx, x, &axis, 1, true));
}

static co_value *
standardized(co_context *ctx, co_value *x, int axis)
{
    x = centered(ctx, x, axis);
    return co_div(ctx, x, co_reduce_std(ctx, x, &axis, 1, true));
}

co_value *
coi_values_pearson(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    int axis = m->options.axis;

    if (!match_floats(ctx, m, &y_true, &y_pred))
        return NULL;
    y_true = standardized(ctx, y_true, axis);
    y_pred = standardized(ctx, y_pred, axis);
    return co_reduce_mean(ctx, co_mul(ctx, y_true, y_pred), &axis, 1, false);
}

/* Keras takes the mean of predictions from both factors of the covariance; the mean of the product
 * is the same. */
co_value *
coi_values_concordance(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred)
{
    int       axis = m->options.axis;
    co_value *of_true, *of_pred, *covariance, *norm;

    if (!match_floats(ctx, m, &y_true, &y_pred))
        return NULL;
    of_true = co_reduce_mean(ctx, y_true, &axis, 1, true);
    of_pred = co_reduce_mean(ctx, y_pred, &axis, 1, true);
    covariance = co_mul(ctx, co_sub(ctx, y_true, of_pred), co_sub(ctx, y_pred, of_pred));
    norm = co_add(ctx, co_reduce_variance(ctx, y_true, &axis, 1, true),
                  co_reduce_variance(ctx, y_pred, &axis, 1, true));
    norm = co_add(ctx, norm, co_squared_difference(ctx, of_true, of_pred));
    return co_reduce_mean(ctx,
                          co_div(ctx, co_mul(ctx, covariance, co_int(ctx, 2)),
                                 co_add(ctx, norm, co_float(ctx, 1e-7))),
                          &axis, 1, false);
}

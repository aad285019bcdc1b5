/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The area under a curve of the counts at thresholds: receiver operating characteristic (ROC),
 * precision over recall (PR), and their gains (PRGAIN). The thresholds are evenly spaced, or given,
 * with one a little below 0 and one a little above 1 around them.
 */
#include "train/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int
ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool
take_thresholds(co_context *ctx, co_metric *metric)
{
    co_metric_options *o = &metric->options;
    bool               given = o->thresholds != NULL;
    size_t             n = o->num_thresholds + (given ? 2 : 0);
    double            *thresholds;

    if (n < 2) {
        coi_fail(ctx, CO_VALUE_ERROR, "num_thresholds of AUC is %zu; it must be at least 2", n);
        return false;
    }
    thresholds = coi_even_thresholds(ctx, metric, n);
    if (thresholds == NULL)
        return false;
    if (given) {
        memcpy(thresholds + 1, o->thresholds, (n - 2) * sizeof(*thresholds));
        qsort(thresholds + 1, n - 2, sizeof(*thresholds), ascending);
    }
    metric->is_even = !given || coi_is_even(thresholds, n);
    thresholds[0] = -1e-7;
    thresholds[n - 1] = 1 + 1e-7;
    o->thresholds = thresholds;
    o->num_thresholds = n;
    return true;
}

static bool
check(co_context *ctx, co_metric *metric)
{
    const co_metric_options *o = &metric->options;

    if (o->num_labels > 0 && !o->multi_label) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "num_labels of AUC is %lld and multi_label is false; set multi_label, or leave "
                 "num_labels at 0",
                 (long long)o->num_labels);
        return false;
    }
    if (o->label_weights != NULL && o->num_labels > 0 &&
        o->num_label_weights != (size_t)o->num_labels) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "AUC has %zu label weights for %lld labels; give one for each",
                 o->num_label_weights, (long long)o->num_labels);
        return false;
    }
    metric->classes = o->num_labels;
    return take_thresholds(ctx, metric);
}

/* With multi_label: the last dimension. */
static int64_t
labels_of(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch)
{
    const co_value *p = batch->y_pred;

    if (!metric->options.multi_label)
        return 0;
    if (p->ndim == 2 && p->u.tensor.dims[1] >= 0)
        return p->u.tensor.dims[1];
    if (p->ndim == 2)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "the number of labels of y_pred is not known while the function is captured; give "
                 "the function a signature with the last dimension");
    else
        coi_fail(ctx, CO_VALUE_ERROR,
                 "y_pred of an AUC with multi_label has %d dimension%s; it must be [examples, "
                 "labels]",
                 p->ndim, COI_S(p->ndim));
    return 0;
}

/* --- the area --- */

/* Rows from `first` on, all but one. */
static co_value *
rows(co_context *ctx, const co_metric *metric, co_value *x, int64_t first)
{
    int64_t begin[2] = { first, 0 }, size[2] = { (int64_t)metric->options.num_thresholds - 1, -1 };

    return x != NULL ? co_slice(ctx, x, begin, size, (size_t)x->ndim) : NULL;
}

/* Sum over thresholds, then the mean over labels. */
static co_value *
sum_up(co_context *ctx, const co_metric *metric, co_value *terms)
{
    const co_metric_options *o = &metric->options;
    co_value                *areas = co_reduce_sum(ctx, terms, CO_AXES(0), false), *weights;

    if (!o->multi_label)
        return areas;
    if (o->label_weights == NULL)
        return co_reduce_mean(ctx, areas, CO_ALL_AXES, false);
    weights = coi_metric_numbers(ctx, CO_FLOAT64, o->label_weights, o->num_label_weights);
    return coi_divide_no_nan(ctx,
                             co_reduce_sum(ctx, co_mul(ctx, areas, weights), CO_ALL_AXES, false),
                             co_reduce_sum(ctx, weights, CO_ALL_AXES, false));
}

static co_value *
at_least_zero(co_context *ctx, co_value *x)
{
    return co_maximum(ctx, x, co_int(ctx, 0));
}

/*
 * Davis and Goadrich: between two thresholds the positives grow in proportion, and the precision,
 * which is their ratio, does not. dtp and dp are the differences of true positives and of all
 * positive predictions p; with slope = dtp / dp an interval adds
 *     slope * (dtp + (tp - slope * p) * log(p_before / p)) / (tp + fn)
 * with tp, p and fn of its higher threshold.
 */
static co_value *
interpolated_pr(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    co_value *p = co_add(ctx, state[0], state[1]);
    co_value *p_before = rows(ctx, metric, p, 0), *p_after = rows(ctx, metric, p, 1);
    co_value *tp = rows(ctx, metric, state[0], 1), *fn = rows(ctx, metric, state[3], 1);
    co_value *dtp = co_sub(ctx, rows(ctx, metric, state[0], 0), tp);
    co_value *dp = co_sub(ctx, p_before, p_after), *slope, *intercept, *both, *ratio, *terms;

    slope = coi_divide_no_nan(ctx, dtp, at_least_zero(ctx, dp));
    intercept = co_sub(ctx, tp, co_mul(ctx, slope, p_after));
    both = co_logical_and(ctx, co_greater(ctx, p_before, co_int(ctx, 0)),
                          co_greater(ctx, p_after, co_int(ctx, 0)));
    ratio = co_where(ctx, both, coi_divide_no_nan(ctx, p_before, at_least_zero(ctx, p_after)),
                     co_int(ctx, 1));
    terms = co_add(ctx, dtp, co_mul(ctx, intercept, co_log(ctx, ratio)));
    terms = coi_divide_no_nan(ctx, co_mul(ctx, slope, terms),
                              at_least_zero(ctx, co_add(ctx, tp, fn)));
    return sum_up(ctx, metric, terms);
}

static co_value *
share(co_context *ctx, co_value *part, co_value *rest)
{
    return coi_divide_no_nan(ctx, part, co_add(ctx, part, rest));
}

/* 1 - positives / negatives * wrong / true positives; without true positives `otherwise`. */
static co_value *
gain(co_context *ctx, co_value *const *state, co_value *wrong, double otherwise)
{
    co_value *tp = state[0], *fp = state[1], *tn = state[2], *fn = state[3];
    co_value *odds = coi_divide_no_nan(ctx, co_add(ctx, tp, fn), co_add(ctx, tn, fp));
    co_value *loss = co_mul(ctx, odds, coi_divide_no_nan(ctx, wrong, tp));

    return co_where(ctx, co_equal(ctx, tp, co_int(ctx, 0)), co_float(ctx, otherwise),
                    co_sub(ctx, co_int(ctx, 1), loss));
}

/* The points of the curve. */
static void
points(co_context *ctx, const co_metric *metric, co_value *const *state, co_value **x, co_value **y)
{
    co_value *tp = state[0], *fp = state[1], *tn = state[2], *fn = state[3];

    switch (metric->options.curve) {
    case CO_CURVE_ROC:
        *x = share(ctx, fp, tn);
        *y = share(ctx, tp, fn);
        break;
    case CO_CURVE_PR:
        *x = share(ctx, tp, fn);
        *y = share(ctx, tp, fp);
        break;
    default:
        *x = at_least_zero(ctx, gain(ctx, state, fn, 0));
        *y = gain(ctx, state, fp, 1);
        break;
    }
}

static co_value *
result(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    co_metric_summation how = metric->options.summation_method;
    co_value           *x, *y, *before, *after, *heights, *area;

    if (metric->options.curve == CO_CURVE_PR && how == CO_SUMMATION_INTERPOLATION) {
        area = interpolated_pr(ctx, metric, state);
    } else {
        points(ctx, metric, state, &x, &y);
        before = rows(ctx, metric, y, 0);
        after = rows(ctx, metric, y, 1);
        heights = how == CO_SUMMATION_MINORING ? co_minimum(ctx, before, after)
                  : how == CO_SUMMATION_MAJORING
                      ? co_maximum(ctx, before, after)
                      : co_div(ctx, co_add(ctx, before, after), co_int(ctx, 2));
        x = co_sub(ctx, rows(ctx, metric, x, 0), rows(ctx, metric, x, 1));
        area = sum_up(ctx, metric, co_mul(ctx, x, heights));
    }
    return coi_metric_cast(ctx, area, metric->dtype);
}

const coi_metric_family coi_auc_family = {
    .check = check,
    .describe = coi_describe_counts,
    .classes = labels_of,
    .update = coi_count_confusion,
    .result = result,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics that count true and false positives and negatives at thresholds: the counts themselves,
 * precision, recall, and one of two such numbers where the other reaches a constraint.
 *
 * Counts are sums of weights in float64. At thresholds that are evenly spaced from 0 to 1 each
 * prediction is put into the bucket between two of them, and the counts are sums over buckets:
 * time and memory grow with the predictions, and not with their number times that of thresholds.
 */
#include "train/metric.h"

#include <math.h>

/* --- thresholds --- */

bool
coi_is_even(const double *thresholds, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        double even = (double)((float)i / (float)(n - 1));

        if (!(fabs(thresholds[i] - even) <= 1e-7 + 1e-5 * even))
            return false;
    }
    return n >= 3;
}

double *
coi_even_thresholds(co_context *ctx, co_metric *metric, size_t n)
{
    double *thresholds = coi_metric_copy(ctx, metric, NULL, n * sizeof(*thresholds));

    if (thresholds == NULL)
        return NULL;
    for (size_t i = 0; i < n; ++i)
        thresholds[i] = n == 1 ? 0.5 : i == n - 1 ? 1.0 : (double)i / (double)(n - 1);
    return thresholds;
}

/* One threshold where no list is given. */
static bool
check_counts(co_context *ctx, co_metric *metric)
{
    co_metric_options *o = &metric->options;
    double             one = !isnan(o->threshold)              ? o->threshold
                             : o->top_k != CO_METRIC_NOT_GIVEN ? -1e10
                                                               : 0.5;

    if (o->thresholds == NULL) {
        o->thresholds = coi_metric_copy(ctx, metric, &one, sizeof(one));
        o->num_thresholds = 1;
    }
    metric->is_even = o->thresholds != NULL && coi_is_even(o->thresholds, o->num_thresholds);
    return o->thresholds != NULL;
}

static bool
check_constraint(co_context *ctx, co_metric *metric)
{
    co_metric_options *o = &metric->options;

    if (!(o->constraint >= 0 && o->constraint <= 1)) {
        coi_fail(ctx, CO_VALUE_ERROR, "%s of %s is %g; it must be in [0, 1]",
                 metric->row->constraint, metric->row->class_name, o->constraint);
        return false;
    }
    if (o->num_thresholds < 1) {
        coi_fail(ctx, CO_VALUE_ERROR, "num_thresholds of %s is 0; it must be at least 1",
                 metric->row->class_name);
        return false;
    }
    o->thresholds = coi_even_thresholds(ctx, metric, o->num_thresholds);
    metric->is_even = o->num_thresholds > 1;
    return o->thresholds != NULL;
}

bool
coi_describe_counts(co_context *ctx, co_metric *metric)
{
    static const char *const names[] = { "true_positives", "false_positives", "true_negatives",
                                         "false_negatives" };
    const co_metric_options *o = &metric->options;

    (void)ctx;
    for (unsigned i = 0; i < 4; ++i) {
        coi_metric_state *state = &metric->state[metric->num_variables];

        if ((metric->row->counts >> i & 1) == 0)
            continue;
        *state = (coi_metric_state){ metric->family == &coi_count_family ? "accumulator" : names[i],
                                     CO_FLOAT64,
                                     1,
                                     { (int64_t)o->num_thresholds },
                                     0 };
        if (o->multi_label)
            state->dims[state->ndim++] = o->num_labels > 0 ? o->num_labels : COI_CLASSES;
        ++metric->num_variables;
    }
    return true;
}

/* --- updates --- */

/* What is counted. Flat, or [examples, labels] where each label has counts of its own. */
typedef struct counting {
    const co_metric *metric;
    co_value        *y_true, *y_pred;       /* y_pred of the compute dtype */
    co_value        *positives, *negatives; /* weights in float64, 0 where the label is the other */
} counting;

/* The others than the k largest of a row become -1e10. */
static co_value *
keep_top_k(co_context *ctx, co_value *y_pred, int64_t k)
{
    co_one_hot_options bits = CO_ONE_HOT_OPTIONS_INIT;
    int64_t            n = y_pred->ndim > 0 ? y_pred->u.tensor.dims[y_pred->ndim - 1] : 0;
    co_value          *chosen;

    if (n < k) {
        if (n < 0)
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "the number of classes of y_pred is not known while the function is captured, "
                     "and top_k is %lld; give the function a signature with the last dimension",
                     (long long)k);
        else
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "top_k is %lld and y_pred has %lld classes; it must have at least as many",
                     (long long)k, (long long)n);
        return NULL;
    }
    bits.dtype = CO_BOOL;
    chosen = co_one_hot(ctx, co_at(ctx, co_top_k(ctx, y_pred, k), 1), n, &bits);
    chosen = co_reduce_any(ctx, chosen, CO_AXES(-2), false);
    return co_where(ctx, chosen, y_pred, co_float(ctx, -1e10));
}

/* One position of the last dimension, which becomes 1. */
static co_value *
take_class(co_context *ctx, co_value *x, int64_t class_id)
{
    co_slice_masks masks = CO_SLICE_MASKS_INIT;

    masks.ellipsis = 1;
    if (class_id == -1)
        masks.end = 2;
    return co_strided_slice(ctx, x, (int64_t[]){ 0, class_id }, (int64_t[]){ 0, class_id + 1 },
                            NULL, 2, &masks);
}

static bool
check_class(co_context *ctx, const co_value *x, const char *name, int64_t class_id)
{
    int64_t n = x->ndim > 0 ? x->u.tensor.dims[x->ndim - 1] : 0;

    if (x->ndim < 2) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "class_id is given and %s has %d dimension%s; it must be [examples, classes]",
                 name, x->ndim, COI_S(x->ndim));
        return false;
    }
    if (n < 0 || (class_id < n && class_id >= -n))
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "class_id is %lld and %s has %lld classes",
             (long long)class_id, name, (long long)n);
    return false;
}

static bool
choose_class(co_context *ctx, counting *c)
{
    int64_t class_id = c->metric->options.class_id;

    if (class_id == CO_METRIC_NOT_GIVEN)
        return true;
    if (!check_class(ctx, c->y_pred, "y_pred", class_id) ||
        !check_class(ctx, c->y_true, "y_true", class_id))
        return false;
    c->y_true = take_class(ctx, c->y_true, class_id);
    c->y_pred = take_class(ctx, c->y_pred, class_id);
    return ctx->error.code == CO_OK;
}

/* Weights of examples, or of values, in the shape of predictions; NULL without an error: none. */
static co_value *
weights_of(co_context *ctx, const counting *c, co_value *weight)
{
    const co_metric_options *o = &c->metric->options;
    co_value                *y_true = c->y_true, *labels = NULL;

    if (weight != NULL) {
        weight = co_expand_dims(ctx, weight, -1);
        if (weight == NULL || !coi_match_ranks(ctx, &y_true, &weight, false))
            return NULL;
        weight = coi_metric_broadcast(ctx, "sample weights", weight, c->y_pred);
    }
    if (o->label_weights != NULL && !o->multi_label) {
        labels = coi_metric_numbers(ctx, CO_FLOAT64, o->label_weights, o->num_label_weights);
        labels = coi_metric_broadcast(ctx, "label weights", co_expand_dims(ctx, labels, 0),
                                      c->y_pred);
    }
    return weight == NULL || labels == NULL ? (weight == NULL ? labels : weight)
                                            : co_mul(ctx, weight, labels);
}

static bool
begin_counting(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch, counting *c)
{
    const co_metric_options *o = &metric->options;
    co_value                *weight = coi_batch_weight(ctx, batch, CO_FLOAT64), *is_positive;
    bool                     flat = !o->multi_label;

    *c = (counting){ metric, batch->y_true, batch->y_pred, NULL, NULL };
    if (o->from_logits) {
        if (!coi_dtypes[co_value_dtype(ctx, c->y_pred)].floating)
            c->y_pred = co_cast(ctx, c->y_pred, metric->compute);
        c->y_pred = co_sigmoid(ctx, c->y_pred);
    }
    c->y_pred = coi_metric_cast(ctx, c->y_pred, metric->compute);
    if (ctx->error.code != CO_OK || !coi_match_ranks(ctx, &c->y_pred, &c->y_true, true))
        return false;
    if (o->top_k != CO_METRIC_NOT_GIVEN)
        c->y_pred = keep_top_k(ctx, c->y_pred, o->top_k);
    if (c->y_pred == NULL || !choose_class(ctx, c))
        return false;
    weight = weights_of(ctx, c, weight);
    if (ctx->error.code != CO_OK)
        return false;
    if (flat) {
        c->y_true = coi_flat(ctx, c->y_true);
        c->y_pred = coi_flat(ctx, c->y_pred);
        weight = coi_flat(ctx, weight);
    }
    is_positive = coi_metric_cast(ctx, c->y_true, CO_BOOL);
    if (weight == NULL) {
        c->positives = co_cast(ctx, is_positive, CO_FLOAT64);
        c->negatives = co_cast(ctx, co_logical_not(ctx, is_positive), CO_FLOAT64);
    } else {
        c->positives = co_where(ctx, is_positive, weight, co_int(ctx, 0));
        c->negatives = co_where(ctx, is_positive, co_int(ctx, 0), weight);
    }
    return ctx->error.code == CO_OK;
}

static bool
check_lengths(co_context *ctx, const counting *c)
{
    const co_value *t = c->y_true, *p = c->y_pred;
    bool            same = t->ndim == p->ndim;
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    for (int d = 0; same && d < t->ndim; ++d) {
        int64_t mine = t->u.tensor.dims[d], its = p->u.tensor.dims[d];

        same = mine == its || mine < 0 || its < 0;
    }
    if (same)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "y_true has %s and y_pred %s elements to count; they must have equal shapes",
             coi_shape_text(t->u.tensor.dims, t->ndim, a),
             coi_shape_text(p->u.tensor.dims, p->ndim, b));
    return false;
}

/* Sums of weights above each threshold, and of all of them. */
typedef struct sums {
    co_value *above, *all;
} sums;

static sums
sum_buckets(co_context *ctx, const counting *c, co_value *bucket, co_value *weight)
{
    const co_metric *m = c->metric;
    int64_t          n = (int64_t)m->options.num_thresholds, labels = m->classes;
    sums             s = { NULL, NULL };

    s.all = co_reduce_sum(ctx, weight, CO_AXES(0), false);
    if (!m->options.multi_label) {
        s.above = co_unsorted_segment_sum(ctx, weight, bucket, n);
    } else {
        s.above = co_unsorted_segment_sum(ctx, coi_flat(ctx, weight), coi_flat(ctx, bucket),
                                          n * labels);
        s.above = co_reshape(ctx, s.above, CO_SHAPE(n, labels));
    }
    s.above = co_cumsum(ctx, s.above, 0, false, true);
    return s;
}

/* The bucket of each prediction: i for one above threshold i and not above the next; -1 for 0, but
 * where the first threshold is below 0 (AUC). NaN is above none. */
static co_value *
buckets(co_context *ctx, const counting *c)
{
    const co_metric *m = c->metric;
    double           intervals = (double)m->options.num_thresholds - 1;
    co_value        *at = co_clip_by_value(ctx, c->y_pred, 0, 1);

    at = co_ceil(ctx, co_mul(ctx, at, co_float(ctx, intervals)));
    at = co_sub(ctx, at, co_int(ctx, 1));
    if (m->family == &coi_auc_family)
        at = co_relu(ctx, at);
    at = co_cast(ctx, co_where(ctx, co_isnan(ctx, c->y_pred), co_int(ctx, -1), at), CO_INT32);
    if (!m->options.multi_label)
        return at;
    /* [thresholds, labels] as one dimension; what is below 0 stays there */
    at = co_mul(ctx, at, co_int(ctx, m->classes));
    return co_add(ctx, at,
                  co_range(ctx, co_int(ctx, 0), co_int(ctx, m->classes), co_int(ctx, 1), CO_INT32));
}

/* [thresholds, examples(, labels)] against each threshold. */
static sums
sum_above(co_context *ctx, co_value *is_above, co_value *weight)
{
    sums s;

    s.all = co_reduce_sum(ctx, weight, CO_AXES(0), false);
    s.above = co_where(ctx, is_above, co_expand_dims(ctx, weight, 0), co_int(ctx, 0));
    s.above = co_reduce_sum(ctx, s.above, CO_AXES(1), false);
    return s;
}

static co_value *
compare(co_context *ctx, const counting *c)
{
    const co_metric *m = c->metric;
    int64_t          n = (int64_t)m->options.num_thresholds;
    co_value *thresholds = coi_metric_numbers(ctx, m->compute, m->options.thresholds, (size_t)n);

    thresholds = co_reshape(ctx, thresholds, (int64_t[]){ n, 1, 1 }, 1 + c->y_pred->ndim);
    return co_greater(ctx, co_expand_dims(ctx, c->y_pred, 0), thresholds);
}

bool
coi_count_confusion(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
                    co_value **added)
{
    counting  c;
    sums      positives, negatives;
    co_value *where;
    size_t    n = 0;

    if (!begin_counting(ctx, metric, batch, &c) || !check_lengths(ctx, &c))
        return false;
    if (metric->is_even) {
        where = buckets(ctx, &c);
        positives = sum_buckets(ctx, &c, where, c.positives);
        negatives = sum_buckets(ctx, &c, where, c.negatives);
    } else {
        where = compare(ctx, &c);
        positives = sum_above(ctx, where, c.positives);
        negatives = sum_above(ctx, where, c.negatives);
    }
    if ((metric->row->counts & COI_TRUE_POSITIVES) != 0)
        added[n++] = positives.above;
    if ((metric->row->counts & COI_FALSE_POSITIVES) != 0)
        added[n++] = negatives.above;
    if ((metric->row->counts & COI_TRUE_NEGATIVES) != 0)
        added[n++] = co_sub(ctx, negatives.all, negatives.above);
    if ((metric->row->counts & COI_FALSE_NEGATIVES) != 0)
        added[n++] = co_sub(ctx, positives.all, positives.above);
    return ctx->error.code == CO_OK;
}

/* --- results --- */

/* Of one threshold a scalar. */
static co_value *
of_thresholds(co_context *ctx, const co_metric *metric, co_value *x)
{
    if (x != NULL && metric->options.num_thresholds == 1)
        x = co_squeeze(ctx, x, CO_AXES(0));
    return coi_metric_cast(ctx, x, metric->dtype);
}

static co_value *
result_count(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    return of_thresholds(ctx, metric, state[0]);
}

static co_value *
share(co_context *ctx, co_value *part, co_value *rest)
{
    return coi_divide_no_nan(ctx, part, co_add(ctx, part, rest));
}

static co_value *
result_precision(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    return of_thresholds(ctx, metric, share(ctx, state[0], state[1]));
}

/* The most of one number over the thresholds where the other is at least the constraint. */
static co_value *
result_constraint(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    co_value *tp = state[0], *fp = state[1], *tn = state[2], *fn = state[3];
    co_value *sensitivity = share(ctx, tp, fn), *other, *constrained, *wanted;
    bool      is_specificity = metric->kind == CO_METRIC_SENSITIVITY_AT_SPECIFICITY ||
                          metric->kind == CO_METRIC_SPECIFICITY_AT_SENSITIVITY;
    bool constrains_other = metric->kind == CO_METRIC_SENSITIVITY_AT_SPECIFICITY ||
                            metric->kind == CO_METRIC_RECALL_AT_PRECISION;

    other = is_specificity ? share(ctx, tn, fp) : share(ctx, tp, fp);
    constrained = constrains_other ? other : sensitivity;
    wanted = constrains_other ? sensitivity : other;
    constrained = co_greater_equal(ctx, constrained, co_float(ctx, metric->options.constraint));
    wanted = co_where(ctx, constrained, wanted, co_int(ctx, 0));
    return coi_metric_cast(ctx, co_reduce_max(ctx, wanted, CO_ALL_AXES, false), metric->dtype);
}

const coi_metric_family coi_count_family = {
    .check = check_counts,
    .describe = coi_describe_counts,
    .update = coi_count_confusion,
    .result = result_count,
};
const coi_metric_family coi_precision_family = {
    .check = check_counts,
    .describe = coi_describe_counts,
    .update = coi_count_confusion,
    .result = result_precision,
};
const coi_metric_family coi_constraint_family = {
    .check = check_constraint,
    .describe = coi_describe_counts,
    .update = coi_count_confusion,
    .result = result_constraint,
};

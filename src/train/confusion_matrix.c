/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf.math.confusion_matrix: a sum over pairs of class ids. Ids out of range are refused; eagerly
 * the message has the index, in captured functions the check is a call of the program.
 */
#include "train/metric.h"

#include "ops/engine/call_recording.h"

#include <cohort/runtime_checks.h>

#include <stdio.h>

typedef struct pairs {
    co_confusion_matrix_options options;
    co_value                   *labels, *predictions, *weights; /* ids as int64 */
} pairs;

static co_value *
take_ids(co_context *ctx, co_value *given, int position, const char *name)
{
    co_value *ids;
    co_dtype  dtype;

    if (!coi_check_value(ctx, given, position, name))
        return NULL;
    ids = given->kind == CO_KIND_TENSOR || given->kind == CO_KIND_SYMBOLIC
              ? given
              : co_to_tensor(ctx, given, CO_DTYPE_NONE);
    if (ids == NULL)
        return NULL;
    dtype = co_value_dtype(ctx, ids);
    if (dtype == CO_STRING || dtype == CO_BOOL || !coi_check_known_rank(ctx, name, ids)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s are %s; they must be numbers", name,
                 co_dtype_name(dtype));
        return NULL;
    }
    return coi_metric_cast(ctx, ids, CO_INT64);
}

/* A last dimension of 1 more than the other has. */
static bool
squeeze_longer(co_context *ctx, co_value **labels, co_value **predictions)
{
    co_value **longer = (*labels)->ndim > (*predictions)->ndim ? labels : predictions;
    int        more = (*labels)->ndim - (*predictions)->ndim;

    if ((more == 1 || more == -1) && (*longer)->u.tensor.dims[(*longer)->ndim - 1] == 1)
        *longer = co_squeeze(ctx, *longer, CO_AXES(-1));
    return ctx->error.code == CO_OK;
}

static bool
same_shape(const co_value *a, const co_value *b)
{
    bool same = a->ndim == b->ndim;

    for (int d = 0; same && d < a->ndim; ++d) {
        int64_t mine = a->u.tensor.dims[d], its = b->u.tensor.dims[d];

        same = mine == its || mine < 0 || its < 0;
    }
    return same;
}

static bool
check_shapes(co_context *ctx, const pairs *p)
{
    char a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    coi_shape_text(p->predictions->u.tensor.dims, p->predictions->ndim, b);
    if (!same_shape(p->labels, p->predictions) || p->labels->ndim != 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "labels have shape %s and predictions %s; both must be [n]",
                 coi_shape_text(p->labels->u.tensor.dims, p->labels->ndim, a), b);
        return false;
    }
    if (p->weights != NULL && !same_shape(p->weights, p->predictions)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "weights have shape %s and predictions %s; they must be equal",
                 coi_shape_text(p->weights->u.tensor.dims, p->weights->ndim, a), b);
        return false;
    }
    return true;
}

/* The largest id; -1 with an error where one is negative, or too large for `n` (0: any) classes. */
static int64_t
check_ids(co_context *ctx, const char *name, co_value *ids, int64_t n)
{
    const int64_t *at = co_value_data(ctx, ids);
    int64_t        count = co_value_num_elements(ctx, ids), largest = 0;

    if (at == NULL && count > 0)
        return -1;
    for (int64_t i = 0; i < count; ++i) {
        if (at[i] < 0 || (n > 0 && at[i] >= n)) {
            ctx->call = "confusion_matrix";
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     n > 0 ? "%s[%lld] is %lld; with %lld classes it must be 0 to %lld"
                           : "%s[%lld] is %lld; it must not be negative",
                     name, (long long)i, (long long)at[i], (long long)n, (long long)n - 1);
            return -1;
        }
        if (at[i] > largest)
            largest = at[i];
    }
    return largest;
}

static bool
assert_ids(co_context *ctx, const char *name, co_value *ids, int64_t n)
{
    char low[80], high[80];

    snprintf(low, sizeof(low), "%s of confusion_matrix must not be negative", name);
    snprintf(high, sizeof(high), "%s of confusion_matrix must be less than num_classes", name);
    co_assert_greater(ctx, ids, co_scalar_int64(ctx, -1), low);
    co_assert_less(ctx, ids, co_scalar_int64(ctx, n), high);
    return ctx->error.code == CO_OK;
}

/* The number of classes; 0 with an error. */
static int64_t
count_classes(co_context *ctx, const pairs *p)
{
    int64_t n = p->options.num_classes, label, prediction;

    if (coi_is_capturing(ctx)) {
        if (n > 0)
            return assert_ids(ctx, "labels", p->labels, n) &&
                           assert_ids(ctx, "predictions", p->predictions, n)
                       ? n
                       : 0;
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "confusion_matrix is captured and num_classes is not given, so the shape of the "
                 "result is not known; give num_classes");
        return 0;
    }
    label = check_ids(ctx, "labels", p->labels, n);
    prediction = label >= 0 ? check_ids(ctx, "predictions", p->predictions, n) : -1;
    if (prediction < 0)
        return 0;
    return n > 0 ? n : (label > prediction ? label : prediction) + 1;
}

static bool
take_pairs(co_context *ctx, co_value *labels, co_value *predictions,
           const co_confusion_matrix_options *options, pairs *p)
{
    co_dtype dtype;

    p->options = (co_confusion_matrix_options)CO_CONFUSION_MATRIX_OPTIONS_INIT;
    p->weights = NULL;
    if (!coi_take_options(ctx, &p->options, sizeof(p->options), options, 4))
        return false;
    dtype = p->options.dtype;
    if ((unsigned)dtype >= CO_NUM_DTYPES || dtype == CO_DTYPE_NONE || dtype == CO_STRING ||
        dtype == CO_BOOL || p->options.num_classes < 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "dtype is %s and num_classes %lld; they must be a dtype of numbers and at least 0",
                 co_dtype_name(dtype), (long long)p->options.num_classes);
        return false;
    }
    p->labels = take_ids(ctx, labels, 2, "labels");
    p->predictions = p->labels != NULL ? take_ids(ctx, predictions, 3, "predictions") : NULL;
    if (p->predictions == NULL || !squeeze_longer(ctx, &p->labels, &p->predictions))
        return false;
    if (p->options.weights != NULL && coi_check_value(ctx, p->options.weights, 4, "weights") &&
        p->options.weights->kind != CO_KIND_NONE) {
        p->weights = co_to_tensor(ctx, p->options.weights, CO_DTYPE_NONE);
        p->weights = coi_metric_cast(ctx, p->weights, dtype);
    }
    return ctx->error.code == CO_OK && check_shapes(ctx, p);
}

co_value *
co_confusion_matrix(co_context *ctx, co_value *labels, co_value *predictions,
                    const co_confusion_matrix_options *options)
{
    static const int64_t most = 32768;

    pairs     p;
    int64_t   n;
    co_value *at, *weights;

    COI_ENTER(ctx, "confusion_matrix", NULL);
    if (!take_pairs(ctx, labels, predictions, options, &p) || (n = count_classes(ctx, &p)) == 0)
        return NULL;
    if (n > most) {
        ctx->call = "confusion_matrix";
        coi_fail(ctx, CO_INVALID_ARGUMENT, "there are %lld classes; a matrix has at most %lld",
                 (long long)n, (long long)most);
        return NULL;
    }
    at = co_add(ctx, co_mul(ctx, p.labels, co_int(ctx, n)), p.predictions);
    weights = p.weights != NULL
                  ? p.weights
                  : coi_metric_cast(ctx, co_ones_like(ctx, p.predictions), p.options.dtype);
    return co_reshape(ctx, co_unsorted_segment_sum(ctx, weights, at, n * n), CO_SHAPE(n, n));
}

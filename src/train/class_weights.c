/* SPDX-License-Identifier: Apache-2.0 */
/* Sample weights from weights of classes: a table, in which the class of each example is looked
 * up, and whose last entry is the 1 of all classes that are not listed. */
#include <cohort/losses.h>

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "train/loss.h"

#define MAX_SPAN ((int64_t)1 << 20)

typedef struct span {
    int64_t least, most;
} span;

static bool
find_span(co_context *ctx, const int64_t *classes, const double *weights, size_t n, span *out)
{
    *out = n > 0 ? (span){ classes[0], classes[0] } : (span){ 0, 0 };
    for (size_t i = 0; i < n; ++i) {
        out->least = classes[i] < out->least ? classes[i] : out->least;
        out->most = classes[i] > out->most ? classes[i] : out->most;
        if (!isfinite((float)weights[i])) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "the weight of class %lld is %g; it must be finite in float32",
                     (long long)classes[i], weights[i]);
            return false;
        }
    }
    if ((uint64_t)out->most - (uint64_t)out->least < (uint64_t)MAX_SPAN)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "classes go from %lld to %lld; they may be %lld apart. Number them from 0",
             (long long)out->least, (long long)out->most, (long long)MAX_SPAN - 1);
    return false;
}

/* Fills a table of the span and one entry more; NaN marks what is not listed yet. */
static bool
fill_table(co_context *ctx, const int64_t *classes, const double *weights, size_t n, span s,
           float *table)
{
    size_t entries = (size_t)(s.most - s.least) + 2;

    for (size_t i = 0; i < entries; ++i)
        table[i] = NAN;
    for (size_t i = 0; i < n; ++i) {
        float *entry = &table[classes[i] - s.least];

        if (!isnan(*entry)) {
            coi_fail(ctx, CO_VALUE_ERROR, "class %lld is listed twice", (long long)classes[i]);
            return false;
        }
        *entry = (float)weights[i];
    }
    for (size_t i = 0; i < entries; ++i)
        if (isnan(table[i]))
            table[i] = 1;
    return true;
}

static co_value *
make_table(co_context *ctx, const int64_t *classes, const double *weights, size_t n, span s)
{
    int64_t   entries = s.most - s.least + 2;
    size_t    nbytes = (size_t)entries * sizeof(float);
    float    *table = coi_small_alloc(&ctx->heap, nbytes);
    co_value *made = NULL;

    if (table == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the weights of %lld classes",
                 (long long)entries - 1);
        return NULL;
    }
    if (fill_table(ctx, classes, weights, n, s, table))
        made = co_tensor(ctx, CO_FLOAT32, &entries, 1, table);
    coi_small_free(&ctx->heap, table, nbytes);
    return made;
}

/* The class of each example, as int64. */
static co_value *
classes_of(co_context *ctx, co_value *y)
{
    if (y->ndim == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "y_true is a scalar; give the class of each example, [batch] or [batch, classes]");
        return NULL;
    }
    if (y->ndim > 1 && coi_last_dim(y) < 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "the last dimension of y_true is not known while a function is captured; it tells "
                 "ids from probabilities, so give it in the signature");
        return NULL;
    }
    if (y->ndim > 1 && coi_last_dim(y) != 1)
        return co_argmax(ctx, y, -1, CO_INT64);
    if (y->ndim > 1)
        y = coi_drop_last_dim(ctx, y);
    if (y != NULL && coi_dtypes[y->dtype].floating)
        y = co_round(ctx, y);
    return y != NULL ? coi_loss_operand(ctx, y, CO_INT64, "y_true") : NULL;
}

/* Where the weight of a class is in the table. Differences are taken of classes in the span alone,
 * so that none overflows. */
static co_value *
places(co_context *ctx, co_value *ids, span s)
{
    co_value *least = co_scalar_int64(ctx, s.least), *most = co_scalar_int64(ctx, s.most);
    co_value *inside = co_logical_and(ctx, co_greater_equal(ctx, ids, least),
                                      co_less_equal(ctx, ids, most));
    co_value *place = co_sub(ctx, co_where(ctx, inside, ids, least), least);

    return co_where(ctx, inside, place, co_scalar_int64(ctx, s.most - s.least + 1));
}

co_value *
co_class_sample_weight(co_context *ctx, co_value *y_true, const int64_t *classes,
                       const double *weights, size_t num_classes)
{
    co_value *y, *table;
    span      s;

    COI_ENTER(ctx, "class_sample_weight", NULL);
    if (!coi_check_value(ctx, y_true, 2, "y_true"))
        return NULL;
    if (num_classes > 0 && (classes == NULL || weights == NULL)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument %d (%s) of class_sample_weight is NULL; give %zu of them",
                 classes == NULL ? 3 : 4, classes == NULL ? "classes" : "weights", num_classes);
        return NULL;
    }
    if (!find_span(ctx, classes, weights, num_classes, &s))
        return NULL;
    y = coi_loss_operand(ctx, y_true, CO_DTYPE_NONE, "y_true");
    y = y != NULL ? classes_of(ctx, y) : NULL;
    table = y != NULL ? make_table(ctx, classes, weights, num_classes, s) : NULL;
    return table != NULL ? co_gather(ctx, table, places(ctx, y, s), 0, 0) : NULL;
}

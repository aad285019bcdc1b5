/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm with the statistics of all replicas. Sums and counts of rows are added over replicas
 * and divided once, so that every row counts the same however rows are spread. The variance is
 * computed about the common mean in a second sum: E(x^2) - E(x)^2 would need only one sum, but
 * loses the digits of small variances.
 */
#include <cohort/ops.h>
#include <cohort/train.h>

#include "context/context.h"
#include "ops/engine/shared_ops.h"

/* Errors say this and not what it is made of. */
static const char call_name[] = "sync_batch_norm_train";

typedef struct batch {
    co_value             *x; /* of the compute type, as everything below */
    co_value             *gamma, *beta, *moving_mean, *moving_variance;
    int                   axes[CO_MAX_DIMS];
    size_t                num_axes;
    co_batch_norm_options options;
    /* Of the rows of all replicas, with dimensions of 1 for the axes. */
    co_value *mean, *variance;
    double    rows;
} batch;

/* Sums of rows overflow halves. */
static co_dtype
compute_type(co_dtype dtype)
{
    return dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32;
}

static co_value *
converted(co_context *ctx, co_value *value, co_dtype dtype)
{
    return co_value_dtype(ctx, value) == dtype ? value : co_cast(ctx, value, dtype);
}

static bool
check_batch(co_context *ctx, co_value *const *given)
{
    static const char *const names[] = { "x", "gamma", "beta", "moving_mean", "moving_variance" };

    co_dtype first = CO_DTYPE_NONE;

    for (int i = 0; i < 5; ++i) {
        co_dtype dtype;

        if (!coi_check_value(ctx, given[i], 2 + i, names[i]))
            return false;
        dtype = co_value_dtype(ctx, given[i]);
        if (ctx->error.code != CO_OK)
            return false;
        ctx->call = call_name;
        if (i == 0)
            first = dtype;
        if (!coi_dtypes[dtype].floating || dtype != first) {
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "%s is %s; all five operands must be of one floating dtype", names[i],
                     co_dtype_name(dtype));
            return false;
        }
    }
    return true;
}

static co_value *
sum_of_rows(co_context *ctx, const batch *b, co_value *x)
{
    return co_reduce_sum(ctx, x, b->axes, b->num_axes, true);
}

/* Two collectives. */
static bool
take_statistics(co_context *ctx, batch *b)
{
    co_value *sum = sum_of_rows(ctx, b, b->x), *pair[2];
    int64_t   channels = co_value_num_elements(ctx, sum);
    int64_t   rows = channels > 0 ? co_value_num_elements(ctx, b->x) / channels : 0;

    pair[0] = sum;
    pair[1] = co_scalar_double(ctx, (double)rows);
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, pair, 2));
    b->rows = co_item_float(ctx, co_at(ctx, sum, 1));
    b->mean = co_div(ctx, co_at(ctx, sum, 0), co_float(ctx, b->rows));
    sum = sum_of_rows(ctx, b, co_squared_difference(ctx, b->x, b->mean));
    b->variance = co_div(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, sum), co_float(ctx, b->rows));
    return ctx->error.code == CO_OK;
}

/* A statistic in the shape of gamma. */
static co_value *
like_gamma(co_context *ctx, const batch *b, co_value *statistic)
{
    int64_t dims[CO_MAX_DIMS];
    int     ndim = co_value_ndim(ctx, b->gamma);

    for (int i = 0; i < ndim; ++i)
        dims[i] = co_value_dim(ctx, b->gamma, i);
    return co_reshape(ctx, statistic, dims, ndim);
}

/* What co_batch_norm_train returns. */
static co_value *
results(co_context *ctx, const batch *b, co_dtype dtype)
{
    co_value *mean = like_gamma(ctx, b, b->mean), *variance = like_gamma(ctx, b, b->variance);
    bool      empty = b->rows == 0;
    co_value *outs[5] = {
        empty ? co_add(ctx, co_mul(ctx, b->x, b->gamma), b->beta)
              : co_batch_norm_inference(ctx, b->x, b->gamma, b->beta, b->mean, b->variance,
                                        &b->options),
        mean,
        variance,
        coi_moving_average(ctx, b->moving_mean, mean, b->options.momentum, empty),
        coi_moving_average(ctx, b->moving_variance, variance, b->options.momentum, empty),
    };

    for (int i = 0; i < 5; ++i)
        outs[i] = converted(ctx, outs[i], dtype);
    return co_tuple(ctx, outs, 5);
}

co_value *
co_sync_batch_norm_train(co_context *ctx, co_value *x, co_value *gamma, co_value *beta,
                         co_value *moving_mean, co_value *moving_variance,
                         const co_batch_norm_options *options)
{
    co_value *const given[5] = { x, gamma, beta, moving_mean, moving_variance };
    batch           b = { .x = x, .options = CO_BATCH_NORM_OPTIONS_INIT };
    co_dtype        dtype, wide;

    COI_ENTER(ctx, call_name, NULL);
    if (!coi_take_options(ctx, &b.options, sizeof(b.options), options, 7) ||
        !check_batch(ctx, given) || !coi_batch_norm_axes(ctx, x, &b.options, b.axes, &b.num_axes) ||
        coi_check_momentum(ctx, call_name, b.options.momentum) != CO_OK ||
        coi_check_epsilon(ctx, call_name, b.options.epsilon) != CO_OK)
        return NULL;
    if (ctx->mode.cross) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "sync_batch_norm_train is called in cross-replica context; call it in the step");
        return NULL;
    }
    if (ctx->mode.num_replicas > 1 && ctx->capture != NULL) {
        coi_fail(
            ctx, CO_UNIMPLEMENTED,
            "sync_batch_norm_train of %d replicas cannot be captured in a function; run the step "
            "without capturing, or use co_batch_norm_train",
            ctx->mode.num_replicas);
        return NULL;
    }
    if (ctx->mode.num_replicas == 1)
        return co_batch_norm_train(ctx, x, gamma, beta, moving_mean, moving_variance, &b.options);
    dtype = co_value_dtype(ctx, x);
    wide = compute_type(dtype);
    b.x = converted(ctx, x, wide);
    b.gamma = converted(ctx, gamma, wide);
    b.beta = converted(ctx, beta, wide);
    b.moving_mean = converted(ctx, moving_mean, wide);
    b.moving_variance = converted(ctx, moving_variance, wide);
    return take_statistics(ctx, &b) ? results(ctx, &b, dtype) : NULL;
}

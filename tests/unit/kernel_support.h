/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of kernels share: tensors of repeatable noise, comparisons, gradients against finite
 * differences, and the same computation under several numbers of threads. Tests that use it look
 * inside the library: they include context/context.h themselves, which has them linked with the
 * static one.
 */
#ifndef COHORT_KERNEL_SUPPORT_H
#define COHORT_KERNEL_SUPPORT_H

#include "test.h"

#include "context/context.h"

#define KERNEL_UNUSED __attribute__((unused))

/* Numbers in [-1, 1) from a generator of the test's own. */
KERNEL_UNUSED static double
kernel_noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) * 0x1p-30 - 1.0;
}

KERNEL_UNUSED static co_value *
kernel_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, uint64_t seed)
{
    int64_t   n = 1;
    double   *data;
    co_value *wide;

    for (int i = 0; i < ndim; ++i)
        n *= dims[i];
    data = malloc((size_t)(n + 1) * sizeof(*data));
    for (int64_t i = 0; i < n; ++i)
        data[i] = kernel_noise(&seed);
    wide = co_tensor(ctx, CO_FLOAT64, dims, ndim, data);
    free(data);
    return dtype == CO_FLOAT64 ? wide : co_cast(ctx, wide, dtype);
}

/* All elements as doubles; the caller frees. */
KERNEL_UNUSED static double *
kernel_read(co_context *ctx, co_value *x, int64_t *n)
{
    double *data;

    *n = co_value_num_elements(ctx, x);
    data = malloc((size_t)(*n + 1) * sizeof(*data));
    co_value_copy_data(ctx, x, CO_FLOAT64, data, *n);
    return data;
}

/* The largest difference, relative to 1 and the largest element; NaN counts as infinite unless both
 * have it. */
KERNEL_UNUSED static double
kernel_difference(co_context *ctx, co_value *a, co_value *b)
{
    int64_t na, nb;
    double *p = kernel_read(ctx, a, &na), *q = kernel_read(ctx, b, &nb), worst = 0, size = 1;

    if (!co_ok(ctx) || na != nb)
        worst = INFINITY;
    for (int64_t i = 0; i < na && na == nb; ++i)
        if (fabs(q[i]) > size && isfinite(q[i]))
            size = fabs(q[i]);
    for (int64_t i = 0; i < na && na == nb; ++i) {
        double d = p[i] == q[i] || (isnan(p[i]) && isnan(q[i])) ? 0 : fabs(p[i] - q[i]) / size;

        if (!(d <= worst))
            worst = isnan(d) ? INFINITY : d;
    }
    free(p);
    free(q);
    return worst;
}

typedef co_value *(*kernel_fn)(co_context *ctx, co_value *const *in);

/* fn with the plain kernels. */
KERNEL_UNUSED static co_value *
kernel_reference(co_context *ctx, kernel_fn fn, co_value *const *in)
{
    co_value *result;

    coi_use_reference(ctx, true);
    result = fn(ctx, in);
    coi_use_reference(ctx, false);
    return result;
}

/* sum(fn(in) * weights) with weights that break symmetry. */
KERNEL_UNUSED static co_value *
kernel_loss(co_context *ctx, kernel_fn fn, co_value *const *in)
{
    co_value *y = fn(ctx, in);
    int64_t   dims[CO_MAX_DIMS];
    int       ndim = co_value_ndim(ctx, y);

    for (int i = 0; i < ndim; ++i)
        dims[i] = co_value_dim(ctx, y, i);
    return co_reduce_sum(ctx,
                         co_mul(ctx, y, kernel_tensor(ctx, co_value_dtype(ctx, y), dims, ndim, 99)),
                         CO_ALL_AXES, false);
}

/* The gradient of kernel_loss for input i. */
KERNEL_UNUSED static co_value *
kernel_gradient(co_context *ctx, kernel_fn fn, co_value *const *in, int i)
{
    co_tape_begin(ctx);
    co_watch(ctx, in[i]);
    return co_gradient(ctx, kernel_loss(ctx, fn, in), in[i]);
}

/* The same at a point moved by `by` in element `at` of input i: its loss. */
KERNEL_UNUSED static double
kernel_loss_at(co_context *ctx, kernel_fn fn, co_value *const *in, int num_in, int i, int64_t at,
               double by)
{
    co_value *moved[8];
    int64_t   dims[CO_MAX_DIMS], n;
    double   *data = kernel_read(ctx, in[i], &n), loss = NAN;

    data[at] += by;
    for (int d = 0; d < co_value_ndim(ctx, in[i]); ++d)
        dims[d] = co_value_dim(ctx, in[i], d);
    CO_BLOCK(ctx) {
        for (int k = 0; k < num_in; ++k)
            moved[k] = in[k];
        moved[i] = co_tensor(ctx, CO_FLOAT64, dims, co_value_ndim(ctx, in[i]), data);
        loss = co_item_float(ctx, kernel_loss(ctx, fn, moved));
    }
    free(data);
    return loss;
}

/* Whether the gradients of fn for its first num_checked inputs (float64) agree with central
 * differences. */
KERNEL_UNUSED static bool
kernel_check_gradients(co_context *ctx, kernel_fn fn, co_value *const *in, int num_in,
                       const int *checked, int num_checked)
{
    const double step = 1e-5;
    bool         agree = true;

    for (int c = 0; c < num_checked; ++c) {
        int       i = checked[c];
        co_value *grad = kernel_gradient(ctx, fn, in, i);
        int64_t   n;
        double   *got;

        if (!CO_EXPECT_OK(ctx) || !CO_EXPECT_NOT_NULL(grad))
            return false;
        got = kernel_read(ctx, co_to_tensor(ctx, grad, CO_DTYPE_NONE), &n);
        CO_EXPECT_INT(n, co_value_num_elements(ctx, in[i]));
        for (int64_t at = 0; at < n; ++at) {
            double up = kernel_loss_at(ctx, fn, in, num_in, i, at, step);
            double down = kernel_loss_at(ctx, fn, in, num_in, i, at, -step);
            double want = (up - down) / (2 * step);

            if (!(fabs(got[at] - want) <= 1e-7 * (1 + fabs(want)))) {
                agree = CO_EXPECT_CLOSE(got[at], want, 1e-7 * (1 + fabs(want)));
                break;
            }
        }
        free(got);
    }
    return agree;
}

/* The bytes of what `make` computes are the same with 1, 2 and 3 threads. */
KERNEL_UNUSED static void
kernel_check_threads(kernel_fn make)
{
    static const char *const settings[] = { "threads=1", "threads=2", "threads=3" };
    void                    *first = NULL;
    size_t                   nbytes = 0;

    for (int i = 0; i < 3; ++i) {
        co_context *ctx = co_open(settings[i]);
        co_value   *result = make(ctx, NULL);
        size_t      n = (size_t)co_value_num_elements(ctx, result) *
                   co_dtype_size(co_value_dtype(ctx, result));

        CO_EXPECT_OK(ctx);
        CO_EXPECT_TRUE(n > 0);
        if (i == 0) {
            nbytes = n;
            first = malloc(n);
            memcpy(first, co_value_data(ctx, result), n);
        } else {
            CO_EXPECT_INT(n, nbytes);
            CO_EXPECT_TRUE(memcmp(first, co_value_data(ctx, result), n) == 0);
        }
        co_close(ctx);
    }
    free(first);
}

#endif

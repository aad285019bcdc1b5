/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the results of two kernels for the same inputs are close.
 *
 * Integers, bools and shapes are the same. Real numbers: an element-wise kernel is within 4 units
 * of the last place of the right number, so two are within 8; sums in another order differ by at
 * most as many roundings as there are terms, of the size of the largest partial sum, which inputs
 * and results bound. Programs have at most MAX_ELEMENTS terms in a sum. So numbers may be ROUNDINGS
 * roundings of the largest element of inputs and results apart. Where that is large (inputs above
 * LARGE: squares and exponentials of them are then of any size), and in gradients and products of
 * many where a number is not finite, only dtype and shape are compared.
 */
#ifndef COHORT_FUZZ_OPS_CLOSE_H
#define COHORT_FUZZ_OPS_CLOSE_H

#include "fuzz.h"

#include <math.h>

#define ROUNDINGS 4096
#define LARGE     16.0

typedef struct closeness {
    co_context *fast, *plain;
    double      size; /* of the largest number that the results are made of */
    bool        is_gradient;
    bool overflows; /* partial results may, in one order and not in the other: what is not finite
                       may be anything */
} closeness;

static double
larger(double a, double b)
{
    return isnan(a) || isnan(b) ? (double)INFINITY : a > b ? a : b;
}

/* The size of the largest element, infinite if one is not a number. */
static double
largest(co_context *ctx, co_value *x)
{
    int64_t n = co_value_num_elements(ctx, x);
    double *data = malloc(((size_t)n + 1) * sizeof(*data)), most = 0;

    co_value_copy_data(ctx, x, CO_FLOAT64, data, n);
    for (int64_t i = 0; i < n; ++i)
        most = larger(most, fabs(data[i]));
    free(data);
    return most;
}

static void
require_same_shape(co_context *a, co_value *x, co_context *b, co_value *y)
{
    FUZZ_REQUIRE(co_value_dtype(a, x) == co_value_dtype(b, y));
    FUZZ_REQUIRE(co_value_ndim(a, x) == co_value_ndim(b, y));
    for (int d = 0; d < co_value_ndim(a, x); ++d)
        FUZZ_REQUIRE(co_value_dim(a, x, d) == co_value_dim(b, y, d));
}

/* Half the distance of 1 and the next number. */
static double
rounding(co_dtype dtype)
{
    static const double of[CO_NUM_DTYPES] = { [CO_FLOAT16] = 0x1p-11,
                                              [CO_BFLOAT16] = 0x1p-8,
                                              [CO_FLOAT32] = 0x1p-24,
                                              [CO_FLOAT64] = 0x1p-53 };

    return of[dtype];
}

/* Element i of one is close to that of the other. */
static bool
is_close(const closeness *how, double a, double b, double limit)
{
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= limit)
        return true;
    return how->overflows && !(isfinite(a) && isfinite(b));
}

/* Says so where they are not. */
static bool
are_close(const closeness *how, co_value *x, co_value *y)
{
    co_dtype dtype = co_value_dtype(how->fast, x);
    int64_t  n = co_value_num_elements(how->fast, x), i;
    double  *a, *b, size = larger(1, how->size), limit;

    require_same_shape(how->fast, x, how->plain, y);
    if (!co_dtype_is_floating(dtype))
        return memcmp(co_value_data(how->fast, x), co_value_data(how->plain, y),
                      (size_t)n * co_dtype_size(dtype)) == 0;
    if (size > LARGE)
        return true;
    a = malloc(((size_t)n + 1) * sizeof(*a));
    b = malloc(((size_t)n + 1) * sizeof(*b));
    co_value_copy_data(how->fast, x, CO_FLOAT64, a, n);
    co_value_copy_data(how->plain, y, CO_FLOAT64, b, n);
    for (i = 0; i < n; ++i)
        if (isfinite(a[i]) && isfinite(b[i]))
            size = larger(size, larger(fabs(a[i]), fabs(b[i])));
    /* Halves are computed in float32 and rounded once for each operator that the table's is made
     * of. */
    limit = rounding(dtype) * size * (rounding(dtype) > 0x1p-20 ? 64 : ROUNDINGS);
    for (i = 0; i < n && is_close(how, a[i], b[i], limit);)
        ++i;
    if (i < n)
        fprintf(stderr, "%selement %lld is %.17g, by the reference %.17g; at most %g apart\n",
                how->is_gradient ? "gradient, " : "", (long long)i, a[i], b[i], limit);
    free(a);
    free(b);
    return i == n;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm with kernels of its own: against the plain ones, against double, against the
 * composition, extremes, no memory. */
#include "context/context.h"
#include "hooks.h"
#include "kernel_support.h"

#include <float.h>

static int    num_axes, wanted;
static double epsilon = 1e-5;

static co_value *
layer_norm(co_context *ctx, co_value *const *in)
{
    static const int last[] = { -1, -2, -3 };

    return co_layer_norm(ctx, in[0], in[1], in[2],
                         &(co_layer_norm_options){ sizeof(co_layer_norm_options), last,
                                                   (size_t)num_axes, epsilon });
}

/* The gradient of the input that `wanted` says. */
static co_value *
gradient(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, layer_norm, in, wanted);
}

/* x of rows x dim, plus `offset`, and gamma and beta of dim. */
static void
make_inputs(co_context *ctx, co_dtype dtype, int64_t rows, int64_t dim, double offset,
            co_value **in)
{
    in[0] = kernel_tensor(ctx, dtype, (int64_t[]){ rows, dim }, 2, 3);
    in[0] = co_add(ctx, in[0], co_float(ctx, offset));
    in[1] = kernel_tensor(ctx, dtype, &dim, 1, 4);
    in[2] = kernel_tensor(ctx, dtype, &dim, 1, 5);
}

static void
expect_reference(co_context *ctx, co_value *const *in, double limit)
{
    CO_EXPECT_LESS(
        kernel_difference(ctx, layer_norm(ctx, in), kernel_reference(ctx, layer_norm, in)), limit);
    for (wanted = 0; wanted < 3; ++wanted)
        CO_EXPECT_LESS(
            kernel_difference(ctx, gradient(ctx, in), kernel_reference(ctx, gradient, in)), limit);
}

CO_TEST(layer_norm_agrees_with_the_plain_kernel, "")
{
    static const int64_t dims[] = { 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 128, 1000, 1025, 20001 };

    num_axes = 1;
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); ++i)
        for (int64_t rows = 1; rows < 200; rows = rows * 6 + 1)
            CO_BLOCK(ctx) {
                co_value *in[3];

                make_inputs(ctx, CO_FLOAT32, rows, dims[i], 0, in);
                expect_reference(ctx, in, 2e-6);
                make_inputs(ctx, CO_FLOAT64, rows, dims[i], 0, in);
                expect_reference(ctx, in, 1e-13);
            }
}

CO_TEST(layer_norm_of_halves_rounds_once, "")
{
    static const co_dtype dtypes[] = { CO_FLOAT16, CO_BFLOAT16 };
    static const double   units[] = { 1e-3, 8e-3 };

    num_axes = 1;
    for (int i = 0; i < 2; ++i) {
        co_value *in[3];

        make_inputs(ctx, dtypes[i], 300, 37, 0, in);
        expect_reference(ctx, in, units[i]);
        CO_EXPECT_INT(co_value_dtype(ctx, layer_norm(ctx, in)), dtypes[i]);
    }
}

/* How far results are from those of double: units in the last place of the result, or of `least`
 * where it is smaller. */
static double
units_from_double(co_context *ctx, kernel_fn fn, co_value *const *in, double least)
{
    co_value *wide[3];
    int64_t   n;
    double   *got, *want, worst = 0;

    for (int i = 0; i < 3; ++i)
        wide[i] = co_cast(ctx, in[i], CO_FLOAT64);
    got = kernel_read(ctx, fn(ctx, in), &n);
    want = kernel_read(ctx, fn(ctx, wide), &n);
    for (int64_t i = 0; i < n; ++i) {
        int exponent;

        frexp(fmax(least, fabs(want[i])), &exponent);
        worst = fmax(worst, fabs(got[i] - want[i]) / ldexp(1, exponent - FLT_MANT_DIG));
        worst = isfinite(got[i]) ? worst : INFINITY;
    }
    free(got);
    free(want);
    return worst;
}

/* With an offset, a mean that is only rounded would cost a thousand units. */
CO_TEST(layer_norm_is_exact_to_a_few_units, "")
{
    static const double offsets[] = { 0, 1, -30, 1000 };

    num_axes = 1;
    for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); ++o)
        for (int64_t dim = 5; dim < 5000; dim = dim * 3 + 1) {
            co_value *in[3];

            make_inputs(ctx, CO_FLOAT32, 50, dim, offsets[o], in);
            in[1] = co_ones_like(ctx, in[1]);
            in[2] = co_zeros_like(ctx, in[2]);
            CO_EXPECT_LESS(units_from_double(ctx, layer_norm, in, 1), 4);
        }
}

/* Squares of these numbers, or their mean, are no floats any more. */
CO_TEST(layer_norm_does_without_epsilon_however_small_the_numbers, "")
{
    static const double sizes[] = { 1e-16, 1e-19, 1e-22, 1e-25, 1e-30, 1e18, 1e20, 1e30 };
    static float        one[64];
    co_value           *in[3];

    num_axes = 1;
    wanted = 0;
    epsilon = 0;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); ++s)
        for (int64_t dim = 7; dim < 3000; dim = dim * 4 + 1) {
            make_inputs(ctx, CO_FLOAT32, 30, dim, 0, in);
            in[0] = co_mul(ctx, in[0], co_float(ctx, sizes[s]));
            CO_EXPECT_LESS(units_from_double(ctx, layer_norm, in, 1), 8);
            CO_EXPECT_LESS(units_from_double(ctx, gradient, in, 1 / sizes[s]), 64);
        }
    make_inputs(ctx, CO_FLOAT32, 1, 64, 0, in);
    one[0] = 1e-22f; /* 63 / sqrt(63) */
    in[0] = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 64), one);
    in[0] = co_layer_norm(ctx, in[0], co_ones_like(ctx, in[1]), co_zeros_like(ctx, in[1]),
                          &(co_layer_norm_options){ sizeof(co_layer_norm_options), CO_AXES(-1),
                                                    0 });
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, in[0]))[0], 7.937254, 1e-5);
    epsilon = 1e-5;
}

/* However large it is, what is the same everywhere is beta: the mean is what it was, or what it
 * lost is put back first. */
CO_TEST(layer_norm_of_equal_numbers_is_beta, "")
{
    num_axes = 1;
    for (double offset = 1; offset < 1e20; offset *= 1e3)
        for (int64_t dim = 700; dim < 1100; dim += 37) {
            co_value    *in[3], *x;
            const float *y;
            float        worst = 0;

            make_inputs(ctx, CO_FLOAT32, 3, dim, 0, in);
            x = co_fill(ctx, CO_SHAPE(3, dim), co_scalar_float(ctx, (float)(offset * 1.2345678)));
            y = co_value_data(ctx, co_layer_norm(ctx, x, co_ones_like(ctx, in[1]),
                                                 co_zeros_like(ctx, in[2]), NULL));
            for (int64_t i = 0; i < 3 * dim; ++i)
                worst = fmaxf(worst, fabsf(y[i]));
            CO_EXPECT_CLOSE((double)worst, 0, 0);
        }
}

/* So nothing flows to gamma. */
CO_TEST(layer_norm_of_equal_numbers_has_no_gradient_for_gamma, "")
{
    static const int64_t  dims[] = { 1, 2, 3, 7, 10, 33, 100, 129, 1000, 1025, 5000 };
    static const float    numbers[] = { 0.1F, 3.3F, -7.7F, 1000.1F, 1e-3F };
    static const co_dtype dtypes[] = { CO_FLOAT32, CO_FLOAT64, CO_FLOAT16, CO_BFLOAT16 };

    num_axes = 1;
    wanted = 1;
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); ++d)
        for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); ++i)
            for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); ++k)
                CO_BLOCK(ctx) {
                    co_value *in[3], *grad;

                    make_inputs(ctx, dtypes[d], 4, dims[i], 0, in);
                    in[0] = co_fill(ctx, CO_SHAPE(4, dims[i]), co_scalar_float(ctx, numbers[k]));
                    in[0] = co_cast(ctx, in[0], dtypes[d]);
                    grad = co_cast(ctx, co_abs(ctx, gradient(ctx, in)), CO_FLOAT64);
                    CO_EXPECT_CLOSE(
                        co_item_float(ctx, co_reduce_max(ctx, grad, CO_ALL_AXES, false)), 0, 0);
                }
}

/* gamma in the shape of x is no row, so the same numbers go through the composition. */
CO_TEST(layer_norm_agrees_with_the_composition, "")
{
    static const int64_t dims[] = { 2, 3, 4, 5 };

    for (num_axes = 1; num_axes <= 3; ++num_axes) {
        const int64_t *shape = dims + 4 - num_axes;
        co_value      *in[3], *spread[3];

        in[0] = spread[0] = kernel_tensor(ctx, CO_FLOAT32, dims, 4, 1);
        for (int i = 1; i < 3; ++i) {
            in[i] = kernel_tensor(ctx, CO_FLOAT32, shape, num_axes, (uint64_t)i + 1);
            spread[i] = co_broadcast_to(ctx, in[i], dims, 4);
        }
        in[2] = co_expand_dims(ctx, in[2], 0); /* dimensions of 1 in front are as good */
        CO_EXPECT_LESS(kernel_difference(ctx, layer_norm(ctx, in), layer_norm(ctx, spread)), 1e-6);
        wanted = 0;
        CO_EXPECT_LESS(kernel_difference(ctx, gradient(ctx, in), gradient(ctx, spread)), 1e-6);
        for (wanted = 1; wanted < 3; ++wanted) {
            co_value *sum = gradient(ctx, in), *parts = gradient(ctx, spread);

            CO_EXPECT_INT(co_value_ndim(ctx, sum), co_value_ndim(ctx, in[wanted]));
            for (int d = num_axes; d < 4; ++d)
                parts = co_reduce_sum(ctx, parts, CO_AXES(0), false);
            CO_EXPECT_LESS(kernel_difference(ctx, sum, parts), 1e-6);
        }
    }
}

/* A gradient that may be differentiated again is made of other operators; its numbers are the
 * same. */
CO_TEST(layer_norm_on_a_persistent_tape_has_the_same_gradients, "")
{
    co_value *in[3], *y, *grads;

    num_axes = 1;
    make_inputs(ctx, CO_FLOAT32, 9, 40, 0, in);
    co_tape_begin_persistent(ctx);
    co_watch(ctx, co_tuple(ctx, in, 3));
    y = kernel_loss(ctx, layer_norm, in);
    grads = co_gradient(ctx, y, co_tuple(ctx, in, 3));
    co_tape_end(ctx);
    for (wanted = 0; wanted < 3; ++wanted)
        CO_EXPECT_LESS(kernel_difference(ctx, co_at(ctx, grads, (size_t)wanted), gradient(ctx, in)),
                       2e-6);
}

CO_TEST(layer_norm_of_nothing_is_nothing, "")
{
    for (int empty = 0; empty < 2; ++empty) {
        int64_t   rows = empty == 0 ? 0 : 3, dim = empty == 0 ? 3 : 0;
        co_value *in[3];

        num_axes = 1;
        make_inputs(ctx, CO_FLOAT32, rows, dim, 0, in);
        CO_EXPECT_INT(co_value_num_elements(ctx, layer_norm(ctx, in)), 0);
        for (wanted = 0; wanted < 3; ++wanted) {
            co_value *g = gradient(ctx, in);

            CO_EXPECT_INT(co_value_num_elements(ctx, g), wanted == 0 ? 0 : dim);
            for (int64_t i = 0; wanted > 0 && i < dim; ++i)
                CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, g))[i], 0, 0);
        }
    }
}

CO_TEST(layer_norm_keeps_nan_in_its_row, "")
{
    float     x[4][3] = { { 1, 2, 3 }, { NAN, 1, 2 }, { INFINITY, 0, 0 }, { 5, 5, 5 } };
    co_value *in[3] = { co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4, 3), x),
                        co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)),
                        co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3)) };
    int64_t   n;
    double   *y;

    num_axes = 1;
    y = kernel_read(ctx, layer_norm(ctx, in), &n);
    CO_EXPECT_CLOSE(y[0] + y[2], 0, 1e-6);
    for (int i = 3; i < 9; ++i)
        CO_EXPECT_TRUE(isnan(y[i]));
    for (int i = 9; i < 12; ++i) /* no deviation at all */
        CO_EXPECT_CLOSE(y[i], 0, 0);
    free(y);
}

static bool
normalise_once(co_context *ctx)
{
    co_value *in[3];

    num_axes = 1;
    wanted = 1;
    make_inputs(ctx, CO_FLOAT32, 300, 100, 0, in);
    return gradient(ctx, in) != NULL;
}

CO_TEST_BARE(layer_norm_survives_no_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, normalise_once);
}

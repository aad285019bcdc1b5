/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comparing random cases with TensorFlow (scripts/against-tensorflow) found: each case is as
 * small as it can be, and its expectation is what TensorFlow 2.21 gave.
 */
#include "test.h"

#include "context/context.h"

#include <float.h>

static co_value *
vector(co_context *ctx, const float *x, int64_t n)
{
    return co_tensor(ctx, CO_FLOAT32, &n, 1, x);
}

/* The gradient of fn at x, `up` flowing in. */
static const float *
gradient(co_context *ctx, co_value *(*fn)(co_context *ctx, co_value *x), co_value *x, co_value *up)
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;

    options.output_gradients = up;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    return co_value_data(ctx, co_gradient_with(ctx, fn(ctx, x), x, &options));
}

CO_TEST(roots_and_reciprocals_that_nothing_flows_into_have_no_gradient, "")
{
    static const float x[] = { 0, -4, 4, 0 }, up[] = { 0, 0, 1, 1 };
    const float       *g = gradient(ctx, co_sqrt, vector(ctx, x, 4), vector(ctx, up, 4));

    for (int i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(g[i], 0, 0);
    CO_EXPECT_CLOSE(g[2], 0.25, 0);
    CO_EXPECT_CLOSE(g[3], INFINITY, 0);
    g = gradient(ctx, co_rsqrt, vector(ctx, x, 4), vector(ctx, up, 4));
    for (int i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(g[i], 0, 0);
    CO_EXPECT_CLOSE(g[2], -0.0625, 0);
    CO_EXPECT_CLOSE(g[3], -INFINITY, 0);
    g = gradient(ctx, co_reciprocal, vector(ctx, x, 4), vector(ctx, up, 4));
    for (int i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(g[i], 0, 0);
    CO_EXPECT_CLOSE(g[2], -0.0625, 0);
    CO_EXPECT_CLOSE(g[3], -INFINITY, 0);
}

static co_value *
norm(co_context *ctx, co_value *x)
{
    return co_reduce_euclidean_norm(ctx, x, CO_ALL_AXES, false);
}

static co_value *
norm_of_rows(co_context *ctx, co_value *x)
{
    return co_reduce_euclidean_norm(ctx, co_reshape(ctx, x, CO_SHAPE(2, 2)), CO_AXES(1), false);
}

static co_value *
norm_of_all(co_context *ctx, co_value *x)
{
    return co_global_norm(ctx, co_args(ctx, x));
}

/* The squares overflow, their derivatives need not. */
CO_TEST(norms_of_large_numbers_have_finite_gradients, "")
{
    static const float x[] = { FLT_MAX, 1, 3, 4 };
    const float       *g;

    g = gradient(ctx, norm, vector(ctx, x, 4), co_scalar_float(ctx, 2));
    for (int i = 0; i < 4; ++i)
        CO_EXPECT_CLOSE(g[i], 0, 0);
    g = gradient(ctx, norm_of_all, vector(ctx, x, 4), co_scalar_float(ctx, 2));
    for (int i = 0; i < 4; ++i)
        CO_EXPECT_CLOSE(g[i], 0, 0);
    g = gradient(ctx, norm_of_rows, vector(ctx, x, 4),
                 co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), ((float[]){ 2, 10 })));
    CO_EXPECT_CLOSE(g[0], 0, 0);
    CO_EXPECT_CLOSE(g[2], 6, 1e-6);
    CO_EXPECT_CLOSE(g[3], 8, 1e-6);
    g = gradient(ctx, co_l2_loss, vector(ctx, x, 4), co_scalar_float(ctx, 0.5));
    CO_EXPECT_CLOSE(g[0], FLT_MAX / 2, 0);
    CO_EXPECT_CLOSE(g[3], 2, 0);
    CO_EXPECT_OK(ctx);
}

/* What is compared with the reference kernels too. */
static void
expect_both(co_context *ctx, co_value *(*fn)(co_context *ctx, co_value *x), co_value *x,
            const void *expected, size_t nbytes)
{
    for (int i = 0; i < 2; ++i) {
        coi_use_reference(ctx, i == 1);
        CO_EXPECT_BYTES(co_value_data(ctx, fn(ctx, x)), expected, nbytes);
    }
    coi_use_reference(ctx, false);
}

CO_TEST(integers_are_round_and_can_be_cut, "")
{
    static const int8_t   small[] = { -128, -3, 0, 5, 6, 7, 127 };
    static const int8_t   cut[] = { 0, 0, 0, 5, 6, 6, 6 };
    static const int64_t  wide[] = { INT64_MIN, 3, INT64_MAX }, wide_cut[] = { 0, 3, 6 };
    static const uint64_t large[] = { 2, UINT64_MAX }, large_cut[] = { 2, 6 };
    co_value             *x = co_tensor(ctx, CO_INT8, CO_SHAPE(7), small);
    co_value             *y = co_tensor(ctx, CO_INT64, CO_SHAPE(3), wide);
    co_value             *z = co_tensor(ctx, CO_UINT64, CO_SHAPE(2), large);

    expect_both(ctx, co_relu6, x, cut, sizeof(cut));
    expect_both(ctx, co_relu6, y, wide_cut, sizeof(wide_cut));
    expect_both(ctx, co_relu6, z, large_cut, sizeof(large_cut));
    expect_both(ctx, co_round, x, small, sizeof(small));
    expect_both(ctx, co_round, y, wide, sizeof(wide));
    expect_both(ctx, co_round, z, large, sizeof(large));
    CO_EXPECT_OK(ctx);
}

static co_value *
sum_of_one(co_context *ctx, co_value *x)
{
    return co_reduce_sum(ctx, x, CO_AXES(1), false);
}

static co_value *
mean_of_one(co_context *ctx, co_value *x)
{
    return co_reduce_mean(ctx, x, CO_AXES(1), false);
}

CO_TEST(the_sum_of_one_element_has_its_sign, "")
{
    static const float x[] = { -0.0f, 0 };
    co_value          *t = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 1), x);

    expect_both(ctx, sum_of_one, t, x, sizeof(x));
    expect_both(ctx, mean_of_one, t, x, sizeof(x));
}

CO_TEST(a_zero_divides_nothing_without_an_error, "GEN-ERR-4")
{
    static const int32_t y[] = { 0, 2, -1 };
    co_value            *none = co_zeros(ctx, CO_INT32, CO_SHAPE(0, 3));
    co_value            *q = co_tensor(ctx, CO_INT32, CO_SHAPE(3), y);

    CO_EXPECT_INT(co_value_num_elements(ctx, co_floordiv(ctx, none, q)), 0);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_mod(ctx, none, q)), 0);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_pow(ctx, none, q)), 0);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_mod(ctx, co_ones(ctx, CO_INT32, CO_SHAPE(3)), q));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 0 of y is 0");
}

CO_TEST(texts_are_chosen, "")
{
    static const uint8_t     cond[] = { 1, 0 };
    static const char *const x[] = { "a", "bb" }, *const y[] = { "a longer text" };
    co_value *c = co_tensor(ctx, CO_BOOL, CO_SHAPE(2), cond);

    for (int i = 0; i < 2; ++i) {
        co_value *chosen;

        coi_use_reference(ctx, i == 1);
        chosen = co_where(ctx, c, co_tensor(ctx, CO_STRING, CO_SHAPE(2), x),
                          co_tensor(ctx, CO_STRING, CO_SHAPE(1), y));
        CO_EXPECT_STR(co_string_at(ctx, chosen, 0, NULL), "a");
        CO_EXPECT_STR(co_string_at(ctx, chosen, 1, NULL), "a longer text");
    }
    coi_use_reference(ctx, false);
    CO_EXPECT_NULL(co_where(ctx, c, co_tensor(ctx, CO_STRING, CO_SHAPE(2), x), c));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "x has dtype string and y bool");
}

CO_TEST(the_largest_can_have_a_short_index, "GEN-ERR-4")
{
    static const float    x[] = { 1, 3, 2, 9, 0, 9 };
    static const uint16_t expected[] = { 1, 0 };
    co_value             *t = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 3), x), *at;

    for (int i = 0; i < 4; ++i) {
        coi_use_reference(ctx, i % 2 == 1);
        at = co_argmax(ctx, t, 1, i < 2 ? CO_INT16 : CO_UINT16);
        CO_EXPECT_INT(co_value_dtype(ctx, at), i < 2 ? CO_INT16 : CO_UINT16);
        CO_EXPECT_BYTES(co_value_data(ctx, at), expected, sizeof(expected));
    }
    coi_use_reference(ctx, false);
    CO_EXPECT_NULL(co_argmax(ctx, t, 1, CO_FLOAT32));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int64, int32, int16 or uint16");
    CO_EXPECT_NULL(co_argmin(ctx, t, 1, CO_INT16));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "output_type is int16; it must be int64 or int32");
}

static co_value *
entropy(co_context *ctx, co_value *labels, co_value *logits, int axis)
{
    return co_softmax_cross_entropy(ctx, labels, logits, axis);
}

CO_TEST(labels_of_any_dtype_are_probabilities, "GEN-ERR-4")
{
    static const float  x[] = { 1, 2, 0, 3 };
    static const int8_t hot[] = { 0, 1, 1, 0 };
    co_value           *logits = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), x);
    co_value           *labels = co_tensor(ctx, CO_INT8, CO_SHAPE(2, 2), hot);
    co_value           *same = co_cast(ctx, labels, CO_FLOAT32);

    for (int axis = 0; axis < 2; ++axis) {
        const float *expected = co_value_data(ctx, entropy(ctx, same, logits, axis));

        CO_EXPECT_BYTES(co_value_data(ctx, entropy(ctx, labels, logits, axis)), expected, 8);
        CO_EXPECT_BYTES(co_value_data(ctx,
                                      entropy(ctx, co_cast(ctx, labels, CO_BOOL), logits, axis)),
                        expected, 8);
        CO_EXPECT_BYTES(co_value_data(ctx,
                                      entropy(ctx, co_cast(ctx, labels, CO_FLOAT64), logits, axis)),
                        expected, 8);
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(entropy(ctx, same, labels, -1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "logits has dtype int8");
}

/* Halves far apart have a loss that fits although their distance does not; the gradient of labels
 * has their dtype. */
CO_TEST(cross_entropy_of_distant_halves_fits, "")
{
    static const float x[] = { 60000, -60000 }, p[] = { 0.5, 0.5 };

    for (int axis = 0; axis < 2; ++axis) {
        const int64_t dims[2] = { axis == 0 ? 2 : 1, axis == 0 ? 1 : 2 };
        co_value *logits = co_cast(ctx, co_tensor(ctx, CO_FLOAT32, dims, 2, x), CO_FLOAT16), *y, *g;
        co_value *labels = co_cast(ctx, co_tensor(ctx, CO_FLOAT32, dims, 2, p), CO_FLOAT64);

        co_tape_begin(ctx);
        co_watch(ctx, labels);
        y = entropy(ctx, labels, logits, axis);
        g = co_gradient(ctx, y, labels);
        CO_EXPECT_INT(co_value_dtype(ctx, y), CO_FLOAT16);
        CO_EXPECT_CLOSE(*(const float *)co_value_data(ctx, co_cast(ctx, y, CO_FLOAT32)), 60000, 32);
        CO_EXPECT_INT(co_value_dtype(ctx, g), CO_FLOAT64);
        CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, g))[0], 0, 0);
        CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, g))[1], 120000, 100);
    }
    CO_EXPECT_OK(ctx);
}

/* The loss of one class is 0, never -0. */
CO_TEST(cross_entropy_of_one_class_is_zero, "")
{
    static const float zero = 0;
    co_value          *one = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 1));

    CO_EXPECT_BYTES(co_value_data(ctx, entropy(ctx, one, one, 0)), &zero, 4);
    CO_EXPECT_BYTES(co_value_data(ctx, entropy(ctx, one, one, 1)), &zero, 4);
}

/* TensorFlow gives the second pair to SparseMatMul, but only of two dimensions and against its
 * documentation; here no pair is special. */
CO_TEST(factors_of_a_product_have_one_dtype, "GEN-ERR-4")
{
    static const co_dtype others[] = { CO_FLOAT64, CO_BFLOAT16, CO_FLOAT16, CO_INT32 };
    co_value             *a = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3));

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
        co_value *b = co_ones(ctx, others[i], CO_SHAPE(3, 2));

        CO_EXPECT_NULL(co_matmul(ctx, a, b));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "they must be the same");
        CO_EXPECT_NULL(co_matmul(ctx, b, a));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "they must be the same");
    }
}

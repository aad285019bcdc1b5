/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composite operators: gradients of two orders against differences, the kernels among
 * their parts against the plain ones, threads, operands that are no tensors, and what they refuse.
 */
#include "kernel_support.h"
#include "ops_support.h"

#include "context/context.h"

static co_value *
fixed(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    return kernel_tensor(ctx, dtype, dims, ndim, 77);
}

static co_value *
indices(co_context *ctx, const int64_t *dims, int ndim)
{
    static const int32_t at[] = { 1, 0, 1, 1, 0, 1, 0, 0 };

    return co_tensor(ctx, CO_INT32, dims, ndim, at);
}

#define ONE(name, expression)                                                                      \
    static co_value *name(co_context *ctx, co_value *const *in)                                    \
    {                                                                                              \
        co_value *x = in[0];                                                                       \
                                                                                                   \
        return expression;                                                                         \
    }
#define TWO(name, expression)                                                                      \
    static co_value *name(co_context *ctx, co_value *const *in)                                    \
    {                                                                                              \
        co_value *x = in[0], *y = in[1];                                                           \
                                                                                                   \
        return expression;                                                                         \
    }
#define SQUARE(v) co_square(ctx, v)
#define DIMS(...)                                                                                  \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Of x [3, 4]. */
ONE(f_min, co_reduce_min(ctx, x, CO_AXES(1), false))
ONE(f_prod, co_reduce_prod(ctx, x, CO_AXES(0), false))
ONE(f_prod_all, co_reduce_prod(ctx, x, CO_ALL_AXES, true))
ONE(f_logsumexp, co_reduce_logsumexp(ctx, x, CO_AXES(-1), false))
ONE(f_variance, co_reduce_variance(ctx, x, CO_AXES(0), true))
ONE(f_std, co_reduce_std(ctx, x, CO_ALL_AXES, false))
ONE(f_norm, co_reduce_euclidean_norm(ctx, x, CO_AXES(1), false))
ONE(f_mean_of_moments, co_at(ctx, co_moments(ctx, x, CO_AXES(0), false), 0))
ONE(f_variance_of_moments, co_at(ctx, co_moments(ctx, x, CO_AXES(0), false), 1))
ONE(f_cumsum, SQUARE(co_cumsum(ctx, x, 1, true, false)))
ONE(f_cumprod, co_cumprod(ctx, x, 0, false, true))
ONE(f_cumprod_exclusive, co_cumprod(ctx, x, -1, true, false))
ONE(f_top_k, SQUARE(co_at(ctx, co_top_k(ctx, x, 3), 0)))
ONE(f_sort, SQUARE(co_sort(ctx, x, 0, false)))
ONE(f_sort_down, SQUARE(co_sort(ctx, x, 1, true)))
ONE(f_log_softmax, SQUARE(co_log_softmax(ctx, x, 0)))
ONE(f_l2_loss, co_l2_loss(ctx, x))
ONE(f_l2_normalize, co_l2_normalize(ctx, x, CO_AXES(1), 1e-12))
ONE(f_clip, SQUARE(co_clip_by_value(ctx, x, -0.4, 0.6)))
ONE(f_clip_by_norm, co_clip_by_norm(ctx, x, CO_AXES(1), 0.5))
ONE(f_squeeze, SQUARE(co_squeeze(ctx, co_expand_dims(ctx, x, 1), CO_ALL_AXES)))
ONE(f_unstack, SQUARE(co_at(ctx, co_unstack(ctx, x, 1), 2)))
ONE(f_split, SQUARE(co_at(ctx, co_split(ctx, x, 2, -1), 1)))
ONE(f_split_sizes, SQUARE(co_at(ctx, co_split_sizes(ctx, x, DIMS(1, -1), 2, 0), 1)))
ONE(f_strided, SQUARE(co_strided_slice(ctx, x, DIMS(-1, 0), DIMS(0, 4), DIMS(-1, 2), 2, NULL)))
ONE(f_reverse, SQUARE(co_reverse(ctx, x, CO_AXES(0, 1))))
ONE(f_roll, SQUARE(co_roll(ctx, x, DIMS(1, -2), (const int[]){ 0, 1 }, 2)))
ONE(f_tile, SQUARE(co_tile(ctx, x, DIMS(2, 3), 2)))
ONE(f_pad, SQUARE(co_pad(ctx, x, DIMS(1, 0, 0, 2), 4, CO_PAD_CONSTANT, 1.5)))
ONE(f_reflect, SQUARE(co_pad(ctx, x, DIMS(2, 0, 1, 2), 4, CO_PAD_REFLECT, 0)))
ONE(f_symmetric, SQUARE(co_pad(ctx, x, DIMS(3, 1, 0, 4), 4, CO_PAD_SYMMETRIC, 0)))
ONE(f_band, SQUARE(co_band_part(ctx, x, 1, 0)))
ONE(f_gather_nd, SQUARE(co_gather_nd(ctx, x, indices(ctx, DIMS(3, 2), 2))))
ONE(f_gather_nd_rows, SQUARE(co_gather_nd(ctx, x, indices(ctx, DIMS(2, 2, 1), 3))))
ONE(f_scatter_nd, SQUARE(co_scatter_nd(ctx, indices(ctx, DIMS(3, 1), 2), x, DIMS(2, 4), 2)))
ONE(f_segments, SQUARE(co_unsorted_segment_sum(ctx, x, indices(ctx, DIMS(3), 1), 2)))
ONE(f_lookup, SQUARE(co_embedding_lookup(ctx, x, indices(ctx, DIMS(4), 1))))
ONE(f_diagonal,
    SQUARE(co_einsum(ctx, "ii->i", co_args(ctx, co_matmul_transposed(ctx, x, x, false, true)))))
ONE(f_einsum_sum, SQUARE(co_einsum(ctx, "ij->j", co_args(ctx, x))))
ONE(f_zero_gradient,
    co_add(ctx, SQUARE(x), co_mul(ctx, co_zeros_like(ctx, x), co_ones_like(ctx, x))))

/* Of x [3, 4] and y [3, 4]. */
TWO(f_where,
    SQUARE(co_where(ctx, co_greater(ctx, fixed(ctx, CO_FLOAT64, DIMS(3, 4), 2), co_int(ctx, 0)), x,
                    y)))
TWO(f_add_n, SQUARE(co_add_n(ctx, co_args(ctx, x, y, x))))
TWO(f_stack, SQUARE(co_stack(ctx, co_args(ctx, x, y), -1)))
TWO(f_softmax_ce, co_softmax_cross_entropy(ctx, co_softmax(ctx, x, -1), y, -1))
TWO(f_sigmoid_ce, co_sigmoid_cross_entropy(ctx, x, y))
TWO(f_mse, co_mse(ctx, x, y))
TWO(f_global_norm, co_global_norm(ctx, co_args(ctx, x, y)))
TWO(f_clip_global, co_at(ctx, co_clip_by_global_norm(ctx, co_args(ctx, x, y), 0.5), 1))
TWO(f_scatter_add, SQUARE(co_tensor_scatter_nd_add(ctx, x, indices(ctx, DIMS(3, 1), 2), y)))
TWO(f_scatter_update,
    SQUARE(co_tensor_scatter_nd_update(
        ctx, x, co_tensor(ctx, CO_INT32, CO_SHAPE(3, 1), ((const int32_t[]){ 2, 0, 1 })), y)))
TWO(f_einsum, co_einsum(ctx, "ij,kj->ik", co_args(ctx, x, y)))
TWO(f_einsum_three, co_einsum(ctx, "ij,kj,il->lk", co_args(ctx, x, y, x)))
TWO(f_einsum_ellipsis, co_einsum(ctx, "...j,...j->...", co_args(ctx, x, y)))
TWO(f_matvec,
    co_matvec(ctx, x, co_squeeze(ctx, co_slice(ctx, y, DIMS(1, 0), DIMS(1, 4), 2), CO_AXES(0)),
              false))
TWO(f_layer_norm, co_layer_norm(ctx, x, co_reduce_sum(ctx, y, CO_AXES(0), false),
                                co_reduce_sum(ctx, y, CO_AXES(0), false), NULL))
TWO(f_batch_norm, co_at(ctx,
                        co_batch_norm_train(ctx, x, co_reduce_sum(ctx, y, CO_AXES(0), false),
                                            co_reduce_sum(ctx, y, CO_AXES(0), false),
                                            co_zeros(ctx, CO_FLOAT64, CO_SHAPE(4)),
                                            co_ones(ctx, CO_FLOAT64, CO_SHAPE(4)),
                                            &(co_batch_norm_options){ sizeof(co_batch_norm_options),
                                                                      CO_AXES(0), 0.9, 1e-3 }),
                        0))
TWO(f_fused_norm, co_at(ctx,
                        co_fused_batch_norm_train(ctx, x, co_reduce_sum(ctx, y, CO_AXES(0), false),
                                                  co_reduce_sum(ctx, y, CO_AXES(0), false), 1e-3),
                        0))
TWO(f_norm_given, co_batch_norm_inference(ctx, x, co_reduce_sum(ctx, y, CO_AXES(0), false),
                                          co_reduce_sum(ctx, y, CO_AXES(0), false),
                                          co_reduce_sum(ctx, y, CO_AXES(0), false),
                                          co_reduce_sum(ctx, SQUARE(y), CO_AXES(0), false), NULL))

#define CASE(fn, num)                                                                              \
    {                                                                                              \
#fn, fn, num                                                                               \
    }
static const struct {
    const char *name;
    kernel_fn   fn;
    int         num_in;
} cases[] = {
    CASE(f_min, 1),
    CASE(f_prod, 1),
    CASE(f_prod_all, 1),
    CASE(f_logsumexp, 1),
    CASE(f_variance, 1),
    CASE(f_std, 1),
    CASE(f_norm, 1),
    CASE(f_mean_of_moments, 1),
    CASE(f_variance_of_moments, 1),
    CASE(f_cumsum, 1),
    CASE(f_cumprod, 1),
    CASE(f_cumprod_exclusive, 1),
    CASE(f_top_k, 1),
    CASE(f_sort, 1),
    CASE(f_sort_down, 1),
    CASE(f_log_softmax, 1),
    CASE(f_l2_loss, 1),
    CASE(f_l2_normalize, 1),
    CASE(f_clip, 1),
    CASE(f_clip_by_norm, 1),
    CASE(f_squeeze, 1),
    CASE(f_unstack, 1),
    CASE(f_split, 1),
    CASE(f_split_sizes, 1),
    CASE(f_strided, 1),
    CASE(f_reverse, 1),
    CASE(f_roll, 1),
    CASE(f_tile, 1),
    CASE(f_pad, 1),
    CASE(f_reflect, 1),
    CASE(f_symmetric, 1),
    CASE(f_band, 1),
    CASE(f_gather_nd, 1),
    CASE(f_gather_nd_rows, 1),
    CASE(f_scatter_nd, 1),
    CASE(f_segments, 1),
    CASE(f_lookup, 1),
    CASE(f_diagonal, 1),
    CASE(f_einsum_sum, 1),
    CASE(f_zero_gradient, 1),
    CASE(f_where, 2),
    CASE(f_add_n, 2),
    CASE(f_stack, 2),
    CASE(f_softmax_ce, 2),
    CASE(f_sigmoid_ce, 2),
    CASE(f_mse, 2),
    CASE(f_global_norm, 2),
    CASE(f_clip_global, 2),
    CASE(f_scatter_add, 2),
    CASE(f_scatter_update, 2),
    CASE(f_einsum, 2),
    CASE(f_einsum_three, 2),
    CASE(f_einsum_ellipsis, 2),
    CASE(f_matvec, 2),
    CASE(f_layer_norm, 2),
    CASE(f_batch_norm, 2),
    CASE(f_fused_norm, 2),
    CASE(f_norm_given, 2),
};
#define NUM_CASES (sizeof(cases) / sizeof(cases[0]))

static size_t    now; /* the case under test */
static kernel_fn current;

static void
make_inputs(co_context *ctx, co_value **in)
{
    in[0] = kernel_tensor(ctx, CO_FLOAT64, DIMS(3, 4), 2, 5);
    in[1] = kernel_tensor(ctx, CO_FLOAT64, DIMS(3, 4), 2, 6);
}

static void
check_all(co_context *ctx, kernel_fn fn)
{
    static const int both[] = { 0, 1 };

    for (now = 0; now < NUM_CASES; ++now) {
        co_value *in[2];

        CO_BLOCK(ctx) {
            make_inputs(ctx, in);
            current = cases[now].fn;
            if (!kernel_check_gradients(ctx, fn != NULL ? fn : current, in, cases[now].num_in, both,
                                        cases[now].num_in))
                test_fail(TEST_AT, "see %s", cases[now].name);
        }
    }
}

CO_TEST(gradients_of_composed_operators_agree_with_differences, "")
{
    check_all(ctx, NULL);
}

/* The gradient for the last input as a function of all of them, weighed so that it depends on
 * each. */
static co_value *
gradient_of_current(co_context *ctx, co_value *const *in)
{
    int       last = cases[now].num_in - 1;
    co_value *grad = kernel_gradient(ctx, current, in, last);

    grad = co_mul(ctx, co_to_tensor(ctx, grad, CO_DTYPE_NONE), co_add(ctx, in[0], co_int(ctx, 2)));
    return last > 0 ? co_mul(ctx, grad, co_add(ctx, in[1], co_int(ctx, 2))) : grad;
}

CO_TEST(second_gradients_of_composed_operators_agree_with_differences, "")
{
    check_all(ctx, gradient_of_current);
}

CO_TEST_WITH(composed_operators_have_the_same_gradients_with_reference_kernels, "",
             "reference_kernels=yes")
{
    check_all(ctx, NULL);
}

/* Images: x [1, 5, 4, 2] and w [3, 2, 2, 2]. */
static const int64_t image_dims[] = { 1, 5, 4, 2 }, filter_dims[] = { 3, 2, 2, 2 };

static co_value *
pool_same(co_context *ctx, co_value *const *in)
{
    co_pool2d_options options = CO_POOL2D_OPTIONS_INIT;

    options.ksize[0] = 3;
    options.strides[1] = 1;
    options.padding = CO_PADDING_SAME;
    return co_square(ctx, co_avg_pool2d(ctx, in[0], &options));
}

static co_value *
pool_valid(co_context *ctx, co_value *const *in)
{
    return co_square(ctx, co_avg_pool2d(ctx, in[0], NULL));
}

static co_value *
depthwise(co_context *ctx, co_value *const *in)
{
    co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;

    options.padding = CO_PADDING_SAME;
    return co_square(ctx, co_depthwise_conv2d(ctx, in[0], in[1], &options));
}

static co_value *
transposed(co_context *ctx, co_value *const *in)
{
    static const int64_t dims[4] = { 1, 10, 8, 2 };
    co_conv2d_options    options = CO_CONV2D_OPTIONS_INIT;

    options.strides[0] = options.strides[1] = 2;
    options.padding = CO_PADDING_SAME;
    return co_square(ctx, co_conv2d_transpose(ctx, in[0], in[1], dims, &options));
}

CO_TEST(gradients_of_images_agree_with_differences, "")
{
    static const int both[] = { 0, 1 };
    co_value        *in[2] = { kernel_tensor(ctx, CO_FLOAT64, image_dims, 4, 8),
                               kernel_tensor(ctx, CO_FLOAT64, filter_dims, 4, 9) };

    CO_EXPECT_TRUE(kernel_check_gradients(ctx, pool_same, in, 1, both, 1));
    CO_EXPECT_TRUE(kernel_check_gradients(ctx, pool_valid, in, 1, both, 1));
    CO_EXPECT_TRUE(kernel_check_gradients(ctx, depthwise, in, 2, both, 2));
    CO_EXPECT_TRUE(kernel_check_gradients(ctx, transposed, in, 2, both, 2));
}

/* The new kernels against the plain ones, over dtypes and shapes that hurt. */
static co_value *
by_name(co_context *ctx, const char *op, co_value *x, const char *key, co_value *attr)
{
    const char *const keys[] = { key };

    return co_op_call(ctx, op, co_args(ctx, x), co_dict(ctx, keys, &attr, 1));
}

static void
compare(co_context *ctx, const char *op, co_value *x, const char *key, co_value *attr, double limit)
{
    co_value *fast = by_name(ctx, op, x, key, attr), *plain;
    double    distance;
    char      text[300];

    coi_use_reference(ctx, true);
    plain = by_name(ctx, op, x, key, attr);
    coi_use_reference(ctx, false);
    if (co_value_kind(fast) == CO_KIND_TUPLE) { /* top_k: the indices say all */
        fast = co_at(ctx, fast, 1);
        plain = co_at(ctx, plain, 1);
    }
    distance = ops_compare(ctx, fast, plain);
    if (!CO_EXPECT_TRUE(distance <= limit && co_ok(ctx)))
        test_fail(TEST_AT, "%s of %s: the kernels are %g units apart", op,
                  ops_describe(text, (co_dtype)x->dtype, &x, 1), distance);
}

static const int64_t hurting[][3] = { { 0, 3, 2 },   { 2, 0, 3 },   { 1, 1, 1 },   { 3, 5, 7 },
                                      { 2, 257, 3 }, { 3, 2, 300 }, { 5, 259, 1 }, { 1, 4, 513 } };

CO_TEST(reductions_and_scans_agree_with_the_reference, "")
{
    static const char *const folds[] = { "reduce_min", "reduce_prod" };
    static const char *const scans[] = { "cumsum", "cumprod" };
    ops_random               random = { 31 };

    for (int d = CO_INT8; d <= CO_FLOAT64; ++d)
        for (size_t s = 0; s < sizeof(hurting) / sizeof(hurting[0]); ++s)
            for (int axis = 0; axis < 3; ++axis)
                CO_BLOCK(ctx) {
                    bool      is_float = co_dtype_is_floating((co_dtype)d);
                    bool      is_half = d == CO_FLOAT16 || d == CO_BFLOAT16;
                    co_value *x = ops_tensor(ctx, &random, (co_dtype)d, hurting[s], 3, OPS_SPECIAL);
                    co_value *y = ops_tensor(ctx, &random, (co_dtype)d, hurting[s], 3,
                                             OPS_ORDINARY);

                    compare(ctx, folds[0], x, "axis", co_int(ctx, axis), 0);
                    for (int k = 0; k < 2; ++k) {
                        /* Products of many numbers and sums near 0 have few right digits in
                         * halves. */
                        double limit = !is_float ? 0 : k == 0 ? 1e300 : 600;

                        if (k == 1)
                            compare(ctx, folds[1], y, "axis", co_int(ctx, axis),
                                    is_half ? 1e300 : limit);
                        compare(ctx, scans[k], y, "axis", co_int(ctx, axis),
                                is_half ? 1e300 : limit);
                    }
                }
}

CO_TEST(top_k_agrees_with_the_reference, "")
{
    ops_random random = { 32 };

    for (int d = CO_INT8; d <= CO_FLOAT64; ++d)
        for (size_t s = 0; s < sizeof(hurting) / sizeof(hurting[0]); ++s)
            for (int filling = OPS_ORDINARY; filling <= OPS_SMALL; ++filling)
                CO_BLOCK(ctx) {
                    int64_t   n = hurting[s][2], k = n / 2 + 1 < 9 ? n / 2 + 1 : 9;
                    co_value *x = ops_tensor(ctx, &random, (co_dtype)d, hurting[s], 3,
                                             (ops_filling)filling);

                    compare(ctx, "top_k", x, "k", co_int(ctx, k), 0);
                    compare(ctx, "top_k", x, "k", co_int(ctx, n < 20 ? n : 1), 0);
                }
}

CO_TEST(strided_parts_agree_with_the_reference, "")
{
    ops_random random = { 33 };

    for (int round = 0; round < 200; ++round)
        CO_BLOCK(ctx) {
            int64_t dims[3], begin[3], end[3], strides[3];

            for (int d = 0; d < 3; ++d) {
                dims[d] = ops_below(&random, 9);
                begin[d] = ops_below(&random, 20) - 10;
                end[d] = ops_below(&random, 20) - 10;
                strides[d] = ops_below(&random, 3) + 1;
                strides[d] = ops_below(&random, 2) == 0 ? strides[d] : -strides[d];
            }
            for (int dtype = CO_INT8; dtype <= CO_FLOAT64; dtype += 3) {
                co_value *x = ops_tensor(ctx, &random, (co_dtype)dtype, dims, 3, OPS_ORDINARY);
                co_value *fast = co_strided_slice(ctx, x, begin, end, strides, 3, NULL), *plain;

                coi_use_reference(ctx, true);
                plain = co_strided_slice(ctx, x, begin, end, strides, 3, NULL);
                coi_use_reference(ctx, false);
                CO_EXPECT_OK(ctx);
                CO_EXPECT_CLOSE(ops_compare(ctx, fast, plain), 0, 0);
            }
        }
}

CO_TEST(average_pooling_agrees_with_the_reference, "")
{
    for (int64_t size = 1; size < 9; ++size)
        for (int dtype = CO_FLOAT16; dtype <= CO_FLOAT64; ++dtype)
            for (int k = 1; k <= 3; ++k)
                CO_BLOCK(ctx) {
                    co_pool2d_options options = CO_POOL2D_OPTIONS_INIT;
                    int64_t           dims[4] = { 2, size, 9 - size, 3 };
                    co_value *x = kernel_tensor(ctx, (co_dtype)dtype, dims, 4, 3), *fast, *plain;
                    double limit = dtype == CO_FLOAT64 ? 1e-15 : dtype == CO_FLOAT32 ? 1e-6 : 0.01;

                    options.ksize[0] = k;
                    options.strides[0] = options.strides[1] = 1 + k % 2;
                    options.padding = size % 2 == 0 ? CO_PADDING_SAME : CO_PADDING_VALID;
                    co_tape_begin_persistent(ctx);
                    co_watch(ctx, x);
                    fast = co_avg_pool2d(ctx, x, &options);
                    fast = co_mul(ctx, x, co_gradient(ctx, co_square(ctx, fast), x));
                    coi_use_reference(ctx, true);
                    plain = co_avg_pool2d(ctx, x, &options);
                    plain = co_mul(ctx, x, co_gradient(ctx, co_square(ctx, plain), x));
                    coi_use_reference(ctx, false);
                    co_tape_end(ctx);
                    CO_EXPECT_LESS(kernel_difference(ctx, fast, plain), limit);
                }
}

/* The result, or a gradient, of a depthwise convolution whose geometry the round decides. */
static co_value *
depthwise_of_round(co_context *ctx, int64_t round, co_dtype dtype, int which)
{
    co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;
    int64_t           x_dims[4] = { 2, 5 + round % 3, 4 + round % 5, 1 + round % 4 };
    int64_t           w_dims[4] = { 1 + round % 3, 1 + round % 2, x_dims[3], 1 + round / 2 % 3 };
    co_value         *in[2] = { kernel_tensor(ctx, dtype, x_dims, 4, 41),
                                kernel_tensor(ctx, dtype, w_dims, 4, 42) };
    co_value         *y;

    options.strides[0] = options.strides[1] = 1 + round % 2;
    options.dilations[1] = round % 4 == 0 ? 2 : 1;
    options.padding = round % 3 == 0 ? CO_PADDING_SAME : CO_PADDING_VALID;
    if (which == 2)
        return co_depthwise_conv2d(ctx, in[0], in[1], &options);
    co_tape_begin(ctx);
    co_watch(ctx, in[which]);
    y = co_square(ctx, co_depthwise_conv2d(ctx, in[0], in[1], &options));
    return co_gradient(ctx, y, in[which]);
}

CO_TEST(depthwise_convolutions_have_the_bits_of_the_reference, "")
{
    for (int64_t round = 0; round < 24; ++round)
        for (int dtype = CO_FLOAT16; dtype <= CO_FLOAT64; ++dtype)
            for (int which = 0; which < 3; ++which)
                CO_BLOCK(ctx) {
                    co_value *fast = depthwise_of_round(ctx, round, (co_dtype)dtype, which), *plain;

                    coi_use_reference(ctx, true);
                    plain = depthwise_of_round(ctx, round, (co_dtype)dtype, which);
                    coi_use_reference(ctx, false);
                    CO_EXPECT_OK(ctx);
                    /* Filters of one channel are a convolution without groups, which another kernel
                     * does. */
                    if (round % 4 != 0)
                        CO_EXPECT_CLOSE(ops_compare(ctx, fast, plain), 0, 0);
                }
}

/* Everything that is cut over workers, at a size where it is. */
static co_value *
flat(co_context *ctx, co_value *x)
{
    return co_reshape(ctx, x, (const int64_t[]){ -1 }, 1);
}

static co_value *
large(co_context *ctx, co_value *const *in)
{
    static const int64_t dims[] = { 37, 701, 13 };
    co_value            *x = kernel_tensor(ctx, CO_FLOAT32, dims, 3, 12), *parts[12], *image;
    int64_t              images[4] = { 6, 61, 67, 13 };

    (void)in;
    image = co_slice(ctx, flat(ctx, x), DIMS(0), DIMS(6 * 61 * 67 * 13), 1);
    image = co_reshape(ctx, image, images, 4);
    parts[0] = co_cumsum(ctx, x, 1, false, false);
    parts[1] = co_cumprod(ctx, x, 2, true, true);
    parts[2] = co_reduce_min(ctx, x, CO_AXES(0, 2), false);
    parts[3] = co_reduce_prod(ctx, x, CO_ALL_AXES, false);
    parts[4] = co_sort(ctx, x, 1, false);
    parts[5] = co_reverse(ctx, x, CO_AXES(1));
    parts[6] = co_reduce_logsumexp(ctx, x, CO_AXES(1), false);
    parts[7] = co_avg_pool2d(ctx, image, NULL);
    parts[8] = co_log_softmax(ctx, x, 1);
    parts[9] = co_reduce_std(ctx, x, CO_ALL_AXES, false);
    parts[10] = co_tile(ctx, x, DIMS(1, 2, 1), 3);
    parts[11] = co_einsum(ctx, "abc,abd->cd", co_args(ctx, x, x));
    for (int i = 0; i < 12; ++i)
        parts[i] = flat(ctx, parts[i]);
    return co_concat(ctx, co_list(ctx, parts, 12), 0);
}

static co_value *
large_gradients(co_context *ctx, co_value *const *in)
{
    static const int64_t dims[] = { 6, 61, 67, 13 };
    co_value            *x = kernel_tensor(ctx, CO_FLOAT32, dims, 4, 13), *y;

    (void)in;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_add(ctx,
               co_reduce_sum(ctx, co_square(ctx, co_avg_pool2d(ctx, x, NULL)), CO_ALL_AXES, false),
               co_reduce_sum(ctx,
                             co_square(ctx, co_strided_slice(ctx, x, DIMS(-1), DIMS(0), DIMS(-2), 1,
                                                             NULL)),
                             CO_ALL_AXES, false));
    y = co_add(ctx, y,
               co_reduce_sum(ctx, co_square(ctx, co_cumsum(ctx, x, 1, false, true)), CO_ALL_AXES,
                             false));
    return co_gradient(ctx, y, x);
}

static co_value *
large_depthwise(co_context *ctx, co_value *const *in)
{
    static const int64_t dims[] = { 6, 61, 67, 13 }, filter[] = { 3, 3, 13, 2 };
    co_value            *x = kernel_tensor(ctx, CO_FLOAT32, dims, 4, 13), *y, *grads, *parts[3];
    co_value            *w = kernel_tensor(ctx, CO_FLOAT32, filter, 4, 14);

    (void)in;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_watch(ctx, w);
    y = co_depthwise_conv2d(ctx, x, w, NULL);
    parts[0] = flat(ctx, y);
    grads = co_gradient(ctx, co_square(ctx, y), co_args(ctx, x, w));
    parts[1] = flat(ctx, co_at(ctx, grads, 0));
    parts[2] = flat(ctx, co_at(ctx, grads, 1));
    return co_concat(ctx, co_list(ctx, parts, 3), 0);
}

CO_TEST_BARE(composed_operators_have_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(large);
    kernel_check_threads(large_gradients);
    kernel_check_threads(large_depthwise);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolutional layer under max pooling: its gradients in one pass against those of double, where
 * they are taken and where not, ties, NaN, threads, errors.
 */
#include "context/context.h"
#include "kernel_support.h"

#define DIMS(...) ((const int64_t[]){ __VA_ARGS__ })

typedef struct layer {
    int64_t       x[4], w[4];
    int64_t       stride;
    co_padding    padding;
    co_activation activation;
} layer;

static co_value *
apply(co_context *ctx, const layer *l, co_value *x, co_value *w, co_value *b)
{
    co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;

    options.padding = l->padding;
    options.strides[0] = options.strides[1] = l->stride;
    return co_conv2d_bias(ctx, x, w, b, l->activation, &options);
}

/* The gradients of filter and bias as a list; NULL if they are not wanted together. */
static co_value *
gradients(co_context *ctx, const layer *l, co_dtype dtype, bool apart)
{
    co_value *x = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1), dtype);
    co_value *w = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2), dtype);
    co_value *b = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3), dtype);
    co_value *weights = co_list(ctx, (co_value *[]){ w, b }, 2), *pooled, *noise, *loss;
    int64_t   dims[4];

    if (apart)
        co_tape_begin_persistent(ctx); /* goes on recording, so the parts are taken */
    else
        co_tape_begin(ctx);
    co_watch(ctx, weights);
    pooled = co_max_pool2d(ctx, apply(ctx, l, x, w, b), NULL);
    for (int i = 0; i < 4; ++i)
        dims[i] = co_value_dim(ctx, pooled, i);
    noise = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, dims, 4, 4), dtype);
    loss = co_reduce_sum(ctx, co_mul(ctx, pooled, noise), CO_ALL_AXES, false);
    weights = co_gradient(ctx, loss, weights);
    if (apart)
        co_tape_end(ctx);
    return weights;
}

static int num_fused;

static void
count_fused(co_log_level level, const char *line, void *user)
{
    (void)level, (void)user;
    num_fused += strstr(line, "conv2d_pooled_grad ") != NULL;
}

static co_context *
open_counting(const char *settings)
{
    co_options options = CO_OPTIONS_INIT;

    num_fused = 0;
    options.settings = settings;
    options.log = count_fused;
    return co_open_with(&options);
}

/* Filters of one to twelve runs, rows of them that fill runs and that do not, odd counts of rows,
 * several chunks, vectors of channels. */
static const layer layers[] = {
    { { 20, 28, 28, 1 }, { 3, 3, 1, 32 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    { { 3, 10, 14, 1 }, { 5, 5, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    { { 3, 8, 6, 3 }, { 3, 3, 3, 48 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE },
    { { 2, 6, 6, 32 }, { 1, 1, 32, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_RELU },
    { { 2, 9, 11, 2 }, { 2, 2, 2, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_RELU },
    { { 2, 15, 11, 4 }, { 3, 3, 4, 16 }, 2, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    { { 1, 3, 3, 1 }, { 2, 2, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE },
    { { 5, 16, 9, 1 }, { 1, 2, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_RELU },
    { { 2, 5, 8, 1 }, { 12, 1, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
};
enum { NUM_LAYERS = sizeof(layers) / sizeof(layers[0]) };

/* The plain kernel adds up thousands of numbers one after the other. */
static void
compare(co_context *ctx, const layer *l)
{
    double    most = (ctx->special & COI_SPECIAL_REFERENCE) != 0 ? 5e-6 : 2e-6;
    co_value *got = gradients(ctx, l, CO_FLOAT32, false);
    co_value *want = gradients(ctx, l, CO_FLOAT64, false);
    co_value *apart = gradients(ctx, l, CO_FLOAT32, true);

    for (size_t i = 0; i < 2; ++i) {
        CO_EXPECT_LESS(kernel_difference(ctx, co_at(ctx, got, i), co_at(ctx, want, i)), most);
        CO_EXPECT_LESS(kernel_difference(ctx, co_at(ctx, apart, i), co_at(ctx, want, i)), most);
    }
}

static void
compare_all(const char *settings)
{
    co_context *ctx = open_counting(settings);
    int         most = 0;

    for (int i = 0; i < NUM_LAYERS; ++i) {
        bool even = i != 8; /* the last one has rows that pooling leaves out */

        most += even;
        CO_BLOCK(ctx) {
            compare(ctx, &layers[i]);
        }
        if (!CO_EXPECT_INT(num_fused, ctx->runtime->isa == COI_ISA_BASE ? 0 : most))
            printf("  layer %d with %s\n", i, settings);
    }
    CO_EXPECT_INT(co_close(ctx), CO_OK);
}

CO_TEST_BARE(gradients_of_pooled_layers_in_one_pass_are_those_of_their_parts, "")
{
    compare_all("log=debug");
}

CO_TEST_BARE(gradients_of_pooled_layers_of_the_baseline, "")
{
    compare_all("log=debug,isa=base");
}

static bool
has_v3(void)
{
    co_error_info err;
    coi_isa       isa;

    coi_error_reset(&err);
    return coi_isa_choose("v3", &isa, &err) == CO_OK;
}

CO_TEST_BARE(gradients_of_pooled_layers_with_shorter_vectors, "")
{
    if (!has_v3())
        CO_SKIP("the processor has no AVX2, or the build");
    compare_all("log=debug,isa=v3");
}

CO_TEST(gradients_of_pooled_layers_with_the_plain_kernel, "")
{
    coi_use_reference(ctx, true);
    for (int i = 0; i < NUM_LAYERS; ++i)
        CO_BLOCK(ctx) {
            compare(ctx, &layers[i]);
        }
    coi_use_reference(ctx, false);
}

static co_value *
with_threads(co_context *ctx, co_value *const *in)
{
    static const layer l = {
        { 64, 28, 28, 1 }, { 3, 3, 1, 32 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU
    };
    co_value *both = gradients(ctx, &l, CO_FLOAT32, false);

    (void)in;
    return co_concat(ctx,
                     co_list(ctx,
                             (co_value *[]){ co_reshape(ctx, co_at(ctx, both, 0), CO_SHAPE(-1)),
                                             co_at(ctx, both, 1) },
                             2),
                     0);
}

CO_TEST_BARE(gradients_of_pooled_layers_have_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(with_threads);
}

/* Layers that are not for it: the same bits as the parts, since these it is. */
static void
check_others(co_context *ctx)
{
    static const layer others[] = {
        { { 2, 8, 8, 1 }, { 3, 3, 1, 10 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 2, 8, 8, 1 }, { 7, 7, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 2, 8, 8, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_TANH },
        { { 2, 8, 8, 2 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 2, 9, 8, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 0, 8, 8, 1 }, { 3, 3, 1, 10 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
        CO_BLOCK(ctx) {
            co_value *got = gradients(ctx, &others[i], CO_FLOAT32, false);
            co_value *want = gradients(ctx, &others[i], CO_FLOAT32, true);

            for (size_t k = 0; k < 2; ++k)
                CO_EXPECT_TRUE(kernel_difference(ctx, co_at(ctx, got, k), co_at(ctx, want, k)) ==
                               0);
        }
    CO_EXPECT_INT(num_fused, 0);
}

static void
check_counting(void (*check)(co_context *ctx))
{
    co_context *own = open_counting("log=debug");

    check(own);
    CO_EXPECT_INT(co_close(own), CO_OK);
}

CO_TEST_BARE(other_layers_go_apart, "")
{
    check_counting(check_others);
}

CO_TEST(gradients_of_an_empty_batch_of_a_pooled_layer_are_zeros, "")
{
    static const layer l = {
        { 0, 8, 8, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU
    };
    co_value *both = gradients(ctx, &l, CO_FLOAT32, false);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_global_norm(ctx, both)), 0, 0);
}

/* Whoever else uses the layer's result is heard: another operator before or after the pooling, the
 * user who wants its gradient, the input. */
static void
check_users(co_context *ctx)
{
    layer     l = { { 2, 6, 6, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU };
    co_value *x = kernel_tensor(ctx, CO_FLOAT32, l.x, 4, 1);
    co_value *w = kernel_tensor(ctx, CO_FLOAT32, l.w, 4, 2);
    co_value *b = kernel_tensor(ctx, CO_FLOAT32, &l.w[3], 1, 3);

    for (int what = 0; what < 5; ++what) {
        co_value *y, *pooled, *before = NULL, *after = NULL, *sources[3] = { w, b, x }, *got, *loss;
        double    want;

        co_tape_begin(ctx);
        co_watch(ctx, co_list(ctx, sources, 3));
        y = apply(ctx, &l, x, w, b);
        if (what == 1)
            before = co_reduce_sum(ctx, y, CO_ALL_AXES, false);
        pooled = co_max_pool2d(ctx, y, NULL);
        if (what == 2)
            after = co_reduce_sum(ctx, y, CO_ALL_AXES, false);
        loss = co_reduce_sum(ctx, pooled, CO_ALL_AXES, false);
        if (before != NULL || after != NULL)
            loss = co_add(ctx, loss, before != NULL ? before : after);
        if (what == 3)
            sources[1] = y;
        got = co_gradient(ctx, loss, co_list(ctx, sources, what == 4 ? 3 : 2));
        CO_EXPECT_OK(ctx);
        CO_EXPECT_INT(num_fused, ctx->runtime->isa == COI_ISA_BASE ? 0 : 1); /* of what == 0 */
        /* The gradient of the bias counts: active maxima, and active pixels where y is summed. */
        if (what == 3)
            continue;
        want = co_item_float(
            ctx,
            co_reduce_sum(ctx, co_cast(ctx, co_greater(ctx, pooled, co_int(ctx, 0)), CO_FLOAT32),
                          CO_ALL_AXES, false));
        if (what == 1 || what == 2)
            want += co_item_float(
                ctx,
                co_reduce_sum(ctx, co_cast(ctx, co_greater(ctx, y, co_int(ctx, 0)), CO_FLOAT32),
                              CO_ALL_AXES, false));
        CO_EXPECT_CLOSE(co_item_float(ctx,
                                      co_reduce_sum(ctx, co_at(ctx, got, 1), CO_ALL_AXES, false)),
                        want, 1e-3);
    }
}

CO_TEST_BARE(a_layer_that_is_used_twice_goes_apart, "")
{
    check_counting(check_users);
}

static bool
gradients_once(co_context *ctx)
{
    return gradients(ctx, &layers[1], CO_FLOAT32, false) != NULL;
}

CO_TEST_BARE(gradients_of_pooled_layers_survive_no_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, gradients_once);
}

/* A second derivative, of the penalty that the square of the filter's gradient is: the walk of the
 * inner tape is recorded by the outer one, and goes by the parts. */
static double
penalty_slope(co_context *ctx, co_dtype dtype)
{
    const layer *l = &layers[1];
    co_value    *x = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1), dtype);
    co_value    *w = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2), dtype);
    co_value    *b = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3), dtype);
    co_value    *pooled, *inner;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    co_tape_begin(ctx);
    co_watch(ctx, w);
    pooled = co_max_pool2d(ctx, apply(ctx, l, x, w, b), NULL);
    inner = co_gradient(ctx, co_reduce_sum(ctx, co_square(ctx, pooled), CO_ALL_AXES, false), w);
    return co_item_float(ctx, co_reduce_sum(ctx, co_gradient(ctx, co_square(ctx, inner), w),
                                            CO_ALL_AXES, false));
}

CO_TEST(second_derivatives_of_pooled_layers_are_those_of_double, "")
{
    double want = penalty_slope(ctx, CO_FLOAT64);

    CO_EXPECT_CLOSE(penalty_slope(ctx, CO_FLOAT32) / want, 1, 1e-4);
}

/* Paddings and strides of billions: their product is no number of elements. */
CO_TEST(a_layer_with_huge_paddings_is_computed, "")
{
    const int32_t     most = INT32_MAX;
    co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;
    co_value         *y, *grad;

    options.padding = CO_PADDING_EXPLICIT;
    for (int i = 0; i < 4; ++i)
        options.explicit_paddings[i] = most;
    options.strides[0] = options.strides[1] = 1431655765;
    for (int64_t channels = 1; channels <= 2; ++channels)
        CO_BLOCK(ctx) {
            co_value *x = co_ones(ctx, CO_FLOAT32, DIMS(1, 2, 2, channels), 4);
            co_value *w = co_ones(ctx, CO_FLOAT32, DIMS(1, 1, channels, 16), 4);
            co_value *b = co_ones(ctx, CO_FLOAT32, DIMS(16), 1);

            co_tape_begin(ctx);
            co_watch(ctx, w);
            y = co_conv2d_bias(ctx, x, w, b, CO_ACTIVATION_RELU, &options);
            grad = co_gradient(ctx, co_max_pool2d(ctx, y, NULL), w);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, y, CO_ALL_AXES, false)), 1, 0);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, grad, CO_ALL_AXES, false)), 0, 0);
            CO_EXPECT_OK(ctx);
        }
}

/* A filter of one element that copies the pixel: the gradient of the filter is the sum of the
 * pixels that were the maxima, the first of equal ones. */
static double
picked(co_context *ctx, const float pixels[4])
{
    layer     l = { { 1, 2, 2, 1 }, { 1, 1, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE };
    co_value *x = co_tensor(ctx, CO_FLOAT32, l.x, 4, pixels), *w = co_ones(ctx, CO_FLOAT32, l.w, 4);
    co_value *b = co_zeros(ctx, CO_FLOAT32, &l.w[3], 1), *y;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    y = co_max_pool2d(ctx, apply(ctx, &l, x, w, b), NULL);
    return co_item_float(ctx, co_reduce_max(ctx, co_gradient(ctx, y, w), CO_ALL_AXES, false));
}

/* Two NaNs with other bits in one window: the first gets the gradient, so that the second tap meets
 * the pixel beside it. */
static double
picked_beside_nan(co_context *ctx)
{
    layer       l = { { 1, 2, 3, 1 }, { 1, 2, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE };
    const float pixels[6] = { NAN, 10, 1, -NAN, 20, 2 };
    co_value   *x = co_tensor(ctx, CO_FLOAT32, l.x, 4, pixels);
    co_value   *w = co_ones(ctx, CO_FLOAT32, l.w, 4), *b = co_zeros(ctx, CO_FLOAT32, &l.w[3], 1);
    co_value   *grad;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    grad = co_gradient(ctx, co_max_pool2d(ctx, apply(ctx, &l, x, w, b), NULL), w);
    return (double)((const float *)co_value_data(ctx, grad))[16];
}

CO_TEST(the_first_maximum_of_a_window_gets_the_gradient, "")
{
    /* What is not picked counts with 0, also where it is infinite. */
    CO_EXPECT_CLOSE(picked(ctx, (float[]){ 1, 2, 3, 4 }), 4, 0);
    CO_EXPECT_CLOSE(picked(ctx, (float[]){ 9, 2, 3, 4 }), 9, 0);
    CO_EXPECT_CLOSE(picked(ctx, (float[]){ -3, -2, -2, -5 }), -2, 0);
    CO_EXPECT_TRUE(isnan(picked(ctx, (float[]){ 1, NAN, 3, 4 })));
    CO_EXPECT_TRUE(isnan(picked(ctx, (float[]){ 1, -INFINITY, 3, 4 })));
    CO_EXPECT_CLOSE(picked_beside_nan(ctx), 10, 0);
    CO_EXPECT_OK(ctx);
}

/* Bias and relu in one pass are add and relu: zeros of either sign, NaN, infinity. Columns that are
 * whole vectors, more rows than are taken at a time. */
static void
check_finish(co_context *ctx, int64_t rows, int64_t columns, co_activation activation)
{
    static const float some[] = { -0.0F, 0, NAN, INFINITY, -INFINITY, -1, 1, -2, 3, -0.0F, 1e38F };
    static const float more[] = { -0.0F, -0.0F, 1, 1, 1, 1, -1, 1, -4, 0, 3e38F };
    float              sums[48], bias[48];
    co_value          *w, *b, *y, *parts, *ones = co_ones(ctx, CO_FLOAT32, DIMS(rows, 1), 2);

    for (int i = 0; i < 48; ++i) {
        sums[i] = some[i % 11];
        bias[i] = more[i % 11 + (i > 22 && i % 11 < 10)];
    }
    w = co_tensor(ctx, CO_FLOAT32, DIMS(1, columns), 2, sums);
    b = co_tensor(ctx, CO_FLOAT32, DIMS(columns), 1, bias);
    y = co_dense(ctx, ones, w, b, activation);
    parts = co_add(ctx, co_matmul(ctx, ones, w), b);
    if (activation == CO_ACTIVATION_RELU)
        parts = co_relu(ctx, parts);
    CO_EXPECT_BYTES(co_value_data(ctx, y), co_value_data(ctx, parts),
                    (size_t)(rows * columns) * sizeof(float));
}

static void
check_finishes(co_context *ctx)
{
    static const int64_t rows[] = { 1, 3, 64, 65, 200 }, columns[] = { 10, 16, 32, 48 };

    for (size_t i = 0; i < 5; ++i)
        for (size_t k = 0; k < 4; ++k)
            CO_BLOCK(ctx) {
                check_finish(ctx, rows[i], columns[k], CO_ACTIVATION_NONE);
                check_finish(ctx, rows[i], columns[k], CO_ACTIVATION_RELU);
            }
}

CO_TEST(a_finish_in_one_pass_keeps_what_is_special, "")
{
    check_finishes(ctx);
}

CO_TEST_BARE(a_finish_in_one_pass_of_shorter_vectors, "")
{
    co_context *own;

    if (!has_v3())
        CO_SKIP("the processor has no AVX2, or the build");
    own = co_open("isa=v3");
    check_finishes(own);
    CO_EXPECT_INT(co_close(own), CO_OK);
}

CO_TEST_WITH(a_finish_in_one_pass_of_the_baseline, "", "isa=base")
{
    check_finishes(ctx);
}

static void
refuse(co_context *ctx, const int64_t *x, const int64_t *y, const int64_t *pooled,
       const int64_t *sizes, const char *why)
{
    const char *keys[] = { "sizes", "padding" };
    co_value   *in[4] = { co_zeros(ctx, CO_FLOAT32, x, 4), co_zeros(ctx, CO_FLOAT32, y, 4),
                          co_zeros(ctx, CO_FLOAT32, pooled, 4),
                          co_zeros(ctx, CO_FLOAT32, pooled, 4) };
    co_value   *dims[4], *values[2];

    for (int i = 0; i < 4; ++i)
        dims[i] = co_int(ctx, sizes[i]);
    values[0] = co_list(ctx, dims, 4);
    values[1] = co_string(ctx, "SAME");
    CO_EXPECT_NULL(
        co_op_call(ctx, "conv2d_pooled_grad", co_tuple(ctx, in, 4), co_dict(ctx, keys, values, 2)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, why);
}

CO_TEST(the_gradients_of_a_pooled_layer_refuse_what_does_not_fit, "")
{
    refuse(ctx, DIMS(1, 4, 4, 1), DIMS(1, 4, 4, 8), DIMS(1, 2, 2, 8), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: y has shape [1,4,4,8]; for sizes [3,3,1,16] it must be [1,4,4,16]");
    refuse(ctx, DIMS(1, 4, 4, 1), DIMS(1, 4, 4, 16), DIMS(1, 2, 1, 16), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: pooled has shape [1,2,1,16]; it must be [1,2,2,16]");
    refuse(ctx, DIMS(1, 5, 4, 1), DIMS(1, 5, 4, 16), DIMS(1, 2, 2, 16), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: y has 5 x 4 pixels; both must be even");
    refuse(ctx, DIMS(1, 4, 4, 2), DIMS(1, 4, 4, 16), DIMS(1, 2, 2, 16), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: the convolution has 2 groups; it must have one");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense and conv2d_bias: the bits of product, bias and activation apart, in values and gradients;
 * halves, empty shapes, groups, gradients of gradients, errors, want of memory. Differences and
 * threads are in the tables of ops_differences.c and ops_threads.c.
 */
#include "context/context.h"
#include "kernel_support.h"

/* The activations as a user would write them one by one. */
static co_value *
activate(co_context *ctx, co_value *x, co_activation which)
{
    static co_value *(*const functions[])(co_context *, co_value *) = {
        [CO_ACTIVATION_NONE] = co_identity,     [CO_ACTIVATION_RELU] = co_relu,
        [CO_ACTIVATION_RELU6] = co_relu6,       [CO_ACTIVATION_ELU] = co_elu,
        [CO_ACTIVATION_SELU] = co_selu,         [CO_ACTIVATION_TANH] = co_tanh,
        [CO_ACTIVATION_SIGMOID] = co_sigmoid,   [CO_ACTIVATION_SOFTPLUS] = co_softplus,
        [CO_ACTIVATION_SOFTSIGN] = co_softsign, [CO_ACTIVATION_SILU] = co_silu,
    };

    if (which >= CO_ACTIVATION_GELU)
        return co_gelu(ctx, x, which == CO_ACTIVATION_GELU_TANH);
    return functions[which](ctx, x);
}

#define DIMS(...) ((const int64_t[]){ __VA_ARGS__ })

static co_activation     activation;
static co_conv2d_options options;

static co_value *
dense(co_context *ctx, co_value *const *in)
{
    return co_dense(ctx, in[0], in[1], in[2], activation);
}

static co_value *
dense_apart(co_context *ctx, co_value *const *in)
{
    return activate(ctx, co_add(ctx, co_matmul(ctx, in[0], in[1]), in[2]), activation);
}

static co_value *
conv2d(co_context *ctx, co_value *const *in)
{
    return co_conv2d_bias(ctx, in[0], in[1], in[2], activation, &options);
}

static co_value *
conv2d_apart(co_context *ctx, co_value *const *in)
{
    return activate(ctx, co_add(ctx, co_conv2d(ctx, in[0], in[1], &options), in[2]), activation);
}

static bool
same_bits(co_context *ctx, co_value *a, co_value *b)
{
    int64_t n = co_value_num_elements(ctx, a);
    size_t  size = co_value_dtype(ctx, a) == CO_FLOAT64 ? sizeof(double) : sizeof(float);

    return n == co_value_num_elements(ctx, b) && co_value_dtype(ctx, a) == co_value_dtype(ctx, b) &&
           (n == 0 || memcmp(co_value_data(ctx, a), co_value_data(ctx, b), (size_t)n * size) == 0);
}

/* Values and the three gradients of a layer against those of its parts. */
static void
compare(co_context *ctx, kernel_fn layer, kernel_fn apart, co_value *const *in, const char *what)
{
    CO_BLOCK(ctx) {
        if (!CO_EXPECT_TRUE(same_bits(ctx, layer(ctx, in), apart(ctx, in))))
            printf("  %s, activation %d\n", what, (int)activation);
        for (int i = 0; i < 3; ++i)
            if (!CO_EXPECT_TRUE(same_bits(ctx, kernel_gradient(ctx, layer, in, i),
                                          kernel_gradient(ctx, apart, in, i))))
                printf("  gradient %d of %s, activation %d\n", i, what, (int)activation);
    }
}

static void
compare_dense(co_context *ctx, co_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    char      what[80];
    co_value *in[3] = { kernel_tensor(ctx, dtype, (int64_t[]){ m, k }, 2, 1),
                        kernel_tensor(ctx, dtype, (int64_t[]){ k, n }, 2, 2),
                        kernel_tensor(ctx, dtype, (int64_t[]){ n }, 1, 3) };

    snprintf(what, sizeof(what), "%lld x %lld x %lld", (long long)m, (long long)n, (long long)k);
    compare(ctx, dense, dense_apart, in, what);
}

CO_TEST(dense_has_the_bits_of_its_parts, "")
{
    for (activation = CO_ACTIVATION_NONE; activation <= CO_ACTIVATION_GELU_TANH; ++activation) {
        compare_dense(ctx, CO_FLOAT32, 7, 5, 3);
        compare_dense(ctx, CO_FLOAT64, 7, 5, 3);
        compare_dense(ctx, CO_FLOAT32, 75, 131, 515); /* tiles, and two blocks of k */
        compare_dense(ctx, CO_FLOAT32, 3, 1027, 4);   /* rows longer than a block of the finish */
    }
    activation = CO_ACTIVATION_RELU;
    for (int64_t n = 1; n <= 300; n += 13)
        compare_dense(ctx, CO_FLOAT32, 74, n, 2);
    compare_dense(ctx, CO_FLOAT32, 1500, 300, 900); /* several slabs of k */
}

CO_TEST(dense_of_nothing_is_the_activated_bias, "")
{
    co_value *in[3] = { co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4, 0)),
                        co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 3)),
                        co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), (float[]){ -1, 0, 2 }) };

    activation = CO_ACTIVATION_RELU;
    compare(ctx, dense, dense_apart, in, "no inputs");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, dense(ctx, in), CO_ALL_AXES, false)), 8,
                    0);
    compare_dense(ctx, CO_FLOAT32, 0, 3, 2);
    compare_dense(ctx, CO_FLOAT32, 3, 0, 2);
}

CO_TEST(dense_takes_any_number_of_leading_dimensions, "")
{
    co_value *in[3] = { kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 2, 3, 5, 7 }, 4, 1),
                        kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 7, 11 }, 2, 2),
                        kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 11 }, 1, 3) };

    activation = CO_ACTIVATION_TANH;
    compare(ctx, dense, dense_apart, in, "rank 4");
    CO_EXPECT_INT(co_value_ndim(ctx, dense(ctx, in)), 4);
}

/* Rounded once, so at least as near to the plain kernel as parts that round three times. */
CO_TEST(layers_of_halves_round_once, "")
{
    co_dtype dtypes[2] = { CO_FLOAT16, CO_BFLOAT16 };

    activation = CO_ACTIVATION_TANH;
    for (int i = 0; i < 2; ++i) {
        co_value *in[3] = { kernel_tensor(ctx, dtypes[i], (int64_t[]){ 9, 33 }, 2, 1),
                            kernel_tensor(ctx, dtypes[i], (int64_t[]){ 33, 17 }, 2, 2),
                            kernel_tensor(ctx, dtypes[i], (int64_t[]){ 17 }, 1, 3) };

        CO_EXPECT_LESS(kernel_difference(ctx, dense(ctx, in), kernel_reference(ctx, dense, in)),
                       i == 0 ? 1e-3 : 8e-3);
        CO_EXPECT_LESS(kernel_difference(ctx, dense(ctx, in), dense_apart(ctx, in)),
                       i == 0 ? 4e-3 : 3e-2);
    }
}

CO_TEST(layers_of_halves_have_the_same_bits_with_a_tape_and_without, "")
{
    for (activation = CO_ACTIVATION_NONE; activation <= CO_ACTIVATION_GELU_TANH; ++activation) {
        co_value *in[3] = { kernel_tensor(ctx, CO_BFLOAT16, (int64_t[]){ 9, 33 }, 2, 1),
                            kernel_tensor(ctx, CO_BFLOAT16, (int64_t[]){ 33, 17 }, 2, 2),
                            kernel_tensor(ctx, CO_BFLOAT16, (int64_t[]){ 17 }, 1, 3) };
        co_value *recorded, *plain = dense(ctx, in);

        co_tape_begin(ctx);
        co_watch(ctx, in[1]);
        recorded = dense(ctx, in);
        CO_EXPECT_BYTES(co_value_data(ctx, recorded), co_value_data(ctx, plain), 9 * 17 * 2);
        CO_EXPECT_INT(co_value_num_elements(ctx, co_gradient(ctx, recorded, in[1])), 33 * 17);
    }
}

static void
compare_conv2d(co_context *ctx, co_dtype dtype, const int64_t x[4], const int64_t w[4])
{
    char      what[80];
    co_value *in[3] = { kernel_tensor(ctx, dtype, x, 4, 1), kernel_tensor(ctx, dtype, w, 4, 2),
                        kernel_tensor(ctx, dtype, &w[3], 1, 3) };

    snprintf(what, sizeof(what), "convolution of %lld x %lld x %lld x %lld", (long long)x[0],
             (long long)x[1], (long long)x[2], (long long)x[3]);
    compare(ctx, conv2d, conv2d_apart, in, what);
}

CO_TEST(conv2d_bias_has_the_bits_of_its_parts, "")
{
    options = (co_conv2d_options)CO_CONV2D_OPTIONS_INIT;
    for (activation = CO_ACTIVATION_NONE; activation <= CO_ACTIVATION_GELU_TANH; ++activation) {
        compare_conv2d(ctx, CO_FLOAT32, DIMS(2, 7, 6, 3), DIMS(3, 2, 3, 5));
        compare_conv2d(ctx, CO_FLOAT64, DIMS(2, 7, 6, 3), DIMS(3, 2, 3, 5));
    }
    activation = CO_ACTIVATION_RELU;
    options.padding = CO_PADDING_SAME;
    compare_conv2d(ctx, CO_FLOAT32, DIMS(9, 28, 28, 1), DIMS(3, 3, 1, 32));
    compare_conv2d(ctx, CO_FLOAT32, DIMS(5, 14, 14, 32), DIMS(3, 3, 32, 64));
    compare_conv2d(ctx, CO_FLOAT32, DIMS(3, 9, 9, 8), DIMS(1, 1, 8, 16));
    options.strides[0] = options.strides[1] = 2;
    compare_conv2d(ctx, CO_FLOAT32, DIMS(3, 9, 9, 8), DIMS(3, 3, 4, 6)); /* groups */
    compare_conv2d(ctx, CO_FLOAT32, DIMS(0, 9, 9, 8), DIMS(3, 3, 8, 6));
    compare_conv2d(ctx, CO_FLOAT32, DIMS(2, 9, 9, 8), DIMS(3, 3, 8, 0));
}

CO_TEST(layers_agree_with_the_plain_kernels, "")
{
    co_value *in[3] = { kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 2, 13, 11, 3 }, 4, 1),
                        kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 3, 17 }, 4, 2),
                        kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 17 }, 1, 3) };

    options = (co_conv2d_options)CO_CONV2D_OPTIONS_INIT;
    for (activation = CO_ACTIVATION_NONE; activation <= CO_ACTIVATION_GELU_TANH; ++activation)
        CO_EXPECT_LESS(kernel_difference(ctx, conv2d(ctx, in), kernel_reference(ctx, conv2d, in)),
                       4e-6);
}

/* By name the operator has no operand kept for its gradient, and computes it once more. */
CO_TEST(dense_by_name_has_the_gradient_of_its_parts, "")
{
    co_value *in[3] = { kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 4, 3 }, 2, 1),
                        kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 2 }, 2, 2),
                        kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 2 }, 1, 3) };
    co_value *ones = co_ones(ctx, CO_FLOAT32, CO_SHAPE(4, 2)), *by_name, *apart;
    co_value *silu = co_string(ctx, "silu"),
             *attrs = co_dict(ctx, (const char *const[]){ "activation" }, &silu, 1);

    activation = CO_ACTIVATION_SILU;
    co_tape_begin(ctx);
    co_watch(ctx, in[1]);
    by_name = co_op_call(ctx, "dense", co_tuple(ctx, in, 3), attrs);
    by_name = co_gradient(ctx, co_reduce_sum(ctx, co_mul(ctx, by_name, ones), CO_ALL_AXES, false),
                          in[1]);
    co_tape_begin(ctx);
    co_watch(ctx, in[1]);
    apart = dense_apart(ctx, in);
    apart = co_gradient(ctx, co_reduce_sum(ctx, co_mul(ctx, apart, ones), CO_ALL_AXES, false),
                        in[1]);
    CO_EXPECT_TRUE(same_bits(ctx, by_name, apart));
}

static bool
train_two_layers(co_context *ctx)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 8, 8, 1));
    co_value *w = co_ones(ctx, CO_FLOAT32, CO_SHAPE(8, 8, 1, 64));
    co_value *v = co_ones(ctx, CO_FLOAT32, CO_SHAPE(64, 40));
    co_value *b = co_ones(ctx, CO_FLOAT32, CO_SHAPE(64)), *y;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    y = co_conv2d_bias(ctx, x, w, b, CO_ACTIVATION_GELU, NULL);
    y = co_reshape(ctx, y, CO_SHAPE(3, 64));
    y = co_dense(ctx, y, v, co_ones(ctx, CO_FLOAT32, CO_SHAPE(40)), CO_ACTIVATION_RELU);
    return co_gradient(ctx, y, w) != NULL;
}

CO_TEST_BARE(layers_survive_want_of_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=1", train_two_layers);
}

/* An empty tensor may have dimensions of any size: nothing is reserved or walked for them. */
CO_TEST(layers_of_huge_empty_tensors_are_empty, "")
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE((int64_t)1 << 40, 0));
    co_value *none = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0));

    CO_EXPECT_INT(co_value_dim(ctx, co_attention(ctx, x, x, x, 1, NULL), 0), (int64_t)1 << 40);
    CO_EXPECT_INT(co_value_dim(ctx, co_layer_norm(ctx, x, none, none, NULL), 0), (int64_t)1 << 40);
    coi_use_reference(ctx, true);
    CO_EXPECT_INT(co_value_dim(ctx, co_attention(ctx, x, x, x, 1, NULL), 0), (int64_t)1 << 40);
    coi_use_reference(ctx, false);
}

CO_TEST(what_does_not_fit_a_layer_is_named, "")
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)),
             *w = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 4));
    co_value *b = co_ones(ctx, CO_FLOAT32, CO_SHAPE(4)),
             *image = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 2, 2, 1));

    CO_EXPECT_NULL(co_dense(ctx, x, w, x, CO_ACTIVATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "dense: b has shape [2,3]; it must have one element for each of 4 columns");
    CO_EXPECT_NULL(co_dense(ctx, x, x, b, CO_ACTIVATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "w has shape [2,3]; the last dimension of x is 3, so w needs 3 rows");
    CO_EXPECT_NULL(co_dense(ctx, x, b, b, CO_ACTIVATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "w has shape [4]; it must have 2 dimensions: inputs, outputs");
    CO_EXPECT_NULL(co_dense(ctx, b, w, b, CO_ACTIVATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "x has shape [4]; it must have at least 2 dimensions");
    CO_EXPECT_NULL(co_dense(ctx, x, w, b, (co_activation)77));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "activation is 77; give a CO_ACTIVATION_... (0 to 11)");
    CO_EXPECT_NULL(co_conv2d_bias(ctx, image, image, b, CO_ACTIVATION_RELU, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "conv2d_bias: ");
    CO_EXPECT_NULL(co_dense(ctx, x, w, NULL, CO_ACTIVATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 4 (b) of dense is NULL");
    CO_EXPECT_NULL(co_dense(ctx, x, co_cast(ctx, w, CO_FLOAT64), b, CO_ACTIVATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "w has dtype float64");
}

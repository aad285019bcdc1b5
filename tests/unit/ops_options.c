/* SPDX-License-Identifier: Apache-2.0 */
/* Options of operators: what NULL stands for, a field that is set, a struct without its size. */
#include "test.h"

static void
expect_same(co_context *ctx, co_value *a, co_value *b)
{
    CO_EXPECT_OK(ctx);
    if (co_value_kind(a) == CO_KIND_TUPLE) {
        for (size_t i = 0; i < co_num_items(ctx, a); ++i)
            expect_same(ctx, co_at(ctx, a, i), co_at(ctx, b, i));
        return;
    }
    CO_EXPECT_INT(co_value_dtype(ctx, a), co_value_dtype(ctx, b));
    CO_EXPECT_INT(co_value_num_elements(ctx, a), co_value_num_elements(ctx, b));
    CO_EXPECT_BYTES(co_value_data(ctx, a), co_value_data(ctx, b),
                    (size_t)co_value_num_elements(ctx, a) * co_dtype_size(co_value_dtype(ctx, a)));
}

static co_value *
drawn(co_context *ctx, int64_t seed, int64_t rows)
{
    return co_stateless_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(rows, 4), (int64_t[]){ seed, 0 },
                                       NULL);
}

static co_value *
row(co_context *ctx, int64_t seed)
{
    return co_reshape(ctx, drawn(ctx, seed, 1), CO_SHAPE(4));
}

/* The table has the order and the defaults of TensorFlow, so it tells what the C functions do. */
CO_TEST(null_options_are_the_defaults_of_the_table, "")
{
    co_value *x = drawn(ctx, 1, 6), *gamma = row(ctx, 2), *beta = row(ctx, 3);
    co_value *mean = row(ctx, 4), *variance = row(ctx, 5);
    co_value *digits = co_tensor(ctx, CO_INT32, CO_SHAPE(3), (int32_t[]){ 2, 0, 7 });
    co_value *axes[1] = { co_int(ctx, 0) };

    expect_same(ctx, co_batch_norm_inference(ctx, x, gamma, beta, mean, variance, NULL),
                co_op_call(ctx, "batch_norm_inference",
                           co_args(ctx, x, mean, variance, gamma, beta), NULL));
    expect_same(ctx, co_batch_norm_train(ctx, x, gamma, beta, mean, variance, NULL),
                co_op_call(ctx, "batch_norm_train", co_args(ctx, x, gamma, beta, mean, variance),
                           co_dict(ctx, (const char *[]){ "axes" },
                                   (co_value *[]){ co_list(ctx, axes, 1) }, 1)));
    expect_same(ctx, co_layer_norm(ctx, x, gamma, beta, NULL),
                co_op_call(ctx, "layer_norm", co_args(ctx, x, gamma, beta), NULL));
    expect_same(ctx, co_one_hot(ctx, digits, 4, NULL),
                co_op_call(ctx, "one_hot", co_args(ctx, digits),
                           co_dict(ctx, (const char *[]){ "depth" },
                                   (co_value *[]){ co_int(ctx, 4) }, 1)));
    expect_same(ctx, co_attention(ctx, x, x, x, 2, NULL),
                co_op_call(ctx, "attention", co_args(ctx, x, x, x),
                           co_dict(ctx, (const char *[]){ "heads" },
                                   (co_value *[]){ co_int(ctx, 2) }, 1)));
}

CO_TEST(a_field_of_the_options_is_set, "")
{
    co_value                 *x = drawn(ctx, 1, 6), *gamma = row(ctx, 2), *beta = row(ctx, 3);
    co_value                 *digit = co_scalar_int32(ctx, 1), *y;
    co_one_hot_options        bits = CO_ONE_HOT_OPTIONS_INIT;
    co_layer_norm_options     rows = CO_LAYER_NORM_OPTIONS_INIT;
    co_random_uniform_options wide = CO_RANDOM_UNIFORM_OPTIONS_INIT;
    co_random_normal_options  far_off = CO_RANDOM_NORMAL_OPTIONS_INIT;
    int                       last = 1;

    bits.dtype = CO_BOOL;
    y = co_one_hot(ctx, digit, 3, &bits);
    CO_EXPECT_INT(co_value_dtype(ctx, y), CO_BOOL);
    CO_EXPECT_BYTES(co_value_data(ctx, y), ((bool[]){ false, true, false }), 3);
    rows.axes = &last;
    rows.num_axes = 1;
    expect_same(ctx, co_layer_norm(ctx, x, gamma, beta, &rows),
                co_layer_norm(ctx, x, gamma, beta, NULL));
    wide.low = 5;
    wide.high = 6;
    y = co_stateless_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(9), (int64_t[]){ 1, 2 }, &wide);
    CO_EXPECT_MORE(co_item_float(ctx, co_reduce_min(ctx, y, CO_ALL_AXES, false)), 4.99);
    far_off.mean = 1000;
    y = co_stateless_random_normal(ctx, CO_FLOAT32, CO_SHAPE(9), (int64_t[]){ 1, 2 }, &far_off);
    CO_EXPECT_MORE(co_item_float(ctx, co_reduce_min(ctx, y, CO_ALL_AXES, false)), 900);
}

CO_TEST(options_without_their_size_are_refused, "")
{
    co_value    *x = drawn(ctx, 1, 6), *r = row(ctx, 2);
    const size_t none[16] = { 0 };
    const void  *bad = none;

    CO_EXPECT_NULL(co_one_hot(ctx, co_scalar_int32(ctx, 1), 3, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 4 (options) of one_hot");
    CO_EXPECT_NULL(co_layer_norm(ctx, x, r, r, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 5 (options) of layer_norm");
    CO_EXPECT_NULL(co_batch_norm_train(ctx, x, r, r, r, r, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 7 (options) of batch_norm_train");
    CO_EXPECT_NULL(co_batch_norm_inference(ctx, x, r, r, r, r, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 7 (options) of batch_norm_inference");
    CO_EXPECT_NULL(co_attention(ctx, x, x, x, 2, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 6 (options) of attention");
    CO_EXPECT_NULL(
        co_stateless_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), (int64_t[]){ 1, 2 }, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "(options) of stateless_random_uniform");
    CO_EXPECT_NULL(
        co_stateless_random_normal(ctx, CO_FLOAT32, CO_SHAPE(2), (int64_t[]){ 1, 2 }, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "(options) of stateless_random_normal");
    CO_EXPECT_NULL(co_dataset_window(ctx, co_dataset_range(ctx, 0, 4, 1), 2, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 4 (options) of dataset_window");
    CO_EXPECT_NULL(co_dataset_padded_batch(ctx, co_dataset_range(ctx, 0, 4, 1), 2, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 4 (options) of dataset_padded_batch");
    CO_EXPECT_NULL(co_dataset_fixed_length_records(ctx, (const char *[]){ "none" }, 1, 2, bad));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "(options) of dataset_fixed_length_records");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TensorFlow 2.21 answers where one could think otherwise, found by
 * scripts/against-tensorflow: defaults that hang on other attributes, empty tensors, strings,
 * windows larger than their image.
 */
#include "test.h"

#include "../../tools/cohort/literal.h"

#include <stdio.h>

/* Inputs are "dtype:value", with ';' between them. The answer is the text of the result, or what
 * the message of CO_INVALID_ARGUMENT says, behind '!'. */
typedef struct answer {
    const char *op, *inputs, *attrs, *expected;
} answer;

/* clang-format off */
static const answer answers[] = {
    /* Without axis, gather takes that of batch_dims. */
    { "gather", "int32:[[1, 2], [3, 4]];int32:[[1], [0]]", "batch_dims=1", "int32[2,1] [[2], [3]]" },
    { "gather", "int32:[[1, 2], [3, 4]];int32:[1]", "", "int32[1,2] [[3, 4]]" },
    { "gather", "int32:[[1, 2], [3, 4]];int32:[[1], [0]]", "batch_dims=-1", "int32[2,1] [[2], [3]]" },
    { "gather_nd", "int32:7;int32:[]", "", "!params have shape []" },
    { "gather_nd", "int32:[[], []];int32:[[], []]", "", "!params have shape [2,0]" },
    { "tensor_scatter_nd_add", "float32:[-0.0, -0.0];int32:[[1]];float32:[0.0]", "",
      "float32[2] [-0.0, 0.0]" },
    { "tensor_scatter_nd_add", "uint8:[250, 1];int32:[[0], [0]];uint8:[5, 3]", "", "uint8[2] [2, 1]" },
    { "tensor_scatter_nd_add", "float32:[[], []];int32:[[0]];float32:[[]]", "", "!without elements" },
    { "tensor_scatter_nd_add", "float32:[1.0];int32:[[1]];float32:[1.0]", "", "!index vector 0" },
    { "tensor_scatter_nd_add", "float32:[1.0];int32:[[0]];float32:[[1.0]]", "", "!updates have shape" },
    { "tensor_scatter_nd_update", "int32:[[], []];int64:[[1]];int32:[[]]", "", "!without elements" },
    { "scatter_nd", "int32:[[0]];int32:[[]]", "shape=[2,0]", "!without elements" },
    { "scatter_nd", "int32:[1];int32:5", "shape=[3]", "!indices are one vector" },
    { "scatter_nd", "int32:[[1], [1], [0]];bool:[true, true, false]", "shape=[3]",
      "bool[3] [false, true, false]" },
    { "tensor_scatter_nd_update", "int32:[7];int32:[0];int32:5", "", "!indices are one vector" },
    /* Half precision rounds each step of the count and of the elements. */
    { "range", "", "start=-0.2 limit=-0.9 delta=-0.2 dtype=bfloat16",
      "bfloat16[4] [-0.200195, -0.400391, -0.601562, -0.800781]" },
    { "range", "", "start=-6.3 limit=13.3 delta=4.9 dtype=bfloat16",
      "bfloat16[4] [-6.3125, -1.40625, 3.5, 8.4375]" },
    /* one_hot has the dtype of its values; those of a bool are bools. */
    { "one_hot", "int32:[1]", "depth=2 on_value=5", "int32[1,2] [[0, 5]]" },
    { "one_hot", "int32:[1]", "depth=2 off_value=3000000000", "int64[1,2] [[3000000000, 1]]" },
    { "one_hot", "int32:[1]", "depth=2 on_value=2.5", "float32[1,2] [[0.0, 2.5]]" },
    { "one_hot", "int32:[1]", "depth=2 on_value=false off_value=true", "bool[1,2] [[true, false]]" },
    { "one_hot", "int32:[1]", "depth=2", "float32[1,2] [[0.0, 1.0]]" },
    { "one_hot", "int32:[1]", "depth=2 dtype=bool", "!dtype bool needs an on_value of true or false" },
    { "one_hot", "int32:[1]", "depth=2 on_value=true", "!dtype bool needs an off_value of true or false" },
    { "one_hot", "int32:[1]", "depth=2 on_value=true off_value=0", "!needs an off_value of true or false" },
    { "one_hot", "int32:[1]", "depth=2 on_value=1.0 dtype=int32",
      "!on_value is a float, 1; for dtype int32 it must be an integer from -2147483648 to 2147483647" },
    /* What does not fit is refused. */
    { "one_hot", "int32:[1]", "depth=2 on_value=300 dtype=uint8",
      "!one_hot: on_value is 300; for dtype uint8 it must be an integer from 0 to 255" },
    { "one_hot", "int32:[1]", "depth=2 off_value=-1 dtype=uint8", "!off_value is -1; for dtype uint8" },
    { "one_hot", "int32:[1]", "depth=2 on_value=255 off_value=0 dtype=uint8", "uint8[1,2] [[0, 255]]" },
    { "one_hot", "int32:[1]", "depth=2 on_value=-128 off_value=127 dtype=int8", "int8[1,2] [[127, -128]]" },
    { "one_hot", "int32:[1]", "depth=2 on_value=10000000000 dtype=int32", "!on_value is 10000000000" },
    { "one_hot", "int32:[1]", "depth=2 on_value=4294967295 dtype=uint32", "uint32[1,2] [[0, 4294967295]]" },
    { "one_hot", "int32:[1]", "depth=2 on_value=-1 dtype=uint64", "!from 0 to 9223372036854775807" },
    { "clip_by_value", "int8:[5]", "min=0.5 max=3",
      "!clip_by_value: min is a float, 0.5; for dtype int8 it must be an integer from -128 to 127" },
    { "clip_by_value", "int8:[5]", "min=0 max=300", "!clip_by_value: max is 300" },
    { "clip_by_value", "float32:[5.0]", "min=0.5 max=300", "float32[1] [5.0]" },
    { "range", "", "start=0 limit=2.5 dtype=int32", "!range: limit is a float, 2.5" },
    { "range", "", "start=0 limit=40000 dtype=int16", "!range: limit is 40000; for dtype int16" },
    { "one_hot", "int32:[1]", "depth=2 on_value=true dtype=float32", "float32[1,2] [[0.0, 1.0]]" },
    { "pad", "bool:[false]", "paddings=[1,0] constant_values=true", "bool[2] [true, false]" },
    { "pad", "bool:[false]", "paddings=[1,0] constant_values=2.5", "!bool" },
    { "pad", "bool:[false]", "paddings=[1,0] constant_values=2", "!from 0 to 1" },
    { "pad", "int8:[1]", "paddings=[1,0] constant_values=1.5", "!pad: constant_values is a float, 1.5" },
    { "pad", "int8:[1]", "paddings=[1,0] constant_values=300", "!pad: constant_values is 300" },
    { "pad", "int8:[1]", "paddings=[1,0] constant_values=0.0", "int8[2] [0, 1]" },
    { "pad", "int8:[1, 2]", "paddings=[1,0] constant_values=300 mode=REFLECT", "int8[3] [2, 1, 2]" },
    { "pad", "int32:[]", "paddings=[0,0] mode=REFLECT", "!axis 0 of x is empty" },
    { "pad", "int32:[]", "paddings=[0,0] mode=SYMMETRIC", "int32[0] [] shape=[0] dtype=int32" },
    { "split", "int32:[1, 2]", "num_or_sizes=[-1]", "!num_or_sizes is [-1]" },
    { "where_index", "int32:1", "", "!x is a scalar" },
    /* Composite operators name their own arguments in errors. */
    { "matvec", "float32:[[1.0, 2.0], [3.0, 4.0]];float32:[1.0, 2.0, 3.0]", "",
      "!matvec: a [2,2] has 2 columns, b [3] vectors of 3" },
    { "matvec", "float32:[[1.0, 2.0]];float32:[1.0, 2.0]", "transpose_a=true",
      "!a [1,2] transposed has 1 column, b [2] vectors of 2" },
    { "matvec", "float32:[[[1.0]], [[2.0]]];float32:[[1.0], [2.0], [3.0]]", "", "!b [3,1]" },
    { "matvec", "float32:[[[1.0]], [[2.0]]];float32:[[3.0]]", "", "float32[2,1] [[3.0], [6.0]]" },
    { "matvec", "float32:[[1.0, 2.0]];float32:[3.0]", "transpose_a=true", "float32[2] [3.0, 6.0]" },
    { "eye", "", "num_rows=2 dtype=string", "!eye: dtype is string" },
    { "eye", "", "num_rows=2 batch_shape=[-1]", "!eye: num_rows is 2, num_columns 2, batch_shape [-1]" },
    { "eye", "", "num_rows=9223372036854775807", "!shape [9223372036854775807,9223372036854775807]" },
    { "eye", "", "num_rows=2 num_columns=3 batch_shape=[2] dtype=int8",
      "int8[2,2,3] [[[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]]]" },
    { "eye", "", "num_rows=3 num_columns=1 dtype=bool", "bool[3,1] [[true], [false], [false]]" },
    { "eye", "", "num_rows=3 num_columns=0", "float32[3,0] [] shape=[3,0] dtype=float32" },
    { "eye", "", "num_rows=1 dtype=bfloat16", "bfloat16[1,1] [[1.0]]" },
    { "concat", "float32:[1.0];float64:[1.0]", "axis=0",
      "!concat: xs[0] has dtype float32 and xs[1] has dtype float64" },
    { "concat", "int32:[1];int32:[1];int8:[1]", "axis=0", "!xs[2] has dtype int8" },
    { "conv2d_transpose", "float32:[[[[1.0]]]];float32:[[[[1.0]]]]", "output_shape=[1,3,3,1]",
      "!conv2d_transpose: x has shape [1,1,1,1]; for output_shape [1,3,3,1] it must be [1,3,3,1]" },
    { "conv2d_transpose", "float32:[[[[1.0]]]];float32:[[[[1.0]]]]", "output_shape=[1,-1,1,1]",
      "!conv2d_transpose: output_shape holds -1" },
    { "conv2d_transpose", "float32:[[[[1.0]]]];float32:[[[[1.0]]]]", "output_shape=[1,1,1,1] strides=0",
      "!conv2d_transpose: strides are 0 and 0" },
    { "conv2d_transpose", "float32:[[[[2.0]]]];float32:[[[[3.0]]]]", "output_shape=[1,2,1,1] strides=2",
      "float32[1,2,1,1] [[[[6.0]], [[0.0]]]]" },
    /* TensorFlow's kernels look at the bits of half precision, and take other subnormals for zero. */
    { "where_index", "bfloat16:[1e-40, 0.0, -0.0]", "", "int64[1,1] [[0]]" },
    { "where_index", "float32:[1e-40, 0.0, 2.0]", "", "int64[1,1] [[2]]" },
    { "cast", "bfloat16:[1e-40, 0.0, nan]", "dtype=bool", "bool[3] [true, false, true]" },
    { "strided_slice", "int32:[1, 2]", "begin=[] end=[] ellipsis_mask=3", "!2 ellipses" },
    { "max_pool2d", "int8:[[[[-7], [3]], [[-128], [2]]]]", "ksize=[2,1] strides=[1,1]",
      "int8[1,1,2,1] [[[[-7], [3]]]]" },
    { "max_pool2d", "int64:[[[[9007199254740993], [9007199254740992]]]]",
      "ksize=[1,2] strides=[1,1] padding=SAME",
      "int64[1,1,2,1] [[[[9007199254740993], [9007199254740992]]]]" },
    { "max_pool2d", "uint32:[[[[1]]]]", "ksize=[1,1] strides=[1,1]", "!dtype uint32" },
    /* Sizes of windows: one for both sides, or four with those of batch and channels, 1. */
    { "max_pool2d", "int8:[[[[1], [2]], [[3], [4]]]]", "ksize=2 strides=[1]", "int8[1,1,1,1] [[[[4]]]]" },
    { "max_pool2d", "int8:[[[[1], [2]], [[3], [4]]]]", "ksize=[1,2,1,1] strides=[1,1,1,1]",
      "int8[1,1,2,1] [[[[3], [4]]]]" },
    { "max_pool2d", "int8:[[[[1]]]]", "ksize=[2,1,1,1] strides=1", "!ksize[0] is 2; for batch and channels" },
    { "max_pool2d", "int8:[[[[1]]]]", "ksize=1 strides=[1,1,1,3]", "!strides[3] is 3" },
    { "max_pool2d", "int8:[[[[1]]]]", "ksize=[1,1,1] strides=1", "!ksize has 3 numbers" },
    { "depthwise_conv2d", "float32:[[[[1.0]]]];float32:[[[[2.0]]]]", "strides=[1,2,3,1]", "!must be equal" },
    { "conv2d", "float32:[[[[1.0]], [[2.0]]]];float32:[[[[2.0]]]]", "strides=2", "float32[1,1,1,1] [[[[2.0]]]]" },
    /* A window larger than its image by two strides is refused, by less it has no result. */
    { "max_pool2d", "int8:[[[[1]]]]", "ksize=[2,1] strides=[1,1]", "int8[1,0,1,1] [] shape=[1,0,1,1] dtype=int8" },
    { "max_pool2d", "int8:[[[[1]]]]", "ksize=[3,1] strides=[1,1]",
      "!a window of 3 x 1 is too large for 1 x 1" },
    { "avg_pool2d", "float32:[[[[1.0]]]]", "ksize=[1,9] strides=[2,2]", "!a window of 1 x 9" },
    { "conv2d", "float32:[[[[1.0]]]];float32:[[[[1.0]]], [[[1.0]]], [[[1.0]]]]", "", "!a window of 3 x 1" },
};
/* clang-format on */

static co_value *
read_inputs(co_context *ctx, const char *text)
{
    co_value *items[4];
    size_t    n = 0;

    while (*text != '\0' && n < 4) {
        char   name[16] = "";
        size_t length = strcspn(text, ":");

        memcpy(name, text, length < sizeof(name) ? length : sizeof(name) - 1);
        text += length + 1;
        items[n] = literal_value(ctx, &text, ";");
        items[n] = co_to_tensor(ctx, items[n], co_dtype_from_name(name));
        ++n;
        text += *text == ';';
    }
    return co_tuple(ctx, items, n);
}

/* "int32[2,1] [[2], [3]]" */
static void
write_tensor(co_context *ctx, co_value *x, char *out, size_t capacity)
{
    size_t n = (size_t)snprintf(out, capacity, "%s[", co_dtype_name(co_value_dtype(ctx, x)));

    for (int d = 0; d < co_value_ndim(ctx, x); ++d)
        n += (size_t)snprintf(out + n, capacity - n, "%s%lld", d > 0 ? "," : "",
                              (long long)co_value_dim(ctx, x, d));
    n += (size_t)snprintf(out + n, capacity - n, "] ");
    co_format(ctx, x, out + n, capacity - n);
}

CO_TEST(answers_are_those_of_tensorflow, "GEN-ERR-4")
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); ++i) {
        const answer *a = &answers[i];
        char          text[200] = "";
        co_value     *inputs = read_inputs(ctx, a->inputs), *result;

        CO_EXPECT_OK(ctx);
        result = co_op_call(ctx, a->op, inputs, literal_attrs(ctx, a->attrs));
        if (a->expected[0] == '!') {
            CO_EXPECT_NULL(result);
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, a->expected + 1);
            continue;
        }
        if (result != NULL)
            write_tensor(ctx, result, text, sizeof(text));
        CO_EXPECT_STR(text, a->expected);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(strings_are_padded_with_empty_ones_and_mirrored, "")
{
    static const char *const texts[] = { "a", "b" };
    co_value                *x = co_tensor(ctx, CO_STRING, CO_SHAPE(2, 1), texts);
    char                     text[100];

    write_tensor(ctx, co_pad(ctx, x, (const int64_t[]){ 0, 1, 1, 0 }, 4, CO_PAD_CONSTANT, 0), text,
                 sizeof(text));
    CO_EXPECT_STR(text, "string[3,2] [[\"\", \"a\"], [\"\", \"b\"], [\"\", \"\"]]");
    CO_EXPECT_NULL(co_pad(ctx, x, (const int64_t[]){ 0, 1, 1, 0 }, 4, CO_PAD_CONSTANT, 9));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "constant_values is 9; for dtype string");
    write_tensor(ctx, co_pad(ctx, x, (const int64_t[]){ 1, 1, 0, 0 }, 4, CO_PAD_REFLECT, 0), text,
                 sizeof(text));
    CO_EXPECT_STR(text, "string[4,1] [[\"b\"], [\"a\"], [\"b\"], [\"a\"]]");
    CO_EXPECT_OK(ctx);
}

/* Bools have no number of their own in C: 1 is true. */
CO_TEST(functions_of_c_make_bools_of_numbers, "")
{
    co_value *x = co_zeros(ctx, CO_BOOL, CO_SHAPE(1));
    char      text[100];

    write_tensor(ctx, co_pad(ctx, x, (const int64_t[]){ 1, 0 }, 2, CO_PAD_CONSTANT, 1), text,
                 sizeof(text));
    CO_EXPECT_STR(text, "bool[2] [true, false]");
    x = co_zeros(ctx, CO_INT32, CO_SHAPE(1));
    write_tensor(ctx,
                 co_one_hot(ctx, x, 2,
                            &(co_one_hot_options){ sizeof(co_one_hot_options), 1, 0, -1, CO_BOOL }),
                 text, sizeof(text));
    CO_EXPECT_STR(text, "bool[1,2] [[true, false]]");
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_one_hot(
        ctx, x, 2, &(co_one_hot_options){ sizeof(co_one_hot_options), 1.5, 0, -1, CO_INT32 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "on_value is a float");
}

/* Limits of int64 are numbers of it, although a double cannot hold all that are near. */
CO_TEST(numbers_of_c_are_whole_up_to_int64, "")
{
    co_value *x = co_tensor(ctx, CO_INT64, CO_SHAPE(1), ((const int64_t[]){ INT64_MAX }));
    char      text[100];

    write_tensor(ctx, co_clip_by_value(ctx, x, -1e18, 1e18), text, sizeof(text));
    CO_EXPECT_STR(text, "int64[1] [1000000000000000000]");
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_clip_by_value(ctx, x, 0, 1e300));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "max is a float, 1e+300; for dtype int64 it must be an integer from "
                    "-9223372036854775808 to 9223372036854775807");
    CO_EXPECT_NULL(co_one_hot(
        ctx, x, 2, &(co_one_hot_options){ sizeof(co_one_hot_options), 0x1p63, 0, -1, CO_INT64 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "on_value is a float, 9.22337e+18");
}

CO_TEST(indices_of_an_axis_too_long_for_their_dtype_are_refused, "")
{
    co_value *x = co_ones(ctx, CO_INT8, CO_SHAPE(1));

    x = co_pad(ctx, x, (const int64_t[]){ 65535, 0 }, 2, CO_PAD_CONSTANT, 0);
    CO_EXPECT_INT(co_item_int(ctx, co_argmax(ctx, x, 0, CO_UINT16)), 65535);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_argmax(ctx, co_zeros(ctx, CO_INT8, CO_SHAPE(2, 65537)), 1, CO_UINT16));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "axis 1 has 65537 elements; output_type uint16 counts up to 65536");
    CO_EXPECT_NULL(co_argmax(ctx, x, 0, CO_INT16));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "output_type int16 counts up to 32768");
}

/* Rows by axis 0 are slices, whose shape has the dtype of the vectors of gather_nd; the same axis
 * counted from the end gives a tensor. */
CO_TEST(gradients_of_gathered_rows_have_their_form, "")
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), *i, *y;
    char      text[100];

    co_tape_begin(ctx);
    co_watch(ctx, x);
    i = co_ones(ctx, CO_INT64, CO_SHAPE(2));
    y = co_gradient(ctx, co_gather(ctx, x, i, 0, 0), x);
    CO_EXPECT_INT(co_value_kind(y), CO_KIND_SLICES);
    CO_EXPECT_INT(co_value_dtype(ctx, co_slices_dense_shape(ctx, y)), CO_INT32);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_gradient(ctx, co_gather(ctx, x, i, -2, 0), x);
    write_tensor(ctx, y, text, sizeof(text));
    CO_EXPECT_STR(text, "float32[3,2] [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]");
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_gradient(ctx, co_gather_nd(ctx, x, co_ones(ctx, CO_INT64, CO_SHAPE(2, 1))), x);
    CO_EXPECT_INT(co_value_dtype(ctx, co_slices_dense_shape(ctx, y)), CO_INT64);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_gradient(ctx, co_gather_nd(ctx, x, co_ones(ctx, CO_INT16, CO_SHAPE(2, 1))), x);
    CO_EXPECT_INT(co_value_dtype(ctx, co_slices_dense_shape(ctx, y)), CO_INT32);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_gradient(ctx, co_gather_nd(ctx, x, co_ones(ctx, CO_INT32, CO_SHAPE(1))), x);
    write_tensor(ctx, y, text, sizeof(text));
    CO_EXPECT_STR(text, "float32[3,2] [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]");
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_gradient(ctx, co_gather_nd(ctx, x, co_ones(ctx, CO_INT32, CO_SHAPE(0))), x);
    write_tensor(ctx, y, text, sizeof(text));
    CO_EXPECT_STR(text, "float32[3,2] [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]");
    CO_EXPECT_OK(ctx);
}

/* Every allocation on the way fails once. */
static bool
use_answers(co_context *ctx)
{
    static const char *const texts[] = { "a", "b" };
    co_value                *x, *i, *y;

    if (ctx == NULL)
        return false;
    x = co_tensor(ctx, CO_STRING, CO_SHAPE(2), texts);
    x = co_pad(ctx, x, (const int64_t[]){ 2, 1 }, 2, CO_PAD_CONSTANT, 0);
    i = co_zeros(ctx, CO_INT64, CO_SHAPE(2, 1));
    y = co_scatter_nd(ctx, i, co_ones(ctx, CO_BOOL, CO_SHAPE(2)), (const int64_t[]){ 3 }, 1);
    return co_format(ctx, x, NULL, 0) > 0 && y != NULL &&
           co_tensor_scatter_nd_add(ctx, co_cast(ctx, y, CO_FLOAT32), i,
                                    co_ones(ctx, CO_FLOAT32, CO_SHAPE(2))) != NULL;
}

CO_TEST_BARE(answers_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, use_answers);
}

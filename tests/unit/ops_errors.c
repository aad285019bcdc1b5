/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators reject, with the right code and a message that names operator, argument, value and
 * repair; and the table that describes them.
 */
#include "ops_support.h"

#include "ops/engine/op.h"

static co_value *
floats(co_context *ctx, const int64_t *dims, int ndim)
{
    return co_ones(ctx, CO_FLOAT32, dims, ndim);
}

#define F(...) floats(ctx, CO_SHAPE(__VA_ARGS__))
#define D(...) co_ones(ctx, CO_FLOAT64, CO_SHAPE(__VA_ARGS__))
#define I(...) co_ones(ctx, CO_INT32, CO_SHAPE(__VA_ARGS__))
#define B(...) co_ones(ctx, CO_BOOL, CO_SHAPE(__VA_ARGS__))
#define BIG    (INT64_C(1) << 62)

OPS_REJECTED(add_shapes, co_add(ctx, F(2, 3), F(2)))
OPS_REJECTED(add_dtypes, co_add(ctx, F(2), D(2)))
OPS_REJECTED(add_bool, co_add(ctx, B(2), B(2)))
OPS_REJECTED(add_string, co_add(ctx, co_string(ctx, "a"), co_string(ctx, "b")))
OPS_REJECTED(equal_dtypes, co_equal(ctx, F(2), I(2)))
OPS_REJECTED(div_bool, co_div(ctx, B(1), B(1)))
OPS_REJECTED(sqrt_int, co_sqrt(ctx, I(3)))
OPS_REJECTED(exp_int, co_exp(ctx, I(3)))
OPS_REJECTED(neg_bool, co_neg(ctx, B(1)))
OPS_REJECTED(neg_unsigned, co_neg(ctx, co_ones(ctx, CO_UINT8, CO_SHAPE(1))))
OPS_REJECTED(relu_bool, co_relu(ctx, B(1)))
OPS_REJECTED(cast_none, co_cast(ctx, F(1), CO_DTYPE_NONE))
OPS_REJECTED(cast_to_string, co_cast(ctx, F(1), CO_STRING))
OPS_REJECTED(cast_from_string, co_cast(ctx, co_string(ctx, "1"), CO_FLOAT32))
OPS_REJECTED(cast_beyond, co_cast(ctx, F(1), (co_dtype)260))
OPS_REJECTED(sum_axis, co_reduce_sum(ctx, F(2, 3), CO_AXES(2), false))
OPS_REJECTED(sum_axis_below, co_reduce_sum(ctx, F(2, 3), CO_AXES(-3), false))
OPS_REJECTED(sum_axis_of_scalar, co_reduce_sum(ctx, co_scalar_float(ctx, 1), CO_AXES(0), false))
OPS_REJECTED(sum_twice, co_reduce_sum(ctx, F(2, 3), CO_AXES(1, -1), false))
OPS_REJECTED(sum_many,
             co_reduce_sum(ctx, F(2), (const int[]){ 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 9, false))
OPS_REJECTED(sum_null, co_reduce_sum(ctx, F(2), NULL, 1, false))
OPS_REJECTED(max_bool, co_reduce_max(ctx, B(2), CO_ALL_AXES, false))
OPS_REJECTED(argmax_axis, co_argmax(ctx, F(2, 3), 2, CO_INT64))
OPS_REJECTED(argmax_empty, co_argmax(ctx, F(0, 3), 0, CO_INT64))
OPS_REJECTED(argmax_dtype, co_argmax(ctx, F(3), 0, CO_FLOAT32))
OPS_REJECTED(reshape_count, co_reshape(ctx, F(2, 3), CO_SHAPE(4)))
OPS_REJECTED(reshape_uneven, co_reshape(ctx, F(2, 3), CO_SHAPE(-1, 4)))
OPS_REJECTED(reshape_negative, co_reshape(ctx, F(2, 3), CO_SHAPE(-2, 3)))
OPS_REJECTED(reshape_two, co_reshape(ctx, F(2, 3), CO_SHAPE(-1, -1)))
OPS_REJECTED(reshape_overflow, co_reshape(ctx, F(2, 3), CO_SHAPE(BIG, 4, 4)))
OPS_REJECTED(reshape_many, co_reshape(ctx, F(1), CO_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1)))
OPS_REJECTED(transpose_short, co_transpose(ctx, F(2, 3), CO_AXES(0)))
OPS_REJECTED(transpose_twice, co_transpose(ctx, F(2, 3), CO_AXES(0, 0)))
OPS_REJECTED(transpose_beyond, co_transpose(ctx, F(2, 3), CO_AXES(0, 2)))
OPS_REJECTED(expand_beyond, co_expand_dims(ctx, F(2, 3), 3))
OPS_REJECTED(expand_below, co_expand_dims(ctx, F(2, 3), -4))
OPS_REJECTED(expand_eight, co_expand_dims(ctx, F(1, 1, 1, 1, 1, 1, 1, 1), 0))
OPS_REJECTED(broadcast_shape, co_broadcast_to(ctx, F(3), CO_SHAPE(2, 2)))
OPS_REJECTED(broadcast_rank, co_broadcast_to(ctx, F(2, 3), CO_SHAPE(3)))
OPS_REJECTED(broadcast_negative, co_broadcast_to(ctx, F(1), CO_SHAPE(-1)))
OPS_REJECTED(broadcast_back, co_broadcast_to(ctx, F(2), CO_SHAPE(1)))
OPS_REJECTED(broadcast_overflow, co_broadcast_to(ctx, F(1), CO_SHAPE(BIG, 8)))
OPS_REJECTED(concat_shapes, co_concat(ctx, co_args(ctx, F(2, 3), F(2, 2)), 0))
OPS_REJECTED(concat_ranks, co_concat(ctx, co_args(ctx, F(2, 3), F(3)), 0))
OPS_REJECTED(concat_axis, co_concat(ctx, co_args(ctx, F(2, 3), F(2, 3)), -3))
OPS_REJECTED(concat_scalars, co_concat(ctx, co_args(ctx, co_scalar_float(ctx, 1)), 0))
OPS_REJECTED(concat_dtypes, co_concat(ctx, co_args(ctx, F(2), I(2)), 0))
OPS_REJECTED(concat_nothing, co_concat(ctx, co_no_args(ctx), 0))
OPS_REJECTED(slice_size, co_slice(ctx, F(5), (const int64_t[]){ 2 }, (const int64_t[]){ 4 }, 1))
OPS_REJECTED(slice_begin, co_slice(ctx, F(5), (const int64_t[]){ -1 }, (const int64_t[]){ 1 }, 1))
OPS_REJECTED(slice_rank,
             co_slice(ctx, F(5), (const int64_t[]){ 1, 1 }, (const int64_t[]){ 1, 1 }, 2))
OPS_REJECTED(slice_huge,
             co_slice(ctx, F(5), (const int64_t[]){ 1 }, (const int64_t[]){ INT64_MAX }, 1))
OPS_REJECTED(slice_null, co_slice(ctx, F(5), NULL, (const int64_t[]){ 1 }, 1))
OPS_REJECTED(gather_index,
             co_gather(ctx, F(4, 2),
                       co_tensor(ctx, CO_INT32, CO_SHAPE(2), ((const int32_t[]){ 0, 4 })), 0, 0))
OPS_REJECTED(gather_negative, co_gather(ctx, F(4, 2), co_scalar_int32(ctx, -1), 0, 0))
OPS_REJECTED(gather_dtype, co_gather(ctx, F(4, 2), F(1), 0, 0))
OPS_REJECTED(gather_axis, co_gather(ctx, F(4, 2), I(1), 2, 0))
OPS_REJECTED(gather_batch, co_gather(ctx, F(4, 2), I(4), 0, 1))
OPS_REJECTED(gather_batch_dims, co_gather(ctx, F(4, 2), I(3, 1), 1, 1))
OPS_REJECTED(gather_rank, co_gather(ctx, F(1, 1, 1, 1, 1, 1, 1), I(1, 1, 1), 0, 0))
OPS_REJECTED(one_hot_depth, co_one_hot(ctx, I(1), -1, NULL))
OPS_REJECTED(one_hot_float, co_one_hot(ctx, F(1), 3, NULL))
OPS_REJECTED(one_hot_axis, co_one_hot(ctx, I(1), 3,
                                      &(co_one_hot_options){ sizeof(co_one_hot_options), 1, 0, 2,
                                                             CO_DTYPE_NONE }))
OPS_REJECTED(one_hot_dtype,
             co_one_hot(ctx, I(1), 3,
                        &(co_one_hot_options){ sizeof(co_one_hot_options), 1, 0, -1, CO_STRING }))
OPS_REJECTED(one_hot_overflow, co_one_hot(ctx, I(4), BIG, NULL))
OPS_REJECTED(range_zero,
             co_range(ctx, co_int(ctx, 0), co_int(ctx, 5), co_int(ctx, 0), CO_DTYPE_NONE))
OPS_REJECTED(range_away,
             co_range(ctx, co_int(ctx, 5), co_int(ctx, 0), co_int(ctx, 1), CO_DTYPE_NONE))
OPS_REJECTED(range_up,
             co_range(ctx, co_float(ctx, 0), co_float(ctx, 1), co_float(ctx, -1), CO_DTYPE_NONE))
OPS_REJECTED(range_nan, co_range(ctx, co_float(ctx, 0), co_float(ctx, (double)NAN),
                                 co_float(ctx, 1), CO_DTYPE_NONE))
OPS_REJECTED(range_part,
             co_range(ctx, co_float(ctx, 0.5), co_int(ctx, 3), co_int(ctx, 1), CO_INT32))
OPS_REJECTED(range_wide, co_range(ctx, co_int(ctx, 0), co_int(ctx, 300), co_int(ctx, 1), CO_INT8))
OPS_REJECTED(range_bool,
             co_range(ctx, co_int(ctx, 0), co_bool(ctx, true), co_int(ctx, 1), CO_DTYPE_NONE))
OPS_REJECTED(range_dtype, co_range(ctx, co_int(ctx, 0), co_int(ctx, 3), co_int(ctx, 1), CO_STRING))
OPS_REJECTED(range_vector, co_range(ctx, co_int(ctx, 0), I(2), co_int(ctx, 1), CO_DTYPE_NONE))
OPS_REJECTED(range_huge, co_range(ctx, co_int(ctx, INT64_MIN), co_int(ctx, INT64_MAX),
                                  co_int(ctx, 1), CO_INT64))
OPS_REJECTED(fill_negative, co_fill(ctx, CO_SHAPE(-1, 2), co_float(ctx, 1)))
OPS_REJECTED(fill_vector, co_fill(ctx, CO_SHAPE(2), F(2)))
OPS_REJECTED(zeros_negative, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(-1)))
OPS_REJECTED(zeros_none, co_zeros(ctx, CO_DTYPE_NONE, CO_SHAPE(1)))
OPS_REJECTED(zeros_beyond, co_zeros(ctx, (co_dtype)99, CO_SHAPE(1)))
OPS_REJECTED(zeros_overflow, co_zeros(ctx, CO_FLOAT64, CO_SHAPE(BIG, 2)))
OPS_REJECTED(zeros_null, co_zeros(ctx, CO_FLOAT64, NULL, 2))
OPS_REJECTED(ones_string, co_ones(ctx, CO_STRING, CO_SHAPE(1)))

static const ops_rejection rejections[] = {
    OPS_REJECTION(add_shapes, "add: shapes [2,3] of x and [2] of y"),
    OPS_REJECTION(add_dtypes, "float32 and y has dtype float64"),
    OPS_REJECTION(add_bool, "add: x has dtype bool; it must be one of int8"),
    OPS_REJECTION(add_string, "add: x has dtype string"),
    OPS_REJECTION(equal_dtypes, "equal: x has dtype float32 and y has dtype int32"),
    OPS_REJECTION(div_bool, "div: x has dtype bool"),
    OPS_REJECTION(sqrt_int, "sqrt: x has dtype int32"),
    OPS_REJECTION(exp_int, "exp: x has dtype int32"),
    OPS_REJECTION(neg_bool, "neg: x has dtype bool"),
    OPS_REJECTION(neg_unsigned, "neg: x has dtype uint8"),
    OPS_REJECTION(relu_bool, "relu: x has dtype bool"),
    OPS_REJECTION(cast_none, "cast: dtype is none"),
    OPS_REJECTION(cast_to_string, "cast: dtype is string"),
    OPS_REJECTION(cast_from_string, "cast: x has dtype string"),
    OPS_REJECTION(cast_beyond, "cast: dtype is invalid"),
    OPS_REJECTION(sum_axis, "reduce_sum: axis 2 is not in [-2, 2), the axes of a tensor of rank 2"),
    OPS_REJECTION(sum_axis_below, "axis -3 is not in [-2, 2)"),
    OPS_REJECTION(sum_axis_of_scalar, "axis 0 for a tensor of rank 0"),
    OPS_REJECTION(sum_twice, "axis 1 is given twice"),
    OPS_REJECTION(sum_many, "axes has 9 entries; it must have 0 to 8"),
    OPS_REJECTION(sum_null, "axes is NULL with 1 entry"),
    OPS_REJECTION(max_bool, "reduce_max: x has dtype bool"),
    OPS_REJECTION(argmax_axis, "argmax: axis 2 is not in [-2, 2)"),
    OPS_REJECTION(argmax_empty, "axis 0 of shape [0,3] is empty"),
    OPS_REJECTION(argmax_dtype, "output_type is float32; it must be int64, int32, int16 or uint16"),
    OPS_REJECTION(reshape_count, "x has 6 elements, which do not make the shape [4]"),
    OPS_REJECTION(reshape_uneven, "x has 6 elements, which do not make the shape [-1,4]"),
    OPS_REJECTION(reshape_negative, "shape [-2,3]"),
    OPS_REJECTION(reshape_two, "one dimension may be -1"),
    OPS_REJECTION(reshape_overflow, "more elements than 64 bits can count"),
    OPS_REJECTION(reshape_many, "dims has 9 entries; it must have 0 to 8"),
    OPS_REJECTION(transpose_short, "perm [0] has 1 entry for a tensor of rank 2"),
    OPS_REJECTION(transpose_twice, "perm [0,0] is no order of the axes 0 to 1"),
    OPS_REJECTION(transpose_beyond, "perm [0,2]"),
    OPS_REJECTION(expand_beyond, "axis 3 is not in [-3, 3)"),
    OPS_REJECTION(expand_below, "axis -4 is not in [-3, 3)"),
    OPS_REJECTION(expand_eight, "x has 8 dimensions already"),
    OPS_REJECTION(broadcast_shape, "x of shape [3] does not become [2,2]"),
    OPS_REJECTION(broadcast_rank, "x of shape [2,3] does not become [3]"),
    OPS_REJECTION(broadcast_negative, "shape [-1]"),
    OPS_REJECTION(broadcast_back, "x of shape [2] does not become [1]"),
    OPS_REJECTION(broadcast_overflow, ""),
    OPS_REJECTION(concat_shapes, "shapes [2,3] of xs[0] and [2,2] of xs[1] differ outside axis 0"),
    OPS_REJECTION(concat_ranks, "shapes [2,3] of xs[0] and [3] of xs[1]"),
    OPS_REJECTION(concat_axis, "axis -3 is not in [-2, 2)"),
    OPS_REJECTION(concat_scalars, "axis 0 for a tensor of rank 0"),
    OPS_REJECTION(concat_dtypes, "xs[0] has dtype float32 and xs[1] has dtype int32"),
    OPS_REJECTION(concat_nothing, "concat: 0 inputs; it takes at least 1"),
    OPS_REJECTION(slice_size, "size[0] is 4; from begin[0] = 2 it must be in [0, 3], or -1"),
    OPS_REJECTION(slice_begin, "begin[0] is -1; it must be in [0, 5]"),
    OPS_REJECTION(slice_rank, "begin has 2 entries and size 2; the rank of x is 1"),
    OPS_REJECTION(slice_huge, "size[0] is 9223372036854775807"),
    OPS_REJECTION(slice_null, "begin is NULL"),
    OPS_REJECTION(gather_index, "indices[1] is 4; it must be in [0, 4)"),
    OPS_REJECTION(gather_negative, "indices[0] is -1; it must be in [0, 4)"),
    OPS_REJECTION(gather_dtype, "indices have dtype float32"),
    OPS_REJECTION(gather_axis, "axis 2 is not in [-2, 2)"),
    OPS_REJECTION(gather_batch, "batch_dims is 1; it must be at most axis, 0"),
    OPS_REJECTION(gather_batch_dims, "dimension 0 is 4 in params and 3 in indices"),
    OPS_REJECTION(gather_rank, "9 dimensions; at most 8"),
    OPS_REJECTION(one_hot_depth, "depth is -1; it must be at least 0"),
    OPS_REJECTION(one_hot_float, "one_hot: indices has dtype float32"),
    OPS_REJECTION(one_hot_axis, "axis 2 is not in [-2, 2)"),
    OPS_REJECTION(one_hot_dtype, "dtype is string"),
    OPS_REJECTION(one_hot_overflow, ""),
    OPS_REJECTION(range_zero, "delta is 0"),
    OPS_REJECTION(range_away, "delta 1 does not lead from start 5 to limit 0"),
    OPS_REJECTION(range_up, "delta -1 does not lead from start 0 to limit 1"),
    OPS_REJECTION(range_nan, "must be finite"),
    OPS_REJECTION(range_part, "start is a float, 0.5; for dtype int32 it must be an integer"),
    OPS_REJECTION(range_wide,
                  "limit is 300; for dtype int8 it must be an integer from -128 to 127"),
    OPS_REJECTION(range_bool, "not bool"),
    OPS_REJECTION(range_dtype, "dtype is string"),
    OPS_REJECTION(range_vector, "limit has rank 1"),
    OPS_REJECTION(range_huge, "more than a tensor can have"),
    OPS_REJECTION(fill_negative, "shape [-1,2]: dimensions must be at least 0"),
    OPS_REJECTION(fill_vector, "value has rank 1; it must be a scalar"),
    OPS_REJECTION(zeros_negative, "shape [-1]"),
    OPS_REJECTION(zeros_none, "dtype is none"),
    OPS_REJECTION(zeros_beyond, "dtype is invalid"),
    OPS_REJECTION(zeros_overflow, ""),
    OPS_REJECTION(zeros_null, "dims is NULL with 2 entries"),
    OPS_REJECTION(ones_string, "dtype is string"),
};

CO_TEST(operators_reject_with_a_reason, "GEN-ERR-3 GEN-ERR-4")
{
    ops_expect_rejections(ctx, rejections, sizeof(rejections) / sizeof(rejections[0]));
}

/* The same through the reference kernels and with a tape open: nothing may depend on either. */
CO_TEST_WITH(errors_are_the_same_everywhere, "GEN-ERR-4", "reference_kernels=yes")
{
    co_tape_begin_persistent(ctx);
    ops_expect_rejections(ctx, rejections, sizeof(rejections) / sizeof(rejections[0]));
    co_tape_end(ctx);
}

CO_TEST(null_operands_are_named, "")
{
    co_value *x = co_scalar_float(ctx, 1);

    CO_EXPECT_NULL(co_add(ctx, x, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (y)");
    CO_EXPECT_NULL(co_neg(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (x)");
    CO_EXPECT_NULL(co_concat(ctx, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (xs)");
    CO_EXPECT_NULL(co_range(ctx, co_int(ctx, 0), NULL, co_int(ctx, 1), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (limit)");
    CO_EXPECT_NULL(co_fill(ctx, CO_SHAPE(2), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 4 (value)");
    CO_EXPECT_NULL(co_add(NULL, x, x));
    CO_EXPECT_NULL(co_reshape(NULL, x, NULL, 0));
    CO_EXPECT_NULL(co_zeros(NULL, CO_FLOAT32, NULL, 0));
}

CO_TEST(values_that_are_no_tensors_are_rejected, "")
{
    const char *const keys[] = { "a" };
    co_value         *one = co_int(ctx, 1);

    CO_EXPECT_NULL(co_neg(ctx, co_dict(ctx, keys, &one, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dict");
    CO_EXPECT_NULL(co_neg(ctx, co_none(ctx)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
    CO_EXPECT_NULL(co_concat(ctx, one, 0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "list or tuple");
}

/* While there is an error, operators do nothing. */
CO_TEST(the_first_error_stays, "GEN-ERR-1")
{
    CO_EXPECT_NULL(co_sqrt(ctx, co_add(ctx, F(2), F(3))));
    CO_EXPECT_NULL(co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "add: shapes [2]");
}

/* Entries with an effect act on a resource, but for those that make tensors in another way than by
 * a kernel. */
static bool
makes_tensors(const coi_op *op)
{
    static const char *const names[] = { "copy_to_device", "download",         "make_tensor",
                                         "multiply_rows",  "slices_to_tensor", "stack_values",
                                         "upload" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if (strcmp(names[i], op->name) == 0)
            return true;
    return false;
}

CO_TEST(the_table_is_in_order_and_complete, "")
{
    for (size_t i = 0; i < coi_num_ops; ++i) {
        const coi_op *op = coi_op_table[i];
        size_t        num_attrs = 0;

        if (i > 0 && strcmp(coi_entry_name(coi_op_table[i - 1]), coi_entry_name(op)) >= 0)
            test_fail(TEST_AT, "%s stands after %s", coi_entry_name(op),
                      coi_entry_name(coi_op_table[i - 1]));
        CO_EXPECT_PTR(coi_op_find(coi_entry_name(op)), op);
        if (op->entry != NULL && (coi_op_find(op->name) == NULL || !op->internal))
            test_fail(TEST_AT, "%s is a variant of nothing", op->entry);
        if (op->training != NULL)
            CO_EXPECT_PTR(coi_op_find(coi_entry_name(op->training)), op->training);
        if (coi_is_by_name(op) && op->attrs_rule.size > 0 && op->attrs == NULL)
            test_fail(TEST_AT, "attributes of %s cannot be given by name", op->name);
        if (op->doc == NULL || strlen(op->doc) < 4 || strchr(op->doc, '\n') != NULL)
            test_fail(TEST_AT, "%s has no line of documentation", op->name);
        if (op->effect != NULL) {
            CO_EXPECT_TRUE(op->internal && op->infer == NULL && op->ref == NULL);
            /* Calls of captured functions start other entries, which say what they act on. */
            if (op->replay == NULL)
                CO_EXPECT_TRUE(((op->reads | op->writes) == 0) == makes_tensors(op));
            continue;
        }
        if (op->infer == NULL)
            test_fail(TEST_AT, "%s lacks its rule", op->name);
        if (op->composite != NULL ? op->view || op->ref != NULL || op->run != NULL
                                  : (op->ref == NULL) != op->view)
            test_fail(TEST_AT, "%s lacks its reference kernel", op->name);
        if ((op->num_outputs == 0) != (op->infer_result != NULL) ||
            op->num_outputs > COI_MAX_OUTPUTS)
            test_fail(TEST_AT, "%s has %d outputs", op->name, op->num_outputs);
        for (int k = 0; k < op->num_inputs; ++k)
            CO_EXPECT_NOT_NULL(op->inputs[k]);
        for (const coi_attr *attr = op->attrs; attr != NULL && attr->name != NULL;
             ++attr, ++num_attrs) {
            const char *text = op->attr_texts != NULL ? op->attr_texts[num_attrs] : NULL;

            if (text == NULL || strncmp(text, attr->name, strlen(attr->name)) != 0 ||
                text[strlen(attr->name)] != ':')
                test_fail(TEST_AT, "%s: the attribute %s has no text", op->name, attr->name);
            if (attr->offset >= op->attrs_rule.size)
                test_fail(TEST_AT, "%s: the attribute %s lies outside its struct", op->name,
                          attr->name);
        }
    }
    CO_EXPECT_NULL(coi_op_find("no such operator"));
    CO_EXPECT_NULL(coi_op_find(""));
}

CO_TEST(operators_describe_themselves, "")
{
    co_op_info info = CO_OP_INFO_INIT;
    bool       found = false;

    CO_EXPECT_INT(co_num_ops(), coi_num_ops);
    CO_EXPECT_FALSE(co_op_describe(co_num_ops(), &info));
    CO_EXPECT_FALSE(co_op_describe(0, NULL));
    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (strcmp(info.name, "reduce_sum") == 0) {
            found = true;
            CO_EXPECT_INT(info.num_inputs, 1);
            CO_EXPECT_STR(info.inputs[0], "x");
            CO_EXPECT_INT(info.num_attrs, 2);
            CO_EXPECT_STR(info.attrs[0], "axis:ints=null");
            CO_EXPECT_STR(info.attrs[1], "keepdims:bool=false");
            CO_EXPECT_TRUE(info.differentiable);
            CO_EXPECT_FALSE(info.internal);
        }
    CO_EXPECT_TRUE(found);
}

/* Every allocation on the way fails once. */
static bool
make_and_use(co_context *ctx)
{
    co_value *x, *y;

    if (ctx == NULL)
        return false;
    x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(40, 30));
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_reduce_sum(ctx, co_tanh(ctx, co_transpose(ctx, x, NULL, 0)), CO_AXES(0), false);
    y = co_concat(ctx, co_args(ctx, y, co_gather(ctx, x, co_scalar_int32(ctx, 3), 1, 0)), 0);
    return co_gradient(ctx, y, x) != NULL;
}

CO_TEST_BARE(operators_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, make_and_use);
}

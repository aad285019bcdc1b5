/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What composite operators refuse, by name of operator and argument; operands that
 * are no tensors; special numbers; and memory that runs out on the way.
 */
#include "ops_support.h"

#include "ops/engine/op.h"

#define F(...) co_ones(ctx, CO_FLOAT32, CO_SHAPE(__VA_ARGS__))
#define D(...) co_ones(ctx, CO_FLOAT64, CO_SHAPE(__VA_ARGS__))
#define I(...) co_ones(ctx, CO_INT32, CO_SHAPE(__VA_ARGS__))
#define B(...) co_ones(ctx, CO_BOOL, CO_SHAPE(__VA_ARGS__))
#define DIMS(...)                                                                                  \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define XS(...) co_args(ctx, __VA_ARGS__)
#define BIG     (INT64_C(1) << 62)

static co_value *
text_tensor(co_context *ctx)
{
    static const char *const texts[] = { "a", "b" };

    return co_tensor(ctx, CO_STRING, CO_SHAPE(2), texts);
}

OPS_REJECTED(min_axis, co_reduce_min(ctx, F(2), CO_AXES(1), false))
OPS_REJECTED(min_bool, co_reduce_min(ctx, B(2), CO_ALL_AXES, false))
OPS_REJECTED(all_int, co_reduce_all(ctx, I(2), CO_ALL_AXES, false))
OPS_REJECTED(any_axis, co_reduce_any(ctx, B(2), CO_AXES(-2), false))
OPS_REJECTED(std_int, co_reduce_std(ctx, I(2), CO_ALL_AXES, false))
OPS_REJECTED(variance_twice, co_reduce_variance(ctx, F(2, 2), CO_AXES(0, 0), false))
OPS_REJECTED(moments_null, co_moments(ctx, F(2), NULL, 2, false))
OPS_REJECTED(argmin_empty, co_argmin(ctx, F(0), 0, CO_INT64))
OPS_REJECTED(argmin_dtype, co_argmin(ctx, F(2), 0, CO_FLOAT32))
OPS_REJECTED(cumsum_axis, co_cumsum(ctx, F(2), 1, false, false))
OPS_REJECTED(cumprod_bool, co_cumprod(ctx, B(2), 0, false, false))
OPS_REJECTED(top_k_many, co_top_k(ctx, F(3), 4))
OPS_REJECTED(top_k_scalar, co_top_k(ctx, co_scalar_float(ctx, 1), 1))
OPS_REJECTED(sort_axis, co_sort(ctx, F(3), 1, false))
OPS_REJECTED(argsort_bool, co_argsort(ctx, B(3), 0, false))
OPS_REJECTED(softmax_axis, co_log_softmax(ctx, F(3), 1))
OPS_REJECTED(entropy_shapes, co_softmax_cross_entropy(ctx, F(2, 3), F(2, 4), -1))
OPS_REJECTED(entropy_rank, co_softmax_cross_entropy(ctx, F(3), F(2, 3), -1))
OPS_REJECTED(entropy_axis, co_softmax_cross_entropy(ctx, F(2, 3), F(2, 3), 2))
OPS_REJECTED(sigmoid_shapes, co_sigmoid_cross_entropy(ctx, F(3), F(2, 3)))
OPS_REJECTED(sigmoid_dtypes, co_sigmoid_cross_entropy(ctx, F(3), D(3)))
OPS_REJECTED(mse_scalar, co_mse(ctx, co_scalar_float(ctx, 1), co_scalar_float(ctx, 1)))
OPS_REJECTED(mse_shapes, co_mse(ctx, F(2), F(3)))
OPS_REJECTED(l2_int, co_l2_loss(ctx, I(2)))
OPS_REJECTED(where_cond, co_where(ctx, F(2), F(2), F(2)))
OPS_REJECTED(where_dtypes, co_where(ctx, B(2), F(2), D(2)))
OPS_REJECTED(norm_shapes, co_layer_norm(ctx, F(2, 3), F(2), F(3), NULL))
OPS_REJECTED(norm_axis, co_layer_norm(ctx, F(2, 3), F(3), F(3),
                                      &(co_layer_norm_options){ sizeof(co_layer_norm_options),
                                                                CO_AXES(2), 1e-3 }))
OPS_REJECTED(norm_larger, co_batch_norm_inference(ctx, F(3), F(3), F(3), F(2, 3), F(3), NULL))
OPS_REJECTED(norm_train,
             co_batch_norm_train(ctx, F(2, 3), F(4), F(3), F(3), F(3),
                                 &(co_batch_norm_options){ sizeof(co_batch_norm_options),
                                                           CO_AXES(0), 0.9, 1e-3 }))
OPS_REJECTED(norm_train_null,
             co_batch_norm_train(ctx, F(2), F(1), F(1), F(1), F(1),
                                 &(co_batch_norm_options){ sizeof(co_batch_norm_options), NULL, 1,
                                                           0.9, 1e-3 }))
OPS_REJECTED(fused_rank, co_fused_batch_norm_train(ctx, F(3), F(3), F(3), 1e-3))
OPS_REJECTED(l2_axis, co_l2_normalize(ctx, F(3), CO_AXES(1), 1e-12))
OPS_REJECTED(clip_axis, co_clip_by_norm(ctx, F(3), CO_AXES(3), 1))
OPS_REJECTED(clip_half, co_clip_by_value(ctx, I(3), 0.5, 2))
OPS_REJECTED(add_n_shapes, co_add_n(ctx, XS(F(2), F(3))))
OPS_REJECTED(add_n_none, co_add_n(ctx, co_list(ctx, NULL, 0)))
OPS_REJECTED(stack_shapes, co_stack(ctx, XS(F(2), F(3)), 0))
OPS_REJECTED(stack_axis, co_stack(ctx, XS(F(2), F(2)), 2))
OPS_REJECTED(stack_rank, co_stack(ctx, XS(F(1, 1, 1, 1, 1, 1, 1, 1)), 0))
OPS_REJECTED(squeeze_axis, co_squeeze(ctx, F(1, 3), CO_AXES(2)))
OPS_REJECTED(squeeze_large, co_squeeze(ctx, F(1, 3), CO_AXES(1)))
OPS_REJECTED(unstack_axis, co_unstack(ctx, F(3), 1))
OPS_REJECTED(split_number, co_split(ctx, F(4), 3, 0))
OPS_REJECTED(split_zero, co_split(ctx, F(4), 0, 0))
OPS_REJECTED(split_axis, co_split(ctx, F(4), 2, 1))
OPS_REJECTED(split_sum, co_split_sizes(ctx, F(4), DIMS(1, 2), 2, 0))
OPS_REJECTED(split_two, co_split_sizes(ctx, F(4), DIMS(-1, -1), 2, 0))
OPS_REJECTED(split_null, co_split_sizes(ctx, F(4), NULL, 2, 0))
OPS_REJECTED(split_many, co_split_sizes(ctx, F(4), DIMS(4), 33, 0))
OPS_REJECTED(slice_zero, co_strided_slice(ctx, F(4), DIMS(0), DIMS(4), DIMS(0), 1, NULL))
OPS_REJECTED(slice_entries, co_strided_slice(ctx, F(4), DIMS(0, 0), DIMS(4, 4), NULL, 2, NULL))
OPS_REJECTED(reverse_axis, co_reverse(ctx, F(4), CO_AXES(1)))
OPS_REJECTED(reverse_twice, co_reverse(ctx, F(4), CO_AXES(0, -1)))
OPS_REJECTED(roll_axis, co_roll(ctx, F(4), DIMS(1), (const int[]){ 1 }, 1))
OPS_REJECTED(tile_rank, co_tile(ctx, F(4), DIMS(1, 1), 2))
OPS_REJECTED(tile_negative, co_tile(ctx, F(4), DIMS(-1), 1))
OPS_REJECTED(tile_overflow, co_tile(ctx, F(4), DIMS(BIG), 1))
OPS_REJECTED(pad_rank, co_pad(ctx, F(4), DIMS(1), 1, CO_PAD_CONSTANT, 0))
OPS_REJECTED(pad_negative, co_pad(ctx, F(4), DIMS(-1, 0), 2, CO_PAD_CONSTANT, 0))
OPS_REJECTED(pad_huge, co_pad(ctx, F(4), DIMS(0, BIG), 2, CO_PAD_CONSTANT, 0))
OPS_REJECTED(segment_huge, co_unsorted_segment_sum(ctx, F(3), I(3), BIG))
OPS_REJECTED(matvec_dtype, co_matvec(ctx, B(2, 2), B(2), false))
OPS_REJECTED(pad_reflect, co_pad(ctx, F(4), DIMS(4, 0), 2, CO_PAD_REFLECT, 0))
OPS_REJECTED(pad_symmetric, co_pad(ctx, F(4), DIMS(5, 0), 2, CO_PAD_SYMMETRIC, 0))
OPS_REJECTED(pad_mode, co_pad(ctx, F(4), DIMS(1, 0), 2, (co_pad_mode)7, 0))
OPS_REJECTED(pad_null, co_pad(ctx, F(4), NULL, 2, CO_PAD_CONSTANT, 0))
OPS_REJECTED(band_rank, co_band_part(ctx, F(4), 0, 0))
OPS_REJECTED(band_rows, co_band_part(ctx, F(4, 4), 5, 0))
OPS_REJECTED(gather_nd_dtype, co_gather_nd(ctx, F(4), F(1, 1)))
OPS_REJECTED(gather_nd_scalar, co_gather_nd(ctx, F(4), co_scalar_int32(ctx, 1)))
OPS_REJECTED(gather_nd_long, co_gather_nd(ctx, F(4), I(1, 2)))
OPS_REJECTED(gather_nd_outside, co_gather_nd(ctx, F(2, 1), I(1, 2)))
OPS_REJECTED(gather_nd_rank, co_gather_nd(ctx, F(1, 1, 1, 1, 1), I(1, 1, 1, 1, 1, 1)))
OPS_REJECTED(scatter_nd_updates, co_scatter_nd(ctx, I(2, 1), F(3), DIMS(4), 1))
OPS_REJECTED(scatter_nd_outside, co_scatter_nd(ctx, I(2, 1), F(2), DIMS(1), 1))
OPS_REJECTED(scatter_nd_negative, co_scatter_nd(ctx, I(2, 1), F(2), DIMS(-1), 1))
OPS_REJECTED(scatter_nd_huge, co_scatter_nd(ctx, I(2, 1), F(2), DIMS(BIG, 4), 2))
OPS_REJECTED(scatter_nd_string, co_scatter_nd(ctx, I(2, 1), text_tensor(ctx), DIMS(4), 1))
OPS_REJECTED(scatter_add_dtypes, co_tensor_scatter_nd_add(ctx, F(4), I(2, 1), D(2)))
OPS_REJECTED(scatter_update_outside, co_tensor_scatter_nd_update(ctx, F(1), I(2, 1), F(2)))
OPS_REJECTED(segment_ids, co_unsorted_segment_sum(ctx, F(3), F(3), 2))
OPS_REJECTED(segment_shape, co_unsorted_segment_sum(ctx, F(3), I(2), 2))
OPS_REJECTED(segment_outside, co_unsorted_segment_sum(ctx, F(3), I(3), 1))
OPS_REJECTED(segment_negative, co_unsorted_segment_sum(ctx, F(3), I(3), -1))
OPS_REJECTED(lookup_outside, co_embedding_lookup(ctx, F(1, 2), I(1)))
OPS_REJECTED(index_string, co_where_index(ctx, text_tensor(ctx)))
OPS_REJECTED(eye_negative, co_eye(ctx, CO_FLOAT32, -2, -1))
OPS_REJECTED(eye_dtype, co_eye(ctx, (co_dtype)260, 2, -1))
OPS_REJECTED(linspace_num, co_linspace(ctx, CO_FLOAT32, 0, 1, -1))
OPS_REJECTED(linspace_dtype, co_linspace(ctx, CO_INT32, 0, 1, 2))
OPS_REJECTED(matvec_rank, co_matvec(ctx, F(3), F(3), false))
OPS_REJECTED(matvec_shapes, co_matvec(ctx, F(2, 3), F(4), false))
OPS_REJECTED(einsum_null, co_einsum(ctx, NULL, XS(F(3))))
OPS_REJECTED(einsum_terms, co_einsum(ctx, "i,j->i", XS(F(3))))
OPS_REJECTED(einsum_too_few, co_einsum(ctx, "i->i", XS(F(3), F(3))))
OPS_REJECTED(einsum_sizes, co_einsum(ctx, "ij,jk->ik", XS(F(2, 3), F(2, 3))))
OPS_REJECTED(einsum_rank, co_einsum(ctx, "ij->i", XS(F(3))))
OPS_REJECTED(einsum_unknown, co_einsum(ctx, "ij->ijk", XS(F(2, 3))))
OPS_REJECTED(einsum_twice, co_einsum(ctx, "ij->ii", XS(F(2, 3))))
OPS_REJECTED(einsum_sign, co_einsum(ctx, "i1->i", XS(F(2, 3))))
OPS_REJECTED(einsum_arrow, co_einsum(ctx, "ij-i", XS(F(2, 3))))
OPS_REJECTED(einsum_behind, co_einsum(ctx, "ij->i,j", XS(F(2, 3))))
OPS_REJECTED(einsum_dots, co_einsum(ctx, "..i->i", XS(F(2, 3))))
OPS_REJECTED(einsum_ellipsis, co_einsum(ctx, "...i->i", XS(F(2, 3))))
OPS_REJECTED(depthwise_channels, co_depthwise_conv2d(ctx, F(1, 4, 4, 2), F(3, 3, 3, 1), NULL))
OPS_REJECTED(depthwise_rank, co_depthwise_conv2d(ctx, F(4, 4, 2), F(3, 3, 2, 1), NULL))
OPS_REJECTED(transpose_channels,
             co_conv2d_transpose(ctx, F(1, 2, 2, 1), F(3, 3, 1, 1), DIMS(1, 4, 4, 2), NULL))
OPS_REJECTED(transpose_sizes,
             co_conv2d_transpose(ctx, F(1, 2, 2, 1), F(3, 3, 1, 1), DIMS(1, 9, 9, 1), NULL))
OPS_REJECTED(pool_rank, co_avg_pool2d(ctx, F(4, 4, 1), NULL))
OPS_REJECTED(pool_int, co_avg_pool2d(ctx, I(1, 4, 4, 1), NULL))
OPS_REJECTED(dropout_rate, co_dropout(ctx, F(2), 1))
OPS_REJECTED(dropout_int, co_dropout(ctx, I(2), 0.5))

static const ops_rejection rejections[] = {
    OPS_REJECTION(min_axis, "reduce_min: axis 1"),
    OPS_REJECTION(min_bool, "reduce_min: x has dtype bool"),
    OPS_REJECTION(all_int, "reduce_all: x has dtype int32"),
    OPS_REJECTION(any_axis, "reduce_any: axis -2"),
    OPS_REJECTION(std_int, "reduce_std: x has dtype int32"),
    OPS_REJECTION(variance_twice, "given twice"),
    OPS_REJECTION(moments_null, "axes is NULL with 2 entries"),
    OPS_REJECTION(argmin_empty, "argmin: axis 0 of shape [0] is empty"),
    OPS_REJECTION(argmin_dtype, "output_type is float32"),
    OPS_REJECTION(cumsum_axis, "cumsum: axis 1"),
    OPS_REJECTION(cumprod_bool, "cumprod: x has dtype bool"),
    OPS_REJECTION(top_k_many, "k is 4; it must be in [0, 3]"),
    OPS_REJECTION(top_k_scalar, "x is a scalar"),
    OPS_REJECTION(sort_axis, "sort: axis 1"),
    OPS_REJECTION(argsort_bool, "argsort: x has dtype bool"),
    OPS_REJECTION(softmax_axis, "log_softmax: axis 1"),
    OPS_REJECTION(entropy_shapes, "labels has shape [2,3] and logits [2,4]"),
    OPS_REJECTION(entropy_rank, "of one rank"),
    OPS_REJECTION(entropy_axis, "axis 2"),
    OPS_REJECTION(sigmoid_shapes, "must be equal"),
    OPS_REJECTION(sigmoid_dtypes, "must be the same"),
    OPS_REJECTION(mse_scalar, "no last axis"),
    OPS_REJECTION(mse_shapes, "mse: shapes [2] of y_true"),
    OPS_REJECTION(l2_int, "l2_loss: x has dtype int32"),
    OPS_REJECTION(where_cond, "cond has dtype float32"),
    OPS_REJECTION(where_dtypes, "x has dtype float32 and y float64"),
    OPS_REJECTION(norm_shapes, "layer_norm: gamma has shape [2]"),
    OPS_REJECTION(norm_axis, "layer_norm: axis 2"),
    OPS_REJECTION(norm_larger, "mean has shape [2,3]"),
    OPS_REJECTION(norm_train, "gamma has shape [4]"),
    OPS_REJECTION(norm_train_null, "axes is NULL"),
    OPS_REJECTION(fused_rank, "x has rank 1"),
    OPS_REJECTION(l2_axis, "l2_normalize: axis 1"),
    OPS_REJECTION(clip_axis, "clip_by_norm: axis 3"),
    OPS_REJECTION(clip_half, "clip_by_value: min is a float, 0.5"),
    OPS_REJECTION(add_n_shapes, "xs[0] has shape [2] and xs[1] [3]"),
    OPS_REJECTION(add_n_none, "add_n: 0 inputs; it takes at least 1"),
    OPS_REJECTION(stack_shapes, "stack: xs[0] has shape [2]"),
    OPS_REJECTION(stack_axis, "stack: axis 2"),
    OPS_REJECTION(stack_rank, "8 dimensions already"),
    OPS_REJECTION(squeeze_axis, "squeeze: axis 2"),
    OPS_REJECTION(squeeze_large, "axis 1 has 3 elements"),
    OPS_REJECTION(unstack_axis, "unstack: axis 1"),
    OPS_REJECTION(split_number, "num_or_sizes is 3; it must divide the 4 elements"),
    OPS_REJECTION(split_zero, "num_or_sizes is 0"),
    OPS_REJECTION(split_axis, "split: axis 1"),
    OPS_REJECTION(split_sum, "add up to 3; axis 0 has 4 elements"),
    OPS_REJECTION(split_two, "one may be -1"),
    OPS_REJECTION(split_null, "2 sizes at NULL"),
    OPS_REJECTION(split_many, "33 sizes; give up to 32"),
    OPS_REJECTION(slice_zero, "strides[0] is 0"),
    OPS_REJECTION(slice_entries, "2 entries take dimensions; x has 1"),
    OPS_REJECTION(reverse_axis, "reverse: axis 1"),
    OPS_REJECTION(reverse_twice, "axis 0 is given twice"),
    OPS_REJECTION(roll_axis, "roll: axis 1"),
    OPS_REJECTION(tile_rank, "multiples has 2 entries; the rank of x is 1"),
    OPS_REJECTION(tile_negative, "multiples[0] is -1"),
    OPS_REJECTION(tile_overflow, "multiples[0] is"),
    OPS_REJECTION(pad_rank, "paddings has 1 number"),
    OPS_REJECTION(pad_negative, "paddings[0] is -1"),
    OPS_REJECTION(pad_huge, "it must be in [0, 2^61)"),
    OPS_REJECTION(segment_huge, "it must be in [0, 2^59)"),
    OPS_REJECTION(matvec_dtype, "matvec: a has dtype bool"),
    OPS_REJECTION(pad_reflect, "can mirror at most 3"),
    OPS_REJECTION(pad_symmetric, "can mirror at most 4"),
    OPS_REJECTION(pad_mode, "in mode 7"),
    OPS_REJECTION(pad_null, "paddings at NULL"),
    OPS_REJECTION(band_rank, "x has rank 1"),
    OPS_REJECTION(band_rows, "num_lower is 5"),
    OPS_REJECTION(gather_nd_dtype, "indices have dtype float32"),
    OPS_REJECTION(gather_nd_scalar, "indices are a scalar"),
    OPS_REJECTION(gather_nd_long, "index vectors have 2 numbers"),
    OPS_REJECTION(gather_nd_outside, "index vector 0 is [1,1], which is not in the shape [2,1]"),
    OPS_REJECTION(gather_nd_rank, "9 dimensions"),
    OPS_REJECTION(scatter_nd_updates, "updates have shape [3]"),
    OPS_REJECTION(scatter_nd_outside, "index vector 0 is [1]"),
    OPS_REJECTION(scatter_nd_negative, "shape [-1]"),
    OPS_REJECTION(scatter_nd_huge, ""),
    OPS_REJECTION(scatter_nd_string, "updates have dtype string"),
    OPS_REJECTION(scatter_add_dtypes, "tensor has dtype float32 and updates float64"),
    OPS_REJECTION(scatter_update_outside, "index vector 0 is [1]"),
    OPS_REJECTION(segment_ids, "ids have dtype float32"),
    OPS_REJECTION(segment_shape, "ids have shape [2]"),
    OPS_REJECTION(segment_outside, "ids[0] is 1; it must be below num_segments, 1"),
    OPS_REJECTION(segment_negative, "num_segments is -1"),
    OPS_REJECTION(lookup_outside, "indices[0] is 1"),
    OPS_REJECTION(index_string, "where_index: x has dtype string"),
    OPS_REJECTION(eye_negative, "num_rows is -2"),
    OPS_REJECTION(eye_dtype, "eye: dtype is invalid"),
    OPS_REJECTION(linspace_num, "num is -1"),
    OPS_REJECTION(linspace_dtype, "dtype int32"),
    OPS_REJECTION(matvec_rank, "a has rank 1"),
    OPS_REJECTION(matvec_shapes, "matvec: a [2,3] has 3 columns"),
    OPS_REJECTION(einsum_null, "equation is NULL"),
    OPS_REJECTION(einsum_terms, "does not have 1 term"),
    OPS_REJECTION(einsum_too_few, "does not have 2 terms"),
    OPS_REJECTION(einsum_sizes, "dimension 0 of xs[1] is 2, and 3 where 'j' was before"),
    OPS_REJECTION(einsum_rank, "2 letters for a tensor of rank 1"),
    OPS_REJECTION(einsum_unknown, "no 'k'"),
    OPS_REJECTION(einsum_twice, "'i' twice"),
    OPS_REJECTION(einsum_sign, "has a '1'"),
    OPS_REJECTION(einsum_arrow, "without '>'"),
    OPS_REJECTION(einsum_behind, "goes on behind the result"),
    OPS_REJECTION(einsum_dots, "2 dots"),
    OPS_REJECTION(einsum_ellipsis, "has no '...'"),
    OPS_REJECTION(depthwise_channels, "x has 2 channels and w filters for 3"),
    OPS_REJECTION(depthwise_rank, "both must have 4 dimensions"),
    OPS_REJECTION(transpose_channels, "they must agree"),
    OPS_REJECTION(transpose_sizes, "conv2d_transpose: x has shape [1,2,2,1]; for output_shape"),
    OPS_REJECTION(dropout_rate, "rate is 1; it must be in [0, 1)"),
    OPS_REJECTION(dropout_int, "dropout: x has dtype int32"),
    OPS_REJECTION(pool_rank, "it must have 4 dimensions"),
    OPS_REJECTION(pool_int, "avg_pool2d: x has dtype int32"),
};

CO_TEST(composed_operators_reject_with_a_reason, "GEN-ERR-3 GEN-ERR-4")
{
    ops_expect_rejections(ctx, rejections, sizeof(rejections) / sizeof(rejections[0]));
}

/* Blocks of the parts are closed and tapes go on after a failure. */
CO_TEST(a_refused_operator_leaves_nothing_behind, "GEN-ERR-1")
{
    co_memory_stats before = CO_MEMORY_STATS_INIT, after = before;

    for (int round = 0; round < 2; ++round) { /* the first one makes what a context keeps */
        CO_BLOCK(ctx) {
            co_value *x = F(2), *y;

            co_tape_begin(ctx);
            co_watch(ctx, x);
            for (size_t i = 0; i < sizeof(rejections) / sizeof(rejections[0]); ++i) {
                rejections[i].call(ctx);
                CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "");
            }
            y = co_gradient(ctx, co_reduce_prod(ctx, x, CO_ALL_AXES, false), x);
            CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, y))[0], 1, 0);
        }
        co_get_memory_stats(ctx, round == 0 ? &before : &after);
    }
    CO_EXPECT_INT(after.live_values, before.live_values);
    CO_EXPECT_OK(ctx);
}

/* The error is that of the call in the program, whichever part found it. */
CO_TEST(errors_of_parts_name_the_operator, "GEN-ERR-4")
{
    static const int32_t at[] = { 0, 3 };

    CO_EXPECT_NULL(co_gather_nd(ctx, F(3, 2), co_tensor(ctx, CO_INT32, CO_SHAPE(1, 2), at)));
    CO_EXPECT_STR(co_error(ctx)->call, "gather_nd");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "gather_nd: index vector 0 is [0,3]");
    CO_EXPECT_NULL(co_eye(ctx, CO_FLOAT32, BIG, 2));
    CO_EXPECT_STR(co_error(ctx)->call, "eye");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "shape [4611686018427387904,2] has more than");
}

CO_TEST(lists_are_asked_for_by_name, "")
{
    CO_EXPECT_NULL(co_stack(ctx, F(2), 0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "stack: xs is a tensor; it must be a list or tuple");
    CO_EXPECT_NULL(co_add_n(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (xs)");
    CO_EXPECT_NULL(co_mse(ctx, F(2), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (y_pred)");
}

/* Variables, host numbers and lists, with their gradients. */
CO_TEST(operands_may_be_anything_that_converts, "C-VAL-4")
{
    co_value *v = co_variable(ctx,
                              co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2), ((const double[]){ 3, 4 })),
                              NULL);
    co_value *y, *grads;

    co_tape_begin(ctx);
    y = co_add(ctx, co_l2_loss(ctx, v), co_reduce_prod(ctx, v, CO_ALL_AXES, false));
    y = co_add(ctx, y, co_reduce_sum(ctx, co_add_n(ctx, co_args(ctx, v, v)), CO_ALL_AXES, false));
    grads = co_gradient(ctx, y, v);
    CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, grads))[0], 3 + 4 + 2, 1e-12);
    CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, grads))[1], 4 + 3 + 2, 1e-12);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_l2_loss(ctx, co_float(ctx, 3))), 4.5, 0);
    y = co_stack(ctx, co_args(ctx, co_int(ctx, 1), co_float(ctx, 2.5)), 0);
    CO_EXPECT_INT(co_value_dtype(ctx, y), CO_FLOAT32);
    y = co_where(ctx, co_bool(ctx, true), co_scalar_double(ctx, 2), co_int(ctx, 3));
    CO_EXPECT_INT(co_value_dtype(ctx, y), CO_FLOAT64);
    y = co_mse(ctx, co_args(ctx, co_float(ctx, 1), co_float(ctx, 3)),
               co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)));
    CO_EXPECT_CLOSE(co_item_float(ctx, y), 5, 0);
    CO_EXPECT_OK(ctx);
}

/* A value that was given is not given back as the result: keeping and releasing one leaves the
 * other alone. */
CO_TEST(results_are_values_of_their_own, "")
{
    co_value *x = F(1, 3);

    CO_EXPECT_TRUE(co_add_n(ctx, co_args(ctx, x)) != x);
    CO_EXPECT_TRUE(co_roll(ctx, x, DIMS(0), (const int[]){ 1 }, 1) != x);
    CO_EXPECT_TRUE(co_tile(ctx, x, DIMS(1, 1), 2) != x);
    CO_EXPECT_TRUE(co_einsum(ctx, "ij->ij", co_args(ctx, x)) != x);
    CO_EXPECT_TRUE(co_pad(ctx, x, DIMS(0, 0, 0, 0), 4, CO_PAD_REFLECT, 0) != x);
    CO_EXPECT_TRUE(co_sort(ctx, x, 1, true) != x);
    CO_EXPECT_OK(ctx);
}

/* What TensorFlow 2.21 answers. */
CO_TEST(special_numbers_are_treated_as_in_tensorflow, "")
{
    static const float   x[] = { 1, NAN, 3, -INFINITY, INFINITY }, zeros[] = { 2, 0, 3, 0 };
    static const float   infinite[] = { -INFINITY, 1, 2 }, hot[] = { 0, 1, 0 };
    static const int32_t order[] = { 3, 0, 2, 4, 1 };
    static const float   slope[] = { 1, 0, 0, 0 };
    co_value            *t = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(5), x), *y, *at;
    int8_t               highest = 127;

    CO_EXPECT_BYTES(co_value_data(ctx, co_argsort(ctx, t, 0, false)), order, sizeof(order));
    y = co_reduce_min(ctx, co_zeros(ctx, CO_INT8, CO_SHAPE(0)), CO_ALL_AXES, false);
    CO_EXPECT_BYTES(co_value_data(ctx, y), &highest, 1);
    y = co_reduce_logsumexp(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0)), CO_ALL_AXES, false);
    CO_EXPECT_TRUE(co_item_float(ctx, y) == -INFINITY);
    t = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), zeros);
    co_tape_begin(ctx);
    co_watch(ctx, t);
    y = co_gradient(ctx, co_cumprod(ctx, t, 0, false, false), t);
    CO_EXPECT_BYTES(co_value_data(ctx, y), slope, sizeof(slope));
    y = co_softmax_cross_entropy(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), hot),
                                 co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), infinite), -1);
    CO_EXPECT_TRUE(isnan(co_item_float(ctx, y)));
    y = co_reduce_prod(
        ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), ((const float[]){ 1e30f, 1e30f, 1e-30f })),
        CO_ALL_AXES, false);
    CO_EXPECT_TRUE(co_item_float(ctx, y) == INFINITY);
    at = co_tensor(ctx, CO_INT32, CO_SHAPE(2, 1), ((const int32_t[]){ 1, 1 }));
    y = co_tensor_scatter_nd_update(
        ctx, t, at, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), ((const float[]){ 5, 6 })));
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, y))[1], 6, 0);
    CO_EXPECT_OK(ctx);
}

/* The cases from TensorFlow cannot have this: they would compare nothing. */
CO_TEST(unstack_along_an_empty_axis_has_no_parts, "")
{
    CO_EXPECT_INT(co_num_items(ctx, co_unstack(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 0)), 1)),
                  0);
    CO_EXPECT_INT(co_num_items(ctx, co_unstack(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 0)), 0)),
                  2);
    CO_EXPECT_OK(ctx);
}

/* Every allocation on the way fails once. */
static bool
use_composed(co_context *ctx)
{
    co_value *x, *y, *parts[12];

    if (ctx == NULL)
        return false;
    x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(6, 8));
    co_tape_begin(ctx);
    co_watch(ctx, x);
    parts[0] = co_at(ctx, co_unstack(ctx, x, 0), 3);
    for (int i = 1; i < 12; ++i)
        parts[i] = co_reduce_prod(ctx, x, CO_AXES(0), false);
    y = co_stack(ctx, co_list(ctx, parts, 12), 0);
    y = co_einsum(ctx, "ij,kj->ik", co_args(ctx, y, co_sort(ctx, x, 1, false)));
    y = co_at(ctx, co_clip_by_global_norm(ctx, co_args(ctx, y, x), 0.5), 0);
    y = co_pad(ctx, co_log_softmax(ctx, y, -1), DIMS(1, 1, 2, 0), 4, CO_PAD_REFLECT, 0);
    return co_gradient(ctx, co_strided_slice(ctx, y, DIMS(1), DIMS(9), DIMS(2), 1, NULL), x) !=
           NULL;
}

CO_TEST_BARE(composed_operators_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, use_composed);
}

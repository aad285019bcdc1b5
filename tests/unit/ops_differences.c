/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of every differentiable operator of the table, first and second, against finite
 * differences in float64, with the optimised and the reference kernels. ops_gradient.c,
 * ops_composite.c and the tests of families look at more shapes and attributes. With the same rows,
 * and some of the other operators: what happens where memory ends.
 */
#include "kernel_support.h"
#include "ops_rows.h"

#include "ops/engine/op.h"

/* clang-format off */
static const ops_row rows[] = {
    ROW("abs", "r[5]", ""),
    ROW("add", "r[2,3] r[3]", ""),
    ROW("add_n", "r[2,3] r[2,3] r[2,3]", ""),
    ROW("attention", "r[2,3,4] r[2,5,4] r[2,5,2]", "heads=2"),
    ROW("attention", "r[3,2] r[3,2] r[3,3]", "causal=true scale=0.7"),
    ROW("attention", "r[1,2,4] r[1,4,4] r[1,4,2]", "heads=2 causal=true"),
    ROW("avg_pool2d", "r[1,5,4,2]", "ksize=[3,2] strides=[2,1] padding=SAME"),
    ROW("avg_pool2d_grad", "r[1,2,2,2]", "ksize=[2,2] strides=[2,2] shape=[1,5,4,2]"),
    ROW("band_part", "r[2,3,4]", "num_lower=1 num_upper=0"),
    ROW("batch_norm_inference", "r[3,4] r[4] p[4] r[4] r[4]", ""),
    ROW_FIRST(3, "batch_norm_train", "r[5,2] r[2] r[2] r[2] p[2]", "axes=[0]"),
    ROW("batch_norm_train_grad", "r[5,2] r[2] r[2]", "axes=[0]"),
    ROW("broadcast_to", "r[2,1]", "shape=[2,2,3]"),
    ROW("cast", "r[4]", "dtype=float64"),
    ROW("clip_by_global_norm", "r[2,3] r[4]", "clip_norm=0.5"),
    ROW("clip_by_norm", "r[2,3]", "axes=[1] clip_norm=0.5"),
    ROW("clip_by_value", "r[2,3]", "min=-0.4 max=0.6"),
    ROW("concat", "r[2,3] r[2,1]", "axis=1"),
    ROW("conv2d", "r[1,5,4,2] r[3,2,2,2]", "padding=SAME strides=[2,1]"),
    ROW("conv2d_backprop_filter", "r[1,5,4,2] r[1,3,3,2]", "sizes=[3,2,2,2]"),
    ROW("conv2d_backprop_input", "r[3,2,2,2] r[1,3,3,2]", "sizes=[1,5,4,2]"),
    ROW("conv2d_bias", "r[1,5,4,2] r[3,2,2,2] r[2]", "padding=SAME activation=tanh"),
    ROW("conv2d_bias", "r[1,5,4,2] r[3,2,2,2] r[2]", "activation=silu"),
    ROW("conv2d_transpose", "r[1,2,2,2] r[3,2,2,2]", "output_shape=[1,4,4,2] strides=[2,2]"),
    ROW("cos", "r[5]", ""),
    ROW("cumprod", "r[2,4]", "axis=1"),
    ROW("cumsum", "r[3,2]", "axis=0 exclusive=true"),
    ROW("dense", "r[2,3] r[3,2] r[2]", ""),
    ROW("dense", "r[2,2,3] r[3,2] r[2]", "activation=elu"),
    ROW("dense", "r[2,3] r[3,2] r[2]", "activation=gelu"),
    ROW("depthwise_conv2d", "r[1,4,4,2] r[2,2,2,2]", ""),
    ROW("div", "r[2,3] p[3]", ""),
    ROW("dropout", "r[3,4]", "rate=0.4"),
    ROW("einsum", "r[2,3] r[3,2]", "equation=ij,jk->ki"),
    ROW("elu", "r[5]", ""),
    ROW("elu_grad", "r[2,3] r[3]", ""),
    ROW("embedding_lookup", "r[4,2] i4[5]", ""),
    ROW("erf", "r[5]", ""),
    ROW("exp", "r[5]", ""),
    ROW("expand_dims", "r[2,3]", "axis=1"),
    ROW("expm1", "r[5]", ""),
    ROW("fused_batch_norm_train", "r[5,1,1,2] r[2] r[2]", ""),
    ROW("fused_batch_norm_train_grad", "r[5,1,1,2] r[2] r[2]", ""),
    ROW("gather", "r[4,2] i4[5]", ""),
    ROW("gather", "r[2,3,2] i3[2,4]", "axis=1 batch_dims=1"),
    ROW("gather_nd", "r[3,3,2] i3[4,2]", ""),
    ROW("gelu", "r[5]", ""),
    ROW("gelu", "r[5]", "approximate=true"),
    ROW("gelu_tanh_grad", "r[2,3] r[3]", ""),
    ROW("global_norm", "r[2,3] r[4]", ""),
    ROW("identity", "r[3]", ""),
    ROW("l2_loss", "r[2,3]", ""),
    ROW("l2_normalize", "r[2,3]", "axis=[1]"),
    ROW("layer_norm", "r[2,4] r[4] r[4]", ""),
    ROW("layer_norm", "r[2,3,2] r[3,2] r[1,3,2]", "axis=[2,1] epsilon=0.1"),
    ROW("layer_norm", "r[2,3,2] r[3,1] r[2]", "axis=[1]"),
    ROW("leaky_relu", "r[5]", "alpha=0.3"),
    ROW("log", "p[5]", ""),
    ROW("log1p", "p[5]", ""),
    ROW("log_sigmoid", "r[5]", ""),
    ROW("log_softmax", "r[2,3]", ""),
    ROW("matmul", "r[2,3] r[2,3]", "transpose_b=true"),
    ROW("matmul", "r[2,1,3] r[3,2]", ""),
    ROW("matvec", "r[2,3] r[3]", ""),
    ROW("max_pool2d", "r[1,5,4,2]", "ksize=[3,2] strides=[2,1] padding=SAME"),
    ROW("max_pool2d_grad", "r[1,4,4,2] r[1,2,2,2] r[1,2,2,2]", "ksize=[2,2] strides=[2,2]"),
    ROW("max_pool2d_grad_grad", "r[1,4,4,2] r[1,2,2,2] r[1,4,4,2]", "ksize=[2,2] strides=[2,2]"),
    ROW("maximum", "r[2,3] r[3]", ""),
    ROW("minimum", "r[2,3] r[3]", ""),
    ROW("mod", "r[2,3] p[3]", ""),
    ROW("moments", "r[3,4]", "axes=[0]"),
    ROW("mse", "r[2,3] r[2,3]", ""),
    ROW("mul", "r[2,3] r[2,1]", ""),
    ROW("neg", "r[5]", ""),
    ROW("pad", "r[2,3]", "paddings=[1,0,0,2] constant_values=1.5"),
    ROW("pad", "r[2,3]", "paddings=[1,1,2,0] mode=REFLECT"),
    ROW("pow", "p[2,3] r[3]", ""),
    ROW("reciprocal", "p[5]", ""),
    ROW("reduce_euclidean_norm", "r[2,3]", "axis=[1]"),
    ROW("reduce_logsumexp", "r[2,3]", "axis=[1]"),
    ROW("reduce_max", "r[2,3]", "axis=[0]"),
    ROW("reduce_mean", "r[2,3]", "axis=[1]"),
    ROW("reduce_min", "r[2,3]", ""),
    ROW("reduce_prod", "r[2,3]", "axis=[1]"),
    ROW("reduce_std", "r[2,3]", ""),
    ROW("reduce_sum", "r[2,3,2]", "axis=[0,2]"),
    ROW("reduce_variance", "r[2,3]", "axis=[0]"),
    ROW("relu", "r[5]", ""),
    ROW("relu6", "r[5]", ""),
    ROW("relu6_grad", "r[1] r[5]", ""),
    ROW("relu_grad", "r[2,3] r[3]", ""),
    ROW("reshape", "r[2,3]", "shape=[3,-1]"),
    ROW("reverse", "r[2,3]", "axis=[1]"),
    ROW("roll", "r[2,3]", "shift=[1,-2] axis=[0,1]"),
    ROW("rsqrt", "p[5]", ""),
    ROW("scatter_add", "r[5,2] i3[5]", "shape=[3,2]"),
    ROW("scatter_nd", "i3[5,1] r[5,2]", "shape=[3,2]"),
    ROW("selu", "r[5]", ""),
    ROW("selu_grad", "r[2,3] r[3]", ""),
    ROW("sigmoid", "r[5]", ""),
    ROW("sigmoid_cross_entropy_with_logits", "p[5] r[5]", ""),
    ROW("sigmoid_grad", "r[2,3] r[3]", ""),
    ROW("sign", "r[5]", ""),
    ROW("silu", "r[5]", ""),
    ROW("sin", "r[5]", ""),
    ROW("slice", "r[3,4]", "begin=[1,0] size=[-1,2]"),
    ROW("slice_grad", "r[2,2]", "begin=[1,0] shape=[3,4]"),
    ROW("softmax", "r[2,3]", ""),
    ROW("softmax", "r[2,3]", "axis=0"),
    ROW("softmax_cross_entropy_with_logits", "s[2,3] r[2,3]", ""),
    ROW("softmax_cross_entropy_with_logits", "s[1,3] r[2,3]", "axis=1"),
    ROW("softmax_grad", "r[2,3] r[2,3]", ""),
    ROW("softplus", "r[5]", ""),
    ROW("softsign", "r[5]", ""),
    ROW("sort", "r[2,3]", "direction=DESCENDING"),
    ROW("sparse_softmax_cross_entropy_grad", "i3[2] r[2,3] r[2]", ""),
    ROW("sparse_softmax_cross_entropy_with_logits", "i3[2] r[2,3]", ""),
    ROW("split", "r[2,5]", "num_or_sizes=[2,-1] axis=1"),
    ROW("sqrt", "p[5]", ""),
    ROW("square", "r[5]", ""),
    ROW("squared_difference", "r[2,3] r[3]", ""),
    ROW("squeeze", "r[2,1,3]", ""),
    ROW("stack", "r[2,3] r[2,3]", "axis=1"),
    ROW("strided", "r[3,5]", "begin=[2,1] strides=[-1,2] shape=[3,2]"),
    ROW("strided_grad", "r[3,2]", "begin=[2,1] strides=[-1,2] shape=[3,5]"),
    ROW("strided_slice", "r[3,5]", "begin=[-1,0] end=[0,5] strides=[-1,2]"),
    ROW("sub", "r[2,3] r[3]", ""),
    ROW("tan", "r[5]", ""),
    ROW("tanh", "r[5]", ""),
    ROW("tanh_grad", "r[2,3] r[3]", ""),
    ROW("tensor_scatter_nd_add", "r[3,2] i3[5,1] r[5,2]", ""),
    ROW("tensor_scatter_nd_update", "r[4,2] i4[3,1] r[3,2]", ""),
    ROW("tile", "r[2,2]", "multiples=[2,3]"),
    ROW("top_k", "r[2,5]", "k=3"),
    ROW("transpose", "r[2,3,2]", "perm=[1,2,0]"),
    ROW("unsorted_segment_sum", "r[5,2] i3[5]", "num_segments=3"),
    ROW("unstack", "r[2,3]", "axis=1"),
    ROW("where", "b[2,3] r[3] r[2,3]", ""),
    ROW("where_flowing", "r[2,3] p[3]", ""),
};
/* clang-format on */
#define NUM_ROWS (sizeof(rows) / sizeof(rows[0]))

static const ops_row *now; /* the row under test */
static ops_row_call   inputs;

static co_value *
flat(co_context *ctx, co_value *x)
{
    return co_reshape(ctx, x, CO_SHAPE(-1));
}

/*
 * All real results as one vector, and the inputs behind them: so every input has a gradient, and
 * one that does not come through the operator although it should is a wrong number and not a
 * missing one.
 */
static co_value *
results(co_context *ctx, co_value *const *in)
{
    ops_row_call call = inputs;
    co_value    *parts[2 * ROW_MOST_INPUTS];
    size_t       n;

    memcpy(call.in, in, call.num_in * sizeof(in[0]));
    co_set_seed(ctx, 5); /* for dropout */
    n = ops_row_real(ctx, now, ops_row_results(ctx, now, &call), parts, ROW_MOST_INPUTS);
    for (size_t i = 0; i < n; ++i)
        parts[i] = flat(ctx, parts[i]);
    for (size_t i = 0; i < call.num_in; ++i)
        if (ops_is_real(in[i]))
            parts[n++] = flat(ctx, in[i]);
    return co_concat(ctx, co_list(ctx, parts, n), 0);
}

/* The gradients for all real inputs as one vector; weighed with the inputs, so that each has a
 * gradient again. */
static co_value *
gradients(co_context *ctx, co_value *const *in)
{
    co_value *real[ROW_MOST_INPUTS], *parts[ROW_MOST_INPUTS], *grads;
    size_t    n = 0;

    co_tape_begin(ctx);
    for (size_t i = 0; i < inputs.num_in; ++i)
        if (ops_is_real(in[i])) {
            co_watch(ctx, in[i]);
            real[n++] = in[i];
        }
    grads = co_gradient(ctx, kernel_loss(ctx, results, in), co_tuple(ctx, real, n));
    for (size_t i = 0; i < n; ++i)
        parts[i] = flat(ctx, co_mul(ctx, co_to_tensor(ctx, co_at(ctx, grads, i), CO_DTYPE_NONE),
                                    co_add(ctx, real[i], co_int(ctx, 3))));
    return co_concat(ctx, co_list(ctx, parts, n), 0);
}

static void
check_rows(co_context *ctx, kernel_fn fn)
{
    for (now = rows; now < rows + NUM_ROWS; ++now)
        CO_BLOCK(ctx) {
            int checked[ROW_MOST_INPUTS], n = 0;

            ops_row_inputs(ctx, now, CO_FLOAT64, &inputs);
            for (size_t i = 0; i < inputs.num_in; ++i)
                if (ops_is_real(inputs.in[i]))
                    checked[n++] = (int)i;
            if (!CO_EXPECT_MORE(n, 0) ||
                !kernel_check_gradients(ctx, fn, inputs.in, (int)inputs.num_in, checked, n))
                test_fail(TEST_AT, "see %s of %s, %s", now->name, now->inputs, now->attrs);
        }
}

CO_TEST(first_gradients_of_every_operator_agree_with_differences, "")
{
    check_rows(ctx, results);
}

CO_TEST(second_gradients_of_every_operator_agree_with_differences, "")
{
    check_rows(ctx, gradients);
}

CO_TEST_WITH(reference_kernels_of_every_operator_agree_with_differences, "",
             "reference_kernels=yes")
{
    check_rows(ctx, results);
}

static bool
is_differentiable(const co_op_info *info)
{
    return info->differentiable;
}

CO_TEST(no_differentiable_operator_is_left_out, "")
{
    ops_expect_rows(rows, NUM_ROWS, is_differentiable);
}

/* --- without memory --- */

/* clang-format off */
static const ops_row flat_rows[] = {
    ROW("argmax", "r[2,3]", "axis=1"),
    ROW("argmin", "r[2,3]", "axis=0 output_type=int32"),
    ROW("argsort", "r[2,5]", "direction=DESCENDING"),
    ROW("ceil", "r[5]", ""),
    ROW("conv2d_pooled_grad", "r[1,4,4,1] r[1,4,4,16] r[1,2,2,16] r[1,2,2,16]", "sizes=[3,3,1,16] padding=SAME"),
    ROW("equal", "r[2,3] r[3]", ""),
    ROW("eye", "", "num_rows=3 batch_shape=[2]"),
    ROW("fill", "", "shape=[2,3] value=3.5"),
    ROW("floor", "r[5]", ""),
    ROW("floordiv", "r[2,3] p[3]", ""),
    ROW("greater", "r[2,3] r[3]", ""),
    ROW("greater_equal", "r[2,3] r[3]", ""),
    ROW("isfinite", "r[5]", ""),
    ROW("isinf", "r[5]", ""),
    ROW("isnan", "r[5]", ""),
    ROW("less", "r[2,3] r[3]", ""),
    ROW("less_equal", "r[2,3] r[3]", ""),
    ROW("linspace", "", "start=0.0 stop=1.0 num=5"),
    ROW("logical_and", "b[2,3] b[3]", ""),
    ROW("logical_not", "b[5]", ""),
    ROW("logical_or", "b[2,3] b[3]", ""),
    ROW("logical_xor", "b[2,3] b[3]", ""),
    ROW("not_equal", "r[2,3] r[3]", ""),
    ROW("one_hot", "i3[4]", "depth=3 on_value=2.0 axis=0"),
    ROW("ones", "", "shape=[2,3]"),
    ROW("ones_like", "r[5]", ""),
    ROW("random_normal", "", "shape=[2,3]"),
    ROW("random_uniform", "", "shape=[2,3]"),
    ROW("range", "", "start=1 limit=9 delta=2"),
    ROW("rank", "r[2,3]", ""),
    ROW("reduce_all", "b[2,3]", "axis=[1]"),
    ROW("reduce_any", "b[2,3]", "axis=[0] keepdims=true"),
    ROW("round", "r[5]", ""),
    ROW("shape", "r[2,3]", ""),
    ROW("size", "r[2,3]", ""),
    ROW("stateless_random_normal", "", "shape=[2,3] seed=[1,2]"),
    ROW("stateless_random_uniform", "", "shape=[2,3] seed=[1,2]"),
    ROW("stop_gradient", "r[5]", ""),
    ROW("where_index", "b[2,3]", ""),
    ROW("zeros", "", "shape=[2,3]"),
    ROW("zeros_like", "r[5]", ""),
};
/* clang-format on */
#define NUM_FLAT_ROWS (sizeof(flat_rows) / sizeof(flat_rows[0]))

static bool
is_flat(const co_op_info *info)
{
    return !info->differentiable;
}

CO_TEST(no_other_operator_is_left_out, "")
{
    ops_expect_rows(flat_rows, NUM_FLAT_ROWS, is_flat);
}

static co_dtype dtype_now;

/* The results of a row, and where they are real their gradients. */
static bool
work_once(co_context *ctx)
{
    co_value *real[ROW_MOST_INPUTS], *outs[2 * ROW_MOST_INPUTS], *made;
    size_t    n = 0, num_outs;

    if (ctx == NULL)
        return false;
    ops_row_inputs(ctx, now, dtype_now, &inputs);
    for (size_t i = 0; i < inputs.num_in; ++i)
        if (ops_is_real(inputs.in[i]))
            real[n++] = inputs.in[i];
    co_tape_begin(ctx);
    co_watch(ctx, co_tuple(ctx, real, n));
    made = ops_row_results(ctx, now, &inputs);
    num_outs = ops_row_real(ctx, now, made, outs, ROW_MOST_INPUTS);
    if (n > 0 && num_outs > 0)
        made = co_gradient(ctx, co_tuple(ctx, outs, num_outs), co_tuple(ctx, real, n));
    else
        co_tape_end(ctx);
    return co_ok(ctx) && made != NULL;
}

static void
work_without_memory(const char *settings)
{
    static const co_dtype dtypes[] = { CO_FLOAT64, CO_FLOAT32, CO_FLOAT16 };

    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i) {
        dtype_now = dtypes[i];
        for (now = rows; now < rows + NUM_ROWS; ++now)
            CO_EXPECT_SURVIVES_NO_MEMORY(settings, work_once);
        for (now = flat_rows; now < flat_rows + NUM_FLAT_ROWS; ++now)
            CO_EXPECT_SURVIVES_NO_MEMORY(settings, work_once);
    }
}

CO_TEST_BARE(every_operator_survives_no_memory, "")
{
    work_without_memory("threads=1");
}

CO_TEST_BARE(every_reference_kernel_survives_no_memory, "")
{
    work_without_memory("threads=1, reference_kernels=yes");
}

static bool
second_gradients_once(co_context *ctx)
{
    if (ctx == NULL)
        return false;
    ops_row_inputs(ctx, now, CO_FLOAT64, &inputs);
    co_tape_begin(ctx);
    for (size_t i = 0; i < inputs.num_in; ++i)
        if (ops_is_real(inputs.in[i]))
            co_watch(ctx, inputs.in[i]);
    co_gradient(ctx, kernel_loss(ctx, gradients, inputs.in),
                co_tuple(ctx, inputs.in, inputs.num_in));
    return co_ok(ctx);
}

CO_TEST_BARE(second_gradients_survive_no_memory, "")
{
    for (now = rows; now < rows + NUM_ROWS; ++now)
        CO_EXPECT_SURVIVES_NO_MEMORY("threads=1", second_gradients_once);
}

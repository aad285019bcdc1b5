/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator gives the same bits with 1, 2 and 3 threads, results and gradients. The rows are
 * large enough that work is cut, which the test looks at: a team starts its threads when it has
 * work for them.
 */
#include "ops_rows.h"

#include "ops/engine/op.h"

#include <dirent.h>

#define BIG    "[331,613]" /* 202903 elements: three chunks and a bit */
#define IMAGES "r[4,61,67,9]"

/* clang-format off */
static const ops_row rows[] = {
    ROW("abs", "r" BIG, ""),
    ROW("add", "r" BIG " r[613]", ""),
    ROW("add", "h" BIG " h" BIG, ""),
    ROW("add", "i999" BIG " i7[331,1]", ""),
    ROW("add_n", "r" BIG " r" BIG " r" BIG, ""),
    ROW("argmax", "r" BIG, "axis=1"),
    ROW("argmax", "r" BIG, "axis=0 output_type=int32"),
    ROW("argmin", "g" BIG, "axis=1"),
    ROW("argsort", "r" BIG, "axis=1 direction=DESCENDING"),
    ROW("attention", "r[3,131,72] r[3,137,72] r[3,137,40]", "heads=4"),
    ROW("attention", "r[5,199,66] r[5,199,66] r[5,199,66]", "heads=2 causal=true"),
    ROW("attention", "d[7,64,64] d[7,64,64] d[7,64,64]", "heads=2 causal=true"),
    ROW("attention", "h[7,64,64] h[7,64,64] h[7,64,64]", "heads=2"),
    ROW("avg_pool2d", IMAGES, "ksize=[3,2] strides=[2,1] padding=SAME"),
    ROW("avg_pool2d_grad", "r[4,30,33,9]", "ksize=[2,2] strides=[2,2] shape=[4,61,67,9]"),
    ROW("band_part", "r[7,211,139]", "num_lower=20 num_upper=-1"),
    ROW("batch_norm_inference", "r" BIG " r[613] p[613] r[613] r[613]", ""),
    ROW("batch_norm_train", "r" BIG " r[613] r[613] r[613] p[613]", "axes=[0]"),
    ROW("batch_norm_train_grad", "r" BIG " r[613] r[613]", "axes=[0]"),
    ROW("broadcast_to", "r[331,1]", "shape=[331,613]"),
    ROW("cast", "r" BIG, "dtype=float16"),
    ROW("cast", "r" BIG, "dtype=int64"),
    ROW("ceil", "r" BIG, ""),
    ROW("clip_by_global_norm", "r" BIG " r[613,331]", "clip_norm=0.5"),
    ROW("clip_by_norm", "r" BIG, "axes=[1] clip_norm=0.5"),
    ROW("clip_by_value", "r" BIG, "min=-0.4 max=0.6"),
    ROW_WHOLE("concat", "r" BIG " r[331,17]", "axis=1"),
    ROW("conv2d", IMAGES " r[3,3,9,11]", "padding=SAME"),
    ROW("conv2d", "r[32,61,67,1] r[3,3,1,11]", "strides=[2,1]"),
    ROW("conv2d", "d[4,61,67,9] d[3,3,9,11]", "dilations=[2,2]"),
    ROW("conv2d", "h[4,61,67,9] h[3,3,9,11]", ""),
    ROW("conv2d_bias", IMAGES " r[3,3,9,11] r[11]", "padding=SAME activation=relu"),
    ROW("conv2d_bias", "d[4,61,67,9] d[3,3,9,11] d[11]", "activation=gelu"),
    ROW("conv2d_backprop_filter", "r[32,61,67,9] r[32,59,65,11]", "sizes=[3,3,9,11]"),
    ROW("conv2d_backprop_input", "r[3,3,9,11] r[4,59,65,11]", "sizes=[4,61,67,9]"),
    ROW_WHOLE("conv2d_pooled_grad", "r[40,28,28,1] r[40,28,28,16] r[40,14,14,16] r[40,14,14,16]",
        "sizes=[3,3,1,16] padding=SAME"),
    ROW("conv2d_transpose", "r[4,30,33,11] r[3,3,9,11]", "output_shape=[4,60,66,9] strides=[2,2]"),
    ROW("cos", "r" BIG, ""),
    ROW("cumprod", "r" BIG, "axis=1"),
    ROW("cumsum", "r" BIG, "axis=0 reverse=true"),
    ROW_WHOLE("cumsum", "r[202903]", "exclusive=true"),
    ROW("dense", "r[257,131] r[131,193] r[193]", "activation=tanh"),
    ROW("dense", "h[13,61,67] h[67,71] h[71]", "activation=sigmoid"),
    ROW("depthwise_conv2d", IMAGES " r[3,3,9,2]", ""),
    ROW("div", "r" BIG " p[331,1]", ""),
    ROW("div", "j999" BIG " j7[1]", ""),
    ROW("dropout", "r" BIG, "rate=0.3"),
    ROW("einsum", "r[61,131,37] r[37,131,53]", "equation=abc,cbd->bad"),
    ROW("elu", "r" BIG, ""),
    ROW("elu_grad", "r" BIG " r" BIG, ""),
    ROW("embedding_lookup", "r[1009,331] i1009[613]", ""),
    ROW("equal", "r" BIG " r" BIG, ""),
    ROW("erf", "r" BIG, ""),
    ROW("exp", "r" BIG, ""),
    ROW("exp", "d" BIG, ""),
    ROW_WHOLE("expand_dims", "r" BIG, "axis=1"),
    ROW("expm1", "r" BIG, ""),
    ROW_WHOLE("eye", "", "num_rows=331 num_columns=613"),
    ROW_WHOLE("fill", "", "shape=[331,613] value=1.5"),
    ROW("floor", "r" BIG, ""),
    ROW("floordiv", "r" BIG " p[613]", ""),
    ROW("fused_batch_norm_train", IMAGES " r[9] r[9]", ""),
    ROW("fused_batch_norm_train_grad", IMAGES " r[9] r[9]", ""),
    ROW("gather", "r[1009,331] i1009[613]", ""),
    ROW("gather", "r[7,331,61] i331[7,613]", "axis=1 batch_dims=1"),
    ROW("gather", "h[331,613] j613[700]", "axis=1"),
    ROW("gather_nd", "r[613,331,3] i331[90001,2]", ""),
    ROW("gelu", "r" BIG, ""),
    ROW("gelu", "r" BIG, "approximate=true"),
    ROW("gelu_tanh_grad", "r" BIG " r" BIG, ""),
    ROW("global_norm", "r" BIG " r[613,331]", ""),
    ROW("greater", "r" BIG " r[613]", ""),
    ROW("greater_equal", "r" BIG " r[613]", ""),
    ROW_WHOLE("identity", "r" BIG, ""),
    ROW("isfinite", "r" BIG, ""),
    ROW("isinf", "r" BIG, ""),
    ROW("isnan", "r" BIG, ""),
    ROW("l2_loss", "r" BIG, ""),
    ROW("l2_normalize", "r" BIG, "axis=[1]"),
    ROW("layer_norm", "r" BIG " r[613] r[613]", ""),
    ROW("layer_norm", "d" BIG " d[613] d[613]", ""),
    ROW("layer_norm", "h[3001,61] h[61] h[61]", ""),
    ROW("layer_norm", "r" BIG " r[331,1] r[613]", "axis=[0]"),
    ROW("leaky_relu", "r" BIG, ""),
    ROW("less", "r" BIG " r[613]", ""),
    ROW("less_equal", "r" BIG " r[613]", ""),
    ROW("linspace", "", "start=0 stop=1 num=202903"),
    ROW("log", "p" BIG, ""),
    ROW("log1p", "p" BIG, ""),
    ROW("log_sigmoid", "r" BIG, ""),
    ROW("log_softmax", "r" BIG, ""),
    ROW("log_softmax", "r" BIG, "axis=0"),
    ROW("logical_and", "b" BIG " b[613]", ""),
    ROW("logical_not", "b" BIG, ""),
    ROW("logical_or", "b" BIG " b[613]", ""),
    ROW("logical_xor", "b" BIG " b[613]", ""),
    ROW("matmul", "r[257,131] r[131,193]", ""),
    ROW("matmul", "r[131,257] r[193,131]", "transpose_a=true transpose_b=true"),
    ROW("matmul", "d[257,131] d[131,193]", ""),
    ROW("matmul", "h[257,131] h[131,193]", ""),
    ROW("matmul", "g[257,131] g[131,193]", ""),
    ROW_WHOLE("matmul", "i9[257,131] i9[131,193]", ""),
    ROW("matmul", "r[13,61,67] r[67,71]", ""),
    ROW_WHOLE("matmul", "r[3,200001] r[200001,2]", ""),
    ROW("matvec", "r[613,1009] r[1009]", ""),
    ROW("max_pool2d", IMAGES, "ksize=[3,2] strides=[2,1] padding=SAME"),
    ROW("max_pool2d_grad", IMAGES " r[4,30,33,9] r[4,30,33,9]", "ksize=[2,2] strides=[2,2]"),
    ROW("max_pool2d_grad_grad", IMAGES " r[4,30,33,9] " IMAGES, "ksize=[2,2] strides=[2,2]"),
    ROW("maximum", "r" BIG " r[613]", ""),
    ROW("minimum", "r" BIG " r[613]", ""),
    ROW("mod", "r" BIG " p[613]", ""),
    ROW("moments", "r" BIG, "axes=[0]"),
    ROW("mse", "r" BIG " r" BIG, ""),
    ROW("mul", "r" BIG " r[331,1]", ""),
    ROW("neg", "r" BIG, ""),
    ROW("not_equal", "r" BIG " r[613]", ""),
    ROW_WHOLE("one_hot", "i613[331]", "depth=613"),
    ROW_WHOLE("ones", "", "shape=[331,613]"),
    ROW_WHOLE("ones_like", "r" BIG, ""),
    ROW("pad", "r" BIG, "paddings=[1,2,0,3] constant_values=1.5"),
    ROW("pad", "r" BIG, "paddings=[1,2,0,3] mode=REFLECT"),
    ROW("pow", "p" BIG " r[613]", ""),
    ROW("random_normal", "", "shape=[331,613] mean=1 stddev=2"),
    ROW("random_uniform", "", "shape=[331,613] low=-1"),
    ROW("random_uniform", "", "shape=[331,613] dtype=bfloat16"),
    ROW_WHOLE("range", "", "start=0 limit=202903 delta=1"),
    ROW_WHOLE("rank", "r" BIG, ""),
    ROW("reciprocal", "p" BIG, ""),
    ROW("reduce_all", "b" BIG, "axis=[1]"),
    ROW("reduce_any", "b" BIG, "axis=[0]"),
    ROW("reduce_euclidean_norm", "r" BIG, ""),
    ROW("reduce_logsumexp", "r" BIG, "axis=[1]"),
    ROW("reduce_max", "r" BIG, ""),
    ROW("reduce_mean", "r" BIG, "axis=[0]"),
    ROW("reduce_min", "r" BIG, "axis=[1]"),
    ROW("reduce_prod", "p" BIG, "axis=[0]"),
    ROW("reduce_std", "r" BIG, ""),
    ROW("reduce_sum", "r" BIG, ""),
    ROW("reduce_sum", "r" BIG, "axis=[0]"),
    ROW("reduce_sum", "r" BIG, "axis=[1] keepdims=true"),
    ROW("reduce_sum", "h" BIG, ""),
    ROW("reduce_sum", "r[37,613,29]", "axis=[0,2]"),
    ROW("reduce_variance", "r" BIG, "axis=[0]"),
    ROW("relu", "r" BIG, ""),
    ROW("relu6", "r" BIG, ""),
    ROW("relu6_grad", "r" BIG " r" BIG, ""),
    ROW("relu_grad", "r" BIG " r" BIG, ""),
    ROW_WHOLE("reshape", "r" BIG, "shape=[-1]"),
    ROW("reverse", "r" BIG, "axis=[1]"),
    ROW_WHOLE("reverse", "r" BIG, "axis=[0,1]"),
    ROW("roll", "r" BIG, "shift=[1,-2] axis=[0,1]"),
    ROW("round", "r" BIG, ""),
    ROW("rsqrt", "p" BIG, ""),
    ROW_WHOLE("scatter_add", "r[613,331] i61[613]", "shape=[61,331]"),
    ROW_WHOLE("scatter_nd", "i61[613,1] r[613,331]", "shape=[61,331]"),
    ROW("selu", "r" BIG, ""),
    ROW("selu_grad", "r" BIG " r" BIG, ""),
    ROW_WHOLE("shape", "r" BIG, ""),
    ROW("sigmoid", "r" BIG, ""),
    ROW("sigmoid_cross_entropy_with_logits", "p" BIG " r" BIG, ""),
    ROW("sigmoid_grad", "p" BIG " r" BIG, ""),
    ROW("sign", "r" BIG, ""),
    ROW("silu", "r" BIG, ""),
    ROW("sin", "r" BIG, ""),
    ROW_WHOLE("size", "r" BIG, ""),
    ROW("slice", "r" BIG, "begin=[3,5] size=[-1,601]"),
    ROW("slice_grad", "r" BIG, "begin=[3,5] shape=[340,620]"),
    ROW("softmax", "r" BIG, ""),
    ROW("softmax", "r" BIG, "axis=0"),
    ROW("softmax_cross_entropy_with_logits", "p" BIG " r" BIG, ""),
    ROW("softmax_cross_entropy_with_logits", "h" BIG " h" BIG, ""),
    ROW("softmax_cross_entropy_with_logits", "p" BIG " r" BIG, "axis=0"),
    ROW("softmax_grad", "p" BIG " r" BIG, ""),
    ROW("softplus", "r" BIG, ""),
    ROW("softsign", "r" BIG, ""),
    ROW("sort", "r" BIG, "axis=0 direction=DESCENDING"),
    ROW("sparse_softmax_cross_entropy_grad", "i613[331] r" BIG " r[331]", ""),
    ROW("sparse_softmax_cross_entropy_with_logits", "j613[331] r" BIG, ""),
    ROW("split", "r" BIG, "num_or_sizes=[200,-1] axis=1"),
    ROW("sqrt", "p" BIG, ""),
    ROW("square", "r" BIG, ""),
    ROW("squared_difference", "r" BIG " r[613]", ""),
    ROW_WHOLE("squeeze", "r[331,1,613]", ""),
    ROW_WHOLE("stack", "r" BIG " r" BIG, "axis=1"),
    ROW("stateless_random_normal", "", "shape=[331,613] seed=[3,4]"),
    ROW("stateless_random_uniform", "", "shape=[331,613] seed=[-1,4] dtype=float64"),
    ROW_WHOLE("stop_gradient", "r" BIG, ""),
    ROW("strided", "r[340,640]", "begin=[330,1] strides=[-1,2] shape=[331,300]"),
    ROW("strided_grad", "r[331,300]", "begin=[330,1] strides=[-1,2] shape=[340,640]"),
    ROW("strided_slice", "r[340,1280]", "begin=[-1,0] end=[0,1280] strides=[-1,2]"),
    ROW("sub", "r" BIG " r[613]", ""),
    ROW("tan", "r" BIG, ""),
    ROW("tanh", "r" BIG, ""),
    ROW("tanh_grad", "r" BIG " r" BIG, ""),
    ROW_WHOLE("tensor_scatter_nd_add", "r[61,331] i61[613,1] r[613,331]", ""),
    ROW("tensor_scatter_nd_update", "r[1009,331] i1009[613,1] r[613,331]", ""),
    ROW("tile", "r" BIG, "multiples=[2,3]"),
    ROW("top_k", "r" BIG, "k=5"),
    ROW("transpose", "r" BIG, ""),
    ROW("transpose", "r[31,61,113]", "perm=[1,2,0]"),
    ROW_WHOLE("unsorted_segment_sum", "r[613,331] i61[613]", "num_segments=61"),
    ROW_WHOLE("unstack", "r[3,202903]", ""),
    ROW("where", "b" BIG " r[613] r" BIG, ""),
    ROW("where_flowing", "r" BIG " r" BIG, ""),
    ROW_WHOLE("where_index", "b" BIG, ""),
    ROW_WHOLE("zeros", "", "shape=[331,613]"),
    ROW_WHOLE("zeros_like", "r" BIG, ""),
};
/* clang-format on */
#define NUM_ROWS (sizeof(rows) / sizeof(rows[0]))

static bool
is_any(const co_op_info *info)
{
    (void)info;
    return true;
}

static int
num_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int  n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        ++n;
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* FNV-1a over the bytes of tensors, and of the parts of indexed slices. */
static uint64_t
hash_value(co_context *ctx, co_value *value, uint64_t hash)
{
    const unsigned char *bytes;
    size_t               n;

    if (co_value_kind(value) == CO_KIND_SLICES) {
        hash = hash_value(ctx, co_slices_values(ctx, value), hash);
        return hash_value(ctx, co_slices_indices(ctx, value), hash);
    }
    if (co_value_kind(value) != CO_KIND_TENSOR)
        return hash;
    bytes = co_value_data(ctx, value);
    n = (size_t)co_value_num_elements(ctx, value) * co_dtype_size(co_value_dtype(ctx, value));
    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t
hash_values(co_context *ctx, co_value *values, uint64_t hash)
{
    for (size_t i = 0; i < co_num_items(ctx, values); ++i)
        hash = hash_value(ctx, co_at(ctx, values, i), hash);
    return hash;
}

typedef struct outcome {
    uint64_t results, gradients;
    int      started; /* threads, by the results alone */
} outcome;

/* A row in a runtime of its own, so that it is the row that starts threads. */
static outcome
run_row(const ops_row *row, int threads)
{
    char         settings[32];
    co_context  *ctx;
    ops_row_call call;
    co_value    *results, *real[LITERAL_MOST];
    size_t       num_real;
    outcome      out = { 0, 0, 0 };

    snprintf(settings, sizeof(settings), "cpus=1, threads=%d", threads);
    ctx = co_open(settings);
    co_set_seed(ctx, 5);
    ops_row_inputs(ctx, row, CO_FLOAT32, &call);
    co_tape_begin(ctx);
    for (size_t i = 0; i < call.num_in; ++i)
        if (ops_is_real(call.in[i]))
            co_watch(ctx, call.in[i]);
    out.started = -num_threads();
    results = ops_row_results(ctx, row, &call);
    out.started += num_threads();
    out.results = hash_values(ctx, results, 1);
    num_real = ops_row_real(ctx, row, results, real, LITERAL_MOST);
    if (num_real > 0 && call.num_in > 0)
        out.gradients = hash_values(ctx,
                                    co_gradient(ctx, co_tuple(ctx, real, num_real),
                                                co_tuple(ctx, call.in, call.num_in)),
                                    1);
    if (!CO_EXPECT_OK(ctx))
        test_fail(TEST_AT, "see %s of %s, %s", row->name, row->inputs, row->attrs);
    co_close(ctx);
    return out;
}

CO_TEST_BARE(every_operator_has_the_same_bits_with_any_number_of_threads, "")
{
    for (size_t r = 0; r < NUM_ROWS; ++r) {
        outcome one = run_row(&rows[r], 1);

        for (int threads = 2; threads <= 3; ++threads) {
            outcome more = run_row(&rows[r], threads);

            if (more.results != one.results || more.gradients != one.gradients)
                test_fail(TEST_AT, "%s of %s, %s: other %s with %d threads than with one",
                          rows[r].name, rows[r].inputs, rows[r].attrs,
                          more.results != one.results ? "results" : "gradients", threads);
            if (!rows[r].is_whole && more.started == 0)
                test_fail(TEST_AT, "%s of %s, %s: work for %d threads was not divided",
                          rows[r].name, rows[r].inputs, rows[r].attrs, threads);
        }
    }
}

CO_TEST(no_operator_is_left_out, "")
{
    ops_expect_rows(rows, NUM_ROWS, is_any);
}

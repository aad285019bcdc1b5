/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row for every operator, in the order of their names: all that its tests and its documentation
 * need to know beyond the table of the library. A new operator is added here, and nowhere else.
 *
 *     { "gather", "params with its dimension `axis` replaced ...", CALL("[[1, 2]] [0]", "axis=0"),
 *       SMALL(CALL("r[4,2] i4[5]", ""))
 *       LARGE(CALL("r[1009,331] i1009[613]", ""))
 *       SIZES(CALL("r[A,B] iA[C]", "")) },
 *
 * First the shapes in words, and an example; both are shown by `cohort ops` and docs/operators.md,
 * which computes the result. Then calls for tests: SMALL ones for finite differences and for
 * failing allocations (tests/unit/ops_differences.c), LARGE ones that are divided among threads
 * (ops_threads.c), and SIZES, where letters are random sizes that hurt, for the optimised kernel
 * against the plain one (ops_sizes.c). Operators without an optimised kernel have no SIZES. An
 * INTERNAL operator has no example. The tests fail for an operator without a row.
 *
 * A call is inputs and attributes, as text. In examples inputs are values: numbers with a point are
 * float32, others int32. In calls for tests they are a letter and a shape: r real numbers of the
 * dtype of the test, p the same but above 1/2, d float64, f float32, h float16, g bfloat16, b bool,
 * i9 int32 and j9 int64 from 0 to 8, which do not repeat before all have come. s is like p, with a
 * sum of 1 along the last axis.
 */
#ifndef COHORT_OP_ROWS_H
#define COHORT_OP_ROWS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct op_call {
    const char *inputs;
    const char *attrs;
    size_t      num_real; /* results that gradients flow into; 0: all that are real */
    bool        is_whole; /* not divided among threads: no work, or work in one piece */
} op_call;

/* clang-format off */
#define CALL(inputs, attrs)     { inputs, attrs, 0, false }
#define WHOLE(inputs, attrs)    { inputs, attrs, 0, true }
#define FIRST(n, inputs, attrs) { inputs, attrs, n, false }
/* clang-format on */

typedef struct op_row {
    const char *name;
    const char *shapes; /* NULL: an internal operator */
    op_call     example;
#ifdef OP_ROWS_WITH_TESTS
    op_call small[4];
    op_call large[8];
    op_call sizes[8];
#endif
} op_row;
#ifdef OP_ROWS_WITH_TESTS
#define SMALL(...) .small = { __VA_ARGS__ },
#define LARGE(...) .large = { __VA_ARGS__ },
#define SIZES(...) .sizes = { __VA_ARGS__ },
#else
#define SMALL(...)
#define LARGE(...)
#define SIZES(...)
#endif

#define INTERNAL NULL, CALL("", "")
#define KEPT     "any; the result has the same shape"
#define FIT      "any that broadcast to one shape"
#define REDUCED  "any; the result lacks the axes, or has 1 there with keepdims"
#define ALONG    "any of rank 1 or more; the result has the same shape"

#define BIG    "[331,613]" /* 202903 elements: three chunks and a bit */
#define IMAGES "r[4,61,67,9]"

/* clang-format off */
/* Kinds of operators that differ in nothing but name and example. */
#define UNARY(name, example) \
    { name, KEPT, CALL(example, ""), SMALL(CALL("r[5]", "")) LARGE(CALL("r" BIG, "")) SIZES(CALL("r[A,B,C]", "")) }
#define UNARY_POSITIVE(name, example) \
    { name, KEPT, CALL(example, ""), SMALL(CALL("p[5]", "")) LARGE(CALL("p" BIG, "")) SIZES(CALL("p[A,B,C]", "")) }
#define UNARY_GRADIENT(name) \
    { name, INTERNAL, SMALL(CALL("r[2,3] r[3]", "")) LARGE(CALL("r" BIG " r" BIG, "")) SIZES(SIZES_BROADCAST) }
#define BINARY(name, example) \
    { name, FIT, CALL(example, ""), SMALL(CALL("r[2,3] r[3]", "")) LARGE(CALL("r" BIG " r[613]", "")) SIZES(SIZES_BROADCAST) }

#define SIZES_BROADCAST CALL("r[A,B,C] r[B,C]", ""), CALL("r[A,1] r[B]", "")
#define SIZES_ALONG \
    CALL("r[A,B,C]", "axis=[0]"), CALL("r[A,B,C]", "axis=[1]"), CALL("r[A,B,C]", "axis=[0,2]"), \
    CALL("r[A,B,C]", "axis=[2] keepdims=true")

static const op_row op_rows[] = {
    UNARY("abs", "[-1.5, 2.0]"),
    { "add", FIT, CALL("[[1, 2], [3, 4]] [10, 20]", ""),
      SMALL(CALL("r[2,3] r[3]", ""))
      LARGE(CALL("r" BIG " r[613]", ""), CALL("h" BIG " h" BIG, ""), CALL("i999" BIG " i7[331,1]", ""))
      SIZES(SIZES_BROADCAST, CALL("i9[A,B] i9[B]", "")) },
    { "add_n", "any, all the same; the result has the same shape", CALL("[1, 2] [3, 4] [5, 6]", ""),
      SMALL(CALL("r[2,3] r[2,3] r[2,3]", ""))
      LARGE(CALL("r" BIG " r" BIG " r" BIG, "")) },
    { "argmax", "any of rank 1 or more; the result lacks the axis", CALL("[[1, 5, 2], [7, 0, 7]]", "axis=1"),
      SMALL(CALL("r[2,3]", "axis=1"))
      LARGE(CALL("r" BIG, "axis=1"), CALL("r" BIG, "axis=0 output_type=int32"))
      SIZES(CALL("r[A,B,C]", "axis=0"), CALL("r[A,B,C]", "axis=2")) },
    { "argmin", "any of rank 1 or more; the result lacks the axis", CALL("[[1, 5, 2], [7, 0, 7]]", "axis=1"),
      SMALL(CALL("r[2,3]", "axis=0 output_type=int32"))
      LARGE(CALL("g" BIG, "axis=1"))
      SIZES(CALL("r[A,B,C]", "axis=1")) },
    { "argsort", ALONG, CALL("[3, 1, 2]", ""),
      SMALL(CALL("r[2,5]", "direction=DESCENDING"))
      LARGE(CALL("r" BIG, "axis=1 direction=DESCENDING")) },
    { "attention", "q [...,queries,heads*depth], k [...,keys,heads*depth], v [...,keys,heads*width] -> [...,queries,heads*width]",
      CALL("[[0.0], [9.0]] [[0.0], [2.0]] [[4.0], [6.0]]", "causal=true"),
      SMALL(CALL("r[2,3,4] r[2,5,4] r[2,5,2]", "heads=2"), CALL("r[3,2] r[3,2] r[3,3]", "causal=true scale=0.7"),
            CALL("r[1,2,4] r[1,4,4] r[1,4,2]", "heads=2 causal=true"))
      LARGE(CALL("r[3,131,72] r[3,137,72] r[3,137,40]", "heads=4"),
            CALL("r[5,199,66] r[5,199,66] r[5,199,66]", "heads=2 causal=true"),
            CALL("d[7,64,64] d[7,64,64] d[7,64,64]", "heads=2 causal=true"),
            CALL("h[7,64,64] h[7,64,64] h[7,64,64]", "heads=2"))
      SIZES(CALL("r[A,B,8] r[A,C,8] r[A,C,6]", "heads=2"), CALL("r[A,B,6] r[A,B,6] r[A,B,6]", "heads=3 causal=true"),
            CALL("r[A,B,D] r[A,C,D] r[A,C,E]", "causal=true")) },
    { "avg_pool2d", "[n,h,w,c] -> [n,oh,ow,c]", CALL("[[[[1.0], [2.0]], [[3.0], [4.0]]]]", "ksize=[2,2] strides=[2,2]"),
      SMALL(CALL("r[1,5,4,2]", "ksize=[3,2] strides=[2,1] padding=SAME"))
      LARGE(CALL(IMAGES, "ksize=[3,2] strides=[2,1] padding=SAME"))
      SIZES(CALL("r[2,A,B,C]", "ksize=[3,2] strides=[2,1] padding=SAME")) },
    { "avg_pool2d_grad", INTERNAL,
      SMALL(CALL("r[1,2,2,2]", "ksize=[2,2] strides=[2,2] shape=[1,5,4,2]"))
      LARGE(CALL("r[4,30,33,9]", "ksize=[2,2] strides=[2,2] shape=[4,61,67,9]"))
      SIZES(CALL("r[2,A,B,C]", "ksize=[3,3] strides=[1,1] padding=SAME shape=[2,A,B,C]")) },
    { "band_part", "[...,m,n]; the result has the same shape", CALL("[[1, 2, 3], [4, 5, 6], [7, 8, 9]]", "num_lower=0 num_upper=1"),
      SMALL(CALL("r[2,3,4]", "num_lower=1 num_upper=0"))
      LARGE(CALL("r[7,211,139]", "num_lower=20 num_upper=-1")) },
    { "batch_norm_inference", "x any; the others broadcast to it",
      CALL("[[1.0, 2.0], [3.0, 6.0]] [2.0, 4.0] [1.0, 4.0] [1.0, 1.0] [0.0, 0.0]", "epsilon=0.0"),
      SMALL(CALL("r[3,4] r[4] p[4] r[4] r[4]", ""))
      LARGE(CALL("r" BIG " r[613] p[613] r[613] r[613]", "")) },
    { "batch_norm_train", "x any; the others have the shape of x without axes; five results: one shaped as x, four as gamma",
      CALL("[[1.0], [3.0]] [1.0] [0.0] [0.0] [1.0]", "axes=[0] momentum=0.5"),
      SMALL(FIRST(3, "r[5,2] r[2] r[2] r[2] p[2]", "axes=[0]"))
      LARGE(CALL("r" BIG " r[613] r[613] r[613] p[613]", "axes=[0]")) },
    { "batch_norm_train_grad", INTERNAL,
      SMALL(CALL("r[5,2] r[2] r[2]", "axes=[0]"))
      LARGE(CALL("r" BIG " r[613] r[613]", "axes=[0]")) },
    { "broadcast_like", INTERNAL,
      SMALL(CALL("r[2,1] r[2,2,3]", ""))
      LARGE(CALL("r[331,1] r" BIG, ""))
      SIZES(CALL("r[A,1,C] r[A,B,C]", ""), CALL("r[1] r[A,B]", "")) },
    { "broadcast_to", "any that broadcasts to `shape`, the shape of the result", CALL("[1, 2]", "shape=[2,2]"),
      SMALL(CALL("r[2,1]", "shape=[2,2,3]"))
      LARGE(CALL("r[331,1]", "shape=[331,613]"))
      SIZES(CALL("r[A,1,C]", "shape=[A,B,C]"), CALL("r[1]", "shape=[A,B]")) },
    { "cast", KEPT, CALL("[1.7, -1.7]", "dtype=int32"),
      SMALL(CALL("r[4]", "dtype=float64"))
      LARGE(CALL("r" BIG, "dtype=float16"), CALL("r" BIG, "dtype=int64"))
      SIZES(CALL("r[A,B]", "dtype=int32"), CALL("r[A,B]", "dtype=float16"), CALL("i9[A,B]", "dtype=float64")) },
    UNARY("ceil", "[1.2, -1.2, 2.0]"),
    { "clip_by_global_norm", "any; one result for each input, of its shape, and a scalar", CALL("[3.0] [4.0]", "clip_norm=1.0"),
      SMALL(CALL("r[2,3] r[4]", "clip_norm=0.5"))
      LARGE(CALL("r" BIG " r[613,331]", "clip_norm=0.5")) },
    { "clip_by_norm", KEPT, CALL("[3.0, 4.0]", "clip_norm=1.0"),
      SMALL(CALL("r[2,3]", "axes=[1] clip_norm=0.5"))
      LARGE(CALL("r" BIG, "axes=[1] clip_norm=0.5")) },
    { "clip_by_value", KEPT, CALL("[-2, 1, 9]", "min=0 max=5"),
      SMALL(CALL("r[2,3]", "min=-0.4 max=0.6"))
      LARGE(CALL("r" BIG, "min=-0.4 max=0.6")) },
    { "concat", "any of rank 1 or more, equal except along the axis, where they add up",
      CALL("[[1, 2]] [[3, 4], [5, 6]]", "axis=0"),
      SMALL(CALL("r[2,3] r[2,1]", "axis=1"))
      LARGE(WHOLE("r" BIG " r[331,17]", "axis=1"))
      SIZES(CALL("r[A,B,C] r[A,D,C]", "axis=1"), CALL("h[A,B] h[C,B]", "axis=0")) },
    { "concat_grad", INTERNAL,
      SMALL(CALL("r[2,6] r[2,3] r[2,1] r[2,2]", "axis=1 which=1"))
      LARGE(CALL("r[331,630] r" BIG " r[331,17]", "axis=1 which=0")) },
    { "conv2d", "[n,h,w,in], [kh,kw,in,out] -> [n,oh,ow,out]", CALL("[[[[1.0], [2.0]], [[3.0], [4.0]]]] [[[[1.0]], [[10.0]]]]", ""),
      SMALL(CALL("r[1,5,4,2] r[3,2,2,2]", "padding=SAME strides=[2,1]"))
      LARGE(CALL(IMAGES " r[3,3,9,11]", "padding=SAME"), CALL("r[32,61,67,1] r[3,3,1,11]", "strides=[2,1]"),
            CALL("d[4,61,67,9] d[3,3,9,11]", "dilations=[2,2]"), CALL("h[4,61,67,9] h[3,3,9,11]", ""))
      SIZES(CALL("r[D,A,B,C] r[3,2,C,E]", "padding=SAME"), CALL("r[2,A,B,C] r[1,1,C,E]", ""),
            CALL("r[2,A,B,C] r[3,3,C,E]", "strides=[2,3]"), CALL("r[2,A,B,3] r[2,2,3,E]", "dilations=[2,1]")) },
    { "conv2d_backprop_filter", INTERNAL,
      SMALL(CALL("r[1,5,4,2] r[1,3,3,2]", "sizes=[3,2,2,2]"))
      LARGE(CALL("r[32,61,67,9] r[32,59,65,11]", "sizes=[3,3,9,11]"))
      SIZES(CALL("r[2,A,B,C] r[2,A,B,E]", "sizes=[3,3,C,E] padding=SAME")) },
    { "conv2d_backprop_input", INTERNAL,
      SMALL(CALL("r[3,2,2,2] r[1,3,3,2]", "sizes=[1,5,4,2]"))
      LARGE(CALL("r[3,3,9,11] r[4,59,65,11]", "sizes=[4,61,67,9]"))
      SIZES(CALL("r[3,3,C,E] r[2,A,B,E]", "sizes=[2,A,B,C] padding=SAME")) },
    { "conv2d_bias", "[n,h,w,in], [kh,kw,in,out], [out] -> [n,oh,ow,out]",
      CALL("[[[[1.0], [2.0]], [[3.0], [4.0]]]] [[[[1.0]], [[10.0]]]] [-25.0]", "activation=relu"),
      SMALL(CALL("r[1,5,4,2] r[3,2,2,2] r[2]", "padding=SAME activation=tanh"),
            CALL("r[1,5,4,2] r[3,2,2,2] r[2]", "activation=silu"))
      LARGE(CALL(IMAGES " r[3,3,9,11] r[11]", "padding=SAME activation=relu"),
            CALL("d[4,61,67,9] d[3,3,9,11] d[11]", "activation=gelu"))
      SIZES(CALL("r[2,A,B,C] r[2,3,C,E] r[E]", "padding=SAME activation=tanh")) },
    { "conv2d_pooled_grad", INTERNAL,
      SMALL(CALL("r[1,4,4,1] r[1,4,4,16] r[1,2,2,16] r[1,2,2,16]", "sizes=[3,3,1,16] padding=SAME"))
      LARGE(WHOLE("r[40,28,28,1] r[40,28,28,16] r[40,14,14,16] r[40,14,14,16]", "sizes=[3,3,1,16] padding=SAME"))
      SIZES(CALL("r[A,4,6,1] r[A,4,6,16] r[A,2,3,16] r[A,2,3,16]", "sizes=[3,3,1,16] padding=SAME activation=relu")) },
    { "conv2d_transpose", "[n,h,w,in], [kh,kw,out,in] -> output_shape [n,oh,ow,out]",
      CALL("[[[[1.0], [2.0]]]] [[[[1.0]], [[10.0]]]]", "output_shape=[1,1,4,1] strides=[1,2]"),
      SMALL(CALL("r[1,2,2,2] r[3,2,2,2]", "output_shape=[1,4,4,2] strides=[2,2]"))
      LARGE(CALL("r[4,30,33,11] r[3,3,9,11]", "output_shape=[4,60,66,9] strides=[2,2]")) },
    UNARY("cos", "[0.0, 3.1415927]"),
    { "cumprod", ALONG, CALL("[1, 2, 3, 4]", ""),
      SMALL(CALL("r[2,4]", "axis=1"))
      LARGE(CALL("r" BIG, "axis=1"))
      SIZES(CALL("p[A,7,C]", "axis=1")) },
    { "cumsum", ALONG, CALL("[1, 2, 3, 4]", ""),
      SMALL(CALL("r[3,2]", "axis=0 exclusive=true"))
      LARGE(CALL("r" BIG, "axis=0 reverse=true"), WHOLE("r[202903]", "exclusive=true"))
      SIZES(CALL("r[A,B,C]", "axis=1 exclusive=true"), CALL("r[A,B,C]", "axis=2 reverse=true")) },
    { "dense", "[...,k], [k,n], [n] -> [...,n]", CALL("[[1.0, 2.0], [3.0, -4.0]] [[1.0], [10.0]] [0.5]", "activation=relu"),
      SMALL(CALL("r[2,3] r[3,2] r[2]", ""), CALL("r[2,2,3] r[3,2] r[2]", "activation=elu"),
            CALL("r[2,3] r[3,2] r[2]", "activation=gelu"))
      LARGE(CALL("r[257,131] r[131,193] r[193]", "activation=tanh"),
            CALL("h[13,61,67] h[67,71] h[71]", "activation=sigmoid"))
      SIZES(CALL("r[A,B] r[B,C] r[C]", "activation=gelu"), CALL("r[3,A,B] r[B,C] r[C]", "activation=relu")) },
    { "depthwise_conv2d", "[n,h,w,c], [kh,kw,c,m] -> [n,oh,ow,c*m]", CALL("[[[[1.0, 2.0]]]] [[[[3.0], [5.0]]]]", ""),
      SMALL(CALL("r[1,4,4,2] r[2,2,2,2]", ""))
      LARGE(CALL(IMAGES " r[3,3,9,2]", "")) },
    { "div", FIT, CALL("[1, 2] [2, 8]", ""),
      SMALL(CALL("r[2,3] p[3]", ""))
      LARGE(CALL("r" BIG " p[331,1]", ""), CALL("j999" BIG " j7[1]", ""))
      SIZES(CALL("r[A,B] p[B]", "")) },
    { "dropout", KEPT, CALL("[1.0, 2.0, 3.0, 4.0]", "rate=0.5"),
      SMALL(CALL("r[3,4]", "rate=0.4"))
      LARGE(CALL("r" BIG, "rate=0.3")) },
    { "einsum", "as the equation says", CALL("[[1.0, 2.0], [3.0, 4.0]] [[1.0], [10.0]]", "equation=ij,jk->ik"),
      SMALL(CALL("r[2,3] r[3,2]", "equation=ij,jk->ki"))
      LARGE(CALL("r[61,131,37] r[37,131,53]", "equation=abc,cbd->bad")) },
    UNARY("elu", "[-1.0, 2.0]"),
    UNARY_GRADIENT("elu_grad"),
    { "embedding_lookup", "[rows,...], ids [...] -> [ids...,...]", CALL("[[1, 2], [3, 4], [5, 6]] [2, 0]", ""),
      SMALL(CALL("r[4,2] i4[5]", ""))
      LARGE(CALL("r[1009,331] i1009[613]", "")) },
    { "equal", FIT, CALL("[1, 2, 3] [1, 0, 3]", ""),
      SMALL(CALL("r[2,3] r[3]", ""))
      LARGE(CALL("r" BIG " r" BIG, ""))
      SIZES(SIZES_BROADCAST) },
    UNARY("erf", "[0.0, 1.0]"),
    { "exp", KEPT, CALL("[0.0, 1.0]", ""),
      SMALL(CALL("r[5]", ""))
      LARGE(CALL("r" BIG, ""), CALL("d" BIG, ""))
      SIZES(CALL("r[A,B,C]", "")) },
    { "expand_dims", "any; the result has one more dimension, of 1", CALL("[1, 2]", "axis=0"),
      SMALL(CALL("r[2,3]", "axis=1"))
      LARGE(WHOLE("r" BIG, "axis=1")) },
    UNARY("expm1", "[0.0, 1.0]"),
    { "eye", "-> [batch_shape...,num_rows,num_columns]", CALL("", "num_rows=2 num_columns=3"),
      SMALL(CALL("", "num_rows=3 batch_shape=[2]"))
      LARGE(WHOLE("", "num_rows=331 num_columns=613")) },
    { "fill", "-> shape", CALL("", "shape=[2,2] value=7"),
      SMALL(CALL("", "shape=[2,3] value=3.5"))
      LARGE(WHOLE("", "shape=[331,613] value=1.5"))
      SIZES(CALL("", "shape=[A,B] value=1.5")) },
    UNARY("floor", "[1.2, -1.2, 2.0]"),
    { "floordiv", FIT, CALL("[7, -7] [2, 2]", ""),
      SMALL(CALL("r[2,3] p[3]", ""))
      LARGE(CALL("r" BIG " p[613]", ""))
      SIZES(CALL("r[A,B] p[A,1]", "")) },
    { "fused_batch_norm_train", "[...,c], [c], [c] -> [...,c], [c], [c]", CALL("[[1.0], [3.0]] [1.0] [0.0]", ""),
      SMALL(CALL("r[5,1,1,2] r[2] r[2]", ""))
      LARGE(CALL(IMAGES " r[9] r[9]", "")) },
    { "fused_batch_norm_train_grad", INTERNAL,
      SMALL(CALL("r[5,1,1,2] r[2] r[2]", ""))
      LARGE(CALL(IMAGES " r[9] r[9]", "")) },
    { "gather", "params with its dimension `axis` replaced by those of indices", CALL("[[1, 2], [3, 4], [5, 6]] [2, 0]", "axis=0"),
      SMALL(CALL("r[4,2] i4[5]", ""), CALL("r[2,3,2] i3[2,4]", "axis=1 batch_dims=1"))
      LARGE(CALL("r[1009,331] i1009[613]", ""), CALL("r[7,331,61] i331[7,613]", "axis=1 batch_dims=1"),
            CALL("h[331,613] j613[700]", "axis=1"))
      SIZES(CALL("r[A,B] iA[C]", ""), CALL("r[A,B,C] iB[D]", "axis=1"), CALL("r[A,B,C] jB[A,D]", "axis=1 batch_dims=1")) },
    { "gather_nd", "params [d1,...], indices [...,k] -> [...] and the dimensions of params after the first k",
      CALL("[[1, 2], [3, 4]] [[1, 0], [0, 1]]", ""),
      SMALL(CALL("r[3,3,2] i3[4,2]", ""))
      LARGE(CALL("r[613,331,3] i331[90001,2]", "")) },
    { "gelu", KEPT, CALL("[-1.0, 0.0, 1.0]", ""),
      SMALL(CALL("r[5]", ""), CALL("r[5]", "approximate=true"))
      LARGE(CALL("r" BIG, ""), CALL("r" BIG, "approximate=true"))
      SIZES(CALL("r[A,B,C]", ""), CALL("r[A,B,C]", "approximate=true")) },
    UNARY_GRADIENT("gelu_tanh_grad"),
    { "global_norm", "any -> []", CALL("[3.0] [4.0]", ""),
      SMALL(CALL("r[2,3] r[4]", ""))
      LARGE(CALL("r" BIG " r[613,331]", "")) },
    BINARY("greater", "[1, 2, 3] [2, 2, 2]"),
    BINARY("greater_equal", "[1, 2, 3] [2, 2, 2]"),
    { "identity", KEPT, CALL("[1, 2]", ""),
      SMALL(CALL("r[3]", ""))
      LARGE(WHOLE("r" BIG, "")) },
    UNARY("isfinite", "[1.0, inf, nan]"),
    UNARY("isinf", "[1.0, inf, nan]"),
    UNARY("isnan", "[1.0, inf, nan]"),
    { "l2_loss", "any -> []", CALL("[3.0, 4.0]", ""),
      SMALL(CALL("r[2,3]", ""))
      LARGE(CALL("r" BIG, "")) },
    { "l2_normalize", KEPT, CALL("[3.0, 4.0]", ""),
      SMALL(CALL("r[2,3]", "axis=[1]"))
      LARGE(CALL("r" BIG, "axis=[1]")) },
    { "layer_norm", "x any; gamma and beta broadcast to it", CALL("[[1.0, 3.0]] [1.0, 1.0] [0.0, 10.0]", "epsilon=0.0"),
      SMALL(CALL("r[2,4] r[4] r[4]", ""), CALL("r[2,3,2] r[3,2] r[1,3,2]", "axis=[2,1] epsilon=0.1"),
            CALL("r[2,3,2] r[3,1] r[2]", "axis=[1]"))
      LARGE(CALL("r" BIG " r[613] r[613]", ""), CALL("d" BIG " d[613] d[613]", ""), CALL("h[3001,61] h[61] h[61]", ""),
            CALL("r" BIG " r[331,1] r[613]", "axis=[0]"))
      SIZES(CALL("r[A,B] r[B] r[B]", "epsilon=0.1"), CALL("r[A,B,C] r[B,C] r[B,C]", "axis=[1,2] epsilon=0.1")) },
    { "leaky_relu", KEPT, CALL("[-1.0, 2.0]", ""),
      SMALL(CALL("r[5]", "alpha=0.3"))
      LARGE(CALL("r" BIG, ""))
      SIZES(CALL("r[A,B,C]", "")) },
    BINARY("less", "[1, 2, 3] [2, 2, 2]"),
    BINARY("less_equal", "[1, 2, 3] [2, 2, 2]"),
    { "linspace", "-> [num]", CALL("", "start=0 stop=1 num=5"),
      SMALL(CALL("", "start=0.0 stop=1.0 num=5"))
      LARGE(CALL("", "start=0 stop=1 num=202903")) },
    UNARY_POSITIVE("log", "[1.0, 10.0]"),
    UNARY_POSITIVE("log1p", "[0.0, 1.0]"),
    UNARY("log_sigmoid", "[0.0, 2.0]"),
    { "log_softmax", ALONG, CALL("[1.0, 1.0]", ""),
      SMALL(CALL("r[2,3]", ""))
      LARGE(CALL("r" BIG, ""), CALL("r" BIG, "axis=0")) },
    { "logical_and", FIT, CALL("[true, true] [true, false]", ""),
      SMALL(CALL("b[2,3] b[3]", ""))
      LARGE(CALL("b" BIG " b[613]", ""))
      SIZES(CALL("b[A,B] b[B]", "")) },
    { "logical_not", KEPT, CALL("[true, false]", ""),
      SMALL(CALL("b[5]", ""))
      LARGE(CALL("b" BIG, ""))
      SIZES(CALL("b[A,B,C]", "")) },
    { "logical_or", FIT, CALL("[true, false] [false, false]", ""),
      SMALL(CALL("b[2,3] b[3]", ""))
      LARGE(CALL("b" BIG " b[613]", ""))
      SIZES(CALL("b[A,B] b[B]", "")) },
    { "logical_xor", FIT, CALL("[true, true] [true, false]", ""),
      SMALL(CALL("b[2,3] b[3]", ""))
      LARGE(CALL("b" BIG " b[613]", ""))
      SIZES(CALL("b[A,1] b[B]", "")) },
    { "matmul", "[...,m,k], [...,k,n] -> [...,m,n]", CALL("[[1.0, 2.0], [3.0, 4.0]] [[1.0], [10.0]]", ""),
      SMALL(CALL("r[2,3] r[2,3]", "transpose_b=true"), CALL("r[2,1,3] r[3,2]", ""))
      LARGE(CALL("r[257,131] r[131,193]", ""), CALL("r[131,257] r[193,131]", "transpose_a=true transpose_b=true"),
            CALL("d[257,131] d[131,193]", ""), CALL("h[257,131] h[131,193]", ""), CALL("g[257,131] g[131,193]", ""),
            WHOLE("i9[257,131] i9[131,193]", ""), CALL("r[13,61,67] r[67,71]", ""), WHOLE("r[3,200001] r[200001,2]", ""))
      SIZES(CALL("r[A,B] r[B,C]", ""), CALL("r[B,A] r[C,B]", "transpose_a=true transpose_b=true"),
            CALL("r[A,B] r[C,B]", "transpose_b=true"), CALL("r[B,A] r[B,C]", "transpose_a=true"),
            CALL("r[3,A,B] r[B,C]", ""), CALL("r[2,1,A,B] r[3,B,C]", ""), CALL("i9[A,B] i9[B,C]", "")) },
    { "matvec", "[...,m,k], [...,k] -> [...,m]", CALL("[[1.0, 2.0], [3.0, 4.0]] [1.0, 10.0]", ""),
      SMALL(CALL("r[2,3] r[3]", ""))
      LARGE(CALL("r[613,1009] r[1009]", "")) },
    { "max_pool2d", "[n,h,w,c] -> [n,oh,ow,c]", CALL("[[[[1.0], [2.0]], [[3.0], [4.0]]]]", "ksize=[2,2] strides=[2,2]"),
      SMALL(CALL("r[1,5,4,2]", "ksize=[3,2] strides=[2,1] padding=SAME"))
      LARGE(CALL(IMAGES, "ksize=[3,2] strides=[2,1] padding=SAME"))
      SIZES(CALL("r[2,A,B,C]", "ksize=[2,2] strides=[2,2]"),
            CALL("r[2,A,B,C]", "ksize=[3,2] strides=[2,1] padding=SAME")) },
    { "max_pool2d_grad", INTERNAL,
      SMALL(CALL("r[1,4,4,2] r[1,2,2,2] r[1,2,2,2]", "ksize=[2,2] strides=[2,2]"))
      LARGE(CALL(IMAGES " r[4,30,33,9] r[4,30,33,9]", "ksize=[2,2] strides=[2,2]"))
      SIZES(CALL("r[2,A,B,C] r[2,A,B,C] r[2,A,B,C]", "ksize=[1,1] strides=[1,1]")) },
    { "max_pool2d_grad_grad", INTERNAL,
      SMALL(CALL("r[1,4,4,2] r[1,2,2,2] r[1,4,4,2]", "ksize=[2,2] strides=[2,2]"))
      LARGE(CALL(IMAGES " r[4,30,33,9] " IMAGES, "ksize=[2,2] strides=[2,2]"))
      SIZES(CALL("r[2,A,B,C] r[2,A,B,C] r[2,A,B,C]", "ksize=[3,3] strides=[1,1] padding=SAME")) },
    BINARY("maximum", "[1, 5] [3, 3]"),
    { "merge_dims", INTERNAL,
      SMALL(CALL("r[2,3,2]", "first=1 count=2"))
      LARGE(WHOLE("r" BIG, "first=0 count=2")) },
    BINARY("minimum", "[1, 5] [3, 3]"),
    { "mod", FIT, CALL("[7, -7] [3, 3]", ""),
      SMALL(CALL("r[2,3] p[3]", ""))
      LARGE(CALL("r" BIG " p[613]", ""))
      SIZES(CALL("r[A,B] p[B]", "")) },
    { "moments", "any -> two results without the axes, or with 1 there", CALL("[[1.0, 2.0], [3.0, 6.0]]", "axes=[0]"),
      SMALL(CALL("r[3,4]", "axes=[0]"))
      LARGE(CALL("r" BIG, "axes=[0]")) },
    { "mse", "[...,n], [...,n] -> [...]", CALL("[[1.0, 2.0]] [[2.0, 4.0]]", ""),
      SMALL(CALL("r[2,3] r[2,3]", ""))
      LARGE(CALL("r" BIG " r" BIG, "")) },
    { "mul", FIT, CALL("[1, 2] [[10], [20]]", ""),
      SMALL(CALL("r[2,3] r[2,1]", ""))
      LARGE(CALL("r" BIG " r[331,1]", ""))
      SIZES(SIZES_BROADCAST, CALL("j9[A,1] j9[B]", "")) },
    UNARY("neg", "[1, -2]"),
    BINARY("not_equal", "[1, 2, 3] [1, 0, 3]"),
    { "one_hot", "any; the result has one more dimension `depth` at axis `axis`", CALL("[2, 0]", "depth=3"),
      SMALL(CALL("i3[4]", "depth=3 on_value=2.0 axis=0"))
      LARGE(WHOLE("i613[331]", "depth=613"))
      SIZES(CALL("iA[B,C]", "depth=A")) },
    { "one_hot_like", INTERNAL,
      SMALL(CALL("i3[4] r[4,3]", ""))
      LARGE(WHOLE("i613[331] r" BIG, "")) },
    { "ones", "-> shape", CALL("", "shape=[2]"),
      SMALL(CALL("", "shape=[2,3]"))
      LARGE(WHOLE("", "shape=[331,613]"))
      SIZES(CALL("", "shape=[A,B] dtype=float16")) },
    { "ones_like", KEPT, CALL("[5, 6]", ""),
      SMALL(CALL("r[5]", ""))
      LARGE(WHOLE("r" BIG, "")) },
    { "pad", "any; each dimension grows by its two paddings", CALL("[1, 2]", "paddings=[1,2] constant_values=9"),
      SMALL(CALL("r[2,3]", "paddings=[1,0,0,2] constant_values=1.5"), CALL("r[2,3]", "paddings=[1,1,2,0] mode=REFLECT"))
      LARGE(CALL("r" BIG, "paddings=[1,2,0,3] constant_values=1.5"), CALL("r" BIG, "paddings=[1,2,0,3] mode=REFLECT")) },
    { "pow", FIT, CALL("[2, 3] [3, 2]", ""),
      SMALL(CALL("p[2,3] r[3]", ""))
      LARGE(CALL("p" BIG " r[613]", ""))
      SIZES(CALL("p[A,B] r[B]", "")) },
    { "random_normal", "-> shape", CALL("", "shape=[3]"),
      SMALL(CALL("", "shape=[2,3]"))
      LARGE(CALL("", "shape=[331,613] mean=1 stddev=2")) },
    { "random_uniform", "-> shape", CALL("", "shape=[3]"),
      SMALL(CALL("", "shape=[2,3]"))
      LARGE(CALL("", "shape=[331,613] low=-1"), CALL("", "shape=[331,613] dtype=bfloat16")) },
    { "range", "-> [n]", CALL("", "start=1 limit=8 delta=3"),
      SMALL(CALL("", "start=1 limit=9 delta=2"))
      LARGE(WHOLE("", "start=0 limit=202903 delta=1"))
      SIZES(CALL("", "start=0 limit=A delta=0.7")) },
    { "rank", "any -> []", CALL("[[1, 2, 3]]", ""),
      SMALL(CALL("r[2,3]", ""))
      LARGE(WHOLE("r" BIG, "")) },
    UNARY_POSITIVE("reciprocal", "[2.0, -4.0]"),
    { "reduce_all", REDUCED, CALL("[[true, true], [true, false]]", "axis=[1]"),
      SMALL(CALL("b[2,3]", "axis=[1]"))
      LARGE(CALL("b" BIG, "axis=[1]")) },
    { "reduce_any", REDUCED, CALL("[[true, true], [false, false]]", "axis=[1]"),
      SMALL(CALL("b[2,3]", "axis=[0] keepdims=true"))
      LARGE(CALL("b" BIG, "axis=[0]")) },
    { "reduce_euclidean_norm", REDUCED, CALL("[3.0, 4.0]", ""),
      SMALL(CALL("r[2,3]", "axis=[1]"))
      LARGE(CALL("r" BIG, "")) },
    { "reduce_logsumexp", REDUCED, CALL("[0.0, 0.0]", ""),
      SMALL(CALL("r[2,3]", "axis=[1]"))
      LARGE(CALL("r" BIG, "axis=[1]")) },
    { "reduce_max", REDUCED, CALL("[[1, 4], [3, 2]]", "axis=[1]"),
      SMALL(CALL("r[2,3]", "axis=[0]"))
      LARGE(CALL("r" BIG, ""))
      SIZES(SIZES_ALONG) },
    { "reduce_mean", REDUCED, CALL("[[1.0, 4.0], [3.0, 2.0]]", "axis=[0]"),
      SMALL(CALL("r[2,3]", "axis=[1]"))
      LARGE(CALL("r" BIG, "axis=[0]"))
      SIZES(SIZES_ALONG) },
    { "reduce_min", REDUCED, CALL("[[1, 4], [3, 2]]", "axis=[1]"),
      SMALL(CALL("r[2,3]", ""))
      LARGE(CALL("r" BIG, "axis=[1]"))
      SIZES(SIZES_ALONG) },
    { "reduce_prod", REDUCED, CALL("[[1, 4], [3, 2]]", "axis=[1]"),
      SMALL(CALL("r[2,3]", "axis=[1]"))
      LARGE(CALL("p" BIG, "axis=[0]"))
      SIZES(CALL("p[A,B,C]", "axis=[1]"), CALL("i3[A,B,C]", "axis=[0,2]")) },
    { "reduce_std", REDUCED, CALL("[1.0, 3.0]", ""),
      SMALL(CALL("r[2,3]", ""))
      LARGE(CALL("r" BIG, "")) },
    { "reduce_sum", REDUCED, CALL("[[1, 4], [3, 2]]", "axis=[1] keepdims=true"),
      SMALL(CALL("r[2,3,2]", "axis=[0,2]"))
      LARGE(CALL("r" BIG, ""), CALL("r" BIG, "axis=[0]"), CALL("r" BIG, "axis=[1] keepdims=true"), CALL("h" BIG, ""),
            CALL("r[37,613,29]", "axis=[0,2]"))
      SIZES(SIZES_ALONG) },
    { "reduce_variance", REDUCED, CALL("[1.0, 3.0]", ""),
      SMALL(CALL("r[2,3]", "axis=[0]"))
      LARGE(CALL("r" BIG, "axis=[0]")) },
    UNARY("relu", "[-1.0, 2.0]"),
    UNARY("relu6", "[-1.0, 2.0, 9.0]"),
    { "relu6_grad", INTERNAL,
      SMALL(CALL("r[1] r[5]", ""))
      LARGE(CALL("r" BIG " r" BIG, ""))
      SIZES(SIZES_BROADCAST) },
    UNARY_GRADIENT("relu_grad"),
    { "reshape", "any -> shape, with the same number of elements", CALL("[1, 2, 3, 4]", "shape=[2,-1]"),
      SMALL(CALL("r[2,3]", "shape=[3,-1]"))
      LARGE(WHOLE("r" BIG, "shape=[-1]")) },
    { "reshape_like", INTERNAL,
      SMALL(CALL("r[2,3] r[3,2]", ""))
      LARGE(WHOLE("r" BIG " r[613,331]", "")) },
    { "restore_axes", INTERNAL,
      SMALL(CALL("r[3] r[2,3,2]", "axis=[0,2]"))
      LARGE(WHOLE("r[613] r" BIG, "axis=[0]")) },
    { "reverse", KEPT, CALL("[[1, 2], [3, 4]]", "axis=[1]"),
      SMALL(CALL("r[2,3]", "axis=[1]"))
      LARGE(CALL("r" BIG, "axis=[1]"), WHOLE("r" BIG, "axis=[0,1]")) },
    { "roll", KEPT, CALL("[1, 2, 3, 4]", "shift=[1] axis=[0]"),
      SMALL(CALL("r[2,3]", "shift=[1,-2] axis=[0,1]"))
      LARGE(CALL("r" BIG, "shift=[1,-2] axis=[0,1]")) },
    UNARY("round", "[0.5, 1.5, -1.2]"),
    UNARY_POSITIVE("rsqrt", "[4.0, 0.25]"),
    { "scatter_add", INTERNAL,
      SMALL(CALL("r[5,2] i3[5]", "shape=[3,2]"))
      LARGE(WHOLE("r[613,331] i61[613]", "shape=[61,331]"))
      SIZES(CALL("r[C,B] iA[C]", "shape=[A,B]")) },
    { "scatter_nd", "indices [...,k], updates [...,shape[k:]...] -> shape", CALL("[[1], [3], [1]] [5, 6, 7]", "shape=[4]"),
      SMALL(CALL("i3[5,1] r[5,2]", "shape=[3,2]"))
      LARGE(WHOLE("i61[613,1] r[613,331]", "shape=[61,331]")) },
    UNARY("selu", "[-1.0, 2.0]"),
    UNARY_GRADIENT("selu_grad"),
    { "shape", "any -> [rank]", CALL("[[1, 2, 3]]", ""),
      SMALL(CALL("r[2,3]", ""))
      LARGE(WHOLE("r" BIG, "")) },
    UNARY("sigmoid", "[0.0, 2.0]"),
    { "sigmoid_cross_entropy_with_logits", "both the same; the result has the same shape", CALL("[1.0, 0.0] [2.0, 2.0]", ""),
      SMALL(CALL("p[5] r[5]", ""))
      LARGE(CALL("p" BIG " r" BIG, "")) },
    { "sigmoid_grad", INTERNAL,
      SMALL(CALL("r[2,3] r[3]", ""))
      LARGE(CALL("p" BIG " r" BIG, ""))
      SIZES(SIZES_BROADCAST) },
    UNARY("sign", "[-3, 0, 5]"),
    UNARY("silu", "[-1.0, 2.0]"),
    UNARY("sin", "[0.0, 1.5707964]"),
    { "size", "any -> []", CALL("[[1, 2, 3]]", ""),
      SMALL(CALL("r[2,3]", ""))
      LARGE(WHOLE("r" BIG, "")) },
    { "slice", "any -> size", CALL("[[1, 2, 3], [4, 5, 6]]", "begin=[0,1] size=[-1,2]"),
      SMALL(CALL("r[3,4]", "begin=[1,0] size=[-1,2]"))
      LARGE(CALL("r" BIG, "begin=[3,5] size=[-1,601]"))
      SIZES(CALL("r[A,B,C]", "begin=[0,1,0] size=[-1,-1,D]")) },
    { "slice_grad", INTERNAL,
      SMALL(CALL("r[2,2]", "begin=[1,0] shape=[3,4]"))
      LARGE(CALL("r" BIG, "begin=[3,5] shape=[340,620]"))
      SIZES(CALL("r[A,B]", "begin=[1,2] shape=[131,133]")) },
    { "softmax", ALONG, CALL("[0.0, 0.0]", ""),
      SMALL(CALL("r[2,3]", ""), CALL("r[2,3]", "axis=0"))
      LARGE(CALL("r" BIG, ""), CALL("r" BIG, "axis=0"))
      SIZES(CALL("r[A,B,C]", "axis=-1"), CALL("r[A,B,C]", "axis=0")) },
    { "softmax_cross_entropy_with_logits", "both the same; the result lacks the axis", CALL("[[0.5, 0.5]] [[0.0, 0.0]]", ""),
      SMALL(CALL("s[2,3] r[2,3]", ""), CALL("s[1,3] r[2,3]", "axis=1"))
      LARGE(CALL("p" BIG " r" BIG, ""), CALL("h" BIG " h" BIG, ""), CALL("p" BIG " r" BIG, "axis=0"))
      SIZES(CALL("s[A,B] r[A,B]", "")) },
    { "softmax_grad", INTERNAL,
      SMALL(CALL("r[2,3] r[2,3]", ""))
      LARGE(CALL("p" BIG " r" BIG, ""))
      SIZES(CALL("r[A,B] r[A,B]", "axis=1")) },
    UNARY("softplus", "[0.0, 50.0]"),
    UNARY("softsign", "[-1.0, 3.0]"),
    { "sort", ALONG, CALL("[3, 1, 2]", "direction=DESCENDING"),
      SMALL(CALL("r[2,3]", "direction=DESCENDING"))
      LARGE(CALL("r" BIG, "axis=0 direction=DESCENDING")) },
    { "sparse_softmax_cross_entropy_grad", INTERNAL,
      SMALL(CALL("i3[2] r[2,3] r[2]", ""))
      LARGE(CALL("i613[331] r" BIG " r[331]", ""))
      SIZES(CALL("iB[A] r[A,B] r[A]", "")) },
    { "sparse_softmax_cross_entropy_with_logits", "labels [...], logits [...,classes] -> [...]", CALL("[1] [[0.0, 0.0]]", ""),
      SMALL(CALL("i3[2] r[2,3]", ""))
      LARGE(CALL("j613[331] r" BIG, ""))
      SIZES(CALL("iB[A] r[A,B]", "")) },
    { "split", "any -> parts that add up along the axis", CALL("[1, 2, 3, 4]", "num_or_sizes=[1,-1]"),
      SMALL(CALL("r[2,5]", "num_or_sizes=[2,-1] axis=1"))
      LARGE(CALL("r" BIG, "num_or_sizes=[200,-1] axis=1")) },
    { "split_2", INTERNAL,
      SMALL(CALL("r[2,3]", "axis=1 sizes=[1,2]"))
      LARGE(CALL("r" BIG, "axis=1 sizes=[600,13]"))
      SIZES(CALL("r[A,B]", "axis=0 sizes=[A,0]")) },
    { "split_3", INTERNAL,
      SMALL(CALL("r[4,3]", "axis=0 sizes=[1,2,1]"))
      LARGE(CALL("r" BIG, "axis=1 sizes=[600,0,13]"))
      SIZES(CALL("r[A,B,3]", "axis=-1 sizes=[1,1,1]")) },
    { "split_4", INTERNAL,
      SMALL(CALL("r[2,6]", "axis=-1 sizes=[1,2,2,1]"))
      LARGE(WHOLE("r" BIG, "axis=0 sizes=[100,100,100,31]"))
      SIZES(CALL("r[A,7,B]", "axis=1 sizes=[1,2,3,1]")) },
    { "split_5", INTERNAL,
      SMALL(CALL("r[5]", "axis=0 sizes=[1,1,1,1,1]"))
      LARGE(CALL("r" BIG, "axis=1 sizes=[600,10,1,1,1]"))
      SIZES(CALL("r[A,5,B]", "axis=-2 sizes=[1,1,1,1,1]")) },
    { "split_last", INTERNAL,
      SMALL(CALL("r[2,6]", "parts=2"))
      LARGE(WHOLE("r[331,614]", "parts=2")) },
    UNARY_POSITIVE("sqrt", "[4.0, 2.0]"),
    UNARY("square", "[3, -4]"),
    BINARY("squared_difference", "[1, 5] [3, 3]"),
    { "squeeze", "any; the result lacks dimensions of 1", CALL("[[[1], [2]]]", ""),
      SMALL(CALL("r[2,1,3]", ""))
      LARGE(WHOLE("r[331,1,613]", "")) },
    { "stack", "all the same; the result has one more dimension at `axis`, the number of inputs", CALL("[1, 2] [3, 4]", "axis=1"),
      SMALL(CALL("r[2,3] r[2,3]", "axis=1"))
      LARGE(WHOLE("r" BIG " r" BIG, "axis=1")) },
    { "stateless_random_normal", "-> shape", CALL("", "shape=[3] seed=[1,2]"),
      SMALL(CALL("", "shape=[2,3] seed=[1,2]"))
      LARGE(CALL("", "shape=[331,613] seed=[3,4]")) },
    { "stateless_random_uniform", "-> shape", CALL("", "shape=[3] seed=[1,2]"),
      SMALL(CALL("", "shape=[2,3] seed=[1,2]"))
      LARGE(CALL("", "shape=[331,613] seed=[-1,4] dtype=float64")) },
    { "stop_gradient", KEPT, CALL("[1.0, 2.0]", ""),
      SMALL(CALL("r[5]", ""))
      LARGE(WHOLE("r" BIG, "")) },
    { "strided", INTERNAL,
      SMALL(CALL("r[3,5]", "begin=[2,1] strides=[-1,2] shape=[3,2]"))
      LARGE(CALL("r[340,640]", "begin=[330,1] strides=[-1,2] shape=[331,300]"))
      SIZES(CALL("r[A,B]", "begin=[0,1] strides=[1,2] shape=[A,3]")) },
    { "strided_grad", INTERNAL,
      SMALL(CALL("r[3,2]", "begin=[2,1] strides=[-1,2] shape=[3,5]"))
      LARGE(CALL("r[331,300]", "begin=[330,1] strides=[-1,2] shape=[340,640]"))
      SIZES(CALL("r[A,B]", "begin=[0,0] strides=[1,1] shape=[A,B]")) },
    { "strided_slice", "as in Python", CALL("[1, 2, 3, 4, 5]", "begin=[4] end=[0] strides=[-2]"),
      SMALL(CALL("r[3,5]", "begin=[-1,0] end=[0,5] strides=[-1,2]"))
      LARGE(CALL("r[340,1280]", "begin=[-1,0] end=[0,1280] strides=[-1,2]")) },
    BINARY("sub", "[1, 2] [10, 20]"),
    { "sum_to_like", INTERNAL,
      SMALL(CALL("r[2,3,2] r[3,1]", ""))
      LARGE(CALL("r" BIG " r[613]", ""))
      SIZES(CALL("r[A,B,C] r[B,1]", ""), CALL("r[A,B] r[1]", ""), CALL("r[A,B] r[A,B]", "")) },
    UNARY("tan", "[0.0, 1.0]"),
    UNARY("tanh", "[0.0, 1.0]"),
    UNARY_GRADIENT("tanh_grad"),
    { "tensor_scatter_nd_add", "tensor [d1,...], indices [...,k], updates; the result has the shape of tensor",
      CALL("[1, 1, 1] [[0], [2]] [5, 6]", ""),
      SMALL(CALL("r[3,2] i3[5,1] r[5,2]", ""))
      LARGE(WHOLE("r[61,331] i61[613,1] r[613,331]", "")) },
    { "tensor_scatter_nd_update", "tensor [d1,...], indices [...,k], updates; the result has the shape of tensor",
      CALL("[1, 1, 1] [[0], [2]] [5, 6]", ""),
      SMALL(CALL("r[4,2] i4[3,1] r[3,2]", ""))
      LARGE(CALL("r[1009,331] i1009[613,1] r[613,331]", "")) },
    { "tile", "any; each dimension times its multiple", CALL("[1, 2]", "multiples=[3]"),
      SMALL(CALL("r[2,2]", "multiples=[2,3]"))
      LARGE(CALL("r" BIG, "multiples=[2,3]")) },
    { "top_k", "[...,n] -> [...,k], [...,k]", CALL("[3, 9, 5]", "k=2"),
      SMALL(CALL("r[2,5]", "k=3"))
      LARGE(CALL("r" BIG, "k=5"))
      SIZES(CALL("r[A,B]", "k=1"), CALL("r[A,B]", "k=B")) },
    { "transpose", "any; dimension d is dimension perm[d]", CALL("[[1, 2, 3], [4, 5, 6]]", ""),
      SMALL(CALL("r[2,3,2]", "perm=[1,2,0]"))
      LARGE(CALL("r" BIG, ""), CALL("r[31,61,113]", "perm=[1,2,0]"))
      SIZES(CALL("r[A,B,C]", "perm=[2,0,1]"), CALL("h[A,B,C]", "perm=[0,2,1]"), CALL("b[A,B]", "")) },
    { "unsorted_segment_sum", "[ids...,...], ids -> [num_segments,...]", CALL("[1, 2, 4] [0, 1, 0]", "num_segments=2"),
      SMALL(CALL("r[5,2] i3[5]", "num_segments=3"))
      LARGE(WHOLE("r[613,331] i61[613]", "num_segments=61")) },
    { "unstack", "any -> one result for each index of the axis, without the axis", CALL("[[1, 2], [3, 4]]", ""),
      SMALL(CALL("r[2,3]", "axis=1"))
      LARGE(WHOLE("r[3,202903]", "")) },
    { "where", FIT, CALL("[true, false] [1, 2] [8, 9]", ""),
      SMALL(CALL("b[2,3] r[3] r[2,3]", ""))
      LARGE(CALL("b" BIG " r[613] r" BIG, ""))
      SIZES(CALL("b[A,B] r[B] r[A,1]", "")) },
    { "where_flowing", INTERNAL,
      SMALL(CALL("r[2,3] p[3]", ""))
      LARGE(CALL("r" BIG " r" BIG, ""))
      SIZES(SIZES_BROADCAST) },
    { "where_index", "any -> [n,rank]", CALL("[[0, 3, 7], [5, 0, 0]]", ""),
      SMALL(CALL("b[2,3]", ""))
      LARGE(WHOLE("b" BIG, "")) },
    { "zeros", "-> shape", CALL("", "shape=[2]"),
      SMALL(CALL("", "shape=[2,3]"))
      LARGE(WHOLE("", "shape=[331,613]"))
      SIZES(CALL("", "shape=[A,B,C]")) },
    { "zeros_like", KEPT, CALL("[5, 6]", ""),
      SMALL(CALL("r[5]", ""))
      LARGE(WHOLE("r" BIG, "")) },
};
/* clang-format on */
enum { NUM_OP_ROWS = sizeof(op_rows) / sizeof(op_rows[0]) };

#endif

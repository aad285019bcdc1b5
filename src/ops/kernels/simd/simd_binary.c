/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over two operands, of the functions that models spend time in;
 * ops/kernels/generic/generic_loops.c has the rest. Either operand may be a single element;
 * broadcasting of other shapes is made of calls of these, row by row, in
 * ops/kernels/drivers/binary_kernels.c.
 */
#include "ops/kernels/define_loops.h"
#include "ops/kernels/simd/simd_math.h"

/* In unsigned types integers wrap, as TensorFlow's do. */
#define ARITHMETIC(name, operation)                                                                \
    COI_BINARY_LOOP(name##_f32, float, float, p operation q)                                       \
    COI_BINARY_LOOP(name##_f64, double, double, p operation q)                                     \
    COI_BINARY_LOOP(name##_32, uint32_t, uint32_t, p operation q)                                  \
    COI_BINARY_LOOP(name##_64, uint64_t, uint64_t, p operation q)
ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)
COI_BINARY_LOOP(div_f32, float, float, p / q)
COI_BINARY_LOOP(div_f64, double, double, p / q)

/* A NaN on either side wins; of two equals, such as 0 and -0, the first. */
COI_BINARY_LOOP(maximum_f32, float, float, p >= q || p != p ? p : q)
COI_BINARY_LOOP(minimum_f32, float, float, p <= q || p != p ? p : q)
COI_BINARY_LOOP(squared_difference_f32, float, float, (p - q) * (p - q))
COI_BINARY_LOOP(leaky_relu_f32, float, float, p > 0 ? p : p * q)
COI_BINARY_LOOP(equal_f32, float, uint8_t, p == q)
COI_BINARY_LOOP(less_f32, float, uint8_t, p < q)
COI_BINARY_LOOP(less_equal_f32, float, uint8_t, p <= q)

/* Backward steps; p is the result of the forward one, q the gradient that flows in. */
COI_BINARY_LOOP(relu_grad_f32, float, float, q *(p > 0 ? 1.0f : 0.0f))
COI_BINARY_LOOP(tanh_grad_f32, float, float, q *(1 - p * p))
COI_BINARY_LOOP(sigmoid_grad_f32, float, float, q *p *(1 - p))
COI_BINARY_LOOP(where_flowing_f32, float, float, q == 0 ? 0 : p)

/* One loop for all pairings, with a single operand written out: the exponential is worth more than
 * that. */
static void
gelu_tanh_grad_f32(void *restrict out, const void *restrict x, const void *restrict dy, int64_t n,
                   coi_pairing pairing)
{
    enum { BLOCK = 64 };
    float        one[BLOCK], *restrict z = out;
    const float *p = x, *q = dy;

    for (int i = 0; i < BLOCK && n > 0; ++i)
        one[i] = pairing == COI_PAIR_ONE_X ? *p : *q;
    for (int64_t done = 0; done < n; done += BLOCK) {
        const float *restrict a = pairing == COI_PAIR_ONE_X ? one : p + done;
        const float *restrict b = pairing == COI_PAIR_ONE_Y ? one : q + done;
        int m = n - done < BLOCK ? (int)(n - done) : BLOCK;

        for (int i = 0; i < m; ++i)
            z[done + i] = b[i] * coi_gelu_slope(a[i]);
    }
}

#define ARITHMETIC_LANES(name)                                                                     \
    [COI_F32] = name##_f32, [COI_F64] = name##_f64, [COI_I32] = name##_32, [COI_I64] = name##_64,  \
    [COI_U64] = name##_64

const coi_binary_loops COI_LOOP_TABLE(coi_binary_loops) = {
    .at = {
        [COI_ADD] = { ARITHMETIC_LANES(add) },
        [COI_SUB] = { ARITHMETIC_LANES(sub) },
        [COI_MUL] = { ARITHMETIC_LANES(mul) },
        [COI_DIV] = { [COI_F32] = div_f32, [COI_F64] = div_f64 },
        [COI_MAXIMUM] = { [COI_F32] = maximum_f32 },
        [COI_MINIMUM] = { [COI_F32] = minimum_f32 },
        [COI_SQUARED_DIFFERENCE] = { [COI_F32] = squared_difference_f32 },
        [COI_LEAKY_RELU] = { [COI_F32] = leaky_relu_f32 },
        [COI_RELU_GRAD] = { [COI_F32] = relu_grad_f32 },
        [COI_TANH_GRAD] = { [COI_F32] = tanh_grad_f32 },
        [COI_SIGMOID_GRAD] = { [COI_F32] = sigmoid_grad_f32 },
        [COI_GELU_TANH_GRAD] = { [COI_F32] = gelu_tanh_grad_f32 },
        [COI_WHERE_FLOWING] = { [COI_F32] = where_flowing_f32 },
        [COI_EQUAL] = { [COI_F32] = equal_f32 },
        [COI_LESS] = { [COI_F32] = less_f32 },
        [COI_LESS_EQUAL] = { [COI_F32] = less_equal_f32 },
    },
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over two operands, for the dtypes that models train in. Either operand may be a single element; broadcasting of
 * other shapes is made of calls of these, row by row, in ops/binary.c.
 */
#include "ops/simd/define.h"
#include "ops/simd/half.h"

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
COI_BINARY_LOOP(equal_f32, float, uint8_t, p == q)
COI_BINARY_LOOP(greater_equal_f32, float, uint8_t, p >= q)
COI_BINARY_LOOP(less_equal_f32, float, uint8_t, p <= q)

/* Backward steps; p is the result of the forward one, q the gradient that flows in. */
COI_BINARY_LOOP(relu_grad_f32, float, float, q *(p > 0 ? 1.0f : 0.0f))
COI_BINARY_LOOP(tanh_grad_f32, float, float, q *(1 - p * p))
COI_BINARY_LOOP(sigmoid_grad_f32, float, float, q *p *(1 - p))

typedef struct half_loop {
    coi_binary_fn loop; /* over floats */
    widen_fn      widen;
    narrow_fn     narrow; /* NULL: the result is bool */
} half_loop;

static COI_NOINLINE void
in_float(const half_loop *by, void *out, const uint16_t *x, const uint16_t *y, int64_t n,
         coi_pairing pairing)
{
    float p[COI_HALF_BLOCK], q[COI_HALF_BLOCK], result[COI_HALF_BLOCK];

    if (pairing != COI_PAIR_BOTH)
        by->widen(pairing == COI_PAIR_ONE_X ? p : q, pairing == COI_PAIR_ONE_X ? x : y, 1);
    for (int64_t i = 0; i < n; i += COI_HALF_BLOCK) {
        int64_t m = n - i < COI_HALF_BLOCK ? n - i : COI_HALF_BLOCK;

        if (pairing != COI_PAIR_ONE_X)
            by->widen(p, x + i, m);
        if (pairing != COI_PAIR_ONE_Y)
            by->widen(q, y + i, m);
        if (by->narrow == NULL) {
            by->loop((uint8_t *)out + i, p, q, m, pairing);
        } else {
            by->loop(result, p, q, m, pairing);
            by->narrow((uint16_t *)out + i, result, m);
        }
    }
}

#define HALF_LOOP(name, kind, narrowing)                                                           \
    static void name##_##kind(void *restrict out, const void *restrict x, const void *restrict y,  \
                              int64_t n, coi_pairing pairing)                                      \
    {                                                                                              \
        static const half_loop by = { name##_f32, widen_##kind, narrowing };                       \
                                                                                                   \
        in_float(&by, out, x, y, n, pairing);                                                      \
    }
#define HALF_LOOPS(name) HALF_LOOP(name, half, narrow_half) HALF_LOOP(name, bfloat, narrow_bfloat)
#define HALF_TESTS(name) HALF_LOOP(name, half, NULL) HALF_LOOP(name, bfloat, NULL)

HALF_LOOPS(add)
HALF_LOOPS(sub)
HALF_LOOPS(mul)
HALF_LOOPS(div)
HALF_LOOPS(maximum)
HALF_LOOPS(minimum)
HALF_LOOPS(relu_grad)
HALF_LOOPS(tanh_grad)
HALF_LOOPS(sigmoid_grad)
HALF_TESTS(equal)
HALF_TESTS(greater_equal)
HALF_TESTS(less_equal)

#define FLOATS(name)                                                                               \
    [CO_FLOAT16] = name##_half, [CO_BFLOAT16] = name##_bfloat, [CO_FLOAT32] = name##_f32
#define ARITHMETIC_TYPES(name)                                                                     \
    FLOATS(name), [CO_FLOAT64] = name##_f64, [CO_INT32] = name##_32, [CO_INT64] = name##_64,       \
                  [CO_UINT32] = name##_32, [CO_UINT64] = name##_64

const coi_binary_loops COI_LOOP_TABLE(coi_binary_loops) = {
    .at = {
        [COI_ADD] = { ARITHMETIC_TYPES(add) },
        [COI_SUB] = { ARITHMETIC_TYPES(sub) },
        [COI_MUL] = { ARITHMETIC_TYPES(mul) },
        [COI_DIV] = { FLOATS(div), [CO_FLOAT64] = div_f64 },
        [COI_MAXIMUM] = { FLOATS(maximum) },
        [COI_MINIMUM] = { FLOATS(minimum) },
        [COI_EQUAL] = { FLOATS(equal) },
        [COI_GREATER_EQUAL] = { FLOATS(greater_equal) },
        [COI_LESS_EQUAL] = { FLOATS(less_equal) },
        [COI_RELU_GRAD] = { FLOATS(relu_grad) },
        [COI_TANH_GRAD] = { FLOATS(tanh_grad) },
        [COI_SIGMOID_GRAD] = { FLOATS(sigmoid_grad) },
    },
};

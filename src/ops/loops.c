/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of dtypes that few models train in. Compiled once and for size; ops/simd has the others, once per
 * instruction set. All together they cover every dtype that an operator accepts.
 */
#include "ops/simd/define.h"

#include <math.h>

/* In unsigned types integers wrap, as TensorFlow's do. */
COI_UNARY_LOOP(neg_8, uint8_t, 0u - p)
COI_UNARY_LOOP(neg_16, uint16_t, 0u - p)
COI_UNARY_LOOP(neg_32, uint32_t, 0u - p)
COI_UNARY_LOOP(neg_64, uint64_t, 0u - p)
COI_UNARY_LOOP(square_8, uint8_t, (uint32_t)p *p)
COI_UNARY_LOOP(square_16, uint16_t, (uint32_t)p *p) /* more than an int has */
COI_UNARY_LOOP(square_32, uint32_t, p *p)
COI_UNARY_LOOP(square_64, uint64_t, p *p)
COI_UNARY_LOOP(exp_f64, double, exp(p))
COI_UNARY_LOOP(log_f64, double, log(p))
COI_UNARY_LOOP(tanh_f64, double, tanh(p))
COI_UNARY_LOOP(relu_i8, int8_t, p <= 0 ? 0 : p)
COI_UNARY_LOOP(relu_i16, int16_t, p <= 0 ? 0 : p)
COI_UNARY_LOOP(relu_i32, int32_t, p <= 0 ? 0 : p)
COI_UNARY_LOOP(relu_i64, int64_t, p <= 0 ? 0 : p)
COI_UNARY_LOOP(same_8, uint8_t, p)
COI_UNARY_LOOP(same_16, uint16_t, p)
COI_UNARY_LOOP(same_32, uint32_t, p)
COI_UNARY_LOOP(same_64, uint64_t, p)

static double
sigmoid_of(double x)
{
    double e = exp(-fabs(x)); /* never overflows */

    return (x >= 0 ? 1 : e) / (1 + e);
}
COI_UNARY_LOOP(sigmoid_f64, double, sigmoid_of(p))

const coi_unary_loops coi_unary_loops_rare = {
    .at = {
        [COI_NEG] = { [CO_INT8] = neg_8, [CO_INT16] = neg_16, [CO_INT32] = neg_32, [CO_INT64] = neg_64 },
        [COI_SQUARE] = { [CO_INT8] = square_8, [CO_INT16] = square_16, [CO_INT32] = square_32,
                         [CO_INT64] = square_64, [CO_UINT8] = square_8, [CO_UINT16] = square_16,
                         [CO_UINT32] = square_32, [CO_UINT64] = square_64 },
        [COI_EXP] = { [CO_FLOAT64] = exp_f64 },
        [COI_LOG] = { [CO_FLOAT64] = log_f64 },
        [COI_TANH] = { [CO_FLOAT64] = tanh_f64 },
        [COI_SIGMOID] = { [CO_FLOAT64] = sigmoid_f64 },
        [COI_RELU] = { [CO_INT8] = relu_i8, [CO_INT16] = relu_i16, [CO_INT32] = relu_i32,
                       [CO_INT64] = relu_i64, [CO_UINT8] = same_8, [CO_UINT16] = same_16,
                       [CO_UINT32] = same_32, [CO_UINT64] = same_64 },
    },
};

#define ARITHMETIC(name, operation)                                                                \
    COI_BINARY_LOOP(name##_8, uint8_t, uint8_t, (uint32_t)p operation(uint32_t) q)                 \
    COI_BINARY_LOOP(name##_16, uint16_t, uint16_t, (uint32_t)p operation(uint32_t) q)
ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)

/* True division: 8 and 16 bits give float, more give double. */
COI_BINARY_LOOP(div_i8, int8_t, float, (float)p / (float)q)
COI_BINARY_LOOP(div_i16, int16_t, float, (float)p / (float)q)
COI_BINARY_LOOP(div_i32, int32_t, double, (double)p / (double)q)
COI_BINARY_LOOP(div_i64, int64_t, double, (double)p / (double)q)
COI_BINARY_LOOP(div_u8, uint8_t, float, (float)p / (float)q)
COI_BINARY_LOOP(div_u16, uint16_t, float, (float)p / (float)q)
COI_BINARY_LOOP(div_u32, uint32_t, double, (double)p / (double)q)
COI_BINARY_LOOP(div_u64, uint64_t, double, (double)p / (double)q)

#define INTEGERS(loop)                                                                             \
    loop(i8, int8_t) loop(i16, int16_t) loop(i32, int32_t) loop(i64, int64_t) loop(u8, uint8_t)    \
        loop(u16, uint16_t) loop(u32, uint32_t) loop(u64, uint64_t)
#define MAXIMUM(suffix, type)       COI_BINARY_LOOP(maximum_##suffix, type, type, p >= q ? p : q)
#define MINIMUM(suffix, type)       COI_BINARY_LOOP(minimum_##suffix, type, type, p <= q ? p : q)
#define EQUAL(suffix, type)         COI_BINARY_LOOP(equal_##suffix, type, uint8_t, p == q)
#define GREATER_EQUAL(suffix, type) COI_BINARY_LOOP(greater_equal_##suffix, type, uint8_t, p >= q)
#define LESS_EQUAL(suffix, type)    COI_BINARY_LOOP(less_equal_##suffix, type, uint8_t, p <= q)
INTEGERS(MAXIMUM)
INTEGERS(MINIMUM)
INTEGERS(EQUAL)
INTEGERS(GREATER_EQUAL)
INTEGERS(LESS_EQUAL)

/* As in ops/simd/binary.c. */
COI_BINARY_LOOP(maximum_f64, double, double, p >= q || p != p ? p : q)
COI_BINARY_LOOP(minimum_f64, double, double, p <= q || p != p ? p : q)
EQUAL(f64, double)
GREATER_EQUAL(f64, double)
LESS_EQUAL(f64, double)
COI_BINARY_LOOP(relu_grad_f64, double, double, q *(p > 0 ? 1.0 : 0.0))
COI_BINARY_LOOP(tanh_grad_f64, double, double, q *(1 - p * p))
COI_BINARY_LOOP(sigmoid_grad_f64, double, double, q *p *(1 - p))

#define SMALL_TYPES(name)                                                                          \
    [CO_INT8] = name##_8, [CO_INT16] = name##_16, [CO_UINT8] = name##_8, [CO_UINT16] = name##_16
#define INTEGER_TYPES(name)                                                                        \
    [CO_INT8] = name##_i8, [CO_INT16] = name##_i16, [CO_INT32] = name##_i32,                       \
    [CO_INT64] = name##_i64, [CO_UINT8] = name##_u8, [CO_UINT16] = name##_u16,                     \
    [CO_UINT32] = name##_u32, [CO_UINT64] = name##_u64

const coi_binary_loops coi_binary_loops_rare = {
    .at = {
        [COI_ADD] = { SMALL_TYPES(add) },
        [COI_SUB] = { SMALL_TYPES(sub) },
        [COI_MUL] = { SMALL_TYPES(mul) },
        [COI_DIV] = { INTEGER_TYPES(div) },
        [COI_MAXIMUM] = { INTEGER_TYPES(maximum), [CO_FLOAT64] = maximum_f64 },
        [COI_MINIMUM] = { INTEGER_TYPES(minimum), [CO_FLOAT64] = minimum_f64 },
        [COI_EQUAL] = { INTEGER_TYPES(equal), [CO_FLOAT64] = equal_f64, [CO_BOOL] = equal_u8 },
        [COI_GREATER_EQUAL] = { INTEGER_TYPES(greater_equal), [CO_FLOAT64] = greater_equal_f64 },
        [COI_LESS_EQUAL] = { INTEGER_TYPES(less_equal), [CO_FLOAT64] = less_equal_f64 },
        [COI_RELU_GRAD] = { [CO_FLOAT64] = relu_grad_f64 },
        [COI_TANH_GRAD] = { [CO_FLOAT64] = tanh_grad_f64 },
        [COI_SIGMOID_GRAD] = { [CO_FLOAT64] = sigmoid_grad_f64 },
    },
};

/* Sums of integers wrap like their type, so 64 bits of either sign do for all; only maxima need the sign. */
#define SUM_OF(a, b) ((a) + (uint64_t)(b))
#define MAX_OF(a, b) ((b) > (a) ? (b) : (a))
#define INTEGER_FOLD(name, type, member, combine)                                                  \
    static void name##_rows(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,     \
                            int64_t n)                                                             \
    {                                                                                              \
        for (int64_t r = 0; r < num_rows; ++r) {                                                   \
            const type *x = (const type *)data + r * stride;                                       \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i)                                                        \
                acc[r].member = combine(acc[r].member, x[i]);                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_columns(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,  \
                               int64_t n)                                                          \
    {                                                                                              \
        for (int64_t r = 0; r < num_rows; ++r) {                                                   \
            const type *x = (const type *)data + r * stride;                                       \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i)                                                        \
                acc[i].member = combine(acc[i].member, x[i]);                                      \
        }                                                                                          \
    }
#define SUM_FOLD(suffix, type) INTEGER_FOLD(sum_##suffix, type, u, SUM_OF)
INTEGERS(SUM_FOLD)
INTEGER_FOLD(max_i8, int8_t, i, MAX_OF)
INTEGER_FOLD(max_i16, int16_t, i, MAX_OF)
INTEGER_FOLD(max_i32, int32_t, i, MAX_OF)
INTEGER_FOLD(max_i64, int64_t, i, MAX_OF)
INTEGER_FOLD(max_u8, uint8_t, u, MAX_OF)
INTEGER_FOLD(max_u16, uint16_t, u, MAX_OF)
INTEGER_FOLD(max_u32, uint32_t, u, MAX_OF)
INTEGER_FOLD(max_u64, uint64_t, u, MAX_OF)

#define FOLD(name)                                                                                 \
    {                                                                                              \
        name##_rows, name##_columns                                                                \
    }
#define INTEGER_FOLDS(name)                                                                        \
    [CO_INT8] = FOLD(name##_i8), [CO_INT16] = FOLD(name##_i16), [CO_INT32] = FOLD(name##_i32),     \
    [CO_INT64] = FOLD(name##_i64), [CO_UINT8] = FOLD(name##_u8), [CO_UINT16] = FOLD(name##_u16),   \
    [CO_UINT32] = FOLD(name##_u32), [CO_UINT64] = FOLD(name##_u64)

const coi_fold_loops coi_fold_loops_rare = {
    .at = {
        [COI_FOLD_SUM] = { INTEGER_FOLDS(sum) },
        [COI_FOLD_MAX] = { INTEGER_FOLDS(max) },
    },
};

#define CAST(name, from, to, expression)                                                           \
    static void name(void *restrict out, const void *restrict in, int64_t n)                       \
    {                                                                                              \
        const from *restrict x = in;                                                               \
        to *restrict z = out;                                                                      \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            from p = x[i];                                                                         \
                                                                                                   \
            z[i] = (to)(expression);                                                               \
        }                                                                                          \
    }
CAST(i32_i64, int32_t, int64_t, p)
CAST(i64_i32, int64_t, uint32_t, (uint64_t)p) /* cut to the low bits */
CAST(i32_f64, int32_t, double, p)
CAST(i64_f64, int64_t, double, p)
CAST(u8_i32, uint8_t, int32_t, p)
CAST(u8_i64, uint8_t, int64_t, p)
CAST(u8_f64, uint8_t, double, p)
CAST(i32_bool, int32_t, uint8_t, p != 0)
CAST(i64_bool, int64_t, uint8_t, p != 0)
/* A subnormal number is false: TensorFlow's kernels take it for zero. NaN is true. */
CAST(f32_bool, float, uint8_t, !(fabsf(p) < 0x1p-126f))
CAST(f64_bool, double, uint8_t, !(fabs(p) < 0x1p-1022))

const coi_cast_loops coi_cast_loops_rare = {
    .at = {
        [CO_INT32] = { [CO_INT64] = i32_i64, [CO_FLOAT64] = i32_f64, [CO_BOOL] = i32_bool },
        [CO_INT64] = { [CO_INT32] = i64_i32, [CO_FLOAT64] = i64_f64, [CO_BOOL] = i64_bool },
        [CO_UINT8] = { [CO_INT32] = u8_i32, [CO_INT64] = u8_i64, [CO_FLOAT64] = u8_f64 },
        [CO_BOOL] = { [CO_INT32] = u8_i32, [CO_INT64] = u8_i64, [CO_FLOAT64] = u8_f64 },
        [CO_FLOAT32] = { [CO_BOOL] = f32_bool },
        [CO_FLOAT64] = { [CO_BOOL] = f64_bool },
    },
};

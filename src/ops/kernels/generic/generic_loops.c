/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of dtypes that few models train in. Compiled once and for size; ops/kernels/simd has
 * the others, once per instruction set. All together they cover every dtype that an operator
 * accepts.
 */
#include "ops/kernels/define_loops.h"

#include <math.h>

/* exp is 0 and infinite beyond these, tanh is 1. */
const coi_argument_limits coi_limits = { -104.0f, 89.0f, 10.0f, 11.0f };

/* Constants of selu: scale, and scale times alpha. */
#define SELU_SCALE 1.0507009873554804934
#define SELU_LOW   1.7580993408473768599

/* In unsigned types integers wrap, as TensorFlow's do. */
COI_UNARY_LOOP(neg_32, uint32_t, 0u - p)
COI_UNARY_LOOP(neg_64, uint64_t, 0u - p)
COI_UNARY_LOOP(square_32, uint32_t, p *p)
COI_UNARY_LOOP(square_64, uint64_t, p *p)
COI_UNARY_LOOP(relu_i32, int32_t, p <= 0 ? 0 : p)
COI_UNARY_LOOP(relu_i64, int64_t, p <= 0 ? 0 : p)
COI_UNARY_LOOP(abs_i32, int32_t, p < 0 ? 0u - (uint32_t)p : (uint32_t)p)
COI_UNARY_LOOP(abs_i64, int64_t, p < 0 ? 0u - (uint64_t)p : (uint64_t)p)
COI_UNARY_LOOP(sign_i32, int32_t, (p > 0) - (p < 0))
COI_UNARY_LOOP(sign_i64, int64_t, (p > 0) - (p < 0))
COI_UNARY_LOOP(sign_u64, uint64_t, p > 0)
COI_UNARY_LOOP(same_32, uint32_t, p)
COI_UNARY_LOOP(same_64, uint64_t, p)
COI_UNARY_LOOP(relu6_i32, int32_t, p <= 0 ? 0 : p > 6 ? 6 : p)
COI_UNARY_LOOP(relu6_i64, int64_t, p <= 0 ? 0 : p > 6 ? 6 : p)
COI_UNARY_LOOP(relu6_u64, uint64_t, p > 6 ? 6 : p)

/* NaN stays, -0 gives 0. */
COI_UNARY_LOOP(sign_f32, float, p > 0 ? 1 : p < 0 ? -1 : p + 0)
COI_UNARY_LOOP(sign_f64, double, p > 0 ? 1 : p < 0 ? -1 : p + 0)
COI_UNARY_LOOP(log1p_f32, float, log1pf(p))
COI_UNARY_LOOP(expm1_f32, float, expm1f(p))
COI_UNARY_LOOP(sin_f32, float, sinf(p))
COI_UNARY_LOOP(cos_f32, float, cosf(p))
COI_UNARY_LOOP(tan_f32, float, tanf(p))
COI_UNARY_LOOP(erf_f32, float, erff(p))
COI_UNARY_LOOP(softsign_f32, float, p / (1 + fabsf(p)))

static double
sigmoid_of(double x)
{
    double e = exp(-fabs(x)); /* never overflows */

    return (x >= 0 ? 1 : e) / (1 + e);
}

static double
softplus_of(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The reference's constants are floats, for doubles too. */
static double
gelu_of(double x)
{
    return x * 0.5 * erfc(-x * (double)0.70710678118654752f);
}

static double
gelu_tanh_of(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + (double)0.044715f * x * x * x)));
}

static double
gelu_tanh_slope(double x)
{
    const double c = 0.79788456080286536, a = (double)0.044715f;
    double       t = tanh(c * (x + a * x * x * x));

    return 0.5 * (1 + t + x * c * (1 + 3 * a * x * x) * (1 - t * t));
}

COI_UNARY_LOOP(exp_f64, double, exp(p))
COI_UNARY_LOOP(log_f64, double, log(p))
COI_UNARY_LOOP(tanh_f64, double, tanh(p))
COI_UNARY_LOOP(sigmoid_f64, double, sigmoid_of(p))
COI_UNARY_LOOP(abs_f64, double, fabs(p))
COI_UNARY_LOOP(rsqrt_f64, double, 1 / sqrt(p))
COI_UNARY_LOOP(reciprocal_f64, double, 1 / p)
COI_UNARY_LOOP(log1p_f64, double, log1p(p))
COI_UNARY_LOOP(expm1_f64, double, expm1(p))
COI_UNARY_LOOP(sin_f64, double, sin(p))
COI_UNARY_LOOP(cos_f64, double, cos(p))
COI_UNARY_LOOP(tan_f64, double, tan(p))
COI_UNARY_LOOP(floor_f64, double, floor(p))
COI_UNARY_LOOP(ceil_f64, double, ceil(p))
COI_UNARY_LOOP(round_f64, double, rint(p))
COI_UNARY_LOOP(erf_f64, double, erf(p))
COI_UNARY_LOOP(relu6_f64, double, p <= 0 ? 0 : p > 6 ? 6 : p)
COI_UNARY_LOOP(elu_f64, double, p < 0 ? expm1(p) : p)
COI_UNARY_LOOP(selu_f64, double, p >= 0 ? SELU_SCALE * p : p > -0x1p-54 ? 0 : SELU_LOW * expm1(p))
COI_UNARY_LOOP(softplus_f64, double, softplus_of(p))
COI_UNARY_LOOP(softsign_f64, double, p / (1 + fabs(p)))
COI_UNARY_LOOP(silu_f64, double, p *sigmoid_of(p))
COI_UNARY_LOOP(log_sigmoid_f32, float, -softplus_of(-(double)p))
COI_UNARY_LOOP(log_sigmoid_f64, double, -softplus_of(-p))
COI_UNARY_LOOP(gelu_f32, float, gelu_of((double)p))
COI_UNARY_LOOP(gelu_f64, double, gelu_of(p))
COI_UNARY_LOOP(gelu_tanh_f64, double, gelu_tanh_of(p))

#define TEST_LOOPS(name, expression)                                                               \
    COI_TEST_LOOP(name##_f32, float, expression) COI_TEST_LOOP(name##_f64, double, expression)
TEST_LOOPS(isnan, isnan(p) != 0)
TEST_LOOPS(isinf, isinf(p) != 0)
TEST_LOOPS(isfinite, isfinite(p) != 0)
COI_TEST_LOOP(logical_not_i32, int32_t, p == 0)

#define FLOATS(name) [COI_F32] = name##_f32, [COI_F64] = name##_f64

const coi_unary_loops coi_unary_loops_rare = {
    .at = {
        [COI_NEG] = { [COI_I32] = neg_32, [COI_I64] = neg_64, [COI_U64] = neg_64 },
        [COI_SQUARE] = { [COI_I32] = square_32, [COI_I64] = square_64, [COI_U64] = square_64 },
        [COI_EXP] = { [COI_F64] = exp_f64 },
        [COI_LOG] = { [COI_F64] = log_f64 },
        [COI_TANH] = { [COI_F64] = tanh_f64 },
        [COI_SIGMOID] = { [COI_F64] = sigmoid_f64 },
        [COI_RELU] = { [COI_I32] = relu_i32, [COI_I64] = relu_i64, [COI_U64] = same_64 },
        [COI_ABS] = { [COI_F64] = abs_f64, [COI_I32] = abs_i32, [COI_I64] = abs_i64 },
        [COI_SIGN] = { FLOATS(sign), [COI_I32] = sign_i32, [COI_I64] = sign_i64, [COI_U64] = sign_u64 },
        [COI_RSQRT] = { [COI_F64] = rsqrt_f64 },
        [COI_RECIPROCAL] = { [COI_F64] = reciprocal_f64 },
        [COI_LOG1P] = { FLOATS(log1p) },
        [COI_EXPM1] = { FLOATS(expm1) },
        [COI_SIN] = { FLOATS(sin) },
        [COI_COS] = { FLOATS(cos) },
        [COI_TAN] = { FLOATS(tan) },
        [COI_FLOOR] = { [COI_F64] = floor_f64 },
        [COI_CEIL] = { [COI_F64] = ceil_f64 },
        [COI_ROUND] = { [COI_F64] = round_f64, [COI_I32] = same_32, [COI_I64] = same_64, [COI_U64] = same_64 },
        [COI_ERF] = { FLOATS(erf) },
        [COI_RELU6] = { [COI_F64] = relu6_f64, [COI_I32] = relu6_i32, [COI_I64] = relu6_i64, [COI_U64] = relu6_u64 },
        [COI_ELU] = { [COI_F64] = elu_f64 },
        [COI_SELU] = { [COI_F64] = selu_f64 },
        [COI_SOFTPLUS] = { [COI_F64] = softplus_f64 },
        [COI_SOFTSIGN] = { FLOATS(softsign) },
        [COI_SILU] = { [COI_F64] = silu_f64 },
        [COI_LOG_SIGMOID] = { FLOATS(log_sigmoid) },
        [COI_GELU] = { FLOATS(gelu) },
        [COI_GELU_TANH] = { [COI_F64] = gelu_tanh_f64 },
        [COI_ISNAN] = { FLOATS(isnan) },
        [COI_ISINF] = { FLOATS(isinf) },
        [COI_ISFINITE] = { FLOATS(isfinite) },
        [COI_LOGICAL_NOT] = { [COI_I32] = logical_not_i32 },
    },
};

/* Towards minus infinity; callers have seen to it that q is not zero. */
static int64_t
floor_quotient(int64_t p, int64_t q)
{
    if (q == -1) /* of the most negative number: wraps */
        return (int64_t)(0u - (uint64_t)p);
    return p / q - (p % q != 0 && (p < 0) != (q < 0));
}

static int64_t
floor_rest(int64_t p, int64_t q)
{
    int64_t rest = q == -1 ? 0 : p % q;

    return rest + (rest != 0 && (rest < 0) != (q < 0) ? q : 0);
}

/* The rest has the sign of q. */
static double
rest_of(double p, double q)
{
    double rest = fmod(p, q);

    return rest != 0 && (rest < 0) != (q < 0) ? rest + q : rest;
}

static uint64_t
power_of(uint64_t p, uint64_t q)
{
    uint64_t power = 1;

    for (; q != 0; q >>= 1, p *= p)
        if (q & 1)
            power *= p;
    return power;
}

/* True division gives double, of which small integers make a float. */
COI_BINARY_LOOP(div_i32, int32_t, double, (double)p / (double)q)
COI_BINARY_LOOP(div_i64, int64_t, double, (double)p / (double)q)
COI_BINARY_LOOP(div_u64, uint64_t, double, (double)p / (double)q)
COI_BINARY_LOOP(floordiv_f32, float, float, floorf(p / q))
COI_BINARY_LOOP(floordiv_f64, double, double, floor(p / q))
COI_BINARY_LOOP(floordiv_i32, int32_t, int32_t, (uint64_t)floor_quotient(p, q))
COI_BINARY_LOOP(floordiv_i64, int64_t, int64_t, floor_quotient(p, q))
COI_BINARY_LOOP(floordiv_u64, uint64_t, uint64_t, p / q)
COI_BINARY_LOOP(mod_f32, float, float, rest_of((double)p, (double)q))
COI_BINARY_LOOP(mod_f64, double, double, rest_of(p, q))
COI_BINARY_LOOP(mod_i32, int32_t, int32_t, floor_rest(p, q))
COI_BINARY_LOOP(mod_i64, int64_t, int64_t, floor_rest(p, q))
COI_BINARY_LOOP(mod_u64, uint64_t, uint64_t, p % q)
COI_BINARY_LOOP(pow_f32, float, float, powf(p, q))
COI_BINARY_LOOP(pow_f64, double, double, pow(p, q))
COI_BINARY_LOOP(pow_32, int32_t, uint32_t, power_of((uint64_t)p, (uint64_t)q))
COI_BINARY_LOOP(pow_64, uint64_t, uint64_t, power_of(p, q))
COI_BINARY_LOOP(squared_difference_f64, double, double, (p - q) * (p - q))
COI_BINARY_LOOP(squared_difference_32, uint32_t, uint32_t, (p - q) * (p - q))
COI_BINARY_LOOP(squared_difference_64, uint64_t, uint64_t, (p - q) * (p - q))
COI_BINARY_LOOP(leaky_relu_f64, double, double, p > 0 ? p : p * q)

#define INTEGERS(loop)           loop(i32, int32_t) loop(i64, int64_t) loop(u64, uint64_t)
#define COMPARE(loop)            INTEGERS(loop) loop(f64, double)
#define MAXIMUM(suffix, type)    COI_BINARY_LOOP(maximum_##suffix, type, type, p >= q ? p : q)
#define MINIMUM(suffix, type)    COI_BINARY_LOOP(minimum_##suffix, type, type, p <= q ? p : q)
#define EQUAL(suffix, type)      COI_BINARY_LOOP(equal_##suffix, type, uint8_t, p == q)
#define LESS(suffix, type)       COI_BINARY_LOOP(less_##suffix, type, uint8_t, p < q)
#define LESS_EQUAL(suffix, type) COI_BINARY_LOOP(less_equal_##suffix, type, uint8_t, p <= q)
INTEGERS(MAXIMUM)
INTEGERS(MINIMUM)
COMPARE(EQUAL)
COMPARE(LESS)
COMPARE(LESS_EQUAL)
COI_BINARY_LOOP(logical_and_i32, int32_t, uint8_t, p != 0 && q != 0)
COI_BINARY_LOOP(logical_or_i32, int32_t, uint8_t, p != 0 || q != 0)
COI_BINARY_LOOP(logical_xor_i32, int32_t, uint8_t, (p != 0) != (q != 0))

/* As in ops/kernels/simd/simd_binary.c. */
COI_BINARY_LOOP(maximum_f64, double, double, p >= q || p != p ? p : q)
COI_BINARY_LOOP(minimum_f64, double, double, p <= q || p != p ? p : q)
COI_BINARY_LOOP(relu_grad_f64, double, double, q *(p > 0 ? 1.0 : 0.0))
COI_BINARY_LOOP(tanh_grad_f64, double, double, q *(1 - p * p))
COI_BINARY_LOOP(sigmoid_grad_f64, double, double, q *p *(1 - p))
COI_BINARY_LOOP(relu6_grad_f32, float, float, q *(p > 0 && p < 6 ? 1.0f : 0.0f))
COI_BINARY_LOOP(relu6_grad_f64, double, double, q *(p > 0 && p < 6 ? 1.0 : 0.0))
COI_BINARY_LOOP(elu_grad_f32, float, float, p < 0 ? (p + 1) * q : q)
COI_BINARY_LOOP(elu_grad_f64, double, double, p < 0 ? (p + 1) * q : q)
COI_BINARY_LOOP(selu_grad_f32, float, float,
                p < 0 ? q * (p + (float)SELU_LOW) : q * (float)SELU_SCALE)
COI_BINARY_LOOP(selu_grad_f64, double, double, p < 0 ? q * (p + SELU_LOW) : q * SELU_SCALE)
COI_BINARY_LOOP(gelu_tanh_grad_f64, double, double, q *gelu_tanh_slope(p))
COI_BINARY_LOOP(where_flowing_f64, double, double, q == 0 ? 0 : p)

#define INTEGER_LANES(name)  [COI_I32] = name##_i32, [COI_I64] = name##_i64, [COI_U64] = name##_u64
#define WRAPPING_LANES(name) [COI_I32] = name##_32, [COI_I64] = name##_64, [COI_U64] = name##_64

const coi_binary_loops coi_binary_loops_rare = {
    .at = {
        [COI_DIV] = { INTEGER_LANES(div) },
        [COI_MAXIMUM] = { [COI_F64] = maximum_f64, INTEGER_LANES(maximum) },
        [COI_MINIMUM] = { [COI_F64] = minimum_f64, INTEGER_LANES(minimum) },
        [COI_FLOORDIV] = { FLOATS(floordiv), INTEGER_LANES(floordiv) },
        [COI_MOD] = { FLOATS(mod), INTEGER_LANES(mod) },
        [COI_POW] = { FLOATS(pow), WRAPPING_LANES(pow) },
        [COI_SQUARED_DIFFERENCE] = { [COI_F64] = squared_difference_f64,
                                     WRAPPING_LANES(squared_difference) },
        [COI_LEAKY_RELU] = { [COI_F64] = leaky_relu_f64 },
        [COI_RELU_GRAD] = { [COI_F64] = relu_grad_f64 },
        [COI_TANH_GRAD] = { [COI_F64] = tanh_grad_f64 },
        [COI_SIGMOID_GRAD] = { [COI_F64] = sigmoid_grad_f64 },
        [COI_RELU6_GRAD] = { FLOATS(relu6_grad) },
        [COI_ELU_GRAD] = { FLOATS(elu_grad) },
        [COI_SELU_GRAD] = { FLOATS(selu_grad) },
        [COI_GELU_TANH_GRAD] = { [COI_F64] = gelu_tanh_grad_f64 },
        [COI_WHERE_FLOWING] = { [COI_F64] = where_flowing_f64 },
        [COI_EQUAL] = { [COI_F64] = equal_f64, INTEGER_LANES(equal) },
        [COI_LESS] = { [COI_F64] = less_f64, INTEGER_LANES(less) },
        [COI_LESS_EQUAL] = { [COI_F64] = less_equal_f64, INTEGER_LANES(less_equal) },
        [COI_LOGICAL_AND] = { [COI_I32] = logical_and_i32 },
        [COI_LOGICAL_OR] = { [COI_I32] = logical_or_i32 },
        [COI_LOGICAL_XOR] = { [COI_I32] = logical_xor_i32 },
    },
};

/* Sums and products of integers wrap like their type, so 64 bits of either sign do for all; only
 * maxima and minima need the sign. */
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
#define MIN_OF(a, b)  ((b) < (a) ? (b) : (a))
#define PROD_OF(a, b) ((a) * (uint64_t)(b))
#define INTEGER_LANE_FOLDS(name, i, u, combine)                                                    \
    INTEGER_FOLD(name##_i32, int32_t, i, combine)                                                  \
    INTEGER_FOLD(name##_i64, int64_t, i, combine)                                                  \
    INTEGER_FOLD(name##_u64, uint64_t, u, combine)
INTEGER_LANE_FOLDS(sum, u, u, SUM_OF)
INTEGER_LANE_FOLDS(prod, u, u, PROD_OF)
INTEGER_LANE_FOLDS(max, i, u, MAX_OF)
INTEGER_LANE_FOLDS(min, i, u, MIN_OF)

/* Floats in their own type, so that a product overflows where it does in TensorFlow; a row in four
 * chains. */
#define FLOAT_FOLD(name, type, combine)                                                            \
    static void name##_rows(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,     \
                            int64_t n)                                                             \
    {                                                                                              \
        for (int64_t r = 0; r < num_rows; ++r) {                                                   \
            const type *x = (const type *)data + r * stride;                                       \
            type        a = (type)acc[r].f, b, c, d;                                               \
            int64_t     i = 0;                                                                     \
                                                                                                   \
            if (n >= 4) {                                                                          \
                a = combine(a, x[0]), b = x[1], c = x[2], d = x[3];                                \
                for (i = 4; i + 4 <= n; i += 4) {                                                  \
                    a = combine(a, x[i]);                                                          \
                    b = combine(b, x[i + 1]);                                                      \
                    c = combine(c, x[i + 2]);                                                      \
                    d = combine(d, x[i + 3]);                                                      \
                }                                                                                  \
                a = combine(a, b);                                                                 \
                c = combine(c, d);                                                                 \
                a = combine(a, c);                                                                 \
            }                                                                                      \
            for (; i < n; ++i)                                                                     \
                a = combine(a, x[i]);                                                              \
            acc[r].f = (double)a;                                                                  \
        }                                                                                          \
    }                                                                                              \
    static void name##_columns(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,  \
                               int64_t n)                                                          \
    {                                                                                              \
        for (int64_t r = 0; r < num_rows; ++r) {                                                   \
            const type *x = (const type *)data + r * stride;                                       \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i)                                                        \
                acc[i].f = (double)combine((type)acc[i].f, x[i]);                                  \
        }                                                                                          \
    }
#define MIN_OF_FLOATS(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define TIMES(a, b)         ((a) * (b))
FLOAT_FOLD(min_f32, float, MIN_OF_FLOATS)
FLOAT_FOLD(min_f64, double, MIN_OF_FLOATS)
FLOAT_FOLD(prod_f32, float, TIMES)
FLOAT_FOLD(prod_f64, double, TIMES)

#define FOLD(name)                                                                                 \
    {                                                                                              \
        name##_rows, name##_columns                                                                \
    }
#define INTEGER_FOLDS(name)                                                                        \
    [CO_INT32] = FOLD(name##_i32), [CO_INT64] = FOLD(name##_i64), [CO_UINT64] = FOLD(name##_u64)
#define LANE_FOLDS(name)                                                                           \
    INTEGER_FOLDS(name), [CO_FLOAT32] = FOLD(name##_f32), [CO_FLOAT64] = FOLD(name##_f64)

const coi_fold_loops coi_fold_loops_rare = {
    .at = {
        [COI_FOLD_SUM] = { INTEGER_FOLDS(sum) },
        [COI_FOLD_MAX] = { INTEGER_FOLDS(max) },
        [COI_FOLD_MIN] = { LANE_FOLDS(min) },
        [COI_FOLD_PROD] = { LANE_FOLDS(prod) },
    },
};

COI_CAST_LOOP(i32_i64, int32_t, int64_t, p)
COI_CAST_LOOP(i64_i32, int64_t, uint32_t, (uint64_t)p) /* cut to the low bits */
COI_CAST_LOOP(i32_f64, int32_t, double, p)
COI_CAST_LOOP(i64_f64, int64_t, double, p)
COI_CAST_LOOP(u8_i32, uint8_t, int32_t, p)
COI_CAST_LOOP(u8_i64, uint8_t, int64_t, p)
COI_CAST_LOOP(u8_f64, uint8_t, double, p)
COI_CAST_LOOP(i32_bool, int32_t, uint8_t, p != 0)
COI_CAST_LOOP(i64_bool, int64_t, uint8_t, p != 0)
/* A subnormal number is false: TensorFlow's kernels take it for zero. NaN is true. */
COI_CAST_LOOP(f32_bool, float, uint8_t, !(fabsf(p) < 0x1p-126f))
COI_CAST_LOOP(f64_bool, double, uint8_t, !(fabs(p) < 0x1p-1022))

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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over one operand, for the dtypes that models train in.
 */
#include "ops/simd/define.h"
#include "ops/simd/half.h"
#include "ops/simd/math.h"

COI_UNARY_LOOP(neg_f32, float, -p)
COI_UNARY_LOOP(neg_f64, double, -p)
COI_UNARY_LOOP(square_f32, float, p *p)
COI_UNARY_LOOP(square_f64, double, p *p)
COI_UNARY_LOOP(sqrt_f32, float, sqrtf(p))
COI_UNARY_LOOP(sqrt_f64, double, sqrt(p))
COI_UNARY_LOOP(exp_f32, float, coi_expf(p))
COI_UNARY_LOOP(log_f32, float, coi_logf(p))
COI_UNARY_LOOP(tanh_f32, float, coi_tanhf(p))
COI_UNARY_LOOP(sigmoid_f32, float, coi_sigmoidf(p))
/* NaN stays, -0 becomes 0. */
COI_UNARY_LOOP(relu_f32, float, p <= 0 ? 0 : p)
COI_UNARY_LOOP(relu_f64, double, p <= 0 ? 0 : p)

static COI_NOINLINE void
in_float(coi_unary_fn loop, widen_fn widen, narrow_fn narrow, uint16_t *out, const uint16_t *x,
         int64_t n)
{
    float wide[COI_HALF_BLOCK], result[COI_HALF_BLOCK];

    for (int64_t i = 0; i < n; i += COI_HALF_BLOCK) {
        int64_t m = n - i < COI_HALF_BLOCK ? n - i : COI_HALF_BLOCK;

        widen(wide, x + i, m);
        loop(result, wide, m);
        narrow(out + i, result, m);
    }
}

#define HALF_LOOPS(name)                                                                           \
    static void name##_half(void *restrict out, const void *restrict x, int64_t n)                 \
    {                                                                                              \
        in_float(name##_f32, widen_half, narrow_half, out, x, n);                                  \
    }                                                                                              \
    static void name##_bfloat(void *restrict out, const void *restrict x, int64_t n)               \
    {                                                                                              \
        in_float(name##_f32, widen_bfloat, narrow_bfloat, out, x, n);                              \
    }

HALF_LOOPS(neg)
HALF_LOOPS(square)
HALF_LOOPS(sqrt)
HALF_LOOPS(exp)
HALF_LOOPS(log)
HALF_LOOPS(tanh)
HALF_LOOPS(sigmoid)
HALF_LOOPS(relu)

#define FLOATS(name)                                                                               \
    [CO_FLOAT16] = name##_half, [CO_BFLOAT16] = name##_bfloat, [CO_FLOAT32] = name##_f32

const coi_unary_loops COI_LOOP_TABLE(coi_unary_loops) = {
    .at = {
        [COI_NEG] = { FLOATS(neg), [CO_FLOAT64] = neg_f64 },
        [COI_SQUARE] = { FLOATS(square), [CO_FLOAT64] = square_f64 },
        [COI_SQRT] = { FLOATS(sqrt), [CO_FLOAT64] = sqrt_f64 },
        [COI_EXP] = { FLOATS(exp) },
        [COI_LOG] = { FLOATS(log) },
        [COI_TANH] = { FLOATS(tanh) },
        [COI_SIGMOID] = { FLOATS(sigmoid) },
        [COI_RELU] = { FLOATS(relu), [CO_FLOAT64] = relu_f64 },
    },
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over one operand, of the functions that models spend time in.
 * ops/kernels/generic/generic_loops.c has the rest.
 */
#include "ops/kernels/define_loops.h"
#include "ops/kernels/simd/simd_math.h"

enum { BLOCK = 256 }; /* elements between two loops */

COI_UNARY_LOOP(neg_f32, float, -p)
COI_UNARY_LOOP(neg_f64, double, -p)
COI_UNARY_LOOP(square_f32, float, p *p)
COI_UNARY_LOOP(square_f64, double, p *p)
COI_UNARY_LOOP(sqrt_f32, float, sqrtf(p))
COI_UNARY_LOOP(sqrt_f64, double, sqrt(p))
COI_UNARY_LOOP(log_f32, float, coi_logf(p))
COI_UNARY_LOOP(tanh_f32, float, coi_tanhf(p))
COI_UNARY_LOOP(sigmoid_f32, float, coi_sigmoidf(p))
/* NaN stays, -0 becomes 0. */
COI_UNARY_LOOP(relu_f32, float, p <= 0 ? 0 : p)
COI_UNARY_LOOP(relu_f64, double, p <= 0 ? 0 : p)
COI_UNARY_LOOP(abs_f32, float, fabsf(p))
COI_UNARY_LOOP(rsqrt_f32, float, 1.0f / sqrtf(p))
COI_UNARY_LOOP(reciprocal_f32, float, 1.0f / p)
COI_UNARY_LOOP(floor_f32, float, floorf(p))
COI_UNARY_LOOP(ceil_f32, float, ceilf(p))
COI_UNARY_LOOP(round_f32, float, rintf(p))
COI_UNARY_LOOP(relu6_f32, float, p <= 0 ? 0 : p > 6 ? 6 : p)
COI_UNARY_LOOP(elu_f32, float, p < 0 ? coi_expm1f(p) : p)
/* So close to zero, exp(x) - 1 is 0 for the reference, and its gradient takes the other side. */
COI_UNARY_LOOP(selu_f32, float,
               p >= 0          ? COI_SELU_SCALE * p
               : p > -0x1p-54f ? 0
                               : COI_SELU_LOW * coi_expm1f(p))
COI_UNARY_LOOP(softplus_f32, float, coi_softplusf(p))
COI_UNARY_LOOP(silu_f32, float, coi_siluf(p))

/*
 * Two functions by blocks, as if all elements were of moderate size; where one was not, the block
 * is taken again by the way that is right for every number. Both ways give the same bits, so nobody
 * sees where blocks begin.
 */
static void
exp_f32(void *restrict out, const void *restrict in, int64_t n)
{
    const float *restrict x = in;
    float *restrict z = out;

    for (; n > 0; n -= BLOCK, x += BLOCK, z += BLOCK) {
        int     m = n < BLOCK ? (int)n : BLOCK;
        int32_t most = 0;

        for (int i = 0; i < m; ++i) {
            most = coi_size_bits(x[i]) > most ? coi_size_bits(x[i]) : most;
            z[i] = coi_exp_nearf(x[i], -0.0f);
        }
        for (int i = 0; most >= COI_EXP_NEAR && i < m; ++i)
            z[i] = coi_expf(x[i]);
    }
}

static void
gelu_tanh_f32(void *restrict out, const void *restrict in, int64_t n)
{
    const float *restrict x = in;
    float *restrict z = out;
    float t[BLOCK], low[BLOCK];

    for (; n > 0; n -= BLOCK, x += BLOCK, z += BLOCK) {
        int     m = n < BLOCK ? (int)n : BLOCK;
        int32_t most = 0;

        for (int i = 0; i < m; ++i) {
            most = coi_size_bits(x[i]) > most ? coi_size_bits(x[i]) : most;
            t[i] = coi_gelu_argument(fabsf(x[i]), &low[i]);
        }
        if (most < COI_GELU_NEAR) {
            for (int i = 0; i < m; ++i)
                z[i] = coi_gelu_near_of(x[i], t[i], low[i]);
            continue;
        }
        for (int i = 0; i < m; ++i)
            t[i] = coi_gelu_argument(coi_gelu_size(x[i]), &low[i]);
        for (int i = 0; i < m; ++i)
            z[i] = coi_gelu_of(x[i], t[i], low[i]);
    }
}

const coi_unary_loops COI_LOOP_TABLE(coi_unary_loops) = {
    .at = {
        [COI_NEG] = { [COI_F32] = neg_f32, [COI_F64] = neg_f64 },
        [COI_SQUARE] = { [COI_F32] = square_f32, [COI_F64] = square_f64 },
        [COI_SQRT] = { [COI_F32] = sqrt_f32, [COI_F64] = sqrt_f64 },
        [COI_EXP] = { [COI_F32] = exp_f32 },
        [COI_LOG] = { [COI_F32] = log_f32 },
        [COI_TANH] = { [COI_F32] = tanh_f32 },
        [COI_SIGMOID] = { [COI_F32] = sigmoid_f32 },
        [COI_RELU] = { [COI_F32] = relu_f32, [COI_F64] = relu_f64 },
        [COI_ABS] = { [COI_F32] = abs_f32 },
        [COI_RSQRT] = { [COI_F32] = rsqrt_f32 },
        [COI_RECIPROCAL] = { [COI_F32] = reciprocal_f32 },
        [COI_FLOOR] = { [COI_F32] = floor_f32 },
        [COI_CEIL] = { [COI_F32] = ceil_f32 },
        [COI_ROUND] = { [COI_F32] = round_f32 },
        [COI_RELU6] = { [COI_F32] = relu6_f32 },
        [COI_ELU] = { [COI_F32] = elu_f32 },
        [COI_SELU] = { [COI_F32] = selu_f32 },
        [COI_SOFTPLUS] = { [COI_F32] = softplus_f32 },
        [COI_SILU] = { [COI_F32] = silu_f32 },
        [COI_GELU_TANH] = { [COI_F32] = gelu_tanh_f32 },
    },
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions of float without branches, for loops that the compiler vectorises. Only for
 * files of this folder.
 *
 * Each reduces its argument to a small interval and evaluates a polynomial fitted there (Chebyshev
 * nodes, relative error below 1e-8), so what is lost is rounding: at most 2.5 units in the last
 * place over all floats, which a unit test measures. NaN, infinities, zeros of both signs and
 * subnormal numbers give what the C library gives.
 */
#ifndef COI_OPS_KERNELS_SIMD_SIMD_MATH_H
#define COI_OPS_KERNELS_SIMD_SIMD_MATH_H

#include "ops/kernels/loops.h"
#include "ops/kernels/simd/simd.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Instruction sets beyond the baseline have a fused multiply-add; elsewhere fmaf would be a slow
 * call. */
#ifdef COI_ISA_base
#define COI_FMA(a, b, c) ((a) * (b) + (c))
#else
#define COI_FMA(a, b, c) __builtin_fmaf(a, b, c)
#endif

COI_INLINE float
coi_bits_float(int32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

COI_INLINE int32_t
coi_float_bits(float value)
{
    int32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The bits of |x|: they grow with it, and NaN has the largest. */
COI_INLINE int32_t
coi_size_bits(float x)
{
    return coi_float_bits(x) & 0x7FFFFFFF;
}

/*
 * e^r - 1 for x + low = n ln 2 + r, low being small beside 1. n + bias is in the low bits of *k,
 * and what stands above them must be shifted out. The bias is odd everywhere, so that a tie is
 * rounded to the same n by all functions.
 */
COI_INLINE float
coi_exp_reduced_sum(float x, float low, int bias, uint32_t *k)
{
    /* 1.5 * 2^23: adding it rounds to the nearest integer */
    const float to_int = 12582912.0f + (float)bias;
    float       shifted = COI_FMA(x, 1.44269504f, to_int), n = shifted - to_int, r, square, p;

    r = COI_FMA(n, -0.693145752f, x); /* the high part of ln 2 has 15 bits: n times it is exact */
    r = COI_FMA(n, -1.42860677e-6f, r + low);
    square = r * r;
    p = COI_FMA(0.00139276846f, square, COI_FMA(0.00836438069f, r, 0.0416665454f));
    p = COI_FMA(p, square, COI_FMA(0.166665696f, r, 0.5f));
    *k = (uint32_t)coi_float_bits(shifted);
    return COI_FMA(p, square, r);
}

COI_INLINE float
coi_exp_reduced(float x, int bias, uint32_t *k)
{
    return coi_exp_reduced_sum(x, -0.0f, bias, k); /* -0 changes nothing, and costs nothing */
}

/* 2^(k - 127), by the low bits of k. */
COI_INLINE float
coi_power_of_two(uint32_t k)
{
    return coi_bits_float((int32_t)(k << 23));
}

COI_INLINE float
coi_expf(float x)
{
    uint32_t k, half;
    float    p, scale;

    x = x < coi_limits.exp_low ? coi_limits.exp_low : x; /* 0 there, and infinity here */
    x = coi_limits.exp_high < x ? coi_limits.exp_high : x;
    p = coi_exp_reduced(x, 253, &k);
    /* 2^n in two factors, so that subnormal results are rounded once and large ones overflow at the
     * end. */
    k += 1;
    half = k >> 1;
    scale = coi_power_of_two(half);
    return COI_FMA(p, scale, scale) * coi_power_of_two(k - half);
}

/* exp(x + low) where the result is an ordinary number: the same bits. */
COI_INLINE float
coi_exp_nearf(float x, float low)
{
    uint32_t k;
    float    p = coi_exp_reduced_sum(x, low, 127, &k), scale = coi_power_of_two(k);

    return COI_FMA(p, scale, scale);
}
/* The bits of 87: exp of what is smaller on either side is such a number. */
#define COI_EXP_NEAR 0x42AE0000

/* exp(x) for x <= 0 and NaN, 0 where that would be subnormal: for what is compared with a sum of at
 * least 1. */
COI_INLINE float
coi_exp_belowf(float x)
{
    float p = coi_exp_nearf(x, -0.0f);

    return x < -87.3365f ? 0.0f : p; /* down to -infinity, where p is anything */
}

/* exp(x) - 1 without losing what is small: 2^n (e^r - 1) + (2^n - 1). */
COI_INLINE float
coi_expm1f(float x)
{
    uint32_t k;
    float    p = coi_exp_reduced(x, 127, &k), scale, y;

    scale = coi_power_of_two(k - 1u); /* 2^(n-1): n may be 128 */
    y = COI_FMA(p, scale, scale - 0.5f) * 2.0f;
    y = x > 88.8f ? INFINITY : y;
    y = x < -17.4f ? -1.0f : y; /* NaN stays */
    return x == 0.0f ? x : y;   /* -0 too */
}

COI_INLINE float
coi_logf(float x)
{
    const int32_t root_half =
        0x3F3504F3; /* sqrt(1/2): the fraction is taken from [sqrt(1/2), sqrt(2)) */
    int     is_small = x < 0x1p-126f;
    float   scaled = is_small ? x * 0x1p23f : x;
    int32_t bits = (int32_t)((uint32_t)coi_float_bits(scaled) - (uint32_t)root_half);
    float   e = (float)(bits >> 23) - (is_small ? 23.0f : 0.0f);
    float   f = coi_bits_float((bits & 0x007FFFFF) + root_half) - 1.0f;
    float   p, y;

    p = 0.0697161147f;
    p = COI_FMA(p, f, -0.114797338f);
    p = COI_FMA(p, f, 0.116854199f);
    p = COI_FMA(p, f, -0.124256873f);
    p = COI_FMA(p, f, 0.142490576f);
    p = COI_FMA(p, f, -0.166678023f);
    p = COI_FMA(p, f, 0.200007157f);
    p = COI_FMA(p, f, -0.249999970f);
    p = COI_FMA(p, f, 0.333333312f);
    y = f * f;
    p = COI_FMA(e, 1.42860677e-6f, p * f * y);
    p = COI_FMA(-0.5f, y, p);
    y = COI_FMA(e, 0.693145752f, f + p);
    y = x < INFINITY ? y : x; /* infinity and NaN */
    y = x < 0.0f ? NAN : y;
    return x == 0.0f ? -INFINITY : y;
}

/* m / (m + 2), m = exp(2 |x|) - 1 as in coi_expm1f: nothing cancels near zero. */
COI_INLINE float
coi_tanhf(float x)
{
    float    size = fabsf(x), p, scale;
    uint32_t k;

    size = coi_limits.tanh_high < size ? coi_limits.tanh_high : size; /* 1 there */
    p = coi_exp_reduced(size + size, 127, &k);
    scale = coi_power_of_two(k);
    p = COI_FMA(p, scale, scale - 1.0f);
    return copysignf(p / (p + 2.0f), x); /* so that tanh(-0) is -0 */
}

COI_INLINE float
coi_sigmoidf(float x)
{
    float e = coi_expf(-fabsf(x)); /* never overflows, and keeps subnormal results */

    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

/* x / (1 + exp(-x)); half the power twice, since the whole would be subnormal while the result is
 * not. */
COI_INLINE float
coi_siluf(float x)
{
    float half = coi_expf(-0.5f * fabsf(x));

    return (x >= 0.0f ? x : x * half * half) / (1.0f + half * half);
}

/* log(1 + exp(x)) as max(x, 0) + log(1 + e), e = exp(-|x|); what rounding 1 + e lost is put
 * back. */
COI_INLINE float
coi_softplusf(float x)
{
    float e = coi_expf(-fabsf(x)), u = 1.0f + e;
    float y = coi_logf(u) + (e - (u - 1.0f)) / u;

    return (x > 0.0f ? x : 0.0f) + y;
}

/* Constants of the reference's selu: scale, and scale times alpha. */
#define COI_SELU_SCALE 1.05070098735548049f
#define COI_SELU_LOW   1.75809934084737682f

/*
 * gelu by tanh, x / 2 (1 + tanh(t / 2)), is x / (1 + e) or, where x is negative, x e / (1 + e),
 * with e = exp(-|t|) and t = 2 sqrt(2 / pi) (x + 0.044715 x^3). An error of t is an error of the
 * result times as large as t, so t has a second float. It comes in two halves, for two loops: in
 * one, the chain of operations is so long that the processor cannot look far enough ahead to fill
 * it.
 *
 * The first: -|t| for |x| as the sum of the result and *low. c1 = 2 sqrt(2 / pi) is a sum, too, and
 * its large part has 20 bits behind the point, so that c1 - q is exact for every q that comes up;
 * of c2 = 0.044715 c1 a float is enough.
 */
COI_INLINE float
coi_gelu_argument(float size, float *low)
{
#ifdef COI_ISA_base
    double x = (double)size, exact = x * (-1.5957691216057308 + -0.071354813805310627 * x * x);
    float  sum = (float)exact;

    *low = (float)(exact - (double)sum);
#else
    const float c1 = -1.59576893f, c1_low = -1.93077895e-07f, c2 = -0.0713548139f;
    float       square = size * size, rest = COI_FMA(size, size, -square);
    float       q = COI_FMA(c2, square, c1), sum = size * q;

    rest = COI_FMA(c2, rest, c1_low);
    rest += COI_FMA(c2, square, c1 - q);
    *low = COI_FMA(size, rest, COI_FMA(size, q, -sum));
#endif
    return sum;
}

/* |x|, but no more than gelu_high, 11: from there on e is 0. */
COI_INLINE float
coi_gelu_size(float x)
{
    float size = fabsf(x);

    return coi_limits.gelu_high < size ? coi_limits.gelu_high : size;
}

/* The derivative of gelu by tanh, (s + x t' s e) with s = 1 / (1 + e), or e s + ... where x is
 * negative. Beyond gelu_high it is 0 or 1. */
COI_INLINE float
coi_gelu_slope(float x)
{
    const float c1 = 1.59576912f, c2 = 0.0713548139f;
    float       size = coi_gelu_size(x), square = size * size, e, s;

    e = coi_exp_belowf(-size * COI_FMA(c2, square, c1));
    s = 1.0f / (1.0f + e);
    square = copysignf(size, x) * COI_FMA(3 * c2, square, c1);
    return s * COI_FMA(square, e * s, x < 0.0f ? e : 1.0f);
}

/* The second: the result from x and t + low. Where x is negative, 2^64 e is used up to the end,
 * because results may be subnormal and are to be rounded once. */
COI_INLINE float
coi_gelu_of(float x, float t, float low)
{
    int32_t  one = coi_float_bits(1.0f), below = coi_float_bits(x) >> 31;
    uint32_t k;
    float    e = coi_exp_reduced_sum(t, low, 127 + 64, &k), scale = coi_power_of_two(k), factor;

    e = COI_FMA(e, scale, scale);
    e = x > -coi_limits.gelu_high ? e
                                  : 0.0f; /* -infinity gives NaN, as it does to the definition */
    /* What depends on the sign goes by bits: of comparisons gcc makes a branch, with a division on
     * either side. */
    scale = coi_bits_float(one - (below & (64 << 23)));
    factor = coi_bits_float((coi_float_bits(e) & below) | (one & ~below));
    return x * factor / (1.0f + e * 0x1p-64f) * scale;
}

/* The same bits where |x| is below 9: nothing there is subnormal. */
COI_INLINE float
coi_gelu_near_of(float x, float t, float low)
{
    float e = coi_exp_nearf(t, low);

    return x * (coi_float_bits(x) < 0 ? e : 1.0f) / (1.0f + e);
}
#define COI_GELU_NEAR 0x41100000 /* the bits of 9 */

#endif

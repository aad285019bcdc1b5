/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between half precision and float: the conversions of value/dtype.c without branches.
 */
#include "ops/kernels/simd/simd_half.h"
#include "ops/kernels/simd/simd_math.h"

void
upcast_half(float *restrict out, const uint16_t *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        uint32_t bits = (uint32_t)(x[i] & 0x7FFFu) << 13;
        float scaled = coi_bits_float((int32_t)bits) * 0x1p112f; /* the exponents differ by 112 */
        uint32_t finite = (uint32_t)coi_float_bits(scaled);
        uint32_t size = bits >= 0x0F800000u ? bits | 0x7F800000u : finite;

        out[i] = coi_bits_float((int32_t)(size | (uint32_t)(x[i] & 0x8000u) << 16));
    }
}

void
narrow_half(uint16_t *restrict out, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        uint32_t bits = (uint32_t)coi_float_bits(x[i]);
        uint32_t size = bits & 0x7FFFFFFFu;
        uint32_t normal = (size + 0xFFFu + (size >> 13 & 1u) - (112u << 23)) >> 13;
        /* Below 2^-14 the adder rounds to a multiple of 2^-24. */
        float    lifted = coi_bits_float((int32_t)size) + 0.5f;
        uint32_t small = (uint32_t)coi_float_bits(lifted) - 0x3F000000u;
        uint32_t result = size < 0x38800000u ? small : normal;

        result = size >= 0x477FF000u ? 0x7C00u : result; /* 65520 and more */
        result = size > 0x7F800000u ? 0x7E00u | (size >> 13 & 0x3FFu) : result;
        out[i] = (uint16_t)(result | (bits >> 16 & 0x8000u));
    }
}

void
upcast_bfloat(float *restrict out, const uint16_t *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        out[i] = coi_bits_float((int32_t)((uint32_t)x[i] << 16));
}

void
narrow_bfloat(uint16_t *restrict out, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        uint32_t bits = (uint32_t)coi_float_bits(x[i]);
        uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;

        out[i] = (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : rounded);
    }
}

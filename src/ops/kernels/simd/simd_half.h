/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Half precision in loops: float16 and bfloat16 are computed in float, block by block, and rounded
 * to nearest even at the end. Only for files of this folder; simd_half.c has the conversions.
 */
#ifndef COI_OPS_KERNELS_SIMD_SIMD_HALF_H
#define COI_OPS_KERNELS_SIMD_SIMD_HALF_H

#include "ops/kernels/loops.h"
#include "ops/kernels/simd/simd.h"

typedef void (*upcast_fn)(float *out, const uint16_t *x, int64_t n);
typedef void (*narrow_fn)(uint16_t *out, const float *x, int64_t n);

#define upcast_half   COI_LOOP_TABLE(coi_upcast_half)
#define narrow_half   COI_LOOP_TABLE(coi_narrow_half)
#define upcast_bfloat COI_LOOP_TABLE(coi_upcast_bfloat)
#define narrow_bfloat COI_LOOP_TABLE(coi_narrow_bfloat)
void upcast_half(float *out, const uint16_t *x, int64_t n);
void narrow_half(uint16_t *out, const float *x, int64_t n);
void upcast_bfloat(float *out, const uint16_t *x, int64_t n);
void narrow_bfloat(uint16_t *out, const float *x, int64_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions on the way of data into a model and of halves through it. The others are in
 * ops/kernels/generic/generic_loops.c and coi_convert, whose results these have.
 */
#include "ops/kernels/define_loops.h"
#include "ops/kernels/simd/simd_half.h"

COI_CAST_LOOP(f32_f64, float, double, p)
COI_CAST_LOOP(f64_f32, double, float, p)
COI_CAST_LOOP(i32_f32, int32_t, float, p)
COI_CAST_LOOP(i64_f32, int64_t, float, p)
COI_CAST_LOOP(u8_f32, uint8_t, float, p)
/* Out of range and NaN give the most negative number. */
COI_CAST_LOOP(f32_i32, float, int32_t,
              p >= -2147483648.0f && p < 2147483648.0f ? (int32_t)p : INT32_MIN)

#define HALF_CAST(name, function, to, from)                                                        \
    static void name(void *restrict out, const void *restrict in, int64_t n)                       \
    {                                                                                              \
        function((to *)out, (const from *)in, n);                                                  \
    }
HALF_CAST(f16_f32, upcast_half, float, uint16_t)
HALF_CAST(f32_f16, narrow_half, uint16_t, float)
HALF_CAST(bf16_f32, upcast_bfloat, float, uint16_t)
HALF_CAST(f32_bf16, narrow_bfloat, uint16_t, float)

const coi_cast_loops COI_LOOP_TABLE(coi_cast_loops) = {
    .at = {
        [CO_FLOAT32] = { [CO_FLOAT64] = f32_f64, [CO_INT32] = f32_i32, [CO_FLOAT16] = f32_f16,
                         [CO_BFLOAT16] = f32_bf16 },
        [CO_FLOAT64] = { [CO_FLOAT32] = f64_f32 },
        [CO_INT32] = { [CO_FLOAT32] = i32_f32 },
        [CO_INT64] = { [CO_FLOAT32] = i64_f32 },
        [CO_UINT8] = { [CO_FLOAT32] = u8_f32 },
        [CO_BOOL] = { [CO_FLOAT32] = u8_f32 },
        [CO_FLOAT16] = { [CO_FLOAT32] = f16_f32 },
        [CO_BFLOAT16] = { [CO_FLOAT32] = bf16_f32 },
    },
};

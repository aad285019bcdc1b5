/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of float (f32) and double (f64) as wide as the instruction set has them, under one set of
 * names: 512 bits for AVX-512, 256 for AVX2, and 128 of the compiler's own vector type for the
 * baseline. fma is fused for AVX2 and AVX-512; the baseline rounds the product. max is x > y ? x :
 * y in each lane, so that NaN in x is passed over. A part is the first n lanes, 0 <= n <= lanes;
 * loading one gives zeros elsewhere and touches no memory behind it.
 */
#ifndef COI_OPS_KERNELS_SIMD_VECTOR_H
#define COI_OPS_KERNELS_SIMD_VECTOR_H

#include "ops/kernels/simd/simd.h"

#include <stdint.h>
#include <string.h>
#if defined(COI_ISA_v3) || defined(COI_ISA_v4)
#include <immintrin.h>
#endif

/* The operations that intrinsics name alike for both types: mm is _mm256 or _mm512, s is ps or
 * pd. */
#define COI_VECTOR_X86(T, REAL, mm, s)                                                             \
    COI_INLINE vec_##T zero_##T(void)                                                              \
    {                                                                                              \
        return mm##_setzero_##s();                                                                 \
    }                                                                                              \
    COI_INLINE vec_##T load_##T(const REAL *p)                                                     \
    {                                                                                              \
        return mm##_loadu_##s(p);                                                                  \
    }                                                                                              \
    COI_INLINE void store_##T(REAL *p, vec_##T v)                                                  \
    {                                                                                              \
        mm##_storeu_##s(p, v);                                                                     \
    }                                                                                              \
    COI_INLINE vec_##T splat_##T(REAL x)                                                           \
    {                                                                                              \
        return mm##_set1_##s(x);                                                                   \
    }                                                                                              \
    COI_INLINE vec_##T add_##T(vec_##T x, vec_##T y)                                               \
    {                                                                                              \
        return mm##_add_##s(x, y);                                                                 \
    }                                                                                              \
    COI_INLINE vec_##T max_##T(vec_##T x, vec_##T y)                                               \
    {                                                                                              \
        return mm##_max_##s(x, y);                                                                 \
    }                                                                                              \
    COI_INLINE vec_##T fma_##T(vec_##T x, vec_##T y, vec_##T z)                                    \
    {                                                                                              \
        return mm##_fmadd_##s(x, y, z);                                                            \
    }

#if defined(COI_ISA_v4)

enum { LANES_f32 = 16, LANES_f64 = 8 };
typedef __m512    vec_f32;
typedef __m512d   vec_f64;
typedef __mmask16 part_f32;
typedef __mmask8  part_f64;
COI_VECTOR_X86(f32, float, _mm512, ps)
COI_VECTOR_X86(f64, double, _mm512, pd)
#define COI_VECTOR_PARTS(T, REAL, s)                                                               \
    COI_INLINE part_##T make_part_##T(int64_t n)                                                   \
    {                                                                                              \
        return (part_##T)((1u << n) - 1u);                                                         \
    }                                                                                              \
    COI_INLINE vec_##T load_part_##T(const REAL *p, part_##T part)                                 \
    {                                                                                              \
        return _mm512_maskz_loadu_##s(part, p);                                                    \
    }                                                                                              \
    COI_INLINE void store_part_##T(REAL *p, vec_##T v, part_##T part)                              \
    {                                                                                              \
        _mm512_mask_storeu_##s(p, part, v);                                                        \
    }

#elif defined(COI_ISA_v3)

enum { LANES_f32 = 8, LANES_f64 = 4 };
typedef __m256  vec_f32;
typedef __m256d vec_f64;
typedef __m256i part_f32;
typedef __m256i part_f64;
COI_VECTOR_X86(f32, float, _mm256, ps)
COI_VECTOR_X86(f64, double, _mm256, pd)
COI_INLINE part_f32
make_part_f32(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
COI_INLINE part_f64
make_part_f64(int64_t n)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
#define COI_VECTOR_PARTS(T, REAL, s)                                                               \
    COI_INLINE vec_##T load_part_##T(const REAL *p, part_##T part)                                 \
    {                                                                                              \
        return _mm256_maskload_##s(p, part);                                                       \
    }                                                                                              \
    COI_INLINE void store_part_##T(REAL *p, vec_##T v, part_##T part)                              \
    {                                                                                              \
        _mm256_maskstore_##s(p, part, v);                                                          \
    }

#else

enum { LANES_f32 = 4, LANES_f64 = 2 };
typedef float   vec_f32 __attribute__((vector_size(16)));
typedef double  vec_f64 __attribute__((vector_size(16)));
typedef int64_t part_f32;
typedef int64_t part_f64;
#define COI_VECTOR_PARTS(T, REAL, s)                                                               \
    COI_INLINE part_##T make_part_##T(int64_t n)                                                   \
    {                                                                                              \
        return n;                                                                                  \
    }                                                                                              \
    COI_INLINE vec_##T load_part_##T(const REAL *p, part_##T part)                                 \
    {                                                                                              \
        vec_##T v = { 0 };                                                                         \
                                                                                                   \
        memcpy(&v, p, (size_t)part * sizeof(REAL));                                                \
        return v;                                                                                  \
    }                                                                                              \
    COI_INLINE void store_part_##T(REAL *p, vec_##T v, part_##T part)                              \
    {                                                                                              \
        memcpy(p, &v, (size_t)part * sizeof(REAL));                                                \
    }                                                                                              \
    COI_INLINE vec_##T zero_##T(void)                                                              \
    {                                                                                              \
        return (vec_##T){ 0 };                                                                     \
    }                                                                                              \
    COI_INLINE vec_##T load_##T(const REAL *p)                                                     \
    {                                                                                              \
        vec_##T v;                                                                                 \
                                                                                                   \
        memcpy(&v, p, sizeof(v));                                                                  \
        return v;                                                                                  \
    }                                                                                              \
    COI_INLINE void store_##T(REAL *p, vec_##T v)                                                  \
    {                                                                                              \
        memcpy(p, &v, sizeof(v));                                                                  \
    }                                                                                              \
    COI_INLINE vec_##T add_##T(vec_##T x, vec_##T y)                                               \
    {                                                                                              \
        return x + y;                                                                              \
    }                                                                                              \
    COI_INLINE vec_##T max_##T(vec_##T x, vec_##T y)                                               \
    {                                                                                              \
        for (int i = 0; i < LANES_##T; ++i)                                                        \
            y[i] = x[i] > y[i] ? x[i] : y[i];                                                      \
        return y;                                                                                  \
    }                                                                                              \
    COI_INLINE vec_##T fma_##T(vec_##T x, vec_##T y, vec_##T z)                                    \
    {                                                                                              \
        return x * y + z;                                                                          \
    }

COI_INLINE vec_f32
splat_f32(float x)
{
    return (vec_f32){ x, x, x, x };
}
COI_INLINE vec_f64
splat_f64(double x)
{
    return (vec_f64){ x, x };
}

#endif

COI_VECTOR_PARTS(f32, float, ps)
COI_VECTOR_PARTS(f64, double, pd)

/* The sum of all lanes: the upper half is added to the lower one, until one is left. */
#define COI_VECTOR_FOLD(T, REAL)                                                                   \
    COI_INLINE REAL fold_lanes_##T(vec_##T v)                                                      \
    {                                                                                              \
        REAL lanes[LANES_##T];                                                                     \
                                                                                                   \
        store_##T(lanes, v);                                                                       \
        COI_UNROLL                                                                                 \
        for (int width = LANES_##T / 2; width > 0; width /= 2) {                                   \
            COI_UNROLL                                                                             \
            for (int i = 0; i < width; ++i)                                                        \
                lanes[i] += lanes[i + width];                                                      \
        }                                                                                          \
        return lanes[0];                                                                           \
    }
#if defined(COI_ISA_v3)
COI_INLINE float
fold_lanes_f32(vec_f32 v)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
#else
COI_VECTOR_FOLD(f32, float)
#endif
COI_VECTOR_FOLD(f64, double)

#endif

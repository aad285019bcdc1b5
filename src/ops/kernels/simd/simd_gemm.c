/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/kernels/gemm.h for one instruction set. A tile of C is 6 rows by 2 vectors,
 * which with two vectors of B and one broadcast element of A fills the 16 registers of AVX2. For
 * large K, AVX-512 has tiles of 12 rows. Measured against the loop of multiply-adds alone, the
 * inner loop reaches 97 % whether its operands are packed or not.
 */
#include "ops/kernels/gemm.h"
#include "ops/kernels/simd/vector.h"

#define NV 2
#if defined(COI_ISA_v4)
#define ISA COI_ISA_V4
#elif defined(COI_ISA_v3)
#define ISA COI_ISA_V3
#else
#define ISA COI_ISA_BASE
#endif
#ifdef COI_ISA_base
#define MR   4 /* without FMA the rounded product needs a register too */
#define WIDE 4 /* MR, or a little more that vectors copy at once */
#else
#define MR   6
#define WIDE 8
#endif
/*
 * With 32 registers a tile of two panels of rows reads B half as often. It prefetches its operands
 * AHEAD steps of k before their use: with strides that are powers of two they are not in the L1
 * cache. For small K, where the loop is mostly start and end, it is slower. Doubles are
 * too rare for its code.
 */
#ifdef COI_ISA_v4
#define TALL      12
#define FULL_PART 1 /* a part with all lanes is as good as a whole vector, nearly */
#else
#define TALL      0
#define FULL_PART 0
#endif
#define TALL_DEPTH 64
#define AHEAD      8
/* Steps of k packed at once: the cache lines that panels share stay in L1, also where strides are
 * powers of two. */
#define PACK_DEPTH 8
/* Columns of eight rows that are transposed at once. */
#define TURN_COLUMNS 64

/*
 * Transpose squares of 8 x 8 floats or 4 x 4 doubles, or 8 x 4 and 16 x 4 floats with AVX-512: row
 * i of `from` becomes column i of `to`. Packing a transposed operand element by element would take
 * a tenth of a GEMM with 128 rows.
 */
enum { SQUARE_f32 = 8, SQUARE_f64 = 4, ACROSS_f64 = 4 };
#if defined(COI_ISA_v4)
enum { ACROSS_f32 = 4 };
/* Loads combine rows that are four apart, so that no later shuffle crosses 128-bit halves. */
COI_INLINE void
square_f32(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    __m256 r[4], t[4];

    COI_UNROLL
    for (int i = 0; i < 4; ++i)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * from_row)),
                                    _mm_loadu_ps(from + (i + 4) * from_row), 1);
    COI_UNROLL
    for (int i = 0; i < 4; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    COI_UNROLL
    for (int i = 0; i < 2; ++i) {
        _mm256_storeu_ps(to + 2 * i * to_row, _mm256_shuffle_ps(t[i], t[i + 2], 0x44));
        _mm256_storeu_ps(to + (2 * i + 1) * to_row, _mm256_shuffle_ps(t[i], t[i + 2], 0xEE));
    }
}
/* The same with sixteen rows: as many instructions for twice as much. */
COI_INLINE void
two_squares_f32(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    __m512 r[4], t[4];

    COI_UNROLL
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm512_castps128_ps512(_mm_loadu_ps(from + i * from_row));
        r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(from + (i + 4) * from_row), 1);
        r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(from + (i + 8) * from_row), 2);
        r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(from + (i + 12) * from_row), 3);
    }
    COI_UNROLL
    for (int i = 0; i < 4; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    COI_UNROLL
    for (int i = 0; i < 2; ++i) {
        _mm512_storeu_ps(to + 2 * i * to_row, _mm512_shuffle_ps(t[i], t[i + 2], 0x44));
        _mm512_storeu_ps(to + (2 * i + 1) * to_row, _mm512_shuffle_ps(t[i], t[i + 2], 0xEE));
    }
}
#else
enum { ACROSS_f32 = 8 };
#endif
#if defined(COI_ISA_v3)
COI_INLINE void
square_f32(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    __m256 r[8], t[8], u[8];

    COI_UNROLL
    for (int i = 0; i < 8; ++i)
        r[i] = _mm256_loadu_ps(from + i * from_row);
    COI_UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    COI_UNROLL
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    COI_UNROLL
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(to + i * to_row, _mm256_permute2f128_ps(u[i], u[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_row, _mm256_permute2f128_ps(u[i], u[i + 4], 0x31));
    }
}
#endif
#if defined(COI_ISA_v3) || defined(COI_ISA_v4)
COI_INLINE void
square_f64(const double *from, int64_t from_row, double *to, int64_t to_row)
{
    __m256d r[4], t[4];

    COI_UNROLL
    for (int i = 0; i < 4; ++i)
        r[i] = _mm256_loadu_pd(from + i * from_row);
    COI_UNROLL
    for (int i = 0; i < 4; i += 2) {
        t[i] = _mm256_unpacklo_pd(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_pd(r[i], r[i + 1]);
    }
    COI_UNROLL
    for (int i = 0; i < 2; ++i) {
        _mm256_storeu_pd(to + i * to_row, _mm256_permute2f128_pd(t[i], t[i + 2], 0x20));
        _mm256_storeu_pd(to + (i + 2) * to_row, _mm256_permute2f128_pd(t[i], t[i + 2], 0x31));
    }
}
#else
COI_INLINE void
square_f32(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    for (int i = 0; i < SQUARE_f32; ++i)
        for (int j = 0; j < SQUARE_f32; ++j)
            to[j * to_row + i] = from[i * from_row + j];
}
COI_INLINE void
square_f64(const double *from, int64_t from_row, double *to, int64_t to_row)
{
    for (int i = 0; i < SQUARE_f64; ++i)
        for (int j = 0; j < SQUARE_f64; ++j)
            to[j * to_row + i] = from[i * from_row + j];
}
#endif

#define T    f32
#define REAL float
#include "ops/kernels/simd/gemm_body.h"
#undef T
#undef REAL
#undef TALL
#define TALL 0
#define T    f64
#define REAL double
#include "ops/kernels/simd/gemm_body.h"

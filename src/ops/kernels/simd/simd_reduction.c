/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folding elements into wide accumulators (loops.h). A run of floats is added up in 32 lanes (16 of
 * doubles) over blocks of 4096, and the blocks in double, so the error of a sum hardly grows with
 * its length. All of it depends on lengths alone.
 */
#include "ops/kernels/loops.h"
#include "ops/kernels/simd/simd_half.h"

#include <math.h>
#include <string.h>

#define BLOCK     4096
#define ROW_BLOCK 128 /* rows that columns of floats are added over before they go into double */
#define WIDTH     COI_FOLD_WIDTH

/* Vectors of 32 bytes, whatever the instruction set: the compiler makes of them what it has, and
 * sums are the same. */
typedef float   lanes_f32 __attribute__((vector_size(32)));
typedef double  lanes_f64 __attribute__((vector_size(32)));
typedef int32_t mask_f32 __attribute__((vector_size(32)));
typedef int64_t mask_f64 __attribute__((vector_size(32)));

#define SUM(a, b) ((a) + (b))
/* NaN wins. */
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

/* a becomes the combination of a and b, lane by lane. */
#define TAKE_SUM(lanes, mask, a, b) a += b
#define TAKE_MAX(lanes, mask, a, b)                                                                \
    do {                                                                                           \
        mask larger_ = ((b) > (a)) | ((b) != (b));                                                 \
                                                                                                   \
        a = (lanes)(((mask)(b)&larger_) | ((mask)(a) & ~larger_));                                 \
    } while (0)

/* The lanes of one vector. */
#define JOIN_f32(a, combine)                                                                       \
    combine(combine(combine((a)[0], (a)[4]), combine((a)[2], (a)[6])),                             \
            combine(combine((a)[1], (a)[5]), combine((a)[3], (a)[7])))
#define JOIN_f64(a, combine) combine(combine((a)[0], (a)[2]), combine((a)[1], (a)[3]))

/*
 * The combination of n elements, at most BLOCK. The four vectors of `w` elements are variables: an
 * array would be kept in memory, and joining it costs more than adding 500 numbers.
 */
#ifndef __OPTIMIZE_SIZE__
#define RUN(name, type, w, lanes, mask, first, combine, take, join)                                \
    static type name##_run(const type *restrict x, int64_t n)                                      \
    {                                                                                              \
        type    result = first;                                                                    \
        int64_t i = 0;                                                                             \
                                                                                                   \
        if (n >= 4 * (w)) {                                                                        \
            lanes a, b, c, d, next;                                                                \
                                                                                                   \
            memcpy(&a, x, sizeof(a));                                                              \
            memcpy(&b, x + (w), sizeof(b));                                                        \
            memcpy(&c, x + 2 * (w), sizeof(c));                                                    \
            memcpy(&d, x + 3 * (w), sizeof(d));                                                    \
            for (i = 4 * (w); i + 4 * (w) <= n; i += 4 * (w)) {                                    \
                memcpy(&next, x + i, sizeof(next));                                                \
                take(lanes, mask, a, next);                                                        \
                memcpy(&next, x + i + (w), sizeof(next));                                          \
                take(lanes, mask, b, next);                                                        \
                memcpy(&next, x + i + 2 * (w), sizeof(next));                                      \
                take(lanes, mask, c, next);                                                        \
                memcpy(&next, x + i + 3 * (w), sizeof(next));                                      \
                take(lanes, mask, d, next);                                                        \
            }                                                                                      \
            take(lanes, mask, a, c);                                                               \
            take(lanes, mask, b, d);                                                               \
            take(lanes, mask, a, b);                                                               \
            result = join(a, combine);                                                             \
        }                                                                                          \
        for (; i < n; ++i)                                                                         \
            result = combine(result, x[i]);                                                        \
        return result;                                                                             \
    }
#else
/* The same combinations in the same order, for size: without vectors of this length the compiler
 * would split each of the four. */
#define RUN(name, type, w, lanes, mask, first, combine, take, join)                                \
    static type name##_run(const type *restrict x, int64_t n)                                      \
    {                                                                                              \
        type    result = first, part[4 * (w)];                                                     \
        int64_t i = 0;                                                                             \
                                                                                                   \
        if (n >= 4 * (w)) {                                                                        \
            memcpy(part, x, sizeof(part));                                                         \
            for (i = 4 * (w); i + 4 * (w) <= n; i += 4 * (w))                                      \
                for (int k = 0; k < 4 * (w); ++k)                                                  \
                    part[k] = combine(part[k], x[i + k]);                                          \
            for (int width = 2 * (w); width > 0; width /= 2)                                       \
                for (int k = 0; k < width; ++k)                                                    \
                    part[k] = combine(part[k], part[k + width]);                                   \
            result = part[0];                                                                      \
        }                                                                                          \
        for (; i < n; ++i)                                                                         \
            result = combine(result, x[i]);                                                        \
        return result;                                                                             \
    }
#endif
RUN(sum_f32, float, 8, lanes_f32, mask_f32, 0, SUM, TAKE_SUM, JOIN_f32)
RUN(sum_f64, double, 4, lanes_f64, mask_f64, 0, SUM, TAKE_SUM, JOIN_f64)
RUN(max_f32, float, 8, lanes_f32, mask_f32, -INFINITY, MAX, TAKE_MAX, JOIN_f32)
RUN(max_f64, double, 4, lanes_f64, mask_f64, -INFINITY, MAX, TAKE_MAX, JOIN_f64)

/*
 * Columns in strips that stay in registers over all rows, of four vectors and of one; the last few
 * one by one. Combined row by row in memory, every row would wait for the one before to be stored.
 */
#ifndef __OPTIMIZE_SIZE__
#define STRIPS(name, type, w, lanes, mask, combine, take)                                          \
    static COI_NOINLINE void name##_strips(const type *restrict x, int64_t num_rows,               \
                                           int64_t stride, int64_t n, type *restrict part)         \
    {                                                                                              \
        int64_t j = 0, i;                                                                          \
                                                                                                   \
        for (; j + 4 * (w) <= n; j += 4 * (w)) {                                                   \
            lanes a, b, c, d, next;                                                                \
                                                                                                   \
            memcpy(&a, x + j, sizeof(a));                                                          \
            memcpy(&b, x + j + (w), sizeof(b));                                                    \
            memcpy(&c, x + j + 2 * (w), sizeof(c));                                                \
            memcpy(&d, x + j + 3 * (w), sizeof(d));                                                \
            for (i = 1; i < num_rows; ++i) {                                                       \
                const type *from = x + i * stride + j;                                             \
                                                                                                   \
                memcpy(&next, from, sizeof(next));                                                 \
                take(lanes, mask, a, next);                                                        \
                memcpy(&next, from + (w), sizeof(next));                                           \
                take(lanes, mask, b, next);                                                        \
                memcpy(&next, from + 2 * (w), sizeof(next));                                       \
                take(lanes, mask, c, next);                                                        \
                memcpy(&next, from + 3 * (w), sizeof(next));                                       \
                take(lanes, mask, d, next);                                                        \
            }                                                                                      \
            memcpy(part + j, &a, sizeof(a));                                                       \
            memcpy(part + j + (w), &b, sizeof(b));                                                 \
            memcpy(part + j + 2 * (w), &c, sizeof(c));                                             \
            memcpy(part + j + 3 * (w), &d, sizeof(d));                                             \
        }                                                                                          \
        for (; j + (w) <= n; j += (w)) {                                                           \
            lanes a, next;                                                                         \
                                                                                                   \
            memcpy(&a, x + j, sizeof(a));                                                          \
            for (i = 1; i < num_rows; ++i) {                                                       \
                memcpy(&next, x + i * stride + j, sizeof(next));                                   \
                take(lanes, mask, a, next);                                                        \
            }                                                                                      \
            memcpy(part + j, &a, sizeof(a));                                                       \
        }                                                                                          \
        for (; j < n; ++j) {                                                                       \
            type a = x[j];                                                                         \
                                                                                                   \
            for (i = 1; i < num_rows; ++i)                                                         \
                a = combine(a, x[i * stride + j]);                                                 \
            part[j] = a;                                                                           \
        }                                                                                          \
    }
#else
#define STRIPS(name, type, w, lanes, mask, combine, take)                                          \
    static void name##_strips(const type *x, int64_t num_rows, int64_t stride, int64_t n,          \
                              type *part)                                                          \
    {                                                                                              \
        memcpy(part, x, (size_t)n * sizeof(type));                                                 \
        for (int64_t i = 1; i < num_rows; ++i)                                                     \
            for (int64_t j = 0; j < n; ++j)                                                        \
                part[j] = combine(part[j], x[i * stride + j]);                                     \
    }
#endif
STRIPS(sum_f32, float, 8, lanes_f32, mask_f32, SUM, TAKE_SUM)
STRIPS(sum_f64, double, 4, lanes_f64, mask_f64, SUM, TAKE_SUM)
STRIPS(max_f32, float, 8, lanes_f32, mask_f32, MAX, TAKE_MAX)
STRIPS(max_f64, double, 4, lanes_f64, mask_f64, MAX, TAKE_MAX)

/* Rows and columns: combined in their own type block by block, and the blocks in double. */
#define FOLD(name, type, combine)                                                                  \
    static void name##_rows(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,     \
                            int64_t n)                                                             \
    {                                                                                              \
        for (int64_t r = 0; r < num_rows; ++r) {                                                   \
            const type *x = (const type *)data + r * stride;                                       \
                                                                                                   \
            for (int64_t i = 0; i < n; i += BLOCK) {                                               \
                double part = (double)name##_run(x + i, n - i < BLOCK ? n - i : BLOCK);            \
                                                                                                   \
                acc[r].f = combine(acc[r].f, part);                                                \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_columns(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,  \
                               int64_t n)                                                          \
    {                                                                                              \
        type part[WIDTH];                                                                          \
                                                                                                   \
        for (int64_t r = 0; r < num_rows; r += ROW_BLOCK) {                                        \
            int64_t end = num_rows - r < ROW_BLOCK ? num_rows : r + ROW_BLOCK;                     \
                                                                                                   \
            name##_strips((const type *)data + r * stride, end - r, stride, n, part);              \
            for (int64_t j = 0; j < n; ++j)                                                        \
                acc[j].f = combine(acc[j].f, (double)part[j]);                                     \
        }                                                                                          \
    }

FOLD(sum_f32, float, SUM)
FOLD(sum_f64, double, SUM)
FOLD(max_f32, float, MAX)
FOLD(max_f64, double, MAX)

typedef void (*rows_fn)(coi_wide *acc, const void *x, int64_t num_rows, int64_t stride, int64_t n);

static COI_NOINLINE void
rows_in_float(rows_fn fold, upcast_fn upcast, coi_wide *acc, const uint16_t *x, int64_t num_rows,
              int64_t stride, int64_t n)
{
    float wide[BLOCK];

    for (int64_t r = 0; r < num_rows; ++r)
        for (int64_t i = 0; i < n; i += BLOCK) {
            int64_t m = n - i < BLOCK ? n - i : BLOCK;

            upcast(wide, x + r * stride + i, m);
            fold(acc + r, wide, 1, m, m);
        }
}

/* n is at most WIDTH. */
static COI_NOINLINE void
columns_in_float(rows_fn fold, upcast_fn upcast, coi_wide *acc, const uint16_t *x, int64_t num_rows,
                 int64_t stride, int64_t n)
{
    float wide[16 * WIDTH];

    for (int64_t r = 0; r < num_rows; r += 16) {
        int64_t m = num_rows - r < 16 ? num_rows - r : 16;

        for (int64_t i = 0; i < m; ++i)
            upcast(wide + i * n, x + (r + i) * stride, n);
        fold(acc, wide, m, n, n);
    }
}

#define HALF_FOLD(name, kind)                                                                      \
    static void name##_##kind##_rows(coi_wide *acc, const void *x, int64_t num_rows,               \
                                     int64_t stride, int64_t n)                                    \
    {                                                                                              \
        rows_in_float(name##_f32_rows, upcast_##kind, acc, x, num_rows, stride, n);                \
    }                                                                                              \
    static void name##_##kind##_columns(coi_wide *acc, const void *x, int64_t num_rows,            \
                                        int64_t stride, int64_t n)                                 \
    {                                                                                              \
        columns_in_float(name##_f32_columns, upcast_##kind, acc, x, num_rows, stride, n);          \
    }
HALF_FOLD(sum, half)
HALF_FOLD(sum, bfloat)
HALF_FOLD(max, half)
HALF_FOLD(max, bfloat)

#define ENTRY(name)                                                                                \
    {                                                                                              \
        name##_rows, name##_columns                                                                \
    }

const coi_fold_loops COI_LOOP_TABLE(coi_fold_loops) = {
    .at = {
        [COI_FOLD_SUM] = { [CO_FLOAT16] = ENTRY(sum_half), [CO_BFLOAT16] = ENTRY(sum_bfloat),
                           [CO_FLOAT32] = ENTRY(sum_f32), [CO_FLOAT64] = ENTRY(sum_f64) },
        [COI_FOLD_MAX] = { [CO_FLOAT16] = ENTRY(max_half), [CO_BFLOAT16] = ENTRY(max_bfloat),
                           [CO_FLOAT32] = ENTRY(max_f32), [CO_FLOAT64] = ENTRY(max_f64) },
    },
};

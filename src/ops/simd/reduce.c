/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folding elements into wide accumulators (loops.h). A run of floats is added up in 32 lanes over blocks of 4096, and
 * the blocks in double, so the error of a sum hardly grows with its length. All of it depends on lengths alone.
 */
#include "ops/simd/loops.h"
#include "ops/simd/half.h"

#include <math.h>

#define LANES     32
#define BLOCK     4096
#define ROW_BLOCK 128 /* rows that columns of floats are added over before they go into double */
#define WIDTH     COI_FOLD_WIDTH

/* Lanes l and l + width become one, until one is left. */
#define JOIN_LANES(lane, width, combine)                                                           \
    for (int w_ = (width) / 2; w_ > 0; w_ /= 2)                                                    \
        for (int l_ = 0; l_ < w_; ++l_)                                                            \
    lane[l_] = combine(lane[l_], lane[l_ + w_])

#define SUM(a, b) ((a) + (b))
/* NaN wins. */
#define MAX_FLOAT(a, b)   ((b) > (a) || (b) != (b) ? (b) : (a))
#define MAX_INTEGER(a, b) ((b) > (a) ? (b) : (a))

/* What n elements combine to, at most BLOCK of them. */
#define RUN(name, type, first, combine)                                                            \
    static type name##_run(const type *restrict x, int64_t n)                                      \
    {                                                                                              \
        type    lane[LANES], rest = first;                                                         \
        int64_t i = 0;                                                                             \
                                                                                                   \
        if (n >= LANES) {                                                                          \
            for (int l = 0; l < LANES; ++l)                                                        \
                lane[l] = x[l];                                                                    \
            for (i = LANES; i + LANES <= n; i += LANES)                                            \
                for (int l = 0; l < LANES; ++l)                                                    \
                    lane[l] = combine(lane[l], x[i + l]);                                          \
            JOIN_LANES(lane, LANES, combine);                                                      \
            rest = lane[0];                                                                        \
        }                                                                                          \
        for (; i < n; ++i)                                                                         \
            rest = combine(rest, x[i]);                                                            \
        return rest;                                                                               \
    }

/* Rows and columns of a type that is combined in itself and kept in a member of coi_wide. */
#define FOLD(name, type, member, wide, first, combine)                                             \
    RUN(name, type, first, combine)                                                                \
    static void name##_rows(coi_wide *acc, const void *data, int64_t num_rows, int64_t stride,     \
                            int64_t n)                                                             \
    {                                                                                              \
        for (int64_t r = 0; r < num_rows; ++r) {                                                   \
            const type *x = (const type *)data + r * stride;                                       \
                                                                                                   \
            for (int64_t i = 0; i < n; i += BLOCK) {                                               \
                wide part = (wide)name##_run(x + i, n - i < BLOCK ? n - i : BLOCK);                \
                                                                                                   \
                acc[r].member = combine(acc[r].member, part);                                      \
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
            for (int64_t j = 0; j < n; ++j)                                                        \
                part[j] = first;                                                                   \
            for (int64_t i = r; i < end; ++i) {                                                    \
                const type *restrict x = (const type *)data + i * stride;                          \
                                                                                                   \
                for (int64_t j = 0; j < n; ++j)                                                    \
                    part[j] = combine(part[j], x[j]);                                              \
            }                                                                                      \
            for (int64_t j = 0; j < n; ++j)                                                        \
                acc[j].member = combine(acc[j].member, (wide)part[j]);                             \
        }                                                                                          \
    }

FOLD(sum_f32, float, f, double, 0, SUM)
FOLD(sum_f64, double, f, double, 0, SUM)
FOLD(max_f32, float, f, double, -INFINITY, MAX_FLOAT)
FOLD(max_f64, double, f, double, -INFINITY, MAX_FLOAT)

typedef void (*rows_fn)(coi_wide *acc, const void *x, int64_t num_rows, int64_t stride, int64_t n);

static COI_NOINLINE void
rows_in_float(rows_fn fold, widen_fn widen, coi_wide *acc, const uint16_t *x, int64_t num_rows,
              int64_t stride, int64_t n)
{
    float wide[BLOCK];

    for (int64_t r = 0; r < num_rows; ++r)
        for (int64_t i = 0; i < n; i += BLOCK) {
            int64_t m = n - i < BLOCK ? n - i : BLOCK;

            widen(wide, x + r * stride + i, m);
            fold(acc + r, wide, 1, m, m);
        }
}

/* n is at most WIDTH. */
static COI_NOINLINE void
columns_in_float(rows_fn fold, widen_fn widen, coi_wide *acc, const uint16_t *x, int64_t num_rows,
                 int64_t stride, int64_t n)
{
    float wide[16 * WIDTH];

    for (int64_t r = 0; r < num_rows; r += 16) {
        int64_t m = num_rows - r < 16 ? num_rows - r : 16;

        for (int64_t i = 0; i < m; ++i)
            widen(wide + i * n, x + (r + i) * stride, n);
        fold(acc, wide, m, n, n);
    }
}

#define HALF_FOLD(name, kind)                                                                      \
    static void name##_##kind##_rows(coi_wide *acc, const void *x, int64_t num_rows,               \
                                     int64_t stride, int64_t n)                                    \
    {                                                                                              \
        rows_in_float(name##_f32_rows, widen_##kind, acc, x, num_rows, stride, n);                 \
    }                                                                                              \
    static void name##_##kind##_columns(coi_wide *acc, const void *x, int64_t num_rows,            \
                                        int64_t stride, int64_t n)                                 \
    {                                                                                              \
        columns_in_float(name##_f32_columns, widen_##kind, acc, x, num_rows, stride, n);           \
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of ops/kernels/conv2d_pooled_grad.h for one instruction set; the baseline has none. */
#include "ops/kernels/conv2d_pooled_grad.h"
#include "ops/kernels/simd/vector.h"

#ifndef COI_ISA_base

/* What flows into a window and into each of its four pixels, for a vector of channels: all of it to
 * the first pixel that is the maximum, or NaN, as in ops/kernels/simd/simd_pool2d.c. `row` is the
 * distance of the rows of y. */
COI_INLINE void
find_places(const coi_pooled *p, const float *y, int64_t row, const float *pooled, const float *g,
            float flows[LANES_f32], float places[4][LANES_f32])
{
    for (int c = 0; c < LANES_f32; ++c) {
        float all = g[c] * (p->is_relu && !(pooled[c] > 0) ? 0.0f : 1.0f), left = all;

        COI_UNROLL
        for (int i = 0; i < 4; ++i) {
            float it = y[c + i / 2 * row + i % 2 * p->channels];
            int   here = (it == pooled[c]) | (it != it); /* where one is NaN, so is the maximum */

            places[i][c] = here ? left : 0;
            left = here ? 0 : left;
        }
        flows[c] = all - left;
    }
}

/* Rows [first, last) of windows, a vector of channels from c on, one group of taps. */
COI_INLINE void
add_rows_to(const coi_pooled *p, int64_t first, int64_t last, int64_t group, int64_t c, float *flow)
{
    const int64_t *runs = p->runs + group * COI_POOLED_RUNS, r[] = { runs[0], runs[1], runs[2] };
    const int64_t  row = 2 * p->columns * p->channels; /* of y */
    float         *sums = p->sums + group * COI_POOLED_TAPS * p->channels + c;
    float         *sums_bias = p->sums_bias + c;
    vec_f32        sum[COI_POOLED_TAPS], bias = zero_f32();

    COI_UNROLL
    for (int k = 0; k < COI_POOLED_TAPS; ++k)
        sum[k] = zero_f32();
    for (int64_t i = first; i < last; ++i) {
        const float *x = p->x + 2 * i * p->down, *next = x + p->across;
        const float *below = x + p->down, *diagonal = below + p->across;
        const float *y = p->y + 2 * i * row + c;
        const float *pooled = p->pooled + i * row / 2 + c, *g = p->g + i * row / 2 + c;

        for (int64_t j = 0, at = 0; j < p->columns; ++j, at += 2 * p->across) {
            float   flows[LANES_f32], places[4][LANES_f32];
            vec_f32 into[4];

            find_places(p, y, row, pooled, g, flows, places);
            bias = add_f32(bias, load_f32(flows));
            COI_UNROLL
            for (int k = 0; k < 4; ++k) {
                into[k] = load_f32(places[k]);
                if (flow != NULL)
                    store_f32(flow + (y - p->y) + k / 2 * row + k % 2 * p->channels, into[k]);
            }
            COI_UNROLL
            for (int k = 0; k < COI_POOLED_TAPS; ++k) {
                int64_t tap = at + r[k / COI_POOLED_RUN] + k % COI_POOLED_RUN;

                sum[k] = fma_f32(splat_f32(x[tap]), into[0], sum[k]);
                sum[k] = fma_f32(splat_f32(next[tap]), into[1], sum[k]);
                sum[k] = fma_f32(splat_f32(below[tap]), into[2], sum[k]);
                sum[k] = fma_f32(splat_f32(diagonal[tap]), into[3], sum[k]);
            }
            y += 2 * p->channels;
            pooled += p->channels;
            g += p->channels;
        }
    }
    COI_UNROLL
    for (int k = 0; k < COI_POOLED_TAPS; ++k)
        store_f32(sums + k * p->channels, add_f32(load_f32(sums + k * p->channels), sum[k]));
    if (group == 0)
        store_f32(sums_bias, add_f32(load_f32(sums_bias), bias));
}

static void
add_rows(const coi_pooled *p, int64_t first, int64_t last, int64_t group, int64_t c)
{
    add_rows_to(p, first, last, group, c, NULL);
}

static void
add_and_store_rows(const coi_pooled *p, int64_t first, int64_t last, int64_t group, int64_t c)
{
    add_rows_to(p, first, last, group, c, p->flow);
}

/* Rows at a time: they stay in the L1 cache for the next vector of channels. */
enum { ROWS = 2 };

void
COI_PER_ISA(coi_pooled_image)(const coi_pooled *p)
{
    for (int64_t row = 0; row < p->rows; row += ROWS)
        for (int64_t group = 0; group < p->num_groups; ++group)
            for (int64_t c = 0; c < p->channels; c += LANES_f32)
                (group == 0 && p->flow != NULL
                     ? add_and_store_rows
                     : add_rows)(p, row, row + ROWS < p->rows ? row + ROWS : p->rows, group, c);
}

#endif

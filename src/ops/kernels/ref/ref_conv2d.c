/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution and its two transposes as seven loops. `visit` iterates over all pairs of an input
 * element and a filter element that meet in an output element; the three operators differ in which
 * of the three is the sum.
 */
#include "ops/kernels/conv2d.h"

#include <string.h>

typedef void (*meet_fn)(const void *a, const void *b, void *out, int64_t x, int64_t w, int64_t y);

/* Sums are taken in the element type, in the order of this iteration. */
#define MEET(NAME, TYPE, SUM, A, B)                                                                \
    static void NAME(const void *a, const void *b, void *out, int64_t x, int64_t w, int64_t y)     \
    {                                                                                              \
        (void)x, (void)w, (void)y;                                                                 \
        ((TYPE *)out)[SUM] += ((const TYPE *)a)[A] * ((const TYPE *)b)[B];                         \
    }
MEET(forward_float32, float, y, x, w)
MEET(forward_float64, double, y, x, w)
MEET(input_float32, float, x, w, y)
MEET(input_float64, double, x, w, y)
MEET(filter_float32, float, w, x, y)
MEET(filter_float64, double, w, x, y)

static const meet_fn meets[3][2] = {
    [COI_CONV2D] = { forward_float32, forward_float64 },
    [COI_CONV2D_INPUT] = { input_float32, input_float64 },
    [COI_CONV2D_FILTER] = { filter_float32, filter_float64 },
};

/* Everything that meets in one output pixel. */
static void
visit_pixel(const coi_conv2d *g, int64_t n, int64_t oy, int64_t ox, meet_fn meet, const void *a,
            const void *b, void *out)
{
    int64_t y = ((n * g->oh + oy) * g->ow + ox) * g->oc;
    int64_t per_group = g->oc / coi_conv2d_groups(g);

    for (int64_t ky = 0; ky < g->kh; ++ky)
        for (int64_t kx = 0; kx < g->kw; ++kx) {
            int64_t iy = oy * g->sh - g->top + ky * g->dh, ix = ox * g->sw - g->left + kx * g->dw;
            int64_t x = ((n * g->h + iy) * g->w + ix) * g->c;
            int64_t w = (ky * g->kw + kx) * g->ic * g->oc;

            if (iy < 0 || iy >= g->h || ix < 0 || ix >= g->w)
                continue;
            for (int64_t i = 0; i < g->ic; ++i)
                for (int64_t o = 0; o < g->oc; ++o)
                    meet(a, b, out, x + o / per_group * g->ic + i, w + i * g->oc + o, y + o);
        }
}

void
coi_ref_conv2d(coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g, const void *a,
               const void *b, void *out)
{
    const int64_t counts[3] = { g->n * g->oh * g->ow * g->oc, g->n * g->h * g->w * g->c,
                                g->kh * g->kw * g->ic * g->oc };
    meet_fn       meet = meets[kind][dtype == CO_FLOAT64];

    memset(out, 0, (size_t)counts[kind] * coi_dtypes[dtype].size);
    for (int64_t n = 0; n < g->n; ++n)
        for (int64_t oy = 0; oy < g->oh; ++oy)
            for (int64_t ox = 0; ox < g->ow; ++ox)
                visit_pixel(g, n, oy, ox, meet, a, b, out);
}

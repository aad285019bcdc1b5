/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling, one element after the other. Means are as they are written down. Of max pooling `find`
 * gives the position of a window's maximum, from which forward takes x. `place` gives the first
 * position of a window where x is y, or -1: there the gradient adds g, and its gradient takes u.
 */
#include "ops/kernels/pool2d.h"
#include "ops/kernels/ref/ref.h"

#include <string.h>

#define PLAIN(REAL, NAME)                                                                          \
    static int64_t NAME##_find(const coi_pool *p, const REAL *x, int64_t n, int64_t oy,            \
                               int64_t ox, int64_t c)                                              \
    {                                                                                              \
        coi_pool_window at = coi_pool_window_at(p, oy, ox);                                        \
        int64_t         best = -1;                                                                 \
                                                                                                   \
        for (int64_t iy = at.y0; iy < at.y1; ++iy)                                                 \
            for (int64_t ix = at.x0; ix < at.x1; ++ix) {                                           \
                int64_t i = ((n * p->h + iy) * p->w + ix) * p->c + c;                              \
                                                                                                   \
                if (best < 0 || x[i] > x[best] || (x[i] != x[i] && x[best] == x[best]))            \
                    best = i;                                                                      \
            }                                                                                      \
        return best;                                                                               \
    }                                                                                              \
    static int64_t NAME##_place(const coi_pool *p, const REAL *x, REAL y, int64_t n, int64_t oy,   \
                                int64_t ox, int64_t c)                                             \
    {                                                                                              \
        coi_pool_window at = coi_pool_window_at(p, oy, ox);                                        \
                                                                                                   \
        for (int64_t iy = at.y0; iy < at.y1; ++iy)                                                 \
            for (int64_t ix = at.x0; ix < at.x1; ++ix) {                                           \
                int64_t i = ((n * p->h + iy) * p->w + ix) * p->c + c;                              \
                                                                                                   \
                if (x[i] == y || (x[i] != x[i] && y != y))                                         \
                    return i;                                                                      \
            }                                                                                      \
        return -1;                                                                                 \
    }                                                                                              \
    static void NAME##_forward(const coi_pool *p, const void *x, void *y, int64_t first,           \
                               int64_t last)                                                       \
    {                                                                                              \
        for (int64_t i = first * p->ow * p->c; i < last * p->ow * p->c; ++i) {                     \
            int64_t c = i % p->c, ox = i / p->c % p->ow, row = i / p->c / p->ow;                   \
                                                                                                   \
            ((REAL *)y)[i] = ((                                                                    \
                const REAL *)x)[NAME##_find(p, x, row / p->oh, row % p->oh, ox, c)];               \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_grad(const coi_pool *p, const void *x, const void *y, const void *g,        \
                            void *dx, int64_t first, int64_t last)                                 \
    {                                                                                              \
        int64_t image = p->h * p->w * p->c, out = p->oh * p->ow * p->c;                            \
                                                                                                   \
        memset((REAL *)dx + first * image, 0, (size_t)((last - first) * image) * sizeof(REAL));    \
        for (int64_t i = first * out; i < last * out; ++i) {                                       \
            int64_t c = i % p->c, ox = i / p->c % p->ow, row = i / p->c / p->ow;                   \
                                                                                                   \
            int64_t at = NAME##_place(p, x, ((const REAL *)y)[i], row / p->oh, row % p->oh, ox,    \
                                      c);                                                          \
                                                                                                   \
            if (at >= 0)                                                                           \
                ((REAL *)dx)[at] += ((const REAL *)g)[i];                                          \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_grad_grad(const coi_pool *p, const void *x, const void *y, const void *u,   \
                                 void *out, int64_t first, int64_t last)                           \
    {                                                                                              \
        for (int64_t i = first * p->ow * p->c; i < last * p->ow * p->c; ++i) {                     \
            int64_t c = i % p->c, ox = i / p->c % p->ow, row = i / p->c / p->ow;                   \
                                                                                                   \
            int64_t at = NAME##_place(p, x, ((const REAL *)y)[i], row / p->oh, row % p->oh, ox,    \
                                      c);                                                          \
                                                                                                   \
            ((REAL *)out)[i] = at >= 0 ? ((const REAL *)u)[at] : 0;                                \
        }                                                                                          \
    }                                                                                              \
    static const coi_pool_kernels NAME##_kernels = { NAME##_forward, NAME##_grad,                  \
                                                     NAME##_grad_grad };

PLAIN(float, float32)
PLAIN(double, float64)

const coi_pool_kernels *
coi_ref_pool_kernels(co_dtype dtype)
{
    return dtype == CO_FLOAT64 ? &float64_kernels : &float32_kernels;
}

void
coi_ref_max_pool_whole(const coi_pool *p, co_dtype dtype, const void *x, void *y, int64_t first,
                       int64_t last)
{
    for (int64_t i = first * p->ow * p->c; i < last * p->ow * p->c; ++i) {
        int64_t         row = i / p->c / p->ow;
        coi_pool_window w = coi_pool_window_at(p, row % p->oh, i / p->c % p->ow);
        int64_t         at = (row / p->oh * p->h + w.y0) * p->w + w.x0;
        coi_number      most = coi_number_load(dtype, x, at * p->c + i % p->c);

        for (int64_t iy = w.y0; iy < w.y1; ++iy)
            for (int64_t ix = w.x0; ix < w.x1; ++ix) {
                at = (row / p->oh * p->h + iy) * p->w + ix;
                coi_number next = coi_number_load(dtype, x, at * p->c + i % p->c);

                most = coi_number_less(most, next) ? next : most;
            }
        coi_number_store(dtype, y, i, most);
    }
}

/* Every pair of an output element and an element of its window: the output gets the input's part,
 * or the input its. */
static void
visit_window(const coi_pool *p, co_dtype dtype, const void *from, void *to, int64_t at,
             bool is_grad)
{
    int64_t         c = at % p->c, ox = at / p->c % p->ow, oy = at / p->c / p->ow % p->oh;
    int64_t         n = at / p->c / p->ow / p->oh;
    coi_pool_window w = coi_pool_window_at(p, oy, ox);
    double          count = (double)((w.y1 - w.y0) * (w.x1 - w.x0)), sum = 0;
    coi_number      number = coi_number_load(dtype, from, is_grad ? at : 0);

    for (int64_t iy = w.y0; iy < w.y1; ++iy)
        for (int64_t ix = w.x0; ix < w.x1; ++ix) {
            int64_t    x = ((n * p->h + iy) * p->w + ix) * p->c + c;
            coi_number there = coi_number_load(dtype, is_grad ? to : from, x);

            sum += there.f;
            there.f += number.f / count;
            if (is_grad)
                coi_number_store(dtype, to, x, there);
        }
    number.f = sum / count;
    if (!is_grad)
        coi_number_store(dtype, to, at, number);
}

void
coi_ref_avg_pool(const coi_pool *p, co_dtype dtype, const void *from, void *to, bool is_grad)
{
    if (is_grad)
        memset(to, 0, (size_t)(p->n * p->h * p->w * p->c) * coi_dtypes[dtype].size);
    for (int64_t at = 0; at < p->n * p->oh * p->ow * p->c; ++at)
        visit_window(p, dtype, from, to, at, is_grad);
}

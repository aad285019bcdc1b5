/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions in groups, of which depthwise ones have as many as channels: plain sums over the
 * places of the filter, with the channels of a pixel in the inner loop. im2col and GEMM would
 * be matrices of a column or two here.
 *
 * Work is cut into rows of the result, images for the gradient of the input, and places of the
 * filter for its gradient: each is written by one unit alone, in the order of the reference kernel.
 */
#include "ops/kernels/conv2d.h"

#include "ops/kernels/strided_iterator.h"

#include <string.h>

typedef struct job {
    const coi_conv2d *g;
    const void       *x, *w, *y;
    void (*pixel)(const coi_conv2d *g, void *x, void *w, void *y);
    coi_conv2d_kind kind;
    size_t          size;
    int64_t         num_units, per_chunk;
} job;

/* What one pixel of x, one place of w and one pixel of y have to do with each other, for all
 * channels. */
#define PIXEL(name, type, STEP)                                                                    \
    static void name(const coi_conv2d *g, void *x_data, void *w_data, void *y_data)                \
    {                                                                                              \
        type *restrict x = x_data, *restrict w = w_data, *restrict y = y_data;                     \
        int64_t ic = g->ic, groups = coi_conv2d_groups(g), per_group = g->oc / groups;             \
                                                                                                   \
        if (ic == 1 && per_group == 1) {                                                           \
            for (int64_t o = 0; o < groups; ++o)                                                   \
                STEP(x[o], w[o], y[o]);                                                            \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < ic; ++i)                                                           \
            for (int64_t k = 0; k < groups; ++k)                                                   \
                for (int64_t o = k * per_group; o < (k + 1) * per_group; ++o)                      \
                    STEP(x[k * ic + i], w[i * g->oc + o], y[o]);                                   \
    }
#define FORWARD(x, w, y) ((y) += (x) * (w))
#define INPUT(x, w, y)   ((x) += (w) * (y))
#define FILTER(x, w, y)  ((w) += (x) * (y))
PIXEL(forward_f32, float, FORWARD)
PIXEL(forward_f64, double, FORWARD)
PIXEL(input_f32, float, INPUT)
PIXEL(input_f64, double, INPUT)
PIXEL(filter_f32, float, FILTER)
PIXEL(filter_f64, double, FILTER)

static void (*const pixels[3][2])(const coi_conv2d *g, void *x, void *w, void *y) = {
    [COI_CONV2D] = { forward_f32, forward_f64 },
    [COI_CONV2D_INPUT] = { input_f32, input_f64 },
    [COI_CONV2D_FILTER] = { filter_f32, filter_f64 },
};

static char *
at(const job *j, const void *data, int64_t element)
{
    return (char *)(uintptr_t)data + (size_t)element * j->size;
}

/* Place k of the filter over pixel (oy, ox) of the result, unless it lies outside. */
static void
visit(const job *j, int64_t n, int64_t oy, int64_t ox, int64_t k)
{
    const coi_conv2d *g = j->g;
    int64_t           iy = oy * g->sh - g->top + k / g->kw * g->dh;
    int64_t           ix = ox * g->sw - g->left + k % g->kw * g->dw;

    if (iy < 0 || iy >= g->h || ix < 0 || ix >= g->w)
        return;
    j->pixel(g, at(j, j->x, ((n * g->h + iy) * g->w + ix) * g->c), at(j, j->w, k * g->ic * g->oc),
             at(j, j->y, ((n * g->oh + oy) * g->ow + ox) * g->oc));
}

static void
run_unit(const job *j, int64_t unit)
{
    const coi_conv2d *g = j->g;
    bool              is_row = j->kind == COI_CONV2D, is_place = j->kind == COI_CONV2D_FILTER;
    int64_t           first_row = is_row ? unit : is_place ? 0 : unit * g->oh;
    int64_t           rows = is_row ? 1 : is_place ? g->n * g->oh : g->oh;
    int64_t           places = g->kh * g->kw;

    for (int64_t row = first_row; row < first_row + rows; ++row)
        for (int64_t ox = 0; ox < g->ow; ++ox)
            for (int64_t k = is_place ? unit : 0; k < (is_place ? unit + 1 : places); ++k)
                visit(j, row / g->oh, row % g->oh, ox, k);
}

static void
run_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    u = chunk * j->per_chunk, end = u + j->per_chunk;

    for (end = end < j->num_units ? end : j->num_units; u < end; ++u)
        run_unit(j, u);
}

void
coi_conv2d_groups_run(coi_call *call, coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g,
                      const void *a, const void *b, void *out)
{
    job j = { .g = g, .kind = kind, .size = coi_dtypes[dtype].size };

    j.x = kind == COI_CONV2D_INPUT ? out : a;
    j.w = kind == COI_CONV2D_INPUT ? a : kind == COI_CONV2D ? b : out;
    j.y = kind == COI_CONV2D ? out : b;
    j.pixel = pixels[kind][dtype == CO_FLOAT64];
    j.num_units = kind == COI_CONV2D         ? g->n * g->oh
                  : kind == COI_CONV2D_INPUT ? g->n
                                             : g->kh * g->kw;
    memset(out, 0, coi_tensor_nbytes(call->out[0]));
    coi_parallel(call, coi_num_chunks(j.num_units, coi_conv2d_work(g) / j.num_units, &j.per_chunk),
                 run_chunk, &j);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Average pooling. A window counts the elements that lie in the image, not the padding. The plain
 * kernel is in ops/kernels/ref/ref_pool2d.c.
 */
#include "ops/kernels/pool2d.h"

#include "ops/engine/op.h"
#include "ops/kernels/strided_iterator.h"
#include "ops/kernels/window2d.h"

#include <string.h>

co_code
coi_avg_grad_read(coi_call *call, coi_pool *p)
{
    const coi_avg_grad_attrs *attrs = call->attrs;
    coi_pool_attrs            pool = { attrs->ksize, attrs->strides, attrs->padding };
    char                      text[COI_SHAPE_TEXT];

    if (attrs->shape.n < 0)
        return coi_invalid(call, "shape is none; give the dimensions of x");
    for (int d = 0; d < attrs->shape.n; ++d)
        if (attrs->shape.at[d] < 0)
            return coi_invalid(call, "shape %s: dimensions must be at least 0",
                               coi_ints_text(&attrs->shape, text));
    return coi_pool_geometry(call, &pool, attrs->shape.at, attrs->shape.n, p);
}

/* Output rows [first, last), counted over all images; of the gradient, images. */
#define AVERAGE(type)                                                                              \
    static void average_##type(const coi_pool *p, const void *from, void *to, int64_t row)         \
    {                                                                                              \
        const type *x = from;                                                                      \
        type       *y = (type *)to + row * p->ow * p->c;                                           \
        int64_t     image = row / p->oh * p->h;                                                    \
                                                                                                   \
        for (int64_t ox = 0; ox < p->ow; ++ox, y += p->c) {                                        \
            coi_pool_window w = coi_pool_window_at(p, row % p->oh, ox);                            \
            type            count = (type)((w.y1 - w.y0) * (w.x1 - w.x0));                         \
                                                                                                   \
            memset(y, 0, (size_t)p->c * sizeof(type));                                             \
            for (int64_t iy = w.y0; iy < w.y1; ++iy)                                               \
                for (int64_t ix = w.x0; ix < w.x1; ++ix) {                                         \
                    const type *in = x + ((image + iy) * p->w + ix) * p->c;                        \
                                                                                                   \
                    for (int64_t c = 0; c < p->c; ++c)                                             \
                        y[c] += in[c];                                                             \
                }                                                                                  \
            for (int64_t c = 0; c < p->c; ++c)                                                     \
                y[c] /= count;                                                                     \
        }                                                                                          \
    }                                                                                              \
    static void spread_##type(const coi_pool *p, const void *from, void *to, int64_t image)        \
    {                                                                                              \
        const type *g = (const type *)from + image * p->oh * p->ow * p->c;                         \
        type       *dx = (type *)to + image * p->h * p->w * p->c;                                  \
                                                                                                   \
        memset(dx, 0, (size_t)(p->h * p->w * p->c) * sizeof(type));                                \
        for (int64_t at = 0; at < p->oh * p->ow; ++at, g += p->c) {                                \
            coi_pool_window w = coi_pool_window_at(p, at / p->ow, at % p->ow);                     \
            type            share = 1 / (type)((w.y1 - w.y0) * (w.x1 - w.x0));                     \
                                                                                                   \
            for (int64_t iy = w.y0; iy < w.y1; ++iy)                                               \
                for (int64_t ix = w.x0; ix < w.x1; ++ix) {                                         \
                    type *out = dx + (iy * p->w + ix) * p->c;                                      \
                                                                                                   \
                    for (int64_t c = 0; c < p->c; ++c)                                             \
                        out[c] += g[c] * share;                                                    \
                }                                                                                  \
        }                                                                                          \
    }
AVERAGE(float)
AVERAGE(double)

typedef struct job {
    coi_pool    p;
    const void *from;
    void       *to;
    void (*unit)(const coi_pool *p, const void *from, void *to, int64_t unit);
    int64_t num_units, per_chunk;
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    u = chunk * j->per_chunk, end = u + j->per_chunk;

    for (end = end < j->num_units ? end : j->num_units; u < end; ++u)
        j->unit(&j->p, j->from, j->to, u);
}

co_code
coi_avg_pool_run(coi_call *call)
{
    bool    is_grad = call->op->kind == COI_POOL_GRAD;
    bool    is_double = call->out[0]->dtype == CO_FLOAT64;
    job     j = { .from = call->in[0]->u.tensor.data, .to = call->out[0]->u.tensor.data };
    int64_t work;
    co_code code = is_grad ? coi_avg_grad_read(call, &j.p) : coi_pool_read(call, &j.p);

    if (code == CO_OK && (j.p.oh == 0 || j.p.ow == 0) && !is_grad)
        coi_warn_no_window(call, j.p.kh, j.p.kw, j.p.h, j.p.w);
    if (code != CO_OK || call->out[0]->u.tensor.num_elements == 0)
        return code;
    j.unit = is_grad ? (is_double ? spread_double : spread_float)
                     : (is_double ? average_double : average_float);
    j.num_units = is_grad ? j.p.n : j.p.n * j.p.oh;
    work = j.p.ow * j.p.c * j.p.kh * j.p.kw * (is_grad ? j.p.oh : 1);
    coi_parallel(call, coi_num_chunks(j.num_units, work, &j.per_chunk), run_chunk, &j);
    return CO_OK;
}

co_code
coi_avg_pool_ref(coi_call *call)
{
    bool     is_grad = call->op->kind == COI_POOL_GRAD;
    coi_pool p;
    co_code  code = is_grad ? coi_avg_grad_read(call, &p) : coi_pool_read(call, &p);

    if (code == CO_OK)
        coi_ref_avg_pool(&p, (co_dtype)call->out[0]->dtype, call->in[0]->u.tensor.data,
                         call->out[0]->u.tensor.data, is_grad);
    return code;
}

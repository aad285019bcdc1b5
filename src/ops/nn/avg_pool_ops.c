/* SPDX-License-Identifier: Apache-2.0 */
/*
 * avg_pool2d and its gradient. Both are linear, so each is the gradient of the other. A window
 * counts the elements that lie in the image, not the padding. The plain kernel is in
 * ops/kernels/ref/ref_pool2d.c.
 */
#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/pool2d.h"
#include "ops/kernels/strided_iterator.h"
#include "ops/kernels/window2d.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(avg_pool2d)
COI_USES_OP(avg_pool2d_grad)

static const char *const paddings[] = { "VALID", "SAME", NULL };

#define POOL_ATTRS(X)                                                                              \
    X(coi_pool_attrs, ksize, INTS, "", NULL)                                                       \
    X(coi_pool_attrs, strides, INTS, "", NULL)                                                     \
    X(coi_pool_attrs, padding, CHOICE, "=VALID", paddings)
COI_ATTR_TABLE(coi_pool_attrs, POOL_ATTRS)

typedef struct avg_grad_attrs {
    coi_ints ksize, strides;
    int32_t  padding;
    coi_ints shape; /* of x */
} avg_grad_attrs;
#define GRAD_ATTRS(X)                                                                              \
    X(avg_grad_attrs, ksize, INTS, "", NULL)                                                       \
    X(avg_grad_attrs, strides, INTS, "", NULL)                                                     \
    X(avg_grad_attrs, padding, CHOICE, "=VALID", paddings)                                         \
    X(avg_grad_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(avg_grad_attrs, GRAD_ATTRS)

static co_code
forward_geometry(coi_call *call, coi_pool *p)
{
    const co_value *x = call->in[0];

    return coi_pool_geometry(call, call->attrs, x->u.tensor.dims, x->ndim, p);
}

static co_code
grad_geometry(coi_call *call, coi_pool *p)
{
    const avg_grad_attrs *attrs = call->attrs;
    coi_pool_attrs        pool = { attrs->ksize, attrs->strides, attrs->padding };
    char                  text[COI_SHAPE_TEXT];

    if (attrs->shape.n < 0)
        return coi_invalid(call, "shape is none; give the dimensions of x");
    for (int d = 0; d < attrs->shape.n; ++d)
        if (attrs->shape.at[d] < 0)
            return coi_invalid(call, "shape %s: dimensions must be at least 0",
                               coi_ints_text(&attrs->shape, text));
    return coi_pool_geometry(call, &pool, attrs->shape.at, attrs->shape.n, p);
}

static void
fill_out(const coi_call *call, coi_out *out, const int64_t *dims)
{
    out->dtype = (co_dtype)call->in[0]->dtype;
    out->ndim = 4;
    memcpy(out->dims, dims, 4 * sizeof(int64_t));
}

static co_code
avg_infer(coi_call *call, coi_out *outs)
{
    coi_pool p;
    co_code  code = forward_geometry(call, &p);

    if (code == CO_OK)
        fill_out(call, outs, (int64_t[]){ p.n, p.oh, p.ow, p.c });
    return code;
}

static co_code
grad_infer(coi_call *call, coi_out *outs)
{
    coi_pool p;
    co_code  code = grad_geometry(call, &p);

    if (code != CO_OK)
        return code;
    fill_out(call, outs, (int64_t[]){ p.n, p.oh, p.ow, p.c });
    code = coi_pool_check_shape(call, 0, outs->dims);
    if (code != CO_OK)
        return code;
    fill_out(call, outs, ((const avg_grad_attrs *)call->attrs)->shape.at);
    return CO_OK;
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

static co_code
avg_run(coi_call *call)
{
    bool    is_grad = call->op == &coi_op_avg_pool2d_grad;
    bool    is_double = call->out[0]->dtype == CO_FLOAT64;
    job     j = { .from = call->in[0]->u.tensor.data, .to = call->out[0]->u.tensor.data };
    int64_t work;
    co_code code = is_grad ? grad_geometry(call, &j.p) : forward_geometry(call, &j.p);

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

static co_code
avg_ref(coi_call *call)
{
    bool     is_grad = call->op == &coi_op_avg_pool2d_grad;
    coi_pool p;
    co_code  code = is_grad ? grad_geometry(call, &p) : forward_geometry(call, &p);

    if (code == CO_OK)
        coi_ref_avg_pool(&p, (co_dtype)call->out[0]->dtype, call->in[0]->u.tensor.data,
                         call->out[0]->u.tensor.data, is_grad);
    return code;
}

static co_code
avg_gradient(coi_grad *g)
{
    const coi_pool_attrs *attrs = g->attrs;
    avg_grad_attrs        back = { attrs->ksize, attrs->strides, attrs->padding, { .n = 4 } };
    coi_sized_op spread = { &coi_op_avg_pool2d_grad, &back, offsetof(avg_grad_attrs, shape), 0 };

    g->grads[0] = coi_apply_like(g->ctx, &spread, g->upstream, 1, g->in[0]);
    return g->ctx->error.code;
}

static co_code
grad_gradient(coi_grad *g)
{
    const avg_grad_attrs *attrs = g->attrs;
    coi_pool_attrs        pool = { attrs->ksize, attrs->strides, attrs->padding };

    g->grads[0] = coi_apply1(g->ctx, &coi_op_avg_pool2d, g->upstream[0], &pool);
    return g->ctx->error.code;
}

const coi_op coi_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "The mean of each window of x [n,h,w,c]; padding does not count.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    COI_ATTRS(coi_pool_attrs),
    .infer = avg_infer,
    .upcasts = true,
    .ref = avg_ref,
    .run = avg_run,
    .grad = avg_gradient,
};

const coi_op coi_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .doc = "The gradient of avg_pool2d for x of shape `shape`, from the gradient g of its result.",
    .inputs = { "g" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .internal = true,
    COI_ATTRS(avg_grad_attrs),
    .infer = grad_infer,
    .upcasts = true,
    .ref = avg_ref,
    .run = avg_run,
    .grad = grad_gradient,
};

co_value *
co_avg_pool2d(co_context *ctx, co_value *x, const co_pool2d_options *options)
{
    coi_pool_attrs attrs;

    COI_ENTER(ctx, "avg_pool2d", NULL);
    if (!coi_pool_options(ctx, options, &attrs))
        return NULL;
    return coi_apply1(ctx, &coi_op_avg_pool2d, x, &attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d_pooled_grad: the cut over images. The kernel is in
 * ops/kernels/simd/simd_conv2d_pooled_grad.c.
 */
#include "ops/kernels/conv2d_pooled_grad.h"

#include "config.h"
#include "ops/engine/op.h"
#include "ops/kernels/kernel_selection.h"
#include "ops/kernels/pool2d.h"
#include "ops/kernels/ref/ref.h"

#include <stdatomic.h>
#include <string.h>

void coi_pooled_image_v3(const coi_pooled *p);
void coi_pooled_image_v4(const coi_pooled *p);

static const coi_pooled_fn kernels[COI_NUM_ISAS] = {
    [COI_ISA_BASE] = NULL, /* never chosen */
#if COI_HAVE_ISA_V3
    [COI_ISA_V3] = coi_pooled_image_v3,
#endif
#if COI_HAVE_ISA_V4
    [COI_ISA_V4] = coi_pooled_image_v4,
#endif
};

enum { X, Y, POOLED, G };       /* inputs */
enum { FILTER, OF_BIAS, FLOW }; /* outputs */

const coi_pool_attrs coi_pooled_halves = { { 2, { 2, 2 } }, { 2, { 2, 2 } }, CO_PADDING_VALID };

co_code
coi_pooled_read(coi_call *call, coi_conv2d *conv, coi_pool *pool)
{
    const coi_conv2d_attrs *attrs = call->attrs;
    co_code                 rc = coi_conv2d_read(call, COI_CONV2D_FILTER, conv);

    if (rc == CO_OK)
        rc = coi_pool_geometry(call, &coi_pooled_halves, call->in[Y]->u.tensor.dims,
                               call->in[Y]->ndim, pool);
    if (rc == CO_OK && conv->c >= 0 && coi_conv2d_groups(conv) > 1)
        return coi_invalid(call, "the convolution has %lld groups; it must have one",
                           (long long)coi_conv2d_groups(conv));
    if (rc == CO_OK && attrs->activation != CO_ACTIVATION_NONE &&
        attrs->activation != CO_ACTIVATION_RELU)
        return coi_invalid(call, "activation must be none or relu");
    if (rc == CO_OK && ((pool->h >= 0 && pool->h % 2 != 0) || (pool->w >= 0 && pool->w % 2 != 0)))
        return coi_invalid(call, "y has %lld x %lld pixels; both must be even", (long long)pool->h,
                           (long long)pool->w);
    for (int i = POOLED; i <= G && rc == CO_OK; ++i)
        rc = coi_pool_check_shape(call, i, (int64_t[]){ pool->n, pool->oh, pool->ow, pool->c });
    return rc;
}

static bool
is_relu(const coi_call *call)
{
    return ((const coi_conv2d_attrs *)call->attrs)->activation == CO_ACTIVATION_RELU;
}

static co_code
no_memory(const coi_call *call)
{
    return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                    "%s: no memory for its images or partial sums", call->op->name);
}

/* dy becomes what flows into the layer's sums: through the pooling, and the activation. */
static void
ref_flow(const coi_call *call, const coi_pool *pool, co_dtype dtype, void *dy)
{
    const co_value *y = call->in[Y];

    coi_ref_pool_kernels(dtype)->grad(pool, y->u.tensor.data, call->in[POOLED]->u.tensor.data,
                                      call->in[G]->u.tensor.data, dy, 0, pool->n);
    for (int64_t i = 0; i < y->u.tensor.num_elements && is_relu(call); ++i) {
        double factor = coi_ref_get(y, i) > 0 ? 1 : 0;

        if (dtype == CO_FLOAT64)
            ((double *)dy)[i] *= factor;
        else
            ((float *)dy)[i] *= (float)factor;
    }
}

/* By its parts, one after the other. */
co_code
coi_conv2d_pooled_grad_ref(coi_call *call)
{
    co_dtype    dtype = (co_dtype)call->out[0]->dtype;
    coi_conv2d  conv;
    coi_pool    pool;
    co_code     rc = coi_pooled_read(call, &conv, &pool);
    int64_t     n = call->in[Y]->u.tensor.num_elements;
    coi_buffer *dy;

    if (rc != CO_OK)
        return rc;
    dy = coi_buffer_alloc(call->device, (size_t)(n + 1) * coi_dtypes[dtype].size,
                          coi_err(call->ctx));
    if (dy == NULL)
        return no_memory(call);
    ref_flow(call, &pool, dtype, dy->data);
    coi_ref_conv2d(COI_CONV2D_FILTER, dtype, &conv, call->in[X]->u.tensor.data, dy->data,
                   call->out[0]->u.tensor.data);
    for (int64_t c = 0; c < conv.oc; ++c) {
        double sum = 0;

        for (int64_t i = c; i < n; i += conv.oc)
            sum += dtype == CO_FLOAT64 ? ((double *)dy->data)[i] : (double)((float *)dy->data)[i];
        coi_ref_put(call->out[1], c, sum);
    }
    if (call->num_out > FLOW)
        memcpy(call->out[FLOW]->u.tensor.data, dy->data, (size_t)n * coi_dtypes[dtype].size);
    coi_buffer_unref(dy);
    return CO_OK;
}

typedef struct job {
    const coi_call   *call;
    const coi_conv2d *conv;
    coi_conv2d_cut    cut;
    coi_pooled        image; /* what all images have in common */
    int64_t           row_runs;
    int64_t           count; /* of a chunk's sums */
    float            *sums;  /* of all chunks */
    atomic_bool       no_memory;
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    job              *j = arg;
    const coi_conv2d *g = j->conv;
    coi_padded        padded = coi_conv2d_padded(g, g->oh);
    int64_t           size = padded.pitch * padded.rows, first = chunk * j->cut.images, maxima;
    coi_pooled        p = j->image;
    coi_buffer       *buffer = coi_buffer_alloc(j->call->device,
                                                (size_t)(size + COI_POOLED_RUN) * sizeof(float), NULL);

    if (buffer == NULL) {
        atomic_store(&j->no_memory, true);
        return;
    }
    p.x = buffer->data;
    p.sums = j->sums + chunk * j->count;
    p.sums_bias = p.sums + j->count - p.channels;
    maxima = p.rows * p.columns * p.channels;
    memset(p.sums, 0, (size_t)j->count * sizeof(float));
    /* What the last run of a row takes too much of. */
    memset((float *)buffer->data + size, 0, COI_POOLED_RUN * sizeof(float));
    for (int64_t n = first; n < first + coi_conv2d_chunk_images(g, &j->cut, chunk); ++n) {
        coi_conv2d_pad_rows(g, COI_IN(j->call, X, float) + n * g->h * g->w * g->c, 0, &padded,
                            buffer->data);
        p.y = COI_IN(j->call, Y, float) + 4 * n * maxima;
        p.pooled = COI_IN(j->call, POOLED, float) + n * maxima;
        p.g = COI_IN(j->call, G, float) + n * maxima;
        p.flow = j->call->num_out > FLOW ? COI_OUT(j->call, FLOW, float) + 4 * n * maxima : NULL;
        kernels[j->call->ctx->runtime->isa](&p);
    }
    coi_buffer_unref(buffer);
}

static co_code
run_chunks(coi_call *call, job *j)
{
    const coi_conv2d *g = j->conv;
    int64_t           row = g->kw * g->c * g->oc;
    coi_buffer       *buffer = coi_buffer_alloc(call->device,
                                                (size_t)(j->cut.chunks * j->count) * sizeof(float),
                                                coi_err(call->ctx));

    if (buffer == NULL)
        return no_memory(call);
    j->sums = buffer->data;
    coi_parallel(call, j->cut.chunks, run_chunk, j);
    if (!atomic_load(&j->no_memory)) {
        coi_conv2d_sum_partials(call, CO_FLOAT32, j->sums, j->cut.chunks, j->count, j->sums);
        for (int64_t i = 0; i < g->kh; ++i)
            memcpy(COI_OUT(call, 0, float) + i * row,
                   j->sums + i * j->row_runs * COI_POOLED_RUN * g->oc, (size_t)row * sizeof(float));
        memcpy(COI_OUT(call, 1, float), j->sums + j->count - g->oc, (size_t)g->oc * sizeof(float));
    }
    coi_buffer_unref(buffer);
    return atomic_load(&j->no_memory) ? no_memory(call) : CO_OK;
}

co_code
coi_conv2d_pooled_grad_run(coi_call *call)
{
    coi_conv2d g;
    coi_pool   pool;
    int64_t    runs[COI_POOLED_MOST + COI_POOLED_RUNS] = { 0 }, pitch, num_runs;
    co_code    rc = coi_pooled_read(call, &g, &pool);
    job        j = { .call = call, .conv = &g };

    if (rc != CO_OK)
        return rc;
    if (!coi_select_pooled_grad(call->ctx->runtime->isa, (co_dtype)call->out[0]->dtype, &g))
        return coi_conv2d_pooled_grad_ref(
            call); /* called by name: the backward pass checks this before */
    if (coi_conv2d_work(&g) == 0) {
        for (int i = 0; i < call->num_out; ++i)
            memset(call->out[i]->u.tensor.data, 0, coi_tensor_nbytes(call->out[i]));
        return CO_OK;
    }
    j.row_runs = coi_pooled_runs(&g);
    num_runs = g.kh * j.row_runs;
    pitch = coi_conv2d_padded(&g, g.oh).pitch;
    for (int64_t i = 0; i < num_runs; ++i)
        runs[i] = i / j.row_runs * pitch + i % j.row_runs * COI_POOLED_RUN;
    j.cut = coi_conv2d_cut_of(COI_CONV2D_FILTER, &g);
    j.image = (coi_pooled){ .down = g.sh * pitch,
                            .across = g.sw * g.c,
                            .rows = pool.oh,
                            .columns = pool.ow,
                            .channels = g.oc,
                            .runs = runs,
                            .num_groups = (num_runs + COI_POOLED_RUNS - 1) / COI_POOLED_RUNS,
                            .is_relu = is_relu(call) };
    j.count = (j.image.num_groups * COI_POOLED_TAPS + 1) * g.oc;
    return run_chunks(call, &j);
}

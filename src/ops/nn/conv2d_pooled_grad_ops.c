/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d_pooled_grad: rule, the cut over images, and when the backward pass takes it instead of the
 * gradients of max_pool2d and conv2d_bias. The kernel is in
 * ops/kernels/simd/simd_conv2d_pooled_grad.c.
 */
#include "ops/kernels/conv2d_pooled_grad.h"

#include "config.h"
#include "ops/kernels/kernel_selection.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/op.h"
#include "ops/kernels/pool2d.h"
#include "ops/kernels/ref/ref.h"

#include <stdatomic.h>
#include <string.h>

/* Entries of other files. */
COI_USES_OP(conv2d)
COI_USES_OP(conv2d_backprop_filter)
COI_USES_OP(max_pool2d_grad)
COI_USES_OP(max_pool2d_grad_grad)
COI_USES_OP(relu_grad)

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

static const coi_pool_attrs halves = { { 2, { 2, 2 } }, { 2, { 2, 2 } }, CO_PADDING_VALID };

/* The geometry of the layer and of its pooling, from a call that has the shapes of both. */
static co_code
read_geometry(coi_call *call, coi_conv2d *conv, coi_pool *pool)
{
    const coi_conv2d_attrs *attrs = call->attrs;
    co_code                 rc = coi_conv2d_read(call, COI_CONV2D_FILTER, conv);

    if (rc == CO_OK)
        rc = coi_pool_geometry(call, &halves, call->in[Y]->u.tensor.dims, call->in[Y]->ndim, pool);
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

static co_code
infer(coi_call *call, coi_out *outs)
{
    coi_conv2d conv;
    coi_pool   pool;
    co_code    rc = read_geometry(call, &conv, &pool);

    if (rc != CO_OK)
        return rc;
    outs[0] = (coi_out){ (co_dtype)call->in[X]->dtype, 4, { conv.kh, conv.kw, conv.ic, conv.oc } };
    outs[1] = (coi_out){ (co_dtype)call->in[X]->dtype, 1, { conv.oc } };
    if (call->op->num_outputs > FLOW)
        outs[FLOW] = (coi_out){ (co_dtype)call->in[X]->dtype,
                                4,
                                { pool.n, pool.h, pool.w, pool.c } };
    return CO_OK;
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
static co_code
ref(coi_call *call)
{
    co_dtype    dtype = (co_dtype)call->out[0]->dtype;
    coi_conv2d  conv;
    coi_pool    pool;
    co_code     rc = read_geometry(call, &conv, &pool);
    int64_t     n = call->in[Y]->u.tensor.num_elements;
    coi_buffer *dy;

    if (rc != CO_OK)
        return rc;
    dy = coi_buffer_alloc(call->device, (size_t)(n + 1) * coi_dtypes[dtype].size);
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
                                                (size_t)(size + COI_POOLED_RUN) * sizeof(float));

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
                                                (size_t)(j->cut.chunks * j->count) * sizeof(float));

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

static co_code
run(coi_call *call)
{
    coi_conv2d g;
    coi_pool   pool;
    int64_t    runs[COI_POOLED_MOST + COI_POOLED_RUNS] = { 0 }, pitch, num_runs;
    co_code    rc = read_geometry(call, &g, &pool);
    job        j = { .call = call, .conv = &g };

    if (rc != CO_OK)
        return rc;
    if (!coi_select_pooled_grad(call->ctx->runtime->isa, (co_dtype)call->out[0]->dtype, &g))
        return ref(call); /* called by name: the backward pass checks this before */
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

static co_value *
through_relu(const coi_grad *grad, co_value *flow)
{
    const coi_conv2d_attrs *attrs = grad->attrs;

    return attrs->activation == CO_ACTIVATION_RELU
               ? coi_apply2(grad->ctx, &coi_op_relu_grad, grad->in[POOLED], flow, NULL)
               : flow;
}

/* The gradients of the filter's, for x and for dy, which is the gradient of y before the
 * activation. */
static co_code
filter_gradient(const coi_grad *grad, co_value *grads[2])
{
    coi_conv2d_attrs attrs = *(const coi_conv2d_attrs *)grad->attrs;
    const bool       needed[2] = { grad->needed[X], grad->needed[G] };
    co_value        *in[2] = { grad->in[X], NULL };
    coi_grad         step = *grad;

    if (needed[0]) {
        co_value *maxima[3] = { grad->in[Y], grad->in[POOLED], through_relu(grad, grad->in[G]) };

        in[1] = coi_apply(grad->ctx, &coi_op_max_pool2d_grad, maxima, 3, &halves);
        if (in[1] == NULL)
            return grad->ctx->error.code;
    }
    attrs.activation = CO_ACTIVATION_NONE;
    step.op = &coi_op_conv2d_backprop_filter;
    step.attrs = &attrs;
    step.in = in;
    step.num_in = 2;
    step.num_out = 1;
    step.needed = needed;
    step.grads = grads;
    return step.op->grad(&step);
}

/* Where the maxima are does not change with y, so gradients flow to x and g alone. */
static co_code
gradient(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *of_filter[2] = { NULL, NULL }, *of_bias = grad->upstream[OF_BIAS], *dy;
    co_value   *of_flow = grad->num_out > FLOW ? grad->upstream[FLOW] : NULL;

    if (grad->upstream[FILTER] != NULL && filter_gradient(grad, of_filter) != CO_OK)
        return ctx->error.code;
    grad->grads[X] = of_filter[0];
    if (!grad->needed[G])
        return ctx->error.code;
    dy = of_filter[1];
    if (of_flow != NULL)
        dy = dy != NULL ? co_add(ctx, dy, of_flow) : of_flow;
    if (of_bias != NULL)
        dy = dy != NULL ? co_add(ctx, dy, of_bias) : coi_broadcast_like(ctx, of_bias, grad->in[Y]);
    dy = coi_apply(ctx, &coi_op_max_pool2d_grad_grad,
                   (co_value *[]){ grad->in[Y], grad->in[POOLED], dy }, 3, &halves);
    grad->grads[G] = through_relu(grad, dy);
    return ctx->error.code;
}

#define POOLED_ATTRS(X) COI_CONV2D_ATTRS(X) COI_CONV2D_SIZES(X) COI_CONV2D_ACTIVATION(X)
typedef coi_conv2d_attrs pooled_attrs;
COI_ATTR_TABLE(pooled_attrs, POOLED_ATTRS)

#define POOLED_GRAD                                                                                \
    .name = "conv2d_pooled_grad", .inputs = { "x", "y", "pooled", "g" }, .num_inputs = 4,          \
    .dtypes = COI_FLOATS, .same_dtype = true, .upcasts = true, .internal = true,                   \
    COI_ATTRS(pooled_attrs), .infer = infer, .ref = ref, .run = run, .grad = gradient

const coi_op coi_op_conv2d_pooled_grad = {
    POOLED_GRAD,
    .doc =
        "The gradients of conv2d_bias for its filter, whose shape is `sizes`, and its bias, from the gradient g of "
        "the maxima of 2 x 2 of its result y.",
    .num_outputs = 2,
};

/* The same, and what flows into the sums of the layer: where its input has a gradient too. */
static const coi_op with_flow = { POOLED_GRAD, .num_outputs = 3 };

/* Windows of 2 x 2 that cover y and nothing else. */
static bool
is_in_halves(const coi_pool_attrs *attrs, const co_value *y)
{
    const int64_t *size = attrs->ksize.at, *step = attrs->strides.at, *dims = y->u.tensor.dims;

    return attrs->ksize.n == 2 && attrs->strides.n == 2 && size[0] == 2 && size[1] == 2 &&
           step[0] == 2 && step[1] == 2 && dims[1] % 2 == 0 && dims[2] % 2 == 0;
}

/* Whether the pair is one for the kernel, whose attributes are those of the layer and the shape of
 * its filter. */
static bool
has_kernel(const coi_grad *pool, const coi_grad *layer, coi_conv2d_attrs *attrs, co_value **in)
{
    const co_value *w = layer->in[1];
    coi_call        call = {
               .ctx = layer->ctx, .op = &coi_op_conv2d_pooled_grad, .in = in, .num_in = 4, .attrs = attrs
    };
    coi_conv2d g;

    *attrs = *(const coi_conv2d_attrs *)layer->attrs;
    attrs->sizes.n = 4;
    memcpy(attrs->sizes.at, w->u.tensor.dims, 4 * sizeof(int64_t));
    return is_in_halves(pool->attrs, in[Y]) &&
           (attrs->activation == CO_ACTIVATION_RELU || attrs->activation == CO_ACTIVATION_NONE) &&
           coi_conv2d_read(&call, COI_CONV2D_FILTER, &g) == CO_OK &&
           coi_select_pooled_grad(layer->ctx->runtime->isa, (co_dtype)in[X]->dtype, &g);
}

/* The gradient of the layer's input, from that of its sums. */
static co_code
for_input(const coi_grad *layer, co_value *flow)
{
    const bool       needed[2] = { true, false };
    coi_conv2d_attrs attrs = *(const coi_conv2d_attrs *)layer->attrs;
    coi_grad         step = *layer;

    attrs.activation = CO_ACTIVATION_NONE;
    step.op = &coi_op_conv2d;
    step.attrs = &attrs;
    step.num_in = 2;
    step.upstream = &flow;
    step.needed = needed;
    return step.op->grad(&step);
}

/* The same without filter and bias: the parts write what flows and sum up nothing. */
static co_code
for_input_alone(const coi_grad *layer, co_value *dy, bool owns_dy)
{
    coi_grad step = *layer;

    step.upstream = &dy;
    step.owns_upstream = owns_dy;
    return step.op->grad(&step);
}

co_code
coi_pooled_gradient(const coi_grad *pool, coi_grad *layer, bool *done)
{
    co_context      *ctx = layer->ctx;
    co_value        *y = layer->out[0], *pooled = pool->out[0], *g = pool->upstream[0], *outs[3];
    co_value        *in[4] = { layer->in[0], y, pooled, g }, *dy = NULL;
    bool             sums = layer->needed[1] || layer->needed[2];
    coi_conv2d_attrs attrs;

    *done = has_kernel(pool, layer, &attrs, in);
    if (!*done)
        return ctx->error.code;
    if (pool->needed[0] || !sums) {
        dy = coi_apply(ctx, &coi_op_max_pool2d_grad, in + Y, 3, &halves);
        if (dy == NULL)
            return ctx->error.code;
    }
    pool->grads[0] = pool->needed[0] ? dy : NULL;
    if (!sums)
        return for_input_alone(layer, dy, !pool->needed[0]);
    if (coi_apply_many(ctx, layer->needed[0] ? &with_flow : &coi_op_conv2d_pooled_grad, in, 4,
                       &attrs, outs) != CO_OK)
        return ctx->error.code;
    layer->grads[1] = outs[FILTER];
    layer->grads[2] = outs[OF_BIAS];
    return layer->needed[0] ? for_input(layer, outs[FLOW]) : CO_OK;
}

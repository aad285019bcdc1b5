/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_pool2d, its gradient and the gradient of that: rules and the cut over workers. Kernels are in
 * ops/kernels/simd/simd_pool2d.c, the plain ones in ops/kernels/ref/ref_pool2d.c.
 */
#include "ops/kernels/pool2d.h"

#include "config.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/conv2d_pooled_grad.h"
#include "ops/kernels/loops.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/window2d.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(conv2d_bias)
COI_USES_OP(max_pool2d)
COI_USES_OP(max_pool2d_grad)
COI_USES_OP(max_pool2d_grad_grad)

extern const coi_pool_kernels coi_pool_f32_base, coi_pool_f32_v3, coi_pool_f32_v4;
extern const coi_pool_kernels coi_pool_f64_once;

static const coi_pool_kernels *const kernels_f32[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_pool_f32);

static const char *const paddings[] = { "VALID", "SAME", NULL };

#define POOL_ATTRS(X)                                                                              \
    X(coi_pool_attrs, ksize, INTS, "", NULL)                                                       \
    X(coi_pool_attrs, strides, INTS, "", NULL)                                                     \
    X(coi_pool_attrs, padding, CHOICE, "=VALID", paddings)
COI_ATTR_TABLE(coi_pool_attrs, POOL_ATTRS)

static const int64_t unknown_image[4] = { COI_UNKNOWN, COI_UNKNOWN, COI_UNKNOWN, COI_UNKNOWN };

co_code
coi_pool_geometry(coi_call *call, const coi_pool_attrs *attrs, const int64_t *dims, int ndim,
                  coi_pool *p)
{
    char    text[COI_SHAPE_TEXT];
    int64_t bottom = 0, right = 0;
    co_code rc;

    if (ndim < 0)
        return coi_pool_geometry(call, attrs, unknown_image, 4, p);
    if (ndim != 4)
        return coi_invalid(call,
                           "x has shape %s; it must have 4 dimensions: n, height, width, channels",
                           coi_shape_text(dims, ndim, text));
    if (attrs->padding != CO_PADDING_VALID && attrs->padding != CO_PADDING_SAME)
        return coi_invalid(call, "padding is %d; it must be VALID or SAME", (int)attrs->padding);
    if (attrs->ksize.n < 0 || attrs->strides.n < 0)
        return coi_invalid(call, "ksize and strides must be given");
    *p = (coi_pool){ .n = dims[0], .h = dims[1], .w = dims[2], .c = dims[3] };
    rc = coi_read_pair(call, "ksize", &attrs->ksize, &p->kh, &p->kw);
    if (rc == CO_OK)
        rc = coi_read_pair(call, "strides", &attrs->strides, &p->sh, &p->sw);
    if (rc != CO_OK)
        return rc;
    if (dims[1] >= COI_WINDOW_LIMIT || dims[2] >= COI_WINDOW_LIMIT)
        return coi_invalid(call, "x has shape %s; height and width must be below 2^31",
                           coi_shape_text(dims, ndim, text));
    if (p->h >= 0)
        p->oh = coi_window_extent(p->h, p->kh, p->sh, attrs->padding, &p->top, &bottom);
    if (p->w >= 0)
        p->ow = coi_window_extent(p->w, p->kw, p->sw, attrs->padding, &p->left, &right);
    rc = coi_check_fit(call, p->oh, p->ow, p->kh, p->kw, p->h, p->w);
    p->oh = p->h >= 0 ? p->oh : COI_UNKNOWN;
    p->ow = p->w >= 0 ? p->ow : COI_UNKNOWN;
    return rc;
}

/* The geometry from the shape of input 0 and the attributes. */
static co_code
read_geometry(coi_call *call, coi_pool *p)
{
    const co_value *x = call->in[0];

    return coi_pool_geometry(call, call->attrs, x->u.tensor.dims, x->ndim, p);
}

static co_code
pool_infer(coi_call *call, coi_out *outs)
{
    coi_pool p;
    co_code  rc = read_geometry(call, &p);

    if (rc != CO_OK)
        return rc;
    outs->dtype = (co_dtype)call->in[0]->dtype;
    outs->ndim = 4;
    memcpy(outs->dims, (int64_t[]){ p.n, p.oh, p.ow, p.c }, 4 * sizeof(int64_t));
    return CO_OK;
}

co_code
coi_pool_check_shape(coi_call *call, int i, const int64_t *dims)
{
    const co_value *x = call->in[i];
    int64_t         room[CO_MAX_DIMS];
    const int64_t  *own = coi_dims_of_rank(x, 4, room);
    bool            fits = own != NULL;
    char            got[COI_SHAPE_TEXT], want[COI_SHAPE_TEXT];

    for (int d = 0; fits && d < 4; ++d)
        fits = coi_dims_fit(own[d], dims[d]);
    if (fits)
        return CO_OK;
    return coi_invalid(call, "%s has shape %s; it must be %s", call->op->inputs[i],
                       coi_shape_text(x->u.tensor.dims, x->ndim, got),
                       coi_shape_text(dims, 4, want));
}

/* The same, and what is known of the input is known of the shape then. */
static co_code
merge_shape(coi_call *call, int i, int64_t *dims)
{
    const co_value *x = call->in[i];
    co_code         rc = coi_pool_check_shape(call, i, dims);

    for (int d = 0; rc == CO_OK && d < 4 && x->ndim == 4; ++d)
        coi_merge_dim(&dims[d], x->u.tensor.dims[d]);
    return rc;
}

/* The four dimensions of x. */
static void
image_dims(const coi_call *call, int64_t dims[4])
{
    const co_value *x = call->in[0];

    memcpy(dims, coi_is_unknown_rank(x) ? unknown_image : x->u.tensor.dims, 4 * sizeof(int64_t));
}

/* y and g have the shape of the result, which has as many images and channels as x. */
static co_code
grad_infer(coi_call *call, coi_out *outs)
{
    int64_t pooled[4];
    co_code rc = pool_infer(call, outs);

    if (rc != CO_OK)
        return rc;
    memcpy(pooled, outs->dims, sizeof(pooled));
    rc = merge_shape(call, 1, pooled);
    if (rc == CO_OK)
        rc = merge_shape(call, 2, pooled);
    image_dims(call, outs->dims);
    coi_merge_dim(&outs->dims[0], pooled[0]);
    coi_merge_dim(&outs->dims[3], pooled[3]);
    return rc;
}

/* u has the shape of x, and y that of the result. */
static co_code
grad_grad_infer(coi_call *call, coi_out *outs)
{
    int64_t  image[4];
    coi_pool p;
    co_code  rc = pool_infer(call, outs); /* which looks at the rank of x */

    if (rc != CO_OK)
        return rc;
    image_dims(call, image);
    rc = merge_shape(call, 2, image);
    if (rc == CO_OK)
        rc = coi_pool_geometry(call, call->attrs, image, 4, &p);
    if (rc != CO_OK)
        return rc;
    memcpy(outs->dims, (int64_t[]){ p.n, p.oh, p.ow, p.c }, 4 * sizeof(int64_t));
    return merge_shape(call, 1, outs->dims);
}

/* One call of any of the three: chunks of output rows, or of images for the gradient, whose windows
 * overlap. */
typedef struct job {
    coi_pool                p;
    const coi_pool_kernels *kernels;
    const coi_op           *op;
    co_dtype                dtype;
    const void             *x, *y, *g;
    void                   *out;
    int64_t                 total, per_chunk, chunks;
    bool from_last; /* one thread finds in its cache what the layer before wrote last; of several
                       each has its range, and goes on with it */
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    first = (j->from_last ? j->chunks - 1 - chunk : chunk) * j->per_chunk;
    int64_t    last = first + j->per_chunk;

    if (last > j->total)
        last = j->total;
    if (!coi_dtypes[j->dtype].floating) /* rare: a loop for each of eight dtypes is not worth it */
        coi_ref_max_pool_whole(&j->p, j->dtype, j->x, j->out, first, last);
    else if (j->op == &coi_op_max_pool2d)
        j->kernels->forward(&j->p, j->x, j->out, first, last);
    else if (j->op == &coi_op_max_pool2d_grad)
        j->kernels->grad(&j->p, j->x, j->y, j->g, j->out, first, last);
    else
        j->kernels->grad_grad(&j->p, j->x, j->y, j->g, j->out, first, last);
}

static co_code
run_with(coi_call *call, const coi_pool_kernels *kernels)
{
    job     j = { .kernels = kernels,
                  .op = call->op,
                  .dtype = (co_dtype)call->out[0]->dtype,
                  .out = call->out[0]->u.tensor.data };
    int64_t elements; /* read per row or image */
    co_code rc = read_geometry(call, &j.p);

    if (rc == CO_OK && (j.p.oh == 0 || j.p.ow == 0) && call->op == &coi_op_max_pool2d)
        coi_warn_no_window(call, j.p.kh, j.p.kw, j.p.h, j.p.w);
    if (rc != CO_OK || call->out[0]->u.tensor.num_elements == 0)
        return rc;
    j.x = call->in[0]->u.tensor.data;
    if (call->num_in == 3) {
        j.y = call->in[1]->u.tensor.data;
        j.g = call->in[2]->u.tensor.data;
    }
    elements = j.p.ow * j.p.c * j.p.kh * j.p.kw;
    j.total = j.p.n * j.p.oh;
    if (call->op == &coi_op_max_pool2d_grad) {
        elements *= j.p.oh;
        j.total = j.p.n;
    }
    j.per_chunk = elements >= COI_PARALLEL_POOLED
                      ? 1
                      : COI_PARALLEL_POOLED / (elements > 0 ? elements : 1);
    j.chunks = (j.total + j.per_chunk - 1) / j.per_chunk;
    j.from_last = call->op == &coi_op_max_pool2d && coi_team_size(call->device->team) == 1;
    coi_parallel(call, j.chunks, run_chunk, &j);
    return CO_OK;
}

static co_code
pool_run(coi_call *call)
{
    return run_with(call, call->out[0]->dtype == CO_FLOAT64 ? &coi_pool_f64_once
                                                            : kernels_f32[call->ctx->runtime->isa]);
}

static co_code
pool_ref(coi_call *call)
{
    return run_with(call, coi_ref_pool_kernels((co_dtype)call->out[0]->dtype));
}

static co_code
pool_gradient(coi_grad *grad)
{
    co_value *in[3] = { grad->in[0], grad->out[0], grad->upstream[0] };

    grad->grads[0] = coi_apply(grad->ctx, &coi_op_max_pool2d_grad, in, 3, grad->attrs);
    return grad->ctx->error.code;
}

/* Where the maxima are does not change with x, so gradients flow to g alone. */
static co_code
grad_gradient(coi_grad *grad)
{
    co_value *in[3] = { grad->in[0], grad->in[1], grad->upstream[0] };

    if (grad->needed[2])
        grad->grads[2] = coi_apply(grad->ctx, &coi_op_max_pool2d_grad_grad, in, 3, grad->attrs);
    return grad->ctx->error.code;
}

static co_code
grad_grad_gradient(coi_grad *grad)
{
    co_value *in[3] = { grad->in[0], grad->in[1], grad->upstream[0] };

    if (grad->needed[2])
        grad->grads[2] = coi_apply(grad->ctx, &coi_op_max_pool2d_grad, in, 3, grad->attrs);
    return grad->ctx->error.code;
}

const coi_op coi_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "The largest element of each window of x [n,h,w,c].",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS | COI_SIGNED_INTEGERS | COI_DTYPE_BIT(CO_UINT8) | COI_DTYPE_BIT(CO_UINT16),
    COI_ATTRS(coi_pool_attrs),
    .infer = pool_infer,
    .upcasts = true,
    .ref = pool_ref,
    .run = pool_run,
    .grad = pool_gradient,
    .fused_producer = &coi_op_conv2d_bias,
    .fused_grad = coi_pooled_gradient,
};

const coi_op coi_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .doc = "The gradient of max_pool2d for x, from x, its result y and the gradient g of y.",
    .inputs = { "x", "y", "g" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(coi_pool_attrs),
    .infer = grad_infer,
    .upcasts = true,
    .ref = pool_ref,
    .run = pool_run,
    .grad = grad_gradient,
};

const coi_op coi_op_max_pool2d_grad_grad = {
    .name = "max_pool2d_grad_grad",
    .doc = "From each window the element of u at the place of the maximum y of x.",
    .inputs = { "x", "y", "u" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(coi_pool_attrs),
    .infer = grad_grad_infer,
    .upcasts = true,
    .ref = pool_ref,
    .run = pool_run,
    .grad = grad_grad_gradient,
};

bool
coi_pool_options(co_context *ctx, const co_pool2d_options *options, coi_pool_attrs *attrs)
{
    co_pool2d_options o = CO_POOL2D_OPTIONS_INIT;

    if (!coi_take_options(ctx, &o, sizeof(o), options, 3))
        return false;
    *attrs = (coi_pool_attrs){ { 2, { o.ksize[0], o.ksize[1] } },
                               { 2, { o.strides[0], o.strides[1] } },
                               (int32_t)o.padding };
    return true;
}

co_value *
co_max_pool2d(co_context *ctx, co_value *x, const co_pool2d_options *options)
{
    coi_pool_attrs attrs;

    COI_ENTER(ctx, "max_pool2d", NULL);
    if (!coi_pool_options(ctx, options, &attrs))
        return NULL;
    return coi_apply1(ctx, &coi_op_max_pool2d, x, &attrs);
}

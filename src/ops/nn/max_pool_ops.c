/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_pool2d, its gradient and the gradient of that: rules and gradients.
 */
#include "ops/kernels/pool2d.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/type_rules.h"
#include "ops/nn/nn_ops.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(conv2d_bias)
COI_USES_OP(max_pool2d)
COI_USES_OP(max_pool2d_grad)
COI_USES_OP(max_pool2d_grad_grad)

static const char *const paddings[] = { "VALID", "SAME", NULL };

#define POOL_ATTRS(X)                                                                              \
    X(coi_pool_attrs, ksize, INTS, "", NULL)                                                       \
    X(coi_pool_attrs, strides, INTS, "", NULL)                                                     \
    X(coi_pool_attrs, padding, CHOICE, "=VALID", paddings)
COI_ATTR_TABLE(coi_pool_attrs, POOL_ATTRS)

static const int64_t unknown_image[4] = { COI_UNKNOWN, COI_UNKNOWN, COI_UNKNOWN, COI_UNKNOWN };

static co_code
pool_infer(coi_call *call, coi_out *outs)
{
    coi_pool p;
    co_code  rc = coi_pool_read(call, &p);

    if (rc != CO_OK)
        return rc;
    outs->dtype = (co_dtype)call->in[0]->dtype;
    outs->ndim = 4;
    memcpy(outs->dims, (int64_t[]){ p.n, p.oh, p.ow, p.c }, 4 * sizeof(int64_t));
    return CO_OK;
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
    .ref = coi_max_pool_ref,
    .run = coi_max_pool_run,
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
    .kind = COI_POOL_GRAD,
    .infer = grad_infer,
    .upcasts = true,
    .ref = coi_max_pool_ref,
    .run = coi_max_pool_run,
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
    .kind = COI_POOL_GRAD_GRAD,
    .infer = grad_grad_infer,
    .upcasts = true,
    .ref = coi_max_pool_ref,
    .run = coi_max_pool_run,
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

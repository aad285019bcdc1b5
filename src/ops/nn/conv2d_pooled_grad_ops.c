/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d_pooled_grad: rule, the cut over images, and when the backward pass takes it instead of the
 * gradients of max_pool2d and conv2d_bias. The kernel is in
 * ops/kernels/simd/simd_conv2d_pooled_grad.c.
 */
#include "ops/kernels/conv2d_pooled_grad.h"

#include "ops/kernels/kernel_selection.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/op.h"
#include "ops/kernels/pool2d.h"
#include "ops/nn/nn_ops.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(conv2d)
COI_USES_OP(conv2d_backprop_filter)
COI_USES_OP(max_pool2d_grad)
COI_USES_OP(max_pool2d_grad_grad)
COI_USES_OP(relu_grad)

enum { X, Y, POOLED, G };       /* inputs */
enum { FILTER, OF_BIAS, FLOW }; /* outputs */

static co_code
infer(coi_call *call, coi_out *outs)
{
    coi_conv2d conv;
    coi_pool   pool;
    co_code    rc = coi_pooled_read(call, &conv, &pool);

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

        in[1] = coi_apply(grad->ctx, &coi_op_max_pool2d_grad, maxima, 3, &coi_pooled_halves);
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
                   (co_value *[]){ grad->in[Y], grad->in[POOLED], dy }, 3, &coi_pooled_halves);
    grad->grads[G] = through_relu(grad, dy);
    return ctx->error.code;
}

#define POOLED_ATTRS(X) COI_CONV2D_ATTRS(X) COI_CONV2D_SIZES(X) COI_CONV2D_ACTIVATION(X)
typedef coi_conv2d_attrs pooled_attrs;
COI_ATTR_TABLE(pooled_attrs, POOLED_ATTRS)

#define POOLED_GRAD                                                                                \
    .name = "conv2d_pooled_grad", .inputs = { "x", "y", "pooled", "g" }, .num_inputs = 4,          \
    .dtypes = COI_FLOATS, .same_dtype = true, .upcasts = true, .internal = true,                   \
    COI_ATTRS(pooled_attrs), .infer = infer, .ref = coi_conv2d_pooled_grad_ref,                    \
    .run = coi_conv2d_pooled_grad_run, .grad = gradient

const coi_op coi_op_conv2d_pooled_grad = {
    POOLED_GRAD,
    .doc =
        "The gradients of conv2d_bias for its filter, whose shape is `sizes`, and its bias, from the gradient g of "
        "the maxima of 2 x 2 of its result y.",
    .num_outputs = 2,
};

/* The same, and what flows into the sums of the layer: where its input has a gradient too. */
const coi_op coi_op_conv2d_pooled_grad_flow = {
    POOLED_GRAD,
    .entry = "conv2d_pooled_grad_flow",
    .doc = "conv2d_pooled_grad, and the gradient of y before the activation.",
    .not_by_name = true,
    .num_outputs = 3,
};

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
        dy = coi_apply(ctx, &coi_op_max_pool2d_grad, in + Y, 3, &coi_pooled_halves);
        if (dy == NULL)
            return ctx->error.code;
    }
    pool->grads[0] = pool->needed[0] ? dy : NULL;
    if (!sums)
        return for_input_alone(layer, dy, !pool->needed[0]);
    if (coi_apply_many(
            ctx, layer->needed[0] ? &coi_op_conv2d_pooled_grad_flow : &coi_op_conv2d_pooled_grad,
            in, 4, &attrs, outs) != CO_OK)
        return ctx->error.code;
    layer->grads[1] = outs[FILTER];
    layer->grads[2] = outs[OF_BIAS];
    return layer->needed[0] ? for_input(layer, outs[FLOW]) : CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d_pooled_grad: rule, and when the backward pass takes it instead of the gradients of
 * max_pool2d and conv2d_bias.
 */
#include "ops/kernels/conv2d_pooled_grad.h"

#include "ops/kernels/kernel_selection.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/pool2d.h"
#include "ops/nn/nn_ops.h"

#include <string.h>

static co_code
infer(coi_call *call, coi_out *outs)
{
    coi_conv2d conv;
    coi_pool   pool;
    co_code    rc = coi_pooled_read(call, &conv, &pool);

    if (rc != CO_OK)
        return rc;
    outs[0] = (coi_out){ (co_dtype)call->in[0]->dtype, 4, { conv.kh, conv.kw, conv.ic, conv.oc } };
    outs[1] = (coi_out){ (co_dtype)call->in[0]->dtype, 1, { conv.oc } };
    return CO_OK;
}

#define POOLED_ATTRS(X) COI_CONV2D_ATTRS(X) COI_CONV2D_SIZES(X) COI_CONV2D_ACTIVATION(X)
typedef coi_conv2d_attrs pooled_attrs;
COI_ATTR_TABLE(pooled_attrs, POOLED_ATTRS)

const coi_op coi_op_conv2d_pooled_grad = {
    .name = "conv2d_pooled_grad",
    .doc =
        "The gradients of conv2d_bias for its filter, whose shape is `sizes`, and its bias, from the gradient g of "
        "the maxima of 2 x 2 of its result y.",
    .inputs = { "x", "y", "pooled", "g" },
    .num_inputs = 4,
    .num_outputs = 2,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .upcasts = true,
    .internal = true,
    .not_differentiable = true, /* what records gradients takes the parts */
    COI_ATTRS(pooled_attrs),
    .infer = infer,
    .ref = coi_conv2d_pooled_grad_ref,
    .run = coi_conv2d_pooled_grad_run,
};

/* Windows of 2 x 2 that cover y and nothing else. */
static bool
is_in_halves(const coi_pool_attrs *attrs, const co_value *y)
{
    const int64_t *size = attrs->ksize.at, *step = attrs->strides.at, *dims = y->u.tensor.dims;

    return attrs->ksize.n == 2 && attrs->strides.n == 2 && size[0] == 2 && size[1] == 2 &&
           step[0] == 2 && step[1] == 2 && dims[1] % 2 == 0 && dims[2] % 2 == 0;
}

co_code
coi_pooled_gradient(const coi_grad *pool, coi_grad *layer, bool *done)
{
    coi_conv2d_attrs attrs = *(const coi_conv2d_attrs *)layer->attrs;
    co_value        *x = layer->in[0], *w = layer->in[1], *y = layer->out[0], *outs[2];
    co_value        *in[4] = { x, y, pool->out[0], pool->upstream[0] };
    coi_call         call = {
                .ctx = layer->ctx, .op = &coi_op_conv2d_pooled_grad, .in = in, .num_in = 4, .attrs = &attrs
    };
    coi_conv2d g;

    *done = false;
    if (layer->needed[0] || !layer->needed[1] || !is_in_halves(pool->attrs, y) ||
        (attrs.activation != CO_ACTIVATION_RELU && attrs.activation != CO_ACTIVATION_NONE))
        return CO_OK;
    attrs.sizes.n = 4;
    memcpy(attrs.sizes.at, w->u.tensor.dims, 4 * sizeof(int64_t));
    if (coi_conv2d_read(&call, COI_CONV2D_FILTER, &g) != CO_OK ||
        !coi_select_pooled_grad(layer->ctx->runtime->isa, (co_dtype)x->dtype, &g))
        return layer->ctx->error.code;
    *done = true;
    if (coi_apply_many(layer->ctx, call.op, in, 4, &attrs, outs) == CO_OK) {
        layer->grads[1] = outs[0];
        layer->grads[2] = outs[1];
    }
    return layer->ctx->error.code;
}

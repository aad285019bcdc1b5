/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax and its gradient. Kernels are in ops/kernels/simd/simd_softmax.c, the plain ones in
 * ops/kernels/ref/ref_softmax.c.
 */
#include "ops/kernels/softmax.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/type_rules.h"

/* Entries of other files. */
COI_USES_OP(softmax)
COI_USES_OP(softmax_grad)

#define SOFTMAX_ATTRS(X) X(coi_softmax_attrs, axis, INT, "=-1", NULL)
COI_ATTR_TABLE(coi_softmax_attrs, SOFTMAX_ATTRS)

static co_code
softmax_infer(coi_call *call, coi_out *outs)
{
    const coi_softmax_attrs *attrs = call->attrs;
    int                      axis;
    co_code                  rc = coi_rule_axis(call, attrs->axis, call->in[0]->ndim, &axis);

    return rc == CO_OK ? coi_rule_same(call, outs) : rc;
}

static co_code
softmax_grad_infer(coi_call *call, coi_out *outs)
{
    const co_value *y = call->in[0], *g = call->in[1];
    char            y_text[COI_SHAPE_TEXT], g_text[COI_SHAPE_TEXT];
    co_code         rc = softmax_infer(call, outs);

    if (rc == CO_OK && !coi_merge_shape(outs, g->u.tensor.dims, g->ndim))
        return coi_invalid(call, "y has shape %s and g %s; they must be equal",
                           coi_shape_text(y->u.tensor.dims, y->ndim, y_text),
                           coi_shape_text(g->u.tensor.dims, g->ndim, g_text));
    return rc;
}

static co_code
softmax_gradient(coi_grad *grad)
{
    grad->grads[0] = coi_apply2(grad->ctx, &coi_op_softmax_grad, grad->out[0], grad->upstream[0],
                                grad->attrs);
    return grad->ctx->error.code;
}

/* y (g - sum(g y)) with upstream u: the same form again for g; u (g - sum(g y)) - g sum(u y) for
 * y. */
static co_code
softmax_grad_gradient(coi_grad *grad)
{
    const coi_softmax_attrs *attrs = grad->attrs;
    co_context              *ctx = grad->ctx;
    co_value                *y = grad->in[0], *g = grad->in[1], *u = grad->upstream[0];
    int                      axis = (int)attrs->axis;

    if (grad->needed[1])
        grad->grads[1] = coi_apply2(ctx, &coi_op_softmax_grad, y, u, attrs);
    if (grad->needed[0]) {
        co_value *gy = co_reduce_sum(ctx, co_mul(ctx, g, y), &axis, 1, true);
        co_value *uy = co_reduce_sum(ctx, co_mul(ctx, u, y), &axis, 1, true);

        grad->grads[0] = co_sub(ctx, co_mul(ctx, u, co_sub(ctx, g, gy)), co_mul(ctx, g, uy));
    }
    return ctx->error.code;
}

const coi_op coi_op_softmax = {
    .name = "softmax",
    .doc = "exp(x) divided by its sum along an axis.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    COI_ATTRS(coi_softmax_attrs),
    .infer = softmax_infer,
    .upcasts = true,
    .ref = coi_ref_softmax,
    .run = coi_softmax_run,
    .grad = softmax_gradient,
};

const coi_op coi_op_softmax_grad = {
    .name = "softmax_grad",
    .doc = "The gradient of softmax from its result y and the gradient g of y.",
    .inputs = { "y", "g" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(coi_softmax_attrs),
    .infer = softmax_grad_infer,
    .upcasts = true,
    .ref = coi_ref_softmax_grad,
    .run = coi_softmax_run,
    .grad = softmax_grad_gradient,
};

co_value *
co_softmax(co_context *ctx, co_value *logits, int axis)
{
    coi_softmax_attrs attrs = { .axis = axis };

    return coi_apply1(ctx, &coi_op_softmax, logits, &attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broadcast_to.
 */
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

#define BROADCAST_ATTRS(X) X(coi_shape_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(coi_shape_attrs, BROADCAST_ATTRS)

static co_code
broadcast_to_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *shape = &((const coi_shape_attrs *)call->attrs)->shape;
    const co_value *x = call->in[0];
    char            xs[COI_SHAPE_TEXT], text[COI_SHAPE_TEXT];

    if (shape->n < 0)
        return coi_invalid(call, "shape is none; give the dimensions");
    for (int i = 0; i < shape->n; ++i)
        if (shape->at[i] < 0)
            return coi_invalid(call, "shape %s: dimensions must be at least 0",
                               coi_ints_text(shape, text));
    if (x->ndim <= shape->n &&
        coi_broadcast(x->u.tensor.dims, x->ndim, shape->at, shape->n, &outs[0]) &&
        coi_merge_shape(&outs[0], shape->at, shape->n)) {
        outs[0].dtype = (co_dtype)x->dtype;
        return CO_OK;
    }
    return coi_invalid(
        call,
        "x of shape %s does not become %s; counted from the last, its dimensions must "
        "be equal or 1",
        coi_shape_text(x->u.tensor.dims, x->ndim, xs), coi_ints_text(shape, text));
}

static co_code
broadcast_to_grad(coi_grad *g)
{
    g->grads[0] = coi_unbroadcast(g->ctx, g->upstream[0], g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_broadcast_to = {
    .name = "broadcast_to",
    .doc = "x repeated along dimensions of 1 and along new leading dimensions, to a shape.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_shape_attrs),
    .infer = broadcast_to_rule,
    .ref = coi_ref_broadcast_to,
    .run = coi_broadcast_to_run,
    .grad = broadcast_to_grad,
};

co_value *
co_broadcast_to(co_context *ctx, co_value *x, const int64_t *dims, int ndim)
{
    coi_shape_attrs attrs;

    COI_ENTER(ctx, "broadcast_to", NULL);
    if (!coi_ints_from_dims(ctx, "broadcast_to: dims", dims, (size_t)ndim, &attrs.shape))
        return NULL;
    return coi_apply1(ctx, &coi_op_broadcast_to, x, &attrs);
}

/* Two shapes, the second of which is the result. */
static co_code
broadcast_like_rule(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *like = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    bool            knows = !coi_is_unknown_rank(like);

    if ((!knows || x->ndim <= like->ndim) &&
        coi_broadcast(x->u.tensor.dims, x->ndim, like->u.tensor.dims, like->ndim, &outs[0]) &&
        coi_merge_shape(&outs[0], like->u.tensor.dims, like->ndim)) {
        outs[0].dtype = (co_dtype)x->dtype;
        return CO_OK;
    }
    return coi_invalid(call, "x of shape %s does not become %s, the shape of like",
                       coi_shape_text(x->u.tensor.dims, x->ndim, a),
                       coi_shape_text(like->u.tensor.dims, like->ndim, b));
}

const coi_op coi_op_broadcast_like = {
    .name = "broadcast_like",
    .doc = "x repeated along dimensions of 1 and new leading ones, up to the shape of like.",
    .inputs = { "x", "like" },
    .num_inputs = 2,
    .num_outputs = 1,
    .internal = true,
    .infer = broadcast_like_rule,
    .ref = coi_ref_broadcast_to,
    .run = coi_broadcast_to_run,
    .grad = broadcast_to_grad,
};

co_value *
coi_broadcast_like(co_context *ctx, co_value *x, co_value *like)
{
    return coi_apply2(ctx, &coi_op_broadcast_like, x, like, NULL);
}

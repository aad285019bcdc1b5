/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing between two tensors by a third. Gradients of maximum and minimum are made of it.
 */
#include "ops/engine/op.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/ref/ref.h"

static co_code
where_rule(coi_call *call, coi_out *outs)
{
    const co_value *cond = call->in[0], *x = call->in[1], *y = call->in[2];
    coi_out         both;
    char            cs[COI_SHAPE_TEXT], xs[COI_SHAPE_TEXT], ys[COI_SHAPE_TEXT];

    if (x->dtype != y->dtype)
        return coi_invalid(call, "x has dtype %s and y %s; they must be the same",
                           co_dtype_name((co_dtype)x->dtype), co_dtype_name((co_dtype)y->dtype));
    outs[0].dtype = (co_dtype)x->dtype;
    if (coi_broadcast(x->u.tensor.dims, x->ndim, y->u.tensor.dims, y->ndim, &both) &&
        coi_broadcast(cond->u.tensor.dims, cond->ndim, both.dims, both.ndim, &outs[0]))
        return CO_OK;
    return coi_invalid(call,
                       "shapes %s of cond, %s of x and %s of y do not fit; counted from the last, "
                       "dimensions must be equal or 1",
                       coi_shape_text(cond->u.tensor.dims, cond->ndim, cs),
                       coi_shape_text(x->u.tensor.dims, x->ndim, xs),
                       coi_shape_text(y->u.tensor.dims, y->ndim, ys));
}

static co_code
where_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *cond = g->in[0], *dy = g->upstream[0];
    co_value   *zero = co_zeros(ctx, (co_dtype)dy->dtype, NULL, 0);

    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(ctx, co_where(ctx, cond, dy, zero), g->in[1]);
    if (g->needed[2])
        g->grads[2] = coi_unbroadcast(ctx, co_where(ctx, cond, zero, dy), g->in[2]);
    return ctx->error.code;
}

const coi_op coi_op_where = {
    .name = "where",
    .doc = "x where cond is true, else y; the three broadcast.",
    .inputs = { "cond", "x", "y" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_DTYPE_BIT(CO_BOOL),
    .infer = where_rule,
    .ref = coi_ref_where,
    .run = coi_where_run,
    .grad = where_grad,
};

/* A host number beside a tensor takes its dtype; cond, which comes first, has none to give. */
static co_value *
like_other(co_context *ctx, co_value *value, const co_value *other)
{
    if (coi_host_dtype(value) == CO_DTYPE_NONE ||
        (other->kind != CO_KIND_TENSOR && !coi_is_type(other)))
        return value;
    return coi_give(ctx, coi_as_tensor(ctx, value, (co_dtype)other->dtype));
}

co_value *
co_where(co_context *ctx, co_value *cond, co_value *x, co_value *y)
{
    co_value *given[3] = { cond, x, y };

    COI_ENTER(ctx, "where", NULL);
    if (!coi_check_value(ctx, x, 3, "x") || !coi_check_value(ctx, y, 4, "y"))
        return NULL;
    given[1] = like_other(ctx, x, y);
    given[2] = like_other(ctx, y, x);
    return coi_apply(ctx, &coi_op_where, given, 3, NULL); /* nothing if that failed */
}

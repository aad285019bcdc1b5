/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that take the shape of their result as an attribute (slice_grad, scatter_add, the
 * gradients of conv2d, ...) with the shape of an operand instead. Where that is known, it becomes
 * the attribute at once; else `sized_like` stands for the operator until there are tensors.
 */
#include "ops/engine/composite.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/type_rules.h"

#include <string.h>

typedef struct sized_attrs {
    const coi_op *op;
    size_t        offset;
    int           dtype_of;
    _Alignas(16) char bytes[COI_MAX_SIZED_ATTRS]; /* the attributes of op */
} sized_attrs;

static void
set_shape(sized_attrs *attrs, const co_value *like)
{
    coi_ints *shape = (coi_ints *)(void *)(attrs->bytes + attrs->offset);

    shape->n = like->ndim;
    memcpy(shape->at, like->u.tensor.dims, (size_t)like->ndim * sizeof(int64_t));
}

static co_value *
apply_sized(co_context *ctx, const sized_attrs *attrs, co_value *const *given, int n)
{
    return attrs->op->composite != NULL
               ? coi_apply_composite(ctx, attrs->op, given, n, attrs->bytes)
               : coi_apply(ctx, attrs->op, given, n, attrs->bytes);
}

/* The result has the shape of the last input. */
static co_code
sized_rule(coi_call *call, coi_out *outs)
{
    sized_attrs attrs = *(const sized_attrs *)call->attrs;
    coi_call    sized = *call;

    sized.num_in = call->num_in - 1;
    coi_out_like(outs, call->in[sized.num_in]);
    outs[0].dtype = (co_dtype)call->in[attrs.dtype_of]->dtype;
    if (!coi_is_known_shape(call->in[sized.num_in]))
        return CO_OK;
    set_shape(&attrs, call->in[sized.num_in]);
    sized.op = attrs.op;
    sized.attrs = attrs.bytes;
    return attrs.op->infer(&sized, outs);
}

static co_value *
sized_compose(coi_call *call)
{
    sized_attrs attrs = *(const sized_attrs *)call->attrs;

    set_shape(&attrs, call->in[call->num_in - 1]);
    return apply_sized(call->ctx, &attrs, call->in, call->num_in - 1);
}

/* `like` gets none. None of these gradients reads the shape among its attributes. */
static co_code
sized_grad(coi_grad *grad)
{
    const sized_attrs *attrs = grad->attrs;
    coi_grad           sized = *grad;

    sized.op = attrs->op;
    sized.attrs = attrs->bytes;
    --sized.num_in;
    return attrs->op->grad(&sized);
}

#define SIZED_LIKE                                                                                 \
    .name = "sized_like", .inputs = { "xs" }, .num_inputs = 1, .num_outputs = 1, .variadic = true, \
    .internal = true, .not_by_name = true, .attrs_rule.size = COI_ATTRS_SIZE(sized_attrs),         \
    .infer = sized_rule, .composite = sized_compose, .num_reached = -1

const coi_op coi_op_sized_like = {
    SIZED_LIKE,
    .doc = "An operator whose result has the shape of the last input.",
    .grad = sized_grad,
};
const coi_op coi_op_sized_like_by_parts = {
    SIZED_LIKE,
    .entry = "sized_like_by_parts",
    .doc = "sized_like of an operator whose gradients come by its parts.",
};

static void
fill_attrs(sized_attrs *out, const coi_sized_op *sized)
{
    out->op = sized->op;
    out->offset = sized->offset;
    out->dtype_of = sized->dtype_of;
    memcpy(out->bytes, sized->attrs, sized->op->attrs_rule.size);
}

co_value *
coi_apply_like(co_context *ctx, const coi_sized_op *sized, co_value *const *given, int n,
               co_value *like)
{
    sized_attrs attrs;

    if (!coi_is_known_shape(like))
        return coi_apply_sized_like(ctx, sized, given, n, like);
    fill_attrs(&attrs, sized);
    set_shape(&attrs, like);
    return apply_sized(ctx, &attrs, given, n);
}

co_value *
coi_apply_sized_like(co_context *ctx, const coi_sized_op *sized, co_value *const *given, int n,
                     co_value *like)
{
    const coi_op *op = sized->op->grad != NULL ? &coi_op_sized_like : &coi_op_sized_like_by_parts;
    co_value     *all[COI_MAX_INPUT_NAMES];
    sized_attrs   attrs;

    memset(&attrs, 0, sizeof(attrs));
    fill_attrs(&attrs, sized);
    memcpy(all, given, (size_t)n * sizeof(*given));
    all[n] = like;
    return coi_apply_composite(ctx, op, all, n + 1, &attrs);
}

co_value *
coi_zeros_of(co_context *ctx, co_value *like)
{
    return coi_is_known_shape(like)
               ? co_zeros(ctx, (co_dtype)like->dtype, like->u.tensor.dims, like->ndim)
               : co_zeros_like(ctx, like);
}

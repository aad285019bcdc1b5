/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul, and dense, which is matmul with a bias and an activation: rules and gradients.
 */
#include "ops/kernels/matmul.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/epilogue_ops.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/type_rules.h"

#define MATMUL_ATTRS(X)                                                                            \
    X(coi_matmul_attrs, transpose_a, BOOL, "=false", NULL)                                         \
    X(coi_matmul_attrs, transpose_b, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_matmul_attrs, MATMUL_ATTRS)

typedef coi_matmul_attrs dense_attrs;
#define DENSE_ATTRS(X) X(coi_matmul_attrs, activation, CHOICE, "=none", coi_activation_names)
COI_ATTR_TABLE(dense_attrs, DENSE_ATTRS)

/* The three ways in which shapes do not fit; apart from the rule, which runs with every call. */
static co_code
refuse(coi_call *call, const char *why, int64_t a_k, int64_t b_k)
{
    const coi_matmul_attrs *attrs = call->attrs;
    const co_value         *a = call->in[0], *b = call->in[1];
    char                    a_text[COI_SHAPE_TEXT], b_text[COI_SHAPE_TEXT];

    coi_shape_text(a->u.tensor.dims, a->ndim, a_text);
    coi_shape_text(b->u.tensor.dims, b->ndim, b_text);
    if (why != NULL)
        return coi_invalid(call, "a has shape %s and b %s; %s", a_text, b_text, why);
    return coi_invalid(call, "a %s%s has %lld column%s, b %s%s has %lld row%s; they must be equal",
                       a_text, attrs->transpose_a ? " transposed" : "", (long long)a_k, COI_S(a_k),
                       b_text, attrs->transpose_b ? " transposed" : "", (long long)b_k, COI_S(b_k));
}

static co_code
matmul_infer(coi_call *call, coi_out *outs)
{
    const coi_matmul_attrs *attrs = call->attrs;
    const co_value         *a = call->in[0], *b = call->in[1];
    const int64_t          *a_dims = a->u.tensor.dims, *b_dims = b->u.tensor.dims;
    int64_t                 a_k, b_k;

    if (coi_is_unknown_rank(a) || coi_is_unknown_rank(b)) {
        if (a->ndim == 0 || a->ndim == 1 || b->ndim == 0 || b->ndim == 1)
            return refuse(call, "both need at least 2 dimensions", 0, 0);
        coi_out_unknown(outs, (co_dtype)a->dtype);
        return CO_OK;
    }
    if (a->ndim < 2 || b->ndim < 2)
        return refuse(call, "both need at least 2 dimensions", 0, 0);
    a_k = a_dims[a->ndim - (attrs->transpose_a ? 2 : 1)];
    b_k = b_dims[b->ndim - (attrs->transpose_b ? 1 : 2)];
    if (!coi_dims_fit(a_k, b_k))
        return refuse(call, NULL, a_k, b_k);
    if (!coi_broadcast(a_dims, a->ndim - 2, b_dims, b->ndim - 2, outs))
        return refuse(call,
                      "their batch dimensions do not fit: counted from the third last, they must "
                      "be equal or 1",
                      0, 0);
    outs->dtype = (co_dtype)a->dtype;
    outs->dims[outs->ndim++] = a_dims[a->ndim - (attrs->transpose_a ? 1 : 2)];
    outs->dims[outs->ndim++] = b_dims[b->ndim - (attrs->transpose_b ? 2 : 1)];
    return CO_OK;
}

/* The gradient of b where one b served a whole batch of a: fold the batch into the summed
 * dimension. */
static co_value *
folded_grad_b(co_context *ctx, co_value *a, co_value *g, bool transpose_b)
{
    a = coi_merge_dims(ctx, a, 0, a->ndim - 1);
    g = coi_merge_dims(ctx, g, 0, g->ndim - 1);
    return transpose_b ? co_matmul_transposed(ctx, g, a, true, false)
                       : co_matmul_transposed(ctx, a, g, true, false);
}

static co_code
matmul_grad(coi_grad *grad)
{
    const coi_matmul_attrs *attrs = grad->attrs;
    co_context             *ctx = grad->ctx;
    co_value               *a = grad->in[0], *b = grad->in[1], *g = grad->upstream[0];
    bool                    ta = attrs->transpose_a, tb = attrs->transpose_b;

    if (grad->needed[0])
        grad->grads[0] = coi_unbroadcast(ctx,
                                         ta ? co_matmul_transposed(ctx, b, g, tb, true)
                                            : co_matmul_transposed(ctx, g, b, false, !tb),
                                         a);
    if (!grad->needed[1])
        return ctx->error.code;
    if (a->ndim > 2 && b->ndim == 2 && !ta)
        grad->grads[1] = folded_grad_b(ctx, a, g, tb);
    else
        grad->grads[1] = coi_unbroadcast(ctx,
                                         tb ? co_matmul_transposed(ctx, g, a, true, ta)
                                            : co_matmul_transposed(ctx, a, g, !ta, false),
                                         b);
    return ctx->error.code;
}

const coi_op coi_op_matmul = {
    .name = "matmul",
    .doc =
        "The matrix product a b over the last two dimensions, each optionally transposed; the others broadcast.",
    .inputs = { "a", "b" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS | COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64),
    .same_dtype = true,
    COI_ATTRS(coi_matmul_attrs),
    .infer = matmul_infer,
    .upcasts = true,
    .ref = coi_ref_matmul,
    .run = coi_matmul_run,
    .grad = matmul_grad,
    .grad_is_known = coi_grad_with_ranks,
};

static co_code
dense_infer(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *w = call->in[1];
    int64_t         room[CO_MAX_DIMS], inputs, outputs;
    const int64_t  *w_dims = coi_dims_of_rank(w, 2, room);
    char            text[COI_SHAPE_TEXT];
    co_code         code;

    if (x->ndim == 0 || x->ndim == 1)
        return coi_invalid(call,
                           "x has shape %s; it must have at least 2 dimensions: examples, inputs",
                           coi_shape_text(x->u.tensor.dims, x->ndim, text));
    if (w_dims == NULL)
        return coi_invalid(call, "w has shape %s; it must have 2 dimensions: inputs, outputs",
                           coi_shape_text(w->u.tensor.dims, w->ndim, text));
    inputs = coi_is_unknown_rank(x) ? COI_UNKNOWN : x->u.tensor.dims[x->ndim - 1];
    if (!coi_dims_fit(w_dims[0], inputs))
        return coi_invalid(call,
                           "w has shape %s; the last dimension of x is %lld, so w needs %lld row%s",
                           coi_shape_text(w->u.tensor.dims, w->ndim, text), (long long)inputs,
                           (long long)inputs, COI_S(inputs));
    outputs = w_dims[1];
    code = coi_epilogue_rule(call, ((const coi_matmul_attrs *)call->attrs)->activation, &outputs);
    coi_out_like(outs, x);
    if (outs->ndim > 0)
        outs->dims[outs->ndim - 1] = outputs;
    return code;
}

static const coi_matmul_attrs bare_dense;

static co_code
dense_grad(coi_grad *grad)
{
    return coi_epilogue_grad(grad, ((const coi_matmul_attrs *)grad->attrs)->activation, &bare_dense,
                             matmul_grad);
}

const coi_op coi_op_dense = {
    .name = "dense",
    .doc = "A fully connected layer: activation(x w + b), in one pass.",
    .inputs = { "x", "w", "b" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(dense_attrs),
    .infer = dense_infer,
    .upcasts = true,
    .ref = coi_dense_ref,
    .run = coi_dense_run,
    .grad = dense_grad,
    .grad_is_known = coi_grad_with_ranks,
};

co_value *
co_dense(co_context *ctx, co_value *x, co_value *w, co_value *b, co_activation activation)
{
    coi_matmul_attrs attrs = { .activation = (int32_t)activation };
    co_value *const  given[3] = { x, w, b };

    COI_ENTER(ctx, "dense", NULL);
    return coi_apply_epilogue(ctx, &coi_op_dense, given, &attrs, &bare_dense, attrs.activation);
}

co_value *
co_matmul(co_context *ctx, co_value *a, co_value *b)
{
    return co_matmul_transposed(ctx, a, b, false, false);
}

co_value *
co_matmul_transposed(co_context *ctx, co_value *a, co_value *b, bool transpose_a, bool transpose_b)
{
    coi_matmul_attrs attrs = { .transpose_a = transpose_a, .transpose_b = transpose_b };

    return coi_apply2(ctx, &coi_op_matmul, a, b, &attrs);
}

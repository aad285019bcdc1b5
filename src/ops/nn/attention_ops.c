/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention: its rule, its gradient as one operator, and the same gradient made of other operators
 * for when it is recorded itself, so that there are gradients of any order. While a tape is open,
 * short rows of probabilities are kept for the gradient. The kernels are in attention.c, the
 * plain version in ops/kernels/ref/ref_attention.c.
 */
#include "ops/kernels/attention.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/softmax.h"

#include <math.h>
#include <string.h>

/* Entries of other files. */
COI_USES_OP(softmax_grad)

#define ATTENTION_ATTRS(X)                                                                         \
    X(coi_attention_attrs, heads, INT, "=1", NULL)                                                 \
    X(coi_attention_attrs, causal, BOOL, "=false", NULL)                                           \
    X(coi_attention_attrs, scale, FLOAT, "=0.0", NULL)
COI_ATTR_TABLE(coi_attention_attrs, ATTENTION_ATTRS)

/* Dimension d counted from the last, which is 1. */
static int64_t
from_last(const co_value *x, int d)
{
    return x->u.tensor.dims[x->ndim - d];
}

void
coi_attention_view_of(co_value *const *in, const coi_attention_attrs *attrs,
                      coi_attention_view *view)
{
    const co_value *q = in[0];

    *view = (coi_attention_view){ .items = 1,
                                  .heads = attrs->heads,
                                  .num_queries = from_last(q, 2),
                                  .num_keys = from_last(in[1], 2),
                                  .depth = from_last(q, 1) / attrs->heads,
                                  .width = from_last(in[2], 1) / attrs->heads,
                                  .causal = attrs->causal,
                                  .scale = attrs->scale };
    for (int d = 0; d < q->ndim - 2; ++d)
        view->items *= q->u.tensor.dims[d];
    if (view->scale == 0)
        view->scale = view->depth > 0 ? 1 / sqrt((double)view->depth) : 1;
}

/* What q, k and v must have in common, by name and shape. */
static co_code
refuse(coi_call *call, const char *rule)
{
    char text[3][COI_SHAPE_TEXT];

    for (int i = 0; i < 3; ++i)
        coi_shape_text(call->in[i]->u.tensor.dims, call->in[i]->ndim, text[i]);
    return coi_invalid(call, "q has shape %s, k %s and v %s; %s", text[0], text[1], text[2], rule);
}

static co_code
attention_infer(coi_call *call, coi_out *outs)
{
    const coi_attention_attrs *attrs = call->attrs;
    const co_value            *q = call->in[0], *k = call->in[1], *v = call->in[2];
    bool                       same = q->ndim == k->ndim && q->ndim == v->ndim && q->ndim >= 2;

    for (int d = 0; same && d < q->ndim - 2; ++d)
        same = q->u.tensor.dims[d] == k->u.tensor.dims[d] &&
               q->u.tensor.dims[d] == v->u.tensor.dims[d];
    if (!same)
        return refuse(call, "they must have one rank of at least 2, and all dimensions but the "
                            "last two, time and channels, equal");
    if (from_last(q, 1) != from_last(k, 1))
        return refuse(call, "q and k must have the same last dimension, the channels");
    if (from_last(k, 2) != from_last(v, 2))
        return refuse(call, "k and v must have the same second last dimension, one row per key");
    if (attrs->heads < 1 || from_last(q, 1) % attrs->heads != 0 ||
        from_last(v, 1) % attrs->heads != 0)
        return coi_invalid(call,
                           "heads is %lld; it must be at least 1 and divide the channels of q and "
                           "k (%lld) and of v (%lld)",
                           (long long)attrs->heads, (long long)from_last(q, 1),
                           (long long)from_last(v, 1));
    coi_rule_same(call, outs);
    outs->dims[outs->ndim - 1] = from_last(v, 1);
    return CO_OK;
}

/* The result, and the probabilities of every head, a row for each query. Those of halves are
 * floats. */
static co_code
kept_infer(coi_call *call, coi_out *outs)
{
    co_code            code = attention_infer(call, outs);
    coi_attention_view v;

    if (code != CO_OK)
        return code;
    coi_attention_view_of(call->in, call->attrs, &v);
    outs[1] = (coi_out){ .dtype = outs->dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32, .ndim = 1 };
    if (coi_attention_keeps(&v))
        outs[1] = (coi_out){ .dtype = outs[1].dtype,
                             .ndim = 3,
                             .dims = { v.items * v.heads, v.num_queries, coi_attention_row(&v) } };
    return CO_OK;
}

/* Gradients of q, k and v, which have their shapes. */
static co_code
attention_grad_infer(coi_call *call, coi_out *outs)
{
    for (int i = 0; i < 3; ++i) {
        const co_value *x = call->in[i];

        outs[i] = (coi_out){ .dtype = (co_dtype)x->dtype, .ndim = x->ndim };
        memcpy(outs[i].dims, x->u.tensor.dims, (size_t)x->ndim * sizeof(int64_t));
    }
    return CO_OK;
}

static const coi_op attention_grad = {
    .name = "attention_grad",
    .inputs = { "q", "k", "v", "g", "p" },
    .num_inputs = 5,
    .num_outputs = 3,
    .attrs_size = sizeof(coi_attention_attrs),
    .not_differentiable = true,
    .infer = attention_grad_infer,
    .upcasts = true,
    .ref = coi_ref_attention,
    .run = coi_attention_run,
};

/* [items, time, heads * channels] as [items, heads, time, channels], and back in the shape of
 * `like`. */
static co_value *
split(co_context *ctx, co_value *x, const coi_attention_view *v)
{
    int64_t dims[] = { v->items, from_last(x, 2), v->heads, from_last(x, 1) / v->heads };

    return co_transpose(ctx, co_reshape(ctx, x, dims, 4), (const int[]){ 0, 2, 1, 3 }, 4);
}
static co_value *
join(co_context *ctx, co_value *x, const co_value *like)
{
    return co_reshape(ctx, co_transpose(ctx, x, (const int[]){ 0, 2, 1, 3 }, 4),
                      like->u.tensor.dims, (size_t)like->ndim);
}

/* softmax(scale q k') of split q and k, with nothing for keys that are not seen. */
static co_value *
probabilities(co_context *ctx, co_value *q, co_value *k, const coi_attention_view *v)
{
    co_value *scores = co_matmul_transposed(ctx, q, k, false, true);

    scores = co_mul(ctx, scores, co_float(ctx, v->scale));
    if (v->causal) {
        co_value *seen = co_ones(ctx, CO_FLOAT32, (const int64_t[]){ v->num_queries, v->num_keys },
                                 2);

        seen = co_cast(ctx, co_band_part(ctx, seen, -1, 0), CO_BOOL);
        scores = co_where(ctx, seen, scores, co_float(ctx, -(double)INFINITY));
    }
    return co_softmax(ctx, scores, -1);
}

/* With p the probabilities: p' g for values; for scores the gradient of softmax at g v', and from
 * there on that of a product. */
static co_code
composed_gradient(coi_grad *grad)
{
    co_context        *ctx = grad->ctx;
    coi_attention_view view;
    co_value          *q, *k, *v, *g, *p, *slope;

    coi_attention_view_of(grad->in, grad->attrs, &view);
    q = split(ctx, grad->in[0], &view);
    k = split(ctx, grad->in[1], &view);
    v = split(ctx, grad->in[2], &view);
    g = split(ctx, grad->upstream[0], &view);
    p = probabilities(ctx, q, k, &view);
    slope = coi_apply2(ctx, &coi_op_softmax_grad, p, co_matmul_transposed(ctx, g, v, false, true),
                       &(coi_softmax_attrs){ .axis = -1 });
    slope = co_mul(ctx, slope, co_float(ctx, view.scale));
    grad->grads[0] = join(ctx, co_matmul(ctx, slope, k), grad->in[0]);
    grad->grads[1] = join(ctx, co_matmul_transposed(ctx, slope, q, true, false), grad->in[1]);
    grad->grads[2] = join(ctx, co_matmul_transposed(ctx, p, g, true, false), grad->in[2]);
    return ctx->error.code;
}

static co_code
attention_gradient(coi_grad *grad)
{
    co_value *in[5] = { grad->in[0], grad->in[1], grad->in[2], grad->upstream[0], grad->out[1] };

    if (grad->ctx->recording)
        return composed_gradient(grad);
    return coi_apply_many(grad->ctx, &attention_grad, in, 5, grad->attrs, grad->grads);
}

#define ATTENTION                                                                                  \
    .name = "attention",                                                                           \
    .doc = "softmax(scale q k') v of every head: each query's mean of the values, weighed by its " \
           "likeness to their keys.",                                                              \
    .inputs = { "q", "k", "v" }, .num_inputs = 3, .dtypes = COI_FLOATS, .same_dtype = true,        \
    .upcasts = true, .ref = coi_ref_attention, .run = coi_attention_run,                           \
    .grad = attention_gradient, COI_ATTRS(coi_attention_attrs)

static const coi_op kept = {
    ATTENTION,
    .num_outputs = 2,
    .infer = kept_infer,
};
const coi_op coi_op_attention = {
    ATTENTION,
    .num_outputs = 1,
    .infer = attention_infer,
    .training = &kept,
};

co_value *
co_attention(co_context *ctx, co_value *q, co_value *k, co_value *v, int64_t heads, bool causal,
             double scale)
{
    coi_attention_attrs attrs = { .heads = heads, .causal = causal, .scale = scale };
    co_value *const     in[3] = { q, k, v };
    co_value           *result = NULL;

    coi_apply_many(ctx, &coi_op_attention, in, 3, &attrs, &result);
    return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention: its rule, its gradient as one operator, and the same gradient as a composite, which is
 * used while a tape records it, so that there are gradients of any order. While a tape is open,
 * short rows of probabilities are kept for the gradient. The kernels are in attention_kernels.c,
 * the plain version in ops/kernels/ref/ref_attention.c.
 */
#include "ops/kernels/attention.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/softmax.h"
#include "ops/engine/type_rules.h"

#include <math.h>

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
    return coi_is_unknown_rank(x) ? COI_UNKNOWN : x->u.tensor.dims[x->ndim - d];
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

/* The dimensions that all three have before the last two. */
static bool
merge_batch(const coi_call *call, coi_out *out)
{
    out->ndim = COI_UNKNOWN;
    for (int i = 0; i < 3; ++i) {
        const co_value *x = call->in[i];

        if (x->ndim == 0 || x->ndim == 1)
            return false;
        if (!coi_is_unknown_rank(x) && !coi_merge_shape(out, x->u.tensor.dims, x->ndim - 2))
            return false;
    }
    return true;
}

static co_code
attention_infer(coi_call *call, coi_out *outs)
{
    const coi_attention_attrs *attrs = call->attrs;
    const co_value            *q = call->in[0], *k = call->in[1], *v = call->in[2];
    int64_t                    channels, width;

    if (!merge_batch(call, outs))
        return refuse(call, "they must have one rank of at least 2, and all dimensions but the "
                            "last two, time and channels, equal");
    if (!coi_dims_fit(from_last(q, 1), from_last(k, 1)))
        return refuse(call, "q and k must have the same last dimension, the channels");
    if (!coi_dims_fit(from_last(k, 2), from_last(v, 2)))
        return refuse(call, "k and v must have the same second last dimension, one row per key");
    channels = from_last(q, 1) < 0 ? from_last(k, 1) : from_last(q, 1);
    width = from_last(v, 1);
    if (attrs->heads < 1 || (channels >= 0 && channels % attrs->heads != 0) ||
        (width >= 0 && width % attrs->heads != 0))
        return coi_invalid(call,
                           "heads is %lld; it must be at least 1 and divide the channels of q and "
                           "k (%lld) and of v (%lld)",
                           (long long)attrs->heads, (long long)channels, (long long)width);
    outs->dtype = (co_dtype)q->dtype;
    if (outs->ndim >= 0) {
        outs->dims[outs->ndim++] = from_last(q, 2);
        outs->dims[outs->ndim++] = width;
    }
    return CO_OK;
}

static bool
are_known(const coi_call *call)
{
    return coi_is_known_shape(call->in[0]) && coi_is_known_shape(call->in[1]) &&
           coi_is_known_shape(call->in[2]);
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
    if (!are_known(call)) {
        coi_out_unknown(&outs[1], outs->dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32);
        return CO_OK;
    }
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
    for (int i = 0; i < 3; ++i)
        coi_out_like(&outs[i], call->in[i]);
    return CO_OK;
}

const coi_op coi_op_attention_grad = {
    .name = "attention_grad",
    .doc =
        "The gradients of attention for q, k and v, given that of its result and what training kept.",
    .inputs = { "q", "k", "v", "g", "p" },
    .num_inputs = 5,
    .num_outputs = 3,
    COI_ATTRS(coi_attention_attrs),
    .internal = true,
    .not_by_name = true,
    .not_differentiable = true,
    .infer = attention_grad_infer,
    .upcasts = true,
    .ref = coi_ref_attention,
    .run = coi_attention_run,
    .strided_in = 0x0f, /* q, k, v and g */
    .strided_out = 0x07,
};

/* [items, time, heads * channels] as [items, heads, time, channels], and back in the shape of
 * `like`. */
static co_value *
split(co_context *ctx, co_value *x, const coi_attention_view *v)
{
    x = coi_split_last(ctx, coi_merge_dims(ctx, x, 0, x->ndim - 2), v->heads);
    return co_transpose(ctx, x, (const int[]){ 0, 2, 1, 3 }, 4);
}
static co_value *
join(co_context *ctx, co_value *x, co_value *like)
{
    return coi_reshape_like(ctx, co_transpose(ctx, x, (const int[]){ 0, 2, 1, 3 }, 4), like);
}

/* The scale as a number; of split queries with an unknown depth an operator finds it. */
static co_value *
scale_of(co_context *ctx, const coi_attention_attrs *attrs, const coi_attention_view *v,
         co_value *q)
{
    co_value *depth;

    if (attrs->scale != 0 || q == NULL || q->u.tensor.dims[3] >= 0)
        return co_float(ctx, v->scale);
    depth = co_slice(ctx, co_shape(ctx, q), (const int64_t[]){ 3 }, (const int64_t[]){ 1 }, 1);
    depth = co_sqrt(ctx, co_cast(ctx, co_reshape(ctx, depth, NULL, 0), CO_FLOAT64));
    return co_cast(ctx, co_div(ctx, co_float(ctx, 1), depth), (co_dtype)q->dtype);
}

/* Ones for all queries and keys; of scores with unknown dimensions for each head too. */
static co_value *
all_pairs(co_context *ctx, co_value *scores)
{
    const int64_t *dims;

    if (scores == NULL)
        return NULL;
    dims = scores->u.tensor.dims + 2;
    return dims[0] >= 0 && dims[1] >= 0 ? co_ones(ctx, CO_FLOAT32, dims, 2)
                                        : co_cast(ctx, co_ones_like(ctx, scores), CO_FLOAT32);
}

/* softmax(scale q k') of split q and k, with nothing for keys that are not seen. */
static co_value *
probabilities(co_context *ctx, co_value *q, co_value *k, co_value *scale, bool causal)
{
    co_value *scores = co_mul(ctx, co_matmul_transposed(ctx, q, k, false, true), scale);

    if (causal && scores != NULL) {
        co_value *seen = co_band_part(ctx, all_pairs(ctx, scores), -1, 0);

        scores = co_where(ctx, co_cast(ctx, seen, CO_BOOL), scores,
                          co_cast(ctx, co_scalar_float(ctx, -INFINITY), (co_dtype)scores->dtype));
    }
    return co_softmax(ctx, scores, -1);
}

/* With p the probabilities: p' g for values; for scores the gradient of softmax at g v', and from
 * there on that of a matmul. */
static co_code
composed_gradient(coi_grad *grad)
{
    co_context        *ctx = grad->ctx;
    coi_attention_view view;
    co_value          *q, *k, *v, *g, *p, *slope, *scale;

    coi_attention_view_of(grad->in, grad->attrs, &view);
    q = split(ctx, grad->in[0], &view);
    k = split(ctx, grad->in[1], &view);
    v = split(ctx, grad->in[2], &view);
    g = split(ctx, grad->upstream[0], &view);
    scale = scale_of(ctx, grad->attrs, &view, q);
    p = probabilities(ctx, q, k, scale, view.causal);
    slope = coi_apply2(ctx, &coi_op_softmax_grad, p, co_matmul_transposed(ctx, g, v, false, true),
                       &(coi_softmax_attrs){ .axis = -1 });
    slope = co_mul(ctx, slope, scale);
    grad->grads[0] = join(ctx, co_matmul(ctx, slope, k), grad->in[0]);
    grad->grads[1] = join(ctx, co_matmul_transposed(ctx, slope, q, true, false), grad->in[1]);
    grad->grads[2] = join(ctx, co_matmul_transposed(ctx, p, g, true, false), grad->in[2]);
    return ctx->error.code;
}

/* Only the composed gradient asks for ranks. */
static bool
attention_is_known(const coi_grad *grad)
{
    return !grad->ctx->recording || coi_grad_with_ranks(grad);
}

static co_code
attention_gradient(coi_grad *grad)
{
    co_value *in[5] = { grad->in[0], grad->in[1], grad->in[2], grad->upstream[0], grad->out[1] };

    if (grad->ctx->recording)
        return composed_gradient(grad);
    return coi_apply_many(grad->ctx, &coi_op_attention_grad, in, 5, grad->attrs, grad->grads);
}

#define ATTENTION                                                                                  \
    .name = "attention", .inputs = { "q", "k", "v" }, .num_inputs = 3, .dtypes = COI_FLOATS,       \
    .same_dtype = true, .upcasts = true, .ref = coi_ref_attention, .run = coi_attention_run,       \
    .strided_in = 0x07, .strided_out = 0x01, .grad = attention_gradient,                           \
    .grad_is_known = attention_is_known, COI_ATTRS(coi_attention_attrs)

const coi_op coi_op_attention_training = {
    ATTENTION,
    .entry = "attention_training",
    .doc = "attention while a tape is open, and the probabilities that its gradient needs.",
    .internal = true,
    .not_by_name = true,
    .num_outputs = 2,
    .infer = kept_infer,
};
const coi_op coi_op_attention = {
    ATTENTION,
    .doc = "Scaled dot-product attention: softmax(scale q k') v for every head.",
    .num_outputs = 1,
    .infer = attention_infer,
    .training = &coi_op_attention_training,
};

co_value *
co_attention(co_context *ctx, co_value *q, co_value *k, co_value *v, int64_t heads,
             const co_attention_options *options)
{
    co_attention_options all = CO_ATTENTION_OPTIONS_INIT;
    coi_attention_attrs  attrs = { .heads = heads };
    co_value *const      in[3] = { q, k, v };
    co_value            *result = NULL;

    COI_ENTER(ctx, "attention", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    attrs.causal = all.causal;
    attrs.scale = all.scale;
    coi_apply_many(ctx, &coi_op_attention, in, 3, &attrs, &result);
    return result;
}

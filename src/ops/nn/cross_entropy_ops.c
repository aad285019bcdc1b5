/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross entropy of logits with integer labels, and its gradient as one operator: softmax, minus the
 * label, times the upstream gradient. While a tape is open the exponentials and their sums are
 * kept, so that the gradient has none to compute. Kernels are those of softmax; the plain version
 * is in ops/kernels/ref/ref_softmax.c.
 *
 * The same with labels that are probabilities, of the shape of logits, along the last axis;
 * ops/nn/composite_losses.c has the general case.
 */
#include "ops/kernels/softmax.h"

#include "ops/engine/op.h"
#include "ops/engine/type_rules.h"
#include "ops/engine/upcast.h"
#include "ops/nn/nn_ops.h"

/* Entries of other files. */
COI_USES_OP(softmax_grad)
COI_USES_OP(sparse_softmax_cross_entropy_grad)
COI_USES_OP(sparse_softmax_cross_entropy_training_grad)
COI_USES_OP(one_hot_like)

static bool
is_floating(const co_value *x)
{
    return coi_dtypes[x->dtype].floating;
}

/* labels and logits; fills outs with the shape of labels and the dtype of logits. */
static co_code
cross_entropy_infer(coi_call *call, coi_out *outs)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    bool            knows = !coi_is_unknown_rank(logits);

    if (!is_floating(logits))
        return coi_invalid(call,
                           "logits are %s; they must be float16, bfloat16, float32 or float64",
                           coi_dtypes[logits->dtype].name);
    coi_rule_same(call, outs);
    outs->dtype = (co_dtype)logits->dtype;
    if (logits->ndim == 0 ||
        (knows && !coi_merge_shape(outs, logits->u.tensor.dims, logits->ndim - 1)))
        return coi_invalid(
            call,
            "labels have shape %s and logits %s; labels must have the shape of logits "
            "without its last dimension, the classes",
            coi_shape_text(labels->u.tensor.dims, labels->ndim, a),
            coi_shape_text(logits->u.tensor.dims, logits->ndim, b));
    return CO_OK;
}

static co_code
cross_entropy_grad_infer(coi_call *call, coi_out *outs)
{
    const co_value *labels = call->in[0], *logits = call->in[1], *g = call->in[2];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    co_code         rc = cross_entropy_infer(call, outs);

    if (rc != CO_OK)
        return rc;
    if (g->dtype != logits->dtype || !coi_merge_shape(outs, g->u.tensor.dims, g->ndim))
        return coi_invalid(
            call, "g is %s %s; it must have the dtype of logits (%s) and the shape of labels %s",
            coi_dtypes[g->dtype].name, coi_shape_text(g->u.tensor.dims, g->ndim, a),
            coi_dtypes[logits->dtype].name, coi_shape_text(labels->u.tensor.dims, labels->ndim, b));
    if (coi_is_unknown_rank(logits)) {
        coi_out_insert(outs, outs->ndim, COI_UNKNOWN);
        return CO_OK;
    }
    coi_out_insert(outs, outs->ndim, logits->u.tensor.dims[logits->ndim - 1]);
    return CO_OK;
}

/* The losses, the exponentials and the sum of each row; halves would lose what is kept, so it is
 * nothing. */
static co_code
kept_infer(coi_call *call, coi_out *outs)
{
    const co_value *logits = call->in[1];
    co_code         rc = cross_entropy_infer(call, outs);

    if (rc == CO_OK && coi_is_half(logits)) {
        coi_out_vector(&outs[1], outs->dtype, 0);
        coi_out_vector(&outs[2], outs->dtype, 0);
    } else if (rc == CO_OK) {
        coi_out_like(&outs[1], logits);
        outs[2] = outs[0];
    }
    return rc;
}

static co_code
cross_entropy_gradient(coi_grad *grad)
{
    co_value *in[5] = { grad->in[0], grad->in[1], grad->upstream[0] };

    if (!grad->needed[1])
        return CO_OK;
    if (grad->num_out == 3 && !coi_is_half(grad->in[1])) {
        in[3] = grad->out[1];
        in[4] = grad->out[2];
        grad->grads[1] = coi_apply(grad->ctx, &coi_op_sparse_softmax_cross_entropy_training_grad,
                                   in, 5, NULL);
    } else {
        grad->grads[1] = coi_apply(grad->ctx, &coi_op_sparse_softmax_cross_entropy_grad, in, 3,
                                   NULL);
    }
    return grad->ctx->error.code;
}

/* (p - hot) g with p = softmax(logits) and upstream u: g p (u - sum(u p)) for logits, sum(u (p -
 * hot)) for g. What was kept is a function of logits, which has the whole derivative already. */
static co_code
cross_entropy_grad_gradient(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *labels = grad->in[0], *logits = grad->in[1], *g = grad->in[2];
    co_value   *u = grad->upstream[0], *p = co_softmax(ctx, logits, -1);
    int         last = -1;

    if (grad->needed[1])
        grad->grads[1] = co_mul(ctx, co_expand_dims(ctx, g, -1),
                                coi_apply2(ctx, &coi_op_softmax_grad, p, u,
                                           &(coi_softmax_attrs){ .axis = -1 }));
    if (grad->needed[2]) {
        co_value *const given[2] = { labels, logits };
        co_value       *hot = coi_apply_composite(ctx, &coi_op_one_hot_like, given, 2, NULL);

        grad->grads[2] = co_reduce_sum(ctx, co_mul(ctx, u, co_sub(ctx, p, hot)), &last, 1, false);
    }
    return ctx->error.code;
}

/* The four forms: with and without what is kept, forward and back. */
#define LABELS COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64)
#define FORWARD                                                                                    \
    .name = "sparse_softmax_cross_entropy_with_logits", .num_inputs = 2, .dtypes = LABELS,         \
    .inputs = { "labels", "logits" }, .upcasts = true, .run = coi_cross_entropy_run,               \
    .grad = cross_entropy_gradient
#define BACK                                                                                       \
    .name = "sparse_softmax_cross_entropy_grad", .num_outputs = 1, .dtypes = LABELS,               \
    .internal = true, .infer = cross_entropy_grad_infer, .upcasts = true,                          \
    .ref = coi_ref_cross_entropy_grad, .run = coi_cross_entropy_run,                               \
    .grad = cross_entropy_grad_gradient

const coi_op coi_op_sparse_softmax_cross_entropy_training = {
    FORWARD,
    .entry = "sparse_softmax_cross_entropy_training",
    .doc =
        "sparse_softmax_cross_entropy_with_logits while a tape is open, and the exponentials and "
        "sums that its gradient needs.",
    .internal = true,
    .not_by_name = true,
    .num_outputs = 3,
    .infer = kept_infer,
    .ref = coi_ref_cross_entropy,
};
const coi_op coi_op_sparse_softmax_cross_entropy_training_grad = {
    BACK,
    .entry = "sparse_softmax_cross_entropy_training_grad",
    .doc = "sparse_softmax_cross_entropy_grad from the exponentials and sums that were kept.",
    .not_by_name = true,
    .inputs = { "labels", "logits", "g", "exps", "sums" },
    .num_inputs = 5,
};

const coi_op coi_op_sparse_softmax_cross_entropy_with_logits = {
    FORWARD,
    .doc = "Cross entropy of softmax(logits) with integer labels, along the last dimension.",
    .num_outputs = 1,
    .infer = cross_entropy_infer,
    .ref = coi_ref_cross_entropy,
    .training = &coi_op_sparse_softmax_cross_entropy_training,
};
const coi_op coi_op_sparse_softmax_cross_entropy_grad = {
    BACK,
    .doc =
        "The gradient of sparse_softmax_cross_entropy_with_logits for logits, given that of its result.",
    .inputs = { "labels", "logits", "g" },
    .num_inputs = 3,
};

co_value *
co_sparse_softmax_cross_entropy(co_context *ctx, co_value *labels, co_value *logits)
{
    co_value *const in[2] = { labels, logits };
    co_value       *losses = NULL;

    coi_apply_many(ctx, &coi_op_sparse_softmax_cross_entropy_with_logits, in, 2, NULL, &losses);
    return losses;
}

/* --- labels that are probabilities --- */

/* [...] from [..., classes]; what is kept of halves is floats. */
static co_code
soft_infer(coi_call *call, coi_out *outs)
{
    coi_rule_same(call, outs);
    coi_out_drop(outs, outs->ndim - 1);
    return CO_OK;
}

static co_code
soft_kept_infer(coi_call *call, coi_out *outs)
{
    soft_infer(call, &outs[0]);
    coi_rule_same(call, &outs[1]);
    outs[2] = outs[0];
    if (coi_is_half(call->in[0]))
        outs[1].dtype = outs[2].dtype = CO_FLOAT32;
    return CO_OK;
}

const coi_op coi_op_softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .doc = "The gradient of softmax_cross_entropy_rows for logits, from what training kept.",
    .internal = true,
    .not_by_name = true,
    .inputs = { "labels", "logits", "g", "exps", "sums" },
    .num_inputs = 5,
    .num_outputs = 1,
    .not_differentiable = true,
    .infer = coi_rule_same,
    .upcasts = true,
    .ref = coi_ref_soft_cross_entropy_grad,
    .run = coi_cross_entropy_run,
};

/* The composite gradient: while a tape records it, and for the labels, which are rarely trained. */
static co_code
soft_gradient(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *in[5] = { grad->in[0], grad->in[1], grad->upstream[0], grad->out[1], grad->out[2] };
    const bool  labels[2] = { grad->needed[0], false };
    coi_grad    rest = *grad;

    if (!ctx->recording && grad->needed[1]) {
        grad->grads[1] = coi_apply(ctx, &coi_op_softmax_cross_entropy_grad, in, 5, NULL);
        rest.needed = labels;
    }
    rest.attrs = &(coi_softmax_attrs){ .axis = -1 };
    return coi_soft_cross_entropy_gradient(&rest);
}

#define SOFT                                                                                       \
    .name = "softmax_cross_entropy_with_logits", .inputs = { "labels", "logits" },                 \
    .num_inputs = 2, .upcasts = true, .ref = coi_ref_soft_cross_entropy,                           \
    .run = coi_cross_entropy_run, .internal = true, .not_by_name = true

const coi_op coi_op_softmax_cross_entropy_training = {
    SOFT,
    .entry = "softmax_cross_entropy_training",
    .doc =
        "softmax_cross_entropy_rows while a tape is open, and the exponentials and sums that its "
        "gradient needs.",
    .num_outputs = 3,
    .infer = soft_kept_infer,
    .grad = soft_gradient,
};
const coi_op coi_op_softmax_cross_entropy_rows = {
    SOFT,
    .entry = "softmax_cross_entropy_rows",
    .doc = "softmax_cross_entropy_with_logits along the last dimension, of operands of one shape.",
    .num_outputs = 1,
    .infer = soft_infer,
    .training = &coi_op_softmax_cross_entropy_training,
};

co_value *
coi_soft_cross_entropy(co_context *ctx, co_value *const *in)
{
    co_value *losses = NULL;

    coi_apply_many(ctx, &coi_op_softmax_cross_entropy_rows, in, 2, NULL, &losses);
    return losses;
}

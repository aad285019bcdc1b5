/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators with an epilogue, bias and activation: their rule, their gradient, and the operator
 * that an activation is when it stands alone. The kernel is in ops/kernels/drivers/epilogue.c.
 */
#include "ops/engine/epilogue_ops.h"

#include "ops/engine/type_rules.h"
#include "ops/kernels/epilogue.h"

/* Entries of other files. */
COI_USES_OP(elu)
COI_USES_OP(gelu)
COI_USES_OP(relu)
COI_USES_OP(relu6)
COI_USES_OP(selu)
COI_USES_OP(sigmoid)
COI_USES_OP(silu)
COI_USES_OP(softplus)
COI_USES_OP(softsign)
COI_USES_OP(tanh)

const char *const coi_activation_names[] = { "none", "relu",      "relu6",    "elu",      "selu",
                                             "tanh", "sigmoid",   "softplus", "softsign", "silu",
                                             "gelu", "gelu_tanh", NULL };

/* gelu has an attribute of one bool. */
static const bool exactly = false, by_tanh = true;

/* The operator that an activation is when it stands alone, and whether its gradient does without
 * its operand. */
typedef struct activation {
    const coi_op *op;
    const void   *attrs;
    bool          from_result;
} activation;

static const activation activations[] = {
    [CO_ACTIVATION_NONE] = { NULL, NULL, true },
    [CO_ACTIVATION_RELU] = { &coi_op_relu, NULL, true },
    [CO_ACTIVATION_RELU6] = { &coi_op_relu6, NULL, true },
    [CO_ACTIVATION_ELU] = { &coi_op_elu, NULL, true },
    [CO_ACTIVATION_SELU] = { &coi_op_selu, NULL, true },
    [CO_ACTIVATION_TANH] = { &coi_op_tanh, NULL, true },
    [CO_ACTIVATION_SIGMOID] = { &coi_op_sigmoid, NULL, true },
    [CO_ACTIVATION_SOFTPLUS] = { &coi_op_softplus, NULL, false },
    [CO_ACTIVATION_SOFTSIGN] = { &coi_op_softsign, NULL, false },
    [CO_ACTIVATION_SILU] = { &coi_op_silu, NULL, false },
    [CO_ACTIVATION_GELU] = { &coi_op_gelu, &exactly, false },
    [CO_ACTIVATION_GELU_TANH] = { &coi_op_gelu, &by_tanh, false },
};
enum { NUM_ACTIVATIONS = sizeof(activations) / sizeof(*activations) };

static bool
is_activation(int32_t which)
{
    return which >= 0 && which < NUM_ACTIVATIONS;
}

co_code
coi_epilogue_rule(coi_call *call, int32_t which, int64_t *columns)
{
    const co_value *bias = call->in[COI_BIAS];
    int64_t         room[CO_MAX_DIMS];
    const int64_t  *dims = coi_dims_of_rank(bias, 1, room);
    char            text[COI_SHAPE_TEXT];

    if (dims == NULL || !coi_merge_dim(columns, dims[0]))
        return coi_invalid(call,
                           "b has shape %s; it must have one element for each of %lld column%s",
                           coi_shape_text(bias->u.tensor.dims, bias->ndim, text),
                           (long long)*columns, COI_S(*columns));
    if (!is_activation(which))
        return coi_invalid(call, "activation is %d; give a CO_ACTIVATION_... (0 to %d)", (int)which,
                           NUM_ACTIVATIONS - 1);
    return CO_OK;
}

/* What flows into the sums before the activation. */
static co_value *
through_activation(coi_grad *grad, int32_t which, const void *bare)
{
    const activation *a = &activations[which];
    co_value         *result = grad->out[0], *operand = result, *into = NULL;
    bool              needed = true;
    coi_grad          step = { .ctx = grad->ctx,
                               .op = a->op,
                               .attrs = a->attrs,
                               .in = &operand,
                               .num_in = 1,
                               .out = &result,
                               .num_out = 1,
                               .upstream = grad->upstream,
                               .owns_upstream = grad->owns_upstream,
                               .needed = &needed,
                               .grads = &into };

    if (a->op == NULL)
        return grad->upstream[0];
    if (!a->from_result)
        operand = coi_apply(grad->ctx, grad->op, grad->in, grad->num_in, bare);
    return operand != NULL && a->op->grad(&step) == CO_OK ? into : NULL;
}

co_code
coi_epilogue_grad(coi_grad *grad, int32_t which, const void *bare,
                  co_code (*product)(coi_grad *grad))
{
    co_context *ctx = grad->ctx;
    co_value *up = through_activation(grad, which, bare), *const upstream[1] = { up };
    coi_grad step = *grad;

    if (up == NULL)
        return ctx->error.code;
    if (grad->needed[COI_BIAS]) {
        int axes[CO_MAX_DIMS];

        for (int i = 0; i < up->ndim - 1; ++i)
            axes[i] = i;
        grad->grads[COI_BIAS] = co_reduce_sum(ctx, up, axes, (size_t)(up->ndim - 1), false);
    }
    step.attrs = bare;
    step.num_in = COI_BIAS;
    step.upstream = upstream;
    return product(&step);
}

/* Halves are rounded once, tape or not: what would be kept for the gradient is rounded before the
 * activation. */
static bool
is_half(const co_context *ctx, const co_value *x)
{
    co_dtype dtype;

    if (x == NULL || !coi_is_live(&ctx->heap, x))
        return false;
    dtype = (co_dtype)(coi_is_variable(x) ? x->u.variable->dtype : x->dtype);
    return dtype == CO_FLOAT16 || dtype == CO_BFLOAT16;
}

co_value *
coi_apply_epilogue(co_context *ctx, const coi_op *op, co_value *const given[3], const void *attrs,
                   const void *bare, int32_t which)
{
    const activation *a = &activations[is_activation(which) ? which : 0];
    co_value         *sums;

    if (!ctx->recording || a->from_result || is_half(ctx, given[0]))
        return coi_apply(ctx, op, given, 3, attrs);
    sums = coi_apply(ctx, op, given, 3, bare);
    return sums != NULL ? coi_apply1(ctx, a->op, sums, a->attrs) : NULL;
}

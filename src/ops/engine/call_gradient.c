/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls on the tape of types. What a condition or a loop computes is known when it runs: then the
 * tape has the operators of the branch that ran, and of every round. While a function is captured
 * the tape has the call instead, and its gradients have the types of its operands.
 */
#include "ops/engine/call_recording.h"
#include "ops/engine/gradient.h"

/* The operands of a call that are watched, and their nodes. */
typedef struct watched_operands {
    co_value **in;
    uint32_t  *nodes;
    int        n;
} watched_operands;

static bool
is_floating(const co_value *value)
{
    return coi_dtypes[value->dtype].floating;
}

/* What the tape has for an operand, and its node; NULL, without an error, if none watches it. */
static co_value *
watched_operand(co_context *ctx, co_value *value, uint32_t *node)
{
    co_value *type = value;

    if (coi_is_variable(value)) {
        *node = coi_tape_variable(ctx, value);
        type = *node != COI_NO_NODE ? coi_fresh_type(ctx, value) : NULL;
        if (type != NULL)
            coi_tape_mark(ctx->tapes, type, *node);
    } else if (value->kind == CO_KIND_TENSOR || coi_is_type(value)) {
        *node = coi_tape_node(ctx, value, value);
    } else {
        *node = COI_NO_NODE;
    }
    return *node != COI_NO_NODE && type != NULL && is_floating(type) ? type : NULL;
}

static bool
record_results(co_context *ctx, const coi_op *op, const void *attrs, const watched_operands *given,
               co_value *result)
{
    bool ok = true;

    if (!coi_is_structure(result))
        return !coi_is_type(result) || !is_floating(result) ||
               coi_tape_record(ctx, op, attrs, op->attrs_rule.size, given->in, given->nodes,
                               given->n, &result, 1);
    for (size_t i = 0; ok && i < result->u.items.n; ++i)
        ok = record_results(ctx, op, attrs, given, result->u.items.items[i]);
    return ok;
}

bool
coi_tape_call(co_context *ctx, const coi_op *op, const void *attrs, co_value *const *in,
              size_t num_in, co_value *result)
{
    size_t           nbytes = (num_in + 1) * (sizeof(co_value *) + sizeof(uint32_t));
    watched_operands given = { NULL, NULL, 0 };
    bool             ok;

    if (!ctx->recording || num_in == 0)
        return true;
    given.in = coi_small_alloc(&ctx->heap, nbytes);
    if (given.in == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradient tape");
        return false;
    }
    given.nodes = (uint32_t *)(given.in + num_in + 1);
    for (size_t i = 0; i < num_in; ++i)
        if ((given.in[given.n] = watched_operand(ctx, in[i], &given.nodes[given.n])) != NULL)
            ++given.n;
    ok = ctx->error.code == CO_OK &&
         (given.n == 0 || record_results(ctx, op, attrs, &given, result));
    coi_small_free(&ctx->heap, given.in, nbytes);
    return ok;
}

co_code
coi_grad_of_call(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    size_t      n = (size_t)grad->num_in, nbytes = (n + 1) * sizeof(co_value *);
    co_value  **from;

    if (!ctx->infers_types)
        return coi_fail(ctx, CO_RUNTIME_ERROR,
                        "the gradient of %s was taken where there are tensors", grad->op->name);
    from = coi_small_alloc(&ctx->heap, nbytes);
    if (from == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradient tape");
    for (size_t i = 0; i < n; ++i)
        from[i] = grad->in[i];
    from[n] = grad->upstream[0];
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i)
        if (grad->needed[i]) {
            grad->grads[i] = coi_fresh_type(ctx, grad->in[i]);
            if (grad->grads[i] != NULL) /* gradients of gradients depend on all of these */
                coi_tape_call(ctx, grad->op, grad->attrs, from, n + 1, grad->grads[i]);
        }
    coi_small_free(&ctx->heap, from, nbytes);
    return ctx->error.code;
}

bool
coi_tape_has_calls(const co_context *ctx)
{
    const coi_tape_log *log = ctx->tapes;

    for (size_t i = 0; log != NULL && i < log->num_records; ++i)
        if (log->records[i].op->replay != NULL)
            return true;
    return false;
}

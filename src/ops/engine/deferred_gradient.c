/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gradient that is taken where there are tensors. Over types it is one entry,
 * `deferred_gradient`: its inputs are those of the operator, its results, and what flows into them;
 * its own results are the gradients, each of the type of its operand. It stands where the steps of
 * a gradient depend on a rank or dimension that is not known: permutations, and choices between two
 * ways. With tensors it takes the very steps that an eager gradient takes, so it has the same bits.
 *
 * A composite operator without a gradient of its own, recorded as one entry, is computed again for
 * its gradient, on a tape of its own: the parts of the first time are gone.
 */
#include "ops/engine/composite.h"
#include "ops/engine/gradient.h"
#include "ops/engine/type_rules.h"

#include <cohort/gradient.h>
#include <string.h>

/* Which gradient. What the pointers lead to is the caller's, or that of `copy`. */
typedef struct deferred_attrs {
    const coi_op *op;
    int32_t       num_in, num_out;
    bool          recording; /* a tape was open: some operators have other steps then */
    const bool   *needed;    /* num_in */
    const bool   *flows;     /* num_out: whether something flows into the result */
    const void   *attrs;     /* of op */
} deferred_attrs;

static size_t
room_of(const deferred_attrs *attrs)
{
    return COI_MAX_ATTRS + (size_t)(attrs->num_in + attrs->num_out) * sizeof(bool);
}

static bool
deferred_copy(coi_heap *heap, void *to, const void *from)
{
    deferred_attrs       *copy = to;
    const deferred_attrs *given = from;
    const coi_attrs_rule *rule = &given->op->attrs_rule;
    char                 *room = coi_small_alloc(heap, room_of(given));
    bool                 *flags;

    if (room == NULL)
        return false;
    *copy = *given;
    if (rule->size > 0)
        memcpy(room, given->attrs, rule->size);
    if (rule->copy != NULL && !rule->copy(heap, room, given->attrs)) {
        coi_small_free(heap, room, room_of(given));
        return false;
    }
    flags = (bool *)(room + COI_MAX_ATTRS);
    memcpy(flags, given->needed, (size_t)given->num_in * sizeof(bool));
    memcpy(flags + given->num_in, given->flows, (size_t)given->num_out * sizeof(bool));
    copy->attrs = room;
    copy->needed = flags;
    copy->flows = flags + given->num_in;
    return true;
}

static void
deferred_destroy(coi_heap *heap, void *attrs)
{
    deferred_attrs *deferred = attrs;
    void           *room = (void *)(uintptr_t)deferred->attrs;

    if (deferred->op->attrs_rule.destroy != NULL)
        deferred->op->attrs_rule.destroy(heap, room);
    coi_small_free(heap, room, room_of(deferred));
}

static int
count(const bool *flags, int n)
{
    int found = 0;

    for (int i = 0; i < n; ++i)
        found += flags[i];
    return found;
}

/* An operator that is computed again needs no results. */
static int
num_given_results(const deferred_attrs *attrs)
{
    return attrs->op->grad != NULL ? attrs->num_out : 0;
}

static co_code
deferred_rule(coi_call *call, coi_out *outs)
{
    const deferred_attrs *attrs = call->attrs;
    int expected = attrs->num_in + num_given_results(attrs) + count(attrs->flows, attrs->num_out);

    (void)outs;
    if (call->num_in != expected)
        return coi_invalid(call, "%d inputs for the gradient of %s; it takes %d", call->num_in,
                           attrs->op->name, expected);
    call->num_out = count(attrs->needed, attrs->num_in);
    return CO_OK;
}

/* A gradient has the type of its operand. */
static void
deferred_result(coi_call *call, int64_t i, coi_out *out)
{
    const deferred_attrs *attrs = call->attrs;
    int                   at = 0;

    while (!attrs->needed[at] || i-- > 0)
        ++at;
    coi_out_like(out, call->in[at]);
}

/* The results into which something flows, and what does. */
static size_t
take_targets(const coi_grad *g, co_value *result, co_value **targets, co_value **given)
{
    size_t n = 0;

    for (int i = 0; result != NULL && i < g->num_out; ++i)
        if (g->upstream[i] != NULL) {
            targets[n] = result->kind == CO_KIND_TUPLE ? co_at(g->ctx, result, (size_t)i) : result;
            given[n++] = g->upstream[i];
        }
    return n;
}

/* The operator again, on copies of its operands, of which one may stand there twice. */
static void
differentiate_again(coi_grad *g, co_value **in, co_value **sources, co_value **targets)
{
    co_context *ctx = g->ctx;
    co_value  **given = targets + g->num_out, *result;
    size_t      num_sources = 0, num_targets;

    for (int i = 0; i < g->num_in; ++i)
        in[i] = co_identity(ctx, g->in[i]);
    co_tape_begin(ctx);
    for (int i = 0; i < g->num_in; ++i)
        if (g->needed[i]) {
            co_watch(ctx, in[i]);
            sources[num_sources++] = in[i];
        }
    result = coi_apply_composite(ctx, g->op, in, g->num_in, g->attrs);
    num_targets = take_targets(g, result, targets, given);
    if (ctx->error.code != CO_OK)
        coi_tape_spend(ctx);
    else if (coi_gradients(ctx, targets, num_targets, given, sources, num_sources, true) == CO_OK)
        for (int i = g->num_in; i-- > 0;)
            if (g->needed[i])
                g->grads[i] = sources[--num_sources];
}

static void
differentiate_parts(coi_grad *g)
{
    size_t     n = 2 * (size_t)(g->num_in + g->num_out);
    co_value **room = coi_parts(g->ctx, g->op->name, n);

    if (room == NULL)
        return;
    differentiate_again(g, room, room + g->num_in, room + 2 * (size_t)g->num_in);
    coi_free_parts(g->ctx, room, n);
}

/* The gradients of the inputs that want one, as tensors. */
static co_value *
dense_tuple(const coi_grad *g, size_t num_needed)
{
    co_context *ctx = g->ctx;
    co_value  **parts = ctx->error.code == CO_OK ? coi_parts(ctx, g->op->name, num_needed) : NULL;
    size_t      at = 0;

    if (parts == NULL)
        return NULL;
    for (int i = 0; i < g->num_in; ++i)
        if (g->needed[i])
            parts[at++] = g->grads[i] != NULL ? coi_densify(ctx, g->grads[i])
                                              : co_zeros_like(ctx, g->in[i]);
    return coi_tuple_of_parts(ctx, parts, num_needed);
}

/* `room` is for the gradients and for what flows in. */
static co_value *
take_gradient(coi_call *call, co_value **room)
{
    const deferred_attrs *attrs = call->attrs;
    co_context           *ctx = call->ctx;
    co_value            **upstream = room + attrs->num_in, *result;
    bool                  opens_tape = attrs->recording && !ctx->recording;
    int                   at = attrs->num_in + num_given_results(attrs);
    coi_grad              g = { .ctx = ctx,
                                .op = attrs->op,
                                .attrs = attrs->attrs,
                                .in = call->in,
                                .num_in = attrs->num_in,
                                .out = call->in + attrs->num_in,
                                .num_out = attrs->num_out,
                                .upstream = upstream,
                                .needed = attrs->needed,
                                .grads = room };

    for (int i = 0; i < attrs->num_in; ++i)
        g.grads[i] = NULL;
    for (int i = 0; i < attrs->num_out; ++i)
        upstream[i] = attrs->flows[i] ? call->in[at++] : NULL;
    if (opens_tape)
        co_tape_begin(ctx);
    if (attrs->op->grad != NULL)
        attrs->op->grad(&g);
    else
        differentiate_parts(&g);
    result = dense_tuple(&g, (size_t)count(attrs->needed, attrs->num_in));
    if (opens_tape)
        coi_tape_spend(ctx);
    return result;
}

static co_value *
deferred_composite(coi_call *call)
{
    const deferred_attrs *attrs = call->attrs;
    size_t                n = (size_t)attrs->num_in + (size_t)attrs->num_out;
    co_value            **room = coi_parts(call->ctx, attrs->op->name, n), *result;

    if (room == NULL)
        return NULL;
    result = take_gradient(call, room);
    coi_free_parts(call->ctx, room, n);
    return result;
}

/* With tensors only: their parts are those of other operators. */
static bool
never(const coi_call *call)
{
    (void)call;
    return false;
}

const coi_op coi_op_deferred_gradient = {
    COI_COMPOSED_TUPLE(0, "deferred_gradient",
                       "The gradient of an operator, computed when there are tensors.", "xs"),
    .variadic = true,
    .internal = true,
    .not_by_name = true,
    .attrs_rule = { COI_ATTRS_SIZE(deferred_attrs), deferred_copy, deferred_destroy },
    .infer = deferred_rule,
    .infer_result = deferred_result,
    .composite = deferred_composite,
    .parts_are_known = never,
};

/* Which inputs want a gradient and can have one; whether any does. */
static bool
find_reached(const coi_grad *grad, bool *reached)
{
    int  limit = grad->op->num_reached;
    bool any = false;

    if (limit <= 0)
        limit += grad->num_in;
    for (int i = 0; i < grad->num_in; ++i) {
        reached[i] = grad->needed[i] && i < limit;
        any = any || reached[i];
    }
    return any;
}

/* `given` has room for the inputs, and `flows` for the results. */
static co_code
defer(coi_grad *grad, co_value **given, bool *flows, bool *reached)
{
    co_context    *ctx = grad->ctx;
    deferred_attrs attrs = { grad->op, grad->num_in, grad->num_out, ctx->recording,
                             reached,  flows,        grad->attrs };
    int            n = 0, at = 0;
    co_value      *result;

    if (!find_reached(grad, reached))
        return CO_OK;

    for (int i = 0; i < grad->num_in; ++i)
        given[n++] = grad->in[i];
    for (int i = 0; i < num_given_results(&attrs); ++i)
        given[n++] = grad->out[i];
    for (int i = 0; i < grad->num_out; ++i) {
        flows[i] = grad->upstream[i] != NULL;
        if (flows[i])
            given[n++] = grad->upstream[i];
    }
    result = coi_apply_composite(ctx, &coi_op_deferred_gradient, given, n, &attrs);
    for (int i = 0; result != NULL && i < grad->num_in; ++i)
        if (reached[i])
            grad->grads[i] = co_at(ctx, result, (size_t)at++);
    return ctx->error.code;
}

co_code
coi_defer_gradient(coi_grad *grad)
{
    size_t     num_in = (size_t)grad->num_in, num_out = (size_t)grad->num_out;
    size_t     given = num_in + 2 * num_out;
    size_t     n = given + num_in + num_out; /* flags: less than a pointer */
    co_value **room = coi_parts(grad->ctx, grad->op->name, n);
    bool      *flags;
    co_code    code;

    if (room == NULL)
        return grad->ctx->error.code;
    flags = (bool *)(void *)(room + given);
    code = defer(grad, room, flags, flags + grad->num_out);
    coi_free_parts(grad->ctx, room, n);
    return code;
}

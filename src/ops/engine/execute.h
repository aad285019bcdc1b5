/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of an entry of the operator table. Operators that compute tensors from tensors start
 * their kernels in apply.c. Entries with an effect act on a resource (a variable, the other
 * replicas, an iterator); they start here, from the folder that owns the resource and the entry.
 * Both pass the observers of the runtime (observe.c), and there is no third way.
 */
#ifndef COI_OPS_ENGINE_EXECUTE_H
#define COI_OPS_ENGINE_EXECUTE_H

#include "ops/engine/op.h"

/* The first member of what an effect works on: how it is shown to observers. */
struct coi_effect {
    const void *const *resources; /* variables or iterators */
    size_t             num_resources;
    co_value *const   *in; /* what of it is no tensor is not shown */
    size_t             num_in;
    co_value *const   *out; /* filled by the effect; NULL entries are not shown */
    size_t             num_out;
    const co_device   *device; /* that it runs on; NULL: the current one */
};

/* Whether a kernel is started with more than a call: a log line, an observer, plain kernels. */
static inline bool
coi_is_special(const co_context *ctx)
{
    return ctx->special != 0 || coi_is_observed(ctx);
}

/* observe.c. Whether this thread works for an observer, which is told nothing of what it starts
 * itself. Asked where there are observers. */
bool coi_is_in_observer(const co_context *ctx);

/* An entry that acts on a resource; more fields may follow. */
#define COI_EFFECT(name_, doc_, effect_, reads_, writes_)                                          \
    .name = name_, .doc = doc_, .internal = true, .not_differentiable = true, .reads = (reads_),   \
    .writes = (writes_), .effect = effect_

/* observe.c. The same where coi_is_special: shown to observers, and refused while a function is
 * captured, because calls with an effect are recorded then (call_recording.h). */
co_code coi_execute_specially(co_context *ctx, const coi_op *op, coi_effect *effect);

/* Run an entry that has an effect. Where `op` is a constant this is a direct call of its function.
 */
static inline co_code
coi_execute(co_context *ctx, const coi_op *op, coi_effect *effect)
{
    return coi_is_special(ctx) ? coi_execute_specially(ctx, op, effect) : op->effect(ctx, effect);
}

/*
 * Entries whose effect is a function of their folder with an argument of its own: effect is
 * coi_body_effect, and coi_execute_body runs one. The function returns false with an error in ctx.
 */
typedef bool (*coi_body_fn)(co_context *ctx, void *arg);
typedef struct coi_body {
    coi_effect  effect;
    coi_body_fn fn;
    void       *arg;
} coi_body;
co_code coi_body_effect(co_context *ctx, coi_effect *effect);
static inline bool
coi_execute_body(co_context *ctx, const coi_op *op, coi_effect shown, coi_body_fn fn, void *arg)
{
    coi_body body = { shown, fn, arg };

    return coi_is_special(ctx) ? coi_execute_specially(ctx, op, &body.effect) == CO_OK
                               : fn(ctx, arg);
}

/* One start of a kernel or an effect, from its begin to its end. */
typedef struct coi_observed {
    uint64_t id, began_ns;
} coi_observed;

/* Tell the observers of a kernel (coi_observe_call) that begins or ended with `code`. */
void coi_observe_begin(const coi_call *call, const char *kernel, coi_observed *seen);
void coi_observe_end(const coi_call *call, const char *kernel, const coi_observed *seen,
                     co_code code);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observers: the public calls, and the descriptions that observers get. The start of a kernel is
 * described on the stack and passed to each of a few fixed slots. Nothing here runs without an
 * observer.
 *
 * co_unobserve must know when a function is not called any more. So a caller increments a count
 * before it reads the function from its slot, and co_unobserve clears the slot and waits until the
 * count is zero.
 */
#include <cohort/observe.h>

#include "ops/engine/execute.h"

#include <string.h>
#include <time.h>

/* Tensors of one start that are shown; more than these are operands of concat and its like. */
enum { MOST_TENSORS = 16, WAIT_MS = 5000 };

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

typedef struct description {
    co_observation     seen;
    co_observed_tensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
} description;

static size_t
describe_tensors(co_value *const *values, size_t n, co_observed_tensor *out, size_t *nbytes)
{
    size_t shown = 0;

    for (size_t i = 0; i < n && shown < MOST_TENSORS; ++i) {
        const co_value *value = values[i];

        if (value == NULL || value->kind != CO_KIND_TENSOR)
            continue;
        out[shown] = (co_observed_tensor){ .dtype = (co_dtype)value->dtype,
                                           .ndim = value->ndim,
                                           .dims = value->u.tensor.dims,
                                           .nbytes = coi_tensor_nbytes(value) };
        *nbytes += out[shown++].nbytes;
    }
    return shown;
}

/* What all starts have. */
static void
describe(description *d, const co_context *ctx, const coi_op *op, const coi_observed *start)
{
    d->seen = (co_observation){ .struct_size = sizeof(d->seen),
                                .id = start->id,
                                .op = op->name,
                                .call = ctx->call,
                                .file = ctx->site.file,
                                .line = ctx->site.line,
                                .device = ctx->device != NULL ? ctx->device->name : NULL,
                                .replica = coi_in_replica(ctx) ? ctx->mode.replica : -1,
                                .depth = ctx->depth,
                                .reads = op->reads,
                                .writes = op->writes,
                                .inputs = d->inputs,
                                .outputs = d->outputs };
}

static void
show(co_context *ctx, const co_observation *seen)
{
    coi_lend(ctx, &coi_lent_to_observer);
    for (int i = 0; i < COI_MAX_OBSERVERS; ++i) {
        struct co_observer *observer = &ctx->runtime->observers[i];
        co_observe_fn       fn;

        atomic_fetch_add(&observer->busy, 1);
        fn = atomic_load(&observer->fn);
        if (fn != NULL)
            fn(seen, observer->user);
        atomic_fetch_sub(&observer->busy, 1);
    }
    coi_take_back(ctx);
}

/* The numbers of a start that has just begun. */
static void
begin(co_context *ctx, description *d, coi_observed *start)
{
    start->id = atomic_fetch_add(&ctx->runtime->next_start, 1) + 1;
    start->began_ns = now_ns();
    d->seen.phase = CO_OBSERVE_BEGIN;
    d->seen.id = start->id;
    show(ctx, &d->seen);
}

static void
end(co_context *ctx, description *d, const coi_observed *start, co_code code)
{
    d->seen.phase = CO_OBSERVE_END;
    d->seen.ns = (int64_t)(now_ns() - start->began_ns);
    d->seen.code = code;
    show(ctx, &d->seen);
}

static void
describe_call(description *d, const coi_call *call, const char *kernel, const coi_observed *start)
{
    describe(d, call->ctx, call->op, start);
    d->seen.device = call->device->name;
    d->seen.kernel = kernel;
    d->seen.num_inputs = describe_tensors(call->in, (size_t)call->num_in, d->inputs,
                                          &d->seen.nbytes);
    d->seen.num_outputs = describe_tensors(call->out, (size_t)call->num_out, d->outputs,
                                           &d->seen.nbytes);
}

void
coi_observe_begin(const coi_call *call, const char *kernel, coi_observed *start)
{
    description d;

    *start = (coi_observed){ 0, 0 };
    if (!coi_is_observed(call->ctx))
        return;
    describe_call(&d, call, kernel, start);
    begin(call->ctx, &d, start);
}

void
coi_observe_end(const coi_call *call, const char *kernel, const coi_observed *start, co_code code)
{
    description d;

    if (start->id == 0) /* it began before anybody observed */
        return;
    describe_call(&d, call, kernel, start);
    end(call->ctx, &d, start, code);
}

static void
describe_effect(description *d, const co_context *ctx, const coi_op *op, const coi_effect *effect,
                const coi_observed *start)
{
    describe(d, ctx, op, start);
    d->seen.num_resources = effect->num_resources;
    d->seen.resources = effect->resources;
    d->seen.num_inputs = describe_tensors(effect->in, effect->num_in, d->inputs, &d->seen.nbytes);
    d->seen.num_outputs = describe_tensors(effect->out, effect->num_out, d->outputs,
                                           &d->seen.nbytes);
}

co_code
coi_execute_observed(co_context *ctx, const coi_op *op, coi_effect *effect)
{
    const char  *call = ctx->call;
    coi_observed start = { 0, 0 };
    description  d;
    co_code      rc;

    describe_effect(&d, ctx, op, effect, &start);
    d.seen.num_outputs = 0; /* not made yet */
    begin(ctx, &d, &start);
    ++ctx->depth;
    rc = op->effect(ctx, effect);
    --ctx->depth;
    describe_effect(&d, ctx, op, effect, &start);
    d.seen.call = call;
    end(ctx, &d, &start, rc);
    return rc;
}

co_code
coi_body_effect(co_context *ctx, coi_effect *effect)
{
    const coi_body *body = (const coi_body *)(const void *)effect;

    if (body->fn(ctx, body->arg))
        return CO_OK;
    return ctx->error.code != CO_OK ? ctx->error.code : CO_UNKNOWN;
}

co_observer *
co_observe(co_context *ctx, co_observe_fn fn, void *user)
{
    coi_runtime *runtime;
    co_observer *made = NULL;

    COI_ENTER(ctx, "observe", NULL);
    if (fn == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 of observe, fn, is NULL");
        return NULL;
    }
    runtime = ctx->runtime;
    pthread_mutex_lock(&runtime->lock);
    for (int i = 0; i < COI_MAX_OBSERVERS && made == NULL; ++i)
        if (atomic_load(&runtime->observers[i].fn) == NULL &&
            atomic_load(&runtime->observers[i].busy) == 0)
            made = &runtime->observers[i];
    if (made != NULL) {
        made->user = user;
        atomic_store(&made->fn, fn);
        atomic_store(&runtime->observed, true);
    }
    pthread_mutex_unlock(&runtime->lock);
    if (made == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED,
                 "%d functions observe this runtime already; end one with co_unobserve",
                 COI_MAX_OBSERVERS);
    return made;
}

/* Whether nobody is inside an observer any more, within the time. */
static bool
wait_until_idle(struct co_observer *observer)
{
    const struct timespec pause = { 0, 100000 };

    for (int ms10 = 0; ms10 < WAIT_MS * 10; ++ms10) {
        if (atomic_load(&observer->busy) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

co_code
co_unobserve(co_context *ctx, co_observer *observer)
{
    coi_runtime *runtime;
    bool         found = false, any = false;

    COI_ENTER_ALWAYS(ctx, "unobserve", CO_INVALID_ARGUMENT);
    runtime = ctx->runtime;
    pthread_mutex_lock(&runtime->lock);
    for (int i = 0; i < COI_MAX_OBSERVERS; ++i) {
        if (&runtime->observers[i] == observer &&
            atomic_exchange(&runtime->observers[i].fn, NULL) != NULL)
            found = true;
        any = any || atomic_load(&runtime->observers[i].fn) != NULL;
    }
    atomic_store(&runtime->observed, any);
    pthread_mutex_unlock(&runtime->lock);
    if (!found)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 2 of unobserve is no observer of this runtime; it was ended "
                        "before, or is of another");
    if (!wait_until_idle(observer))
        return coi_fail(ctx, CO_DEADLINE_EXCEEDED,
                        "the function of the observer has not returned for %d s; it is not called "
                        "any more, but what it uses may not be freed yet",
                        WAIT_MS / 1000);
    return CO_OK;
}

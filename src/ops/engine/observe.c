/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observers: the public calls, and the descriptions that observers get. The start of a kernel is
 * described on the stack and passed to each of a few fixed slots. Nothing here runs without an
 * observer.
 *
 * co_unobserve must know when a function is not called any more. So a caller increments a count
 * before it reads the function from its slot, and co_unobserve clears the slot and waits until the
 * count is zero.
 *
 * A function that starts entries itself, on a context of its own, must not be called for them: it
 * would never end. Which thread is inside a function is in a list of the runtime, and an entry that
 * starts on such a thread is not shown. The replicas of a run and the workers of a dataset that a
 * function begins have other threads; their contexts are marked instead.
 */
#include <cohort/observe.h>

#include "ops/engine/call_recording.h"
#include "ops/engine/kernel_recording.h"

#include <string.h>
#include <time.h>

/* More tensors than these, operands of concat and its like, are described in memory of the heap. */
enum { FEW_TENSORS = 16, WAIT_S = 5 };

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

typedef struct tensors {
    co_observed_tensor few[FEW_TENSORS], *all;
    size_t             n, room; /* bytes taken from the heap when there are many */
} tensors;

typedef struct description {
    co_observation seen;
    tensors        inputs, outputs;
} description;

/* All of them; without memory for many, a few. */
static void
describe_tensors(co_context *ctx, co_value *const *values, size_t n, tensors *out, size_t *nbytes)
{
    size_t most = FEW_TENSORS;

    out->all = out->few;
    out->n = out->room = 0;
    if (n > FEW_TENSORS && (out->all = coi_small_alloc(&ctx->heap, n * sizeof(*out->all))) != NULL)
        out->room = (most = n) * sizeof(*out->all);
    else
        out->all = out->few;
    for (size_t i = 0; i < n; ++i) {
        const co_value *value = values[i];

        if (value == NULL || value->kind != CO_KIND_TENSOR)
            continue;
        *nbytes += coi_tensor_nbytes(value);
        if (out->n < most)
            out->all[out->n++] = (co_observed_tensor){ .dtype = (co_dtype)value->dtype,
                                                       .ndim = value->ndim,
                                                       .dims = value->u.tensor.dims,
                                                       .nbytes = coi_tensor_nbytes(value),
                                                       .device = value->u.tensor.device->name };
    }
}

/* Inputs and outputs; they are given back by drop_tensors. */
static void
describe_operands(description *d, co_context *ctx, co_value *const *in, size_t num_in,
                  co_value *const *out, size_t num_out)
{
    describe_tensors(ctx, in, num_in, &d->inputs, &d->seen.nbytes);
    describe_tensors(ctx, out, num_out, &d->outputs, &d->seen.nbytes);
    d->seen.num_inputs = d->inputs.n;
    d->seen.inputs = d->inputs.all;
    d->seen.num_outputs = d->outputs.n;
    d->seen.outputs = d->outputs.all;
}

static void
drop_tensors(co_context *ctx, tensors *described)
{
    if (described->room > 0)
        coi_small_free(&ctx->heap, described->all, described->room);
}

/* What all starts have. */
static void
describe(description *d, const co_context *ctx, const coi_op *op, const coi_observed *start)
{
    d->seen = (co_observation){ .struct_size = sizeof(d->seen),
                                .id = start->id,
                                .op = coi_entry_name(op),
                                .call = ctx->call,
                                .file = ctx->site.file,
                                .line = ctx->site.line,
                                .device = ctx->device != NULL ? ctx->device->name : NULL,
                                .replica = coi_in_replica(ctx) ? ctx->mode.replica : -1,
                                .depth = ctx->depth,
                                .reads = op->reads,
                                .writes = op->writes,
                                .context = ctx };
}

static void
enter_observers(coi_runtime *runtime, struct coi_observing *self)
{
    self->thread = pthread_self();
    coi_lock_take(&runtime->observing_lock);
    self->next = runtime->observing;
    runtime->observing = self;
    coi_lock_give(&runtime->observing_lock);
}

static void
leave_observers(coi_runtime *runtime, struct coi_observing *self)
{
    struct coi_observing **at = &runtime->observing;

    coi_lock_take(&runtime->observing_lock);
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    coi_lock_give(&runtime->observing_lock);
}

bool
coi_is_in_observer(const co_context *ctx)
{
    coi_runtime                *runtime = ctx->runtime;
    const struct coi_observing *at;

    if (ctx->unobserved || coi_is_forked(&ctx->heap)) /* where the lock may be taken for ever */
        return true;
    coi_lock_take(&runtime->observing_lock);
    at = runtime->observing;
    while (at != NULL && !pthread_equal(at->thread, pthread_self()))
        at = at->next;
    coi_lock_give(&runtime->observing_lock);
    return at != NULL;
}

/* The description is given back. */
static void
show(co_context *ctx, description *d)
{
    struct coi_observing self;

    enter_observers(ctx->runtime, &self);
    coi_lend(ctx, &coi_lent_to_observer);
    for (int i = 0; i < COI_MAX_OBSERVERS; ++i) {
        struct co_observer *observer = &ctx->runtime->observers[i];
        co_observe_fn       fn;

        atomic_fetch_add(&observer->busy, 1);
        fn = atomic_load(&observer->fn);
        if (fn != NULL)
            fn(&d->seen, observer->user);
        atomic_fetch_sub(&observer->busy, 1);
    }
    coi_take_back(ctx);
    leave_observers(ctx->runtime, &self);
    drop_tensors(ctx, &d->inputs);
    drop_tensors(ctx, &d->outputs);
}

/* The numbers of a start that has just begun. */
static void
begin(co_context *ctx, description *d, coi_observed *start)
{
    start->id = atomic_fetch_add(&ctx->runtime->next_start, 1) + 1;
    start->began_ns = now_ns();
    d->seen.phase = CO_OBSERVE_BEGIN;
    d->seen.id = start->id;
    show(ctx, d);
}

static void
end(co_context *ctx, description *d, const coi_observed *start, co_code code)
{
    d->seen.phase = CO_OBSERVE_END;
    d->seen.ns = (int64_t)(now_ns() - start->began_ns);
    d->seen.code = code;
    show(ctx, d);
}

static void
describe_call(description *d, const coi_call *call, const char *kernel, const coi_observed *start)
{
    describe(d, call->ctx, call->op, start);
    d->seen.device = call->device->name;
    d->seen.kernel = kernel;
    describe_operands(d, call->ctx, call->in, (size_t)call->num_in, call->out,
                      (size_t)call->num_out);
}

void
coi_observe_begin(const coi_call *call, const char *kernel, coi_observed *start)
{
    description d;

    *start = (coi_observed){ 0, 0 };
    if (!coi_is_observed(call->ctx) || coi_is_in_observer(call->ctx))
        return;
    describe_call(&d, call, kernel, start);
    begin(call->ctx, &d, start);
}

void
coi_observe_end(const coi_call *call, const char *kernel, const coi_observed *start, co_code code)
{
    description d;

    if (start->id == 0) /* it was not shown when it began */
        return;
    describe_call(&d, call, kernel, start);
    end(call->ctx, &d, start, code);
}

static void
describe_effect(description *d, co_context *ctx, const coi_op *op, const coi_effect *effect,
                size_t num_out, const coi_observed *start)
{
    describe(d, ctx, op, start);
    if (effect->device != NULL)
        d->seen.device = effect->device->name;
    d->seen.num_resources = effect->num_resources;
    d->seen.resources = effect->resources;
    describe_operands(d, ctx, effect->in, effect->num_in, effect->out, num_out);
}

static co_code
execute_observed(co_context *ctx, const coi_op *op, coi_effect *effect)
{
    const char  *call = ctx->call;
    coi_observed start = { 0, 0 };
    description  d;
    co_code      rc;

    if (coi_is_in_observer(ctx))
        return op->effect(ctx, effect);
    describe_effect(&d, ctx, op, effect, 0, &start); /* outputs are not made yet */
    begin(ctx, &d, &start);
    ++ctx->depth;
    ctx->unobserved = op->holds_locks;
    rc = op->effect(ctx, effect);
    ctx->unobserved = false;
    --ctx->depth;
    describe_effect(&d, ctx, op, effect, effect->num_out, &start);
    d.seen.call = call;
    end(ctx, &d, &start, rc);
    return rc;
}

co_code
coi_execute_specially(co_context *ctx, const coi_op *op, coi_effect *effect)
{
    if (coi_is_capturing(ctx) && (op->reads | op->writes) != 0)
        return coi_fail(ctx, CO_UNIMPLEMENTED,
                        "%s cannot be captured in a function; call it outside, and pass its result "
                        "to the function",
                        ctx->call);
    if (!op->is_recordable && coi_end_recording(ctx, op->name) != CO_OK)
        return ctx->error.code;
    return coi_is_observed(ctx) && !coi_records_kernels(ctx) ? execute_observed(ctx, op, effect)
                                                             : op->effect(ctx, effect);
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
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (fn) of observe is NULL; it must be a function");
        return NULL;
    }
    runtime = ctx->runtime;
    pthread_mutex_lock(&runtime->lock);
    for (int i = 0; i < COI_MAX_OBSERVERS && made == NULL; ++i)
        if (!runtime->observers[i].is_taken)
            made = &runtime->observers[i];
    if (made != NULL) {
        made->is_taken = true;
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
    uint64_t              until = now_ns() + WAIT_S * UINT64_C(1000000000);

    while (atomic_load(&observer->busy) > 0) {
        if (now_ns() >= until)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* With the lock of the runtime. */
static void
set_observed(coi_runtime *runtime)
{
    bool any = false;

    for (int i = 0; i < COI_MAX_OBSERVERS; ++i)
        any = any || atomic_load(&runtime->observers[i].fn) != NULL;
    atomic_store(&runtime->observed, any);
}

/* It is not called any more, from the next start on; false for what is none. */
static bool
end_calls(coi_runtime *runtime, const co_observer *observer)
{
    bool found = false;

    pthread_mutex_lock(&runtime->lock);
    for (int i = 0; i < COI_MAX_OBSERVERS; ++i)
        if (&runtime->observers[i] == observer && runtime->observers[i].is_taken) {
            found = true;
            atomic_store(&runtime->observers[i].fn, NULL);
        }
    set_observed(runtime);
    pthread_mutex_unlock(&runtime->lock);
    return found;
}

static void
give_back(coi_runtime *runtime, co_observer *observer)
{
    pthread_mutex_lock(&runtime->lock);
    observer->is_taken = false;
    pthread_mutex_unlock(&runtime->lock);
}

co_code
co_unobserve(co_context *ctx, co_observer *observer)
{
    COI_ENTER_ALWAYS(ctx, "unobserve", CO_INVALID_ARGUMENT);
    if (!end_calls(ctx->runtime, observer))
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 2 of unobserve is no observer of this runtime; it was ended "
                        "before, or is of another");
    if (!wait_until_idle(observer))
        return coi_fail(ctx, CO_DEADLINE_EXCEEDED,
                        "the function of the observer has not returned for %d s; it is not called "
                        "any more, but what it uses may not be freed yet: call co_unobserve again",
                        WAIT_S);
    give_back(ctx->runtime, observer);
    return CO_OK;
}

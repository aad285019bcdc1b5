/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first error of a context. A record is written once and kept until co_clear; a payload goes
 * with it and is deleted when the record dies.
 */
#include "context/context.h"

#include <string.h>
#include <unistd.h>

#ifdef COI_DEBUG
static uint64_t
this_thread(void)
{
    return (uint64_t)pthread_self();
}

/*
 * A thread marks the context while it is inside a call; calls nest on one thread. A call of another
 * thread that finds the mark does nothing but leave a note, which becomes an error when the first
 * thread leaves.
 */
bool
coi_enter(co_context *ctx)
{
    unsigned long long idle = 0, me = this_thread(), only;

    if (ctx == NULL || ctx->runtime == NULL)
        return false;
    only = atomic_load(&ctx->only_thread);
    if ((only != 0 && only != me) ||
        (atomic_load(&ctx->busy_thread) != me &&
         !atomic_compare_exchange_strong(&ctx->busy_thread, &idle, me))) {
        atomic_store(&ctx->intruded, true);
        return false;
    }
    ++ctx->busy_depth;
    return ctx->lent == NULL;
}

bool
coi_is_intruder(const co_context *ctx)
{
    unsigned long long busy = atomic_load(&ctx->busy_thread);

    return busy != 0 && busy != this_thread();
}

void
coi_bind(co_context *ctx, bool bound)
{
    atomic_store(&ctx->only_thread, bound ? this_thread() : 0);
}

void
coi_leave(co_context **guard)
{
    co_context *ctx = *guard;

    if (ctx == NULL || atomic_load(&ctx->busy_thread) != this_thread())
        return;
    if (ctx->lent == NULL && atomic_exchange(&ctx->intruded, false))
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "the context was used by another thread during this call; open one for each "
                 "thread with co_open_beside");
    if (--ctx->busy_depth == 0)
        atomic_store(&ctx->busy_thread, 0);
}
#endif

static const co_error_info no_context = {
    .code = CO_INVALID_ARGUMENT,
    .rank = -1,
    .replica = -1,
    .call = "",
    .message = "the context is NULL: co_open failed for want of memory, or was not called",
};

/* What a step finds in the context that called run. */
const co_error_info coi_lent_to_step = {
    .code = CO_RUNTIME_ERROR,
    .rank = -1,
    .replica = -1,
    .call = "run",
    .message = "the context that called run is used inside the step; use the context that the step "
               "is given",
};
/* What an observer finds in the context that it observes. */
const co_error_info coi_lent_to_observer = {
    .code = CO_RUNTIME_ERROR,
    .rank = -1,
    .replica = -1,
    .call = "observe",
    .message = "an observer uses the context that it observes; give it one of its own, opened with "
               "co_open_beside",
};

/* Nobody asks a worker of a dataset for its error, and no other waits for it in a step. */
static bool
may_wait(const co_context *ctx, const co_error_info *to)
{
    return to == &coi_lent_to_observer && (ctx->is_opened || ctx->mode.step != NULL);
}

void
coi_fail_lent(co_context *ctx, const co_error_info *to)
{
    if (!may_wait(ctx, to))
        coi_fail(ctx, to->code, "%s", to->message);
    else if (ctx->misuse.site.file == NULL)
        ctx->misuse = (coi_misuse){ ctx->site, ctx->call,
                                    coi_in_replica(ctx) ? ctx->mode.replica : -1 };
}

void
coi_pass_misuse(co_context *from, co_context *to)
{
    if (to->misuse.site.file == NULL)
        to->misuse = from->misuse;
    from->misuse.site.file = NULL;
}

void
coi_admit_misuse(co_context *ctx)
{
    coi_misuse misuse = ctx->misuse;

    if (misuse.site.file == NULL || ctx->mode.step != NULL || ctx->lent != NULL)
        return;
    ctx->misuse.site.file = NULL;
    if (ctx->error.code != CO_OK)
        return;
    coi_fail(ctx, coi_lent_to_observer.code, "%s", coi_lent_to_observer.message);
    ctx->error.call = misuse.call;
    ctx->error.file = misuse.site.file;
    ctx->error.line = misuse.site.line;
    ctx->error.replica = misuse.replica;
}

bool
co_ok(const co_context *ctx)
{
    if (ctx == NULL)
        return false;
    coi_admit_misuse((co_context *)(uintptr_t)ctx);
    return ctx->error.code == CO_OK;
}

static void
note_site(co_context *closed)
{
    closed->error.file = closed->site.file;
    closed->error.line = closed->site.line;
}

const co_error_info *
co_error(const co_context *ctx)
{
    if (ctx == NULL)
        return &no_context;
    if (ctx->lent != NULL)
        return ctx->lent;
    coi_admit_misuse((co_context *)(uintptr_t)ctx);
    if (ctx->runtime ==
        NULL) /* the call that found it closed has stored its site and nothing else */
        note_site((co_context *)(uintptr_t)ctx);
    return &ctx->error;
}

/* The deleter is the user's and may use the context: the record is clean before it runs. */
static void
drop_payload(co_context *ctx)
{
    void *payload = ctx->error.payload;
    void (*deleter)(void *) = ctx->payload_deleter;

    ctx->error.payload = NULL;
    ctx->payload_deleter = NULL;
    if (payload != NULL && deleter != NULL)
        deleter(payload);
}

void
coi_repeat_failure(co_context *ctx)
{
    const co_error_info *failure = &ctx->runtime->failure;

    if (failure->code == CO_OK)
        return;
    ctx->call = "open";
    ctx->site = (co_site_info){ NULL, 0 }; /* not where it is cleared */
    coi_fail(ctx, failure->code, "%s", failure->message);
}

void
co_clear(co_context *ctx)
{
    COI_GUARD(ctx, );
    drop_payload(ctx);
    coi_error_reset(&ctx->error);
    ctx->misuse.site.file = NULL;
    ctx->failure_is_seen = ctx->runtime->failure.code != CO_OK;
    coi_repeat_failure(ctx);
}

static void
say_forked(co_context *ctx)
{
    coi_error_reset(&ctx->error);
    coi_error(
        &ctx->error, CO_RUNTIME_ERROR,
        "this is process %ld, forked from process %ld, which opened the runtime; a fork has none of "
        "its threads and may only close: open a runtime of its own with co_open",
        (long)getpid(), (long)ctx->runtime->pid);
}

bool
coi_check_owner_process(co_context *ctx)
{
    const coi_cell_store *store = ctx->heap.store;

    /* Where the system does not wipe the word, the few calls that come here compare process ids. */
    if (!coi_is_forked(&ctx->heap) &&
        (store->magic != &store->own_magic || ctx->runtime->pid == getpid()))
        return true;
    if (ctx->error.code == CO_OK)
        say_forked(ctx);
    coi_failed(ctx);
    return false;
}

co_code
coi_failed(co_context *ctx)
{
    co_error_info *err = &ctx->error;

    if (err->code == CO_OK || err->call != NULL)
        return err->code;
    if (coi_is_forked(&ctx->heap)) /* whatever failed, this is why */
        say_forked(ctx);
    err->call = ctx->call != NULL ? ctx->call : "";
    err->file = ctx->site.file;
    err->line = ctx->site.line;
    err->rank = ctx->rank;
    err->replica = coi_in_replica(ctx) ? ctx->mode.replica : -1;
    return err->code;
}

co_code
coi_fail(co_context *ctx, co_code code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    coi_error_va(&ctx->error, code, format, args);
    va_end(args);
    coi_failed(ctx);
    return ctx->error.code;
}

void
coi_take_error(co_context *ctx, co_context *from)
{
    if (ctx->error.code != CO_OK)
        return;
    ctx->error = from->error;
    ctx->payload_deleter = from->payload_deleter;
    from->error.payload = NULL; /* it moved */
    from->payload_deleter = NULL;
}

/* User code must not fail with a number that is not a code. */
static co_code
checked(co_code code)
{
    return strcmp(co_code_name(code), "CO_UNKNOWN") == 0 ? CO_UNKNOWN : code;
}

/* Fail as user code requested, or because its request is invalid. */
static co_code
fail_va(co_context *ctx, co_code code, const char *format, va_list args)
{
    if (code == CO_OK)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "argument 2 (code) of %s is CO_OK, which is not an error", ctx->call);
    if (format == NULL)
        return coi_fail(ctx, CO_VALUE_ERROR, "the format of %s is NULL; give a message", ctx->call);
    coi_error_va(&ctx->error, checked(code), format, args);
    return coi_failed(ctx);
}

co_code
co_fail(co_context *ctx, co_code code, const char *format, ...)
{
    va_list args;

    COI_ENTER_CODE(ctx, "fail");
    va_start(args, format);
    code = fail_va(ctx, code, format, args);
    va_end(args);
    return code;
}

/* The record takes the payload if this is the first error; otherwise the payload is deleted. */
static bool
take_payload(co_context *ctx, void *payload, void (*deleter)(void *payload))
{
    COI_GUARD(ctx, false);
    if (ctx->error.code != CO_OK)
        return false;
    ctx->error.payload = payload;
    ctx->payload_deleter = deleter;
    return true;
}

co_code
co_fail_with(co_context *ctx, co_code code, void *payload, void (*deleter)(void *payload),
             const char *format, ...)
{
    va_list args;

    if (!take_payload(ctx, payload, deleter) && payload != NULL && deleter != NULL)
        deleter(payload);
    COI_ENTER_CODE(ctx, "fail_with");
    va_start(args, format);
    code = fail_va(ctx, code, format, args);
    va_end(args);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first error of a context. A record is written once and kept until co_clear; a payload travels with it and
 * is deleted when the record dies.
 */
#include "context/context.h"

#include <string.h>

#ifdef COI_DEBUG
static uint64_t
this_thread(void)
{
    return (uint64_t)pthread_self();
}

/*
 * A thread marks the context while it is inside a call; calls nest on one thread (a merge function uses the context
 * of its run). Another thread that finds the mark gets nothing done, and the mark's owner finds the error.
 */
bool
coi_enter(co_context *ctx)
{
    unsigned long long idle = 0, me = this_thread();

    if (ctx == NULL)
        return false;
    if (atomic_load(&ctx->busy_thread) != me &&
        !atomic_compare_exchange_strong(&ctx->busy_thread, &idle, me)) {
        coi_log_line(
            &ctx->runtime->log, CO_LOG_ERROR,
            "a context is used by two threads at once; open one for each with co_open_beside");
        return false;
    }
    ++ctx->busy_depth;
    return true;
}

void
coi_leave(co_context **guard)
{
    co_context *ctx = *guard;

    if (ctx == NULL || atomic_load(&ctx->busy_thread) != this_thread())
        return;
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

bool
co_ok(const co_context *ctx)
{
    return ctx != NULL && ctx->error.code == CO_OK;
}

const co_error_info *
co_error(const co_context *ctx)
{
    return ctx != NULL ? &ctx->error : &no_context;
}

static void
drop_payload(co_context *ctx)
{
    if (ctx->error.payload != NULL && ctx->payload_deleter != NULL)
        ctx->payload_deleter(ctx->error.payload);
    ctx->error.payload = NULL;
    ctx->payload_deleter = NULL;
}

void
co_clear(co_context *ctx)
{
    if (ctx == NULL)
        return;
    drop_payload(ctx);
    coi_error_reset(&ctx->error);
}

co_code
coi_failed(co_context *ctx)
{
    co_error_info *err = &ctx->error;

    if (err->code == CO_OK || err->call != NULL)
        return err->code;
    err->call = ctx->call != NULL ? ctx->call : "";
    err->file = ctx->site.file;
    err->line = ctx->site.line;
    err->rank = ctx->rank;
    err->replica = ctx->mode.step != NULL && !ctx->mode.cross ? ctx->mode.replica : -1;
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

/* User code may not fail with "no error" or with a number that is no code. */
static co_code
checked(co_code code)
{
    return code == CO_OK || strcmp(co_code_name(code), "CO_UNKNOWN") == 0 ? CO_UNKNOWN : code;
}

co_code
co_fail(co_context *ctx, co_code code, const char *format, ...)
{
    va_list args;

    if (ctx == NULL || ctx->error.code != CO_OK)
        return ctx != NULL ? ctx->error.code : CO_INVALID_ARGUMENT;
    ctx->call = "fail";
    if (format == NULL || code == CO_OK)
        return coi_fail(ctx, CO_VALUE, "%s",
                        format == NULL ? "argument 3 (format) is NULL"
                                       : "argument 2 (code) is CO_OK, which is no error");
    va_start(args, format);
    coi_error_va(&ctx->error, checked(code), format, args);
    va_end(args);
    return coi_failed(ctx);
}

co_code
co_fail_with(co_context *ctx, co_code code, void *payload, void (*deleter)(void *payload),
             const char *format, ...)
{
    va_list args;

    if (ctx == NULL || ctx->error.code != CO_OK) {
        if (deleter != NULL && payload != NULL)
            deleter(payload);
        return ctx != NULL ? ctx->error.code : CO_INVALID_ARGUMENT;
    }
    ctx->call = "fail_with";
    va_start(args, format);
    coi_error_va(&ctx->error, checked(code), format != NULL ? format : "(no message)", args);
    va_end(args);
    ctx->error.payload = payload;
    ctx->payload_deleter = deleter;
    return coi_failed(ctx);
}

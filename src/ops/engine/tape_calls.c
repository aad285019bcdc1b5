/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public calls on tapes. A captured function holds them as calls: when it is replayed, a tape
 * records what the function computes, as it would without capturing. While it is captured there is
 * a tape too, of types.
 */
#include <cohort/gradient.h>

#include "context/tape.h"
#include "ops/engine/call_recording.h"

static void begin(co_context *ctx, bool persistent);

static co_value *
replay_begin(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)in;
    (void)num_in;
    begin(ctx, ((const coi_tape_begin_attrs *)attrs)
                   ->persistent); /* a function around this one holds it too */
    return co_none(ctx);
}

const coi_op coi_op_tape_begin = {
    COI_RECORDED("tape_begin", "Begins to record for gradients; co_tape_begin.", replay_begin, 0,
                 0),
    .attrs_rule.size = COI_ATTRS_SIZE(coi_tape_begin_attrs),
    .is_planned = true,
};

static void
begin(co_context *ctx, bool persistent)
{
    coi_tape_begin_attrs attrs = { persistent };

    coi_tape_begin(ctx, persistent);
    if (coi_is_capturing(ctx) && ctx->error.code == CO_OK)
        coi_record_call(ctx, &coi_op_tape_begin, &attrs, NULL, 0, coi_none(ctx));
}

void
co_tape_begin(co_context *ctx)
{
    COI_ENTER_ALWAYS(ctx, "tape_begin", );
    begin(ctx, false);
}

void
co_tape_begin_persistent(co_context *ctx)
{
    COI_ENTER_ALWAYS(ctx, "tape_begin_persistent", );
    begin(ctx, true);
}

static co_value *
replay_end(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)in;
    (void)num_in;
    co_tape_end(ctx);
    return co_none(ctx);
}

const coi_op coi_op_tape_end = {
    COI_RECORDED("tape_end", "Drops the innermost tape; co_tape_end.", replay_end, 0, 0),
    .is_planned = true,
};

void
co_tape_end(co_context *ctx)
{
    size_t place;

    COI_ENTER_ALWAYS(ctx, "tape_end", );
    place = coi_tape_place(ctx);
    if (coi_is_capturing(ctx))
        coi_capture_tape(ctx, place);
    if (ctx->unbegun_tapes > 0)
        --ctx->unbegun_tapes;
    else if (place != COI_NO_TAPE)
        coi_tape_drop(ctx, place);
    else
        coi_fail(ctx, CO_RUNTIME_ERROR, "there is no open tape to end; call co_tape_begin first");
    if (coi_is_capturing(ctx) && ctx->error.code == CO_OK)
        coi_record_call(ctx, &coi_op_tape_end, NULL, NULL, 0, coi_none(ctx));
}

static co_value *
replay_watch(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)num_in;
    co_watch(ctx, in[0]);
    return co_none(ctx);
}

const coi_op coi_op_watch = {
    COI_RECORDED("watch", "Lets tapes record what is computed from a value; co_watch.",
                 replay_watch, 0, 0),
    .is_planned = true,
};

void
co_watch(co_context *ctx, co_value *value)
{
    COI_ENTER(ctx, "watch", );
    if (!coi_check_value(ctx, value, 2, "value"))
        return;
    if (!ctx->recording) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "there is no open tape to watch with; call co_tape_begin first");
        return;
    }
    if (coi_is_capturing(ctx) && (value = coi_own_symbols(ctx, value)) == NULL)
        return;
    if (coi_tape_watch(ctx, value) && coi_is_capturing(ctx))
        coi_record_call(ctx, &coi_op_watch, NULL, &value, 1, coi_none(ctx));
}

co_value *
co_watched_variables(co_context *ctx)
{
    const coi_tape_log *log;
    co_value          **some, *list;
    size_t              n = 0, nbytes;

    COI_ENTER(ctx, "watched_variables", NULL);
    log = ctx->tapes;
    if (log == NULL || log->num_tapes == 0) {
        coi_fail(ctx, CO_RUNTIME_ERROR, "there is no open tape; call co_tape_begin first");
        return NULL;
    }
    nbytes = (log->num_watched + 1) * sizeof(*some);
    some = coi_small_alloc(&ctx->heap, nbytes);
    if (some == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a list of %zu variables",
                 log->num_watched);
        return NULL;
    }
    for (size_t i = 0; i < log->num_watched; ++i)
        if (coi_is_variable(log->watched_values[i]))
            some[n++] = log->watched_values[i];
    list = co_list(ctx, some, n);
    coi_small_free(&ctx->heap, some, nbytes);
    return list;
}

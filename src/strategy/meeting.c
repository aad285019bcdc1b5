/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the replicas of a step meet. A meeting is a barrier at which every replica says what it came for; they go on together
 * or fail together. Nobody waits for a replica that has returned or failed: that breaks the step at once, and everybody
 * who waits is told who, what and where. A replica that executes nothing for the deadline is reported as stuck.
 */
#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

static const char *const meeting_names[] = {
    [COI_MEET_NONE] = "nothing",
    [COI_MEET_MERGE] = "merge_call",
    [COI_MEET_ALL_REDUCE] = "all_reduce",
    [COI_MEET_ALL_GATHER] = "all_gather",
    [COI_MEET_ASSIGN] = "variable assignment",
    [COI_MEET_VARIABLE] = "variable creation",
    [COI_MEET_REDUCE] = "reduce",
    [COI_MEET_GATHER] = "gather",
    [COI_MEET_READ] = "variable read",
    [COI_MEET_INPUT] = "input",
    [COI_MEET_BROADCAST] = "broadcast",
};

const char *
coi_meeting_name(coi_meeting_kind kind)
{
    return (size_t)kind < sizeof(meeting_names) / sizeof(meeting_names[0]) ? meeting_names[kind]
                                                                           : "unknown call";
}

#define SITE_TEXT 120
static const char *
site_text(const co_site_info *site, char out[SITE_TEXT])
{
    if (site->file != NULL)
        snprintf(out, SITE_TEXT, " at %.100s:%d", site->file, site->line);
    else
        out[0] = '\0';
    return out;
}

/* Release everybody who waits. The error is there already. */
static void
open_gate(coi_step *step)
{
    atomic_store_explicit(&step->broken, true, memory_order_release);
    coi_event_signal(&step->gate);
    coi_event_signal(&step->turn);
}

void
coi_break(coi_step *step, co_context *ctx)
{
    coi_lock_take(&step->error_lock);
    if (step->error.code == CO_OK) {
        step->error = ctx->error;
        step->payload_deleter = ctx->payload_deleter;
        ctx->error.payload = NULL; /* it moved */
        ctx->payload_deleter = NULL;
    }
    coi_lock_give(&step->error_lock);
    open_gate(step);
}

/* Break without a culprit's context. */
static void break_with(coi_step *step, co_code code, int replica, const co_site_info *site,
                       const char *call, const char *format, ...) CO_PRINTF(6, 7);
static void
break_with(coi_step *step, co_code code, int replica, const co_site_info *site, const char *call,
           const char *format, ...)
{
    va_list args;

    coi_lock_take(&step->error_lock);
    if (step->error.code == CO_OK) {
        va_start(args, format);
        coi_error_va(&step->error, code, format, args);
        va_end(args);
        step->error.replica = replica;
        step->error.rank = step->parent->rank;
        step->error.call = call;
        step->error.file = site->file;
        step->error.line = site->line;
    }
    coi_lock_give(&step->error_lock);
    open_gate(step);
}

void
coi_take_step_error(co_context *ctx, coi_step *step)
{
    coi_lock_take(&step->error_lock);
    if (ctx->error.code == CO_OK) {
        ctx->error = step->error;
        ctx->error.payload = NULL;
    }
    coi_lock_give(&step->error_lock);
}

static bool
is_broken(const coi_step *step)
{
    return atomic_load_explicit(&step->broken, memory_order_acquire);
}

static bool
fail_broken(co_context *ctx)
{
    coi_take_step_error(ctx, ctx->mode.step);
    return false;
}

/* --- turns (S-RUN-7): one replica at a time, in order of ids, between meetings --- */

void
coi_wait_turn(co_context *ctx)
{
    coi_step *step = ctx->mode.step;

    if (!step->in_turn)
        return;
    for (;;) {
        unsigned seen = coi_event_read(&step->turn);

        if (is_broken(step) || atomic_load(&step->whose) == ctx->mode.local_replica)
            return;
        coi_event_wait(&step->turn, seen, &ctx->runtime->waiting, -1);
    }
}

static void
pass_turn(coi_step *step, int to)
{
    if (!step->in_turn)
        return;
    atomic_store(&step->whose, to);
    coi_event_signal(&step->turn);
}

/* --- stuck replicas --- */

static uint64_t
progress_of(coi_step *step, int replica)
{
    return atomic_load_explicit(&coi_replica_context(step, replica)->progress,
                                memory_order_relaxed);
}

/* Sum over replicas of how often they called into the library: unchanged means that nothing moves. */
static uint64_t
all_progress(coi_step *step)
{
    uint64_t sum = 0;

    for (int i = 0; i < step->n; ++i)
        sum += progress_of(step, i);
    return sum;
}

/* "replica 1 (last seen in matmul at step.c:12)" for everybody who has not come. */
static void
list_missing(coi_step *step, char *out, size_t capacity)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < step->n; ++i)
        if (!atomic_load(&step->seats[i].arrived) && at + 1 < capacity)
            at += (size_t)snprintf(out + at, capacity - at, "%sreplica %d", at > 0 ? ", " : "",
                                   step->strategy->first_local + i);
}

static void
report_stuck(co_context *ctx)
{
    coi_step *step = ctx->mode.step;
    coi_seat *seat = coi_my_seat(ctx);
    char      missing[200], site[SITE_TEXT];

    list_missing(step, missing, sizeof(missing));
    break_with(step, CO_DEADLINE_EXCEEDED, ctx->mode.replica, &seat->site,
               coi_meeting_name(seat->kind),
               "replica %d waits in %s%s, and %s has executed nothing for %d ms (deadline_ms)",
               ctx->mode.replica, coi_meeting_name(seat->kind), site_text(&seat->site, site),
               missing, step->strategy->deadline_ms);
}

/* Wait for the gate to open; false if the step broke. */
static bool
wait_gate(co_context *ctx, unsigned seen)
{
    coi_step *step = ctx->mode.step;
    int       deadline_ms = step->strategy->deadline_ms;
    uint64_t  before = all_progress(step);

    while (!coi_event_wait(&step->gate, seen, &ctx->runtime->waiting,
                           deadline_ms > 0 ? deadline_ms : -1)) {
        uint64_t now = all_progress(step);

        if (now == before)
            report_stuck(ctx);
        before = now;
    }
    return !is_broken(step);
}

/*
 * Somebody has returned: nobody will ever be complete. We look after we have arrived, and who returns looks for arrivals after
 * it has said so; so one of the two sees the other.
 */
static bool
somebody_finished(co_context *ctx, const coi_seat *seat, unsigned seen)
{
    coi_step *step = ctx->mode.step;
    char      site[SITE_TEXT];

    /* Who returned after the gate had opened was at this meeting. */
    if (atomic_load(&step->finished) == 0 || coi_event_read(&step->gate) != seen)
        return false;
    for (int i = 0; i < step->n; ++i)
        if (atomic_load(&step->seats[i].finished)) {
            break_with(
                step, CO_RUNTIME, ctx->mode.replica, &seat->site, coi_meeting_name(seat->kind),
                "replica %d has returned from the step, but replica %d waits in %s%s; all replicas must "
                "make the same number of calls to merge_call, all_reduce and aggregated assignments",
                step->strategy->first_local + i, ctx->mode.replica, coi_meeting_name(seat->kind),
                site_text(&seat->site, site));
            break;
        }
    return true;
}

bool
coi_barrier(co_context *ctx, coi_close_fn close, void *arg)
{
    coi_step *step = ctx->mode.step;
    coi_seat *seat = coi_my_seat(ctx);
    unsigned  seen = coi_event_read(&step->gate);

    if (is_broken(step))
        return fail_broken(ctx);
    atomic_store(&seat->arrived, true);
    if (atomic_fetch_add(&step->arrived, 1) + 1 == step->n) {
        /* The last one: everybody else waits, so the step is ours alone here. */
        if (close != NULL && !close(ctx, step, arg)) {
            coi_break(step, ctx);
            return false;
        }
        for (int i = 0; i < step->n; ++i)
            atomic_store_explicit(&step->seats[i].arrived, false, memory_order_relaxed);
        atomic_store_explicit(&step->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&step->whose, 0, memory_order_relaxed);
        coi_event_signal(&step->gate);
        if (step->in_turn)
            coi_event_signal(&step->turn);
    } else {
        pass_turn(step, ctx->mode.local_replica + 1);
        if (somebody_finished(ctx, seat, seen) || !wait_gate(ctx, seen))
            return fail_broken(ctx);
    }
    coi_wait_turn(ctx);
    return !is_broken(step) || fail_broken(ctx);
}

/* Whether all came for the same; the first that disagrees with replica 0 is named. */
static bool
agree(co_context *ctx, coi_step *step)
{
    const coi_seat *first = &step->seats[0];
    char            a[SITE_TEXT], b[SITE_TEXT];

    for (int i = 1; i < step->n; ++i) {
        const coi_seat *seat = &step->seats[i];

        if (seat->kind == first->kind && seat->sequence == first->sequence)
            continue;
        coi_fail(
            ctx, CO_RUNTIME,
            "replicas disagree: replica %d is in %s%s while replica %d is in %s%s; all replicas must make "
            "the same calls in the same order",
            step->strategy->first_local, coi_meeting_name(first->kind), site_text(&first->site, a),
            step->strategy->first_local + i, coi_meeting_name(seat->kind),
            site_text(&seat->site, b));
        return false;
    }
    return true;
}

typedef struct closing {
    coi_close_fn close;
    void        *arg;
} closing;

static bool
close_meeting(co_context *ctx, coi_step *step, void *arg)
{
    const closing *c = arg;

    return agree(ctx, step) && (c->close == NULL || c->close(ctx, step, c->arg));
}

bool
coi_meet(co_context *ctx, coi_meeting_kind kind, co_value *value, co_value **leaves,
         size_t num_leaves, coi_close_fn close, void *arg)
{
    coi_seat *seat = coi_my_seat(ctx);
    closing   both = { close, arg };

    seat->kind = kind;
    ++seat->sequence;
    seat->site = ctx->site;
    seat->value = value;
    seat->leaves = leaves;
    seat->num_leaves = num_leaves;
    seat->result = NULL;
    return coi_barrier(ctx, close_meeting, &both);
}

void
coi_finish(co_context *ctx)
{
    coi_step *step = ctx->mode.step;
    coi_seat *mine = coi_my_seat(ctx);

    atomic_store(&mine->finished, true);
    atomic_fetch_add(&step->finished, 1);
    if (ctx->error.code != CO_OK) {
        coi_break(step, ctx);
    } else if (atomic_load(&step->arrived) > 0 && !is_broken(step)) {
        /* Those who wait already did not see that we finish: tell them. Those who come later see the count. */
        for (int i = 0; i < step->n; ++i) {
            coi_seat *seat = &step->seats[i];
            char      site[SITE_TEXT];

            if (!atomic_load(&seat->arrived))
                continue;
            break_with(
                step, CO_RUNTIME, step->strategy->first_local + i, &seat->site,
                coi_meeting_name(seat->kind),
                "replica %d has returned from the step, but replica %d waits in %s%s; all replicas must "
                "make the same number of calls to merge_call, all_reduce and aggregated assignments",
                ctx->mode.replica, step->strategy->first_local + i, coi_meeting_name(seat->kind),
                site_text(&seat->site, site));
            break;
        }
    }
    pass_turn(step, ctx->mode.local_replica + 1);
}

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
    [COI_MEET_UPDATE] = "update",
    [COI_MEET_VARIABLE] = "variable creation",
    [COI_MEET_REDUCE] = "reduce",
    [COI_MEET_GATHER] = "gather",
    [COI_MEET_READ] = "variable read",
    [COI_MEET_INPUT] = "input",
    [COI_MEET_BROADCAST] = "broadcast",
    [COI_MEET_STRATEGY] = "the making of a strategy",
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

/*
 * How many have arrived at the current barrier, and whether the step is broken, are one word, so that nobody can leave a barrier as
 * broken while another completes it.
 */
#define BROKEN  0x80000000u
#define ARRIVED 0x7fffffffu

bool
coi_is_broken(const coi_step *step)
{
    return (atomic_load_explicit(&step->barrier, memory_order_acquire) & BROKEN) != 0;
}

static int
num_arrived(const coi_step *step)
{
    return (int)(atomic_load(&step->barrier) & ARRIVED);
}

/* Release everybody who waits. */
static void
open_gate(coi_step *step)
{
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
    atomic_fetch_or(&step->barrier, BROKEN);
    coi_lock_give(&step->error_lock);
    open_gate(step);
}

/* Whether the barrier was not complete, and so is broken now: where all have arrived, the last of them is at work for all. */
static bool
break_barrier(coi_step *step)
{
    unsigned now = atomic_load(&step->barrier);

    do {
        if ((int)(now & ARRIVED) == step->n)
            return (now & BROKEN) != 0;
    } while (!atomic_compare_exchange_weak(&step->barrier, &now, now | BROKEN));
    return true;
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
    if (break_barrier(step) && step->error.code == CO_OK) {
        va_start(args, format);
        coi_error_va(&step->error, code, format, args);
        va_end(args);
        step->error.replica = replica;
        step->error.rank = step->rank;
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

        if (coi_is_broken(step) || atomic_load(&step->whose) == ctx->mode.local_replica)
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

uint64_t
coi_step_progress(coi_step *step)
{
    uint64_t sum = 0;

    for (int i = 0; i < step->n; ++i)
        sum += progress_of(step, i);
    return sum;
}

/* "replica 1, replica 3": those who have neither come nor returned. */
static void
list_missing(coi_step *step, char *out, size_t capacity)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < step->n; ++i)
        if (!atomic_load(&step->seats[i].arrived) && !atomic_load(&step->seats[i].finished) &&
            at + 1 < capacity)
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

void
coi_report_unfinished(coi_step *step)
{
    static const co_site_info nowhere = { NULL, 0 };
    char                      missing[200];

    list_missing(step, missing, sizeof(missing));
    break_with(step, CO_DEADLINE_EXCEEDED, -1, &nowhere, "run",
               "%s has not returned from the step and has executed nothing for %d ms (deadline_ms)",
               missing, step->strategy->deadline_ms);
}

/* --- barriers --- */

/* Wait until the round is over, or the step broke before that: false. */
static bool
wait_round(co_context *ctx, unsigned round)
{
    coi_step *step = ctx->mode.step;
    int       timeout_ms = coi_timeout(step->strategy);
    uint64_t  before = coi_step_progress(step);

    for (;;) {
        unsigned seen = coi_event_read(&step->gate);
        uint64_t now;

        /* The round first: who left a complete barrier may have broken the step since. */
        if (atomic_load(&step->round) != round)
            return true;
        if (coi_is_broken(step))
            return atomic_load(&step->round) != round;
        if (coi_wait_replicas(&step->gate, seen, &ctx->runtime->waiting, timeout_ms))
            continue;
        now = coi_step_progress(step);
        if (now == before)
            report_stuck(ctx);
        before = now;
    }
}

/* The last to arrive opens the barrier. */
static void
end_round(coi_step *step)
{
    for (int i = 0; i < step->n; ++i)
        atomic_store_explicit(&step->seats[i].arrived, false, memory_order_relaxed);
    atomic_store_explicit(&step->whose, 0, memory_order_relaxed);
    atomic_fetch_and(&step->barrier, BROKEN);
    atomic_fetch_add(&step->round, 1);
    coi_event_signal(&step->gate);
    if (step->in_turn)
        coi_event_signal(&step->turn);
}

#define LEFT_EARLY                                                                                 \
    "replica %d has returned from the step, but replica %d waits in %s%s; all replicas must "      \
    "make the same number of calls to merge_call, all_reduce and aggregated assignments"

static void
break_for_return(coi_step *step, int returned, int waiting)
{
    const coi_seat *seat = &step->seats[waiting];
    int             first = step->strategy->first_local;
    char            site[SITE_TEXT];

    break_with(step, CO_RUNTIME, first + waiting, &seat->site, coi_meeting_name(seat->kind),
               LEFT_EARLY, first + returned, first + waiting, coi_meeting_name(seat->kind),
               site_text(&seat->site, site));
}

/*
 * Somebody has returned: nobody will ever be complete. We look after we have arrived, and who returns looks for arrivals after
 * it has said so; so one of the two sees the other. Who returned after this round was over was at this barrier.
 */
static void
look_for_returned(co_context *ctx, unsigned round)
{
    coi_step *step = ctx->mode.step;

    if (atomic_load(&step->finished) == 0 || atomic_load(&step->round) != round)
        return;
    for (int i = 0; i < step->n; ++i)
        if (atomic_load(&step->seats[i].finished)) {
            break_for_return(step, i, ctx->mode.local_replica);
            return;
        }
}

/* Wait for all replicas; the last runs `close` while the step is its alone. */
static bool
barrier(co_context *ctx, coi_close_fn close, void *arg)
{
    coi_step *step = ctx->mode.step;
    unsigned  round = atomic_load(&step->round), before;

    atomic_store(&coi_my_seat(ctx)->arrived, true);
    before = atomic_fetch_add(&step->barrier, 1);
    if ((before & BROKEN) != 0)
        return fail_broken(ctx);
    if ((int)before + 1 == step->n) {
        if (!close(ctx, step, arg)) {
            coi_break(step, ctx);
            return false;
        }
        end_round(step);
    } else {
        pass_turn(step, ctx->mode.local_replica + 1);
        look_for_returned(ctx, round);
        if (!wait_round(ctx, round))
            return fail_broken(ctx);
    }
    coi_wait_turn(ctx);
    return true;
}

bool
coi_part(co_context *ctx)
{
    coi_step *step = ctx->mode.step;
    unsigned  round = atomic_load(&step->round);

    if ((int)(atomic_fetch_add(&step->barrier, 1) & ARRIVED) + 1 == step->n) {
        end_round(step);
    } else {
        pass_turn(step, ctx->mode.local_replica + 1);
        for (;;) {
            unsigned seen = coi_event_read(&step->gate);

            if (atomic_load(&step->round) != round)
                break;
            coi_wait_replicas(&step->gate, seen, &ctx->runtime->waiting, -1);
        }
    }
    coi_wait_turn(ctx);
    return !coi_is_broken(step) || fail_broken(ctx);
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

/* arg points at the close function of the meeting, which may be NULL. */
static bool
close_meeting(co_context *ctx, coi_step *step, void *arg)
{
    coi_close_fn close = *(coi_close_fn *)arg;

    return agree(ctx, step) && (close == NULL || close(ctx, step, NULL));
}

bool
coi_meet(co_context *ctx, coi_meeting_kind kind, co_value *value, void *detail, coi_close_fn close)
{
    coi_seat *seat = coi_my_seat(ctx);

    /* The seat of a replica that waited when the step broke may still be looked at. */
    if (coi_is_broken(ctx->mode.step))
        return fail_broken(ctx);
    seat->kind = kind;
    ++seat->sequence;
    seat->site = ctx->site;
    seat->value = value;
    seat->detail = detail;
    seat->result = NULL;
    return barrier(ctx, close_meeting, &close);
}

void
coi_finish(co_context *ctx)
{
    coi_step *step = ctx->mode.step;

    if (step->n == 1) { /* nobody waits */
        if (ctx->error.code != CO_OK)
            coi_break(step, ctx);
        return;
    }
    atomic_store(&coi_my_seat(ctx)->finished, true);
    atomic_fetch_add(&step->finished, 1);
    if (ctx->error.code != CO_OK) {
        coi_break(step, ctx);
    } else if (num_arrived(step) > 0 && !coi_is_broken(step)) {
        /* Those who wait already did not see that we finish: tell them. Those who come later see the count. */
        for (int i = 0; i < step->n; ++i)
            if (atomic_load(&step->seats[i].arrived)) {
                break_for_return(step, ctx->mode.local_replica, i);
                break;
            }
    }
    pass_turn(step, ctx->mode.local_replica + 1);
}

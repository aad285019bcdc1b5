/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of the replicas of a step: a barrier at which every replica states its operation.
 * Replicas continue together or fail together. No replica waits for one that has returned or
 * failed: that breaks the step at once, with an error that names the replica, its operation and its
 * line. A replica that executes nothing for the deadline is reported as stuck.
 */
#include "strategy/rendezvous.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

typedef struct rendezvous_info {
    const char *name;
    bool        merges; /* replica 0 runs a function while the others wait to leave (coi_merge) */
} rendezvous_info;

static const rendezvous_info rendezvous_infos[] = {
    [COI_RENDEZVOUS_NONE] = { "nothing", false },
    [COI_RENDEZVOUS_MERGE] = { "merge_call", true },
    [COI_RENDEZVOUS_ALL_REDUCE] = { "all_reduce", false },
    [COI_RENDEZVOUS_ALL_GATHER] = { "all_gather", false },
    [COI_RENDEZVOUS_ASSIGN] = { "variable assignment", true },
    [COI_RENDEZVOUS_UPDATE] = { "update", true },
    [COI_RENDEZVOUS_VARIABLE] = { "variable creation", false },
    [COI_RENDEZVOUS_REDUCE] = { "reduce", false },
    [COI_RENDEZVOUS_GATHER] = { "gather", false },
    [COI_RENDEZVOUS_READ] = { "variable read", false },
    [COI_RENDEZVOUS_INPUT] = { "input", false },
    [COI_RENDEZVOUS_BROADCAST] = { "broadcast", false },
    [COI_RENDEZVOUS_STRATEGY] = { "the making of a strategy", false },
    [COI_RENDEZVOUS_CHECKPOINT] = { "checkpoint", false },
};

const char *
coi_rendezvous_name(coi_rendezvous_kind kind)
{
    return (size_t)kind < sizeof(rendezvous_infos) / sizeof(rendezvous_infos[0])
               ? rendezvous_infos[kind].name
               : "unknown call";
}

/* "all_reduce of float32 [2], rendezvous 3 of run 7, at step.c:41" */
#define PLACE_TEXT 320
static const char *
place_text(const coi_step *step, const coi_rendezvous_slot *slot, char out[PLACE_TEXT])
{
    char what[COI_SUMMARY_TEXT], site[120] = "";

    coi_summary_text(&slot->what, what);
    if (slot->site.file != NULL)
        snprintf(site, sizeof(site), ", at %s:%d", coi_path_end(slot->site.file, 100),
                 slot->site.line);
    snprintf(out, PLACE_TEXT, "%s%s%s, rendezvous %llu of run %llu%s",
             coi_rendezvous_name(slot->kind), what[0] != '\0' ? " of " : "", what,
             (unsigned long long)slot->sequence, (unsigned long long)step->epoch, site);
    return out;
}

/* --- entries of the flight recorder --- */

/* The first replica at a rendezvous writes its entry before it arrives, so that the entry exists
 * when all have arrived. */
static void
open_entry(co_context *ctx, unsigned round)
{
    coi_step            *step = ctx->mode.step;
    unsigned             opened = atomic_load_explicit(&step->opened, memory_order_relaxed);
    coi_rendezvous_slot *slot;

    if (step->n == 1 || opened == round + 1 ||
        !atomic_compare_exchange_strong(&step->opened, &opened, round + 1))
        return;
    slot = coi_my_slot(ctx);
    atomic_store_explicit(&step->flight,
                          coi_flight_begin(step->strategy->recorder,
                                           &(coi_flight){ .epoch = step->epoch,
                                                          .sequence = slot->sequence,
                                                          .kind = (int)slot->kind,
                                                          .expected = step->n,
                                                          .site = slot->site,
                                                          .step = step,
                                                          .round = round,
                                                          .summary = &slot->what }),
                          memory_order_relaxed);
    atomic_store_explicit(&step->is_open, true, memory_order_release);
}

static bool
has_arrived(const void *arg, int i)
{
    return atomic_load(&((const coi_step *)arg)->slots[i].arrived);
}

/* The step broke, which ends the rendezvous that waits, if there is one. Where all had come, its
 * function was under way. */
static void
cut_entry(coi_step *step, co_code code)
{
    uint64_t number;

    if (!atomic_exchange(&step->is_open, false))
        return;
    number = atomic_load(&step->flight);
    if (atomic_load(&step->opened) == coi_round(step) + 1)
        coi_flight_cut(step->strategy->recorder, number, code, step->n, has_arrived, step);
    else
        coi_flight_end(step->strategy->recorder, number, code);
}

/* Release all that wait. */
static void
open_gate(coi_step *step)
{
    coi_event_signal(&step->gate);
    coi_event_signal(&step->token);
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
    atomic_fetch_or(&step->barrier, COI_BROKEN);
    cut_entry(step, step->error.code);
    coi_lock_give(&step->error_lock);
    open_gate(step);
}

/*
 * Whether the barrier of the round was not complete, and so is broken now: where all have arrived,
 * the last of them is at work for all, and where another round has begun, what was seen of this one
 * is over.
 */
static bool
break_barrier(coi_step *step, unsigned round)
{
    uint64_t now = atomic_load(&step->barrier);

    do {
        if ((int)(now & COI_ARRIVED) == step->n || coi_round_of(now) != round)
            return (now & COI_BROKEN) != 0;
    } while (!atomic_compare_exchange_weak(&step->barrier, &now, now | COI_BROKEN));
    return true;
}

/* Break the step because of what was seen in a round at `slot` (NULL: by the caller of run),
 * without the context of a failed replica. Returns whether this is why the step is broken. */
static bool break_with(coi_step *step, unsigned round, co_code code, int replica,
                       const coi_rendezvous_slot *slot, const char *format, ...) CO_PRINTF(6, 7);
static bool
break_with(coi_step *step, unsigned round, co_code code, int replica,
           const coi_rendezvous_slot *slot, const char *format, ...)
{
    va_list args;
    bool    is_why;

    coi_lock_take(&step->error_lock);
    is_why = break_barrier(step, round) && step->error.code == CO_OK;
    if (is_why) {
        va_start(args, format);
        coi_error_va(&step->error, code, format, args);
        va_end(args);
        step->error.replica = replica;
        step->error.rank = step->origin.rank;
        step->error.call = slot != NULL ? coi_rendezvous_name(slot->kind) : "run";
        step->error.file = slot != NULL ? slot->site.file : NULL;
        step->error.line = slot != NULL ? slot->site.line : 0;
        cut_entry(step, code);
        coi_flight_trouble(step->strategy->recorder);
    }
    coi_lock_give(&step->error_lock);
    open_gate(step);
    return is_why;
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

/* --- stuck replicas --- */

uint64_t
coi_step_progress(coi_step *step)
{
    uint64_t sum = atomic_load_explicit(&step->parent->progress, memory_order_relaxed);

    for (int i = 0; i < step->n; ++i)
        sum += atomic_load_explicit(&coi_replica_context(step, i)->progress, memory_order_relaxed);
    if (atomic_load(&step->inner) == NULL)
        return sum;
    coi_lock_take(&step->inner_lock);
    if (atomic_load(&step->inner) != NULL)
        sum += coi_step_progress(atomic_load(&step->inner));
    coi_lock_give(&step->inner_lock);
    return sum;
}

/* "replica 1, replica 3": those that have neither arrived nor returned. */
static void
list_missing(coi_step *step, char *out, size_t capacity)
{
    coi_prose list = { out, capacity, 0 };

    out[0] = '\0';
    for (int i = 0; i < step->n; ++i)
        if (!atomic_load(&step->slots[i].arrived) && !atomic_load(&step->slots[i].finished))
            coi_put(&list, "%sreplica %d", list.at > 0 ? ", " : "",
                    step->strategy->first_local + i);
    coi_put_end(&list);
}

#define NOTHING_DONE                                                                                  \
    "has executed nothing for %d ms (deadline_ms); look there for an endless loop or wait, or raise " \
    "deadline_ms"

static void
report_stuck(co_context *ctx, unsigned round)
{
    coi_step            *step = ctx->mode.step;
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    char                 missing[200], place[PLACE_TEXT];

    list_missing(step, missing, sizeof(missing));
    break_with(step, round, CO_DEADLINE_EXCEEDED, ctx->mode.replica, slot,
               "replica %d waits in %s, and %s " NOTHING_DONE, ctx->mode.replica,
               place_text(step, slot, place), missing, step->strategy->deadline_ms);
}

void
coi_report_unfinished(coi_step *step)
{
    unsigned round = coi_round(step);
    char     missing[200];

    list_missing(step, missing, sizeof(missing));
    break_with(step, round, CO_DEADLINE_EXCEEDED, -1, NULL,
               "%s has not returned from the step and " NOTHING_DONE, missing,
               step->strategy->deadline_ms);
}

static void
report_awaiting(co_context *ctx, unsigned round)
{
    coi_step            *step = ctx->mode.step;
    coi_rendezvous_slot *slot = coi_my_slot(ctx);

    break_with(step, round, CO_DEADLINE_EXCEEDED, ctx->mode.replica, slot,
               "replica %d waits in %s, for replica %d, which " NOTHING_DONE, ctx->mode.replica,
               coi_rendezvous_name(slot->kind), step->strategy->first_local,
               step->strategy->deadline_ms);
}

static void
report_token(co_context *ctx, unsigned round)
{
    coi_step *step = ctx->mode.step;
    int       holder = atomic_load(&step->token_holder);

    break_with(step, round, CO_DEADLINE_EXCEEDED, ctx->mode.replica, NULL,
               "replica %d waits for the token (in_turn), and replica %d " NOTHING_DONE,
               ctx->mode.replica, step->strategy->first_local + holder,
               step->strategy->deadline_ms);
}

/*
 * All have come, and one of them works for all: it holds what the others brought, so they cannot
 * leave, and it may be on the thread that called run. So this goes to the log, once, and is the
 * error of the step when that replica comes back.
 */
static void
report_leaving(co_context *ctx, unsigned round)
{
    coi_step            *step = ctx->mode.step;
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    char                 missing[200], place[PLACE_TEXT];

    list_missing(step, missing, sizeof(missing));
    place_text(step, slot, place);
    if (!break_with(step, round, CO_DEADLINE_EXCEEDED, ctx->mode.replica, slot,
                    "replica %d waits in %s, for %s, which is at work for all and " NOTHING_DONE,
                    ctx->mode.replica, place, missing, step->strategy->deadline_ms))
        return;
    coi_log_line(&ctx->runtime->log, CO_LOG_ERROR,
                 "replica %d waits in %s, for %s, which is at work for all and " NOTHING_DONE,
                 ctx->mode.replica, place, missing, step->strategy->deadline_ms);
    if (coi_flight_take_trouble(step->strategy->recorder))
        coi_flight_report(step->strategy);
}

/* Wait for a change; where the step executes nothing for the deadline meanwhile, report. */
typedef struct watchdog {
    co_context *ctx;
    int         timeout_ms;
    unsigned    round;
    bool        is_watching; /* progress is known */
    uint64_t    progress;
    void (*report)(co_context *ctx, unsigned round);
} watchdog;

static watchdog
watchdog_of(co_context *ctx, unsigned round, void (*report)(co_context *ctx, unsigned round))
{
    coi_step *step = ctx->mode.step;

    return (watchdog){ ctx, coi_timeout(step->strategy), round, false, 0, report };
}

/* A replica that talks to other workers waits for their deadline first. */
static void
extend_for_workers(const coi_step *step, watchdog *p)
{
    if (step->strategy->group != NULL && p->timeout_ms > 0)
        p->timeout_ms = 2 * p->timeout_ms + 1000;
}

static void
wait_for(watchdog *p, coi_event *event, unsigned seen)
{
    coi_waiting *waiting = &p->ctx->runtime->waiting;
    uint64_t     now;

    if (!p->is_watching) {
        if (p->timeout_ms > COI_SHORT_WAIT_MS &&
            coi_wait_replicas(event, seen, waiting, COI_SHORT_WAIT_MS))
            return;
        p->progress = coi_step_progress(p->ctx->mode.step);
        p->is_watching = true;
    }
    if (coi_wait_replicas(event, seen, waiting, p->timeout_ms))
        return;
    now = coi_step_progress(p->ctx->mode.step);
    if (now == p->progress)
        p->report(p->ctx, p->round);
    p->progress = now;
}

/* --- in_turn (S-RUN-7): the holder of the token runs, in order of ids, between rendezvous --- */

void
coi_wait_token(co_context *ctx)
{
    coi_step *step = ctx->mode.step;
    watchdog  p;

    if (!step->in_turn)
        return;
    p = watchdog_of(ctx, coi_round(step), report_token);
    for (;;) {
        unsigned seen = coi_event_read(&step->token);

        if (coi_is_broken(step) || atomic_load(&step->token_holder) == ctx->mode.local_replica)
            return;
        wait_for(&p, &step->token, seen);
    }
}

static void
pass_token(coi_step *step, int to)
{
    if (!step->in_turn)
        return;
    atomic_store(&step->token_holder, to);
    coi_event_signal(&step->token);
}

/* --- barriers --- */

/* Wait until the round is over, or the step broke before that: false. */
static bool
wait_round(co_context *ctx, unsigned round)
{
    coi_step *step = ctx->mode.step;
    watchdog  p = watchdog_of(ctx, round, report_stuck);

    for (;;) {
        unsigned seen = coi_event_read(&step->gate);
        uint64_t now = atomic_load(&step->barrier);

        /* The round first: a replica that left a complete barrier may have broken the step since.
         */
        if (coi_round_of(now) != round)
            return true;
        if ((now & COI_BROKEN) != 0)
            return false;
        wait_for(&p, &step->gate, seen);
    }
}

/* The last to arrive opens the barrier. */
static void
end_round(coi_step *step)
{
    for (int i = 0; i < step->n; ++i)
        atomic_store_explicit(&step->slots[i].arrived, false, memory_order_relaxed);
    atomic_store_explicit(&step->token_holder, 0, memory_order_relaxed);
    atomic_fetch_add(&step->barrier,
                     COI_ONE_ROUND - (unsigned)step->n); /* all that arrived leave */
    coi_event_signal(&step->gate);
    if (step->in_turn)
        coi_event_signal(&step->token);
}

static void
break_for_return(coi_step *step, unsigned round, int returned, int waiting)
{
    const coi_rendezvous_slot *slot = &step->slots[waiting];
    int                        first = step->strategy->first_local;
    char                       place[PLACE_TEXT];

    break_with(
        step, round, CO_RUNTIME_ERROR, first + waiting, slot,
        "replica %d has returned from the step, but replica %d waits in %s; all replicas must "
        "make the same calls to merge_call, all_reduce, all_gather and aggregated assignments, or "
        "none",
        first + returned, first + waiting, place_text(step, slot, place));
}

/*
 * After a replica has returned, no barrier can be complete. This replica looks for finished ones
 * after it has arrived; a replica that returns looks for arrived ones after it has marked itself
 * finished. So one of the two sees the other. A replica that returned after this round was over had
 * arrived at this barrier.
 */
static void
look_for_returned(co_context *ctx, unsigned round)
{
    coi_step *step = ctx->mode.step;

    if (atomic_load(&step->finished) == 0 || coi_round(step) != round)
        return;
    for (int i = 0; i < step->n; ++i)
        if (atomic_load(&step->slots[i].finished)) {
            break_for_return(step, round, i, ctx->mode.local_replica);
            return;
        }
}

/* Whether all have the same operation; the error names the first replica that disagrees with
 * replica 0. */
static bool
agree(co_context *ctx, coi_step *step)
{
    const coi_rendezvous_slot *first = &step->slots[0];
    char                       a[PLACE_TEXT], b[PLACE_TEXT];

    for (int i = 1; i < step->n; ++i) {
        const coi_rendezvous_slot *slot = &step->slots[i];

        if (slot->kind == first->kind)
            continue;
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "replicas disagree: replica %d is in %s, while replica %d is in %s; all replicas must make "
            "the same calls in the same order",
            step->strategy->first_local, place_text(step, first, a),
            step->strategy->first_local + i, place_text(step, slot, b));
        return false;
    }
    return true;
}

/* The last replica to arrive acts for all. */
static bool
complete(co_context *ctx, coi_close_fn close)
{
    coi_step     *step = ctx->mode.step;
    coi_recorder *recorder = step->strategy->recorder;
    uint64_t      flight = atomic_load_explicit(&step->flight, memory_order_relaxed);
    bool          merges = rendezvous_infos[coi_my_slot(ctx)->kind].merges;

    if (!agree(ctx, step) || (close != NULL && !close(ctx, step, NULL))) {
        coi_flight_trouble(recorder);
        coi_break(step, ctx);
        return false;
    }
    if (merges)
        coi_flight_met(recorder, flight);
    else
        atomic_store_explicit(&step->is_open, false, memory_order_relaxed);
    end_round(step);
    if (!merges) /* now that the others are on their way */
        coi_flight_end(recorder, flight, CO_OK);
    return true;
}

/* --- what replica 0 alone does for the others --- */

void
coi_tell_awaiting(coi_step *step)
{
    if (atomic_load(&step->awaiting) > 0)
        coi_event_signal(&step->gate);
}

/* Replica 0 comes to no other call before all have come, or has returned. Those that wait for it to
 * do something look for this after they have counted themselves, and it looks for them after this:
 * one of the two sees the other. */
static bool
is_first_held(const coi_step *step)
{
    return atomic_load(&step->slots[0].arrived) || atomic_load(&step->slots[0].finished);
}

bool
coi_await_first(co_context *ctx, coi_rendezvous_kind kind, co_value *value,
                bool (*is_there)(co_context *ctx, void *arg), void *arg)
{
    coi_step            *step = ctx->mode.step;
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    bool                 is_found = false, is_over = false;
    watchdog             p;

    if (coi_is_broken(step))
        return fail_broken(ctx);
    slot->kind = kind;
    coi_copy_site(&slot->site, &ctx->site);
    coi_summarise(value, &slot->what);
    p = watchdog_of(ctx, coi_round(step), report_awaiting);
    extend_for_workers(step, &p);
    atomic_fetch_add(&step->awaiting, 1);
    while (!is_found && !is_over) {
        unsigned seen = coi_event_read(&step->gate);

        is_over = coi_is_broken(step) || is_first_held(step);
        is_found = is_there(ctx, arg);
        if (!is_found && !is_over)
            wait_for(&p, &step->gate, seen);
    }
    atomic_fetch_sub(&step->awaiting, 1);
    return is_found || (coi_is_broken(step) && fail_broken(ctx));
}

/* Wait for all replicas; the last runs `close` while the step is its alone. */
static bool
barrier(co_context *ctx, coi_close_fn close)
{
    coi_step *step = ctx->mode.step;
    unsigned  round = coi_round(step);
    uint64_t  before;

    open_entry(ctx, round);
    atomic_store(&coi_my_slot(ctx)->arrived, true);
    before = atomic_fetch_add(&step->barrier, 1);
    if ((before & COI_BROKEN) != 0) {
        /* The replica that broke the step may have looked for an entry before ours was open. */
        coi_lock_take(&step->error_lock);
        cut_entry(step, step->error.code);
        coi_lock_give(&step->error_lock);
        return fail_broken(ctx);
    }
    if ((int)(before & COI_ARRIVED) + 1 == step->n) {
        if (!complete(ctx, close))
            return false;
    } else {
        pass_token(step, ctx->mode.local_replica + 1);
        coi_tell_awaiting(step);
        look_for_returned(ctx, round);
        if (!wait_round(ctx, round))
            return fail_broken(ctx);
    }
    coi_wait_token(ctx);
    return true;
}

/* The last replica to leave: the work for all is done. */
static void
complete_leaving(coi_step *step)
{
    uint64_t flight = atomic_load_explicit(&step->flight, memory_order_relaxed);
    bool     ok = !coi_is_broken(step);

    if (ok)
        atomic_store_explicit(&step->is_open, false, memory_order_relaxed);
    end_round(step);
    if (ok)
        coi_flight_end(step->strategy->recorder, flight, CO_OK);
}

bool
coi_rendezvous_leave(co_context *ctx)
{
    coi_step *step = ctx->mode.step;
    unsigned  round = coi_round(step);

    atomic_store(&coi_my_slot(ctx)->arrived, true);
    if ((int)(atomic_fetch_add(&step->barrier, 1) & COI_ARRIVED) + 1 == step->n) {
        complete_leaving(step);
    } else {
        watchdog p = watchdog_of(ctx, round, report_leaving);

        extend_for_workers(step, &p);
        pass_token(step, ctx->mode.local_replica + 1);
        for (;;) {
            unsigned seen = coi_event_read(&step->gate);

            if (coi_round(step) != round)
                break;
            wait_for(&p, &step->gate, seen);
        }
    }
    coi_wait_token(ctx);
    return !coi_is_broken(step) || fail_broken(ctx);
}

bool
coi_rendezvous(co_context *ctx, coi_rendezvous_kind kind, co_value *value, void *detail,
               coi_close_fn close)
{
    coi_rendezvous_slot *slot = coi_my_slot(ctx);

    if (slot->started != NULL && slot->started != detail) /* it comes to another one */
        coi_drop_started(ctx);
    /* Others may still read the slot of a replica that waited when the step broke. */
    if (coi_is_broken(ctx->mode.step))
        return fail_broken(ctx);
    slot->kind = kind;
    ++slot->sequence;
    coi_copy_site(&slot->site, &ctx->site);
    slot->value = value;
    coi_summarise(value, &slot->what);
    slot->detail = detail;
    slot->result = NULL;
    return barrier(ctx, close);
}

void
coi_replica_finished(co_context *ctx)
{
    coi_step *step = ctx->mode.step;
    uint64_t  now;

    coi_drop_started(ctx);
    /* A failure first: a replica that sees that this one returned would report that. */
    if (ctx->error.code != CO_OK)
        coi_break(step, ctx);
    if (step->n == 1) /* nobody waits */
        return;
    atomic_store(&coi_my_slot(ctx)->finished, true);
    atomic_fetch_add(&step->finished, 1);
    coi_tell_awaiting(step);
    now = atomic_load(&step->barrier);
    if (ctx->error.code == CO_OK && (now & COI_ARRIVED) > 0 && (now & COI_BROKEN) == 0)
        /* Replicas that wait already did not see that this one finished: tell them. Those that come
         * later see the count. */
        for (int i = 0; i < step->n; ++i)
            if (atomic_load(&step->slots[i].arrived)) {
                break_for_return(step, coi_round_of(now), ctx->mode.local_replica, i);
                break;
            }
    pass_token(step, ctx->mode.local_replica + 1);
}

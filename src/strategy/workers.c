/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the processes of a strategy. Before data flows, the ranks exchange handshakes that say
 * what each is about to do. Ranks that disagree find out before data is sent, and each gets an
 * error that names both sides. Without a group nothing happens.
 */
#include "strategy/workers.h"

#include "base/text.h"
#include "ops/engine/execute.h"
#include "strategy/comm_options.h"
#include "strategy/rendezvous.h"

#include <stdio.h>
#include <string.h>

/* --- the token --- */

/* Whether ctx acts for the run that holds the token: a replica of it, or its merge function. */
static bool
is_inside(const co_context *ctx, const co_strategy *strategy)
{
    return ctx->mode.step != NULL && ctx->mode.step->strategy == strategy;
}

/* The progress of the run that holds the token. */
static uint64_t
token_progress(co_strategy *strategy)
{
    uint64_t progress = atomic_load(&strategy->token_ticks);

    coi_lock_take(&strategy->lock);
    if (strategy->token_step != NULL)
        progress += coi_step_progress(strategy->token_step);
    coi_lock_give(&strategy->lock);
    return progress;
}

static void
set_token_step(co_strategy *strategy, coi_step *step)
{
    coi_lock_take(&strategy->lock);
    strategy->token_step = step;
    coi_lock_give(&strategy->lock);
}

bool
coi_workers_begin(co_context *ctx, co_strategy *strategy, coi_step *step)
{
    uint64_t before = token_progress(strategy);

    for (;;) {
        unsigned seen = coi_event_read(&strategy->token_released);
        bool     taken = false;
        uint64_t now;

        if (atomic_compare_exchange_strong(&strategy->token_taken, &taken, true))
            break;
        if (coi_event_wait(&strategy->token_released, seen, &ctx->runtime->waiting,
                           coi_timeout(strategy)))
            continue;
        now = token_progress(strategy);
        if (now == before) {
            char text[COI_STRATEGY_TEXT];

            coi_fail(
                ctx, CO_DEADLINE_EXCEEDED,
                "%s waits for another run or collective of %s, which has executed nothing for %d ms "
                "(deadline_ms); a step uses the context it is given, not another",
                ctx->call, coi_strategy_text(strategy, text), strategy->deadline_ms);
            return false;
        }
        before = now;
    }
    set_token_step(strategy, step);
    atomic_fetch_add(&strategy->epoch, 1);
    strategy->sequence = strategy->delivered = 0;
    return true;
}

static void
release_token(co_strategy *strategy)
{
    set_token_step(strategy, NULL);
    atomic_store(&strategy->token_taken, false);
    coi_event_signal(&strategy->token_released);
}

/* --- handshakes --- */

static void
fill_handshake(co_context *ctx, const co_strategy *strategy, coi_handshake_kind kind,
               coi_handshake *handshake)
{
    memset(handshake, 0, sizeof(*handshake));
    handshake->kind = (uint32_t)kind;
    handshake->epoch = atomic_load(&strategy->epoch);
    handshake->sequence = strategy->sequence;
    handshake->replica = -1;
    if (ctx->site.file != NULL)
        snprintf(handshake->site, sizeof(handshake->site), "%s:%d",
                 coi_path_end(ctx->site.file, 60), ctx->site.line);
}

/* Tell the others how a run of this epoch ended: well, or with the error of ctx. */
static void
notify(co_context *ctx, co_strategy *strategy)
{
    coi_handshake handshake;

    if (ctx->error.code == CO_OK) {
        fill_handshake(ctx, strategy, COI_HANDSHAKE_RUN_END, &handshake);
    } else {
        fill_handshake(ctx, strategy, COI_HANDSHAKE_FAILED, &handshake);
        handshake.code = (int32_t)ctx->error.code;
        handshake.number = (int64_t)strategy->delivered + 1;
        handshake.replica = ctx->error.replica;
        coi_text_line(handshake.text, sizeof(handshake.text), "%s", ctx->error.message);
        if (ctx->error.file != NULL)
            snprintf(handshake.site, sizeof(handshake.site), "%s:%d",
                     coi_path_end(ctx->error.file, 60), ctx->error.line);
    }
    strategy->group->transport->notify(strategy->group, &handshake);
}

void
coi_workers_end(co_context *ctx, co_strategy *strategy)
{
    notify(ctx, strategy);
    release_token(strategy);
}

void
coi_workers_abort(co_context *ctx, co_strategy *strategy)
{
    if (is_inside(ctx, strategy) || !coi_workers_begin(ctx, strategy, NULL))
        return; /* the end of the run says so */
    coi_workers_end(ctx, strategy);
}

static bool
peer_failed(co_context *ctx, int rank, const coi_handshake *handshake)
{
    if (handshake->what != COI_RENDEZVOUS_NONE)
        ctx->call = coi_rendezvous_name((coi_rendezvous_kind)handshake->what);
    coi_fail(ctx, (co_code)handshake->code, "rank %d failed%s%s: %s", rank,
             handshake->site[0] != '\0' ? " at " : "", handshake->site, handshake->text);
    return false;
}

/* "all_reduce of float32 [2], rendezvous 3 of run 7, at step.c:41" */
#define PLACE_TEXT 400
static const char *
place_text(const coi_handshake *handshake, char out[PLACE_TEXT])
{
    snprintf(out, PLACE_TEXT, "%s%s%s, rendezvous %llu of run %llu%s%s",
             coi_rendezvous_name((coi_rendezvous_kind)handshake->what),
             handshake->text[0] != '\0' ? " of " : "", handshake->text,
             (unsigned long long)handshake->sequence, (unsigned long long)handshake->epoch,
             handshake->site[0] != '\0' ? ", at " : "", handshake->site);
    return out;
}

static bool
out_of_step(co_context *ctx, int rank, const coi_handshake *mine, const coi_handshake *other)
{
    char theirs[PLACE_TEXT], ours[PLACE_TEXT];
    bool ended = other->kind == COI_HANDSHAKE_RUN_END;

    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "ranks disagree: rank %d is in %s, and rank %d %s%s; all ranks must make the same calls in the same order",
        ctx->rank, place_text(mine, ours), rank, ended ? "has ended this run without it" : "is in ",
        ended ? "" : place_text(other, theirs));
    return false;
}

static bool
compare_handshakes(co_context *ctx, const co_strategy *strategy, const coi_handshake *mine,
                   const coi_handshake *all)
{
    for (int r = 0; r < strategy->num_workers; ++r)
        if (r != strategy->worker && all[r].kind == COI_HANDSHAKE_FAILED)
            return peer_failed(ctx, r, &all[r]);
    for (int r = 0; r < strategy->num_workers; ++r) {
        const coi_handshake *other = &all[r];

        if (r == strategy->worker)
            continue;
        if (other->kind != COI_HANDSHAKE_COLLECTIVE || other->epoch != mine->epoch ||
            other->sequence != mine->sequence || other->what != mine->what)
            return out_of_step(ctx, r, mine, other);
        if (other->signature != mine->signature) {
            char theirs[PLACE_TEXT], ours[PLACE_TEXT];
            /* A number below zero tells how many leaves of which kinds there are (RC-AR-4). */
            bool structures = mine->number < 0 && other->number < 0 &&
                              other->number != mine->number;

            coi_fail(
                ctx, structures ? CO_ASSERTION_ERROR : CO_INVALID_ARGUMENT,
                "ranks disagree: rank %d brings %s, and rank %d brings %s; all ranks must bring the same dtypes and shapes",
                ctx->rank, place_text(mine, ours), r, place_text(other, theirs));
            return false;
        }
    }
    return true;
}

static bool
has_sent_handshake(const void *arg, int rank)
{
    return ((const coi_handshake *)arg)[rank].kind == COI_HANDSHAKE_COLLECTIVE;
}

static void
begin_flight(const co_context *ctx, co_strategy *strategy, const coi_handshake *mine)
{
    strategy->flight = coi_flight_begin(strategy->recorder,
                                        &(coi_flight){ .epoch = mine->epoch,
                                                       .sequence = mine->sequence,
                                                       .kind = (int)mine->what,
                                                       .expected = strategy->num_workers,
                                                       .site = ctx->site,
                                                       .text = mine->text });
}

/* A collective outside a run is over: release the token that it held from its first message on. */
static void
leave(co_context *ctx, co_strategy *strategy)
{
    if (is_inside(ctx, strategy))
        return;
    if (ctx->error.code != CO_OK) {
        notify(ctx, strategy);
        if (coi_flight_take_trouble(strategy->recorder))
            coi_flight_report(strategy);
    }
    release_token(strategy);
}

/* Send mine, receive all, and compare. */
static bool
exchange(co_context *ctx, co_strategy *strategy, const coi_handshake *mine, coi_handshake *all)
{
    bool ok = strategy->group->transport->exchange(strategy->group, mine, all,
                                                   coi_comm_options_of(ctx, strategy)->timeout_ms,
                                                   coi_err(ctx)) == CO_OK;

    if (!ok)
        coi_failed(ctx);
    ok = ok && compare_handshakes(ctx, strategy, mine, all);
    if (ok) {
        coi_flight_met(strategy->recorder, strategy->flight);
    } else {
        coi_flight_cut(strategy->recorder, strategy->flight, ctx->error.code, strategy->num_workers,
                       has_sent_handshake, all);
        coi_flight_trouble(strategy->recorder);
    }
    return ok;
}

bool
coi_workers_handshake(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                      uint64_t signature, const char *text, int64_t number, int64_t *numbers)
{
    coi_handshake mine, *all;
    size_t        nbytes = (size_t)strategy->num_workers * sizeof(*all), at;
    bool          ok;

    if (strategy->group == NULL)
        return true;
    if (!is_inside(ctx, strategy) && !coi_workers_begin(ctx, strategy, NULL))
        return false;
    atomic_fetch_add(&strategy->token_ticks, 1);
    coi_tick(ctx);
    ++strategy->sequence;
    fill_handshake(ctx, strategy, COI_HANDSHAKE_COLLECTIVE, &mine);
    mine.what = (uint32_t)what;
    mine.number = number;
    /* All ranks must divide their messages alike, so communication options are compared too. */
    mine.signature = signature ^ ((uint64_t)coi_comm_options_of(ctx, strategy)->bytes_per_pack * 2 +
                                  (uint64_t)coi_comm_options_of(ctx, strategy)->in_ring) *
                                     UINT64_C(0x9E3779B97F4A7C15);
    at = coi_text_line(mine.text, 151, "%s", text); /* room for what follows */
    if (coi_comm_options_of(ctx, strategy)->bytes_per_pack > 0)
        at += (size_t)snprintf(mine.text + at, sizeof(mine.text) - at, " in packs of %zu bytes",
                               coi_comm_options_of(ctx, strategy)->bytes_per_pack);
    if (coi_comm_options_of(ctx, strategy)->in_ring)
        snprintf(mine.text + at, sizeof(mine.text) - at, " in a ring");
    all = coi_small_alloc(&ctx->heap, nbytes);
    if (all == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to hear from %d ranks",
                 strategy->num_workers);
        leave(ctx, strategy);
        return false;
    }
    memset(all, 0, nbytes); /* a rank without a handshake has sent nothing */
    begin_flight(ctx, strategy, &mine);
    ok = exchange(ctx, strategy, &mine, all);
    for (int r = 0; ok && numbers != NULL && r < strategy->num_workers; ++r)
        numbers[r] = all[r].number;
    coi_small_free(&ctx->heap, all, nbytes);
    if (!ok)
        leave(ctx, strategy);
    return ok;
}

bool
coi_workers_done(co_context *ctx, co_strategy *strategy, bool ok)
{
    if (!ok)
        coi_failed(ctx);
    if (strategy->group == NULL)
        return ok;
    if (ok) /* a failure from now on does not affect the data of this collective */
        strategy->delivered = strategy->sequence;
    atomic_fetch_add(&strategy->token_ticks, 1);
    coi_flight_end(strategy->recorder, strategy->flight, ctx->error.code);
    if (!ok)
        coi_flight_trouble(strategy->recorder);
    leave(ctx, strategy);
    return ok;
}

void
coi_workers_hold(const co_strategy *strategy, co_value *value)
{
    if (strategy->group != NULL && strategy->group->holding)
        coi_ref(value);
}

typedef struct broadcast_job {
    co_strategy *strategy;
    co_value    *tensor, *copy;
} broadcast_job;

static bool
broadcast(co_context *ctx, void *arg)
{
    broadcast_job  *b = arg;
    co_strategy    *strategy = b->strategy;
    const co_value *tensor = b->tensor;
    char            text[COI_SHAPE_TEXT + 32], shape[COI_SHAPE_TEXT];
    co_value       *copy = coi_host_zeros(ctx, (co_dtype)tensor->dtype, tensor->u.tensor.dims,
                                          tensor->ndim);

    if (copy != NULL && coi_download(ctx, tensor, coi_data_on_host(copy)) != CO_OK)
        return coi_failed(ctx) == CO_OK;
    snprintf(text, sizeof(text), "%s %s", co_dtype_name((co_dtype)tensor->dtype),
             coi_shape_text(tensor->u.tensor.dims, tensor->ndim, shape));
    if (copy == NULL ||
        !coi_workers_handshake(ctx, strategy, COI_RENDEZVOUS_BROADCAST,
                               coi_sign_tensor(COI_SIGNATURE, tensor, -1), text, 0, NULL))
        return false;
    if (coi_workers_done(ctx, strategy,
                         coi_group_broadcast(strategy->group, coi_data_on_host(copy),
                                             coi_tensor_nbytes(copy), 0,
                                             coi_comm_options_of(ctx, strategy)->timeout_ms,
                                             coi_err(ctx)) == CO_OK)) {
        b->copy = coi_place_here(ctx, copy);
        return b->copy != NULL;
    }
    coi_workers_hold(strategy, copy);
    return false;
}

const coi_op coi_op_worker_broadcast = { COI_EFFECT(
    "worker_broadcast", "Copies the tensor of worker 0 to all workers, for initial values.",
    coi_body_effect, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS) };

co_value *
coi_workers_broadcast(co_context *ctx, co_strategy *strategy, co_value *tensor)
{
    broadcast_job b = { strategy, tensor, NULL };

    if (strategy->group == NULL)
        return tensor;
    if (tensor->dtype == CO_STRING) { /* on all workers alike, so none waits for another */
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "strings are not sent between workers; keep them in variables outside the scope");
        return NULL;
    }
    coi_execute_body(ctx, &coi_op_worker_broadcast,
                     (coi_effect){ .in = &b.tensor, .num_in = 1, .out = &b.copy, .num_out = 1 },
                     broadcast, &b);
    return b.copy;
}

/* The block of one rank: like `mine` but for the length along axis. */
static co_value *
block_of(co_context *ctx, const co_value *mine, int axis, int64_t length, const char *data)
{
    int64_t dims[CO_MAX_DIMS];

    memcpy(dims, mine->u.tensor.dims, (size_t)mine->ndim * sizeof(*dims));
    dims[axis] = length;
    return co_tensor(ctx, (co_dtype)mine->dtype, dims, mine->ndim, data);
}

/* An array for all workers, of which there may be thousands: not on the stack. Without memory the
 * other workers, which would wait for this one, are notified. */
static void *
room_for_all(co_context *ctx, co_strategy *strategy, size_t size)
{
    void *room = coi_small_alloc(&ctx->heap, (size_t)strategy->num_workers * size);

    if (room == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for what %d workers bring",
                 strategy->num_workers);
        coi_workers_abort(ctx, strategy);
    }
    return room;
}

static void
drop_room(co_context *ctx, const co_strategy *strategy, void *room, size_t size)
{
    coi_small_free(&ctx->heap, room, (size_t)strategy->num_workers * size);
}

typedef struct agreement {
    co_strategy        *strategy;
    coi_rendezvous_kind what;
    uint64_t            signature;
    const char         *text;
    int64_t             number, *numbers;
} agreement;

static bool
agree(co_context *ctx, void *arg)
{
    const agreement *a = arg;

    return coi_workers_handshake(ctx, a->strategy, a->what, a->signature, a->text, a->number,
                                 a->numbers) &&
           coi_workers_done(ctx, a->strategy, true);
}

const coi_op coi_op_worker_agree = { COI_EFFECT(
    "worker_agree", "Exchanges a number between workers: input, placement, counts of a mean.",
    coi_body_effect, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS) };

bool
coi_workers_agree(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                  uint64_t signature, const char *text, int64_t number, int64_t *numbers)
{
    agreement a = { strategy, what, signature, text, number, numbers };

    return coi_execute_body(ctx, &coi_op_worker_agree, (coi_effect){ 0 }, agree, &a);
}

bool
coi_workers_add(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what, const char *text,
                int64_t *number)
{
    int64_t *numbers;
    bool     ok;

    if (strategy->group == NULL)
        return true;
    numbers = room_for_all(ctx, strategy, sizeof(*numbers));
    if (numbers == NULL)
        return false;
    ok = coi_workers_agree(ctx, strategy, what, 0, text, *number, numbers);
    *number = 0;
    for (int r = 0; ok && r < strategy->num_workers; ++r)
        *number += numbers[r];
    drop_room(ctx, strategy, numbers, sizeof(*numbers));
    return ok;
}

/* The bytes of all workers, one after the other, and how many of each: a block of total + 1 bytes,
 * or NULL. */
static char *
gather_bytes(co_context *ctx, co_strategy *strategy, co_value *mine, const size_t *nbytes,
             size_t total)
{
    char *all = coi_small_alloc(&ctx->heap, total + 1);
    bool  ok;

    mine = coi_host_value(ctx, mine);
    if (mine == NULL && all != NULL) {
        coi_small_free(&ctx->heap, all, total + 1);
        coi_workers_done(ctx, strategy, false);
        return NULL;
    }
    if (all == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to gather %zu bytes", total);
        coi_workers_done(ctx, strategy, false);
        return NULL;
    }
    ok = coi_group_all_gather(strategy->group, coi_data_on_host(mine), nbytes, all,
                              coi_comm_options_of(ctx, strategy)->timeout_ms,
                              coi_err(ctx)) == CO_OK;
    if (coi_workers_done(ctx, strategy, ok))
        return all;
    if (!strategy->group->holding) /* else the transport still uses it */
        coi_small_free(&ctx->heap, all, total + 1);
    return NULL;
}

/* Exchange handshakes, gather, and concatenate: a value of ctx's block. Three arrays lie in one
 * room of 3 words for each worker. */
static co_value *
concat_in(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what, co_value *mine,
          int axis, void *room)
{
    int64_t    *lengths = room;
    size_t     *nbytes = (size_t *)(void *)(lengths + strategy->num_workers), total = 0, row;
    co_value  **blocks = (co_value **)(void *)(nbytes + strategy->num_workers);
    char        text[COI_SHAPE_TEXT], *all;
    const char *from;

    if (!coi_workers_handshake(ctx, strategy, what, coi_sign_tensor(COI_SIGNATURE, mine, axis),
                               coi_shape_text(mine->u.tensor.dims, mine->ndim, text),
                               mine->u.tensor.dims[axis], lengths))
        return NULL;
    row = coi_dtypes[mine->dtype].size;
    for (int d = 0; d < mine->ndim; ++d)
        row *= d == axis ? 1 : (size_t)mine->u.tensor.dims[d];
    for (int r = 0; r < strategy->num_workers; ++r)
        total += nbytes[r] = (size_t)lengths[r] * row;
    all = gather_bytes(ctx, strategy, mine, nbytes, total);
    if (all == NULL)
        return NULL;
    from = all;
    for (int r = 0; r < strategy->num_workers; from += nbytes[r++])
        blocks[r] = block_of(ctx, mine, axis, lengths[r], from);
    coi_small_free(&ctx->heap, all, total + 1);
    return ctx->error.code == CO_OK
               ? co_concat(ctx, co_list(ctx, blocks, (size_t)strategy->num_workers), axis)
               : NULL;
}

typedef struct concat_job {
    co_strategy        *strategy;
    coi_rendezvous_kind what;
    co_value           *mine;
    int                 axis;
    void               *room;
    co_value           *whole;
} concat_job;

static bool
concat(co_context *ctx, void *arg)
{
    concat_job *c = arg;

    c->whole = concat_in(ctx, c->strategy, c->what, c->mine, c->axis, c->room);
    return c->whole != NULL;
}

const coi_op coi_op_worker_concat = {
    COI_EFFECT("worker_concat", "Concatenates the tensors of all workers, on all workers.",
               coi_body_effect, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS)
};

co_value *
coi_workers_concat(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what, co_value *mine,
                   int axis)
{
    size_t     each = sizeof(int64_t) + sizeof(size_t) + sizeof(co_value *);
    void      *room;
    concat_job c;

    if (mine->dtype == CO_STRING) { /* on all workers alike, so none waits for another */
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "strings are not gathered between workers; gather their numbers, or use "
                 "co_local_results in each process");
        return NULL;
    }
    room = room_for_all(ctx, strategy, each);
    if (room == NULL)
        return NULL;
    c = (concat_job){ strategy, what, mine, axis < 0 ? axis + mine->ndim : axis, room, NULL };
    coi_execute_body(ctx, &coi_op_worker_concat,
                     (coi_effect){ .in = &mine, .num_in = 1, .out = &c.whole, .num_out = 1 },
                     concat, &c);
    drop_room(ctx, strategy, room, each);
    return c.whole;
}

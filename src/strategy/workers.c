/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the processes of a strategy. Before data flows, every rank says what it is about to do; ranks that are not in step find
 * out here, before anything is sent, and each gets an error that names both sides. Without a group nothing happens.
 */
#include "ops/op.h"
#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

void
coi_epoch_begin(co_strategy *strategy, bool in_step)
{
    ++strategy->epoch;
    strategy->sequence = strategy->delivered = 0;
    strategy->in_step = in_step;
}

static void
fill_hello(co_context *ctx, const co_strategy *strategy, coi_hello_kind kind, coi_hello *hello)
{
    memset(hello, 0, sizeof(*hello));
    hello->kind = (uint32_t)kind;
    hello->epoch = strategy->epoch;
    hello->sequence = strategy->sequence;
    hello->replica = -1;
    if (ctx->site.file != NULL)
        snprintf(hello->site, sizeof(hello->site), "%.60s:%d", ctx->site.file, ctx->site.line);
}

static bool
peer_failed(co_context *ctx, int rank, const coi_hello *hello)
{
    ctx->call = coi_meeting_name((coi_meeting_kind)hello->what);
    coi_fail(ctx, hello->code != CO_OK ? (co_code)hello->code : CO_ABORTED,
             "rank %d failed%s%s: %s", rank, hello->site[0] != '\0' ? " at " : "", hello->site,
             hello->text);
    return false;
}

static bool
out_of_step(co_context *ctx, int rank, const coi_hello *mine, const coi_hello *other)
{
    char theirs[160], ours[120];

    snprintf(ours, sizeof(ours), "%s%s%s", coi_meeting_name((coi_meeting_kind)mine->what),
             mine->site[0] != '\0' ? " at " : "", mine->site);
    if (other->kind == COI_HELLO_RUN_END)
        snprintf(theirs, sizeof(theirs), "has ended this run without it");
    else
        snprintf(theirs, sizeof(theirs), "is in %s%s%s%s",
                 coi_meeting_name((coi_meeting_kind)other->what),
                 other->site[0] != '\0' ? " at " : "", other->site,
                 other->epoch > mine->epoch ? " of a later run" : "");
    coi_fail(
        ctx, CO_RUNTIME,
        "ranks disagree: rank %d is in %s, and rank %d %s; all ranks must make the same calls in the same order",
        ctx->rank, ours, rank, theirs);
    return false;
}

static bool
compare_hellos(co_context *ctx, const co_strategy *strategy, const coi_hello *mine,
               const coi_hello *all)
{
    for (int r = 0; r < strategy->num_workers; ++r)
        if (r != strategy->worker && all[r].kind == COI_HELLO_FAILED)
            return peer_failed(ctx, r, &all[r]);
    for (int r = 0; r < strategy->num_workers; ++r) {
        const coi_hello *other = &all[r];

        if (r == strategy->worker)
            continue;
        if (other->kind != COI_HELLO_COLLECTIVE || other->epoch != mine->epoch ||
            other->sequence != mine->sequence || other->what != mine->what)
            return out_of_step(ctx, r, mine, other);
        if (other->signature != mine->signature) {
            /* A number below zero tells how many leaves of which kinds there are (RC-AR-4). */
            bool structures = mine->number < 0 && other->number < 0 &&
                              other->number != mine->number;

            coi_fail(ctx, structures ? CO_ASSERTION : CO_INVALID_ARGUMENT,
                     "rank %d brings %s to %s, and rank %d brings %s", ctx->rank, mine->text,
                     coi_meeting_name((coi_meeting_kind)mine->what), r, other->text);
            return false;
        }
    }
    return true;
}

bool
coi_workers_meet(co_context *ctx, co_strategy *strategy, coi_meeting_kind what, uint64_t signature,
                 const char *text, int64_t number, int64_t *numbers)
{
    coi_hello mine, *all;
    size_t    nbytes = (size_t)strategy->num_workers * sizeof(*all), at;
    bool      ok;

    if (strategy->group == NULL) {
        if (numbers != NULL)
            numbers[0] = number;
        return true;
    }
    if (!strategy->in_step)
        coi_epoch_begin(strategy, false);
    ++strategy->sequence;
    fill_hello(ctx, strategy, COI_HELLO_COLLECTIVE, &mine);
    mine.what = (uint32_t)what;
    mine.number = number;
    /* Messages are cut alike or not at all, so advice belongs to what is compared. */
    mine.signature = signature ^ ((uint64_t)strategy->travel.bytes_per_pack * 2 +
                                  (uint64_t)strategy->travel.in_ring) *
                                     UINT64_C(0x9E3779B97F4A7C15);
    at = (size_t)snprintf(mine.text, sizeof(mine.text), "%.150s", text);
    if (strategy->travel.bytes_per_pack > 0)
        at += (size_t)snprintf(mine.text + at, sizeof(mine.text) - at, " in packs of %zu bytes",
                               strategy->travel.bytes_per_pack);
    if (strategy->travel.in_ring)
        snprintf(mine.text + at, sizeof(mine.text) - at, " in a ring");
    all = coi_small_alloc(&ctx->heap, nbytes);
    if (all == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to hear from %d ranks",
                 strategy->num_workers);
        return false;
    }
    ok = strategy->group->transport->exchange(strategy->group, &mine, all,
                                              strategy->travel.timeout_ms, coi_err(ctx)) == CO_OK;
    if (!ok)
        coi_failed(ctx);
    ok = ok && compare_hellos(ctx, strategy, &mine, all);
    for (int r = 0; ok && numbers != NULL && r < strategy->num_workers; ++r)
        numbers[r] = all[r].number;
    coi_small_free(&ctx->heap, all, nbytes);
    if (!ok && !strategy->in_step)
        coi_workers_end(ctx, strategy, false); /* inside a step, its end says so */
    return ok;
}

void
coi_workers_end(co_context *ctx, co_strategy *strategy, bool ok)
{
    coi_hello hello;

    strategy->in_step = false;
    if (strategy->group == NULL)
        return;
    fill_hello(ctx, strategy, ok ? COI_HELLO_RUN_END : COI_HELLO_FAILED, &hello);
    if (!ok) {
        hello.code = (int32_t)ctx->error.code;
        hello.number = (int64_t)strategy->delivered + 1;
        hello.replica = ctx->error.replica;
        snprintf(hello.text, sizeof(hello.text), "%.*s", (int)sizeof(hello.text) - 1,
                 ctx->error.message);
        if (ctx->error.file != NULL)
            snprintf(hello.site, sizeof(hello.site), "%.60s:%d", ctx->error.file, ctx->error.line);
    }
    strategy->group->transport->announce(strategy->group, &hello);
}

void
coi_workers_hold(const co_strategy *strategy, co_value *value)
{
    if (strategy->group != NULL && strategy->group->holding)
        coi_ref(value);
}

co_value *
coi_workers_broadcast(co_context *ctx, co_strategy *strategy, co_value *tensor)
{
    char      text[COI_SHAPE_TEXT];
    co_value *copy;

    if (strategy->group == NULL)
        return tensor;
    if (tensor->dtype == CO_STRING) { /* on all workers alike, so none waits for another */
        coi_fail(ctx, CO_NOT_IMPLEMENTED,
                 "strings are not sent between workers; keep them in variables outside the scope");
        return NULL;
    }
    copy = co_tensor(ctx, (co_dtype)tensor->dtype, tensor->u.tensor.dims, (size_t)tensor->ndim,
                     tensor->u.tensor.data);
    if (copy == NULL ||
        !coi_workers_meet(ctx, strategy, COI_MEET_BROADCAST,
                          (uint64_t)tensor->u.tensor.num_elements + tensor->dtype,
                          coi_shape_text(tensor->u.tensor.dims, tensor->ndim, text), 0, NULL))
        return NULL;
    if (coi_group_broadcast(strategy->group, copy->u.tensor.data, coi_tensor_nbytes(copy), 0,
                            strategy->travel.timeout_ms, coi_err(ctx)) == CO_OK) {
        coi_workers_delivered(strategy);
        return copy;
    }
    coi_workers_hold(strategy, copy);
    coi_failed(ctx);
    return NULL;
}

/* The block of one rank: like `mine` but for the length along axis. */
static co_value *
block_of(co_context *ctx, const co_value *mine, int axis, int64_t length, const char *data)
{
    int64_t dims[CO_MAX_DIMS];

    memcpy(dims, mine->u.tensor.dims, (size_t)mine->ndim * sizeof(*dims));
    dims[axis] = length;
    return co_tensor(ctx, (co_dtype)mine->dtype, dims, (size_t)mine->ndim, data);
}

co_value *
coi_workers_concat(co_context *ctx, co_strategy *strategy, coi_meeting_kind what, co_value *mine,
                   int axis)
{
    int64_t   lengths[COI_MAX_WORKERS];
    size_t    nbytes[COI_MAX_WORKERS], total = 0, row;
    co_value *blocks[COI_MAX_WORKERS];
    uint64_t  hash = mine->dtype;
    char      text[COI_SHAPE_TEXT], *all;
    int       at = axis < 0 ? axis + mine->ndim : axis;

    if (mine->dtype == CO_STRING) {
        coi_fail(ctx, CO_NOT_IMPLEMENTED, "strings are not gathered between workers");
        return NULL;
    }
    for (int d = 0; d < mine->ndim; ++d)
        hash = (hash ^ (d == at ? 0 : (uint64_t)mine->u.tensor.dims[d])) * UINT64_C(1099511628211);
    if (!coi_workers_meet(ctx, strategy, what, hash,
                          coi_shape_text(mine->u.tensor.dims, mine->ndim, text),
                          mine->u.tensor.dims[at], lengths))
        return NULL;
    row = coi_dtypes[mine->dtype].size;
    for (int d = 0; d < mine->ndim; ++d)
        row *= d == at ? 1 : (size_t)mine->u.tensor.dims[d];
    for (int r = 0; r < strategy->num_workers; ++r)
        total += nbytes[r] = (size_t)lengths[r] * row;
    all = coi_small_alloc(&ctx->heap, total + 1);
    if (all == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to gather %zu bytes", total);
        return NULL;
    }
    if (coi_group_all_gather(strategy->group, mine->u.tensor.data, nbytes, all,
                             strategy->travel.timeout_ms, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
    } else {
        const char *from = all;

        coi_workers_delivered(strategy);
        for (int r = 0; r < strategy->num_workers; from += nbytes[r++])
            blocks[r] = block_of(ctx, mine, at, lengths[r], from);
    }
    if (!strategy->group->holding) /* else it is not ours any more */
        coi_small_free(&ctx->heap, all, total + 1);
    if (ctx->error.code != CO_OK)
        return NULL;
    return co_concat(ctx, co_list(ctx, blocks, (size_t)strategy->num_workers), at);
}

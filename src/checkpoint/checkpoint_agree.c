/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of several processes. What one of them meets alone (the disk is full, a file cannot be
 * read) must be heard by all before the next thing that they do together, or the others would wait
 * for one that has left. First each says which error it has; if any has one, those tell its text,
 * and the others get it.
 */
#include "checkpoint/checkpoint.h"

#include "strategy/workers.h"

#include <string.h>

#define TRIES 2

static uint64_t
sign_text(const char *text)
{
    uint64_t signature = COI_SIGNATURE;

    for (; *text != '\0'; ++text)
        signature = coi_sign(signature, (unsigned char)*text);
    return signature;
}

/* The numbers of all processes, a block of the heap; NULL with an error. */
static int64_t *
exchange(co_context *ctx, co_strategy *strategy, const char *text, int64_t number)
{
    size_t   nbytes = (size_t)strategy->num_workers * sizeof(number);
    int64_t *numbers = coi_small_alloc(&ctx->heap, nbytes);

    if (numbers == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for what %d processes say",
                 strategy->num_workers);
        coi_workers_abort(ctx, strategy);
    } else if (!coi_workers_agree(ctx, strategy, COI_RENDEZVOUS_CHECKPOINT, sign_text(text), text,
                                  number, numbers)) {
        coi_small_free(&ctx->heap, numbers, nbytes);
        numbers = NULL;
    }
    return numbers;
}

static void
drop(co_context *ctx, const co_strategy *strategy, int64_t *numbers)
{
    coi_small_free(&ctx->heap, numbers, (size_t)strategy->num_workers * sizeof(*numbers));
}

bool
coi_checkpoint_verdict(co_context *ctx, const co_checkpoint *checkpoint, const char *text,
                       co_code *code)
{
    co_strategy  *strategy = checkpoint->strategy;
    co_error_info own = ctx->error;
    const char   *call = ctx->call;
    int64_t      *codes = NULL;

    *code = own.code;
    if (coi_checkpoint_workers(checkpoint) == 1)
        return true;
    /* A process that comes too early, because it failed or its program is another one, meets the
     * others in a collective of theirs. All fail there, and come here next. */
    for (int i = 0; codes == NULL && i < TRIES; ++i) {
        coi_error_reset(&ctx->error);
        codes = exchange(ctx, strategy, text, own.code);
        if (codes == NULL && own.code == CO_OK)
            own = ctx->error;
    }
    for (int i = 0; codes != NULL && i < strategy->num_workers; ++i)
        if (codes[i] != CO_OK) {
            *code = (co_code)codes[i];
            break;
        }
    ctx->error = own;
    if (codes != NULL)
        drop(ctx, strategy, codes);
    ctx->call = call;
    return codes != NULL;
}

bool
coi_checkpoint_spread(co_context *ctx, const co_checkpoint *checkpoint, const char *text)
{
    co_strategy *strategy = checkpoint->strategy;
    const char  *call = ctx->call;
    int64_t     *numbers;

    if (coi_checkpoint_workers(checkpoint) == 1)
        return false;
    if (ctx->error.code != CO_OK) {
        coi_workers_abort(ctx, strategy);
        return false;
    }
    numbers = exchange(ctx, strategy, text, 0);
    ctx->call = call;
    if (numbers != NULL) {
        drop(ctx, strategy, numbers);
        coi_fail(ctx, CO_ABORTED, "another process failed, and did not say why");
    }
    return false;
}

bool
coi_checkpoint_agree(co_context *ctx, const co_checkpoint *checkpoint, const char *text)
{
    co_code code;

    if (!coi_checkpoint_verdict(ctx, checkpoint, text, &code))
        return false;
    return code == CO_OK || coi_checkpoint_spread(ctx, checkpoint, text);
}

bool
coi_checkpoint_first(co_context *ctx, const co_checkpoint *checkpoint, const char *text,
                     int64_t *number)
{
    co_error_info own = ctx->error;
    const char   *call = ctx->call;
    int64_t      *numbers;

    if (coi_checkpoint_workers(checkpoint) == 1)
        return true;
    coi_error_reset(&ctx->error);
    numbers = exchange(ctx, checkpoint->strategy, text, *number);
    if (numbers == NULL)
        return false;
    *number = numbers[0];
    drop(ctx, checkpoint->strategy, numbers);
    ctx->error = own;
    ctx->call = call;
    return true;
}

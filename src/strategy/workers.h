/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the processes of a strategy. Without a group all of this does nothing.
 */
#ifndef COI_STRATEGY_WORKERS_H
#define COI_STRATEGY_WORKERS_H

#include "strategy/rendezvous_kind.h"
#include "strategy/strategy.h"

struct coi_step;

/*
 * The runs of a strategy, and its collectives outside a run, happen one after the other, from
 * whichever threads they come: each holds the token of the strategy. Take the token for a run and
 * begin its epoch; false with CO_DEADLINE_EXCEEDED where the holder executes nothing for the
 * deadline.
 */
bool coi_workers_begin(co_context *ctx, co_strategy *strategy, struct coi_step *step);
/* Tell the others that the run ended, or failed with the error of ctx, and release the token. */
void coi_workers_end(co_context *ctx, co_strategy *strategy);
/*
 * Exchange handshakes at a collective and check that all ranks are at the same one; `numbers` (may
 * be NULL, one per rank) receives each rank's `number`. False with an error in ctx that names rank,
 * place and both sides. True: data may flow, and coi_workers_done must follow.
 */
bool coi_workers_handshake(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                           uint64_t signature, const char *text, int64_t number, int64_t *numbers);
/* A collective that consists of its handshakes: the number of each worker, on all of them. */
bool coi_workers_agree(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                       uint64_t signature, const char *text, int64_t number, int64_t *numbers);
/* The same for one number: *number becomes the sum of those of all workers. */
bool coi_workers_add(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                     const char *text, int64_t *number);
/* The collective is over, or failed with the error of ctx, which this completes. Returns ok. */
bool coi_workers_done(co_context *ctx, co_strategy *strategy, bool ok);
/* Outside a run: this rank fails instead of coming to the next collective, with the error of
 * ctx. */
void coi_workers_abort(co_context *ctx, co_strategy *strategy);
/* The tensors of all workers, concatenated along axis: a value of ctx's block. Dimensions other
 * than axis agree. */
co_value *coi_workers_concat(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                             co_value *tensor, int axis);
/* After a collective failed: let a value live on that the transport may still write to. */
void coi_workers_hold(const co_strategy *strategy, co_value *value);
/* The value of worker 0, on all workers (MW-9): a value of ctx's block. All bring the same shape
 * and dtype. */
co_value *coi_workers_broadcast(co_context *ctx, co_strategy *strategy, co_value *tensor);

/* What ranks must agree on, as a hash: begin with COI_SIGNATURE, and add the parts. */
#define COI_SIGNATURE UINT64_C(14695981039346656037)
static inline uint64_t
coi_sign(uint64_t signature, uint64_t word)
{
    return (signature ^ word) * UINT64_C(1099511628211);
}
/* dtype and shape of a tensor; of the length along axis `but` (-1: none) only that it is there. */
static inline uint64_t
coi_sign_tensor(uint64_t signature, const co_value *tensor, int but)
{
    signature = coi_sign(signature, tensor->dtype);
    for (int d = 0; d < tensor->ndim; ++d)
        signature = coi_sign(signature, d == but ? 0 : (uint64_t)tensor->u.tensor.dims[d] + 1);
    return signature;
}

#endif

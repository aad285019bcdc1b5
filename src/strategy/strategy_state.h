/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What strategies keep in a context.
 */
#ifndef COI_STRATEGY_STRATEGY_STATE_H
#define COI_STRATEGY_STRATEGY_STATE_H

#include "collective/collective.h"
#include "context/context.h"

/* Examples of a batch; -1: not known. */
typedef struct coi_examples {
    int64_t of_step;    /* on all replicas */
    int64_t of_replica; /* on this one */
} coi_examples;

/* Zero in a new context. */
typedef struct coi_strategy_state {
    struct coi_hook_call   *hooks;    /* of custom strategies that run on the context */
    const coi_comm_options *comm;     /* of the call under way; NULL: those of the strategy */
    coi_examples            examples; /* of the step, in replica context */
    int                     making_variables; /* calls of co_variable that are under way */
} coi_strategy_state;
_Static_assert(sizeof(coi_strategy_state) <= COI_EXTENSION_BYTES,
               "the state of strategies fits the room that a context has for it");

static inline coi_strategy_state *
coi_strategy_state_of(const co_context *ctx)
{
    return (coi_strategy_state *)(void *)ctx->extensions[COI_EXTENSION_STRATEGY];
}

/* Examples of the step that ctx runs; not known outside a step. */
static inline coi_examples
coi_examples_of(const co_context *ctx)
{
    return coi_in_replica(ctx) ? coi_strategy_state_of(ctx)->examples : (coi_examples){ -1, -1 };
}

#endif

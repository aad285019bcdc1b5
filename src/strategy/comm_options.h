/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication options of strategies and calls (communication.c).
 */
#ifndef COI_STRATEGY_COMM_OPTIONS_H
#define COI_STRATEGY_COMM_OPTIONS_H

#include <cohort/communication.h>

#include "strategy/strategy.h"
#include "strategy/strategy_state.h"

/* Options as given to a call or a strategy: CO_VALUE_ERROR for fields out of range (CO-1). `all`
 * receives them. */
bool coi_take_communication(co_context *ctx, co_communication_options *all,
                            const co_communication_options *options, int position);
/* Whether two calls were given the same options. */
static inline bool
coi_is_same_communication(const co_communication_options *a, const co_communication_options *b)
{
    return a->bytes_per_pack == b->bytes_per_pack && a->timeout_seconds == b->timeout_seconds &&
           a->implementation == b->implementation;
}
/* Override fields of `comm` by the fields of options that are not the default (CO-2). */
void coi_comm_options_set(coi_comm_options *comm, const co_communication_options *options);
/* For the call that is made on ctx, until coi_comm_options_end; `comm` lives as long. */
void coi_comm_options_begin(co_context *ctx, const co_strategy *strategy,
                            const co_communication_options *options, coi_comm_options *comm);
static inline void
coi_comm_options_end(co_context *ctx)
{
    coi_strategy_state_of(ctx)->comm = NULL;
}
/* Of the call, or else of the strategy. */
static inline const coi_comm_options *
coi_comm_options_of(const co_context *ctx, const co_strategy *strategy)
{
    const coi_comm_options *comm = coi_strategy_state_of(ctx)->comm;

    return comm != NULL ? comm : &strategy->comm;
}
/* The algorithm: as asked for, or by the types of the devices (MIR-CDO-1). */
co_cross_device_ops coi_cross_device_ops(const co_strategy *strategy);

#endif

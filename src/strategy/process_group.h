/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies of several processes: opening their group, and joining it with a placement that all
 * processes agree on.
 */
#ifndef COI_STRATEGY_PROCESS_GROUP_H
#define COI_STRATEGY_PROCESS_GROUP_H

#include "strategy/placement.h"

/* The group of the processes that were started together. NULL with an error. */
coi_group *coi_open_group(co_context *ctx, const char *transport, const void *communicator,
                          int deadline_ms);
/* Make the strategy of such a group, on whose placement all ranks must agree. Takes ownership of
 * the group, even on failure. */
co_strategy *coi_strategy_join(co_context *ctx, const coi_policy *policy,
                               const coi_placement *where, coi_group *group);

#endif

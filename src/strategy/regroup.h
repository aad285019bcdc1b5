/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging the values of replicas into one, and selecting a replica's part (DV-GROUP, DV-SEL).
 */
#ifndef COI_STRATEGY_REGROUP_H
#define COI_STRATEGY_REGROUP_H

#include "strategy/strategy.h"
#include "strategy/strategy_state.h"

/* Merge the values of n local replicas by DV-GROUP; a reference. `kind` is that of the per-replica
 * values it makes; always: wrap equal leaves too. NULL with an error (CO_ASSERTION_ERROR where
 * structures differ). */
co_value *coi_regroup(co_context *ctx, const co_strategy *strategy, co_value *const *values, int n,
                      co_kind kind, bool always);
/* Whether a leaf is a component of a distributed variable: even one value alone is merged then. */
bool coi_has_component(const co_value *structure);
/* The structure with per-replica values replaced by their component; a reference, the same handle
 * if there are none. CO_VALUE_ERROR for one that has not a component for each local replica. */
co_value *coi_select_all(co_context *ctx, const co_strategy *strategy, co_value *structure,
                         int local_replica);
/* That check alone, over a structure. */
bool coi_check_per_replica(co_context *ctx, const co_strategy *strategy, const co_value *structure);
/* For strategies that do not select: no per-replica value has more components than there are local
 * replicas, because the others would be unused. */
bool coi_check_parts(co_context *ctx, const co_strategy *strategy, const co_value *structure);
/* The examples of the first per-replica value of a structure that knows them. */
coi_examples coi_find_examples(const co_value *structure, int local_replica);

#endif

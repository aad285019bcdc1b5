/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers of mirrored and sync-on-read variables.
 */
#ifndef COI_STRATEGY_DISTRIBUTED_VARIABLES_H
#define COI_STRATEGY_DISTRIBUTED_VARIABLES_H

#include "strategy/strategy.h"

struct coi_variable_spec;
/* The container of n components, from which it has name, dtype, shape and trainable flag: a
 * reference. */
co_value *coi_distributed_variable(co_context *ctx, const struct coi_variable_spec *spec,
                                   co_value *const *components, size_t n);
/* VAR-NEW-8: a variable is not used under another strategy. CO_RUNTIME_ERROR naming both. */
bool coi_check_owner(co_context *ctx, const coi_variable *variable, const co_strategy *used_by);

/*
 * slot_variables.c: a variable that goes with another, as the momentum of an optimizer does: of its
 * dtype, shape, strategy and number of components, each beside one of its own. Not trainable, and
 * without a value yet. Mirrored, or, with CO_SYNC_ON_READ, of values of replicas that reads sum. No
 * replicas meet to make it. A reference, or NULL with an error.
 */
co_value *coi_slot_variable(co_context *ctx, co_value *variable, const char *name,
                            co_synchronization synchronization);
/* The same with the synchronisation and aggregation of that variable, and with a dtype, shape and
 * value of its own: `initial`, a tensor, in every component. */
co_value *coi_variable_beside(co_context *ctx, co_value *variable, const char *name,
                              co_value *initial);

#endif

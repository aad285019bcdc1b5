/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each replica lives. Every constructor of a strategy fills a coi_placement, and
 * coi_strategy_make makes a strategy from it.
 */
#ifndef COI_STRATEGY_PLACEMENT_H
#define COI_STRATEGY_PLACEMENT_H

#include "strategy/strategy.h"

typedef struct coi_placement {
    int        num_replicas; /* of all workers */
    int        worker, num_workers;
    const int *workers; /* of each replica, in order; NULL: spread evenly */
    const coi_device_name
                  *devices; /* of this worker; spread evenly and in order over its replicas */
    size_t         num_devices;
    const int64_t *weights; /* of all replicas; NULL: equal */
    size_t         num_weights;
    int            deadline_ms;
} coi_placement;

/* A reference, or NULL with an error: CO_VALUE_ERROR for an invalid placement. */
co_strategy *coi_strategy_make(co_context *ctx, const coi_policy *policy,
                               const coi_placement *where);
/* Devices of this process: given, none twice, or else found (MIR-INIT-1). How many; 0 with an
 * error. */
size_t coi_choose_devices(co_context *ctx, const char *const *devices, size_t n,
                          coi_device_name out[COI_MAX_LOCAL_REPLICAS]);
/* Whether n replicas can be spread over so many places; 0 stands for one each. */
bool coi_check_replicas(co_context *ctx, int num_replicas, size_t num_places, const char *place,
                        size_t num_processes);
/* Puts the setting where options leave it to that. */
bool coi_check_deadline(co_context *ctx, int *deadline_ms);
/* Whether a built-in strategy has this name (builtin_strategies.c). */
bool coi_is_builtin(const char *name);
/* The default strategy of a flavour, which the runtime keeps (builtin_strategies.c). */
co_strategy *coi_default_strategy(co_context *ctx, bool is_v1);

#endif

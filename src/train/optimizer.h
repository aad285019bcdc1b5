/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers: a rule, its numbers, and the slots that it keeps for each variable component. The
 * rule works on raw elements, in place where nobody else holds the tensor.
 */
#ifndef COI_TRAIN_OPTIMIZER_H
#define COI_TRAIN_OPTIMIZER_H

#include <cohort/train.h>

#include "context/context.h"
#include "strategy/strategy.h"

#define COI_MAX_SLOTS 4

/* One update of n elements: value and slots change, gradient does not. old and value may be the
 * same memory. */
typedef struct coi_update {
    co_dtype    dtype; /* float32 or float64; others are refused before */
    int64_t     n;
    const void *old;
    void       *value;
    const void *gradient;
    void       *slots[COI_MAX_SLOTS];
    int64_t     step; /* from 1, for rules that count */
} coi_update;

typedef struct coi_optimizer_rule {
    const char *name;
    int (*num_slots)(const co_optimizer *optimizer);
    void (*update)(const co_optimizer *optimizer, const coi_update *update);
    bool counts_steps; /* update wants to know which step it is */
} coi_optimizer_rule;

struct co_optimizer {
    coi_object                object;
    const coi_optimizer_rule *rule;
    coi_runtime              *runtime;
    union {
        co_sgd_options  sgd;
        co_adam_options adam;
    };
    atomic_llong            iterations;
    coi_lock                lock;  /* of what follows */
    struct coi_slot_entry **table; /* by component, hashed; NULL where there is none */
    size_t                  num_entries, capacity;
    /*
     * Updates by each local replica. They apply on their own, one ahead of another perhaps by an
     * update, so that `iterations`, the count of the first, would be another for each. steps_of is
     * the strategy of the last one, 0 outside of steps.
     */
    uint64_t steps_of;
    int64_t  steps[COI_MAX_LOCAL_REPLICAS];
};

extern const coi_class coi_optimizer_class;
/* An optimizer of the block of ctx. */
co_optimizer *coi_optimizer_new(co_context *ctx, const coi_optimizer_rule *rule);

#endif

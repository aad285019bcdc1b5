/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers: a rule, its numbers, and the slots that it keeps for each variable component. The rule works on raw elements, in
 * place where nobody else holds the tensor.
 */
#ifndef COI_TRAIN_OPTIMIZER_H
#define COI_TRAIN_OPTIMIZER_H

#include <cohort/train.h>

#include "context/context.h"

#define COI_MAX_SLOTS 4

/* One update of n elements: value and slots change, gradient does not. old and value may be the same memory. */
typedef struct coi_update {
    co_dtype    dtype; /* float32 or float64; others are refused before */
    int64_t     n;
    const void *old;
    void       *value;
    const void *gradient;
    void       *slots[COI_MAX_SLOTS];
} coi_update;

typedef struct coi_optimizer_rule {
    const char *name;
    int (*num_slots)(const co_optimizer *optimizer);
    void (*update)(const co_optimizer *optimizer, const coi_update *update);
} coi_optimizer_rule;

struct co_optimizer {
    coi_object                object;
    const coi_optimizer_rule *rule;
    coi_runtime              *runtime;
    co_sgd_options            sgd;
    atomic_llong              iterations;
    coi_lock                  lock;  /* of the table */
    struct coi_slot_entry   **table; /* by component, hashed; NULL where there is none */
    size_t                    num_entries, capacity;
};

extern const coi_class coi_optimizer_class;
/* An optimizer of the block of ctx. */
co_optimizer *coi_optimizer_new(co_context *ctx, const coi_optimizer_rule *rule);

#endif

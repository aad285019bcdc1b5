/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers. What one optimizer is, its name, options, slots and kernel, is one coi_optimizer_rule
 * in a file of its own; everything else is common:
 *
 *     optimizer.c         making one, its counts
 *     optimizer_slots.c   the variables that it keeps for each variable
 *     optimizer_update.c  the update of one component
 *     apply_gradients.c   co_apply_gradients, co_minimize
 *     sgd.c, adam.c, ...  the rules
 *
 * To add one: options and constructor in include/cohort/train.h, a file with a rule and the
 * constructor, which calls coi_optimizer_new, and a row in tests/unit/optimizers.c.
 */
#ifndef COI_TRAIN_OPTIMIZER_H
#define COI_TRAIN_OPTIMIZER_H

#include <cohort/train.h>

#include "ops/engine/execute.h"
#include "strategy/strategy.h"

#define COI_MAX_SLOTS           4
#define COI_MAX_HYPERPARAMETERS 128

/* The numbers of one step, which all variables have in common: a struct of the rule. */
typedef struct coi_hyperparameters {
    _Alignas(16) unsigned char bytes[COI_MAX_HYPERPARAMETERS];
} coi_hyperparameters;

/* One update of n elements: value and slots change, gradient does not. old and value may be the
 * same memory. */
typedef struct coi_update {
    coi_isa     isa;
    co_dtype    dtype; /* float32 or float64; others are refused before */
    int64_t     n;
    const void *old;
    void       *value;
    const void *gradient;
    void       *slots[COI_MAX_SLOTS]; /* in the order of the rule */
} coi_update;

typedef struct coi_optimizer_rule {
    const char          *name;                 /* "SGD" */
    const struct coi_op *op;                   /* the entry of its update, COI_UPDATE_ENTRY */
    const char          *slots[COI_MAX_SLOTS]; /* names, "momentum"; all begin with zeros */
    const void          *defaults;             /* options: a struct that begins with its size */
    size_t               options_size;
    /* Whether options that were given can be; false with an error. */
    bool (*check)(co_context *ctx, const void *options);
    /* How many of the slots these options need: the first ones. */
    int (*num_slots)(const void *options);
    /* The hyperparameters of a step, counted from 1. */
    void (*prepare)(const void *options, int64_t step, void *hyperparameters);
    /* The kernel. Element by element, so that chunks change no bit. */
    void (*update)(const void *hyperparameters, const coi_update *update);
} coi_optimizer_rule;

/* The entry of an optimizer's update, sgd_update: it writes a variable and its slots. */
#define COI_UPDATE_ENTRY(name_, optimizer)                                                         \
    {                                                                                              \
        COI_EFFECT(name_, "Updates a variable and its slots by " optimizer "; co_minimize.",       \
                   coi_update_effect, CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),                 \
            .holds_locks = true                                                                    \
    }
co_code coi_update_effect(co_context *ctx, coi_effect *effect);

struct coi_slot_table;

struct co_optimizer {
    coi_object                object;
    const coi_optimizer_rule *rule;
    coi_runtime              *runtime;
    int                       num_slots; /* with these options */
    atomic_llong              iterations;
    atomic_bool               has_warned; /* of a mean over rows, in co_minimize */
    _Atomic(struct coi_slot_table *)
             table; /* of slots (optimizer_slots.c); written with the lock */
    coi_lock lock;  /* of what follows */
    size_t   num_entries;
    /*
     * Updates by each local replica. Replicas apply without waiting for each other, so one may have
     * made an update more than another, and `iterations`, the count of the first, would differ
     * between them. steps_of is
     * the strategy of the last one, 0 outside of steps.
     */
    uint64_t steps_of;
    int64_t  steps[COI_MAX_LOCAL_REPLICAS];
    _Alignas(16) unsigned char options[]; /* of the rule */
};

extern const coi_class coi_optimizer_class;
/* An optimizer of the block of ctx, with options over the defaults of the rule (NULL: those); for
 * constructors, after COI_ENTER. NULL with an error. */
co_optimizer *coi_optimizer_new(co_context *ctx, const coi_optimizer_rule *rule,
                                const void *options);
/* Whether argument 2 is an optimizer. */
bool coi_check_optimizer(co_context *ctx, const co_optimizer *optimizer);
/* Whether optimizers update variables of this dtype: float32 and float64. */
bool coi_check_trained(co_context *ctx, const coi_variable *variable);

/* --- optimizer_slots.c --- */

/*
 * The slots of a variable that is no component, made where it has none yet: num_slots variables,
 * of its strategy, whose components lie beside its own. They get their zeros at the first update of
 * a component. Borrowed; NULL with an error.
 */
co_value *const *coi_slots_of(co_context *ctx, co_optimizer *optimizer, co_value *variable);
void             coi_slots_free(coi_heap *heap, co_optimizer *optimizer);
/* Ordinary variable i of one that may be distributed. */
static inline co_value *
coi_variable_component(co_value *variable, size_t i)
{
    return variable->u.variable->components != NULL ? variable->u.variable->components[i]
                                                    : variable;
}
/* The variable that a component belongs to and which component of it; a variable that belongs to no
 * other is its own, and 0. A value of the block. */
co_value *coi_whole_variable(co_context *ctx, co_value *variable, size_t *i);

/* --- optimizer_update.c --- */

/*
 * Update an ordinary variable with a dense gradient of its dtype and shape, on the threads of its
 * device, in place where nobody else holds a tensor. `slots` are ordinary variables too, those of
 * the rule in its order.
 */
bool coi_update_variable(co_context *ctx, const coi_optimizer_rule *rule,
                         const coi_hyperparameters *hyperparameters, co_value *variable,
                         co_value *const *slots, int num_slots, co_value *gradient);

#endif

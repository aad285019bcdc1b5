/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers. What one optimizer is, its name, options, slots and numbers, is one
 * coi_optimizer_rule in a file of its own; everything else is common:
 *
 *     optimizer.c          making one
 *     optimizer_options.c  co_optimizer_configure
 *     optimizer_numbers.c  what is counted and set: iterations, learning rate, loss scale
 *     optimizer_slots.c    the variables that it keeps for each variable
 *     optimizer_state.c    all state by name, averages in place of weights
 *     apply_gradients.c    co_apply_gradients, co_minimize
 *     apply_options.c      accumulation, clipping, loss scaling on the way
 *     optimizer_update.c   the update of components
 *     sgd.c, adam.c, ...   the rules; custom_optimizer.c those of users
 *
 * To add one: options and constructor in include/cohort/train.h, a file with a rule and the
 * constructor, which calls coi_optimizer_new, a kernel, and a row in tests/unit/optimizers.c.
 */
#ifndef COI_TRAIN_OPTIMIZER_H
#define COI_TRAIN_OPTIMIZER_H

#include <cohort/train.h>

#include "base/plain_math.h"
#include "ops/engine/execute.h"
#include "ops/kernels/optimizer_update.h"
#include "strategy/strategy.h"
#include "train/schedule.h"

/* Slots of the rule, then the accumulator and the average. */
#define COI_ALL_SLOTS (COI_MAX_SLOTS + 2)

typedef struct coi_slot_spec {
    const char *name;
    double      initial;
} coi_slot_spec;

typedef struct coi_optimizer_rule {
    const char          *name;         /* "SGD" */
    const struct coi_op *op;           /* the entry of its update, COI_UPDATE_ENTRY */
    const void          *defaults;     /* options: a struct that begins with its size, and then */
    size_t               options_size; /* has the learning rate */
    coi_powers           powers;       /* what the kernel takes of indexed slices */
    /* Whether options that were given can be; false with an error. */
    bool (*check)(co_context *ctx, const void *options);
    /* The slots that these options need: how many. */
    int (*slots)(const void *options, coi_slot_spec out[COI_MAX_SLOTS]);
    coi_update_kind (*kind)(const void *options);
    /* The numbers of a step, counted from 1, for variables of a dtype. */
    void (*prepare)(const void *options, int64_t step, double learning_rate, co_dtype dtype,
                    double *numbers);
    double (*weight_decay)(const void *options); /* NULL: none */
    /* In place of a kernel: the update of a part. */
    void (*update)(const void *options, const double *numbers, const coi_update_arrays *arrays,
                   co_dtype dtype, int64_t n);
} coi_optimizer_rule;

/* The entry of an optimizer's update, sgd_update: it writes variables and their slots. */
#define COI_UPDATE_ENTRY(name_, optimizer)                                                         \
    {                                                                                              \
        COI_EFFECT(name_, "Updates variables and their slots by " optimizer "; co_minimize.",      \
                   coi_update_effect, CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),                 \
            .holds_locks = true                                                                    \
    }
co_code coi_update_effect(co_context *ctx, coi_effect *effect);

typedef enum coi_clipping {
    COI_CLIP_NOTHING,
    COI_CLIP_VALUE,
    COI_CLIP_NORM,
    COI_CLIP_GLOBAL_NORM
} coi_clipping;

/* co_optimizer_options, checked; what is referred to is held. */
typedef struct coi_common {
    co_schedule *schedule;
    double       weight_decay;
    char       **exclude_names;
    size_t       num_exclude_names;
    co_value    *exclude_variables; /* a list, or NULL */
    coi_clipping clipping;
    double       clip;
    bool         clip_before_sum;
    int          accumulation_steps; /* at least 1 */
    bool         use_ema;
    double       ema_momentum;
    int          ema_overwrite_frequency;
    double       loss_scale; /* 0: none */
    int          loss_scale_growth_steps;
} coi_common;

/* What changes with updates and is no variable. */
typedef struct coi_numbers {
    int64_t iterations;  /* updates that were applied */
    int64_t accumulated; /* calls since the last one whose gradients wait */
    double  learning_rate;
    double  loss_scale;
    int64_t good_steps; /* updates in a row whose gradients were finite */
} coi_numbers;

struct coi_slot_table;

struct co_optimizer {
    coi_object                object;
    const coi_optimizer_rule *rule;
    coi_runtime              *runtime;
    const char               *name;
    char                     *texts; /* of a custom optimizer: names */
    size_t                    texts_size;
    coi_slot_spec             slots[COI_ALL_SLOTS];
    int                       num_rule_slots, num_slots; /* of the rule, and all */
    int                       accumulator, average;      /* which of the slots; -1: none */
    coi_common                common;
    atomic_bool               is_used;    /* it can be configured no more */
    atomic_bool               is_swapped; /* averages stand in place of weights */
    atomic_bool               has_warned; /* of a mean over rows, in co_minimize */
    _Atomic(struct coi_slot_table *)
                           table; /* of slots (optimizer_slots.c); written with the lock */
    coi_lock               lock;  /* of what follows */
    size_t                 num_entries;
    struct coi_slot_entry *entries; /* the newest; a list */
    /*
     * Of each local replica. Replicas apply without waiting for each other, so one may have made an
     * update more than another, and what one sets is not for the update that another is at.
     * numbers_of is the strategy of the last one, 0 outside of steps.
     */
    uint64_t    numbers_of;
    coi_numbers numbers[COI_MAX_LOCAL_REPLICAS];
    _Alignas(16) unsigned char options[]; /* of the rule */
};

extern const coi_class coi_optimizer_class;
/* An optimizer of the block of ctx, with options over the defaults of the rule (NULL: those); for
 * constructors, after COI_ENTER. NULL with an error. */
co_optimizer *coi_optimizer_new(co_context *ctx, const coi_optimizer_rule *rule,
                                const void *options);
/* Whether argument 2 is an optimizer. */
bool coi_check_optimizer(co_context *ctx, const co_optimizer *optimizer);
/* Whether co_optimizer_set_state would take the scalars of a dict; nothing changes. */
bool coi_optimizer_check_scalars(co_context *ctx, co_optimizer *optimizer, co_value *state);
/* Whether optimizers update variables of this dtype: float32 and float64. */
bool coi_check_trained(co_context *ctx, const coi_variable *variable);
/* Options of optimizers that keep averages of gradients and of their magnitudes. */
bool coi_check_moments(co_context *ctx, double learning_rate, double beta_1, double beta_2,
                       double epsilon);
/* Checks of options: whether x is in [0, 1), or [0, 1]. */
static inline bool
coi_is_share(double x)
{
    return x >= 0 && x < 1;
}
static inline bool
coi_is_part(double x)
{
    return x >= 0 && x <= 1;
}

/*
 * A number as Keras has it: rounded to the dtype of the variable after each operation, which 1 -
 * beta^t of float32 shows in its fifth digit; or to float32 in any case, as it rounds numbers that
 * it casts (docs/decisions/optimizers.md).
 */
static inline double
coi_rounded(co_dtype dtype, double x)
{
    return dtype == CO_FLOAT32 ? (double)(float)x : x;
}
/* 1 - beta^step */
static inline double
coi_one_less_power(double beta, int64_t step, co_dtype dtype)
{
    const double power = coi_plain_power(coi_rounded(dtype, beta), step);

    return coi_rounded(dtype, 1 - coi_rounded(dtype, power));
}
static inline double
coi_single(double x)
{
    return (double)(float)x;
}

/* --- optimizer_options.c --- */

/* As co_optimizer_configure would with the initialiser's; it needs no memory. */
void coi_common_init(co_optimizer *optimizer);
void coi_common_free(coi_heap *heap, co_optimizer *optimizer);
/* Whether weights of a variable, which is no component, decay. */
bool coi_decays(const co_optimizer *optimizer, const co_value *variable);

/* --- optimizer_numbers.c --- */

/* Those of the replica, update or caller that ctx is. */
coi_numbers coi_numbers_get(co_context *ctx, co_optimizer *optimizer);
void        coi_numbers_set(co_context *ctx, co_optimizer *optimizer, const coi_numbers *numbers);
/* The rate of the next update. */
double coi_learning_rate(const co_optimizer *optimizer, const coi_numbers *numbers);
/* A loss times the loss scale: a value of the block, or NULL with an error. */
co_value *coi_scale_loss(co_context *ctx, co_optimizer *optimizer, co_value *loss);
/* Whether ctx may set numbers of an optimizer: not while a function is captured. */
bool coi_may_set(co_context *ctx);

/* --- optimizer_slots.c --- */

/* What an optimizer keeps for one variable that is no component: num_slots variables of its
 * strategy, whose components lie beside its own. They get their first values when a component is
 * updated first. Entries never move. */
typedef struct coi_slot_entry {
    struct coi_slot_entry *next;     /* made before this one */
    co_value              *variable; /* a reference: the key stays what it is */
    co_value              *slots[COI_ALL_SLOTS];
    bool                   decays;
} coi_slot_entry;
/* The entry of a variable, made where it has none yet. Borrowed; NULL with an error. */
const coi_slot_entry *coi_slots_of(co_context *ctx, co_optimizer *optimizer, co_value *variable);
/* Give slot `which` its first values in all components; an average those of the variable. */
bool coi_slot_fill(co_context *ctx, const co_optimizer *optimizer, const coi_slot_entry *entry,
                   int which);
void coi_slots_free(coi_heap *heap, co_optimizer *optimizer);
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

/* One ordinary variable to update. */
typedef struct coi_update_item {
    co_value *variable;
    co_value *slots[COI_ALL_SLOTS]; /* ordinary variables too, num_slots of the optimizer */
    co_value *gradient; /* dense, of its dtype and shape; NULL: only its average moves */
    co_value *powers;   /* the same; NULL: of the gradient itself */
    double    factor;   /* of the gradient */
    double    limit;    /* of its elements, after that; infinite: none */
    bool      decays;
    bool      is_average_new; /* set by coi_update_variables */
} coi_update_item;

/* What the items of one update have in common. */
typedef struct coi_update_step {
    const co_optimizer *optimizer;
    double              numbers[2][COI_MAX_NUMBERS]; /* for float32, and for float64 */
    double              keep;                        /* what decay leaves of a weight */
    double              ema_momentum;                /* 0 in the first update of all */
    bool                overwrites;                  /* weights by averages */
} coi_update_step;

/* Update items on the threads of their devices, in place where nobody else holds a tensor: one
 * start of the optimizer's entry. False with an error. */
bool coi_update_variables(co_context *ctx, const coi_update_step *step, coi_update_item *items,
                          size_t n);
/* Whether all elements of a tensor of float32 or float64 are finite; true with an error. */
bool coi_is_all_finite(co_context *ctx, co_value *tensor);

#endif

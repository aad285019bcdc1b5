/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategy object. A strategy is a placement, a table that says for each logical replica which
 * worker and which device host it, plus a row of policies. All strategies, the default one too, run
 * through the same engine; docs/architecture.md follows a step through it.
 */
#ifndef COI_STRATEGY_STRATEGY_H
#define COI_STRATEGY_STRATEGY_H

#include <cohort/custom_strategy.h>

#include "collective/collective.h"
#include "context/context.h"

extern const coi_class coi_strategy_class;

#define COI_MAX_LOCAL_REPLICAS 256
#define COI_MAX_WORKERS        4096

/* A call that a strategy refuses, with a message that says what to do instead. */
typedef struct coi_refusal {
    const char *call;
    co_code     code;
    const char *message;
} coi_refusal;

/* What differs between strategies besides the placement: one row for each, the default strategy
 * included. */
typedef struct coi_policy {
    const char *name;              /* "MirroredStrategy" */
    bool        changes_mode;      /* scopes and steps make it the current strategy */
    bool        has_devices;       /* replicas run on its devices; false: on the current one */
    bool        wraps_values;      /* variables are distributed, arguments unwrapped */
    bool        distributes_input; /* false: a dataset stays as it is */
    bool        workers;           /* several processes */
    bool        has_both_flavours; /* the members of v1 and of v2 (S-V1-1) */
    const co_strategy_definition *hooks;    /* of a custom strategy; NULL for others */
    const coi_refusal            *refusals; /* ended by a NULL call; NULL: none */
    /* What non-slot variables are colocated with; NULL: the devices of the strategy. */
    co_value *(*non_slot_devices)(co_context *ctx, co_value *variables);
} coi_policy;

struct co_strategy {
    coi_object        object;
    const coi_policy *policy;
    coi_runtime      *runtime;
    uint64_t          serial;       /* names it in messages */
    int               num_replicas; /* in sync, of all workers */
    int  num_local; /* of this process: replicas [first_local, first_local + num_local) */
    int  first_local;
    int  worker, num_workers;
    int *first;                       /* rank r hosts replicas [first[r], first[r + 1]) */
    coi_device_name         *devices; /* of the local replicas */
    int64_t                 *weights; /* of all replicas, without a common factor; NULL: equal */
    struct coi_custom_table *custom;  /* what a custom strategy keeps; NULL for others */
    int                      deadline_ms; /* 0: none */
    coi_group               *group;       /* of the workers; NULL without */
    bool                     is_v1;       /* of the v1 flavour, which lacks some calls (S-V1-1) */
    coi_comm_options         comm;        /* between workers, where a call does not say otherwise */
    co_cross_device_ops      cross_device_ops; /* as asked for */

    _Atomic(struct coi_replica_threads *)
             first_threads; /* the set that was made first; written once, under the lock */
    coi_lock lock;          /* of what follows */
    struct coi_replica_threads *idle_threads; /* idle sets besides the first */
    atomic_bool                 unusable;     /* for good; why was written before */
    char                        why[600];
    atomic_ullong               epoch;    /* runs, and collectives of workers outside one */
    struct coi_recorder        *recorder; /* NULL with one replica */

    /* Between workers (workers.c): one run or collective at a time holds the token. */
    atomic_bool      token_taken;
    coi_event        token_released;
    struct coi_step *token_step;  /* the run that holds it, or NULL; under lock */
    atomic_ullong    token_ticks; /* moves with every rendezvous of workers */
    uint64_t         sequence;    /* of the collective in the epoch */
    uint64_t         delivered;   /* the last of them whose data has arrived */
    uint64_t         flight;      /* entry of the collective */
};

/* "MirroredStrategy #3 (2 replicas)" for messages. */
#define COI_STRATEGY_TEXT COI_OBJECT_TEXT
const char *coi_strategy_text(const co_strategy *strategy, char out[COI_STRATEGY_TEXT]);

/* What coi_mode.strategy is while the strategy is current: NULL for one that changes no mode. */
static inline co_strategy *
coi_current(co_strategy *strategy)
{
    return strategy->policy->changes_mode ? strategy : NULL;
}

/* How long to wait for a peer, as the transports want it. */
static inline int
coi_timeout(const co_strategy *strategy)
{
    return strategy->deadline_ms > 0 ? strategy->deadline_ms : -1;
}

/* S-RUN-4, DEF-18: a scope or run of this strategy may begin: none is current, or it is, in
 * cross-replica context. Records CO_RUNTIME_ERROR otherwise. */
bool coi_check_enter(co_context *ctx, co_strategy *strategy);
/* S-REDUCE-2: default mode, or cross-replica context of this strategy; steps and merge functions of
 * the default strategy are neither. Records CO_RUNTIME_ERROR otherwise. */
bool coi_check_cross(co_context *ctx, co_strategy *strategy);
/* Usable, alive, argument `position` of the current call. */
bool coi_refuse_strategy(co_context *ctx, const co_strategy *strategy,
                         int position); /* called by the next alone */
static inline bool
coi_check_strategy(co_context *ctx, const co_strategy *strategy, int position)
{
    if (strategy != NULL &&
        coi_is_live_object(&ctx->heap, &strategy->object, &coi_strategy_class) &&
        !atomic_load_explicit(&strategy->unusable, memory_order_acquire))
        return true;
    return coi_refuse_strategy(ctx, strategy, position);
}
/* The current call is not one that the policy refuses. */
bool coi_check_offered(co_context *ctx, const co_strategy *strategy);
/* The same for calls that the v1 flavour lacks: CO_UNIMPLEMENTED there (S-V1-1). */
bool coi_check_v2(co_context *ctx, co_strategy *strategy);

#endif

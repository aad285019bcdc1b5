/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replica engine: a step that runs on all local replicas, and the rendezvous at which they wait
 * for each other.
 */
#ifndef COI_STRATEGY_RENDEZVOUS_H
#define COI_STRATEGY_RENDEZVOUS_H

#include "strategy/flight_recorder.h"
#include "strategy/rendezvous_kind.h"
#include "strategy/strategy.h"

/* Collectives that a replica has started and not completed yet, at most. */
#define COI_MOST_STARTED 16

/* The slot of a replica: its operation and value at a rendezvous. Each slot begins with a cache
 * line of its own, so that arrivals do not contend. */
typedef struct coi_rendezvous_slot {
    _Alignas(64) coi_rendezvous_kind kind;
    uint64_t     sequence;
    co_site_info site;
    co_value    *value;  /* its value: borrowed, alive while it waits */
    coi_summary  what;   /* for reports after the value has gone */
    void        *detail; /* of the kind of rendezvous; on the stack of the replica that waits */
    co_value    *result; /* its result: a reference */
    atomic_bool  arrived, finished;
    bool         is_left; /* its context has an error, or was misused: the caller sees to it */
    uint64_t     random_counter; /* of its context, at its end */
    /* What it has started (replica_collectives.c): how many, the first of them, and all of them by
     * the number of the rendezvous that will complete them. Others read `posts` alone. */
    unsigned num_started;
    void    *started;
    void    *posts[COI_MOST_STARTED];
} coi_rendezvous_slot;

/* A collective that replicas start. */
typedef struct coi_posted {
    atomic_int  num;     /* replicas that have */
    atomic_bool is_open; /* all have, and each may do its share of the work */
} coi_posted;

/* What replicas take over from the context that called run, which they may not look at: a thread
 * that starts too late would find it in another call. */
typedef struct coi_step_origin {
    co_site_info site;
    void        *user;
    uint64_t     seed, random_counter;
    int          rank; /* of the process */
    uint8_t      special;
    bool         unobserved;
} coi_step_origin;

typedef struct coi_made_variable coi_made_variable; /* step_variables.c */

/* One run of a function on all local replicas. */
typedef struct coi_step {
    co_strategy                *strategy;
    struct coi_replica_threads *threads;
    co_context          *parent; /* the context that called run, and that merge functions get */
    int                  n;      /* local replicas */
    coi_rendezvous_slot *slots;
    co_fn                fn;
    void                *user;
    co_value            *args, *kwargs;
    bool                 in_turn;
    bool                 in_default_scope; /* the parent, where there are several replicas */
    coi_step_origin      origin;           /* the parent when the step began */
    uint64_t             epoch;            /* which run this is */
    coi_lock             inner_lock;       /* of inner */
    _Atomic(struct coi_step *) inner;      /* a run inside the merge function under way, or NULL */
    /* How many are at the current barrier, how many barriers were complete, and whether the step is
     * broken: one word, so that no replica can leave a barrier as broken while another completes
     * it. */
    _Alignas(64) _Atomic(uint64_t) barrier;
    atomic_int    finished; /* replicas that returned */
    atomic_uint   opened;   /* round of the rendezvous that has an entry in the recorder, plus 1 */
    atomic_bool   is_open;  /* that entry has not ended */
    atomic_ullong flight;   /* its number */
    /* Where replicas wait, apart from what the last to arrive still writes while they do. */
    _Alignas(64) coi_event gate; /* barriers and breaks */
    coi_event  token;            /* in_turn: it has passed to another replica */
    atomic_int token_holder;
    _Alignas(64) coi_lock error_lock;
    co_error_info error; /* the first failure */
    void (*payload_deleter)(void *payload);
    coi_lock           made_lock; /* of made */
    coi_made_variable *made;      /* the variables that replica 0 has made, in order */
    atomic_int         awaiting;  /* replicas that wait for replica 0 to make one */
    coi_posted         posted[COI_MOST_STARTED]; /* by the number of the rendezvous */
    atomic_int         sharing;    /* replicas that may be reading what others have posted */
    atomic_bool        is_dropped; /* one has dropped what it posted: nobody may read it any more */
} coi_step;

/* How long a replica waits before it looks at the progress of the others, whose cores would have to
 * share the lines of their counters. */
#define COI_SHORT_WAIT_MS 2

#define COI_BROKEN    (UINT64_C(1) << 63)
#define COI_ARRIVED   0xfffu /* more than COI_MAX_LOCAL_REPLICAS */
#define COI_ONE_ROUND (UINT64_C(1) << 12)

/* The current barrier of a step; only to be compared. */
static inline unsigned
coi_round_of(uint64_t barrier)
{
    return (unsigned)(barrier / COI_ONE_ROUND);
}
static inline unsigned
coi_round(const coi_step *step)
{
    return coi_round_of(atomic_load(&step->barrier));
}

/* What the last replica to arrive does before the others go on; false breaks the step (with an
 * error in ctx). */
typedef bool (*coi_close_fn)(co_context *ctx, coi_step *step, void *arg);

/*
 * Come to a rendezvous: fill the slot of this replica, wait for all, check that all came to the
 * same one, let the last run `close` (may be NULL; its arg is NULL, what it needs is in the slots'
 * details). False: the step is broken and ctx has the error.
 */
bool coi_rendezvous(co_context *ctx, coi_rendezvous_kind kind, co_value *value, void *detail,
                    coi_close_fn close);
/*
 * Leave a rendezvous together. A replica that shares work or details with the others after
 * coi_rendezvous calls this before it gives them up, on success and on failure, even if the step
 * broke meanwhile. False: it did, and ctx has the error.
 */
bool coi_rendezvous_leave(co_context *ctx);
/*
 * Wait until `is_there` says so, looking whenever replica 0 has called coi_tell_awaiting. False: it
 * never will, because replica 0 waits for the others or has returned; or, with an error in ctx, the
 * step is broken.
 */
bool coi_await_first(co_context *ctx, coi_rendezvous_kind kind, co_value *value,
                     bool (*is_there)(co_context *ctx, void *arg), void *arg);
void coi_tell_awaiting(coi_step *step);
/* The context of a local replica of a step (run.c). */
co_context *coi_replica_context(coi_step *step, int local_replica);
/* End the step for all replicas with the error of ctx. */
void coi_break(coi_step *step, co_context *ctx);
static inline bool
coi_is_broken(const coi_step *step)
{
    return (atomic_load_explicit(&step->barrier, memory_order_acquire) & COI_BROKEN) != 0;
}
/* A replica has returned: the replicas that wait for it are told. */
void coi_replica_finished(co_context *ctx);
/* Take the step's error into ctx, if it has none of its own; the payload stays with the step. */
void coi_take_step_error(co_context *ctx, coi_step *step);
/* How often replicas, the merge function and runs inside it called into the library: unchanged
 * means no progress. */
uint64_t coi_step_progress(coi_step *step);
/* Break the step because replicas that have not returned execute nothing. */
void coi_report_unfinished(coi_step *step);
static inline coi_rendezvous_slot *
coi_my_slot(co_context *ctx)
{
    return &ctx->mode.step->slots[ctx->mode.local_replica];
}
/* With in_turn: wait until this replica holds the token of the step. */
void coi_wait_token(co_context *ctx);
/*
 * Wait for other replicas of a running step. They are on their way, so it pays to spin until a
 * thread that slept has had time to wake (some 20 us, and as much again for each that it wakes):
 * sleeping meanwhile would add a wake of our own.
 */
static inline bool
coi_wait_replicas(coi_event *event, unsigned seen, coi_waiting *waiting, int timeout_ms)
{
    return coi_event_wait_spinning(event, seen, waiting, 5 * waiting->spin_us, timeout_ms);
}

/* --- replica_collectives.c --- */

/* Drop what this replica has started and will not complete, when no other reads it any more. */
void coi_drop_started(co_context *ctx);
/* A new run of the step: nothing is started. */
void coi_forget_posted(coi_step *step);

/* --- merge.c --- */

/* What runs once for all replicas, in the parent's context; returns a value of its block. */
typedef co_value *(*coi_merge_body)(co_context *parent, co_strategy *strategy, co_value *args,
                                    void *arg);
/* Come to a rendezvous, let replica 0 run `body` (with its own arg), take away this replica's part:
 * a reference. `check` (may be NULL) compares the args of the replicas, which are the details of
 * their slots. */
co_value *coi_merge(co_context *ctx, coi_rendezvous_kind kind, co_value *args, coi_close_fn check,
                    coi_merge_body body, void *arg);
/* Replica 0 runs `body` alone, while the others go on: a reference. */
co_value *coi_merge_first(co_context *ctx, co_value *args, coi_merge_body body, void *arg);

/* --- step_variables.c --- */

/* The variable of a replica that asks for one of this name: replica 0 makes it with `body`, the
 * others get what it made (VAR-RUN-1). A reference. */
co_value *coi_step_variable(co_context *ctx, const char *name, co_value *initial,
                            coi_merge_body body, void *arg);
/* merge.c. While a function is captured: what the merge function of a step gets, as if the other
 * replicas brought what this one brings. A value of the block, or NULL with an error. */
co_value *coi_merged_types(co_context *ctx, co_value *args);
void      coi_step_variables_free(coi_step *step, coi_heap *heap);

/* --- variable_creators.c --- */

/* Whether ctx is inside a scope of the default strategy, entered, set, or that of its run; or the
 * caller of its step is. */
bool coi_in_default_scope(const co_context *ctx);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replica threads of a step: a context per local replica, and a thread for each but the first,
 * which runs on the caller's thread. A strategy keeps idle sets of them; a run takes one, so runs
 * from several threads and runs inside merge functions each have their own. With one replica there
 * is no thread, and a run is a direct call.
 */
#ifndef COI_STRATEGY_REPLICA_THREADS_H
#define COI_STRATEGY_REPLICA_THREADS_H

#include "strategy/rendezvous.h"

/*
 * Plain fields have one writer at a time. Between steps, and until it signals `go`, all are the
 * caller's. A replica thread reads those of the set after its `go`, and writes its own core and
 * woke_ns before it leaves `busy`, which the caller sees at 0 before it looks at any of them. A set
 * whose threads did not come back is not looked at again.
 */
typedef struct coi_replica_worker {
    _Alignas(64) struct coi_replica_threads *threads; /* in lines that no other replica writes */
    int         replica;                              /* local */
    co_context *ctx;
    coi_thread *thread;          /* NULL: the caller's */
    coi_event   go;              /* a step, or the end, awaits */
    int         bound_to;        /* the replica on whose device's cores it runs */
    bool        on_callers_core; /* it is to wake there */
    int         core;            /* where and when it woke at its last step after a rest */
    uint64_t    woke_ns;
} coi_replica_worker;

typedef struct coi_replica_threads {
    struct coi_replica_threads *next; /* idle sets of the strategy */
    co_strategy                *strategy;
    coi_runtime                *runtime;
    coi_step                    step;
    int                         n;
    bool                        is_first; /* who has it has the exclusive reference, see below */
    bool                        quit;
    int                         core;        /* the caller's, when the step began */
    bool                        is_rested;   /* the threads slept when the step began */
    bool                        shares_core; /* its threads were woken on the caller's core */
    bool                wakes_here; /* steps after a rest better begin on the caller's core */
    int                 num_short, backoff; /* but so many since a long one, of so many at least */
    uint64_t            began_ns, ended_ns; /* the last such step */
    uint64_t            used_ns; /* what the caller's thread had of its core until then */
    uint64_t            wake_ns; /* how long a thread took to wake on a core of its own */
    coi_replica_worker *replicas;
    size_t              nbytes;
    _Alignas(64) atomic_int busy; /* threads at work besides the caller */
    coi_event done;
} coi_replica_threads;

/*
 * An idle set of the strategy, or a new one, with a reference to the strategy, which the step may
 * release; NULL: the error is in ctx. Taking the set that was made first and taking the reference
 * is one operation: it is the exclusive one of the strategy, so nearly all runs take no lock.
 */
coi_replica_threads *coi_replica_threads_take(co_context *ctx, co_strategy *strategy);
/* Give both back. */
void coi_replica_threads_give(coi_heap *heap, coi_replica_threads *threads);
/* Where there are several replicas: all but the first begin with the step; the last to end it
 * signals `done`. */
void coi_replica_threads_wake(coi_replica_threads *threads);
/* After that. */
void coi_replica_threads_rest(coi_replica_threads *threads);
/* Free the idle replica threads of a strategy. */
void coi_replica_threads_free(co_strategy *strategy);
/* One replica from beginning to end, on its thread (run.c). */
void coi_run_replica(coi_replica_worker *m, coi_step *step);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder, always on: the last calls at which replicas or processes of a strategy
 * waited for each other. A strategy of several replicas keeps its last 64 rendezvous (all_reduce,
 * merge_call, assignments that are aggregated, collectives between processes):
 *
 *     7: run 3, rendezvous 2: all_reduce of float32 [2,3] at step.c:41; 2 of 2 replicas; CO_OK; at 1210 us, took 15 us
 *     8: run 3, rendezvous 3: merge_call of float32 [] at step.c:44; 1 of 2 replicas, without replica 1; waiting; at 1302 us
 *
 * When a step ends because replicas or processes disagree, are missing, stuck or gone, the last
 * entries go to the log (log=info) and, with the setting flight_file=PATH, to a file: PATH, or
 * PATH.rank1 of rank 1 where there are several processes.
 */
#ifndef COHORT_FLIGHT_RECORDER_H
#define COHORT_FLIGHT_RECORDER_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

/** One entry. Fields are only ever appended; texts live during the call that shows them. */
typedef struct co_flight_record {
    size_t      struct_size;
    uint64_t    number;        /* counts the entries of the strategy, from 1 */
    uint64_t    epoch;         /* which run of the strategy, or collective outside one, from 1 */
    uint64_t    sequence;      /* of the rendezvous inside it, from 1 */
    bool        between_ranks; /* of processes; false: of the replicas of this one */
    const char *kind;          /* "all_reduce" */
    const char *what;          /* what the first to come brought: "float32 [2,3]"; "" for nothing */
    const char *file;          /* where it called, the end of the path; "" when not known */
    int         line;
    int         expected; /* replicas or ranks */
    int         arrived;
    const char *missing;     /* "replica 1, replica 3": who had not come; "" when all had */
    bool        is_waiting;  /* for who is missing, for data, or for the function of merge_call */
    co_code     outcome;     /* how it ended */
    int64_t     start_us;    /* when the first came, since the strategy was made */
    int64_t     duration_us; /* from then to the end, or to now */
} co_flight_record;

typedef void (*co_flight_fn)(const co_flight_record *record, void *user);

/**
 * Show the entries of a strategy to `fn`, oldest first. Any thread may look, also while the
 * strategy runs: what is being written at that moment is left out. A strategy of one replica has no
 * entries. CO_TYPE_ERROR where fn is NULL.
 */
CO_API co_code co_flight_visit(co_context *ctx, const co_strategy *strategy, co_flight_fn fn,
                               void *user);
/**
 * The same as text, a line for each entry, in `out` of `capacity` bytes (0: NULL is allowed), cut
 * and terminated. Returns how many bytes the whole text has without its zero.
 */
CO_API size_t co_flight_format(co_context *ctx, const co_strategy *strategy, char *out,
                               size_t capacity);
/**
 * Write the text to a file, completely or not at all: it is written under another name and then
 * renamed.
 *
 * Scope:    this process; each process writes its own entries. Give each its own path.
 * Context:  any, even while the strategy runs.
 * Blocks:   while the file is written.
 * Returns:  CO_OK, or CO_NOT_FOUND, CO_PERMISSION_DENIED or CO_UNAVAILABLE; then an existing
 *           file is unchanged.
 */
CO_API co_code co_flight_save(co_context *ctx, const co_strategy *strategy, const char *path);

CO_EXTERN_C_END

#endif

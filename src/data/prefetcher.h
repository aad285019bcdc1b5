/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefetching: threads of an iterator that make elements of its input before they are asked for,
 * and a ring in which the elements wait.
 *
 *     workers --pull, one at a time--> input        consumer (co_next)
 *        |                                             |
 *        +--work, side by side--> [ 7 ][ 8 ][   ] -----+  in the order of the pulls, or as ready
 *
 * Nothing runs before the first take. A worker has a context of its own; an error stays there, and
 * its worker with it, until the consumer comes to its place. The end is a number: that of the
 * elements before it.
 */
#ifndef COI_DATA_PREFETCHER_H
#define COI_DATA_PREFETCHER_H

#include "data/iterator_checkpoint.h"

#define COI_MAX_PREFETCH 65536 /* elements in a ring */
#define COI_MAX_PARALLEL 256

/* What workers do. `own` is a stage iterator of the worker: the dataset, room for an element, its
 * index. */
typedef struct coi_prefetcher_plan {
    int  num_workers, num_slots; /* 1 or more */
    bool in_order;
    /* After the input was pulled, side by side with others: `own` holds the element. NULL: elements
     * are handed on. */
    int (*work)(co_context *ctx, co_iterator *own, co_value **leaves);
    /* With every element of a plan without work; false with an error. Its number, counted from 0.
     * NULL: nothing. */
    bool (*place)(co_context *ctx, void *user, int64_t index, co_value **leaves);
    void *place_user;
} coi_prefetcher_plan;

/* The head of an iterator that prefetches. */
typedef struct coi_prefetcher_iterator {
    co_iterator     base;
    bool            begun;
    coi_prefetcher *prefetcher; /* NULL before the first element, and where there is no thread */
    int64_t index; /* elements of the input that were pulled before the prefetcher was there */
    coi_batch_assembly waiting; /* restored: what was in the ring; a code, a message, the element */
    size_t             given;   /* of those */
} coi_prefetcher_iterator;

/*
 * The first time: workers for an iterator with one input, which becomes theirs; fewer than asked
 * for if the system has no more. If it has none, the caller works itself, as it would without a
 * plan.
 */
void coi_prefetcher_begin(co_context *ctx, coi_prefetcher_iterator *iterator,
                          const coi_prefetcher_plan *plan);
/*
 * The next element of one that has begun: what a checkpoint had waiting, then what the workers
 * made, or `alone`, the caller itself, where there is none. One thread at a time.
 */
int coi_prefetcher_next(co_context *ctx, co_iterator *iterator, co_value **leaves,
                        int (*alone)(co_context *ctx, co_iterator *iterator, co_value **leaves));
/* Whether that would not wait. */
bool coi_prefetcher_is_ready(const coi_prefetcher_iterator *iterator);
/* A slot: what waits in the ring is part of the checkpoint. Saving leaves its threads standing, in
 * p->paused; resume lets them go on when the whole checkpoint is saved. */
bool coi_prefetcher_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p);
void coi_prefetcher_resume(coi_prefetcher *paused);
/*
 * A slot: stop the workers and drop what waits. Each ends the call of a function or the read that
 * it is in. Called by a function of the pipeline, which is such a call, it lets its worker do the
 * rest.
 */
void coi_prefetcher_close(coi_heap *heap, co_iterator *iterator);

/* prefetch.c: a dataset of the same elements, prefetched, as a new reference; depth is 1 or more.
 */
co_dataset *coi_prefetch_new(co_context *ctx, co_dataset *input, int64_t depth);
/* Have the elements of an iterator placed by its worker, if it is a prefetch; see the plan. Before
 * the first next. */
void coi_prefetch_place(co_iterator *iterator,
                        bool (*place)(co_context *ctx, void *user, int64_t index,
                                      co_value **leaves),
                        void *user);
/* Begin now, not at the first next. */
void coi_prefetch_start(co_context *ctx, co_iterator *iterator);
/* Never begin: the caller makes each element itself. Before the first of them. */
void coi_prefetch_alone(co_iterator *iterator);
/* Whether the next element of an iterator is there; true of those that do not prefetch. */
bool coi_prefetch_is_ready(co_iterator *iterator);
/* map.c, for parallel_map.c: the element that `iterator` pulled becomes leaves; a dataset given to
 * the block. */
int         coi_map_apply(co_context *ctx, co_iterator *iterator, co_value **leaves);
co_dataset *coi_map_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input,
                        co_value *spec, const coi_stage_args *args);
extern const coi_dataset_ops coi_map_ops;
/* num_parallel_calls of options, as a number of threads; false with an error. */
bool coi_take_calls(co_context *ctx, int calls, int64_t *out);
/* Whether making elements costs more than handing them from thread to thread, and no thread does it
 * yet. */
bool coi_dataset_costs(const co_dataset *dataset);

#endif

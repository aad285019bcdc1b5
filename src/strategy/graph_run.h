/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run in a graph: the step of each local replica is a program of its own, captured once, which
 * may use values of the graph. A session runs as much of the programs as its fetches need.
 */
#ifndef COI_STRATEGY_GRAPH_RUN_H
#define COI_STRATEGY_GRAPH_RUN_H

#include <cohort/extended.h>

#include "function/graph.h"
#include "strategy/strategy.h"

/* What a step gives besides its result: the values of the replicas, merged, come to `fn` in the
 * context that called run, when the run is recorded. */
typedef void (*coi_export_fn)(co_context *ctx, const char *name, int kind, co_reduce_op op,
                              co_value *merged, void *user);
typedef struct coi_export {
    co_value     *name, *value; /* a host string, and a value of the step; references */
    int           kind;
    co_reduce_op  op;
    coi_export_fn fn;
    void         *user;
} coi_export;

#define COI_MAX_EXPORTS 32
typedef struct coi_exports {
    coi_export items[COI_MAX_EXPORTS];
    int        n;
} coi_exports;

/* Add one in the step that ctx captures, whose capture has exports; false with an error. */
bool coi_graph_export(co_context *ctx, const coi_export *one);

typedef struct coi_graph_run {
    coi_object   object;
    co_strategy *strategy; /* references from here on */
    coi_program *programs[COI_MAX_LOCAL_REPLICAS];
    co_value    *outside[COI_MAX_LOCAL_REPLICAS]; /* tuples: what each program uses of the graph;
                                                   * until the run is recorded */
    int         num_programs;
    bool        in_turn, has_kwargs;
    coi_exports exports; /* of the first replica, without values; until the run is recorded */
} coi_graph_run;

typedef struct coi_graph_run_attrs {
    coi_graph_run *run;       /* a reference in a program */
    const bool    *is_needed; /* calls of each program that are made; NULL: all */
} coi_graph_run_attrs;

extern const coi_op coi_op_run_in_graph;

/* A run without programs: a reference, or NULL with an error. */
coi_graph_run *coi_graph_run_new(co_context *ctx, co_strategy *strategy,
                                 const co_run_options *options);
/*
 * Capture the step of the next replica, whose context is ctx. `capture` is that of the caller of
 * run. *args, a tuple, becomes what the program takes. Borrowed, or NULL with an error in ctx.
 */
coi_program *coi_graph_run_capture(co_context *ctx, coi_graph_run *run, coi_capture *capture,
                                   co_fn fn, void *user, co_value **args);
/* Record the run with its result type: a value of the block, or NULL with an error. */
co_value *coi_graph_run_record(co_context *ctx, coi_graph_run *run, co_value *args,
                               co_value *kwargs, co_value *type);
/*
 * Which calls of the programs of a run, a step of the program of `graph`, are made for what is
 * wanted of its results: *is_needed gets an array of *num_calls, to be freed, or NULL: all. False
 * without memory.
 */
bool coi_graph_run_needed(coi_needs *graph, const coi_program_step *step, bool **is_needed,
                          size_t *num_calls);

#endif

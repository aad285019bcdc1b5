/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph: a program that is captured as long as it lives, by the contexts that it is current in
 * (GR-*). What a function would lose at its end stays: each call has results by which it can be
 * asked for later, and says what it was made under. Sessions run parts of it
 * (compat/v1_session.c).
 *
 * Steps of run and bodies of loops in a graph are programs of their own, captured once. They use
 * values of the graph as they like.
 */
#ifndef COI_FUNCTION_GRAPH_H
#define COI_FUNCTION_GRAPH_H

#include "function/program.h"

typedef struct co_graph co_graph;

typedef struct coi_graph_variable {
    co_value *variable, *initializer; /* references; initializer: NULL, or an operation */
} coi_graph_variable;

struct co_graph {
    coi_object          object;
    coi_memory         *memory;
    coi_program        *program; /* a reference */
    coi_capture        *capture;
    coi_device_name     device; /* that calls run on which chose none */
    coi_lock            lock;   /* of the program while it grows, and of what follows */
    coi_graph_variable *variables;
    size_t              num_variables, cap_variables;
    atomic_ullong       version;   /* changes with what calls come after */
    bool                has_later; /* some come after calls that were made later */
    atomic_bool         is_final;
};

extern const coi_class coi_graph_class;

/* A graph: a reference, or NULL with an error. */
co_graph *coi_graph_new(co_context *ctx);
/* Whether calls may be added: false with CO_RUNTIME_ERROR once it is final. NULL: a function. */
bool coi_graph_may_grow(co_context *ctx, const co_graph *graph);
/* The step that was just added to a program of a graph, or to that of `graph` itself, comes after
 * calls with these results (NULL: any). */
bool coi_graph_note_step(co_context *ctx, coi_program *program, const co_graph *graph,
                         co_value *after);
/* The type of a call that gives nothing, so that it is a value: a spec without a dtype. Of the
 * block, or NULL with an error. */
co_value *coi_operation_type(co_context *ctx);
static inline bool
coi_is_operation(const co_value *value)
{
    return value->kind == CO_KIND_SYMBOLIC && value->dtype == CO_DTYPE_NONE;
}
/*
 * Let a variable without a value be one of the graph of ctx. `op` with `attrs` gives it its first
 * value, `initial`; NULL: there is none. Also from inside a part of the graph, where `initial` is a
 * tensor. False with an error.
 */
bool coi_graph_add_variable(co_context *ctx, co_value *variable, const coi_op *op,
                            co_value *initial);
/* Its entry, or NULL; under the lock. */
const coi_graph_variable *coi_graph_find_variable(const co_graph *graph, const co_value *variable);

/* The capture of the graph around what ctx captures; NULL: there is none. */
static inline coi_capture *
coi_graph_around(const co_context *ctx)
{
    coi_capture *outermost = ctx->capture;

    while (outermost != NULL && outermost->outer != NULL)
        outermost = outermost->outer;
    return outermost != NULL && outermost->is_graph ? outermost : NULL;
}

/* graph_call.c. Add a call of a program, a captured function's, to what ctx builds: a value of the
 * block, or NULL with an error. */
co_value *coi_graph_call(co_context *ctx, coi_program *program, co_value *args);

/* Push an entry in which ctx captures for `graph`, or is eager (NULL): its id; 0 with an error. */
uint64_t coi_capture_push(co_context *ctx, coi_entry_kind kind, co_graph *graph);
/* init_scope.c. The same for the graph around what ctx captures, or none: CO_INIT_SCOPE. */
uint64_t coi_init_scope_push(co_context *ctx);

/* capture.c */
coi_capture *coi_capture_of_graph(co_context *ctx, co_graph *graph);
void         coi_capture_free(coi_memory *memory, coi_capture *capture);
/* The result of the call that was recorded last by what ctx captures, borrowed; NULL: none was. */
co_value *coi_capture_last_result(const co_context *ctx);
/* coi_record_call for another capture than that of ctx. */
co_value *coi_capture_record(co_context *ctx, coi_capture *capture, const coi_op *op,
                             const void *attrs, co_value *const *in, int num_in, co_value *result);

/*
 * needed_steps.c. Which calls of a program are needed for values. A program that grows meanwhile is
 * looked at as it was when the needs were opened.
 */
typedef struct coi_needs {
    const coi_program *program;
    size_t             num_slots, num_steps;
    bool              *wanted;    /* by slot; gets those of operands too */
    bool              *given;     /* by slot: nothing has to make it */
    bool              *is_needed; /* by call; some may be set before */
    bool               has_later; /* a call may come after a later one */
    bool               is_whole;  /* a call needs all its operands (coi_op.want_operands) */
    bool               changed;   /* of coi_needs_find: something was wanted that was not before */
    size_t             nbytes;
} coi_needs;

/* Nothing is wanted, given or needed at first. False without memory; to be closed also then. */
bool coi_needs_open(coi_needs *needs, const coi_program *program);
void coi_needs_close(coi_needs *needs);
/* Want all values of the program in a value. */
void coi_want_all(coi_needs *needs, const co_value *value);
/* Whether a value of the program in it has to be made. */
bool coi_is_wanted(coi_needs *needs, const co_value *value);
/* False without memory. */
bool coi_needs_find(coi_needs *needs);
/* step_order.c. The needed calls in the order in which they run; there is room for all. False
 * without memory. */
bool coi_needs_order(const coi_needs *needs, uint32_t *order);

#endif

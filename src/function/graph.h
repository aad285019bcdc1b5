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

/* capture.c */
coi_capture *coi_capture_of_graph(co_context *ctx, co_graph *graph);
void         coi_capture_free(coi_memory *memory, coi_capture *capture);
/* The result of the call that was recorded last by what ctx captures, borrowed; NULL: none was. */
co_value *coi_capture_last_result(const co_context *ctx);
/* coi_record_call for another capture than that of ctx. */
co_value *coi_capture_record(co_context *ctx, coi_capture *capture, const coi_op *op,
                             const void *attrs, co_value *const *in, int num_in, co_value *result);

/*
 * needed_steps.c. Which of the first num_steps calls of a program are needed for values: `wanted`
 * by slot, which gets those of operands too; `given` by slot, NULL: none; `is_needed` by call,
 * where some may be set already. `has_later`: a call may come after a later one.
 */
/* Want all values of the program in a value. */
void coi_want_all(const coi_program *program, const co_value *value, bool *wanted);
void coi_find_needed(const coi_program *program, size_t num_steps, bool *wanted, const bool *given,
                     bool has_later, bool *is_needed);

#endif

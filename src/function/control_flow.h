/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What conditions and loops have in common: bodies, which are functions of the user or the programs
 * they were captured as, and the entries that hold such programs.
 */
#ifndef COI_FUNCTION_CONTROL_FLOW_H
#define COI_FUNCTION_CONTROL_FLOW_H

#include <cohort/control_flow.h>

#include "function/function.h"

/* Something to call with a tuple of arguments: fn with user, or a program. */
typedef struct coi_flow_body {
    co_fn              fn;
    void              *user;
    const char        *name;    /* "body of while", for messages */
    const coi_program *program; /* NULL: fn */
    co_value          *outside; /* with a program: values for what it adopted */
} coi_flow_body;

/* Call it: a value of the block, in which variables and host numbers are tensors, or NULL with an
 * error. */
co_value *coi_body_run(co_context *ctx, const coi_flow_body *body, co_value *args);
/* Capture it for arguments of these types: a reference to the program, or NULL with an error. */
coi_program *coi_body_capture(co_context *ctx, const coi_flow_body *body, co_value *types,
                              co_value **outside);

/* The programs of an entry and how it runs them. */
typedef struct coi_bodies {
    coi_object   object;
    size_t       num_programs;
    uint8_t      kind; /* of the entry's own */
    bool         flag;
    int64_t      limit;
    coi_program *programs[]; /* references */
} coi_bodies;

typedef struct coi_bodies_attrs {
    coi_bodies *bodies; /* a reference in a program */
} coi_bodies_attrs;
bool coi_bodies_hold(coi_heap *heap, void *to, const void *from);
void coi_bodies_drop(coi_heap *heap, void *attrs);

/* An entry with programs. Its last operand is a tuple with the adopted values of each program. */
#define COI_WITH_BODIES(name_, doc_, replay_)                                                      \
    COI_RECORDED(name_, doc_, replay_, 0, 0),                                                      \
        .grad = coi_grad_of_call,                                                                  \
        .attrs_rule = { COI_ATTRS_SIZE(coi_bodies_attrs), coi_bodies_hold, coi_bodies_drop }

/* The programs that a call of an entry holds; NULL for entries without. */
const coi_bodies *coi_bodies_of(const coi_op *op, const void *attrs);
/* For so many programs, none of which is there yet: a value of the block, or NULL with an error. */
coi_bodies *coi_bodies_new(co_context *ctx, size_t num_programs);
/* Capture the next program; its adopted values go to `outside`. False with an error. */
bool coi_bodies_add(co_context *ctx, coi_bodies *bodies, const coi_flow_body *body, co_value *types,
                    co_value **outside);
/* Program i as a body. */
coi_flow_body coi_bodies_at(const coi_bodies *bodies, size_t i, co_value *const *in, int num_in);
/* Record the call, also on the tape of types; `result` is its type. */
co_value *coi_bodies_record(co_context *ctx, const coi_op *op, coi_bodies *bodies,
                            co_value *const *in, int num_in, co_value *result);

/* element_loop.c. co_for_each over a dataset or iterator; `state` is a tuple. */
co_value *coi_for_each_element(co_context *ctx, co_value *of, co_value *state, co_fn fn,
                               void *user);
/* row_loop.c. The arguments of a body: an element and the items of the state. */
co_value *coi_for_each_args(co_context *ctx, co_value *element, co_value *state);

/* Checks; false or NULL with an error. */
bool coi_check_body(co_context *ctx, co_fn fn, int position, const char *name);
/* A tuple of what a tuple or list holds; NULL for `args` is an empty one if that is allowed. */
co_value *coi_check_args(co_context *ctx, co_value *args, int position, const char *name,
                         bool optional);
/* Variables and host numbers as tensors. */
co_value *coi_tensors_of(co_context *ctx, co_value *value);
/* Whether a value may be a scalar bool, and what it is. */
bool coi_check_predicate(co_context *ctx, const co_value *value, const char *what);
bool coi_read_predicate(co_context *ctx, co_value *value, const char *what, bool *out);
/* What a round returned as loop variables, of the block: a tuple also where it is a list. NULL
 * stays so, and is an error. */
co_value *coi_round_tuple(co_context *ctx, co_value *next);
/* Whether what a round returned may follow loop variables of these types (FN-11). */
bool coi_check_round(co_context *ctx, const char *body, co_value *types, co_value *next);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured functions inside the library: capturing a program, and choosing one by the types of
 * arguments.
 */
#ifndef COI_FUNCTION_FUNCTION_H
#define COI_FUNCTION_FUNCTION_H

#include <cohort/function.h>

#include "function/program.h"

/*
 * capture.c. Call `fn` with `args` and record what it does: a reference to the program, or NULL
 * with an error. `args` holds symbolic tensors of the program, and variables that are arguments; a
 * function value that is borrowed is the function itself.
 * `program` is new; it is the result, or is given back. `is_first`: it may make variables (FN-6).
 * `*makes_variables`: it made one, or tried to without being allowed.
 */
coi_program *coi_capture_program(co_context *ctx, coi_program *program, const char *name, co_fn fn,
                                 void *user, co_value *args, bool is_first, bool *makes_variables);
/*
 * The same for the body of a condition or loop, which may use values of the functions that are
 * being captured around it. They become arguments: program->args is a tuple of `args` and a tuple
 * of them, and *outside is the tuple of what they are outside the body, a value of the block.
 */
coi_program *coi_capture_body(co_context *ctx, coi_program *program, const char *name, co_fn fn,
                              void *user, co_value *args, co_value **outside);
/* The same for a part of a graph or function that is called once, such as a step: it may make
 * variables. */
coi_program *coi_capture_part(co_context *ctx, coi_program *program, const char *name, co_fn fn,
                              void *user, co_value *args, co_value **outside);
/* The initial value of a variable that the function makes, which is made at once: its symbolic
 * tensors are computed. A value of the block; NULL with CO_VALUE_ERROR where this is not the first
 * capture (FN-6), or where it depends on arguments. */
co_value *coi_capture_initial(co_context *ctx, co_value *initial, const char *name);
/* The call of the function being captured that gave this symbolic tensor as its result, borrowed
 * until the next call is recorded; NULL: none, such as an argument. */
const coi_program_step *coi_capture_step_of(const co_context *ctx, const co_value *symbol);
/* Whether a symbolic tensor is an argument of the step that is being captured, and run was given
 * one value for all replicas in its place. */
bool coi_is_common_argument(const co_context *ctx, const co_value *symbol);
/* Calls of ctx are made, not recorded, until coi_capture_resume: for what has to exist while a
 * function is captured. */
typedef struct coi_capture_pause {
    struct coi_capture             *capture;
    const struct coi_type_recorder *recorder;
    struct coi_tape_log            *tapes;
    bool                            infers_types, recording, in_graph;
    uint8_t                         special;
    size_t                          unbegun_tapes;
} coi_capture_pause;
coi_capture_pause coi_capture_suspend(co_context *ctx);
void              coi_capture_resume(co_context *ctx, const coi_capture_pause *pause);
/* From now on calls of ctx, which captures nothing, are recorded. */
void coi_capture_enter(co_context *ctx, coi_capture *capture);

/* function.c. The same as co_function_of for a part of the function that ctx captures; `closure` is
 * an object, to which the function holds a reference. */
co_function *coi_function_of_closure(co_context *ctx, co_fn fn, void *closure, const char *name);
/* A function as a value, of the block; NULL with an error. What a function itself keeps `borrows`
 * it: a reference would keep it alive for ever. */
co_value *coi_function_as_value(co_context *ctx, co_function *function, bool borrows);
/* A function that is a part of the one that ctx captures makes variables only if that one may. */
void coi_function_inherit(const co_context *ctx, co_function *function);
/* The outermost function that is being captured: its program, and where its frames and those of
 * the functions that it calls are. NULL and 0: there is none. */
typedef struct coi_outer_capture {
    const void *first_frame, *last_frame;
    uint64_t    program; /* serial number */
} coi_outer_capture;
coi_outer_capture coi_outermost_capture(const co_context *ctx);
/* Whether a pointer of the user is to a local variable of a function that is being captured, which
 * is gone when its program runs. False where a sanitizer keeps such variables elsewhere. */
bool coi_is_in_captured_frames(const co_context *ctx, const void *pointer);
/* It was captured with `user`, a pointer of the user, and becomes part of what ctx captures, which
 * outlives its own frames: if the pointer is into one of them, another capture is refused. */
void coi_function_outlives(const co_context *ctx, co_function *function, const void *user);
/* The program that a call with these arguments takes, captured if there is none: a
 * reference, or NULL with an error. `args` is a tuple. */
coi_program *coi_function_program(co_context *ctx, co_function *function, co_value *args);
/* Whether the call that is being captured is made by a captured function inside another. */
bool coi_is_nested_call(const co_context *ctx);

/* compare_captures.c. Whether two captures of a function make the same calls; CO_RUNTIME_ERROR with
 * the first that differs. */
bool coi_check_same_program(co_context *ctx, const char *name, const coi_program *before,
                            const coi_program *now);
/* function.c. The same for two functions that calls of two such captures hold: for all programs
 * that both have. */
bool coi_check_same_function(co_context *ctx, co_function *before, co_function *now);

/* signature.c */
/* Dtype and shape of a tensor or type, for messages: `out`. */
const char *coi_type_text(const co_value *type, char *out, size_t capacity);
/* Whether host values are one for the choice of a program: 1, 1.0 and true are. */
bool coi_same_host_value(const co_value *a, const co_value *b);
/* Whether a program can take the elements of the second dataset or iterator in the place of those
 * of the first. */
bool coi_is_like_input(const co_value *a, const co_value *b);
/* The type of arguments, by which a program is found: specs in the place of tensors, host values
 * and variables as they are. A value of the block, or NULL with an error. */
co_value *coi_types_of_args(co_context *ctx, co_value *args);
/* Whether arguments are of these types. */
bool coi_fits_types(co_value *types, co_value *args);
/* The same, and whether the datasets are those of the types: for a program that is tied to them. */
bool coi_has_same_datasets(co_value *types, co_value *args);
/* How many dimensions of the types are known, and ranks: the more, the more specific. */
int coi_types_known(const co_value *types);
/* Types that both fit: dimensions and ranks in which they differ are unknown. A value of the block;
 * NULL, without an error, where only other differences separate them. */
co_value *coi_join_types(co_context *ctx, co_value *a, co_value *b);
/* Symbolic tensors of a program in the place of the specs of types; variables stay. A value of the
 * block, or NULL with an error. */
co_value *coi_symbols_of_types(co_context *ctx, coi_program *program, co_value *types);
/* Arguments for a signature, or for the types of a program: host values become tensors of its
 * dtypes. With `takes_specs` they may be specs. A value of the block, or NULL with CO_TYPE_ERROR
 * where they do not fit. */
co_value *coi_args_for_signature(co_context *ctx, co_value *signature, co_value *args,
                                 bool takes_specs);
/* The signature of a replica: its part of each per-replica spec. Outside of steps the signature
 * itself. A value of the block, or NULL with an error. */
co_value *coi_signature_here(co_context *ctx, co_value *signature);
/* FN-9: whether a step of several replicas may have this signature: where run was given per-replica
 * values, it has per-replica specs. CO_TYPE_ERROR if not. */
bool coi_check_run_signature(co_context *ctx, const co_value *signature);
/* Whether a value is a signature: a tuple or list of specs and structures of them. */
bool coi_check_signature(co_context *ctx, co_value *signature);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured functions: what tf.function is to the documents. A function of yours is called once, with
 * symbolic arguments, to record what it does; after that its program runs without it.
 *
 *     co_function *f = co_function_of(ctx, step, model, NULL);
 *
 *     co_value *loss = co_call(ctx, f, co_args(ctx, x, y));
 *     co_value *losses = co_run(ctx, strategy, co_captured, co_args(ctx, batch), f);
 *
 * The last line differs from co_run(ctx, strategy, step, args, model) in two words. docs/functions.md
 * is the guide.
 *
 * Capturing. The first call captures, and so does a call with arguments of another type: another
 * structure, dtype or shape of tensors, another host number or string. Calls with the same types
 * replay what was captured. A signature with unknown dimensions is captured once for all tensors
 * that fit it.
 *
 * While your function is captured, operators give symbolic tensors (CO_KIND_SYMBOLIC): their dtype
 * and shape can be asked for, as far as they are known, their elements cannot. co_item_float,
 * co_value_data and the like are CO_TYPE_ERROR there. What is no call of this library (printf, a
 * branch, a counter of yours) happens while capturing only. Tensors and numbers from outside are
 * part of the program with the value they had (memory that a tensor borrows must not change, as
 * co_tensor_borrow and co_from_dlpack say); variables are read in every call. Functions that you give
 * to co_run, co_merge_call and co_update there may be captured again when values of other types
 * come to them, and those that you give to datasets are called when these are read, so what their
 * `user` points to must live as long as the captured function. A pointer to a local variable of it
 * is CO_RUNTIME_ERROR. What the library tells the host of the place (co_has_strategy, co_replica_id)
 * holds for it: elsewhere is another capture. Counts that change (co_optimizer_iterations,
 * co_variable_is_initialized, those of iterators) are CO_TYPE_ERROR.
 *
 * Replaying. Calls happen in the order in which your function made them, with the results, and the
 * bits, that they have without capturing. An error has the line of the call in your function.
 */
#ifndef COHORT_FUNCTION_H
#define COHORT_FUNCTION_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

typedef struct co_function co_function;

typedef struct co_function_options {
    size_t      struct_size;
    const char *name; /* for messages; copied. NULL: "function" */
    /*
     * The types of the arguments: a tuple or list with a spec, or a structure of specs, for each.
     * co_value_spec, co_element_spec and co_iterator_element_spec give them; a dimension of -1 is
     * any. Host numbers given for a spec become tensors of its dtype. NULL: the types are those of
     * the arguments.
     */
    co_value *signature;
    /* Without a signature: where only shapes differ from an earlier call, capture once more with
     * the dimensions that differ unknown. */
    bool relax_shapes;
    /* Capture again in every call and compare: a function that depends on memory of its own, which
     * capturing cannot see, is CO_RUNTIME_ERROR with the lines of both calls. Slow, for finding
     * mistakes. The setting check_functions turns it on for all functions. */
    bool check;
    /* The most programs that it keeps; 0: 64. A call that needs one more drops the oldest, and a
     * line of the log says what kept changing. */
    int max_programs;
} co_function_options;
#define CO_FUNCTION_OPTIONS_INIT { sizeof(co_function_options), NULL, NULL, false, false, 0 }

/**
 * A function that is captured when it is called; nothing runs now. `user` is given to fn as it is,
 * and must be valid while co_call may capture. A handle of ctx's block.
 *
 * Returns:  the function, or NULL with CO_TYPE_ERROR (no fn, or a signature that holds something
 *           else than specs) or CO_VALUE_ERROR (options out of range).
 * Rules: FN-1.
 */
CO_API co_function *co_function_of(co_context *ctx, co_fn fn, void *user,
                                   const co_function_options *options);

/**
 * Call a captured function. `args` is a tuple or list. Inside a function that is being captured, the
 * calls of `function` become part of that function's program.
 *
 * Scope:    as the calls in the function.
 * Context:  any in which these calls are allowed. A program belongs to the context it was captured
 *           in: another strategy, replica or device captures again.
 * Blocks:   as the calls in the function.
 * Returns:  what fn returned, a value of ctx's block; none for NULL. CO_TYPE_ERROR if the arguments
 *           do not fit the signature, CO_VALUE_ERROR if args is not a tuple or list,
 *           CO_RUNTIME_ERROR if fn leaves a strategy set, and the errors of fn and of its calls.
 *           After an error while capturing nothing has happened; after one while replaying, the
 *           calls before it have.
 * Rules: FN-2, FN-3, FN-7, FN-10.
 */
CO_API co_value *co_call(co_context *ctx, co_function *function, co_value *args);

/**
 * co_call as a step: co_run(ctx, strategy, co_captured, args, function). With several replicas a
 * signature has a per-replica spec where run is given a per-replica value, as co_element_spec gives
 * it for a distributed dataset; CO_TYPE_ERROR otherwise.
 * Rules: FN-9.
 */
CO_API co_value *co_captured(co_context *ctx, co_value *args, void *function);

/**
 * A captured function as a value, so that it can be an argument of another, which keeps it: each
 * function is another type. co_value_function gives the function of a value, as a handle of ctx's block; CO_TYPE_ERROR
 * for anything else.
 */
CO_API co_value    *co_function_value(co_context *ctx, co_function *function);
CO_API co_function *co_value_function(co_context *ctx, co_value *value);

/**
 * The function for arguments of one type, captured now if it was not yet: what get_concrete_function
 * is to the documents. `args` is a tuple or list of specs, of examples, or of structures of these;
 * host values and variables are themselves. NULL, or an empty one, stands for the signature. The
 * result is a function for co_call and co_captured that is never captured again, wherever it is
 * called. A handle of ctx's block.
 *
 * Returns:  the concrete function, or NULL with CO_TYPE_ERROR (args do not fit the signature, or
 *           the function is concrete already), CO_VALUE_ERROR (args is not a tuple or list), and the
 *           errors of capturing. A call with arguments of other types, or as many as it was not
 *           captured for, is CO_TYPE_ERROR.
 * Rules: FN-12.
 */
CO_API co_function *co_function_concrete(co_context *ctx, co_function *function, co_value *args);
/** The types of the arguments of a concrete function: a tuple of specs, or structures of specs, with
 * host values as they were given. */
CO_API co_value *co_function_arg_specs(co_context *ctx, const co_function *function);
/** The type of its result: specs in the structure of what it returns. */
CO_API co_value *co_function_result_spec(co_context *ctx, const co_function *function);

/**
 * Call fn at once, also where a function is being captured: what tf.init_scope is to the documents.
 * The calls that it makes are made once, while capturing, and are no part of the program; tapes do
 * not see them. Symbolic tensors of the function are CO_TYPE_ERROR there. Where a graph is built
 * around the function, the calls are added to the graph (CO_INIT_SCOPE of v1.h is the same as a
 * statement). `args` may be NULL: no arguments.
 *
 * Scope:    as the calls in fn.
 * Context:  any; where nothing is captured it is a call of fn.
 * Blocks:   as the calls in fn.
 * Returns:  what fn returned, a value of ctx's block; none for NULL. The errors of fn.
 */
CO_API co_value *co_init_scope(co_context *ctx, co_fn fn, co_value *args, void *user);

/**
 * How often the user's function was called to capture it, how many programs it has now, and how
 * often one was replayed. A plan is a part of a program as a list of kernels for tensors of some
 * shapes: how many there are now, how often one was run, and the memory that they need for what they
 * compute and drop, against the sum of it.
 */
typedef struct co_function_stats {
    size_t  struct_size;
    int64_t captures;
    int64_t programs;
    int64_t replays;
    int64_t plans;
    int64_t plan_runs;
    int64_t planned_bytes;
    int64_t temporary_bytes;
} co_function_stats;
#define CO_FUNCTION_STATS_INIT { sizeof(co_function_stats), 0, 0, 0, 0, 0, 0, 0 }
CO_API co_code co_function_get_stats(co_context *ctx, const co_function *function,
                                     co_function_stats *stats);

/**
 * The calls of a program in text, one a line, in at most `capacity` bytes with the zero; returns the
 * length it would need, as snprintf does. The program is the one that was captured last; the text is
 * empty if there is none.
 */
CO_API size_t co_function_print(co_context *ctx, co_function *function, char *out,
                                size_t capacity);
/**
 * The same program as a picture, in the language of Graphviz: `dot -Tsvg` draws it. Calls are boxes,
 * variables are cylinders, arguments and the result are ellipses.
 */
CO_API size_t co_function_dot(co_context *ctx, co_function *function, char *out, size_t capacity);

CO_EXTERN_C_END

#endif

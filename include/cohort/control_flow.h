/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditions and loops whose course depends on tensors: tf.cond, tf.switch_case, tf.case,
 * tf.while_loop, tf.map_fn, tf.scan, tf.foldl, tf.foldr and loops over rows.
 *
 *     typedef struct fit { co_value *x, *y; } fit;
 *
 *     static co_value *smaller(co_context *ctx, co_value *args, void *user) { ... }
 *     static co_value *larger(co_context *ctx, co_value *args, void *user) { ... }
 *
 *     y = co_cond(ctx, co_less(ctx, norm, limit), smaller, larger, co_args(ctx, x), &fit);
 *
 * Bodies are functions of yours. They get `args` and `user`, and may use every value they know,
 * through `user` too. What they return becomes tensors: variables are read, host numbers converted.
 *
 * Without capturing, the predicate is read and the body is called: a plain if or loop in C does the
 * same. In a captured function the predicate has no value yet. There every body is called once, to
 * capture it, and a replay runs the one that is chosen, or as many rounds as it takes. What a body
 * that does not run would do (assignments, random numbers) does not happen. Gradients go through,
 * second ones too: tapes record the operators that ran.
 *
 * A gradient must be taken on the side of the body's border on which its tape was begun. With more
 * than one replica, co_merge_call is not allowed in a captured body.
 *
 * Rules: FN-9, FN-11, RC-MERGE-8.
 */
#ifndef COHORT_CONTROL_FLOW_H
#define COHORT_CONTROL_FLOW_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

/* The context of all calls here is any in which the calls of the bodies are allowed. */

/**
 * Call true_fn if `predicate`, a scalar bool, is true, otherwise false_fn. `args` is a tuple or
 * list; NULL: no arguments.
 *
 * Scope:    as the calls in the function that runs.
 * Context:  any in which these are allowed.
 * Blocks:   as these do.
 * Returns:  what the function returned, a value of ctx's block; none for NULL.
 *           CO_INVALID_ARGUMENT if the predicate is not a scalar bool. In a captured function
 *           CO_TYPE_ERROR if the functions return other structures or dtypes; dimensions that differ
 *           are unknown in the result.
 */
CO_API co_value *co_cond(co_context *ctx, co_value *predicate, co_fn true_fn, co_fn false_fn,
                         co_value *args, void *user);

/**
 * Call branches[index], where `index` is a scalar tensor of int32 or int64. An index below 0 or
 * past the end calls the last branch, which therefore is the default of the documents.
 *
 * Scope, Context, Blocks, Returns: as co_cond; CO_TYPE_ERROR if the index is not an integer tensor,
 * CO_VALUE_ERROR without branches.
 */
CO_API co_value *co_switch_case(co_context *ctx, co_value *index, const co_fn *branches,
                                size_t num_branches, co_value *args, void *user);

/**
 * Call the branch of the first predicate that is true. `predicates` is a tuple or list of scalar
 * bools; one more branch than predicates is the default. With `exclusive` at most one predicate may
 * be true.
 *
 * Scope, Context, Blocks, Returns: as co_cond; CO_INVALID_ARGUMENT if no predicate is true and there
 * is no default, or if more than one is true with `exclusive`.
 */
CO_API co_value *co_case(co_context *ctx, co_value *predicates, const co_fn *branches,
                         size_t num_branches, co_value *args, void *user, bool exclusive);

typedef struct co_while_options {
    size_t struct_size;
    /*
     * The shapes that loop variables may take: a structure like the loop variables, of specs in
     * which a dimension, or the rank, may be unknown (-1), or none where the shape stays. NULL:
     * all shapes stay.
     */
    co_value *invariants;
    int64_t   max_iterations; /* stop after so many rounds; below 0: no limit */
} co_while_options;
#define CO_WHILE_OPTIONS_INIT { sizeof(co_while_options), NULL, -1 }

/**
 * Call body with the loop variables as long as cond, called with them, returns true. `variables` is
 * a tuple or list; both functions get a tuple, and body returns the next one. There may be no round
 * at all.
 *
 * Scope:    as the calls in the functions.
 * Context:  any in which these are allowed.
 * Blocks:   as these do, for as many rounds as it takes.
 * Returns:  the loop variables at the end, a tuple of ctx's block. CO_TYPE_ERROR if body returns
 *           another structure or dtype, CO_VALUE_ERROR if it returns another shape than the
 *           invariant allows, CO_INVALID_ARGUMENT if cond does not return a scalar bool.
 */
CO_API co_value *co_while(co_context *ctx, co_fn cond, co_fn body, co_value *variables, void *user,
                          const co_while_options *options);

/**
 * Call fn with each row of `elems`, a tensor or structure of tensors with equally many rows
 * (dimension 0), and stack what it returns. fn gets a tuple of one element, which has the structure
 * of elems.
 *
 * Scope:    as the calls in the function.
 * Context:  any in which these are allowed.
 * Blocks:   as these do, row after row.
 * Returns:  the stacked results. CO_VALUE_ERROR if elems has a scalar, or other numbers of rows in
 *           its tensors, CO_TYPE_ERROR if fn returns other structures for different rows. Without
 *           rows fn is called once, to know the type of the result, and what it does does not happen.
 */
CO_API co_value *co_map_fn(co_context *ctx, co_value *elems, co_fn fn, void *user);

/**
 * Fold the rows of `elems` from the first to the last: fn gets a tuple of the accumulator and an
 * element, and returns the next accumulator. It begins with `initializer`; NULL: with the first row.
 *
 * Scope, Context, Blocks, Returns: as co_map_fn; the last accumulator, whose structure, dtype and
 * shape stay as in co_while. CO_INVALID_ARGUMENT if there are neither rows nor an initializer.
 */
CO_API co_value *co_foldl(co_context *ctx, co_value *elems, co_value *initializer, co_fn fn,
                          void *user);
/** The same from the last row to the first. */
CO_API co_value *co_foldr(co_context *ctx, co_value *elems, co_value *initializer, co_fn fn,
                          void *user);
/** All accumulators of co_foldl, or with `reverse` of co_foldr, stacked in the order of the rows. */
CO_API co_value *co_scan(co_context *ctx, co_value *elems, co_value *initializer, co_fn fn,
                         void *user, bool reverse);

/**
 * Call fn for each row of `elems` with a state: fn gets a tuple of the element and the items of the
 * state, and returns the next state. `state` is a tuple or list. `elems` may also be a dataset, whose
 * elements are read from the first on in every call, or an iterator, of which it takes what is left
 * (co_dataset_value and co_iterator_value make these values; distributed ones too).
 *
 * Scope, Context, Blocks, Returns: as co_foldl, and of datasets and iterators as co_next too; the
 * last state, a tuple.
 */
CO_API co_value *co_for_each(co_context *ctx, co_value *elems, co_value *state, co_fn fn,
                             void *user);

CO_EXTERN_C_END

#endif

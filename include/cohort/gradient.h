/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients. A tape records what is computed from watched values: trainable variables on their own,
 * other tensors after co_watch. co_gradient walks it backwards.
 *
 *     co_tape_begin(ctx);
 *     co_watch(ctx, x);
 *     co_value *dy = co_gradient(ctx, co_square(ctx, x), x);   // 2x; the tape is used up
 *
 * Tapes nest: what an inner tape computes is recorded by the outer one, which gives gradients of
 * gradients.
 */
#ifndef COHORT_GRADIENT_H
#define COHORT_GRADIENT_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/**
 * Begin recording. The tape ends with co_gradient (also when that fails, or finds an error),
 * co_tape_end or the block it was begun in.
 */
CO_API void co_tape_begin(co_context *ctx);
/** A tape that serves any number of co_gradient calls, until co_tape_end. */
CO_API void co_tape_begin_persistent(co_context *ctx);
/** Drop the innermost tape. */
CO_API void co_tape_end(co_context *ctx);
/**
 * Record what is computed from this tensor (or each leaf of a structure) from now on, on all open
 * tapes.
 */
CO_API void co_watch(co_context *ctx, co_value *value);

/**
 * The variables that the open tapes have seen, as a list in the order of first use: trainable ones
 * on their own, others after co_watch. CO_RUNTIME_ERROR without a tape.
 */
CO_API co_value *co_watched_variables(co_context *ctx);

typedef struct co_gradient_options {
    size_t    struct_size;
    /* of the structure of targets, none for ones; NULL: ones. For slices a tensor in the shape of
     * their values, or slices of the same rows: of equal indices, int32 or int64, and of an equal
     * dense shape or without one; others are CO_INVALID_ARGUMENT */
    co_value *output_gradients;
    bool      unconnected_zero; /* zeros instead of none where no path leads to a source */
} co_gradient_options;
#define CO_GRADIENT_OPTIONS_INIT { sizeof(co_gradient_options), NULL, false }

/**
 * The gradient of the sum of all targets (one tensor or a structure) with respect to each source (a
 * tensor, a variable, or a structure of them), in the structure of sources. A source that no target
 * depends on gives none. A gradient may be indexed slices; slices among the targets stand for their
 * values, so that a gradient can be differentiated again as it is.
 *
 * Scope:    collective over the replicas of a step if the tape holds collective calls
 *           (co_all_reduce, co_all_gather, co_sync_batch_norm_train); otherwise this context only.
 * Context:  any; the context that began the tape.
 * Blocks:   until all replicas compute the gradient too, if it is collective.
 * Returns:  the gradients, or NULL with CO_RUNTIME_ERROR (no open tape), CO_INVALID_ARGUMENT (an
 *           output gradient that does not fit), or an error of a collective call.
 */
CO_API co_value *co_gradient(co_context *ctx, co_value *targets, co_value *sources);
/** co_gradient with options; NULL means the initialiser. */
CO_API co_value *co_gradient_with(co_context *ctx, co_value *targets, co_value *sources,
                                  const co_gradient_options *options);

CO_EXTERN_C_END

#endif

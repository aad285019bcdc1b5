/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of co_apply_gradients share.
 */
#ifndef COI_TRAIN_APPLY_H
#define COI_TRAIN_APPLY_H

#include "train/optimizer.h"

/* Gradients and the variables they are for, pair by pair; gradients are replaced by their sums. */
typedef struct coi_pairs {
    co_optimizer    *optimizer;
    co_value       **gradients;
    co_value *const *variables;
    size_t           n;
    bool             sum; /* over replicas */
} coi_pairs;

/* apply_gradients.c: a gradient that fits its variable, dense: a value of the block, or NULL. */
co_value *coi_fitting_gradient(co_context *ctx, const coi_variable *variable, co_value *gradient);
/* Slices have a dense shape afterwards, that of the variable; other gradients stay. */
co_value *coi_with_dense_shape(co_context *ctx, const coi_variable *variable, co_value *gradient);

/*
 * Item `round` of pair i: the component that is updated here, or, outside of steps, the one of so
 * many components; with the gradient as far as it is known to be a tensor or slices.
 */
typedef enum coi_item_made { COI_ITEM_FAILED, COI_ITEM_MADE, COI_ITEM_NONE } coi_item_made;
coi_item_made coi_item_of(co_context *ctx, const coi_pairs *p, size_t i, size_t round,
                          coi_update_item *item);

/* --- apply_options.c --- */

/* Add the gradients to the accumulators of this replica. */
bool coi_accumulate(co_context *ctx, const coi_pairs *p);
/* The same gradients with what the accumulators have; and accumulators of zeros. */
bool coi_add_accumulated(co_context *ctx, const coi_pairs *p);
bool coi_clear_accumulators(co_context *ctx, const coi_pairs *p);
/* Clip this replica's own gradients, of which `factor` times are the real ones. */
bool coi_clip_before_sum(co_context *ctx, const coi_pairs *p, double factor);
/* Factors and limits of items, whose gradients are dense tensors or slices. */
bool coi_clip_items(co_context *ctx, const co_optimizer *optimizer, coi_update_item *items,
                    size_t n, double factor);
/* Make the gradients of items dense, and what their rule takes of slices beside it. */
bool coi_densify_items(co_context *ctx, const co_optimizer *optimizer, coi_update_item *items,
                       size_t n);
/* Whether all elements of all gradients are finite; true with an error. */
bool coi_are_finite(co_context *ctx, const coi_pairs *p);

#endif

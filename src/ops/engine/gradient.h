/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients for the folders below (train, strategy): over arrays, without structures.
 */
#ifndef COI_OPS_ENGINE_GRADIENT_H
#define COI_OPS_ENGINE_GRADIENT_H

#include "context/context.h"

/*
 * Gradients of targets for sources on the innermost tape, which is used up unless persistent.
 * `given` (may be NULL) are the output gradients. sources[i] is replaced by its gradient: a value
 * of the block, none where unconnected (zeros if `zero`).
 */
co_code coi_gradients(co_context *ctx, co_value **targets, size_t num_targets, co_value **given,
                      co_value **sources, size_t num_sources, bool zero);
/* The sum of two gradients, either of which may be slices. */
co_value *coi_add_gradients(co_context *ctx, co_value *a, co_value *b);
/* Slices as the tensor that they stand for (rows with the same index are added, in order); anything
 * else unchanged. */
co_value *coi_densify(co_context *ctx, co_value *value);

#endif

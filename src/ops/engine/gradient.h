/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients for the folders below (train, strategy): over arrays, without structures.
 */
#ifndef COI_OPS_ENGINE_GRADIENT_H
#define COI_OPS_ENGINE_GRADIENT_H

#include <cohort/gradient.h>

#include "context/context.h"

/*
 * Gradients of targets for sources on the innermost tape, which is used up unless persistent.
 * `given` (may be NULL) are the output gradients. sources[i] is replaced by its gradient: a value
 * of the block, none where unconnected (zeros if `zero`).
 */
co_code coi_gradients(co_context *ctx, co_value **targets, size_t num_targets, co_value **given,
                      co_value **sources, size_t num_sources, bool zero);
/* The sum of two gradients, either of which may be composite. */
co_value *coi_add_gradients(co_context *ctx, co_value *a, co_value *b);
/* A composite value as the tensor that it stands for, by operators where its kind has some, so that
 * gradients pass: a value of the block. Every other value, and NULL, is itself.
 * (composite_values.c) */
co_value *coi_densify(co_context *ctx, co_value *value);

/* co_gradient while a function is captured: the types of the gradients, which end the tape. Spends
 * the tape; NULL with an error. */
co_value *coi_capture_gradient(co_context *ctx, co_value *targets, co_value *sources,
                               const co_gradient_options *options);

#endif

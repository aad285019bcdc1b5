/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composite values and operators.
 */
#ifndef COI_OPS_ENGINE_COMPOSITE_VALUES_H
#define COI_OPS_ENGINE_COMPOSITE_VALUES_H

#include "context/context.h"

/*
 * The components that n values of one composite kind have as one, by the rules of the row, as
 * values of the block; NULL for those that there are not. `which` names value i in messages
 * ("replica"). False with an error.
 */
bool coi_concat_components(co_context *ctx, co_value *const *values, size_t n, const char *which,
                           co_value *components[COI_MAX_COMPONENTS]);
/* The value of these components that `like` would be: a value of the block. */
co_value *coi_composite_give(co_context *ctx, const co_value *like, co_value *const *components);
/* n values of one composite kind as one: a value of the block. */
co_value *coi_concat_composites(co_context *ctx, co_value *const *values, size_t n,
                                const char *which);

#endif

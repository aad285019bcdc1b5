/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that are no public functions yet and that gradients call.
 */
#ifndef COI_OPS_BINARY_H
#define COI_OPS_BINARY_H

#include "ops/op.h"

/* x where cond (bool) is true, else y, of one dtype; the three broadcast. */
co_value *coi_where(co_context *ctx, co_value *cond, co_value *x, co_value *y);

#endif

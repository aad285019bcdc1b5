/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What files of this folder share.
 */
#ifndef COI_OPS_MATH_MATH_OPS_H
#define COI_OPS_MATH_MATH_OPS_H

#include "ops/engine/op.h"

/* A result, or what flows into it, with the reduced axes as 1, so that it broadcasts against x. */
co_value *coi_reduced_as_ones(coi_grad *g, co_value *value);
/* The axis is in range and has an element, output_type is a dtype of indices. */
co_code coi_argmax_rule(coi_call *call, coi_out *outs);

#endif

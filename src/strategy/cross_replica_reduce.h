/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over all replicas outside a step, and the checks that reductions share.
 */
#ifndef COI_STRATEGY_CROSS_REPLICA_REDUCE_H
#define COI_STRATEGY_CROSS_REPLICA_REDUCE_H

#include "ops/engine/execute.h"
#include "strategy/rendezvous_kind.h"
#include "strategy/strategy.h"

/* Reduce one leaf from the local components (tensors of one dtype and shape; n of them) over all
 * replicas of all workers. A reference on the device of ctx. */
co_value *coi_reduce_tensors(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind,
                             co_reduce_op op, co_value *const *parts);
/* co_reduce without its checks and hooks: a value of the block. */
co_value *coi_reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
                     const int *axes, size_t num_axes);
/* One leaf of reduce without an axis: a value of the block. */
co_value *coi_reduce_leaf(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *leaf);
/* Tell the tape that `result` is `leaf` (as a tensor: `in`) of all replicas, combined by the
 * operation `how` or gathered along the axis `how` (collective_gradient.c). */
bool coi_record_collective(co_context *ctx, bool gather, int32_t how, co_value *leaf, co_value *in,
                           co_value *result);
extern const coi_op coi_op_all_reduce, coi_op_all_gather; /* collective_gradient.c */
/* S-REDUCE-19: bools and strings are not. */
bool coi_check_reducible(co_context *ctx, const co_value *tensor);
/* Composite values are concatenated, which is a sum: CO_UNIMPLEMENTED for MIN, MAX and PROD
 * (composite_reduce.c). */
bool coi_check_composite_op(co_context *ctx, const co_value *value, co_reduce_op op);
/* The values of the local replicas, of one composite kind, and those of all workers as one: a value
 * of the block. */
co_value *coi_combine_composites(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind,
                                 co_reduce_op op, co_value *const *values);
/* While a function is captured: the type of what coi_reduce_leaf gives, and of composite values
 * that are combined. Values of the block, or NULL with an error. */
co_value *coi_reduced_type(co_context *ctx, const co_strategy *strategy, co_reduce_op op,
                           co_value *leaf);
co_value *coi_combined_type(co_context *ctx, co_value *composite);
/* S-REDUCE-8: the dtype of a mean. */
co_dtype coi_mean_dtype(co_dtype dtype);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of one family of operators that other families, or folders below, use.
 */
#ifndef COI_OPS_ENGINE_SHARED_OPS_H
#define COI_OPS_ENGINE_SHARED_OPS_H

#include "ops/engine/op.h"

/* Of reductions (math/reduction_ops.c). Axes are in range and given once; the shape that is left.
 */
co_code coi_reduce_rule(coi_call *call, coi_out *outs);

/* What the operators of normalisation take for these numbers; NaN would stay in moving averages for
 * good. `op` begins the message (nn/composite_norms.c). */
co_code coi_check_epsilon(co_context *ctx, const char *op, double epsilon);
co_code coi_check_momentum(co_context *ctx, const char *op, double momentum);

/* momentum * moving + (1 - momentum) * batch, without gradient; an empty batch has no statistics
 * and leaves `moving` as it is, in the shape of the sum (nn/composite_norms.c). */
co_value *coi_moving_average(co_context *ctx, co_value *moving, co_value *batch, double momentum,
                             bool empty);
/* The axes over which a batch norm of x reduces: those of the options, or all but the last
 * (nn/composite_norms.c). */
bool coi_batch_norm_axes(co_context *ctx, co_value *x, const co_batch_norm_options *options,
                         int axes[CO_MAX_DIMS], size_t *num_axes);

/* Elements of x at a regular distance, as a value of the block (array/strided_slice_ops.c). The
 * attributes are those of ops/kernels/strided_slice.h. */
struct coi_strided_attrs;
co_value *coi_strided(co_context *ctx, co_value *x, const struct coi_strided_attrs *attrs);

/* 2 to COI_MAX_OUTPUTS parts of an x that is not of strings, values of the block, by one operator,
 * whose gradient is a concat (array/slice_ops.c). The attributes are in
 * ops/kernels/strided_copy.h. */
struct coi_split_attrs;
co_code coi_split_few(co_context *ctx, co_value *x, const struct coi_split_attrs *attrs,
                      co_value **parts);

#endif

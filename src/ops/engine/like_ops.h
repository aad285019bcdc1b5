/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes taken from another operand. A gradient has the shape of an operand, of which dimensions
 * may be unknown where the gradient is written down; so gradients do not put dimensions into
 * attributes but hand that operand, `like`, to one of these. Its rank may be unknown, too.
 */
#ifndef COI_OPS_ENGINE_LIKE_OPS_H
#define COI_OPS_ENGINE_LIKE_OPS_H

#include "ops/engine/op.h"

/* The elements of x in the shape of `like`; the data is shared. */
co_value *coi_reshape_like(co_context *ctx, co_value *x, co_value *like);
/* x as a list of rows, one for each of the indices, that are like those of `like`; the data is
 * shared. */
co_value *coi_rows_like(co_context *ctx, co_value *x, co_value *indices, co_value *like);
/* x repeated up to the shape of `like`. */
co_value *coi_broadcast_like(co_context *ctx, co_value *x, co_value *like);
/* Zeros of the shape and dtype of `like`. */
co_value *coi_zeros_of(co_context *ctx, co_value *like);
/* `count` dimensions from `first` on as one; none become one of 1. The data is shared. */
co_value *coi_merge_dims(co_context *ctx, co_value *x, int first, int count);
/* The last dimension as two, of which the first is `parts`. The data is shared. */
co_value *coi_split_last(co_context *ctx, co_value *x, int64_t parts);

/*
 * An operator that has the shape of its result as an attribute, the coi_ints at `offset` of attrs,
 * with that of `like` there. Operand `dtype_of` has the dtype of the result. The offset is
 * COI_SHAPE_AT(type of attrs, field): the attributes are copied into fixed room, and too large ones
 * do not compile.
 */
#define COI_MAX_SIZED_ATTRS       448
#define COI_SHAPE_AT(type, field) (offsetof(type, field) + COI_ATTRS_FIT(type, COI_MAX_SIZED_ATTRS))
typedef struct coi_sized_op {
    const coi_op *op;
    const void   *attrs;
    size_t        offset;
    int           dtype_of;
} coi_sized_op;
co_value *coi_apply_like(co_context *ctx, const coi_sized_op *sized, co_value *const *given, int n,
                         co_value *like);
/* The operator that stands for it where the shape of `like` is not known. */
co_value *coi_apply_sized_like(co_context *ctx, const coi_sized_op *sized, co_value *const *given,
                               int n, co_value *like);

#endif

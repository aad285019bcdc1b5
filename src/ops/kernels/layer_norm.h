/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm over the last axes with kernels of its own, which layer_norm uses where shapes allow
 * (ops/nn/composite_norms.c). A tensor is seen as rows of `dim` elements; gamma and beta have one
 * row.
 */
#ifndef COI_OPS_KERNELS_LAYER_NORM_H
#define COI_OPS_KERNELS_LAYER_NORM_H

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"

/* Rows of a chunk of the gradient. Sums for gamma and beta are taken in the element type over a
 * chunk, so it has few. */
static inline int64_t
coi_norm_chunk_rows(int64_t dim)
{
    int64_t rows = COI_PARALLEL_ROWS / (dim > 0 ? dim : 1);

    return rows < 8 ? 8 : rows > 128 ? 128 : rows;
}

/* Whether layer_norm of these inputs over its last num_axes axes is what the kernels compute. */
bool coi_norm_is_rows(co_value *const *in, int num_axes);
/* layer_norm of them. */
co_value *coi_norm_rows(co_context *ctx, co_value *const *in, int num_axes, double epsilon);

typedef struct coi_norm_attrs {
    double  epsilon;
    int64_t num_axes;
} coi_norm_attrs;
co_code coi_ref_norm(coi_call *call);
co_code coi_ref_norm_grad(coi_call *call);

/* momentum * moving + (1 - momentum) * batch, without gradient; an empty batch has no statistics
 * and leaves `moving` as it is. */
co_value *coi_moving_average(co_context *ctx, co_value *moving, co_value *batch, double momentum,
                             bool empty);
/* The axes over which a batch norm of x reduces: those of the options, or all but the last. */
bool coi_batch_norm_axes(co_context *ctx, co_value *x, const co_batch_norm_options *options,
                         int axes[CO_MAX_DIMS], size_t *num_axes);

#endif

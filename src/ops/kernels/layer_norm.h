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

typedef struct coi_norm_attrs {
    double  epsilon;
    int64_t num_axes;
} coi_norm_attrs;
/* The elements of dimensions [first, end) of x. */
static inline int64_t
coi_norm_dims_product(const co_value *x, int first, int end)
{
    int64_t product = 1;

    for (int d = first; d < end; ++d)
        product *= x->u.tensor.dims[d];
    return product;
}
static inline int64_t
coi_norm_row_elements(const co_value *x, const coi_norm_attrs *attrs)
{
    return coi_norm_dims_product(x, x->ndim - (int)attrs->num_axes, x->ndim);
}

co_code coi_norm_run(coi_call *call);
co_code coi_ref_norm(coi_call *call);
co_code coi_ref_norm_grad(coi_call *call);

#endif

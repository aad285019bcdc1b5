/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of softmax, its gradient and cross entropy. A tensor is seen as outer x dim x inner with
 * the softmax along dim; `rows` kernels serve inner = 1, where rows of all operands are `stride`
 * elements apart (dim, unless they are parts of longer ones), `columns` kernels one outer index
 * with inner > 1 and a range of columns.
 *
 * A sum along dim has 16 partial sums (element i goes to sum i mod 16) that are folded in a fixed
 * order.
 */
#ifndef COI_OPS_KERNELS_SOFTMAX_H
#define COI_OPS_KERNELS_SOFTMAX_H

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"

typedef struct coi_softmax_kernels {
    /* y = exp(x - max), max and the sum of y, of each row; y may be NULL, which changes no bit of
     * the others. */
    void (*exps)(const void *x, void *y, void *max, void *sum, int64_t num_rows, int64_t dim,
                 int64_t stride);
    /* y = e / sum, times g[row] where g is given; y may be e. */
    void (*scale)(const void *e, const void *sum, const void *g, void *y, int64_t num_rows,
                  int64_t dim, int64_t stride);
    void (*logs)(const void *sum, void *log_sum, int64_t n);
    void (*columns)(const void *x, void *y, int64_t dim, int64_t inner, int64_t first,
                    int64_t last);
    /* dx = y (g - sum(g y)) */
    void (*grad_rows)(const void *y, const void *g, void *dx, int64_t num_rows, int64_t dim,
                      int64_t stride);
    void (*grad_columns)(const void *y, const void *g, void *dx, int64_t dim, int64_t inner,
                         int64_t first, int64_t last);
} coi_softmax_kernels;

/* CO_FLOAT32 or CO_FLOAT64. */
const coi_softmax_kernels *coi_softmax_kernels_of(coi_isa isa, co_dtype dtype);

/* Rows that one chunk takes. */
static inline int64_t
coi_softmax_chunk_rows(int64_t dim)
{
    return dim >= COI_PARALLEL_ROWS ? 1 : COI_PARALLEL_ROWS / (dim > 0 ? dim : 1);
}

/* Rows whose maxima and sums are on the stack at a time. */
#define COI_SOFTMAX_ROWS 64
/* Chunks of rows of softmax and cross entropy, which have the same bits however rows are cut. */
static inline int64_t
coi_softmax_chunks(int64_t num_rows, int64_t dim, int64_t *rows_per_chunk)
{
    int64_t rows = coi_softmax_chunk_rows(dim);
    int64_t least = COI_SHARED_ROWS / (dim > 0 ? dim : 1);

    if (num_rows <= 4 * rows)
        return coi_share(num_rows, rows < COI_SOFTMAX_ROWS ? rows : COI_SOFTMAX_ROWS,
                         least > 0 ? least : 1, rows_per_chunk);
    *rows_per_chunk = rows;
    return (num_rows + rows - 1) / rows;
}
/* Softmax of rows, times g[row] where g is given. */
void coi_softmax_rows(const coi_softmax_kernels *kernels, size_t element_size, const char *x,
                      const char *g, char *y, int64_t num_rows, int64_t dim, int64_t stride);

typedef struct coi_softmax_attrs {
    int64_t axis;
} coi_softmax_attrs;
typedef struct coi_softmax_view {
    int64_t outer, dim, inner;
} coi_softmax_view;
/* The view of input 0 along an axis that was checked. */
void coi_softmax_view_of(const coi_call *call, coi_softmax_view *view);

/* The label of a row; labels are int32 or int64. */
static inline int64_t
coi_label(const co_value *labels, int64_t row)
{
    return labels->dtype == CO_INT32 ? ((const int32_t *)labels->u.tensor.data)[row]
                                     : ((const int64_t *)labels->u.tensor.data)[row];
}
/* CO_INVALID_ARGUMENT naming the first label that is no class. */
co_code coi_check_labels(coi_call *call, const co_value *labels, int64_t num_classes);

co_code coi_ref_softmax(coi_call *call);
co_code coi_ref_softmax_grad(coi_call *call);
co_code coi_ref_cross_entropy(coi_call *call);
co_code coi_ref_cross_entropy_grad(coi_call *call);
co_code coi_ref_soft_cross_entropy(coi_call *call);
co_code coi_ref_soft_cross_entropy_grad(coi_call *call);

co_code coi_softmax_run(coi_call *call);
co_code coi_cross_entropy_run(coi_call *call);

#endif

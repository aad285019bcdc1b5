/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of matmul need to know about a call: a batch of GEMMs, each operand with its
 * strides and, per batch dimension, the step to the next matrix (0 where the operand is broadcast).
 */
#ifndef COI_OPS_KERNELS_MATMUL_H
#define COI_OPS_KERNELS_MATMUL_H

#include "ops/engine/op.h"

typedef struct coi_matmul_attrs {
    bool    transpose_a, transpose_b;
    int32_t activation; /* of dense: co_activation */
} coi_matmul_attrs;

typedef struct coi_matmul_view {
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col; /* elements */
    int64_t num_items;                  /* matrices in the batch */
    int     ndim;                       /* batch dimensions */
    int64_t dims[CO_MAX_DIMS], a_step[CO_MAX_DIMS], b_step[CO_MAX_DIMS];
} coi_matmul_view;

/* The view of a call whose shapes were checked. A batch over one common b is folded into the rows
 * of a. */
void coi_matmul_view_of(const coi_call *call, coi_matmul_view *view);
/* Where the matrices of an item begin; c is item * m * n. */
void coi_matmul_item(const coi_matmul_view *view, int64_t item, int64_t *a, int64_t *b);

co_code coi_ref_matmul(coi_call *call);

/* The kernels of matmul, and of dense, which has a bias and an activation. */
co_code coi_matmul_run(coi_call *call);
co_code coi_dense_run(coi_call *call);
co_code coi_dense_ref(coi_call *call);

#endif

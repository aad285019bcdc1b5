/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of reductions, and what they share with the operators.
 */
#ifndef COI_OPS_KERNELS_REDUCTION_H
#define COI_OPS_KERNELS_REDUCTION_H

#include "ops/engine/op.h"

typedef struct coi_reduce_attrs {
    coi_ints axis; /* not given: all */
    bool     keepdims;
} coi_reduce_attrs;

typedef struct coi_argmax_attrs {
    int64_t axis;
    uint8_t output_type;
} coi_argmax_attrs;

/* Which of ndim axes are reduced. The axes were checked. */
void coi_reduced_axes(const coi_ints *axis, int ndim, bool *reduced);

/* The kernels; the plain ones are in ops/kernels/ref/ref.h. */
co_code coi_reduce_sum_run(coi_call *call);
co_code coi_reduce_mean_run(coi_call *call);
co_code coi_reduce_max_run(coi_call *call);
co_code coi_reduce_min_run(coi_call *call);
co_code coi_reduce_prod_run(coi_call *call);
co_code coi_sum_to_like_run(coi_call *call);
co_code coi_sum_to_like_ref(coi_call *call);
co_code coi_argmax_run(coi_call *call);

#endif

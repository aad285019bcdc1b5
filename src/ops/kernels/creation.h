/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operators that make tensors share with their reference kernels.
 */
#ifndef COI_OPS_KERNELS_CREATION_H
#define COI_OPS_KERNELS_CREATION_H

#include "ops/engine/op.h"

typedef struct coi_make_attrs {
    coi_ints shape;
    uint8_t  dtype;
} coi_make_attrs;
typedef struct coi_fill_attrs {
    coi_ints   shape;
    coi_scalar value;
} coi_fill_attrs;
typedef struct coi_range_attrs {
    coi_scalar start, limit, delta;
    uint8_t    dtype; /* none: int32 (int64 if need be) for whole numbers, float32 else */
} coi_range_attrs;

/* A number as dtype holds it. */
double coi_nearest(double value, co_dtype dtype);
double coi_scalar_nearest(const coi_scalar *scalar, co_dtype dtype);

co_code coi_zeros_run(coi_call *call);
co_code coi_ones_run(coi_call *call);
co_code coi_fill_run(coi_call *call);
co_code coi_range_run(coi_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gather, scatter_add and their reference kernels share.
 */
#ifndef COI_OPS_KERNELS_GATHER_H
#define COI_OPS_KERNELS_GATHER_H

#include "ops/engine/op.h"

typedef struct coi_gather_attrs {
    int64_t axis, batch_dims; /* axis COI_NO_INT: batch_dims */
} coi_gather_attrs;
static inline int64_t
coi_gather_axis(const coi_gather_attrs *attrs)
{
    return attrs->axis == COI_NO_INT ? attrs->batch_dims : attrs->axis;
}
typedef struct coi_scatter_attrs {
    coi_ints shape;
    int64_t  axis, batch_dims;
} coi_scatter_attrs;
typedef struct coi_one_hot_attrs {
    int64_t    depth;
    coi_scalar on_value, off_value; /* of CO_KIND_NONE: 1 and 0 */
    int64_t    axis;
    uint8_t    dtype; /* none: that of the values, float32 without them */
} coi_one_hot_attrs;
static inline coi_scalar
coi_one_hot_on(const coi_one_hot_attrs *attrs)
{
    static const coi_scalar one = { CO_KIND_INT, 1, 0 };

    return attrs->on_value.kind == CO_KIND_NONE ? one : attrs->on_value;
}

/*
 * Both operators as nested loops: params is [batch, outer, n, inner], indices [batch, m], and
 * what is gathered [batch, outer, m, inner].
 */
typedef struct coi_gather_plan {
    int64_t batch, outer, n, inner, m;
} coi_gather_plan;

/* The plan for params of a shape; CO_INVALID_ARGUMENT if axis, batch_dims and shapes do not fit.
 * `gathered` may be NULL. */
co_code coi_gather_make_plan(coi_call *call, const int64_t *dims, int ndim, const co_value *indices,
                             int64_t axis, int64_t batch_dims, coi_gather_plan *plan,
                             coi_out *gathered);
/* CO_INVALID_ARGUMENT naming the first index that is not in [0, n). */
co_code coi_check_indices(coi_call *call, const co_value *indices, int64_t n);

/* A host number as an element of dtype. */
void coi_scalar_store(const coi_scalar *scalar, co_dtype dtype, void *out);

co_code coi_gather_run(coi_call *call);
co_code coi_scatter_add_run(coi_call *call);
co_code coi_one_hot_run(coi_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules over types with unknowns. A rule reads dtype, ndim and dims of its inputs, which are
 * tensors, or specs with the same head: ndim -1 is an unknown rank, a dimension of -1 is unknown.
 * What it cannot know it leaves unknown, and it refuses only what no tensor of these types could
 * be. It may look at elements only where coi_has_data says that there are some.
 */
#ifndef COI_OPS_ENGINE_TYPE_RULES_H
#define COI_OPS_ENGINE_TYPE_RULES_H

#include "ops/engine/op.h"

#define COI_UNKNOWN (-1)

/* Whether an input has elements that a rule may look at. */
static inline bool
coi_has_data(const co_value *in)
{
    return in->kind == CO_KIND_TENSOR;
}
static inline bool
coi_is_unknown_rank(const co_value *in)
{
    return in->ndim < 0;
}
/* Whether rank and all dimensions are known. */
bool coi_is_known_shape(const co_value *in);
bool coi_out_is_known(const coi_out *out);
/* Whether both shapes are known and equal. Two unknown dimensions need not be the same. */
bool coi_is_known_same_shape(const co_value *a, const co_value *b);

/* Elements of an input; COI_UNKNOWN if that is not known. A dimension of 0 decides. */
int64_t coi_known_elements(const co_value *in);
/* a * b and a + b of dimensions, either of which may be unknown; nothing times anything is 0. */
int64_t coi_dim_product(int64_t a, int64_t b);
int64_t coi_dim_sum(int64_t a, int64_t b);

/* Two dimensions that must be equal: whether they can be, and what is known then. */
static inline bool
coi_dims_fit(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}
static inline bool
coi_merge_dim(int64_t *dim, int64_t other)
{
    if (*dim == other || other < 0)
        return true;
    if (*dim >= 0)
        return false;
    *dim = other;
    return true;
}
/* The same for whole shapes, either of which may have an unknown rank. */
bool coi_merge_shape(coi_out *out, const int64_t *dims, int ndim);

/* The dimensions of an input that must have this rank: its own; all unknown, in `room`, if its rank
 * is; NULL if it has another one. */
const int64_t *coi_dims_of_rank(const co_value *in, int rank, int64_t room[CO_MAX_DIMS]);

/* Outputs. */
void coi_out_like(coi_out *out, const co_value *in);
void coi_out_unknown(coi_out *out, co_dtype dtype);
void coi_out_scalar(coi_out *out, co_dtype dtype);
void coi_out_vector(coi_out *out, co_dtype dtype, int64_t n);
/* The given shape, which has no unknowns. */
void coi_out_shape(coi_out *out, co_dtype dtype, const coi_ints *shape);
/* Without one of its dimensions; of an unknown rank nothing changes. */
void coi_out_drop(coi_out *out, int axis);
/* With another one put in. */
void coi_out_insert(coi_out *out, int axis, int64_t dim);

#endif

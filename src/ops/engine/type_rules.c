/* SPDX-License-Identifier: Apache-2.0 */
/* See type_rules.h. */
#include "ops/engine/type_rules.h"

#include <string.h>

static bool
are_known(const int64_t *dims, int ndim)
{
    for (int d = 0; d < ndim; ++d)
        if (dims[d] < 0)
            return false;
    return ndim >= 0;
}

bool
coi_is_known_shape(const co_value *in)
{
    return coi_has_data(in) || are_known(in->u.tensor.dims, in->ndim);
}

bool
coi_out_is_known(const coi_out *out)
{
    return are_known(out->dims, out->ndim);
}

bool
coi_is_known_same_shape(const co_value *a, const co_value *b)
{
    return coi_same_shape(a, b) && coi_is_known_shape(a);
}

int64_t
coi_known_elements(const co_value *in)
{
    int64_t total = 1;

    if (coi_has_data(in))
        return in->u.tensor.num_elements;
    if (in->ndim < 0)
        return COI_UNKNOWN;
    for (int d = 0; d < in->ndim; ++d)
        total = coi_dim_product(total, in->u.tensor.dims[d]);
    return total;
}

/* What overflows is as good as unknown: no tensor has that many elements. */
int64_t
coi_dim_product(int64_t a, int64_t b)
{
    int64_t product;

    if (a == 0 || b == 0)
        return 0;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
        return COI_UNKNOWN;
    return product;
}

int64_t
coi_dim_sum(int64_t a, int64_t b)
{
    int64_t sum;

    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum))
        return COI_UNKNOWN;
    return sum;
}

bool
coi_merge_shape(coi_out *out, const int64_t *dims, int ndim)
{
    if (ndim < 0)
        return true;
    if (out->ndim < 0) {
        out->ndim = ndim;
        memcpy(out->dims, dims, (size_t)ndim * sizeof(int64_t));
        return true;
    }
    if (out->ndim != ndim)
        return false;
    for (int d = 0; d < ndim; ++d)
        if (!coi_merge_dim(&out->dims[d], dims[d]))
            return false;
    return true;
}

const int64_t *
coi_dims_of_rank(const co_value *in, int rank, int64_t room[CO_MAX_DIMS])
{
    if (in->ndim == rank)
        return in->u.tensor.dims;
    if (in->ndim >= 0 || rank > CO_MAX_DIMS)
        return NULL;
    for (int d = 0; d < rank; ++d)
        room[d] = COI_UNKNOWN;
    return room;
}

void
coi_out_like(coi_out *out, const co_value *in)
{
    out->dtype = (co_dtype)in->dtype;
    out->ndim = in->ndim;
    for (int d = 0; d < in->ndim; ++d)
        out->dims[d] = in->u.tensor.dims[d];
}

void
coi_out_unknown(coi_out *out, co_dtype dtype)
{
    out->dtype = dtype;
    out->ndim = COI_UNKNOWN;
}

void
coi_out_scalar(coi_out *out, co_dtype dtype)
{
    out->dtype = dtype;
    out->ndim = 0;
}

void
coi_out_vector(coi_out *out, co_dtype dtype, int64_t n)
{
    out->dtype = dtype;
    out->ndim = 1;
    out->dims[0] = n;
}

void
coi_out_shape(coi_out *out, co_dtype dtype, const coi_ints *shape)
{
    out->dtype = dtype;
    out->ndim = shape->n > 0 ? shape->n : 0;
    memcpy(out->dims, shape->at, (size_t)out->ndim * sizeof(int64_t));
}

void
coi_out_drop(coi_out *out, int axis)
{
    if (out->ndim < 0)
        return;
    --out->ndim;
    for (int d = axis; d < out->ndim; ++d)
        out->dims[d] = out->dims[d + 1];
}

void
coi_out_insert(coi_out *out, int axis, int64_t dim)
{
    if (out->ndim < 0)
        return;
    for (int d = out->ndim++; d > axis; --d)
        out->dims[d] = out->dims[d - 1];
    out->dims[axis] = dim;
}

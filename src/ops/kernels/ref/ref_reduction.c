/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions by definition: every result iterates over its elements.
 */
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/reduction.h"

#include <math.h>

/* Position of an element: `index` counts through the axes that are (or are not) reduced, the last
 * one fastest. */
static int64_t
position(const co_value *x, const bool *reduced, bool want, int64_t index)
{
    int64_t at = 0, stride = 1;

    for (int d = x->ndim - 1; d >= 0; --d) {
        int64_t dim = x->u.tensor.dims[d];

        if (reduced[d] == want) {
            at += index % dim * stride;
            index /= dim;
        }
        stride *= dim;
    }
    return at;
}

typedef coi_number (*fold_fn)(coi_number acc, coi_number x);

static coi_number
sum_of(coi_number acc, coi_number x)
{
    return (coi_number){ x.cls, acc.f + x.f, acc.u + x.u };
}

static coi_number
max_of(coi_number acc, coi_number x)
{
    return coi_number_less(acc, x) || isnan(x.f) ? x : acc;
}

static coi_number
min_of(coi_number acc, coi_number x)
{
    return coi_number_less(x, acc) || isnan(x.f) ? x : acc;
}

static coi_number
prod_of(coi_number acc, coi_number x)
{
    return (coi_number){ x.cls, acc.f * x.f, acc.u * x.u };
}

static coi_number
lowest(co_dtype dtype)
{
    if (coi_dtypes[dtype].floating)
        return coi_number_of(dtype, -INFINITY, 0);
    if (!coi_dtypes[dtype].is_signed)
        return coi_number_of(dtype, 0, 0);
    return coi_number_of(dtype, 0, -(INT64_C(1) << (8 * coi_dtypes[dtype].size - 2)) * 2);
}

static coi_number
divided(coi_number sum, int64_t count)
{
    switch (sum.cls) {
    case COI_NUMBER_FLOAT: sum.f /= (double)count; break;
    case COI_NUMBER_SIGNED: sum.u = count > 0 ? (uint64_t)((int64_t)sum.u / count) : 0; break;
    default: sum.u = count > 0 ? sum.u / (uint64_t)count : 0; break;
    }
    return sum;
}

/* One element is its own sum, also -0, which 0 - 0 would not be. */
static co_code
each(coi_call *call, fold_fn fold, coi_number first, bool is_mean)
{
    const coi_reduce_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0];
    co_value               *out = call->out[0];
    co_dtype                dtype = (co_dtype)x->dtype;
    bool                    reduced[CO_MAX_DIMS];
    int64_t                 count = 1;

    coi_reduced_axes(&attrs->axis, x->ndim, reduced);
    for (int d = 0; d < x->ndim; ++d)
        count *= reduced[d] ? x->u.tensor.dims[d] : 1;
    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        coi_number acc = first;

        for (int64_t k = 0; k < count; ++k) {
            coi_number number = coi_number_load(dtype, x->u.tensor.data,
                                                position(x, reduced, false, i) +
                                                    position(x, reduced, true, k));

            acc = count == 1 ? number : fold(acc, number);
        }
        coi_number_store(dtype, out->u.tensor.data, i, is_mean ? divided(acc, count) : acc);
    }
    return CO_OK;
}

co_code
coi_ref_reduce_sum(coi_call *call)
{
    return each(call, sum_of, coi_number_of((co_dtype)call->in[0]->dtype, 0, 0), false);
}

co_code
coi_ref_reduce_mean(coi_call *call)
{
    return each(call, sum_of, coi_number_of((co_dtype)call->in[0]->dtype, 0, 0), true);
}

co_code
coi_ref_reduce_max(coi_call *call)
{
    return each(call, max_of, lowest((co_dtype)call->in[0]->dtype), false);
}

co_code
coi_ref_reduce_min(coi_call *call)
{
    co_dtype   dtype = (co_dtype)call->in[0]->dtype;
    coi_number first = lowest(dtype);

    first.f = INFINITY;
    first.u = ~first.u; /* the highest of a width is the complement of the lowest */
    return each(call, min_of, first, false);
}

co_code
coi_ref_reduce_prod(coi_call *call)
{
    return each(call, prod_of, coi_number_of((co_dtype)call->in[0]->dtype, 1, 1), false);
}

co_code
coi_ref_argmax(coi_call *call)
{
    const coi_argmax_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0];
    co_value               *out = call->out[0];
    co_dtype                dtype = (co_dtype)x->dtype;
    bool                    reduced[CO_MAX_DIMS] = { false };
    int64_t                 axis = attrs->axis < 0 ? attrs->axis + x->ndim : attrs->axis;

    reduced[axis] = true;
    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        int64_t    base = position(x, reduced, false, i), best_at = 0;
        coi_number best = lowest(dtype);

        for (int64_t k = 0; k < x->u.tensor.dims[axis]; ++k) {
            coi_number number = coi_number_load(dtype, x->u.tensor.data,
                                                base + position(x, reduced, true, k));

            if (coi_number_less(best, number)) { /* never true of NaN */
                best = number;
                best_at = k;
            }
        }
        coi_number_store((co_dtype)out->dtype, out->u.tensor.data, i,
                         (coi_number){ COI_NUMBER_SIGNED, 0, (uint64_t)best_at });
    }
    return CO_OK;
}

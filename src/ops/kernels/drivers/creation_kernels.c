/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors made from attributes: zeros, ones, fill, range.
 */
#include "ops/kernels/creation.h"

#include "ops/engine/op.h"
#include "ops/kernels/gather.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/strided_copy.h"

#include <string.h>

void
coi_scalar_store(const coi_scalar *scalar, co_dtype dtype, void *out)
{
    if (scalar->kind == CO_KIND_FLOAT)
        coi_convert(CO_FLOAT64, &scalar->f, dtype, out, 1);
    else
        coi_convert(CO_INT64, &scalar->i, dtype, out, 1);
}

static double
scalar_real(const coi_scalar *scalar)
{
    return scalar->kind == CO_KIND_FLOAT ? scalar->f : (double)scalar->i;
}

double
coi_nearest(double value, co_dtype dtype)
{
    char element[8];

    coi_convert(CO_FLOAT64, &value, dtype, element, 1);
    coi_convert(dtype, element, CO_FLOAT64, &value, 1);
    return value;
}

double
coi_scalar_nearest(const coi_scalar *scalar, co_dtype dtype)
{
    return coi_nearest(scalar_real(scalar), dtype);
}

co_code
coi_zeros_run(coi_call *call)
{
    co_value *out = call->out[0];

    if (out->dtype != CO_STRING) /* made of empty texts already */
        memset(out->u.tensor.data, 0, coi_tensor_nbytes(out));
    return CO_OK;
}

static co_code
fill_with(co_value *out, const coi_scalar *scalar)
{
    char element[8];

    coi_scalar_store(scalar, (co_dtype)out->dtype, element);
    coi_fill_elements(out->u.tensor.data, out->u.tensor.num_elements, element,
                      coi_dtypes[out->dtype].size);
    return CO_OK;
}

co_code
coi_ones_run(coi_call *call)
{
    static const coi_scalar one = { CO_KIND_INT, 1, 0 };

    return fill_with(call->out[0], &one);
}

co_code
coi_fill_run(coi_call *call)
{
    return fill_with(call->out[0], &((const coi_fill_attrs *)call->attrs)->value);
}

/* start + i delta, each in one rounding. */
co_code
coi_range_run(coi_call *call)
{
    const coi_range_attrs *attrs = call->attrs;
    co_value              *out = call->out[0];
    co_dtype               dtype = (co_dtype)out->dtype;
    int64_t                n = out->u.tensor.num_elements;
    double                 first, step;

    if (dtype == CO_INT32 || dtype == CO_INT64) {
        uint64_t start = (uint64_t)attrs->start.i, delta = (uint64_t)attrs->delta.i;

        for (int64_t i = 0; dtype == CO_INT32 && i < n; ++i)
            COI_OUT(call, 0, uint32_t)[i] = (uint32_t)(start + (uint64_t)i * delta);
        for (int64_t i = 0; dtype == CO_INT64 && i < n; ++i)
            COI_OUT(call, 0, uint64_t)[i] = start + (uint64_t)i * delta;
        return CO_OK;
    }
    if (dtype != CO_FLOAT32 && dtype != CO_FLOAT64)
        return coi_ref_range(call);
    first = coi_scalar_nearest(&attrs->start, dtype);
    step = coi_scalar_nearest(&attrs->delta, dtype);
    for (int64_t i = 0; dtype == CO_FLOAT32 && i < n; ++i)
        COI_OUT(call, 0, float)[i] = (float)(first + (double)i * step);
    for (int64_t i = 0; dtype == CO_FLOAT64 && i < n; ++i)
        COI_OUT(call, 0, double)[i] = first + (double)i * step;
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making tensors, by definition.
 */
#include "ops/kernels/creation.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/upcast.h"

static coi_number
number_from(const coi_scalar *scalar, co_dtype dtype)
{
    if (coi_dtypes[dtype].floating)
        return coi_number_of(dtype, scalar->kind == CO_KIND_FLOAT ? scalar->f : (double)scalar->i,
                             0);
    return coi_number_of(dtype, 0, scalar->i);
}

static co_code
each(coi_call *call, coi_number number)
{
    co_value *out = call->out[0];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        coi_number_store((co_dtype)out->dtype, out->u.tensor.data, i, number);
    return CO_OK;
}

co_code
coi_ref_zeros(coi_call *call)
{
    co_dtype dtype = (co_dtype)call->out[0]->dtype;

    return dtype == CO_STRING ? CO_OK : each(call, coi_number_of(dtype, 0, 0));
}

co_code
coi_ref_ones(coi_call *call)
{
    return each(call, coi_number_of((co_dtype)call->out[0]->dtype, 1, 1));
}

co_code
coi_ref_fill(coi_call *call)
{
    const coi_fill_attrs *attrs = call->attrs;

    return each(call, number_from(&attrs->value, (co_dtype)call->out[0]->dtype));
}

/* A number as the dtype holds it. */
static coi_number
rounded(co_dtype dtype, coi_number number)
{
    char element[8];

    coi_number_store(dtype, element, 0, number);
    return coi_number_load(dtype, element, 0);
}

co_code
coi_ref_range(coi_call *call)
{
    const coi_range_attrs *attrs = call->attrs;
    co_value              *out = call->out[0];
    co_dtype               dtype = (co_dtype)out->dtype;
    coi_number             start = rounded(dtype, number_from(&attrs->start, dtype));
    coi_number             delta = rounded(dtype, number_from(&attrs->delta, dtype));

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        coi_number at = coi_number_of(dtype, (double)i, i), way;

        if (coi_is_half(out)) /* which rounds after each step */
            at = rounded(dtype, at);
        way = (coi_number){ start.cls, delta.f * at.f, delta.u * at.u };
        if (coi_is_half(out))
            way = rounded(dtype, way);
        coi_number_store(dtype, out->u.tensor.data, i,
                         (coi_number){ start.cls, start.f + way.f, start.u + way.u });
    }
    return CO_OK;
}

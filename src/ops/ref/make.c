/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making tensors, by definition.
 */
#include "ops/make.h"
#include "ops/ref/ref.h"
#include "ops/widen.h"

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

co_code
coi_ref_range(coi_call *call)
{
    const coi_range_attrs *attrs = call->attrs;
    co_value              *out = call->out[0];
    co_dtype               dtype = (co_dtype)out->dtype;
    coi_number             start = number_from(&attrs->start, dtype);
    coi_number             delta = number_from(&attrs->delta, dtype);

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        /* start and delta as the dtype holds them; half precision also rounds i and the product */
        coi_number number, steps[4] = { start, delta, coi_number_of(dtype, (double)i, i) };
        int        rounded = coi_is_half(out) ? 4 : 2;

        for (int k = 0; k < 4; ++k) {
            if (k == 3)
                steps[3] = (coi_number){ start.cls, steps[1].f * steps[2].f,
                                         steps[1].u * steps[2].u };
            if (k >= rounded)
                continue;
            coi_number_store(dtype, out->u.tensor.data, i, steps[k]);
            steps[k] = coi_number_load(dtype, out->u.tensor.data, i);
        }
        number = (coi_number){ start.cls, steps[0].f + steps[3].f, steps[0].u + steps[3].u };
        coi_number_store(dtype, out->u.tensor.data, i, number);
    }
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running sums and products by definition: every element iterates over those before it.
 */
#include "ops/engine/composite.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/cumulative.h"

co_code
coi_ref_scan(coi_call *call)
{
    const coi_scan_attrs *attrs = call->attrs;
    const co_value       *x = call->in[0];
    co_dtype              dtype = (co_dtype)x->dtype;
    coi_split_shape       s = coi_split_at(x, coi_axis_of(attrs->axis, x->ndim));
    bool                  is_prod = call->op->kind == COI_SCAN_PROD;

    for (int64_t e = 0; e < x->u.tensor.num_elements; ++e) {
        int64_t    i = e / s.inner % s.n, base = e - i * s.inner;
        int64_t    from = attrs->reverse ? s.n - 1 : 0, step = attrs->reverse ? -1 : 1;
        coi_number acc = coi_number_of(dtype, is_prod, is_prod);

        for (int64_t k = from; k != i + (attrs->exclusive ? 0 : step); k += step) {
            coi_number number = coi_number_load(dtype, x->u.tensor.data, base + k * s.inner);

            acc.f = is_prod ? acc.f * number.f : acc.f + number.f;
            acc.u = is_prod ? acc.u * number.u : acc.u + number.u;
        }
        coi_number_store(dtype, call->out[0]->u.tensor.data, e, acc);
    }
    return CO_OK;
}

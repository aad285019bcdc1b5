/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_k by definition: the best of a row that has not been taken, k times. NaN is worse than any
 * number.
 */
#include "ops/kernels/top_k.h"
#include "ops/kernels/ref/ref.h"

#include <math.h>

static bool
is_taken(const int32_t *indices, int64_t n, int64_t i)
{
    for (int64_t t = 0; t < n; ++t)
        if (indices[t] == i)
            return true;
    return false;
}

static bool
is_better(coi_number a, coi_number b)
{
    return coi_number_less(b, a) || (isnan(b.f) && !isnan(a.f));
}

co_code
coi_ref_top_k(coi_call *call)
{
    const co_value *x = call->in[0];
    co_dtype        dtype = (co_dtype)x->dtype;
    int64_t         n = x->u.tensor.dims[x->ndim - 1];
    int64_t         k = ((const coi_top_k_attrs *)call->attrs)->k;

    for (int64_t at = 0; at < call->out[0]->u.tensor.num_elements; ++at) {
        int64_t    base = at / k * n, best = -1;
        int32_t   *indices = COI_OUT(call, 1, int32_t) + at / k * k;
        coi_number most = coi_number_of(dtype, 0, 0);

        for (int64_t i = 0; i < n; ++i) {
            coi_number number = coi_number_load(dtype, x->u.tensor.data, base + i);

            if (!is_taken(indices, at % k, i) && (best < 0 || is_better(number, most))) {
                best = i;
                most = number;
            }
        }
        indices[at % k] = (int32_t)best;
        coi_number_store(dtype, call->out[0]->u.tensor.data, at, most);
    }
    return CO_OK;
}

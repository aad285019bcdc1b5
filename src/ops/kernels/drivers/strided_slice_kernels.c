/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements at a regular distance, and back.
 */
#include "ops/kernels/strided_slice.h"

#include "ops/kernels/strided_copy.h"

#include <string.h>

/* An iterator over the elements of `part` in `whole`; returns the offset of the first one. */
static int64_t
part_iterator(const co_value *part, const co_value *whole, const coi_strided_attrs *attrs,
              coi_strided_iterator *iter)
{
    int64_t stride = 1, first = 0;

    iter->num_operands = 1;
    iter->ndim = part->ndim;
    for (int d = part->ndim - 1; d >= 0; --d) {
        iter->dims[d] = part->u.tensor.dims[d];
        iter->strides[0][d] = stride * attrs->strides.at[d];
        first += attrs->begin.at[d] * stride;
        stride *= whole->u.tensor.dims[d];
    }
    coi_strided_merge(iter);
    return first;
}

co_code
coi_strided_run(coi_call *call)
{
    size_t               size = coi_element_size((co_dtype)call->in[0]->dtype);
    coi_strided_iterator iter;
    int64_t              first;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    first = part_iterator(call->out[0], call->in[0], call->attrs, &iter);
    coi_copy_to_dense(call, &iter, call->out[0]->u.tensor.data,
                      COI_IN(call, 0, char) + (size_t)first * size, size);
    return coi_own_texts(call);
}

co_code
coi_strided_grad_run(coi_call *call)
{
    co_value            *out = call->out[0];
    size_t               size = coi_dtypes[out->dtype].size;
    coi_strided_iterator iter;
    int64_t              first;

    memset(out->u.tensor.data, 0, (size_t)out->u.tensor.num_elements * size);
    if (call->in[0]->u.tensor.num_elements == 0)
        return CO_OK;
    first = part_iterator(call->in[0], out, call->attrs, &iter);
    coi_copy_from_dense(call, &iter, COI_OUT(call, 0, char) + (size_t)first * size,
                        call->in[0]->u.tensor.data, size);
    return CO_OK;
}

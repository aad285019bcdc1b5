/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of parts, and of the whole to parts: broadcast_to, slice, strided slices and
 * concat, and the gradients of slices.
 */
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/strided_slice.h"

#include <string.h>

co_code
coi_broadcast_to_run(coi_call *call)
{
    coi_strided_iterator iter;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    coi_strided_broadcast(&iter, call->out[0], call->in, 1);
    coi_copy_to_dense(call, &iter, call->out[0]->u.tensor.data, call->in[0]->u.tensor.data,
                      coi_element_size((co_dtype)call->in[0]->dtype));
    return coi_own_texts(call);
}

/* An iterator over the elements of `part` in `whole`, which are strides[d] apart (NULL: 1); returns
 * the offset of the first one. */
static int64_t
part_iterator(const co_value *part, const co_value *whole, const int64_t *begin,
              const int64_t *strides, coi_strided_iterator *iter)
{
    int64_t stride = 1, first = 0;

    iter->num_operands = 1;
    iter->ndim = part->ndim;
    for (int d = part->ndim - 1; d >= 0; --d) {
        iter->dims[d] = part->u.tensor.dims[d];
        iter->strides[0][d] = strides != NULL ? stride * strides[d] : stride;
        first += begin[d] * stride;
        stride *= whole->u.tensor.dims[d];
    }
    coi_strided_merge(iter);
    return first;
}

/* The result is a part of the input. */
static co_code
copy_part(coi_call *call, const int64_t *begin, const int64_t *strides)
{
    const co_value      *x = call->in[0];
    size_t               size = coi_element_size((co_dtype)x->dtype);
    coi_strided_iterator iter;
    int64_t              first;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    first = part_iterator(call->out[0], x, begin, strides, &iter);
    coi_copy_to_dense(call, &iter, call->out[0]->u.tensor.data,
                      COI_IN(call, 0, char) + (size_t)first * size, size);
    return coi_own_texts(call);
}

/* The input is a part of the result, the others are zeros. */
static co_code
copy_into_zeros(coi_call *call, const int64_t *begin, const int64_t *strides)
{
    co_value            *out = call->out[0];
    size_t               size = coi_dtypes[out->dtype].size;
    coi_strided_iterator iter;
    int64_t              first;

    memset(out->u.tensor.data, 0, (size_t)out->u.tensor.num_elements * size);
    if (call->in[0]->u.tensor.num_elements == 0)
        return CO_OK;
    first = part_iterator(call->in[0], out, begin, strides, &iter);
    coi_copy_from_dense(call, &iter, COI_OUT(call, 0, char) + (size_t)first * size,
                        call->in[0]->u.tensor.data, size);
    return CO_OK;
}

co_code
coi_slice_run(coi_call *call)
{
    return copy_part(call, ((const coi_slice_attrs *)call->attrs)->begin.at, NULL);
}

co_code
coi_slice_grad_run(coi_call *call)
{
    return copy_into_zeros(call, ((const coi_slice_grad_attrs *)call->attrs)->begin.at, NULL);
}

co_code
coi_strided_run(coi_call *call)
{
    const coi_strided_attrs *attrs = call->attrs;

    return copy_part(call, attrs->begin.at, attrs->strides.at);
}

co_code
coi_strided_grad_run(coi_call *call)
{
    const coi_strided_attrs *attrs = call->attrs;

    return copy_into_zeros(call, attrs->begin.at, attrs->strides.at);
}

co_code
coi_concat_run(coi_call *call)
{
    const coi_axis_attrs *attrs = call->attrs;
    const co_value       *out = call->out[0];
    int                   axis = (int)(attrs->axis < 0 ? attrs->axis + out->ndim : attrs->axis);
    int64_t               rows = 1;
    size_t                tail = coi_element_size((co_dtype)out->dtype), row_bytes, at = 0;

    if (out->u.tensor.num_elements == 0)
        return CO_OK;
    for (int d = 0; d < axis; ++d)
        rows *= out->u.tensor.dims[d];
    for (int d = axis + 1; d < out->ndim; ++d)
        tail *= (size_t)out->u.tensor.dims[d];
    row_bytes = (size_t)out->u.tensor.dims[axis] * tail;
    for (int i = 0; i < call->num_in; ++i) {
        size_t nbytes = (size_t)call->in[i]->u.tensor.dims[axis] * tail;

        for (int64_t r = 0; nbytes > 0 && r < rows; ++r)
            memcpy(COI_OUT(call, 0, char) + (size_t)r * row_bytes + at,
                   COI_IN(call, i, char) + (size_t)r * nbytes, nbytes);
        at += nbytes;
    }
    return coi_own_texts(call);
}

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

/* The parts of a tensor along an axis: strips of its rows, which end where the next part begins. */
typedef struct strips {
    char            *whole;
    co_value *const *parts;
    int              num_parts, axis;
    bool             splits; /* from the whole to the parts; else back */
    int64_t          rows, per_chunk;
    size_t           row_bytes, tail; /* of a row of the whole, of one index of the axis */
} strips;

static void
copy_strip(const strips *s, char *strip, const co_value *part, int64_t first, int64_t end)
{
    size_t nbytes = (size_t)part->u.tensor.dims[s->axis] * s->tail;
    char  *at = (char *)part->u.tensor.data + (size_t)first * nbytes;

    strip += (size_t)first * s->row_bytes;
    for (int64_t r = first; nbytes > 0 && r < end; ++r, at += nbytes, strip += s->row_bytes)
        memcpy(s->splits ? at : strip, s->splits ? strip : at, nbytes);
}

static void
copy_strips(void *arg, int64_t chunk)
{
    const strips *s = arg;
    int64_t       first = chunk * s->per_chunk, end = first + s->per_chunk;
    char         *strip = s->whole;

    for (int i = 0; i < s->num_parts; ++i) {
        copy_strip(s, strip, s->parts[i], first, end < s->rows ? end : s->rows);
        strip += (size_t)s->parts[i]->u.tensor.dims[s->axis] * s->tail;
    }
}

static void
copy_parts(coi_call *call, const co_value *whole, co_value *const *parts, int n, int64_t axis,
           bool splits)
{
    strips s = { .whole = whole->u.tensor.data,
                 .parts = parts,
                 .num_parts = n,
                 .axis = (int)(axis < 0 ? axis + whole->ndim : axis),
                 .splits = splits,
                 .rows = 1,
                 .tail = coi_element_size((co_dtype)whole->dtype) };

    if (whole->u.tensor.num_elements == 0)
        return;
    for (int d = 0; d < s.axis; ++d)
        s.rows *= whole->u.tensor.dims[d];
    for (int d = s.axis + 1; d < whole->ndim; ++d)
        s.tail *= (size_t)whole->u.tensor.dims[d];
    s.row_bytes = (size_t)whole->u.tensor.dims[s.axis] * s.tail;
    coi_parallel(call, coi_num_chunks(s.rows, whole->u.tensor.num_elements / s.rows, &s.per_chunk),
                 copy_strips, &s);
}

co_code
coi_concat_run(coi_call *call)
{
    copy_parts(call, call->out[0], call->in, call->num_in,
               ((const coi_axis_attrs *)call->attrs)->axis, false);
    return coi_own_texts(call);
}

co_code
coi_split_run(coi_call *call)
{
    copy_parts(call, call->in[0], call->out, call->num_out,
               ((const coi_split_attrs *)call->attrs)->axis, true);
    return CO_OK;
}

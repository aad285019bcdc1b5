/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that copy elements, by definition: the index of every element is taken apart and put
 * together again.
 */
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/gather.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/strided_slice.h"

#include <string.h>

static void
copy_element(co_value *out, int64_t to, const co_value *x, int64_t from)
{
    size_t size = coi_element_size((co_dtype)out->dtype);

    memcpy((char *)out->u.tensor.data + (size_t)to * size,
           (const char *)x->u.tensor.data + (size_t)from * size, size);
}

static void
split(int64_t i, const co_value *x, int64_t *index)
{
    for (int d = x->ndim - 1; d >= 0; --d) {
        index[d] = i % x->u.tensor.dims[d];
        i /= x->u.tensor.dims[d];
    }
}

static int64_t
join(const int64_t *index, const co_value *x)
{
    int64_t i = 0;

    for (int d = 0; d < x->ndim; ++d)
        i = i * x->u.tensor.dims[d] + index[d];
    return i;
}

co_code
coi_ref_broadcast_to(coi_call *call)
{
    co_value *out = call->out[0];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        copy_element(out, i, call->in[0], coi_ref_broadcast_index(out, i, call->in[0]));
    return coi_own_texts(call);
}

co_code
coi_ref_transpose(coi_call *call)
{
    const coi_ints *perm = &((const coi_perm_attrs *)call->attrs)->perm;
    co_value       *x = call->in[0], *out = call->out[0];
    int64_t         from[CO_MAX_DIMS], to[CO_MAX_DIMS];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        split(i, out, to);
        for (int d = 0; d < x->ndim; ++d) {
            int64_t source = perm->n < 0 ? x->ndim - 1 - d : perm->at[d];

            from[source < 0 ? source + x->ndim : source] = to[d];
        }
        copy_element(out, i, x, join(from, x));
    }
    return coi_own_texts(call);
}

co_code
coi_ref_slice(coi_call *call)
{
    const coi_slice_attrs *attrs = call->attrs;
    co_value              *out = call->out[0];
    int64_t                index[CO_MAX_DIMS];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        split(i, out, index);
        for (int d = 0; d < out->ndim; ++d)
            index[d] += attrs->begin.at[d];
        copy_element(out, i, call->in[0], join(index, call->in[0]));
    }
    return coi_own_texts(call);
}

co_code
coi_ref_slice_grad(coi_call *call)
{
    const coi_slice_grad_attrs *attrs = call->attrs;
    co_value                   *x = call->in[0], *out = call->out[0];
    int64_t                     index[CO_MAX_DIMS];

    memset(out->u.tensor.data, 0, coi_tensor_nbytes(out));
    for (int64_t i = 0; i < x->u.tensor.num_elements; ++i) {
        split(i, x, index);
        for (int d = 0; d < x->ndim; ++d)
            index[d] += attrs->begin.at[d];
        copy_element(out, join(index, out), x, i);
    }
    return CO_OK;
}

/* Element i of the part as the index of its element of the whole. */
static void
split_strided(const coi_call *call, int64_t i, const co_value *part, int64_t *index)
{
    const coi_strided_attrs *attrs = call->attrs;

    split(i, part, index);
    for (int d = 0; d < part->ndim; ++d)
        index[d] = attrs->begin.at[d] + index[d] * attrs->strides.at[d];
}

co_code
coi_ref_strided(coi_call *call)
{
    co_value *out = call->out[0];
    int64_t   index[CO_MAX_DIMS];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        split_strided(call, i, out, index);
        copy_element(out, i, call->in[0], join(index, call->in[0]));
    }
    return coi_own_texts(call);
}

co_code
coi_ref_strided_grad(coi_call *call)
{
    co_value *x = call->in[0], *out = call->out[0];
    int64_t   index[CO_MAX_DIMS];

    memset(out->u.tensor.data, 0, coi_tensor_nbytes(out));
    for (int64_t i = 0; i < x->u.tensor.num_elements; ++i) {
        split_strided(call, i, x, index);
        copy_element(out, join(index, out), x, i);
    }
    return CO_OK;
}

co_code
coi_ref_concat(coi_call *call)
{
    const coi_axis_attrs *attrs = call->attrs;
    co_value             *out = call->out[0];
    int64_t axis = attrs->axis < 0 ? attrs->axis + out->ndim : attrs->axis, before = 0;
    int64_t index[CO_MAX_DIMS];

    for (int k = 0; k < call->num_in; ++k) {
        co_value *x = call->in[k];

        for (int64_t i = 0; i < x->u.tensor.num_elements; ++i) {
            split(i, x, index);
            index[axis] += before;
            copy_element(out, join(index, out), x, i);
        }
        before += x->u.tensor.dims[axis];
    }
    return coi_own_texts(call);
}

co_code
coi_ref_split(coi_call *call)
{
    const coi_split_attrs *attrs = call->attrs;
    co_value              *x = call->in[0];
    int64_t                axis = attrs->axis < 0 ? attrs->axis + x->ndim : attrs->axis, before = 0;
    int64_t                index[CO_MAX_DIMS];

    for (int k = 0; k < call->num_out; ++k) {
        co_value *out = call->out[k];

        for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
            split(i, out, index);
            index[axis] += before;
            copy_element(out, i, x, join(index, x));
        }
        before += out->u.tensor.dims[axis];
    }
    return CO_OK;
}

/* Rows of `inner` elements: where row `row` of what is gathered lies in params. */
static int64_t
params_row(const coi_call *call, const coi_gather_plan *plan, int64_t row)
{
    int64_t outer = row / plan->m, batch = outer / plan->outer;

    return outer * plan->n + coi_index_at(call->in[1], batch * plan->m + row % plan->m);
}

co_code
coi_ref_gather(coi_call *call)
{
    const coi_gather_attrs *attrs = call->attrs;
    co_value               *params = call->in[0], *out = call->out[0];
    coi_gather_plan         plan;
    co_code code = coi_gather_make_plan(call, params->u.tensor.dims, params->ndim, call->in[1],
                                        coi_gather_axis(attrs), attrs->batch_dims, &plan, NULL);

    if (code == CO_OK)
        code = coi_check_indices(call, call->in[1], plan.n);
    if (code != CO_OK)
        return code;
    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        copy_element(out, i, params,
                     params_row(call, &plan, i / plan.inner) * plan.inner + i % plan.inner);
    return coi_own_texts(call);
}

co_code
coi_ref_scatter_add(coi_call *call)
{
    const coi_scatter_attrs *attrs = call->attrs;
    co_value                *updates = call->in[0], *out = call->out[0];
    co_dtype                 dtype = (co_dtype)out->dtype;
    coi_gather_plan          plan;
    co_code code = coi_gather_make_plan(call, attrs->shape.at, attrs->shape.n, call->in[1],
                                        attrs->axis, attrs->batch_dims, &plan, NULL);

    if (code == CO_OK)
        code = coi_check_indices(call, call->in[1], plan.n);
    if (code != CO_OK)
        return code;
    memset(out->u.tensor.data, 0, coi_tensor_nbytes(out));
    for (int64_t i = 0; i < updates->u.tensor.num_elements; ++i) {
        int64_t    at = params_row(call, &plan, i / plan.inner) * plan.inner + i % plan.inner;
        coi_number old = coi_number_load(dtype, out->u.tensor.data, at);
        coi_number update = coi_number_load(dtype, updates->u.tensor.data, i);

        coi_number_store(dtype, out->u.tensor.data, at,
                         (coi_number){ old.cls, old.f + update.f, old.u + update.u });
    }
    return CO_OK;
}

co_code
coi_ref_one_hot(coi_call *call)
{
    const coi_one_hot_attrs *attrs = call->attrs;
    co_value                *indices = call->in[0], *out = call->out[0];
    int64_t    axis = attrs->axis < 0 ? attrs->axis + out->ndim : attrs->axis, index[CO_MAX_DIMS];
    coi_scalar on = coi_one_hot_on(attrs);
    char       element[8];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        int64_t position;

        split(i, out, index);
        position = index[axis];
        for (int64_t d = axis; d + 1 < out->ndim; ++d)
            index[d] = index[d + 1];
        coi_scalar_store(coi_index_at(indices, join(index, indices)) == position
                             ? &on
                             : &attrs->off_value,
                         (co_dtype)out->dtype, element);
        memcpy(COI_OUT(call, 0, char) + (size_t)i * coi_dtypes[out->dtype].size, element,
               coi_dtypes[out->dtype].size);
    }
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of tensors: slice, the operator of its gradient, which puts a part back among zeros, and
 * concat.
 */
#include "ops/engine/op.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/ref/ref.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(slice)
COI_USES_OP(slice_grad)

#define SLICE_ATTRS(X)                                                                             \
    X(coi_slice_attrs, begin, INTS, "", NULL)                                                      \
    X(coi_slice_attrs, size, INTS, "", NULL)
COI_ATTR_TABLE(coi_slice_attrs, SLICE_ATTRS)
#define SLICE_GRAD_ATTRS(X)                                                                        \
    X(coi_slice_grad_attrs, begin, INTS, "", NULL)                                                 \
    X(coi_slice_grad_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(coi_slice_grad_attrs, SLICE_GRAD_ATTRS)
#define CONCAT_ATTRS(X) X(coi_axis_attrs, axis, INT, "", NULL)
COI_ATTR_TABLE(coi_axis_attrs, CONCAT_ATTRS)

static co_code
slice_rule(coi_call *call, coi_out *outs)
{
    const coi_slice_attrs *attrs = call->attrs;
    const co_value        *x = call->in[0];

    if (attrs->begin.n != x->ndim || attrs->size.n != x->ndim)
        return coi_invalid(call, "begin has %d entr%s and size %d; the rank of x is %d",
                           attrs->begin.n, COI_IES(attrs->begin.n), attrs->size.n, x->ndim);
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; ++d) {
        int64_t begin = attrs->begin.at[d], size = attrs->size.at[d], dim = x->u.tensor.dims[d];

        if (begin < 0 || begin > dim)
            return coi_invalid(call, "begin[%d] is %lld; it must be in [0, %lld]", d,
                               (long long)begin, (long long)dim);
        if (size < -1 || size > dim - begin)
            return coi_invalid(
                call, "size[%d] is %lld; from begin[%d] = %lld it must be in [0, %lld], or -1", d,
                (long long)size, d, (long long)begin, (long long)(dim - begin));
        outs[0].dims[d] = size == -1 ? dim - begin : size;
    }
    return CO_OK;
}

/* A walk over the box `part` of `whole`; returns where it begins. */
static int64_t
box_iterator(const co_value *part, const co_value *whole, const coi_ints *begin,
             coi_strided_iterator *iter)
{
    int64_t stride = 1, first = 0;

    iter->num_operands = 1;
    iter->ndim = part->ndim;
    for (int d = part->ndim - 1; d >= 0; --d) {
        iter->dims[d] = part->u.tensor.dims[d];
        iter->strides[0][d] = stride;
        first += begin->at[d] * stride;
        stride *= whole->u.tensor.dims[d];
    }
    coi_strided_merge(iter);
    return first;
}

static co_code
slice_run(coi_call *call)
{
    const coi_slice_attrs *attrs = call->attrs;
    const co_value        *x = call->in[0];
    size_t                 size = coi_element_size((co_dtype)x->dtype);
    coi_strided_iterator   iter;
    int64_t                first;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    first = box_iterator(call->out[0], x, &attrs->begin, &iter);
    coi_copy_to_dense(call, &iter, call->out[0]->u.tensor.data,
                      COI_IN(call, 0, char) + (size_t)first * size, size);
    return coi_own_texts(call);
}

static co_code
slice_grad(coi_grad *g)
{
    const coi_slice_attrs *attrs = g->attrs;
    const co_value        *x = g->in[0];
    coi_slice_grad_attrs   back = { .begin = attrs->begin, .shape = { .n = x->ndim } };

    memcpy(back.shape.at, x->u.tensor.dims, (size_t)x->ndim * sizeof(int64_t));
    g->grads[0] = coi_apply1(g->ctx, &coi_op_slice_grad, g->upstream[0], &back);
    return g->ctx->error.code;
}

const coi_op coi_op_slice = {
    .name = "slice",
    .doc = "The box of x that begins at `begin`; a size of -1 reaches to the end.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_slice_attrs),
    .infer = slice_rule,
    .ref = coi_ref_slice,
    .run = slice_run,
    .grad = slice_grad,
};

co_value *
co_slice(co_context *ctx, co_value *x, const int64_t *begin, const int64_t *size, size_t n)
{
    coi_slice_attrs attrs;

    COI_ENTER(ctx, "slice", NULL);
    if (!coi_ints_from_dims(ctx, "slice: begin", begin, n, &attrs.begin) ||
        !coi_ints_from_dims(ctx, "slice: size", size, n, &attrs.size))
        return NULL;
    return coi_apply1(ctx, &coi_op_slice, x, &attrs);
}

static co_code
slice_grad_rule(coi_call *call, coi_out *outs)
{
    const coi_slice_grad_attrs *attrs = call->attrs;
    const co_value             *x = call->in[0];

    if (attrs->begin.n != x->ndim || attrs->shape.n != x->ndim)
        return coi_invalid(call, "begin has %d entr%s and shape %d; the rank of x is %d",
                           attrs->begin.n, COI_IES(attrs->begin.n), attrs->shape.n, x->ndim);
    if (x->dtype == CO_STRING)
        return coi_invalid(call, "x has dtype string, which has no zero");
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; ++d) {
        int64_t begin = attrs->begin.at[d], dim = attrs->shape.at[d];

        if (begin < 0 || begin > dim || x->u.tensor.dims[d] > dim - begin)
            return coi_invalid(
                call, "begin[%d] is %lld: %lld elements from there do not lie in [0, %lld)", d,
                (long long)begin, (long long)x->u.tensor.dims[d], (long long)dim);
        outs[0].dims[d] = dim;
    }
    return CO_OK;
}

static co_code
slice_grad_run(coi_call *call)
{
    const coi_slice_grad_attrs *attrs = call->attrs;
    co_value                   *out = call->out[0];
    size_t                      size = coi_dtypes[out->dtype].size;
    coi_strided_iterator        iter;
    int64_t                     first;

    memset(out->u.tensor.data, 0, (size_t)out->u.tensor.num_elements * size);
    if (call->in[0]->u.tensor.num_elements == 0)
        return CO_OK;
    first = box_iterator(call->in[0], out, &attrs->begin, &iter);
    coi_copy_from_dense(call, &iter, COI_OUT(call, 0, char) + (size_t)first * size,
                        call->in[0]->u.tensor.data, size);
    return CO_OK;
}

static co_code
slice_grad_grad(coi_grad *g)
{
    const coi_slice_grad_attrs *attrs = g->attrs;

    g->grads[0] = co_slice(g->ctx, g->upstream[0], attrs->begin.at, g->in[0]->u.tensor.dims,
                           (size_t)g->in[0]->ndim);
    return g->ctx->error.code;
}

const coi_op coi_op_slice_grad = {
    .name = "slice_grad",
    .doc = "Zeros of shape `shape` with x from `begin` on: the gradient of slice.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .internal = true,
    COI_ATTRS(coi_slice_grad_attrs),
    .infer = slice_grad_rule,
    .ref = coi_ref_slice_grad,
    .run = slice_grad_run,
    .grad = slice_grad_grad,
};

static co_code
concat_rule(coi_call *call, coi_out *outs)
{
    const coi_axis_attrs *attrs = call->attrs;
    const co_value       *first = call->in[0];
    int                   axis;
    char                  a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    co_code               code = coi_rule_axis(call, attrs->axis, first->ndim, &axis);

    if (code != CO_OK)
        return code;
    code = coi_rule_same(call, outs);
    for (int i = 1; i < call->num_in; ++i) {
        const co_value *x = call->in[i];
        bool            fits = x->ndim == first->ndim;

        for (int d = 0; fits && d < x->ndim; ++d)
            fits = d == axis || x->u.tensor.dims[d] == first->u.tensor.dims[d];
        if (!fits)
            return coi_invalid(call, "shapes %s of xs[0] and %s of xs[%d] differ outside axis %d",
                               coi_shape_text(first->u.tensor.dims, first->ndim, a),
                               coi_shape_text(x->u.tensor.dims, x->ndim, b), i, axis);
        if (__builtin_add_overflow(outs[0].dims[axis], x->u.tensor.dims[axis], &outs[0].dims[axis]))
            return coi_invalid(call, "axis %d becomes longer than 64 bits can count", axis);
    }
    return code;
}

static co_code
concat_run(coi_call *call)
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

/* Each input gets its part. */
static co_code
concat_grad(coi_grad *g)
{
    const coi_axis_attrs *attrs = g->attrs;
    int                   ndim = g->in[0]->ndim;
    int64_t               axis = attrs->axis < 0 ? attrs->axis + ndim : attrs->axis;
    int64_t               begin[CO_MAX_DIMS] = { 0 };

    for (int i = 0; i < g->num_in; ++i) {
        const int64_t *dims = g->in[i]->u.tensor.dims;

        if (g->needed[i])
            g->grads[i] = co_slice(g->ctx, g->upstream[0], begin, dims, (size_t)ndim);
        begin[axis] += dims[axis];
    }
    return g->ctx->error.code;
}

const coi_op coi_op_concat = {
    .name = "concat",
    .doc = "Tensors joined along an axis.",
    .inputs = { "xs" },
    .num_inputs = 1,
    .variadic = true,
    .num_outputs = 1,
    .same_dtype = true,
    COI_ATTRS(coi_axis_attrs),
    .infer = concat_rule,
    .ref = coi_ref_concat,
    .run = concat_run,
    .grad = concat_grad,
};

co_value *
co_concat(co_context *ctx, co_value *xs, int axis)
{
    coi_axis_attrs attrs = { axis };

    COI_ENTER(ctx, "concat", NULL);
    if (!coi_check_value(ctx, xs, 2, "xs"))
        return NULL;
    if (!coi_is_sequence(xs)) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (xs) of concat is %s; it must be a list or tuple of tensors",
                 coi_a_kind(xs->kind));
        return NULL;
    }
    if (xs->u.items.n > INT32_MAX) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "concat: %zu tensors are too many", xs->u.items.n);
        return NULL;
    }
    return coi_apply(ctx, &coi_op_concat, xs->u.items.items, (int)xs->u.items.n, &attrs);
}

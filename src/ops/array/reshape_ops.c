/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another shape for the same data: reshape and expand_dims copy nothing.
 */
#include "ops/engine/op.h"
#include "ops/kernels/strided_copy.h"

#include <string.h>

#define RESHAPE_ATTRS(X) X(coi_shape_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(coi_shape_attrs, RESHAPE_ATTRS)
#define EXPAND_ATTRS(X) X(coi_axis_attrs, axis, INT, "", NULL)
COI_ATTR_TABLE(coi_axis_attrs, EXPAND_ATTRS)

/* Product of the dimensions of a shape that are above 0; false on overflow. */
static bool
count_positive(const int64_t *dims, int n, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < n; ++i)
        if (dims[i] > 0 && __builtin_mul_overflow(*out, dims[i], out))
            return false;
    return true;
}

/*
 * The dimension that is -1 takes what the others leave. Where the shape has a 0, so that any number
 * would do, the zeros of both shapes are left out of the count: [0,3] as [-1,0] is [3,0].
 */
static int64_t
unknown_dimension(const co_value *x, int64_t known, bool has_zero)
{
    int64_t n = x->u.tensor.num_elements;

    if (has_zero)
        count_positive(x->u.tensor.dims, x->ndim, &n);
    return n / known;
}

static co_code
reshape_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *shape = &((const coi_shape_attrs *)call->attrs)->shape;
    const co_value *x = call->in[0];
    int             unknown = -1;
    bool            has_zero = false;
    int64_t         known, total = 1;
    char            text[COI_SHAPE_TEXT];

    if (shape->n < 0)
        return coi_invalid(call, "shape is none; give the dimensions");
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = shape->n;
    for (int i = 0; i < shape->n; ++i) {
        outs[0].dims[i] = shape->at[i];
        has_zero = has_zero || shape->at[i] == 0;
        if (shape->at[i] >= 0)
            continue;
        if (shape->at[i] < -1 || unknown >= 0)
            return coi_invalid(call,
                               "shape %s: one dimension may be -1, the others must be at least 0",
                               coi_ints_text(shape, text));
        unknown = i;
    }
    if (!count_positive(shape->at, shape->n, &known))
        return coi_invalid(call, "shape %s has more elements than 64 bits can count",
                           coi_ints_text(shape, text));
    if (unknown >= 0)
        outs[0].dims[unknown] = unknown_dimension(x, known, has_zero);
    for (int i = 0; i < shape->n; ++i)
        total *= outs[0].dims[i]; /* known times at most n / known */
    if (total != x->u.tensor.num_elements)
        return coi_invalid(call, "x has %lld element%s, which %s not make the shape %s",
                           (long long)x->u.tensor.num_elements, COI_S(x->u.tensor.num_elements),
                           x->u.tensor.num_elements == 1 ? "does" : "do",
                           coi_ints_text(shape, text));
    return CO_OK;
}

/* Back to the shape of x. */
static co_code
reshape_grad(coi_grad *g)
{
    g->grads[0] = co_reshape(g->ctx, g->upstream[0], g->in[0]->u.tensor.dims,
                             (size_t)g->in[0]->ndim);
    return g->ctx->error.code;
}

const coi_op coi_op_reshape = {
    .name = "reshape",
    .doc =
        "The same elements in another shape, in which one dimension may be -1; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_shape_attrs),
    .infer = reshape_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
co_reshape(co_context *ctx, co_value *x, const int64_t *dims, size_t ndim)
{
    coi_shape_attrs attrs;

    COI_ENTER(ctx, "reshape", NULL);
    if (!coi_ints_from_dims(ctx, "reshape: dims", dims, ndim, &attrs.shape))
        return NULL;
    return coi_apply1(ctx, &coi_op_reshape, x, &attrs);
}

static co_code
expand_dims_rule(coi_call *call, coi_out *outs)
{
    const coi_axis_attrs *attrs = call->attrs;
    const co_value       *x = call->in[0];
    int                   axis = 0;
    co_code               code;

    if (x->ndim == CO_MAX_DIMS)
        return coi_invalid(call, "x has %d dimensions already, which is the most there can be",
                           CO_MAX_DIMS);
    code = coi_rule_axis(call, attrs->axis, x->ndim + 1, &axis); /* of the result */
    if (code != CO_OK)
        return code;
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = x->ndim + 1;
    for (int d = 0; d < outs[0].ndim; ++d)
        outs[0].dims[d] = d == axis ? 1 : x->u.tensor.dims[d < axis ? d : d - 1];
    return CO_OK;
}

const coi_op coi_op_expand_dims = {
    .name = "expand_dims",
    .doc = "A dimension of 1 put in as axis `axis` of the result; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_axis_attrs),
    .infer = expand_dims_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
co_expand_dims(co_context *ctx, co_value *x, int axis)
{
    coi_axis_attrs attrs = { axis };

    return coi_apply1(ctx, &coi_op_expand_dims, x, &attrs);
}

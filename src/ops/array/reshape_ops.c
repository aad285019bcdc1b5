/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another shape for the same data: reshape and expand_dims copy nothing.
 */
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/strided_copy.h"
#include "ops/engine/type_rules.h"

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

/* The same for x, which has no elements. Of one unknown dimension, beside others that are not 0, it
 * is known that it is. */
static bool
positive_elements(const co_value *x, int64_t *out)
{
    int  num_unknown = 0;
    bool has_zero = false;

    for (int d = 0; d < x->ndim; ++d) {
        num_unknown += x->u.tensor.dims[d] < 0;
        has_zero = has_zero || x->u.tensor.dims[d] == 0;
    }
    return x->ndim >= 0 && num_unknown <= (has_zero ? 0 : 1) &&
           count_positive(x->u.tensor.dims, x->ndim, out);
}

/*
 * The dimension that is -1 takes what the others leave. Where the shape has a 0, so that any number
 * would do, the zeros of both shapes are left out of the count: [0,3] as [-1,0] is [3,0].
 */
static int64_t
unknown_dimension(const co_value *x, int64_t known, bool has_zero)
{
    int64_t n = coi_known_elements(x);

    if (has_zero && !positive_elements(x, &n))
        return COI_UNKNOWN;
    return n < 0 ? COI_UNKNOWN : n / known;
}

static co_code
reshape_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *shape = &((const coi_shape_attrs *)call->attrs)->shape;
    const co_value *x = call->in[0];
    int             unknown = -1;
    bool            has_zero = false;
    int64_t         known, total = 1, elements = coi_known_elements(x);
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
    if (elements < 0)
        return CO_OK;
    for (int i = 0; i < shape->n; ++i)
        total *= outs[0].dims[i]; /* known times at most n / known */
    if (total != elements && coi_out_is_known(outs))
        return coi_invalid(call, "x has %lld element%s, which %s not make the shape %s",
                           (long long)elements, COI_S(elements), elements == 1 ? "does" : "do",
                           coi_ints_text(shape, text));
    return CO_OK;
}

/* Back to the shape of x. */
static co_code
reshape_grad(coi_grad *g)
{
    g->grads[0] = coi_reshape_like(g->ctx, g->upstream[0], g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_reshape = {
    .name = "reshape",
    .doc = "The same elements in another shape; one dimension may be -1; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_shape_attrs),
    .infer = reshape_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
co_reshape(co_context *ctx, co_value *x, const int64_t *dims, int ndim)
{
    coi_shape_attrs attrs;

    COI_ENTER(ctx, "reshape", NULL);
    if (!coi_ints_from_dims(ctx, "reshape: dims", dims, (size_t)ndim, &attrs.shape))
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

    if (coi_is_unknown_rank(x))
        return coi_rule_same(call, outs);
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
    .doc = "x with a new dimension of 1 at axis `axis`; the data is shared.",
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

/* One unknown dimension is what the others leave of so many elements; false if they leave none. */
static bool
know_last_dimension(coi_out *out, int64_t elements)
{
    int64_t known = 1;
    int     unknown = -1, num_unknown = 0;

    for (int d = 0; d < out->ndim; ++d) {
        known = out->dims[d] < 0 ? known : coi_dim_product(known, out->dims[d]);
        unknown = out->dims[d] < 0 ? d : unknown;
        num_unknown += out->dims[d] < 0;
    }
    if (num_unknown != 1 || elements < 0 || known <= 0)
        return true;
    out->dims[unknown] = elements / known;
    return elements % known == 0;
}

static co_code
reshape_like_rule(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *like = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    coi_out_like(outs, like);
    outs[0].dtype = (co_dtype)x->dtype;
    if (know_last_dimension(outs, coi_known_elements(x)) &&
        coi_dims_fit(coi_known_elements(x), coi_known_elements(like)))
        return CO_OK;
    return coi_invalid(call, "x has shape %s and like %s; they must have as many elements",
                       coi_shape_text(x->u.tensor.dims, x->ndim, a),
                       coi_shape_text(like->u.tensor.dims, like->ndim, b));
}

const coi_op coi_op_reshape_like = {
    .name = "reshape_like",
    .doc = "The elements of x in the shape of like; the data is shared.",
    .inputs = { "x", "like" },
    .num_inputs = 2,
    .num_outputs = 1,
    .internal = true,
    .infer = reshape_like_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
coi_reshape_like(co_context *ctx, co_value *x, co_value *like)
{
    return coi_apply2(ctx, &coi_op_reshape_like, x, like, NULL);
}

typedef struct merge_attrs {
    int64_t first, count;
} merge_attrs;
#define MERGE_ATTRS(X)                                                                             \
    X(merge_attrs, first, INT, "", NULL)                                                           \
    X(merge_attrs, count, INT, "", NULL)
COI_ATTR_TABLE(merge_attrs, MERGE_ATTRS)

static co_code
merge_dims_rule(coi_call *call, coi_out *outs)
{
    const merge_attrs *attrs = call->attrs;
    const co_value    *x = call->in[0];
    int64_t            merged = 1, first = attrs->first, count = attrs->count;

    coi_out_like(outs, x);
    if (first < 0 || count < 0 || first > CO_MAX_DIMS || count > CO_MAX_DIMS ||
        (x->ndim >= 0 && first + count > x->ndim) || (count == 0 && x->ndim == CO_MAX_DIMS))
        return coi_invalid(call, "first is %lld and count %lld for a tensor of rank %d",
                           (long long)first, (long long)count, x->ndim);
    for (int64_t i = 0; x->ndim >= 0 && i < count; ++i) {
        merged = coi_dim_product(merged, x->u.tensor.dims[first + i]);
        coi_out_drop(outs, (int)first);
    }
    coi_out_insert(outs, (int)first, merged);
    return CO_OK;
}

const coi_op coi_op_merge_dims = {
    .name = "merge_dims",
    .doc = "`count` dimensions from `first` on as one, of 1 if there are none; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .internal = true,
    COI_ATTRS(merge_attrs),
    .infer = merge_dims_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
coi_merge_dims(co_context *ctx, co_value *x, int first, int count)
{
    merge_attrs attrs = { first, count };

    return coi_apply1(ctx, &coi_op_merge_dims, x, &attrs);
}

typedef struct split_attrs {
    int64_t parts;
} split_attrs;
#define SPLIT_ATTRS(X) X(split_attrs, parts, INT, "", NULL)
COI_ATTR_TABLE(split_attrs, SPLIT_ATTRS)

static co_code
split_last_rule(coi_call *call, coi_out *outs)
{
    int64_t         parts = ((const split_attrs *)call->attrs)->parts, last;
    const co_value *x = call->in[0];

    coi_out_like(outs, x);
    if (coi_is_unknown_rank(x))
        return CO_OK;
    last = x->ndim > 0 ? x->u.tensor.dims[x->ndim - 1] : 0;
    if (x->ndim == 0 || x->ndim == CO_MAX_DIMS || parts < 1 || (last >= 0 && last % parts != 0))
        return coi_invalid(call, "%lld parts of the last dimension, %lld, of a tensor of rank %d",
                           (long long)parts, (long long)last, x->ndim);
    outs[0].dims[outs[0].ndim - 1] = parts;
    coi_out_insert(outs, outs[0].ndim, last < 0 ? COI_UNKNOWN : last / parts);
    return CO_OK;
}

const coi_op coi_op_split_last = {
    .name = "split_last",
    .doc = "The last dimension as two, of which the first is `parts`; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .internal = true,
    COI_ATTRS(split_attrs),
    .infer = split_last_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
coi_split_last(co_context *ctx, co_value *x, int64_t parts)
{
    split_attrs attrs = { parts };

    return coi_apply1(ctx, &coi_op_split_last, x, &attrs);
}

/* Inputs: x, the indices of its rows, and what they are rows of. */
static co_code
rows_like_rule(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *indices = call->in[1];

    coi_out_like(outs, call->in[2]);
    outs[0].dtype = (co_dtype)x->dtype;
    if (outs[0].ndim == 0)
        return coi_invalid(call, "like is a scalar; it must have rows");
    if (outs[0].ndim > 0)
        outs[0].dims[0] = coi_known_elements(indices);
    return CO_OK;
}

const coi_op coi_op_rows_like = {
    .name = "rows_like",
    .doc = "x as a row like those of the third input for each of the indices; the data is shared.",
    .inputs = { "x", "indices", "like" },
    .num_inputs = 3,
    .num_outputs = 1,
    .internal = true,
    .not_by_name = true,
    .infer = rows_like_rule,
    .view = true,
    .grad = reshape_grad,
};

co_value *
coi_rows_like(co_context *ctx, co_value *x, co_value *indices, co_value *like)
{
    co_value *const given[3] = { x, indices, like };

    return coi_apply(ctx, &coi_op_rows_like, given, 3, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of tensors: slice, the operator of its gradient, which puts a part back among zeros,
 * concat, and the operators that split consists of where there are few parts.
 */
#include "ops/engine/op.h"
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(slice)
COI_USES_OP(slice_grad)
COI_USES_OP(concat)

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
    int                    ndim = attrs->begin.n;
    int64_t                room[CO_MAX_DIMS];
    const int64_t         *dims = coi_dims_of_rank(x, ndim, room);

    if (dims == NULL || ndim < 0 || attrs->size.n != ndim)
        return coi_invalid(call, "begin has %d entr%s and size %d; the rank of x is %d",
                           attrs->begin.n, COI_IES(attrs->begin.n), attrs->size.n, x->ndim);
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = ndim;
    for (int d = 0; d < ndim; ++d) {
        int64_t begin = attrs->begin.at[d], size = attrs->size.at[d];
        int64_t dim = dims[d] < 0 ? INT64_MAX : dims[d]; /* unknown: it may be large enough */

        if (begin < 0 || begin > dim)
            return coi_invalid(call, "begin[%d] is %lld; it must be in [0, %lld]", d,
                               (long long)begin, (long long)dim);
        if (size < -1 || size > dim - begin)
            return coi_invalid(
                call, "size[%d] is %lld; from begin[%d] = %lld it must be in [0, %lld], or -1", d,
                (long long)size, d, (long long)begin, (long long)(dim - begin));
        outs[0].dims[d] = size != -1 ? size : dims[d] < 0 ? COI_UNKNOWN : dim - begin;
    }
    return CO_OK;
}

static co_code
slice_grad(coi_grad *g)
{
    coi_slice_grad_attrs back = { .begin = ((const coi_slice_attrs *)g->attrs)->begin };
    coi_sized_op put = { &coi_op_slice_grad, &back, COI_SHAPE_AT(coi_slice_grad_attrs, shape), 0 };

    g->grads[0] = coi_apply_like(g->ctx, &put, g->upstream, 1, g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_slice = {
    .name = "slice",
    .doc = "The slice of x of shape `size` from `begin`; a size of -1 reaches to the end.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_slice_attrs),
    .infer = slice_rule,
    .ref = coi_ref_slice,
    .run = coi_slice_run,
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
    int                         ndim = attrs->begin.n;
    int64_t                     room[CO_MAX_DIMS];
    const int64_t              *dims = coi_dims_of_rank(x, ndim, room);

    if (dims == NULL || ndim < 0 || attrs->shape.n != ndim)
        return coi_invalid(call, "begin has %d entr%s and shape %d; the rank of x is %d",
                           attrs->begin.n, COI_IES(attrs->begin.n), attrs->shape.n, x->ndim);
    if (x->dtype == CO_STRING)
        return coi_invalid(call, "x has dtype string, which has no zero");
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = ndim;
    for (int d = 0; d < ndim; ++d) {
        int64_t begin = attrs->begin.at[d], dim = attrs->shape.at[d];

        if (begin < 0 || begin > dim || dims[d] > dim - begin)
            return coi_invalid(
                call, "begin[%d] is %lld: %lld elements from there do not lie in [0, %lld)", d,
                (long long)begin, (long long)dims[d], (long long)dim);
        outs[0].dims[d] = dim;
    }
    return CO_OK;
}

static co_code
slice_grad_grad(coi_grad *g)
{
    coi_slice_attrs back = { .begin = ((const coi_slice_grad_attrs *)g->attrs)->begin };
    coi_sized_op    take = { &coi_op_slice, &back, COI_SHAPE_AT(coi_slice_attrs, size), 0 };

    g->grads[0] = coi_apply_like(g->ctx, &take, g->upstream, 1, g->in[0]);
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
    .run = coi_slice_grad_run,
    .grad = slice_grad_grad,
};

static co_code
concat_rule(coi_call *call, coi_out *outs)
{
    const coi_axis_attrs *attrs = call->attrs;
    int                   axis, known = 0; /* the first input whose rank is known */
    int64_t               length = 0;
    char                  a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    co_code               code;

    while (known < call->num_in - 1 && coi_is_unknown_rank(call->in[known]))
        ++known;
    coi_out_like(outs, call->in[known]);
    code = coi_rule_axis(call, attrs->axis, outs[0].ndim, &axis);
    if (code != CO_OK || outs[0].ndim < 0)
        return code;
    for (int i = 0; i < call->num_in; ++i) {
        const co_value *x = call->in[i];
        bool            fits = x->ndim == outs[0].ndim;
        int64_t         dim = x->ndim < 0 ? COI_UNKNOWN : fits ? x->u.tensor.dims[axis] : 0;

        for (int d = 0; fits && d < x->ndim; ++d)
            fits = d == axis || coi_merge_dim(&outs[0].dims[d], x->u.tensor.dims[d]);
        if (!fits && x->ndim >= 0)
            return coi_invalid(call, "shapes %s of xs[%d] and %s of xs[%d] differ outside axis %d",
                               coi_shape_text(call->in[known]->u.tensor.dims, call->in[known]->ndim,
                                              a),
                               known, coi_shape_text(x->u.tensor.dims, x->ndim, b), i, axis);
        if (length < 0 || dim < 0)
            length = COI_UNKNOWN;
        else if (__builtin_add_overflow(length, dim, &length))
            return coi_invalid(call, "axis %d becomes longer than 64 bits can count", axis);
    }
    outs[0].dims[axis] = length;
    return CO_OK;
}

typedef struct part_attrs {
    int64_t axis, which;
} part_attrs;
#define PART_ATTRS(X)                                                                              \
    X(part_attrs, axis, INT, "", NULL)                                                             \
    X(part_attrs, which, INT, "", NULL)
COI_ATTR_TABLE(part_attrs, PART_ATTRS)

/* The part of input `which`, behind those before it; its rank is known. */
static co_value *
part_of_concat(co_context *ctx, co_value *dy, co_value *const *xs, const part_attrs *attrs)
{
    const co_value *x = xs[attrs->which];
    int64_t         begin[CO_MAX_DIMS] = { 0 };
    int             axis = (int)(attrs->axis < 0 ? attrs->axis + x->ndim : attrs->axis);

    for (int64_t i = 0; i < attrs->which; ++i)
        begin[axis] += xs[i]->u.tensor.dims[axis];
    return co_slice(ctx, dy, begin, x->u.tensor.dims, (size_t)x->ndim);
}

/* What the whole and the others say of one of the parts of a concat. */
static void
know_part(const coi_call *joined, const part_attrs *attrs, const coi_out *whole, coi_out *part)
{
    int     axis = (int)(attrs->axis < 0 ? attrs->axis + whole->ndim : attrs->axis);
    int64_t length;

    if (whole->ndim < 0)
        return;
    length = whole->dims[axis];
    for (int i = 0; i < joined->num_in; ++i) {
        const co_value *x = joined->in[i];
        int64_t         dim = coi_is_unknown_rank(x) ? COI_UNKNOWN : x->u.tensor.dims[axis];

        if (i != attrs->which)
            length = dim < 0 || length < dim ? COI_UNKNOWN : length - dim;
    }
    if (part->ndim < 0) {
        *part = *whole;
        part->dims[axis] = length;
    }
    for (int d = 0; d < part->ndim; ++d)
        coi_merge_dim(&part->dims[d], d == axis ? length : whole->dims[d]);
}

/* Inputs: what flows into the result of concat, then what it joined. */
static co_code
concat_grad_rule(coi_call *call, coi_out *outs)
{
    const part_attrs *attrs = call->attrs;
    coi_call          joined = *call;
    coi_out           whole;
    char              a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    co_code           code;

    if (attrs->which < 0 || attrs->which >= call->num_in - 1)
        return coi_invalid(call, "which is %lld; it must be in [0, %d)", (long long)attrs->which,
                           call->num_in - 1);
    joined.in = call->in + 1;
    joined.num_in = call->num_in - 1;
    code = concat_rule(&joined, &whole);
    if (code == CO_OK && !coi_merge_shape(&whole, call->in[0]->u.tensor.dims, call->in[0]->ndim))
        return coi_invalid(call, "the first input has shape %s; it must be %s",
                           coi_shape_text(call->in[0]->u.tensor.dims, call->in[0]->ndim, a),
                           coi_shape_text(whole.dims, whole.ndim, b));
    coi_out_like(outs, joined.in[attrs->which]);
    if (code == CO_OK)
        know_part(&joined, attrs, &whole, outs);
    return code;
}

static co_value *
concat_grad_compose(coi_call *call)
{
    return part_of_concat(call->ctx, call->in[0], call->in + 1, call->attrs);
}

const coi_op coi_op_concat_grad = {
    COI_COMPOSITE("concat_grad",
                  "The part of the first input that belongs to input `which` of those behind it.",
                  "xs"),
    .variadic = true,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(part_attrs),
    .infer = concat_grad_rule,
    .composite = concat_grad_compose,
    .num_reached = 1,
};

static co_value *
unknown_part(coi_grad *g, const part_attrs *attrs)
{
    size_t     n = (size_t)g->num_in + 1;
    co_value **all = coi_parts(g->ctx, "concat_grad", n), *part;

    if (all == NULL)
        return NULL;
    all[0] = g->upstream[0];
    memcpy(all + 1, g->in, (size_t)g->num_in * sizeof(*g->in));
    part = coi_apply_composite(g->ctx, &coi_op_concat_grad, all, (int)n, attrs);
    coi_free_parts(g->ctx, all, n);
    return part;
}

/* Each input gets its part. */
static co_code
concat_grad(coi_grad *g)
{
    part_attrs attrs = { ((const coi_axis_attrs *)g->attrs)->axis, 0 };
    bool       knows = true;

    for (; attrs.which < g->num_in; ++attrs.which) {
        knows = knows && coi_is_known_shape(g->in[attrs.which]);
        if (g->needed[attrs.which])
            g->grads[attrs.which] = knows ? part_of_concat(g->ctx, g->upstream[0], g->in, &attrs)
                                          : unknown_part(g, &attrs);
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
    .run = coi_concat_run,
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

/* --- a few parts at once --- */

#define SPLIT_ATTRS(X)                                                                             \
    X(coi_split_attrs, axis, INT, "", NULL)                                                        \
    X(coi_split_attrs, sizes, INTS, "", NULL)
COI_ATTR_TABLE(coi_split_attrs, SPLIT_ATTRS)

static co_code
split_rule(coi_call *call, coi_out *outs)
{
    const coi_split_attrs *attrs = call->attrs;
    const co_value        *x = call->in[0];
    int64_t                dim = COI_UNKNOWN, total = 0;
    int                    axis;
    co_code                code = coi_rule_axis(call, attrs->axis, x->ndim, &axis);

    if (code != CO_OK)
        return code;
    if (axis >= 0 && x->ndim >= 0)
        dim = x->u.tensor.dims[axis];
    if (attrs->sizes.n != call->num_out)
        return coi_invalid(call, "sizes has %d entr%s; there are %d parts", attrs->sizes.n,
                           COI_IES(attrs->sizes.n), call->num_out);
    for (int i = 0; i < call->num_out; ++i) {
        int64_t size = attrs->sizes.at[i];

        if (size < 0 || __builtin_add_overflow(total, size, &total))
            return coi_invalid(call,
                               "sizes[%d] is %lld; it must be from 0 to the length of axis %d", i,
                               (long long)size, axis);
        coi_out_like(&outs[i], x);
        if (outs[i].ndim > 0)
            outs[i].dims[axis] = size;
    }
    if (coi_dims_fit(dim, total))
        return CO_OK;
    return coi_invalid(call, "sizes add up to %lld; axis %d has %lld element%s", (long long)total,
                       axis, (long long)dim, COI_S(dim));
}

/* What flows into the parts, joined; zeros for parts into which nothing flows. */
static co_code
split_grad(coi_grad *g)
{
    const coi_split_attrs *attrs = g->attrs;
    co_value              *parts[COI_MAX_OUTPUTS];

    for (int i = 0; i < g->num_out; ++i) {
        parts[i] = g->upstream[i] != NULL ? g->upstream[i] : co_zeros_like(g->ctx, g->out[i]);
        if (parts[i] == NULL)
            return g->ctx->error.code;
    }
    g->grads[0] = coi_apply(g->ctx, &coi_op_concat, parts, g->num_out,
                            &(coi_axis_attrs){ attrs->axis });
    return g->ctx->error.code;
}

#define SPLIT(n_)                                                                                  \
    .name = "split_" #n_, .doc = "The " #n_ " parts of x along an axis, of given sizes.",          \
    .inputs = { "x" }, .num_inputs = 1, .num_outputs = (n_), .internal = true,                     \
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL), COI_ATTRS(coi_split_attrs),                    \
    .infer = split_rule, .ref = coi_ref_split, .run = coi_split_run, .grad = split_grad

const coi_op coi_op_split_2 = { SPLIT(2) };
const coi_op coi_op_split_3 = { SPLIT(3) };
const coi_op coi_op_split_4 = { SPLIT(4) };
const coi_op coi_op_split_5 = { SPLIT(5) };

co_code
coi_split_few(co_context *ctx, co_value *x, const coi_split_attrs *attrs, co_value **parts)
{
    static const coi_op *const ops[COI_MAX_OUTPUTS + 1] = {
        [2] = &coi_op_split_2, [3] = &coi_op_split_3, [4] = &coi_op_split_4, [5] = &coi_op_split_5
    };

    return coi_apply_many(ctx, ops[attrs->sizes.n], &x, 1, attrs, parts);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements at a regular distance: strided_slice and reverse, which are one copy with a step per
 * dimension (`strided`), and its opposite, which puts the elements back among zeros.
 */
#include "ops/kernels/strided_slice.h"

#include "ops/engine/composite.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"
#include "ops/engine/shared_ops.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(strided)
COI_USES_OP(strided_grad)
COI_USES_OP(reverse)

#define STRIDED_ATTRS(X)                                                                           \
    X(coi_strided_attrs, begin, INTS, "", NULL)                                                    \
    X(coi_strided_attrs, strides, INTS, "", NULL)                                                  \
    X(coi_strided_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(coi_strided_attrs, STRIDED_ATTRS)

/* Every element of the part lies in the whole. */
static co_code
check_part(coi_call *call, const int64_t *part, const int64_t *whole, int ndim)
{
    const coi_strided_attrs *attrs = call->attrs;

    if (attrs->begin.n != ndim || attrs->strides.n != ndim || attrs->shape.n != ndim)
        return coi_invalid(call,
                           "begin has %d entr%s, strides %d and shape %d; the rank of x is %d",
                           attrs->begin.n, COI_IES(attrs->begin.n), attrs->strides.n,
                           attrs->shape.n, ndim);
    for (int d = 0; d < ndim; ++d) {
        int64_t first = attrs->begin.at[d], last, way;

        if (attrs->shape.at[d] < 0)
            return coi_invalid(call, "shape[%d] is %lld; it must be at least 0", d,
                               (long long)attrs->shape.at[d]);
        if (part[d] <= 0 || whole[d] < 0) /* nothing, or one of them is unknown */
            continue;
        if (__builtin_mul_overflow(part[d] - 1, attrs->strides.at[d], &way) ||
            __builtin_add_overflow(first, way, &last) || first < 0 || first >= whole[d] ||
            last < 0 || last >= whole[d])
            return coi_invalid(
                call,
                "%lld elements from begin[%d] = %lld in steps of %lld do not lie in [0, %lld)",
                (long long)part[d], d, (long long)first, (long long)attrs->strides.at[d],
                (long long)whole[d]);
    }
    return CO_OK;
}

static void
fill_out(const coi_call *call, coi_out *out)
{
    const coi_strided_attrs *attrs = call->attrs;

    out->dtype = (co_dtype)call->in[0]->dtype;
    out->ndim = attrs->shape.n;
    memcpy(out->dims, attrs->shape.at, (size_t)attrs->shape.n * sizeof(int64_t));
}

/* The dimensions of x, which has as many as `begin` has entries; anything else is refused later. */
static const int64_t *
dims_of_x(const coi_call *call, int *ndim, int64_t room[CO_MAX_DIMS])
{
    const co_value *x = call->in[0];

    *ndim = coi_is_unknown_rank(x) ? ((const coi_strided_attrs *)call->attrs)->begin.n : x->ndim;
    return coi_dims_of_rank(x, *ndim, room);
}

static co_code
strided_rule(coi_call *call, coi_out *outs)
{
    int            ndim;
    int64_t        room[CO_MAX_DIMS];
    const int64_t *dims = dims_of_x(call, &ndim, room);
    co_code code = check_part(call, ((const coi_strided_attrs *)call->attrs)->shape.at, dims, ndim);

    if (code == CO_OK)
        fill_out(call, outs);
    return code;
}

static co_code
strided_grad_rule(coi_call *call, coi_out *outs)
{
    int            ndim;
    int64_t        room[CO_MAX_DIMS];
    const int64_t *dims = dims_of_x(call, &ndim, room);
    co_code code = check_part(call, dims, ((const coi_strided_attrs *)call->attrs)->shape.at, ndim);

    if (code == CO_OK && call->in[0]->dtype == CO_STRING)
        return coi_invalid(call, "x has dtype string, which has no zero");
    if (code == CO_OK)
        fill_out(call, outs);
    return code;
}

/* Each of the two is the gradient of the other. */
static co_code
apply_other(coi_grad *g, const coi_op *other)
{
    coi_sized_op back = { other, g->attrs, COI_SHAPE_AT(coi_strided_attrs, shape), 0 };

    g->grads[0] = coi_apply_like(g->ctx, &back, g->upstream, 1, g->in[0]);
    return g->ctx->error.code;
}

static co_code
strided_gradient(coi_grad *g)
{
    return apply_other(g, &coi_op_strided_grad);
}

static co_code
strided_grad_gradient(coi_grad *g)
{
    return apply_other(g, &coi_op_strided);
}

const coi_op coi_op_strided = {
    .name = "strided",
    .doc = "Elements of x from `begin` on in steps of `strides`, `shape` of them.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .internal = true,
    COI_ATTRS(coi_strided_attrs),
    .infer = strided_rule,
    .ref = coi_ref_strided,
    .run = coi_strided_run,
    .grad = strided_gradient,
};

const coi_op coi_op_strided_grad = {
    .name = "strided_grad",
    .doc = "Zeros of shape `shape` with x from `begin` on in steps of `strides`.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .internal = true,
    COI_ATTRS(coi_strided_attrs),
    .infer = strided_grad_rule,
    .ref = coi_ref_strided_grad,
    .run = coi_strided_grad_run,
    .grad = strided_grad_gradient,
};

co_value *
coi_strided(co_context *ctx, co_value *x, const coi_strided_attrs *attrs)
{
    return coi_apply1(ctx, &coi_op_strided, x, attrs);
}

typedef struct slice_attrs {
    coi_ints begin, end, strides;
    int64_t  begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask;
} slice_attrs;
#define SLICE_ATTRS(X)                                                                             \
    X(slice_attrs, begin, INTS, "", NULL)                                                          \
    X(slice_attrs, end, INTS, "", NULL)                                                            \
    X(slice_attrs, strides, INTS, "=null", NULL)                                                   \
    X(slice_attrs, begin_mask, INT, "=0", NULL)                                                    \
    X(slice_attrs, end_mask, INT, "=0", NULL)                                                      \
    X(slice_attrs, ellipsis_mask, INT, "=0", NULL)                                                 \
    X(slice_attrs, new_axis_mask, INT, "=0", NULL)                                                 \
    X(slice_attrs, shrink_axis_mask, INT, "=0", NULL)
COI_ATTR_TABLE(slice_attrs, SLICE_ATTRS)

/* The part that the entries ask for, and the shape of the result: with dimensions of 1 put in, and
 * others taken out. */
typedef struct slice_plan {
    coi_strided_attrs part;
    int               ndim;
    int64_t           dims[CO_MAX_DIMS + CO_MAX_DIMS];
} slice_plan;

static bool
has_bit(int64_t mask, int i)
{
    return (mask >> i & 1) != 0;
}

static void
take_whole(slice_plan *plan, const co_value *x, int d)
{
    plan->part.begin.at[d] = 0;
    plan->part.strides.at[d] = 1;
    plan->part.shape.at[d] = plan->dims[plan->ndim++] = x->u.tensor.dims[d];
}

/* An end of a range, cut to what an iterator in this direction can reach. */
static int64_t
clamp(int64_t at, int64_t dim, int64_t stride)
{
    int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? dim : dim - 1;

    at = at < 0 ? at + dim : at;
    return at < low ? low : at > high ? high : at;
}

/* How many elements entry i takes of a dimension that is unknown: none where both ends count from
 * the same side and the second does not lie behind the first. */
static int64_t
unknown_count(const slice_attrs *attrs, int i)
{
    int64_t stride = attrs->strides.n < 0 ? 1 : attrs->strides.at[i];
    int64_t first = stride > 0 ? 0 : -1; /* where a mask begins */
    int64_t begin = has_bit(attrs->begin_mask, i) ? first : attrs->begin.at[i];
    int64_t end = attrs->end.at[i];
    bool    is_none = !has_bit(attrs->end_mask, i) && (begin < 0) == (end < 0) &&
                   (stride > 0 ? end <= begin : end >= begin);

    return is_none ? 0 : COI_UNKNOWN;
}

/* Entry i for dimension d. */
static co_code
take_entry(coi_call *call, slice_plan *plan, int i, int d)
{
    const slice_attrs *attrs = call->attrs;
    int64_t            dim = call->in[0]->u.tensor.dims[d], begin = attrs->begin.at[i];
    int64_t            stride = attrs->strides.n < 0 ? 1 : attrs->strides.at[i], end, count;

    if (stride == 0)
        return coi_invalid(call, "strides[%d] is 0; it must not be", i);
    if (has_bit(attrs->shrink_axis_mask, i)) {
        int64_t at = begin < 0 ? begin + dim : begin;

        if (stride < 0)
            return coi_invalid(call, "strides[%d] is %lld; a dimension that is taken out has 1", i,
                               (long long)stride);
        if (dim >= 0 && (at < 0 || at >= dim))
            return coi_invalid(call, "begin[%d] is %lld; it must be in [%lld, %lld)", i,
                               (long long)begin, (long long)-dim, (long long)dim);
        plan->part.begin.at[d] = at;
        plan->part.strides.at[d] = plan->part.shape.at[d] = 1;
        return CO_OK;
    }
    if (dim < 0) {
        plan->dims[plan->ndim++] = unknown_count(attrs, i);
        return CO_OK;
    }
    begin = has_bit(attrs->begin_mask, i) ? (stride > 0 ? 0 : dim - 1) : clamp(begin, dim, stride);
    end = has_bit(attrs->end_mask, i) ? (stride > 0 ? dim : -1)
                                      : clamp(attrs->end.at[i], dim, stride);
    count = stride > 0 ? end - begin : begin - end;
    stride = stride > 0 && stride > dim ? dim + 1 : stride < -dim ? -dim - 1 : stride;
    count = count > 0 ? (count - 1) / (stride > 0 ? stride : -stride) + 1 : 0;
    plan->part.begin.at[d] = begin;
    plan->part.strides.at[d] = stride;
    plan->part.shape.at[d] = plan->dims[plan->ndim++] = count;
    return CO_OK;
}

/* How many dimensions of x the ellipsis stands for; one that is not written stands behind the
 * entries. */
static co_code
count_ellipsis(coi_call *call, int *out)
{
    const slice_attrs *attrs = call->attrs;
    int                used = 0, n = attrs->begin.n;
    int                ellipses = __builtin_popcountll((unsigned long long)attrs->ellipsis_mask);

    if (attrs->end.n != n || (attrs->strides.n >= 0 && attrs->strides.n != n))
        return coi_invalid(call, "begin has %d entr%s, end %d and strides %d; they must be as many",
                           n, COI_IES(n), attrs->end.n, attrs->strides.n);
    for (int i = 0; i < n; ++i) {
        bool is_ellipsis = has_bit(attrs->ellipsis_mask, i);

        used += !is_ellipsis && !has_bit(attrs->new_axis_mask, i);
    }
    if (ellipses > 1)
        return coi_invalid(call, "%d ellipses; there may be one", ellipses);
    if (used > call->in[0]->ndim)
        return coi_invalid(call, "%d entries take dimensions; x has %d", used, call->in[0]->ndim);
    *out = call->in[0]->ndim - used;
    return CO_OK;
}

static co_code
make_slice_plan(coi_call *call, slice_plan *plan)
{
    const slice_attrs *attrs = call->attrs;
    const co_value    *x = call->in[0];
    int                left = 0, d = 0;
    co_code            code;

    memset(plan, 0, sizeof(*plan));
    plan->part.begin.n = plan->part.strides.n = plan->part.shape.n = x->ndim;
    code = count_ellipsis(call, &left);
    for (int i = 0; code == CO_OK && i < attrs->begin.n; ++i) {
        if (has_bit(attrs->ellipsis_mask, i))
            for (; left > 0; --left)
                take_whole(plan, x, d++);
        else if (has_bit(attrs->new_axis_mask, i))
            plan->dims[plan->ndim++] = 1;
        else
            code = take_entry(call, plan, i, d++);
    }
    while (code == CO_OK && d < x->ndim)
        take_whole(plan, x, d++);
    if (code == CO_OK && plan->ndim > CO_MAX_DIMS)
        return coi_invalid(call, "the result would have %d dimensions; at most %d are allowed",
                           plan->ndim, CO_MAX_DIMS);
    return code;
}

/* With an unknown rank the entries may leave any number of dimensions. */
static co_code
strided_slice_rule(coi_call *call, coi_out *outs)
{
    slice_plan plan;
    co_code    code;

    coi_out_unknown(outs, (co_dtype)call->in[0]->dtype);
    if (coi_is_unknown_rank(call->in[0]))
        return CO_OK;
    code = make_slice_plan(call, &plan);
    if (code == CO_OK) {
        outs[0].ndim = plan.ndim;
        memcpy(outs[0].dims, plan.dims, (size_t)plan.ndim * sizeof(int64_t));
    }
    return code;
}

static co_value *
strided_slice_composite(coi_call *call)
{
    slice_plan plan;

    if (make_slice_plan(call, &plan) != CO_OK)
        return NULL;
    return co_reshape(call->ctx, coi_strided(call->ctx, call->in[0], &plan.part), plan.dims,
                      plan.ndim);
}

/* Back into the part that was taken. */
static co_code
strided_slice_grad(coi_grad *g)
{
    co_value  *in[1] = { g->in[0] }, *dy;
    coi_call   call = { .ctx = g->ctx, .op = g->op, .in = in, .num_in = 1, .attrs = g->attrs };
    coi_grad   part = *g;
    slice_plan plan;

    if (make_slice_plan(&call, &plan) != CO_OK)
        return g->ctx->error.code;
    dy = co_reshape(g->ctx, g->upstream[0], plan.part.shape.at, plan.part.shape.n);
    part.upstream = &dy;
    part.attrs = &plan.part;
    return strided_gradient(&part);
}

/* The plan has no unknowns. */
static bool
strided_slice_is_known(const coi_grad *g)
{
    return coi_is_known_shape(g->in[0]);
}

const coi_op coi_op_strided_slice = {
    COI_COMPOSITE("strided_slice",
                  "x[begin:end:strides] as in Python; bit i of a mask applies to entry i.", "x"),
    COI_ATTRS(slice_attrs),
    .infer = strided_slice_rule,
    .grad = strided_slice_grad,
    .grad_is_known = strided_slice_is_known,
    .composite = strided_slice_composite,
    .composes_checked = true,
};

co_value *
co_strided_slice(co_context *ctx, co_value *x, const int64_t *begin, const int64_t *end,
                 const int64_t *strides, size_t n, const co_slice_masks *masks)
{
    slice_attrs    attrs = { .strides = { .n = -1 } };
    co_slice_masks m = CO_SLICE_MASKS_INIT;

    COI_ENTER(ctx, "strided_slice", NULL);
    if (!coi_take_options(ctx, &m, sizeof(m), masks, 7) ||
        !coi_ints_from_dims(ctx, "strided_slice: begin", begin, n, &attrs.begin) ||
        !coi_ints_from_dims(ctx, "strided_slice: end", end, n, &attrs.end) ||
        (strides != NULL &&
         !coi_ints_from_dims(ctx, "strided_slice: strides", strides, n, &attrs.strides)))
        return NULL;
    attrs.begin_mask = m.begin;
    attrs.end_mask = m.end;
    attrs.ellipsis_mask = m.ellipsis;
    attrs.new_axis_mask = m.new_axis;
    attrs.shrink_axis_mask = m.shrink_axis;
    return coi_apply_composite(ctx, &coi_op_strided_slice, &x, 1, &attrs);
}

typedef struct reverse_attrs {
    coi_ints axis;
} reverse_attrs;
#define REVERSE_ATTRS(X) X(reverse_attrs, axis, INTS, "", NULL)
COI_ATTR_TABLE(reverse_attrs, REVERSE_ATTRS)

static co_code
reverse_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *axes = &((const reverse_attrs *)call->attrs)->axis;
    bool            seen[CO_MAX_DIMS] = { false };
    int             axis;
    co_code         code;

    coi_out_like(outs, call->in[0]);
    for (int i = 0; i < axes->n; ++i) {
        code = coi_rule_axis(call, axes->at[i], call->in[0]->ndim, &axis);
        if (code != CO_OK || axis < 0)
            return code;
        if (seen[axis])
            return coi_invalid(call, "axis %d is given twice; name every axis once", axis);
        seen[axis] = true;
    }
    return CO_OK;
}

static co_value *
reverse_composite(coi_call *call)
{
    const reverse_attrs *attrs = call->attrs;
    const co_value      *x = call->in[0];
    coi_strided_attrs    all;

    memset(&all, 0, sizeof(all));
    all.begin.n = all.strides.n = all.shape.n = x->ndim;
    memcpy(all.shape.at, x->u.tensor.dims, (size_t)x->ndim * sizeof(int64_t));
    for (int d = 0; d < x->ndim; ++d)
        all.strides.at[d] = 1;
    for (int i = 0; i < attrs->axis.n; ++i) {
        int axis = coi_axis_of(attrs->axis.at[i], x->ndim);

        all.strides.at[axis] = -1;
        all.begin.at[axis] = x->u.tensor.dims[axis] - 1;
    }
    return coi_strided(call->ctx, call->in[0], &all);
}

static co_code
reverse_grad(coi_grad *g)
{
    g->grads[0] = coi_apply_composite(g->ctx, &coi_op_reverse, g->upstream, 1, g->attrs);
    return g->ctx->error.code;
}

const coi_op coi_op_reverse = {
    COI_COMPOSITE("reverse", "The elements along axes in reverse order.", "x"),
    COI_ATTRS(reverse_attrs),
    .infer = reverse_rule,
    .grad = reverse_grad,
    .composite = reverse_composite,
};

co_value *
co_reverse(co_context *ctx, co_value *x, const int *axes, size_t num_axes)
{
    reverse_attrs attrs;

    COI_ENTER(ctx, "reverse", NULL);
    if (!coi_ints_from_axes(ctx, "reverse: axes", axes, num_axes, &attrs.axis))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_reverse, &x, 1, &attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that put tensors together, take them apart and repeat or copy their parts, made of
 * reshape, slice, concat, gather and broadcast_to. Along an axis they work on [outer, n, inner], so
 * that any rank will do.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/shared_ops.h"
#include "ops/kernels/strided_copy.h"
#include "ops/engine/type_rules.h"

#include <string.h>

typedef struct axes_attrs {
    coi_ints axis;
} axes_attrs;
#define SQUEEZE_ATTRS(X) X(axes_attrs, axis, INTS, "=null", NULL)
COI_ATTR_TABLE(axes_attrs, SQUEEZE_ATTRS)

/* No axes are all that have 1 element, which an unknown dimension may have. */
static co_code
squeeze_rule(coi_call *call, coi_out *outs)
{
    const axes_attrs *attrs = call->attrs;
    const co_value   *x = call->in[0];
    bool              out[CO_MAX_DIMS] = { false }, is_all = attrs->axis.n <= 0;
    int               axis;
    co_code           code;

    coi_out_unknown(outs, (co_dtype)x->dtype);
    for (int i = 0; i < attrs->axis.n; ++i) {
        code = coi_rule_axis(call, attrs->axis.at[i], x->ndim, &axis);
        if (code != CO_OK || axis < 0)
            return code;
        if (!coi_dims_fit(x->u.tensor.dims[axis], 1))
            return coi_invalid(call, "axis %d has %lld elements; one that is taken out must have 1",
                               axis, (long long)x->u.tensor.dims[axis]);
        out[axis] = true;
    }
    if (coi_is_unknown_rank(x) || (is_all && !coi_is_known_shape(x)))
        return CO_OK;
    outs[0].ndim = 0;
    for (int d = 0; d < x->ndim; ++d)
        if (!(out[d] || (is_all && x->u.tensor.dims[d] == 1)))
            outs[0].dims[outs[0].ndim++] = x->u.tensor.dims[d];
    return CO_OK;
}

static co_value *
squeeze_composite(coi_call *call)
{
    coi_out out;

    return squeeze_rule(call, &out) == CO_OK
               ? co_reshape(call->ctx, call->in[0], out.dims, out.ndim)
               : NULL;
}

/* Back to the shape of x. */
static co_code
squeeze_grad(coi_grad *g)
{
    g->grads[0] = coi_reshape_like(g->ctx, g->upstream[0], g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_squeeze = {
    COI_COMPOSITE("squeeze",
                  "x without dimensions of 1: those of `axis`, or all; the data is shared.", "x"),
    COI_ATTRS(axes_attrs),
    .infer = squeeze_rule,
    .grad = squeeze_grad,
    .composite = squeeze_composite,
    .composes_checked = true,
};

co_value *
co_squeeze(co_context *ctx, co_value *x, const int *axes, size_t num_axes)
{
    axes_attrs attrs;

    COI_ENTER(ctx, "squeeze", NULL);
    if (!coi_ints_from_axes(ctx, "squeeze: axes", axes, num_axes, &attrs.axis))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_squeeze, &x, 1, &attrs);
}

/* All inputs have one shape, of which each may know something. */
static co_code
one_shape(coi_call *call, coi_out *outs)
{
    const co_value *first = call->in[0];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    coi_out_like(outs, first);
    for (int i = 1; i < call->num_in; ++i)
        if (!coi_same_shape(first, call->in[i]) &&
            !coi_merge_shape(outs, call->in[i]->u.tensor.dims, call->in[i]->ndim))
            return coi_invalid(call, "xs[0] has shape %s and xs[%d] %s; they must be equal",
                               coi_shape_text(first->u.tensor.dims, first->ndim, a), i,
                               coi_shape_text(call->in[i]->u.tensor.dims, call->in[i]->ndim, b));
    return CO_OK;
}

static co_value *
add_n_composite(coi_call *call)
{
    co_value *sum = co_identity(call->ctx, call->in[0]);

    for (int i = 1; i < call->num_in; ++i)
        sum = co_add(call->ctx, sum, call->in[i]);
    return sum;
}

const coi_op coi_op_add_n = {
    COI_COMPOSITE("add_n", "The sum of tensors of one shape, in order.", "xs"),
    .variadic = true,
    .dtypes = COI_NUMBERS,
    .same_dtype = true,
    .infer = one_shape,
    .composite = add_n_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_add_n(co_context *ctx, co_value *xs)
{
    return coi_apply_composite_list(ctx, &coi_op_add_n, xs, NULL);
}

#define STACK_ATTRS(X) X(coi_axis_attrs, axis, INT, "=0", NULL)
COI_ATTR_TABLE(coi_axis_attrs, STACK_ATTRS)

static co_code
stack_rule(coi_call *call, coi_out *outs)
{
    int     axis;
    co_code code = one_shape(call, outs);

    if (code != CO_OK || outs[0].ndim < 0)
        return code;
    if (outs[0].ndim == CO_MAX_DIMS)
        return coi_invalid(call, "xs have %d dimensions already, which is the most there can be",
                           CO_MAX_DIMS);
    code = coi_rule_axis(call, ((const coi_axis_attrs *)call->attrs)->axis, outs[0].ndim + 1,
                         &axis);
    if (code == CO_OK)
        coi_out_insert(outs, axis, call->num_in);
    return code;
}

static co_value *
stack_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    int         axis = (int)((const coi_axis_attrs *)call->attrs)->axis; /* of the result */
    size_t      n = (size_t)call->num_in;
    co_value  **parts = coi_parts(ctx, call->op->name, n);

    if (parts == NULL)
        return NULL;
    for (size_t i = 0; i < n; ++i)
        parts[i] = co_expand_dims(ctx, call->in[i], axis);
    return co_concat(ctx, coi_tuple_of_parts(ctx, parts, n), axis);
}

const coi_op coi_op_stack = {
    COI_COMPOSITE("stack", "Tensors of one shape joined along a new axis.", "xs"),
    .variadic = true,
    .same_dtype = true,
    COI_ATTRS(coi_axis_attrs),
    .infer = stack_rule,
    .composite = stack_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_stack(co_context *ctx, co_value *xs, int axis)
{
    coi_axis_attrs attrs = { axis };

    return coi_apply_composite_list(ctx, &coi_op_stack, xs, &attrs);
}

/* n elements of x from `first` on along an axis. */
static co_value *
part_of(co_context *ctx, co_value *x, int axis, int64_t first, int64_t n)
{
    int64_t begin[CO_MAX_DIMS] = { 0 }, size[CO_MAX_DIMS];

    for (int d = 0; d < x->ndim; ++d)
        size[d] = -1;
    begin[axis] = first;
    size[axis] = n;
    return co_slice(ctx, x, begin, size, (size_t)x->ndim);
}

typedef struct unstack_attrs {
    int64_t axis, num; /* num -1: as many as there are */
} unstack_attrs;
#define UNSTACK_ATTRS(X)                                                                           \
    X(unstack_attrs, axis, INT, "=0", NULL)                                                        \
    X(unstack_attrs, num, INT, "=-1", NULL)
COI_ATTR_TABLE(unstack_attrs, UNSTACK_ATTRS)

static co_code
unstack_rule(coi_call *call, coi_out *outs)
{
    const unstack_attrs *attrs = call->attrs;
    const co_value      *x = call->in[0];
    int64_t              n;
    int                  axis;
    co_code              code = coi_rule_axis(call, attrs->axis, x->ndim, &axis);

    (void)outs;
    if (code != CO_OK)
        return code;
    n = axis < 0 ? COI_UNKNOWN : x->u.tensor.dims[axis];
    if (attrs->num != -1 && !coi_merge_dim(&n, attrs->num))
        return coi_invalid(call, "num is %lld; axis %d has %lld element%s", (long long)attrs->num,
                           axis, (long long)n, COI_S(n));
    if (n > INT32_MAX)
        return coi_invalid(call, "%lld results are too many", (long long)n);
    call->num_out = (int)n;
    return CO_OK;
}

static void
unstack_result(coi_call *call, int64_t i, coi_out *out)
{
    const co_value *x = call->in[0];

    (void)i;
    coi_out_like(out, x);
    coi_out_drop(out, coi_axis_of(((const unstack_attrs *)call->attrs)->axis, x->ndim));
}

static bool
unstack_is_known(const coi_call *call)
{
    return coi_knows_axis(call->in[0], ((const unstack_attrs *)call->attrs)->axis);
}

static co_value *
unstack_composite(coi_call *call)
{
    co_context *ctx = call->ctx;
    co_value   *x = call->in[0], **parts;
    int         axis = coi_axis_of(((const unstack_attrs *)call->attrs)->axis, x->ndim);
    int64_t     n = x->u.tensor.dims[axis];

    parts = coi_parts(ctx, call->op->name, (size_t)n);
    for (int64_t i = 0; parts != NULL && i < n; ++i)
        parts[i] = co_squeeze(ctx, part_of(ctx, x, axis, i, 1), &axis, 1);
    return parts != NULL ? coi_tuple_of_parts(ctx, parts, (size_t)n) : NULL;
}

const coi_op coi_op_unstack = {
    COI_COMPOSED_TUPLE(0, "unstack", "A tuple of the slices of x along an axis, without that axis.",
                       "x"),
    COI_ATTRS(unstack_attrs),
    .infer = unstack_rule,
    .infer_result = unstack_result,
    .composite = unstack_composite,
    .parts_are_known = unstack_is_known,
};

co_value *
co_unstack(co_context *ctx, co_value *x, int axis)
{
    unstack_attrs attrs = { axis, -1 };

    return coi_apply_composite(ctx, &coi_op_unstack, &x, 1, &attrs);
}

typedef struct split_attrs {
    coi_many num_or_sizes;
    int64_t  axis;
} split_attrs;
#define SPLIT_ATTRS(X)                                                                             \
    X(split_attrs, num_or_sizes, MANY, "", NULL)                                                   \
    X(split_attrs, axis, INT, "=0", NULL)
COI_ATTR_TABLE(split_attrs, SPLIT_ATTRS)

/* The sizes as they are given, one of which may be -1, add up to the axis, if its length is
 * known. */
static co_code
check_sizes(coi_call *call, int axis, int64_t dim)
{
    const coi_many *sizes = &((const split_attrs *)call->attrs)->num_or_sizes;
    int64_t         total = 0, most = dim < 0 ? INT64_MAX / COI_MAX_MANY : dim;
    int             unknown = 0;

    for (int i = 0; i < sizes->n; ++i) {
        int64_t size = sizes->at[i];

        unknown += size == -1;
        if (size < -1 || unknown > 1 || size > most)
            return coi_invalid(
                call, "num_or_sizes[%d] is %lld; sizes are in [0, %lld], and one may be -1", i,
                (long long)size, (long long)most);
        total += size == -1 ? 0 : size; /* at most 32 times what was allocated */
    }
    if (unknown > 0 && sizes->n == 1)
        return coi_invalid(call, "num_or_sizes is [-1]; give the size of a single part, %lld",
                           (long long)dim);
    if (dim >= 0 && (unknown > 0 ? total > dim : total != dim))
        return coi_invalid(call, "num_or_sizes add up to %lld; axis %d has %lld element%s",
                           (long long)total, axis, (long long)dim, COI_S(dim));
    return CO_OK;
}

static co_code
check_number(coi_call *call, int axis, int64_t dim)
{
    int64_t n = ((const split_attrs *)call->attrs)->num_or_sizes.at[0];

    if (n > INT32_MAX)
        return coi_invalid(call, "num_or_sizes is %lld; that many parts are too many",
                           (long long)n);
    if (n >= 1 && (dim < 0 || dim % n == 0))
        return CO_OK;
    return coi_invalid(call, "num_or_sizes is %lld; it must divide the %lld element%s of axis %d",
                       (long long)n, (long long)dim, COI_S(dim), axis);
}

static co_code
split_rule(coi_call *call, coi_out *outs)
{
    const split_attrs *attrs = call->attrs;
    const coi_many    *sizes = &attrs->num_or_sizes;
    const co_value    *x = call->in[0];
    int                axis;
    co_code            code = coi_rule_axis(call, attrs->axis, x->ndim, &axis);
    int64_t            dim = code != CO_OK || axis < 0 ? COI_UNKNOWN : x->u.tensor.dims[axis];

    (void)outs;
    if (code == CO_OK)
        code = sizes->is_one ? check_number(call, axis, dim) : check_sizes(call, axis, dim);
    call->num_out = (int)(sizes->is_one ? sizes->at[0] : sizes->n);
    return code;
}

/* The length of part i of an axis. */
static int64_t
part_size(const coi_many *sizes, int64_t dim, int64_t i)
{
    int64_t rest = dim;

    if (sizes->is_one)
        return dim < 0 ? COI_UNKNOWN : dim / sizes->at[0];
    if (sizes->at[i] != -1 || dim < 0)
        return sizes->at[i];
    for (int k = 0; k < sizes->n; ++k)
        rest -= k == i ? 0 : sizes->at[k];
    return rest;
}

static void
split_result(coi_call *call, int64_t i, coi_out *out)
{
    const split_attrs *attrs = call->attrs;
    int                axis = coi_axis_of(attrs->axis, call->in[0]->ndim);

    coi_out_like(out, call->in[0]);
    if (out->ndim > 0)
        out->dims[axis] = part_size(&attrs->num_or_sizes, out->dims[axis], i);
}

static bool
split_is_known(const coi_call *call)
{
    return coi_knows_axis(call->in[0], ((const split_attrs *)call->attrs)->axis);
}

static void
split_at_once(coi_call *call, int axis, int n, co_value **parts)
{
    const coi_many *sizes = &((const split_attrs *)call->attrs)->num_or_sizes;
    co_value       *x = call->in[0];
    coi_split_attrs attrs = { axis, { n, { 0 } } };

    for (int i = 0; i < n; ++i)
        attrs.sizes.at[i] = part_size(sizes, x->u.tensor.dims[axis], i);
    coi_split_few(call->ctx, x, &attrs, parts);
}

static void
split_by_slices(coi_call *call, int axis, int64_t n, co_value **parts)
{
    const coi_many *sizes = &((const split_attrs *)call->attrs)->num_or_sizes;
    co_value       *x = call->in[0];
    int64_t         at = 0;

    for (int64_t i = 0; i < n; ++i) {
        int64_t size = part_size(sizes, x->u.tensor.dims[axis], i);

        parts[i] = part_of(call->ctx, x, axis, at, size);
        at += size;
    }
}

static co_value *
split_composite(coi_call *call)
{
    const split_attrs *attrs = call->attrs;
    const coi_many    *sizes = &attrs->num_or_sizes;
    co_value          *x = call->in[0], **parts;
    int                axis = coi_axis_of(attrs->axis, x->ndim);
    int64_t            n = sizes->is_one ? sizes->at[0] : sizes->n;

    parts = coi_parts(call->ctx, call->op->name, (size_t)n);
    if (parts == NULL)
        return NULL;
    if (n >= 2 && n <= COI_MAX_OUTPUTS && x->dtype != CO_STRING)
        split_at_once(call, axis, (int)n, parts);
    else
        split_by_slices(call, axis, n, parts);
    return coi_tuple_of_parts(call->ctx, parts, (size_t)n);
}

const coi_op coi_op_split = {
    COI_COMPOSED_TUPLE(
        0, "split",
        "A tuple of parts along an axis: a number of equal parts, or their sizes, one of which may be -1.",
        "x"),
    COI_ATTRS(split_attrs),
    .infer = split_rule,
    .infer_result = split_result,
    .composite = split_composite,
    .parts_are_known = split_is_known,
};

co_value *
co_split(co_context *ctx, co_value *x, int64_t num, int axis)
{
    split_attrs attrs = { { 1, true, { num } }, axis };

    return coi_apply_composite(ctx, &coi_op_split, &x, 1, &attrs);
}

co_value *
co_split_sizes(co_context *ctx, co_value *x, const int64_t *sizes, size_t n, int axis)
{
    split_attrs attrs = { { 0, false, { 0 } }, axis };

    COI_ENTER(ctx, "split_sizes", NULL);
    if (n > COI_MAX_MANY || (sizes == NULL && n > 0)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "split_sizes: %zu size%s%s; give up to %d of them", n,
                 COI_S(n), sizes == NULL ? " at NULL" : "", COI_MAX_MANY);
        return NULL;
    }
    attrs.num_or_sizes.n = (int32_t)n;
    for (size_t i = 0; i < n; ++i)
        attrs.num_or_sizes.at[i] = sizes[i];
    return coi_apply_composite(ctx, &coi_op_split, &x, 1, &attrs);
}

typedef struct tile_attrs {
    coi_ints multiples;
} tile_attrs;
#define TILE_ATTRS(X) X(tile_attrs, multiples, INTS, "", NULL)
COI_ATTR_TABLE(tile_attrs, TILE_ATTRS)

static co_code
tile_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *m = &((const tile_attrs *)call->attrs)->multiples;
    int64_t         room[CO_MAX_DIMS], overflow;
    const int64_t  *dims = coi_dims_of_rank(call->in[0], m->n, room);

    if (dims == NULL || m->n < 0)
        return coi_invalid(call, "multiples has %d entr%s; the rank of x is %d", m->n,
                           COI_IES(m->n), call->in[0]->ndim);
    outs[0].dtype = (co_dtype)call->in[0]->dtype;
    outs[0].ndim = m->n;
    for (int d = 0; d < m->n; ++d) {
        if (m->at[d] < 0 || __builtin_mul_overflow(m->at[d], dims[d], &overflow))
            return coi_invalid(call,
                               "multiples[%d] is %lld; it must be at least 0, and not more "
                               "than 64 bits can count",
                               d, (long long)m->at[d]);
        outs[0].dims[d] = coi_dim_product(m->at[d], dims[d]);
    }
    return CO_OK;
}

/* Along one axis after the other, [outer, m, n inner] from [outer, 1, n inner]. */
static co_value *
tile_composite(coi_call *call)
{
    const coi_ints *m = &((const tile_attrs *)call->attrs)->multiples;
    co_context     *ctx = call->ctx;
    co_value       *x = co_identity(ctx, call->in[0]);

    for (int d = 0; x != NULL && d < m->n; ++d) {
        coi_split_shape s = coi_split_at(x, d);
        co_value       *rows = x;

        if (m->at[d] == 1)
            continue;
        rows = co_reshape(ctx, rows, (const int64_t[]){ s.outer, 1, s.n * s.inner }, 3);
        rows = co_broadcast_to(ctx, rows, (const int64_t[]){ s.outer, m->at[d], s.n * s.inner }, 3);
        x = coi_from_three(ctx, rows, x, d, s.n * m->at[d]);
    }
    return x;
}

const coi_op coi_op_tile = {
    COI_COMPOSITE("tile", "x repeated along every axis, `multiples` times.", "x"),
    COI_ATTRS(tile_attrs),
    .infer = tile_rule,
    .composite = tile_composite,
};

co_value *
co_tile(co_context *ctx, co_value *x, const int64_t *multiples, size_t n)
{
    tile_attrs attrs;

    COI_ENTER(ctx, "tile", NULL);
    if (!coi_ints_from_dims(ctx, "tile: multiples", multiples, n, &attrs.multiples))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_tile, &x, 1, &attrs);
}

typedef struct roll_attrs {
    coi_ints shift, axis;
} roll_attrs;
#define ROLL_ATTRS(X)                                                                              \
    X(roll_attrs, shift, INTS, "", NULL)                                                           \
    X(roll_attrs, axis, INTS, "", NULL)
COI_ATTR_TABLE(roll_attrs, ROLL_ATTRS)

static co_code
roll_rule(coi_call *call, coi_out *outs)
{
    const roll_attrs *attrs = call->attrs;
    int               axis;
    co_code           code = coi_rule_same(call, outs);

    if (attrs->shift.n != attrs->axis.n)
        return coi_invalid(call, "shift has %d entr%s and axis %d; they must be as many",
                           attrs->shift.n, COI_IES(attrs->shift.n), attrs->axis.n);
    for (int i = 0; code == CO_OK && i < attrs->axis.n; ++i)
        code = coi_rule_axis(call, attrs->axis.at[i], call->in[0]->ndim, &axis);
    return code;
}

static bool
roll_is_known(const coi_call *call)
{
    const roll_attrs *attrs = call->attrs;
    bool              is_known = coi_parts_with_ranks(call);

    for (int i = 0; is_known && i < attrs->axis.n; ++i)
        is_known = coi_knows_axis(call->in[0], attrs->axis.at[i]);
    return is_known;
}

/* What is pushed out at the end comes in at the front; an axis may be named more than once. */
static co_value *
roll_composite(coi_call *call)
{
    const roll_attrs *attrs = call->attrs;
    co_context       *ctx = call->ctx;
    co_value         *x = co_identity(ctx, call->in[0]);

    for (int i = 0; x != NULL && i < attrs->axis.n; ++i) {
        int       axis = coi_axis_of(attrs->axis.at[i], x->ndim);
        int64_t   n = x->u.tensor.dims[axis], by = n > 0 ? attrs->shift.at[i] % n : 0;
        co_value *halves[2];

        by = by < 0 ? by + n : by;
        if (by == 0)
            continue;
        halves[0] = part_of(ctx, x, axis, n - by, by);
        halves[1] = part_of(ctx, x, axis, 0, n - by);
        x = co_concat(ctx, co_tuple(ctx, halves, 2), axis);
    }
    return x;
}

const coi_op coi_op_roll = {
    COI_COMPOSITE(
        "roll",
        "The elements shifted by `shift` along axes; those shifted out come in at the front.", "x"),
    COI_ATTRS(roll_attrs),
    .infer = roll_rule,
    .composite = roll_composite,
    .parts_are_known = roll_is_known,
};

co_value *
co_roll(co_context *ctx, co_value *x, const int64_t *shift, const int *axes, size_t n)
{
    roll_attrs attrs;

    COI_ENTER(ctx, "roll", NULL);
    if (!coi_ints_from_dims(ctx, "roll: shift", shift, n, &attrs.shift) ||
        !coi_ints_from_axes(ctx, "roll: axes", axes, n, &attrs.axis))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_roll, &x, 1, &attrs);
}

typedef struct band_attrs {
    int64_t num_lower, num_upper;
} band_attrs;
#define BAND_ATTRS(X)                                                                              \
    X(band_attrs, num_lower, INT, "", NULL)                                                        \
    X(band_attrs, num_upper, INT, "", NULL)
COI_ATTR_TABLE(band_attrs, BAND_ATTRS)

static co_value *
numbers_to(co_context *ctx, int64_t n)
{
    return co_range(ctx, co_int(ctx, 0), co_int(ctx, n), co_int(ctx, 1), CO_INT64);
}

static co_code
band_part_rule(coi_call *call, coi_out *outs)
{
    const band_attrs *attrs = call->attrs;
    const co_value   *x = call->in[0];
    int64_t           rows, columns;

    if (coi_is_unknown_rank(x))
        return coi_rule_same(call, outs);
    if (x->ndim < 2)
        return coi_invalid(call, "x has rank %d; it must be made of matrices", x->ndim);
    rows = x->u.tensor.dims[x->ndim - 2];
    columns = x->u.tensor.dims[x->ndim - 1];
    if ((rows >= 0 && attrs->num_lower > rows) || (columns >= 0 && attrs->num_upper > columns))
        return coi_invalid(
            call,
            "num_lower is %lld and num_upper %lld; they must be at most %lld, the rows, and %lld, "
            "the columns of x",
            (long long)attrs->num_lower, (long long)attrs->num_upper, (long long)rows,
            (long long)columns);
    return coi_rule_same(call, outs);
}

static bool
band_part_is_known(const coi_call *call)
{
    return coi_knows_axis(call->in[0], -2) && coi_knows_axis(call->in[0], -1);
}

/* Rows minus columns is at most num_lower below the diagonal and num_upper above it; negative: no
 * limit. */
static co_value *
band_part_composite(coi_call *call)
{
    const band_attrs *attrs = call->attrs;
    co_context       *ctx = call->ctx;
    co_value         *x = call->in[0], *below, *inside;
    int64_t           rows = x->u.tensor.dims[x->ndim - 2];
    int64_t           columns = x->u.tensor.dims[x->ndim - 1];

    below = co_sub(ctx, co_expand_dims(ctx, numbers_to(ctx, rows), 1), numbers_to(ctx, columns));
    inside = co_logical_and(
        ctx, co_less_equal(ctx, below, co_int(ctx, attrs->num_lower < 0 ? rows : attrs->num_lower)),
        co_greater_equal(ctx, below,
                         co_int(ctx, attrs->num_upper < 0 ? -columns : -attrs->num_upper)));
    return co_where(ctx, inside, x, co_zeros(ctx, (co_dtype)x->dtype, NULL, 0));
}

const coi_op coi_op_band_part = {
    COI_COMPOSITE(
        "band_part",
        "x with zeros outside num_lower diagonals below and num_upper above the main diagonal.",
        "x"),
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    COI_ATTRS(band_attrs),
    .infer = band_part_rule,
    .composite = band_part_composite,
    .parts_are_known = band_part_is_known,
};

co_value *
co_band_part(co_context *ctx, co_value *x, int64_t num_lower, int64_t num_upper)
{
    band_attrs attrs = { num_lower, num_upper };

    return coi_apply_composite(ctx, &coi_op_band_part, &x, 1, &attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Padding with a number or with mirrored elements, made of slice_grad, where and gather.
 */
#include "ops/engine/composite.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/strided_copy.h"
#include "ops/engine/type_rules.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(slice)
COI_USES_OP(slice_grad)

enum { CONSTANT, REFLECT, SYMMETRIC };
static const char *const modes[] = { "CONSTANT", "REFLECT", "SYMMETRIC", NULL };

typedef struct pad_attrs {
    coi_many   paddings; /* before and behind, for every axis */
    int32_t    mode;
    coi_scalar constant_values;
} pad_attrs;
#define PAD_ATTRS(X)                                                                               \
    X(pad_attrs, paddings, MANY, "", NULL)                                                         \
    X(pad_attrs, mode, CHOICE, "=CONSTANT", modes)                                                 \
    X(pad_attrs, constant_values, SCALAR, "=0", NULL)
COI_ATTR_TABLE(pad_attrs, PAD_ATTRS)

/* No number becomes a string; 0 stands for the empty one. */
static co_code
check_constant(coi_call *call, const coi_scalar *c, co_dtype dtype)
{
    if (c->i == 0 && c->f == 0) /* a float too, as in TensorFlow */
        return CO_OK;
    if (dtype == CO_STRING)
        return coi_invalid(call, "constant_values is %g; for dtype string it must be 0",
                           c->kind == CO_KIND_FLOAT ? c->f : (double)c->i);
    return coi_rule_number(call, "constant_values", c, dtype);
}

static co_code
pad_rule(coi_call *call, coi_out *outs)
{
    const pad_attrs *attrs = call->attrs;
    const co_value  *x = call->in[0];
    int64_t          room[CO_MAX_DIMS];
    const int64_t   *dims = coi_dims_of_rank(x, attrs->paddings.n / 2, room);

    if (dims == NULL || attrs->paddings.n % 2 != 0)
        return coi_invalid(call,
                           "paddings has %d number%s; x of rank %d needs %d, a pair for each axis",
                           attrs->paddings.n, COI_S(attrs->paddings.n), x->ndim, 2 * x->ndim);
    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = attrs->paddings.n / 2;
    for (int i = 0; i < attrs->paddings.n; ++i) {
        int64_t pad = attrs->paddings.at[i], dim = dims[i / 2];
        int64_t most = attrs->mode == SYMMETRIC ? dim : dim - 1;

        if (pad < 0 || pad > INT64_MAX / 4)
            return coi_invalid(call, "paddings[%d] is %lld; it must be in [0, 2^61)", i,
                               (long long)pad);
        if (attrs->mode == REFLECT && dim == 0)
            return coi_invalid(call,
                               "axis %d of x is empty; REFLECT needs an element to mirror at, "
                               "SYMMETRIC and CONSTANT do not",
                               i / 2);
        if (attrs->mode != CONSTANT && dim >= 0 && pad > most)
            return coi_invalid(call, "paddings[%d] is %lld; axis %d can mirror at most %lld", i,
                               (long long)pad, i / 2, (long long)most);
        outs[0].dims[i / 2] = coi_dim_sum(i % 2 == 0 ? dim : outs[0].dims[i / 2], pad);
    }
    return attrs->mode == CONSTANT
               ? check_constant(call, &attrs->constant_values, (co_dtype)x->dtype)
               : CO_OK;
}

/* x among zeros. */
static co_value *
among_zeros(co_context *ctx, co_value *x, const coi_many *paddings)
{
    coi_slice_grad_attrs attrs;

    if (x == NULL) /* there was no memory for it */
        return NULL;
    memset(&attrs, 0, sizeof(attrs));
    attrs.begin.n = attrs.shape.n = x->ndim;
    for (int d = 0; d < x->ndim; ++d) {
        attrs.begin.at[d] = paddings->at[2 * d];
        attrs.shape.at[d] = paddings->at[2 * d] + x->u.tensor.dims[d] + paddings->at[2 * d + 1];
    }
    return coi_apply1(ctx, &coi_op_slice_grad, x, &attrs);
}

/* Strings among empty ones, along one axis after the other. */
static co_value *
among_empty(co_context *ctx, co_value *x, const coi_many *paddings)
{
    x = co_identity(ctx, x);
    for (int d = 0; x != NULL && d < x->ndim; ++d) {
        co_value *parts[3] = { NULL, x, NULL };
        int64_t   dims[CO_MAX_DIMS];

        memcpy(dims, x->u.tensor.dims, sizeof(dims));
        for (int side = 0; side < 2; ++side) {
            dims[d] = paddings->at[2 * d + side];
            parts[2 * side] = co_zeros(ctx, CO_STRING, dims, x->ndim);
        }
        x = co_concat(ctx, co_tuple(ctx, parts, 3), d);
    }
    return x;
}

/* The number as an operand beside x. Functions of C have no bool for it, but 1. */
static co_value *
constant_of(co_context *ctx, const coi_scalar *c, const co_value *x)
{
    return x->dtype == CO_BOOL && c->i == 1 ? co_bool(ctx, true) : coi_scalar_value(ctx, c);
}

static co_value *
pad_constant(coi_call *call)
{
    const pad_attrs  *attrs = call->attrs;
    const coi_scalar *c = &attrs->constant_values;
    co_context       *ctx = call->ctx;
    co_value         *x = call->in[0], *inside;
    co_value         *padded;

    if (x->dtype == CO_STRING)
        return among_empty(ctx, x, &attrs->paddings);
    padded = among_zeros(ctx, x, &attrs->paddings);
    if (c->i == 0 && c->f == 0)
        return padded;
    inside = co_ones(ctx, CO_BOOL, x->u.tensor.dims, x->ndim);
    return co_where(ctx, among_zeros(ctx, inside, &attrs->paddings), padded,
                    constant_of(ctx, c, x));
}

/* The part of what flows in that x had. */
static co_code
pad_constant_grad(coi_grad *g)
{
    const coi_many *paddings = &((const pad_attrs *)g->attrs)->paddings;
    coi_slice_attrs part;
    coi_sized_op    cut = { &coi_op_slice, &part, COI_SHAPE_AT(coi_slice_attrs, size), 0 };

    memset(&part, 0, sizeof(part));
    part.begin.n = paddings->n / 2;
    for (int d = 0; d < part.begin.n; ++d)
        part.begin.at[d] = paddings->at[2 * d];
    g->grads[0] = coi_apply_like(g->ctx, &cut, g->upstream, 1, g->in[0]);
    return g->ctx->error.code;
}

/* Padding with a number as one record or entry: its gradient needs none of the parts. */
const coi_op coi_op_pad_constant = {
    COI_COMPOSITE("pad", "x padded with a number before and after each axis.", "x"),
    .entry = "pad_constant",
    .internal = true,
    .not_by_name = true,
    COI_ATTRS(pad_attrs),
    .infer = pad_rule,
    .grad = pad_constant_grad,
    .composite = pad_constant,
    .composes_checked = true,
};

/* The axis from which element i of the result comes; REFLECT leaves out the one at the edge. */
static co_value *
mirror_index(co_context *ctx, int64_t n, int64_t before, int64_t behind, int64_t edge)
{
    int64_t   total = before + n + behind;
    co_value *index = coi_host_zeros(ctx, CO_INT64, &total, 1);

    for (int64_t i = 0; index != NULL && i < total; ++i) {
        int64_t at = i - before;

        at = at < 0 ? -at - 1 + edge : at >= n ? 2 * n - 1 - at - edge : at;
        ((int64_t *)coi_data_on_host(index))[i] = at;
    }
    return index;
}

static co_value *
pad_composite(coi_call *call)
{
    const pad_attrs *attrs = call->attrs;
    co_context      *ctx = call->ctx;
    co_value        *x = call->in[0];

    if (attrs->mode == CONSTANT)
        return ctx->recording || !coi_has_data(x)
                   ? coi_apply_composite(ctx, &coi_op_pad_constant, call->in, 1, attrs)
                   : pad_constant(call);
    x = co_identity(ctx, x);
    for (int d = 0; x != NULL && d < x->ndim; ++d) {
        int64_t         before = attrs->paddings.at[2 * d], behind = attrs->paddings.at[2 * d + 1];
        coi_split_shape s = coi_split_at(x, d);
        co_value       *index;

        if (before + behind == 0)
            continue;
        index = mirror_index(ctx, s.n, before, behind, attrs->mode == REFLECT);
        x = coi_from_three(ctx, co_gather(ctx, coi_as_three(ctx, x, &s), index, 1, 0), x, d,
                           before + s.n + behind);
    }
    return x;
}

static bool
pad_is_known(const coi_call *call)
{
    return ((const pad_attrs *)call->attrs)->mode == CONSTANT || coi_is_known_shape(call->in[0]);
}

const coi_op coi_op_pad = {
    COI_COMPOSITE(
        "pad",
        "x padded before and after each axis with a constant, or with its own elements mirrored.",
        "x"),
    COI_ATTRS(pad_attrs),
    .infer = pad_rule,
    .composite = pad_composite,
    .parts_are_known = pad_is_known,
};

co_value *
co_pad(co_context *ctx, co_value *x, const int64_t *paddings, size_t n, co_pad_mode mode,
       double constant)
{
    pad_attrs attrs = { .mode = (int32_t)mode, .constant_values = coi_scalar_of(constant) };

    COI_ENTER(ctx, "pad", NULL);
    if (n > 2 * CO_MAX_DIMS || (paddings == NULL && n > 0) || (unsigned)mode > CO_PAD_SYMMETRIC) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "pad: %zu padding%s%s in mode %d; give a pair for each axis, and a mode of co_pad_mode",
            n, COI_S(n), paddings == NULL ? " at NULL" : "", (int)mode);
        return NULL;
    }
    attrs.paddings.n = (int32_t)n;
    for (size_t i = 0; i < n; ++i)
        attrs.paddings.at[i] = paddings[i];
    return coi_apply_composite(ctx, &coi_op_pad, &x, 1, &attrs);
}

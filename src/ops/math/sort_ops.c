/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements along the last axis, and sorting, which is top_k of all of them.
 */
#include "ops/kernels/top_k.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/gather.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

/* Entries of other files. */
COI_USES_OP(scatter_add)
COI_USES_OP(argsort)

#define TOP_K_ATTRS(X)                                                                             \
    X(coi_top_k_attrs, k, INT, "=1", NULL)                                                         \
    X(coi_top_k_attrs, sorted, BOOL, "=true", NULL)
COI_ATTR_TABLE(coi_top_k_attrs, TOP_K_ATTRS)

static co_code
top_k_rule(coi_call *call, coi_out *outs)
{
    int64_t         k = ((const coi_top_k_attrs *)call->attrs)->k, last;
    const co_value *x = call->in[0];
    co_code         code;

    if (x->ndim == 0)
        return coi_invalid(call, "x is a scalar; it must have an axis");
    last = coi_is_unknown_rank(x) ? COI_UNKNOWN : x->u.tensor.dims[x->ndim - 1];
    if (k < 0 || (last >= 0 && k > last) || k > INT32_MAX)
        return coi_invalid(call, "k is %lld; it must be in [0, %lld], the last dimension of x",
                           (long long)k, (long long)(last < 0 ? INT32_MAX : last));
    code = coi_rule_same(call, outs);
    if (x->ndim > 0)
        outs[0].dims[x->ndim - 1] = k;
    outs[1] = outs[0];
    outs[1].dtype = CO_INT32;
    return code;
}

/* Back to where the values came from. */
static co_code
top_k_grad(coi_grad *g)
{
    int               last = g->in[0]->ndim - 1;
    coi_scatter_attrs back = { { 0, { 0 } }, last, last };
    coi_sized_op    add = { &coi_op_scatter_add, &back, COI_SHAPE_AT(coi_scatter_attrs, shape), 0 };
    co_value *const given[2] = { g->upstream[0], g->out[1] };

    if (g->upstream[0] == NULL)
        return CO_OK;
    g->grads[0] = coi_apply_like(g->ctx, &add, given, 2, g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_top_k = {
    .name = "top_k",
    .doc =
        "The k largest elements along the last axis, in order, and their indices; of equals the first.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 2,
    .dtypes = COI_NUMBERS,
    COI_ATTRS(coi_top_k_attrs),
    .infer = top_k_rule,
    .ref = coi_ref_top_k,
    .run = coi_top_k_run,
    .grad = top_k_grad,
    .grad_is_known = coi_grad_with_ranks,
};

co_value *
co_top_k(co_context *ctx, co_value *x, int64_t k)
{
    coi_top_k_attrs attrs = { k, true };
    co_value       *outs[2];

    COI_ENTER(ctx, "top_k", NULL);
    if (coi_apply_many(ctx, &coi_op_top_k, &x, 1, &attrs, outs) != CO_OK)
        return NULL;
    return co_tuple(ctx, outs, 2);
}

static const char *const directions[] = { "ASCENDING", "DESCENDING", NULL };

typedef struct sort_attrs {
    int64_t axis;
    int32_t direction; /* 1: descending */
    bool    stable;    /* the result always is */
} sort_attrs;
#define SORT_ATTRS(X)                                                                              \
    X(sort_attrs, axis, INT, "=-1", NULL)                                                          \
    X(sort_attrs, direction, CHOICE, "=ASCENDING", directions)
COI_ATTR_TABLE(sort_attrs, SORT_ATTRS)
typedef sort_attrs argsort_attrs;
#define ARGSORT_ATTRS(X) SORT_ATTRS(X) X(sort_attrs, stable, BOOL, "=false", NULL)
COI_ATTR_TABLE(argsort_attrs, ARGSORT_ATTRS)

static co_code
sort_rule(coi_call *call, coi_out *outs)
{
    int axis;

    coi_out_like(outs, call->in[0]);
    if (call->op == &coi_op_argsort)
        outs[0].dtype = CO_INT32;
    return coi_rule_axis(call, ((const sort_attrs *)call->attrs)->axis, call->in[0]->ndim, &axis);
}

/* The axis is exchanged with the last one before and after. */
static co_value *
swap_with_last(co_context *ctx, co_value *x, int axis)
{
    int perm[CO_MAX_DIMS];

    if (x == NULL || axis == x->ndim - 1)
        return x;
    for (int d = 0; d < x->ndim; ++d)
        perm[d] = d;
    perm[axis] = x->ndim - 1;
    perm[x->ndim - 1] = axis;
    return co_transpose(ctx, x, perm, (size_t)x->ndim);
}

/* Output `which` of top_k of everything along the axis, in the direction that is asked for. */
static co_value *
sorted(coi_call *call, int which)
{
    const sort_attrs *attrs = call->attrs;
    co_context       *ctx = call->ctx;
    co_value         *x = call->in[0], *outs[2];
    int               axis = coi_axis_of(attrs->axis, x->ndim);
    coi_top_k_attrs   all = { x->u.tensor.dims[axis], true };

    x = swap_with_last(ctx, x, axis);
    if (attrs->direction == 0 && x != NULL)
        x = coi_reversed_order(ctx, x);
    if (x == NULL || coi_apply_many(ctx, &coi_op_top_k, &x, 1, &all, outs) != CO_OK)
        return NULL;
    if (attrs->direction == 0 && which == 0)
        outs[0] = coi_reversed_order(ctx, outs[0]);
    return swap_with_last(ctx, outs[which], axis);
}

static co_value *
sort_composite(coi_call *call)
{
    return sorted(call, 0);
}

static co_value *
argsort_composite(coi_call *call)
{
    return sorted(call, 1);
}

static bool
sort_is_known(const coi_call *call)
{
    return coi_knows_axis(call->in[0], ((const sort_attrs *)call->attrs)->axis);
}

const coi_op coi_op_sort = {
    COI_COMPOSITE("sort", "The elements along an axis in order.", "x"),
    .dtypes = COI_NUMBERS,
    COI_ATTRS(sort_attrs),
    .infer = sort_rule,
    .composite = sort_composite,
    .parts_are_known = sort_is_known,
};

const coi_op coi_op_argsort = {
    COI_COMPOSITE("argsort",
                  "The indices that sort x along an axis; equal elements keep their order.", "x"),
    .dtypes = COI_NUMBERS,
    .not_differentiable = true,
    COI_ATTRS(argsort_attrs),
    .infer = sort_rule,
    .composite = argsort_composite,
};

co_value *
co_sort(co_context *ctx, co_value *x, int axis, bool descending)
{
    sort_attrs attrs = { axis, descending, true };

    return coi_apply_composite(ctx, &coi_op_sort, &x, 1, &attrs);
}

co_value *
co_argsort(co_context *ctx, co_value *x, int axis, bool descending)
{
    sort_attrs attrs = { axis, descending, true };

    return coi_apply_composite(ctx, &coi_op_argsort, &x, 1, &attrs);
}

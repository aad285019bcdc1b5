/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running sums and products along an axis: rule and gradients.
 */
#include "ops/kernels/cumulative.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/ref/ref.h"

#define SCAN_ATTRS(X)                                                                              \
    X(coi_scan_attrs, axis, INT, "=0", NULL)                                                       \
    X(coi_scan_attrs, exclusive, BOOL, "=false", NULL)                                             \
    X(coi_scan_attrs, reverse, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_scan_attrs, SCAN_ATTRS)

static co_code
scan_rule(coi_call *call, coi_out *outs)
{
    int     axis;
    co_code code = coi_rule_axis(call, ((const coi_scan_attrs *)call->attrs)->axis,
                                 call->in[0]->ndim, &axis);

    return code == CO_OK ? coi_rule_same(call, outs) : code;
}

/* Every element went into the sums from its own on: the sums of their gradients, from the other
 * end. */
static co_code
cumsum_grad(coi_grad *g)
{
    const coi_scan_attrs *attrs = g->attrs;

    g->grads[0] = co_cumsum(g->ctx, g->upstream[0], (int)attrs->axis, attrs->exclusive,
                            !attrs->reverse);
    return g->ctx->error.code;
}

/* The sum of y dy from the other end, over x; 0 where x is 0, as TensorFlow has it. */
static co_code
cumprod_grad(coi_grad *g)
{
    co_context           *ctx = g->ctx;
    const coi_scan_attrs *attrs = g->attrs;
    co_value             *x = g->in[0];
    co_value *y = co_cumprod(ctx, x, (int)attrs->axis, attrs->exclusive, attrs->reverse);
    co_value *sums = co_cumsum(ctx, co_mul(ctx, y, g->upstream[0]), (int)attrs->axis,
                               attrs->exclusive, !attrs->reverse);

    g->grads[0] = coi_div_no_nan(ctx, sums, x);
    return ctx->error.code;
}

#define SCAN(name_, kind_, doc_)                                                                   \
    const coi_op coi_op_##name_ = {                                                                \
        .name = #name_,                                                                            \
        .doc = doc_,                                                                               \
        .inputs = { "x" },                                                                         \
        .num_inputs = 1,                                                                           \
        .num_outputs = 1,                                                                          \
        .kind = kind_,                                                                             \
        .dtypes = COI_NUMBERS,                                                                     \
        COI_ATTRS(coi_scan_attrs),                                                                 \
        .infer = scan_rule,                                                                        \
        .ref = coi_ref_scan,                                                                       \
        .run = coi_scan_run,                                                                       \
        .grad = name_##_grad,                                                                      \
    };                                                                                             \
    co_value *co_##name_(co_context *ctx, co_value *x, int axis, bool exclusive, bool reverse)     \
    {                                                                                              \
        coi_scan_attrs attrs = { axis, exclusive, reverse };                                       \
                                                                                                   \
        return coi_apply1(ctx, &coi_op_##name_, x, &attrs);                                        \
    }

SCAN(
    cumsum, COI_SCAN_SUM,
    "Cumulative sums along an axis, each with its own element or, if `exclusive`, without; integers wrap.")
SCAN(cumprod, COI_SCAN_PROD, "Cumulative products along an axis, like cumsum.")

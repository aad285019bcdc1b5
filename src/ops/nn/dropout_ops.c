/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: which elements stay is drawn like any other random number, so it depends on seed, call,
 * replica and position, and on nothing else.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/type_rules.h"

typedef struct dropout_attrs {
    double rate;
} dropout_attrs;
#define DROPOUT_ATTRS(X) X(dropout_attrs, rate, FLOAT, "", NULL)
COI_ATTR_TABLE(dropout_attrs, DROPOUT_ATTRS)

static co_code
dropout_rule(coi_call *call, coi_out *outs)
{
    double rate = ((const dropout_attrs *)call->attrs)->rate;

    if (!(rate >= 0 && rate < 1))
        return coi_invalid(call, "rate is %g; it must be in [0, 1)", rate);
    return coi_rule_same(call, outs);
}

static co_code
uniform_like_rule(coi_call *call, coi_out *outs)
{
    coi_out_like(outs, call->in[0]);
    outs[0].dtype = CO_FLOAT32;
    return CO_OK;
}

static co_value *
uniform_like_composite(coi_call *call)
{
    const co_value *x = call->in[0];

    return co_random_uniform(call->ctx, CO_FLOAT32, x->u.tensor.dims, x->ndim, 0, 1);
}

/* Stands for the draw where there are no tensors yet: numbers that are drawn then would be the same
 * in every run. */
const coi_op coi_op_random_uniform_like = {
    COI_COMPOSITE("random_uniform_like", "Numbers in [0, 1) in the shape of x, as float32.", "x"),
    .internal = true,
    .not_by_name = true,
    .not_differentiable = true,
    .reads = CO_RESOURCE_RANDOM,
    .writes = CO_RESOURCE_RANDOM,
    .infer = uniform_like_rule,
    .composite = uniform_like_composite,
};

static co_value *
dropout_composite(coi_call *call)
{
    double      rate = ((const dropout_attrs *)call->attrs)->rate;
    co_context *ctx = call->ctx;
    co_value   *x = call->in[0], *drawn;

    if (rate == 0)
        return co_identity(ctx, x);
    drawn = coi_has_data(x) ? uniform_like_composite(call)
                            : coi_apply_composite(ctx, &coi_op_random_uniform_like, &x, 1, NULL);
    return co_where(ctx, co_greater_equal(ctx, drawn, co_float(ctx, rate)),
                    co_mul(ctx, x, co_float(ctx, 1 / (1 - rate))),
                    co_zeros(ctx, (co_dtype)x->dtype, NULL, 0));
}

const coi_op coi_op_dropout = {
    COI_COMPOSITE("dropout",
                  "About `rate` of the elements set to zero, the others divided by 1 - rate.", "x"),
    .dtypes = COI_FLOATS,
    .reads = CO_RESOURCE_RANDOM,
    .writes = CO_RESOURCE_RANDOM,
    COI_ATTRS(dropout_attrs),
    .infer = dropout_rule,
    .composite = dropout_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_dropout(co_context *ctx, co_value *x, double rate)
{
    dropout_attrs attrs = { rate };

    return coi_apply_composite(ctx, &coi_op_dropout, &x, 1, &attrs);
}

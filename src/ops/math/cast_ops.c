/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converting to another dtype.
 */
#include "ops/kernels/cast.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"

/* Entries of other files. */
COI_USES_OP(identity)

#define CAST_ATTRS(X) X(coi_cast_attrs, dtype, DTYPE, "", NULL)
COI_ATTR_TABLE(coi_cast_attrs, CAST_ATTRS)

static co_code
cast_rule(coi_call *call, coi_out *outs)
{
    const coi_cast_attrs *attrs = call->attrs;

    if (attrs->dtype == CO_DTYPE_NONE || attrs->dtype >= CO_STRING)
        return coi_invalid(call, "dtype is %s; it must be bool or a dtype of numbers",
                           co_dtype_name((co_dtype)attrs->dtype));
    coi_rule_same(call, outs);
    outs[0].dtype = (co_dtype)attrs->dtype;
    return CO_OK;
}

/* Back to the dtype of x; integers have no gradient. */
static co_code
cast_grad(coi_grad *g)
{
    co_dtype dtype = (co_dtype)g->in[0]->dtype;

    if (coi_dtypes[dtype].floating)
        g->grads[0] = co_cast(g->ctx, g->upstream[0], dtype);
    return g->ctx->error.code;
}

const coi_op coi_op_cast = {
    .name = "cast",
    .doc = "Conversion to a dtype: floats to integers truncate, numbers to bool are x != 0.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    COI_ATTRS(coi_cast_attrs),
    .infer = cast_rule,
    .ref = coi_ref_cast,
    .run = coi_cast_run,
    .grad = cast_grad,
};

co_value *
co_cast(co_context *ctx, co_value *x, co_dtype dtype)
{
    coi_cast_attrs attrs = { coi_dtype_attr(dtype) };

    /* Nothing to convert: the data can be shared. */
    if (x != NULL && x->kind == CO_KIND_TENSOR && x->dtype == attrs.dtype && x->dtype != CO_STRING)
        return coi_apply1(ctx, &coi_op_identity, x, NULL);
    return coi_apply1(ctx, &coi_op_cast, x, &attrs);
}

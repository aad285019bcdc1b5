/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the largest element along an axis is.
 */
#include "ops/kernels/reduction.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"
#include "ops/math/math_ops.h"

/* Entries of other files. */
COI_USES_OP(argmax)

#define ARGMAX_ATTRS(X)                                                                            \
    X(coi_argmax_attrs, axis, INT, "=0", NULL)                                                     \
    X(coi_argmax_attrs, output_type, DTYPE, "=int64", NULL)
COI_ATTR_TABLE(coi_argmax_attrs, ARGMAX_ATTRS)

/* TensorFlow's argmax has short indices too, its argmin has not. */
static uint32_t
index_dtypes(const coi_op *op)
{
    uint32_t both = COI_DTYPE_BIT(CO_INT64) | COI_DTYPE_BIT(CO_INT32);

    return op == &coi_op_argmax ? both | COI_DTYPE_BIT(CO_INT16) | COI_DTYPE_BIT(CO_UINT16) : both;
}

co_code
coi_argmax_rule(coi_call *call, coi_out *outs)
{
    const coi_argmax_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0];
    char                    text[COI_SHAPE_TEXT];
    int64_t                 none, last;
    int                     axis;
    co_code                 code = coi_rule_axis(call, attrs->axis, x->ndim, &axis);

    if (code != CO_OK)
        return code;
    if ((index_dtypes(call->op) & COI_DTYPE_BIT(attrs->output_type)) == 0)
        return coi_invalid(call, "output_type is %s; it must be %s",
                           co_dtype_name((co_dtype)attrs->output_type),
                           call->op == &coi_op_argmax ? "int64, int32, int16 or uint16"
                                                      : "int64 or int32");
    coi_out_unknown(outs, (co_dtype)attrs->output_type);
    if (axis < 0) /* of an unknown rank */
        return CO_OK;
    if (x->u.tensor.dims[axis] == 0)
        return coi_invalid(call, "axis %d of shape %s is empty; it must have an element", axis,
                           coi_shape_text(x->u.tensor.dims, x->ndim, text));
    coi_integer_limits((co_dtype)attrs->output_type, &none, &last);
    if (x->u.tensor.dims[axis] - 1 > last)
        return coi_invalid(
            call, "axis %d has %lld elements; output_type %s counts up to %lld, give a wider one",
            axis, (long long)x->u.tensor.dims[axis], co_dtype_name((co_dtype)attrs->output_type),
            (long long)last + 1);
    outs[0].ndim = x->ndim - 1;
    for (int d = 0; d < x->ndim - 1; ++d)
        outs[0].dims[d] = x->u.tensor.dims[d < axis ? d : d + 1];
    return CO_OK;
}

const coi_op coi_op_argmax = {
    .name = "argmax",
    .doc = "The index of the largest element along an axis, the first of equals; NaN is skipped.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    .not_differentiable = true,
    COI_ATTRS(coi_argmax_attrs),
    .infer = coi_argmax_rule,
    .ref = coi_ref_argmax,
    .run = coi_argmax_run,
};

co_value *
co_argmax(co_context *ctx, co_value *x, int axis, co_dtype dtype)
{
    coi_argmax_attrs attrs = { axis, coi_dtype_attr(dtype == CO_DTYPE_NONE ? CO_INT64 : dtype) };

    return coi_apply1(ctx, &coi_op_argmax, x, &attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_hot.
 */
#include "ops/kernels/gather.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

#define ONE_HOT_ATTRS(X)                                                                           \
    X(coi_one_hot_attrs, depth, INT, "", NULL)                                                     \
    X(coi_one_hot_attrs, on_value, SCALAR, "=null", NULL)                                          \
    X(coi_one_hot_attrs, off_value, SCALAR, "=null", NULL)                                         \
    X(coi_one_hot_attrs, axis, INT, "=-1", NULL)                                                   \
    X(coi_one_hot_attrs, dtype, DTYPE, "=none", NULL)
COI_ATTR_TABLE(coi_one_hot_attrs, ONE_HOT_ATTRS)

/* A host number that is given says what the elements are, unless dtype does. */
static co_dtype
dtype_of(const coi_one_hot_attrs *attrs)
{
    const coi_scalar *one = &attrs->on_value;

    if (attrs->dtype != CO_DTYPE_NONE)
        return (co_dtype)attrs->dtype;
    if (one->kind == CO_KIND_NONE)
        one = &attrs->off_value;
    switch (one->kind) {
    case CO_KIND_BOOL: return CO_BOOL;
    case CO_KIND_INT: return one->i == (int32_t)one->i ? CO_INT32 : CO_INT64;
    default: return CO_FLOAT32;
    }
}

/* A bool becomes any number, but only a bool becomes one. */
static co_code
check_value(coi_call *call, const char *name, const coi_scalar *scalar, co_dtype dtype)
{
    if (dtype == CO_BOOL && scalar->kind != CO_KIND_BOOL)
        return coi_invalid(call, "dtype bool needs an %s of true or false", name);
    return coi_rule_number(call, name, scalar, dtype);
}

static co_code
one_hot_rule(coi_call *call, coi_out *outs)
{
    const coi_one_hot_attrs *attrs = call->attrs;
    const co_value          *indices = call->in[0];
    co_dtype                 dtype = dtype_of(attrs);
    int                      axis = 0;
    co_code                  code;

    if (attrs->depth < 0)
        return coi_invalid(call, "depth is %lld; it must be at least 0", (long long)attrs->depth);
    if (dtype >= CO_STRING)
        return coi_invalid(call, "dtype is %s; it must be bool or a dtype of numbers",
                           co_dtype_name(dtype));
    if (indices->ndim == CO_MAX_DIMS)
        return coi_invalid(call,
                           "indices have %d dimensions already, which is the most there can be",
                           CO_MAX_DIMS);
    code = coi_is_unknown_rank(indices)
               ? CO_OK
               : coi_rule_axis(call, attrs->axis, indices->ndim + 1, &axis); /* of the result */
    if (code == CO_OK)
        code = check_value(call, "on_value", &attrs->on_value, dtype);
    if (code == CO_OK)
        code = check_value(call, "off_value", &attrs->off_value, dtype);
    if (code != CO_OK)
        return code;
    coi_out_unknown(outs, dtype);
    if (coi_is_unknown_rank(indices))
        return CO_OK;
    outs[0].ndim = indices->ndim + 1;
    for (int d = 0; d < outs[0].ndim; ++d)
        outs[0].dims[d] = d == axis ? attrs->depth : indices->u.tensor.dims[d < axis ? d : d - 1];
    return CO_OK;
}

const coi_op coi_op_one_hot = {
    .name = "one_hot",
    .doc = "on_value where the position along the new axis is the index, else off_value.",
    .inputs = { "indices" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_DTYPE_BIT(CO_UINT8) | COI_DTYPE_BIT(CO_INT8) | COI_DTYPE_BIT(CO_INT32) |
              COI_DTYPE_BIT(CO_INT64),
    .not_differentiable = true,
    COI_ATTRS(coi_one_hot_attrs),
    .infer = one_hot_rule,
    .ref = coi_ref_one_hot,
    .run = coi_one_hot_run,
};

co_value *
co_one_hot(co_context *ctx, co_value *indices, int64_t depth, const co_one_hot_options *options)
{
    co_one_hot_options all = CO_ONE_HOT_OPTIONS_INIT;
    coi_one_hot_attrs  attrs = { .depth = depth };

    COI_ENTER(ctx, "one_hot", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4))
        return NULL;
    attrs.on_value = coi_scalar_of(all.on_value);
    attrs.off_value = coi_scalar_of(all.off_value);
    attrs.axis = all.axis;
    attrs.dtype = coi_dtype_attr(all.dtype == CO_DTYPE_NONE ? CO_FLOAT32 : all.dtype);
    if (all.dtype == CO_BOOL) {
        attrs.on_value = (coi_scalar){ CO_KIND_BOOL, all.on_value != 0, 0 };
        attrs.off_value = (coi_scalar){ CO_KIND_BOOL, all.off_value != 0, 0 };
    }
    return coi_apply1(ctx, &coi_op_one_hot, indices, &attrs);
}

static co_code
one_hot_like_rule(coi_call *call, coi_out *outs)
{
    const co_value *like = call->in[1];

    if (like->ndim == 0 || call->in[0]->ndim == CO_MAX_DIMS)
        return coi_invalid(call, "like has rank %d and indices %d; like must have an axis",
                           like->ndim, call->in[0]->ndim);
    coi_out_like(outs, call->in[0]);
    outs[0].dtype = (co_dtype)like->dtype;
    coi_out_insert(outs, outs[0].ndim,
                   coi_is_unknown_rank(like) ? COI_UNKNOWN : like->u.tensor.dims[like->ndim - 1]);
    return CO_OK;
}

static co_value *
one_hot_like_compose(coi_call *call)
{
    const co_value    *like = call->in[1];
    co_one_hot_options options = CO_ONE_HOT_OPTIONS_INIT;

    options.dtype = (co_dtype)like->dtype;
    return co_one_hot(call->ctx, call->in[0], like->u.tensor.dims[like->ndim - 1], &options);
}

const coi_op coi_op_one_hot_like = {
    COI_COMPOSITE("one_hot_like", "one_hot of the dtype and the last dimension of like.", "indices",
                  "like"),
    .internal = true,
    .not_differentiable = true,
    .infer = one_hot_like_rule,
    .composite = one_hot_like_compose,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that make tensors from nothing but attributes: zeros, ones, fill, range.
 */
#include "ops/kernels/creation.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"

#include <math.h>
#include <string.h>

#define MAKE_ATTRS(X)                                                                              \
    X(coi_make_attrs, shape, INTS, "", NULL)                                                       \
    X(coi_make_attrs, dtype, DTYPE, "=float32", NULL)
COI_ATTR_TABLE(coi_make_attrs, MAKE_ATTRS)
#define FILL_ATTRS(X)                                                                              \
    X(coi_fill_attrs, shape, INTS, "", NULL)                                                       \
    X(coi_fill_attrs, value, SCALAR, "", NULL)
COI_ATTR_TABLE(coi_fill_attrs, FILL_ATTRS)
#define RANGE_ATTRS(X)                                                                             \
    X(coi_range_attrs, start, SCALAR, "", NULL)                                                    \
    X(coi_range_attrs, limit, SCALAR, "", NULL)                                                    \
    X(coi_range_attrs, delta, SCALAR, "=1", NULL)                                                  \
    X(coi_range_attrs, dtype, DTYPE, "=none", NULL)
COI_ATTR_TABLE(coi_range_attrs, RANGE_ATTRS)

static co_code
shape_rule(coi_call *call, const coi_ints *shape, coi_out *out)
{
    char text[COI_SHAPE_TEXT];

    if (shape->n < 0)
        return coi_invalid(call, "shape is none; give the dimensions");
    out->ndim = shape->n;
    for (int i = 0; i < shape->n; ++i) {
        if (shape->at[i] < 0)
            return coi_invalid(call, "shape %s: dimensions must be at least 0",
                               coi_ints_text(shape, text));
        out->dims[i] = shape->at[i];
    }
    return CO_OK;
}

static co_code
zeros_rule(coi_call *call, coi_out *outs)
{
    const coi_make_attrs *attrs = call->attrs;

    if (attrs->dtype == CO_DTYPE_NONE || attrs->dtype >= CO_NUM_DTYPES)
        return coi_invalid(call, "dtype is %s; give one of float32, int32, bool, ...",
                           co_dtype_name((co_dtype)attrs->dtype));
    outs[0].dtype = (co_dtype)attrs->dtype;
    return shape_rule(call, &attrs->shape, &outs[0]);
}

static co_code
ones_rule(coi_call *call, coi_out *outs)
{
    const coi_make_attrs *attrs = call->attrs;

    if (attrs->dtype == CO_STRING)
        return coi_invalid(call,
                           "dtype is string, which has no one; give a dtype of numbers or bool");
    return zeros_rule(call, outs);
}

#define MAKER(name_, doc_)                                                                         \
    const coi_op coi_op_##name_ = {                                                                \
        .name = #name_,                                                                            \
        .doc = doc_,                                                                               \
        .num_outputs = 1,                                                                          \
        .not_differentiable = true,                                                                \
        COI_ATTRS(coi_make_attrs),                                                                 \
        .infer = name_##_rule,                                                                     \
        .ref = coi_ref_##name_,                                                                    \
        .run = coi_##name_##_run,                                                                  \
    };                                                                                             \
    co_value *co_##name_(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)           \
    {                                                                                              \
        coi_make_attrs attrs = { .dtype = coi_dtype_attr(dtype) };                                 \
                                                                                                   \
        COI_ENTER(ctx, #name_, NULL);                                                              \
        if (!coi_ints_from_dims(ctx, #name_ ": dims", dims, (size_t)ndim, &attrs.shape))           \
            return NULL;                                                                           \
        return coi_apply(ctx, &coi_op_##name_, NULL, 0, &attrs);                                   \
    }

MAKER(zeros, "A tensor of zeros; for strings, of empty strings.")
MAKER(ones, "A tensor of ones.")

static co_dtype
whole_dtype(int64_t value)
{
    return value >= INT32_MIN && value <= INT32_MAX ? CO_INT32 : CO_INT64;
}

static co_code
fill_rule(coi_call *call, coi_out *outs)
{
    const coi_fill_attrs *attrs = call->attrs;

    outs[0].dtype = attrs->value.kind == CO_KIND_BOOL    ? CO_BOOL
                    : attrs->value.kind == CO_KIND_FLOAT ? CO_FLOAT32
                                                         : whole_dtype(attrs->value.i);
    return shape_rule(call, &attrs->shape, &outs[0]);
}

const coi_op coi_op_fill = {
    .name = "fill",
    .doc = "A tensor filled with one number: int32, float32 or bool, by the kind of the number.",
    .num_outputs = 1,
    .not_differentiable = true,
    COI_ATTRS(coi_fill_attrs),
    .infer = fill_rule,
    .ref = coi_ref_fill,
    .run = coi_fill_run,
};

bool
coi_host_scalar(const co_value *value, coi_scalar *out)
{
    co_dtype stored = coi_kind_of(value)->stored;

    *out = (coi_scalar){ value->kind, 0, 0 };
    if (stored == CO_DTYPE_NONE)
        return false;
    coi_convert(stored, &value->u, stored == CO_FLOAT64 ? CO_FLOAT64 : CO_INT64,
                stored == CO_FLOAT64 ? (void *)&out->f : &out->i, 1);
    return true;
}

/* Anything but a host number is a scalar to repeat, with its dtype and gradient. */
co_value *
co_fill(co_context *ctx, const int64_t *dims, int ndim, co_value *value)
{
    coi_fill_attrs attrs;
    co_value      *tensor, *result;

    COI_ENTER(ctx, "fill", NULL);
    if (!coi_check_value(ctx, value, 4, "value") ||
        !coi_ints_from_dims(ctx, "fill: dims", dims, (size_t)ndim, &attrs.shape))
        return NULL;
    if (coi_host_scalar(value, &attrs.value))
        return coi_apply(ctx, &coi_op_fill, NULL, 0, &attrs);
    if (value->kind == CO_KIND_SYMBOLIC && value->ndim <= 0)
        return co_broadcast_to(ctx, value, dims, ndim);
    tensor = coi_as_tensor(ctx, value, CO_DTYPE_NONE);
    if (tensor == NULL)
        return NULL;
    if (tensor->ndim != 0)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "fill: value has rank %d; it must be a scalar",
                 tensor->ndim);
    coi_unref(&ctx->heap, tensor);
    result = co_broadcast_to(ctx, value, dims, ndim); /* nothing if that failed */
    return result;
}

#define RANGE_DTYPES                                                                               \
    (COI_SIGNED_INTEGERS | COI_FLOATS | COI_DTYPE_BIT(CO_UINT16) | COI_DTYPE_BIT(CO_UINT32))

static co_code
whole_count(coi_call *call, const coi_range_attrs *attrs, co_dtype dtype, int64_t *out)
{
    int64_t  start = attrs->start.i, limit = attrs->limit.i, delta = attrs->delta.i;
    uint64_t distance, step, count;
    co_code  code = coi_rule_number(call, "start", &attrs->start, dtype);

    if (code == CO_OK)
        code = coi_rule_number(call, "limit", &attrs->limit, dtype);
    if (code == CO_OK)
        code = coi_rule_number(call, "delta", &attrs->delta, dtype);
    if (code != CO_OK)
        return code;
    if (delta == 0)
        return coi_invalid(call, "delta is 0; it must lead from start to limit");
    if (delta > 0 ? start > limit : start < limit)
        return coi_invalid(call, "delta %lld does not lead from start %lld to limit %lld",
                           (long long)delta, (long long)start, (long long)limit);
    distance = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
    count = distance / step + (distance % step != 0);
    if (count > INT64_MAX)
        return coi_invalid(call, "%llu elements are more than a tensor can have",
                           (unsigned long long)count);
    *out = (int64_t)count;
    return CO_OK;
}

/* Counted in the precision of the dtype, step by step, as TensorFlow does: range(0, 1, 0.1) has 10
 * elements in float32. */
static co_code
real_count(coi_call *call, const coi_range_attrs *attrs, co_dtype dtype, int64_t *out)
{
    double start = coi_scalar_nearest(&attrs->start, dtype),
           limit = coi_scalar_nearest(&attrs->limit, dtype);
    double delta = coi_scalar_nearest(&attrs->delta, dtype), count;

    if (!isfinite(start) || !isfinite(limit) || !isfinite(delta) || delta == 0)
        return coi_invalid(call, "start %g, limit %g and delta %g must be finite, and delta not 0",
                           start, limit, delta);
    if (delta > 0 ? start > limit : start < limit)
        return coi_invalid(call, "delta %g does not lead from start %g to limit %g", delta, start,
                           limit);
    count = ceil(fabs(coi_nearest(coi_nearest(limit - start, dtype) / delta, dtype)));
    if (!(count < 0x1p62))
        return coi_invalid(call, "%g elements are more than a tensor can have", count);
    *out = (int64_t)count;
    return CO_OK;
}

static co_code
range_rule(coi_call *call, coi_out *outs)
{
    const coi_range_attrs *attrs = call->attrs;
    const coi_scalar      *all[3] = { &attrs->start, &attrs->limit, &attrs->delta };
    co_dtype               dtype = (co_dtype)attrs->dtype, needed = CO_INT32;

    for (int i = 0; i < 3; ++i) {
        if (all[i]->kind == CO_KIND_BOOL)
            return coi_invalid(call, "start, limit and delta must be numbers, not bool");
        if (all[i]->kind == CO_KIND_FLOAT)
            needed = CO_FLOAT32;
        else if (needed == CO_INT32)
            needed = whole_dtype(all[i]->i);
    }
    dtype = dtype == CO_DTYPE_NONE ? needed : dtype;
    if (dtype >= CO_NUM_DTYPES || (RANGE_DTYPES & COI_DTYPE_BIT(dtype)) == 0)
        return coi_invalid(call,
                           "dtype is %s; it must be a floating or integer dtype, not uint8, uint64",
                           co_dtype_name(dtype));
    outs[0].dtype = dtype;
    outs[0].ndim = 1;
    return coi_dtypes[dtype].floating ? real_count(call, attrs, dtype, &outs[0].dims[0])
                                      : whole_count(call, attrs, dtype, &outs[0].dims[0]);
}

const coi_op coi_op_range = {
    .name = "range",
    .doc = "start, start + delta, ... up to but excluding limit.",
    .num_outputs = 1,
    .not_differentiable = true,
    COI_ATTRS(coi_range_attrs),
    .infer = range_rule,
    .ref = coi_ref_range,
    .run = coi_range_run,
};

/* A number from whatever converts to a scalar; `dtype` becomes that of the first tensor. */
static bool
any_scalar(co_context *ctx, co_value *value, int position, const char *name, coi_scalar *out,
           co_dtype *dtype)
{
    co_value *tensor;
    uint64_t  element; /* of any dtype: none is larger */
    bool      is_number;

    if (!coi_check_value(ctx, value, position, name))
        return false;
    if (coi_host_scalar(value, out))
        return true;
    tensor = coi_as_tensor(ctx, value, CO_DTYPE_NONE);
    if (tensor == NULL)
        return false;
    is_number = tensor->ndim == 0 && (COI_NUMBERS & COI_DTYPE_BIT(tensor->dtype)) != 0;
    if (!is_number) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "range: %s has rank %d and dtype %s; it must be a scalar number", name,
                 tensor->ndim, co_dtype_name((co_dtype)tensor->dtype));
    } else if (coi_download(ctx, tensor, &element) != CO_OK) {
        coi_failed(ctx);
        is_number = false;
    } else {
        bool is_float = coi_dtypes[tensor->dtype].floating;

        out->kind = is_float ? CO_KIND_FLOAT : CO_KIND_INT;
        coi_convert((co_dtype)tensor->dtype, &element, is_float ? CO_FLOAT64 : CO_INT64,
                    is_float ? (void *)&out->f : &out->i, 1);
        if (*dtype == CO_DTYPE_NONE)
            *dtype = (co_dtype)tensor->dtype;
    }
    coi_unref(&ctx->heap, tensor);
    return is_number;
}

static bool
is_symbolic(const co_context *ctx, const co_value *value)
{
    return value != NULL && coi_is_live(&ctx->heap, value) && value->kind == CO_KIND_SYMBOLIC;
}

/* In a captured function that computes a bound: the bounds are operands. */
static co_value *
range_of_symbols(co_context *ctx, co_value *start, co_value *limit, co_value *delta, co_dtype dtype)
{
    static const char *const keys[] = { "delta", "dtype", "limit", "start" };
    co_value *const items[] = { delta, co_string(ctx, co_dtype_name(dtype)), limit, start };

    if (!coi_check_value(ctx, start, 2, "start") || !coi_check_value(ctx, limit, 3, "limit") ||
        !coi_check_value(ctx, delta, 4, "delta") || items[1] == NULL)
        return NULL;
    return co_op_call(ctx, "range", co_tuple(ctx, NULL, 0), co_dict(ctx, keys, items, 4));
}

co_value *
co_range(co_context *ctx, co_value *start, co_value *limit, co_value *delta, co_dtype dtype)
{
    coi_range_attrs attrs;

    COI_ENTER(ctx, "range", NULL);
    if (ctx->capture != NULL &&
        (is_symbolic(ctx, start) || is_symbolic(ctx, limit) || is_symbolic(ctx, delta)))
        return range_of_symbols(ctx, start, limit, delta, dtype);
    memset(&attrs, 0, sizeof(attrs));
    if (!any_scalar(ctx, start, 2, "start", &attrs.start, &dtype) ||
        !any_scalar(ctx, limit, 3, "limit", &attrs.limit, &dtype) ||
        !any_scalar(ctx, delta, 4, "delta", &attrs.delta, &dtype))
        return NULL;
    attrs.dtype = coi_dtype_attr(dtype);
    return coi_apply(ctx, &coi_op_range, NULL, 0, &attrs);
}

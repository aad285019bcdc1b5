/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public calls that inspect values: dtype, shape, data, text.
 */
#include "base/text.h"
#include "context/context.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Conversions count references in what they read, which no caller sees: const to them. */
static co_value *
counted(const co_value *value)
{
    return (co_value *)(uintptr_t)value;
}

/* The shape and dtype of what has one without being read: tensors, specs, variables. */
static bool
described(co_context *ctx, const co_value *value, coi_shape *shape, co_dtype *dtype)
{
    co_value *tensor;

    if (!coi_check_value(ctx, value, 2, "value"))
        return false;
    if (coi_kind_of(value)->describe != NULL) {
        coi_kind_of(value)->describe(value, shape, dtype);
        return true;
    }
    tensor = coi_as_tensor(ctx, counted(value), CO_DTYPE_NONE);
    if (tensor == NULL)
        return false;
    coi_kind_of(tensor)->describe(tensor, shape, dtype);
    coi_unref(&ctx->heap, tensor);
    return true;
}

co_dtype
co_value_dtype(co_context *ctx, const co_value *value)
{
    coi_shape shape;
    co_dtype  dtype;

    COI_ENTER(ctx, "value_dtype", CO_DTYPE_NONE);
    return described(ctx, value, &shape, &dtype) ? dtype : CO_DTYPE_NONE;
}

int
co_value_ndim(co_context *ctx, const co_value *value)
{
    coi_shape shape;
    co_dtype  dtype;

    COI_ENTER(ctx, "value_ndim", 0);
    return described(ctx, value, &shape, &dtype) ? shape.ndim : 0;
}

int64_t
co_value_dim(co_context *ctx, const co_value *value, int axis)
{
    coi_shape shape;
    co_dtype  dtype;

    COI_ENTER(ctx, "value_dim", 0);
    if (!described(ctx, value, &shape, &dtype))
        return 0;
    if (axis < -shape.ndim || axis >= shape.ndim) {
        if (shape.ndim > 0)
            coi_fail(
                ctx, CO_INVALID_ARGUMENT,
                "argument 3 (axis) of value_dim is %d for a value of rank %d; it must be in [%d, %d)",
                axis, shape.ndim, -shape.ndim, shape.ndim);
        else
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "argument 3 (axis) of value_dim is %d for a value of %s, which has no axes",
                     axis, shape.ndim == 0 ? "rank 0" : "unknown rank");
        return 0;
    }
    return shape.dims[axis < 0 ? axis + shape.ndim : axis];
}

int64_t
co_value_num_elements(co_context *ctx, const co_value *value)
{
    coi_shape shape;
    co_dtype  dtype;
    int64_t   count = 1;

    COI_ENTER(ctx, "value_num_elements", 0);
    if (!described(ctx, value, &shape, &dtype))
        return 0;
    for (int i = 0; i < shape.ndim; ++i)
        count = shape.dims[i] < 0 || count < 0 ? -1 : count * shape.dims[i];
    return shape.ndim < 0 ? -1 : count;
}

const void *
co_value_data(co_context *ctx, const co_value *tensor)
{
    COI_ENTER(ctx, "value_data", NULL);
    if (!coi_check_kind(ctx, tensor, CO_KIND_TENSOR, 2, "tensor"))
        return NULL;
    if (tensor->dtype == CO_STRING) {
        coi_fail(ctx, CO_TYPE_ERROR, "a string tensor has no flat data; read it with co_string_at");
        return NULL;
    }
    return coi_host_data(ctx, counted(tensor));
}

const char *
co_string_at(co_context *ctx, const co_value *value, int64_t i, size_t *nbytes)
{
    const coi_text *text;
    coi_text        alone;
    int64_t         count = 1;

    COI_ENTER(ctx, "string_at", NULL);
    if (!coi_check_value(ctx, value, 2, "value"))
        return NULL;
    text = coi_texts_of(value, &alone, &count);
    if (text == NULL) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "argument 2 (value) of string_at is %s%s; it must be a string or a tensor of strings",
            coi_a_kind(value->kind), value->kind == CO_KIND_TENSOR ? " of numbers" : "");
        return NULL;
    }
    if (i < 0 || i >= count) {
        coi_fail(ctx, CO_OUT_OF_RANGE,
                 "argument 3 (i) of string_at is %lld; there %s %lld string%s, from 0",
                 (long long)i, count == 1 ? "is" : "are", (long long)count, COI_S(count));
        return NULL;
    }
    text += i;
    if (nbytes != NULL)
        *nbytes = text->nbytes;
    return text->data;
}

/* Number `text` is out of the range of an integer dtype; `which` says where it was found. */
static void
fail_misfit(co_context *ctx, const char *which, const char *text, co_dtype dtype)
{
    int64_t low, high;

    coi_integer_limits(dtype, &low, &high);
    coi_fail(ctx, CO_VALUE_ERROR,
             "%s of %s is %s, which is out of range of %s; the limits are %" PRId64 " and %" PRIu64,
             which, ctx->call, text, co_dtype_name(dtype), low,
             dtype == CO_UINT64 ? UINT64_MAX : (uint64_t)high);
}

/* Convert the elements of a tensor; an error, and no element, if one of them does not fit. */
static void
convert_elements(co_context *ctx, const co_value *tensor, co_dtype dtype, void *out)
{
    const void *data = coi_data_on_host(tensor);
    int64_t     n = tensor->u.tensor.num_elements;
    int64_t     misfit = coi_first_misfit((co_dtype)tensor->dtype, data, dtype, n);
    char        which[60] = "argument 2 (value)", text[40];

    if (misfit == n) {
        coi_convert((co_dtype)tensor->dtype, data, dtype, out, n);
        return;
    }
    if (n > 1)
        coi_text_line(which, sizeof(which), "element %" PRId64 " of argument 2 (value)", misfit);
    coi_format_element(tensor, misfit, text, sizeof(text));
    fail_misfit(ctx, which, text, dtype);
}

/* The same wherever the tensor is. */
static void
convert_all(co_context *ctx, co_value *tensor, co_dtype dtype, void *out)
{
    co_value *host = coi_bring_tensor_to_host(ctx, tensor);

    if (host == NULL)
        coi_failed(ctx);
    else
        convert_elements(ctx, host, dtype, out);
    coi_unref(&ctx->heap, host);
}

/* A host number, exact: not through the float32 tensor that it would become. */
static void
host_item(co_context *ctx, const co_value *value, co_dtype dtype, void *out)
{
    co_dtype    from = value->kind == CO_KIND_INT ? CO_INT64 : CO_FLOAT64;
    const void *number = value->kind == CO_KIND_INT ? (const void *)&value->u.i : &value->u.f;
    char        text[40];

    if (coi_first_misfit(from, number, dtype, 1) == 1) {
        coi_convert(from, number, dtype, out, 1);
        return;
    }
    coi_format(&ctx->heap, value, text, sizeof(text));
    fail_misfit(ctx, "argument 2 (value)", text, dtype);
}

/* The one element of a value, converted. */
static void
item(co_context *ctx, const co_value *value, co_dtype dtype, void *out)
{
    co_value *tensor;

    if (!coi_check_value(ctx, value, 2, "value"))
        return;
    if (value->kind == CO_KIND_INT || value->kind == CO_KIND_FLOAT) {
        host_item(ctx, value, dtype, out);
        return;
    }
    tensor = coi_as_tensor(ctx, counted(value), CO_DTYPE_NONE);
    if (tensor == NULL)
        return;
    if (tensor->dtype == CO_STRING)
        coi_fail(ctx, CO_TYPE_ERROR, "argument 2 (value) of %s is a string, not a number",
                 ctx->call);
    else if (tensor->u.tensor.num_elements != 1)
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument 2 (value) of %s has %lld elements; it must have one (co_value_copy_data reads "
            "them all)",
            ctx->call, (long long)tensor->u.tensor.num_elements);
    else
        convert_all(ctx, tensor, dtype, out);
    coi_unref(&ctx->heap, tensor);
}

int64_t
co_item_int(co_context *ctx, const co_value *value)
{
    int64_t out = 0;

    COI_ENTER(ctx, "item_int", 0);
    item(ctx, value, CO_INT64, &out);
    return out;
}

double
co_item_float(co_context *ctx, const co_value *value)
{
    double out = NAN; /* 0 would look like a perfect loss */

    COI_ENTER(ctx, "item_float", NAN);
    item(ctx, value, CO_FLOAT64, &out);
    return out;
}

co_code
co_value_copy_data(co_context *ctx, const co_value *value, co_dtype dtype, void *out,
                   int64_t capacity)
{
    co_value *tensor;
    int64_t   count;

    COI_ENTER_CODE(ctx, "value_copy_data");
    if (!coi_check_value(ctx, value, 2, "value"))
        return ctx->error.code;
    if ((unsigned)dtype - 1 >= CO_NUM_DTYPES - 1 || dtype == CO_STRING)
        return coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 3 (dtype) of value_copy_data is %d (%s); it must be a dtype of numbers",
            (int)dtype, co_dtype_name(dtype));
    tensor = coi_as_tensor(ctx, counted(value), CO_DTYPE_NONE);
    if (tensor == NULL)
        return ctx->error.code;
    count = tensor->u.tensor.num_elements;
    if (tensor->dtype == CO_STRING)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (value) of value_copy_data holds strings, which do not convert to %s; "
                 "co_string_at reads them",
                 co_dtype_name(dtype));
    else if (count > capacity || (out == NULL && count > 0))
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "%lld element%s %s not fit in argument 4 (out), which has room for %lld",
                 (long long)count, COI_S(count), count == 1 ? "does" : "do",
                 (long long)(out != NULL ? capacity : 0));
    else
        convert_all(ctx, tensor, dtype, out);
    coi_unref(&ctx->heap, tensor);
    return ctx->error.code;
}

const char *
co_value_device(co_context *ctx, const co_value *value)
{
    COI_ENTER(ctx, "value_device", "");
    if (!coi_check_value(ctx, value, 2, "value"))
        return "";
    if (coi_kind_of(value)->device != NULL)
        return coi_device_text_here(ctx, coi_kind_of(value)->device(ctx, counted(value)));
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (value) of value_device is %s, which lives on no device",
             coi_a_kind(value->kind));
    return "";
}

/* Works while there is an error, because values help to find its cause. */
size_t
co_format(co_context *ctx, const co_value *value, char *out, size_t capacity)
{
    if (out == NULL)
        capacity = 0;
    if (capacity > 0)
        out[0] = '\0';
    COI_GUARD(ctx, 0);
    return coi_format(&ctx->heap, value, out, capacity);
}

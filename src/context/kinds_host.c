/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of host values: numbers, strings and none. A number takes the dtype of the other
 * operand, and a default dtype without one (C-VAL-4).
 */
#include "context/context.h"

#include <inttypes.h>
#include <string.h>

/* --- dtypes --- */

static co_dtype
int_dtype(const co_value *value)
{
    return value->u.i >= INT32_MIN && value->u.i <= INT32_MAX ? CO_INT32 : CO_INT64;
}

static co_dtype
float_dtype(const co_value *value)
{
    (void)value;
    return CO_FLOAT32;
}

static co_dtype
bool_dtype(const co_value *value)
{
    (void)value;
    return CO_BOOL;
}

static co_dtype
string_dtype(const co_value *value)
{
    (void)value;
    return CO_STRING;
}

static bool
int_becomes(co_dtype dtype)
{
    return coi_dtypes[dtype].integer || coi_dtypes[dtype].floating;
}

static bool
float_becomes(co_dtype dtype)
{
    return coi_dtypes[dtype].floating;
}

static bool
bool_becomes(co_dtype dtype)
{
    return dtype == CO_BOOL;
}

static bool
string_becomes(co_dtype dtype)
{
    return dtype == CO_STRING;
}

/* --- conversion --- */

/* Whether a host integer is a value of dtype; what does not fit is an error, not a wrap. */
static bool
integer_fits(int64_t i, co_dtype dtype)
{
    int64_t low, high;

    coi_integer_limits(dtype, &low, &high);
    return !coi_dtypes[dtype].integer || (i >= low && i <= high);
}

static void
refuse_conversion(co_context *ctx, const co_value *value, co_dtype dtype)
{
    bool is_text = dtype == CO_STRING || coi_kind_of(value)->stored == CO_STRING;
    char text[60];

    co_format(ctx, (co_value *)(uintptr_t)value, text, sizeof(text));
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "a %s does not convert to %s; it is %s; give a value of that dtype%s",
             coi_kind_of(value)->name, co_dtype_name(dtype), text,
             is_text ? "" : ", as co_cast makes");
}

/* A host number goes to any number type that holds it; a float never to an integer, a bool only to
 * bool. */
static bool
host_converts(co_context *ctx, const co_value *value, co_dtype dtype)
{
    const coi_kind_ops *row = coi_kind_of(value);

    if (!row->becomes(dtype)) {
        refuse_conversion(ctx, value, dtype);
        return false;
    }
    if (row->stored == CO_INT64 && !integer_fits(value->u.i, dtype)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "the number %lld does not fit in %s",
                 (long long)value->u.i, co_dtype_name(dtype));
        return false;
    }
    return true;
}

bool
coi_put_host(co_context *ctx, const co_value *value, co_dtype dtype, void *out)
{
    if (!host_converts(ctx, value, dtype))
        return false;
    coi_convert(coi_kind_of(value)->stored, &value->u, dtype, out, 1);
    return true;
}

static co_value *
number_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    co_device *device = coi_current_device(ctx);
    co_value  *tensor;

    if (device == NULL)
        return NULL;
    if (dtype == CO_DTYPE_NONE)
        dtype = coi_host_dtype(value);
    tensor = coi_tensor_new(&ctx->heap, device->host, dtype, NULL, 0, 1, coi_err(ctx));
    if (tensor != NULL && !coi_put_host(ctx, value, dtype, coi_data_on_host(tensor))) {
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    return coi_place_tensor(ctx, tensor, device);
}

static co_value *
make_text(co_context *ctx, void *arg)
{
    const co_value *value = arg;
    co_device      *device = coi_current_device(ctx);
    coi_text        text = { value->u.string.data, value->u.string.nbytes };

    return device != NULL ? coi_tensor_strings(&ctx->heap, device, NULL, 0, 1, &text, coi_err(ctx))
                          : NULL;
}

static co_value *
string_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    return host_converts(ctx, value, dtype != CO_DTYPE_NONE ? dtype : CO_STRING)
               ? coi_make_tensor(ctx, make_text, value)
               : NULL;
}

/* --- what replicas have in common: floats are compared by handle alone (AMB-13) --- */

static bool
same_int(const co_value *a, const co_value *b)
{
    return a->u.i == b->u.i;
}

static bool
same_bool(const co_value *a, const co_value *b)
{
    return a->u.b == b->u.b;
}

static bool
same_string(const co_value *a, const co_value *b)
{
    return a->u.string.nbytes == b->u.string.nbytes &&
           memcmp(a->u.string.data, b->u.string.data, a->u.string.nbytes) == 0;
}

static bool
same_none(const co_value *a, const co_value *b)
{
    (void)a;
    (void)b;
    return true;
}

/* --- text --- */

static void
print_int(coi_printer *out, const co_value *value)
{
    coi_print(out, "%" PRId64, value->u.i);
}

static void
print_float(coi_printer *out, const co_value *value)
{
    coi_print_real(out, value->u.f, 17);
}

static void
print_bool(coi_printer *out, const co_value *value)
{
    coi_print(out, value->u.b ? "true" : "false");
}

static void
print_string(coi_printer *out, const co_value *value)
{
    coi_print_text(out, value->u.string.data, value->u.string.nbytes);
}

static void
print_none(coi_printer *out, const co_value *value)
{
    (void)value;
    coi_print(out, "none");
}

/* --- the rows --- */

static void
destroy_string(coi_heap *heap, co_value *value)
{
    coi_small_free(heap, value->u.string.data, value->u.string.nbytes + 1);
}

static const coi_text *
string_texts(const co_value *value, coi_text *room, int64_t *n)
{
    *n = 1;
    *room = (coi_text){ value->u.string.data, value->u.string.nbytes };
    return room;
}

/* None is its own type. */
static co_value *
none_itself(coi_heap *heap, co_value *none, co_error_info *err)
{
    (void)heap;
    (void)err;
    coi_ref(none);
    return none;
}

const coi_kind_ops coi_int_kind = {
    .name = "host integer",
    .a_name = "a host integer",
    .is_host = true,
    .stored = CO_INT64,
    .print = print_int,
    .as_tensor = number_tensor,
    .host_dtype = int_dtype,
    .becomes = int_becomes,
    .same = same_int,
};

const coi_kind_ops coi_float_kind = {
    .name = "host float",
    .a_name = "a host float",
    .is_host = true,
    .stored = CO_FLOAT64,
    .print = print_float,
    .as_tensor = number_tensor,
    .host_dtype = float_dtype,
    .becomes = float_becomes,
};

const coi_kind_ops coi_bool_kind = {
    .name = "host bool",
    .a_name = "a host bool",
    .is_host = true,
    .stored = CO_BOOL,
    .print = print_bool,
    .as_tensor = number_tensor,
    .host_dtype = bool_dtype,
    .becomes = bool_becomes,
    .same = same_bool,
};

const coi_kind_ops coi_string_kind = {
    .name = "host string",
    .a_name = "a host string",
    .is_host = true,
    .destroy = destroy_string,
    .print = print_string,
    .as_tensor = string_tensor,
    .host_dtype = string_dtype,
    .becomes = string_becomes,
    .same = same_string,
    .texts = string_texts,
};

const coi_kind_ops coi_none_kind = {
    .name = "none",
    .a_name = "none",
    .print = print_none,
    .type = none_itself,
    .same = same_none,
};

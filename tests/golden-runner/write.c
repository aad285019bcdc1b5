/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values into the JSON of the recording. Floats of 16 bits are taken apart here and not by the
 * library: the library is what is being tested.
 */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *
golden_write_double(double value)
{
    if (isnan(value))
        return json_string("nan");
    if (isinf(value))
        return json_string(value > 0 ? "inf" : "-inf");
    return json_real(value);
}

double
golden_bfloat16_to_double(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float    value;

    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

double
golden_half_to_double(uint16_t bits)
{
    int    exponent = (bits >> 10) & 31;
    int    fraction = bits & 1023;
    double magnitude;

    if (exponent == 31)
        magnitude = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, -24);
    else
        magnitude = ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

uint16_t
golden_double_to_bfloat16(double value)
{
    float    narrow = (float)value;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof(bits));
    if (isnan(value))
        return 0x7fc0;
    bits += 0x7fff + ((bits >> 16) & 1); /* to nearest, ties to even */
    return (uint16_t)(bits >> 16);
}

uint16_t
golden_double_to_half(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double   magnitude = fabs(value);
    int      exponent;
    double   scaled;

    if (isnan(value))
        return 0x7e00;
    if (magnitude >= 65520.0)
        return (uint16_t)(sign | 0x7c00);
    if (magnitude <
        ldexp(1.0,
              -14)) /* subnormal: steps of 2^-24; 1024 of them carry into the smallest normal */
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(magnitude, 24)));
    frexp(magnitude, &exponent); /* magnitude = m * 2^exponent, m in [0.5, 1) */
    scaled = nearbyint(ldexp(magnitude, 11 - exponent)); /* 1024 to 2048 */
    return (uint16_t)(sign | (uint16_t)((exponent + 13) * 1024 + (int)scaled));
}

typedef json_t *(*element_writer)(const void *data, int64_t i);

#define WRITE_INTEGER(name, type)                                                                  \
    static json_t *write_##name(const void *data, int64_t i)                                       \
    {                                                                                              \
        return json_integer((json_int_t)((const type *)data)[i]);                                  \
    }
#define WRITE_FLOAT(name, type, convert)                                                           \
    static json_t *write_##name(const void *data, int64_t i)                                       \
    {                                                                                              \
        return golden_write_double(convert(((const type *)data)[i]));                              \
    }
WRITE_INTEGER(bool, uint8_t)
WRITE_INTEGER(int8, int8_t)
WRITE_INTEGER(int16, int16_t)
WRITE_INTEGER(int32, int32_t)
WRITE_INTEGER(int64, int64_t)
WRITE_INTEGER(uint8, uint8_t)
WRITE_INTEGER(uint16, uint16_t)
WRITE_INTEGER(uint32, uint32_t)
WRITE_INTEGER(uint64, uint64_t)
WRITE_FLOAT(float16, uint16_t, golden_half_to_double)
WRITE_FLOAT(bfloat16, uint16_t, golden_bfloat16_to_double)
WRITE_FLOAT(float32, float, (double))
WRITE_FLOAT(float64, double, )

static const element_writer writers[CO_NUM_DTYPES] = {
    [CO_BOOL] = write_bool,       [CO_INT8] = write_int8,         [CO_INT16] = write_int16,
    [CO_INT32] = write_int32,     [CO_INT64] = write_int64,       [CO_UINT8] = write_uint8,
    [CO_UINT16] = write_uint16,   [CO_UINT32] = write_uint32,     [CO_UINT64] = write_uint64,
    [CO_FLOAT16] = write_float16, [CO_BFLOAT16] = write_bfloat16, [CO_FLOAT32] = write_float32,
    [CO_FLOAT64] = write_float64,
};

/* Bytes as a JSON string: each byte is one character. */
static json_t *
write_bytes(const char *bytes, size_t nbytes)
{
    char   *text = malloc(2 * nbytes + 1);
    size_t  n = 0;
    json_t *json;

    if (text == NULL)
        return json_null();
    for (size_t i = 0; i < nbytes; ++i) {
        unsigned char byte = (unsigned char)bytes[i];

        if (byte < 0x80) {
            text[n++] = (char)byte;
        } else {
            text[n++] = (char)(0xc0 | (byte >> 6));
            text[n++] = (char)(0x80 | (byte & 0x3f));
        }
    }
    json = json_stringn(text, n);
    free(text);
    return json;
}

static json_t *
write_shape(co_context *ctx, co_value *value)
{
    int     ndim = co_value_ndim(ctx, value);
    json_t *shape;

    if (ndim < 0)
        return json_null();
    shape = json_array();
    for (int i = 0; i < ndim; ++i)
        json_array_append_new(shape, json_integer(co_value_dim(ctx, value, i)));
    return shape;
}

/* The elements of a dataset, or what its elements are. */
static json_t *
write_dataset(co_context *ctx, co_value *value)
{
    co_dataset *dataset = co_value_dataset(ctx, value);
    json_t     *inside = co_value_kind(value) == CO_KIND_SPEC
                             ? golden_write_value(ctx, co_element_spec(ctx, dataset))
                             : golden_write_elements(ctx, dataset);

    return json_pack("{s:o}", "dataset", inside);
}

static json_t *
write_spec(co_context *ctx, co_value *value)
{
    json_t *json;

    if (co_value_dtype(ctx, value) == CO_DTYPE_NONE)
        return write_dataset(ctx, value);
    json = json_object();
    json_object_set_new(json, "dtype", json_string(co_dtype_name(co_value_dtype(ctx, value))));
    json_object_set_new(json, "shape", write_shape(ctx, value));
    return json;
}

static json_t *
write_tensor(co_context *ctx, co_value *value)
{
    json_t     *json = write_spec(ctx, value);
    json_t     *list = json_array();
    co_dtype    dtype = co_value_dtype(ctx, value);
    int64_t     n = co_value_num_elements(ctx, value);
    const void *data;

    json_object_set_new(json, "data", list);
    if (dtype == CO_STRING) {
        for (int64_t i = 0; i < n && co_ok(ctx); ++i) {
            size_t      nbytes = 0;
            const char *bytes = co_string_at(ctx, value, i, &nbytes);

            json_array_append_new(list, write_bytes(bytes ? bytes : "", bytes ? nbytes : 0));
        }
        return json;
    }
    data = co_value_data(ctx, value);
    if (data == NULL || dtype >= CO_NUM_DTYPES || writers[dtype] == NULL)
        return json;
    for (int64_t i = 0; i < n; ++i)
        json_array_append_new(list, writers[dtype](data, i));
    return json;
}

static json_t *
write_int(co_context *ctx, co_value *value)
{
    return json_integer(co_item_int(ctx, value));
}

static json_t *
write_host_float(co_context *ctx, co_value *value)
{
    return golden_write_double(co_item_float(ctx, value));
}

static json_t *
write_host_bool(co_context *ctx, co_value *value)
{
    return json_boolean(co_item_int(ctx, value) != 0);
}

static json_t *
write_host_string(co_context *ctx, co_value *value)
{
    size_t      nbytes = 0;
    const char *bytes = co_string_at(ctx, value, 0, &nbytes);

    return write_bytes(bytes ? bytes : "", bytes ? nbytes : 0);
}

static json_t *
write_none(co_context *ctx, co_value *value)
{
    (void)ctx;
    (void)value;
    return json_null();
}

static json_t *
write_variable(co_context *ctx, co_value *value)
{
    co_value *read = co_variable_read(ctx, value);

    return read != NULL ? write_tensor(ctx, read) : json_null();
}

static json_t *
write_slices(co_context *ctx, co_value *value)
{
    json_t   *json = json_object();
    json_t   *parts = json_object();
    co_value *dense_shape = co_slices_dense_shape(ctx, value);

    json_object_set_new(json, "indexed_slices", parts);
    json_object_set_new(parts, "values", golden_write_value(ctx, co_slices_values(ctx, value)));
    json_object_set_new(parts, "indices", golden_write_value(ctx, co_slices_indices(ctx, value)));
    json_object_set_new(parts, "dense_shape", golden_write_value(ctx, dense_shape));
    return json;
}

/* {"list": [...]} and its relatives. */
static json_t *
write_items(co_context *ctx, co_value *value, const char *name)
{
    json_t *json = json_object();
    json_t *items = json_array();
    size_t  n = co_num_items(ctx, value);

    json_object_set_new(json, name, items);
    for (size_t i = 0; i < n; ++i)
        json_array_append_new(items, golden_write_value(ctx, co_at(ctx, value, i)));
    return json;
}

static json_t *
write_keyed(co_context *ctx, co_value *value, const char *name)
{
    json_t *json = json_object();
    json_t *items = json_object();
    size_t  n = co_num_items(ctx, value);

    json_object_set_new(json, name, items);
    for (size_t i = 0; i < n; ++i) {
        const char *key = co_key(ctx, value, i);

        json_object_set_new(items, key ? key : "?", golden_write_value(ctx, co_at(ctx, value, i)));
    }
    return json;
}

static json_t *
write_bundle(co_context *ctx, co_value *value)
{
    return write_items(ctx, value, "per_replica");
}

static json_t *
write_list(co_context *ctx, co_value *value)
{
    return write_items(ctx, value, "list");
}

static json_t *
write_tuple(co_context *ctx, co_value *value)
{
    return write_items(ctx, value, "tuple");
}

static json_t *
write_named_tuple(co_context *ctx, co_value *value)
{
    return write_keyed(ctx, value, "named_tuple");
}

static json_t *
write_map(co_context *ctx, co_value *value)
{
    return write_keyed(ctx, value, "dict");
}

static json_t *(*const kinds[CO_NUM_KINDS])(co_context *ctx, co_value *value) = {
    [CO_KIND_NULL] = write_none,
    [CO_KIND_TENSOR] = write_tensor,
    [CO_KIND_INT] = write_int,
    [CO_KIND_FLOAT] = write_host_float,
    [CO_KIND_BOOL] = write_host_bool,
    [CO_KIND_STRING] = write_host_string,
    [CO_KIND_NONE] = write_none,
    [CO_KIND_VARIABLE] = write_variable,
    [CO_KIND_PER_REPLICA] = write_bundle,
    [CO_KIND_MIRRORED] = write_bundle,
    [CO_KIND_SLICES] = write_slices,
    [CO_KIND_SPEC] = write_spec,
    [CO_KIND_LIST] = write_list,
    [CO_KIND_TUPLE] = write_tuple,
    [CO_KIND_NAMED_TUPLE] = write_named_tuple,
    [CO_KIND_DICT] = write_map,
    [CO_KIND_DATASET] = write_dataset,
};

json_t *
golden_write_value(co_context *ctx, co_value *value)
{
    co_kind kind = co_value_kind(value);

    if (kind >= CO_NUM_KINDS || kinds[kind] == NULL)
        return json_null();
    return kinds[kind](ctx, value);
}

json_t *
golden_write_error(co_context *ctx)
{
    const co_error_info *error = co_error(ctx);
    json_t              *json = json_object();

    json_object_set_new(json, "kind", json_string(co_code_kind(error->code)));
    json_object_set_new(json, "message", write_bytes(error->message, strlen(error->message)));
    co_clear(ctx);
    return json;
}

json_t *
golden_write_hex(co_context *ctx, co_value *value)
{
    size_t      n = 0;
    const char *bytes;
    char       *hex;
    json_t     *json;

    if (co_value_kind(value) == CO_KIND_NONE || !co_ok(ctx))
        return json_null();
    bytes = co_string_at(ctx, value, 0, &n);
    hex = malloc(2 * n + 1);
    if (hex == NULL)
        return json_null();
    hex[0] = '\0';
    for (size_t i = 0; i < n; ++i)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned)(unsigned char)bytes[i]);
    json = json_string(hex);
    free(hex);
    return json;
}

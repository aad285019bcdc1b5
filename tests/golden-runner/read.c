/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of the recording into values. Everything is checked: a folder of data may come from
 * anywhere. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 4096 /* elements of one structure */

bool
golden_is_tensor(const json_t *json)
{
    return json_is_object(json) && json_object_get(json, "dtype") != NULL &&
           json_object_get(json, "data") != NULL;
}

char *
golden_read_bytes(json_t *json, size_t *nbytes)
{
    const unsigned char *text = (const unsigned char *)json_string_value(json);
    size_t               length = json_string_length(json);
    char                *bytes = text != NULL ? malloc(length + 1) : NULL;
    size_t               n = 0;

    if (bytes == NULL)
        return NULL;
    for (size_t i = 0; i < length; ++i) {
        if (text[i] < 0x80) {
            bytes[n++] = (char)text[i];
        } else if ((text[i] & 0xfc) == 0xc0 && i + 1 < length) { /* U+0080 to U+00FF */
            bytes[n++] = (char)(((text[i] & 3) << 6) | (text[i + 1] & 0x3f));
            ++i;
        } else {
            free(bytes);
            return NULL;
        }
    }
    bytes[n] = '\0';
    *nbytes = n;
    return bytes;
}

/* A number, or one of the three strings. */
static bool
read_double(const json_t *json, double *out)
{
    const char *text = json_string_value(json);

    if (json_is_number(json))
        *out = json_number_value(json);
    else if (json_is_boolean(json))
        *out = json_is_true(json) ? 1.0 : 0.0;
    else if (text != NULL && strcmp(text, "nan") == 0)
        *out = (double)NAN;
    else if (text != NULL && strcmp(text, "inf") == 0)
        *out = (double)INFINITY;
    else if (text != NULL && strcmp(text, "-inf") == 0)
        *out = -(double)INFINITY;
    else
        return false;
    return true;
}

static bool
read_integer(const json_t *json, int64_t *out)
{
    if (json_is_integer(json))
        *out = json_integer_value(json);
    else if (json_is_boolean(json))
        *out = json_is_true(json) ? 1 : 0;
    else
        return false;
    return true;
}

/* Store one element; false if the JSON is not a number of that dtype. */
static bool
store_element(co_dtype dtype, void *data, size_t i, const json_t *json)
{
    int64_t integer = 0;
    double  number = 0.0;

    if (co_dtype_is_floating(dtype)) {
        if (!read_double(json, &number))
            return false;
        switch (dtype) {
        case CO_FLOAT16: ((uint16_t *)data)[i] = golden_double_to_half(number); break;
        case CO_BFLOAT16: ((uint16_t *)data)[i] = golden_double_to_bfloat16(number); break;
        case CO_FLOAT32: ((float *)data)[i] = (float)number; break;
        default: ((double *)data)[i] = number; break;
        }
        return true;
    }
    if (!read_integer(json, &integer))
        return false;
    switch (co_dtype_size(dtype)) { /* the low bytes are the value for signed and unsigned alike */
    case 1: ((uint8_t *)data)[i] = (uint8_t)integer; break;
    case 2: ((uint16_t *)data)[i] = (uint16_t)integer; break;
    case 4: ((uint32_t *)data)[i] = (uint32_t)integer; break;
    default: ((uint64_t *)data)[i] = (uint64_t)integer; break;
    }
    return true;
}

static co_value *
read_string_tensor(golden_case *c, co_context *ctx, const int64_t *dims, size_t ndim, json_t *list)
{
    size_t    n = json_array_size(list);
    char    **bytes = calloc(n + 1, sizeof(*bytes));
    size_t   *nbytes = calloc(n + 1, sizeof(*nbytes));
    bool      is_good = bytes != NULL && nbytes != NULL;
    co_value *value = NULL;

    for (size_t i = 0; is_good && i < n; ++i) {
        bytes[i] = golden_read_bytes(json_array_get(list, i), &nbytes[i]);
        is_good = bytes[i] != NULL;
    }
    if (is_good)
        value = co_tensor_bytes(ctx, dims, (int)ndim, (const void *const *)bytes, nbytes);
    else
        golden_fail(c, "a string tensor of the case holds something that is not a byte string");
    for (size_t i = 0; bytes != NULL && i < n; ++i)
        free(bytes[i]);
    free(bytes);
    free(nbytes);
    return value;
}

static bool
read_dims(golden_case *c, const json_t *shape, int64_t *dims, size_t *ndim, size_t *num_elements)
{
    json_t *item;
    size_t  i;

    *num_elements = 1;
    if (!json_is_array(shape) || json_array_size(shape) > CO_MAX_DIMS) {
        golden_fail(c, "a tensor of the case has no shape of at most %d dimensions", CO_MAX_DIMS);
        return false;
    }
    *ndim = json_array_size(shape);
    json_array_foreach(shape, i, item)
    {
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) > INT32_MAX) {
            golden_fail(c, "dimension %zu of a tensor of the case is not a size", i);
            return false;
        }
        dims[i] = json_integer_value(item);
        if (__builtin_mul_overflow(*num_elements, (size_t)dims[i], num_elements)) {
            golden_fail(c, "the shape of a tensor of the case is too large");
            return false;
        }
    }
    return true;
}

static co_value *
read_tensor(golden_case *c, co_context *ctx, json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "dtype"));
    co_dtype    dtype = name != NULL ? co_dtype_from_name(name) : CO_DTYPE_NONE;
    json_t     *list = json_object_get(json, "data");
    int64_t     dims[CO_MAX_DIMS] = { 0 };
    size_t      ndim, n;
    void       *data;
    co_value   *value = NULL;

    if (dtype == CO_DTYPE_NONE) {
        golden_fail(c, "dtype '%s' of the case is not one of the library's", name ? name : "?");
        return NULL;
    }
    if (!read_dims(c, json_object_get(json, "shape"), dims, &ndim, &n))
        return NULL;
    if (!json_is_array(list) || json_array_size(list) != n) {
        golden_fail(c, "a tensor of the case has %zu elements, its shape says %zu",
                    json_array_size(list), n);
        return NULL;
    }
    if (dtype == CO_STRING)
        return read_string_tensor(c, ctx, dims, ndim, list);
    data = calloc(n + 1, co_dtype_size(dtype));
    for (size_t i = 0; data != NULL && i < n; ++i) {
        if (!store_element(dtype, data, i, json_array_get(list, i))) {
            golden_fail(c, "element %zu of a tensor of the case is no %s", i, name);
            free(data);
            return NULL;
        }
    }
    if (data != NULL)
        value = co_tensor(ctx, dtype, dims, (int)ndim, data);
    free(data);
    return value;
}

/* {"list": [...]}, {"tuple": [...]}, {"per_replica": [...]} */
static co_value *
read_items(golden_case *c, co_context *ctx, json_t *list,
           co_value *(*make)(co_context *ctx, co_value *const *items, size_t n))
{
    size_t     n = json_array_size(list);
    co_value **items;
    co_value  *value = NULL;
    size_t     i;

    if (!json_is_array(list) || n > MAX_NODES) {
        golden_fail(c, "a structure of the case is not a list of at most %d items", MAX_NODES);
        return NULL;
    }
    items = calloc(n + 1, sizeof(co_value *));
    for (i = 0; items != NULL && i < n; ++i) {
        items[i] = golden_read_value(c, ctx, json_array_get(list, i));
        if (items[i] == NULL)
            break;
    }
    if (items != NULL && i == n)
        value = make(ctx, items, n);
    free(items);
    return value;
}

/* {"dict": {...}}, {"named_tuple": {...}} */
static co_value *
read_keyed(golden_case *c, co_context *ctx, json_t *object, bool is_named_tuple)
{
    size_t       n = json_object_size(object);
    const char **keys;
    co_value   **items;
    co_value    *value = NULL;
    const char  *key;
    json_t      *item;
    size_t       i = 0;

    if (!json_is_object(object) || n > MAX_NODES) {
        golden_fail(c, "a map of the case is not an object of at most %d items", MAX_NODES);
        return NULL;
    }
    keys = calloc(n + 1, sizeof(*keys));
    items = calloc(n + 1, sizeof(co_value *));
    if (keys != NULL && items != NULL) {
        json_object_foreach(object, key, item)
        {
            keys[i] = key;
            items[i] = golden_read_value(c, ctx, item);
            if (items[i] == NULL)
                break;
            ++i;
        }
        if (i == n && is_named_tuple)
            value = co_named_tuple(ctx, "named_tuple", keys, items, n);
        else if (i == n)
            value = co_dict(ctx, keys, items, n);
    }
    free(keys);
    free(items);
    return value;
}

/* The functions behind the macros of sites.h, so that they can be handed on. */
static co_value *
make_list(co_context *ctx, co_value *const *items, size_t n)
{
    return co_list(ctx, items, n);
}

static co_value *
make_tuple(co_context *ctx, co_value *const *items, size_t n)
{
    return co_tuple(ctx, items, n);
}

static co_value *
make_per_replica(co_context *ctx, co_value *const *items, size_t n)
{
    return co_per_replica_value(ctx, items, n);
}

static co_value *
read_object(golden_case *c, co_context *ctx, json_t *json)
{
    json_t *item;

    if ((item = json_object_get(json, "list")) != NULL)
        return read_items(c, ctx, item, make_list);
    if ((item = json_object_get(json, "tuple")) != NULL)
        return read_items(c, ctx, item, make_tuple);
    if ((item = json_object_get(json, "per_replica")) != NULL)
        return read_items(c, ctx, item, make_per_replica);
    if ((item = json_object_get(json, "dict")) != NULL)
        return read_keyed(c, ctx, item, false);
    if ((item = json_object_get(json, "named_tuple")) != NULL)
        return read_keyed(c, ctx, item, true);
    if ((item = json_object_get(json, "host")) != NULL)
        return golden_read_value(c, ctx, item);
    golden_fail(c, "an object of the case is neither a tensor nor a structure");
    return NULL;
}

co_value *
golden_read_value(golden_case *c, co_context *ctx, json_t *json)
{
    if (golden_is_tensor(json))
        return read_tensor(c, ctx, json);
    if (json_is_object(json))
        return read_object(c, ctx, json);
    if (json_is_integer(json))
        return co_int(ctx, json_integer_value(json));
    if (json_is_real(json))
        return co_float(ctx, json_real_value(json));
    if (json_is_boolean(json))
        return co_bool(ctx, json_is_true(json));
    if (json_is_null(json))
        return co_none(ctx);
    if (json_is_string(json)) {
        size_t    nbytes = 0;
        char     *bytes = golden_read_bytes(json, &nbytes);
        co_value *value = bytes != NULL ? co_bytes(ctx, bytes, nbytes) : NULL;

        if (bytes == NULL)
            golden_fail(c, "a string of the case has characters that are no bytes");
        free(bytes);
        return value;
    }
    if (json_is_array(json))
        return read_items(c, ctx, json, make_list);
    golden_fail(c, "a value of the case is missing");
    return NULL;
}

co_value *
golden_read_hex(golden_case *c, json_t *object, const char *key)
{
    const char *hex = json_string_value(json_object_get(object, key));
    size_t      n = hex != NULL ? strlen(hex) / 2 : 0;
    char       *bytes;
    co_value   *value;

    if (hex == NULL)
        return co_none(c->ctx);
    bytes = malloc(n + 1);
    for (size_t i = 0; i < n && bytes != NULL; ++i) {
        char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };

        bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    value = bytes != NULL ? co_bytes(c->ctx, bytes, n) : NULL;
    free(bytes);
    return value;
}

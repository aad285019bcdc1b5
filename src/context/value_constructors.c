/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public calls that make values: host values, tensors, specs, per-replica values.
 */
#include "context/context.h"

#include <string.h>

/* A new value, or NULL with the error. */
static co_value *
new_value(co_context *ctx, co_kind kind)
{
    co_value *value = coi_value_new(&ctx->heap, kind);

    if (value == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %s", coi_a_kind((int)kind));
    return value;
}

co_value *
co_int(co_context *ctx, int64_t number)
{
    co_value *value;

    COI_ENTER(ctx, "int", NULL);
    value = new_value(ctx, CO_KIND_INT);
    if (value == NULL)
        return NULL;
    value->u.i = number;
    return coi_own(ctx, value);
}

co_value *
co_float(co_context *ctx, double number)
{
    co_value *value;

    COI_ENTER(ctx, "float", NULL);
    value = new_value(ctx, CO_KIND_FLOAT);
    if (value == NULL)
        return NULL;
    value->u.f = number;
    return coi_own(ctx, value);
}

co_value *
co_bool(co_context *ctx, bool truth)
{
    co_value *value;

    COI_ENTER(ctx, "bool", NULL);
    value = new_value(ctx, CO_KIND_BOOL);
    if (value == NULL)
        return NULL;
    value->u.b = truth;
    return coi_own(ctx, value);
}

co_value *
co_none(co_context *ctx)
{
    co_value *value;

    COI_ENTER(ctx, "none", NULL);
    value = new_value(ctx, CO_KIND_NONE);
    return value != NULL ? coi_own(ctx, value) : NULL;
}

static co_value *
make_string(co_context *ctx, const void *bytes, size_t nbytes)
{
    co_value *value;
    char     *copy = nbytes < PTRDIFF_MAX ? coi_small_alloc(&ctx->heap, nbytes + 1) : NULL;

    if (copy == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a string of %zu bytes", nbytes);
        return NULL;
    }
    value = new_value(ctx, CO_KIND_STRING);
    if (value == NULL) {
        coi_small_free(&ctx->heap, copy, nbytes + 1);
        return NULL;
    }
    if (nbytes > 0)
        memcpy(copy, bytes, nbytes);
    copy[nbytes] = '\0';
    value->u.string.data = copy;
    value->u.string.nbytes = nbytes;
    return coi_own(ctx, value);
}

co_value *
co_bytes(co_context *ctx, const void *bytes, size_t nbytes)
{
    COI_ENTER(ctx, "bytes", NULL);
    if (bytes == NULL && nbytes > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (bytes) of bytes is NULL for %zu byte%s",
                 nbytes, COI_S(nbytes));
        return NULL;
    }
    return make_string(ctx, bytes, nbytes);
}

co_value *
co_string(co_context *ctx, const char *text)
{
    COI_ENTER(ctx, "string", NULL);
    if (text == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (text) of string is NULL");
        return NULL;
    }
    return make_string(ctx, text, strlen(text));
}

/* A string tensor; without lengths the strings end with a zero. */
static co_value *
make_strings(co_context *ctx, const int64_t *dims, size_t ndim, int64_t count,
             const void *const *bytes, const size_t *nbytes)
{
    co_device *device = coi_current_device(ctx);
    size_t     room = (size_t)count * sizeof(coi_text) + 1;
    coi_text  *texts;
    co_value  *tensor = NULL;
    int64_t    i;

    if (device == NULL)
        return NULL;
    texts = coi_small_alloc(&ctx->heap, room);
    if (texts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %lld strings", (long long)count);
        return NULL;
    }
    for (i = 0; i < count && bytes[i] != NULL; ++i)
        texts[i] = (coi_text){ bytes[i], nbytes != NULL ? nbytes[i] : strlen(bytes[i]) };
    if (i < count)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "string %lld of %lld of %s is NULL", (long long)i,
                 (long long)count, ctx->call);
    else
        tensor = coi_tensor_strings(&ctx->heap, device, dims, (int)ndim, count, texts,
                                    coi_err(ctx));
    coi_small_free(&ctx->heap, texts, room);
    return coi_give(ctx, tensor);
}

static bool
check_data(co_context *ctx, const void *data, int64_t count, int position, const char *name)
{
    if (data != NULL || count == 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (%s) of %s is NULL for %lld element%s",
             position, name, ctx->call, (long long)count, COI_S(count));
    return false;
}

co_value *
co_tensor_bytes(co_context *ctx, const int64_t *dims, size_t ndim, const void *const *bytes,
                const size_t *nbytes)
{
    int64_t count;

    COI_ENTER(ctx, "tensor_bytes", NULL);
    if (!coi_check_shape(ctx, CO_STRING, dims, ndim, &count) ||
        !check_data(ctx, bytes, count, 4, "bytes"))
        return NULL;
    return make_strings(ctx, dims, ndim, count, bytes, nbytes);
}

/* A copy of numbers; bools become 0 or 1. */
static co_value *
make_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim, int64_t count,
            const void *data)
{
    co_device *device = coi_current_device(ctx);
    co_value  *tensor;
    uint8_t   *bools;

    if (device == NULL)
        return NULL;
    if (dtype == CO_BOOL) /* on the host, where they are looked at */
        tensor = coi_tensor_new(&ctx->heap, device->host, dtype, dims, (int)ndim, count,
                                coi_err(ctx));
    else
        tensor = coi_tensor_new(&ctx->heap, device, dtype, dims, (int)ndim, count, coi_err(ctx));
    if (tensor == NULL || count == 0)
        return coi_give(ctx, coi_tensor_place(&ctx->heap, tensor, device, coi_err(ctx)));
    if (coi_tensor_upload(tensor, data, coi_err(ctx)) != CO_OK) {
        coi_unref(&ctx->heap, tensor);
        return coi_give(ctx, NULL);
    }
    if (dtype != CO_BOOL)
        return coi_own(ctx, tensor);
    bools = coi_data_on_host(tensor);
    for (int64_t i = 0; i < count; ++i)
        bools[i] = bools[i] != 0;
    return coi_give(ctx, coi_tensor_place(&ctx->heap, tensor, device, coi_err(ctx)));
}

co_value *
co_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim, const void *data)
{
    int64_t count;

    COI_ENTER(ctx, "tensor", NULL);
    if (!coi_check_shape(ctx, dtype, dims, ndim, &count) ||
        !check_data(ctx, data, count, 5, "data"))
        return NULL;
    return dtype == CO_STRING ? make_strings(ctx, dims, ndim, count, data, NULL)
                              : make_tensor(ctx, dtype, dims, ndim, count, data);
}

co_value *
co_scalar_float(co_context *ctx, float value)
{
    COI_ENTER(ctx, "scalar_float", NULL);
    return make_tensor(ctx, CO_FLOAT32, NULL, 0, 1, &value);
}

co_value *
co_scalar_double(co_context *ctx, double value)
{
    COI_ENTER(ctx, "scalar_double", NULL);
    return make_tensor(ctx, CO_FLOAT64, NULL, 0, 1, &value);
}

co_value *
co_scalar_int32(co_context *ctx, int32_t value)
{
    COI_ENTER(ctx, "scalar_int32", NULL);
    return make_tensor(ctx, CO_INT32, NULL, 0, 1, &value);
}

co_value *
co_scalar_int64(co_context *ctx, int64_t value)
{
    COI_ENTER(ctx, "scalar_int64", NULL);
    return make_tensor(ctx, CO_INT64, NULL, 0, 1, &value);
}

co_value *
co_scalar_bool(co_context *ctx, bool value)
{
    uint8_t byte = value;

    COI_ENTER(ctx, "scalar_bool", NULL);
    return make_tensor(ctx, CO_BOOL, NULL, 0, 1, &byte);
}

/* Dimensions of a spec may be unknown; what is known must be possible. */
static bool
check_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    int64_t known[CO_MAX_DIMS], unused;

    if (ndim < -1 || ndim > CO_MAX_DIMS) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 4 (ndim) of spec is %d; it must be -1 to %d",
                 ndim, CO_MAX_DIMS);
        return false;
    }
    if (ndim > 0 && dims == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (dims) of spec is NULL for %d dimensions",
                 ndim);
        return false;
    }
    for (int i = 0; i < ndim; ++i) {
        if (dims[i] < -1) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "dimension %d of spec is %lld; it must be >= -1", i,
                     (long long)dims[i]);
            return false;
        }
        known[i] = dims[i] < 0 ? 1 : dims[i];
    }
    return coi_check_shape(ctx, dtype, known, ndim > 0 ? (size_t)ndim : 0, &unused);
}

co_value *
co_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    COI_ENTER(ctx, "spec", NULL);
    if (!check_spec(ctx, dtype, dims, ndim))
        return NULL;
    return coi_give(ctx, coi_tensor_spec(&ctx->heap, dtype, dims, ndim, coi_err(ctx)));
}

static co_value *
make_per_replica(co_context *ctx, co_kind kind, co_value *const *components, size_t n)
{
    co_value *per_replica;

    if (components == NULL || n == 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %s; a %s has at least one component",
                 n == 0 ? "3 (n) is 0" : "2 (components) is NULL", co_kind_name(kind));
        return NULL;
    }
    per_replica = coi_per_replica_new(&ctx->heap, kind, n, coi_err(ctx));
    if (per_replica == NULL)
        return coi_give(ctx, NULL);
    return coi_fill_items(ctx, per_replica, per_replica->u.per_replica.items, components, n, NULL,
                          "component");
}

co_value *
co_per_replica_value(co_context *ctx, co_value *const *components, size_t n)
{
    COI_ENTER(ctx, "per_replica_value", NULL);
    return make_per_replica(ctx, CO_KIND_PER_REPLICA, components, n);
}

co_value *
co_mirrored_value(co_context *ctx, co_value *const *components, size_t n)
{
    COI_ENTER(ctx, "mirrored_value", NULL);
    return make_per_replica(ctx, CO_KIND_MIRRORED, components, n);
}

static co_value *
leaf_type(co_context *ctx, co_value *leaf, void *unused)
{
    (void)unused;
    return coi_give(ctx, coi_type_of(&ctx->heap, leaf, coi_err(ctx)));
}

co_value *
co_value_spec(co_context *ctx, co_value *value)
{
    COI_ENTER(ctx, "value_spec", NULL);
    return coi_check_value(ctx, value, 2, "value") ? coi_map_leaves(ctx, value, leaf_type, NULL)
                                                   : NULL;
}

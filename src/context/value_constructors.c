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
coi_none(co_context *ctx)
{
    co_value *value = ctx->error.code == CO_OK ? new_value(ctx, CO_KIND_NONE) : NULL;

    return value != NULL ? coi_own(ctx, value) : NULL;
}

co_value *
co_none(co_context *ctx)
{
    COI_ENTER(ctx, "none", NULL);
    return coi_none(ctx);
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

/* Data of the user on its way to a tensor. */
typedef struct given {
    co_dtype           dtype;
    const int64_t     *dims;
    int                ndim;
    int64_t            count;
    const void        *data;
    const void *const *bytes; /* of strings; without lengths they end with a zero */
    const size_t      *nbytes;
} given;

/* The tensor, a value of the block: an entry of the operator table. */
static co_value *
make(co_context *ctx, coi_make_fn fn, given *of)
{
    co_value *tensor = coi_is_observed(ctx) ? coi_make_tensor(ctx, fn, of) : fn(ctx, of);

    coi_note_host_made(ctx, tensor);
    return coi_give(ctx, tensor);
}

static co_value *
make_strings(co_context *ctx, void *arg)
{
    const given *of = arg;
    co_device   *device = coi_current_device(ctx);
    int64_t      count = of->count;
    size_t       room = (size_t)count * sizeof(coi_text) + 1;
    coi_text    *texts;
    co_value    *tensor = NULL;
    int64_t      i;

    if (device == NULL)
        return NULL;
    texts = coi_small_alloc(&ctx->heap, room);
    if (texts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %lld strings", (long long)count);
        return NULL;
    }
    for (i = 0; i < count && of->bytes[i] != NULL; ++i)
        texts[i] = (coi_text){ of->bytes[i],
                               of->nbytes != NULL ? of->nbytes[i] : strlen(of->bytes[i]) };
    if (i < count)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "string %lld of %lld of %s is NULL", (long long)i,
                 (long long)count, ctx->call);
    else
        tensor = coi_tensor_strings(&ctx->heap, device, of->dims, of->ndim, count, texts,
                                    coi_err(ctx));
    coi_small_free(&ctx->heap, texts, room);
    return tensor;
}

static bool
check_data(co_context *ctx, const void *data, int64_t count, int position, const char *name)
{
    if (data != NULL || count == 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "argument %d (%s) of %s is NULL for %lld element%s; it must point to %s", position,
             name, ctx->call, (long long)count, COI_S(count), count == 1 ? "it" : "them");
    return false;
}

co_value *
co_tensor_bytes(co_context *ctx, const int64_t *dims, int ndim, const void *const *bytes,
                const size_t *nbytes)
{
    given of = { CO_STRING, dims, ndim, 0, NULL, bytes, nbytes };

    COI_ENTER(ctx, "tensor_bytes", NULL);
    if (!coi_check_shape(ctx, CO_STRING, dims, ndim, &of.count) ||
        !check_data(ctx, bytes, of.count, 4, "bytes"))
        return NULL;
    return make(ctx, make_strings, &of);
}

/* A copy of numbers; bools become 0 or 1. */
static co_value *
make_numbers(co_context *ctx, void *arg)
{
    const given *of = arg;
    co_device   *device = coi_current_device(ctx);
    co_value    *tensor;
    uint8_t     *bools;

    if (device == NULL)
        return NULL;
    /* Bools are made on the host, where they are looked at. */
    tensor = coi_tensor_new(&ctx->heap, of->dtype == CO_BOOL ? device->host : device, of->dtype,
                            of->dims, of->ndim, of->count, coi_err(ctx));
    if (tensor == NULL || of->count == 0)
        return coi_place_tensor(ctx, tensor, device);
    if (coi_upload(ctx, tensor, of->data) != CO_OK) {
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    if (of->dtype != CO_BOOL)
        return tensor;
    bools = coi_data_on_host(tensor);
    for (int64_t i = 0; i < of->count; ++i)
        bools[i] = bools[i] != 0;
    return coi_place_tensor(ctx, tensor, device);
}

static co_value *
make_scalar(co_context *ctx, co_dtype dtype, const void *data)
{
    given of = { .dtype = dtype, .count = 1, .data = data };

    return make(ctx, make_numbers, &of);
}

co_value *
co_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, const void *data)
{
    given of = { dtype, dims, ndim, 0, data, data, NULL };

    COI_ENTER(ctx, "tensor", NULL);
    if (!coi_check_shape(ctx, dtype, dims, ndim, &of.count) ||
        !check_data(ctx, data, of.count, 5, "data"))
        return NULL;
    return make(ctx, dtype == CO_STRING ? make_strings : make_numbers, &of);
}

co_value *
co_scalar_float(co_context *ctx, float value)
{
    COI_ENTER(ctx, "scalar_float", NULL);
    return make_scalar(ctx, CO_FLOAT32, &value);
}

co_value *
co_scalar_double(co_context *ctx, double value)
{
    COI_ENTER(ctx, "scalar_double", NULL);
    return make_scalar(ctx, CO_FLOAT64, &value);
}

co_value *
co_scalar_int32(co_context *ctx, int32_t value)
{
    COI_ENTER(ctx, "scalar_int32", NULL);
    return make_scalar(ctx, CO_INT32, &value);
}

co_value *
co_scalar_int64(co_context *ctx, int64_t value)
{
    COI_ENTER(ctx, "scalar_int64", NULL);
    return make_scalar(ctx, CO_INT64, &value);
}

co_value *
co_scalar_bool(co_context *ctx, bool value)
{
    uint8_t byte = value;

    COI_ENTER(ctx, "scalar_bool", NULL);
    return make_scalar(ctx, CO_BOOL, &byte);
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
    return coi_check_shape(ctx, dtype, known, ndim > 0 ? ndim : 0, &unused);
}

co_value *
coi_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    if (ctx->error.code != CO_OK || !check_spec(ctx, dtype, dims, ndim))
        return NULL;
    return coi_give(ctx, coi_tensor_spec(&ctx->heap, dtype, dims, ndim, coi_err(ctx)));
}

co_value *
co_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    COI_ENTER(ctx, "spec", NULL);
    return coi_spec(ctx, dtype, dims, ndim);
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

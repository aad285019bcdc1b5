/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public calls that make values: host values, tensors, slices, specs, bundles.
 */
#include "context/context.h"

#include <string.h>

/* A cell for the current block, or NULL with the error. */
static co_value *
new_value(co_context *ctx, co_kind kind)
{
    co_value *value = coi_value_new(&ctx->heap, kind);

    if (value == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a %s", co_kind_name(kind));
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

co_value *
co_bytes(co_context *ctx, const void *bytes, size_t nbytes)
{
    co_value *value;
    char     *copy;

    COI_ENTER(ctx, "bytes", NULL);
    if (bytes == NULL && nbytes > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (bytes) of bytes is NULL with %zu bytes",
                 nbytes);
        return NULL;
    }
    copy = nbytes < PTRDIFF_MAX ? coi_small_alloc(&ctx->heap, nbytes + 1) : NULL;
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
co_string(co_context *ctx, const char *text)
{
    COI_ENTER(ctx, "string", NULL);
    if (text == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (text) of string is NULL");
        return NULL;
    }
    return co_bytes(ctx, text, strlen(text));
}

/* A dtype that a tensor can have. */
static bool
check_dtype(co_context *ctx, co_dtype dtype)
{
    if ((unsigned)dtype - 1 < CO_NUM_DTYPES - 1)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "dtype %d is not one of a tensor's (%d to %d)", (int)dtype,
             CO_BOOL, CO_NUM_DTYPES - 1);
    return false;
}

static bool
check_shape(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim, int64_t *count)
{
    size_t size = dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;

    if (coi_shape_check(dims, ndim, size, count, coi_err(ctx)) == CO_OK)
        return true;
    coi_failed(ctx);
    return false;
}

co_value *
co_tensor_bytes(co_context *ctx, const int64_t *dims, size_t ndim, const void *const *bytes,
                const size_t *nbytes)
{
    co_device *device;
    coi_text  *texts;
    co_value  *tensor;
    int64_t    count;

    COI_ENTER(ctx, "tensor_bytes", NULL);
    if (!check_shape(ctx, CO_STRING, dims, ndim, &count) ||
        (device = coi_current_device(ctx)) == NULL)
        return NULL;
    if (bytes == NULL && count > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 4 (bytes) is NULL for %lld strings",
                 (long long)count);
        return NULL;
    }
    texts = coi_small_alloc(&ctx->heap, (size_t)count * sizeof(*texts) + 1);
    if (texts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %lld strings", (long long)count);
        return NULL;
    }
    for (int64_t i = 0; i < count; ++i) {
        if (bytes[i] == NULL) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "string %lld of %lld is NULL", (long long)i,
                     (long long)count);
            coi_small_free(&ctx->heap, texts, (size_t)count * sizeof(*texts) + 1);
            return NULL;
        }
        texts[i] = (coi_text){ bytes[i], nbytes != NULL ? nbytes[i] : strlen(bytes[i]) };
    }
    tensor = coi_tensor_strings(&ctx->heap, device, dims, (int)ndim, count, texts, coi_err(ctx));
    coi_small_free(&ctx->heap, texts, (size_t)count * sizeof(*texts) + 1);
    return coi_give(ctx, tensor);
}

co_value *
co_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim, const void *data)
{
    co_device *device;
    co_value  *tensor;
    int64_t    count;

    COI_ENTER(ctx, "tensor", NULL);
    if (!check_dtype(ctx, dtype) || !check_shape(ctx, dtype, dims, ndim, &count))
        return NULL;
    if (data == NULL && count > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 5 (data) of tensor is NULL for %lld elements",
                 (long long)count);
        return NULL;
    }
    if (dtype == CO_STRING)
        return co_tensor_bytes(ctx, dims, ndim, data, NULL);
    if ((device = coi_current_device(ctx)) == NULL)
        return NULL;
    tensor = coi_tensor_new(&ctx->heap, device, dtype, dims, (int)ndim, count, coi_err(ctx));
    if (tensor != NULL && count > 0) {
        if (device->backend->upload != NULL)
            device->backend->upload(device, tensor->u.tensor.data, data, coi_tensor_nbytes(tensor));
        else
            memcpy(tensor->u.tensor.data, data, coi_tensor_nbytes(tensor));
        if (dtype == CO_BOOL) /* any non-zero byte is true */
            for (int64_t i = 0; i < count; ++i)
                ((uint8_t *)tensor->u.tensor.data)[i] = ((const uint8_t *)data)[i] != 0;
    }
    return coi_give(ctx, tensor);
}

co_value *
co_scalar_float(co_context *ctx, float value)
{
    return co_tensor(ctx, CO_FLOAT32, NULL, 0, &value);
}

co_value *
co_scalar_double(co_context *ctx, double value)
{
    return co_tensor(ctx, CO_FLOAT64, NULL, 0, &value);
}

co_value *
co_scalar_int32(co_context *ctx, int32_t value)
{
    return co_tensor(ctx, CO_INT32, NULL, 0, &value);
}

co_value *
co_scalar_int64(co_context *ctx, int64_t value)
{
    return co_tensor(ctx, CO_INT64, NULL, 0, &value);
}

co_value *
co_scalar_bool(co_context *ctx, bool value)
{
    uint8_t byte = value;

    return co_tensor(ctx, CO_BOOL, NULL, 0, &byte);
}

/* The tensor over foreign memory, or NULL with the error; the deleter is then still the caller's to call. */
static co_value *
borrow(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim, void *data,
       void (*deleter)(void *user), void *user)
{
    co_device  *device;
    co_value   *tensor;
    coi_buffer *buffer;
    int64_t     count;

    if (!check_dtype(ctx, dtype) || !check_shape(ctx, dtype, dims, ndim, &count))
        return NULL;
    if (dtype == CO_STRING) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "strings cannot be borrowed; use co_tensor_bytes, which copies");
        return NULL;
    }
    if (data == NULL && count > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 5 (data) is NULL for %lld elements",
                 (long long)count);
        return NULL;
    }
    if ((device = coi_current_device(ctx)) == NULL)
        return NULL;
    tensor = coi_value_new(&ctx->heap, CO_KIND_TENSOR);
    buffer = tensor != NULL
                 ? coi_buffer_foreign(device, data, (size_t)count * coi_dtypes[dtype].size, deleter,
                                      user)
                 : NULL;
    if (buffer == NULL) {
        if (tensor != NULL) {
            tensor->kind = CO_KIND_NONE;
            coi_unref(&ctx->heap, tensor);
        }
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a tensor header");
        return NULL;
    }
    tensor->dtype = (uint8_t)dtype;
    tensor->ndim = (int8_t)ndim;
    tensor->u.tensor.device = device;
    tensor->u.tensor.buffer = buffer;
    tensor->u.tensor.data = data;
    tensor->u.tensor.num_elements = count;
    for (size_t i = 0; i < ndim; ++i)
        tensor->u.tensor.dims[i] = dims[i];
    return tensor;
}

co_value *
co_tensor_borrow(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim, void *data,
                 void (*deleter)(void *user), void *user)
{
    co_value *tensor = NULL;

    if (ctx != NULL && ctx->error.code == CO_OK) {
        ctx->call = "tensor_borrow";
        tensor = borrow(ctx, dtype, dims, ndim, data, deleter, user);
    }
    if (tensor == NULL) {
        if (deleter != NULL)
            deleter(user);
        return NULL;
    }
    return coi_own(ctx, tensor);
}

co_value *
co_slices(co_context *ctx, co_value *values, co_value *indices, co_value *dense_shape)
{
    co_value *slices;

    COI_ENTER(ctx, "slices", NULL);
    if (!coi_check_kind(ctx, values, CO_KIND_TENSOR, 2, "values") ||
        !coi_check_kind(ctx, indices, CO_KIND_TENSOR, 3, "indices") ||
        (dense_shape != NULL &&
         !coi_check_kind(ctx, dense_shape, CO_KIND_TENSOR, 4, "dense_shape")))
        return NULL;
    if ((indices->dtype != CO_INT32 && indices->dtype != CO_INT64) || indices->ndim != 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "indices must be a vector of int32 or int64, not %s of rank %d",
                 co_dtype_name((co_dtype)indices->dtype), indices->ndim);
        return NULL;
    }
    if (values->ndim < 1 || values->u.tensor.dims[0] != indices->u.tensor.dims[0]) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%lld rows of values for %lld indices",
                 (long long)(values->ndim > 0 ? values->u.tensor.dims[0] : 0),
                 (long long)indices->u.tensor.dims[0]);
        return NULL;
    }
    slices = new_value(ctx, CO_KIND_SLICES);
    if (slices == NULL)
        return NULL;
    slices->dtype = values->dtype;
    slices->u.slices.values = values;
    slices->u.slices.indices = indices;
    slices->u.slices.dense_shape = dense_shape;
    coi_ref(values);
    coi_ref(indices);
    if (dense_shape != NULL)
        coi_ref(dense_shape);
    return coi_own(ctx, slices);
}

/* A part of slices as a value of the block. */
static co_value *
slices_part(co_context *ctx, co_value *slices, int part)
{
    co_value *value;

    if (!coi_check_kind(ctx, slices, CO_KIND_SLICES, 2, "slices"))
        return NULL;
    value = part == 0   ? slices->u.slices.values
            : part == 1 ? slices->u.slices.indices
                        : slices->u.slices.dense_shape;
    if (value == NULL)
        return NULL;
    coi_ref(value);
    return coi_own(ctx, value);
}

co_value *
co_slices_values(co_context *ctx, co_value *slices)
{
    COI_ENTER(ctx, "slices_values", NULL);
    return slices_part(ctx, slices, 0);
}

co_value *
co_slices_indices(co_context *ctx, co_value *slices)
{
    COI_ENTER(ctx, "slices_indices", NULL);
    return slices_part(ctx, slices, 1);
}

co_value *
co_slices_dense_shape(co_context *ctx, co_value *slices)
{
    COI_ENTER(ctx, "slices_dense_shape", NULL);
    return slices_part(ctx, slices, 2);
}

co_value *
co_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    co_value *spec;

    COI_ENTER(ctx, "spec", NULL);
    if (!check_dtype(ctx, dtype))
        return NULL;
    if (ndim < -1 || ndim > CO_MAX_DIMS || (ndim > 0 && dims == NULL)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 4 (ndim) of spec is %d; -1 to %d, with dims",
                 ndim, CO_MAX_DIMS);
        return NULL;
    }
    for (int i = 0; i < ndim; ++i)
        if (dims[i] < -1) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "dimension %d of spec is %lld; it must be >= -1", i,
                     (long long)dims[i]);
            return NULL;
        }
    spec = new_value(ctx, CO_KIND_SPEC);
    if (spec == NULL)
        return NULL;
    spec->dtype = (uint8_t)dtype;
    spec->ndim = (int8_t)ndim;
    spec->u.tensor.num_elements = -1;
    for (int i = 0; i < ndim; ++i)
        spec->u.tensor.dims[i] = dims[i];
    return coi_own(ctx, spec);
}

static co_value *
make_bundle(co_context *ctx, co_kind kind, co_value *const *components, size_t n)
{
    co_value *bundle;

    if (components == NULL || n == 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "a %s needs at least one component", co_kind_name(kind));
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        if (!coi_check_value(ctx, components[i], (int)i, "component"))
            return NULL;
    bundle = coi_bundle_new(&ctx->heap, kind, n, coi_err(ctx));
    for (size_t i = 0; i < n && bundle != NULL; ++i) {
        coi_ref(components[i]);
        bundle->u.bundle.items[i] = components[i];
    }
    return coi_give(ctx, bundle);
}

co_value *
co_per_replica(co_context *ctx, co_value *const *components, size_t n)
{
    COI_ENTER(ctx, "per_replica", NULL);
    return make_bundle(ctx, CO_KIND_PER_REPLICA, components, n);
}

co_value *
co_mirrored(co_context *ctx, co_value *const *components, size_t n)
{
    COI_ENTER(ctx, "mirrored", NULL);
    return make_bundle(ctx, CO_KIND_MIRRORED, components, n);
}

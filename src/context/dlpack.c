/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors over foreign memory, and tensors lent to foreign code: co_tensor_borrow and DLPack. A
 * lender's deleter is called exactly once, whatever happens.
 */
#include <cohort/dlpack.h>

#include "context/context.h"

#include <string.h>

/* The ABI of DLPack 0.8, as its specification lays it out. */
enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct dl_dtype {
    uint8_t  code;
    uint8_t  bits;
    uint16_t lanes;
} dl_dtype;

typedef struct dl_tensor {
    void    *data;
    int32_t  device_type, device_id;
    int32_t  ndim;
    dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void     *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

static const struct {
    dl_dtype dl;
    co_dtype ours;
} dtypes[] = {
    { { DL_BOOL, 8, 1 }, CO_BOOL },        { { DL_INT, 8, 1 }, CO_INT8 },
    { { DL_INT, 16, 1 }, CO_INT16 },       { { DL_INT, 32, 1 }, CO_INT32 },
    { { DL_INT, 64, 1 }, CO_INT64 },       { { DL_UINT, 8, 1 }, CO_UINT8 },
    { { DL_UINT, 16, 1 }, CO_UINT16 },     { { DL_UINT, 32, 1 }, CO_UINT32 },
    { { DL_UINT, 64, 1 }, CO_UINT64 },     { { DL_FLOAT, 16, 1 }, CO_FLOAT16 },
    { { DL_BFLOAT, 16, 1 }, CO_BFLOAT16 }, { { DL_FLOAT, 32, 1 }, CO_FLOAT32 },
    { { DL_FLOAT, 64, 1 }, CO_FLOAT64 },
};
#define NUM_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

/* The first byte of a bool tensor that is neither 0 nor 1; n if all are. */
static int64_t
first_odd_bool(const void *data, int64_t n)
{
    const uint8_t *bytes = data;
    int64_t        i = 0;

    while (i < n && bytes[i] <= 1)
        ++i;
    return i;
}

/* A tensor over foreign memory, or NULL with the error; the deleter is then still the caller's to
 * call. */
static co_value *
over_memory(co_context *ctx, co_dtype dtype, const coi_shape *shape, int64_t count, void *data,
            void (*deleter)(void *user), void *user)
{
    co_device  *device = coi_current_device(ctx);
    coi_buffer *buffer;
    co_value   *tensor;

    if (device == NULL)
        return NULL;
    buffer = coi_buffer_foreign(device->host, data, (size_t)count * coi_dtypes[dtype].size, deleter,
                                user);
    tensor = buffer != NULL ? coi_value_new(&ctx->heap, CO_KIND_TENSOR) : NULL;
    if (tensor == NULL) {
        if (buffer != NULL) {
            buffer->deleter = NULL;
            coi_buffer_unref(buffer);
        }
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the header of a tensor");
        return NULL;
    }
    tensor->dtype = (uint8_t)dtype;
    tensor->ndim = (int8_t)shape->ndim;
    tensor->u.tensor.device = device->host;
    tensor->u.tensor.buffer = buffer;
    tensor->u.tensor.data = data;
    tensor->u.tensor.num_elements = count;
    for (int i = 0; i < shape->ndim; ++i)
        tensor->u.tensor.dims[i] = shape->dims[i];
    return tensor;
}

static bool
check_memory(co_context *ctx, co_dtype dtype, const void *data, int64_t count)
{
    size_t  size = coi_dtypes[dtype].size;
    int64_t odd;

    if (data == NULL && count > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 5 (data) of tensor_borrow is NULL for %lld element%s", (long long)count,
                 COI_S(count));
        return false;
    }
    if ((uintptr_t)data % size != 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 5 (data) of tensor_borrow is not aligned to the %zu bytes of %s; "
                 "co_tensor copies from any address",
                 size, co_dtype_name(dtype));
        return false;
    }
    if (dtype == CO_BOOL && (odd = first_odd_bool(data, count)) < count) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "element %lld of a borrowed bool tensor is %d; it must be 0 or 1 (co_tensor copies "
            "and takes any number)",
            (long long)odd, ((const uint8_t *)data)[odd]);
        return false;
    }
    return true;
}

static co_value *
borrow(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, void *data,
       void (*deleter)(void *user), void *user)
{
    coi_shape shape = { ndim, { 0 } };
    int64_t   count;

    COI_ENTER(ctx, "tensor_borrow", NULL);
    if (dtype == CO_STRING) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (dtype) of tensor_borrow is string; strings are copied, by "
                 "co_tensor_bytes");
        return NULL;
    }
    if (!coi_check_shape(ctx, dtype, dims, ndim, &count) || !check_memory(ctx, dtype, data, count))
        return NULL;
    for (int i = 0; i < ndim; ++i)
        shape.dims[i] = dims[i];
    return over_memory(ctx, dtype, &shape, count, data, deleter, user);
}

co_value *
co_tensor_borrow(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, void *data,
                 void (*deleter)(void *user), void *user)
{
    co_value *tensor = borrow(ctx, dtype, dims, ndim, data, deleter, user);

    if (tensor != NULL)
        return coi_own(ctx, tensor); /* which ends the tensor, and calls the deleter, if it fails */
    if (deleter != NULL)
        deleter(user);
    return NULL;
}

static void
delete_managed(void *user)
{
    dl_managed *managed = user;

    if (managed->deleter != NULL)
        managed->deleter(managed);
}

static bool
refuse(co_context *ctx, const char *what, long long number, const char *wanted)
{
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 of from_dlpack has %s %lld; %s", what, number,
             wanted);
    return false;
}

static bool
read_dtype(co_context *ctx, dl_dtype dl, co_dtype *out)
{
    for (size_t i = 0; i < NUM_DTYPES; ++i)
        if (memcmp(&dl, &dtypes[i].dl, sizeof(dl)) == 0) {
            *out = dtypes[i].ours;
            return true;
        }
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "argument 2 of from_dlpack has a dtype of code %d, %d bits and %d lanes, %s; bool, "
             "integers of 8 to 64 bits, float16, bfloat16, float32 and float64 are taken",
             dl.code, dl.bits, dl.lanes,
             dl.code == DL_COMPLEX ? "a complex number, which is not supported"
                                   : "which is none of ours");
    return false;
}

/* The shape, and how far strides reach: products that overflow are refused before anything is
 * read. */
static bool
read_shape(co_context *ctx, const dl_tensor *dl, co_dtype dtype, coi_shape *shape, int64_t *count)
{
    int64_t reach = 0, size = coi_dtypes[dtype].size;

    if (dl->ndim < 0)
        return refuse(ctx, "ndim", dl->ndim, "it must be 0 to 8");
    if (!coi_check_shape(ctx, dtype, dl->shape, (int)dl->ndim, count))
        return false;
    shape->ndim = dl->ndim;
    for (int i = 0; i < dl->ndim; ++i) {
        int64_t stride = dl->strides != NULL ? dl->strides[i] : 0, far;

        shape->dims[i] = dl->shape[i];
        if (*count > 0 &&
            (stride == INT64_MIN ||
             __builtin_mul_overflow(stride < 0 ? -stride : stride, dl->shape[i] - 1, &far) ||
             __builtin_mul_overflow(far, size, &far) || __builtin_add_overflow(reach, far, &reach)))
            return refuse(ctx, "a stride of", stride, "it reaches beyond all memory");
    }
    return true;
}

static bool
is_compact(const dl_tensor *dl)
{
    int64_t expected = 1;

    for (int i = dl->ndim - 1; dl->strides != NULL && i >= 0; --i) {
        if (dl->shape[i] != 1 && dl->strides[i] != expected)
            return false;
        expected *= dl->shape[i];
    }
    return true;
}

/* Copy `axis` and those behind it from strided memory; returns where the next element goes. */
static char *
copy_strided(const dl_tensor *dl, int axis, const char *from, char *to, size_t size)
{
    int64_t stride = dl->strides[axis];

    for (int64_t i = 0; i < dl->shape[axis]; ++i) {
        const char *at = from + i * stride * (int64_t)size;

        if (axis + 1 < dl->ndim) {
            to = copy_strided(dl, axis + 1, at, to, size);
        } else {
            memcpy(to, at, size);
            to += size;
        }
    }
    return to;
}

typedef struct foreign {
    const dl_tensor *dl;
    const char      *data;
    co_dtype         dtype;
    const coi_shape *shape;
    int64_t          count;
} foreign;

static co_value *
copy_foreign(co_context *ctx, void *arg)
{
    const foreign   *f = arg;
    const dl_tensor *dl = f->dl;
    co_device       *device = coi_current_device(ctx);
    co_dtype         dtype = f->dtype;
    int64_t          count = f->count;
    co_value        *tensor = NULL;
    size_t           size = coi_dtypes[dtype].size;

    if (device != NULL)
        tensor = coi_tensor_new(&ctx->heap, device->host, dtype, f->shape->dims, f->shape->ndim,
                                count, coi_err(ctx));
    if (tensor == NULL) {
        coi_failed(ctx);
        return NULL;
    }
    if (count > 0 && is_compact(dl))
        memcpy(coi_data_on_host(tensor), f->data, (size_t)count * size);
    else if (count > 0)
        copy_strided(dl, 0, f->data, coi_data_on_host(tensor), size);
    for (int64_t i = 0; dtype == CO_BOOL && i < count; ++i)
        ((uint8_t *)coi_data_on_host(tensor))[i] = ((uint8_t *)coi_data_on_host(tensor))[i] != 0;
    return tensor;
}

/* The tensor; *in_place says whether it has taken the lender's deleter over. */
static co_value *
from_dlpack(co_context *ctx, dl_managed *managed, bool *in_place)
{
    const dl_tensor *dl;
    coi_shape        shape;
    co_dtype         dtype;
    int64_t          count;
    char            *data;

    COI_ENTER(ctx, "from_dlpack", NULL);
    if (managed == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (dl_managed_tensor) of from_dlpack is NULL");
        return NULL;
    }
    dl = &managed->tensor;
    if (dl->device_type != DL_CPU && dl->device_type != DL_CUDA_HOST &&
        dl->device_type != DL_ROCM_HOST) {
        refuse(ctx, "device type", dl->device_type, "the memory must be the host's (1)");
        return NULL;
    }
    if (!read_dtype(ctx, dl->dtype, &dtype) || !read_shape(ctx, dl, dtype, &shape, &count))
        return NULL;
    if (dl->data == NULL && count > 0) {
        refuse(ctx, "no data for a number of elements of", count, "give their address");
        return NULL;
    }
    data = count > 0 ? (char *)dl->data + dl->byte_offset : NULL;
    *in_place = count > 0 && is_compact(dl) && (uintptr_t)data % coi_dtypes[dtype].size == 0 &&
                (dtype != CO_BOOL || first_odd_bool(data, count) == count);
    return *in_place
               ? over_memory(ctx, dtype, &shape, count, data, delete_managed, managed)
               : coi_make_tensor(ctx, copy_foreign, &(foreign){ dl, data, dtype, &shape, count });
}

co_value *
co_from_dlpack(co_context *ctx, void *dl_managed_tensor)
{
    bool      in_place = false;
    co_value *tensor = from_dlpack(ctx, dl_managed_tensor, &in_place);

    if (dl_managed_tensor != NULL && (tensor == NULL || !in_place))
        delete_managed(dl_managed_tensor);
    return tensor != NULL ? coi_own(ctx, tensor) : NULL;
}

/* A tensor on loan: it holds the value and the runtime, which must outlive the borrower. */
typedef struct loan {
    dl_managed   managed;
    coi_runtime *runtime;
    co_value    *value;
    int64_t      shape[CO_MAX_DIMS], strides[CO_MAX_DIMS];
} loan;

/* Called by the borrower, on any thread: there is no context. */
static void
end_loan(dl_managed *self)
{
    loan        *lent = self->manager;
    coi_runtime *runtime = lent->runtime;
    coi_heap     heap;

    coi_heap_init(&heap, &runtime->store);
    coi_unref(&heap, lent->value);
    coi_heap_destroy(&heap);
    coi_free(&runtime->memory, lent, sizeof(*lent));
    coi_runtime_release(runtime);
}

static dl_dtype
dl_dtype_of(co_dtype dtype)
{
    size_t i = 0;

    while (dtypes[i].ours != dtype)
        ++i;
    return dtypes[i].dl;
}

void *
co_to_dlpack(co_context *ctx, co_value *tensor)
{
    loan   *lent;
    int64_t stride = 1;

    COI_ENTER(ctx, "to_dlpack", NULL);
    if (!coi_check_kind(ctx, tensor, CO_KIND_TENSOR, 2, "tensor"))
        return NULL;
    if (tensor->dtype == CO_STRING) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (tensor) of to_dlpack holds strings, which DLPack does "
                 "not know; give a tensor of numbers");
        return NULL;
    }
    tensor = coi_host_value(ctx, tensor);
    if (tensor == NULL)
        return NULL;
    lent = coi_calloc(&ctx->runtime->memory, sizeof(*lent));
    if (lent == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a DLManagedTensor");
        return NULL;
    }
    for (int i = tensor->ndim - 1; i >= 0; --i) {
        lent->shape[i] = tensor->u.tensor.dims[i];
        lent->strides[i] = stride;
        stride *= tensor->u.tensor.dims[i];
    }
    lent->managed = (dl_managed){ .tensor = { .data = coi_data_on_host(tensor),
                                              .device_type = DL_CPU,
                                              .ndim = tensor->ndim,
                                              .dtype = dl_dtype_of((co_dtype)tensor->dtype),
                                              .shape = lent->shape,
                                              .strides = lent->strides },
                                  .manager = lent,
                                  .deleter = end_loan };
    lent->value = tensor;
    coi_ref(tensor);
    lent->runtime = ctx->runtime;
    coi_runtime_hold(ctx->runtime);
    return &lent->managed;
}

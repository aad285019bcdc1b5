/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend with host memory and kernels of its own, as one over a BLAS library has: float32 add of
 * equal shapes, and matmul of matrices. It counts the calls of each kernel. Its copies fail: the
 * library has to work on its memory in place.
 */
#include <cohort/backend.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The calls of `add` and of `matmul`, for the test. */
extern atomic_int            unified_calls[2];
CO_BACKEND_EXPORT atomic_int unified_calls[2];

static int the_device, the_queue;

static co_code
unified_count(const co_backend *backend, int *count, co_error_info *err)
{
    (void)backend, (void)err;
    *count = 8;
    return CO_OK;
}

static co_code
unified_open(const co_backend *backend, const co_backend_host *host, int index,
             co_backend_device **device, co_error_info *err)
{
    (void)backend, (void)host, (void)index, (void)err;
    *device = (co_backend_device *)(void *)&the_device;
    return CO_OK;
}

static void
unified_close(co_backend_device *device)
{
    (void)device;
}

static co_code
unified_alloc(co_backend_device *device, size_t nbytes, co_backend_buffer **buffer,
              co_error_info *err)
{
    (void)device;
    *buffer = aligned_alloc(64, (nbytes + 63) / 64 * 64);
    if (*buffer == NULL)
        return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes", nbytes);
    return CO_OK;
}

static co_code
unified_open_queue(co_backend_device *device, co_backend_queue **queue, co_error_info *err)
{
    (void)device, (void)err;
    *queue = (co_backend_queue *)(void *)&the_queue;
    return CO_OK;
}

static void *
unified_address(co_backend_buffer *buffer)
{
    return buffer;
}

static void
unified_free(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    (void)device, (void)nbytes;
    free(buffer);
}

static void
unified_close_queue(co_backend_queue *queue)
{
    (void)queue;
}

static co_code
unified_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
               size_t nbytes, co_error_info *err)
{
    (void)queue, (void)dst, (void)offset, (void)src;
    return co_backend_error(err, CO_INTERNAL, "%zu bytes are uploaded to host memory", nbytes);
}

static co_code
unified_download(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
                 size_t nbytes, co_error_info *err)
{
    (void)queue, (void)dst, (void)src, (void)offset;
    return co_backend_error(err, CO_INTERNAL, "%zu bytes are downloaded from host memory", nbytes);
}

static co_code
unified_synchronize(co_backend_queue *queue, co_error_info *err)
{
    (void)queue, (void)err;
    return CO_OK;
}

/* --- kernels --- */

static bool
is_float_matrix(const co_backend_tensor *x)
{
    return x->dtype == CO_FLOAT32 && x->ndim == 2;
}

static co_code
run_add(co_backend_queue *queue, const co_backend_call *call, co_error_info *err)
{
    const co_backend_tensor *x = &call->in[0], *y = &call->in[1];
    const float             *a = x->data, *b = y->data;
    float                   *out = call->out[0].data;

    (void)queue, (void)err;
    if (x->dtype != CO_FLOAT32 || x->ndim != y->ndim ||
        memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof(x->dims[0])) != 0)
        return CO_UNIMPLEMENTED;
    for (int64_t i = 0; i < x->num_elements; ++i)
        out[i] = a[i] + b[i];
    atomic_fetch_add(&unified_calls[0], 1);
    return CO_OK;
}

static co_code
run_matmul(co_backend_queue *queue, const co_backend_call *call, co_error_info *err)
{
    const co_backend_tensor *x = &call->in[0], *y = &call->in[1];
    const float             *a = x->data, *b = y->data;
    float                   *out = call->out[0].data;

    (void)queue, (void)err;
    if (!is_float_matrix(x) || !is_float_matrix(y))
        return CO_UNIMPLEMENTED;
    for (size_t i = 0; i < call->num_attrs; ++i)
        if (call->attrs[i].i != 0) /* transposed */
            return CO_UNIMPLEMENTED;
    for (int64_t i = 0; i < x->dims[0]; ++i)
        for (int64_t j = 0; j < y->dims[1]; ++j) {
            float sum = 0;

            for (int64_t k = 0; k < x->dims[1]; ++k)
                sum += a[i * x->dims[1] + k] * b[k * y->dims[1] + j];
            out[i * y->dims[1] + j] = sum;
        }
    atomic_fetch_add(&unified_calls[1], 1);
    return CO_OK;
}

static co_backend_kernel
unified_kernel(co_backend_device *device, const char *op)
{
    (void)device;
    return strcmp(op, "add") == 0 ? run_add : strcmp(op, "matmul") == 0 ? run_matmul : NULL;
}

static const co_backend_registry_table registry_table = { unified_count, unified_open };
static const co_backend_device_table   device_table = { unified_close, unified_alloc,
                                                        unified_open_queue, unified_kernel };
static const co_backend_buffer_table   buffer_table = { unified_address, unified_free };
static const co_backend_queue_table    queue_table = { .close = unified_close_queue,
                                                       .upload = unified_upload,
                                                       .download = unified_download,
                                                       .synchronize = unified_synchronize };

extern const co_backend            co_backend_plugin;
CO_BACKEND_EXPORT const co_backend co_backend_plugin = {
    .abi = CO_BACKEND_ABI,
    .struct_size = sizeof(co_backend),
    .name = "unified",
    .device_type = "UNIFIED",
    .host_memory = true,
    .registry = &registry_table,
    .device = &device_table,
    .buffer = &buffer_table,
    .queue = &queue_table,
};

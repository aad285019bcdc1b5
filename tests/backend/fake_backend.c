/* SPDX-License-Identifier: Apache-2.0 */
/* Backends that the loader is given in tests: whole ones that open nothing, and some that are not
 * whole. FAKE_... say which. */
#include <cohort/backend.h>

static co_code
fake_count(const co_backend *backend, int *count, co_error_info *err)
{
    (void)backend, (void)err;
    *count = 1;
    return CO_OK;
}

/* Says that it went well, and gives nothing. */
static co_code
fake_open(const co_backend *backend, const co_backend_host *host, int index,
          co_backend_device **device, co_error_info *err)
{
    (void)backend, (void)host, (void)index, (void)device, (void)err;
    return CO_OK;
}

static void
fake_close(co_backend_device *device)
{
    (void)device;
}

static co_code
fake_alloc(co_backend_device *device, size_t nbytes, co_backend_buffer **buffer, co_error_info *err)
{
    (void)device, (void)buffer;
    return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes", nbytes);
}

static co_code
fake_open_queue(co_backend_device *device, co_backend_queue **queue, co_error_info *err)
{
    (void)device, (void)queue, (void)err;
    return CO_OK;
}

static void *
fake_address(co_backend_buffer *buffer)
{
    return buffer;
}

static void
fake_free(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    (void)device, (void)buffer, (void)nbytes;
}

static const co_backend_registry_table registry_table = { fake_count, fake_open };
static const co_backend_device_table   device_table = { fake_close, fake_alloc, fake_open_queue,
                                                        NULL };
static const co_backend_buffer_table   buffer_table = { fake_address, fake_free };

#ifdef FAKE_WHOLE
static void
fake_close_queue(co_backend_queue *queue)
{
    (void)queue;
}

static co_code
fake_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
            size_t nbytes, co_error_info *err)
{
    (void)queue, (void)dst, (void)offset, (void)src, (void)nbytes, (void)err;
    return CO_OK;
}

static co_code
fake_download(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
              size_t nbytes, co_error_info *err)
{
    (void)queue, (void)dst, (void)src, (void)offset, (void)nbytes, (void)err;
    return CO_OK;
}

static co_code
fake_synchronize(co_backend_queue *queue, co_error_info *err)
{
    (void)queue, (void)err;
    return CO_OK;
}

static const co_backend_queue_table queue_table = { .close = fake_close_queue,
                                                    .upload = fake_upload,
                                                    .download = fake_download,
                                                    .synchronize = fake_synchronize };
#define FAKE_QUEUE &queue_table
#else
#define FAKE_QUEUE NULL
#endif

#ifndef FAKE_MISSING
#define FAKE_MISSING 0 /* bytes that its struct lacks */
#endif

extern const co_backend            FAKE_SYMBOL;
CO_BACKEND_EXPORT const co_backend FAKE_SYMBOL = {
    .abi = CO_BACKEND_ABI + FAKE_ABI,
    .struct_size = sizeof(co_backend) - FAKE_MISSING,
    .name = "fake",
    .device_type = FAKE_TYPE,
    .registry = &registry_table,
    .device = &device_table,
    .buffer = &buffer_table,
    .queue = FAKE_QUEUE,
};

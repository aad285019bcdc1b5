/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that is whole and fails in the way that FAULT names: an upload that gives no reason
 * (1), memory that is none (2), an upload that is accepted and whose error comes with the next
 * synchronize, written straight into the record (3), memory that is not aligned (4), memory of the
 * host at NULL (5).
 */
#include <cohort/backend.h>
#include <stdlib.h>
#include <string.h>

static int  the_device, the_queue;
static bool pending;

static co_code
faulty_count(const co_backend *backend, int *count, co_error_info *err)
{
    (void)backend, (void)err;
    *count = 1;
    return CO_OK;
}

static co_code
faulty_open(const co_backend *backend, const co_backend_host *host, int index,
            co_backend_device **device, co_error_info *err)
{
    (void)backend, (void)host, (void)index, (void)err;
    *device = (co_backend_device *)(void *)&the_device;
    return CO_OK;
}

static void
faulty_close(co_backend_device *device)
{
    (void)device;
}

static co_code
faulty_alloc(co_backend_device *device, size_t nbytes, co_backend_buffer **buffer,
             co_error_info *err)
{
    (void)device, (void)err;
    if (FAULT != 2)
        *buffer = aligned_alloc(64, (nbytes + 63) / 64 * 64);
    return CO_OK;
}

static co_code
faulty_open_queue(co_backend_device *device, co_backend_queue **queue, co_error_info *err)
{
    (void)device, (void)err;
    *queue = (co_backend_queue *)(void *)&the_queue;
    return CO_OK;
}

static void *
faulty_address(co_backend_buffer *buffer)
{
    return FAULT == 4 ? (char *)(void *)buffer + 8 : FAULT == 5 ? NULL : (void *)buffer;
}

static void
faulty_free(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    (void)device, (void)nbytes;
    free(buffer);
}

static void
faulty_close_queue(co_backend_queue *queue)
{
    (void)queue;
}

static co_code
faulty_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
              size_t nbytes, co_error_info *err)
{
    (void)queue, (void)err;
    if (FAULT == 1)
        return CO_DATA_LOSS;
    if (FAULT == 3 && nbytes == 12)
        pending = true;
    else
        memcpy((char *)(void *)dst + offset, src, nbytes);
    return CO_OK;
}

static co_code
faulty_download(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
                size_t nbytes, co_error_info *err)
{
    (void)queue, (void)err;
    memcpy(dst, (char *)(void *)src + offset, nbytes);
    return CO_OK;
}

static co_code
faulty_synchronize(co_backend_queue *queue, co_error_info *err)
{
    (void)queue;
    if (!pending)
        return CO_OK;
    pending = false;
    err->code = CO_ABORTED;
    strcpy(err->message, "the upload of before was lost");
    return CO_ABORTED;
}

static const co_backend_registry_table registry_table = { faulty_count, faulty_open };
static const co_backend_device_table device_table = { faulty_close, faulty_alloc, faulty_open_queue,
                                                      NULL };
static const co_backend_buffer_table buffer_table = { faulty_address, faulty_free };
static const co_backend_queue_table  queue_table = { .close = faulty_close_queue,
                                                     .upload = faulty_upload,
                                                     .download = faulty_download,
                                                     .synchronize = faulty_synchronize };

extern const co_backend            co_backend_plugin;
CO_BACKEND_EXPORT const co_backend co_backend_plugin = {
    .abi = CO_BACKEND_ABI,
    .struct_size = sizeof(co_backend),
    .name = "faulty",
    .device_type = "FAULTY",
    .host_memory = FAULT == 5,
    .registry = &registry_table,
    .device = &device_table,
    .buffer = &buffer_table,
    .queue = &queue_table,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that computes on the host: memory is the runtime's, a buffer is its own address,
 * copies are memcpy, commands are done when they return, and so an event has always happened.
 * Kernels are those of src/ops, which the dispatcher calls without a lookup (cpu_kernels).
 */
#include "device/device.h"

#include <string.h>

struct co_backend_device {
    const co_backend_host *host;
};

static co_code
cpu_count(const co_backend *backend, int *count, co_error_info *err)
{
    (void)backend, (void)err;
    *count = INT32_MAX; /* logical devices share the cores: there are as many as requested */
    return CO_OK;
}

static co_code
cpu_open(const co_backend *backend, const co_backend_host *host, int index,
         co_backend_device **device, co_error_info *err)
{
    co_backend_device *made = host->alloc(host, sizeof(*made));

    (void)backend;
    if (made == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for device %d of the host", index);
    made->host = host;
    *device = made;
    return CO_OK;
}

static void
cpu_close(co_backend_device *device)
{
    device->host->free(device->host, device, sizeof(*device));
}

static co_code
cpu_alloc(co_backend_device *device, size_t nbytes, co_backend_buffer **buffer, co_error_info *err)
{
    *buffer = device->host->alloc(device->host, nbytes);
    if (*buffer == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes", nbytes);
    return CO_OK;
}

static co_code
cpu_open_queue(co_backend_device *device, co_backend_queue **queue, co_error_info *err)
{
    (void)err;
    *queue = (co_backend_queue *)(void *)device;
    return CO_OK;
}

static void *
cpu_address(co_backend_buffer *buffer)
{
    return buffer;
}

static void
cpu_free(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    device->host->free(device->host, buffer, nbytes);
}

static void
cpu_close_queue(co_backend_queue *queue)
{
    (void)queue;
}

static char *
at(co_backend_buffer *buffer, size_t offset)
{
    return (char *)(void *)buffer + offset;
}

static co_code
cpu_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
           size_t nbytes, co_error_info *err)
{
    (void)queue, (void)err;
    memcpy(at(dst, offset), src, nbytes);
    return CO_OK;
}

static co_code
cpu_download(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
             size_t nbytes, co_error_info *err)
{
    (void)queue, (void)err;
    memcpy(dst, at(src, offset), nbytes);
    return CO_OK;
}

static co_code
cpu_synchronize(co_backend_queue *queue, co_error_info *err)
{
    (void)queue, (void)err;
    return CO_OK;
}

static co_code
cpu_copy(co_backend_queue *queue, co_backend_buffer *dst, size_t dst_offset, co_backend_buffer *src,
         size_t src_offset, size_t nbytes, co_error_info *err)
{
    (void)queue, (void)err;
    memmove(at(dst, dst_offset), at(src, src_offset), nbytes);
    return CO_OK;
}

static co_code
cpu_fill(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, int byte, size_t nbytes,
         co_error_info *err)
{
    (void)queue, (void)err;
    memset(at(dst, offset), byte, nbytes);
    return CO_OK;
}

/* Any address will do: nobody waits. */
static co_code
cpu_open_event(co_backend_device *device, co_backend_event **event, co_error_info *err)
{
    (void)err;
    *event = (co_backend_event *)(void *)device;
    return CO_OK;
}

static void
cpu_close_event(co_backend_event *event)
{
    (void)event;
}

static co_code
cpu_pass_event(co_backend_queue *queue, co_backend_event *event, co_error_info *err)
{
    (void)queue, (void)event, (void)err;
    return CO_OK;
}

static const co_backend_registry_table registry_table = { .count = cpu_count, .open = cpu_open };
static const co_backend_device_table   device_table = { .close = cpu_close,
                                                        .alloc = cpu_alloc,
                                                        .open_queue = cpu_open_queue };
static const co_backend_buffer_table   buffer_table = { .address = cpu_address, .free = cpu_free };
static const co_backend_queue_table    queue_table = { .close = cpu_close_queue,
                                                       .upload = cpu_upload,
                                                       .download = cpu_download,
                                                       .synchronize = cpu_synchronize,
                                                       .copy = cpu_copy,
                                                       .fill = cpu_fill };
static const co_backend_event_table    event_table = { .open = cpu_open_event,
                                                       .close = cpu_close_event,
                                                       .record = cpu_pass_event,
                                                       .wait = cpu_pass_event };

const co_backend coi_cpu_backend = {
    .abi = CO_BACKEND_ABI,
    .struct_size = sizeof(co_backend),
    .name = "cpu",
    .device_type = "CPU",
    .host_memory = true,
    .registry = &registry_table,
    .device = &device_table,
    .buffer = &buffer_table,
    .queue = &queue_table,
    .event = &event_table,
};

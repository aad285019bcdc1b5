/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of devices: copies to, from and between them, in the order of their queues, and what the
 * empty slots of a backend mean.
 */
#include "device/device.h"

#include <string.h>

/* Foreign memory is the host's, whatever device its tensor is said to be on. */
static bool
is_host(const coi_buffer *buffer)
{
    return buffer->device->host_memory;
}

static char *
host_at(const coi_buffer *buffer, size_t offset)
{
    return (char *)buffer->data + offset;
}

/* After a call of a backend: a failure has an error record, even if the backend did not fill it. */
static co_code
checked(const co_device *device, const char *what, co_code rc, co_error_info *err)
{
    if (rc == CO_OK)
        return CO_OK;
    if (err->code == CO_OK)
        coi_error(err, rc, "backend '%s' failed to %s on %s, and gave no reason",
                  device->backend->name, what, device->name);
    return err->code;
}

/* A failure of commands that could not be reported when it was found: the next call that waits for
 * the device reports it. */
static void
remember_failure(co_device *device, const co_error_info *why)
{
    coi_lock_take(&device->failure_lock);
    if (device->failure.code == CO_OK)
        device->failure = *why;
    coi_lock_give(&device->failure_lock);
}

/* A failure that was kept, which is then forgotten; CO_OK, and nothing written, without one. */
static co_code
take_failure(co_device *device, co_error_info *err)
{
    co_code rc;

    coi_lock_take(&device->failure_lock);
    rc = device->failure.code;
    if (rc != CO_OK) {
        coi_error(err, rc, "%s", device->failure.message);
        coi_error_reset(&device->failure);
    }
    coi_lock_give(&device->failure_lock);
    return rc;
}

co_code
coi_device_upload(co_device *device, coi_buffer *dst, size_t offset, const void *src, size_t nbytes,
                  co_error_info *err)
{
    if (nbytes == 0)
        return CO_OK;
    if (is_host(dst)) {
        memcpy(host_at(dst, offset), src, nbytes);
        return CO_OK;
    }
    return checked(device, "upload",
                   device->backend->queue->upload(device->queue, coi_backend_buffer(dst), offset,
                                                  src, nbytes, err),
                   err);
}

co_code
coi_device_synchronize(co_device *device, co_error_info *err)
{
    co_code rc;

    if (device->host_memory)
        return CO_OK;
    rc = checked(device, "synchronize", device->backend->queue->synchronize(device->queue, err),
                 err);
    return rc != CO_OK ? rc : take_failure(device, err);
}

void
coi_device_settle(co_device *device)
{
    co_error_info why;

    coi_error_reset(&why);
    if (coi_device_synchronize(device, &why) != CO_OK)
        remember_failure(device, &why);
}

co_code
coi_device_download(co_device *device, void *dst, const coi_buffer *src, size_t offset,
                    size_t nbytes, co_error_info *err)
{
    co_code rc;

    if (nbytes == 0)
        return CO_OK;
    if (is_host(src)) {
        memcpy(dst, host_at(src, offset), nbytes);
        return CO_OK;
    }
    rc = checked(device, "download",
                 device->backend->queue->download(device->queue, dst, coi_backend_buffer(src),
                                                  offset, nbytes, err),
                 err);
    return rc == CO_OK ? coi_device_synchronize(device, err) : rc;
}

co_code
coi_device_fill(co_device *device, coi_buffer *dst, size_t offset, int byte, size_t nbytes,
                co_error_info *err)
{
    const co_backend_queue_table *table = device->backend->queue;
    char                          bytes[4096];
    co_code                       rc = CO_OK;

    if (nbytes == 0)
        return CO_OK;
    if (is_host(dst)) {
        memset(host_at(dst, offset), byte, nbytes);
        return CO_OK;
    }
    if (table->fill != NULL)
        return checked(
            device, "fill",
            table->fill(device->queue, coi_backend_buffer(dst), offset, byte, nbytes, err), err);
    memset(bytes, byte, sizeof(bytes));
    for (size_t done = 0; done < nbytes && rc == CO_OK; done += sizeof(bytes))
        rc = coi_device_upload(device, dst, offset + done, bytes,
                               nbytes - done < sizeof(bytes) ? nbytes - done : sizeof(bytes), err);
    return rc;
}

/* The queue of `waiting` continues when all commands submitted to the queue of `first` are done. */
static co_code
order_queues(co_device *first, co_device *waiting, co_error_info *err)
{
    const co_backend_event_table *table = first->backend->event;
    co_backend_event             *event = NULL;
    co_code rc = checked(first, "open an event", table->open(first->handle, &event, err), err);

    if (rc != CO_OK)
        return rc;
    rc = checked(first, "record an event", table->record(first->queue, event, err), err);
    if (rc == CO_OK)
        rc = checked(waiting, "wait for an event", table->wait(waiting->queue, event, err), err);
    table->close(event);
    return rc;
}

/*
 * Between two devices of one backend, by the queue of the one that gets the bytes: after what was
 * to be written to src, and before the memory of src is written to again.
 */
static co_code
copy_across(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
            const coi_buffer *src, size_t src_offset, size_t nbytes, co_error_info *err)
{
    co_code rc = from != to ? order_queues(from, to, err) : CO_OK;

    if (rc == CO_OK)
        rc = checked(to, "copy",
                     to->backend->queue->copy(to->queue, coi_backend_buffer(dst), dst_offset,
                                              coi_backend_buffer(src), src_offset, nbytes, err),
                     err);
    if (rc == CO_OK && from != to)
        rc = order_queues(to, from, err);
    return rc;
}

static co_code
copy_by_host(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
             const coi_buffer *src, size_t src_offset, size_t nbytes, co_error_info *err)
{
    void   *between = coi_alloc(to->memory, nbytes);
    co_code rc;

    if (between == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to copy %zu bytes from %s to %s",
                         nbytes, from->name, to->name);
    rc = coi_device_download(from, between, src, src_offset, nbytes, err);
    if (rc == CO_OK)
        rc = coi_device_upload(to, dst, dst_offset, between, nbytes, err);
    coi_free(to->memory, between, nbytes);
    if (rc == CO_OK)
        coi_count_named_fallback(to, "copy between devices", 2 * nbytes);
    return rc;
}

co_code
coi_device_copy(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
                const coi_buffer *src, size_t src_offset, size_t nbytes, co_error_info *err)
{
    if (nbytes == 0)
        return CO_OK;
    if (is_host(src))
        return coi_device_upload(to, dst, dst_offset, host_at(src, src_offset), nbytes, err);
    if (is_host(dst))
        return coi_device_download(from, host_at(dst, dst_offset), src, src_offset, nbytes, err);
    if (to->backend == from->backend && to->backend->queue->copy != NULL &&
        (to == from || to->backend->event != NULL))
        return copy_across(to, dst, dst_offset, from, src, src_offset, nbytes, err);
    return copy_by_host(to, dst, dst_offset, from, src, src_offset, nbytes, err);
}

/* Kernels rely on the alignment of tensors, those of the host on host memory among them. Memory
 * that is not aligned goes back. */
static co_code
check_address(co_device *device, size_t nbytes, co_backend_buffer **buffer, co_error_info *err)
{
    const co_backend *backend = device->backend;
    const void       *address = backend->buffer->address(*buffer);

    if (address != NULL && (uintptr_t)address % COI_ALIGNMENT == 0)
        return CO_OK;
    backend->buffer->free(device->handle, *buffer, nbytes);
    *buffer = NULL;
    return coi_error(err, CO_INTERNAL,
                     "backend '%s' gave %zu bytes on %s the address %p; it must be a multiple of "
                     "%d, and not NULL",
                     backend->name, nbytes, device->name, address, COI_ALIGNMENT);
}

co_code
coi_device_alloc(co_device *device, size_t nbytes, co_backend_buffer **out, co_error_info *err)
{
    co_code rc = checked(device, "allocate",
                         device->backend->device->alloc(device->handle, nbytes, out, err), err);

    if (rc == CO_OK && *out == NULL)
        rc = coi_error(err, CO_INTERNAL, "backend '%s' allocated nothing on %s",
                       device->backend->name, device->name);
    return rc == CO_OK ? check_address(device, nbytes, out, err) : rc;
}

void
coi_device_free(co_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    const co_backend *backend = device->backend;

    if (!device->host_memory && backend->queue->free != NULL) {
        backend->queue->free(device->queue, buffer, nbytes);
        return;
    }
    coi_device_settle(device);
    backend->buffer->free(device->handle, buffer, nbytes);
}

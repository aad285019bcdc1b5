/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel table of a device without host memory: which operators it computes itself, and how
 * often the host computed the others. A hash table with the address of the operator as key, under a
 * lock; rows are never removed, so their addresses are kept outside it.
 */
#include "device/device.h"

static size_t
slot_of(const void *key)
{
    return (size_t)((uintptr_t)key / 16 * UINT64_C(0x9E3779B97F4A7C15) >> 32) %
           COI_MAX_DEVICE_KERNELS;
}

/* With the lock held: the row, or the free place for it; NULL when there is neither. */
static coi_device_kernel *
find_row(co_device *device, const void *key)
{
    size_t slot = slot_of(key);

    for (size_t i = 0; i < COI_MAX_DEVICE_KERNELS; ++i) {
        coi_device_kernel *row = &device->kernels[(slot + i) % COI_MAX_DEVICE_KERNELS];

        if (row->key == key || row->key == NULL)
            return row;
    }
    return NULL;
}

coi_device_kernel *
coi_device_find_kernel(co_device *device, const void *key, const char *name, bool asks_backend)
{
    const co_backend_device_table *table = device->backend->device;
    coi_device_kernel             *row;

    if (device->kernels == NULL)
        return NULL;
    coi_lock_take(&device->kernels_lock);
    row = find_row(device, key);
    if (row != NULL && row->key == NULL) {
        row->key = key;
        row->name = name;
        if (asks_backend && table->kernel != NULL)
            row->kernel = table->kernel(device->handle, name);
    }
    coi_lock_give(&device->kernels_lock);
    return row;
}

void
coi_count_fallback(co_device *device, coi_device_kernel *kernel, size_t nbytes)
{
    if (kernel == NULL)
        return;
    atomic_fetch_add_explicit(&kernel->fallback_bytes, (long long)nbytes, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&kernel->fallbacks, 1, memory_order_acq_rel) == 0)
        coi_log_line(device->log, CO_LOG_DEBUG,
                     "%s: the host computes %s: backend %s has no kernel for these operands",
                     device->name, kernel->name, device->backend->name);
}

void
coi_count_named_fallback(co_device *device, const char *name, size_t nbytes)
{
    if (!device->host_memory)
        coi_count_fallback(device, coi_device_find_kernel(device, name, name, false), nbytes);
}

void
coi_devices_visit_fallbacks(coi_devices *devices, co_fallback_fn fn, void *user)
{
    for (size_t d = 0; d < coi_devices_count(devices); ++d) {
        co_device *device = coi_devices_at(devices, d);

        for (size_t i = 0; device->kernels != NULL && i < COI_MAX_DEVICE_KERNELS; ++i) {
            coi_device_kernel *row = &device->kernels[i];
            long long          count = atomic_load_explicit(&row->fallbacks, memory_order_acquire);

            if (count > 0)
                fn(device->name, row->name, count,
                   atomic_load_explicit(&row->fallback_bytes, memory_order_relaxed), user);
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel table of a device that the CPU backend does not serve: which operators it computes
 * itself, and how often the host computed the others. A hash table with the address of the operator
 * as key, under a lock; what is no operator has its name as key. Rows are never removed, so their
 * addresses are kept outside it. Operators for which there is no room share one more row.
 */
#include "device/device.h"

#include <string.h>

#define OTHER_OPERATORS "other operators"

static size_t
slot_of(const void *key)
{
    return (size_t)((uintptr_t)key / 16 * UINT64_C(0x9E3779B97F4A7C15) >> 32) %
           COI_MAX_DEVICE_KERNELS;
}

/* A name is compared by its text: equal literals of two files may have two addresses. */
static bool
is_row_of(const coi_device_kernel *row, const void *key, const char *name)
{
    return row->key == key && (key != NULL || strcmp(row->name, name) == 0);
}

/* With the lock held: the row, or the free place for it; the shared row when there is neither. */
static coi_device_kernel *
find_row(co_device *device, const void *key, const char *name)
{
    size_t slot = slot_of(key);

    for (size_t i = 0; i < COI_MAX_DEVICE_KERNELS; ++i) {
        coi_device_kernel *row = &device->kernels[(slot + i) % COI_MAX_DEVICE_KERNELS];

        if (row->name == NULL || is_row_of(row, key, name))
            return row;
    }
    return &device->kernels[COI_MAX_DEVICE_KERNELS];
}

coi_device_kernel *
coi_device_find_kernel(co_device *device, const void *key, const char *name, bool asks_backend)
{
    const co_backend_device_table *table = device->backend->device;
    coi_device_kernel             *row;
    bool                           is_full = false;

    if (device->kernels == NULL)
        return NULL;
    coi_lock_take(&device->kernels_lock);
    row = find_row(device, key, name);
    if (row == &device->kernels[COI_MAX_DEVICE_KERNELS]) {
        is_full = row->name == NULL;
        row->name = OTHER_OPERATORS;
    } else if (row->name == NULL) {
        row->key = key;
        row->name = name;
        if (asks_backend && table->kernel != NULL)
            row->kernel = table->kernel(device->handle, name);
    }
    coi_lock_give(&device->kernels_lock);
    if (is_full)
        coi_log_line(device->log, CO_LOG_WARNING,
                     "%s: its kernel table is full with %d rows; the host computes %s and all "
                     "further operators, and counts them as '" OTHER_OPERATORS "'",
                     device->name, COI_MAX_DEVICE_KERNELS, name);
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
    coi_count_fallback(device, coi_device_find_kernel(device, NULL, name, false), nbytes);
}

void
coi_devices_visit_fallbacks(coi_devices *devices, co_fallback_fn fn, void *user)
{
    for (size_t d = 0; d < coi_devices_count(devices); ++d) {
        co_device *device = coi_devices_at(devices, d);

        for (size_t i = 0; device->kernels != NULL && i <= COI_MAX_DEVICE_KERNELS; ++i) {
            coi_device_kernel *row = &device->kernels[i];
            long long          count = atomic_load_explicit(&row->fallbacks, memory_order_acquire);

            if (count > 0)
                fn(device->name, row->name, count,
                   atomic_load_explicit(&row->fallback_bytes, memory_order_relaxed), user);
        }
    }
}

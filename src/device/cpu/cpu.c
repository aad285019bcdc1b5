/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that computes on the host: memory is the runtime's, copies are memcpy, nothing ever
 * pends.
 */
#include "device/device.h"

static void *
cpu_alloc(co_device *device, size_t nbytes)
{
    return coi_alloc(device->memory, nbytes);
}

static void
cpu_free(co_device *device, void *memory, size_t nbytes)
{
    coi_free(device->memory, memory, nbytes);
}

const coi_device_backend coi_cpu_backend = {
    .abi = COI_DEVICE_BACKEND_ABI,
    .name = "cpu",
    .host_memory = true,
    .alloc = cpu_alloc,
    .free = cpu_free,
};

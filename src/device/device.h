/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of a runtime: names, the registry, memory pools. A backend fills coi_device_backend; only
 * the dispatcher functions here know about its fallbacks.
 */
#ifndef COI_DEVICE_DEVICE_H
#define COI_DEVICE_DEVICE_H

#include <cohort/device.h>

#include "base/isa.h"
#include "base/settings.h"
#include "base/threads.h"
#include "base/topology.h"

/* A parsed device name. Missing numbers are -1, missing texts empty. */
typedef struct coi_device_name {
    char job[64];
    int  replica;
    int  task;
    char type[COI_DEVICE_TYPE_MAX];
    int  index;
} coi_device_name;

/* Parse by DEV-1, DEV-4, DEV-6, DEV-8. NULL is "". out is written on success only. */
co_code coi_device_parse(const char *text, coi_device_name *out, co_error_info *err);
/* Fill missing parts of `name` from `defaults` (may be NULL), then from the constants of DEV-2. */
void coi_device_complete(coi_device_name *name, const coi_device_name *defaults);
/* The text of the parts that are there, canonical when all are. CO_DEVICE_NAME_MAX bytes. */
void coi_device_format(const coi_device_name *name, char *out);
/* The host of a device (DEV-7). */
void coi_device_host(const coi_device_name *name, coi_device_name *out);
bool coi_device_name_equal(const coi_device_name *a, const coi_device_name *b);

typedef struct coi_devices coi_devices;
typedef struct coi_pool    coi_pool;

/*
 * A block of device memory, shared by the tensors that view it. One cache line, with the header of
 * the pool in it.
 */
typedef struct coi_buffer {
    atomic_uint refs;
    uint32_t    size_class; /* of the pool; COI_BUFFER_FOREIGN for memory of somebody else */
    co_device  *device;
    void       *data;
    size_t      nbytes;          /* as asked for */
    void (*deleter)(void *user); /* foreign memory only */
    void              *user;
    struct coi_buffer *next_free;
    uint32_t           idle_since; /* the pool's clock, while it is free */
} coi_buffer;
#define COI_BUFFER_FOREIGN UINT32_MAX

/*
 * A kind of device. The first backend computes on the host (device/cpu) and serves CPUs and
 * declared host-backed devices. Slots below "Optional" may be NULL and then mean what stands beside
 * them.
 */
#define COI_DEVICE_BACKEND_ABI 1
typedef struct coi_device_backend {
    uint32_t    abi;
    const char *name;
    bool        host_memory; /* the host can read it; such devices share buffers */
    /* Aligned to COI_ALIGNMENT; NULL when there is none. */
    void *(*alloc)(co_device *device, size_t nbytes);
    void (*free)(co_device *device, void *memory, size_t nbytes);
    /* Optional. */
    void (*upload)(co_device *device, void *dst, const void *src, size_t nbytes);   /* memcpy */
    void (*download)(co_device *device, void *dst, const void *src, size_t nbytes); /* memcpy */
    void (*synchronize)(co_device *device); /* nothing ever pends */
} coi_device_backend;
extern const coi_device_backend coi_cpu_backend;

struct co_device {
    coi_device_name           id;
    char                      name[CO_DEVICE_NAME_MAX]; /* canonical */
    const coi_device_backend *backend;
    bool                      host_backed;
    const int                *cores; /* its share, num_threads of them; NULL with pin=no */
    int                       num_threads;
    coi_team                 *team;
    coi_devices              *owner;
    coi_pool                 *pool;
    coi_memory               *memory;
};

void coi_device_upload(co_device *device, void *dst, const void *src, size_t nbytes);
void coi_device_download(co_device *device, void *dst, const void *src, size_t nbytes);
void coi_device_synchronize(co_device *device);

/*
 * Devices live until the registry is destroyed; their addresses never change. The pointers given
 * are borrowed.
 */
co_code coi_devices_create(coi_memory *memory, const coi_settings *settings,
                           const coi_topology *topology, coi_waiting *waiting, coi_log *log,
                           coi_devices **out, co_error_info *err);
/*
 * All buffers must be gone; those that are not are reported in the log and their memory goes with
 * the pool.
 */
void       coi_devices_destroy(coi_devices *devices);
size_t     coi_devices_count(coi_devices *devices);
co_device *coi_devices_at(coi_devices *devices, size_t i);
/* By canonical name parts; CO_INVALID_ARGUMENT listing the devices there are. Thread-safe. */
co_code coi_devices_find(coi_devices *devices, const coi_device_name *name, co_device **out,
                         co_error_info *err);
co_code coi_devices_declare(coi_devices *devices, const char *type, int count, co_error_info *err);
/* The i-th of a type in order, NULL past the end: for "all GPUs, or else all CPUs". */
co_device *coi_devices_of_type(coi_devices *devices, const char *type, size_t i);
void       coi_device_fill_info(co_device *device, co_device_info *info);
/* Give all free memory of all devices back to the allocator. Thread-safe. */
void coi_devices_trim(coi_devices *devices);

/*
 * Pool memory, aligned to COI_ALIGNMENT, refs 1. NULL without memory. Thread-safe, tens of
 * nanoseconds when the pool has one.
 */
coi_buffer *coi_buffer_alloc(co_device *device, size_t nbytes);
/*
 * Foreign memory; the deleter runs when refs reach 0. NULL without memory (the deleter is not
 * called then).
 */
coi_buffer *coi_buffer_foreign(co_device *device, void *data, size_t nbytes,
                               void (*deleter)(void *user), void *user);
static inline void
coi_buffer_ref(coi_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
}
void coi_buffer_free(coi_buffer *buffer); /* called by unref alone */
static inline void
coi_buffer_unref(coi_buffer *buffer)
{
    /* Sole owner: nobody else can take a reference, so no locked operation is needed. */
    if (atomic_load_explicit(&buffer->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) == 1)
        coi_buffer_free(buffer);
}

/* The pool of one device; the buffer functions above are its use. */
co_code coi_pool_create(co_device *device, coi_pool **out, co_error_info *err);
/* Returns how many bytes were still in use. */
int64_t coi_pool_destroy(coi_pool *pool);
/* Give free blocks back to the allocator: all of them. */
void coi_pool_trim(coi_pool *pool);
void coi_pool_fill_info(coi_pool *pool, co_device_info *info);
/* The bytes of the block that serves a request; 0 for one that is too large for any. */
size_t coi_pool_block_bytes(size_t nbytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of a runtime: names, the registry, memory pools, copies. A backend fills the tables of
 * <cohort/backend.h>; only the functions here know what its empty slots mean.
 */
#ifndef COI_DEVICE_DEVICE_H
#define COI_DEVICE_DEVICE_H

#include <cohort/backend.h>
#include <cohort/device.h>
#include <stdatomic.h>

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
    void              *user;     /* of the deleter; else the buffer of the backend */
    struct coi_buffer *next_free;
    uint32_t           idle_since; /* the pool's clock, while it is free */
} coi_buffer;
#define COI_BUFFER_FOREIGN UINT32_MAX

/* A buffer as its backend knows it. */
static inline co_backend_buffer *
coi_backend_buffer(const coi_buffer *buffer)
{
    return (co_backend_buffer *)buffer->user;
}

/* cpu/cpu.c: computes on the host. It serves CPUs and declared host-backed devices. */
extern const co_backend coi_cpu_backend;

/* What a device does for one operator: a row of its kernel table. Rows never move. */
typedef struct coi_device_kernel {
    const void       *key;    /* the operator; NULL for what is no operator and has a name alone */
    const char       *name;   /* of it; NULL: the row is free */
    co_backend_kernel kernel; /* NULL: the host computes it */
    atomic_llong fallbacks;   /* calls that the host computed, and the bytes it copied for them */
    atomic_llong fallback_bytes;
} coi_device_kernel;
#define COI_MAX_DEVICE_KERNELS 1024 /* rows of a kernel table; a power of two */
/* With the row that further operators share. */
#define COI_KERNEL_TABLE_BYTES ((COI_MAX_DEVICE_KERNELS + 1) * sizeof(coi_device_kernel))

struct co_device {
    coi_device_name       id;
    _Atomic(const char *) name;                      /* canonical: one of the texts */
    char               texts[2][CO_DEVICE_NAME_MAX]; /* of this process alone, and in its cluster */
    const co_backend  *backend;
    co_backend_device *handle;
    co_backend_queue  *queue;
    bool               cpu_kernels; /* it is served by the CPU backend, whose kernels run without a
                                       lookup */
    bool host_memory;               /* of the backend: the host reads and writes its buffers, and
                                       nothing ever pends */
    bool               host_backed;
    co_device         *host;  /* where the host computes for it: itself, or the first CPU */
    const int         *cores; /* its share, num_threads of them; NULL with pin=no */
    int                num_threads;
    coi_team          *team;
    coi_devices       *owner;
    coi_pool          *pool;
    coi_memory        *memory;
    coi_log           *log;
    coi_lock           failure_lock;
    co_error_info      failure; /* of commands, not reported yet; CO_OK: none */
    coi_lock           kernels_lock;
    coi_device_kernel *kernels; /* the table; NULL with cpu_kernels */
};

/*
 * device_queue.c: what a device does with memory of its own, in the order of its queue. `offset` is
 * in bytes. Upload: src may change at once. Download: the bytes are there when it returns.
 */
co_code coi_device_upload(co_device *device, coi_buffer *dst, size_t offset, const void *src,
                          size_t nbytes, co_error_info *err);
co_code coi_device_download(co_device *device, void *dst, const coi_buffer *src, size_t offset,
                            size_t nbytes, co_error_info *err);
/* Between two devices, or within one; either may have host memory. */
co_code coi_device_copy(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
                        const coi_buffer *src, size_t src_offset, size_t nbytes,
                        co_error_info *err);
co_code coi_device_fill(co_device *device, coi_buffer *dst, size_t offset, int byte, size_t nbytes,
                        co_error_info *err);
co_code coi_device_synchronize(co_device *device, co_error_info *err);
/* The same where a failure cannot be reported: it is kept for the next call that waits. */
void coi_device_settle(co_device *device);
/* Memory of the backend, for the pool. Freeing keeps the order of the queue. */
co_code coi_device_alloc(co_device *device, size_t nbytes, co_backend_buffer **out,
                         co_error_info *err);
void    coi_device_free(co_device *device, co_backend_buffer *buffer, size_t nbytes);

/*
 * kernel_table.c: the row of an operator in the kernel table of a device, made at first need, when
 * the backend may be asked for a kernel. When the table is full, the log says so once, and all
 * further operators get one row without a kernel. key NULL: no operator, known by its name, which
 * is kept. NULL for a device without a table. Thread-safe.
 */
coi_device_kernel *coi_device_find_kernel(co_device *device, const void *key, const char *name,
                                          bool asks_backend);
/* The host computed one call, and copied so many bytes for it. The first is a line of the log. */
void coi_count_fallback(co_device *device, coi_device_kernel *kernel, size_t nbytes);
/* The same for something that is no operator, such as an all-reduce. */
void coi_count_named_fallback(co_device *device, const char *name, size_t nbytes);

/* backends.c: the backends of a runtime. */
#define COI_MAX_BACKENDS 16
typedef struct coi_backends {
    size_t            count;
    const co_backend *at[COI_MAX_BACKENDS];
} coi_backends;
/* Load the shared objects of a list, "a.so:b.so". */
co_code coi_backends_load(coi_backends *backends, const char *list, co_error_info *err);
/*
 * The backend of a device type: one that is compiled in, was loaded, or lies beside the library
 * under the name libcohort_backend_TYPE.so. *out is NULL where there is none.
 */
co_code coi_backends_find(coi_backends *backends, const char *type, const co_backend **out,
                          co_error_info *err);
/* Whether the library can work with a backend; the reason is in the error. `origin` names it. */
co_code coi_backend_check(const co_backend *backend, const char *origin, co_error_info *err);
/* A device type by the rule of names. */
bool coi_is_device_type(const char *type);

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
/*
 * The process becomes a task of a job of a cluster, and its devices are named so from now on
 * (MW-16); the first cluster counts. Inside the library names stay those of a process alone, and
 * only what the program reads and writes is translated.
 */
void coi_devices_join(coi_devices *devices, const char *job, int task);
/* A name as the program reads it, and the text of it. */
coi_device_name coi_devices_shown(coi_devices *devices, const coi_device_name *name);
void            coi_devices_format(coi_devices *devices, const coi_device_name *name, char *out);
/* The other way: the name that the cluster has for a device of this process. */
void coi_devices_take_shown(coi_devices *devices, coi_device_name *name);
/* The i-th of a type in order, NULL past the end: for "all GPUs, or else all CPUs". */
co_device *coi_devices_of_type(coi_devices *devices, const char *type, size_t i);
void       coi_device_fill_info(co_device *device, co_device_info *info);
/* Every row of every kernel table that counted a fallback. */
void coi_devices_visit_fallbacks(coi_devices *devices, co_fallback_fn fn, void *user);
/* Return all free memory of all devices to the allocator. Thread-safe. */
void coi_devices_trim(coi_devices *devices);

/*
 * Pool memory, aligned to COI_ALIGNMENT, refs 1. NULL without memory, and the caller, which knows
 * what it was for, reports CO_RESOURCE_EXHAUSTED. If the backend failed for another reason, the
 * reason is in err then, and stays the first error of the record; without a record (chunks of a
 * kernel, which run on several threads) it is a line of the log. Thread-safe, tens of nanoseconds
 * when the pool has one.
 */
coi_buffer *coi_buffer_alloc(co_device *device, size_t nbytes, co_error_info *err);
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
    /* Sole owner: no other thread can take a reference, so no atomic operation is needed. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device backend implements. cohort.h does not include this header: programs need it only
 * when they are a backend.
 *
 * A backend is five small tables: the registry (which devices there are), the device (its memory,
 * its queue, its kernels), the buffer, the queue and the event. It is compiled into the library, or
 * it is a shared object that exports one symbol:
 *
 *     CO_BACKEND_EXPORT const co_backend co_backend_plugin = {
 *         .abi = CO_BACKEND_ABI,
 *         .struct_size = sizeof(co_backend),
 *         .name = "mine",
 *         .device_type = "MINE",
 *         ...
 *     };
 *
 * The setting `backends` names such files, "backends=/path/mine.so:/path/other.so". The file
 * libcohort_backend_mine.so beside the library, or in COHORT_PLUGIN_PATH, is found without it when
 * `devices=MINE:2` asks for its type. docs/adding-a-backend.md shows a whole one.
 *
 * Rules:
 * - A device has one queue. Its commands run in the order in which they were given, at any later
 *   time. The library calls the tables from several threads.
 * - Every function that can fail takes an error record. It fills the record (co_backend_error does)
 *   and returns the same code. An error of a command that was accepted is returned by the next
 *   synchronize of its queue.
 * - A buffer is freed, and its memory reused, in queue order: a command may read memory that the
 *   library has given to a later command already.
 * - The library never reads or writes the address of a buffer, unless `host_memory` says that it
 *   may.
 * - Slots marked "optional" may be NULL, with the meaning that stands beside them.
 */
#ifndef COHORT_BACKEND_H
#define COHORT_BACKEND_H

#include <cohort/context.h>
#include <cohort/value.h>

#include <stdarg.h>
#include <stdio.h>

CO_EXTERN_C_BEGIN

#define CO_BACKEND_ABI 2
/** The name of the symbol of a shared object, and how it is made visible. */
#define CO_BACKEND_SYMBOL "co_backend_plugin"
#define CO_BACKEND_EXPORT __attribute__((visibility("default")))

/* Objects of the backend. The library keeps their addresses and never looks inside. */
typedef struct co_backend_device co_backend_device;
typedef struct co_backend_buffer co_backend_buffer;
typedef struct co_backend_queue  co_backend_queue;
typedef struct co_backend_event  co_backend_event;

/** What the library offers to a backend. Lives as long as the devices. Thread-safe. */
typedef struct co_backend_host co_backend_host;
struct co_backend_host {
    size_t struct_size;
    /** Host memory, aligned to 64 bytes and counted as the library's; NULL without any. */
    void *(*alloc)(const co_backend_host *host, size_t nbytes);
    void (*free)(const co_backend_host *host, void *memory, size_t nbytes);
    /** One line for the log. */
    void (*log)(const co_backend_host *host, co_log_level level, const char *line);
};

/**
 * A tensor as a kernel sees it: row-major without gaps, from byte `offset` of its buffer. With
 * `host_memory` the kernel gets an address instead, because the memory may be that of another device
 * or of the program; it is aligned for its dtype, and not more.
 */
typedef struct co_backend_tensor {
    co_dtype           dtype;
    int                ndim;
    int64_t            num_elements;
    const int64_t     *dims;
    co_backend_buffer *buffer; /* NULL with host_memory */
    size_t             offset;
    void              *data; /* with host_memory: its first element; else NULL */
} co_backend_tensor;

/** An attribute of an operator, under the name that co_op_describe tells. */
typedef struct co_backend_attr {
    const char    *name;
    int64_t        i;        /* int, bool, dtype, choice (its position) */
    double         f;        /* float; a number of either kind as one */
    size_t         num_ints; /* number of ints */
    const int64_t *ints;     /* NULL when not given */
    const char    *text;     /* choice and string, else NULL */
} co_backend_attr;

/** One call of an operator. Everything in it is valid until the kernel returns. */
typedef struct co_backend_call {
    const char              *op;
    const co_backend_tensor *in;
    size_t                   num_in;
    const co_backend_tensor *out;
    size_t                   num_out;
    const co_backend_attr   *attrs;
    size_t                   num_attrs;
} co_backend_call;

/**
 * Give the commands of one call to a queue. Called on the thread that runs the operator; shapes and
 * dtypes were checked. CO_UNIMPLEMENTED without a command given means "not for these operands": the
 * library then takes its fallback.
 */
typedef co_code (*co_backend_kernel)(co_backend_queue *queue, const co_backend_call *call,
                                     co_error_info *err);

typedef struct co_backend co_backend;

typedef struct co_backend_registry_table {
    /** How many devices there are. */
    co_code (*count)(const co_backend *backend, int *count, co_error_info *err);
    /** Device `index`, from 0. A device is opened once by a runtime. */
    co_code (*open)(const co_backend *backend, const co_backend_host *host, int index,
                    co_backend_device **device, co_error_info *err);
} co_backend_registry_table;

typedef struct co_backend_device_table {
    /** Its queue and buffers are gone. */
    void (*close)(co_backend_device *device);
    /** Memory of at least nbytes, aligned to 64 bytes. CO_RESOURCE_EXHAUSTED without any. */
    co_code (*alloc)(co_backend_device *device, size_t nbytes, co_backend_buffer **buffer,
                     co_error_info *err);
    /** Its queue. Asked for once. */
    co_code (*open_queue)(co_backend_device *device, co_backend_queue **queue, co_error_info *err);
    /** Optional: the kernel of an operator, NULL where it has none. NULL: it has no kernels. Asked
     * once for each operator that has kernels, internal ones included; composite ones are asked for
     * by their parts. While a tape is open, some operators run as variants of other names
     * ("attention_training"), which have more results. */
    co_backend_kernel (*kernel)(co_backend_device *device, const char *op);
} co_backend_device_table;

typedef struct co_backend_buffer_table {
    /** The address that tensors have as their data: a multiple of 64, not NULL, constant. */
    void *(*address)(co_backend_buffer *buffer);
    /** At once. The library synchronizes the queue before. nbytes as given to alloc. */
    void (*free)(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes);
} co_backend_buffer_table;

typedef struct co_backend_queue_table {
    /** Nothing pends. */
    void (*close)(co_backend_queue *queue);
    /** The bytes at src may change as soon as it returns. */
    co_code (*upload)(co_backend_queue *queue, co_backend_buffer *dst, size_t offset,
                      const void *src, size_t nbytes, co_error_info *err);
    /** The bytes are at dst after the next synchronize. */
    co_code (*download)(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
                        size_t nbytes, co_error_info *err);
    /** Wait until all commands that were given before are done. */
    co_code (*synchronize)(co_backend_queue *queue, co_error_info *err);
    /** Optional: copy between buffers of one device, or of two devices of this backend, in which
     * case the library orders the two queues by events. NULL: by way of the host. */
    co_code (*copy)(co_backend_queue *queue, co_backend_buffer *dst, size_t dst_offset,
                    co_backend_buffer *src, size_t src_offset, size_t nbytes, co_error_info *err);
    /** Optional: fill with one byte. NULL: an upload of such bytes. */
    co_code (*fill)(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, int byte,
                    size_t nbytes, co_error_info *err);
    /** Optional: free a buffer when the commands given before are done. NULL: synchronize, then the
     * free of the buffer's table. */
    void (*free)(co_backend_queue *queue, co_backend_buffer *buffer, size_t nbytes);
} co_backend_queue_table;

/** Order between the queues of two devices. */
typedef struct co_backend_event_table {
    co_code (*open)(co_backend_device *device, co_backend_event **event, co_error_info *err);
    /** Commands may still wait for it: the backend frees it when they have. */
    void (*close)(co_backend_event *event);
    /** It happens when the commands given to the queue so far are done. At most once. */
    co_code (*record)(co_backend_queue *queue, co_backend_event *event, co_error_info *err);
    /** Later commands of the queue wait for it; the caller does not. It was recorded. */
    co_code (*wait)(co_backend_queue *queue, co_backend_event *event, co_error_info *err);
} co_backend_event_table;

struct co_backend {
    uint32_t    abi;         /* CO_BACKEND_ABI */
    size_t      struct_size; /* sizeof(co_backend) */
    const char *name;        /* "mine", for people; up to 31 characters */
    const char *device_type; /* "MINE": up to 31 of A-Z, 0-9 and '_', first a letter */
    bool        host_memory; /* the host may read and write its buffers whenever nothing pends;
                                commands are done when they return. Where it has no kernel, that of
                                the CPU runs in place, without copies */
    const co_backend_registry_table *registry;
    const co_backend_device_table   *device;
    const co_backend_buffer_table   *buffer;
    const co_backend_queue_table    *queue;
    /** Optional. NULL: copies between two of its devices go by way of the host. */
    const co_backend_event_table *event;
};

/** Fill an error record; returns code. */
static inline co_code co_backend_error(co_error_info *err, co_code code, const char *format, ...)
    CO_PRINTF(3, 4);
static inline co_code
co_backend_error(co_error_info *err, co_code code, const char *format, ...)
{
    va_list args;

    if (err == NULL)
        return code;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    err->code = code;
    return code;
}

CO_EXTERN_C_END

#endif

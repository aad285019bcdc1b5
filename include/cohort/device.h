/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices. Names follow TensorFlow: "/job:J/replica:r/task:t/device:TYPE:i", every part optional,
 * short forms such as "/cpu:0", "gpu:1" accepted. A single process is /job:localhost. With its
 * first strategy of several processes it becomes a worker. From then on all names that it shows are
 * /job:worker/replica:0/task:RANK/device:...; names with /job:localhost are still accepted.
 *
 * A runtime has logical CPUs, CPU:0, CPU:1, ... (setting `cpus`), each with its share of the cores,
 * and may declare devices of any type on host memory (setting `devices`, "GPU:2"): placement,
 * copies and names behave as they would on the real thing, and such a device is labelled
 * "host-backed" wherever it is shown. Where a backend serves the type (setting `backends`, see
 * backend.h), they are devices of that backend, with memory and kernels of their own.
 * Rules: DEV-1 to DEV-8.
 */
#ifndef COHORT_DEVICE_H
#define COHORT_DEVICE_H

#include <cohort/context.h>

CO_EXTERN_C_BEGIN

#define CO_DEVICE_NAME_MAX 160

/**
 * The canonical form of a device name. Missing parts are taken from the context's current device
 * and then from "/job:localhost/replica:0/task:0/device:CPU:0". NULL or "" names the current
 * device. Writes to `out`, CO_DEVICE_NAME_MAX bytes. CO_VALUE_ERROR for a component that is unknown
 * or malformed, CO_ASSERTION_ERROR for a lower-case type in the /device: form.
 */
CO_API co_code co_device_resolve(co_context *ctx, const char *name, char *out);

/** Make `name` the current device of the context until the matching end. The device need not exist
 * yet. */
CO_API void co_device_begin(co_context *ctx, const char *name);
CO_API void co_device_end(co_context *ctx);
/** The same as a statement; its body may be left in any way, as that of CO_BLOCK. */
#define CO_DEVICE(ctx, name) CO_STATEMENT(co_statement_device(ctx, name))
/** For CO_DEVICE. */
CO_API co_statement co_statement_device(co_context *ctx, const char *name);

/** The canonical name of the context's current device. Lives until the device changes. */
CO_API const char *co_current_device(co_context *ctx);

/** What is known of one device. */
typedef struct co_device_info {
    size_t  struct_size;
    char    name[CO_DEVICE_NAME_MAX];
    char    type[32];
    int     index;
    int     num_threads;    /* its share of the cores */
    bool    host_backed;    /* declared: behaves as a device of its type, computes on the host */
    char    backend[32];    /* "cpu" */
    int64_t bytes_in_use;   /* tensors alive */
    int64_t peak_bytes;
    int64_t bytes_reserved; /* held by the pool */
    int64_t allocations;    /* requests served by the pool */
    int64_t pool_misses;    /* those that went to the allocator */
    bool    host_memory;    /* the host reads its memory where it is */
} co_device_info;
#define CO_DEVICE_INFO_INIT { sizeof(co_device_info), "", "", 0, 0, false, "", 0, 0, 0, 0, 0, false }

/** How many devices the runtime has, and the i-th of them (CO_OUT_OF_RANGE past the end). */
CO_API size_t co_num_devices(co_context *ctx);
CO_API co_code co_get_device_info(co_context *ctx, size_t i, co_device_info *info);

/**
 * Called for an operator that a device has no kernel for: the name of the device, the operator, how
 * often the host computed it, and how many bytes it copied from and to the device for that.
 */
typedef void (*co_fallback_fn)(const char *device, const char *op, int64_t count, int64_t nbytes,
                               void *user);
/** Visit all fallbacks since the runtime was opened. Devices of the backend "cpu" have none. Devices
 * of other backends with host memory have fallbacks of 0 bytes. */
CO_API void co_fallbacks_visit(co_context *ctx, co_fallback_fn fn, void *user);

/** Declare `count` devices of `type` ("GPU"), numbered on from those there are. They are devices of
 * the backend that serves the type (setting `backends`), and else host-backed. */
CO_API co_code co_declare_devices(co_context *ctx, const char *type, int count);

CO_EXTERN_C_END

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of a runtime. They are added, never removed, so readers need no lock: the count is
 * published after the entry. A device belongs to the backend that serves its type; where none does,
 * the host's stands in for it.
 *
 * Cores: the runtime's threads are numbered 0 .. C-1 and laid on the cores in order of locality;
 * device i of n gets those from i*C/n to (i+1)*C/n, and at least one, so with more devices than
 * cores neighbours share.
 */
#include "base/text.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEVICES 1024

/* The host functions that backends get: the table that they see, and its private part. */
typedef struct services {
    co_backend_host table;
    coi_memory     *memory;
    coi_log        *log;
} services;

struct coi_devices {
    services      services;
    coi_backends  backends;
    coi_memory   *memory;
    coi_waiting  *waiting;
    coi_log      *log;
    bool          pin;
    int           num_threads; /* C */
    int          *cores;       /* by thread */
    coi_lock      adding;
    char          job[64]; /* of the cluster, and the task there; read where in_cluster is set */
    int           task;
    atomic_bool   in_cluster;
    atomic_size_t count;
    co_device    *devices[MAX_DEVICES];
};

static void *
serve_alloc(const co_backend_host *host, size_t nbytes)
{
    return coi_alloc(((const services *)(const void *)host)->memory, nbytes);
}

static void
serve_free(const co_backend_host *host, void *memory, size_t nbytes)
{
    coi_free(((const services *)(const void *)host)->memory, memory, nbytes);
}

static void
serve_log(const co_backend_host *host, co_log_level level, const char *line)
{
    coi_log_line(((const services *)(const void *)host)->log, level, "%s", line);
}

size_t
coi_devices_count(coi_devices *devices)
{
    return atomic_load_explicit(&devices->count, memory_order_acquire);
}

co_device *
coi_devices_at(coi_devices *devices, size_t i)
{
    return i < coi_devices_count(devices) ? devices->devices[i] : NULL;
}

co_device *
coi_devices_of_type(coi_devices *devices, const char *type, size_t i)
{
    size_t count = coi_devices_count(devices);

    for (size_t at = 0; at < count; ++at)
        if (strcmp(devices->devices[at]->id.type, type) == 0 && i-- == 0)
            return devices->devices[at];
    return NULL;
}

/* --- names in a cluster --- */

static bool
is_in_cluster(coi_devices *devices)
{
    return devices != NULL && atomic_load_explicit(&devices->in_cluster, memory_order_acquire);
}

coi_device_name
coi_devices_shown(coi_devices *devices, const coi_device_name *name)
{
    coi_device_name shown = *name;

    if (is_in_cluster(devices) && name->replica == 0 && name->task == 0 &&
        strcmp(name->job, "localhost") == 0) {
        memcpy(shown.job, devices->job, sizeof(shown.job));
        shown.task = devices->task;
    }
    return shown;
}

void
coi_devices_format(coi_devices *devices, const coi_device_name *name, char *out)
{
    coi_device_name shown = coi_devices_shown(devices, name);

    coi_device_format(&shown, out);
}

void
coi_devices_take_shown(coi_devices *devices, coi_device_name *name)
{
    if (!is_in_cluster(devices) || name->replica != 0 || name->task != devices->task ||
        strcmp(name->job, devices->job) != 0)
        return;
    memcpy(name->job, "localhost", sizeof("localhost"));
    name->task = 0;
}

/* With `adding` held, or before others see it. */
static void
name_device(coi_devices *devices, co_device *device)
{
    int which = is_in_cluster(devices) ? 1 : 0;

    coi_devices_format(devices, &device->id, device->texts[which]);
    atomic_store_explicit(&device->name, device->texts[which], memory_order_release);
}

void
coi_devices_join(coi_devices *devices, const char *job, int task)
{
    coi_lock_take(&devices->adding);
    if (!is_in_cluster(devices)) {
        snprintf(devices->job, sizeof(devices->job), "%s", job);
        devices->task = task;
        atomic_store_explicit(&devices->in_cluster, true, memory_order_release);
        for (size_t i = 0; i < coi_devices_count(devices); ++i)
            name_device(devices, devices->devices[i]);
    }
    coi_lock_give(&devices->adding);
}

/*
 * "CPU:0 to CPU:3, GPU:0": the devices there are, runs of one type together, cut with dots when too
 * many.
 */
static void
list_devices(coi_devices *devices, char *out, size_t capacity)
{
    size_t count = coi_devices_count(devices);
    size_t length = 0;
    size_t last;

    out[0] = '\0';
    for (size_t i = 0; i < count && length < capacity; i = last + 1) {
        const coi_device_name *first = &devices->devices[i]->id;

        for (last = i;
             last + 1 < count && strcmp(devices->devices[last + 1]->id.type, first->type) == 0;
             ++last)
            ;
        length += (size_t)snprintf(out + length, capacity - length, "%s%s:%d", i == 0 ? "" : ", ",
                                   first->type, first->index);
        if (last > i && length < capacity)
            length += (size_t)snprintf(out + length, capacity - length, " to %s:%d", first->type,
                                       devices->devices[last]->id.index);
    }
    if (length >= capacity)
        memcpy(out + capacity - 4, "...", 4);
}

co_code
coi_devices_find(coi_devices *devices, const coi_device_name *name, co_device **out,
                 co_error_info *err)
{
    size_t          count = coi_devices_count(devices);
    char            wanted[CO_DEVICE_NAME_MAX];
    char            known[400];
    char            base[CO_DEVICE_NAME_MAX];
    coi_device_name first;

    for (size_t i = 0; i < count; ++i)
        if (coi_device_name_equal(&devices->devices[i]->id, name)) {
            *out = devices->devices[i];
            return CO_OK;
        }
    if (err == NULL)
        return CO_INVALID_ARGUMENT; /* a caller that only tests for the device need not pay for the
                                     * text
                                     */
    coi_devices_format(devices, name, wanted);
    list_devices(devices, known, sizeof(known));
    first = coi_devices_shown(devices, &devices->devices[0]->id);
    snprintf(base, sizeof(base), "/job:%s/replica:%d/task:%d", first.job, first.replica,
             first.task);
    return coi_error(
        err, CO_INVALID_ARGUMENT,
        "there is no device %s; there are %s of %s (settings cpus and devices make more)", wanted,
        known, base);
}

/* The threads of device i of n: the first one and, returned, how many. */
static int
share_of(const coi_devices *devices, int i, int n, int *first)
{
    int from = (int)((int64_t)i * devices->num_threads / n);
    int to = (int)((int64_t)(i + 1) * devices->num_threads / n);

    *first = from < devices->num_threads ? from : devices->num_threads - 1;
    return to > from ? to - from : 1;
}

/* Its objects of the backend, as far as they were made. What still pends is done first. */
static void
close_device(co_device *device)
{
    const co_backend *backend = device->backend;

    if (device->queue != NULL) {
        coi_device_settle(device);
        if (device->failure.code != CO_OK)
            coi_log_line(device->log, CO_LOG_ERROR, "%s: %s", device->name,
                         device->failure.message);
        backend->queue->close(device->queue);
    }
    if (device->handle != NULL)
        backend->device->close(device->handle);
}

/* A backend that fails without a message, or succeeds without a result, gets an error here. */
static co_code
check_opened(const co_device *device, const char *what, co_code rc, const void *made,
             co_error_info *err)
{
    if (rc == CO_OK && made != NULL)
        return CO_OK;
    return coi_error(err, rc != CO_OK ? rc : CO_INTERNAL, "backend '%s' opened no %s for %s",
                     device->backend->name, what, device->name);
}

static co_code
open_device(coi_devices *devices, co_device *device, co_error_info *err)
{
    const co_backend *backend = device->backend;
    int               count = 0;
    co_code           rc = backend->registry->count(backend, &count, err);

    if (rc == CO_OK && !device->host_backed && device->id.index >= count)
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "there is no %s:%d: backend '%s' has %d device%s", device->id.type,
                         device->id.index, backend->name, count, count == 1 ? "" : "s");
    if (rc == CO_OK)
        rc = backend->registry->open(backend, &devices->services.table, device->id.index,
                                     &device->handle, err);
    rc = check_opened(device, "device", rc, device->handle, err);
    if (rc != CO_OK)
        return rc;
    rc = backend->device->open_queue(device->handle, &device->queue, err);
    rc = check_opened(device, "queue", rc, device->queue, err);
    coi_lock_init(&device->failure_lock);
    coi_error_reset(&device->failure);
    if (rc != CO_OK || device->cpu_kernels)
        return rc;
    coi_lock_init(&device->kernels_lock);
    device->kernels = coi_calloc(devices->memory, COI_KERNEL_TABLE_BYTES);
    if (device->kernels == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the kernel table of %s",
                         device->name);
    return CO_OK;
}

static void
device_destroy(co_device *device)
{
    int64_t leaked;

    if (device == NULL)
        return;
    coi_team_destroy(device->team);
    leaked = coi_pool_destroy(device->pool);
    if (leaked != 0)
        coi_log_line(device->log, CO_LOG_ERROR, "%s ends with %lld byte%s of tensors alive",
                     device->name, (long long)leaked, COI_S(leaked));
    close_device(device);
    if (device->kernels != NULL)
        coi_free(device->memory, device->kernels, COI_KERNEL_TABLE_BYTES);
    coi_free(device->memory, device, sizeof(*device));
}

/* Device number `index` of its type, i of the n that are made together. */
static co_code
device_create(coi_devices *devices, const co_backend *backend, const char *type, int index, int i,
              int n, co_device **out, co_error_info *err)
{
    co_device *device = coi_calloc(devices->memory, sizeof(*device));
    char       name[16];
    int        first;
    co_code    rc;

    if (device == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for device %s:%d", type, index);
    device->id = (coi_device_name){ "", -1, -1, "", index };
    snprintf(device->id.type, sizeof(device->id.type), "%s", type);
    coi_device_complete(&device->id, NULL);
    name_device(devices, device);
    device->backend = backend != NULL ? backend : &coi_cpu_backend;
    device->host_backed = backend == NULL;
    device->cpu_kernels = device->backend == &coi_cpu_backend;
    device->host_memory = device->backend->host_memory;
    device->host = device->host_memory ? device : devices->devices[0]; /* CPUs come first */
    device->owner = devices;
    device->memory = devices->memory;
    device->log = devices->log;
    device->num_threads = share_of(devices, i, n, &first);
    device->cores = devices->pin ? devices->cores + first : NULL;
    snprintf(name, sizeof(name), "co-%.4s%d", type, index % 10000);
    rc = open_device(devices, device, err);
    if (rc == CO_OK)
        rc = coi_pool_create(device, &device->pool, err);
    if (rc == CO_OK)
        rc = coi_team_create(devices->memory, name, device->cores, device->num_threads,
                             devices->waiting, &device->team, err);
    if (rc != CO_OK) {
        device_destroy(device);
        return rc;
    }
    *out = device;
    return CO_OK;
}

/* A type by the rule of names, in capitals; CO_VALUE_ERROR otherwise. */
static co_code
check_type(const char *type, co_error_info *err)
{
    if (coi_is_device_type(type))
        return CO_OK;
    return coi_error(err, CO_VALUE_ERROR,
                     "device type '%.*s%s': expected 1 to 31 of A-Z, 0-9 and '_', first a letter",
                     COI_CUT(40, type != NULL ? type : "(NULL)"));
}

/* With `adding` held: make all, then show all, or none. */
static co_code
add_devices(coi_devices *devices, const char *type, int count, co_error_info *err)
{
    const co_backend *backend;
    size_t            before = coi_devices_count(devices);
    int               index = 0;
    int               made;
    co_code           rc = coi_backends_find(&devices->backends, type, &backend, err);

    if (rc != CO_OK)
        return rc;
    while (coi_devices_of_type(devices, type, (size_t)index) != NULL)
        ++index;
    if (before + (size_t)count > MAX_DEVICES)
        return coi_error(err, CO_RESOURCE_EXHAUSTED,
                         "%d more devices of type %s make %zu; a runtime has at most %d", count,
                         type, before + (size_t)count, MAX_DEVICES);
    for (made = 0; made < count && rc == CO_OK; ++made)
        rc = device_create(devices, backend, type, index + made, made, count,
                           &devices->devices[before + (size_t)made], err);
    if (rc == CO_OK) {
        atomic_store_explicit(&devices->count, before + (size_t)count, memory_order_release);
        return CO_OK;
    }
    for (made -= 2; made >= 0; --made) {
        device_destroy(devices->devices[before + (size_t)made]);
        devices->devices[before + (size_t)made] = NULL;
    }
    return rc;
}

co_code
coi_devices_declare(coi_devices *devices, const char *type, int count, co_error_info *err)
{
    co_code rc = check_type(type, err);

    if (rc != CO_OK)
        return rc;
    if (count < 1 || count > COI_MAX_DEVICE_COUNT)
        return coi_error(err, CO_VALUE_ERROR,
                         "%d devices of type %s: expected a count from 1 to %d", count, type,
                         COI_MAX_DEVICE_COUNT);
    coi_lock_take(&devices->adding);
    rc = add_devices(devices, type, count, err);
    coi_lock_give(&devices->adding);
    return rc;
}

/* The CPUs and the devices of the setting. */
static co_code
add_from_settings(coi_devices *devices, const coi_settings *settings, co_error_info *err)
{
    const char *list = settings->devices;
    char        type[COI_DEVICE_TYPE_MAX];
    int         count;
    co_code     rc = coi_backends_load(&devices->backends, settings->backends, err);

    if (rc == CO_OK)
        rc = coi_devices_declare(devices, "CPU", settings->cpus, err);
    while (rc == CO_OK && coi_device_list_next(&list, type, &count))
        rc = coi_devices_declare(devices, type, count, err);
    return rc;
}

co_code
coi_devices_create(coi_memory *memory, const coi_settings *settings, const coi_topology *topology,
                   coi_waiting *waiting, coi_log *log, coi_devices **out, co_error_info *err)
{
    coi_devices *devices = coi_calloc(memory, sizeof(*devices));
    co_code      rc;

    if (devices == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the list of devices");
    devices->services = (services){ { sizeof(co_backend_host), serve_alloc, serve_free, serve_log },
                                    memory,
                                    log };
    devices->memory = memory;
    devices->waiting = waiting;
    devices->log = log;
    devices->pin = settings->pin;
    devices->num_threads = settings->threads > 0 ? settings->threads
                                                 : coi_topology_usable(topology);
    coi_lock_init(&devices->adding);
    atomic_init(&devices->count, 0);
    devices->cores = coi_alloc(memory, (size_t)devices->num_threads * sizeof(devices->cores[0]));
    if (devices->cores == NULL) {
        rc = coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %d threads",
                       devices->num_threads);
    } else {
        for (int i = 0; i < devices->num_threads; ++i)
            devices->cores[i] = topology->cores[i % topology->num_cores];
        rc = add_from_settings(devices, settings, err);
    }
    if (rc != CO_OK) {
        coi_devices_destroy(devices);
        return rc;
    }
    *out = devices;
    return CO_OK;
}

void
coi_devices_destroy(coi_devices *devices)
{
    if (devices == NULL)
        return;
    for (size_t i = coi_devices_count(devices); i > 0; --i)
        device_destroy(devices->devices[i - 1]);
    coi_free(devices->memory, devices->cores,
             (size_t)devices->num_threads * sizeof(devices->cores[0]));
    coi_free(devices->memory, devices, sizeof(*devices));
}

void
coi_devices_trim(coi_devices *devices)
{
    size_t count = coi_devices_count(devices);

    for (size_t i = 0; i < count; ++i)
        coi_pool_trim(devices->devices[i]->pool);
}

void
coi_device_fill_info(co_device *device, co_device_info *info)
{
    snprintf(info->name, sizeof(info->name), "%s", device->name);
    memcpy(info->type, device->id.type, sizeof(info->type));
    info->index = device->id.index;
    info->num_threads = device->num_threads;
    info->host_backed = device->host_backed;
    info->host_memory = device->host_memory;
    snprintf(info->backend, sizeof(info->backend), "%s", device->backend->name);
    coi_pool_fill_info(device->pool, info);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backends of a runtime. Some are compiled in, each from its folder src/device/NAME; others are
 * shared objects, which are named by the setting `backends` or found by the device type that is
 * asked for. A file is rejected with the reason, and not called, unless it is a complete backend of
 * our ABI.
 */
#include "base/plugin.h"
#include "base/text.h"
#include "device/device.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The backends that are compiled in, one line each: X(NAME), where src/device/NAME defines
 * coi_NAME_backend. */
#define BUILT_IN_BACKENDS(X) X(cpu)

#define DECLARE(name) extern const co_backend coi_##name##_backend;
BUILT_IN_BACKENDS(DECLARE)
#define ENTRY(name) &coi_##name##_backend,
static const co_backend *const built_in[] = { BUILT_IN_BACKENDS(ENTRY) };
#define NUM_BUILT_IN (sizeof(built_in) / sizeof(built_in[0]))

bool
coi_is_device_type(const char *type)
{
    size_t length = type != NULL ? strnlen(type, COI_DEVICE_TYPE_MAX) : 0;
    bool   good = length > 0 && length < COI_DEVICE_TYPE_MAX && coi_ascii_letter(type[0]);

    for (size_t i = 0; good && i < length; ++i)
        good = (type[i] >= 'A' && type[i] <= 'Z') || coi_ascii_digit(type[i]) || type[i] == '_';
    return good;
}

/* The first required slot that is NULL; NULL when all are there. */
static const char *
missing_slot(const co_backend *b)
{
    if (b->registry == NULL || b->registry->count == NULL || b->registry->open == NULL)
        return "a registry table with count and open";
    if (b->device == NULL || b->device->close == NULL || b->device->alloc == NULL ||
        b->device->open_queue == NULL)
        return "a device table with close, alloc and open_queue";
    if (b->buffer == NULL || b->buffer->address == NULL || b->buffer->free == NULL)
        return "a buffer table with address and free";
    if (b->queue == NULL || b->queue->close == NULL || b->queue->upload == NULL ||
        b->queue->download == NULL || b->queue->synchronize == NULL)
        return "a queue table with close, upload, download and synchronize";
    if (b->event != NULL && (b->event->open == NULL || b->event->close == NULL ||
                             b->event->record == NULL || b->event->wait == NULL))
        return "an event table with open, close, record and wait, or none";
    return NULL;
}

co_code
coi_backend_check(const co_backend *backend, const char *origin, co_error_info *err)
{
    const char *missing;

    if (backend->abi != CO_BACKEND_ABI)
        return coi_error(err, CO_UNIMPLEMENTED,
                         "backend %.300s was built for another version of this library: its abi is "
                         "%u, expected %d; build it again",
                         origin, (unsigned)backend->abi, CO_BACKEND_ABI);
    if (backend->struct_size != sizeof(*backend))
        return coi_error(err, CO_UNIMPLEMENTED,
                         "backend %.300s has another struct co_backend than this library: its "
                         "struct_size is %zu, expected %zu; set it to sizeof(co_backend) and build "
                         "it again",
                         origin, backend->struct_size, sizeof(*backend));
    if (backend->name == NULL || backend->name[0] == '\0' || strnlen(backend->name, 32) > 31)
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "backend %.300s has no name of 1 to 31 characters", origin);
    if (!coi_is_device_type(backend->device_type))
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "backend %.300s serves device type '%.40s': expected 1 to 31 of A-Z, 0-9 "
                         "and '_', first a letter",
                         origin, backend->device_type != NULL ? backend->device_type : "(NULL)");
    missing = missing_slot(backend);
    if (missing != NULL)
        return coi_error(err, CO_INVALID_ARGUMENT, "backend %.300s lacks %s", origin, missing);
    return CO_OK;
}

/* The one of a list that serves a device type; NULL without one. */
static const co_backend *
serving(const co_backend *const *list, size_t n, const char *type)
{
    for (size_t i = 0; i < n; ++i)
        if (strcmp(list[i]->device_type, type) == 0)
            return list[i];
    return NULL;
}

static co_code
add_backend(coi_backends *backends, const co_backend *backend, const char *origin,
            co_error_info *err)
{
    const co_backend *other;
    co_code           rc = coi_backend_check(backend, origin, err);

    if (rc != CO_OK)
        return rc;
    other = serving(backends->at, backends->count, backend->device_type);
    if (other == backend)
        return CO_OK;
    if (other != NULL)
        return coi_error(err, CO_ALREADY_EXISTS,
                         "backend %.300s serves device type %s, and so does backend '%s'", origin,
                         backend->device_type, other->name);
    if (serving(built_in, NUM_BUILT_IN, backend->device_type) != NULL)
        return coi_error(err, CO_ALREADY_EXISTS,
                         "backend %.300s serves device type %s, which the library does itself",
                         origin, backend->device_type);
    if (backends->count == COI_MAX_BACKENDS)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "backend %.300s: there are %d already", origin,
                         COI_MAX_BACKENDS);
    backends->at[backends->count++] = backend;
    return CO_OK;
}

static co_code
take_symbol(coi_backends *backends, const coi_plugin_search *found, co_error_info *err)
{
    const co_backend *backend = dlsym(found->handle, CO_BACKEND_SYMBOL);

    dlclose(found->handle);
    if (backend == NULL)
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "%.300s is not a backend: it does not export " CO_BACKEND_SYMBOL,
                         found->path);
    return add_backend(backends, backend, found->path, err);
}

static co_code
load_file(coi_backends *backends, const char *path, co_error_info *err)
{
    coi_plugin_search found;

    if (!coi_plugin_load(&found, NULL, path))
        return coi_error(err, CO_NOT_FOUND, "backend %.300s does not load: %.400s", path,
                         found.why[0] != '\0' ? found.why : "there is no such file");
    return take_symbol(backends, &found, err);
}

co_code
coi_backends_load(coi_backends *backends, const char *list, co_error_info *err)
{
    co_code rc = CO_OK;

    while (*list != '\0' && rc == CO_OK) {
        size_t length = strcspn(list, ":");
        char   path[PATH_MAX];

        if (length >= sizeof(path))
            return coi_error(err, CO_INVALID_ARGUMENT, "a path of setting backends is too long");
        memcpy(path, list, length);
        path[length] = '\0';
        if (length > 0)
            rc = load_file(backends, path, err);
        list += length + (list[length] == ':');
    }
    return rc;
}

co_code
coi_backends_find(coi_backends *backends, const char *type, const co_backend **out,
                  co_error_info *err)
{
    char              library[sizeof("libcohort_backend_.so") + COI_DEVICE_TYPE_MAX];
    coi_plugin_search found;
    co_code           rc;

    *out = serving(built_in, NUM_BUILT_IN, type);
    if (*out == NULL)
        *out = serving(backends->at, backends->count, type);
    if (*out != NULL)
        return CO_OK;
    snprintf(library, sizeof(library), "libcohort_backend_%s.so", type);
    for (char *at = library; *at != '\0'; ++at)
        *at = (char)tolower((unsigned char)*at);
    if (!coi_plugin_load(&found, library,
                         NULL)) /* of none of them, a type is declared on the host */
        return found.why[0] == '\0' ? CO_OK
                                    : coi_error(err, CO_NOT_FOUND,
                                                "backend of %s does not load: %s", type, found.why);
    rc = take_symbol(backends, &found, err);
    if (rc != CO_OK)
        return rc;
    *out = serving(backends->at, backends->count, type);
    if (*out == NULL)
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "backend %.300s serves another device type than %s, which its name says",
                         found.path, type);
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The current device of a context, and the public calls on devices. A device may be named before it
 * exists (DEV-5): only its use fails, with a list of what there is.
 */
#include <cohort/device.h>

#include "context/context.h"

#include <string.h>

co_code
coi_resolve_name(co_context *ctx, const char *text, coi_device_name *out)
{
    coi_device_name parsed, here = ctx->device_id;

    if (coi_device_parse(text != NULL ? text : "", &parsed, coi_err(ctx)) != CO_OK)
        return coi_failed(ctx);
    /* What is missing is filled from the names that the program reads; the name of a process alone
     * stays one in a cluster. */
    if (strcmp(parsed.job, "localhost") != 0)
        here = coi_devices_shown(ctx->runtime->devices, &here);
    coi_device_complete(&parsed, &here);
    coi_devices_take_shown(ctx->runtime->devices, &parsed);
    /* What another cluster calls its worker of this rank (MW-6) is this process too. */
    if (ctx->rank >= 0 && parsed.replica == 0 && parsed.task == ctx->rank &&
        strcmp(parsed.job, "worker") == 0) {
        memcpy(parsed.job, "localhost", sizeof("localhost"));
        parsed.task = 0;
    }
    *out = parsed;
    return CO_OK;
}

void
coi_set_device(co_context *ctx, const coi_device_name *id)
{
    co_error_info unused;

    coi_error_reset(&unused);
    ctx->device_id = *id;
    if (coi_devices_find(ctx->runtime->devices, id, &ctx->device, &unused) != CO_OK)
        ctx->device = NULL;
}

co_device *
coi_current_device(co_context *ctx)
{
    if (ctx->device == NULL) {
        co_device *found;

        /* It may have been declared since; otherwise this fills the error. */
        if (coi_devices_find(ctx->runtime->devices, &ctx->device_id, &found, coi_err(ctx)) !=
            CO_OK) {
            coi_failed(ctx);
            return NULL;
        }
        ctx->device = found;
    }
    return ctx->device;
}

co_code
co_device_resolve(co_context *ctx, const char *name, char *out)
{
    coi_device_name id;

    COI_ENTER_CODE(ctx, "device_resolve");
    if (out == NULL)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 3 (out) of device_resolve is NULL; it receives %d bytes",
                        CO_DEVICE_NAME_MAX);
    if (coi_resolve_name(ctx, name, &id) != CO_OK)
        return ctx->error.code;
    coi_devices_format(ctx->runtime->devices, &id, out);
    return CO_OK;
}

bool
coi_begin_device(co_context *ctx, const char *name)
{
    coi_device_name id;

    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return false;
    /* The entry is pushed even after an error, so that every end finds its begin. */
    if (ctx->error.code == CO_OK && coi_resolve_name(ctx, name, &id) == CO_OK)
        coi_enter_device(ctx, &id);
    return true;
}

void
co_device_begin(co_context *ctx, const char *name)
{
    COI_ENTER_ALWAYS(ctx, "device_begin", );
    if (ctx->unpushed_devices > 0 || !coi_begin_device(ctx, name))
        ++ctx->unpushed_devices;
}

/*
 * The innermost device entry, 0 if something else must be left first: a strategy set inside a
 * device block may stand above it (SET-11).
 */
static size_t
innermost_device(const co_context *ctx)
{
    for (size_t at = ctx->num_entries; at > 0; --at) {
        if (ctx->entries[at - 1].kind == COI_ENTRY_DEVICE)
            return at;
        if (ctx->entries[at - 1].kind != COI_ENTRY_SET)
            break;
    }
    return 0;
}

void
co_device_end(co_context *ctx)
{
    size_t at;

    COI_ENTER_ALWAYS(ctx, "device_end", );
    if (ctx->unpushed_devices > 0) {
        --ctx->unpushed_devices;
        return;
    }
    at = innermost_device(ctx);
    if (at == 0)
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "no device block is innermost here; scopes are left in the reverse order of entering");
    else
        coi_take_out(ctx, at);
}

const char *
coi_device_text_here(const co_context *ctx, const char *name)
{
    const char *rest = ctx->in_graph && strncmp(name, "/job:", 5) == 0 ? strchr(name + 1, '/')
                                                                       : NULL;

    return rest != NULL ? rest : name;
}

const char *
coi_current_device_name(co_context *ctx)
{
    if (ctx->device != NULL)
        return ctx->device->name;
    coi_devices_format(ctx->runtime->devices, &ctx->device_id, ctx->device_text);
    return ctx->device_text;
}

const char *
co_current_device(co_context *ctx)
{
    COI_GUARD(ctx, "");
    return coi_device_text_here(ctx, coi_current_device_name(ctx));
}

size_t
co_num_devices(co_context *ctx)
{
    if (ctx == NULL || ctx->runtime == NULL || ctx->runtime->devices == NULL)
        return 0;
    return coi_devices_count(ctx->runtime->devices);
}

co_code
co_get_device_info(co_context *ctx, size_t i, co_device_info *info)
{
    co_device_info all = CO_DEVICE_INFO_INIT;
    size_t         size;

    COI_ENTER_CODE(ctx, "get_device_info");
    if (info == NULL || info->struct_size < sizeof(info->struct_size))
        return coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 3 (info) of get_device_info is %s; begin with CO_DEVICE_INFO_INIT",
            info == NULL ? "NULL" : "without struct_size");
    if (i >= co_num_devices(ctx))
        return coi_fail(ctx, CO_OUT_OF_RANGE, "device %zu; there are %zu, from 0", i,
                        co_num_devices(ctx));
    coi_device_fill_info(coi_devices_at(ctx->runtime->devices, i), &all);
    size = info->struct_size < sizeof(all) ? info->struct_size : sizeof(all);
    all.struct_size = size;
    memcpy(info, &all, size);
    return CO_OK;
}

co_code
co_declare_devices(co_context *ctx, const char *type, int count)
{
    COI_ENTER_CODE(ctx, "declare_devices");
    if (type == NULL)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 2 (type) of declare_devices is NULL; a type is a word such as "
                        "\"GPU\"");
    if (coi_devices_declare(ctx->runtime->devices, type, count, coi_err(ctx)) != CO_OK)
        return coi_failed(ctx);
    return CO_OK;
}

co_device *
coi_current_host(co_context *ctx)
{
    co_device *device = coi_current_device(ctx);

    return device != NULL ? device->host : NULL;
}

void
co_fallbacks_visit(co_context *ctx, co_fallback_fn fn, void *user)
{
    size_t floor;

    COI_GUARD(ctx, );
    if (fn == NULL || ctx->runtime->devices == NULL)
        return;
    floor = coi_function_begin(ctx);
    coi_devices_visit_fallbacks(ctx->runtime->devices, fn, user);
    coi_function_end(ctx, floor);
}

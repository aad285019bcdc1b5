/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of entries: scopes, runs, merges, updates, creators, devices. An entry saves mode and
 * device and restores them. Entries that make a strategy current keep it alive.
 */
#include "context/context.h"

#include <string.h>

bool
coi_make_room_to_push(co_context *ctx)
{
    if (coi_grow(&ctx->runtime->memory, (void **)&ctx->entries, &ctx->cap_entries,
                 ctx->num_entries + 1, sizeof(*ctx->entries)))
        return true;
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for scope %zu", ctx->num_entries + 1);
    return false;
}

void
coi_pop_to(co_context *ctx, size_t entries)
{
    while (ctx->num_entries > entries) {
        if (ctx->entries[ctx->num_entries - 1].is_statement)
            coi_say_left_entry(ctx, ctx->num_entries);
        coi_pop(ctx);
    }
}

void
coi_take_out(co_context *ctx, size_t at)
{
    coi_entry entry;

    if (at == ctx->num_entries) {
        coi_pop(ctx);
        return;
    }
    entry = ctx->entries[at - 1];
    memmove(&ctx->entries[at - 1], &ctx->entries[at], (ctx->num_entries - at) * sizeof(entry));
    --ctx->num_entries;
    if (entry.undo != NULL)
        entry.undo(ctx, entry.user);
    if (entry.changes_device) {
        ctx->device = entry.saved_device;
        ctx->device_id = entry.saved_name;
    }
}

co_code
coi_fail_not_innermost(co_context *ctx)
{
    return coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "scopes are left in the reverse order of entering, and this one is not the innermost; if "
        "co_experimental_set_strategy was called inside it, move that call out of the scope");
}

void
coi_enter_device(co_context *ctx, const coi_device_name *id)
{
    coi_entry *entry = &ctx->entries[ctx->num_entries - 1];

    entry->changes_device = true;
    entry->saved_name = ctx->device_id;
    coi_set_device(ctx, id);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statement macros: CO_BLOCK, CO_EACH, CO_SCOPE, CO_CREATOR, CO_DEVICE. Each has a token, so
 * its end knows which block or entry is its own, and closes what other statements have left open
 * inside it: without the cleanup attribute a statement that is left by goto or return does not see
 * its end. Explicit begins and ends pair by themselves; only blocks and scopes that are inside what
 * ends go with it.
 */
#include "context/context.h"

#include <stdio.h>

/* The token of a statement that has nothing to close; its body runs all the same. */
#define NOTHING UINT64_MAX

static const char *const statement_names[] = {
    [COI_ENTRY_SCOPE] = "CO_SCOPE",
    [COI_ENTRY_SCOPE_NESTED] = "CO_SCOPE",
    [COI_ENTRY_CREATOR] = "CO_CREATOR",
    [COI_ENTRY_DEVICE] = "CO_DEVICE",
    [COI_ENTRY_COLOCATE] = "",
    [COI_ENTRY_GRAPH] = "CO_GRAPH",
    [COI_ENTRY_CONTROL] = "CO_CONTROL_DEPENDENCIES",
    [COI_ENTRY_INIT_SCOPE] = "CO_INIT_SCOPE",
};

static const char *const end_names[] = {
    [COI_ENTRY_SCOPE] = "scope_end",
    [COI_ENTRY_SCOPE_NESTED] = "scope_end",
    [COI_ENTRY_CREATOR] = "creator_end",
    [COI_ENTRY_DEVICE] = "device_end",
    [COI_ENTRY_COLOCATE] = "",
    [COI_ENTRY_GRAPH] = "graph_end",
    [COI_ENTRY_CONTROL] = "control_dependencies_end",
    [COI_ENTRY_INIT_SCOPE] = "init_scope_end",
};

/* "train.c:12: CO_SCOPE was left by goto or return; ..." */
static void
say_left(co_context *ctx, bool is_statement, const char *statement, co_site_info site)
{
    char where[300] = "";

    if (!is_statement) {
        coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                     "a block or scope that was begun inside a CO_... statement is still open; it "
                     "is closed with what is around it");
        return;
    }
    if (site.file != NULL)
        snprintf(where, sizeof(where), "%s:%d: ", site.file, site.line);
    coi_log_line(
        &ctx->runtime->log, CO_LOG_WARNING,
        "%s%s was left by goto or return without its end; it is closed with what is around "
        "it",
        where, statement);
}

void
coi_say_left_block(co_context *ctx)
{
    const coi_block *block = &ctx->blocks[ctx->num_blocks - 1];

    say_left(ctx, block->id != 0, "CO_BLOCK or CO_EACH", block->site);
}

void
coi_say_left_entry(co_context *ctx, size_t at)
{
    const coi_entry *entry = &ctx->entries[at - 1];

    say_left(ctx, entry->is_statement, statement_names[entry->kind], entry->site);
}

/* Close entries from the top down to the one at `at`. A strategy that was set there stays
 * (SET-11). */
static void
leave_entries(co_context *ctx, size_t at)
{
    for (size_t i = ctx->num_entries; i >= at; --i) {
        if (ctx->entries[i - 1].kind == COI_ENTRY_SET)
            continue;
        coi_say_left_entry(ctx, i);
        coi_take_out(ctx, i);
    }
}

/* Close what statements entered in the blocks beyond the first `depth`, with all above it. */
static void
leave_entries_of_blocks(co_context *ctx, size_t depth)
{
    size_t first = 0;

    for (size_t i = ctx->num_entries; i > 0; --i)
        if (ctx->entries[i - 1].is_statement && ctx->entries[i - 1].num_blocks > depth)
            first = i;
    if (first > 0)
        leave_entries(ctx, first);
}

void
coi_end_block(co_context *ctx, size_t at)
{
    leave_entries_of_blocks(ctx, at - 1);
    while (ctx->num_blocks > at) {
        coi_say_left_block(ctx);
        coi_pop_block(ctx);
    }
    coi_pop_block(ctx);
}

/* Whether a statement can close its entry: only statements are open inside it, or, for devices, a
 * strategy that was set there. */
static bool
may_leave(const co_context *ctx, size_t at)
{
    for (size_t i = at + 1; i <= ctx->num_entries; ++i) {
        const coi_entry *above = &ctx->entries[i - 1];

        if (!above->is_statement &&
            (above->kind != COI_ENTRY_SET || ctx->entries[at - 1].kind != COI_ENTRY_DEVICE))
            return false;
    }
    return true;
}

static void
end_entry(co_context *ctx, size_t at)
{
    size_t num_blocks = ctx->entries[at - 1].num_blocks;

    if (!may_leave(ctx, at)) {
        coi_fail_not_innermost(ctx);
        return;
    }
    if (ctx->num_entries > at)
        leave_entries(ctx, at + 1);
    while (ctx->num_blocks > num_blocks && ctx->blocks[ctx->num_blocks - 1].id != 0) {
        coi_say_left_block(ctx);
        coi_pop_block(ctx);
    }
    coi_take_out(ctx, at);
}

/* Where the block or the entry of a token is, counted from 1; 0 if it is not open. */
static size_t
find_block(const co_context *ctx, uint64_t id)
{
    size_t at = ctx->num_blocks;

    while (at > ctx->block_floor && ctx->blocks[at - 1].id != id)
        --at;
    return at > ctx->block_floor ? at : 0;
}

static size_t
find_entry(const co_context *ctx, uint64_t id)
{
    size_t at = ctx->num_entries;

    while (at > 0 && ctx->entries[at - 1].id != id)
        --at;
    return at;
}

/* Whether the token is that of the innermost block, with no entry inside it: those have later
 * ids. */
static inline bool
is_innermost_block(const co_context *ctx, uint64_t id)
{
    return ctx->num_blocks > ctx->block_floor && ctx->blocks[ctx->num_blocks - 1].id == id &&
           (ctx->num_entries == 0 || ctx->entries[ctx->num_entries - 1].id < id);
}

/* Whether it is that of the entry on top, with no block inside it. */
static inline bool
is_innermost_entry(const co_context *ctx, uint64_t id)
{
    const coi_entry *top = ctx->num_entries > 0 ? &ctx->entries[ctx->num_entries - 1] : NULL;

    return top != NULL && top->id == id && top->num_blocks == ctx->num_blocks;
}

co_statement
co_statement_block(co_context *ctx)
{
    co_statement statement = { ctx, NOTHING };
    coi_block   *block;

    COI_ENTER_ALWAYS(ctx, "block_begin", statement);
    block = coi_push_block(ctx);
    if (block == NULL)
        return statement;
    statement.id = block->id = ctx->next_entry++;
    coi_copy_site(&block->site, &ctx->site);
    return statement;
}

co_statement
co_statement_device(co_context *ctx, const char *name)
{
    co_statement statement = { ctx, NOTHING };

    COI_ENTER_ALWAYS(ctx, "device_begin", statement);
    if (!coi_begin_device(ctx, name))
        return statement;
    return coi_entry_statement(ctx, ctx->entries[ctx->num_entries - 1].id);
}

void
co_statement_end(co_statement *statement)
{
    co_context *ctx;
    uint64_t    id;
    size_t      at;

    if (statement == NULL || statement->id == 0)
        return;
    ctx = statement->ctx;
    id = statement->id;
    statement->id = 0;
    if (id == NOTHING)
        return;
    COI_GUARD(ctx, );
    /* As nearly always: */
    if (is_innermost_block(ctx, id)) {
        coi_pop_block(ctx);
    } else if (is_innermost_entry(ctx, id)) {
        coi_pop(ctx);
    } else if ((at = find_block(ctx, id)) > 0) {
        ctx->site = ctx->blocks[at - 1].site;
        ctx->call = "block_end";
        coi_end_block(ctx, at);
    } else if ((at = find_entry(ctx, id)) > 0) {
        ctx->site = ctx->entries[at - 1].site;
        ctx->call = end_names[ctx->entries[at - 1].kind];
        end_entry(ctx, at);
    } else {
        ctx->call = "statement_end";
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "the block or scope of a CO_... statement was ended already: inside it, or by a "
                 "copy of the statement; it ends by itself, once");
    }
}

/* The block is not the innermost one any more: it ends with what is inside it, and another begins.
 */
static void
begin_elsewhere(co_context *ctx, co_statement *statement)
{
    co_site_info site = { NULL, 0 };

    if (coi_is_usable(ctx))
        site = ctx->site;
    co_statement_end(statement);
    if (coi_is_usable(ctx))
        ctx->site = site;
    *statement = co_statement_block(ctx);
}

void
co_statement_again(co_context *ctx, co_statement *statement)
{
    if (statement == NULL || statement->id == 0)
        return;
    if (coi_is_usable(ctx) && statement->ctx == ctx && is_innermost_block(ctx, statement->id)) {
        COI_GUARD(ctx, );
        coi_empty_block(ctx);
        return;
    }
    begin_elsewhere(ctx, statement);
}

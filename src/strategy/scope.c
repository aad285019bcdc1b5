/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which strategy is current: scopes, experimental_set_strategy, and the four questions. Sections 2
 * to 5 of the specification; "thread" there is the context here (C-CTX-1).
 */
#include <cohort/creator.h>

#include "ops/engine/call_recording.h"
#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

const char *
coi_strategy_text(const co_strategy *strategy, char out[COI_STRATEGY_TEXT])
{
    if (strategy == NULL)
        snprintf(out, COI_STRATEGY_TEXT, "the default strategy");
    else
        snprintf(out, COI_STRATEGY_TEXT, "%s #%llu (%d replica%s)", strategy->policy->name,
                 (unsigned long long)strategy->serial, strategy->num_replicas,
                 strategy->num_replicas == 1 ? "" : "s");
    return out;
}

bool
coi_refuse_strategy(co_context *ctx, const co_strategy *strategy, int position)
{
    if (coi_check_object(ctx, strategy, &coi_strategy_class, position, "strategy"))
        coi_fail(ctx, CO_UNAVAILABLE, "the strategy cannot be used any more: %s; make a new one",
                 strategy->why);
    return false;
}

bool
coi_check_v2(co_context *ctx, co_strategy *strategy)
{
    char text[COI_STRATEGY_TEXT];

    if (!coi_check_strategy(ctx, strategy, 2))
        return false;
    if (!strategy->is_v1)
        return true;
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "%s is of the v1 flavour, which has no %s; make the strategy without v1, with "
             "co_one_device_strategy or one of its siblings",
             coi_strategy_text(strategy, text), ctx->call);
    return false;
}

bool
coi_check_offered(co_context *ctx, const co_strategy *strategy)
{
    const coi_refusal *r = strategy->policy->refusals;

    for (; r != NULL && r->call != NULL; ++r)
        if (strcmp(r->call, ctx->call) == 0) {
            coi_fail(ctx, r->code, "%s", r->message);
            return false;
        }
    return true;
}

static bool
refuse_mixed(co_context *ctx, const co_strategy *strategy)
{
    char a[COI_STRATEGY_TEXT], b[COI_STRATEGY_TEXT];

    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "mixing strategies: %s is called while %s is current; leave its scope first, or use the "
        "one that is current",
        coi_strategy_text(strategy, a), coi_strategy_text(ctx->mode.strategy, b));
    return false;
}

/* No other strategy is current. */
static bool
check_not_mixed(co_context *ctx, co_strategy *strategy)
{
    if (ctx->mode.strategy == NULL || ctx->mode.strategy == coi_current(strategy))
        return true;
    return refuse_mixed(ctx, strategy);
}

static bool
refuse_in_step(co_context *ctx, const co_strategy *strategy)
{
    char text[COI_STRATEGY_TEXT];

    if (ctx->mode.strategy == NULL)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "%s is called inside a step of the default strategy; steps do not nest",
                 ctx->call);
    else
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "%s of %s is called in replica context (replica %d) and needs cross-replica context; call it "
            "outside the step, or inside co_merge_call",
            ctx->call, coi_strategy_text(strategy, text), ctx->mode.replica);
    return false;
}

bool
coi_check_enter(co_context *ctx, co_strategy *strategy)
{
    if (!check_not_mixed(ctx, strategy))
        return false;
    if (ctx->mode.strategy != coi_current(strategy) || !coi_in_replica(ctx))
        return true;
    return refuse_in_step(ctx, strategy);
}

bool
coi_check_cross(co_context *ctx, co_strategy *strategy)
{
    char text[COI_STRATEGY_TEXT];

    if (!coi_check_enter(ctx, strategy))
        return false;
    if (ctx->mode.strategy == coi_current(strategy) || (!coi_in_replica(ctx) && !ctx->mode.cross))
        return true;
    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "%s of %s is called inside a %s of the default strategy; enter a scope of it there, or "
        "call it outside",
        ctx->call, coi_strategy_text(strategy, text), ctx->mode.cross ? "merge function" : "step");
    return false;
}

/* Cross-replica context of a strategy. */
static void
enter_cross(co_context *ctx, co_strategy *strategy)
{
    ctx->mode.strategy = strategy;
    ctx->mode.cross = true;
    ctx->mode.replica = 0;
    ctx->mode.local_replica = 0;
    ctx->mode.num_replicas = strategy->num_replicas;
    ctx->mode.update_id = -1;
    ctx->mode.step = NULL;
}

/* MW-7: operations outside run are placed on the own worker. */
static void
enter_worker_device(co_context *ctx, const co_strategy *strategy)
{
    coi_device_name host;

    if (!strategy->policy->workers)
        return;
    coi_device_host(&strategy->devices[0], &host);
    coi_enter_device(ctx, &host);
}

/* The id of the entry; 0 with an error. */
static inline uint64_t
begin_scope(co_context *ctx, co_strategy *strategy)
{
    coi_entry *entry;
    bool       nested;

    COI_ENTER(ctx, "scope_begin", 0);
    if (!coi_check_strategy(ctx, strategy, 2))
        return 0;
    /* A scope that does not change the mode may be entered inside a step too (DEF-2, DEF-18). */
    if (strategy->policy->changes_mode ? !coi_check_enter(ctx, strategy)
                                       : !check_not_mixed(ctx, strategy))
        return 0;
    nested = ctx->mode.strategy == coi_current(strategy);
    entry = coi_push(ctx, nested ? COI_ENTRY_SCOPE_NESTED : COI_ENTRY_SCOPE, strategy);
    if (entry == NULL)
        return 0;
    if (!nested) {
        enter_cross(ctx, strategy);
        enter_worker_device(ctx, strategy);
    }
    return entry->id;
}

co_scope
co_scope_begin(co_context *ctx, co_strategy *strategy)
{
    return (co_scope){ begin_scope(ctx, strategy) };
}

co_statement
co_statement_scope(co_context *ctx, co_strategy *strategy)
{
    return coi_entry_statement(ctx, begin_scope(ctx, strategy));
}

static bool
is_creator(const coi_entry *entry)
{
    return entry->kind == COI_ENTRY_CREATOR;
}
static bool
is_scope(const coi_entry *entry)
{
    return entry->kind == COI_ENTRY_SCOPE || entry->kind == COI_ENTRY_SCOPE_NESTED;
}

/* The open entry of a token; NULL if there is none. */
static const coi_entry *
find_open(const co_context *ctx, uint64_t id)
{
    for (size_t i = 0; i < ctx->num_entries; ++i)
        if (ctx->entries[i].id == id)
            return &ctx->entries[i];
    return NULL;
}

/* Whether the context gave out this token: see coi_context_new. A context that has entered more
 * than 2^32 times no longer knows its first ones. */
static bool
is_own(const co_context *ctx, uint64_t id)
{
    return id < ctx->next_entry && id >> 32 == ctx->next_entry >> 32;
}

/* Why a token cannot be ended: it is not open, of the other kind, or not innermost. */
static co_code
refuse_end(co_context *ctx, const co_scope *scope, bool creator)
{
    const char      *begin = creator ? "co_creator_begin" : "co_scope_begin";
    const coi_entry *open;

    if (scope == NULL || scope->id == 0)
        return coi_fail(ctx, CO_RUNTIME_ERROR,
                        "argument 2 (scope) of %s is %s, so it is not open; give what %s returned, "
                        "once",
                        ctx->call, scope == NULL ? "NULL" : "ended already or was never begun",
                        begin);
    open = find_open(ctx, scope->id);
    if (open == NULL)
        return coi_fail(ctx, CO_RUNTIME_ERROR,
                        "argument 2 (scope) of %s is %s; end what %s returned once, in the context "
                        "that began it",
                        ctx->call,
                        is_own(ctx, scope->id) ? "a copy of one that was ended already"
                                               : "not open in this context",
                        begin);
    if (creator ? is_scope(open) : is_creator(open))
        return coi_fail(ctx, CO_RUNTIME_ERROR, "argument 2 (scope) of %s is of %s; end it with %s",
                        ctx->call, creator ? "co_scope_begin" : "co_creator_begin",
                        creator ? "co_scope_end" : "co_creator_end");
    return coi_fail_not_innermost(ctx);
}

static inline co_code
end_scope(co_context *ctx, co_scope *scope, bool creator)
{
    const coi_entry *top = ctx->num_entries > 0 ? &ctx->entries[ctx->num_entries - 1] : NULL;

    if (scope == NULL || scope->id == 0 || top == NULL || top->id != scope->id ||
        !(creator ? is_creator(top) : is_scope(top)))
        return refuse_end(ctx, scope, creator);
    coi_pop(ctx);
    scope->id = 0;
    return CO_OK;
}

co_code
co_scope_end(co_context *ctx, co_scope *scope)
{
    COI_ENTER_ALWAYS(ctx, "scope_end", coi_refusal_code(ctx));
    return end_scope(ctx, scope, false);
}

co_code
co_creator_end(co_context *ctx, co_scope *scope)
{
    COI_ENTER_ALWAYS(ctx, "creator_end", coi_refusal_code(ctx));
    return end_scope(ctx, scope, true);
}

/* Where the entry of the strategy that was set is, or num_entries. */
static size_t
find_set(const co_context *ctx)
{
    size_t at = 0;

    while (at < ctx->num_entries && ctx->entries[at].kind != COI_ENTRY_SET)
        ++at;
    return at;
}

/* SET-5, SET-6, SET-10, SET-14. */
static bool
may_set(co_context *ctx)
{
    if (ctx->mode.step != NULL || ctx->mode.update_id >= 0) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "set_strategy is called inside a step, merge or update function; call it "
                 "outside");
        return false;
    }
    for (size_t i = 0; i < ctx->num_entries; ++i) {
        coi_entry_kind kind = ctx->entries[i].kind;

        if (kind == COI_ENTRY_SCOPE || kind == COI_ENTRY_SCOPE_NESTED || kind == COI_ENTRY_MERGE) {
            char text[COI_STRATEGY_TEXT];

            coi_fail(ctx, CO_RUNTIME_ERROR,
                     "set_strategy is called inside a scope of %s; move the call out of the scope",
                     coi_strategy_text(ctx->entries[i].strategy, text));
            return false;
        }
    }
    return true;
}

/* Take the set strategy away; entries above it (devices, creators) stay. */
static void
unset(co_context *ctx)
{
    size_t       at = find_set(ctx);
    co_strategy *was;

    if (at == ctx->num_entries)
        return;
    if (at + 1 == ctx->num_entries) {
        coi_pop(ctx);
        return;
    }
    was = ctx->entries[at].strategy;
    ctx->mode = ctx->entries[at].saved_mode;
    for (size_t i = at + 1; i < ctx->num_entries; ++i)
        ctx->entries[i].saved_mode = ctx->mode;
    memmove(&ctx->entries[at], &ctx->entries[at + 1],
            (ctx->num_entries - at - 1) * sizeof(coi_entry));
    --ctx->num_entries;
    coi_unref(&ctx->heap, was);
}

co_code
co_experimental_set_strategy(co_context *ctx, co_strategy *strategy)
{
    COI_ENTER_CODE(ctx, "experimental_set_strategy");
    if (strategy != NULL && !coi_check_strategy(ctx, strategy, 2))
        return ctx->error.code;
    if (!may_set(ctx))
        return ctx->error.code;
    if (strategy == NULL) {
        unset(ctx);
        return CO_OK;
    }
    /* The room for the new entry first, so that failing changes nothing. */
    if (coi_push(ctx, COI_ENTRY_SET, strategy) == NULL)
        return ctx->error.code;
    coi_pop(ctx);
    unset(ctx);
    coi_push(ctx, COI_ENTRY_SET, strategy);
    if (!strategy->policy->changes_mode)
        return CO_OK; /* SET-9 */
    enter_cross(ctx, strategy);
    enter_worker_device(ctx, strategy);
    return CO_OK;
}

/* Whether ctx can be asked where it is. A function that asks while it is captured holds there
 * alone. */
static bool
asks_place(co_context *ctx)
{
    if (!coi_is_usable(ctx))
        return false;
    coi_note_place(ctx);
    return true;
}

co_strategy *
co_get_strategy(co_context *ctx)
{
    if (!asks_place(ctx))
        return NULL;
    return ctx->mode.strategy != NULL ? ctx->mode.strategy : co_default_strategy(ctx);
}

bool
co_has_strategy(co_context *ctx)
{
    return asks_place(ctx) && ctx->mode.strategy != NULL;
}

bool
co_in_cross_replica_context(co_context *ctx)
{
    return asks_place(ctx) && ctx->mode.cross;
}

co_context *
co_get_replica_context(co_context *ctx)
{
    return asks_place(ctx) && !ctx->mode.cross ? ctx : NULL;
}

int
co_replica_id(co_context *ctx)
{
    return asks_place(ctx) && !ctx->mode.cross ? ctx->mode.replica : -1;
}

co_value *
co_replica_id_tensor(co_context *ctx)
{
    COI_ENTER(ctx, "replica_id_tensor", NULL);
    coi_note_place(ctx);
    if (ctx->mode.cross) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "there is no replica in cross-replica context; call it inside a step");
        return NULL;
    }
    return co_scalar_int32(ctx, ctx->mode.replica);
}

int
co_replicas(co_context *ctx)
{
    return asks_place(ctx) ? ctx->mode.num_replicas : 0;
}

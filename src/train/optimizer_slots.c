/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: the variables that an optimizer keeps for each variable that it updates, such as its
 * momentum. A slot has the dtype, shape, strategy and components of its variable, each component
 * beside that of the variable, and is called like it: "weights/momentum".
 */
#include "train/optimizer.h"

#include "strategy/distributed_variables.h"

#include "variable/variable.h"

#include <stdio.h>
#include <string.h>

static void
destroy_entry(coi_heap *heap, coi_slot_entry *entry)
{
    for (int i = 0; i < COI_ALL_SLOTS; ++i)
        coi_unref(heap, entry->slots[i]);
    coi_unref(heap, entry->variable);
    coi_free(heap->store->memory, entry, sizeof(*entry));
}

/* Entries by variable, hashed: a power of two of places, at least half of which are free. It is
 * read without a lock, so tables that became too small stay until the optimizer goes. */
typedef struct coi_slot_table {
    struct coi_slot_table    *older;
    size_t                    capacity;
    _Atomic(coi_slot_entry *) at[];
} coi_slot_table;

static size_t
table_size(size_t capacity)
{
    return sizeof(coi_slot_table) + capacity * sizeof(_Atomic(coi_slot_entry *));
}

void
coi_slots_free(coi_heap *heap, co_optimizer *optimizer)
{
    coi_slot_table *table = atomic_load(&optimizer->table), *older;

    for (size_t i = 0; table != NULL && i < table->capacity; ++i)
        if (table->at[i] != NULL)
            destroy_entry(heap, table->at[i]);
    for (; table != NULL; table = older) {
        older = table->older;
        coi_free(heap->store->memory, table, table_size(table->capacity));
    }
}

static bool
no_memory(co_context *ctx, const coi_variable *variable)
{
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the slots of '%.100s'", variable->name);
    return false;
}

static bool
make_slots(co_context *ctx, const co_optimizer *optimizer, coi_slot_entry *entry)
{
    const char *variable = entry->variable->u.variable->name;
    size_t      nbytes = strlen(variable) + 2;
    char       *name;

    for (int i = 0; i < optimizer->num_slots; ++i)
        nbytes += strlen(optimizer->slots[i].name);
    name = coi_small_alloc(&ctx->heap, nbytes);
    if (name == NULL)
        return no_memory(ctx, entry->variable->u.variable);
    for (int i = 0; i < optimizer->num_slots; ++i) {
        snprintf(name, nbytes, "%s/%s", variable, optimizer->slots[i].name);
        /* each replica accumulates gradients of its own */
        entry->slots[i] = coi_slot_variable(ctx, entry->variable, name,
                                            i == optimizer->accumulator ? CO_SYNC_ON_READ
                                                                        : CO_SYNC_ON_WRITE);
        if (entry->slots[i] == NULL)
            break;
    }
    coi_small_free(&ctx->heap, name, nbytes);
    return ctx->error.code == CO_OK;
}

static coi_slot_entry *
new_entry(co_context *ctx, co_optimizer *optimizer, co_value *variable)
{
    coi_slot_entry *entry = coi_calloc(&ctx->runtime->memory, sizeof(*entry));

    atomic_store(&optimizer->is_used, true);
    if (entry == NULL) {
        no_memory(ctx, variable->u.variable);
        return NULL;
    }
    coi_ref(variable);
    entry->variable = variable;
    entry->decays = coi_decays(optimizer, variable);
    if (make_slots(ctx, optimizer, entry))
        return entry;
    destroy_entry(&ctx->heap, entry);
    return NULL;
}

/* Where a variable's entry is in a table, or would be. */
static size_t
place_of(coi_slot_table *table, const co_value *variable)
{
    uint64_t        hash = (uint64_t)(uintptr_t)variable * UINT64_C(0x9E3779B97F4A7C15);
    size_t          at = (size_t)(hash >> 32) & (table->capacity - 1);
    coi_slot_entry *entry;

    while ((entry = atomic_load_explicit(&table->at[at], memory_order_acquire)) != NULL &&
           entry->variable != variable)
        at = (at + 1) & (table->capacity - 1);
    return at;
}

/* The entry of a variable; NULL: none yet, or, without the lock, one that was just put in. */
static coi_slot_entry *
look_up(co_optimizer *optimizer, const co_value *variable)
{
    coi_slot_table *table = atomic_load_explicit(&optimizer->table, memory_order_acquire);

    return table != NULL
               ? atomic_load_explicit(&table->at[place_of(table, variable)], memory_order_acquire)
               : NULL;
}

static void
put_entry(coi_slot_table *table, coi_slot_entry *entry)
{
    atomic_store_explicit(&table->at[place_of(table, entry->variable)], entry,
                          memory_order_release);
}

/* Room for one more entry, whatever else the table holds; the lock is held. False without memory.
 */
static bool
make_room(co_optimizer *optimizer)
{
    coi_slot_table *old = atomic_load(&optimizer->table), *table;
    size_t          capacity = old != NULL ? 2 * old->capacity : 16;

    if (old != NULL && 2 * (optimizer->num_entries + 1) <= old->capacity)
        return true;
    table = coi_calloc(&optimizer->runtime->memory, table_size(capacity));
    if (table == NULL)
        return false;
    table->older = old;
    table->capacity = capacity;
    for (size_t i = 0; old != NULL && i < old->capacity; ++i)
        if (old->at[i] != NULL)
            put_entry(table, old->at[i]);
    atomic_store_explicit(&optimizer->table, table, memory_order_release);
    return true;
}

/* Insert an entry that was made without the lock, unless another thread was faster: the entry in
 * the table, NULL with an error. */
static coi_slot_entry *
add_entry(co_context *ctx, co_optimizer *optimizer, coi_slot_entry *entry)
{
    coi_slot_entry *theirs;
    bool            ok = true;

    coi_lock_take(&optimizer->lock);
    theirs = look_up(optimizer, entry->variable);
    if (theirs == NULL && (ok = make_room(optimizer))) {
        put_entry(atomic_load(&optimizer->table), entry);
        ++optimizer->num_entries;
        entry->next = optimizer->entries;
        optimizer->entries = entry;
    }
    coi_lock_give(&optimizer->lock);
    if (!ok)
        no_memory(ctx, entry->variable->u.variable);
    if (ok && theirs == NULL)
        return entry;
    destroy_entry(&ctx->heap, entry);
    return theirs;
}

const coi_slot_entry *
coi_slots_of(co_context *ctx, co_optimizer *optimizer, co_value *variable)
{
    coi_slot_entry *entry;

    variable = coi_variable_itself(variable);
    entry = look_up(optimizer, variable);
    if (entry == NULL) {
        entry = new_entry(ctx, optimizer, variable);
        if (entry != NULL)
            entry = add_entry(ctx, optimizer, entry);
    }
    return entry;
}

co_value *
coi_whole_variable(co_context *ctx, co_value *variable, size_t *i)
{
    co_value *whole = coi_is_component(variable->u.variable)
                          ? coi_container_of(&ctx->heap, variable)
                          : NULL;

    *i = 0;
    variable = coi_variable_itself(variable);
    if (whole == NULL)
        return variable;
    while (whole->u.variable->components[*i] != variable)
        ++*i;
    return coi_own(ctx, whole);
}

/* --- what users ask --- */

co_value *
co_optimizer_slot_names(co_context *ctx, co_optimizer *optimizer)
{
    co_value *names[COI_ALL_SLOTS];

    COI_ENTER(ctx, "optimizer_slot_names", NULL);
    if (!coi_check_optimizer(ctx, optimizer))
        return NULL;
    for (int i = 0; i < optimizer->num_slots; ++i)
        names[i] = co_string(ctx, optimizer->slots[i].name);
    return co_tuple(ctx, names, (size_t)optimizer->num_slots);
}

/* Which slot has this name; -1 with an error that lists those there are. */
static int
slot_named(co_context *ctx, const co_optimizer *optimizer, const char *name)
{
    char all[300] = "";

    for (int i = 0; i < optimizer->num_slots; ++i) {
        size_t length = strlen(all);

        if (strcmp(optimizer->slots[i].name, name) == 0)
            return i;
        snprintf(all + length, sizeof(all) - length, "%s'%.60s'", i > 0 ? ", " : "",
                 optimizer->slots[i].name);
    }
    coi_fail(ctx, CO_NOT_FOUND, "%s with these options has no slot '%.60s'; it has %s",
             optimizer->name, name, optimizer->num_slots > 0 ? all : "none");
    return -1;
}

/* An average of no update is the variable as it is. */
static bool
fill_average(co_context *ctx, co_value *variable, co_value *slot)
{
    co_value *now = variable->u.variable->ops->peek(variable);
    bool      ok = coi_plain_fill(ctx, slot, 0, now);

    coi_unref(&ctx->heap, now);
    return ok;
}

bool
coi_slot_fill(co_context *ctx, const co_optimizer *optimizer, const coi_slot_entry *entry,
              int which)
{
    const coi_variable *variable = entry->variable->u.variable;
    size_t              n = variable->components != NULL ? variable->num_components : 1;
    bool                ok = true;

    for (size_t i = 0; ok && i < n; ++i) {
        co_value *slot = coi_variable_component(entry->slots[which], i);

        ok = which == optimizer->average
                 ? fill_average(ctx, coi_variable_component(entry->variable, i), slot)
                 : coi_plain_fill(ctx, slot, optimizer->slots[which].initial, NULL);
    }
    return ok;
}

co_value *
co_optimizer_slot(co_context *ctx, co_optimizer *optimizer, const char *name, co_value *variable)
{
    const coi_slot_entry *entry;
    co_value             *whole, *slot;
    size_t                at;
    int                   which;

    COI_ENTER(ctx, "optimizer_slot", NULL);
    if (!coi_check_optimizer(ctx, optimizer) || !coi_check_variable(ctx, variable, 4))
        return NULL;
    if (name == NULL) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 3 (name) of optimizer_slot is NULL; co_optimizer_slot_names tells names");
        return NULL;
    }
    which = slot_named(ctx, optimizer, name);
    if (which < 0 || !coi_check_trained(ctx, variable->u.variable))
        return NULL;
    whole = coi_whole_variable(ctx, variable, &at);
    entry = whole != NULL ? coi_slots_of(ctx, optimizer, whole) : NULL;
    if (entry == NULL || !coi_slot_fill(ctx, optimizer, entry, which))
        return NULL;
    slot = entry->slots[which];
    if (whole != coi_variable_itself(variable))
        slot = coi_variable_component(slot, at);
    return coi_own_ref(ctx, slot);
}

/* All slots of a variable, with values. */
static bool
build(co_context *ctx, co_optimizer *optimizer, co_value *variable)
{
    const coi_slot_entry *entry;
    co_value             *whole;
    size_t                at;
    bool                  ok = coi_check_trained(ctx, variable->u.variable);

    whole = ok ? coi_whole_variable(ctx, variable, &at) : NULL;
    entry = whole != NULL ? coi_slots_of(ctx, optimizer, whole) : NULL;
    for (int i = 0; entry != NULL && ok && i < optimizer->num_slots; ++i)
        ok = coi_slot_fill(ctx, optimizer, entry, i);
    return entry != NULL && ok;
}

co_code
co_optimizer_build(co_context *ctx, co_optimizer *optimizer, co_value *variables)
{
    COI_ENTER_CODE(ctx, "optimizer_build");
    if (!coi_check_optimizer(ctx, optimizer) || !coi_check_value(ctx, variables, 3, "variables") ||
        !coi_may_set(ctx))
        return ctx->error.code;
    if (!coi_is_structure(variables))
        return coi_fail(ctx, CO_TYPE_ERROR, "variables is %s; it must be a list of variables",
                        coi_a_kind(variables->kind));
    for (size_t i = 0; ctx->error.code == CO_OK && i < variables->u.items.n; ++i)
        if (variables->u.items.items[i]->kind != CO_KIND_VARIABLE)
            coi_fail(ctx, CO_TYPE_ERROR,
                     "item %zu of variables is %s; it must be one that co_variable made", i,
                     coi_a_kind(variables->u.items.items[i]->kind));
    for (size_t i = 0; ctx->error.code == CO_OK && i < variables->u.items.n; ++i)
        build(ctx, optimizer, variables->u.items.items[i]);
    return ctx->error.code;
}

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

typedef struct coi_slot_entry {
    co_value *variable; /* a reference: the key stays what it is */
    co_value *slots[COI_MAX_SLOTS];
} coi_slot_entry;

static void
destroy_entry(coi_heap *heap, coi_slot_entry *entry)
{
    for (int i = 0; i < COI_MAX_SLOTS; ++i)
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
    size_t      nbytes = strlen(variable) + 64;
    char       *name = coi_small_alloc(&ctx->heap, nbytes);

    if (name == NULL)
        return no_memory(ctx, entry->variable->u.variable);
    for (int i = 0; i < optimizer->num_slots; ++i) {
        snprintf(name, nbytes, "%s/%s", variable, optimizer->rule->slots[i]);
        entry->slots[i] = coi_slot_variable(ctx, entry->variable, name);
        if (entry->slots[i] == NULL)
            break;
    }
    coi_small_free(&ctx->heap, name, nbytes);
    return ctx->error.code == CO_OK;
}

static coi_slot_entry *
new_entry(co_context *ctx, const co_optimizer *optimizer, co_value *variable)
{
    coi_slot_entry *entry = coi_calloc(&ctx->runtime->memory, sizeof(*entry));

    if (entry == NULL) {
        no_memory(ctx, variable->u.variable);
        return NULL;
    }
    coi_ref(variable);
    entry->variable = variable;
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
    }
    coi_lock_give(&optimizer->lock);
    if (!ok)
        no_memory(ctx, entry->variable->u.variable);
    if (ok && theirs == NULL)
        return entry;
    destroy_entry(&ctx->heap, entry);
    return theirs;
}

/* Entries never move, and an update holds the locks of the variable and its slots. */
co_value *const *
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
    return entry != NULL ? entry->slots : NULL;
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
    co_value *names[COI_MAX_SLOTS];

    COI_ENTER(ctx, "optimizer_slot_names", NULL);
    if (!coi_check_optimizer(ctx, optimizer))
        return NULL;
    for (int i = 0; i < optimizer->num_slots; ++i)
        names[i] = co_string(ctx, optimizer->rule->slots[i]);
    return co_tuple(ctx, names, (size_t)optimizer->num_slots);
}

/* Which slot has this name; -1 with an error that lists those there are. */
static int
slot_named(co_context *ctx, const co_optimizer *optimizer, const char *name)
{
    char all[200] = "";

    for (int i = 0; i < optimizer->num_slots; ++i) {
        size_t length = strlen(all);

        if (strcmp(optimizer->rule->slots[i], name) == 0)
            return i;
        snprintf(all + length, sizeof(all) - length, "%s'%s'", i > 0 ? ", " : "",
                 optimizer->rule->slots[i]);
    }
    coi_fail(ctx, CO_NOT_FOUND, "%s with these options has no slot '%.60s'; it has %s",
             optimizer->rule->name, name, optimizer->num_slots > 0 ? all : "none");
    return -1;
}

/* A slot that is given out has values everywhere. A value of the block. */
static co_value *
slot_of(co_context *ctx, co_optimizer *optimizer, co_value *whole, int which)
{
    co_value *const *slots = coi_slots_of(ctx, optimizer, whole);
    size_t n = whole->u.variable->components != NULL ? whole->u.variable->num_components : 1;

    for (size_t i = 0; slots != NULL && i < n; ++i)
        if (!coi_plain_zero(ctx, coi_variable_component(slots[which], i)))
            return NULL;
    return slots != NULL ? slots[which] : NULL;
}

co_value *
co_optimizer_slot(co_context *ctx, co_optimizer *optimizer, const char *name, co_value *variable)
{
    co_value *whole, *slot;
    size_t    at;
    int       which;

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
    slot = whole != NULL ? slot_of(ctx, optimizer, whole, which) : NULL;
    if (slot != NULL && whole != coi_variable_itself(variable))
        slot = coi_variable_component(slot, at);
    return slot != NULL ? coi_own_ref(ctx, slot) : NULL;
}

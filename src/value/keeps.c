/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often co_keep was called for each object of a runtime. Blocks, lists and tapes own references
 * too, so the reference count alone cannot tell whether co_release drops the reference of a keep or
 * that of another owner. The counts are in one hash table for the runtime, not in the objects: few
 * objects are kept at the same time, and making and freeing a value does not touch it.
 */
#include "value/value.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY ((size_t)64)

static size_t
home_of(const coi_keeps *keeps, const void *object)
{
    uint64_t hash = (uint64_t)(uintptr_t)object * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(hash >> 20) & (keeps->capacity - 1);
}

/* The place of an object, or the free place where it belongs. */
static size_t
find(const coi_keeps *keeps, const void *object)
{
    size_t at = home_of(keeps, object);

    while (keeps->entries[at].object != NULL && keeps->entries[at].object != object)
        at = (at + 1) & (keeps->capacity - 1);
    return at;
}

/* Double the capacity, which is a power of two. False, unchanged, without memory. */
static bool
grow(coi_keeps *keeps, coi_memory *memory)
{
    coi_keeps larger = *keeps;

    larger.capacity = keeps->capacity > 0 ? keeps->capacity * 2 : FIRST_CAPACITY;
    larger.entries = coi_calloc(memory, larger.capacity * sizeof(*larger.entries));
    if (larger.entries == NULL)
        return false;
    for (size_t i = 0; i < keeps->capacity; ++i)
        if (keeps->entries[i].object != NULL)
            larger.entries[find(&larger, keeps->entries[i].object)] = keeps->entries[i];
    coi_free(memory, keeps->entries, keeps->capacity * sizeof(*keeps->entries));
    *keeps = larger;
    return true;
}

/* Free a place; what was put behind it because it was taken moves up. */
static void
take_out(coi_keeps *keeps, size_t at)
{
    size_t mask = keeps->capacity - 1;

    for (size_t next = (at + 1) & mask; keeps->entries[next].object != NULL;
         next = (next + 1) & mask) {
        size_t home = home_of(keeps, keeps->entries[next].object);

        if (((next - home) & mask) < ((next - at) & mask))
            continue; /* it does not depend on the place that becomes free */
        keeps->entries[at] = keeps->entries[next];
        at = next;
    }
    keeps->entries[at].object = NULL;
    keeps->entries[at].count = 0;
    --keeps->num_objects;
}

bool
coi_keep(coi_heap *heap, void *object, const co_site_info *site)
{
    coi_keeps *keeps = &heap->store->keeps;
    bool       ok;

    coi_lock_take(&keeps->lock);
    ok = keeps->num_objects * 2 < keeps->capacity || grow(keeps, heap->store->memory);
    if (ok) {
        coi_kept *kept = &keeps->entries[find(keeps, object)];

        if (kept->object == NULL) {
            ++keeps->num_objects;
            kept->object = object;
            kept->order = keeps->num_keeps;
            kept->site = *site;
        }
        ++keeps->num_keeps;
        ++kept->count;
        coi_ref(object);
    }
    coi_lock_give(&keeps->lock);
    return ok;
}

bool
coi_release(coi_heap *heap, void *object)
{
    coi_keeps *keeps = &heap->store->keeps;
    bool       is_kept = false;

    coi_lock_take(&keeps->lock);
    if (keeps->num_objects > 0) {
        size_t at = find(keeps, object);

        is_kept = keeps->entries[at].object != NULL;
        if (is_kept && --keeps->entries[at].count == 0)
            take_out(keeps, at);
    }
    coi_lock_give(&keeps->lock);
    if (is_kept)
        coi_unref(heap, object); /* without the lock: what dies may free much */
    return is_kept;
}

size_t
coi_keeps_count(coi_heap *heap, coi_kept *oldest)
{
    coi_keeps *keeps = &heap->store->keeps;
    size_t     n;

    coi_lock_take(&keeps->lock);
    n = keeps->num_objects;
    oldest->object = NULL;
    for (size_t i = 0; i < keeps->capacity; ++i)
        if (keeps->entries[i].object != NULL &&
            (oldest->object == NULL || keeps->entries[i].order < oldest->order))
            *oldest = keeps->entries[i];
    coi_lock_give(&keeps->lock);
    return n;
}

/* Youngest first; free places last. */
static int
by_age(const void *left, const void *right)
{
    const coi_kept *a = left, *b = right;

    if (a->object == NULL || b->object == NULL)
        return (a->object == NULL) - (b->object == NULL);
    return (a->order < b->order) - (a->order > b->order);
}

void
coi_keeps_release(coi_heap *heap)
{
    coi_keeps *keeps = &heap->store->keeps, all;

    coi_lock_take(&keeps->lock);
    all = *keeps;
    keeps->entries = NULL;
    keeps->num_objects = keeps->capacity = 0;
    coi_lock_give(&keeps->lock);
    if (all.num_objects > 0)
        qsort(all.entries, all.capacity, sizeof(all.entries[0]), by_age);
    for (size_t i = 0; i < all.num_objects; ++i)
        for (size_t k = 0; k < all.entries[i].count; ++k)
            coi_unref(heap, all.entries[i].object);
    coi_keeps_destroy(&all, heap->store->memory);
}

void
coi_keeps_destroy(coi_keeps *keeps, coi_memory *memory)
{
    coi_free(memory, keeps->entries, keeps->capacity * sizeof(*keeps->entries));
}

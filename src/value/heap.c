/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells and small blocks: a cache per context over a store that the contexts of a runtime share. The cache has no lock;
 * batches move between cache and store under one. What a value holds besides its cell is given back in
 * destroy_value.
 */
#include "value/value.h"
#include "value/variable.h"

#include <string.h>

#define CELLS_PER_SLAB 62 /* with the header just under 8 KiB */
#define CACHE_BATCH    128
#define QUARANTINE     4096 /* dead cells that a debug build keeps before it reuses the oldest */

#if defined(__SANITIZE_ADDRESS__)
#define DIRECT_CELLS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DIRECT_CELLS 1
#endif
#endif
/* Under the address sanitizer every cell and block is its own allocation, so that stale use is found at once. */
#ifndef DIRECT_CELLS
#define DIRECT_CELLS 0
#endif

typedef struct coi_slab {
    struct coi_slab *next;
    _Alignas(64) co_value cells[CELLS_PER_SLAB];
} coi_slab;

_Static_assert(sizeof(co_value) == 128, "a cell is two cache lines");

/* A free cell's first word links it to the next. */
static co_value *
next_of(co_value *cell)
{
    co_value *next;

    memcpy(&next, &cell->u, sizeof(next));
    return next;
}

static void
link_to(co_value *cell, co_value *next)
{
    memcpy(&cell->u, &next, sizeof(next));
}

co_code
coi_cell_store_init(coi_cell_store *store, coi_memory *memory, co_error_info *err)
{
    memset(store, 0, sizeof(*store));
    store->memory = memory;
    if (pthread_mutex_init(&store->lock, NULL) != 0)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "cannot make a mutex for the value store");
    return CO_OK;
}

void
coi_cell_store_destroy(coi_cell_store *store)
{
    while (store->slabs != NULL) {
        coi_slab *slab = store->slabs;

        store->slabs = slab->next;
        coi_free(store->memory, slab, sizeof(*slab));
    }
    pthread_mutex_destroy(&store->lock);
}

void
coi_heap_init(coi_heap *heap, coi_cell_store *store)
{
    memset(heap, 0, sizeof(*heap));
    heap->store = store;
}

void
coi_heap_destroy(coi_heap *heap)
{
    coi_cell_store *store = heap->store;

    for (int c = 0; c < COI_SMALL_CLASSES; ++c) {
        while (heap->small[c] != NULL) {
            void *block = heap->small[c];

            memcpy(&heap->small[c], block, sizeof(void *));
            coi_free(store->memory, block, (size_t)64 << c);
        }
    }
    pthread_mutex_lock(&store->lock);
    while (heap->free_cells != NULL) {
        co_value *cell = heap->free_cells;

        heap->free_cells = next_of(cell);
        link_to(cell, store->free_cells);
        store->free_cells = cell;
    }
    pthread_mutex_unlock(&store->lock);
    heap->num_free = 0;
    atomic_fetch_add_explicit(&store->live, heap->live, memory_order_relaxed);
    heap->live = 0;
}

static int
small_class(size_t nbytes)
{
    int c = 0;

    while (((size_t)64 << c) < nbytes)
        ++c;
    return c;
}

void *
coi_small_alloc(coi_heap *heap, size_t nbytes)
{
    int   c;
    void *block;

    if (nbytes > ((size_t)64 << (COI_SMALL_CLASSES - 1)) || DIRECT_CELLS)
        return coi_alloc(heap->store->memory, nbytes);
    c = small_class(nbytes);
    block = heap->small[c];
    if (block == NULL)
        return coi_alloc(heap->store->memory, (size_t)64 << c);
    memcpy(&heap->small[c], block, sizeof(void *));
    --heap->num_small[c];
    return block;
}

void
coi_small_free(coi_heap *heap, void *block, size_t nbytes)
{
    int c;

    if (block == NULL)
        return;
    if (nbytes > ((size_t)64 << (COI_SMALL_CLASSES - 1)) || DIRECT_CELLS) {
        coi_free(heap->store->memory, block, nbytes);
        return;
    }
    c = small_class(nbytes);
    if (heap->num_small[c] >= CACHE_BATCH) {
        coi_free(heap->store->memory, block, (size_t)64 << c);
        return;
    }
    memcpy(block, &heap->small[c], sizeof(void *));
    heap->small[c] = block;
    ++heap->num_small[c];
}

/* A new slab's cells go to the store's list. The caller holds the lock. */
static bool
add_slab(coi_cell_store *store)
{
    coi_slab *slab = coi_alloc(store->memory, sizeof(*slab));

    if (slab == NULL)
        return false;
    slab->next = store->slabs;
    store->slabs = slab;
    for (int i = 0; i < CELLS_PER_SLAB; ++i) {
        slab->cells[i].object.magic = COI_MAGIC_DEAD;
        link_to(&slab->cells[i], store->free_cells);
        store->free_cells = &slab->cells[i];
    }
    return true;
}

static bool
refill(coi_heap *heap)
{
    coi_cell_store *store = heap->store;

    pthread_mutex_lock(&store->lock);
    while (heap->num_free < CACHE_BATCH / 2) {
        co_value *cell;

        if (store->free_cells == NULL && (heap->num_free > 0 || !add_slab(store)))
            break;
        cell = store->free_cells;
        store->free_cells = next_of(cell);
        link_to(cell, heap->free_cells);
        heap->free_cells = cell;
        ++heap->num_free;
    }
    pthread_mutex_unlock(&store->lock);
    return heap->free_cells != NULL;
}

/* Give a batch back, so that a context that only frees does not collect the cells of one that only makes. */
static void
return_batch(coi_heap *heap)
{
    coi_cell_store *store = heap->store;

    pthread_mutex_lock(&store->lock);
    for (int i = 0; i < CACHE_BATCH; ++i) {
        co_value *cell = heap->free_cells;

        heap->free_cells = next_of(cell);
        link_to(cell, store->free_cells);
        store->free_cells = cell;
    }
    pthread_mutex_unlock(&store->lock);
    heap->num_free -= CACHE_BATCH;
}

void
coi_object_init(coi_object *object, const coi_class *cls)
{
    object->cls = cls;
    atomic_init(&object->refs, 1);
    object->magic = COI_MAGIC_LIVE;
}

co_value *
coi_value_new(coi_heap *heap, co_kind kind)
{
    co_value *cell;

    if (DIRECT_CELLS) {
        cell = coi_alloc(heap->store->memory, sizeof(*cell));
        if (cell == NULL)
            return NULL;
    } else {
        if (heap->free_cells == NULL && !refill(heap))
            return NULL;
        cell = heap->free_cells;
        heap->free_cells = next_of(cell);
        --heap->num_free;
    }
    ++heap->live;
    coi_object_init(&cell->object, &coi_value_class);
    cell->kind = (uint8_t)kind;
    cell->dtype = CO_DTYPE_NONE;
    cell->ndim = 0;
    cell->flags = 0;
    cell->tape_node = 0;
    cell->tape_epoch = 0;
    return cell;
}

static void
cache_cell(coi_heap *heap, co_value *cell)
{
    link_to(cell, heap->free_cells);
    heap->free_cells = cell;
    if (++heap->num_free >= 4 * CACHE_BATCH)
        return_batch(heap);
}

/*
 * Debug builds pass dead cells through a queue of QUARANTINE cells first, so that a stale handle still shows its dead magic
 * when it is used.
 */
static void
free_cell(coi_heap *heap, co_value *cell)
{
#ifdef COI_DEBUG
    link_to(cell, NULL);
    if (heap->youngest_dead == NULL)
        heap->oldest_dead = cell;
    else
        link_to(heap->youngest_dead, cell);
    heap->youngest_dead = cell;
    if (++heap->num_dead < QUARANTINE)
        return;
    cell = heap->oldest_dead;
    heap->oldest_dead = next_of(cell);
    --heap->num_dead;
#endif
    cache_cell(heap, cell);
}

static void
drop_items(coi_heap *heap, co_value **items, size_t n, co_value **room)
{
    for (size_t i = 0; i < n; ++i)
        coi_unref(heap, items[i]);
    if (items != room)
        coi_small_free(heap, items, n * sizeof(*items));
}

static void
drop_contents(coi_heap *heap, co_value *value)
{
    switch (value->kind) {
    case CO_KIND_TENSOR:
        if (value->u.tensor.buffer != NULL)
            coi_buffer_unref(value->u.tensor.buffer);
        break;
    case CO_KIND_STRING:
        coi_small_free(heap, value->u.string.data, value->u.string.nbytes + 1);
        break;
    case CO_KIND_LIST:
    case CO_KIND_TUPLE:
    case CO_KIND_NAMED_TUPLE:
    case CO_KIND_MAP:
        drop_items(heap, value->u.items.items, value->u.items.n, value->u.items.room);
        if (value->u.items.keys != NULL) {
            size_t nbytes;

            memcpy(&nbytes, value->u.items.keys, sizeof(nbytes));
            coi_small_free(heap, value->u.items.keys, nbytes);
        }
        break;
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED:
        drop_items(heap, value->u.bundle.items, value->u.bundle.n, value->u.bundle.room);
        break;
    case CO_KIND_SLICES:
        coi_unref(heap, value->u.slices.values);
        coi_unref(heap, value->u.slices.indices);
        coi_unref(heap, value->u.slices.dense_shape);
        break;
    case CO_KIND_VARIABLE:
        if (value->u.variable != NULL)
            value->u.variable->ops->destroy(heap, value->u.variable);
        break;
    default: break; /* host numbers, none and specs hold nothing */
    }
}

static void
destroy_value(coi_heap *heap, void *object)
{
    co_value *value = object;

    drop_contents(heap, value);
    --heap->live;
    value->object.magic = COI_MAGIC_DEAD;
    if (DIRECT_CELLS)
        coi_free(heap->store->memory, value, sizeof(*value));
    else
        free_cell(heap, value);
}

const coi_class coi_value_class = { "value", destroy_value };

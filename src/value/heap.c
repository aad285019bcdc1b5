/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small blocks and the cells of values. Free blocks of one size hang together in batches. A context
 * works on its loaded batch; when that is empty or full it swaps it for its spare one, and only
 * when that does not help either it exchanges a whole batch with the store, under a lock:
 *
 *     context A                     store                     context B, which frees what A makes
 *     loaded [ooo    ]              [ooooooo]                 loaded [ooooo  ]
 *     spare  [       ]   <- full -  [ooooooo]  <- full -      spare  [ooooooo]
 *
 * So a context that only makes and one that only frees cost a lock per batch, and a loop at the
 * edge of a batch costs none. Blocks never go back to the system before the runtime closes: there
 * are as many as were once needed at the same time, and a step that repeats asks the system for
 * nothing. Larger blocks than the largest size are the system's.
 *
 * Objects that died keep their memory for a while, so that a handle that is used after its block is
 * found by its dead magic. Cells wait in a ring: one is used again after COI_DEAD_CELLS others have
 * died in this context. The ring is short, so that the cells of a step stay in the first level
 * cache. Other objects are few; they wait in a queue, and in debug builds and with the address
 * sanitizer cells do too.
 *
 * With the address sanitizer every block is an allocation of its own, so that it sees stale use of
 * whatever is not an error yet.
 */
#include "base/owner_process.h"
#include "base/sanitize.h"
#include "value/value.h"

#include <string.h>

#define BATCH_BYTES ((size_t)16 << 10)
#define MAX_BATCH   128
#define MIN_BATCH   2
#define FIRST_SLAB  16
#define LARGEST     ((size_t)64 << (COI_SMALL_CLASSES - 1))

/* Dead objects in the queue before the memory of the oldest is used again. */
#if defined(COI_DEBUG) || COI_ASAN
#define QUARANTINE 4096
#else
#define QUARANTINE 64
#endif

/* Blocks are cut from slabs of one batch each. */
typedef struct coi_slab {
    struct coi_slab *next;
    size_t           nbytes;
    _Alignas(64) char blocks[];
} coi_slab;

_Static_assert(sizeof(coi_free_block) <= 64, "every block has room for its links");

static size_t
block_size(int size)
{
    return size == COI_CELL_CLASS ? sizeof(co_value) : (size_t)64 << size;
}

static size_t
batch_count(int size)
{
    size_t count = BATCH_BYTES / block_size(size);

    return count > MAX_BATCH ? MAX_BATCH : count < MIN_BATCH ? MIN_BATCH : count;
}

void
coi_cell_store_init(coi_cell_store *store, coi_memory *memory)
{
    memset(store, 0, sizeof(*store));
    store->memory = memory;
    coi_lock_init(&store->lock);
    coi_lock_init(&store->weak_lock);
    coi_lock_init(&store->keeps.lock);
    /* Two stores never have the same address, and multiplying by the factor keeps different
     * addresses different. */
    store->own_magic = (uint32_t)((uintptr_t)store >> 6) * UINT32_C(0x9E3779B1) | 1;
    store->magic = coi_owner_word_new(store->own_magic);
    if (store->magic == NULL)
        store->magic = &store->own_magic;
}

void
coi_cell_store_destroy(coi_cell_store *store)
{
    coi_keeps_destroy(&store->keeps, store->memory);
    while (store->slabs != NULL) {
        coi_slab *slab = store->slabs;

        store->slabs = slab->next;
        coi_free(store->memory, slab, slab->nbytes);
    }
    if (store->magic != &store->own_magic)
        coi_owner_word_free(store->magic);
}

int64_t
coi_cell_store_live(coi_cell_store *store)
{
    int64_t live;

    coi_lock_take(&store->lock);
    live = store->past_live;
    for (const coi_heap *heap = store->heaps; heap != NULL; heap = heap->next)
        live += atomic_load_explicit(&heap->live, memory_order_relaxed);
    coi_lock_give(&store->lock);
    return live;
}

/* A batch goes to the store; the caller holds the lock. */
static void
push_batch(coi_cell_store *store, int size, coi_batch *batch)
{
    if (batch->first == NULL)
        return;
    batch->first->count = batch->count;
    batch->first->next_batch = store->batches[size];
    store->batches[size] = batch->first;
    *batch = (coi_batch){ NULL, 0 };
}

static bool
pop_batch(coi_cell_store *store, int size, coi_batch *batch)
{
    coi_free_block *first = store->batches[size];

    if (first == NULL)
        return false;
    store->batches[size] = first->next_batch;
    *batch = (coi_batch){ first, first->count };
    return true;
}

/* Blocks of the next slab. The first of a runtime is small: linking its blocks touches every page,
 * and the start of a program needs few of them. */
static size_t
slab_count(const coi_cell_store *store, int size)
{
    size_t count = batch_count(size);

    return store->slabs == NULL && count > FIRST_SLAB ? FIRST_SLAB : count;
}

/* A new slab as a batch; the caller holds the lock. */
static bool
cut_slab(coi_cell_store *store, int size, coi_batch *batch)
{
    size_t    each = block_size(size), count = slab_count(store, size);
    size_t    nbytes = sizeof(coi_slab) + count * each;
    coi_slab *slab = coi_alloc(store->memory, nbytes);

    if (slab == NULL)
        return false;
    slab->nbytes = nbytes;
    slab->next = store->slabs;
    store->slabs = slab;
    *batch = (coi_batch){ NULL, count };
    for (size_t i = count; i > 0; --i) {
        coi_free_block *block = (coi_free_block *)(void *)(slab->blocks + (i - 1) * each);

        block->remains = 0;
        block->next = batch->first;
        batch->first = block;
    }
    return true;
}

/* The loaded batch is empty: put another in its place. */
static bool
refill(coi_heap *heap, int size)
{
    coi_cell_store *store = heap->store;
    bool            ok;

    if (heap->spare[size].first != NULL) {
        heap->loaded[size] = heap->spare[size];
        heap->spare[size] = (coi_batch){ NULL, 0 };
        return true;
    }
    /* In a forked child the lock may be held forever, by a thread that does not exist there. */
    if (coi_is_forked(heap))
        return false;
    coi_lock_take(&store->lock);
    ok = pop_batch(store, size, &heap->loaded[size]) || cut_slab(store, size, &heap->loaded[size]);
    coi_lock_give(&store->lock);
    return ok;
}

/* The loaded batch is full: put an empty one in its place. */
static void
spill(coi_heap *heap, int size)
{
    coi_cell_store *store = heap->store;

    if (heap->spare[size].first != NULL && !coi_is_forked(heap)) {
        coi_lock_take(&store->lock);
        push_batch(store, size, &heap->spare[size]);
        coi_lock_give(&store->lock);
    }
    heap->spare[size] = heap->loaded[size];
    heap->loaded[size] = (coi_batch){ NULL, 0 };
}

static inline void *
take(coi_heap *heap, int size)
{
    coi_batch      *loaded = &heap->loaded[size];
    coi_free_block *block;

    if (loaded->first == NULL && !refill(heap, size))
        return NULL;
    block = loaded->first;
    loaded->first = block->next;
    --loaded->count;
    return block;
}

static inline void
give(coi_heap *heap, int size, void *memory)
{
    coi_batch      *loaded = &heap->loaded[size];
    coi_free_block *block = memory;

    if (loaded->count == batch_count(size))
        spill(heap, size);
    block->next = loaded->first;
    loaded->first = block;
    ++loaded->count;
}

/* A cell goes into the ring, and the oldest that is there becomes free. */
static inline void
give_cell(coi_heap *heap, void *memory)
{
    void **place = &heap->dead_cells[heap->next_dead++ % COI_DEAD_CELLS], *oldest = *place;

    *place = memory;
    if (oldest != NULL)
        give(heap, COI_CELL_CLASS, oldest);
}

/* Free all cells of the ring, so that the oldest is used first. */
static void
empty_ring(coi_heap *heap)
{
    for (size_t i = 1; i <= COI_DEAD_CELLS; ++i) {
        void **place = &heap->dead_cells[(heap->next_dead - i) % COI_DEAD_CELLS];

        if (*place != NULL)
            give(heap, COI_CELL_CLASS, *place);
        *place = NULL;
    }
}

/* If there is no other memory, even dead cells are reused. */
static void *
take_cell(coi_heap *heap)
{
    void *cell = take(heap, COI_CELL_CLASS);

    if (cell != NULL)
        return cell;
    empty_ring(heap);
    return heap->loaded[COI_CELL_CLASS].first != NULL ? take(heap, COI_CELL_CLASS) : NULL;
}

/* The size that serves a request; LARGEST bytes at most. */
static int
size_for(size_t nbytes)
{
    return nbytes <= 64 ? 0 : (int)(8 * sizeof(long long)) - __builtin_clzll(nbytes - 1) - 6;
}

static bool
is_small(size_t nbytes)
{
    return nbytes <= LARGEST && !COI_ASAN;
}

void *
coi_small_alloc(coi_heap *heap, size_t nbytes)
{
    return is_small(nbytes) ? take(heap, size_for(nbytes)) : coi_alloc(heap->store->memory, nbytes);
}

void
coi_small_free(coi_heap *heap, void *block, size_t nbytes)
{
    if (block == NULL)
        return;
    if (is_small(nbytes))
        give(heap, size_for(nbytes), block);
    else
        coi_free(heap->store->memory, block, nbytes);
}

/* Memory of an object that is dead to the place where it came from; a cell has no number of
 * bytes. */
static inline void
bury(coi_heap *heap, void *memory, size_t nbytes)
{
    if (nbytes > 0)
        coi_small_free(heap, memory, nbytes);
    else if (COI_ASAN)
        coi_free(heap->store->memory, memory, sizeof(co_value));
    else
        give_cell(heap, memory);
}

/* Take the oldest out of the queue of the dead. */
static void
bury_oldest(coi_heap *heap)
{
    coi_free_block *oldest = heap->oldest_dead;
    size_t          nbytes = oldest->count;

    heap->oldest_dead = oldest->next;
    if (heap->oldest_dead == NULL)
        heap->youngest_dead = NULL;
    --heap->num_dead;
    coi_unpoison(oldest, nbytes > 0 ? nbytes : sizeof(co_value));
    bury(heap, oldest, nbytes);
}

/*
 * Dead objects wait in a queue before their memory is used again, so that a stale handle shows its
 * dead magic when it is used. The address sanitizer sees the use of anything behind the links.
 */
static void
mourn(coi_heap *heap, void *memory, size_t nbytes)
{
    coi_free_block *block = memory;
    size_t          whole = nbytes > 0 ? nbytes : sizeof(co_value);

    if (whole < sizeof(*block)) {
        bury(heap, memory, nbytes);
        return;
    }
    block->next = NULL;
    block->count = nbytes;
    coi_poison(block + 1, whole - sizeof(*block));
    if (heap->youngest_dead == NULL)
        heap->oldest_dead = block;
    else
        heap->youngest_dead->next = block;
    heap->youngest_dead = block;
    if (++heap->num_dead > QUARANTINE)
        bury_oldest(heap);
}

static void
bury_all(coi_heap *heap)
{
    while (heap->oldest_dead != NULL)
        bury_oldest(heap);
    empty_ring(heap);
}

void
coi_heap_init(coi_heap *heap, coi_cell_store *store)
{
    memset(heap, 0, sizeof(*heap));
    heap->store = store;
    heap->magic = store->magic;
    atomic_init(&heap->live, 0);
    coi_lock_take(&store->lock);
    heap->next = store->heaps;
    if (heap->next != NULL)
        heap->next->previous = heap;
    store->heaps = heap;
    coi_lock_give(&store->lock);
}

void
coi_heap_destroy(coi_heap *heap)
{
    coi_cell_store *store = heap->store;

    bury_all(heap);
    coi_lock_take(&store->lock);
    for (int size = 0; size < COI_NUM_SIZES; ++size) {
        push_batch(store, size, &heap->loaded[size]);
        push_batch(store, size, &heap->spare[size]);
    }
    if (heap->next != NULL)
        heap->next->previous = heap->previous;
    if (heap->previous != NULL)
        heap->previous->next = heap->next;
    else
        store->heaps = heap->next;
    store->past_live += atomic_load_explicit(&heap->live, memory_order_relaxed);
    coi_lock_give(&store->lock);
}

void *
coi_object_new(coi_heap *heap, const coi_class *cls, size_t nbytes)
{
    coi_object *object = coi_small_alloc(heap, nbytes);

    if (object == NULL)
        return NULL;
    memset(object, 0, nbytes);
    coi_object_init(heap, object, cls);
    return object;
}

void
coi_object_free(coi_heap *heap, void *object, size_t nbytes)
{
    ((coi_object *)object)->magic = COI_MAGIC_DEAD;
    mourn(heap, object, nbytes);
}

co_value *
coi_cell_new(coi_heap *heap)
{
    return COI_ASAN ? coi_alloc(heap->store->memory, sizeof(co_value)) : take_cell(heap);
}

void
coi_cell_free(coi_heap *heap, co_value *cell)
{
    coi_count_live(heap, -1);
    cell->object.magic = COI_MAGIC_DEAD;
#if defined(COI_DEBUG) || COI_ASAN
    ++heap->next_dead; /* values that died are counted in all builds */
    mourn(heap, cell, 0);
#else
    bury(heap, cell, 0);
#endif
}

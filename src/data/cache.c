/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: the elements stay in memory. Every iterator collects what it reads until one comes to the
 * end; its elements then become the store of the dataset, permanently, and the other iterators drop
 * theirs.
 */
#include "data/iterator_checkpoint.h"

/* Elements of a dataset. What the dataset has is complete, and never changed again. */
typedef struct cache_store {
    coi_object         object;
    coi_batch_assembly pieces;
} cache_store;

typedef struct cache_dataset {
    coi_stage              stage;
    _Atomic(cache_store *) store; /* a reference; NULL until an iterator ended */
} cache_dataset;

typedef struct cache_iterator {
    coi_stage_iterator base;      /* index: elements given of the store; ended: it was asked */
    cache_store       *store;     /* whole, a reference: the input is not read */
    cache_store       *own;       /* what was read so far, a reference */
    bool               is_spoilt; /* an element is missing */
} cache_iterator;

static void
destroy_store(coi_heap *heap, void *object)
{
    cache_store *store = object;

    coi_assembly_free(heap, &store->pieces);
    coi_object_free(heap, store, sizeof(*store));
}

static const coi_class store_class = { "cache", destroy_store, NULL };

static cache_store *
store_new(co_context *ctx, const co_dataset *dataset)
{
    cache_store *store = coi_object_new(&ctx->heap, &store_class, sizeof(*store));

    if (store == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the elements of a cache");
    else
        store->pieces = (coi_batch_assembly){ .num_leaves = dataset->num_leaves };
    return store;
}

static void
cache_close(coi_heap *heap, co_iterator *iterator)
{
    coi_unref(heap, ((cache_iterator *)iterator)->store);
    coi_unref(heap, ((cache_iterator *)iterator)->own);
}

static void
cache_destroy(coi_heap *heap, co_dataset *dataset)
{
    coi_unref(heap, atomic_load(&((cache_dataset *)dataset)->store));
}

/* Read what the dataset has, if it has all. */
static void
take_store(co_iterator *iterator)
{
    cache_iterator *self = (cache_iterator *)iterator;

    self->store = atomic_load(&((cache_dataset *)iterator->dataset)->store);
    if (self->store != NULL)
        coi_ref(self->store);
}

/* Give a store to the dataset, unless it has one. The caller keeps a reference. */
static void
offer(co_dataset *dataset, cache_store *store)
{
    cache_store *none = NULL;

    if (atomic_compare_exchange_strong(&((cache_dataset *)dataset)->store, &none, store))
        coi_ref(store);
}

static int
from_store(cache_iterator *self, co_value **leaves)
{
    const coi_batch_assembly *pieces = &self->store->pieces;
    size_t                    n = pieces->num_leaves;

    if ((size_t)self->base.index >= pieces->count)
        return COI_END;
    for (size_t i = 0; i < n; ++i) {
        leaves[i] = pieces->leaves[(size_t)self->base.index * n + i];
        coi_ref(leaves[i]);
    }
    ++self->base.index;
    return COI_ELEMENT;
}

/* Keep references to an element; without room, the cache stays as it is and the element is lost. */
static bool
collect(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    cache_iterator *self = (cache_iterator *)iterator;
    co_value      **room;

    if (self->own == NULL)
        self->own = store_new(ctx, iterator->dataset);
    room = self->own != NULL ? coi_assembly_room(ctx, &self->own->pieces) : NULL;
    if (room == NULL)
        return false;
    for (size_t i = 0; i < iterator->dataset->num_leaves; ++i) {
        coi_ref(leaves[i]);
        room[i] = leaves[i];
    }
    ++self->own->pieces.count;
    return true;
}

/* The first iterator at its end gives the dataset what it has. */
static int
publish(co_context *ctx, co_iterator *iterator)
{
    cache_iterator *self = (cache_iterator *)iterator;

    if (self->is_spoilt)
        return COI_END;
    if (self->own == NULL)
        self->own = store_new(ctx, iterator->dataset);
    if (self->own == NULL)
        return COI_ERROR;
    offer(iterator->dataset, self->own);
    coi_unref(&ctx->heap, self->own);
    self->own = NULL;
    take_store(iterator);
    self->base.index = (int64_t)self->store->pieces.count; /* the end stays the end */
    return COI_END;
}

static int
cache_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    cache_iterator *self = (cache_iterator *)iterator;
    int             got;

    if (!self->base.ended) {
        take_store(iterator);
        self->base.index = 0;
        self->base.ended = true;
    }
    if (self->store != NULL)
        return from_store(self, leaves);
    got = coi_iterator_next(ctx, iterator->input, leaves);
    if (got == COI_END)
        return publish(ctx, iterator);
    if (got < 0) {
        self->is_spoilt = self->is_spoilt || !coi_was_cancelled(ctx);
        return got;
    }
    if (collect(ctx, iterator, leaves))
        return COI_ELEMENT;
    self->is_spoilt = true;
    coi_leaves_release(&ctx->heap, leaves, iterator->dataset->num_leaves);
    return COI_ERROR;
}

/* --- checkpoints --- */

static bool
has_windows(const co_dataset *dataset)
{
    for (size_t i = 0; i < dataset->num_leaves; ++i)
        if (coi_is_dataset_spec(dataset->specs[i]))
            return true;
    return false;
}

/* Whether what was read for one dataset may stand for another: bytes can say anything. */
static bool
fits(const cache_store *store, const co_dataset *dataset)
{
    size_t n = dataset->num_leaves;

    if (store->pieces.num_leaves != n || has_windows(dataset))
        return false;
    for (size_t i = 0; i < store->pieces.count * n; ++i)
        if (store->pieces.leaves[i]->kind != CO_KIND_TENSOR ||
            !coi_spec_within(store->pieces.leaves[i], dataset->specs[i % n]))
            return false;
    return true;
}

/* From now on it has a number in this checkpoint. */
static bool
enter_store(co_context *ctx, coi_iterator_checkpoint *p, cache_store *store)
{
    if (!coi_grow(&ctx->runtime->memory, (void **)&p->stores, &p->stores_capacity,
                  p->num_stores + 1, sizeof(*p->stores))) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a checkpoint of %zu caches",
                 p->num_stores + 1);
        return false;
    }
    p->stores[p->num_stores++] = store;
    return true;
}

/* A whole store: the dataset and its iterators have the same one, so its elements are there where
 * it comes first, and later its number. */
static bool
store_checkpoint(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *dataset,
                 cache_store **store)
{
    int64_t number = (int64_t)p->num_stores;

    for (size_t i = 0; p->saves && !has_windows(dataset) && i < p->num_stores; ++i)
        if (p->stores[i] == *store)
            number = (int64_t)i;
    if (!coi_checkpoint_number(ctx, p, &number, 0, (int64_t)p->num_stores))
        return false;
    if ((size_t)number == p->num_stores) {
        if (!p->saves && (*store = store_new(ctx, dataset)) == NULL)
            return false;
        return coi_checkpoint_assembly(ctx, p, dataset, INT64_MAX, &(*store)->pieces) &&
               enter_store(ctx, p, *store);
    }
    if (p->saves)
        return true;
    if (!fits(p->stores[number], dataset))
        return coi_checkpoint_wrong(ctx, p, "a cache has elements of another one");
    *store = p->stores[number];
    coi_ref(*store);
    return true;
}

/* What was read so far is part of the checkpoint: another process has no store. */
static bool
cache_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    cache_iterator *self = (cache_iterator *)iterator;
    bool            is_whole = self->store != NULL, has_own = self->own != NULL;

    if (!coi_checkpoint_stage(ctx, iterator, p) || !coi_checkpoint_flag(ctx, p, &self->is_spoilt) ||
        !coi_checkpoint_flag(ctx, p, &is_whole) || !coi_checkpoint_flag(ctx, p, &has_own))
        return false;
    if (is_whole ? self->is_spoilt || has_own : self->base.index != 0)
        return coi_checkpoint_wrong(ctx, p, "it has an end and is not whole");
    if (!self->base.ended && (self->is_spoilt || is_whole || has_own))
        return coi_checkpoint_wrong(ctx, p, "it has elements before the first was asked for");
    if (has_own && !p->saves && (self->own = store_new(ctx, iterator->dataset)) == NULL)
        return false;
    if (has_own &&
        !coi_checkpoint_assembly(ctx, p, iterator->dataset, INT64_MAX, &self->own->pieces))
        return false;
    if (!is_whole)
        return true;
    return store_checkpoint(ctx, p, iterator->dataset, &self->store) &&
           ((size_t)self->base.index <= self->store->pieces.count ||
            coi_checkpoint_wrong(ctx, p, "it has more elements than the cache"));
}

/* The rounds that follow read the store, whatever becomes of the iterators of this one. */
static bool
cache_shared(co_context *ctx, co_dataset *dataset, coi_iterator_checkpoint *p, coi_shared *shared)
{
    cache_store *store = shared->store;
    bool         has_store = store != NULL;
    bool         ok = coi_checkpoint_flag(ctx, p, &has_store) &&
              (!has_store || store_checkpoint(ctx, p, dataset, &store));

    if (!p->saves)
        shared->store = store;
    return ok;
}

static void
cache_fetch(co_dataset *dataset, coi_shared *shared)
{
    shared->store = atomic_load(&((cache_dataset *)dataset)->store);
}

static void
cache_share(co_dataset *dataset, const coi_shared *shared)
{
    if (shared->store != NULL)
        offer(dataset, shared->store);
}

static const coi_dataset_ops cache_ops = {
    .name = "cache",
    .dataset_size = sizeof(cache_dataset),
    .iterator_size = sizeof(cache_iterator),
    .next = cache_next,
    .keeps = true,
    .checkpoint = cache_checkpoint,
    .shared_checkpoint = cache_shared,
    .fetch = cache_fetch,
    .share = cache_share,
    .close = cache_close,
    .destroy = cache_destroy,
    .with_inputs = coi_stage_with_inputs, /* other input, other store */
    .tracks = COI_KEPT,
};

co_dataset *
co_dataset_cache(co_context *ctx, co_dataset *input)
{
    COI_ENTER(ctx, "dataset_cache", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    return coi_stage_like(ctx, &cache_ops, input, &(coi_stage_args){ .flag = false });
}

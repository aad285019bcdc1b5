/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: the elements stay in memory. Every iterator collects what it reads until one comes to the
 * end; what that one has then becomes the store of the dataset, once and for good, and the others
 * drop theirs.
 */
#include "data/position.h"

typedef struct cache_dataset {
    coi_stage             stage;
    _Atomic(coi_pieces *) store; /* complete, never changed again; NULL until an iterator ended */
} cache_dataset;

typedef struct cache_iterator {
    coi_stage_iterator base;
    const coi_pieces  *store;     /* of the dataset, or own and whole: the input is not read */
    coi_pieces        *own;       /* what was read so far; whole only if it was restored so */
    bool               is_spoilt; /* an element is missing */
} cache_iterator;

static void
free_pieces(coi_heap *heap, coi_pieces *pieces)
{
    if (pieces == NULL)
        return;
    coi_pieces_free(heap, pieces);
    coi_small_free(heap, pieces, sizeof(*pieces));
}

static void
cache_close(coi_heap *heap, co_iterator *iterator)
{
    free_pieces(heap, ((cache_iterator *)iterator)->own);
}

static void
cache_destroy(coi_heap *heap, co_dataset *dataset)
{
    free_pieces(heap, atomic_load(&((cache_dataset *)dataset)->store));
}

static int
from_store(cache_iterator *self, co_value **leaves)
{
    size_t n = self->store->num_leaves;

    if ((size_t)self->base.index >= self->store->count)
        return COI_END;
    for (size_t i = 0; i < n; ++i) {
        leaves[i] = self->store->leaves[(size_t)self->base.index * n + i];
        coi_ref(leaves[i]);
    }
    ++self->base.index;
    return COI_ELEMENT;
}

/* Keep references to an element; without room, the cache stays as it is and the element is lost. */
static bool
collect(co_context *ctx, cache_iterator *self, co_value **leaves, size_t n)
{
    co_value **room;

    if (self->own == NULL) {
        self->own = coi_small_alloc(&ctx->heap, sizeof(*self->own));
        if (self->own == NULL) {
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the elements of a cache");
            return false;
        }
        *self->own = (coi_pieces){ .num_leaves = n };
    }
    if (leaves == NULL)
        return true;
    room = coi_pieces_room(ctx, self->own);
    if (room == NULL)
        return false;
    for (size_t i = 0; i < n; ++i) {
        coi_ref(leaves[i]);
        room[i] = leaves[i];
    }
    ++self->own->count;
    return true;
}

/* What the iterator has, all of it, is the dataset's from now on, unless that has a store. */
static void
offer(co_iterator *iterator)
{
    coi_pieces     *none = NULL;
    cache_iterator *self = (cache_iterator *)iterator;

    if (atomic_compare_exchange_strong(&((cache_dataset *)iterator->dataset)->store, &none,
                                       self->own))
        self->own = NULL;
}

/* The first iterator at its end gives the dataset what it has. */
static int
publish(co_context *ctx, co_iterator *iterator)
{
    cache_iterator *self = (cache_iterator *)iterator;

    if (self->is_spoilt)
        return COI_END;
    if (!collect(ctx, self, NULL, iterator->dataset->num_leaves))
        return COI_ERROR;
    offer(iterator);
    self->store = atomic_load(&((cache_dataset *)iterator->dataset)->store);
    self->base.index = (int64_t)self->store->count; /* the end stays the end */
    return COI_END;
}

static int
cache_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    cache_iterator *self = (cache_iterator *)iterator;
    size_t          n = iterator->dataset->num_leaves;
    int             got;

    if (!self->base.ended) { /* asked for the first time */
        self->store = atomic_load(&((cache_dataset *)iterator->dataset)->store);
        self->base.index = 0;
        self->base.ended = true;
    }
    if (self->store != NULL && self->store == self->own) /* restored, and now it is used */
        offer(iterator);
    if (self->store != NULL)
        return from_store(self, leaves);
    got = coi_iterator_next(ctx, iterator->input, leaves);
    if (got == COI_END)
        return publish(ctx, iterator);
    if (got < 0) {
        self->is_spoilt = true;
        return got;
    }
    if (collect(ctx, self, leaves, n))
        return COI_ELEMENT;
    self->is_spoilt = true;
    coi_leaves_release(&ctx->heap, leaves, n);
    return COI_ERROR;
}

/*
 * The elements so far are part of the position: another process has no store. Those of a position
 * stay with the iterator until it is asked for one: what is only restored, or refused further on,
 * has not changed the dataset.
 */
static bool
cache_position(co_context *ctx, co_iterator *iterator, coi_position *p)
{
    cache_iterator   *self = (cache_iterator *)iterator;
    const coi_pieces *kept = self->store != NULL ? self->store : self->own;
    bool              is_whole = self->store != NULL, has_any = kept != NULL;
    coi_pieces        all = has_any ? *kept : (coi_pieces){ .count = 0 };

    if (!coi_position_stage(ctx, iterator, p) || !coi_position_flag(ctx, p, &self->is_spoilt) ||
        !coi_position_flag(ctx, p, &is_whole) || !coi_position_flag(ctx, p, &has_any))
        return false;
    if (p->saves)
        return !has_any || coi_position_pieces(ctx, p, iterator->dataset, INT64_MAX, &all);
    if (is_whole ? self->is_spoilt || !has_any : self->base.index != 0)
        return coi_position_wrong(ctx, p, "it has an end and is not whole");
    if (!self->base.ended && (self->is_spoilt || has_any))
        return coi_position_wrong(ctx, p, "it has elements before the first was asked for");
    if (has_any && (!collect(ctx, self, NULL, iterator->dataset->num_leaves) ||
                    !coi_position_pieces(ctx, p, iterator->dataset, INT64_MAX, self->own)))
        return false;
    self->store = is_whole ? self->own : NULL;
    return !is_whole || (size_t)self->base.index <= self->own->count ||
           coi_position_wrong(ctx, p, "it has more elements than the cache");
}

static const coi_dataset_ops cache_ops = {
    .name = "cache",
    .dataset_size = sizeof(cache_dataset),
    .iterator_size = sizeof(cache_iterator),
    .next = cache_next,
    .position = cache_position,
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

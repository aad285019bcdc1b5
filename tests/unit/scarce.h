/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Want of memory to the block. Small blocks come from caches, which an allocator that fails now and
 * then hardly ever meets; here a call has so many free blocks of every size and nothing from the
 * system, so that with 0, 1, 2, ... each of its requests is refused once.
 */
#ifndef COHORT_TEST_SCARCE_H
#define COHORT_TEST_SCARCE_H

#include "context/context.h"
#include "hooks.h"
#include "test.h"

typedef struct scarce {
    coi_batch       rest[COI_NUM_SIZES], spare[COI_NUM_SIZES];
    coi_free_block *batches[COI_NUM_SIZES];
    long long       limit;
} scarce;

/* Leave `each` blocks of every size, and take away what else is free. */
static inline void
scarce_begin(co_context *ctx, test_hooks *hooks, size_t each, scarce *kept)
{
    coi_heap *heap = &ctx->heap;

    for (int size = 0; size < COI_NUM_SIZES; ++size) {
        coi_batch       *loaded = &heap->loaded[size];
        coi_free_block **end = &loaded->first;
        size_t           n = 0;

        for (; *end != NULL && n < each; ++n)
            end = &(*end)->next;
        kept->rest[size] = (coi_batch){ *end, loaded->count - n };
        *end = NULL;
        loaded->count = n;
        kept->spare[size] = heap->spare[size];
        heap->spare[size] = (coi_batch){ NULL, 0 };
        kept->batches[size] = heap->store->batches[size];
        heap->store->batches[size] = NULL;
    }
    kept->limit = hooks->limit;
    hooks->limit = atomic_load(&hooks->bytes);
}

static inline void
scarce_put_back(coi_cell_store *store, int size, coi_batch batch)
{
    if (batch.first == NULL)
        return;
    batch.first->count = batch.count;
    batch.first->next_batch = store->batches[size];
    store->batches[size] = batch.first;
}

static inline void
scarce_end(co_context *ctx, test_hooks *hooks, scarce *kept)
{
    coi_cell_store *store = ctx->heap.store;

    for (int size = 0; size < COI_NUM_SIZES; ++size) {
        coi_free_block **end = &store->batches[size];

        while (*end != NULL)
            end = &(*end)->next_batch;
        *end = kept->batches[size];
        scarce_put_back(store, size, kept->rest[size]);
        scarce_put_back(store, size, kept->spare[size]);
    }
    hooks->limit = kept->limit;
}

/*
 * Call `body` with 0, 1, ... `most` blocks, each time in a runtime of its own that `prepare` has
 * readied; then with all memory, where it must succeed. Expects that what fails says
 * CO_RESOURCE_EXHAUSTED and that everything is given back.
 */
static inline void
scarce_try(const char *settings, void *(*prepare)(co_context *ctx),
           bool (*body)(co_context *ctx, void *prepared), size_t most)
{
    for (size_t each = 0; each <= most; ++each) {
        test_hooks  hooks;
        co_options  options = CO_OPTIONS_INIT;
        co_context *ctx;
        scarce      kept;
        void       *prepared;

        test_hooks_init(&hooks, 0);
        options.settings = settings;
        options.allocator = &hooks.allocator;
        ctx = co_open_with(&options);
        prepared = prepare(ctx);
        CO_EXPECT_OK(ctx);
        co_block_begin(ctx);
        scarce_begin(ctx, &hooks, each, &kept);
        if (!body(ctx, prepared))
            CO_EXPECT_CODE(co_error(ctx)->code, CO_RESOURCE_EXHAUSTED);
        scarce_end(ctx, &hooks, &kept);
        co_clear(ctx);
        co_block_end(ctx);
        CO_EXPECT_TRUE(body(ctx, prepared));
        CO_EXPECT_CODE(co_close(ctx), CO_OK);
        CO_EXPECT_INT(atomic_load(&hooks.blocks), 0);
    }
}

#endif

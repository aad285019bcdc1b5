/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map with several calls at a time: workers of the iterator pull the input in turn and call the
 * function side by side. In order, it gives what map gives, errors at their place among the
 * elements.
 */
#include "data/prefetcher.h"

typedef struct parallel_iterator {
    coi_prefetcher_iterator head;
    coi_stage_iterator      alone; /* what the caller works with where there is no thread */
} parallel_iterator;

static int
map_alone(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    parallel_iterator  *self = (parallel_iterator *)iterator;
    coi_stage_iterator *alone = &self->alone;
    int                 got;

    alone->base.dataset = iterator->dataset; /* borrowed, as the input is */
    alone->base.input = iterator->input;
    alone->base.counts = iterator->counts;
    if (alone->element == NULL && coi_stage_open(ctx, &alone->base) != CO_OK)
        return COI_ERROR;
    alone->index = self->head.index;
    got = coi_stage_pull(ctx, &alone->base);
    self->head.index = alone->index;
    return got > 0 ? coi_map_apply(ctx, &alone->base, leaves) : got;
}

static int
parallel_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_stage_args *args = coi_args_of(iterator);
    int                   calls = (int)args->calls;
    coi_prefetcher_plan   plan = { .num_workers = calls,
                                   .num_slots = 2 *
                                                calls, /* one slow call does not stop the others */
                                   .in_order = args->flag,
                                   .work = coi_map_apply };

    coi_prefetcher_begin(ctx, (coi_prefetcher_iterator *)iterator, &plan);
    return coi_prefetcher_next(ctx, iterator, leaves, map_alone);
}

static void
parallel_close(coi_heap *heap, co_iterator *iterator)
{
    parallel_iterator *self = (parallel_iterator *)iterator;

    coi_prefetcher_close(heap, iterator);
    if (self->alone.element != NULL)
        coi_stage_close(heap, &self->alone.base);
}

static const coi_dataset_ops parallel_map_ops = {
    .name = "map",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(parallel_iterator),
    .prefetches = true,
    .next = parallel_next,
    .keeps = true,
    .checkpoint = coi_prefetcher_checkpoint,
    .close = parallel_close,
    .with_inputs = coi_stage_with_inputs,
    .shows = ", #4 calls at a time, up to twice as many elements prefetched!5, as they are ready;",
    .numbers = COI_STAGE_NUMBERS,
    .tracks = COI_KEPT_BY_FLAG,
};

bool
coi_take_calls(co_context *ctx, int calls, int64_t *out)
{
    if (calls < -1 || calls > COI_MAX_PARALLEL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "num_parallel_calls is %d; it is 0 to %d, or -1 for one on each core", calls,
                 COI_MAX_PARALLEL);
        return false;
    }
    if (calls < 0)
        calls = ctx->runtime->topology.quota;
    *out = calls < COI_MAX_PARALLEL ? calls : COI_MAX_PARALLEL;
    return true;
}

co_dataset *
co_dataset_parallel_map(co_context *ctx, co_dataset *input, co_element_fn fn, void *user,
                        co_value *spec, const co_map_options *options)
{
    co_map_options all = CO_MAP_OPTIONS_INIT;
    coi_stage_args args = { .fn.element = fn, .user = user };

    COI_ENTER(ctx, "dataset_parallel_map", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6) ||
        !coi_take_calls(ctx, all.num_parallel_calls, &args.calls))
        return NULL;
    args.flag = all.deterministic;
    return coi_map_new(ctx, args.calls > 0 ? &parallel_map_ops : &coi_map_ops, input, spec, &args);
}

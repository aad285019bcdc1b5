/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch: a thread of the iterator's own reads the input before it is asked for. The data does
 * not change, except that several readers of one shuffle may get its passes in another order
 * (docs/decisions/prefetching.md). Where elements are cut from memory, handing them over would cost
 * more than making them: there prefetch does nothing, and batches are cut at once as without it.
 */
#include "data/prefetcher.h"

#define USEFUL                                                                                     \
    4 /* elements, where the user leaves it to us: enough for one that takes longer than others */

typedef struct prefetch_iterator {
    coi_prefetcher_iterator head;
    bool (*place)(co_context *ctx, void *user, int64_t index, co_value **leaves);
    void *place_user;
} prefetch_iterator;

static void
begin(co_context *ctx, co_iterator *iterator)
{
    prefetch_iterator  *self = (prefetch_iterator *)iterator;
    coi_prefetcher_plan plan = { .num_workers = 1,
                                 .num_slots = (int)coi_args_of(iterator)->numbers[0],
                                 .in_order = true,
                                 .place = self->place,
                                 .place_user = self->place_user };

    coi_prefetcher_begin(ctx, &self->head, &plan);
}

static int
prefetch_alone(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    int got = coi_iterator_next(ctx, iterator->input, leaves);

    ((coi_prefetcher_iterator *)iterator)->index += got > 0;
    return got;
}

static int
prefetch_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    begin(ctx, iterator);
    return coi_prefetcher_next(ctx, iterator, leaves, prefetch_alone);
}

static const coi_dataset_ops prefetch_ops = {
    .name = "prefetch",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(prefetch_iterator),
    .prefetches = true,
    .next = prefetch_next,
    .keeps = true,
    .checkpoint = coi_prefetcher_checkpoint,
    .close = coi_prefetcher_close,
    .with_inputs = coi_stage_with_inputs,
    .shows = ", up to #0 elements prefetched",
    .numbers = COI_STAGE_NUMBERS,
    .tracks = COI_KEPT,
};
static const coi_dataset_ops nothing_ops = {
    .name = "prefetch",
    .dataset_size = sizeof(coi_stage),
    .transparent = true,
    .with_inputs = coi_stage_with_inputs,
    .shows = ", none prefetched: ?0elements cost nothing;!0the size is 0;",
    .numbers = COI_STAGE_NUMBERS,
    .tracks = COI_KEPT,
};

bool
coi_dataset_costs(const co_dataset *dataset)
{
    if (dataset->ops->costs)
        return true;
    for (size_t i = 0; !dataset->ops->prefetches && i < dataset->num_inputs; ++i)
        if (coi_dataset_costs(dataset->inputs[i]))
            return true;
    return false;
}

/* Whether iterators of the dataset would stack. */
static bool
stacks(const co_dataset *dataset)
{
    while (dataset->ops->transparent)
        dataset = dataset->inputs[0];
    return dataset->ops->rows != NULL && (dataset->num_inputs == 0 || stacks(dataset->inputs[0]));
}

co_dataset *
coi_prefetch_new(co_context *ctx, co_dataset *input, int64_t depth)
{
    coi_stage_args args = { .numbers = { depth < COI_MAX_PREFETCH ? depth : COI_MAX_PREFETCH } };
    bool           prefetcher = depth > 0 && (!stacks(input) || coi_dataset_costs(input));

    return coi_stage_new(ctx, prefetcher ? &prefetch_ops : &nothing_ops, &input, 1,
                         coi_spec_of(input), &args);
}

void
coi_prefetch_place(co_iterator *iterator,
                   bool (*place)(co_context *ctx, void *user, int64_t index, co_value **leaves),
                   void *user)
{
    prefetch_iterator *self = (prefetch_iterator *)iterator;

    if (iterator->dataset->ops != &prefetch_ops)
        return;
    self->place = place;
    self->place_user = user;
}

void
coi_prefetch_start(co_context *ctx, co_iterator *iterator)
{
    if (iterator->dataset->ops == &prefetch_ops)
        begin(ctx, iterator);
}

void
coi_prefetch_alone(co_iterator *iterator)
{
    if (iterator->dataset->ops == &prefetch_ops)
        ((coi_prefetcher_iterator *)iterator)->begun = true;
}

bool
coi_prefetch_is_ready(co_iterator *iterator)
{
    return iterator->dataset->ops != &prefetch_ops ||
           coi_prefetcher_is_ready((coi_prefetcher_iterator *)iterator);
}

co_dataset *
co_dataset_prefetch(co_context *ctx, co_dataset *input, int64_t buffer_size)
{
    COI_ENTER(ctx, "dataset_prefetch", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (buffer_size < -1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (buffer_size) is %lld; it is 0 or more, or -1 for what is useful",
                 (long long)buffer_size);
        return NULL;
    }
    return coi_dataset_give(ctx,
                            coi_prefetch_new(ctx, input, buffer_size < 0 ? USEFUL : buffer_size));
}

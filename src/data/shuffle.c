/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shuffle: a buffer of elements, of which the next to be given is drawn and replaced from the
 * input.
 *
 * The order is a function of the seed, the number of the pass and the buffer size alone: draw k of
 * pass p is word k % 4 of Philox 4x32-10 with the key seed (low word first) and the counter
 * (k / 4, p), both low word first; of n elements in the buffer it takes number floor(draw * n /
 * 2^32). The last of the buffer takes the place of the one that was drawn, and the next of the
 * input that of the last. The passes of a dataset that reshuffles count from 0 in the order in
 * which its iterators are asked for their first element; without reshuffling every pass is pass 0.
 */
#include "data/iterator_checkpoint.h"

#include "ops/kernels/philox.h"

#define MOST_ELEMENTS UINT32_MAX /* of a buffer: draws have 32 bits */

typedef struct shuffle_dataset {
    coi_stage stage; /* numbers: buffer size, seed; flag: every pass has its own order */
    atomic_uint_least64_t passes;
} shuffle_dataset;

typedef struct shuffle_iterator {
    coi_stage_iterator base; /* index: draws so far */
    bool               begun;
    coi_batch_assembly buffer;
    uint64_t           pass;
    uint32_t           words[4];
} shuffle_iterator;

static co_code
shuffle_open(co_context *ctx, co_iterator *iterator)
{
    (void)ctx;
    ((shuffle_iterator *)iterator)->buffer.num_leaves = iterator->dataset->num_leaves;
    return CO_OK;
}

static void
shuffle_close(coi_heap *heap, co_iterator *iterator)
{
    coi_assembly_free(heap, &((shuffle_iterator *)iterator)->buffer);
}

static void
begin(co_iterator *iterator)
{
    shuffle_iterator *self = (shuffle_iterator *)iterator;

    if (self->begun)
        return;
    if (coi_args_of(iterator)->flag)
        self->pass = atomic_fetch_add(&((shuffle_dataset *)iterator->dataset)->passes, 1);
    self->begun = true;
}

/* The words of draws 4 * block and the three after it. */
static void
make_words(co_iterator *iterator, uint64_t block)
{
    shuffle_iterator *self = (shuffle_iterator *)iterator;
    uint64_t          seed = (uint64_t)coi_args_of(iterator)->numbers[1];

    coi_philox((uint32_t[]){ (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)self->pass,
                             (uint32_t)(self->pass >> 32) },
               (uint32_t[]){ (uint32_t)seed, (uint32_t)(seed >> 32) }, self->words);
}

/* A number below n. */
static size_t
draw(co_iterator *iterator, size_t n)
{
    shuffle_iterator *self = (shuffle_iterator *)iterator;
    uint64_t          at = (uint64_t)self->base.index++;

    if (at % 4 == 0)
        make_words(iterator, at / 4);
    return (size_t)((uint64_t)self->words[at % 4] * n >> 32);
}

/* Elements that the buffer holds: all of a dataset of unknown length. */
static int64_t
capacity_of(const co_iterator *iterator)
{
    int64_t size = coi_args_of(iterator)->numbers[0];

    return size == CO_UNKNOWN_CARDINALITY ? MOST_ELEMENTS : size;
}

/* Fill the buffer. An element that fails is not in it. */
static int
fill(co_context *ctx, co_iterator *iterator)
{
    shuffle_iterator *self = (shuffle_iterator *)iterator;

    while (!self->base.ended && (int64_t)self->buffer.count < capacity_of(iterator)) {
        co_value **room = coi_assembly_room(ctx, &self->buffer);
        int        got = room != NULL ? coi_iterator_next(ctx, iterator->input, room) : COI_ERROR;

        if (got < 0)
            return got;
        self->base.ended = got == COI_END;
        self->buffer.count += got == COI_ELEMENT;
    }
    return self->buffer.count > 0 ? COI_ELEMENT : COI_END;
}

/* What is drawn leaves a hole, which the last of the buffer fills: the next of the input takes that
 * one's place. */
static int
shuffle_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    shuffle_iterator *self = (shuffle_iterator *)iterator;
    size_t            n = self->buffer.num_leaves, last;
    co_value        **drawn;
    int               got;

    begin(iterator);
    got = fill(ctx, iterator);
    if (got != COI_ELEMENT)
        return got;
    last = self->buffer.count - 1;
    drawn = self->buffer.leaves + draw(iterator, last + 1) * n;
    for (size_t i = 0; i < n; ++i) {
        leaves[i] = drawn[i];
        drawn[i] = self->buffer.leaves[last * n + i];
    }
    self->buffer.count = last;
    if (self->base.index % 4 !=
        0) /* its number is known: it is fetched while others work on this one */
        __builtin_prefetch(
            self->buffer.leaves[(self->words[self->base.index % 4] * (uint64_t)last >> 32) * n]);
    return COI_ELEMENT;
}

COI_RARE static bool
shuffle_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    shuffle_iterator *self = (shuffle_iterator *)iterator;
    int64_t           pass = (int64_t)self->pass;

    if (!coi_checkpoint_stage(ctx, iterator, p) || !coi_checkpoint_flag(ctx, p, &self->begun) ||
        !coi_checkpoint_number(ctx, p, &pass, 0, COI_MOST_COUNTED) ||
        !coi_checkpoint_assembly(ctx, p, iterator->dataset, capacity_of(iterator), &self->buffer))
        return false;
    self->pass = (uint64_t)pass;
    if (!p->saves && self->base.index % 4 != 0)
        make_words(iterator, (uint64_t)self->base.index / 4);
    return true;
}

/* Passes that follow go on from the checkpoint: also those of an iterator that is not open there,
 * or not asked again. */
COI_RARE static bool
shuffle_shared(co_context *ctx, co_dataset *dataset, coi_iterator_checkpoint *p, coi_shared *shared)
{
    (void)dataset;
    return coi_checkpoint_number(ctx, p, &shared->passes, 0, COI_MOST_COUNTED);
}

COI_RARE static void
shuffle_fetch(co_dataset *dataset, coi_shared *shared)
{
    shared->passes = (int64_t)atomic_load(&((shuffle_dataset *)dataset)->passes);
}

COI_RARE static void
shuffle_share(co_dataset *dataset, const coi_shared *shared)
{
    atomic_store(&((shuffle_dataset *)dataset)->passes, (uint64_t)shared->passes);
}

COI_RARE static co_dataset *
shuffle_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return coi_stage_remake(ctx, dataset, inputs, coi_spec_of(inputs[0]));
}

const coi_dataset_ops coi_shuffle_ops = {
    .name = "shuffle",
    .dataset_size = sizeof(shuffle_dataset),
    .iterator_size = sizeof(shuffle_iterator),
    .next = shuffle_next,
    .open = shuffle_open,
    .close = shuffle_close,
    .with_inputs = shuffle_with_inputs, /* counts its passes anew */
    .keeps = true,
    .checkpoint = shuffle_checkpoint,
    .shared_checkpoint = shuffle_shared,
    .fetch = shuffle_fetch,
    .share = shuffle_share,
    .shows = "~0, buffer #0;<0, buffer of all elements;, seed #1?5, in another order each time;",
    .numbers = COI_STAGE_NUMBERS,
    .tracks = COI_REMADE_ONCE,
};

COI_RARE co_dataset *
co_dataset_shuffle(co_context *ctx, co_dataset *input, int64_t buffer_size, int64_t seed,
                   bool reshuffle_each_iteration)
{
    coi_stage_args args = { .numbers = { buffer_size, seed }, .flag = reshuffle_each_iteration };

    COI_ENTER(ctx, "dataset_shuffle", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (buffer_size != CO_UNKNOWN_CARDINALITY && (buffer_size < 1 || buffer_size > MOST_ELEMENTS)) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 3 (buffer_size) is %lld; a buffer has 1 to 2^32 - 1 elements, or all with "
            "CO_UNKNOWN_CARDINALITY",
            (long long)buffer_size);
        return NULL;
    }
    if (buffer_size == CO_UNKNOWN_CARDINALITY && input->cardinality == CO_INFINITE) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (buffer_size) is CO_UNKNOWN_CARDINALITY, and the input is endless: no "
                 "buffer holds all of it; give a number");
        return NULL;
    }
    return coi_stage_like(ctx, &coi_shuffle_ops, input, &args);
}

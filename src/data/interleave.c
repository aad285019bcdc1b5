/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interleave and flat_map: every element of the input becomes a dataset, of which a number are read
 * in turn, a block of elements each time. flat_map is the cycle of one.
 *
 *     slot        0   1   2           the cycle; a slot whose dataset has ended takes the next
 *     iterators   a   b   c           element of the input when its turn comes again
 *
 * With parallel calls the first slots of the cycle work ahead, each with a thread: their datasets are prefetched.
 */
#include "data/ahead.h"
#include "data/position.h"

#include <string.h>

typedef struct slot {
    co_iterator *iterator; /* NULL: free */
    co_value    *element;  /* from which its dataset was made; a reference */
} slot;

typedef struct interleave_iterator {
    coi_stage_iterator base;  /* index: elements of the input so far; ended: the input is */
    slot              *slots; /* as many as the cycle has */
    size_t             open, at;
    int64_t            given; /* of the block */
} interleave_iterator;

enum { CYCLE, BLOCK }; /* numbers of the stage; flag: slots that are ready may go first */
#define DEPTH     8    /* elements that a slot has ahead */
#define MAX_CYCLE 65536

static const coi_dataset_ops flat_map_ops;

static co_code
interleave_open(co_context *ctx, co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    size_t               nbytes = (size_t)coi_args_of(iterator)->numbers[CYCLE] * sizeof(slot);

    self->slots = coi_small_alloc(&ctx->heap, nbytes);
    if (self->slots == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (%s)",
                        iterator->dataset->ops->name);
    memset(self->slots, 0, nbytes);
    return coi_stage_open(ctx, iterator);
}

static void
empty(coi_heap *heap, slot *s)
{
    coi_unref(heap, s->iterator);
    coi_unref(heap, s->element);
    *s = (slot){ NULL, NULL };
}

static void
interleave_close(coi_heap *heap, co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    size_t               n = (size_t)coi_args_of(iterator)->numbers[CYCLE];

    coi_stage_close(heap, iterator);
    if (self->slots == NULL)
        return;
    for (size_t i = 0; i < n; ++i)
        empty(heap, &self->slots[i]);
    coi_small_free(heap, self->slots, n * sizeof(slot));
}

/* What the function returned gives elements of our spec. */
static bool
check_inner(co_context *ctx, const co_dataset *dataset, const co_dataset *inner)
{
    char name[32];

    if (!coi_check_inner(ctx, inner))
        return false;
    if (coi_same_structure(dataset->spec, inner->spec, CO_TYPE, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    for (size_t i = 0; i < dataset->num_leaves; ++i)
        if (!coi_spec_within(inner->specs[i], dataset->specs[i])) {
            coi_fail(ctx, CO_TYPE,
                     "the dataset that the function returned has other %s than the spec says; give "
                     "the stage the spec of what it returns",
                     coi_component_name(dataset, i, name));
            return false;
        }
    return true;
}

/*
 * An iterator over a dataset that was made for the slot. Those without a thread are prefetched too, by the caller: positions are
 * then the same for any number of calls, which is other on other machines.
 */
static co_iterator *
open_inner(co_context *ctx, co_iterator *iterator, co_dataset *inner)
{
    bool ahead = (int64_t)((interleave_iterator *)iterator)->at < coi_args_of(iterator)->calls;
    co_iterator *made;

    if (iterator->dataset->ops == &flat_map_ops)
        return coi_iterator_new(ctx, inner, NULL);
    inner = coi_prefetch_new(ctx, inner, DEPTH);
    if (inner == NULL)
        return NULL;
    made = coi_iterator_new(ctx, inner, NULL);
    coi_unref(&ctx->heap, inner);
    if (made != NULL && !ahead)
        coi_prefetch_alone(made);
    return made;
}

/* The element that was pulled as a dataset in the slot. */
static int
occupy(co_context *ctx, co_iterator *iterator)
{
    const coi_stage_args *args = coi_args_of(iterator);
    interleave_iterator  *self = (interleave_iterator *)iterator;
    coi_guest             guest;
    co_value             *element;
    co_iterator          *made = NULL;

    coi_guest_begin(ctx, &guest);
    element = coi_guest_element(ctx, iterator);
    if (element != NULL) {
        co_dataset *inner = args->fn.inner(ctx, element, args->user);

        ctx->call = guest.call;
        if (check_inner(ctx, iterator->dataset, inner))
            made = open_inner(ctx, iterator, inner);
        if (made != NULL)
            coi_ref(element);
    }
    coi_guest_end(ctx, &guest, iterator);
    if (made == NULL)
        return coi_guest_error(ctx, iterator);
    self->slots[self->at] = (slot){ made, element };
    ++self->open;
    return COI_ELEMENT;
}

/* The same with the next element of the input. */
static int
occupy_next(co_context *ctx, co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    int                  got = coi_stage_pull(ctx, iterator);

    if (got > 0)
        got = occupy(ctx, iterator);
    else
        self->base.ended = got == COI_END;
    if (got > 0)
        coi_prefetch_start(ctx, self->slots[self->at].iterator);
    return got;
}

static void
advance(co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;

    self->given = 0;
    if (++self->at == (size_t)coi_args_of(iterator)->numbers[CYCLE])
        self->at = 0;
}

/* Where order does not matter: if the slot would have to wait, go to the first that need not, or that is free. */
static void
find_ready(co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    size_t               n = (size_t)coi_args_of(iterator)->numbers[CYCLE];

    for (size_t i = 0; coi_args_of(iterator)->flag && i < n; ++i) {
        size_t       at = (self->at + i) % n;
        co_iterator *inner = self->slots[at].iterator;

        if (inner == NULL ? self->base.ended : !coi_prefetch_is_ready(inner))
            continue;
        if (i > 0)
            self->given = 0;
        self->at = at;
        return;
    }
}

static int
interleave_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    interleave_iterator *self = (interleave_iterator *)iterator;

    while (!self->base.ended || self->open > 0) {
        co_iterator *inner;
        int          got;

        find_ready(iterator);
        inner = self->slots[self->at].iterator;
        if (inner == NULL && self->base.ended) {
            advance(iterator);
            continue;
        }
        got = inner != NULL ? coi_iterator_next(ctx, inner, leaves) : occupy_next(ctx, iterator);
        if (got < 0)
            return got;
        if (inner == NULL)
            continue;
        if (got == COI_ELEMENT) {
            if (++self->given == coi_args_of(iterator)->numbers[BLOCK])
                advance(iterator);
            return got;
        }
        empty(&ctx->heap, &self->slots[self->at]);
        --self->open;
        advance(iterator);
    }
    return COI_END;
}

/* A dataset in a slot is made again from its element, and brought to its position. */
static bool
slot_position(co_context *ctx, co_iterator *iterator, coi_position *p, size_t i)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    co_value           **leaves = self->base.element;
    bool                 is_taken = self->slots[i].iterator != NULL;

    if (!coi_position_flag(ctx, p, &is_taken))
        return false;
    if (!is_taken)
        return true;
    if (p->saves)
        coi_collect_leaves(self->slots[i].element, leaves);
    self->at = p->saves ? self->at : i;
    if (!coi_position_leaves(ctx, p, iterator->dataset->inputs[0], leaves) ||
        (!p->saves && occupy(ctx, iterator) != COI_ELEMENT))
        return false;
    return coi_position_iterator(ctx, p, self->slots[i].iterator);
}

static bool
interleave_position(co_context *ctx, co_iterator *iterator, coi_position *p)
{
    const coi_stage_args *args = coi_args_of(iterator);
    interleave_iterator  *self = (interleave_iterator *)iterator;
    int64_t               at = (int64_t)self->at;
    bool                  ok = coi_position_stage(ctx, iterator, p) &&
              coi_position_number(ctx, p, &at, 0, args->numbers[CYCLE] - 1) &&
              coi_position_number(ctx, p, &self->given, 0, args->numbers[BLOCK] - 1);

    for (size_t i = 0; ok && i < (size_t)args->numbers[CYCLE]; ++i)
        ok = slot_position(ctx, iterator, p, i);
    self->at = (size_t)at;
    return ok;
}

/* --- elements that are names of files (DS-SHARD-2, DS-SHARD-3) --- */

/* The share of a worker of the names. A shuffle of them comes after that, so that shares stay disjoint. */
static co_dataset *
share_names(co_context *ctx, co_dataset *names, int num, int index)
{
    co_dataset *share, *made;

    if (names->ops != &coi_shuffle_ops)
        return coi_shard_names(ctx, names, num, index);
    share = share_names(ctx, names->inputs[0], num, index);
    if (share == NULL)
        return NULL;
    made = coi_stage_with_inputs(ctx, names, &share);
    coi_unref(&ctx->heap, share);
    return made;
}

static co_dataset *
interleave_shard(co_context *ctx, co_dataset *dataset, int num, int index)
{
    co_dataset *share = share_names(ctx, dataset->inputs[0], num, index), *made;

    if (share == NULL)
        return NULL;
    made = coi_stage_with_inputs(ctx, dataset, &share);
    coi_unref(&ctx->heap, share);
    return made;
}

static int64_t
count_names(const co_dataset *dataset)
{
    return dataset->inputs[0]->cardinality;
}

static void
interleave_show(const co_dataset *dataset, coi_prose *out)
{
    const coi_stage_args *args = &((const coi_stage *)dataset)->args;

    coi_put(out, ", cycle %lld, block %lld", (long long)args->numbers[CYCLE],
            (long long)args->numbers[BLOCK]);
    if (args->calls > 0)
        coi_put(out, ", %lld read ahead, up to %d elements each%s",
                (long long)(args->calls < args->numbers[CYCLE] ? args->calls
                                                               : args->numbers[CYCLE]),
                DEPTH, args->flag ? ", as they are ready" : "");
    coi_put(out, dataset->ops->num_files != NULL ? ", of files" : "");
}

#define INTERLEAVE(name_)                                                                          \
    .name = name_, .dataset_size = sizeof(coi_stage),                                              \
    .iterator_size = sizeof(interleave_iterator), .costs = true, .next = interleave_next,          \
    .open = interleave_open, .close = interleave_close, .position = interleave_position,           \
    .with_inputs = coi_stage_with_inputs, .count = coi_count_unknown

static const coi_dataset_ops flat_map_ops = { INTERLEAVE("flat_map") };
static const coi_dataset_ops interleave_ops = { INTERLEAVE("interleave"), .show = interleave_show };
static const coi_dataset_ops interleave_files_ops = { INTERLEAVE("interleave"),
                                                      .shard_files = interleave_shard,
                                                      .num_files = count_names,
                                                      .show = interleave_show };

/* --- the public calls --- */

static co_dataset *
interleave_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input, co_value *spec,
               const coi_stage_args *args)
{
    if (!coi_check_input(ctx, input, 2, "input") ||
        !coi_check_fn(ctx, args->fn.inner != NULL, 3, "returns a dataset") ||
        (spec != NULL && !coi_check_spec(ctx, spec, 5)))
        return NULL;
    return coi_dataset_give(ctx, coi_stage_mapped(ctx, ops, input, spec, args));
}

co_dataset *
co_dataset_flat_map(co_context *ctx, co_dataset *input, co_inner_fn fn, void *user, co_value *spec)
{
    coi_stage_args args = { .numbers = { 1, 1 }, .fn.inner = fn, .user = user };

    COI_ENTER(ctx, "dataset_flat_map", NULL);
    return interleave_new(ctx, &flat_map_ops, input, spec, &args);
}

co_dataset *
co_dataset_interleave(co_context *ctx, co_dataset *input, co_inner_fn fn, void *user,
                      co_value *spec, const co_interleave_options *options)
{
    co_interleave_options all = CO_INTERLEAVE_OPTIONS_INIT;
    coi_stage_args        args = { .fn.inner = fn, .user = user };

    COI_ENTER(ctx, "dataset_interleave", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    if (all.cycle_length < 1 || all.cycle_length > MAX_CYCLE || all.block_length < 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "cycle_length is %d and block_length %d; they are 1 or more, a cycle at most %d",
                 all.cycle_length, all.block_length, MAX_CYCLE);
        return NULL;
    }
    args.numbers[CYCLE] = all.cycle_length;
    args.numbers[BLOCK] = all.block_length;
    if (!coi_take_calls(ctx, all.num_parallel_calls, &args.calls))
        return NULL;
    args.flag = !all.deterministic;
    return interleave_new(ctx, all.opens_files ? &interleave_files_ops : &interleave_ops, input,
                          spec, &args);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interleave and flat_map: every element of the input becomes a dataset, of which a number are read
 * in turn, a block of elements each time. flat_map is the cycle of one.
 *
 *     slot        0   1   2           the cycle; a slot whose dataset has ended takes the next
 *     iterators   a   b   c           element of the input when its turn comes again
 *
 * With parallel calls the datasets that are opened first are prefetched, each by a thread. And the
 * next ones are opened before a slot is free, so that they open side by side:
 *
 *     spares      d   e   f           in the order of the input; a free slot takes the first
 */
#include "data/prefetcher.h"
#include "data/iterator_checkpoint.h"

#include <string.h>

typedef struct slot {
    co_value    *element; /* from which its dataset is made; a reference. NULL: free */
    co_iterator *iterator;
    int64_t      index; /* elements of the input up to this one */
    bool         has_thread;
} slot;

typedef struct interleave_iterator {
    coi_stage_iterator base;   /* index: elements of the input so far; ended: the input is */
    slot              *slots;  /* as many as the cycle has */
    slot              *spares; /* without an iterator: the function failed before its turn */
    size_t             num_spares, room;
    size_t             taken, at; /* slots and spares with a dataset; the slot whose turn it is */
    int64_t            given;     /* of the block */
    int64_t            threads;
    bool               bold; /* opens spares */
} interleave_iterator;

enum { CYCLE, BLOCK }; /* numbers of the stage; flag: slots that are ready may go first */
#define DEPTH     8    /* elements that a slot prefetches */
#define MAX_CYCLE 65536

static const coi_dataset_ops flat_map_ops;

/* Whether elements come from memory alone: an error of a function or a file would come before its
 * turn. */
static bool
is_safe(const co_dataset *dataset)
{
    bool safe = !dataset->ops->costs;

    for (size_t i = 0; safe && i < dataset->num_inputs; ++i)
        safe = is_safe(dataset->inputs[i]);
    return safe;
}

/* Room for slots, all free. */
static bool
make_slots(co_context *ctx, co_iterator *iterator, slot **out, size_t n)
{
    *out = coi_small_alloc(&ctx->heap, n * sizeof(slot));
    if (*out == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (%s)",
                 iterator->dataset->ops->name);
    else
        memset(*out, 0, n * sizeof(slot));
    return *out != NULL;
}

/* If order does not matter, no slot waits for a dataset that is slow to open: the next slot is read
 * meanwhile. */
static bool
opens_spares(const co_dataset *dataset)
{
    const coi_stage_args *args = &((const coi_stage *)dataset)->args;

    return args->calls > 1 && !args->flag && is_safe(dataset->inputs[0]);
}

static co_code
interleave_open(co_context *ctx, co_iterator *iterator)
{
    const coi_stage_args *args = coi_args_of(iterator);
    interleave_iterator  *self = (interleave_iterator *)iterator;

    self->bold = opens_spares(iterator->dataset);
    self->room = self->bold ? (size_t)args->calls : 0;
    if (!make_slots(ctx, iterator, &self->slots, (size_t)args->numbers[CYCLE]) ||
        (self->bold && !make_slots(ctx, iterator, &self->spares, self->room)))
        return ctx->error.code;
    return coi_stage_open(ctx, iterator);
}

static void
drop_slots(coi_heap *heap, slot *slots, size_t n)
{
    for (size_t i = 0; slots != NULL && i < n; ++i) {
        coi_unref(heap, slots[i].iterator);
        coi_unref(heap, slots[i].element);
    }
}

static void
interleave_close(coi_heap *heap, co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    size_t               n = (size_t)coi_args_of(iterator)->numbers[CYCLE];

    coi_stage_close(heap, iterator);
    drop_slots(heap, self->slots, n);
    drop_slots(heap, self->spares, self->num_spares);
    if (self->slots != NULL)
        coi_small_free(heap, self->slots, n * sizeof(slot));
    if (self->spares != NULL)
        coi_small_free(heap, self->spares, self->room * sizeof(slot));
}

static void
empty(co_context *ctx, interleave_iterator *self, slot *s)
{
    drop_slots(&ctx->heap, s, 1);
    self->threads -= s->has_thread;
    --self->taken;
    *s = (slot){ NULL, NULL, 0, false };
}

/* What the function returned gives elements of our spec. */
static bool
check_inner(co_context *ctx, const co_dataset *dataset, const co_dataset *inner)
{
    char name[32];

    if (!coi_check_inner(ctx, inner))
        return false;
    if (coi_same_structure(dataset->spec, inner->spec, CO_TYPE_ERROR, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    for (size_t i = 0; i < dataset->num_leaves; ++i)
        if (!coi_spec_within(inner->specs[i], dataset->specs[i])) {
            coi_fail(ctx, CO_TYPE_ERROR,
                     "the dataset that the function returned has other %s than the spec says; give "
                     "the stage the spec of what it returns",
                     coi_component_name(dataset, i, name));
            return false;
        }
    return true;
}

/*
 * An iterator over a dataset that was made for the slot. Those without a thread are prefetched too,
 * by the caller: checkpoints are then the same for any number of calls, which differs between
 * machines.
 */
static co_iterator *
open_inner(co_context *ctx, co_iterator *iterator, co_dataset *inner, bool has_thread)
{
    co_iterator *made;

    if (iterator->dataset->ops == &flat_map_ops)
        return coi_iterator_new(ctx, inner, NULL);
    inner = coi_prefetch_new(ctx, inner, DEPTH);
    if (inner == NULL)
        return NULL;
    made = coi_iterator_new(ctx, inner, NULL);
    coi_unref(&ctx->heap, inner);
    if (made != NULL && !has_thread)
        coi_prefetch_alone(made);
    return made;
}

/* The element that was pulled takes the slot. */
static bool
take_slot(co_context *ctx, co_iterator *iterator, slot *s)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    coi_user_callback    callback;
    co_value            *element;

    coi_user_callback_begin(ctx, &callback);
    element = coi_user_callback_element(ctx, iterator);
    if (element != NULL)
        coi_ref(element);
    coi_user_callback_end(ctx, &callback, iterator);
    if (element == NULL)
        return false;
    *s = (slot){ element, NULL, self->base.index, false };
    ++self->taken;
    return true;
}

/* The dataset of a slot that is taken. */
static bool
open_slot(co_context *ctx, co_iterator *iterator, slot *s)
{
    const coi_stage_args *args = coi_args_of(iterator);
    interleave_iterator  *self = (interleave_iterator *)iterator;
    int64_t               index = self->base.index;
    bool                  has_thread = self->threads < args->calls * (self->bold ? 2 : 1);
    coi_user_callback     callback;

    if (coi_user_callback_begin(ctx, &callback)) {
        co_dataset *inner = args->fn.inner(ctx, s->element, args->user);

        ctx->call = callback.call;
        if (check_inner(ctx, iterator->dataset, inner))
            s->iterator = open_inner(ctx, iterator, inner, has_thread);
    }
    coi_user_callback_end(ctx, &callback, iterator);
    if (s->iterator != NULL) {
        s->has_thread = has_thread;
        self->threads += has_thread;
        return true;
    }
    self->base.index = s->index;
    coi_user_callback_error(ctx, iterator);
    self->base.index = index;
    return false;
}

/* Have a slot taken by the next element of the input. */
static int
pull_slot(co_context *ctx, co_iterator *iterator, slot *s)
{
    int got = coi_stage_pull(ctx, iterator);

    ((coi_stage_iterator *)iterator)->ended = got == COI_END;
    return got <= 0 || take_slot(ctx, iterator, s) ? got : COI_ERROR;
}

/*
 * Open more, as far as there are threads. A function that fails is called again when its turn
 * comes: this is not the place for its error.
 */
static int
open_spares(co_context *ctx, co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    int64_t              calls = coi_args_of(iterator)->calls;
    int                  got = COI_ELEMENT;

    while ((int64_t)self->num_spares < calls && self->threads < 2 * calls) {
        slot *s = &self->spares[self->num_spares];

        got = pull_slot(ctx, iterator, s);
        if (got <= 0)
            break;
        ++self->num_spares;
        if (open_slot(ctx, iterator, s))
            coi_prefetch_start(ctx, s->iterator);
        else
            co_clear(ctx);
    }
    return got;
}

/* A dataset for the slot whose turn it is, if there is one more. */
static int
occupy(co_context *ctx, co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    slot                *s = &self->slots[self->at];
    int                  got = COI_ELEMENT;

    if (s->element == NULL && self->num_spares > 0) {
        *s = self->spares[0];
        memmove(self->spares, self->spares + 1, --self->num_spares * sizeof(slot));
    } else if (s->element == NULL) {
        got = pull_slot(ctx, iterator, s);
    }
    if (got <= 0)
        return got;
    if (s->iterator == NULL && !open_slot(ctx, iterator, s)) {
        empty(ctx, self, s);
        return COI_ERROR;
    }
    coi_prefetch_start(ctx, s->iterator);
    return self->bold && !self->base.ended ? open_spares(ctx, iterator) : got;
}

static void
advance(co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;

    self->given = 0;
    if (++self->at == (size_t)coi_args_of(iterator)->numbers[CYCLE])
        self->at = 0;
}

/* Whether there is nothing for a free slot any more. */
static bool
is_over(const interleave_iterator *self)
{
    return self->base.ended && self->num_spares == 0;
}

/* Where order does not matter: if the slot would have to wait, go to the first that need not, or
 * that is free. */
static void
find_ready(co_iterator *iterator)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    size_t               n = (size_t)coi_args_of(iterator)->numbers[CYCLE];

    for (size_t i = 0; coi_args_of(iterator)->flag && i < n; ++i) {
        size_t      at = (self->at + i) % n;
        const slot *s = &self->slots[at];

        if (s->iterator != NULL ? !coi_prefetch_is_ready(s->iterator)
                                : s->element == NULL && is_over(self))
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

    while (!self->base.ended || self->taken > 0) {
        const slot *s;
        int         got;

        find_ready(iterator);
        s = &self->slots[self->at];
        if (s->iterator == NULL) {
            if (s->element == NULL && is_over(self))
                advance(iterator);
            else if (occupy(ctx, iterator) < 0)
                return COI_ERROR;
            continue;
        }
        got = coi_iterator_next(ctx, s->iterator, leaves);
        if (got < 0)
            return got;
        if (got == COI_ELEMENT) {
            if (++self->given == coi_args_of(iterator)->numbers[BLOCK])
                advance(iterator);
            return got;
        }
        empty(ctx, self, &self->slots[self->at]);
        advance(iterator);
    }
    return COI_END;
}

/* A dataset in a slot is made again from its element, and brought to its place. */
static bool
slot_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p, slot *s)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;
    bool                is_taken = s->element != NULL, is_open = s->iterator != NULL;

    if (!coi_checkpoint_flag(ctx, p, &is_taken))
        return false;
    if (!is_taken)
        return true;
    if (p->saves)
        coi_collect_leaves(s->element, self->element);
    return coi_checkpoint_leaves(ctx, p, iterator->dataset->inputs[0], self->element) &&
           (p->saves || take_slot(ctx, iterator, s)) &&
           coi_checkpoint_number(ctx, p, &s->index, 0, COI_MOST_COUNTED) &&
           coi_checkpoint_flag(ctx, p, &is_open) &&
           (!is_open || ((p->saves || open_slot(ctx, iterator, s)) &&
                         coi_checkpoint_iterator(ctx, p, s->iterator) &&
                         coi_checkpoint_shared(ctx, p, s->iterator->dataset)));
}

/* Spares of an iterator with more calls than this one has are no fewer for that. */
static bool
spares_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    interleave_iterator *self = (interleave_iterator *)iterator;
    int64_t              n = (int64_t)self->num_spares;

    if (!coi_checkpoint_number(ctx, p, &n, 0, COI_MAX_PARALLEL))
        return false;
    if ((size_t)n > self->room) {
        slot *spares;

        if (!make_slots(ctx, iterator, &spares, (size_t)n))
            return false;
        if (self->spares != NULL)
            coi_small_free(&ctx->heap, self->spares, self->room * sizeof(slot));
        self->spares = spares;
        self->room = (size_t)n;
    }
    self->num_spares = (size_t)n;
    for (size_t i = 0; i < (size_t)n; ++i)
        if (!slot_checkpoint(ctx, iterator, p, &self->spares[i]) ||
            (self->spares[i].element == NULL &&
             !coi_checkpoint_wrong(ctx, p, "a dataset that waits has no element")))
            return false;
    return true;
}

static bool
interleave_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    const coi_stage_args *args = coi_args_of(iterator);
    interleave_iterator  *self = (interleave_iterator *)iterator;
    int64_t               at = (int64_t)self->at;
    bool                  ok = coi_checkpoint_stage(ctx, iterator, p) &&
              coi_checkpoint_number(ctx, p, &at, 0, args->numbers[CYCLE] - 1) &&
              coi_checkpoint_number(ctx, p, &self->given, 0, args->numbers[BLOCK] - 1);

    self->at = (size_t)at;
    for (size_t i = 0; ok && i < (size_t)args->numbers[CYCLE]; ++i)
        ok = slot_checkpoint(ctx, iterator, p, &self->slots[i]);
    return ok && spares_checkpoint(ctx, iterator, p);
}

/* --- elements that are names of files (DS-SHARD-2, DS-SHARD-3) --- */

/* The share of a worker of the names. A shuffle of them comes after that, so that shares stay
 * disjoint. */
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

#define INTERLEAVE(name_)                                                                          \
    .name = name_, .dataset_size = sizeof(coi_stage),                                              \
    .iterator_size = sizeof(interleave_iterator), .costs = true, .keeps = true,                    \
    .next = interleave_next, .open = interleave_open, .close = interleave_close,                   \
    .checkpoint = interleave_checkpoint, .with_inputs = coi_stage_with_inputs,                     \
    .count = coi_count_unknown

/* Threads go to the slots, and as many to spares; without threads nothing is ready before its
 * turn. */
static void
interleave_show(const co_dataset *dataset, coi_prose *out)
{
    const coi_stage_args *args = &((const coi_stage *)dataset)->args;
    int64_t               cycle = args->numbers[CYCLE];
    int64_t               prefetcher = args->calls < cycle ? args->calls : cycle;

    coi_put(out, ", cycle %lld, block %lld", (long long)cycle, (long long)args->numbers[BLOCK]);
    if (args->calls == 0)
        return;
    if (opens_spares(dataset))
        prefetcher += args->calls;
    coi_put(out, ", up to %lld prefetched, %d elements of each%s", (long long)prefetcher, DEPTH,
            args->flag ? ", as they are ready" : "");
}

static const coi_dataset_ops flat_map_ops = { INTERLEAVE("flat_map") };
static const coi_dataset_ops flat_map_files_ops = { INTERLEAVE("flat_map"),
                                                    .shard_files = interleave_shard,
                                                    .num_files = count_names };
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
co_dataset_flat_map_with(co_context *ctx, co_dataset *input, co_inner_fn fn, void *user,
                         co_value *spec, const co_flat_map_options *options)
{
    co_flat_map_options all = CO_FLAT_MAP_OPTIONS_INIT;
    coi_stage_args      args = { .numbers = { 1, 1 }, .fn.inner = fn, .user = user };

    COI_ENTER(ctx, "dataset_flat_map", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    return interleave_new(ctx, all.opens_files ? &flat_map_files_ops : &flat_map_ops, input, spec,
                          &args);
}

co_dataset *
co_dataset_flat_map(co_context *ctx, co_dataset *input, co_inner_fn fn, void *user, co_value *spec)
{
    return co_dataset_flat_map_with(ctx, input, fn, user, spec, NULL);
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

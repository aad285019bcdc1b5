/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of several inputs: zip and enumerate, side by side; concatenate, one after the other. All
 * branches are checked before the first element, even those that are reached late (DS-SHARD-15).
 */
#include "data/iterator_checkpoint.h"

#include <string.h>

/* --- zip --- */

typedef struct zip_iterator {
    coi_stage_iterator base;
    co_iterator      **others; /* of inputs 1, 2, ... */
    /* Before a cancellation, these inputs had given their part of an element; room for a whole
     * one. */
    size_t     num_held;
    co_value **held;
} zip_iterator;

static size_t
others_size(const co_iterator *iterator)
{
    return iterator->dataset->num_inputs * sizeof(co_iterator *);
}

static co_code
zip_open(co_context *ctx, co_iterator *iterator)
{
    zip_iterator *self = (zip_iterator *)iterator;

    self->others = coi_small_alloc(&ctx->heap, others_size(iterator));
    if (self->others == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (zip)");
    memset(self->others, 0, others_size(iterator));
    for (size_t i = 1; i < iterator->dataset->num_inputs; ++i) {
        self->others[i] = coi_iterator_new(ctx, iterator->dataset->inputs[i], iterator->stats);
        if (self->others[i] == NULL)
            return ctx->error.code;
    }
    return CO_OK;
}

static size_t
leaves_before(const co_dataset *dataset, size_t input)
{
    size_t n = 0;

    for (size_t i = 0; i < input; ++i)
        n += dataset->inputs[i]->num_leaves;
    return n;
}

static void
zip_close(coi_heap *heap, co_iterator *iterator)
{
    zip_iterator *self = (zip_iterator *)iterator;

    if (self->held != NULL) {
        coi_leaves_release(heap, self->held, leaves_before(iterator->dataset, self->num_held));
        coi_small_free(heap, self->held, iterator->dataset->num_leaves * sizeof(*self->held));
    }
    if (self->others == NULL)
        return;
    for (size_t i = 1; i < iterator->dataset->num_inputs; ++i)
        coi_unref(heap, self->others[i]);
    coi_small_free(heap, self->others, others_size(iterator));
}

/* Before the first element; an error comes again until it is put right. */
static bool
checked(co_context *ctx, co_iterator *iterator)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;

    if (self->index == 0 && !coi_dataset_check(ctx, iterator->dataset))
        return false;
    self->index = 1;
    return true;
}

static bool
has_room(co_context *ctx, co_iterator *iterator)
{
    zip_iterator *self = (zip_iterator *)iterator;

    if (self->held == NULL)
        self->held = coi_small_alloc(&ctx->heap,
                                     iterator->dataset->num_leaves * sizeof(*self->held));
    return self->held != NULL;
}

/* What the first inputs gave is for the element that is made in place of the one that was broken
 * off. */
static void
hold(co_context *ctx, co_iterator *iterator, co_value **leaves, size_t num_inputs)
{
    zip_iterator *self = (zip_iterator *)iterator;
    size_t        filled = leaves_before(iterator->dataset, num_inputs);

    if (!has_room(ctx, iterator)) {
        coi_leaves_release(&ctx->heap, leaves, filled);
        coi_mark_not_checkpointable(ctx, iterator);
        return;
    }
    memcpy(self->held, leaves, filled * sizeof(*leaves));
    self->num_held = num_inputs;
}

/* The numbers of an enumeration have ended: so must the input. Said once; then the end. */
static int
out_of_numbers(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    zip_iterator *self = (zip_iterator *)iterator;
    int           got = coi_iterator_next(ctx, self->others[1], leaves);

    if (got != COI_ELEMENT)
        return got;
    coi_leaves_release(&ctx->heap, leaves, iterator->dataset->inputs[1]->num_leaves);
    self->base.ended = true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "%s: there is another element behind the largest number, %lld; begin with a smaller "
             "number",
             coi_stage_name(iterator->dataset), (long long)INT64_MAX - 1);
    return COI_ERROR;
}

/* The end of one is the end of all, for good. */
static int
zip_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    zip_iterator *self = (zip_iterator *)iterator;
    size_t        at = self->num_held, filled = leaves_before(iterator->dataset, at);
    int           got = COI_ELEMENT;

    if (self->base.ended)
        return COI_END;
    if (!checked(ctx, iterator))
        return COI_ERROR;
    if (at > 0)
        memcpy(leaves, self->held, filled * sizeof(*leaves));
    self->num_held = 0;
    for (; at < iterator->dataset->num_inputs; ++at) {
        got = coi_iterator_next(ctx, at == 0 ? iterator->input : self->others[at], leaves + filled);
        if (got != COI_ELEMENT)
            break;
        filled += iterator->dataset->inputs[at]->num_leaves;
    }
    if (got == COI_END && at == 0 && coi_args_of(iterator)->flag) {
        got = out_of_numbers(ctx, iterator, leaves);
        if (got < 0)
            return got;
    }
    if (got < 0 && at > 0 && coi_was_cancelled(ctx))
        hold(ctx, iterator, leaves, at);
    else if (got != COI_ELEMENT)
        coi_leaves_release(&ctx->heap, leaves, filled);
    self->base.ended = got == COI_END;
    return got;
}

static bool
held_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    const co_dataset *dataset = iterator->dataset;
    zip_iterator     *self = (zip_iterator *)iterator;
    int64_t           num_held = (int64_t)self->num_held;

    if (!coi_checkpoint_number(ctx, p, &num_held, 0, (int64_t)dataset->num_inputs - 1))
        return false;
    if (num_held > 0 && !has_room(ctx, iterator)) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (zip)");
        return false;
    }
    for (size_t i = 0; i < (size_t)num_held; ++i) {
        if (!coi_checkpoint_leaves(ctx, p, dataset->inputs[i],
                                   self->held + leaves_before(dataset, i)))
            return false;
        self->num_held += !p->saves;
    }
    return true;
}

static bool
zip_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    bool ok = coi_checkpoint_stage(ctx, iterator, p) && held_checkpoint(ctx, iterator, p);

    for (size_t i = 1; ok && i < iterator->dataset->num_inputs; ++i)
        ok = coi_checkpoint_iterator(ctx, p, ((zip_iterator *)iterator)->others[i]);
    return ok;
}

/* The shortest, if all are known; of an enumeration, the input's, whose numbers never end. */
static int64_t
zip_count(const co_dataset *dataset)
{
    int64_t least = CO_INFINITE;

    if (((const coi_stage *)dataset)->args.flag)
        return dataset->inputs[1]->cardinality;
    for (size_t i = 0; i < dataset->num_inputs; ++i) {
        int64_t n = dataset->inputs[i]->cardinality;

        if (n == CO_UNKNOWN_CARDINALITY)
            return n;
        if (n >= 0 && (least < 0 || n < least))
            least = n;
    }
    return least;
}

static const coi_dataset_ops zip_ops = {
    .name = "zip",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(zip_iterator),
    .next = zip_next,
    .keeps = true,
    .checkpoint = zip_checkpoint,
    .open = zip_open,
    .close = zip_close,
    .with_inputs = coi_stage_with_inputs,
    .count = zip_count,
    .tracks = COI_ALIGNED,
};

static co_value *
zip_spec(co_context *ctx, co_dataset *const *inputs, size_t n)
{
    co_value *spec = coi_structure_new(&ctx->heap, CO_KIND_TUPLE, n, NULL, NULL, NULL,
                                       coi_err(ctx));

    for (size_t i = 0; spec != NULL && i < n; ++i)
        spec->u.items.items[i] = coi_spec_of(inputs[i]);
    if (spec != NULL && coi_structure_seal(spec, coi_err(ctx)) != CO_OK) {
        coi_unref(&ctx->heap, spec);
        spec = NULL;
    }
    if (spec == NULL)
        coi_failed(ctx);
    return spec;
}

static co_dataset *
zip_new(co_context *ctx, co_dataset *const *inputs, size_t n, bool enumerates)
{
    coi_stage_args args = { .flag = enumerates };
    co_dataset *dataset = coi_stage_new(ctx, &zip_ops, inputs, n, zip_spec(ctx, inputs, n), &args);

    for (size_t i = 1; dataset != NULL && i < n; ++i)
        if (inputs[i]->batch_size != dataset->batch_size)
            dataset->batch_size = CO_UNKNOWN_BATCH_SIZE;
    return dataset;
}

co_dataset *
co_dataset_zip(co_context *ctx, co_dataset *const *inputs, size_t num_inputs)
{
    COI_ENTER(ctx, "dataset_zip", NULL);
    if (inputs == NULL || num_inputs == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 2 (inputs) holds no dataset; zip needs one or more");
        return NULL;
    }
    for (size_t i = 0; i < num_inputs; ++i)
        if (!coi_check_input(ctx, inputs[i], 2, "inputs"))
            return NULL;
    return coi_dataset_give(ctx, zip_new(ctx, inputs, num_inputs, false));
}

co_dataset *
co_dataset_enumerate(co_context *ctx, co_dataset *input, int64_t start)
{
    co_dataset *pair[2];

    COI_ENTER(ctx, "dataset_enumerate", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (input->cardinality > 0 && start > INT64_MAX - input->cardinality) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (start) is %lld; with %lld element%s it is at most %lld, so that the "
                 "last number is below 2^63 - 1",
                 (long long)start, (long long)input->cardinality, COI_S(input->cardinality),
                 (long long)(INT64_MAX - input->cardinality));
        return NULL;
    }
    /* Half of the numbers fit in a count; they outlast every input. */
    pair[0] = co_dataset_range(ctx, start, start > 0 ? INT64_MAX : start + INT64_MAX, 1);
    pair[1] = input;
    if (pair[0] == NULL)
        return NULL;
    ctx->call = "dataset_enumerate";
    return coi_dataset_give(ctx, zip_new(ctx, pair, 2, true));
}

/* --- concatenate --- */

/* The first input has ended. */
static bool
turn_to_second(co_context *ctx, co_iterator *iterator)
{
    co_iterator *second = coi_iterator_new(ctx, iterator->dataset->inputs[1], iterator->stats);

    if (second == NULL)
        return false;
    coi_unref(&ctx->heap, iterator->input);
    iterator->input = second;
    return true;
}

static bool
concatenate_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    return coi_checkpoint_stage(ctx, iterator, p) &&
           (p->saves || !((coi_stage_iterator *)iterator)->ended || turn_to_second(ctx, iterator));
}

static int
concatenate_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;
    int                 got;

    if (!checked(ctx, iterator))
        return COI_ERROR;
    got = coi_iterator_next(ctx, iterator->input, leaves);
    if (got != COI_END || self->ended)
        return got;
    if (!turn_to_second(ctx, iterator))
        return COI_ERROR;
    self->ended = true; /* the first is */
    return coi_iterator_next(ctx, iterator->input, leaves);
}

static int64_t
concatenate_count(const co_dataset *dataset)
{
    int64_t a = dataset->inputs[0]->cardinality, b = dataset->inputs[1]->cardinality, sum;

    if (a == CO_INFINITE || b == CO_INFINITE)
        return CO_INFINITE;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? CO_UNKNOWN_CARDINALITY : sum;
}

static co_dataset *
concatenate_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return coi_stage_remake(ctx, dataset, inputs,
                            coi_spec_join(ctx, inputs[0]->spec, inputs[1], CO_TYPE_ERROR,
                                          "the second"));
}

static const coi_dataset_ops concatenate_ops = {
    .name = "concatenate",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(coi_stage_iterator),
    .next = concatenate_next,
    .keeps = true,
    .checkpoint = concatenate_checkpoint,
    .with_inputs = concatenate_with_inputs,
    .count = concatenate_count,
    .tracks = COI_REMADE,
};

co_dataset *
co_dataset_concatenate(co_context *ctx, co_dataset *first, co_dataset *second)
{
    co_dataset    *inputs[2] = { first, second }, *dataset;
    coi_stage_args args = { .flag = false };

    COI_ENTER(ctx, "dataset_concatenate", NULL);
    if (!coi_check_input(ctx, first, 2, "first") || !coi_check_input(ctx, second, 3, "second"))
        return NULL;
    dataset = coi_stage_new(
        ctx, &concatenate_ops, inputs, 2,
        coi_spec_join(ctx, first->spec, second, CO_TYPE_ERROR, "the second dataset"), &args);
    if (dataset != NULL && first->batch_size != second->batch_size)
        dataset->batch_size = CO_UNKNOWN_BATCH_SIZE;
    return coi_dataset_give(ctx, dataset);
}

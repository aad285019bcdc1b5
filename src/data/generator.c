/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users bring into a pipeline beside functions over elements: a source (from_generator), a
 * part of a pipeline (apply), and what they know of its length (assert_cardinality).
 */
#include "data/iterator_checkpoint.h"

#include <stdio.h>

/* --- from_generator --- */

static int
generator_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_stage_args *args = coi_args_of(iterator);
    coi_stage_iterator   *self = (coi_stage_iterator *)iterator;
    coi_user_callback     callback;
    co_value             *made = NULL;
    bool                  ok = false;

    if (self->ended)
        return COI_END;
    if (coi_user_callback_begin(ctx, &callback)) {
        made = args->fn.generator(ctx, self->index++, args->user);
        self->ended = made == NULL && ctx->error.code == CO_OK;
        ok = !self->ended && coi_user_callback_result(ctx, iterator->dataset, made, leaves);
    }
    coi_user_callback_end(ctx, &callback, iterator);
    if (self->ended)
        return COI_END;
    return ok ? COI_ELEMENT : coi_user_callback_error(ctx, iterator);
}

static const coi_dataset_ops generator_ops = {
    .name = "from_generator",
    .costs = true,
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(coi_stage_iterator),
    .next = generator_next,
    .keeps = true,
    .checkpoint = coi_checkpoint_stage,
    .count = coi_count_unknown,
};

co_dataset *
co_dataset_from_generator(co_context *ctx, co_generator_fn fn, void *user, co_value *spec)
{
    coi_stage_args args = { .fn.generator = fn, .user = user };

    COI_ENTER(ctx, "dataset_from_generator", NULL);
    if (!coi_check_fn(ctx, fn != NULL, 2, "returns an element, or NULL at the end") ||
        !coi_check_spec(ctx, spec, 4))
        return NULL;
    coi_ref(spec);
    return coi_dataset_give(ctx, coi_stage_new(ctx, &generator_ops, NULL, 0, spec, &args));
}

/* --- apply --- */

co_dataset *
co_dataset_apply(co_context *ctx, co_dataset *input, co_apply_fn fn, void *user)
{
    co_dataset *dataset;
    size_t      floor;

    COI_ENTER(ctx, "dataset_apply", NULL);
    if (!coi_check_input(ctx, input, 2, "input") ||
        !coi_check_fn(ctx, fn != NULL, 3, "returns a dataset"))
        return NULL;
    floor = coi_function_begin(ctx);
    dataset = fn(ctx, input, user);
    coi_function_end(ctx, floor);
    ctx->call = "dataset_apply";
    return coi_check_inner(ctx, dataset) ? dataset : NULL;
}

/* --- assert_cardinality --- */

/* Said once; then the end. */
static int
wrong_count(co_context *ctx, co_iterator *iterator, const char *relation, int64_t seen)
{
    int64_t promised = coi_args_of(iterator)->numbers[0];
    char    number[48] = "an endless number was";

    ((coi_stage_iterator *)iterator)->ended = true;
    if (promised >= 0)
        snprintf(number, sizeof(number), "%lld were", (long long)promised);
    coi_fail(ctx, CO_FAILED_PRECONDITION,
             "%s: the input has %s %lld element%s, %s promised; promise what it has",
             coi_stage_name(iterator->dataset), relation, (long long)seen, COI_S(seen), number);
    return COI_ERROR;
}

static int
promised_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;
    int64_t             promised = coi_args_of(iterator)->numbers[0];
    int                 got;

    if (self->ended)
        return COI_END;
    got = coi_iterator_next(ctx, iterator->input, leaves);
    self->index += got > 0;
    if (got == COI_END && promised != CO_UNKNOWN_CARDINALITY && self->index != promised)
        return wrong_count(ctx, iterator, "only", self->index);
    if (got != COI_ELEMENT || promised < 0 || self->index <= promised)
        return got;
    coi_leaves_release(&ctx->heap, leaves, iterator->dataset->num_leaves);
    return wrong_count(ctx, iterator, "at least", self->index);
}

static int64_t
promised_count(const co_dataset *dataset)
{
    return ((const coi_stage *)dataset)->args.numbers[0];
}

static const coi_dataset_ops promised_ops = {
    .name = "assert_cardinality",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(coi_stage_iterator),
    .next = promised_next,
    .keeps = true,
    .promises = true,
    .checkpoint = coi_checkpoint_stage,
    .with_inputs = coi_stage_with_inputs,
    .count = promised_count,
    .tracks = COI_KEPT,
};

co_dataset *
co_dataset_assert_cardinality(co_context *ctx, co_dataset *input, int64_t cardinality)
{
    coi_stage_args args = { .numbers = { cardinality } };

    COI_ENTER(ctx, "dataset_assert_cardinality", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (cardinality < CO_UNKNOWN_CARDINALITY) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (cardinality) is %lld; it is 0 or more, CO_INFINITE or "
                 "CO_UNKNOWN_CARDINALITY",
                 (long long)cardinality);
        return NULL;
    }
    return coi_stage_like(ctx, &promised_ops, input, &args);
}

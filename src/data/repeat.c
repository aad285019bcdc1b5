/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeat, take and skip: how often the input is read, how far, and from where.
 */
#include "data/iterator_checkpoint.h"

typedef struct count_dataset { /* of all three */
    co_dataset base;
    int64_t    count; /* negative: forever, all, to the end */
} count_dataset;

typedef struct count_iterator {
    co_iterator base;
    int64_t     done;  /* repeat: rounds ended; take: elements given; skip: passed over */
    bool        given; /* repeat: this round gave something */
} count_iterator;

static int64_t
count_of(const co_iterator *iterator)
{
    return ((const count_dataset *)iterator->dataset)->count;
}

/* One element, or a stack of up to max if max is not 0. */
static int64_t
pull(co_context *ctx, co_iterator *input, int64_t max, co_value **leaves)
{
    return max > 0 ? coi_iterator_rows(ctx, input, max, leaves)
                   : coi_iterator_next(ctx, input, leaves);
}

COI_RARE static co_dataset *
count_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input, int64_t count,
          int64_t cardinality)
{
    co_dataset *dataset;

    coi_ref(input->spec);
    dataset = coi_dataset_new(ctx, ops, &input, 1, input->spec, cardinality);
    if (dataset == NULL)
        return NULL;
    dataset->batch_size = input->batch_size;
    ((count_dataset *)dataset)->count = count;
    coi_dataset_mark(dataset, count);
    return dataset;
}

COI_RARE static bool
count_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    count_iterator *self = (count_iterator *)iterator;

    return coi_checkpoint_number(ctx, p, &self->done, 0, COI_MOST_COUNTED) &&
           coi_checkpoint_flag(ctx, p, &self->given);
}

/* --- repeat --- */

/* After the end of a round: whether there is another one. A round without elements is the last, or
 * we would never return. */
static int
repeat_again(co_context *ctx, co_iterator *iterator)
{
    count_iterator *self = (count_iterator *)iterator;
    int64_t         count = count_of(iterator);

    if (count >= 0)
        ++self->done;
    if (!self->given || (count >= 0 && self->done >= count))
        return COI_END;
    self->given = false;
    return coi_iterator_restart_input(ctx, iterator) == CO_OK ? COI_ELEMENT : COI_ERROR;
}

static int64_t
repeat_pull(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    count_iterator *self = (count_iterator *)iterator;
    int64_t         count = count_of(iterator);

    if (count >= 0 && self->done >= count)
        return COI_END;
    for (;;) {
        int64_t got = pull(ctx, iterator->input, max, leaves);
        int     again;

        if (got != COI_END) {
            self->given = true;
            return got;
        }
        again = repeat_again(ctx, iterator);
        if (again != COI_ELEMENT)
            return again;
    }
}

static int
repeat_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    return (int)repeat_pull(ctx, iterator, 0, leaves);
}

static int64_t
repeat_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    return repeat_pull(ctx, iterator, max, leaves);
}

COI_RARE static int64_t
repeat_cardinality(int64_t n, int64_t count)
{
    int64_t product;

    if (n == 0 || count == 0)
        return 0;
    if (count < 0)
        return CO_INFINITE;
    if (n < 0)
        return n;
    return __builtin_mul_overflow(n, count, &product) ? CO_UNKNOWN_CARDINALITY : product;
}

static const coi_dataset_ops repeat_ops;

COI_RARE static co_dataset *
repeat_new(co_context *ctx, co_dataset *input, int64_t count)
{
    return count_new(ctx, &repeat_ops, input, count, repeat_cardinality(input->cardinality, count));
}

COI_RARE static co_dataset *
repeat_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return repeat_new(ctx, inputs[0], ((const count_dataset *)dataset)->count);
}

static const coi_dataset_ops repeat_ops = {
    .name = "repeat",
    .dataset_size = sizeof(count_dataset),
    .iterator_size = sizeof(count_iterator),
    .next = repeat_next,
    .rows = repeat_rows,
    .keeps = true,
    .checkpoint = count_checkpoint,
    .with_inputs = repeat_with_inputs,
    .tracks = COI_REMADE,
    .shows = " <0forever;~0#0;",
    .numbers = offsetof(count_dataset, count),
};

COI_RARE co_dataset *
co_dataset_repeat(co_context *ctx, co_dataset *input, int64_t count)
{
    COI_ENTER(ctx, "dataset_repeat", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    return coi_dataset_give(ctx, repeat_new(ctx, input, count));
}

/* --- take --- */

static int
take_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    count_iterator *self = (count_iterator *)iterator;
    int             got;

    if (count_of(iterator) >= 0 && self->done >= count_of(iterator))
        return COI_END;
    got = coi_iterator_next(ctx, iterator->input, leaves);
    self->done += got > 0;
    return got;
}

static int64_t
take_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    count_iterator *self = (count_iterator *)iterator;
    int64_t         rest = count_of(iterator) >= 0 ? count_of(iterator) - self->done : max;
    int64_t         got;

    if (rest <= 0)
        return COI_END;
    got = coi_iterator_rows(ctx, iterator->input, max < rest ? max : rest, leaves);
    self->done += got > 0 ? got : 0;
    return got;
}

COI_RARE static int64_t
take_cardinality(int64_t n, int64_t count)
{
    if (count < 0 || n == 0 || n == CO_UNKNOWN_CARDINALITY)
        return n;
    return n == CO_INFINITE || count < n ? count : n;
}

static const coi_dataset_ops take_ops;

COI_RARE co_dataset *
coi_take_new(co_context *ctx, co_dataset *input, int64_t count)
{
    return count_new(ctx, &take_ops, input, count, take_cardinality(input->cardinality, count));
}

COI_RARE static co_dataset *
take_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return coi_take_new(ctx, inputs[0], ((const count_dataset *)dataset)->count);
}

static const coi_dataset_ops take_ops = {
    .name = "take",
    .dataset_size = sizeof(count_dataset),
    .iterator_size = sizeof(count_iterator),
    .next = take_next,
    .rows = take_rows,
    .keeps = true,
    .checkpoint = count_checkpoint,
    .with_inputs = take_with_inputs,
    .tracks = COI_REMADE,
    .shows = " <0all;~0#0;",
    .numbers = offsetof(count_dataset, count),
};

COI_RARE co_dataset *
co_dataset_take(co_context *ctx, co_dataset *input, int64_t count)
{
    COI_ENTER(ctx, "dataset_take", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    return coi_dataset_give(ctx, coi_take_new(ctx, input, count));
}

/* --- skip --- */

/* Pass over what is to be skipped. An element that fails is one of them, unless nobody asked for
 * it: after a cancellation. */
static int
skip_begin(co_context *ctx, co_iterator *iterator)
{
    count_iterator *self = (count_iterator *)iterator;
    int64_t         count = count_of(iterator);

    while (self->done < count) {
        int64_t step = iterator->input->dataset->ops->skip != NULL ? count - self->done : 1;
        int64_t got = coi_iterator_skip(ctx, iterator->input, step);

        self->done += got >= 0 ? got : !coi_was_cancelled(ctx);
        if (got < step)
            return got < 0 ? COI_ERROR : COI_END;
    }
    return count < 0 ? COI_END : COI_ELEMENT;
}

static int
skip_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    int got = skip_begin(ctx, iterator);

    return got == COI_ELEMENT ? coi_iterator_next(ctx, iterator->input, leaves) : got;
}

static int64_t
skip_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    int got = skip_begin(ctx, iterator);

    return got == COI_ELEMENT ? coi_iterator_rows(ctx, iterator->input, max, leaves) : got;
}

COI_RARE static int64_t
skip_cardinality(int64_t n, int64_t count)
{
    if (n == CO_UNKNOWN_CARDINALITY)
        return n;
    if (count < 0)
        return 0;
    return n < 0 ? n : n > count ? n - count : 0;
}

static const coi_dataset_ops skip_ops;

COI_RARE static co_dataset *
skip_new(co_context *ctx, co_dataset *input, int64_t count)
{
    return count_new(ctx, &skip_ops, input, count, skip_cardinality(input->cardinality, count));
}

COI_RARE static co_dataset *
skip_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return skip_new(ctx, inputs[0], ((const count_dataset *)dataset)->count);
}

static const coi_dataset_ops skip_ops = {
    .name = "skip",
    .dataset_size = sizeof(count_dataset),
    .iterator_size = sizeof(count_iterator),
    .next = skip_next,
    .rows = skip_rows,
    .keeps = true,
    .checkpoint = count_checkpoint,
    .with_inputs = skip_with_inputs,
    .tracks = COI_REMADE,
    .shows = " <0all;~0#0;",
    .numbers = offsetof(count_dataset, count),
};

COI_RARE co_dataset *
co_dataset_skip(co_context *ctx, co_dataset *input, int64_t count)
{
    COI_ENTER(ctx, "dataset_skip", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    return coi_dataset_give(ctx, skip_new(ctx, input, count));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window: elements that are datasets themselves, of neighbouring elements of the input. A component
 * of such an element is a value that holds a dataset; its spec is a spec without a dtype that holds
 * an empty one. Stages that hand elements on need not know; those that look into tensors refuse it,
 * because no spec can be made from that one.
 *
 *     input    0 1 2 3 4 5 6           size 2, shift 3, stride 2
 *     windows  0 . 2 | 3 . 5 | 6
 */
#include "data/iterator_checkpoint.h"

enum {
    SIZE,
    SHIFT,
    STRIDE
}; /* numbers of the stage; flag: windows that are not full are dropped */

/* --- the dataset of one component of a window --- */

typedef struct column_dataset {
    co_dataset         base;
    coi_batch_assembly pieces; /* one leaf each */
} column_dataset;

typedef struct column_iterator {
    co_iterator base;
    int64_t     done;
} column_iterator;

static void
column_destroy(coi_heap *heap, co_dataset *dataset)
{
    coi_assembly_free(heap, &((column_dataset *)dataset)->pieces);
}

static int
column_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const column_dataset *column = (const column_dataset *)iterator->dataset;
    column_iterator      *self = (column_iterator *)iterator;

    (void)ctx;
    if ((size_t)self->done == column->pieces.count)
        return COI_END;
    leaves[0] = column->pieces.leaves[self->done++];
    coi_ref(leaves[0]);
    return COI_ELEMENT;
}

static bool
column_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    return coi_checkpoint_number(ctx, p, &((column_iterator *)iterator)->done, 0,
                                 iterator->dataset->cardinality);
}

static const coi_dataset_ops column_ops = {
    .name = "window",
    .dataset_size = sizeof(column_dataset),
    .iterator_size = sizeof(column_iterator),
    .next = column_next,
    .destroy = column_destroy,
    .checkpoint = column_checkpoint,
};

/* A value of `kind` with a dataset of the pieces, which are taken over, also when it fails. */
static co_value *
column_value(co_context *ctx, co_kind kind, co_value *spec, coi_batch_assembly *pieces)
{
    co_dataset *dataset;
    co_value   *value;

    coi_ref(spec);
    dataset = coi_dataset_new(ctx, &column_ops, NULL, 0, spec, (int64_t)pieces->count);
    if (dataset == NULL) {
        coi_assembly_free(&ctx->heap, pieces);
        return NULL;
    }
    ((column_dataset *)dataset)->pieces = *pieces;
    value = coi_value_new(&ctx->heap, kind);
    if (value != NULL) {
        value->u.object = dataset;
        return value;
    }
    coi_unref(&ctx->heap, dataset);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a window");
    return NULL;
}

bool
coi_checkpoint_window(co_context *ctx, coi_iterator_checkpoint *p, const co_value *spec,
                      co_value **leaf)
{
    const co_dataset  *like = spec->u.object;
    coi_batch_assembly pieces = { .num_leaves = 1 };

    if (p->saves && ((const co_dataset *)(*leaf)->u.object)->ops != &column_ops) {
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "the checkpoint of an iterator cannot hold a dataset that a function returned as "
                 "an element; windows can be saved");
        return false;
    }
    if (p->saves)
        return coi_checkpoint_assembly(ctx, p, like, INT64_MAX,
                                       &((column_dataset *)(*leaf)->u.object)->pieces);
    *leaf = NULL;
    if (coi_checkpoint_assembly(ctx, p, like, INT64_MAX, &pieces))
        *leaf = column_value(ctx, CO_KIND_DATASET, like->spec, &pieces);
    else
        coi_assembly_free(&ctx->heap, &pieces);
    return *leaf != NULL;
}

/* --- the stage --- */

typedef struct window_iterator {
    coi_stage_iterator base;   /* ended: the input is */
    coi_batch_assembly buffer; /* what the next window may need */
} window_iterator;

static co_code
window_open(co_context *ctx, co_iterator *iterator)
{
    (void)ctx;
    ((window_iterator *)iterator)->buffer.num_leaves = iterator->dataset->num_leaves;
    return CO_OK;
}

static void
window_close(coi_heap *heap, co_iterator *iterator)
{
    coi_assembly_free(heap, &((window_iterator *)iterator)->buffer);
}

/* Elements of the input from the first to the last of a window. */
static int64_t
reach(const coi_stage_args *args)
{
    return (args->numbers[SIZE] - 1) * args->numbers[STRIDE] + 1;
}

/* Component `leaf` of the window that the buffer begins with. */
static co_value *
cut(co_context *ctx, const co_iterator *iterator, size_t leaf)
{
    const coi_batch_assembly *buffer = &((const window_iterator *)iterator)->buffer;
    size_t                    stride = (size_t)coi_args_of(iterator)->numbers[STRIDE];
    coi_batch_assembly        pieces = { .num_leaves = 1 };

    for (size_t at = 0; at < buffer->count; at += stride) {
        co_value **room = coi_assembly_room(ctx, &pieces);

        if (room == NULL) {
            coi_assembly_free(&ctx->heap, &pieces);
            return NULL;
        }
        *room = buffer->leaves[at * buffer->num_leaves + leaf];
        coi_ref(*room);
        ++pieces.count;
    }
    return column_value(ctx, CO_KIND_DATASET, iterator->dataset->inputs[0]->specs[leaf], &pieces);
}

/* Move on to the next window. What lies between two windows is passed over when the next is
 * wanted. */
static void
shift(co_context *ctx, co_iterator *iterator)
{
    window_iterator *self = (window_iterator *)iterator;
    size_t           n = self->buffer.num_leaves, count = self->buffer.count;
    int64_t          by = coi_args_of(iterator)->numbers[SHIFT];
    size_t           gone = by < (int64_t)count ? (size_t)by : count;

    coi_leaves_release(&ctx->heap, self->buffer.leaves, gone * n);
    for (size_t i = gone * n; i < count * n; ++i)
        self->buffer.leaves[i - gone * n] = self->buffer.leaves[i];
    self->buffer.count = count - gone;
    self->base.index = by - (int64_t)gone; /* to be passed over */
}

static int
fill(co_context *ctx, co_iterator *iterator)
{
    window_iterator *self = (window_iterator *)iterator;
    int64_t          want = reach(coi_args_of(iterator)), missing, got = 1;

    while (self->base.index > 0 && !self->base.ended) { /* an element that fails is one of them */
        int64_t step = iterator->input->dataset->ops->skip != NULL ? self->base.index : 1;

        got = coi_iterator_skip(ctx, iterator->input, step);
        self->base.index -= got >= 0 ? got : !coi_was_cancelled(ctx);
        if (got < 0)
            return COI_ERROR;
        self->base.ended = got < step;
    }
    missing = self->base.ended ? 0 : want - (int64_t)self->buffer.count;
    if (missing > 0)
        got = coi_assembly_collect(ctx, &self->buffer, iterator->input, false, missing);
    if (got < 0)
        return COI_ERROR;
    self->base.ended = self->base.ended || (missing > 0 && got < missing);
    return self->buffer.count == 0 ||
                   (coi_args_of(iterator)->flag && (int64_t)self->buffer.count < want)
               ? COI_END
               : COI_ELEMENT;
}

static int
window_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    int got = fill(ctx, iterator);

    for (size_t i = 0; got == COI_ELEMENT && i < iterator->dataset->num_leaves; ++i) {
        leaves[i] = cut(ctx, iterator, i);
        if (leaves[i] != NULL)
            continue;
        coi_leaves_release(&ctx->heap, leaves, i);
        return COI_ERROR;
    }
    if (got == COI_ELEMENT)
        shift(ctx, iterator);
    return got;
}

static bool
window_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    return coi_checkpoint_stage(ctx, iterator, p) &&
           coi_checkpoint_assembly(ctx, p, iterator->dataset->inputs[0],
                                   reach(coi_args_of(iterator)),
                                   &((window_iterator *)iterator)->buffer);
}

static int64_t
window_count(const co_dataset *dataset)
{
    const coi_stage_args *args = &((const coi_stage *)dataset)->args;
    int64_t               n = dataset->inputs[0]->cardinality, by = args->numbers[SHIFT];

    if (n < 0)
        return n;
    if (!args->flag)
        return n / by + (n % by != 0);
    return n < reach(args) ? 0 : (n - reach(args)) / by + 1;
}

static const coi_dataset_ops window_ops = {
    .name = "window",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(window_iterator),
    .next = window_next,
    .open = window_open,
    .close = window_close,
    .with_inputs = coi_stage_with_inputs,
    .count = window_count,
    .keeps = true,
    .checkpoint = window_checkpoint,
    .shows = " of #0?5, remainder dropped;, shift #1, stride #2",
    .numbers = COI_STAGE_NUMBERS,
};

/* --- the public calls --- */

static co_value *
window_spec(co_context *ctx, const co_value *spec, const void *arg)
{
    coi_batch_assembly none = { .num_leaves = 1 };

    (void)arg;
    return column_value(ctx, CO_KIND_SPEC, (co_value *)(uintptr_t)spec, &none);
}

co_dataset *
co_dataset_window(co_context *ctx, co_dataset *input, int64_t size,
                  const co_window_options *options)
{
    static const char *const names[] = { "size", "shift", "stride" };
    co_window_options        all = CO_WINDOW_OPTIONS_INIT;
    coi_stage_args           args = { .numbers = { size } };
    co_dataset              *dataset;

    COI_ENTER(ctx, "dataset_window", NULL);
    if (!coi_check_input(ctx, input, 2, "input") ||
        !coi_take_options(ctx, &all, sizeof(all), options, 4))
        return NULL;
    args.numbers[SHIFT] = all.shift == 0 ? size : all.shift;
    args.numbers[STRIDE] = all.stride;
    args.flag = all.drop_remainder;
    for (int i = SIZE; i <= STRIDE; ++i)
        if (args.numbers[i] < 1 || args.numbers[i] > INT32_MAX) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (%s) is %lld; it must be 1 to 2^31 - 1",
                     i == SIZE ? 3 : 4, names[i], (long long)args.numbers[i]);
            return NULL;
        }
    dataset = coi_stage_new(ctx, &window_ops, &input, 1,
                            coi_spec_map(ctx, input->spec, window_spec, NULL), &args);
    if (dataset != NULL)
        dataset->batch_size = CO_UNKNOWN_BATCH_SIZE;
    return coi_dataset_give(ctx, dataset);
}

co_dataset *
co_value_dataset(co_context *ctx, co_value *value)
{
    COI_ENTER(ctx, "value_dataset", NULL);
    if (!coi_check_value(ctx, value, 2, "value"))
        return NULL;
    if (value->kind == CO_KIND_DATASET || coi_is_dataset_spec(value))
        return coi_own_ref(ctx, value->u.object);
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (value) is %s; it must be a dataset, as elements of co_dataset_window and "
             "results of co_dataset_value are",
             coi_a_kind(value->kind));
    return NULL;
}

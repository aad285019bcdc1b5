/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which replica gets an example: the pipeline is built again with the indices of examples instead
 * of data and without functions, distributed like the dataset, and read until the index appears. So
 * the stages that make the elements also give the answer. What a kind does with examples is in its
 * table.
 */
#include "data/dataset.h"

#include <string.h>

/* What a walk through a few stages may cost: so many rows of a stack, about a second and half a
 * gigabyte at most. */
#define BUDGET     ((int64_t)1 << 26)
#define FEW_STAGES 2
#define ONE_COST                                                                                   \
    16 /* an element that is made by itself, and may be kept in a shuffle buffer or for a batch */
#define PIECE_COST 4
#define OPEN_COST  64                 /* a round of a repeat opens all stages anew */
#define MOST_ROWS  ((int64_t)1 << 24) /* of a stack */

typedef struct tracing {
    int64_t num_examples; /* of the sources so far */
    int64_t budget, left; /* what the walk may cost, and what of that is left */
    int64_t step;         /* that is looked at */
    int64_t batch_size;   /* of the pipeline; CO_UNKNOWN_BATCH_SIZE */
} tracing;

/* Why there is no answer. NULL. */
static co_dataset *
lost(co_context *ctx, const co_dataset *dataset, const char *why)
{
    coi_fail(ctx, CO_FAILED_PRECONDITION, "who gets an example cannot be told: %s %s",
             coi_stage_name(dataset), why);
    return NULL;
}

/* Of what is to be cut: whether it has rows that are examples. */
static bool
has_rows(co_context *ctx, const co_dataset *dataset, const co_dataset *input, const char *why)
{
    return input->specs[0]->ndim > 0 || lost(ctx, dataset, why) != NULL;
}

/* --- numbers of examples: a range that costs --- */

typedef struct numbers_dataset {
    co_dataset base;
    tracing   *walk; /* borrowed: it lives no longer than the walk */
} numbers_dataset;

static bool
spend(co_context *ctx, tracing *t, int64_t cost)
{
    char repair[120] = "ask for an earlier one";

    t->left -= cost;
    if (t->left >= 0)
        return true;
    if (t->step == 0 && t->batch_size > 0)
        coi_text_line(repair, sizeof(repair),
                      "ask with batches of fewer than %lld, or smaller shuffle buffers",
                      (long long)t->batch_size);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED,
             "the example does not come, or comes too late: this pipeline is followed for %lld "
             "examples one by one, %lld in large batches, and no further than step %lld; %s",
             (long long)(t->budget / (ONE_COST + PIECE_COST)), (long long)t->budget,
             (long long)t->step, repair);
    return false;
}

static tracing *
walk_of(const co_iterator *iterator)
{
    return ((const numbers_dataset *)iterator->dataset)->walk;
}

static co_code
numbers_open(co_context *ctx, co_iterator *iterator)
{
    return spend(ctx, walk_of(iterator), OPEN_COST) ? CO_OK : ctx->error.code;
}

static int
numbers_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    if (!spend(ctx, walk_of(iterator), ONE_COST))
        return COI_ERROR;
    return coi_iterator_next(ctx, iterator->input, leaves);
}

static int64_t
numbers_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    int64_t n = iterator->dataset->cardinality < max ? iterator->dataset->cardinality : max;

    if (n > MOST_ROWS) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED,
                 "who gets an example is not looked for in batches of %lld; they are followed up "
                 "to %lld: ask with smaller ones",
                 (long long)n, (long long)MOST_ROWS);
        return COI_ERROR;
    }
    if (!spend(ctx, walk_of(iterator), n > ONE_COST ? n : ONE_COST))
        return COI_ERROR;
    return coi_iterator_rows(ctx, iterator->input, max, leaves);
}

static int64_t
numbers_skip(co_context *ctx, co_iterator *iterator, int64_t n)
{
    return coi_iterator_skip(ctx, iterator->input, n);
}

static const coi_dataset_ops numbers_ops = {
    .name = "examples",
    .dataset_size = sizeof(numbers_dataset),
    .iterator_size = sizeof(co_iterator),
    .next = numbers_next,
    .open = numbers_open,
    .rows = numbers_rows,
    .skip = numbers_skip,
};

/* n more examples, as a new reference. */
static co_dataset *
numbers_new(co_context *ctx, tracing *t, const co_dataset *dataset)
{
    int64_t     first = t->num_examples;
    co_dataset *range, *made;

    if (dataset->cardinality < 0)
        return lost(ctx, dataset,
                    "does not say how many examples it has; say it by "
                    "co_dataset_assert_cardinality before the batch");
    if (__builtin_add_overflow(first, dataset->cardinality, &t->num_examples))
        return lost(ctx, dataset, "has more examples than can be counted");
    range = coi_range_new(ctx, first, 1, dataset->cardinality);
    if (range == NULL)
        return NULL;
    made = coi_dataset_new(ctx, &numbers_ops, &range, 1, coi_spec_of(range), range->cardinality);
    coi_unref(&ctx->heap, range);
    if (made != NULL)
        ((numbers_dataset *)made)->walk = t;
    return made;
}

/* --- the pipeline over numbers --- */

static co_dataset *trace(co_context *ctx, tracing *t, co_dataset *dataset);

/* What a stage makes of the numbers that its inputs give. */
static co_dataset *
trace_stage(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    const coi_stage_args *args = &((const coi_stage *)dataset)->args;

    switch ((coi_tracks)dataset->ops->tracks) {
    case COI_REMADE_ROWS:
        if (!has_rows(ctx, dataset, inputs[0],
                      "cuts examples themselves: nothing batches them before it; call "
                      "co_dataset_batch there"))
            return NULL;
        return dataset->ops->with_inputs(ctx, dataset, inputs);
    case COI_REMADE_ONCE:
        if (args->flag != 0)
            return lost(ctx, dataset, "has another order in each pass; let it not reshuffle");
        return dataset->ops->with_inputs(ctx, dataset, inputs);
    case COI_REMADE: return dataset->ops->with_inputs(ctx, dataset, inputs);
    case COI_BATCHED: return coi_batch_new(ctx, inputs[0], args->numbers[0], args->flag);
    case COI_ALIGNED:
        if (dataset->cardinality == CO_UNKNOWN_CARDINALITY)
            return lost(ctx, dataset, "has an input whose length is not known");
        return coi_take_new(ctx, inputs[0], dataset->cardinality);
    case COI_KEPT_BY_FLAG:
        if (args->flag == 0)
            return lost(ctx, dataset, "gives elements as they are ready");
        break;
    default: break;
    }
    coi_ref(inputs[0]);
    return inputs[0];
}

static co_dataset *
trace_inputs(co_context *ctx, tracing *t, co_dataset *dataset)
{
    bool        one = dataset->ops->tracks == COI_ALIGNED;
    size_t      first = one && ((const coi_stage *)dataset)->args.flag;
    size_t      n = one ? 1 : dataset->num_inputs, made = 0;
    co_dataset *inputs[2], *result = NULL; /* two: of a concatenate */

    for (; made < n; ++made) {
        inputs[made] = trace(ctx, t, dataset->inputs[first + made]);
        if (inputs[made] == NULL)
            break;
    }
    if (made == n)
        result = trace_stage(ctx, dataset, inputs);
    while (made > 0)
        coi_unref(&ctx->heap, inputs[--made]);
    return result;
}

/* A new reference; NULL with an error. Depth is limited where datasets are made. */
static co_dataset *
trace(co_context *ctx, tracing *t, co_dataset *dataset)
{
    /* Examples are counted where their number is first known. */
    if (dataset->num_inputs == 0 ||
        (dataset->num_inputs == 1 && dataset->cardinality >= 0 &&
         dataset->inputs[0]->cardinality == CO_UNKNOWN_CARDINALITY &&
         dataset->batch_size == CO_UNKNOWN_BATCH_SIZE && !coi_has_hint(dataset)))
        return numbers_new(ctx, t, dataset);
    if (dataset->ops->tracks == COI_LOST)
        return lost(ctx, dataset, "gives what can only be known by reading");
    return trace_inputs(ctx, t, dataset);
}

/* --- looking --- */

typedef struct search {
    const coi_layout *layout;
    int64_t           example;
    size_t            occurrence;
    size_t            num_streams; /* that are read */
    int               each;        /* pieces of one in a step */
    co_iterator     **streams;
    tracing          *walk;
} search;

/* Whether the occurrence that is looked for is in the piece, and its row. */
static bool
is_in(search *s, const co_value *piece, int64_t *row)
{
    const int64_t *numbers = coi_data_on_host(piece);
    int64_t        n = piece->u.tensor.num_elements;

    for (int64_t i = 0; i < n; ++i)
        if (numbers[i] == s->example && s->occurrence-- == 0) {
            *row = piece->ndim > 0 ? i / (n / piece->u.tensor.dims[0]) : 0;
            return true;
        }
    return false;
}

/* One step of one stream. COI_ELEMENT: it is here; *any: there was something. */
static int
look_in_stream(co_context *ctx, search *s, size_t stream, bool *any, co_example_place *place)
{
    co_input_context input = s->layout->input;

    input.input_pipeline_id = (int)stream;
    for (int j = 0; j < s->each; ++j) {
        co_value *piece;
        int       got = coi_iterator_next(ctx, s->streams[stream], &piece);
        bool      found;

        if (got <= 0)
            return got;
        *any = true;
        found = is_in(s, piece, &place->row);
        coi_unref(&ctx->heap, piece);
        if (!spend(ctx, s->walk, PIECE_COST))
            return COI_ERROR;
        if (!found)
            continue;
        place->replica = coi_reader_of(s->layout->origin, &input, j);
        place->worker = place->replica / (input.num_replicas_in_sync / input.num_input_pipelines);
        return COI_ELEMENT;
    }
    return COI_END;
}

/* Step by step, as all replicas go. */
static bool
look(co_context *ctx, search *s, co_example_place *place)
{
    bool any = true;

    for (place->step = 0; any; ++place->step) {
        any = false;
        s->walk->step = place->step;
        for (size_t i = 0; i < s->num_streams; ++i) {
            int got = look_in_stream(ctx, s, i, &any, place);

            if (got != COI_END)
                return got == COI_ELEMENT;
        }
    }
    return false;
}

static bool
open_streams(co_context *ctx, search *s, co_dataset *numbers)
{
    const coi_layout *layout = s->layout;

    for (size_t i = 0; i < s->num_streams; ++i) {
        co_input_context input = layout->input;
        co_dataset      *stream;

        input.input_pipeline_id = (int)i;
        stream = coi_traced_stream(ctx, layout->origin, numbers, &input, layout->weights);
        if (stream == NULL)
            return false;
        s->streams[i] = coi_iterator_new(ctx, stream, NULL);
        coi_unref(&ctx->heap, stream);
        if (s->streams[i] == NULL)
            return false;
    }
    return true;
}

static bool
search_streams(co_context *ctx, search *s, co_dataset *numbers, co_example_place *place)
{
    size_t nbytes = s->num_streams * sizeof(*s->streams);
    bool   found;

    s->streams = coi_small_alloc(&ctx->heap, nbytes);
    if (s->streams == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to follow the input of %zu workers",
                 s->num_streams);
        return false;
    }
    memset(s->streams, 0, nbytes);
    found = open_streams(ctx, s, numbers) && look(ctx, s, place);
    for (size_t i = 0; i < s->num_streams; ++i)
        coi_unref(&ctx->heap, s->streams[i]);
    coi_small_free(&ctx->heap, s->streams, nbytes);
    return found;
}

/* --- the public call --- */

/* Questions that are rejected before the pipeline is simulated. */
static bool
check_question(co_context *ctx, const coi_layout *layout, const co_dataset *numbers)
{
    const co_input_context *input = &layout->input;

    if (input->num_replicas_in_sync > 1 &&
        !has_rows(ctx, layout->origin, numbers,
                  "gives examples one by one, and each would be cut for the replicas; call "
                  "co_dataset_batch first"))
        return false;
    if (input->num_input_pipelines > 1 && coi_decide(layout->origin) == CO_AUTOSHARD_FILE) {
        lost(ctx, layout->origin,
             "is shared out by whole files, and which examples a file holds is known "
             "only by reading it");
        return false;
    }
    return true;
}

static bool
find(co_context *ctx, const coi_layout *layout, int64_t example, size_t occurrence,
     co_example_place *place)
{
    tracing     t = { .batch_size = layout->origin->batch_size };
    int         num = layout->input.num_input_pipelines, n = layout->input.num_replicas_in_sync;
    bool        one = coi_shares_slices(layout->origin);
    search      s = { .layout = layout,
                      .example = example,
                      .occurrence = occurrence,
                      .num_streams = one ? 1 : (size_t)num,
                      .each = one ? n : n / num,
                      .walk = &t };
    co_dataset *numbers = trace(ctx, &t, layout->origin);
    bool        found = false;

    if (numbers == NULL)
        return false;
    /* Every stage has its work with them; the numbers themselves are none. */
    t.budget = t.left = BUDGET / (1 + (numbers->depth - 1) / FEW_STAGES);
    if (example < 0 || example >= t.num_examples)
        coi_fail(ctx, CO_OUT_OF_RANGE,
                 "argument 4 (example) is %lld; there %s %lld example%s, counted from 0",
                 (long long)example, t.num_examples == 1 ? "is" : "are", (long long)t.num_examples,
                 COI_S(t.num_examples));
    else if ((t.left -= one ? n : (int64_t)num * n) < 0)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED,
                 "the input of %d replica%s in %d pipeline%s cannot be followed; ask with fewer", n,
                 COI_S(n), num, COI_S(num));
    else if (check_question(ctx, layout, numbers))
        found = search_streams(ctx, &s, numbers, place);
    coi_unref(&ctx->heap, numbers);
    return found;
}

bool
co_dataset_explain_example(co_context *ctx, const co_dataset *dataset,
                           const co_input_context *input, int64_t example, size_t occurrence,
                           co_example_place *place)
{
    co_example_place all = CO_EXAMPLE_PLACE_INIT;
    coi_layout       layout;

    COI_ENTER(ctx, "dataset_explain_example", false);
    if (!coi_check_layout(ctx, dataset, input, &layout) ||
        !coi_check_record(ctx, place, 6, "place", "CO_EXAMPLE_PLACE_INIT"))
        return false;
    if (layout.origin == NULL) {
        lost(ctx, dataset, "has datasets that a function made, one for each worker");
        return false;
    }
    if (!find(ctx, &layout, example, occurrence, &all))
        return false;
    coi_fill_record(place, &all, sizeof(all));
    return true;
}

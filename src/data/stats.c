/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stages of an iterator have done so far: a table with a row for each dataset of the
 * pipeline, which all iterators that are opened for it share, those of every round of a repeat too.
 * Datasets that functions make are not in it.
 */
#include "data/dataset.h"
#include "ops/engine/call_recording.h"

#include "base/text.h"

#include <string.h>

#define MOST_STAGES 64 /* what is further from the end is not counted */

static size_t
stats_size(size_t n)
{
    return sizeof(coi_stats) + n * sizeof(coi_counts);
}

static void
destroy_stats(coi_heap *heap, void *object)
{
    coi_object_free(heap, object, stats_size(((coi_stats *)object)->n));
}

static const coi_class stats_class = { "statistics", destroy_stats, NULL };

coi_counts *
coi_stats_find(coi_stats *stats, const co_dataset *dataset)
{
    for (size_t i = 0; stats != NULL && i < stats->n; ++i)
        if (stats->stages[i].dataset == dataset)
            return &stats->stages[i];
    return NULL;
}

typedef struct stage_list {
    struct {
        const co_dataset *dataset;
        int               depth;
    } items[MOST_STAGES];
    size_t n;
} stage_list;

/* The stages from the end on, each once. */
static void
list_stages(stage_list *list, const co_dataset *dataset, int depth)
{
    while (dataset->ops->transparent)
        dataset = dataset->inputs[0];
    for (size_t i = 0; i < list->n; ++i)
        if (list->items[i].dataset == dataset)
            return;
    if (list->n == MOST_STAGES)
        return;
    list->items[list->n].dataset = dataset;
    list->items[list->n++].depth = depth;
    for (size_t i = 0; i < dataset->num_inputs; ++i)
        list_stages(list, dataset->inputs[i], depth + 1);
}

coi_stats *
coi_stats_new(co_context *ctx, const co_dataset *dataset)
{
    stage_list list = { .n = 0 };
    coi_stats *stats;

    list_stages(&list, dataset, 0);
    stats = coi_object_new(&ctx->heap, &stats_class, stats_size(list.n));
    if (stats == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the statistics of %zu stages", list.n);
        return NULL;
    }
    stats->n = list.n;
    for (size_t i = 0; i < list.n; ++i) {
        stats->stages[i].dataset = list.items[i].dataset;
        stats->stages[i].depth = list.items[i].depth;
    }
    return stats;
}

int64_t
coi_leaf_bytes(const co_value *leaf)
{
    coi_values      parts = coi_replicas_of(leaf, NULL);
    const coi_text *texts;
    coi_text        alone;
    int64_t         sum = 0, n;

    for (size_t i = 0; i < parts.n; ++i)
        sum += coi_leaf_bytes(parts.items[i]);
    if (leaf->kind != CO_KIND_TENSOR)
        return sum;
    if ((texts = coi_texts_of(leaf, &alone, &n)) == NULL)
        return (int64_t)coi_tensor_nbytes(leaf);
    for (int64_t i = 0; i < n; ++i)
        sum += (int64_t)texts[i].nbytes;
    return sum;
}

void
coi_count_time(coi_counts *counts, bool waited, uint64_t began_ns)
{
    if (counts != NULL) /* several threads of one stage may be here */
        atomic_fetch_add_explicit(waited ? &counts->waiting_ns : &counts->working_ns,
                                  (long long)(coi_now_ns() - began_ns), memory_order_relaxed);
}

/* --- the public calls --- */

bool
coi_check_room(co_context *ctx, const char *out, size_t capacity, int position)
{
    if (out == NULL && capacity > 0)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument %d (out) is NULL; give room for %zu bytes, or say 0", position,
                 capacity);
    return out != NULL || capacity == 0;
}

bool
coi_check_record(co_context *ctx, const void *record, int position, const char *name,
                 const char *init)
{
    if (record != NULL && *(const size_t *)record >= sizeof(size_t))
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (%s) is %s; begin with %s", position, name,
             record == NULL ? "NULL" : "without its struct_size", init);
    return false;
}

void
coi_fill_record(void *record, const void *all, size_t size)
{
    size_t known = *(size_t *)record < size ? *(size_t *)record : size;

    memcpy(record, all, known);
    *(size_t *)record = known;
}

static void
look(const co_iterator *iterator, size_t i, co_stage_stats *out)
{
    const coi_counts *counts = &iterator->stats->stages[i];

    *out = (co_stage_stats){ .struct_size = sizeof(*out),
                             .name = coi_stage_name(counts->dataset),
                             .depth = counts->depth,
                             .elements = atomic_load(&counts->elements),
                             .bytes = atomic_load(&counts->bytes),
                             .working_ns = atomic_load(&counts->working_ns),
                             .waiting_ns = atomic_load(&counts->waiting_ns),
                             .dropped_rows = i == 0 ? iterator->dropped_rows : 0 };
}

bool
co_iterator_stats(co_context *ctx, const co_iterator *iterator, size_t stage, co_stage_stats *stats)
{
    co_stage_stats all;

    COI_ENTER(ctx, "iterator_stats", false);
    if (!coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator") ||
        !coi_check_record(ctx, stats, 4, "stats", "CO_STAGE_STATS_INIT") ||
        !coi_check_host_state(ctx, "the counts of a stage"))
        return false;
    if (stage >= iterator->stats->n)
        return false;
    look(iterator, stage, &all);
    coi_fill_record(stats, &all, sizeof(all));
    return true;
}

size_t
co_iterator_stats_format(co_context *ctx, const co_iterator *iterator, char *out, size_t capacity)
{
    coi_prose text = { out, capacity, 0 };

    COI_ENTER(ctx, "iterator_stats_format", 0);
    if (!coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator") ||
        !coi_check_room(ctx, out, capacity, 3))
        return 0;
    coi_put(&text,
            "stage                        elements         bytes   working ms   waiting ms\n");
    for (size_t i = 0; i < iterator->stats->n; ++i) {
        co_stage_stats s;
        int            indent;

        look(iterator, i, &s);
        indent = s.depth < 10 ? 2 * s.depth : 20;
        coi_put(&text, "%*s%-*.*s %12lld %13lld %12.3f %12.3f\n", indent, "", 24 - indent,
                24 - indent, s.name, (long long)s.elements, (long long)s.bytes,
                (double)s.working_ns / 1e6, (double)s.waiting_ns / 1e6);
    }
    if (iterator->dropped_rows > 0)
        coi_put(&text, "%lld row%s %s dropped\n", (long long)iterator->dropped_rows,
                COI_S(iterator->dropped_rows), iterator->dropped_rows == 1 ? "was" : "were");
    return text.at;
}

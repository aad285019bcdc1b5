/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline, and what distribution adds to it, as text for people. Nothing is read and no function
 * is called. Which replica gets an example is in trace.c; the decisions and their reasons are in
 * autoshard.c.
 */
#include "data/dataset.h"

#include <string.h>

#define MOST_LINES  1000 /* stages shown */
#define MOST_INDENT 40   /* columns; deeper stages stand below each other */
#define LINE        600

typedef struct explanation {
    coi_prose out;
    int       lines;
    int64_t   left_out; /* stages that are not shown */
} explanation;

/* One line, whatever the names of files hold. */
static void
put_line(explanation *e, int depth, const char *text)
{
    char line[LINE];
    int  indent = 2 * depth < MOST_INDENT ? 2 * depth : MOST_INDENT;

    coi_text_line(line, sizeof(line), "%*s%s", indent, "", text);
    coi_put(&e->out, "%s\n", line);
}

/* See `shows` in the table of a kind. */
static void
put_numbers(coi_prose *out, const co_dataset *dataset)
{
    const int64_t *numbers = (const void *)((const char *)dataset + dataset->ops->numbers);

    for (const char *at = dataset->ops->shows; at != NULL && *at != '\0'; ++at) {
        char    kind = *at;
        int64_t number;

        if (strchr("#?!><~", kind) == NULL) {
            if (kind != ';')
                coi_put(out, "%c", kind);
            continue;
        }
        number = numbers[*++at - '0'];
        if (kind == '#')
            coi_put(out, "%lld", (long long)number);
        else if (kind == '!'   ? number != 0
                 : kind == '<' ? number >= 0
                 : kind == '~' ? number < 0
                               : number <= (kind == '>'))
            at = strchr(at, ';');
    }
}

/* Not inlined: what calls it recurses, and should keep no room for lines. */
static __attribute__((noinline)) void
put_stage(explanation *e, const co_dataset *dataset, int depth)
{
    char      text[LINE];
    coi_prose out = { text, sizeof(text), 0 };
    int64_t   n = dataset->cardinality;

    coi_put(&out, "%s", coi_stage_name(dataset));
    put_numbers(&out, dataset);
    if (dataset->ops->show != NULL)
        dataset->ops->show(dataset, &out);
    if (dataset->ops->transparent && dataset->autoshard != dataset->inputs[0]->autoshard)
        coi_put(&out, ": policy %s", coi_policy_name(dataset->autoshard));
    if (dataset->num_inputs > 1)
        coi_put(&out, " of %zu", dataset->num_inputs);
    coi_put(&out, " -> ");
    if (n >= 0)
        coi_put(&out, "%lld element%s", (long long)n, n == 1 ? "" : "s");
    else
        coi_put(&out, n == CO_INFINITE ? "endless" : "length not known");
    coi_put(&out, dataset->is_added ? " (added by distribution)" : "");
    coi_put_end(&out);
    put_line(e, depth, text);
}

/* Depth is limited where datasets are made, so this may recurse; width is limited here. */
static void
put_tree(explanation *e, const co_dataset *dataset, int depth)
{
    if (e->lines == MOST_LINES) {
        e->left_out += dataset->steps;
        return;
    }
    ++e->lines;
    put_stage(e, dataset, depth);
    for (size_t i = 0; i < dataset->num_inputs; ++i)
        put_tree(e, dataset->inputs[i], depth + 1);
}

/* What was decided. */
static void
put_layout(explanation *e, const coi_layout *layout)
{
    const co_input_context *input = &layout->input;
    int                     each = input->num_replicas_in_sync / input->num_input_pipelines;
    int                     first = input->input_pipeline_id * each;
    char                    texts[3][LINE];
    coi_prose               sharding = { texts[1], LINE, 0 }, splitting = { texts[2], LINE, 0 };

    coi_text_line(texts[0], LINE, "worker %d of %d, replicas %d to %d of %d",
                  input->input_pipeline_id, input->num_input_pipelines, first, first + each - 1,
                  input->num_replicas_in_sync);
    coi_put(&sharding, "sharding: ");
    coi_put(&splitting, "splitting: ");
    if (layout->origin != NULL) {
        coi_put_decision(&sharding, layout->origin, input->num_input_pipelines);
        coi_put_splitting(&splitting, layout->origin, input, layout->weights);
    } else {
        coi_put(&sharding, "none, because a function made the dataset of each worker");
        coi_put(&splitting, "none: each replica takes the next element");
    }
    coi_put_end(&sharding);
    coi_put_end(&splitting);
    for (int i = 0; i < 3; ++i)
        put_line(e, 0, texts[i]);
}

/* What is shown: the tree of `tree`, as a reference; `layout` if it is distributed or would be.
 * NULL with an error. */
static co_dataset *
take_arguments(co_context *ctx, const co_dataset *given, const co_input_context *input,
               coi_layout *layout)
{
    co_dataset *dataset = (co_dataset *)(uintptr_t)given; /* counted, else as it is */

    if (!coi_check_layout(ctx, dataset, input, layout))
        return NULL;
    if (dataset->ops->layout == NULL && input != NULL)
        return coi_dataset_for_worker(ctx, dataset, input, NULL);
    coi_ref(dataset);
    return dataset;
}

size_t
co_dataset_explain(co_context *ctx, const co_dataset *dataset, const co_input_context *input,
                   char *out, size_t capacity)
{
    explanation e = { .out = { out, capacity, 0 } };
    coi_layout  layout;
    co_dataset *tree;

    if (out != NULL && capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "dataset_explain", 0);
    if (!coi_check_room(ctx, out, capacity, 4))
        return 0;
    tree = take_arguments(ctx, dataset, input, &layout);
    if (tree == NULL)
        return 0;
    if (dataset->ops->layout != NULL || input != NULL)
        put_layout(&e, &layout);
    put_tree(&e, tree, 0);
    if (e.left_out > 0)
        coi_put(&e.out, "... and %lld stage%s more\n", (long long)e.left_out,
                e.left_out == 1 ? "" : "s");
    coi_unref(&ctx->heap, tree);
    return e.out.at;
}

/* --- what both explanations take --- */

bool
coi_check_layout(co_context *ctx, const co_dataset *dataset, const co_input_context *input,
                 coi_layout *layout)
{
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return false;
    if (dataset->ops->layout == NULL) {
        *layout = (coi_layout){ (co_dataset *)(uintptr_t)dataset, { 1, 0, 1 }, NULL };
        if (input != NULL)
            layout->input = *input;
        return coi_check_pipelines(ctx, &layout->input);
    }
    *layout = dataset->ops->layout(dataset);
    if (input != NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (input) is given for a distributed dataset, which has workers "
                 "already; give NULL, or the dataset before it was distributed");
    return input == NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* datasets: pipelines, their elements, cardinality and specs, and what an iterator does past the end. */
#include "families.h"

#include <string.h>

static co_dataset *
make_dataset(golden_case *c)
{
    return golden_pipeline(c, c->ctx, json_object_get(c->attrs, "pipeline"));
}

/* The end is NULL without an error, as often as one asks. */
static void
run_elements(golden_case *c)
{
    co_context  *ctx = c->ctx;
    int64_t      limit = golden_int(c, c->attrs, "max_elements", 0);
    co_dataset  *dataset = make_dataset(c);
    co_iterator *it;
    json_t      *list = json_array();
    co_value    *element = NULL;

    golden_put(c, "elements", list);
    if (dataset == NULL)
        return;
    golden_put(c, "cardinality", json_integer(co_cardinality(ctx, dataset)));
    golden_put_value(c, "element_spec", co_element_spec(ctx, dataset));
    it = co_iterate(ctx, dataset);
    while ((int64_t)json_array_size(list) < limit && (element = co_next(ctx, it)) != NULL)
        json_array_append_new(list, golden_write_value(ctx, element));
    if ((int64_t)json_array_size(list) == limit && co_ok(ctx))
        element = co_next(ctx, it);
    golden_put(c, "ended", json_boolean(element == NULL && co_ok(ctx)));
}

static void
run_cardinality(golden_case *c)
{
    co_dataset *dataset = make_dataset(c);

    if (dataset != NULL)
        golden_put(c, "cardinality", json_integer(co_cardinality(c->ctx, dataset)));
}

/* Two iterators: one asked for elements, one for optionals. */
static void
run_iterator(golden_case *c)
{
    co_context  *ctx = c->ctx;
    int64_t      calls = golden_int(c, c->attrs, "calls", 0);
    co_dataset  *dataset = make_dataset(c);
    co_iterator *plain, *wrapped;
    json_t      *next = json_array(), *optionals = json_array();

    golden_put(c, "steps", next);
    golden_put(c, "optional", optionals);
    if (dataset == NULL)
        return;
    plain = co_iterate(ctx, dataset);
    wrapped = co_iterate(ctx, dataset);
    for (int64_t i = 0; i < calls && co_ok(ctx); ++i) {
        co_value *element = co_next(ctx, plain);
        co_value *optional = co_get_next_as_optional(ctx, wrapped);
        bool      has_value = co_optional_has_value(ctx, optional);
        json_t   *value = has_value ? golden_write_value(ctx, co_optional_get_value(ctx, optional))
                                    : json_null();

        json_array_append_new(next, json_pack("{s:o}", "next",
                                              element != NULL ? golden_write_value(ctx, element)
                                                              : json_string("StopIteration")));
        json_array_append_new(optionals,
                              json_pack("{s:b,s:o}", "has_value", has_value, "value", value));
    }
}

static co_value *
fold_count(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_int(ctx, 1));
}

static co_value *
fold_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
fold_twice(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2)), co_at(ctx, args, 1));
}

static void
run_reduce(golden_case *c)
{
    static const struct {
        const char *text;
        co_fold_fn  fn;
    } known[] = {
        { "count", fold_count },
        { "state+x", fold_sum },
        { "state*2+x", fold_twice },
    };
    const char *text = golden_string(c, c->attrs, "fn");
    co_value   *initial = co_scalar_int64(c->ctx, golden_int(c, c->attrs, "initial", 0));
    co_dataset *dataset = make_dataset(c);

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        if (strcmp(known[i].text, text) != 0)
            continue;
        if (dataset != NULL)
            golden_put_value(c, "result",
                             co_dataset_reduce(c->ctx, dataset, initial, known[i].fn, NULL));
        return;
    }
    golden_fail(c, "fn '%s' is not known to the runner", text);
}

static void
run_shuffle(golden_case *c)
{
    golden_missing(c, "the dataset step 'shuffle'");
}

void
golden_run_datasets(golden_case *c)
{
    static const golden_action table[] = {
        { "range", run_elements },
        { "from_tensors", run_elements },
        { "from_tensor_slices", run_elements },
        { "batch", run_elements },
        { "padded_batch", run_elements },
        { "unbatch", run_elements },
        { "rebatch", run_elements },
        { "repeat", run_elements },
        { "take", run_elements },
        { "skip", run_elements },
        { "shard", run_elements },
        { "zip", run_elements },
        { "concatenate", run_elements },
        { "map", run_elements },
        { "filter", run_elements },
        { "interleave", run_elements },
        { "flat_map", run_elements },
        { "window", run_elements },
        { "window_flat", run_elements },
        { "enumerate", run_elements },
        { "scan", run_elements },
        { "take_while", run_elements },
        { "unique", run_elements },
        { "cache", run_elements },
        { "prefetch", run_elements },
        { "apply_cardinality", run_elements },
        { "mixed", run_elements },
        { "cardinality", run_cardinality },
        { "iterator", run_iterator },
        { "reduce", run_reduce },
        { "shuffle", run_shuffle },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}

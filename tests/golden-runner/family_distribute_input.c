/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribute_input: datasets split over the replicas of a strategy, and the share of each of
 * several workers. The end of co_next is NULL without an error: that is what the recording calls
 * StopIteration.
 */
#include "captured.h"
#include "families.h"

#include <stdio.h>
#include <string.h>

#define STEPS_PAST_END 2
#define MAX_SIZES      256

typedef struct walk {
    golden_case *c;
    co_strategy *strategy;
    co_dataset  *dataset; /* distributed */
    int64_t      max_steps;
} walk;

/* Exception classes of the recording by code; other codes by their own name. */
static json_t *
take_end(co_context *ctx)
{
    co_code code = co_error(ctx)->code;

    co_clear(ctx);
    if (code == CO_OUT_OF_RANGE)
        return json_string("OutOfRangeError");
    if (code == CO_INVALID_ARGUMENT)
        return json_string("InvalidArgumentError");
    return json_string(code == CO_OK ? "no error" : co_code_name(code));
}

static json_t *
end_of_next(co_context *ctx, co_iterator *it)
{
    bool is_end = golden_next(ctx, it) == NULL && co_ok(ctx);

    return is_end ? json_string("StopIteration") : take_end(ctx);
}

static json_t *
end_of_get_next(co_context *ctx, co_iterator *it)
{
    golden_get_next(ctx, it);
    return take_end(ctx);
}

/* An iterator of its own, asked as often as the recording did; the last optional is the empty
 * one. */
static void
describe_optionals(const walk *w, size_t num_steps, json_t *json)
{
    co_context  *ctx = w->c->ctx;
    co_iterator *it = co_iterate(ctx, w->dataset);
    json_t      *list = json_array();
    co_value    *optional = NULL;

    for (size_t i = 0; i < num_steps + STEPS_PAST_END && co_ok(ctx); ++i) {
        optional = golden_next_as_optional(ctx, it);
        json_array_append_new(list, json_boolean(co_optional_has_value(ctx, optional)));
    }
    json_object_set_new(json, "optional_has_value", list);
    co_optional_get_value(ctx, optional);
    json_object_set_new(json, "empty_optional_get_value", take_end(ctx));
}

static json_t *
describe_end(const walk *w, co_iterator *it, size_t num_steps, bool is_stopped)
{
    co_context *ctx = w->c->ctx;
    json_t     *json = json_object();

    if (is_stopped) {
        json_object_set_new(json, "next", json_null());
        return json;
    }
    json_object_set_new(json, "next", end_of_next(ctx, it));
    json_object_set_new(json, "get_next", end_of_get_next(ctx, it));
    json_object_set_new(json, "get_next_again", end_of_get_next(ctx, it));
    describe_optionals(w, num_steps, json);
    return json;
}

/* The iterator describes its elements as the dataset does (DS-ITER-7). */
static void
put_spec(const walk *w, co_iterator *it)
{
    co_context *ctx = w->c->ctx;
    json_t     *of_dataset = golden_write_value(ctx, co_element_spec(ctx, w->dataset));
    json_t     *of_iterator = golden_write_value(ctx, co_iterator_element_spec(ctx, it));

    if (co_ok(ctx) && !json_equal(of_dataset, of_iterator))
        golden_fail(w->c, "the element_spec of the iterator is not that of the dataset");
    golden_put(w->c, "element_spec", of_dataset);
    json_decref(of_iterator);
}

static void
walk_dataset(const walk *w)
{
    golden_case *c = w->c;
    co_context  *ctx = c->ctx;
    co_iterator *it = co_iterate(ctx, w->dataset);
    json_t      *list = json_array();
    co_value    *element = NULL;
    int64_t      dropped;

    golden_put(c, "steps", list);
    put_spec(w, it);
    while ((int64_t)json_array_size(list) < w->max_steps &&
           (element = golden_next(ctx, it)) != NULL)
        json_array_append_new(list, golden_write_local(ctx, w->strategy, element));
    if (!co_ok(ctx))
        return;
    golden_put(c, "end", describe_end(w, it, json_array_size(list), element != NULL));
    dropped = co_iterator_dropped_rows(ctx, it);
    golden_put(c, "dropped_rows", json_integer(dropped));
    if (json_object_get(c->outputs, "dropped_rows") == NULL && dropped != 0)
        golden_fail(c, "dropped_rows is %lld, expected 0", (long long)dropped);
}

static void
run_distribute_dataset(golden_case *c)
{
    walk        w = { .c = c,
                      .strategy = golden_strategy(c),
                      .max_steps = golden_int(c, c->attrs, "max_steps", 0) };
    co_dataset *dataset;

    if (w.strategy == NULL || c->is_failed)
        return;
    dataset = golden_pipeline(c, c->ctx, json_object_get(c->attrs, "pipeline"));
    if (dataset == NULL)
        return;
    w.dataset = co_distribute_dataset(c->ctx, w.strategy, dataset, NULL);
    if (w.dataset == NULL)
        return;
    golden_put(c, "cardinality", json_integer(co_cardinality(c->ctx, w.dataset)));
    walk_dataset(&w);
}

typedef struct function_user {
    golden_case *c;
    json_t      *contexts;
} function_user;

static co_dataset *
dataset_fn(co_context *ctx, const co_input_context *input, void *user)
{
    function_user *u = user;

    json_array_append_new(u->contexts, json_pack("{s:i,s:i,s:i}", "num_input_pipelines",
                                                 input->num_input_pipelines, "input_pipeline_id",
                                                 input->input_pipeline_id, "num_replicas_in_sync",
                                                 input->num_replicas_in_sync));
    return golden_pipeline(u->c, ctx, json_object_get(u->c->attrs, "pipeline"));
}

static void
run_from_function(golden_case *c)
{
    walk          w = { .c = c,
                        .strategy = golden_strategy(c),
                        .max_steps = golden_int(c, c->attrs, "max_steps", 0) };
    function_user user = { c, json_array() };

    golden_put(c, "input_contexts", user.contexts);
    if (w.strategy == NULL || c->is_failed)
        return;
    w.dataset = co_distribute_datasets_from_function(c->ctx, w.strategy, dataset_fn, &user, NULL);
    if (w.dataset != NULL)
        walk_dataset(&w);
}

static void
run_input_context(golden_case *c)
{
    co_input_context input = {
        (int)golden_int(c, c->attrs, "num_input_pipelines", 1),
        (int)golden_int(c, c->attrs, "input_pipeline_id", 0),
        (int)golden_int(c, c->attrs, "num_replicas_in_sync", 1),
    };
    int64_t global = golden_int(c, c->attrs, "global_batch_size", 0);
    int64_t size = co_per_replica_batch_size(c->ctx, &input, global);
    char    text[100];

    if (!golden_take_error(c, c->ctx))
        golden_put(c, "per_replica_batch_size", json_integer(size));
    co_input_context_format(c->ctx, &input, text, sizeof(text));
    golden_put(c, "str", json_string(text));
}

/* [replica_id*10, num_replicas] */
static co_value *
value_fn(co_context *ctx, const co_value_context *replica, void *user)
{
    const float pair[2] = { (float)(replica->replica_id_in_sync_group * 10),
                            (float)replica->num_replicas_in_sync };

    json_array_append_new(user, json_pack("{s:i,s:i}", "replica_id_in_sync_group",
                                          replica->replica_id_in_sync_group, "num_replicas_in_sync",
                                          replica->num_replicas_in_sync));
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), pair);
}

typedef struct making {
    co_strategy *strategy;
    json_t      *contexts;
} making;

static co_value *
make_values(co_context *ctx, co_value *args, void *user)
{
    const making *m = user;

    (void)args;
    return co_distribute_values_from_function(ctx, m->strategy, value_fn, m->contexts);
}

static void
run_values_from_function(golden_case *c)
{
    const char  *text = golden_string(c, c->attrs, "value_fn");
    co_strategy *strategy = golden_strategy(c);
    json_t      *contexts = json_array();
    making       values;
    co_value    *value;

    golden_put(c, "value_contexts", contexts);
    if (strcmp(text, "[replica_id*10, num_replicas]") != 0)
        golden_fail(c, "value_fn '%s' is not known to the runner", text);
    if (strategy == NULL || c->is_failed)
        return;
    values = (making){ strategy, contexts };
    value = golden_in_function(c->ctx, make_values, co_no_args(c->ctx), &values);
    if (!co_ok(c->ctx))
        return;
    golden_put(c, "class", json_string(golden_class(c->ctx, value)));
    golden_put(c, "local_results", golden_write_local(c->ctx, strategy, value));
}

static void
run_batch_sizes(golden_case *c)
{
    int64_t global = golden_int(c, c->attrs, "global_batch_size", 0);
    int64_t workers = golden_int(c, c->attrs, "num_workers", 0);
    int64_t replicas = golden_int(c, c->attrs, "replicas_per_worker", 0);
    int64_t sizes[MAX_SIZES];
    json_t *list = json_array();

    golden_put(c, "per_worker", list);
    if (workers < 1 || replicas < 1 || workers * replicas > MAX_SIZES) {
        golden_fail(c, "%lld workers of %lld replicas are more than the runner has room for",
                    (long long)workers, (long long)replicas);
        return;
    }
    for (int w = 0; w < (int)workers && co_ok(c->ctx); ++w) {
        co_batch_sizes_for_worker(c->ctx, global, (int)workers, (int)replicas, w, sizes);
        json_array_append_new(
            list, golden_write_value(c->ctx, co_tensor(c->ctx, CO_INT64,
                                                       CO_SHAPE(workers * replicas), sizes)));
    }
}

/* Add the file that a record or line came from, in order: "f2r0" is of "f2", "file2 line0" of
 * "file2". */
static void
add_file(json_t *files, const char *name)
{
    json_t *file = json_stringn(name ? name : "", name ? strcspn(name, " r") : 0);
    size_t  at = 0;

    while (at < json_array_size(files) &&
           strcmp(json_string_value(json_array_get(files, at)), json_string_value(file)) < 0)
        ++at;
    if (!json_equal(json_array_get(files, at), file))
        json_array_insert(files, at, file);
    json_decref(file);
}

/* Those of all strings in a tree of elements. */
static void
add_files(json_t *files, json_t *json)
{
    const char *key;
    size_t      i;
    json_t     *item;

    json_array_foreach(json, i, item) add_files(files, item);
    if (golden_is_tensor(json)) {
        json_array_foreach(json_object_get(json, "data"), i, item)
            add_file(files, json_string_value(item));
        return;
    }
    json_object_foreach(json, key, item) add_files(files, item);
}

static json_t *
files_of(json_t *elements)
{
    json_t *files = json_array();

    add_files(files, elements);
    return files;
}

static co_dataset *
policy_dataset(golden_case *c)
{
    co_dataset *dataset = golden_pipeline(c, c->ctx, json_object_get(c->attrs, "pipeline"));
    json_t     *policy = json_pack("[{s:s,s:[s]}]", "op", "options_autoshard", "args",
                                   golden_string(c, c->attrs, "policy"));

    if (dataset != NULL && !c->is_failed)
        dataset = golden_pipeline_step(c, c->ctx, dataset, json_array_get(policy, 0));
    json_decref(policy);
    return dataset;
}

/* What worker w of W sees; `replicas` 0: its share without splitting. */
static json_t *
one_worker(golden_case *c, co_dataset *dataset, int w, int num_workers, int replicas)
{
    co_context      *ctx = c->ctx;
    co_input_context input = { num_workers, w, num_workers * replicas };
    json_t          *json = json_object();
    json_t          *elements;

    if (replicas > 0) {
        elements = golden_write_elements(ctx, co_dataset_for_worker(ctx, dataset, &input));
        json_object_set_new(json, "batches", elements);
        json_object_set_new(json, "static_batch_size",
                            json_integer(co_dataset_batch_size(ctx, dataset)));
    } else {
        elements = golden_write_elements(ctx, co_dataset_auto_shard(ctx, dataset, num_workers, w));
        json_object_set_new(json, "elements", elements);
        json_object_set_new(json, "files_seen", files_of(elements));
    }
    if (co_ok(ctx))
        return json;
    json_object_clear(json);
    if (c->code == CO_OK) {
        c->code = co_error(ctx)->code;
        snprintf(c->message, sizeof(c->message), "worker %d: %.500s", w, co_error(ctx)->message);
    }
    json_object_set_new(json, "error", golden_write_error(ctx));
    return json;
}

static void
run_workers(golden_case *c)
{
    int64_t     num_workers = golden_int(c, c->attrs, "num_workers", 0);
    json_t     *replicas = json_object_get(c->attrs, "replicas_per_worker");
    co_dataset *dataset = policy_dataset(c);
    json_t     *list = json_array();

    golden_put(c, "workers", list);
    if (dataset == NULL || c->is_failed)
        return;
    for (int64_t w = 0; w < num_workers && w < MAX_SIZES; ++w)
        json_array_append_new(list, one_worker(c, dataset, (int)w, (int)num_workers,
                                               (int)json_integer_value(replicas)));
}

void
golden_run_distribute_input(golden_case *c)
{
    static const golden_action table[] = {
        { "distribute_dataset", run_distribute_dataset },
        { "distribute_dataset_drop_remainder", run_distribute_dataset },
        { "distribute_dataset_policy", run_distribute_dataset },
        { "distribute_dataset_structure", run_distribute_dataset },
        { "distribute_dataset_pipeline", run_distribute_dataset },
        { "distribute_dataset_infinite", run_distribute_dataset },
        { "distribute_dataset_unbatched", run_distribute_dataset },
        { "distribute_dataset_files", run_distribute_dataset },
        { "from_function", run_from_function },
        { "input_context", run_input_context },
        { "values_from_function", run_values_from_function },
        { "batch_sizes_for_worker", run_batch_sizes },
        { "auto_shard", run_workers },
        { "auto_shard_files", run_workers },
        { "auto_shard_hint", run_workers },
        { "multi_worker_input", run_workers },
        { "multi_worker_input_files", run_workers },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds: the code blocks of the documents that the project follows, each written once in C and run
 * with one replica and with two. A block gives the fields of `expected`; fields that describe the
 * program are put as they were written, so that data for another program is noticed.
 */
#include <cohort/v1.h>
#include "families.h"

#include <stdio.h>
#include <string.h>

/* One run of a block. */
typedef struct block {
    golden_case *c;
    co_context  *ctx;
    int          replicas; /* 1 or 2 */
    json_t      *seen;
} block;

static void
put(block *b, const char *key, json_t *value)
{
    json_object_set_new(b->seen, key, value != NULL ? value : json_null());
}

static co_strategy *
mirrored(block *b)
{
    return golden_strategy_of(b->c, b->ctx, "MirroredStrategy", b->replicas);
}

static const char *
last_cpu(const block *b)
{
    return b->replicas == 1 ? "/cpu:0" : "/cpu:1";
}

/* 000: f under strategy1, g under strategy2, h under none. */
typedef struct two {
    co_strategy *first;
    co_strategy *second;
    json_t      *calls;
} two;

static void
record_call(block *b, const two *t, const char *name)
{
    co_context  *ctx = b->ctx;
    co_strategy *current = co_get_strategy(ctx);
    co_value    *variable = co_variable(ctx, co_scalar_float(ctx, 1.0F), NULL);
    const char  *label = current == t->first    ? "strategy1"
                         : current == t->second ? "strategy2"
                                                : "default";

    json_array_append_new(
        t->calls, json_pack("{s:s,s:{s:b,s:s,s:b,s:s}}", "call", name, "state", "has_strategy",
                            co_has_strategy(ctx), "get_strategy", label, "in_cross_replica_context",
                            co_in_cross_replica_context(ctx), "variable_device",
                            variable != NULL ? co_value_device(ctx, variable) : ""));
}

static two
make_two(block *b)
{
    two t = { NULL, co_one_device_strategy(b->ctx, last_cpu(b)), json_array() };

    t.first = b->replicas == 1 ? co_one_device_strategy(b->ctx, "/cpu:0") : mirrored(b);
    put(b, "calls", t.calls);
    return t;
}

static void
block_set_strategy(block *b)
{
    two t = make_two(b);

    co_experimental_set_strategy(b->ctx, t.first);
    record_call(b, &t, "f");
    co_experimental_set_strategy(b->ctx, t.second);
    record_call(b, &t, "g");
    co_experimental_set_strategy(b->ctx, NULL);
    record_call(b, &t, "h");
}

static void
block_two_scopes(block *b)
{
    two t = make_two(b);

    CO_SCOPE(b->ctx, t.first)
        record_call(b, &t, "f");
    CO_SCOPE(b->ctx, t.second)
        record_call(b, &t, "g");
    record_call(b, &t, "h");
}

/* The OneDevice class example: the device of a variable, and run(x*2) summed over 0..9. */
static co_value *
fn_times_2(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

static void
block_one_device(block *b)
{
    co_context  *ctx = b->ctx;
    co_strategy *strategy = co_one_device_strategy(ctx, last_cpu(b));
    co_value    *result = co_int(ctx, 0), *v = NULL;

    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_float(ctx, 1.0), NULL);
    put(b, "v.device", json_string(v != NULL ? co_value_device(ctx, v) : ""));
    for (int i = 0; i < 10; ++i)
        result = co_add(ctx, result,
                        co_run(ctx, strategy, fn_times_2, co_args(ctx, co_int(ctx, i)), NULL));
    put(b, "result", golden_write_value(ctx, result));
}

static void
block_distribute_dataset(block *b)
{
    co_context  *ctx = b->ctx;
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_dataset  *batched = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 2, false);

    put(b, "elements",
        golden_write_elements(b->ctx, co_distribute_dataset(ctx, strategy, batched, NULL)));
    if (b->replicas == 2)
        put(b, "mirrored_elements",
            golden_write_elements(b->ctx, co_distribute_dataset(ctx, mirrored(b), batched, NULL)));
}

/* make_numpy_dataset: ten ones, as the sample has them and with a batch step before they are
 * distributed. */
static void
numpy_ones(block *b, co_strategy *strategy)
{
    co_context *ctx = b->ctx;
    co_value   *numpy_input = co_ones(ctx, CO_FLOAT32, CO_SHAPE(10));
    co_dataset *dataset = co_experimental_make_numpy_dataset(ctx, strategy, numpy_input);
    co_dataset *batched = co_dataset_batch(ctx, dataset, 4, false), *as_written;

    put(b, "element_spec", golden_write_value(ctx, co_element_spec(ctx, dataset)));
    put(b, "cardinality", json_integer(co_cardinality(ctx, dataset)));
    as_written = co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    put(b, "elements_as_written",
        as_written != NULL ? golden_write_elements(b->ctx, as_written)
                           : json_pack("{s:o}", "error", golden_write_error(ctx)));
    batched = co_experimental_distribute_dataset(ctx, strategy, batched, NULL);
    put(b, "elements_with_batch_4", golden_write_elements(b->ctx, batched));
}

static void
block_numpy_either(block *b)
{
    numpy_ones(b, b->replicas == 1 ? co_one_device_strategy(b->ctx, "/cpu:0") : mirrored(b));
}

static void
block_numpy_mirrored(block *b)
{
    numpy_ones(b, mirrored(b));
}

/* distribute_datasets_from_function: an endless dataset, three steps of it. */
static co_dataset *
fn_ones(co_context *ctx, const co_input_context *input, void *user)
{
    int64_t   size = co_per_replica_batch_size(ctx, input, 6);
    co_value *one = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 1));

    json_array_append_new(
        user, json_pack("{s:i,s:i,s:i,s:I}", "num_input_pipelines", input->num_input_pipelines,
                        "input_pipeline_id", input->input_pipeline_id, "num_replicas_in_sync",
                        input->num_replicas_in_sync, "batch_size", (json_int_t)size));
    return co_dataset_batch(ctx, co_dataset_repeat(ctx, co_dataset_from_tensors(ctx, one), -1),
                            size, false);
}

static co_value *
fn_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static void
from_function(block *b, co_strategy *strategy)
{
    co_context  *ctx = b->ctx;
    json_t      *contexts = json_array(), *batches = json_array(), *results = json_array();
    co_dataset  *dataset;
    co_iterator *it;

    put(b, "global_batch_size", json_integer(6));
    put(b, "input_contexts", contexts);
    put(b, "batches", batches);
    put(b, "replica_results", results);
    dataset = co_distribute_datasets_from_function(ctx, strategy, fn_ones, contexts, NULL);
    it = co_iterate(ctx, dataset);
    for (int i = 0; i < 3; ++i) {
        co_value *x = co_next(ctx, it);

        json_array_append_new(batches, golden_write_value(ctx, x));
        json_array_append_new(results, golden_write_value(ctx, co_run(ctx, strategy, fn_sum,
                                                                      co_args(ctx, x), NULL)));
    }
}

static void
block_from_function_one_device(block *b)
{
    from_function(b, co_one_device_strategy(b->ctx, "/cpu:0"));
}

static void
block_from_function_mirrored(block *b)
{
    from_function(b, mirrored(b));
}

static void
block_from_function_either(block *b)
{
    from_function(b, b->replicas == 1 ? co_one_device_strategy(b->ctx, "/cpu:0") : mirrored(b));
}

/* make_input_fn_iterator: two runs on it, in the scope. */
static co_dataset *
fn_ones_in_scope(co_context *ctx, const co_input_context *input, void *user)
{
    const two  *t = user;
    co_dataset *made = fn_ones(ctx, input, t->calls);
    json_t     *seen = json_array_get(t->calls, json_array_size(t->calls) - 1);

    json_object_set_new(seen, "in_cross_replica_context",
                        json_boolean(co_in_cross_replica_context(ctx)));
    json_object_set_new(seen, "strategy_is_current",
                        json_boolean(co_get_strategy(ctx) == t->first));
    return co_dataset_shard(ctx, made, input->num_input_pipelines, input->input_pipeline_id);
}

static void
block_input_fn(block *b)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context  *ctx = b->ctx;
    json_t      *results = json_array();
    two          t = { co_v1_one_device_strategy(ctx, devices[0]), NULL, json_array() };
    co_iterator *it;

    if (b->replicas == 2)
        t.first = co_v1_mirrored_strategy(ctx, devices, 2, NULL);
    put(b, "global_batch_size", json_integer(6));
    put(b, "replica_fn", json_string("sum of the input"));
    put(b, "input_contexts", t.calls);
    put(b, "replica_results", results);
    CO_SCOPE(ctx, t.first) {
        it = co_make_input_fn_iterator(ctx, t.first, fn_ones_in_scope, &t, CO_INPUT_PER_WORKER);
        co_iterator_initialize(ctx, it);
        for (int i = 0; i < 2; ++i)
            json_array_append_new(results,
                                  golden_write_value(ctx, co_experimental_run(ctx, t.first, fn_sum,
                                                                              it, NULL)));
    }
}

/* values_from_function */
static co_value *
value_constant(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)replica;
    (void)user;
    return co_scalar_float(ctx, 1.0F);
}

static co_value *
value_array(co_context *ctx, const co_value_context *replica, void *user)
{
    static const double array[] = { 3.0, 2.0, 1.0 };

    (void)user;
    return co_scalar_double(ctx, array[replica->replica_id_in_sync_group % 3]);
}

static co_value *
value_replicas(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)user;
    return co_int(ctx, replica->num_replicas_in_sync);
}

static co_value *
value_placed(co_context *ctx, const co_value_context *replica, void *user)
{
    co_value   *devices = user, *value = NULL;
    size_t      id = (size_t)replica->replica_id_in_sync_group;
    const char *device = co_string_at(ctx, co_at(ctx, devices, id), 0, NULL);

    CO_DEVICE(ctx, device)
        value = co_scalar_float(ctx, 1.0F);
    return value;
}

static co_value *
local_values(block *b, co_strategy *strategy, co_value_fn fn, void *user)
{
    co_value *local = co_local_results(
        b->ctx, strategy, co_distribute_values_from_function(b->ctx, strategy, fn, user));

    put(b, "local_result", golden_write_value(b->ctx, local));
    return local;
}

static void
block_value_constant(block *b)
{
    local_values(b, mirrored(b), value_constant, NULL);
}

static void
block_value_array(block *b)
{
    local_values(b, mirrored(b), value_array, NULL);
}

static void
block_value_replicas(block *b)
{
    local_values(b, mirrored(b), value_replicas, NULL);
}

static void
block_value_placed(block *b)
{
    co_strategy *strategy = mirrored(b);
    co_value *local = local_values(b, strategy, value_placed, co_worker_devices(b->ctx, strategy));
    json_t   *devices = json_array();

    for (size_t i = 0; local != NULL && i < co_num_items(b->ctx, local); ++i)
        json_array_append_new(devices,
                              json_string(co_value_device(b->ctx, co_at(b->ctx, local, i))));
    put(b, "devices", devices);
    put(b, "as_written_replica_id", json_string("no such property (AMB-6)"));
}

static void
block_reduce(block *b)
{
    co_context  *ctx = b->ctx;
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *t = co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_DTYPE_NONE);

    put(b, "axis_none",
        golden_write_value(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, t, NULL, 0)));
    put(b, "axis_0",
        golden_write_value(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, t, CO_AXES(0))));
}

/* The custom training loop: 2 * sum of the input, over range(10).batch(4), two epochs. */
static co_value *
fn_twice_sum(co_context *ctx, co_value *args, void *user)
{
    return co_mul(ctx, fn_sum(ctx, args, user), co_int(ctx, 2));
}

static void
block_loop(block *b)
{
    co_context  *ctx = b->ctx;
    co_strategy *strategy = mirrored(b);
    json_t      *results = json_array(), *totals = json_array();
    co_dataset  *dataset = NULL;

    put(b, "dataset", json_string("range(10).batch(4)"));
    put(b, "replica_fn", json_string("2 * sum of the input"));
    put(b, "EPOCHS", json_integer(2));
    put(b, "per_replica_results", results);
    put(b, "train_results", totals);
    CO_SCOPE(ctx, strategy)
        dataset = co_distribute_dataset(
            ctx, strategy, co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false), NULL);
    for (int epoch = 0; epoch < 2 && co_ok(ctx); ++epoch) {
        co_iterator *it = co_iterate(ctx, dataset);
        co_value    *total = co_scalar_int64(ctx, 0), *x;

        while ((x = co_next(ctx, it)) != NULL) {
            co_value *each = co_run(ctx, strategy, fn_twice_sum, co_args(ctx, x), NULL);

            if (epoch == 0)
                json_array_append_new(results, golden_write_value(ctx, each));
            total = co_add(ctx, total, co_reduce(ctx, strategy, CO_REDUCE_SUM, each, NULL, 0));
        }
        json_array_append_new(totals, golden_write_value(ctx, total));
    }
}

static void
block_run_constant(block *b)
{
    co_value *x = co_scalar_float(b->ctx, 3.0F);

    put(b, "result",
        golden_write_value(b->ctx,
                           co_run(b->ctx, mirrored(b), fn_times_2, co_args(b->ctx, x), NULL)));
}

/* Four record files, as written and with a batch step; the step counts the bytes of its records. */
static co_value *
fn_bytes(co_context *ctx, co_value *args, void *user)
{
    co_value *records = co_at(ctx, args, 0);
    int64_t   sum = 0;
    size_t    nbytes;

    (void)user;
    for (int64_t i = 0; i < co_value_num_elements(ctx, records); ++i, sum += (int64_t)nbytes)
        co_string_at(ctx, records, i, &nbytes);
    return co_scalar_int32(ctx, (int32_t)sum);
}

static json_t *
run_records(block *b, co_strategy *strategy, co_dataset *dataset)
{
    co_context *ctx = b->ctx;
    co_dataset *distributed = co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    json_t     *elements, *results;

    if (distributed == NULL)
        return json_pack("{s:o}", "error", golden_write_error(ctx));
    elements = json_array();
    results = json_array();
    CO_EACH(ctx, x, co_iterate(ctx, distributed)) {
        co_value *sum = co_run(ctx, strategy, fn_bytes, co_args(ctx, x), NULL);

        json_array_append_new(elements, golden_write_value(ctx, x));
        json_array_append_new(results, golden_write_value(ctx, sum));
    }
    return json_pack("{s:o,s:o,s:o}", "element_spec",
                     golden_write_value(ctx, co_element_spec(ctx, distributed)), "elements",
                     elements, "results", results);
}

static void
records(block *b, co_strategy *strategy)
{
    json_t *files = json_array(),
           *pipeline = json_pack("[{s:s,s:[O]}]", "op", "tfrecord", "args", files);
    co_dataset *dataset;
    char        name[40];

    for (int i = 0; i < 4; ++i) {
        snprintf(name, sizeof(name), "records/auto_%d.tfrecord", i);
        json_array_append_new(files, json_string(name));
    }
    dataset = golden_pipeline(b->c, b->ctx, pipeline);
    json_decref(pipeline);
    put(b, "files", files);
    put(b, "train_step", json_string("length of the record (batched: sum of lengths)"));
    if (dataset == NULL)
        return;
    put(b, "as_written_unbatched", run_records(b, strategy, dataset));
    put(b, "with_batch_4", run_records(b, strategy, co_dataset_batch(b->ctx, dataset, 4, false)));
}

static void
block_records(block *b)
{
    records(b, mirrored(b));
}

static void
block_records_v1(block *b)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    records(b, co_v1_mirrored_strategy(b->ctx, devices, (size_t)b->replicas, NULL));
}

/* A step with the element_spec of an iterator as its signature: range(7) in batches of 4 over all
 * replicas; the third step finds the end. */
static co_dataset *
fn_range(co_context *ctx, const co_input_context *input, void *user)
{
    (void)user;
    return co_dataset_batch(ctx, co_dataset_range(ctx, 0, 7, 1),
                            co_per_replica_batch_size(ctx, input, 4), false);
}

static void
block_iterator_signature(block *b)
{
    co_context         *ctx = b->ctx;
    co_strategy        *strategy = mirrored(b);
    json_t             *results = json_array();
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function_stats   stats = CO_FUNCTION_STATS_INIT;
    co_function        *step;
    co_iterator *it = co_iterate(ctx, co_distribute_datasets_from_function(ctx, strategy, fn_range,
                                                                           NULL, NULL));

    options.signature = co_args(ctx, co_iterator_element_spec(ctx, it));
    step = co_function_of(ctx, fn_sum, NULL, &options);
    for (int i = 0; i < 3; ++i) {
        co_value *x = co_next(ctx, it);

        if (x != NULL) {
            x = co_run(ctx, strategy, co_captured, co_args(ctx, x), step);
            json_array_append_new(results, golden_write_value(ctx, x));
        } else {
            co_fail(ctx, CO_STOP_ITERATION, "the end of the input");
            json_array_append_new(results, json_pack("{s:o}", "error", golden_write_error(ctx)));
        }
    }
    co_function_get_stats(ctx, step, &stats);
    put(b, "dataset", json_string("range(7).batch(per replica size of 4)"));
    put(b, "steps", json_integer(3));
    put(b, "element_spec", golden_write_value(ctx, co_iterator_element_spec(ctx, it)));
    put(b, "results", results);
    put(b, "traces", json_integer(stats.captures));
}

/* A captured function that makes distributed values and runs a step on them. */
static co_value *
fn_twice_number(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_int(ctx, 2 * co_item_int(ctx, co_at(ctx, args, 0)));
}

static co_value *
fn_run_values(co_context *ctx, co_value *args, void *user)
{
    co_value *values = co_distribute_values_from_function(ctx, user, value_replicas, NULL);

    (void)args;
    return co_to_tensor(ctx, co_run(ctx, user, fn_twice_number, co_args(ctx, values), NULL),
                        CO_INT32);
}

static void
block_run_in_function(block *b)
{
    co_context  *ctx = b->ctx;
    co_function *f = co_function_of(ctx, fn_run_values, mirrored(b), NULL);

    put(b, "result", golden_write_value(ctx, co_call(ctx, f, co_no_args(ctx))));
}

typedef struct known_block {
    const char *id;
    void (*run)(block *b);
    const char *missing; /* what the library lacks; NULL: run it */
} known_block;

static const char tpu[] = "TPU topologies and logical devices";
static const char signature[] = "signatures as values: in C the compiler checks arguments";

static const known_block blocks[] = {
    { "seed000/1", block_set_strategy, NULL },
    { "seed000/2", block_two_scopes, NULL },
    { "seed001/1", block_one_device, NULL },
    { "seed001/2", NULL, tpu },
    { "seed001/3", block_distribute_dataset, NULL },
    { "seed001/4", block_from_function_one_device, NULL },
    { "seed001/5", block_value_constant, NULL },
    { "seed001/6", block_value_array, NULL },
    { "seed001/7", block_value_replicas, NULL },
    { "seed001/8", block_value_placed, NULL },
    { "seed001/9", block_numpy_either, NULL },
    { "seed001/10", NULL, tpu },
    { "seed001/11", NULL, tpu },
    { "seed001/12", block_reduce, NULL },
    { "seed002/1", block_loop, NULL },
    { "seed002/2", NULL, signature },
    { "seed002/3", NULL, signature },
    { "seed002/4", block_records, NULL },
    { "seed002/5", NULL, signature },
    { "seed002/6", block_from_function_mirrored, NULL },
    { "seed002/7", NULL, signature },
    { "seed002/8", NULL, signature },
    { "seed002/9", block_numpy_mirrored, NULL },
    { "seed002/10", NULL, signature },
    { "seed002/11", NULL, signature },
    { "seed002/12", NULL, signature },
    { "seed003/1", block_one_device, NULL },
    { "seed003/2", block_records_v1, NULL },
    { "seed003/3", NULL, "lengths of strings as an operator, for a captured step" },
    { "seed003/4", block_from_function_either, NULL },
    { "seed003/5", block_iterator_signature, NULL },
    { "seed003/6", block_numpy_either, NULL },
    { "seed003/7", block_input_fn, NULL },
    { "seed003/8", block_run_constant, NULL },
    { "seed003/9", block_run_in_function, NULL },
};

static void
run_block(golden_case *c, const known_block *known)
{
    static const char *const columns[] = { "replicas_1", "replicas_2" };

    if (known->missing != NULL) {
        golden_missing(c, known->missing);
        return;
    }
    for (int i = 0; i < 2; ++i) {
        block b = { c, c->ctx, i + 1, NULL };

        if (json_object_get(c->outputs, columns[i]) == NULL)
            continue;
        b.seen = json_object();
        golden_put(c, columns[i], b.seen);
        CO_BLOCK(c->ctx)
            known->run(&b);
    }
}

void
golden_run_seeds(golden_case *c)
{
    c->outputs = json_object_get(c->json, "expected");
    if (!json_is_object(c->outputs)) {
        golden_fail(c, "field 'expected' of the case is not an object");
        return;
    }
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); ++i) {
        if (strcmp(blocks[i].id, c->id) == 0) {
            run_block(c, &blocks[i]);
            return;
        }
    }
    golden_fail(c, "block '%s' is not known to the runner", c->id);
}

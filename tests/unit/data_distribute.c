/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed datasets in one process: steps of replicas, partial and empty batches, specs, places,
 * contexts, errors. The tables are the observed examples of the specification.
 */
#include "data_support.h"

/* n replicas on n logical CPUs; one of them on the device itself. */
static co_strategy *
mirrored(co_context *ctx, int n)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

    return co_mirrored_strategy(ctx, devices, (size_t)n, NULL);
}

/* --- distribute_dataset --- */

static const struct {
    int         replicas; /* 0: OneDevice */
    const char *pipeline, *steps, *spec;
    int64_t     cardinality;
} distributed[] = {
    { 0, "range(10).batch(2)", "[0,1] [2,3] [4,5] [6,7] [8,9]", "int64[-1]", 5 },
    { 0, "range(4)", "0 1 2 3", "int64[]", 4 },
    { 1, "range(10).batch(4)", "[0,1,2,3] [4,5,6,7] [8,9]", "int64[-1]", 3 },
    { 1, "range(10).batch_drop(4)", "[0,1,2,3] [4,5,6,7]", "int64[4]", 2 },
    { 1, "range(3)", "0 1 2", "int64[]", 3 },
    { 2, "range(0).batch(2)", "", "{int64[-1],int64[-1]}", 0 },
    { 2, "range(10).batch(4)", "{[0,1],[2,3]} {[4,5],[6,7]} {[8],[9]}", "{int64[-1],int64[-1]}",
      3 },
    { 2, "range(7).batch(7)", "{[0,1,2,3],[4,5,6]}", "{int64[-1],int64[-1]}", 1 },
    { 2, "range(5).batch(3)", "{[0,1],[2]} {[3],[4]}", "{int64[-1],int64[-1]}", 2 },
    { 2, "range(9).batch(8)", "{[0,1,2,3],[4,5,6,7]} {[8],[]}", "{int64[-1],int64[-1]}", 2 },
    { 2, "range(3).batch(1)", "{[0],[]} {[1],[]} {[2],[]}", "{int64[-1],int64[-1]}", 3 },
    { 2, "range(5).batch(4).repeat(2)", "{[0,1],[2,3]} {[4],[]} {[0,1],[2,3]} {[4],[]}",
      "{int64[-1],int64[-1]}", 4 },
    { 2, "range(10).batch_drop(4)", "{[0,1],[2,3]} {[4,5],[6,7]}", "{int64[2],int64[2]}", 2 },
    { 2, "range(3).batch_drop(4)", "", "{int64[2],int64[2]}", 0 },
    { 2, "range(6).batch(8).OFF", "{[0,1,2,3],[4,5]}", "{int64[-1],int64[-1]}", 1 },
    { 2, "range(10).batch(4).OFF", "{[0,1],[2,3]} {[4,5],[6,7]} {[8,9],[]}",
      "{int64[-1],int64[-1]}", 3 },
    { 2, "range(8).batch_drop(4).OFF", "{[0,1],[2,3]} {[4,5],[6,7]}", "{int64[2],int64[2]}", 2 },
    { 3, "range(10).batch(4)", "{[0,1],[2,3],[]} {[4,5],[6,7],[]} {[8],[9],[]}",
      "{int64[-1],int64[-1],int64[-1]}", 3 },
    { 3, "range(8).batch_drop(4)", "{[0,1],[2,3],[]} {[4,5],[6,7],[]}",
      "{int64[-1],int64[-1],int64[-1]}", 2 },
    { 3, "range(10).batch(4).OFF", "{[0,1],[2],[3]} {[4,5],[6],[7]} {[8,9],[],[]}",
      "{int64[-1],int64[-1],int64[-1]}", 3 },
    { 3, "range(5).batch(4).repeat(2).OFF", "{[0,1],[2],[3]} {[4,0],[1],[2]} {[3,4],[],[]}",
      "{int64[-1],int64[-1],int64[-1]}", 4 },
    { 4, "range(5).batch(3)", "{[0],[1],[2],[]} {[3],[4],[],[]}",
      "{int64[-1],int64[-1],int64[-1],int64[-1]}", 2 },
    { 2, "range(6).repeat.batch(5)",
      "{[0,1,2],[3,4]} {[5,0,1],[2,3]} {[4,5,0],[1,2]} {[3,4,5],[0,1]} {[2,3,4],[5,0]} ...",
      "{int64[-1],int64[-1]}", CO_INFINITE },
    /* Inner dimensions of the empty slices come from the batch, those of missing elements from the
       spec. */
    { 3, "range(24).batch(3).batch(4).take(1)", "{[[0,1,2],[3,4,5]],[[6,7,8],[9,10,11]],[]}",
      "{int64[-1,-1],int64[-1,-1],int64[-1,-1]}", 1 },
};

CO_TEST_WITH(
    replicas_get_what_the_specification_shows,
    "DS-DIST-1 DS-DIST-4 DS-DIST-8 DS-SPLIT-1 DS-SPLIT-2 DS-SPLIT-3 DS-SPLIT-6 DS-SPLIT-7 DS-PART-1 "
    "DS-PART-2 "
    "DS-PART-3 DS-ITER-6 DS-SPEC-1 DS-SPEC-2 OD-DS-1 OD-DS-2 OD-EX-2 MIR-DS-1 MIR-INIT-4",
    "cpus=4")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(distributed) / sizeof(distributed[0]); ++i)
        CO_BLOCK(ctx) {
            int          n = distributed[i].replicas;
            co_strategy *strategy = n > 0 ? mirrored(ctx, n)
                                          : co_one_device_strategy(ctx, "/cpu:1");
            co_dataset  *dataset = data_pipeline(ctx, distributed[i].pipeline);

            dataset = co_distribute_dataset(ctx, strategy, dataset, NULL);
            CO_EXPECT_STR(data_elements(ctx, dataset, 5, text), distributed[i].steps);
            CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), distributed[i].spec);
            CO_EXPECT_INT(co_cardinality(ctx, dataset), distributed[i].cardinality);
            if (!CO_EXPECT_OK(ctx))
                test_fail(TEST_AT, "at %s on %d replicas", distributed[i].pipeline, n);
        }
}

CO_TEST_WITH(structures_are_bundled_leaf_by_leaf, "DS-DIST-9 DS-ITER-6 DS-SPEC-1", "cpus=2")
{
    const char *keys[] = { "x", "y" };
    co_value   *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), (float[]){ 0, 1, 2, 3, 4, 5 });
    co_value   *y = co_tensor(ctx, CO_INT32, CO_SHAPE(3), (int32_t[]){ 7, 8, 9 });
    co_dataset *slices = co_dataset_from_tensor_slices(ctx, co_dict(ctx, keys,
                                                                    (co_value *[]){ x, y }, 2));
    co_dataset *dataset = co_distribute_dataset(ctx, mirrored(ctx, 2),
                                                co_dataset_batch(ctx, slices, 2, false), NULL);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, dataset, 9, text),
                  "(x:{[[0,1]],[[2,3]]},y:{[7],[8]}) (x:{[[4,5]],[]},y:{[9],[]})");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text),
                  "(x:{float32[-1,2],float32[-1,2]},y:{int32[-1],int32[-1]})");
}

CO_TEST_WITH(iterators_of_a_distributed_dataset_are_independent,
             "DS-DIST-3 DS-ITER-1 DS-ITER-2 DS-ITER-3 DS-ITER-7", "cpus=2")
{
    co_dataset  *dataset = co_distribute_dataset(ctx, mirrored(ctx, 2),
                                                 data_pipeline(ctx, "range(10).batch(4)"), NULL);
    co_iterator *a = co_iterate(ctx, dataset), *b = co_iterate(ctx, dataset);
    char         text[DATA_TEXT];

    CO_EXPECT_INT(co_iterator_step_examples(ctx, a), -1);
    CO_EXPECT_STR(data_text(ctx, co_next(ctx, a), text), "{[0,1],[2,3]}");
    CO_EXPECT_INT(co_iterator_step_examples(ctx, a), 4);
    CO_EXPECT_STR(data_rest(ctx, b, 9, text), "{[0,1],[2,3]} {[4,5],[6,7]} {[8],[9]}");
    CO_EXPECT_STR(data_rest(ctx, a, 9, text), "{[4,5],[6,7]} {[8],[9]}");
    CO_EXPECT_INT(co_iterator_step_examples(ctx, a), 2);
    CO_EXPECT_NULL(co_next(ctx, a));
    CO_EXPECT_NULL(co_next(ctx, a));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_get_next(ctx, a));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    CO_EXPECT_FALSE(co_optional_has_value(ctx, co_get_next_as_optional(ctx, b)));
    CO_EXPECT_STR(data_text(ctx, co_iterator_element_spec(ctx, a), text), "{int64[-1],int64[-1]}");
}

CO_TEST_WITH(components_are_on_their_devices, "DS-ITER-6 OD-DS-1 OD-DS-3 IO-1 IO-2", "cpus=3")
{
    const char      *devices[] = { "/cpu:2", "/cpu:1" };
    co_input_options stay = CO_INPUT_OPTIONS_INIT;
    co_dataset      *batches = data_pipeline(ctx, "range(3).batch(3)");
    co_strategy     *two = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_strategy     *one = co_one_device_strategy(ctx, "/cpu:1");
    co_value        *element = co_next(ctx,
                                       co_iterate(ctx, co_distribute_dataset(ctx, two, batches, NULL)));

    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, element, 0)), "CPU:2");
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, element, 1)), "CPU:1");
    element = co_next(ctx, co_iterate(ctx, co_distribute_dataset(ctx, one, batches, NULL)));
    CO_EXPECT_CONTAINS(co_value_device(ctx, element), "CPU:1");
    stay.fetch_to_device = false;
    element = co_next(ctx, co_iterate(ctx, co_distribute_dataset(ctx, two, batches, &stay)));
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, element, 0)), "CPU:0");
    element = co_next(ctx, co_iterate(ctx, co_distribute_dataset(ctx, one, batches, &stay)));
    CO_EXPECT_CONTAINS(co_value_device(ctx, element), "CPU:0");
}

CO_TEST_WITH(reading_ahead_is_never_seen_in_the_data, "DS-PREF-3", "cpus=2")
{
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    char             text[DATA_TEXT];

    for (options.per_replica_buffer_size = 0; options.per_replica_buffer_size < 6;
         options.per_replica_buffer_size += 5) {
        co_dataset *dataset = data_pipeline(ctx, "range(7).batch(3)");

        dataset = co_distribute_dataset(ctx, mirrored(ctx, 2), dataset, &options);
        CO_EXPECT_STR(data_elements(ctx, dataset, 9, text), "{[0,1],[2]} {[3,4],[5]} {[6],[]}");
    }
}

CO_TEST(a_device_that_is_not_there_is_an_error_at_the_first_element, "DEV-5")
{
    co_strategy *strategy = co_one_device_strategy(ctx, "/gpu:3");
    co_iterator *iterator = co_iterate(
        ctx, co_distribute_dataset(ctx, strategy, data_pipeline(ctx, "range(2)"), NULL));

    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:3");
}

CO_TEST(the_default_strategy_returns_the_very_same_dataset, "DEF-3")
{
    co_dataset      *dataset = data_pipeline(ctx, "range(4)");
    co_input_options per_replica = CO_INPUT_OPTIONS_INIT;

    per_replica.per_replica = true;
    CO_EXPECT_PTR(co_distribute_dataset(ctx, co_default_strategy(ctx), dataset, NULL), dataset);
    CO_EXPECT_PTR(co_distribute_dataset(ctx, co_default_strategy(ctx), dataset, &per_replica),
                  dataset);
}

CO_TEST_WITH(distributed_datasets_are_not_transformed, "DS-DIST-2", "cpus=2")
{
    co_strategy *strategy = mirrored(ctx, 2);
    co_dataset  *dataset = co_distribute_dataset(ctx, strategy,
                                                 data_pipeline(ctx, "range(4).batch(2)"), NULL);

    CO_EXPECT_NULL(co_dataset_batch(ctx, dataset, 2, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "transform the dataset before distributing it");
    CO_EXPECT_NULL(co_dataset_repeat(ctx, dataset, 2));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "distributed");
    CO_EXPECT_NULL(co_dataset_take(ctx, dataset, 2));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "distributed");
    CO_EXPECT_NULL(co_dataset_shard(ctx, dataset, 2, 0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "distributed");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, strategy, dataset, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "distributed");
}

CO_TEST_WITH(what_cannot_be_distributed_is_named, "DS-DIST-5 DS-DIST-7 IO-3 IO-4 OD-DS-3 MIR-OPT-1",
             "cpus=2")
{
    co_strategy     *two = mirrored(ctx, 2), *one = co_one_device_strategy(ctx, "/cpu:0");
    co_dataset      *batches = data_pipeline(ctx, "range(4).batch(2)");
    co_input_options per_replica = CO_INPUT_OPTIONS_INIT, placed = CO_INPUT_OPTIONS_INIT;
    co_input_options ahead = CO_INPUT_OPTIONS_INIT;

    per_replica.per_replica = true;
    placed.place_dataset_on_device = true;
    ahead.per_replica_buffer_size = -1;
    CO_EXPECT_NULL(co_distribute_dataset(ctx, two, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3 (dataset) of distribute_dataset is NULL");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, two, (co_dataset *)(void *)two, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (dataset)");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, NULL, batches, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, two, data_pipeline(ctx, "range(4)"), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_dataset_batch");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, two, batches, &per_replica));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "from_function");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, one, batches, &per_replica));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "from_function");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, two, batches, &placed));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "per_replica");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, two, batches, &ahead));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "per_replica_buffer_size is -1");
}

/* --- from a function --- */

typedef struct call_log {
    const char      *pipeline;
    int              calls;
    co_input_context inputs[8];
    char             device[CO_DEVICE_NAME_MAX];
} call_log;

static co_dataset *
as_told(co_context *ctx, const co_input_context *input, void *user)
{
    call_log *log = user;

    log->inputs[log->calls++] = *input;
    snprintf(log->device, sizeof(log->device), "%s", co_current_device(ctx));
    return data_pipeline(ctx, log->pipeline);
}

static const struct {
    int         replicas; /* 0: OneDevice, -1: default */
    const char *pipeline, *steps, *spec;
    int64_t     dropped;
} from_function[] = {
    { -1, "range(5).batch(2)", "[0,1] [2,3] [4]", "int64[-1]", 0 },
    { 0, "range(5).batch(2)", "[0,1] [2,3] [4]", "int64[-1]", 0 },
    { 0, "range(3)", "0 1 2", "int64[]", 0 },
    { 2, "range(6).batch(2)", "{[0,1],[2,3]} {[4,5],[]}", "{int64[-1],int64[-1]}", 0 },
    { 2, "range(0).batch(2)", "", "{int64[-1],int64[-1]}", 0 },
    { 2, "range(3)", "{0,1}", "{int64[],int64[]}", 1 },
    { 2, "range(6).batch_drop(2)", "{[0,1],[2,3]}", "{int64[2],int64[2]}", 2 },
    { 2, "range(9).batch_drop(2)", "{[0,1],[2,3]} {[4,5],[6,7]}", "{int64[2],int64[2]}", 0 },
    { 4, "range(7).batch_drop(2)", "", "{int64[2],int64[2],int64[2],int64[2]}", 6 },
    { 4, "range(7)", "{0,1,2,3}", "{int64[],int64[],int64[],int64[]}", 3 },
    { 2, "range(3).repeat.batch(2)", "{[0,1],[2,0]} {[1,2],[0,1]} {[2,0],[1,2]} {[0,1],[2,0]} ...",
      "{int64[-1],int64[-1]}", 0 },
    { 2, "range(4).batch(2).batch(3)", "{[[0,1],[2,3]],[]}", "{int64[-1,-1],int64[-1,-1]}", 0 },
};

CO_TEST_WITH(
    functions_give_the_dataset_of_a_worker,
    "DS-FN-1 DS-FN-2 DS-FN-3 DS-FN-5 DS-FN-6 DS-PART-2 DS-PART-3 DS-PART-4 DS-PART-5 DS-PART-6 "
    "DEF-4 OD-FN-1 IC-1",
    "cpus=4")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(from_function) / sizeof(from_function[0]); ++i)
        CO_BLOCK(ctx) {
            int          n = from_function[i].replicas;
            co_strategy *strategy = n > 0    ? mirrored(ctx, n)
                                    : n == 0 ? co_one_device_strategy(ctx, "/cpu:1")
                                             : co_default_strategy(ctx);
            call_log     log = { .pipeline = from_function[i].pipeline };
            co_dataset *dataset = co_distribute_datasets_from_function(ctx, strategy, as_told, &log,
                                                                       NULL);
            co_iterator *iterator = co_iterate(ctx, dataset);

            CO_EXPECT_INT(log.calls, 1);
            CO_EXPECT_INT(log.inputs[0].num_input_pipelines, 1);
            CO_EXPECT_INT(log.inputs[0].input_pipeline_id, 0);
            CO_EXPECT_INT(log.inputs[0].num_replicas_in_sync, n > 0 ? n : 1);
            CO_EXPECT_CONTAINS(log.device, "CPU:0");
            CO_EXPECT_STR(data_rest(ctx, iterator, 4, text), from_function[i].steps);
            CO_EXPECT_INT(co_iterator_dropped_rows(ctx, iterator), from_function[i].dropped);
            CO_EXPECT_FALSE(co_optional_has_value(ctx, co_get_next_as_optional(ctx, iterator)) &&
                            strstr(from_function[i].pipeline, "repeat") == NULL);
            CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text),
                          from_function[i].spec);
            CO_EXPECT_STR(data_text(ctx, co_iterator_element_spec(ctx, iterator), text),
                          from_function[i].spec);
            CO_EXPECT_INT(log.calls, 1);
            if (!CO_EXPECT_OK(ctx))
                test_fail(TEST_AT, "at %s on %d replicas", from_function[i].pipeline, n);
        }
}

/* The optional of a step that cannot serve every replica is empty, without a call of next before
 * it. */
CO_TEST_WITH(an_incomplete_static_step_is_the_end_for_optionals_too, "DS-PART-4 DS-PART-6 AMB-16",
             "cpus=2")
{
    call_log    log = { .pipeline = "range(6).batch_drop(2)" };
    co_dataset *dataset = co_distribute_datasets_from_function(ctx, mirrored(ctx, 2), as_told, &log,
                                                               NULL);
    co_iterator *iterator = co_iterate(ctx, dataset);

    CO_EXPECT_TRUE(co_optional_has_value(ctx, co_get_next_as_optional(ctx, iterator)));
    CO_EXPECT_FALSE(co_optional_has_value(ctx, co_get_next_as_optional(ctx, iterator)));
    CO_EXPECT_INT(co_iterator_dropped_rows(ctx, iterator), 2);
}

CO_TEST_WITH(one_dataset_per_replica, "IO-4 IRM-1 OD-FN-2", "cpus=2")
{
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    call_log         log = { .pipeline = "range(6).batch(2)" };
    co_dataset      *dataset;
    char             text[DATA_TEXT];

    options.per_replica = true;
    dataset = co_distribute_datasets_from_function(ctx, mirrored(ctx, 2), as_told, &log, &options);
    CO_EXPECT_INT(log.calls, 2);
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_INT(log.inputs[i].num_input_pipelines, 2);
        CO_EXPECT_INT(log.inputs[i].input_pipeline_id, i);
        CO_EXPECT_INT(log.inputs[i].num_replicas_in_sync, 2);
    }
    CO_EXPECT_STR(data_elements(ctx, dataset, 9, text),
                  "{[0,1],[0,1]} {[2,3],[2,3]} {[4,5],[4,5]}");
    options.place_dataset_on_device = true;
    CO_EXPECT_NULL(
        co_distribute_datasets_from_function(ctx, mirrored(ctx, 2), as_told, &log, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "fetch_to_device");
    options.fetch_to_device = false;
    dataset = co_distribute_datasets_from_function(ctx, mirrored(ctx, 2), as_told, &log, &options);
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, co_next(ctx, co_iterate(ctx, dataset)), 1)),
                       "CPU:1");
    CO_EXPECT_NULL(co_distribute_datasets_from_function(ctx, co_one_device_strategy(ctx, "/cpu:0"),
                                                        as_told, &log, &options));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "OneDeviceStrategy");
}

static co_dataset *
by_replica(co_context *ctx, const co_input_context *input, void *user)
{
    const char *const *pipelines = user;

    return data_pipeline(ctx, pipelines[input->input_pipeline_id]);
}

CO_TEST_WITH(datasets_of_replicas_may_differ_in_shape_alone, "IO-4", "cpus=2")
{
    const char      *shapes[] = { "range(6).batch_drop(2)", "range(3).batch_drop(3)" };
    const char      *kinds[] = { "range(6).batch_drop(2)", "range(6)" };
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    co_dataset      *dataset;
    char             text[DATA_TEXT];

    options.per_replica = true;
    dataset = co_distribute_datasets_from_function(ctx, mirrored(ctx, 2), by_replica, shapes,
                                                   &options);
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), "{int64[-1],int64[-1]}");
    CO_EXPECT_STR(data_elements(ctx, dataset, 9, text), "{[0,1],[0,1,2]} {[2,3],[]} {[4,5],[]}");
    dataset = co_distribute_datasets_from_function(ctx, mirrored(ctx, 2), by_replica, kinds,
                                                   &options);
    CO_EXPECT_INT(co_value_ndim(ctx, co_at(ctx, co_element_spec(ctx, dataset), 0)), -1);
}

static co_dataset *
failing(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    co_device_begin(ctx, "/cpu:0"); /* left open */
    co_fail(ctx, CO_DATA_LOSS, "boom %d", *(int *)user);
    return NULL;
}

static co_dataset *
nothing(co_context *ctx, const co_input_context *input, void *user)
{
    (void)ctx, (void)input;
    return user;
}

CO_TEST_WITH(a_function_that_fails_is_heard_unchanged, "DS-FN-4 GEN-ERR-1 GEN-ERR-2", "cpus=2")
{
    co_strategy *strategies[] = { mirrored(ctx, 2), co_one_device_strategy(ctx, "/cpu:0"),
                                  co_default_strategy(ctx) };
    int          number = 42;

    for (int i = 0; i < 2; ++i) {
        co_device_begin(ctx, "/cpu:1");
        CO_EXPECT_NULL(
            co_distribute_datasets_from_function(ctx, strategies[i], failing, &number, NULL));
        CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:1");
        co_device_end(ctx);
        CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "boom 42");
    }
    for (int i = 0; i < 3; ++i) {
        CO_EXPECT_NULL(
            co_distribute_datasets_from_function(ctx, strategies[i], nothing, NULL, NULL));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "returned NULL");
        CO_EXPECT_NULL(
            co_distribute_datasets_from_function(ctx, strategies[i], nothing, strategies[i], NULL));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a plain dataset");
        CO_EXPECT_NULL(co_distribute_datasets_from_function(ctx, strategies[i], NULL, NULL, NULL));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn)");
    }
}

/* --- contexts --- */

static co_value *
ask_inside(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_next(ctx, user);
}

CO_TEST_WITH(elements_are_taken_outside_the_step, "DS-ITER-4 DS-DIST-6", "cpus=2")
{
    co_strategy *two = mirrored(ctx, 2), *other = co_one_device_strategy(ctx, "/cpu:0");
    co_iterator *iterator = NULL;
    char         text[DATA_TEXT];

    CO_SCOPE(ctx, other) {
        co_dataset *dataset = co_distribute_dataset(ctx, two,
                                                    data_pipeline(ctx, "range(8).batch(2)"), NULL);

        iterator = co_iterate(ctx, dataset);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_NULL(co_next(ctx, iterator));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
    CO_EXPECT_NULL(co_run(ctx, two, ask_inside, co_no_args(ctx), iterator));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "outside the step");
    CO_SCOPE(ctx, two) {
        CO_EXPECT_STR(data_text(ctx, co_next(ctx, iterator), text), "{[0],[1]}");
    }
    CO_EXPECT_STR(data_text(ctx, co_next(ctx, iterator), text), "{[2],[3]}");
}

CO_TEST_WITH(a_pipeline_error_ends_the_step_not_the_iteration, "DS-ITER-8", "cpus=2")
{
    co_dataset  *dataset = data_pipeline(ctx, "range(7).batch(2).batch(2).repeat(2)");
    co_iterator *iterator = co_iterate(ctx,
                                       co_distribute_dataset(ctx, mirrored(ctx, 2), dataset, NULL));
    char         text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_next(ctx, iterator), text), "{[[0,1]],[[2,3]]}");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "cannot batch");
    CO_EXPECT_STR(data_text(ctx, co_next(ctx, iterator), text), "{[[0,1]],[[2,3]]}");
}

static co_value *
add_examples(co_context *ctx, co_value *args, void *user)
{
    co_iterator *unused = user;

    (void)unused;
    return co_int(ctx, co_item_int(ctx, co_at(ctx, args, 0)) * 10 +
                           (int64_t)co_num_items(ctx, co_at(ctx, args, 1)));
}

CO_TEST_WITH(reduce_folds_over_steps, "DS-ITER-9", "cpus=2")
{
    co_dataset *dataset = co_distribute_dataset(ctx, mirrored(ctx, 2),
                                                data_pipeline(ctx, "range(5).batch(2)"), NULL);

    CO_EXPECT_INT(
        co_item_int(ctx, co_dataset_reduce(ctx, dataset, co_int(ctx, 0), add_examples, NULL)), 222);
}

static co_value *
sum_rows(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_scalar_int64(ctx, co_value_num_elements(ctx, co_at(ctx, args, 0)));
}

CO_TEST_WITH(every_example_is_used_once, "DS-SPEC-3 DS-PART-2", "cpus=2")
{
    co_strategy *strategy = mirrored(ctx, 2);
    co_iterator *iterator = co_iterate(
        ctx, co_distribute_dataset(ctx, strategy, data_pipeline(ctx, "range(17).batch(4)"), NULL));
    int64_t rows = 0, told = 0;

    for (bool more = true; more;)
        CO_BLOCK(ctx) {
            co_value *x = co_next(ctx, iterator);

            more = x != NULL;
            if (more) {
                co_value *counts = co_run(ctx, strategy, sum_rows, co_args(ctx, x), NULL);
                co_value *parts = co_local_results(ctx, strategy, counts);

                for (size_t i = 0; i < co_num_items(ctx, parts); ++i)
                    rows += co_item_int(ctx, co_at(ctx, parts, i));
                told += co_iterator_step_examples(ctx, iterator);
            }
        }
    CO_EXPECT_INT(told, 17);
    CO_EXPECT_INT(rows, 17);
}

static co_value *
share_of_mean(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_average_loss(ctx, co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT64));
}

CO_TEST_WITH(an_uneven_step_is_averaged_over_its_examples, "DS-PART-2", "cpus=3")
{
    static const double means[] = { 1.5, 5.5, 8.5 }; /* of [0,1|2,3|], [4,5|6,7|], [8|9|] */
    co_strategy        *strategy = mirrored(ctx, 3);
    co_dataset         *dataset = data_pipeline(ctx, "range(10).batch(4)");
    int                 step = 0;

    CO_EACH(ctx, x, co_iterate(ctx, co_distribute_dataset(ctx, strategy, dataset, NULL))) {
        co_value *shares = co_run(ctx, strategy, share_of_mean, co_args(ctx, x), NULL);
        co_value *mean = co_reduce(ctx, strategy, CO_REDUCE_SUM, shares, NULL, 0);

        CO_EXPECT_CLOSE(co_item_float(ctx, mean), means[step++], 1e-12);
    }
    CO_EXPECT_INT(step, 3);
}

/* --- the log --- */

typedef struct line_count {
    int  info, warning;
    char last[200];
} line_count;

static void
count_line(co_log_level level, const char *line, void *user)
{
    line_count *count = user;

    count->info += level == CO_LOG_INFO && strstr(line, "dropped") != NULL;
    count->warning += level == CO_LOG_WARNING && strstr(line, "AUTO becomes DATA") != NULL;
    snprintf(count->last, sizeof(count->last), "%s", line);
}

CO_TEST_BARE(dropped_rows_are_told_once_and_only_when_dropped, "DS-PART-5 DS-SHARD-7")
{
    line_count       count = { 0 };
    co_options       options = CO_OPTIONS_INIT;
    co_context      *own;
    co_strategy     *strategy;
    call_log         log = { .pipeline = "range(7).batch_drop(2)" };
    co_input_context second = { 2, 1, 2 };
    co_iterator     *iterator;
    char             text[DATA_TEXT];

    options.settings = "cpus=2, log=info";
    options.log = count_line;
    options.log_user = &count;
    own = co_open_with(&options);
    strategy = mirrored(own, 2);
    iterator = co_iterate(own,
                          co_distribute_datasets_from_function(own, strategy, as_told, &log, NULL));
    data_rest(own, iterator, 9, text);
    CO_EXPECT_INT(count.info, 1);
    CO_EXPECT_CONTAINS(count.last, "2 rows");
    data_rest(own, iterator, 9, text);
    CO_EXPECT_INT(count.info, 1);
    CO_EXPECT_INT(co_iterator_dropped_rows(own, iterator), 2);
    log.pipeline = "range(8).batch_drop(2)";
    iterator = co_iterate(own,
                          co_distribute_datasets_from_function(own, strategy, as_told, &log, NULL));
    data_rest(own, iterator, 9, text);
    CO_EXPECT_INT(count.info, 1);
    CO_EXPECT_INT(count.warning, 0);
    co_dataset_for_worker(own, data_pipeline(own, "range(4).batch(2)"), &second);
    CO_EXPECT_INT(count.warning, 1);
    co_dataset_for_worker(own, data_pipeline(own, "range(4).batch(2).DATA"), &second);
    CO_EXPECT_INT(count.warning, 1);
    CO_EXPECT_CODE(co_close(own), CO_OK);
}

/* --- memory --- */

CO_TEST_WITH(steps_take_nothing_from_the_allocator, "", "cpus=2")
{
    float           data[64 * 9] = { 0 };
    co_dataset     *slices = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32,
                                                                          CO_SHAPE(64, 9), data));
    co_dataset     *batches = co_dataset_batch(ctx, co_dataset_repeat(ctx, slices, -1), 16, false);
    co_iterator    *iterator = co_iterate(ctx,
                                          co_distribute_dataset(ctx, mirrored(ctx, 2), batches, NULL));
    co_memory_stats before = { .struct_size = sizeof(before) }, after = before;

    for (int i = 0; i < 4000; ++i) {
        if (i == 3000)
            co_get_memory_stats(ctx, &before);
        CO_BLOCK(ctx) {
            co_next(ctx, iterator);
        }
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.bytes_in_use - before.bytes_in_use, 0);
    if (!DATA_ADDRESS_SANITIZER)
        CO_EXPECT_INT(after.system_allocations - before.system_allocations, 0);
}

static bool
distribute_and_read(co_context *ctx)
{
    co_strategy     *strategy = mirrored(ctx, 2);
    co_dataset      *dataset = co_distribute_dataset(ctx, strategy,
                                                     data_pipeline(ctx, "range(5).batch(2)"), NULL);
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    call_log         log = { .pipeline = "range(3).batch(1)" };
    co_iterator     *a, *b;
    int              steps = 0;

    options.per_replica = true;
    a = co_iterate(ctx, dataset);
    while (co_next(ctx, a) != NULL)
        ++steps;
    b = co_iterate(ctx,
                   co_distribute_datasets_from_function(ctx, strategy, as_told, &log, &options));
    while (co_next(ctx, b) != NULL)
        ++steps;
    return steps == 6;
}

CO_TEST_BARE(no_memory_while_distributing_is_an_error, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", distribute_and_read);
}

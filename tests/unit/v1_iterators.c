/* SPDX-License-Identifier: Apache-2.0 */
/* Input iterators of the v1 surface: ITER1-* in eager form, callables, misuse. */
#include <cohort/v1.h>
#include "context/context.h"
#include "data_support.h"
#include "scarce.h"

#include <pthread.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static co_strategy *
mirrored(co_context *ctx, size_t n)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:2" };

    return co_v1_mirrored_strategy(ctx, devices, n, NULL);
}

/* --- of a dataset --- */

CO_TEST_WITH(dataset_iterators_divide_batches,
             "ITER1-DS-1 ITER1-INIT-1 ITER1-INIT-2 ITER1-INIT-3 ITER1-NEXT-1", "cpus=3")
{
    static const struct {
        size_t      replicas; /* 0: OneDevice */
        const char *pipeline, *elements;
    } cases[] = {
        { 0, "range(5).batch(2)", "[0,1] [2,3] [4]" },
        { 0, "range(3)", "0 1 2" },
        { 1, "range(5).batch(2)", "[0,1] [2,3] [4]" },
        { 2, "range(9).batch(4)", "{[0,1],[2,3]} {[4,5],[6,7]} {[8],[]}" },
        { 2, "range(5).batch(3)", "{[0,1],[2]} {[3],[4]}" },
        { 2, "range(10).batch_drop(4)", "{[0,1],[2,3]} {[4,5],[6,7]}" },
        { 3, "range(4).batch(4)", "{[0,1],[2,3],[]}" },
        { 2, "range(0).batch(2)", "" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < LENGTH(cases); ++i) {
        co_strategy *s = cases[i].replicas == 0 ? co_v1_one_device_strategy(ctx, "/cpu:1")
                                                : mirrored(ctx, cases[i].replicas);
        co_iterator *it = co_make_dataset_iterator(ctx, s, data_pipeline(ctx, cases[i].pipeline));

        CO_EXPECT_STR(data_rest(ctx, it, 10, text), cases[i].elements); /* without initialize */
        CO_EXPECT_NULL(co_get_next(ctx, it));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
        CO_EXPECT_NULL(co_get_next(ctx, it)); /* again and again */
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
        CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it));
        CO_EXPECT_STR(data_rest(ctx, it, 10, text), cases[i].elements);
        CO_EXPECT_NOT_NULL(co_iterator_initializer(ctx, it));
        co_next(ctx, it);
        CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it)); /* in the middle */
        CO_EXPECT_STR(data_rest(ctx, it, 10, text), cases[i].elements);
    }
}

CO_TEST_WITH(elements_are_on_the_replicas_devices, "ITER1-NEXT-1 OD1-1", "cpus=2")
{
    co_iterator *it = co_make_dataset_iterator(ctx, mirrored(ctx, 2),
                                               data_pipeline(ctx, "range(4).batch(4)"));
    co_value    *x = co_get_next(ctx, it);

    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, x, 0)), "CPU:0");
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, x, 1)), "CPU:1");
    CO_EXPECT_INT(co_iterator_step_examples(ctx, it), 4);
    it = co_make_dataset_iterator(ctx, co_v1_one_device_strategy(ctx, "/cpu:1"),
                                  data_pipeline(ctx, "range(4).batch(3)"));
    CO_EXPECT_INT(co_iterator_step_examples(ctx, it), -1);
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_get_next(ctx, it)), "CPU:1");
    CO_EXPECT_INT(co_iterator_step_examples(ctx, it), 3);
    co_iterator_initialize(ctx, it);
    CO_EXPECT_INT(co_iterator_step_examples(ctx, it), -1);
    it = co_make_dataset_iterator(ctx, co_v1_default_strategy(ctx),
                                  data_pipeline(ctx, "range(4).batch(3)"));
    co_get_next(ctx, it);
    CO_EXPECT_INT(co_iterator_step_examples(ctx, it), 3);
}

/* They have no position; what the message advises has one. */
CO_TEST_WITH(positions_are_those_of_other_iterators, "ITER1-DS-1", "cpus=2")
{
    co_strategy *s = mirrored(ctx, 2);
    co_dataset  *batches = data_pipeline(ctx, "range(8).batch(4)");
    co_dataset  *distributed = co_distribute_dataset(ctx, s, batches, NULL);
    co_iterator *it = co_make_dataset_iterator(ctx, s, batches);
    char         text[DATA_TEXT];

    CO_EXPECT_NULL(co_iterator_save(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED,
                    "input iterator cannot be saved; use co_iterate with co_distribute_dataset or "
                    "co_distribute_datasets_from_function in its place");
    it = co_iterate(ctx, distributed);
    co_next(ctx, it);
    it = co_iterator_restore(ctx, distributed, co_iterator_save(ctx, it));
    CO_EXPECT_STR(data_rest(ctx, it, 10, text), "{[4,5],[6,7]}");
}

CO_TEST_WITH(iterators_of_one_dataset_are_independent, "ITER1-DS-1 ITER1-INIT-1", "cpus=2")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_dataset  *data = data_pipeline(ctx, "range(8).batch(4)");
    co_iterator *a = co_make_dataset_iterator(ctx, s, data),
                *b = co_make_dataset_iterator(ctx, s, data);
    char text[DATA_TEXT];

    co_get_next(ctx, a);
    CO_EXPECT_STR(data_rest(ctx, b, 9, text), "[0,1,2,3] [4,5,6,7]");
    CO_EXPECT_STR(data_rest(ctx, a, 9, text), "[4,5,6,7]");
    co_iterator_initialize(ctx, a);
    CO_EXPECT_NULL(co_next(ctx, b));
}

CO_TEST_WITH(unbatched_datasets_cannot_be_divided, "ITER1-DS-2 DS-DIST-5", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);

    CO_EXPECT_NULL(co_make_dataset_iterator(ctx, m, data_pipeline(ctx, "range(5)")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batch");
    CO_EXPECT_NULL(co_make_dataset_iterator(ctx, m, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3 (dataset) of make_dataset_iterator");
    CO_EXPECT_NULL(co_make_dataset_iterator(ctx, NULL, data_pipeline(ctx, "range(5)")));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_make_dataset_iterator(ctx, m, (co_dataset *)(void *)m));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dataset");
    CO_EXPECT_NULL(co_make_dataset_iterator(
        ctx, m, co_distribute_dataset(ctx, m, data_pipeline(ctx, "range(5).batch(2)"), NULL)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "distributed");
}

/* --- of a function --- */

typedef struct source {
    const char          *pipeline; /* NULL: what follows instead */
    co_input_callable_fn callable;
    void                *wrong;
    int64_t              global_batch;
    int                  calls, numbers;
    co_strategy         *strategy;
    co_input_context     seen;
    char                 device[CO_DEVICE_NAME_MAX];
} source;

static co_dataset *
input_fn(co_context *ctx, const co_input_context *input, void *user)
{
    source *s = user;

    ++s->calls;
    s->seen = *input;
    snprintf(s->device, sizeof(s->device), "%s", co_current_device(ctx));
    if (s->strategy != NULL) {
        CO_EXPECT_PTR(co_get_strategy(ctx), s->strategy);
        CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    }
    if (s->callable != NULL)
        return co_input_callable(ctx, s->callable, s);
    if (s->global_batch > 0)
        return co_dataset_batch(ctx, data_pipeline(ctx, s->pipeline),
                                co_per_replica_batch_size(ctx, input, s->global_batch), false);
    return s->pipeline != NULL ? data_pipeline(ctx, s->pipeline) : s->wrong;
}

static co_iterator *
from_function(co_context *ctx, co_strategy *strategy, source *s)
{
    return co_make_input_fn_iterator(ctx, strategy, input_fn, s, CO_INPUT_PER_WORKER);
}

CO_TEST_WITH(input_functions_serve_every_replica,
             "ITER1-FN-2 ITER1-FN-4 ITER1-INIT-2 ITER1-INIT-3 IRM-1 IC-1 IC-2", "cpus=3")
{
    static const struct {
        size_t      replicas;
        const char *pipeline, *elements;
        int64_t     global_batch, dropped;
    } cases[] = {
        { 1, "range(5).batch(2)", "[0,1] [2,3] [4]", 0, 0 },
        { 2, "range(5).batch(1)", "{[0],[1]} {[2],[3]}", 0, 1 },
        { 2, "range(6).batch(2)", "{[0,1],[2,3]}", 0, 2 },
        { 3, "range(7)", "{0,1,2} {3,4,5}", 0, 1 },
        { 2, "range(12)", "{[0,1,2],[3,4,5]} {[6,7,8],[9,10,11]}", 6, 0 },
        { 2, "range(12)", "{[0,1,2,3,4],[5,6,7,8,9]}", 10, 2 },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < LENGTH(cases); ++i) {
        co_strategy *s = mirrored(ctx, cases[i].replicas);
        source       from = { .pipeline = cases[i].pipeline,
                              .global_batch = cases[i].global_batch,
                              .strategy = s };
        co_iterator *it = from_function(ctx, s, &from);

        CO_EXPECT_INT(from.calls, 1);
        CO_EXPECT_INT(from.seen.num_input_pipelines, 1);
        CO_EXPECT_INT(from.seen.input_pipeline_id, 0);
        CO_EXPECT_INT(from.seen.num_replicas_in_sync, cases[i].replicas);
        CO_EXPECT_CONTAINS(from.device, "CPU:0");
        CO_EXPECT_STR(data_rest(ctx, it, 10, text), cases[i].elements);
        CO_EXPECT_INT(co_iterator_dropped_rows(ctx, it), cases[i].dropped);
        CO_EXPECT_NULL(co_get_next(ctx, it));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
        CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it));
        CO_EXPECT_INT(co_iterator_dropped_rows(ctx, it), 0);
        CO_EXPECT_STR(data_rest(ctx, it, 10, text), cases[i].elements);
        CO_EXPECT_INT(from.calls, 1); /* of the same dataset */
        CO_EXPECT_FALSE(co_has_strategy(ctx));
    }
}

CO_TEST_WITH(input_functions_are_called_in_the_scope, "ITER1-FN-2", "cpus=2")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, "/cpu:1"), *d = co_v1_default_strategy(ctx);
    source       from = { .pipeline = "range(4).batch(2)", .strategy = one };
    char         text[DATA_TEXT];

    CO_SCOPE(ctx, one)
        CO_EXPECT_STR(data_rest(ctx, from_function(ctx, one, &from), 9, text), "[0,1] [2,3]");
    CO_EXPECT_CONTAINS(from.device, "CPU:0"); /* the host of cpu:1 */
    from.strategy = NULL;
    CO_DEVICE(ctx, "/cpu:1")
        CO_EXPECT_STR(data_rest(ctx, from_function(ctx, d, &from), 9, text), "[0,1] [2,3]");
    CO_EXPECT_CONTAINS(from.device, "CPU:1"); /* the default strategy has no host */
    CO_SCOPE(ctx, one) {
        CO_EXPECT_NULL(from_function(ctx, d, &from));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    }
}

CO_TEST_WITH(only_per_worker_is_a_mode, "ITER1-FN-1", "cpus=2")
{
    static const int modes[] = { CO_INPUT_PER_REPLICA, -1, 2, 1 << 30 };
    co_strategy     *all[] = { mirrored(ctx, 2), co_v1_one_device_strategy(ctx, NULL),
                               co_v1_default_strategy(ctx) };
    source           from = { .pipeline = "range(4)" };

    for (size_t i = 0; i < LENGTH(all) * LENGTH(modes); ++i) {
        co_input_replication_mode mode = (co_input_replication_mode)modes[i % LENGTH(modes)];

        CO_EXPECT_NULL(
            co_make_input_fn_iterator(ctx, all[i / LENGTH(modes)], input_fn, &from, mode));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "only CO_INPUT_PER_WORKER");
    }
    CO_EXPECT_INT(from.calls, 0); /* said before */
    CO_EXPECT_NULL(co_make_input_fn_iterator(ctx, all[0], NULL, NULL, CO_INPUT_PER_WORKER));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "input_fn");
    CO_EXPECT_NULL(co_make_input_fn_iterator(ctx, NULL, input_fn, &from, CO_INPUT_PER_WORKER));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

static co_dataset *
fail_after_opening_things(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    co_scope_begin(ctx, user);
    co_device_begin(ctx, "/cpu:1");
    co_fail(ctx, CO_DATA_LOSS, "boom in input_fn");
    return NULL;
}

CO_TEST_WITH(results_of_input_functions_are_checked, "ITER1-FN-3 GEN-ERR-1 GEN-ERR-2", "cpus=2")
{
    co_strategy *all[] = { mirrored(ctx, 2), co_v1_one_device_strategy(ctx, NULL),
                           co_v1_default_strategy(ctx) };

    for (size_t i = 0; i < LENGTH(all); ++i) {
        void *wrong[] = { NULL,
                          co_int(ctx, 7),
                          co_list(ctx, NULL, 0),
                          co_scalar_float(ctx, 1),
                          all[0],
                          co_distribute_dataset(ctx, all[0],
                                                data_pipeline(ctx, "range(4).batch(2)"), NULL) };

        for (size_t k = 0; k < LENGTH(wrong); ++k) {
            source from = { .wrong = wrong[k] };

            CO_EXPECT_NULL(from_function(ctx, all[i], &from));
            CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input_fn returned");
            CO_EXPECT_INT(from.calls, 1);
        }
    }
    CO_EXPECT_NULL(co_make_input_fn_iterator(ctx, all[1], fail_after_opening_things, all[1],
                                             CO_INPUT_PER_WORKER));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "boom in input_fn"); /* travels unchanged */
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
}

/* --- callables --- */

static co_value *
count_up(co_context *ctx, void *user)
{
    source *s = user;

    return co_scalar_int32(ctx, ++s->numbers);
}

static co_value *
structure_of_three(co_context *ctx, void *user)
{
    co_value *n = count_up(ctx, user);

    return co_args(ctx, n, co_list(ctx, &n, 1), co_string(ctx, "a"));
}

static co_value *
nothing(co_context *ctx, void *user)
{
    (void)ctx, (void)user;
    return NULL;
}

static co_value *
fail_at_three(co_context *ctx, void *user)
{
    source *s = user;

    co_block_begin(ctx); /* what it leaves open is closed */
    co_block_end(ctx);
    co_block_end(ctx); /* and what is not its own stays */
    co_clear(ctx);
    co_block_begin(ctx);
    co_device_begin(ctx, "/cpu:1");
    if (++s->numbers == 3)
        return co_fail(ctx, CO_ABORTED, "no third"), NULL;
    return co_scalar_int32(ctx, s->numbers);
}

static co_value *
dead(co_context *ctx, void *user)
{
    co_value *value = co_scalar_float(ctx, 1);

    (void)user;
    co_block_begin(ctx);
    value = co_scalar_float(ctx, 2);
    co_block_end(ctx);
    return value;
}

CO_TEST_WITH(callables_are_called_once_per_replica, "ITER1-FN-3 ITER1-NEXT-1 ITER1-NEXT-2",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2), *one = co_v1_one_device_strategy(ctx, "/cpu:1");
    source       from = { .callable = count_up };
    co_iterator *it = from_function(ctx, m, &from);
    char         text[DATA_TEXT];
    co_value    *x;

    CO_EXPECT_INT(from.numbers, 0); /* not before it is asked */
    CO_EXPECT_STR(data_rest(ctx, it, 2, text), "{1,2} {3,4} ...");
    CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it)); /* it has no beginning to go back to */
    x = co_get_next(ctx, it);
    CO_EXPECT_STR(data_text(ctx, x, text), "{7,8}");
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, x, 1)), "CPU:1");
    CO_EXPECT_INT(co_value_kind(co_iterator_output_types(ctx, it)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_iterator_output_shapes(ctx, it)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_iterator_element_spec(ctx, it)), CO_KIND_SPEC);
    co_format(ctx, co_iterator_element_spec(ctx, it), text, sizeof(text));
    CO_EXPECT_STR(text, "TensorSpec(<unknown rank>, none)");

    from = (source){ .callable = structure_of_three };
    x = co_get_next(ctx, from_function(ctx, m, &from));
    CO_EXPECT_INT(co_num_items(ctx, x), 3);
    CO_EXPECT_STR(data_text(ctx, co_at(ctx, co_at(ctx, x, 1), 0), text), "{1,2}");
    CO_EXPECT_INT(co_value_kind(co_at(ctx, co_at(ctx, x, 2), 0)), CO_KIND_STRING);

    from = (source){ .callable = count_up };
    x = co_get_next(ctx, from_function(ctx, one, &from));
    CO_EXPECT_STR(data_text(ctx, x, text), "1"); /* plain for one replica */
    CO_EXPECT_CONTAINS(co_value_device(ctx, x), "CPU:1");
    CO_EXPECT_STR(data_rest(ctx, from_function(ctx, co_v1_default_strategy(ctx), &from), 1, text),
                  "2 ...");
    from = (source){ .callable = nothing };
    x = co_get_next(ctx, from_function(ctx, one, &from));
    CO_EXPECT_INT(co_value_kind(x), CO_KIND_NONE);
}

CO_TEST_WITH(callables_may_fail, "ITER1-FN-3 DS-ITER-8 GEN-ERR-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    source       from = { .callable = fail_at_three };
    co_iterator *it = from_function(ctx, m, &from);
    char         text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_get_next(ctx, it), text), "{1,2}");
    CO_EXPECT_NULL(co_get_next(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "no third");
    CO_EXPECT_STR(data_text(ctx, co_get_next(ctx, it), text), "{4,5}"); /* it may go on */
    CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
    CO_EXPECT_NULL(co_input_callable(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    if (!DATA_ADDRESS_SANITIZER) { /* which finds the dead value first */
        from = (source){ .callable = dead };
        CO_EXPECT_NULL(co_get_next(ctx, from_function(ctx, m, &from)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "input callable");
    }
}

CO_TEST_WITH(callables_are_no_datasets, "ITER1-FN-3", "cpus=2")
{
    source      from = { .callable = count_up };
    co_dataset *made = co_input_callable(ctx, count_up, &from);
    char        text[DATA_TEXT];

    CO_EXPECT_INT(co_cardinality(ctx, made), CO_INFINITE);
    CO_EXPECT_STR(data_elements(ctx, made, 2, text), "1 2 ...");
    CO_EXPECT_NULL(co_dataset_batch(ctx, made, 2, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_NULL(co_distribute_dataset(ctx, mirrored(ctx, 2), made, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

/* A device that is not there is found when the first element is placed (DEV-5). */
CO_TEST_WITH(callables_need_the_device, "ITER1-NEXT-1 DEV-5", "cpus=2")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, "/gpu:7");
    source       from = { .callable = count_up };

    CO_EXPECT_NULL(co_get_next(ctx, from_function(ctx, s, &from)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:7");
}

/* --- looking --- */

CO_TEST_WITH(iterators_describe_their_elements, "ITER1-NEXT-2", "cpus=2")
{
    static const int64_t rows[4] = { 0, 1, 2, 3 };
    static const float   parts[8] = { 0 };

    co_value    *pair = co_args(ctx, co_tensor(ctx, CO_INT64, CO_SHAPE(4), rows),
                                co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4, 2), parts));
    co_dataset  *data = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, pair), 2, false);
    co_iterator *it = co_make_dataset_iterator(ctx, mirrored(ctx, 2), data);
    source       from = { .pipeline = "range(6).batch(2)" };
    char         text[DATA_TEXT];
    co_value    *types = co_iterator_output_types(ctx, it);

    CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, types, 0), 0, NULL), "int64");
    CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, types, 1), 0, NULL), "float32");
    CO_EXPECT_STR(data_text(ctx, co_iterator_output_shapes(ctx, it), text), "([-1],[-1,2])");
    CO_EXPECT_STR(data_text(ctx, co_iterator_element_spec(ctx, it), text),
                  "({int64[-1],int64[-1]},{float32[-1,2],float32[-1,2]})");
    CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, co_iterator_output_classes(ctx, it), 1), 0, NULL),
                  "Tensor");
    it = from_function(ctx, mirrored(ctx, 2), &from);
    CO_EXPECT_STR(data_text(ctx, co_iterator_element_spec(ctx, it), text), "{int64[-1],int64[-1]}");
    it = co_make_dataset_iterator(ctx, co_v1_one_device_strategy(ctx, NULL),
                                  data_pipeline(ctx, "range(4)"));
    CO_EXPECT_STR(data_text(ctx, co_iterator_output_shapes(ctx, it), text), "[]");
    CO_EXPECT_STR(data_text(ctx, co_iterator_element_spec(ctx, it), text), "int64[]");
}

CO_TEST_WITH(v1_datasets_are_iterated_once, "ITER1-DD-1", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_dataset  *data = co_experimental_distribute_dataset(ctx, m,
                                                           data_pipeline(ctx, "range(5).batch(2)"),
                                                           NULL);
    co_iterator *it = co_make_one_shot_iterator(ctx, data);
    char         text[DATA_TEXT];

    CO_EXPECT_STR(data_rest(ctx, it, 9, text), "{[0],[1]} {[2],[3]} {[4],[]}");
    CO_EXPECT_NULL(co_iterator_initialize(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_iterate");
    CO_EXPECT_NULL(co_make_initializable_iterator(ctx, data));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "graph mode");
    CO_EXPECT_NULL(co_make_initializable_iterator(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dataset");
}

/* --- misuse --- */

static co_value *
use_in_a_replica(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    CO_EXPECT_NULL(co_get_next(ctx, user));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "outside the step");
    CO_EXPECT_NULL(co_iterator_initialize(ctx, user));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "outside the step");
    return NULL;
}

CO_TEST_WITH(iterators_are_used_where_their_strategy_is, "DS-ITER-4 ITER1-NEXT-1 ITER1-INIT-1",
             "cpus=2")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, "/cpu:1"), *m = mirrored(ctx, 2);
    source       from[] = { { .pipeline = "range(8).batch(2)" }, { .callable = count_up } };

    for (size_t i = 0; i < LENGTH(from); ++i) {
        co_iterator *it = from_function(ctx, one, &from[i]);

        co_run(ctx, one, use_in_a_replica, co_no_args(ctx), it);
        CO_SCOPE(ctx, m) {
            CO_EXPECT_NULL(co_get_next(ctx, it));
            CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
            CO_EXPECT_NULL(co_iterator_initialize(ctx, it));
            CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
        }
        CO_SCOPE(ctx, one) {
            CO_EXPECT_NOT_NULL(co_get_next(ctx, it));
            CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it));
        }
        /* An iterator of the default strategy is everybody's. */
        it = from_function(ctx, co_v1_default_strategy(ctx), &from[i]);
        CO_SCOPE(ctx, m) {
            CO_EXPECT_NOT_NULL(co_get_next(ctx, it));
            CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it));
        }
    }
}

CO_TEST_WITH(other_handles_are_no_iterators, "ITER1-INIT-1 ITER1-NEXT-2", "cpus=2")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_iterator *wrong = (co_iterator *)(void *)s, *it;

    CO_EXPECT_NULL(co_iterator_initialize(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
    CO_EXPECT_NULL(co_iterator_initialize(ctx, wrong));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strategy");
    CO_EXPECT_NULL(co_iterator_output_types(ctx, wrong));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "iterator");
    CO_EXPECT_NULL(co_iterator_output_shapes(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
    CO_EXPECT_NULL(co_iterator_output_classes(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
    co_block_begin(ctx);
    it = co_make_dataset_iterator(ctx, s, data_pipeline(ctx, "range(4)"));
    co_block_end(ctx);
    if (DATA_ADDRESS_SANITIZER) /* which finds the dead iterator first */
        return;
    CO_EXPECT_NULL(co_iterator_initialize(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a live iterator");
    CO_EXPECT_NULL(co_experimental_run(ctx, s, use_in_a_replica, it, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a live iterator");
}

CO_TEST_WITH(iterators_keep_what_they_need, "ITER1-DS-1", "cpus=2")
{
    co_iterator *it;
    char         text[DATA_TEXT];

    co_block_begin(ctx);
    it = co_make_dataset_iterator(ctx, mirrored(ctx, 2), data_pipeline(ctx, "range(4).batch(2)"));
    co_keep(ctx, it);
    co_block_end(ctx);
    co_get_next(ctx, it);
    co_iterator_initialize(ctx, it);
    CO_EXPECT_STR(data_rest(ctx, it, 9, text), "{[0],[1]} {[2],[3]}");
    co_release(ctx, it);
}

static void
call_all(co_context *ctx, co_strategy *s, co_iterator *it, co_dataset *data, co_value *x)
{
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

    CO_EXPECT_NULL(co_v1_one_device_strategy(ctx, NULL));
    CO_EXPECT_NULL(co_v1_mirrored_strategy(ctx, NULL, 0, NULL));
    CO_EXPECT_NULL(co_v1_multi_worker_mirrored_strategy(ctx, NULL));
    CO_EXPECT_FALSE(co_strategy_has_member(ctx, s, "run"));
    CO_EXPECT_NULL(co_make_dataset_iterator(ctx, s, data));
    CO_EXPECT_NULL(co_make_input_fn_iterator(ctx, s, input_fn, NULL, CO_INPUT_PER_WORKER));
    CO_EXPECT_NULL(co_input_callable(ctx, nothing, NULL));
    CO_EXPECT_NULL(co_iterator_initialize(ctx, it));
    CO_EXPECT_NULL(co_iterator_output_types(ctx, it));
    CO_EXPECT_NULL(co_iterator_output_shapes(ctx, it));
    CO_EXPECT_NULL(co_iterator_output_classes(ctx, it));
    CO_EXPECT_NULL(co_make_initializable_iterator(ctx, data));
    CO_EXPECT_NULL(co_experimental_run(ctx, s, use_in_a_replica, it, NULL));
    CO_EXPECT_NULL(co_update_config_proto(ctx, s, x));
    CO_EXPECT_NULL(co_config_for_cluster(ctx, x, &cluster));
    (void)co_v1_default_strategy(ctx); /* which answer while there is an error, as their kin does */
    (void)co_v1_get_strategy(ctx);
    CO_EXPECT_TRUE(co_v1_enable_eager_execution(ctx) != CO_OK);
    CO_EXPECT_TRUE(co_v1_disable_eager_execution(ctx) != CO_OK);
}

CO_TEST(nothing_happens_on_no_context_or_one_with_an_error, "")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_dataset  *data = data_pipeline(ctx, "range(4).batch(2)");
    co_iterator *it = co_make_dataset_iterator(ctx, s, data);
    co_value    *x = co_string(ctx, "");

    call_all(NULL, s, it, data, x);
    co_fail(ctx, CO_DATA_LOSS, "the first error");
    call_all(ctx, s, it, data, x);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "the first error");
}

/* --- want of memory --- */

static bool
datasets_in_little_memory(co_context *ctx)
{
    co_strategy *m = mirrored(ctx, 2);
    co_iterator *it = co_make_dataset_iterator(ctx, m, data_pipeline(ctx, "range(8).batch(4)"));

    return co_get_next(ctx, it) != NULL && co_iterator_initialize(ctx, it) != NULL &&
           co_get_next(ctx, it) != NULL && co_iterator_output_types(ctx, it) != NULL &&
           co_iterator_output_shapes(ctx, it) != NULL;
}

static bool
callables_in_little_memory(co_context *ctx)
{
    source       from = { .callable = structure_of_three }, rows = { .pipeline = "range(4)" };
    co_strategy *m = mirrored(ctx, 2);
    co_iterator *it = from_function(ctx, m, &from), *other = from_function(ctx, m, &rows);

    return co_get_next(ctx, it) != NULL && co_get_next(ctx, other) != NULL;
}

CO_TEST_BARE(iterators_survive_want_of_memory, "ITER1-DS-1 ITER1-FN-3")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", datasets_in_little_memory);
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", callables_in_little_memory);
}

/* Every block of every request, one after the other. */
static source scarce_source;

static void *
prepare_dataset(co_context *ctx)
{
    return mirrored(ctx, 2);
}

static bool
scarce_dataset(co_context *ctx, void *strategy)
{
    co_iterator *it = co_make_dataset_iterator(ctx, strategy,
                                               data_pipeline(ctx, "range(8).batch(4)"));

    return it != NULL && co_get_next(ctx, it) != NULL && co_iterator_initialize(ctx, it) != NULL;
}

static bool
scarce_function(co_context *ctx, void *strategy)
{
    co_iterator *it;

    scarce_source = (source){ .pipeline = "range(8).batch(4)" };
    it = from_function(ctx, strategy, &scarce_source);
    return it != NULL && co_get_next(ctx, it) != NULL;
}

static bool
scarce_callable(co_context *ctx, void *strategy)
{
    co_iterator *it;

    scarce_source = (source){ .callable = structure_of_three };
    it = from_function(ctx, strategy, &scarce_source);
    return it != NULL && co_get_next(ctx, it) != NULL &&
           co_iterator_output_classes(ctx, it) != NULL;
}

CO_TEST_BARE(iterators_survive_scarce_blocks, "ITER1-DS-1 ITER1-FN-3")
{
    if (TEST_SANITIZED)
        CO_SKIP("values are not cached in a build with a sanitizer");
    scarce_try("cpus=2", prepare_dataset, scarce_dataset, 12);
    scarce_try("cpus=2", prepare_dataset, scarce_function, 12);
    scarce_try("cpus=2", prepare_dataset, scarce_callable, 12);
}

/* --- iterators that programs share --- */

typedef struct sharing {
    co_context *ctx;
    co_session *session;
    co_value   *fetch;
    pthread_t   thread;
    bool        ok;
} sharing;

static void *
share(void *arg)
{
    sharing *s = arg;

    s->ok = true;
    for (int i = 0; i < 2000; ++i)
        CO_BLOCK(s->ctx)
            s->ok = s->ok && co_session_run(s->ctx, s->session, s->fetch, NULL, 0) != NULL;
    return NULL;
}

CO_TEST(an_eager_iterator_is_restarted_by_one_thread_while_others_read, "ITER1-INIT-1 GR-2")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);
    co_iterator *it = co_make_dataset_iterator(ctx, one, co_dataset_range(ctx, 0, 1 << 20, 1));
    sharing      threads[3];

    CO_GRAPH(ctx, graph)
    {
        co_value   *next = co_get_next(ctx, it), *start = co_iterator_initialize(ctx, it);
        co_session *session = co_session_open(ctx, NULL, NULL);

        CO_EXPECT_OK(ctx);
        for (int i = 0; i < 3; ++i) {
            threads[i] = (sharing){ .ctx = co_open_beside(ctx),
                                    .session = session,
                                    .fetch = i == 0 ? start : next };
            pthread_create(&threads[i].thread, NULL, share, &threads[i]);
        }
        for (int i = 0; i < 3; ++i) {
            pthread_join(threads[i].thread, NULL);
            CO_EXPECT_TRUE(threads[i].ok);
            co_close(threads[i].ctx);
        }
    }
}

typedef struct asking {
    co_session *session;
    co_value   *next, *start;
} asking;

static co_value *
ask_itself(co_context *ctx, co_value *element, void *user)
{
    const asking *a = user;

    if (a->session != NULL)
        co_session_run(ctx, a->session, a->start != NULL ? a->start : a->next, NULL, 0);
    return element;
}

CO_TEST(a_function_of_an_iterator_cannot_ask_it_for_elements, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);
    asking    a = { NULL, NULL, NULL };

    CO_GRAPH(ctx, graph)
    {
        co_dataset  *data = co_dataset_map(ctx, co_dataset_range(ctx, 0, 8, 1), ask_itself, &a,
                                           NULL);
        co_iterator *it = co_make_initializable_iterator(ctx, data);
        co_value    *next = co_get_next(ctx, it), *start = co_iterator_initialize(ctx, it);
        co_session  *session = co_session_open(ctx, NULL, NULL);

        CO_EXPECT_NOT_NULL(co_session_run(ctx, session, start, NULL, 0));
        CO_EXPECT_NOT_NULL(co_session_run(ctx, session, next, NULL, 0));
        a = (asking){ session, next, NULL };
        CO_EXPECT_NULL(co_session_run(ctx, session, next, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "of their own");
        a.start = start;
        CO_EXPECT_NULL(co_session_run(ctx, session, next, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "of their own");
    }
}

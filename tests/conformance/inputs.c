/* SPDX-License-Identifier: Apache-2.0 */
/* Distributed datasets: every row once, uneven tails, options, iterators; and the losses made from
 * them. Sections 15 to 17. */
#include <cohort/v1.h>
#include "suite.h"

/* 0 .. rows-1 in batches; slice k of a batch is replica k's, on however many workers. */
static co_dataset *
batches(co_context *ctx, int64_t rows, int64_t size)
{
    co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, rows, 1), size, false);

    return co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_REPLICA);
}

static co_dataset *
distributed(co_context *ctx, co_strategy *s, int64_t rows, int64_t size)
{
    return co_distribute_dataset(ctx, s, batches(ctx, rows, size), NULL);
}

STEP(same_rows)
{
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 1));
}

CONFORM(every_row_is_used_once, "DS-DIST-1 DS-DIST-8 DS-PART-2 DS-PART-3 MW-10 MW-13 S-LOOP-1")
{
    static const struct {
        int rows, size;
    } cases[] = { { 10, 4 }, { 7, 7 }, { 5, 3 }, { 3, 1 }, { 9, 8 }, { 6, 8 }, { 17, 5 } };

    for (size_t k = 0; k < LENGTH(cases); ++k) {
        int     rows = cases[k].rows, size = cases[k].size, steps = 0, sum = 0;
        int64_t count = 0;

        CO_EACH(ctx, x, co_iterate(ctx, distributed(ctx, s, rows, size))) {
            co_value *r = co_run(ctx, s, same_rows, co_args(ctx, x), NULL);
            co_value *all = co_gather_replicas(ctx, s, r, 0);

            sum += (int)co_item_int(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0)));
            count += co_value_num_elements(ctx, all);
            if (co_value_num_elements(ctx, all) > 0) /* in the order of the input */
                CO_EXPECT_INT(((const int64_t *)co_value_data(ctx, all))[0], steps * size);
            ++steps;
        }
        CO_EXPECT_OK(ctx);
        CO_EXPECT_INT(count, rows);
        CO_EXPECT_INT(sum, rows * (rows - 1) / 2);
        CO_EXPECT_INT(steps, (rows + size - 1) / size);
    }
}

CONFORM(every_replica_gets_its_share_of_a_batch,
        "DS-SPLIT-1 DS-SPLIT-6 DS-ITER-6 OD-DS-1 DEF-3 MIR-DS-1")
{
    int          m = 10;
    co_iterator *it = co_iterate(ctx, distributed(ctx, s, m, m));
    co_value    *x = co_next(ctx, it);

    CO_EXPECT_INT(co_value_kind(x), row->element_kind);
    for (int i = 0; i < row->local; ++i) {
        int       begin, end;
        co_value *part = suite_local(ctx, s, x, i);

        suite_slice(row, m, first + i, &begin, &end);
        CO_EXPECT_INT(co_value_num_elements(ctx, part), end - begin);
        if (end > begin)
            CO_EXPECT_INT(((const int64_t *)co_value_data(ctx, part))[0], begin);
    }
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_NULL(co_next(ctx, it)); /* again and again */
    CO_EXPECT_OK(ctx);
}

CONFORM(the_end_has_three_faces, "DS-ITER-2 DS-ITER-3 DS-DIST-3 OD-EX-2")
{
    co_dataset  *data = distributed(ctx, s, 6, 4);
    co_iterator *it = co_iterate(ctx, data), *again;
    co_value    *optional;

    CO_EXPECT_NOT_NULL(co_get_next(ctx, it));
    CO_EXPECT_TRUE(co_optional_has_value(ctx, co_get_next_as_optional(ctx, it)));
    optional = co_get_next_as_optional(ctx, it);
    CO_EXPECT_FALSE(co_optional_has_value(ctx, optional));
    CO_EXPECT_NULL(co_optional_get_value(ctx, optional));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
    CO_EXPECT_NULL(co_get_next(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    CO_EXPECT_NULL(co_next(ctx, it));
    again = co_iterate(ctx, data); /* independent, from the beginning */
    CO_EXPECT_NOT_NULL(co_next(ctx, again));
}

CONFORM(structures_are_split_leaf_by_leaf, "DS-DIST-9 DS-ITER-6 DS-SPEC-1 DS-ITER-7")
{
    float       data[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    co_value   *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(6, 2), data);
    co_value   *y = co_range(ctx, co_int(ctx, 0), co_int(ctx, 6), co_int(ctx, 1), CO_INT32);
    co_dataset *d = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y)), 6,
                                     false);
    co_value   *element;

    d = co_distribute_dataset(ctx, s, co_dataset_with_autoshard(ctx, d, CO_AUTOSHARD_REPLICA),
                              NULL);
    CO_EXPECT_INT(co_num_items(ctx, co_element_spec(ctx, d)), 2);
    element = co_next(ctx, co_iterate(ctx, d));
    CO_EXPECT_INT(co_value_kind(element), CO_KIND_TUPLE);
    for (int i = 0; i < row->local; ++i)
        CO_EXPECT_INT(co_value_dim(ctx, suite_local(ctx, s, co_at(ctx, element, 0), i), 0),
                      co_value_num_elements(ctx, suite_local(ctx, s, co_at(ctx, element, 1), i)));
    CO_EXPECT_INT(co_cardinality(ctx, d), 1);
}

CONFORM(what_is_not_batched_cannot_be_split, "DS-DIST-7 OD-DS-2 DEF-3")
{
    co_distribute_dataset(ctx, s, co_dataset_range(ctx, 0, 5, 1), NULL);
    EXPECT_OUTCOME(ctx, row->unbatched);
    CO_EXPECT_NULL(co_distribute_dataset(ctx, s, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
}

CONFORM(distributing_may_give_the_dataset_back, "DEF-3 DS-DIST-2 DS-DIST-4 DS-DIST-6")
{
    co_dataset *data = batches(ctx, 10, 4), *d = co_distribute_dataset(ctx, s, data, NULL);

    CO_EXPECT_INT(d == data, row->is->same_dataset);
    CO_EXPECT_INT(co_cardinality(ctx, d), 3);
    co_dataset_take(ctx, d, 1);
    EXPECT_OUTCOME(ctx, row->is->same_dataset ? CO_OK : CO_TYPE_ERROR);
}

CONFORM(options_of_input_are_checked, "IO-1 IO-3 IO-4 OD-DS-3 OD-FN-2 DEF-3 MW-15")
{
    co_input_options options = CO_INPUT_OPTIONS_INIT;

    options.per_replica = true;
    co_distribute_dataset(ctx, s, batches(ctx, 10, 4), &options);
    EXPECT_OUTCOME(ctx, row->is->input_per_replica);
    options.per_replica = false;
    options.fetch_to_device = false;
    CO_EXPECT_NOT_NULL(co_distribute_dataset(ctx, s, batches(ctx, 10, 4), &options));
    CO_EXPECT_OK(ctx);
}

typedef struct seen {
    co_input_context input;
    int              calls;
} seen;

static co_dataset *
noted_dataset(co_context *ctx, const co_input_context *input, void *user)
{
    seen *told = user;

    told->input = *input;
    ++told->calls;
    return co_dataset_batch(
        ctx,
        co_dataset_range(
            ctx, 0, 2 * co_per_replica_batch_size(ctx, input, input->num_replicas_in_sync * 4), 1),
        1, false);
}

CONFORM(a_function_makes_the_dataset_of_a_worker, "DS-FN-1 DS-FN-2 OD-FN-1 DEF-4 IC-1 IC-2 IRM-1")
{
    seen        told = { .calls = 0 };
    co_dataset *d = co_distribute_datasets_from_function(ctx, s, noted_dataset, &told, NULL);
    co_value   *x = co_next(ctx, co_iterate(ctx, d));

    CO_EXPECT_INT(told.calls, 1);
    CO_EXPECT_INT(told.input.num_input_pipelines, row->workers);
    CO_EXPECT_INT(told.input.input_pipeline_id, co_worker_id(ctx, s));
    CO_EXPECT_INT(told.input.num_replicas_in_sync, row->n);
    for (int i = 0; i < row->local; ++i) /* each replica takes the next element */
        CO_EXPECT_CLOSE(suite_number(ctx, suite_local(ctx, s, x, i)), i, 0);
}

CONFORM(a_dataset_function_may_make_one_per_replica, "IO-4 IRM-1 OD-FN-2 MW-15")
{
    seen             told = { .calls = 0 };
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    co_dataset      *d;

    options.per_replica = true;
    d = co_distribute_datasets_from_function(ctx, s, noted_dataset, &told, &options);
    if (!EXPECT_OUTCOME(ctx, row->is->function_per_replica) || d == NULL)
        return;
    CO_EXPECT_INT(told.calls, row->local);
    CO_EXPECT_INT(told.input.input_pipeline_id, row->local - 1);
    EXPECT_LOCAL(ctx, s, co_next(ctx, co_iterate(ctx, d)), 0, 0); /* each its own first element */
}

static co_dataset *
no_dataset(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    (void)user;
    return (co_dataset *)(void *)co_int(ctx, 1);
}

CONFORM(a_dataset_function_returns_a_dataset, "DS-FN-4 DEF-4")
{
    CO_EXPECT_NULL(co_distribute_datasets_from_function(ctx, s, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_NULL(co_distribute_datasets_from_function(ctx, s, no_dataset, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

STEP(next_in_step)
{
    co_next(ctx, user);
    return NULL;
}

CONFORM(an_iterator_belongs_to_its_strategy, "DS-ITER-4")
{
    co_iterator *it = co_iterate(ctx, distributed(ctx, s, 16, 1));

    CO_SCOPE(ctx, suite_other(ctx)) {
        co_next(ctx, it);
        EXPECT_OUTCOME(ctx, row->is->input_of_others);
    }
    suite_step(ctx, s, next_in_step, it);
    EXPECT_OUTCOME(ctx, row->is->next_in_step);
    CO_SCOPE(ctx, s)
        CO_EXPECT_NOT_NULL(co_next(ctx, it));
}

static co_value *
add_rows(co_context *ctx, co_value *args, void *user)
{
    co_value *r = co_run(ctx, user, same_rows, co_args(ctx, co_at(ctx, args, 1)), NULL);

    return co_add(ctx, co_at(ctx, args, 0), co_reduce(ctx, user, CO_REDUCE_SUM, r, CO_AXES(0)));
}

CONFORM(a_distributed_dataset_can_be_folded, "DS-ITER-9 S-LOOP-1")
{
    co_value *sum = co_dataset_reduce(ctx, distributed(ctx, s, 10, 4), co_scalar_int64(ctx, 0),
                                      add_rows, s);

    CO_EXPECT_INT(co_item_int(ctx, sum), 45);
}

/* --- training --- */

typedef struct model {
    co_value     *w;
    co_optimizer *sgd;
} model;

/* The loss of an example x is w * x: the mean gradient is the mean of the examples there are. */
STEP(train_step)
{
    model    *m = user;
    co_value *x = co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32), *loss;

    co_tape_begin(ctx);
    loss = co_average_loss(ctx, co_mul(ctx, x, m->w));
    co_minimize(ctx, m->sgd, loss);
    return loss;
}

CONFORM(short_batches_weigh_by_their_examples, "S-LOOP-1 S-REDUCE-7 DS-PART-2 MW-13")
{
    co_sgd_options options = CO_SGD_OPTIONS_INIT;
    model          m = { suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE), NULL };
    double         w = 1, losses = 0;
    int            begin = 0;

    options.learning_rate = 0.125;
    m.sgd = co_sgd(ctx, &options);
    CO_EACH(ctx, x, co_iterate(ctx, distributed(ctx, s, 13, 5))) {
        int    end = begin + 5 < 13 ? begin + 5 : 13;
        double mean = (begin + end - 1) / 2.0;

        losses = suite_number(ctx,
                              co_reduce(ctx, s, CO_REDUCE_SUM,
                                        co_run(ctx, s, train_step, co_args(ctx, x), &m), NULL, 0));
        CO_EXPECT_CLOSE(losses, w * mean, 1e-4);
        w -= 0.125 * mean;
        begin = end;
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(begin, 13);
    EXPECT_LOCAL(ctx, s, m.w, w, 0);
    CO_EXPECT_INT(co_optimizer_iterations(ctx, m.sgd), 3);
}

STEP(average_of_mean)
{
    co_value *x = co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32);

    return co_average_loss(ctx, co_reduce_mean(ctx, x, CO_ALL_AXES, false));
}

/* A mean has lost its count, with one replica as with several. */
CONFORM(the_average_loss_of_a_mean_is_refused, "")
{
    CO_EXPECT_NULL(co_run(ctx, s, average_of_mean,
                          co_args(ctx, co_next(ctx, co_iterate(ctx, distributed(ctx, s, 13, 5)))),
                          NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "average_loss is given a scalar");
    CO_EXPECT_NULL(co_run(ctx, s, average_of_mean, co_args(ctx, co_scalar_float(ctx, 1)), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "average_loss is given a scalar");
}

CONFORM(arrays_become_datasets, "NP-1 NP-7 NP-8 NP-9")
{
    co_dataset *d = co_make_numpy_dataset(ctx, s, suite_vector(ctx, 3, (float[]){ 1, 2, 4 }));
    double      sum = 0;

    d = co_dataset_with_autoshard(ctx, co_dataset_batch(ctx, d, 3, false), CO_AUTOSHARD_REPLICA);
    CO_EACH(ctx, x, co_iterate(ctx, co_distribute_dataset(ctx, s, d, NULL)))
        sum += suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM,
                                           co_run(ctx, s, same_rows, co_args(ctx, x), NULL),
                                           CO_AXES(0)));
    CO_EXPECT_CLOSE(sum, 7, 0);
}

/* --- steps on an iterator --- */

static co_value *
sum_rows(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_value *r = co_run(ctx, user, same_rows, co_args(ctx, inputs), NULL);
    co_value *sum = co_reduce(ctx, user, CO_REDUCE_SUM, r, CO_AXES(0));

    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_get_strategy(ctx)),
                  co_num_replicas_in_sync(ctx, user));
    co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_MEAN, sum);
    co_set_non_tensor_output(ctx, steps, "name", co_string(ctx, "rows"));
    return NULL;
}

CONFORM(several_steps_run_on_an_iterator, "EXT-STEPS-1")
{
    co_iterator     *it = co_iterate(ctx, distributed(ctx, s, 16, 4));
    co_step_context *steps = co_run_steps_on_iterator(ctx, s, sum_rows, it, s, 3, NULL);
    co_value        *outputs = co_last_step_outputs(ctx, steps);

    if (!EXPECT_OUTCOME(ctx, row->is->several_steps) || row->is->several_steps != CO_OK)
        return;
    CO_EXPECT_CLOSE(suite_number(ctx, co_get(ctx, outputs, "sum")), 8 + 9 + 10 + 11, 0);
    CO_EXPECT_INT(co_num_items(ctx, co_non_tensor_outputs(ctx, steps)), 1);
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, s, sum_rows, it, s, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
}

CONFORM(one_step_runs_on_an_iterator, "S-EXPRUN-1 S-EXPRUN-2 S-EXPRUN-3")
{
    co_iterator *it = co_iterate(ctx, distributed(ctx, s, 5, 5));
    co_value    *r = co_experimental_run(ctx, s, same_rows, it, NULL);

    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0))), 10);
    CO_EXPECT_NULL(co_experimental_run(ctx, s, same_rows, it, NULL));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
}

/* --- input iterators of v1 --- */

/* What the replicas of all processes got, summed. */
static int64_t
sum_of_step(co_context *ctx, co_strategy *s, co_value *x)
{
    co_value *r = co_run(ctx, s, same_rows, co_args(ctx, x), NULL);

    return co_item_int(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0)));
}

CONFORM(input_iterators_begin_anew, "ITER1-DS-1 ITER1-INIT-1 ITER1-INIT-3 ITER1-NEXT-1 S-V1-2")
{
    co_iterator *it = co_make_dataset_iterator(ctx, s, batches(ctx, 10, 4));

    for (int round = 0; round < 2; ++round) {
        CO_EXPECT_INT(sum_of_step(ctx, s, co_get_next(ctx, it)), 0 + 1 + 2 + 3);
        CO_EXPECT_INT(sum_of_step(ctx, s, co_get_next(ctx, it)), 4 + 5 + 6 + 7);
        CO_EXPECT_INT(co_iterator_step_examples(ctx, it), 4);
        CO_EXPECT_INT(sum_of_step(ctx, s, co_get_next(ctx, it)), 8 + 9);
        CO_EXPECT_NULL(co_get_next(ctx, it));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
        CO_EXPECT_NOT_NULL(co_iterator_initialize(ctx, it));
    }
}

static co_dataset *
two_for_each(co_context *ctx, const co_input_context *input, void *user)
{
    (void)user;
    CO_EXPECT_INT(input->num_replicas_in_sync, co_num_replicas_in_sync(ctx, co_get_strategy(ctx)));
    return co_dataset_repeat(ctx, co_dataset_batch(ctx, co_dataset_range(ctx, 0, 2, 1), 2, false),
                             2 * input->num_replicas_in_sync / input->num_input_pipelines);
}

static co_value *
one_and_two(co_context *ctx, void *user)
{
    static const int64_t rows[] = { 1, 2 };

    (void)user;
    return co_tensor(ctx, CO_INT64, CO_SHAPE(2), rows);
}

static co_dataset *
a_callable(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    return co_input_callable(ctx, one_and_two, user);
}

CONFORM(input_functions_feed_every_replica, "ITER1-FN-2 ITER1-FN-3 ITER1-FN-4 S-EXPRUN-2")
{
    co_iterator *it = co_make_input_fn_iterator(ctx, s, two_for_each, NULL, CO_INPUT_PER_WORKER);

    CO_EXPECT_INT(sum_of_step(ctx, s, co_get_next(ctx, it)), row->n);
    CO_EXPECT_INT(sum_of_step(ctx, s, co_get_next(ctx, it)), row->n);
    CO_EXPECT_NULL(co_get_next(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    it = co_make_input_fn_iterator(ctx, s, a_callable, NULL, CO_INPUT_PER_WORKER);
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_INT(sum_of_step(ctx, s, co_get_next(ctx, it)), 3 * row->n);
}

/* --- contexts of input --- */

static co_dataset *
sharded(co_context *ctx, const co_input_context *input, void *user)
{
    co_dataset *rows = co_dataset_range(ctx, 0, 24, 1);
    char        text[100];

    (void)user;
    co_input_context_format(ctx, input, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, "pipeline");
    rows = co_dataset_shard(ctx, rows, input->num_input_pipelines, input->input_pipeline_id);
    return co_dataset_batch(ctx, rows, 1, false);
}

CONFORM(pipelines_share_the_input_among_them, "IC-3 IC-4 DS-FN-2 DS-PART-2 MW-13")
{
    co_dataset *d = co_distribute_datasets_from_function(ctx, s, sharded, NULL, NULL);
    double      sum = 0;
    int64_t     count = 0;

    CO_EACH(ctx, x, co_iterate(ctx, d)) {
        co_value *r = co_run(ctx, s, same_rows, co_args(ctx, x), NULL);

        sum += suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0)));
        count += co_value_num_elements(ctx, co_gather_replicas(ctx, s, r, 0));
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_CLOSE(sum, 23 * 24 / 2, 0);
    CO_EXPECT_INT(count, 24);
}

CONFORM(specs_describe_elements, "DS-SPEC-1 DV-SPEC-1 DS-ITER-7 OD-DS-2")
{
    co_dataset  *d = distributed(ctx, s, 16, 8);
    co_value    *spec = co_element_spec(ctx, d), *leaf = spec;
    co_iterator *it = co_iterate(ctx, d);

    if (row->element_kind == CO_KIND_PER_REPLICA) {
        CO_EXPECT_INT(co_value_kind(spec), CO_KIND_PER_REPLICA);
        CO_EXPECT_INT(co_num_items(ctx, spec), row->local);
        leaf = co_at(ctx, spec, 0);
    }
    CO_EXPECT_INT(co_value_kind(leaf), CO_KIND_SPEC);
    CO_EXPECT_INT(co_value_dtype(ctx, leaf), CO_INT64);
    CO_EXPECT_CODE(co_assert_same_structure(ctx, spec, co_iterator_element_spec(ctx, it)), CO_OK);
}

CONFORM(the_examples_of_a_step_are_known, "DS-PART-2 DS-PART-5 MW-13")
{
    co_iterator *it = co_iterate(ctx, distributed(ctx, s, 11, 8));
    co_value    *x;
    int64_t      examples[2] = { 0, 0 };
    int          steps = 0;

    while ((x = co_next(ctx, it)) != NULL && steps < 2)
        examples[steps++] = co_iterator_step_examples(ctx, it);
    CO_EXPECT_INT(steps, 2);
    CO_EXPECT_INT(examples[0], 8);
    CO_EXPECT_INT(examples[1], 3);
    CO_EXPECT_INT(co_iterator_dropped_rows(ctx, it), 0);
}

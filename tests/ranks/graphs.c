/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs and captured functions over processes: the same calls made eagerly, replayed and run by a
 * session have the same bits, whoever hosts the replicas; ranks that fail or disagree in a session
 * end it on the others and leave it usable.
 */
#include "function_worlds.h"

#include <string.h>

/* Four logical replicas, whoever hosts them; every group size that runs this divides four. */
#define REPLICAS 4

static co_strategy *
workers(co_context *ctx)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.num_replicas = REPLICAS;
    return co_v1_multi_worker_mirrored_strategy(ctx, &options);
}

static co_value *
own_id(co_context *ctx)
{
    return co_scalar_float(ctx, 1 + 0.25f * (float)co_replica_id(ctx));
}

static void
compare(co_context *ctx, world_fn make, co_fn body, bool runs_steps)
{
    world with = { .strategy = workers(ctx) };

    compare_calls(ctx, &with, make, body, runs_steps);
}

/* --- steps --- */

static co_value *
merge_mean(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_MEAN, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
collectives(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_mul(ctx, co_at(ctx, args, 0), own_id(ctx)), *seen[6];

    ++w->calls;
    seen[0] = co_all_reduce(ctx, CO_REDUCE_SUM, x);
    seen[1] = co_all_reduce(ctx, CO_REDUCE_MEAN, co_args(ctx, co_exp(ctx, x), seen[0]));
    seen[2] = co_all_reduce(ctx, CO_REDUCE_MAX, co_sub(ctx, x, seen[0]));
    seen[3] = co_all_gather(ctx, x, 0);
    seen[4] = co_merge_call(ctx, merge_mean, co_args(ctx, co_tanh(ctx, x)), NULL);
    seen[5] = co_dropout(ctx, x, 0.5);
    return co_tuple(ctx, seen, 6);
}

CO_TEST(collectives_of_steps_have_the_same_bits_in_graphs, "GR-1 GR-2 FN-9 RC-AR-1 RC-AG-1 MW-10")
{
    compare(ctx, NULL, collectives, true);
}

static void
make_variables(co_context *ctx, world *w)
{
    static const co_aggregation aggregations[] = { CO_AGGREGATION_SUM, CO_AGGREGATION_MEAN,
                                                   CO_AGGREGATION_ONLY_FIRST_REPLICA };

    CO_SCOPE(ctx, w->strategy)
        for (int i = 0; i < 4; ++i) {
            co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
            float               first = (float)i + (float)co_worker_id(ctx, w->strategy);

            options.aggregation = aggregations[i % 3];
            options.synchronization = i == 3 ? CO_SYNC_ON_READ : CO_SYNC_AUTO;
            w->variables[i] = co_variable(ctx, floats(ctx, first, 3), &options);
        }
}

static co_value *
assigning(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_mul(ctx, co_at(ctx, args, 0), own_id(ctx)), *seen[6];

    ++w->calls;
    for (int i = 0; i < 4; ++i)
        seen[i] = co_assign_add(ctx, w->variables[i], co_tanh(ctx, x));
    seen[4] = co_assign(ctx, w->variables[1], co_mul(ctx, x, w->variables[0]));
    seen[5] = co_add(ctx, w->variables[1], w->variables[3]);
    return co_tuple(ctx, seen, 6);
}

CO_TEST(variables_of_every_aggregation_have_the_same_bits_in_graphs,
        "GR-1 GR-2 FN-7 MW-9 VAR-MIR-4")
{
    compare(ctx, make_variables, assigning, true);
}

static void
make_model(co_context *ctx, world *w)
{
    co_adam_options options = CO_ADAM_OPTIONS_INIT;

    CO_SCOPE(ctx, w->strategy) {
        w->variables[0] = co_variable(ctx, floats(ctx, 0.1f, 3), NULL);
        w->variables[1] = co_variable(ctx, co_scalar_float(ctx, 0.5f), NULL);
    }
    w->optimizer = co_adam(ctx, &options);
}

static co_value *
training(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_mul(ctx, co_at(ctx, args, 0), own_id(ctx)), *loss;

    ++w->calls;
    co_tape_begin(ctx);
    loss = co_square(
        ctx, co_add(ctx, co_reduce_sum(ctx, co_mul(ctx, x, w->variables[0]), CO_ALL_AXES, false),
                    w->variables[1]));
    co_minimize(ctx, w->optimizer, loss);
    CO_CONTROL_DEPENDENCIES(ctx, co_last_operation(ctx))
    loss = co_identity(ctx, loss); /* in a graph the update runs where it is asked for */
    return loss;
}

CO_TEST(training_steps_have_the_same_bits_in_graphs, "GR-1 GR-2 FN-9 MW-10")
{
    compare(ctx, make_model, training, true);
}

/* --- around steps --- */

static co_value *
scale(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), own_id(ctx));
}

static co_value *
run_and_reduce(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *parts, *seen[4];

    ++w->calls;
    parts = co_run(ctx, w->strategy, scale, args, NULL);
    seen[0] = co_reduce(ctx, w->strategy, CO_REDUCE_SUM, parts, NULL, 0);
    seen[1] = co_reduce(ctx, w->strategy, CO_REDUCE_MEAN, parts, CO_AXES(0));
    parts = co_run(ctx, w->strategy, scale, co_args(ctx, seen[0]), NULL);
    seen[2] = co_reduce(ctx, w->strategy, CO_REDUCE_MAX, parts, NULL, 0);
    seen[3] = co_reduce(ctx, w->strategy, CO_REDUCE_MEAN, w->variables[3], NULL, 0);
    return co_tuple(ctx, seen, 4);
}

CO_TEST(reductions_around_steps_have_the_same_bits_in_graphs, "GR-1 GR-2 S-REDUCE-9 MW-10")
{
    compare(ctx, make_variables, run_and_reduce, false);
}

/* --- variables and input of a graph --- */

CO_TEST(a_session_initializes_with_the_chiefs_values, "GR-3 MW-9")
{
    co_strategy *s = workers(ctx);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_value   *v = NULL, *read, *one;

        CO_SCOPE(ctx, s)
            v = co_variable(ctx, co_scalar_float(ctx, 7 + (float)co_worker_id(ctx, s)), NULL);
        read = co_variable_read(ctx, v);
        CO_EXPECT_NULL(co_session_run(ctx, session, read, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, NULL);
        one = co_global_variables_initializer(ctx);
        for (int i = 0; i < 2; ++i) {
            co_session_run(ctx, session, one, NULL, 0);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, read, NULL, 0)), 7, 0);
        }
        CO_EXPECT_OK(ctx);
    }
}

static co_value *
count_rows(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(
        ctx, co_reduce_sum(ctx, co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32), CO_ALL_AXES, false),
        own_id(ctx));
}

static co_iterator *
rows(co_context *ctx, co_strategy *s)
{
    co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 22, 1), 8, false);

    return co_make_dataset_iterator(ctx, s, data);
}

/* Three elements of uneven rows, the end, and again. */
CO_TEST(a_session_takes_the_elements_that_eager_steps_take, "GR-1 ITER1-INIT-3 DS-ITER-3 MW-13")
{
    co_strategy *s = workers(ctx);
    co_graph    *graph = co_graph_new(ctx);
    co_session  *session = co_session_open(ctx, graph, NULL);
    co_iterator *it = rows(ctx, s), *in_graph;
    co_value    *init, *sum;

    co_graph_begin(ctx, graph);
    in_graph = rows(ctx, s);
    init = co_iterator_initialize(ctx, in_graph);
    sum = co_reduce(ctx, s, CO_REDUCE_SUM, co_experimental_run(ctx, s, count_rows, in_graph, NULL),
                    NULL, 0);
    co_graph_end(ctx);
    CO_EXPECT_NULL(co_session_run(ctx, session, sum, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "initialize");
    for (int epoch = 0; epoch < 2; ++epoch) {
        co_iterator_initialize(ctx, it);
        co_session_run(ctx, session, init, NULL, 0);
        for (int i = 0; i < 3; ++i)
            expect_same(ctx,
                        co_reduce(ctx, s, CO_REDUCE_SUM,
                                  co_experimental_run(ctx, s, count_rows, it, NULL), NULL, 0),
                        co_session_run(ctx, session, sum, NULL, 0));
        CO_EXPECT_NULL(co_session_run(ctx, session, sum, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    }
}

/* --- failures --- */

static co_value *
look_up(co_context *ctx, co_value *args, void *user)
{
    co_value *row = co_cast(ctx, co_at(ctx, args, 0), CO_INT32);

    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_gather(ctx, floats(ctx, 1, 4), row, 0, 0));
}

CO_TEST(a_rank_that_fails_in_a_session_ends_the_run_of_the_others, "GR-2 S-RUN-8 MW-14")
{
    co_strategy *s = workers(ctx);
    co_graph    *graph = co_graph_new(ctx);
    co_session  *session = co_session_open(ctx, graph, NULL);
    bool         is_last = co_worker_id(ctx, s) == co_num_workers(ctx, s) - 1;
    co_value    *x, *y;

    co_graph_begin(ctx, graph);
    x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(2));
    y = co_reduce(ctx, s, CO_REDUCE_MEAN, co_run(ctx, s, look_up, co_args(ctx, x), NULL), NULL, 0);
    co_graph_end(ctx);
    for (int i = 0; i < 3; ++i) {
        co_feed good = { x, floats(ctx, 1, 2) }, wrong = { x, floats(ctx, 9, 2) };

        CO_EXPECT_NULL(co_session_run(ctx, session, y, is_last ? &wrong : &good, 1));
        CO_EXPECT_CONTAINS(co_error(ctx)->message, is_last ? "9" : "tests/ranks/graphs.c:");
        CO_EXPECT_CONTAINS(co_error(ctx)->file, "graphs.c");
        co_clear(ctx);
        CO_EXPECT_CLOSE(co_item_float(ctx,
                                      co_reduce_sum(ctx, co_session_run(ctx, session, y, &good, 1),
                                                    CO_ALL_AXES, false)),
                        REPLICAS * 2 * 1.3, 1e-5);
        CO_EXPECT_OK(ctx);
    }
}

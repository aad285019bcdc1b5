/* SPDX-License-Identifier: Apache-2.0 */
/* Unequal shares and own strategies over processes. The same bodies run with 1, 2 and 4
 * processes. */
#include "data_support.h"
#include "line_support.h"

#define REPLICAS 4

static const int64_t weights[REPLICAS] = { 3, 1, 2, 2 };

static co_strategy *
workers(co_context *ctx, const int64_t *by)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.num_replicas = REPLICAS;
    options.weights = by;
    options.num_weights = by != NULL ? REPLICAS : 0;
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

static co_value *
pass(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

static const co_autoshard policies[] = { CO_AUTOSHARD_DATA, CO_AUTOSHARD_REPLICA };

CO_TEST(batches_are_shared_over_processes_by_weights, "MW-10 MW-11 S-REDUCE-7 DS-SHARD-6")
{
    co_strategy *s = workers(ctx, weights);
    int          here = co_num_local_replicas(ctx, s), first = co_worker_id(ctx, s) * here;

    for (size_t p = 0; p < 2; ++p) {
        co_dataset *ds = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 27, 1), 8, false);
        int64_t     row = 0, sum = 0;

        ds = co_distribute_dataset(ctx, s, co_dataset_with_autoshard(ctx, ds, policies[p]), NULL);
        CO_EACH(ctx, x, co_iterate(ctx, ds)) {
            int64_t   rows = 27 - row < 8 ? 27 - row : 8;
            co_value *r = co_run(ctx, s, pass, co_args(ctx, x), NULL);
            co_value *all = co_gather_replicas(ctx, s, r, 0);

            for (int i = 0; rows == 8 && i < here; ++i)
                CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, co_local_results(ctx, s, r), (size_t)i),
                                           0),
                              weights[first + i]);
            CO_EXPECT_INT(co_value_num_elements(ctx, all), rows);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, CO_AXES(0))),
                            (double)row + (double)(rows - 1) / 2, 0);
            sum += co_item_int(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0)));
            row += rows;
        }
        CO_EXPECT_INT(row, 27);
        CO_EXPECT_INT(sum, 27 * 26 / 2);
    }
}

/* Every worker knows where all examples go; of its own replicas, each checks what it got. */
CO_TEST(examples_are_where_they_are_said_to_be, "DS-SHARD-6 DS-SHARD-8 MW-10")
{
    static const co_autoshard ways[] = { CO_AUTOSHARD_DATA, CO_AUTOSHARD_REPLICA,
                                         CO_AUTOSHARD_OFF };

    for (int k = 0; k < 6; ++k) {
        co_strategy *s = workers(ctx, k < 3 ? weights : NULL);
        int          here = co_num_local_replicas(ctx, s), first = co_worker_id(ctx, s) * here;
        co_dataset  *ds = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 27, 1), 8, false);
        int64_t      step = 0;

        ds = co_distribute_dataset(ctx, s, co_dataset_with_autoshard(ctx, ds, ways[k % 3]), NULL);
        CO_EACH(ctx, x, co_iterate(ctx, ds)) {
            for (int r = 0; r < here; ++r) {
                co_value *part = co_at(ctx, co_local_results(ctx, s, x), (size_t)r);
                int64_t   numbers[27], n = co_value_num_elements(ctx, part);

                co_value_copy_data(ctx, part, CO_INT64, numbers, n);
                for (int64_t row = 0; row < n; ++row) {
                    co_example_place place = CO_EXAMPLE_PLACE_INIT;
                    bool             found = false;

                    /* Under the policy OFF every worker has it once. */
                    for (size_t i = 0;
                         !found &&
                         co_dataset_explain_example(ctx, ds, NULL, numbers[row], i, &place);
                         ++i)
                        found = place.worker == co_worker_id(ctx, s);
                    CO_EXPECT_TRUE(found);
                    CO_EXPECT_INT(place.replica, first + r);
                    CO_EXPECT_INT(place.step, step);
                    CO_EXPECT_INT(place.row, row);
                }
            }
            ++step;
        }
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(processes_agree_on_shares, "")
{
    int64_t      mine[REPLICAS] = { 3, 1, 2, 2 }, equal[REPLICAS] = { 5, 5, 5, 5 };
    co_strategy *s = workers(ctx, NULL);
    int          rank = co_worker_id(ctx, s), num = co_num_workers(ctx, s);
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    mine[0] += rank;
    s = workers(ctx, mine);
    if (num > 1) {
        CO_EXPECT_NULL(s);
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "the making of a strategy");
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "4 replicas");
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NOT_NULL(workers(ctx, rank == 0 ? equal : NULL)); /* equal ones are none */
    options.num_replicas = REPLICAS * (1 + rank);
    s = co_multi_worker_mirrored_strategy(ctx, &options);
    if (num > 1) {
        CO_EXPECT_NULL(s);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "replicas");
    }
    CO_EXPECT_OK(ctx);
}

/* One rank cannot make its part: the others hear of it and do not wait. */
CO_TEST(a_process_that_cannot_make_its_strategy_is_heard, "")
{
    int64_t      bad[REPLICAS] = { 1, 0, 1, 1 };
    co_strategy *s = workers(ctx, NULL);
    int          rank = co_worker_id(ctx, s), num = co_num_workers(ctx, s);

    CO_EXPECT_NULL(num == 1 || rank == 1 ? workers(ctx, bad) : workers(ctx, weights));
    if (num == 1 || rank == 1)
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the weight of replica 1 is 0");
    else
        CO_EXPECT_ERROR(ctx, co_error(ctx)->code, "rank 1");
}

/* --- input inside a step --- */

static co_value *
next_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    co_value *x = co_next(ctx, user);

    (void)strategy, (void)args;
    return x != NULL ? co_int(ctx, co_iterator_step_examples(ctx, user)) : NULL;
}

static co_value *
merging_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, next_in_merge, args, user);
}

CO_TEST(elements_are_taken_in_merge_functions, "MW-13 DS-ITER-4")
{
    co_strategy *s = workers(ctx, weights);
    co_dataset  *ds = data_pipeline(ctx, "range(11).batch(8)");
    co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, s, ds, NULL));

    CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, s, merging_step, co_no_args(ctx), it)), 8);
    CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, s, merging_step, co_no_args(ctx), it)), 3);
    CO_EXPECT_INT(co_value_kind(co_run(ctx, s, merging_step, co_no_args(ctx), it)), CO_KIND_NONE);
    CO_EXPECT_OK(ctx);
}

/* --- own strategies --- */

/* Two replicas in the first process, one in each other. */
static co_code
place(co_context *ctx, int num_workers, co_placement *out, void *data)
{
    static int         processes[64];
    static const char *devices[64];

    (void)ctx, (void)data;
    for (int i = 0; i <= num_workers; ++i) {
        processes[i] = i == 0 ? 0 : i - 1;
        devices[i] = "/cpu:0";
    }
    out->num_replicas = num_workers + 1;
    out->workers = processes;
    out->devices = devices;
    return CO_OK;
}

static co_value *
run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
    const co_run_options *options, void *data)
{
    ++*(int *)data;
    return co_run_with(ctx, strategy, fn, args, user, options);
}

static co_value *
id_step(co_context *ctx, co_value *args, void *user)
{
    (void)args, (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_int64(ctx, 1 + co_replica_id(ctx)));
}

static co_dataset *
rows_of_worker(co_context *ctx, const co_input_context *input, void *user)
{
    (void)user;
    return co_dataset_batch(ctx, co_dataset_range(ctx, 0, 1 + input->input_pipeline_id, 1), 1,
                            false);
}

CO_TEST(own_strategies_place_replicas_unevenly, "MW-6 S-REDUCE-9 DS-SPLIT-5 DS-FN-2")
{
    static int             runs;
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;
    co_strategy           *s;
    co_value              *sums;
    int                    num, n, steps = 0;

    mine.name = "Uneven";
    mine.processes = true;
    mine.place = place;
    mine.run = run;
    mine.data = &runs;
    s = co_define_strategy(ctx, &mine);
    CO_EXPECT_OK(ctx);
    num = co_num_workers(ctx, s);
    n = num + 1;
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, s), n);
    CO_EXPECT_INT(co_num_local_replicas(ctx, s), co_worker_id(ctx, s) == 0 ? 2 : 1);
    sums = co_run(ctx, s, id_step, co_no_args(ctx), NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_local_results(ctx, s, sums), 0)), n * (n + 1) / 2);
    CO_EXPECT_INT(runs, 1);
    if (num > 1) {
        CO_EXPECT_NULL(
            co_distribute_dataset(ctx, s, data_pipeline(ctx, "range(8).batch(4)"), NULL));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                        "worker 0 of Uneven has 2 replicas and worker 1 has 1");
    }
    CO_EACH(ctx, x,
            co_iterate(ctx,
                       co_distribute_datasets_from_function(ctx, s, rows_of_worker, NULL, NULL))) {
        (void)x;
        ++steps;
    }
    CO_EXPECT_INT(steps, num); /* the last process has as many rows as there are processes */
    CO_EXPECT_OK(ctx);
}

CO_TEST(tables_that_leave_a_process_out_are_refused, "")
{
    static const int       alone[300] = { 0 };
    static const char     *devices[300];
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;
    co_placement           places = CO_PLACEMENT_INIT;
    int                    num = co_num_workers(ctx, workers(ctx, NULL));
    co_strategy           *s;

    mine.name = "Alone";
    mine.processes = true;
    mine.placement = &places;
    places.num_replicas = REPLICAS;
    places.workers = alone;
    s = co_define_strategy(ctx, &mine);
    if (num > 1) {
        CO_EXPECT_NULL(s);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "worker 1 has 0 replicas");
        for (int i = 0; i < 300; ++i)
            devices[i] = "/cpu:0";
        places.num_replicas = 300;
        places.devices = devices;
        CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "worker 0 has 300 replicas");
        places.devices = NULL;
        places.workers = NULL;
        places.num_replicas = num - 1;
        CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_replicas");
    }
    CO_EXPECT_OK(ctx);
}

/* --- the same bits --- */

CO_TEST(weighted_processes_end_with_the_bits_of_weighted_threads, "MW-10 MW-13")
{
    static const char *const cpu = "/cpu:0";
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    float                    there[3], here[3];

    options.num_replicas = REPLICAS;
    options.weights = weights;
    options.num_weights = REPLICAS;
    line_train(ctx, co_mirrored_strategy(ctx, &cpu, 1, &options), CO_AUTOSHARD_REPLICA, here);
    line_train(ctx, workers(ctx, weights), CO_AUTOSHARD_REPLICA, there);
    CO_EXPECT_MORE(here[1], 0.1);
    CO_EXPECT_BYTES(there, here, sizeof(here));
}

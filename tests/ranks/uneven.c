/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that host different numbers of replicas: two in the first, one in each of the others.
 * What a value looks like in one of them, wrapped or not, says nothing about the others, so nothing
 * that all processes do together may depend on it.
 */
#include "test.h"

/* Rank 0 hosts `more` replicas besides the one that everybody has. */
static co_code
place(co_context *ctx, int num_workers, co_placement *out, void *data)
{
    static int processes[64];
    int        more = *(const int *)data;

    (void)ctx;
    for (int i = 0; i < num_workers + more; ++i)
        processes[i] = i <= more ? 0 : i - more;
    out->num_replicas = num_workers + more;
    out->workers = processes;
    return CO_OK;
}

static co_strategy *
uneven_by(co_context *ctx, int more)
{
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;

    mine.name = "Uneven";
    mine.processes = true;
    mine.place = place;
    mine.data = &more; /* read while it is defined */
    mine.deadline_ms = 20000;
    return co_define_strategy(ctx, &mine);
}

static co_strategy *
uneven(co_context *ctx)
{
    return uneven_by(ctx, 1);
}

static double
number(co_context *ctx, co_value *value)
{
    return co_item_float(ctx, value);
}

static co_value *
id_plus_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx));
}

/* The processes are still in step: their next collective is the same one. */
static void
expect_in_step(co_context *ctx, co_strategy *s)
{
    int       n = co_num_replicas_in_sync(ctx, s);
    co_value *r = co_run(ctx, s, id_plus_one, co_no_args(ctx), NULL);

    CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, NULL, 0)), n * (n + 1) / 2.0,
                    0);
    CO_EXPECT_OK(ctx);
}

/* The sum of what n replicas hold, or, in one process, nothing that is defined. */
static void
expect_sum(co_context *ctx, co_value *sum, double of_each, int n)
{
    if (n == 2)
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not defined");
    else
        CO_EXPECT_CLOSE(number(ctx, sum), of_each * n, 0);
}

static co_value *
pass(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

CO_TEST(what_all_replicas_share_is_reduced_by_all_processes, "MW-10 S-REDUCE-13 DV-GROUP-8")
{
    co_strategy *s = uneven(ctx);
    co_value    *shared[] = { co_scalar_float(ctx, 5), co_int(ctx, 5), co_float(ctx, 5) };
    int          n = co_num_replicas_in_sync(ctx, s);

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); ++i) {
        co_value *r = co_run(ctx, s, pass, co_args(ctx, shared[i]), NULL);

        CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, NULL, 0)), 5, 0);
        CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_MAX, r, NULL, 0)), 5, 0);
        expect_sum(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, NULL, 0), 5, n);
        expect_sum(ctx, co_reduce_to(ctx, s, CO_REDUCE_SUM, r, co_string(ctx, "/cpu:0")), 5, n);
        expect_in_step(ctx, s);
    }
    CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, co_int(ctx, 0), NULL, 0)), 0, 0);
    expect_in_step(ctx, s);
}

/* Shared by the replicas of each process, and not by the processes. */
CO_TEST(what_replicas_of_one_process_share_may_be_another_elsewhere, "MW-10 S-REDUCE-5 S-REDUCE-14")
{
    co_strategy *s = uneven(ctx);
    int          rank = co_worker_id(ctx, s), n = co_num_replicas_in_sync(ctx, s);
    co_value    *mine = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), (float[]){ (float)rank });
    co_value    *r = co_run(ctx, s, pass, co_args(ctx, mine), NULL), *all;
    double       sum = (n - 1) * (n - 2) / 2.0; /* replicas 0 and 1 have 0, replica i has i - 1 */

    CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, NULL, 0)), sum / n, 1e-6);
    CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, CO_AXES(0))), sum / n, 1e-6);
    CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0))), sum, 0);
    all = co_gather_replicas(ctx, s, r, 0);
    CO_EXPECT_INT(co_value_num_elements(ctx, all), co_num_workers(ctx, s) > 1 ? n : 1);
    for (int i = 0; i < n && co_num_workers(ctx, s) > 1; ++i)
        CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, all))[i], i == 0 ? 0 : i - 1, 0);
    expect_in_step(ctx, s);
}

static co_value *
variable_of(co_context *ctx, co_strategy *s, co_aggregation aggregation, co_value *initial)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.aggregation = aggregation;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, initial, &options);
    return v;
}

static co_value *
assign_first(co_context *ctx, co_value *args, void *user)
{
    return co_assign(ctx, user, co_at(ctx, args, 0));
}

CO_TEST(what_all_replicas_assign_is_combined_by_all_processes,
        "MW-10 VAR-MIR-3 VAR-MIR-4 VAR-MIR-6")
{
    static const co_aggregation ways[] = { CO_AGGREGATION_SUM, CO_AGGREGATION_MEAN,
                                           CO_AGGREGATION_ONLY_FIRST_REPLICA };
    co_strategy                *s = uneven(ctx);
    co_value                   *shared[] = { co_scalar_float(ctx, 5), co_int(ctx, 5) };
    int                         n = co_num_replicas_in_sync(ctx, s);

    for (size_t i = 0; i < 2; ++i)
        for (size_t k = 0; k < 3; ++k) {
            co_value *v = variable_of(ctx, s, ways[k], co_float(ctx, 1));

            co_run(ctx, s, assign_first, co_args(ctx, shared[i]), v);
            if (ways[k] == CO_AGGREGATION_SUM)
                expect_sum(ctx, v, 5, n);
            else
                CO_EXPECT_CLOSE(number(ctx, v), 5, 0);
            expect_in_step(ctx, s);
        }
}

static co_value *
scatter_first(co_context *ctx, co_value *args, void *user)
{
    return co_scatter_add(ctx, user, co_at(ctx, args, 0));
}

CO_TEST(rows_that_all_replicas_share_are_combined_by_all_processes, "MW-10 VAR-MIR-8 VAR-MIR-6")
{
    co_strategy *s = uneven(ctx);
    int          n = co_num_replicas_in_sync(ctx, s);
    co_value    *row = co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), (float[]){ 6 }),
                                 co_tensor(ctx, CO_INT32, CO_SHAPE(1), (int32_t[]){ 1 }), NULL);

    for (int mean = 0; mean < 2; ++mean) {
        co_value *v = variable_of(ctx, s, mean ? CO_AGGREGATION_MEAN : CO_AGGREGATION_SUM,
                                  co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)));

        co_run(ctx, s, scatter_first, co_args(ctx, row), v);
        if (!mean && n == 2)
            CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
        else
            CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, co_variable_read(ctx, v)))[1],
                            mean ? 6 : 6 * n, 1e-5);
        expect_in_step(ctx, s);
    }
}

static co_value *
own_handle(co_context *ctx, co_value *args, void *user)
{
    co_value *handle = co_variable_handle(ctx, user);

    (void)args;
    return co_args(ctx, handle, co_args(ctx, handle));
}

/* The components of a variable are the variable, also where there is one component. */
CO_TEST(components_come_back_as_their_variable_everywhere, "DV-GROUP-5 S-REDUCE-15 MW-10")
{
    co_strategy *s = uneven(ctx);
    co_value    *v = variable_of(ctx, s, CO_AGGREGATION_NONE, co_float(ctx, 3)), *r;

    r = co_run(ctx, s, own_handle, co_no_args(ctx), v);
    CO_EXPECT_TRUE(co_at(ctx, r, 0) == v);
    CO_EXPECT_TRUE(co_at(ctx, co_at(ctx, r, 1), 0) == v);
    CO_EXPECT_NULL(co_reduce(ctx, s, CO_REDUCE_SUM, co_at(ctx, r, 0), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "mirrored");
    CO_EXPECT_CLOSE(number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, co_at(ctx, r, 0), NULL, 0)), 3,
                    0);
    expect_in_step(ctx, s);
}

/* As many replicas as are a multiple of the processes: a split into equal numbers would be
 * possible, and wrong. */
CO_TEST(datasets_are_not_split_over_uneven_processes, "MW-2 MW-11")
{
    int          num = co_num_workers(ctx, uneven(ctx));
    co_strategy *s = uneven_by(ctx, num);
    co_dataset  *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 12, 1), 6, false);

    data = co_distribute_dataset(ctx, s, data, NULL);
    if (num == 1)
        CO_EXPECT_NOT_NULL(data);
    else
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_distribute_datasets_from_function");
    expect_in_step(ctx, s);
}

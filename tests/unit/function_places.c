/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a captured function learns of the place and of the moment in which it is captured: the
 * strategy, the replica, local variables, numbers that the host counts, datasets. A later call that
 * would be told otherwise gets the answer it would have without capturing, or an error.
 */
#include "function_worlds.h"

#define FROZEN "of the captured function, which has returned"

static co_value *
add_whether_there_is_a_strategy(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_float(ctx, co_has_strategy(ctx)));
}

CO_TEST(a_function_that_asks_for_its_strategy_is_captured_for_each, "FN-8")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:0");
    co_function *f = co_function_of(ctx, add_whether_there_is_a_strategy, NULL, NULL);
    co_value    *args = co_args(ctx, co_to_tensor(ctx, co_float(ctx, 5), CO_FLOAT32));

    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, args)), 5.0, 0.0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_run(ctx, one, co_captured, args, f)), 6.0, 0.0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, args)), 5.0, 0.0);
}

static co_value *
call_inner(co_context *ctx, co_value *args, void *user)
{
    return co_mul(ctx, co_call(ctx, user, args), co_float(ctx, 2));
}

CO_TEST(a_function_asks_for_its_strategy_through_another, "FN-8")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:0");
    co_function *inner = co_function_of(ctx, add_whether_there_is_a_strategy, NULL, NULL);
    co_function *outer = co_function_of(ctx, call_inner, inner, NULL);
    co_value    *args = co_args(ctx, co_to_tensor(ctx, co_float(ctx, 5), CO_FLOAT32));

    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, inner, args)), 5.0, 0.0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, outer, args)), 10.0, 0.0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_run(ctx, one, co_captured, args, outer)), 12.0, 0.0);
}

/* --- concrete functions --- */

static co_value *
times_replica(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_cast(ctx, co_replica_id_tensor(ctx), CO_FLOAT32));
}

static co_value *
times_replicas(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, co_replicas(ctx)));
}

static co_value *
add_noise(co_context *ctx, co_value *args, void *generator)
{
    return co_add(ctx, co_at(ctx, args, 0),
                  co_generator_normal(ctx, generator, CO_FLOAT32, NULL, 0, NULL));
}

static co_value *
sum_of_replicas(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

static co_value *
doubled(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 0));
}

static co_function *
concrete(co_context *ctx, co_fn fn, void *user)
{
    co_value *scalar = co_spec(ctx, CO_FLOAT32, NULL, 0);

    return co_function_concrete(ctx, co_function_of(ctx, fn, user, NULL), co_args(ctx, scalar));
}

CO_TEST_WITH(a_concrete_function_that_depends_on_its_place_stays_there, "FN-12", "cpus=2")
{
    co_strategy *mirrored = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *args = co_args(ctx, co_to_tensor(ctx, co_float(ctx, 5), CO_FLOAT32));
    co_value    *generator = NULL;
    co_function *all[4];

    CO_SCOPE(ctx, mirrored) {
        generator = co_generator(ctx, 3);
    }
    all[0] = concrete(ctx, times_replica, NULL);
    all[1] = concrete(ctx, times_replicas, NULL);
    all[2] = concrete(ctx, sum_of_replicas, NULL);
    all[3] = concrete(ctx, add_noise, generator);
    for (int i = 0; i < 4; ++i) {
        CO_EXPECT_NOT_NULL(co_call(ctx, all[i], args));
        CO_EXPECT_NULL(co_run(ctx, mirrored, co_captured, args, all[i]));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "call the function that co_function_of made");
    }
}

CO_TEST_WITH(a_concrete_function_that_does_not_may_be_called_anywhere, "FN-12", "cpus=2")
{
    co_strategy *mirrored = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *args = co_args(ctx, co_to_tensor(ctx, co_float(ctx, 5), CO_FLOAT32)), *all;

    all = co_local_results(ctx, mirrored,
                           co_run(ctx, mirrored, co_captured, args, concrete(ctx, doubled, NULL)));
    for (size_t i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, all, i)), 10.0, 0.0);
}

/* --- local variables, in datasets --- */

static co_value *
times(co_context *ctx, co_value *element, void *by)
{
    return co_mul(ctx, element, co_float(ctx, *(double *)by));
}

static bool
is_less(co_context *ctx, co_value *element, void *than)
{
    return co_item_float(ctx, element) < *(double *)than;
}

static co_value *
add_element(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
sum_of(co_context *ctx, co_dataset *dataset)
{
    return co_dataset_reduce(ctx, dataset, co_to_tensor(ctx, co_float(ctx, 0), CO_FLOAT32),
                             add_element, NULL);
}

static co_value *
map_by_local(co_context *ctx, co_value *args, void *dataset)
{
    double by = 3;

    (void)args;
    return sum_of(ctx, co_dataset_map(ctx, dataset, times, &by, NULL));
}

static co_value *
filter_by_local(co_context *ctx, co_value *args, void *dataset)
{
    double than = 2.5;

    (void)args;
    return sum_of(ctx, co_dataset_filter(ctx, dataset, is_less, &than));
}

static co_value *
map_by_static(co_context *ctx, co_value *args, void *dataset)
{
    static double by = 3;

    (void)args;
    return sum_of(ctx, co_dataset_map(ctx, dataset, times, &by, NULL));
}

CO_TEST(datasets_of_a_captured_function_keep_no_local_variable, "FN-5")
{
    co_dataset *dataset = co_dataset_from_tensor_slices(ctx, floats(ctx, 1, 3));
    double      eager = co_item_float(ctx, map_by_static(ctx, NULL, dataset));
    co_value   *none = co_args(ctx, co_int(ctx, 0));

    CO_EXPECT_CLOSE(
        co_item_float(ctx, co_call(ctx, co_function_of(ctx, map_by_static, dataset, NULL), none)),
        eager, 0.0);
    if (TEST_SANITIZED) /* which may keep local variables elsewhere */
        return;
    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, map_by_local, dataset, NULL), none));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "map is to a local variable " FROZEN);
    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, filter_by_local, dataset, NULL), none));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "filter is to a local variable " FROZEN);
}

/* --- numbers that the host counts --- */

typedef struct counted {
    int           which;
    co_optimizer *sgd;
    co_value     *variable;
    co_iterator  *iterator;
} counted;

static co_value *
ask_host(co_context *ctx, co_value *args, void *user)
{
    const counted *c = user;
    co_stage_stats stats = CO_STAGE_STATS_INIT;
    int64_t        answer = c->which == 0   ? co_optimizer_iterations(ctx, c->sgd)
                            : c->which == 1 ? co_variable_is_initialized(ctx, c->variable)
                            : c->which == 2 ? co_iterator_dropped_rows(ctx, c->iterator)
                            : c->which == 3 ? co_iterator_step_examples(ctx, c->iterator)
                                            : co_iterator_stats(ctx, c->iterator, 0, &stats);

    (void)args;
    return co_float(ctx, (double)answer);
}

CO_TEST(numbers_that_change_are_not_captured, "FN-5 FN-13")
{
    counted c = { 0, co_sgd(ctx, NULL), co_variable(ctx, co_float(ctx, 1), NULL),
                  co_iterate(ctx, co_dataset_from_tensor_slices(ctx, floats(ctx, 1, 3))) };

    for (c.which = 0; c.which < 5; ++c.which) {
        CO_EXPECT_NOT_NULL(ask_host(ctx, NULL, &c));
        CO_EXPECT_NULL(
            co_call(ctx, co_function_of(ctx, ask_host, &c, NULL), co_args(ctx, co_int(ctx, 0))));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "all calls of the function would have the answer");
    }
}

static co_value *
as_double(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_to_tensor(ctx, co_at(ctx, args, 0), CO_FLOAT64);
}

static co_value *
divide_by(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_div(ctx, co_float(ctx, 1), co_to_tensor(ctx, co_at(ctx, args, 0), CO_FLOAT64));
}

CO_TEST(host_numbers_are_compared_exactly, "FN-2")
{
    const int64_t     large = (INT64_C(1) << 53) + 1; /* which no double is */
    co_function      *quotients = co_function_of(ctx, divide_by, NULL, NULL);
    co_function      *doubles = co_function_of(ctx, as_double, NULL, NULL);
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    CO_EXPECT_TRUE(co_item_float(ctx, co_call(ctx, quotients, co_args(ctx, co_float(ctx, 0.0)))) >
                   0);
    CO_EXPECT_TRUE(co_item_float(ctx, co_call(ctx, quotients, co_args(ctx, co_float(ctx, -0.0)))) <
                   0);
    co_call(ctx, doubles, co_args(ctx, co_int(ctx, 1)));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, doubles, co_args(ctx, co_float(ctx, 1.5)))),
                    1.5, 0.0);
    co_call(ctx, doubles, co_args(ctx, co_float(ctx, 1.0)));
    co_call(ctx, doubles, co_args(ctx, co_float(ctx, 0x1p53)));
    co_call(ctx, doubles, co_args(ctx, co_int(ctx, large)));
    co_function_get_stats(ctx, doubles, &stats);
    CO_EXPECT_INT(stats.captures, 4); /* 1 and 1.0 are one */
}

/* --- checking --- */

typedef struct choice {
    co_dataset *all[2];
    int         which;
    bool        maps;
} choice;

static co_value *
sum_of_chosen(co_context *ctx, co_value *args, void *user)
{
    static double by = 2;
    const choice *c = user;
    co_dataset   *dataset = c->all[c->which];

    (void)args;
    return sum_of(ctx, c->maps ? co_dataset_map(ctx, dataset, times, &by, NULL) : dataset);
}

CO_TEST(a_check_finds_another_dataset, "FN-1")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_value           *none = co_args(ctx, co_int(ctx, 0));

    options.check = true;
    for (int maps = 0; maps < 2; ++maps) {
        choice       c = { { co_dataset_from_tensor_slices(ctx, floats(ctx, 1, 3)),
                             co_dataset_from_tensor_slices(ctx, floats(ctx, 9, 3)) },
                           0,
                           maps != 0 };
        co_function *f = co_function_of(ctx, sum_of_chosen, &c, &options);

        CO_EXPECT_NOT_NULL(co_call(ctx, f, none));
        CO_EXPECT_NOT_NULL(co_call(ctx, f, none)); /* a stage of its own is made alike */
        c.which = 1;
        CO_EXPECT_NULL(co_call(ctx, f, none));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "has other operands");
    }
}

/* --- strategies that are gone --- */

typedef struct counting {
    co_strategy *strategy;
    co_value    *variable;
} counting;

static co_value *
count_replica(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user, co_to_tensor(ctx, co_float(ctx, 1), CO_FLOAT32));
}

static co_value *
run_count(co_context *ctx, co_value *args, void *user)
{
    const counting *w = user;

    return co_reduce(ctx, w->strategy, CO_REDUCE_SUM,
                     co_run(ctx, w->strategy, count_replica, args, w->variable), NULL, 0);
}

CO_TEST_WITH(a_captured_function_keeps_the_strategy_it_runs_on, "FN-7", "cpus=2")
{
    static counting     w; /* steps that are captured keep a pointer to it */
    co_function        *f = NULL;
    co_value           *none = co_args(ctx, co_int(ctx, 0));
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_BLOCK(ctx) {
        w.strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
        CO_SCOPE(ctx, w.strategy) {
            w.variable = co_variable(ctx, co_to_tensor(ctx, co_float(ctx, 0), CO_FLOAT32),
                                     &options);
        }
        f = co_function_of(ctx, run_count, &w, NULL);
        co_keep(ctx, f);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, none)), 2.0, 0.0);
    }
    for (int i = 2; i < 4; ++i) /* without the handles of the strategy and of the variable */
        CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, none)), 2.0 * i, 0.0);
    co_release(ctx, f);
}

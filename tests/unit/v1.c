/* SPDX-License-Identifier: Apache-2.0 */
/* The v1 surface: constructors and members of the flavour, one step on an iterator. Input iterators
 * are in v1_iterators.c. */
#include <cohort/tpu.h>
#include <cohort/v1.h>
#include "test.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static co_value *
double_it(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

static co_value *
sum_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static co_iterator *
sixteen(co_context *ctx, co_strategy *strategy)
{
    co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 16, 1), 4, false);

    return co_make_dataset_iterator(ctx, strategy, data);
}

/* The strategies of the flavour, one of each kind. */
static size_t
all_strategies(co_context *ctx, co_strategy **out)
{
    out[0] = co_v1_one_device_strategy(ctx, "/cpu:1");
    out[1] = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    out[2] = co_v1_multi_worker_mirrored_strategy(ctx, NULL);
    return 3;
}

/* --- the flavour --- */

CO_TEST_WITH(v1_strategies_are_strategies, "S-V1-1 OD1-1 OD1-2 OD-SCOPE-2 OD-EX-1", "cpus=2")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, "/cpu:1");
    co_value    *result = co_int(ctx, 0), *tensor, *local;

    co_v1_enable_eager_execution(ctx);
    CO_EXPECT_STR(co_strategy_name(ctx, s), "OneDeviceStrategy");
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, s), 1);
    CO_EXPECT_PTR(co_extended(ctx, s), s);
    CO_SCOPE(ctx, s) {
        co_value *v = co_variable(ctx, co_float(ctx, 1), NULL);

        CO_EXPECT_PTR(co_get_strategy(ctx), s);
        CO_EXPECT_STR(co_value_device(ctx, v), "/job:localhost/replica:0/task:0/device:CPU:1");
    }
    for (int i = 0; i < 10; ++i)
        result = co_add(ctx, result, co_run(ctx, s, double_it, co_args(ctx, co_int(ctx, i)), NULL));
    CO_EXPECT_INT(co_item_int(ctx, result), 90);
    tensor = co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_INT64);
    CO_EXPECT_PTR(co_v1_reduce(ctx, s, CO_REDUCE_SUM, tensor), tensor); /* no axis by default */
    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, tensor, CO_AXES(0))), 45);
    local = co_experimental_local_results(ctx, s, tensor);
    CO_EXPECT_INT(co_num_items(ctx, local), 1);
}

/* As TensorFlow 2.21 has it, with v2 behaviour disabled. */
CO_TEST(the_default_strategy_of_v1_has_what_v1_has, "S-V1-1 DEF-11 DEF-14")
{
    co_strategy *d = co_v1_default_strategy(ctx), *v2 = co_default_strategy(ctx);
    co_value    *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));

    CO_EXPECT_PTR(co_v1_default_strategy(ctx), d); /* one for all */
    CO_EXPECT_TRUE(d != v2);
    CO_EXPECT_STR(co_strategy_name(ctx, d), co_strategy_name(ctx, v2));
    CO_EXPECT_FALSE(co_strategy_has_member(ctx, d, "gather"));
    CO_EXPECT_FALSE(co_strategy_has_member(ctx, d, "experimental_distribute_values_from_function"));
    CO_EXPECT_TRUE(co_strategy_has_member(ctx, d, "make_dataset_iterator"));
    CO_EXPECT_TRUE(co_strategy_has_member(ctx, v2, "gather"));
    CO_EXPECT_NULL(co_gather_replicas(ctx, d, x, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "is of the v1 flavour, which has no gather_replicas");
    CO_EXPECT_NOT_NULL(co_gather_replicas(ctx, v2, x, 0));
    CO_EXPECT_NULL(co_non_slot_devices(ctx, d, co_list(ctx, NULL, 0)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "holds no variable");
    CO_EXPECT_NULL(co_worker_devices(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no devices of its own");
    CO_EXPECT_FALSE(co_experimental_should_init(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "should_init");
    CO_EXPECT_TRUE(co_should_checkpoint(ctx, d));
    CO_SCOPE(ctx, d) {
        CO_EXPECT_FALSE(co_has_strategy(ctx)); /* it changes no mode */
        CO_EXPECT_PTR(co_v1_get_strategy(ctx), d);
        CO_EXPECT_PTR(co_get_strategy(ctx), v2);
    }
    CO_SCOPE(ctx, co_v1_one_device_strategy(ctx, NULL)) {
        CO_EXPECT_PTR(co_v1_get_strategy(ctx), co_get_strategy(ctx));
    }
    CO_EXPECT_OK(ctx);
}

static co_value *
value_fn(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)user;
    return co_int(ctx, replica->replica_id);
}

/* What v1 never had is refused, and says who has it; the other flavour has it. */
CO_TEST_WITH(v1_lacks_what_came_later, "S-V1-1 S-VFF-5 S-LOGICAL-1", "cpus=2")
{
    co_strategy *all[3], *v2 = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *x = co_scalar_float(ctx, 1);
    int64_t      parts[] = { 1 };

    for (size_t i = 0; i < all_strategies(ctx, all); ++i) {
        CO_EXPECT_NULL(
            co_experimental_distribute_values_from_function(ctx, all[i], value_fn, NULL));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "co_one_device_strategy");
        CO_EXPECT_NULL(co_gather_replicas(ctx, all[i], x, 0));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "v1 flavour");
        CO_EXPECT_NULL(co_experimental_assign_to_logical_device(ctx, all[i], x, 0));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
        CO_EXPECT_NULL(co_experimental_split_to_logical_devices(ctx, all[i], x, parts, 1));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
        CO_EXPECT_NULL(co_experimental_replicate_to_logical_devices(ctx, all[i], x));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
    }
    CO_EXPECT_NOT_NULL(co_distribute_values_from_function(ctx, v2, value_fn, NULL));
    CO_EXPECT_NOT_NULL(co_gather_replicas(ctx, co_default_strategy(ctx), x, 0));
}

CO_TEST_WITH(members_are_those_of_the_documents, "S-V1-1 S-V1-2 S-VFF-5 NP-9", "cpus=2")
{
    static const char *const both[] = { "experimental_distribute_dataset",
                                        "experimental_distribute_datasets_from_function",
                                        "distribute_datasets_from_function",
                                        "experimental_local_results",
                                        "experimental_make_numpy_dataset",
                                        "reduce",
                                        "run",
                                        "scope",
                                        "extended",
                                        "num_replicas_in_sync" };
    static const char *const old[] = { "experimental_run", "make_dataset_iterator",
                                       "make_input_fn_iterator", "update_config_proto" };
    static const char *const new[] = {
        "experimental_distribute_values_from_function", "gather",
        "experimental_assign_to_logical_device",        "experimental_split_to_logical_devices",
        "experimental_replicate_to_logical_devices",    "experimental_run_v2"
    };
    co_strategy *v2 = co_one_device_strategy(ctx, NULL), *d = co_default_strategy(ctx), *all[3];

    for (size_t i = 0; i < all_strategies(ctx, all); ++i) {
        for (size_t k = 0; k < LENGTH(both); ++k)
            CO_EXPECT_TRUE(co_strategy_has_member(ctx, all[i], both[k]));
        for (size_t k = 0; k < LENGTH(old); ++k)
            CO_EXPECT_TRUE(co_strategy_has_member(ctx, all[i], old[k]));
        for (size_t k = 0; k < LENGTH(new); ++k)
            CO_EXPECT_FALSE(co_strategy_has_member(ctx, all[i], new[k]));
    }
    for (size_t k = 0; k < LENGTH(old); ++k)
        CO_EXPECT_FALSE(co_strategy_has_member(ctx, v2, old[k]));
    for (size_t k = 0; k < LENGTH(new); ++k)
        CO_EXPECT_TRUE(co_strategy_has_member(ctx, v2, new[k]));
    CO_EXPECT_TRUE(co_strategy_has_member(ctx, d, "gather")); /* of both flavours */
    CO_EXPECT_TRUE(co_strategy_has_member(ctx, d, "experimental_run"));
    CO_EXPECT_FALSE(co_strategy_has_member(ctx, d, "fly"));
    CO_EXPECT_FALSE(co_strategy_has_member(ctx, d, NULL));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_FALSE(co_strategy_has_member(ctx, NULL, "run"));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

CO_TEST_WITH(v1_constructors_check_as_the_others_do, "OD1-1 DEV-4 MIR-INIT-2", "cpus=2")
{
    static const char *const         twice[] = { "/cpu:0", "cpu:0" };
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    CO_EXPECT_NULL(co_v1_one_device_strategy(ctx, "foo"));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "foo");
    CO_EXPECT_NULL(co_v1_mirrored_strategy(ctx, twice, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "twice");
    options.deadline_ms = -7;
    CO_EXPECT_NULL(co_v1_multi_worker_mirrored_strategy(ctx, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deadline");
}

/* v1 extended: all of extended.h, for every strategy of the flavour. */
CO_TEST_WITH(v1_extended_has_everything, "EXT-PROP-1 EXT-CFER-1 EXT-NSD-1", "cpus=2")
{
    co_strategy *all[3];

    for (size_t i = 0; i < all_strategies(ctx, all); ++i) {
        co_strategy *e = co_extended(ctx, all[i]);
        size_t       n = i == 0 ? 1 : 2;
        co_value    *x = co_scalar_float(ctx, 3);

        CO_EXPECT_INT(co_num_items(ctx, co_worker_devices(ctx, e)), n);
        CO_EXPECT_INT(co_num_items(ctx, co_parameter_devices(ctx, e)), n);
        CO_EXPECT_INT(co_num_items(ctx, co_non_slot_devices(ctx, e, NULL)), n);
        CO_EXPECT_FALSE(co_experimental_require_static_shapes(ctx, e));
        CO_EXPECT_TRUE(co_experimental_should_init(ctx, e));
        CO_EXPECT_INT(co_experimental_between_graph(ctx, e), i == 2);
        CO_EXPECT_TRUE(co_should_checkpoint(ctx, e));
        CO_EXPECT_TRUE(co_should_save_summary(ctx, e));
        CO_EXPECT_NOT_NULL(co_extended_broadcast_to(ctx, e, x, co_string(ctx, "/cpu:0")));
        CO_EXPECT_NOT_NULL(co_call_for_each_replica(ctx, e, double_it, co_args(ctx, x), NULL));
        CO_SCOPE(ctx, e) {
            co_value *v = co_variable(ctx, x, NULL);

            CO_EXPECT_CLOSE(co_item_float(ctx, co_read_var(ctx, e, v)), 3, 0);
            CO_EXPECT_TRUE(co_variable_created_in_scope(ctx, e, v));
        }
    }
}

/* The session is for graph mode. */
CO_TEST_WITH(v1_numpy_datasets_need_no_session_when_eager, "NP-6 NP-9 NP-8", "cpus=2")
{
    static const float ones[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_value    *array = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(10), ones);
    co_dataset  *a = co_v1_make_numpy_dataset(ctx, s, array, NULL);
    co_dataset  *b = co_v1_make_numpy_dataset(ctx, s, array, NULL);

    CO_EXPECT_INT(co_cardinality(ctx, a), 10);
    CO_EXPECT_INT(co_cardinality(ctx, co_distribute_dataset(ctx, s, b, NULL)), 10);
}

/* --- one step on an iterator --- */

static co_value *
add_pair(co_context *ctx, co_value *args, void *user)
{
    co_value *pair = co_at(ctx, args, 0);

    ++*(int *)user;
    CO_EXPECT_INT(co_num_items(ctx, args), 1); /* a tuple is one argument */
    return co_add(ctx, co_at(ctx, pair, 0), co_at(ctx, pair, 1));
}

static co_value *
count_arguments(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_int(ctx, (int64_t)co_num_items(ctx, args));
}

CO_TEST_WITH(experimental_run_takes_one_element, "S-EXPRUN-1 S-EXPRUN-2 S-EXPRUN-3 S-V1-2",
             "cpus=2")
{
    static const int64_t a[] = { 0, 1 }, b[] = { 0, 2 };

    co_strategy *one = co_v1_one_device_strategy(ctx, NULL),
                *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *pairs = co_args(ctx, co_tensor(ctx, CO_INT64, CO_SHAPE(2), a),
                                 co_tensor(ctx, CO_INT64, CO_SHAPE(2), b));
    co_dataset  *data = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, pairs), 2, false);
    co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, one, data, NULL));
    int64_t      sums[2];
    int          calls = 0;

    co_value_copy_data(ctx, co_experimental_run(ctx, one, add_pair, it, &calls), CO_INT64, sums, 2);
    CO_EXPECT_INT(sums[0], 0);
    CO_EXPECT_INT(sums[1], 3);
    CO_EXPECT_NULL(co_experimental_run(ctx, one, add_pair, it, &calls));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    CO_EXPECT_INT(calls, 1);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_INT(co_item_int(ctx, co_experimental_run(ctx, m, count_arguments, NULL, NULL)), 0);
    it = sixteen(ctx, m);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_experimental_run(ctx, m, sum_of, it, NULL), 1)),
                  5); /* 2 + 3: each replica has its own component */
}

static co_value *
run_in_a_replica(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    CO_EXPECT_NULL(co_experimental_run(ctx, user, sum_of, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    return NULL;
}

CO_TEST_WITH(arguments_of_experimental_run_are_checked, "S-EXPRUN-1", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);

    CO_EXPECT_NULL(co_experimental_run(ctx, NULL, sum_of, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_experimental_run(ctx, m, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    CO_EXPECT_NULL(co_experimental_run(ctx, m, sum_of, (co_iterator *)(void *)m, NULL));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    co_run(ctx, m, run_in_a_replica, co_no_args(ctx), m);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}

static co_value *
look_around(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    CO_EXPECT_PTR(co_get_strategy(ctx), user);
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    return co_replica_id_in_sync_group(ctx);
}

static co_value *
fail_always(co_context *ctx, co_value *args, void *user)
{
    (void)args, (void)user;
    co_fail(ctx, CO_DATA_LOSS, "boom in fn");
    return NULL;
}

CO_TEST_WITH(experimental_run_enters_the_scope_itself, "S-EXPRUN-1 S-EXPRUN-2 S-V1-2 GEN-ERR-2",
             "cpus=2")
{
    co_strategy *all[3];

    for (size_t i = 0; i < all_strategies(ctx, all); ++i) {
        co_iterator *it = sixteen(ctx, all[i]);
        co_value    *ids = co_experimental_run(ctx, all[i], look_around, it, all[i]);

        CO_EXPECT_INT(co_value_kind(ids), i == 0 ? CO_KIND_TENSOR : CO_KIND_PER_REPLICA);
        CO_EXPECT_FALSE(co_has_strategy(ctx));
        CO_SCOPE(ctx, all[i])
            CO_EXPECT_NOT_NULL(co_experimental_run(ctx, all[i], look_around, it, all[i]));
        /* An element that a failing step has taken is gone. */
        CO_EXPECT_NULL(co_experimental_run(ctx, all[i], fail_always, it, NULL));
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "boom");
        CO_EXPECT_FALSE(co_has_strategy(ctx));
        CO_EXPECT_NOT_NULL(co_get_next(ctx, it));
        CO_EXPECT_NULL(co_experimental_run(ctx, all[i], look_around, it, all[i]));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    }
}

CO_TEST_WITH(an_iterator_of_another_strategy_is_refused, "S-EXPRUN-1 DS-ITER-4", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_strategy *one = co_v1_one_device_strategy(ctx, "/cpu:1");
    co_iterator *it = sixteen(ctx, m);

    CO_EXPECT_NULL(co_experimental_run(ctx, one, sum_of, it, NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_SCOPE(ctx, one) {
        CO_EXPECT_NULL(co_experimental_run(ctx, m, sum_of, it, NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
    CO_EXPECT_NOT_NULL(co_experimental_run(ctx, m, sum_of, it, NULL)); /* nothing was taken */
    /* What the default strategy has made belongs to nobody. */
    it = sixteen(ctx, co_default_strategy(ctx));
    CO_EXPECT_INT(co_item_int(ctx, co_experimental_run(ctx, one, sum_of, it, NULL)), 6);
}

static co_value *
sum_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_value *sums = co_run(ctx, user, sum_of, co_args(ctx, inputs), NULL);

    co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_SUM, sums);
    return NULL;
}

CO_TEST_WITH(several_steps_take_input_iterators, "EXT-STEPS-1 ITER1-NEXT-1", "cpus=2")
{
    co_strategy *all[3];

    for (size_t i = 0; i < all_strategies(ctx, all); ++i) {
        co_iterator     *it = sixteen(ctx, all[i]);
        co_step_context *steps = co_experimental_run_steps_on_iterator(ctx, all[i], sum_step, it,
                                                                       all[i], 2, NULL);
        co_value        *sum = co_get(ctx, co_last_step_outputs(ctx, steps), "sum");

        CO_EXPECT_INT(co_item_int(ctx, sum), 4 + 5 + 6 + 7);
        CO_EXPECT_INT(co_iterator_step_examples(ctx, it), 4);
    }
}

static bool
in_little_memory(co_context *ctx)
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);

    return co_experimental_run(ctx, m, sum_of, sixteen(ctx, m), NULL) != NULL;
}

CO_TEST_BARE(one_step_survives_want_of_memory, "S-EXPRUN-1")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", in_little_memory);
}

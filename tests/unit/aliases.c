/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents' names: every alias is called and does what its stable name does, from the caller's
 * line. With them the small members of the surface that the documents list: extended,
 * cluster_resolver, run options, value contexts, logical devices.
 */
#include <cohort/tpu.h>
#include <cohort/v1.h>
#include "test.h"

static co_value *
twice(co_context *ctx, co_value *args, void *user)
{
    int *calls = user;

    if (calls != NULL)
        __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED);
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

static co_value *
replica_number(co_context *ctx, const co_value_context *replica, void *user)
{
    char text[100];

    (void)user;
    CO_EXPECT_INT(replica->replica_id, replica->replica_id_in_sync_group); /* AMB-6 */
    co_value_context_format(ctx, replica, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, replica->replica_id == 0 ? "replica id 0" : "replica id 1");
    return co_scalar_float(ctx, (float)replica->replica_id);
}

static co_dataset *
pairs_of_ones(co_context *ctx, const co_input_context *input, void *user)
{
    int64_t size = co_get_per_replica_batch_size(ctx, input, 4);

    (void)user;
    return co_dataset_batch(
        ctx, co_dataset_from_tensor_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(8))), size, true);
}

CO_TEST_WITH(run_has_its_name_of_1_15, "AMB-6 VCX-1 S-RUN-1", "cpus=2")
{
    co_strategy   *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_run_options options = CO_RUN_OPTIONS_INIT;
    co_value      *values, *local;
    int            calls = 0;

    values = co_experimental_distribute_values_from_function(ctx, m, replica_number, NULL);
    values = co_experimental_run_v2(ctx, m, twice, co_args(ctx, values), &calls);
    local = co_experimental_local_results(ctx, m, values);
    CO_EXPECT_INT(co_num_items(ctx, local), 2);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, local, 1)), 2, 0);
    CO_EXPECT_INT(calls, 2);
    options.in_turn = true;
    values = co_experimental_run_v2_with(ctx, m, twice, co_args(ctx, values), &calls, &options);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, values, 1)), 4, 0);
    CO_EXPECT_INT(calls, 4);
}

CO_TEST_WITH(an_alias_keeps_the_site_of_its_caller, "", "cpus=2")
{
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    int          line;

    line = __LINE__ + 1;
    CO_EXPECT_NULL(co_experimental_run_v2(ctx, m, NULL, co_no_args(ctx), NULL));
    CO_EXPECT_STR(co_error(ctx)->file, __FILE__);
    CO_EXPECT_INT(co_error(ctx)->line, line);
    CO_EXPECT_STR(co_error(ctx)->call, "run");
    co_clear(ctx);
    line = __LINE__ + 1;
    CO_EXPECT_NULL(co_distribute_experimental_make_numpy_dataset(ctx, co_int(ctx, 1)));
    CO_EXPECT_INT(co_error(ctx)->line, line);
    co_clear(ctx);
}

CO_TEST_WITH(input_has_its_experimental_names, "OD-FN-1 IRM-1 NP-9", "cpus=2")
{
    co_strategy     *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    co_dataset      *data = co_experimental_make_numpy_dataset(ctx, m,
                                                               co_ones(ctx, CO_FLOAT32, CO_SHAPE(10)));
    co_value        *x;

    data = co_experimental_distribute_dataset(ctx, m, co_dataset_batch(ctx, data, 4, false), NULL);
    x = co_next(ctx, co_iterate(ctx, data));
    CO_EXPECT_INT(co_value_num_elements(ctx, co_at(ctx, x, 1)), 2);
    for (int i = 0; i < 2; ++i) {
        options.per_replica = i == 0 ? CO_INPUT_PER_WORKER : CO_INPUT_PER_REPLICA;
        data = co_experimental_distribute_datasets_from_function(ctx, m, pairs_of_ones, NULL,
                                                                 &options);
        x = co_next(ctx, co_iterate(ctx, data));
        CO_EXPECT_INT(co_value_num_elements(ctx, co_at(ctx, x, 0)), 2);
    }
}

CO_TEST_WITH(extended_has_its_experimental_names, "EXT-PROP-1 EXT-BC-2 S-GATHER-2 MIR-EXT-1",
             "cpus=2")
{
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *parts[] = { co_ones(ctx, CO_FLOAT32, CO_SHAPE(1)),
                             co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)) };
    co_value    *copied;

    CO_EXPECT_FALSE(co_experimental_require_static_shapes(ctx, m));
    CO_EXPECT_TRUE(co_experimental_should_init(ctx, m));
    CO_EXPECT_FALSE(co_experimental_between_graph(ctx, m));
    copied = co_extended_broadcast_to(ctx, m, co_scalar_float(ctx, 7), co_string(ctx, "/cpu:1"));
    CO_EXPECT_CLOSE(co_item_float(ctx, copied), 7, 0);
    CO_EXPECT_INT(co_value_num_elements(
                      ctx, co_strategy_gather(ctx, m, co_per_replica_value(ctx, parts, 2), 0)),
                  3);
}

static co_value *
give_id(co_context *ctx, co_value *args, void *user)
{
    co_value *id = co_replica_id_in_sync_group(ctx);

    (void)args;
    (void)user;
    CO_EXPECT_INT(co_value_dtype(ctx, id), CO_INT32);
    return id;
}

CO_TEST_WITH(constructors_have_their_names_until_2_3, "RC-2", "cpus=2")
{
    co_strategy *w = co_experimental_multi_worker_mirrored_strategy(ctx, NULL),
                *v = co_multi_worker_mirrored_strategy(ctx, NULL);
    co_value *ids = co_run(ctx, w, give_id, co_no_args(ctx), NULL);

    CO_EXPECT_STR(co_strategy_name(ctx, w), co_strategy_name(ctx, v));
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, ids, 1)), 1);
}

/* --- logical devices --- */

static void
expect_no_logical_devices(co_context *ctx, co_strategy *strategy, co_value *tensor, int id,
                          const int64_t *dims, size_t num_dims)
{
    CO_EXPECT_NULL(co_experimental_assign_to_logical_device(ctx, strategy, tensor, id));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "TPU");
    CO_EXPECT_NULL(co_experimental_split_to_logical_devices(ctx, strategy, tensor, dims, num_dims));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, co_strategy_name(ctx, strategy));
    CO_EXPECT_NULL(co_experimental_replicate_to_logical_devices(ctx, strategy, tensor));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
}

static co_value *
annotate(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    expect_no_logical_devices(ctx, user, co_scalar_float(ctx, 1), 0, NULL, 0);
    return NULL;
}

CO_TEST_WITH(logical_devices_are_not_implemented_whatever_the_arguments, "S-LOGICAL-1 OD-LOGICAL-1",
             "cpus=2")
{
    static const int64_t dims[] = { 1, 2, 4, 1 };

    co_strategy *all[] = { co_default_strategy(ctx), co_one_device_strategy(ctx, NULL),
                           co_mirrored_strategy(ctx, NULL, 0, NULL),
                           co_multi_worker_mirrored_strategy(ctx, NULL) };

    for (size_t i = 0; i < 4; ++i) {
        expect_no_logical_devices(ctx, all[i], co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4, 8, 3)), 0,
                                  dims, 4);
        expect_no_logical_devices(ctx, all[i], NULL, -1, NULL, 7);
        expect_no_logical_devices(ctx, all[i], co_string(ctx, "no tensor"), 1000, dims, 1);
        co_run(ctx, all[i], annotate, co_no_args(ctx), all[i]); /* in any context */
    }
    CO_EXPECT_NULL(co_assign_to_logical_device(ctx, NULL, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

/* --- the small members --- */

CO_TEST_WITH(extended_is_the_same_object_every_time, "S-PROP-1 S-PROP-4", "cpus=2")
{
    co_strategy *all[] = { co_default_strategy(ctx), co_one_device_strategy(ctx, NULL),
                           co_mirrored_strategy(ctx, NULL, 0, NULL) },
                *w = co_multi_worker_mirrored_strategy(ctx, NULL);
    co_value *who;

    for (size_t i = 0; i < 3; ++i) {
        CO_EXPECT_PTR(co_extended(ctx, all[i]), co_extended(ctx, all[i]));
        CO_EXPECT_PTR(co_extended(ctx, all[i]), all[i]); /* and knows its strategy */
        CO_EXPECT_INT(co_value_kind(co_cluster_resolver(ctx, all[i])), CO_KIND_NONE);
    }
    who = co_cluster_resolver(ctx, w);
    CO_EXPECT_STR(co_named_tuple_name(ctx, who), "ClusterResolver");
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, who, "task_id")), 0);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, who, "num_workers")), 1);
    CO_EXPECT_NULL(co_extended(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_cluster_resolver(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

CO_TEST_WITH(run_options_are_those_of_the_documents_and_ignored, "RO-1 S-RUN-9", "cpus=2")
{
    co_strategy       *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_tpu_run_options options = CO_TPU_RUN_OPTIONS_INIT;
    co_run_options     run = CO_RUN_OPTIONS_INIT;
    co_value          *x = co_scalar_float(ctx, 3), *plain, *with;

    CO_EXPECT_TRUE(options.experimental_enable_dynamic_batch_size);
    CO_EXPECT_FALSE(options.experimental_bucketizing_dynamic_shape);
    CO_EXPECT_NULL(options.experimental_xla_options);
    options.experimental_enable_dynamic_batch_size = false;
    options.experimental_bucketizing_dynamic_shape = true;
    options.experimental_xla_options = &options;
    plain = co_run(ctx, m, twice, co_args(ctx, x), NULL);
    with = co_tpu_run(ctx, m, twice, co_args(ctx, x), NULL, &options);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, with, 1)),
                    co_item_float(ctx, co_at(ctx, plain, 1)), 0);
    CO_EXPECT_NOT_NULL(co_tpu_run(ctx, m, twice, co_args(ctx, x), NULL, NULL));
    /* those of every strategy are passed on */
    run.kwargs = x;
    options.run = &run;
    CO_EXPECT_NULL(co_tpu_run(ctx, m, twice, co_args(ctx, x), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "kwargs");
    options.struct_size = 0;
    CO_EXPECT_NULL(co_tpu_run(ctx, m, twice, co_args(ctx, x), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size");
}

CO_TEST(value_contexts_have_a_text, "VCX-1")
{
    co_value_context replica = { .replica_id_in_sync_group = 2, .num_replicas_in_sync = 4 };
    char             text[80], few[8];
    size_t           length = co_value_context_format(ctx, &replica, text, sizeof(text));

    CO_EXPECT_STR(text, "tf.distribute.ValueContext(replica id 2, total replicas in sync: 4)");
    CO_EXPECT_INT(length, strlen(text));
    CO_EXPECT_INT(co_value_context_format(ctx, &replica, few, sizeof(few)), length);
    CO_EXPECT_STR(few, "tf.dist");
    CO_EXPECT_INT(co_value_context_format(ctx, &replica, NULL, 0), length);
    CO_EXPECT_INT(co_value_context_format(ctx, NULL, text, sizeof(text)), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "replica");
    CO_EXPECT_STR(text, "");
    CO_EXPECT_INT(co_value_context_format(ctx, &replica, NULL, 5), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "out");
    replica.replica_id = 3; /* one field under two names */
    CO_EXPECT_INT(replica.replica_id_in_sync_group, 3);
}

CO_TEST_WITH(the_default_strategy_chooses_a_variable, "DEF-11", "cpus=2")
{
    co_variable_options b = CO_VARIABLE_OPTIONS_INIT, a = CO_VARIABLE_OPTIONS_INIT;
    co_strategy        *d = co_default_strategy(ctx);
    co_value           *items[3], *chosen;

    b.name = "b";
    a.name = "a";
    items[0] = co_variable(ctx, co_float(ctx, 1), &b);
    items[1] = co_variable(ctx, co_float(ctx, 1), &a);
    items[2] = co_int(ctx, 1);
    chosen = co_non_slot_devices(ctx, d, co_list(ctx, items, 3));
    CO_EXPECT_PTR(chosen, items[1]);
    CO_EXPECT_NULL(co_non_slot_devices(ctx, d, co_list(ctx, NULL, 0)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no variable");
    CO_EXPECT_NULL(co_non_slot_devices(ctx, d, items[0]));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no variable");
    CO_EXPECT_NULL(co_non_slot_devices(ctx, d, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "variables");
    CO_EXPECT_NULL(co_non_slot_devices(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the documents call strategy.extended: properties, places, updates, containers. Section
 * 13. */
#include <cohort/tpu.h>
#include <cohort/v1.h>
#include "suite.h"

CONFORM(properties_are_those_of_the_table,
        "EXT-PROP-1 DEF-9 DEF-14 OD-PROP-1 OD-PROP-2 MIR-PROP-1 MW-4 MW-6")
{
    bool is_chief = co_worker_id(ctx, s) == 0, flag;
    co_value *(*const devices[])(co_context *, co_strategy *) = { (co_worker_devices),
                                                                  (co_parameter_devices) };

    for (size_t i = 0; i < LENGTH(devices); ++i) {
        co_value *names = devices[i](ctx, s);

        if (EXPECT_OUTCOME(ctx, row->is->devices_known) && row->is->devices_known == CO_OK) {
            CO_EXPECT_INT(co_value_kind(names), CO_KIND_TUPLE);
            CO_EXPECT_INT(co_num_items(ctx, names), row->num_devices);
            for (int k = 0; k < row->num_devices; ++k) {
                char        name[CO_DEVICE_NAME_MAX];
                const char *actual = co_string_at(ctx, co_at(ctx, names, (size_t)k), 0, NULL);

                co_device_resolve(ctx, row->devices[k], name);
                CO_EXPECT_CONTAINS(actual, strrchr(name, '/'));
                CO_EXPECT_CONTAINS(actual, row->job);
            }
        }
    }
    flag = co_should_init(ctx, s);
    if (EXPECT_OUTCOME(ctx, row->is->flags_known) && row->is->flags_known == CO_OK)
        CO_EXPECT_TRUE(flag);
    flag = co_between_graph(ctx, s);
    EXPECT_OUTCOME(ctx, row->is->flags_known);
    CO_EXPECT_INT(flag, row->is->between_graph);
    CO_EXPECT_FALSE(co_require_static_shapes(ctx, s));
    CO_EXPECT_INT(co_should_checkpoint(ctx, s), is_chief);
    CO_EXPECT_INT(co_should_save_summary(ctx, s), is_chief);
    CO_EXPECT_OK(ctx);
}

CONFORM(reduce_to_puts_the_result_on_a_device, "EXT-RT-1 EXT-RT-3 EXT-RT-4 OD-EXT-1")
{
    co_value *x = suite_floats(ctx, s, 1, 1), *r;

    r = co_reduce_to(ctx, s, CO_REDUCE_SUM, x, co_string(ctx, "/cpu:0"));
    CO_EXPECT_INT(co_value_kind(r), row->reduced_to_device);
    CO_EXPECT_CLOSE(suite_number(ctx, r), SUM_OF_IDS(row->n + 1), 0);
    r = co_reduce_to(ctx, s, CO_REDUCE_MEAN, co_args(ctx, x, x), co_string(ctx, "/cpu:0"));
    CO_EXPECT_CLOSE(suite_number(ctx, co_at(ctx, r, 1)), (row->n + 1) / 2.0, 0);
}

CONFORM(reduce_to_a_variable_copies_to_its_devices, "EXT-RT-2 EXT-RT-3 EXT-RT-5")
{
    co_value *v = suite_variable(ctx, s, 0, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    co_value *r = co_reduce_to(ctx, s, CO_REDUCE_SUM, suite_floats(ctx, s, 1, 1), v);

    CO_EXPECT_INT(co_value_kind(r), row->reduced_to_variable);
    CO_EXPECT_CLOSE(suite_number(ctx, co_to_tensor(ctx, r, CO_DTYPE_NONE)), SUM_OF_IDS(row->n + 1),
                    0);
    EXPECT_LOCAL(ctx, s, v, 0, 0); /* the destination is never modified */
}

STEP(reduce_to_in_step)
{
    co_value *x = co_scalar_float(ctx, 1), *pair = co_args(ctx, x, x);

    co_reduce_to(ctx, user, CO_REDUCE_SUM, x, x);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_batch_reduce_to(ctx, user, CO_REDUCE_SUM, co_list(ctx, &pair, 1));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_broadcast_to_devices(ctx, user, x, x);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return NULL;
}

CONFORM(reduce_to_checks_its_arguments, "EXT-RT-1 EXT-RT-2 EXT-BRT-4 EXT-BC-1 OD-EXT-1 S-REDUCE-2")
{
    co_value *x = suite_floats(ctx, s, 1, 1);

    co_reduce_to(ctx, s, CO_REDUCE_SUM, x, co_args(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
    co_reduce_to(ctx, s, (co_reduce_op)9, x, co_string(ctx, "/cpu:0"));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "9");
    co_reduce_to(ctx, s, CO_REDUCE_SUM, x, NULL);
    EXPECT_OUTCOME(ctx, row->is->no_destination);
    suite_step(ctx, s, reduce_to_in_step, s);
    CO_EXPECT_OK(ctx);
}

CONFORM(batches_are_reduced_pair_by_pair, "EXT-BRT-1 EXT-BRT-2 OD-EXT-2")
{
    co_value *there = co_string(ctx, "/cpu:0"), *r;
    co_value *pairs[] = { co_args(ctx, suite_floats(ctx, s, 1, 1), there),
                          co_args(ctx, suite_floats(ctx, s, 2, 0), there) };

    r = co_batch_reduce_to(ctx, s, CO_REDUCE_SUM, co_list(ctx, pairs, 2));
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_LIST);
    CO_EXPECT_CLOSE(suite_number(ctx, co_at(ctx, r, 0)), SUM_OF_IDS(row->n + 1), 0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_at(ctx, r, 1)), 2 * row->n, 0);
    CO_EXPECT_INT(
        co_num_items(ctx, co_batch_reduce_to(ctx, s, CO_REDUCE_SUM, co_list(ctx, NULL, 0))), 0);
}

CONFORM(broadcast_copies_a_tensor_to_places, "EXT-BC-1 EXT-BC-2 DEF-10 OD-EXT-3")
{
    co_value *x = co_scalar_float(ctx, 7), *r;

    r = co_broadcast_to_devices(ctx, s, x, co_string(ctx, "/cpu:0"));
    if (EXPECT_OUTCOME(ctx, row->is->broadcast) && row->is->broadcast == CO_OK)
        CO_EXPECT_CLOSE(suite_number(ctx, r), 7, 0);
    co_broadcast_to_devices(ctx, s, x, NULL);
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
}

/* One row for each replica: id + 1 at id, of a table of nine rows where shape is not NULL. */
VALUE_OF(row_of_replica)
{
    int id = replica->replica_id_in_sync_group;

    return co_slices(ctx, suite_vector(ctx, 1, (float[]){ (float)id + 1 }),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ id }), user);
}

static void
expect_rows(co_context *ctx, co_value *slices, int n, bool has_shape, const char *device)
{
    CO_REQUIRE(co_value_kind(slices) == CO_KIND_SLICES);
    EXPECT_ELEMENTS(ctx, co_slices_values(ctx, slices), n, 1, 2, 3, 4, 5, 6, 7, 8);
    EXPECT_ELEMENTS(ctx, co_slices_indices(ctx, slices), n, 0, 1, 2, 3, 4, 5, 6, 7);
    CO_EXPECT_INT(co_slices_dense_shape(ctx, slices) != NULL, has_shape);
    if (device != NULL) {
        CO_EXPECT_STR(co_value_device(ctx, co_slices_values(ctx, slices)), device);
        CO_EXPECT_STR(co_value_device(ctx, co_slices_indices(ctx, slices)), device);
    }
}

CONFORM(slices_are_reduced_to_places_and_are_places, "EXT-RT-6 EXT-RT-3")
{
    co_value *v = suite_variable(ctx, s, 0, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *r, *to;
    co_value *nine = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 9 });

    for (int has_shape = 0; has_shape < 2; ++has_shape) {
        co_value *x = co_distribute_values_from_function(ctx, s, row_of_replica,
                                                         has_shape ? nine : NULL);

        r = co_reduce_to(ctx, s, CO_REDUCE_SUM, x, v);
        CO_EXPECT_INT(co_value_kind(r), row->reduced_to_variable == CO_KIND_MIRRORED
                                            ? CO_KIND_MIRRORED
                                            : CO_KIND_SLICES);
        for (int i = 0; i < (row->reduced_to_variable == CO_KIND_MIRRORED ? row->num_devices : 1);
             ++i)
            expect_rows(ctx, co_value_kind(r) == CO_KIND_MIRRORED ? co_at(ctx, r, (size_t)i) : r,
                        row->n, has_shape, NULL);
        to = co_value_kind(r) == CO_KIND_MIRRORED ? co_at(ctx, r, 0) : r;
        r = co_reduce_to(ctx, s, CO_REDUCE_SUM, suite_floats(ctx, s, 1, 1), to);
        CO_EXPECT_INT(co_value_kind(r), row->reduced_to_device);
        CO_EXPECT_CLOSE(suite_number(ctx, r), SUM_OF_IDS(row->n + 1), 0);
        r = co_reduce_to(ctx, s, CO_REDUCE_SUM, x, to);
        expect_rows(ctx, r, row->n, has_shape,
                    row->is->selects && row->n > 1 ? co_value_device(ctx, co_slices_values(ctx, to))
                                                   : NULL);
    }
}

CONFORM(slices_stay_slices_where_they_are_copied, "EXT-BC-3")
{
    co_value *v = suite_variable(ctx, s, 0, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *r;
    co_value *nine = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 9 });
    bool      is_mirrored = row->reduced_to_variable == CO_KIND_MIRRORED;

    for (int has_shape = 0; has_shape < 2; ++has_shape) {
        co_value   *x = co_slices(ctx, suite_vector(ctx, 2, (float[]){ 1, 2 }),
                                  co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 0, 1 }),
                                has_shape ? nine : NULL);
        const char *home = co_value_device(ctx, nine);

        expect_rows(ctx, co_copy_to(ctx, x, home), 2, has_shape, home);
        r = co_broadcast_to_devices(ctx, s, x, v);
        if (!EXPECT_OUTCOME(ctx, row->is->broadcast) || row->is->broadcast != CO_OK)
            continue;
        CO_EXPECT_INT(co_value_kind(r), is_mirrored ? CO_KIND_MIRRORED : CO_KIND_SLICES);
        for (int i = 0; i < (is_mirrored ? row->num_devices : 1); ++i)
            expect_rows(ctx, is_mirrored ? co_at(ctx, r, (size_t)i) : r, 2, has_shape, NULL);
    }
}

/* --- update --- */

UPDATE(add_argument)
{
    ++*(int *)user;
    CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    CO_EXPECT_INT(co_value_kind(variable), CO_KIND_VARIABLE);
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return co_assign_add(ctx, variable, co_at(ctx, args, 0));
}

CONFORM(update_reaches_every_component, "EXT-UPD-1 EXT-UPD-2 EXT-UPD-3 OD-EXT-4 SET-6 CTX-5")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *r;
    int       calls = 0;

    r = co_update(ctx, s, v, add_argument, co_args(ctx, co_scalar_float(ctx, 2)), &calls, NULL);
    CO_EXPECT_INT(calls, row->local);
    EXPECT_LOCAL(ctx, s, v, 3, 0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_to_tensor(ctx, r, CO_DTYPE_NONE)), 3, 0);
    co_update(ctx, s, v, add_argument, co_args(ctx, suite_floats(ctx, s, 0, 1)), &calls, NULL);
    EXPECT_LOCAL(ctx, s, v, 3, 1);
}

CONFORM(update_without_grouping_gives_tuples, "EXT-UPD-3 OD-EXT-4")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *r;
    int       calls = 0;

    r = co_update(ctx, s, v, add_argument, co_args(ctx, co_scalar_float(ctx, 2)), &calls,
                  &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_TUPLE);
    CO_EXPECT_INT(co_num_items(ctx, r), row->local);
    for (int i = 0; i < row->local; ++i)
        CO_EXPECT_CLOSE(suite_number(ctx, co_at(ctx, r, (size_t)i)), 3, 0);
}

UPDATE(assign_container)
{
    return co_assign(ctx, user, co_at(ctx, args, 0));
}

CONFORM(the_container_is_the_component_in_an_update, "EXT-UPD-4 VAR-MIR-9")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_SUM);

    co_update(ctx, s, v, assign_container, co_args(ctx, suite_floats(ctx, s, 5, 1)), v, NULL);
    EXPECT_LOCAL(ctx, s, v, 5, 1);
}

UPDATE(assign_argument)
{
    return co_assign(ctx, variable, co_at(ctx, args, 0));
}

typedef struct place {
    co_strategy *s;
    co_value    *variable;
} place;

STEP(update_in_step)
{
    const place *p = user;

    return co_update(ctx, p->s, p->variable, assign_argument,
                     co_args(ctx, co_scalar_float(ctx, (float)co_replica_id(ctx))), NULL, NULL);
}

CONFORM(update_in_a_step_meets, "EXT-UPD-6 OD-EXT-4")
{
    place p = { s, suite_variable(ctx, s, 9, CO_SYNC_AUTO, CO_AGGREGATION_NONE) };

    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, update_in_step, &p), 0, 1);
    EXPECT_LOCAL(ctx, s, p.variable, 0, 1);
}

UPDATE(failing_update)
{
    return co_fail(ctx, CO_DATA_LOSS, "no update"), NULL;
}

CONFORM(update_checks_its_variable_and_passes_errors_on, "EXT-UPD-5 OD-EXT-4 GEN-ERR-1 GEN-ERR-2")
{
    co_value *plain = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    int       calls = 0;

    co_update(ctx, s, plain, add_argument, co_args(ctx, co_scalar_float(ctx, 2)), &calls, NULL);
    EXPECT_OUTCOME(ctx, row->is->update_plain);
    co_update(ctx, s, v, failing_update, co_no_args(ctx), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "no update");
    co_update(ctx, s, v, NULL, co_no_args(ctx), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

STEP(where_am_i)
{
    ++*(int *)user;
    CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    return co_string(ctx, co_current_device(ctx));
}

STEP(non_slot_in_step)
{
    co_update_non_slot(ctx, user, co_args(ctx, co_string(ctx, "/cpu:0")), where_am_i,
                       co_no_args(ctx), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return NULL;
}

CONFORM(update_non_slot_visits_devices, "EXT-UNS-1 OD-EXT-5 SET-6")
{
    int       calls = 0;
    co_value *names = co_args(ctx, co_string(ctx, "/cpu:0")), *r;

    r = co_update_non_slot(ctx, s, names, where_am_i, co_no_args(ctx), &calls,
                           &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_INT(calls, 1);
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_TUPLE);
    suite_step(ctx, s, non_slot_in_step, s);
    CO_EXPECT_OK(ctx);
}

/* --- containers --- */

CONFORM(a_component_knows_its_container, "EXT-VC-1 EXT-VCS-1 EXT-RV-1 OD-EXT-7 DEF-13")
{
    co_value *v = suite_variable(ctx, s, 6, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    co_value *foreign = suite_variable(ctx, suite_other(ctx), 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    co_value *x = co_scalar_float(ctx, 1);

    for (int i = 0; i < row->local; ++i)
        CO_EXPECT_PTR(co_value_container(ctx, s, suite_local(ctx, s, v, i)), v);
    CO_EXPECT_PTR(co_value_container(ctx, s, x), x);
    CO_EXPECT_TRUE(co_variable_created_in_scope(ctx, s, v));
    CO_EXPECT_FALSE(co_variable_created_in_scope(ctx, s, foreign));
    CO_EXPECT_CLOSE(suite_number(ctx, co_read_var(ctx, s, v)), 6, 0);
}

CONFORM(variables_are_made_beside_others, "EXT-COL-1 EXT-COL-2 EXT-COL-3 OD-EXT-6 DEF-12")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *w = NULL;
    co_value *foreign = suite_variable(ctx, suite_other(ctx), 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    CO_SCOPE(ctx, s) {
        co_colocate_begin(ctx, s, v);
        w = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
        co_colocate_end(ctx);
        CO_EXPECT_OK(ctx);
        co_colocate_begin(ctx, s, foreign);
        co_colocate_end(ctx);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    }
    for (int i = 0; i < row->local; ++i)
        CO_EXPECT_STR(co_value_device(ctx, suite_local(ctx, s, w, i)),
                      co_value_device(ctx, suite_local(ctx, s, v, i)));
    co_colocate_begin(ctx, s, v);
    co_colocate_end(ctx);
    EXPECT_OUTCOME(ctx, row->is->mixing); /* its scope is not open */
}

CONFORM(logical_devices_belong_to_other_strategies, "S-LOGICAL-1 OD-LOGICAL-1")
{
    co_value *x = co_scalar_float(ctx, 1);

    CO_EXPECT_NULL(co_assign_to_logical_device(ctx, s, x, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
    CO_EXPECT_NULL(co_split_to_logical_devices(ctx, s, x, CO_SHAPE(1)));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
    CO_EXPECT_NULL(co_replicate_to_logical_devices(ctx, s, x));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
}

CONFORM(non_slot_devices_are_all_devices, "EXT-NSD-1 DEF-11 OD-PROP-1")
{
    co_value *names = co_non_slot_devices(ctx, s, co_no_args(ctx));

    if (EXPECT_OUTCOME(ctx, row->is->non_slot) && row->is->non_slot == CO_OK)
        CO_EXPECT_INT(co_num_items(ctx, names), row->num_devices);
}

VALUE_OF(id_of_worker)
{
    int32_t id = co_worker_id(ctx, user);

    return co_tensor(ctx, CO_INT32, CO_SHAPE(1), &id);
}

/* MPI gives a cluster without chiefs, so worker k has id k. */
CONFORM(workers_have_the_ids_of_their_tasks, "MW-3 MW-8 S-PROP-4")
{
    co_value *cluster = co_cluster_resolver(ctx, s), *ids;

    CO_EXPECT_INT(co_worker_id(ctx, s) * row->local, first);
    if (co_value_kind(cluster) == CO_KIND_NAMED_TUPLE) {
        CO_EXPECT_STR(co_string_at(ctx, co_get(ctx, cluster, "task_type"), 0, NULL), "worker");
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, cluster, "task_id")), co_worker_id(ctx, s));
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, cluster, "num_workers")), row->workers);
    }
    ids = co_gather_replicas(ctx, s, co_distribute_values_from_function(ctx, s, id_of_worker, s),
                             0);
    for (int i = 0; i < row->n; ++i)
        CO_EXPECT_INT(((const int32_t *)co_value_data(ctx, ids))[i], i / row->local);
}

CONFORM(a_strategy_knows_its_cluster_and_its_parts, "S-PROP-1 S-PROP-4 S-CFG-1 S-CFG-2 MW-12")
{
    co_value         *config = co_update_config_proto(ctx, s, co_bytes(ctx, "", 0));
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

    CO_EXPECT_PTR(co_extended(ctx, s), s);
    CO_EXPECT_INT(co_value_kind(co_cluster_resolver(ctx, s)), row->is->cluster);
    CO_EXPECT_INT(co_value_kind(config), CO_KIND_STRING);
    if (row->is->between_graph) { /* a worker of its cluster */
        co_value   *expected;
        const char *bytes;
        size_t      n = 0, m = 0;

        cluster.task_type = row->workers > 1 ? "worker" : NULL;
        cluster.task_index = co_worker_id(ctx, s);
        expected = co_config_for_cluster(ctx, co_bytes(ctx, "", 0), &cluster);
        bytes = co_string_at(ctx, expected, 0, &n);
        CO_EXPECT_BYTES(co_string_at(ctx, config, 0, &m), bytes, n);
        CO_EXPECT_INT(m, n);
    }
}

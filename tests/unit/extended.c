/* SPDX-License-Identifier: Apache-2.0 */
/* What the documents call strategy.extended: places, updates, containers, properties. Section
 * 13. */
#include <cohort/v1.h>
#include "test.h"

static const char *const two[] = { "/cpu:0", "/cpu:1" };
#define CPU0 "/job:localhost/replica:0/task:0/device:CPU:0"
#define CPU1 "/job:localhost/replica:0/task:0/device:CPU:1"

static co_strategy *
mirrored(co_context *ctx)
{
    return co_mirrored_strategy(ctx, two, 2, NULL);
}

static co_value *
make(co_context *ctx, co_strategy *strategy, double initial)
{
    co_value *v = NULL;

    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_float(ctx, initial), NULL);
    return v;
}

static co_value *
one_and_three(co_context *ctx)
{
    co_value *parts[] = { co_scalar_float(ctx, 1), co_scalar_float(ctx, 3) };

    return co_per_replica_value(ctx, parts, 2);
}

static void
expect_parts(co_context *ctx, co_value *bundle, co_kind kind, double a, double b)
{
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_value_kind(bundle), kind);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, bundle, 0)), a, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, bundle, 1)), b, 0);
}

static void
expect_variable(co_context *ctx, co_strategy *strategy, co_value *v, double a, double b)
{
    co_value *local = co_local_results(ctx, strategy, v);

    CO_EXPECT_OK(ctx);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, local, 0)), a, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, local, 1)), b, 0);
}

CO_TEST_WITH(reduce_to_puts_the_result_where_it_is_told, "EXT-RT-1 EXT-RT-3 EXT-RT-4 EXT-RT-5",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = make(ctx, m, 0), *r;

    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, one_and_three(ctx), v);
    expect_parts(ctx, r, CO_KIND_MIRRORED, 4, 4);
    CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, r, 1)), CPU1);
    r = co_reduce_to(ctx, m, CO_REDUCE_MEAN, one_and_three(ctx), co_string(ctx, "/cpu:1"));
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 2, 0);
    CO_EXPECT_STR(co_value_device(ctx, r), CPU1);
    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, co_args(ctx, one_and_three(ctx), one_and_three(ctx)),
                     co_string(ctx, "/cpu:0"));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, r, 1)), 4, 0);
    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, one_and_three(ctx), v);
    CO_EXPECT_PTR(co_reduce_to(ctx, m, CO_REDUCE_MEAN, r, v), r);
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, r, v));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "mirrored");
    expect_variable(ctx, m, v, 0, 0); /* the destination is never modified */
}

CO_TEST_WITH(destinations_are_checked,
             "EXT-RT-1 EXT-RT-2 EXT-BRT-2 EXT-BRT-4 EXT-BC-1 DEF-10 OD-EXT-1 OD-EXT-3", "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, "/cpu:1"),
                *d = co_default_strategy(ctx);
    co_value *x = one_and_three(ctx), *list = co_list(ctx, &x, 1), *t = co_scalar_float(ctx, 1);

    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, list));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "list");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, co_string(ctx, "")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "empty");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "none");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, co_int(ctx, 3)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "host integer");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, co_string(ctx, "/foo:0")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "foo");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, (co_reduce_op)9, x, co_string(ctx, "/cpu:0")));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "9");
    CO_EXPECT_PTR(co_reduce_to(ctx, one, CO_REDUCE_SUM, t, NULL), t);
    CO_EXPECT_NULL(co_reduce_to(ctx, one, CO_REDUCE_SUM, t, list));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, list));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "tuple");
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, m, t, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, m, t, list));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, m, t, co_string(ctx, "")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, d, t, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, d, t, co_string(ctx, "/cpu:0")));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
    CO_EXPECT_PTR(co_broadcast_to_devices(ctx, one, t, co_string(ctx, "/cpu:0")), t);
}

CO_TEST_WITH(batches_are_reduced_pair_by_pair, "EXT-BRT-1 EXT-BRT-2 EXT-BRT-3 OD-EXT-2 AMB-18",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, NULL);
    co_value    *pairs[] = { co_args(ctx, one_and_three(ctx), make(ctx, m, 0)),
                             co_args(ctx, one_and_three(ctx), co_string(ctx, "/cpu:1")) };
    co_value    *r = co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, co_list(ctx, pairs, 2));

    CO_EXPECT_INT(co_value_kind(r), CO_KIND_LIST);
    expect_parts(ctx, co_at(ctx, r, 0), CO_KIND_MIRRORED, 4, 4);
    CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, r, 1)), CPU1); /* one device: a plain tensor */
    CO_EXPECT_INT(
        co_num_items(ctx, co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, co_list(ctx, NULL, 0))), 0);
    CO_EXPECT_INT(
        co_num_items(ctx, co_batch_reduce_to(ctx, one, CO_REDUCE_SUM, co_list(ctx, NULL, 0))), 0);
}

CO_TEST_WITH(broadcasts_copy_tensors, "EXT-BC-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = make(ctx, m, 0), *five = co_int(ctx, 5);

    expect_parts(ctx, co_broadcast_to_devices(ctx, m, co_scalar_float(ctx, 7), v), CO_KIND_MIRRORED,
                 7, 7);
    CO_EXPECT_STR(co_value_device(ctx, co_broadcast_to_devices(ctx, m, co_scalar_float(ctx, 7),
                                                               co_string(ctx, "/cpu:1"))),
                  CPU1);
    CO_EXPECT_PTR(co_broadcast_to_devices(ctx, m, five, v), five);
}

/* --- update --- */

static co_value *
add_two(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)args;
    (void)user;
    CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    return co_assign_add(ctx, variable, co_float(ctx, 2));
}

static co_value *
assign_arg(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    co_value *container = user; /* assigning to the container acts on this component (EXT-UPD-4) */

    return co_assign(ctx, container != NULL ? container : variable, co_at(ctx, args, 0));
}

static co_value *
where_am_i(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)args;
    (void)user;
    CO_EXPECT_STR(co_value_device(ctx, variable), co_current_device(ctx));
    return co_string(ctx, co_current_device(ctx));
}

CO_TEST_WITH(update_calls_once_per_component,
             "EXT-UPD-1 EXT-UPD-2 EXT-UPD-3 EXT-UPD-4 EXT-UPD-5 VAR-MIR-9", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = make(ctx, m, 0), *r, *none = co_no_args(ctx),
             *plain = co_variable(ctx, co_float(ctx, 1), NULL);

    expect_parts(ctx, co_update(ctx, m, v, add_two, none, NULL, NULL), CO_KIND_MIRRORED, 2, 2);
    co_update(ctx, m, v, assign_arg, co_args(ctx, one_and_three(ctx)), NULL, NULL);
    expect_variable(ctx, m, v, 1, 3);
    co_update(ctx, m, v, assign_arg, co_args(ctx, co_float(ctx, 9)), v, NULL);
    expect_variable(ctx, m, v, 9, 9);
    r = co_update(ctx, m, v, add_two, none, NULL,
                  &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_TUPLE);
    CO_EXPECT_INT(co_num_items(ctx, r), 2);
    r = co_update(ctx, m, v, where_am_i, none, NULL,
                  &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, r, 1), 0, NULL), CPU1);
    CO_EXPECT_INT(co_value_kind(co_update(ctx, m, v, where_am_i, none, NULL, NULL)), CO_KIND_NONE);
    CO_EXPECT_NULL(co_update(ctx, m, plain, add_two, none, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "distributed variable");
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}

static co_value *
update_in_step(co_context *ctx, co_value *args, void *user)
{
    co_strategy *m = co_get_strategy(ctx);

    (void)args;
    return co_update(ctx, m, user, assign_arg,
                     co_args(ctx, co_scalar_float(ctx, (float)co_replica_id(ctx))), NULL, NULL);
}

static co_value *
non_slot_in_step(co_context *ctx, co_value *args, void *user)
{
    co_update_non_slot(ctx, user, co_tuple(ctx, NULL, 0), non_slot_in_step, args, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    return NULL;
}

static co_value *
device_and_arg(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0),
                  co_float(ctx, strcmp(co_current_device(ctx), CPU1) == 0 ? 10 : 0));
}

CO_TEST_WITH(update_in_a_step_and_without_a_variable, "EXT-UPD-6 EXT-UNS-1 OD-EXT-4 OD-EXT-5",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, "/cpu:1");
    co_value    *v = make(ctx, m, 5), *w = make(ctx, one, 5),
             *args = co_args(ctx, co_scalar_float(ctx, 1));

    co_run(ctx, m, update_in_step, co_no_args(ctx), v);
    expect_variable(ctx, m, v, 0, 1);
    co_run(ctx, one, update_in_step, co_no_args(ctx), w);
    CO_EXPECT_CLOSE(co_item_float(ctx, w), 0, 0);
    expect_parts(ctx,
                 co_update_non_slot(ctx, m, co_worker_devices(ctx, m), device_and_arg, args, NULL,
                                    NULL),
                 CO_KIND_MIRRORED, 1, 11);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_update_non_slot(ctx, one, co_int(ctx, 1), device_and_arg,
                                                          args, NULL, NULL)),
                    11, 0);
    CO_EXPECT_NULL(
        co_update_non_slot(ctx, m, co_list(ctx, NULL, 0), device_and_arg, args, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "tuple");
    co_run(ctx, m, non_slot_in_step, co_no_args(ctx), m);
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(containers_and_owners, "EXT-VC-1 EXT-VCS-1 EXT-RV-1 OD-EXT-7 DEF-13 DV-GROUP-5",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, NULL),
                *d = co_default_strategy(ctx);
    co_value *v = make(ctx, m, 1), *plain = co_variable(ctx, co_float(ctx, 1), NULL), *sum = NULL;
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    CO_EXPECT_PTR(co_value_container(ctx, m, co_at(ctx, co_local_results(ctx, m, v), 1)), v);
    CO_EXPECT_PTR(co_value_container(ctx, m, plain), plain);
    CO_EXPECT_TRUE(co_variable_created_in_scope(ctx, m, v));
    CO_EXPECT_FALSE(co_variable_created_in_scope(ctx, one, v));
    CO_EXPECT_FALSE(co_variable_created_in_scope(ctx, m, plain));
    CO_EXPECT_TRUE(co_variable_created_in_scope(ctx, d, plain));
    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, m)
        sum = co_variable(ctx, co_float(ctx, 4), &options);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_read_var(ctx, m, sum)), 8, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_read_var(ctx, m, v)), 1, 0);
}

CO_TEST_WITH(colocation_needs_the_strategys_own_variable,
             "EXT-COL-1 EXT-COL-2 EXT-COL-3 OD-EXT-6 DEF-12", "cpus=2")
{
    co_strategy *m = mirrored(ctx), *d = co_default_strategy(ctx);
    co_value    *v = make(ctx, m, 1), *plain = NULL, *w = NULL;

    co_colocate_begin(ctx, m, v); /* not in scope */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "scope");
    co_colocate_end(ctx);
    CO_DEVICE(ctx, "/cpu:1")
        plain = co_variable(ctx, co_float(ctx, 1), NULL);
    CO_SCOPE(ctx, m) {
        co_colocate_begin(ctx, m, plain);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not a variable of");
        co_colocate_end(ctx);
        co_colocate_begin(ctx, m, v);
        w = co_variable(ctx, co_float(ctx, 1), NULL);
        co_colocate_end(ctx);
        co_colocate_begin(ctx, d, plain);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
        co_colocate_end(ctx);
    }
    CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, co_local_results(ctx, m, w), 1)), CPU1);
    co_colocate_begin(ctx, d, plain);
    w = co_variable(ctx, co_float(ctx, 1), NULL);
    co_colocate_end(ctx);
    CO_EXPECT_STR(co_value_device(ctx, w), CPU1);
    co_colocate_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
}

static co_value *
first_arg(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

CO_TEST_WITH(properties_are_those_of_the_table,
             "EXT-PROP-1 EXT-CFER-1 EXT-NSD-1 OD-PROP-1 OD-PROP-2 MIR-PROP-1 DEF-9 DEF-14",
             "cpus=2")
{
    co_strategy *strategies[] = { co_one_device_strategy(ctx, "/cpu:1"), mirrored(ctx) },
                *d = co_default_strategy(ctx);
    co_value *x = co_scalar_float(ctx, 4);

    for (size_t i = 0; i < 2; ++i) {
        co_strategy *s = strategies[i];

        CO_EXPECT_INT(co_num_items(ctx, co_worker_devices(ctx, s)), i + 1);
        CO_EXPECT_INT(co_num_items(ctx, co_parameter_devices(ctx, s)), i + 1);
        CO_EXPECT_INT(co_num_items(ctx, co_non_slot_devices(ctx, s, NULL)), i + 1);
        CO_EXPECT_FALSE(co_require_static_shapes(ctx, s));
        CO_EXPECT_TRUE(co_should_init(ctx, s));
        CO_EXPECT_FALSE(co_between_graph(ctx, s));
        CO_EXPECT_TRUE(co_should_checkpoint(ctx, s));
        CO_EXPECT_TRUE(co_should_save_summary(ctx, s));
        CO_EXPECT_PTR(co_call_for_each_replica(ctx, s, first_arg, x, NULL), x);
    }
    CO_EXPECT_TRUE(co_should_checkpoint(ctx, d));
    CO_EXPECT_FALSE(co_require_static_shapes(ctx, d));
    CO_EXPECT_NULL(co_parameter_devices(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    CO_EXPECT_FALSE(co_should_init(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
    CO_EXPECT_FALSE(co_between_graph(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, NULL);
}

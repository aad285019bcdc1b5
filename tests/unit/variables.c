/* SPDX-License-Identifier: Apache-2.0 */
/* Variables under strategies: where they live, what reading and assigning mean in each context.
 * Section 18. */
#include "test.h"

static const char *const two[] = { "/cpu:0", "/cpu:1" };

static co_strategy *
mirrored(co_context *ctx)
{
    return co_mirrored_strategy(ctx, two, 2, NULL);
}

/* A variable under a strategy. */
static co_value *
make(co_context *ctx, co_strategy *strategy, double initial, co_synchronization sync,
     co_aggregation aggregation)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = sync;
    options.aggregation = aggregation;
    options.name = "v";
    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_float(ctx, initial), &options);
    return v;
}

static double
component(co_context *ctx, co_strategy *strategy, co_value *v, size_t i)
{
    return co_item_float(ctx, co_at(ctx, co_local_results(ctx, strategy, v), i));
}

static void
expect_components(co_context *ctx, co_strategy *strategy, co_value *v, double a, double b)
{
    CO_EXPECT_OK(ctx);
    CO_EXPECT_CLOSE(component(ctx, strategy, v, 0), a, 0);
    CO_EXPECT_CLOSE(component(ctx, strategy, v, 1), b, 0);
}

CO_TEST_WITH(mirrored_variables_have_a_component_per_device,
             "VAR-NEW-1 VAR-NEW-3 VAR-NEW-4 VAR-NEW-5 VAR-NEW-6 VAR-NEW-7 MIR-VAR-1 OD-SCOPE-3",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = NULL, *outside = co_variable(ctx, co_float(ctx, 1), NULL), *parts;

    CO_SCOPE(ctx, m)
        CO_DEVICE(ctx, "/cpu:1") /* no effect */
            v = co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, NULL, 0, 0, 1), NULL);
    parts = co_local_results(ctx, m, v);
    CO_EXPECT_INT(co_num_items(ctx, parts), 2);
    CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, parts, 0)),
                  "/job:localhost/replica:0/task:0/device:CPU:0");
    CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, parts, 1)),
                  "/job:localhost/replica:0/task:0/device:CPU:1");
    CO_EXPECT_STR(co_variable_name(ctx, v), "Variable");
    CO_EXPECT_STR(co_variable_name(ctx, co_at(ctx, parts, 1)), "Variable/replica_1");
    CO_EXPECT_CLOSE(component(ctx, m, v, 0), component(ctx, m, v, 1), 0); /* one draw for both */
    CO_EXPECT_INT(co_variable_synchronization(ctx, v), CO_SYNC_ON_WRITE);
    CO_EXPECT_TRUE(co_variable_trainable(ctx, v));
    CO_EXPECT_PTR(co_variable_strategy(ctx, v), m);
    CO_EXPECT_NULL(co_variable_strategy(ctx, outside));
    CO_EXPECT_FALSE(
        co_variable_trainable(ctx, make(ctx, m, 0, CO_SYNC_ON_READ, CO_AGGREGATION_SUM)));
}

CO_TEST_WITH(bad_combinations_are_refused, "VAR-NEW-1 VAR-NEW-2 OD-VAR-1", "cpus=2")
{
    co_strategy        *m = mirrored(ctx), *one = co_one_device_strategy(ctx, "/cpu:1");
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    CO_EXPECT_NULL(make(ctx, m, 0, CO_SYNC_NONE, CO_AGGREGATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "NONE");
    CO_EXPECT_NULL(make(ctx, m, 0, (co_synchronization)9, CO_AGGREGATION_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "9");
    CO_EXPECT_NULL(make(ctx, m, 0, CO_SYNC_AUTO, (co_aggregation)9));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "9");
    options.aggregation = CO_AGGREGATION_MEAN;
    CO_SCOPE(ctx, m)
        CO_EXPECT_NULL(co_variable(ctx, co_int(ctx, 1), &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "int32");
    CO_EXPECT_NOT_NULL(
        make(ctx, one, 0, CO_SYNC_NONE, CO_AGGREGATION_MEAN)); /* recorded, without effect */
    CO_SCOPE(ctx, one)
        CO_EXPECT_NOT_NULL(co_variable(ctx, co_int(ctx, 1), &options));
}

/* What a step assigns. */
typedef struct work {
    co_value *v;
    int       verb;   /* 0 assign, 1 add, 2 sub */
    int       what;   /* 0 id + 1, 1 host 5.0 shared, 2 fresh tensor 5 */
    co_value *shared; /* for what 1 */
} work;

static co_value *
assign_in_step(co_context *ctx, co_value *args, void *user)
{
    work     *w = user;
    co_value *x = w->what == 0   ? co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx))
                  : w->what == 1 ? w->shared
                                 : co_scalar_float(ctx, 5);

    (void)args;
    return w->verb == 0   ? co_assign(ctx, w->v, x)
           : w->verb == 1 ? co_assign_add(ctx, w->v, x)
                          : co_assign_sub(ctx, w->v, x);
}

CO_TEST_WITH(assignments_in_a_step_are_aggregated, "VAR-MIR-3 VAR-MIR-4 VAR-MIR-5 VAR-MIR-6 AMB-4",
             "cpus=2")
{
    static const struct {
        co_aggregation aggregation;
        int            verb, what;
        double         a, b;
        co_code        code;
    } cases[] = {
        { CO_AGGREGATION_SUM, 0, 0, 3, 3, CO_OK },
        { CO_AGGREGATION_SUM, 1, 0, 4, 4, CO_OK },
        { CO_AGGREGATION_SUM, 2, 0, -2, -2, CO_OK },
        { CO_AGGREGATION_MEAN, 0, 0, 1.5, 1.5, CO_OK },
        { CO_AGGREGATION_MEAN, 2, 0, -0.5, -0.5, CO_OK },
        { CO_AGGREGATION_ONLY_FIRST_REPLICA, 0, 0, 1, 1, CO_OK },
        { CO_AGGREGATION_NONE, 0, 0, 1, 2, CO_OK },
        { CO_AGGREGATION_NONE, 1, 0, 2, 3, CO_OK },
        { CO_AGGREGATION_SUM, 0, 1, 1, 1, CO_VALUE_ERROR },
        { CO_AGGREGATION_MEAN, 0, 1, 5, 5, CO_OK },
        { CO_AGGREGATION_ONLY_FIRST_REPLICA, 0, 1, 5, 5, CO_OK },
        { CO_AGGREGATION_SUM, 0, 2, 10, 10, CO_OK },
    };
    co_strategy *m = mirrored(ctx);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        work w = { make(ctx, m, 1, CO_SYNC_AUTO, cases[i].aggregation), cases[i].verb,
                   cases[i].what, co_float(ctx, 5) };

        co_run(ctx, m, assign_in_step, co_no_args(ctx), &w);
        CO_EXPECT_CODE(co_error(ctx)->code, cases[i].code);
        co_clear(ctx);
        expect_components(ctx, m, w.v, cases[i].a, cases[i].b);
    }
}

CO_TEST_WITH(assignments_outside_a_step_reach_all_components,
             "VAR-MIR-1 VAR-MIR-2 VAR-MIR-7 VAR-MIR-11", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = make(ctx, m, 1, CO_SYNC_AUTO, CO_AGGREGATION_SUM), *r;
    co_value    *parts[] = { co_float(ctx, 1), co_float(ctx, 3) };

    r = co_assign_add(ctx, v, co_float(ctx, 2));
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_MIRRORED);
    expect_components(ctx, m, v, 3, 3);
    CO_SCOPE(ctx, m)
        co_assign(ctx, v, co_per_replica_value(ctx, parts, 2));
    expect_components(ctx, m, v, 1, 3);
    CO_EXPECT_NULL(co_assign(ctx, v, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[2]");
    CO_EXPECT_NULL(co_assign(ctx, v, co_scalar_double(ctx, 2)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "float64");
    expect_components(ctx, m, v, 1, 3);
    CO_SCOPE(ctx, co_one_device_strategy(ctx, NULL)) {
        CO_EXPECT_NULL(co_variable_read(ctx, v));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "MirroredStrategy");
    }
}

CO_TEST_WITH(a_read_is_a_snapshot, "VAR-MIR-1", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = make(ctx, m, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE),
             *before = co_variable_read(ctx, v);

    co_assign(ctx, v, co_float(ctx, 7));
    CO_EXPECT_CLOSE(co_item_float(ctx, before), 1, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 7, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_mul(ctx, v, co_float(ctx, 2))), 14, 0);
}

/* The tensor that was assigned first is watched later; what the second assignment gives is a read
 * of its variable, and leads nowhere. */
CO_TEST(what_an_assignment_gives_is_not_what_was_assigned, "VAR-MIR-1")
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(20));
    co_value *v = co_variable(ctx, x, NULL), *w = co_variable(ctx, x, NULL), *first, *second;

    first = co_assign(ctx, v, x);
    second = co_assign(ctx, w, v);
    co_tape_begin_persistent(ctx);
    co_watch(ctx, x);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, first, x)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, second, x)), CO_KIND_NONE);
    co_tape_end(ctx);
}

CO_TEST_WITH(sync_on_read_variables_are_combined_when_read,
             "VAR-SOR-1 VAR-SOR-2 VAR-SOR-3 VAR-SOR-4 VAR-SOR-5 VAR-SOR-7 S-REDUCE-16", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    work         w = { make(ctx, m, 10, CO_SYNC_ON_READ, CO_AGGREGATION_SUM), 1, 0, NULL };
    co_value    *mean = make(ctx, m, 0, CO_SYNC_ON_READ, CO_AGGREGATION_MEAN);
    co_value    *none = make(ctx, m, 0, CO_SYNC_ON_READ, CO_AGGREGATION_NONE),
             *parts[] = { co_float(ctx, 1), co_float(ctx, 2) };

    co_run(ctx, m, assign_in_step, co_no_args(ctx), &w);
    expect_components(ctx, m, w.v, 11, 12);
    CO_EXPECT_CLOSE(co_item_float(ctx, w.v), 23, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, w.v, NULL, 0)), 11.5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_assign(ctx, w.v, co_float(ctx, 6))), 6, 0);
    expect_components(ctx, m, w.v, 3, 3);
    CO_EXPECT_NULL(co_assign_add(ctx, w.v, co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "sum");
    CO_EXPECT_NULL(co_assign(ctx, w.v, co_per_replica_value(ctx, parts, 2)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_assign_add(ctx, mean, co_float(ctx, 4))), 4, 0);
    CO_EXPECT_NULL(co_variable_read(ctx, none));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "aggregation");
    CO_EXPECT_NULL(co_assign(ctx, none, co_float(ctx, 3))); /* changed, but not readable */
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    expect_components(ctx, m, none, 3, 3);
}

CO_TEST_WITH(integer_sums_truncate_when_assigned, "VAR-SOR-7", "cpus=2")
{
    co_strategy        *m = mirrored(ctx);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_int(ctx, 0), &options);
    CO_EXPECT_INT(co_item_int(ctx, co_assign(ctx, v, co_int(ctx, 5))), 4);
    expect_components(ctx, m, v, 2, 2);
}

static co_value *
make_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_variable(ctx, co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx)), NULL);
}

CO_TEST_WITH(variables_made_in_a_step_are_one_variable, "VAR-RUN-1 VAR-RUN-2 S-RUN-11 DV-GROUP-6",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_value    *v = co_run(ctx, m, make_in_step, co_no_args(ctx), NULL);

    CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
    expect_components(ctx, m, v, 1, 1); /* replica 0's value */
}

CO_TEST_WITH(one_device_variables_are_ordinary, "OD-SCOPE-1 OD-SCOPE-2 OD-PROP-1", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:1");
    co_value    *v = NULL;

    CO_SCOPE(ctx, one)
        CO_DEVICE(ctx, "/cpu:0")
            v = co_variable(ctx, co_float(ctx, 1.0), NULL);
    CO_EXPECT_STR(co_value_device(ctx, v), "/job:localhost/replica:0/task:0/device:CPU:1");
    v = co_run(ctx, one, make_in_step, co_no_args(ctx), NULL);
    CO_EXPECT_STR(co_value_device(ctx, v), "/job:localhost/replica:0/task:0/device:CPU:1");
    CO_EXPECT_INT(co_num_items(ctx, co_worker_devices(ctx, one)), 1);
}

static co_value *
add_to_ordinary(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    for (int i = 0; i < 200; ++i)
        CO_BLOCK(ctx)
            co_assign_add(ctx, user, co_float(ctx, 1));
    return NULL;
}

CO_TEST_WITH(each_operation_on_an_ordinary_variable_is_atomic, "S-RUN-7 DV-SEL-1", "cpus=2")
{
    co_value *v = co_variable(ctx, co_float(ctx, 0), NULL);

    co_run(ctx, mirrored(ctx), add_to_ordinary, co_no_args(ctx), v);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 400, 0);
}

static bool
survive(co_context *ctx)
{
    co_strategy *m = ctx != NULL ? mirrored(ctx) : NULL;
    co_value    *v = m != NULL ? make(ctx, m, 1, CO_SYNC_AUTO, CO_AGGREGATION_SUM) : NULL;
    work         w = { v, 1, 0, NULL };

    if (v != NULL)
        co_run(ctx, m, assign_in_step, co_no_args(ctx), &w);
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_memory_is_survived, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", survive);
}

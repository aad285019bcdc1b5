/* SPDX-License-Identifier: Apache-2.0 */
/* Variables made under a strategy: how they are made, read and assigned, inside and outside steps.
 * Section 18. */
#include "suite.h"

/* Each synchronization that keeps components equal or apart, with each aggregation. */
static const struct {
    co_synchronization sync;
    co_aggregation     aggregation;
} pairs[] = {
    { CO_SYNC_AUTO, CO_AGGREGATION_NONE },
    { CO_SYNC_AUTO, CO_AGGREGATION_SUM },
    { CO_SYNC_ON_WRITE, CO_AGGREGATION_MEAN },
    { CO_SYNC_ON_WRITE, CO_AGGREGATION_ONLY_FIRST_REPLICA },
    { CO_SYNC_ON_READ, CO_AGGREGATION_NONE },
    { CO_SYNC_ON_READ, CO_AGGREGATION_SUM },
    { CO_SYNC_ON_READ, CO_AGGREGATION_MEAN },
    { CO_SYNC_ON_READ, CO_AGGREGATION_ONLY_FIRST_REPLICA },
};

/* What a variable is after every replica has done something with 1 + id: combined by its
 * aggregation. */
static double
combined(const suite_row *row, co_aggregation aggregation)
{
    const double by[] = { [CO_AGGREGATION_SUM] = SUM_OF_IDS(row->n + 1),
                          [CO_AGGREGATION_MEAN] = (row->n + 1) / 2.0,
                          [CO_AGGREGATION_ONLY_FIRST_REPLICA] = 1 };

    return by[aggregation];
}

CONFORM(a_variable_tells_how_it_was_made,
        "VAR-NEW-1 VAR-NEW-2 VAR-NEW-5 VAR-NEW-6 VAR-NEW-7 OD-VAR-1 MIR-VAR-1 MIR-INIT-4")
{
    for (size_t i = 0; i < LENGTH(pairs); ++i) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *v = NULL;

        options.name = "weights";
        options.synchronization = pairs[i].sync;
        options.aggregation = pairs[i].aggregation;
        CO_SCOPE(ctx, s)
            v = co_variable(ctx, co_scalar_float(ctx, 2), &options);
        CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
        CO_EXPECT_STR(co_variable_name(ctx, v), "weights");
        CO_EXPECT_INT(co_variable_aggregation(ctx, v), pairs[i].aggregation);
        CO_EXPECT_INT(co_variable_trainable(ctx, v), pairs[i].sync != CO_SYNC_ON_READ);
        CO_EXPECT_PTR(co_variable_strategy(ctx, v), row->is->is_current ? s : NULL);
        EXPECT_LOCAL(ctx, s, v, 2, 0);
    }
}

CONFORM(components_are_named_and_placed_in_order, "VAR-NEW-3 VAR-NEW-5 OD-SCOPE-1 OD-SCOPE-2")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.name = "w";
    CO_SCOPE(ctx, s)
        CO_DEVICE(ctx, "/cpu:0") /* has no effect */
            v = co_variable(ctx, co_scalar_float(ctx, 2), &options);
    for (int i = 0; i < row->local; ++i) {
        char        name[40] = "w", device[CO_DEVICE_NAME_MAX];
        co_value   *one = suite_local(ctx, s, v, i);
        const char *where = row->num_devices > 0 ? row->devices[i * row->num_devices / row->local]
                                                 : "/cpu:0";

        if (i > 0)
            snprintf(name, sizeof(name), "w/replica_%d", i);
        CO_EXPECT_STR(co_variable_name(ctx, one), name);
        co_device_resolve(ctx, where, device);
        CO_EXPECT_CONTAINS(co_value_device(ctx, one), strrchr(device, '/'));
    }
}

CONFORM(all_components_start_with_one_value, "VAR-NEW-4 MW-9")
{
    co_value *v = NULL, *mine, *chief;

    co_set_seed(ctx, 5 + (uint64_t)co_worker_id(ctx, s)); /* the workers' own values differ */
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1), NULL);
    co_set_seed(ctx, 5);
    chief = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    for (int i = 0; i < row->local; ++i) {
        mine = co_variable_read(ctx, suite_local(ctx, s, v, i));
        CO_EXPECT_BYTES(co_value_data(ctx, mine), co_value_data(ctx, chief), 3 * sizeof(float));
    }
}

CONFORM(variables_that_make_no_sense_are_refused, "VAR-NEW-1 VAR-NEW-2 OD-VAR-1")
{
    co_variable_options none = CO_VARIABLE_OPTIONS_INIT, mean = CO_VARIABLE_OPTIONS_INIT,
                        unknown = CO_VARIABLE_OPTIONS_INIT;

    none.synchronization = CO_SYNC_NONE;
    mean.aggregation = CO_AGGREGATION_MEAN;
    unknown.aggregation = (co_aggregation)9;
    CO_SCOPE(ctx, s) {
        co_variable(ctx, co_scalar_float(ctx, 1), &none);
        EXPECT_OUTCOME(ctx, row->is->sync_none);
        co_variable(ctx, co_scalar_int32(ctx, 1), &mean);
        EXPECT_OUTCOME(ctx, row->is->mean_integer);
        co_variable(ctx, co_scalar_float(ctx, 1), &unknown);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "9");
    }
}

/* --- in steps --- */

typedef struct assignment {
    co_value *variable;
    co_value *(*verb)(co_context *ctx, co_value *variable, co_value *value);
} assignment;

STEP(assign_one_and_id)
{
    const assignment *a = user;

    return a->verb(ctx, a->variable, co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx)));
}

static co_value *
set(co_context *ctx, co_value *variable, co_value *value)
{
    return co_assign(ctx, variable, value);
}

static co_value *
add(co_context *ctx, co_value *variable, co_value *value)
{
    return co_assign_add(ctx, variable, value);
}

static co_value *
subtract(co_context *ctx, co_value *variable, co_value *value)
{
    return co_assign_sub(ctx, variable, value);
}

/* What assigning 1 + id in a step makes of a variable that was 10. */
static const struct {
    co_value *(*verb)(co_context *ctx, co_value *variable, co_value *value);
    double keeps, sign;
} verbs[] = { { set, 0, 1 }, { add, 1, 1 }, { subtract, 1, -1 } };

CONFORM(steps_assign_mirrored_variables_together,
        "VAR-MIR-3 VAR-MIR-4 VAR-MIR-5 AMB-4 OD-VAR-1 MW-10 RC-MERGE-4")
{
    for (size_t i = 0; i < 4; ++i)
        for (size_t k = 0; k < LENGTH(verbs); ++k) {
            co_aggregation how = pairs[i].aggregation;
            co_value      *v = suite_variable(ctx, s, 10, pairs[i].sync, how), *r;
            assignment     a = { v, verbs[k].verb };
            double         start = 10 * verbs[k].keeps;

            r = suite_step(ctx, s, assign_one_and_id, &a);
            if (how == CO_AGGREGATION_NONE) { /* each replica its own component */
                EXPECT_LOCAL(ctx, s, v, start + verbs[k].sign, verbs[k].sign);
                EXPECT_LOCAL(ctx, s, r, start + verbs[k].sign, verbs[k].sign);
                continue;
            }
            EXPECT_LOCAL(ctx, s, v, start + verbs[k].sign * combined(row, how), 0);
            /* Replicas that share a device may share what they get. */
            r = co_reduce(ctx, s, CO_REDUCE_MEAN, r, NULL, 0);
            CO_EXPECT_CLOSE(suite_number(ctx, r), start + verbs[k].sign * combined(row, how), 1e-6);
            CO_EXPECT_CLOSE(suite_number(ctx, v), start + verbs[k].sign * combined(row, how), 1e-6);
        }
}

CONFORM(steps_assign_sync_on_read_variables_each_their_own, "VAR-SOR-1 VAR-SOR-2 OD-VAR-1 MW-10")
{
    for (size_t i = 4; i < LENGTH(pairs); ++i)
        for (size_t k = 0; k < LENGTH(verbs); ++k) {
            co_aggregation how = pairs[i].aggregation;
            co_value      *v = suite_variable(ctx, s, 10, pairs[i].sync, how);
            assignment     a = { v, verbs[k].verb };
            double         start = 10 * verbs[k].keeps, shares;

            suite_step(ctx, s, assign_one_and_id, &a);
            EXPECT_LOCAL(ctx, s, v, start + verbs[k].sign, verbs[k].sign);
            if (how == CO_AGGREGATION_NONE) {
                co_variable_read(ctx, v);
                EXPECT_OUTCOME(ctx, row->is->read_no_sum);
                continue;
            }
            shares = how == CO_AGGREGATION_SUM ? row->n : 1; /* each replica holds the start */
            CO_EXPECT_CLOSE(suite_number(ctx, v),
                            start * shares + verbs[k].sign * combined(row, how), 1e-6);
        }
}

STEP(assign_shared)
{
    return co_assign(ctx, user, co_at(ctx, args, 0));
}

CONFORM(one_handle_from_all_replicas_has_no_sum, "VAR-MIR-6 AMB-12")
{
    co_value *sum = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_SUM);
    co_value *mean = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_MEAN);
    co_value *only = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_ONLY_FIRST_REPLICA);
    co_value *five = co_args(ctx, co_scalar_float(ctx, 5));

    co_run(ctx, s, assign_shared, five, sum);
    EXPECT_OUTCOME(ctx, row->plain_sum);
    co_run(ctx, s, assign_shared, five, mean);
    EXPECT_LOCAL(ctx, s, mean, 5, 0);
    co_run(ctx, s, assign_shared, five, only);
    EXPECT_LOCAL(ctx, s, only, 5, 0);
}

STEP(read_own)
{
    return co_mul(ctx, user, co_float(ctx, 2));
}

CONFORM(a_step_reads_its_own_component, "VAR-MIR-1 VAR-SOR-1 C-VAL-4")
{
    assignment mirrored = { suite_variable(ctx, s, 0, CO_SYNC_AUTO, CO_AGGREGATION_NONE), set };
    assignment on_read = { suite_variable(ctx, s, 0, CO_SYNC_ON_READ, CO_AGGREGATION_SUM), set };

    suite_step(ctx, s, assign_one_and_id, &mirrored);
    suite_step(ctx, s, assign_one_and_id, &on_read);
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, read_own, mirrored.variable), 2, 2);
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, read_own, on_read.variable), 2, 2);
}

STEP(make_one)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = "made";
    return co_variable(ctx, co_scalar_float(ctx, 4.0f + (float)co_replica_id(ctx)), &options);
}

CONFORM(a_variable_made_in_a_step_is_one_for_all,
        "VAR-RUN-1 VAR-RUN-2 S-RUN-11 OD-SCOPE-1 DV-GROUP-5")
{
    co_value *v = suite_step(ctx, s, make_one, NULL);

    CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
    CO_EXPECT_STR(co_variable_name(ctx, v), "made");
    EXPECT_LOCAL(ctx, s, v, 4, 0); /* replica 0's value, everywhere */
    CO_EXPECT_CLOSE(suite_number(ctx, v), 4, 0);
}

STEP(make_differing)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = co_replica_id(ctx) % 2 == 1 ? "odd" : "even";
    co_variable(ctx, co_scalar_float(ctx, 1), &options);
    return NULL;
}

CONFORM(variables_of_differing_names_are_refused_in_a_step, "VAR-RUN-1")
{
    suite_step(ctx, s, make_differing, NULL);
    EXPECT_OUTCOME(ctx, row->names_differ);
}

static co_value *
make_named(co_context *ctx, const char *name)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = name;
    return co_variable(ctx, co_scalar_float(ctx, 4.0f + (float)co_replica_id(ctx)), &options);
}

/* user: the id of the first replica of the process, which makes variables for the others. */
STEP(make_in_their_own_order)
{
    int       me = co_replica_id(ctx) - *(int *)user;
    char      path[80], twice[80];
    co_value *made[4];

    snprintf(path, sizeof(path), me == 0 ? "foo/bar/baz" : "foo_%d/bar_%d/baz_%d", me, 10 * me,
             100 * me);
    snprintf(twice, sizeof(twice), "twice_%d", 1000 + me);
    if (me == 0) /* the others do not */
        make_named(ctx, "alone");
    for (int k = 0; k < 2; ++k) {
        int which = me % 2 == 0 ? k : 1 - k; /* odd ones begin with the second */

        made[which] = make_named(ctx, which == 0 ? path : "other");
    }
    made[2] = make_named(ctx, "twice");
    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    if (me == 0)
        make_named(ctx, "alone, and after all");
    made[3] = make_named(ctx, twice);
    return co_args(ctx, made[0], made[1], made[2], made[3]);
}

CONFORM(names_decide_which_variables_of_a_step_are_one, "VAR-RUN-1 VAR-RUN-2 VAR-RUN-3")
{
    static const char *const names[] = { "foo/bar/baz", "other", "twice", "twice_1000" };
    co_value                *r;

    for (int in_turn = 0; in_turn < 2; ++in_turn) {
        co_run_options options = CO_RUN_OPTIONS_INIT;

        options.in_turn = in_turn;
        r = co_run_with(ctx, s, make_in_their_own_order, co_no_args(ctx), &first, &options);
        CO_EXPECT_OK(ctx);
        for (size_t i = 0; i < LENGTH(names); ++i) {
            CO_EXPECT_INT(co_value_kind(co_at(ctx, r, i)), CO_KIND_VARIABLE);
            CO_EXPECT_STR(co_variable_name(ctx, co_at(ctx, r, i)), names[i]);
            EXPECT_LOCAL(ctx, s, co_at(ctx, r, i), 4, 0);
        }
    }
}

/* The replicas after the first of a process make a variable before it does, or one more. */
STEP(make_too_early)
{
    int me = co_replica_id(ctx) - *(int *)user;

    if (me > 0)
        make_named(ctx, "late");
    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    if (me == 0)
        make_named(ctx, "late");
    return NULL;
}

STEP(make_too_many)
{
    int me = co_replica_id(ctx) - *(int *)user;

    make_named(ctx, "few");
    if (me > 0)
        make_named(ctx, "few");
    return NULL;
}

CONFORM(what_the_first_has_not_made_is_refused, "VAR-RUN-1 VAR-RUN-3")
{
    suite_step(ctx, s, make_too_many, &first);
    EXPECT_OUTCOME(ctx, row->names_differ);
    suite_step(ctx, s, make_too_early, &first);
    EXPECT_OUTCOME(ctx, row->names_differ);
}

STEP(return_variable)
{
    return user;
}

CONFORM(a_variable_passes_through_a_step_unchanged, "DV-GROUP-6 S-RUN-5 S-RUN-14")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    CO_EXPECT_PTR(suite_step(ctx, s, return_variable, v), v);
}

typedef struct own_components {
    co_value *all; /* of this process */
    int       first;
} own_components;

STEP(return_component)
{
    const own_components *of = user;
    co_value             *mine = co_at(ctx, of->all, (size_t)(co_replica_id(ctx) - of->first));

    return co_args(ctx, mine, co_args(ctx, mine));
}

CONFORM(the_component_that_a_step_returns_is_the_variable, "DV-GROUP-5 DV-GROUP-10")
{
    co_value      *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *r;
    own_components of = { co_local_results(ctx, s, v), first };

    r = suite_step(ctx, s, return_component, &of);
    CO_EXPECT_PTR(co_at(ctx, r, 0), v);
    CO_EXPECT_PTR(co_at(ctx, co_at(ctx, r, 1), 0), v);
}

/* --- outside steps --- */

CONFORM(assigning_outside_a_step_reaches_every_component, "VAR-MIR-2 VAR-NEW-7")
{
    for (size_t i = 0; i < 4; ++i) {
        co_value *v = suite_variable(ctx, s, 1, pairs[i].sync, pairs[i].aggregation);

        co_assign(ctx, v, co_float(ctx, 6));
        EXPECT_LOCAL(ctx, s, v, 6, 0);
        CO_SCOPE(ctx, s) {
            co_assign_add(ctx, v, co_float(ctx, 3));
            EXPECT_LOCAL(ctx, s, v, 9, 0);
            co_assign_sub(ctx, v, co_scalar_float(ctx, 4));
        }
        EXPECT_LOCAL(ctx, s, v, 5, 0);
    }
}

CONFORM(bundles_are_assigned_component_by_component, "VAR-MIR-2")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    co_value *w = suite_variable(ctx, s, 8, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    co_assign(ctx, v, suite_floats(ctx, s, 2, 1));
    EXPECT_LOCAL(ctx, s, v, 2, 1);
    co_assign(ctx, v, w);
    EXPECT_LOCAL(ctx, s, v, 8, 0);
}

CONFORM(a_sum_assigned_outside_a_step_is_shared_out, "VAR-SOR-3 VAR-SOR-4 OD-VAR-1")
{
    co_value *sum = suite_variable(ctx, s, 0, CO_SYNC_ON_READ, CO_AGGREGATION_SUM);
    co_value *mean = suite_variable(ctx, s, 0, CO_SYNC_ON_READ, CO_AGGREGATION_MEAN);

    CO_EXPECT_CLOSE(suite_number(ctx, co_assign(ctx, sum, co_float(ctx, 6))), 6, 1e-6);
    EXPECT_LOCAL(ctx, s, sum, 6.0 / row->n, 0);
    co_assign_add(ctx, sum, co_float(ctx, 1));
    EXPECT_OUTCOME(ctx, row->is->add_to_sum);
    co_assign_sub(ctx, sum, co_float(ctx, 1));
    EXPECT_OUTCOME(ctx, row->is->add_to_sum);
    CO_EXPECT_CLOSE(suite_number(ctx, sum), 6, 1e-6);
    CO_EXPECT_CLOSE(suite_number(ctx, co_assign(ctx, mean, co_float(ctx, 6))), 6, 0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_assign_add(ctx, mean, co_float(ctx, 1))), 7, 0);
    EXPECT_LOCAL(ctx, s, mean, 7, 0);
}

CONFORM(an_integer_sum_is_shared_out_in_whole_numbers, "VAR-SOR-3 VAR-SOR-7")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_scalar_int32(ctx, 0), &options);
    CO_EXPECT_CLOSE(suite_number(ctx, co_assign(ctx, v, co_int(ctx, 5))), 5 / row->n * row->n, 0);
    EXPECT_LOCAL(ctx, s, v, 5 / row->n, 0);
}

CONFORM(a_bundle_cannot_be_assigned_to_a_sync_on_read_variable, "VAR-SOR-5")
{
    co_value *v = suite_variable(ctx, s, 0, CO_SYNC_ON_READ, CO_AGGREGATION_MEAN);

    co_assign(ctx, v, suite_floats(ctx, s, 2, 1));
    EXPECT_OUTCOME(ctx, row->is->assign_bundle);
}

CONFORM(what_does_not_fit_changes_no_component, "VAR-MIR-7 VAR-MIR-11")
{
    co_value *v = suite_variable(ctx, s, 3, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    co_assign(ctx, v, suite_vector(ctx, 2, (float[]){ 1, 2 }));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    co_assign(ctx, v, co_scalar_double(ctx, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    co_assign_add(ctx, v, co_scalar_int32(ctx, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    EXPECT_LOCAL(ctx, s, v, 3, 0);
}

CONFORM(what_was_read_does_not_change, "VAR-MIR-1 VAR-SOR-2")
{
    co_value *v = suite_variable(ctx, s, 3, CO_SYNC_AUTO, CO_AGGREGATION_SUM);
    co_value *before = co_variable_read(ctx, v);

    co_assign(ctx, v, co_float(ctx, 9));
    CO_EXPECT_CLOSE(suite_number(ctx, before), 3, 0);
    CO_EXPECT_CLOSE(suite_number(ctx, v), 9, 0);
    CO_SCOPE(ctx, s)
        CO_EXPECT_CLOSE(suite_number(ctx, co_add(ctx, v, co_int(ctx, 1))), 10, 0);
}

STEP(use_foreign)
{
    co_assign(ctx, user, co_float(ctx, 1));
    return NULL;
}

CONFORM(variables_are_not_used_under_another_strategy, "VAR-NEW-8 GEN-ERR-3")
{
    co_strategy *other = suite_other(ctx);
    co_value    *v = suite_variable(ctx, s, 3, CO_SYNC_AUTO, CO_AGGREGATION_SUM);

    CO_SCOPE(ctx, other) {
        co_assign(ctx, v, co_float(ctx, 1));
        EXPECT_OUTCOME(ctx, row->is->variable_elsewhere);
    }
    co_assign(ctx, v, co_float(ctx, 3));
    suite_step(ctx, other, use_foreign, v);
    EXPECT_OUTCOME(ctx, row->is->variable_elsewhere);
}

/* --- rows --- */

static co_value *
table(co_context *ctx, co_strategy *s, co_synchronization sync, co_aggregation aggregation)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = sync;
    options.aggregation = aggregation;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(9, 1)), &options);
    return v;
}

/* Row 0 by one, and the row after the replica's id by its id. */
static co_value *
rows_of(co_context *ctx)
{
    int64_t at[] = { 0, co_replica_id(ctx) + 1 };
    float   by[] = { 1, (float)co_replica_id(ctx) };

    return co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 1), by),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(2), at), NULL);
}

STEP(scatter_rows)
{
    co_scatter_add(ctx, user, rows_of(ctx));
    return NULL;
}

STEP(scatter_largest)
{
    co_scatter_max(ctx, user, rows_of(ctx));
    return NULL;
}

CONFORM(rows_are_added_from_all_replicas, "VAR-MIR-8 VAR-SOR-5 OD-VAR-1")
{
    co_value *sum = table(ctx, s, CO_SYNC_AUTO, CO_AGGREGATION_SUM);
    co_value *on_read = table(ctx, s, CO_SYNC_ON_READ, CO_AGGREGATION_SUM);
    double    rows[9] = { row->n };

    suite_step(ctx, s, scatter_rows, sum);
    CO_EXPECT_OK(ctx);
    for (int i = 0; i < row->n; ++i)
        rows[i + 1] = i;
    for (int i = 0; i < row->local; ++i)
        suite_expect_elements(TEST_AT, ctx, co_variable_read(ctx, suite_local(ctx, s, sum, i)), 9,
                              rows);
    suite_step(ctx, s, scatter_largest, sum);
    EXPECT_OUTCOME(ctx, row->is->scatter_max);
    suite_step(ctx, s, scatter_rows, on_read);
    EXPECT_OUTCOME(ctx, row->is->scatter_on_read);
}

/* --- creators, initializers, values that come later --- */

typedef struct made {
    int  calls, owned;
    char last[40];
} made;

static co_value *
note_variable(co_context *ctx, co_creation *next, co_value *initial,
              const co_variable_options *options, void *user)
{
    made *m = user;

    ++m->calls;
    m->owned += co_creator_owner(ctx, next) != NULL;
    snprintf(m->last, sizeof(m->last), "%s", options->name);
    return co_creator_next(ctx, next, initial, options);
}

CONFORM(creators_see_variables_inside_and_components_outside, "VAR-CREATOR-1 SCOPE-9 SET-11")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    made                inside = { .calls = 0 }, outside = { .calls = 0 };
    char                last[40] = "w";

    options.name = "w";
    CO_CREATOR(ctx, note_variable, &outside)
        CO_SCOPE(ctx, s)
            CO_CREATOR(ctx, note_variable, &inside)
                co_variable(ctx, co_scalar_float(ctx, 1), &options);
    CO_EXPECT_INT(inside.calls, 1);
    CO_EXPECT_INT(inside.owned, 0);
    CO_EXPECT_STR(inside.last, "w");
    CO_EXPECT_INT(outside.calls, row->local);
    CO_EXPECT_INT(outside.owned, row->is->is_current ? row->local : 0);
    if (row->local > 1)
        snprintf(last, sizeof(last), "w/replica_%d", row->local - 1);
    CO_EXPECT_STR(outside.last, last);
}

static co_value *
count_initial(co_context *ctx, void *user)
{
    return co_scalar_float(ctx, (float)++*(int *)user);
}

CONFORM(an_initializer_runs_once, "VAR-NEW-4 MW-9")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;
    int                 calls = 0;

    options.initializer = count_initial;
    options.initializer_user = &calls;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, NULL, &options);
    CO_EXPECT_INT(calls, 1);
    EXPECT_LOCAL(ctx, s, v, 1, 0);
}

CONFORM(a_value_may_come_later, "VAR-NEW-7 VAR-MIR-2")
{
    co_value *v = NULL;

    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), NULL);
    CO_EXPECT_FALSE(co_variable_is_initialized(ctx, v));
    co_variable_read(ctx, v);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, NULL);
    co_assign(ctx, v, co_float(ctx, 3));
    CO_EXPECT_TRUE(co_variable_is_initialized(ctx, v));
    EXPECT_LOCAL(ctx, s, v, 3, 0);
}

STEP(own_handle)
{
    return co_variable_read(ctx, co_variable_handle(ctx, user));
}

CONFORM(handles_are_those_of_the_replica, "VAR-MIR-10")
{
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    co_assign(ctx, v, suite_floats(ctx, s, 2, 1));
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, own_handle, v), 2, 1);
    CO_EXPECT_CLOSE(suite_number(ctx, co_variable_read(ctx, co_variable_handle(ctx, v))), 2 + first,
                    0);
    CO_SCOPE(ctx, s) {
        co_variable_handle(ctx, v);
        EXPECT_OUTCOME(ctx, row->is->handle_in_cross);
    }
}

CONFORM(what_is_saved_can_be_restored, "VAR-SOR-6")
{
    for (size_t i = 0; i < LENGTH(pairs); ++i) {
        co_value *v = suite_variable(ctx, s, 0, pairs[i].sync, pairs[i].aggregation);
        bool      is_sum = pairs[i].sync == CO_SYNC_ON_READ &&
                      pairs[i].aggregation == CO_AGGREGATION_SUM;

        CO_EXPECT_CODE(co_variable_restore(ctx, v, co_scalar_float(ctx, 3)), CO_OK);
        EXPECT_LOCAL(ctx, s, v, is_sum ? 3.0 / row->n : 3, 0);
        if (pairs[i].aggregation != CO_AGGREGATION_NONE)
            CO_EXPECT_CLOSE(suite_number(ctx, co_variable_save(ctx, v)), 3, 1e-6);
    }
}

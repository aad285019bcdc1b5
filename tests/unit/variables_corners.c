/* SPDX-License-Identifier: Apache-2.0 */
/* Every synchronization with every aggregation, and the corners of variables that other files leave
 * out. Section 18. */
#include "engine_support.h"

static co_value *
make(co_context *ctx, co_strategy *strategy, int sync, int aggregation, double initial)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = (co_synchronization)sync;
    options.aggregation = (co_aggregation)aggregation;
    options.name = "v";
    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_float(ctx, initial), &options);
    return v;
}

static void
expect_components(co_context *ctx, co_strategy *strategy, co_value *v, const double *expected)
{
    co_value *parts = co_local_results(ctx, strategy, v);

    for (size_t i = 0; i < co_num_items(ctx, parts); ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, i)), expected[i], 0);
    CO_EXPECT_OK(ctx);
}

static co_value *
add_id(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user, co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx)));
}

CO_TEST_WITH(
    every_pair_in_both_contexts,
    "VAR-NEW-1 VAR-NEW-2 VAR-MIR-1 VAR-MIR-2 VAR-MIR-3 VAR-MIR-4 VAR-MIR-5 VAR-SOR-1 VAR-SOR-2 "
    "VAR-SOR-3 VAR-SOR-4",
    "cpus=2")
{
    enum { NONE, SUM, MEAN, FIRST };
    static const struct {
        int     sync, aggregation;
        double  stepped[2]; /* components after adding replica_id + 1 to 10 in a step */
        double  read;       /* across replicas */
        co_code read_code;
        double  assigned[2]; /* after assigning 6 across replicas */
        co_code assign_code;
        double  added[2]; /* after adding 2 across replicas */
        co_code add_code;
    } cases[] = {
        { CO_SYNC_AUTO, NONE, { 11, 12 }, 11, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_AUTO, SUM, { 13, 13 }, 13, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_ON_WRITE, NONE, { 11, 12 }, 11, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_ON_WRITE, SUM, { 13, 13 }, 13, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_ON_WRITE, MEAN, { 11.5, 11.5 }, 11.5, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_ON_WRITE, FIRST, { 11, 11 }, 11, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_ON_READ,
          NONE,
          { 11, 12 },
          0,
          CO_VALUE_ERROR,
          { 6, 6 },
          CO_VALUE_ERROR,
          { 8, 8 },
          CO_VALUE_ERROR },
        { CO_SYNC_ON_READ, SUM, { 11, 12 }, 23, CO_OK, { 3, 3 }, CO_OK, { 3, 3 }, CO_VALUE_ERROR },
        { CO_SYNC_ON_READ, MEAN, { 11, 12 }, 11.5, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
        { CO_SYNC_ON_READ, FIRST, { 11, 12 }, 11, CO_OK, { 6, 6 }, CO_OK, { 8, 8 }, CO_OK },
    };
    co_strategy *m = test_mirrored(ctx, 2, -1);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        for (int in_scope = 0; in_scope < 2; ++in_scope) {
            co_value *v = make(ctx, m, cases[i].sync, cases[i].aggregation, 10);
            co_scope  scope = co_scope_begin(ctx, in_scope ? m : co_default_strategy(ctx));
            double    read;

            co_run(ctx, m, add_id, co_no_args(ctx), v);
            expect_components(ctx, m, v, cases[i].stepped);
            read = co_item_float(ctx, v);
            CO_EXPECT_CODE(co_error(ctx)->code, cases[i].read_code);
            co_clear(ctx);
            if (cases[i].read_code == CO_OK)
                CO_EXPECT_CLOSE(read, cases[i].read, 0);
            else
                CO_EXPECT_TRUE(isnan(read));
            co_assign(ctx, v, co_float(ctx, 6));
            CO_EXPECT_CODE(co_error(ctx)->code, cases[i].assign_code);
            co_clear(ctx);
            expect_components(ctx, m, v, cases[i].assigned);
            co_assign_add(ctx, v, co_float(ctx, 2));
            CO_EXPECT_CODE(co_error(ctx)->code, cases[i].add_code);
            co_clear(ctx);
            expect_components(ctx, m, v, cases[i].added);
            CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
        }
}

/* What a step assigns: the variable of a pair to the other. */
static co_value *
copy_in_step(co_context *ctx, co_value *args, void *user)
{
    co_value **pair = user;

    (void)args;
    return co_assign(ctx, pair[0], pair[1]);
}

static co_value *
read_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_variable_read(ctx, user);
}

CO_TEST_WITH(variables_are_assigned_component_by_component, "VAR-MIR-2 VAR-MIR-3 VAR-SOR-1",
             "cpus=2")
{
    enum { NONE, SUM, MEAN };
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *from = make(ctx, m, CO_SYNC_AUTO, NONE, 10),
             *plain = co_variable(ctx, co_float(ctx, 5), NULL);
    co_value    *to = make(ctx, m, CO_SYNC_AUTO, NONE, 0), *parts;
    co_value    *both[] = { co_float(ctx, 1), co_float(ctx, 2) }, *pair[2];
    co_value    *on_read = make(ctx, m, CO_SYNC_ON_READ, MEAN, 0);
    co_strategy *other = test_mirrored(ctx, 3, -1);
    co_value    *three = make(ctx, other, CO_SYNC_AUTO, NONE, 0);

    co_run(ctx, m, add_id, co_no_args(ctx), from);
    co_assign(ctx, to, from);
    expect_components(ctx, m, to, (double[]){ 11, 12 });
    co_assign(ctx, to, plain);
    expect_components(ctx, m, to, (double[]){ 5, 5 });
    co_assign(ctx, to, co_mirrored_value(ctx, both, 2));
    expect_components(ctx, m, to, (double[]){ 1, 2 });
    co_assign(ctx, plain, from); /* read like any operand */
    CO_EXPECT_CLOSE(co_item_float(ctx, plain), 11, 0);
    co_assign(ctx, three, from); /* which has no third component: it is read for that one */
    expect_components(ctx, other, three, (double[]){ 11, 12, 11 });
    pair[0] = to = make(ctx, m, CO_SYNC_AUTO, SUM, 0);
    pair[1] = from; /* each replica brings its own component */
    co_run(ctx, m, copy_in_step, co_no_args(ctx), pair);
    expect_components(ctx, m, to, (double[]){ 23, 23 });
    pair[0] = on_read;
    co_run(ctx, m, copy_in_step, co_no_args(ctx), pair);
    expect_components(ctx, m, on_read, (double[]){ 11, 12 });
    parts = co_local_results(ctx, m, co_run(ctx, m, read_in_step, co_no_args(ctx), on_read));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 1)), 12, 0);
    pair[0] = to;
    pair[1] = make(ctx, m, CO_SYNC_ON_READ, SUM, 7);
    co_run(ctx, m, copy_in_step, co_no_args(ctx), pair);
    expect_components(ctx, m, to, (double[]){ 14, 14 });
    CO_SCOPE(ctx, co_one_device_strategy(ctx, NULL)) {
        CO_EXPECT_NULL(co_variable_read(ctx, on_read));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
        CO_EXPECT_NULL(co_assign(ctx, on_read, co_float(ctx, 1)));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
}

static co_value *
device_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_string(ctx, co_value_device(ctx, user));
}

CO_TEST_WITH(reads_are_taken_from_the_nearest_component, "VAR-MIR-1 VAR-NEW-3", "cpus=4")
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };
    co_strategy             *m = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_value                *v = make(ctx, m, CO_SYNC_AUTO, 0, 10), *names;

    co_run(ctx, m, add_id, co_no_args(ctx), v); /* 11 and 12 */
    CO_SCOPE(ctx, m) {
        CO_DEVICE(ctx, "/cpu:1") {
            CO_EXPECT_CLOSE(co_item_float(ctx, v), 12, 0);
            CO_EXPECT_CONTAINS(co_value_device(ctx, v), "CPU:1");
        }
        CO_DEVICE(ctx, "/cpu:3") { /* none there: the first */
            CO_EXPECT_CLOSE(co_item_float(ctx, v), 11, 0);
            CO_EXPECT_CONTAINS(co_value_device(ctx, v), "CPU:0");
        }
    }
    CO_DEVICE(ctx, "/cpu:1")
        CO_EXPECT_CONTAINS(co_value_device(ctx, v), "CPU:0"); /* default mode: the first */
    names = co_local_results(ctx, m, co_run(ctx, m, device_in_step, co_no_args(ctx), v));
    CO_EXPECT_CONTAINS(co_string_at(ctx, co_at(ctx, names, 1), 0, NULL), "CPU:1");
}

CO_TEST_WITH(one_component_needs_no_rendezvous, "MIR-INIT-4 VAR-MIR-3 VAR-SOR-2", "cpus=2")
{
    static const double one[2] = { 11, 0 }, six[2] = { 6, 0 };
    co_strategy        *m = test_mirrored(ctx, 1, -1);

    for (int sync = CO_SYNC_ON_WRITE; sync <= CO_SYNC_ON_READ; ++sync)
        for (int aggregation = CO_AGGREGATION_SUM; aggregation <= CO_AGGREGATION_ONLY_FIRST_REPLICA;
             ++aggregation) {
            co_value *v = make(ctx, m, sync, aggregation, 10);

            co_run(ctx, m, add_id, co_no_args(ctx), v);
            expect_components(ctx, m, v, one);
            CO_EXPECT_CLOSE(co_item_float(ctx, v), 11, 0);
            co_assign(ctx, v, co_float(ctx, 6));
            expect_components(ctx, m, v, six);
        }
}

CO_TEST_WITH(what_is_no_variable_or_no_value_for_it, "VAR-MIR-7 VAR-MIR-11 GEN-ERR-1", "cpus=2")
{
    co_strategy        *m = test_mirrored(ctx, 2, -1);
    co_value           *x = co_float(ctx, 1), *v = make(ctx, m, CO_SYNC_AUTO, 0, 10), *small;
    co_value           *sum = make(ctx, m, CO_SYNC_ON_READ, CO_AGGREGATION_SUM, 10);
    co_value           *uneven[2] = { x, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)) };
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    CO_EXPECT_STR(co_variable_name(ctx, x), "");
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_FALSE(co_variable_trainable(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_INT(co_variable_synchronization(ctx, x), CO_SYNC_AUTO);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_INT(co_variable_aggregation(ctx, x), CO_AGGREGATION_NONE);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_NULL(co_variable_strategy(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_NULL(co_assign(ctx, v, co_string(ctx, "text")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "does not convert");
    CO_EXPECT_NULL(co_assign(ctx, v, co_none(ctx)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
    CO_EXPECT_NULL(co_assign(
        ctx, v, co_per_replica_value(ctx, uneven, 2))); /* the second does not fit: none changes */
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[2]");
    expect_components(ctx, m, v, (double[]){ 10, 10 });
    CO_EXPECT_NULL(co_assign(ctx, sum, uneven[1]));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[2]");
    options.dtype = CO_INT8;
    small = co_variable(ctx, co_int(ctx, 1), &options);
    CO_EXPECT_INT(co_value_dtype(ctx, small), CO_INT8);
    CO_EXPECT_NULL(co_assign(ctx, small, co_int(ctx, 300)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "300");
    CO_EXPECT_NULL(co_variable(ctx, co_int(ctx, 300), &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "300");
    CO_EXPECT_INT(co_item_int(ctx, co_variable(ctx, co_scalar_int64(ctx, 5), &options)), 5);
    CO_EXPECT_INT(
        co_item_int(ctx, co_variable(ctx, co_cast(ctx, co_int(ctx, 5), CO_INT8), &options)), 5);
    CO_EXPECT_NOT_NULL(co_variable(ctx, co_spec(ctx, CO_INT8, NULL, 0), &options));
    options.struct_size = 3;
    CO_EXPECT_NULL(co_variable(ctx, x, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 3");
}

/* A program that was compiled without call sites: names alone. */
CO_TEST_BARE(without_call_sites_a_variable_still_has_a_name, "")
{
    co_context *bare = (co_open)(NULL);
    co_value   *v = (co_variable)(bare, (co_float)(bare, 1), NULL);

    CO_EXPECT_NULL((co_assign)(bare, v, (co_string)(bare, "x")));
    co_clear(bare);
    CO_EXPECT_NULL((co_assign)(bare, v, (co_scalar_double)(bare, 1)));
    CO_EXPECT_ERROR(bare, CO_VALUE_ERROR,
                    "variable 'Variable' (made under the default strategy; now under the default");
    CO_EXPECT_CODE(co_close(bare), CO_OK);
}

/* --- creators that give odd components --- */

typedef struct oddity {
    int what; /* 0 a component of another variable, 1 another dtype, 2 the first without a value */
    int calls;
    co_value *other;
} oddity;

static co_value *
make_odd(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
         void *user)
{
    oddity *o = user;

    ++o->calls;
    if (o->what == 0)
        return o->other;
    if (o->what == 1 && o->calls == 2)
        initial = co_scalar_double(ctx, 1);
    if (o->what == 2 && o->calls == 1)
        initial = co_spec(ctx, CO_FLOAT32, NULL, 0);
    return co_creator_next(ctx, next, initial, options);
}

CO_TEST_WITH(components_are_alike, "VAR-CREATOR-1 VAR-NEW-4 VAR-NEW-5", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *v = make(ctx, m, CO_SYNC_AUTO, 0, 1);
    oddity       o = { 0, 0, co_at(ctx, co_local_results(ctx, m, v), 1) };

    CO_CREATOR(ctx, make_odd, &o)
        CO_EXPECT_NULL(make(ctx, m, CO_SYNC_AUTO, 0, 1));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "part of no other");
    o = (oddity){ 1, 0, NULL };
    CO_CREATOR(ctx, make_odd, &o)
        CO_EXPECT_NULL(make(ctx, m, CO_SYNC_AUTO, 0, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "another dtype or shape");
    o = (oddity){ 2, 0, NULL };
    CO_CREATOR(ctx, make_odd, &o)
        v = make(ctx, m, CO_SYNC_AUTO, 0, 1);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_FALSE(
        co_variable_is_initialized(ctx, v)); /* the others copy what the first has: nothing */
}

/* A creator of the calling context that is entered in a merge function, whose step is over its
 * head. */
static co_value *
count_calls(co_context *ctx, co_creation *next, co_value *initial,
            const co_variable_options *options, void *user)
{
    ++*(int *)user;
    return co_creator_next(ctx, next, initial, options);
}

static co_value *
make_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    co_value *v = NULL;

    (void)args;
    CO_CREATOR(ctx, count_calls, user)
        v = make(ctx, strategy, CO_SYNC_AUTO, 0, 3);
    return v;
}

static co_value *
merge_and_make(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, make_in_merge, args, user);
}

CO_TEST_WITH(merge_functions_make_variables_too, "VAR-CREATOR-1 SCOPE-8 VAR-RUN-2", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    int          calls = 0;
    co_value    *v = co_run(ctx, m, merge_and_make, co_no_args(ctx), &calls);

    CO_EXPECT_INT(calls, 1);
    CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
    expect_components(ctx, m, v, (double[]){ 3, 3 });
}

/* --- memory: big enough that nothing comes from what was kept --- */

enum { MANY = 9000, LONG = 70000 };

static bool
use_much(co_context *ctx)
{
    static const char  *texts[MANY];
    static char         name[LONG];
    co_strategy        *m = test_mirrored(ctx, 2, -1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *items[MANY], *v = NULL, *at, *list;
    const int32_t       zero = 0;

    memset(name, 'n', sizeof(name) - 1);
    for (int i = 0; i < MANY; ++i)
        texts[i] = "t";
    options.name = name;
    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(MANY * 3)), &options);
    at = co_tensor(ctx, CO_INT32, CO_SHAPE(1), &zero);
    co_scatter_sub(ctx, v, co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1)), at, NULL));
    co_assign_add(ctx, v, co_ones(ctx, CO_FLOAT32, CO_SHAPE(MANY * 3)));
    for (int i = 0; i < MANY; ++i)
        items[i] = v;
    list = co_list(ctx, items, MANY);
    co_trainable_variables(ctx, list);
    v = co_variable(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(MANY), texts), NULL);
    co_scatter_update(ctx, v,
                      co_slices(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(1), texts), at, NULL));
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_much_memory_is_survived, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", use_much);
}

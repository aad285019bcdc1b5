/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values (given, declared, made by a function), what is told of a variable, saving and
 * restoring, and what messages say of it. Section 18.
 */
#include "engine_support.h"

static co_value *
declare(co_context *ctx, co_strategy *strategy, co_dtype dtype, int64_t n,
        const co_variable_options *options)
{
    co_value *v = NULL;

    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_spec(ctx, dtype, &n, 1), options);
    return v;
}

/* default, one device, mirrored over 1 and 2 */
static co_strategy *
strategy_at(co_context *ctx, int i)
{
    return i == 0   ? co_default_strategy(ctx)
           : i == 1 ? co_one_device_strategy(ctx, "/cpu:1")
                    : test_mirrored(ctx, i - 1, -1);
}

CO_TEST_WITH(a_declared_variable_has_no_value_until_it_is_assigned, "VAR-MIR-2 VAR-NEW-3 VAR-NEW-5",
             "cpus=2")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_sgd_options      sgd = CO_SGD_OPTIONS_INIT;
    const float         three[3] = { 1, 2, 3 };

    options.name = "later";
    for (int i = 0; i < 4; ++i) {
        co_strategy *s = strategy_at(ctx, i);
        co_value    *v = declare(ctx, s, CO_FLOAT32, 3, &options);
        co_value    *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), three), *list[1] = { v },
                 *grads[1] = { x };

        CO_EXPECT_OK(ctx);
        CO_EXPECT_INT(co_value_dim(ctx, v, 0), 3);
        CO_EXPECT_INT(co_value_dtype(ctx, v), CO_FLOAT32);
        CO_EXPECT_FALSE(co_variable_is_initialized(ctx, v));
        CO_EXPECT_NULL(co_variable_read(ctx, v));
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "'later' (made at ");
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "co_assign");
        CO_EXPECT_NULL(co_add(ctx, v, x));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(co_assign_add(ctx, v, x));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(
            co_scatter_add(ctx, v, co_slices(ctx, x, co_zeros(ctx, CO_INT32, CO_SHAPE(3)), NULL)));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(co_variable_save(ctx, v));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        co_apply_gradients(ctx, co_sgd(ctx, &sgd), co_list(ctx, grads, 1), co_list(ctx, list, 1));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(co_assign(ctx, v, co_float(ctx, 1)));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[3]");
        CO_EXPECT_FALSE(co_variable_is_initialized(ctx, v));
        CO_EXPECT_NOT_NULL(co_assign(ctx, v, x));
        CO_EXPECT_TRUE(co_variable_is_initialized(ctx, v));
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, v, CO_ALL_AXES, false)), 6, 0);
    }
}

static co_value *
set_first(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 0)
        co_assign(ctx, user, co_scalar_float(ctx, 1));
    return co_scalar_bool(ctx, co_variable_is_initialized(ctx, user));
}

CO_TEST_WITH(components_get_their_first_values_one_by_one, "VAR-MIR-5 VAR-SOR-1 VAR-SOR-2",
             "cpus=2")
{
    for (int sync = CO_SYNC_ON_WRITE; sync <= CO_SYNC_ON_READ; ++sync) {
        co_strategy        *m = test_mirrored(ctx, 2, -1);
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *v = NULL, *known;

        options.synchronization = (co_synchronization)sync;
        options.aggregation = sync == CO_SYNC_ON_READ ? CO_AGGREGATION_SUM : CO_AGGREGATION_NONE;
        CO_SCOPE(ctx, m)
            v = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), &options);
        known = co_local_results(ctx, m, co_run(ctx, m, set_first, co_no_args(ctx), v));
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, known, 0)), 1);
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, known, 1)), 0);
        CO_EXPECT_FALSE(co_variable_is_initialized(ctx, v));
        if (sync == CO_SYNC_ON_READ) {
            CO_EXPECT_NULL(co_variable_read(ctx, v));
            CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "Variable/replica_1");
        } else {
            CO_EXPECT_CLOSE(co_item_float(ctx, v), 1, 0);
        }
    }
}

/* --- initializers --- */

typedef struct source {
    int  calls;
    int  what;    /* 0 a random number, 1 NULL, 2 an error, 3 a vector */
    bool crosses; /* where it was called */
} source;

static co_value *
initialize(co_context *ctx, void *user)
{
    source *s = user;

    ++s->calls;
    s->crosses = co_in_cross_replica_context(ctx);
    switch (s->what) {
    case 0: return co_random_normal(ctx, CO_FLOAT32, NULL, 0, 0, 1);
    case 1: return NULL;
    case 2: co_fail(ctx, CO_ABORTED, "no number today"); return NULL;
    default: return co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2));
    }
}

static co_value *
make_in_step(co_context *ctx, co_value *args, void *user)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    source             *sources = user;

    (void)args;
    options.initializer = initialize;
    options.initializer_user = &sources[co_replica_id(ctx)];
    return co_variable(ctx, NULL, &options);
}

CO_TEST_WITH(an_initializer_is_called_once, "VAR-NEW-4 VAR-RUN-1 VAR-RUN-2 S-RUN-11", "cpus=2")
{
    for (int i = 0; i < 4; ++i) {
        co_strategy        *s = strategy_at(ctx, i);
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        source              one = { 0, 0, false }, each[2] = { { 0, 0, false }, { 0, 0, false } };
        co_value           *v = NULL, *parts;

        options.initializer = initialize;
        options.initializer_user = &one;
        CO_SCOPE(ctx, s)
            v = co_variable(ctx, NULL, &options);
        CO_EXPECT_INT(one.calls, 1);
        CO_EXPECT_TRUE(one.crosses == (i > 0));
        parts = co_local_results(ctx, s, v);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 0)),
                        co_item_float(ctx, co_at(ctx, parts, co_num_items(ctx, parts) - 1)), 0);
        CO_SCOPE(ctx, s) /* declared and made */
            v = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), &options);
        CO_EXPECT_INT(one.calls, 2);
        CO_EXPECT_TRUE(co_variable_is_initialized(ctx, v));
        v = co_run(ctx, s, make_in_step, co_no_args(ctx), each);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_INT(each[0].calls, 1);
        CO_EXPECT_INT(each[1].calls, 0); /* replica 0's is everybody's */
        CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
        CO_EXPECT_TRUE(co_variable_is_initialized(ctx, v));
    }
}

CO_TEST_WITH(initial_values_that_cannot_be_are_refused, "GEN-ERR-2 VAR-NEW-2", "cpus=2")
{
    for (int i = 0; i < 4; ++i) {
        co_strategy        *s = strategy_at(ctx, i);
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        source              one = { 0, 1, false };
        co_scope            scope = co_scope_begin(ctx, s);

        options.initializer = initialize;
        options.initializer_user = &one;
        CO_EXPECT_NULL(co_variable(ctx, NULL, &options));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "returned NULL");
        one.what = 2;
        CO_EXPECT_NULL(co_variable(ctx, NULL, &options));
        CO_EXPECT_ERROR(ctx, CO_ABORTED, "no number today");
        one.what = 3;
        CO_EXPECT_NULL(co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "returned float32 [2]; it is declared float32 []");
        one.what = 0;
        CO_EXPECT_NULL(co_variable(ctx, co_spec(ctx, CO_INT32, NULL, 0), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "declared int32");
        options.initializer = NULL;
        CO_EXPECT_NULL(co_variable(ctx, NULL, &options));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (initial) of variable is NULL");
        CO_EXPECT_NULL(co_variable(ctx, co_spec(ctx, CO_FLOAT32, (int64_t[]){ -1 }, 1), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[?]");
        CO_EXPECT_NULL(co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, -1), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "unknown");
        options.dtype = CO_FLOAT64;
        CO_EXPECT_NULL(co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "declared float32 and its options say float64");
        options.dtype = (co_dtype)77;
        CO_EXPECT_NULL(co_variable(ctx, co_float(ctx, 1), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "77");
        options.dtype = CO_DTYPE_NONE;
        options.trainable = (co_trainable)5;
        CO_EXPECT_NULL(co_variable(ctx, co_float(ctx, 1), &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "trainable is 5");
        CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
    }
}

/* Names that replicas give. */
static co_value *
make_named(co_context *ctx, co_value *args, void *user)
{
    const char *const  *names = user;
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    (void)args;
    options.name = names[co_replica_id(ctx)];
    return co_variable(ctx, co_float(ctx, co_replica_id(ctx)), &options);
}

CO_TEST_WITH(replicas_make_the_same_variable, "VAR-RUN-1 VAR-RUN-3 VAR-NEW-5", "cpus=2")
{
    static const struct {
        const char *names[2];
        bool        same;
    } cases[] = {
        { { "w", "w" }, true },
        { { "w_1", "w_2" }, true },
        { { "w", "w_12" }, true },
        { { "w", "v" }, false },
        { { "w_1", "w_x" }, false },
        { { "_1", "_2" }, false },
        { { "12", "13" }, false },
        { { "w_", "w" }, false },
        { { "layer1", "layer2" }, false },
        { { "a/b/w", "a_1/b_12/w_123" }, true },
        { { "a_7/w", "a/w_8" }, true },
        { { "a/w", "b/w" }, false },
        { { "a/w", "w" }, false },
        { { "a/b/w", "a/b" }, false },
        { { "_1/w", "_2/w" }, false },
        { { "a_1/w", "a/w_x" }, false },
        { { "a//w", "a_1//w" }, true },
    };
    co_strategy *m = test_mirrored(ctx, 2, -1);
    char         longest[2000];
    co_value    *v;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        v = co_run(ctx, m, make_named, co_no_args(ctx), (void *)(uintptr_t)cases[i].names);
        if (!cases[i].same) {
            CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replicas disagree");
            continue;
        }
        CO_EXPECT_OK(ctx);
        CO_EXPECT_STR(co_variable_name(ctx, v), cases[i].names[0]);
        CO_EXPECT_CLOSE(co_item_float(ctx, v), 0, 0);
    }
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    {
        const char *names[2] = { longest, longest };

        v = co_run(ctx, m, make_named, co_no_args(ctx), names);
        CO_EXPECT_STR(co_variable_name(ctx, v), longest);
        v = co_at(ctx, co_local_results(ctx, m, v), 1);
        CO_EXPECT_INT(strlen(co_variable_name(ctx, v)), sizeof(longest) - 1 + strlen("/replica_1"));
    }
}

/* --- partitions --- */

static void
count_line(co_log_level level, const char *line, void *user)
{
    int *count = user;

    *count += level == CO_LOG_WARNING && strstr(line, "partitioned") != NULL;
}

CO_TEST_BARE(partitioned_is_ignored_with_one_warning, "SCOPE-12")
{
    int                 lines = 0;
    co_options          open = CO_OPTIONS_INIT;
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_context         *context;

    open.settings = "cpus=2, log=warning";
    open.log = count_line;
    open.log_user = &lines;
    options.partitioned = true;
    context = co_open_with(&open);
    CO_SCOPE(context, test_mirrored(context, 2, -1)) {
        co_value *v = co_variable(context, co_zeros(context, CO_FLOAT32, CO_SHAPE(4, 2)), &options);

        CO_EXPECT_INT(co_value_dim(context, v, 0), 4);
        CO_EXPECT_INT(lines, 1);
        CO_EXPECT_NOT_NULL(co_variable(context, co_float(context, 1), &options));
    }
    CO_EXPECT_INT(lines, 1);
    CO_EXPECT_CODE(co_close(context), CO_OK);
}

/* --- handles --- */

static co_value *
handle_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_variable_handle(ctx, user);
}

static co_value *
handle_in_update(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)args;
    CO_EXPECT_PTR(co_variable_handle(ctx, user), variable);
    CO_EXPECT_PTR(co_variable_handle(ctx, variable), variable);
    return NULL;
}

CO_TEST_WITH(the_raw_handle_depends_on_the_context, "VAR-MIR-10 VAR-MIR-9 DV-GROUP-5", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *plain = co_variable(ctx, co_float(ctx, 1), NULL), *v = NULL, *parts;

    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    parts = co_local_results(ctx, m, v);
    CO_EXPECT_PTR(co_variable_handle(ctx, plain), plain);
    CO_EXPECT_PTR(co_variable_handle(ctx, v), co_at(ctx, parts, 0)); /* default mode */
    CO_EXPECT_PTR(co_run(ctx, m, handle_in_step, co_no_args(ctx), v),
                  v); /* all components: the container */
    CO_SCOPE(ctx, m) {
        CO_EXPECT_NULL(co_variable_handle(ctx, v));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "2 components");
        CO_EXPECT_PTR(co_variable_handle(ctx, plain), plain);
        co_update(ctx, m, v, handle_in_update, co_no_args(ctx), v, NULL);
    }
    CO_SCOPE(ctx, co_one_device_strategy(ctx, NULL))
        CO_EXPECT_NULL(co_variable_handle(ctx, v));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    CO_EXPECT_NULL(co_variable_handle(ctx, co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_FALSE(co_variable_is_initialized(ctx, co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
}

/* --- saving and restoring --- */

static co_value *
add_id(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user,
                         co_cast(ctx, co_replica_id_tensor(ctx), co_value_dtype(ctx, user)));
}

static co_value *
save_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    CO_EXPECT_NULL(co_variable_save(ctx, user));
    return NULL;
}

static co_value *
restore_in_step(co_context *ctx, co_value *args, void *user)
{
    co_variable_restore(ctx, user, co_at(ctx, args, 0));
    return NULL;
}

CO_TEST_WITH(saved_values_come_back, "VAR-SOR-6 VAR-SOR-7", "cpus=2")
{
    enum { NONE, SUM, MEAN, FIRST };
    static const struct {
        int      sync, aggregation;
        co_dtype dtype;
        double   saved, restored, a,
            b; /* after adding 0 and 1 to components of 10; restored -> components */
        co_code code;
    } cases[] = {
        { CO_SYNC_ON_READ, SUM, CO_FLOAT32, 21, 3, 1.5, 1.5, CO_OK },
        { CO_SYNC_ON_READ, SUM, CO_INT32, 21, 5, 2, 2, CO_OK },
        { CO_SYNC_ON_READ, MEAN, CO_FLOAT32, 10.5, 3, 3, 3, CO_OK },
        { CO_SYNC_ON_READ, FIRST, CO_FLOAT32, 10, 3, 3, 3, CO_OK },
        { CO_SYNC_ON_READ, NONE, CO_FLOAT32, 0, 3, 3, 3, CO_VALUE_ERROR },
        { CO_SYNC_ON_WRITE, NONE, CO_FLOAT32, 10, 3, 3, 3, CO_OK },
        { CO_SYNC_ON_WRITE, SUM, CO_FLOAT32, 11, 3, 3, 3, CO_OK },
    };
    co_strategy *m = test_mirrored(ctx, 2, -1);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *v = NULL, *saved, *parts;

        options.synchronization = (co_synchronization)cases[i].sync;
        options.aggregation = (co_aggregation)cases[i].aggregation;
        options.dtype = cases[i].dtype;
        CO_SCOPE(ctx, m)
            v = co_variable(ctx, co_int(ctx, 10), &options);
        co_run(ctx, m, add_id, co_no_args(ctx), v);
        CO_EXPECT_OK(ctx);
        saved = co_variable_save(ctx, v);
        CO_EXPECT_CODE(co_error(ctx)->code, cases[i].code);
        co_clear(ctx);
        if (cases[i].code == CO_OK)
            CO_EXPECT_CLOSE(co_item_float(ctx, saved), cases[i].saved, 0);
        CO_EXPECT_CODE(co_variable_restore(ctx, v, co_int(ctx, (int64_t)cases[i].restored)), CO_OK);
        parts = co_local_results(ctx, m, v);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 0)), cases[i].a, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 1)), cases[i].b, 0);
    }
}

CO_TEST_WITH(saving_is_for_all_replicas_together, "VAR-SOR-6", "cpus=2")
{
    co_strategy        *m = test_mirrored(ctx, 2, -1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL, *plain = co_variable(ctx, co_float(ctx, 4), NULL);
    co_value           *parts[2] = { co_float(ctx, 1), co_float(ctx, 2) };

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_MEAN;
    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 1), &options);
    co_run(ctx, m, save_in_step, co_no_args(ctx), v);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "outside the step");
    co_run(ctx, m, restore_in_step, co_args(ctx, co_float(ctx, 1)), plain);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "variable_restore");
    CO_EXPECT_CODE(co_variable_restore(ctx, v, co_per_replica_value(ctx, parts, 2)), CO_TYPE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_variable_restore(ctx, v, NULL), CO_INVALID_ARGUMENT);
    co_clear(ctx);
    CO_EXPECT_CODE(co_variable_restore(ctx, v, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2))),
                   CO_VALUE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_variable_restore(ctx, parts[0], parts[1]), CO_TYPE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_variable_restore(ctx, plain, co_variable_save(ctx, v)), CO_OK);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_save(ctx, plain)), 1, 0);
    CO_SCOPE(ctx, co_one_device_strategy(ctx, NULL))
        CO_EXPECT_NULL(co_variable_save(ctx, v));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
}

/* --- collections --- */

CO_TEST_WITH(trainable_variables_are_found, "VAR-NEW-6 DV-GROUP-6", "cpus=2")
{
    static const char *const keys[] = { "b", "a", "x" };
    co_variable_options      frozen = CO_VARIABLE_OPTIONS_INIT;
    co_strategy             *m = test_mirrored(ctx, 2, -1);
    co_value                *items[3], *list, *watched, *y;

    frozen.trainable = CO_TRAINABLE_NO;
    CO_SCOPE(ctx, m) {
        items[0] = co_variable(ctx, co_float(ctx, 1), NULL);
        items[1] = co_variable(ctx, co_float(ctx, 2), &frozen);
    }
    items[2] = co_variable(ctx, co_float(ctx, 3), NULL);
    list = co_trainable_variables(ctx, co_args(ctx, co_dict(ctx, keys, items, 3), co_float(ctx, 1),
                                               items[0]));
    CO_EXPECT_INT(co_num_items(ctx, list), 3);
    CO_EXPECT_PTR(co_at(ctx, list, 0), items[0]);
    CO_EXPECT_PTR(co_at(ctx, list, 1), items[2]);
    CO_EXPECT_PTR(co_at(ctx, list, 2), items[0]);
    CO_EXPECT_INT(co_num_items(ctx, co_trainable_variables(ctx, items[1])), 0);
    CO_EXPECT_NULL(co_trainable_variables(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "structure");
    CO_EXPECT_NULL(co_watched_variables(ctx));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_tape_begin");
    co_tape_begin(ctx);
    y = co_mul(ctx, co_mul(ctx, items[2], items[0]), items[1]);
    watched = co_watched_variables(ctx); /* in order of use, without the frozen one */
    CO_EXPECT_INT(co_num_items(ctx, watched), 2);
    CO_EXPECT_PTR(co_at(ctx, watched, 0), items[2]);
    CO_EXPECT_PTR(co_at(ctx, watched, 1), items[0]);
    list = co_gradient(ctx, y, watched);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, list, 0)), 2, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, list, 1)), 6, 0);
    co_tape_begin(ctx);
    co_watch(ctx, items[1]);
    CO_EXPECT_INT(co_num_items(ctx, co_watched_variables(ctx)), 1);
    co_tape_end(ctx);
    CO_EXPECT_NULL(co_watched_variables(ctx));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape");
}

CO_TEST(the_operation_of_an_aggregation, "ROP-2")
{
    co_reduce_op op = CO_REDUCE_PROD;

    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_SUM, &op), CO_OK);
    CO_EXPECT_INT(op, CO_REDUCE_SUM);
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_MEAN, &op), CO_OK);
    CO_EXPECT_INT(op, CO_REDUCE_MEAN);
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_NONE, &op), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "aggregation 0");
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_ONLY_FIRST_REPLICA, &op),
                   CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "aggregation 3");
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_SUM, NULL),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "out");
    CO_EXPECT_INT(op, CO_REDUCE_MEAN);
}

/* --- messages --- */

/* Each names the variable, its place, its strategy, the current one and a way out; none its
 * contents (7351). */
CO_TEST_WITH(messages_say_where_a_variable_is_from, "GEN-ERR-3 VAR-NEW-8", "cpus=2")
{
    co_strategy        *m = test_mirrored(ctx, 2, -1), *one = co_one_device_strategy(ctx, "/cpu:1");
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL, *none = NULL, *sum = NULL;
    int                 line = 0;

    options.name = "secret";
    CO_SCOPE(ctx, m) {
        line = __LINE__ + 1;
        v = co_variable(ctx, co_int(ctx, 7351), &options);
        options.synchronization = CO_SYNC_ON_READ;
        none = co_variable(ctx, co_int(ctx, 7351), &options);
        options.aggregation = CO_AGGREGATION_SUM;
        sum = co_variable(ctx, co_int(ctx, 7351), &options);
    }
    for (int i = 0; i < 6; ++i) {
        char        place[80], text[sizeof(co_error(ctx)->message)];
        const char *now = i == 0 ? "now under OneDeviceStrategy" : "now under the default strategy";

        snprintf(place, sizeof(place), "%s:%d under MirroredStrategy", "variables_made.c",
                 line + (i < 3   ? 0
                         : i < 5 ? 2
                                 : 4));
        switch (i) {
        case 0:
            CO_SCOPE(ctx, one)
                co_variable_read(ctx, v);
            break;
        case 1: co_assign(ctx, v, co_scalar_float(ctx, 1)); break;
        case 2: co_scatter_add(ctx, v, co_float(ctx, 1)); break;
        case 3: co_variable_read(ctx, none); break;
        case 4: co_scatter_add(ctx, none, co_float(ctx, 1)); break;
        default: co_assign_add(ctx, sum, co_int(ctx, 1)); break;
        }
        snprintf(text, sizeof(text), "%s", co_error(ctx)->message);
        CO_EXPECT_FALSE(co_ok(ctx));
        co_clear(ctx);
        CO_EXPECT_CONTAINS(text, "variable 'secret' (made at ");
        CO_EXPECT_CONTAINS(text, place);
        CO_EXPECT_CONTAINS(text, now);
        CO_EXPECT_TRUE(strstr(text, "; use") != NULL || strstr(text, "; make") != NULL ||
                       strstr(text, "; give") != NULL || strstr(text, "; add") != NULL ||
                       strstr(text, "; it takes") != NULL);
        CO_EXPECT_NULL(strstr(text, "7351"));
    }
}

/* --- memory --- */

static bool
make_everything(co_context *ctx)
{
    co_strategy        *m = test_mirrored(ctx, 2, -1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    source              one = { 0, 0, false }, each[2] = { { 0, 0, false }, { 0, 0, false } };
    co_value           *v = NULL;

    options.initializer = initialize;
    options.initializer_user = &one;
    CO_SCOPE(ctx, m) {
        co_variable(ctx, NULL, &options);
        v = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), NULL);
        options.synchronization = CO_SYNC_ON_READ;
        options.aggregation = CO_AGGREGATION_SUM;
        v = co_variable(ctx, co_float(ctx, 1), &options);
    }
    co_variable_restore(ctx, v, co_variable_save(ctx, v));
    co_trainable_variables(ctx, v);
    co_tape_begin(ctx);
    co_watched_variables(ctx);
    co_tape_end(ctx);
    co_run(ctx, m, make_in_step, co_no_args(ctx), each);
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_memory_while_making_is_survived, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", make_everything);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Errors name the call that the program made, whatever it did inside, and every end finds its
 * begin. */
#include "engine_support.h"
#include "hooks.h"

#define EXPECT_CALL(ctx_, code_, call_)                                                            \
    do {                                                                                           \
        CO_REQUIRE(co_error(ctx_) != NULL);                                                        \
        CO_EXPECT_CODE(co_error(ctx_)->code, code_);                                               \
        CO_EXPECT_STR(co_error(ctx_)->call, call_);                                                \
        co_clear(ctx_);                                                                            \
    } while (0)

/* All of them call something else first, and return what is in `user`: a value of another
 * runtime. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_int(ctx, 1);
    return user;
}

static co_value *
merging(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return step(ctx, args, user);
}

static co_value *
merging_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merging, args, user);
}

static co_value *
updating(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)variable;
    return step(ctx, args, user);
}

static co_value *
value_of(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)replica;
    return step(ctx, NULL, user);
}

static co_value *
initializer(co_context *ctx, void *user)
{
    return step(ctx, NULL, user);
}

static co_value *
creator(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
        void *user)
{
    (void)next;
    (void)initial;
    (void)options;
    return step(ctx, NULL, user);
}

static co_value *
leaf(co_context *ctx, co_value *value, void *user)
{
    (void)value;
    return step(ctx, NULL, user);
}

CO_TEST_WITH(results_of_functions_are_errors_of_the_call_that_called_them, "GEN-ERR-2", "cpus=2")
{
    co_context         *other = co_open(NULL);
    co_value           *theirs = co_int(other, 1), *v = NULL, *none = co_no_args(ctx);
    co_strategy        *s = test_mirrored(ctx, 2, -1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_run(ctx, s, step, none, theirs);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "run");
    co_run(ctx, s, merging_step, none, theirs);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "merge_call");
    co_update(ctx, s, v, updating, none, theirs, true);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "update");
    co_update_non_slot(ctx, s, co_worker_devices(ctx, s), step, none, theirs, true);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "update_non_slot");
    co_distribute_values_from_function(ctx, s, value_of, theirs);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "distribute_values_from_function");
    co_map_structure(ctx, co_int(ctx, 1), leaf, theirs);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "map_structure");
    options.initializer = initializer;
    options.initializer_user = theirs;
    co_variable(ctx, NULL, &options);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "variable");
    CO_CREATOR(ctx, creator, theirs)
        co_variable(ctx, co_int(ctx, 1), NULL);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "variable");
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

static co_value *
assign_shared(co_context *ctx, co_value *args, void *user)
{
    return co_assign(ctx, user, co_at(ctx, args, 0));
}

CO_TEST_WITH(leaves_fail_under_the_name_of_the_call, "GEN-ERR-2 S-REDUCE-13 VAR-MIR-6", "cpus=2")
{
    co_strategy        *s = test_mirrored(ctx, 2, -1);
    co_value           *five = co_scalar_float(ctx, 5), *v = NULL;
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 1), &options);
    co_reduce(ctx, s, CO_REDUCE_SUM, five, NULL, 0);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "reduce");
    co_reduce_to(ctx, s, CO_REDUCE_SUM, five, co_string(ctx, "/cpu:0"));
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "reduce_to");
    co_run(ctx, s, assign_shared, co_args(ctx, five), v);
    EXPECT_CALL(ctx, CO_VALUE_ERROR, "assign");
}

/* Colocations until there is no memory for one more, within each other, and as many ends. */
CO_TEST_BARE(colocations_without_memory_end_too, "GEN-ERR-1")
{
    test_hooks   hooks;
    co_options   options = CO_OPTIONS_INIT;
    co_context  *own;
    co_strategy *s;
    co_value    *v = NULL;
    co_scope     scope;
    int          begun = 0;

    test_hooks_init(&hooks, 0);
    options.allocator = &hooks.allocator;
    options.settings = "cpus=2";
    own = co_open_with(&options);
    s = test_mirrored(own, 2, -1);
    scope = co_scope_begin(own, s);
    v = co_variable(own, co_float(own, 1), NULL);
    CO_EXPECT_OK(own);
    hooks.limit = atomic_load(&hooks.bytes);
    for (; begun < 200 && co_ok(own); ++begun)
        co_colocate_begin(own, s, v);
    CO_EXPECT_ERROR(own, CO_RESOURCE_EXHAUSTED, "memory");
    co_colocate_begin(own, s, v); /* inside one that is not there */
    co_clear(own);
    hooks.limit = INT64_MAX / 2;
    for (++begun; begun > 0; --begun)
        co_colocate_end(own);
    CO_EXPECT_OK(own);
    co_colocate_end(own);
    CO_EXPECT_ERROR(own, CO_RUNTIME_ERROR, "no colocation");
    CO_EXPECT_CODE(co_scope_end(own, &scope), CO_OK);
    CO_EXPECT_CODE(co_close(own), CO_OK);
}

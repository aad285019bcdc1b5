/* SPDX-License-Identifier: Apache-2.0 */
/* Which strategy is current: scopes, set-strategy, the default strategy. Sections 2 to 5 of the
 * specification. */
#include "test.h"

#include <pthread.h>

static const char *const two[] = { "/cpu:0", "/cpu:1" };

static co_strategy *
mirrored(co_context *ctx)
{
    return co_mirrored_strategy(ctx, two, 2, NULL);
}

/* What the four questions answer. */
static void
expect_state(co_context *ctx, co_strategy *strategy, bool has, bool cross)
{
    CO_EXPECT_PTR(co_get_strategy(ctx), strategy);
    CO_EXPECT_INT(co_has_strategy(ctx), has);
    CO_EXPECT_INT(co_in_cross_replica_context(ctx), cross);
    CO_EXPECT_PTR(co_get_replica_context(ctx), cross ? NULL : ctx);
}

static void
expect_default(co_context *ctx)
{
    expect_state(ctx, co_default_strategy(ctx), false, false);
}

CO_TEST(a_context_starts_in_default_mode, "CTX-1 CTX-2 CTX-3 CTX-8 DEF-1 DEF-17")
{
    expect_default(ctx);
    CO_EXPECT_PTR(co_default_strategy(ctx), co_default_strategy(ctx));
    CO_EXPECT_INT(co_replica_id(ctx), 0);
    CO_EXPECT_INT(co_replicas(ctx), 1);
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_default_strategy(ctx)), 1);
}

CO_TEST_WITH(a_scope_makes_its_strategy_current_and_leaving_restores,
             "SCOPE-1 SCOPE-2 SCOPE-3 CTX-4 CTX-5", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_scope     scope;

    expect_default(ctx); /* making a strategy has no effect */
    scope = co_scope_begin(ctx, m);
    expect_state(ctx, m, true, true);
    CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
    expect_default(ctx);
    CO_SCOPE(ctx, m) {
        co_fail(ctx, CO_INTERNAL, "the body fails");
        expect_state(ctx, m, true, true);
    }
    expect_default(ctx);
    CO_EXPECT_ERROR(ctx, CO_INTERNAL, "the body fails");
}

CO_TEST_WITH(a_scope_nests_in_itself, "SCOPE-4 SCOPE-11", "cpus=2")
{
    co_strategy *m = mirrored(ctx);

    CO_SCOPE(ctx, m) {
        CO_SCOPE(ctx, m) {
            CO_SCOPE(ctx, m) {
                expect_state(ctx, m, true, true);
            }
            expect_state(ctx, m, true, true);
        }
        expect_state(ctx, m, true, true);
    }
    expect_default(ctx);
}

CO_TEST_WITH(scopes_of_two_strategies_do_not_mix, "SCOPE-5 GEN-ERR-1 GEN-ERR-3", "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, "/cpu:1");

    CO_SCOPE(ctx, m) {
        co_scope inner = co_scope_begin(ctx, one);

        CO_EXPECT_TRUE(inner.id == 0);
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "MirroredStrategy");
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "OneDeviceStrategy");
        expect_state(ctx, m, true, true);
    }
    expect_default(ctx);
}

static co_value *
enter_scopes_in_step(co_context *ctx, co_value *args, void *user)
{
    co_strategy **strategies = user;
    co_scope      scope;

    (void)args;
    scope = co_scope_begin(ctx, strategies[0]);
    CO_EXPECT_TRUE(scope.id == 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "merge_call");
    scope = co_scope_begin(ctx, strategies[1]);
    CO_EXPECT_TRUE(scope.id == 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    expect_state(ctx, strategies[0], true, false);
    return NULL;
}

CO_TEST_WITH(scopes_cannot_be_entered_in_a_step, "SCOPE-6 SCOPE-7", "cpus=2")
{
    co_strategy *strategies[] = { mirrored(ctx), co_one_device_strategy(ctx, "/cpu:0") };

    co_run(ctx, strategies[0], enter_scopes_in_step, co_no_args(ctx), strategies);
    CO_EXPECT_OK(ctx);
}

static co_value *
double_it(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 0));
}

static co_value *
merge_with_run(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    int      *calls = user;
    co_value *twice = NULL;

    ++*calls;
    expect_state(ctx, strategy, true, true);
    CO_SCOPE(ctx, strategy) {
        expect_state(ctx, strategy, true, true);
    }
    twice = co_run(ctx, strategy, double_it, args, NULL);
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, twice, NULL, 0);
}

static co_value *
step_with_merge(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_merge_call(ctx, merge_with_run,
                         co_args(ctx, co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx))),
                         user);
}

CO_TEST_WITH(a_merge_function_may_enter_the_scope_and_run, "SCOPE-8 RC-MERGE-2 RC-MERGE-4",
             "cpus=2")
{
    int       calls = 0;
    co_value *sum = co_run(ctx, mirrored(ctx), step_with_merge, co_no_args(ctx), &calls);

    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(calls, 1);
    CO_EXPECT_CLOSE(co_item_float(ctx, sum), 6.0,
                    0); /* one tensor shared by both replicas comes back unwrapped */
}

CO_TEST_WITH(scopes_are_left_in_reverse_order, "SCOPE-9 SCOPE-14 AMB-14", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    co_scope     outer = co_scope_begin(ctx, m), inner = co_scope_begin(ctx, m);

    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
    expect_state(ctx, m, true, true);
    CO_EXPECT_CODE(co_scope_end(ctx, &inner), CO_OK);
    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_OK);
    expect_default(ctx);
    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_RUNTIME_ERROR); /* closed already */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not open");
}

CO_TEST_WITH(plain_operations_in_a_scope_stay_on_the_normal_device, "SCOPE-10", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:1");

    CO_SCOPE(ctx, one) {
        co_value *sum = co_add(ctx, co_scalar_float(ctx, 1), co_scalar_float(ctx, 2));

        CO_EXPECT_STR(co_value_device(ctx, sum), "/job:localhost/replica:0/task:0/device:CPU:0");
    }
}

CO_TEST_WITH(set_strategy_acts_like_an_open_scope, "SET-1 SET-2 SET-3 SET-4 SET-9", "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, "/cpu:1");
    co_value    *v;

    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, m), CO_OK);
    expect_state(ctx, m, true, true);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, m), CO_OK);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, one), CO_OK);
    expect_state(ctx, one, true, true);
    v = co_variable(ctx, co_float(ctx, 1), NULL);
    CO_EXPECT_STR(co_value_device(ctx, v), "/job:localhost/replica:0/task:0/device:CPU:1");
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_OK);
    expect_default(ctx);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_OK);
    expect_default(ctx);
    co_experimental_set_strategy(ctx, m);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, co_default_strategy(ctx)), CO_OK);
    expect_default(ctx);
}

CO_TEST_WITH(set_strategy_fails_inside_a_scope, "SET-5 SET-10 SET-14 AMB-1", "cpus=2")
{
    co_strategy *m = mirrored(ctx);

    CO_SCOPE(ctx, m) {
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_RUNTIME_ERROR);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "scope");
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, m), CO_RUNTIME_ERROR);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "scope");
        expect_state(ctx, m, true, true);
    }
    expect_default(ctx);
    co_experimental_set_strategy(ctx, m);
    CO_SCOPE(ctx, m) { /* re-entry of the strategy that is set */
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_RUNTIME_ERROR);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    }
    expect_state(ctx, m, true, true);
    co_experimental_set_strategy(ctx, NULL);
    CO_SCOPE(ctx, co_default_strategy(ctx)) {
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, m), CO_RUNTIME_ERROR);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "scope");
    }
    expect_default(ctx);
}

static co_value *
set_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)args;
    (void)user;
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, strategy), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return NULL;
}

static co_value *
set_in_step(co_context *ctx, co_value *args, void *user)
{
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return co_merge_call(ctx, set_in_merge, args, user);
}

CO_TEST_WITH(set_strategy_fails_inside_a_step, "SET-6 AMB-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx);

    co_experimental_set_strategy(ctx, m);
    co_run(ctx, m, set_in_step, co_no_args(ctx), NULL);
    CO_EXPECT_OK(ctx);
    expect_state(ctx, m, true, true);
    co_experimental_set_strategy(ctx, NULL);
}

/* Another thread, with a context of its own. */
typedef struct other {
    co_context  *ctx;
    co_strategy *strategy;
} other;

static void *
in_other_thread(void *arg)
{
    other       *o = arg;
    co_context  *mine = co_open_beside(o->ctx);
    co_strategy *one = co_one_device_strategy(mine, "/cpu:0");
    co_value    *v;

    expect_default(mine);
    v = co_variable(mine, co_float(mine, 1), NULL);
    CO_EXPECT_NULL(co_variable_strategy(mine, v));
    co_experimental_set_strategy(mine, one);
    expect_state(mine, one, true, true);
    CO_SCOPE(mine, o->strategy) {
        CO_FAIL("the scope of another strategy was entered");
    }
    CO_EXPECT_ERROR(mine, CO_RUNTIME_ERROR, "mixing");
    CO_EXPECT_CODE(co_close(mine), CO_OK);
    return NULL;
}

CO_TEST_WITH(threads_have_their_own_modes, "CTX-6 SET-7 SET-8 THR-1 THR-3 C-CTX-1", "cpus=2")
{
    co_strategy *m = mirrored(ctx);
    other        o = { ctx, m };
    pthread_t    thread;

    CO_SCOPE(ctx, m) {
        CO_REQUIRE(pthread_create(&thread, NULL, in_other_thread, &o) == 0);
        pthread_join(thread, NULL);
        expect_state(ctx, m, true, true);
    }
}

CO_TEST_WITH(with_a_set_strategy_others_are_refused, "SET-8", "cpus=2")
{
    co_strategy *m = mirrored(ctx), *one = co_one_device_strategy(ctx, "/cpu:0");

    co_experimental_set_strategy(ctx, m);
    CO_SCOPE(ctx, m) {
        expect_state(ctx, m, true, true);
    }
    CO_SCOPE(ctx, one) {
        CO_FAIL("another strategy's scope was entered");
    }
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    co_run(ctx, one, double_it, co_args(ctx, co_int(ctx, 1)), NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    co_reduce(ctx, one, CO_REDUCE_SUM, co_float(ctx, 1), NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    co_experimental_set_strategy(ctx, NULL);
}

CO_TEST_WITH(set_strategy_inside_a_device_block_is_fine, "SET-11 SET-12", "cpus=2")
{
    co_strategy *m = mirrored(ctx);

    CO_DEVICE(ctx, "/cpu:1") {
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, m), CO_OK);
    }
    CO_EXPECT_OK(ctx);
    expect_state(ctx, m, true, true);
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, (co_strategy *)(void *)co_int(ctx, 1)),
                   CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strategy");
    expect_default(ctx);
}

/* The two programs of the set-strategy document give the same. */
typedef struct seen {
    bool         has, cross;
    co_strategy *strategy;
    char         device[CO_DEVICE_NAME_MAX];
} seen;

static seen
look(co_context *ctx)
{
    seen s = { co_has_strategy(ctx), co_in_cross_replica_context(ctx), co_get_strategy(ctx), "" };
    co_value *v = co_variable(ctx, co_float(ctx, 1), NULL);

    snprintf(s.device, sizeof(s.device), "%s", co_value_device(ctx, v));
    return s;
}

static void
expect_same(const seen *a, const seen *b)
{
    CO_EXPECT_INT(a->has, b->has);
    CO_EXPECT_INT(a->cross, b->cross);
    CO_EXPECT_PTR(a->strategy, b->strategy);
    CO_EXPECT_STR(a->device, b->device);
}

CO_TEST_WITH(set_strategy_equals_two_blocks, "SET-13", "cpus=2")
{
    co_strategy *s1 = mirrored(ctx), *s2 = co_one_device_strategy(ctx, "/cpu:1");
    seen         by_set[3], by_block[3];

    co_experimental_set_strategy(ctx, s1);
    by_set[0] = look(ctx);
    co_experimental_set_strategy(ctx, s2);
    by_set[1] = look(ctx);
    co_experimental_set_strategy(ctx, NULL);
    by_set[2] = look(ctx);
    CO_SCOPE(ctx, s1)
        by_block[0] = look(ctx);
    CO_SCOPE(ctx, s2)
        by_block[1] = look(ctx);
    by_block[2] = look(ctx);
    for (int i = 0; i < 3; ++i)
        expect_same(&by_set[i], &by_block[i]);
    CO_EXPECT_STR(by_set[1].device, "/job:localhost/replica:0/task:0/device:CPU:1");
}

static co_value *
in_default_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    co_gather_replicas(ctx, user, co_scalar_float(ctx, 1), 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "inside a merge function of the default strategy");
    return args;
}

static co_value *
in_default_step(co_context *ctx, co_value *args, void *user)
{
    co_strategy *m = user;

    (void)args;
    expect_default(ctx);
    CO_SCOPE(ctx, co_default_strategy(ctx)) {
        expect_default(ctx);
    }
    CO_SCOPE(ctx, m) {
        expect_state(ctx, m, true, true);
    }
    expect_default(ctx);
    co_reduce(ctx, user, CO_REDUCE_MEAN, co_scalar_float(ctx, 1), NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "inside a step of the default strategy");
    co_merge_call(ctx, in_default_merge, co_no_args(ctx), user);
    co_run(ctx, co_default_strategy(ctx), in_default_step, co_no_args(ctx), user);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "nest");
    return co_replica_id_tensor(ctx);
}

CO_TEST_WITH(the_default_strategy_changes_nothing, "DEF-2 DEF-6 DEF-16 DEF-18 S-REDUCE-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx), *d = co_default_strategy(ctx);
    co_value    *id;

    CO_SCOPE(ctx, d) {
        expect_default(ctx);
    }
    CO_SCOPE(ctx, m) {
        CO_SCOPE(ctx, d) {
            CO_FAIL("the default scope was entered inside another");
        }
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
        co_reduce(ctx, d, CO_REDUCE_SUM, co_float(ctx, 1), NULL, 0);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    }
    id = co_run(ctx, d, in_default_step, co_no_args(ctx), m);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_value_dtype(ctx, id), CO_INT32);
    CO_EXPECT_INT(co_item_int(ctx, id), 0);
    expect_default(ctx);
}

static co_value *
default_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    CO_EXPECT_PTR(strategy, co_default_strategy(ctx));
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    return co_at(ctx, args, 0);
}

CO_TEST(the_default_replica_context_merges_and_reduces_alone, "DEF-7 DEF-8 DEF-9 DEF-15 RC-6")
{
    co_strategy *d = co_default_strategy(ctx);
    co_value    *x = co_scalar_float(ctx, 3);

    CO_EXPECT_PTR(co_merge_call(ctx, default_merge, co_args(ctx, x), NULL), x);
    CO_EXPECT_PTR(co_all_reduce(ctx, CO_REDUCE_SUM, x), x);
    CO_EXPECT_PTR(co_all_gather(ctx, x, 0), x);
    CO_EXPECT_INT(co_value_kind(co_all_reduce(ctx, CO_REDUCE_SUM, co_int(ctx, 4))), CO_KIND_TENSOR);
    CO_EXPECT_PTR(co_reduce(ctx, d, CO_REDUCE_MEAN, x, NULL, 0), x);
    CO_EXPECT_PTR(co_at(ctx, co_local_results(ctx, d, x), 0), x);
    CO_EXPECT_NULL(co_worker_devices(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Corners of the engine: no context, want of memory in every part of a step, and ranks that bring
 * unusual things. */
#include <cohort/v1.h>
#include "collective/local/ranks.h"
#include "context/context.h"
#include "hooks.h"
#include "rank_support.h"

/* --- no context --- */

CO_TEST_WITH(without_a_context_nothing_happens, "CTX-8", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_scope     open = co_scope_begin(ctx, m), none = { 0 };
    char         text[8];

    co_communication implementation;
    co_reduce_op     op;

    CO_EXPECT_INT(co_scope_begin(NULL, m).id, 0);
    CO_EXPECT_CODE(co_scope_end(NULL, &open), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(co_scope_end(ctx, NULL), CO_RUNTIME_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_scope_end(ctx, &none), CO_RUNTIME_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_experimental_set_strategy(NULL, m), CO_INVALID_ARGUMENT);
    CO_EXPECT_NULL(co_get_strategy(NULL));
    CO_EXPECT_FALSE(co_has_strategy(NULL));
    CO_EXPECT_FALSE(co_in_cross_replica_context(NULL));
    CO_EXPECT_NULL(co_get_replica_context(NULL));
    CO_EXPECT_INT(co_replica_id(NULL), -1);
    CO_EXPECT_INT(co_replicas(NULL), 0);
    CO_EXPECT_NULL(co_replica_id_tensor(NULL));
    CO_EXPECT_NULL(co_merge_call(NULL, NULL, NULL, NULL));
    CO_EXPECT_NULL(co_run(NULL, m, NULL, NULL, NULL));
    CO_EXPECT_NULL(co_call_for_each_replica(NULL, m, NULL, NULL, NULL));
    CO_EXPECT_INT(co_flight_format(NULL, m, text, sizeof(text)), 0);
    CO_EXPECT_CODE(co_flight_save(NULL, m, "x"), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(co_communication_from_name(NULL, "RING", &implementation), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(NULL, CO_AGGREGATION_SUM, &op),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_INT(co_strategy_cross_device_ops(NULL, m), CO_CROSS_DEVICE_AUTO);
    CO_EXPECT_NULL(co_creator_next(NULL, NULL, NULL, NULL));
    CO_EXPECT_NULL(co_creator_owner(NULL, NULL));
    CO_EXPECT_NULL(co_replica_id_tensor(ctx)); /* in cross-replica context */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no replica in cross-replica context");
    CO_EXPECT_CODE(co_scope_end(ctx, &open), CO_OK);
    co_fail(ctx, CO_ABORTED, "an error stays");
    CO_EXPECT_INT(co_scope_begin(ctx, m).id, 0);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, m), CO_ABORTED);
    CO_EXPECT_CODE(co_communication_from_name(ctx, "RING", &implementation), CO_ABORTED);
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_SUM, &op), CO_ABORTED);
    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx, m), CO_CROSS_DEVICE_AUTO);
    CO_EXPECT_NULL(co_creator_next(ctx, NULL, NULL, NULL));
    CO_EXPECT_NULL(co_creator_owner(ctx, NULL));
    CO_EXPECT_NULL(co_replica_id_tensor(ctx));
    CO_EXPECT_NULL(co_merge_call(ctx, NULL, NULL, NULL));
    CO_EXPECT_NULL(co_call_for_each_replica(ctx, m, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_ABORTED, NULL);
}

/* What is entered above a strategy that was set stays when it is taken away. */
CO_TEST_WITH(a_set_strategy_goes_from_below_a_device, "SET-3 SET-11", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *one = co_one_device_strategy(ctx, NULL);

    co_experimental_set_strategy(ctx, m);
    co_device_begin(ctx, "/cpu:1");
    co_device_begin(ctx, "/cpu:0");
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_OK);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
    co_device_end(ctx);
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:1");
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, one), CO_OK);
    co_experimental_set_strategy(ctx, NULL);
    co_device_end(ctx);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(tokens_are_of_one_scope_of_one_context, "SCOPE-9 AMB-14", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_context  *other = co_open_beside(ctx);
    co_scope     mine = co_scope_begin(ctx, m), made_up;

    CO_EXPECT_CODE(co_scope_end(other, &mine), CO_RUNTIME_ERROR); /* which has none at all */
    CO_EXPECT_ERROR(other, CO_RUNTIME_ERROR, "is not open in this context");
    CO_EXPECT_CODE(co_close(other), CO_OK);
    co_device_begin(ctx, "/cpu:1");
    made_up.id = mine.id + 1; /* that of the device */
    CO_EXPECT_CODE(co_scope_end(ctx, &made_up), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not the innermost");
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:1");
    co_device_end(ctx);
    CO_EXPECT_CODE(co_scope_end(ctx, &mine), CO_OK);
}

static co_value *
set_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)args;
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, user), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "inside a scope of the default strategy");
    return NULL;
}

CO_TEST_WITH(no_strategy_is_set_in_a_merge_function_of_default_mode, "SET-6 DEF-15", "cpus=2")
{
    co_merge_call(ctx, set_in_merge, co_no_args(ctx), test_mirrored(ctx, 2, -1));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}

/* Steps have numbers of their own for random calls; one that makes more than there are for a step
 * leaves none for the next. */
static co_value *
use_many_numbers(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 1)
        ctx->random_counter += (UINT64_C(5) << 20) / 2;
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(1), 0, 1);
    if (co_replica_id(ctx) == 1)
        *(uint64_t *)user = ctx->random_counter;
    return NULL;
}

CO_TEST_WITH(no_random_number_is_used_twice, "", "cpus=2")
{
    uint64_t before = ctx->random_counter, used = 0;

    co_run(ctx, test_mirrored(ctx, 2, -1), use_many_numbers, co_no_args(ctx), &used);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_TRUE(ctx->random_counter >= used);
    CO_EXPECT_INT(ctx->random_counter - before, UINT64_C(3) << 20);
}

/* --- want of memory --- */

static co_value *
merge_sum(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
do_much(co_context *ctx, co_value *args, void *user)
{
    static const char *const keys[] = { "sum", "name" };
    co_value                *x = co_scalar_float(ctx, (float)co_replica_id(ctx)), *items[2];

    (void)user;
    items[0] = co_merge_call(ctx, merge_sum, co_args(ctx, x), NULL);
    items[1] = co_list(ctx, (co_value *[]){ x, co_string(ctx, "same"), co_at(ctx, args, 1) }, 3);
    co_all_gather(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)), 0);
    return co_dict(ctx, keys, items, 2);
}

/* Of 18 replicas: more than the few whose values have a place on the stack. */
static bool
run_many(co_context *ctx)
{
    static const char *const keys[] = { "more" };
    co_run_options           options = CO_RUN_OPTIONS_INIT;
    co_strategy             *m = test_mirrored(ctx, 18, -1);
    co_value                *seven = co_int(ctx, 7), *r;
    co_scope                 scope;

    options.kwargs = co_dict(ctx, keys, &seven, 1);
    r = co_run_with(ctx, m, do_much, co_args(ctx, seven), NULL, &options);
    scope = co_scope_begin(ctx, m);
    if (scope.id != 0)
        co_scope_end(ctx, &scope);
    co_experimental_set_strategy(ctx, m);
    co_experimental_set_strategy(ctx, NULL);
    return co_item_float(ctx, co_get(ctx, r, "sum")) == 153;
}

CO_TEST_BARE(want_of_memory_in_a_large_step_is_survived, "GEN-ERR-1")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", run_many);
}

/* --- ranks --- */

static co_value *
gather_rows(co_context *ctx, co_value *args, void *user)
{
    int64_t dims[] = { 2, co_replica_id(ctx) + 1 };

    (void)args;
    (void)user;
    return co_all_gather(ctx, co_ones(ctx, CO_INT32, dims, 2), -1);
}

static co_value *
fail_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_fail(ctx, CO_ABORTED, "all fail"), NULL;
}

static void
bring_unusual(co_context *ctx, co_strategy *s, int rank, void *user)
{
    static const char *const word[] = { "x" };
    co_value                *r, *v = NULL;

    (void)user;
    r = co_run(ctx, s, gather_rows, co_no_args(ctx), NULL);
    CO_EXPECT_INT(co_value_dim(ctx, r, 1), 3);
    r = co_gather_replicas(ctx, s, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 2)), 1);
    CO_EXPECT_INT(co_value_dim(ctx, r, 1), 4);
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, rank + 1), NULL);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 1, 0); /* that of the chief */
    co_run(ctx, s, fail_in_step, co_no_args(ctx), NULL);
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "all fail");
    CO_EXPECT_NULL(
        co_gather_replicas(ctx, s, co_to_tensor(ctx, co_string(ctx, "x"), CO_STRING), 0));
    co_clear(ctx);
    CO_EXPECT_NULL(co_gather_replicas(ctx, s, co_tensor(ctx, CO_STRING, CO_SHAPE(1), word), 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "strings are not gathered between workers");
    CO_SCOPE(ctx, s)
        CO_EXPECT_NULL(co_variable(ctx, co_to_tensor(ctx, co_string(ctx, "x"), CO_STRING), NULL));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "strings are not sent between workers");
    r = co_reduce(ctx, s, CO_REDUCE_MEAN, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2 + rank)),
                  (int[]){ 0 }, 1);
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 1, 1e-6);
    CO_EXPECT_OK(ctx);
}

CO_TEST_BARE(ranks_may_bring_unusual_things, "MW-9 MW-10 RC-AG-1")
{
    test_on_ranks(2, 2, 20000, NULL, bring_unusual, NULL);
}

/* Each allocation of rank 1 fails once: both ranks come back, and what one says names the other. */
typedef struct poor {
    test_hooks      hooks;
    coi_thread_rank seat;
    co_code         code;
    bool            done;
    long long       opened; /* requests until the strategy was there */
} poor;

static void *
be_poor(void *arg)
{
    poor                            *p = arg;
    co_options                       options = CO_OPTIONS_INIT;
    co_multi_worker_mirrored_options how = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_context                      *ctx;
    co_strategy                     *s;
    co_value                        *v = NULL;

    options.settings = "log=off";
    options.allocator = &p->hooks.allocator;
    ctx = co_open_with(&options);
    how.transport = "threads";
    how.communicator = &p->seat;
    how.num_replicas = 2;
    how.deadline_ms = 3000;
    s = co_multi_worker_mirrored_strategy(ctx, &how);
    p->opened = p->hooks.requests;
    co_run(ctx, s, gather_rows, co_no_args(ctx), NULL);
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 2), NULL);
    co_reduce(ctx, s, CO_REDUCE_SUM, co_ones(ctx, CO_FLOAT32, CO_SHAPE(300)), NULL, 0);
    p->done = co_item_float(ctx, v) == 2;
    p->code = ctx != NULL ? co_error(ctx)->code : CO_RESOURCE_EXHAUSTED;
    co_clear(ctx);
    co_close(ctx);
    return NULL;
}

/* One world of two ranks, in which request fail_at of rank 1 fails; 0: none. */
static void
try_poor(long long fail_at, poor ranks[2])
{
    pthread_t         threads[2];
    coi_memory        memory;
    coi_thread_world *world;
    co_error_info     err;

    coi_memory_init(&memory, NULL);
    coi_error_reset(&err);
    CO_REQUIRE(coi_thread_world_create(&memory, 2, &world, &err) == CO_OK);
    for (int r = 0; r < 2; ++r) {
        test_hooks_init(&ranks[r].hooks, r == 1 ? fail_at : 0);
        ranks[r].seat = (coi_thread_rank){ world, r };
        ranks[r].done = false;
        CO_REQUIRE(pthread_create(&threads[r], NULL, be_poor, &ranks[r]) == 0);
    }
    for (int r = 0; r < 2; ++r)
        pthread_join(threads[r], NULL);
    coi_thread_world_destroy(world);
    CO_EXPECT_INT(ranks[0].hooks.blocks, 0);
    CO_EXPECT_INT(ranks[1].hooks.blocks, 0);
}

/* From the strategy on: who cannot open is waited for until the deadline. */
CO_TEST_BARE(want_of_memory_of_a_rank_is_told_to_the_others, "GEN-ERR-1")
{
    poor      ranks[2];
    long long first, last;

    try_poor(0, ranks);
    CO_REQUIRE(ranks[0].done && ranks[1].done);
    first = ranks[1].opened;
    last = ranks[1].hooks.requests;
    CO_EXPECT_MORE(last, first);
    for (long long n = first + 1; n <= last; n += TEST_SANITIZED ? 7 : 1) {
        double begin = test_now_ms();

        try_poor(n, ranks);
        CO_EXPECT_LESS(test_now_ms() - begin, 20000);
        CO_EXPECT_TRUE(ranks[1].done || ranks[1].code != CO_OK);
    }
}

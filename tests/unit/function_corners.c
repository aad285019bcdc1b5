/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured functions where programs are shared or end early: several threads, other strategies and
 * devices, functions that are released, errors in the middle of a replay.
 */
#include "function_worlds.h"

#include <cohort/runtime_checks.h>

#include <pthread.h>

static int64_t
captures(co_context *ctx, const co_function *f)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    co_function_get_stats(ctx, f, &stats);
    return stats.captures;
}

/* --- threads --- */

static co_value *
polynomial(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = x;

    (void)user;
    for (int i = 0; i < 8; ++i)
        y = co_add(ctx, co_mul(ctx, y, x), co_float(ctx, 0.5));
    return y;
}

typedef struct worker {
    co_context  *ctx;
    co_function *function;
    co_value    *total; /* a variable of all threads */
    int          wrong;
} worker;

static void *
call_often(void *arg)
{
    worker     *w = arg;
    co_context *ctx = w->ctx;

    for (int i = 0; i < 40; ++i)
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, floats(ctx, (float)(i % 3), 1 + i % 5));
            co_value *a = polynomial(ctx, args, NULL), *b = co_call(ctx, w->function, args);

            w->wrong += a == NULL || b == NULL ||
                        memcmp(co_value_data(ctx, a), co_value_data(ctx, b),
                               (size_t)(1 + i % 5) * sizeof(float)) != 0;
        }
    return NULL;
}

CO_TEST(threads_capture_and_call_one_function, "THR-2 FN-1")
{
    co_function *f = co_function_of(ctx, polynomial, NULL, NULL);
    worker       workers[3];
    pthread_t    threads[3];

    for (int i = 0; i < 3; ++i) {
        workers[i] = (worker){ co_open_beside(ctx), f, NULL, 0 };
        CO_REQUIRE(workers[i].ctx != NULL);
    }
    for (int i = 0; i < 3; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, call_often, &workers[i]) == 0);
    for (int i = 0; i < 3; ++i) {
        pthread_join(threads[i], NULL);
        CO_EXPECT_INT(workers[i].wrong, 0);
        CO_EXPECT_OK(workers[i].ctx);
        co_close(workers[i].ctx);
    }
    CO_EXPECT_TRUE(captures(ctx, f) >= 5);
    CO_EXPECT_TRUE(captures(ctx, f) <= 15);
}

/* --- places --- */

static co_value *
place_of_call(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    ++w->calls;
    return co_args(ctx, co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, w->calls)),
                   co_int(ctx, co_has_strategy(ctx)), co_int(ctx, co_in_cross_replica_context(ctx)),
                   co_int(ctx, co_num_replicas_in_sync(ctx, co_get_strategy(ctx))));
}

/* Whether a function was captured under this strategy: it tells the number of its replicas. */
static void
expect_place(co_context *ctx, co_value *seen, int has, int cross, int replicas)
{
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(seen != NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 1)), has);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 2)), cross);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 3)), replicas);
}

CO_TEST_WITH(another_strategy_or_device_captures_again, "FN-2 CTX-7 S-RUN-12", "cpus=2")
{
    world        w = { .strategy = strategy_of_place(ctx, 2) };
    co_strategy *other = strategy_of_place(ctx, 1);
    co_function *f = co_function_of(ctx, place_of_call, &w, NULL);
    co_value    *args = co_args(ctx, floats(ctx, 1, 2));

    for (int i = 0; i < 3; ++i) {
        expect_place(ctx, co_call(ctx, f, args), 0, 0, 1);
        CO_SCOPE(ctx, w.strategy)
            expect_place(ctx, co_call(ctx, f, args), 1, 1, 2);
        CO_SCOPE(ctx, other)
            expect_place(ctx, co_call(ctx, f, args), 1, 1, 1);
        expect_place(ctx, co_run(ctx, w.strategy, co_captured, args, f), 1, 0, 2);
        CO_DEVICE(ctx, "/cpu:1")
            CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, co_call(ctx, f, args), 0)),
                          co_current_device(ctx));
        CO_EXPECT_INT(captures(ctx, f), 6); /* two of them for the replicas of the run */
    }
}

/* --- lifetimes --- */

static co_value *
call_inner(co_context *ctx, co_value *args, void *user)
{
    return co_add(ctx, co_call(ctx, user, args), co_int(ctx, 1));
}

CO_TEST(a_function_may_be_released_while_another_has_its_calls, "FN-9")
{
    co_function *outer, *inner = NULL;
    co_value    *y;

    CO_BLOCK(ctx) {
        inner = co_function_of(ctx, polynomial, NULL, NULL);
        co_keep(ctx, inner);
    }
    outer = co_function_of(ctx, call_inner, inner, NULL);
    y = co_call(ctx, outer, co_args(ctx, floats(ctx, 1, 2)));
    co_release(ctx, inner);
    expect_same(ctx, y, co_call(ctx, outer, co_args(ctx, floats(ctx, 1, 2))));
}

static co_value *
releases_itself(co_context *ctx, co_value *args, void *user)
{
    co_release(ctx, *(co_function **)user);
    return co_neg(ctx, co_at(ctx, args, 0));
}

CO_TEST(a_function_may_release_itself_while_it_is_captured, "FN-1")
{
    co_function *f = NULL;

    CO_BLOCK(ctx) {
        f = co_function_of(ctx, releases_itself, &f, NULL);
        co_keep(ctx, f);
    }
    CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 2))));
    CO_EXPECT_OK(ctx);
}

static co_value *
add_to_own(co_context *ctx, co_value *args, void *user)
{
    return co_assign_add(ctx, ((world *)user)->variables[0], co_at(ctx, args, 0));
}

CO_TEST(a_program_keeps_what_it_uses, "FN-7")
{
    world        w = { .calls = 0 };
    co_function *f;
    co_value    *x = floats(ctx, 1, 2), *first;

    w.variables[0] = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)), NULL);
    co_keep(ctx, w.variables[0]);
    f = co_function_of(ctx, add_to_own, &w, NULL);
    first = co_call(ctx, f, co_args(ctx, x));
    co_release(ctx, w.variables[0]);
    w.variables[0] = NULL;
    expect_same(ctx, co_mul(ctx, first, co_int(ctx, 2)), co_call(ctx, f, co_args(ctx, x)));
}

/* --- errors --- */

static void
make_two(co_context *ctx, world *w)
{
    CO_SCOPE(ctx, w->strategy)
        for (int i = 0; i < 2; ++i)
            w->variables[i] = co_variable(ctx, floats(ctx, 1, 3), NULL);
    w->iterator = co_iterate(ctx, co_dataset_range(ctx, 0, 2, 1));
}

/* The end of input in the middle. */
static co_value *
fails_in_the_middle(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_at(ctx, args, 0), *n;

    ++w->calls;
    co_assign_add(ctx, w->variables[0], x);
    n = co_cast(ctx, co_get_next(ctx, w->iterator), CO_FLOAT32);
    co_assign_add(ctx, w->variables[1], co_mul(ctx, x, n));
    return co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1);
}

CO_TEST_WITH(an_error_in_a_replay_leaves_what_was_done_before, "FN-10", "cpus=2")
{
    for (int place = 0; place < NUM_PLACES; ++place) {
        world        eager = { .strategy = strategy_of_place(ctx, place) }, captured = eager;
        co_function *f = co_function_of(ctx, fails_in_the_middle, &captured, NULL);
        co_value    *args = co_args(ctx, floats(ctx, 2, 3));
        size_t       lines[2];

        make_two(ctx, &eager);
        make_two(ctx, &captured);
        for (int i = 0; i < 4; ++i) {
            co_set_seed(ctx, 3);
            fails_in_the_middle(ctx, args, &eager);
            lines[0] = (size_t)co_error(ctx)->line;
            if (i >= 2)
                CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
            co_set_seed(ctx, 3);
            co_call(ctx, f, args);
            lines[1] = (size_t)co_error(ctx)->line;
            if (i >= 2) {
                CO_EXPECT_INT(lines[1], lines[0]);
                CO_EXPECT_STR(co_error(ctx)->call, "get_next");
                CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
            }
            CO_EXPECT_OK(ctx);
            expect_same_variables(ctx, &eager, &captured);
            /* As many numbers were drawn. */
            if (i >= 2) {
                co_value *here = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1);

                co_set_seed(ctx, 3);
                expect_same(ctx, co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1), here);
            }
        }
        CO_EXPECT_INT(captured.calls, 1);
    }
}

/* An index of the argument that is outside fails on the replica that has it. */
static co_value *
gather_step(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_at(ctx, args, 0), *row;

    ++w->calls;
    co_assign_add(ctx, w->variables[0], floats(ctx, 1, 3));
    row = co_gather(ctx, floats(ctx, 0, 3), x, 0, 0);
    return co_assign_add(ctx, w->variables[1], co_mul(ctx, row, floats(ctx, 1, 3)));
}

CO_TEST_WITH(an_error_of_one_replica_ends_a_captured_run, "FN-10 S-RUN-8", "cpus=2")
{
    world        eager = { .strategy = strategy_of_place(ctx, 2) }, captured = eager;
    co_function *f = co_function_of(ctx, gather_step, &captured, NULL);

    make_two(ctx, &eager);
    make_two(ctx, &captured);
    for (int i = 0; i < 4; ++i) {
        co_value *at[2] = { co_scalar_int32(ctx, 1), co_scalar_int32(ctx, i == 2 ? 7 : 2) }, *x;

        x = co_args(ctx, co_per_replica_value(ctx, at, 2));
        co_run(ctx, eager.strategy, gather_step, x, &eager);
        if (i == 2)
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
        co_run(ctx, eager.strategy, co_captured, x, f);
        if (i == 2)
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
        CO_EXPECT_OK(ctx);
        if (i < 2) /* how far the other replica has come when one fails is a matter of time */
            expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_INT(captured.calls, 2);
}

/* Fails while it is captured until it is told not to. */
static co_value *
fails_at_first(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    co_assign_add(ctx, w->variables[0], co_at(ctx, args, 0));
    if (++w->calls < 3)
        co_item_float(ctx, co_at(ctx, args, 0)); /* has no elements */
    return co_variable_read(ctx, w->variables[0]);
}

CO_TEST(a_capture_that_fails_does_nothing_and_is_made_again, "FN-10 FN-13")
{
    world        w = { .strategy = co_default_strategy(ctx) };
    co_function *f = co_function_of(ctx, fails_at_first, &w, NULL);
    co_value    *args = co_args(ctx, floats(ctx, 2, 3)), *before;

    make_two(ctx, &w);
    before = co_variable_read(ctx, w.variables[0]);
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_NULL(co_call(ctx, f, args));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "item_float reads");
        expect_same(ctx, before, co_variable_read(ctx, w.variables[0]));
    }
    for (int i = 0; i < 2; ++i)
        CO_EXPECT_NOT_NULL(co_call(ctx, f, args));
    CO_EXPECT_INT(w.calls, 3);
    expect_same(ctx, co_add(ctx, co_add(ctx, before, co_at(ctx, args, 0)), co_at(ctx, args, 0)),
                co_variable_read(ctx, w.variables[0]));
}

/* --- many tapes --- */

enum { NUM_TAPES = 20 };

/* The sum of the gradients that each of the open tapes gives, persistent ones among them. */
static co_value *
gradients_of_many_tapes(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *sum = x;

    (void)user;
    for (int i = 0; i < NUM_TAPES; ++i) {
        if (i % 3 == 1)
            co_tape_begin_persistent(ctx);
        else
            co_tape_begin(ctx);
        co_watch(ctx, x);
    }
    y = co_mul(ctx, x, x);
    for (int i = NUM_TAPES - 1; i >= 0; --i) {
        sum = co_add(ctx, sum, co_gradient(ctx, y, x));
        if (i % 3 == 1)
            co_tape_end(ctx);
    }
    return co_mul(ctx, sum, y);
}

CO_TEST(tapes_of_any_depth_have_a_plan, "FN-8")
{
    co_function      *f = co_function_of(ctx, gradients_of_many_tapes, NULL, NULL);
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    for (int i = 0; i < 3; ++i) {
        co_value *args = co_args(ctx, floats(ctx, (float)i, 3));

        expect_same(ctx, gradients_of_many_tapes(ctx, args, NULL), co_call(ctx, f, args));
    }
    co_function_get_stats(ctx, f, &stats);
    CO_EXPECT_INT(stats.plans, 1);
    CO_EXPECT_INT(stats.plan_runs, 3);
}

/* --- names --- */

static co_value *
asserts(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    co_assert(ctx, co_less(ctx, co_at(ctx, args, 0), co_float(ctx, 2)), "it is small");
    return co_at(ctx, args, 0);
}

/* Not the value that the call gives, which is made for it. */
CO_TEST(an_error_of_a_captured_call_without_a_result_names_it, "FN-10 GEN-ERR-4")
{
    co_function *f = co_function_of(ctx, asserts, NULL, NULL);

    co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3)));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 5, 3))));
    CO_EXPECT_STR(co_error(ctx)->call, "assert");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "it is small");
}

/* --- host numbers --- */

static co_value *
where_positive(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *is_positive = co_cast(ctx, x, CO_BOOL);

    (void)user;
    return co_where(ctx, is_positive, x, co_int(ctx, 7));
}

/* Beside a symbolic tensor a host number has its dtype, as beside any other. */
CO_TEST(host_numbers_of_where_take_the_dtype_of_symbols, "FN-1")
{
    co_function *f = co_function_of(ctx, where_positive, NULL, NULL);
    co_value    *x = co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 0, 3 });
    co_value    *seen = co_call(ctx, f, co_args(ctx, x));

    CO_REQUIRE(co_ok(ctx));
    CO_EXPECT_INT(co_value_dtype(ctx, seen), CO_INT64);
    CO_EXPECT_INT(((const int64_t *)co_value_data(ctx, seen))[0], 7);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that no plan can have, because the shape of their results depends on data, or the host
 * reads what was computed: what is around them has plans. Each case compares with the function as
 * it is without capturing.
 */
#include "failing_requests.h"
#include "function_plans.h"

enum { MOST_PLANS = 32, SIZE = 37 };

/* A vector of which `chosen` elements are above 1, here and there. */
static co_value *
some_above(co_context *ctx, int chosen)
{
    float   data[SIZE];
    int64_t dim = SIZE;

    for (int i = 0; i < SIZE; ++i)
        data[i] = (i * 5 % SIZE < chosen ? 1.25f : -0.75f) + 0.01f * (float)i;
    return co_tensor(ctx, CO_FLOAT32, &dim, 1, data);
}

/* As many elements as that, from `first` on. */
static co_value *
ramp(co_context *ctx, float first)
{
    float   data[SIZE];
    int64_t dim = SIZE;

    for (int i = 0; i < SIZE; ++i)
        data[i] = first + 0.3f * (float)i;
    return co_tensor(ctx, CO_FLOAT32, &dim, 1, data);
}

/* The elements of x where `mask` is set. */
static co_value *
masked(co_context *ctx, co_value *x, co_value *mask)
{
    return co_gather(ctx, x, co_reshape(ctx, co_where_index(ctx, mask), CO_SHAPE(-1)), 0, 0);
}

static co_value *
above(co_context *ctx, co_value *x)
{
    return co_greater(ctx, x, co_float(ctx, 1));
}

static void
make_none(co_context *ctx, world *w)
{
    (void)ctx;
    (void)w;
}

/* Call a body with 0, 1, 2, ... chosen elements, `rounds` times. */
static co_function_stats
compare_masks(co_context *ctx, world_fn make, co_fn body, int most, int rounds)
{
    world        eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function *f = co_function_of(ctx, body, &captured, NULL);

    make(ctx, &eager);
    make(ctx, &captured);
    for (int i = 0; i < (most + 1) * rounds; ++i)
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, some_above(ctx, i % (most + 1))), *expected;

            co_set_seed(ctx, (uint64_t)i);
            expected = body(ctx, args, &eager);
            co_set_seed(ctx, (uint64_t)i);
            expect_same(ctx, expected, co_call(ctx, f, args));
            expect_same_variables(ctx, &eager, &captured);
        }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(stats_of(ctx, f).captures, 1);
    return stats_of(ctx, f);
}

/* --- without a tape --- */

static co_value *
chosen_sum(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = co_mul(ctx, co_tanh(ctx, x), x), *some;

    (void)user;
    some = masked(ctx, y, above(ctx, x));
    some = co_add(ctx, co_mul(ctx, some, some), co_float(ctx, 0.5));
    return co_args(ctx, some, co_reduce_sum(ctx, some, CO_ALL_AXES, false), y);
}

CO_TEST(what_is_before_and_after_a_shape_from_data_is_planned, "FN-9 FN-13")
{
    co_function_stats stats = compare_masks(ctx, make_none, chosen_sum, 4, 3);

    CO_EXPECT_INT(stats.plans, 1 + 5); /* before; after it one for each number of rows */
    CO_EXPECT_INT(stats.plan_runs, 2 * 15);
}

CO_TEST(more_numbers_of_rows_than_plans_are_right_as_well, "FN-9")
{
    co_function_stats stats = compare_masks(ctx, make_none, chosen_sum, SIZE, 3);

    CO_EXPECT_INT(stats.plans, 1 + MOST_PLANS);
    CO_EXPECT_INT(stats.plan_runs, 3 * (SIZE + 1) + 3 * MOST_PLANS);
}

/* One after the other, each of what the one before gave. */
static co_value *
chosen_often(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    for (int i = 0; i < *(int *)user; ++i) {
        x = masked(ctx, x, co_greater(ctx, x, co_float(ctx, -5)));
        x = co_add(ctx, x, co_float(ctx, 0.125));
    }
    return x;
}

CO_TEST(a_function_with_many_cuts_is_right, "FN-13")
{
    for (int n = 3; n <= 300; n *= 10) {
        co_function *f = co_function_of(ctx, chosen_often, &n, NULL);

        for (int i = 0; i < 3; ++i) {
            co_value *args = co_args(ctx, some_above(ctx, 5));

            expect_same(ctx, chosen_often(ctx, args, &n), co_call(ctx, f, args));
        }
        CO_EXPECT_MORE(stats_of(ctx, f).plan_runs, 3 * (n < 100 ? n : 100));
    }
}

/* --- under a tape --- */

static void
make_net(co_context *ctx, world *w)
{
    CO_SCOPE(ctx, w->strategy) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

        w->variables[0] = co_variable(ctx, ramp(ctx, -0.5f), NULL);
        options.synchronization = CO_SYNC_ON_READ;
        options.aggregation = CO_AGGREGATION_MEAN;
        w->variables[1] = co_variable(ctx, co_float(ctx, 0.5), &options);
        w->optimizer = co_adam(ctx, NULL);
    }
}

/* A loss of chosen examples; an average changes before they are chosen. */
static co_value *
masked_step(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *y, *loss;

    x = co_add(ctx, x, co_float(ctx, 0.5 * co_replica_id(ctx)));
    co_tape_begin(ctx);
    y = co_square(ctx, co_tanh(ctx, co_mul(ctx, x, w->variables[0])));
    co_assign(ctx, w->variables[1], co_reduce_mean(ctx, y, CO_ALL_AXES, false));
    loss = co_reduce_sum(ctx, masked(ctx, y, above(ctx, x)), CO_ALL_AXES, false);
    loss = co_mul(ctx, loss, w->variables[1]);
    co_minimize(ctx, w->optimizer, loss);
    return loss;
}

CO_TEST(a_masked_loss_has_a_plan_for_each_number_of_rows, "FN-8 FN-9")
{
    co_function_stats stats = compare_masks(ctx, make_net, masked_step, 4, 3);

    CO_EXPECT_INT(stats.plans, 1 + 5); /* of x, and of the tape */
    CO_EXPECT_INT(stats.plan_runs, 2 * 15);
}

CO_TEST_WITH(replicas_choose_different_numbers_of_rows, "FN-8 FN-9 VAR-SOR-1", "cpus=2")
{
    world        eager = { .strategy = strategy_of_place(ctx, 2) }, captured = eager;
    co_function *f = co_function_of(ctx, masked_step, &captured, NULL);

    make_net(ctx, &eager);
    make_net(ctx, &captured);
    for (int i = 0; i < 8; ++i) {
        co_value *parts[2] = { some_above(ctx, i % 3), some_above(ctx, i % 2) };
        co_value *args = co_args(ctx, co_per_replica_value(ctx, parts, 2));

        expect_same(ctx, co_run(ctx, eager.strategy, masked_step, args, &eager),
                    co_run(ctx, eager.strategy, co_captured, args, f));
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 2 * 2 * 8);
}

/* Gradients of gradients, and two choices, the second of rows of the first. */
static co_value *
chosen_twice(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *first, *at, *some, *y, *g;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_square(ctx, x), x);
    first = co_reshape(ctx, co_where_index(ctx, above(ctx, x)), CO_SHAPE(-1));
    at = co_where_index(ctx, co_greater(ctx, first, co_cast(ctx, co_int(ctx, 4), CO_INT64)));
    some = co_gather(ctx, y, co_gather(ctx, first, co_reshape(ctx, at, CO_SHAPE(-1)), 0, 0), 0, 0);
    g = co_gradient(ctx, co_reduce_sum(ctx, some, CO_ALL_AXES, false), x);
    return co_args(ctx, g, co_gradient(ctx, co_mul(ctx, g, y), x), some);
}

CO_TEST(gradients_of_gradients_of_chosen_rows_are_planned, "FN-8")
{
    co_function_stats stats = compare_masks(ctx, make_none, chosen_twice, 3, 4);

    CO_EXPECT_MORE(stats.plans, 0);
    CO_EXPECT_INT(stats.plan_runs, 16);
}

/* --- what is not made ahead --- */

static co_value *
tape_decides(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *some;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_tanh(ctx, x), x);
    some = co_square(ctx, masked(ctx, y, co_greater(ctx, y, co_float(ctx, 0.7))));
    return co_args(ctx, some, co_gradient(ctx, some, x));
}

CO_TEST(a_mask_that_the_tape_records_is_right, "FN-8 FN-13")
{
    compare_masks(ctx, make_none, tape_decides, 4, 2);
}

static co_value *
variable_decides(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_square(ctx, x);
    co_assign_add(ctx, w->variables[0], y);
    y = masked(ctx, y, above(ctx, w->variables[0]));
    return co_args(ctx, y, co_gradient(ctx, y, x));
}

CO_TEST(a_mask_of_a_variable_sees_what_was_assigned_before, "FN-5 FN-8")
{
    compare_masks(ctx, make_net, variable_decides, 4, 2);
}

static co_value *
chance_decides(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *noise, *dice;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    noise = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(SIZE), 0, 1);
    dice = co_random_uniform(ctx, CO_INT32, CO_SHAPE(SIZE), 0, 3);
    y = masked(ctx, co_mul(ctx, co_square(ctx, x), noise), dice);
    return co_args(ctx, y, co_gradient(ctx, y, x));
}

CO_TEST(random_numbers_are_drawn_in_their_order, "FN-8 FN-11")
{
    compare_masks(ctx, make_none, chance_decides, 4, 2);
}

/* --- errors --- */

/* An assignment, a lookup and a division under a tape; each of the last two may fail. The divisor
 * is read by the host. */
static co_value *
may_fail(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *at = co_at(ctx, args, 1), *by = co_at(ctx, args, 2), *y;

    co_tape_begin(ctx);
    y = co_mul(ctx, x, w->variables[0]);
    co_assign_add(ctx, w->variables[0], y);
    y = co_mul(ctx, y, co_gather(ctx, w->variables[0], at, 0, 0));
    y = co_mul(ctx, y, co_gather(ctx, x, co_floordiv(ctx, co_add(ctx, at, at), by), 0, 0));
    return co_args(ctx, y, co_gradient(ctx, y, w->variables[0]));
}

CO_TEST(an_error_of_what_is_made_ahead_comes_at_its_place, "FN-10 GEN-ERR-4")
{
    static const int32_t cases[][2] = { { 3, 2 }, { 3, 0 }, { 99, 2 }, { 99, 0 }, { 5, 1 } };
    world                eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function         *f = co_function_of(ctx, may_fail, &captured, NULL);

    make_net(ctx, &eager);
    make_net(ctx, &captured);
    for (int i = 0; i < 15; ++i) {
        const int32_t *with = cases[i % 5];
        co_value      *args = co_args(ctx, some_above(ctx, i), co_scalar_int32(ctx, with[0]),
                                      co_scalar_int32(ctx, with[1]));
        co_value      *a = may_fail(ctx, args, &eager), *b;
        co_error_info  first = *co_error(ctx), second;

        co_clear(ctx);
        b = co_call(ctx, f, args);
        second = *co_error(ctx);
        co_clear(ctx);
        CO_EXPECT_CODE(second.code, first.code);
        CO_EXPECT_STR(second.message, first.message);
        CO_EXPECT_TRUE((a == NULL) == (i % 5 > 0 && i % 5 < 4));
        if (a == NULL)
            CO_EXPECT_INT(second.line, first.line);
        else
            expect_same(ctx, a, b);
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 6);
}

/* --- threads, and want of memory --- */

static co_value *
differentiated(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = masked(ctx, co_mul(ctx, co_tanh(ctx, x), x), above(ctx, x));
    return co_gradient(ctx, co_square(ctx, y), x);
}

static co_value *
up_to_three_above(co_context *ctx, int i)
{
    return some_above(ctx, i % 4);
}

CO_TEST(threads_cut_one_function, "THR-2 FN-1")
{
    calling_thread calls = { .function = co_function_of(ctx, differentiated, NULL, NULL),
                             .eager = differentiated,
                             .argument = up_to_three_above,
                             .times = 150 };

    call_from_two(ctx, &calls);
    CO_EXPECT_MORE(stats_of(ctx, calls.function).plan_runs, 290);
}

static bool
choose_thrice(co_context *ctx)
{
    world        eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function *f = co_function_of(ctx, masked_step, &captured, NULL);

    make_net(ctx, &eager);
    make_net(ctx, &captured);
    for (int i = 0; i < 3 && co_ok(ctx); ++i) {
        co_value *args = co_args(ctx, some_above(ctx, 2 * i % 3));
        co_value *a = masked_step(ctx, args, &eager), *b = co_call(ctx, f, args);

        expect_same_if_ok(ctx, &eager, &captured, a, b);
    }
    return co_ok(ctx);
}

CO_TEST_BARE(without_memory_for_a_cut_the_calls_are_made, "FN-10")
{
    expect_survival(choose_thrice);
}

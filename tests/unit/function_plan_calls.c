/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls with an effect under a tape: the plan makes them between its kernels. Each case compares
 * with the function as it is without capturing: results, variables and errors.
 */
#include "failing_requests.h"
#include "function_plans.h"

#include <cohort/runtime_checks.h>

/* Call a body `times` times, with and without capturing, in worlds of their own. */
static co_function_stats
compare_here(co_context *ctx, world_fn make, co_fn body, int times)
{
    world        eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function *f = co_function_of(ctx, body, &captured, NULL);

    make(ctx, &eager);
    make(ctx, &captured);
    for (int i = 0; i < times; ++i) {
        co_value *args = co_args(ctx, floats(ctx, (float)i - 1.4f, 6));

        expect_same(ctx, body(ctx, args, &eager), co_call(ctx, f, args));
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_OK(ctx);
    return stats_of(ctx, f);
}

/* --- batch norm --- */

static co_value *
variable_of(co_context *ctx, co_value *initial, co_synchronization sync)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.synchronization = sync;
    options.aggregation = sync == CO_SYNC_ON_READ ? CO_AGGREGATION_MEAN : CO_AGGREGATION_NONE;
    return co_variable(ctx, initial, &options);
}

/* Weights, the scale of the norm, and its moving averages, which replicas have of their own. */
static void
make_norm(co_context *ctx, world *w)
{
    CO_SCOPE(ctx, w->strategy) {
        w->variables[0] = variable_of(ctx, co_reshape(ctx, floats(ctx, -0.5f, 6), CO_SHAPE(2, 3)),
                                      CO_SYNC_AUTO);
        w->variables[1] = variable_of(ctx, floats(ctx, 1, 3), CO_SYNC_AUTO);
        w->variables[2] = variable_of(ctx, floats(ctx, 0, 3), CO_SYNC_ON_READ);
        w->variables[3] = variable_of(ctx, floats(ctx, 2, 3), CO_SYNC_ON_READ);
        w->optimizer = co_adam(ctx, NULL);
    }
}

/* As layers do it: the averages change where the norm is, in the middle of the forward pass. */
static co_value *
norm_step(co_context *ctx, co_value *args, void *user)
{
    const world          *w = user;
    co_batch_norm_options options = { sizeof(options), CO_AXES(0), 0.9, 0.001 };
    co_value             *x = co_at(ctx, args, 0), *y, *outs, *loss;

    x = co_reshape(ctx, x, CO_SHAPE(-1, 2));
    x = co_add(ctx, x, co_float(ctx, 0.1 * co_replica_id(ctx)));
    co_tape_begin(ctx);
    y = co_matmul(ctx, x, w->variables[0]);
    outs = co_batch_norm_train(ctx, y, w->variables[1], co_zeros_like(ctx, w->variables[1]),
                               w->variables[2], w->variables[3], &options);
    co_assign(ctx, w->variables[2], co_at(ctx, outs, 3));
    co_assign(ctx, w->variables[3], co_at(ctx, outs, 4));
    y = co_tanh(ctx, co_at(ctx, outs, 0));
    loss = co_reduce_mean(ctx, co_square(ctx, co_sub(ctx, y, co_float(ctx, 0.3))), CO_ALL_AXES,
                          false);
    co_minimize(ctx, w->optimizer, loss);
    return loss;
}

CO_TEST_WITH(a_training_step_with_batch_norm_is_one_plan, "FN-8 VAR-SOR-1", "cpus=2")
{
    for (int place = 0; place < NUM_PLACES; ++place) {
        int          n = place == 2 ? 2 : 1;
        world        eager = { .strategy = strategy_of_place(ctx, place) }, captured = eager;
        co_function *f = co_function_of(ctx, norm_step, &captured, NULL);

        make_norm(ctx, &eager);
        make_norm(ctx, &captured);
        for (int i = 0; i < 5; ++i) {
            co_value *args = co_args(ctx, floats(ctx, (float)i, 8));

            expect_same(ctx, co_run(ctx, eager.strategy, norm_step, args, &eager),
                        co_run(ctx, eager.strategy, co_captured, args, f));
            expect_same_variables(ctx, &eager, &captured);
        }
        CO_EXPECT_INT(stats_of(ctx, f).plans, n);
        CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 5 * n);
    }
}

CO_TEST(another_batch_size_is_another_plan_with_the_same_calls, "FN-9")
{
    world               eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;

    options.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1)));
    f = co_function_of(ctx, norm_step, &captured, &options);
    make_norm(ctx, &eager);
    make_norm(ctx, &captured);
    for (int i = 0; i < 12; ++i) {
        co_value *args = co_args(ctx, floats(ctx, (float)i, 2 * (i % 4)));

        expect_same(ctx, norm_step(ctx, args, &eager), co_call(ctx, f, args));
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_INT(stats_of(ctx, f).captures, 1);
    CO_EXPECT_INT(stats_of(ctx, f).plans, 4);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 12);
}

/* --- variables that change under a tape --- */

static void
make_two(co_context *ctx, world *w)
{
    w->variables[0] = co_variable(ctx, floats(ctx, 0.25f, 6), NULL);
    w->variables[1] = co_variable(ctx, floats(ctx, -2, 6), NULL);
}

/* Each use of a variable is of what it is at that place; their gradients add up. */
static co_value *
uses_between(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *v = w->variables[0], *y, *g;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_mul(ctx, x, v), w->variables[1]);
    co_assign(ctx, v, co_tanh(ctx, y));
    y = co_add(ctx, y, co_mul(ctx, v, v));
    co_assign_add(ctx, v, x);
    co_assign_sub(ctx, w->variables[1], co_mul(ctx, v, x));
    y = co_mul(ctx, co_add(ctx, y, v), w->variables[1]);
    g = co_gradient(ctx, y, co_args(ctx, x, v, w->variables[1]));
    return co_args(ctx, y, g, co_mul(ctx, v, w->variables[1]));
}

CO_TEST(reads_under_a_tape_see_what_was_assigned_before, "FN-5 FN-8")
{
    co_function_stats stats = compare_here(ctx, make_two, uses_between, 4);

    CO_EXPECT_INT(stats.plans, 1);
    CO_EXPECT_INT(stats.plan_runs, 4);
}

/* What follows a product may not move up to it over an assignment to what it reads. */
static co_value *
product_then_assigned(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *v = w->variables[0], *y, *g;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_matmul(ctx, co_reshape(ctx, x, CO_SHAPE(6, 1)),
                  co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 1)));
    y = co_reshape(ctx, y, CO_SHAPE(6));
    co_assign_add(ctx, v, co_tanh(ctx, x));
    y = co_mul(ctx, y, v);
    co_assign_add(ctx, v, y);
    y = co_add(ctx, y, v);
    g = co_gradient(ctx, y, co_args(ctx, x, v));
    return co_args(ctx, y, g);
}

CO_TEST(kernels_keep_their_side_of_a_call, "FN-5 FN-8")
{
    co_function_stats stats = compare_here(ctx, make_two, product_then_assigned, 4);

    CO_EXPECT_INT(stats.plans, 1);
    CO_EXPECT_INT(stats.plan_runs, 4);
}

/* The result of an assignment is a value of the run; so is what it was given. */
static co_value *
returns_assigned(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *y, *seen, *g;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_square(ctx, x);
    seen = co_assign(ctx, w->variables[0], y);
    co_assign(ctx, w->variables[1], x);
    g = co_gradient(ctx, co_mul(ctx, y, x), x);
    return co_args(ctx, seen, y, g, co_add(ctx, seen, x));
}

CO_TEST(what_was_assigned_under_a_tape_is_used_after_it, "FN-5 FN-7")
{
    co_function_stats stats = compare_here(ctx, make_two, returns_assigned, 4);

    CO_EXPECT_INT(stats.plans, 2); /* the sum, which uses the result of a call, is behind it */
    CO_EXPECT_INT(stats.plan_runs, 8);
}

/* Gradients pass the result of an assignment, to the variable: only the calls do that. */
static co_value *
differentiates_assigned(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *seen, *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    seen = co_assign_add(ctx, w->variables[0], x);
    y = co_mul(ctx, seen, x);
    return co_args(ctx, y, co_gradient(ctx, y, co_args(ctx, x, w->variables[0])));
}

CO_TEST(a_result_of_a_call_that_is_differentiated_has_no_plan, "FN-8")
{
    CO_EXPECT_INT(compare_here(ctx, make_two, differentiates_assigned, 3).plans, 0);
}

static co_value *
under_two_tapes(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *y, *first;

    co_tape_begin_persistent(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_square(ctx, x), w->variables[0]);
    co_assign(ctx, w->variables[0], co_sub(ctx, y, x));
    first = co_gradient(ctx, co_mul(ctx, y, w->variables[0]), x);
    co_assign(ctx, w->variables[1], first);
    y = co_gradient(ctx, co_mul(ctx, first, w->variables[1]), co_args(ctx, x, w->variables[1]));
    co_tape_end(ctx);
    return co_args(ctx, y, first);
}

CO_TEST(calls_between_gradients_of_gradients_are_planned, "FN-8")
{
    co_function_stats stats = compare_here(ctx, make_two, under_two_tapes, 4);

    CO_EXPECT_INT(stats.plans, 1);
    CO_EXPECT_INT(stats.plan_runs, 4);
}

/* A variable that is an argument, and slices of rows. */
static co_value *
changes_rows(co_context *ctx, co_value *args, void *user)
{
    const int64_t rows[2] = { 4, 1 }, two = 2;
    co_value     *x = co_at(ctx, args, 0), *v = co_at(ctx, args, 1), *y, *half;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, x, v);
    half = co_slice(ctx, y, &two, &two, 1);
    co_scatter_add(ctx, v, co_slices(ctx, half, co_tensor(ctx, CO_INT64, &two, 1, rows), NULL));
    return co_gradient(ctx, co_mul(ctx, y, v), co_args(ctx, x, v));
}

CO_TEST(rows_of_an_argument_are_changed_under_a_tape, "FN-5 FN-7")
{
    co_value    *v = co_variable(ctx, floats(ctx, 1, 6), NULL);
    co_value    *w = co_variable(ctx, floats(ctx, 1, 6), NULL);
    co_function *f = co_function_of(ctx, changes_rows, NULL, NULL);

    for (int i = 0; i < 4; ++i) {
        co_value *x = floats(ctx, (float)i, 6);

        expect_same(ctx, changes_rows(ctx, co_args(ctx, x, v), NULL),
                    co_call(ctx, f, co_args(ctx, x, w)));
        expect_same(ctx, co_variable_read(ctx, v), co_variable_read(ctx, w));
    }
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 4);
}

/* --- errors --- */

/* Two assignments, and a lookup that may fail before, between or after them. */
static co_value *
may_fail(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *at = co_at(ctx, args, 1), *y;

    co_tape_begin(ctx);
    y = co_mul(ctx, x, co_gather(ctx, w->variables[1], co_at(ctx, at, 0), 0, 0));
    co_assign_add(ctx, w->variables[0], y);
    y = co_mul(ctx, y, co_gather(ctx, w->variables[0], co_at(ctx, at, 1), 0, 0));
    co_assign(ctx, w->variables[1], y);
    co_assert(ctx, co_less(ctx, co_at(ctx, at, 2), co_int(ctx, 6)), "it is in range");
    y = co_mul(ctx, y, co_gather(ctx, w->variables[1], co_at(ctx, at, 2), 0, 0));
    return co_gradient(ctx, y, co_args(ctx, w->variables[0], w->variables[1]));
}

static co_value *
places(co_context *ctx, int bad, int32_t wrong)
{
    co_value *at[3];

    for (int i = 0; i < 3; ++i)
        at[i] = co_scalar_int32(ctx, i == bad ? wrong : i);
    return co_list(ctx, at, 3);
}

CO_TEST(an_error_between_calls_of_a_plan_leaves_what_eager_leaves, "FN-10 GEN-ERR-4")
{
    world        eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function *f = co_function_of(ctx, may_fail, &captured, NULL);

    make_two(ctx, &eager);
    make_two(ctx, &captured);
    for (int i = 0; i < 12; ++i) {
        co_value     *args = co_args(ctx, floats(ctx, (float)i, 6), places(ctx, i % 4, 9)), *a, *b;
        co_error_info first, second;

        a = may_fail(ctx, args, &eager);
        first = *co_error(ctx);
        co_clear(ctx);
        b = co_call(ctx, f, args);
        second = *co_error(ctx);
        co_clear(ctx);
        CO_EXPECT_TRUE((a == NULL) == (i % 4 < 3));
        CO_EXPECT_CODE(second.code, first.code);
        CO_EXPECT_STR(second.message, first.message);
        if (a == NULL) {
            CO_EXPECT_STR(second.call, first.call);
            CO_EXPECT_INT(second.line, first.line);
        } else {
            expect_same(ctx, a, b);
        }
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_INT(stats_of(ctx, f).plans, 1);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 3);
}

/* --- replicas --- */

/* A sum over replicas that is only told, and a mirrored variable that all replicas change. */
static co_value *
tells_total(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *v = w->variables[0], *loss, *total, *g;

    x = co_add(ctx, x, co_float(ctx, 0.5 * co_replica_id(ctx)));
    co_tape_begin(ctx);
    loss = co_reduce_sum(ctx, co_square(ctx, co_mul(ctx, x, v)), CO_ALL_AXES, false);
    total = co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, &loss, 1));
    co_assign_add(ctx, w->variables[1], co_mul(ctx, x, loss));
    co_print(ctx, "loss", co_args(ctx, loss, w->variables[1]));
    g = co_gradient(ctx, co_mul(ctx, loss, w->variables[1]), co_args(ctx, v, w->variables[1]));
    return co_args(ctx, g, total);
}

/* The other way to normalise: gradients pass the sum, and are sums themselves. */
static co_value *
passes_total(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *v = w->variables[0], *y, *mean;

    x = co_add(ctx, x, co_float(ctx, 0.5 * co_replica_id(ctx)));
    co_tape_begin(ctx);
    y = co_mul(ctx, x, v);
    mean = co_all_reduce(ctx, CO_REDUCE_MEAN, y);
    co_assign(ctx, w->variables[1], co_stop_gradient(ctx, mean));
    y = co_square(ctx, co_sub(ctx, y, mean));
    return co_args(ctx, y, co_gradient(ctx, y, v));
}

static void
make_mirrored(co_context *ctx, world *w)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.aggregation = CO_AGGREGATION_MEAN;
    CO_SCOPE(ctx, w->strategy) {
        w->variables[0] = co_variable(ctx, floats(ctx, 0.25f, 3), &options);
        w->variables[1] = co_variable(ctx, floats(ctx, -2, 3), &options);
    }
}

static co_function_stats
compare_runs(co_context *ctx, co_fn body)
{
    world        eager = { .strategy = strategy_of_place(ctx, 2) }, captured = eager;
    co_function *f = co_function_of(ctx, body, &captured, NULL);

    make_mirrored(ctx, &eager);
    make_mirrored(ctx, &captured);
    for (int i = 0; i < 6; ++i) {
        co_value *args = co_args(ctx, floats(ctx, 0.1f * (float)i, 3));

        expect_same(ctx, co_run(ctx, eager.strategy, body, args, &eager),
                    co_run(ctx, eager.strategy, co_captured, args, f));
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_OK(ctx);
    return stats_of(ctx, f);
}

CO_TEST_WITH(replicas_meet_in_the_calls_of_their_plans, "FN-8 FN-9 RC-AR-1 VAR-MIR-3", "cpus=2")
{
    co_function_stats stats = compare_runs(ctx, tells_total);

    CO_EXPECT_INT(stats.plans, 2);
    CO_EXPECT_INT(stats.plan_runs, 12);
}

CO_TEST_WITH(gradients_of_collectives_are_those_of_the_calls, "FN-8 RC-AR-9", "cpus=2")
{
    compare_runs(ctx, passes_total);
}

/* One replica fails between two calls that all of them make: all end, as they do without plans. */
static co_value *
fails_alone(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0), *at = co_at(ctx, args, 1), *y;

    co_tape_begin(ctx);
    y = co_mul(ctx, x, w->variables[0]);
    co_assign_add(ctx, w->variables[1], y);
    at = co_mul(ctx, at, co_scalar_int32(ctx, co_replica_id(ctx)));
    y = co_mul(ctx, y, co_gather(ctx, w->variables[1], at, 0, 0));
    co_assign_add(ctx, w->variables[1], y);
    return co_gradient(ctx, y, w->variables[0]);
}

CO_TEST_WITH(a_replica_that_fails_in_its_plan_ends_the_run, "FN-10 S-RUN-8", "cpus=2")
{
    world        eager = { .strategy = strategy_of_place(ctx, 2) }, captured = eager;
    co_function *f = co_function_of(ctx, fails_alone, &captured, NULL);

    make_mirrored(ctx, &eager);
    make_mirrored(ctx, &captured);
    for (int i = 0; i < 6; ++i) {
        co_value *at = co_scalar_int32(ctx, i % 3 == 2 ? 7 : 1);
        co_value *args = co_args(ctx, floats(ctx, 0.1f * (float)i, 3), at), *a, *b;
        co_code   first, second;

        a = co_run(ctx, eager.strategy, fails_alone, args, &eager);
        first = co_error(ctx)->code;
        co_clear(ctx);
        b = co_run(ctx, eager.strategy, co_captured, args, f);
        second = co_error(ctx)->code;
        co_clear(ctx);
        CO_EXPECT_CODE(second, first);
        CO_EXPECT_TRUE((a == NULL) == (i % 3 == 2));
        if (a != NULL)
            expect_same(ctx, a, b);
        expect_same_variables(ctx, &eager, &captured);
    }
    CO_EXPECT_INT(stats_of(ctx, f).plans, 2);
}

/* --- threads --- */

/* Counts its calls, whichever thread makes them. */
static co_value *
counts_calls(co_context *ctx, co_value *args, void *count)
{
    co_value *x = co_at(ctx, args, 0), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_tanh(ctx, x), x);
    co_assign_add(ctx, count, co_reduce_max(ctx, co_ones_like(ctx, x), CO_ALL_AXES, false));
    return co_gradient(ctx, co_mul(ctx, y, y), x);
}

static co_value *
counts_none(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_tanh(ctx, x), x);
    return co_gradient(ctx, co_mul(ctx, y, y), x);
}

static co_value *
of_three_sizes(co_context *ctx, int i)
{
    return floats(ctx, (float)(i % 7), 2 + i % 3);
}

CO_TEST(threads_run_plans_with_calls, "THR-2 FN-1")
{
    co_value      *count = co_variable(ctx, co_float(ctx, 0), NULL);
    calling_thread calls = { .function = co_function_of(ctx, counts_calls, count, NULL),
                             .eager = counts_none,
                             .argument = of_three_sizes,
                             .times = 200 };

    call_from_two(ctx, &calls);
    CO_EXPECT_CLOSE(co_item_float(ctx, count), 400, 0);
    CO_EXPECT_INT(stats_of(ctx, calls.function).plan_runs, 400);
}

/* --- want of memory --- */

/* Three steps with batch norm; whether all were right. */
static bool
train_thrice(co_context *ctx)
{
    world        eager = { .strategy = co_default_strategy(ctx) }, captured = eager;
    co_function *f = co_function_of(ctx, norm_step, &captured, NULL);

    make_norm(ctx, &eager);
    make_norm(ctx, &captured);
    for (int i = 0; i < 3 && co_ok(ctx); ++i) {
        co_value *args = co_args(ctx, floats(ctx, (float)i, 8));
        co_value *a = norm_step(ctx, args, &eager), *b = co_call(ctx, f, args);

        expect_same_if_ok(ctx, &eager, &captured, a, b);
    }
    return co_ok(ctx);
}

CO_TEST_BARE(without_memory_for_a_plan_with_calls_the_calls_are_made, "FN-10")
{
    expect_survival(train_thrice);
}

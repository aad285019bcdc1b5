/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables, datasets and iterators that a captured function gets as arguments, and knows by other
 * ways too: what it does with an argument is done with that of each call, everything else with the
 * one that it was captured with.
 */
#include "function_worlds.h"

static int64_t
captures(co_context *ctx, const co_function *f)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    co_function_get_stats(ctx, f, &stats);
    return stats.captures;
}

/* --- variables --- */

/* What a function does with its argument and with another variable. */
static co_value *
less_other(co_context *ctx, co_value *args, void *user)
{
    return co_sub(ctx, co_at(ctx, args, 0), user);
}

static co_value *
moves_argument(co_context *ctx, co_value *args, void *user)
{
    co_assign_add(ctx, co_at(ctx, args, 0), floats(ctx, 1, 2));
    return co_sub(ctx, co_variable_read(ctx, co_at(ctx, args, 0)), user);
}

static co_value *
both_arguments(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_sub(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
calls_with_both(co_context *ctx, co_value *args, void *user)
{
    return co_call(ctx, co_function_of(ctx, both_arguments, NULL, NULL),
                   co_args(ctx, co_at(ctx, args, 0), user));
}

typedef struct pair {
    co_value *first, *second;
} pair;

static co_value *
difference(co_context *ctx, co_value *args, void *user)
{
    const pair *p = user;

    (void)args;
    return co_sub(ctx, p->first, p->second);
}

static co_value *
sum(co_context *ctx, co_value *args, void *user)
{
    const pair *p = user;

    (void)args;
    return co_add(ctx, p->first, p->second);
}

static co_value *
branches(co_context *ctx, co_value *args, void *user)
{
    pair      p = { co_at(ctx, args, 0), user };
    co_value *first = co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);

    return co_cond(ctx, co_greater(ctx, first, co_float(ctx, 0)), difference, sum, NULL, &p);
}

static co_value *
gradient_for_argument(co_context *ctx, co_value *args, void *user)
{
    co_value *v = co_at(ctx, args, 0);

    co_tape_begin(ctx); /* which co_gradient ends */
    return co_gradient(ctx, co_mul(ctx, v, user), v);
}

CO_TEST(a_variable_is_an_argument_only_where_it_is_used_as_one, "FN-2 FN-7")
{
    static const co_fn all[] = { less_other, moves_argument, calls_with_both, branches,
                                 gradient_for_argument };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
        co_value    *w = co_variable(ctx, floats(ctx, 5, 2), NULL);
        co_value    *u = co_variable(ctx, floats(ctx, 1, 2), NULL);
        co_value    *w2 = co_variable(ctx, floats(ctx, 5, 2), NULL);
        co_value    *u2 = co_variable(ctx, floats(ctx, 1, 2), NULL);
        co_function *f = co_function_of(ctx, all[i], w, NULL);

        for (int k = 0; k < 3; ++k) {
            expect_same(ctx, all[i](ctx, co_args(ctx, w2), w2), co_call(ctx, f, co_args(ctx, w)));
            expect_same(ctx, all[i](ctx, co_args(ctx, u2), w2), co_call(ctx, f, co_args(ctx, u)));
        }
        expect_same(ctx, co_variable_read(ctx, w2), co_variable_read(ctx, w));
        expect_same(ctx, co_variable_read(ctx, u2), co_variable_read(ctx, u));
        CO_EXPECT_INT(captures(ctx, f), 1);
    }
}

static co_value *
returns_both(co_context *ctx, co_value *args, void *user)
{
    return co_args(ctx, co_at(ctx, args, 0), user, co_at(ctx, args, 0));
}

CO_TEST(a_function_returns_the_variable_that_a_call_brings, "FN-7")
{
    co_value    *w = co_variable(ctx, floats(ctx, 5, 2), NULL);
    co_value    *u = co_variable(ctx, floats(ctx, 1, 2), NULL), *seen;
    co_function *f = co_function_of(ctx, returns_both, w, NULL);

    seen = co_call(ctx, f, co_args(ctx, w));
    CO_EXPECT_TRUE(co_at(ctx, seen, 0) == w && co_at(ctx, seen, 1) == w);
    seen = co_call(ctx, f, co_args(ctx, u));
    CO_EXPECT_TRUE(co_at(ctx, seen, 0) == u && co_at(ctx, seen, 1) == w);
    CO_EXPECT_TRUE(co_at(ctx, seen, 2) == u);
    CO_EXPECT_INT(captures(ctx, f), 1);
}

static co_value *
run_less_other(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;

    return co_local_results(ctx, w->strategy,
                            co_run(ctx, w->strategy, less_other, args, w->variables[0]));
}

static co_value *
train_argument(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *v = co_at(ctx, args, 0);

    co_tape_begin(ctx); /* which co_minimize ends */
    co_minimize(ctx, w->optimizer, co_reduce_sum(ctx, co_square(ctx, v), CO_ALL_AXES, false));
    return co_variable_read(ctx, v);
}

static co_value *
run_training(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;

    return co_local_results(ctx, w->strategy, co_run(ctx, w->strategy, train_argument, args, user));
}

CO_TEST_WITH(variables_of_replicas_are_arguments, "FN-2 FN-7 FN-9", "cpus=2")
{
    static const co_fn all[] = { run_less_other, run_training };

    for (int place = 0; place < NUM_PLACES; ++place)
        for (int i = 0; i < 2; ++i) {
            world        eager = { .strategy = strategy_of_place(ctx, place) }, captured = eager;
            co_function *f = co_function_of(ctx, all[i], &captured, NULL);

            CO_SCOPE(ctx, eager.strategy)
                for (int k = 0; k < 2; ++k) {
                    eager.variables[k] = co_variable(ctx, floats(ctx, (float)k + 2, 2), NULL);
                    captured.variables[k] = co_variable(ctx, floats(ctx, (float)k + 2, 2), NULL);
                }
            eager.optimizer = co_sgd(ctx, NULL);
            captured.optimizer = co_sgd(ctx, NULL);
            for (int k = 0; k < 4; ++k)
                expect_same(ctx, all[i](ctx, co_args(ctx, eager.variables[k % 2]), &eager),
                            co_call(ctx, f, co_args(ctx, captured.variables[k % 2])));
            expect_same_variables(ctx, &eager, &captured);
            CO_EXPECT_INT(captures(ctx, f), 1);
        }
}

/* --- iterators and datasets --- */

static co_value *
less_next(co_context *ctx, co_value *args, void *user)
{
    co_value *first = co_get_next(ctx, co_value_iterator(ctx, co_at(ctx, args, 0)));

    return co_sub(ctx, first, co_get_next(ctx, user));
}

CO_TEST(an_iterator_is_an_argument_only_where_it_is_used_as_one, "FN-2 FN-7")
{
    co_iterator *it = co_iterate(ctx, co_dataset_range(ctx, 0, 9, 1));
    co_iterator *other = co_iterate(ctx, co_dataset_range(ctx, 10, 19, 1));
    co_function *f = co_function_of(ctx, less_next, it, NULL);

    /* 0 - 1, then 10 - 2 */
    CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, co_iterator_value(ctx, it)))), -1);
    CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, co_iterator_value(ctx, other)))),
                  8);
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_OK(ctx);
}

static co_value *
takes_next(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_get_next(ctx, co_value_iterator(ctx, co_at(ctx, args, 0)));
}

static co_value *
gives_new_iterator(co_context *ctx, co_value *args, void *user)
{
    co_iterator *it = co_iterate(ctx, co_value_dataset(ctx, co_at(ctx, args, 0)));
    co_value    *value = co_iterator_value(ctx, it);
    co_value    *first = co_call(ctx, user, co_args(ctx, value));

    return co_sub(ctx, first, co_mul(ctx, co_get_next(ctx, it), co_int(ctx, 10)));
}

CO_TEST(an_iterator_made_in_a_function_is_an_argument_of_another, "FN-7 FN-9")
{
    co_function *inner = co_function_of(ctx, takes_next, NULL, NULL);
    co_function *f = co_function_of(ctx, gives_new_iterator, inner, NULL);

    for (int i = 0; i < 3; ++i) {
        co_value *d = co_dataset_value(ctx, co_dataset_range(ctx, i, i + 3, 1));

        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, d))), i - 10 * (i + 1));
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_INT(captures(ctx, inner), 1);
}

static co_value *
first_of(co_context *ctx, co_dataset *dataset)
{
    return co_get_next(ctx, co_iterate(ctx, dataset));
}

static co_value *
less_first(co_context *ctx, co_value *args, void *user)
{
    return co_sub(ctx, first_of(ctx, co_value_dataset(ctx, co_at(ctx, args, 0))),
                  first_of(ctx, user));
}

/* Of a stage that is made of the other dataset, not of the argument. */
static co_value *
less_second(co_context *ctx, co_value *args, void *user)
{
    return co_sub(ctx, first_of(ctx, co_value_dataset(ctx, co_at(ctx, args, 0))),
                  first_of(ctx, co_dataset_skip(ctx, user, 1)));
}

CO_TEST(a_dataset_is_an_argument_only_where_it_is_used_as_one, "FN-2 FN-7")
{
    co_dataset  *d = co_dataset_range(ctx, 3, 6, 1), *e = co_dataset_range(ctx, 9, 12, 1);
    co_function *f = co_function_of(ctx, less_first, d, NULL);
    co_function *g = co_function_of(ctx, less_second, d, NULL);

    for (int i = 0; i < 2; ++i) {
        co_value *of_d = co_args(ctx, co_dataset_value(ctx, d));
        co_value *of_e = co_args(ctx, co_dataset_value(ctx, e));

        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, of_d)), 0);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, of_e)), 6);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, g, of_d)), -1);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, g, of_e)), 5);
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_INT(captures(ctx, g), 1);
    CO_EXPECT_OK(ctx);
}

static co_value *
sum_of_replicas(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static co_value *
add_step(co_context *ctx, co_value *args, void *user)
{
    co_value *sums = co_run(ctx, user, sum_of_replicas, co_args(ctx, co_at(ctx, args, 0)), NULL);

    return co_args(ctx, co_add(ctx, co_at(ctx, args, 1),
                               co_reduce(ctx, user, CO_REDUCE_SUM, sums, CO_ALL_AXES)));
}

typedef struct inputs {
    co_strategy *strategy;
    co_dataset  *other;
} inputs;

static co_value *
total(co_context *ctx, const inputs *in, co_value *dataset)
{
    co_value *sums = co_for_each(ctx, dataset, co_args(ctx, co_scalar_int64(ctx, 0)), add_step,
                                 in->strategy);

    return sums != NULL ? co_at(ctx, sums, 0) : NULL;
}

static co_value *
less_total(co_context *ctx, co_value *args, void *user)
{
    const inputs *in = user;
    co_value     *first = total(ctx, in, co_at(ctx, args, 0));

    return co_sub(ctx, first, total(ctx, in, co_dataset_value(ctx, in->other)));
}

CO_TEST_WITH(distributed_datasets_are_arguments, "FN-2 FN-7 FN-9", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        co_strategy *s = strategy_of_place(ctx, i);
        co_dataset  *d = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 8, 1), 4, false);
        co_dataset  *e = co_dataset_batch(ctx, co_dataset_range(ctx, 10, 18, 1), 4, false);
        inputs       in = { s, co_distribute_dataset(ctx, s, d, NULL) };
        co_value    *other = co_dataset_value(ctx, co_distribute_dataset(ctx, s, e, NULL));
        co_function *f = co_function_of(ctx, less_total, &in, NULL);

        CO_EXPECT_INT(
            co_item_int(ctx, co_call(ctx, f, co_args(ctx, co_dataset_value(ctx, in.other)))), 0);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, other))), 80);
        CO_EXPECT_INT(captures(ctx, f), 1);
        CO_EXPECT_OK(ctx);
    }
}

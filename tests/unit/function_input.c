/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets and iterators in captured functions: as arguments, made in the function, and what
 * co_for_each loops over.
 */
#include "function_worlds.h"

static int64_t
captures(co_context *ctx, const co_function *f)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    co_function_get_stats(ctx, f, &stats);
    return stats.captures;
}

static co_value *
add_element(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);

    (void)user;
    return co_args(ctx, co_add(ctx, co_at(ctx, args, 1), sum),
                   co_add(ctx, co_at(ctx, args, 2), co_int(ctx, 1)));
}

/* The sum of the elements, and their number. */
static co_value *
sum_up(co_context *ctx, co_value *args, void *user)
{
    return co_for_each(ctx, co_at(ctx, args, 0),
                       co_args(ctx, co_scalar_int64(ctx, 0), co_scalar_int32(ctx, 0)), add_element,
                       user);
}

static void
expect_sums(co_context *ctx, co_value *result, int64_t sum, int64_t count)
{
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(result != NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, result, 0)), sum);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, result, 1)), count);
}

static co_dataset *
batches(co_context *ctx, int64_t limit, int64_t size, bool drop)
{
    return co_dataset_batch(ctx, co_dataset_range(ctx, 0, limit, 1), size, drop);
}

CO_TEST(a_loop_over_a_dataset_reads_it_from_the_beginning, "FN-7 FN-11")
{
    co_value    *d = co_dataset_value(ctx, batches(ctx, 7, 3, false));
    co_function *f = co_function_of(ctx, sum_up, NULL, NULL);

    expect_sums(ctx, sum_up(ctx, co_args(ctx, d), NULL), 21, 3);
    for (int i = 0; i < 2; ++i)
        expect_sums(ctx, co_call(ctx, f, co_args(ctx, d)), 21, 3);
    expect_sums(ctx,
                co_call(ctx, f, co_args(ctx, co_dataset_value(ctx, batches(ctx, 0, 3, false)))), 0,
                0);
    CO_EXPECT_INT(captures(ctx, f), 1);
}

CO_TEST(datasets_with_elements_of_the_same_types_share_a_program, "FN-2")
{
    co_function *f = co_function_of(ctx, sum_up, NULL, NULL);

    expect_sums(ctx,
                co_call(ctx, f, co_args(ctx, co_dataset_value(ctx, batches(ctx, 6, 4, false)))), 15,
                2);
    expect_sums(ctx, co_call(ctx, f, co_args(ctx, co_dataset_value(ctx, batches(ctx, 6, 2, true)))),
                15, 3);
    CO_EXPECT_INT(captures(ctx, f), 1);
    expect_sums(
        ctx, co_call(ctx, f, co_args(ctx, co_dataset_value(ctx, co_dataset_range(ctx, 0, 4, 1)))),
        6, 4);
    CO_EXPECT_INT(captures(ctx, f), 2); /* scalars */
}

CO_TEST(a_loop_over_an_iterator_takes_what_is_left, "FN-7")
{
    co_iterator *it = co_iterate(ctx, co_dataset_range(ctx, 0, 6, 1));
    co_iterator *other = co_iterate(ctx, co_dataset_range(ctx, 0, 3, 1));
    co_function *f = co_function_of(ctx, sum_up, NULL, NULL);

    CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, it)), 0);
    expect_sums(ctx, co_call(ctx, f, co_args(ctx, co_iterator_value(ctx, it))), 15, 5);
    expect_sums(ctx, co_call(ctx, f, co_args(ctx, co_iterator_value(ctx, it))), 0, 0);
    expect_sums(ctx, co_call(ctx, f, co_args(ctx, co_iterator_value(ctx, other))), 3, 3);
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_OK(ctx);
}

static co_value *
next_two(co_context *ctx, co_value *args, void *user)
{
    co_iterator *it = co_value_iterator(ctx, co_at(ctx, args, 0));
    co_iterator *other = co_value_iterator(ctx, co_at(ctx, args, 1));

    (void)user;
    return co_args(ctx, co_get_next(ctx, it), co_neg(ctx, co_get_next(ctx, other)));
}

CO_TEST(a_program_reads_the_iterators_of_its_call, "FN-2 FN-7")
{
    co_dataset  *d = co_dataset_range(ctx, 3, 9, 1);
    co_value    *a = co_iterator_value(ctx, co_iterate(ctx, d));
    co_value    *b = co_iterator_value(ctx, co_iterate(ctx, d)), *seen;
    co_function *f = co_function_of(ctx, next_two, NULL, NULL);

    seen = co_call(ctx, f, co_args(ctx, a, b));
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 0)), 3);
    seen = co_call(ctx, f, co_args(ctx, b, a));
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 1)), -4);
    CO_EXPECT_INT(captures(ctx, f), 1);
    seen = co_call(ctx, f, co_args(ctx, a, a)); /* one iterator twice is another type */
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 0)), 5);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 1)), -6);
    CO_EXPECT_INT(captures(ctx, f), 2);
    CO_EXPECT_OK(ctx);
    for (int i = 0; i < 3; ++i)
        co_call(ctx, f, co_args(ctx, a, b));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
}

/* A loop in a loop: x + the elements of the other dataset. */
typedef struct two_datasets {
    co_value *inner;
} two_datasets;

static co_value *
add_with(co_context *ctx, co_value *args, void *user)
{
    co_value *x = user;

    return co_args(ctx, co_add(ctx, co_at(ctx, args, 1),
                               co_add(ctx, co_mul(ctx, x, co_int(ctx, 10)), co_at(ctx, args, 0))));
}

static co_value *
inner_loop(co_context *ctx, co_value *args, void *user)
{
    return co_for_each(ctx, ((two_datasets *)user)->inner, co_args(ctx, co_at(ctx, args, 1)),
                       add_with, co_at(ctx, args, 0));
}

static co_value *
nested_loops(co_context *ctx, co_value *args, void *user)
{
    two_datasets two = { co_at(ctx, args, 1) };

    (void)user;
    return co_for_each(ctx, co_at(ctx, args, 0), co_args(ctx, co_scalar_int64(ctx, 0)), inner_loop,
                       &two);
}

CO_TEST(a_dataset_argument_is_read_in_a_loop_inside_a_loop, "FN-11")
{
    co_value    *three = co_dataset_value(ctx, co_dataset_range(ctx, 0, 3, 1));
    co_value    *two = co_dataset_value(ctx, co_dataset_range(ctx, 0, 2, 1));
    co_function *f = co_function_of(ctx, nested_loops, NULL, NULL);

    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_call(ctx, f, co_args(ctx, three, two)), 0)), 63);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_call(ctx, f, co_args(ctx, two, three)), 0)), 36);
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_OK(ctx);
}

static co_value *
first_of_new(co_context *ctx, co_value *args, void *user)
{
    co_iterator *it = co_iterate(ctx, co_value_dataset(ctx, co_at(ctx, args, 0)));
    co_value    *first = co_get_next(ctx, it);

    (void)user;
    return co_sub(ctx, first, co_get_next(ctx, it));
}

CO_TEST(an_iterator_made_in_a_function_begins_anew_in_each_call, "FN-7")
{
    co_function *f = co_function_of(ctx, first_of_new, NULL, NULL);
    co_value    *d = co_dataset_value(ctx, co_dataset_range(ctx, 3, 6, 1));
    co_value    *e = co_dataset_value(ctx, co_dataset_range(ctx, 0, 6, 4));

    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, d))), -1);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, e))), -4);
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_OK(ctx);
}

static co_value *
call_inner(co_context *ctx, co_value *args, void *user)
{
    return co_add(ctx, co_call(ctx, user, args), co_int(ctx, 100));
}

CO_TEST(a_function_in_a_function_takes_datasets_and_iterators, "FN-1 FN-7")
{
    co_function *inner = co_function_of(ctx, first_of_new, NULL, NULL);
    co_function *f = co_function_of(ctx, call_inner, inner, NULL);
    co_value    *d = co_dataset_value(ctx, co_dataset_range(ctx, 3, 6, 1));
    co_value    *e = co_dataset_value(ctx, co_dataset_range(ctx, 0, 6, 4));

    CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, d))), 99);
    CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, e))), 96);
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_INT(captures(ctx, inner), 1);
}

static co_value *
sum_of_batches(co_context *ctx, co_value *args, void *user)
{
    co_dataset *d = co_dataset_batch(ctx, co_value_dataset(ctx, co_at(ctx, args, 0)), 2, false);

    return sum_up(ctx, co_args(ctx, co_dataset_value(ctx, d)), user);
}

/* The program holds a dataset that was made of the argument, so it serves that argument alone. */
CO_TEST(a_dataset_made_of_an_argument_ties_the_program_to_it, "FN-7")
{
    co_function *f = co_function_of(ctx, sum_of_batches, NULL, NULL);
    co_value    *d = co_dataset_value(ctx, co_dataset_range(ctx, 0, 5, 1));
    co_value    *e = co_dataset_value(ctx, co_dataset_range(ctx, 0, 4, 1));

    for (int i = 0; i < 2; ++i) {
        expect_sums(ctx, co_call(ctx, f, co_args(ctx, d)), 10, 3);
        expect_sums(ctx, co_call(ctx, f, co_args(ctx, e)), 6, 2);
    }
    CO_EXPECT_INT(captures(ctx, f), 2);
}

/* As a concrete function has no other program, another dataset is refused. */
CO_TEST(a_concrete_function_takes_no_other_dataset_than_the_one_it_is_tied_to, "FN-7 FN-12")
{
    co_function *f = co_function_of(ctx, sum_of_batches, NULL, NULL), *c;
    co_value    *d = co_dataset_value(ctx, co_dataset_range(ctx, 0, 5, 1));
    co_value    *e = co_dataset_value(ctx, co_dataset_range(ctx, 0, 4, 1));

    c = co_function_concrete(ctx, f, co_args(ctx, d));
    expect_sums(ctx, co_call(ctx, c, co_args(ctx, d)), 10, 3);
    CO_EXPECT_NULL(co_call(ctx, c, co_args(ctx, e)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dataset that was made of its argument");
    c = co_function_concrete(ctx, co_function_of(ctx, sum_up, NULL, NULL), co_args(ctx, d));
    expect_sums(ctx, co_call(ctx, c, co_args(ctx, e)), 6, 4); /* it is not tied */
}

static co_value *
loop_over_rest(co_context *ctx, co_value *args, void *user)
{
    co_iterator *it = co_iterate(ctx, co_value_dataset(ctx, co_at(ctx, args, 0)));
    co_value    *first = co_get_next(ctx, it), *sums;

    sums = sum_up(ctx, co_args(ctx, co_iterator_value(ctx, it)), user);
    return first != NULL && sums != NULL ? co_args(ctx, first, sums, co_iterator_value(ctx, it))
                                         : NULL;
}

/* Loops take them, functions return them. */
CO_TEST(an_iterator_made_in_a_function_is_a_value_of_it, "FN-7")
{
    co_function *f = co_function_of(ctx, loop_over_rest, NULL, NULL);
    co_value    *d = co_dataset_value(ctx, co_dataset_range(ctx, 3, 7, 1)), *seen;

    for (int i = 0; i < 2; ++i) {
        seen = co_call(ctx, f, co_args(ctx, d));
        CO_REQUIRE(seen != NULL);
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, seen, 0)), 3);
        expect_sums(ctx, co_at(ctx, seen, 1), 15, 3);
        CO_EXPECT_INT(co_value_kind(co_at(ctx, seen, 2)), CO_KIND_ITERATOR);
        CO_EXPECT_NULL(co_next(ctx, co_value_iterator(ctx, co_at(ctx, seen, 2))));
        CO_EXPECT_OK(ctx);
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
}

static co_value *
fold_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2)), co_at(ctx, args, 1));
}

static co_value *
reduce_dataset(co_context *ctx, co_value *args, void *user)
{
    return co_dataset_reduce(ctx, co_value_dataset(ctx, co_at(ctx, args, 0)), co_at(ctx, args, 1),
                             fold_sum, user);
}

CO_TEST(a_dataset_is_reduced_in_a_function, "FN-7 DS-ITER-9")
{
    co_function *f = co_function_of(ctx, reduce_dataset, NULL, NULL);

    for (int n = 0; n < 4; ++n) {
        co_value *args = co_args(ctx, co_dataset_value(ctx, co_dataset_range(ctx, 0, n, 1)),
                                 co_scalar_int64(ctx, 1));

        expect_same(ctx, reduce_dataset(ctx, args, NULL), co_call(ctx, f, args));
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
}

CO_TEST(a_function_that_makes_datasets_passes_the_check, "FN-7")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;
    co_value           *d = co_dataset_value(ctx, co_dataset_range(ctx, 0, 5, 1));

    options.check = true;
    f = co_function_of(ctx, sum_of_batches, NULL, &options);
    for (int i = 0; i < 3; ++i)
        expect_sums(ctx, co_call(ctx, f, co_args(ctx, d)), 10, 3);
    f = co_function_of(ctx, loop_over_rest, NULL, &options);
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, d)));
    CO_EXPECT_OK(ctx);
}

/* --- distributed --- */

static co_value *
sum_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static co_value *
add_run(co_context *ctx, co_value *args, void *user)
{
    co_value *sums = co_run(ctx, user, sum_step, co_args(ctx, co_at(ctx, args, 0)), NULL);

    return co_args(ctx, co_add(ctx, co_at(ctx, args, 1),
                               co_reduce(ctx, user, CO_REDUCE_SUM, sums, CO_ALL_AXES)));
}

static co_value *
sum_runs(co_context *ctx, co_value *args, void *user)
{
    return co_for_each(ctx, co_at(ctx, args, 0), co_args(ctx, co_scalar_int64(ctx, 0)), add_run,
                       user);
}

CO_TEST_WITH(a_loop_over_a_distributed_dataset_runs_steps, "FN-7 FN-9 DS-SPEC-3", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        co_strategy *strategy = strategy_of_place(ctx, i);
        co_function *f = co_function_of(ctx, sum_runs, strategy, NULL);
        co_dataset  *d = co_distribute_dataset(ctx, strategy, batches(ctx, 9, 4, false), NULL);
        co_iterator *it = co_iterate(ctx, d);

        for (int k = 0; k < 2; ++k)
            CO_EXPECT_INT(
                co_item_int(ctx,
                            co_at(ctx, co_call(ctx, f, co_args(ctx, co_dataset_value(ctx, d))), 0)),
                36);
        co_next(ctx, it);
        CO_EXPECT_INT(
            co_item_int(ctx,
                        co_at(ctx, co_call(ctx, f, co_args(ctx, co_iterator_value(ctx, it))), 0)),
            30);
        CO_EXPECT_OK(ctx);
    }
}

static co_value *
add_to_output(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_value *sums = co_run(ctx, user, sum_step, co_args(ctx, inputs), NULL);

    co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_SUM, sums);
    return NULL;
}

static co_value *
two_steps_on(co_context *ctx, co_strategy *strategy, co_iterator *it)
{
    co_step_context *steps = co_run_steps_on_iterator(ctx, strategy, add_to_output, it, strategy, 2,
                                                      NULL);

    return steps != NULL ? co_get(ctx, co_last_step_outputs(ctx, steps), "sum") : NULL;
}

static co_value *
steps_on_argument(co_context *ctx, co_value *args, void *user)
{
    return two_steps_on(ctx, user, co_value_iterator(ctx, co_at(ctx, args, 0)));
}

static co_value *
steps_on_new_iterator(co_context *ctx, co_value *args, void *user)
{
    return two_steps_on(ctx, user, co_iterate(ctx, co_value_dataset(ctx, co_at(ctx, args, 0))));
}

CO_TEST_WITH(steps_in_a_function_read_the_iterator_of_each_call, "EXT-STEPS-1 FN-7", "cpus=2")
{
    for (int i = 1; i < NUM_PLACES; ++i) { /* the default strategy has none */
        co_strategy *s = strategy_of_place(ctx, i);
        co_function *f = co_function_of(ctx, steps_on_argument, s, NULL);
        co_function *g = co_function_of(ctx, steps_on_new_iterator, s, NULL);
        co_function *outer = co_function_of(ctx, call_inner, g, NULL);
        co_dataset  *d = co_distribute_dataset(ctx, s, batches(ctx, 16, 4, true), NULL);
        co_value    *a = co_iterator_value(ctx, co_iterate(ctx, d));
        co_value    *b = co_iterator_value(ctx, co_iterate(ctx, d));

        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, a))), 22); /* 4 + 5 + 6 + 7 */
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, b))), 22);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_args(ctx, a))), 54);
        CO_EXPECT_INT(captures(ctx, f), 1);
        for (int k = 0; k < 2; ++k) {
            co_value *args = co_args(ctx, co_dataset_value(ctx, d));

            CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, g, args)), 22);
            CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, outer, args)), 122);
        }
        CO_EXPECT_OK(ctx);
    }
}

/* --- gradients and errors --- */

static co_value *
scale_by_element(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_mul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1)));
}

static co_value *
gradient_of_product(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y;

    co_tape_begin(ctx); /* which co_gradient ends */
    co_watch(ctx, x);
    y = co_for_each(ctx, user, co_args(ctx, x), scale_by_element, NULL);
    return y != NULL ? co_gradient(ctx, co_at(ctx, y, 0), x) : NULL;
}

CO_TEST(a_gradient_passes_through_a_loop_over_a_dataset, "FN-8 FN-11")
{
    const float  factors[3] = { 2, 3, 5 };
    co_dataset  *d = co_dataset_from_tensor_slices(ctx,
                                                   co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), factors));
    co_value    *of = co_dataset_value(ctx, d), *x = co_scalar_float(ctx, 0.5f);
    co_function *f = co_function_of(ctx, gradient_of_product, of, NULL);

    CO_EXPECT_CLOSE(co_item_float(ctx, gradient_of_product(ctx, co_args(ctx, x), of)), 30, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, co_args(ctx, x))), 30, 0);
    CO_EXPECT_OK(ctx);
}

static co_value *
returns_element(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32));
}

static co_value *
wrong_state(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_for_each(ctx, co_at(ctx, args, 0), co_args(ctx, co_scalar_int64(ctx, 0)),
                       returns_element, NULL);
}

static co_value *
keeps_iterator(co_context *ctx, co_value *args, void *user)
{
    co_iterator **kept = user;

    *kept = co_iterate(ctx, co_value_dataset(ctx, co_at(ctx, args, 0)));
    co_keep(ctx, *kept);
    return co_get_next(ctx, *kept);
}

CO_TEST(wrong_uses_of_datasets_and_iterators_as_values_are_said, "FN-11 FN-13")
{
    co_value    *d = co_dataset_value(ctx, co_dataset_range(ctx, 3, 6, 1));
    co_iterator *kept = NULL;

    wrong_state(ctx, co_args(ctx, d), NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dtype must stay");
    co_call(ctx, co_function_of(ctx, wrong_state, NULL, NULL), co_args(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dtype must stay");
    CO_EXPECT_NULL(co_value_iterator(ctx, d));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "iterator");
    CO_EXPECT_NULL(co_value_dataset(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dataset");
    CO_EXPECT_NULL(co_dataset_value(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dataset");
    CO_EXPECT_NULL(co_iterator_value(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
    CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, co_function_of(ctx, keeps_iterator, &kept, NULL),
                                           co_args(ctx, d))),
                  3);
    CO_EXPECT_NULL(co_next(ctx, kept));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "each call of that function has its own");
    co_release(ctx, kept);
}

/* --- want of memory --- */

static bool
loops_and_iterators(co_context *ctx)
{
    co_value    *d, *sums;
    co_function *f;

    if (ctx == NULL)
        return false;
    d = co_dataset_value(ctx, co_dataset_range(ctx, 3, 7, 1));
    f = co_function_of(ctx, loop_over_rest, NULL, NULL);
    if (d == NULL || f == NULL)
        return false;
    sums = co_call(ctx, f, co_args(ctx, d));
    return sums != NULL && co_item_int(ctx, co_at(ctx, sums, 0)) == 3;
}

CO_TEST_BARE(want_of_memory_in_loops_over_datasets_is_an_error, "")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, loops_and_iterators);
}

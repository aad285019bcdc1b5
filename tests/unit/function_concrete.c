/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concrete functions, signatures in steps, programs that places share, calls that are made while
 * capturing, and attributes that a captured function computes.
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
product(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
spec(co_context *ctx, int64_t dim)
{
    return co_spec(ctx, CO_FLOAT32, &dim, 1);
}

/* --- concrete functions --- */

CO_TEST(a_concrete_function_checks_its_arguments, "FN-12")
{
    co_function *f = co_function_of(ctx, product, NULL, NULL);
    co_function *c = co_function_concrete(ctx, f, co_args(ctx, spec(ctx, 3), spec(ctx, 3)));
    co_value    *x = floats(ctx, 1, 3), *y;

    CO_EXPECT_INT(captures(ctx, f), 1);
    y = co_call(ctx, c, co_args(ctx, x, x));
    expect_same(ctx, co_square(ctx, x), y);
    co_call(ctx, c, co_args(ctx, floats(ctx, 1, 4), floats(ctx, 1, 4)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 0");
    co_call(ctx, c, co_args(ctx, x, co_cast(ctx, x, CO_FLOAT64)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 1");
    co_call(ctx, c, co_args(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "1 argument; the signature has 2");
    co_call(ctx, c, co_args(ctx, x, co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 1");
    expect_same(ctx, y, co_call(ctx, f, co_args(ctx, x, x))); /* the same program */
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_NULL(co_function_concrete(ctx, c, co_args(ctx, x, x)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "concrete already");
    CO_EXPECT_NULL(co_function_concrete(ctx, f, x));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "tuple or list");
    CO_EXPECT_NULL(co_function_concrete(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "function");
}

CO_TEST(a_concrete_function_is_made_by_example_or_signature, "FN-3 FN-4 FN-12")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_value           *x = floats(ctx, 1, 3);
    co_function        *f = co_function_of(ctx, product, NULL, NULL), *c;

    c = co_function_concrete(ctx, f, co_args(ctx, x, x));
    CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, co_function_arg_specs(ctx, c), 1), 0), 3);
    co_function_concrete(ctx, f, co_args(ctx, spec(ctx, 3), x));
    CO_EXPECT_INT(captures(ctx, f), 1);
    options.signature = co_args(ctx, spec(ctx, -1), co_spec(ctx, CO_FLOAT32, NULL, -1));
    f = co_function_of(ctx, product, NULL, &options);
    c = co_function_concrete(ctx, f, NULL);
    CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, co_function_arg_specs(ctx, c), 0), 0), -1);
    CO_EXPECT_INT(co_value_ndim(ctx, co_function_result_spec(ctx, c)), -1);
    c = co_function_concrete(ctx, f, co_args(ctx, spec(ctx, 3), spec(ctx, 3)));
    CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, co_function_arg_specs(ctx, c), 0), 0), -1);
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_EXPECT_OK(ctx);
    co_function_concrete(ctx, f, co_args(ctx, co_spec(ctx, CO_INT32, CO_SHAPE(3)), x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 0");
    CO_EXPECT_NULL(co_function_arg_specs(ctx, f));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_function_concrete");
    CO_EXPECT_NULL(co_function_result_spec(ctx, f));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_function_concrete");
}

static co_value *
scaled_variable(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_assign_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1)),
                   co_at(ctx, args, 2));
}

CO_TEST(a_concrete_function_keeps_host_values_and_takes_other_variables, "FN-2 FN-12")
{
    co_value    *v = co_variable(ctx, floats(ctx, 0, 2), NULL);
    co_value    *w = co_variable(ctx, floats(ctx, 5, 2), NULL), *x = floats(ctx, 1, 2), *y;
    co_function *f = co_function_of(ctx, scaled_variable, NULL, NULL);
    co_function *c = co_function_concrete(ctx, f, co_args(ctx, v, x, co_int(ctx, 7)));

    y = co_call(ctx, c, co_args(ctx, w, x, co_int(ctx, 7)));
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, y, 1)), 7);
    expect_same(ctx, co_variable_read(ctx, w), co_at(ctx, y, 0));
    expect_same(ctx, floats(ctx, 0, 2), co_variable_read(ctx, v)); /* not changed */
    co_call(ctx, c, co_args(ctx, w, x, co_int(ctx, 8)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "captured with 7");
    co_call(ctx, c, co_args(ctx, x, x, co_int(ctx, 7)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 0");
}

static co_value *
values_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_neg(ctx, co_slices_values(ctx, co_at(ctx, args, 0)));
}

CO_TEST(a_concrete_function_takes_slices_with_and_without_a_dense_shape, "FN-12 FN-8")
{
    const int64_t at[2] = { 3, 1 }, shape[2] = { 4, 1 };
    co_value     *rows = co_reshape(ctx, floats(ctx, 1, 2), CO_SHAPE(2, 1));
    co_value     *indices = co_tensor(ctx, CO_INT64, CO_SHAPE(2), at);
    co_value     *open = co_slices(ctx, rows, indices, NULL);
    co_value *whole = co_slices(ctx, rows, indices, co_tensor(ctx, CO_INT64, CO_SHAPE(2), shape));
    co_value *both[2] = { open, whole };

    for (int i = 0; i < 2; ++i) {
        co_function *c = co_function_concrete(ctx, co_function_of(ctx, values_of, NULL, NULL),
                                              co_args(ctx, both[i]));

        expect_same(ctx, co_neg(ctx, rows), co_call(ctx, c, co_args(ctx, both[i])));
        CO_EXPECT_NULL(co_call(ctx, c, co_args(ctx, both[1 - i])));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dense_shape");
    }
}

static co_value *
call_concrete(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    return co_call(ctx, user, co_args(ctx, x, x));
}

static co_value *
gradient_of_call(co_context *ctx, co_function *c, co_value *x)
{
    co_tape_begin(ctx); /* which co_gradient ends */
    co_watch(ctx, x);
    return co_gradient(ctx, co_call(ctx, c, co_args(ctx, x, x)), x);
}

CO_TEST(a_concrete_function_is_called_in_functions_and_under_tapes, "FN-8 FN-12")
{
    co_function *f = co_function_of(ctx, product, NULL, NULL);
    co_function *c = co_function_concrete(ctx, f, co_args(ctx, spec(ctx, 3), spec(ctx, 3)));
    co_function *outer = co_function_of(ctx, call_concrete, c, NULL);
    co_value    *x = floats(ctx, 1, 3);

    expect_same(ctx, co_square(ctx, x), co_call(ctx, outer, co_args(ctx, x)));
    expect_same(ctx, co_mul(ctx, x, co_int(ctx, 2)), gradient_of_call(ctx, c, x));
    co_call(ctx, outer, co_args(ctx, floats(ctx, 1, 4)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 0");
    CO_EXPECT_INT(captures(ctx, f), 1);
}

static co_value *
on_first_device(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = NULL;

    (void)user;
    CO_DEVICE(ctx, "/cpu:0")
        y = co_add(ctx, x, x);
    return co_args(ctx, y, co_mul(ctx, x, x));
}

CO_TEST_WITH(a_concrete_function_computes_on_the_device_that_it_chose, "FN-12", "cpus=2")
{
    co_function *f = co_function_of(ctx, on_first_device, NULL, NULL);
    co_function *c = co_function_concrete(ctx, f, co_args(ctx, spec(ctx, 3)));
    co_value    *seen = NULL;
    char         first[100] = "";

    CO_DEVICE(ctx, "/cpu:0")
        snprintf(first, sizeof(first), "%s", co_current_device(ctx));
    for (int i = 0; i < 3; ++i)
        CO_DEVICE(ctx, "/cpu:1") {
            seen = co_call(ctx, c, co_args(ctx, floats(ctx, 1, 3)));
            CO_REQUIRE(seen != NULL);
            CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, seen, 0)), first);
            CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, seen, 1)), co_current_device(ctx));
        }
}

/* --- functions as arguments --- */

static co_value *
call_argument(co_context *ctx, co_value *args, void *user)
{
    co_function *f = co_value_function(ctx, co_at(ctx, args, 0));
    co_value    *x = co_at(ctx, args, 1);

    (void)user;
    return f != NULL ? co_neg(ctx, co_call(ctx, f, co_args(ctx, x, x))) : NULL;
}

static co_value *
sum_of_both(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

CO_TEST(a_function_is_an_argument_of_another, "FN-2")
{
    co_function *f = co_function_of(ctx, call_argument, NULL, NULL);
    co_function *times = co_function_of(ctx, product, NULL, NULL);
    co_function *plus = co_function_of(ctx, sum_of_both, NULL, NULL);
    co_value    *x = floats(ctx, 1, 3);
    char         text[100];

    for (int i = 0; i < 2; ++i) {
        expect_same(ctx, co_neg(ctx, co_square(ctx, x)),
                    co_call(ctx, f, co_args(ctx, co_function_value(ctx, times), x)));
        expect_same(ctx, co_neg(ctx, co_add(ctx, x, x)),
                    co_call(ctx, f, co_args(ctx, co_function_value(ctx, plus), x)));
    }
    CO_EXPECT_INT(captures(ctx, f), 2);
    CO_EXPECT_INT(captures(ctx, times), 1);
    co_format(ctx, co_function_value(ctx, plus), text, sizeof(text));
    CO_EXPECT_STR(text, "Function 'function'");
    CO_EXPECT_NULL(co_value_function(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "function");
    CO_EXPECT_NULL(co_function_value(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "function");
}

static co_value *
half_of_second(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 1);

    (void)user;
    return co_args(ctx, co_mul(ctx, x, co_float(ctx, 0.5)), co_at(ctx, args, 0));
}

CO_TEST(a_function_that_is_given_itself_is_freed, "FN-2")
{
    co_function *f = co_function_of(ctx, half_of_second, NULL, NULL), *c;
    co_value    *x = floats(ctx, 1, 3), *y = co_mul(ctx, x, co_float(ctx, 0.5)), *seen;

    for (int i = 0; i < 2; ++i) {
        seen = co_call(ctx, f, co_args(ctx, co_function_value(ctx, f), x));
        expect_same(ctx, y, co_at(ctx, seen, 0));
        CO_EXPECT_PTR(co_value_function(ctx, co_at(ctx, seen, 1)), f);
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
    c = co_function_concrete(ctx, f, co_args(ctx, co_function_value(ctx, f), x));
    seen = co_call(ctx, c, co_args(ctx, co_function_value(ctx, f), x));
    expect_same(ctx, y, co_at(ctx, seen, 0));
    co_call(ctx, c, co_args(ctx, co_function_value(ctx, c), x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "captured with");
} /* the end of the test finds what is left */

/* --- signatures in steps --- */

static co_value *
sum_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static co_value *
run_captured(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    return co_run(ctx, w->strategy, co_captured, args, w->optimizer);
}

CO_TEST_WITH(a_step_of_replicas_takes_a_per_replica_spec, "FN-5 FN-9", "cpus=2")
{
    co_strategy        *strategy = strategy_of_place(ctx, 2);
    co_dataset         *d = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 11, 1), 4, false);
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;
    co_value           *x, *sums;
    world               w = { .strategy = strategy };

    d = co_distribute_dataset(ctx, strategy, d, NULL);
    x = co_next(ctx, co_iterate(ctx, d));
    options.signature = co_args(ctx, co_spec(ctx, CO_INT64, CO_SHAPE(-1)));
    f = co_function_of(ctx, sum_step, NULL, &options);
    co_run(ctx, strategy, co_captured, co_args(ctx, x), f);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "per-replica spec");
    w.optimizer = (co_optimizer *)(void *)f; /* any pointer: the step of run_captured */
    co_call(ctx, co_function_of(ctx, run_captured, &w, NULL), co_args(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "per-replica spec");
    /* One value for all replicas fits a spec. */
    sums = co_run(ctx, strategy, co_captured, co_args(ctx, co_at(ctx, x, 1)), f);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, sums, 0)), 5);
    options.signature = co_args(ctx, co_element_spec(ctx, d));
    f = co_function_of(ctx, sum_step, NULL, &options);
    sums = co_run(ctx, strategy, co_captured, co_args(ctx, x), f);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, sums, 1)), 5);
    CO_EXPECT_INT(captures(ctx, f), 2);
}

/* --- places --- */

static co_value *
plain_sum(co_context *ctx, co_value *args, void *user)
{
    return co_add(ctx, co_at(ctx, args, 0), *(co_value **)user);
}

static co_value *
reduced_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

CO_TEST(a_run_on_one_device_shares_programs_with_plain_calls, "FN-2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *v, *x = floats(ctx, 1, 3);
    co_function *f = co_function_of(ctx, plain_sum, &v, NULL);
    co_function *g = co_function_of(ctx, reduced_sum, NULL, NULL);

    CO_SCOPE(ctx, one)
        v = co_variable(ctx, x, NULL);
    expect_same(ctx, co_run(ctx, one, co_captured, co_args(ctx, x), f),
                co_call(ctx, f, co_args(ctx, x)));
    CO_EXPECT_INT(captures(ctx, f), 1);
    CO_SCOPE(ctx, one)
        co_call(ctx, f, co_args(ctx, x)); /* cross-replica context is another place */
    CO_EXPECT_INT(captures(ctx, f), 2);
    co_run(ctx, one, co_captured, co_args(ctx, x), g);
    co_call(ctx, g, co_args(ctx, x));
    CO_EXPECT_INT(captures(ctx, g), 2); /* it has a call that belongs to the strategy */
    CO_EXPECT_OK(ctx);
}

/* --- merge functions --- */

static co_value *
mean_and_parts(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    co_value *mean = co_reduce(ctx, strategy, CO_REDUCE_MEAN, co_at(ctx, args, 0), CO_ALL_AXES);

    (void)user;
    return co_args(ctx, co_mul(ctx, mean, co_at(ctx, args, 1)), co_at(ctx, args, 0));
}

static co_value *
merging_step(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);
    co_value *w = co_mul(ctx, x, co_int(ctx, 1 + co_replica_id(ctx)));

    (void)user;
    return co_merge_call(ctx, mean_and_parts, co_args(ctx, w, x), NULL);
}

static co_value *
run_merging(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, user, merging_step, args, NULL);
}

/* x is one value for all replicas: the merge function gets it as it is, and what it returns once
 * comes out of run once. */
CO_TEST_WITH(a_merge_function_gets_common_arguments_once, "FN-9 DV-GROUP-4", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        co_strategy *strategy = strategy_of_place(ctx, i);
        co_function *f = co_function_of(ctx, run_merging, strategy, NULL);
        co_value    *args = co_args(ctx, floats(ctx, 1, 3));

        expect_same(ctx, run_merging(ctx, args, strategy), co_call(ctx, f, args));
        CO_EXPECT_INT(captures(ctx, f), 1);
    }
}

static co_value *
number_for_all(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)args;
    return co_int(ctx, *(const int *)user);
}

/* user: a number for each replica. */
static co_value *
own_number(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, number_for_all, args, (int *)user + co_replica_id(ctx));
}

/* That of replica 0 counts (RC-MERGE-3), and the others would have their own in their programs. */
CO_TEST_WITH(host_numbers_of_a_merge_function_are_those_of_the_first_replica,
             "FN-9 RC-MERGE-3 RC-MERGE-4", "cpus=2")
{
    co_strategy *m = strategy_of_place(ctx, 2);
    int          same[2] = { 7, 7 }, different[2] = { 7, 8 };
    co_function *f = co_function_of(ctx, own_number, same, NULL);
    co_function *g = co_function_of(ctx, own_number, different, NULL);

    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, m, co_captured, co_no_args(ctx), f)), 7);
        CO_EXPECT_NULL(co_run(ctx, m, co_captured, co_no_args(ctx), g));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "merge_call gives 7 where it gave 8 while");
    }
}

static co_value *
scaled_sum(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    co_value *parts = co_local_results(ctx, strategy, co_at(ctx, args, 0)), *sum = NULL;

    for (size_t i = 0; i < co_num_items(ctx, parts); ++i) {
        co_value *one = co_reduce_sum(ctx, co_at(ctx, parts, i), CO_ALL_AXES, false);

        sum = sum != NULL ? co_add(ctx, sum, one) : one;
    }
    return co_mul(ctx, sum, co_float(ctx, *(const double *)user));
}

/* user: a number that lives long; NULL: one that does not. */
static co_value *
merge_with_number(co_context *ctx, co_value *args, void *user)
{
    double own = 10;

    return co_merge_call(ctx, scaled_sum, co_args(ctx, co_neg(ctx, co_at(ctx, args, 0))),
                         user != NULL ? user : &own);
}

/* Each replica is captured as if the others brought what it brings. If they do not, the merge
 * function is captured when they meet, and the frames of the step are over. */
CO_TEST_WITH(a_merge_function_is_not_captured_with_a_frame_that_is_over, "FN-9 FN-10", "cpus=2")
{
    static double ten = 10;
    co_strategy  *m = strategy_of_place(ctx, 2);
    co_value     *both[2] = { floats(ctx, 1, 3), floats(ctx, 1, 3) };
    co_value     *even = co_args(ctx, co_per_replica_value(ctx, both, 2)), *odd;
    co_function  *own = co_function_of(ctx, merge_with_number, NULL, NULL);
    co_function  *lasting = co_function_of(ctx, merge_with_number, &ten, NULL);

    both[1] = floats(ctx, 1, 2);
    odd = co_args(ctx, co_per_replica_value(ctx, both, 2));
    for (int i = 0; i < 2; ++i) {
        expect_same(ctx, co_run(ctx, m, merge_with_number, even, NULL),
                    co_run(ctx, m, co_captured, even, own));
        expect_same(ctx, co_run(ctx, m, merge_with_number, odd, &ten),
                    co_run(ctx, m, co_captured, odd, lasting));
        if (TEST_SANITIZED) /* frames may be elsewhere; the sanitizer itself finds such uses */
            continue;
        CO_EXPECT_NULL(co_run(ctx, m, co_captured, odd, own));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "point to memory that lives");
    }
}

/* The frame is that of a captured function around the step. */
static co_value *
run_with_number(co_context *ctx, co_value *args, void *user)
{
    double own = 10;

    return co_run(ctx, user, merge_with_number, args, &own);
}

CO_TEST_WITH(nor_with_a_frame_around_the_step, "FN-9 FN-10", "cpus=2")
{
    co_strategy *m = strategy_of_place(ctx, 2);
    co_value    *both[2] = { floats(ctx, 1, 3), floats(ctx, 1, 3) };
    co_value    *even = co_args(ctx, co_per_replica_value(ctx, both, 2)), *odd;
    co_function *f = co_function_of(ctx, run_with_number, m, NULL);

    both[1] = floats(ctx, 1, 2);
    odd = co_args(ctx, co_per_replica_value(ctx, both, 2));
    expect_same(ctx, run_with_number(ctx, even, m), co_call(ctx, f, even));
    if (TEST_SANITIZED)
        return;
    CO_EXPECT_NULL(co_call(ctx, f, odd));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "point to memory that lives");
}

/* --- variables that are synchronised on read --- */

static co_value *
subtracts(co_context *ctx, co_value *args, void *user)
{
    return co_assign_sub(ctx, *(co_value **)user, co_at(ctx, args, 0));
}

CO_TEST_WITH(an_assignment_that_cannot_be_captured_changes_nothing, "FN-10 VAR-SOR-3", "cpus=2")
{
    co_strategy        *strategy = strategy_of_place(ctx, 2);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v, *parts;
    co_function        *f = co_function_of(ctx, subtracts, &v, NULL);

    options.synchronization = CO_SYNC_ON_READ;
    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, floats(ctx, 1, 2), &options);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 5, 2))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no aggregation");
    parts = co_local_results(ctx, strategy, v);
    for (size_t i = 0; i < 2; ++i)
        expect_same(ctx, floats(ctx, 1, 2), co_variable_read(ctx, co_at(ctx, parts, i)));
}

/* --- init_scope --- */

static co_value *
count_up(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user, co_float(ctx, 1));
}

static co_value *
with_init_scope(co_context *ctx, co_value *args, void *user)
{
    co_init_scope(ctx, count_up, NULL, user);
    return co_mul(ctx, co_at(ctx, args, 0), user);
}

static co_value *
negate(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_neg(ctx, user);
}

static co_value *
lifts_symbol(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_init_scope(ctx, negate, NULL, co_at(ctx, args, 0));
}

CO_TEST(init_scope_runs_while_capturing_only, "FN-7")
{
    co_value *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *two = co_scalar_float(ctx, 2);
    co_function *f = co_function_of(ctx, with_init_scope, v, NULL);

    for (int i = 0; i < 3; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, co_args(ctx, two))), 4, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 2, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, with_init_scope(ctx, co_args(ctx, two), v)), 6, 0);
    co_call(ctx, co_function_of(ctx, lifts_symbol, NULL, NULL), co_args(ctx, two));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "");
    CO_EXPECT_NULL(co_init_scope(ctx, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
}

/* --- shapes and attributes that are computed --- */

static co_value *
ensures_two(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_ensure_shape(ctx, co_neg(ctx, co_at(ctx, args, 0)), CO_SHAPE(2));

    if (x != NULL)
        *(int *)user = co_value_ndim(ctx, x);
    return x;
}

CO_TEST(ensure_shape_checks_and_is_known_while_capturing, "FN-10")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    int                 ndim = -2;
    co_function        *f;

    options.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, NULL, -1));
    f = co_function_of(ctx, ensures_two, &ndim, &options);
    expect_same(ctx, co_neg(ctx, floats(ctx, 1, 2)),
                co_call(ctx, f, co_args(ctx, floats(ctx, 1, 2))));
    CO_EXPECT_INT(ndim, 1);
    co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[3]");
    co_call(ctx, f, co_args(ctx, co_scalar_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[]");
    CO_EXPECT_NOT_NULL(co_ensure_shape(ctx, floats(ctx, 1, 3), CO_SHAPE(-1)));
    CO_EXPECT_NULL(co_ensure_shape(ctx, floats(ctx, 1, 3), CO_SHAPE(-1, 3)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[?,3]");
}

static co_value *
range_and_tile(co_context *ctx, co_value *args, void *user)
{
    static const char *const keys[] = { "multiples" };
    co_value                *n = co_at(ctx, args, 0), *x = co_at(ctx, args, 1), *times;

    (void)user;
    times = co_list(ctx, &n, 1);
    return co_args(ctx, co_range(ctx, co_int(ctx, 0), n, co_int(ctx, 1), CO_DTYPE_NONE),
                   co_op_call(ctx, "tile", co_args(ctx, x), co_dict(ctx, keys, &times, 1)),
                   co_fill(ctx, CO_SHAPE(2), n), co_random_shuffle(ctx, x));
}

CO_TEST(attributes_may_be_tensors_of_a_captured_function, "FN-7")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;

    options.signature = co_args(ctx, co_spec(ctx, CO_INT32, NULL, 0), spec(ctx, -1));
    f = co_function_of(ctx, range_and_tile, NULL, &options);
    for (int n = 0; n < 3; ++n) {
        co_value *args = co_args(ctx, co_scalar_int32(ctx, n), floats(ctx, 1, 2 + n)), *eager,
                 *seen;

        co_set_seed(ctx, 5);
        eager = range_and_tile(ctx, args, NULL);
        co_set_seed(ctx, 5);
        seen = co_call(ctx, f, args);
        expect_same(ctx, eager, seen);
        CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, seen, 0), 0), n);
    }
    CO_EXPECT_INT(captures(ctx, f), 1);
}

/* An operator and one of its attributes, a list with the argument in it, or the argument. */
typedef struct computed_attribute {
    const char *op, *attribute;
    int64_t     before[2]; /* numbers of the list before the argument; below -1: none */
    bool        is_list;
    int         n; /* the argument */
} computed_attribute;

static co_value *
with_attribute(co_context *ctx, co_value *args, void *user)
{
    const computed_attribute *a = user;
    co_value                 *items[3], *n = co_at(ctx, args, 1), *attrs;
    size_t                    count = 0;

    for (int i = 0; i < 2; ++i)
        if (a->before[i] >= -1)
            items[count++] = co_int(ctx, a->before[i]);
    items[count++] = n;
    if (a->is_list)
        n = co_list(ctx, items, count);
    attrs = co_dict(ctx, &a->attribute, &n, 1);
    return co_op_call(ctx, a->op, co_args(ctx, co_at(ctx, args, 0)), attrs);
}

CO_TEST(many_operators_take_computed_attributes, "FN-7")
{
    static const computed_attribute rows[] = {
        { "tile", "multiples", { 2, -2 }, true, 3 },
        { "reshape", "shape", { 3, -2 }, true, 4 },
        { "reshape", "shape", { -1, -2 }, true, 6 },
        { "expand_dims", "axis", { -2, -2 }, false, 1 },
        { "reduce_sum", "axis", { -2, -2 }, true, 1 },
        { "transpose", "perm", { 1, -2 }, true, 0 },
        { "reverse", "axis", { -2, -2 }, true, 1 },
        { "cumsum", "axis", { -2, -2 }, false, 1 },
        { "top_k", "k", { -2, -2 }, false, 2 },
        { "softmax", "axis", { -2, -2 }, false, 0 },
        { "broadcast_to", "shape", { 5, 2 }, true, 6 },
    };
    float         data[12];
    co_value     *x;
    const int64_t dims[2] = { 2, 6 };

    for (int i = 0; i < 12; ++i)
        data[i] = 0.5f * (float)((7 * i) % 12);
    x = co_tensor(ctx, CO_FLOAT32, dims, 2, data);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        computed_attribute row = rows[i];
        co_value          *args = co_args(ctx, x, co_scalar_int32(ctx, row.n));
        co_function       *f = co_function_of(ctx, with_attribute, &row, NULL);

        expect_same(ctx, with_attribute(ctx, args, &row), co_call(ctx, f, args));
    }
    CO_EXPECT_OK(ctx);
}

static co_value *
gradient_of_tile(co_context *ctx, co_value *args, void *user)
{
    static const char *const keys[] = { "multiples" };
    co_value *n = co_at(ctx, args, 0), *x = co_at(ctx, args, 1), *times = co_list(ctx, &n, 1), *g;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    g = co_op_call(ctx, "tile", co_args(ctx, x), co_dict(ctx, keys, &times, 1));
    return g != NULL
               ? co_gradient(ctx, co_reduce_sum(ctx, co_square(ctx, g), CO_ALL_AXES, false), x)
               : NULL;
}

CO_TEST(gradients_pass_operators_with_computed_attributes, "FN-8")
{
    co_function *f = co_function_of(ctx, gradient_of_tile, NULL, NULL);
    co_value    *args = co_args(ctx, co_scalar_int32(ctx, 3), floats(ctx, 1, 2));

    expect_same(ctx, gradient_of_tile(ctx, args, NULL), co_call(ctx, f, args));
}

/* --- want of memory --- */

static bool
concrete_and_attributes(co_context *ctx)
{
    co_function *f, *c;
    co_value    *args, *seen;

    if (ctx == NULL)
        return false;
    f = co_function_of(ctx, gradient_of_tile, NULL, NULL);
    args = co_args(ctx, co_scalar_int32(ctx, 3), floats(ctx, 1, 2));
    c = f != NULL && args != NULL ? co_function_concrete(ctx, f, args) : NULL;
    seen = c != NULL ? co_call(ctx, c, args) : NULL;
    return seen != NULL && co_function_arg_specs(ctx, c) != NULL &&
           co_function_result_spec(ctx, c) != NULL && co_value_num_elements(ctx, seen) == 2;
}

CO_TEST_BARE(want_of_memory_for_a_concrete_function_is_an_error, "")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, concrete_and_attributes);
}

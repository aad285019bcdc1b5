/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: with tensors of some shapes, a captured function runs a list of kernels. Each case
 * compares with the function as it is without capturing, bit by bit.
 */
#include "failing_requests.h"
#include "function_plans.h"

/* A vector of numbers of either sign. */
static co_value *
vector(co_context *ctx, double first, int64_t n)
{
    float    *data = malloc((size_t)(n + 1) * sizeof(*data));
    co_value *made;

    for (int64_t i = 0; data != NULL && i < n; ++i)
        data[i] = (float)(first + 0.3 * (double)(i % 13) - 1.5 * (double)(i % 3));
    made = co_tensor(ctx, CO_FLOAT32, &n, 1, data);
    free(data);
    return made;
}

/* Call `fn` and a function captured of it `times` times with the same numbers. */
static co_function_stats
expect_planned(co_context *ctx, co_fn fn, void *user, int64_t n, int times)
{
    co_function *f = co_function_of(ctx, fn, user, NULL);

    for (int i = 0; i < times; ++i)
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, vector(ctx, i - 1, n));

            expect_same(ctx, fn(ctx, args, user), co_call(ctx, f, args));
        }
    return stats_of(ctx, f);
}

/* --- operators --- */

static co_value *
chain(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = x;

    (void)user;
    for (int i = 0; i < 5; ++i)
        y = co_tanh(ctx, co_add(ctx, co_mul(ctx, y, x), co_float(ctx, 0.25 * i)));
    return co_args(ctx, co_reduce_sum(ctx, y, CO_ALL_AXES, false), y);
}

CO_TEST(every_call_runs_a_plan, "FN-2")
{
    co_function_stats stats = expect_planned(ctx, chain, NULL, 1000, 4);

    CO_EXPECT_INT(stats.captures, 1);
    CO_EXPECT_INT(stats.plans, 1);
    CO_EXPECT_INT(stats.plan_runs, 4);
    CO_EXPECT_MORE(stats.temporary_bytes, 0);
    CO_EXPECT_LESS(2 * stats.planned_bytes, stats.temporary_bytes);
}

CO_TEST(small_tensors_have_plans_too, "FN-2")
{
    CO_EXPECT_INT(expect_planned(ctx, chain, NULL, 1, 3).plan_runs, 3);
    CO_EXPECT_INT(expect_planned(ctx, chain, NULL, 7, 3).plan_runs, 3);
    CO_EXPECT_INT(expect_planned(ctx, chain, NULL, 0, 3).plan_runs, 3);
}

CO_TEST(a_new_batch_size_is_a_new_plan_of_one_program, "FN-9")
{
    const int64_t       any[1] = { -1 };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;

    options.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, any, 1));
    f = co_function_of(ctx, chain, NULL, &options);
    for (int round = 0; round < 3; ++round)
        for (int64_t n = 1; n < 20; n += 3)
            CO_BLOCK(ctx) {
                co_value *args = co_args(ctx, vector(ctx, (float)round, n));

                expect_same(ctx, chain(ctx, args, NULL), co_call(ctx, f, args));
            }
    CO_EXPECT_INT(stats_of(ctx, f).captures, 1);
    CO_EXPECT_INT(stats_of(ctx, f).plans, 7);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 21);
}

CO_TEST(more_shapes_than_plans_are_right_as_well, "FN-9")
{
    const int64_t       any[1] = { -1 };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;

    options.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, any, 1));
    f = co_function_of(ctx, chain, NULL, &options);
    for (int64_t n = 0; n < 120; ++n)
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, vector(ctx, 1, n % 60));

            expect_same(ctx, chain(ctx, args, NULL), co_call(ctx, f, args));
        }
    CO_EXPECT_INT(stats_of(ctx, f).captures, 1);
    CO_EXPECT_LESS(stats_of(ctx, f).plans, 60);
}

/* --- results that the caller holds, and inputs that are results --- */

static co_value *
passes_through(co_context *ctx, co_value *args, void *user)
{
    co_value     *x = co_at(ctx, args, 0), *y = co_mul(ctx, x, co_float(ctx, 3));
    const int64_t two[2] = { 2, 4 };

    (void)user;
    return co_args(ctx, x, y, co_reshape(ctx, y, two, 2), co_reshape(ctx, x, two, 2),
                   co_add(ctx, y, co_float(ctx, 1)));
}

CO_TEST(results_stay_when_the_next_call_runs, "FN-7")
{
    co_function *f = co_function_of(ctx, passes_through, NULL, NULL);
    co_value    *results[5], *args[5];

    for (int i = 0; i < 5; ++i) {
        args[i] = co_args(ctx, vector(ctx, (float)i, 8));
        results[i] = co_call(ctx, f, args[i]);
    }
    for (int i = 0; i < 5; ++i)
        expect_same(ctx, passes_through(ctx, args[i], NULL), results[i]);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 5);
}

static co_value *
twins(co_context *ctx, co_value *args, void *user)
{
    co_value     *x = co_at(ctx, args, 0);
    const int64_t n = 3;

    (void)user;
    return co_args(ctx, co_relu(ctx, x), co_relu(ctx, x), co_zeros(ctx, CO_FLOAT32, &n, 1));
}

/* Tapes know tensors by their handles. */
CO_TEST(equal_results_are_tensors_of_their_own, "FN-7 FN-8")
{
    co_function *f = co_function_of(ctx, twins, NULL, NULL);
    co_value    *x = co_args(ctx, vector(ctx, 4, 3)), *zeros[2], *grads = NULL;

    for (int i = 0; i < 2; ++i) {
        co_value *r = co_call(ctx, f, x), *a = co_at(ctx, r, 0), *b = co_at(ctx, r, 1), *y;

        zeros[i] = co_at(ctx, r, 2);
        co_tape_begin(ctx);
        co_watch(ctx, a);
        co_watch(ctx, b);
        y = co_add(ctx, co_mul(ctx, a, co_float(ctx, 3)), co_mul(ctx, b, co_float(ctx, 5)));
        grads = co_gradient(ctx, y, co_args(ctx, a, b));
        CO_EXPECT_INT(
            co_item_int(ctx, co_reduce_max(ctx, co_at(ctx, grads, 0), CO_ALL_AXES, false)), 3);
        CO_EXPECT_INT(
            co_item_int(ctx, co_reduce_max(ctx, co_at(ctx, grads, 1), CO_ALL_AXES, false)), 5);
    }
    CO_EXPECT_TRUE(zeros[0] != zeros[1]);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 2);
}

static co_value *
two_arguments(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_sub(ctx, co_square(ctx, co_at(ctx, args, 0)),
                  co_mul(ctx, co_at(ctx, args, 1), co_float(ctx, 2)));
}

CO_TEST(one_tensor_for_two_arguments_and_then_two, "FN-7")
{
    co_function *f = co_function_of(ctx, two_arguments, NULL, NULL);
    co_value    *a = vector(ctx, 1, 4), *b = vector(ctx, 5, 4);
    co_value    *calls[] = { co_args(ctx, a, a), co_args(ctx, a, b), co_args(ctx, b, b),
                             co_args(ctx, b, a), co_args(ctx, a, a) };

    for (int i = 0; i < 5; ++i)
        expect_same(ctx, two_arguments(ctx, calls[i], NULL), co_call(ctx, f, calls[i]));
}

static co_value *
with_constant(co_context *ctx, co_value *args, void *constant)
{
    return co_sub(ctx, co_mul(ctx, co_at(ctx, args, 0), constant), constant);
}

CO_TEST(a_constant_that_is_an_argument_once_stays_a_constant, "FN-7")
{
    co_value    *constant = vector(ctx, 2, 4), *other = vector(ctx, 7, 4);
    co_function *f = co_function_of(ctx, with_constant, constant, NULL);
    co_value    *calls[] = { co_args(ctx, constant), co_args(ctx, other), co_args(ctx, constant),
                             co_args(ctx, other) };

    for (int i = 0; i < 4; ++i)
        expect_same(ctx, with_constant(ctx, calls[i], constant), co_call(ctx, f, calls[i]));
}

/* --- variables --- */

static co_value *
scaled(co_context *ctx, co_value *args, void *v)
{
    return co_add(ctx, co_mul(ctx, co_at(ctx, args, 0), v), co_square(ctx, v));
}

CO_TEST(a_plan_reads_what_a_variable_is_now, "FN-5 FN-7")
{
    for (int64_t n = 3; n <= 300; n *= 100) {
        co_value    *first = vector(ctx, 1, n), *x = co_args(ctx, vector(ctx, 4, n));
        co_value    *v = co_variable(ctx, first, NULL);
        co_function *f = co_function_of(ctx, scaled, v, NULL);

        for (int i = 0; i < 6; ++i) {
            expect_same(ctx, scaled(ctx, x, v), co_call(ctx, f, x));
            if (i % 2 == 1)
                co_assign(ctx, v, vector(ctx, (float)i * 10, n));
            else
                co_assign_add(ctx, v, vector(ctx, 1, n));
        }
        CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 6);
    }
}

static co_value *
two_variables(co_context *ctx, co_value *args, void *user)
{
    co_value **v = user;

    return co_sub(ctx, co_mul(ctx, co_at(ctx, args, 0), v[0]), v[1]);
}

CO_TEST(variables_that_share_a_tensor_once_do_not_stay_one, "FN-5")
{
    co_value    *first = vector(ctx, 1, 100), *x = co_args(ctx, vector(ctx, 4, 100));
    co_value    *v[2] = { co_variable(ctx, first, NULL), co_variable(ctx, first, NULL) };
    co_function *f = co_function_of(ctx, two_variables, v, NULL);

    for (int i = 0; i < 5; ++i) {
        expect_same(ctx, two_variables(ctx, x, v), co_call(ctx, f, x));
        co_assign_add(ctx, v[i % 2], vector(ctx, 3, 100));
        expect_same(ctx, two_variables(ctx, co_args(ctx, co_identity(ctx, v[0])), v),
                    co_call(ctx, f, co_args(ctx, co_identity(ctx, v[0]))));
    }
}

static co_value *
counts(co_context *ctx, co_value *args, void *v)
{
    co_value *x = co_at(ctx, args, 0), *y = co_mul(ctx, x, v);

    co_assign_add(ctx, v, co_ones_like(ctx, x));
    y = co_add(ctx, y, co_mul(ctx, x, v));
    co_assign_add(ctx, v, co_ones_like(ctx, x));
    return co_add(ctx, y, v);
}

CO_TEST(plans_end_where_variables_change, "FN-5 FN-10")
{
    co_value    *v = co_variable(ctx, vector(ctx, 1, 9), NULL);
    co_value    *w = co_variable(ctx, vector(ctx, 1, 9), NULL);
    co_function *f = co_function_of(ctx, counts, v, NULL);

    for (int i = 0; i < 4; ++i) {
        co_value *x = co_args(ctx, vector(ctx, (float)i, 9));

        expect_same(ctx, counts(ctx, x, w), co_call(ctx, f, x));
        expect_same(ctx, co_identity(ctx, w), co_identity(ctx, v));
    }
    CO_EXPECT_MORE(stats_of(ctx, f).plan_runs, 5);
}

/* --- gradients --- */

typedef struct net {
    co_value     *w, *b;
    co_optimizer *optimizer;
} net;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    net      *n = user;
    co_value *x = co_at(ctx, args, 0), *loss;

    co_tape_begin(ctx);
    loss = co_reduce_mean(ctx,
                          co_square(ctx, co_tanh(ctx, co_add(ctx, co_matmul(ctx, x, n->w), n->b))),
                          CO_ALL_AXES, false);
    co_minimize(ctx, n->optimizer, loss);
    return loss;
}

static net
make_net(co_context *ctx)
{
    const int64_t dims[2] = { 6, 5 };
    co_value     *w = co_reshape(ctx, vector(ctx, -1, 30), dims, 2);

    return (net){ co_variable(ctx, w, NULL), co_variable(ctx, vector(ctx, 0, 5), NULL),
                  co_adam(ctx, NULL) };
}

CO_TEST(a_training_step_is_one_plan_and_an_update, "FN-8")
{
    const int64_t dims[2] = { 4, 6 };
    net           eager = make_net(ctx), captured = make_net(ctx);
    co_function  *f = co_function_of(ctx, train, &captured, NULL);

    for (int i = 0; i < 5; ++i)
        CO_BLOCK(ctx) {
            co_value *x = co_args(ctx, co_reshape(ctx, vector(ctx, (float)i, 24), dims, 2));

            expect_same(ctx, train(ctx, x, &eager), co_call(ctx, f, x));
            expect_same(ctx, co_identity(ctx, eager.w), co_identity(ctx, captured.w));
            expect_same(ctx, co_identity(ctx, eager.b), co_identity(ctx, captured.b));
        }
    CO_EXPECT_INT(stats_of(ctx, f).plans, 1);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 5);
}

static co_value *
second_gradient(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *g;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_square(ctx, x), x);
    g = co_gradient(ctx, y, x);
    return co_args(ctx, y, g, co_gradient(ctx, g, x));
}

CO_TEST(gradients_of_gradients_are_planned, "FN-8")
{
    CO_EXPECT_INT(expect_planned(ctx, second_gradient, NULL, 11, 4).plan_runs, 4);
}

CO_TEST(a_tape_outside_sees_through_a_plan, "FN-8")
{
    co_function *f = co_function_of(ctx, chain, NULL, NULL);

    for (int i = 0; i < 3; ++i) {
        co_value *x = vector(ctx, (float)i, 6), *a, *b;

        co_call(ctx, f, co_args(ctx, x));
        co_tape_begin(ctx);
        co_watch(ctx, x);
        a = co_gradient(ctx, co_at(ctx, co_call(ctx, f, co_args(ctx, x)), 0), x);
        co_tape_begin(ctx);
        co_watch(ctx, x);
        b = co_gradient(ctx, co_at(ctx, chain(ctx, co_args(ctx, x), NULL), 0), x);
        expect_same(ctx, a, b);
    }
}

static co_value *
gradient_of_product(co_context *ctx, co_value *args, void *constant)
{
    co_value *x = co_at(ctx, args, 0), *y = constant != NULL ? constant : co_at(ctx, args, 1);

    co_tape_begin(ctx);
    co_watch(ctx, x);
    return co_gradient(ctx, co_mul(ctx, x, y), x);
}

CO_TEST(one_tensor_in_two_places_has_both_gradients, "FN-7 FN-8")
{
    co_value    *a = vector(ctx, 1, 4), *b = vector(ctx, 5, 4);
    co_function *f = co_function_of(ctx, gradient_of_product, NULL, NULL);
    co_function *g = co_function_of(ctx, gradient_of_product, a, NULL);
    co_value    *calls[] = { co_args(ctx, a, b), co_args(ctx, b, b), co_args(ctx, a, b),
                             co_args(ctx, a, a) };

    for (int i = 0; i < 4; ++i) {
        expect_same(ctx, gradient_of_product(ctx, calls[i], NULL), co_call(ctx, f, calls[i]));
        expect_same(ctx, gradient_of_product(ctx, calls[3 - i], a), co_call(ctx, g, calls[3 - i]));
    }
}

/* --- random numbers --- */

static co_value *
noisy(co_context *ctx, co_value *args, void *user)
{
    co_value     *x = co_at(ctx, args, 0);
    const int64_t n = 5;

    (void)user;
    co_random_uniform(ctx, CO_FLOAT32, &n, 1, 0, 1); /* counts, though nothing uses it */
    return co_args(ctx, co_dropout(ctx, x, 0.5), co_random_normal(ctx, CO_FLOAT32, &n, 1, 0, 1),
                   co_random_uniform(ctx, CO_FLOAT32, &n, 1, 0, 1));
}

CO_TEST(random_numbers_of_plans_are_those_without, "FN-11")
{
    co_function *f = co_function_of(ctx, noisy, NULL, NULL);
    co_value    *x = co_args(ctx, vector(ctx, 1, 100)), *eager[4], *planned[4];

    co_set_seed(ctx, 7);
    for (int i = 0; i < 4; ++i)
        eager[i] = noisy(ctx, x, NULL);
    co_set_seed(ctx, 7);
    for (int i = 0; i < 4; ++i)
        planned[i] = co_call(ctx, f, x);
    for (int i = 0; i < 4; ++i)
        expect_same(ctx, eager[i], planned[i]);
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 4);
}

/* --- errors --- */

static co_value *
looks_up(co_context *ctx, co_value *args, void *v)
{
    co_value *x = co_at(ctx, args, 0), *rows;

    co_assign_add(ctx, v, co_float(ctx, 1));
    rows = co_gather(ctx, vector(ctx, 0, 8), x, 0, 0);
    rows = co_add(ctx, rows, co_float(ctx, 1));
    co_assign_add(ctx, v, co_float(ctx, 10));
    return rows;
}

CO_TEST(an_error_in_a_plan_is_that_of_the_call, "FN-10 GEN-ERR-4")
{
    co_value     *v = co_variable(ctx, co_float(ctx, 0), NULL);
    co_function  *f = co_function_of(ctx, looks_up, v, NULL);
    const int64_t dims[1] = { 2 };
    const int32_t good[2] = { 1, 7 }, bad[2] = { 1, 8 };
    co_value     *right = co_args(ctx, co_tensor(ctx, CO_INT32, dims, 1, good));
    co_value     *wrong = co_args(ctx, co_tensor(ctx, CO_INT32, dims, 1, bad));
    co_error_info eager, planned;

    for (int i = 0; i < 3; ++i)
        co_call(ctx, f, right);
    CO_EXPECT_INT(co_item_int(ctx, v), 33);
    CO_EXPECT_NULL(looks_up(ctx, wrong, v));
    eager = *co_error(ctx);
    co_clear(ctx);
    CO_EXPECT_INT(co_item_int(ctx, v), 34);
    CO_EXPECT_NULL(co_call(ctx, f, wrong));
    planned = *co_error(ctx);
    co_clear(ctx);
    CO_EXPECT_INT(co_item_int(ctx, v), 35);
    CO_EXPECT_CODE(planned.code, eager.code);
    CO_EXPECT_STR(planned.message, eager.message);
    CO_EXPECT_STR(planned.call, eager.call);
    CO_EXPECT_INT(planned.line, eager.line);
    expect_same(ctx, looks_up(ctx, right, v), co_call(ctx, f, right));
}

/* --- what has no plan --- */

/* Variables that share a tensor for a while are in the way of a plan for as long. */
CO_TEST(what_values_prevent_is_tried_again, "FN-5")
{
    co_value    *first = vector(ctx, 1, 100), *x = co_args(ctx, vector(ctx, 4, 100));
    co_value    *v[2] = { co_variable(ctx, first, NULL), co_variable(ctx, first, NULL) };
    co_function *f = co_function_of(ctx, two_variables, v, NULL);

    for (int i = 0; i < 8; ++i)
        expect_same(ctx, two_variables(ctx, x, v), co_call(ctx, f, x));
    CO_EXPECT_INT(stats_of(ctx, f).plans, 0);
    co_assign(ctx, v[1], vector(ctx, 7, 100));
    expect_same(ctx, two_variables(ctx, x, v), co_call(ctx, f, x));
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 1);
}

static co_value *
dense_sum(co_context *ctx, co_value *args, void *indices)
{
    const int64_t one = 1, six = 6;
    co_value     *rows = co_square(ctx, co_at(ctx, args, 0));

    return co_add(ctx, co_slices(ctx, rows, indices, co_tensor(ctx, CO_INT64, &one, 1, &six)),
                  co_float(ctx, 1));
}

CO_TEST(slices_in_a_function_are_not_read_while_it_is_recorded, "FN-2")
{
    const int64_t at[3] = { 4, 0, 4 };
    const int64_t n = 3;

    expect_planned(ctx, dense_sum, co_tensor(ctx, CO_INT64, &n, 1, at), 3, 4);
}

static void
count_starts(const co_observation *seen, void *count)
{
    *(int *)count += seen->phase == CO_OBSERVE_BEGIN;
}

CO_TEST_WITH(observers_see_every_kernel, "FN-2", "cpus=1")
{
    co_function *f = co_function_of(ctx, chain, NULL, NULL);
    co_value    *args = co_args(ctx, vector(ctx, 1, 6));
    int          eager = 0, captured = 0;
    co_observer *observer;

    co_call(ctx, f, args);
    co_call(ctx, f, args);
    observer = co_observe(ctx, count_starts, &eager);
    chain(ctx, args, NULL);
    co_unobserve(ctx, observer);
    observer = co_observe(ctx, count_starts, &captured);
    co_call(ctx, f, args);
    co_unobserve(ctx, observer);
    CO_EXPECT_INT(captured, eager);
    CO_EXPECT_MORE(eager, 10);
}

/* --- memory --- */

/* Forty layers, of which the backward pass needs every result. */
static co_value *
deep(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = x;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    for (int i = 0; i < 40; ++i)
        y = co_relu(ctx, co_sub(ctx, co_float(ctx, 1), co_relu(ctx, y)));
    return co_gradient(ctx, co_reduce_sum(ctx, y, CO_ALL_AXES, false), x);
}

static int64_t
most_held(co_context *ctx)
{
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    co_get_memory_stats(ctx, &stats);
    return stats.bytes_in_use;
}

CO_TEST_WITH(a_first_call_takes_no_memory_for_what_is_dropped, "FN-2", "cpus=1")
{
    const int64_t n = 1 << 18;
    co_value     *args = co_args(ctx, co_zeros(ctx, CO_FLOAT32, &n, 1));
    co_function  *f = co_function_of(ctx, deep, NULL, NULL);
    int64_t       before = most_held(ctx), planned, eager;

    CO_BLOCK(ctx) {
        co_call(ctx, f, args);
    }
    planned = most_held(ctx) - before;
    before += planned;
    CO_BLOCK(ctx) {
        deep(ctx, args, NULL);
    }
    eager = most_held(ctx) - before + planned;
    CO_EXPECT_LESS(2 * planned, eager);
}

/* --- parts of tensors as views --- */

typedef struct heads {
    co_value *w;
    bool      uses_part; /* something that wants dense rows uses a part, too */
    bool      is_result; /* a part is a result */
} heads;

static co_value *
attends(co_context *ctx, co_value *args, void *user)
{
    const heads         *h = user;
    co_attention_options causal = CO_ATTENTION_OPTIONS_INIT;
    co_value            *z, *parts, *y, *dw;

    causal.causal = true;
    co_tape_begin(ctx);
    z = co_matmul(ctx, co_at(ctx, args, 0), h->w);
    parts = co_split(ctx, z, 3, -1);
    y = co_attention(ctx, co_at(ctx, parts, 0), co_at(ctx, parts, 1), co_at(ctx, parts, 2), 2,
                     &causal);
    if (h->uses_part)
        y = co_add(ctx, y, co_at(ctx, parts, 1));
    dw = co_gradient(ctx, co_reduce_sum(ctx, co_square(ctx, y), CO_ALL_AXES, false), h->w);
    return co_args(ctx, y, dw, h->is_result ? co_at(ctx, parts, 2) : y);
}

static int64_t
planned_bytes_of_heads(co_context *ctx, heads *h)
{
    const int64_t dims[2] = { 6, 5 };
    co_function  *f = co_function_of(ctx, attends, h, NULL);

    for (int i = 0; i < 3; ++i)
        CO_BLOCK(ctx) {
            co_value *x = co_args(ctx, co_reshape(ctx, vector(ctx, i, 30), dims, 2));

            expect_same(ctx, attends(ctx, x, h), co_call(ctx, f, x));
        }
    CO_EXPECT_INT(stats_of(ctx, f).plan_runs, 3);
    return stats_of(ctx, f).planned_bytes;
}

CO_TEST(attention_reads_and_writes_parts_where_they_lie, "FN-2")
{
    const int64_t dims[2] = { 5, 12 };
    heads   h = { co_variable(ctx, co_reshape(ctx, vector(ctx, -2, 60), dims, 2), NULL), false,
                  false };
    int64_t views = planned_bytes_of_heads(ctx, &h);

    h.uses_part = true;
    CO_EXPECT_LESS(views, planned_bytes_of_heads(ctx, &h));
    h.is_result = true;
    planned_bytes_of_heads(ctx, &h);
    h.uses_part = false;
    planned_bytes_of_heads(ctx, &h);
}

/* --- want of memory --- */

/* Three calls; whether all were right. Those that were not say so. */
static bool
call_thrice(co_context *ctx)
{
    co_function *f = co_function_of(ctx, second_gradient, NULL, NULL);
    bool         ok = true;

    for (int i = 0; i < 3 && ok; ++i) {
        co_value *args = co_args(ctx, vector(ctx, i, 200)), *planned = co_call(ctx, f, args);
        co_value *eager = second_gradient(ctx, args, NULL);

        ok = co_ok(ctx);
        if (ok)
            expect_same(ctx, eager, planned);
    }
    return ok && co_ok(ctx);
}

CO_TEST_BARE(without_memory_for_a_plan_the_calls_are_made, "FN-10")
{
    expect_survival(call_thrice);
}

/* --- calls that are refused --- */

static co_value *
copies(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_copy_to(ctx, co_at(ctx, args, 0), "/cpu:1");
}

CO_TEST_WITH(a_copy_to_another_device_is_refused_by_name, "FN-13", "cpus=2")
{
    co_call(ctx, co_function_of(ctx, copies, NULL, NULL), co_args(ctx, vector(ctx, 1, 3)));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "copy_to another device cannot be captured");
}

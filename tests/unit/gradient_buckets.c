/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients are summed over replicas in buckets, and a plan starts a bucket while its backward pass
 * goes on. Results have the bits of steps that are not captured, and what goes wrong meanwhile
 * fails as it does there.
 */
#include <cohort/flight_recorder.h>
#include <cohort/function.h>

#include "function_plans.h"
#include "engine_support.h"
#include "hooks.h"

#include "strategy/rendezvous.h"

#include <time.h>

/* Three layers; the gradient of the middle one is 1 MiB, so that there are two buckets: the last
 * two layers, and the first. */
enum { FEATURES = 48, UNITS = 512, CLASSES = 3, ROWS = 6, NUM_WEIGHTS = 6 };

/* What the last replica of a run does otherwise. */
typedef enum what_last_does { LIKE_THE_OTHERS, WITHOUT_CAPTURING, RETURNS, SLEEPS } what_last_does;

typedef struct net {
    co_strategy   *strategy;
    co_value      *weights[NUM_WEIGHTS];
    co_value      *total; /* of losses, on each replica */
    co_optimizer  *sgd;
    co_function   *function; /* the step, captured */
    co_fn          step;
    what_last_does last;
    atomic_bool    is_told;
    atomic_int     num_posts; /* replicas that have started a collective before its rendezvous */
} net;

static co_value *
ramp(co_context *ctx, const int64_t *dims, int ndim, double by)
{
    int64_t   n = 1;
    float    *data;
    co_value *made;

    for (int i = 0; i < ndim; ++i)
        n *= dims[i];
    data = malloc((size_t)n * sizeof(*data));
    for (int64_t i = 0; data != NULL && i < n; ++i)
        data[i] = (float)(by * (double)((i * 7919) % 101 - 50));
    made = data != NULL ? co_tensor(ctx, CO_FLOAT32, dims, ndim, data) : NULL;
    free(data);
    return made;
}

static co_value *
layer(co_context *ctx, const net *m, int i, co_value *x)
{
    return co_add(ctx, co_matmul(ctx, x, m->weights[2 * i]), m->weights[2 * i + 1]);
}

static co_value *
loss_of(co_context *ctx, const net *m, co_value *x)
{
    co_value *h = co_tanh(ctx, layer(ctx, m, 0, x));

    h = layer(ctx, m, 2, co_tanh(ctx, layer(ctx, m, 1, h)));
    return co_reduce_mean(ctx, co_mul(ctx, h, h), CO_ALL_AXES, false);
}

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    net      *m = user;
    co_value *loss;

    co_tape_begin(ctx);
    loss = loss_of(ctx, m, co_at(ctx, args, 0));
    co_minimize(ctx, m->sgd, loss);
    return loss;
}

/* The same with one all_reduce of all gradients, and without buckets. */
static co_value *
train_in_one(co_context *ctx, co_value *args, void *user)
{
    co_apply_gradients_options options = CO_APPLY_GRADIENTS_OPTIONS_INIT;
    net                       *m = user;
    co_value                  *loss, *weights = co_list(ctx, m->weights, NUM_WEIGHTS), *sums;

    co_tape_begin(ctx);
    loss = loss_of(ctx, m, co_at(ctx, args, 0));
    sums = co_all_reduce(ctx, CO_REDUCE_SUM, co_gradient(ctx, loss, weights));
    options.skip_aggregation = true;
    co_apply_gradients_with(ctx, m->sgd, sums, weights, &options);
    return loss;
}

/* After the backward pass, while both buckets may have been started, a row is taken that there may
 * not be. */
static co_value *
train_and_take(co_context *ctx, co_value *args, void *user)
{
    net      *m = user;
    co_value *x = co_at(ctx, args, 0), *loss, *row, *gradients;
    co_value *weights = co_list(ctx, m->weights, NUM_WEIGHTS);

    co_tape_begin(ctx);
    loss = loss_of(ctx, m, x);
    gradients = co_gradient(ctx, loss, weights);
    row = co_gather(ctx, co_tanh(ctx, x), co_at(ctx, args, 1), 0, 0);
    co_apply_gradients(ctx, m->sgd, gradients, weights);
    return co_args(ctx, loss, row);
}

/* Calls with an effect under the tape, which are between the kernels of the plan; replicas meet in
 * one of them. What the mean after it takes is there before it. */
static co_value *
train_with_calls(co_context *ctx, co_value *args, void *user)
{
    net      *m = user;
    co_value *x = co_at(ctx, args, 0), *y = co_reduce_mean(ctx, co_tanh(ctx, x), CO_AXES(0), false);
    co_value *weights = co_list(ctx, m->weights, NUM_WEIGHTS), *loss, *sum, *gradients, *mean;

    co_tape_begin(ctx);
    loss = loss_of(ctx, m, x);
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_args(ctx, loss, y));
    co_assign_add(ctx, m->total, loss);
    gradients = co_gradient(ctx, loss, weights);
    mean = co_all_reduce(ctx, CO_REDUCE_MEAN, y);
    co_apply_gradients(ctx, m->sgd, gradients, weights);
    return co_args(ctx, loss, sum, mean);
}

static void
net_make(co_context *ctx, net *m, co_strategy *strategy, co_fn step)
{
    const int64_t       units[] = { FEATURES, UNITS, UNITS, CLASSES };
    co_sgd_options      options = CO_SGD_OPTIONS_INIT;
    co_variable_options of_total = CO_VARIABLE_OPTIONS_INIT;

    m->strategy = strategy;
    options.learning_rate = 0.05;
    options.momentum = 0.9;
    of_total.synchronization = CO_SYNC_ON_READ;
    of_total.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, strategy) {
        for (int i = 0; i < 3; ++i) {
            m->weights[2 * i] = co_variable(ctx, ramp(ctx, &units[i], 2, 0.001), NULL);
            m->weights[2 * i + 1] = co_variable(ctx, ramp(ctx, &units[i + 1], 1, 0.01), NULL);
        }
        m->total = co_variable(ctx, co_float(ctx, 0), &of_total);
        m->sgd = co_sgd(ctx, &options);
    }
    m->step = step;
    m->function = co_function_of(ctx, step, m, NULL);
}

/* A batch for each replica. */
static co_value *
batches(co_context *ctx, const net *m, int number)
{
    co_value *parts[8];
    int       n = co_num_local_replicas(ctx, m->strategy);

    for (int i = 0; i < n; ++i)
        parts[i] = ramp(ctx, CO_SHAPE(ROWS + i, FEATURES), 0.002 * (number + 2 * i + 1));
    return n > 1 ? co_per_replica_value(ctx, parts, (size_t)n) : parts[0];
}

static void
expect_same_parts(co_context *ctx, co_value *x, co_value *y)
{
    for (size_t k = 0; k < co_num_items(ctx, x); ++k)
        expect_same(ctx, co_variable_read(ctx, co_at(ctx, x, k)),
                    co_variable_read(ctx, co_at(ctx, y, k)));
}

static void
expect_same_weights(co_context *ctx, const net *a, const net *b)
{
    CO_EXPECT_OK(ctx);
    for (int i = 0; i < NUM_WEIGHTS; ++i)
        expect_same_parts(ctx, co_local_results(ctx, a->strategy, a->weights[i]),
                          co_local_results(ctx, b->strategy, b->weights[i]));
    expect_same_parts(ctx, co_local_results(ctx, a->strategy, a->total),
                      co_local_results(ctx, b->strategy, b->total));
}

static void
count_sums(const co_flight_record *record, void *user)
{
    *(int *)user += strcmp(record->kind, "all_reduce") == 0 && record->outcome == CO_OK &&
                    record->arrived == record->expected;
}

static int
num_sums(co_context *ctx, const net *m)
{
    int n = 0;

    co_flight_visit(ctx, m->strategy, count_sums, &n);
    return n;
}

/* Whether this replica has started a collective of its step before it came to its rendezvous. */
static bool
has_posted(co_context *ctx)
{
    const coi_rendezvous_slot *slot = coi_my_slot(ctx);

    for (int i = 0; i < COI_MOST_STARTED; ++i)
        if (slot->posts[i] != NULL)
            return true;
    return false;
}

/* A step around the captured one. */
static co_value *
call_captured(co_context *ctx, co_value *args, void *user)
{
    net      *m = user;
    bool      is_last = co_replica_id(ctx) == co_num_replicas_in_sync(ctx, m->strategy) - 1;
    co_value *result;

    if (is_last && m->last == RETURNS)
        return co_int(ctx, 1);
    while (is_last && m->last == SLEEPS && !atomic_load(&m->is_told))
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    if (is_last && m->last == WITHOUT_CAPTURING)
        return m->step(ctx, args, m);
    result = co_call(ctx, m->function, args);
    atomic_fetch_add(&m->num_posts, has_posted(ctx));
    atomic_store(&m->is_told, true);
    return result;
}

/* --- the same bits --- */

CO_TEST_WITH(buckets_have_the_bits_of_one_sum, "FN-2 S-REDUCE-9", "cpus=2")
{
    for (int n = 1; n <= 4; ++n) {
        net eager = { .last = LIKE_THE_OTHERS }, captured = eager, whole = eager;

        net_make(ctx, &eager, test_mirrored(ctx, n, -1), train);
        net_make(ctx, &captured, test_mirrored(ctx, n, -1), train);
        net_make(ctx, &whole, test_mirrored(ctx, n, -1), train_in_one);
        for (int i = 0; i < 5; ++i)
            CO_BLOCK(ctx) {
                co_value *args = co_args(ctx, batches(ctx, &eager, i)), *a, *b, *c;

                a = co_run(ctx, eager.strategy, train, args, &eager);
                b = co_run(ctx, captured.strategy, call_captured, args, &captured);
                c = co_run(ctx, whole.strategy, co_captured, args, whole.function);
                expect_same(ctx, a, b);
                expect_same(ctx, a, c);
            }
        expect_same_weights(ctx, &eager, &captured);
        expect_same_weights(ctx, &eager, &whole);
        /* Two buckets and one sum, with and without a plan. */
        CO_EXPECT_INT(num_sums(ctx, &eager), n > 1 ? 10 : 0);
        CO_EXPECT_INT(num_sums(ctx, &captured), n > 1 ? 10 : 0);
        CO_EXPECT_INT(num_sums(ctx, &whole), n > 1 ? 5 : 0);
        CO_EXPECT_INT(atomic_load(&captured.num_posts), n > 1 ? 5 * n : 0);
    }
}

CO_TEST_WITH(buckets_start_after_the_calls_of_a_plan, "FN-2 FN-8", "cpus=2")
{
    for (int n = 2; n <= 3; ++n) {
        net eager = { .strategy = test_mirrored(ctx, n, -1) }, captured = eager;

        net_make(ctx, &eager, eager.strategy, train_with_calls);
        net_make(ctx, &captured, eager.strategy, train_with_calls);
        for (int i = 0; i < 5; ++i) {
            co_value *args = co_args(ctx, batches(ctx, &eager, i));

            expect_same(ctx, co_run(ctx, eager.strategy, train_with_calls, args, &eager),
                        co_run(ctx, eager.strategy, call_captured, args, &captured));
        }
        expect_same_weights(ctx, &eager, &captured);
        /* Each time the call of the plan, the mean, two buckets, on both sides. */
        CO_EXPECT_INT(num_sums(ctx, &eager), 2 * 5 * 4);
        CO_EXPECT_INT(atomic_load(&captured.num_posts), 5 * n);
        CO_EXPECT_INT(stats_of(ctx, captured.function).plan_runs, 5 * n);
    }
}

CO_TEST_WITH(replicas_may_take_turns_with_buckets, "FN-2 S-RUN-7", "cpus=2")
{
    net            eager = { .last = LIKE_THE_OTHERS }, captured = eager;
    co_run_options options = CO_RUN_OPTIONS_INIT;

    options.in_turn = true;
    net_make(ctx, &eager, test_mirrored(ctx, 3, -1), train);
    net_make(ctx, &captured, test_mirrored(ctx, 3, -1), train);
    for (int i = 0; i < 3; ++i) {
        co_value *args = co_args(ctx, batches(ctx, &eager, i));

        expect_same(ctx, co_run(ctx, eager.strategy, train, args, &eager),
                    co_run_with(ctx, captured.strategy, call_captured, args, &captured, &options));
    }
    expect_same_weights(ctx, &eager, &captured);
}

CO_TEST_WITH(a_replica_without_a_plan_meets_those_with_one, "FN-2", "cpus=2")
{
    net eager = { .last = LIKE_THE_OTHERS }, captured = { .last = WITHOUT_CAPTURING };

    net_make(ctx, &eager, test_mirrored(ctx, 3, -1), train);
    net_make(ctx, &captured, test_mirrored(ctx, 3, -1), train);
    for (int i = 0; i < 4; ++i) {
        co_value *args = co_args(ctx, batches(ctx, &eager, i));

        expect_same(ctx, co_run(ctx, eager.strategy, train, args, &eager),
                    co_run(ctx, captured.strategy, call_captured, args, &captured));
    }
    expect_same_weights(ctx, &eager, &captured);
    CO_EXPECT_INT(atomic_load(&captured.num_posts), 8); /* of the other two */
}

static void
count_starts(const co_observation *start, void *user)
{
    if (start->phase == CO_OBSERVE_BEGIN && strcmp(start->op, "all_reduce") == 0)
        atomic_fetch_add((atomic_int *)user, 1);
}

CO_TEST_WITH(an_observer_sees_the_buckets, "", "cpus=2")
{
    net          m = { .last = LIKE_THE_OTHERS };
    atomic_int   sums = 0;
    co_observer *observer;

    net_make(ctx, &m, test_mirrored(ctx, 2, -1), train);
    co_run(ctx, m.strategy, co_captured, co_args(ctx, batches(ctx, &m, 0)), m.function);
    observer = co_observe(ctx, count_starts, &sums);
    co_run(ctx, m.strategy, co_captured, co_args(ctx, batches(ctx, &m, 1)), m.function);
    CO_EXPECT_OK(ctx);
    co_unobserve(ctx, observer);
    CO_EXPECT_INT(atomic_load(&sums), 2 * 2);
}

/* --- collectives of the function itself --- */

/* Many sums of what is there long before the region ends; one of them is a gather, which is not
 * started, nor is what comes after it. */
static co_value *
many_sums(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = co_tanh(ctx, x), *z = y, *parts[20];
    int       gathers = *(const int *)user;

    for (int i = 0; i < 20; ++i)
        parts[i] = co_mul(ctx, y, co_float(ctx, i + 1));
    for (int i = 0; i < 6; ++i)
        z = co_matmul(ctx, z, z);
    for (int i = 0; i < 20; ++i)
        parts[i] = i == gathers ? co_all_gather(ctx, parts[i], 0)
                                : co_all_reduce(ctx, i % 2 ? CO_REDUCE_SUM : CO_REDUCE_MEAN,
                                                co_args(ctx, parts[i], y));
    return co_args(ctx, z, co_list(ctx, parts, 20));
}

CO_TEST_WITH(collectives_that_follow_a_region_keep_their_order, "FN-2", "cpus=2")
{
    for (int gathers = -1; gathers < 20; gathers += 7)
        for (int n = 2; n <= 3; ++n) {
            net          m = { .strategy = test_mirrored(ctx, n, -1) };
            co_function *f = co_function_of(ctx, many_sums, &gathers, NULL);
            co_value    *parts[3], *args;

            for (int i = 0; i < n; ++i)
                parts[i] = ramp(ctx, CO_SHAPE(80, 80), 0.001 * (i + 1));
            args = co_args(ctx, co_per_replica_value(ctx, parts, (size_t)n));
            for (int i = 0; i < 3; ++i)
                expect_same(ctx, co_run(ctx, m.strategy, many_sums, args, &gathers),
                            co_run(ctx, m.strategy, co_captured, args, f));
        }
}

/* y is there before z, so that its sum is started. */
static co_value *
sum_of_first(co_context *ctx, co_value *args, void *user)
{
    co_value *y = co_tanh(ctx, co_at(ctx, args, 0)), *z = co_at(ctx, args, 1);

    (void)user;
    for (int i = 0; i < 4; ++i)
        z = co_matmul(ctx, z, z);
    return co_args(ctx, z, co_all_reduce(ctx, CO_REDUCE_SUM, y));
}

CO_TEST_WITH(replicas_that_disagree_about_what_they_started_fail, "RC-AR-4 GEN-ERR-1", "cpus=2")
{
    co_strategy *strategy = test_mirrored(ctx, 2, -1);
    co_function *f = co_function_of(ctx, sum_of_first, NULL, NULL);

    for (int i = 0; i < 3; ++i) {
        co_value *good[] = { ramp(ctx, CO_SHAPE(9000), 1), ramp(ctx, CO_SHAPE(9000), 2) };
        co_value *bad[] = { good[0], ramp(ctx, CO_SHAPE(8000), 2) };
        co_value *square = ramp(ctx, CO_SHAPE(40, 40), 0.01);
        co_value *args = co_args(ctx, co_per_replica_value(ctx, good, 2), square);

        CO_EXPECT_NULL(co_run(ctx, strategy, co_captured,
                              co_args(ctx, co_per_replica_value(ctx, bad, 2), square), f));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                        "shape [9000] on replica 0 and [8000] on replica 1");
        expect_same(ctx, co_run(ctx, strategy, sum_of_first, args, NULL),
                    co_run(ctx, strategy, co_captured, args, f));
    }
}

/* --- what goes wrong between the buckets --- */

/* Several runs in which the last replica does something else, and between them good ones. */
static void
expect_failures(co_context *ctx, net *m, what_last_does last, co_code code, const char *text)
{
    net eager = { .last = LIKE_THE_OTHERS };

    net_make(ctx, &eager, m->strategy, m->step);
    for (int i = 0; i < 4; ++i) {
        co_value *args = co_args(ctx, batches(ctx, m, i));

        m->last = last;
        atomic_store(&m->is_told, false);
        CO_EXPECT_NULL(co_run(ctx, m->strategy, call_captured, args, m));
        CO_EXPECT_ERROR(ctx, code, text);
        m->last = LIKE_THE_OTHERS;
        expect_same(ctx, co_run(ctx, m->strategy, m->step, args, &eager),
                    co_run(ctx, m->strategy, call_captured, args, m));
    }
    expect_same_weights(ctx, &eager, m);
}

CO_TEST_WITH(a_replica_that_returns_ends_what_others_started, "S-RUN-8", "cpus=2")
{
    for (int n = 2; n <= 3; ++n) {
        net m = { .last = LIKE_THE_OTHERS };

        net_make(ctx, &m, test_mirrored(ctx, n, -1), train);
        expect_failures(ctx, &m, RETURNS, CO_RUNTIME_ERROR, "has returned from the step");
    }
}

CO_TEST_WITH(a_deadline_ends_what_others_started, "", "cpus=2")
{
    net m = { .last = LIKE_THE_OTHERS };

    net_make(ctx, &m, test_mirrored(ctx, 2, 400), train);
    expect_failures(ctx, &m, SLEEPS, CO_DEADLINE_EXCEEDED, "has executed nothing for 400 ms");
}

/* Rows of a batch: the last replica takes one that is not there. */
static co_value *
rows(co_context *ctx, int n, int64_t of_last)
{
    co_value *parts[4];

    for (int i = 0; i < n; ++i) {
        int64_t row = i == n - 1 ? of_last : i;

        parts[i] = co_tensor(ctx, CO_INT64, (int64_t[]){ 1 }, 1, &row);
    }
    return co_per_replica_value(ctx, parts, (size_t)n);
}

CO_TEST_WITH(a_replica_that_fails_after_it_started_ends_the_step, "S-RUN-8 GEN-ERR-1", "cpus=2")
{
    for (int n = 2; n <= 4; ++n) {
        net eager = { .last = LIKE_THE_OTHERS }, m = eager;

        net_make(ctx, &m, test_mirrored(ctx, n, -1), train_and_take);
        net_make(ctx, &eager, m.strategy, train_and_take);
        for (int i = 0; i < 5; ++i) {
            co_value *x = batches(ctx, &m, i), *good = co_args(ctx, x, rows(ctx, n, 1));
            int       posts = atomic_load(&m.num_posts);

            CO_EXPECT_NULL(
                co_run(ctx, m.strategy, call_captured, co_args(ctx, x, rows(ctx, n, 999)), &m));
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "999");
            CO_EXPECT_MORE(atomic_load(&m.num_posts), posts); /* it, and who began before it */
            expect_same(ctx, co_run(ctx, m.strategy, train_and_take, good, &eager),
                        co_run(ctx, m.strategy, call_captured, good, &m));
        }
        expect_same_weights(ctx, &eager, &m);
    }
}

/* The last replica forgets its failure and brings something else of the same shape. */
static co_value *
sum_and_take(co_context *ctx, co_value *args, void *user)
{
    co_value *y = co_tanh(ctx, co_at(ctx, args, 0)), *z;

    (void)user;
    z = co_matmul(ctx, y, y);
    z = co_gather(ctx, co_matmul(ctx, z, z), co_at(ctx, args, 1), 0, 0);
    return co_args(ctx, z, co_all_reduce(ctx, CO_REDUCE_SUM, co_args(ctx, y)));
}

static co_value *
forget_and_sum(co_context *ctx, co_value *args, void *user)
{
    co_value *result = co_call(ctx, user, args);

    if (result != NULL)
        return co_at(ctx, co_at(ctx, result, 1), 0);
    CO_EXPECT_TRUE(has_posted(ctx));
    co_clear(ctx);
    result = co_all_reduce(ctx, CO_REDUCE_SUM,
                           co_args(ctx, co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, 0))));
    return co_at(ctx, result, 0);
}

CO_TEST_WITH(what_a_replica_drops_is_not_summed, "", "cpus=2")
{
    for (int n = 2; n <= 3; ++n) {
        co_strategy *strategy = test_mirrored(ctx, n, -1);
        co_function *f = co_function_of(ctx, sum_and_take, NULL, NULL);
        co_value    *x = ramp(ctx, CO_SHAPE(90, 90), 0.01), *y = co_tanh(ctx, x), *sum = y;

        for (int i = 2; i < n; ++i)
            sum = co_add(ctx, sum, y);
        for (int i = 0; i < 6; ++i) {
            co_value *all = co_run(ctx, strategy, forget_and_sum,
                                   co_args(ctx, x, rows(ctx, n, i == 0 ? 1 : 999)), f);

            CO_EXPECT_OK(ctx);
            for (int k = 0; i > 0 && k < n; ++k)
                expect_same(ctx, sum, co_at(ctx, all, (size_t)k));
        }
    }
}

/* --- without memory --- */

static bool
train_thrice(co_context *ctx)
{
    net m = { .last = LIKE_THE_OTHERS };

    net_make(ctx, &m, test_mirrored(ctx, 2, -1), train);
    for (int i = 0; i < 3 && co_ok(ctx); ++i)
        co_run(ctx, m.strategy, co_captured, co_args(ctx, batches(ctx, &m, i)), m.function);
    return co_ok(ctx);
}

CO_TEST_BARE(without_memory_for_a_bucket_the_step_fails_or_is_right, "FN-10")
{
    bool done = false;

    for (long long n = TEST_SANITIZED ? 200 : 1; !done; n += TEST_SANITIZED ? 7 : 1) {
        test_hooks  hooks;
        co_options  options = CO_OPTIONS_INIT;
        co_context *own;

        test_hooks_init(&hooks, n);
        options.allocator = &hooks.allocator;
        options.settings = "cpus=2";
        own = co_open_with(&options);
        if (own != NULL) {
            bool right = train_thrice(own);

            CO_EXPECT_TRUE(right || co_error(own)->code == CO_RESOURCE_EXHAUSTED);
            done = atomic_load(&hooks.requests) < n;
            co_clear(own);
            co_close(own);
        }
        CO_EXPECT_INT(atomic_load(&hooks.blocks), 0);
    }
}

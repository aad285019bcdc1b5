/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured functions: what a call and an operator of a replay cost, what capturing and planning
 * cost against the same calls without, and what chains of element-wise operators gain.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

enum { CHAIN = 1000, ROUNDS = 300, LONG = 10000 };

typedef struct chain {
    co_value *factor;
    int       length;
} chain;

static co_value *
multiply(co_context *ctx, co_value *args, void *user)
{
    const chain *c = user;
    co_value    *y = co_at(ctx, args, 0);

    for (int i = 0; i < c->length; ++i)
        y = co_mul(ctx, y, c->factor);
    return y;
}

static double
time_call(co_context *ctx, co_function *f, co_value *args, int times)
{
    double begin = bench_now();

    for (int i = 0; i < times; ++i)
        CO_BLOCK(ctx) {
            co_call(ctx, f, args);
        }
    return (bench_now() - begin) / times;
}

static double
time_eager(co_context *ctx, co_fn fn, void *user, co_value *args)
{
    double begin = bench_now();

    CO_BLOCK(ctx) {
        fn(ctx, args, user);
    }
    return bench_now() - begin;
}

/* A call of a function that was not captured before. */
static double
time_capture(co_context *ctx, co_fn fn, void *user, co_value *args)
{
    double time = 0;

    CO_BLOCK(ctx) {
        co_function *f = co_function_of(ctx, fn, user, NULL);
        double       begin = bench_now();

        co_call(ctx, f, args);
        time = bench_now() - begin;
    }
    return time;
}

static void
measure_replay(co_context *ctx)
{
    co_value     *args = co_args(ctx, co_scalar_float(ctx, 1));
    co_value     *factor = co_scalar_float(ctx, 1);
    chain         many = { factor, CHAIN }, one = { factor, 1 }, longest = { factor, LONG };
    co_function  *f = co_function_of(ctx, multiply, &many, NULL);
    co_function  *g = co_function_of(ctx, multiply, &one, NULL);
    bench_samples per_op = { .n = 0 }, per_call = { .n = 0 }, eager = { .n = 0 };
    bench_samples capture_long = { .n = 0 };
    int64_t       allocations;

    time_call(ctx, f, args, 3);
    time_call(ctx, g, args, 3);
    allocations = bench_memory(ctx).system_allocations;
    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        bench_add(&per_op, time_call(ctx, f, args, 1) / CHAIN * 1e9);
        bench_add(&per_call, time_call(ctx, g, args, 1000) * 1e9);
    }
    allocations = bench_memory(ctx).system_allocations - allocations;
    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);)
        bench_add(&eager, time_eager(ctx, multiply, &many, args) / CHAIN * 1e9);
    for (bench_clock c = bench_begin(10, 3); bench_more(&c);)
        bench_add(&capture_long, time_capture(ctx, multiply, &longest, args));
    bench_check(ctx);
    bench_report_samples("function_ns", "ns", &per_op, bench_best(&eager),
                         "the operator without capturing", 15);
    bench_report_samples("function_call_ns", "ns", &per_call, NAN, NULL, 100);
    bench_report_samples("capture_10k_s", "s", &capture_long, NAN, NULL, 1);
    bench_report(&(bench_figure){ .name = "function_allocations",
                                  .unit = "",
                                  .best = (double)allocations,
                                  .median = (double)allocations,
                                  .limit = NAN,
                                  .goal = 0 });
}

/* --- a step, and a plan for another batch size --- */

typedef struct layer {
    co_value     *w, *b;
    co_optimizer *optimizer;
} layer;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    const layer *l = user;
    co_value    *loss;

    co_tape_begin(ctx);
    loss = co_reduce_mean(
        ctx,
        co_square(ctx, co_relu(ctx, co_add(ctx, co_matmul(ctx, co_at(ctx, args, 0), l->w), l->b))),
        CO_ALL_AXES, false);
    co_minimize(ctx, l->optimizer, loss);
    return loss;
}

/* Best against best, median against median: single samples of a few microseconds are compared with
 * others of their kind. */
static void
report_ratio(const char *name, bench_samples *times, bench_samples *eager, double goal)
{
    bench_report(&(bench_figure){ .name = name,
                                  .unit = "x eager",
                                  .best = bench_best(times) / bench_best(eager),
                                  .median = bench_median(times) / bench_median(eager),
                                  .limit = NAN,
                                  .goal = goal });
}

static void
measure_plan(co_context *ctx)
{
    const int64_t       any[2] = { -1, 64 }, wide[2] = { 64, 64 }, row = 64;
    layer               l = { co_variable(ctx, co_fill(ctx, wide, 2, co_float(ctx, 0.01)), NULL),
                              co_variable(ctx, co_zeros(ctx, CO_FLOAT32, &row, 1), NULL), co_sgd(ctx, NULL) };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    bench_samples       plans = { .n = 0 }, captures = { .n = 0 }, eagers = { .n = 0 };

    options.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, any, 2));
    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);)
        CO_BLOCK(ctx) {
            co_function  *f = co_function_of(ctx, train, &l, &options);
            const int64_t dims[2] = { 32, 64 }, more[2] = { 33, 64 };
            co_value     *first = co_args(ctx, co_ones(ctx, CO_FLOAT32, dims, 2));
            co_value     *second = co_args(ctx, co_ones(ctx, CO_FLOAT32, more, 2));

            time_call(ctx, f, first, 2);
            time_eager(ctx, train, &l, second);
            bench_add(&eagers, time_eager(ctx, train, &l, second) * 1e6);
            bench_add(&plans, time_call(ctx, f, second, 1) * 1e6);
            bench_add(&captures, time_capture(ctx, train, &l, second) * 1e6);
        }
    bench_check(ctx);
    report_ratio("plan_ratio", &plans, &eagers, 2);
    report_ratio("capture_ratio", &captures, &eagers, 5);
}

/* --- chains --- */

/* What Adam does to a parameter: twelve operators. */
static co_value *
adam_like(co_context *ctx, co_value *args, void *user)
{
    co_value *g = co_at(ctx, args, 0), *m = co_at(ctx, args, 1), *v = co_at(ctx, args, 2);
    co_value *w = co_at(ctx, args, 3), *step;

    (void)user;
    m = co_add(ctx, co_mul(ctx, m, co_float(ctx, 0.9)), co_mul(ctx, g, co_float(ctx, 0.1)));
    v = co_add(ctx, co_mul(ctx, v, co_float(ctx, 0.999)),
               co_mul(ctx, co_square(ctx, g), co_float(ctx, 0.001)));
    step = co_div(ctx, m, co_add(ctx, co_sqrt(ctx, v), co_float(ctx, 1e-7)));
    return co_sub(ctx, w, co_mul(ctx, step, co_float(ctx, 0.001)));
}

static void
measure_chain(co_context *ctx, const char *name, int64_t n, double goal)
{
    bench_samples eager = { .n = 0 }, fused = { .n = 0 };

    CO_BLOCK(ctx) {
        co_function *f = co_function_of(ctx, adam_like, NULL, NULL);
        co_value    *args = co_args(ctx, co_fill(ctx, &n, 1, co_float(ctx, 0.3)),
                                    co_fill(ctx, &n, 1, co_float(ctx, 0.1)),
                                    co_fill(ctx, &n, 1, co_float(ctx, 0.2)),
                                    co_fill(ctx, &n, 1, co_float(ctx, 1.5)));

        time_call(ctx, f, args, 2);
        time_eager(ctx, adam_like, NULL, args);
        for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
            bench_add(&eager, time_eager(ctx, adam_like, NULL, args));
            bench_add(&fused, time_call(ctx, f, args, 1));
        }
    }
    bench_check(ctx);
    bench_report(&(bench_figure){ .name = name,
                                  .unit = "x eager",
                                  .best = bench_best(&eager) / bench_best(&fused),
                                  .median = bench_median(&eager) / bench_median(&fused),
                                  .limit = NAN,
                                  .goal = goal,
                                  .is_rate = true });
}

void
bench_function(void)
{
    co_context *ctx = bench_open(1);

    CO_BLOCK(ctx) {
        measure_replay(ctx);
    }
    CO_BLOCK(ctx) {
        measure_plan(ctx);
    }
    measure_chain(ctx, "fuse_64k", 65536, 1.4);
    measure_chain(ctx, "fuse_1m", 1 << 20, 2.5);
    measure_chain(ctx, "fuse_16m", 1 << 24, 3.5);
    co_close(ctx);
}

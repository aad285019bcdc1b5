/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of an operator costs beyond its arithmetic: scalars, so that there is next to none.
 */
#include "bench.h"

#include <math.h>

enum { CHAIN = 1000, ROUNDS = 500 };

/*
 * The limit: the same chain through a function that the compiler cannot see through, by way of
 * memory.
 */
static float
plain_multiply(const float *x, const float *y)
{
    return *x * *y;
}

static double
time_plain(void)
{
    float (*volatile multiply)(const float *, const float *) = plain_multiply;
    float  chain[CHAIN + 1], factor = 1.0F;
    double begin = bench_now();

    chain[0] = 1;
    for (int i = 0; i < CHAIN; ++i)
        chain[i + 1] = multiply(&chain[i], &factor);
    return (bench_now() - begin) / CHAIN * 1e9;
}

/* Nanoseconds for one multiply of a chain, its block included. */
static double
time_chain(co_context *ctx, co_value *x, co_value *factor, bool with_tape)
{
    double begin = bench_now();

    CO_BLOCK(ctx) {
        co_value *y = x;

        if (with_tape) {
            co_tape_begin(ctx);
            co_watch(ctx, x);
        }
        for (int i = 0; i < CHAIN; ++i)
            y = co_mul(ctx, y, factor);
    }
    return (bench_now() - begin) / CHAIN * 1e9;
}

void
bench_dispatch(void)
{
    co_context   *ctx = co_open(NULL);
    co_value     *x = co_scalar_float(ctx, 1), *factor = co_scalar_float(ctx, 1);
    bench_samples plain = { .n = 0 }, bare = { .n = 0 }, taped = { .n = 0 };

    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        bench_add(&plain, time_plain());
        bench_add(&bare, time_chain(ctx, x, factor, false));
        bench_add(&taped, time_chain(ctx, x, factor, true));
    }
    bench_check(ctx);
    bench_report_samples("dispatch_ns", "ns", &bare, bench_best(&plain),
                         "an indirect call that multiplies", 60);
    bench_report_samples("dispatch_tape_ns", "ns", &taped, bench_best(&plain),
                         "an indirect call that multiplies", 100);
    co_close(ctx);
}

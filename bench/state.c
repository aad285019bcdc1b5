/* SPDX-License-Identifier: Apache-2.0 */
/* The state of training: what updates of many variables cost. */
#include "bench.h"

#include <math.h>

/* --- adam_many --- */

enum { MANY = 200, EACH = 1024, ROUNDS = 300 };

typedef struct updated {
    co_optimizer *adam;
    co_value     *variables, *gradients; /* lists */
} updated;

/* n variables of so many elements, which nothing else holds, with gradients. */
static updated
make_updated(co_context *ctx, int n, int64_t elements)
{
    co_value *variables[MANY], *gradients[MANY];

    for (int i = 0; i < n; ++i) {
        variables[i] = co_variable(ctx, co_fill(ctx, &elements, 1, co_float(ctx, 0.5)), NULL);
        gradients[i] = co_fill(ctx, &elements, 1, co_float(ctx, 0.25));
    }
    return (updated){ co_adam(ctx, NULL), co_list(ctx, variables, (size_t)n),
                      co_list(ctx, gradients, (size_t)n) };
}

static double
time_update(co_context *ctx, const updated *u)
{
    double begin = bench_now();

    co_apply_gradients(ctx, u->adam, u->gradients, u->variables);
    return bench_now() - begin;
}

/* An update of 200 variables by Adam against one of a variable of the same size, in turns. */
static void
measure_many(co_context *ctx)
{
    updated       many = make_updated(ctx, MANY, EACH), one = make_updated(ctx, 1, MANY * EACH);
    bench_samples of_many = { .n = 0 }, of_one = { .n = 0 };

    for (int i = 0; i < 5; ++i) {
        time_update(ctx, &many);
        time_update(ctx, &one);
    }
    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        bench_add(&of_many, time_update(ctx, &many) * 1e6);
        bench_add(&of_one, time_update(ctx, &one) * 1e6);
    }
    bench_check(ctx);
    bench_report(&(bench_figure){ .name = "adam_many",
                                  .unit = "x one",
                                  .best = bench_best(&of_many) / bench_best(&of_one),
                                  .median = bench_median(&of_many) / bench_median(&of_one),
                                  .limit = NAN,
                                  .goal = 1.5 });
    bench_report_samples("adam_many_us", "us", &of_many, bench_best(&of_one),
                         "one variable of the same size", NAN);
}

void
bench_state(void)
{
    co_context *ctx = bench_open(1);

    CO_BLOCK(ctx) {
        measure_many(ctx);
    }
    co_close(ctx);
}

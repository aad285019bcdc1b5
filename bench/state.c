/* SPDX-License-Identifier: Apache-2.0 */
/* The state of training: what updates of many variables cost, and metrics. */
#include "bench.h"
#include "train_models.h"

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

/* --- metric_cost --- */

enum { METRICS = 3, TURNS = 181, STEPS = 5 };

typedef struct measured {
    train_state  mlp;
    co_metric   *metrics[METRICS];
    co_function *function;
} measured;

/* The step of train_models.c, with metrics of what it computes anyway. */
static co_value *
step_with_metrics(co_context *ctx, co_value *args, void *user)
{
    const measured *m = user;
    co_value       *y = co_at(ctx, args, 1), *logits, *losses, *loss;

    co_tape_begin(ctx);
    logits = train_mlp_logits(ctx, &m->mlp, co_at(ctx, args, 0));
    losses = co_sparse_softmax_cross_entropy(ctx, y, logits);
    loss = co_average_loss(ctx, losses);
    co_minimize(ctx, m->mlp.optimizer, loss);
    co_metric_update(ctx, m->metrics[0], losses, NULL, NULL);
    co_metric_update(ctx, m->metrics[1], y, logits, NULL);
    co_metric_update(ctx, m->metrics[2], y, logits, NULL);
    return loss;
}

static void
make_measured(co_context *ctx, measured *m)
{
    co_metric_options logits = CO_METRIC_OPTIONS_INIT;

    train_init(ctx, &m->mlp, train_find_model("mlp"));
    logits.from_logits = true;
    m->metrics[0] = co_metric_new(ctx, CO_METRIC_MEAN, NULL);
    m->metrics[1] = co_metric_new(ctx, CO_METRIC_SPARSE_CATEGORICAL_ACCURACY, NULL);
    m->metrics[2] = co_metric_new(ctx, CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY, &logits);
    m->function = co_function_of(ctx, step_with_metrics, m, NULL);
}

/* Seconds of a step. */
static double
time_steps(co_context *ctx, co_function *function, co_value *args)
{
    double begin = bench_now();

    for (int i = 0; i < STEPS; ++i)
        CO_BLOCK(ctx) {
            co_call(ctx, function, args);
        }
    return (bench_now() - begin) / STEPS;
}

/*
 * The captured step of mlp with three metrics against the one without, in turns. One hundredth is
 * less than what other work on the machine changes from second to second, so the ratio is the
 * median of those of neighbours.
 */
static void
measure_metrics(co_context *ctx)
{
    measured      m;
    train_state   plain;
    bench_samples with = { .n = 0 }, without = { .n = 0 }, ratio = { .n = 0 };
    co_function  *function = co_function_of(ctx, train_step, &plain, NULL);
    co_value     *args;

    make_measured(ctx, &m);
    train_init(ctx, &plain, train_find_model("mlp"));
    args = plain.model->make_batch(ctx, &plain);
    time_steps(ctx, m.function, args);
    time_steps(ctx, function, args);
    for (bench_clock c = bench_begin(TURNS, 15); bench_more(&c);) {
        double a = with.n % 2 == 0 ? time_steps(ctx, m.function, args) : 0;
        double b = time_steps(ctx, function, args);

        a = a > 0 ? a : time_steps(ctx, m.function, args);
        bench_add(&with, a * 1e3);
        bench_add(&without, b * 1e3);
        bench_add(&ratio, a / b);
    }
    bench_check(ctx);
    bench_report(&(bench_figure){ .name = "metric_cost",
                                  .unit = "x without",
                                  .best = bench_median(&ratio),
                                  .median = bench_median(&ratio),
                                  .limit = NAN,
                                  .goal = 1.01 });
    bench_report_samples("metric_cost_ms", "ms", &with, bench_best(&without),
                         "the step without metrics", NAN);
}

void
bench_state(void)
{
    co_context *ctx = bench_open(1);

    CO_BLOCK(ctx) {
        measure_many(ctx);
    }
    CO_BLOCK(ctx) {
        measure_metrics(ctx);
    }
    co_close(ctx);
    bench_state_checkpoints();
}

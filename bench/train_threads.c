/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a second thread of one device gains: mlp_small with several times its batch, whose operators
 * take some microseconds each, so that handing work over costs as much as doing it. One thread, two
 * threads, and two replicas of one thread each train in turns in one process. The replicas are the
 * limit: they hand over once in a step.
 */
#include "bench.h"
#include "train_models.h"

#include <math.h>
#include <stdio.h>

/* A turn has TIMES_STEPS steps of one batch, or the fewer, the larger the batches are. */
enum { ROUNDS = 100, WARM_UP_STEPS = 20, TIMES_STEPS = 1600, GOAL_PERCENT = 150 };

typedef enum kind { ONE_THREAD, TWO_THREADS, TWO_REPLICAS, NUM_KINDS } kind;

static const char *const settings[NUM_KINDS] = { "cpus=1, threads=1", "cpus=1, threads=2",
                                                 "cpus=2, threads=2" };

typedef struct trainer {
    co_context   *ctx;
    co_strategy  *strategy; /* NULL: one device, without a strategy */
    co_value     *batch;
    co_fn         step;
    void         *user;
    train_state   state;
    bench_samples rates;
} trainer;

static co_value *
split_batch(co_context *ctx, co_strategy *strategy, co_value *batch)
{
    co_dataset *dataset = co_dataset_from_tensor_slices(ctx, batch);
    int64_t     rows = co_value_dim(ctx, co_at(ctx, batch, 0), 0);

    dataset = co_distribute_dataset(ctx, strategy, co_dataset_batch(ctx, dataset, rows, true),
                                    NULL);
    return co_next(ctx, co_iterate(ctx, dataset));
}

static void
open_trainer(trainer *tr, kind k, int times, bool is_captured)
{
    co_context *ctx = tr->ctx = co_open(settings[k]);

    bench_check(ctx);
    tr->strategy = k == TWO_REPLICAS ? co_mirrored_strategy(ctx, NULL, 0, NULL) : NULL;
    if (tr->strategy != NULL)
        CO_SCOPE(ctx, tr->strategy) {
            train_init(ctx, &tr->state, train_find_model("mlp_small"));
        }
    else
        train_init(ctx, &tr->state, train_find_model("mlp_small"));
    tr->state.batches = times;
    tr->batch = tr->state.model->make_batch(ctx, &tr->state);
    if (tr->strategy != NULL)
        tr->batch = split_batch(ctx, tr->strategy, tr->batch);
    tr->step = is_captured ? co_captured : train_step;
    tr->user = is_captured ? (void *)co_function_of(ctx, train_step, &tr->state, NULL)
                           : (void *)&tr->state;
    tr->rates.n = 0;
    bench_check(ctx);
}

static void
take_steps(trainer *tr, int n)
{
    for (int i = 0; i < n; ++i)
        CO_BLOCK(tr->ctx) {
            if (tr->strategy != NULL)
                co_run(tr->ctx, tr->strategy, tr->step, tr->batch, tr->user);
            else
                tr->step(tr->ctx, tr->batch, tr->user);
        }
    bench_check(tr->ctx);
}

static void
take_turn(trainer *tr, int steps)
{
    double begin;

    take_steps(tr, WARM_UP_STEPS); /* others ran before */
    begin = bench_now();
    take_steps(tr, steps);
    bench_add(&tr->rates, steps / (bench_now() - begin));
}

/* A batch, and whether the step is captured, with its trainers. */
typedef struct row {
    int     times;
    bool    is_captured;
    trainer all[NUM_KINDS];
} row;

/* Best and median of what two threads make of the rate of one; the limit is what replicas make. */
static bench_figure
compare(row *r)
{
    bench_samples *one = &r->all[ONE_THREAD].rates, *two = &r->all[TWO_THREADS].rates;

    return (bench_figure){ .unit = "ratio",
                           .best = bench_most(two) / bench_most(one),
                           .median = bench_median(two) / bench_median(one),
                           .limit = bench_most(&r->all[TWO_REPLICAS].rates) / bench_most(one),
                           .limit_is = "two replicas",
                           .goal = (double)NAN,
                           .is_rate = true };
}

static void
report(row *rows, size_t n)
{
    bench_figure worst = { .best = INFINITY };

    for (size_t i = 0; i < n; ++i) {
        bench_figure figure = compare(&rows[i]);
        char         name[40];

        if (figure.best < worst.best)
            worst = figure;
        snprintf(name, sizeof(name), "threads2_mlp_small_x%d%s", rows[i].times,
                 rows[i].is_captured ? "_function" : "");
        figure.name = name;
        bench_report(&figure);
    }
    worst.name = "threads2_gain";
    worst.goal = GOAL_PERCENT / 100.0;
    bench_report(&worst);
}

/*
 * All of them in turns, over some seconds: the host of a virtual machine may have its two cores be
 * one for a while, which neither two threads nor two replicas gain anything from.
 */
void
bench_train_threads(void)
{
    enum { NUM_ROWS = 6 };
    static row rows[NUM_ROWS] = { { 4, false, { { 0 } } },  { 4, true, { { 0 } } },
                                  { 8, false, { { 0 } } },  { 8, true, { { 0 } } },
                                  { 16, false, { { 0 } } }, { 16, true, { { 0 } } } };

    for (int i = 0; i < NUM_ROWS * NUM_KINDS; ++i)
        open_trainer(&rows[i / NUM_KINDS].all[i % NUM_KINDS], (kind)(i % NUM_KINDS),
                     rows[i / NUM_KINDS].times, rows[i / NUM_KINDS].is_captured);
    for (int round = 0; round < ROUNDS; ++round)
        for (int i = 0; i < NUM_ROWS * NUM_KINDS; ++i)
            take_turn(&rows[i / NUM_KINDS].all[i % NUM_KINDS],
                      TIMES_STEPS / rows[i / NUM_KINDS].times);
    for (int i = 0; i < NUM_ROWS * NUM_KINDS; ++i)
        co_close(rows[i / NUM_KINDS].all[i % NUM_KINDS].ctx);
    report(rows, NUM_ROWS);
}

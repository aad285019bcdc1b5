/* SPDX-License-Identifier: Apache-2.0 */
/* The process that trains; train.h has its protocol. Public interface only. */
#include "bench.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rounds are short, so that the best of them is one that nobody disturbed, and have a few steps at
 * least. The scripts of bench/peers use the same numbers. */
enum { MIN_STEPS = 3 };
#define ROUND_SECONDS 0.05

/* --- strategies --- */

static co_strategy *
make_one(co_context *ctx)
{
    return co_one_device_strategy(ctx, "/cpu:0");
}

static co_strategy *
make_mirrored(co_context *ctx)
{
    return co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
}

static co_strategy *
make_processes(co_context *ctx)
{
    return co_multi_worker_mirrored_strategy(ctx, NULL);
}

const train_strategy train_strategies[TRAIN_NUM_STRATEGIES] = {
    { "none", 1, 1, NULL },
    { "one", 1, 1, make_one },
    { "mirrored2", 2, 1, make_mirrored },
    { "mpi2", 1, 2, make_processes },
};

const train_model *
train_find_model(const char *name)
{
    for (size_t i = 0; i < TRAIN_NUM_MODELS; ++i)
        if (strcmp(train_models[i].name, name) == 0)
            return &train_models[i];
    return NULL;
}

const train_strategy *
train_find_strategy(const char *name)
{
    for (size_t i = 0; i < TRAIN_NUM_STRATEGIES; ++i)
        if (strcmp(train_strategies[i].name, name) == 0)
            return &train_strategies[i];
    return NULL;
}

/* --- training --- */

typedef struct trainer {
    co_context   *ctx;
    train_task    task;
    co_strategy  *strategy; /* NULL: none */
    co_value     *batch;
    co_fn         step;
    void         *step_user;
    bool          is_leader; /* of the processes: it reads commands and answers */
    train_state   state;
    double        loss; /* of the last step */
    bench_samples rates;
} trainer;

/* Processes of one machine share its cores; nothing else tells them how many they are. */
static co_context *
open_for(const train_strategy *strategy)
{
    char settings[80];
    long threads = sysconf(_SC_NPROCESSORS_ONLN) / strategy->processes;

    snprintf(settings, sizeof(settings), "cpus=%d", strategy->cpus);
    if (strategy->processes > 1 && getenv("COHORT_THREADS") == NULL)
        snprintf(settings, sizeof(settings), "cpus=%d, deadline_ms=0, pin=no, threads=%ld",
                 strategy->cpus, threads > 1 ? threads : 1);
    return co_open(settings);
}

/* The batch as the strategy splits it: slice k belongs to replica k, in whichever process. */
static co_value *
distributed(trainer *tr, co_value *batch)
{
    co_context *ctx = tr->ctx;
    co_dataset *dataset = co_dataset_from_tensor_slices(ctx, batch);
    int64_t     rows = co_value_dim(ctx, co_at(ctx, batch, 0), 0);

    dataset = co_dataset_batch(ctx, dataset, rows, true);
    dataset = co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_REPLICA);
    dataset = co_distribute_dataset(ctx, tr->strategy, dataset, NULL);
    return co_next(ctx, co_iterate(ctx, dataset));
}

static void
prepare(trainer *tr)
{
    co_context *ctx = tr->ctx;

    if (tr->task.strategy->make != NULL) {
        tr->strategy = tr->task.strategy->make(ctx);
        bench_check(ctx);
        CO_SCOPE(ctx, tr->strategy) {
            train_init(ctx, &tr->state, tr->task.model);
        }
    } else {
        train_init(ctx, &tr->state, tr->task.model);
    }
    tr->is_leader = tr->strategy == NULL || co_worker_id(ctx, tr->strategy) == 0;
    CO_BLOCK(ctx) { /* the batch alone is left of it */
        co_value *batch = tr->task.model->make_batch(ctx, &tr->state);

        tr->batch = tr->strategy != NULL ? distributed(tr, batch) : batch;
        if (tr->batch != NULL)
            co_escape(ctx, tr->batch);
    }
    tr->step = tr->task.function ? co_captured : train_step;
    tr->step_user = tr->task.function ? (void *)co_function_of(ctx, train_step, &tr->state, NULL)
                                      : (void *)&tr->state;
    bench_check(ctx);
}

static co_value *
one_step(const trainer *tr)
{
    co_context *ctx = tr->ctx;
    co_value   *losses;

    if (tr->strategy == NULL)
        return tr->step(ctx, tr->batch, tr->step_user);
    losses = co_run(ctx, tr->strategy, tr->step, tr->batch, tr->step_user);
    return co_reduce(ctx, tr->strategy, CO_REDUCE_SUM, losses, NULL, 0);
}

/* The loss is read after the last step only. */
static void
run_steps(trainer *tr, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        CO_BLOCK(tr->ctx) {
            co_value *loss = one_step(tr);

            if (i + 1 == n)
                tr->loss = co_item_float(tr->ctx, loss);
        }
    bench_check(tr->ctx);
}

/* --- several processes do what the leader says --- */

/* What the leader gives, in every process. */
static int64_t
agreed(const trainer *tr, int64_t steps)
{
    co_context *ctx = tr->ctx;
    int64_t     sum = steps;

    if (tr->task.strategy->processes > 1)
        CO_BLOCK(ctx) {
            co_value *mine = co_scalar_int64(ctx, tr->is_leader ? steps : 0);

            sum = co_item_int(ctx, co_reduce(ctx, tr->strategy, CO_REDUCE_SUM, mine, NULL, 0));
        }
    bench_check(ctx);
    return sum;
}

static void
lead_steps(trainer *tr, int64_t n)
{
    run_steps(tr, agreed(tr, n));
}

static void
follow(trainer *tr)
{
    for (int64_t n = agreed(tr, 0); n > 0; n = agreed(tr, 0))
        run_steps(tr, n);
}

/* --- commands --- */

/* Steps per second of a round. */
static double
time_round(trainer *tr, int64_t steps)
{
    double begin;

    steps = agreed(tr, steps);
    begin = bench_now();
    run_steps(tr, steps);
    return (double)steps / (bench_now() - begin);
}

static void
answer_time(trainer *tr, double seconds)
{
    bench_samples *rates = &tr->rates;
    double         rate = time_round(tr, MIN_STEPS); /* others ran before: it is not counted */

    rates->n = 0;
    for (bench_clock c = bench_begin(BENCH_MAX_SAMPLES, seconds); bench_more(&c);) {
        rate = time_round(tr, (int64_t)fmax(MIN_STEPS, ceil(rate * ROUND_SECONDS)));
        bench_add(rates, rate);
    }
    printf("rates");
    for (int i = 0; i < rates->n; ++i)
        printf(" %.6g", rates->at[i]);
    printf("\n");
}

static void
answer_steps(trainer *tr, int64_t n)
{
    printf("losses");
    for (int64_t i = 0; i < n; ++i) {
        lead_steps(tr, 1);
        printf(" %.9g", tr->loss);
    }
    printf("\n");
}

static int
lead(trainer *tr)
{
    char line[80];
    int  code = 0;

    while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "end\n") != 0) {
        if (strncmp(line, "time ", 5) == 0) {
            answer_time(tr, strtod(line + 5, NULL));
        } else if (strncmp(line, "steps ", 6) == 0) {
            answer_steps(tr, strtol(line + 6, NULL, 10));
        } else {
            fprintf(stderr, "cohort-bench: '%s' is no command of train.h\n", line);
            code = 2;
            break;
        }
        fflush(stdout);
    }
    agreed(tr, 0);
    printf("memory %.6g %.6g\n", bench_peak_mib(),
           (double)bench_memory(tr->ctx).peak_bytes / (1 << 20));
    fflush(stdout);
    return code;
}

static bool
read_task(const char *text, train_task *task)
{
    char  copy[80];
    char *model = copy, *strategy, *mode;

    snprintf(copy, sizeof(copy), "%s", text);
    strategy = strchr(copy, '-');
    mode = strategy != NULL ? strchr(strategy + 1, '-') : NULL;
    if (mode == NULL)
        return false;
    *strategy++ = *mode++ = '\0';
    task->model = train_find_model(model);
    task->strategy = train_find_strategy(strategy);
    task->function = strcmp(mode, "function") == 0;
    return task->model != NULL && task->strategy != NULL &&
           (task->function || strcmp(mode, "eager") == 0);
}

int
bench_train_child(const char *text)
{
    trainer tr = { .ctx = NULL };
    int     code = 0;

    if (!read_task(text, &tr.task)) {
        fprintf(stderr,
                "cohort-bench: '%s' names no training; use MODEL-STRATEGY-eager or "
                "MODEL-STRATEGY-function\n",
                text);
        return 2;
    }
    tr.ctx = open_for(tr.task.strategy);
    bench_check(tr.ctx);
    prepare(&tr);
    run_steps(&tr, 1);
    if (tr.is_leader) {
        printf("first %.9g\n", tr.loss);
        fflush(stdout);
        code = lead(&tr);
    } else {
        follow(&tr);
    }
    return co_close(tr.ctx) != CO_OK ? 1 : code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the survivors of a training step see when the last rank is killed: steps WHEN HOW, under a
 * launcher that lets the others live. WHEN is `between` (two steps) or `inside` (the kernels of
 * one), HOW is `eager`, `captured` (the step) or `loop` (the function around run is captured too).
 * What a survivor prints does not depend on HOW; tests/ranks/survive/run-steps compares. Times come
 * last:
 *
 *     rank 0 of 2: CO_UNAVAILABLE in all_reduce at steps.c:52: rank 1 is gone ...
 *     rank 0 of 2: after 34 ms
 */
#include <cohort/cohort.h>
#include <cohort/function.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The step in which the last rank dies would take it a second. */
enum { GOOD_STEPS = 3, WIDTH = 64, LAST_WIDTH = 1024, LAYERS = 40 };

typedef struct model {
    co_strategy *strategy;
    co_function *step;          /* NULL: not captured */
    co_value    *begun, *ended; /* of the own replicas */
    co_value    *shared;        /* what all replicas agree on */
} model;

/* Kernels that take a while, a sum over all ranks, and variables changed before and after it. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *sum;

    co_assign_add(ctx, m->begun, co_float(ctx, 1));
    for (int i = 0; i < LAYERS; ++i)
        x = co_tanh(ctx, co_matmul(ctx, x, x));
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_reduce_mean(ctx, x, CO_ALL_AXES, false));
    co_assign_add(ctx, m->ended, co_float(ctx, 1));
    co_assign_add(ctx, m->shared, sum);
    return sum;
}

static co_value *
run_one(co_context *ctx, co_value *args, void *user)
{
    model *m = user;

    return m->step != NULL ? co_run(ctx, m->strategy, co_captured, args, m->step)
                           : co_run(ctx, m->strategy, step, args, m);
}

static double
now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* A child that ends this process in the middle of what it does then. */
static void
die_soon(void)
{
    pid_t parent = getpid();

    if (fork() == 0) {
        usleep(100000);
        kill(parent, SIGKILL);
        _exit(0);
    }
}

static co_value *
input(co_context *ctx, int64_t width)
{
    return co_args(ctx, co_fill(ctx, CO_SHAPE(width, width), co_scalar_float(ctx, 0.1f)));
}

static void
say_error(co_context *ctx, const char *who, const char *what)
{
    const co_error_info *e = co_error(ctx);

    printf("%s: %s %s in %s at %s:%d: %s\n", who, what, co_code_name(e->code), e->call,
           e->file != NULL && strrchr(e->file, '/') != NULL ? strrchr(e->file, '/') + 1 : "nowhere",
           e->line, e->message);
    co_clear(ctx);
}

static void
make_variables(co_context *ctx, model *m)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.synchronization = CO_SYNC_ON_READ;
    CO_SCOPE(ctx, m->strategy) {
        m->begun = co_variable(ctx, co_float(ctx, 0), &options);
        m->ended = co_variable(ctx, co_float(ctx, 0), &options);
        options = (co_variable_options)CO_VARIABLE_OPTIONS_INIT;
        options.aggregation = CO_AGGREGATION_MEAN;
        m->shared = co_variable(ctx, co_float(ctx, 0), &options);
    }
}

static double
here(co_context *ctx, const model *m, co_value *variable)
{
    return co_item_float(ctx, co_at(ctx, co_local_results(ctx, m->strategy, variable), 0));
}

/* The first run that fails, and what is left. */
static void
report(co_context *ctx, model *m, co_function *loop, co_value *args, const char *who)
{
    co_value *sum;

    say_error(ctx, who, "a step is");
    printf("%s: %g steps begun, %g ended, shared %g\n", who, here(ctx, m, m->begun),
           here(ctx, m, m->ended), here(ctx, m, m->shared));
    if (loop != NULL)
        co_call(ctx, loop, args);
    else
        run_one(ctx, args, m);
    say_error(ctx, who, "the next is");
    /* What needs no other rank goes on: captured or not, under a strategy of this process. */
    m->strategy = co_one_device_strategy(ctx, "/cpu:0");
    make_variables(ctx, m);
    if (m->step != NULL)
        m->step = co_function_of(ctx, step, m, NULL);
    sum = run_one(ctx, args, m);
    printf("%s: alone %s, %g begun, %g ended\n", who, sum != NULL ? "it runs" : "it fails",
           here(ctx, m, m->begun), here(ctx, m, m->ended));
}

int
main(int argc, char **argv)
{
    const char                      *when = argc > 2 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    co_context                      *ctx = co_open("cpus=1,log=off");
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    model                            m = { 0 };
    co_function                     *loop = NULL;
    co_value                        *args;
    double                           begin = 0;
    char                             who[40];
    int                              rank, size;

    options.deadline_ms = 8000;
    m.strategy = co_multi_worker_mirrored_strategy(ctx, &options);
    if (m.strategy == NULL) {
        printf("no strategy: %s\n", co_error(ctx)->message);
        return 1;
    }
    rank = co_worker_id(ctx, m.strategy);
    size = co_num_workers(ctx, m.strategy);
    snprintf(who, sizeof(who), "rank %d of %d", rank, size);
    make_variables(ctx, &m);
    if (strcmp(how, "eager") != 0)
        m.step = co_function_of(ctx, step, &m, NULL);
    if (strcmp(how, "loop") == 0)
        loop = co_function_of(ctx, run_one, &m, NULL);
    args = input(ctx, WIDTH);
    for (int i = 0; co_ok(ctx); ++i) {
        if (i == GOOD_STEPS) {
            if (rank == size - 1 && strcmp(when, "between") == 0)
                raise(SIGKILL);
            if (rank == size - 1) {
                args = input(ctx, LAST_WIDTH);
                die_soon();
            }
        }
        begin = now_ms();
        CO_BLOCK(ctx) {
            if (loop != NULL)
                co_call(ctx, loop, args);
            else
                run_one(ctx, args, &m);
        }
    }
    begin = now_ms() - begin;
    report(ctx, &m, loop, args, who);
    printf("%s: after %d ms, closed with %s\n", who, (int)begin, co_code_name(co_close(ctx)));
    return 0;
}

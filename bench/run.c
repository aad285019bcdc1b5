/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a strategy adds to a step: a run on one device, a scope, two replicas that meet, rest, and
 * memory.
 */
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    ROUNDS = 500,
    CALLS = 1000, /* of a round */
    STEPS = 50,
    COLD_ROUNDS = 100, /* one step each */
    IDLE_ROUNDS = 10,
    ALLOCATION_ROUNDS = 5,
    ALLOCATION_STEPS = 1000
};

/* --- one device --- */

static co_value *
empty_step(co_context *ctx, co_value *args, void *user)
{
    (void)ctx;
    (void)user;
    return args;
}

static double
time_direct(co_context *ctx, co_value *args, co_fn volatile *step)
{
    double begin = bench_now();

    for (int i = 0; i < CALLS; ++i)
        CO_BLOCK(ctx) {
            (*step)(ctx, args, NULL);
        }
    return (bench_now() - begin) / CALLS * 1e9;
}

static double
time_run(co_context *ctx, co_strategy *strategy, co_value *args)
{
    double begin = bench_now();

    for (int i = 0; i < CALLS; ++i)
        CO_BLOCK(ctx) {
            co_run(ctx, strategy, empty_step, args, NULL);
        }
    return (bench_now() - begin) / CALLS * 1e9;
}

static double
time_scope(co_context *ctx, co_strategy *strategy)
{
    double begin = bench_now();

    for (int i = 0; i < CALLS; ++i)
        CO_SCOPE(ctx, strategy) {
        }
    return (bench_now() - begin) / CALLS * 1e9;
}

static void
one_device(void)
{
    co_context  *ctx = co_open(NULL);
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *args = co_args(ctx, co_scalar_float(ctx, 1));
    co_fn volatile step = empty_step;
    bench_samples direct = { .n = 0 }, run = { .n = 0 }, scope = { .n = 0 };

    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        bench_add(&direct, time_direct(ctx, args, &step));
        bench_add(&run, time_run(ctx, strategy, args));
        bench_add(&scope, time_scope(ctx, strategy));
    }
    bench_check(ctx);
    bench_report_extra("one_run_extra_ns", "ns", &run, &direct,
                       "a direct call of the step in a block", 100);
    bench_report_samples("scope_ns", "ns", &scope, bench_best(&direct),
                         "a direct call of the step in a block", 50);
    co_close(ctx);
}

/* --- two threads without the library: the limits --- */

typedef struct ping {
    _Alignas(64) atomic_int word; /* odd: the other's turn */
    atomic_bool     spins;        /* else it sleeps on the condition */
    atomic_bool     quit;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
} ping;

static void
ping_set(ping *p, int value)
{
    if (atomic_load(&p->spins)) {
        atomic_store(&p->word, value);
        return;
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->word, value);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void
ping_wait(ping *p, int value)
{
    if (atomic_load(&p->spins)) {
        for (unsigned i = 1; atomic_load(&p->word) != value; ++i)
            if (i % 4096 == 0)
                sched_yield(); /* the other needs a core, and there may be none free */
        return;
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->word) != value)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *
pong(void *arg)
{
    ping *p = arg;

    for (int turn = 0;; turn += 2) {
        ping_wait(p, turn + 1);
        if (atomic_load(&p->quit))
            return NULL;
        ping_set(p, turn + 2);
    }
}

/* Microseconds for a word there and back, after `rest` seconds each time. */
static double
time_ping(bool spins, int rounds, double rest)
{
    ping      p = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    pthread_t thread;
    double    sum = 0;

    atomic_store(&p.spins, spins);
    if (pthread_create(&thread, NULL, pong, &p) != 0)
        return (double)NAN;
    for (int i = 0; i < rounds; ++i) {
        double begin;

        if (rest > 0)
            bench_rest(rest);
        begin = bench_now();
        ping_set(&p, 2 * i + 1);
        ping_wait(&p, 2 * i + 2);
        sum += bench_now() - begin;
    }
    atomic_store(&p.quit, true);
    ping_set(&p, 2 * rounds + 1);
    pthread_join(thread, NULL);
    return sum / rounds * 1e6;
}

/* --- two replicas --- */

static co_value *
all_reduce_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

static co_value *
scalar_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 0));
}

static void
run_and_all_reduce(co_context *ctx, co_strategy *strategy, co_value *args)
{
    co_run(ctx, strategy, all_reduce_step, args, NULL);
}

static void
run_and_reduce(co_context *ctx, co_strategy *strategy, co_value *args)
{
    co_reduce(ctx, strategy, CO_REDUCE_SUM, co_run(ctx, strategy, scalar_step, args, NULL), NULL,
              0);
}

typedef void (*step_fn)(co_context *ctx, co_strategy *strategy, co_value *args);

/* Microseconds for a step, after `rest` seconds each time. */
static double
time_steps(co_context *ctx, co_strategy *strategy, step_fn step, int steps, double rest)
{
    double sum = 0;

    CO_BLOCK(ctx) {
        co_value *args = co_args(ctx, co_scalar_float(ctx, 1));

        for (int i = 0; i < steps; ++i) {
            double begin;

            if (rest > 0)
                bench_rest(rest);
            begin = bench_now();
            CO_BLOCK(ctx) {
                step(ctx, strategy, args);
            }
            sum += bench_now() - begin;
        }
    }
    return sum / steps * 1e6;
}

/* Milliseconds of processor time in an idle second. */
static double
idle_cpu(void)
{
    double cpu = bench_cpu(), begin = bench_now();

    bench_rest(0.2);
    return (bench_cpu() - cpu) / (bench_now() - begin) * 1e3;
}

static void
two_replicas(void)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context   *ctx = co_open("cpus=2");
    co_strategy  *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);
    bench_samples step = { .n = 0 }, reduce = { .n = 0 }, cold = { .n = 0 }, idle = { .n = 0 };
    bench_samples ping_hot = { .n = 0 }, ping_cold = { .n = 0 };

    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        bench_add(&step, time_steps(ctx, strategy, run_and_all_reduce, STEPS, 0));
        bench_add(&reduce, time_steps(ctx, strategy, run_and_reduce, STEPS, 0));
        bench_add(&ping_hot,
                  time_ping(true, STEPS, 0)); /* in turns: a machine may change its pace */
    }
    for (bench_clock c = bench_begin(COLD_ROUNDS, 3); bench_more(&c);) {
        bench_add(&cold, time_steps(ctx, strategy, run_and_all_reduce, 1, 0.005));
        bench_add(&ping_cold, time_ping(false, 1, 0.005));
    }
    for (bench_clock c = bench_begin(IDLE_ROUNDS, 3); bench_more(&c);) {
        bench_rest(0.01);
        bench_add(&idle, idle_cpu());
    }
    bench_check(ctx);
    bench_report_samples("mirrored2_step_us", "us", &step, bench_best(&ping_hot),
                         "a word to a spinning thread and back", 10);
    bench_report_samples("mirrored2_reduce_us", "us", &reduce, bench_best(&ping_hot),
                         "a word to a spinning thread and back", 10);
    bench_report_samples("mirrored2_cold_us", "us", &cold, bench_best(&ping_cold),
                         "a word to a sleeping thread and back", 60);
    bench_report_samples("idle_cpu_ms_per_s", "ms/s", &idle, 0, "a process that does nothing", 1);
    co_close(ctx);
}

/* --- many variables --- */

enum { FEW = 10, MANY = 10000 };

/* A strategy with so many variables, in a context of its own. */
typedef struct populated {
    co_context  *ctx;
    co_strategy *strategy;
    co_value    *args;
} populated;

static void
populate(populated *p, bool mirrored, int num_variables)
{
    p->ctx = co_open("cpus=2");
    p->strategy = mirrored ? co_mirrored_strategy(p->ctx, NULL, 0, NULL)
                           : co_one_device_strategy(p->ctx, "/cpu:0");
    p->args = co_args(p->ctx, co_scalar_float(p->ctx, 1));
    CO_SCOPE(p->ctx, p->strategy) {
        for (int i = 0; i < num_variables; ++i)
            co_variable(p->ctx, co_scalar_float(p->ctx, 1), NULL);
    }
}

/* What a run costs with many variables, as a multiple of what it costs with few. Each round
   measures both, one right after the other, so that a slow phase of the machine meets both; the
   figure is the median of the rounds, for the best of a ratio would flatter. */
static void
many_variables(const char *name, bool mirrored)
{
    populated     few, many;
    bench_samples ratios = { .n = 0 };
    bench_figure  figure = { name, "ratio", 0, 0, (double)NAN, "", 1.05, false };

    populate(&few, mirrored, FEW);
    populate(&many, mirrored, MANY);
    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        double base = time_run(few.ctx, few.strategy, few.args);

        bench_add(&ratios, time_run(many.ctx, many.strategy, many.args) / base);
    }
    bench_check(few.ctx);
    bench_check(many.ctx);
    figure.best = figure.median = bench_median(&ratios);
    bench_report(&figure);
    co_close(few.ctx);
    co_close(many.ctx);
}

/* --- memory --- */

typedef struct model {
    co_value     *w1, *w2;
    co_optimizer *optimizer;
} model;

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *hidden, *logits, *loss;

    co_tape_begin(ctx);
    hidden = co_relu(ctx, co_matmul(ctx, co_at(ctx, args, 0), m->w1));
    logits = co_matmul(ctx, hidden, m->w2);
    loss = co_sparse_softmax_cross_entropy(ctx, co_at(ctx, args, 1), logits);
    loss = co_average_loss(ctx, loss);
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

/* How often `steps` training steps of a small network ask the system for memory. */
static double
count_allocations(co_context *ctx, co_strategy *strategy, model *m, int steps)
{
    int64_t before = bench_memory(ctx).system_allocations;

    CO_BLOCK(ctx) {
        co_value *images = co_ones(ctx, CO_FLOAT32, CO_SHAPE(16, 32));
        co_value *args = co_args(ctx, images, co_zeros(ctx, CO_INT32, CO_SHAPE(16)));

        for (int i = 0; i < steps; ++i)
            CO_BLOCK(ctx) {
                co_value *losses = co_run(ctx, strategy, train_step, args, m);

                co_item_float(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0));
            }
    }
    return (double)(bench_memory(ctx).system_allocations - before);
}

static void
steady_allocations(void)
{
    co_context   *ctx = co_open("cpus=2");
    co_strategy  *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    model         m = { NULL, NULL, NULL };
    bench_samples counts = { .n = 0 };

    CO_SCOPE(ctx, strategy) {
        m.w1 = co_variable(ctx, co_fill(ctx, CO_SHAPE(32, 24), co_float(ctx, 0.01)), NULL);
        m.w2 = co_variable(ctx, co_fill(ctx, CO_SHAPE(24, 10), co_float(ctx, 0.01)), NULL);
        m.optimizer = co_sgd(ctx, NULL);
    }
    count_allocations(ctx, strategy, &m, 100); /* until caches and pools are filled */
    for (bench_clock c = bench_begin(ALLOCATION_ROUNDS, 3); bench_more(&c);)
        bench_add(&counts, count_allocations(ctx, strategy, &m, ALLOCATION_STEPS));
    bench_check(ctx);
    bench_report_samples("steady_allocations", "per 1000", &counts, 0,
                         "steps that allocate nothing", 0);
    co_close(ctx);
}

void
bench_run(void)
{
    one_device();
    two_replicas();
    many_variables("one_run_variables", false);
    many_variables("mirrored2_run_variables", true);
    steady_allocations();
}

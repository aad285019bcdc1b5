/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce of two replicas inside a step, inputs unchanged, beside what two threads need for the
 * same sums without the library. Small values cost a rendezvous, large ones the memory's bandwidth:
 * the sum reads two arrays and writes one.
 */
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

enum { ROUNDS = 1000, SMALL_CALLS = 50 };

#define MIB ((size_t)1 << 20)

/* --- arrays --- */

typedef struct arrays {
    float *a, *b, *out; /* out may be NULL */
    size_t n;
} arrays;

static void
free_arrays(arrays *x)
{
    free(x->a);
    free(x->b);
    free(x->out);
}

/* --- two threads without the library --- */

typedef void (*range_fn)(const arrays *x, size_t begin, size_t end);

/* The loop that the library is compared with: nothing is made, both inputs are overwritten. */
static void
add_in_place(const arrays *x, size_t begin, size_t end)
{
    float *a = x->a, *b = x->b;

    for (size_t i = begin; i < end; ++i)
        a[i] = b[i] = a[i] + b[i];
}

static void
add(const arrays *x, size_t begin, size_t end)
{
    const float *restrict a = x->a, *restrict b = x->b;
    float *restrict out = x->out;

    for (size_t i = begin; i < end; ++i)
        out[i] = a[i] + b[i];
}

/* The same with stores that do not read the lines they overwrite; begin and end are multiples
 * of 16. */
static void
add_streaming(const arrays *x, size_t begin, size_t end)
{
#if defined(__SSE__)
    for (size_t i = begin; i < end; i += 4)
        _mm_stream_ps(x->out + i, _mm_add_ps(_mm_load_ps(x->a + i), _mm_load_ps(x->b + i)));
    _mm_sfence();
#else
    add(x, begin, end);
#endif
}

/* A second thread that spins for work. */
typedef struct helper {
    _Alignas(64) atomic_uint asked;
    _Alignas(64) atomic_uint done;
    range_fn      work; /* NULL: end */
    const arrays *x;
    pthread_t     thread;
} helper;

static void
spin_until(atomic_uint *word, unsigned value)
{
    for (unsigned i = 1; atomic_load_explicit(word, memory_order_acquire) != value; ++i)
        if (i % 4096 == 0)
            sched_yield(); /* the other needs a core, and there may be none free */
}

static void *
helper_main(void *arg)
{
    helper *h = arg;

    for (unsigned turn = 1;; ++turn) {
        spin_until(&h->asked, turn);
        if (h->work == NULL)
            return NULL;
        h->work(h->x, h->x->n / 2, h->x->n);
        atomic_store_explicit(&h->done, turn, memory_order_release);
    }
}

static void
ask(helper *h, range_fn work, const arrays *x)
{
    h->work = work;
    h->x = x;
    atomic_fetch_add_explicit(&h->asked, 1, memory_order_release);
}

/*
 * Seconds for the whole range on two threads, the mean of so many calls. The second thread lives no
 * longer than that: while replicas are measured nobody else may spin.
 */
static double
time_pair(range_fn work, const arrays *x, int calls)
{
    helper h = { .work = NULL };
    double begin = 0;

    if (pthread_create(&h.thread, NULL, helper_main, &h) != 0) {
        fprintf(stderr, "cohort-bench: no second thread\n");
        exit(1);
    }
    for (int i = -1; i < calls; ++i) { /* once before the clock starts: the thread is awake then */
        if (i == 0)
            begin = bench_now();
        ask(&h, work, x);
        work(x, 0, x->n / 2);
        spin_until(&h.done, atomic_load_explicit(&h.asked, memory_order_relaxed));
    }
    begin = (bench_now() - begin) / calls;
    ask(&h, NULL, NULL);
    pthread_join(h.thread, NULL);
    return begin;
}

/* --- two replicas --- */

/* What a step does: all_reduce its argument so often, and say how long one took. */
typedef struct job {
    int    calls;
    double seconds; /* of replica 0 */
} job;

static co_value *
reduce_step(co_context *ctx, co_value *args, void *user)
{
    job      *j = user;
    co_value *mine = co_at(ctx, args, 0);
    double    begin = 0;

    for (int i = -1; i < j->calls; ++i) { /* as in time_pair */
        if (i == 0)
            begin = bench_now();
        CO_BLOCK(ctx) {
            co_all_reduce(ctx, CO_REDUCE_SUM, mine);
        }
    }
    if (co_replica_id(ctx) == 0)
        j->seconds = (bench_now() - begin) / j->calls;
    return co_none(ctx);
}

/* Seconds for one all_reduce. */
static double
time_all_reduce(co_context *ctx, co_strategy *strategy, co_value *parts, int calls)
{
    job j = { calls, 0 };

    CO_BLOCK(ctx) {
        co_run(ctx, strategy, reduce_step, co_args(ctx, parts), &j);
    }
    bench_check(ctx);
    return j.seconds;
}

/* The arrays a and b as the values of two replicas. */
static co_value *
parts_of(co_context *ctx, const arrays *x)
{
    int64_t   n = (int64_t)x->n;
    co_value *parts[2] = { co_tensor_borrow(ctx, CO_FLOAT32, &n, 1, x->a, NULL, NULL),
                           co_tensor_borrow(ctx, CO_FLOAT32, &n, 1, x->b, NULL, NULL) };

    return co_per_replica_value(ctx, parts, 2);
}

/* 4 kB again and again: what a rendezvous costs. */
static void
small(co_context *ctx, co_strategy *strategy)
{
    bench_samples samples = { .n = 0 }, limit = { .n = 0 };
    arrays        x = { bench_array(4096), bench_array(4096), bench_array(4096), 1024 };

    /* One after the other: a thread that comes and goes would move this one to the core of a
     * replica each time. */
    CO_BLOCK(ctx) {
        co_value *parts = parts_of(ctx, &x);

        for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
            bench_add(&samples, 1e6 * time_all_reduce(ctx, strategy, parts, SMALL_CALLS));
            bench_rest(0.002); /* for the system to place threads anew */
        }
    }
    for (bench_clock c = bench_begin(ROUNDS, 1); bench_more(&c);)
        bench_add(&limit, 1e6 * time_pair(add, &x, SMALL_CALLS));
    bench_report_samples("allreduce_4k_us", "us", &samples, bench_best(&limit),
                         "two spinning threads add halves", 1.5);
    free_arrays(&x);
}

/* Best to best and median to median. */
static void
report_ratio(const char *name, bench_samples *samples, bench_samples *limit, const char *limit_is)
{
    bench_figure figure = { name,
                            "ratio",
                            bench_best(samples) / bench_best(limit),
                            bench_median(samples) / bench_median(limit),
                            (double)NAN,
                            limit_is,
                            1.3,
                            false };

    bench_report(&figure);
}

/* Against the loop in place, on arrays of its own. */
static void
against_loop(co_context *ctx, co_strategy *strategy)
{
    size_t        nbytes = 100 * MIB;
    arrays        x = { bench_array(nbytes), bench_array(nbytes), NULL, nbytes / sizeof(float) };
    arrays        y = { bench_array(nbytes), bench_array(nbytes), NULL, nbytes / sizeof(float) };
    bench_samples samples = { .n = 0 }, loop = { .n = 0 };

    CO_BLOCK(ctx) {
        co_value *parts = parts_of(ctx, &x);

        for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
            bench_add(&loop, 1e3 * time_pair(add_in_place, &y, 1));
            bench_add(&samples, 1e3 * time_all_reduce(ctx, strategy, parts, 1));
        }
    }
    bench_report_samples("allreduce_100mib_ms", "ms", &samples, bench_best(&loop),
                         "two threads add in place", 1.3 * bench_best(&loop));
    report_ratio("allreduce_100mib", &samples, &loop, "two threads add in place");
    free_arrays(&x);
    free_arrays(&y);
}

/* Against the memory: the faster of two ways to read two arrays and write a third. */
static void
against_memory(co_context *ctx, co_strategy *strategy, const char *name, size_t nbytes)
{
    arrays        x = { bench_array(nbytes), bench_array(nbytes), bench_array(nbytes),
                        nbytes / sizeof(float) };
    bench_samples samples = { .n = 0 }, limit = { .n = 0 };
    int           calls = nbytes < 8 * MIB ? (int)(8 * MIB / nbytes) : 1;
    double        seconds = nbytes < 256 * MIB ? 3 : 6; /* a round of 1 GiB takes half a second */

    CO_BLOCK(ctx) {
        co_value *parts = parts_of(ctx, &x);

        for (bench_clock c = bench_begin(ROUNDS, seconds); bench_more(&c);) {
            double plain = time_pair(add, &x, calls),
                   streaming = time_pair(add_streaming, &x, calls);

            bench_add(&limit, 1e3 * fmin(plain, streaming));
            /* As many chances as the limit has to meet a quiet moment. */
            bench_add(&samples, 1e3 * fmin(time_all_reduce(ctx, strategy, parts, calls),
                                           time_all_reduce(ctx, strategy, parts, calls)));
        }
    }
    bench_report_samples(name, "ms", &samples, bench_best(&limit), "two threads add, no library",
                         1.3 * bench_best(&limit));
    free_arrays(&x);
}

void
bench_allreduce(void)
{
    static const struct {
        const char *name;
        size_t      mib;
    } sizes[] = {
        { "allreduce_1mib", 1 },   { "allreduce_4mib", 4 },     { "allreduce_16mib", 16 },
        { "allreduce_64mib", 64 }, { "allreduce_256mib", 256 }, { "allreduce_1gib", 1024 }
    };
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);

    bench_check(ctx);
    small(ctx, strategy);
    against_loop(ctx, strategy);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i)
        against_memory(ctx, strategy, sizes[i].name, sizes[i].mib * MIB);
    co_close(ctx);
}

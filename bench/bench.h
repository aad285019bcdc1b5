/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What benchmarks share. A benchmark is a function in a file of its own, entered in the table of
 * main.c. It measures figures: each is measured several times, and reported with the best and the
 * median, beside a limit that was measured in the same run: what the machine needs for the same
 * thing without the library.
 */
#ifndef COHORT_BENCH_H
#define COHORT_BENCH_H

#include <cohort/cohort.h>

typedef struct bench_figure {
    const char *name; /* "dispatch_ns" */
    const char *unit; /* "ns" */
    double      best;
    double      median;
    double      limit; /* NAN: there is none */
    const char *limit_is;
    double      goal;    /* at most; NAN: none */
    bool        is_rate; /* more is better: best is the most, the goal is at least */
} bench_figure;

/*
 * The numbers of one figure while it is measured. Many short rounds are better than few long ones:
 * on a machine with other work the best of them is one that nobody disturbed.
 */
enum { BENCH_MAX_SAMPLES = 1024 };
typedef struct bench_samples {
    double at[BENCH_MAX_SAMPLES];
    int    n;
} bench_samples;

/*
 * Whether to go on measuring: up to `rounds` samples, but no longer than `seconds` (with at least
 * three).
 */
typedef struct bench_clock {
    double begin, seconds;
    int    rounds, done;
} bench_clock;
bench_clock bench_begin(int rounds, double seconds);
bool        bench_more(bench_clock *clock);

void   bench_add(bench_samples *samples, double value);
double bench_best(const bench_samples *samples);
double bench_most(const bench_samples *samples);
double bench_median(bench_samples *samples);

/* Seconds on the monotonic clock. */
double bench_now(void);
/* Processor time of this process, in seconds. */
double bench_cpu(void);
void   bench_rest(double seconds);
/* The most memory that this process ever had, in MiB. */
double bench_peak_mib(void);
/* An array of zeros, in huge pages where there are any, as the library's own large blocks are; for
 * free(). */
float *bench_array(size_t nbytes);

/* Print one figure, as text or as a JSON object. */
void bench_report(const bench_figure *figure);
/* Best and median of samples as a figure. */
void bench_report_samples(const char *name, const char *unit, bench_samples *samples, double limit,
                          const char *limit_is, double goal);
/* The same of rates, of which more is better: the best is the most, the goal is at least. */
void bench_report_rates(const char *name, const char *unit, bench_samples *samples, double limit,
                        const char *limit_is, double goal);
/*
 * The same for what one thing costs beyond another: best less best, median less median. The other
 * is the limit.
 */
void bench_report_extra(const char *name, const char *unit, bench_samples *whole,
                        bench_samples *without, const char *limit_is, double goal);
/* What the runtime of ctx holds now. */
static inline co_memory_stats
bench_memory(const co_context *ctx)
{
    co_memory_stats stats = { .struct_size = sizeof(stats) };

    co_get_memory_stats(ctx, &stats);
    return stats;
}
/* End the program if ctx has an error: a figure of something that failed is worth nothing. */
void bench_check(co_context *ctx);

/* Threads of a device in benchmarks of kernels: COHORT_THREADS, or 1. Limits use as many. */
int bench_threads(void);
/* A runtime with so many threads a device. */
co_context *bench_open(int threads);
/* The best float32 GEMM rate of any library on this machine, sampled in turns with the figure
 * beside it (pace.c). */
typedef struct bench_pace bench_pace;
bench_pace               *bench_pace_begin(co_context *ctx, int threads);
void                      bench_pace_add(const bench_pace *pace, bench_samples *times);
double bench_pace_rate(const bench_samples *times); /* multiply-adds per microsecond */
void   bench_pace_end(bench_pace *pace);

/* The program's own path, for benchmarks that start it again. */
extern const char *bench_program;

void bench_allreduce(void);
void bench_attention(void);
void bench_calls(void);
void bench_choose(void);
void bench_choose_products(void); /* part of it */
void bench_conv(void);
void bench_dispatch(void);
void bench_elementwise(void);
void bench_function(void);
void bench_input(void);
void bench_matmul(void);
void bench_run(void);
void bench_startup(void);
void bench_state(void);
void bench_state_checkpoints(void); /* part of it */
void bench_train(void);
void bench_train_threads(void); /* part of it */

/* Modes of the program that bench_startup and bench_train start. */
int bench_child(const char *mode);
int bench_train_child(const char *task);

/* How long the loop of bench_state runs that saves checkpoints. */
extern double bench_state_seconds;

/* Options of bench_train. */
typedef struct bench_train_options {
    const char *model;    /* NULL: all */
    const char *strategy; /* NULL: all */
    bool        function; /* the step as a captured function, compared with the step itself */
    int         steps;    /* above 0: print the losses of so many steps, and measure nothing */
} bench_train_options;
extern bench_train_options bench_train_what;
/* Whether there is such a model, or strategy; if not, those there are stand in `names`. */
bool bench_train_knows(const char *option, const char *value, char *names, size_t capacity);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cohort-bench: the table of benchmarks, what they print, and how samples become a figure. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef struct benchmark {
    const char *name;
    const char *help;
    void (*run)(void);
} benchmark;

static const benchmark benchmarks[] = {
    { "allreduce", "all_reduce of two replicas, 4 kB to 1 GiB, compared with the sums alone",
      bench_allreduce },
    { "attention", "causal attention, forward and backward, compared with its GEMMs",
      bench_attention },
    { "calls", "single calls and elements of datasets, which bench/peers measures in TensorFlow",
      bench_calls },
    { "choose", "all kernels of convolutions and GEMM, and those that the heuristics select",
      bench_choose },
    { "conv", "the convolutions of a small network, compared with their multiply-adds",
      bench_conv },
    { "dispatch", "a scalar multiply through the public interface", bench_dispatch },
    { "elementwise",
      "element-wise operators, compared with memory bandwidth and hand-written loops",
      bench_elementwise },
    { "function", "captured functions: calls, operators, capturing, plans, fused chains",
      bench_function },
    { "input", "datasets and their distribution: batches, record files, slices, shuffling, memory",
      bench_input },
    { "matmul", "the GEMMs of four models, compared with the best rate and other libraries",
      bench_matmul },
    { "run", "run, scope, two replicas with a reduce, an idle strategy, allocations per step",
      bench_run },
    { "startup", "time and memory to the first result, size of the library", bench_startup },
    { "state", "updates of many variables, metrics, saving and restoring checkpoints",
      bench_state },
    { "train", "training steps of four models under four strategies, each in a process of its own",
      bench_train },
};

enum { NUM_BENCHMARKS = sizeof(benchmarks) / sizeof(benchmarks[0]) };

const char *bench_program;

static bool as_json;

/* --- time --- */

static double
clock_seconds(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double
bench_now(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

double
bench_cpu(void)
{
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

int
bench_threads(void)
{
    const char *text = getenv("COHORT_THREADS");
    long        n = text != NULL ? strtol(text, NULL, 10) : 1;

    return n >= 1 && n <= 1024 ? (int)n : 1;
}

void
bench_rest(double seconds)
{
    struct timespec time = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };

    while (nanosleep(&time, &time) != 0)
        ;
}

double
bench_peak_mib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char  line[128];
    long  kib = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return (double)kib / 1024;
}

float *
bench_array(size_t nbytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    size_t length = (nbytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    float *array = aligned_alloc(HUGE_PAGE, length);

    if (array == NULL) {
        fprintf(stderr, "cohort-bench: no memory for an array of %zu bytes\n", nbytes);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(array, length, MADV_HUGEPAGE);
#endif
    memset(array, 0, length);
    return array;
}

/* --- samples --- */

bench_clock
bench_begin(int rounds, double seconds)
{
    return (bench_clock){ bench_now(), seconds, rounds, 0 };
}

bool
bench_more(bench_clock *clock)
{
    int done = clock->done++;

    return done < clock->rounds && (done < 3 || bench_now() - clock->begin < clock->seconds);
}

void
bench_add(bench_samples *samples, double value)
{
    if (samples->n < BENCH_MAX_SAMPLES)
        samples->at[samples->n++] = value;
}

double
bench_best(const bench_samples *samples)
{
    double best = INFINITY;

    for (int i = 0; i < samples->n; ++i)
        best = fmin(best, samples->at[i]);
    return best;
}

double
bench_most(const bench_samples *samples)
{
    double most = -INFINITY;

    for (int i = 0; i < samples->n; ++i)
        most = fmax(most, samples->at[i]);
    return most;
}

static int
compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double
bench_median(bench_samples *samples)
{
    qsort(samples->at, (size_t)samples->n, sizeof(samples->at[0]), compare);
    return samples->n % 2 == 1
               ? samples->at[samples->n / 2]
               : (samples->at[samples->n / 2 - 1] + samples->at[samples->n / 2]) / 2;
}

/* --- reports --- */

static void
print_number(const char *key, double number)
{
    printf(", \"%s\": ", key);
    if (isfinite(number))
        printf("%.6g", number);
    else
        printf("null");
}

static void
report_json(const bench_figure *f, double ratio)
{
    printf("{\"name\": \"%s\", \"value\": %.6g, \"median\": %.6g, \"unit\": \"%s\"", f->name,
           f->best, f->median, f->unit);
    printf(", \"better\": \"%s\"", f->is_rate ? "more" : "less");
    print_number("limit", f->limit);
    print_number("ratio", ratio);
    printf("}\n");
}

static void
report_text(const bench_figure *f, double ratio)
{
    char goal[40] = "", limit[120] = "";

    if (isfinite(f->goal) && f->is_rate)
        snprintf(goal, sizeof(goal), "%s %.3g", f->best >= f->goal ? "at least" : "UNDER", f->goal);
    else if (isfinite(f->goal))
        snprintf(goal, sizeof(goal), "%s %.3g", f->best <= f->goal ? "at most" : "OVER", f->goal);
    if (isfinite(ratio))
        snprintf(limit, sizeof(limit), "%.2f x %.3g, %s", ratio, f->limit, f->limit_is);
    else if (isfinite(f->limit))
        snprintf(limit, sizeof(limit), "%.3g, %s", f->limit, f->limit_is);
    printf("%-34s%10.4g%10.4g %-9s%-18s%s\n", f->name, f->best, f->median, f->unit, goal, limit);
}

void
bench_report(const bench_figure *figure)
{
    double ratio = isfinite(figure->limit) && figure->limit > 0 ? figure->best / figure->limit
                                                                : (double)NAN;

    if (as_json)
        report_json(figure, ratio);
    else
        report_text(figure, ratio);
    fflush(stdout);
}

void
bench_report_samples(const char *name, const char *unit, bench_samples *samples, double limit,
                     const char *limit_is, double goal)
{
    bench_figure figure = { name, unit, bench_best(samples), bench_median(samples), limit, limit_is,
                            goal, false };

    bench_report(&figure);
}

void
bench_report_rates(const char *name, const char *unit, bench_samples *samples, double limit,
                   const char *limit_is, double goal)
{
    bench_figure figure = { name, unit, bench_most(samples), bench_median(samples), limit, limit_is,
                            goal, true };

    bench_report(&figure);
}

void
bench_report_extra(const char *name, const char *unit, bench_samples *whole, bench_samples *without,
                   const char *limit_is, double goal)
{
    double       limit = bench_best(without);
    bench_figure figure = { name,
                            unit,
                            bench_best(whole) - limit,
                            bench_median(whole) - bench_median(without),
                            limit,
                            limit_is,
                            goal,
                            false };

    bench_report(&figure);
}

co_context *
bench_open(int threads)
{
    char        text[32];
    co_context *ctx;

    snprintf(text, sizeof(text), "threads=%d", threads);
    ctx = co_open(text);
    bench_check(ctx);
    return ctx;
}

void
bench_check(co_context *ctx)
{
    if (co_ok(ctx))
        return;
    fprintf(stderr, "cohort-bench: %s: %s\n", co_error(ctx)->call, co_error(ctx)->message);
    exit(1);
}

/* --- the program --- */

static void
print_help(FILE *out)
{
    fprintf(out, "usage: cohort-bench [NAME...] [--json] [--build] [--help]\n"
                 "       cohort-bench train [--model mlp_small|mlp|cnn|gpt]\n"
                 "                          [--strategy none|one|mirrored2|mpi2] [--function]\n"
                 "                          [--steps N] [--json]\n"
                 "       cohort-bench state [--seconds N] [--json]\n\n");
    for (size_t i = 0; i < NUM_BENCHMARKS; ++i)
        fprintf(out, "  %-12s%s\n", benchmarks[i].name, benchmarks[i].help);
    fprintf(
        out,
        "\nWithout names all benchmarks run. Every figure is the best of many short rounds, with "
        "their median and a\nlimit measured in the same run. --json prints one object for each "
        "figure, --build what the library was\nbuilt with.\n\n"
        "train: without --model and --strategy all of them, and the captured step on one device. "
        "--function captures\nthe step and compares it with the step itself. --steps prints the losses "
        "of N steps and measures nothing.\n"
        "state: the loop that saves checkpoints runs for 12 seconds, with a save every 2; --seconds 60 "
        "is the full\nlength, with a save every 10.\n"
        "`make bench-peers` compares with TensorFlow and PyTorch.\n");
}

/* Figures depend on these, and a build without oneDNN looks like any other. */
static void
print_fact(const char *name, const char *text, void *user)
{
    bool *is_first = user;

    if (strcmp(name, "options") == 0) /* the libraries once more */
        return;
    printf("%s%s %s", *is_first ? "build: " : ", ", name, text);
    *is_first = false;
}

static void
print_build(void)
{
    bool is_first = true;

    co_build_visit(print_fact, &is_first);
    printf("\n");
}

static void
print_header(void)
{
    print_build();
    printf("%-34s%10s%10s %-9s%-18s%s\n", "figure", "best", "median", "unit", "goal",
           "times the limit measured here");
}

static const benchmark *
find(const char *name)
{
    for (size_t i = 0; i < NUM_BENCHMARKS; ++i)
        if (strcmp(benchmarks[i].name, name) == 0)
            return &benchmarks[i];
    return NULL;
}

static bool
read_train_option(const char *option, const char *value)
{
    char names[80], *end;
    long steps;

    if (value == NULL) {
        fprintf(stderr, "cohort-bench: %s needs a value\n\n", option);
        return false;
    }
    if (strcmp(option, "--steps") == 0) {
        steps = strtol(value, &end, 10);
        if (*end != '\0' || steps < 1 || steps > 1000000) {
            fprintf(stderr, "cohort-bench: --steps '%s' is not a number from 1 to 1000000\n\n",
                    value);
            return false;
        }
        bench_train_what.steps = (int)steps;
        return true;
    }
    if (!bench_train_knows(option, value, names, sizeof(names))) {
        fprintf(stderr, "cohort-bench: there is no %s '%s'; use one of %s\n\n", option + 2, value,
                names);
        return false;
    }
    *(strcmp(option, "--model") == 0 ? &bench_train_what.model
                                     : &bench_train_what.strategy) = value;
    return true;
}

static bool
read_seconds(const char *value)
{
    char  *end = NULL;
    double seconds = value != NULL ? strtod(value, &end) : 0;

    if (value == NULL || *end != '\0' || !(seconds >= 1 && seconds <= 600)) {
        fprintf(stderr, "cohort-bench: --seconds needs a number from 1 to 600\n\n");
        return false;
    }
    bench_state_seconds = seconds;
    return true;
}

/* Options are taken out of argv; the number of names that stay, or -1 for an unknown one. */
static int
read_arguments(int argc, char **argv)
{
    const char *of_train = NULL; /* an option of its own */
    bool        is_train = false, is_state = false, of_state = false;
    int         names = 0;

    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--json") == 0) {
            as_json = true;
        } else if (strcmp(argv[i], "--function") == 0) {
            of_train = argv[i];
            bench_train_what.function = true;
        } else if (strcmp(argv[i], "--model") == 0 || strcmp(argv[i], "--strategy") == 0 ||
                   strcmp(argv[i], "--steps") == 0) {
            of_train = argv[i];
            if (!read_train_option(argv[i], argv[i + 1])) /* argv ends with NULL */
                return -1;
            ++i;
        } else if (strcmp(argv[i], "--seconds") == 0) {
            of_state = true;
            if (!read_seconds(argv[++i]))
                return -1;
        } else if (find(argv[i]) != NULL) {
            is_train = is_train || strcmp(argv[i], "train") == 0;
            is_state = is_state || strcmp(argv[i], "state") == 0;
            argv[names++] = argv[i];
        } else {
            fprintf(stderr, "cohort-bench: there is no benchmark '%s'\n\n", argv[i]);
            return -1;
        }
    }
    if (of_train != NULL && !is_train) {
        fprintf(stderr, "cohort-bench: %s belongs to the benchmark train\n\n", of_train);
        return -1;
    }
    if (of_state && !is_state) {
        fprintf(stderr, "cohort-bench: --seconds belongs to the benchmark state\n\n");
        return -1;
    }
    return names;
}

int
main(int argc, char **argv)
{
    int names;

    bench_program = argv[0];
    if (argc == 2 && strncmp(argv[1], "--train-", 8) == 0)
        return bench_train_child(argv[1] + 8);
    if (argc == 2 && strncmp(argv[1], "--child-", 8) == 0)
        return bench_child(argv[1] + 8);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--build") == 0) {
        print_build();
        return 0;
    }
    names = read_arguments(argc, argv);
    if (names < 0) {
        print_help(stderr);
        return 2;
    }
    if (!as_json && bench_train_what.steps == 0)
        print_header();
    if (names == 0)
        for (size_t i = 0; i < NUM_BENCHMARKS; ++i)
            benchmarks[i].run();
    for (int i = 0; i < names; ++i)
        find(argv[i])->run();
    return 0;
}

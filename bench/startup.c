/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the start of a process to its first result, beyond a process that only loads the same
 * libraries. The program starts itself: a child opens a context and adds two numbers, another does
 * nothing. Both load the same libraries before main, so what the first needs beyond the second is
 * what passes between main and its result, and it takes that time itself: the difference of two
 * whole processes would be lost in what the system does for each. A child also reads its own
 * memory, because what the parent can ask for (ru_maxrss) includes what the child was before exec.
 */
#include "bench.h"

#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 60 };

/* --- the child --- */

/* The work of "first-result": open, add two numbers, read the sum. */
static bool
first_result(void)
{
    co_context *ctx = co_open(NULL);
    bool        is_right = co_item_int(ctx, co_add(ctx, co_int(ctx, 1), co_int(ctx, 2))) == 3;

    /* The time ends here; closing is not part of it. */
    return co_ok(ctx) && is_right;
}

int
bench_child(const char *mode)
{
    double begin = bench_now();
    char   text[64];
    int    length;

    if (strcmp(mode, "first-result") == 0) {
        if (!first_result())
            return 1;
    } else if (strcmp(mode, "empty") != 0 || co_version() == NULL) {
        return 1;
    }
    begin = bench_now() - begin;
    length = snprintf(text, sizeof(text), "%.9f %.6f\n", begin, bench_peak_mib());
    _exit(write(STDOUT_FILENO, text, (size_t)length) == length ? 0 : 1);
}

/* --- the parent --- */

typedef struct start {
    double whole_ms; /* from fork to the answer */
    double main_ms;  /* from main to the result */
    double mib;
} start;

static _Noreturn void
give_up(const char *what)
{
    perror(what);
    exit(1);
}

static start
time_child(const char *argument)
{
    char    text[64] = "", *end;
    int     ends[2], status;
    ssize_t length;
    double  begin;
    start   result;
    pid_t   child;

    if (pipe(ends) != 0)
        give_up("cohort-bench: pipe");
    begin = bench_now();
    child = fork();
    if (child < 0)
        give_up("cohort-bench: fork");
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl("/proc/self/exe", bench_program, argument, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    length = read(ends[0], text, sizeof(text) - 1);
    result.whole_ms = (bench_now() - begin) * 1e3;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || status != 0 || length <= 0) {
        fprintf(stderr, "cohort-bench: the child '%s' failed\n", argument);
        exit(1);
    }
    result.main_ms = strtod(text, &end) * 1e3;
    result.mib = strtod(end, NULL);
    return result;
}

/* --- the size of the library --- */

typedef struct text_size {
    double mib;
} text_size;

/*
 * Code and constants of libcohort: the parts that are loaded and never written to, as `size` counts
 * them.
 */
static int
add_text(struct dl_phdr_info *info, size_t size, void *data)
{
    text_size *sum = data;

    (void)size;
    if (strstr(info->dlpi_name, "libcohort.so") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_W) == 0)
            sum->mib += (double)info->dlpi_phdr[i].p_memsz / (1 << 20);
    return 1;
}

/* Whether the build has more kernels than those of the baseline. */
static void
look_for_kernels(const char *name, const char *text, void *user)
{
    if (strcmp(name, "instruction sets") == 0)
        *(bool *)user = strcmp(text, "base") != 0;
}

/* At most 1 MiB with the kernels of the baseline alone, 2.5 with those of all instruction sets. */
static void
report_text_size(void)
{
    text_size    sum = { 0 };
    bench_figure figure = { "text_mib", "MiB", 0, 0, (double)NAN, "", 1, false };
    bool         has_all = false;

    co_build_visit(look_for_kernels, &has_all);
    figure.goal = has_all ? 2.5 : 1;
    dl_iterate_phdr(add_text, &sum);
    if (sum.mib <= 0) {
        fprintf(stderr, "cohort-bench: libcohort.so is not among the loaded libraries\n");
        exit(1);
    }
    figure.best = figure.median = sum.mib;
    bench_report(&figure);
}

void
bench_startup(void)
{
    bench_samples empty_ms = { .n = 0 }, empty_mib = { .n = 0 };
    bench_samples first_ms = { .n = 0 }, first_mib = { .n = 0 };

    for (bench_clock c = bench_begin(ROUNDS, 3); bench_more(&c);) {
        start empty = time_child("--child-empty");
        start first = time_child("--child-first-result");

        bench_add(&empty_ms, empty.whole_ms);
        bench_add(&empty_mib, empty.mib);
        bench_add(&first_ms, first.main_ms - empty.main_ms);
        bench_add(&first_mib, first.mib);
    }
    bench_report_samples("startup_ms", "ms", &first_ms, bench_best(&empty_ms),
                         "a process that only loads the libraries", 5);
    bench_report_extra("startup_rss_mib", "MiB", &first_mib, &empty_mib,
                       "a process that only loads the libraries", 8);
    report_text_size();
}

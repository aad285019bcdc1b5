/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: what saving in the background costs a training loop, and how fast restoring is. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* --- a folder for checkpoints --- */

enum { FOLDER = 200, STEP = 1 };

static void
give_up(const char *what)
{
    fprintf(stderr, "cohort-bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void
make_folder(char folder[FOLDER])
{
    const char *parent = getenv("TMPDIR");

    snprintf(folder, FOLDER, "%s/cohort-bench-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(folder) == NULL)
        give_up(folder);
}

/* The path of checkpoint number `step`. */
static void
path_of(const char *folder, int step, char path[FOLDER + 60])
{
    snprintf(path, FOLDER + 60, "%s/step-%d.safetensors", folder, step);
}

static void
remove_folder(const char *folder, int last)
{
    static const char *const names[] = { "index", "lock" };
    char                     path[FOLDER + 60];

    for (int step = 0; step <= last; ++step) {
        path_of(folder, step, path);
        unlink(path);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    if (rmdir(folder) != 0)
        fprintf(stderr, "cohort-bench: files are left in %s: %s\n", folder, strerror(errno));
}

/* --- checkpoint_cost --- */

/* Layers of WIDTH x WIDTH after one of INPUTS x WIDTH: 8.7 million weights, and with the two slots
 * of Adam a state of 100 MiB. */
enum { LAYERS = 9, INPUTS = 340, WIDTH = 1024, BATCH = 64, SAVES = 6, WARM_STEPS = 10 };

double bench_state_seconds = 12;

typedef struct network {
    co_value     *weights[2 * LAYERS];
    co_optimizer *adam;
    co_value     *x, *y;
} network;

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    const network *n = user;
    co_value      *x = co_at(ctx, args, 0);

    co_tape_begin(ctx);
    for (int i = 0; i < LAYERS; ++i)
        x = co_dense(ctx, x, n->weights[2 * i], n->weights[2 * i + 1],
                     i + 1 < LAYERS ? CO_ACTIVATION_RELU : CO_ACTIVATION_NONE);
    x = co_sparse_softmax_cross_entropy(ctx, co_at(ctx, args, 1), x);
    co_minimize(ctx, n->adam, co_average_loss(ctx, x));
    return NULL;
}

/* Slots are called after their variables, so these have names of their own. */
static co_value *
make_weight(co_context *ctx, const char *name, int layer, co_value *initial)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    char                text[40];

    snprintf(text, sizeof(text), "%s%d", name, layer);
    options.name = text;
    return co_variable(ctx, initial, &options);
}

static void
make_network(co_context *ctx, network *n)
{
    co_set_seed(ctx, 1);
    for (int i = 0; i < LAYERS; ++i) {
        int64_t   inputs = i == 0 ? INPUTS : WIDTH;
        co_value *kernel = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(inputs, WIDTH), 0,
                                            sqrt(2.0 / (double)inputs));

        n->weights[2 * i] = make_weight(ctx, "kernel", i, kernel);
        n->weights[2 * i + 1] = make_weight(ctx, "bias", i,
                                            co_zeros(ctx, CO_FLOAT32, CO_SHAPE(WIDTH)));
    }
    n->adam = co_adam(ctx, NULL);
    n->x = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(BATCH, INPUTS), 0, 1);
    n->y = co_random_uniform(ctx, CO_INT32, CO_SHAPE(BATCH), 0, WIDTH);
}

/* A loop that is measured: the seconds of all its steps, and each of them. */
typedef struct loop {
    co_function   *function;
    co_value      *args;
    co_checkpoint *checkpoint;
    int            saved; /* the last number */
} loop;

typedef struct laps {
    double        seconds, longest;
    bench_samples steps; /* as many as there is room for */
} laps;

/* One interval of the loop. A save belongs to the step that it delays. */
static void
go(co_context *ctx, loop *l, int steps, bool saves, laps *out)
{
    double begin = bench_now(), before = begin;

    for (int i = 0; i < steps; ++i) {
        double now;

        if (saves && i == 0)
            co_checkpoint_save(ctx, l->checkpoint, ++l->saved, NULL);
        CO_BLOCK(ctx) {
            co_call(ctx, l->function, l->args);
        }
        now = bench_now();
        if (out->steps.n < BENCH_MAX_SAMPLES)
            bench_add(&out->steps, now - before);
        out->longest = fmax(out->longest, now - before);
        before = now;
    }
    out->seconds += before - begin;
}

/* What is still being written is a part of the interval in which it was saved. */
static void
finish_save(co_context *ctx, const loop *l, laps *out)
{
    double begin = bench_now();

    co_checkpoint_wait(ctx, l->checkpoint);
    out->seconds += bench_now() - begin;
}

static void
report_longest(const char *name, double longest, double limit, const char *limit_is, double goal)
{
    bench_report(&(bench_figure){ .name = name,
                                  .unit = "x median",
                                  .best = longest,
                                  .median = longest,
                                  .limit = limit,
                                  .limit_is = limit_is,
                                  .goal = goal });
}

static void
report_cost(laps *with, laps *without, double first, double nbytes)
{
    double median = bench_median(&with->steps), plain = bench_median(&without->steps);
    char   text[160];

    snprintf(text, sizeof(text), "without; %.0f s, %d saves of %.0f MiB, step %.0f ms%s",
             bench_state_seconds, SAVES, nbytes / (1 << 20), 1e3 * plain,
             bench_state_seconds >= 60 ? "" : "; --seconds 60: the full length");
    bench_report(&(bench_figure){ .name = "checkpoint_cost",
                                  .unit = "x without",
                                  .best = with->seconds / without->seconds,
                                  .median = with->seconds / without->seconds,
                                  .limit = NAN,
                                  .goal = 1.05 });
    bench_report(&(bench_figure){ .name = "checkpoint_cost_s",
                                  .unit = "s",
                                  .best = with->seconds,
                                  .median = with->seconds,
                                  .limit = without->seconds,
                                  .limit_is = text,
                                  .goal = NAN });
    report_longest("checkpoint_longest_step", fmax(first, with->longest) / median,
                   without->longest / plain, "the loop that does not save", 2);
    report_longest("checkpoint_longest_later", with->longest / median, first / median,
                   "the step of the first save, which takes new memory", NAN);
}

/*
 * Two loops in turns, interval by interval, so that other work on the machine meets both: one saves
 * at the begin of each interval, in the background; the other does not.
 */
static void
measure_cost(co_context *ctx)
{
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    laps                  warm = { .seconds = 0 }, with = warm, without = warm;
    network               n;
    loop                  l = { .saved = 0 };
    char                  folder[FOLDER], path[FOLDER + 60];
    struct stat           file;
    double                first = 0;
    int                   steps;

    make_folder(folder);
    make_network(ctx, &n);
    options.keep_last = 2;
    l.checkpoint = co_checkpoint_open(ctx, folder, &options);
    l.function = co_function_of(ctx, step, &n, NULL);
    l.args = co_args(ctx, n.x, n.y);
    co_checkpoint_add(ctx, l.checkpoint, "model", co_list(ctx, n.weights, 2 * (size_t)LAYERS));
    co_checkpoint_add_optimizer(ctx, l.checkpoint, "adam", n.adam,
                                co_list(ctx, n.weights, 2 * (size_t)LAYERS));
    go(ctx, &l, WARM_STEPS, false, &warm);
    bench_check(ctx);
    steps = (int)(bench_state_seconds / SAVES / bench_median(&warm.steps)) + 1;
    for (int i = 0; i < SAVES; ++i) {
        go(ctx, &l, steps, false, &without);
        go(ctx, &l, steps, true, &with);
        finish_save(ctx, &l, &with);
        if (i == 0) {
            first = with.longest;
            with.longest = 0;
        }
    }
    co_checkpoint_wait(ctx, l.checkpoint);
    bench_check(ctx);
    path_of(folder, l.saved, path);
    if (stat(path, &file) != 0)
        give_up(path);
    co_checkpoint_close(ctx, l.checkpoint);
    bench_check(ctx);
    report_cost(&with, &without, first, (double)file.st_size);
    remove_folder(folder, l.saved);
}

/* --- restore_gbs --- */

enum { PARTS = 8, ROUNDS = 12, SECONDS = 8 };
#define FULL_BYTES  ((size_t)1 << 30)
#define LEAST_BYTES ((size_t)16 << 20)

/* As many bytes as memory and disk have room for: old and new values, the cache of the file, and
 * what is read beside it for comparison. */
static size_t
choose_bytes(const char *folder)
{
    struct statvfs disk;
    char           line[128];
    FILE          *file = fopen("/proc/meminfo", "r");
    unsigned long  kib = 0;
    size_t         nbytes = FULL_BYTES, room;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %lu", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    room = (size_t)kib * 1024 / 5;
    if (statvfs(folder, &disk) != 0)
        give_up(folder);
    if ((size_t)disk.f_bavail * disk.f_frsize / 2 < room)
        room = (size_t)disk.f_bavail * disk.f_frsize / 2;
    while (nbytes > room && nbytes > LEAST_BYTES)
        nbytes /= 2;
    return nbytes;
}

/* The whole file into memory that was touched before, as restoring does it, by one thread. */
static double
read_file(const char *path, void *memory, size_t nbytes)
{
    double  begin = bench_now();
    size_t  done = 0;
    ssize_t n = 1;
    int     fd = open(path, O_RDONLY);

    if (fd < 0)
        give_up(path);
    for (; done < nbytes && n > 0; done += (size_t)n)
        n = read(fd, (char *)memory + done, nbytes - done);
    if (n < 0)
        give_up(path);
    close(fd);
    return (double)done / (bench_now() - begin);
}

static double
restore(co_context *ctx, co_checkpoint *checkpoint, size_t nbytes)
{
    double begin = bench_now();

    co_checkpoint_restore(ctx, checkpoint, NULL);
    return (double)nbytes / (bench_now() - begin);
}

static void
report_restore(const char *name, const char *rate, double goal, bench_samples *ours,
               bench_samples *reads, size_t nbytes)
{
    char limit[100];

    snprintf(limit, sizeof(limit), "read() by one thread, %zu MiB%s", nbytes >> 20,
             nbytes < FULL_BYTES ? ", there is no room for 1024" : "");
    bench_report(&(bench_figure){ .name = name,
                                  .unit = "x read",
                                  .best = bench_most(ours) / bench_most(reads),
                                  .median = bench_median(ours) / bench_median(reads),
                                  .limit = NAN,
                                  .goal = goal,
                                  .is_rate = true });
    bench_report_rates(rate, "GB/s", ours, bench_most(reads), limit, NAN);
}

static void
measure_restore(co_context *ctx, const char *name, const char *rate, double goal)
{
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *parts[PARTS];
    bench_samples         ours = { .n = 0 }, reads = { .n = 0 };
    co_checkpoint        *checkpoint;
    char                  folder[FOLDER], path[FOLDER + 60];
    size_t                nbytes;
    float                *memory;

    make_folder(folder);
    nbytes = choose_bytes(folder);
    options.waits = true;
    checkpoint = co_checkpoint_open(ctx, folder, &options);
    for (int i = 0; i < PARTS; ++i) {
        int64_t count = (int64_t)(nbytes / PARTS / sizeof(float));

        parts[i] = co_variable(ctx, co_fill(ctx, &count, 1, co_float(ctx, i + 0.5)), NULL);
    }
    co_checkpoint_add(ctx, checkpoint, "state", co_list(ctx, parts, PARTS));
    co_checkpoint_save(ctx, checkpoint, STEP, NULL);
    bench_check(ctx);
    path_of(folder, STEP, path);
    memory = bench_array(nbytes);
    memset(memory, 1, nbytes);
    restore(ctx, checkpoint, nbytes);
    read_file(path, memory, nbytes);
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        bench_add(&ours, restore(ctx, checkpoint, nbytes) * 1e-9);
        bench_add(&reads, read_file(path, memory, nbytes) * 1e-9);
    }
    co_checkpoint_close(ctx, checkpoint);
    bench_check(ctx);
    free(memory);
    remove_folder(folder, STEP);
    report_restore(name, rate, goal, &ours, &reads, nbytes);
}

void
bench_state_checkpoints(void)
{
    co_context *ctx = bench_open(bench_threads());

    CO_BLOCK(ctx) {
        measure_cost(ctx);
    }
    co_close(ctx);

    /* as a program restores, with all processors; and with one */
    ctx = co_open(NULL);
    bench_check(ctx);
    CO_BLOCK(ctx) {
        measure_restore(ctx, "restore_gbs", "restore_rate", 0.7);
    }
    co_close(ctx);
    ctx = bench_open(1);
    CO_BLOCK(ctx) {
        measure_restore(ctx, "restore_one_thread", "restore_one_thread_rate", NAN);
    }
    co_close(ctx);
}

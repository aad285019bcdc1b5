/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single calls of the library and elements of datasets, for the comparison with TensorFlow:
 * bench/peers/calls_tensorflow.py measures the same calls under the same names, in rounds of the
 * same length. Other benchmarks measure many of these beside what the machine needs for them.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in calls_tensorflow.py. */
#define ROUND_SECONDS 0.02
#define CALL_SECONDS  0.5
enum {
    RANGE = 20000,
    LONG_RANGE = 500000,
    SHUFFLED = 200000,
    BUFFER = 10000,
    BATCH = 100,
    ROWS = 20000,
    COLUMNS = 784,
    ROW_BATCH = 128,
    RECORD_BATCH = 256,
    ELEMENTS = 4000, /* of distributed datasets, two numbers each */
    FILE_BYTES = 64000000
};

/* What the calls work on. */
typedef struct world {
    co_context  *ctx;
    co_strategy *one, *mirrored;
    co_value    *x, *range;
    co_value    *parts; /* of two replicas */
    co_function *twice, *run_in_function, *reduce_in_function, *all_reduce_in_function;
} world;

/* --- the functions --- */

static co_value *
twice(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, 2));
}

static co_value *
run_one(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, ((const world *)user)->one, twice, args, NULL);
}

static co_value *
run_and_reduce(co_context *ctx, co_value *args, void *user)
{
    co_strategy *mirrored = ((const world *)user)->mirrored;

    return co_reduce(ctx, mirrored, CO_REDUCE_SUM, co_run(ctx, mirrored, twice, args, NULL), NULL,
                     0);
}

static co_value *
all_reduce(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

static co_value *
run_all_reduce(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, ((const world *)user)->mirrored, all_reduce, args, NULL);
}

/* --- the calls --- */

static void
call_op(const world *w)
{
    co_mul(w->ctx, w->x, co_float(w->ctx, 2));
}

static void
call_one_run(const world *w)
{
    co_run(w->ctx, w->one, twice, co_args(w->ctx, w->x), NULL);
}

static void
call_one_run_function(const world *w)
{
    co_run(w->ctx, w->one, co_captured, co_args(w->ctx, w->x), w->twice);
}

static void
call_function_one_run(const world *w)
{
    co_call(w->ctx, w->run_in_function, co_args(w->ctx, w->x));
}

static void
call_one_reduce(const world *w)
{
    co_reduce(w->ctx, w->one, CO_REDUCE_SUM, w->range, CO_AXES(0));
}

static void
call_one_local_results(const world *w)
{
    co_local_results(w->ctx, w->one, w->x);
}

static void
call_one_scope(const world *w)
{
    CO_SCOPE(w->ctx, w->one) {
    }
}

static void
call_mirrored2_run(const world *w)
{
    co_run(w->ctx, w->mirrored, twice, co_args(w->ctx, w->x), NULL);
}

static void
call_mirrored2_run_reduce(const world *w)
{
    co_call(w->ctx, w->reduce_in_function, co_args(w->ctx, w->x));
}

static void
call_reduce(const world *w)
{
    co_reduce(w->ctx, w->mirrored, CO_REDUCE_SUM, w->parts, NULL, 0);
}

static void
call_all_reduce(const world *w)
{
    co_call(w->ctx, w->all_reduce_in_function, co_args(w->ctx, w->parts));
}

/* --- measuring --- */

typedef void (*call_fn)(const world *w);

/* Microseconds of a call, the mean of so many. */
static double
time_calls(const world *w, call_fn call, int64_t calls)
{
    double begin = bench_now();

    for (int64_t i = 0; i < calls; ++i)
        CO_BLOCK(w->ctx) {
            call(w);
        }
    return (bench_now() - begin) * 1e6 / (double)calls;
}

static void
measure_call(const world *w, const char *name, call_fn call)
{
    bench_samples us = { .n = 0 };
    double        last = time_calls(w, call, 3); /* the first captures what is to be captured */

    for (bench_clock c = bench_begin(BENCH_MAX_SAMPLES, CALL_SECONDS); bench_more(&c);) {
        last = time_calls(w, call, (int64_t)fmax(1, ROUND_SECONDS * 1e6 / last));
        bench_add(&us, last);
    }
    bench_check(w->ctx);
    bench_report_samples(name, "us", &us, (double)NAN, "", (double)NAN);
}

static co_value *
ones(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_ones(ctx, CO_FLOAT32, user, 1);
}

/* Reductions of two values of so many MiB. */
static void
measure_sizes(world *w)
{
    static const struct {
        int64_t     mib;
        const char *reduce, *all_reduce;
    } sizes[] = { { 1, "call_reduce_1mib_us", "call_allreduce_1mib_us" },
                  { 100, "call_reduce_100mib_us", "call_allreduce_100mib_us" } };

    for (size_t i = 0; i < 2; ++i)
        CO_BLOCK(w->ctx) {
            int64_t n = sizes[i].mib << 18;

            w->parts = co_run(w->ctx, w->mirrored, ones, co_no_args(w->ctx), &n);
            bench_check(w->ctx);
            measure_call(w, sizes[i].reduce, call_reduce);
            measure_call(w, sizes[i].all_reduce, call_all_reduce);
        }
}

static void
measure_calls(world *w)
{
    static const struct {
        const char *name;
        call_fn     call;
    } calls[] = { { "call_op_us", call_op },
                  { "call_one_run_us", call_one_run },
                  { "call_one_run_function_us", call_one_run_function },
                  { "call_function_one_run_us", call_function_one_run },
                  { "call_one_reduce_us", call_one_reduce },
                  { "call_one_local_results_us", call_one_local_results },
                  { "call_one_scope_us", call_one_scope },
                  { "call_mirrored2_run_us", call_mirrored2_run },
                  { "call_mirrored2_run_reduce_us", call_mirrored2_run_reduce } };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i)
        measure_call(w, calls[i].name, calls[i].call);
    measure_sizes(w);
}

/* --- elements of datasets --- */

static void
drain(const world *w, const char *name, co_dataset *dataset)
{
    co_context   *ctx = w->ctx;
    bench_samples us = { .n = 0 };

    for (bench_clock c = bench_begin(BENCH_MAX_SAMPLES, CALL_SECONDS); bench_more(&c);) {
        double  begin = bench_now();
        int64_t count = 0;

        CO_BLOCK(ctx) {
            CO_EACH(ctx, element, co_iterate(ctx, dataset)) {
                ++count;
            }
        }
        bench_check(ctx);
        bench_add(&us, (bench_now() - begin) * 1e6 / (double)count);
    }
    bench_report_samples(name, "us", &us, (double)NAN, "", (double)NAN);
}

static co_dataset *
range_batches(const world *w, int64_t end, int64_t batch)
{
    return co_dataset_batch(w->ctx, co_dataset_range(w->ctx, 0, end, 1), batch, false);
}

static co_dataset *
slices(const world *w)
{
    co_value *rows = co_ones(w->ctx, CO_FLOAT32, CO_SHAPE(ROWS, COLUMNS));

    return co_dataset_batch(w->ctx, co_dataset_from_tensor_slices(w->ctx, rows), ROW_BATCH, false);
}

static void
drain_records(const world *w, const char *name, const char *path, size_t nbytes, int64_t batch)
{
    co_context *ctx = w->ctx;
    char       *record = calloc(1, nbytes);

    if (record == NULL) {
        fprintf(stderr, "cohort-bench: no memory for a record of %zu bytes\n", nbytes);
        exit(1);
    }
    CO_BLOCK(ctx) {
        co_record_writer *writer = co_record_writer_open(ctx, path, NULL);

        for (size_t i = 0; i < FILE_BYTES / nbytes && co_ok(ctx); ++i)
            co_record_write(ctx, writer, record, nbytes);
        co_record_writer_close(ctx, writer);
        drain(w, name,
              co_dataset_batch(ctx, co_dataset_tfrecord(ctx, &path, 1, NULL), batch, false));
    }
    free(record);
    unlink(path);
}

static void
drain_files(const world *w)
{
    const char *parent = getenv("TMPDIR");
    char        folder[200], path[220];

    snprintf(folder, sizeof(folder), "%s/cohort-bench-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/records", folder);
    drain_records(w, "input_tfrecord_1k_us", path, 1000, RECORD_BATCH);
    drain_records(w, "input_tfrecord_100k_us", path, 100000, 1);
    rmdir(folder);
}

static void
drain_all(const world *w)
{
    co_context *ctx = w->ctx;

    CO_BLOCK(ctx) {
        drain(w, "input_range_us", co_dataset_range(ctx, 0, RANGE, 1));
        drain(w, "input_range_batch_us", range_batches(w, LONG_RANGE, BATCH));
        drain(w, "input_shuffle_batch_us",
              co_dataset_batch(ctx,
                               co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, SHUFFLED, 1),
                                                  BUFFER, 1, true),
                               BATCH, false));
        drain(w, "input_slices_batch_us", slices(w));
        drain(w, "input_one_slices_batch_us", co_distribute_dataset(ctx, w->one, slices(w), NULL));
        drain(w, "input_one_range_batch_us",
              co_distribute_dataset(ctx, w->one, range_batches(w, 2 * ELEMENTS, 2), NULL));
        drain(w, "input_mirrored2_range_batch_us",
              co_distribute_dataset(ctx, w->mirrored, range_batches(w, 2 * ELEMENTS, 2), NULL));
    }
    drain_files(w);
}

void
bench_calls(void)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context *ctx = co_open("cpus=2");
    world       w = { .ctx = ctx,
                      .one = co_one_device_strategy(ctx, "/cpu:0"),
                      .mirrored = co_mirrored_strategy(ctx, devices, 2, NULL),
                      .x = co_scalar_float(ctx, 3),
                      .range = co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_INT32) };

    w.twice = co_function_of(ctx, twice, NULL, NULL);
    w.run_in_function = co_function_of(ctx, run_one, &w, NULL);
    w.reduce_in_function = co_function_of(ctx, run_and_reduce, &w, NULL);
    w.all_reduce_in_function = co_function_of(ctx, run_all_reduce, &w, NULL);
    bench_check(ctx);
    measure_calls(&w);
    drain_all(&w);
    co_close(ctx);
}

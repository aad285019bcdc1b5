/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: how fast datasets give their elements, plain and through the iterator of a distributed
 * dataset, beside what the machine needs for the same bytes without the library. Record files are
 * made in a temporary folder, which is removed, and are read from the page cache. Everything runs
 * on one thread; that nothing else works is a figure of its own.
 */
#include "bench.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = 100,
    RANGE = 2000000,
    RANGE_BATCH = 100,
    ROWS = 20000, /* of the slices */
    COLUMNS = 784,
    ROW_BATCH = 128,
    RECORD_BATCH = 256,
    SHUFFLED = 100000,
    BUFFER = 10000,
    EPOCHS = 100,
    WARM_EPOCHS = 10
};

#define SECONDS         1.5
#define FILE_BYTES      ((size_t)64 << 20)
#define SHARE_OF_READER 0.85 /* of reading and checking without the library, at least */
#define SHARE_OF_COPY   0.7  /* of copying the bytes, at least */

static _Noreturn void
give_up(const char *what)
{
    perror(what);
    exit(1);
}

/* Memory with large pages, as the library's buffers have. */
static void *
room(size_t nbytes)
{
    size_t page = (size_t)2 << 20;
    void  *memory;

    nbytes = (nbytes + page - 1) / page * page;
    memory = aligned_alloc(page, nbytes);
    if (memory == NULL)
        give_up("cohort-bench: memory");
    madvise(memory, nbytes, MADV_HUGEPAGE);
    memset(memory, 1, nbytes);
    return memory;
}

/* Seconds to drain a dataset; *count elements came. */
static double
drain(co_context *ctx, co_dataset *dataset, int64_t *count)
{
    double begin = bench_now();

    *count = 0;
    CO_EACH(ctx, element, co_iterate(ctx, dataset)) {
        ++*count;
    }
    begin = bench_now() - begin;
    bench_check(ctx);
    return begin;
}

static void
must_be(const char *what, int64_t count, int64_t expected)
{
    if (count == expected)
        return;
    fprintf(stderr, "cohort-bench: %s gave %lld elements, not %lld\n", what, (long long)count,
            (long long)expected);
    exit(1);
}

/* --- numbers in batches --- */

/* The same numbers by hand, each batch in memory of its own. Microseconds a batch. */
static double
count_by_hand(void)
{
    double  begin = bench_now();
    int64_t number = 0;
    int64_t *volatile batch;

    for (int i = 0; i < RANGE / RANGE_BATCH; ++i) {
        batch = malloc(RANGE_BATCH * sizeof(*batch));
        if (batch == NULL)
            give_up("cohort-bench: memory");
        for (int k = 0; k < RANGE_BATCH; ++k)
            batch[k] = number++;
        free(batch);
    }
    return (bench_now() - begin) * 1e6 / (RANGE / RANGE_BATCH);
}

/* Processor time of all threads but this one, in seconds. */
static double
other_threads(void)
{
    struct timespec own;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return bench_cpu() - ((double)own.tv_sec + 1e-9 * (double)own.tv_nsec);
}

static void
range_batches(co_context *ctx, co_strategy *strategy)
{
    co_dataset   *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, RANGE, 1), RANGE_BATCH,
                                             false);
    bench_samples us = { .n = 0 }, hand = { .n = 0 }, others = { .n = 0 };
    int64_t       count;

    dataset = co_distribute_dataset(ctx, strategy, dataset, NULL);
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        double before = other_threads(), seconds = drain(ctx, dataset, &count);

        must_be("range(2 M).batch(100)", count, RANGE / RANGE_BATCH);
        bench_add(&others, (other_threads() - before) / seconds);
        bench_add(&us, seconds * 1e6 / (double)count);
        bench_add(&hand, count_by_hand());
    }
    bench_report_samples("range_batch_us", "us", &us, bench_best(&hand), "a loop by hand", 0.5);
    bench_report_samples("range_batch_spin", "threads", &others, 0, "nobody but the one who asks",
                         0.01);
}

/* --- record files --- */

static void
write_records(co_context *ctx, const char *path, size_t nbytes, int64_t count)
{
    unsigned char *record = room(nbytes);

    CO_BLOCK(ctx) {
        co_record_writer *writer = co_record_writer_open(ctx, path, NULL);

        for (int64_t i = 0; i < count && co_ok(ctx); ++i) {
            for (size_t k = 0; k < nbytes; k += 64)
                record[k] = (unsigned char)(i + (int64_t)k);
            co_record_write(ctx, writer, record, nbytes);
        }
        co_record_writer_close(ctx, writer);
    }
    bench_check(ctx);
    free(record);
}

/* The same file without the library's datasets: each record is read to its place in a batch and its
 * checksum is made. Seconds. */
static double
read_by_hand(const char *path, size_t nbytes, int64_t count, unsigned char *batch)
{
    size_t            whole = nbytes + 16;              /* with its length and checksums */
    size_t            at_once = whole < 65536 ? 64 : 1; /* a part of a batch */
    volatile uint32_t sum = 0;
    int               file = open(path, O_RDONLY | O_CLOEXEC);
    double            begin = bench_now();

    if (file < 0)
        give_up(path);
    for (int64_t done = 0; done < count;) {
        size_t         n = (size_t)(count - done) < at_once ? (size_t)(count - done) : at_once;
        unsigned char *at = batch + (size_t)(done % RECORD_BATCH) * whole;

        if (read(file, at, n * whole) != (ssize_t)(n * whole))
            give_up(path);
        for (size_t i = 0; i < n; ++i)
            sum += co_crc32c(at + i * whole + 12, nbytes);
        done += (int64_t)n;
    }
    (void)sum; /* volatile, so that it is made */
    begin = bench_now() - begin;
    close(file);
    return begin;
}

/* `share` of what can be had is enough where that is less than the goal. */
static void
records(co_context *ctx, const char *folder, const char *name, size_t nbytes, double goal,
        double share)
{
    char           path[300];
    const char    *files[1] = { path };
    int64_t        count = (int64_t)(FILE_BYTES / nbytes), seen;
    double         bytes = (double)nbytes * (double)count;
    bench_samples  ours = { .n = 0 }, hand = { .n = 0 };
    unsigned char *batch = room(RECORD_BATCH * (nbytes + 16));
    co_dataset    *dataset;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    write_records(ctx, path, nbytes, count);
    dataset = co_dataset_batch(ctx, co_dataset_tfrecord(ctx, files, 1, NULL), RECORD_BATCH, false);
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        bench_add(&ours, bytes / drain(ctx, dataset, &seen) * 1e-9);
        must_be(name, seen, (count + RECORD_BATCH - 1) / RECORD_BATCH);
        bench_add(&hand, bytes / read_by_hand(path, nbytes, count, batch) * 1e-9);
    }
    bench_report_rates(name, "GB/s", &ours, bench_most(&hand), "reading and one CRC pass",
                       fmin(goal, share * bench_most(&hand)));
    free(batch);
    unlink(path);
}

static void
record_files(co_context *ctx)
{
    const char *parent = getenv("TMPDIR");
    char        folder[200];

    snprintf(folder, sizeof(folder), "%s/cohort-bench-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(folder) == NULL)
        give_up(folder);
    records(ctx, folder, "tfrecord_1k_gbs", 1000, 4, (double)INFINITY);
    records(ctx, folder, "tfrecord_100k_gbs", 100000, 6, SHARE_OF_READER);
    rmdir(folder);
}

/* --- slices --- */

static double
copy_by_hand(const float *from, float *to)
{
    size_t nbytes = (size_t)ROW_BATCH * COLUMNS * sizeof(*from);
    double begin = bench_now();

    for (size_t row = 0; row + ROW_BATCH <= ROWS; row += ROW_BATCH)
        memcpy(to + row * COLUMNS, from + row * COLUMNS, nbytes);
    return bench_now() - begin;
}

static void
slices(co_context *ctx, co_strategy *strategy)
{
    size_t        nbytes = (size_t)ROWS * COLUMNS * sizeof(float);
    float        *from = room(nbytes), *to = room(nbytes);
    co_value     *data = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(ROWS, COLUMNS), from);
    co_dataset   *dataset = co_dataset_from_tensor_slices(ctx, data);
    bench_samples ratio = { .n = 0 };
    int64_t       count;

    dataset = co_dataset_batch(ctx, dataset, ROW_BATCH, false);
    dataset = co_distribute_dataset(ctx, strategy, dataset, NULL);
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        double seconds = drain(ctx, dataset, &count);

        must_be("slices", count, (ROWS + ROW_BATCH - 1) / ROW_BATCH);
        bench_add(&ratio, copy_by_hand(from, to) / seconds);
    }
    bench_report_rates("slices_batch", "x memcpy", &ratio, 1, "memcpy of the same batches",
                       SHARE_OF_COPY);
    free(from);
    free(to);
}

/* --- shuffling --- */

/* A buffer of numbers, of which one is drawn and replaced. Seconds. */
static double
shuffle_by_hand(int64_t *buffer)
{
    double           begin = bench_now();
    uint64_t         state = 1;
    volatile int64_t given;

    for (int64_t i = 0; i < BUFFER; ++i)
        buffer[i] = i;
    for (int64_t i = BUFFER; i < SHUFFLED + BUFFER; ++i) {
        size_t at;

        state = state * 6364136223846793005u + 1442695040888963407u;
        at = (size_t)((state >> 32) * BUFFER >> 32);
        given = buffer[at];
        buffer[at] = i;
    }
    (void)given;
    return bench_now() - begin;
}

static void
shuffling(co_context *ctx)
{
    co_dataset *dataset = co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, SHUFFLED, 1), BUFFER, 1,
                                             true);
    int64_t    *buffer = room(BUFFER * sizeof(*buffer));
    bench_samples ours = { .n = 0 }, hand = { .n = 0 };
    int64_t       count;

    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        bench_add(&ours, SHUFFLED / drain(ctx, dataset, &count) * 1e-6);
        must_be("shuffle(10 k) of range", count, SHUFFLED);
        bench_add(&hand, SHUFFLED / shuffle_by_hand(buffer) * 1e-6);
    }
    bench_report_rates("shuffle_meps", "M/s", &ours, bench_most(&hand), "numbers alone, by hand",
                       10);
    free(buffer);
}

/* What the library holds more after 100 epochs than after the first few. */
static void
flat_memory(co_context *ctx, co_strategy *strategy)
{
    co_dataset *dataset = co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, BUFFER, 1), BUFFER / 10,
                                             1, true);
    bench_samples grown = { .n = 0 };
    int64_t       before = 0, count;

    dataset = co_dataset_batch(ctx, dataset, RANGE_BATCH, false);
    dataset = co_distribute_dataset(ctx, strategy, dataset, NULL);
    for (int epoch = 0; epoch < EPOCHS; ++epoch) {
        if (epoch == WARM_EPOCHS)
            before = bench_memory(ctx).bytes_in_use;
        CO_BLOCK(ctx) {
            drain(ctx, dataset, &count);
        }
    }
    bench_add(&grown, (double)(bench_memory(ctx).bytes_in_use - before));
    bench_report_samples("epochs_100_growth", "bytes", &grown, 0, "memory that stays as it is", 0);
}

void
bench_input(void)
{
    co_context  *ctx = bench_open(1);
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");

    range_batches(ctx, strategy);
    record_files(ctx);
    slices(ctx, strategy);
    shuffling(ctx);
    flat_memory(ctx, strategy);
    bench_check(ctx);
    co_close(ctx);
}

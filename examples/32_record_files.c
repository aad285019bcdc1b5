/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distribute record files. The samples of experimental_distribute_dataset that read four TFRecord
 * files (seed002/4, seed003/2, seed003/3), under a mirrored strategy of the v1 flavour; the files
 * are written here first. As written they distribute single records, which several replicas cannot
 * divide: they need batches. In the third sample the step is a captured function whose signature is
 * the element_spec of the distributed dataset: short and empty batches capture nothing new.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NUM_FILES = 4 };

/* Records "f0r0", "f0r1" and so on. */
static void
write_files(co_context *ctx, const char *folder, char names[NUM_FILES][80])
{
    static const int records[NUM_FILES] = { 3, 2, 4, 1 };

    for (int f = 0; f < NUM_FILES; ++f) {
        co_record_writer *writer;

        snprintf(names[f], sizeof(names[f]), "%.60s/%d.tfr", folder, f + 1);
        writer = co_record_writer_open(ctx, names[f], NULL);
        for (int r = 0; r < records[f]; ++r) {
            char record[16];
            int  n = snprintf(record, sizeof(record), "f%dr%d", f, r);

            co_record_write(ctx, writer, record, (size_t)n);
        }
        co_record_writer_close(ctx, writer);
    }
}

/* Bytes of all records that this replica got. */
static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    co_value *records = co_at(ctx, args, 0);
    size_t    nbytes, sum = 0;

    (void)user;
    for (int64_t i = 0; i < co_value_num_elements(ctx, records); ++i) {
        co_string_at(ctx, records, i, &nbytes);
        sum += nbytes;
    }
    return co_scalar_int32(ctx, (int32_t)sum);
}

/* A step that can be captured: how many records this replica got. */
static co_value *
count_records(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_size(ctx, co_at(ctx, args, 0));
}

/* The third sample. */
static void
run_with_signature(co_context *ctx, co_strategy *strategy, co_dataset *dist_dataset)
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function_stats   stats = CO_FUNCTION_STATS_INIT;
    co_function        *f;

    options.signature = co_args(ctx, co_element_spec(ctx, dist_dataset));
    f = co_function_of(ctx, count_records, NULL, &options);
    CO_EACH(ctx, x, co_iterate(ctx, dist_dataset)) {
        co_value *counts = co_run(ctx, strategy, co_captured, co_args(ctx, x), f);

        printf("%lld and %lld records\n", (long long)co_item_int(ctx, co_at(ctx, counts, 0)),
               (long long)co_item_int(ctx, co_at(ctx, counts, 1)));
    }
    co_function_get_stats(ctx, f, &stats);
    printf("captures: %lld, one for each replica\n", (long long)stats.captures);
}

static void
show(co_context *ctx, co_value *value)
{
    char text[300];

    co_format(ctx, value, text, sizeof(text));
    printf("%s\n", text);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    char         folder[] = "/tmp/cohort-example-XXXXXX", names[NUM_FILES][80];
    const char  *files[NUM_FILES];
    co_dataset  *dataset, *dist_dataset;

    if (mkdtemp(folder) == NULL)
        return 1;
    write_files(ctx, folder, names);
    for (int f = 0; f < NUM_FILES; ++f)
        files[f] = names[f];

    dataset = co_dataset_tfrecord(ctx, files, NUM_FILES, NULL);
    co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    printf("%s\n", co_error(ctx)->message);
    co_clear(ctx);

    dataset = co_dataset_batch(ctx, dataset, 4, false);
    dist_dataset = co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    show(ctx, co_element_spec(ctx, dist_dataset));
    CO_EACH(ctx, x, co_iterate(ctx, dist_dataset)) {
        show(ctx, x);
        show(ctx, co_run(ctx, strategy, train_step, co_args(ctx, x), NULL));
    }
    run_with_signature(ctx, strategy, dist_dataset);

    for (int f = 0; f < NUM_FILES; ++f)
        unlink(names[f]);
    rmdir(folder);
    return co_close(ctx);
}

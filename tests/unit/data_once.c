/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exactly once: whatever the number of examples, the batch size, the replicas and the workers, the
 * inputs of all workers together have every example once, in AUTO, DATA and FILE.
 * co_dataset_for_worker gives each worker's input without a cluster.
 */
#include "files_support.h"

enum { MOST_EXAMPLES = 40, MOST_BATCH = 9, MOST_REPLICAS = 4, MOST_WORKERS = 4 };

typedef co_dataset *(*source_fn)(co_context *ctx, int examples);

static co_dataset *
numbers(co_context *ctx, int examples)
{
    return co_dataset_range(ctx, 0, examples, 1);
}

static const char *
file_name(int file, char *out)
{
    static const char *const names[MOST_WORKERS] = { "0", "1", "2", "3" };

    return files_path(names[file], out);
}

/* Four files, of which some have many examples and some have none. */
static void
write_files(int examples)
{
    char name[FILES_PATH], text[4 * MOST_EXAMPLES];

    for (int i = 0, at = 0; i < MOST_WORKERS; ++i) {
        int    end = i == MOST_WORKERS - 1 ? examples : at + (examples - at) * (i % 3) / 2;
        size_t n = 0;

        for (; at < end; ++at)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%d\n", at);
        files_write(file_name(i, name), text, n);
    }
}

static co_dataset *
lines(co_context *ctx, int examples)
{
    char        room[MOST_WORKERS][FILES_PATH];
    const char *names[MOST_WORKERS];

    (void)examples;
    for (int i = 0; i < MOST_WORKERS; ++i)
        names[i] = file_name(i, room[i]);
    return co_dataset_text_lines(ctx, names, MOST_WORKERS, NULL);
}

/* Add what a worker reads to how often each example was seen. */
static void
read_worker(co_context *ctx, co_dataset *dataset, int examples, int *seen)
{
    CO_EACH(ctx, piece, co_iterate(ctx, dataset)) {
        bool is_text = co_value_dtype(ctx, piece) == CO_STRING;

        for (int64_t i = 0; i < co_value_num_elements(ctx, piece); ++i) {
            int64_t numbers_of[MOST_BATCH];
            long    example;

            if (is_text) {
                example = strtol(co_string_at(ctx, piece, i, NULL), NULL, 10);
            } else {
                co_value_copy_data(ctx, piece, CO_INT64, numbers_of,
                                   co_value_num_elements(ctx, piece));
                example = (long)numbers_of[i];
            }
            CO_REQUIRE(example >= 0 && example < examples);
            ++seen[example];
        }
    }
}

/* All workers of one layout; false if an example is lost or doubled. */
static bool
is_once(co_context *ctx, co_dataset *dataset, int examples, int workers, int replicas)
{
    int seen[MOST_EXAMPLES] = { 0 };

    for (int w = 0; w < workers; ++w) {
        co_input_context input = { workers, w, workers * replicas };

        read_worker(ctx, co_dataset_for_worker(ctx, dataset, &input), examples, seen);
    }
    for (int i = 0; i < examples; ++i)
        if (seen[i] != 1)
            return false;
    return true;
}

static void
try_layouts(co_context *ctx, source_fn source, co_autoshard policy, int examples)
{
    for (int batch = 1; batch <= MOST_BATCH; ++batch)
        for (int workers = 1; workers <= MOST_WORKERS; ++workers)
            for (int replicas = 1; replicas <= MOST_REPLICAS; ++replicas)
                CO_BLOCK(ctx) {
                    co_dataset *dataset = co_dataset_batch(ctx, source(ctx, examples), batch,
                                                           false);

                    dataset = co_dataset_with_autoshard(ctx, dataset, policy);
                    if (!is_once(ctx, dataset, examples, workers, replicas))
                        test_fail(TEST_AT,
                                  "%d examples, batch %d, %d workers of %d replicas, policy %d: "
                                  "an example is lost or doubled",
                                  examples, batch, workers, replicas, (int)policy);
                }
}

CO_TEST_WITH(workers_read_every_number_exactly_once, "DS-SHARD-6 DS-SHARD-7 DS-SPLIT-1",
             "log=error")
{
    for (int examples = 0; examples <= MOST_EXAMPLES; examples += TEST_SANITIZED ? 8 : 1) {
        try_layouts(ctx, numbers, CO_AUTOSHARD_AUTO, examples);
        try_layouts(ctx, numbers, CO_AUTOSHARD_DATA, examples);
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(workers_read_every_line_of_files_exactly_once,
        "DS-SHARD-2 DS-SHARD-7 DS-SPLIT-2 DS-SPLIT-3")
{
    for (int examples = 0; examples <= MOST_EXAMPLES; examples += TEST_SANITIZED ? 8 : 1) {
        write_files(examples);
        try_layouts(ctx, lines, CO_AUTOSHARD_AUTO, examples);
        try_layouts(ctx, lines, CO_AUTOSHARD_FILE, examples);
        try_layouts(ctx, lines, CO_AUTOSHARD_DATA, examples);
    }
    files_clean();
    CO_EXPECT_OK(ctx);
}

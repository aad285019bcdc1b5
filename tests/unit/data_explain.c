/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explanations: the tree of a pipeline, what distribution decided and why, and the line in the log.
 */
#include "data_support.h"

#define TEXT 200000

static char text[TEXT];

/* The explanation of a dataset; NULL input: as it is. */
static const char *
explain(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    size_t length = co_dataset_explain(ctx, dataset, input, text, sizeof(text));

    CO_EXPECT_INT(length, strlen(text));
    CO_EXPECT_OK(ctx);
    return text;
}

CO_TEST(every_stage_shows_its_arguments, "")
{
    static const struct {
        const char *pipeline, *tree;
    } rows[] = {
        { "range(3,17,4)", "range from 3, step 4 -> 4 elements\n" },
        { "range(10).batch(4)", "batch of 4 -> 3 elements\n"
                                "  range from 0, step 1 -> 10 elements\n" },
        { "range(10).batch_drop(4).repeat", "repeat forever -> endless\n"
                                            "  batch of 4, remainder dropped -> 2 elements\n"
                                            "    range from 0, step 1 -> 10 elements\n" },
        { "range(1).take(-1).skip(1).repeat(3)", "repeat 3 -> 0 elements\n"
                                                 "  skip 1 -> 0 elements\n"
                                                 "    take all -> 1 element\n"
                                                 "      range from 0, step 1 -> 1 element\n" },
        { "range(9).batch(3).rebatch_drop(2,1).even.OFF",
          "options: policy OFF -> length not known\n"
          "  filter -> length not known\n"
          "    rebatch to 2, 1, remainder dropped -> length not known\n"
          "      batch of 3 -> 3 elements\n"
          "        range from 0, step 1 -> 9 elements\n" },
        { "range(9).shard(3,1).double.prefetch(2)",
          "prefetch, up to 2 elements prefetched -> 3 elements\n"
          "  map -> 3 elements\n"
          "    shard 1 of 3 -> 3 elements\n"
          "      range from 0, step 1 -> 9 elements\n" },
        { "range(9).shard.prefetch(2)",
          "prefetch, up to 2 elements prefetched -> length not known\n"
          "  shard by CO_SHARD_HINT -> length not known\n"
          "    range from 0, step 1 -> 9 elements\n" },
        { "range(2).prefetch(2)", "prefetch, none prefetched: elements cost nothing -> 2 elements\n"
                                  "  range from 0, step 1 -> 2 elements\n" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        CO_EXPECT_STR(explain(ctx, data_pipeline(ctx, rows[i].pipeline), NULL), rows[i].tree);
}

static co_dataset *
one_more(co_context *ctx, co_value *element, void *user)
{
    (void)element, (void)user;
    return co_dataset_range(ctx, 0, 1, 1);
}

CO_TEST(stages_with_more_arguments_show_them_too, "")
{
    co_dataset           *range = co_dataset_range(ctx, 0, 6, 1), *both[2];
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_map_options        calls = CO_MAP_OPTIONS_INIT;
    int64_t               sizes[20];

    both[0] = co_dataset_shuffle(ctx, range, 5, -3, true);
    both[1] = co_dataset_window(ctx, range, 2,
                                &(co_window_options){ sizeof(co_window_options), 1, 3, true });
    CO_EXPECT_STR(explain(ctx, co_dataset_zip(ctx, both, 2), NULL),
                  "zip of 2 -> 3 elements\n"
                  "  shuffle, buffer 5, seed -3, in another order each time -> 6 elements\n"
                  "    range from 0, step 1 -> 6 elements\n"
                  "  window of 2, remainder dropped, shift 1, stride 3 -> 3 elements\n"
                  "    range from 0, step 1 -> 6 elements\n");
    options.num_parallel_calls = 9;
    options.deterministic = false;
    CO_EXPECT_CONTAINS(
        explain(ctx, co_dataset_interleave(ctx, range, one_more, NULL, NULL, &options), NULL),
        "interleave, cycle 4, block 1, up to 4 prefetched, 8 elements of each, as they are ready "
        "-> ");
    options.cycle_length = 2;
    options.deterministic = true;
    options.num_parallel_calls = 256;
    CO_EXPECT_CONTAINS(
        explain(ctx, co_dataset_interleave(ctx, range, one_more, NULL, NULL, &options), NULL),
        "interleave, cycle 2, block 1, up to 258 prefetched, 8 elements of each -> ");
    CO_EXPECT_CONTAINS(
        explain(ctx,
                co_dataset_interleave(ctx, co_dataset_map(ctx, range, data_double, NULL, NULL),
                                      one_more, NULL, NULL, &options),
                NULL),
        "interleave, cycle 2, block 1, up to 2 prefetched, 8 elements of each -> ");
    options.deterministic = false;
    options.cycle_length = 4;
    options.opens_files = true;
    options.num_parallel_calls = 0;
    CO_EXPECT_CONTAINS(
        explain(ctx, co_dataset_interleave(ctx, range, one_more, NULL, NULL, &options), NULL),
        "interleave, cycle 4, block 1 -> length not known\n  range");
    CO_EXPECT_CONTAINS(explain(ctx, data_pipeline(ctx, "range(6).double.prefetch(0)"), NULL),
                       "prefetch, none prefetched: the size is 0 -> 6 elements\n");
    calls.num_parallel_calls = 3;
    CO_EXPECT_CONTAINS(
        explain(ctx, co_dataset_parallel_map(ctx, range, data_double, NULL, NULL, &calls), NULL),
        "map, 3 calls at a time, up to twice as many elements prefetched -> 6 elements\n");
    calls.deterministic = false;
    CO_EXPECT_CONTAINS(
        explain(ctx, co_dataset_parallel_map(ctx, range, data_double, NULL, NULL, &calls), NULL),
        "prefetched, as they are ready -> ");
    for (int i = 0; i < 20; ++i)
        sizes[i] = i;
    CO_EXPECT_CONTAINS(explain(ctx,
                               co_dataset_rebatch(ctx, data_pipeline(ctx, "range(9).batch(3)"),
                                                  sizes, 20, false),
                               NULL),
                       "rebatch to 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... -> ");
    CO_EXPECT_CONTAINS(
        explain(ctx,
                co_dataset_padded_batch(ctx, range, 4,
                                        &(co_padded_batch_options){ sizeof(co_padded_batch_options),
                                                                    NULL, NULL, true }),
                NULL),
        "padded_batch of 4, remainder dropped -> 1 element\n");
}

/* --- distribution --- */

#define AUTO_DATA                                                                                  \
    "sharding: AUTO becomes DATA, because the source range reads no files: every worker runs the " \
    "whole pipeline, slices of batches go to workers in turn\n"

CO_TEST(the_decision_and_its_reason_are_told,
        "DS-SHARD-1 DS-SHARD-7 DS-SHARD-8 DS-SHARD-9 DS-SPLIT-2 DS-SPLIT-3 DS-SPLIT-6")
{
    static const struct {
        const char      *pipeline;
        co_input_context input;
        const char      *parts[3];
    } rows[] = {
        { "range(100).batch(10)",
          { 2, 1, 4 },
          { "worker 1 of 2, replicas 2 to 3 of 4\n" AUTO_DATA,
            "splitting: CEIL, because AUTO becomes DATA (the source range reads no files): each batch "
            "is cut for 4 replicas, 10 rows into 3, 3, 3, 1\n",
            "shard 1 of 2 -> 20 elements (added by distribution)\n"
            "  split -> 40 elements (added by distribution)\n"
            "    batch of 10 -> 10 elements\n" } },
        { "range(100).batch(10).REPLICA",
          { 2, 0, 4 },
          { "sharding: REPLICA, as asked for: every worker",
            "splitting: CEIL, because the policy is REPLICA: each batch is cut for 4 replicas, 10 rows "
            "into 3, 3, 3, 1\n",
            "shard 0 of 2, 2 at a time -> " } },
        { "range(100).batch(10).OFF",
          { 2, 1, 4 },
          { "sharding: OFF, as asked for: every worker reads everything\n",
            "splitting: SCHEDULE, because the policy is OFF: the rows of all batches are cut for 4 "
            "replicas, 10 rows into 3, 3, 2, 2; a short last batch fills the first replicas "
            "(CO_AUTOSHARD_REPLICA cuts each batch evenly)\n",
            "rebatch to 2, 2, 3, 3 -> length not known (added by distribution)\n  options" } },
        { "range(8).shard.batch(4).HINT",
          { 2, 1, 2 },
          { "sharding: HINT, as asked for: the shard with CO_SHARD_HINT is filled in\n",
            "4 rows into 2, 2; a short last batch",
            "    batch of 4 -> 1 element\n"
            "      shard 1 of 2 -> 4 elements (added by distribution)\n" } },
        { "range(8).batch(4).HINT",
          { 2, 1, 2 },
          { "sharding: HINT, as asked for: no shard has CO_SHARD_HINT, so every worker reads "
            "everything\n",
            "rebatch to 2, 2 -> ", "batch of 4 -> 2 elements\n" } },
        { "range(8).batch(4)",
          { 1, 0, 1 },
          { "worker 0 of 1, replicas 0 to 0 of 1\n",
            "sharding: none, because there is one worker\n",
            "splitting: none, because there is one replica\nbatch of 4 -> 2 elements\n" } },
        { "range(8).batch(4).double",
          { 1, 0, 2 },
          { "sharding: none",
            "splitting: CEIL, because AUTO becomes DATA (the source range reads no files): each batch "
            "is cut for 2 replicas\n",
            "split -> 4 elem" } },
        { "range(8).batch(4).double.OFF",
          { 1, 0, 2 },
          { "sharding: none", "splitting: CEIL, because the batch size is not known: each batch",
            "split -> 4 elem" } },
        { "range(80).batch(40)",
          { 1, 0, 20 },
          { "sharding: none", "into 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, ...\n",
            "split -> " } },
        { "range(8).batch(2)",
          { 1, 0, 4 },
          { "none", "2 rows into 1, 1, 0, 0\n", "split -> 16 elem" } },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        explain(ctx, data_pipeline(ctx, rows[i].pipeline), &rows[i].input);
        for (int k = 0; k < 3; ++k)
            CO_EXPECT_CONTAINS(text, rows[i].parts[k]);
    }
}

static co_dataset *
text_files(co_context *ctx, size_t n)
{
    static const char *const names[] = { "a\nb\x1b[2J", "b", "c", "d", "e", "f", "g", "h" };

    return co_dataset_batch(ctx, co_dataset_text_lines(ctx, names, n, NULL), 10, false);
}

/* Nothing is read: there are no such files. */
CO_TEST(sharding_by_files_is_explained, "DS-SHARD-2 DS-SHARD-5 DS-SHARD-7 AMB-9")
{
    co_input_context      input = { 4, 1, 4 };
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_dataset           *names;

    explain(ctx, text_files(ctx, 8), &input);
    CO_EXPECT_CONTAINS(text, "sharding: AUTO becomes FILE, because the input is read from files: "
                             "whole files go to workers in turn; 8 files for 4 workers\n");
    CO_EXPECT_CONTAINS(text, "    files (text_lines): 2 of 8, the first 'b' -> length not known "
                             "(added by distribution)\n");
    explain(ctx, text_files(ctx, 1), &input);
    CO_EXPECT_CONTAINS(text, "; 1 file for 4 workers, too few: co_next will fail\n");
    explain(ctx, co_dataset_with_autoshard(ctx, text_files(ctx, 3), CO_AUTOSHARD_FILE), &input);
    CO_EXPECT_CONTAINS(text, "sharding: FILE, as asked for: whole");
    CO_EXPECT_CONTAINS(text, "; 3 files for 4 workers, too few: co_next will fail\n");
    CO_EXPECT_CONTAINS(explain(ctx, text_files(ctx, 2), NULL),
                       "files (text_lines): 2, the first 'a b?[2J' -> length not known\n");
    CO_EXPECT_CONTAINS(explain(ctx, text_files(ctx, 0), NULL),
                       "files (text_lines): 0 -> length not known\n");
    /* One worker: nothing is sharded, but files and memory are split in two ways. */
    explain(ctx, text_files(ctx, 1), &(co_input_context){ 1, 0, 2 });
    CO_EXPECT_CONTAINS(
        text,
        "splitting: SCHEDULE, because AUTO becomes FILE (the input is read from files): the rows of "
        "all batches are cut for 2 replicas, 10 rows into 5, 5; a short last batch fills the first "
        "replicas (CO_AUTOSHARD_REPLICA cuts each batch evenly)\n");
    options.opens_files = true;
    names = co_dataset_filter(ctx, co_dataset_range(ctx, 0, 8, 1), data_even, NULL);
    names = co_dataset_interleave(ctx, names, one_more, NULL, NULL, &options);
    explain(ctx, co_dataset_batch(ctx, names, 2, false), &input);
    CO_EXPECT_CONTAINS(text,
                       "because the input is read from files: whole files go to workers in turn\n");
    CO_EXPECT_CONTAINS(text, "shard 1 of 4 -> length not known (added by distribution)\n");
}

static co_dataset *
numbers(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input, (void)user;
    return data_pipeline(ctx, "range(6).double.batch(2)");
}

CO_TEST_WITH(distributed_datasets_are_explained, "DS-FN-2 DS-PREF-1", "cpus=2")
{
    co_strategy *two = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *dataset = co_distribute_dataset(ctx, two, numbers(ctx, NULL, NULL), NULL);

    CO_EXPECT_STR(explain(ctx, dataset, NULL),
                  "worker 0 of 1, replicas 0 to 1 of 2\n"
                  "sharding: none, because there is one worker\n"
                  "splitting: CEIL, because AUTO becomes DATA (the source range reads no files): "
                  "each batch is cut for 2 replicas, 2 rows into 1, 1\n"
                  "distributed -> 3 elements\n"
                  "  prefetch, up to 2 elements prefetched -> 6 elements (added by distribution)\n"
                  "    split -> 6 elements (added by distribution)\n"
                  "      batch of 2 -> 3 elements\n"
                  "        map -> 6 elements\n"
                  "          range from 0, step 1 -> 6 elements\n");
    dataset = co_distribute_datasets_from_function(ctx, two, numbers, NULL, NULL);
    explain(ctx, dataset, NULL);
    CO_EXPECT_CONTAINS(text, "sharding: none, because a function made the dataset of each worker\n"
                             "splitting: none: each replica takes the next element\n"
                             "distributed -> length not known\n");
    CO_EXPECT_INT(co_dataset_explain(ctx, dataset, &(co_input_context){ 1, 0, 1 }, NULL, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (input) is given for a distributed");
}

/* Weights: the rows that are told are those that are read. */
CO_TEST_WITH(shares_by_weight_are_told_as_they_are, "", "cpus=3")
{
    static const char *const pipelines[] = { "range(20).batch(10)", "range(20).batch(10).OFF",
                                             "range(20).batch(10).REPLICA" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy             *three;

    options.weights = (const int64_t[]){ 1, 3, 2 };
    options.num_weights = 3;
    three = co_mirrored_strategy(ctx, NULL, 0, &options);
    for (size_t i = 0; i < 3; ++i) {
        co_dataset *dataset = co_distribute_dataset(ctx, three, data_pipeline(ctx, pipelines[i]),
                                                    NULL);
        co_value   *first = co_next(ctx, co_iterate(ctx, dataset));
        char        rows[60];

        snprintf(rows, sizeof(rows), "by weights, 10 rows into %lld, %lld, %lld\n",
                 (long long)co_value_num_elements(ctx, co_at(ctx, first, 0)),
                 (long long)co_value_num_elements(ctx, co_at(ctx, first, 1)),
                 (long long)co_value_num_elements(ctx, co_at(ctx, first, 2)));
        CO_EXPECT_CONTAINS(explain(ctx, dataset, NULL), rows);
    }
}

/* Rows of piece i of the first batch: by which worker it is read depends on the policy. */
static int64_t
rows_read(co_context *ctx, co_dataset *dataset, int workers, int replicas, int i, bool in_turn)
{
    int              at = in_turn ? i / workers : i % replicas;
    co_input_context input = { workers, in_turn ? i % workers : i / replicas, workers * replicas };
    co_iterator     *it = co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input));

    while (at-- > 0)
        co_next(ctx, it);
    return co_value_num_elements(ctx, co_next(ctx, it));
}

CO_TEST(rows_that_are_told_are_those_that_are_read, "DS-SPLIT-1 DS-SPLIT-2 DS-SPLIT-4")
{
    static const char *const policies[] = { "", ".OFF", ".REPLICA" };

    for (int k = 0; k < 3 * 9 * 4 * 4; ++k)
        CO_BLOCK(ctx) {
            int         workers = k / 3 % 4 + 1, replicas = k / 12 % 4 + 1, n = workers * replicas;
            char        line[300] = "", pipeline[80];
            data_out    out = { line, 0 };
            co_dataset *dataset;

            snprintf(pipeline, sizeof(pipeline), "range(90).batch(%d)%s", k / 48 + 1,
                     policies[k % 3]);
            dataset = data_pipeline(ctx, pipeline);
            for (int i = 0; n > 1 && i < n; ++i)
                data_put(&out, "%s %lld",
                         i > 0         ? ","
                         : k / 48 == 0 ? " row into"
                                       : " rows into",
                         (long long)rows_read(ctx, dataset, workers, replicas, i, k % 3 == 0));
            CO_EXPECT_CONTAINS(explain(ctx, dataset, &(co_input_context){ workers, 0, n }), line);
        }
}

/* --- the log --- */

typedef struct line_count {
    int  info, other;
    char last[900];
} line_count;

static void
count_line(co_log_level level, const char *line, void *user)
{
    line_count *count = user;

    if (strstr(line, "shard") == NULL && strstr(line, "dataset") == NULL)
        return; /* the machine has something to say */
    count->info += level == CO_LOG_INFO;
    count->other += level != CO_LOG_INFO;
    if (level == CO_LOG_INFO)
        snprintf(count->last, sizeof(count->last), "%s", line);
}

CO_TEST_BARE(several_workers_log_one_line_and_one_worker_none, "DS-SHARD-7")
{
    line_count       count = { 0 };
    co_options       options = CO_OPTIONS_INIT;
    co_input_context alone = { 1, 0, 2 }, second = { 2, 1, 2 };
    co_context      *own;
    co_dataset      *dataset;

    options.settings = "cpus=2, log=info";
    options.log = count_line;
    options.log_user = &count;
    own = co_open_with(&options);
    dataset = data_pipeline(own, "range(4).batch(2)");
    co_dataset_for_worker(own, dataset, &alone);
    co_dataset_auto_shard(own, dataset, 1, 0);
    co_distribute_dataset(own, co_mirrored_strategy(own, NULL, 0, NULL), dataset, NULL);
    co_distribute_dataset(own, co_one_device_strategy(own, "/cpu:0"), dataset, NULL);
    co_dataset_explain(own, dataset, &second, NULL, 0);
    CO_EXPECT_INT(count.info + count.other, 0);
    co_dataset_for_worker(own, dataset, &second);
    CO_EXPECT_INT(count.info, 1);
    CO_EXPECT_INT(count.other, 1); /* the warning of DS-SHARD-7 */
    CO_EXPECT_STR(count.last,
                  "input of worker 1 of 2: sharding AUTO becomes DATA, because the source range "
                  "reads no files: every worker runs the whole pipeline, slices of batches go to "
                  "workers in turn (co_dataset_explain shows the pipeline)");
    co_dataset_for_worker(own, data_pipeline(own, "range(4).batch(2).OFF"), &second);
    CO_EXPECT_INT(count.info, 2);
    co_dataset_auto_shard(own, data_pipeline(own, "range(4).batch(2).DATA"), 2, 0);
    CO_EXPECT_INT(count.info, 3);
    CO_EXPECT_INT(count.other, 1);
    /* What fails is not announced. */
    co_dataset_for_worker(own, data_pipeline(own, "range(4).batch(2).FILE"), &second);
    CO_EXPECT_ERROR(own, CO_NOT_FOUND, "reads no files");
    CO_EXPECT_INT(count.info, 3);
    CO_EXPECT_CODE(co_close(own), CO_OK);
}

/* --- sizes, arguments, memory --- */

CO_TEST(long_and_wide_pipelines_are_cut, "")
{
    enum { WIDE = 1500 };
    co_dataset  *range = co_dataset_range(ctx, 0, 3, 1), *deep = range, *nested = range;
    co_dataset **inputs = malloc(WIDE * sizeof(co_dataset *));
    char         few[12] = "abcdefghijk";
    size_t       length;

    for (int i = 0; i < WIDE; ++i)
        inputs[i] = range;
    explain(ctx, co_dataset_zip(ctx, inputs, WIDE), NULL);
    CO_EXPECT_CONTAINS(text, "zip of 1500 -> 3 elements\n");
    CO_EXPECT_CONTAINS(text, "\n... and 501 stages more\n");
    for (int i = 0; i < 490; ++i)
        deep = co_dataset_skip(ctx, deep, 0);
    explain(ctx, deep, NULL);
    CO_EXPECT_CONTAINS(text, "\n                                        range from 0, step 1 -> 3");
    length = strlen(text);
    CO_EXPECT_INT(co_dataset_explain(ctx, deep, NULL, few, sizeof(few)), length);
    CO_EXPECT_STR(few, "skip 0 -> 3");
    CO_EXPECT_INT(co_dataset_explain(ctx, deep, NULL, few, 1), length);
    CO_EXPECT_STR(few, "");
    CO_EXPECT_INT(co_dataset_explain(ctx, deep, NULL, NULL, 0), length);
    for (int i = 0; i < 15; ++i) /* 2^16 stages, of which one was made for each level */
        nested = co_dataset_concatenate(ctx, nested, nested);
    explain(ctx, nested, NULL);
    CO_EXPECT_CONTAINS(text, "\n... and 64535 stages more\n");
    free(inputs);
}

CO_TEST(names_of_stages_are_shown_without_control_characters, "")
{
    co_dataset *range = co_dataset_set_name(ctx, co_dataset_range(ctx, 0, 3, 1), "a\nb\x1b#0?");
    co_input_context input = { 2, 0, 2 };

    CO_EXPECT_STR(explain(ctx, range, NULL), "range 'a b?#0?' from 0, step 1 -> 3 elements\n");
    explain(ctx, co_dataset_batch(ctx, range, 2, false), &input);
    CO_EXPECT_CONTAINS(text, "because the source range 'a b?#0?' reads no files: ");
}

CO_TEST(long_names_of_files_are_cut, "")
{
    char        name[5000];
    const char *names[] = { name };

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    explain(ctx, co_dataset_text_lines(ctx, names, 1, NULL), NULL);
    CO_EXPECT_LESS(strlen(text), 200);
    CO_EXPECT_CONTAINS(text, "x' -> length not known\n");
}

CO_TEST(explanations_refuse_wrong_arguments, "")
{
    co_dataset *dataset = data_pipeline(ctx, "range(4)");
    char        few[4] = "old";

    CO_EXPECT_INT(co_dataset_explain(ctx, NULL, NULL, few, sizeof(few)), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (dataset) of dataset_explain is NULL");
    CO_EXPECT_STR(few, "");
    CO_EXPECT_INT(co_dataset_explain(ctx, dataset, NULL, NULL, 9), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                    "argument 4 (out) is NULL; give room for 9 bytes, or say 0");
    CO_EXPECT_INT(co_dataset_explain(ctx, dataset, &(co_input_context){ 2, 2, 2 }, NULL, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pipeline 2 of 2");
    CO_EXPECT_INT(co_dataset_explain(ctx, dataset, &(co_input_context){ 2, 0, 3 }, NULL, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "3 replicas cannot be spread evenly over 2");
    CO_EXPECT_INT(co_dataset_explain(ctx, dataset, &(co_input_context){ 1, 0, 2 }, NULL, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the dataset is not batched");
    CO_EXPECT_INT(co_dataset_explain(NULL, dataset, NULL, few, sizeof(few)), 0);
}

static bool
explain_some(co_context *ctx)
{
    co_input_context input = { 2, 1, 4 };
    co_dataset      *dataset = data_pipeline(ctx, "range(8).batch(4)");

    return co_dataset_explain(ctx, dataset, &input, text, sizeof(text)) > 0;
}

CO_TEST_BARE(explaining_survives_want_of_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", explain_some);
}

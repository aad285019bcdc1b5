/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of the stages of an iterator.
 */
#include "data_support.h"

#include <time.h>

static co_value *
slow(co_context *ctx, co_value *x, void *user)
{
    struct timespec t = { 0, 2000000 };

    (void)ctx, (void)user;
    nanosleep(&t, NULL);
    return x;
}

/* The stages as "name:elements:bytes", with as many blanks before them as they are deep. */
static const char *
counts(co_context *ctx, co_iterator *iterator, char *text)
{
    co_stage_stats stats = CO_STAGE_STATS_INIT;
    data_out       out = { text, 0 };

    text[0] = '\0';
    for (size_t i = 0; co_iterator_stats(ctx, iterator, i, &stats); ++i)
        data_put(&out, "%*s%s:%lld:%lld\n", stats.depth, "", stats.name, (long long)stats.elements,
                 (long long)stats.bytes);
    CO_EXPECT_OK(ctx);
    return text;
}

CO_TEST(stages_count_elements_and_bytes, "")
{
    static const struct {
        const char *pipeline, *counts;
    } rows[] = {
        { "range(10).batch(4)", "batch:3:80\n range:10:80\n" },
        { "range(3).double.repeat(3)", "repeat:9:72\n map:9:72\n  range:9:72\n" },
        { "range(9).even.skip(1).prefetch(2)",
          "prefetch:4:32\n skip:4:32\n  filter:5:40\n   range:9:72\n" },
        { "range(4).cache.repeat(2)", "repeat:8:64\n cache:8:64\n  range:4:32\n" },
        { "range(2).enumerate(5).OFF", "zip:2:32\n range:2:16\n range:2:16\n" },
        { "range(0)", "range:0:0\n" },
    };
    char text[DATA_TEXT], elements[DATA_TEXT];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_iterator *iterator = co_iterate(ctx, data_pipeline(ctx, rows[i].pipeline));

        data_rest(ctx, iterator, 40, elements);
        /* Of the numbers of an enumeration one more is made, to find the end. */
        if (strstr(rows[i].pipeline, "enumerate") == NULL)
            CO_EXPECT_STR(counts(ctx, iterator, text), rows[i].counts);
        else
            CO_EXPECT_CONTAINS(counts(ctx, iterator, text), "zip:2:32");
    }
}

CO_TEST_WITH(distributed_iterators_count_the_stages_of_their_worker, "DS-PART-5", "cpus=2")
{
    co_strategy *two = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *drop = data_pipeline(ctx, "range(5).batch_drop(1)");
    co_iterator *iterator = co_iterate(
        ctx, co_distribute_dataset(ctx, two, data_pipeline(ctx, "range(5).batch(2)"), NULL));
    co_stage_stats stats = CO_STAGE_STATS_INIT;
    char           text[DATA_TEXT], elements[DATA_TEXT];

    data_rest(ctx, iterator, 9, elements);
    CO_EXPECT_STR(counts(ctx, iterator, text),
                  "distributed:3:40\n split:6:40\n  batch:3:40\n   range:5:40\n");
    iterator = co_iterate(ctx, co_distribute_dataset(ctx, two, drop, NULL));
    data_rest(ctx, iterator, 9, elements);
    CO_EXPECT_TRUE(co_iterator_stats(ctx, iterator, 0, &stats));
    CO_EXPECT_INT(stats.dropped_rows, co_iterator_dropped_rows(ctx, iterator));
}

CO_TEST(working_and_waiting_are_measured, "")
{
    co_stage_stats stats = CO_STAGE_STATS_INIT;
    co_dataset    *map = co_dataset_map(ctx, co_dataset_range(ctx, 0, 6, 1), slow, NULL, NULL);
    co_iterator   *iterator = co_iterate(ctx, co_dataset_prefetch(ctx, map, 2));
    co_map_options options = CO_MAP_OPTIONS_INIT;
    char           text[DATA_TEXT];

    data_rest(ctx, iterator, 9, text);
    CO_EXPECT_TRUE(co_iterator_stats(ctx, iterator, 0, &stats));
    CO_EXPECT_STR(stats.name, "prefetch");
    CO_EXPECT_MORE(stats.waiting_ns,
                   2000000); /* the loop does nothing: it waits for what is made */
    CO_EXPECT_INT(stats.working_ns, 0);
    CO_EXPECT_TRUE(co_iterator_stats(ctx, iterator, 1, &stats));
    CO_EXPECT_MORE(stats.working_ns, 11999999);
    CO_EXPECT_FALSE(co_iterator_stats(ctx, iterator, 3, &stats));
    CO_EXPECT_OK(ctx);
    options.num_parallel_calls = 3;
    iterator = co_iterate(ctx, co_dataset_parallel_map(ctx, co_dataset_range(ctx, 0, 6, 1), slow,
                                                       NULL, NULL, &options));
    data_rest(ctx, iterator, 9, text);
    CO_EXPECT_TRUE(co_iterator_stats(ctx, iterator, 0, &stats));
    CO_EXPECT_MORE(stats.working_ns, 11999999);
    CO_EXPECT_MORE(stats.waiting_ns, 1000000);
}

CO_TEST(statistics_have_a_text_form, "")
{
    co_iterator *iterator = co_iterate(ctx, data_pipeline(ctx, "range(10).double.batch(4)"));
    char         text[DATA_TEXT], few[10];
    size_t       length;

    data_rest(ctx, iterator, 9, text);
    length = co_iterator_stats_format(ctx, iterator, text, sizeof(text));
    CO_EXPECT_INT(length, strlen(text));
    CO_EXPECT_CONTAINS(text, "stage                        elements");
    CO_EXPECT_CONTAINS(text, "batch                               3            80");
    CO_EXPECT_CONTAINS(text, "\n  map                              10            80");
    CO_EXPECT_CONTAINS(text, "\n    range                          10            80");
    CO_EXPECT_INT(co_iterator_stats_format(ctx, iterator, few, sizeof(few)), length);
    CO_EXPECT_STR(few, "stage    ");
    CO_EXPECT_INT(co_iterator_stats_format(ctx, iterator, NULL, 0), length);
}

CO_TEST(statistics_refuse_wrong_arguments, "")
{
    co_iterator   *iterator = co_iterate(ctx, data_pipeline(ctx, "range(10)"));
    co_stage_stats none = { .struct_size = 0 }, stats = CO_STAGE_STATS_INIT;
    co_stage_stats older = { .struct_size = offsetof(co_stage_stats, elements), .elements = 77 };

    CO_EXPECT_FALSE(co_iterator_stats(ctx, NULL, 0, &stats));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 2 (iterator) of iterator_stats is NULL; give an iterator");
    CO_EXPECT_FALSE(co_iterator_stats(ctx, iterator, 0, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 4 (stats) is NULL; begin with CO_STAGE_STATS_INIT");
    CO_EXPECT_FALSE(co_iterator_stats(ctx, iterator, 0, &none));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "without its struct_size");
    CO_EXPECT_TRUE(co_iterator_stats(ctx, iterator, 0, &older));
    CO_EXPECT_STR(older.name, "range");
    CO_EXPECT_INT(older.elements, 77);
    CO_EXPECT_INT(co_iterator_stats_format(ctx, NULL, NULL, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (iterator)");
    CO_EXPECT_INT(co_iterator_stats_format(ctx, iterator, NULL, 5), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3 (out) is NULL");
}

/* A dataset that is in a pipeline twice is one stage; of longer pipelines the first 64 stages are
 * counted. */
CO_TEST(large_pipelines_have_statistics_too, "")
{
    co_dataset    *range = co_dataset_range(ctx, 0, 3, 1);
    co_dataset    *both = co_dataset_concatenate(ctx, range, range);
    co_iterator   *iterator = co_iterate(ctx, both);
    co_stage_stats stats = CO_STAGE_STATS_INIT;
    char           text[DATA_TEXT];
    size_t         n = 0;

    data_rest(ctx, iterator, 9, text);
    CO_EXPECT_STR(counts(ctx, iterator, text), "concatenate:6:48\n range:6:48\n");
    for (int i = 0; i < 99; ++i)
        both = co_dataset_skip(ctx, both, 0);
    iterator = co_iterate(ctx, both);
    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), "0 1 2 0 1 2");
    while (co_iterator_stats(ctx, iterator, n, &stats))
        ++n;
    CO_EXPECT_INT(n, 64);
    CO_EXPECT_INT(stats.elements, 6);
}

static co_value *
no_third(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    if (co_item_int(ctx, x) == 2)
        co_fail(ctx, CO_DATA_LOSS, "no third");
    return x;
}

/* A name of its own tells one map from another, in shares of workers too. */
CO_TEST(stages_have_names, "")
{
    co_dataset      *dataset = co_dataset_range(ctx, 0, 4, 1);
    co_input_context second = { 1, 0, 2 };
    co_iterator     *iterator;
    char             text[2000];

    dataset = co_dataset_map(ctx, dataset, no_third, NULL, NULL);
    CO_EXPECT_TRUE(co_dataset_set_name(ctx, dataset, "decode") == dataset);
    dataset = co_dataset_batch(ctx, co_dataset_map(ctx, dataset, no_third, NULL, NULL), 1, false);
    dataset = co_dataset_for_worker(ctx, dataset, &second);
    iterator = co_iterate(ctx, dataset);
    for (int i = 0; i < 5 && co_ok(ctx); ++i)
        co_next(ctx, iterator);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "map 'decode' of element 2: no third");
    CO_EXPECT_CONTAINS(counts(ctx, iterator, text), "map 'decode':2");
    co_dataset_explain(ctx, dataset, NULL, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, "map 'decode' -> 4 elements");

    CO_EXPECT_NULL(co_dataset_set_name(ctx, dataset, "12345678901234567890123456789012"));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (name) is too long; give 0 to 31");
    CO_EXPECT_NULL(co_dataset_set_name(ctx, dataset, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (name) is NULL");
    CO_EXPECT_NULL(co_dataset_set_name(ctx, NULL, "a"));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (dataset)");
    dataset = co_dataset_set_name(ctx, co_dataset_set_name(ctx, dataset, "a\nb"), "");
    iterator = co_iterate(ctx, dataset);
    CO_EXPECT_TRUE(strchr(counts(ctx, iterator, text), '?') == NULL);
}

/* The name of a distributed dataset is that of the whole. */
CO_TEST_WITH(distributed_datasets_have_names_too, "", "cpus=2")
{
    co_dataset *batches = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 4, 1), 2, false), *all;
    char        text[2000];

    co_dataset_set_name(ctx, batches, "pairs");
    all = co_distribute_dataset(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL), batches, NULL);
    CO_EXPECT_TRUE(co_dataset_set_name(ctx, all, "train") == all);
    co_dataset_explain(ctx, all, NULL, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, "\ndistributed 'train' -> ");
    CO_EXPECT_CONTAINS(text, "batch 'pairs' of 2 -> ");
    CO_EXPECT_CONTAINS(counts(ctx, co_iterate(ctx, all), text), "distributed 'train':0");
}

CO_TEST(names_are_in_the_errors_of_files, "")
{
    const char         *file = "/nowhere/x", *two[] = { file, "/nowhere/y" };
    const co_csv_column column = { CO_INT64, NULL };
    co_dataset         *lines = co_dataset_text_lines(ctx, &file, 1, NULL);
    char                text[2000];

    co_next(ctx, co_iterate(ctx, co_dataset_set_name(ctx, lines, "train")));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "files 'train': file 0 of 1, '/nowhere/x'");
    lines = co_dataset_set_name(ctx, co_dataset_text_lines(ctx, two, 2, NULL), "train");
    lines = co_dataset_set_name(ctx, co_dataset_map(ctx, lines, no_third, NULL, NULL), "decode");
    lines = co_dataset_auto_shard(ctx, lines, 2, 1); /* remakes both */
    co_next(ctx, co_iterate(ctx, lines));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "files 'train': file 0 of 1, '/nowhere/y'");
    CO_EXPECT_CONTAINS(counts(ctx, co_iterate(ctx, lines), text), "map 'decode'");
    co_next(ctx, co_iterate(ctx, co_dataset_csv(ctx, &file, 1, &column, 1, NULL)));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "csv: file 0 of 1, '/nowhere/x'");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one worker of a distributed dataset reads: splitting and sharding, without a strategy. The
 * tables are the observed examples of the specification; an element is what one replica takes.
 */
#include "data_support.h"

#include "data/dataset.h"

/* --- splitting --- */

static const struct {
    const char *pipeline;
    int         workers, worker, replicas; /* replicas: of all workers */
    const char *pieces;
} splits[] = {
    /* W=1, in-memory source: CEIL. */
    { "range(10).batch(4)", 1, 0, 2, "[0,1] [2,3] [4,5] [6,7] [8] [9]" },
    { "range(7).batch(7)", 1, 0, 2, "[0,1,2,3] [4,5,6]" },
    { "range(5).batch(3)", 1, 0, 2, "[0,1] [2] [3] [4]" },
    { "range(9).batch(8)", 1, 0, 2, "[0,1,2,3] [4,5,6,7] [8] []" },
    { "range(6).batch(8)", 1, 0, 2, "[0,1,2] [3,4,5]" },
    { "range(3).batch(1)", 1, 0, 2, "[0] [] [1] [] [2] []" },
    { "range(5).batch(4).repeat(2)", 1, 0, 2, "[0,1] [2,3] [4] [] [0,1] [2,3] [4] []" },
    { "range(10).batch(4)", 1, 0, 3, "[0,1] [2,3] [] [4,5] [6,7] [] [8] [9] []" },
    { "range(7).batch(7)", 1, 0, 3, "[0,1,2] [3,4,5] [6]" },
    { "range(6).batch(8)", 1, 0, 4, "[0,1] [2,3] [4,5] []" },
    { "range(5).batch(3)", 1, 0, 4, "[0] [1] [2] [] [3] [4] [] []" },
    { "range(10).batch(4)", 1, 0, 1, "[0,1,2,3] [4,5,6,7] [8,9]" },
    { "range(4)", 1, 0, 1, "0 1 2 3" },
    /* W=1, sharding not by data: SCHEDULE. */
    { "range(10).batch(4).OFF", 1, 0, 3, "[0,1] [2] [3] [4,5] [6] [7] [8,9]" },
    { "range(10).batch(4).FILE", 1, 0, 3, "[0,1] [2] [3] [4,5] [6] [7] [8,9]" },
    { "range(10).batch(4).HINT", 1, 0, 3, "[0,1] [2] [3] [4,5] [6] [7] [8,9]" },
    { "range(6).batch(8).OFF", 1, 0, 2, "[0,1,2,3] [4,5]" },
    { "range(5).batch(4).repeat(2).OFF", 1, 0, 3, "[0,1] [2] [3] [4,0] [1] [2] [3,4]" },
    { "range(5).batch(4).OFF.repeat(2)", 1, 0, 3, "[0,1] [2] [3] [4,0] [1] [2] [3,4]" },
    /* The batch size is that of the last batch step, through take and repeat. */
    { "range(24).batch(3).batch(4).OFF", 1, 0, 2,
      "[[0,1,2],[3,4,5]] [[6,7,8],[9,10,11]] [[12,13,14],[15,16,17]] [[18,19,20],[21,22,23]]" },
    { "range(9).batch(2).take(2).OFF", 1, 0, 2, "[0] [1] [2] [3]" },
    /* Several workers, by data. */
    { "range(10).batch(4)", 2, 0, 2, "[0,1] [4,5] [8]" },
    { "range(10).batch(4).DATA", 2, 1, 2, "[2,3] [6,7] [9]" },
    { "range(8).batch(4).DATA", 2, 0, 4, "[0] [2] [4] [6]" },
    { "range(8).batch(4).DATA", 2, 1, 4, "[1] [3] [5] [7]" },
    { "range(7).batch(4).DATA", 2, 0, 4, "[0] [2] [4] [6]" },
    { "range(7).batch(4).DATA", 2, 1, 4, "[1] [3] [5] []" },
    { "range(14).batch(7).DATA", 2, 0, 4, "[0,1] [4,5] [7,8] [11,12]" },
    { "range(14).batch(7).DATA", 2, 1, 4, "[2,3] [6] [9,10] [13]" },
    { "range(8).batch(4).DATA", 3, 0, 3, "[0,1] [4,5]" },
    { "range(8).batch(4).DATA", 3, 1, 3, "[2,3] [6,7]" },
    { "range(8).batch(4).DATA", 3, 2, 3, "[] []" },
    /* Fewer elements than workers: no error (AMB-17). */
    { "range(0).batch(4).DATA", 2, 1, 2, "" },
    /* Slice k for replica k: what DATA gives with one worker, on any number of them. */
    { "range(7).batch(4).REPLICA", 1, 0, 4, "[0] [1] [2] [3] [4] [5] [6] []" },
    { "range(7).batch(4).REPLICA", 2, 0, 4, "[0] [1] [4] [5]" },
    { "range(7).batch(4).REPLICA", 2, 1, 4, "[2] [3] [6] []" },
    { "range(7).batch(4).REPLICA", 4, 2, 4, "[2] [6]" },
    { "range(12).batch(6).REPLICA", 2, 1, 6, "[3] [4] [5] [9] [10] [11]" },
    /* Several workers, all data. */
    { "range(10).batch(4).OFF", 2, 0, 2, "[0,1] [2,3] [4,5] [6,7] [8,9]" },
    { "range(10).batch(4).OFF", 2, 1, 2, "[0,1] [2,3] [4,5] [6,7] [8,9]" },
    { "range(14).batch(7).OFF", 2, 0, 2, "[0,1,2,3] [4,5,6] [7,8,9,10] [11,12,13]" },
    { "range(14).batch(7).OFF", 2, 1, 2, "[0,1,2] [3,4,5,6] [7,8,9] [10,11,12,13]" },
    /* No piece of size 0 after the last row (AMB-15). */
    { "range(9).batch(3).OFF", 4, 0, 4, "[0] [1] [2] [] [3] [4] [5] [] [6] [7] [8]" },
    { "range(9).batch(3).OFF", 4, 3, 4, "[] [0] [1] [2] [] [3] [4] [5] [] [6] [7] [8]" },
    /* Hints. */
    { "range(8).shard.batch(4).HINT", 2, 0, 2, "[0,2] [4,6]" },
    { "range(8).shard.batch(4).HINT", 2, 1, 2, "[1,3] [5,7]" },
    { "range(8).shard.repeat(2).batch(4).take(1).HINT", 2, 1, 2, "[1,3] [5,7]" },
    { "range(8).batch(4).HINT", 2, 1, 2, "[0,1] [2,3] [4,5] [6,7]" },
    { "range(4).shard.batch(2).HINT", 1, 0, 1, "[0,1] [2,3]" },
};

CO_TEST(workers_read_what_the_specification_shows,
        "DS-SPLIT-1 DS-SPLIT-2 DS-SPLIT-3 DS-SPLIT-6 DS-SPLIT-7 DS-SPLIT-9 DS-SHARD-1 DS-SHARD-6 "
        "DS-SHARD-8 "
        "DS-SHARD-9 DS-SHARD-14 DS-DIST-8 AMB-15 AMB-17")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); ++i)
        CO_BLOCK(ctx) {
            co_input_context input = { splits[i].workers, splits[i].worker, splits[i].replicas };
            co_dataset      *dataset = data_pipeline(ctx, splits[i].pipeline);

            dataset = co_dataset_for_worker(ctx, dataset, &input);
            if (!CO_EXPECT_STR(data_elements(ctx, dataset, 40, text), splits[i].pieces) ||
                !CO_EXPECT_OK(ctx))
                test_fail(TEST_AT, "at %s, worker %d of %d, %d replicas", splits[i].pipeline,
                          splits[i].worker, splits[i].workers, splits[i].replicas);
        }
}

CO_TEST(components_are_split_independently, "DS-DIST-9")
{
    co_value        *x = co_tensor(ctx, CO_INT64, CO_SHAPE(4), (int64_t[]){ 0, 1, 2, 3 });
    co_value        *y = co_tensor(ctx, CO_INT64, CO_SHAPE(3, 1), (int64_t[]){ 7, 8, 9 });
    co_dataset      *dataset = co_dataset_from_tensors(ctx, co_args(ctx, x, y));
    co_input_context input = { 1, 0, 2 };
    char             text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, co_dataset_for_worker(ctx, dataset, &input), 9, text),
                  "([0,1],[[7],[8]]) ([2,3],[[9]])");
    /* One size for both: nothing to build a schedule from. */
    CO_EXPECT_INT(co_dataset_batch_size(ctx, dataset), CO_UNKNOWN_BATCH_SIZE);
}

CO_TEST(batches_without_rows_are_split_into_empty_slices, "DS-SPLIT-1")
{
    co_value        *none = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(0, 2), NULL);
    co_dataset      *dataset = co_dataset_repeat(ctx, co_dataset_from_tensors(ctx, none), 2);
    co_input_context input = { 1, 0, 2 };
    char             text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, co_dataset_for_worker(ctx, dataset, &input), 9, text),
                  "[] [] [] []");
    dataset = co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_OFF);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_for_worker(ctx, dataset, &input), 9, text),
                  "[] [] [] []");
}

CO_TEST(slices_share_the_memory_of_the_source, "")
{
    int64_t          data[60];
    co_input_context input = { 1, 0, 2 };
    co_value        *source;
    co_dataset      *dataset;
    co_iterator     *iterator;

    for (int i = 0; i < 60; ++i)
        data[i] = i;
    source = co_tensor(ctx, CO_INT64, CO_SHAPE(20, 3), data);
    dataset = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, source), 8, false);
    iterator = co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input));
    for (int64_t row = 0; row < 16; row += 4)
        CO_EXPECT_PTR(co_value_data(ctx, co_next(ctx, iterator)),
                      (const int64_t *)co_value_data(ctx, source) + row * 3);
    dataset = co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_OFF);
    iterator = co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input));
    for (int64_t row = 0; row < 16; row += 4)
        CO_EXPECT_PTR(co_value_data(ctx, co_next(ctx, iterator)),
                      (const int64_t *)co_value_data(ctx, source) + row * 3);
}

/* --- schedules --- */

static const struct {
    int64_t     batch;
    int         workers, replicas, worker;
    const char *sizes;
} schedules[] = {
    { 7, 2, 2, 0, "2 2 2 1 " }, { 7, 2, 2, 1, "2 1 2 2 " }, { 5, 2, 2, 0, "2 1 1 1 " },
    { 5, 2, 2, 1, "1 1 2 1 " }, { 3, 2, 2, 0, "1 1 1 0 " }, { 3, 2, 2, 1, "1 0 1 1 " },
    { 10, 3, 1, 0, "4 3 3 " },  { 10, 3, 1, 1, "3 3 4 " },  { 10, 3, 1, 2, "3 4 3 " },
    { 0, 1, 2, 0, "0 0 " },     { 1, 3, 1, 2, "0 1 0 " },
};

CO_TEST(schedules_are_those_of_the_specification, "DS-SPLIT-2 DS-SPLIT-4")
{
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]); ++i) {
        int64_t sizes[8];
        char    text[80] = "";

        co_batch_sizes_for_worker(ctx, schedules[i].batch, schedules[i].workers,
                                  schedules[i].replicas, schedules[i].worker, sizes);
        for (int k = 0; k < schedules[i].workers * schedules[i].replicas; ++k)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%lld ",
                     (long long)sizes[k]);
        CO_EXPECT_STR(text, schedules[i].sizes);
    }
}

CO_TEST(a_step_of_all_workers_takes_one_global_batch, "DS-SPLIT-4")
{
    for (int64_t batch = 0; batch < 20; ++batch)
        for (int workers = 1; workers <= 4; ++workers)
            for (int each = 1; each <= 3; ++each) {
                int     n = workers * each;
                int64_t sizes[4][12];

                for (int w = 0; w < workers; ++w)
                    co_batch_sizes_for_worker(ctx, batch, workers, each, w, sizes[w]);
                for (int step = 0; step < workers; ++step) {
                    int64_t sum = 0;

                    for (int w = 0; w < workers; ++w)
                        for (int r = 0; r < each; ++r)
                            sum += sizes[w][(step * each + r) % n];
                    CO_EXPECT_INT(sum, batch);
                }
            }
}

/* --- sharding alone --- */

CO_TEST(auto_shard_shares_elements, "DS-SHARD-1 DS-SHARD-6 DS-SHARD-7 DS-SHARD-8 DS-SHARD-14")
{
    static const struct {
        const char *pipeline;
        int         workers, index;
        const char *elements;
    } cases[] = {
        { "range(7)", 2, 1, "1 3 5" },
        { "range(7).DATA", 3, 0, "0 3 6" },
        { "range(1)", 2, 0, "0" },
        { "range(1)", 2, 1, "" },
        { "range(6).repeat(2)", 4, 2, "2 0 4" },
        { "range(3).OFF", 2, 1, "0 1 2" },
        { "range(3).FILE", 1, 0, "0 1 2" },
        { "range(3).HINT", 2, 1, "0 1 2" },
        { "range(11).batch(3)", 2, 1, "[3,4,5] [9,10]" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_dataset *dataset = data_pipeline(ctx, cases[i].pipeline);

        dataset = co_dataset_auto_shard(ctx, dataset, cases[i].workers, cases[i].index);
        CO_EXPECT_STR(data_elements(ctx, dataset, 20, text), cases[i].elements);
    }
}

CO_TEST(files_cannot_be_shared_without_files, "DS-SHARD-4")
{
    co_dataset *dataset = data_pipeline(ctx, "range(8).batch(2).FILE");

    CO_EXPECT_NULL(co_dataset_for_worker(ctx, dataset, &(co_input_context){ 2, 0, 2 }));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "the source range reads no files");
}

static co_value *
same(co_context *ctx, co_value *state_and_element, void *user)
{
    (void)ctx, (void)user;
    return state_and_element;
}

static bool
always(co_context *ctx, co_value *element, void *user)
{
    (void)ctx, (void)element, (void)user;
    return true;
}

/* What counts is which kinds TensorFlow's sharder knows, not what elements depend on: take and
 * shuffle are looked past. */
CO_TEST(sharding_by_files_does_not_look_past_unknown_stages, "DS-SHARD-4 DS-SHARD-7")
{
    const char *const names[] = { "scan", "take_while", "unique", "unique 'words'" };
    co_dataset *lines = co_dataset_text_lines(ctx, (const char *const[]){ "a", "b" }, 2, NULL);
    co_dataset *stages[] = {
        co_dataset_scan(ctx, lines, co_int(ctx, 0), same, NULL, co_element_spec(ctx, lines)),
        co_dataset_take_while(ctx, lines, always, NULL),
        co_dataset_unique(ctx, lines),
        co_dataset_set_name(ctx, co_dataset_unique(ctx, lines), "words"),
    };
    co_dataset *past = co_dataset_shuffle(ctx, co_dataset_take(ctx, lines, 9), 4, 1, false);
    char        text[DATA_TEXT], expected[200];

    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); ++i) {
        co_dataset *by_file = co_dataset_with_autoshard(ctx, stages[i], CO_AUTOSHARD_FILE);

        CO_EXPECT_NULL(co_dataset_auto_shard(ctx, by_file, 2, 0));
        snprintf(expected, sizeof(expected),
                 "sharding by files does not look past %s, so files cannot be spread over 2 "
                 "workers",
                 names[i]);
        CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, expected);
        co_dataset_explain(ctx, co_dataset_batch(ctx, stages[i], 4, false),
                           &(co_input_context){ 2, 0, 2 }, text, sizeof(text));
        snprintf(expected, sizeof(expected),
                 "AUTO becomes DATA, because sharding by files does not look past %s: ", names[i]);
        CO_EXPECT_CONTAINS(text, expected);
    }
    co_dataset_explain(ctx, co_dataset_batch(ctx, past, 4, false), &(co_input_context){ 2, 0, 2 },
                       text, sizeof(text));
    CO_EXPECT_CONTAINS(text, "AUTO becomes FILE, because the input is read from files: ");
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_hint_under_another_policy_fails_when_iterated, "DS-SHARD-10")
{
    co_dataset *dataset = data_pipeline(ctx, "range(8).shard.batch(2)");

    CO_EXPECT_NULL(co_iterate(ctx, dataset));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "CO_AUTOSHARD_HINT");
    dataset = co_dataset_for_worker(ctx, dataset, &(co_input_context){ 1, 0, 1 });
    CO_EXPECT_NULL(co_iterate(ctx, dataset));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "CO_AUTOSHARD_HINT");
}

CO_TEST(a_hint_knows_that_a_shard_of_nothing_is_empty, "DS-SHARD-10")
{
    static const struct {
        const char *pipeline;
        int64_t     cardinality;
    } cases[] = {
        { "range(0).shard", 0 },
        { "range(8).shard", CO_UNKNOWN_CARDINALITY },
        { "range(8).even.shard", CO_UNKNOWN_CARDINALITY },
        { "range(8).repeat.shard", CO_INFINITE },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        CO_EXPECT_INT(co_cardinality(ctx, data_pipeline(ctx, cases[i].pipeline)),
                      cases[i].cardinality);
    CO_EXPECT_NULL(co_iterate(ctx, data_pipeline(ctx, "range(0).shard")));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "CO_AUTOSHARD_HINT");
}

/* A source that reads files, as the io folder has them: each file holds `each` numbers. */
typedef struct files_dataset {
    co_dataset base;
    int        files, first, step;
    int64_t    each;
} files_dataset;

static int files_read; /* elements that any of them gave */

typedef struct files_iterator {
    co_iterator base;
    int         file;
    int64_t     at;
} files_iterator;

static int
files_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const files_dataset *files = (const files_dataset *)iterator->dataset;
    files_iterator      *self = (files_iterator *)iterator;
    int                  file = files->first + self->file * files->step;

    if (file >= files->files)
        return COI_END;
    leaves[0] = co_scalar_int64(ctx, file * files->each + self->at);
    coi_ref(leaves[0]);
    ++files_read;
    if (++self->at == files->each) {
        ++self->file;
        self->at = 0;
    }
    return COI_ELEMENT;
}

static co_dataset *files_shard(co_context *ctx, co_dataset *dataset, int num, int index);

static const coi_dataset_ops files_ops = {
    .name = "files",
    .dataset_size = sizeof(files_dataset),
    .iterator_size = sizeof(files_iterator),
    .next = files_next,
    .shard_files = files_shard,
};

static co_dataset *
files_new(co_context *ctx, int files, int64_t each, int first, int step)
{
    co_dataset    *dataset = coi_dataset_new(ctx, &files_ops, NULL, 0,
                                             coi_spec_new(ctx, CO_INT64, NULL, 0),
                                             CO_UNKNOWN_CARDINALITY);
    files_dataset *self = (files_dataset *)dataset;

    self->files = files;
    self->each = each;
    self->first = first;
    self->step = step;
    return dataset;
}

static co_dataset *
files_shard(co_context *ctx, co_dataset *dataset, int num, int index)
{
    const files_dataset *self = (const files_dataset *)dataset;

    return files_new(ctx, self->files, self->each, self->first + index * self->step,
                     self->step * num);
}

CO_TEST(files_go_to_workers_whole, "DS-SHARD-2 DS-SHARD-7 DS-SPLIT-3")
{
    static const struct {
        co_autoshard policy;
        int          files;
        int64_t      each, batch;
        int          workers, worker, replicas;
        const char  *pieces;
    } cases[] = {
        { CO_AUTOSHARD_AUTO, 4, 3, 2, 2, 0, 2, "[0] [1] [2] [6] [7] [8]" },
        { CO_AUTOSHARD_FILE, 4, 3, 2, 2, 1, 2, "[3] [4] [5] [9] [10] [11]" },
        { CO_AUTOSHARD_FILE, 2, 5, 3, 2, 0, 2, "[0,1] [2] [3,4]" },
        { CO_AUTOSHARD_FILE, 2, 5, 3, 2, 1, 2, "[5] [6,7] [8] [9]" },
        { CO_AUTOSHARD_AUTO, 2, 5, 4, 1, 0, 3, "[0,1] [2] [3] [4,5] [6] [7] [8,9]" },
        { CO_AUTOSHARD_DATA, 2, 5, 4, 1, 0, 3, "[0,1] [2,3] [] [4,5] [6,7] [] [8] [9] []" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_input_context input = { cases[i].workers, cases[i].worker, cases[i].replicas };
        co_dataset      *dataset = coi_dataset_give(ctx,
                                                    files_new(ctx, cases[i].files, cases[i].each, 0, 1));

        dataset = co_dataset_batch(ctx, dataset, cases[i].batch, false);
        dataset = co_dataset_with_autoshard(ctx, dataset, cases[i].policy);
        dataset = co_dataset_for_worker(ctx, co_dataset_take(ctx, dataset, -1), &input);
        CO_EXPECT_STR(data_elements(ctx, dataset, 20, text), cases[i].pieces);
    }
}

/* Twelve rows of four files, batches of two: promises of the rows, and of the batches. */
static co_dataset *
promised(co_context *ctx, int64_t rows, int64_t num_batches, co_autoshard policy)
{
    co_dataset *dataset = coi_dataset_give(ctx, files_new(ctx, 4, 3, 0, 1));

    dataset = co_dataset_assert_cardinality(ctx, dataset, rows);
    dataset = co_dataset_batch(ctx, dataset, 2, false);
    dataset = co_dataset_assert_cardinality(ctx, dataset, num_batches);
    return co_dataset_with_autoshard(ctx, dataset, policy);
}

CO_TEST(promises_of_the_whole_are_left_out_of_shards, "DS-SHARD-16")
{
    static const co_autoshard policies[] = { CO_AUTOSHARD_FILE, CO_AUTOSHARD_AUTO,
                                             CO_AUTOSHARD_DATA };
    static const char *const  pieces[] = { "[0] [1] [2] [6] [7] [8]", "[0] [1] [2] [6] [7] [8]",
                                           "[0] [2] [4] [6] [8] [10]" };
    co_input_context          half = { 2, 0, 2 }, all = { 1, 0, 2 };
    char                      text[DATA_TEXT];

    for (size_t i = 0; i < 3; ++i)
        for (int64_t wrong = 0; wrong < 2; ++wrong) { /* right of the whole, or of nothing */
            co_dataset *whole = promised(ctx, 12 + wrong, 6 + wrong, policies[i]);
            co_dataset *mine = co_dataset_for_worker(ctx, whole, &half);

            CO_EXPECT_STR(data_elements(ctx, mine, 20, text), pieces[i]);
            co_dataset_explain(ctx, mine, NULL, text, sizeof(text));
            CO_EXPECT_NULL(strstr(text, "assert_cardinality"));
            if (wrong == 0)
                continue;
            CO_EACH(ctx, x, co_iterate(ctx, co_dataset_for_worker(ctx, whole, &all)))
                (void)x;
            CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "promised"); /* nothing is shared */
        }
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_auto_shard(ctx, promised(ctx, 12, 6, CO_AUTOSHARD_FILE),
                                                      2, 1),
                                20, text),
                  "[3,4] [5,9] [10,11]");
    CO_EACH(ctx, x,
            co_iterate(ctx,
                       co_dataset_for_worker(ctx, promised(ctx, 13, 6, CO_AUTOSHARD_OFF), &half)))
        (void)x;
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "promised");
}

/* The splitter cuts rows as a rebatch of the user does; what was said of its elements still holds
 * over other files. */
CO_TEST(what_a_worker_reads_can_be_shared_by_files_again, "DS-SHARD-2 DS-SPLIT-2")
{
    co_dataset *endless = co_dataset_repeat(ctx, coi_dataset_give(ctx, files_new(ctx, 2, 4, 0, 1)),
                                            -1);
    co_dataset *batches = co_dataset_batch(ctx, endless, 4, true);
    co_dataset *mine = co_dataset_for_worker(ctx, batches, &(co_input_context){ 1, 0, 2 });
    co_dataset *half = co_dataset_auto_shard(ctx, mine, 2, 1);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, co_dataset_take(ctx, half, 3), 9, text), "[4,5] [6,7] [4,5]");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, half), text), "int64[2]");
    CO_EXPECT_INT(co_cardinality(ctx, mine), CO_INFINITE);
    CO_EXPECT_INT(co_cardinality(ctx, half), CO_INFINITE);
    CO_EXPECT_OK(ctx);
}

CO_TEST(nothing_is_read_before_the_first_element_is_asked_for, "DS-PREF-2")
{
    co_input_context input = { 2, 1, 4 };
    co_dataset      *dataset = coi_dataset_give(ctx, files_new(ctx, 4, 4, 0, 1));
    co_iterator     *iterator;

    dataset = co_dataset_batch(ctx, co_dataset_repeat(ctx, dataset, 2), 4, false);
    iterator = co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input));
    CO_EXPECT_INT(files_read, 0);
    CO_EXPECT_NOT_NULL(co_next(ctx, iterator));
    CO_EXPECT_INT(files_read, 4);
}

/* --- specs and numbers --- */

CO_TEST(static_batch_dimensions_are_divided, "DS-SPEC-2")
{
    static const struct {
        const char *pipeline;
        int         replicas;
        const char *spec;
        int64_t     batch_size;
    } cases[] = {
        { "range(8).batch(4)", 2, "int64[-1]", 4 },
        { "range(8).batch_drop(4)", 2, "int64[2]", 4 },
        { "range(8).batch_drop(4)", 3, "int64[-1]", 4 },
        { "range(8).batch_drop(4).OFF", 2, "int64[2]", 4 },
        { "range(8).batch_drop(4)", 1, "int64[4]", 4 },
        { "range(8).batch(4).repeat", 4, "int64[-1]", 4 },
        { "range(8).batch_drop(2).batch_drop(4)", 2, "int64[2,2]", 4 },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_input_context input = { 1, 0, cases[i].replicas };
        co_dataset      *dataset = data_pipeline(ctx, cases[i].pipeline);

        CO_EXPECT_INT(co_dataset_batch_size(ctx, dataset), cases[i].batch_size);
        dataset = co_dataset_for_worker(ctx, dataset, &input);
        CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), cases[i].spec);
    }
}

CO_TEST(per_replica_batch_sizes_divide, "IC-1 IC-2")
{
    co_input_context three = { 1, 0, 3 };

    CO_EXPECT_INT(co_per_replica_batch_size(ctx, &three, 9), 3);
    CO_EXPECT_INT(co_per_replica_batch_size(ctx, &three, 0), 0);
    CO_EXPECT_INT(co_per_replica_batch_size(ctx, &three, -6), -2);
    CO_EXPECT_INT(co_per_replica_batch_size(ctx, &three, 7), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "7 is not divisible by the number of replicas 3");
    CO_EXPECT_INT(co_per_replica_batch_size(ctx, NULL, 7), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (input) is NULL");
    CO_EXPECT_INT(co_per_replica_batch_size(ctx, &(co_input_context){ 1, 0, 0 }, 7), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_replicas_in_sync 0");
}

CO_TEST(an_input_context_shows_its_id_and_the_total, "IC-3")
{
    co_input_context third = { 3, 2, 6 };
    char             text[80] = "?", few[4];

    CO_EXPECT_INT(co_input_context_format(ctx, &third, text, sizeof(text)), 57);
    CO_EXPECT_STR(text, "tf.distribute.InputContext(input pipeline id 2, total: 3)");
    CO_EXPECT_INT(co_input_context_format(ctx, &third, few, sizeof(few)), strlen(text));
    CO_EXPECT_STR(few, "tf.");
    CO_EXPECT_INT(co_input_context_format(ctx, NULL, text, sizeof(text)), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (input)");
    CO_EXPECT_INT(co_input_context_format(ctx, &third, NULL, 3), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3 (out)");
}

CO_TEST(the_usual_shard_gives_each_element_to_one_pipeline, "IC-4")
{
    int seen[10] = { 0 };

    for (int w = 0; w < 3; ++w) {
        co_iterator *iterator = co_iterate(
            ctx, co_dataset_shard(ctx, co_dataset_range(ctx, 0, 10, 1), 3, w));

        for (co_value *x; (x = co_next(ctx, iterator)) != NULL;)
            ++seen[co_item_int(ctx, x)];
    }
    for (int i = 0; i < 10; ++i)
        CO_EXPECT_INT(seen[i], 1);
}

CO_TEST(impossible_workers_are_named, "DS-SPLIT-5 DS-SHARD-11 DS-DIST-7")
{
    co_dataset *batches = data_pipeline(ctx, "range(8).batch(4)");
    co_value   *pair = co_args(ctx, co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 1, 2 }),
                               co_int(ctx, 3));
    int64_t     sizes[4];

    CO_EXPECT_NULL(co_dataset_for_worker(ctx, batches, &(co_input_context){ 2, 0, 3 }));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "3 replicas cannot be spread evenly over 2");
    CO_EXPECT_NULL(co_dataset_for_worker(ctx, batches, &(co_input_context){ 2, 2, 2 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pipeline 2 of 2");
    CO_EXPECT_NULL(co_dataset_for_worker(ctx, batches, &(co_input_context){ 2, -1, 2 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pipeline -1 of 2");
    CO_EXPECT_NULL(co_dataset_for_worker(ctx, batches, &(co_input_context){ 0, 0, 2 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "of 0");
    CO_EXPECT_NULL(co_dataset_for_worker(ctx, batches, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3 (input)");
    CO_EXPECT_NULL(co_dataset_auto_shard(ctx, batches, 2, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pipeline 2 of 2");
    CO_EXPECT_NULL(
        co_dataset_for_worker(ctx, data_pipeline(ctx, "range(4)"), &(co_input_context){ 1, 0, 2 }));
    CO_EXPECT_ERROR(
        ctx, CO_VALUE_ERROR,
        "elements are scalars, which cannot be split over 2 replicas; call co_dataset_batch");
    CO_EXPECT_NULL(co_dataset_for_worker(ctx, co_dataset_from_tensors(ctx, pair),
                                         &(co_input_context){ 1, 0, 2 }));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "component 1 gives scalars");
    CO_EXPECT_CODE(co_batch_sizes_for_worker(ctx, -1, 1, 2, 0, sizes), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "global_batch_size) is -1");
    CO_EXPECT_CODE(co_batch_sizes_for_worker(ctx, 4, 1, 0, 0, sizes), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "replicas_per_worker) is 0");
    CO_EXPECT_CODE(co_batch_sizes_for_worker(ctx, 4, 1, 2, 0, NULL), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 6 (sizes)");
}

static bool
read_as_workers(co_context *ctx)
{
    int pieces = 0;

    for (int w = 0; w < 2; ++w) {
        co_input_context input = { 2, w, 4 };
        co_dataset      *data = data_pipeline(ctx, "range(14).batch(7)");
        co_dataset      *hint = data_pipeline(ctx, "range(14).shard.take(20).batch(7).HINT");
        co_iterator     *a = co_iterate(ctx, co_dataset_for_worker(ctx, data, &input));
        co_iterator     *b = co_iterate(ctx, co_dataset_for_worker(ctx, hint, &input));

        while (co_next(ctx, a) != NULL || co_next(ctx, b) != NULL)
            ++pieces;
    }
    return pieces == 16;
}

CO_TEST_BARE(no_memory_while_sharding_is_an_error, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, read_as_workers);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions: an iterator that is saved and restored anywhere gives what the first had still to
 * give; bytes that are no position of the pipeline are refused, whatever they are.
 */
#include "files_support.h"

#include <pthread.h>

enum { MOST = 64 };

typedef co_dataset *(*make_fn)(co_context *ctx);

/* --- pipelines --- */

static co_dataset *
slices(co_context *ctx)
{
    int64_t   n = 6;
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(6, 2),
                            (float[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 });
    co_value *y = co_tensor(ctx, CO_STRING, &n, 1,
                            (const char *[]){ "a", "", "ccc", "d", "e", "f" });

    return co_dataset_from_tensor_slices(ctx, co_dict(ctx, (const char *[]){ "x", "y" },
                                                      (co_value *[]){ x, y }, 2));
}

static co_dataset *
shuffled_slices(co_context *ctx)
{
    return co_dataset_batch(ctx, co_dataset_shuffle(ctx, slices(ctx), 4, 7, true), 2, false);
}

static co_dataset *
whole(co_context *ctx)
{
    return co_dataset_repeat(ctx, co_dataset_from_tensors(ctx, co_int(ctx, 5)), 3);
}

static co_dataset *
shuffled(co_context *ctx)
{
    return co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, 20, 1), 6, 3, false);
}

static co_dataset *
reshuffled(co_context *ctx)
{
    return co_dataset_repeat(ctx,
                             co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, 7, 1), 4, 3, true),
                             3);
}

static co_value *
add_both(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_add(ctx, co_at(ctx, co_at(ctx, args, 0), 0), co_at(ctx, args, 1));
    co_value *count = co_add(ctx, co_at(ctx, co_at(ctx, args, 0), 1), co_int(ctx, 1));

    (void)user;
    return co_tuple(ctx,
                    (co_value *[]){ co_tuple(ctx, (co_value *[]){ sum, count }, 2),
                                    co_add(ctx, sum, count) },
                    2);
}

static co_dataset *
scanned(co_context *ctx)
{
    co_value *initial = co_tuple(
        ctx, (co_value *[]){ co_scalar_int64(ctx, 0), co_scalar_int64(ctx, 10) }, 2);

    return co_dataset_scan(ctx, co_dataset_range(ctx, 0, 6, 1), initial, add_both, NULL, NULL);
}

static co_value *
count_on_host(co_context *ctx, co_value *args, void *user)
{
    int64_t count = co_item_int(ctx, co_at(ctx, args, 0)) + 1;

    (void)user;
    return co_tuple(ctx, (co_value *[]){ co_int(ctx, count), co_int(ctx, 10 * count) }, 2);
}

static co_dataset *
scanned_on_host(co_context *ctx)
{
    return co_dataset_scan(ctx, co_dataset_range(ctx, 0, 4, 1), co_int(ctx, 0), count_on_host, NULL,
                           NULL);
}

static co_dataset *
zipped(co_context *ctx)
{
    co_dataset *branches[] = { data_pipeline(ctx, "range(9).skip(2)"), shuffled(ctx) };

    return co_dataset_zip(ctx, branches, 2);
}

static co_dataset *
concatenated(co_context *ctx)
{
    return co_dataset_concatenate(ctx, reshuffled(ctx), data_pipeline(ctx, "range(4).double"));
}

static co_dataset *
shuffled_later(co_context *ctx)
{
    return co_dataset_concatenate(ctx, data_pipeline(ctx, "range(4).double"), shuffled(ctx));
}

static co_dataset *
inner(co_context *ctx, co_value *x, void *user)
{
    int64_t     start = co_item_int(ctx, x) % 1000 * 10; /* bytes may say any number */
    co_dataset *range = co_dataset_range(ctx, start, start + 5, 1);

    (void)user;
    return co_dataset_shuffle(ctx, range, 3, 1, false);
}

static co_dataset *
interleaved(co_context *ctx)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;

    options.cycle_length = 3;
    options.block_length = 2;
    return co_dataset_interleave(ctx, data_pipeline(ctx, "range(5)"), inner, NULL, NULL, &options);
}

static co_dataset *
flat(co_context *ctx)
{
    return co_dataset_flat_map(ctx, data_pipeline(ctx, "range(3)"), inner, NULL, NULL);
}

static co_dataset *
unique(co_context *ctx)
{
    return co_dataset_unique(ctx, reshuffled(ctx));
}

static co_dataset *
padded(co_context *ctx)
{
    return co_dataset_padded_batch(ctx, data_pipeline(ctx, "range(11).batch(4)"), 2, NULL);
}

static co_value *
generate(co_context *ctx, int64_t index, void *user)
{
    (void)user;
    return index < 6 ? co_scalar_int64(ctx, index * index) : NULL;
}

static co_dataset *
generated(co_context *ctx)
{
    return co_dataset_from_generator(ctx, generate, NULL, co_spec(ctx, CO_INT64, NULL, 0));
}

static co_dataset *
promised(co_context *ctx)
{
    return co_dataset_assert_cardinality(ctx, generated(ctx), 6);
}

static co_dataset *
unbatched(co_context *ctx)
{
    return co_dataset_unbatch(ctx, data_pipeline(ctx, "range(9).batch(4)"));
}

static co_dataset *
batch_window(co_context *ctx, co_value *window, void *user)
{
    (void)user;
    return co_dataset_batch(ctx, co_value_dataset(ctx, window), 2, false);
}

/* Windows in a shuffle buffer, one of them being read. */
static co_dataset *
windowed(co_context *ctx)
{
    co_dataset *dataset = co_dataset_window(ctx, data_pipeline(ctx, "range(9).double"), 3,
                                            &(co_window_options){ sizeof(co_window_options), 2, 1,
                                                                  false });

    return co_dataset_flat_map(ctx, co_dataset_shuffle(ctx, dataset, 2, 1, false), batch_window,
                               NULL, co_spec(ctx, CO_INT64, (int64_t[]){ -1 }, 1));
}

/* Three files of lines, the second without any. */
static co_dataset *
lines_of(co_context *ctx, const co_file_options *options)
{
    static const char *const texts[] = { "one\ntwo\r\nthree\n", "", "four\nfive" };
    char                     paths[3][FILES_PATH];
    const char              *names[] = { paths[0], paths[1], paths[2] };

    for (int i = 0; i < 3; ++i) {
        files_path((const char *[]){ "a", "b", "c" }[i], paths[i]);
        if (access(paths[i], R_OK) != 0)
            files_write(paths[i], texts[i], strlen(texts[i]));
    }
    return co_dataset_text_lines(ctx, names, 3, options);
}

static co_dataset *
lines(co_context *ctx)
{
    return lines_of(ctx, NULL);
}

static co_dataset *
lines_in_batches(co_context *ctx)
{
    return co_dataset_batch(ctx, lines(ctx), 2, false);
}

static co_dataset *
records_of(co_context *ctx, const char *name, co_compression compression)
{
    co_file_options options = files_options(files_has_zlib() ? compression : CO_COMPRESSION_NONE);
    char            path[FILES_PATH];
    const char     *names[] = { files_path(name, path) };

    if (access(path, R_OK) != 0) {
        co_record_writer *writer = co_record_writer_open(ctx, path, &options);

        for (int i = 0; i < 5; ++i)
            co_record_write(ctx, writer, "abcdefgh", (size_t)i * 2);
        co_record_writer_close(ctx, writer);
    }
    return co_dataset_tfrecord(ctx, names, 1, &options);
}

static co_dataset *
records(co_context *ctx)
{
    return co_dataset_concatenate(ctx, records_of(ctx, "records", CO_COMPRESSION_GZIP),
                                  records_of(ctx, "zlib", CO_COMPRESSION_ZLIB));
}

/* A file of text that is there. */
static const char *
file_with(const char *name, const char *text, char *path)
{
    files_path(name, path);
    if (access(path, R_OK) != 0)
        files_write(path, text, strlen(text));
    return path;
}

static co_dataset *
fixed_records(co_context *ctx)
{
    char        path[FILES_PATH];
    const char *names[] = { file_with("fixed", "Habcdefghijf", path) };

    return co_dataset_fixed_length_records(ctx, names, 1, 2,
                                           &(co_fixed_length_options){
                                               sizeof(co_fixed_length_options), NULL, 1, 1 });
}

static co_dataset *
rows(co_context *ctx)
{
    const co_csv_column columns[] = { { CO_INT64, NULL }, { CO_STRING, NULL } };
    co_csv_options      options = CO_CSV_OPTIONS_INIT;
    char                path[FILES_PATH];
    const char *names[] = { file_with("rows", "n,t\n1,a\n2,\"b\nb\"\r\n3,\"c,\"\"c\"\n4,d", path) };

    options.header = true;
    return co_dataset_csv(ctx, names, 1, columns, 2, &options);
}

static co_dataset *
lines_of_name(co_context *ctx, co_value *name, void *user)
{
    const char *text = co_string_at(ctx, name, 0, NULL);

    (void)user;
    return co_dataset_text_lines(ctx, &text, 1, NULL);
}

/* Names by pattern, read side by side; more files than calls, so that some wait opened. */
static co_dataset *
files_side_by_side(co_context *ctx)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    char                  path[FILES_PATH];
    const char           *pattern = path;

    for (int i = 0; i < 6; ++i)
        file_with((const char *[]){ "s0", "s1", "s2", "s3", "s4", "s5" }[i],
                  &"a\nb\nc\nd\ne\n"[2 * (i % 4)], path);
    files_path("s?", path);
    options.cycle_length = 2;
    options.num_parallel_calls = 2;
    options.opens_files = true;
    return co_dataset_interleave(ctx, co_dataset_list_files(ctx, &pattern, 1, NULL), lines_of_name,
                                 NULL, NULL, &options);
}

static co_dataset *
split(co_context *ctx)
{
    return co_dataset_for_worker(ctx, data_pipeline(ctx, "range(11).batch(5).DATA"),
                                 &(co_input_context){ 2, 1, 4 });
}

static co_dataset *
scheduled(co_context *ctx)
{
    return co_dataset_for_worker(ctx, data_pipeline(ctx, "range(11).batch(5).OFF"),
                                 &(co_input_context){ 2, 1, 4 });
}

static co_value *
twice(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_add(ctx, x, x);
}

static co_dataset *
in_parallel(co_context *ctx)
{
    return co_dataset_batch(ctx,
                            co_dataset_parallel_map(ctx, generated(ctx), twice, NULL, NULL, NULL),
                            2, false);
}

static co_dataset *
ahead(co_context *ctx)
{
    co_dataset *shuffle = co_dataset_shuffle(ctx, co_dataset_prefetch(ctx, generated(ctx), 2), 3, 1,
                                             true);

    return co_dataset_prefetch(ctx, co_dataset_repeat(ctx, shuffle, 2), 3);
}

static co_dataset *
distributed_ahead(co_context *ctx)
{
    co_dataset *batches = co_dataset_batch(ctx, generated(ctx), 2, false);

    return co_distribute_dataset(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL), batches, NULL);
}

static co_dataset *
interleaved_ahead(co_context *ctx)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;

    options.cycle_length = 3;
    options.block_length = 2;
    options.num_parallel_calls = 2;
    return co_dataset_interleave(ctx, co_dataset_range(ctx, 0, 5, 1), inner, NULL, NULL, &options);
}

/* What the first pass has drawn is what the others give. */
static co_dataset *
cached(co_context *ctx)
{
    co_dataset *drawn = co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, 5, 1), 4, 3, true);

    return co_dataset_repeat(ctx, co_dataset_cache(ctx, drawn), 3);
}

/* Rounds whose shuffle is not asked again before their end, or not yet: how many passes it has had
 * is known all the same. */
static co_dataset *
drawn(co_context *ctx)
{
    return co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, 6, 1), 6, 1, true);
}

static co_dataset *
rounds_of_few(co_context *ctx)
{
    return co_dataset_repeat(ctx, co_dataset_take(ctx, drawn(ctx), 4), 3);
}

static co_dataset *
rounds_with_more(co_context *ctx)
{
    co_dataset *more = co_dataset_range(ctx, 100, 104, 1);

    return co_dataset_repeat(ctx, co_dataset_concatenate(ctx, drawn(ctx), more), 3);
}

static co_dataset *
rounds_with_more_before(co_context *ctx)
{
    co_dataset *more = co_dataset_range(ctx, 100, 104, 1);

    return co_dataset_repeat(ctx, co_dataset_concatenate(ctx, more, drawn(ctx)), 3);
}

static co_dataset *
rounds_drawn_twice(co_context *ctx)
{
    return co_dataset_repeat(ctx, co_dataset_shuffle(ctx, drawn(ctx), 3, 2, false), 3);
}

static co_dataset *
itself(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_from_tensors(ctx, x);
}

static co_dataset *
rounds_interleaved(co_context *ctx)
{
    co_dataset *kept = co_dataset_cache(ctx, co_dataset_range(ctx, 0, 6, 1));
    co_dataset *shuffle = co_dataset_shuffle(ctx, kept, 6, 1, true);

    return co_dataset_repeat(ctx, co_dataset_interleave(ctx, shuffle, itself, NULL, NULL, NULL), 3);
}

/* What was kept in the first round is given in the others, though nobody holds it in between. */
static co_dataset *
rounds_of_kept_with_more(co_context *ctx)
{
    co_dataset *more = co_dataset_range(ctx, 100, 102, 1);
    co_dataset *kept = co_dataset_cache(ctx, drawn(ctx));

    return co_dataset_repeat(ctx, co_dataset_concatenate(ctx, kept, more), 3);
}

static co_dataset *
rounds_of_kept_drawn(co_context *ctx)
{
    co_dataset *kept = co_dataset_cache(ctx, drawn(ctx));

    return co_dataset_repeat(ctx, co_dataset_shuffle(ctx, kept, 6, 2, true), 3);
}

/* One cache, which two iterators of a round read. */
static co_dataset *
rounds_of_kept_pairs(co_context *ctx)
{
    co_dataset *kept = co_dataset_cache(ctx, slices(ctx)), *both[] = { kept, kept };

    return co_dataset_repeat(ctx, co_dataset_zip(ctx, both, 2), 2);
}

static co_dataset *
rounds_of_kept_windows(co_context *ctx)
{
    co_dataset *windows = co_dataset_window(
        ctx, drawn(ctx), 3, &(co_window_options){ sizeof(co_window_options), 2, 1, false });
    co_dataset *shuffle = co_dataset_shuffle(ctx, co_dataset_cache(ctx, windows), 3, 1, false);

    return co_dataset_flat_map(ctx, co_dataset_repeat(ctx, shuffle, 2), batch_window, NULL,
                               co_spec(ctx, CO_INT64, (int64_t[]){ -1 }, 1));
}

static co_dataset *
few_rounds_of(co_context *ctx, co_value *x, void *user)
{
    (void)x, (void)user;
    return rounds_of_few(ctx);
}

static co_dataset *
rounds_of_a_function(co_context *ctx)
{
    return co_dataset_flat_map(ctx, co_dataset_range(ctx, 0, 2, 1), few_rounds_of, NULL, NULL);
}

static co_dataset *
rounds_ahead(co_context *ctx)
{
    co_dataset *mapped = co_dataset_map(ctx, rounds_of_few(ctx), twice, NULL, NULL);

    return co_dataset_repeat(ctx, co_dataset_prefetch(ctx, mapped, 3), 2);
}

static co_dataset *
distributed(co_context *ctx)
{
    return co_distribute_dataset(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL), split(ctx), NULL);
}

static co_dataset *
doubled_for(co_context *ctx, const co_input_context *input, void *user)
{
    (void)user;
    return data_pipeline(ctx, input->input_pipeline_id == 0 ? "range(7).double.batch(2)"
                                                            : "range(5).double.batch(2)");
}

static co_dataset *
for_each_replica(co_context *ctx)
{
    co_input_options options = CO_INPUT_OPTIONS_INIT;

    options.per_replica = true;
    return co_distribute_datasets_from_function(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL),
                                                doubled_for, NULL, &options);
}

static const struct {
    const char *text; /* of a pipeline in words, or */
    make_fn     make;
} pipelines[] = {
    { "range(10,0,-3)", NULL },
    { "range(10).batch(4)", NULL },
    { "range(7).skip(2).take(4).repeat(2)", NULL },
    { "range(10).batch(3).rebatch(2,0,5)", NULL },
    { "range(14).double.even.enumerate(3)", NULL },
    { "range(9).below5", NULL },
    { "range(20).shard(3,1).batch(2)", NULL },
    { "range(5).cache.repeat(3)", NULL },
    { "range(9).prefetch(2).batch_drop(2)", NULL },
    { NULL, slices },
    { NULL, shuffled_slices },
    { NULL, whole },
    { NULL, shuffled },
    { NULL, reshuffled },
    { NULL, scanned },
    { NULL, scanned_on_host },
    { NULL, zipped },
    { NULL, concatenated },
    { NULL, shuffled_later },
    { NULL, interleaved },
    { NULL, flat },
    { NULL, unique },
    { NULL, padded },
    { NULL, generated },
    { NULL, promised },
    { NULL, unbatched },
    { NULL, windowed },
    { NULL, lines },
    { NULL, lines_in_batches },
    { NULL, records },
    { NULL, fixed_records },
    { NULL, rows },
    { NULL, files_side_by_side },
    { NULL, for_each_replica },
    { NULL, split },
    { NULL, scheduled },
    { NULL, distributed },
    { NULL, in_parallel },
    { NULL, ahead },
    { NULL, distributed_ahead },
    { NULL, interleaved_ahead },
    { NULL, cached },
    { NULL, rounds_of_few },
    { NULL, rounds_with_more },
    { NULL, rounds_with_more_before },
    { NULL, rounds_drawn_twice },
    { NULL, rounds_interleaved },
    { NULL, rounds_of_kept_with_more },
    { NULL, rounds_of_kept_drawn },
    { NULL, rounds_of_kept_pairs },
    { NULL, rounds_of_kept_windows },
    { NULL, rounds_of_a_function },
    { NULL, rounds_ahead },
};

enum { NUM_PIPELINES = sizeof(pipelines) / sizeof(pipelines[0]) };

static co_dataset *
pipeline(co_context *ctx, size_t i)
{
    return pipelines[i].make != NULL ? pipelines[i].make(ctx)
                                     : data_pipeline(ctx, pipelines[i].text);
}

/* --- everywhere --- */

/* The positions of an iterator before each of its elements and at its end, and what followed
 * there. */
typedef struct journey {
    co_value *positions[MOST];
    char     *rests[MOST];
    int       n;
} journey;

static void
travel(co_context *ctx, co_dataset *dataset, journey *j)
{
    co_iterator *iterator = co_iterate(ctx, dataset);
    co_value    *element = NULL;
    char         text[DATA_TEXT];

    j->n = 0;
    do {
        CO_REQUIRE(j->n < MOST);
        j->positions[j->n] = co_iterator_save(ctx, iterator);
        j->rests[j->n++] = NULL;
        element = co_next(ctx, iterator);
        for (int k = 0; element != NULL && k < j->n; ++k) {
            size_t length = j->rests[k] != NULL ? strlen(j->rests[k]) : 0;

            data_text(ctx, element, text);
            j->rests[k] = realloc(j->rests[k], length + strlen(text) + 2);
            sprintf(j->rests[k] + length, "%s%s", length > 0 ? " " : "", text);
        }
    } while (element != NULL);
}

static bool
same_bytes(co_context *ctx, co_value *a, co_value *b)
{
    size_t      n = 0, m = 0;
    const char *x = co_string_at(ctx, a, 0, &n), *y = co_string_at(ctx, b, 0, &m);

    return n == m && memcmp(x, y, n) == 0;
}

CO_TEST_WITH(an_iterator_goes_on_wherever_it_was_saved, "", "cpus=2")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < NUM_PIPELINES; ++i) {
        co_dataset *dataset = pipeline(ctx, i);
        journey     j;

        travel(ctx, dataset, &j);
        CO_REQUIRE(co_ok(ctx));
        CO_EXPECT_MORE(j.n, 2);
        for (int k = 0; k < j.n; ++k) {
            /* The dataset of another process, and the very same one, whose rounds are counted
             * on. */
            co_iterator *other = co_iterator_restore(ctx, pipeline(ctx, i), j.positions[k]);
            co_iterator *same = co_iterator_restore(ctx, dataset, j.positions[k]);

            if (!same_bytes(ctx, co_iterator_save(ctx, other), j.positions[k]))
                test_fail(TEST_AT, "pipeline %zu at %d is saved in another way", i, k);
            CO_EXPECT_STR(data_rest(ctx, other, MOST, text), j.rests[k] != NULL ? j.rests[k] : "");
            CO_EXPECT_STR(data_rest(ctx, same, MOST, text), j.rests[k] != NULL ? j.rests[k] : "");
            if (!co_ok(ctx))
                test_fail(TEST_AT, "pipeline %zu at %d: %s", i, k, co_error(ctx)->message);
            CO_REQUIRE(co_ok(ctx));
        }
        for (int k = 0; k < j.n; ++k)
            free(j.rests[k]);
    }
    files_clean();
}

/* Rounds are counted on by who is asked, from where that one was saved; who is not has changed
 * nothing. */
CO_TEST(rounds_go_on_from_the_position_of_who_is_asked, "")
{
    co_dataset  *dataset = rounds_of_few(ctx);
    co_iterator *iterator = co_iterate(ctx, dataset), *early, *late;
    co_value    *positions[2];
    char         rests[2][DATA_TEXT], text[DATA_TEXT];

    for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < 4; ++k)
            co_next(ctx, iterator);
        positions[i] = co_iterator_save(ctx, iterator);
    }
    for (int i = 0; i < 2; ++i)
        data_rest(ctx, co_iterator_restore(ctx, rounds_of_few(ctx), positions[i]), MOST, rests[i]);
    CO_EXPECT_STR(data_rest(ctx, iterator, MOST, text), rests[1]);
    early = co_iterator_restore(ctx, dataset, positions[0]);
    late = co_iterator_restore(ctx, dataset, positions[1]);
    CO_EXPECT_TRUE(same_bytes(ctx, co_iterator_save(ctx, early), positions[0]));
    CO_EXPECT_STR(data_rest(ctx, early, MOST, text), rests[0]);
    CO_EXPECT_STR(data_rest(ctx, late, MOST, text), rests[1]);
    /* Restored, and never asked. */
    dataset = rounds_of_few(ctx);
    co_iterator_restore(ctx, dataset, positions[1]);
    data_elements(ctx, rounds_of_few(ctx), MOST, rests[0]);
    CO_EXPECT_STR(data_elements(ctx, dataset, MOST, text), rests[0]);
}

/* A branch that was not begun is not open in the position, but it is compared. */
CO_TEST(another_shuffle_in_a_branch_that_was_not_begun_is_refused, "")
{
    co_dataset *more = co_dataset_range(ctx, 0, 4, 1);
    co_dataset *other = co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, 6, 1), 5, 1, true);
    co_value   *position = co_iterator_save(ctx, co_iterate(ctx, co_dataset_concatenate(ctx, more,
                                                                                        drawn(ctx))));

    CO_EXPECT_NULL(co_iterator_restore(ctx, co_dataset_concatenate(ctx, more, other), position));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the stage shuffle:");
}

CO_TEST(a_position_outlives_its_runtime, "")
{
    co_context  *first = co_open(NULL);
    co_iterator *iterator = co_iterate(first, reshuffled(first));
    char         expected[DATA_TEXT], text[DATA_TEXT];
    size_t       n = 0;
    const char  *bytes;
    co_value    *kept;

    for (int i = 0; i < 9; ++i)
        co_next(first, iterator);
    bytes = co_string_at(first, co_iterator_save(first, iterator), 0, &n);
    kept = co_bytes(ctx, bytes, n);
    data_rest(first, iterator, MOST, expected);
    CO_EXPECT_CODE(co_close(first), CO_OK);
    iterator = co_iterator_restore(ctx, reshuffled(ctx), kept);
    CO_EXPECT_STR(data_rest(ctx, iterator, MOST, text), expected);
    /* A tensor of one string, as records give it, is as good. */
    kept = co_next(ctx, co_iterate(ctx, co_dataset_from_tensors(ctx, kept)));
    iterator = co_iterator_restore(ctx, reshuffled(ctx), kept);
    CO_EXPECT_STR(data_rest(ctx, iterator, MOST, text), expected);
}

CO_TEST_WITH(examples_and_dropped_rows_are_part_of_a_position, "DS-PART-5", "cpus=2")
{
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *batches = data_pipeline(ctx, "range(9).batch_drop(3).rebatch(1)");
    co_dataset  *dataset = co_distribute_dataset(ctx, strategy, batches, NULL);
    co_iterator *iterator = co_iterate(ctx, dataset);

    co_next(ctx, iterator);
    iterator = co_iterator_restore(ctx, dataset, co_iterator_save(ctx, iterator));
    CO_EXPECT_INT(co_iterator_step_examples(ctx, iterator), 1);
    CO_EXPECT_INT(co_iterator_dropped_rows(ctx, iterator), 0);
}

/* Another machine has another number of cores: what a thread had made ahead is given without one,
 * and the other way round. */
CO_TEST(an_interleave_goes_on_with_any_number_of_calls, "")
{
    static const int      calls[] = { 0, 1, 2, 3, -1 };
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_dataset           *range = co_dataset_range(ctx, 0, 5, 1), *datasets[5];
    char                  rest[DATA_TEXT], text[DATA_TEXT];

    options.cycle_length = 3;
    options.block_length = 2;
    for (int i = 0; i < 5; ++i) {
        options.num_parallel_calls = calls[i];
        datasets[i] = co_dataset_interleave(ctx, range, inner, NULL, NULL, &options);
    }
    for (int i = 0; i < 5; ++i)
        for (int k = 0; k < 5; ++k)
            for (int at = 0; at < 25; at += 4) {
                co_iterator *iterator = co_iterate(ctx, datasets[i]), *other;

                for (int j = 0; j < at; ++j)
                    co_next(ctx, iterator);
                other = co_iterator_restore(ctx, datasets[k], co_iterator_save(ctx, iterator));
                CO_REQUIRE(other != NULL);
                data_rest(ctx, iterator, MOST, rest);
                CO_EXPECT_STR(data_rest(ctx, other, MOST, text), rest);
            }
}

/* --- errors are part of where one is --- */

CO_TEST(a_row_that_is_wrong_is_so_after_restoring, "")
{
    const co_csv_column columns[] = { { CO_INT64, NULL } };
    const char          text[] = "1\n2\nx\n4\n5\n";
    char                path[FILES_PATH], seen[DATA_TEXT];
    const char         *names[] = { files_path("csv", path) };
    co_dataset         *dataset;
    co_iterator        *iterator;

    files_write(path, text, strlen(text));
    dataset = co_dataset_batch(ctx, co_dataset_csv(ctx, names, 1, columns, 1, NULL), 4, false);
    iterator = co_iterate(ctx, co_dataset_csv(ctx, names, 1, columns, 1, NULL));
    co_next(ctx, iterator);
    iterator = co_iterator_restore(ctx, co_dataset_csv(ctx, names, 1, columns, 1, NULL),
                                   co_iterator_save(ctx, iterator));
    CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, iterator)), 2);
    co_next(ctx, iterator);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "row 2");
    /* The rows before the wrong one are given, then comes its error; it is saved in between. */
    iterator = co_iterate(ctx, dataset);
    co_next(ctx, iterator);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "row 2");
    iterator = co_iterator_restore(ctx, dataset, co_iterator_save(ctx, iterator));
    CO_EXPECT_STR(data_rest(ctx, iterator, MOST, seen), "([4,5])");
    files_clean();
}

CO_TEST(files_that_changed_are_named, "GEN-ERR-5")
{
    co_dataset  *dataset = lines(ctx);
    co_iterator *iterator = co_iterate(ctx, dataset);
    co_value    *position;
    char         path[FILES_PATH], text[DATA_TEXT];

    co_next(ctx, iterator);
    co_next(ctx, iterator);
    position = co_iterator_save(ctx, iterator);
    files_write(files_path("a", path), "o\n", 2);
    CO_EXPECT_NULL(co_iterator_restore(ctx, dataset, position));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "ends before the checkpoint");
    unlink(path);
    CO_EXPECT_NULL(co_iterator_restore(ctx, dataset, position));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "/a'");
    files_write(path, "one\ntwo\r\nthree\n", 15);
    iterator = co_iterator_restore(ctx, dataset, position);
    CO_EXPECT_STR(data_rest(ctx, iterator, MOST, text), "'three' 'four' 'five'");
    files_clean();
}

/* --- refusals --- */

static bool saved_inside;

static co_value *
save_own(co_context *ctx, co_value *x, void *user)
{
    saved_inside = co_iterator_save(ctx, *(co_iterator **)user) != NULL;
    return x;
}

static co_value *
list_state(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 1);

    (void)user;
    return co_tuple(ctx, (co_value *[]){ co_list(ctx, &x, 1), x }, 2);
}

static co_value *
text_state(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_tuple(ctx, (co_value *[]){ co_string(ctx, "state"), co_at(ctx, args, 1) }, 2);
}

CO_TEST(what_cannot_be_saved_is_named, "")
{
    co_iterator *iterator = NULL;
    co_dataset  *range = co_dataset_range(ctx, 0, 3, 1);

    iterator = co_iterate(ctx, co_dataset_map(ctx, range, save_own, &iterator, NULL));
    co_next(ctx, iterator);
    CO_EXPECT_FALSE(saved_inside);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "between two elements");
    iterator = co_iterate(ctx, co_dataset_scan(ctx, range, co_int(ctx, 0), list_state, NULL, NULL));
    co_next(ctx, iterator);
    CO_EXPECT_NULL(co_iterator_save(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "");
    iterator = co_iterate(ctx, co_dataset_scan(ctx, range, co_int(ctx, 0), text_state, NULL, NULL));
    co_next(ctx, iterator);
    CO_EXPECT_NULL(co_iterator_save(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "scan holds a host string");
    CO_EXPECT_NULL(co_iterator_save(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "(iterator)");
    CO_EXPECT_NULL(co_iterator_restore(ctx, range, NULL));
    CO_EXPECT_ERROR(
        ctx, CO_INVALID_ARGUMENT,
        "argument 3 (checkpoint) of iterator_restore is NULL; give what co_iterator_save "
        "returned");
    CO_EXPECT_NULL(co_iterator_restore(ctx, range, co_none(ctx)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "one string, as co_iterator_save returns it");
    CO_EXPECT_NULL(co_iterator_restore(ctx, range, co_int(ctx, 3)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "one string");
    CO_EXPECT_NULL(co_iterator_restore(ctx, NULL, co_string(ctx, "")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dataset");
}

CO_TEST(positions_of_other_pipelines_are_refused, "")
{
    static const struct {
        const char *saved, *restored, *stage;
    } cases[] = {
        { "range(10)", "range(11)", "range" },
        { "range(10)", "range(0,20,2)", "range" },
        { "range(10).batch(2)", "range(10).batch(3)", "batch" },
        { "range(10).take(3)", "range(10).take(4)", "take" },
        { "range(10).shard(5,1)", "range(10).shard(5,2)", "shard" },
        { "range(10).double", "range(10).even", "filter" },
        { "range(10).batch(2).rebatch(1,3)", "range(10).batch(2).rebatch(3,1)", "rebatch" },
        { "range(10)", "range(10).cache", "cache" },
        { "range(21).batch(2)", "range(20).batch(2)", "range" },
        { "range(10).batch(2).take(4)", "range(10).batch(3).take(4)", "batch" },
        { "range(10).skip(1).batch(2).repeat(2)", "range(10).skip(2).batch(2).repeat(2)", "skip" },
        { "range(10).batch(2).prefetch(2)", "range(10).batch(2).repeat(3)", "repeat" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_iterator *iterator = co_iterate(ctx, data_pipeline(ctx, cases[i].saved));
        co_value    *position = co_iterator_save(ctx, iterator);
        char         part[80];

        snprintf(part, sizeof(part), "the stage %s:", cases[i].stage);
        CO_EXPECT_NULL(co_iterator_restore(ctx, data_pipeline(ctx, cases[i].restored), position));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, part);
    }
}

/* Bytes with a checksum that is right. */
static co_value *
sealed(co_context *ctx, unsigned char *bytes, size_t n)
{
    uint32_t sum = co_crc32c(bytes + 12, n - 12);

    for (int i = 0; i < 4; ++i)
        bytes[8 + i] = (unsigned char)(sum >> 8 * i);
    return co_bytes(ctx, bytes, n);
}

/* Whether bytes are refused with one of the codes, or restored to an iterator that can be read and
 * released. */
static void
try_bytes(co_context *ctx, co_dataset *dataset, co_value *bytes)
{
    co_iterator *iterator = co_iterator_restore(ctx, dataset, bytes);

    CO_EXPECT_TRUE((iterator == NULL) == !co_ok(ctx));
    for (int i = 0; i < 5 && iterator != NULL && co_ok(ctx); ++i)
        co_next(ctx, iterator);
    co_clear(ctx);
}

CO_TEST_WITH(damaged_bytes_are_refused_and_sealed_ones_do_no_harm, "", "cpus=2")
{
    char rest[DATA_TEXT];

    for (size_t i = 0; i < NUM_PIPELINES; ++i) {
        co_dataset    *dataset = pipeline(ctx, i), *drained = pipeline(ctx, i);
        co_iterator   *iterator = co_iterate(ctx, dataset);
        size_t         n = 0;
        const char    *text;
        unsigned char *bytes;

        data_elements(ctx, drained, MOST, rest); /* its cache has a store */
        co_next(ctx, iterator);
        co_next(ctx, iterator);
        text = co_string_at(ctx, co_iterator_save(ctx, iterator), 0, &n);
        CO_REQUIRE(text != NULL);
        bytes = malloc(n);
        for (size_t k = 0; k < n; ++k)
            CO_BLOCK(ctx) {
                memcpy(bytes, text, n);
                CO_EXPECT_NULL(co_iterator_restore(ctx, dataset, co_bytes(ctx, bytes, k)));
                co_clear(ctx);
                bytes[k] ^= (unsigned char)(1u << k % 8);
                CO_EXPECT_NULL(co_iterator_restore(ctx, dataset, co_bytes(ctx, bytes, n)));
                CO_EXPECT_TRUE(co_error(ctx)->code == CO_DATA_LOSS ||
                               co_error(ctx)->code == CO_INVALID_ARGUMENT);
                co_clear(ctx);
                if (k < 12)
                    continue;
                try_bytes(ctx, dataset, sealed(ctx, bytes, n));
                bytes[k] = 0xff;
                try_bytes(ctx, dataset, sealed(ctx, bytes, n));
                try_bytes(ctx, drained, sealed(ctx, bytes, n));
                try_bytes(ctx, dataset, sealed(ctx, bytes, k));
            }
        free(bytes);
    }
    files_clean();
}

/* The bytes of a position, with room for one more, to be freed. */
static unsigned char *
copy_of(co_context *ctx, co_value *position, size_t *n)
{
    const char    *text = co_string_at(ctx, position, 0, n);
    unsigned char *bytes = calloc(*n + 1, 1);

    memcpy(bytes, text, *n);
    return bytes;
}

/* Where the fields of the first stage are: behind the head, two numbers and its mark. */
enum { INDEX = 12 + 3 * 8, BEGUN = INDEX + 8, SPOILT, WHOLE, OWN, REST };

CO_TEST(a_cache_is_not_read_past_its_end, "")
{
    static const struct {
        int64_t     index;
        int         begun, spoilt, whole, own;
        const char *said;
    } cases[] = {
        { 1000000, 0, 0, 0, 0, "not whole" },  { 1000000, 1, 0, 0, 0, "not whole" },
        { 5, 1, 0, 1, 1, "not whole" },        { 0, 1, 1, 1, 0, "not whole" },
        { 0, 0, 0, 1, 0, "before the first" }, { 0, 0, 1, 0, 0, "before the first" },
        { 0, 0, 0, 0, 1, "before the first" }, { 1, 1, 0, 1, 0, "more elements" },
    };
    co_dataset    *dataset = data_pipeline(ctx, "range(5).cache");
    co_value      *position = co_iterator_save(ctx, co_iterate(ctx, dataset));
    char           text[DATA_TEXT];
    size_t         n = 0;
    unsigned char *bytes = copy_of(ctx, position, &n), all[400] = { 0 };

    CO_EXPECT_STR(data_elements(ctx, dataset, MOST, text), "0 1 2 3 4");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        size_t more = cases[i].whole ? 16 : cases[i].own ? 8 : 0; /* numbers, which are 0 */

        memcpy(all, bytes, REST);
        memset(all + REST, 0, 16);
        memcpy(all + REST + more, bytes + REST, n - REST);
        for (int k = 0; k < 8; ++k)
            all[INDEX + k] = (unsigned char)(cases[i].index >> 8 * k);
        all[BEGUN] = (unsigned char)cases[i].begun;
        all[SPOILT] = (unsigned char)cases[i].spoilt;
        all[WHOLE] = (unsigned char)cases[i].whole;
        all[OWN] = (unsigned char)cases[i].own;
        CO_EXPECT_NULL(co_iterator_restore(ctx, dataset, sealed(ctx, all, n + more)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, cases[i].said);
    }
    free(bytes);
}

static co_value *
generate_from(co_context *ctx, int64_t index, void *user)
{
    return index < 4 ? co_scalar_int64(ctx, *(const int64_t *)user + index) : NULL;
}

static co_dataset *
cached_from(co_context *ctx, int64_t *first)
{
    return co_dataset_cache(ctx, co_dataset_from_generator(ctx, generate_from, first,
                                                           co_spec(ctx, CO_INT64, NULL, 0)));
}

CO_TEST(restoring_leaves_the_cache_of_the_dataset_alone, "")
{
    static int64_t ten = 10, twenty = 20;
    co_dataset    *own = cached_from(ctx, &twenty);
    co_iterator   *iterator = co_iterate(ctx, cached_from(ctx, &ten));
    char           text[DATA_TEXT];
    size_t         n = 0;
    unsigned char *bytes;
    co_value      *position;

    for (int i = 0; i < 5; ++i)
        co_next(ctx, iterator);
    position = co_iterator_save(ctx, iterator);
    bytes = copy_of(ctx, position, &n);
    CO_EXPECT_NULL(co_iterator_restore(ctx, own, sealed(ctx, bytes, n + 1)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "more bytes");
    CO_EXPECT_NOT_NULL(co_iterator_restore(ctx, own, position)); /* and it is never asked */
    CO_EXPECT_STR(data_elements(ctx, own, MOST, text), "20 21 22 23");
    CO_EXPECT_STR(data_elements(ctx, own, MOST, text), "20 21 22 23");
    free(bytes);
}

CO_TEST(restored_elements_are_within_the_spec, "")
{
    static const unsigned char element[] = { CO_KIND_TENSOR, CO_FLOAT32, 1, 2, 0, 0, 0, 0 };

    co_value      *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), (float[]){ 0, 1, 2, 3, 4, 5 });
    co_dataset    *dataset = co_dataset_shuffle(ctx, co_dataset_from_tensor_slices(ctx, x), 2, 1,
                                                false);
    co_iterator   *iterator = co_iterate(ctx, dataset);
    size_t         n = 0, at = 0;
    unsigned char *bytes;

    co_next(ctx, iterator);
    bytes = copy_of(ctx, co_iterator_save(ctx, iterator), &n);
    while (at + sizeof(element) < n && memcmp(bytes + at, element, sizeof(element)) != 0)
        ++at;
    CO_REQUIRE(at + sizeof(element) < n);
    bytes[at + 3] = 1; /* of the two numbers there */
    memmove(bytes + at + 11, bytes + at + 15, n - at - 15);
    CO_EXPECT_NULL(co_iterator_restore(ctx, dataset, sealed(ctx, bytes, n - 4)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "dtype or shape");
    free(bytes);
}

/* Of elements without a number the other dimensions may be larger than memory. */
CO_TEST(rows_of_nothing_are_cut, "")
{
    int64_t     dims[] = { 2, (int64_t)1 << 30, (int64_t)1 << 31, 0 };
    co_dataset *dataset = co_dataset_from_tensor_slices(ctx, co_zeros(ctx, CO_FLOAT32, dims, 4));
    co_value   *row = co_next(ctx, co_iterate(ctx, co_dataset_batch(ctx, dataset, 1, false)));

    CO_EXPECT_INT(co_value_dim(ctx, row, 0), 1);
    CO_EXPECT_INT(co_value_dim(ctx, row, 2), dims[2]);
}

/* --- at once --- */

typedef struct saver {
    co_context  *ctx;
    co_iterator *iterator;
    bool         ok;
} saver;

static void *
save_often(void *arg)
{
    saver *self = arg;

    self->ok = true;
    for (int i = 0; i < 100; ++i)
        CO_BLOCK(self->ctx) {
            self->ok = self->ok && co_iterator_save(self->ctx, self->iterator) != NULL;
        }
    return NULL;
}

/* The elements belong to the dataset: whoever saves only reads them (the thread sanitizer
 * looks). */
CO_TEST(iterators_of_one_cache_are_saved_at_once, "")
{
    co_dataset *dataset = co_dataset_cache(ctx, slices(ctx));
    char        text[DATA_TEXT];
    saver       savers[2];
    pthread_t   threads[2];

    data_elements(ctx, dataset, MOST, text);
    for (int i = 0; i < 2; ++i) {
        savers[i] = (saver){ co_open_beside(ctx), NULL, false };
        savers[i].iterator = co_iterate(savers[i].ctx, dataset);
        CO_EXPECT_NOT_NULL(co_next(savers[i].ctx, savers[i].iterator));
        CO_REQUIRE(pthread_create(&threads[i], NULL, save_often, &savers[i]) == 0);
    }
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        CO_EXPECT_TRUE(savers[i].ok);
        CO_EXPECT_CODE(co_close(savers[i].ctx), CO_OK);
    }
}

/* --- without memory --- */

static bool
save_and_restore(co_context *ctx)
{
    static const make_fn makes[] = {
        reshuffled, scanned,   interleaved, unique, concatenated,        scheduled,
        split,      unbatched, zipped,      slices, rounds_of_kept_pairs
    };

    for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]) && co_ok(ctx); ++i)
        CO_BLOCK(ctx) {
            co_dataset  *dataset = makes[i](ctx);
            co_iterator *iterator = co_iterate(ctx, dataset);

            for (int at = 0; at < 9; ++at) {
                if (at == 2 || at == 8) /* in the first round, and in the second */
                    iterator = co_iterator_restore(ctx, dataset, co_iterator_save(ctx, iterator));
                co_next(ctx, iterator);
            }
        }
    return co_ok(ctx);
}

CO_TEST_BARE(positions_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, save_and_restore);
}

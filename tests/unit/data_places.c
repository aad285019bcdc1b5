/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gets an example: what is told is compared with what the workers read, over sizes, batches,
 * workers and replicas, and over pipelines that repeat, drop, shuffle and cut anew.
 */
#include "files_support.h"

enum { MOST_EXAMPLES = 64, MOST_PLACES = 40 };

/* Where every example came, step by step. */
typedef struct truth {
    int              count[MOST_EXAMPLES];
    co_example_place places[MOST_EXAMPLES][MOST_PLACES];
} truth;

static truth seen;

static void
note(int64_t example, int replica, int replicas, int64_t step, int64_t row)
{
    co_example_place place = CO_EXAMPLE_PLACE_INIT;
    int             *count;

    CO_REQUIRE(example >= 0 && example < MOST_EXAMPLES);
    count = &seen.count[example];
    CO_REQUIRE(*count < MOST_PLACES);
    place.worker = replica / replicas;
    place.replica = replica;
    place.step = step;
    place.row = row;
    seen.places[example][(*count)++] = place;
}

static int64_t
number_at(co_context *ctx, co_value *piece, int64_t i)
{
    int64_t numbers[256];

    if (co_value_dtype(ctx, piece) == CO_STRING)
        return strtol(co_string_at(ctx, piece, i, NULL), NULL, 10);
    CO_REQUIRE(co_value_num_elements(ctx, piece) <= 256);
    co_value_copy_data(ctx, piece, CO_INT64, numbers, co_value_num_elements(ctx, piece));
    return numbers[i];
}

/* Note what a replica gets; of tuples, the component at `counted` is the example. */
static void
note_piece(co_context *ctx, co_value *piece, int replica, int replicas, int64_t step,
           size_t counted)
{
    int64_t n, rows;

    if (co_value_kind(piece) == CO_KIND_TUPLE)
        piece = co_at(ctx, piece, counted);
    n = co_value_num_elements(ctx, piece);
    rows = co_value_ndim(ctx, piece) > 0 ? co_value_dim(ctx, piece, 0) : 1;
    for (int64_t i = 0; i < n; ++i)
        note(number_at(ctx, piece, i), replica, replicas, step, i / (n / rows));
}

/* All workers go step by step; replicas take the elements of their worker in turn. */
static void
read_all(co_context *ctx, co_dataset *dataset, int workers, int replicas, int64_t steps,
         size_t counted)
{
    co_iterator *iterators[4];
    bool         any = true;

    memset(&seen, 0, sizeof(seen));
    for (int w = 0; w < workers; ++w) {
        co_input_context input = { workers, w, workers * replicas };

        iterators[w] = co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input));
    }
    for (int64_t step = 0; any && step < steps; ++step) {
        any = false;
        for (int r = 0; r < workers * replicas; ++r)
            CO_BLOCK(ctx) {
                co_value *piece = co_next(ctx, iterators[r / replicas]);

                any = any || piece != NULL;
                if (piece != NULL)
                    note_piece(ctx, piece, r, replicas, step, counted);
            }
    }
}

/* Take a place out of those where the example was seen; false if it is not there. */
static bool
was_seen(int example, const co_example_place *place)
{
    co_example_place *places = seen.places[example];

    for (int i = 0; i < seen.count[example]; ++i)
        if (memcmp(&places[i], place, sizeof(*place)) == 0) {
            places[i].row = -1;
            return true;
        }
    return false;
}

/* Whether all examples are said to be where they were seen, step by step; is_cut: there may be
 * more. */
static bool
tells_the_truth(co_context *ctx, co_dataset *dataset, const co_input_context *input, int examples,
                bool is_cut)
{
    for (int k = 0; k < examples; ++k)
        for (int i = 0; i < seen.count[k] + !is_cut; ++i) {
            co_example_place place = CO_EXAMPLE_PLACE_INIT;
            int64_t          step = i < seen.count[k] ? seen.places[k][i].step : -1;
            bool found = co_dataset_explain_example(ctx, dataset, input, k, (size_t)i, &place);

            if (found != (i < seen.count[k]) || !co_ok(ctx) ||
                (found && (place.step != step || !was_seen(k, &place)))) {
                test_fail(TEST_AT,
                          "occurrence %d of example %d: told %d: worker %d, replica %d, step %lld, "
                          "row %lld; seen %d times, this one in step %lld",
                          i, k, found, place.worker, place.replica, (long long)place.step,
                          (long long)place.row, seen.count[k], (long long)step);
                return false;
            }
        }
    return true;
}

static void
compare(co_context *ctx, const char *pipeline, int examples, int workers, int replicas)
{
    CO_BLOCK(ctx) {
        co_dataset      *dataset = data_pipeline(ctx, pipeline);
        co_input_context input = { workers, workers - 1, workers * replicas };

        read_all(ctx, dataset, workers, replicas, INT64_MAX, 0);
        if (!tells_the_truth(ctx, dataset, &input, examples, false))
            test_fail(TEST_AT, "%s, %d workers of %d replicas", pipeline, workers, replicas);
    }
}

CO_TEST_WITH(places_are_where_examples_are_read,
             "DS-SHARD-6 DS-SHARD-8 DS-SHARD-9 DS-SPLIT-1 DS-SPLIT-2", "log=error")
{
    static const char *const policies[] = {
        "range(%d).batch(%d)",     "range(%d).batch(%d).DATA",       "range(%d).batch(%d).REPLICA",
        "range(%d).batch(%d).OFF", "range(%d).shard.batch(%d).HINT", "range(%d).batch_drop(%d)"
    };
    static const int sizes[] = { 0, 1, 2, 3, 7, 16, 17, 40 };

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s += TEST_SANITIZED ? 3 : 1)
        for (int k = 0; k < 6 * 9 * 16; k += TEST_SANITIZED ? 7 : 1) {
            char pipeline[80];

            snprintf(pipeline, sizeof(pipeline), policies[k % 6], sizes[s], k / 6 % 9 + 1);
            compare(ctx, pipeline, sizes[s], k / 54 % 4 + 1, k / 216 + 1);
        }
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(places_follow_what_stages_do, "DS-SPLIT-3 DS-SPLIT-9", "log=error")
{
    static const struct {
        int         examples;
        const char *pipeline;
    } rows[] = {
        { 20, "range(20).batch(3).repeat(2)" },
        { 20, "range(20).batch(3).repeat(2).OFF" },
        { 20, "range(20).repeat(3).batch(7)" },
        { 2, "range(2).repeat(9).batch(6)" }, /* the same example often in a batch */
        { 20, "range(20).skip(3).take(11).batch(4)" },
        { 20, "range(20).batch(4).skip(1).take(3)" },
        { 20, "range(20).take(0).batch(4)" },
        { 20, "range(20).skip(-1).batch(4)" },
        { 20, "range(20).shard(3,1).batch(2)" },
        { 20, "range(20).batch(3).shard(2,1).OFF" },
        { 20, "range(20).batch(4).rebatch(3,0,2)" },
        { 20, "range(20).batch(4).rebatch_drop(3).OFF" },
        { 24, "range(24).batch(3).batch(4)" },
        { 24, "range(24).batch(3).batch(4).OFF" },
        { 20, "range(20).cache.prefetch(3).batch(5).prefetch(2).DATA.repeat(2)" },
        { 20, "range(20).batch_drop(6).OFF" },
        { 8, "range(8).shard.repeat(2).batch(4).take(1).HINT" },
        { 8, "range(8).shard.batch(4).prefetch(1).repeat(2).HINT" },
        { 9, "range(9).batch(4).HINT" },
        { 20, "range(20).batch(4).repeat(2).FILE" }, /* with one worker */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        for (int k = 0; k < 16; k += TEST_SANITIZED ? 5 : 1)
            compare(ctx, rows[i].pipeline, rows[i].examples,
                    strstr(rows[i].pipeline, "FILE") != NULL ? 1 : k % 4 + 1, k / 4 + 1);
    for (int k = 0; k < 2; ++k) /* one replica needs no batches */
        compare(ctx, k == 0 ? "range(9).skip(2)" : "range(9).repeat(2).OFF", 9, 1, 1);
    CO_EXPECT_OK(ctx);
}

/* --- other stages and sources --- */

static co_value *
as_it_is(co_context *ctx, co_value *x, void *user)
{
    (void)ctx, (void)user;
    return x;
}

static co_value *
count_up(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

/* Each with 24 examples; `counted`: the component of the example. */
static co_dataset *
made_by(co_context *ctx, int which, size_t *counted)
{
    co_dataset    *range = co_dataset_range(ctx, 0, 24, 1), *both[2], *data = NULL;
    co_value      *spec = co_spec(ctx, CO_INT64, CO_SHAPE(-1));
    co_map_options calls = CO_MAP_OPTIONS_INIT;
    int64_t        numbers[24];

    *counted = which == 5;
    for (int i = 0; i < 24; ++i)
        numbers[i] = i;
    calls.num_parallel_calls = 2;
    switch (which) {
    case 0: /* functions before and after the batch; the batch size is not known any more */
        data = co_dataset_batch(ctx, co_dataset_map(ctx, range, as_it_is, NULL, NULL), 5, true);
        return co_dataset_map(ctx, data, as_it_is, NULL, spec);
    case 1: return co_dataset_with_autoshard(ctx, made_by(ctx, 0, counted), CO_AUTOSHARD_OFF);
    case 2:
        data = co_dataset_parallel_map(ctx, range, as_it_is, NULL, NULL, &calls);
        return co_dataset_batch(ctx, data, 7, false);
    case 3:
        data = co_dataset_shuffle(ctx, range, 10, 5, false);
        return co_dataset_batch(ctx, co_dataset_repeat(ctx, data, 2), 7, false);
    case 4: /* the first of a zip, as far as the shorter goes */
        both[0] = co_dataset_repeat(ctx, range, -1);
        both[1] = co_dataset_range(ctx, 100, 140, 1);
        return co_dataset_batch(ctx, co_dataset_zip(ctx, both, 2), 4, false);
    case 5: return co_dataset_batch(ctx, co_dataset_enumerate(ctx, range, 7), 5, false);
    case 6:
        both[0] = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);
        both[1] = co_dataset_batch(ctx, co_dataset_range(ctx, 10, 24, 1), 3, false);
        return co_dataset_concatenate(ctx, both[0], both[1]);
    case 7:
        data = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_INT64, CO_SHAPE(24), numbers));
        return co_dataset_padded_batch(ctx, data, 5, NULL);
    case 8:
        data = co_dataset_unbatch(ctx, co_dataset_batch(ctx, range, 5, false));
        return co_dataset_batch(ctx, co_dataset_cache(ctx, data), 6, false);
    default:
        data = co_dataset_scan(ctx, range, co_int(ctx, 0), count_up, NULL, NULL);
        return co_dataset_batch(ctx, data, 6, false);
    }
}

CO_TEST_WITH(places_are_told_for_all_stages_that_keep_examples, "", "log=error")
{
    for (int which = 0; which < 10; ++which)
        for (int k = 0; k < 16; k += TEST_SANITIZED ? 5 : 1)
            CO_BLOCK(ctx) {
                int              workers = k % 4 + 1, replicas = k / 4 + 1;
                co_input_context input = { workers, 0, workers * replicas };
                size_t           counted;
                co_dataset      *dataset = made_by(ctx, which, &counted);

                read_all(ctx, dataset, workers, replicas, INT64_MAX, counted);
                if (!tells_the_truth(ctx, dataset, &input, 24, false))
                    test_fail(TEST_AT, "pipeline %d, %d workers of %d replicas", which, workers,
                              replicas);
            }
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(places_in_what_never_ends_are_told_one_after_the_other, "", "log=error")
{
    co_dataset      *dataset = data_pipeline(ctx, "range(5).repeat.batch(4)");
    co_input_context input = { 2, 0, 4 };

    read_all(ctx, dataset, 2, 2, 20, 0);
    CO_EXPECT_TRUE(tells_the_truth(ctx, dataset, &input, 5, true));
}

/* Sources that do not know their length: it is promised, and examples are counted there. */
CO_TEST_WITH(examples_are_counted_where_their_number_is_promised, "", "log=error")
{
    char        path[FILES_PATH];
    const char *names[] = { files_path("numbers", path) };
    co_dataset *lines;

    files_write(path, "0\n1\n2\n3\n4\n5\n6\n7\n8\n", 18);
    lines = co_dataset_assert_cardinality(ctx, co_dataset_text_lines(ctx, names, 1, NULL), 9);
    for (int k = 0; k < 16; ++k)
        CO_BLOCK(ctx) {
            int              workers = k % 4 + 1, replicas = k / 4 + 1;
            co_input_context input = { workers, 0, workers * replicas };
            co_dataset      *dataset = co_dataset_batch(ctx, lines, 4, false);

            dataset = co_dataset_with_autoshard(
                ctx, dataset, workers > 1 ? CO_AUTOSHARD_DATA : CO_AUTOSHARD_AUTO);
            read_all(ctx, dataset, workers, replicas, INT64_MAX, 0);
            CO_EXPECT_TRUE(tells_the_truth(ctx, dataset, &input, 9, false));
        }
    files_clean();
    CO_EXPECT_OK(ctx);
}

/* What the distributed iterator itself gives, also by weights. */
CO_TEST_WITH(places_are_those_of_distributed_iterators, "", "cpus=3")
{
    static const char *const pipelines[] = { "range(23).batch(10)", "range(23).batch(10).OFF",
                                             "range(23).batch_drop(6)" };
    static const int64_t     weights[] = { 1, 3, 2 };

    for (size_t i = 0; i < 6; ++i) {
        co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;
        co_dataset         *dataset;
        int64_t             step = 0;

        if (i < 3) {
            options.weights = weights;
            options.num_weights = 3;
        }
        dataset = co_distribute_dataset(ctx, co_mirrored_strategy(ctx, NULL, 0, &options),
                                        data_pipeline(ctx, pipelines[i % 3]), NULL);
        memset(&seen, 0, sizeof(seen));
        CO_EACH(ctx, element, co_iterate(ctx, dataset)) {
            for (int r = 0; r < 3; ++r)
                note_piece(ctx, co_at(ctx, element, (size_t)r), r, 3, step, 0);
            ++step;
        }
        CO_EXPECT_TRUE(tells_the_truth(ctx, dataset, NULL, 23, false));
    }
}

/* --- questions without an answer --- */

static co_dataset *
one_more(co_context *ctx, co_value *element, void *user)
{
    (void)element, (void)user;
    return co_dataset_range(ctx, 0, 1, 1);
}

static co_value *
generate(co_context *ctx, int64_t index, void *user)
{
    (void)user;
    return co_int(ctx, index);
}

static co_dataset *
not_told(co_context *ctx, int which)
{
    static const char *const names[] = { "a", "b", "c" };
    co_dataset              *range = co_dataset_range(ctx, 0, 24, 1), *both[2] = { range, NULL };
    co_value                *spec = co_spec(ctx, CO_INT64, NULL, 0);
    co_map_options           calls = CO_MAP_OPTIONS_INIT;
    float                    data[12] = { 0 };

    switch (which) {
    case 0: return co_dataset_filter(ctx, range, data_even, NULL);
    case 1: return co_dataset_take_while(ctx, range, data_below5, NULL);
    case 2: return co_dataset_flat_map(ctx, range, one_more, NULL, NULL);
    case 3: return co_dataset_unique(ctx, range);
    case 4: return co_dataset_shuffle(ctx, range, 4, 1, true);
    case 5:
        calls.num_parallel_calls = 2;
        calls.deterministic = false;
        return co_dataset_parallel_map(ctx, range, as_it_is, NULL, NULL, &calls);
    case 6: return co_dataset_from_generator(ctx, generate, NULL, spec);
    case 7: return co_dataset_text_lines(ctx, names, 3, NULL);
    case 8: both[1] = not_told(ctx, 0); return co_dataset_zip(ctx, both, 2);
    case 9: return co_dataset_concatenate(ctx, range, not_told(ctx, 0));
    case 10: /* batches are counted, not examples */
        return co_dataset_assert_cardinality(ctx, co_dataset_batch(ctx, not_told(ctx, 6), 2, false),
                                             9);
    case 11: return co_dataset_assert_cardinality(ctx, data_pipeline(ctx, "range(9).shard"), 9);
    default: /* rows of one example go to several replicas */
        return co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 4), data));
    }
}

CO_TEST_WITH(what_nobody_can_tell_is_refused_with_a_reason, "", "log=error")
{
    static const struct {
        int         which;
        const char *why;
    } rows[] = {
        { 0, "who gets an example cannot be told: filter gives what can only be known by reading" },
        { 1, "take_while gives" },
        { 2, "flat_map gives" },
        { 3, "unique gives" },
        { 4, "shuffle has another order in each pass; let it not reshuffle" },
        { 5, "map gives elements as they are ready" },
        { 6, "from_generator does not say how many examples it has; say it by co_dataset_assert" },
        { 7, "files does not say how many examples" },
        { 8, "zip has an input whose length is not known" },
        { 9, "filter gives" },
        { 10, "from_generator does not say" },
    };
    co_example_place place = { .struct_size = sizeof(place), .step = 77 };
    co_input_context two = { 1, 0, 2 }, workers = { 2, 0, 2 };
    co_dataset      *dataset;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        dataset = co_dataset_batch(ctx, not_told(ctx, rows[i].which), 4, false);
        CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, &two, 0, 0, &place));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, rows[i].why);
    }
    dataset = not_told(ctx, 12);
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, &two, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION,
                    "from_tensor_slices gives examples one by one, and each would be cut");
    CO_EXPECT_FALSE(
        co_dataset_explain_example(ctx, co_dataset_unbatch(ctx, dataset), NULL, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION,
                    "unbatch cuts examples themselves: nothing batches them before it; call "
                    "co_dataset_batch there");
    CO_EXPECT_FALSE(co_dataset_explain_example(
        ctx, co_dataset_rebatch(ctx, dataset, (int64_t[]){ 1 }, 1, false), NULL, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "rebatch cuts examples themselves");
    dataset = co_dataset_assert_cardinality(ctx, not_told(ctx, 7), 9);
    dataset = co_dataset_batch(ctx, dataset, 4, false);
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, &workers, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION,
                    "batch is shared out by whole files, and which examples a file holds is known");
    /* A hint that nobody fills in: as when it is iterated (DS-SHARD-10). */
    dataset = co_dataset_batch(ctx, not_told(ctx, 11), 4, false);
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, &workers, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "CO_SHARD_HINT");
    CO_EXPECT_INT(place.step, 77);
}

static co_dataset *
numbers(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input, (void)user;
    return data_pipeline(ctx, "range(6).batch(2)");
}

CO_TEST_WITH(questions_with_wrong_arguments_are_refused, "", "cpus=2")
{
    co_strategy     *two = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset      *dataset = data_pipeline(ctx, "range(6).batch(2)"), *made;
    co_input_context input = { 1, 0, 2 };
    co_example_place place = CO_EXAMPLE_PLACE_INIT, none = { .struct_size = 0 };
    co_example_place older = { .struct_size = offsetof(co_example_place, row), .row = 77 };

    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, NULL, NULL, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (dataset) of dataset_explain_example is NULL");
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, NULL, 0, 0, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 6 (place) is NULL; begin with CO_EXAMPLE_PLACE_INIT");
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, NULL, 0, 0, &none));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "without its struct_size");
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, &input, -1, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "argument 4 (example) is -1; there are 6 examples");
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, NULL, 6, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "argument 4 (example) is 6; there are 6 examples");
    input.input_pipeline_id = 3;
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, dataset, &input, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pipeline 3 of 1");
    input.input_pipeline_id = 0;
    CO_EXPECT_FALSE(
        co_dataset_explain_example(ctx, data_pipeline(ctx, "range(6)"), &input, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION,
                    "range gives examples one by one, and each would be cut for the replicas; call "
                    "co_dataset_batch first");
    made = co_distribute_dataset(ctx, two, dataset, NULL);
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, made, &input, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (input) is given for a distributed");
    made = co_distribute_datasets_from_function(ctx, two, numbers, NULL, NULL);
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, made, NULL, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "datasets that a function made");
    CO_EXPECT_FALSE(co_dataset_explain_example(NULL, dataset, NULL, 0, 0, &place));
    CO_EXPECT_TRUE(co_dataset_explain_example(ctx, dataset, NULL, 5, 0, &older));
    CO_EXPECT_INT(older.step, 2);
    CO_EXPECT_INT(older.row, 77);
}

/* What comes late or never is given up, soon and without much memory. */
CO_TEST_WITH(long_ways_are_given_up, "", "log=error")
{
    static const struct {
        const char      *pipeline;
        int64_t          example;
        co_input_context input;
        int64_t          step; /* -1: it is given up */
        const char      *part; /* of the message */
    } rows[] = {
        { "range(9223372036854775807).batch(100)",
          1000000000000000,
          { 2, 0, 4 },
          -1,
          "3355443 examples one by one, 67108864 in large batches" },
        { "range(9223372036854775807).batch(100)", 10000000, { 2, 0, 4 }, 100000, NULL },
        { "range(1000000000).batch(100)", 60000000, { 1, 0, 1 }, 600000, NULL },
        { "range(1000000000).batch(100)",
          67000000,
          { 1, 0, 1 },
          -1,
          "no further than step 645276; ask for an earlier one" },
        { "range(1000000000)", 3300000, { 1, 0, 1 }, 3300000, NULL },
        { "range(1000000000).take(900000000).skip(0).batch(100)",
          60000000,
          { 1, 0, 1 },
          -1,
          "1677721 examples one by one, 33554432 in large batches" },
        { "range(10).skip(5).repeat.batch(2)", 2, { 1, 0, 2 }, -1, "comes too late" },
        { "range(20000000).batch(10000000)", 19999999, { 1, 0, 1 }, 1, NULL },
        { "range(20000000).batch(20000000)",
          0,
          { 1, 0, 1 },
          -1,
          "in batches of 20000000; they are followed up to 16777216: ask with smaller ones" },
        { "range(9223372036854775807).batch(1099511627776)",
          0,
          { 1, 0, 1 },
          -1,
          "in batches of 1099511627776" },
        { "range(1000000000).shard(1,0).batch(30000000).OFF",
          9,
          { 1, 0, 2 },
          -1,
          "step 0; ask with batches of fewer than 30000000" },
        { "range(1000000000).batch(1).rebatch(30000000)", 9, { 1, 0, 1 }, -1, "step 0" },
        { "range(4).batch(1)",
          3,
          { 1, 0, 1073741824 },
          -1,
          "of 1073741824 replicas in 1 pipeline cannot be followed; ask with fewer" },
        { "range(4).batch(1).OFF", 3, { 1048576, 0, 1048576 }, -1, "ask with fewer" },
        { "range(9223372036854775807).skip(9223372036854775000).batch(10)",
          9223372036854775800,
          { 2, 1, 2 },
          80,
          NULL },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_example_place place = CO_EXAMPLE_PLACE_INIT;
        co_dataset      *dataset = data_pipeline(ctx, rows[i].pipeline);
        bool found = co_dataset_explain_example(ctx, dataset, &rows[i].input, rows[i].example, 0,
                                                &place);

        CO_EXPECT_INT(found, rows[i].step >= 0);
        if (rows[i].step >= 0)
            CO_EXPECT_INT(place.step, rows[i].step);
        else
            CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, rows[i].part);
    }
}

/* A deep pipeline and one that is there many times. */
CO_TEST_WITH(large_pipelines_are_followed_too, "", "log=error")
{
    co_dataset      *deep = co_dataset_range(ctx, 0, 3, 1), *often = deep, *many = deep, *huge;
    co_example_place place = CO_EXAMPLE_PLACE_INIT;

    for (int i = 0; i < 490; ++i)
        deep = co_dataset_skip(ctx, deep, 0);
    CO_EXPECT_TRUE(co_dataset_explain_example(ctx, deep, NULL, 2, 0, &place));
    CO_EXPECT_INT(place.step, 2);
    for (int i = 0; i < 15; ++i)
        often = co_dataset_concatenate(ctx, often, often);
    CO_EXPECT_TRUE(co_dataset_explain_example(ctx, often, NULL, 98303, 0, &place));
    CO_EXPECT_INT(place.step, 98303);
    for (int i = 0; i < 400; ++i)
        many = co_dataset_concatenate(ctx, many, co_dataset_range(ctx, 0, 1000, 1));
    CO_EXPECT_TRUE(co_dataset_explain_example(ctx, many, NULL, 16000, 0, &place));
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, many, NULL, 300000, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "followed for 16693 examples one by one, ");
    huge = co_dataset_range(ctx, 0, INT64_MAX, 1);
    huge = co_dataset_concatenate(ctx, huge, huge);
    CO_EXPECT_FALSE(co_dataset_explain_example(ctx, huge, NULL, 0, 0, &place));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "range has more examples than can be counted");
}

static bool
ask_some(co_context *ctx)
{
    static const char *const pipelines[] = { "range(9).batch(4)", "range(9).batch(4).OFF",
                                             "range(9).shard.batch(4).HINT" };
    co_input_context         input = { 2, 1, 4 };
    co_example_place         place = CO_EXAMPLE_PLACE_INIT;
    bool                     ok = true;

    for (int i = 0; ok && i < 3; ++i)
        ok = co_dataset_explain_example(ctx, data_pipeline(ctx, pipelines[i]), &input, 7, 0,
                                        &place);
    for (int which = 0; ok && which < 10; ++which) {
        size_t counted;

        ok = co_dataset_explain_example(ctx, made_by(ctx, which, &counted), &input, 7, 0, &place);
    }
    return ok;
}

CO_TEST_BARE(asking_survives_want_of_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", ask_some);
}

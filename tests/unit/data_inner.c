/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages that change what an element is: datasets in place of elements, rows, padding, elements
 * left out; sources and parts of pipelines that are functions; promises about their length.
 */
#include "data_support.h"

/* --- flat_map and interleave --- */

static co_dataset *
up_to(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_range(ctx, 0, co_item_int(ctx, x), 1);
}

static co_dataset *
thrice(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_repeat(ctx, co_dataset_from_tensors(ctx, x), 3);
}

static co_dataset *
interleaved(co_context *ctx, int64_t start, int64_t stop, co_inner_fn fn, int cycle, int block)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;

    options.cycle_length = cycle;
    options.block_length = block;
    return co_dataset_interleave(ctx, co_dataset_range(ctx, start, stop, 1), fn, NULL, NULL,
                                 &options);
}

CO_TEST(flat_map_and_interleave_read_datasets_in_turn, "")
{
    static const struct {
        int64_t     start, stop;
        co_inner_fn fn;
        int         cycle, block;
        const char *elements;
    } rows[] = {
        { 0, 0, up_to, 2, 1, "" },
        { 0, 1, up_to, 2, 1, "" },
        { 0, 4, up_to, 1, 1, "0 0 1 0 1 2" },
        { 0, 4, up_to, 2, 1, "0 0 1 0 1 2" },
        { 0, 4, up_to, 4, 2, "0 0 1 0 1 2" },
        { 1, 5, thrice, 2, 1, "1 2 1 2 1 2 3 4 3 4 3 4" },
        { 1, 4, thrice, 10, 2, "1 1 2 2 3 3 1 2 3" },
        { 1, 4, thrice, 2, 5, "1 1 1 2 2 2 3 3 3" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_dataset *dataset = interleaved(ctx, rows[i].start, rows[i].stop, rows[i].fn,
                                          rows[i].cycle, rows[i].block);

        CO_EXPECT_INT(co_cardinality(ctx, dataset), CO_UNKNOWN_CARDINALITY);
        for (int again = 0; again < 2; ++again)
            CO_EXPECT_STR(data_elements(ctx, dataset, 20, text), rows[i].elements);
    }
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_flat_map(ctx, co_dataset_range(ctx, 0, 4, 1), up_to,
                                                    NULL, NULL),
                                20, text),
                  "0 0 1 0 1 2");
    CO_EXPECT_OK(ctx);
}

static co_dataset *
inner_wrong(co_context *ctx, co_value *x, void *user)
{
    int64_t i = co_item_int(ctx, x);

    (void)user;
    if (i == 0)
        return NULL;
    if (i == 1)
        return (co_dataset *)x;
    if (i == 2)
        return co_dataset_enumerate(ctx, co_dataset_range(ctx, 0, 2, 1), 0);
    if (i == 3)
        return co_dataset_from_tensors(ctx, co_scalar_float(ctx, 1));
    if (i == 4)
        return co_dataset_batch(ctx, co_dataset_range(ctx, 0, 2, 1), 2, false);
    if (i == 5)
        co_fail(ctx, CO_DATA_LOSS, "five");
    return co_dataset_range(ctx, 8, 9, 1);
}

CO_TEST(what_a_function_returns_for_an_element_is_a_dataset_of_the_spec, "DS-ITER-8")
{
    co_iterator *iterator = co_iterate(ctx, co_dataset_flat_map(ctx, co_dataset_range(ctx, 0, 7, 1),
                                                                inner_wrong, NULL, NULL));
    char         text[DATA_TEXT];

    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "flat_map of element 0: the dataset function returned NULL");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "flat_map of element 1: the dataset function returned a handle");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "flat_map of element 2");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "flat_map of element 3: the dataset that the function returned has "
                    "other elements");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "flat_map of element 4");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "flat_map of element 5: five");
    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), "8");
}

CO_TEST(interleave_refuses_wrong_arguments, "")
{
    co_dataset *range = co_dataset_range(ctx, 0, 3, 1);

    CO_EXPECT_NULL(interleaved(ctx, 0, 3, up_to, 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "cycle_length is 0");
    CO_EXPECT_NULL(interleaved(ctx, 0, 3, up_to, 65537, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "at most 65536");
    CO_EXPECT_NULL(interleaved(ctx, 0, 3, up_to, 1, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "block_length 0");
    CO_EXPECT_NULL(interleaved(ctx, 0, 3, NULL, 1, 1));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn) of dataset_interleave is NULL");
    CO_EXPECT_NULL(co_dataset_flat_map(ctx, range, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn) of dataset_flat_map is NULL");
    CO_EXPECT_NULL(co_dataset_flat_map(ctx, NULL, up_to, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_flat_map(ctx, range, up_to, NULL, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 5 (spec)");
    CO_EXPECT_NULL(co_dataset_interleave(ctx, range, up_to, NULL, NULL,
                                         &(co_interleave_options){ .struct_size = 1 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
}

/* Names of files, sharded before they are opened; a shuffle of them comes after that. */
CO_TEST(names_of_files_are_shared_out_before_the_function,
        "DS-SHARD-2 DS-SHARD-3 DS-SHARD-5 DS-SHARD-7")
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_dataset           *names = co_dataset_range(ctx, 1, 6, 1); /* numbers will do */
    co_dataset           *mixed = co_dataset_shuffle(ctx, names, 5, 1, false), *dataset;
    int                   times[6] = { 0 };
    char                  text[DATA_TEXT];

    options.cycle_length = 1;
    options.opens_files = true;
    dataset = co_dataset_interleave(ctx, names, thrice, NULL, NULL, &options);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 2, 0), 20, text),
                  "1 1 1 3 3 3 5 5 5");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 2, 1), 20, text),
                  "2 2 2 4 4 4");
    for (int w = 0; w < 2; ++w) {
        co_dataset *share = co_dataset_interleave(ctx, mixed, thrice, NULL, NULL, &options);

        share = co_dataset_with_autoshard(ctx, co_dataset_repeat(ctx, share, 2), CO_AUTOSHARD_FILE);
        CO_EACH(ctx, x, co_iterate(ctx, co_dataset_auto_shard(ctx, share, 2, w))) {
            int64_t name = co_item_int(ctx, x);

            CO_EXPECT_INT(name % 2, w == 0);
            ++times[name];
        }
    }
    for (int i = 1; i < 6; ++i)
        CO_EXPECT_INT(times[i], 6);
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, co_dataset_auto_shard(ctx, dataset, 6, 0))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "there are 5 files, fewer than the 6 workers");
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, co_dataset_auto_shard(ctx, dataset, 6, 5))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "there are 5 files");
}

CO_TEST(flat_map_that_opens_files_is_a_reader, "DS-SHARD-17 DS-SHARD-3 DS-SHARD-5")
{
    co_flat_map_options options = CO_FLAT_MAP_OPTIONS_INIT;
    co_dataset         *names = co_dataset_range(ctx, 1, 6, 1), *plain, *reader, *mixed;
    char                text[DATA_TEXT];

    plain = co_dataset_flat_map_with(ctx, names, thrice, NULL, NULL, &options);
    plain = co_dataset_with_autoshard(ctx, plain, CO_AUTOSHARD_FILE);
    CO_EXPECT_NULL(co_dataset_auto_shard(ctx, plain, 2, 0));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "reads no files");
    options.opens_files = true;
    reader = co_dataset_flat_map_with(ctx, names, thrice, NULL, NULL, &options);
    reader = co_dataset_with_autoshard(ctx, reader, CO_AUTOSHARD_FILE);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, reader, 2, 0), 20, text),
                  "1 1 1 3 3 3 5 5 5");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, reader, 2, 1), 20, text),
                  "2 2 2 4 4 4");
    mixed = co_dataset_shuffle(ctx, names, 5, 1, false);
    mixed = co_dataset_flat_map_with(ctx, mixed, thrice, NULL, NULL, &options); /* AUTO */
    CO_EACH(ctx, x, co_iterate(ctx, co_dataset_auto_shard(ctx, mixed, 2, 1)))
        CO_EXPECT_INT(co_item_int(ctx, x) % 2, 0);
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, co_dataset_auto_shard(ctx, reader, 6, 0))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "there are 5 files, fewer than the 6 workers");
    CO_EXPECT_STR(data_elements(ctx, reader, 20, text), "1 1 1 2 2 2 3 3 3 4 4 4 5 5 5");
    CO_EXPECT_NULL(co_dataset_flat_map_with(ctx, names, thrice, NULL, NULL,
                                            &(co_flat_map_options){ .struct_size = 1 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
}

/* All branches, also the one that is read last (AMB-9). */
CO_TEST(every_branch_needs_a_file_for_every_worker, "DS-SHARD-15 AMB-9")
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_dataset           *both[2], *one;

    options.opens_files = true;
    both[0] = co_dataset_interleave(ctx, co_dataset_range(ctx, 1, 6, 1), thrice, NULL, NULL,
                                    &options);
    both[1] = co_dataset_interleave(ctx, co_dataset_range(ctx, 1, 2, 1), thrice, NULL, NULL,
                                    &options);
    for (int w = 0; w < 2; ++w) {
        one = co_dataset_auto_shard(ctx, co_dataset_concatenate(ctx, both[0], both[1]), 2, w);
        CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, one)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                        "there is 1 file, fewer than the 2 workers that share them; use the policy "
                        "CO_AUTOSHARD_REPLICA or");
        one = co_dataset_auto_shard(ctx, co_dataset_zip(ctx, both, 2), 2, w);
        CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, one)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "there is 1 file");
    }
}

/* --- unbatch --- */

CO_TEST(unbatch_gives_rows, "")
{
    char        text[DATA_TEXT];
    co_dataset *rows = co_dataset_unbatch(ctx, data_pipeline(ctx, "range(5).batch(2)"));
    co_dataset *pairs = co_dataset_unbatch(ctx,
                                           data_pipeline(ctx, "range(3).enumerate(7).batch(2)"));

    CO_EXPECT_STR(data_elements(ctx, rows, 9, text), "0 1 2 3 4");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, rows), text), "int64[]");
    CO_EXPECT_INT(co_cardinality(ctx, rows), CO_UNKNOWN_CARDINALITY);
    CO_EXPECT_INT(co_dataset_batch_size(ctx, rows), CO_UNKNOWN_BATCH_SIZE);
    CO_EXPECT_STR(data_elements(ctx, pairs, 9, text), "(7,0) (8,1) (9,2)");
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_unbatch(
                                    ctx, data_pipeline(ctx, "range(4).batch(3).rebatch(1,0,2)")),
                                9, text),
                  "0 1 2 3"); /* an element without rows is passed over */
    CO_EXPECT_INT(co_cardinality(
                      ctx, co_dataset_unbatch(ctx, data_pipeline(ctx, "range(4).batch(3).repeat"))),
                  CO_INFINITE);
    CO_EXPECT_NULL(co_dataset_unbatch(ctx, co_dataset_range(ctx, 0, 3, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batch the dataset first");
    CO_EXPECT_NULL(co_dataset_unbatch(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_INT(
        co_cardinality(ctx, co_dataset_unbatch(ctx, data_pipeline(ctx, "range(7).batch_drop(3)"))),
        6);
}

/* What a spec does not know is 0 in a piece without rows, whatever the element was cut from. */
CO_TEST(pieces_of_size_0_are_of_no_element, "DS-SPLIT-9")
{
    co_dataset  *squares = data_pipeline(ctx, "range(6).batch(3).batch(2)");
    co_dataset  *known = data_pipeline(ctx, "range(6).batch_drop(3).batch(2)");
    co_iterator *it = co_iterate(ctx, co_dataset_rebatch(ctx, squares, (int64_t[]){ 1, 0 }, 2, 0));
    co_value    *piece;

    CO_EXPECT_INT(co_value_dim(ctx, co_next(ctx, it), 1), 3);
    piece = co_next(ctx, it);
    CO_EXPECT_INT(co_value_dim(ctx, piece, 0), 0);
    CO_EXPECT_INT(co_value_dim(ctx, piece, 1), 0);
    it = co_iterate(ctx, co_dataset_rebatch(ctx, known, (int64_t[]){ 0, 1 }, 2, 0));
    CO_EXPECT_INT(co_value_dim(ctx, co_next(ctx, it), 1), 3);
    CO_EXPECT_OK(ctx);
}

CO_TEST(rows_of_components_agree, "")
{
    co_value   *two[2] = { co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)),
                           co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3)) };
    co_dataset *uneven = co_dataset_from_tensors(ctx, co_tuple(ctx, two, 2));
    co_dataset *batches[2] = { data_pipeline(ctx, "range(5).batch(2)"),
                               data_pipeline(ctx, "range(5).batch(3)") };
    co_dataset *unknown = co_dataset_zip(ctx, batches, 2);

    CO_EXPECT_NULL(co_dataset_unbatch(ctx, uneven));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "component 1 of the elements has 3 rows, one before it 2");
    co_next(ctx, co_iterate(ctx, co_dataset_unbatch(ctx, unknown)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "unbatch of element 0: component 1 of an element has 3 rows");
}

/* As TensorFlow, which asks the spec for rows only to tell whether pieces of one size leave a
 * rest. */
CO_TEST(rebatch_refuses_components_that_differ_when_it_comes_to_them, "")
{
    static const struct {
        int64_t sizes[2];
        size_t  num_sizes;
        bool    drop_remainder, at_once;
    } rows[] = {
        { { 2 }, 1, false, true },     { { 2, 2 }, 2, false, true },  { { 2 }, 1, true, false },
        { { 2, 2 }, 2, true, false },  { { 1, 2 }, 2, false, false }, { { 1, 2 }, 2, true, false },
        { { 0, 2 }, 2, false, false },
    };
    co_value   *two[2] = { co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)),
                           co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3)) };
    co_dataset *uneven = co_dataset_from_tensors(ctx, co_tuple(ctx, two, 2));
    co_dataset *none = co_dataset_take(ctx, uneven, 0);
    char        text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_dataset *made = co_dataset_rebatch(ctx, uneven, rows[i].sizes, rows[i].num_sizes,
                                              rows[i].drop_remainder);

        if (rows[i].at_once) {
            CO_EXPECT_NULL(made);
            CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "component 1 of the elements has 3 rows");
            continue;
        }
        CO_EXPECT_OK(ctx);
        CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, made)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "component 1 of an element has 3 rows");
        made = co_dataset_rebatch(ctx, none, rows[i].sizes, rows[i].num_sizes,
                                  rows[i].drop_remainder);
        CO_EXPECT_STR(data_elements(ctx, made, 9, text), "");
        CO_EXPECT_OK(ctx);
    }
}

/* --- padded_batch --- */

static co_value *
x_times_x(co_context *ctx, co_value *x, void *user)
{
    int64_t n = co_item_int(ctx, x);

    (void)user;
    return co_fill(ctx, (int64_t[]){ n, 2 }, 2, x);
}

static co_value *
words(co_context *ctx, co_value *x, void *user)
{
    static const char *const all[] = { "a", "bb", "ccc" };
    int64_t                  n = co_item_int(ctx, x);

    (void)user;
    return co_tensor(ctx, CO_STRING, &n, 1, all);
}

static co_dataset *
padded(co_context *ctx, co_dataset *input, int64_t size, co_value *shapes, co_value *values,
       bool drop_remainder)
{
    co_padded_batch_options options = CO_PADDED_BATCH_OPTIONS_INIT;

    options.shapes = shapes;
    options.values = values;
    options.drop_remainder = drop_remainder;
    return co_dataset_padded_batch(ctx, input, size, &options);
}

CO_TEST(padded_batches_fill_up_to_a_common_shape, "")
{
    co_value   *any2 = co_spec(ctx, CO_INT64, (int64_t[]){ -1, 2 }, 2);
    co_value   *to3 = co_spec(ctx, CO_INT64, (int64_t[]){ 3, -1 }, 2);
    co_value   *to1 = co_spec(ctx, CO_INT64, (int64_t[]){ 1, 2 }, 2);
    co_value   *text1 = co_spec(ctx, CO_STRING, (int64_t[]){ -1 }, 1);
    co_dataset *range = co_dataset_range(ctx, 0, 3, 1);
    co_dataset *squares = co_dataset_map(ctx, range, x_times_x, NULL, any2);
    co_dataset *strings = co_dataset_map(ctx, range, words, NULL, text1);
    co_dataset *all = padded(ctx, squares, 3, NULL, NULL, false);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, all, 9, text), "[[[0,0],[0,0]],[[1,1],[0,0]],[[2,2],[2,2]]]");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, all), text), "int64[-1,-1,2]");
    CO_EXPECT_INT(co_dataset_batch_size(ctx, all), 3);
    CO_EXPECT_INT(co_cardinality(ctx, all), 1);
    all = padded(ctx, squares, 2, to3, co_int(ctx, 7), true);
    CO_EXPECT_STR(data_elements(ctx, all, 9, text), "[[[7,7],[7,7],[7,7]],[[1,1],[7,7],[7,7]]]");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, all), text), "int64[2,3,-1]");
    CO_EXPECT_INT(co_cardinality(ctx, all), 1);
    CO_EXPECT_STR(data_elements(ctx, padded(ctx, strings, 3, NULL, NULL, false), 9, text),
                  "[['',''],['a',''],['a','bb']]");
    CO_EXPECT_STR(data_elements(ctx, padded(ctx, strings, 3, NULL, co_string(ctx, "-"), false), 9,
                                text),
                  "[['-','-'],['a','-'],['a','bb']]");
    CO_EXPECT_STR(data_elements(ctx, padded(ctx, range, 2, NULL, NULL, false), 9, text),
                  "[0,1] [2]");
    CO_EXPECT_STR(
        data_elements(
            ctx,
            padded(ctx, data_pipeline(ctx, "range(3).batch(2).enumerate"), 2, NULL,
                   co_tuple(ctx, (co_value *const[]){ co_int(ctx, 5), co_int(ctx, 6) }, 2), false),
            9, text),
        "([0,1],[[0,1],[2,6]])");
    CO_EXPECT_OK(ctx);
    co_next(ctx, co_iterate(ctx, padded(ctx, squares, 3, to1, NULL, false)));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "more than the padded shape, 1");
}

CO_TEST(padded_batches_refuse_what_does_not_fit, "")
{
    co_dataset *batches = data_pipeline(ctx, "range(3).batch(2)");
    co_value   *scalar = co_spec(ctx, CO_INT64, NULL, 0);
    co_value   *floats = co_spec(ctx, CO_FLOAT32, (int64_t[]){ -1 }, 1);
    co_value   *any = co_spec(ctx, CO_INT64, NULL, -1);
    co_dataset *mapped = co_dataset_map(ctx, batches, data_double, NULL, any);
    co_value   *flat = co_spec(ctx, CO_INT64, (int64_t[]){ -1, -1 }, 2);

    CO_EXPECT_NULL(padded(ctx, NULL, 2, NULL, NULL, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(padded(ctx, batches, 2, NULL, co_float(ctx, 1.5), false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "a host float does not convert to int64");
    CO_EXPECT_NULL(padded(ctx, batches, 2, NULL, co_string(ctx, "-"), false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "a host string does not convert to int64");
    CO_EXPECT_NULL(padded(ctx, batches, 0, NULL, NULL, false));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (size) is 0");
    CO_EXPECT_NULL(padded(ctx, batches, 2, co_int(ctx, 1), NULL, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "spec");
    CO_EXPECT_NULL(padded(ctx, batches, 2, co_list(ctx, &scalar, 1), NULL, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_NULL(padded(ctx, batches, 2, scalar, NULL, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                    "component 0 cannot be padded: its elements have rank 1, and its shape 0");
    CO_EXPECT_NULL(padded(ctx, batches, 2, floats, NULL, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "component 0 cannot be padded: it is int64, and its shape is one of float32");
    CO_EXPECT_NULL(padded(ctx, mapped, 2, NULL, NULL, false));
    CO_EXPECT_ERROR(
        ctx, CO_VALUE_ERROR,
        "component 0 cannot be padded: the rank of its elements is unknown; give shapes "
        "(options)");
    CO_EXPECT_NULL(padded(ctx, batches, 2, NULL, co_scalar_float(ctx, 1), false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "it must be a scalar of int64");
    CO_EXPECT_NULL(padded(ctx, batches, 2, NULL, co_list(ctx, NULL, 0), false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, padded(ctx, mapped, 2, flat, NULL, false))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "has rank 1; the padded shape has 2");
}

/* --- unique --- */

CO_TEST(unique_gives_every_element_once, "")
{
    static const char *const names[] = { "a", "b", "a", "", "ab", "b", "" };
    co_value                *texts = co_tensor(ctx, CO_STRING, CO_SHAPE(7), names);
    char                     text[DATA_TEXT];
    co_dataset *many = co_dataset_unique(ctx, data_pipeline(ctx, "range(300).repeat(3)"));
    int         count = 0;

    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_unique(ctx, co_dataset_from_tensor_slices(ctx, texts)),
                                9, text),
                  "'a' 'b' '' 'ab'");
    CO_EXPECT_STR(
        data_elements(ctx,
                      co_dataset_unique(ctx, data_pipeline(ctx, "range(5).repeat(2).batch(5)")), 9,
                      text),
        "[0,1,2,3,4]");
    CO_EXPECT_STR(
        data_elements(ctx,
                      co_dataset_unique(ctx, data_pipeline(ctx, "range(3).batch(2).enumerate")), 9,
                      text),
        "(0,[0,1]) (1,[2])");
    CO_EACH(ctx, x, co_iterate(ctx, many))
        CO_EXPECT_INT(co_item_int(ctx, x), count++);
    CO_EXPECT_INT(count, 300);
    CO_EXPECT_INT(co_cardinality(ctx, many), CO_UNKNOWN_CARDINALITY);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_dataset_unique(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
}

/* --- generators, parts of pipelines, promises --- */

static co_value *
three_squares(co_context *ctx, int64_t index, void *user)
{
    ++*(int *)user;
    if (index == 1 && *(int *)user == 2)
        co_fail(ctx, CO_UNAVAILABLE, "not now");
    return index < 3 ? co_scalar_int64(ctx, index * index) : NULL;
}

CO_TEST(a_generator_is_asked_until_it_gives_nothing, "")
{
    int          calls = 0;
    co_value    *spec = co_spec(ctx, CO_INT64, NULL, 0);
    co_dataset  *dataset = co_dataset_from_generator(ctx, three_squares, &calls, spec);
    co_iterator *iterator = co_iterate(ctx, dataset);
    char         text[DATA_TEXT];

    CO_EXPECT_INT(co_cardinality(ctx, dataset), CO_UNKNOWN_CARDINALITY);
    CO_EXPECT_INT(calls, 0);
    CO_EXPECT_NOT_NULL(co_next(ctx, iterator));
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "from_generator of element 1: not now");
    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), "4");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_INT(calls, 4);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_batch(ctx, dataset, 2, false), 9, text),
                  "[0,1] [4]");
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_dataset_auto_shard(
        ctx, co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_FILE), 2, 0));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "from_generator reads no files");
    CO_EXPECT_NULL(co_dataset_from_generator(ctx, NULL, NULL, spec));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 2 (fn)");
    CO_EXPECT_NULL(co_dataset_from_generator(ctx, three_squares, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "spec");
}

static co_dataset *
in_pairs(co_context *ctx, co_dataset *input, void *user)
{
    if (user != NULL)
        co_fail(ctx, CO_ABORTED, "no pairs");
    return co_dataset_batch(ctx, input, 2, true);
}

static co_dataset *
forget(co_context *ctx, co_dataset *input, void *user)
{
    (void)ctx, (void)input, (void)user;
    return NULL;
}

CO_TEST(apply_calls_its_function_at_once, "")
{
    co_dataset *range = co_dataset_range(ctx, 0, 5, 1);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, co_dataset_apply(ctx, range, in_pairs, NULL), 9, text),
                  "[0,1] [2,3]");
    CO_EXPECT_NULL(co_dataset_apply(ctx, range, in_pairs, text));
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "no pairs");
    CO_EXPECT_NULL(co_dataset_apply(ctx, range, forget, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "returned NULL");
    CO_EXPECT_NULL(co_dataset_apply(ctx, range, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn)");
    CO_EXPECT_NULL(co_dataset_apply(ctx, NULL, in_pairs, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
}

CO_TEST(a_promised_cardinality_is_kept_or_an_error, "")
{
    co_dataset  *evens = data_pipeline(ctx, "range(4).even");
    co_dataset  *two = co_dataset_assert_cardinality(ctx, evens, 2);
    co_iterator *one = co_iterate(ctx, co_dataset_assert_cardinality(ctx, evens, 1));
    char         text[DATA_TEXT];

    CO_EXPECT_INT(co_cardinality(ctx, two), 2);
    CO_EXPECT_STR(data_elements(ctx, two, 9, text), "0 2");
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_assert_cardinality(ctx, evens, CO_UNKNOWN_CARDINALITY),
                                9, text),
                  "0 2");
    CO_EXPECT_OK(ctx);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_assert_cardinality(ctx, evens, 3), 9, text), "0 2");
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "only 2 elements, 3 were promised");
    CO_EXPECT_STR(data_rest(ctx, one, 9, text), "0");
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "at least 2 elements, 1 were promised");
    CO_EXPECT_NULL(co_next(ctx, one)); /* it was said */
    CO_EXPECT_OK(ctx);
    data_elements(ctx, co_dataset_assert_cardinality(ctx, evens, CO_INFINITE), 9, text);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "only 2 elements, an endless number was promised");
    CO_EXPECT_NULL(co_dataset_assert_cardinality(ctx, evens, -3));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (cardinality) is -3");
    CO_EXPECT_NULL(co_dataset_assert_cardinality(ctx, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
}

/* --- memory --- */

static bool
run_all(co_context *ctx)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_value             *any2 = co_spec(ctx, CO_INT64, (int64_t[]){ -1, 2 }, 2);
    co_value             *text1 = co_spec(ctx, CO_STRING, (int64_t[]){ -1 }, 1);
    co_dataset           *range = co_dataset_range(ctx, 0, 3, 1);
    co_dataset           *hint = co_dataset_shard(ctx, range, CO_SHARD_HINT, 0), *all[6];
    int                   calls = 5, count = 0;

    options.opens_files = true;
    all[0] = padded(ctx, co_dataset_map(ctx, hint, x_times_x, NULL, any2), 2, NULL, co_int(ctx, 1),
                    false);
    all[0] = co_dataset_auto_shard(ctx, co_dataset_with_autoshard(ctx, all[0], CO_AUTOSHARD_HINT),
                                   1, 0);
    all[1] = padded(ctx, co_dataset_map(ctx, range, words, NULL, text1), 3, NULL, NULL, false);
    all[2] = co_dataset_interleave(ctx, range, thrice, NULL, NULL, &options);
    all[2] = co_dataset_auto_shard(ctx, all[2], 2, 0);
    all[3] = co_dataset_unique(ctx,
                               co_dataset_unbatch(ctx, data_pipeline(ctx, "range(20).batch(7)")));
    all[4] = co_dataset_from_generator(ctx, three_squares, &calls, co_spec(ctx, CO_INT64, NULL, 0));
    all[5] = co_dataset_assert_cardinality(ctx, co_dataset_apply(ctx, range, in_pairs, NULL), 1);
    for (int i = 0; i < 6 && co_ok(ctx); ++i)
        CO_EACH(ctx, x, co_iterate(ctx, all[i]))
            ++count;
    return co_ok(ctx) && count == 2 + 1 + 6 + 20 + 3 + 1;
}

CO_TEST_BARE(inner_stages_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, run_all);
}

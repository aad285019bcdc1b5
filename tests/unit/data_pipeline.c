/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and transformations: elements, specs, cardinalities, errors, sharing of memory.
 * Distribution is in data_worker.c and data_distribute.c.
 */
#include "data_support.h"

/* --- elements, cardinality and spec of pipelines over range --- */

static const struct {
    const char *pipeline, *elements, *spec;
    int64_t     cardinality;
} pipelines[] = {
    { "range(0)", "", "int64[]", 0 },
    { "range(3)", "0 1 2", "int64[]", 3 },
    { "range(2,7)", "2 3 4 5 6", "int64[]", 5 },
    { "range(0,10,3)", "0 3 6 9", "int64[]", 4 },
    { "range(5,2)", "", "int64[]", 0 },
    { "range(7,0,-3)", "7 4 1", "int64[]", 3 },
    { "range(0).batch(2)", "", "int64[-1]", 0 },
    { "range(7).batch(3)", "[0,1,2] [3,4,5] [6]", "int64[-1]", 3 },
    { "range(7).batch_drop(3)", "[0,1,2] [3,4,5]", "int64[3]", 2 },
    { "range(2).batch_drop(3)", "", "int64[3]", 0 },
    { "range(6).batch(3)", "[0,1,2] [3,4,5]", "int64[-1]", 2 },
    { "range(8).batch(2).batch(2)", "[[0,1],[2,3]] [[4,5],[6,7]]", "int64[-1,-1]", 2 },
    { "range(8).batch_drop(2).batch(3)", "[[0,1],[2,3],[4,5]] [[6,7]]", "int64[-1,2]", 2 },
    { "range(3).repeat(2)", "0 1 2 0 1 2", "int64[]", 6 },
    { "range(3).repeat(0)", "", "int64[]", 0 },
    { "range(3).repeat(-2)", "0 1 2 0 1 2 0 1 2 0 1 2 ...", "int64[]", CO_INFINITE },
    { "range(0).repeat", "", "int64[]", 0 },
    { "range(0).repeat(4)", "", "int64[]", 0 },
    { "range(3).batch(2).repeat(2)", "[0,1] [2] [0,1] [2]", "int64[-1]", 4 },
    { "range(5).repeat(2).batch(3)", "[0,1,2] [3,4,0] [1,2,3] [4]", "int64[-1]", 4 },
    { "range(2).repeat(7).batch(5)", "[0,1,0,1,0] [1,0,1,0,1] [0,1,0,1]", "int64[-1]", 3 },
    { "range(5).take(3)", "0 1 2", "int64[]", 3 },
    { "range(5).take(0)", "", "int64[]", 0 },
    { "range(5).take(-1)", "0 1 2 3 4", "int64[]", 5 },
    { "range(5).take(9)", "0 1 2 3 4", "int64[]", 5 },
    { "range(3).repeat.take(7)", "0 1 2 0 1 2 0", "int64[]", 7 },
    { "range(9).take(7).batch(4)", "[0,1,2,3] [4,5,6]", "int64[-1]", 2 },
    { "range(3).repeat.take(7).batch(4)", "[0,1,2,0] [1,2,0]", "int64[-1]", 2 },
    { "range(5).shard(2,0)", "0 2 4", "int64[]", 3 },
    { "range(5).shard(2,1)", "1 3", "int64[]", 2 },
    { "range(5).shard(7,6)", "", "int64[]", 0 },
    { "range(10).shard(5,4).repeat(2)", "4 9 4 9", "int64[]", 4 },
    { "range(10).batch(2).shard(2,1)", "[2,3] [6,7]", "int64[-1]", 2 },
    { "range(6).repeat(2).shard(4,1)", "1 5 3", "int64[]", 3 },
    { "range(3).repeat.shard(2,1)", "1 0 2 1 0 2 1 0 2 1 0 2 ...", "int64[]", CO_INFINITE },
    { "range(10).batch(4).rebatch(3)", "[0,1,2] [3,4,5] [6,7,8] [9]", "int64[-1]",
      CO_UNKNOWN_CARDINALITY },
    { "range(10).batch(4).rebatch_drop(3)", "[0,1,2] [3,4,5] [6,7,8]", "int64[3]",
      CO_UNKNOWN_CARDINALITY },
    { "range(6).batch(2).rebatch(4)", "[0,1,2,3] [4,5]", "int64[-1]", CO_UNKNOWN_CARDINALITY },
    { "range(8).batch_drop(4).rebatch(2)", "[0,1] [2,3] [4,5] [6,7]", "int64[2]",
      CO_UNKNOWN_CARDINALITY }, /* batches of 4 leave no rest */
    { "range(8).batch_drop(4).rebatch(3)", "[0,1,2] [3,4,5] [6,7]", "int64[-1]",
      CO_UNKNOWN_CARDINALITY },
    { "range(2).repeat.batch(2).rebatch(4).take(1)", "[0,1,0,1]", "int64[-1]",
      CO_UNKNOWN_CARDINALITY },
    { "range(9).even.take(0)", "", "int64[]", CO_UNKNOWN_CARDINALITY },
    { "range(9).even.skip(-1)", "", "int64[]", CO_UNKNOWN_CARDINALITY },
    { "range(3).repeat.skip(-1)", "", "int64[]", 0 },
    { "range(9).batch(3).rebatch_drop(3,2)", "[0,1,2] [3,4] [5,6,7]", "int64[-1]",
      CO_UNKNOWN_CARDINALITY },
    { "range(4).batch(3).rebatch(1,0,2)", "[0] [] [1,2] [3]", "int64[-1]", CO_UNKNOWN_CARDINALITY },
    { "range(4).batch(4).DATA", "[0,1,2,3]", "int64[-1]", 1 },
};

CO_TEST(pipelines_give_their_elements_spec_and_cardinality, "")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(pipelines) / sizeof(pipelines[0]); ++i)
        CO_BLOCK(ctx) {
            co_dataset *dataset = data_pipeline(ctx, pipelines[i].pipeline);

            CO_EXPECT_STR(data_elements(ctx, dataset, 12, text), pipelines[i].elements);
            CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), pipelines[i].spec);
            CO_EXPECT_INT(co_cardinality(ctx, dataset), pipelines[i].cardinality);
            if (!CO_EXPECT_OK(ctx))
                test_fail(TEST_AT, "at %s", pipelines[i].pipeline);
        }
}

CO_TEST(iterators_are_independent_and_end_again_and_again, "DS-ITER-2 DS-ITER-7")
{
    co_dataset  *dataset = data_pipeline(ctx, "range(4).batch(3)");
    co_iterator *a = co_iterate(ctx, dataset), *b = co_iterate(ctx, dataset);
    char         text[DATA_TEXT];

    CO_EXPECT_INT(co_iterator_step_examples(ctx, a), -1);
    CO_EXPECT_STR(data_text(ctx, co_next(ctx, a), text), "[0,1,2]");
    CO_EXPECT_INT(co_iterator_step_examples(ctx, a), 3);
    CO_EXPECT_STR(data_rest(ctx, b, 9, text), "[0,1,2] [3]");
    CO_EXPECT_STR(data_text(ctx, co_next(ctx, a), text), "[3]");
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_NULL(co_next(ctx, a));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_get_next(ctx, a));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
    CO_EXPECT_STR(data_text(ctx, co_iterator_element_spec(ctx, a), text), "int64[-1]");
    CO_EXPECT_INT(co_iterator_dropped_rows(ctx, a), 0);
}

CO_TEST(optionals_are_empty_past_the_end, "DS-ITER-3 DS-ITER-5")
{
    co_iterator *iterator = co_iterate(ctx, data_pipeline(ctx, "range(1)"));
    co_value    *full = co_get_next_as_optional(ctx, iterator);
    co_value    *empty = co_get_next_as_optional(ctx, iterator);

    CO_EXPECT_TRUE(co_optional_has_value(ctx, full));
    CO_EXPECT_INT(co_item_int(ctx, co_optional_get_value(ctx, full)), 0);
    CO_EXPECT_FALSE(co_optional_has_value(ctx, empty));
    CO_EXPECT_NULL(co_optional_get_value(ctx, empty));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "empty");
    CO_EXPECT_FALSE(co_optional_has_value(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "optional");
}

/* --- tensors --- */

static co_value *
numbers(co_context *ctx, int64_t rows, int64_t columns, float first)
{
    int64_t   dims[2] = { rows, columns };
    float    *data = calloc((size_t)(rows * columns) + 1, sizeof(*data));
    co_value *tensor;

    for (int64_t i = 0; i < rows * columns; ++i)
        data[i] = first + (float)i;
    tensor = co_tensor(ctx, CO_FLOAT32, dims, 2, data);
    free(data);
    return tensor;
}

CO_TEST(structures_are_sliced_and_batched_leaf_by_leaf, "")
{
    const char *keys[] = { "y", "x" };
    co_value   *labels = co_tensor(ctx, CO_INT32, CO_SHAPE(5), (int32_t[]){ 9, 8, 7, 6, 5 });
    co_value   *map = co_dict(ctx, keys, (co_value *[]){ labels, numbers(ctx, 5, 2, 0) }, 2);
    co_dataset *slices = co_dataset_from_tensor_slices(ctx, map);
    co_dataset *batches = co_dataset_batch(ctx, slices, 4, true);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, slices), text), "(x:float32[2],y:int32[])");
    CO_EXPECT_STR(data_elements(ctx, slices, 2, text), "(x:[0,1],y:9) (x:[2,3],y:8) ...");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, batches), text),
                  "(x:float32[4,2],y:int32[4])");
    CO_EXPECT_STR(data_elements(ctx, batches, 9, text),
                  "(x:[[0,1],[2,3],[4,5],[6,7]],y:[9,8,7,6])");
    CO_EXPECT_INT(co_cardinality(ctx, slices), 5);
    CO_EXPECT_INT(co_dataset_batch_size(ctx, slices), CO_UNKNOWN_BATCH_SIZE);
    CO_EXPECT_INT(co_dataset_batch_size(ctx, batches), 4);
}

CO_TEST(slices_and_their_batches_share_the_memory_of_the_source, "")
{
    co_value    *source = numbers(ctx, 100, 16, 0);
    co_dataset  *slices = co_dataset_from_tensor_slices(ctx, source);
    co_iterator *one = co_iterate(ctx, slices);
    co_iterator *many = co_iterate(ctx, co_dataset_batch(ctx, co_dataset_take(ctx, slices, 90), 32,
                                                         false));
    const float *data = co_value_data(ctx, source);

    co_next(ctx, one);
    CO_EXPECT_PTR(co_value_data(ctx, co_next(ctx, one)), data + 16);
    CO_EXPECT_PTR(co_value_data(ctx, co_next(ctx, many)), data);
    CO_EXPECT_PTR(co_value_data(ctx, co_next(ctx, many)), data + 32 * 16);
    CO_EXPECT_PTR(co_value_data(ctx, co_next(ctx, many)), data + 64 * 16);
    CO_EXPECT_NULL(co_next(ctx, many));
}

CO_TEST(a_batch_over_the_seam_of_a_repeat_is_joined, "")
{
    co_dataset *slices = co_dataset_from_tensor_slices(ctx, numbers(ctx, 3, 1, 1));
    co_dataset *batches = co_dataset_batch(ctx, co_dataset_repeat(ctx, slices, 2), 4, false);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, batches, 9, text), "[[1],[2],[3],[1]] [[2],[3]]");
}

CO_TEST(strings_are_sliced_and_batched, "")
{
    const char *words[] = { "a", "", "ccc" };
    co_value   *tensor = co_tensor(ctx, CO_STRING, CO_SHAPE(3), words);
    co_dataset *slices = co_dataset_from_tensor_slices(ctx, tensor);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, slices, 9, text), "'a' '' 'ccc'");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_batch(ctx, slices, 2, false), 9, text),
                  "['a',''] ['ccc']");
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_batch(ctx, co_dataset_repeat(ctx, slices, 2), 4, false),
                                9, text),
                  "['a','','ccc','a'] ['','ccc']");
}

CO_TEST(lists_become_one_tensor, "NP-2")
{
    co_value *a = co_tensor(ctx, CO_INT64, CO_SHAPE(3), (int64_t[]){ 0, 1, 2 });
    co_value *b = co_tensor(ctx, CO_INT64, CO_SHAPE(3), (int64_t[]){ 0, 10, 20 });
    co_value *arrays = co_list(ctx, (co_value *[]){ a, b }, 2);
    co_value *mixed = co_list(ctx, (co_value *[]){ co_int(ctx, 1), co_float(ctx, 2.5) }, 2);
    co_value *words = co_list(ctx, (co_value *[]){ co_string(ctx, "x"), co_string(ctx, "yy") }, 2);
    co_value *wrong = co_list(ctx, (co_value *[]){ a, co_scalar_int64(ctx, 1) }, 2);
    char      text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, co_dataset_from_tensor_slices(ctx, arrays), 9, text),
                  "[0,1,2] [0,10,20]");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_from_tensor_slices(ctx, mixed), 9, text), "1 2.5");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_from_tensor_slices(ctx, words), 9, text),
                  "'x' 'yy'");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_from_tensors(ctx, arrays), 9, text),
                  "[[0,1,2],[0,10,20]]");
    CO_EXPECT_NULL(co_dataset_from_tensor_slices(ctx, wrong));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int64 []");
}

CO_TEST(from_tensors_gives_the_structure_once, "")
{
    co_value   *pair = co_args(ctx, numbers(ctx, 2, 2, 0), co_float(ctx, 0.5));
    co_dataset *dataset = co_dataset_from_tensors(ctx, pair);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, dataset, 9, text), "([[0,1],[2,3]],0.5)");
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_batch(ctx, co_dataset_repeat(ctx, dataset, 3), 2, false),
                                9, text),
                  "([[[0,1],[2,3]],[[0,1],[2,3]]],[0.5,0.5]) ([[[0,1],[2,3]]],[0.5])");
    CO_EXPECT_INT(co_cardinality(ctx, dataset), 1);
}

CO_TEST(a_leaf_with_no_rows_gives_no_elements, "NP-3")
{
    co_dataset *dataset = co_dataset_from_tensor_slices(ctx, numbers(ctx, 0, 2, 0));
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, dataset, 9, text), "");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_batch(ctx, dataset, 3, false), 9, text), "");
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), "float32[2]");
}

/* --- lifetimes --- */

CO_TEST(iterators_keep_what_they_read, "")
{
    co_iterator *iterator = NULL;
    char         text[DATA_TEXT];

    CO_BLOCK(ctx) {
        co_dataset *slices = co_dataset_from_tensor_slices(ctx, numbers(ctx, 4, 1, 0));

        iterator = co_iterate(ctx, co_dataset_batch(ctx, slices, 2, false));
        co_keep(ctx, iterator);
    }
    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), "[[0],[1]] [[2],[3]]");
    co_release(ctx, iterator);
}

CO_TEST(steady_state_takes_nothing_from_the_allocator, "")
{
    co_dataset  *slices = co_dataset_from_tensor_slices(ctx, numbers(ctx, 64, 33, 0));
    co_iterator *views = co_iterate(ctx, co_dataset_batch(ctx, co_dataset_repeat(ctx, slices, -1),
                                                          16, false));
    co_iterator *joins = co_iterate(ctx, co_dataset_batch(ctx, co_dataset_repeat(ctx, slices, -1),
                                                          48, false));
    co_iterator *counts = co_iterate(ctx, data_pipeline(ctx, "range(1000).repeat.batch(300)"));
    co_memory_stats before = { .struct_size = sizeof(before) }, after = before;

    for (int i = 0; i < 4000; ++i) {
        if (i == 3000)
            co_get_memory_stats(ctx, &before);
        CO_BLOCK(ctx) {
            co_next(ctx, views);
            co_next(ctx, joins);
            co_next(ctx, counts);
        }
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.bytes_in_use - before.bytes_in_use, 0);
    if (!DATA_ADDRESS_SANITIZER) /* where every cell is an allocation of its own */
        CO_EXPECT_INT(after.system_allocations - before.system_allocations, 0);
}

/* --- folds --- */

static co_value *
count_rows(co_context *ctx, co_value *args, void *user)
{
    int64_t rows = co_value_num_elements(ctx, co_at(ctx, args, 1));

    ++*(int *)user;
    return co_int(ctx, co_item_int(ctx, co_at(ctx, args, 0)) * 10 + rows);
}

static co_value *
fail_at_second(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (++*(int *)user == 2)
        co_fail(ctx, CO_ABORTED, "enough");
    return co_int(ctx, 0);
}

CO_TEST(reduce_folds_over_all_elements, "DS-ITER-9")
{
    co_dataset *dataset = data_pipeline(ctx, "range(7).batch(3)");
    int         calls = 0;

    CO_EXPECT_INT(
        co_item_int(ctx, co_dataset_reduce(ctx, dataset, co_int(ctx, 0), count_rows, &calls)), 331);
    CO_EXPECT_INT(calls, 3);
    CO_EXPECT_INT(co_item_int(ctx, co_dataset_reduce(ctx, data_pipeline(ctx, "range(0)"),
                                                     co_int(ctx, 5), count_rows, &calls)),
                  5);
    calls = 0;
    CO_EXPECT_NULL(co_dataset_reduce(ctx, dataset, co_int(ctx, 0), fail_at_second, &calls));
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "enough");
    CO_EXPECT_INT(calls, 2);
    CO_EXPECT_NULL(co_dataset_reduce(ctx, dataset, co_int(ctx, 0), NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
}

/* --- errors --- */

CO_TEST(a_pipeline_error_surfaces_and_iteration_goes_on, "DS-ITER-8")
{
    co_iterator *iterator = co_iterate(ctx,
                                       data_pipeline(ctx, "range(7).batch(2).batch(2).repeat(2)"));
    char         text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_next(ctx, iterator), text), "[[0,1],[2,3]]");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int64 [2], element 1 is int64 [1]");
    CO_EXPECT_STR(data_text(ctx, co_next(ctx, iterator), text), "[[0,1],[2,3]]");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "component 0");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_OK(ctx);
}

CO_TEST(wrong_numbers_are_named, "")
{
    co_dataset *range = co_dataset_range(ctx, 0, 4, 1);
    co_dataset *batches = co_dataset_batch(ctx, range, 2, false);

    CO_EXPECT_NULL(co_dataset_range(ctx, 0, 5, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 4 (step) is 0");
    CO_EXPECT_NULL(co_dataset_range(ctx, INT64_MIN, INT64_MAX, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "larger step");
    CO_EXPECT_INT(co_cardinality(ctx, co_dataset_range(ctx, INT64_MIN, INT64_MAX, INT64_MAX)), 3);
    CO_EXPECT_INT(co_cardinality(ctx, co_dataset_range(ctx, INT64_MAX, INT64_MIN, INT64_MIN)), 2);
    CO_EXPECT_NULL(co_dataset_batch(ctx, range, 0, false));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (size) is 0");
    CO_EXPECT_NULL(co_dataset_batch(ctx, range, -1, true));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "-1");
    CO_EXPECT_NULL(co_dataset_shard(ctx, range, 2, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 4 (index) is 2; with 2 shards it is 0 to 1");
    CO_EXPECT_NULL(co_dataset_shard(ctx, range, 0, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "num_shards");
    CO_EXPECT_NULL(co_dataset_rebatch(ctx, range, (int64_t[]){ 2 }, 1, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batch the dataset first");
    CO_EXPECT_NULL(co_dataset_rebatch(ctx, batches, (int64_t[]){ 2, -1 }, 2, false));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "-1 at 1");
    CO_EXPECT_NULL(co_dataset_rebatch(ctx, batches, (int64_t[]){ 0, 0 }, 2, false));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no size above 0");
    CO_EXPECT_NULL(co_dataset_rebatch(ctx, batches, NULL, 2, false));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "sizes");
    CO_EXPECT_NULL(co_dataset_with_autoshard(ctx, range, (co_autoshard)7));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "policy) is 7");
}

CO_TEST(wrong_structures_are_named, "NP-3")
{
    co_value *three = co_tensor(ctx, CO_INT64, CO_SHAPE(3), (int64_t[]){ 0, 1, 2 });
    co_value *four = co_tensor(ctx, CO_INT64, CO_SHAPE(4), (int64_t[]){ 0, 1, 2, 3 });

    CO_EXPECT_NULL(co_dataset_from_tensor_slices(ctx, co_args(ctx, three, four)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "component 1 has 4 slices, component 0 has 3");
    CO_EXPECT_NULL(co_dataset_from_tensor_slices(ctx, co_args(ctx, three, co_float(ctx, 1))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "component 1 is a scalar");
    CO_EXPECT_NULL(co_dataset_from_tensor_slices(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "component 0 is a scalar");
    CO_EXPECT_NULL(co_dataset_from_tensor_slices(ctx, co_no_args(ctx)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no leaves");
    CO_EXPECT_NULL(co_dataset_from_tensors(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (structure)");
    CO_EXPECT_NULL(co_dataset_from_tensors(ctx, co_args(ctx, three, co_none(ctx))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

CO_TEST(handles_that_are_no_datasets_are_refused, "DS-DIST-5")
{
    co_dataset  *wrong = (co_dataset *)(void *)co_int(ctx, 1);
    co_iterator *not_iterator = (co_iterator *)(void *)co_dataset_range(ctx, 0, 1, 1);

    CO_EXPECT_NULL(co_dataset_batch(ctx, NULL, 2, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (input) of dataset_batch is NULL");
    CO_EXPECT_NULL(co_dataset_batch(ctx, wrong, 2, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dataset");
    CO_EXPECT_NULL(co_dataset_repeat(ctx, NULL, 2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_take(ctx, wrong, 2));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_shard(ctx, wrong, 2, 0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_with_autoshard(ctx, NULL, CO_AUTOSHARD_OFF));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_rebatch(ctx, NULL, NULL, 0, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_INT(co_cardinality(ctx, wrong), CO_UNKNOWN_CARDINALITY);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dataset");
    CO_EXPECT_NULL(co_element_spec(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dataset");
    CO_EXPECT_INT(co_dataset_batch_size(ctx, NULL), CO_UNKNOWN_BATCH_SIZE);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dataset");
    CO_EXPECT_NULL(co_iterate(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dataset");
    CO_EXPECT_NULL(co_next(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
    CO_EXPECT_NULL(co_next(ctx, not_iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "iterator");
    CO_EXPECT_INT(co_iterator_step_examples(ctx, not_iterator), -1);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "iterator");
}

CO_TEST(endless_chains_are_refused, "")
{
    co_dataset *dataset = co_dataset_range(ctx, 0, 3, 1);
    int         steps = 0;

    while (dataset != NULL && steps < 100000) {
        dataset = co_dataset_take(ctx, dataset, -1);
        ++steps;
    }
    CO_EXPECT_LESS(steps, 2000);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "steps");
}

static bool
run_a_pipeline(co_context *ctx)
{
    co_value    *tensor = co_tensor(ctx, CO_INT64, CO_SHAPE(5), (int64_t[]){ 0, 1, 2, 3, 4 });
    co_value    *leaves[9];
    co_dataset  *dataset;
    co_iterator *iterator;
    int          count = 0;

    for (int i = 0; i < 9; ++i)
        leaves[i] = tensor;
    dataset = co_dataset_from_tensor_slices(ctx, co_tuple(ctx, leaves, 9));
    dataset = co_dataset_batch(ctx, co_dataset_repeat(ctx, dataset, 3), 4, false);
    dataset = co_dataset_rebatch(ctx, co_dataset_shard(ctx, dataset, 1, 0), (int64_t[]){ 2, 3 }, 2,
                                 false);
    iterator = co_iterate(ctx, co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_OFF));
    while (co_next(ctx, iterator) != NULL)
        ++count;
    return count == 6;
}

CO_TEST_BARE(no_memory_anywhere_in_a_pipeline_is_an_error, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, run_a_pipeline);
}

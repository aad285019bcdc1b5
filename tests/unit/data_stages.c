/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of a pipeline beyond batching: functions over elements, several inputs, what is kept.
 * Their elements, specs, cardinalities and batch sizes, how they are sharded, and what their errors
 * say.
 */
#include "data_support.h"

static const struct {
    const char *pipeline, *elements, *spec;
    int64_t     cardinality, batch_size;
} stages[] = {
    { "range(5).skip(3)", "3 4", "int64[]", 2, -1 },
    { "range(5).skip(0)", "0 1 2 3 4", "int64[]", 5, -1 },
    { "range(5).skip(9)", "", "int64[]", 0, -1 },
    { "range(5).skip(-1)", "", "int64[]", 0, -1 },
    { "range(3).repeat.skip(2).take(4)", "2 0 1 2", "int64[]", 4, -1 },
    { "range(3).repeat.skip(-1)", "", "int64[]", 0, -1 },
    { "range(9).skip(2).batch(3)", "[2,3,4] [5,6,7] [8]", "int64[-1]", 3, 3 },
    { "range(9).batch(3).skip(1)", "[3,4,5] [6,7,8]", "int64[-1]", 2, 3 },
    { "range(9).batch(3).skip(4).batch(2)", "", "int64[-1,-1]", 0, 2 },
    { "range(4).double", "0 2 4 6", "int64[]", 4, -1 },
    { "range(0).double", "", "int64[]", 0, -1 },
    { "range(5).batch(2).double", "[0,2] [4,6] [8]", "int64[-1]", 3, -1 },
    { "range(5).batch_drop(2).double", "[0,2] [4,6]", "int64[2]", 2, 2 },
    { "range(3).double.double.batch(2)", "[0,4] [8]", "int64[-1]", 2, 2 },
    { "range(7).even", "0 2 4 6", "int64[]", -2, -1 },
    { "range(1,2).even", "", "int64[]", -2, -1 },
    { "range(7).even.batch(3)", "[0,2,4] [6]", "int64[-1]", -2, 3 },
    { "range(3).repeat.even.take(3)", "0 2 0", "int64[]", -2, -1 },
    { "range(9).below5", "0 1 2 3 4", "int64[]", -2, -1 },
    { "range(6,9).below5", "", "int64[]", -2, -1 },
    { "range(3,7).below5.repeat(2)", "3 4 3 4", "int64[]", -2, -1 },
    { "range(3,6).enumerate(7)", "(7,3) (8,4) (9,5)", "(int64[],int64[])", 3, -1 },
    { "range(3,5).enumerate(-1)", "(-1,3) (0,4)", "(int64[],int64[])", 2, -1 },
    { "range(2).repeat.enumerate.take(3)", "(0,0) (1,1) (2,0)", "(int64[],int64[])", 3, -1 },
    { "range(4).batch(3).enumerate", "(0,[0,1,2]) (1,[3])", "(int64[],int64[-1])", 2, -1 },
    { "range(4).cache.repeat(2)", "0 1 2 3 0 1 2 3", "int64[]", 8, -1 },
    { "range(0).cache.repeat(2)", "", "int64[]", 0, -1 },
    { "range(5).batch(2).cache", "[0,1] [2,3] [4]", "int64[-1]", 3, 2 },
    { "range(5).batch(2).prefetch(2)", "[0,1] [2,3] [4]", "int64[-1]", 3, 2 },
    { "range(3).prefetch(-1).prefetch(0)", "0 1 2", "int64[]", 3, -1 },
};

CO_TEST(stages_give_their_elements_spec_cardinality_and_batch_size, "")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); ++i)
        CO_BLOCK(ctx) {
            co_dataset *dataset = data_pipeline(ctx, stages[i].pipeline);

            CO_EXPECT_INT(co_cardinality(ctx, dataset), stages[i].cardinality);
            CO_EXPECT_INT(co_dataset_batch_size(ctx, dataset), stages[i].batch_size);
            CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), stages[i].spec);
            for (int again = 0; again < 2; ++again)
                CO_EXPECT_STR(data_elements(ctx, dataset, 12, text), stages[i].elements);
            if (!CO_EXPECT_OK(ctx))
                test_fail(TEST_AT, "at %s", stages[i].pipeline);
        }
}

/* A shard whose gap has an element that fails goes on with its own elements. */
static co_value *
no_three(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    if (co_item_int(ctx, x) == 3)
        co_fail(ctx, CO_INTERNAL, "three");
    return x;
}

CO_TEST(an_element_that_fails_between_those_of_a_shard_is_one_of_them, "")
{
    co_dataset  *mapped = co_dataset_map(ctx, co_dataset_range(ctx, 0, 9, 1), no_three, NULL, NULL);
    co_iterator *iterator = co_iterate(ctx, co_dataset_shard(ctx, mapped, 3, 1));
    char         text[DATA_TEXT];

    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), "1");
    CO_EXPECT_ERROR(ctx, CO_INTERNAL, "three");
    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), "4 7");
    CO_EXPECT_OK(ctx);
}

CO_TEST(an_enumeration_does_not_end_before_its_input, "")
{
    co_dataset  *evens = data_pipeline(ctx, "range(6).even"); /* nobody knows how many */
    co_iterator *iterator = co_iterate(ctx, co_dataset_enumerate(ctx, evens, INT64_MAX - 2));
    char         text[DATA_TEXT];

    CO_EXPECT_NULL(co_dataset_enumerate(ctx, co_dataset_range(ctx, 0, 10, 1), INT64_MAX - 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 3 (start) is 9223372036854775805; with 10 elements it is at most "
                    "9223372036854775797");
    CO_EXPECT_STR(data_rest(ctx, iterator, 9, text),
                  "(9223372036854775805,0) (9223372036854775806,2)");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the largest number, 9223372036854775806");
    CO_EXPECT_NULL(co_next(ctx, iterator)); /* it was said */
    CO_EXPECT_OK(ctx);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_enumerate(ctx, evens, INT64_MAX - 3), 9, text),
                  "(9223372036854775804,0) (9223372036854775805,2) (9223372036854775806,4)");
    evens = co_dataset_range(ctx, 0, 2, 1);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_enumerate(ctx, evens, INT64_MAX - 2), 9, text),
                  "(9223372036854775805,0) (9223372036854775806,1)");
    CO_EXPECT_OK(ctx);
}

/* --- functions --- */

/* A tuple of the element as float32 and a host number. */
static co_value *
with_number(co_context *ctx, co_value *x, void *user)
{
    return co_tuple(ctx,
                    (co_value *const[]){ co_cast(ctx, x, CO_FLOAT32), co_int(ctx, *(int *)user) },
                    2);
}

CO_TEST(map_returns_what_its_spec_says, "")
{
    co_dataset *range = co_dataset_range(ctx, 0, 3, 1);
    int         number = 7;
    co_value   *pair[2] = { co_spec(ctx, CO_FLOAT32, NULL, 0), co_spec(ctx, CO_INT64, NULL, 0) };
    co_dataset *mapped = co_dataset_map(ctx, range, with_number, &number, co_tuple(ctx, pair, 2));
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, mapped), text), "(float32[],int64[])");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_batch(ctx, mapped, 2, false), 9, text),
                  "([0,1],[7,7]) ([2],[7])");
    CO_EXPECT_OK(ctx);
}

static co_value *
as_floats(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_cast(ctx, x, CO_FLOAT32);
}

static co_value *
as_vector(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_fill(ctx, (int64_t[]){ 2 }, 1, x);
}

static co_value *
as_nothing(co_context *ctx, co_value *x, void *user)
{
    (void)ctx, (void)x, (void)user;
    return NULL;
}

static co_value *
as_host(co_context *ctx, co_value *x, void *user)
{
    switch (co_item_int(ctx, x)) {
    case 0: return co_string(ctx, "text");
    case 1: return co_float(ctx, 2.0);
    case 2: return co_bool(ctx, true);
    default: return co_int(ctx, *(const int64_t *)user);
    }
}

CO_TEST(host_values_of_another_dtype_than_the_spec_says_are_refused, "")
{
    static int64_t large = 300;
    co_dataset    *range = co_dataset_range(ctx, 0, 4, 1);
    co_value      *small = co_spec(ctx, CO_INT8, NULL, 0);
    co_iterator   *iterator = co_iterate(ctx, co_dataset_map(ctx, range, as_host, &large, small));

    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "map of element 0: a host string does not convert to int8");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "map of element 1: a host float does not convert to int8");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "map of element 2: a host bool does not convert to int8");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the number 300 does not fit in int8");
}

CO_TEST(map_refuses_what_its_spec_does_not_say, "DS-ITER-8")
{
    co_dataset  *range = co_dataset_range(ctx, 0, 3, 1);
    co_value    *any = co_spec(ctx, CO_INT64, NULL, -1);
    co_iterator *floats = co_iterate(ctx, co_dataset_map(ctx, range, as_floats, NULL, NULL));
    co_iterator *vectors = co_iterate(ctx, co_dataset_map(ctx, range, as_vector, NULL, NULL));
    co_iterator *nothing = co_iterate(ctx, co_dataset_map(ctx, range, as_nothing, NULL, NULL));
    char         text[DATA_TEXT];

    CO_EXPECT_NULL(co_next(ctx, floats));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "map of element 0: the function returned float32 [] for elements, "
                    "which the spec says to be int64 []");
    CO_EXPECT_NULL(co_next(ctx, floats));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "map of element 1");
    CO_EXPECT_NULL(co_next(ctx, vectors));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int64 [2]");
    CO_EXPECT_NULL(co_next(ctx, nothing));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "returned NULL");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_map(ctx, range, as_vector, NULL, any), 9, text),
                  "[0,0] [1,1] [2,2]");
    CO_EXPECT_STR(data_elements(ctx,
                                co_dataset_map(ctx, range, as_floats, NULL,
                                               co_spec(ctx, CO_FLOAT32, NULL, 0)),
                                9, text),
                  "0 1 2");
    co_next(ctx,
            co_iterate(ctx, co_dataset_map(ctx, range, as_floats, NULL, co_list(ctx, &any, 1))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "map of element 0");
    co_next(ctx, co_iterate(ctx, co_dataset_map(ctx, range, as_floats, NULL, any)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "of any shape");
}

/* Fails on the element 2. */
static bool
not_two(co_context *ctx, co_value *x, void *user)
{
    int *calls = user;

    ++*calls;
    if (co_item_int(ctx, x) == 2)
        co_fail(ctx, CO_DATA_LOSS, "two is bad");
    return true;
}

static co_value *
map_not_two(co_context *ctx, co_value *x, void *user)
{
    not_two(ctx, x, user);
    return x;
}

static co_value *
scan_not_two(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    not_two(ctx, co_at(ctx, args, 1), user);
    return co_tuple(ctx, (co_value *const[]){ sum, sum }, 2);
}

CO_TEST(an_error_of_a_function_names_stage_and_element_and_iteration_goes_on, "DS-ITER-8")
{
    co_dataset *range = co_dataset_range(ctx, 0, 4, 1);
    int         calls = 0;
    co_dataset *all[] = {
        co_dataset_map(ctx, range, map_not_two, &calls, NULL),
        co_dataset_filter(ctx, range, not_two, &calls),
        co_dataset_take_while(ctx, range, not_two, &calls),
        co_dataset_scan(ctx, range, co_scalar_int64(ctx, 0), scan_not_two, &calls, NULL),
        co_dataset_cache(ctx, co_dataset_map(ctx, range, map_not_two, &calls, NULL)),
        co_dataset_batch(ctx, co_dataset_map(ctx, range, map_not_two, &calls, NULL), 1, false),
        co_dataset_skip(ctx, co_dataset_map(ctx, range, map_not_two, &calls, NULL), 1),
    };
    static const char *const names[] = {
        "map", "filter", "take_while", "scan", "map", "map", "map"
    };
    static const int         before[] = { 2, 2, 2, 2, 2, 2, 1 };
    static const char *const last[] = { "3", "3", "3", "4", "3", "[3]", "3" };
    char                     text[DATA_TEXT], message[60];

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
        co_iterator *iterator = co_iterate(ctx, all[i]);

        for (int k = 0; k < before[i]; ++k)
            CO_EXPECT_NOT_NULL(co_next(ctx, iterator));
        CO_EXPECT_NULL(co_next(ctx, iterator));
        snprintf(message, sizeof(message), "%s of element 2: two is bad", names[i]);
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, message);
        CO_EXPECT_STR(data_rest(ctx, iterator, 9, text), last[i]);
        CO_EXPECT_NULL(co_next(ctx, iterator));
    }
    CO_EXPECT_INT(calls, 7 * 4);
    CO_EXPECT_NULL(
        co_next(ctx, co_iterate(ctx, co_dataset_skip(ctx, all[0], 3)))); /* in skipping */
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "map of element 2");
}

/* Leaves a block, a device and a scope open; sees default mode on the host. */
static co_value *
messy(co_context *ctx, co_value *x, void *user)
{
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
    co_scope_begin(ctx, user);
    co_device_begin(ctx, "/cpu:1");
    co_block_begin(ctx);
    return co_add(ctx, x, co_int(ctx, 1));
}

CO_TEST_WITH(functions_run_in_default_mode_on_the_host_and_leave_nothing_open, "", "cpus=2")
{
    co_strategy *other = co_one_device_strategy(ctx, "/cpu:1");
    co_strategy *mirrored = co_mirrored_strategy(ctx, (const char *const[]){ "/cpu:0", "/cpu:1" },
                                                 2, NULL);
    co_dataset  *data = co_dataset_map(ctx, co_dataset_range(ctx, 0, 4, 1), messy, other, NULL);
    char         text[DATA_TEXT];

    CO_SCOPE(ctx, mirrored) {
        co_dataset *batches = co_dataset_batch(ctx, data, 4, false);

        CO_EXPECT_STR(data_elements(ctx, co_distribute_dataset(ctx, mirrored, batches, NULL), 9,
                                    text),
                      "{[1,2],[3,4]}");
        CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    }
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_OK(ctx);
}

/* Asks the iterator that it makes an element for, then drops it. */
static co_value *
intruder(co_context *ctx, co_value *x, void *user)
{
    co_iterator **iterator = user;

    CO_EXPECT_NULL(co_next(ctx, *iterator));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "iterators of their own");
    co_release(ctx, *iterator);
    return x;
}

CO_TEST(a_function_may_drop_its_iterator_but_not_ask_it, "")
{
    co_iterator *iterator = NULL;
    co_value    *element;

    CO_BLOCK(ctx) {
        co_dataset *range = co_dataset_range(ctx, 4, 6, 1);

        iterator = co_iterate(ctx, co_dataset_map(ctx, range, intruder, &iterator, NULL));
        co_keep(ctx, iterator);
    }
    element = co_next(ctx, iterator);
    CO_EXPECT_INT(co_item_int(ctx, element), 4);
    CO_EXPECT_OK(ctx);
}

static co_value *
sums(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    (void)user;
    return co_tuple(ctx, (co_value *const[]){ sum, sum }, 2);
}

static co_value *
only_state(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

static co_value *
output_none(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_tuple(ctx, (co_value *const[]){ co_at(ctx, args, 0), co_none(ctx) }, 2);
}

CO_TEST(scan_keeps_a_state_and_begins_anew_with_every_iterator, "")
{
    co_dataset *range = co_dataset_range(ctx, 1, 5, 1);
    co_value   *initial = co_scalar_int64(ctx, 10);
    co_dataset *sum = co_dataset_scan(ctx, range, initial, sums, NULL, NULL);
    char        text[DATA_TEXT];

    CO_EXPECT_INT(co_cardinality(ctx, sum), 4);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_repeat(ctx, sum, 2), 9, text),
                  "11 13 16 20 11 13 16 20");
    co_next(ctx, co_iterate(ctx, co_dataset_scan(ctx, range, initial, only_state, NULL, NULL)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "scan of element 0: the function did not return a tuple of two");
    co_next(ctx, co_iterate(ctx, co_dataset_scan(ctx, range, initial, output_none, NULL, NULL)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "scan of element 0");
    CO_EXPECT_NULL(co_dataset_scan(ctx, range, NULL, sums, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "initial");
    CO_EXPECT_NULL(co_dataset_scan(ctx, range, initial, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 4 (fn) of dataset_scan is NULL");
    CO_EXPECT_NULL(co_dataset_scan(ctx, range, initial, sums, NULL, initial));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 6 (spec)");
    CO_EXPECT_NULL(co_dataset_scan(ctx, NULL, initial, sums, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
}

/* --- several inputs --- */

static co_dataset *
zip2(co_context *ctx, const char *a, const char *b)
{
    return co_dataset_zip(ctx,
                          (co_dataset *const[]){ data_pipeline(ctx, a), data_pipeline(ctx, b) }, 2);
}

CO_TEST(zip_ends_with_the_shortest, "")
{
    static const struct {
        const char *a, *b, *elements;
        int64_t     cardinality, batch_size;
    } rows[] = {
        { "range(3)", "range(10,15)", "(0,10) (1,11) (2,12)", 3, -1 },
        { "range(5)", "range(10,12)", "(0,10) (1,11)", 2, -1 },
        { "range(0)", "range(10,12)", "", 0, -1 },
        { "range(3).even", "range(0)", "", -2, -1 },
        { "range(3).even", "range(9)", "(0,0) (2,1)", -2, -1 },
        { "range(2).repeat", "range(3)", "(0,0) (1,1) (0,2)", 3, -1 },
        { "range(4).batch(2)", "range(5).batch(2)", "([0,1],[0,1]) ([2,3],[2,3])", 2, 2 },
        { "range(4).batch(2)", "range(9).batch(3)", "([0,1],[0,1,2]) ([2,3],[3,4,5])", 2, -1 },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_dataset *dataset = zip2(ctx, rows[i].a, rows[i].b);

        CO_EXPECT_STR(data_elements(ctx, dataset, 9, text), rows[i].elements);
        CO_EXPECT_INT(co_cardinality(ctx, dataset), rows[i].cardinality);
        CO_EXPECT_INT(co_dataset_batch_size(ctx, dataset), rows[i].batch_size);
    }
    CO_EXPECT_INT(co_cardinality(ctx, zip2(ctx, "range(2).repeat", "range(3).repeat")),
                  CO_INFINITE);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_dataset_zip(ctx, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no dataset");
    CO_EXPECT_NULL(co_dataset_zip(ctx, (co_dataset *const[]){ NULL }, 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no dataset");
    CO_EXPECT_NULL(co_dataset_zip(ctx, (co_dataset *const[]){ NULL }, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "inputs");
}

static co_dataset *
joined(co_context *ctx, const char *a, const char *b)
{
    return co_dataset_concatenate(ctx, data_pipeline(ctx, a), data_pipeline(ctx, b));
}

CO_TEST(concatenate_gives_one_after_the_other, "")
{
    static const struct {
        const char *a, *b, *elements, *spec;
        int64_t     cardinality, batch_size;
    } rows[] = {
        { "range(2)", "range(5,8)", "0 1 5 6 7", "int64[]", 5, -1 },
        { "range(0)", "range(2)", "0 1", "int64[]", 2, -1 },
        { "range(2)", "range(0)", "0 1", "int64[]", 2, -1 },
        { "range(2)", "range(4).even", "0 1 0 2", "int64[]", -2, -1 },
        { "range(1)", "range(2).repeat", "0 0 1 0 1 0 ...", "int64[]", -1, -1 },
        { "range(3).batch(2)", "range(4).batch(3)", "[0,1] [2] [0,1,2] [3]", "int64[-1]", 4, -1 },
        { "range(2).batch(2)", "range(2).batch(2)", "[0,1] [0,1]", "int64[-1]", 2, 2 },
        { "range(2).batch_drop(2)", "range(3).batch_drop(3)", "[0,1] [0,1,2]", "int64[-1]", 2, -1 },
        { "range(2).batch_drop(2)", "range(2).batch_drop(2)", "[0,1] [0,1]", "int64[2]", 2, 2 },
        { "range(2)", "range(2).batch(2)", "0 1 [0,1]", "int64?", 3, -1 },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i + 1 < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_dataset *dataset = joined(ctx, rows[i].a, rows[i].b);

        CO_EXPECT_STR(data_elements(ctx, dataset, 6, text), rows[i].elements);
        CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), rows[i].spec);
        CO_EXPECT_INT(co_cardinality(ctx, dataset), rows[i].cardinality);
        CO_EXPECT_INT(co_dataset_batch_size(ctx, dataset), rows[i].batch_size);
        CO_EXPECT_OK(ctx);
    }
    CO_EXPECT_INT(
        co_value_ndim(ctx, co_element_spec(ctx, joined(ctx, "range(2)", "range(2).batch(2)"))), -1);
    CO_EXPECT_NULL(joined(ctx, "range(2)", "range(2).enumerate"));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_NULL(co_dataset_concatenate(ctx, data_pipeline(ctx, "range(2)"),
                                          co_dataset_from_tensors(ctx, co_scalar_float(ctx, 1))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "the second dataset has float32 in component 0, the first has int64");
    CO_EXPECT_NULL(co_dataset_concatenate(ctx, NULL, data_pipeline(ctx, "range(2)")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "first");
    CO_EXPECT_NULL(co_dataset_concatenate(ctx, data_pipeline(ctx, "range(2)"), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "second");
}

/* One dataset may be in another any number of times: walks over it would never end. */
CO_TEST(trees_that_double_and_double_are_refused, "")
{
    co_dataset *dataset = co_dataset_range(ctx, 0, 1, 1);

    for (int i = 0; i < 30 && dataset != NULL; ++i)
        dataset = co_dataset_concatenate(ctx, dataset, dataset);
    CO_EXPECT_NULL(dataset);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "a pipeline of more than 100000 steps in all branches");
}

/* --- kept elements --- */

CO_TEST(cache_reads_its_input_once_and_only_complete_passes_count, "")
{
    int          calls = 0;
    co_dataset  *range = co_dataset_range(ctx, 3, 6, 1);
    co_dataset  *cached = co_dataset_cache(ctx,
                                           co_dataset_map(ctx, range, map_not_two, &calls, NULL));
    co_iterator *a = co_iterate(ctx, cached), *b = co_iterate(ctx, cached);
    char         text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, co_dataset_take(ctx, cached, 2), 9, text), "3 4");
    CO_EXPECT_INT(calls, 2);
    CO_EXPECT_NOT_NULL(co_next(ctx, a));
    CO_EXPECT_STR(data_rest(ctx, b, 9, text), "3 4 5");
    CO_EXPECT_INT(calls, 6);
    CO_EXPECT_STR(data_rest(ctx, a, 9, text), "4 5"); /* began before there was a store */
    CO_EXPECT_INT(calls, 8);
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_STR(data_elements(ctx, cached, 9, text), "3 4 5");
    CO_EXPECT_NULL(co_next(ctx, a));
    CO_EXPECT_NULL(co_next(ctx, b));
    CO_EXPECT_INT(calls, 8);
    CO_EXPECT_OK(ctx);
}

/* --- errors --- */

CO_TEST(stages_refuse_wrong_arguments, "")
{
    co_dataset *range = co_dataset_range(ctx, 0, 3, 1);
    co_value   *x = co_int(ctx, 1);
    co_value   *holed = co_list(ctx, NULL, 0);

    CO_EXPECT_NULL(co_dataset_map(ctx, NULL, data_double, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2 (input) of dataset_map is NULL");
    CO_EXPECT_NULL(co_dataset_map(ctx, range, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn) of dataset_map is NULL");
    CO_EXPECT_NULL(co_dataset_map(ctx, range, data_double, NULL, x));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 5 (spec)");
    CO_EXPECT_NULL(co_dataset_map(ctx, range, data_double, NULL, holed));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 5 (spec)");
    CO_EXPECT_NULL(co_dataset_map(ctx, range, data_double, NULL, co_list(ctx, &x, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 5 (spec)");
    CO_EXPECT_NULL(co_dataset_map(ctx, range, data_double, NULL, (co_value *)range));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "spec");
    CO_EXPECT_NULL(co_dataset_filter(ctx, range, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn) of dataset_filter is NULL");
    CO_EXPECT_NULL(co_dataset_filter(ctx, NULL, data_even, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_take_while(ctx, range, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn) of dataset_take_while is NULL");
    CO_EXPECT_NULL(co_dataset_skip(ctx, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_enumerate(ctx, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_cache(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_prefetch(ctx, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_prefetch(ctx, range, -2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (buffer_size) is -2");
}

/* --- sharding --- */

CO_TEST(hints_are_filled_in_before_stages, "DS-SHARD-9 DS-SHARD-10")
{
    static const struct {
        const char *pipeline, *first, *second;
    } rows[] = {
        { "range(6).shard.double.HINT", "0 4 8", "2 6 10" },
        { "range(8).shard.even.HINT", "0 2 4 6", "" },
        { "range(8).shard.below5.HINT", "0 2 4", "1 3" },
        { "range(6).shard.skip(1).HINT", "2 4", "3 5" },
        { "range(4).shard.enumerate.HINT", "(0,0) (1,2)", "(0,1) (1,3)" },
        { "range(4).shard.cache.repeat(2).HINT", "0 2 0 2", "1 3 1 3" },
        { "range(4).shard.prefetch(1).HINT", "0 2", "1 3" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        co_dataset *dataset = data_pipeline(ctx, rows[i].pipeline);

        CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 2, 0), 9, text),
                      rows[i].first);
        CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 2, 1), 9, text),
                      rows[i].second);
        CO_EXPECT_OK(ctx);
    }
    CO_EXPECT_NULL(co_iterate(ctx, data_pipeline(ctx, "range(6).shard.double")));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "CO_SHARD_HINT");
}

/* --- memory --- */

static bool
run_stages(co_context *ctx)
{
    static const char *const all[] = {
        "range(6).shard.double.even.skip(1).enumerate.cache.repeat(2).prefetch(1).HINT",
        "range(9).below5.double.batch(2)",
    };
    co_value   *pair[2] = { co_spec(ctx, CO_FLOAT32, NULL, 0), co_spec(ctx, CO_INT64, NULL, 0) };
    int         number = 1;
    int64_t     count = 0;
    co_dataset *range = co_dataset_range(ctx, 0, 3, 1), *many[5];

    for (int i = 0; i < 2; ++i)
        many[i] = co_dataset_auto_shard(ctx, data_pipeline(ctx, all[i]), 1, 0);
    many[2] = co_dataset_map(ctx, range, with_number, &number, co_tuple(ctx, pair, 2));
    many[3] = co_dataset_scan(ctx, range, co_scalar_int64(ctx, 0), sums, NULL, NULL);
    many[4] = co_dataset_concatenate(ctx, range, range);
    many[3] = co_dataset_zip(ctx, many + 3, 2);
    for (int i = 0; i < 4 && co_ok(ctx); ++i)
        CO_EACH(ctx, element, co_iterate(ctx, many[i]))
            ++count;
    return co_ok(ctx) && count == 10 + 3 + 3 + 3;
}

CO_TEST_BARE(stages_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, run_stages);
}

CO_TEST(stages_take_nothing_from_the_allocator_in_steady_state, "")
{
    co_iterator    *a = co_iterate(ctx, data_pipeline(ctx, "range(5).repeat.double.even.skip(1)"));
    co_iterator    *b = co_iterate(ctx, data_pipeline(ctx, "range(5).cache.repeat.enumerate"));
    co_memory_stats before = { .struct_size = sizeof(before) }, after = before;

    for (int i = 0; i < 4000; ++i) {
        if (i == 3000)
            co_get_memory_stats(ctx, &before);
        CO_BLOCK(ctx) {
            co_next(ctx, a);
            co_next(ctx, b);
        }
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.bytes_in_use - before.bytes_in_use, 0);
    if (!DATA_ADDRESS_SANITIZER)
        CO_EXPECT_INT(after.system_allocations - before.system_allocations, 0);
}

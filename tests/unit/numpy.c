/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of the caller's arrays: section 17.9. */
#include "test.h"

static int64_t
row_of(co_context *ctx, co_value *element, size_t i)
{
    int64_t row[4] = { -1, -1, -1, -1 };

    co_value_copy_data(ctx, element, CO_INT64, row, 4);
    return row[i];
}

static co_value *
numbers(co_context *ctx, const int64_t *dims, int ndim, int64_t factor)
{
    int64_t data[16];

    for (int64_t i = 0; i < 16; ++i)
        data[i] = i * factor;
    return co_tensor(ctx, CO_INT64, dims, ndim, data);
}

CO_TEST(arrays_are_sliced_along_dimension_0, "NP-1 NP-8")
{
    co_strategy *one = co_one_device_strategy(ctx, NULL);
    co_value    *x = numbers(ctx, CO_SHAPE(3, 2), 1), *y = numbers(ctx, CO_SHAPE(3), 10);
    co_dataset  *data = co_make_numpy_dataset(ctx, one, x);
    co_iterator *it = co_iterate(ctx, data);

    CO_EXPECT_INT(co_cardinality(ctx, data), 3);
    for (int64_t i = 0; i < 3; ++i) {
        co_value *element = co_next(ctx, it);

        CO_EXPECT_INT(co_value_ndim(ctx, element), 1);
        CO_EXPECT_INT(row_of(ctx, element, 1), 2 * i + 1);
    }
    CO_EXPECT_NULL(co_next(ctx, it));
    it = co_iterate(ctx, co_make_numpy_dataset(ctx, one, co_args(ctx, x, y)));
    co_next(ctx, it);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_next(ctx, it), 1)), 10);
    it = co_iterate(ctx, co_make_numpy_dataset(ctx, one, numbers(ctx, CO_SHAPE(0, 2), 1)));
    CO_EXPECT_NULL(co_next(ctx, it));
}

CO_TEST(maps_and_strings_are_arrays_too, "NP-1")
{
    static const char *const names[] = { "ab", "c", "" }, *const keys[] = { "text", "n" };

    co_value *text = co_tensor(ctx, CO_STRING, CO_SHAPE(3), names);
    co_value *items[] = { text, numbers(ctx, CO_SHAPE(3), 1) };
    co_value *element = co_next(
        ctx, co_iterate(ctx, co_make_numpy_dataset(ctx, co_default_strategy(ctx),
                                                   co_dict(ctx, keys, items, 2))));

    CO_EXPECT_STR(co_string_at(ctx, co_get(ctx, element, "text"), 0, NULL), "ab");
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, element, "n")), 0);
}

CO_TEST(lists_are_stacked, "NP-2")
{
    co_value    *rows[] = { numbers(ctx, CO_SHAPE(3), 1), numbers(ctx, CO_SHAPE(3), 10) };
    co_iterator *it = co_iterate(ctx, co_make_numpy_dataset(ctx, co_default_strategy(ctx),
                                                            co_list(ctx, rows, 2)));

    co_next(ctx, it);
    CO_EXPECT_INT(row_of(ctx, co_next(ctx, it), 2), 20);
    CO_EXPECT_NULL(co_next(ctx, it));
}

CO_TEST(what_has_no_slices_is_refused, "NP-3")
{
    co_strategy *d = co_default_strategy(ctx);
    co_value    *x = numbers(ctx, CO_SHAPE(3), 1), *n = co_int(ctx, 1);
    co_value    *wrong[] = { co_args(ctx, x, numbers(ctx, CO_SHAPE(2), 1)),
                             co_scalar_float(ctx, 1),
                             n,
                             co_none(ctx),
                             co_args(ctx, x, n),
                             co_list(ctx, &n, 1),
                             co_string(ctx, "text"),
                             co_no_args(ctx) };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        CO_EXPECT_NULL(co_make_numpy_dataset(ctx, d, wrong[i]));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    }
    wrong[0] = co_per_replica_value(ctx, &x, 1); /* of no replica here */
    CO_EXPECT_NULL(co_make_numpy_dataset(ctx, d, wrong[0]));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_make_numpy_dataset(ctx, d, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "arrays");
    CO_EXPECT_NULL(co_make_numpy_dataset(ctx, NULL, x));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

/* The memory may be written again as soon as the call is over, and its tensor may be gone. */
CO_TEST(arrays_are_copied_at_the_call, "NP-4 NP-5")
{
    int64_t     mine[] = { 1, 2, 3 };
    co_dataset *data = NULL;

    co_block_begin(ctx);
    data = co_make_numpy_dataset(ctx, co_default_strategy(ctx),
                                 co_tensor_borrow(ctx, CO_INT64, CO_SHAPE(3), mine, NULL, NULL));
    co_keep(ctx, data);
    co_block_end(ctx);
    mine[0] = mine[1] = 99;
    CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, co_iterate(ctx, data))), 1);
    co_release(ctx, data);
}

CO_TEST_WITH(arrays_go_to_the_host_of_the_input, "NP-4", "devices=GPU:1")
{
    co_strategy *gpu = co_one_device_strategy(ctx, "/gpu:0");
    co_value    *x = NULL, *element;

    CO_DEVICE(ctx, "/gpu:0")
        x = numbers(ctx, CO_SHAPE(2), 1);
    element = co_next(ctx, co_iterate(ctx, co_make_numpy_dataset(ctx, gpu, x)));
    CO_EXPECT_CONTAINS(co_value_device(ctx, element), "CPU:0");
}

static co_value *
in_a_replica(co_context *ctx, co_value *args, void *user)
{
    co_strategy *mine = user;
    co_value    *x = co_at(ctx, args, 0);

    CO_EXPECT_NULL(co_make_numpy_dataset(ctx, mine, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    CO_EXPECT_NULL(co_distribute_experimental_make_numpy_dataset(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    return NULL;
}

CO_TEST_WITH(cross_replica_context_or_default_mode_is_needed, "NP-7 AMB-8", "cpus=2")
{
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL), *d = co_default_strategy(ctx);
    co_value    *x = numbers(ctx, CO_SHAPE(4), 1);

    CO_EXPECT_NOT_NULL(co_make_numpy_dataset(ctx, m, x));
    CO_EXPECT_NOT_NULL(co_distribute_experimental_make_numpy_dataset(ctx, x)); /* of the default */
    CO_SCOPE(ctx, m) {
        CO_EXPECT_NOT_NULL(co_make_numpy_dataset(ctx, m, x));
        CO_EXPECT_NOT_NULL(co_distribute_experimental_make_numpy_dataset(ctx, x));
        CO_EXPECT_NULL(co_make_numpy_dataset(ctx, d, x));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
    co_run(ctx, m, in_a_replica, co_args(ctx, x), m);
}

CO_TEST_WITH(the_result_is_an_ordinary_dataset, "NP-8 NP-9 DS-DIST-7", "cpus=2")
{
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *data = co_make_numpy_dataset(ctx, m, numbers(ctx, CO_SHAPE(10), 1));
    co_value    *x;

    CO_EXPECT_NULL(co_distribute_dataset(ctx, m, data, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batch");
    data = co_distribute_dataset(ctx, m, co_dataset_batch(ctx, data, 4, false), NULL);
    x = co_next(ctx, co_iterate(ctx, data));
    CO_EXPECT_INT(row_of(ctx, co_at(ctx, x, 1), 1), 3);
}

static bool
arrays_in_little_memory(co_context *ctx)
{
    static const char *const names[] = { "a string too long for any cell to hold it, to be sure "
                                         "that its bytes are an allocation of their own" };
    co_value                *text = co_tensor(ctx, CO_STRING, CO_SHAPE(1), names);
    co_value                *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 600000));

    return co_make_numpy_dataset(ctx, co_default_strategy(ctx), co_args(ctx, text, x)) != NULL;
}

CO_TEST_BARE(arrays_survive_want_of_memory, "NP-4")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, arrays_in_little_memory);
}

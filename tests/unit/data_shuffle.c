/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shuffling: every element once, within the bound of the buffer, in an order that seed, buffer size
 * and pass decide alone.
 */
#include "data_support.h"

#define MOST 200

static int
pass(co_context *ctx, co_dataset *dataset, int64_t *order)
{
    int count = 0;

    CO_EACH(ctx, x, co_iterate(ctx, dataset)) {
        if (count < MOST)
            order[count] = co_item_int(ctx, x);
        ++count;
    }
    return count;
}

static co_dataset *
shuffled(co_context *ctx, int64_t n, int64_t size, int64_t seed, bool again)
{
    return co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, n, 1), size, seed, again);
}

CO_TEST(every_element_comes_once_and_not_too_early, "")
{
    for (int64_t n = 0; n <= 40; n += 5)
        for (int64_t size = 1; size <= 45; size += 4)
            CO_BLOCK(ctx) {
                int64_t order[MOST], times[MOST] = { 0 };

                CO_EXPECT_INT(pass(ctx, shuffled(ctx, n, size, 7, true), order), n);
                for (int64_t i = 0; i < n; ++i) {
                    ++times[order[i]];
                    CO_EXPECT_LESS(order[i], i + size);
                }
                for (int64_t i = 0; i < n; ++i)
                    CO_EXPECT_INT(times[i], 1);
            }
    CO_EXPECT_OK(ctx);
}

/* The order is part of the interface: see docs/decisions/shuffle.md. */
CO_TEST(the_order_is_that_of_the_documented_draws, "")
{
    char text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, shuffled(ctx, 10, 10, 1, true), 20, text),
                  "8 9 4 7 6 5 1 3 0 2");
    CO_EXPECT_STR(data_elements(ctx, shuffled(ctx, 10, 3, 1, true), 20, text),
                  "2 3 1 5 6 7 4 8 0 9");
    CO_EXPECT_STR(data_elements(ctx, shuffled(ctx, 10, 10, (int64_t)1 << 40, false), 20, text),
                  "0 5 3 4 1 6 8 2 9 7");
    CO_EXPECT_STR(data_elements(ctx, shuffled(ctx, 4, 1, 1, true), 20, text), "0 1 2 3");
}

CO_TEST(passes_differ_when_reshuffling_and_are_equal_otherwise, "")
{
    co_dataset *again = shuffled(ctx, 50, 50, 3, true), *same = shuffled(ctx, 50, 50, 3, false);
    int64_t     a[MOST], b[MOST], c[MOST], rounds[MOST];

    pass(ctx, again, a);
    pass(ctx, again, b);
    CO_EXPECT_TRUE(memcmp(a, b, 50 * sizeof(a[0])) != 0);
    pass(ctx, same, b);
    pass(ctx, same, c);
    CO_EXPECT_BYTES(b, a, 50 * sizeof(a[0])); /* pass 0 of both */
    CO_EXPECT_BYTES(c, b, 50 * sizeof(a[0]));
    pass(ctx, shuffled(ctx, 50, 50, 4, false), c);
    CO_EXPECT_TRUE(memcmp(b, c, 50 * sizeof(a[0])) != 0);
    CO_EXPECT_INT(pass(ctx, co_dataset_repeat(ctx, shuffled(ctx, 50, 50, 3, true), 2), rounds),
                  100);
    CO_EXPECT_BYTES(rounds, a, 50 * sizeof(a[0]));
    CO_EXPECT_TRUE(memcmp(rounds, rounds + 50, 50 * sizeof(a[0])) != 0);
    CO_EXPECT_INT(pass(ctx, co_dataset_repeat(ctx, same, 2), rounds), 100);
    CO_EXPECT_BYTES(rounds, rounds + 50, 50 * sizeof(a[0]));
    CO_EXPECT_OK(ctx);
}

/* Of 6000 draws each of 6 elements is first about 1000 times: 150 is more than five standard
 * deviations. */
CO_TEST(the_first_element_is_any_of_the_buffer_alike, "")
{
    co_dataset *dataset = shuffled(ctx, 6, 6, 11, true);
    int         times[6] = { 0 };

    for (int i = 0; i < 6000; ++i)
        CO_BLOCK(ctx)
            ++times[co_item_int(ctx, co_next(ctx, co_iterate(ctx, dataset)))];
    for (int i = 0; i < 6; ++i) {
        CO_EXPECT_MORE(times[i], 850);
        CO_EXPECT_LESS(times[i], 1150);
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(shuffle_keeps_spec_cardinality_and_batch_size_and_refuses_bad_buffers, "")
{
    co_dataset *batches = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 7, 1), 3, false);
    co_dataset *dataset = co_dataset_shuffle(ctx, batches, 2, 0, true);
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text), "int64[-1]");
    CO_EXPECT_INT(co_cardinality(ctx, dataset), 3);
    CO_EXPECT_INT(co_dataset_batch_size(ctx, dataset), 3);
    CO_EXPECT_INT(co_cardinality(ctx, co_dataset_shuffle(ctx, co_dataset_repeat(ctx, batches, -1),
                                                         2, 0, true)),
                  CO_INFINITE);
    CO_EXPECT_NULL(co_dataset_shuffle(ctx, batches, 0, 0, true));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (buffer_size) is 0");
    CO_EXPECT_NULL(co_dataset_shuffle(ctx, batches, (int64_t)1 << 32, 0, true));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "buffer_size");
    CO_EXPECT_NULL(co_dataset_shuffle(ctx, NULL, 2, 0, true));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
}

/* As in TensorFlow: a buffer of unknown cardinality holds everything. */
CO_TEST(a_shuffle_may_hold_the_whole_dataset, "")
{
    co_dataset *range = co_dataset_range(ctx, 0, 50, 1);
    co_dataset *whole = co_dataset_shuffle(ctx, range, CO_UNKNOWN_CARDINALITY, 5, false);
    char        all[DATA_TEXT], text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, whole, 60, all),
                  data_elements(ctx, co_dataset_shuffle(ctx, range, 50, 5, false), 60, text));
    CO_EXPECT_INT(co_dataset_explain(ctx, whole, NULL, text, sizeof(text)) > 0, 1);
    CO_EXPECT_CONTAINS(text, "shuffle, buffer of all elements, seed 5 -> 50 elements\n");
    CO_EXPECT_NULL(co_dataset_shuffle(ctx, co_dataset_repeat(ctx, range, -1),
                                      CO_UNKNOWN_CARDINALITY, 5, false));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the input is endless");
    for (int64_t size = -1; size > -5; size -= 2) {
        CO_EXPECT_NULL(co_dataset_shuffle(ctx, range, size, 5, false));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "or all with CO_UNKNOWN_CARDINALITY");
    }
}

static co_value *
not_three(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    if (co_item_int(ctx, x) == 3)
        co_fail(ctx, CO_DATA_LOSS, "three");
    return x;
}

CO_TEST(an_error_of_the_input_loses_its_element_alone, "DS-ITER-8")
{
    co_dataset  *bad = co_dataset_map(ctx, co_dataset_range(ctx, 0, 6, 1), not_three, NULL, NULL);
    co_iterator *iterator = co_iterate(ctx, co_dataset_shuffle(ctx, bad, 4, 0, true));
    int64_t      sum = 0;

    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "map of element 3: three");
    CO_EACH(ctx, x, iterator)
        sum += co_item_int(ctx, x);
    CO_EXPECT_INT(sum, 0 + 1 + 2 + 4 + 5);
    CO_EXPECT_OK(ctx);
}

/* Workers with the same seed shuffle alike, so their shares of the data stay disjoint
 * (DS-SHARD-13). */
CO_TEST(workers_share_a_shuffled_dataset_exactly_once, "DS-SHARD-6 DS-SHARD-13")
{
    int64_t order[MOST];
    int     times[20] = { 0 };

    for (int w = 0; w < 3; ++w) {
        int n = pass(ctx, co_dataset_auto_shard(ctx, shuffled(ctx, 20, 8, 5, true), 3, w), order);

        for (int i = 0; i < n; ++i)
            ++times[order[i]];
    }
    for (int i = 0; i < 20; ++i)
        CO_EXPECT_INT(times[i], 1);
    CO_EXPECT_OK(ctx);
}

static bool
shuffle_twice(co_context *ctx)
{
    int64_t     order[MOST];
    co_dataset *range = co_dataset_range(ctx, 0, 9, 1);
    co_dataset *dataset = co_dataset_shuffle(ctx, co_dataset_shard(ctx, range, CO_SHARD_HINT, 0), 4,
                                             1, true);

    dataset = co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_HINT);
    dataset = co_dataset_auto_shard(ctx, co_dataset_repeat(ctx, dataset, 2), 1, 0);
    return pass(ctx, dataset, order) == 18 && co_ok(ctx);
}

CO_TEST_BARE(shuffling_survives_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, shuffle_twice);
}

CO_TEST(memory_is_flat_over_many_epochs, "")
{
    co_iterator    *iterator = co_iterate(ctx,
                                          co_dataset_repeat(ctx, shuffled(ctx, 50, 20, 1, true), -1));
    co_memory_stats before = { .struct_size = sizeof(before) }, after = before;

#ifdef COI_DEBUG
    CO_SKIP("debug builds keep dead values for a while");
#endif
    for (int i = 0; i < 100 * 50; ++i) {
        if (i == 60 * 50)
            co_get_memory_stats(ctx, &before);
        CO_BLOCK(ctx)
            co_next(ctx, iterator);
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.bytes_in_use - before.bytes_in_use, 0);
    if (!DATA_ADDRESS_SANITIZER)
        CO_EXPECT_INT(after.system_allocations - before.system_allocations, 0);
}

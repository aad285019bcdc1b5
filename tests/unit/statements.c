/* SPDX-License-Identifier: Apache-2.0 */
/* The macros that stand as statements: they nest without a warning, and leave no block open behind
 * them. */
#include "test.h"

static int64_t
live_values(co_context *ctx)
{
    co_memory_stats stats = { .struct_size = sizeof(stats) };

    co_get_memory_stats(ctx, &stats);
    return stats.live_values;
}

CO_TEST(blocks_and_devices_nest, "")
{
    int64_t before = live_values(ctx);

    CO_BLOCK(ctx) {
        co_int(ctx, 1);
        CO_DEVICE(ctx, "/cpu:0") {
            CO_BLOCK(ctx) {
                co_int(ctx, 2);
                CO_EXPECT_INT(live_values(ctx), before + 2);
            }
        }
        CO_EXPECT_INT(live_values(ctx), before + 1);
    }
    CO_EXPECT_INT(live_values(ctx), before);
}

CO_TEST(each_gives_every_element_a_block, "DS-ITER-2")
{
    co_iterator *it = co_iterate(ctx, co_dataset_range(ctx, 0, 5, 1));
    int64_t      before = live_values(ctx), sum = 0;

    CO_EACH(ctx, x, it) {
        CO_EXPECT_INT(live_values(ctx), before + 1);
        if (co_item_int(ctx, x) == 3)
            continue;
        sum += co_item_int(ctx, x);
    }
    CO_EXPECT_INT(sum, 0 + 1 + 2 + 4);
    CO_EXPECT_INT(live_values(ctx), before);
    CO_EACH(ctx, x, it) {
        co_fail(ctx, CO_INTERNAL, "the end is the end: %s", co_kind_name(co_value_kind(x)));
    }
}

CO_TEST(each_makes_its_iterator_once, "")
{
    int rounds = 0;

    CO_EACH(ctx, x, co_iterate(ctx, co_dataset_range(ctx, 0, 3, 1))) {
        CO_EXPECT_INT(co_item_int(ctx, x), rounds++);
    }
    CO_EXPECT_INT(rounds, 3);
    CO_EACH(ctx, x, NULL) {
        CO_FAIL("there is no element, but %p", (void *)x);
    }
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
}

CO_TEST(each_ends_with_an_error, "")
{
    co_iterator *it = co_iterate(ctx, co_dataset_range(ctx, 0, 5, 1));
    int64_t      before = live_values(ctx);
    int          rounds = 0;

    CO_EACH(ctx, x, it) {
        CO_EXPECT_INT(co_item_int(ctx, x), rounds++);
        co_fail(ctx, CO_VALUE_ERROR, "enough");
    }
    CO_EXPECT_INT(rounds, 1);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "enough");
    CO_EXPECT_INT(live_values(ctx), before);
}

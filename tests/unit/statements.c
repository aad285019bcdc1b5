/* SPDX-License-Identifier: Apache-2.0 */
/* The macros that stand as statements: they nest without a warning, and leave nothing open behind
 * them, however their bodies are left. */
#include "statements_support.h"

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

/* --- leaving early --- */

#if defined(__has_attribute)
#if __has_attribute(cleanup)
#define HAS_CLEANUP 1
#endif
#endif

CO_TEST_BARE(break_goto_and_return_close_at_once, "SCOPE-9")
{
#ifdef HAS_CLEANUP
    expect_closed_at_once(LEAVE_BREAK, LEAVE_RETURN);
#else
    CO_SKIP("the compiler has no cleanup attribute");
#endif
}

static co_value *
without_escape(co_context *ctx)
{
    CO_BLOCK(ctx) {
        co_value *x = co_scalar_float(ctx, 2);

        return co_mul(ctx, x, x);
    }
    return NULL;
}

static co_value *
with_escape(co_context *ctx)
{
    CO_BLOCK(ctx) {
        co_value *x = co_scalar_float(ctx, 2);

        return co_escape(ctx, co_mul(ctx, x, x));
    }
    return NULL;
}

static co_value *
first_element(co_context *ctx)
{
    CO_EACH(ctx, x, co_iterate(ctx, co_dataset_range(ctx, 5, 9, 1))) {
        return x;
    }
    return NULL;
}

/* In every build. */
CO_TEST(a_value_returned_out_of_its_block_is_an_error_at_its_next_use, "")
{
    co_value *x = with_escape(ctx), *y;

    CO_EXPECT_CLOSE(co_item_float(ctx, x), 4, 0);
    y = without_escape(ctx);
    CO_EXPECT_NULL(co_add(ctx, x, y));
    CO_EXPECT_INT(co_error(ctx)->line, __LINE__ - 1);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 3 (y) of add is not a live value: its block has ended, or it was "
                    "released; co_keep or co_escape it to use it longer");
    y = first_element(ctx);
    for (int i = 0; i < 100; ++i)
        CO_BLOCK(ctx) {
            co_neg(ctx, x);
        }
    CO_EXPECT_INT(co_item_int(ctx, y), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (value) of item_int is not a live value");
}

static co_value *
step_without_escape(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return without_escape(ctx);
}

CO_TEST(a_step_that_returns_out_of_a_block_is_told, "")
{
    CO_EXPECT_NULL(
        co_run(ctx, co_default_strategy(ctx), step_without_escape, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "what the step returned is not a live value");
}

CO_TEST(a_block_that_is_ended_inside_its_statement_is_an_error, "")
{
    co_block_begin(ctx);
    CO_BLOCK(ctx) {
        co_block_end(ctx); /* that of the line before */
    }
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "was ended already: inside it");
    CO_BLOCK(ctx) {
        co_block_end(ctx);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open block");
    }
}

CO_TEST(a_copied_statement_ends_once, "")
{
    co_statement block = co_statement_block(ctx), copy = block;

    co_statement_end(&block);
    CO_EXPECT_OK(ctx);
    co_statement_end(&copy);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                    "ended already: inside it, or by a copy of the statement");
    co_statement_end(&copy); /* it is spent */
    CO_EXPECT_OK(ctx);
}

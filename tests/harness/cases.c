/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases with known verdicts, most of them failing, that prove the harness: tests/scripts/harness.sh
 * runs this program and compares. It is no test by itself.
 */
#include "test.h"

#include <pthread.h>
#include <unistd.h>

CO_TEST_BARE(pass_when_all_holds, "H-1 H-2")
{
    CO_EXPECT_TRUE(true);
    CO_EXPECT_FALSE(false);
    CO_EXPECT_INT(-7, -7);
    CO_EXPECT_LESS(1, 2);
    CO_EXPECT_MORE(2, 1);
    CO_EXPECT_CLOSE(1.0, 1.05, 0.1);
    CO_EXPECT_CLOSE(NAN, NAN, 0.0);
    CO_EXPECT_CLOSE(-INFINITY, -INFINITY, 0.0);
    CO_EXPECT_STR("a", "a");
    CO_EXPECT_STR(NULL, NULL);
    CO_EXPECT_CONTAINS("abc", "b");
    CO_EXPECT_NULL(NULL);
    CO_EXPECT_NOT_NULL("");
    CO_EXPECT_BYTES("ab", "ab", 2);
    CO_EXPECT_CODE(CO_VALUE_ERROR, CO_VALUE_ERROR);
    CO_REQUIRE(true);
}

CO_TEST_BARE(fail_int, "H-1")
{
    CO_EXPECT_INT(1 + 1, 3);
}

CO_TEST_BARE(fail_close, "")
{
    CO_EXPECT_CLOSE(1.0, 1.2, 0.1);
}

CO_TEST_BARE(fail_nan_is_close_to_nothing_else, "")
{
    CO_EXPECT_CLOSE(NAN, 0.0, INFINITY);
}

CO_TEST_BARE(fail_infinity_is_close_to_nothing_else, "")
{
    CO_EXPECT_CLOSE(INFINITY, -INFINITY, INFINITY);
}

CO_TEST_BARE(fail_str, "")
{
    CO_EXPECT_STR("a", NULL);
}

CO_TEST_BARE(fail_bytes, "")
{
    CO_EXPECT_BYTES("abc", "abd", 3);
}

CO_TEST_BARE(fail_code, "")
{
    CO_EXPECT_CODE(CO_TYPE_ERROR, CO_VALUE_ERROR);
}

CO_TEST_BARE(fail_without_expectation, "")
{
}

CO_TEST_BARE(fail_by_require_which_ends_the_case, "")
{
    CO_REQUIRE(1 == 2);
    fprintf(stderr, "not reached\n");
}

CO_TEST_BARE(fail_by_exit_inside_the_body, "H-3")
{
    CO_EXPECT_TRUE(true);
    exit(0);
}

CO_TEST_BARE(fail_by_signal, "")
{
    CO_EXPECT_TRUE(true);
    abort();
}

CO_TEST_BARE(fail_by_time, "")
{
    CO_EXPECT_TRUE(true);
    pause();
}

static void *
expect_in_thread(void *unused)
{
    (void)unused;
    CO_EXPECT_INT(5, 6);
    return NULL;
}

CO_TEST_BARE(fail_in_another_thread, "")
{
    pthread_t thread;

    CO_REQUIRE(pthread_create(&thread, NULL, expect_in_thread, NULL) == 0);
    pthread_join(thread, NULL);
}

CO_TEST_BARE(skip_says_why, "H-4")
{
    CO_SKIP("there is no %s", "moon");
}

CO_TEST(pass_with_context, "H-2")
{
    CO_EXPECT_OK(ctx);
    co_fail(ctx, CO_VALUE_ERROR, "the moon is missing");
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "moon");
}

CO_TEST(fail_by_an_error_nobody_cleared, "")
{
    CO_EXPECT_OK(ctx);
    co_fail(ctx, CO_VALUE_ERROR, "the moon is missing");
}

CO_TEST(fail_by_the_wrong_error, "")
{
    co_fail(ctx, CO_VALUE_ERROR, "the moon is missing");
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

CO_TEST_WITH(fail_by_a_setting_that_is_wrong, "", "no_such_setting=1")
{
    CO_EXPECT_TRUE(ctx != NULL);
}

CO_TEST(fail_by_a_context_left_open, "")
{
    CO_EXPECT_NOT_NULL(co_open_beside(ctx));
}

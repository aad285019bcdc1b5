/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unit test harness. A file of tests/unit is one program; each CO_TEST in it is one case, run
 * in a process of its own with an open context called `ctx`:
 *
 *     CO_TEST(add_broadcasts_a_scalar, "GEN-OP-1")
 *     {
 *         co_value *sum = co_add(ctx, co_int(ctx, 1), co_int(ctx, 2));
 *
 *         CO_EXPECT_INT(co_item_int(ctx, sum), 3);
 *     }
 *
 * The name states the behaviour; the second argument lists the rules the case proves, separated by
 * blanks, or is "". A case passes when its body reached its end, evaluated at least one
 * expectation, all of them held, the context was left without an error, closing it gave back all
 * memory, and no sanitizer complained. A case that cannot run here calls CO_SKIP with the reason: a
 * third result, counted apart.
 *
 *     test_values [--list] [--verbose] [--no-fork] [--row NAME] [NAME-PART...]
 *
 * Expectations go on after a failure; CO_REQUIRE ends the case. They may be used from any thread.
 */
#ifndef COHORT_TEST_H
#define COHORT_TEST_H

#include <cohort/cohort.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1 in a build with the address or the thread sanitizer: slower, and every value is an allocation
 * of its own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

typedef struct test_case {
    const char *name;
    const char *rules;
    const char *settings; /* for co_open */
    bool        is_bare;  /* opens its own contexts: ctx is NULL */
    void (*body)(co_context *ctx);
    struct test_case *next;
} test_case;

void test_register(test_case *added);

/*
 * A program whose cases run once for each row of a table defines this; --row NAME chooses the row,
 * whose name joins that of the program in logs. Gives the settings of cases that have none of their
 * own; false, after saying so, if there is no such row.
 */
bool test_take_row(const char *name, const char **settings) __attribute__((weak));

#define TEST_DEFINE(name_, rules_, settings_, is_bare_)                                            \
    static void      name_(co_context *ctx);                                                       \
    static test_case test_case_##name_ = { #name_, rules_, settings_, is_bare_, name_, NULL };     \
    __attribute__((constructor)) static void test_register_##name_(void)                           \
    {                                                                                              \
        test_register(&test_case_##name_);                                                         \
    }                                                                                              \
    static void name_(__attribute__((unused)) co_context *ctx)

/* A case with a context opened with the default settings. */
#define CO_TEST(name, rules) TEST_DEFINE(name, rules, NULL, false)
/* The same with settings, "cpus=2". */
#define CO_TEST_WITH(name, rules, settings) TEST_DEFINE(name, rules, settings, false)
/* A case that opens what it needs itself; ctx is NULL. Its own contexts are its own business to
 * check. */
#define CO_TEST_BARE(name, rules) TEST_DEFINE(name, rules, NULL, true)

/* What the macros below call. Each returns whether the expectation held. */
bool test_true(const char *file, int line, const char *text, bool actual, bool expected);
bool test_int(const char *file, int line, const char *text, intmax_t actual, intmax_t expected);
bool test_compare(const char *file, int line, const char *text, double actual, const char *relation,
                  double limit);
bool test_close(const char *file, int line, const char *text, double actual, double expected,
                double tolerance);
bool test_str(const char *file, int line, const char *text, const char *actual,
              const char *expected);
bool test_contains(const char *file, int line, const char *text, const char *actual,
                   const char *part);
bool test_pointer(const char *file, int line, const char *text, const void *actual,
                  const void *expected);
bool test_bytes(const char *file, int line, const char *text, const void *actual,
                const void *expected, size_t nbytes);
bool test_code(const char *file, int line, const char *text, co_code actual, co_code expected);
bool test_error(const char *file, int line, co_context *ctx, co_code code, const char *part);
bool test_ok(const char *file, int line, co_context *ctx);
void test_fail(const char *file, int line, const char *format, ...) CO_PRINTF(3, 4);
_Noreturn void test_end(void);
/* The end of a child that a case has forked: status 0 if it was right. */
_Noreturn void test_end_child(bool is_right);
_Noreturn void test_skip(const char *format, ...) CO_PRINTF(1, 2);
void           test_count_as_skipped(const char *format, ...) CO_PRINTF(1, 2);

#define TEST_AT __FILE__, __LINE__

#define CO_EXPECT_TRUE(e)  test_true(TEST_AT, #e, (e), true)
#define CO_EXPECT_FALSE(e) test_true(TEST_AT, #e, (e), false)
#define CO_EXPECT_INT(actual, expected)                                                            \
    test_int(TEST_AT, #actual, (intmax_t)(actual), (intmax_t)(expected))
#define CO_EXPECT_LESS(actual, limit)                                                              \
    test_compare(TEST_AT, #actual, (double)(actual), "<", (double)(limit))
#define CO_EXPECT_MORE(actual, limit)                                                              \
    test_compare(TEST_AT, #actual, (double)(actual), ">", (double)(limit))
/* |actual - expected| <= tolerance; NaN is close to NaN, an infinity to itself. */
#define CO_EXPECT_CLOSE(actual, expected, tolerance)                                               \
    test_close(TEST_AT, #actual, (double)(actual), (double)(expected), (double)(tolerance))
#define CO_EXPECT_STR(actual, expected)  test_str(TEST_AT, #actual, (actual), (expected))
#define CO_EXPECT_CONTAINS(actual, part) test_contains(TEST_AT, #actual, (actual), (part))
#define CO_EXPECT_PTR(actual, expected)  test_pointer(TEST_AT, #actual, (actual), (expected))
#define CO_EXPECT_NULL(actual)           test_pointer(TEST_AT, #actual, (actual), NULL)
#define CO_EXPECT_NOT_NULL(actual)       test_true(TEST_AT, #actual " != NULL", (actual) != NULL, true)
#define CO_EXPECT_BYTES(actual, expected, nbytes)                                                  \
    test_bytes(TEST_AT, #actual, (actual), (expected), (nbytes))
/* A returned code. */
#define CO_EXPECT_CODE(actual, expected) test_code(TEST_AT, #actual, (actual), (expected))
/* The context has an error of this code; its message contains `part` (NULL: any). The error is
 * cleared. */
#define CO_EXPECT_ERROR(ctx, code, part) test_error(TEST_AT, (ctx), (code), (part))
/* The context has no error; one it has is printed and cleared. */
#define CO_EXPECT_OK(ctx) test_ok(TEST_AT, (ctx))

#define CO_FAIL(...)                                                                               \
    do {                                                                                           \
        test_fail(TEST_AT, __VA_ARGS__);                                                           \
        test_end();                                                                                \
    } while (0)
#define CO_REQUIRE(e)                                                                              \
    do {                                                                                           \
        if (!test_true(TEST_AT, #e, (e), true))                                                    \
            test_end();                                                                            \
    } while (0)
/* Only from the thread of the body, before anything else was expected. */
#define CO_SKIP(...) test_skip(__VA_ARGS__)
/* The same of a case that goes on to its end, and may still fail. */
#define CO_COUNT_AS_SKIPPED(...) test_count_as_skipped(__VA_ARGS__)

/*
 * Run body once for n = 0, 1, 2, ... with the n-th allocation of the library failing, until a run
 * needs fewer. body is given a fresh context (NULL if there was no memory for one) each time and
 * returns whether its work was done. Checks that no run leaks, that a run with a failed allocation
 * reports CO_RESOURCE_EXHAUSTED, and that the last run succeeds.
 */
void test_each_allocation(const char *file, int line, const char *settings,
                          bool (*body)(co_context *ctx));
#define CO_EXPECT_SURVIVES_NO_MEMORY(settings, body)                                               \
    test_each_allocation(TEST_AT, (settings), (body))

#endif

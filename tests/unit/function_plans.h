/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of plans share: counts of plans and of their runs, and calls from two threads. */
#ifndef COHORT_TESTS_FUNCTION_PLANS_H
#define COHORT_TESTS_FUNCTION_PLANS_H

#include "function_worlds.h"

#include <pthread.h>

static inline co_function_stats
stats_of(co_context *ctx, const co_function *f)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    co_function_get_stats(ctx, f, &stats);
    return stats;
}

/* Where any request for memory may fail, also those of the comparison. */
static inline void
expect_same_if_ok(co_context *ctx, const world *eager, const world *captured, co_value *a,
                  co_value *b)
{
    if (co_ok(ctx))
        expect_same(ctx, a, b);
    for (int i = 0; i < 4 && eager->variables[i] != NULL; ++i) {
        a = co_variable_read(ctx, eager->variables[i]);
        b = co_variable_read(ctx, captured->variables[i]);
        if (co_ok(ctx))
            expect_same(ctx, a, b);
    }
}

/* A thread that compares a function with `eager`, which gives one tensor of floats. */
typedef struct calling_thread {
    co_context  *ctx;
    co_function *function;
    co_fn        eager;
    co_value *(*argument)(co_context *ctx, int i);
    int times, wrong;
} calling_thread;

static inline void *
call_often(void *arg)
{
    calling_thread *t = arg;
    co_context     *ctx = t->ctx;

    for (int i = 0; i < t->times; ++i)
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, t->argument(ctx, i));
            co_value *a = t->eager(ctx, args, NULL), *b = co_call(ctx, t->function, args);

            t->wrong += a == NULL || b == NULL ||
                        co_value_num_elements(ctx, a) != co_value_num_elements(ctx, b) ||
                        memcmp(co_value_data(ctx, a), co_value_data(ctx, b),
                               (size_t)co_value_num_elements(ctx, a) * sizeof(float)) != 0;
        }
    return NULL;
}

/* Two threads call a function at the same time. */
static inline void
call_from_two(co_context *ctx, const calling_thread *what)
{
    calling_thread both[2] = { *what, *what };
    pthread_t      threads[2];

    for (int i = 0; i < 2; ++i)
        CO_REQUIRE((both[i].ctx = co_open_beside(ctx)) != NULL);
    for (int i = 0; i < 2; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, call_often, &both[i]) == 0);
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        CO_EXPECT_INT(both[i].wrong, 0);
        CO_EXPECT_OK(both[i].ctx);
        co_close(both[i].ctx);
    }
}

#endif

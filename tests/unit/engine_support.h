/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the engine share. */
#ifndef COHORT_TEST_ENGINE_SUPPORT_H
#define COHORT_TEST_ENGINE_SUPPORT_H

#include "test.h"

#include <time.h>

/* n replicas on /cpu:0 and /cpu:1 (one on /cpu:0 alone): open with "cpus=2". */
static inline co_strategy *
test_mirrored(co_context *ctx, int n, int deadline_ms)
{
    static const char *const names[] = { "/cpu:0", "/cpu:1" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = n;
    if (deadline_ms >= 0)
        options.deadline_ms = deadline_ms;
    return co_mirrored_strategy(ctx, names, n == 1 ? 1 : 2, &options);
}

static inline double
test_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline void
test_rest_ms(int ms)
{
    struct timespec rest = { ms / 1000, ms % 1000 * 1000000L };

    nanosleep(&rest, NULL);
}

#endif

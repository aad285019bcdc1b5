/* SPDX-License-Identifier: Apache-2.0 */
/* A body in a runtime of its own, again and again: each time another request for memory fails. */
#ifndef COHORT_TESTS_FAILING_REQUESTS_H
#define COHORT_TESTS_FAILING_REQUESTS_H

#include "hooks.h"
#include "test.h"

/* The body says whether all went well. Where it did not, want of memory is the reason, and nothing
 * is left behind; some failures do not matter to it. */
static inline void
expect_survival(bool (*body)(co_context *ctx))
{
    bool done = false;
    int  survived = 0;

    for (long long n = 1; !done; ++n) {
        test_hooks  hooks;
        co_options  options = CO_OPTIONS_INIT;
        co_context *own;

        test_hooks_init(&hooks, n);
        options.allocator = &hooks.allocator;
        own = co_open_with(&options);
        if (own != NULL) {
            bool right = body(own);

            CO_EXPECT_TRUE(right || co_error(own)->code == CO_RESOURCE_EXHAUSTED);
            done = atomic_load(&hooks.requests) < n;
            survived += right && !done;
            co_clear(own);
            co_close(own);
        }
        CO_EXPECT_INT(atomic_load(&hooks.blocks), 0);
    }
    CO_EXPECT_MORE(survived, 0);
}

#endif

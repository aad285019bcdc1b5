/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator for tests of the layers below the context: it counts what is alive, refuses the n-th
 * request, and can have a limit of bytes.
 */
#ifndef COHORT_TEST_HOOKS_H
#define COHORT_TEST_HOOKS_H

#include <cohort/context.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct test_hooks {
    co_allocator allocator;
    atomic_llong blocks; /* alive */
    atomic_llong bytes;
    atomic_llong requests;
    long long    fail_at; /* the request that fails, counted from 1; 0: none */
    long long    limit;   /* of bytes alive */
} test_hooks;

static inline void *
test_hooks_alloc(size_t nbytes, size_t alignment, void *user)
{
    test_hooks *hooks = user;
    void       *block = NULL;

    if (atomic_fetch_add(&hooks->requests, 1) + 1 == hooks->fail_at)
        return NULL;
    if (atomic_load(&hooks->bytes) + (long long)nbytes > hooks->limit)
        return NULL;
    if (posix_memalign(&block, alignment, nbytes) != 0)
        return NULL;
    atomic_fetch_add(&hooks->blocks, 1);
    atomic_fetch_add(&hooks->bytes, (long long)nbytes);
    return block;
}

static inline void
test_hooks_free(void *memory, size_t nbytes, void *user)
{
    test_hooks *hooks = user;

    atomic_fetch_sub(&hooks->blocks, 1);
    atomic_fetch_sub(&hooks->bytes, (long long)nbytes);
    free(memory);
}

static inline void
test_hooks_init(test_hooks *hooks, long long fail_at)
{
    hooks->allocator = (co_allocator){ test_hooks_alloc, test_hooks_free, hooks };
    atomic_init(&hooks->blocks, 0);
    atomic_init(&hooks->bytes, 0);
    atomic_init(&hooks->requests, 0);
    hooks->fail_at = fail_at;
    hooks->limit = INT64_MAX / 2;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies of several workers in one process: each rank is a thread with a runtime of its own. */
#ifndef COHORT_TEST_RANK_SUPPORT_H
#define COHORT_TEST_RANK_SUPPORT_H

#include "collective/local/ranks.h"
#include "engine_support.h"

#include <pthread.h>

#define TEST_MAX_RANKS 4

typedef struct test_rank {
    coi_thread_rank rank_slot;
    int             rank, num_replicas, deadline_ms;
    const char     *settings;
    void (*body)(co_context *ctx, co_strategy *strategy, int rank, void *user);
    void *user;
} test_rank;

static inline void *
test_be_rank(void *arg)
{
    test_rank                       *r = arg;
    co_context                      *ctx = co_open(r->settings);
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_strategy                     *strategy;

    options.transport = "threads";
    options.communicator = &r->rank_slot;
    options.num_replicas = r->num_replicas;
    if (r->deadline_ms >= 0)
        options.deadline_ms = r->deadline_ms;
    strategy = co_multi_worker_mirrored_strategy(ctx, &options);
    CO_EXPECT_NOT_NULL(strategy);
    if (strategy != NULL)
        r->body(ctx, strategy, r->rank, r->user);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

/* Run body on every rank, with replicas in all spread over them. `settings` may be NULL. */
static inline void
test_on_ranks(int size, int num_replicas, int deadline_ms, const char *settings,
              void (*body)(co_context *ctx, co_strategy *strategy, int rank, void *user),
              void *user)
{
    coi_memory        memory;
    coi_thread_world *world;
    co_error_info     err;
    test_rank         ranks[TEST_MAX_RANKS];
    pthread_t         threads[TEST_MAX_RANKS];

    coi_memory_init(&memory, NULL);
    coi_error_reset(&err);
    CO_REQUIRE(coi_thread_world_create(&memory, size, &world, &err) == CO_OK);
    for (int r = 0; r < size; ++r) {
        ranks[r] = (test_rank){ { world, r }, r, num_replicas, deadline_ms, settings, body, user };
        CO_REQUIRE(pthread_create(&threads[r], NULL, test_be_rank, &ranks[r]) == 0);
    }
    for (int r = 0; r < size; ++r)
        pthread_join(threads[r], NULL);
    coi_thread_world_destroy(world);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies of several workers without a launcher: every worker is a thread with a runtime of its
 * own, joined by the transport "threads", which behaves as processes over MPI do.
 */
#ifndef COHORT_TEST_WORKERS_SUPPORT_H
#define COHORT_TEST_WORKERS_SUPPORT_H

#include "collective/local/ranks.h"
#include "test.h"

#include <pthread.h>

#define TEST_MAX_WORKERS 4

typedef void (*test_worker_body)(co_context *ctx, int rank,
                                 const co_multi_worker_mirrored_options *options, void *user);

typedef struct test_worker {
    coi_thread_rank  rank_slot;
    test_worker_body body;
    void            *user;
} test_worker;

static void *
test_be_worker(void *arg)
{
    test_worker                     *self = arg;
    co_context                      *ctx = co_open("cpus=2");
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.transport = "threads";
    options.communicator = &self->rank_slot;
    options.num_replicas = 4; /* whoever hosts them */
    self->body(ctx, self->rank_slot.rank, &options, self->user);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

/* Run body in `size` workers; options are ready for co_multi_worker_mirrored_strategy. */
static inline void
test_workers(int size, test_worker_body body, void *user)
{
    coi_memory        memory;
    coi_thread_world *world;
    pthread_t         threads[TEST_MAX_WORKERS];
    test_worker       workers[TEST_MAX_WORKERS];

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_thread_world_create(&memory, size, &world, NULL) == CO_OK);
    for (int r = 0; r < size; ++r) {
        workers[r] = (test_worker){ { world, r }, body, user };
        CO_REQUIRE(pthread_create(&threads[r], NULL, test_be_worker, &workers[r]) == 0);
    }
    for (int r = 0; r < size; ++r)
        pthread_join(threads[r], NULL);
    coi_thread_world_destroy(world);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Replica threads: which cores they are bound to, when they wake on the caller's core, and that
 * they return to their own. */
#include "strategy/replica_threads.h"
#include "engine_support.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { MOST_REPLICAS = 4, LONG_NS = 3000000 };

/* What each replica sees of its thread in a step. */
typedef struct view {
    int       core[MOST_REPLICAS], policy[MOST_REPLICAS];
    cpu_set_t mask[MOST_REPLICAS];
    uint64_t  work_ns; /* of its processor */
} view;

static co_value *
look(co_context *ctx, co_value *args, void *user)
{
    view    *v = user;
    int      i = co_replica_id(ctx);
    uint64_t until_ns = coi_thread_used_ns() + v->work_ns;

    v->core[i] = sched_getcpu();
    v->policy[i] = sched_getscheduler(0);
    sched_getaffinity(0, sizeof(v->mask[i]), &v->mask[i]);
    while (coi_thread_used_ns() < until_ns)
        ;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

static void
run_and_look(co_context *ctx, co_strategy *s, view *v)
{
    CO_BLOCK(ctx) {
        co_value *sums = co_run(ctx, s, look, co_args(ctx, co_scalar_float(ctx, 1)), v);
        int       n = co_num_replicas_in_sync(ctx, s);

        CO_EXPECT_INT(co_item_float(ctx, co_at(ctx, sums, (size_t)n - 1)), n);
    }
}

static coi_replica_threads *
idle_replica_threads(co_strategy *s)
{
    return atomic_load(&s->first_threads);
}

static void
await_sleep(coi_replica_threads *threads)
{
    for (int i = 1; i < threads->n; ++i)
        while (!coi_event_has_sleepers(&threads->replicas[i].go))
            usleep(100);
}

/* Such as a program has whose steps were short for some time, and that rests now. */
static void
expect_short_steps(coi_replica_threads *threads)
{
    await_sleep(threads);
    threads->wakes_here = true;
    threads->num_short = threads->backoff;
    threads->ended_ns = 0;
}

static int
num_cores(void)
{
    cpu_set_t mine;

    return sched_getaffinity(0, sizeof(mine), &mine) == 0 ? CPU_COUNT(&mine) : 0;
}

/* Bind the caller to the n-th core it may use; false when there are fewer. */
static bool
stay_on(const cpu_set_t *mine, int n)
{
    cpu_set_t only;

    for (size_t core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, mine) && n-- == 0) {
            CPU_ZERO(&only);
            CPU_SET(core, &only);
            return sched_setaffinity(0, sizeof(only), &only) == 0;
        }
    return false;
}

/* On the caller's core they are batch threads; on their own cores they are what they were
 * before. */
CO_TEST_WITH(threads_return_to_their_cores_when_steps_follow_each_other, "", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 4, -1);
    view         v = { .work_ns = 0 };
    cpu_set_t    mine;
    int          was_on_core = 0;

    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    CO_REQUIRE(stay_on(&mine, 0)); /* so that nobody settles anew */
    run_and_look(ctx, s, &v);
    for (int i = 0; i < 50; ++i) {
        coi_replica_threads *threads = idle_replica_threads(s);

        expect_short_steps(threads);
        run_and_look(ctx, s, &v);
        for (int r = 1; r < MOST_REPLICAS; ++r) {
            CO_EXPECT_TRUE(threads->replicas[r].on_callers_core);
            if (v.policy[r] != SCHED_BATCH)
                continue; /* it had to wait for the core, and went back to its own */
            ++was_on_core;
            CO_EXPECT_TRUE(CPU_ISSET((size_t)threads->core, &v.mask[r]));
        }
        threads->wakes_here = false;
        run_and_look(ctx, s, &v); /* whether they have fallen asleep by now or not */
        for (int r = 1; r < MOST_REPLICAS; ++r) {
            CO_EXPECT_INT(v.policy[r], SCHED_OTHER);
            CO_EXPECT_INT(CPU_COUNT(&v.mask[r]), 1);
            CO_EXPECT_FALSE(threads->replicas[r].on_callers_core);
        }
    }
    CO_EXPECT_MORE(was_on_core, 0);
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
}

/* A long step that began on one core costs its parallelism once: it takes many short ones until
 * threads share the core again. */
CO_TEST_WITH(a_long_step_after_short_ones_is_learned_from, "", "cpus=2")
{
    co_strategy         *s = test_mirrored(ctx, 2, -1);
    view                 v = { .work_ns = 0 };
    coi_replica_threads *threads;
    cpu_set_t            mine;
    int                  backoff;

    if (num_cores() < 2)
        CO_SKIP("needs two cores");
    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    CO_REQUIRE(stay_on(&mine, 0));
    run_and_look(ctx, s, &v);
    threads = idle_replica_threads(s);
    backoff = threads->backoff;
    v.work_ns = LONG_NS;
    for (int i = 0; i < 50 && threads->backoff == backoff; ++i) {
        expect_short_steps(threads);
        run_and_look(ctx, s, &v);
        CO_EXPECT_INT(threads->num_short, 0);
    }
    backoff = threads->backoff;
    CO_EXPECT_MORE(backoff, LONG_NS / 100000 - 1);
    /* Long ones on cores of their own neither hurt nor help; short ones count. */
    await_sleep(threads);
    run_and_look(ctx, s, &v);
    CO_EXPECT_FALSE(threads->replicas[1].on_callers_core);
    CO_EXPECT_INT(threads->backoff, backoff);
    v.work_ns = 0;
    for (int i = 0; i < 50 && threads->num_short < 3;
         ++i) { /* waiting is work, too, where it takes long */
        await_sleep(threads);
        threads->wakes_here = true;
        threads->ended_ns = 0;
        run_and_look(ctx, s, &v);
        CO_EXPECT_FALSE(threads->replicas[1].on_callers_core);
    }
    CO_EXPECT_MORE(threads->num_short, 0);
    /* And once they have earned it, all is forgotten. */
    for (int i = 0; i < 50 && threads->backoff >= backoff; ++i) {
        expect_short_steps(threads);
        run_and_look(ctx, s, &v);
    }
    CO_EXPECT_LESS(threads->backoff, backoff);
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
}

/* However long the step was, and however quick a core woke. */
CO_TEST_BARE(backoff_has_an_end, "")
{
    coi_replica_worker  replicas[2] = { { .core = 5 }, { .core = 5 } };
    coi_replica_threads threads = {
        .replicas = replicas, .n = 2, .core = 5, .is_rested = true, .backoff = 4
    };

    threads.shares_core = true;
    threads.used_ns = coi_thread_used_ns() - UINT64_C(3600000000000);
    threads.num_short = 7;
    coi_replica_threads_rest(&threads); /* with wake_ns 0 */
    CO_EXPECT_INT(threads.num_short, 0);
    CO_EXPECT_MORE(threads.backoff, 1000);
    CO_EXPECT_LESS(threads.backoff, 10000);
    CO_EXPECT_FALSE(threads.wakes_here);
    threads.is_rested = false; /* steps without a rest say nothing */
    threads.num_short = 7;
    coi_replica_threads_rest(&threads);
    CO_EXPECT_INT(threads.num_short, 7);
    threads.is_rested = true;
    threads.backoff = 4;
    threads.wake_ns = 100000;
    threads.used_ns = coi_thread_used_ns() - 260000; /* long, but no dear guess */
    coi_replica_threads_rest(&threads);
    CO_EXPECT_INT(threads.num_short, 0);
    CO_EXPECT_INT(threads.backoff, 4);
    threads.shares_core = false; /* the core is its own */
    threads.used_ns = coi_thread_used_ns() - UINT64_C(3600000000000);
    coi_replica_threads_rest(&threads);
    CO_EXPECT_INT(threads.backoff, 4);
    CO_EXPECT_INT(threads.wake_ns, 100000); /* nobody woke a core */
}

/* A program that was started by chrt has its policy on all its threads, and keeps it. */
CO_TEST_WITH(replicas_keep_the_policy_of_the_program, "", "cpus=2")
{
    struct sched_param none = { 0 };
    view               v = { .work_ns = 0 };
    cpu_set_t          mine;
    co_strategy       *s = test_mirrored(ctx, 2, -1);

    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    CO_REQUIRE(sched_setscheduler(0, SCHED_BATCH, &none) == 0);
    for (int i = 0; i < 12; ++i) {
        coi_replica_threads *threads = idle_replica_threads(s);

        stay_on(&mine, i % 2); /* they settle here and there */
        if (threads != NULL && i % 3 == 0)
            expect_short_steps(threads);
        run_and_look(ctx, s, &v);
        CO_EXPECT_INT(v.policy[1], SCHED_BATCH);
    }
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
    CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
}

/* The first step begins while the threads are still starting, wherever the caller is. */
CO_TEST_BARE(threads_that_start_live_where_the_first_step_wants_them, "")
{
    cpu_set_t mine;

    if (num_cores() < 2)
        CO_SKIP("needs two cores");
    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    for (int i = 0; i < 20; ++i) {
        view        v = { .work_ns = 0 };
        co_context *own;

        own = co_open("cpus=2");
        CO_REQUIRE(stay_on(&mine, i % 2));
        run_and_look(own, test_mirrored(own, 2, -1), &v);
        CO_EXPECT_INT(CPU_COUNT(&v.mask[1]), 1);
        CO_EXPECT_TRUE(CPU_ISSET((size_t)v.core[1], &v.mask[1]));
        if (CPU_COUNT(&mine) == 2) /* else the caller's core may be no device's first one */
            CO_EXPECT_TRUE(v.core[1] != v.core[0]);
        CO_EXPECT_CODE(co_close(own), CO_OK);
        CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
    }
}

/* Cores that come and go while it runs: every sum is right, and nobody lives on the caller's core
 * who has another. */
CO_TEST_WITH(the_caller_may_move_between_steps, "S-RUN-1", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 4, -1);
    view         v = { .work_ns = 0 };
    cpu_set_t    mine;

    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    for (int i = 0; i < 60; ++i) {
        if (i % 3 == 2)
            CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
        else
            stay_on(&mine, i % 2);
        usleep(i % 5 == 0 ? 1000 : 0);
        for (int k = 0; k < 10; ++k)
            run_and_look(ctx, s, &v);
    }
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
}

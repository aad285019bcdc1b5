/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: every chunk once, from any number of callers, under every mishap. */
#include "base/sanitize.h"
#include "base/threads.h"
#include "hooks.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOWER = COI_SANITIZED ? 10 : 1 };

enum { MAX_CHUNKS = 1000 };

/* A team with what it borrows. */
typedef struct bench {
    test_hooks  hooks;
    coi_memory  memory;
    coi_waiting waiting;
    coi_team   *team;
} bench;

static void
set_up(bench *b, int size, long long fail_at)
{
    test_hooks_init(&b->hooks, fail_at);
    coi_memory_init(&b->memory, &b->hooks.allocator);
    coi_waiting_init(&b->waiting, 2, 20);
    CO_REQUIRE(coi_team_create(&b->memory, "test", NULL, size, &b->waiting, &b->team, NULL) ==
               CO_OK);
}

static void
tear_down(bench *b)
{
    coi_team_destroy(b->team);
    CO_EXPECT_INT(b->hooks.blocks, 0);
    CO_EXPECT_INT(b->memory.bytes_in_use, 0);
    CO_EXPECT_INT(b->waiting.running, 0);
}

/* Plain memory: each chunk has its own place, and the end of the run makes all of them visible. */
typedef struct marks {
    int       times[MAX_CHUNKS];
    coi_team *team; /* for nested runs */
} marks;

static void
mark(void *arg, int64_t chunk)
{
    ++((marks *)arg)->times[chunk];
}

static void
run_and_check(coi_team *team, int64_t num_chunks)
{
    marks m;

    memset(&m, 0, sizeof(m));
    coi_team_run(team, num_chunks, mark, &m);
    for (int64_t i = 0; i < num_chunks; ++i)
        if (m.times[i] != 1)
            CO_FAIL("chunk %lld of %lld ran %d times", (long long)i, (long long)num_chunks,
                    m.times[i]);
}

CO_TEST_BARE(every_chunk_runs_once_for_every_size_of_team_and_job, "")
{
    static const int sizes[] = { -1, 0, 1, 2, 3, 8 };
    static const int jobs[] = { -1, 0, 1, 2, 3, 7, 17, MAX_CHUNKS };

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); ++s) {
        bench b;

        set_up(&b, sizes[s], 0);
        CO_EXPECT_INT(coi_team_size(b.team), sizes[s] < 1 ? 1 : sizes[s]);
        for (size_t j = 0; j < sizeof(jobs) / sizeof(jobs[0]); ++j)
            run_and_check(b.team, jobs[j]);
        tear_down(&b);
    }
}

CO_TEST_BARE(thousands_of_runs_lose_nothing, "")
{
    bench b;

    set_up(&b, 3, 0);
    for (int i = 0; i < 20000 / SLOWER; ++i)
        run_and_check(b.team, 2 + i % 9);
    tear_down(&b);
}

static void
rest(void *arg, int64_t chunk)
{
    struct timespec t = { 0, 100000 + (long)chunk % 3 * 100000 };

    nanosleep(&t, NULL);
    mark(arg, chunk);
}

/* Workers fall asleep between and during the jobs, and still every job ends complete. */
CO_TEST_BARE(runs_after_a_rest_are_complete, "")
{
    bench b;

    set_up(&b, 4, 0);
    for (int i = 0; i < 100; ++i) {
        marks m;

        memset(&m, 0, sizeof(m));
        coi_team_run(b.team, 5, rest, &m);
        for (int k = 0; k < 5; ++k)
            CO_REQUIRE(m.times[k] == 1);
    }
    tear_down(&b);
}

CO_TEST_BARE(workers_start_at_the_first_job_that_needs_them, "")
{
    bench     b;
    long long before;

    set_up(&b, 3, 0);
    before = b.hooks.requests;
    run_and_check(b.team, 0);
    run_and_check(b.team, 1);
    CO_EXPECT_INT(b.hooks.requests, before);
    run_and_check(b.team, 2);
    CO_EXPECT_INT(b.hooks.requests, before + 2);
    run_and_check(b.team, 100);
    CO_EXPECT_INT(b.hooks.requests, before + 2);
    tear_down(&b);
}

static void
mark_nested(void *arg, int64_t chunk)
{
    marks *m = arg;
    marks  inner;

    memset(&inner, 0, sizeof(inner));
    coi_team_run(m->team, 5, mark, &inner);
    for (int i = 0; i < 5; ++i)
        m->times[chunk] += inner.times[i];
}

CO_TEST_BARE(a_run_inside_a_chunk_runs_alone, "")
{
    bench b;
    marks m;

    set_up(&b, 3, 0);
    memset(&m, 0, sizeof(m));
    m.team = b.team;
    coi_team_run(b.team, 50, mark_nested, &m);
    for (int i = 0; i < 50; ++i)
        CO_REQUIRE(m.times[i] == 5);
    CO_EXPECT_INT(m.times[49], 5);
    tear_down(&b);
}

static void *
run_often(void *arg)
{
    for (int i = 0; i < 3000 / SLOWER; ++i)
        run_and_check(arg, 2 + i % 5);
    return NULL;
}

CO_TEST_BARE(several_callers_at_once_all_get_their_work_done, "")
{
    bench     b;
    pthread_t threads[3];

    set_up(&b, 3, 0);
    for (size_t i = 0; i < 3; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, run_often, b.team) == 0);
    run_often(b.team);
    for (size_t i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    run_and_check(b.team, MAX_CHUNKS);
    tear_down(&b);
}

/* With no memory for some workers, or for none, the work is done by those there are. */
CO_TEST_BARE(each_allocation_of_a_team_may_fail, "")
{
    for (long long n = 1; n <= 5; ++n) {
        test_hooks    hooks;
        coi_memory    memory;
        coi_waiting   waiting;
        coi_team     *team = NULL;
        co_error_info err;

        coi_error_reset(&err);
        test_hooks_init(&hooks, n);
        coi_memory_init(&memory, &hooks.allocator);
        coi_waiting_init(&waiting, 2, 20);
        if (coi_team_create(&memory, "t", NULL, 4, &waiting, &team, &err) != CO_OK) {
            CO_EXPECT_INT(n, 1);
            CO_EXPECT_CODE(err.code, CO_RESOURCE_EXHAUSTED);
            CO_EXPECT_NULL(team);
        } else {
            for (int i = 0; i < 10; ++i)
                run_and_check(team, 20);
            coi_team_destroy(team);
        }
        CO_EXPECT_INT(hooks.blocks, 0);
    }
    coi_team_destroy(NULL);
}

static void
see_blocked(void *arg, int64_t chunk)
{
    struct timespec t = { 0, 2000000 };
    sigset_t        blocked;

    (void)chunk;
    nanosleep(&t, NULL); /* long enough that workers take part */
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (sigismember(&blocked, SIGUSR1) == 1)
        atomic_fetch_add((atomic_int *)arg, 1);
}

CO_TEST_BARE(workers_take_part_and_block_signals, "")
{
    bench      b;
    atomic_int on_workers;

    atomic_init(&on_workers, 0);
    set_up(&b, 4, 0);
    coi_team_run(b.team, 40, see_blocked, &on_workers);
    CO_EXPECT_MORE(on_workers, 0);
    CO_EXPECT_LESS(on_workers, 40); /* the caller's share: its mask is as it was */
    tear_down(&b);
}

static uint64_t
process_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

CO_TEST_BARE(an_idle_team_uses_no_processor_time, "")
{
    bench           b;
    struct timespec t = { 0, 300000000 };
    uint64_t        used_ns;

    set_up(&b, 4, 0);
    for (int i = 0; i < 100; ++i)
        run_and_check(b.team, 8);
    nanosleep(&(struct timespec){ 0, 20000000 }, NULL); /* let them fall asleep */
    CO_EXPECT_INT(b.waiting.running, 0);
    used_ns = process_ns();
    nanosleep(&t, NULL);
    used_ns = process_ns() - used_ns;
    CO_EXPECT_LESS(used_ns, 300e3 * SLOWER); /* under 1 ms a second */
    tear_down(&b);
}

/* The workers stay behind in the parent; the child has the memory and works alone. */
CO_TEST_BARE(a_forked_child_runs_alone, "")
{
    bench b;
    pid_t child;
    int   status = -1;

    set_up(&b, 3, 0);
    run_and_check(b.team, 10);
    child = fork();
    CO_REQUIRE(child >= 0);
    if (child == 0) {
        marks m;
        int   wrong = 0;

        memset(&m, 0, sizeof(m));
        for (int i = 0; i < 100; ++i)
            coi_team_run(b.team, 10, mark, &m);
        for (int i = 0; i < 10; ++i)
            wrong += m.times[i] != 100;
        coi_team_destroy(b.team);
        test_end_child(wrong == 0 && b.hooks.blocks == 0);
    }
    CO_REQUIRE(waitpid(child, &status, 0) == child);
    CO_EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    run_and_check(b.team, 10);
    tear_down(&b);
}

CO_TEST_BARE(a_team_may_end_at_any_moment_after_a_run, "")
{
    for (int i = 0; i < 200 / SLOWER; ++i) {
        bench b;

        set_up(&b, 4, 0);
        for (int k = 0; k < i % 4; ++k)
            run_and_check(b.team, 6);
        tear_down(&b);
    }
}

typedef struct helped {
    pthread_t  caller;
    atomic_int by_workers;
} helped;

/* Long enough for a worker to come that was woken. */
static void
note_helper(void *arg, int64_t chunk)
{
    helped *h = arg;

    (void)chunk;
    if (!pthread_equal(pthread_self(), h->caller))
        atomic_fetch_add(&h->by_workers, 1);
    nanosleep(&(struct timespec){ 0, 200000 }, NULL);
}

static void
let_sleep(const bench *b)
{
    nanosleep(&(struct timespec){ 0, 20000000 }, NULL); /* one that has just started comes first */
    while (atomic_load(&b->waiting.running) > 0)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* Waking a worker costs 20 us, of which a job of 1 us for two could have saved half a microsecond:
 * it is woken for the 40th. */
CO_TEST_BARE(short_jobs_wake_workers_when_enough_of_them_were_missed, "")
{
    bench  b;
    helped h = { .caller = pthread_self() };
    int    jobs = 0;

    atomic_init(&h.by_workers, 0);
    set_up(&b, 2, 0);
    run_and_check(b.team, 2); /* starts it */
    let_sleep(&b);
    coi_team_run_for(b.team, 2, 1000000, note_helper, &h); /* wakes it: nothing is missed yet */
    let_sleep(&b);
    atomic_store(&h.by_workers, 0);
    for (; jobs < 39; ++jobs)
        coi_team_run_for(b.team, 2, 1000, note_helper, &h);
    CO_EXPECT_INT(atomic_load(&h.by_workers), 0);
    for (; jobs < 39 + 100 * 40 && atomic_load(&h.by_workers) == 0; ++jobs)
        coi_team_run_for(b.team, 2, 1000, note_helper, &h);
    CO_EXPECT_INT(atomic_load(&h.by_workers) > 0, 1);
    tear_down(&b);
}

CO_TEST_BARE(a_long_job_wakes_workers_at_once, "")
{
    bench  b;
    helped h = { .caller = pthread_self() };

    atomic_init(&h.by_workers, 0);
    set_up(&b, 2, 0);
    run_and_check(b.team, 2);
    for (int i = 0; i < 100 && atomic_load(&h.by_workers) == 0; ++i) { /* one may come too late */
        let_sleep(&b);
        coi_team_run_for(b.team, 8, 1000000, note_helper, &h);
    }
    CO_EXPECT_INT(atomic_load(&h.by_workers) > 0, 1);
    tear_down(&b);
}

/* Nothing is known of how long it takes, so nothing is put off. */
CO_TEST_BARE(a_job_without_an_estimate_wakes_workers_each_time, "")
{
    bench b;
    int   helped_jobs = 0;

    set_up(&b, 2, 0);
    run_and_check(b.team, 2);
    for (int i = 0; i < 20; ++i) {
        helped h = { .caller = pthread_self() };

        atomic_init(&h.by_workers, 0);
        let_sleep(&b);
        coi_team_run(b.team, 3, note_helper, &h);
        helped_jobs += atomic_load(&h.by_workers) > 0;
    }
    CO_EXPECT_MORE(helped_jobs, 14); /* some may come too late; half of them if each second wakes */
    tear_down(&b);
}

CO_TEST_BARE(short_jobs_are_complete_with_and_without_workers, "")
{
    for (int size = 1; size <= 4; ++size) {
        bench b;

        set_up(&b, size, 0);
        for (int i = 0; i < 2000 / SLOWER; ++i) {
            int64_t num_chunks = 1 + i % 9;
            marks   m;

            memset(&m, 0, sizeof(m));
            coi_team_run_for(b.team, num_chunks, i % 3 * 3000, mark, &m);
            for (int k = 0; k < MAX_CHUNKS; ++k)
                CO_REQUIRE(m.times[k] == (k < num_chunks));
        }
        tear_down(&b);
    }
}

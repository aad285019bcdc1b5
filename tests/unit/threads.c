/* SPDX-License-Identifier: Apache-2.0 */
/* Locks, events and threads: that nothing is lost, and that waiting costs what it should. */
#include "base/threads.h"
#include "hooks.h"
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t
cpu_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void
rest_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

typedef struct counted {
    coi_lock   lock;
    long       count; /* no atomic: the lock is what protects it */
    atomic_int held;
} counted;

static void *
count_under_lock(void *arg)
{
    counted *c = arg;

    for (int i = 0; i < 20000; ++i) {
        coi_lock_take(&c->lock);
        ++c->count;
        coi_lock_give(&c->lock);
    }
    return NULL;
}

CO_TEST_BARE(a_lock_lets_one_in_at_a_time, "")
{
    counted   c = { .count = 0 };
    pthread_t threads[4];

    coi_lock_init(&c.lock);
    for (size_t i = 0; i < 4; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, count_under_lock, &c) == 0);
    for (size_t i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CO_EXPECT_INT(c.count, 80000);
    CO_EXPECT_INT(c.lock.word, 0);
}

static void *
hold_for_a_while(void *arg)
{
    counted *c = arg;

    coi_lock_take(&c->lock);
    c->count = 1;
    atomic_store(&c->held, 1);
    rest_ms(100);
    c->count = 2;
    coi_lock_give(&c->lock);
    return NULL;
}

/* Longer than a lock spins: the waiter sleeps and is woken. */
CO_TEST_BARE(a_lock_that_is_held_long_is_slept_on, "")
{
    counted   c = { .count = 0 };
    pthread_t thread;
    uint64_t  used_ns;

    coi_lock_init(&c.lock);
    atomic_init(&c.held, 0);
    CO_REQUIRE(pthread_create(&thread, NULL, hold_for_a_while, &c) == 0);
    while (c.held == 0)
        rest_ms(1);
    used_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    coi_lock_take(&c.lock);
    used_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - used_ns;
    CO_EXPECT_INT(c.count, 2);
    coi_lock_give(&c.lock);
    pthread_join(thread, NULL);
    CO_EXPECT_LESS(used_ns, 5e6);
}

CO_TEST_BARE(a_wait_that_is_over_returns_at_once, "")
{
    coi_event event;

    coi_event_init(&event);
    CO_EXPECT_INT(coi_event_read(&event), 0);
    coi_event_signal(&event);
    CO_EXPECT_INT(coi_event_read(&event), 1);
    CO_EXPECT_TRUE(coi_event_wait(&event, 0, NULL, -1));
    CO_EXPECT_TRUE(coi_event_wait(&event, 0, NULL, 0));
    CO_EXPECT_FALSE(coi_event_wait(&event, 1, NULL, 0));
}

CO_TEST_BARE(a_wait_ends_at_its_timeout, "")
{
    coi_event   event;
    coi_waiting waiting;

    coi_event_init(&event);
    for (int spin_us = 0; spin_us <= 50000; spin_us += 50000) {
        uint64_t before;
        uint64_t took_ns;

        coi_waiting_init(&waiting, 8, spin_us);
        coi_waiting_begin(&waiting);
        before = coi_now_ns();
        CO_EXPECT_FALSE(coi_event_wait(&event, 0, &waiting, 20));
        took_ns = coi_now_ns() - before;
        CO_EXPECT_MORE(took_ns, 19.9e6);
        CO_EXPECT_LESS(took_ns, 2e9);
        CO_EXPECT_INT(waiting.running, 1);
    }
    CO_EXPECT_INT(event.sleepers, 0);
}

CO_TEST_BARE(the_word_may_wrap, "")
{
    coi_event event;

    coi_event_init(&event);
    event.word = UINT32_MAX;
    coi_event_signal(&event);
    CO_EXPECT_INT(coi_event_read(&event), 0);
    CO_EXPECT_TRUE(coi_event_wait(&event, UINT32_MAX, NULL, -1));
}

/* Processor time of a wait of 80 ms that nobody ends, with so many other threads running. */
static uint64_t
cpu_of_wait(int num_cores, int others, int spin_us)
{
    coi_event   event;
    coi_waiting waiting;
    uint64_t    before_ns;

    coi_event_init(&event);
    coi_waiting_init(&waiting, num_cores, spin_us);
    for (int n = 0; n < 1 + others; ++n)
        coi_waiting_begin(&waiting);
    before_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    CO_EXPECT_FALSE(coi_event_wait(&event, 0, &waiting, 80));
    return cpu_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
}

#define SPUN_NS  4000000 /* of 40 ms */
#define SLEPT_NS 2000000

/*
 * With spare cores a waiter spins; with more running threads than cores, or on one core, it sleeps
 * at once.
 */
CO_TEST_BARE(nobody_spins_when_the_cores_are_busy, "")
{
    static const struct {
        int  num_cores;
        int  others;
        int  spin_us;
        bool spins;
    } cases[] = {
        { 4, 0, 40000, true },  { 4, 3, 40000, true }, { 4, 4, 40000, false },
        { 1, 0, 40000, false }, { 4, 0, 0, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        bool as_told = false;

        /* On a loaded machine others may have the core, and a machine that stands still may count
         * that as time of ours: what holds shows sooner or later. */
        for (int attempt = 0; attempt < 20 && !as_told; ++attempt) {
            uint64_t used_ns = cpu_of_wait(cases[i].num_cores, cases[i].others, cases[i].spin_us);

            as_told = cases[i].spins ? used_ns > SPUN_NS : used_ns < SLEPT_NS;
        }
        CO_EXPECT_TRUE(as_told);
    }
}

/* One hands a number to the other and waits for it to come back. */
typedef struct table_tennis {
    coi_event   there;
    coi_event   back;
    coi_waiting waiting;
    int         rounds;
    long        ball; /* no atomic: the events order every access */
} table_tennis;

static void *
return_balls(void *arg)
{
    table_tennis *t = arg;

    coi_waiting_begin(&t->waiting);
    for (int i = 0; i < t->rounds; ++i) {
        coi_event_wait(&t->there, (unsigned)i, &t->waiting, -1);
        t->ball += 1;
        coi_event_signal(&t->back);
    }
    coi_waiting_end(&t->waiting);
    return NULL;
}

static void
play(int rounds, int spin_us, int num_cores)
{
    table_tennis t = { .rounds = rounds, .ball = 0 };
    pthread_t    thread;

    coi_event_init(&t.there);
    coi_event_init(&t.back);
    coi_waiting_init(&t.waiting, num_cores, spin_us);
    coi_waiting_begin(&t.waiting);
    CO_REQUIRE(pthread_create(&thread, NULL, return_balls, &t) == 0);
    for (int i = 0; i < rounds; ++i) {
        t.ball += 1;
        coi_event_signal(&t.there);
        CO_REQUIRE(coi_event_wait(&t.back, (unsigned)i, &t.waiting, 30000));
    }
    pthread_join(thread, NULL);
    CO_EXPECT_INT(t.ball, 2 * rounds);
    CO_EXPECT_INT(t.waiting.running, 1);
}

CO_TEST_BARE(no_wake_is_lost_between_two_threads, "")
{
    play(5000, 0, 2);  /* always asleep */
    play(5000, 20, 2); /* mostly spinning */
    play(2000, 1, 2);  /* on the edge between both */
    play(2000, 20, 1);
}

typedef struct crowd {
    coi_event  event;
    atomic_int awake;
} crowd;

static void *
wait_in_crowd(void *arg)
{
    crowd *c = arg;

    if (coi_event_wait(&c->event, 0, NULL, 30000))
        atomic_fetch_add(&c->awake, 1);
    return NULL;
}

CO_TEST_BARE(a_signal_wakes_all_and_some_means_at_least_one, "")
{
    for (int all = 0; all < 2; ++all) {
        crowd     c;
        pthread_t threads[6];

        coi_event_init(&c.event);
        atomic_init(&c.awake, 0);
        for (size_t i = 0; i < 6; ++i)
            CO_REQUIRE(pthread_create(&threads[i], NULL, wait_in_crowd, &c) == 0);
        while (c.event.sleepers < 6)
            rest_ms(1);
        rest_ms(5);
        if (all == 0) {
            coi_event_signal_some(&c.event, 1);
            while (c.awake == 0)
                rest_ms(1);
        }
        coi_event_signal(&c.event);
        for (size_t i = 0; i < 6; ++i)
            pthread_join(threads[i], NULL);
        CO_EXPECT_INT(c.awake, 6);
        CO_EXPECT_INT(c.event.sleepers, 0);
    }
}

/* What a thread of the library sees of itself. */
typedef struct self_view {
    sigset_t  blocked;
    char      name[32];
    cpu_set_t mask;
    size_t    stack_bytes;
} self_view;

static void
look_at_self(void *arg)
{
    self_view     *view = arg;
    pthread_attr_t attributes;

    pthread_sigmask(SIG_BLOCK, NULL, &view->blocked);
    pthread_getname_np(pthread_self(), view->name, sizeof(view->name));
    sched_getaffinity(0, sizeof(view->mask), &view->mask);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &view->stack_bytes);
    pthread_attr_destroy(&attributes);
}

static int
first_core(void)
{
    cpu_set_t mask;
    int       core = 0;

    CO_REQUIRE(sched_getaffinity(0, sizeof(mask), &mask) == 0);
    while (!CPU_ISSET((size_t)core, &mask))
        ++core;
    return core;
}

CO_TEST_BARE(a_thread_blocks_signals_has_a_name_and_its_cores, "")
{
    coi_memory  memory;
    coi_thread *thread;
    self_view   view;
    sigset_t    before;
    sigset_t    after;
    int         core = first_core();

    coi_memory_init(&memory, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    CO_REQUIRE(coi_thread_start(&memory, "a-name-that-is-too-long", &core, 1, 0, look_at_self,
                                &view, &thread, NULL) == CO_OK);
    coi_thread_join(&memory, thread);
    CO_EXPECT_INT(sigismember(&view.blocked, SIGINT), 1);
    CO_EXPECT_INT(sigismember(&view.blocked, SIGTERM), 1);
    CO_EXPECT_INT(sigismember(&view.blocked, SIGUSR1), 1);
    CO_EXPECT_INT(strlen(view.name), 15);
    CO_EXPECT_TRUE(strncmp(view.name, "a-name-that-", 12) == 0);
    CO_EXPECT_INT(CPU_COUNT(&view.mask), 1);
    CO_EXPECT_TRUE(CPU_ISSET((size_t)core, &view.mask));
    CO_EXPECT_LESS(view.stack_bytes, 4 << 20);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    CO_EXPECT_INT(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

/* A thread that notes where it woke, as often as it is asked to. */
typedef struct sleeper {
    coi_event   go, noted;
    atomic_int  quit;
    int         core, policy;
    cpu_set_t   mask;
    coi_thread *leaves; /* itself: it goes home before it looks */
} sleeper;

static void
sleeper_main(void *arg)
{
    sleeper *s = arg;

    for (unsigned seen = 0;; ++seen) {
        coi_event_wait(&s->go, seen, NULL, -1);
        if (atomic_load(&s->quit))
            return;
        if (s->leaves != NULL)
            coi_thread_return_to_core(s->leaves);
        s->core = sched_getcpu();
        s->policy = sched_getscheduler(0);
        sched_getaffinity(0, sizeof(s->mask), &s->mask);
        coi_event_signal(&s->noted);
    }
}

static void
await_sleep(sleeper *s)
{
    while (!coi_event_has_sleepers(&s->go))
        sched_yield();
}

/* A host that runs its threads with a policy of its own, here SCHED_BATCH, keeps it. */
CO_TEST_BARE(a_policy_of_the_host_stays, "")
{
    coi_memory         memory;
    coi_thread        *thread;
    sleeper            s = { .core = -1 };
    struct sched_param none = { 0 };
    int                core = first_core();

    coi_memory_init(&memory, NULL);
    coi_event_init(&s.go);
    coi_event_init(&s.noted);
    CO_REQUIRE(sched_setscheduler(0, SCHED_BATCH, &none) == 0);
    CO_REQUIRE(coi_thread_start(&memory, "s", &core, 1, 0, sleeper_main, &s, &thread, NULL) ==
               CO_OK);
    await_sleep(&s);
    coi_thread_wake_at(thread, &s.go, core);
    CO_REQUIRE(coi_event_wait(&s.noted, 0, NULL, 5000));
    CO_EXPECT_INT(s.policy, SCHED_BATCH);
    await_sleep(&s);
    coi_thread_wake_on_core(thread, &s.go);
    CO_REQUIRE(coi_event_wait(&s.noted, 1, NULL, 5000));
    CO_EXPECT_INT(s.policy, SCHED_BATCH);
    atomic_store(&s.quit, 1);
    coi_event_signal(&s.go);
    coi_thread_join(&memory, thread);
}

/* The first core after this one that we may use, or -1. */
static int
next_core(int core)
{
    cpu_set_t mine;

    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    while (++core < CPU_SETSIZE)
        if (CPU_ISSET((size_t)core, &mine))
            return core;
    return -1;
}

/* Wait for the next note of a sleeper, and until it sleeps again. */
static void
await_note(sleeper *s, unsigned *seen)
{
    CO_REQUIRE(coi_event_wait(&s->noted, (*seen)++, NULL, 5000));
    await_sleep(s);
}

CO_TEST_BARE(a_thread_wakes_where_it_is_wanted, "")
{
    coi_memory  memory;
    coi_thread *thread;
    sleeper     s = { .core = -1 };
    int         home = first_core(), other = next_core(home);
    unsigned    seen = 0;

    if (other < 0)
        CO_SKIP("there is one core only");
    coi_memory_init(&memory, NULL);
    coi_event_init(&s.go);
    coi_event_init(&s.noted);
    CO_REQUIRE(coi_thread_start(&memory, "s", &home, 1, 0, sleeper_main, &s, &thread, NULL) ==
               CO_OK);
    await_sleep(&s);
    do { /* where that core is busy the kernel may send it home before it looks */
        coi_thread_wake_at(thread, &s.go, other);
        await_note(&s, &seen);
        CO_EXPECT_INT(s.policy, SCHED_BATCH);
    } while (s.core != other && seen < 1000);
    CO_EXPECT_INT(s.core, other);
    coi_thread_wake_on_core(thread, &s.go);
    await_note(&s, &seen);
    CO_EXPECT_INT(s.core, home);
    CO_EXPECT_INT(s.policy, SCHED_OTHER);
    CO_EXPECT_INT(CPU_COUNT(&s.mask), 1);
    s.leaves = thread;
    coi_thread_wake_at(thread, &s.go, other);
    await_note(&s, &seen);
    CO_EXPECT_INT(s.policy,
                  SCHED_OTHER); /* where it is depends on whether we had widened its cores */
    s.leaves = NULL;
    coi_thread_settle(thread, &other, 1);
    coi_event_signal(&s.go);
    await_note(&s, &seen);
    CO_EXPECT_INT(s.core, other);
    coi_thread_wake_at(thread, &s.go, 100000); /* no such core: a plain signal */
    await_note(&s, &seen);
    CO_EXPECT_INT(s.core, other);
    atomic_store(&s.quit, 1);
    coi_event_signal(&s.go);
    coi_thread_join(&memory, thread);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

/* Who started it has the last word, however early it speaks. */
CO_TEST_BARE(a_thread_that_starts_is_where_it_was_settled, "")
{
    int home = first_core(), other = next_core(home);

    if (other < 0)
        CO_SKIP("there is one core only");
    for (int i = 0; i < 100; ++i) {
        coi_memory  memory;
        coi_thread *thread;
        sleeper     s = { .core = -1 };

        coi_memory_init(&memory, NULL);
        coi_event_init(&s.go);
        coi_event_init(&s.noted);
        CO_REQUIRE(coi_thread_start(&memory, "s", &home, 1, 0, sleeper_main, &s, &thread, NULL) ==
                   CO_OK);
        coi_thread_settle(thread, &other, 1);
        coi_event_signal(&s.go);
        CO_REQUIRE(coi_event_wait(&s.noted, 0, NULL, 5000));
        CO_EXPECT_INT(s.core, other);
        CO_EXPECT_INT(CPU_COUNT(&s.mask), 1);
        CO_EXPECT_TRUE(CPU_ISSET((size_t)other, &s.mask));
        atomic_store(&s.quit, 1);
        coi_event_signal(&s.go);
        coi_thread_join(&memory, thread);
        CO_EXPECT_INT(memory.bytes_in_use, 0);
    }
}

/* A core that the process does not have (any more) is no reason to have no thread. */
CO_TEST_BARE(binding_is_best_effort, "")
{
    static const int cores[] = { 100000, -3 };
    coi_memory       memory;
    coi_thread      *thread;
    self_view        view;
    cpu_set_t        mine;

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    memset(&view, 0, sizeof(view));
    CO_REQUIRE(coi_thread_start(&memory, "", cores, 2, 1, look_at_self, &view, &thread, NULL) ==
               CO_OK);
    coi_thread_join(&memory, thread);
    CO_EXPECT_TRUE(CPU_EQUAL(&view.mask, &mine));
    CO_REQUIRE(coi_thread_start(&memory, "x", NULL, 5, 8 << 20, look_at_self, &view, &thread,
                                NULL) == CO_OK);
    coi_thread_join(&memory, thread);
    CO_EXPECT_TRUE(CPU_EQUAL(&view.mask, &mine));
    CO_EXPECT_MORE(view.stack_bytes, (8 << 20) - 1);
    coi_thread_join(&memory, NULL);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(a_thread_without_memory_is_an_error, "")
{
    test_hooks    hooks;
    coi_memory    memory;
    coi_thread   *thread = NULL;
    co_error_info err;

    coi_error_reset(&err);
    test_hooks_init(&hooks, 1);
    coi_memory_init(&memory, &hooks.allocator);
    CO_EXPECT_CODE(coi_thread_start(&memory, "t", NULL, 0, 0, look_at_self, NULL, &thread, &err),
                   CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_CONTAINS(err.message, "thread 't'");
    CO_EXPECT_NULL(thread);
    /* A stack that no address space has. */
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_thread_start(&memory, "t", NULL, 0, (size_t)1 << 62, look_at_self, NULL,
                                    &thread, &err),
                   CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_CONTAINS(err.message, "started no thread 't'");
    CO_EXPECT_INT(hooks.blocks, 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: spin a little, then sleep in the kernel.
 *
 * No wake is lost: a waiter counts itself as sleeper before the kernel compares the word, a
 * signaller changes the word before it reads the count, and all four are sequentially consistent;
 * so either the waiter sees the new word or the signaller sees the sleeper.
 */
#include "base/futex.h"
#include "base/threads.h"

#include <sched.h>

#define SPINS_PER_LOOK                                                                             \
    32 /* pauses between two reads of the clock and of the number of running threads */

#define YIELD_NS 1000 /* of spinning before the core is yielded */

static uint64_t
read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
coi_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t
coi_thread_used_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void
coi_event_init(coi_event *event)
{
    atomic_init(&event->word, 0);
    atomic_init(&event->sleepers, 0);
}

void
coi_event_signal_some(coi_event *event, int count)
{
    atomic_fetch_add_explicit(&event->word, 1, memory_order_seq_cst);
    if (count > 0 && atomic_load_explicit(&event->sleepers, memory_order_seq_cst) != 0) {
        int saved_errno = errno;

        coi_futex_wake(&event->word, count);
        errno = saved_errno;
    }
}

void
coi_event_signal(coi_event *event)
{
    coi_event_signal_some(event, INT_MAX);
}

/*
 * True if the word changed while we spun. On one core the thread we wait for needs the core: sleep
 * at once.
 */
static bool
spin(coi_event *event, unsigned seen, coi_waiting *waiting, int spin_us, uint64_t deadline_ns)
{
    uint64_t end_ns = 0;

    if (waiting == NULL || spin_us <= 0 || waiting->num_cores < 2)
        return false;
    for (;;) {
        uint64_t now_ns;

        if (atomic_load_explicit(&waiting->running, memory_order_relaxed) > waiting->num_cores)
            return false;
        for (int i = 0; i < SPINS_PER_LOOK; ++i) {
            if (coi_event_read(event) != seen)
                return true;
            coi_pause();
        }
        now_ns = coi_now_ns();
        if (end_ns == 0) {
            end_ns = now_ns + (uint64_t)spin_us * 1000u;
            if (deadline_ns != 0 && end_ns > deadline_ns)
                end_ns = deadline_ns;
        }
        if (now_ns >= end_ns)
            return false;
        /* The thread we wait for may have been woken on the core that we spin on: yield it. */
        if (spin_us > waiting->spin_us && now_ns + (uint64_t)spin_us * 1000u > end_ns + YIELD_NS)
            sched_yield();
    }
}

static bool
sleep_on(coi_event *event, unsigned seen, coi_waiting *waiting, uint64_t deadline_ns)
{
    int  saved_errno = errno;
    bool in_time = true;

    if (waiting != NULL)
        coi_waiting_end(waiting);
    atomic_fetch_add_explicit(&event->sleepers, 1, memory_order_seq_cst);
    while (coi_event_read(event) == seen && in_time)
        in_time = coi_futex_wait(&event->word, seen, deadline_ns);
    atomic_fetch_sub_explicit(&event->sleepers, 1, memory_order_relaxed);
    if (waiting != NULL)
        coi_waiting_begin(waiting);
    errno = saved_errno;
    return coi_event_read(event) != seen;
}

bool
coi_event_wait_spinning(coi_event *event, unsigned seen, coi_waiting *waiting, int spin_us,
                        int timeout_ms)
{
    uint64_t deadline_ns = 0;

    if (coi_event_read(event) != seen)
        return true;
    if (timeout_ms == 0)
        return false;
    if (timeout_ms > 0)
        deadline_ns = coi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    return spin(event, seen, waiting, spin_us, deadline_ns) ||
           sleep_on(event, seen, waiting, deadline_ns);
}

bool
coi_event_wait(coi_event *event, unsigned seen, coi_waiting *waiting, int timeout_ms)
{
    return coi_event_wait_spinning(event, seen, waiting, waiting != NULL ? waiting->spin_us : 0,
                                   timeout_ms);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads inside a host program: all signals blocked, a name, a small stack, bound to given
 * cores within the inherited affinity, never more spinning threads than cores. Waiting is a short
 * spin, then a futex; waking calls the kernel only when somebody sleeps.
 */
#ifndef COI_BASE_THREADS_H
#define COI_BASE_THREADS_H

#include "base/error.h"
#include "base/memory.h"
#include <pthread.h>

/* A lock of one word, zero when open. Uncontended it costs two atomic operations and no call. */
typedef struct coi_lock {
    atomic_uint word;
} coi_lock;

static inline void
coi_lock_init(coi_lock *lock)
{
    atomic_init(&lock->word, 0);
}
void coi_lock_wait(coi_lock *lock); /* called by take alone */
void coi_lock_wake(coi_lock *lock); /* called by give alone */
static inline void
coi_lock_take(coi_lock *lock)
{
    unsigned open = 0;

    if (!atomic_compare_exchange_strong_explicit(&lock->word, &open, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        coi_lock_wait(lock);
}
static inline void
coi_lock_give(coi_lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        coi_lock_wake(lock);
}

/*
 * How the threads of a runtime wait. `running` counts threads that are at work or spinning: a
 * thread of the library begins when it starts and ends when it leaves, a wait takes it out while it
 * sleeps. A thread of the user that waits without beginning makes the count one too low, which
 * costs a little spinning, no more.
 */
typedef struct coi_waiting {
    int        num_cores; /* cores we may use */
    int        spin_us;
    atomic_int running; /* beyond num_cores nobody spins */
} coi_waiting;

static inline void
coi_waiting_init(coi_waiting *waiting, int num_cores, int spin_us)
{
    waiting->num_cores = num_cores;
    waiting->spin_us = spin_us;
    atomic_init(&waiting->running, 0);
}
static inline void
coi_waiting_begin(coi_waiting *waiting)
{
    atomic_fetch_add_explicit(&waiting->running, 1, memory_order_relaxed);
}
static inline void
coi_waiting_end(coi_waiting *waiting)
{
    atomic_fetch_sub_explicit(&waiting->running, 1, memory_order_relaxed);
}

/*
 * A word that threads wait on: it only grows (and may wrap). Sleepers are counted so that a wake
 * without sleepers is free. A signal still touches the event after the word has changed, so a woken
 * thread must not free the event before the signalling call has returned.
 */
typedef struct coi_event {
    _Alignas(64) atomic_uint word;
    atomic_uint sleepers;
} coi_event;

void coi_event_init(coi_event *event);
/*
 * Advance the word by one and wake all who wait. What was written before is seen by who returns
 * from the wait.
 */
void coi_event_signal(coi_event *event);
/* The same, but wake at most `count` sleepers: for workers of which any will do. 0 is for those
 * that spin, or are about to sleep. */
void coi_event_signal_some(coi_event *event, int count);
/*
 * Wait until the word differs from `seen`. timeout_ms < 0 waits forever. Returns false on timeout.
 * waiting NULL: no spinning. The futex may wake for nothing; the word alone decides.
 */
bool coi_event_wait(coi_event *event, unsigned seen, coi_waiting *waiting, int timeout_ms);
/* The same with a spin of its own: for waits that are known to be short. */
bool coi_event_wait_spinning(coi_event *event, unsigned seen, coi_waiting *waiting, int spin_us,
                             int timeout_ms);
static inline unsigned
coi_event_read(coi_event *event)
{
    return atomic_load_explicit(&event->word, memory_order_acquire);
}
static inline unsigned
coi_event_num_sleepers(coi_event *event)
{
    return atomic_load_explicit(&event->sleepers, memory_order_relaxed);
}
static inline bool
coi_event_has_sleepers(coi_event *event)
{
    return coi_event_num_sleepers(event) != 0;
}

/* Monotonic clock. */
uint64_t coi_now_ns(void);
/* Processor time of the calling thread. */
uint64_t coi_thread_used_ns(void);

typedef void (*coi_thread_fn)(void *arg);
typedef struct coi_thread coi_thread;
/*
 * name is cut to 15 bytes; cores NULL: the inherited affinity. Binding is best effort: cores that
 * were taken from the process meanwhile are no error. stack_bytes 0: 1 MiB.
 */
co_code coi_thread_start(coi_memory *memory, const char *name, const int *cores, int num_cores,
                         size_t stack_bytes, coi_thread_fn fn, void *arg, coi_thread **out,
                         co_error_info *err);
/* From now on its cores are these. A thread that runs elsewhere moves, which takes as long as
 * waking a core. In a forked child this does nothing. */
void coi_thread_settle(coi_thread *thread, const int *cores, int num_cores);
/*
 * Signal an event on which this thread alone sleeps, and have it wake on the given core, now and
 * where the kernel sees fit from now on; or on its own cores again. A core that rests may need
 * longer to wake than a short job takes. A job that turns out to be long is not bound to the given
 * core: the kernel may move it to the thread's own, and the thread itself may go there. For a
 * thread that is not bound both are plain signals. Who wakes a thread is one at a time, and settles
 * it, too; so does the thread itself between its wake-up and its next wait.
 */
void coi_thread_wake_at(coi_thread *thread, coi_event *event, int core);
void coi_thread_wake_on_core(coi_thread *thread, coi_event *event);
void coi_thread_return_to_core(coi_thread *thread);
/* In a forked child, where the thread does not exist, this only frees. NULL is allowed. */
void coi_thread_join(coi_memory *memory, coi_thread *thread);
/* Whether this is the thread that asks, which cannot join itself. NULL is none. */
bool coi_thread_is_own(const coi_thread *thread);
/* Called by the thread itself in place of the join: nobody is left who would wait for it. */
void coi_thread_leave(coi_memory *memory, coi_thread *thread);

/*
 * A team of workers that runs one parallel job at a time: the caller takes part, so a team of size
 * 1 has no thread of its own. Chunks are numbered 0 .. num_chunks-1 and each is run exactly once by
 * some member; what a chunk is must depend on the shape of the work alone, never on the team.
 * Workers start at first need. They wake up when they would have saved as much time as that costs.
 */
typedef struct coi_team coi_team;
typedef void (*coi_chunk_fn)(void *arg, int64_t chunk);
/*
 * Workers are bound to `size` cores together, not one each; cores NULL: the inherited affinity. All
 * are borrowed.
 */
co_code coi_team_create(coi_memory *memory, const char *name, const int *cores, int size,
                        coi_waiting *waiting, coi_team **out, co_error_info *err);
/* Joins the workers. NULL is allowed. */
void coi_team_destroy(coi_team *team);
int  coi_team_size(const coi_team *team);
/*
 * Run all chunks and return when they are done. Several threads may call at once: one gets the
 * workers, the others run their chunks alone. A call from inside a chunk runs alone. Never fails;
 * after fork in the child, runs alone.
 */
void coi_team_run(coi_team *team, int64_t num_chunks, coi_chunk_fn fn, void *arg);
/* The same for a job of which it is known that it takes about work_ns on one thread. Short ones go
 * to workers that are awake. */
void coi_team_run_for(coi_team *team, int64_t num_chunks, int64_t work_ns, coi_chunk_fn fn,
                      void *arg);

#endif

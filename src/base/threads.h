/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads as a good guest has them: all signals blocked, a name, a small stack, bound to given cores within
 * the inherited affinity, never more spinning threads than cores. Waiting is a short spin, then a futex;
 * waking calls the kernel only when somebody sleeps.
 */
#ifndef COI_BASE_THREADS_H
#define COI_BASE_THREADS_H

#include "base/error.h"
#include "base/memory.h"
#include <pthread.h>

/* A word that threads wait on: it only grows. Sleepers are counted so that a wake without sleepers is free. */
typedef struct coi_event {
    _Alignas(64) atomic_uint word;
    atomic_uint  sleepers;
} coi_event;

/* How a group of threads waits. Shared by all threads of a runtime. */
typedef struct coi_waiting {
    int        num_cores; /* cores we may use */
    int        spin_us;
    atomic_int running;   /* threads that are at work or spinning now: beyond num_cores nobody spins */
} coi_waiting;

void coi_event_init(coi_event *event);
/* Advance the word by one and wake all who wait. */
void coi_event_signal(coi_event *event);
/*
 * Wait until the word differs from `seen`. timeout_ms < 0 waits for ever. Returns false on timeout.
 * The futex may wake for nothing; the word alone decides.
 */
bool coi_event_wait(coi_event *event, unsigned seen, coi_waiting *waiting, int timeout_ms);
static inline unsigned
coi_event_read(coi_event *event)
{
    return atomic_load_explicit(&event->word, memory_order_acquire);
}

/* Monotonic clock. */
uint64_t coi_now_ns(void);

typedef void (*coi_thread_fn)(void *arg);
typedef struct coi_thread coi_thread;
/* name is cut to 15 bytes; cores NULL: the inherited affinity. Stack: 1 MiB unless stack_bytes says otherwise. */
co_code coi_thread_start(coi_memory *memory, const char *name, const int *cores, int num_cores,
                         size_t stack_bytes, coi_thread_fn fn, void *arg, coi_thread **out,
                         co_error_info *err);
void coi_thread_join(coi_memory *memory, coi_thread *thread);

/*
 * A team of workers that runs one parallel job at a time: the caller takes part, so a team of size 1 has no
 * thread of its own. Chunks are numbered 0 .. num_chunks-1 and each is run exactly once by some member; what
 * a chunk is must depend on the shape of the work alone, never on the team. Workers start at first need.
 */
typedef struct coi_team coi_team;
typedef void (*coi_chunk_fn)(void *arg, int64_t chunk);
co_code coi_team_create(coi_memory *memory, const char *name, const int *cores, int size,
                        coi_waiting *waiting, coi_team **out, co_error_info *err);
void coi_team_destroy(coi_team *team);
int coi_team_size(const coi_team *team);
/*
 * Run all chunks and return when they are done. Several threads may call at once: one gets the workers, the others
 * run their chunks alone. A call from inside a chunk runs alone. Never fails; after fork in the child, runs alone.
 */
void coi_team_run(coi_team *team, int64_t num_chunks, coi_chunk_fn fn, void *arg);

#endif

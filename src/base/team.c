/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams: one job at a time, shared by the caller and whichever workers are there in time.
 *
 * A job is opened and closed by the caller through one word, `state`: the bit OPEN and the number
 * of workers that joined. A worker joins only while the job is open; the caller closes it when no
 * chunk is left to take and then waits for those that joined, not for those that still wake up. So
 * a late worker costs nothing, and the fields of the job stay as they are while anybody may read
 * them.
 *
 *     caller                      worker
 *     write job, state = OPEN
 *     signal start       ------>  wakes; state: OPEN and n -> OPEN and n + 1, or back to waiting
 *     take chunks                 take chunks
 *     state: clear OPEN           state: n -> n - 1; the last one of a closed job signals done
 *     wait until n == 0  <------
 *
 * Chunks are dealt out in equal ranges, one to a member. A member takes its own first and then
 * helps with the others', so the same chunk of the next operator usually finds its data in the
 * cache of the core that made it: with one counter for all, adding arrays of 128 KiB in 32 chunks
 * ran at half the speed. In a short job a member helps only those that have not come. Results do
 * not depend on who runs what.
 *
 * Workers that spin are handed any work: that costs the caller a few cache lines. Waking one that
 * sleeps costs a call of the kernel and sometimes the start of a core, longer than much of the work
 * that there is. So the caller adds up what workers would have saved while they slept, and wakes
 * them when that is as much as waking them costs: at once for long jobs, and after some of them for
 * short ones.
 *
 * The caller runs where the kernel put it. A worker that woke up there would preempt it, spin in
 * its way, and the kernel moves neither for milliseconds. So workers are bound to the other cores
 * of the team, again when the caller has moved, and one that finds itself on the caller's core does
 * not spin.
 *
 * `busy` says that some caller has the workers. It is what makes nested calls and second callers
 * run alone.
 *
 * After fork the child has no workers; nobody joins, the caller takes all chunks and waits for
 * nobody. If another thread was in a run at that moment, the child finds the team busy forever and
 * runs alone. So no run asks which process it is in.
 */
#include "base/futex.h"
#include "base/threads.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define OPEN (1u << 31)

/* What waking a worker costs its caller: 2 us where its core runs, 25 where the host of a virtual
 * machine has to start it. */
#define WAKE_NS 20000
/* A job that takes so long alone wakes the workers that sleep. Estimates are rough, and an operator
 * may take many times as long as another on as many elements, so they decide about less alone. */
#define LONG_NS 16384
/* A job shorter than this is not spread any further than it was dealt out, where its members have
 * begun: the next one finds its data where this one left it. */
#define SHORT_NS 100000
/* Pauses before the caller waits for the last chunk in a way that lets it sleep. */
#define JOIN_SPINS 64

/* The caller is member 0 and has no thread. */
typedef struct member {
    _Alignas(64) atomic_llong next; /* chunk of its range */
    int64_t     begin, end;
    coi_team   *team;
    int         number;
    coi_thread *thread;
} member;

struct coi_team {
    coi_memory  *memory;
    coi_waiting *waiting;
    const int   *cores;
    int          size;
    size_t       nbytes;
    char         name[16];
    atomic_bool  busy;

    /* Written by the caller that holds busy. */
    int     num_workers; /* started so far */
    bool    tried;       /* to start them */
    int64_t missed_ns;   /* what those that sleep would have saved since they were woken */
    int     left_core;   /* that workers do not run on; -1: none */
    int    *other_cores; /* all but that one; NULL: workers are not bound */

    atomic_bool stopping;
    coi_event   start;
    coi_event   done;
    /* In one cache line: a worker that comes needs all of it. */
    _Alignas(64) atomic_uint state;
    atomic_int   core; /* the caller's */
    int          num_ranges;
    bool         is_short; /* SHORT_NS */
    coi_chunk_fn fn;
    void        *arg;
    member       members[];
};

/* Deal the chunks out: sizes differ by one at most. */
static void
deal_chunks(coi_team *team, int64_t num_chunks)
{
    int     num_ranges = num_chunks < team->size ? (int)num_chunks : team->size;
    int64_t each = num_chunks / num_ranges;
    int64_t larger = num_chunks % num_ranges;
    int64_t from = 0;

    team->num_ranges = num_ranges;
    for (int i = 0; i < num_ranges; ++i) {
        atomic_store_explicit(&team->members[i].next, from, memory_order_relaxed);
        team->members[i].begin = from;
        from += each + (i < larger);
        team->members[i].end = from;
    }
}

static void
take_chunks(coi_team *team, int number)
{
    coi_chunk_fn fn = team->fn;
    void        *arg = team->arg;
    int          num_ranges = team->num_ranges;

    for (int i = 0; i < num_ranges; ++i) {
        member *range = &team->members[(number + i) % num_ranges];
        int64_t chunk = atomic_load_explicit(&range->next, memory_order_relaxed);

        if (i > 0 && team->is_short && chunk != range->begin)
            continue;
        while (chunk < range->end) {
            chunk = atomic_fetch_add_explicit(&range->next, 1, memory_order_relaxed);
            if (chunk < range->end)
                fn(arg, chunk);
        }
    }
}

static void
run_alone(int64_t num_chunks, coi_chunk_fn fn, void *arg)
{
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk)
        fn(arg, chunk);
}

static bool
join_job(coi_team *team)
{
    unsigned state = atomic_load_explicit(&team->state, memory_order_relaxed);

    while ((state & OPEN) != 0)
        if (atomic_compare_exchange_weak_explicit(&team->state, &state, state + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static void
leave_job(coi_team *team)
{
    if (atomic_fetch_sub_explicit(&team->state, 1, memory_order_acq_rel) == 1)
        coi_event_signal(&team->done);
}

static void
worker_main(void *arg)
{
    member   *self = arg;
    coi_team *team = self->team;
    unsigned  seen = 0;
    int       spin_us = team->waiting->spin_us;

    coi_waiting_begin(team->waiting);
    for (;;) {
        bool shares = sched_getcpu() == atomic_load_explicit(&team->core, memory_order_relaxed);

        coi_event_wait_spinning(&team->start, seen, team->waiting, shares ? 0 : spin_us, -1);
        seen = coi_event_read(&team->start);
        if (atomic_load_explicit(&team->stopping, memory_order_acquire))
            break;
        if (join_job(team)) {
            take_chunks(team, self->number);
            leave_job(team);
        }
    }
    coi_waiting_end(team->waiting);
}

/* Bind workers to the cores of the team that the caller does not use. */
static void
leave_core(coi_team *team, int core)
{
    int n = 0;

    if (team->other_cores == NULL || team->left_core == core)
        return;
    team->left_core = core;
    for (int i = 0; i < team->size; ++i)
        if (team->cores[i] != core)
            team->other_cores[n++] = team->cores[i];
    for (int i = 1; i <= team->num_workers; ++i)
        coi_thread_settle(team->members[i].thread, team->other_cores, n);
}

/* Start as many workers as the system allows; with fewer the work takes longer, which is not an
 * error. */
static void
start_workers(coi_team *team)
{
    team->tried = true;
    while (team->num_workers < team->size - 1) {
        int     number = team->num_workers + 1;
        member *worker = &team->members[number];
        char    name[16];

        worker->team = team;
        worker->number = number;
        snprintf(name, sizeof(name), "%.10s.%d", team->name, number % 1000);
        if (coi_thread_start(team->memory, name, team->cores, team->size, 0, worker_main, worker,
                             &worker->thread, NULL) != CO_OK)
            break;
        ++team->num_workers;
    }
}

static int64_t
count_awake(coi_team *team)
{
    return team->num_workers - (int64_t)coi_event_num_sleepers(&team->start);
}

/* How many workers to wake for a job, which takes work_ns alone and could use `helpers` of them. */
static int
count_wakes(coi_team *team, int64_t helpers, int64_t work_ns)
{
    int64_t awake = count_awake(team), sleepers = helpers - awake;

    if (sleepers <= 0)
        return 0;
    if (work_ns < LONG_NS) {
        team->missed_ns += work_ns / (1 + awake) - work_ns / (1 + helpers);
        if (team->missed_ns < sleepers * WAKE_NS)
            return 0;
    }
    team->missed_ns = 0;
    leave_core(team, atomic_load_explicit(&team->core, memory_order_relaxed));
    return (int)sleepers;
}

/* Wait for the workers that joined. Most are about to leave. */
static void
close_job(coi_team *team)
{
    atomic_fetch_and_explicit(&team->state, ~OPEN, memory_order_acq_rel);
    for (int i = 0; i < JOIN_SPINS; ++i) {
        if (atomic_load_explicit(&team->state, memory_order_acquire) == 0)
            return;
        coi_pause();
    }
    for (;;) {
        unsigned seen = coi_event_read(&team->done);

        if (atomic_load_explicit(&team->state, memory_order_acquire) == 0)
            return;
        coi_event_wait(&team->done, seen, team->waiting, -1);
    }
}

static void
run_together(coi_team *team, int64_t num_chunks, int wakes, coi_chunk_fn fn, void *arg)
{
    team->fn = fn;
    team->arg = arg;
    deal_chunks(team, num_chunks);
    atomic_store_explicit(&team->state, OPEN, memory_order_release);
    coi_event_signal_some(&team->start, wakes);
    take_chunks(team, 0);
    close_job(team);
}

void
coi_team_run_for(coi_team *team, int64_t num_chunks, int64_t work_ns, coi_chunk_fn fn, void *arg)
{
    int64_t helpers = num_chunks < team->size ? num_chunks - 1 : team->size - 1;
    int     wakes;

    if (helpers < 1 || atomic_exchange_explicit(&team->busy, true, memory_order_acquire)) {
        run_alone(num_chunks, fn, arg);
        return;
    }
    atomic_store_explicit(&team->core, sched_getcpu(), memory_order_relaxed);
    team->is_short = work_ns < SHORT_NS;
    if (!team->tried)
        start_workers(team);
    if (helpers > team->num_workers)
        helpers = team->num_workers;
    wakes = count_wakes(team, helpers, work_ns);
    if (wakes > 0 || count_awake(team) > 0)
        run_together(team, num_chunks, wakes, fn, arg);
    else
        run_alone(num_chunks, fn, arg);
    atomic_store_explicit(&team->busy, false, memory_order_release);
}

void
coi_team_run(coi_team *team, int64_t num_chunks, coi_chunk_fn fn, void *arg)
{
    coi_team_run_for(team, num_chunks, INT64_MAX, fn, arg);
}

int
coi_team_size(const coi_team *team)
{
    return team->size;
}

co_code
coi_team_create(coi_memory *memory, const char *name, const int *cores, int size,
                coi_waiting *waiting, coi_team **out, co_error_info *err)
{
    size_t    nbytes;
    coi_team *team;

    if (size < 1)
        size = 1;
    nbytes = sizeof(*team) + (size_t)size * (sizeof(member) + sizeof(int));
    team = coi_calloc(memory, nbytes);
    if (team == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for team '%s' of %d threads", name,
                         size);
    team->memory = memory;
    team->waiting = waiting;
    team->cores = cores;
    team->size = size;
    team->nbytes = nbytes;
    team->left_core = -1;
    if (cores != NULL && size > 1)
        team->other_cores = (int *)(void *)&team->members[size];
    atomic_init(&team->core, -1);
    snprintf(team->name, sizeof(team->name), "%.15s", name);
    atomic_init(&team->busy, false);
    atomic_init(&team->stopping, false);
    atomic_init(&team->state, 0);
    coi_event_init(&team->start);
    coi_event_init(&team->done);
    *out = team;
    return CO_OK;
}

void
coi_team_destroy(coi_team *team)
{
    if (team == NULL)
        return;
    atomic_store_explicit(&team->stopping, true, memory_order_release);
    coi_event_signal(&team->start);
    for (int i = 1; i <= team->num_workers; ++i)
        coi_thread_join(team->memory, team->members[i].thread);
    coi_free(team->memory, team, team->nbytes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica threads: which cores they run on, when they spin, sleep and wake.
 */
#include "strategy/replica_threads.h"

#include <sched.h>
#include <stdio.h>

#define REPLICA_STACK_BYTES                                                                        \
    ((size_t)8 << 20)        /* user code runs here: the stack size of a main                      \
#thread */
#define WAKE_NS       50000  /* the time to wake a core, until it was measured */
#define MOST_WAKE_NS  100000 /* longer waits are not due to the core */
#define SHORT_REST_NS 500000 /* steps closer than this follow each other */
#define LONG_STEP_NS                                                                               \
    250000               /* processor time of the caller: longer steps get a                       \
#core each */
#define MIN_BACKOFF 4    /* steps since a long one before they share a core */
#define MAX_BACKOFF 4096 /* after a wrong guess that cost much */

/* --- which cores they run on --- */

/* The cores of a replica's device; NULL when there are none of its own. */
static const int *
cores_of(const co_strategy *strategy, int replica, int *n)
{
    co_device    *device;
    co_error_info unused;

    coi_error_reset(&unused);
    *n = 0;
    if (!strategy->runtime->settings.pin ||
        coi_devices_find(strategy->runtime->devices, &strategy->devices[replica], &device,
                         &unused) != CO_OK)
        return NULL;
    *n = device->num_threads;
    return device->cores;
}

static bool
has_core(const co_strategy *strategy, int replica, int core)
{
    int        n;
    const int *cores = cores_of(strategy, replica, &n);

    for (int i = 0; i < n; ++i)
        if (cores[i] == core)
            return true;
    return false;
}

/*
 * The caller runs where the kernel or its owner put it, which is not ours to change. If that is a
 * core of another replica's device, the thread bound to that core and the caller would share it; so
 * the thread is bound to the cores of replica 0 meanwhile, which the caller has left free.
 */
static void
bind_threads(coi_replica_threads *threads)
{
    bool is_taken = !has_core(threads->strategy, 0, threads->core);

    for (int i = 1; i < threads->n; ++i) {
        coi_replica_worker *m = &threads->replicas[i];
        int                 bound_to = i, n;
        const int          *cores;

        if (is_taken && has_core(threads->strategy, i, threads->core)) {
            bound_to = 0;
            is_taken = false;
        }
        if (bound_to == m->bound_to)
            continue;
        m->bound_to = bound_to;
        m->on_callers_core = false;
        cores = cores_of(threads->strategy, bound_to, &n);
        coi_thread_settle(m->thread, cores, n);
    }
}

/* --- waking and sleeping --- */

/*
 * A step after a pause: record where and when it began, to decide where the next one begins. A
 * thread that waited longer for the caller's core than its own takes to wake is in a long step, of
 * which there may be more to come: it goes back to its own core.
 */
static bool
wake_up(coi_replica_worker *m)
{
    const coi_replica_threads *threads = m->threads;

    m->woke_ns = coi_now_ns();
    m->core = sched_getcpu();
    if (m->core != threads->core)
        return false;
    if (threads->shares_core && m->woke_ns - threads->began_ns > MOST_WAKE_NS)
        coi_thread_return_to_core(m->thread);
    return true;
}

static void
replica_main(void *arg)
{
    coi_replica_worker  *m = arg;
    coi_replica_threads *threads = m->threads;
    coi_waiting         *waiting = &threads->runtime->waiting;
    unsigned             seen = 0;
    bool                 shares = false; /* the caller's core, where spinning is in its way */

    coi_waiting_begin(waiting);
    for (;;) {
        while (coi_event_read(&m->go) == seen)
            coi_event_wait_spinning(&m->go, seen, waiting, shares ? 0 : waiting->spin_us, -1);
        ++seen;
        if (threads->quit)
            break;
        shares = threads->is_rested && wake_up(m);
        coi_run_replica(m, &threads->step);
        if (atomic_fetch_sub_explicit(&threads->busy, 1, memory_order_acq_rel) == 1)
            coi_event_signal(&threads->done);
    }
    coi_waiting_end(waiting);
}

/*
 * Waking a core that rests can take longer than the step itself: 80 us on a virtual machine, where
 * the host has to start it again. So threads that slept are woken on the caller's
 * core where the step is expected to take less time that way than such a wake-up. Steps that follow
 * each other are worth it: their threads spin on cores of their own.
 */
static bool
wants_callers_core(const coi_replica_threads *threads)
{
    return threads->wakes_here && threads->num_short >= threads->backoff &&
           threads->began_ns - threads->ended_ns > SHORT_REST_NS;
}

void
coi_replica_threads_wake(coi_replica_threads *threads)
{
    int  core = sched_getcpu();
    bool here = false;

    if (core != threads->core) {
        threads->core = core;
        bind_threads(threads);
    }
    threads->is_rested = coi_event_has_sleepers(&threads->replicas[1].go);
    if (threads->is_rested) {
        threads->began_ns = coi_now_ns();
        threads->used_ns = coi_thread_used_ns();
        here = wants_callers_core(threads);
    }
    threads->shares_core = here;
    for (int i = 1; i < threads->n; ++i) {
        coi_replica_worker *m = &threads->replicas[i];
        bool                was_on_callers_core = m->on_callers_core;

        m->on_callers_core = here;
        if (here && (!was_on_callers_core || m->core != core))
            coi_thread_wake_at(m->thread, &m->go, core);
        else if (!here && was_on_callers_core)
            coi_thread_wake_on_core(m->thread, &m->go);
        else
            coi_event_signal(&m->go);
    }
}

/*
 * The replicas of a long step that began on one core run one after the other to its end: the kernel
 * moves no thread for milliseconds. Short steps have to earn back what that lost, one wake-up each,
 * before threads share a core again. Time in which another process had the core is not the step's.
 */
static void
note_length(coi_replica_threads *threads, bool had_shared_core)
{
    uint64_t used_ns = coi_thread_used_ns() - threads->used_ns;
    uint64_t earned = used_ns / (threads->wake_ns > 0 ? threads->wake_ns : 1);

    if (used_ns < LONG_STEP_NS) {
        threads->num_short += threads->num_short < MAX_BACKOFF;
        if (had_shared_core)
            threads->backoff = MIN_BACKOFF;
        return;
    }
    threads->num_short = 0;
    if (had_shared_core && earned > MIN_BACKOFF)
        threads->backoff = earned < MAX_BACKOFF ? (int)earned : MAX_BACKOFF;
}

/* The first replica that woke on another core than the caller's; NULL: none did. */
static const coi_replica_worker *
replica_elsewhere(const coi_replica_threads *threads)
{
    for (int i = 1; i < threads->n; ++i)
        if (threads->replicas[i].core != threads->core)
            return &threads->replicas[i];
    return NULL;
}

/* After a step that followed a rest: choose where the next such step begins. */
void
coi_replica_threads_rest(coi_replica_threads *threads)
{
    const coi_replica_worker *away;
    uint64_t                  took_ns;

    if (!threads->is_rested)
        return;
    away = replica_elsewhere(threads);
    threads->ended_ns = coi_now_ns();
    took_ns = threads->ended_ns - threads->began_ns;
    if (away != NULL) {
        uint64_t wake_ns = away->woke_ns - threads->began_ns;

        threads->wake_ns = wake_ns < MOST_WAKE_NS ? wake_ns : MOST_WAKE_NS;
        took_ns -= wake_ns;
    }
    threads->wakes_here = took_ns < threads->wake_ns;
    note_length(threads, threads->shares_core && away == NULL);
}

/* --- sets of threads --- */

static void
threads_free(coi_replica_threads *threads)
{
    coi_memory *memory = &threads->runtime->memory;

    threads->quit = true;
    for (int i = 0; i < threads->n; ++i) {
        coi_replica_worker *m = &threads->replicas[i];

        if (m->thread != NULL) {
            coi_event_signal(&m->go);
            coi_thread_join(memory, m->thread);
        }
        if (m->ctx != NULL)
            coi_context_free(m->ctx);
    }
    coi_free(memory, threads, threads->nbytes);
}

static bool
start_replica(co_context *ctx, coi_replica_worker *m)
{
    coi_replica_threads *threads = m->threads;
    char                 name[16];
    int                  num_cores;
    const int           *cores;

    m->ctx = coi_context_new(threads->runtime);
    if (m->ctx == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the context of replica %d", m->replica);
        return false;
    }
    /* Once: everything a step changes is restored by its blocks. */
    coi_set_device(m->ctx, &threads->strategy->devices[m->replica]);
    if (m->replica == 0)
        return true; /* the caller's thread */
    cores = cores_of(threads->strategy, m->replica, &num_cores);
    snprintf(name, sizeof(name), "co-replica-%d", m->replica);
    if (coi_thread_start(&threads->runtime->memory, name, cores, num_cores, REPLICA_STACK_BYTES,
                         replica_main, m, &m->thread, coi_err(ctx)) == CO_OK)
        return true;
    coi_failed(ctx);
    return false;
}

/* The set, its replicas and its slots are one block. */
static coi_replica_threads *
threads_new(co_context *ctx, co_strategy *strategy)
{
    size_t               n = (size_t)strategy->num_local;
    size_t               slots_at = (sizeof(coi_replica_threads) + 63) & ~(size_t)63;
    size_t               replicas_at = slots_at + n * sizeof(coi_rendezvous_slot);
    size_t               nbytes = replicas_at + n * sizeof(coi_replica_worker);
    coi_replica_threads *threads = coi_calloc(&strategy->runtime->memory, nbytes);

    if (threads == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the threads of %d replicas",
                 strategy->num_local);
        return NULL;
    }
    threads->nbytes = nbytes;
    threads->strategy = strategy;
    threads->runtime = strategy->runtime;
    threads->n = strategy->num_local;
    threads->wake_ns = WAKE_NS;
    threads->backoff = MIN_BACKOFF;
    threads->core = -1;
    threads->step.slots = (coi_rendezvous_slot *)(void *)((char *)threads + slots_at);
    threads->replicas = (coi_replica_worker *)(void *)((char *)threads + replicas_at);
    coi_event_init(&threads->done);
    coi_event_init(&threads->step.gate);
    coi_event_init(&threads->step.token);
    coi_lock_init(&threads->step.error_lock);
    coi_lock_init(&threads->step.inner_lock);
    for (int i = 0; i < threads->n; ++i) {
        threads->replicas[i].threads = threads;
        threads->replicas[i].replica = threads->replicas[i].bound_to = i;
        coi_event_init(&threads->replicas[i].go);
        if (!start_replica(ctx, &threads->replicas[i])) {
            threads_free(threads);
            return NULL;
        }
    }
    return threads;
}

/* A new set, and a reference to the strategy: the exclusive one if it is the first set. */
static coi_replica_threads *
threads_add(co_context *ctx, co_strategy *strategy)
{
    coi_replica_threads *threads = threads_new(ctx, strategy);

    if (threads == NULL)
        return NULL;
    coi_lock_take(&strategy->lock);
    threads->is_first = atomic_load(&strategy->first_threads) == NULL &&
                        coi_ref_exclusive(strategy);
    if (threads->is_first)
        atomic_store_explicit(&strategy->first_threads, threads, memory_order_release);
    coi_lock_give(&strategy->lock);
    if (!threads->is_first)
        coi_ref(strategy);
    return threads;
}

static coi_replica_threads *
take_idle(co_strategy *strategy)
{
    coi_replica_threads *threads;

    coi_lock_take(&strategy->lock);
    threads = strategy->idle_threads;
    if (threads != NULL)
        strategy->idle_threads = threads->next;
    coi_lock_give(&strategy->lock);
    if (threads != NULL)
        coi_ref(strategy);
    return threads;
}

coi_replica_threads *
coi_replica_threads_take(co_context *ctx, co_strategy *strategy)
{
    coi_replica_threads *threads;

    /* The threads did not come along into a forked child: waiting for them would never end. */
    if (strategy->num_local > 1 && !coi_check_owner_process(ctx))
        return NULL;
    threads = atomic_load_explicit(&strategy->first_threads, memory_order_acquire);
    if (threads != NULL && coi_ref_exclusive(strategy))
        return threads;
    threads = take_idle(strategy);
    return threads != NULL ? threads : threads_add(ctx, strategy);
}

void
coi_replica_threads_give(coi_heap *heap, coi_replica_threads *threads)
{
    co_strategy *strategy = threads->strategy;

    if (threads->is_first) {
        coi_unref_exclusive(heap, strategy);
        return;
    }
    coi_lock_take(&strategy->lock);
    threads->next = strategy->idle_threads;
    strategy->idle_threads = threads;
    coi_lock_give(&strategy->lock);
    coi_unref(heap, strategy);
}

void
coi_replica_threads_free(co_strategy *strategy)
{
    coi_replica_threads *first = atomic_load(&strategy->first_threads);

    if (first != NULL)
        threads_free(first);
    while (strategy->idle_threads != NULL) {
        coi_replica_threads *threads = strategy->idle_threads;

        strategy->idle_threads = threads->next;
        threads_free(threads);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a crew: where they live, when they spin, sleep and wake.
 */
#include "strategy/crew.h"

#include <sched.h>
#include <stdio.h>

#define REPLICA_STACK_BYTES ((size_t)8 << 20) /* user code runs here: what a main thread has */
#define WAKE_NS             50000             /* what waking a core takes, until it was measured */
#define MOST_WAKE_NS        100000            /* longer, and it was not the core that took it */
#define SHORT_REST_NS       500000            /* steps closer than this follow each other */
#define LONG_STEP_NS        250000            /* of the caller's processor: worth a core for each */
#define PATIENCE            4                 /* steps since a long one before one has guests */
#define MOST_PATIENCE       4096              /* after a guess that was wrong and dear */

/* --- where members live --- */

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
 * core of another replica's device, the thread that lives there and the caller would take turns; so
 * it lives on the cores of replica 0 meanwhile, which the caller has left free.
 */
static void
settle_members(coi_crew *crew)
{
    bool is_taken = !has_core(crew->strategy, 0, crew->core);

    for (int i = 1; i < crew->n; ++i) {
        coi_member *m = &crew->members[i];
        int         home = i, n;
        const int  *cores;

        if (is_taken && has_core(crew->strategy, i, crew->core)) {
            home = 0;
            is_taken = false;
        }
        if (home == m->home)
            continue;
        m->home = home;
        m->is_invited = false;
        cores = cores_of(crew->strategy, home, &n);
        coi_thread_settle(m->thread, cores, n);
    }
}

/* --- their days --- */

/*
 * A step after a rest: where and when it began, for who decides where the next one begins. A guest
 * that had to wait longer for the caller's core than its own takes to wake is in a long step, of
 * which there may be more to come: it goes home.
 */
static bool
wake_up(coi_member *m)
{
    const coi_crew *crew = m->crew;

    m->woke_ns = coi_now_ns();
    m->core = sched_getcpu();
    if (m->core != crew->core)
        return false;
    if (crew->has_guests && m->woke_ns - crew->began_ns > MOST_WAKE_NS)
        coi_thread_go_home(m->thread);
    return true;
}

static void
member_main(void *arg)
{
    coi_member  *m = arg;
    coi_crew    *crew = m->crew;
    coi_waiting *waiting = &crew->runtime->waiting;
    unsigned     seen = 0;
    bool         is_guest = false; /* on the caller's core, where spinning is in its way */

    coi_waiting_begin(waiting);
    for (;;) {
        while (coi_event_read(&m->go) == seen)
            coi_event_wait_spinning(&m->go, seen, waiting, is_guest ? 0 : waiting->spin_us, -1);
        ++seen;
        if (crew->quit)
            break;
        is_guest = crew->is_rested && wake_up(m);
        coi_run_replica(m, &crew->step);
        if (atomic_fetch_sub_explicit(&crew->busy, 1, memory_order_acq_rel) == 1)
            coi_event_signal(&crew->done);
    }
    coi_waiting_end(waiting);
}

/*
 * Waking a core that rests can take longer than the step itself: 80 us on a virtual machine, where
 * the host has to start it again. So the threads of a crew that slept are woken on the caller's
 * core where the step is expected to take less time that way than such a wake-up. Steps that follow
 * each other are worth it: their threads spin on cores of their own.
 */
static bool
wants_guests(const coi_crew *crew)
{
    return crew->wakes_here && crew->num_short >= crew->patience &&
           crew->began_ns - crew->ended_ns > SHORT_REST_NS;
}

void
coi_crew_wake(coi_crew *crew)
{
    int  core = sched_getcpu();
    bool here = false;

    if (core != crew->core) {
        crew->core = core;
        settle_members(crew);
    }
    crew->is_rested = coi_event_has_sleepers(&crew->members[1].go);
    if (crew->is_rested) {
        crew->began_ns = coi_now_ns();
        crew->used_ns = coi_thread_used_ns();
        here = wants_guests(crew);
    }
    crew->has_guests = here;
    for (int i = 1; i < crew->n; ++i) {
        coi_member *m = &crew->members[i];
        bool        was_invited = m->is_invited;

        m->is_invited = here;
        if (here && (!was_invited || m->core != core))
            coi_thread_wake_at(m->thread, &m->go, core);
        else if (!here && was_invited)
            coi_thread_wake_home(m->thread, &m->go);
        else
            coi_event_signal(&m->go);
    }
}

/*
 * A long step that began with guests went by turns to its end: the kernel moves none of them for
 * milliseconds. Others have to earn what that lost, one wake-up each, before the next has guests.
 * Time in which another process had the core is not the step's.
 */
static void
note_length(coi_crew *crew, bool had_guests)
{
    uint64_t used_ns = coi_thread_used_ns() - crew->used_ns;
    uint64_t earned = used_ns / (crew->wake_ns > 0 ? crew->wake_ns : 1);

    if (used_ns < LONG_STEP_NS) {
        crew->num_short += crew->num_short < MOST_PATIENCE;
        if (had_guests)
            crew->patience = PATIENCE;
        return;
    }
    crew->num_short = 0;
    if (had_guests && earned > PATIENCE)
        crew->patience = earned < MOST_PATIENCE ? (int)earned : MOST_PATIENCE;
}

/* The first member that woke on another core than the caller's; NULL: they all were with it. */
static const coi_member *
member_away(const coi_crew *crew)
{
    for (int i = 1; i < crew->n; ++i)
        if (crew->members[i].core != crew->core)
            return &crew->members[i];
    return NULL;
}

/* After a step that followed a rest: where would the next such step better begin? */
void
coi_crew_rest(coi_crew *crew)
{
    const coi_member *away;
    uint64_t          took_ns;

    if (!crew->is_rested)
        return;
    away = member_away(crew);
    crew->ended_ns = coi_now_ns();
    took_ns = crew->ended_ns - crew->began_ns;
    if (away != NULL) {
        uint64_t wake_ns = away->woke_ns - crew->began_ns;

        crew->wake_ns = wake_ns < MOST_WAKE_NS ? wake_ns : MOST_WAKE_NS;
        took_ns -= wake_ns;
    }
    crew->wakes_here = took_ns < crew->wake_ns;
    note_length(crew, crew->has_guests && away == NULL);
}

/* --- crews --- */

static void
crew_free(coi_crew *crew)
{
    coi_memory *memory = &crew->runtime->memory;

    crew->quit = true;
    for (int i = 0; i < crew->n; ++i) {
        coi_member *m = &crew->members[i];

        if (m->thread != NULL) {
            coi_event_signal(&m->go);
            coi_thread_join(memory, m->thread);
        }
        if (m->ctx != NULL)
            coi_context_free(m->ctx);
    }
    coi_free(memory, crew, crew->nbytes);
}

static bool
start_member(co_context *ctx, coi_member *m)
{
    coi_crew  *crew = m->crew;
    char       name[16];
    int        num_cores;
    const int *cores;

    m->ctx = coi_context_new(crew->runtime);
    if (m->ctx == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the context of replica %d", m->replica);
        return false;
    }
    /* Once and for all: what a step changes, its blocks give back. */
    coi_set_device(m->ctx, &crew->strategy->devices[m->replica]);
    if (m->replica == 0)
        return true; /* the caller's thread */
    cores = cores_of(crew->strategy, m->replica, &num_cores);
    snprintf(name, sizeof(name), "co-replica-%d", m->replica);
    if (coi_thread_start(&crew->runtime->memory, name, cores, num_cores, REPLICA_STACK_BYTES,
                         member_main, m, &m->thread, coi_err(ctx)) == CO_OK)
        return true;
    coi_failed(ctx);
    return false;
}

/* crew, members and seats are one block. */
static coi_crew *
crew_new(co_context *ctx, co_strategy *strategy)
{
    size_t    n = (size_t)strategy->num_local;
    size_t    seats_at = (sizeof(coi_crew) + 63) & ~(size_t)63;
    size_t    members_at = seats_at + n * sizeof(coi_seat);
    size_t    nbytes = members_at + n * sizeof(coi_member);
    coi_crew *crew = coi_calloc(&strategy->runtime->memory, nbytes);

    if (crew == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a crew of %d replicas",
                 strategy->num_local);
        return NULL;
    }
    crew->nbytes = nbytes;
    crew->strategy = strategy;
    crew->runtime = strategy->runtime;
    crew->n = strategy->num_local;
    crew->wake_ns = WAKE_NS;
    crew->patience = PATIENCE;
    crew->core = -1;
    crew->step.seats = (coi_seat *)(void *)((char *)crew + seats_at);
    crew->members = (coi_member *)(void *)((char *)crew + members_at);
    coi_event_init(&crew->done);
    coi_event_init(&crew->step.gate);
    coi_event_init(&crew->step.turn);
    coi_lock_init(&crew->step.error_lock);
    coi_lock_init(&crew->step.inner_lock);
    for (int i = 0; i < crew->n; ++i) {
        crew->members[i].crew = crew;
        crew->members[i].replica = crew->members[i].home = i;
        coi_event_init(&crew->members[i].go);
        if (!start_member(ctx, &crew->members[i])) {
            crew_free(crew);
            return NULL;
        }
    }
    return crew;
}

coi_crew *
coi_crew_take(co_context *ctx, co_strategy *strategy)
{
    coi_crew *crew;

    /* The threads of a crew did not come along into a forked child: waiting for them would never
     * end. */
    if (strategy->num_local > 1 && !coi_check_home(ctx))
        return NULL;
    crew = atomic_exchange_explicit(&strategy->spare_crew, NULL, memory_order_acquire);
    if (crew != NULL)
        return crew;
    coi_lock_take(&strategy->lock);
    crew = strategy->crews;
    if (crew != NULL)
        strategy->crews = crew->next;
    coi_lock_give(&strategy->lock);
    return crew != NULL ? crew : crew_new(ctx, strategy);
}

void
coi_crew_give(coi_crew *crew)
{
    co_strategy *strategy = crew->strategy;
    coi_crew    *none = NULL;

    if (atomic_compare_exchange_strong_explicit(&strategy->spare_crew, &none, crew,
                                                memory_order_release, memory_order_relaxed))
        return;
    coi_lock_take(&strategy->lock);
    crew->next = strategy->crews;
    strategy->crews = crew;
    coi_lock_give(&strategy->lock);
}

void
coi_crews_free(co_strategy *strategy)
{
    coi_crew *spare = atomic_exchange(&strategy->spare_crew, NULL);

    if (spare != NULL)
        crew_free(spare);
    while (strategy->crews != NULL) {
        coi_crew *crew = strategy->crews;

        strategy->crews = crew->next;
        crew_free(crew);
    }
}

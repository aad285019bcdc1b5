/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport "threads". One lock and one condition serve a world: it is for tests and small
 * programs, not for speed. Data is copied once, by the receiver, outside the lock:
 *
 *     sender    posts a parcel in its queue to the receiver ....... waits until it is DONE
 *     receiver                     takes it (TAKEN), copies, marks it DONE
 *
 * A sender that gives up takes its parcels out of the queue and waits for those being copied, so no
 * parcel outlives its call.
 */
#include "collective/local/ranks.h"

#include "collective/handshake.h"

#include <errno.h>
#include <string.h>
#include <time.h>

typedef enum parcel_state { WAITING, TAKEN, DONE } parcel_state;

typedef struct parcel {
    const void    *data;
    size_t         nbytes;
    int            to;
    parcel_state   state;
    struct parcel *next;
} parcel;

/* What is on its way from one rank to another. */
typedef struct route {
    coi_inbox inbox;
    parcel   *parcels; /* not yet taken, in order */
} route;

typedef enum rank_slot_state { FREE, OPEN, CLOSED } rank_slot_state;

struct coi_thread_world {
    coi_memory      *memory;
    int              size;
    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    rank_slot_state *rank_slots;
    route           *routes; /* from * size + to */
};

typedef struct thread_group {
    coi_group         group;
    coi_thread_world *world;
    uint64_t          epoch; /* of the last exchange */
    uint64_t          sequence;
    bool             *is_named;
} thread_group;

static route *
route_between(coi_thread_world *world, int from, int to)
{
    return &world->routes[(size_t)from * (size_t)world->size + (size_t)to];
}

/* Wait for a change; false when the deadline has passed. The lock is held. */
static bool
wait_change(coi_thread_world *world, coi_waiting *waiting, coi_moment deadline)
{
    struct timespec until = { (time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u) };
    int             rc;

    if (waiting != NULL)
        coi_waiting_end(waiting);
    if (deadline == 0)
        rc = pthread_cond_wait(&world->changed, &world->lock);
    else
        rc = pthread_cond_timedwait(&world->changed, &world->lock, &until);
    if (waiting != NULL)
        coi_waiting_begin(waiting);
    return rc != ETIMEDOUT;
}

co_code
coi_thread_world_create(coi_memory *memory, int size, coi_thread_world **out, co_error_info *err)
{
    size_t             num_routes = (size_t)size * (size_t)size;
    coi_thread_world  *world = coi_calloc(memory, sizeof(*world));
    pthread_condattr_t attributes;

    if (world == NULL)
        goto err_memory;
    world->memory = memory;
    world->size = size;
    world->rank_slots = coi_calloc(memory, (size_t)size * sizeof(world->rank_slots[0]));
    world->routes = coi_calloc(memory, num_routes * sizeof(world->routes[0]));
    if (world->rank_slots == NULL || world->routes == NULL)
        goto err_release;
    pthread_mutex_init(&world->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&world->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = world;
    return CO_OK;

err_release:
    coi_free(memory, world->rank_slots, (size_t)size * sizeof(world->rank_slots[0]));
    coi_free(memory, world->routes, num_routes * sizeof(world->routes[0]));
    coi_free(memory, world, sizeof(*world));
err_memory:
    return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a world of %d ranks", size);
}

void
coi_thread_world_destroy(coi_thread_world *world)
{
    size_t size = (size_t)world->size;

    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->lock);
    coi_free(world->memory, world->routes, size * size * sizeof(world->routes[0]));
    coi_free(world->memory, world->rank_slots, size * sizeof(world->rank_slots[0]));
    coi_free(world->memory, world, sizeof(*world));
}

/* Put a handshake into the inboxes of the others. The lock is held. */
static void
tell_all(thread_group *self, const coi_handshake *handshake)
{
    coi_handshake copy = *handshake;

    coi_handshake_clean(&copy, self->group.rank);
    for (int to = 0; to < self->group.size; ++to)
        if (to != self->group.rank)
            coi_inbox_put(&route_between(self->world, self->group.rank, to)->inbox, &copy);
    pthread_cond_broadcast(&self->world->changed);
}

/* Mark the ranks that are still free; true if there are any. */
static bool
mark_free(const coi_thread_world *world, bool *is_named)
{
    bool any = false;

    for (int r = 0; r < world->size; ++r) {
        is_named[r] = world->rank_slots[r] == FREE;
        any = any || is_named[r];
    }
    return any;
}

/* Take the rank and wait for the others. */
static co_code
take_rank(thread_group *self, const coi_group_options *options, co_error_info *err)
{
    coi_thread_world *world = self->world;
    coi_moment        deadline = coi_deadline(options->deadline_ms > 0 ? options->deadline_ms : -1);
    char              names[COI_RANKS_TEXT];
    co_code           rc = CO_OK;
    bool              in_time = true;

    pthread_mutex_lock(&world->lock);
    if (world->rank_slots[self->group.rank] != FREE) {
        rc = coi_error(err, CO_VALUE_ERROR, "rank %d of the world of threads is taken already",
                       self->group.rank);
    } else {
        world->rank_slots[self->group.rank] = OPEN;
        pthread_cond_broadcast(&world->changed);
        while (mark_free(world, self->is_named) && in_time)
            in_time = wait_change(world, options->waiting, deadline);
        if (mark_free(world, self->is_named)) {
            world->rank_slots[self->group.rank] = FREE;
            rc = coi_error(err, CO_DEADLINE_EXCEEDED,
                           "rank %d of %d: %s did not open the group within %d ms",
                           self->group.rank, world->size,
                           coi_name_ranks(self->is_named, world->size, names),
                           options->deadline_ms);
        }
    }
    pthread_mutex_unlock(&world->lock);
    return rc;
}

static void
release(thread_group *self, coi_memory *memory)
{
    coi_free(memory, self->is_named, (size_t)self->group.size * sizeof(bool));
    coi_free(memory, self, sizeof(*self));
}

static co_code
threads_open(const coi_group_options *options, coi_group **out, co_error_info *err)
{
    const coi_thread_rank *rank_slot = options->communicator;
    thread_group          *self;
    co_code                rc;

    if (rank_slot == NULL || rank_slot->world == NULL || rank_slot->rank < 0 ||
        rank_slot->rank >= rank_slot->world->size)
        return coi_error(err, CO_VALUE_ERROR,
                         "transport 'threads': communicator names no rank in a world of threads");
    self = coi_calloc(options->memory, sizeof(*self));
    if (self == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a group of %d ranks",
                         rank_slot->world->size);
    self->group.rank = rank_slot->rank;
    self->group.size = rank_slot->world->size;
    self->world = rank_slot->world;
    self->is_named = coi_calloc(options->memory, (size_t)self->group.size * sizeof(bool));
    if (self->is_named == NULL)
        rc = coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a group of %d ranks",
                       rank_slot->world->size);
    else
        rc = take_rank(self, options, err);
    if (rc != CO_OK) {
        release(self, options->memory);
        return rc;
    }
    *out = &self->group;
    return CO_OK;
}

static bool
threads_close(coi_group *group)
{
    thread_group *self = (thread_group *)group;
    coi_handshake bye;

    coi_handshake_closed(&bye, group);
    pthread_mutex_lock(&self->world->lock);
    self->world->rank_slots[group->rank] = CLOSED;
    tell_all(self, &bye);
    pthread_mutex_unlock(&self->world->lock);
    release(self, group->memory);
    return true;
}

static co_code
threads_exchange(coi_group *group, const coi_handshake *mine, coi_handshake *all, int timeout_ms,
                 co_error_info *err)
{
    thread_group     *self = (thread_group *)group;
    coi_thread_world *world = self->world;
    coi_moment        deadline = coi_deadline(timeout_ms);
    bool              in_time = true;
    coi_arrival       arrival;
    co_code           rc = coi_group_check(group, err);

    if (rc != CO_OK)
        return rc;
    self->epoch = mine->epoch;
    self->sequence = mine->sequence;
    for (int r = 0; r < group->size; ++r)
        all[r].kind = COI_HANDSHAKE_NONE;
    all[group->rank] = *mine;
    pthread_mutex_lock(&world->lock);
    tell_all(self, mine);
    for (;;) {
        for (int r = 0; r < group->size; ++r)
            if (r != group->rank)
                coi_inbox_update(&route_between(world, r, group->rank)->inbox, mine->epoch,
                                 mine->sequence, &all[r]);
        arrival = coi_judge_arrival(all, group->size);
        if (arrival != COI_SOME_MISSING || !in_time)
            break;
        in_time = wait_change(world, group->waiting, deadline);
    }
    pthread_mutex_unlock(&world->lock);
    if (arrival == COI_SOME_MISSING)
        return coi_missing_error(mine, all, group->rank, group->size, self->is_named, timeout_ms,
                                 err);
    return CO_OK;
}

static void
threads_notify(coi_group *group, const coi_handshake *handshake)
{
    thread_group *self = (thread_group *)group;

    pthread_mutex_lock(&self->world->lock);
    tell_all(self, handshake);
    pthread_mutex_unlock(&self->world->lock);
}

/* A call of transfer under way. */
typedef struct traffic {
    thread_group       *self;
    const coi_transfer *receives;
    size_t              num_sends, num_receives;
    parcel             *parcels;
    bool               *is_received;
} traffic;

static void
post(traffic *t, const coi_transfer *sends)
{
    for (size_t i = 0; i < t->num_sends; ++i) {
        parcel **tail = &route_between(t->self->world, t->self->group.rank, sends[i].peer)->parcels;

        t->parcels[i] = (parcel){ sends[i].data, sends[i].nbytes, sends[i].peer, WAITING, NULL };
        while (*tail != NULL)
            tail = &(*tail)->next;
        *tail = &t->parcels[i];
    }
    pthread_cond_broadcast(&t->self->world->changed);
}

/* Copy a parcel that was taken out of its queue; the lock is given back meanwhile. */
static void
unpack(coi_thread_world *world, parcel *taken, void *to)
{
    taken->state = TAKEN;
    pthread_mutex_unlock(&world->lock);
    if (taken->nbytes > 0)
        memcpy(to, taken->data, taken->nbytes);
    pthread_mutex_lock(&world->lock);
    taken->state = DONE;
    pthread_cond_broadcast(&world->changed);
}

/* Receive what is there. A receive waits for those before it from the same peer. */
static co_code
receive(traffic *t, co_error_info *err)
{
    coi_thread_world *world = t->self->world;

    for (size_t i = 0; i < t->num_receives; ++i) {
        const coi_transfer *want = &t->receives[i];
        route              *from = route_between(world, want->peer, t->self->group.rank);
        parcel             *head = from->parcels;
        bool                is_next = !t->is_received[i];

        for (size_t k = 0; k < i && is_next; ++k)
            is_next = t->is_received[k] || t->receives[k].peer != want->peer;
        if (!is_next || head == NULL)
            continue;
        if (head->nbytes != want->nbytes)
            return coi_error(err, CO_INTERNAL, "rank %d sent %zu bytes where rank %d expected %zu",
                             want->peer, head->nbytes, t->self->group.rank, want->nbytes);
        from->parcels = head->next;
        unpack(world, head, want->data);
        t->is_received[i] = true;
    }
    return CO_OK;
}

/* Mark the peers we still wait for; true if there are any. */
static bool
mark_pending(traffic *t)
{
    bool any = false;

    memset(t->self->is_named, 0, (size_t)t->self->group.size * sizeof(bool));
    for (size_t i = 0; i < t->num_sends; ++i)
        if (t->parcels[i].state != DONE)
            any = t->self->is_named[t->parcels[i].to] = true;
    for (size_t i = 0; i < t->num_receives; ++i)
        if (!t->is_received[i])
            any = t->self->is_named[t->receives[i].peer] = true;
    return any;
}

/* A failure of anybody in this epoch, or the leave of a peer we wait for (is_named). */
static co_code
check_peers(const traffic *t, co_error_info *err)
{
    thread_group *self = t->self;

    for (int r = 0; r < self->group.size; ++r) {
        const coi_inbox     *inbox = &route_between(self->world, r, self->group.rank)->inbox;
        const coi_handshake *failure = coi_inbox_failure(inbox, self->epoch, self->sequence);

        if (failure != NULL)
            return coi_handshake_error(failure, r, err);
        if (self->is_named[r] && coi_inbox_is_closed(inbox))
            return coi_error(err, CO_UNAVAILABLE,
                             "rank %d left the group in the middle of a transfer", r);
    }
    return CO_OK;
}

/* Take back what no rank took, and let ranks that are copying finish. */
static void
withdraw(traffic *t)
{
    coi_thread_world *world = t->self->world;

    for (size_t i = 0; i < t->num_sends; ++i) {
        parcel **link = &route_between(world, t->self->group.rank, t->parcels[i].to)->parcels;

        while (*link != NULL && *link != &t->parcels[i])
            link = &(*link)->next;
        if (*link != NULL)
            *link = t->parcels[i].next;
        while (t->parcels[i].state == TAKEN)
            wait_change(world, NULL, 0);
    }
}

static co_code
run_traffic(traffic *t, const coi_transfer *sends, int timeout_ms, co_error_info *err)
{
    coi_group *group = &t->self->group;
    coi_moment deadline = coi_deadline(timeout_ms);
    char       names[COI_RANKS_TEXT];
    bool       in_time = true;
    co_code    rc;

    post(t, sends);
    for (;;) {
        rc = receive(t, err);
        if (rc != CO_OK || !mark_pending(t))
            break;
        rc = check_peers(t, err);
        if (rc == CO_OK && !in_time)
            rc = coi_error(err, CO_DEADLINE_EXCEEDED,
                           "rank %d of %d: no data to or from %s within %d ms", group->rank,
                           group->size, coi_name_ranks(t->self->is_named, group->size, names),
                           timeout_ms);
        if (rc != CO_OK)
            break;
        in_time = wait_change(t->self->world, group->waiting, deadline);
    }
    if (rc != CO_OK)
        withdraw(t);
    return rc;
}

static co_code
threads_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
                 const coi_transfer *receives, size_t num_receives, int timeout_ms,
                 co_error_info *err)
{
    thread_group *self = (thread_group *)group;
    traffic       t = {
              .self = self, .receives = receives, .num_sends = num_sends, .num_receives = num_receives
    };
    co_code rc = coi_group_check(group, err);

    if (rc != CO_OK)
        return rc;
    t.parcels = coi_alloc(group->memory, num_sends * sizeof(parcel));
    t.is_received = coi_calloc(group->memory, num_receives * sizeof(bool));
    if (t.parcels == NULL || t.is_received == NULL) {
        rc = coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu transfers",
                       num_sends + num_receives);
    } else {
        pthread_mutex_lock(&self->world->lock);
        rc = run_traffic(&t, sends, timeout_ms, err);
        pthread_mutex_unlock(&self->world->lock);
    }
    coi_free(group->memory, t.parcels, num_sends * sizeof(parcel));
    coi_free(group->memory, t.is_received, num_receives * sizeof(bool));
    if (rc != CO_OK)
        coi_group_break(group, rc, err);
    return rc;
}

const coi_transport coi_threads_transport = {
    .abi = COI_TRANSPORT_ABI,
    .handshake_size = sizeof(coi_handshake),
    .group_size = sizeof(coi_group),
    .name = "threads",
    .open = threads_open,
    .close = threads_close,
    .exchange = threads_exchange,
    .transfer = threads_transfer,
    .notify = threads_notify,
};

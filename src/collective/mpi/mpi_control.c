/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handshakes over MPI. Each is a message of fixed size to every peer, on a communicator of their
 * own. One receive from anybody is always posted; what it brings is cleaned and put into the inbox
 * of its sender. Sends are started from a ring of slots and never waited for, except by exchange,
 * which has a deadline.
 */
#include "collective/mpi/mpi.h"

#include <string.h>
#include <unistd.h>

co_code
coi_mpi_call_error(mpi_group *self, int mpi_code, const char *call, int peer, co_error_info *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int  length;

    if (MPI_Error_string(mpi_code, text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    if (peer >= 0)
        return coi_error(err, CO_UNAVAILABLE, "rank %d of %d: %s with rank %d failed: %s",
                         self->group.rank, self->group.size, call, peer, text);
    return coi_error(err, CO_UNAVAILABLE, "rank %d of %d: %s failed: %s", self->group.rank,
                     self->group.size, call, text);
}

co_code
coi_mpi_check_usable(mpi_group *self, co_error_info *err)
{
    co_code rc = coi_group_check(&self->group, err);

    if (rc != CO_OK)
        return rc;
    return coi_mpi_check_callable(self, err);
}

co_code
coi_mpi_check_callable(mpi_group *self, co_error_info *err)
{
    int flag = 0;

    if (getpid() != self->pid)
        return coi_error(
            err, CO_FAILED_PRECONDITION,
            "process %lld was forked from rank %d: MPI works only in the process that started it",
            (long long)getpid(), self->group.rank);
    if (MPI_Finalized(&flag) == MPI_SUCCESS && flag)
        return coi_error(
            err, CO_FAILED_PRECONDITION,
            "rank %d of %d: MPI_Finalize was called while a strategy still uses MPI; close the strategy first",
            self->group.rank, self->group.size);
    if (self->is_main_only && MPI_Is_thread_main(&flag) == MPI_SUCCESS && !flag)
        return coi_error(
            err, CO_FAILED_PRECONDITION,
            "MPI was started for calls from the main thread alone; make them there, or start it with "
            "MPI_Init_thread(MPI_THREAD_SERIALIZED)");
    return CO_OK;
}

void
coi_mpi_hold(mpi_group *self)
{
    self->group.holding = true;
    coi_memory_keep(self->group.memory);
}

co_code
coi_mpi_listen(mpi_group *self, co_error_info *err)
{
    int rc = MPI_Irecv(self->message, COI_MPI_MESSAGE_BYTES, MPI_BYTE, MPI_ANY_SOURCE, COI_MPI_TAG,
                       self->control, &self->listen);

    if (rc != MPI_SUCCESS) {
        self->listen = MPI_REQUEST_NULL;
        return coi_mpi_call_error(self, rc, "MPI_Irecv", -1, err);
    }
    return CO_OK;
}

bool
coi_mpi_unlisten(mpi_group *self)
{
    int done = 0;

    if (self->listen == MPI_REQUEST_NULL)
        return true;
    /*
     * A receive can be cancelled without the help of a peer; the tests are many in case a message
     * is just coming in.
     */
    if (MPI_Cancel(&self->listen) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < 1000 && !done; ++i)
        if (MPI_Test(&self->listen, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return self->listen == MPI_REQUEST_NULL;
    return done != 0;
}

/* Put the message that came into the inbox of its sender. */
static void
deliver(mpi_group *self, const MPI_Status *status)
{
    int           from = status->MPI_SOURCE, nbytes = 0;
    coi_handshake handshake;

    if (from < 0 || from >= self->group.size)
        return;
    if (MPI_Get_count(status, MPI_BYTE, &nbytes) != MPI_SUCCESS ||
        nbytes != (int)sizeof(handshake)) {
        coi_handshake_fail(
            &handshake, CO_FAILED_PRECONDITION,
            "its handshakes have %d bytes, ours %zu: all ranks must run the same version of the library",
            nbytes, sizeof(handshake));
    } else {
        memcpy(&handshake, self->message, sizeof(handshake));
        if (handshake.kind == COI_HANDSHAKE_OPEN) {
            if (self->peers[from].has_opened)
                handshake.kind = COI_HANDSHAKE_NONE; /* out of place: no kind at all */
            self->peers[from].has_opened = true;
        }
        coi_handshake_clean(&handshake, from);
    }
    coi_inbox_put(&self->inboxes[from], &handshake);
}

/*
 * Has a slot been sent? Requests that ended with an error count as done: the loss of the peer is
 * noticed later, where its data is needed.
 */
static bool
is_free(mpi_group *self, mpi_slot *slot)
{
    bool is_sent = true;

    for (int i = 0; i < self->group.size - 1 && slot->is_busy; ++i) {
        int done = 1;

        if (slot->requests[i] != MPI_REQUEST_NULL &&
            MPI_Test(&slot->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            done = slot->requests[i] == MPI_REQUEST_NULL;
        is_sent = is_sent && done;
    }
    slot->is_busy = slot->is_busy && !is_sent;
    return !slot->is_busy;
}

/* Start sending to all peers; false when the ring is full. */
static bool
say(mpi_group *self, const coi_handshake *handshake)
{
    mpi_slot *slot = NULL;
    int       n = 0;

    for (int i = 0; i < COI_MPI_RING && slot == NULL; ++i)
        if (is_free(self, &self->ring[i]))
            slot = &self->ring[i];
    if (slot == NULL)
        return false;
    slot->handshake = *handshake;
    slot->is_busy = true;
    for (int k = 1; k < self->group.size; ++k) {
        int to = (int)(((int64_t)self->group.rank + k) % self->group.size);

        if (self->peers[to].is_gone ||
            MPI_Isend(&slot->handshake, (int)sizeof(slot->handshake), MPI_BYTE, to, COI_MPI_TAG,
                      self->control, &slot->requests[n]) != MPI_SUCCESS)
            slot->requests[n] = MPI_REQUEST_NULL;
        ++n;
    }
    return true;
}

/* Send the pending notice, so that nothing later overtakes it; false if the ring is still full. */
static bool
say_pending(mpi_group *self)
{
    if (self->has_pending && say(self, &self->pending))
        self->has_pending = false;
    return !self->has_pending;
}

co_code
coi_mpi_poll(mpi_group *self, co_error_info *err)
{
    MPI_Status status;
    int        here = 1, rc;
    co_code    code = CO_OK;

    say_pending(self);
    while (here && code == CO_OK && self->listen != MPI_REQUEST_NULL) {
        rc = MPI_Test(&self->listen, &here, &status);
        if (rc != MPI_SUCCESS)
            return coi_mpi_call_error(self, rc, "MPI_Test of a receive", -1, err);
        if (here) {
            deliver(self, &status);
            code = coi_mpi_listen(self, err);
        }
    }
    return code;
}

bool
coi_mpi_all_sent(mpi_group *self)
{
    bool all = say_pending(self);

    for (int i = 0; i < COI_MPI_RING; ++i)
        all = is_free(self, &self->ring[i]) && all;
    return all;
}

void
coi_mpi_notify(coi_group *group, const coi_handshake *handshake)
{
    mpi_group *self = (mpi_group *)group;

    if (coi_mpi_check_callable(self, NULL) != CO_OK)
        return;
    if (say_pending(self) && say(self, handshake))
        return;
    /* The peers have not listened for long. Keep what matters most for when they do. */
    if (!self->has_pending || self->pending.kind == COI_HANDSHAKE_RUN_END ||
        handshake->kind != COI_HANDSHAKE_RUN_END)
        self->pending = *handshake;
    self->has_pending = true;
}

/* Send it within the time of `wait`. */
static co_code
say_in_time(mpi_group *self, const coi_handshake *handshake, mpi_wait *wait, co_error_info *err)
{
    while (!say_pending(self) || !say(self, handshake)) {
        co_code rc = coi_mpi_poll(self, err);

        if (rc != CO_OK)
            return rc;
        if (coi_is_past(wait->deadline))
            return coi_error(err, CO_DEADLINE_EXCEEDED,
                             "rank %d of %d: no peer took the last %d messages within %d ms",
                             self->group.rank, self->group.size, COI_MPI_RING, wait->timeout_ms);
        coi_mpi_wait_pause(wait, self);
    }
    return CO_OK;
}

/*
 * Check missing peers. A dead peer may have sent a message before it died: it is given up at the
 * second check.
 */
static co_code
look_after(mpi_group *self, const coi_handshake *all, bool *was_gone, co_error_info *err)
{
    bool is_gone;

    for (int r = 0; r < self->group.size; ++r)
        self->is_named[r] = all[r].kind == COI_HANDSHAKE_NONE;
    is_gone = coi_mpi_find_gone(self, self->is_named);
    if (is_gone && *was_gone)
        return coi_mpi_gone_error(self, self->is_named, err);
    *was_gone = is_gone;
    return CO_OK;
}

co_code
coi_mpi_exchange(coi_group *group, const coi_handshake *mine, coi_handshake *all, int timeout_ms,
                 co_error_info *err)
{
    mpi_group  *self = (mpi_group *)group;
    bool        was_gone = false;
    coi_arrival arrival;
    mpi_wait    wait;
    co_code     rc = coi_mpi_check_usable(self, err);

    if (rc != CO_OK)
        return rc;
    coi_mpi_wait_begin(&wait, timeout_ms, 0);
    self->epoch = mine->epoch;
    self->sequence = mine->sequence;
    for (int r = 0; r < group->size; ++r)
        all[r].kind = COI_HANDSHAKE_NONE;
    all[group->rank] = *mine;
    rc = say_in_time(self, mine, &wait, err);
    while (rc == CO_OK) {
        rc = coi_mpi_poll(self, err);
        for (int r = 0; r < group->size; ++r)
            if (r != group->rank)
                coi_inbox_update(&self->inboxes[r], mine->epoch, mine->sequence, &all[r]);
        arrival = coi_judge_arrival(all, group->size);
        if (rc != CO_OK || arrival != COI_SOME_MISSING)
            break;
        if (coi_is_past(wait.deadline))
            return coi_missing_error(mine, all, group->rank, group->size, self->is_named,
                                     timeout_ms, err);
        if (coi_mpi_wait_poll(&wait))
            rc = look_after(self, all, &was_gone, err);
        coi_mpi_wait_pause(&wait, self);
    }
    if (rc != CO_OK && rc != CO_DEADLINE_EXCEEDED)
        coi_group_break(group, rc, err);
    return rc;
}

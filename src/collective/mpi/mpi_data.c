/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data over MPI: straight from and to the caller's memory, in messages whose size fits an int. When
 * a transfer is cut off, receives are cancelled; what MPI does not let go of after that is reported
 * as `holding`, and the caller leaks it.
 */
#include "collective/mpi/mpi.h"

#include <limits.h>

#define PIECE_BYTES ((size_t)16 << 20)   /* fits an int, and a test can exceed it */
#define GRACE_MS    100                  /* for MPI to let go of a transfer that was cut off */
#define LEFT_NS     UINT64_C(1000000000) /* for data of a peer that left in order to come in */

/* A transfer under way. Requests: receives first, then sends, each in pieces. */
typedef struct traffic {
    mpi_group          *self;
    const coi_transfer *receives, *sends;
    size_t              num_receives, num_sends;
    int                 num_requests;
} traffic;

/* A piece of a transfer, found by counting. */
typedef struct piece {
    const coi_transfer *of;
    size_t              offset;
    int                 nbytes;
    bool                is_receive;
} piece;

static size_t
count_pieces(const coi_transfer *transfers, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; ++i)
        count += transfers[i].nbytes / PIECE_BYTES + (transfers[i].nbytes % PIECE_BYTES != 0);
    return count;
}

static size_t
count_bytes(const traffic *t)
{
    size_t nbytes = 1;

    for (size_t i = 0; i < t->num_receives; ++i)
        nbytes += t->receives[i].nbytes;
    for (size_t i = 0; i < t->num_sends; ++i)
        nbytes += t->sends[i].nbytes;
    return nbytes;
}

/* Go to the next piece; start from a zeroed one. False at the end. */
static bool
next_piece(const traffic *t, piece *at)
{
    size_t left;

    if (at->of == NULL) {
        at->of = t->receives;
        at->is_receive = true;
    } else {
        at->offset += (size_t)at->nbytes;
    }
    for (;;) {
        if (at->is_receive && at->of == t->receives + t->num_receives) {
            at->of = t->sends;
            at->is_receive = false;
        }
        if (!at->is_receive && at->of == t->sends + t->num_sends)
            return false;
        if (at->offset < at->of->nbytes)
            break;
        at->offset = 0;
        ++at->of;
    }
    left = at->of->nbytes - at->offset;
    at->nbytes = (int)(left < PIECE_BYTES ? left : PIECE_BYTES);
    return true;
}

static co_code
make_room(mpi_group *self, size_t n, co_error_info *err)
{
    size_t       capacity = self->capacity != 0 ? self->capacity : 8;
    MPI_Request *requests;

    if (n <= self->capacity)
        return CO_OK;
    while (capacity < n)
        capacity *= 2;
    requests = n <= INT_MAX ? coi_alloc(self->group.memory, capacity * sizeof(*requests)) : NULL;
    if (requests == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu messages at once", n);
    coi_free(self->group.memory, self->requests, self->capacity * sizeof(*requests));
    self->requests = requests;
    self->capacity = capacity;
    return CO_OK;
}

static co_code
start(traffic *t, co_error_info *err)
{
    mpi_group *self = t->self;
    piece      at = { 0 };

    t->num_requests = 0;
    while (next_piece(t, &at)) {
        unsigned char *data = (unsigned char *)at.of->data + at.offset;
        MPI_Request   *request = &self->requests[t->num_requests];
        int            rc;

        *request = MPI_REQUEST_NULL;
        if (at.is_receive)
            rc = MPI_Irecv(data, at.nbytes, MPI_BYTE, at.of->peer, COI_MPI_TAG, self->data,
                           request);
        else
            rc = MPI_Isend(data, at.nbytes, MPI_BYTE, at.of->peer, COI_MPI_TAG, self->data,
                           request);
        if (rc != MPI_SUCCESS)
            return coi_mpi_call_error(self, rc, at.is_receive ? "MPI_Irecv" : "MPI_Isend",
                                      at.of->peer, err);
        ++t->num_requests;
    }
    return CO_OK;
}

/* A message has ended: as it should? */
static co_code
check_ended(const traffic *t, const piece *at, int mpi_code, const MPI_Status *status,
            co_error_info *err)
{
    int kind = MPI_SUCCESS, got = -1;

    if (mpi_code != MPI_SUCCESS) {
        if (MPI_Error_class(mpi_code, &kind) == MPI_SUCCESS && kind == MPI_ERR_TRUNCATE)
            return coi_error(err, CO_INTERNAL,
                             "rank %d sent more than the %d bytes that rank %d expected",
                             at->of->peer, at->nbytes, t->self->group.rank);
        return coi_mpi_call_error(t->self, mpi_code, at->is_receive ? "receiving" : "sending",
                                  at->of->peer, err);
    }
    if (at->is_receive &&
        (MPI_Get_count(status, MPI_BYTE, &got) != MPI_SUCCESS || got != at->nbytes))
        return coi_error(err, CO_INTERNAL, "rank %d sent %d bytes where rank %d expected %d",
                         at->of->peer, got, t->self->group.rank, at->nbytes);
    return CO_OK;
}

/*
 * Test every message that is under way; those that ended become null, by an error too. One by one,
 * because an error of several at once belongs to no communicator, and so to the error handler of
 * the host.
 */
static co_code
test_all(traffic *t, bool *is_done, co_error_info *err)
{
    piece at = { 0 };

    *is_done = true;
    for (int i = 0; i < t->num_requests && next_piece(t, &at); ++i) {
        MPI_Request *request = &t->self->requests[i];
        MPI_Status   status;
        int          is_ended = 0, mpi_code;
        co_code      rc = CO_OK;

        if (*request == MPI_REQUEST_NULL)
            continue;
        mpi_code = MPI_Test(request, &is_ended, &status);
        if (mpi_code != MPI_SUCCESS || is_ended)
            rc = check_ended(t, &at, mpi_code, &status, err);
        else
            *is_done = false;
        if (rc != CO_OK)
            return rc;
    }
    return CO_OK;
}

/* Name the peers whose messages are under way; true if there are any. */
static bool
mark_pending(traffic *t)
{
    bool  any = false;
    piece at = { 0 };

    for (int r = 0; r < t->self->group.size; ++r)
        t->self->is_named[r] = false;
    for (int i = 0; i < t->num_requests && next_piece(t, &at); ++i)
        if (t->self->requests[i] != MPI_REQUEST_NULL)
            any = t->self->is_named[at.of->peer] = true;
    return any;
}

/* What peers say: a failure of anybody in this epoch, before its part of the transfer was done,
 * ends the wait. */
static co_code
check_words(traffic *t, co_error_info *err)
{
    mpi_group *self = t->self;

    for (int r = 0; r < self->group.size; ++r) {
        const coi_handshake *failure = coi_inbox_failure(&self->inboxes[r], self->epoch,
                                                         self->sequence);

        if (failure != NULL) {
            return coi_handshake_error(failure, r, err);
        }
    }
    return CO_OK;
}

/*
 * Peers that we wait for and that left or whose process ended. Their last data may be on the way:
 * they have a while.
 */
static co_code
look_after(traffic *t, uint64_t *since_ns, co_error_info *err)
{
    mpi_group *self = t->self;
    bool       is_left = false;
    int        who = -1;

    if (!mark_pending(t))
        return CO_OK;
    for (int r = 0; r < self->group.size && who < 0; ++r)
        if (self->is_named[r] && coi_inbox_is_closed(&self->inboxes[r]))
            who = r;
    is_left = who >= 0;
    if (!coi_mpi_find_gone(self, self->is_named) && !is_left) {
        *since_ns = 0;
        return CO_OK;
    }
    if (*since_ns == 0)
        *since_ns = coi_now_ns();
    if (coi_now_ns() - *since_ns < (is_left ? LEFT_NS : GRACE_MS * UINT64_C(1000000)))
        return CO_OK;
    if (!is_left)
        return coi_mpi_gone_error(self, self->is_named, err);
    return coi_error(err, CO_UNAVAILABLE, "rank %d left the group in the middle of a transfer",
                     who);
}

/*
 * Give up: cancel receives and see what MPI lets go of. Sends cannot be cancelled, but may end by
 * themselves.
 */
static void
cut_off(traffic *t)
{
    mpi_group *self = t->self;
    piece      at = { 0 };
    mpi_wait   wait;
    bool       is_pending = true;

    for (int i = 0; i < t->num_requests && next_piece(t, &at); ++i)
        if (at.is_receive && self->requests[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&self->requests[i]);
    coi_mpi_wait_begin(&wait, GRACE_MS, 0);
    while (is_pending) {
        is_pending = false;
        for (int i = 0; i < t->num_requests; ++i) {
            int done = 1;

            if (self->requests[i] != MPI_REQUEST_NULL &&
                MPI_Test(&self->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                done = self->requests[i] == MPI_REQUEST_NULL;
            is_pending = is_pending || !done;
        }
        if (coi_is_past(wait.deadline))
            break;
        if (is_pending)
            coi_mpi_wait_pause(&wait, self);
    }
    if (is_pending)
        coi_mpi_hold(self);
}

static co_code
wait_for_all(traffic *t, int timeout_ms, co_error_info *err)
{
    mpi_group *self = t->self;
    uint64_t   since_ns = 0;
    char       names[COI_RANKS_TEXT];
    mpi_wait   wait;
    bool       is_done;
    co_code    rc;

    coi_mpi_wait_begin(&wait, timeout_ms, count_bytes(t));
    for (;;) {
        rc = test_all(t, &is_done, err);
        if (rc != CO_OK || is_done)
            return rc;
        rc = coi_mpi_poll(self, err);
        if (rc == CO_OK)
            rc = check_words(t, err);
        if (rc == CO_OK && coi_mpi_wait_poll(&wait))
            rc = look_after(t, &since_ns, err);
        if (rc != CO_OK)
            return rc;
        if (coi_is_past(wait.deadline)) {
            mark_pending(t);
            return coi_error(err, CO_DEADLINE_EXCEEDED,
                             "rank %d of %d: no data to or from %s within %d ms", self->group.rank,
                             self->group.size,
                             coi_name_ranks(self->is_named, self->group.size, names), timeout_ms);
        }
        coi_mpi_wait_pause(&wait, self);
    }
}

co_code
coi_mpi_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
                 const coi_transfer *receives, size_t num_receives, int timeout_ms,
                 co_error_info *err)
{
    mpi_group *self = (mpi_group *)group;
    traffic    t = { .self = self,
                     .receives = receives,
                     .sends = sends,
                     .num_receives = num_receives,
                     .num_sends = num_sends };
    co_code    rc = coi_mpi_check_usable(self, err);

    if (rc != CO_OK)
        return rc;
    rc = make_room(self, count_pieces(receives, num_receives) + count_pieces(sends, num_sends),
                   err);
    if (rc == CO_OK)
        rc = start(&t, err);
    if (rc == CO_OK)
        rc = wait_for_all(&t, timeout_ms, err);
    if (rc != CO_OK) {
        cut_off(&t);
        coi_group_break(group, rc, err);
    }
    return rc;
}

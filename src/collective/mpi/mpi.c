/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing groups over MPI, and the life of MPI itself in this process.
 *
 * MPI starts once in a process and cannot be started again. If the host has not started it, the
 * first group does, with calls from any thread but one at a time; it then runs until the process
 * ends normally, and is finalised there, because launchers treat a process that ends without it as
 * crashed. It is not finalised where that could hang or race: after a group broke or while one is
 * open, and never in a forked child. docs/decisions has the reasons.
 */
#include "collective/mpi/mpi.h"

#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long close waits for the last handshakes of the peers. */
#define CLOSE_MS        5000
#define CLOSE_BROKEN_MS 1000

/* The only process-wide state, because MPI itself is process-wide. */
static struct {
    atomic_llong started_by; /* the process in which we started MPI; 0: not we */
    atomic_int   open_groups;
    atomic_bool  is_broken; /* MPI_Finalize would wait for a peer that does not come */
} life;

static void
finalize(void)
{
    int flag = 1;

    if (atomic_load(&life.started_by) != getpid() || atomic_load(&life.open_groups) != 0 ||
        atomic_load(&life.is_broken) || MPI_Finalized(&flag) != MPI_SUCCESS || flag)
        return;
    MPI_Finalize();
}

/*
 * Calls compiled for one MPI and bound to another (the host's) would crash; the library itself says
 * which it is.
 */
static co_code
check_library(co_error_info *err)
{
#if defined(OPEN_MPI)
    static const char *const families[] = { "Open MPI" };
#elif defined(MPICH_NUMVERSION)
    static const char *const families[] = { "MPICH", "Intel", "MVAPICH", "CRAY" };
#else
    static const char *const families[] = { "" };
#endif
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int  length;

    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS)
        text[0] = '\0';
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); ++i)
        if (strstr(text, families[i]) != NULL)
            return CO_OK;
    return coi_error(
        err, CO_FAILED_PRECONDITION,
        "the MPI plug-in was built for %s, but this process runs %.60s; build it with that MPI",
        families[0], text);
}

static co_code
start_mpi(coi_log *log, int *level, co_error_info *err)
{
    int flag = 0;

    if (MPI_Finalized(&flag) == MPI_SUCCESS && flag)
        return coi_error(
            err, CO_FAILED_PRECONDITION,
            "MPI_Finalize was called in this process, and MPI cannot start again; make the strategy before that");
    if (MPI_Initialized(&flag) == MPI_SUCCESS && flag) {
        MPI_Query_thread(level);
        return CO_OK;
    }
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, level) != MPI_SUCCESS)
        return coi_error(err, CO_UNAVAILABLE, "MPI_Init_thread failed");
    /* MPICH gives errors of requests to the world, whatever the communicator. It is ours to set:
     * nobody else has started MPI. Where the host did, its own choice stands. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    atomic_store(&life.started_by, getpid());
    if (atexit(finalize) != 0) /* registered after MPI's own handlers, so it runs before them */
        coi_log_line(log, CO_LOG_WARNING,
                     "MPI will not be finalised at the end of the process: no room for a handler");
    return CO_OK;
}

/* Duplicate without waiting longer than the deadline. */
static co_code
duplicate(mpi_group *self, MPI_Comm from, MPI_Comm *to, mpi_wait *wait, co_error_info *err)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int         done = 0, rc = MPI_Comm_idup(from, to, &request);

    while (rc == MPI_SUCCESS && !done) {
        rc = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS || done)
            break;
        if (coi_is_past(wait->deadline)) {
            coi_mpi_hold(self); /* MPI will write *to when the others come */
            return coi_error(
                err, CO_DEADLINE_EXCEEDED,
                "rank %d of %d: not every rank made this strategy within %d ms; all must, in the same order",
                self->group.rank, self->group.size, wait->timeout_ms);
        }
        coi_mpi_wait_pause(wait, self);
    }
    if (rc != MPI_SUCCESS) {
        if (request != MPI_REQUEST_NULL)
            coi_mpi_hold(self);
        *to = MPI_COMM_NULL;
        return coi_mpi_call_error(self, rc, "MPI_Comm_idup", -1, err);
    }
    MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN);
    return CO_OK;
}

static size_t
num_peers(const mpi_group *self)
{
    return self->group.size > 1 ? (size_t)self->group.size - 1 : 1;
}

static void
release(mpi_group *self, coi_memory *memory)
{
    size_t size = (size_t)self->group.size;

    for (size_t r = 0; r < size && self->peers != NULL; ++r)
        if (self->peers[r].fd >= 0)
            close(self->peers[r].fd);
    for (int i = 0; i < COI_MPI_RING; ++i)
        coi_free(memory, self->ring[i].requests, num_peers(self) * sizeof(MPI_Request));
    coi_free(memory, self->requests, self->capacity * sizeof(self->requests[0]));
    coi_free(memory, self->peers, size * sizeof(self->peers[0]));
    coi_free(memory, self->is_named, size * sizeof(self->is_named[0]));
    coi_free(memory, self->inboxes, size * sizeof(self->inboxes[0]));
    coi_free(memory, self->message, COI_MPI_MESSAGE_BYTES);
    coi_free(memory, self, sizeof(*self));
}

static bool
allocate(mpi_group *self, coi_memory *memory)
{
    size_t size = (size_t)self->group.size;
    bool   is_whole;

    self->peers = coi_calloc(memory, size * sizeof(self->peers[0]));
    for (size_t r = 0; r < size && self->peers != NULL; ++r)
        self->peers[r].fd = -1;
    self->is_named = coi_calloc(memory, size * sizeof(self->is_named[0]));
    self->inboxes = coi_calloc(memory, size * sizeof(self->inboxes[0]));
    self->message = coi_calloc(memory, COI_MPI_MESSAGE_BYTES);
    is_whole = self->peers != NULL && self->is_named != NULL && self->inboxes != NULL &&
               self->message != NULL;
    for (int i = 0; i < COI_MPI_RING; ++i) {
        self->ring[i].requests = coi_calloc(memory, num_peers(self) * sizeof(MPI_Request));
        is_whole = is_whole && self->ring[i].requests != NULL;
    }
    return is_whole;
}

/* The first exchange: check that all ranks run the same library, and learn where each runs. */
static co_code
greet(mpi_group *self, coi_memory *memory, int timeout_ms, co_error_info *err)
{
    size_t         nbytes = (size_t)self->group.size * sizeof(coi_handshake);
    coi_handshake *all = coi_alloc(memory, nbytes);
    coi_handshake  mine = { .kind = COI_HANDSHAKE_OPEN, .what = COI_TRANSPORT_ABI, .replica = -1 };
    co_code        rc;

    if (all == NULL) {
        /* The others wait for this rank: send the reason why it does not take part. */
        coi_handshake_fail(&mine, CO_RESOURCE_EXHAUSTED, "no memory for the handshakes of %d ranks",
                           self->group.size);
        coi_mpi_notify(&self->group, &mine);
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "%s (%zu bytes)", mine.text, nbytes);
    }
    coi_mpi_introduce(self, &mine);
    snprintf(mine.site, sizeof(mine.site), "%s", COI_VERSION);
    rc = coi_mpi_exchange(&self->group, &mine, all, timeout_ms, err);
    for (int r = 0; r < self->group.size && rc == CO_OK; ++r) {
        if (all[r].kind == COI_HANDSHAKE_FAILED)
            rc = coi_handshake_error(&all[r], r, err);
        else if (all[r].kind == COI_HANDSHAKE_OPEN &&
                 (all[r].what != mine.what || strcmp(all[r].site, mine.site) != 0))
            rc = coi_error(
                err, CO_FAILED_PRECONDITION,
                "rank %d runs version %s of the library, rank %d version %s: all ranks must run the same",
                r, all[r].site, self->group.rank, mine.site);
    }
    for (int r = 0; r < self->group.size && rc == CO_OK; ++r)
        coi_mpi_handshake(self, r, &all[r], &mine);
    coi_free(memory, all, nbytes);
    return rc;
}

static co_code
check_communicator(MPI_Comm comm, co_error_info *err)
{
    int is_inter = 0;

    if (comm == MPI_COMM_NULL)
        return coi_error(err, CO_VALUE_ERROR,
                         "communicator is MPI_COMM_NULL: this process is not in it");
    MPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        return coi_error(
            err, CO_VALUE_ERROR,
            "communicator is an inter-communicator; merge it (MPI_Intercomm_merge) first");
    return CO_OK;
}

/* Mark the peers that have not left the group; true if there are any. */
static bool
mark_staying(mpi_group *self)
{
    bool any = false;

    for (int r = 0; r < self->group.size; ++r) {
        self->is_named[r] = r != self->group.rank && !coi_inbox_is_closed(&self->inboxes[r]);
        any = any || self->is_named[r];
    }
    return any;
}

/* Send and receive all goodbyes, so that no handshake is on its way any more; false if some never
 * came. */
static bool
part(mpi_group *self)
{
    coi_handshake bye;
    mpi_wait      wait;

    coi_handshake_closed(&bye, &self->group);
    coi_mpi_notify(&self->group, &bye);
    coi_mpi_wait_begin(&wait, self->group.broken ? CLOSE_BROKEN_MS : CLOSE_MS, 0);
    while (coi_mpi_poll(self, NULL) == CO_OK) {
        if (!mark_staying(self) && coi_mpi_all_sent(self))
            return true;
        if (coi_mpi_find_gone(self, self->is_named) || coi_is_past(wait.deadline))
            break;
        coi_mpi_wait_pause(&wait, self);
    }
    return false;
}

/* Let MPI go of everything, as far as that cannot hang; false if it still holds memory of ours. */
static bool
hang_up(mpi_group *self, coi_log *log)
{
    bool is_parted = part(self), is_let_go = coi_mpi_unlisten(self) && coi_mpi_all_sent(self);
    bool is_clean = is_parted && is_let_go && !self->group.broken;

    /* A rank that left a broken group frees nothing, so neither do we: freeing is collective. */
    for (int r = 0; r < self->group.size; ++r)
        is_clean = is_clean && coi_inbox_failure(&self->inboxes[r], UINT64_MAX, 0) == NULL;
    if (is_clean) {
        MPI_Comm_free(&self->data);
        MPI_Comm_free(&self->control);
        return true;
    }
    if (!is_parted || !is_let_go || self->group.holding)
        atomic_store(&life.is_broken, true);
    coi_log_line(log, CO_LOG_WARNING,
                 "rank %d of %d: a broken group of processes was closed%s; its communicators are "
                 "leaked, because freeing them could wait forever",
                 self->group.rank, self->group.size,
                 is_parted ? ""
                           : " without a goodbye from some ranks, so MPI will not be finalised");
    return is_let_go;
}

/* A group that has its memory and knows its place, and nothing of MPI yet. */
static mpi_group *
make(const coi_group_options *options, MPI_Comm comm, int level, co_error_info *err)
{
    mpi_group *self = coi_calloc(options->memory, sizeof(*self));
    int        size;

    MPI_Comm_size(comm, &size);
    if (self != NULL) {
        MPI_Comm_rank(comm, &self->group.rank);
        self->group.size = size;
        self->group.memory = options->memory;
        self->group.waiting = options->waiting;
        self->group.log = options->log;
        self->pid = getpid();
        self->is_main_only = level < MPI_THREAD_SERIALIZED;
        self->control = self->data = MPI_COMM_NULL;
        self->listen = MPI_REQUEST_NULL;
        if (allocate(self, options->memory))
            return self;
        release(self, options->memory);
    }
    coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a group of %d ranks over MPI", size);
    return NULL;
}

/* Duplicate the communicator and exchange handshakes with the others. False in *is_let_go: self
 * must be leaked. */
static co_code
join(mpi_group *self, MPI_Comm comm, int timeout_ms, bool *is_let_go, co_error_info *err)
{
    mpi_wait wait;
    co_code  rc = coi_mpi_check_usable(self, err);

    coi_mpi_wait_begin(&wait, timeout_ms, 0);
    if (rc != CO_OK)
        return rc;
    rc = duplicate(self, comm, &self->control, &wait, err);
    if (rc == CO_OK)
        rc = duplicate(self, comm, &self->data, &wait, err);
    if (rc != CO_OK) {
        atomic_store(&life.is_broken, true);
        *is_let_go = !self->group.holding;
        return rc;
    }
    rc = coi_mpi_listen(self, err);
    if (rc == CO_OK)
        rc = greet(self, self->group.memory, coi_left_ms(wait.deadline), err);
    if (rc != CO_OK) {
        coi_group_break(&self->group, rc, err);
        *is_let_go = hang_up(self, self->group.log);
    }
    return rc;
}

static co_code
mpi_open(const coi_group_options *options, coi_group **out, co_error_info *err)
{
    const MPI_Comm *given = options->communicator;
    int             level = MPI_THREAD_SINGLE;
    bool            is_let_go = true;
    mpi_group      *self;
    co_code         rc = check_library(err);

    if (rc == CO_OK)
        rc = start_mpi(options->log, &level, err);
    if (rc == CO_OK)
        rc = check_communicator(given != NULL ? *given : MPI_COMM_WORLD, err);
    if (rc != CO_OK)
        return rc;
    self = make(options, given != NULL ? *given : MPI_COMM_WORLD, level, err);
    if (self == NULL)
        return CO_RESOURCE_EXHAUSTED;
    rc = join(self, given != NULL ? *given : MPI_COMM_WORLD,
              options->deadline_ms > 0 ? options->deadline_ms : -1, &is_let_go, err);
    if (rc != CO_OK) {
        if (is_let_go)
            release(self, options->memory);
        return rc;
    }
    atomic_fetch_add(&life.open_groups, 1);
    *out = &self->group;
    return CO_OK;
}

static bool
mpi_close(coi_group *group)
{
    mpi_group    *self = (mpi_group *)group;
    bool          is_let_go = true;
    co_error_info why;

    atomic_fetch_sub(&life.open_groups, 1);
    coi_error_reset(&why);
    if (coi_mpi_check_callable(self, &why) == CO_OK) {
        is_let_go = hang_up(self, group->log);
    } else {
        atomic_store(&life.is_broken, true);
        coi_log_line(group->log, CO_LOG_WARNING, "closing a group of processes: %s", why.message);
        is_let_go = getpid() != self->pid; /* in a forked child nobody else has this memory */
    }
    if (is_let_go)
        release(self, group->memory);
    return is_let_go;
}

/* What the core looks up. */
extern const coi_transport coi_transport_plugin;

__attribute__((visibility("default"))) const coi_transport coi_transport_plugin = {
    .abi = COI_TRANSPORT_ABI,
    .handshake_size = sizeof(coi_handshake),
    .group_size = sizeof(coi_group),
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .exchange = coi_mpi_exchange,
    .transfer = coi_mpi_transfer,
    .notify = coi_mpi_notify,
};

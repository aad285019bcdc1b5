/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the MPI plug-in. A group has two communicators, duplicates of the borrowed one:
 * handshakes go over `control`, data over `data`. Nothing here calls MPI in a way that waits for a
 * peer: operations are started and tested, and between two tests the waiting thread checks the
 * clock, messages of the peers, and whether they are alive.
 */
#ifndef COI_COLLECTIVE_MPI_MPI_H
#define COI_COLLECTIVE_MPI_MPI_H

#include "collective/handshake.h"

#include <mpi.h>
#include <poll.h>

enum {
    COI_MPI_TAG = 1,
    COI_MPI_RING = 8,            /* handshakes on their way to the peers */
    COI_MPI_MESSAGE_BYTES = 1024 /* more than a handshake: one of another version is seen whole */
};

/* A handshake that is being sent to all peers. MPI reads it until the requests are done. */
typedef struct mpi_slot {
    coi_handshake handshake;
    bool          is_busy;
    MPI_Request  *requests; /* size - 1 */
} mpi_slot;

/* What is known of a peer since opening. */
typedef struct mpi_peer {
    int64_t pid;
    int     fd; /* readable when its process has ended; -1: it runs elsewhere, or we cannot tell */
    bool    has_opened; /* COI_HANDSHAKE_OPEN has come */
    bool    is_gone;
    char    host[64];
} mpi_peer;

typedef struct mpi_group {
    coi_group group;
    MPI_Comm  control, data;
    int64_t   pid;          /* of this process: a forked child may not speak */
    bool      is_main_only; /* MPI allows calls from the main thread alone */
    uint64_t  epoch;        /* of the last exchange */
    uint64_t  sequence;
    int       ranks_here; /* on this machine */
    mpi_peer *peers;
    bool     *is_named; /* for messages */

    MPI_Request    listen; /* the next message from anybody */
    unsigned char *message;
    coi_inbox     *inboxes;
    mpi_slot       ring[COI_MPI_RING];
    bool           has_pending; /* the latest notice that did not fit in the ring */
    coi_handshake  pending;

    MPI_Request *requests; /* of a transfer */
    size_t       capacity;
} mpi_group;

/* mpi_wait.c */
typedef struct mpi_wait {
    coi_moment deadline;
    uint64_t   start_ns, look_ns; /* when it began, when peers are looked after again */
    uint64_t   busy_ns;           /* how long it does not sleep */
    int        timeout_ms;
} mpi_wait;

/* For so many bytes of data, or for handshakes: 0. */
void coi_mpi_wait_begin(mpi_wait *wait, int timeout_ms, size_t nbytes);
/*
 * Between two tests: spin shortly, then give the core away, then sleep for a part of the time
 * waited so far.
 */
void coi_mpi_wait_pause(mpi_wait *wait, mpi_group *self);
/* Is it time to check the peers? About every ten milliseconds of a longer wait. */
bool coi_mpi_wait_poll(mpi_wait *wait);

/* mpi_health.c */
/* Send our identity in the opening handshake, and learn the identities of the peers from theirs. */
void coi_mpi_introduce(mpi_group *self, coi_handshake *mine);
void coi_mpi_handshake(mpi_group *self, int rank, const coi_handshake *theirs,
                       const coi_handshake *mine);
/* Update is_gone of the peers whose process ended; true if a named one is gone. */
bool coi_mpi_find_gone(mpi_group *self, const bool *is_named);
/* CO_UNAVAILABLE naming the first peer that is named and gone. */
co_code coi_mpi_gone_error(mpi_group *self, const bool *is_named, co_error_info *err);

/* mpi_control.c */
co_code coi_mpi_listen(mpi_group *self, co_error_info *err);
/* End listening; false if MPI did not let go of the message. */
bool coi_mpi_unlisten(mpi_group *self);
/* Receive all messages that are here and move those that leave. */
co_code coi_mpi_poll(mpi_group *self, co_error_info *err);
/* Have all handshakes left? */
bool    coi_mpi_all_sent(mpi_group *self);
co_code coi_mpi_exchange(coi_group *group, const coi_handshake *mine, coi_handshake *all,
                         int timeout_ms, co_error_info *err);
void    coi_mpi_notify(coi_group *group, const coi_handshake *handshake);
/* MPI runs and may be called by this thread; and the group is whole. */
co_code coi_mpi_check_callable(mpi_group *self, co_error_info *err);
co_code coi_mpi_check_usable(mpi_group *self, co_error_info *err);
/*
 * MPI has not let go of memory of ours: leak it. A request says so by not being null after a test
 * that failed; where the error ended it, MPI has made it null.
 */
void coi_mpi_hold(mpi_group *self);
/* The error of an MPI call. peer -1: not known. */
co_code coi_mpi_call_error(mpi_group *self, int mpi_code, const char *call, int peer,
                           co_error_info *err);

/* mpi_data.c */
co_code coi_mpi_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
                         const coi_transfer *receives, size_t num_receives, int timeout_ms,
                         co_error_info *err);

#endif

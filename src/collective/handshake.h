/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transports share: handshakes of peers that cannot be trusted, the inbox in which they wait
 * until this rank is as far, deadlines, and names of ranks in messages.
 */
#ifndef COI_COLLECTIVE_HANDSHAKE_H
#define COI_COLLECTIVE_HANDSHAKE_H

#include "collective/collective.h"

/*
 * Make a handshake that came from rank `from` safe to use: texts are terminated and printable, the
 * kind is known, a failure has a code that is an error. One of an unknown kind becomes a failure
 * that says so. what, signature and number are not judged.
 */
void coi_handshake_clean(coi_handshake *handshake, int from);
/* A failure of `from` for every epoch. */
void coi_handshake_fail(coi_handshake *handshake, co_code code, const char *format, ...)
    CO_PRINTF(3, 4);
/* The last handshake of a rank; a rank that leaves a broken group did not do its part of the
 * transfers. */
void coi_handshake_closed(coi_handshake *handshake, const coi_group *group);
/* The error record of a failure: "rank 1 failed at step.c:41: ..."; returns its code. */
co_code coi_handshake_error(const coi_handshake *failed, int from, co_error_info *err);

/*
 * The handshakes of one peer, in the order of sending. A peer in step has sent at most two
 * collectives more than this rank has read (it may have ended a collective without data before we
 * read its handshake) and one RUN_END. The rest is room for peers that fail again and again, which
 * they can without us, while we are slow. The oldest handshakes are read first and the newest says
 * where the peer is: when the inbox is full, the one before the newest goes.
 */
#define COI_INBOX_DEPTH 6
typedef struct coi_inbox {
    int           count;
    coi_handshake handshake[COI_INBOX_DEPTH];
} coi_inbox;

void coi_inbox_put(coi_inbox *inbox, const coi_handshake *handshake);
/*
 * What the peer says to a rank that is at a collective of `epoch`; false if nothing yet. Older
 * handshakes are dropped. In this order: its failure in this epoch, unless it failed after its part
 * of this collective; its next collective in this epoch, which is taken out (the others stay); the
 * end of its run of this epoch; the first handshake of a later one. COI_HANDSHAKE_CLOSED comes out
 * as a failure.
 */
bool coi_inbox_take(coi_inbox *inbox, uint64_t epoch, uint64_t sequence, coi_handshake *out);
/*
 * The same for a rank that waits in an exchange: fills `slot` if it is COI_HANDSHAKE_NONE, and lets
 * a failure in this epoch replace a collective that is there already.
 */
void coi_inbox_update(coi_inbox *inbox, uint64_t epoch, uint64_t sequence, coi_handshake *slot);
/*
 * The failure, in this epoch, of a peer whose data we wait for: it sent a notice, or left a broken
 * group. A peer that failed after its part of this collective has sent what we wait for.
 */
const coi_handshake *coi_inbox_failure(const coi_inbox *inbox, uint64_t epoch, uint64_t sequence);
/* The peer has left the group. */
bool coi_inbox_is_closed(const coi_inbox *inbox);

/* How an exchange stands: a failure ends it before all are here. */
typedef enum coi_arrival { COI_ALL_HERE, COI_SOME_MISSING, COI_SOME_FAILED } coi_arrival;
coi_arrival coi_judge_arrival(const coi_handshake *all, int size);
/* CO_DEADLINE_EXCEEDED naming the ranks that are missing. is_named has room for size. */
co_code coi_missing_error(const coi_handshake *mine, const coi_handshake *all, int rank, int size,
                          bool *is_named, int timeout_ms, co_error_info *err);

/* Mark a group as broken by an error that was just recorded. The first cause stays. */
void coi_group_break(coi_group *group, co_code code, const co_error_info *err);
/* CO_UNAVAILABLE with the cause if it is. */
co_code coi_group_check(const coi_group *group, co_error_info *err);

/* A moment, or never: 0. */
typedef uint64_t coi_moment;
static inline coi_moment
coi_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? 0 : coi_now_ns() + (uint64_t)timeout_ms * 1000000u;
}
static inline bool
coi_is_past(coi_moment deadline)
{
    return deadline != 0 && coi_now_ns() >= deadline;
}
/* What is left, rounded up, for a call that takes a timeout_ms. */
int coi_left_ms(coi_moment deadline);

/* "rank 3", "ranks 1 and 3", "ranks 1, 2, 3 and 12 more": those with is_named; returns out. */
#define COI_RANKS_TEXT 96
const char *coi_name_ranks(const bool *is_named, int size, char out[COI_RANKS_TEXT]);

#endif

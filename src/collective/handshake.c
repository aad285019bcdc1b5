/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handshakes as they come in: cleaned, kept in order, and read from the point of view of a rank at
 * a given epoch. Transports send and receive them.
 */
#include "collective/handshake.h"

#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Terminate a text of a peer and take what could break a line or a terminal out of it. */
static void
clean_text(char *text, size_t size)
{
    char copy[sizeof(((coi_handshake *)NULL)->text)];

    text[size - 1] = '\0';
    memcpy(copy, text, size);
    coi_text_line(text, size, "%s", copy);
}

void
coi_handshake_fail(coi_handshake *handshake, co_code code, const char *format, ...)
{
    va_list args;

    memset(handshake, 0, sizeof(*handshake));
    handshake->kind = COI_HANDSHAKE_FAILED;
    handshake->epoch = UINT64_MAX;
    handshake->code = (int32_t)code;
    handshake->replica = -1;
    va_start(args, format);
    coi_text_line_va(handshake->text, sizeof(handshake->text), format, args);
    va_end(args);
}

void
coi_handshake_closed(coi_handshake *handshake, const coi_group *group)
{
    if (group->broken)
        coi_handshake_fail(handshake, group->cause, "it left the broken group: %s", group->why);
    else
        coi_handshake_fail(handshake, CO_UNAVAILABLE, "it left the group: its strategy was closed");
    handshake->kind = COI_HANDSHAKE_CLOSED;
    handshake->number = group->broken;
}

void
coi_group_break(coi_group *group, co_code code, const co_error_info *err)
{
    if (group->broken)
        return;
    group->broken = true;
    group->cause = code;
    if (err != NULL && err->code == code)
        coi_text_line(group->why, sizeof(group->why), "%s", err->message);
}

co_code
coi_group_check(const coi_group *group, co_error_info *err)
{
    if (!group->broken)
        return CO_OK;
    return coi_error(
        err, CO_UNAVAILABLE,
        "rank %d of %d: the group of processes is broken and must be closed; the cause was %s: %s",
        group->rank, group->size, co_code_name(group->cause), group->why);
}

void
coi_handshake_clean(coi_handshake *handshake, int from)
{
    co_code code = (co_code)handshake->code;

    if (handshake->kind == COI_HANDSHAKE_NONE || handshake->kind > COI_HANDSHAKE_CLOSED) {
        coi_handshake_fail(
            handshake, CO_INTERNAL,
            "its handshake of kind %u is none that this version knows: rank %d runs another one or is damaged",
            (unsigned)handshake->kind, from);
        return;
    }
    clean_text(handshake->site, sizeof(handshake->site));
    clean_text(handshake->text, sizeof(handshake->text));
    if (handshake->replica < -1)
        handshake->replica = -1;
    if (handshake->kind != COI_HANDSHAKE_FAILED && handshake->kind != COI_HANDSHAKE_CLOSED)
        handshake->code = CO_OK;
    else if (code == CO_OK || strcmp(co_code_name(code), co_code_name(CO_UNKNOWN)) == 0)
        handshake->code = CO_UNKNOWN;
}

co_code
coi_handshake_error(const coi_handshake *failed, int from, co_error_info *err)
{
    const char *at = failed->site[0] != '\0' ? " at " : "";

    if (err != NULL && err->code == CO_OK)
        err->replica = failed->replica;
    if (failed->replica >= 0)
        return coi_error(err, (co_code)failed->code, "replica %d of rank %d failed%s%s: %s",
                         failed->replica, from, at, failed->site, failed->text);
    return coi_error(err, (co_code)failed->code, "rank %d failed%s%s: %s", from, at, failed->site,
                     failed->text);
}

static void
drop(coi_inbox *inbox, int i)
{
    --inbox->count;
    memmove(&inbox->handshake[i], &inbox->handshake[i + 1],
            (size_t)(inbox->count - i) * sizeof(inbox->handshake[0]));
}

/* Collectives in which a failed sender takes no part: no rank will read them. */
static void
drop_given_up(coi_inbox *inbox, const coi_handshake *failed)
{
    for (int i = 0; i < inbox->count;) {
        const coi_handshake *handshake = &inbox->handshake[i];

        if (handshake->kind == COI_HANDSHAKE_COLLECTIVE && handshake->epoch == failed->epoch &&
            (failed->number <= 0 || handshake->sequence >= (uint64_t)failed->number))
            drop(inbox, i);
        else
            ++i;
    }
}

void
coi_inbox_put(coi_inbox *inbox, const coi_handshake *handshake)
{
    /*
     * A peer may end many runs without a collective while we are in one: only the last of them
     * tells us something.
     */
    if (inbox->count > 0 && handshake->kind == COI_HANDSHAKE_RUN_END &&
        inbox->handshake[inbox->count - 1].kind == COI_HANDSHAKE_RUN_END)
        --inbox->count;
    if (handshake->kind == COI_HANDSHAKE_FAILED)
        drop_given_up(inbox, handshake);
    if (inbox->count == COI_INBOX_DEPTH)
        --inbox->count;
    inbox->handshake[inbox->count++] = *handshake;
}

/* The first handshake of a kind and epoch, or -1. */
static int
find(const coi_inbox *inbox, uint32_t kind, uint64_t epoch)
{
    for (int i = 0; i < inbox->count; ++i)
        if (inbox->handshake[i].kind == kind && inbox->handshake[i].epoch == epoch)
            return i;
    return -1;
}

/* The failure of an epoch that concerns a collective of it, or -1. */
static int
find_failure(const coi_inbox *inbox, uint64_t epoch, uint64_t sequence)
{
    int at = find(inbox, COI_HANDSHAKE_FAILED, epoch);

    return at >= 0 && inbox->handshake[at].number > 0 &&
                   (uint64_t)inbox->handshake[at].number > sequence
               ? -1
               : at;
}

bool
coi_inbox_take(coi_inbox *inbox, uint64_t epoch, uint64_t sequence, coi_handshake *out)
{
    static const uint32_t order[] = { COI_HANDSHAKE_COLLECTIVE, COI_HANDSHAKE_FAILED,
                                      COI_HANDSHAKE_RUN_END };
    int                   at;

    for (int i = 0; i < inbox->count;) {
        if (inbox->handshake[i].epoch < epoch)
            drop(inbox, i);
        else
            ++i;
    }
    at = find(inbox, COI_HANDSHAKE_OPEN, epoch);
    if (at < 0)
        at = find_failure(inbox, epoch, sequence);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && at < 0; ++i)
        at = find(inbox, order[i], epoch);
    if (at < 0 && inbox->count == 0)
        return false;
    *out = inbox->handshake[at < 0 ? 0 : at];
    if (at >= 0 && (out->kind == COI_HANDSHAKE_OPEN || out->kind == COI_HANDSHAKE_COLLECTIVE))
        drop(inbox, at);
    if (out->kind == COI_HANDSHAKE_CLOSED)
        out->kind = COI_HANDSHAKE_FAILED;
    return true;
}

void
coi_inbox_update(coi_inbox *inbox, uint64_t epoch, uint64_t sequence, coi_handshake *slot)
{
    int at;

    if (slot->kind == COI_HANDSHAKE_NONE) {
        coi_inbox_take(inbox, epoch, sequence, slot);
    } else if (slot->kind == COI_HANDSHAKE_COLLECTIVE) {
        at = find_failure(inbox, epoch, sequence);
        if (at >= 0)
            *slot = inbox->handshake[at];
    }
}

coi_arrival
coi_judge_arrival(const coi_handshake *all, int size)
{
    coi_arrival arrival = COI_ALL_HERE;

    for (int r = 0; r < size; ++r) {
        if (all[r].kind == COI_HANDSHAKE_FAILED)
            return COI_SOME_FAILED;
        if (all[r].kind == COI_HANDSHAKE_NONE)
            arrival = COI_SOME_MISSING;
    }
    return arrival;
}

co_code
coi_missing_error(const coi_handshake *mine, const coi_handshake *all, int rank, int size,
                  bool *is_named, int timeout_ms, co_error_info *err)
{
    char names[COI_RANKS_TEXT];

    for (int r = 0; r < size; ++r)
        is_named[r] = all[r].kind == COI_HANDSHAKE_NONE;
    coi_name_ranks(is_named, size, names);
    return coi_error(
        err, CO_DEADLINE_EXCEEDED,
        "rank %d of %d waited %d ms%s%.79s for %s: stuck, gone, or slower than the deadline (raise deadline_ms, or timeout_seconds of the call)",
        rank, size, timeout_ms, mine->site[0] != '\0' ? " at " : "", mine->site, names);
}

const coi_handshake *
coi_inbox_failure(const coi_inbox *inbox, uint64_t epoch, uint64_t sequence)
{
    int at = find_failure(inbox, epoch, sequence);

    /* CLOSED carries UINT64_MAX; so does a failure that this side made up for a peer. */
    if (at < 0)
        at = find(inbox, COI_HANDSHAKE_FAILED, UINT64_MAX);
    if (at < 0) {
        at = find(inbox, COI_HANDSHAKE_CLOSED, UINT64_MAX);
        if (at >= 0 && inbox->handshake[at].number == 0)
            at = -1; /* it left in order, after its part of this transfer */
    }
    return at >= 0 ? &inbox->handshake[at] : NULL;
}

bool
coi_inbox_is_closed(const coi_inbox *inbox)
{
    return find(inbox, COI_HANDSHAKE_CLOSED, UINT64_MAX) >= 0;
}

int
coi_left_ms(coi_moment deadline)
{
    uint64_t now, left;

    if (deadline == 0)
        return -1;
    now = coi_now_ns();
    left = deadline > now ? (deadline - now + 999999u) / 1000000u : 0;
    return left < INT_MAX ? (int)left : INT_MAX;
}

const char *
coi_name_ranks(const bool *is_named, int size, char out[COI_RANKS_TEXT])
{
    enum { MAX_NAMED = 4 };
    int    named = 0, total = 0;
    size_t at;

    for (int i = 0; i < size; ++i)
        total += is_named[i];
    at = (size_t)snprintf(out, COI_RANKS_TEXT, total == 1 ? "rank" : "ranks");
    for (int i = 0; i < size && named < MAX_NAMED; ++i) {
        const char *before = " ";

        if (!is_named[i])
            continue;
        if (named > 0)
            before = named + 1 == total ? " and " : ", ";
        at += (size_t)snprintf(out + at, COI_RANKS_TEXT - at, "%s%d", before, i);
        ++named;
    }
    if (total > named)
        snprintf(out + at, COI_RANKS_TEXT - at, " and %d more", total - named);
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hellos as they come in: cleaned, kept in order, and read from the point of view of a rank at a
 * given epoch. How they travel is the business of the transports.
 */
#include "collective/hello.h"

#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Terminate a text of a peer and take what could break a line or a terminal out of it. */
static void
clean_text(char *text, size_t size)
{
    char copy[sizeof(((coi_hello *)NULL)->text)];

    text[size - 1] = '\0';
    memcpy(copy, text, size);
    coi_text_line(text, size, "%s", copy);
}

void
coi_hello_fail(coi_hello *hello, co_code code, const char *format, ...)
{
    va_list args;

    memset(hello, 0, sizeof(*hello));
    hello->kind = COI_HELLO_FAILED;
    hello->epoch = UINT64_MAX;
    hello->code = (int32_t)code;
    hello->replica = -1;
    va_start(args, format);
    coi_text_line_va(hello->text, sizeof(hello->text), format, args);
    va_end(args);
}

void
coi_hello_closed(coi_hello *hello, const coi_group *group)
{
    if (group->broken)
        coi_hello_fail(hello, group->cause, "it left the broken group: %s", group->why);
    else
        coi_hello_fail(hello, CO_UNAVAILABLE, "it left the group: its strategy was closed");
    hello->kind = COI_HELLO_CLOSED;
    hello->number = group->broken;
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
coi_hello_clean(coi_hello *hello, int from)
{
    co_code code = (co_code)hello->code;

    if (hello->kind == COI_HELLO_NONE || hello->kind > COI_HELLO_CLOSED) {
        coi_hello_fail(
            hello, CO_INTERNAL,
            "its word of kind %u is none that this version knows: rank %d runs another one or is damaged",
            (unsigned)hello->kind, from);
        return;
    }
    clean_text(hello->site, sizeof(hello->site));
    clean_text(hello->text, sizeof(hello->text));
    if (hello->replica < -1)
        hello->replica = -1;
    if (hello->kind != COI_HELLO_FAILED && hello->kind != COI_HELLO_CLOSED)
        hello->code = CO_OK;
    else if (code == CO_OK || strcmp(co_code_name(code), co_code_name(CO_UNKNOWN)) == 0)
        hello->code = CO_UNKNOWN;
}

co_code
coi_hello_error(const coi_hello *failed, int from, co_error_info *err)
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
    memmove(&inbox->hello[i], &inbox->hello[i + 1],
            (size_t)(inbox->count - i) * sizeof(inbox->hello[0]));
}

/* Collectives that a failure says the sender has no part in: nobody will ask for them. */
static void
drop_given_up(coi_inbox *inbox, const coi_hello *failed)
{
    for (int i = 0; i < inbox->count;) {
        const coi_hello *hello = &inbox->hello[i];

        if (hello->kind == COI_HELLO_COLLECTIVE && hello->epoch == failed->epoch &&
            (failed->number <= 0 || hello->sequence >= (uint64_t)failed->number))
            drop(inbox, i);
        else
            ++i;
    }
}

void
coi_inbox_put(coi_inbox *inbox, const coi_hello *hello)
{
    /*
     * A peer may end many runs without a collective while we are in one: only the last of them
     * tells us something.
     */
    if (inbox->count > 0 && hello->kind == COI_HELLO_RUN_END &&
        inbox->hello[inbox->count - 1].kind == COI_HELLO_RUN_END)
        --inbox->count;
    if (hello->kind == COI_HELLO_FAILED)
        drop_given_up(inbox, hello);
    if (inbox->count == COI_INBOX_DEPTH)
        --inbox->count;
    inbox->hello[inbox->count++] = *hello;
}

/* The first hello of a kind and epoch, or -1. */
static int
find(const coi_inbox *inbox, uint32_t kind, uint64_t epoch)
{
    for (int i = 0; i < inbox->count; ++i)
        if (inbox->hello[i].kind == kind && inbox->hello[i].epoch == epoch)
            return i;
    return -1;
}

/* The failure of an epoch that concerns a collective of it, or -1. */
static int
find_failure(const coi_inbox *inbox, uint64_t epoch, uint64_t sequence)
{
    int at = find(inbox, COI_HELLO_FAILED, epoch);

    return at >= 0 && inbox->hello[at].number > 0 && (uint64_t)inbox->hello[at].number > sequence
               ? -1
               : at;
}

bool
coi_inbox_take(coi_inbox *inbox, uint64_t epoch, uint64_t sequence, coi_hello *out)
{
    static const uint32_t order[] = { COI_HELLO_COLLECTIVE, COI_HELLO_FAILED, COI_HELLO_RUN_END };
    int                   at;

    for (int i = 0; i < inbox->count;) {
        if (inbox->hello[i].epoch < epoch)
            drop(inbox, i);
        else
            ++i;
    }
    at = find(inbox, COI_HELLO_OPEN, epoch);
    if (at < 0)
        at = find_failure(inbox, epoch, sequence);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && at < 0; ++i)
        at = find(inbox, order[i], epoch);
    if (at < 0 && inbox->count == 0)
        return false;
    *out = inbox->hello[at < 0 ? 0 : at];
    if (at >= 0 && (out->kind == COI_HELLO_OPEN || out->kind == COI_HELLO_COLLECTIVE))
        drop(inbox, at);
    if (out->kind == COI_HELLO_CLOSED)
        out->kind = COI_HELLO_FAILED;
    return true;
}

void
coi_inbox_update(coi_inbox *inbox, uint64_t epoch, uint64_t sequence, coi_hello *slot)
{
    int at;

    if (slot->kind == COI_HELLO_NONE) {
        coi_inbox_take(inbox, epoch, sequence, slot);
    } else if (slot->kind == COI_HELLO_COLLECTIVE) {
        at = find_failure(inbox, epoch, sequence);
        if (at >= 0)
            *slot = inbox->hello[at];
    }
}

coi_arrival
coi_judge_arrival(const coi_hello *all, int size)
{
    coi_arrival arrival = COI_ALL_HERE;

    for (int r = 0; r < size; ++r) {
        if (all[r].kind == COI_HELLO_FAILED)
            return COI_SOME_FAILED;
        if (all[r].kind == COI_HELLO_NONE)
            arrival = COI_SOME_MISSING;
    }
    return arrival;
}

co_code
coi_missing_error(const coi_hello *mine, const coi_hello *all, int rank, int size, bool *is_named,
                  int timeout_ms, co_error_info *err)
{
    char names[COI_RANKS_TEXT];

    for (int r = 0; r < size; ++r)
        is_named[r] = all[r].kind == COI_HELLO_NONE;
    coi_name_ranks(is_named, size, names);
    return coi_error(
        err, CO_DEADLINE_EXCEEDED,
        "rank %d of %d waited %d ms%s%.79s for %s: stuck, gone, or slower than the deadline (raise deadline_ms, or timeout_seconds of the call)",
        rank, size, timeout_ms, mine->site[0] != '\0' ? " at " : "", mine->site, names);
}

const coi_hello *
coi_inbox_failure(const coi_inbox *inbox, uint64_t epoch, uint64_t sequence)
{
    int at = find_failure(inbox, epoch, sequence);

    /* CLOSED carries UINT64_MAX; so does a failure that this side made up for a peer. */
    if (at < 0)
        at = find(inbox, COI_HELLO_FAILED, UINT64_MAX);
    if (at < 0) {
        at = find(inbox, COI_HELLO_CLOSED, UINT64_MAX);
        if (at >= 0 && inbox->hello[at].number == 0)
            at = -1; /* it left in order, after its part of this transfer */
    }
    return at >= 0 ? &inbox->hello[at] : NULL;
}

bool
coi_inbox_is_closed(const coi_inbox *inbox)
{
    return find(inbox, COI_HELLO_CLOSED, UINT64_MAX) >= 0;
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

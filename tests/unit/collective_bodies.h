/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every rank of a group does in a test of groups: run by tests/unit/collective_group.c with
 * ranks as threads, and by tests/ranks/collective.c as processes under a launcher. In the bodies
 * about failures, the last rank is the one that misbehaves; alone, it has nobody to disappoint.
 */
#ifndef COHORT_TEST_COLLECTIVE_BODIES_H
#define COHORT_TEST_COLLECTIVE_BODIES_H

#include "collective/handshake.h"
#include "collective_support.h"

#define LONG_MS   20000 /* a deadline that is not met; machines are busy */
#define SHORT_MS  150   /* a deadline that is */
#define MAX_RANKS 8

typedef void (*group_body)(coi_group *group);

static inline coi_handshake
handshake_of(coi_handshake_kind kind, uint64_t epoch)
{
    return (coi_handshake){ .kind = (uint32_t)kind, .epoch = epoch, .replica = -1 };
}

static inline bool
is_last(const coi_group *group)
{
    return group->rank == group->size - 1;
}

static inline co_code
exchange_at(coi_group *group, uint64_t epoch, coi_handshake *all, int timeout_ms,
            co_error_info *err)
{
    coi_handshake mine = handshake_of(COI_HANDSHAKE_COLLECTIVE, epoch);

    mine.number = 100 + group->rank;
    snprintf(mine.site, sizeof(mine.site), "body.c:%d", (int)epoch);
    coi_error_reset(err);
    return group->transport->exchange(group, &mine, all, timeout_ms, err);
}

/* An exchange in which all must be in step. */
static inline void
expect_in_step(coi_group *group, uint64_t epoch)
{
    coi_handshake all[MAX_RANKS];
    co_error_info err;

    if (!CO_EXPECT_CODE(exchange_at(group, epoch, all, LONG_MS, &err), CO_OK))
        CO_FAIL("rank %d, epoch %d: %s", group->rank, (int)epoch, err.message);
    for (int r = 0; r < group->size; ++r) {
        CO_EXPECT_INT(all[r].kind, COI_HANDSHAKE_COLLECTIVE);
        CO_EXPECT_INT(all[r].epoch, epoch);
        CO_EXPECT_INT(all[r].number, 100 + r);
    }
}

static inline void
body_exchange_gives_every_rank_the_word_of_every_rank(coi_group *group)
{
    for (int i = 0; i < 200; ++i)
        expect_in_step(group, (uint64_t)(i / 3));
}

/* One all-reduce of everything that may vary, against the reference. */
static inline void
reduce_once(coi_group *group, const coi_reduction *wanted, const int *first)
{
    coi_reduction job = *wanted;
    size_t        nbytes = (size_t)job.num_elements * co_dtype_size(job.dtype);
    void         *out = aligned_alloc(64, (nbytes + 127) / 64 * 64);
    co_error_info err;

    CO_REQUIRE(out != NULL);
    coi_error_reset(&err);
    memset(out, 0xA5, nbytes + 1);
    job.parts = wanted->parts + first[group->rank];
    job.out = out;
    if (!CO_EXPECT_CODE(coi_group_all_reduce(group, &job, 1, first,
                                             &(coi_comm_options){ .timeout_ms = LONG_MS }, &err),
                        CO_OK))
        CO_FAIL("rank %d: %s", group->rank, err.message);
    for (int64_t at = 0; at < wanted->num_elements;
         at += 1 << 20) { /* of millions, some thousands */
        int64_t end = at + 20000 < wanted->num_elements ? at + 20000 : wanted->num_elements;

        CO_EXPECT_TRUE(expect_elements(wanted,
                                       (unsigned char *)out + (size_t)at * co_dtype_size(job.dtype),
                                       at, end, "all_reduce"));
    }
    CO_EXPECT_INT(((unsigned char *)out)[nbytes], 0xA5);
    free(out);
}

/* Visit the placements of n replicas on ranks r.. ; they count up to cut the cost of the rest. */
static inline void
place(coi_group *group, int n, int *first, int r, void *parts[NUM_NUMERIC][9], int *count)
{
    static const int64_t lengths[] = { 0, 1, 3, 16, 17, 67, 1031, 2053 };

    if (r == group->size - 1) {
        int           d = *count % NUM_NUMERIC;
        coi_reduction job = { (co_reduce_op)(*count % NUM_OPS), numeric[d], lengths[*count % 8], n,
                              (const void *const *)parts[d],    NULL };

        first[group->size] = n;
        reduce_once(group, &job, first);
        ++*count;
        return;
    }
    for (first[r + 1] = first[r]; first[r + 1] <= n; ++first[r + 1])
        place(group, n, first, r + 1, parts, count);
}

static inline void
body_all_reduce_has_the_same_bits_for_every_placement(coi_group *group)
{
    void *parts[NUM_NUMERIC][9];
    int   first[MAX_RANKS + 1] = { 0 }, count = 0;

    for (int d = 0; d < NUM_NUMERIC; ++d)
        make_parts(numeric[d], 9, 2053, parts[d]);
    for (int n = 1; n <= 9; ++n)
        place(group, n, first, 0, parts, &count);
    for (int d = 0; d < NUM_NUMERIC; ++d)
        free_parts(9, parts[d]);
}

/* More than a chunk, and every dtype and operation over the border between one round and two. */
static inline void
body_all_reduce_works_in_chunks_and_in_two_rounds(coi_group *group)
{
    void *parts[MAX_RANKS + 1];
    int   first[MAX_RANKS + 1];
    int   n = group->size + 1; /* the first rank has two */

    for (int r = 0; r <= group->size; ++r)
        first[r] = r == 0 ? 0 : r + 1;
    for (int d = 0; d < NUM_NUMERIC; ++d) {
        int64_t length = 68000 / (int64_t)co_dtype_size(numeric[d]);

        make_parts(numeric[d], n, length, parts);
        for (int op = 0; op < NUM_OPS; ++op) {
            coi_reduction job = { (co_reduce_op)op,           numeric[d], length - op * 13, n,
                                  (const void *const *)parts, NULL };

            reduce_once(group, &job, first);
        }
        free_parts(n, parts);
    }
    make_parts(CO_FLOAT32, n, 2100001, parts);
    reduce_once(group,
                &(coi_reduction){ CO_REDUCE_SUM, CO_FLOAT32, 2100001, n, (const void *const *)parts,
                                  NULL },
                first);
    free_parts(n, parts);
}

/* Jobs of all kinds and lengths at once, small ones between large ones, against the reference. */
static inline void
body_many_all_reduces_at_once_have_the_bits_of_each(coi_group *group)
{
    enum { NUM_JOBS = 150 };
    static const int64_t lengths[] = { 1, 0, 3, 17, 1000, 65537, 7, 64, 2048 };
    void                *parts[NUM_NUMERIC][MAX_RANKS * 2];
    void                *out[NUM_JOBS];
    coi_reduction        wanted[NUM_JOBS], jobs[NUM_JOBS];
    int                  first[MAX_RANKS + 1], n = group->size * 2 - 1;
    co_error_info        err;

    for (int r = 0; r <= group->size; ++r)
        first[r] = r == 0 ? 0 : r * 2 - 1; /* one, then two each */
    for (int d = 0; d < NUM_NUMERIC; ++d)
        make_parts(numeric[d], n, 65537, parts[d]);
    for (int i = 0; i < NUM_JOBS; ++i) {
        int d = i % NUM_NUMERIC;

        wanted[i] = (coi_reduction){
            (co_reduce_op)(i % NUM_OPS),   numeric[d], lengths[i * 5 % 9], n,
            (const void *const *)parts[d], NULL
        };
        out[i] = malloc((size_t)wanted[i].num_elements * 8 + 1);
        CO_REQUIRE(out[i] != NULL);
        memset(out[i], 0xA5, (size_t)wanted[i].num_elements * 8 + 1);
        jobs[i] = wanted[i];
        jobs[i].parts += first[group->rank];
        jobs[i].out = out[i];
    }
    coi_error_reset(&err);
    if (!CO_EXPECT_CODE(coi_group_all_reduce(group, jobs, NUM_JOBS, first,
                                             &(coi_comm_options){ .timeout_ms = LONG_MS }, &err),
                        CO_OK))
        CO_FAIL("rank %d: %s", group->rank, err.message);
    for (int i = 0; i < NUM_JOBS; ++i) {
        size_t  nbytes = (size_t)wanted[i].num_elements * co_dtype_size(wanted[i].dtype);
        int64_t some = wanted[i].num_elements < 5000 ? wanted[i].num_elements : 5000;

        CO_EXPECT_TRUE(expect_elements(&wanted[i], out[i], 0, some, "many"));
        CO_EXPECT_INT(((unsigned char *)out[i])[nbytes], 0xA5);
        free(out[i]);
    }
    for (int d = 0; d < NUM_NUMERIC; ++d)
        free_parts(n, parts[d]);
}

static inline unsigned char
byte_of(int rank, size_t i)
{
    return (unsigned char)((size_t)(rank + 1) * 31 + i * 7);
}

static inline void
gather_once(coi_group *group, const size_t *nbytes, bool in_place)
{
    size_t         total = 1, at = 0;
    unsigned char *mine, *all;
    co_error_info  err;

    for (int r = 0; r < group->size; ++r)
        total += nbytes[r];
    mine = malloc(nbytes[group->rank] + 1);
    all = malloc(total);
    CO_REQUIRE(mine != NULL && all != NULL);
    for (int r = 0; r < group->rank; ++r)
        at += nbytes[r];
    for (size_t i = 0; i < nbytes[group->rank]; ++i)
        mine[i] = all[at + i] = byte_of(group->rank, i);
    coi_error_reset(&err);
    CO_EXPECT_CODE(
        coi_group_all_gather(group, in_place ? all + at : mine, nbytes, all, LONG_MS, &err), CO_OK);
    at = 0;
    for (int r = 0; r < group->size; ++r)
        for (size_t i = 0; i < nbytes[r]; ++i, ++at)
            if (all[at] != byte_of(r, i))
                CO_FAIL("byte %zu of rank %d is %d", i, r, all[at]);
    free(mine);
    free(all);
}

static inline void
body_all_gather_puts_the_parts_in_the_order_of_ranks(coi_group *group)
{
    static const size_t some[] = { 0, 1, 63, 64, 65, 4099, 100003 };

    for (size_t k = 0; k < 21; ++k) {
        size_t nbytes[MAX_RANKS];

        for (int r = 0; r < group->size; ++r)
            nbytes[r] = some[(k + (size_t)r * 3) % 7];
        gather_once(group, nbytes, k % 2 == 0);
    }
}

static inline void
body_broadcast_gives_everybody_the_bytes_of_the_root(coi_group *group)
{
    static const size_t some[] = { 0, 1, 100, 65536, 65537, 300001 };

    for (size_t k = 0; k < 6; ++k)
        for (int root = 0; root < group->size; ++root) {
            unsigned char *data = malloc(some[k] + 1);
            co_error_info  err;

            CO_REQUIRE(data != NULL);
            for (size_t i = 0; i < some[k]; ++i)
                data[i] = byte_of(group->rank, i);
            coi_error_reset(&err);
            CO_EXPECT_CODE(coi_group_broadcast(group, data, some[k], root, LONG_MS, &err), CO_OK);
            for (size_t i = 0; i < some[k]; ++i)
                if (data[i] != byte_of(root, i))
                    CO_FAIL("byte %zu of %zu from root %d is %d", i, some[k], root, data[i]);
            free(data);
        }
}

static inline void
body_words_of_earlier_epochs_are_skipped(coi_group *group)
{
    coi_handshake end = handshake_of(COI_HANDSHAKE_RUN_END, 1),
                  failed = handshake_of(COI_HANDSHAKE_FAILED, 1);

    failed.code = CO_VALUE_ERROR;
    expect_in_step(group, 2); /* so nobody is in the first any more */
    group->transport->notify(group, &end);
    group->transport->notify(group, &failed);
    expect_in_step(group, 2);
    expect_in_step(group, 3);
}

static inline void
body_the_end_of_a_run_is_given_to_those_who_wait(coi_group *group)
{
    coi_handshake end = handshake_of(COI_HANDSHAKE_RUN_END, 5), all[MAX_RANKS];
    co_error_info err;

    if (is_last(group)) {
        group->transport->notify(group, &end);
    } else {
        for (int i = 0; i < 2; ++i) {
            CO_EXPECT_CODE(exchange_at(group, 5, all, LONG_MS, &err), CO_OK);
            CO_EXPECT_INT(all[group->size - 1].kind, COI_HANDSHAKE_RUN_END);
            CO_EXPECT_INT(all[group->size - 1].epoch, 5);
        }
    }
    expect_in_step(group, 6);
}

static inline void
body_a_failure_ends_an_exchange_early(coi_group *group)
{
    coi_handshake failed = handshake_of(COI_HANDSHAKE_FAILED, 3), all[MAX_RANKS];
    uint64_t      start = coi_now_ns();
    co_error_info err;

    failed.code = CO_INVALID_ARGUMENT;
    failed.replica = 7;
    snprintf(failed.text, sizeof(failed.text), "shapes [2] and [3] differ");
    if (is_last(group)) {
        group->transport->notify(group, &failed);
    } else if (group->rank == 0) { /* of three ranks, one never comes */
        CO_EXPECT_CODE(exchange_at(group, 3, all, LONG_MS, &err), CO_OK);
        CO_EXPECT_INT(all[group->size - 1].kind, COI_HANDSHAKE_FAILED);
        CO_EXPECT_CODE((co_code)all[group->size - 1].code, CO_INVALID_ARGUMENT);
        CO_EXPECT_INT(all[group->size - 1].replica, 7);
        CO_EXPECT_STR(all[group->size - 1].text, "shapes [2] and [3] differ");
        for (int r = 1; r < group->size - 1; ++r)
            CO_EXPECT_TRUE(all[r].kind == COI_HANDSHAKE_NONE || all[r].epoch == 4);
        CO_EXPECT_LESS(ms_since(start), LONG_MS / 2);
    }
    expect_in_step(group, 4);
}

static inline void
body_a_rank_that_is_ahead_is_seen_there_and_met_later(coi_group *group)
{
    coi_handshake all[MAX_RANKS];
    co_error_info err;

    for (int i = 0; i < 2 && !is_last(group); ++i) {
        CO_EXPECT_CODE(exchange_at(group, 7, all, LONG_MS, &err), CO_OK);
        CO_EXPECT_INT(all[group->size - 1].kind, COI_HANDSHAKE_COLLECTIVE);
        CO_EXPECT_INT(all[group->size - 1].epoch, 8);
    }
    expect_in_step(group, 8);
    expect_in_step(group, 8);
}

static inline void
body_a_missing_rank_is_named_at_the_deadline(coi_group *group)
{
    coi_handshake all[MAX_RANKS];
    char          name[32];
    uint64_t      start;
    co_error_info err;

    expect_in_step(group, 8);
    start = coi_now_ns();
    snprintf(name, sizeof(name), "for rank %d:", group->size - 1);
    if (is_last(group)) {
        rest_ms(7 * SHORT_MS);
        CO_EXPECT_CODE(exchange_at(group, 9, all, LONG_MS, &err), CO_OK);
    } else {
        CO_EXPECT_CODE(exchange_at(group, 9, all, SHORT_MS, &err), CO_DEADLINE_EXCEEDED);
        CO_EXPECT_CONTAINS(err.message, name);
        CO_EXPECT_CONTAINS(err.message, "body.c:9");
        CO_EXPECT_MORE(ms_since(start), SHORT_MS / 2);
        CO_EXPECT_FALSE(group->broken);
    }
    expect_in_step(group, 10); /* nothing is lost */
}

/* Cores are left to those who work: the one that is waited for may need them. */
static inline void
body_waiting_takes_little_processor_time(coi_group *group)
{
    struct timespec before, after;

    expect_in_step(group, 1);
    if (is_last(group))
        rest_ms(600);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    expect_in_step(group, 2);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    CO_EXPECT_LESS((double)(after.tv_sec - before.tv_sec) * 1e3 +
                       (double)(after.tv_nsec - before.tv_nsec) * 1e-6,
                   200);
}

/* Receive nbytes from the last rank; the buffer is leaked where it must be. */
static inline co_code
receive_from_last(coi_group *group, size_t nbytes, int timeout_ms, co_error_info *err)
{
    void   *data = malloc(nbytes);
    co_code rc;

    CO_REQUIRE(data != NULL);
    coi_error_reset(err);
    rc = group->transport->transfer(group, NULL, 0,
                                    &(coi_transfer){ group->size - 1, data, nbytes }, 1, timeout_ms,
                                    err);
    if (!group->holding)
        free(data);
    return rc;
}

static inline void
expect_broken(coi_group *group)
{
    coi_handshake all[MAX_RANKS], failed = handshake_of(COI_HANDSHAKE_FAILED, 0);
    co_error_info err;

    CO_EXPECT_TRUE(group->broken);
    CO_EXPECT_CODE(exchange_at(group, 99, all, LONG_MS, &err),
                   group->size > 1 ? CO_UNAVAILABLE : CO_OK);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_group_broadcast(group, all, 8, 0, LONG_MS, &err), CO_UNAVAILABLE);
    group->transport->notify(group, &failed); /* may still speak */
}

/* A rank that does nothing until all others have left: closing a broken group waits for its
 * goodbye, but not for long. */
static inline void
stay_till_the_others_leave(coi_group *group)
{
    coi_handshake all[MAX_RANKS];
    uint64_t      start = coi_now_ns();
    int           left = 0;
    co_error_info err;

    while (left < group->size - 1 && CO_EXPECT_LESS(ms_since(start), LONG_MS)) {
        exchange_at(group, 2, all, SHORT_MS, &err);
        left = 0;
        for (int r = 0; r < group->size; ++r)
            left += all[r].kind == COI_HANDSHAKE_FAILED;
        rest_ms(10);
    }
}

static inline void
body_a_transfer_that_stalls_names_the_rank_and_breaks_the_group(coi_group *group)
{
    char          name[32];
    uint64_t      start;
    co_error_info err;

    expect_in_step(group, 1);
    start = coi_now_ns();
    snprintf(name, sizeof(name), "from rank %d within", group->size - 1);
    if (is_last(group)) {
        stay_till_the_others_leave(group);
        return;
    }
    CO_EXPECT_CODE(receive_from_last(group, 1000, SHORT_MS, &err), CO_DEADLINE_EXCEEDED);
    CO_EXPECT_CONTAINS(err.message, name);
    CO_EXPECT_MORE(ms_since(start), SHORT_MS / 2);
    expect_broken(group);
}

static inline void
body_a_failure_ends_a_transfer(coi_group *group)
{
    coi_handshake failed = handshake_of(COI_HANDSHAKE_FAILED, 2);
    char          text[80];
    uint64_t      start;
    co_error_info err;

    failed.code = CO_OUT_OF_RANGE;
    snprintf(failed.site, sizeof(failed.site), "step.c:7");
    snprintf(failed.text, sizeof(failed.text), "index 9 of 4");
    snprintf(text, sizeof(text), "rank %d failed at step.c:7: index 9 of 4", group->size - 1);
    expect_in_step(group, 2);
    start = coi_now_ns();
    if (is_last(group)) {
        rest_ms(50);
        group->transport->notify(group, &failed);
        return;
    }
    CO_EXPECT_CODE(receive_from_last(group, 1 << 20, LONG_MS, &err), CO_OUT_OF_RANGE);
    CO_EXPECT_CONTAINS(err.message, text); /* perhaps by way of another rank */
    CO_EXPECT_LESS(ms_since(start), LONG_MS / 2);
    expect_broken(group);
}

/* The last rank sends `sent` bytes to rank 0, which expects 16. */
static inline void
disagree(coi_group *group, size_t sent)
{
    unsigned char data[64] = { 0 };
    char          name[32];
    co_error_info err;

    if (group->size == 1) {
        CO_EXPECT_INT(group->rank, 0);
        return;
    }
    expect_in_step(group, 1);
    snprintf(name, sizeof(name), "rank %d sent", group->size - 1);
    coi_error_reset(&err);
    if (is_last(group)) {
        co_code rc = group->transport->transfer(group, &(coi_transfer){ 0, data, sent }, 1, NULL, 0,
                                                LONG_MS, &err);

        /* Whether the sender hears of it depends on the transport. */
        CO_EXPECT_TRUE(rc == CO_OK || rc == CO_INTERNAL);
    } else if (group->rank == 0) {
        CO_EXPECT_CODE(receive_from_last(group, 16, LONG_MS, &err), CO_INTERNAL);
        CO_EXPECT_CONTAINS(err.message, name);
        expect_broken(group);
    }
}

static inline void
body_a_peer_that_sends_too_little_is_named(coi_group *group)
{
    disagree(group, 8);
}

static inline void
body_a_peer_that_sends_too_much_is_named(coi_group *group)
{
    disagree(group, 40);
}

static inline void
body_a_rank_that_leaves_is_missed_at_once(coi_group *group)
{
    coi_handshake all[MAX_RANKS];
    uint64_t      start = coi_now_ns();
    co_error_info err;

    expect_in_step(group, 1);
    if (is_last(group))
        return;
    CO_EXPECT_CODE(exchange_at(group, 2, all, LONG_MS, &err), CO_OK);
    CO_EXPECT_INT(all[group->size - 1].kind, COI_HANDSHAKE_FAILED);
    CO_EXPECT_CODE((co_code)all[group->size - 1].code, CO_UNAVAILABLE);
    CO_EXPECT_CONTAINS(all[group->size - 1].text, "left the group");
    CO_EXPECT_LESS(ms_since(start), LONG_MS / 2);
}

static inline void
body_garbage_from_a_peer_is_a_failure_of_the_peer(coi_group *group)
{
    coi_handshake garbage, all[MAX_RANKS];
    co_error_info err;

    expect_in_step(group, 1);
    memset(&garbage, 0xFE, sizeof(garbage));
    if (is_last(group)) {
        group->transport->notify(group, &garbage);
        return;
    }
    CO_EXPECT_CODE(exchange_at(group, 2, all, LONG_MS, &err), CO_OK);
    CO_EXPECT_INT(all[group->size - 1].kind, COI_HANDSHAKE_FAILED);
    CO_EXPECT_CODE((co_code)all[group->size - 1].code, CO_INTERNAL);
}

/* A rank runs far ahead of ranks that do not listen. Memory is bounded, and nothing is lost that
 * counts. */
static inline void
body_announcements_never_wait(coi_group *group)
{
    coi_handshake all[MAX_RANKS];
    uint64_t      start = coi_now_ns();

    for (uint64_t e = 1; e <= 3000 && is_last(group); ++e) {
        coi_handshake end = handshake_of(COI_HANDSHAKE_RUN_END, e);

        group->transport->notify(group, &end);
    }
    CO_EXPECT_LESS(ms_since(start),
                   LONG_MS); /* the time of 3000 calls on a busy machine, with room */
    if (!is_last(group)) {
        co_error_info err;

        rest_ms(100);
        CO_EXPECT_CODE(exchange_at(group, 3000, all, LONG_MS, &err), CO_OK);
        CO_EXPECT_INT(all[group->size - 1].kind, COI_HANDSHAKE_RUN_END);
    }
    expect_in_step(group, 3001);
}

/* Both at once in both directions, and more than fits any buffer of the transport. */
static inline void
body_transfers_of_all_sizes_arrive_in_order(coi_group *group)
{
    static const size_t some[] = { 0, 1, 4096, 3000001, (33 << 20) + 7 };
    int to = (group->rank + 1) % group->size, from = (group->rank + group->size - 1) % group->size;
    coi_transfer  sends[5], receives[5];
    co_error_info err;

    coi_error_reset(&err);
    for (size_t k = 0; k < 5; ++k) {
        sends[k] = (coi_transfer){ to, malloc(some[k] + 1), some[k] };
        receives[k] = (coi_transfer){ from, malloc(some[k] + 1), some[k] };
        CO_REQUIRE(sends[k].data != NULL && receives[k].data != NULL);
        for (size_t i = 0; i < some[k]; ++i)
            ((unsigned char *)sends[k].data)[i] = byte_of(group->rank, i + k);
    }
    CO_EXPECT_CODE(group->transport->transfer(group, sends, 5, receives, 5, LONG_MS, &err), CO_OK);
    for (size_t k = 0; k < 5; ++k) {
        for (size_t i = 0; i < some[k]; ++i)
            if (((unsigned char *)receives[k].data)[i] != byte_of(from, i + k))
                CO_FAIL("byte %zu of transfer %zu is wrong", i, k);
        free(sends[k].data);
        free(receives[k].data);
    }
}

/* Every body as a case: define CASE(name) before. */
#define COLLECTIVE_CASES(CASE)                                                                     \
    CASE(exchange_gives_every_rank_the_word_of_every_rank)                                         \
    CASE(all_reduce_has_the_same_bits_for_every_placement)                                         \
    CASE(all_reduce_works_in_chunks_and_in_two_rounds)                                             \
    CASE(many_all_reduces_at_once_have_the_bits_of_each)                                           \
    CASE(all_gather_puts_the_parts_in_the_order_of_ranks)                                          \
    CASE(broadcast_gives_everybody_the_bytes_of_the_root)                                          \
    CASE(transfers_of_all_sizes_arrive_in_order)                                                   \
    CASE(words_of_earlier_epochs_are_skipped)                                                      \
    CASE(the_end_of_a_run_is_given_to_those_who_wait)                                              \
    CASE(a_failure_ends_an_exchange_early)                                                         \
    CASE(a_rank_that_is_ahead_is_seen_there_and_met_later)                                         \
    CASE(a_missing_rank_is_named_at_the_deadline)                                                  \
    CASE(waiting_takes_little_processor_time)                                                      \
    CASE(a_transfer_that_stalls_names_the_rank_and_breaks_the_group)                               \
    CASE(a_failure_ends_a_transfer)                                                                \
    CASE(a_peer_that_sends_too_little_is_named)                                                    \
    CASE(a_peer_that_sends_too_much_is_named)                                                      \
    CASE(a_rank_that_leaves_is_missed_at_once)                                                     \
    CASE(garbage_from_a_peer_is_a_failure_of_the_peer)                                             \
    CASE(announcements_never_wait)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong below a collective: a transport that fails at any message, invalid slots,
 * memory that is not there when groups are opened, and the words that errors are made of.
 */
#include "collective/group.h"
#include "collective/local/ranks.h"
#include "collective_bodies.h"
#include "hooks.h"
#include "test.h"

/* --- a transport of which the n-th transfer fails; until then zeros come in --- */

typedef struct frail_group {
    coi_group group;
    int       transfers, fail_at;
} frail_group;

static co_code
frail_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
               const coi_transfer *receives, size_t num_receives, int timeout_ms,
               co_error_info *err)
{
    frail_group *self = (frail_group *)group;

    (void)sends;
    (void)num_sends;
    (void)timeout_ms;
    if (++self->transfers == self->fail_at) {
        coi_error(err, CO_UNAVAILABLE, "transfer %d is cut off", self->transfers);
        coi_group_break(group, CO_UNAVAILABLE, err);
        return CO_UNAVAILABLE;
    }
    for (size_t i = 0; i < num_receives; ++i)
        memset(receives[i].data, 0, receives[i].nbytes);
    return CO_OK;
}

static const coi_transport frail_transport = { .name = "frail", .transfer = frail_transfer };

static void
frail_open(frail_group *self, coi_memory *memory, int size, int fail_at)
{
    *self = (frail_group){
        .group = { .transport = &frail_transport, .size = size, .memory = memory },
        .fail_at = fail_at
    };
}

static void
frail_close(frail_group *self)
{
    coi_free(self->group.memory, self->group.scratch, self->group.scratch_nbytes);
}

enum { SMALL = 100, NUM_SMALL = 70, LARGE = 3 << 20 };

/* Many small values, a large one of several chunks, and more small ones, in packs or not. */
static co_code
reduce_many(coi_group *group, size_t bytes_per_pack, bool in_ring, co_error_info *err)
{
    static float     part[LARGE], out[LARGE];
    const void      *parts[] = { part };
    coi_comm_options how = { bytes_per_pack, -1, in_ring };
    coi_reduction    jobs[NUM_SMALL + 2];
    const int        first[] = { 0, 1, 2, 3 };

    for (int i = 0; i < NUM_SMALL + 2; ++i)
        jobs[i] = (coi_reduction){ CO_REDUCE_SUM, CO_FLOAT32, i == NUM_SMALL ? LARGE : SMALL,
                                   group->size,   parts,      out };
    return coi_group_all_reduce(group, jobs, NUM_SMALL + 2, first, &how, err);
}

CO_TEST_BARE(an_all_reduce_ends_with_the_first_message_that_fails, "MW-14 CO-4")
{
    static const size_t packs[] = { 0, 1000, 1 << 30 };
    coi_memory          memory;

    coi_memory_init(&memory, NULL);
    for (int size = 2; size <= 3; ++size)
        for (int p = 0; p < 3; ++p) {
            co_code rc = CO_UNAVAILABLE;
            int     n = 0;

            while (rc != CO_OK && n < 200) {
                frail_group   group;
                co_error_info err;

                coi_error_reset(&err);
                frail_open(&group, &memory, size, ++n);
                rc = reduce_many(&group.group, packs[p], size == 3, &err);
                if (rc != CO_OK) {
                    CO_EXPECT_CODE(rc, CO_UNAVAILABLE);
                    CO_EXPECT_INT(group.transfers, n); /* nothing is tried after that, */
                    CO_EXPECT_TRUE(group.group.broken);
                    CO_EXPECT_CODE(reduce_many(&group.group, packs[p], false, &err),
                                   CO_UNAVAILABLE); /* and nothing starts */
                    CO_EXPECT_INT(group.transfers, n);
                }
                frail_close(&group);
            }
            CO_EXPECT_MORE(n, p == 1 ? 10 : 4); /* packs are more messages */
            CO_EXPECT_LESS(n, 200);
        }
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(gathers_and_broadcasts_end_with_the_first_message_that_fails, "MW-14")
{
    static unsigned char data[3 << 17];
    const size_t         nbytes[] = { 1 << 17, 1 << 17, 1 << 17 };
    coi_memory           memory;

    coi_memory_init(&memory, NULL);
    for (int root = 0; root < 2; ++root)
        for (int n = 1; n <= 2; ++n) {
            frail_group   group;
            co_error_info err;

            coi_error_reset(&err);
            frail_open(&group, &memory, 3, n);
            CO_EXPECT_CODE(coi_group_broadcast(&group.group, data, sizeof(data), root, -1, &err),
                           CO_UNAVAILABLE);
            CO_EXPECT_INT(group.transfers, n);
            CO_EXPECT_CODE(coi_group_broadcast(&group.group, data, 8, root, -1, &err),
                           CO_UNAVAILABLE); /* broken */
            CO_EXPECT_CODE(coi_group_all_gather(&group.group, data, nbytes, data, -1, &err),
                           CO_UNAVAILABLE);
            CO_EXPECT_INT(group.transfers, n);
            frail_close(&group);
        }
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(a_collective_without_memory_breaks_the_group, "MW-14")
{
    test_hooks    hooks;
    coi_memory    memory;
    frail_group   group;
    co_error_info err;
    size_t        nbytes[] = { 4, 4 };
    int           data[2] = { 0 };

    test_hooks_init(&hooks, 1);
    coi_memory_init(&memory, &hooks.allocator);
    coi_error_reset(&err);
    frail_open(&group, &memory, 2, 0);
    CO_EXPECT_CODE(coi_group_all_gather(&group.group, data, nbytes, data, -1, &err),
                   CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_CONTAINS(err.message, "scratch of a collective");
    CO_EXPECT_TRUE(group.group.broken);
    CO_EXPECT_CODE(coi_group_check(&group.group, NULL), CO_UNAVAILABLE);
}

/* --- words --- */

CO_TEST_BARE(the_first_cause_of_a_broken_group_stays, "")
{
    coi_group     group = { .size = 2 };
    co_error_info err, other;

    coi_error_reset(&err);
    coi_error_reset(&other);
    coi_error(&other, CO_INTERNAL, "something else");
    coi_group_break(&group, CO_UNAVAILABLE, &other); /* of another code: not what broke it */
    coi_group_break(&group, CO_INTERNAL, &other);
    CO_EXPECT_CODE(coi_group_check(&group, &err), CO_UNAVAILABLE);
    CO_EXPECT_CONTAINS(err.message, "the cause was CO_UNAVAILABLE: ");
    group = (coi_group){ .size = 2 };
    coi_group_break(&group, CO_DATA_LOSS, NULL);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_group_check(&group, &err), CO_UNAVAILABLE);
    CO_EXPECT_CONTAINS(err.message, "CO_DATA_LOSS");
}

CO_TEST_BARE(the_error_of_a_peer_names_replica_rank_and_place_if_they_are_known, "")
{
    coi_handshake failed = handshake_of(COI_HANDSHAKE_FAILED, 1), missing[2] = { { 0 }, { 0 } };
    bool          is_named[2];
    co_error_info err;

    failed.code = CO_DATA_LOSS;
    snprintf(failed.text, sizeof(failed.text), "no more");
    CO_EXPECT_CODE(coi_handshake_error(&failed, 3, NULL), CO_DATA_LOSS);
    coi_error_reset(&err);
    coi_handshake_error(&failed, 3, &err);
    CO_EXPECT_STR(err.message, "rank 3 failed: no more");
    failed.replica = 7;
    snprintf(failed.site, sizeof(failed.site), "step.c:5");
    CO_EXPECT_CODE(coi_handshake_error(&failed, 3, &err), CO_DATA_LOSS); /* the first error stays */
    CO_EXPECT_INT(err.replica, -1);
    coi_error_reset(&err);
    coi_handshake_error(&failed, 3, &err);
    CO_EXPECT_STR(err.message, "replica 7 of rank 3 failed at step.c:5: no more");
    CO_EXPECT_INT(err.replica, 7);

    coi_error_reset(&err);
    missing[0] = handshake_of(COI_HANDSHAKE_COLLECTIVE, 1);
    CO_EXPECT_CODE(coi_missing_error(&missing[0], missing, 0, 2, is_named, 5, &err),
                   CO_DEADLINE_EXCEEDED);
    CO_EXPECT_CONTAINS(err.message, "rank 0 of 2 waited 5 ms for rank 1:"); /* no place is known */
}

CO_TEST_BARE(moments_pass_and_never_does_not, "")
{
    CO_EXPECT_INT(coi_left_ms(0), -1);
    CO_EXPECT_INT(coi_left_ms(1), 0);
    CO_EXPECT_INT(coi_left_ms(UINT64_MAX), INT32_MAX);
    CO_EXPECT_FALSE(coi_is_past(0));
    CO_EXPECT_TRUE(coi_is_past(1));
    CO_EXPECT_FALSE(coi_is_past(UINT64_MAX));
}

/* --- alone --- */

CO_TEST_BARE(a_rank_that_is_alone_matches_its_sends_with_its_receives, "")
{
    char data[4] = "abc", back[4] = "";
    static const struct {
        int    peer_of_send, peer_of_receive;
        size_t sent, received, num_sends, num_receives;
    } bad[] = { { 0, 0, 4, 4, 0, 1 },
                { 0, 0, 4, 4, 1, 0 },
                { 1, 0, 4, 4, 1, 1 },
                { 0, 1, 4, 4, 1, 1 },
                { 0, 0, 4, 3, 1, 1 } };
    coi_memory    memory;
    test_hooks    hooks;
    coi_group    *group = NULL;
    co_error_info err;

    coi_memory_init(&memory, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        coi_transfer send = { bad[i].peer_of_send, data, bad[i].sent };
        coi_transfer receive = { bad[i].peer_of_receive, back, bad[i].received };

        coi_error_reset(&err);
        CO_REQUIRE(coi_group_open("self", &(coi_group_options){ .memory = &memory }, &group,
                                  &err) == CO_OK);
        CO_EXPECT_CODE(group->transport->transfer(group, &send, bad[i].num_sends, &receive,
                                                  bad[i].num_receives, 0, &err),
                       CO_INTERNAL);
        CO_EXPECT_CONTAINS(err.message, "transfer 0 of a group of one rank");
        CO_EXPECT_STR(back, "");
        group->transport->notify(group, &(coi_handshake){ 0 }); /* there is nobody to hear it */
        coi_group_close(group);
    }
    CO_REQUIRE(coi_group_open("self", &(coi_group_options){ .memory = &memory }, &group, NULL) ==
               CO_OK);
    CO_EXPECT_CODE(group->transport->transfer(group, &(coi_transfer){ 0, data, 0 }, 1,
                                              &(coi_transfer){ 0, NULL, 0 }, 1, 0, NULL),
                   CO_OK); /* nothing is a message too */
    coi_group_close(group);

    test_hooks_init(&hooks, 1);
    coi_memory_init(&memory, &hooks.allocator);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_group_open("self", &(coi_group_options){ .memory = &memory }, &group, &err),
                   CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_CONTAINS(err.message, "no memory for a group of one rank");
}

/* --- ranks as threads --- */

CO_TEST_BARE(a_world_is_whole_or_not_there, "")
{
    for (long long n = 1; n <= 3; ++n) {
        test_hooks        hooks;
        coi_memory        memory;
        coi_thread_world *world = NULL;
        co_error_info     err;

        test_hooks_init(&hooks, n);
        coi_memory_init(&memory, &hooks.allocator);
        coi_error_reset(&err);
        CO_EXPECT_CODE(coi_thread_world_create(&memory, 3, &world, &err), CO_RESOURCE_EXHAUSTED);
        CO_EXPECT_CONTAINS(err.message, "a world of 3 ranks");
        CO_EXPECT_NULL(world);
        CO_EXPECT_INT(hooks.blocks, 0);
    }
}

static co_code
sit(coi_memory *memory, coi_thread_world *world, int rank, coi_group **out, co_error_info *err)
{
    coi_thread_rank rank_slot = { world, rank };

    coi_error_reset(err);
    return coi_group_open("threads",
                          &(coi_group_options){ .communicator = &rank_slot, .memory = memory }, out,
                          err);
}

CO_TEST_BARE(a_seat_is_one_of_the_world_and_taken_once, "")
{
    coi_memory        memory;
    coi_thread_world *world;
    coi_group        *group = NULL, *second = NULL;
    co_error_info     err;

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_thread_world_create(&memory, 1, &world, NULL) == CO_OK);
    CO_EXPECT_CODE(sit(&memory, NULL, 0, &group, &err), CO_VALUE_ERROR);
    CO_EXPECT_CODE(sit(&memory, world, -1, &group, &err), CO_VALUE_ERROR);
    CO_EXPECT_CODE(sit(&memory, world, 1, &group, &err), CO_VALUE_ERROR);
    CO_EXPECT_CONTAINS(err.message, "no rank in a world");
    CO_REQUIRE(sit(&memory, world, 0, &group, &err) == CO_OK);
    CO_EXPECT_CODE(sit(&memory, world, 0, &second, &err), CO_VALUE_ERROR);
    CO_EXPECT_CONTAINS(err.message, "rank 0 of the world of threads is taken already");
    CO_EXPECT_NULL(second);
    coi_group_break(group, CO_INTERNAL, NULL);
    CO_EXPECT_CODE(group->transport->transfer(group, NULL, 0, NULL, 0, 0, &err), CO_UNAVAILABLE);
    CO_EXPECT_CODE(group->transport->exchange(group, &(coi_handshake){ 0 }, &(coi_handshake){ 0 },
                                              0, &err),
                   CO_UNAVAILABLE);
    coi_group_close(group);
    coi_thread_world_destroy(world);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

/* --- transfers of which only a part is taken --- */

/*
 * The last rank sends two messages to each other rank and wants one back that never comes; the
 * others take the first of the two and leave. What was not taken is taken back, and nobody reads it
 * later.
 */
static inline void
body_messages_that_nobody_took_are_taken_back(coi_group *group)
{
    int           last = group->size - 1, out = 7, in = 0;
    coi_transfer  sends[2 * MAX_RANKS], receive = { last, &in, sizeof(in) };
    co_error_info err;
    size_t        n = 0;

    expect_in_step(group, 1);
    coi_error_reset(&err);
    if (group->size == 1)
        return;
    if (group->rank < last) { /* one that left may end the transfer before another has begun */
        co_code code = group->transport->transfer(group, NULL, 0, &receive, 1, LONG_MS, &err);

        CO_EXPECT_TRUE(code == CO_OK || code == CO_UNAVAILABLE);
        CO_EXPECT_INT(in, code == CO_OK ? 7 : 0);
        return;
    }
    for (int r = 0; r < last; ++r)
        for (int k = 0; k < 2; ++k)
            sends[n++] = (coi_transfer){ r, &out, sizeof(out) };
    receive.peer = 0;
    CO_EXPECT_TRUE(group->transport->transfer(group, sends, n, &receive, 1, SHORT_MS, &err) !=
                   CO_OK);
    CO_EXPECT_TRUE(group->broken);
}

typedef struct seated {
    coi_thread_rank rank_slot;
    coi_memory     *memory;
    group_body      body;
} seated;

static void *
be_seated(void *arg)
{
    seated           *self = arg;
    coi_group_options options = { .communicator = &self->rank_slot, .memory = self->memory };
    coi_group        *group;

    if (CO_EXPECT_CODE(coi_group_open("threads", &options, &group, NULL), CO_OK)) {
        self->body(group);
        coi_group_close(group);
    }
    return NULL;
}

CO_TEST_BARE(messages_that_nobody_took_are_taken_back, "MW-14")
{
    for (int size = 1; size <= 3; ++size) {
        coi_memory        memory;
        coi_thread_world *world;
        pthread_t         threads[3];
        seated            ranks[3];

        coi_memory_init(&memory, NULL);
        CO_REQUIRE(coi_thread_world_create(&memory, size, &world, NULL) == CO_OK);
        for (int r = 0; r < size; ++r) {
            ranks[r] = (seated){ { world, r },
                                 &memory,
                                 body_messages_that_nobody_took_are_taken_back };
            CO_REQUIRE(pthread_create(&threads[r], NULL, be_seated, &ranks[r]) == 0);
        }
        for (int r = 0; r < size; ++r)
            pthread_join(threads[r], NULL);
        coi_thread_world_destroy(world);
        CO_EXPECT_INT(memory.bytes_in_use, 0);
    }
}

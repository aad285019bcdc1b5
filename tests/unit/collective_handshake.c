/* SPDX-License-Identifier: Apache-2.0 */
/* Words of peers: cleaned, kept, and read by a rank that is at a given epoch. */
#include "collective/handshake.h"
#include "test.h"

static coi_handshake
word(coi_handshake_kind kind, uint64_t epoch, uint64_t sequence)
{
    return (coi_handshake){ .kind = (uint32_t)kind,
                            .epoch = epoch,
                            .sequence = sequence,
                            .code = CO_VALUE_ERROR,
                            .replica = -1 };
}

static void
put(coi_inbox *inbox, coi_handshake_kind kind, uint64_t epoch, uint64_t sequence)
{
    coi_handshake handshake = word(kind, epoch, sequence);

    coi_inbox_put(inbox, &handshake);
}

CO_TEST_BARE(texts_of_a_peer_are_terminated_and_harmless, "")
{
    coi_handshake handshake = word(COI_HANDSHAKE_FAILED, 1, 0);

    memset(handshake.text, 'x', sizeof(handshake.text));
    memcpy(handshake.site, "a\nb\033[2J\377", sizeof("a\nb\033[2J\377"));
    handshake.replica = -77;
    coi_handshake_clean(&handshake, 3);
    CO_EXPECT_INT(handshake.kind, COI_HANDSHAKE_FAILED);
    CO_EXPECT_LESS(strlen(handshake.text), sizeof(handshake.text));
    CO_EXPECT_NULL(strpbrk(handshake.site, "\n\033\377"));
    CO_EXPECT_INT(handshake.replica, -1);
}

CO_TEST_BARE(a_word_of_unknown_kind_is_a_failure_of_its_sender, "")
{
    const uint32_t kinds[] = { COI_HANDSHAKE_NONE, COI_HANDSHAKE_CLOSED + 1, UINT32_MAX };

    for (size_t i = 0; i < 3; ++i) {
        coi_handshake handshake = word(COI_HANDSHAKE_COLLECTIVE, 1, 0);

        handshake.kind = kinds[i];
        coi_handshake_clean(&handshake, 3);
        CO_EXPECT_INT(handshake.kind, COI_HANDSHAKE_FAILED);
        CO_EXPECT_CODE((co_code)handshake.code, CO_INTERNAL);
        CO_EXPECT_CONTAINS(handshake.text, "rank 3");
    }
}

CO_TEST_BARE(a_failure_without_a_code_is_still_one, "")
{
    const int32_t codes[] = { CO_OK, 999, -5 };

    for (size_t i = 0; i < 3; ++i) {
        coi_handshake handshake = word(COI_HANDSHAKE_FAILED, 1, 0);

        handshake.code = codes[i];
        coi_handshake_clean(&handshake, 0);
        CO_EXPECT_CODE((co_code)handshake.code, CO_UNKNOWN);
    }
}

CO_TEST_BARE(an_inbox_is_read_from_the_epoch_of_the_reader, "")
{
    coi_inbox     inbox = { 0 };
    coi_handshake got;

    CO_EXPECT_FALSE(coi_inbox_take(&inbox, 1, 1, &got));
    put(&inbox, COI_HANDSHAKE_FAILED, 1, 0);
    put(&inbox, COI_HANDSHAKE_RUN_END, 1, 0);
    CO_EXPECT_FALSE(coi_inbox_take(&inbox, 2, 1, &got)); /* all of it is old */
    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 2, 1);
    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 2, 2);
    put(&inbox, COI_HANDSHAKE_RUN_END, 2, 0);
    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 3, 0);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.sequence == 1);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.sequence == 2);
    /* What says that the peer is elsewhere is said again and again. */
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.kind == COI_HANDSHAKE_RUN_END);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.kind == COI_HANDSHAKE_RUN_END);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 3, 1, &got) && got.kind == COI_HANDSHAKE_COLLECTIVE &&
                   got.epoch == 3);
    CO_EXPECT_FALSE(coi_inbox_take(&inbox, 3, 1, &got));
}

CO_TEST_BARE(a_failure_of_this_epoch_comes_first, "")
{
    coi_inbox     inbox = { 0 };
    coi_handshake slot = { .kind = COI_HANDSHAKE_NONE }, got;

    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 4, 1);
    coi_inbox_update(&inbox, 4, 1, &slot);
    CO_EXPECT_INT(slot.kind, COI_HANDSHAKE_COLLECTIVE);
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 4, 1));
    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 4, 2);
    put(&inbox, COI_HANDSHAKE_FAILED, 4, 0);
    coi_inbox_update(&inbox, 4, 1, &slot); /* while the others are waited for */
    CO_EXPECT_INT(slot.kind, COI_HANDSHAKE_FAILED);
    CO_EXPECT_NOT_NULL(coi_inbox_failure(&inbox, 4, 1));
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 4, 1, &got) && got.kind == COI_HANDSHAKE_FAILED);
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 5, 1));
}

/* It has sent all that this collective needs, and would break nothing but for those who stopped
 * taking it. */
CO_TEST_BARE(a_failure_after_a_collective_is_no_failure_of_it, "RC-AR-4")
{
    coi_inbox     inbox = { 0 };
    coi_handshake late = word(COI_HANDSHAKE_FAILED, 4, 2), slot = { .kind = COI_HANDSHAKE_NONE };

    late.number = 3; /* it took part in collectives 1 and 2 */
    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 4, 2);
    coi_inbox_put(&inbox, &late);
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 4, 2));
    coi_inbox_update(&inbox, 4, 2, &slot);
    CO_EXPECT_INT(slot.kind, COI_HANDSHAKE_COLLECTIVE);
    coi_inbox_update(&inbox, 4, 2, &slot);
    CO_EXPECT_INT(slot.kind, COI_HANDSHAKE_COLLECTIVE);
    CO_EXPECT_NOT_NULL(coi_inbox_failure(&inbox, 4, 3));
    slot.kind = COI_HANDSHAKE_NONE;
    coi_inbox_update(&inbox, 4, 3, &slot);
    CO_EXPECT_INT(slot.kind, COI_HANDSHAKE_FAILED);
}

/* Ranks can fail step after step without one that is slow; it still hears all that concerns it, in
 * order. */
CO_TEST_BARE(a_peer_that_fails_again_and_again_is_heard_from_the_beginning, "S-RUN-8")
{
    enum { MANY = 50 };
    coi_inbox     inbox = { 0 };
    coi_handshake got;

    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 1, 1);
    for (uint64_t epoch = 2; epoch < MANY; ++epoch) {
        coi_handshake failed = word(COI_HANDSHAKE_FAILED, epoch, 1);

        failed.number = 1;
        put(&inbox, COI_HANDSHAKE_COLLECTIVE, epoch, 1);
        coi_inbox_put(&inbox, &failed);
    }
    put(&inbox, COI_HANDSHAKE_COLLECTIVE, MANY, 1);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 1, 1, &got) && got.kind == COI_HANDSHAKE_COLLECTIVE &&
                   got.epoch == 1);
    for (uint64_t epoch = 2; epoch < COI_INBOX_DEPTH; ++epoch) {
        CO_EXPECT_TRUE(coi_inbox_take(&inbox, epoch, 1, &got) && got.kind == COI_HANDSHAKE_FAILED);
        CO_EXPECT_INT(got.epoch, epoch);
    }
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, MANY, 1, &got) && got.kind == COI_HANDSHAKE_COLLECTIVE &&
                   got.epoch == MANY);
}

CO_TEST_BARE(a_peer_that_left_did_what_it_said_before, "")
{
    coi_inbox     inbox = { 0 };
    coi_handshake got, bye;
    coi_group     group = { .size = 2 };
    co_error_info err = { .code = CO_DATA_LOSS };

    put(&inbox, COI_HANDSHAKE_COLLECTIVE, 4, 1);
    coi_handshake_closed(&bye, &group);
    coi_inbox_put(&inbox, &bye);
    CO_EXPECT_TRUE(coi_inbox_is_closed(&inbox));
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 4, 1));
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 4, 1, &got) && got.kind == COI_HANDSHAKE_COLLECTIVE);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 4, 1, &got) && got.kind == COI_HANDSHAKE_FAILED);
    CO_EXPECT_CODE((co_code)got.code, CO_UNAVAILABLE);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 400, 1, &got) && got.kind == COI_HANDSHAKE_FAILED);

    inbox.count = 0;
    snprintf(err.message, sizeof(err.message), "the cable was cut");
    coi_group_break(&group, CO_DATA_LOSS, &err);
    coi_group_break(&group, CO_VALUE_ERROR, NULL); /* the first cause stays */
    coi_handshake_closed(&bye, &group); /* out of a broken group: its data will not come */
    coi_inbox_put(&inbox, &bye);
    CO_EXPECT_NOT_NULL(coi_inbox_failure(&inbox, 4, 1));
    CO_EXPECT_CODE((co_code)bye.code, CO_DATA_LOSS);
    CO_EXPECT_STR(bye.text, "it left the broken group: the cable was cut");
}

CO_TEST_BARE(an_inbox_is_bounded_and_keeps_the_latest, "")
{
    coi_inbox     inbox = { 0 };
    coi_handshake got;

    for (uint64_t e = 1; e <= 1000; ++e)
        put(&inbox, COI_HANDSHAKE_RUN_END, e, 0);
    CO_EXPECT_INT(inbox.count, 1);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 500, 1, &got) && got.epoch == 1000);
    for (uint64_t e = 1001; e <= 1100; ++e)
        put(&inbox, COI_HANDSHAKE_COLLECTIVE, e, 0);
    CO_EXPECT_INT(inbox.count, COI_INBOX_DEPTH);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 1100, 1, &got) && got.epoch == 1100);
}

CO_TEST_BARE(ranks_are_named_shortly, "")
{
    bool named[1000] = { false };
    char text[COI_RANKS_TEXT];

    named[3] = true;
    CO_EXPECT_STR(coi_name_ranks(named, 1000, text), "rank 3");
    named[7] = true;
    CO_EXPECT_STR(coi_name_ranks(named, 1000, text), "ranks 3 and 7");
    named[8] = true;
    CO_EXPECT_STR(coi_name_ranks(named, 1000, text), "ranks 3, 7 and 8");
    memset(named, 1, sizeof(named));
    CO_EXPECT_STR(coi_name_ranks(named, 1000, text), "ranks 0, 1, 2, 3 and 996 more");
}

CO_TEST_BARE(an_error_says_who_failed_where, "")
{
    coi_handshake handshake = word(COI_HANDSHAKE_FAILED, 1, 0);
    co_error_info err;

    coi_error_reset(&err);
    snprintf(handshake.site, sizeof(handshake.site), "step.c:41");
    snprintf(handshake.text, sizeof(handshake.text), "no such key");
    handshake.replica = 5;
    CO_EXPECT_CODE(coi_handshake_error(&handshake, 2, &err), CO_VALUE_ERROR);
    CO_EXPECT_STR(err.message, "replica 5 of rank 2 failed at step.c:41: no such key");
    CO_EXPECT_INT(err.replica, 5);
}

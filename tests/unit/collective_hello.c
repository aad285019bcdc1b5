/* SPDX-License-Identifier: Apache-2.0 */
/* Words of peers: cleaned, kept, and read by a rank that is at a given epoch. */
#include "collective/hello.h"
#include "test.h"

static coi_hello
word(coi_hello_kind kind, uint64_t epoch, uint64_t sequence)
{
    return (coi_hello){ .kind = (uint32_t)kind,
                        .epoch = epoch,
                        .sequence = sequence,
                        .code = CO_VALUE,
                        .replica = -1 };
}

static void
put(coi_inbox *inbox, coi_hello_kind kind, uint64_t epoch, uint64_t sequence)
{
    coi_hello hello = word(kind, epoch, sequence);

    coi_inbox_put(inbox, &hello);
}

CO_TEST_BARE(texts_of_a_peer_are_terminated_and_harmless, "")
{
    coi_hello hello = word(COI_HELLO_FAILED, 1, 0);

    memset(hello.text, 'x', sizeof(hello.text));
    memcpy(hello.site, "a\nb\033[2J\377", sizeof("a\nb\033[2J\377"));
    hello.replica = -77;
    coi_hello_clean(&hello, 3);
    CO_EXPECT_INT(hello.kind, COI_HELLO_FAILED);
    CO_EXPECT_LESS(strlen(hello.text), sizeof(hello.text));
    CO_EXPECT_NULL(strpbrk(hello.site, "\n\033\377"));
    CO_EXPECT_INT(hello.replica, -1);
}

CO_TEST_BARE(a_word_of_unknown_kind_is_a_failure_of_its_sender, "")
{
    const uint32_t kinds[] = { COI_HELLO_NONE, COI_HELLO_CLOSED + 1, UINT32_MAX };

    for (size_t i = 0; i < 3; ++i) {
        coi_hello hello = word(COI_HELLO_COLLECTIVE, 1, 0);

        hello.kind = kinds[i];
        coi_hello_clean(&hello, 3);
        CO_EXPECT_INT(hello.kind, COI_HELLO_FAILED);
        CO_EXPECT_CODE((co_code)hello.code, CO_INTERNAL);
        CO_EXPECT_CONTAINS(hello.text, "rank 3");
    }
}

CO_TEST_BARE(a_failure_without_a_code_is_still_one, "")
{
    const int32_t codes[] = { CO_OK, 999, -5 };

    for (size_t i = 0; i < 3; ++i) {
        coi_hello hello = word(COI_HELLO_FAILED, 1, 0);

        hello.code = codes[i];
        coi_hello_clean(&hello, 0);
        CO_EXPECT_CODE((co_code)hello.code, CO_UNKNOWN);
    }
}

CO_TEST_BARE(an_inbox_is_read_from_the_epoch_of_the_reader, "")
{
    coi_inbox inbox = { 0 };
    coi_hello got;

    CO_EXPECT_FALSE(coi_inbox_take(&inbox, 1, 1, &got));
    put(&inbox, COI_HELLO_FAILED, 1, 0);
    put(&inbox, COI_HELLO_RUN_END, 1, 0);
    CO_EXPECT_FALSE(coi_inbox_take(&inbox, 2, 1, &got)); /* all of it is old */
    put(&inbox, COI_HELLO_COLLECTIVE, 2, 1);
    put(&inbox, COI_HELLO_COLLECTIVE, 2, 2);
    put(&inbox, COI_HELLO_RUN_END, 2, 0);
    put(&inbox, COI_HELLO_COLLECTIVE, 3, 0);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.sequence == 1);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.sequence == 2);
    /* What says that the peer is elsewhere is said again and again. */
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.kind == COI_HELLO_RUN_END);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 2, 1, &got) && got.kind == COI_HELLO_RUN_END);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 3, 1, &got) && got.kind == COI_HELLO_COLLECTIVE &&
                   got.epoch == 3);
    CO_EXPECT_FALSE(coi_inbox_take(&inbox, 3, 1, &got));
}

CO_TEST_BARE(a_failure_of_this_epoch_comes_first, "")
{
    coi_inbox inbox = { 0 };
    coi_hello slot = { .kind = COI_HELLO_NONE }, got;

    put(&inbox, COI_HELLO_COLLECTIVE, 4, 1);
    coi_inbox_update(&inbox, 4, 1, &slot);
    CO_EXPECT_INT(slot.kind, COI_HELLO_COLLECTIVE);
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 4, 1));
    put(&inbox, COI_HELLO_COLLECTIVE, 4, 2);
    put(&inbox, COI_HELLO_FAILED, 4, 0);
    coi_inbox_update(&inbox, 4, 1, &slot); /* while the others are waited for */
    CO_EXPECT_INT(slot.kind, COI_HELLO_FAILED);
    CO_EXPECT_NOT_NULL(coi_inbox_failure(&inbox, 4, 1));
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 4, 1, &got) && got.kind == COI_HELLO_FAILED);
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 5, 1));
}

/* It has sent all that this collective needs, and would break nothing but for those who stopped
 * taking it. */
CO_TEST_BARE(a_failure_after_a_collective_is_no_failure_of_it, "RC-AR-4")
{
    coi_inbox inbox = { 0 };
    coi_hello late = word(COI_HELLO_FAILED, 4, 2), slot = { .kind = COI_HELLO_NONE };

    late.number = 3; /* it took part in collectives 1 and 2 */
    put(&inbox, COI_HELLO_COLLECTIVE, 4, 2);
    coi_inbox_put(&inbox, &late);
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 4, 2));
    coi_inbox_update(&inbox, 4, 2, &slot);
    CO_EXPECT_INT(slot.kind, COI_HELLO_COLLECTIVE);
    coi_inbox_update(&inbox, 4, 2, &slot);
    CO_EXPECT_INT(slot.kind, COI_HELLO_COLLECTIVE);
    CO_EXPECT_NOT_NULL(coi_inbox_failure(&inbox, 4, 3));
    slot.kind = COI_HELLO_NONE;
    coi_inbox_update(&inbox, 4, 3, &slot);
    CO_EXPECT_INT(slot.kind, COI_HELLO_FAILED);
}

/* Ranks can fail step after step without one that is slow; it still hears all that concerns it, in
 * order. */
CO_TEST_BARE(a_peer_that_fails_again_and_again_is_heard_from_the_beginning, "S-RUN-8")
{
    enum { MANY = 50 };
    coi_inbox inbox = { 0 };
    coi_hello got;

    put(&inbox, COI_HELLO_COLLECTIVE, 1, 1);
    for (uint64_t epoch = 2; epoch < MANY; ++epoch) {
        coi_hello failed = word(COI_HELLO_FAILED, epoch, 1);

        failed.number = 1;
        put(&inbox, COI_HELLO_COLLECTIVE, epoch, 1);
        coi_inbox_put(&inbox, &failed);
    }
    put(&inbox, COI_HELLO_COLLECTIVE, MANY, 1);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 1, 1, &got) && got.kind == COI_HELLO_COLLECTIVE &&
                   got.epoch == 1);
    for (uint64_t epoch = 2; epoch < COI_INBOX_DEPTH; ++epoch) {
        CO_EXPECT_TRUE(coi_inbox_take(&inbox, epoch, 1, &got) && got.kind == COI_HELLO_FAILED);
        CO_EXPECT_INT(got.epoch, epoch);
    }
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, MANY, 1, &got) && got.kind == COI_HELLO_COLLECTIVE &&
                   got.epoch == MANY);
}

CO_TEST_BARE(a_peer_that_left_did_what_it_said_before, "")
{
    coi_inbox     inbox = { 0 };
    coi_hello     got, bye;
    coi_group     group = { .size = 2 };
    co_error_info err = { .code = CO_DATA_LOSS };

    put(&inbox, COI_HELLO_COLLECTIVE, 4, 1);
    coi_hello_closed(&bye, &group);
    coi_inbox_put(&inbox, &bye);
    CO_EXPECT_TRUE(coi_inbox_is_closed(&inbox));
    CO_EXPECT_NULL(coi_inbox_failure(&inbox, 4, 1));
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 4, 1, &got) && got.kind == COI_HELLO_COLLECTIVE);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 4, 1, &got) && got.kind == COI_HELLO_FAILED);
    CO_EXPECT_CODE((co_code)got.code, CO_UNAVAILABLE);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 400, 1, &got) && got.kind == COI_HELLO_FAILED);

    inbox.count = 0;
    snprintf(err.message, sizeof(err.message), "the cable was cut");
    coi_group_break(&group, CO_DATA_LOSS, &err);
    coi_group_break(&group, CO_VALUE, NULL); /* the first cause stays */
    coi_hello_closed(&bye, &group);          /* out of a broken group: its data will not come */
    coi_inbox_put(&inbox, &bye);
    CO_EXPECT_NOT_NULL(coi_inbox_failure(&inbox, 4, 1));
    CO_EXPECT_CODE((co_code)bye.code, CO_DATA_LOSS);
    CO_EXPECT_STR(bye.text, "it left the broken group: the cable was cut");
}

CO_TEST_BARE(an_inbox_is_bounded_and_keeps_the_latest, "")
{
    coi_inbox inbox = { 0 };
    coi_hello got;

    for (uint64_t e = 1; e <= 1000; ++e)
        put(&inbox, COI_HELLO_RUN_END, e, 0);
    CO_EXPECT_INT(inbox.count, 1);
    CO_EXPECT_TRUE(coi_inbox_take(&inbox, 500, 1, &got) && got.epoch == 1000);
    for (uint64_t e = 1001; e <= 1100; ++e)
        put(&inbox, COI_HELLO_COLLECTIVE, e, 0);
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
    coi_hello     hello = word(COI_HELLO_FAILED, 1, 0);
    co_error_info err;

    coi_error_reset(&err);
    snprintf(hello.site, sizeof(hello.site), "step.c:41");
    snprintf(hello.text, sizeof(hello.text), "no such key");
    hello.replica = 5;
    CO_EXPECT_CODE(coi_hello_error(&hello, 2, &err), CO_VALUE);
    CO_EXPECT_STR(err.message, "replica 5 of rank 2 failed at step.c:41: no such key");
    CO_EXPECT_INT(err.replica, 5);
}

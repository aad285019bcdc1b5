/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is told to stop cancels its iterator, wherever that is, and then saves it: nothing
 * is lost by that. A function of each pipeline cancels the iterator that it works for, in every of
 * its calls once; what was given before, and what a restored iterator gives, is the whole.
 */
#include "data_support.h"

#include <stdatomic.h>

enum { MOST = 64 };

/* Prefetching threads call the function too. */
static struct {
    co_context            *side;
    _Atomic(co_iterator *) iterator;
    atomic_int             calls_left; /* the call that makes it 0 cancels */
} stop;

static co_value *
watched(co_context *ctx, co_value *x, void *user)
{
    co_iterator *iterator = atomic_load(&stop.iterator);

    (void)user;
    if (iterator != NULL && atomic_fetch_sub(&stop.calls_left, 1) == 1)
        co_iterator_cancel(stop.side, iterator);
    return co_identity(ctx, x);
}

/* Numbers below n, with the function. */
static co_dataset *
numbers(co_context *ctx, int64_t n)
{
    return co_dataset_map(ctx, co_dataset_range(ctx, 0, n, 1), watched, NULL, NULL);
}

static co_value *
add_up(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    (void)user;
    return co_tuple(ctx, (co_value *[]){ sum, sum }, 2);
}

static co_dataset *
below(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return numbers(ctx, co_item_int(ctx, x) % 4);
}

static co_dataset *
of_window(co_context *ctx, co_value *window, void *user)
{
    (void)user;
    return co_value_dataset(ctx, window);
}

enum {
    BATCHES,
    LAST_DROPPED,
    PADDED,
    SKIPPED,
    SHARES,
    FIRST_SHARE,
    PAIRS,
    TRIPLES,
    NUMBERED,
    WINDOWS,
    SHUFFLED,
    KEPT,
    ROUNDS,
    EVEN,
    SUMS,
    ONCE,
    ROWS,
    INNER,
    IN_TURN,
    AHEAD,
    IN_PARALLEL,
    CONCATENATED,
    NESTED,
    REBATCHED,
    DISTRIBUTED,
    NUM_PIPELINES
};

/* Pipelines that hold datasets, threads, or other pipelines. */
static co_dataset *
larger_pipeline(co_context *ctx, int which)
{
    co_dataset           *input = numbers(ctx, 11), *again = numbers(ctx, 7);
    co_interleave_options three = CO_INTERLEAVE_OPTIONS_INIT;
    co_strategy          *strategy;

    three.cycle_length = 3;
    switch (which) {
    case ROWS: return co_dataset_unbatch(ctx, co_dataset_batch(ctx, input, 4, false));
    case INNER: return co_dataset_flat_map(ctx, input, below, NULL, NULL);
    case IN_TURN: return co_dataset_interleave(ctx, input, below, NULL, NULL, &three);
    case AHEAD: return co_dataset_batch(ctx, co_dataset_prefetch(ctx, input, 2), 3, false);
    case IN_PARALLEL:
        return co_dataset_batch(ctx, co_dataset_parallel_map(ctx, again, watched, NULL, NULL, NULL),
                                3, false);
    case CONCATENATED:
        return co_dataset_batch(ctx, co_dataset_concatenate(ctx, again, input), 4, false);
    case NESTED:
        input = co_dataset_batch(ctx, co_dataset_skip(ctx, input, 2), 2, false);
        input = co_dataset_repeat(ctx, co_dataset_take(ctx, input, 3), 2);
        return co_dataset_batch(ctx, co_dataset_enumerate(ctx, input, 0), 2, true);
    case REBATCHED:
        return co_dataset_rebatch(ctx, co_dataset_batch(ctx, input, 3, false), (int64_t[]){ 4 }, 1,
                                  false);
    default:
        strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
        return co_distribute_dataset(ctx, strategy, co_dataset_batch(ctx, input, 2, false), NULL);
    }
}

static co_dataset *
pipeline(co_context *ctx, int which)
{
    co_dataset *input = numbers(ctx, 11), *again = numbers(ctx, 7);
    co_dataset *all[] = { input, again, co_dataset_range(ctx, 0, 9, 1), again };

    switch (which) {
    case BATCHES: return co_dataset_batch(ctx, input, 4, false);
    case LAST_DROPPED: return co_dataset_batch(ctx, input, 4, true);
    case PADDED: return co_dataset_padded_batch(ctx, input, 4, NULL);
    case SKIPPED: return co_dataset_skip(ctx, input, 3);
    case SHARES: return co_dataset_shard(ctx, input, 3, 1);
    case FIRST_SHARE: return co_dataset_batch(ctx, co_dataset_shard(ctx, input, 4, 0), 2, false);
    case PAIRS: return co_dataset_zip(ctx, all, 2);
    case TRIPLES: return co_dataset_zip(ctx, all, 4);
    case NUMBERED: return co_dataset_enumerate(ctx, input, 5);
    case WINDOWS:
        return co_dataset_flat_map(
            ctx,
            co_dataset_window(ctx, input, 2,
                              &(co_window_options){ sizeof(co_window_options), 4, 1, false }),
            of_window, NULL, co_spec(ctx, CO_INT64, NULL, 0));
    case SHUFFLED: return co_dataset_shuffle(ctx, input, 4, 1, true);
    case KEPT:
        input = co_dataset_cache(ctx, co_dataset_shuffle(ctx, again, 4, 1, true));
        return co_dataset_repeat(ctx, co_dataset_batch(ctx, input, 2, false), 2);
    case ROUNDS:
        again = co_dataset_take(ctx, co_dataset_shuffle(ctx, again, 7, 1, true), 4);
        return co_dataset_batch(ctx, co_dataset_repeat(ctx, again, 3), 3, false);
    case EVEN: return co_dataset_filter(ctx, input, data_even, NULL);
    case SUMS: return co_dataset_scan(ctx, input, co_scalar_int64(ctx, 0), add_up, NULL, NULL);
    case ONCE: return co_dataset_unique(ctx, co_dataset_repeat(ctx, input, 2));
    default: return larger_pipeline(ctx, which);
    }
}

/* Whether a stage of it drops what it has gathered: then it is not saved. */
static bool
may_refuse(int which)
{
    return which == REBATCHED;
}

/* The elements up to the cancellation in call number `calls`, and those behind the position that is
 * saved then. False if there were not so many calls; *refused if there is no position. */
static bool
stop_and_go_on(co_context *ctx, int which, int calls, char *text, bool *refused)
{
    co_iterator *iterator = co_iterate(ctx, pipeline(ctx, which));
    co_value    *position;
    char         rest[DATA_TEXT];
    bool         cancelled;

    atomic_store(&stop.calls_left, calls);
    atomic_store(&stop.iterator, iterator);
    data_rest(ctx, iterator, MOST, text);
    cancelled = co_error(ctx)->code == CO_CANCELLED;
    co_clear(ctx);
    position = co_iterator_save(ctx, iterator);
    atomic_store(&stop.iterator, NULL);
    *refused = position == NULL;
    if (!cancelled || position == NULL)
        return cancelled;
    data_rest(ctx, co_iterator_restore(ctx, pipeline(ctx, which), position), MOST, rest);
    CO_EXPECT_TRUE(co_ok(ctx));
    snprintf(text + strlen(text), DATA_TEXT - strlen(text), "%s%s",
             text[0] != '\0' && rest[0] != '\0' ? " " : "", rest);
    return true;
}

CO_TEST_WITH(what_is_cancelled_and_saved_has_lost_nothing, "", "cpus=2")
{
    char whole[DATA_TEXT], text[DATA_TEXT];
    bool refused;

    stop.side = co_open_beside(ctx);
    for (int which = 0; which < NUM_PIPELINES; ++which) {
        int  calls = 0, num_refused = 0;
        bool cancelled = true;

        CO_BLOCK(ctx) /* its threads end with it */
            data_elements(ctx, pipeline(ctx, which), MOST, whole);
        while (cancelled)
            CO_BLOCK(ctx) {
                cancelled = stop_and_go_on(ctx, which, ++calls, text, &refused);
                num_refused += refused;
                if (refused && may_refuse(which))
                    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "save before it is cancelled");
                else if (strcmp(text, whole) != 0)
                    test_fail(TEST_AT, "pipeline %d, cancelled in call %d: %s, expected %s", which,
                              calls, text, whole);
            }
        CO_EXPECT_MORE(calls, 3);
        CO_EXPECT_TRUE(which != REBATCHED || num_refused > 0);
        CO_REQUIRE(co_ok(ctx));
    }
    co_close(stop.side);
}

static co_value *
all_but_two(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    if (co_item_int(ctx, x) != 2)
        return co_identity(ctx, x);
    co_fail(ctx, CO_INVALID_ARGUMENT, "there is no 2");
    return NULL;
}

static co_dataset *
cached(co_context *ctx)
{
    co_dataset *some = co_dataset_map(ctx, numbers(ctx, 8), all_but_two, NULL, NULL);

    return co_dataset_cache(ctx, co_dataset_batch(ctx, some, 2, false));
}

/* Else the next reader would never learn of it. */
CO_TEST(a_cache_that_lacks_an_element_is_not_whole_after_a_cancellation, "")
{
    co_iterator *iterator = co_iterate(ctx, cached(ctx));
    co_dataset  *again = cached(ctx);
    co_value    *position;
    char         text[DATA_TEXT];

    stop.side = co_open_beside(ctx);
    atomic_store(&stop.calls_left, 6);
    atomic_store(&stop.iterator, iterator);
    data_rest(ctx, iterator, MOST, text);
    CO_EXPECT_STR(text, "[0,1]");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "there is no 2");
    data_rest(ctx, iterator, MOST, text);
    CO_EXPECT_STR(text, "[3,4]");
    CO_EXPECT_ERROR(ctx, CO_CANCELLED, NULL);
    position = co_iterator_save(ctx, iterator);
    atomic_store(&stop.iterator, NULL);
    data_rest(ctx, co_iterator_restore(ctx, again, position), MOST, text);
    CO_EXPECT_STR(text, "[5,6] [7]");
    CO_EXPECT_TRUE(co_ok(ctx));
    data_elements(ctx, again, MOST, text);
    CO_EXPECT_STR(text, "[0,1]");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "there is no 2");
    co_close(stop.side);
}

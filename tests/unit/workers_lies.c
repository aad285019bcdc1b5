/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of two ranks, whose peer says and sends what the test wants: words that do not fit, data that
 * does not come, and want of memory anywhere between the words and the data. The peer is real while
 * the strategy is made and closed.
 */
#include "collective/local/ranks.h"
#include "rank_support.h"
#include "scarce.h"
#include "strategy/rendezvous_kind.h"
#include "strategy/strategy.h"

#include <stdatomic.h>

/* --- the peer --- */

typedef enum lie {
    TRUTH,
    LATER_RUN,
    LATER_RENDEZVOUS,
    OTHER_CALL,
    UNKNOWN_CALL,
    NO_PLACE, /* and other arguments */
    OTHER_STRUCTURE,
    QUIET_FAILURE,
    END_OF_RUN,
    NO_DATA
} lie;

static lie said; /* by rank 1 */

static co_code
lying_exchange(coi_group *group, const coi_handshake *mine, coi_handshake *all, int timeout_ms,
               co_error_info *err)
{
    coi_handshake *other = &all[1];

    (void)group;
    (void)timeout_ms;
    (void)err;
    all[0] = all[1] = *mine;
    other->epoch += said == LATER_RUN;
    other->sequence += said == LATER_RENDEZVOUS;
    other->number -= said == OTHER_STRUCTURE;
    other->signature ^= said == NO_PLACE || said == OTHER_STRUCTURE;
    if (said == OTHER_CALL || said == UNKNOWN_CALL)
        other->what = said == OTHER_CALL ? COI_RENDEZVOUS_INPUT : 99;
    if (said == NO_PLACE || said == QUIET_FAILURE)
        other->site[0] = other->text[0] = '\0';
    if (said == QUIET_FAILURE) {
        other->kind = COI_HANDSHAKE_FAILED;
        other->code = CO_DATA_LOSS;
    }
    if (said == END_OF_RUN)
        other->kind = COI_HANDSHAKE_RUN_END;
    return CO_OK;
}

static co_code
lying_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
               const coi_transfer *receives, size_t num_receives, int timeout_ms,
               co_error_info *err)
{
    (void)sends;
    (void)num_sends;
    (void)timeout_ms;
    for (size_t i = 0; i < num_receives; ++i)
        if (receives[i].nbytes > 0)
            memset(receives[i].data, 0, receives[i].nbytes);
    if (said != NO_DATA)
        return CO_OK;
    group->broken = true;
    group->holding =
        !TEST_SANITIZED; /* what is held is lost, which a sanitizer would call a leak */
    return coi_error(err, CO_UNAVAILABLE, "rank 1 is gone");
}

static void
say_nothing(coi_group *group, const coi_handshake *handshake)
{
    (void)group;
    (void)handshake;
}

static const coi_transport *real;
static coi_transport        lying;

static void
begin_lies(co_strategy *strategy)
{
    real = strategy->group->transport;
    lying = *real;
    lying.exchange = lying_exchange;
    lying.transfer = lying_transfer;
    lying.notify = say_nothing;
    strategy->group->transport = &lying;
}

static void
end_lies(co_strategy *strategy)
{
    strategy->group->transport = real;
    strategy->group->broken = strategy->group->holding = false;
}

/* The rank 1 of the making and the closing. */
typedef struct peer {
    coi_thread_rank rank_slot;
    int             num_replicas;
    atomic_bool     done;
} peer;

static co_strategy *
join_world(co_context *ctx, const coi_thread_rank *rank_slot, int num_replicas)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.transport = "threads";
    options.communicator = rank_slot;
    options.num_replicas = num_replicas;
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

static void *
be_peer(void *arg)
{
    peer       *p = arg;
    co_context *ctx = co_open("cpus=2");

    CO_EXPECT_NOT_NULL(join_world(ctx, &p->rank_slot, p->num_replicas));
    while (!atomic_load(&p->done))
        test_rest_ms(1);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

static void
with_peer(int num_replicas, void (*body)(co_context *ctx, co_strategy *s, test_hooks *hooks))
{
    coi_memory        memory;
    coi_thread_world *world;
    co_error_info     err;
    peer              p = { .num_replicas = num_replicas };
    pthread_t         thread;
    test_hooks        hooks;
    co_options        options = CO_OPTIONS_INIT;
    co_context       *ctx;
    co_strategy      *s;
    coi_thread_rank   rank_slot;

    coi_memory_init(&memory, NULL);
    coi_error_reset(&err);
    CO_REQUIRE(coi_thread_world_create(&memory, 2, &world, &err) == CO_OK);
    p.rank_slot = (coi_thread_rank){ world, 1 };
    rank_slot = (coi_thread_rank){ world, 0 };
    CO_REQUIRE(pthread_create(&thread, NULL, be_peer, &p) == 0);
    test_hooks_init(&hooks, 0);
    options.settings = "cpus=2, log=off";
    options.allocator = &hooks.allocator;
    ctx = co_open_with(&options);
    s = join_world(ctx, &rank_slot, num_replicas);
    CO_REQUIRE(s != NULL);
    begin_lies(s);
    body(ctx, s, &hooks);
    end_lies(s);
    atomic_store(&p.done, true);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    pthread_join(thread, NULL);
    coi_thread_world_destroy(world);
    CO_EXPECT_INT(hooks.blocks, 0);
}

/* --- words --- */

static co_value *
sum_pair(co_context *ctx, co_value *args, void *user)
{
    co_value *pair[2] = { co_scalar_float(ctx, 1), co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)) };

    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, pair, 2));
}

static void
hear_lies(co_context *ctx, co_strategy *s, test_hooks *hooks)
{
    static const struct {
        lie         how;
        co_code     code;
        const char *part;
    } cases[] = {
        { LATER_RUN, CO_RUNTIME_ERROR, "float32 [3], rendezvous 1 of run 3, at " },
        { LATER_RENDEZVOUS, CO_RUNTIME_ERROR, "rendezvous 2 of run" },
        { OTHER_CALL, CO_RUNTIME_ERROR, "and rank 1 is in input of" },
        { UNKNOWN_CALL, CO_RUNTIME_ERROR, "and rank 1 is in unknown call of" },
        { NO_PLACE, CO_INVALID_ARGUMENT, "and rank 1 brings all_reduce, rendezvous 1 of run" },
        { OTHER_STRUCTURE, CO_ASSERTION_ERROR, "and rank 1 brings all_reduce of" },
        { QUIET_FAILURE, CO_DATA_LOSS, "rank 1 failed: " },
        { END_OF_RUN, CO_RUNTIME_ERROR, "rank 1 has ended this run without it" },
    };

    (void)hooks;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        said = cases[i].how;
        CO_EXPECT_NULL(co_run(ctx, s, sum_pair, co_no_args(ctx), NULL));
        CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].part);
        said = TRUTH;
        CO_EXPECT_NOT_NULL(co_run(ctx, s, sum_pair, co_no_args(ctx), NULL));
        CO_EXPECT_OK(ctx);
    }
    /* The same outside a run, from a call without a place in the sources. */
    said = NO_PLACE;
    co_site(ctx, NULL, 0);
    CO_EXPECT_NULL((co_reduce)(ctx, s, CO_REDUCE_SUM, (co_scalar_float)(ctx, 1), NULL, 0));
    CO_EXPECT_NULL(strstr(co_error(ctx)->message, ", at "));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "rank 0 brings reduce of float32 [], rendezvous 1 of");
}

CO_TEST_BARE(what_a_peer_says_is_compared_word_for_word, "MW-14 RC-AR-4 GEN-ERR-3")
{
    with_peer(2, hear_lies);
    with_peer(4, hear_lies);
}

/* --- data --- */

static void
miss_data(co_context *ctx, co_strategy *s, test_hooks *hooks)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));

    (void)hooks;
    for (int i = 0; i < 4; ++i) {
        said = NO_DATA;
        switch (i) {
        case 0: CO_EXPECT_NULL(co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0)); break;
        case 1: CO_EXPECT_NULL(co_gather_replicas(ctx, s, x, 0)); break;
        case 2: CO_EXPECT_NULL(co_run(ctx, s, sum_pair, co_no_args(ctx), NULL)); break;
        default:
            CO_SCOPE(ctx, s)
                CO_EXPECT_NULL(co_variable(ctx, x, NULL));
            break;
        }
        CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "rank 1 is gone");
        s->group->broken = s->group->holding = false;
        said = TRUTH;
        CO_EXPECT_NOT_NULL(co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0));
    }
}

CO_TEST_BARE(data_that_does_not_come_is_an_error_of_the_call, "MW-14 GEN-ERR-1")
{
    with_peer(2, miss_data);
}

/* --- memory --- */

static bool
speak(co_context *ctx, co_strategy *s)
{
    static const int64_t index[] = { 1 };
    co_value            *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)), *v = NULL, *rows, *slices;

    CO_SCOPE(ctx, s)
        v = co_variable(ctx, x, NULL);
    rows = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 2));
    slices = co_slices(ctx, rows, co_tensor(ctx, CO_INT64, CO_SHAPE(1), index), NULL);
    return v != NULL && co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0) != NULL &&
           co_reduce(ctx, s, CO_REDUCE_MEAN, x, CO_AXES(0)) != NULL &&
           co_reduce(ctx, s, CO_REDUCE_SUM, slices, NULL, 0) != NULL &&
           co_gather_replicas(ctx, s, x, 0) != NULL &&
           co_run(ctx, s, sum_pair, co_no_args(ctx), NULL) != NULL;
}

static void
speak_in_little_memory(co_context *ctx, co_strategy *s, test_hooks *hooks)
{
    int done = 0;

    CO_BLOCK(ctx)
        CO_EXPECT_TRUE(speak(ctx, s));
    for (size_t each = 0; each < 24; ++each)
        CO_BLOCK(ctx) {
            scarce kept;
            bool   ok;

            scarce_begin(ctx, hooks, each, &kept);
            ok = speak(ctx, s);
            scarce_end(ctx, hooks, &kept);
            CO_EXPECT_CODE(co_error(ctx)->code, ok ? CO_OK : CO_RESOURCE_EXHAUSTED);
            co_clear(ctx);
            s->group->broken = s->group->holding = false; /* as a new one would be */
            done += ok;
        }
    CO_EXPECT_MORE(24, done);
    CO_BLOCK(ctx)
        CO_EXPECT_TRUE(speak(ctx, s));
}

CO_TEST_BARE(each_small_block_of_a_collective_may_be_the_last, "GEN-ERR-1")
{
    said = TRUTH;
    with_peer(2, speak_in_little_memory);
}

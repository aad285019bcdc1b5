/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder while others write: what is shown was true at one moment, and what has ended
 * does not wait. */
#include "engine_support.h"

#include "strategy/flight_recorder.h"
#include "strategy/rendezvous_kind.h"
#include "strategy/strategy.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* As replicas do it, and nothing else: the writer is as fast as it can be. */
static void *
write_entries(void *arg)
{
    co_strategy      *strategy = arg;
    const coi_summary what = { .num_leaves = 1, .kind = CO_KIND_INT };
    coi_flight        flight = {
               .kind = COI_RENDEZVOUS_MERGE, .expected = 2, .text = "", .summary = &what
    };

    for (int i = 0; i < 100000; ++i) {
        uint64_t number = coi_flight_begin(strategy->recorder, &flight);

        if (i % 2 == 0)
            coi_flight_met(strategy->recorder, number);
        coi_flight_end(strategy->recorder, number, CO_OK);
    }
    return NULL;
}

typedef struct watching {
    long     num_seen;
    int      half; /* records that cannot have been */
    uint64_t last;
} watching;

static void
watch_one(const co_flight_record *r, void *user)
{
    watching *w = user;

    ++w->num_seen;
    /* They come in order; who ended well had all, and who has all is none that lacks somebody. */
    if (r->number <= w->last || r->arrived < 0 || r->arrived > r->expected || r->expected != 2 ||
        (!r->is_waiting && r->arrived != r->expected) ||
        (r->arrived == r->expected) != (r->missing[0] == '\0') || r->outcome != CO_OK ||
        r->duration_us < 0)
        ++w->half;
    w->last = r->number;
}

CO_TEST_WITH(who_looks_never_sees_half_of_an_entry, "", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    watching     w = { .half = 0 };
    pthread_t    thread;

    CO_REQUIRE(pthread_create(&thread, NULL, write_entries, s) == 0);
    while (w.last < 100000) {
        w.last = 0;
        co_flight_visit(ctx, s, watch_one, &w);
    }
    pthread_join(thread, NULL);
    CO_EXPECT_LESS(0, w.num_seen);
    CO_EXPECT_INT(w.half, 0);
    CO_EXPECT_OK(ctx);
}

/* Replica 1 begins an entry, which takes as long as its file has a long name, while replica 0
 * fails. */
static co_value *
meet_or_fail(co_context *ctx, co_value *args, void *user)
{
    static char long_name[16 << 20];
    atomic_int *begun = user;

    (void)args;
    if (co_replica_id(ctx) == 1) {
        co_value *one = co_scalar_float(ctx, 1);

        memset(long_name, 'x', sizeof(long_name) - 1);
        co_site(ctx, long_name, 1);
        atomic_store(begun, 1);
        (co_all_reduce)(ctx, CO_REDUCE_SUM, one);
        CO_EXPECT_CODE(co_error(ctx)->code, CO_DATA_LOSS);
        co_clear(ctx); /* a step that takes no notice */
        return NULL;
    }
    while (atomic_load(begun) == 0)
        sched_yield();
    nanosleep(&(struct timespec){ 0, 100000 }, NULL); /* now it counts letters */
    return co_fail(ctx, CO_DATA_LOSS, "the first replica has lost its data"), NULL;
}

static void
count_waiting(const co_flight_record *r, void *user)
{
    *(int *)user += r->is_waiting;
}

CO_TEST_WITH(nothing_waits_in_a_step_that_is_over, "S-RUN-8", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    int          waiting = 0;

    for (int i = 0; i < 20; ++i) {
        atomic_int begun = 0;

        co_run(ctx, s, meet_or_fail, co_no_args(ctx), &begun);
        CO_EXPECT_CODE(co_error(ctx)->code, CO_DATA_LOSS);
        co_clear(ctx);
    }
    co_flight_visit(ctx, s, count_waiting, &waiting);
    CO_EXPECT_INT(waiting, 0);
}

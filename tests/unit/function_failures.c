/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured steps that go wrong while others wait: a replica that is stuck, a rank that fails or
 * does not come, a plan that takes longer than the deadline. Each body runs as it is, as a captured
 * step, and inside a captured function that runs it: errors, what is left of variables, and what
 * can be done after it are the same. tests/ranks/survive has the ranks that are killed.
 */
#include "collective/local/ranks.h"
#include "rank_support.h"
#include "strategy/rendezvous.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Deadlines that a sound run meets on a machine that stands still for a quarter of a second now and
 * then. */
#define STUCK_MS 300
#define BUSY_MS  500

typedef enum way { EAGER, STEP, LOOP, NUM_WAYS } way;

/* What a body works on, and the flags by which its input is stuck. */
typedef struct world {
    way          how;
    co_strategy *strategy;
    co_function *step, *loop;
    co_fn        body;
    co_value    *begun, *ended;
    co_iterator *input;
    int          num_kernels;
    coi_step    *in; /* of replica 1, which has threads of its own that are used again */
    atomic_bool  is_stuck, go_on;
    atomic_bool  is_waiting; /* it is stuck: what it did before is over */
    bool         comes_back; /* when the others have given it up */
} world;

static co_value *
run_body(co_context *ctx, co_value *args, void *user)
{
    world *w = user;
    bool   is_eager = w->how == EAGER;

    return co_run(ctx, w->strategy, is_eager ? w->body : co_captured, args,
                  is_eager ? user : w->step);
}

static co_value *
run_once(co_context *ctx, world *w, co_value *args)
{
    return w->how == LOOP ? co_call(ctx, w->loop, args) : run_body(ctx, args, w);
}

static void
make_world(co_context *ctx, world *w, way how, co_strategy *strategy, co_fn body)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    w->how = how;
    w->strategy = strategy;
    w->body = body;
    options.synchronization = CO_SYNC_ON_READ; /* each replica counts for itself */
    CO_SCOPE(ctx, strategy) {
        w->begun = co_variable(ctx, co_float(ctx, 0), &options);
        w->ended = co_variable(ctx, co_float(ctx, 0), &options);
    }
    w->step = how != EAGER ? co_function_of(ctx, body, w, NULL) : NULL;
    w->loop = how == LOOP ? co_function_of(ctx, run_body, w, NULL) : NULL;
    CO_EXPECT_OK(ctx);
}

static co_value *
values_of(co_context *ctx, float x, int n)
{
    return co_args(ctx, co_fill(ctx, CO_SHAPE(n), co_scalar_float(ctx, x)));
}

static double
of_replica(co_context *ctx, const world *w, co_value *variable, int i)
{
    return co_item_float(ctx, co_at(ctx, co_local_results(ctx, w->strategy, variable), (size_t)i));
}

/* --- a replica that is stuck in its input --- */

static co_value *
take_slowly(co_context *ctx, co_value *element, void *user)
{
    world *w = user;

    (void)ctx;
    if (atomic_load(&w->is_stuck))
        atomic_store(&w->is_waiting, true);
    while (atomic_load(&w->is_stuck) && !atomic_load(&w->go_on) &&
           !(w->comes_back && coi_is_broken(w->in)))
        test_rest_ms(1);
    return element;
}

/* Replica 1 needs an element of its own. */
static co_value *
input_of_one(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_tanh(ctx, co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, 0.5))), *sum;

    co_assign_add(ctx, w->begun, co_float(ctx, 1));
    if (co_replica_id(ctx) == 1) {
        w->in = ctx->mode.step;
        x = co_add(ctx, x, co_cast(ctx, co_next(ctx, w->input), CO_FLOAT32));
    }
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_exp(ctx, x));
    co_assign_add(ctx, w->ended, co_float(ctx, 1));
    return sum;
}

static void
make_input(co_context *ctx, world *w)
{
    w->input = co_iterate(ctx, co_dataset_map(ctx, co_dataset_range(ctx, 0, 100, 1), take_slowly, w,
                                              NULL));
}

static void
expect_counts(co_context *ctx, const world *w, double begun, double ended)
{
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_CLOSE(of_replica(ctx, w, w->begun, i), begun, 0);
        CO_EXPECT_CLOSE(of_replica(ctx, w, w->ended, i), ended, 0);
    }
}

static void
expect_same_error(const co_error_info *eager, const co_error_info *e)
{
    CO_EXPECT_CODE(e->code, eager->code);
    CO_EXPECT_STR(e->message, eager->message);
    CO_EXPECT_STR(e->call, eager->call);
    CO_EXPECT_INT(e->line, eager->line);
    CO_EXPECT_INT(e->replica, eager->replica);
    CO_EXPECT_INT(e->rank, eager->rank);
}

CO_TEST_WITH(a_replica_stuck_in_a_captured_step_is_named_and_may_come_back, "FN-10 S-RUN-8",
             "cpus=2,log=off")
{
    static world  worlds[NUM_WAYS];
    co_error_info first = { .code = CO_OK };

    for (way how = EAGER; how < NUM_WAYS; ++how) {
        world    *w = &worlds[how];
        co_value *args = values_of(ctx, 1, 500), *sum;

        make_world(ctx, w, how, test_mirrored(ctx, 2, STUCK_MS), input_of_one);
        make_input(ctx, w);
        for (int i = 0; i < 3; ++i)
            run_once(ctx, w, args);
        CO_EXPECT_OK(ctx);
        w->comes_back = true;
        atomic_store(&w->is_stuck, true);
        CO_EXPECT_NULL(run_once(ctx, w, args));
        atomic_store(&w->is_stuck, false);
        if (how == EAGER)
            first = *co_error(ctx);
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "replica 0 waits in all_reduce of float32");
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "replica 1 has executed nothing for 300 ms");
        CO_EXPECT_CONTAINS(co_error(ctx)->file, "function_failures.c");
        expect_same_error(&first, co_error(ctx));
        CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, NULL);
        expect_counts(ctx, w, 4, 3);
        /* It came back, so strategy and function are what they were. The element is gone. */
        sum = run_once(ctx, w, args);
        CO_EXPECT_OK(ctx);
        expect_counts(ctx, w, 5, 4);
        CO_EXPECT_CLOSE(
            co_item_float(ctx,
                          co_reduce_max(ctx, co_at(ctx, co_local_results(ctx, w->strategy, sum), 0),
                                        CO_ALL_AXES, false)),
            exp(tanh(0.5)) + exp(tanh(0.5) + 4), 1e-3);
    }
}

/* The thread that is left behind holds the runtime, so what it keeps cannot be counted: the context
 * is opened here. */
CO_TEST_BARE(a_replica_that_never_comes_back_from_a_captured_step_is_left_behind, "FN-10 S-RUN-8")
{
    static world  worlds[NUM_WAYS], again[NUM_WAYS];
    co_error_info first = { .code = CO_OK }, second = first;

    ctx = co_open("cpus=2,log=off");
    for (way how = EAGER; how < NUM_WAYS; ++how) {
        world    *w = &worlds[how], *next = &again[how];
        co_value *args = values_of(ctx, 1, 500);

        make_world(ctx, w, how, test_mirrored(ctx, 2, STUCK_MS), input_of_one);
        make_input(ctx, w);
        for (int i = 0; i < 3; ++i)
            run_once(ctx, w, args);
        atomic_store(&w->is_stuck, true);
        CO_EXPECT_NULL(run_once(ctx, w, args));
        if (how == EAGER)
            first = *co_error(ctx);
        expect_same_error(&first, co_error(ctx));
        CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, "replica 1 has executed nothing for 300 ms");
        CO_EXPECT_NULL(run_once(ctx, w, args));
        if (how == EAGER)
            second = *co_error(ctx);
        expect_same_error(&second, co_error(ctx));
        CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "deadline_ms; make a new one");
        /* The same function runs under another strategy. */
        make_world(ctx, next, how, test_mirrored(ctx, 2, -1), input_of_one);
        make_input(ctx, next);
        CO_EXPECT_NOT_NULL(run_once(ctx, next, args));
        expect_counts(ctx, next, 1, 1);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_TRUE(atomic_load(&w->is_waiting)); /* it touches nothing that is freed now */
    }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    for (way how = EAGER; how < NUM_WAYS; ++how)
        atomic_store(&worlds[how].go_on, true);
    test_rest_ms(50); /* they come back, into memory that is still theirs */
}

/* --- plans that take longer than the deadline --- */

/* Replica 1 computes for long; element-wise kernels are one chain. */
static co_value *
compute_long(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_value    *x = co_at(ctx, args, 0);

    for (int i = 0; co_replica_id(ctx) == 1 && i < w->num_kernels; ++i)
        x = co_tanh(ctx, x);
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_reduce_max(ctx, x, CO_ALL_AXES, false));
}

/* How many kernels take a replica so long, as it runs them. */
static int
kernels_in(co_context *ctx, double ms, co_value *args)
{
    world  w = { .num_kernels = 50 };
    double begin = 0;

    make_world(ctx, &w, STEP, test_mirrored(ctx, 2, -1), compute_long);
    for (int i = 0; i < 2; ++i) { /* the first captures */
        begin = test_now_ms();
        run_once(ctx, &w, args);
    }
    return (int)(50 * ms / (test_now_ms() - begin)) + 1;
}

/* Every kernel moves, also where many of them are one chain. */
CO_TEST_WITH(a_plan_may_take_longer_than_the_deadline, "FN-10", "cpus=2,log=off")
{
    co_value *args = values_of(ctx, 1, 1 << 21), *sum;
    world     w = { .num_kernels = kernels_in(ctx, 2.5 * BUSY_MS, args) };
    double    expected = 1, begin, took = 0;

    make_world(ctx, &w, STEP, test_mirrored(ctx, 2, BUSY_MS), compute_long);
    for (int i = 0; i < w.num_kernels; ++i)
        expected = tanh(expected);
    for (int i = 0; i < 2; ++i) {
        begin = test_now_ms();
        sum = run_once(ctx, &w, args);
        took = test_now_ms() - begin;
        CO_EXPECT_OK(ctx);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, w.strategy, sum), 0)),
                        1 + expected, 1e-3);
    }
    CO_EXPECT_LESS(BUSY_MS, took); /* else it shows nothing */
}

/* --- ranks --- */

static co_value *
look_up(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_at(ctx, args, 0), *rows;

    co_assign_add(ctx, w->begun, co_float(ctx, 1));
    rows = co_gather(ctx, co_exp(ctx, x), co_cast(ctx, x, CO_INT32), 0, 0);
    rows = co_all_reduce(ctx, CO_REDUCE_SUM, rows);
    co_assign_add(ctx, w->ended, co_float(ctx, 1));
    return rows;
}

typedef struct heard {
    co_error_info     first[2]; /* by rank: what the eager step said */
    pthread_barrier_t together;
} heard;

static void
expect_ranks_to_go_on(co_context *ctx, world *w, double begun, double ended)
{
    CO_EXPECT_CLOSE(of_replica(ctx, w, w->begun, 0), begun, 0);
    CO_EXPECT_CLOSE(of_replica(ctx, w, w->ended, 0), ended, 0);
    CO_EXPECT_NOT_NULL(run_once(ctx, w, values_of(ctx, 1, 4)));
    CO_EXPECT_CLOSE(of_replica(ctx, w, w->ended, 0), ended + 1, 0);
    CO_EXPECT_OK(ctx);
}

/* Rank 1 looks for a row that is not there, in the middle of a plan. */
static void
fail_in_a_plan(co_context *ctx, co_strategy *s, int rank, void *user)
{
    heard *h = user;

    for (way how = EAGER; how < NUM_WAYS; ++how) {
        world w = { .num_kernels = 0 };

        make_world(ctx, &w, how, s, look_up);
        for (int i = 0; i < 3; ++i)
            run_once(ctx, &w, values_of(ctx, (float)i, 4));
        CO_EXPECT_OK(ctx);
        CO_EXPECT_NULL(run_once(ctx, &w, values_of(ctx, rank == 1 ? 4 : 3, 4)));
        CO_EXPECT_CONTAINS(co_error(ctx)->message, rank == 0 ? "rank 1 failed at" : "is 4");
        CO_EXPECT_CONTAINS(co_error(ctx)->message,
                           rank == 0 ? "tests/unit/function_failures.c:" : "");
        if (how == EAGER)
            h->first[rank] = *co_error(ctx);
        expect_same_error(&h->first[rank], co_error(ctx));
        co_clear(ctx);
        expect_ranks_to_go_on(ctx, &w, 4, 3);
    }
}

CO_TEST_BARE(a_rank_that_fails_in_a_plan_ends_the_step_of_the_others, "FN-10 S-RUN-8 MW-14")
{
    static heard h;

    test_on_ranks(2, 2, 20000, NULL, fail_in_a_plan, &h);
}

/* Without the numbers of runs, which go on. */
static void
drop_numbers(char *text)
{
    char *run = strstr(text, " of run ");

    if (run != NULL)
        memset(run, ' ', strcspn(run, ","));
}

/* Rank 1 does not come in time. */
static void
come_late(co_context *ctx, co_strategy *s, int rank, void *user)
{
    heard *h = user;

    for (way how = EAGER; how < NUM_WAYS; ++how) {
        world         w = { .num_kernels = 0 };
        co_error_info e;

        make_world(ctx, &w, how, s, look_up);
        run_once(ctx, &w, values_of(ctx, 1, 4));
        CO_EXPECT_OK(ctx);
        if (rank == 1)
            test_rest_ms(1200);
        CO_EXPECT_NULL(run_once(ctx, &w, values_of(ctx, 1, 4)));
        e = *co_error(ctx);
        CO_EXPECT_CONTAINS(e.message, rank == 0 ? "rank 1" : "rank 0");
        CO_EXPECT_CONTAINS(e.file, "function_failures.c");
        drop_numbers(e.message);
        if (how == EAGER)
            h->first[rank] = e;
        expect_same_error(&h->first[rank], &e);
        CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, NULL);
        CO_EXPECT_CLOSE(of_replica(ctx, &w, w.begun, 0), 2, 0);
        CO_EXPECT_CLOSE(of_replica(ctx, &w, w.ended, 0), 1, 0);
        pthread_barrier_wait(&h->together);
    }
}

CO_TEST_BARE(a_rank_that_comes_late_ends_a_captured_step_as_any, "FN-10 S-RUN-8 MW-14")
{
    static heard h;

    pthread_barrier_init(&h.together, NULL, 2);
    test_on_ranks(2, 2, 500, "log=off", come_late, &h);
    pthread_barrier_destroy(&h.together);
}

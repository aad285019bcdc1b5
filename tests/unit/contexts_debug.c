/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles used after their death, which every build finds for a while and debug builds for longer,
 * and a context used by two threads at once, which debug builds find. Each is an error of the
 * context, never a crash.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#ifdef COI_DEBUG
#define TEST_DEBUG    1
#define NEEDS_DEBUG() ((void)0)
#else
#define TEST_DEBUG    0
#define NEEDS_DEBUG() CO_SKIP("not a debug build")
#endif

static co_value *
dead_value(co_context *ctx)
{
    co_value *dead = NULL;

    CO_BLOCK(ctx) {
        dead = co_ones(ctx, CO_FLOAT32, CO_SHAPE(100));
    }
    return dead;
}

static co_value *
return_dead(co_context *ctx, co_value *leaf, void *user)
{
    (void)leaf;
    (void)user;
    return dead_value(ctx);
}

static co_value *
dead_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return dead_value(ctx);
}

CO_TEST(a_value_used_after_its_block_is_reported, "")
{
    co_value *dead, *x, *pair[2];
    char      text[64];
    double    read[100];

    dead = dead_value(ctx);
    x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(100));
    pair[0] = x;
    pair[1] = dead;
    CO_EXPECT_NULL(co_add(ctx, x, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (y) of add is not a live value");
    CO_EXPECT_NULL(co_neg(ctx, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "its block has ended");
    CO_EXPECT_NULL(co_value_data(ctx, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "co_keep or co_escape");
    CO_EXPECT_INT(co_value_ndim(ctx, dead), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    CO_EXPECT_CODE(co_value_copy_data(ctx, dead, CO_FLOAT64, read, 100), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    CO_EXPECT_NULL(co_list(ctx, pair, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "item 1 of list is not a live value");
    CO_EXPECT_NULL(co_per_replica_value(ctx, pair, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "component 1 of per_replica_value is not a live value");
    CO_EXPECT_NULL(co_flatten(ctx, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    CO_EXPECT_NULL(co_map_structure(ctx, x, return_dead, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "what the function of map_structure returned");
    CO_EXPECT_NULL(co_variable(ctx, dead, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    CO_EXPECT_NULL(co_escape(ctx, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    co_keep(ctx, dead);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live handle");
    co_release(ctx, dead);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live handle");
    co_format(ctx, dead, text, sizeof(text));
    CO_EXPECT_STR(text, "<not a live value>");
    co_tape_begin(ctx);
    co_watch(ctx, dead);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    CO_EXPECT_NULL(co_gradient(ctx, x, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (sources)");
    CO_EXPECT_NULL(co_run(ctx, co_default_strategy(ctx), dead_step, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "what the step returned is not a live value");
}

CO_TEST(other_handles_used_after_their_block_are_reported, "")
{
    co_dataset   *dataset = NULL;
    co_iterator  *iterator = NULL;
    co_strategy  *strategy = NULL;
    co_optimizer *optimizer = NULL;

    CO_BLOCK(ctx) {
        dataset = co_dataset_range(ctx, 0, 5, 1);
        iterator = co_iterate(ctx, dataset);
        strategy = co_one_device_strategy(ctx, "/cpu:0");
        optimizer = co_sgd(ctx, NULL);
    }
    CO_EXPECT_NULL(co_iterate(ctx, dataset));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a live dataset");
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a live iterator");
    CO_EXPECT_NULL(co_run(ctx, strategy, dead_step, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a live strategy");
    CO_EXPECT_CODE(co_minimize(ctx, optimizer, co_scalar_float(ctx, 1)), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a live optimizer");
    CO_EXPECT_NULL(co_iterate(ctx, (co_dataset *)(void *)co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "is a value; it must be a dataset");
}

/* Memory is used again one day; until then, for 64 values that die, a stale handle is found. */
CO_TEST(dead_values_are_known_for_a_while, "")
{
    co_value *dead;

    dead = dead_value(ctx);
    for (int i = 0; i < (TEST_DEBUG ? 100 : 2); ++i)
        CO_BLOCK(ctx) {
            for (int k = 0; k < 32; ++k)
                co_int(ctx, k);
        }
    CO_EXPECT_NULL(co_neg(ctx, dead));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
}

/* --- two threads --- */

typedef struct visit {
    co_context *ctx;
    co_value   *result;
    co_code     code;
    co_code     closed;
} visit;

static void *
intrude(void *arg)
{
    visit *v = arg;

    v->result = (co_int)(v->ctx, 1);
    v->code = (co_declare_devices)(v->ctx, "GPU", 1);
    (co_block_begin)(v->ctx);
    (co_block_end)(v->ctx);
    (co_tape_begin)(v->ctx);
    v->closed = (co_close)(v->ctx);
    return NULL;
}

static co_value *
let_in(co_context *ctx, co_value *leaf, void *user)
{
    visit    *v = user;
    pthread_t thread;

    v->ctx = ctx;
    CO_REQUIRE(pthread_create(&thread, NULL, intrude, v) == 0);
    pthread_join(thread, NULL);
    return co_neg(ctx, leaf); /* the rightful thread goes on */
}

CO_TEST(a_context_used_by_two_threads_at_once_is_reported, "C-CTX-1")
{
    visit     v = { 0 };
    co_value *x, *result;

    NEEDS_DEBUG();
    x = co_scalar_float(ctx, 5);
    result = co_map_structure(ctx, x, let_in, &v);
    CO_EXPECT_NULL(v.result);
    CO_EXPECT_CODE(v.code, CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(v.closed, CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "used by another thread");
    CO_EXPECT_INT(co_num_devices(ctx), 1);
    CO_EXPECT_TRUE(result == NULL || co_item_float(ctx, result) == -5);
    co_tape_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape"); /* the intruder began none */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_neg(ctx, x)), -5, 0);
}

typedef struct hammer {
    co_context *ctx;
    co_value   *x;
    atomic_bool stop;
} hammer;

static void *
pound(void *arg)
{
    hammer *h = arg;

    while (!atomic_load(&h->stop))
        (co_value_num_elements)(h->ctx, h->x);
    return NULL;
}

/* Calls of both threads meet in any way; the process lives, and one of them finds the error sooner
 * or later. */
CO_TEST_BARE(two_threads_that_share_a_context_do_not_crash_it, "C-CTX-1")
{
    hammer    h = { NULL, NULL, false };
    pthread_t thread;

    NEEDS_DEBUG();
    h.ctx = co_open("log=off");
    h.x = co_ones(h.ctx, CO_FLOAT32, CO_SHAPE(3));
    CO_REQUIRE(pthread_create(&thread, NULL, pound, &h) == 0);
    for (int64_t i = 0; i < 1000000000 && co_ok(h.ctx); ++i)
        (co_value_num_elements)(h.ctx, h.x);
    atomic_store(&h.stop, true);
    pthread_join(thread, NULL);
    CO_EXPECT_ERROR(h.ctx, CO_RUNTIME_ERROR, "used by another thread");
    co_close(h.ctx);
}

/* Threads that take turns are fine: a context belongs to nobody between calls. */
static void *
take_turn(void *arg)
{
    co_context *ctx = arg;

    co_int(ctx, 1);
    return NULL;
}

CO_TEST(threads_may_take_turns, "C-CTX-1")
{
    for (int i = 0; i < 20; ++i) {
        pthread_t thread;

        CO_REQUIRE(pthread_create(&thread, NULL, take_turn, ctx) == 0);
        pthread_join(thread, NULL);
        co_int(ctx, 2);
    }
    CO_EXPECT_OK(ctx);
}

static co_value *
close_own(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    CO_EXPECT_CODE(co_close(ctx), CO_RUNTIME_ERROR);
    return args;
}

/* In every build. */
CO_TEST_WITH(a_step_cannot_close_its_context, "", "cpus=2")
{
    static const char *const devices[] = { "cpu:0", "cpu:1" };
    co_strategy             *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);

    CO_EXPECT_NULL(co_run(ctx, strategy, close_own, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "closed by its strategy");
}

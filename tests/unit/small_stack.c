/* SPDX-License-Identifier: Apache-2.0 */
/* The stack that docs/c-api.md promises to be enough for a thread that calls the library. */
#include "engine_support.h"

#include <pthread.h>

#define STACK_BYTES ((size_t)128 << 10)

static co_value *
combine(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *loss;

    co_tape_begin(ctx);
    y = co_matmul(ctx, x, user);
    co_all_gather(ctx, y, 0);
    loss = co_all_reduce(ctx, CO_REDUCE_MEAN, co_reduce_mean(ctx, y, CO_ALL_AXES, false));
    return co_args(ctx, loss, co_gradient(ctx, loss, user));
}

static co_value *
convolve(co_context *ctx)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(8, 14, 14, 32));
    co_value *w = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 3, 32, 64));

    co_tape_begin(ctx);
    co_watch(ctx, w);
    return co_gradient(ctx, co_conv2d(ctx, x, w, NULL), w);
}

/* What a program does, with an error and its message at the end. arg: the code of the error. */
static void *
work(void *arg)
{
    co_context  *ctx = co_open("cpus=2, devices=GPU:30");
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *variable = NULL, *x, *parts[2];
    const int    axis = 0;

    CO_SCOPE(ctx, s) {
        variable = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(64, 64)), NULL);
    }
    parts[0] = co_ones(ctx, CO_FLOAT32, CO_SHAPE(300, 64));
    parts[1] = co_ones(ctx, CO_FLOAT32, CO_SHAPE(20, 64));
    x = co_per_replica_value(ctx, parts, 2);
    co_run(ctx, s, combine, co_args(ctx, x), variable);
    co_reduce(ctx, s, CO_REDUCE_MEAN, x, &axis, 1);
    co_gather_replicas(ctx, s, x, 0);
    convolve(ctx);
    CO_EXPECT_OK(ctx);
    co_copy_to(ctx, parts[0], "/gpu:77");
    *(co_code *)arg = co_error(ctx)->code;
    co_clear(ctx);
    co_close(ctx);
    return NULL;
}

CO_TEST_BARE(the_promised_stack_is_enough, "")
{
    pthread_attr_t attr;
    pthread_t      thread;
    co_code        code = CO_OK;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
    CO_SKIP("sanitizers and debug builds need more stack");
#endif
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    CO_REQUIRE(pthread_create(&thread, &attr, work, &code) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    CO_EXPECT_CODE(code, CO_INVALID_ARGUMENT);
}

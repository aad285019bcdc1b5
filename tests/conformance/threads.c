/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads with contexts of their own, and strategies beside each other. Section 20. */
#include "suite.h"

#include <pthread.h>

typedef struct visitor {
    co_context      *ctx;
    co_strategy     *s;
    const suite_row *row;
    int              scale;
} visitor;

MERGE(sum_of_all)
{
    return co_reduce(ctx, s, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

/* (x) to three times the sum of x * (id + 1), by every kind of rendezvous. */
STEP(meet_thrice)
{
    co_value *x = co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, co_replica_id(ctx) + 1));
    co_value *sum = co_all_reduce(ctx, CO_REDUCE_SUM, x);
    co_value *rows = co_all_gather(ctx, co_reshape(ctx, x, CO_SHAPE(1)), 0);

    sum = co_add(ctx, sum, co_merge_call(ctx, sum_of_all, co_args(ctx, x), NULL));
    return co_add(ctx, sum, co_reduce_sum(ctx, rows, CO_ALL_AXES, false));
}

static void *
visit(void *arg)
{
    visitor *v = arg;
    int      n = v->row->n;

    for (int i = 0; i < 10; ++i)
        CO_BLOCK(v->ctx) {
            co_value *x = co_scalar_float(v->ctx, (float)v->scale);
            co_value *r = co_run(v->ctx, v->s, meet_thrice, co_args(v->ctx, x), NULL);

            EXPECT_LOCAL(v->ctx, v->s, r, 3 * v->scale * SUM_OF_IDS(n + 1), 0);
        }
    CO_EXPECT_OK(v->ctx);
    return NULL;
}

/*
 * Steps of three threads, full of collectives: all of them end, and none meets another's. Where
 * several processes take part, the runs of a process come in any order, and the first of one meets
 * the first of another, whosesoever they are: so there all bring the same.
 */
CONFORM(a_strategy_serves_several_threads, "THR-2 THR-1 CTX-6")
{
    visitor   visitors[3];
    pthread_t threads[3];

    for (int i = 0; i < 3; ++i) {
        visitors[i] = (visitor){ co_open_beside(ctx), s, row, row->workers > 1 ? 1 : i + 1 };
        CO_REQUIRE(pthread_create(&threads[i], NULL, visit, &visitors[i]) == 0);
    }
    for (int i = 0; i < 3; ++i) {
        pthread_join(threads[i], NULL);
        CO_EXPECT_CODE(co_close(visitors[i].ctx), CO_OK);
    }
}

STEP(sum_here)
{
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

CONFORM(strategies_of_other_sizes_work_beside, "THR-3 RC-AR-12 CTX-1")
{
    static const char *const one[] = { "/cpu:0" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy             *beside;

    options.num_replicas = 3;
    beside = co_mirrored_strategy(ctx, one, 1, &options);
    for (int i = 0; i < 5; ++i) {
        co_value *r = suite_step(ctx, beside, sum_here, NULL);

        CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, beside, CO_REDUCE_MEAN, r, NULL, 0)), 3,
                        0);
        EXPECT_LOCAL(ctx, s, suite_step(ctx, s, sum_here, NULL), row->n, 0);
    }
}

/* A variable keeps its strategy alive. */
CONFORM(variables_keep_their_strategy, "THR-4 VAR-NEW-7")
{
    co_value *v = NULL;

    co_block_begin(ctx);
    v = suite_variable(ctx, row->make(ctx, row), 4, CO_SYNC_ON_READ, CO_AGGREGATION_MEAN);
    co_keep(ctx, v);
    co_block_end(ctx);
    CO_EXPECT_CLOSE(suite_number(ctx, v), 4, 0);
    co_release(ctx, v);
}

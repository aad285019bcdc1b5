/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm where replicas have different numbers of rows, and some have none. */
#include "suite.h"

enum { CHANNELS = 2, MAX_ROWS = 200 };

/* Every third replica has no rows. */
static int
num_rows(int id)
{
    return id % 3 == 1 ? 0 : 3 + id;
}

/* The rows of replicas [first, end), one after the other. */
static co_value *
rows_of(co_context *ctx, int first, int end)
{
    float   data[MAX_ROWS * CHANNELS];
    int64_t n = 0;

    for (int id = first; id < end; ++id)
        for (int k = 0; k < num_rows(id); ++k, ++n) {
            data[CHANNELS * n] = (float)(id + 2 * k);
            data[CHANNELS * n + 1] = (float)(id * k % 5) - 1;
        }
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(n, CHANNELS), data);
}

VALUE_OF(own_rows)
{
    return rows_of(ctx, replica->replica_id_in_sync_group, replica->replica_id_in_sync_group + 1);
}

typedef struct normed {
    co_value *gamma, *beta, *mean, *variance;
    bool      is_synced;
} normed;

static co_value *
parameter(co_context *ctx, float a, float b, co_synchronization sync, co_aggregation aggregation)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.synchronization = sync;
    options.aggregation = aggregation;
    return co_variable(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(CHANNELS), (float[]){ a, b }),
                       &options);
}

/* As Keras makes them: moving averages are averaged when they are read, or, synchronised, the same
 * everywhere. */
static normed
make_normed(co_context *ctx, co_strategy *s, bool is_synced)
{
    co_synchronization sync = is_synced ? CO_SYNC_AUTO : CO_SYNC_ON_READ;
    normed             p = { .is_synced = is_synced };

    CO_SCOPE(ctx, s) {
        p.gamma = parameter(ctx, 2, 0.5f, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
        p.beta = parameter(ctx, 1, -1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
        p.mean = parameter(ctx, 4, 8, sync, CO_AGGREGATION_MEAN);
        p.variance = parameter(ctx, 1, 2, sync, CO_AGGREGATION_MEAN);
    }
    return p;
}

/* A loss in which every row has a weight of its own: the results of the norm, then the gradients of
 * x, gamma and beta. */
static co_value *
forward_and_back(co_context *ctx, co_value *x, const normed *p)
{
    co_batch_norm_options options = CO_BATCH_NORM_OPTIONS_INIT;
    co_value             *outs, *loss, *weights;

    options.momentum = 0.75;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    outs = p->is_synced
               ? co_sync_batch_norm_train(ctx, x, p->gamma, p->beta, p->mean, p->variance, &options)
               : co_batch_norm_train(ctx, x, p->gamma, p->beta, p->mean, p->variance,
                                     &(co_batch_norm_options){ sizeof(co_batch_norm_options),
                                                               CO_AXES(0), 0.75, 0.001 });
    weights = co_stop_gradient(ctx, co_add(ctx, co_square(ctx, x), co_int(ctx, 1)));
    loss = co_reduce_sum(ctx, co_mul(ctx, weights, co_square(ctx, co_at(ctx, outs, 0))),
                         CO_ALL_AXES, false);
    return co_args(ctx, outs, co_gradient(ctx, loss, co_args(ctx, x, p->gamma, p->beta)));
}

STEP(norm_step)
{
    const normed *p = user;
    co_value     *both = forward_and_back(ctx, co_at(ctx, args, 0), p);
    co_value     *outs = co_at(ctx, both, 0), *gradients = co_at(ctx, both, 1);

    co_assign(ctx, p->mean, co_at(ctx, outs, 3));
    co_assign(ctx, p->variance, co_at(ctx, outs, 4));
    return co_args(ctx, co_at(ctx, outs, 0), co_at(ctx, outs, 1), co_at(ctx, outs, 2),
                   co_at(ctx, gradients, 0),
                   co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, gradients, 1)),
                   co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, gradients, 2)));
}

static void
expect_same(co_context *ctx, co_value *got, co_value *expected)
{
    co_value *far = co_reduce_max(ctx, co_abs(ctx, co_sub(ctx, got, expected)), CO_ALL_AXES, false);
    co_value *size = co_reduce_max(ctx, co_abs(ctx, expected), CO_ALL_AXES, false);

    if (co_value_num_elements(ctx, expected) > 0)
        CO_EXPECT_CLOSE(co_item_float(ctx, far), 0, 1e-4 * (1 + co_item_float(ctx, size)));
}

/* Synchronised, the replicas compute what one would that has all rows. */
CONFORM(synchronised_statistics_weigh_every_row_alike, "S-LOOP-1")
{
    normed    p = make_normed(ctx, s, true), alone = { .is_synced = false };
    co_value *x = suite_values(ctx, s, own_rows), *got, *whole, *outs, *gradients;
    int64_t   at = 0;

    alone.gamma = parameter(ctx, 2, 0.5f, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    alone.beta = parameter(ctx, 1, -1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    alone.mean = parameter(ctx, 4, 8, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    alone.variance = parameter(ctx, 1, 2, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    got = co_run(ctx, s, norm_step, co_args(ctx, x), &p);
    CO_EXPECT_OK(ctx);
    whole = forward_and_back(ctx, rows_of(ctx, 0, row->n), &alone);
    outs = co_at(ctx, whole, 0);
    gradients = co_at(ctx, whole, 1);
    for (int id = 0; id < first; ++id)
        at += num_rows(id);
    for (int i = 0; i < row->local; ++i) {
        int64_t begin[2] = { at, 0 }, size[2] = { num_rows(first + i), CHANNELS };

        expect_same(ctx, suite_local(ctx, s, co_at(ctx, got, 0), i),
                    co_slice(ctx, co_at(ctx, outs, 0), begin, size, 2));
        expect_same(ctx, suite_local(ctx, s, co_at(ctx, got, 3), i),
                    co_slice(ctx, co_at(ctx, gradients, 0), begin, size, 2));
        for (size_t k = 1; k < 3; ++k) {
            expect_same(ctx, suite_local(ctx, s, co_at(ctx, got, k), i), co_at(ctx, outs, k));
            expect_same(ctx, suite_local(ctx, s, co_at(ctx, got, 3 + k), i),
                        co_at(ctx, gradients, k));
        }
        expect_same(ctx, suite_local(ctx, s, p.mean, i), co_at(ctx, outs, 3));
        expect_same(ctx, suite_local(ctx, s, p.variance, i), co_at(ctx, outs, 4));
        at += size[0];
    }
    CO_EXPECT_OK(ctx);
}

VALUE_OF(no_rows)
{
    return co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, CHANNELS));
}

/* Each of them twice: a NaN would be there for good. */
CONFORM(replicas_without_rows_leave_moving_averages_alone, "DS-PART-2")
{
    for (int synced = 0; synced < 2; ++synced) {
        normed    p = make_normed(ctx, s, synced == 1);
        co_value *none = suite_values(ctx, s, no_rows), *some = suite_values(ctx, s, own_rows), *r;

        r = co_run(ctx, s, norm_step, co_args(ctx, none), &p);
        for (int i = 0; i < row->local; ++i) {
            EXPECT_ELEMENTS(ctx, suite_local(ctx, s, p.mean, i), 2, 4, 8);
            EXPECT_ELEMENTS(ctx, suite_local(ctx, s, p.variance, i), 2, 1, 2);
            EXPECT_ELEMENTS(ctx, suite_local(ctx, s, co_at(ctx, r, 4), i), 2, 0, 0);
            EXPECT_ELEMENTS(ctx, suite_local(ctx, s, co_at(ctx, r, 5), i), 2, 0, 0);
        }
        for (int step = 0; step < 2; ++step)
            r = co_run(ctx, s, norm_step, co_args(ctx, some), &p);
        for (int i = 0; i < row->local; ++i) {
            if (synced == 0 && num_rows(first + i) == 0)
                EXPECT_ELEMENTS(ctx, suite_local(ctx, s, p.mean, i), 2, 4, 8);
            for (size_t k = 4; k < 6; ++k)
                CO_EXPECT_TRUE(isfinite(
                    co_item_float(ctx, co_reduce_sum(ctx, suite_local(ctx, s, co_at(ctx, r, k), i),
                                                     CO_ALL_AXES, false))));
        }
        CO_EXPECT_TRUE(
            isfinite(co_item_float(ctx, co_reduce_sum(ctx, p.mean, CO_ALL_AXES, false))));
        CO_EXPECT_TRUE(
            isfinite(co_item_float(ctx, co_reduce_sum(ctx, p.variance, CO_ALL_AXES, false))));
        CO_EXPECT_OK(ctx);
    }
}

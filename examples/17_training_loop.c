/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write a training loop. The sample of the Strategy document (seed002/1). The epoch is a captured
 * function, as in the document: its loop over the distributed input, the runs and the reductions
 * are recorded once, for all epochs. The step doubles the sum of its part of a batch.
 */
#include <cohort/cohort.h>
#include <stdio.h>

enum { EPOCHS = 2 };

static co_value *
replica_fn(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);

    (void)user;
    return co_mul(ctx, sum, co_int(ctx, 2));
}

typedef struct loop {
    co_strategy *my_strategy;
    co_iterator *iterator; /* over the batches of all epochs */
    int64_t      steps;    /* of an epoch */
    int          captures;
} loop;

static co_value *
is_not_done(co_context *ctx, co_value *args, void *user)
{
    const loop *l = user;

    return co_less(ctx, co_at(ctx, args, 0), co_int(ctx, l->steps));
}

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    const loop *l = user;
    co_value   *x = co_next(ctx, l->iterator);
    co_value   *per_replica_result = co_run(ctx, l->my_strategy, replica_fn, co_args(ctx, x), NULL);
    co_value   *sum = co_reduce(ctx, l->my_strategy, CO_REDUCE_SUM, per_replica_result, NULL, 0);

    return co_args(ctx, co_add(ctx, co_at(ctx, args, 0), co_int(ctx, 1)),
                   co_add(ctx, co_at(ctx, args, 1), sum));
}

static co_value *
distribute_train_epoch(co_context *ctx, co_value *args, void *user)
{
    loop     *l = user;
    co_value *total_result = co_scalar_int64(ctx, 0);

    (void)args;
    ++l->captures;
    args = co_args(ctx, co_scalar_int64(ctx, 0), total_result);
    return co_at(ctx, co_while(ctx, is_not_done, train_step, args, l, NULL), 1);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_dataset  *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);
    co_dataset  *dist_dataset;
    co_function *epoch;
    loop         l = { co_mirrored_strategy(ctx, NULL, 0, NULL), NULL, 0, 0 };

    CO_SCOPE(ctx, l.my_strategy) {
        l.steps = co_cardinality(ctx, dataset);
        dataset = co_dataset_repeat(ctx, dataset, EPOCHS);
        dist_dataset = co_distribute_dataset(ctx, l.my_strategy, dataset, NULL);
        l.iterator = co_iterate(ctx, dist_dataset);
        epoch = co_function_of(ctx, distribute_train_epoch, &l, NULL);
        for (int i = 0; i < EPOCHS; ++i)
            CO_BLOCK(ctx) {
                co_value *train_result = co_call(ctx, epoch, co_no_args(ctx));

                printf("%lld\n", (long long)co_item_int(ctx, train_result));
            }
    }
    printf("%d epochs, captured %s\n", EPOCHS, l.captures == 1 ? "once" : "more than once");
    return co_close(ctx);
}

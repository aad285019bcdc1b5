/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write a training loop. The sample of the Strategy document (seed002/1), eager: the document wraps
 * the epoch in a tf.function (line 72), which this version does not have. The step doubles the sum
 * of its part of a batch.
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

static int64_t
distribute_train_epoch(co_context *ctx, co_strategy *strategy, co_dataset *dataset)
{
    int64_t total_result = 0;

    CO_EACH(ctx, x, co_iterate(ctx, dataset)) {
        co_value *per_replica_result = co_run(ctx, strategy, replica_fn, co_args(ctx, x), NULL);
        co_value *sum = co_reduce(ctx, strategy, CO_REDUCE_SUM, per_replica_result, NULL, 0);

        total_result += co_item_int(ctx, sum);
    }
    return total_result;
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *my_strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);

    CO_SCOPE(ctx, my_strategy) {
        co_dataset *dist_dataset = co_distribute_dataset(ctx, my_strategy, dataset, NULL);

        for (int epoch = 0; epoch < EPOCHS; ++epoch)
            CO_BLOCK(ctx) {
                printf("%lld\n", (long long)distribute_train_epoch(ctx, my_strategy, dist_dataset));
            }
    }
    return co_close(ctx);
}

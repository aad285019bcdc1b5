/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Port a program name by name. The training loop and the dataset function of the 1.15 document
 * (seed002/1, seed002/6) under the names they have there; cohort/aliases.h makes them aliases of
 * the stable names, with the same call sites in errors.
 */
#include <cohort/cohort.h>
#include <stdio.h>

enum { EPOCHS = 2, GLOBAL_BATCH_SIZE = 6, STEPS = 2 };

static co_value *
replica_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static int64_t
distribute_train_epoch(co_context *ctx, co_strategy *my_strategy, co_dataset *dataset)
{
    int64_t total_result = 0;

    CO_EACH(ctx, x, co_iterate(ctx, dataset)) {
        co_value *per_replica_result = co_experimental_run_v2(ctx, my_strategy, replica_fn,
                                                              co_args(ctx, x), NULL);

        total_result += co_item_int(ctx, co_reduce(ctx, my_strategy, CO_REDUCE_SUM,
                                                   per_replica_result, NULL, 0));
    }
    return total_result;
}

static co_dataset *
dataset_fn(co_context *ctx, const co_input_context *input_context, void *user)
{
    int64_t     batch_size = co_get_per_replica_batch_size(ctx, input_context, GLOBAL_BATCH_SIZE);
    co_value   *one = co_ones(ctx, CO_INT64, CO_SHAPE(1, 1));
    co_dataset *d = co_dataset_repeat(ctx, co_dataset_from_tensors(ctx, one), STEPS * 6);

    (void)user;
    return co_dataset_shard(ctx, co_dataset_batch(ctx, d, batch_size, false),
                            input_context->num_input_pipelines, input_context->input_pipeline_id);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *my_strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);
    co_dataset  *inputs;

    CO_SCOPE(ctx, my_strategy) {
        co_dataset *dist_dataset = co_experimental_distribute_dataset(ctx, my_strategy, dataset,
                                                                      NULL);

        for (int epoch = 0; epoch < EPOCHS; ++epoch)
            printf("epoch %d: %lld\n", epoch,
                   (long long)distribute_train_epoch(ctx, my_strategy, dist_dataset));
    }
    inputs = co_experimental_distribute_datasets_from_function(ctx, my_strategy, dataset_fn, NULL,
                                                               NULL);
    printf("ones: %lld\n", (long long)distribute_train_epoch(ctx, my_strategy, inputs));
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Make the input of each worker in a function. The sample of
 * experimental_distribute_datasets_from_function in three documents (seed001/4, seed002/6,
 * seed003/4). The function is told how many pipelines and replicas there are and batches for one
 * replica. The dataset never ends, so the loop stops after three steps.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static const int64_t global_batch_size = 6;

static co_dataset *
dataset_fn(co_context *ctx, const co_input_context *input_context, void *user)
{
    static const float one[] = { 1 };

    int64_t     batch_size = co_per_replica_batch_size(ctx, input_context, global_batch_size);
    co_dataset *d = co_dataset_from_tensors(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 1), one));

    (void)user;
    printf("  pipeline %d of %d, %d replicas, batch size %lld\n", input_context->input_pipeline_id,
           input_context->num_input_pipelines, input_context->num_replicas_in_sync,
           (long long)batch_size);
    d = co_dataset_batch(ctx, co_dataset_repeat(ctx, d, -1), batch_size, false);
    return co_dataset_shard(ctx, d, input_context->num_input_pipelines,
                            input_context->input_pipeline_id);
}

static co_value *
replica_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static void
three_steps(co_context *ctx, co_strategy *strategy)
{
    co_dataset  *inputs = co_distribute_datasets_from_function(ctx, strategy, dataset_fn, NULL,
                                                               NULL);
    co_iterator *iterator = co_iterate(ctx, inputs);

    for (int i = 0; i < 3; ++i)
        CO_BLOCK(ctx) {
            co_value *batch = co_next(ctx, iterator);
            co_value *results = co_run(ctx, strategy, replica_fn, co_args(ctx, batch), NULL);
            char      text[200];

            co_format(ctx, co_local_results(ctx, strategy, results), text, sizeof(text));
            printf("  %s\n", text);
        }
}

int
main(void)
{
    co_context *ctx = co_open("cpus=2");

    printf("one device:\n");
    three_steps(ctx, co_one_device_strategy(ctx, "/cpu:0"));
    printf("two replicas:\n");
    three_steps(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL));
    return co_close(ctx);
}

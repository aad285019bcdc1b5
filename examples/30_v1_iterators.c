/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input iterators of the v1 interface. The sample of make_input_fn_iterator (seed003/7): a function
 * makes the input of a worker, with batches for one replica; experimental_run takes one of them for
 * each replica. Then an iterator that divides the batches of a dataset, and starts again.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

static const int64_t global_batch_size = 6;

static co_dataset *
input_fn(co_context *ctx, const co_input_context *input_context, void *user)
{
    int64_t     batch_size = co_get_per_replica_batch_size(ctx, input_context, global_batch_size);
    co_dataset *d = co_dataset_from_tensors(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 1)));

    (void)user;
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
show(co_context *ctx, co_value *value)
{
    char text[200];

    co_format(ctx, value, text, sizeof(text));
    printf("%s\n", text);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 5, 1), 3, false);
    co_iterator *iterator;

    CO_SCOPE(ctx, strategy) {
        iterator = co_make_input_fn_iterator(ctx, strategy, input_fn, NULL, CO_INPUT_PER_WORKER);
        co_iterator_initialize(ctx, iterator);
        show(ctx, co_experimental_run(ctx, strategy, replica_fn, iterator, NULL));
    }

    iterator = co_make_dataset_iterator(ctx, strategy, dataset);
    for (int epoch = 0; epoch < 2; ++epoch) {
        co_value *sums;

        co_iterator_initialize(ctx, iterator);
        while ((sums = co_experimental_run(ctx, strategy, replica_fn, iterator, NULL)) != NULL)
            show(ctx, co_v1_reduce(ctx, strategy, CO_REDUCE_SUM, sums));
        printf("%s\n", co_code_name(co_error(ctx)->code)); /* the end of the input */
        co_clear(ctx);
    }
    return co_close(ctx);
}

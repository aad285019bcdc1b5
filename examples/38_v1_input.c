/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input of the v1 document in addition to the sample in 30_v1_iterators.c: a dataset function
 * under a v1 strategy (seed003/4), elements by get_next for call_for_each_replica, a step without
 * input, and the errors: batches that cannot be divided, replication for each replica, graph mode.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

static const int64_t global_batch_size = 4;

static co_dataset *
dataset_fn(co_context *ctx, const co_input_context *input_context, void *user)
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

/* Without input: which replica this is. */
static co_value *
who_fn(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_int32(ctx, co_replica_id(ctx));
}

/* A value, or why there is none. */
static void
show(co_context *ctx, const char *what, co_value *value)
{
    char text[300];

    if (value != NULL)
        co_format(ctx, value, text, sizeof(text));
    printf("%s: %s\n", what, value != NULL ? text : co_error(ctx)->message);
    co_clear(ctx);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *one = co_v1_one_device_strategy(ctx, "/cpu:0");
    co_strategy *mirrored = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *inputs = co_experimental_distribute_datasets_from_function(ctx, one, dataset_fn,
                                                                            NULL, NULL);
    co_iterator *iterator = co_iterate(ctx, inputs);
    co_value    *batch = co_next(ctx, iterator); /* the dataset never ends: one step of it */

    show(ctx, "one device", co_run(ctx, one, replica_fn, co_args(ctx, batch), NULL));

    CO_SCOPE(ctx, mirrored) {
        iterator = co_make_input_fn_iterator(ctx, mirrored, dataset_fn, NULL, CO_INPUT_PER_WORKER);
        co_iterator_initialize(ctx, iterator);
        batch = co_get_next(ctx, iterator);
        show(ctx, "get_next",
             co_call_for_each_replica(ctx, mirrored, replica_fn, co_args(ctx, batch), NULL));
        show(ctx, "no input", co_experimental_run(ctx, mirrored, who_fn, NULL, NULL));
    }

    printf("not to be divided: ");
    co_make_dataset_iterator(ctx, mirrored, co_dataset_range(ctx, 0, 4, 1));
    show(ctx, co_code_name(co_error(ctx)->code), NULL);
    printf("for each replica: ");
    co_make_input_fn_iterator(ctx, mirrored, dataset_fn, NULL, CO_INPUT_PER_REPLICA);
    show(ctx, co_code_name(co_error(ctx)->code), NULL);
    printf("graph mode: ");
    co_v1_disable_eager_execution(ctx);
    show(ctx, co_code_name(co_error(ctx)->code), NULL);
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read the spec of an iterator's elements before the first element. The second sample of
 * distribute_datasets_from_function in the v1 document (seed003/5). Its line 308, which gives the
 * spec to tf.function as the input signature, is left out: this version has no traced functions.
 * The third step reaches the end of the input.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_dataset *
dataset_fn(co_context *ctx, const co_input_context *input_context, void *user)
{
    int64_t batch_size = co_per_replica_batch_size(ctx, input_context, 4);

    (void)user;
    return co_dataset_batch(ctx, co_dataset_range(ctx, 0, 7, 1), batch_size, false);
}

static co_value *
replica_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static void
show(co_context *ctx, const char *name, co_value *value)
{
    char text[200];

    co_format(ctx, value, text, sizeof(text));
    printf("%s: %s\n", name, text);
}

int
main(void)
{
    const int    steps = 3;
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *inputs = co_distribute_datasets_from_function(ctx, strategy, dataset_fn, NULL,
                                                               NULL);
    co_iterator *iterator = co_iterate(ctx, inputs);

    show(ctx, "elements", co_iterator_element_spec(ctx, iterator));
    for (int i = 0; i < steps; ++i)
        CO_BLOCK(ctx) {
            co_value *element = co_next(ctx, iterator);

            if (element != NULL)
                show(ctx, "sums", co_run(ctx, strategy, replica_fn, co_args(ctx, element), NULL));
            else
                printf("the end\n");
        }
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Take the input signature of a step from an iterator. The second sample of
 * distribute_datasets_from_function in the v1 document (seed003/5): the spec of the elements is
 * known before the first element, and the step, a captured function, is captured once for each
 * replica, whatever sizes the batches have. The third step reaches the end of the input.
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

static void
three_steps(co_context *ctx, co_strategy *strategy)
{
    const int           steps = 3;
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function_stats   stats = CO_FUNCTION_STATS_INIT;
    co_function        *replica_fn_with_signature;
    co_dataset  *inputs = co_distribute_datasets_from_function(ctx, strategy, dataset_fn, NULL,
                                                               NULL);
    co_iterator *iterator = co_iterate(ctx, inputs);

    options.signature = co_args(ctx, co_iterator_element_spec(ctx, iterator));
    show(ctx, "signature", options.signature);
    replica_fn_with_signature = co_function_of(ctx, replica_fn, NULL, &options);
    for (int i = 0; i < steps; ++i)
        CO_BLOCK(ctx) {
            co_value *element = co_next(ctx, iterator);

            if (element != NULL)
                show(ctx, "sums",
                     co_run(ctx, strategy, co_captured, co_args(ctx, element),
                            replica_fn_with_signature));
            else
                printf("the end\n");
        }
    co_function_get_stats(ctx, replica_fn_with_signature, &stats);
    printf("captures: %lld\n", (long long)stats.captures);
}

int
main(void)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context *ctx = co_open("cpus=2");

    for (size_t n = 1; n <= 2; ++n)
        three_steps(ctx, co_mirrored_strategy(ctx, devices, n, NULL));
    return co_close(ctx);
}

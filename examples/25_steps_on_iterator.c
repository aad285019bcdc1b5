/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run several steps on an iterator. experimental_run_steps_on_iterator of StrategyExtended takes
 * one element for each step and keeps the outputs of the last step: reduced over replicas, or
 * unchanged.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

static co_value *
sum_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static co_value *
step_fn(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_strategy *strategy = user;
    co_value    *sums = co_run(ctx, strategy, sum_of, co_args(ctx, inputs), NULL);

    co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_SUM, sums);
    co_set_last_step_output(ctx, steps, "sums", CO_REDUCE_NONE, sums);
    co_set_non_tensor_output(ctx, steps, "what", co_string(ctx, "sums of rows"));
    return NULL;
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 16, 1), 4, false);
    co_iterator *iterator = co_iterate(ctx, co_distribute_dataset(ctx, strategy, data, NULL));
    char         text[300];

    co_step_context *steps = co_experimental_run_steps_on_iterator(ctx, strategy, step_fn, iterator,
                                                                   strategy, 3, NULL);
    co_format(ctx, co_last_step_outputs(ctx, steps), text, sizeof(text));
    printf("%s\n", text);
    co_format(ctx, co_non_tensor_outputs(ctx, steps), text, sizeof(text));
    printf("%s\n", text);
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce what two replicas make of distributed batches: the numbers in the text of reduce
 * (documents 002 and 003). A batch of eight examples is four on each replica; the last one of six
 * is four and two where the batch size itself is divided, as it was when the text was written, and
 * is today where input is not sharded (DS-SPLIT-3). Without an axis replicas are combined example
 * by example, which needs equal parts; with the axis of examples a mean weighs all of them alike,
 * which a mean of the replicas' means does not.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

/* A loss for each example: here its number, counted from the first of the batch. */
static co_value *
loss_fn(co_context *ctx, co_value *args, void *user)
{
    co_value *examples = co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32);

    return co_sub(ctx, examples, co_int(ctx, *(const int64_t *)user));
}

/* One number for each replica. */
static co_value *
mean_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_mean(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static void
show(co_context *ctx, const char *what, co_value *value)
{
    char text[300];

    if (value != NULL)
        co_format(ctx, value, text, sizeof(text));
    printf("  %-18s %s\n", what, value != NULL ? text : co_code_name(co_error(ctx)->code));
    co_clear(ctx);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 14, 1), 8, false);
    co_dataset  *dist_dataset;
    int64_t      seen = 0;

    dataset = co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_OFF);
    dist_dataset = co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    CO_EACH(ctx, x, co_iterate(ctx, dist_dataset)) {
        co_value *losses = co_run(ctx, strategy, loss_fn, co_args(ctx, x), &seen);
        co_value *means = co_run(ctx, strategy, mean_fn, co_args(ctx, losses), NULL);
        char      text[200];

        co_format(ctx, losses, text, sizeof(text));
        printf("%s\n", text);
        show(ctx, "sum, no axis", co_v1_reduce(ctx, strategy, CO_REDUCE_SUM, losses));
        show(ctx, "sum, axis 0", co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, CO_AXES(0)));
        show(ctx, "mean, axis 0", co_reduce(ctx, strategy, CO_REDUCE_MEAN, losses, CO_AXES(0)));
        show(ctx, "mean of the means", co_v1_reduce(ctx, strategy, CO_REDUCE_MEAN, means));
        seen += 8;
    }
    return co_close(ctx);
}

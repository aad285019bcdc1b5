/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce. The sample of OneDeviceStrategy.reduce (seed001/12), then the six examples on two
 * replicas that the text of the document describes: if the batch axis is named, every example has
 * the same weight in a mean.
 */
#include <cohort/cohort.h>
#include <stdio.h>

/* All elements, however many there are. */
static void
show(co_context *ctx, const char *name, co_value *value)
{
    double  numbers[16];
    int64_t n = co_value_num_elements(ctx, value);

    co_value_copy_data(ctx, value, CO_FLOAT64, numbers, 16);
    printf("%s:", name);
    for (int64_t i = 0; i < n && co_ok(ctx); ++i)
        printf(" %g", numbers[i]);
    printf("\n");
}

/* [0, 1, 2, 3] on replica 0, [4, 5] on replica 1. */
static co_value *
uneven(co_context *ctx, const co_value_context *replica, void *user)
{
    static const float rows[] = { 0, 1, 2, 3, 4, 5 };

    (void)user;
    return replica->replica_id_in_sync_group == 0
               ? co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), rows)
               : co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), rows + 4);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_strategy *mirrored = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *t = co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_INT32);
    co_value    *losses = co_distribute_values_from_function(ctx, mirrored, uneven, NULL);

    show(ctx, "no axis", co_reduce(ctx, strategy, CO_REDUCE_SUM, t, NULL, 0));
    show(ctx, "axis 0", co_reduce(ctx, strategy, CO_REDUCE_SUM, t, CO_AXES(0)));
    show(ctx, "mean of six examples on two replicas",
         co_reduce(ctx, mirrored, CO_REDUCE_MEAN, losses, CO_AXES(0)));
    return co_close(ctx);
}

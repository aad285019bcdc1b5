/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run a step on several replicas. Each replica calls the step at the same time, with its own
 * context on its own device; the results are returned as one per-replica value. Inside a step
 * replicas combine values with co_all_reduce, outside it co_reduce does.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    co_value *mine = co_add(ctx, co_replica_id_tensor(ctx), co_int(ctx, 1));
    co_value *all = co_all_reduce(ctx, CO_REDUCE_SUM, mine);

    (void)args;
    (void)user;
    return co_args(ctx, mine, co_div(ctx, mine, all));
}

int
main(void)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_value    *result = co_run(ctx, strategy, step, co_no_args(ctx), NULL);
    co_value    *shares = co_at(ctx, result, 1);
    co_value    *whole = co_reduce(ctx, strategy, CO_REDUCE_SUM, shares, NULL, 0);
    char         text[200];

    printf("%d replicas\n", co_num_replicas_in_sync(ctx, strategy));
    co_format(ctx, co_at(ctx, result, 0), text, sizeof(text));
    printf("they brought %s\n", text);
    printf("their shares sum to %g\n", co_item_float(ctx, whole));
    return co_close(ctx);
}

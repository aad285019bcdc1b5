/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run in several processes. The same program is started twice (scripts/mpirun-here -n 2, or mpirun
 * on a cluster); the strategy joins the processes, and nothing else changes. Started alone it is a
 * strategy of one process. The policy REPLICA gives slice k of every batch to replica k, however
 * many processes there are.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

int
main(void)
{
    co_context                      *ctx = co_open("cpus=2");
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_strategy                     *strategy;
    co_dataset                      *data;
    bool                             speaks;

    options.num_replicas = 4; /* of all processes */
    strategy = co_multi_worker_mirrored_strategy(ctx, &options);
    data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 6, false);
    data = co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_REPLICA);
    data = co_distribute_dataset(ctx, strategy, data, NULL);

    speaks = co_worker_id(ctx, strategy) == 0;
    if (speaks)
        printf("%d replicas in %d processes\n", co_num_replicas_in_sync(ctx, strategy),
               co_num_workers(ctx, strategy));
    CO_EACH(ctx, batch, co_iterate(ctx, data)) {
        co_value *sums = co_run(ctx, strategy, step, co_args(ctx, batch), NULL);
        co_value *all = co_gather_replicas(ctx, strategy, batch, 0);
        co_value *sum = co_reduce(ctx, strategy, CO_REDUCE_SUM, sums, NULL, 0);
        char      text[200];

        co_format(ctx, all, text, sizeof(text));
        if (speaks)
            printf("%s sum to %lld\n", text, (long long)co_item_int(ctx, sum));
    }
    return co_close(ctx);
}

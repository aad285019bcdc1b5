/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distribute a dataset. The sample of OneDeviceStrategy.experimental_distribute_dataset
 * (seed001/3); then the same dataset over two replicas, which split every batch.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static void
print_elements(co_context *ctx, co_strategy *strategy, co_dataset *dataset)
{
    co_dataset *dist_dataset = co_distribute_dataset(ctx, strategy, dataset, NULL);

    CO_EACH(ctx, x, co_iterate(ctx, dist_dataset)) {
        char text[200];

        co_format(ctx, x, text, sizeof(text));
        printf("%s\n", text);
    }
}

int
main(void)
{
    co_context *ctx = co_open("cpus=2");
    co_dataset *dataset = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 2, false);

    print_elements(ctx, co_one_device_strategy(ctx, NULL), dataset);
    print_elements(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL), dataset);
    return co_close(ctx);
}

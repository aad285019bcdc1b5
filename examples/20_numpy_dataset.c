/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Make a dataset of arrays. The sample of experimental_make_numpy_dataset (seed001/9, seed002/9,
 * seed003/6). The arrays are copied, so their memory may be reused after the call. As written the
 * sample distributes ten single numbers; several replicas need batches, as in the second part.
 */
#include <cohort/cohort.h>
#include <stdio.h>

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_strategy *mirrored = co_mirrored_strategy(ctx, NULL, 0, NULL);
    float        array[10];
    co_value    *numpy_input;
    co_dataset  *dataset, *dist_dataset;
    int          elements = 0;

    for (int i = 0; i < 10; ++i)
        array[i] = 1;
    numpy_input = co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(10), array, NULL, NULL);
    dataset = co_experimental_make_numpy_dataset(ctx, strategy, numpy_input);
    for (int i = 0; i < 10; ++i)
        array[i] = 99; /* the dataset does not see this */

    dist_dataset = co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    CO_EACH(ctx, x, co_iterate(ctx, dist_dataset)) {
        elements += co_item_float(ctx, x) == 1;
    }
    printf("%d ones, one by one\n", elements);

    dataset = co_dataset_batch(ctx, dataset, 4, false);
    dist_dataset = co_experimental_distribute_dataset(ctx, mirrored, dataset, NULL);
    CO_EACH(ctx, x, co_iterate(ctx, dist_dataset)) {
        char text[100];

        co_format(ctx, x, text, sizeof(text));
        printf("%s\n", text);
    }
    return co_close(ctx);
}

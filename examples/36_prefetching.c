/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expensive input is made while the program computes: several calls of a function at a time, and
 * batches in advance. The elements are the same, in the same order.
 */
#include <cohort/cohort.h>
#include <stdatomic.h>
#include <stdio.h>

/* Called by threads of the iterator, several at a time: what it shares with others is atomic. */
static co_value *
decode(co_context *ctx, co_value *element, void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
    return co_mul(ctx, element, element);
}

int
main(void)
{
    co_context    *ctx = co_open(NULL);
    co_strategy   *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_map_options options = CO_MAP_OPTIONS_INIT;
    atomic_int     calls = 0;

    options.num_parallel_calls = 2;
    CO_BLOCK(ctx) {
        co_dataset *data = co_dataset_range(ctx, 0, 10, 1);

        data = co_dataset_parallel_map(ctx, data, decode, &calls, NULL, &options);
        data = co_dataset_prefetch(ctx, co_dataset_batch(ctx, data, 4, false), 2);
        CO_EACH(ctx, batch, co_iterate(ctx, co_distribute_dataset(ctx, strategy, data, NULL))) {
            char text[200];

            co_format(ctx, batch, text, sizeof(text));
            printf("%s\n", text);
        }
    }
    printf("%d calls\n", atomic_load(&calls));
    return co_close(ctx);
}

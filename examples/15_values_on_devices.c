/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Place values on the devices of a strategy and distribute them. The fourth sample of
 * experimental_distribute_values_from_function (seed001/8), under a mirrored strategy in place of
 * the TPUStrategy of the document.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
value_fn(co_context *ctx, const co_value_context *replica, void *user)
{
    co_value **multiple_values = user;

    (void)ctx;
    return multiple_values[replica->replica_id]; /* the name that the document uses */
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *worker_devices = co_worker_devices(ctx, strategy);
    co_value    *multiple_values[2] = { NULL, NULL };
    co_value    *local;

    for (size_t i = 0; i < 2; ++i) {
        const char *device = co_string_at(ctx, co_at(ctx, worker_devices, i), 0, NULL);

        CO_DEVICE(ctx, device) {
            multiple_values[i] = co_scalar_float(ctx, 1);
        }
    }
    local = co_distribute_values_from_function(ctx, strategy, value_fn, multiple_values);
    local = co_local_results(ctx, strategy, local);
    for (size_t i = 0; i < co_num_items(ctx, local); ++i)
        printf("%g on %s\n", co_item_float(ctx, co_at(ctx, local, i)),
               co_value_device(ctx, co_at(ctx, local, i)));
    return co_close(ctx);
}

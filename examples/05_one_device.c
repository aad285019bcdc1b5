/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run a step under a strategy. The sample of the OneDeviceStrategy document (seed001/1, and
 * seed003/1 for its v1 form) on a CPU; 10_declared_device.c runs it on "/gpu:0" as the document has
 * it.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

int
main(void)
{
    co_context  *ctx = co_open(NULL);
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *result = co_int(ctx, 0);

    CO_SCOPE(ctx, strategy) {
        co_value *v = co_variable(ctx, co_float(ctx, 1.0), NULL);
        printf("%s\n", co_value_device(ctx, v));
    }
    for (int i = 0; i < 10; ++i)
        result = co_add(ctx, result,
                        co_run(ctx, strategy, step, co_args(ctx, co_int(ctx, i)), NULL));
    printf("%lld\n", (long long)co_item_int(ctx, result));
    return co_close(ctx);
}

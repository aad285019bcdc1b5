/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declare a device. The sample of the OneDeviceStrategy document as it is written, on "/gpu:0"
 * (seed001/1, seed003/1). There is no GPU here: devices=GPU:1 declares one on host memory, which
 * behaves as one of that name would and is labelled "host-backed" wherever devices are listed.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
step_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

int
main(void)
{
    co_context    *ctx = co_open("devices=GPU:1");
    co_strategy   *strategy = co_one_device_strategy(ctx, "/gpu:0");
    co_value      *result = co_int(ctx, 0);
    co_device_info info = CO_DEVICE_INFO_INIT;

    CO_SCOPE(ctx, strategy) {
        co_value *v = co_variable(ctx, co_float(ctx, 1.0), NULL);
        printf("%s\n", co_value_device(ctx, v));
    }
    for (int i = 0; i < 10; ++i)
        result = co_add(ctx, result,
                        co_run(ctx, strategy, step_fn, co_args(ctx, co_int(ctx, i)), NULL));
    printf("%lld\n", (long long)co_item_int(ctx, result));

    co_get_device_info(ctx, co_num_devices(ctx) - 1, &info);
    printf("%s is %s\n", info.name, info.host_backed ? "host-backed" : "real");
    return co_close(ctx);
}

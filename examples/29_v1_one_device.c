/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 flavour of a strategy. The samples of tf.compat.v1.distribute.OneDeviceStrategy as they
 * are written: a variable on its device and ten runs (seed003/1), a dataset of arrays (seed003/6),
 * run with a constant (seed003/8); and what the flavour lacks. The GPU is declared on host memory.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

static co_value *
step_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

static co_value *
value_fn(co_context *ctx, const co_value_context *value_context, void *user)
{
    (void)user;
    return co_int(ctx, value_context->num_replicas_in_sync);
}

int
main(void)
{
    co_context  *ctx = co_open("devices=GPU:1");
    co_strategy *strategy = co_v1_one_device_strategy(ctx, "/gpu:0");
    co_value    *result = co_int(ctx, 0), *tensor_input, *numpy_input;
    co_dataset  *dataset, *dist_dataset;

    co_v1_enable_eager_execution(ctx);
    CO_SCOPE(ctx, strategy) {
        co_value *v = co_variable(ctx, co_float(ctx, 1.0), NULL);

        printf("%s\n", co_value_device(ctx, v));
    }
    for (int i = 0; i < 10; ++i)
        result = co_add(ctx, result,
                        co_run(ctx, strategy, step_fn, co_args(ctx, co_int(ctx, i)), NULL));
    printf("%lld\n", (long long)co_item_int(ctx, result));

    numpy_input = co_ones(ctx, CO_FLOAT32, CO_SHAPE(10));
    dataset = co_v1_make_numpy_dataset(ctx, strategy, numpy_input, NULL); /* no session */
    dist_dataset = co_experimental_distribute_dataset(ctx, strategy, dataset, NULL);
    printf("%lld elements\n", (long long)co_cardinality(ctx, dist_dataset));

    tensor_input = co_scalar_float(ctx, 3);
    result = co_run(ctx, strategy, step_fn, co_args(ctx, tensor_input), NULL);
    printf("%g\n", co_item_float(ctx, co_v1_reduce(ctx, strategy, CO_REDUCE_SUM, result)));

    co_experimental_distribute_values_from_function(ctx, strategy, value_fn, NULL);
    printf("%s: %s\n", co_code_name(co_error(ctx)->code), co_error(ctx)->message);
    co_clear(ctx);
    return co_close(ctx);
}

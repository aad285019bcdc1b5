/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Give arguments to a step. Both samples of run in the v1 document (seed003/8 and seed003/9), with
 * captured functions as there: a tensor goes to every replica as it is; distributed values give
 * each replica its own. In the first sample run is given a function, in the second a function
 * contains the run. Results of one replica come back unwrapped, and so do host numbers that are the
 * same on all.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
replica_fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, 2.0));
}

static co_value *
replica_fn2(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_int(ctx, 2 * co_item_int(ctx, co_at(ctx, args, 0)));
}

static co_value *
value_fn(co_context *ctx, const co_value_context *value_context, void *user)
{
    (void)user;
    return co_int(ctx, value_context->num_replicas_in_sync);
}

/* The function `run` of the second sample. */
static co_value *
run(co_context *ctx, co_value *args, void *user)
{
    co_strategy *strategy = user;
    co_value    *distributed_values = co_distribute_values_from_function(ctx, strategy, value_fn,
                                                                         NULL);

    (void)args;
    return co_run(ctx, strategy, replica_fn2, co_args(ctx, distributed_values), NULL);
}

static void
show(co_context *ctx, co_value *value)
{
    char text[200];

    co_format(ctx, value, text, sizeof(text));
    printf("%s\n", text);
}

int
main(void)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context *ctx = co_open("cpus=2");
    co_value   *tensor_input = co_scalar_float(ctx, 3);

    for (size_t n = 1; n <= 2; ++n) {
        co_strategy *strategy = co_mirrored_strategy(ctx, devices, n, NULL);
        co_function *f = co_function_of(ctx, replica_fn, NULL, NULL);
        co_function *g = co_function_of(ctx, run, strategy, NULL);

        printf("%zu replica%s:\n", n, n == 1 ? "" : "s");
        show(ctx, co_run(ctx, strategy, co_captured, co_args(ctx, tensor_input), f));
        show(ctx, co_call(ctx, g, co_no_args(ctx)));
    }
    return co_close(ctx);
}

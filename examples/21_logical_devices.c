/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Annotate tensors with logical devices. The steps of the three samples (seed001/2, seed001/10,
 * seed001/11) call them on a TPU strategy, which this version does not have; on every other
 * strategy the calls fail with CO_UNIMPLEMENTED, whatever their arguments. This is an error like
 * any other: a program that does not need the annotation clears it and continues.
 */
#include <cohort/cohort.h>
#include <cohort/tpu.h>
#include <stdio.h>

/* What the call gave, or the tensor as it is where the strategy has no logical devices. */
static co_value *
or_as_it_is(co_context *ctx, const char *name, co_value *annotated, co_value *tensor)
{
    if (annotated != NULL)
        return annotated;
    printf("%s: %s\n", name, co_code_name(co_error(ctx)->code));
    co_clear(ctx);
    return tensor;
}

static co_value *
step_fn(co_context *ctx, co_value *args, void *user)
{
    static const int64_t dims[] = { 1, 2, 4, 1 };

    co_strategy *strategy = user;
    co_value    *inputs = co_at(ctx, args, 0), *output, *images;

    output = co_add(ctx, inputs, inputs);
    output = or_as_it_is(ctx, "assign",
                         co_experimental_assign_to_logical_device(ctx, strategy, output, 0),
                         output);
    images = or_as_it_is(ctx, "split",
                         co_experimental_split_to_logical_devices(ctx, strategy, output, dims, 4),
                         output);
    return or_as_it_is(ctx, "replicate",
                       co_experimental_replicate_to_logical_devices(ctx, strategy, images), images);
}

int
main(void)
{
    co_context  *ctx = co_open(NULL);
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *images = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4, 8, 3));
    co_value    *output = co_run(ctx, strategy, step_fn, co_args(ctx, images), strategy);

    printf("sum %g\n", co_item_float(ctx, co_reduce_sum(ctx, output, CO_ALL_AXES, false)));
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Place results and update components. What libraries on top of strategies use, the
 * StrategyExtended of the documents: reduce to the devices of a variable, reduce several values at
 * once, update every component of a variable on its device, copy a tensor to devices, find the
 * container of a component.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
add_to(co_context *ctx, co_value *component, co_value *args, void *user)
{
    (void)user;
    printf("update on %s\n", co_value_device(ctx, component));
    return co_assign_add(ctx, component, co_at(ctx, args, 0));
}

static void
show(co_context *ctx, const char *name, co_value *value)
{
    char text[300];

    co_format(ctx, value, text, sizeof(text));
    printf("%s: %s\n", name, text);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *parts[] = { co_scalar_float(ctx, 1), co_scalar_float(ctx, 3) };
    co_value    *losses = co_per_replica_value(ctx, parts, 2);
    co_value    *cpu1 = co_string(ctx, "/cpu:1"), *v = NULL, *pairs[2], *component;

    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_float(ctx, 10), NULL);

    show(ctx, "sum to the variable's devices",
         co_reduce_to(ctx, strategy, CO_REDUCE_SUM, losses, v));
    show(ctx, "mean to one device", co_reduce_to(ctx, strategy, CO_REDUCE_MEAN, losses, cpu1));
    pairs[0] = co_args(ctx, losses, v);
    pairs[1] = co_args(ctx, losses, cpu1);
    show(ctx, "both", co_batch_reduce_to(ctx, strategy, CO_REDUCE_SUM, co_list(ctx, pairs, 2)));
    show(ctx, "updated", co_update(ctx, strategy, v, add_to, co_args(ctx, losses), NULL, NULL));
    show(ctx, "copied", co_extended_broadcast_to(ctx, strategy, co_scalar_float(ctx, 7), v));
    component = co_at(ctx, co_local_results(ctx, strategy, v), 1);
    printf("the container of component 1 is the variable: %d\n",
           co_value_container(ctx, strategy, component) == v);
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set a strategy without a block. Both samples of the experimental_set_strategy document (seed000/1
 * and seed000/2): three calls with the strategy set, and the same three calls with scope blocks;
 * both print the same.
 */
#include <cohort/cohort.h>
#include <stdio.h>

/* f, g and h of the document: what they see. */
static void
call(co_context *ctx, const char *name)
{
    co_value *v = co_variable(ctx, co_float(ctx, 0), NULL);

    printf("  %s: %s, has_strategy %d, cross-replica %d, variables on %s\n", name,
           co_strategy_name(ctx, co_get_strategy(ctx)), co_has_strategy(ctx),
           co_in_cross_replica_context(ctx), co_value_device(ctx, v));
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy1 = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_strategy *strategy2 = co_one_device_strategy(ctx, "/cpu:1");

    printf("set:\n");
    co_experimental_set_strategy(ctx, strategy1);
    call(ctx, "f");
    co_experimental_set_strategy(ctx, strategy2);
    call(ctx, "g");
    co_experimental_set_strategy(ctx, NULL);
    call(ctx, "h");

    printf("blocks:\n");
    CO_SCOPE(ctx, strategy1) {
        call(ctx, "f");
    }
    CO_SCOPE(ctx, strategy2) {
        call(ctx, "g");
    }
    call(ctx, "h");
    return co_close(ctx);
}

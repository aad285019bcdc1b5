/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Make mistakes. A replica that returns before a collective, passes another shape or fails ends the
 * step for all replicas at once, with an error that names the replica, the call and the line. The
 * strategy remains usable.
 */
#include <cohort/cohort.h>
#include <stdio.h>

/* Replica 1 forgets the all_reduce that replica 0 waits in. */
static co_value *
returns_early(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (co_replica_id(ctx) == 1)
        return co_int(ctx, 0);
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

/* Replica i passes a vector of i + 2 elements. */
static co_value *
shapes_differ(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_ones(ctx, CO_FLOAT32, CO_SHAPE(co_replica_id(ctx) + 2)));
}

/* Replica 1 fails with an error of its own; replica 0 waits for it. */
static co_value *
fails(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (co_replica_id(ctx) == 1)
        return co_fail(ctx, CO_DATA_LOSS, "sensor 7 sent no picture"), NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

static co_value *
works(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

static void
attempt(co_context *ctx, co_strategy *strategy, const char *name, co_fn step)
{
    const co_error_info *error = co_error(ctx);

    co_run(ctx, strategy, step, co_no_args(ctx), NULL);
    printf("%s: %s\n    %s\n", name, co_code_name(error->code), error->message);
    co_clear(ctx);
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *result;

    attempt(ctx, strategy, "a replica returns early", returns_early);
    attempt(ctx, strategy, "shapes differ", shapes_differ);
    attempt(ctx, strategy, "a replica fails", fails);

    result = co_run(ctx, strategy, works, co_no_args(ctx), NULL);
    result = co_reduce(ctx, strategy, CO_REDUCE_MEAN, result, NULL, 0);
    printf("and then it works: %g\n", co_item_float(ctx, result));
    return co_close(ctx);
}

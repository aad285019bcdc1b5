/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Make a value for each replica. The first three samples of
 * experimental_distribute_values_from_function (seed001/5, seed001/6, seed001/7), with one replica
 * as in the document and with two.
 */
#include <cohort/cohort.h>
#include <stdio.h>

/* 1. A constant. */
static co_value *
constant(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)replica;
    (void)user;
    return co_scalar_float(ctx, 1);
}

/* 2. An element of an array, by replica. */
static co_value *
element(co_context *ctx, const co_value_context *replica, void *user)
{
    const double *array_value = user;

    return co_float(ctx, array_value[replica->replica_id_in_sync_group]);
}

/* 3. The number of replicas. */
static co_value *
count(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)user;
    return co_int(ctx, replica->num_replicas_in_sync);
}

static void
print_local(co_context *ctx, co_strategy *strategy, const char *name, co_value_fn fn, void *user)
{
    co_value *distributed_values = co_distribute_values_from_function(ctx, strategy, fn, user);
    co_value *local_result = co_local_results(ctx, strategy, distributed_values);
    char      text[200];

    co_format(ctx, local_result, text, sizeof(text));
    printf("%s with %d: %s\n", name, co_num_replicas_in_sync(ctx, strategy), text);
}

int
main(void)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    co_context *ctx = co_open("cpus=2");
    double      array_value[] = { 3, 2, 1 };

    for (size_t n = 1; n <= 2; ++n) {
        co_strategy *strategy = co_mirrored_strategy(ctx, devices, n, NULL);

        print_local(ctx, strategy, "constant", constant, NULL);
        print_local(ctx, strategy, "element", element, array_value);
        print_local(ctx, strategy, "count", count, NULL);
    }
    return co_close(ctx);
}

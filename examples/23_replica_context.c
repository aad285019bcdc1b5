/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Use the replica context. Inside a step the context is the ReplicaContext of the documents: the id
 * of the replica, and three ways to synchronise with the other replicas. merge_call stops all of
 * them and calls a function once; all_reduce combines every leaf of a structure, all_gather
 * concatenates rows. Replicas run one after the other here (in_turn) so that their output has an
 * order.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
merge_fn(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    co_value *sum = co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);

    (void)user;
    printf("merge: cross-replica %d, sum %g\n", co_in_cross_replica_context(ctx),
           co_item_float(ctx, sum));
    return sum;
}

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    static const char *const keys[] = { "a", "b" };
    static const float       a[] = { 1, 3 }, b[2][2] = { { 40, 1 }, { 2, 98 } };

    int       id = co_replica_id(ctx);
    co_value *v = co_scalar_float(ctx, (float)(3 + id)), *s, *leaves[2], *rows;
    int64_t   one = 1, two = 2, count = id + 1;

    (void)args;
    (void)user;
    printf("a%d: replica %d of %d\n", id, id, co_replicas(ctx));
    s = co_merge_call(ctx, merge_fn, co_args(ctx, v), NULL);
    printf("b%d\n", id);

    leaves[0] = co_tensor(ctx, CO_FLOAT32, &one, 1, &a[id]);
    leaves[1] = co_tensor(ctx, CO_FLOAT32, &two, 1, b[id]);
    leaves[0] = co_all_reduce(ctx, CO_REDUCE_MEAN, co_dict(ctx, keys, leaves, 2));
    rows = co_broadcast_to(ctx, v, &count, 1);
    return co_args(ctx, co_add(ctx, s, v), leaves[0], co_all_gather(ctx, rows, 0));
}

int
main(void)
{
    co_context    *ctx = co_open("cpus=2");
    co_strategy   *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_run_options options = CO_RUN_OPTIONS_INIT;
    co_value      *results, *local;
    char           text[400];

    options.in_turn = true;
    results = co_run_with(ctx, strategy, step, co_no_args(ctx), NULL, &options);
    local = co_experimental_local_results(ctx, strategy, results);
    for (size_t i = 0; i < co_num_items(ctx, local); ++i) {
        co_format(ctx, co_at(ctx, local, i), text, sizeof(text));
        printf("replica %zu returned %s\n", i, text);
    }
    return co_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own strategy: a placement, and two hooks. `run` counts the steps, once for all replicas;
 * `replica` wraps the step in every replica and gives the replicas that skip it an empty batch. No
 * hook needs to know what a step does.
 */
#include "skipping.h"

#include <stdlib.h>

typedef struct skipping {
    long steps; /* begun so far; written between steps alone */
} skipping;

static co_value *
run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
    const co_run_options *options, void *data)
{
    ++((skipping *)data)->steps;
    return co_run_with(ctx, strategy, fn, args, user, options);
}

/* A leaf of the arguments without its rows; what has no rows stays. */
static co_value *
no_rows(co_context *ctx, co_value *leaf, void *unused)
{
    int64_t begin[CO_MAX_DIMS] = { 0 }, size[CO_MAX_DIMS] = { 0 };
    int     ndim = co_value_kind(leaf) == CO_KIND_TENSOR ? co_value_ndim(ctx, leaf) : 0;

    (void)unused;
    for (int i = 1; i < ndim; ++i)
        size[i] = co_value_dim(ctx, leaf, i);
    return ndim > 0 ? co_slice(ctx, leaf, begin, size, (size_t)ndim) : leaf;
}

/* Rows of the first tensor among the arguments. */
static int64_t
rows_of(co_context *ctx, co_value *args)
{
    co_value *first = co_at(ctx, args, 0);

    while (first != NULL && co_value_kind(first) == CO_KIND_TUPLE)
        first = co_at(ctx, first, 0);
    return first != NULL ? co_value_dim(ctx, first, 0) : 0;
}

static co_value *
replica(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user, void *data)
{
    bool      rests = co_replica_id(ctx) > 0 && ((skipping *)data)->steps % 2 == 0;
    co_value *rows, *all;

    (void)strategy;
    if (rests)
        args = co_map_structure(ctx, args, no_rows, NULL);
    /* Averages are over the rows that are really used: count them together. */
    rows = co_scalar_int64(ctx, rows_of(ctx, args));
    all = co_all_reduce(ctx, CO_REDUCE_SUM, rows);
    co_set_step_examples(ctx, co_item_int(ctx, all));
    return co_ok(ctx) ? fn(ctx, args, user) : NULL;
}

co_strategy *
skipping_strategy(co_context *ctx)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:1" };
    static const int64_t     weights[] = { 2, 1, 1 };
    co_placement             places = CO_PLACEMENT_INIT;
    co_strategy_definition   mine = CO_STRATEGY_DEFINITION_INIT;

    places.num_replicas = 3;
    places.devices = devices;
    places.weights = weights;
    mine.name = "SkippingStrategy";
    mine.placement = &places;
    mine.run = run;
    mine.replica = replica;
    mine.data = calloc(1, sizeof(skipping));
    mine.destroy = free;
    if (mine.data == NULL) {
        co_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a strategy");
        return NULL;
    }
    return co_define_strategy(ctx, &mine);
}

long
skipping_steps(co_context *ctx, co_strategy *strategy)
{
    const skipping *self = co_strategy_data(ctx, strategy);

    return self != NULL ? self->steps : 0;
}

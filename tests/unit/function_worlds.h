/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing a captured function with the same code without capturing: each has variables and
 * iterators of its own, and after the same calls with the same seeds results and variables have the
 * same bits.
 */
#ifndef COHORT_TESTS_FUNCTION_WORLDS_H
#define COHORT_TESTS_FUNCTION_WORLDS_H

#include <cohort/v1.h>

#include "test.h"

#include <stdatomic.h>

/* What a body works on. */
typedef struct world {
    co_strategy   *strategy;
    co_value      *variables[4];
    co_iterator   *iterator;
    co_optimizer  *optimizer;
    co_reduce_op   op;
    co_aggregation aggregation;
    atomic_int     calls; /* of the body itself, by replicas at the same time */
    /* In a graph it does something else: an effect that no result needs, a seed of the graph, host
     * values as results, which cannot be fetched. */
    bool not_in_graph;
} world;

typedef void (*world_fn)(co_context *ctx, world *w);

static inline co_value *
floats(co_context *ctx, float first, int n)
{
    float   data[16];
    int64_t dim = n;

    for (int i = 0; i < n; ++i)
        data[i] = first + 0.3f * (float)i;
    return co_tensor(ctx, CO_FLOAT32, &dim, 1, data);
}

static inline void
expect_same_tensors(co_context *ctx, co_value *a, co_value *b)
{
    size_t nbytes = (size_t)co_value_num_elements(ctx, a) * co_dtype_size(co_value_dtype(ctx, a));

    CO_EXPECT_INT(co_value_dtype(ctx, b), co_value_dtype(ctx, a));
    CO_EXPECT_INT(co_value_ndim(ctx, b), co_value_ndim(ctx, a));
    CO_REQUIRE(co_value_num_elements(ctx, b) == co_value_num_elements(ctx, a));
    if (nbytes > 0)
        CO_EXPECT_BYTES(co_value_data(ctx, b), co_value_data(ctx, a), nbytes);
}

/* The same structure, kinds and bits. */
static inline void
expect_same(co_context *ctx, co_value *a, co_value *b)
{
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(a != NULL && b != NULL);
    CO_EXPECT_STR(co_kind_name(co_value_kind(b)), co_kind_name(co_value_kind(a)));
    CO_REQUIRE(co_value_kind(a) == co_value_kind(b));
    switch (co_value_kind(a)) {
    case CO_KIND_TENSOR: expect_same_tensors(ctx, a, b); break;
    case CO_KIND_SLICES:
        expect_same_tensors(ctx, co_slices_values(ctx, a), co_slices_values(ctx, b));
        expect_same_tensors(ctx, co_slices_indices(ctx, a), co_slices_indices(ctx, b));
        break;
    case CO_KIND_LIST:
    case CO_KIND_TUPLE:
    case CO_KIND_DICT:
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED:
        CO_REQUIRE(co_num_items(ctx, a) == co_num_items(ctx, b));
        for (size_t i = 0; i < co_num_items(ctx, a); ++i)
            expect_same(ctx, co_at(ctx, a, i), co_at(ctx, b, i));
        break;
    case CO_KIND_INT: CO_EXPECT_INT(co_item_int(ctx, b), co_item_int(ctx, a)); break;
    case CO_KIND_FLOAT: CO_EXPECT_CLOSE(co_item_float(ctx, b), co_item_float(ctx, a), 0); break;
    default: break;
    }
}

/* The components of a variable. */
static inline void
expect_same_variables(co_context *ctx, const world *eager, const world *captured)
{
    for (int i = 0; i < 4 && eager->variables[i] != NULL; ++i) {
        co_value *a = co_local_results(ctx, eager->strategy, eager->variables[i]);
        co_value *b = co_local_results(ctx, eager->strategy, captured->variables[i]);

        for (size_t k = 0; k < co_num_items(ctx, a); ++k)
            expect_same(ctx, co_variable_read(ctx, co_at(ctx, a, k)),
                        co_variable_read(ctx, co_at(ctx, b, k)));
    }
}

/* The body in a graph, which is built once, and run by a session as often: results and variables
 * are those of `eager` after the same calls. */
static inline void
compare_in_graph(co_context *ctx, const world *with, world_fn make, co_fn body, bool runs_steps)
{
    world       eager = *with, graphed = *with;
    co_graph   *graph = co_graph_new(ctx);
    co_session *session = co_session_open(ctx, graph, NULL);
    co_value   *x = NULL, *y = NULL;

    if (make != NULL) {
        make(ctx, &eager);
        make(ctx, &graphed);
    }
    CO_GRAPH(ctx, graph)
    {
        co_value *args = co_args(ctx, x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1)));

        y = runs_steps ? co_run(ctx, with->strategy, body, args, &graphed)
                       : body(ctx, args, &graphed);
        CO_EXPECT_OK(ctx);
        CO_REQUIRE(y != NULL);
        co_keep(ctx, x);
        co_keep(ctx, y);
    }
    for (int i = 0; i < 4; ++i) {
        co_value *given = floats(ctx, (float)i + 0.7f, 3), *args = co_args(ctx, given), *a, *b;
        co_feed   feed = { x, given };

        co_set_seed(ctx, 17 + (uint64_t)i / 2);
        a = runs_steps ? co_run(ctx, with->strategy, body, args, &eager) : body(ctx, args, &eager);
        co_set_seed(ctx, 17 + (uint64_t)i / 2);
        b = co_session_run(ctx, session, y, &feed, 1);
        expect_same(ctx, a, b);
    }
    expect_same_variables(ctx, &eager, &graphed);
    CO_EXPECT_INT(graphed.calls, runs_steps ? co_num_local_replicas(ctx, with->strategy) : 1);
    CO_EXPECT_OK(ctx);
    co_release(ctx, x);
    co_release(ctx, y);
}

/* Several calls of a body with one argument, a vector; with runs_steps it is the step of a run. */
static inline void
compare_calls(co_context *ctx, const world *with, world_fn make, co_fn body, bool runs_steps)
{
    world        eager = *with, captured = *with;
    co_function *f;

    if (make != NULL) {
        make(ctx, &eager);
        make(ctx, &captured);
    }
    f = co_function_of(ctx, body, &captured, NULL);
    for (int i = 0; i < 4; ++i) {
        co_value *args = co_args(ctx, floats(ctx, (float)i + 0.7f, 3)), *a, *b;

        co_set_seed(ctx, 17 + (uint64_t)i / 2); /* two calls without setting it anew */
        a = runs_steps ? co_run(ctx, with->strategy, body, args, &eager) : body(ctx, args, &eager);
        co_set_seed(ctx, 17 + (uint64_t)i / 2);
        b = runs_steps ? co_run(ctx, with->strategy, co_captured, args, f) : co_call(ctx, f, args);
        expect_same(ctx, a, b);
    }
    expect_same_variables(ctx, &eager, &captured);
    CO_EXPECT_INT(captured.calls, runs_steps ? co_num_local_replicas(ctx, with->strategy) : 1);
    CO_EXPECT_OK(ctx);
    if (!with->not_in_graph)
        compare_in_graph(ctx, with, make, body, runs_steps);
}

/* Under the default strategy, on one device, and on two replicas. */
enum { NUM_PLACES = 3 };

static inline co_strategy *
strategy_of_place(co_context *ctx, int place)
{
    const char *const devices[] = { "/cpu:0", "/cpu:1" };

    return place == 0   ? co_default_strategy(ctx)
           : place == 1 ? co_one_device_strategy(ctx, "/cpu:0")
                        : co_mirrored_strategy(ctx, devices, 2, NULL);
}

static inline void
compare_places_of(co_context *ctx, const world *kind, world_fn make, co_fn body, bool runs_steps)
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        world with = *kind;

        with.strategy = strategy_of_place(ctx, i);
        compare_calls(ctx, &with, make, body, runs_steps);
    }
}

static inline void
compare_places(co_context *ctx, world_fn make, co_fn body, bool runs_steps)
{
    compare_places_of(ctx, &(world){ .not_in_graph = false }, make, body, runs_steps);
}

/* For bodies that do something else in a graph. */
static inline void
compare_places_but_graphs(co_context *ctx, world_fn make, co_fn body, bool runs_steps)
{
    compare_places_of(ctx, &(world){ .not_in_graph = true }, make, body, runs_steps);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Random generators: their state, in captured functions and outside, and in replicas. */
#include "function_worlds.h"

#include <pthread.h>
#include <stdlib.h>

static co_value *
normal_numbers(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_generator_normal(ctx, user, CO_FLOAT32, CO_SHAPE(2, 3), NULL);
}

static bool
are_same(co_context *ctx, co_value *a, co_value *b)
{
    size_t nbytes = (size_t)co_value_num_elements(ctx, a) * co_dtype_size(co_value_dtype(ctx, a));

    return memcmp(co_value_data(ctx, a), co_value_data(ctx, b), nbytes) == 0;
}

CO_TEST(a_generator_draws_the_same_numbers_captured_and_eager, "FN-7")
{
    co_value    *g = co_generator(ctx, 1), *h = co_generator(ctx, 1), *seen[3];
    co_function *f = co_function_of(ctx, normal_numbers, g, NULL);

    for (int i = 0; i < 3; ++i) {
        seen[i] = co_call(ctx, f, co_no_args(ctx));
        expect_same(ctx, normal_numbers(ctx, NULL, h), seen[i]);
    }
    CO_EXPECT_FALSE(are_same(ctx, seen[0], seen[1]));
    expect_same(ctx, co_variable_read(ctx, g), co_variable_read(ctx, h));
    co_generator_reset(ctx, g, 1);
    for (int i = 0; i < 3; ++i)
        expect_same(ctx, seen[i], co_call(ctx, f, co_no_args(ctx)));
    co_generator_reset(ctx, g, 2);
    CO_EXPECT_FALSE(are_same(ctx, seen[0], co_call(ctx, f, co_no_args(ctx))));
}

CO_TEST(generators_split_into_others, "")
{
    co_value *g = co_generator(ctx, 1), *before = co_variable_read(ctx, g);
    co_value *parts = co_generator_split(ctx, g, 3), *seen[3];

    CO_EXPECT_FALSE(are_same(ctx, before, co_variable_read(ctx, g)));
    CO_REQUIRE(parts != NULL && co_num_items(ctx, parts) == 3);
    for (size_t i = 0; i < 3; ++i)
        seen[i] = normal_numbers(ctx, NULL, co_at(ctx, parts, i));
    CO_EXPECT_FALSE(are_same(ctx, seen[0], seen[1]));
    CO_EXPECT_FALSE(are_same(ctx, seen[0], seen[2]));
    CO_EXPECT_FALSE(are_same(ctx, seen[1], seen[2]));
    CO_EXPECT_INT(co_num_items(ctx, co_generator_split(ctx, g, 0)), 0);
    CO_EXPECT_NULL(co_generator_split(ctx, g, -1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "count");
}

static co_value *
draw_in_step(co_context *ctx, co_value *args, void *user)
{
    co_random_uniform_options options = CO_RANDOM_UNIFORM_OPTIONS_INIT;

    (void)args;
    options.high = 1000000;
    return co_generator_uniform(ctx, user, CO_INT64, CO_SHAPE(4), &options);
}

CO_TEST_WITH(replicas_draw_different_numbers_of_a_generator, "", "cpus=2")
{
    co_strategy *strategy = strategy_of_place(ctx, 2);
    co_value    *g = NULL, *h = NULL, *eager, *seen;
    co_function *f;

    CO_SCOPE(ctx, strategy) {
        g = co_generator(ctx, 7);
        h = co_generator(ctx, 7);
    }
    f = co_function_of(ctx, draw_in_step, g, NULL);
    for (int i = 0; i < 2; ++i) {
        seen = co_run(ctx, strategy, co_captured, co_no_args(ctx), f);
        eager = co_run(ctx, strategy, draw_in_step, co_no_args(ctx), h);
        expect_same(ctx, eager, seen);
        CO_EXPECT_FALSE(are_same(ctx, co_at(ctx, seen, 0), co_at(ctx, seen, 1)));
    }
}

CO_TEST(a_generator_of_a_graph_advances_with_every_draw, "GR-2 FN-7")
{
    co_graph *graph = co_graph_new(ctx);
    co_value *h = co_generator(ctx, 5), *eager[4];

    for (int i = 0; i < 4; ++i)
        eager[i] = normal_numbers(ctx, NULL, h);
    CO_GRAPH(ctx, graph)
    {
        co_value   *g = co_generator(ctx, 5), *x = normal_numbers(ctx, NULL, g), *y, *both;
        co_session *session = co_session_open(ctx, NULL, NULL);

        y = normal_numbers(ctx, NULL, g);
        co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
        expect_same(ctx, eager[0], co_session_run(ctx, session, x, NULL, 0));
        both = co_session_run(ctx, session, co_args(ctx, x, y), NULL, 0);
        expect_same(ctx, eager[1], co_at(ctx, both, 0));
        expect_same(ctx, eager[2], co_at(ctx, both, 1));
        expect_same(ctx, eager[3], co_session_run(ctx, session, y, NULL, 0));
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST_WITH(steps_of_a_graph_draw_other_numbers_in_every_run, "GR-2", "cpus=2")
{
    co_strategy *strategy = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *g = NULL, *drawn, *seen[2];
        co_session *session = co_session_open(ctx, NULL, NULL);

        CO_SCOPE(ctx, strategy)
            g = co_generator(ctx, 7);
        drawn = co_local_results(ctx, strategy,
                                 co_run(ctx, strategy, draw_in_step, co_no_args(ctx), g));
        co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
        for (int i = 0; i < 2; ++i) {
            seen[i] = co_session_run(ctx, session, drawn, NULL, 0);
            CO_REQUIRE(seen[i] != NULL);
            CO_EXPECT_FALSE(are_same(ctx, co_at(ctx, seen[i], 0), co_at(ctx, seen[i], 1)));
        }
        CO_EXPECT_FALSE(are_same(ctx, co_at(ctx, seen[0], 0), co_at(ctx, seen[1], 0)));
        CO_EXPECT_FALSE(are_same(ctx, co_at(ctx, seen[0], 1), co_at(ctx, seen[1], 1)));
        CO_EXPECT_OK(ctx);
    }
}

#define NUM_THREADS 4
#define NUM_DRAWS   200

typedef struct drawer {
    co_context *ctx;
    co_value   *generator;
    pthread_t   thread;
    double      seen[NUM_DRAWS];
} drawer;

static void *
draw_many(void *arg)
{
    drawer *d = arg;

    for (int i = 0; i < NUM_DRAWS; ++i)
        CO_BLOCK(d->ctx)
            d->seen[i] = co_item_float(d->ctx, co_generator_uniform(d->ctx, d->generator,
                                                                    CO_FLOAT64, NULL, 0, NULL));
    return NULL;
}

static int
compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

CO_TEST(threads_draw_different_numbers_of_a_generator, "FN-7")
{
    static drawer drawers[NUM_THREADS];
    static double all[NUM_THREADS * NUM_DRAWS];
    co_value     *g = co_generator(ctx, 9);
    int           equal = 0;

    for (int i = 0; i < NUM_THREADS; ++i) {
        drawers[i].ctx = co_open_beside(ctx);
        drawers[i].generator = g;
        pthread_create(&drawers[i].thread, NULL, draw_many, &drawers[i]);
    }
    for (int i = 0; i < NUM_THREADS; ++i) {
        pthread_join(drawers[i].thread, NULL);
        CO_EXPECT_OK(drawers[i].ctx);
        memcpy(&all[i * NUM_DRAWS], drawers[i].seen, sizeof(drawers[i].seen));
        co_close(drawers[i].ctx);
    }
    qsort(all, NUM_THREADS * NUM_DRAWS, sizeof(all[0]), compare_numbers);
    for (int i = 1; i < NUM_THREADS * NUM_DRAWS; ++i)
        equal += all[i] == all[i - 1];
    CO_EXPECT_INT(equal, 0);
}

CO_TEST(what_is_no_generator_is_refused, "")
{
    co_value *v = co_variable(ctx, floats(ctx, 1, 3), NULL);

    CO_EXPECT_NULL(normal_numbers(ctx, NULL, v));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_generator");
    CO_EXPECT_NULL(normal_numbers(ctx, NULL, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "generator");
    CO_EXPECT_CODE(co_generator_reset(ctx, v, 1), CO_TYPE_ERROR);
    co_clear(ctx);
    CO_EXPECT_NULL(co_generator_normal(ctx, co_generator(ctx, 1), CO_FLOAT32, NULL, 9, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "9");
}

static bool
draw_and_split(co_context *ctx)
{
    co_value    *g = ctx != NULL ? co_generator(ctx, 3) : NULL, *parts;
    co_function *f = g != NULL ? co_function_of(ctx, normal_numbers, g, NULL) : NULL;

    if (f == NULL || co_call(ctx, f, co_no_args(ctx)) == NULL)
        return false;
    parts = co_generator_split(ctx, g, 2);
    return parts != NULL && co_generator_reset(ctx, g, 1) == CO_OK;
}

CO_TEST_BARE(want_of_memory_in_generators_is_an_error, "")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, draw_and_split);
}

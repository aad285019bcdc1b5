/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph mode: the order in which a session makes calls, and tapes, which depend on it. A call has
 * the tape that was innermost when it was made, whatever is open when it runs.
 */
#include <cohort/train.h>
#include <cohort/v1.h>

#include "vector_support.h"

static double
number(co_context *ctx, co_session *session, co_value *fetch)
{
    return co_item_float(ctx, co_session_run(ctx, session, fetch, NULL, 0));
}

CO_TEST(what_others_wait_for_is_brought_forward, "GR-5")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        co_value   *w = co_variable(ctx, co_scalar_float(ctx, 5), NULL);
        co_value   *first = co_assign(ctx, v, co_float(ctx, 1));
        co_value   *second = co_assign_add(ctx, v, w);
        co_value   *late = co_assign(ctx, w, co_float(ctx, 100));
        co_session *session = co_session_open(ctx, NULL, NULL);

        co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
        CO_EXPECT_CODE(co_add_control_input(ctx, first, late), CO_OK);
        /* The other two keep their order. */
        co_session_run(ctx, session, co_group(ctx, co_args(ctx, second, first)), NULL, 0);
        CO_EXPECT_CLOSE(number(ctx, session, v), 101, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(control_inputs_hold_for_all_of_a_structure, "GR-5")
{
    co_graph *graph = co_graph_new(ctx), *second = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
        co_value *w = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
        co_value *reads[] = { co_variable_read(ctx, v), co_variable_read(ctx, w) }, *foreign = NULL;
        co_value *writes[] = { co_assign(ctx, v, co_float(ctx, 10)),
                               co_assign(ctx, w, co_float(ctx, 20)) };
        co_session *session = co_session_open(ctx, NULL, NULL);

        co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
        CO_EXPECT_CODE(co_add_control_input(ctx, co_list(ctx, reads, 2), co_list(ctx, writes, 2)),
                       CO_OK);
        CO_EXPECT_CLOSE(number(ctx, session, reads[1]), 20, 0);
        CO_EXPECT_CLOSE(number(ctx, session, v), 10, 0);
        CO_EXPECT_CLOSE(number(ctx, session, reads[0]), 10, 0);
        CO_EXPECT_CODE(co_add_control_input(ctx, writes[1], co_list(ctx, reads, 2)),
                       CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "wait for each other");
        CO_GRAPH(ctx, second)
        foreign = co_neg(ctx, co_scalar_float(ctx, 1));
        CO_EXPECT_CODE(co_add_control_input(ctx, writes[1], co_args(ctx, writes[0], foreign)),
                       CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3");
        CO_EXPECT_CODE(co_add_control_input(ctx, co_args(ctx, writes[0], v), writes[1]),
                       CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2");
        CO_EXPECT_CODE(co_add_control_input(ctx, writes[1], co_no_args(ctx)), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3");
    }
}

static bool
control_in_little_memory(co_context *ctx)
{
    co_graph *graph = co_graph_new(ctx);
    bool      ok = false;

    if (graph == NULL)
        return false;
    CO_GRAPH(ctx, graph)
    {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *read, *late;
        co_session *session = co_session_open(ctx, NULL, NULL);

        read = co_variable_read(ctx, v);
        late = co_assign(ctx, v, co_float(ctx, 5));
        ok = co_add_control_input(ctx, read, late) == CO_OK &&
             co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0) != NULL &&
             number(ctx, session, read) == 5;
    }
    return ok;
}

CO_TEST_BARE(want_of_memory_for_a_control_input_is_no_circle, "GR-5")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, control_in_little_memory);
}

CO_TEST(a_gradient_that_waits_finds_its_tape, "GR-5 FN-8")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *y, *dx, *late, *both;
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };

        co_tape_begin_persistent(ctx);
        co_watch(ctx, x);
        y = co_square(ctx, x);
        dx = co_gradient(ctx, y, x);
        co_tape_end(ctx);
        late = co_assign_add(ctx, v, co_float(ctx, 1));
        co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
        CO_EXPECT_CODE(co_add_control_input(ctx, dx, late), CO_OK);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, dx, &feed, 1)), 6, 0);
        CO_EXPECT_CLOSE(number(ctx, session, v), 1, 0);
        both = co_session_run(ctx, session, co_args(ctx, dx, y), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, both, 1)), 9, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(a_watch_that_waits_for_what_it_lets_watch_stays_where_it_is, "GR-5 FN-8")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *watch, *y, *dx;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };

        co_tape_begin(ctx);
        co_watch(ctx, x);
        watch = co_last_operation(ctx);
        y = co_square(ctx, x);
        dx = co_gradient(ctx, y, x);
        CO_EXPECT_CODE(co_add_control_input(ctx, watch, y), CO_OK);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, dx, &feed, 1)), 6, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(two_updates_that_wait_for_one_operation_have_their_own_tapes, "GR-5 FN-8")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_sgd_options options = CO_SGD_OPTIONS_INIT;
        co_value      *w[2], *updates[2], *late, *v;
        co_optimizer  *optimizer;
        co_session    *session = co_session_open(ctx, NULL, NULL);

        options.learning_rate = 0.125;
        optimizer = co_sgd(ctx, &options);
        v = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        for (int i = 0; i < 2; ++i) {
            w[i] = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
            co_tape_begin(ctx);
            co_minimize(ctx, optimizer,
                        co_mul(ctx, co_square(ctx, w[i]), co_float(ctx, i == 0 ? 1 : 2)));
            updates[i] = co_last_operation(ctx);
        }
        late = co_assign_add(ctx, v, co_float(ctx, 1));
        for (int i = 0; i < 2; ++i)
            CO_EXPECT_CODE(co_add_control_input(ctx, updates[i], late), CO_OK);
        co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
        co_session_run(ctx, session, co_args(ctx, updates[0], updates[1]), NULL, 0);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_CLOSE(number(ctx, session, w[0]), 1.5, 0);
        CO_EXPECT_CLOSE(number(ctx, session, w[1]), 1, 0);
        CO_EXPECT_CLOSE(number(ctx, session, v), 1, 0);
    }
}

CO_TEST(a_gradient_is_brought_forward_with_its_tape, "GR-5 FN-8")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *first, *second, *third, *half, *z;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };
        co_value   *seen;

        co_tape_begin(ctx);
        co_watch(ctx, x);
        first = co_gradient(ctx, co_square(ctx, x), x); /* 6 */
        half = co_mul(ctx, x, co_float(ctx, 0.5));      /* not on the tape of the next */
        co_tape_begin_persistent(ctx);
        co_watch(ctx, x);
        z = co_mul(ctx, half, co_square(ctx, x));
        second = co_gradient(ctx, z, x); /* 9 */
        third = co_gradient(ctx, co_mul(ctx, z, x), x);
        co_tape_end(ctx);
        CO_EXPECT_CODE(co_add_control_input(ctx, first, second), CO_OK);
        seen = co_session_run(ctx, session, co_args(ctx, first, third), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 0)), 6, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 1)), 40.5, 0);
        seen = co_session_run(ctx, session, co_args(ctx, first, second), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 1)), 9, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(the_calls_of_tapes_are_operations_that_can_be_fetched, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *y, *watch, *end, *group, *seen;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };

        co_tape_begin_persistent(ctx);
        co_watch(ctx, x);
        watch = co_last_operation(ctx);
        y = co_gradient(ctx, co_square(ctx, x), x);
        co_tape_end(ctx);
        end = co_last_operation(ctx);
        group = co_group(ctx, co_args(ctx, end, watch));
        CO_EXPECT_INT(co_value_kind(co_session_run(ctx, session, end, &feed, 1)), CO_KIND_NONE);
        CO_EXPECT_INT(co_value_kind(co_session_run(ctx, session, watch, &feed, 1)), CO_KIND_NONE);
        CO_EXPECT_INT(co_value_kind(co_session_run(ctx, session, group, &feed, 1)), CO_KIND_NONE);
        seen = co_session_run(ctx, session, co_args(ctx, group, y), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 1)), 6, 0);
        CO_EXPECT_OK(ctx);
    }
}

/* The gradient of a gradient, of which the inner one has a tape that ends with its block. */
static co_value *
end_with_block(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *g = NULL;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_square(ctx, x);
    CO_BLOCK(ctx) {
        co_tape_begin_persistent(ctx);
        co_watch(ctx, y);
        g = co_gradient(ctx, co_mul(ctx, y, y), y); /* 2 x^2 */
        co_keep(ctx, g);
    }
    y = co_gradient(ctx, g, x); /* 4 x */
    co_release(ctx, g);
    return y;
}

CO_TEST(a_tape_that_ended_with_its_block_is_not_taken_for_another, "GR-2 FN-8")
{
    co_value *x = co_scalar_float(ctx, 3), *seen;
    co_graph *graph = co_graph_new(ctx);

    CO_EXPECT_CLOSE(co_item_float(ctx, end_with_block(ctx, co_args(ctx, x), NULL)), 12, 0);
    for (int i = 0; i < 3; ++i) {
        seen = co_call(ctx, co_function_of(ctx, end_with_block, NULL, NULL), co_args(ctx, x));
        CO_EXPECT_CLOSE(co_item_float(ctx, seen), 12, 0);
    }
    CO_GRAPH(ctx, graph)
    {
        co_session *session = co_session_open(ctx, NULL, NULL);

        CO_EXPECT_CLOSE(number(ctx, session, end_with_block(ctx, co_args(ctx, x), NULL)), 12, 0);
    }
    CO_EXPECT_OK(ctx);
}

static co_value *
square_gradient(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    return co_gradient(ctx, co_square(ctx, x), x);
}

/* Whether a gradient ends its tape. */
static bool
ends_its_tape(co_context *ctx)
{
    co_value *x = co_scalar_float(ctx, 3);
    bool      ok;

    if (co_item_float(ctx, square_gradient(ctx, co_args(ctx, x), NULL)) != 6)
        return false;
    co_watch(ctx, x);
    ok = co_error(ctx)->code == CO_RUNTIME_ERROR;
    co_clear(ctx);
    CO_EXPECT_TRUE(ok);
    return ok;
}

static bool
tapes_in_little_memory(co_context *ctx, bool in_graph)
{
    co_graph    *graph = co_graph_new(ctx);
    co_value    *x = co_scalar_float(ctx, 3), *dx = NULL;
    co_session  *session = graph != NULL ? co_session_open(ctx, graph, NULL) : NULL;
    co_function *f = co_function_of(ctx, square_gradient, NULL, NULL);

    if (session == NULL || f == NULL || x == NULL)
        return false;
    CO_GRAPH(ctx, graph)
    dx = square_gradient(ctx, co_args(ctx, x), NULL);
    if (dx == NULL)
        return false;
    if ((in_graph ? co_session_run(ctx, session, dx, NULL, 0) : co_call(ctx, f, co_args(ctx, x))) ==
        NULL) {
        if (co_error(ctx)->code != CO_RESOURCE_EXHAUSTED)
            return false;
        co_clear(ctx); /* the one that failed is over: it has left nothing behind */
    }
    return ends_its_tape(ctx);
}

static bool
graph_tapes_in_little_memory(co_context *ctx)
{
    return ctx != NULL && tapes_in_little_memory(ctx, true);
}

static bool
function_tapes_in_little_memory(co_context *ctx)
{
    return ctx != NULL && tapes_in_little_memory(ctx, false);
}

CO_TEST_BARE(a_tape_that_had_no_memory_does_not_count_after_the_run, "GR-2 FN-10")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, graph_tapes_in_little_memory);
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, function_tapes_in_little_memory);
}

CO_TEST(tapes_of_a_graph_that_is_entered_again_are_others, "GR-2 CTX-7")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *y, *dx, *inner = NULL;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };

        co_tape_begin(ctx);
        co_watch(ctx, x);
        y = co_square(ctx, x);
        CO_INIT_SCOPE(ctx)
        {
            co_tape_begin(ctx);
            co_watch(ctx, x);
            inner = co_gradient(ctx, co_mul(ctx, x, co_float(ctx, 7)), x);
            co_keep(ctx, inner);
        }
        dx = co_gradient(ctx, y, x);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, dx, &feed, 1)), 6, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, inner, &feed, 1)), 7, 0);
        CO_EXPECT_NOT_NULL(co_session_run(ctx, session, co_args(ctx, dx, inner), &feed, 1));
        CO_EXPECT_OK(ctx);
        co_release(ctx, inner);
    }
}

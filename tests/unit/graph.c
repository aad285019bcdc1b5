/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph mode: a context that adds to its graph, and sessions that run parts of it.
 */
#include <cohort/v1.h>

#include "vector_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static co_value *
run(co_context *ctx, co_session *session, co_value *fetches)
{
    return co_session_run(ctx, session, fetches, NULL, 0);
}

CO_TEST(operators_add_to_the_graph_and_a_session_computes, "GR-1 GR-2")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1));
        co_value   *y = co_mul(ctx, co_add(ctx, x, co_float(ctx, 1)), co_scalar_float(ctx, 2));
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, vector(ctx, 1, 3) };
        co_value   *result;

        CO_EXPECT_TRUE(!co_executing_eagerly(ctx));
        CO_EXPECT_INT(co_value_kind(y), CO_KIND_SYMBOLIC);
        CO_EXPECT_INT(co_graph_num_operations(ctx, graph), 3);
        result = co_session_run(ctx, session, y, &feed, 1);
        CO_EXPECT_CLOSE(element(ctx, result, 2), 8, 0);
        feed.value = vector(ctx, 5, 2);
        result = co_session_run(ctx, session, co_args(ctx, y, x), &feed, 1);
        CO_EXPECT_CLOSE(element(ctx, co_at(ctx, result, 0), 1), 14, 0);
        CO_EXPECT_CLOSE(element(ctx, co_at(ctx, result, 1), 1), 6, 0);
        CO_EXPECT_INT(co_graph_num_operations(ctx, graph), 3);
    }
    CO_EXPECT_TRUE(co_executing_eagerly(ctx));
}

CO_TEST(a_context_changes_its_mode_before_the_first_operation_only, "GR-1")
{
    co_context *other = co_open_beside(ctx), *third = co_open_beside(ctx);
    co_context *fourth = co_open_beside(ctx);
    co_value   *x;

    CO_EXPECT_TRUE(co_executing_eagerly(other));
    CO_EXPECT_CODE(co_v1_disable_eager_execution(other), CO_OK);
    CO_EXPECT_TRUE(!co_executing_eagerly(other));
    CO_EXPECT_TRUE(co_executing_eagerly(ctx)); /* a property of the context */
    CO_EXPECT_CODE(co_v1_enable_eager_execution(other), CO_OK);
    CO_EXPECT_CODE(co_v1_disable_eager_execution(other), CO_OK);
    CO_EXPECT_CODE(co_v1_disable_eager_execution(other), CO_OK);
    x = co_add(other, co_scalar_float(other, 1), co_scalar_float(other, 2));
    CO_EXPECT_INT(co_value_kind(x), CO_KIND_SYMBOLIC);
    CO_EXPECT_CODE(co_v1_enable_eager_execution(other), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(other, CO_VALUE_ERROR, "after 1 operations");
    x = run(other, co_session_open(other, NULL, NULL), x);
    CO_EXPECT_CLOSE(co_item_float(other, x), 3, 0);

    x = co_add(third, co_scalar_float(third, 1), co_scalar_float(third, 2));
    CO_EXPECT_CODE(co_v1_disable_eager_execution(third), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(third, CO_VALUE_ERROR, "right after co_open");
    CO_EXPECT_CLOSE(co_item_float(third, x), 3, 0);
    CO_BLOCK(fourth)
        co_scalar_float(fourth, 1); /* which is gone afterwards */
    CO_EXPECT_CODE(co_v1_disable_eager_execution(fourth), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(fourth, CO_VALUE_ERROR, "right after co_open");
    CO_EXPECT_CODE(co_v1_enable_eager_execution(NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(co_v1_disable_eager_execution(NULL), CO_INVALID_ARGUMENT);
    co_close(other);
    co_close(third);
    co_close(fourth);
}

/* Counts starts of operators, but for those that make tensors of data. */
static void
count_starts(const co_observation *seen, void *user)
{
    if (seen->phase == CO_OBSERVE_BEGIN && (seen->kernel != NULL || seen->writes != 0))
        ++*(int *)user;
}

CO_TEST(a_run_computes_only_what_the_fetches_need_and_that_once, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);
    int       starts = 0;

    CO_GRAPH(ctx, graph)
    {
        co_value    *a = co_square(ctx, co_scalar_float(ctx, 3));
        co_value    *b = co_add(ctx, a, a), *c = co_mul(ctx, a, b);
        co_value    *other = co_exp(ctx, a), *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0);
        co_value    *unfed = co_add(ctx, x, c), *result;
        co_session  *session = co_session_open(ctx, graph, NULL);
        co_observer *observer = co_observe(ctx, count_starts, &starts);

        CO_EXPECT_INT(starts, 0);
        result = run(ctx, session, b);
        CO_EXPECT_INT(starts, 2);
        CO_EXPECT_CLOSE(co_item_float(ctx, result), 18, 0);
        starts = 0;
        result = run(ctx, session, co_args(ctx, c, b, a));
        CO_EXPECT_INT(starts, 3);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, result, 0)), 162, 0);
        starts = 0;
        run(ctx, session, other);
        CO_EXPECT_INT(starts, 2);
        starts = 0;
        CO_EXPECT_NULL(run(ctx, session, unfed));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "placeholder");
        co_unobserve(ctx, observer);
    }
}

CO_TEST(any_structure_can_be_fetched_and_any_tensor_fed, "GR-2 GR-4")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *a = co_square(ctx, co_scalar_float(ctx, 3)), *b = co_neg(ctx, a);
        co_value   *d = co_placeholder_with_default(ctx, co_scalar_float(ctx, 7), NULL, 0);
        co_value   *items[] = { a, co_list(ctx, &b, 1) };
        const char *keys[] = { "a", "more" };
        co_session *session = co_session_open(ctx, graph, NULL);
        co_value   *result = run(ctx, session, co_dict(ctx, keys, items, 2));
        co_feed     feeds[] = { { a, co_float(ctx, 5) }, { d, co_scalar_float(ctx, 1) } };

        CO_EXPECT_INT(co_value_kind(result), CO_KIND_DICT);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_get(ctx, result, "more"), 0)), -9, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, d)), 7, 0);
        result = co_session_run(ctx, session, co_args(ctx, b, d), feeds, 2);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, result, 0)), -5, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, result, 1)), 1, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, co_scalar_float(ctx, 4))), 4, 0);
        CO_EXPECT_INT(co_value_kind(run(ctx, session, co_no_op(ctx))), CO_KIND_NONE);
    }
}

CO_TEST(what_is_fed_stays_when_its_operation_runs, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *parts = co_unstack(ctx, co_neg(ctx, vector(ctx, 1, 2)), 0);
        co_value   *first = co_at(ctx, parts, 0), *second = co_at(ctx, parts, 1);
        co_value   *sum = co_add(ctx, co_add(ctx, first, second), first);
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { first, co_float(ctx, 10) };

        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, sum)), -4, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, sum, &feed, 1)), 18, 0);
    }
}

CO_TEST(datasets_of_a_graph_are_made_of_constants, "GR-1")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value    *two[] = { co_scalar_float(ctx, 1), co_scalar_float(ctx, 2) };
        co_value    *numbers[] = { co_int(ctx, 3), co_int(ctx, 4) };
        co_value    *both = co_args(ctx, co_list(ctx, two, 2), co_list(ctx, numbers, 2));
        co_dataset  *data = co_dataset_from_tensor_slices(ctx, both);
        co_iterator *it = co_make_one_shot_iterator(ctx, data);
        co_session  *session = co_session_open(ctx, NULL, NULL);
        co_value    *next;

        CO_EXPECT_OK(ctx);
        next = run(ctx, session, co_get_next(ctx, it));
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, next, 0)), 1, 0);
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, next, 1)), 3);
        CO_EXPECT_NULL(co_dataset_from_tensor_slices(ctx, co_neg(ctx, vector(ctx, 1, 2))));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    }
}

CO_TEST(wrong_fetches_and_feeds_are_refused, "GR-4")
{
    co_graph   *graph = co_graph_new(ctx), *second = co_graph_new(ctx);
    co_session *session = co_session_open(ctx, graph, NULL);
    co_value   *x = NULL, *y = NULL, *foreign = NULL, *op = NULL, *v = NULL;

    CO_GRAPH(ctx, graph)
    {
        x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1, 2));
        y = co_neg(ctx, x);
        op = co_no_op(ctx);
        v = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
    }
    CO_GRAPH(ctx, second)
    {
        foreign = co_neg(ctx, co_scalar_float(ctx, 1));
        CO_EXPECT_NULL(co_add(ctx, foreign, y));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "another graph");
    }
    CO_EXPECT_NULL(run(ctx, session, foreign));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "another graph");
    CO_EXPECT_NULL(run(ctx, session, co_args(ctx, y, co_int(ctx, 3))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "cannot be fetched");
    CO_EXPECT_NULL(run(ctx, session, co_none(ctx)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "cannot be fetched");
    CO_EXPECT_NULL(run(ctx, session, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "fetches");

    struct {
        co_feed     feed;
        co_code     code;
        const char *part;
    } cases[] = {
        { { x, vector(ctx, 1, 2) }, CO_VALUE_ERROR, "does not fit" },
        { { x, co_zeros(ctx, CO_INT32, CO_SHAPE(1, 2)) }, CO_TYPE_ERROR, "int32" },
        { { x, y }, CO_TYPE_ERROR, "no elements" },
        { { x, co_string(ctx, "a") }, CO_INVALID_ARGUMENT, NULL },
        { { foreign, co_float(ctx, 1) }, CO_TYPE_ERROR, "another graph" },
        { { op, co_float(ctx, 1) }, CO_VALUE_ERROR, "an operation" },
        { { v, co_float(ctx, 1) }, CO_VALUE_ERROR, "cannot be fed" },
        { { co_scalar_float(ctx, 1), co_float(ctx, 1) }, CO_VALUE_ERROR, "cannot be fed" },
        { { NULL, co_float(ctx, 1) }, CO_INVALID_ARGUMENT, "tensor" },
        { { x, NULL }, CO_INVALID_ARGUMENT, "value" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        CO_EXPECT_NULL(co_session_run(ctx, session, y, &cases[i].feed, 1));
        CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].part);
    }
    CO_EXPECT_NULL(co_session_run(ctx, session, y, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "feeds");
    co_feed twice[] = { { x, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1, 2)) },
                        { x, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1, 2)) } };
    CO_EXPECT_NULL(co_session_run(ctx, session, y, twice, 2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "already");
    CO_EXPECT_NOT_NULL(co_session_run(ctx, session, y, twice, 1)); /* nothing is lost */

    co_item_float(ctx, y);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    CO_EXPECT_CODE(co_session_close(ctx, session), CO_OK);
    CO_EXPECT_CODE(co_session_close(ctx, session), CO_OK);
    CO_EXPECT_NULL(co_session_run(ctx, session, y, twice, 1));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "closed");
}

CO_TEST(errors_have_the_line_of_the_operation, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);
    co_value *wide = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    co_value *square = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 2));

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, -1);
        int         line = __LINE__ + 1;
        co_value   *y = co_matmul(ctx, x, x);
        co_session *session = co_session_open(ctx, graph, NULL);
        co_feed     feed = { x, wide };

        CO_EXPECT_NULL(co_session_run(ctx, session, y, &feed, 1));
        CO_EXPECT_INT(co_error(ctx)->line, line);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
        feed.value = square;
        CO_EXPECT_NOT_NULL(co_session_run(ctx, session, y, &feed, 1));
    }
}

CO_TEST(the_error_of_a_fetched_variable_has_the_line_of_the_run, "GR-2 GR-3")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
        co_value   *both = co_args(ctx, co_square(ctx, co_scalar_float(ctx, 3)), v);
        co_session *session = co_session_open(ctx, graph, NULL);
        int         line = __LINE__ + 1;
        co_value   *result = co_session_run(ctx, session, both, NULL, 0);

        CO_EXPECT_NULL(result);
        CO_EXPECT_INT(co_error(ctx)->line, line);
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
    }
}

/* --- variables --- */

CO_TEST(variables_have_no_value_before_their_initializer_ran, "GR-3")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
        co_value   *w = co_variable(ctx, co_mul(ctx, v, co_float(ctx, 2)), NULL);
        co_value   *y = co_add(ctx, v, w), *more = co_assign_add(ctx, v, co_float(ctx, 1));
        co_value   *is = co_is_variable_initialized(ctx, v);
        co_session *session = co_session_open(ctx, graph, NULL);

        CO_EXPECT_INT(co_num_items(ctx, co_global_variables(ctx)), 2);
        CO_EXPECT_TRUE(!co_item_int(ctx, run(ctx, session, is)));
        CO_EXPECT_NULL(run(ctx, session, y));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(run(ctx, session, v));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(run(ctx, session, co_variable_initializer(ctx, w))); /* it reads v */
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(run(ctx, session, more));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_INT(co_value_kind(run(ctx, session, co_global_variables_initializer(ctx))),
                      CO_KIND_NONE);
        CO_EXPECT_TRUE(co_item_int(ctx, run(ctx, session, is)));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, y)), 9, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, v)), 3, 0); /* nothing assigned it */
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, more)), 4, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, more)), 5, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, y)), 11, 0);
        run(ctx, session, co_variables_initializer(ctx, co_args(ctx, v)));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, y)), 9, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(a_graph_uses_and_fetches_variables_of_other_places, "GR-2")
{
    co_graph *graph = co_graph_new(ctx), *second = co_graph_new(ctx);
    co_value *eager = co_variable(ctx, co_scalar_float(ctx, 5), NULL), *foreign = NULL;

    CO_GRAPH(ctx, second)
    foreign = co_variable(ctx, co_scalar_float(ctx, 7), NULL);
    CO_GRAPH(ctx, graph)
    {
        co_session *session = co_session_open(ctx, graph, NULL);
        co_value   *sum = co_add(ctx, eager, foreign), *more;

        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, eager)), 5, 0);
        CO_EXPECT_NULL(run(ctx, session, sum));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        CO_EXPECT_NULL(co_variable_initializer(ctx, foreign));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not of the current graph");
        CO_GRAPH(ctx, second)
        run(ctx, co_session_open(ctx, NULL, NULL), co_global_variables_initializer(ctx));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, sum)), 12, 0);
        more = co_assign_add(ctx, eager, co_float(ctx, 1));
        run(ctx, session, more);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, eager)), 6, 0);
}

CO_TEST_WITH(variables_of_strategies_are_initialized_on_all_replicas, "GR-3 VAR-NEW-4", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *v = NULL, *sum = NULL, *parts;
        co_session         *session = co_session_open(ctx, graph, NULL);

        options.synchronization = CO_SYNC_ON_READ;
        options.aggregation = CO_AGGREGATION_SUM;
        CO_SCOPE(ctx, m) {
            v = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
            sum = co_variable(ctx, co_scalar_float(ctx, 2), &options);
        }
        CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
        run(ctx, session, co_global_variables_initializer(ctx));
        parts = co_local_results(ctx, m, v);
        CO_EXPECT_INT(co_num_items(ctx, parts), 2);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, co_at(ctx, parts, 1))), 3, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, sum)), 4, 0); /* 2 on each */
        CO_EXPECT_OK(ctx);
    }
}

/* --- what comes after what --- */

CO_TEST(control_dependencies_order_operations, "GR-5")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *after = NULL, *none = NULL;
        co_value *more = co_assign_add(ctx, v, co_float(ctx, 1)), *add, *late;
        co_session *session = co_session_open(ctx, graph, NULL);

        run(ctx, session, co_global_variables_initializer(ctx));
        CO_CONTROL_DEPENDENCIES(ctx, co_args(ctx, more))
        {
            after = co_variable_read(ctx, v);
            CO_CONTROL_DEPENDENCIES(ctx, co_none(ctx))
            none = co_variable_read(ctx, v);
        }
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, none)), 1, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, after)), 2, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, after)), 3, 0);
        CO_EXPECT_INT(co_value_kind(run(ctx, session, co_group(ctx, co_args(ctx, after, more)))),
                      CO_KIND_NONE);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, none)), 4, 0);

        add = co_mul(ctx, none, co_float(ctx, 10));
        late = co_assign(ctx, v, co_float(ctx, 100));
        CO_EXPECT_CODE(co_add_control_input(ctx, none, late), CO_OK); /* made later */
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, add)), 1000, 0);
        CO_EXPECT_CODE(co_add_control_input(ctx, late, add), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "wait for each other");
        CO_EXPECT_CODE(co_add_control_input(ctx, add, add), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "wait for each other");
        CO_EXPECT_CODE(co_add_control_input(ctx, add, v), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3");
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, add)), 1000, 0);
    }
}

static co_value *
read_it(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_variable_read(ctx, user);
}

CO_TEST(control_dependencies_do_not_hold_in_an_init_scope, "GR-5 CTX-7")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *after = NULL;
        co_value   *more = co_assign_add(ctx, v, co_float(ctx, 1)), *inside = NULL, *called = NULL;
        co_session *session = co_session_open(ctx, NULL, NULL);

        run(ctx, session, co_global_variables_initializer(ctx));
        CO_CONTROL_DEPENDENCIES(ctx, more)
        {
            CO_INIT_SCOPE(ctx)
            inside = co_variable_read(ctx, v);
            called = co_init_scope(ctx, read_it, NULL, v);
            after = co_variable_read(ctx, v);
        }
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, inside)), 1, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, called)), 1, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, after)), 2, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(a_final_graph_takes_nothing_more, "GR-5")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *y = co_neg(ctx, co_scalar_float(ctx, 1));
        co_session *session = co_session_open(ctx, graph, NULL);

        CO_EXPECT_TRUE(!co_graph_is_finalized(ctx, graph));
        CO_EXPECT_CODE(co_graph_finalize(ctx, graph), CO_OK);
        CO_EXPECT_TRUE(co_graph_is_finalized(ctx, graph));
        CO_EXPECT_NULL(co_neg(ctx, y));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "final");
        CO_EXPECT_NULL(co_variable(ctx, co_scalar_float(ctx, 1), NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "final");
        CO_EXPECT_NULL(co_placeholder(ctx, CO_FLOAT32, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "final");
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, y)), -1, 0);
        CO_EXPECT_INT(co_graph_num_operations(ctx, graph), 1);
    }
}

/* --- strategies --- */

static co_value *
double_it(co_context *ctx, co_value *args, void *user)
{
    ++*(int *)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, 2));
}

CO_TEST_WITH(run_and_reduce_build_operations, "GR-1 OD1-3 CTX-7", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_strategy *one = co_v1_one_device_strategy(ctx, "/cpu:1");
    co_graph    *graph = co_graph_new(ctx);
    int          calls = 0;

    CO_SCOPE(ctx, m) {
        CO_GRAPH(ctx, graph)
        {
            co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *each, *sum, *single;
            co_session *session = co_session_open(ctx, NULL, NULL);
            co_feed     feed = { x, co_float(ctx, 5) };

            CO_EXPECT_TRUE(!co_has_strategy(ctx)); /* a fresh graph starts in default mode */
            each = co_run(ctx, m, double_it, co_args(ctx, x), &calls);
            CO_EXPECT_INT(calls, 2);
            CO_EXPECT_INT(co_value_kind(each), CO_KIND_PER_REPLICA);
            sum = co_reduce(ctx, m, CO_REDUCE_SUM, each, NULL, 0);
            single = co_run(ctx, one, double_it, co_args(ctx, x), &calls);
            for (int i = 0; i < 3; ++i) {
                co_value *result = co_session_run(ctx, session, co_args(ctx, sum, each, single),
                                                  &feed, 1);

                CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, result, 0)), 20, 0);
                CO_EXPECT_INT(co_value_kind(co_at(ctx, result, 1)), CO_KIND_PER_REPLICA);
                CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, result, 2)), 10, 0);
            }
            CO_EXPECT_INT(calls, 3); /* a session calls no function of the user */
            CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, co_worker_devices(ctx, one), 0), 0, NULL),
                          "/replica:0/task:0/device:CPU:1");
            CO_EXPECT_STR(co_current_device(ctx), "/replica:0/task:0/device:CPU:0");
            CO_SCOPE(ctx, one)
                CO_EXPECT_STR(co_value_device(ctx, co_variable(ctx, co_float(ctx, 1), NULL)),
                              "/replica:0/task:0/device:CPU:1");
        }
        CO_EXPECT_TRUE(co_has_strategy(ctx));
    }
}

typedef struct training {
    co_value *v;
    bool      returns;
} training;

/* A loss, and an update that is returned or not. */
static co_value *
loss_and_update(co_context *ctx, co_value *args, void *user)
{
    const training *t = user;
    co_value       *loss = co_square(ctx, t->v);
    co_value       *update = co_assign_add(ctx, t->v, co_float(ctx, 1));

    (void)args;
    return t->returns ? co_args(ctx, loss, update) : loss;
}

static int num_warnings;

static void
count_warnings(co_log_level level, const char *line, void *user)
{
    (void)user;
    if (level == CO_LOG_WARNING && strstr(line, "never runs") != NULL)
        ++num_warnings;
}

CO_TEST_BARE(of_a_step_only_what_is_fetched_runs, "GR-2")
{
    co_options   options = CO_OPTIONS_INIT;
    co_strategy *m;
    co_graph    *graph;

    options.settings = "cpus=2, log=warning";
    options.log = count_warnings;
    ctx = co_open_with(&options);
    m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        training    t = { NULL, true };
        co_value   *both, *alone, *v = NULL;
        co_session *session = co_session_open(ctx, NULL, NULL);

        CO_SCOPE(ctx, m)
            t.v = v = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
        both = co_run(ctx, m, loss_and_update, co_no_args(ctx), &t);
        t.returns = false;
        num_warnings = 0;
        alone = co_run(ctx, m, loss_and_update, co_no_args(ctx), &t);
        CO_EXPECT_INT(num_warnings, 1);
        run(ctx, session, co_global_variables_initializer(ctx));
        CO_EXPECT_NOT_NULL(run(ctx, session, co_at(ctx, both, 0)));
        CO_EXPECT_NOT_NULL(run(ctx, session, alone));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, v)), 3, 0);
        CO_EXPECT_NOT_NULL(run(ctx, session, co_at(ctx, both, 1)));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, v)), 4, 0);
        CO_EXPECT_NOT_NULL(run(ctx, session, both));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, v)), 5, 0);
        /* One replica's part: the others run with it. */
        CO_EXPECT_NOT_NULL(
            run(ctx, session, co_at(ctx, co_local_results(ctx, m, co_at(ctx, both, 1)), 0)));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, v)), 6, 0);
        CO_EXPECT_OK(ctx);
    }
    co_close(ctx);
}

/* A step that uses a value of the graph that it was not given, and makes a variable. */
typedef struct closure {
    co_value *outside, *made;
} closure;

static co_value *
use_outside(co_context *ctx, co_value *args, void *user)
{
    closure *c = user;

    (void)args;
    c->made = co_variable(ctx, co_add(ctx, co_scalar_float(ctx, 1), co_float(ctx, 1)), NULL);
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_mul(ctx, c->outside, c->made));
}

CO_TEST_WITH(steps_use_values_of_the_graph_and_make_variables, "GR-1 GR-3 VAR-RUN-1", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        closure     c = { co_placeholder(ctx, CO_FLOAT32, NULL, 0), NULL };
        co_value   *sums = co_run(ctx, m, use_outside, co_no_args(ctx), &c), *result;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { c.outside, co_float(ctx, 5) };

        CO_EXPECT_INT(co_num_items(ctx, co_global_variables(ctx)), 1);
        CO_EXPECT_NULL(co_session_run(ctx, session, sums, &feed, 1));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
        run(ctx, session, co_global_variables_initializer(ctx));
        result = co_session_run(ctx, session, co_local_results(ctx, m, sums), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, result, 1)), 20, 0);
    }
}

/* --- gradients --- */

CO_TEST(gradients_are_operations_with_their_tapes, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *y, *dy, *z, *dz, *first, *second;
        co_value   *unused;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };

        co_tape_begin(ctx);
        co_watch(ctx, x);
        y = co_mul(ctx, co_square(ctx, x), x);
        unused = co_exp(ctx, y);
        dy = co_gradient(ctx, y, x); /* 27 */
        co_tape_begin(ctx);
        co_watch(ctx, x);
        z = co_square(ctx, x);
        dz = co_gradient(ctx, z, x); /* 6 */
        co_tape_begin_persistent(ctx);
        co_watch(ctx, x);
        co_tape_begin(ctx);
        co_watch(ctx, x);
        first = co_gradient(ctx, co_mul(ctx, co_square(ctx, x), x), x);
        second = co_gradient(ctx, first, x); /* 18 */
        co_tape_end(ctx);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, dz, &feed, 1)), 6, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, dy, &feed, 1)), 27, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, y, &feed, 1)), 27, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, second, &feed, 1)), 18, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, first, &feed, 1)), 27, 0);
        CO_EXPECT_NOT_NULL(
            co_session_run(ctx, session, co_args(ctx, dz, unused, second), &feed, 1));
        CO_EXPECT_OK(ctx);
    }
}

typedef struct model {
    co_value     *w;
    co_optimizer *optimizer;
} model;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    const model *m = user;
    co_value    *loss, *update;

    (void)args;
    co_tape_begin(ctx);
    loss = co_square(ctx, m->w);
    co_minimize(ctx, m->optimizer, loss);
    update = co_last_operation(ctx);
    return co_args(ctx, loss, update);
}

CO_TEST_WITH(a_step_returns_its_update, "GR-2", "cpus=2")
{
    co_strategy *s = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_sgd_options options = CO_SGD_OPTIONS_INIT;
        model          m = { NULL, NULL };
        co_session    *session = co_session_open(ctx, NULL, NULL);
        co_value      *both, *loss;

        options.learning_rate = 0.125;
        m.optimizer = co_sgd(ctx, &options);
        CO_SCOPE(ctx, s)
            m.w = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
        both = co_run(ctx, s, train, co_no_args(ctx), &m);
        loss = co_reduce(ctx, s, CO_REDUCE_MEAN, co_at(ctx, both, 0), NULL, 0);
        run(ctx, session, co_global_variables_initializer(ctx));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, loss)), 4, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, loss)), 4, 0); /* nothing trained */
        for (int i = 0; i < 3; ++i) /* two replicas: w -= 0.125 * 2 * 2 w */
            CO_EXPECT_CLOSE(
                co_item_float(
                    ctx, co_at(ctx, run(ctx, session, co_args(ctx, loss, co_at(ctx, both, 1))), 0)),
                4 / (float)(1 << 2 * i), 0);
        CO_EXPECT_OK(ctx);
    }
}

/* --- functions --- */

static co_value *
count_and_square(co_context *ctx, co_value *args, void *user)
{
    co_assign_add(ctx, user, co_float(ctx, 1));
    return co_square(ctx, co_at(ctx, args, 0));
}

CO_TEST(a_captured_function_is_one_operation_with_all_its_effects, "GR-1 FN-7")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value    *calls = co_variable(ctx, co_scalar_float(ctx, 0), NULL), *x, *y, *dx;
        co_function *f = co_function_of(ctx, count_and_square, calls, NULL);
        co_session  *session = co_session_open(ctx, NULL, NULL);
        co_feed      feed = { NULL, co_float(ctx, 3) };

        feed.tensor = x = co_placeholder(ctx, CO_FLOAT32, NULL, 0);
        run(ctx, session, co_global_variables_initializer(ctx));
        co_tape_begin(ctx);
        co_watch(ctx, x);
        y = co_call(ctx, f, co_args(ctx, x));
        dx = co_gradient(ctx, y, x);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, y, &feed, 1)), 9, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, dx, &feed, 1)), 6, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, calls)), 2, 0);
        CO_EXPECT_OK(ctx);
    }
}

static co_value *
merged_sum(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
merge_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_merge_call(ctx, merged_sum, co_args(ctx, co_neg(ctx, co_at(ctx, args, 0))), NULL);
}

CO_TEST_WITH(steps_of_a_graph_merge, "GR-1", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *y;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, co_float(ctx, 3) };

        y = co_run(ctx, m, merge_step, co_args(ctx, x), NULL);
        y = co_session_run(ctx, session, co_local_results(ctx, m, y), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, y, 0)), -6, 0);
        CO_EXPECT_OK(ctx);
    }
}

typedef struct lifting {
    co_graph *graph;
    co_value *made;
    bool      was_eager;
} lifting;

static co_value *
lift(co_context *ctx, co_value *args, void *user)
{
    lifting  *l = user;
    co_value *x = co_neg(ctx, co_at(ctx, args, 0));

    CO_INIT_SCOPE(ctx)
    {
        l->was_eager = co_executing_eagerly(ctx);
        l->graph = co_get_default_graph(ctx);
        l->made = co_square(ctx, co_scalar_float(ctx, 3));
        co_keep(ctx, l->made);
        co_neg(ctx, x);
        CO_EXPECT_TRUE(!co_ok(ctx)); /* a value of the function is none outside of it */
        co_clear(ctx);
    }
    return x;
}

static co_value *
lifted(co_context *ctx, co_value *args, void *user)
{
    lifting *l = user;

    (void)args;
    l->graph = co_get_default_graph(ctx);
    l->made = co_square(ctx, co_scalar_float(ctx, 3));
    co_keep(ctx, l->made);
    return NULL;
}

static co_value *
lift_by_call(co_context *ctx, co_value *args, void *user)
{
    ((lifting *)user)->graph = NULL;
    co_init_scope(ctx, lifted, NULL, user);
    return co_neg(ctx, co_at(ctx, args, 0));
}

CO_TEST(an_init_scope_is_outside_captured_functions, "CTX-7")
{
    lifting   l = { NULL, NULL, false };
    co_graph *graph = co_graph_new(ctx);

    co_call(ctx, co_function_of(ctx, lift, &l, NULL), co_args(ctx, co_scalar_float(ctx, 1)));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_TRUE(l.was_eager);
    CO_EXPECT_CLOSE(co_item_float(ctx, l.made), 9, 0);
    co_release(ctx, l.made);
    CO_GRAPH(ctx, graph)
    {
        co_strategy *s = co_v1_one_device_strategy(ctx, NULL);

        co_run(ctx, s, lift, co_args(ctx, co_scalar_float(ctx, 1)), &l);
        CO_EXPECT_TRUE(!l.was_eager);
        CO_EXPECT_TRUE(l.graph == graph);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, co_session_open(ctx, NULL, NULL), l.made)), 9,
                        0);
        CO_EXPECT_OK(ctx);
        co_release(ctx, l.made);
        co_run(ctx, s, lift_by_call, co_args(ctx, co_scalar_float(ctx, 1)), &l);
        CO_EXPECT_TRUE(l.graph == graph);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, co_session_open(ctx, NULL, NULL), l.made)), 9,
                        0);
        co_release(ctx, l.made);
        CO_EXPECT_OK(ctx);
    }
}

/* --- iterators --- */

CO_TEST_WITH(iterators_are_initialized_by_an_operation, "ITER1-INIT-1 ITER1-INIT-2 ITER1-INIT-3",
             "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_dataset  *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 6, 1), 4, false);
        co_iterator *it = co_make_dataset_iterator(ctx, m, data);
        co_value    *next = co_get_next(ctx, it), *start = co_iterator_initialize(ctx, it);
        co_session  *session = co_session_open(ctx, NULL, NULL);
        co_value    *result;

        CO_EXPECT_NULL(run(ctx, session, next));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "initialized");
        for (int i = 0; i < 2; ++i) {
            CO_EXPECT_INT(co_value_kind(run(ctx, session, start)), CO_KIND_NONE);
            result = co_local_results(ctx, m, run(ctx, session, next));
            CO_EXPECT_INT(co_value_num_elements(ctx, co_at(ctx, result, 1)), 2);
            result = run(ctx, session, co_args(ctx, next, next)); /* one operation: once */
            result = co_local_results(ctx, m, co_at(ctx, result, 1));
            CO_EXPECT_INT(co_value_num_elements(ctx, co_at(ctx, result, 1)), 1);
            CO_EXPECT_NULL(run(ctx, session, next));
            CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
        }
        CO_EXPECT_NULL(co_iterate(ctx, data));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_make_initializable_iterator");
        next = co_get_next(ctx, co_make_one_shot_iterator(ctx, data));
        CO_EXPECT_INT(co_value_num_elements(ctx, run(ctx, session, next)), 4);
        CO_EXPECT_NULL(co_make_one_shot_iterator(ctx, co_distribute_dataset(ctx, m, data, NULL)));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "one-shot");
    }
}

CO_TEST(a_graph_takes_as_many_elements_as_it_is_asked_for, "GR-1")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_iterator *it = co_make_initializable_iterator(ctx, co_dataset_range(ctx, 0, 9, 1));

        for (int i = 0; i < 5000 && co_ok(ctx); ++i)
            CO_BLOCK(ctx)
                co_get_next(ctx, it);
        CO_EXPECT_OK(ctx);
        while (co_next(ctx, it) != NULL) /* has no end here */
            ;
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "one graph");
    }
}

static co_value *
sum_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

typedef struct stepping {
    co_strategy *strategy;
    co_value    *total, *scale;
    int          calls;
} stepping;

static co_value *
one_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    stepping *s = user;
    co_value *sums = co_run(ctx, s->strategy, sum_of, co_args(ctx, inputs), NULL);
    co_value *sum = co_reduce(ctx, s->strategy, CO_REDUCE_SUM, sums, NULL, 0);

    ++s->calls;
    co_assign_add(ctx, s->total, sum);
    co_set_last_step_output(ctx, steps, "o", CO_REDUCE_NONE, co_mul(ctx, sum, s->scale));
    return NULL;
}

CO_TEST_WITH(steps_on_an_iterator_are_one_operation, "EXT-STEPS-1 GR-1", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_dataset      *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 12, 1), 4, false);
        co_iterator     *it = co_make_dataset_iterator(ctx, m, data);
        stepping         s = { m, co_variable(ctx, co_scalar_int64(ctx, 0), NULL),
                               co_placeholder(ctx, CO_INT64, NULL, 0), 0 };
        co_step_context *steps = co_run_steps_on_iterator(ctx, m, one_step, it, &s, 2, NULL);
        co_value        *start = co_iterator_initialize(ctx, it), *o;
        co_session      *session = co_session_open(ctx, NULL, NULL);
        co_feed          feed = { s.scale, co_int(ctx, 10) };

        CO_REQUIRE(steps != NULL);
        CO_EXPECT_INT(s.calls, 1);
        o = co_get(ctx, co_last_step_outputs(ctx, steps), "o");
        run(ctx, session, co_args(ctx, start, co_global_variables_initializer(ctx)));
        o = co_session_run(ctx, session, o, &feed, 1);
        CO_EXPECT_INT(co_item_int(ctx, o), 220);
        CO_EXPECT_INT(co_item_int(ctx, run(ctx, session, s.total)), 28);
        CO_EXPECT_NULL(co_session_run(ctx, session, co_run_steps_operation(ctx, steps), &feed, 1));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
        CO_EXPECT_INT(co_item_int(ctx, run(ctx, session, s.total)), 66); /* one more step ran */
        CO_EXPECT_INT(s.calls, 1);
    }
}

CO_TEST(a_graph_does_not_hold_the_data_of_numpy_datasets, "NP-5 NP-6")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);
    co_value    *array = vector(ctx, 1, 3);

    CO_GRAPH(ctx, graph)
    {
        co_session  *session = co_session_open(ctx, NULL, NULL);
        co_dataset  *data;
        co_iterator *it;

        CO_EXPECT_NULL(co_v1_make_numpy_dataset(ctx, s, array, NULL));
        CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "session");
        CO_EXPECT_NULL(co_make_numpy_dataset(ctx, s, array));
        CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "session");
        data = co_v1_make_numpy_dataset(ctx, s, array, session);
        CO_EXPECT_INT(co_graph_num_operations(ctx, graph), 0);
        it = co_make_initializable_iterator(ctx, data);
        run(ctx, session, co_iterator_initialize(ctx, it));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, co_get_next(ctx, it))), 1, 0);
    }
}

/* --- sessions --- */

CO_TEST(a_session_has_a_config, "GR-2 S-CFG-1")
{
    co_graph          *graph = co_graph_new(ctx);
    co_strategy       *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_session_options options = CO_SESSION_OPTIONS_INIT;
    co_session        *session;
    size_t             nbytes = 0;

    options.config = co_update_config_proto(ctx, m, co_bytes(ctx, "", 0));
    session = co_session_open(ctx, graph, &options);
    co_string_at(ctx, co_session_config(ctx, session), 0, &nbytes);
    CO_EXPECT_INT(nbytes, 2);
    CO_EXPECT_TRUE(co_session_graph(ctx, session) == graph);
    options.config = co_bytes(ctx, "\x0a\x7f", 2);
    CO_EXPECT_NULL(co_session_open(ctx, graph, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
    options.config = co_int(ctx, 1);
    CO_EXPECT_NULL(co_session_open(ctx, graph, &options));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "config");
    CO_EXPECT_NULL(co_session_open(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no graph is current");
}

CO_TEST(random_numbers_of_a_graph_follow_its_seed, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x;
        co_session *a, *b;
        float       first, second;

        co_set_seed(ctx, 7);
        x = co_random_uniform(ctx, CO_FLOAT32, NULL, 0, 0, 1);
        a = co_session_open(ctx, NULL, NULL);
        b = co_session_open(ctx, NULL, NULL);
        first = (float)co_item_float(ctx, run(ctx, a, x));
        second = (float)co_item_float(ctx, run(ctx, a, x));
        CO_EXPECT_TRUE(first != second);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, b, x)), first, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, b, x)), second, 0);
        CO_EXPECT_OK(ctx);
    }
}

typedef struct worker {
    co_context *ctx;
    co_session *session;
    co_value   *more, *next, *y;
    pthread_t   thread;
    int64_t     sum;
    bool        ok;
} worker;

static void *
work(void *arg)
{
    worker *w = arg;

    w->ok = true;
    for (int i = 0; i < 50; ++i)
        CO_BLOCK(w->ctx) {
            co_value *result = run(w->ctx, w->session, co_args(w->ctx, w->more, w->next, w->y));

            w->ok = w->ok && result != NULL && co_item_float(w->ctx, co_at(w->ctx, result, 2)) == 9;
            w->sum += co_item_int(w->ctx, co_at(w->ctx, result, 1));
        }
    w->ok = w->ok && co_ok(w->ctx);
    return NULL;
}

CO_TEST(several_threads_run_one_session, "GR-2")
{
    co_graph *graph = co_graph_new(ctx);
    worker    workers[4];

    CO_GRAPH(ctx, graph)
    {
        co_value    *v = co_variable(ctx, co_scalar_int64(ctx, 0), NULL);
        co_session  *session = co_session_open(ctx, NULL, NULL);
        co_iterator *it = co_make_initializable_iterator(ctx, co_dataset_range(ctx, 0, 200, 1));
        worker       one = { .session = session,
                             .more = co_assign_add(ctx, v, co_int(ctx, 1)),
                             .next = co_get_next(ctx, it),
                             .y = co_square(ctx, co_scalar_float(ctx, 3)) };
        int64_t      sum = 0;

        run(ctx, session,
            co_args(ctx, co_global_variables_initializer(ctx), co_iterator_initialize(ctx, it)));
        for (int i = 0; i < 4; ++i) {
            workers[i] = one;
            workers[i].ctx = co_open_beside(ctx);
            pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        }
        for (int i = 0; i < 4; ++i) {
            co_neg(ctx, one.y); /* the graph may grow meanwhile */
            pthread_join(workers[i].thread, NULL);
            CO_EXPECT_TRUE(workers[i].ok);
            sum += workers[i].sum;
            co_close(workers[i].ctx);
        }
        CO_EXPECT_INT(sum, 199 * 200 / 2);
        CO_EXPECT_INT(co_item_int(ctx, run(ctx, session, v)), 200);
    }
}

static co_value *
run_inside(co_context *ctx, co_value *args, void *user)
{
    co_session_run(ctx, user, co_at(ctx, args, 0), NULL, 0);
    return NULL;
}

CO_TEST(a_session_runs_outside_steps_and_functions, "GR-2")
{
    co_graph    *graph = co_graph_new(ctx);
    co_session  *session = co_session_open(ctx, graph, NULL);
    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_value    *x = co_scalar_float(ctx, 1);

    co_run(ctx, s, run_inside, co_args(ctx, x), session);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "outside");
    co_call(ctx, co_function_of(ctx, run_inside, session, NULL), co_args(ctx, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "outside");
    CO_EXPECT_NULL(co_placeholder(ctx, CO_FLOAT32, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "runs eagerly");
    CO_EXPECT_NULL(co_global_variables_initializer(ctx));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "runs eagerly");
    CO_EXPECT_NULL(co_get_default_graph(ctx));
    CO_EXPECT_INT(co_value_kind(co_group(ctx, x)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_last_operation(ctx)), CO_KIND_NONE);
    CO_CONTROL_DEPENDENCIES(ctx, x)
    x = co_neg(ctx, x);
    CO_EXPECT_CLOSE(co_item_float(ctx, x), -1, 0);
    CO_EXPECT_CODE(co_graph_end(ctx), CO_RUNTIME_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_graph_begin(ctx, graph), CO_OK);
    CO_EXPECT_CODE(co_control_dependencies_begin(ctx, x), CO_OK);
    CO_EXPECT_CODE(co_graph_end(ctx), CO_RUNTIME_ERROR); /* not the innermost */
    co_clear(ctx);
    CO_EXPECT_CODE(co_control_dependencies_end(ctx), CO_OK);
    CO_EXPECT_CODE(co_init_scope_begin(ctx), CO_OK);
    CO_EXPECT_TRUE(co_get_default_graph(ctx) == graph);
    CO_EXPECT_CODE(co_init_scope_end(ctx), CO_OK);
    CO_EXPECT_CODE(co_graph_end(ctx), CO_OK);
}

/* --- want of memory --- */

static bool
graph_in_little_memory(co_context *ctx)
{
    co_graph *graph = co_graph_new(ctx);
    bool      ok = false;

    if (graph == NULL)
        return false;
    CO_GRAPH(ctx, graph)
    {
        co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
        co_value    *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *y, *more = NULL;
        co_session  *session = co_session_open(ctx, NULL, NULL);
        int          calls = 0;

        y = co_run(ctx, m, double_it, co_args(ctx, v), &calls);
        y = co_reduce(ctx, m, CO_REDUCE_SUM, y, NULL, 0);
        CO_CONTROL_DEPENDENCIES(ctx, y)
        more = co_assign_add(ctx, v, co_float(ctx, 1));
        ok = run(ctx, session, co_global_variables_initializer(ctx)) != NULL &&
             co_item_float(ctx, run(ctx, session, y)) == 4 && run(ctx, session, more) != NULL;
    }
    return ok;
}

CO_TEST_BARE(graphs_survive_want_of_memory, "GR-1 GR-2")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", graph_in_little_memory);
}

/* --- misuse --- */

static void
call_all(co_context *ctx, co_graph *graph, co_session *session, co_value *x, co_strategy *s)
{
    char text[8] = "x";

    CO_EXPECT_NULL(co_graph_new(ctx));
    CO_EXPECT_NULL(co_get_default_graph(ctx));
    CO_EXPECT_FALSE(co_executing_eagerly(ctx));
    CO_EXPECT_INT(co_statement_graph(ctx, graph).id, 0);
    CO_EXPECT_INT(co_statement_control(ctx, x).id, 0);
    CO_EXPECT_INT(co_statement_init_scope(ctx).id, 0);
    CO_EXPECT_TRUE(co_graph_begin(ctx, graph) != CO_OK);
    CO_EXPECT_TRUE(co_graph_end(ctx) != CO_OK);
    CO_EXPECT_TRUE(co_control_dependencies_begin(ctx, x) != CO_OK);
    CO_EXPECT_TRUE(co_control_dependencies_end(ctx) != CO_OK);
    CO_EXPECT_TRUE(co_init_scope_begin(ctx) != CO_OK);
    CO_EXPECT_TRUE(co_init_scope_end(ctx) != CO_OK);
    CO_EXPECT_TRUE(co_graph_finalize(ctx, graph) != CO_OK);
    CO_EXPECT_FALSE(co_graph_is_finalized(ctx, graph));
    CO_EXPECT_INT(co_graph_num_operations(ctx, graph), 0);
    CO_EXPECT_INT(co_graph_print(ctx, graph, text, sizeof(text)), 0);
    CO_EXPECT_STR(text, "");
    CO_EXPECT_NULL(co_placeholder(ctx, CO_FLOAT32, NULL, 0));
    CO_EXPECT_NULL(co_placeholder_with_default(ctx, x, NULL, 0));
    CO_EXPECT_NULL(co_group(ctx, x));
    CO_EXPECT_NULL(co_no_op(ctx));
    CO_EXPECT_NULL(co_last_operation(ctx));
    CO_EXPECT_TRUE(co_add_control_input(ctx, x, x) != CO_OK);
    CO_EXPECT_NULL(co_variable_initializer(ctx, x));
    CO_EXPECT_NULL(co_variables_initializer(ctx, x));
    CO_EXPECT_NULL(co_global_variables_initializer(ctx));
    CO_EXPECT_NULL(co_global_variables(ctx));
    CO_EXPECT_NULL(co_is_variable_initialized(ctx, x));
    CO_EXPECT_NULL(co_session_open(ctx, graph, NULL));
    CO_EXPECT_NULL(co_session_run(ctx, session, x, NULL, 0));
    CO_EXPECT_TRUE(co_session_close(ctx, session) != CO_OK);
    CO_EXPECT_NULL(co_session_graph(ctx, session));
    CO_EXPECT_NULL(co_session_config(ctx, session));
    CO_EXPECT_NULL(co_run_steps_operation(ctx, NULL));
    CO_EXPECT_NULL(co_v1_make_numpy_dataset(ctx, s, x, session));
    CO_EXPECT_NULL(co_make_one_shot_iterator(ctx, NULL));
}

CO_TEST(nothing_happens_on_no_context_or_one_with_an_error, "")
{
    co_strategy *s = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);
    co_session  *session = co_session_open(ctx, graph, NULL);
    co_value    *x = co_scalar_float(ctx, 1);

    call_all(NULL, graph, session, x, s);
    co_fail(ctx, CO_DATA_LOSS, "the first error");
    call_all(ctx, graph, session, x, s);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "the first error");
}

CO_TEST(other_handles_are_no_graphs_and_sessions, "")
{
    co_graph   *graph = co_graph_new(ctx);
    co_value   *x = co_scalar_float(ctx, 1);
    co_session *session = co_session_open(ctx, graph, NULL);
    char        text[200];

    CO_EXPECT_NULL(co_session_open(ctx, (co_graph *)(void *)x, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "graph");
    CO_EXPECT_NULL(co_session_run(ctx, (co_session *)(void *)graph, x, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "session");
    CO_EXPECT_NULL(co_session_run(ctx, NULL, x, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "session");
    CO_GRAPH(ctx, NULL)
    CO_FAIL("there is no such graph");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "graph");
    CO_GRAPH(ctx, graph)
    {
        CO_EXPECT_NULL(co_last_operation(ctx));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "nothing was added");
        CO_EXPECT_NULL(co_variable_initializer(ctx, x));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
        CO_EXPECT_NULL(co_placeholder(ctx, CO_DTYPE_NONE, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dtype");
        CO_EXPECT_NULL(co_placeholder_with_default(ctx, x, CO_SHAPE(2)));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "does not fit");
        CO_EXPECT_NULL(co_neg(ctx, co_no_op(ctx)));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "operation");
        CO_EXPECT_NULL(co_variable(ctx, co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1)), NULL));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "all dimensions");
    }
    CO_EXPECT_TRUE(co_graph_print(ctx, graph, text, sizeof(text)) > 0);
    CO_EXPECT_TRUE(strstr(text, "group(") != NULL);
    CO_EXPECT_OK(ctx);
    (void)session;
}

/* --- steps that differ --- */

/* Replica 0 makes more calls than the others, and all meet in the same sum. */
static co_value *
differing(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *update;

    if (co_replica_id(ctx) == 0)
        x = co_neg(ctx, co_neg(ctx, x));
    update = co_assign_add(ctx, user, co_float(ctx, 1)); /* SUM: adds 2 */
    return co_args(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, x), update,
                   co_all_reduce(ctx, CO_REDUCE_SUM, co_square(ctx, x)));
}

CO_TEST_WITH(steps_that_differ_between_replicas_run_whole, "GR-2", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *v = NULL, *all, *each;
        co_session         *session = co_session_open(ctx, NULL, NULL);
        co_feed             feed = { x, co_float(ctx, 3) };

        options.aggregation = CO_AGGREGATION_MEAN;
        CO_SCOPE(ctx, m)
            v = co_variable(ctx, co_scalar_float(ctx, 0), &options);
        all = co_run(ctx, m, differing, co_args(ctx, x), v);
        run(ctx, session, co_global_variables_initializer(ctx));
        each = co_local_results(ctx, m, co_at(ctx, all, 2));
        each = co_session_run(ctx, session, co_at(ctx, each, 1), &feed, 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, each), 18, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, v)), 1, 0);
        CO_EXPECT_OK(ctx);
    }
}

/* A collective that only one result needs is left out on all replicas. */
static co_value *
two_sums(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_args(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, x),
                   co_all_reduce(ctx, CO_REDUCE_SUM, co_exp(ctx, x)));
}

static void
count_collectives(const co_observation *seen, void *user)
{
    if (seen->phase == CO_OBSERVE_BEGIN && strcmp(seen->op, "all_reduce") == 0)
        atomic_fetch_add((atomic_int *)user, 1);
}

CO_TEST_WITH(collectives_of_a_step_run_where_they_are_needed, "GR-2", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);
    atomic_int   sums = 0;

    CO_GRAPH(ctx, graph)
    {
        co_value    *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *both, *one;
        co_session  *session = co_session_open(ctx, NULL, NULL);
        co_feed      feed = { x, co_float(ctx, 3) };
        co_observer *observer = co_observe(ctx, count_collectives, &sums);

        both = co_run(ctx, m, two_sums, co_args(ctx, x), NULL);
        one = co_at(ctx, co_local_results(ctx, m, co_at(ctx, both, 0)), 1);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, one, &feed, 1)), 6, 0);
        CO_EXPECT_INT(sums, 2); /* one on each replica */
        CO_EXPECT_NOT_NULL(co_session_run(ctx, session, both, &feed, 1));
        CO_EXPECT_INT(sums, 6);
        co_unobserve(ctx, observer);
    }
}

CO_TEST_BARE(the_graph_of_a_context_lives_as_long_as_the_context, "GR-1")
{
    co_context *own = co_open(NULL);
    co_value   *x = NULL;

    CO_BLOCK(own) {
        CO_EXPECT_CODE(co_v1_disable_eager_execution(own), CO_OK);
        CO_BLOCK(own)
            co_neg(own, co_scalar_float(own, 2));
    }
    CO_EXPECT_TRUE(!co_executing_eagerly(own));
    CO_EXPECT_INT(co_graph_num_operations(own, co_get_default_graph(own)), 1);
    CO_BLOCK(own) {
        x = co_neg(own, co_scalar_float(own, 2));
        CO_EXPECT_CLOSE(co_item_float(own, run(own, co_session_open(own, NULL, NULL), x)), -2, 0);
    }
    CO_EXPECT_CODE(co_close(own), CO_OK);
}

/* A value of a block that has ended is no fetch, and the graph still has what it stood for. */
CO_TEST(operations_outlive_the_handles_of_their_values, "GR-1")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *sum = NULL;
        co_session *session = co_session_open(ctx, NULL, NULL);

        CO_BLOCK(ctx) {
            co_value *more = co_assign_add(ctx, v, co_mul(ctx, v, co_float(ctx, 3)));

            CO_CONTROL_DEPENDENCIES(ctx, more)
            sum = co_variable_read(ctx, v);
            co_keep(ctx, sum);
        }
        run(ctx, session, co_global_variables_initializer(ctx));
        CO_EXPECT_CLOSE(co_item_float(ctx, run(ctx, session, sum)), 4, 0);
        co_release(ctx, sum);
    }
}

/* --- outputs that replicas set --- */

static co_value *
set_in_replica(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);

    co_set_last_step_output(ctx, user, "sum", CO_REDUCE_SUM, sum);
    co_set_non_tensor_output(ctx, user, "who", co_int(ctx, co_replica_id(ctx)));
    return co_neg(ctx, sum);
}

static co_value *
step_with_replicas(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_value *each = co_run(ctx, user, set_in_replica, co_args(ctx, inputs), steps);

    co_set_last_step_output(ctx, steps, "negative", CO_REDUCE_SUM, each);
    return NULL;
}

static co_value *
set_differently(co_context *ctx, co_value *args, void *user)
{
    co_set_last_step_output(ctx, user, co_replica_id(ctx) == 0 ? "a" : "b", CO_REDUCE_SUM,
                            co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false));
    return NULL;
}

static co_value *
step_that_disagrees(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    return co_run(ctx, user, set_differently, co_args(ctx, inputs), steps);
}

CO_TEST_WITH(replicas_set_outputs_of_steps_in_a_graph, "EXT-STEPS-1 GR-1", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_dataset      *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 12, 1), 4, false);
        co_iterator     *it = co_make_dataset_iterator(ctx, m, data);
        co_session      *session = co_session_open(ctx, NULL, NULL);
        co_step_context *steps = co_run_steps_on_iterator(ctx, m, step_with_replicas, it, m, 2,
                                                          NULL);
        co_value        *outputs;

        CO_REQUIRE(steps != NULL);
        run(ctx, session, co_iterator_initialize(ctx, it));
        outputs = run(ctx, session, co_last_step_outputs(ctx, steps));
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, outputs, "sum")), 22);
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, outputs, "negative")), -22);
        outputs = co_get(ctx, co_non_tensor_outputs(ctx, steps), "who");
        CO_EXPECT_INT(co_num_items(ctx, outputs), 2);
        CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, m, step_that_disagrees, it, m, 2, NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "disagree");
        CO_EXPECT_OK(ctx);
    }
}

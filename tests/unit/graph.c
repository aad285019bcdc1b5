/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph mode: a context that adds to its graph, and sessions that run parts of it.
 */
#include <cohort/v1.h>

#include "test.h"

static co_value *
run(co_context *ctx, co_session *session, co_value *fetches)
{
    return co_session_run(ctx, session, fetches, NULL, 0);
}

static co_value *
vector(co_context *ctx, float first, int n)
{
    float   data[16];
    int64_t dim = n;

    for (int i = 0; i < n; ++i)
        data[i] = first + (float)i;
    return co_tensor(ctx, CO_FLOAT32, &dim, 1, data);
}

static float
element(co_context *ctx, co_value *x, int i)
{
    const float *data = co_value_data(ctx, x);

    return data != NULL ? data[i] : NAN;
}

CO_TEST(operators_add_to_the_graph_and_a_session_computes, "GR-1 GR-2")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph) {
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
    CO_EXPECT_CODE(co_v1_enable_eager_execution(NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(co_v1_disable_eager_execution(NULL), CO_INVALID_ARGUMENT);
    co_close(other);
    co_close(third);
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

    CO_GRAPH(ctx, graph) {
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

    CO_GRAPH(ctx, graph) {
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

CO_TEST(wrong_fetches_and_feeds_are_refused, "GR-4")
{
    co_graph   *graph = co_graph_new(ctx), *second = co_graph_new(ctx);
    co_session *session = co_session_open(ctx, graph, NULL);
    co_value   *x = NULL, *y = NULL, *foreign = NULL, *op = NULL, *v = NULL;

    CO_GRAPH(ctx, graph) {
        x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1, 2));
        y = co_neg(ctx, x);
        op = co_no_op(ctx);
        v = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
    }
    CO_GRAPH(ctx, second) {
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

    CO_GRAPH(ctx, graph) {
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

/* --- variables --- */

CO_TEST(variables_have_no_value_before_their_initializer_ran, "GR-3")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph) {
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

CO_TEST_WITH(variables_of_strategies_are_initialized_on_all_replicas, "GR-3 VAR-NEW-4", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph) {
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

    CO_GRAPH(ctx, graph) {
        co_value   *v = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *after = NULL, *none = NULL;
        co_value   *more = co_assign_add(ctx, v, co_float(ctx, 1)), *add, *late;
        co_session *session = co_session_open(ctx, graph, NULL);

        run(ctx, session, co_global_variables_initializer(ctx));
        CO_CONTROL_DEPENDENCIES(ctx, co_args(ctx, more)) {
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

CO_TEST(a_final_graph_takes_nothing_more, "GR-5")
{
    co_graph *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph) {
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph mode: how much of a step of run a session makes, and what it takes for that.
 */
#include <cohort/v1.h>

#include "function/plan.h"
#include "strategy/graph_run.h"
#include "vector_support.h"

#include <pthread.h>
#include <string.h>

static co_value *
run(co_context *ctx, co_session *session, co_value *fetches)
{
    return co_session_run(ctx, session, fetches, NULL, 0);
}

static double
number(co_context *ctx, co_session *session, co_value *fetch)
{
    return co_item_float(ctx, run(ctx, session, fetch));
}

/* A variable, and values of the graph that the step uses without being given them. */
typedef struct outside {
    co_value *v, *rate;
} outside;

/* (loss, update), of x and of a rate: that of the graph, or the second argument. */
static co_value *
loss_and_update(co_context *ctx, co_value *args, void *user)
{
    const outside *o = user;
    co_value      *rate = o->rate != NULL ? o->rate : co_at(ctx, args, 1);
    co_value      *loss = co_mul(ctx, o->v, co_at(ctx, args, 0));

    return co_args(ctx, loss, co_assign_sub(ctx, o->v, co_mul(ctx, loss, rate)));
}

CO_TEST(a_part_of_a_step_takes_only_the_operands_that_it_needs, "GR-2")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *rate = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *x = co_scalar_float(ctx, 3);
        outside     o = { co_variable(ctx, co_scalar_float(ctx, 2), NULL), NULL };
        co_value   *both = co_run(ctx, one, loss_and_update, co_args(ctx, x, rate), &o), *inner;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { rate, co_float(ctx, 0.5) };

        o.rate = rate; /* as a value of the graph around the step */
        inner = co_run(ctx, one, loss_and_update, co_args(ctx, x), &o);
        run(ctx, session, co_global_variables_initializer(ctx));
        CO_EXPECT_CLOSE(number(ctx, session, co_at(ctx, both, 0)), 6, 0);
        CO_EXPECT_CLOSE(number(ctx, session, co_at(ctx, inner, 0)), 6, 0);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_NULL(run(ctx, session, co_at(ctx, both, 1)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "placeholder");
        CO_EXPECT_NULL(run(ctx, session, co_at(ctx, inner, 1)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "placeholder");
        CO_EXPECT_NOT_NULL(co_session_run(ctx, session, both, &feed, 1));
        CO_EXPECT_CLOSE(number(ctx, session, o.v), -1, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST_WITH(operands_that_a_part_does_not_need_are_not_computed, "GR-2", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        outside     o = { NULL, NULL };
        co_value   *count = co_variable(ctx, co_scalar_float(ctx, 0), NULL), *both, *loss, *update;
        co_session *session = co_session_open(ctx, NULL, NULL);

        CO_SCOPE(ctx, m)
            o.v = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
        both = co_run(
            ctx, m, loss_and_update,
            co_args(ctx, co_scalar_float(ctx, 3), co_assign_add(ctx, count, co_float(ctx, 1))), &o);
        loss = co_reduce(ctx, m, CO_REDUCE_MEAN, co_at(ctx, both, 0), NULL, 0);
        update = co_at(ctx, both, 1);
        run(ctx, session, co_global_variables_initializer(ctx));
        CO_EXPECT_CLOSE(number(ctx, session, loss), 6, 0);
        CO_EXPECT_CLOSE(number(ctx, session, count), 0, 0); /* evaluating changes nothing */
        CO_EXPECT_NOT_NULL(run(ctx, session, update));
        CO_EXPECT_CLOSE(number(ctx, session, count), 1, 0);
        CO_EXPECT_CLOSE(number(ctx, session, o.v), -4, 0);
        CO_EXPECT_NOT_NULL(run(ctx, session, co_args(ctx, loss, update)));
        CO_EXPECT_CLOSE(number(ctx, session, count), 2, 0);
        CO_EXPECT_OK(ctx);
    }
}

static co_value *
pick(co_context *ctx, co_value *args, void *user)
{
    co_value *named = co_at(ctx, args, 1);

    (void)user;
    return co_args(ctx, co_neg(ctx, co_at(ctx, args, 0)),
                   co_add(ctx, co_get(ctx, named, "a"), co_float(ctx, 1)), co_get(ctx, named, "b"));
}

CO_TEST_WITH(keyword_arguments_are_taken_one_by_one, "GR-2", "cpus=2")
{
    static const char *const names[] = { "a", "b" };
    co_strategy             *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph                *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value      *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0);
        co_value      *named[] = { co_placeholder(ctx, CO_FLOAT32, NULL, 0),
                                   co_placeholder(ctx, CO_FLOAT32, NULL, 0) };
        co_run_options options = CO_RUN_OPTIONS_INIT;
        co_session    *session = co_session_open(ctx, NULL, NULL);
        co_feed        feed = { NULL, co_float(ctx, 5) };
        co_value      *result, *seen;

        options.kwargs = co_dict(ctx, names, named, 2);
        result = co_run_with(ctx, m, pick, co_args(ctx, x), NULL, &options);
        CO_REQUIRE(result != NULL);
        for (size_t i = 0; i < 3; ++i) {
            feed.tensor = i == 0 ? x : named[i - 1];
            seen = co_local_results(ctx, m, co_at(ctx, result, i));
            seen = co_session_run(ctx, session, co_at(ctx, seen, 0), &feed, 1);
            CO_EXPECT_CLOSE(co_item_float(ctx, seen), i == 0 ? -5 : i == 1 ? 6 : 5, 0);
        }
        CO_EXPECT_OK(ctx);
    }
}

static co_value *
two_numbers(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_args(ctx, co_assign_add(ctx, user, co_float(ctx, 1)), co_scalar_float(ctx, 10));
}

CO_TEST(what_is_fed_of_a_step_is_not_computed, "GR-2")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value *v = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        co_value *both = co_run(ctx, one, two_numbers, co_no_args(ctx), v);
        co_value *a = co_at(ctx, both, 0), *sum = co_add(ctx, a, co_neg(ctx, co_at(ctx, both, 1)));
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { a, co_float(ctx, 100) };

        run(ctx, session, co_global_variables_initializer(ctx));
        CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, sum, &feed, 1)), 90, 0);
        CO_EXPECT_CLOSE(number(ctx, session, v), 0, 0);
        CO_EXPECT_CLOSE(number(ctx, session, sum), -9, 0);
        CO_EXPECT_CLOSE(number(ctx, session, v), 1, 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(a_step_cannot_wait_for_what_waits_for_a_part_of_it, "GR-5")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value *rate = co_neg(ctx, co_scalar_float(ctx, -1)), *x = co_scalar_float(ctx, 3);
        outside   o = { co_variable(ctx, co_scalar_float(ctx, 2), NULL), NULL };
        co_value *both = co_run(ctx, one, loss_and_update, co_args(ctx, x, rate), &o);

        CO_EXPECT_CODE(co_add_control_input(ctx, rate, co_at(ctx, both, 0)), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "wait for each other");
    }
}

/* How often the plans of the step of a graph's run were used. */
static int64_t
plan_runs(const co_graph *graph)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    for (size_t i = 0; i < graph->program->num_steps; ++i)
        if (graph->program->steps[i].op == &coi_op_run_in_graph)
            coi_regions_count(
                ((coi_graph_run_attrs *)graph->program->steps[i].attrs)->run->programs[0], &stats);
    return (int64_t)stats.plan_runs;
}

static co_value *
chain_and_sum(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    for (int i = 0; i < 5; ++i)
        x = co_tanh(ctx, co_add(ctx, x, co_float(ctx, 0.25)));
    return co_args(ctx, x, co_reduce_sum(ctx, x, CO_ALL_AXES, false));
}

CO_TEST(a_step_that_is_needed_whole_runs_by_plans, "GR-2 FN-2")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(8)), *both, *first, *seen;
        co_session *session = co_session_open(ctx, NULL, NULL);
        co_feed     feed = { x, vector(ctx, 1, 8) };

        both = co_run(ctx, one, chain_and_sum, co_args(ctx, x), NULL);
        first = co_session_run(ctx, session, co_at(ctx, both, 0), &feed, 1);
        CO_EXPECT_INT(plan_runs(graph), 0); /* a part of the calls */
        for (int i = 0; i < 3; ++i) {
            seen = co_session_run(ctx, session, both, &feed, 1);
            CO_EXPECT_CLOSE(element(ctx, co_at(ctx, seen, 0), 7), element(ctx, first, 7), 0);
        }
        CO_EXPECT_INT(plan_runs(graph), 3);
        CO_EXPECT_OK(ctx);
    }
}

static co_value *
first_argument(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

/* A condition has results of its own, though a run may give what it was given. */
static co_value *
chosen_argument(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_cond(ctx, co_less(ctx, x, co_float(ctx, 0)), first_argument, first_argument, args,
                   NULL);
}

typedef struct growing {
    co_context *ctx;
    co_graph   *graph;
    pthread_t   thread;
    bool        ok;
} growing;

static void *
grow(void *arg)
{
    growing *g = arg;

    CO_GRAPH(g->ctx, g->graph)
    {
        for (int i = 0; i < 3000; ++i)
            CO_BLOCK(g->ctx)
                co_neg(g->ctx, co_scalar_float(g->ctx, 1));
    }
    g->ok = co_ok(g->ctx);
    return NULL;
}

/* Replicas that give one value, which is grouped as itself, while another thread adds slots. */
CO_TEST_WITH(a_graph_may_grow_while_a_step_gives_one_value, "GR-2", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);

    CO_GRAPH(ctx, graph)
    {
        co_value   *x = co_neg(ctx, co_scalar_float(ctx, 3)), *each, *seen;
        co_session *session = co_session_open(ctx, NULL, NULL);
        growing     other = { .ctx = co_open_beside(ctx), .graph = graph };

        each = co_run(ctx, m, chosen_argument, co_args(ctx, x), NULL);
        CO_EXPECT_INT(co_value_kind(each), CO_KIND_PER_REPLICA);
        each = co_local_results(ctx, m, each);
        pthread_create(&other.thread, NULL, grow, &other);
        for (int i = 0; i < 300; ++i)
            CO_BLOCK(ctx) {
                seen = run(ctx, session, each);
                CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 1)), -3, 0);
            }
        pthread_join(other.thread, NULL);
        CO_EXPECT_TRUE(other.ok);
        co_close(other.ctx);
        CO_EXPECT_OK(ctx);
    }
}

/* --- effects inside conditions and functions --- */

static co_value *
add_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user, co_float(ctx, 1));
}

static co_value *
lose_in_condition(co_context *ctx, co_value *args, void *user)
{
    co_cond(ctx, co_less(ctx, co_at(ctx, args, 0), co_float(ctx, 0)), add_one, add_one, NULL, user);
    return co_at(ctx, args, 0);
}

static co_value *
lose_in_function(co_context *ctx, co_value *args, void *user)
{
    co_call(ctx, co_function_of(ctx, add_one, user, NULL), co_no_args(ctx));
    return co_at(ctx, args, 0);
}

static int num_warnings;

static void
count_warnings(co_log_level level, const char *line, void *user)
{
    (void)user;
    if (level == CO_LOG_WARNING && strstr(line, "never runs") != NULL)
        ++num_warnings;
}

CO_TEST_BARE(an_assignment_that_never_runs_is_logged_wherever_it_is, "GR-2")
{
    co_options options = CO_OPTIONS_INIT;
    co_graph  *graph;

    options.settings = "log=warning";
    options.log = count_warnings;
    ctx = co_open_with(&options);
    graph = co_graph_new(ctx);
    num_warnings = 0;
    CO_GRAPH(ctx, graph)
    {
        co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
        co_value    *v = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        co_value    *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0);

        co_run(ctx, one, lose_in_condition, co_args(ctx, x), v);
        CO_EXPECT_INT(num_warnings, 1);
        co_run(ctx, one, lose_in_function, co_args(ctx, x), v);
        CO_EXPECT_INT(num_warnings, 2);
        CO_EXPECT_OK(ctx);
    }
    co_close(ctx);
}

/* A variable whose initial value would be computed while capturing, with an assignment inside. */
static co_value *
make_of_effect(co_context *ctx, co_value *args, void *user)
{
    co_value **variables = user, *less;

    less = co_less(ctx, co_scalar_float(ctx, 1), co_float(ctx, 0));
    if (variables[1] == NULL)
        variables[1] = co_variable(ctx, co_cond(ctx, less, add_one, add_one, NULL, variables[0]),
                                   NULL);
    return co_at(ctx, args, 0);
}

CO_TEST(an_initial_value_does_not_assign_while_capturing, "FN-6 FN-7 GR-3")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
    co_graph    *graph = co_graph_new(ctx);
    co_value    *x = co_scalar_float(ctx, 1), *two[2] = { co_variable(ctx, x, NULL), NULL };

    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, make_of_effect, two, NULL), co_args(ctx, x)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "captured function");
    two[1] = NULL;
    CO_GRAPH(ctx, graph)
    {
        CO_EXPECT_NULL(co_run(ctx, one, make_of_effect, co_args(ctx, x), two));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "part of the graph");
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, two[0])), 1, 0);
}

/* --- variables that parts make --- */

typedef struct making {
    co_strategy *strategy;
    co_value    *outside, *made, *copy, *of_variable, *source;
    int          calls;
} making;

static void
make_three(co_context *ctx, making *m)
{
    ++m->calls;
    m->made = co_variable(ctx, co_add(ctx, co_scalar_float(ctx, 1), co_float(ctx, 2)), NULL);
    m->copy = co_variable(ctx, m->outside, NULL);
    m->of_variable = co_variable(ctx, m->source, NULL);
    co_keep(ctx, m->made);
    co_keep(ctx, m->copy);
    co_keep(ctx, m->of_variable);
}

static co_value *
sum_of_made(co_context *ctx, const making *m)
{
    return co_add(ctx, co_add(ctx, m->made, m->copy), m->of_variable);
}

static co_value *
make_in_body(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    make_three(ctx, user);
    return sum_of_made(ctx, user);
}

static co_value *
minus_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_float(ctx, -1);
}

static co_value *
step_that_makes(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    (void)inputs;
    make_three(ctx, user);
    co_set_last_step_output(ctx, steps, "o", CO_REDUCE_NONE, sum_of_made(ctx, user));
    return NULL;
}

static co_value *
add_part(co_context *ctx, making *m, int kind)
{
    co_iterator     *it;
    co_step_context *steps;

    if (kind == 0)
        return co_run(ctx, m->strategy, make_in_body, co_no_args(ctx), m);
    if (kind == 1)
        return co_cond(ctx, co_not_equal(ctx, m->outside, co_float(ctx, 0)), make_in_body,
                       minus_one, NULL, m);
    it = co_make_dataset_iterator(ctx, m->strategy, co_dataset_range(ctx, 0, 4, 1));
    co_session_run(ctx, co_session_open(ctx, NULL, NULL), co_iterator_initialize(ctx, it), NULL, 0);
    steps = co_run_steps_on_iterator(ctx, m->strategy, step_that_makes, it, m, 1, NULL);
    return steps != NULL ? co_get(ctx, co_last_step_outputs(ctx, steps), "o") : NULL;
}

CO_TEST(variables_made_in_any_part_of_a_graph_can_be_initialized, "GR-1 GR-3")
{
    co_strategy *one = co_v1_one_device_strategy(ctx, NULL);

    for (int kind = 0; kind < 3; ++kind) {
        co_graph *graph = co_graph_new(ctx);

        CO_GRAPH(ctx, graph)
        {
            co_value   *x = co_placeholder(ctx, CO_FLOAT32, NULL, 0), *sum;
            making      m = { .strategy = one, .outside = x };
            co_session *session = co_session_open(ctx, NULL, NULL);
            co_feed     feed = { x, co_float(ctx, 5) };

            m.source = co_variable(ctx, co_scalar_float(ctx, 7), NULL);
            sum = add_part(ctx, &m, kind);
            CO_EXPECT_OK(ctx);
            CO_EXPECT_INT(m.calls, 1);
            CO_EXPECT_INT(co_num_items(ctx, co_global_variables(ctx)), 4);
            CO_EXPECT_NOT_NULL(
                co_session_run(ctx, session, co_global_variables_initializer(ctx), &feed, 1));
            CO_EXPECT_CLOSE(number(ctx, session, m.made), 3, 0);
            CO_EXPECT_CLOSE(number(ctx, session, m.copy), 5, 0);
            CO_EXPECT_CLOSE(number(ctx, session, m.of_variable), 7, 0);
            sum = co_session_run(ctx, session, sum, &feed, 1);
            CO_EXPECT_CLOSE(co_item_float(ctx, sum), 15, 0);
            CO_EXPECT_OK(ctx);
            co_release(ctx, m.made);
            co_release(ctx, m.copy);
            co_release(ctx, m.of_variable);
        }
    }
}

static bool
part_in_little_memory(co_context *ctx)
{
    co_graph *graph = co_graph_new(ctx);
    double    seen = 0, after = 0;

    if (graph == NULL)
        return false;
    CO_GRAPH(ctx, graph)
    {
        co_strategy *one = co_v1_one_device_strategy(ctx, NULL);
        co_value    *rate = co_scalar_float(ctx, 1), *both;
        outside      o = { co_variable(ctx, co_scalar_float(ctx, 2), NULL), NULL };
        co_session  *session = co_session_open(ctx, NULL, NULL);

        both = co_run(ctx, one, loss_and_update, co_args(ctx, co_scalar_float(ctx, 3), rate), &o);
        if (run(ctx, session, co_global_variables_initializer(ctx)) != NULL)
            seen = number(ctx, session, co_at(ctx, both, 0));
        after = number(ctx, session, o.v);
    }
    return seen == 6 && after == 2; /* an error, or what was asked for: never more */
}

CO_TEST_BARE(want_of_memory_never_turns_a_part_of_a_step_into_all_of_it, "GR-2")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, part_in_little_memory);
}

/* --- one value for all replicas --- */

static co_value *
merged_mean(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_MEAN, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
mean_of_replicas(co_context *ctx, co_value *args, void *user)
{
    co_value *id = co_scalar_float(ctx, (float)co_replica_id(ctx));

    (void)user;
    return co_merge_call(ctx, merged_mean, co_args(ctx, co_add(ctx, co_at(ctx, args, 0), id)),
                         NULL);
}

/* It is that value when a session has run it, as it is without a graph: no per-replica value, whose
 * sum would be another. */
CO_TEST_WITH(what_all_replicas_get_is_one_value_in_a_graph, "GR-1 DV-GROUP-4 S-RUN-14", "cpus=2")
{
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    co_graph    *graph = co_graph_new(ctx);
    co_session  *session = co_session_open(ctx, graph, NULL);
    co_value    *x, *mean, *sum, *half, *parts;
    co_feed      feeds[2];

    co_graph_begin(ctx, graph);
    x = co_placeholder(ctx, CO_FLOAT32, NULL, 0);
    mean = co_run(ctx, m, mean_of_replicas, co_args(ctx, x), NULL);
    sum = co_reduce(ctx, m, CO_REDUCE_SUM, mean, NULL, 0);
    half = co_reduce(ctx, m, CO_REDUCE_MEAN, mean, NULL, 0);
    parts = co_local_results(ctx, m, mean);
    co_graph_end(ctx);
    feeds[0] = (co_feed){ x, co_float(ctx, 3) };
    feeds[1] = (co_feed){ co_at(ctx, parts, 1), co_float(ctx, 10) };

    mean = co_session_run(ctx, session, co_args(ctx, mean, half), feeds, 1);
    CO_EXPECT_STR(co_kind_name(co_value_kind(co_at(ctx, mean, 0))), "tensor");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, mean, 0)), 3.5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, mean, 1)), 3.5, 0);
    CO_EXPECT_NULL(co_session_run(ctx, session, sum, feeds, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the same on every replica");
    /* Two values, where one of them is fed. */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_session_run(ctx, session, sum, feeds, 2)), 13.5, 0);
    CO_EXPECT_OK(ctx);
}

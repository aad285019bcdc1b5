/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs with variables, control dependencies, gradients and steps of two replicas. A
 * session runs some of their values, with some of them fed. The same calls are made eagerly, those
 * alone that the fetches need by the simple rule of `need`: results and variables have the same
 * bits.
 */
#include <cohort/v1.h>
#include "fuzz.h"

#define MAX_STATEMENTS 40
#define NUM_VARIABLES  3
#define MAX_ROUNDS     4
#define MAX_FETCHES    3
#define WIDTH          4

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static unsigned
next_byte(reader *r)
{
    return r->at < r->end ? *r->at++ : 0;
}

enum { NEG, TANH, ADD, MUL, READ, ASSIGN, ASSIGN_ADD, PLACEHOLDER, GRADIENT, STEP, NUM_KINDS };

typedef struct statement {
    int  kind, a, b; /* operands are earlier statements */
    int  variable;
    int  after; /* an earlier statement that comes first; -1: none */
    int  which; /* result of a step */
    bool is_fed;
} statement;

/* One way of making the calls. */
typedef struct side {
    co_context  *ctx;
    co_strategy *strategy;
    co_value    *variables[NUM_VARIABLES], *mirrored;
    co_value    *values[MAX_STATEMENTS];
    bool         in_graph;
} side;

static co_value *
vector(co_context *ctx, unsigned seed)
{
    float   data[WIDTH];
    int64_t dim = WIDTH;

    for (int i = 0; i < WIDTH; ++i)
        data[i] = (float)((int)(seed * 7 + (unsigned)i * 13) % 29 - 14) / 8.0F;
    return co_tensor(ctx, CO_FLOAT32, &dim, 1, data);
}

typedef struct step_user {
    co_value *variable;
    int       only; /* the result that is needed; -1: both are asked for later */
} step_user;

/* Two results, of which the second updates a variable. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    const step_user *u = user;
    co_value        *x = co_at(ctx, args, 0), *results[2] = { NULL, NULL };

    if (u->only != 1)
        results[0] = co_all_reduce(ctx, CO_REDUCE_SUM, co_tanh(ctx, x));
    if (u->only != 0)
        results[1] = co_assign_add(ctx, u->variable, co_tanh(ctx, co_neg(ctx, x)));
    return co_args(ctx, results[0] != NULL ? results[0] : co_none(ctx),
                   results[1] != NULL ? results[1] : co_none(ctx));
}

static co_value *
run_step(const side *s, const statement *st, co_value *x)
{
    co_context *ctx = s->ctx;
    step_user   user = { s->mirrored, s->in_graph ? -1 : st->which };
    co_value   *results = co_run(ctx, s->strategy, step, co_args(ctx, x), &user);

    if (results == NULL)
        return NULL;
    return co_reduce(ctx, s->strategy, CO_REDUCE_SUM, co_at(ctx, results, (size_t)st->which), NULL,
                     0);
}

static co_value *
gradient(co_context *ctx, co_value *x)
{
    co_value *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_tanh(ctx, co_mul(ctx, x, x));
    return co_gradient(ctx, y, x);
}

static co_value *
make(const side *s, const statement *st, unsigned seed)
{
    co_context *ctx = s->ctx;
    co_value   *a = s->values[st->a], *b = s->values[st->b], *v = s->variables[st->variable];

    switch (st->kind) {
    case NEG: return co_neg(ctx, a);
    case TANH: return co_tanh(ctx, a);
    case ADD: return co_add(ctx, a, b);
    case MUL: return co_mul(ctx, a, co_tanh(ctx, b));
    case READ: return co_variable_read(ctx, v);
    case ASSIGN: return co_assign(ctx, v, co_tanh(ctx, a));
    case ASSIGN_ADD: return co_assign_add(ctx, v, co_tanh(ctx, a));
    case PLACEHOLDER:
        return s->in_graph ? co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1)) : vector(ctx, seed);
    case GRADIENT: return gradient(ctx, a);
    default: return run_step(s, st, a);
    }
}

/* --- what the graph does, simply --- */

static void
need(const statement *all, int i, bool *is_needed)
{
    const statement *st = &all[i];

    if (is_needed[i])
        return;
    is_needed[i] = true;
    if (i == 0 || st->is_fed) /* a constant, or given */
        return;
    if (st->kind != READ && st->kind != PLACEHOLDER)
        need(all, st->a, is_needed);
    if (st->kind == ADD || st->kind == MUL)
        need(all, st->b, is_needed);
    if (st->after > 0)
        need(all, st->after, is_needed);
}

static bool
same(co_context *ctx, co_value *a, co_value *b)
{
    return co_value_num_elements(ctx, a) == WIDTH && co_value_num_elements(ctx, b) == WIDTH &&
           memcmp(co_value_data(ctx, a), co_value_data(ctx, b), WIDTH * sizeof(float)) == 0;
}

static void
compare_variables(const side *eager, const side *graph)
{
    co_context *ctx = eager->ctx;

    for (int i = 0; i < NUM_VARIABLES; ++i)
        FUZZ_REQUIRE(same(ctx, co_variable_read(ctx, eager->variables[i]),
                          co_variable_read(ctx, graph->variables[i])));
    FUZZ_REQUIRE(
        same(ctx, co_variable_read(ctx, eager->mirrored), co_variable_read(ctx, graph->mirrored)));
}

/* One run of the session, and the same calls without it. */
static void
run_round(reader *r, side *eager, side *graph, statement *all, int n, co_session *session,
          unsigned round)
{
    co_context *ctx = eager->ctx;
    co_feed     feeds[MAX_STATEMENTS];
    co_value   *fetches[MAX_FETCHES], *results;
    int         fetched[MAX_FETCHES], num_fetches = 1 + (int)(next_byte(r) % MAX_FETCHES);
    int         more = (int)next_byte(r); /* one value that is no placeholder is fed, or none */
    size_t      num_feeds = 0;
    bool        is_needed[MAX_STATEMENTS] = { false };

    for (int i = 1; i < n; ++i) {
        all[i].is_fed = all[i].kind == PLACEHOLDER || i == more;
        if (all[i].is_fed)
            feeds[num_feeds++] = (co_feed){ graph->values[i], vector(ctx, round + (unsigned)i) };
    }
    for (int i = 0; i < num_fetches; ++i) {
        fetched[i] = (int)(next_byte(r) % (unsigned)n);
        fetches[i] = graph->values[fetched[i]];
        need(all, fetched[i], is_needed);
    }
    results = co_session_run(ctx, session, co_list(ctx, fetches, (size_t)num_fetches), feeds,
                             num_feeds);
    if (results == NULL)
        fprintf(stderr, "%s\n", co_error(ctx)->message);
    FUZZ_REQUIRE(results != NULL);
    for (int i = 1; i < n; ++i)
        if (is_needed[i])
            eager->values[i] = all[i].is_fed ? vector(ctx, round + (unsigned)i)
                                             : make(eager, &all[i], 0);
    FUZZ_REQUIRE(co_ok(ctx));
    for (int i = 0; i < num_fetches; ++i)
        FUZZ_REQUIRE(same(ctx, co_at(ctx, results, (size_t)i), eager->values[fetched[i]]));
    compare_variables(eager, graph);
}

static void
make_variables(side *s)
{
    for (int i = 0; i < NUM_VARIABLES; ++i)
        s->variables[i] = co_variable(s->ctx, vector(s->ctx, (unsigned)i), NULL);
    CO_SCOPE(s->ctx, s->strategy) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

        options.aggregation = CO_AGGREGATION_MEAN;
        s->mirrored = co_variable(s->ctx, vector(s->ctx, 9), &options);
    }
}

static statement
read_statement(reader *r, int i)
{
    statement st = { .kind = (int)(next_byte(r) % NUM_KINDS) };
    unsigned  after;

    st.a = (int)(next_byte(r) % (unsigned)i);
    st.b = (int)(next_byte(r) % (unsigned)i);
    st.variable = (int)(next_byte(r) % NUM_VARIABLES);
    after = next_byte(r);
    st.after = after % 3 == 0 ? (int)(after / 3 % (unsigned)i) : -1;
    st.which = (int)(after % 2);
    return st;
}

static void
build(reader *r, side *graph, statement *all, int n)
{
    for (int i = 1; i < n; ++i) {
        all[i] = read_statement(r, i);
        if (all[i].after < 0) {
            graph->values[i] = make(graph, &all[i], 0);
        } else {
            CO_CONTROL_DEPENDENCIES(graph->ctx, graph->values[all[i].after])
            graph->values[i] = make(graph, &all[i], 0);
        }
        if (graph->values[i] == NULL)
            fprintf(stderr, "%s\n", co_error(graph->ctx)->message);
        FUZZ_REQUIRE(graph->values[i] != NULL);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context  *ctx; /* devices are made once */
    static co_strategy *strategy;
    reader              r = { data, data + size };
    statement           all[MAX_STATEMENTS] = { { 0 } };
    int                 n = 1 + (int)(next_byte(&r) % (MAX_STATEMENTS - 1));

    if (ctx == NULL) {
        ctx = co_open("cpus=2");
        strategy = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    }
    CO_BLOCK(ctx) {
        side        eager = { .ctx = ctx, .strategy = strategy };
        side        graph = { .ctx = ctx, .strategy = strategy, .in_graph = true };
        co_graph   *g = co_graph_new(ctx);
        co_session *session = co_session_open(ctx, g, NULL);
        co_value   *init = NULL;

        make_variables(&eager);
        eager.values[0] = graph.values[0] = vector(ctx, 5);
        co_graph_begin(ctx, g);
        make_variables(&graph);
        init = co_global_variables_initializer(ctx);
        build(&r, &graph, all, n);
        co_graph_end(ctx);
        FUZZ_REQUIRE(co_session_run(ctx, session, init, NULL, 0) != NULL);
        for (unsigned round = 0; round < MAX_ROUNDS; ++round)
            run_round(&r, &eager, &graph, all, n, session, round);
        FUZZ_REQUIRE(co_ok(ctx));
    }
    return 0;
}

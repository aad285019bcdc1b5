/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of 1 to 40 operators with variables, gradients and random numbers: whatever a function
 * computes, a captured one computes the same bits, call after call, and leaves variables with the
 * same bits; so does a graph that its calls built, run by a session. Where the function fails
 * without capturing, the others fail with the same code.
 */
#include <cohort/v1.h>
#include "fuzz.h"

enum { MAX_STEPS = 40, MAX_VALUES = 64, MAX_ELEMENTS = 600, NUM_ARGS = 4, NUM_CALLS = 4 };

typedef struct program {
    const uint8_t *data;
    size_t         size;
    co_value      *variables[2];
    co_value      *made[3 * MAX_STEPS]; /* by the last execution: a graph runs what is asked for */
    size_t         num_made;
} program;

/* One execution of a program. */
typedef struct machine {
    co_context *ctx;
    program    *p;
    size_t      at;
    co_value   *values[MAX_VALUES];
    size_t      n;
    bool        has_tape;
} machine;

static uint8_t
next(machine *m)
{
    return m->at < m->p->size ? m->p->data[m->at++] : 0;
}

static co_value *
pick(machine *m)
{
    uint8_t byte = next(m);

    if (byte >= 224)
        return m->p->variables[byte % 2];
    return m->values[byte % m->n];
}

/* Keep a result; one that is too large, or no tensor, is dropped. */
static void
push(machine *m, co_value *made)
{
    if (made != NULL)
        m->p->made[m->p->num_made++] = made;
    if (made == NULL || m->n == MAX_VALUES || co_value_kind(made) == CO_KIND_SLICES ||
        co_value_num_elements(m->ctx, made) > MAX_ELEMENTS)
        return;
    m->values[m->n++] = made;
}

/* --- operators by number --- */

typedef co_value *(*unary_fn)(co_context *ctx, co_value *x);
typedef co_value *(*binary_fn)(co_context *ctx, co_value *x, co_value *y);

static const unary_fn unaries[] = {
    (co_neg),     (co_square), (co_sqrt),     (co_exp),       (co_log),        (co_tanh),
    (co_sigmoid), (co_relu),   (co_abs),      (co_sign),      (co_floor),      (co_softplus),
    (co_silu),    (co_selu),   (co_identity), (co_ones_like), (co_zeros_like), (co_stop_gradient),
};
static const binary_fn binaries[] = {
    (co_add),     (co_sub),       (co_mul),     (co_div),   (co_maximum),
    (co_minimum), (co_less),      (co_greater), (co_equal), (co_squared_difference),
    (co_matmul),  (co_not_equal),
};

static co_value *
reduce(machine *m, uint8_t how)
{
    co_value *x = pick(m);
    int       axis = 0;
    bool      keepdims = how % 2 == 1;

    switch (how / 2 % 3) {
    case 0: return co_reduce_sum(m->ctx, x, CO_ALL_AXES, keepdims);
    case 1: return co_reduce_mean(m->ctx, x, &axis, 1, keepdims);
    default: return co_reduce_max(m->ctx, x, &axis, 1, keepdims);
    }
}

static co_value *
reshape(machine *m, uint8_t how)
{
    const int64_t flat[1] = { -1 }, tall[2] = { -1, 2 };
    co_value     *x = pick(m);

    switch (how % 5) {
    case 0: return co_reshape(m->ctx, x, flat, 1);
    case 1: return co_reshape(m->ctx, x, tall, 2);
    case 2: return co_transpose(m->ctx, x, NULL, 0);
    case 3: return co_expand_dims(m->ctx, x, 0);
    default: return co_cast(m->ctx, x, next(m) % 2 == 0 ? CO_FLOAT32 : CO_FLOAT64);
    }
}

static co_value *
other(machine *m, uint8_t how)
{
    co_context   *ctx = m->ctx;
    const int64_t dim = 6;

    switch (how % 8) {
    case 0: return co_softmax(ctx, pick(m), -1);
    case 1: return co_concat(ctx, co_args(ctx, pick(m), pick(m)), 0);
    case 2: return co_where(ctx, co_less(ctx, pick(m), co_float(ctx, 0.5)), pick(m), pick(m));
    case 3: return co_mul(ctx, pick(m), co_float(ctx, (next(m) - 100) / 16.0));
    case 4: return co_random_uniform(ctx, CO_FLOAT32, &dim, 1, -1, 1);
    case 5: return co_dropout(ctx, pick(m), 0.25);
    case 6: return co_cumsum(ctx, pick(m), 0, false, false);
    default: /* indices that are always right: errors of data would come before those of types */
        return co_gather(ctx, pick(m), co_cast(ctx, co_zeros_like(ctx, pick(m)), CO_INT32), 0, 0);
    }
}

/* Changes of variables, and tapes. */
static co_value *
effect(machine *m, uint8_t how)
{
    co_context *ctx = m->ctx;
    co_value   *variable = m->p->variables[how % 2], *target;

    switch (how / 2 % 4) {
    case 0: return co_assign_add(ctx, variable, pick(m));
    case 1: return co_assign(ctx, variable, pick(m));
    case 2:
        if (m->has_tape)
            return NULL;
        m->has_tape = true;
        co_tape_begin(ctx);
        co_watch(ctx, m->values[0]);
        return NULL;
    default:
        if (!m->has_tape)
            return NULL;
        m->has_tape = false;
        target = pick(m);
        target = co_gradient(ctx, target, co_args(ctx, m->values[0], variable));
        if (target == NULL)
            return NULL;
        for (size_t i = 0; i < 2; ++i)
            if (co_value_kind(co_at(ctx, target, i)) != CO_KIND_NONE)
                push(m, co_at(ctx, target, i));
        return NULL;
    }
}

static void
step(machine *m)
{
    uint8_t   what = next(m), how = next(m);
    co_value *x;

    if (what < 80) {
        push(m, unaries[how % (sizeof(unaries) / sizeof(unaries[0]))](m->ctx, pick(m)));
    } else if (what < 160) {
        x = pick(m);
        push(m, binaries[how % (sizeof(binaries) / sizeof(binaries[0]))](m->ctx, x, pick(m)));
    } else if (what < 180) {
        push(m, reduce(m, how));
    } else if (what < 200) {
        push(m, reshape(m, how));
    } else if (what < 225) {
        push(m, other(m, how));
    } else {
        push(m, effect(m, how));
    }
}

static co_value *
run(co_context *ctx, co_value *args, void *user)
{
    machine   m = { .ctx = ctx, .p = user };
    co_value *results[6];
    size_t    n = 0;

    m.p->num_made = 0;
    for (size_t i = 0; i < NUM_ARGS; ++i)
        m.values[m.n++] = co_at(ctx, args, i);
    for (int i = 0; i < MAX_STEPS && m.at < m.p->size && co_ok(ctx); ++i)
        step(&m);
    if (m.has_tape)
        co_tape_end(ctx);
    if (!co_ok(ctx))
        return NULL;
    for (size_t i = m.n; i > 0 && n < 6; --i) /* the last ones, which depend on the others */
        results[n++] = m.values[i - 1];
    return co_list(ctx, results, n);
}

/* --- comparing --- */

static co_value *
numbers(co_context *ctx, const int64_t *dims, int ndim, int seed)
{
    float   data[64];
    int64_t n = 1;

    for (int i = 0; i < ndim; ++i)
        n *= dims[i];
    for (int64_t i = 0; i < n; ++i)
        data[i] = (float)((seed * 37 + (int)i * 11) % 29 - 9) * 0.25F;
    return co_tensor(ctx, CO_FLOAT32, dims, ndim, data);
}

static co_value *
arguments(co_context *ctx, int seed)
{
    const int64_t dims[2] = { 4, 6 };

    return co_args(ctx, numbers(ctx, dims, 2, seed), numbers(ctx, dims + 1, 1, seed + 1),
                   numbers(ctx, dims, 0, seed + 2), numbers(ctx, dims, 2, seed + 3));
}

static void
make_variables(co_context *ctx, program *p)
{
    const int64_t dims[2] = { 4, 6 };

    p->variables[0] = co_variable(ctx, numbers(ctx, dims, 2, 5), NULL);
    p->variables[1] = co_variable(ctx, numbers(ctx, dims + 1, 1, 6), NULL);
}

static void
require_same(co_context *ctx, co_value *a, co_value *b)
{
    size_t nbytes;

    FUZZ_REQUIRE(a != NULL && b != NULL);
    if (co_value_kind(a) == CO_KIND_LIST) {
        FUZZ_REQUIRE(co_num_items(ctx, a) == co_num_items(ctx, b));
        for (size_t i = 0; i < co_num_items(ctx, a); ++i)
            require_same(ctx, co_at(ctx, a, i), co_at(ctx, b, i));
        return;
    }
    a = co_identity(ctx, a); /* a result may be a variable */
    b = co_identity(ctx, b);
    FUZZ_REQUIRE(co_value_dtype(ctx, a) == co_value_dtype(ctx, b));
    FUZZ_REQUIRE(co_value_ndim(ctx, a) == co_value_ndim(ctx, b));
    FUZZ_REQUIRE(co_value_num_elements(ctx, a) == co_value_num_elements(ctx, b));
    nbytes = (size_t)co_value_num_elements(ctx, a) * co_dtype_size(co_value_dtype(ctx, a));
    FUZZ_REQUIRE(nbytes == 0 || memcmp(co_value_data(ctx, a), co_value_data(ctx, b), nbytes) == 0);
}

/* How a call ended. */
typedef struct outcome {
    co_value *result;
    co_code   code;
    char      message[sizeof(((co_error_info *)NULL)->message)];
} outcome;

static outcome
take_outcome(co_context *ctx, co_value *result)
{
    outcome o = { .result = result, .code = co_error(ctx)->code };

    snprintf(o.message, sizeof(o.message), "%s", o.code != CO_OK ? co_error(ctx)->message : "none");
    co_clear(ctx);
    return o;
}

static void
require_same_outcome(co_context *ctx, const outcome *eager, const program *a, const outcome *other,
                     const program *b)
{
    if (other->code != eager->code) /* the other one is what to look for */
        fprintf(stderr, "%s against %s\n", other->message, eager->message);
    FUZZ_REQUIRE(other->code == eager->code);
    if (eager->code != CO_OK)
        return; /* what happened before an error differs if it was one of types */
    require_same(ctx, eager->result, other->result);
    for (int k = 0; k < 2; ++k)
        require_same(ctx, a->variables[k], b->variables[k]);
}

/* A graph of the program, and how building it ended. */
typedef struct graphed {
    program     p;
    co_session *session;
    co_feed     feeds[NUM_ARGS];
    co_value   *fetches; /* the results, and all that was made: eager execution makes all of it */
    outcome     built;
} graphed;

static void
build_graph(co_context *ctx, graphed *g)
{
    co_graph *graph = co_graph_new(ctx);
    co_value *args = arguments(ctx, 0), *placeholders[NUM_ARGS], *results;

    g->session = co_session_open(ctx, graph, NULL);
    make_variables(ctx, &g->p);
    co_graph_begin(ctx, graph);
    for (size_t i = 0; i < NUM_ARGS; ++i) {
        co_value *like = co_at(ctx, args, i);
        int64_t   dims[2];

        for (int k = 0; k < co_value_ndim(ctx, like); ++k)
            dims[k] = co_value_dim(ctx, like, k);
        placeholders[i] = co_placeholder(ctx, CO_FLOAT32, dims, co_value_ndim(ctx, like));
        g->feeds[i].tensor = placeholders[i];
    }
    results = run(ctx, co_list(ctx, placeholders, NUM_ARGS), &g->p);
    g->built = take_outcome(ctx, results);
    if (results != NULL)
        g->fetches = co_args(ctx, results, co_list(ctx, g->p.made, g->p.num_made));
    co_graph_end(ctx);
    FUZZ_REQUIRE(co_ok(ctx));
}

static outcome
run_graph(co_context *ctx, graphed *g, co_value *args)
{
    co_value *fetched;

    if (g->built.code != CO_OK)
        return g->built;
    for (size_t i = 0; i < NUM_ARGS; ++i)
        g->feeds[i].value = co_at(ctx, args, i);
    fetched = co_session_run(ctx, g->session, g->fetches, g->feeds, NUM_ARGS);
    return take_outcome(ctx, fetched != NULL ? co_at(ctx, fetched, 0) : NULL);
}

static void
compare(co_context *ctx, program *eager, program *captured, graphed *graph)
{
    co_function *f;

    make_variables(ctx, eager);
    make_variables(ctx, captured);
    build_graph(ctx, graph);
    f = co_function_of(ctx, run, captured, NULL);
    for (int i = 0; i < NUM_CALLS; ++i) {
        co_value *args = arguments(ctx, i);
        outcome   expected, found;

        co_set_seed(ctx, (uint64_t)i / 2);
        expected = take_outcome(ctx, run(ctx, args, eager));
        co_set_seed(ctx, (uint64_t)i / 2);
        found = take_outcome(ctx, co_call(ctx, f, args));
        require_same_outcome(ctx, &expected, eager, &found, captured);
        co_set_seed(ctx, (uint64_t)i / 2);
        found = run_graph(ctx, graph, args);
        require_same_outcome(ctx, &expected, eager, &found, &graph->p);
        if (expected.code != CO_OK)
            return;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context *ctx;
    program            eager = { .data = data, .size = size }, captured = eager;
    graphed            graph = { .p = eager };

    if (ctx == NULL)
        ctx = co_open("cpus=1,log=off");
    CO_BLOCK(ctx) {
        compare(ctx, &eager, &captured, &graph);
    }
    FUZZ_REQUIRE(co_ok(ctx));
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of 1 to 40 operators with variables, gradients and random numbers: whatever a function
 * computes, a captured one computes the same bits, call after call, and leaves variables with the
 * same bits. Where the function fails without capturing, the captured one fails with the same code.
 */
#include "fuzz.h"

enum { MAX_STEPS = 40, MAX_VALUES = 64, MAX_ELEMENTS = 600, NUM_ARGS = 4, NUM_CALLS = 4 };

typedef struct program {
    const uint8_t *data;
    size_t         size;
    co_value      *variables[2];
} program;

/* One execution of a program. */
typedef struct machine {
    co_context    *ctx;
    const program *p;
    size_t         at;
    co_value      *values[MAX_VALUES];
    size_t         n;
    bool           has_tape;
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

static void
compare(co_context *ctx, program *eager, program *captured)
{
    co_function *f;

    make_variables(ctx, eager);
    make_variables(ctx, captured);
    f = co_function_of(ctx, run, captured, NULL);
    for (int i = 0; i < NUM_CALLS; ++i) {
        co_value *args = arguments(ctx, i), *a, *b;
        co_code   code;
        char      message[sizeof(co_error(ctx)->message)];

        co_set_seed(ctx, (uint64_t)i / 2);
        a = run(ctx, args, eager);
        code = co_error(ctx)->code;
        snprintf(message, sizeof(message), "%s", code != CO_OK ? co_error(ctx)->message : "none");
        co_clear(ctx);
        co_set_seed(ctx, (uint64_t)i / 2);
        b = co_call(ctx, f, args);
        if (co_error(ctx)->code != code) /* the other one is what to look for */
            fprintf(stderr, "%s against %s\n", co_error(ctx)->message, message);
        FUZZ_REQUIRE(co_error(ctx)->code == code);
        co_clear(ctx);
        if (code != CO_OK)
            return; /* what happened before an error differs if it was one of types */
        require_same(ctx, a, b);
        for (int k = 0; k < 2; ++k)
            require_same(ctx, eager->variables[k], captured->variables[k]);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context *ctx;
    program            eager = { data, size, { NULL } }, captured = eager;

    if (ctx == NULL)
        ctx = co_open("cpus=1,log=off");
    CO_BLOCK(ctx) {
        compare(ctx, &eager, &captured);
    }
    FUZZ_REQUIRE(co_ok(ctx));
    return 0;
}

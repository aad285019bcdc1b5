/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs of 1 to 30 operators. The bytes say which tensors there are at first, which
 * operator is applied to which of them and with which attributes. Every step is done with the
 * optimised and with the reference kernels on inputs of the same bits, with gradients: both fail
 * with the same code, or the results have one dtype and shape and are close (ops_close.h). At the
 * end a gradient goes through the whole program. Giving both kernels the same inputs at each step
 * is what makes a tight comparison possible: a difference of one rounding cannot grow through later
 * steps, or send one of them over a step of floor or argmax. The rule of the operator, asked about
 * specs with unknowns in the place of the inputs, has to allow what the step did.
 */
#include "ops_close.h"
#include "ops_decode.h"

#define MAX_STEPS     30
#define LARGEST_BLOCK ((size_t)16 << 20)

typedef struct program {
    co_context *fast, *plain;
    bytes       in;
    co_value   *values[MAX_VALUES]; /* of fast */
    size_t      num_values;
} program;

/* What one kind of kernels made of a step. */
typedef struct outcome {
    co_value *results;   /* a tuple, NULL on an error */
    co_value *gradients; /* a tuple, NULL where none was asked for or on an error */
    co_code   code, gradient_code;
} outcome;

/* The same tensor in another context. */
static co_value *
copied(co_context *to, co_context *from, co_value *x)
{
    int64_t dims[CO_MAX_DIMS];
    int     ndim = co_value_ndim(from, x);

    for (int d = 0; d < ndim; ++d)
        dims[d] = co_value_dim(from, x, d);
    return co_tensor(to, co_value_dtype(from, x), dims, ndim, co_value_data(from, x));
}

/* Nothing went wrong outside the calls that may. */
static void
require_ok(const program *p)
{
    if (!co_ok(p->fast) || !co_ok(p->plain))
        fprintf(stderr, "%s%s\n", co_error(p->fast)->message, co_error(p->plain)->message);
    FUZZ_REQUIRE(co_ok(p->fast) && co_ok(p->plain));
}

static co_code
take_error(co_context *ctx)
{
    co_code code = co_error(ctx)->code;

    FUZZ_REQUIRE(code == CO_OK || code == CO_INVALID_ARGUMENT || code == CO_TYPE_ERROR ||
                 code == CO_RESOURCE_EXHAUSTED);
    FUZZ_REQUIRE(code == CO_OK || co_error(ctx)->message[0] != '\0');
    co_clear(ctx);
    return code;
}

static size_t
select_reals(co_context *ctx, co_value *const *from, size_t n, co_value **out)
{
    size_t count = 0;

    for (size_t i = 0; i < n; ++i)
        if (co_dtype_is_floating(co_value_dtype(ctx, from[i])))
            out[count++] = from[i];
    return count;
}

static outcome
run_step(co_context *ctx, const step *s, co_value *const *in)
{
    co_value *parts[MAX_RESULTS], *reals[MAX_RESULTS], *sources[MAX_INPUTS];
    size_t    num_parts, num_reals, num_sources = select_reals(ctx, in, s->num_in, sources);
    outcome   out = { NULL, NULL, CO_OK, CO_OK };

    co_set_seed(ctx, 3);
    co_tape_begin(ctx);
    co_watch(ctx, co_tuple(ctx, sources, num_sources));
    out.results = co_op_call(ctx, s->name, co_tuple(ctx, in, s->num_in), step_attrs(ctx, s));
    out.code = take_error(ctx);
    FUZZ_REQUIRE((out.results != NULL) == (out.code == CO_OK));
    if (out.results == NULL) {
        co_tape_end(ctx);
        return out;
    }
    if (co_value_kind(out.results) != CO_KIND_TUPLE)
        out.results = co_args(ctx, out.results);
    num_parts = co_num_items(ctx, out.results);
    num_parts = num_parts < MAX_RESULTS ? num_parts : MAX_RESULTS;
    for (size_t i = 0; i < num_parts; ++i)
        parts[i] = co_at(ctx, out.results, i);
    num_reals = select_reals(ctx, parts, num_parts, reals);
    if (num_reals == 0 || num_sources == 0) {
        co_tape_end(ctx);
        return out;
    }
    out.gradients = co_gradient(ctx, co_tuple(ctx, reals, num_reals),
                                co_tuple(ctx, sources, num_sources));
    out.gradient_code = take_error(ctx);
    return out;
}

/* Rows stay rows in one and in the other; they are compared as the tensors that they stand for. */
static co_value *
dense(co_context *ctx, co_value *gradient)
{
    return co_value_kind(gradient) == CO_KIND_SLICES ? co_to_tensor(ctx, gradient, CO_DTYPE_NONE)
                                                     : gradient;
}

static void
describe(const program *p, const step *s)
{
    char text[2000];

    co_format(p->fast, step_attrs(p->fast, s), text, sizeof(text));
    fprintf(stderr, "%s, attributes %s\n", s->name, text);
    for (size_t i = 0; i < s->num_in; ++i) {
        co_format(p->fast, s->in[i], text, sizeof(text));
        fprintf(stderr, "    %s\n", text);
    }
}

static bool
same_results(const program *p, const step *s, const outcome *a, const outcome *b, double *size)
{
    /* The partial products of 16 and more are beyond every float: infinite, and not a number where
     * a zero comes later. */
    closeness how = { p->fast, p->plain, *size, false, strcmp(s->name, "reduce_prod") == 0 };

    if (co_num_items(p->fast, a->results) != co_num_items(p->plain, b->results))
        return false;
    for (size_t i = 0; i < co_num_items(p->fast, a->results); ++i) {
        co_value *x = co_at(p->fast, a->results, i);

        if (!are_close(&how, x, co_at(p->plain, b->results, i)))
            return false;
        *size = larger(*size, largest(p->fast, x));
    }
    return true;
}

/* Gradients are sums of numbers of the size of inputs and results. */
static bool
same_gradients(const program *p, const outcome *a, const outcome *b, double size)
{
    closeness how = { p->fast, p->plain, size, true, true };

    for (size_t i = 0; a->gradients != NULL && i < co_num_items(p->fast, a->gradients); ++i) {
        co_value *x = co_at(p->fast, a->gradients, i), *y = co_at(p->plain, b->gradients, i);

        if (co_value_kind(x) != co_value_kind(y))
            return false;
        if (co_value_kind(x) != CO_KIND_NONE &&
            !are_close(&how, dense(p->fast, x), dense(p->plain, y)))
            return false;
    }
    return true;
}

/* Operators whose gradient jumps where a sum of squares, along the axes of one attribute, or its
 * root is as large as another says. */
static const struct {
    const char *name, *axes, *limit;
    double      usual;
    bool        is_root;
} jumps[] = {
    { "clip_by_global_norm", "", "clip_norm", 0, true },
    { "clip_by_norm", "axes", "clip_norm", 0, true },
    { "l2_normalize", "axis", "epsilon", 1e-12, false },
};

static const attr *
find_attr(const step *s, const char *name)
{
    static const attr none = { .type = 'n' };

    for (size_t i = 0; i < s->num_attrs; ++i)
        if (strcmp(s->attrs[i].name, name) == 0)
            return &s->attrs[i];
    return &none;
}

/* The sums of squares of the inputs of a step, in double. */
static co_value *
sums_of_squares(co_context *ctx, const step *s, const char *axes)
{
    const char *keys[] = { "axis" };
    co_value   *axis = attr_value(ctx, find_attr(s, axes)), *sums = NULL;

    for (size_t i = 0; i < s->num_in; ++i) {
        co_value *x = co_square(ctx, co_cast(ctx, s->in[i], CO_FLOAT64));

        x = co_op_call(ctx, "reduce_sum", co_args(ctx, x), co_dict(ctx, keys, &axis, 1));
        sums = sums == NULL ? x : co_add(ctx, sums, x);
    }
    return sums;
}

/* Where a norm is the limit to the last bits, one kernel finds it above and the other not: the
 * gradient is then one of two. */
static bool
is_at_jump(const program *p, const step *s)
{
    size_t      k = 0, num_jumps = sizeof(jumps) / sizeof(jumps[0]);
    const attr *given;
    double      limit, near, sums[MAX_ELEMENTS];
    co_value   *squares;
    int64_t     n;

    while (k < num_jumps && strcmp(jumps[k].name, s->name) != 0)
        ++k;
    if (k == num_jumps)
        return false;
    given = find_attr(s, jumps[k].limit);
    limit = given->type == 'f' ? given->real : jumps[k].usual;
    limit *= jumps[k].is_root ? limit : 1;
    near = rounding(co_value_dtype(p->fast, s->in[0]));
    near *= limit * (near > 0x1p-20 ? 64 : ROUNDINGS);
    squares = sums_of_squares(p->fast, s, jumps[k].axes);
    n = co_value_num_elements(p->fast, squares);
    co_value_copy_data(p->fast, squares, CO_FLOAT64, sums, n);
    for (int64_t i = 0; i < n; ++i)
        if (fabs(sums[i] - limit) <= near)
            return true;
    return false;
}

/* One kernel needs more than the other, and the allocator refuses it. */
static bool
lacks_memory(const outcome *o)
{
    return o->code == CO_RESOURCE_EXHAUSTED || o->gradient_code == CO_RESOURCE_EXHAUSTED;
}

static void
compare(const program *p, const step *s, const outcome *a, const outcome *b, double size)
{
    bool same_codes = a->code == b->code && a->gradient_code == b->gradient_code;
    bool same;

    if (lacks_memory(a) || lacks_memory(b))
        return;
    same = same_codes &&
           (a->results == NULL || (same_results(p, s, a, b, &size) &&
                                   (is_at_jump(p, s) || same_gradients(p, a, b, size))));

    if (!same)
        describe(p, s);
    FUZZ_REQUIRE(same_codes);
    FUZZ_REQUIRE(same);
}

static bool
is_small(co_context *ctx, co_value *x)
{
    int64_t dims[CO_MAX_DIMS];
    int     ndim = co_value_ndim(ctx, x);

    for (int d = 0; d < ndim; ++d)
        dims[d] = co_value_dim(ctx, x, d);
    return extent(dims, (size_t)ndim) <= MAX_ELEMENTS;
}

/* Results that later steps may use: not too many elements, and on demand tamed, so that programs do
 * not end in NaN. */
static void
keep(program *p, co_value *results, bool tame)
{
    for (size_t i = 0; i < co_num_items(p->fast, results); ++i) {
        co_value *x = co_at(p->fast, results, i);

        if (!is_small(p->fast, x))
            continue;
        if (tame && co_dtype_is_floating(co_value_dtype(p->fast, x)))
            x = co_sin(p->fast, co_clip_by_value(p->fast, x, -100, 100));
        p->values[p->num_values % MAX_VALUES] = x;
        ++p->num_values;
    }
}

/* The type that the operator's rule gives for inputs of which some dimensions, or ranks, are
 * unknown: none is refused that has a result, and the result is of that type. */
static void
check_types(const program *p, const step *s, const outcome *done, unsigned unknown)
{
    co_context *ctx = p->fast;
    co_value   *specs[MAX_INPUTS], *type;
    unsigned    k = 0;

    for (size_t i = 0; i < s->num_in; ++i) {
        int     ndim = co_value_ndim(ctx, s->in[i]);
        int64_t dims[CO_MAX_DIMS];

        for (int d = 0; d < ndim; ++d, ++k)
            dims[d] = (unknown >> k % 8 & 1) != 0 ? -1 : co_value_dim(ctx, s->in[i], d);
        specs[i] = co_spec(ctx, co_value_dtype(ctx, s->in[i]), dims,
                           (unknown >> 8 >> i % 8 & 1) != 0 ? -1 : ndim);
    }
    type = co_op_infer(ctx, s->name, co_tuple(ctx, specs, s->num_in), step_attrs(ctx, s));
    if (take_error(ctx) != CO_OK || done->results == NULL) {
        if (type == NULL && done->results != NULL)
            describe(p, s);
        FUZZ_REQUIRE(type != NULL || done->results == NULL);
        return;
    }
    if (co_value_kind(type) == CO_KIND_NONE)
        return;
    if (co_value_kind(type) != CO_KIND_TUPLE)
        type = co_args(ctx, type);
    FUZZ_REQUIRE(co_num_items(ctx, type) == co_num_items(ctx, done->results));
    for (size_t i = 0; i < co_num_items(ctx, type); ++i) {
        co_value *said = co_at(ctx, type, i), *is = co_at(ctx, done->results, i);
        int       ndim = co_value_ndim(ctx, said);
        bool      is_so = co_value_dtype(ctx, said) == co_value_dtype(ctx, is) &&
                     (ndim < 0 || ndim == co_value_ndim(ctx, is));

        for (int d = 0; is_so && d < ndim; ++d)
            is_so = co_value_dim(ctx, said, d) < 0 ||
                    co_value_dim(ctx, said, d) == co_value_dim(ctx, is, d);
        if (!is_so)
            describe(p, s);
        FUZZ_REQUIRE(is_so);
    }
}

static void
do_step(program *p)
{
    step      s;
    co_value *copies[MAX_INPUTS];
    double    size = 0;
    size_t    same;
    outcome   fast, plain;

    decode_step(p->fast, &p->in, p->values, p->num_values < MAX_VALUES ? p->num_values : MAX_VALUES,
                &s);
    for (size_t i = 0; i < s.num_in; ++i) {
        for (same = 0; s.in[same] != s.in[i];) /* x + x has another gradient than x + y */
            ++same;
        copies[i] = same < i ? copies[same] : copied(p->plain, p->fast, s.in[i]);
        size = larger(size, largest(p->fast, s.in[i]));
    }
    require_ok(p);
    fast = run_step(p->fast, &s, s.in);
    plain = run_step(p->plain, &s, copies);
    compare(p, &s, &fast, &plain, size);
    check_types(p, &s, &fast, 0);
    check_types(p, &s, &fast, 0xff);
    check_types(p, &s, &fast, 0xffff);
    check_types(p, &s, &fast, (unsigned)(p->in.at * 2654435761u >> 12));
    if (fast.results != NULL)
        keep(p, fast.results, s.tame);
    require_ok(p);
}

/* The gradient of what came out last for what was there first has its dtype and shape. */
static void
end(program *p, co_value *const *first, size_t num_first)
{
    co_context *ctx = p->fast;
    co_value   *target = p->values[(p->num_values - 1) % MAX_VALUES], *gradients;

    if (!co_dtype_is_floating(co_value_dtype(ctx, target))) {
        co_tape_end(ctx);
        return;
    }
    gradients = co_gradient(ctx, target, co_tuple(ctx, first, num_first));
    if (take_error(ctx) != CO_OK)
        return;
    for (size_t i = 0; i < num_first; ++i) {
        co_value *g = co_at(ctx, gradients, i);

        if (co_value_kind(g) != CO_KIND_NONE)
            require_same_shape(ctx, dense(ctx, g), ctx, first[i]);
    }
}

static void
run_program(program *p)
{
    co_value *first[NUM_FIRST];
    size_t    steps = 1 + next_byte(&p->in) % MAX_STEPS;

    for (p->num_values = 0; p->num_values < NUM_FIRST; ++p->num_values)
        p->values[p->num_values] = p->num_values == 0 ? decode_image(p->fast, &p->in)
                                                      : decode_tensor(p->fast, &p->in);
    memcpy(first, p->values, sizeof(first));
    co_tape_begin(p->fast);
    for (size_t i = 0; i < NUM_FIRST; ++i)
        if (co_dtype_is_floating(co_value_dtype(p->fast, first[i])))
            co_watch(p->fast, first[i]);
    for (size_t i = 0; i < steps && p->in.at < p->in.size; ++i)
        CO_BLOCK(p->plain)
            do_step(p);
    end(p, first, NUM_FIRST);
}

/* A pad or tile may ask for hundreds of mebibytes, and rightly: it gets none. */
static void *
modest_alloc(size_t nbytes, size_t alignment, void *user)
{
    void *memory;

    (void)user;
    if (nbytes > LARGEST_BLOCK || posix_memalign(&memory, alignment, nbytes) != 0)
        return NULL;
    return memory;
}

static void
modest_free(void *memory, size_t nbytes, void *user)
{
    (void)nbytes;
    (void)user;
    free(memory);
}

static co_context *
open_modest(const char *settings)
{
    static const co_allocator modest = { modest_alloc, modest_free, NULL };
    co_options                options = CO_OPTIONS_INIT;

    options.settings = settings;
    options.allocator = &modest;
    return co_open_with(&options);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context *fast, *plain;
    program            p = { .in = { data, size, 0 } };

    if (fast == NULL) { /* for all inputs, and until the process ends */
        fast = open_modest("log=off, threads=2");
        plain = open_modest("log=off, threads=1, reference_kernels=yes");
        FUZZ_REQUIRE(co_ok(fast) && co_ok(plain));
    }
    p.fast = fast;
    p.plain = plain;
    CO_BLOCK(fast)
        run_program(&p);
    return 0;
}

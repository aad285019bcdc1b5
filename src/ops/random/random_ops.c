/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers: rules and public calls. random_uniform and random_normal draw the number of their
 * call from the context, by an entry that acts on its counter. Their numbers are a function of that
 * and of other attributes, so the kernels change no state, on whichever device they run; those of
 * the CPU are in ops/kernels/drivers/random_kernels.c.
 */
#include "ops/engine/call_recording.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/execute.h"
#include "ops/engine/op.h"
#include "ops/kernels/random_kernels.h"

#include <math.h>

#define UNIFORM_NUMBERS(X)                                                                         \
    X(coi_random_attrs, shape, INTS, "", NULL)                                                     \
    X(coi_random_attrs, dtype, DTYPE, "=float32", NULL)                                            \
    X(coi_random_attrs, low, FLOAT, "=0", NULL)                                                    \
    X(coi_random_attrs, high, FLOAT, "=1", NULL)
#define NORMAL_NUMBERS(X)                                                                          \
    X(coi_random_attrs, shape, INTS, "", NULL)                                                     \
    X(coi_random_attrs, dtype, DTYPE, "=float32", NULL)                                            \
    X(coi_random_attrs, mean, FLOAT, "=0", NULL)                                                   \
    X(coi_random_attrs, stddev, FLOAT, "=1", NULL)
#define UNIFORM_ATTRS(X)           UNIFORM_NUMBERS(X) X(coi_random_attrs, op_seed, INT, "=null", NULL)
#define NORMAL_ATTRS(X)            NORMAL_NUMBERS(X) X(coi_random_attrs, op_seed, INT, "=null", NULL)
#define STATELESS_UNIFORM_ATTRS(X) UNIFORM_NUMBERS(X) X(coi_random_attrs, seed, INTS, "", NULL)
#define STATELESS_NORMAL_ATTRS(X)  NORMAL_NUMBERS(X) X(coi_random_attrs, seed, INTS, "", NULL)
#define DRAWN_UNIFORM_ATTRS(X)                                                                     \
    STATELESS_UNIFORM_ATTRS(X) X(coi_random_attrs, replica, INT, "", NULL)
#define DRAWN_NORMAL_ATTRS(X) STATELESS_NORMAL_ATTRS(X) X(coi_random_attrs, replica, INT, "", NULL)

typedef coi_random_attrs uniform_attrs, normal_attrs, stateless_uniform_attrs,
    stateless_normal_attrs, drawn_uniform_attrs, drawn_normal_attrs;
COI_ATTR_TABLE(uniform_attrs, UNIFORM_ATTRS)
COI_ATTR_TABLE(normal_attrs, NORMAL_ATTRS)
COI_ATTR_TABLE(stateless_uniform_attrs, STATELESS_UNIFORM_ATTRS)
COI_ATTR_TABLE(stateless_normal_attrs, STATELESS_NORMAL_ATTRS)
COI_ATTR_TABLE(drawn_uniform_attrs, DRAWN_UNIFORM_ATTRS)
COI_ATTR_TABLE(drawn_normal_attrs, DRAWN_NORMAL_ATTRS)

/* Shape and dtype of the result. */
static co_code
random_infer(coi_call *call, coi_out *outs, bool takes_integers)
{
    const coi_random_attrs *attrs = call->attrs;
    const coi_ints         *shape = &attrs->shape;
    co_dtype                dtype = (co_dtype)attrs->dtype;

    if (call->op->kind == COI_RANDOM_STATELESS && attrs->seed.n != 2)
        return coi_invalid(call, "seed has %d number%s; it must have 2", attrs->seed.n,
                           COI_S(attrs->seed.n));
    if (dtype >= CO_NUM_DTYPES ||
        !(coi_dtypes[dtype].floating || (takes_integers && coi_dtypes[dtype].integer)))
        return coi_invalid(call, "dtype is %s; it must be float16, bfloat16, float32 or float64%s",
                           co_dtype_name(dtype), takes_integers ? ", or that of integers" : "");
    outs->dtype = dtype;
    outs->ndim = shape->n < 0 ? 0 : shape->n;
    for (int i = 0; i < outs->ndim; ++i) {
        if (shape->at[i] < 0)
            return coi_invalid(call, "shape holds %lld; dimensions are not negative",
                               (long long)shape->at[i]);
        outs->dims[i] = shape->at[i];
    }
    return CO_OK;
}

/* Shape and dtype as above, and both numbers that describe the distribution must be finite when
 * they are of this dtype. */
static co_code
fitting_infer(coi_call *call, coi_out *outs, const char *a, const char *b)
{
    static const double     largest[CO_NUM_DTYPES] = { [CO_FLOAT16] = 65504,
                                                       [CO_BFLOAT16] = 0x1.fep127,
                                                       [CO_FLOAT32] = 0x1.fffffep127,
                                                       [CO_FLOAT64] = 0x1.fffffffffffffp1023 };
    const coi_random_attrs *attrs = call->attrs;
    double                  numbers[2] = { attrs->low, attrs->high };
    char                    room[sizeof(numbers)];
    co_code                 rc = random_infer(call, outs, false);

    if (rc != CO_OK)
        return rc;
    coi_convert(CO_FLOAT64, numbers, outs->dtype, room, 2);
    coi_convert(outs->dtype, room, CO_FLOAT64, numbers, 2);
    if (isfinite(numbers[0]) && isfinite(numbers[1]))
        return CO_OK;
    return coi_invalid(call, "%s is %g and %s %g; %s cannot hold both, its largest number is %g", a,
                       attrs->low, b, attrs->high, co_dtype_name(outs->dtype),
                       largest[outs->dtype]);
}

/* Integers: those of the dtype from low up to high, which a double has exactly. */
static co_code
integers_infer(coi_call *call, coi_out *outs)
{
    const coi_random_attrs *attrs = call->attrs;
    double                  numbers[2] = { attrs->low, attrs->high - 1 };
    double                  back[2] = { 0, 0 };
    uint64_t                room[2];
    co_code                 rc = random_infer(call, outs, true);

    if (rc != CO_OK)
        return rc;
    if (floor(attrs->low) != attrs->low || floor(attrs->high) != attrs->high ||
        fabs(attrs->low) > 0x1p53 || fabs(attrs->high) > 0x1p53 || attrs->low >= attrs->high)
        return coi_invalid(call,
                           "low is %.17g and high %.17g; of integers they must be whole numbers "
                           "of at most 2^53, low below high",
                           attrs->low, attrs->high);
    coi_convert(CO_FLOAT64, numbers, outs->dtype, room, 2);
    coi_convert(outs->dtype, room, CO_FLOAT64, back, 2);
    if (back[0] == numbers[0] && back[1] == numbers[1])
        return CO_OK;
    return coi_invalid(call, "low is %.17g and high %.17g; %s cannot hold all numbers between them",
                       attrs->low, attrs->high, co_dtype_name(outs->dtype));
}

static co_code
uniform_infer(coi_call *call, coi_out *outs)
{
    const coi_random_attrs *attrs = call->attrs;

    if (attrs->dtype < CO_NUM_DTYPES && coi_dtypes[attrs->dtype].integer)
        return integers_infer(call, outs);

    if (!isfinite(attrs->low) || !isfinite(attrs->high) || attrs->low > attrs->high)
        return coi_invalid(call, "low is %g and high %g; they must be finite, low not above high",
                           attrs->low, attrs->high);
    return fitting_infer(call, outs, "low", "high");
}

static co_code
normal_infer(coi_call *call, coi_out *outs)
{
    const coi_random_attrs *attrs = call->attrs;

    if (!isfinite(attrs->mean) || !isfinite(attrs->stddev) || attrs->stddev < 0)
        return coi_invalid(call,
                           "mean is %g and stddev %g; they must be finite, stddev not negative",
                           attrs->mean, attrs->stddev);
    return fitting_infer(call, outs, "mean", "stddev");
}

#define RANDOM(name_, distribution, attrs_, kind_, doc_)                                           \
    .name = #name_, .doc = doc_, .num_outputs = 1, .kind = kind_, .not_differentiable = true,      \
    COI_ATTRS(attrs_), .infer = distribution##_infer, .ref = coi_random_##distribution##_run

const coi_op coi_op_stateless_random_uniform = {
    RANDOM(stateless_random_uniform, uniform, stateless_uniform_attrs, COI_RANDOM_STATELESS,
           "Numbers drawn uniformly from [low, high), the same for the same two seeds."),
};
const coi_op coi_op_stateless_random_normal = {
    RANDOM(stateless_random_normal, normal, stateless_normal_attrs, COI_RANDOM_STATELESS,
           "Numbers drawn from a normal distribution, the same for the same two seeds."),
};

static void draw_again(co_context *ctx, void *attrs);

/* What random_uniform and random_normal compute with. */
const coi_op coi_op_random_uniform_drawn = {
    RANDOM(random_uniform, uniform, drawn_uniform_attrs, COI_RANDOM_DRAWN,
           "random_uniform of a replica; seed is that of the context, and the number of the call."),
    .entry = "random_uniform_drawn",
    .internal = true,
    .not_by_name = true,
    .renew = draw_again,
};
const coi_op coi_op_random_normal_drawn = {
    RANDOM(random_normal, normal, drawn_normal_attrs, COI_RANDOM_DRAWN,
           "random_normal of a replica; seed is that of the context, and the number of the call."),
    .entry = "random_normal_drawn",
    .internal = true,
    .not_by_name = true,
    .renew = draw_again,
};

/* The key of a stream: that of the context, or with a seed of the operator one of its own. */
static uint64_t
key_of(uint64_t seed, int64_t op_seed)
{
    uint64_t key = (uint64_t)op_seed + 0x9e3779b97f4a7c15u; /* the finalizer of SplitMix64 */

    if (op_seed == COI_NO_INT)
        return seed;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    return seed ^ key ^ key >> 31;
}

static bool
draw_call(co_context *ctx, void *arg)
{
    coi_random_attrs *attrs = arg;

    attrs->seed.n = 2;
    attrs->seed.at[0] = (int64_t)key_of(ctx->seed, attrs->op_seed);
    attrs->seed.at[1] = (int64_t)ctx->random_counter++;
    attrs->replica = ctx->mode.replica;
    return true;
}

const coi_op coi_op_draw_random = {
    COI_EFFECT("draw_random",
               "Draws the number of a call of random_uniform or random_normal from the context.",
               coi_body_effect, CO_RESOURCE_RANDOM, CO_RESOURCE_RANDOM),
    .is_recordable = true,
};

static void
draw_again(co_context *ctx, void *attrs)
{
    coi_execute_body(ctx, &coi_op_draw_random, (coi_effect){ 0 }, draw_call, attrs);
}

static co_value *
draw_and_compute(coi_call *call, const coi_op *drawn)
{
    coi_random_attrs attrs = *(const coi_random_attrs *)call->attrs;
    co_context      *ctx = call->ctx;
    size_t           ndim = attrs.shape.n < 0 ? 0 : (size_t)attrs.shape.n;
    int64_t          total;

    /* A call that is refused does not move the counter. */
    if (coi_shape_check(attrs.shape.at, ndim, coi_dtypes[attrs.dtype].size, &total, coi_err(ctx)) !=
        CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    if (!coi_execute_body(ctx, &coi_op_draw_random, (coi_effect){ 0 }, draw_call, &attrs))
        return NULL;
    return coi_apply(ctx, drawn, NULL, 0, &attrs);
}

static co_value *
uniform_composite(coi_call *call)
{
    return draw_and_compute(call, &coi_op_random_uniform_drawn);
}

static co_value *
normal_composite(coi_call *call)
{
    return draw_and_compute(call, &coi_op_random_normal_drawn);
}

#define DRAWING(name_, distribution, doc_)                                                         \
    .name = #name_, .doc = doc_, .num_outputs = 1, .not_differentiable = true,                     \
    .reads = CO_RESOURCE_RANDOM, .writes = CO_RESOURCE_RANDOM, COI_ATTRS(distribution##_attrs),    \
    .infer = distribution##_infer, .composite = distribution##_composite

const coi_op coi_op_random_uniform = {
    DRAWING(random_uniform, uniform, "Numbers drawn uniformly from [low, high)."),
};
const coi_op coi_op_random_normal = {
    DRAWING(random_normal, normal,
            "Numbers drawn from the normal distribution of mean and stddev."),
};

static bool
seed_context(co_context *ctx, void *arg)
{
    ctx->seed = *(const uint64_t *)arg;
    ctx->random_counter = 0;
    return true;
}

const coi_op coi_op_set_seed = { COI_EFFECT(
    "set_seed", "Sets the seed of a context and restarts its random numbers; co_set_seed.",
    coi_body_effect, 0, CO_RESOURCE_RANDOM) };

/* In a captured function. */
typedef struct seed_attrs {
    uint64_t seed;
} seed_attrs;

static co_value *
replay_seed(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)in;
    (void)num_in;
    co_set_seed(ctx, ((const seed_attrs *)attrs)->seed);
    return co_none(ctx);
}

const coi_op coi_op_seed_again = {
    COI_RECORDED("seed_again", "Sets the seed in every call of a captured function; co_set_seed.",
                 replay_seed, 0, CO_RESOURCE_RANDOM),
    .attrs_rule.size = COI_ATTRS_SIZE(seed_attrs),
    .sets_context = true,
};

void
co_set_seed(co_context *ctx, uint64_t seed)
{
    COI_ENTER(ctx, "set_seed", );
    if (coi_is_capturing(ctx) && ctx->capture->is_graph) { /* of each session of the graph */
        ctx->capture->seed = seed;
        ctx->capture->has_seed = true;
        return;
    }
    if (coi_is_capturing(ctx)) {
        coi_record_call(ctx, &coi_op_seed_again, &(seed_attrs){ seed }, NULL, 0, coi_none(ctx));
        return;
    }
    coi_execute_body(ctx, &coi_op_set_seed, (coi_effect){ 0 }, seed_context, &seed);
}

static co_value *
draw_tensor(co_context *ctx, const coi_op *op, co_dtype dtype, const int64_t *dims, int ndim,
            const int64_t *seed, double a, double b)
{
    coi_random_attrs attrs = {
        .dtype = coi_dtype_attr(dtype), .low = a, .high = b, .op_seed = COI_NO_INT
    };
    bool is_stateless = op->composite == NULL;

    COI_ENTER(ctx, op->name, NULL);
    if (is_stateless && seed == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "seed is NULL; give two numbers");
        return NULL;
    }
    if (!coi_ints_from_dims(ctx, "dims", dims, (size_t)ndim, &attrs.shape) ||
        !coi_ints_from_dims(ctx, "seed", seed, is_stateless ? 2 : 0, &attrs.seed))
        return NULL;
    return is_stateless ? coi_apply(ctx, op, NULL, 0, &attrs)
                        : coi_apply_composite(ctx, op, NULL, 0, &attrs);
}

co_value *
co_random_uniform(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, double low,
                  double high)
{
    return draw_tensor(ctx, &coi_op_random_uniform, dtype, dims, ndim, NULL, low, high);
}

co_value *
co_random_normal(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, double mean,
                 double stddev)
{
    return draw_tensor(ctx, &coi_op_random_normal, dtype, dims, ndim, NULL, mean, stddev);
}

/* As many numbers as x has rows, in a function that is captured for any number of them. */
static co_value *
draw_for_rows(co_context *ctx, co_value *x)
{
    static const char *const keys[] = { "dtype", "shape" };
    co_value                *n, *items[2];

    n = co_slice(ctx, co_shape(ctx, x), (const int64_t[]){ 0 }, (const int64_t[]){ 1 }, 1);
    items[0] = co_string(ctx, "float64");
    items[1] = n;
    return ctx->error.code == CO_OK ? co_op_call(ctx, "random_uniform", co_tuple(ctx, NULL, 0),
                                                 co_dict(ctx, keys, items, 2))
                                    : NULL;
}

co_value *
co_random_shuffle(co_context *ctx, co_value *x)
{
    int64_t   num_rows = -1;
    co_value *numbers, *order;
    int       ndim;

    COI_ENTER(ctx, "random_shuffle", NULL);
    if (!coi_check_value(ctx, x, 2, "x"))
        return NULL;
    ndim = co_value_ndim(ctx, x);
    if (ctx->error.code == CO_OK && ndim == 0)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (x) of random_shuffle is a scalar; it must have rows");
    if (ndim > 0)
        num_rows = co_value_dim(ctx, x, 0);
    if (ctx->error.code != CO_OK)
        return NULL;
    /* The order of numbers with 53 bits, of which hardly ever two are equal. */
    numbers = num_rows >= 0 ? co_random_uniform(ctx, CO_FLOAT64, &num_rows, 1, 0, 1)
                            : draw_for_rows(ctx, x);
    order = numbers != NULL ? co_argsort(ctx, numbers, 0, false) : NULL;
    return order != NULL ? co_gather(ctx, x, order, 0, 0) : NULL;
}

co_value *
co_stateless_random_uniform(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                            const int64_t seed[2], const co_random_uniform_options *options)
{
    co_random_uniform_options all = CO_RANDOM_UNIFORM_OPTIONS_INIT;

    COI_ENTER(ctx, "stateless_random_uniform", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    return draw_tensor(ctx, &coi_op_stateless_random_uniform, dtype, dims, ndim, seed, all.low,
                       all.high);
}

co_value *
co_stateless_random_normal(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                           const int64_t seed[2], const co_random_normal_options *options)
{
    co_random_normal_options all = CO_RANDOM_NORMAL_OPTIONS_INIT;

    COI_ENTER(ctx, "stateless_random_normal", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    return draw_tensor(ctx, &coi_op_stateless_random_normal, dtype, dims, ndim, seed, all.mean,
                       all.stddev);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generators. A draw counts itself and computes the numbers of (key, number of the draw) by a
 * stateless operator whose seed is a tensor. That tensor is made of what the count gives: so no
 * other thread can have the same number, and a session that needs the numbers counts. Captured
 * functions record these calls as they are.
 */
#include <cohort/generator.h>

#include "ops/engine/call_recording.h"
#include "strategy/strategy.h"

enum { COUNT, ZERO, KEY, STATE_SIZE };

/* Draws of different replicas lie so far apart that their numbers never meet. */
#define REPLICA_DISTANCE ((int64_t)1 << 40)
#define MOST_GENERATORS  1024

static co_value *
state_of_seed(co_context *ctx, int64_t seed)
{
    const int64_t state[STATE_SIZE] = { [KEY] = seed }, dim = STATE_SIZE;

    return co_tensor(ctx, CO_INT64, &dim, 1, state);
}

static co_value *
make(co_context *ctx, co_value *state)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = "generator";
    options.trainable = CO_TRAINABLE_NO;
    return state != NULL ? co_variable(ctx, state, &options) : NULL;
}

static bool
check_generator(co_context *ctx, const co_value *generator)
{
    const coi_variable *variable;

    if (!coi_check_kind(ctx, generator, CO_KIND_VARIABLE, 2, "generator"))
        return false;
    variable = generator->u.variable;
    if (variable->dtype == CO_INT64 && variable->shape.ndim == 1 &&
        variable->shape.dims[0] == STATE_SIZE)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (generator) of %s is a variable of another kind; it must be what "
             "co_generator made",
             ctx->call);
    return false;
}

co_value *
co_generator(co_context *ctx, int64_t seed)
{
    COI_ENTER(ctx, "generator", NULL);
    return make(ctx, state_of_seed(ctx, seed));
}

co_code
co_generator_reset(co_context *ctx, co_value *generator, int64_t seed)
{
    co_value *state;

    COI_ENTER_CODE(ctx, "generator_reset");
    if (check_generator(ctx, generator) && (state = state_of_seed(ctx, seed)) != NULL)
        co_assign(ctx, generator, state);
    return ctx->error.code;
}

/* The seeds of the next draw, a tensor of the key and its number, which is counted: the count that
 * is there now, without this draw. */
static co_value *
next_seed(co_context *ctx, co_value *generator)
{
    const int64_t one[STATE_SIZE] = { [COUNT] = 1 }, dim = STATE_SIZE, two = 2;
    const int64_t first = ctx->mode.cross ? 0 : ctx->mode.replica * REPLICA_DISTANCE;
    const int64_t place[2] = { 0, first - 1 };
    const int32_t order[2] = { KEY, COUNT };
    co_value     *state = co_tensor(ctx, CO_INT64, &dim, 1, one), *seed = NULL;

    coi_note_place(ctx);
    if (state != NULL)
        state = co_assign_add(ctx, generator, state);
    if (state != NULL)
        seed = co_gather(ctx, state, co_tensor(ctx, CO_INT32, &two, 1, order), 0, 0);
    return seed != NULL ? co_add(ctx, seed, co_tensor(ctx, CO_INT64, &two, 1, place)) : NULL;
}

static co_value *
draw(co_context *ctx, co_value *generator, const char *op, const char *const *keys, co_dtype dtype,
     const int64_t *dims, int ndim, double a, double b)
{
    co_value *numbers[CO_MAX_DIMS], *items[5];

    if (!check_generator(ctx, generator))
        return NULL;
    if (ndim < 0 || ndim > CO_MAX_DIMS || (dims == NULL && ndim > 0)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "a shape of %d dimensions; 0 to %d are allowed", ndim,
                 CO_MAX_DIMS);
        return NULL;
    }
    for (int i = 0; i < ndim; ++i)
        numbers[i] = co_int(ctx, dims[i]);
    items[0] = co_float(ctx, a);
    items[1] = co_float(ctx, b);
    items[2] = co_string(ctx, co_dtype_name(dtype));
    items[3] = next_seed(ctx, generator);
    items[4] = co_list(ctx, numbers, (size_t)ndim);
    if (ctx->error.code != CO_OK)
        return NULL;
    return co_op_call(ctx, op, co_tuple(ctx, NULL, 0), co_dict(ctx, keys, items, 5));
}

co_value *
co_generator_uniform(co_context *ctx, co_value *generator, co_dtype dtype, const int64_t *dims,
                     int ndim, const co_random_uniform_options *options)
{
    static const char *const  keys[] = { "low", "high", "dtype", "seed", "shape" };
    co_random_uniform_options all = CO_RANDOM_UNIFORM_OPTIONS_INIT;

    COI_ENTER(ctx, "generator_uniform", NULL);
    return coi_take_options(ctx, &all, sizeof(all), options, 6)
               ? draw(ctx, generator, "stateless_random_uniform", keys, dtype, dims, ndim, all.low,
                      all.high)
               : NULL;
}

co_value *
co_generator_normal(co_context *ctx, co_value *generator, co_dtype dtype, const int64_t *dims,
                    int ndim, const co_random_normal_options *options)
{
    static const char *const keys[] = { "mean", "stddev", "dtype", "seed", "shape" };
    co_random_normal_options all = CO_RANDOM_NORMAL_OPTIONS_INIT;

    COI_ENTER(ctx, "generator_normal", NULL);
    return coi_take_options(ctx, &all, sizeof(all), options, 6)
               ? draw(ctx, generator, "stateless_random_normal", keys, dtype, dims, ndim, all.mean,
                      all.stddev)
               : NULL;
}

/* A generator with key i of a row of keys. */
static co_value *
make_with_key(co_context *ctx, co_value *keys, int64_t i)
{
    co_value *key = co_slice(ctx, keys, &i, (const int64_t[]){ 1 }, 1), *items[2], *parts;

    items[0] = co_zeros(ctx, CO_INT64, (const int64_t[]){ KEY }, 1);
    items[1] = key;
    if (ctx->error.code != CO_OK)
        return NULL;
    parts = co_tuple(ctx, items, 2);
    return parts != NULL ? make(ctx, co_concat(ctx, parts, 0)) : NULL;
}

co_value *
co_generator_split(co_context *ctx, co_value *generator, int count)
{
    co_random_uniform_options range = CO_RANDOM_UNIFORM_OPTIONS_INIT;
    const int64_t             dim = count;
    co_value                 *made[MOST_GENERATORS], *keys;

    COI_ENTER(ctx, "generator_split", NULL);
    if (count < 0 || count > MOST_GENERATORS) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (count) of generator_split is %d; it must be 0 to %d", count,
                 MOST_GENERATORS);
        return NULL;
    }
    range.high = 0x1p53;
    keys = co_generator_uniform(ctx, generator, CO_INT64, &dim, 1, &range);
    for (int i = 0; i < count && ctx->error.code == CO_OK; ++i)
        made[i] = make_with_key(ctx, keys, i);
    return ctx->error.code == CO_OK ? co_tuple(ctx, made, (size_t)count) : NULL;
}

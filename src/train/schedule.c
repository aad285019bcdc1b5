/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules of learning rates. One is a function of this file with a few numbers; the lists of a
 * piecewise constant one follow its object.
 */
#include "train/schedule.h"

#include "base/plain_math.h"
#include "context/context.h"

#include <math.h>
#include <string.h>

typedef double (*rate_fn)(const co_schedule *schedule, double step);

struct co_schedule {
    coi_object object;
    rate_fn    rate;
    double     initial, steps; /* and what else the schedule has: */
    union {
        struct {
            double decay_rate;
            bool   staircase;
        } decay;
        co_polynomial_decay_options      polynomial;
        co_cosine_decay_options          cosine;
        co_cosine_decay_restarts_options restarts;
        struct {
            co_schedule *then; /* a reference */
        } warmup;
        struct {
            co_schedule_fn fn;
            void          *user;
        } own;
        size_t num_boundaries;
    } u;
    /* num_boundaries boundaries, then one more values; boundaries below 2^53, so that they are
     * exact */
    double lists[];
};

/* --- the formulas --- */

static double
fraction_of(const co_schedule *s, double step)
{
    return s->u.decay.staircase ? floor(step / s->steps) : step / s->steps;
}

static double
exponential_rate(const co_schedule *s, double step)
{
    return s->initial * coi_plain_pow(s->u.decay.decay_rate, fraction_of(s, step));
}

static double
inverse_time_rate(const co_schedule *s, double step)
{
    return s->initial / (1 + s->u.decay.decay_rate * fraction_of(s, step));
}

static double
polynomial_rate(const co_schedule *s, double step)
{
    const co_polynomial_decay_options *o = &s->u.polynomial;
    double                             steps = s->steps;

    if (o->cycle)
        steps *= step > 0 ? ceil(step / steps) : 1;
    else if (step > steps)
        step = steps;
    return (s->initial - o->end_learning_rate) * coi_plain_pow(1 - step / steps, o->power) +
           o->end_learning_rate;
}

static double
cosine_rate(const co_schedule *s, double step)
{
    const co_cosine_decay_options *o = &s->u.cosine;
    const double                   warmup = (double)o->warmup_steps;
    const double                   from = o->warmup_steps > 0 ? o->warmup_target : s->initial;

    if (step < warmup)
        return s->initial + (from - s->initial) * (step / warmup);
    step -= warmup;
    if (step > s->steps)
        step = s->steps;
    return from * ((1 - o->alpha) * (0.5 * (1 + coi_plain_cos_pi(step / s->steps))) + o->alpha);
}

/* The period that a step is in is found by adding up periods: no rounding of logarithms puts the
 * first step of one at the end of the one before. */
static double
restarts_rate(const co_schedule *s, double step)
{
    const co_cosine_decay_restarts_options *o = &s->u.restarts;
    double                                  length = s->steps, highest = s->initial;

    if (o->t_mul == 1) {
        const double before = floor(step / length);

        highest *= coi_plain_pow(o->m_mul, before);
        step -= before * length;
    } else {
        while (step >= length) {
            step -= length;
            length *= o->t_mul;
            highest *= o->m_mul;
        }
    }
    /* m_mul shrinks what is above alpha alone */
    return (1 - o->alpha) * (0.5 * highest * (1 + coi_plain_cos_pi(step / length))) +
           o->alpha * s->initial;
}

static double
piecewise_rate(const co_schedule *s, double step)
{
    size_t i = 0, n = s->u.num_boundaries;

    while (i < n && step > s->lists[i])
        ++i;
    return s->lists[n + i];
}

static double
warmup_rate(const co_schedule *s, double step)
{
    const double target = coi_schedule_rate(s->u.warmup.then, 0);

    return step < s->steps ? s->initial + (target - s->initial) * (step / s->steps)
                           : coi_schedule_rate(s->u.warmup.then, (int64_t)(step - s->steps));
}

static double
own_rate(const co_schedule *s, double step)
{
    return s->u.own.fn((int64_t)step, s->u.own.user);
}

double
coi_schedule_rate(const co_schedule *schedule, int64_t step)
{
    return schedule->rate(schedule, (double)step);
}

/* --- making one --- */

static size_t
size_of(size_t num_boundaries)
{
    return sizeof(co_schedule) + (2 * num_boundaries + 1) * sizeof(double);
}

static void
destroy(coi_heap *heap, void *object)
{
    co_schedule *s = object;

    if (s->rate == warmup_rate)
        coi_unref(heap, s->u.warmup.then);
    coi_object_free(heap, s, size_of(s->rate == piecewise_rate ? s->u.num_boundaries : 0));
}

const coi_class coi_schedule_class = { "schedule", destroy, NULL };

/* What all have: the rate, and over how many steps. NULL with an error. A reference. */
static co_schedule *
new_schedule(co_context *ctx, rate_fn rate, double initial, int64_t steps, size_t num_boundaries)
{
    co_schedule *s;

    if (!isfinite(initial) || steps <= 0) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "initial_learning_rate is %g (it must be finite), and the number of steps %lld (it "
            "must be above 0)",
            initial, (long long)steps);
        return NULL;
    }
    s = coi_object_new(&ctx->heap, &coi_schedule_class, size_of(num_boundaries));
    if (s == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a schedule");
        return NULL;
    }
    s->rate = rate;
    s->initial = initial;
    s->steps = (double)steps;
    return s;
}

/* Whether numbers of the options are finite; else an error with their names. */
static bool
check_finite(co_context *ctx, double x, double y, const char *names)
{
    if (isfinite(x) && isfinite(y))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR, "%s are %g and %g; they must be finite", names, x, y);
    return false;
}

static co_schedule *
decay(co_context *ctx, rate_fn rate, double initial, int64_t steps, double decay_rate,
      bool staircase)
{
    co_schedule *s;

    if (!isfinite(decay_rate)) {
        coi_fail(ctx, CO_VALUE_ERROR, "decay_rate is %g; it must be finite", decay_rate);
        return NULL;
    }
    s = new_schedule(ctx, rate, initial, steps, 0);
    if (s == NULL)
        return NULL;
    s->u.decay.decay_rate = decay_rate;
    s->u.decay.staircase = staircase;
    return coi_own(ctx, s);
}

co_schedule *
co_exponential_decay(co_context *ctx, double initial_learning_rate, int64_t decay_steps,
                     double decay_rate, bool staircase)
{
    COI_ENTER(ctx, "exponential_decay", NULL);
    if (decay_rate < 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "decay_rate is %g; a power of it is a number where it is not negative",
                 decay_rate);
        return NULL;
    }
    return decay(ctx, exponential_rate, initial_learning_rate, decay_steps, decay_rate, staircase);
}

co_schedule *
co_inverse_time_decay(co_context *ctx, double initial_learning_rate, int64_t decay_steps,
                      double decay_rate, bool staircase)
{
    COI_ENTER(ctx, "inverse_time_decay", NULL);
    return decay(ctx, inverse_time_rate, initial_learning_rate, decay_steps, decay_rate, staircase);
}

co_schedule *
co_polynomial_decay(co_context *ctx, double initial_learning_rate, int64_t decay_steps,
                    const co_polynomial_decay_options *options)
{
    co_polynomial_decay_options all = CO_POLYNOMIAL_DECAY_OPTIONS_INIT;
    co_schedule                *s;

    COI_ENTER(ctx, "polynomial_decay", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) ||
        !check_finite(ctx, all.end_learning_rate, all.power, "end_learning_rate and power"))
        return NULL;
    s = new_schedule(ctx, polynomial_rate, initial_learning_rate, decay_steps, 0);
    if (s == NULL)
        return NULL;
    s->u.polynomial = all;
    return coi_own(ctx, s);
}

co_schedule *
co_cosine_decay(co_context *ctx, double initial_learning_rate, int64_t decay_steps,
                const co_cosine_decay_options *options)
{
    co_cosine_decay_options all = CO_COSINE_DECAY_OPTIONS_INIT;
    co_schedule            *s;

    COI_ENTER(ctx, "cosine_decay", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) ||
        !check_finite(ctx, all.alpha, all.warmup_target, "alpha and warmup_target"))
        return NULL;
    if (all.warmup_steps < 0) {
        coi_fail(ctx, CO_VALUE_ERROR, "warmup_steps is %lld; it must not be negative",
                 (long long)all.warmup_steps);
        return NULL;
    }
    s = new_schedule(ctx, cosine_rate, initial_learning_rate, decay_steps, 0);
    if (s == NULL)
        return NULL;
    s->u.cosine = all;
    return coi_own(ctx, s);
}

co_schedule *
co_cosine_decay_restarts(co_context *ctx, double initial_learning_rate, int64_t first_decay_steps,
                         const co_cosine_decay_restarts_options *options)
{
    co_cosine_decay_restarts_options all = CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT;
    co_schedule                     *s;

    COI_ENTER(ctx, "cosine_decay_restarts", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) ||
        !check_finite(ctx, all.alpha, all.m_mul, "alpha and m_mul"))
        return NULL;
    if (!(all.t_mul >= 1) || isinf(all.t_mul) || all.m_mul < 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "t_mul is %g (it must be at least 1), and m_mul %g (it must not be negative)",
                 all.t_mul, all.m_mul);
        return NULL;
    }
    s = new_schedule(ctx, restarts_rate, initial_learning_rate, first_decay_steps, 0);
    if (s == NULL)
        return NULL;
    s->u.restarts = all;
    return coi_own(ctx, s);
}

static bool
check_pieces(co_context *ctx, const int64_t *boundaries, size_t num_boundaries,
             const double *values, size_t num_values)
{
    if ((boundaries == NULL && num_boundaries > 0) || values == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "boundaries or values of %s is NULL", ctx->call);
    else if (num_values == 0 || num_boundaries != num_values - 1)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "there are %zu boundaries and %zu values; there must be one value more than "
                 "boundaries",
                 num_boundaries, num_values);
    for (size_t i = 0; ctx->error.code == CO_OK && i < num_boundaries; ++i)
        if ((i > 0 && boundaries[i] <= boundaries[i - 1]) || boundaries[i] > INT64_C(1) << 53)
            coi_fail(ctx, CO_VALUE_ERROR, "boundary %zu is %lld; boundaries must rise, up to 2^53",
                     i, (long long)boundaries[i]);
    for (size_t i = 0; ctx->error.code == CO_OK && i < num_values; ++i)
        if (!isfinite(values[i]))
            coi_fail(ctx, CO_VALUE_ERROR, "value %zu is %g; it must be finite", i, values[i]);
    return ctx->error.code == CO_OK;
}

co_schedule *
co_piecewise_constant_decay(co_context *ctx, const int64_t *boundaries, size_t num_boundaries,
                            const double *values, size_t num_values)
{
    co_schedule *s;

    COI_ENTER(ctx, "piecewise_constant_decay", NULL);
    if (!check_pieces(ctx, boundaries, num_boundaries, values, num_values))
        return NULL;
    s = new_schedule(ctx, piecewise_rate, values[0], 1, num_boundaries);
    if (s == NULL)
        return NULL;
    s->u.num_boundaries = num_boundaries;
    for (size_t i = 0; i < num_boundaries; ++i)
        s->lists[i] = (double)boundaries[i];
    memcpy(s->lists + num_boundaries, values, num_values * sizeof(*values));
    return coi_own(ctx, s);
}

co_schedule *
co_warmup(co_context *ctx, co_schedule *then, double initial_learning_rate, int64_t warmup_steps)
{
    co_schedule *s;

    COI_ENTER(ctx, "warmup", NULL);
    if (!coi_check_object(ctx, then, &coi_schedule_class, 2, "then"))
        return NULL;
    s = new_schedule(ctx, warmup_rate, initial_learning_rate, warmup_steps, 0);
    if (s == NULL)
        return NULL;
    coi_ref(then);
    s->u.warmup.then = then;
    return coi_own(ctx, s);
}

co_schedule *
co_custom_schedule(co_context *ctx, co_schedule_fn fn, void *user)
{
    co_schedule *s;

    COI_ENTER(ctx, "custom_schedule", NULL);
    if (fn == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (fn) of custom_schedule is NULL; it must be a function");
        return NULL;
    }
    s = new_schedule(ctx, own_rate, 0, 1, 0);
    if (s == NULL)
        return NULL;
    s->u.own.fn = fn;
    s->u.own.user = user;
    return coi_own(ctx, s);
}

double
co_schedule_value(co_context *ctx, const co_schedule *schedule, int64_t step)
{
    COI_ENTER(ctx, "schedule_value", 0);
    if (!coi_check_object(ctx, schedule, &coi_schedule_class, 2, "schedule"))
        return 0;
    if (step < 0) {
        coi_fail(ctx, CO_VALUE_ERROR, "step is %lld; steps are counted from 0", (long long)step);
        return 0;
    }
    return coi_schedule_rate(schedule, step);
}

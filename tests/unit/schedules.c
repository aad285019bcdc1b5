/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of learning rates: values that Keras 3 gives, warm-up, and what is wrong to ask for. */
#include "test.h"

#include "base/plain_math.h"

#include <math.h>

/* Rates of steps 0 to n - 1; Keras computes them in float32. */
static void
expect_rates(co_context *ctx, const co_schedule *schedule, const double *rates, size_t n)
{
    CO_EXPECT_OK(ctx);
    for (size_t i = 0; i < n; ++i)
        CO_EXPECT_CLOSE(co_schedule_value(ctx, schedule, (int64_t)i), rates[i],
                        1e-6 * fabs(rates[i]) + 1e-9);
}
#define EXPECT_RATES(schedule, ...)                                                                \
    expect_rates(ctx, (schedule), (const double[]){ __VA_ARGS__ },                                 \
                 sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double))

CO_TEST(decays_follow_their_formulas, "")
{
    EXPECT_RATES(co_exponential_decay(ctx, 0.1, 2, 0.5, false), 0.1, 0.0707106781, 0.05,
                 0.0353553391, 0.025);
    EXPECT_RATES(co_exponential_decay(ctx, 0.1, 2, 0.5, true), 0.1, 0.1, 0.05, 0.05, 0.025);
    EXPECT_RATES(co_inverse_time_decay(ctx, 0.1, 2, 0.5, false), 0.1, 0.08, 0.0666666667,
                 0.0571428571, 0.05);
    EXPECT_RATES(co_inverse_time_decay(ctx, 0.1, 2, 0.5, true), 0.1, 0.1, 0.0666666667,
                 0.0666666667, 0.05);
}

CO_TEST(polynomial_decay_stays_or_begins_again, "")
{
    co_polynomial_decay_options o = CO_POLYNOMIAL_DECAY_OPTIONS_INIT;

    EXPECT_RATES(co_polynomial_decay(ctx, 0.1, 3, NULL), 0.1, 0.0667, 0.0334, 0.0001, 0.0001);
    o.end_learning_rate = 0.01;
    o.power = 0.5;
    o.cycle = true;
    EXPECT_RATES(co_polynomial_decay(ctx, 0.1, 3, &o), 0.1, 0.0834846869, 0.0619615242, 0.01,
                 0.0619615242, 0.0467423499, 0.01, 0.0524264053, 0.04, 0.01);
}

CO_TEST(cosine_decay_warms_up_first, "")
{
    co_cosine_decay_options o = CO_COSINE_DECAY_OPTIONS_INIT;

    o.alpha = 0.1;
    EXPECT_RATES(co_cosine_decay(ctx, 0.1, 3, &o), 0.1, 0.0775, 0.0325, 0.01, 0.01);
    o.alpha = 0;
    o.warmup_steps = 2;
    o.warmup_target = 0.1;
    EXPECT_RATES(co_cosine_decay(ctx, 0.01, 4, &o), 0.01, 0.055, 0.1, 0.0853553391, 0.05,
                 0.0146446609, 0, 0);
}

/* Periods begin exactly where they should, after any number of them. */
CO_TEST(cosine_decay_restarts, "")
{
    co_cosine_decay_restarts_options o = CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT;

    o.m_mul = 0.9;
    o.alpha = 0.1;
    EXPECT_RATES(co_cosine_decay_restarts(ctx, 0.1, 3, &o), 0.1, 0.0775, 0.0325, 0.091,
                 0.0855740309, 0.07075, 0.0505, 0.03025, 0.0154259691, 0.0829);
    o = (co_cosine_decay_restarts_options)CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT;
    o.t_mul = 1;
    o.m_mul = 0.5;
    EXPECT_RATES(co_cosine_decay_restarts(ctx, 0.1, 3, &o), 0.1, 0.075, 0.025, 0.05, 0.0375, 0.0125,
                 0.025);
    o = (co_cosine_decay_restarts_options)CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT;
    for (int64_t period = 1, first = 0; period < INT64_C(1) << 40; first += period, period *= 2)
        CO_EXPECT_CLOSE(co_schedule_value(ctx, co_cosine_decay_restarts(ctx, 1, 1, &o), first), 1,
                        0);
}

CO_TEST(pieces_end_with_their_boundary, "")
{
    const int64_t boundaries[] = { 2, 5 };
    const double  values[] = { 1, 0.5, 0.25 };

    EXPECT_RATES(co_piecewise_constant_decay(ctx, boundaries, 2, values, 3), 1, 1, 1, 0.5, 0.5, 0.5,
                 0.25, 0.25);
    EXPECT_RATES(co_piecewise_constant_decay(ctx, NULL, 0, values, 1), 1, 1);
}

static double
half_of(int64_t step, void *user)
{
    ++*(int *)user;
    return 1.0 / (double)(2 << step);
}

CO_TEST(own_schedules_and_warm_up_compose, "")
{
    int          calls = 0;
    co_schedule *own = co_custom_schedule(ctx, half_of, &calls);

    EXPECT_RATES(own, 0.5, 0.25, 0.125);
    EXPECT_RATES(co_warmup(ctx, own, 0, 2), 0, 0.25, 0.5, 0.25, 0.125);
    CO_EXPECT_MORE(calls, 7);
}

/* The schedule after a warm-up lives as long as the warm-up does. */
CO_TEST(a_warm_up_keeps_its_schedule, "")
{
    co_schedule *warmup = NULL;

    CO_BLOCK(ctx) {
        warmup = co_warmup(ctx, co_exponential_decay(ctx, 0.1, 2, 0.5, false), 0, 1);
        co_keep(ctx, warmup);
    }
    EXPECT_RATES(warmup, 0, 0.1, 0.0707106781);
    co_release(ctx, warmup);
}

CO_TEST(schedules_that_cannot_be_are_refused, "")
{
    co_cosine_decay_options          cosine = CO_COSINE_DECAY_OPTIONS_INIT;
    co_cosine_decay_restarts_options restarts = CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT;
    const int64_t                    down[] = { 3, 2 };
    const double                     values[] = { 1, 2, 3 };

    CO_EXPECT_NULL(co_exponential_decay(ctx, 0.1, 0, 0.5, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "number of steps 0");
    CO_EXPECT_NULL(co_exponential_decay(ctx, 0.1, 1, -0.5, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "decay_rate is -0.5");
    CO_EXPECT_NULL(co_inverse_time_decay(ctx, 0.1, 1, NAN, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "decay_rate is nan");
    CO_EXPECT_NULL(co_polynomial_decay(ctx, INFINITY, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "initial_learning_rate is inf");
    cosine.warmup_steps = -1;
    CO_EXPECT_NULL(co_cosine_decay(ctx, 0.1, 1, &cosine));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "warmup_steps is -1");
    restarts.t_mul = 0.5;
    CO_EXPECT_NULL(co_cosine_decay_restarts(ctx, 0.1, 1, &restarts));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "t_mul is 0.5");
    CO_EXPECT_NULL(co_piecewise_constant_decay(ctx, down, 2, values, 2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "2 boundaries and 2 values");
    CO_EXPECT_NULL(co_piecewise_constant_decay(ctx, down, 2, values, 3));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "boundary 1 is 2");
    CO_EXPECT_NULL(co_piecewise_constant_decay(ctx, NULL, 1, values, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "NULL");
    CO_EXPECT_NULL(co_custom_schedule(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (fn)");
    CO_EXPECT_NULL(co_warmup(ctx, NULL, 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "then");
    co_schedule_value(ctx, co_exponential_decay(ctx, 0.1, 1, 0.5, false), -1);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "step is -1");
}

/* Against the C library, which is right to its last bits. */
CO_TEST(plain_functions_are_right, "")
{
    for (int i = 1; i < 2000; ++i) {
        double x = i / 37.0, y = (i % 29 - 14) / 3.0, expected = pow(x, y);

        CO_EXPECT_CLOSE(coi_plain_pow(x, y), expected, 1e-13 * expected);
        CO_EXPECT_CLOSE(coi_plain_cos_pi(i / 500.0), cos(3.14159265358979323846 * i / 500.0),
                        1e-14);
    }
    CO_EXPECT_CLOSE(coi_plain_pow(0, 0.5), 0, 0);
    CO_EXPECT_TRUE(isinf(coi_plain_pow(0, -1)) && isinf(coi_plain_pow(10, 1e5)));
    CO_EXPECT_CLOSE(coi_plain_pow(10, -1e5), 0, 0);
    CO_EXPECT_TRUE(isnan(coi_plain_pow(-1, 0.5)) && isnan(coi_plain_pow(NAN, 1)));
    CO_EXPECT_CLOSE(coi_plain_pow(INFINITY, -1), 0, 0);
    CO_EXPECT_CLOSE(coi_plain_pow(0.5, INFINITY), 0, 0);
    CO_EXPECT_CLOSE(coi_plain_pow(7, 0), 1, 0);
    CO_EXPECT_CLOSE(coi_plain_power(3, 5), 243, 0);
}

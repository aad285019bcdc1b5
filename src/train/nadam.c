/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nadam: Adam with Nesterov momentum. Its momentum rises with the step t as mu_t = beta_1 (1 -
 * 0.96^t / 2), and the correction of m is by the product of all of them so far. Keras keeps this
 * product as a variable; here it follows from the step, so that setting the iterations is enough.
 * Its 0.96 is rounded to float32 in mu and is not in the product.
 */
#include "train/optimizer.h"

static const co_nadam_options defaults = CO_NADAM_OPTIONS_INIT;

/* From this step on 0.96^t / 2 is nothing beside 1. */
enum { LAST_RISE = 920 };

static double
momentum_at(double beta_1, int64_t t)
{
    return beta_1 * (1 - 0.5 * coi_plain_power(coi_single(0.96), t));
}

static double
product_until(double beta_1, int64_t t)
{
    double product = 1, power = 1;

    for (int64_t i = 0; i < t && i < LAST_RISE; ++i) {
        power *= 0.96;
        product *= beta_1 * (1 - 0.5 * power);
    }
    return t > LAST_RISE ? product * coi_plain_power(beta_1, t - LAST_RISE) : product;
}

static bool
check(co_context *ctx, const void *options)
{
    const co_nadam_options *o = options;

    return coi_check_moments(ctx, o->learning_rate, o->beta_1, o->beta_2, o->epsilon);
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    (void)options;
    out[0] = (coi_slot_spec){ "m", 0 };
    out[1] = (coi_slot_spec){ "v", 0 };
    return 2;
}

static coi_update_kind
kind(const void *options)
{
    (void)options;
    return COI_NADAM;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_nadam_options *o = options;
    const double            beta_1 = coi_single(o->beta_1), beta_2 = coi_single(o->beta_2);
    const double            product = product_until(o->beta_1, step);
    const double            now = momentum_at(beta_1, step), next = momentum_at(beta_1, step + 1);

    numbers[COI_ADAM_TOWARDS_G] = 1 - beta_1;
    numbers[COI_ADAM_TOWARDS_SQUARE] = 1 - beta_2;
    numbers[COI_ADAM_RATE] = learning_rate;
    numbers[COI_ADAM_EPSILON] = o->epsilon;
    numbers[COI_ADAM_CORRECTION] = coi_one_less_power(beta_2, step, dtype);
    numbers[COI_NADAM_OF_M] = next / (1 - product * next);
    numbers[COI_NADAM_OF_G] = (1 - now) / (1 - product);
}

const coi_op coi_op_nadam_update = COI_UPDATE_ENTRY("nadam_update", "Nadam");

static const coi_optimizer_rule nadam_rule = {
    .name = "Nadam",
    .op = &coi_op_nadam_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_SQUARES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_nadam(co_context *ctx, const co_nadam_options *options)
{
    COI_ENTER(ctx, "nadam", NULL);
    return coi_optimizer_new(ctx, &nadam_rule, options);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follow the regularised leader: the weights that are best for all gradients so far, with costs of
 * their size. With the usual power of 1/2 the kernel takes roots.
 */
#include "train/optimizer.h"

#include <math.h>

static const co_ftrl_options defaults = CO_FTRL_OPTIONS_INIT;

static bool
is_strength(double x)
{
    return isfinite(x) && x >= 0;
}

static bool
check(co_context *ctx, const void *options)
{
    const co_ftrl_options *o = options;

    if (!isfinite(o->learning_rate) || !isfinite(o->learning_rate_power) ||
        o->learning_rate_power > 0 || !isfinite(o->beta))
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "learning_rate is %g, learning_rate_power %g and beta %g; they must be finite, and "
            "learning_rate_power not positive",
            o->learning_rate, o->learning_rate_power, o->beta);
    else if (is_strength(o->initial_accumulator_value) &&
             is_strength(o->l1_regularization_strength) &&
             is_strength(o->l2_regularization_strength) &&
             is_strength(o->l2_shrinkage_regularization_strength))
        return true;
    else
        coi_fail(ctx, CO_VALUE_ERROR,
                 "initial_accumulator_value is %g, l1_regularization_strength %g, "
                 "l2_regularization_strength %g and l2_shrinkage_regularization_strength %g; they "
                 "must be finite and not negative",
                 o->initial_accumulator_value, o->l1_regularization_strength,
                 o->l2_regularization_strength, o->l2_shrinkage_regularization_strength);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    const co_ftrl_options *o = options;

    out[0] = (coi_slot_spec){ "accumulator", coi_single(o->initial_accumulator_value) };
    out[1] = (coi_slot_spec){ "linear", 0 };
    return 2;
}

static coi_update_kind
kind(const void *options)
{
    return ((const co_ftrl_options *)options)->learning_rate_power == -0.5 ? COI_FTRL_ROOT
                                                                           : COI_FTRL;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_ftrl_options *o = options;

    (void)step;
    (void)dtype;
    numbers[COI_FTRL_RATE] = learning_rate;
    numbers[COI_FTRL_POWER] = -o->learning_rate_power;
    numbers[COI_FTRL_SHRINKAGE] = 2 * o->l2_shrinkage_regularization_strength;
    numbers[COI_FTRL_L1] = o->l1_regularization_strength;
    numbers[COI_FTRL_L2] = 2 * (o->l2_regularization_strength +
                                (o->beta != 0 ? o->beta / (2 * learning_rate) : 0));
}

const coi_op coi_op_ftrl_update = COI_UPDATE_ENTRY("ftrl_update", "Ftrl");

static const coi_optimizer_rule ftrl_rule = {
    .name = "Ftrl",
    .op = &coi_op_ftrl_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_SQUARES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_ftrl(co_context *ctx, const co_ftrl_options *options)
{
    COI_ENTER(ctx, "ftrl", NULL);
    return coi_optimizer_new(ctx, &ftrl_rule, options);
}

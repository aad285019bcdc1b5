/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam, as Keras has it: epsilon is outside the root, and the correction for slots that begin at 0
 * is in the rate. Its weight decay (AdamW) is that of all optimizers.
 */
#include "train/optimizer.h"

#include <math.h>

static const co_adam_options defaults = CO_ADAM_OPTIONS_INIT;

static double
weight_decay(const void *options)
{
    return ((const co_adam_options *)options)->weight_decay;
}

static bool
check(co_context *ctx, const void *options)
{
    const co_adam_options *o = options;

    if (isfinite(o->learning_rate) && isfinite(o->weight_decay) && isfinite(o->epsilon) &&
        o->epsilon >= 0 && coi_is_share(o->beta_1) && coi_is_share(o->beta_2))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g and weight_decay %g (they must be finite), beta_1 is %g and "
             "beta_2 %g (they must be in [0, 1)), epsilon is %g (it must be finite and not "
             "negative)",
             o->learning_rate, o->weight_decay, o->beta_1, o->beta_2, o->epsilon);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    out[0] = (coi_slot_spec){ "m", 0 };
    out[1] = (coi_slot_spec){ "v", 0 };
    out[2] = (coi_slot_spec){ "v_hat", 0 };
    return ((const co_adam_options *)options)->amsgrad ? 3 : 2;
}

static coi_update_kind
kind(const void *options)
{
    return ((const co_adam_options *)options)->amsgrad ? COI_ADAM_AMSGRAD : COI_ADAM;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_adam_options *o = options;
    const double           rest_1 = coi_one_less_power(o->beta_1, step, dtype);
    const double root_2 = coi_rounded(dtype, sqrt(coi_one_less_power(o->beta_2, step, dtype)));
    const double rate = coi_rounded(dtype, coi_rounded(dtype, learning_rate) * root_2);

    numbers[COI_ADAM_TOWARDS_G] = 1 - o->beta_1;
    numbers[COI_ADAM_TOWARDS_SQUARE] = 1 - o->beta_2;
    numbers[COI_ADAM_RATE] = rate / rest_1;
    numbers[COI_ADAM_EPSILON] = o->epsilon;
}

const coi_op coi_op_adam_update = COI_UPDATE_ENTRY("adam_update", "Adam");

static const coi_optimizer_rule adam_rule = {
    .name = "Adam",
    .op = &coi_op_adam_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_SQUARES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
    .weight_decay = weight_decay,
};

co_optimizer *
co_adam(co_context *ctx, const co_adam_options *options)
{
    COI_ENTER(ctx, "adam", NULL);
    return coi_optimizer_new(ctx, &adam_rule, options);
}

co_optimizer *
co_adamw(co_context *ctx, const co_adam_options *options)
{
    static const co_adam_options defaults_with_decay = CO_ADAMW_OPTIONS_INIT;

    COI_ENTER(ctx, "adamw", NULL);
    return coi_optimizer_new(ctx, &adam_rule, options != NULL ? options : &defaults_with_decay);
}

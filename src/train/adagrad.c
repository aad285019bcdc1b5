/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adagrad: each element's step is divided by the root of the sum of its squares so far.
 */
#include "train/optimizer.h"

#include <math.h>

static const co_adagrad_options defaults = CO_ADAGRAD_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_adagrad_options *o = options;

    if (isfinite(o->learning_rate) && isfinite(o->epsilon) && o->epsilon >= 0 &&
        isfinite(o->initial_accumulator_value) && o->initial_accumulator_value >= 0)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g (it must be finite), initial_accumulator_value is %g and epsilon "
             "%g (they must be finite and not negative)",
             o->learning_rate, o->initial_accumulator_value, o->epsilon);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    const co_adagrad_options *o = options;

    out[0] = (coi_slot_spec){ "accumulator", coi_single(o->initial_accumulator_value) };
    return 1;
}

static coi_update_kind
kind(const void *options)
{
    (void)options;
    return COI_ADAGRAD;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_adagrad_options *o = options;

    (void)step;
    (void)dtype;
    numbers[COI_RMSPROP_RATE] = learning_rate;
    numbers[COI_RMSPROP_EPSILON] = o->epsilon;
}

const coi_op coi_op_adagrad_update = COI_UPDATE_ENTRY("adagrad_update", "Adagrad");

static const coi_optimizer_rule adagrad_rule = {
    .name = "Adagrad",
    .op = &coi_op_adagrad_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_SQUARES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_adagrad(co_context *ctx, const co_adagrad_options *options)
{
    COI_ENTER(ctx, "adagrad", NULL);
    return coi_optimizer_new(ctx, &adagrad_rule, options);
}

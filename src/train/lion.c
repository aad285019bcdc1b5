/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lion: every element moves by the learning rate, in the direction of its momentum.
 */
#include "train/optimizer.h"

#include <math.h>

static const co_lion_options defaults = CO_LION_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_lion_options *o = options;

    if (isfinite(o->learning_rate) && o->beta_1 > 0 && o->beta_1 <= 1 && coi_is_part(o->beta_2))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g (it must be finite), beta_1 is %g (it must be in (0, 1]), beta_2 "
             "is %g (it must be in [0, 1])",
             o->learning_rate, o->beta_1, o->beta_2);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    (void)options;
    out[0] = (coi_slot_spec){ "momentum", 0 };
    return 1;
}

static coi_update_kind
kind(const void *options)
{
    (void)options;
    return COI_LION;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_lion_options *o = options;

    (void)step;
    (void)dtype;
    numbers[COI_LION_RATE] = learning_rate;
    numbers[COI_LION_BETA_1] = coi_single(o->beta_1);
    numbers[COI_LION_BETA_2] = coi_single(o->beta_2);
}

const coi_op coi_op_lion_update = COI_UPDATE_ENTRY("lion_update", "Lion");

static const coi_optimizer_rule lion_rule = {
    .name = "Lion",
    .op = &coi_op_lion_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_lion(co_context *ctx, const co_lion_options *options)
{
    COI_ENTER(ctx, "lion", NULL);
    return coi_optimizer_new(ctx, &lion_rule, options);
}

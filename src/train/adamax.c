/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adamax: Adam with the largest magnitude so far in place of the root of mean squares.
 */
#include "train/optimizer.h"

static const co_adamax_options defaults = CO_ADAMAX_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_adamax_options *o = options;

    return coi_check_moments(ctx, o->learning_rate, o->beta_1, o->beta_2, o->epsilon);
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    (void)options;
    out[0] = (coi_slot_spec){ "m", 0 };
    out[1] = (coi_slot_spec){ "u", 0 };
    return 2;
}

static coi_update_kind
kind(const void *options)
{
    (void)options;
    return COI_ADAMAX;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_adamax_options *o = options;

    numbers[COI_ADAM_TOWARDS_G] = 1 - o->beta_1;
    numbers[COI_ADAM_TOWARDS_SQUARE] = o->beta_2;
    numbers[COI_ADAM_RATE] = learning_rate;
    numbers[COI_ADAM_EPSILON] = o->epsilon;
    numbers[COI_ADAM_CORRECTION] = coi_one_less_power(o->beta_1, step, dtype);
}

const coi_op coi_op_adamax_update = COI_UPDATE_ENTRY("adamax_update", "Adamax");

static const coi_optimizer_rule adamax_rule = {
    .name = "Adamax",
    .op = &coi_op_adamax_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_MAGNITUDES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_adamax(co_context *ctx, const co_adamax_options *options)
{
    COI_ENTER(ctx, "adamax", NULL);
    return coi_optimizer_new(ctx, &adamax_rule, options);
}

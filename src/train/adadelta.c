/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adadelta: steps are as large as those before, by the root of their mean square.
 */
#include "train/optimizer.h"

#include <math.h>

static const co_adadelta_options defaults = CO_ADADELTA_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_adadelta_options *o = options;

    if (isfinite(o->learning_rate) && coi_is_part(o->rho) && isfinite(o->epsilon) &&
        o->epsilon >= 0)
        return true;
    coi_fail(
        ctx, CO_VALUE_ERROR,
        "learning_rate is %g (it must be finite), rho is %g (it must be in [0, 1]), epsilon is "
        "%g (it must be finite and not negative)",
        o->learning_rate, o->rho, o->epsilon);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    (void)options;
    out[0] = (coi_slot_spec){ "accumulated_grad", 0 };
    out[1] = (coi_slot_spec){ "accumulated_delta_var", 0 };
    return 2;
}

static coi_update_kind
kind(const void *options)
{
    (void)options;
    return COI_ADADELTA;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_adadelta_options *o = options;

    (void)step;
    (void)dtype;
    numbers[COI_RMSPROP_RATE] = learning_rate;
    numbers[COI_RMSPROP_RHO] = o->rho;
    numbers[COI_RMSPROP_REST] = 1 - o->rho;
    numbers[COI_RMSPROP_EPSILON] = o->epsilon;
}

const coi_op coi_op_adadelta_update = COI_UPDATE_ENTRY("adadelta_update", "Adadelta");

static const coi_optimizer_rule adadelta_rule = {
    .name = "Adadelta",
    .op = &coi_op_adadelta_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_SQUARES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_adadelta(co_context *ctx, const co_adadelta_options *options)
{
    COI_ENTER(ctx, "adadelta", NULL);
    return coi_optimizer_new(ctx, &adadelta_rule, options);
}

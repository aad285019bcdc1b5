/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSprop: each element's step is divided by the root of the mean of its squares, or, centered, by
 * an estimate of its deviation.
 */
#include "train/optimizer.h"

#include <math.h>

static const co_rmsprop_options defaults = CO_RMSPROP_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_rmsprop_options *o = options;

    if (isfinite(o->learning_rate) && coi_is_part(o->rho) && o->momentum >= 0 &&
        isfinite(o->momentum) && isfinite(o->epsilon) && o->epsilon >= 0)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g (it must be finite), rho is %g (it must be in [0, 1]), momentum "
             "is %g and epsilon %g (they must be finite and not negative)",
             o->learning_rate, o->rho, o->momentum, o->epsilon);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    const co_rmsprop_options *o = options;
    int                       n = 0;

    out[n++] = (coi_slot_spec){ "velocity", 0 };
    if (o->momentum > 0)
        out[n++] = (coi_slot_spec){ "momentum", 0 };
    if (o->centered)
        out[n++] = (coi_slot_spec){ "average_gradient", 0 };
    return n;
}

static coi_update_kind
kind(const void *options)
{
    const co_rmsprop_options *o = options;

    if (o->centered)
        return o->momentum > 0 ? COI_RMSPROP_CENTERED_MOMENTUM : COI_RMSPROP_CENTERED;
    return o->momentum > 0 ? COI_RMSPROP_MOMENTUM : COI_RMSPROP;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_rmsprop_options *o = options;

    (void)step;
    (void)dtype;
    numbers[COI_RMSPROP_RATE] = learning_rate;
    numbers[COI_RMSPROP_RHO] = o->rho;
    numbers[COI_RMSPROP_REST] = 1 - o->rho;
    numbers[COI_RMSPROP_EPSILON] = o->epsilon;
    numbers[COI_RMSPROP_MU] = o->momentum;
}

const coi_op coi_op_rmsprop_update = COI_UPDATE_ENTRY("rmsprop_update", "RMSprop");

static const coi_optimizer_rule rmsprop_rule = {
    .name = "RMSprop",
    .op = &coi_op_rmsprop_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .powers = COI_POWERS_SQUARES,
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_rmsprop(co_context *ctx, const co_rmsprop_options *options)
{
    COI_ENTER(ctx, "rmsprop", NULL);
    return coi_optimizer_new(ctx, &rmsprop_rule, options);
}

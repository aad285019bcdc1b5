/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent: w -= lr g; with momentum m = mu m - lr g and w += m, or w += mu m -
 * lr g (Nesterov).
 */
#include "train/optimizer.h"

#include <math.h>

static const co_sgd_options defaults = CO_SGD_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_sgd_options *o = options;

    if (isfinite(o->learning_rate) && coi_is_part(o->momentum))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g (it must be finite), momentum is %g (it must be in [0, 1])",
             o->learning_rate, o->momentum);
    return false;
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    out[0] = (coi_slot_spec){ "momentum", 0 };
    return ((const co_sgd_options *)options)->momentum != 0 ? 1 : 0;
}

static coi_update_kind
kind(const void *options)
{
    const co_sgd_options *o = options;

    return o->momentum == 0 ? COI_SGD_PLAIN : o->nesterov ? COI_SGD_NESTEROV : COI_SGD_MOMENTUM;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_sgd_options *o = options;

    (void)step;
    (void)dtype;
    numbers[COI_SGD_RATE] = learning_rate;
    numbers[COI_SGD_MU] = o->momentum;
}

const coi_op coi_op_sgd_update = COI_UPDATE_ENTRY("sgd_update", "SGD");

static const coi_optimizer_rule sgd_rule = {
    .name = "SGD",
    .op = &coi_op_sgd_update,
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .check = check,
    .slots = slots,
    .kind = kind,
    .prepare = prepare,
};

co_optimizer *
co_sgd(co_context *ctx, const co_sgd_options *options)
{
    COI_ENTER(ctx, "sgd", NULL);
    return coi_optimizer_new(ctx, &sgd_rule, options);
}

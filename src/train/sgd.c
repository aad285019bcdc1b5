/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent: v -= lr g; with momentum m = mu m - lr g and v += m, or v += mu m -
 * lr g (Nesterov). The numbers are rounded to the variable's dtype first, and every element takes
 * the same few operations, so the bits do not depend on how the work is spread. The kernels are in
 * ops/kernels/simd/simd_optimizer_update.c.
 */
#include "train/optimizer.h"

#include "ops/kernels/optimizer_update.h"

#include <math.h>

static int
num_slots(const co_optimizer *optimizer)
{
    return optimizer->sgd.momentum != 0 ? 1 : 0;
}

static void
update(const co_optimizer *optimizer, const coi_update *u)
{
    static const coi_updates *const kernels[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_updates);
    const co_sgd_options           *o = &optimizer->sgd;
    coi_sgd_kind                    kind = o->momentum == 0 ? COI_SGD_PLAIN
                                           : o->nesterov    ? COI_SGD_NESTEROV
                                                            : COI_SGD_MOMENTUM;
    coi_sgd_numbers                 numbers = { o->learning_rate, o->momentum };
    coi_update_arrays               arrays = { u->old, u->gradient, u->value, u->slots[0], NULL };

    kernels[optimizer->runtime->isa]->sgd[kind][u->dtype == CO_FLOAT64](&numbers, &arrays, u->n);
}

static const coi_optimizer_rule sgd_rule = { "SGD", num_slots, update, .counts_steps = false };

co_optimizer *
co_sgd(co_context *ctx, const co_sgd_options *options)
{
    co_sgd_options all = CO_SGD_OPTIONS_INIT;
    co_optimizer  *optimizer;

    COI_ENTER(ctx, "sgd", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 2))
        return NULL;
    if (!isfinite(all.learning_rate) || !(all.momentum >= 0 && all.momentum <= 1)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "learning_rate is %g (it must be finite), momentum is %g (it must be in [0, 1])",
                 all.learning_rate, all.momentum);
        return NULL;
    }
    optimizer = coi_optimizer_new(ctx, &sgd_rule);
    if (optimizer != NULL)
        optimizer->sgd = all;
    return optimizer;
}

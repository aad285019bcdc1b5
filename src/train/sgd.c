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

typedef struct hyperparameters {
    coi_sgd_kind    kind;
    coi_sgd_numbers numbers;
} hyperparameters;
_Static_assert(sizeof(hyperparameters) <= COI_MAX_HYPERPARAMETERS, "COI_MAX_HYPERPARAMETERS");

static const co_sgd_options defaults = CO_SGD_OPTIONS_INIT;

static bool
check(co_context *ctx, const void *options)
{
    const co_sgd_options *o = options;

    if (isfinite(o->learning_rate) && o->momentum >= 0 && o->momentum <= 1)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g (it must be finite), momentum is %g (it must be in [0, 1])",
             o->learning_rate, o->momentum);
    return false;
}

static int
num_slots(const void *options)
{
    return ((const co_sgd_options *)options)->momentum != 0 ? 1 : 0;
}

static void
prepare(const void *options, int64_t step, void *out)
{
    const co_sgd_options *o = options;
    hyperparameters      *h = out;

    (void)step;
    h->kind = o->momentum == 0 ? COI_SGD_PLAIN : o->nesterov ? COI_SGD_NESTEROV : COI_SGD_MOMENTUM;
    h->numbers = (coi_sgd_numbers){ o->learning_rate, o->momentum };
}

static void
update(const void *given, const coi_update *u)
{
    static const coi_updates *const kernels[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_updates);
    const hyperparameters          *h = given;
    coi_update_arrays               arrays = { u->old, u->gradient, u->value, u->slots[0], NULL };

    kernels[u->isa]->sgd[h->kind][u->dtype == CO_FLOAT64](&h->numbers, &arrays, u->n);
}

const coi_op coi_op_sgd_update = COI_UPDATE_ENTRY("sgd_update", "SGD");

static const coi_optimizer_rule sgd_rule = {
    .name = "SGD",
    .op = &coi_op_sgd_update,
    .slots = { "momentum" },
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .check = check,
    .num_slots = num_slots,
    .prepare = prepare,
    .update = update,
};

co_optimizer *
co_sgd(co_context *ctx, const co_sgd_options *options)
{
    COI_ENTER(ctx, "sgd", NULL);
    return coi_optimizer_new(ctx, &sgd_rule, options);
}

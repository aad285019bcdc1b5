/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam, as Keras has it: epsilon is outside the root, the correction for slots that begin at 0 is
 * in the rate, and decay takes a share of the weight that depends on the learning rate alone
 * (AdamW). The kernel is in ops/kernels/simd/simd_optimizer_update.c.
 */
#include "train/optimizer.h"

#include "ops/kernels/optimizer_update.h"

#include <math.h>

_Static_assert(sizeof(coi_adam_numbers) <= COI_MAX_HYPERPARAMETERS, "COI_MAX_HYPERPARAMETERS");

static const co_adam_options defaults = CO_ADAM_OPTIONS_INIT;

static bool
is_share(double x)
{
    return x >= 0 && x < 1;
}

static bool
check(co_context *ctx, const void *options)
{
    const co_adam_options *o = options;

    if (isfinite(o->learning_rate) && isfinite(o->weight_decay) && isfinite(o->epsilon) &&
        o->epsilon >= 0 && is_share(o->beta_1) && is_share(o->beta_2))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g and weight_decay %g (they must be finite), beta_1 is %g and "
             "beta_2 %g (they must be in [0, 1)), epsilon is %g (it must be finite and not "
             "negative)",
             o->learning_rate, o->weight_decay, o->beta_1, o->beta_2, o->epsilon);
    return false;
}

static int
num_slots(const void *options)
{
    (void)options;
    return 2;
}

/* x^n in plain arithmetic: C libraries choose variants of pow by processor, which would change
 * bits. */
static double
power(double x, int64_t n)
{
    double result = 1;

    for (; n > 0; n >>= 1, x *= x)
        if ((n & 1) != 0)
            result *= x;
    return result;
}

static void
prepare(const void *options, int64_t step, void *out)
{
    const co_adam_options *o = options;
    coi_adam_numbers      *h = out;

    h->towards_g = 1 - o->beta_1;
    h->towards_square = 1 - o->beta_2;
    h->rate = o->learning_rate * sqrt(1 - power(o->beta_2, step)) / (1 - power(o->beta_1, step));
    h->epsilon = o->epsilon;
    h->keep = 1 - o->weight_decay * o->learning_rate;
}

static void
update(const void *hyperparameters, const coi_update *u)
{
    static const coi_updates *const kernels[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_updates);
    coi_update_arrays arrays = { u->old, u->gradient, u->value, u->slots[0], u->slots[1] };

    kernels[u->isa]->adam[u->dtype == CO_FLOAT64](hyperparameters, &arrays, u->n);
}

const coi_op coi_op_adam_update = COI_UPDATE_ENTRY("adam_update", "Adam");

static const coi_optimizer_rule adam_rule = {
    .name = "Adam",
    .op = &coi_op_adam_update,
    .slots = { "m", "v" },
    .defaults = &defaults,
    .options_size = sizeof(defaults),
    .check = check,
    .num_slots = num_slots,
    .prepare = prepare,
    .update = update,
};

co_optimizer *
co_adam(co_context *ctx, const co_adam_options *options)
{
    COI_ENTER(ctx, "adam", NULL);
    return coi_optimizer_new(ctx, &adam_rule, options);
}

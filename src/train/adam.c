/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam, as Keras has it: epsilon is outside the root, the correction for slots that begin at 0 is
 * in the rate, and decay takes a share of the weight that depends on the learning rate alone
 * (AdamW). The kernel is in ops/kernels/simd/simd_optimizer_update.c.
 */
#include "train/optimizer.h"

#include "ops/kernels/optimizer_update.h"

#include <math.h>

static int
num_slots(const co_optimizer *optimizer)
{
    (void)optimizer;
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
update(const co_optimizer *optimizer, const coi_update *u)
{
    static const coi_updates *const kernels[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_updates);
    const co_adam_options          *o = &optimizer->adam;
    coi_adam_numbers                numbers = {
                       .towards_g = 1 - o->beta_1,
                       .towards_square = 1 - o->beta_2,
                       .rate = o->learning_rate * sqrt(1 - power(o->beta_2, u->step)) /
                               (1 - power(o->beta_1, u->step)),
                       .epsilon = o->epsilon,
                       .keep = 1 - o->weight_decay * o->learning_rate,
    };
    coi_update_arrays arrays = { u->old, u->gradient, u->value, u->slots[0], u->slots[1] };

    kernels[optimizer->runtime->isa]->adam[u->dtype == CO_FLOAT64](&numbers, &arrays, u->n);
}

static const coi_optimizer_rule adam_rule = { "Adam", num_slots, update, .counts_steps = true };

static bool
is_share(double x)
{
    return x >= 0 && x < 1;
}

co_optimizer *
co_adam(co_context *ctx, const co_adam_options *options)
{
    co_adam_options all = CO_ADAM_OPTIONS_INIT;
    co_optimizer   *optimizer;

    COI_ENTER(ctx, "adam", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 2))
        return NULL;
    if (!isfinite(all.learning_rate) || !isfinite(all.weight_decay) || !isfinite(all.epsilon) ||
        all.epsilon < 0 || !is_share(all.beta_1) || !is_share(all.beta_2)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "learning_rate is %g and weight_decay %g (they must be finite), beta_1 is %g and "
                 "beta_2 %g (they must be in [0, 1)), epsilon is %g (it must be finite and not "
                 "negative)",
                 all.learning_rate, all.weight_decay, all.beta_1, all.beta_2, all.epsilon);
        return NULL;
    }
    optimizer = coi_optimizer_new(ctx, &adam_rule);
    if (optimizer != NULL)
        optimizer->adam = all;
    return optimizer;
}

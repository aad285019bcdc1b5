/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent: v -= lr g; with momentum m = mu m - lr g and v += m, or v += mu m -
 * lr g (Nesterov). The numbers are rounded to the variable's dtype first, and every element takes
 * the same few operations, so the bits do not depend on how the work is spread.
 */
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

static int
num_slots(const co_optimizer *optimizer)
{
    return optimizer->sgd.momentum != 0 ? 1 : 0;
}

#define DEFINE_SGD(type)                                                                           \
    static void plain_##type(const co_sgd_options *o, const coi_update *u)                         \
    {                                                                                              \
        const type *old = u->old, *g = u->gradient;                                                \
        type       *v = u->value, rate = (type)o->learning_rate;                                   \
                                                                                                   \
        for (int64_t i = 0; i < u->n; ++i)                                                         \
            v[i] = old[i] - rate * g[i];                                                           \
    }                                                                                              \
    static void momentum_##type(const co_sgd_options *o, const coi_update *u)                      \
    {                                                                                              \
        const type *old = u->old, *g = u->gradient;                                                \
        type       *v = u->value, *m = u->slots[0], rate = (type)o->learning_rate,                 \
             mu = (type)o->momentum;                                                               \
                                                                                                   \
        for (int64_t i = 0; i < u->n; ++i) {                                                       \
            m[i] = mu * m[i] - rate * g[i];                                                        \
            v[i] = old[i] + m[i];                                                                  \
        }                                                                                          \
    }                                                                                              \
    static void nesterov_##type(const co_sgd_options *o, const coi_update *u)                      \
    {                                                                                              \
        const type *old = u->old, *g = u->gradient;                                                \
        type       *v = u->value, *m = u->slots[0], rate = (type)o->learning_rate,                 \
             mu = (type)o->momentum;                                                               \
                                                                                                   \
        for (int64_t i = 0; i < u->n; ++i) {                                                       \
            m[i] = mu * m[i] - rate * g[i];                                                        \
            v[i] = old[i] + (mu * m[i] - rate * g[i]);                                             \
        }                                                                                          \
    }
DEFINE_SGD(float)
DEFINE_SGD(double)

static void
update(const co_optimizer *optimizer, const coi_update *u)
{
    typedef void (*kernel)(const co_sgd_options *, const coi_update *);
    static const kernel   kernels[2][3] = { { plain_float, momentum_float, nesterov_float },
                                            { plain_double, momentum_double, nesterov_double } };
    const co_sgd_options *o = &optimizer->sgd;

    kernels[u->dtype == CO_FLOAT64][o->momentum == 0 ? 0 : o->nesterov ? 2 : 1](o, u);
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
        coi_fail(ctx, CO_VALUE,
                 "learning_rate is %g (it must be finite), momentum is %g (it must be in [0, 1])",
                 all.learning_rate, all.momentum);
        return NULL;
    }
    optimizer = coi_optimizer_new(ctx, &sgd_rule);
    if (optimizer != NULL)
        optimizer->sgd = all;
    return optimizer;
}

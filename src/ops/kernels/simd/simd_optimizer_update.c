/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An optimizer's update of one variable, in one pass over its memory. No multiply-adds are fused,
 * so every instruction set gives the same bits.
 */
#include "ops/kernels/optimizer_update.h"
#include "ops/kernels/simd/simd.h"

#include <math.h>

#define DEFINE_UPDATES(type, root)                                                                 \
    static void plain_##type(const coi_sgd_numbers *o, const coi_update_arrays *a, int64_t n)      \
    {                                                                                              \
        const type *old = a->old, *restrict g = a->gradient;                                       \
        type       *value = a->value, rate = (type)o->rate;                                        \
                                                                                                   \
        COI_INDEPENDENT                                                                            \
        for (int64_t i = 0; i < n; ++i)                                                            \
            value[i] = old[i] - rate * g[i];                                                       \
    }                                                                                              \
    static void momentum_##type(const coi_sgd_numbers *o, const coi_update_arrays *a, int64_t n)   \
    {                                                                                              \
        const type *old = a->old, *restrict g = a->gradient;                                       \
        type *value = a->value, *restrict m = a->m, rate = (type)o->rate, mu = (type)o->momentum;  \
                                                                                                   \
        COI_INDEPENDENT                                                                            \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            m[i] = mu * m[i] - rate * g[i];                                                        \
            value[i] = old[i] + m[i];                                                              \
        }                                                                                          \
    }                                                                                              \
    static void nesterov_##type(const coi_sgd_numbers *o, const coi_update_arrays *a, int64_t n)   \
    {                                                                                              \
        const type *old = a->old, *restrict g = a->gradient;                                       \
        type *value = a->value, *restrict m = a->m, rate = (type)o->rate, mu = (type)o->momentum;  \
                                                                                                   \
        COI_INDEPENDENT                                                                            \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            m[i] = mu * m[i] - rate * g[i];                                                        \
            value[i] = old[i] + (mu * m[i] - rate * g[i]);                                         \
        }                                                                                          \
    }                                                                                              \
    static void adam_##type(const coi_adam_numbers *o, const coi_update_arrays *a, int64_t n)      \
    {                                                                                              \
        const type *old = a->old, *restrict g = a->gradient;                                       \
        type       *value = a->value, *restrict m = a->m, *restrict v = a->v;                      \
        const type  rate = (type)o->rate, keep = (type)o->keep, epsilon = (type)o->epsilon;        \
        const type  towards_g = (type)o->towards_g, towards_square = (type)o->towards_square;      \
                                                                                                   \
        COI_INDEPENDENT                                                                            \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            m[i] += (g[i] - m[i]) * towards_g;                                                     \
            v[i] += (g[i] * g[i] - v[i]) * towards_square;                                         \
            value[i] = old[i] * keep - m[i] * rate / (root(v[i]) + epsilon);                       \
        }                                                                                          \
    }
DEFINE_UPDATES(float, sqrtf)
DEFINE_UPDATES(double, sqrt)

const coi_updates COI_PER_ISA(coi_updates) = {
    .sgd = { { plain_float, plain_double },
             { momentum_float, momentum_double },
             { nesterov_float, nesterov_double } },
    .adam = { adam_float, adam_double },
};

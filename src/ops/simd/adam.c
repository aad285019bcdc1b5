/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam's update of one variable, in one pass over its memory. No multiply-adds are fused, so every
 * instruction set gives the same bits.
 */
#include "ops/adam.h"
#include "ops/simd/simd.h"

#include <math.h>

#define DEFINE_ADAM(type, root)                                                                    \
    static void adam_##type(const coi_adam_numbers *o, const coi_adam_arrays *a, int64_t n)        \
    {                                                                                              \
        const type *old = a->old, *restrict g = a->gradient;                                       \
        type       *value = a->value, *restrict m = a->m, *restrict v = a->v;                      \
        const type  rate = (type)o->rate, keep = (type)o->keep, epsilon = (type)o->epsilon;        \
        const type  towards_g = (type)o->towards_g, towards_square = (type)o->towards_square;      \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            m[i] += (g[i] - m[i]) * towards_g;                                                     \
            v[i] += (g[i] * g[i] - v[i]) * towards_square;                                         \
            value[i] = old[i] * keep - m[i] * rate / (root(v[i]) + epsilon);                       \
        }                                                                                          \
    }
DEFINE_ADAM(float, sqrtf)
DEFINE_ADAM(double, sqrt)

const coi_adam_kernels COI_PER_ISA(coi_adam) = { { adam_float, adam_double } };

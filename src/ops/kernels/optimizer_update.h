/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of optimizers, one table per instruction set
 * (ops/kernels/simd/simd_optimizer_update.c). The rules around them are in train/sgd.c,
 * train/adam.c and so on; what all have in common is in train/optimizer_update.c.
 */
#ifndef COI_OPS_KERNELS_OPTIMIZER_UPDATE_H
#define COI_OPS_KERNELS_OPTIMIZER_UPDATE_H

#include "ops/kernels/loops.h"

#define COI_MAX_SLOTS   4
#define COI_MAX_NUMBERS 16

/*
 * old and value may be the same memory, the others may not. `powers` is NULL where the gradient is
 * dense. Where it was indexed slices it has what the rule takes of a gradient that is not linear,
 * summed over the occurrences of a row: squares, or magnitudes (coi_powers).
 */
typedef struct coi_update_arrays {
    const void *old, *gradient, *powers;
    void       *value, *slots[COI_MAX_SLOTS];
} coi_update_arrays;

/* What a kernel takes of slices. */
typedef enum coi_powers { COI_POWERS_NONE, COI_POWERS_SQUARES, COI_POWERS_MAGNITUDES } coi_powers;

/* The numbers of one step, which kernels round to the dtype of the variable. */
typedef void (*coi_update_fn)(const double *numbers, const coi_update_arrays *arrays, int64_t n);

/* Below, q is g g where powers is NULL, else what is there; slots are named in their order. */
typedef enum coi_update_kind {
    COI_SGD_PLAIN,    /* value = old - rate g */
    COI_SGD_MOMENTUM, /* m: m = momentum m - rate g, value = old + m */
    COI_SGD_NESTEROV, /* m likewise, value = old + (momentum m - rate g) */
    /* m, v: m += (g - m) towards_g, v += (q - v) towards_square,
     * value = old - rate m / (sqrt(v) + epsilon) */
    COI_ADAM,
    COI_ADAM_AMSGRAD, /* m, v, largest: with the largest v so far in the root */
    /* v: v = rho v + (1 - rho) q, value = old - rate g / sqrt(v + epsilon) */
    COI_RMSPROP,
    COI_RMSPROP_MOMENTUM, /* v, m: m = momentum m + what would be subtracted, value = old - m */
    COI_RMSPROP_CENTERED, /* v, a: a = rho a + (1 - rho) g, sqrt(v - a a + epsilon) */
    COI_RMSPROP_CENTERED_MOMENTUM, /* v, m, a */
    COI_ADAGRAD,                   /* s: s += q, value = old - rate g / sqrt(s + epsilon) */
    /* s, d: s = rho s + (1 - rho) q, step = sqrt(d + epsilon) / sqrt(s + epsilon) g,
     * d = rho d + (1 - rho) step step, value = old - rate step */
    COI_ADADELTA,
    /* m, u: m as Adam's, u = max(beta_2 u, |g|), value = old - rate m / (correction (u + epsilon));
     * powers are magnitudes */
    COI_ADAMAX,
    /* m, v: as Adam's, value = old - rate (of_m m + of_g g) / (sqrt(v / correction) + epsilon) */
    COI_NADAM,
    /* m: value = old - rate sign(beta_1 m + (1 - beta_1) g), m = beta_2 m + (1 - beta_2) g */
    COI_LION,
    /* a, l: with p(x) = x^power: l += g + shrinkage old - (p(a + q) - p(a)) / rate old, a += q,
     * value = (clip(l, -l1, l1) - l) / (p(a) / rate + l2) */
    COI_FTRL_ROOT, /* power 1/2 */
    COI_FTRL,
    COI_NUM_UPDATES
} coi_update_kind;

/* Where the numbers of a kind are. */
enum { COI_SGD_RATE, COI_SGD_MU };
enum {
    COI_ADAM_TOWARDS_G,      /* 1 - beta_1 */
    COI_ADAM_TOWARDS_SQUARE, /* 1 - beta_2; Adamax: beta_2 */
    COI_ADAM_RATE,           /* Adam: with the step's correction for slots that began at 0 */
    COI_ADAM_EPSILON,
    COI_ADAM_CORRECTION, /* 1 - beta^step: Adamax of beta_1, Nadam of beta_2 */
    COI_NADAM_OF_M,
    COI_NADAM_OF_G
};
enum { COI_RMSPROP_RATE, COI_RMSPROP_RHO, COI_RMSPROP_REST, COI_RMSPROP_EPSILON, COI_RMSPROP_MU };
enum { COI_LION_RATE, COI_LION_BETA_1, COI_LION_BETA_2 };
enum { COI_FTRL_RATE, COI_FTRL_POWER, COI_FTRL_SHRINKAGE, COI_FTRL_L1, COI_FTRL_L2 };

/* Each for float, then for double. */
typedef struct coi_updates {
    coi_update_fn update[COI_NUM_UPDATES][2];
    /* out = g factor, then not beyond limit and -limit; NaN stays NaN. In place too. */
    void (*clip[2])(const void *g, void *out, double factor, double limit, int64_t n);
    /* out = x keep, in place too */
    void (*decay[2])(const void *x, void *out, double keep, int64_t n);
    /* average = momentum average + (1 - momentum) x */
    void (*average[2])(const void *x, void *average, double momentum, int64_t n);
    /* Whether all are finite. */
    bool (*is_finite[2])(const void *x, int64_t n);
} coi_updates;
extern const coi_updates coi_updates_base, coi_updates_v3, coi_updates_v4;

#endif

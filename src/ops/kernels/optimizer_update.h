/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of optimizers, one table per instruction set
 * (ops/kernels/simd/simd_optimizer_update.c); train/sgd.c and train/adam.c have the rules around
 * them.
 */
#ifndef COI_OPS_KERNELS_OPTIMIZER_UPDATE_H
#define COI_OPS_KERNELS_OPTIMIZER_UPDATE_H

#include "ops/kernels/loops.h"

/* old and value may be the same memory, the others may not; a kernel that keeps fewer slots leaves
 * the last alone. */
typedef struct coi_update_arrays {
    const void *old, *gradient;
    void       *value, *m, *v;
} coi_update_arrays;

/* The numbers of one step are rounded to the variable's dtype by the kernel. */
typedef struct coi_sgd_numbers {
    double rate, momentum;
} coi_sgd_numbers;
typedef void (*coi_sgd_fn)(const coi_sgd_numbers *numbers, const coi_update_arrays *arrays,
                           int64_t n);
typedef enum coi_sgd_kind {
    COI_SGD_PLAIN,    /* value = old - rate g */
    COI_SGD_MOMENTUM, /* m = momentum m - rate g, value = old + m */
    COI_SGD_NESTEROV, /* m likewise, value = old + (momentum m - rate g) */
    COI_NUM_SGD
} coi_sgd_kind;

/* m += (g - m) towards_g, v += (g g - v) towards_square, value = keep old - rate m / (sqrt(v) +
 * epsilon) */
typedef struct coi_adam_numbers {
    double towards_g, towards_square; /* 1 - beta_1 and 1 - beta_2 */
    double rate;                      /* with the step's correction for slots that began at 0 */
    double epsilon;
    double keep; /* what decay leaves of a weight; 1: no decay */
} coi_adam_numbers;
typedef void (*coi_adam_fn)(const coi_adam_numbers *numbers, const coi_update_arrays *arrays,
                            int64_t n);

typedef struct coi_updates { /* each for float, then for double */
    coi_sgd_fn  sgd[COI_NUM_SGD][2];
    coi_adam_fn adam[2];
} coi_updates;
extern const coi_updates coi_updates_base, coi_updates_v3, coi_updates_v4;

#endif

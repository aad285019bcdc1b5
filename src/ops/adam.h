/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of Adam, one table per instruction set (ops/simd/adam.c); train/adam.c has the rule
 * around it.
 */
#ifndef COI_OPS_ADAM_H
#define COI_OPS_ADAM_H

#include "ops/simd/loops.h"

/* The numbers of one step, rounded to the variable's dtype by the kernel. */
typedef struct coi_adam_numbers {
    double towards_g, towards_square; /* 1 - beta_1 and 1 - beta_2 */
    double rate;                      /* with the step's correction for slots that began at 0 */
    double epsilon;
    double keep; /* what decay leaves of a weight; 1: no decay */
} coi_adam_numbers;

/* old and value may be the same memory, the others may not. */
typedef struct coi_adam_arrays {
    const void *old, *gradient;
    void       *value, *m, *v;
} coi_adam_arrays;

/* m += (g - m) (1 - beta_1), v += (g g - v) (1 - beta_2), value = keep old - rate m / (sqrt(v) +
 * epsilon) */
typedef struct coi_adam_kernels {
    void (*of[2])(const coi_adam_numbers *numbers, const coi_adam_arrays *arrays,
                  int64_t n); /* float, double */
} coi_adam_kernels;
extern const coi_adam_kernels coi_adam_base, coi_adam_v3, coi_adam_v4;

#endif

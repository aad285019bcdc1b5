/* SPDX-License-Identifier: Apache-2.0 */
/* Loops by hand, beside which operators are measured: what they are is said in hand_written.c. */
#ifndef COHORT_BENCH_BY_HAND_H
#define COHORT_BENCH_BY_HAND_H

#include <stdint.h>

enum { HAND_ELEMENTS = 1 << 18, HAND_ROWS = 512, HAND_COLUMNS = 128 };

/* Arrays of HAND_ELEMENTS, or of rows and columns; the arrays do not overlap. */
typedef struct hand_arrays {
    const float   *x, *g, *gamma, *beta;
    const int32_t *labels;
    float         *y, *z, *dx, *dgamma, *dbeta, *losses;
} hand_arrays;

typedef void (*hand_fn)(const hand_arrays *a);

void hand_relu(const hand_arrays *a);
void hand_exp(const hand_arrays *a);
void hand_tanh(const hand_arrays *a);
void hand_gelu(const hand_arrays *a);
void hand_gelu_back(const hand_arrays *a);
void hand_softmax(const hand_arrays *a);
void hand_cross_entropy(const hand_arrays *a);
void hand_layer_norm(const hand_arrays *a);
void hand_layer_norm_back(const hand_arrays *a);

#endif

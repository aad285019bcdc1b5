/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy.random.default_rng(seed), as far as the models of bench/peers need it: the generator PCG64,
 * seeded through a SeedSequence, normal numbers and integers. The scripts of other frameworks draw
 * their weights with numpy; with the same numbers their first losses and ours are equal.
 */
#ifndef COHORT_BENCH_NUMPY_RANDOM_H
#define COHORT_BENCH_NUMPY_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 numpy_uint128;

typedef struct numpy_random {
    numpy_uint128 state, increment;
    bool          has_half; /* 32-bit numbers are taken from 64-bit ones, the low half first */
    uint32_t      half;
} numpy_random;

/* default_rng(seed) */
numpy_random numpy_random_of(uint32_t seed);
/* standard_normal(n).astype(float32) */
void numpy_standard_normal(numpy_random *random, float *out, size_t n);
/* integers(0, end, n).astype(int32); end is at least 2 */
void numpy_integers(numpy_random *random, uint32_t end, int32_t *out, size_t n);

#endif

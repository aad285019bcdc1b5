/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GEMM of other libraries, as limits: dnnl_sgemm and OpenBLAS, loaded where the machine has
 * them (make bench installs both). Nothing else of the project looks at OpenBLAS.
 */
#ifndef COHORT_BENCH_PEERS_H
#define COHORT_BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>

/* c = a b, row by row and without gaps; a is [k, m] where transpose_a, b is [n, k] where
 * transpose_b. */
typedef struct bench_product {
    int          m, n, k;
    bool         transpose_a, transpose_b;
    const float *a, *b;
    float       *c;
} bench_product;

typedef struct bench_peer {
    const char *name; /* "dnnl_sgemm" */
    void (*multiply)(const bench_product *p);
} bench_peer;

/* The peers there are, with so many threads; `n` of them. */
const bench_peer *bench_peers(int threads, size_t *n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue of a GEMM or convolution: add a bias and apply an activation. It runs on rows that
 * were just computed and are still in the cache, which saves two passes over memory. It uses the
 * loops of the separate operators, so the bits are the same.
 */
#ifndef COI_OPS_KERNELS_EPILOGUE_H
#define COI_OPS_KERNELS_EPILOGUE_H

#include "ops/engine/op.h"
#include "ops/kernels/loops.h"

/* A whole epilogue, for rows that are `stride` apart. Columns are a multiple of COI_EPILOGUE_LANES:
 * partial vectors of short rows would share cache lines and wait for each other. */
enum { COI_EPILOGUE_LANES = 16 };
typedef void (*coi_epilogue_fn)(void *c, int64_t stride, int64_t rows, const void *bias,
                                int64_t columns);

/* The epilogue of one GEMM or convolution. Float32 and float64. */
typedef struct coi_epilogue {
    coi_epilogue_fn whole; /* what most layers have, in one pass (ops/kernels/simd/simd_epilogue.c);
                              NULL: by parts */
    const char   *bias;    /* an element per column */
    coi_binary_fn add;
    coi_unary_fn  activation; /* NULL: none */
    size_t        size;       /* of an element */
} coi_epilogue;

/* Input 2 of the operators below; the inputs before it and the attribute `activation`
 * (co_activation) are the product's. */
enum { COI_BIAS = 2 };

void coi_epilogue_of(const coi_call *call, int32_t activation, coi_epilogue *epilogue);
/* Rows of `columns` elements from column `first` on; the rows begin at c and are `stride` elements
 * apart. */
void coi_epilogue_rows(const coi_epilogue *epilogue, void *c, int64_t stride, int64_t rows,
                       int64_t first, int64_t columns);
/* All of output 0, element by element, with the reference kernels. */
co_code coi_ref_epilogue(coi_call *call, int32_t activation);

#endif

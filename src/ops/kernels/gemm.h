/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GEMM under matmul and the convolutions without oneDNN: C = A B or C += A B with any
 * strides of A and B. One micro-kernel per instruction set computes a small tile of C in registers;
 * it reads A and B through strides, so packing is a matter of cache behaviour alone:
 *
 *     A, rows contiguous        read where it is: six streams along k
 *     A, columns contiguous     packed into panels of six rows when it is large
 *     B, rows contiguous        read where it is for few rows of A, else packed into panels
 *     B, columns contiguous     packed, panel by panel where one tile alone uses them
 *
 * With few columns most lanes of a vector would be empty. Such a GEMM is computed transposed: the
 * vectors lie along m.
 *
 * An element of C is summed over k in order, in blocks of COI_GEMM_KC whose sums are added in
 * order. Neither packing nor transposing nor the cut of m and n into tiles changes that, so bits
 * depend on k and the instruction set alone.
 */
#ifndef COI_OPS_KERNELS_GEMM_H
#define COI_OPS_KERNELS_GEMM_H

#include "ops/kernels/epilogue.h"
#include "ops/kernels/fused_elementwise.h"
#include "value/value.h"

/* K of a block: a panel of B of this depth takes half of a 32 KiB L1 cache. */
#define COI_GEMM_KC 256
/* Small K: up to here writing C takes as long as the sums, and longer than reading B in place. C is
 * then written row by row. */
#define COI_GEMM_SMALL_K 16

/* Strides are in elements; the rows of C are contiguous. */
typedef struct coi_gemm {
    int64_t             m, n, k;
    const void         *a;
    int64_t             a_row, a_col;
    const void         *b;
    int64_t             b_row, b_col;
    void               *c;
    int64_t             c_row;
    bool                accumulate;    /* C += A B */
    bool                may_transpose; /* scratch is sized for these extents */
    const coi_epilogue *epilogue; /* for each tile of C when its sums are complete; NULL: none */
    const coi_fused    *chain;    /* then this; NULL: none */
    int64_t             at;       /* element of C in the result of the chain */
} coi_gemm;

/* How one GEMM is computed: where the packed operands are, if any, and the slab of k they cover. */
typedef struct coi_gemm_plan {
    coi_gemm g;
    int64_t  k0, k1; /* this slab; packed parts hold these k alone */
    int64_t  slab;   /* depth of a slab */
    bool     pack_a, pack_b;
    bool     pack_on_the_fly; /* B panel by panel inside the tile; A is not packed then */
    bool transposed; /* g is the transposed GEMM, its C in scratch; its tiles are transposed into C
                    of `asked` */
    coi_gemm asked;
    void    *packed_a, *packed_b;
    int64_t  tile_m, tile_n; /* extents of a chunk of C, multiples of the micro-tile if several */
} coi_gemm_plan;

/* The kernels of one element type and instruction set. Panels are micro-tiles' worth of rows of A
 * or columns of B. */
typedef struct coi_gemm_kernels {
    coi_isa isa;
    int     mr, nr; /* nr is a power of two */
    size_t  element_size;
    /* Rows [i0, i1) of A, i0 at a panel's border. */
    void (*pack_a)(const coi_gemm_plan *plan, int64_t i0, int64_t i1);
    void (*pack_b)(const coi_gemm_plan *plan, int64_t panel);
    /* Rows [i0, i1) and columns [j0, j1) of C for the plan's slab; i0 and j0 are at panel
     * borders. */
    void (*tile)(const coi_gemm_plan *plan, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
    /* Element (i, j) of `from` becomes (j, i) of `to`. */
    void (*transpose)(const void *from, int64_t from_row, int64_t rows, int64_t columns, void *to,
                      int64_t to_row);
} coi_gemm_kernels;

/* CO_FLOAT32 or CO_FLOAT64. */
const coi_gemm_kernels *coi_gemm_kernels_of(coi_isa isa, co_dtype dtype);

/* Decide how to compute g: by its shape, or with `packing` where that is possible. Packed parts are
 * not set yet. */
void coi_gemm_plan_init(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, coi_packing packing,
                        const coi_gemm *g);
/* The rest of the plan, after g, pack_a and pack_b. */
void coi_gemm_plan_cut(coi_gemm_plan *plan, const coi_gemm_kernels *kernels);
/* Bytes for the packed parts, 0 when nothing is packed. */
size_t coi_gemm_scratch(const coi_gemm_plan *plan, const coi_gemm_kernels *kernels);
/* Compute on the calling thread. scratch: coi_gemm_scratch bytes, aligned to COI_ALIGNMENT, or NULL
 * when that is 0. */
void coi_gemm_run(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, void *scratch);
/* The same on a team. */
void coi_gemm_run_on(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, void *scratch,
                     coi_team *team);

#endif

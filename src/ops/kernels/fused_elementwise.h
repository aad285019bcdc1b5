/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of element-wise operators, tile by tile: a tile of each operand is in the first cache
 * while all operators of the chain take their step, so what lies between them is neither written to
 * memory nor read from it. The loops are those of the operators one by one, and so are the bits.
 */
#ifndef COI_OPS_KERNELS_FUSED_ELEMENTWISE_H
#define COI_OPS_KERNELS_FUSED_ELEMENTWISE_H

#include "ops/engine/op.h"
#include "ops/kernels/loops.h"

#define COI_FUSED_TILES 8 /* results between the operators that are alive at a time */

/* The elements of an operand for those of the result, which is seen as rows. */
typedef enum coi_fused_layout {
    COI_FUSED_DENSE,   /* one for each */
    COI_FUSED_ONE,     /* one for all */
    COI_FUSED_ROW,     /* one row for all rows */
    COI_FUSED_PER_ROW, /* one for each row */
} coi_fused_layout;

/* An operand or result: in a tensor, or between the operators. */
typedef struct coi_fused_place {
    const co_value *tensor; /* NULL: in the tile */
    int8_t          tile;   /* -1: none */
    uint8_t         size;   /* of an element */
    uint8_t         layout;
} coi_fused_place;

typedef struct coi_fused_step {
    coi_unary_fn    unary; /* or binary; the other is NULL */
    coi_binary_fn   binary;
    coi_pairing     pairing;
    coi_fused_place in[2];    /* of unary: the first */
    coi_fused_place out;      /* with a tensor and a tile: streamed from the tile to the tensor */
    uint8_t         order[2]; /* which operand of the call is which of the loop */
    int64_t         row;      /* elements of a row of the result; 0: the layouts know no rows */
} coi_fused_step;

typedef struct coi_fused {
    coi_fused_step *steps;
    size_t          num_steps;
    int64_t         num_elements; /* of every result */
    int64_t         row;          /* of every step that knows rows; 0: there is none */
    coi_isa         isa;
} coi_fused;

/* Rows of fewer elements have calls of their own: tiles end with rows. */
#define COI_FUSED_SHORTEST_ROW 64

/* The loop of a call, if a chain may have it: operands have one of the layouts, and the loop works
 * on their dtypes. Places have sizes and layouts, and no tensors yet. */
bool coi_fused_step_of(const coi_call *call, coi_fused_step *step);
/* Whether results of so many bytes are streamed. */
bool coi_fused_streams(size_t nbytes);
/* On the workers of the device, where there are enough elements. A chain may take as long as all of
 * its operators, so every chunk counts as progress. */
void coi_fused_run(const coi_fused *fused, const co_device *device, atomic_ullong *progress);

/*
 * Epilogues: a kernel that makes a tensor part by part lets a chain go on with each part while it
 * is in the cache (coi_call.epilogue). The chain reads the finished part where the kernel wrote it,
 * so results are rounded as those of separate kernels.
 */
/* Whether the kernel of a call can have one. */
bool coi_takes_epilogue(const coi_call *call);
/* On the calling thread: elements of rows that are `stride` elements apart, from element `at` of
 * the result on. */
void coi_fused_rows(const coi_fused *fused, int64_t at, int64_t stride, int64_t rows,
                    int64_t columns);

/* unary_kernels.c, binary_kernels.c: the same for one operator. */
bool coi_unary_step_of(const coi_call *call, coi_unary_kind kind, coi_fused_step *step);
bool coi_binary_step_of(const coi_call *call, coi_fused_step *step);
/* binary_kernels.c: the operand that a kernel may write its result over; -1: none. */
int coi_binary_overwrites(const coi_call *call);

#endif

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

/* An operand or result: in a tensor, or between the operators. */
typedef struct coi_fused_place {
    const co_value *tensor; /* NULL: in the tile */
    int8_t          tile;   /* -1: none */
    uint8_t         size;   /* of an element */
    bool            is_one; /* a single element for all */
} coi_fused_place;

typedef struct coi_fused_step {
    coi_unary_fn    unary; /* or binary; the other is NULL */
    coi_binary_fn   binary;
    coi_pairing     pairing;
    coi_fused_place in[2];    /* of unary: the first */
    coi_fused_place out;      /* with a tensor and a tile: streamed from the tile to the tensor */
    uint8_t         order[2]; /* which operand of the call is which of the loop */
} coi_fused_step;

typedef struct coi_fused {
    coi_fused_step *steps;
    size_t          num_steps;
    int64_t         num_elements; /* of every result */
    coi_isa         isa;
} coi_fused;

/* The loop of a call, if a chain may have it: results are as large as the operands, or these are
 * single elements, and the loop works on their dtypes. Places have sizes and no tensors yet. */
bool coi_fused_step_of(const coi_call *call, coi_fused_step *step);
/* Whether results of so many bytes are streamed. */
bool coi_fused_streams(size_t nbytes);
/* On the workers of the device, where there are enough elements. */
void coi_fused_run(const coi_fused *fused, const co_device *device);

/* unary_kernels.c, binary_kernels.c: the same for one operator. */
bool coi_unary_step_of(const coi_call *call, coi_unary_kind kind, coi_fused_step *step);
bool coi_binary_step_of(const coi_call *call, coi_fused_step *step);
/* binary_kernels.c: the operand that a kernel may write its result over; -1: none. */
int coi_binary_overwrites(const coi_call *call);

#endif

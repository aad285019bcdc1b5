/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops exist for a few types only, the lanes. Elements of every other dtype come to a loop and go
 * back block by block, converted: halves through float, small integers through int32_t. What is
 * lost is a little time where few models spend any; what is won is nine loops less for each
 * operator.
 */
#ifndef COI_OPS_LANES_H
#define COI_OPS_LANES_H

#include "ops/cast.h"
#include "ops/simd/loops.h"

typedef struct coi_lane_entry {
    uint8_t lane;  /* coi_lane */
    uint8_t dtype; /* what its loops read */
} coi_lane_entry;
extern const coi_lane_entry coi_lanes[CO_NUM_DTYPES];

#define COI_LANE_BLOCK 256 /* elements at a time */
typedef struct coi_lane_block {
    _Alignas(64) char bytes[COI_LANE_BLOCK * 8];
} coi_lane_block;

/* n elements as `to`: where they are if they are that already, else converted in block. */
static inline const void *
coi_lane_in(coi_isa isa, co_dtype from, const void *x, co_dtype to, coi_lane_block *block,
            int64_t n)
{
    if (from == to)
        return x;
    coi_cast_elements(isa, from, x, to, block->bytes, n);
    return block->bytes;
}

#endif

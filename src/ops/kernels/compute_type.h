/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops exist for a few compute types only. Elements of every other dtype are converted block by
 * block before a loop and back after it: halves through float, small integers through int32_t. This
 * costs a little time where few models spend any, and saves nine loops for each operator.
 */
#ifndef COI_OPS_KERNELS_COMPUTE_TYPE_H
#define COI_OPS_KERNELS_COMPUTE_TYPE_H

#include "ops/kernels/cast.h"
#include "ops/kernels/loops.h"

typedef struct coi_compute_type_entry {
    uint8_t type;  /* coi_compute_type */
    uint8_t dtype; /* what its loops read */
} coi_compute_type_entry;
extern const coi_compute_type_entry coi_compute_types[CO_NUM_DTYPES];

#define COI_COMPUTE_BLOCK 256 /* elements at a time */
typedef struct coi_compute_block {
    _Alignas(64) char bytes[COI_COMPUTE_BLOCK * 8];
} coi_compute_block;

/* n elements as `to`: where they are if they are that already, else converted in block. */
static inline const void *
coi_to_compute_type(coi_isa isa, co_dtype from, const void *x, co_dtype to,
                    coi_compute_block *block, int64_t n)
{
    if (from == to)
        return x;
    coi_cast_elements(isa, from, x, to, block->bytes, n);
    return block->bytes;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results larger than the caches are written with streaming stores. An ordinary store reads the
 * line first, a third of the bytes of an operator with one operand. An element-wise loop fills a
 * block in the L1 cache, and the block is streamed to its place. Smaller results are written with
 * ordinary stores, so that their reader finds them in a cache.
 */
#ifndef COI_OPS_KERNELS_STREAMING_STORE_H
#define COI_OPS_KERNELS_STREAMING_STORE_H

#include "base/isa.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size of the last-level cache of a core's group on many machines. With a larger cache, a
 * result of up to twice this would still be cached for its reader (docs/decisions/kernels.md).
 */
#define COI_STREAM_BYTES ((size_t)32 << 20)

/*
 * The block that a loop fills before it is streamed. A load waits for an earlier store whose
 * address has the same low 12 bits (4K aliasing). So the block lies half a page from its place in
 * the result, and from operands with the same page offset.
 */
#define COI_STREAM_BLOCK ((size_t)512)
typedef struct coi_stream_area {
    _Alignas(64) char bytes[4096 + COI_STREAM_BLOCK];
} coi_stream_area;
static inline char *
coi_stream_block(coi_stream_area *area, const void *to)
{
    return area->bytes + (((uintptr_t)to + 2048 - (uintptr_t)area->bytes) & 4095 & ~(uintptr_t)63);
}

/*
 * Prefetch the operands of a later block while this one is written. The processor does not foresee
 * the reads of the next block, and memory answers only after the time of some blocks. Lines are
 * prefetched in the order of reading, one of each operand; y is NULL if there is one operand. A
 * whole block of each operand must exist.
 */
#define COI_PREFETCH_BYTES ((size_t)4 * COI_STREAM_BLOCK)
static inline void
coi_stream_prefetch(const char *x, const char *y)
{
    for (size_t i = 0; i < COI_STREAM_BLOCK; i += 64) {
        __builtin_prefetch(x + i);
        if (y != NULL)
            __builtin_prefetch(y + i);
    }
}

/* Elements of the next block, of those that are left: the first ends at the end of a line, so that
 * the others have whole ones. */
static inline int64_t
coi_stream_elements(const void *to, size_t size, int64_t left)
{
    int64_t most = (int64_t)((COI_STREAM_BLOCK - (uintptr_t)to % 64) / size);

    return left < most ? left : most;
}

/* Copy a block. */
typedef void (*coi_stream_fn)(void *to, const void *from, size_t nbytes);
coi_stream_fn coi_stream_of(coi_isa isa);
/* A store fence: other threads see the streamed data after it. */
void coi_stream_end(void);

#endif

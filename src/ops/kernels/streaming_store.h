/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that no cache holds are written past it: a line that is only written need not be read
 * before, which is a third of the bytes that an operator of one operand moves. An element-wise loop
 * fills a block in the first-level cache, and that is streamed to its place. Smaller results are
 * written as usual, because who asked for them finds them in a cache then.
 */
#ifndef COI_OPS_KERNELS_STREAMING_STORE_H
#define COI_OPS_KERNELS_STREAMING_STORE_H

#include "base/isa.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As much as the last-level cache of a core's group has on many machines. Where it is larger, who
 * reads the result at once would have found it there up to twice this (docs/decisions/kernels.md).
 */
#define COI_STREAM_BYTES ((size_t)32 << 20)

/*
 * Where a loop fills a block before it is streamed. Processors take a load and a store whose
 * addresses are alike in their last 12 bits for the same memory, and wait; so the block lies half a
 * page from its place, and from operands that begin where the result does.
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
 * Ask for what a later block reads, while this one is written: between two blocks the processor
 * does not see it coming, and it takes as long as some blocks until it is there. In the order in
 * which it is read, one line of each operand; y is NULL if there is one operand. A block of each
 * must be there.
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
/* What this thread has streamed is seen by whoever it tells about it after this. */
void coi_stream_end(void);

#endif

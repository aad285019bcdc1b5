/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing past the cache; see ops/kernels/streaming_store.h. A store of a whole vector takes one
 * place in the processor's queue of stores, where it waits for the memory: by quarters of a line
 * the queue is full after two blocks, and the loop that fills the next one waits with it. Without
 * instructions for it this is a plain copy.
 */
#include "ops/kernels/streaming_store.h"
#include "ops/kernels/simd/simd.h"

#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(COI_ISA_v4)
typedef __m512i line;
#define LOAD   _mm512_loadu_si512
#define STREAM _mm512_stream_si512
#elif defined(COI_ISA_v3)
typedef __m256i line;
#define LOAD   _mm256_loadu_si256
#define STREAM _mm256_stream_si256
#elif defined(__SSE2__)
typedef __m128i line;
#define LOAD   _mm_loadu_si128
#define STREAM _mm_stream_si128
#endif

void
COI_PER_ISA(coi_stream)(void *to, const void *from, size_t nbytes)
{
    size_t done = 0;

#ifdef STREAM
    done = (0 - (uintptr_t)to) % sizeof(line); /* before the first whole vector */
    done = done < nbytes ? done : nbytes;
    memcpy(to, from, done);
    for (; done + sizeof(line) <= nbytes; done += sizeof(line))
        STREAM((line *)(void *)((char *)to + done),
               LOAD((const line *)(const void *)((const char *)from + done)));
#endif
    memcpy((char *)to + done, (const char *)from + done, nbytes - done);
}

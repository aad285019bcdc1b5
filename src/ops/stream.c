/* SPDX-License-Identifier: Apache-2.0 */
/* Writing past the cache; see stream.h. Without the instructions for it, these are plain copies. */
#include "ops/stream.h"

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

void
coi_stream(void *to, const void *from, size_t nbytes)
{
#if defined(__SSE2__)
    size_t n = (uintptr_t)to % sizeof(__m128i) == 0 ? nbytes / sizeof(__m128i) : 0;

    for (size_t i = 0; i < n; ++i)
        _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    memcpy((__m128i *)to + n, (const __m128i *)from + n, nbytes - n * sizeof(__m128i));
#else
    memcpy(to, from, nbytes);
#endif
}

void
coi_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

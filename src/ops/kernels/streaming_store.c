/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming stores by instruction set; see streaming_store.h. */
#include "ops/kernels/streaming_store.h"

#include "config.h"
#include "ops/kernels/loops.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

void coi_stream_base(void *to, const void *from, size_t nbytes);
void coi_stream_v3(void *to, const void *from, size_t nbytes);
void coi_stream_v4(void *to, const void *from, size_t nbytes);

coi_stream_fn
coi_stream_of(coi_isa isa)
{
    static const coi_stream_fn by_isa[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_stream);

    return by_isa[isa];
}

void
coi_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/pool.h for one instruction set, vectorised by the compiler along the channels.
 */
#include "ops/pool.h"
#include "ops/simd/simd.h"

#include <string.h>

enum { STRIP = 64 }; /* channels at a time */

/* Windows of 2 x 2 that cover the image and nothing else. */
static inline bool
is_in_fours(const coi_pool *p)
{
    return p->kh == 2 && p->kw == 2 && p->sh == 2 && p->sw == 2 && p->h % 2 == 0 && p->w % 2 == 0;
}

#define T    f32
#define REAL float
#include "ops/simd/pool_body.h"
#undef T
#undef REAL
#define T    f64
#define REAL double
#include "ops/simd/pool_body.h"

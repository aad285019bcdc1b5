/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/pool.h for one instruction set, vectorised by the compiler along the channels.
 */
#include "ops/pool.h"
#include "ops/simd/simd.h"

#include <string.h>

enum { STRIP = 64 }; /* channels at a time */

#define T    f32
#define REAL float
#include "ops/simd/pool_body.h"
#undef T
#undef REAL
#define T    f64
#define REAL double
#include "ops/simd/pool_body.h"

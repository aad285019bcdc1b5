/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/pool.h for one instruction set, vectorised by the compiler along the channels.
 * Those of double are in ops/doubles.c.
 */
#include "ops/pool.h"
#include "ops/simd/simd.h"

#include <string.h>

#define T    f32
#define REAL float
#include "ops/simd/pool_body.h"

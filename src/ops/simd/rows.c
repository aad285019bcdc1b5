/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/rows.h for float and one instruction set. They wait for the cache more than
 * for arithmetic: v4 has those of v3.
 */
#include "ops/rows.h"
#include "ops/simd/vector.h"

#ifndef COI_ISA_v4

#include <math.h>

#define T    f32
#define REAL float
#include "ops/simd/rows_body.h"

#endif

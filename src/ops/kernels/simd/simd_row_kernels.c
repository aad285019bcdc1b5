/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/kernels/row_kernels.h for float and one instruction set. They wait for the
 * cache more than for arithmetic: AVX-512 uses those of AVX2.
 */
#include "ops/kernels/row_kernels.h"
#include "ops/kernels/simd/vector.h"

#ifndef COI_ISA_v4

#include <math.h>

#define T    f32
#define REAL float
#include "ops/kernels/simd/row_kernels_body.h"

#endif

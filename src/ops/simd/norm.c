/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/norm.h for float and one instruction set. They wait for the cache more than for arithmetic: v4 has those of
 * v3.
 */
#include "ops/norm.h"
#include "ops/simd/vector.h"

#ifndef COI_ISA_v4

#include <math.h>

#define T    f32
#define REAL float
#include "ops/simd/norm_body.h"

const coi_norm_kernels COI_PER_ISA(coi_norm_f32) = {
    .rows = norm_rows_f32,
    .grad_rows = norm_grad_rows_f32,
};

#endif

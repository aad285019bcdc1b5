/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/kernels/softmax.h for float and one instruction set, as loops that compilers
 * vectorise. Rows are taken in blocks of a few thousand elements. Short rows (ten classes) would
 * leave most of a vector empty. They are transposed: a vector holds one element of each of many
 * rows.
 */
#include "ops/kernels/softmax.h"
#include "ops/kernels/simd/simd_math.h"
#include "ops/kernels/simd/vector.h"

#define T    f32
#define REAL float
#define EXP  coi_exp_belowf
#define LOG  coi_logf
#include "ops/kernels/simd/softmax_body.h"

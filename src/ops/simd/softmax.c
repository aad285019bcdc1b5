/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/softmax.h for one instruction set, as loops that compilers vectorise. Rows are taken in blocks of a
 * few thousand elements, so that the exponentials of short rows (ten classes) fill vectors too.
 */
#include "ops/softmax.h"
#include "ops/simd/math.h"
#include "ops/simd/simd.h"

enum { LANES = 16, BLOCK = 2048, STRIP = 64 };

#define T    f32
#define REAL float
#define EXP  coi_expf
#define LOG  coi_logf
#include "ops/simd/softmax_body.h"
#undef T
#undef REAL
#undef EXP
#undef LOG
#define T    f64
#define REAL double
#define EXP  exp
#define LOG  log
#include "ops/simd/softmax_body.h"

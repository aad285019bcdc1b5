/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/softmax.h for one instruction set, as loops that compilers vectorise. Rows are taken in blocks of a
 * few thousand elements. Short rows (ten classes) would leave most of a vector empty: they are turned, so that a vector
 * holds one element of each of many rows.
 */
#include "ops/softmax.h"
#include "ops/simd/math.h"
#include "ops/simd/vector.h"

enum {
    SUMS = 16,    /* partial sums of a row */
    BLOCK = 2048, /* elements of a row at a time */
    STRIP = 64,   /* columns at a time */
    NARROW = 24,  /* rows up to this length are turned */
};

/* Columns computed for n columns: whole vectors. */
#define ROUNDED(n) (((n) + 15) / 16 * 16)

#define T    f32
#define REAL float
#define EXP  coi_exp_belowf
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

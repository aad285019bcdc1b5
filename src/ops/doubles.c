/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of double that are compiled once, for size, and serve every instruction set: few models
 * train in double, and its exponentials are the C library's.
 */
#include "ops/pool.h"
#include "ops/rows.h"
#include "ops/simd/vector.h"
#include "ops/softmax.h"

#include <math.h>
#include <string.h>

#define COI_ISA once
#define T       f64
#define REAL    double
#define EXP     exp
#define LOG     log
#include "ops/simd/pool_body.h"
#include "ops/simd/rows_body.h"
#include "ops/simd/softmax_body.h"

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of double that are compiled once, for size, and serve every instruction set: few models
 * train in double, and its exponentials are the C library's.
 */
#include "ops/kernels/pool2d.h"
#include "ops/kernels/row_kernels.h"
#include "ops/kernels/simd/vector.h"
#include "ops/kernels/softmax.h"

#include <math.h>
#include <string.h>

#define COI_ISA once
#define T       f64
#define REAL    double
#define EXP     exp
#define LOG     log
#include "ops/kernels/simd/pool2d_body.h"
#include "ops/kernels/simd/row_kernels_body.h"
#include "ops/kernels/simd/softmax_body.h"

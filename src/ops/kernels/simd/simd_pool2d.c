/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/kernels/pool2d.h for one instruction set, vectorised by the compiler along the
 * channels. Those of double are in ops/kernels/generic/float64_kernels.c.
 */
#include "ops/kernels/pool2d.h"
#include "ops/kernels/simd/simd.h"

#include <string.h>

#define T    f32
#define REAL float
#include "ops/kernels/simd/pool2d_body.h"

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the element-wise operators share with their reference kernels, and attributes.
 */
#ifndef COI_OPS_KERNELS_ELEMENTWISE_H
#define COI_OPS_KERNELS_ELEMENTWISE_H

#include "ops/engine/op.h"
#include "ops/kernels/simd/loops.h"

/* The kind of an operator of two operands: that of its loop, and what is done about it. */
#define COI_SWAPPED     0x40 /* x > y is y < x */
#define COI_INVERTED    0x80 /* x != y is not x == y */
#define COI_KIND(kind_) ((coi_binary_kind)((kind_)&0x3F))

/* Which of the two functions gelu's attributes choose (unary_ops.c). */
coi_unary_kind coi_gelu_kind(const void *attrs);
typedef struct coi_leaky_attrs {
    double alpha;
} coi_leaky_attrs;

#endif

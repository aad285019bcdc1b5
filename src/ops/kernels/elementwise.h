/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of element-wise operators, and attributes.
 */
#ifndef COI_OPS_KERNELS_ELEMENTWISE_H
#define COI_OPS_KERNELS_ELEMENTWISE_H

#include "ops/engine/op.h"
#include "ops/kernels/loops.h"

/* The kind of an operator of two operands: that of its loop, and what is done about it. */
#define COI_SWAPPED     0x40 /* x > y is y < x */
#define COI_INVERTED    0x80 /* x != y is not x == y */
#define COI_KIND(kind_) ((coi_binary_kind)((kind_)&0x3F))

typedef struct coi_gelu_attrs {
    bool approximate;
} coi_gelu_attrs;
/* Which of the two functions gelu's attributes choose. */
coi_unary_kind coi_gelu_kind(const void *attrs);
typedef struct coi_leaky_attrs {
    double alpha;
} coi_leaky_attrs;

/* The kernels; the plain ones are in ops/kernels/ref/ref.h. */
co_code coi_unary_run(coi_call *call);
co_code coi_gelu_run(coi_call *call);
co_code coi_binary_run(coi_call *call);
co_code coi_equal_run(coi_call *call);
co_code coi_leaky_relu_run(coi_call *call);
co_code coi_where_run(coi_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference kernels: plain, readable, one element at a time. They say what an operator means;
 * tests hold the optimised kernels against them.
 *
 * Elements are passed as coi_number: floats as double, whole numbers as 64 bits. Sums, products,
 * quotients and roots computed in double and then rounded to float or half are what rounding once
 * would give, since a double has more than twice the digits of a float. What goes on from a
 * quotient in steps, as floordiv does, rounds it first.
 */
#ifndef COI_OPS_KERNELS_REF_REF_H
#define COI_OPS_KERNELS_REF_REF_H

#include "ops/engine/op.h"
#include "ops/kernels/loops.h"

typedef enum coi_number_class {
    COI_NUMBER_FLOAT,
    COI_NUMBER_SIGNED,
    COI_NUMBER_UNSIGNED
} coi_number_class;

typedef struct coi_number {
    coi_number_class cls;
    double           f;
    uint64_t         u; /* signed numbers as two's complement */
} coi_number;

/* Element i of data. Bools are unsigned. */
coi_number coi_number_load(co_dtype dtype, const void *data, int64_t i);
/* Stored in dtype: floats are rounded, whole numbers cut to their width. */
void coi_number_store(co_dtype dtype, void *data, int64_t i, coi_number number);
/* A number of the class that dtype has. */
coi_number coi_number_of(co_dtype dtype, double f, int64_t i);
/* a < b; false if either is NaN. */
bool coi_number_less(coi_number a, coi_number b);

/* Element i of a float32 or float64 tensor. */
static inline double
coi_ref_get(const co_value *x, int64_t i)
{
    return x->dtype == CO_FLOAT32 ? (double)((const float *)x->u.tensor.data)[i]
                                  : ((const double *)x->u.tensor.data)[i];
}
static inline void
coi_ref_put(co_value *x, int64_t i, double value)
{
    if (x->dtype == CO_FLOAT32)
        ((float *)x->u.tensor.data)[i] = (float)value;
    else
        ((double *)x->u.tensor.data)[i] = value;
}

/* Position in `operand` of the element that broadcasting pairs with element i of `out`. */
int64_t coi_ref_broadcast_index(const co_value *out, int64_t i, const co_value *operand);

co_code coi_ref_unary(coi_call *call);
co_code coi_ref_unary_of(coi_call *call, coi_unary_kind kind);
co_code coi_ref_gelu(coi_call *call);
co_code coi_ref_cast(coi_call *call);
co_code coi_ref_binary(coi_call *call);
co_code coi_ref_leaky_relu(coi_call *call);
co_code coi_ref_where(coi_call *call);

co_code coi_ref_reduce_sum(coi_call *call);
co_code coi_ref_reduce_mean(coi_call *call);
co_code coi_ref_reduce_max(coi_call *call);
co_code coi_ref_reduce_min(coi_call *call);
co_code coi_ref_reduce_prod(coi_call *call);
co_code coi_ref_argmax(coi_call *call);
co_code coi_ref_scan(coi_call *call);
co_code coi_ref_top_k(coi_call *call);

co_code coi_ref_broadcast_to(coi_call *call);
co_code coi_ref_transpose(coi_call *call);
co_code coi_ref_slice(coi_call *call);
co_code coi_ref_slice_grad(coi_call *call);
co_code coi_ref_strided(coi_call *call);
co_code coi_ref_strided_grad(coi_call *call);
co_code coi_ref_concat(coi_call *call);
co_code coi_ref_split(coi_call *call);
co_code coi_ref_gather(coi_call *call);
co_code coi_ref_scatter_add(coi_call *call);
co_code coi_ref_one_hot(coi_call *call);

co_code coi_ref_range(coi_call *call);
co_code coi_ref_fill(coi_call *call);
co_code coi_ref_zeros(coi_call *call);
co_code coi_ref_ones(coi_call *call);

#endif

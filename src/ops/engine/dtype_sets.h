/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of dtypes that operators accept, as TensorFlow lists them.
 */
#ifndef COI_OPS_ENGINE_DTYPE_SETS_H
#define COI_OPS_ENGINE_DTYPE_SETS_H

#include "value/value.h"

#define COI_SIGNED_INTEGERS                                                                        \
    (COI_DTYPE_BIT(CO_INT8) | COI_DTYPE_BIT(CO_INT16) | COI_DTYPE_BIT(CO_INT32) |                  \
     COI_DTYPE_BIT(CO_INT64))
#define COI_UNSIGNED_INTEGERS                                                                      \
    (COI_DTYPE_BIT(CO_UINT8) | COI_DTYPE_BIT(CO_UINT16) | COI_DTYPE_BIT(CO_UINT32) |               \
     COI_DTYPE_BIT(CO_UINT64))
#define COI_FLOATS                                                                                 \
    (COI_DTYPE_BIT(CO_FLOAT16) | COI_DTYPE_BIT(CO_BFLOAT16) | COI_DTYPE_BIT(CO_FLOAT32) |          \
     COI_DTYPE_BIT(CO_FLOAT64))
#define COI_NUMBERS (COI_SIGNED_INTEGERS | COI_UNSIGNED_INTEGERS | COI_FLOATS)

/* A dtype argument as attribute: a number that is no dtype stays none, however large. Rules check
 * it. */
static inline uint8_t
coi_dtype_attr(co_dtype dtype)
{
    return (unsigned)dtype < CO_NUM_DTYPES ? (uint8_t)dtype : UINT8_MAX;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cast and its reference kernel share, and conversion for other kernels.
 */
#ifndef COI_OPS_KERNELS_CAST_H
#define COI_OPS_KERNELS_CAST_H

#include "ops/engine/op.h"

typedef struct coi_cast_attrs {
    uint8_t dtype;
} coi_cast_attrs;

/* Convert n elements with the loops of an instruction set; not to bool. */
void coi_cast_elements(coi_isa isa, co_dtype from, const void *x, co_dtype to, void *out,
                       int64_t n);

co_code coi_cast_run(coi_call *call);

#endif

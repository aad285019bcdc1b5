/* SPDX-License-Identifier: Apache-2.0 */
/* Elements at a regular distance: what the operator, its gradient and their reference kernels
 * share. */
#ifndef COI_OPS_KERNELS_STRIDED_SLICE_H
#define COI_OPS_KERNELS_STRIDED_SLICE_H

#include "ops/engine/op.h"

/* Element i along dimension d of the part is element begin[d] + i strides[d] of the whole; strides
 * may be negative. */
typedef struct coi_strided_attrs {
    coi_ints begin, strides;
    coi_ints shape; /* of the result: the part, or for the gradient the whole */
} coi_strided_attrs;

co_code coi_strided_run(coi_call *call);
co_code coi_strided_grad_run(coi_call *call);

#endif

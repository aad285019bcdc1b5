/* SPDX-License-Identifier: Apache-2.0 */
/* What top_k shares with its reference kernel. */
#ifndef COI_OPS_KERNELS_TOP_K_H
#define COI_OPS_KERNELS_TOP_K_H

#include "ops/engine/op.h"

typedef struct coi_top_k_attrs {
    int64_t k;
    bool    sorted; /* the result always is */
} coi_top_k_attrs;

co_code coi_top_k_run(coi_call *call);

#endif

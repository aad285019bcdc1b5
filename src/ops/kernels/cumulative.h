/* SPDX-License-Identifier: Apache-2.0 */
/* What running sums and products share with their reference kernel. */
#ifndef COI_OPS_KERNELS_CUMULATIVE_H
#define COI_OPS_KERNELS_CUMULATIVE_H

#include "ops/engine/op.h"

/* The kind of an operator. */
typedef enum coi_scan_kind { COI_SCAN_SUM, COI_SCAN_PROD } coi_scan_kind;

typedef struct coi_scan_attrs {
    int64_t axis;
    bool    exclusive, reverse;
} coi_scan_attrs;

co_code coi_scan_run(coi_call *call);

#endif

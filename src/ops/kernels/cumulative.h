/* SPDX-License-Identifier: Apache-2.0 */
/* What running sums and products share with their reference kernel. */
#ifndef COI_OPS_KERNELS_CUMULATIVE_H
#define COI_OPS_KERNELS_CUMULATIVE_H

#include "ops/engine/op.h"

typedef struct coi_scan_attrs {
    int64_t axis;
    bool    exclusive, reverse;
} coi_scan_attrs;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What running sums and products share with their reference kernel. */
#ifndef COI_OPS_SCAN_H
#define COI_OPS_SCAN_H

#include "ops/op.h"

typedef struct coi_scan_attrs {
    int64_t axis;
    bool    exclusive, reverse;
} coi_scan_attrs;

#endif

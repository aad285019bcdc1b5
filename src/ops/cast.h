/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cast and its reference kernel share.
 */
#ifndef COI_OPS_CAST_H
#define COI_OPS_CAST_H

#include "ops/op.h"

typedef struct coi_cast_attrs {
    uint8_t dtype;
} coi_cast_attrs;

#endif

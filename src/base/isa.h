/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which instruction set the kernels use. Files under ops/kernels/simd are compiled once per set;
 * the set is selected once, when a runtime opens, from the processor and the setting `isa`.
 */
#ifndef COI_BASE_ISA_H
#define COI_BASE_ISA_H

#include "base/error.h"

typedef enum coi_isa { COI_ISA_BASE = 0, COI_ISA_V3 = 1, COI_ISA_V4 = 2, COI_NUM_ISAS } coi_isa;

/*
 * "auto" gives the highest that processor and build both have; one they lack is CO_VALUE_ERROR
 * naming both.
 */
co_code     coi_isa_choose(const char *text, coi_isa *out, co_error_info *err);
const char *coi_isa_name(coi_isa isa);

#endif

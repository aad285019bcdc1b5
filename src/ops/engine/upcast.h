/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Half-precision operands for kernels that know float32 and float64 (`upcasts` in the operator
 * table): inputs are upcast to float32, the kernel runs, its floating outputs are rounded once.
 * The copies come from the device's pool. It computes on data of tensors, and so is in
 * src/ops/kernels/upcast.c.
 */
#ifndef COI_OPS_ENGINE_UPCAST_H
#define COI_OPS_ENGINE_UPCAST_H

#include "ops/engine/op.h"

static inline bool
coi_is_half(const co_value *tensor)
{
    return tensor->dtype == CO_FLOAT16 || tensor->dtype == CO_BFLOAT16;
}

/* Run `kernel` on the call itself, or on a copy of it upcast to float32 where output 0 is float16
 * or bfloat16. */
co_code coi_run_upcast(coi_call *call, co_code (*kernel)(coi_call *call));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of backends other than the CPU's. A kernel is found by operator and backend; where there
 * is none, or it declines these operands, the host computes: the operands are copied to it, the
 * CPU's kernel runs there, the results are copied back. In host memory the CPU's kernel runs on the
 * tensors where they are. Every fallback is counted under the name of the operator
 * (co_fallbacks_visit).
 */
#ifndef COI_OPS_ENGINE_KERNEL_LOOKUP_H
#define COI_OPS_ENGINE_KERNEL_LOOKUP_H

#include "ops/engine/op.h"

/* Run a call whose operands and outputs are on a device of another backend than the CPU's.
 * `run_on_host` runs the kernel of the CPU. */
co_code coi_run_on_device(coi_call *call, co_code (*run_on_host)(coi_call *call));

#endif

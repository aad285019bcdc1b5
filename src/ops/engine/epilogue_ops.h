/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators with an epilogue, dense and conv2d_bias, share (nn/epilogue_ops.c). Input 2 is the
 * bias; the inputs before it and the attribute `activation` (co_activation) are those of the GEMM
 * or convolution.
 */
#ifndef COI_OPS_ENGINE_EPILOGUE_OPS_H
#define COI_OPS_ENGINE_EPILOGUE_OPS_H

#include "ops/engine/op.h"

/* The values of the attribute, in the order of co_activation; NULL behind the last. */
extern const char *const coi_activation_names[];

/* The rule: one bias for each column, and a valid activation. An unknown number of columns becomes
 * that of the bias. */
co_code coi_epilogue_rule(coi_call *call, int32_t activation, int64_t *columns);

/*
 * The gradient: through the activation, into the bias, and into the operands by `product`, the
 * gradient of the GEMM or convolution. `bare` are the attributes of the same operator without an
 * activation.
 */
co_code coi_epilogue_grad(coi_grad *grad, int32_t activation, const void *bare,
                          co_code (*product)(coi_grad *grad));

/*
 * The public calls: the operator with its attributes; or, where a tape is open and the gradient of
 * the activation wants its operand, the operator with `bare` attributes and then the activation, so
 * that the operand is kept. Not of halves, which are rounded once.
 */
co_value *coi_apply_epilogue(co_context *ctx, const coi_op *op, co_value *const given[3],
                             const void *attrs, const void *bare, int32_t activation);

#endif

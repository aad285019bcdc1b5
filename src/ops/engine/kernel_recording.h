/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording of kernels: whoever records is shown every kernel that a context starts, and how values
 * that no kernel made became operands. So a list of kernels that ran can be run again, with other
 * data in tensors of the same types (src/function/plan_recording.c).
 *
 * What the host reads may decide which kernels follow, and effects are not in the list; the
 * recorder is told of both.
 */
#ifndef COI_OPS_ENGINE_KERNEL_RECORDING_H
#define COI_OPS_ENGINE_KERNEL_RECORDING_H

#include "ops/engine/op.h"

typedef struct coi_kernel_recorder coi_kernel_recorder;
struct coi_kernel_recorder {
    /* A kernel of the CPU ran; or a view was made, which has none. */
    void (*kernel)(coi_kernel_recorder *recorder, const coi_call *call);
    /* `tensor` is an operand that shows the data of `given`: a tensor, or a variable. */
    void (*operand)(coi_kernel_recorder *recorder, co_value *given, co_value *tensor);
    /* The host made a tensor of numbers of its own. */
    void (*constant)(coi_kernel_recorder *recorder, co_value *tensor);
    /* The host reads the elements of a tensor. */
    void (*host_read)(coi_kernel_recorder *recorder, const co_value *tensor);
    /* Something else happens: `what` names it. */
    void (*other)(coi_kernel_recorder *recorder, const char *what);
};

static inline bool
coi_records_kernels(const co_context *ctx)
{
    return (ctx->special & COI_SPECIAL_RECORD) != 0;
}

static inline void
coi_note_operand(co_context *ctx, co_value *given, co_value *tensor)
{
    if (coi_records_kernels(ctx) && tensor != NULL)
        ctx->kernel_recorder->operand(ctx->kernel_recorder, given, tensor);
}

#endif

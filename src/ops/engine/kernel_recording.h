/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording of kernels: whoever records is shown every kernel that a context would start, and how
 * values that no kernel made became operands. So the list of kernels of some calls is known, and
 * can be run with any data in tensors of the same types (src/function/plan_recording.c).
 *
 * The kernels are not run: their results are meta tensors. The exception are those that the
 * recorder wants to be computed, because their results are the same in every run.
 *
 * What the host reads may decide which kernels follow, and effects are not in the list. The
 * recorder is told of both, and may end the recording by an error in the context.
 */
#ifndef COI_OPS_ENGINE_KERNEL_RECORDING_H
#define COI_OPS_ENGINE_KERNEL_RECORDING_H

#include "ops/engine/op.h"

typedef struct coi_kernel_recorder coi_kernel_recorder;
struct coi_kernel_recorder {
    /* Whether a kernel that will have these results is to be run. */
    bool (*is_computed)(coi_kernel_recorder *recorder, const coi_call *call, const coi_out *outs);
    /* A kernel of the CPU: it ran, or its results are meta tensors; or a view, which has none. */
    void (*kernel)(coi_kernel_recorder *recorder, const coi_call *call);
    /* `tensor` is an operand that shows the data of `given`: a tensor, or a variable. */
    void (*operand)(coi_kernel_recorder *recorder, co_value *given, co_value *tensor);
    /* `tensor` is what a plain variable holds: this one, or, after calls that are not made while
     * kernels are recorded, one that stands for what the variable will hold then. Takes over the
     * reference and gives one; NULL with an error. */
    co_value *(*read)(coi_kernel_recorder *recorder, const co_value *variable, co_value *tensor);
    /* The host made a tensor of numbers of its own. */
    void (*constant)(coi_kernel_recorder *recorder, co_value *tensor);
    /* The host wants to read the elements of a tensor; not with an error. */
    bool (*host_read)(coi_kernel_recorder *recorder, const co_value *tensor);
    /* Something else is about to happen: `what` names it. Always an error. */
    co_code (*other)(coi_kernel_recorder *recorder, const char *what);
};

static inline bool
coi_records_kernels(const co_context *ctx)
{
    return (ctx->special & COI_SPECIAL_RECORD) != 0;
}

/* For what cannot be recorded: the recording ends with an error. CO_OK without one. */
static inline co_code
coi_end_recording(co_context *ctx, const char *what)
{
    return coi_records_kernels(ctx) ? ctx->kernel_recorder->other(ctx->kernel_recorder, what)
                                    : CO_OK;
}

static inline co_value *
coi_recorded_read(co_context *ctx, const co_value *variable, co_value *tensor)
{
    return ctx->kernel_recorder->read(ctx->kernel_recorder, variable, tensor);
}

static inline void
coi_note_operand(co_context *ctx, co_value *given, co_value *tensor)
{
    if (coi_records_kernels(ctx) && tensor != NULL)
        ctx->kernel_recorder->operand(ctx->kernel_recorder, given, tensor);
}

#endif

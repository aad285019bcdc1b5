/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution by oneDNN, float32, one group. Primitives are kept in the runtime by shape; oneDNN
 * runs on the thread that calls it, and each of our workers takes chunks of the batch.
 */
#ifndef COI_OPS_KERNELS_ONEDNN_ONEDNN_H
#define COI_OPS_KERNELS_ONEDNN_ONEDNN_H

#include "ops/kernels/conv2d.h"

/*
 * Compute with oneDNN, or leave *done false where that is not for it: an instruction set that
 * oneDNN would not keep to, or a shape for which it has nothing but a reference kernel. Whether it
 * is worth it is for ops/kernels/kernel_selection.h to say. Only the forward convolution has an
 * epilogue.
 */
co_code coi_onednn_conv2d(coi_call *call, coi_conv2d_kind kind, const coi_conv2d *g, const void *a,
                          const void *b, void *out, const coi_epilogue *epilogue, bool *done);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel selection: functions of shape, dtype and instruction set. The limits in kernel_selection.c
 * are constants; nothing is measured while a program runs. `cohort-bench choose` times the kernels
 * on both sides of each limit. How much work goes to another
 * thread is in parallel.h; how it is cut inside a kernel is the kernel's business.
 */
#ifndef COI_OPS_KERNELS_KERNEL_SELECTION_H
#define COI_OPS_KERNELS_KERNEL_SELECTION_H

#include "ops/kernels/conv2d.h"
#include "ops/kernels/gemm.h"

/* A convolution by oneDNN, where that is built in and has an optimised kernel, or by im2col and
 * GEMM? */
bool coi_select_onednn(const coi_runtime *runtime, coi_conv2d_kind kind, co_dtype dtype,
                       const coi_conv2d *g);
/* The gradients of a pooled layer in one pass? */
bool coi_select_pooled_grad(coi_isa isa, co_dtype dtype, const coi_conv2d *g);
/* Transposed im2col, with patches as columns? */
bool coi_select_transposed(coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g);
/*
 * How these kernels compute a GEMM, if `asked` leaves that to the shape: whether C is computed
 * transposed, with vectors along m, and which operands are packed into panels.
 */
bool coi_select_transposed_gemm(const coi_gemm_kernels *kernels, coi_packing asked,
                                const coi_gemm *g);
void coi_select_packing(const coi_gemm_kernels *kernels, coi_packing asked, const coi_gemm *g,
                        bool *pack_a, bool *pack_b);
/* Whether one tile has all rows of C, so that it packs the panels of B on the fly. */
bool coi_select_on_the_fly_packing(const coi_gemm_kernels *kernels, const coi_gemm *g);
/* The largest extents of a tile of C. One chunk computes one tile. */
void coi_select_tile(const coi_gemm_kernels *kernels, const coi_gemm *g, bool on_the_fly,
                     int64_t *m, int64_t *n);

#endif

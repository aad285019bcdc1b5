/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernel serves a call: functions of shape, dtype and instruction set, by the limits in choice.c and here, which are checked in; nothing
 * is measured while a program runs. `cohort-bench choose` times who could convolve on both sides of each limit; the limits of
 * packing come from `cohort-bench matmul`, tried one by one. How work is cut inside a kernel is the kernel's business.
 */
#ifndef COI_OPS_CHOICE_H
#define COI_OPS_CHOICE_H

#include "ops/conv2d.h"
#include "ops/gemm.h"

/* A convolution by oneDNN, where that is built in and has an optimised kernel, or by products of patches? */
bool coi_choose_onednn(const coi_runtime *runtime, coi_conv2d_kind kind, co_dtype dtype,
                       const coi_conv2d *g);
/* Patches as columns? */
bool coi_choose_turned(coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g);
/* Which operands of a product are copied into panels of the micro-kernel, whose tile has nr columns. */
void coi_choose_packing(int nr, const coi_gemm *g, bool *pack_a, bool *pack_b);

/* Multiply-adds of a product from which on it may take a second thread, a million operations, and from which on one of a batch is worth
 * cutting. */
#define COI_CHOICE_TEAM_WORK ((int64_t)1 << 19)
#define COI_CHOICE_CUT_WORK  ((int64_t)1 << 22)

#endif

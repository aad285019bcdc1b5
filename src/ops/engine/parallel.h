/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much work makes a chunk for the device's workers; what is less stays on the caller's thread.
 * These are limits of shape and dtype alone, the same for every instruction set: where a sum is cut
 * its bits follow from them, so they are part of what results are. Changing one changes results (of
 * reductions, layer norm and filter gradients) in their last bits, between versions of the library.
 * A chunk takes some 10 to 50 microseconds, several times what waking a worker does. `cohort-bench
 * choose` (choose_team_*) times work just above each limit with one thread and with two: where two
 * lose, the limit is too low.
 */
#ifndef COI_OPS_ENGINE_PARALLEL_H
#define COI_OPS_ENGINE_PARALLEL_H

#include <stdint.h>

/* Elements: element-wise operators, copies, reductions, optimizers. */
#define COI_PARALLEL_ELEMENTS 65536
/* Elements of rows, each of which takes an exponential or several passes: softmax, cross entropy,
 * layer norm. */
#define COI_PARALLEL_ROWS 16384
/* Elements that windows of max pooling read. */
#define COI_PARALLEL_POOLED ((int64_t)1 << 15)
/* Multiply-adds from which on a GEMM, or a head of attention, may take a second thread (a million
 * operations), and those from which on one GEMM of a batch is cut by itself. */
#define COI_PARALLEL_GEMM  ((int64_t)1 << 19)
#define COI_PARALLEL_BATCH ((int64_t)1 << 22)
/* Multiply-adds of the images of a convolution. A partial gradient of a filter costs as much as the
 * filter is large, so the gradient of a filter has larger chunks. */
#define COI_PARALLEL_IMAGES ((int64_t)1 << 21)
#define COI_PARALLEL_FILTER ((int64_t)1 << 24)

#endif

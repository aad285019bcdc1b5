/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much work makes a chunk for the device's workers; what is less stays on the caller's thread.
 * These are limits of shape and dtype alone, the same for every instruction set: where a sum is cut
 * its bits follow from them, so they are part of what results are. Changing one changes results (of
 * reductions, layer norm and filter gradients) in their last bits, between versions of the library.
 * A chunk takes some 10 to 50 microseconds, several times what waking a worker does. `cohort-bench
 * choose` (choose_team_*) times work just above each limit with two threads beside one: who loses
 * there has a limit that is too low.
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
/* Multiply-adds of a product from which on it may take a second thread, a million operations; those
 * of a head of attention; and those from which on one product of a batch is worth cutting by
 * itself. */
#define COI_PARALLEL_GEMM  ((int64_t)1 << 19)
#define COI_PARALLEL_BATCH ((int64_t)1 << 22)
/* Multiply-adds of the images of a convolution. A partial gradient of a filter costs as much as the
 * filter is large: of large ones there are fewer. */
#define COI_PARALLEL_IMAGES ((int64_t)1 << 21)
#define COI_PARALLEL_FILTER ((int64_t)1 << 24)

#endif

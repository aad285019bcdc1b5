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

/*
 * Workers that are awake can be handed far less (coi_team_run_for): about a microsecond. Work that
 * is cut so finely has the same bits however it is cut: element by element, row by row, tile by
 * tile. The threads of a device take the same parts of such work, the first the first part, so that
 * an operator finds in its cache what the one before it made.
 */
#define COI_SHARED_ELEMENTS 4096               /* element-wise operators */
#define COI_SHARED_ROWS     512                /* elements of rows */
#define COI_SHARED_TILES    ((int64_t)1 << 16) /* multiply-adds of the tiles of a GEMM together */
#define COI_SHARED_EXTENT   128                /* of m, n and k: the rows of a batch, mostly */
/* What a thread does in a nanosecond, roughly, for the team to know how long a job takes. */
#define COI_ELEMENTS_PER_NS 4
#define COI_PRODUCTS_PER_NS 32

/* Elements: element-wise operators, copies, reductions, optimizers. */
#define COI_PARALLEL_ELEMENTS 65536
/* Elements of rows, each of which takes an exponential or several passes: softmax, cross entropy,
 * layer norm. */
#define COI_PARALLEL_ROWS 16384
/* Elements that windows of max pooling read. */
#define COI_PARALLEL_POOLED ((int64_t)1 << 15)
/* Multiply-adds from which on a GEMM of a batch, or a head of attention, may take a second thread
 * (a million operations), and those from which on one GEMM of a batch is cut by itself. */
#define COI_PARALLEL_GEMM  ((int64_t)1 << 19)
#define COI_PARALLEL_BATCH ((int64_t)1 << 22)
/* Multiply-adds of the images of a convolution. A partial gradient of a filter costs as much as the
 * filter is large, so the gradient of a filter has larger chunks. */
#define COI_PARALLEL_IMAGES ((int64_t)1 << 21)
#define COI_PARALLEL_FILTER ((int64_t)1 << 24)

/*
 * The chunks of n units that are shared, in steps of `step` units and of at least `least` each: 4,
 * 2 or 1.
 */
static inline int64_t
coi_share(int64_t n, int64_t step, int64_t least, int64_t *per_chunk)
{
    int64_t parts = n >= 4 * least ? 4 : 2;

    if (n < 2 * least) {
        *per_chunk = n;
        return 1;
    }
    *per_chunk = ((n + parts - 1) / parts + step - 1) / step * step;
    return (n + *per_chunk - 1) / *per_chunk;
}

/* Elements of element-wise work; many of them are cut as by coi_num_chunks. */
static inline int64_t
coi_share_elements(int64_t n, int64_t *per_chunk)
{
    if (n <= 4 * COI_PARALLEL_ELEMENTS)
        return coi_share(n, 64, COI_SHARED_ELEMENTS, per_chunk);
    *per_chunk = COI_PARALLEL_ELEMENTS;
    return (n + COI_PARALLEL_ELEMENTS - 1) / COI_PARALLEL_ELEMENTS;
}

#endif

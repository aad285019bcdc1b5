/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused backward of a convolutional layer and its max pooling: the gradients of filter and bias
 * from that of the pooled result, in one pass. The gradient of 2 x 2 max pooling has the size of
 * the layer, and three of four elements are zeros; that tensor is never created.
 */
#ifndef COI_OPS_KERNELS_CONV2D_POOLED_GRAD_H
#define COI_OPS_KERNELS_CONV2D_POOLED_GRAD_H

#include "ops/kernels/conv2d.h"
#include "ops/kernels/pool2d.h"

/* Elements of the filter whose sums are kept in registers, its taps: runs of neighbours. */
enum { COI_POOLED_RUN = 3, COI_POOLED_RUNS = 3, COI_POOLED_TAPS = 9 };

#define COI_POOLED_LANES 16
#define COI_POOLED_MOST  12 /* runs of a filter */

/* One image. */
typedef struct coi_pooled {
    const float   *x;                /* with its padding */
    int64_t        down, across;     /* in x: to the output pixel below, and to the next one */
    const float   *y, *pooled, *g;   /* the layer's result, its maxima, the gradient of these */
    int64_t        rows, columns;    /* of the maxima */
    int64_t        channels;         /* a multiple of COI_POOLED_LANES */
    const int64_t *runs;             /* where the runs of the filter are in x */
    int64_t        num_groups;       /* of runs; what fills up the last one has some place too */
    bool           is_relu;          /* what is not positive passes nothing on */
    float         *sums, *sums_bias; /* a row for each tap, and one more; added to */
    float         *flow;             /* what flows into each pixel of y, if not NULL */
} coi_pooled;

typedef void (*coi_pooled_fn)(const coi_pooled *p);

/* In a row of a filter without dilations. */
static inline int64_t
coi_pooled_runs(const coi_conv2d *g)
{
    return (g->kw * g->c + COI_POOLED_RUN - 1) / COI_POOLED_RUN;
}

/* The pooling: windows of 2 x 2. */
extern const coi_pool_attrs coi_pooled_halves;
/* The geometry of the layer and of its pooling, from a call that has the shapes of both. */
co_code coi_pooled_read(coi_call *call, coi_conv2d *conv, coi_pool *pool);

co_code coi_conv2d_pooled_grad_run(coi_call *call);
co_code coi_conv2d_pooled_grad_ref(coi_call *call);

#endif

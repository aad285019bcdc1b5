/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed tree, for ranks that see only parts of it: a rank reduces the subtrees that it hosts
 * whole, and finishes the tree above subtrees that other ranks reduced.
 */
#ifndef COI_COLLECTIVE_REDUCTION_TREE_H
#define COI_COLLECTIVE_REDUCTION_TREE_H

#include "collective/collective.h"

/* out = a op b; out may be a, and overlaps neither otherwise. */
typedef void (*coi_node_fn)(void *out, const void *a, const void *b, int64_t n);

enum { COI_WIDE_ELEMENTS = 64 }; /* what is upcast at once */

typedef struct coi_reduce_kernels {
    size_t      size;                     /* of an element; 0: the dtype cannot be reduced */
    coi_node_fn node[CO_REDUCE_PROD + 1]; /* by co_reduce_op */
    void (*mean)(void *data, int64_t n, int divisor); /* the division of MEAN; NULL for integers */
    /* 16-bit floats, whose node and mean are those of float32; NULL for the others. */
    void (*upcast)(float *restrict out, const uint16_t *restrict in);
    void (*narrow)(uint16_t *restrict out, const float *restrict in);
} coi_reduce_kernels;

extern const coi_reduce_kernels coi_reduce_table[CO_NUM_DTYPES];

/* The same for every dtype, with upcasting where needed. */
void coi_reduce_node(const coi_reduce_kernels *kernels, co_reduce_op op, void *out, const void *a,
                     const void *b, int64_t n);
void coi_reduce_mean(const coi_reduce_kernels *kernels, void *data, int64_t n, int divisor);

/* A subtree whose sum is at hand. */
typedef struct coi_subtree {
    int         lo, hi; /* replicas [lo, hi) */
    const void *data;   /* its elements, from the first one that is asked for */
} coi_subtree;

/* Nodes [lo, hi) can be cut into at most: two chains down a tree of 31 levels. */
#define COI_MAX_SUBTREES 62

/*
 * The maximal subtrees of the tree over num_replicas that lie in [lo, hi), from left to right; data
 * is left NULL. Returns how many. out may be NULL, for the number alone.
 */
int coi_tree_cut(int num_replicas, int lo, int hi, coi_subtree *out);
/*
 * The subtree of replicas [lo, hi) for elements [begin, end), without the final division of MEAN;
 * parts[0] is the part of replica `first`. out[0] is element `begin`; job->out is not used.
 */
void coi_reduce_parts(const coi_reduction *job, int first, int lo, int hi, int64_t begin,
                      int64_t end, void *out);
/*
 * The whole tree from subtrees, from left to right, that together make it up; with the division of
 * MEAN.
 */
void coi_reduce_top(const coi_reduction *job, const coi_subtree *subtrees, int64_t num_elements,
                    void *out);
/*
 * Elements [begin, end) of share `share` of num_shares: all shares are cut at cache lines from the
 * first element on.
 */
void coi_share_range(co_dtype dtype, int64_t num_elements, int share, int num_shares,
                     int64_t *begin, int64_t *end);
/* The division of MEAN for finished elements; nothing for integers and other operations. */
void coi_reduce_finish(const coi_reduction *job, void *data, int64_t num_elements);

#endif

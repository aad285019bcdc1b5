/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention need to know about a call. Queries are [items, num_queries, heads * depth], keys [items, num_keys,
 * heads * depth], values [items, num_keys, heads * width]: each head of each item is a problem of its own, whose matrices are
 * columns of the tensors, read where they lie.
 */
#ifndef COI_OPS_ATTENTION_H
#define COI_OPS_ATTENTION_H

#include "ops/op.h"

typedef struct coi_attention_attrs {
    int64_t heads;
    bool    causal;
    double  scale; /* 0: one over the root of depth */
} coi_attention_attrs;

typedef struct coi_attention_view {
    int64_t items, heads, num_queries, num_keys, depth, width;
    bool    causal;
    double  scale;
} coi_attention_view;

/* The view of a call whose inputs 0, 1 and 2 are queries, keys and values that were checked. */
void coi_attention_view_of(co_value *const *in, const coi_attention_attrs *attrs,
                           coi_attention_view *view);

/* Keys that rows of queries up to `end` (not included) may see. */
static inline int64_t
coi_attention_seen(const coi_attention_view *view, int64_t end)
{
    return view->causal && end < view->num_keys ? end : view->num_keys;
}

/* Forward (3 inputs) and back (4, of which the last is the gradient of the result): of float32 and float64 in attention_heads.c,
 * and the plain version. */
co_code coi_attention_run(coi_call *call);
co_code coi_ref_attention(coi_call *call);

#endif

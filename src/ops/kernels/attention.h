/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention need to know about a call. Queries are [items, num_queries, heads *
 * depth], keys [items, num_keys, heads * depth], values [items, num_keys, heads * width]: each head
 * of each item is a problem of its own. Its matrices are columns of the tensors, read in place.
 */
#ifndef COI_OPS_KERNELS_ATTENTION_H
#define COI_OPS_KERNELS_ATTENTION_H

#include "ops/engine/op.h"

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

/* Rows of probabilities, and of what is computed like them, are so far apart: in different lines of
 * a cache. */
static inline int64_t
coi_attention_row(const coi_attention_view *view)
{
    return (view->num_keys + 15) / 16 * 16 + 16;
}

/* Whether the gradient is given the probabilities: where they are no larger than queries, keys,
 * values and result. */
static inline bool
coi_attention_keeps(const coi_attention_view *view)
{
    return view->num_keys > 0 && view->num_keys <= 2 * (view->depth + view->width);
}

/* Whether there is nothing to compute. Dimensions of empty tensors may be of any size. */
static inline bool
coi_attention_is_empty(const coi_call *call)
{
    int64_t elements = 0;

    for (int i = 0; i < call->num_out; ++i)
        elements |= call->out[i]->u.tensor.num_elements;
    return elements == 0;
}

/* Keys that rows of queries up to `end` (not included) may see. */
static inline int64_t
coi_attention_seen(const coi_attention_view *view, int64_t end)
{
    return view->causal && end < view->num_keys ? end : view->num_keys;
}

/* Forward (3 inputs; a second result for the probabilities, if they are kept) and back (5: then the
 * gradient of the result and the probabilities, or nothing): of float32 and float64 in
 * drivers/attention_kernels.c, and the plain version. */
co_code coi_attention_run(coi_call *call);
co_code coi_ref_attention(coi_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators that copy elements without computing share: copies between strided and dense
 * layouts, for elements of any size, and strings.
 */
#ifndef COI_OPS_KERNELS_STRIDED_COPY_H
#define COI_OPS_KERNELS_STRIDED_COPY_H

#include "ops/kernels/strided_iterator.h"

/* Attributes of the family, for operators and their reference kernels. */
typedef struct coi_shape_attrs {
    coi_ints shape;
} coi_shape_attrs;
typedef struct coi_axis_attrs {
    int64_t axis;
} coi_axis_attrs;
typedef struct coi_perm_attrs {
    coi_ints perm; /* not given: reversed */
} coi_perm_attrs;
typedef struct coi_slice_attrs {
    coi_ints begin, size;
} coi_slice_attrs;
typedef struct coi_slice_grad_attrs {
    coi_ints begin, shape;
} coi_slice_grad_attrs;
typedef struct coi_split_attrs {
    int64_t  axis;
    coi_ints sizes; /* of the parts, in order */
} coi_split_attrs;

static inline size_t
coi_element_size(co_dtype dtype)
{
    return dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;
}

/* n copies of an element. */
void coi_fill_elements(void *out, int64_t n, const void *element, size_t size);
/* Copy the elements of operand 0 of the iterator from `src` to `dst`, which is dense. */
void coi_copy_to_dense(coi_call *call, const coi_strided_iterator *iter, void *dst, const void *src,
                       size_t size);
/* The reverse: `src` is dense, and operand 0 of the iterator gives the places in `dst`. */
void coi_copy_from_dense(coi_call *call, const coi_strided_iterator *iter, void *dst,
                         const void *src, size_t size);
/*
 * The last step of a kernel that copies elements: texts in output 0 still point into the inputs, so
 * the output is replaced by one that owns them. Nothing to do for other dtypes.
 */
co_code coi_own_texts(coi_call *call);

/* The kernels; the plain ones are in ops/kernels/ref/ref.h. broadcast_like has that of
 * broadcast_to. */
co_code coi_broadcast_to_run(coi_call *call);
co_code coi_transpose_run(coi_call *call);
co_code coi_slice_run(coi_call *call);
co_code coi_slice_grad_run(coi_call *call);
co_code coi_concat_run(coi_call *call);
co_code coi_split_run(coi_call *call);

#endif

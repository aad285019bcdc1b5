/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An iterator over tensors of different strides. The output is row-major without gaps; each operand
 * has a stride per dimension, 0 where it is broadcast. Dimensions that can be merged for all
 * operands become one, so that [2,3,4] + [4] has 6 rows of 4 and [8,8] + [8,8] as one row of 64.
 */
#ifndef COI_OPS_KERNELS_STRIDED_ITERATOR_H
#define COI_OPS_KERNELS_STRIDED_ITERATOR_H

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"

#define COI_STRIDED_OPERANDS 3

typedef struct coi_strided_iterator {
    int     num_operands;
    int     ndim; /* at least 1; the last dimension is the row */
    int64_t dims[CO_MAX_DIMS];
    int64_t strides[COI_STRIDED_OPERANDS][CO_MAX_DIMS]; /* in elements */
} coi_strided_iterator;

/* Operands broadcast to the shape of out. */
void coi_strided_broadcast(coi_strided_iterator *iter, const co_value *out,
                           co_value *const *operands, int num_operands);
/* Merge dimensions; for iterators whose dims and strides the caller has set. */
void coi_strided_merge(coi_strided_iterator *iter);

/* Rows of an iterator: all dimensions but the last. */
static inline int64_t
coi_strided_rows(const coi_strided_iterator *iter)
{
    int64_t rows = 1;

    for (int i = 0; i + 1 < iter->ndim; ++i)
        rows *= iter->dims[i];
    return rows;
}

/* Where each operand's row begins. */
typedef struct coi_strided_cursor {
    int64_t at[COI_STRIDED_OPERANDS]; /* in elements */
    int64_t index[CO_MAX_DIMS];
} coi_strided_cursor;

void coi_strided_seek(const coi_strided_iterator *iter, int64_t row, coi_strided_cursor *cursor);

/* To the next row; after the last one the cursor is at the first again. */
static inline void
coi_strided_next(const coi_strided_iterator *iter, coi_strided_cursor *cursor)
{
    for (int d = iter->ndim - 2; d >= 0; --d) {
        for (int k = 0; k < iter->num_operands; ++k)
            cursor->at[k] += iter->strides[k][d];
        if (++cursor->index[d] < iter->dims[d])
            return;
        for (int k = 0; k < iter->num_operands; ++k)
            cursor->at[k] -= iter->strides[k][d] * iter->dims[d];
        cursor->index[d] = 0;
    }
}

/* Number of chunks, and units in each, for `units` units of work of `unit_elements` elements: fixed
 * by the shape. */
static inline int64_t
coi_num_chunks(int64_t units, int64_t unit_elements, int64_t *units_per_chunk)
{
    int64_t per = COI_PARALLEL_ELEMENTS / (unit_elements > 0 ? unit_elements : 1);

    *units_per_chunk = per > 0 ? per : 1;
    if (units <= *units_per_chunk) {
        *units_per_chunk = units;
        return 1;
    }
    return (units + *units_per_chunk - 1) / *units_per_chunk;
}

#endif

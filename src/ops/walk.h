/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking over tensors of different strides. The output is row-major without gaps; each operand has
 * a stride per dimension, 0 where it is broadcast. Dimensions that all operands step through alike
 * become one, so that [2,3,4] + [4] is walked as 6 rows of 4 and [8,8] + [8,8] as one row of 64.
 */
#ifndef COI_OPS_WALK_H
#define COI_OPS_WALK_H

#include "ops/op.h"
#include "ops/parallel.h"

#define COI_WALK_OPERANDS 3

typedef struct coi_walk {
    int     num_operands;
    int     ndim; /* at least 1; the last dimension is the row */
    int64_t dims[CO_MAX_DIMS];
    int64_t strides[COI_WALK_OPERANDS][CO_MAX_DIMS]; /* in elements */
} coi_walk;

/* Operands broadcast to the shape of out. */
void coi_walk_broadcast(coi_walk *walk, const co_value *out, co_value *const *operands,
                        int num_operands);
/* Merge dimensions; for walks whose dims and strides the caller has set. */
void coi_walk_merge(coi_walk *walk);

/* Rows of a walk: all dimensions but the last. */
static inline int64_t
coi_walk_rows(const coi_walk *walk)
{
    int64_t rows = 1;

    for (int i = 0; i + 1 < walk->ndim; ++i)
        rows *= walk->dims[i];
    return rows;
}

/* Where each operand's row begins. */
typedef struct coi_cursor {
    int64_t at[COI_WALK_OPERANDS]; /* in elements */
    int64_t index[CO_MAX_DIMS];
} coi_cursor;

void coi_cursor_seek(const coi_walk *walk, int64_t row, coi_cursor *cursor);

/* To the next row; after the last one the cursor is at the first again. */
static inline void
coi_cursor_next(const coi_walk *walk, coi_cursor *cursor)
{
    for (int d = walk->ndim - 2; d >= 0; --d) {
        for (int k = 0; k < walk->num_operands; ++k)
            cursor->at[k] += walk->strides[k][d];
        if (++cursor->index[d] < walk->dims[d])
            return;
        for (int k = 0; k < walk->num_operands; ++k)
            cursor->at[k] -= walk->strides[k][d] * walk->dims[d];
        cursor->index[d] = 0;
    }
}

/* Number of chunks, and units in each, for `units` pieces of work of `unit_elements` elements:
 * fixed by the shape. */
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

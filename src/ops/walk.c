/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See walk.h.
 */
#include "ops/walk.h"

static bool
can_merge(const coi_walk *walk, int outer, int inner)
{
    for (int k = 0; k < walk->num_operands; ++k)
        if (walk->strides[k][outer] != walk->strides[k][inner] * walk->dims[inner])
            return false;
    return true;
}

static void
copy_dimension(coi_walk *walk, int from, int to)
{
    walk->dims[to] = walk->dims[from];
    for (int k = 0; k < walk->num_operands; ++k)
        walk->strides[k][to] = walk->strides[k][from];
}

void
coi_walk_merge(coi_walk *walk)
{
    int n = 0; /* dimensions kept so far */

    for (int d = 0; d < walk->ndim; ++d) {
        if (walk->dims[d] == 1)
            continue;
        if (n > 0 && can_merge(walk, n - 1, d)) {
            int64_t outer = walk->dims[n - 1];

            copy_dimension(walk, d, n - 1);
            walk->dims[n - 1] *= outer;
        } else {
            copy_dimension(walk, d, n++);
        }
    }
    if (n == 0) { /* a single element */
        walk->dims[0] = 1;
        for (int k = 0; k < walk->num_operands; ++k)
            walk->strides[k][0] = 1;
        n = 1;
    }
    walk->ndim = n;
}

void
coi_walk_broadcast(coi_walk *walk, const co_value *out, co_value *const *operands, int num_operands)
{
    walk->num_operands = num_operands;
    walk->ndim = out->ndim;
    for (int d = 0; d < out->ndim; ++d)
        walk->dims[d] = out->u.tensor.dims[d];
    for (int k = 0; k < num_operands; ++k) {
        const co_value *operand = operands[k];
        int             extra = out->ndim - operand->ndim;
        int64_t         stride = 1;

        for (int d = out->ndim - 1; d >= 0; --d) {
            int64_t dim = d >= extra ? operand->u.tensor.dims[d - extra] : 1;

            walk->strides[k][d] = dim == 1 ? 0 : stride;
            stride *= dim;
        }
    }
    coi_walk_merge(walk);
}

void
coi_cursor_seek(const coi_walk *walk, int64_t row, coi_cursor *cursor)
{
    for (int k = 0; k < walk->num_operands; ++k)
        cursor->at[k] = 0;
    for (int d = walk->ndim - 2; d >= 0; --d) {
        cursor->index[d] = row % walk->dims[d];
        row /= walk->dims[d];
        for (int k = 0; k < walk->num_operands; ++k)
            cursor->at[k] += cursor->index[d] * walk->strides[k][d];
    }
}

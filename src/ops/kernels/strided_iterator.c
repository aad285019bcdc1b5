/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See strided_iterator.h.
 */
#include "ops/kernels/strided_iterator.h"

static bool
can_merge(const coi_strided_iterator *iter, int outer, int inner)
{
    for (int k = 0; k < iter->num_operands; ++k)
        if (iter->strides[k][outer] != iter->strides[k][inner] * iter->dims[inner])
            return false;
    return true;
}

static void
copy_dimension(coi_strided_iterator *iter, int from, int to)
{
    iter->dims[to] = iter->dims[from];
    for (int k = 0; k < iter->num_operands; ++k)
        iter->strides[k][to] = iter->strides[k][from];
}

void
coi_strided_merge(coi_strided_iterator *iter)
{
    int n = 0; /* dimensions kept so far */

    for (int d = 0; d < iter->ndim; ++d) {
        if (iter->dims[d] == 1)
            continue;
        if (n > 0 && can_merge(iter, n - 1, d)) {
            int64_t outer = iter->dims[n - 1];

            copy_dimension(iter, d, n - 1);
            iter->dims[n - 1] *= outer;
        } else {
            copy_dimension(iter, d, n++);
        }
    }
    if (n == 0) { /* a single element */
        iter->dims[0] = 1;
        for (int k = 0; k < iter->num_operands; ++k)
            iter->strides[k][0] = 1;
        n = 1;
    }
    iter->ndim = n;
}

void
coi_strided_broadcast(coi_strided_iterator *iter, const co_value *out, co_value *const *operands,
                      int num_operands)
{
    iter->num_operands = num_operands;
    iter->ndim = out->ndim;
    for (int d = 0; d < out->ndim; ++d)
        iter->dims[d] = out->u.tensor.dims[d];
    for (int k = 0; k < num_operands; ++k) {
        const co_value *operand = operands[k];
        int             extra = out->ndim - operand->ndim;
        int64_t         stride = 1;

        for (int d = out->ndim - 1; d >= 0; --d) {
            int64_t dim = d >= extra ? operand->u.tensor.dims[d - extra] : 1;

            iter->strides[k][d] = dim == 1 ? 0 : stride;
            stride *= dim;
        }
    }
    coi_strided_merge(iter);
}

void
coi_strided_seek(const coi_strided_iterator *iter, int64_t row, coi_strided_cursor *cursor)
{
    for (int k = 0; k < iter->num_operands; ++k)
        cursor->at[k] = 0;
    for (int d = iter->ndim - 2; d >= 0; --d) {
        cursor->index[d] = row % iter->dims[d];
        row /= iter->dims[d];
        for (int k = 0; k < iter->num_operands; ++k)
            cursor->at[k] += cursor->index[d] * iter->strides[k][d];
    }
}

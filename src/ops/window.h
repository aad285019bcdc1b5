/* SPDX-License-Identifier: Apache-2.0 */
/* What convolution and pooling share: how often a window fits along one dimension. */
#ifndef COI_OPS_WINDOW_H
#define COI_OPS_WINDOW_H

#include "ops/op.h"

/* Extents, strides and paddings stay below this, so that no sum of them overflows. */
#define COI_WINDOW_LIMIT ((int64_t)1 << 31)

/* Output extent along one dimension. SAME makes it ceil(size / stride) and sets the padding that
 * this takes; the others use the padding they are given. */
static inline int64_t
coi_window_extent(int64_t size, int64_t window, int64_t stride, int32_t padding, int64_t *before,
                  int64_t *after)
{
    int64_t out, total;

    if (padding == CO_PADDING_SAME) {
        out = (size + stride - 1) / stride;
        total = (out - 1) * stride + window - size;
        total = out > 0 && total > 0 ? total : 0;
        *before = total / 2;
        *after = total - total / 2;
        return out;
    }
    total = size + *before + *after - window;
    return total < 0 ? 0 : total / stride + 1;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What convolution and pooling share: how often a window fits along one dimension. */
#ifndef COI_OPS_KERNELS_WINDOW2D_H
#define COI_OPS_KERNELS_WINDOW2D_H

#include "ops/engine/op.h"

/* Extents, strides and paddings stay below this, so that no sum of them overflows. */
#define COI_WINDOW_LIMIT ((int64_t)1 << 31)

/* Positive numbers for height and width: as two of them, one for both, or four with 1 around them;
 * 1, 1 when they are not given. */
co_code coi_read_pair(coi_call *call, const char *name, const coi_ints *ints, int64_t *h,
                      int64_t *w);

/* Output extent along one dimension of known size. SAME makes it ceil(size / stride) and sets the
 * padding that this takes; the others use the padding they are given. Negative: the window does not
 * fit. */
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
    return (size + *before + *after - window + stride) / stride;
}

/* A window that fits nowhere in an image that is there gives an empty result, as in TensorFlow.
 * That is seldom meant (a mean over it is NaN), so a line of the log says so. */
void coi_warn_no_window(const coi_call *call, int64_t kh, int64_t kw, int64_t h, int64_t w);
/* Whether the extent can be computed: -1 stands for a size or window that is unknown. */
static inline bool
coi_window_is_known(int64_t size, int64_t window, int32_t padding)
{
    return size >= 0 && (window >= 0 || padding == CO_PADDING_SAME);
}

/* A window may be larger than what it slides over, by less than two strides: then there is no
 * result, or an empty one. TensorFlow counts so. The extents of the result, of the window, and of
 * what it slides over with its padding. */
co_code coi_check_fit(coi_call *call, int64_t oh, int64_t ow, int64_t kh, int64_t kw, int64_t h,
                      int64_t w);

#endif

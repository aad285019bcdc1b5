/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling: its geometry, and for max pooling kernels for the result, its gradient, and the gradient
 * of that. The gradient goes to the first of equal elements of a window, in row-major order. A NaN
 * in a window is its largest element.
 */
#ifndef COI_OPS_KERNELS_POOL2D_H
#define COI_OPS_KERNELS_POOL2D_H

#include "ops/engine/op.h"

typedef struct coi_pool_attrs {
    coi_ints ksize, strides; /* height, width */
    int32_t  padding;        /* co_padding: VALID or SAME */
} coi_pool_attrs;

/* The gradient of average pooling has the shape of x too. */
typedef struct coi_avg_grad_attrs {
    coi_ints ksize, strides;
    int32_t  padding;
    coi_ints shape;
} coi_avg_grad_attrs;

/* The kind of an operator. */
typedef enum coi_pool_kind { COI_POOL = 0, COI_POOL_GRAD, COI_POOL_GRAD_GRAD } coi_pool_kind;

typedef struct coi_pool {
    int64_t n, h, w, c, oh, ow;
    int64_t kh, kw, sh, sw, top, left;
} coi_pool;

/* The part of a window that lies in the image: rows [y0, y1), columns [x0, x1). */
typedef struct coi_pool_window {
    int64_t y0, y1, x0, x1;
} coi_pool_window;
static inline coi_pool_window
coi_pool_window_at(const coi_pool *p, int64_t oy, int64_t ox)
{
    int64_t         y = oy * p->sh - p->top, x = ox * p->sw - p->left;
    coi_pool_window w = { y < 0 ? 0 : y, y + p->kh > p->h ? p->h : y + p->kh, x < 0 ? 0 : x,
                          x + p->kw > p->w ? p->w : x + p->kw };

    return w;
}

typedef struct coi_pool_kernels {
    /* Output rows [first, last), counted over all images. */
    void (*forward)(const coi_pool *p, const void *x, void *y, int64_t first, int64_t last);
    /* Images [first, last): g goes to where x has its maximum y. */
    void (*grad)(const coi_pool *p, const void *x, const void *y, const void *g, void *dx,
                 int64_t first, int64_t last);
    /* Output rows [first, last): u from where x has its maximum y. */
    void (*grad_grad)(const coi_pool *p, const void *x, const void *y, const void *u, void *out,
                      int64_t first, int64_t last);
} coi_pool_kernels;

/* The geometry for x of this shape; CO_INVALID_ARGUMENT if attributes and shape do not fit. */
co_code coi_pool_geometry(coi_call *call, const coi_pool_attrs *attrs, const int64_t *dims,
                          int ndim, coi_pool *p);
/* The same for x that is input 0, with the attributes of the call. */
co_code coi_pool_read(coi_call *call, coi_pool *p);
/* Input i must have this shape. */
co_code coi_pool_check_shape(coi_call *call, int i, const int64_t *dims);
/* Plain loops, float32 or float64, behind the same functions. */
const coi_pool_kernels *coi_ref_pool_kernels(co_dtype dtype);
/* Output rows [first, last) of whole numbers: the largest of each window. */
void coi_ref_max_pool_whole(const coi_pool *p, co_dtype dtype, const void *x, void *y,
                            int64_t first, int64_t last);
/* Means of windows, and their gradient, of float32 or float64 by definition. */
void coi_ref_avg_pool(const coi_pool *p, co_dtype dtype, const void *from, void *to, bool is_grad);

/* The geometry of avg_pool2d_grad. */
co_code coi_avg_grad_read(coi_call *call, coi_pool *p);

/* The kernels of max and average pooling and their gradients. */
co_code coi_max_pool_run(coi_call *call);
co_code coi_max_pool_ref(coi_call *call);
co_code coi_avg_pool_run(coi_call *call);
co_code coi_avg_pool_ref(coi_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the shapes and attributes of a call to the geometry of its pooling. Rules and kernels read
 * it.
 */
#include "ops/kernels/pool2d.h"

#include "ops/engine/type_rules.h"
#include "ops/kernels/window2d.h"

co_code
coi_pool_geometry(coi_call *call, const coi_pool_attrs *attrs, const int64_t *dims, int ndim,
                  coi_pool *p)
{
    static const int64_t unknown_image[4] = { COI_UNKNOWN, COI_UNKNOWN, COI_UNKNOWN, COI_UNKNOWN };
    char                 text[COI_SHAPE_TEXT];
    int64_t              bottom = 0, right = 0;
    co_code              rc;

    if (ndim < 0)
        return coi_pool_geometry(call, attrs, unknown_image, 4, p);
    if (ndim != 4)
        return coi_invalid(call,
                           "x has shape %s; it must have 4 dimensions: n, height, width, channels",
                           coi_shape_text(dims, ndim, text));
    if (attrs->padding != CO_PADDING_VALID && attrs->padding != CO_PADDING_SAME)
        return coi_invalid(call, "padding is %d; it must be VALID or SAME", (int)attrs->padding);
    if (attrs->ksize.n < 0 || attrs->strides.n < 0)
        return coi_invalid(call, "ksize and strides must be given");
    *p = (coi_pool){ .n = dims[0], .h = dims[1], .w = dims[2], .c = dims[3] };
    rc = coi_read_pair(call, "ksize", &attrs->ksize, &p->kh, &p->kw);
    if (rc == CO_OK)
        rc = coi_read_pair(call, "strides", &attrs->strides, &p->sh, &p->sw);
    if (rc != CO_OK)
        return rc;
    if (dims[1] >= COI_WINDOW_LIMIT || dims[2] >= COI_WINDOW_LIMIT)
        return coi_invalid(call, "x has shape %s; height and width must be below 2^31",
                           coi_shape_text(dims, ndim, text));
    if (p->h >= 0)
        p->oh = coi_window_extent(p->h, p->kh, p->sh, attrs->padding, &p->top, &bottom);
    if (p->w >= 0)
        p->ow = coi_window_extent(p->w, p->kw, p->sw, attrs->padding, &p->left, &right);
    rc = coi_check_fit(call, p->oh, p->ow, p->kh, p->kw, p->h, p->w);
    p->oh = p->h >= 0 ? p->oh : COI_UNKNOWN;
    p->ow = p->w >= 0 ? p->ow : COI_UNKNOWN;
    return rc;
}

co_code
coi_pool_read(coi_call *call, coi_pool *p)
{
    const co_value *x = call->in[0];

    return coi_pool_geometry(call, call->attrs, x->u.tensor.dims, x->ndim, p);
}

co_code
coi_pool_check_shape(coi_call *call, int i, const int64_t *dims)
{
    const co_value *x = call->in[i];
    int64_t         room[CO_MAX_DIMS];
    const int64_t  *own = coi_dims_of_rank(x, 4, room);
    bool            fits = own != NULL;
    char            got[COI_SHAPE_TEXT], want[COI_SHAPE_TEXT];

    for (int d = 0; fits && d < 4; ++d)
        fits = coi_dims_fit(own[d], dims[d]);
    if (fits)
        return CO_OK;
    return coi_invalid(call, "%s has shape %s; it must be %s", call->op->inputs[i],
                       coi_shape_text(x->u.tensor.dims, x->ndim, got),
                       coi_shape_text(dims, 4, want));
}

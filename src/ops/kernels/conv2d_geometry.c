/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the shapes and attributes of a call to the geometry of its convolution. Rules and kernels
 * read it.
 */
#include "ops/kernels/conv2d.h"

#include "ops/engine/type_rules.h"
#include "ops/kernels/window2d.h"

static co_code
read_explicit_paddings(coi_call *call, const coi_ints *ints, coi_conv2d *g)
{
    const int64_t *at = ints->at;

    if (ints->n < 0)
        return coi_invalid(call,
                           "EXPLICIT padding needs explicit_paddings: top, bottom, left, right");
    if (ints->n != 4 && ints->n != 8)
        return coi_invalid(
            call,
            "explicit_paddings has %d number%s; EXPLICIT padding needs 4 (top, bottom, left, "
            "right) or 4 pairs (N, H, W, C)",
            (int)ints->n, COI_S(ints->n));
    for (int i = 0; i < ints->n; ++i)
        if (at[i] < 0 || at[i] >= COI_WINDOW_LIMIT)
            return coi_invalid(call,
                               "explicit_paddings holds %lld; paddings are between 0 and 2^31",
                               (long long)at[i]);
    if (ints->n == 8) {
        if (at[0] != 0 || at[1] != 0 || at[6] != 0 || at[7] != 0)
            return coi_invalid(
                call,
                "explicit_paddings pads the batch or the channels by %lld, %lld, %lld, "
                "%lld; these must be 0",
                (long long)at[0], (long long)at[1], (long long)at[6], (long long)at[7]);
        at += 2;
    }
    g->top = at[0];
    g->bottom = at[1];
    g->left = at[2];
    g->right = at[3];
    return CO_OK;
}

/* Whether the channels are those of groups; what is unknown fits. */
static bool
channels_fit(const coi_conv2d *g)
{
    if (g->c < 0 || g->ic < 0)
        return true;
    return g->c % g->ic == 0 && (g->c == 0 || g->oc < 0 || g->oc % coi_conv2d_groups(g) == 0);
}

/* The extents of the output; COI_UNKNOWN where those of input or filter are. */
static co_code
read_extents(coi_call *call, coi_conv2d *g)
{
    int32_t padding = ((const coi_conv2d_attrs *)call->attrs)->padding;
    int64_t reach_h = g->kh < 0 ? COI_UNKNOWN : (g->kh - 1) * g->dh + 1; /* with dilations */
    int64_t reach_w = g->kw < 0 ? COI_UNKNOWN : (g->kw - 1) * g->dw + 1;
    bool    knows_h = coi_window_is_known(g->h, reach_h, padding);
    bool    knows_w = coi_window_is_known(g->w, reach_w, padding);
    co_code rc;

    if (knows_h)
        g->oh = coi_window_extent(g->h, reach_h, g->sh, padding, &g->top, &g->bottom);
    if (knows_w)
        g->ow = coi_window_extent(g->w, reach_w, g->sw, padding, &g->left, &g->right);
    rc = coi_check_fit(call, g->oh, g->ow, reach_h, reach_w, g->h + g->top + g->bottom,
                       g->w + g->left + g->right);
    g->oh = knows_h ? g->oh : COI_UNKNOWN;
    g->ow = knows_w ? g->ow : COI_UNKNOWN;
    return rc;
}

co_code
coi_conv2d_geometry(coi_call *call, const int64_t *x, const int64_t *w, coi_conv2d *g)
{
    const coi_conv2d_attrs *attrs = call->attrs;
    co_code                 rc;

    if (attrs->padding < CO_PADDING_VALID || attrs->padding > CO_PADDING_EXPLICIT)
        return coi_invalid(call, "padding is %d; it must be VALID, SAME or EXPLICIT",
                           (int)attrs->padding);
    *g = (coi_conv2d){
        .n = x[0], .h = x[1], .w = x[2], .c = x[3], .kh = w[0], .kw = w[1], .ic = w[2], .oc = w[3]
    };
    rc = coi_read_pair(call, "strides", &attrs->strides, &g->sh, &g->sw);
    if (rc == CO_OK)
        rc = coi_read_pair(call, "dilations", &attrs->dilations, &g->dh, &g->dw);
    if (rc == CO_OK && attrs->padding == CO_PADDING_EXPLICIT)
        rc = read_explicit_paddings(call, &attrs->explicit_paddings, g);
    if (rc != CO_OK)
        return rc;
    if (g->kh == 0 || g->kw == 0 || g->ic == 0)
        return coi_invalid(
            call, "the filter is %lld x %lld with %lld input channels; all must be at least 1",
            (long long)g->kh, (long long)g->kw, (long long)g->ic);
    if (g->h >= COI_WINDOW_LIMIT || g->w >= COI_WINDOW_LIMIT || g->kh >= COI_WINDOW_LIMIT ||
        g->kw >= COI_WINDOW_LIMIT)
        return coi_invalid(call, "heights and widths must be below 2^31");
    if (!channels_fit(g))
        return coi_invalid(
            call,
            "the input has %lld channel%s, the filter %lld in and %lld out; the input's must be a "
            "multiple of the filter's, and the filter's output a multiple of their ratio",
            (long long)g->c, COI_S(g->c), (long long)g->ic, (long long)g->oc);
    if (g->c == 0)
        return coi_invalid(call, "the input has no channels; it must have at least 1");
    return read_extents(call, g);
}

/* The four dimensions of an input; NULL with an error. */
static const int64_t *
four_dims(coi_call *call, int i, int64_t room[CO_MAX_DIMS])
{
    const co_value *x = call->in[i];
    const int64_t  *dims = coi_dims_of_rank(x, 4, room);
    char            text[COI_SHAPE_TEXT];

    if (dims == NULL)
        coi_invalid(call, "%s has shape %s; it must have 4 dimensions", call->op->inputs[i],
                    coi_shape_text(x->u.tensor.dims, x->ndim, text));
    return dims;
}

co_code
coi_conv2d_read_named(coi_call *call, coi_conv2d_kind kind, const char *sizes, const char *result,
                      coi_conv2d *g)
{
    const coi_conv2d_attrs *attrs = call->attrs;
    int64_t                 room_a[CO_MAX_DIMS], room_b[CO_MAX_DIMS];
    const int64_t          *a = four_dims(call, 0, room_a);
    const int64_t          *b = a != NULL ? four_dims(call, 1, room_b) : NULL;
    char                    got[COI_SHAPE_TEXT], given[COI_SHAPE_TEXT];
    co_code                 rc;

    if (b == NULL)
        return call->ctx->error.code;
    if (kind == COI_CONV2D)
        return coi_conv2d_geometry(call, a, b, g);
    if (attrs->sizes.n != 4)
        return coi_invalid(call, "%s has %d number%s; give the 4 dimensions of the result", sizes,
                           (int)attrs->sizes.n, COI_S(attrs->sizes.n));
    for (int i = 0; i < 4; ++i)
        if (attrs->sizes.at[i] < 0)
            return coi_invalid(call, "%s holds %lld; dimensions are not negative", sizes,
                               (long long)attrs->sizes.at[i]);
    rc = kind == COI_CONV2D_INPUT ? coi_conv2d_geometry(call, attrs->sizes.at, a, g)
                                  : coi_conv2d_geometry(call, a, attrs->sizes.at, g);
    if (rc == CO_OK && !(coi_merge_dim(&g->n, b[0]) && coi_merge_dim(&g->oh, b[1]) &&
                         coi_merge_dim(&g->ow, b[2]) && coi_merge_dim(&g->oc, b[3])))
        return coi_invalid(call, "%s has shape %s; for %s %s it must be [%lld,%lld,%lld,%lld]",
                           result, coi_shape_text(b, 4, got), sizes,
                           coi_shape_text(attrs->sizes.at, 4, given), (long long)g->n,
                           (long long)g->oh, (long long)g->ow, (long long)g->oc);
    return rc;
}

co_code
coi_conv2d_read(coi_call *call, coi_conv2d_kind kind, coi_conv2d *g)
{
    return coi_conv2d_read_named(call, kind, "sizes", call->op->inputs[1], g);
}

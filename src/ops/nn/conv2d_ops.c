/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d, conv2d_bias, and the gradients for input and filter: rules, kernel selection, gradients
 * of each. Kernels: oneDNN (ops/kernels/onednn) for large float32 convolutions where it
 * is built in, im2col and GEMM (conv2d_im2col.c) otherwise, sums over channels for
 * groups (conv2d_groups.c).
 */
#include "ops/kernels/conv2d.h"

#include "config.h"
#include "ops/kernels/kernel_selection.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/epilogue_ops.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/parallel.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/window2d.h"
#if COI_HAVE_ONEDNN
#include "ops/kernels/onednn/onednn.h"
#endif

#include <string.h>

/* Entries of other files. */
COI_USES_OP(conv2d)
COI_USES_OP(conv2d_backprop_filter)
COI_USES_OP(conv2d_backprop_input)
COI_USES_OP(conv2d_bias)
COI_USES_OP(conv2d_transpose)

const char *const coi_conv2d_paddings[] = { "VALID", "SAME", "EXPLICIT", NULL };

COI_ATTR_TABLE(coi_conv2d_attrs, COI_CONV2D_ATTRS)

typedef coi_conv2d_attrs bias_attrs;
#define BIAS_ATTRS(X) COI_CONV2D_ATTRS(X) COI_CONV2D_ACTIVATION(X)
COI_ATTR_TABLE(bias_attrs, BIAS_ATTRS)

typedef coi_conv2d_attrs backprop_attrs;
#define BACKPROP_ATTRS(X) COI_CONV2D_ATTRS(X) COI_CONV2D_SIZES(X)
COI_ATTR_TABLE(backprop_attrs, BACKPROP_ATTRS)

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

/* From the shapes of input and filter and the attributes to the geometry; the shape of the output
 * follows. */
static co_code
read_geometry(coi_call *call, const int64_t *x, const int64_t *w, coi_conv2d *g)
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
coi_conv2d_read(coi_call *call, coi_conv2d_kind kind, coi_conv2d *g)
{
    const coi_conv2d_attrs *attrs = call->attrs;
    bool                    is_own = call->op != &coi_op_conv2d_transpose;
    const char             *sizes = is_own ? "sizes" : "output_shape";
    int64_t                 room_a[CO_MAX_DIMS], room_b[CO_MAX_DIMS];
    const int64_t          *a = four_dims(call, 0, room_a);
    const int64_t          *b = a != NULL ? four_dims(call, 1, room_b) : NULL;
    char                    got[COI_SHAPE_TEXT], given[COI_SHAPE_TEXT];
    co_code                 rc;

    if (b == NULL)
        return call->ctx->error.code;
    if (kind == COI_CONV2D)
        return read_geometry(call, a, b, g);
    if (attrs->sizes.n != 4)
        return coi_invalid(call, "%s has %d number%s; give the 4 dimensions of the result", sizes,
                           (int)attrs->sizes.n, COI_S(attrs->sizes.n));
    for (int i = 0; i < 4; ++i)
        if (attrs->sizes.at[i] < 0)
            return coi_invalid(call, "%s holds %lld; dimensions are not negative", sizes,
                               (long long)attrs->sizes.at[i]);
    rc = kind == COI_CONV2D_INPUT ? read_geometry(call, attrs->sizes.at, a, g)
                                  : read_geometry(call, a, attrs->sizes.at, g);
    if (rc == CO_OK && !(coi_merge_dim(&g->n, b[0]) && coi_merge_dim(&g->oh, b[1]) &&
                         coi_merge_dim(&g->ow, b[2]) && coi_merge_dim(&g->oc, b[3])))
        return coi_invalid(call, "%s has shape %s; for %s %s it must be [%lld,%lld,%lld,%lld]",
                           is_own ? call->op->inputs[1] : "x", coi_shape_text(b, 4, got), sizes,
                           coi_shape_text(attrs->sizes.at, 4, given), (long long)g->n,
                           (long long)g->oh, (long long)g->ow, (long long)g->oc);
    return rc;
}

static void
fill_out(coi_call *call, coi_out *out, const int64_t *dims)
{
    out->dtype = (co_dtype)call->in[0]->dtype;
    out->ndim = 4;
    memcpy(out->dims, dims, 4 * sizeof(int64_t));
}

co_code
coi_conv2d_rule(coi_call *call, const int64_t *x, const int64_t *w, coi_out *out)
{
    coi_conv2d g;
    co_code    rc = read_geometry(call, x, w, &g);

    if (rc == CO_OK)
        fill_out(call, out, (int64_t[]){ g.n, g.oh, g.ow, g.oc });
    return rc;
}

co_code
coi_conv2d_check_back(coi_call *call)
{
    coi_conv2d g;

    return coi_conv2d_read(call, COI_CONV2D_INPUT, &g);
}

static co_code
conv2d_infer(coi_call *call, coi_out *outs)
{
    coi_conv2d g;
    co_code    rc = coi_conv2d_read(call, COI_CONV2D, &g);

    if (rc == CO_OK)
        fill_out(call, outs, (int64_t[]){ g.n, g.oh, g.ow, g.oc });
    return rc;
}

static co_code
input_infer(coi_call *call, coi_out *outs)
{
    coi_conv2d g;
    co_code    rc = coi_conv2d_read(call, COI_CONV2D_INPUT, &g);

    if (rc == CO_OK)
        fill_out(call, outs, (int64_t[]){ g.n, g.h, g.w, g.c });
    return rc;
}

static co_code
filter_infer(coi_call *call, coi_out *outs)
{
    coi_conv2d g;
    co_code    rc = coi_conv2d_read(call, COI_CONV2D_FILTER, &g);

    if (rc == CO_OK)
        fill_out(call, outs, (int64_t[]){ g.kh, g.kw, g.ic, g.oc });
    return rc;
}

coi_conv2d_cut
coi_conv2d_cut_of(coi_conv2d_kind kind, const coi_conv2d *g)
{
    int64_t        enough = COI_PARALLEL_IMAGES, weights = g->kh * g->kw * g->ic * g->oc;
    int64_t        per_image = coi_conv2d_work(g) / (g->n > 0 ? g->n : 1);
    int64_t        max_chunks = kind == COI_CONV2D_FILTER ? 16 : 64;
    coi_conv2d_cut cut;

    if (kind == COI_CONV2D_FILTER && weights > 512)
        enough = weights < 4096 ? weights * 4096 : COI_PARALLEL_FILTER;
    cut.images = per_image >= enough ? 1 : enough / (per_image > 0 ? per_image : 1);
    if (cut.images * max_chunks < g->n)
        cut.images = (g->n + max_chunks - 1) / max_chunks;
    if (cut.images > g->n)
        cut.images = g->n;
    cut.chunks = cut.images > 0 ? (g->n + cut.images - 1) / cut.images : 0;
    return cut;
}

typedef struct partials {
    const char *from;
    char       *to;
    int64_t     chunks, count;
    bool        is_double;
} partials;

enum { SUM_CHUNK = 16384 };

static void
sum_chunk(void *arg, int64_t chunk)
{
    const partials *p = arg;
    int64_t         first = chunk * SUM_CHUNK, last = first + SUM_CHUNK;

    if (last > p->count)
        last = p->count;
    if (p->is_double) {
        const double *from = (const double *)p->from;
        double       *to = (double *)p->to;

        if (to != from)
            memcpy(to + first, from + first, (size_t)(last - first) * sizeof(*to));
        for (int64_t part = 1; part < p->chunks; ++part)
            for (int64_t i = first; i < last; ++i)
                to[i] += from[part * p->count + i];
    } else {
        const float *from = (const float *)p->from;
        float       *to = (float *)p->to;

        if (to != from)
            memcpy(to + first, from + first, (size_t)(last - first) * sizeof(*to));
        for (int64_t part = 1; part < p->chunks; ++part)
            for (int64_t i = first; i < last; ++i)
                to[i] += from[part * p->count + i];
    }
}

void
coi_conv2d_sum_partials(coi_call *call, co_dtype dtype, const void *sums, int64_t chunks,
                        int64_t count, void *out)
{
    partials p = { sums, out, chunks, count, dtype == CO_FLOAT64 };

    coi_parallel(call, (count + SUM_CHUNK - 1) / SUM_CHUNK, sum_chunk, &p);
}

static coi_conv2d_kind
kind_of(const coi_call *call)
{
    return (coi_conv2d_kind)call->op->kind;
}

/* Whether a bias comes behind, and with it an activation. */
static bool
has_epilogue(const coi_call *call)
{
    return call->op == &coi_op_conv2d_bias;
}
static int32_t
activation_of(const coi_call *call)
{
    return ((const coi_conv2d_attrs *)call->attrs)->activation;
}

static co_code
conv2d_ref(coi_call *call)
{
    coi_conv2d_kind kind = kind_of(call);
    coi_conv2d      g;
    co_code         rc = coi_conv2d_read(call, kind, &g);

    if (rc == CO_OK)
        coi_ref_conv2d(kind, (co_dtype)call->out[0]->dtype, &g, call->in[0]->u.tensor.data,
                       call->in[1]->u.tensor.data, call->out[0]->u.tensor.data);
    return rc == CO_OK && has_epilogue(call) ? coi_ref_epilogue(call, activation_of(call)) : rc;
}

/* The epilogue, if there is one, for all of the output. */
static co_code
epilogue_all(const coi_call *call, const coi_conv2d *g, const coi_epilogue *epilogue)
{
    if (epilogue != NULL)
        coi_epilogue_rows(epilogue, call->out[0]->u.tensor.data, g->oc, g->n * g->oh * g->ow, 0,
                          g->oc);
    return CO_OK;
}

/* For COHORT_LOG=debug: the selected kernel, after the line of the operator. */
static void
say(const coi_call *call, const char *who)
{
    if ((call->ctx->special & COI_SPECIAL_LOG) != 0)
        coi_log_line(&call->ctx->runtime->log, CO_LOG_DEBUG, "%s: by %s", call->op->name, who);
}

static co_code
conv2d_run(coi_call *call)
{
    coi_conv2d_kind kind = kind_of(call);
    coi_epilogue    room, *epilogue = has_epilogue(call) ? &room : NULL;
    co_dtype        dtype = (co_dtype)call->out[0]->dtype;
    const void     *a = call->in[0]->u.tensor.data, *b = call->in[1]->u.tensor.data;
    void           *out = call->out[0]->u.tensor.data;
    coi_conv2d      g;
    co_code         rc = coi_conv2d_read(call, kind, &g);

    if (rc != CO_OK)
        return rc;
    if (epilogue != NULL)
        coi_epilogue_of(call, activation_of(call), epilogue);
    if (coi_conv2d_work(&g) == 0) {
        memset(out, 0, coi_tensor_nbytes(call->out[0]));
        return epilogue_all(call, &g, epilogue);
    }
    if (coi_conv2d_groups(&g) > 1) {
        say(call, "own sums over the places of the filter");
        coi_conv2d_groups_run(call, kind, dtype, &g, a, b, out);
        return epilogue_all(call, &g, epilogue);
    }
#if COI_HAVE_ONEDNN
    if (coi_select_onednn(call->ctx->runtime, kind, dtype, &g)) {
        bool done;

        rc = coi_onednn_conv2d(call, kind, &g, a, b, out, epilogue, &done);
        if (rc != CO_OK || done)
            return rc;
    }
#endif
    say(call, "own products of patches");
    return coi_conv2d_gemm(call, kind, dtype, &g, a, b, out, epilogue);
}

/* Apply one of the transposes with the attributes of a call and the shape of the result. */
static co_value *
backprop(co_context *ctx, const coi_op *op, const coi_conv2d_attrs *attrs, co_value *a, co_value *b,
         co_value *like)
{
    coi_sized_op    back = { op, attrs, offsetof(coi_conv2d_attrs, sizes), 0 };
    co_value *const given[2] = { a, b };

    return coi_apply_like(ctx, &back, given, 2, like);
}

static co_code
conv2d_grad(coi_grad *grad)
{
    co_value *x = grad->in[0], *w = grad->in[1], *dy = grad->upstream[0];

    if (grad->needed[0])
        grad->grads[0] = backprop(grad->ctx, &coi_op_conv2d_backprop_input, grad->attrs, w, dy, x);
    if (grad->needed[1])
        grad->grads[1] = backprop(grad->ctx, &coi_op_conv2d_backprop_filter, grad->attrs, x, dy, w);
    return grad->ctx->error.code;
}

/* dx = backprop_input(w, dy) with upstream u, shaped like x. */
static co_code
input_grad(coi_grad *grad)
{
    co_value *w = grad->in[0], *dy = grad->in[1], *u = grad->upstream[0];

    if (grad->needed[0])
        grad->grads[0] = backprop(grad->ctx, &coi_op_conv2d_backprop_filter, grad->attrs, u, dy, w);
    if (grad->needed[1])
        grad->grads[1] = coi_apply2(grad->ctx, &coi_op_conv2d, u, w, grad->attrs);
    return grad->ctx->error.code;
}

/* dw = backprop_filter(x, dy) with upstream u, shaped like w. */
static co_code
filter_grad(coi_grad *grad)
{
    co_value *x = grad->in[0], *dy = grad->in[1], *u = grad->upstream[0];

    if (grad->needed[0])
        grad->grads[0] = backprop(grad->ctx, &coi_op_conv2d_backprop_input, grad->attrs, u, dy, x);
    if (grad->needed[1])
        grad->grads[1] = coi_apply2(grad->ctx, &coi_op_conv2d, x, u, grad->attrs);
    return grad->ctx->error.code;
}

const coi_op coi_op_conv2d = {
    .name = "conv2d",
    .doc = "Convolution of x [n,h,w,c] with the filter w [kh,kw,in,out].",
    .inputs = { "x", "w" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(coi_conv2d_attrs),
    .infer = conv2d_infer,
    .upcasts = true,
    .ref = conv2d_ref,
    .run = conv2d_run,
    .grad = conv2d_grad,
};

static co_code
bias_infer(coi_call *call, coi_out *outs)
{
    co_code rc = conv2d_infer(call, outs);

    return rc == CO_OK ? coi_epilogue_rule(call, activation_of(call), &outs->dims[3]) : rc;
}

static coi_conv2d_attrs
bare(const coi_conv2d_attrs *attrs)
{
    coi_conv2d_attrs without = *attrs;

    without.activation = CO_ACTIVATION_NONE;
    return without;
}

static co_code
bias_grad(coi_grad *grad)
{
    const coi_conv2d_attrs *attrs = grad->attrs;
    coi_conv2d_attrs        without = bare(attrs);

    return coi_epilogue_grad(grad, attrs->activation, &without, conv2d_grad);
}

const coi_op coi_op_conv2d_bias = {
    .name = "conv2d_bias",
    .doc = "A convolutional layer: activation(conv2d(x, w) + b), in one pass.",
    .inputs = { "x", "w", "b" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(bias_attrs),
    .infer = bias_infer,
    .upcasts = true,
    .ref = conv2d_ref,
    .run = conv2d_run,
    .grad = bias_grad,
};

const coi_op coi_op_conv2d_backprop_input = {
    .name = "conv2d_backprop_input",
    .doc =
        "The gradient of conv2d for its input, whose shape is `sizes`, from filter and gradient of the result.",
    .inputs = { "w", "dy" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .kind = COI_CONV2D_INPUT,
    .internal = true,
    COI_ATTRS(backprop_attrs),
    .infer = input_infer,
    .upcasts = true,
    .ref = conv2d_ref,
    .run = conv2d_run,
    .grad = input_grad,
};

const coi_op coi_op_conv2d_backprop_filter = {
    .name = "conv2d_backprop_filter",
    .doc =
        "The gradient of conv2d for its filter, whose shape is `sizes`, from input and gradient of the result.",
    .inputs = { "x", "dy" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .kind = COI_CONV2D_FILTER,
    .internal = true,
    COI_ATTRS(backprop_attrs),
    .infer = filter_infer,
    .upcasts = true,
    .ref = conv2d_ref,
    .run = conv2d_run,
    .grad = filter_grad,
};

bool
coi_conv2d_options(co_context *ctx, const co_conv2d_options *options, int position,
                   coi_conv2d_attrs *attrs)
{
    co_conv2d_options o = CO_CONV2D_OPTIONS_INIT;

    if (!coi_take_options(ctx, &o, sizeof(o), options, position))
        return false;
    memset(attrs, 0, sizeof(*attrs));
    attrs->padding = (int32_t)o.padding;
    attrs->strides = (coi_ints){ 2, { o.strides[0], o.strides[1] } };
    attrs->dilations = (coi_ints){ 2, { o.dilations[0], o.dilations[1] } };
    attrs->explicit_paddings.n = -1;
    if (o.padding == CO_PADDING_EXPLICIT) {
        attrs->explicit_paddings.n = 4;
        memcpy(attrs->explicit_paddings.at, o.explicit_paddings, sizeof(o.explicit_paddings));
    }
    return true;
}

co_value *
co_conv2d(co_context *ctx, co_value *x, co_value *w, const co_conv2d_options *options)
{
    coi_conv2d_attrs attrs;

    COI_ENTER(ctx, "conv2d", NULL);
    if (!coi_conv2d_options(ctx, options, 4, &attrs))
        return NULL;
    return coi_apply2(ctx, &coi_op_conv2d, x, w, &attrs);
}

co_value *
co_conv2d_bias(co_context *ctx, co_value *x, co_value *w, co_value *b, co_activation activation,
               const co_conv2d_options *options)
{
    co_value *const  given[3] = { x, w, b };
    coi_conv2d_attrs attrs, without;

    COI_ENTER(ctx, "conv2d_bias", NULL);
    if (!coi_conv2d_options(ctx, options, 6, &attrs))
        return NULL;
    without = attrs;
    attrs.activation = (int32_t)activation;
    return coi_apply_epilogue(ctx, &coi_op_conv2d_bias, given, &attrs, &without, attrs.activation);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d, conv2d_bias, and the gradients for input and filter: rules and gradients.
 */
#include "ops/kernels/conv2d.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/epilogue_ops.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/nn/nn_ops.h"

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
    co_code    rc = coi_conv2d_geometry(call, x, w, &g);

    if (rc == CO_OK)
        fill_out(call, out, (int64_t[]){ g.n, g.oh, g.ow, g.oc });
    return rc;
}

co_code
coi_conv2d_check_back(coi_call *call)
{
    coi_conv2d g;

    return coi_conv2d_read_named(call, COI_CONV2D_INPUT, "output_shape", "x", &g);
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

/* Apply one of the transposes with the attributes of a call and the shape of the result. */
static co_value *
backprop(co_context *ctx, const coi_op *op, const coi_conv2d_attrs *attrs, co_value *a, co_value *b,
         co_value *like)
{
    coi_sized_op    back = { op, attrs, COI_SHAPE_AT(coi_conv2d_attrs, sizes), 0 };
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
    .ref = coi_conv2d_ref,
    .run = coi_conv2d_run,
    .grad = conv2d_grad,
};

static co_code
bias_infer(coi_call *call, coi_out *outs)
{
    co_code rc = conv2d_infer(call, outs);

    return rc == CO_OK
               ? coi_epilogue_rule(call, ((const coi_conv2d_attrs *)call->attrs)->activation,
                                   &outs->dims[3])
               : rc;
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
    .ref = coi_conv2d_ref,
    .run = coi_conv2d_run,
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
    .ref = coi_conv2d_ref,
    .run = coi_conv2d_run,
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
    .ref = coi_conv2d_ref,
    .run = coi_conv2d_run,
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

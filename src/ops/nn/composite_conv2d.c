/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions that conv2d and its transposes already are: depthwise, which is one with a group for
 * each channel, and transposed, which is the gradient for the input.
 */
#include "ops/engine/composite.h"
#include "ops/kernels/conv2d.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/window2d.h"
#include "ops/nn/nn_ops.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(conv2d)
COI_USES_OP(conv2d_backprop_input)

COI_ATTR_TABLE(coi_conv2d_attrs, COI_CONV2D_ATTRS)

/* The four dimensions of image and filter. */
typedef struct dims_room {
    int64_t        room_x[CO_MAX_DIMS], room_w[CO_MAX_DIMS];
    const int64_t *x, *w;
} dims_room;

static co_code
read_dims(coi_call *call, dims_room *dims)
{
    const co_value *x = call->in[0], *w = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    dims->x = coi_dims_of_rank(x, 4, dims->room_x);
    dims->w = coi_dims_of_rank(w, 4, dims->room_w);
    if (dims->x != NULL && dims->w != NULL)
        return CO_OK;
    return coi_invalid(call, "x has shape %s and w %s; both must have 4 dimensions",
                       coi_shape_text(x->u.tensor.dims, x->ndim, a),
                       coi_shape_text(w->u.tensor.dims, w->ndim, b));
}

static co_code
depthwise_rule(coi_call *call, coi_out *outs)
{
    const coi_conv2d_attrs *attrs = call->attrs;
    int64_t                 down, across, channels, grouped[4];
    dims_room               dims;
    co_code                 code = read_dims(call, &dims);

    if (code != CO_OK)
        return code;
    channels = dims.x[3];
    if (!coi_merge_dim(&channels, dims.w[2]))
        return coi_invalid(call,
                           "x has %lld channel%s and w filters for %lld; they must be as many",
                           (long long)dims.x[3], COI_S(dims.x[3]), (long long)dims.w[2]);
    code = coi_read_pair(call, "strides", &attrs->strides, &down, &across);
    if (code == CO_OK && down != across)
        return coi_invalid(call, "strides are %lld and %lld; they must be equal", (long long)down,
                           (long long)across);
    if (code != CO_OK)
        return code;
    memcpy(grouped, dims.w, sizeof(grouped));
    grouped[2] = 1;
    grouped[3] = coi_dim_product(channels, dims.w[3]);
    return coi_conv2d_rule(call, dims.x, grouped, outs);
}

/* The filters of a channel are the outputs of its group. */
static co_value *
depthwise_composite(coi_call *call)
{
    const int64_t *w = call->in[1]->u.tensor.dims;
    co_value      *filter;

    filter = co_reshape(call->ctx, call->in[1], (const int64_t[]){ w[0], w[1], 1, w[2] * w[3] }, 4);
    return coi_apply2(call->ctx, &coi_op_conv2d, call->in[0], filter, call->attrs);
}

static bool
depthwise_is_known(const coi_call *call)
{
    return coi_is_known_shape(call->in[1]);
}

const coi_op coi_op_depthwise_conv2d = {
    COI_COMPOSITE(
        "depthwise_conv2d",
        "Convolution of each channel of x [n,h,w,c] with its own filters of w [kh,kw,c,m].", "x",
        "w"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(coi_conv2d_attrs),
    .infer = depthwise_rule,
    .composite = depthwise_composite,
    .parts_are_known = depthwise_is_known,
};

co_value *
co_depthwise_conv2d(co_context *ctx, co_value *x, co_value *w, const co_conv2d_options *options)
{
    coi_conv2d_attrs attrs;
    co_value *const  given[2] = { x, w };

    COI_ENTER(ctx, "depthwise_conv2d", NULL);
    if (!coi_conv2d_options(ctx, options, 4, &attrs))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_depthwise_conv2d, given, 2, &attrs);
}

typedef struct transpose_attrs {
    coi_ints output_shape, strides, dilations;
    int32_t  padding;
    coi_ints explicit_paddings;
} transpose_attrs;
#define TRANSPOSE_ATTRS(X)                                                                         \
    X(transpose_attrs, output_shape, INTS, "", NULL)                                               \
    X(transpose_attrs, strides, INTS, "=null", NULL)                                               \
    X(transpose_attrs, padding, CHOICE, "=SAME", coi_conv2d_paddings)                              \
    X(transpose_attrs, dilations, INTS, "=null", NULL)                                             \
    X(transpose_attrs, explicit_paddings, INTS, "=null", NULL)
COI_ATTR_TABLE(transpose_attrs, TRANSPOSE_ATTRS)

static coi_conv2d_attrs
back_attrs(const coi_call *call)
{
    const transpose_attrs *attrs = call->attrs;

    return (coi_conv2d_attrs){ .strides = attrs->strides,
                               .dilations = attrs->dilations,
                               .padding = attrs->padding,
                               .explicit_paddings = attrs->explicit_paddings,
                               .sizes = attrs->output_shape };
}

static co_code
transpose_rule(coi_call *call, coi_out *outs)
{
    const coi_ints  *shape = &((const transpose_attrs *)call->attrs)->output_shape;
    coi_conv2d_attrs attrs = back_attrs(call);
    co_value        *in[2] = { call->in[1], call->in[0] };
    coi_call         back = *call;
    dims_room        dims;
    char             text[COI_SHAPE_TEXT];
    co_code          code = read_dims(call, &dims);

    if (code != CO_OK)
        return code;
    if (shape->n != 4 || !coi_dims_fit(shape->at[0], dims.x[0]) ||
        !coi_dims_fit(shape->at[3], dims.w[2]) || !coi_dims_fit(dims.x[3], dims.w[3]))
        return coi_invalid(
            call,
            "output_shape is %s, of %lld image%s with %lld channel%s, and w takes %lld of "
            "the %lld channel%s of x; they must agree",
            coi_ints_text(shape, text), (long long)dims.x[0], COI_S(dims.x[0]),
            (long long)dims.w[2], COI_S(dims.w[2]), (long long)dims.w[3], (long long)dims.x[3],
            COI_S(dims.x[3]));
    coi_out_shape(outs, (co_dtype)call->in[0]->dtype, shape);
    /* The gradient that it is would name operands and an operator that the caller has not. */
    back.in = in;
    back.attrs = &attrs;
    return coi_conv2d_check_back(&back);
}

static co_value *
transpose_composite(coi_call *call)
{
    coi_conv2d_attrs back = back_attrs(call);

    return coi_apply2(call->ctx, &coi_op_conv2d_backprop_input, call->in[1], call->in[0], &back);
}

const coi_op coi_op_conv2d_transpose = {
    COI_COMPOSITE(
        "conv2d_transpose",
        "The gradient of conv2d with respect to its input, of shape `output_shape`; w [kh,kw,out,in].",
        "x", "w"),
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(transpose_attrs),
    .infer = transpose_rule,
    .composite = transpose_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_conv2d_transpose(co_context *ctx, co_value *x, co_value *w, const int64_t output_dims[4],
                    const co_conv2d_options *options)
{
    coi_conv2d_attrs own;
    transpose_attrs  attrs;
    co_value *const  given[2] = { x, w };

    COI_ENTER(ctx, "conv2d_transpose", NULL);
    if (!coi_ints_from_dims(ctx, "conv2d_transpose: output_dims", output_dims, 4,
                            &attrs.output_shape) ||
        !coi_conv2d_options(ctx, options, 5, &own))
        return NULL;
    attrs.strides = own.strides;
    attrs.dilations = own.dilations;
    attrs.padding = own.padding;
    attrs.explicit_paddings = own.explicit_paddings;
    return coi_apply_composite(ctx, &coi_op_conv2d_transpose, given, 2, &attrs);
}

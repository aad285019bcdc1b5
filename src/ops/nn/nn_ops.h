/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What files of this folder share: attributes, rules, and composite operators.
 */
#ifndef COI_OPS_NN_NN_OPS_H
#define COI_OPS_NN_NN_OPS_H

#include "ops/engine/epilogue_ops.h"
#include "ops/kernels/conv2d.h"
#include "ops/kernels/pool2d.h"

/* What all convolutions take, for COI_ATTR_TABLE. */
extern const char *const coi_conv2d_paddings[];
#define COI_CONV2D_ATTRS(X)                                                                        \
    X(coi_conv2d_attrs, strides, INTS, "=null", NULL)                                              \
    X(coi_conv2d_attrs, padding, CHOICE, "=VALID", coi_conv2d_paddings)                            \
    X(coi_conv2d_attrs, dilations, INTS, "=null", NULL)                                            \
    X(coi_conv2d_attrs, explicit_paddings, INTS, "=null", NULL)
#define COI_CONV2D_SIZES(X) X(coi_conv2d_attrs, sizes, INTS, "", NULL)
#define COI_CONV2D_ACTIVATION(X)                                                                   \
    X(coi_conv2d_attrs, activation, CHOICE, "=none", coi_activation_names)

/* The attributes that public options stand for; `position` is that of the argument. */
bool coi_conv2d_options(co_context *ctx, const co_conv2d_options *options, int position,
                        coi_conv2d_attrs *attrs);

/* The rule of conv2d for input and filter of these four dimensions each, which may be unknown. */
co_code coi_conv2d_rule(coi_call *call, const int64_t *x, const int64_t *w, coi_out *out);
/* Whether the operands and attributes are those of conv2d_backprop_input; errors name the operator
 * of the call. */
co_code coi_conv2d_check_back(coi_call *call);

/* The attributes that public options stand for. */
bool coi_pool_options(co_context *ctx, const co_pool2d_options *options, coi_pool_attrs *attrs);
/* The fused backward of a convolutional layer and its max pooling: coi_op.fused_grad of
 * max_pool2d. */
co_code coi_pooled_gradient(const coi_grad *pool, coi_grad *layer, bool *done);

/* Whether layer_norm of these inputs over its last num_axes axes is what the kernels compute. */
bool coi_norm_is_rows(co_value *const *in, int num_axes);
/* layer_norm of them. */
co_value *coi_norm_rows(co_context *ctx, co_value *const *in, int num_axes, double epsilon);

/* Cross entropy of rows with labels of the same shape; and its gradients by a composition, along
 * the axis of grad->attrs (ops/nn/composite_losses.c). */
co_value *coi_soft_cross_entropy(co_context *ctx, co_value *const *in);
co_code   coi_soft_cross_entropy_gradient(coi_grad *grad);

#endif

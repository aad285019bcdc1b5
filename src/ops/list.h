/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of all operators, in the order of strcmp. Each is a `const coi_op coi_op_NAME` of some family's file; table.c
 * makes the table from this list.
 */
#ifndef COI_OPS_LIST_H
#define COI_OPS_LIST_H

#include "ops/op.h"

#define COI_OPS(X)                                                                                 \
    X(add)                                                                                         \
    X(argmax)                                                                                      \
    X(broadcast_to)                                                                                \
    X(cast)                                                                                        \
    X(concat)                                                                                      \
    X(conv2d)                                                                                      \
    X(conv2d_backprop_filter)                                                                      \
    X(conv2d_backprop_input)                                                                       \
    X(div)                                                                                         \
    X(equal)                                                                                       \
    X(exp)                                                                                         \
    X(expand_dims)                                                                                 \
    X(fill)                                                                                        \
    X(gather)                                                                                      \
    X(greater_equal)                                                                               \
    X(identity)                                                                                    \
    X(less_equal)                                                                                  \
    X(log)                                                                                         \
    X(matmul)                                                                                      \
    X(max_pool2d)                                                                                  \
    X(max_pool2d_grad)                                                                             \
    X(max_pool2d_grad_grad)                                                                        \
    X(maximum)                                                                                     \
    X(minimum)                                                                                     \
    X(mul)                                                                                         \
    X(neg)                                                                                         \
    X(one_hot)                                                                                     \
    X(ones)                                                                                        \
    X(random_normal)                                                                               \
    X(random_uniform)                                                                              \
    X(range)                                                                                       \
    X(reduce_max)                                                                                  \
    X(reduce_mean)                                                                                 \
    X(reduce_sum)                                                                                  \
    X(relu)                                                                                        \
    X(relu_grad)                                                                                   \
    X(reshape)                                                                                     \
    X(scatter_add)                                                                                 \
    X(sigmoid)                                                                                     \
    X(sigmoid_grad)                                                                                \
    X(slice)                                                                                       \
    X(slice_grad)                                                                                  \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(sparse_softmax_cross_entropy_grad)                                                           \
    X(sparse_softmax_cross_entropy_with_logits)                                                    \
    X(sqrt)                                                                                        \
    X(square)                                                                                      \
    X(stop_gradient)                                                                               \
    X(sub)                                                                                         \
    X(tanh)                                                                                        \
    X(tanh_grad)                                                                                   \
    X(transpose)                                                                                   \
    X(where)                                                                                       \
    X(zeros)

#define COI_OP_DECLARE(name) extern const coi_op coi_op_##name;
COI_OPS(COI_OP_DECLARE)
#undef COI_OP_DECLARE

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of all operators, in the order of strcmp. Each is a `const coi_op coi_op_NAME` of some family's file; table.c
 * makes the table from this list.
 */
#ifndef COI_OPS_LIST_H
#define COI_OPS_LIST_H

#include "ops/op.h"

#define COI_OPS(X)                                                                                 \
    X(abs)                                                                                         \
    X(add)                                                                                         \
    X(argmax)                                                                                      \
    X(broadcast_to)                                                                                \
    X(cast)                                                                                        \
    X(ceil)                                                                                        \
    X(concat)                                                                                      \
    X(conv2d)                                                                                      \
    X(conv2d_backprop_filter)                                                                      \
    X(conv2d_backprop_input)                                                                       \
    X(cos)                                                                                         \
    X(div)                                                                                         \
    X(elu)                                                                                         \
    X(elu_grad)                                                                                    \
    X(equal)                                                                                       \
    X(erf)                                                                                         \
    X(exp)                                                                                         \
    X(expand_dims)                                                                                 \
    X(expm1)                                                                                       \
    X(fill)                                                                                        \
    X(floor)                                                                                       \
    X(floordiv)                                                                                    \
    X(gather)                                                                                      \
    X(gelu)                                                                                        \
    X(greater)                                                                                     \
    X(greater_equal)                                                                               \
    X(identity)                                                                                    \
    X(isfinite)                                                                                    \
    X(isinf)                                                                                       \
    X(isnan)                                                                                       \
    X(leaky_relu)                                                                                  \
    X(less)                                                                                        \
    X(less_equal)                                                                                  \
    X(log)                                                                                         \
    X(log1p)                                                                                       \
    X(log_sigmoid)                                                                                 \
    X(logical_and)                                                                                 \
    X(logical_not)                                                                                 \
    X(logical_or)                                                                                  \
    X(logical_xor)                                                                                 \
    X(matmul)                                                                                      \
    X(max_pool2d)                                                                                  \
    X(max_pool2d_grad)                                                                             \
    X(max_pool2d_grad_grad)                                                                        \
    X(maximum)                                                                                     \
    X(minimum)                                                                                     \
    X(mod)                                                                                         \
    X(mul)                                                                                         \
    X(neg)                                                                                         \
    X(not_equal)                                                                                   \
    X(one_hot)                                                                                     \
    X(ones)                                                                                        \
    X(pow)                                                                                         \
    X(random_normal)                                                                               \
    X(random_uniform)                                                                              \
    X(range)                                                                                       \
    X(reciprocal)                                                                                  \
    X(reduce_max)                                                                                  \
    X(reduce_mean)                                                                                 \
    X(reduce_sum)                                                                                  \
    X(relu)                                                                                        \
    X(relu6)                                                                                       \
    X(relu6_grad)                                                                                  \
    X(relu_grad)                                                                                   \
    X(reshape)                                                                                     \
    X(round)                                                                                       \
    X(rsqrt)                                                                                       \
    X(scatter_add)                                                                                 \
    X(selu)                                                                                        \
    X(selu_grad)                                                                                   \
    X(sigmoid)                                                                                     \
    X(sigmoid_grad)                                                                                \
    X(sign)                                                                                        \
    X(silu)                                                                                        \
    X(sin)                                                                                         \
    X(slice)                                                                                       \
    X(slice_grad)                                                                                  \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(softplus)                                                                                    \
    X(softsign)                                                                                    \
    X(sparse_softmax_cross_entropy_grad)                                                           \
    X(sparse_softmax_cross_entropy_with_logits)                                                    \
    X(sqrt)                                                                                        \
    X(square)                                                                                      \
    X(squared_difference)                                                                          \
    X(stop_gradient)                                                                               \
    X(sub)                                                                                         \
    X(tan)                                                                                         \
    X(tanh)                                                                                        \
    X(tanh_grad)                                                                                   \
    X(transpose)                                                                                   \
    X(where)                                                                                       \
    X(zeros)

#define COI_OP_DECLARE(name) extern const coi_op coi_op_##name;
COI_OPS(COI_OP_DECLARE)
#undef COI_OP_DECLARE

#endif

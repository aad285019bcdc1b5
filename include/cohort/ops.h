/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators. Each takes whatever converts to a tensor where it runs: a variable gives the component
 * of this replica, a per-replica value its part, a host number a scalar of the other operand's
 * dtype. Shapes broadcast as in NumPy. An operator that rejects a shape, dtype, axis, index or
 * attribute records CO_INVALID_ARGUMENT.
 *
 * Every operator is an entry of one table, which co_op_describe shows and co_op_call calls by name;
 * the functions below are the same entries with C arguments.
 * Rules: GEN-ERR-4.
 */
#ifndef COHORT_OPS_H
#define COHORT_OPS_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/* Element-wise, one operand. */

CO_API co_value *co_neg(co_context *ctx, co_value *x);
CO_API co_value *co_square(co_context *ctx, co_value *x);
CO_API co_value *co_sqrt(co_context *ctx, co_value *x);
CO_API co_value *co_exp(co_context *ctx, co_value *x);
CO_API co_value *co_log(co_context *ctx, co_value *x);
CO_API co_value *co_tanh(co_context *ctx, co_value *x);
CO_API co_value *co_sigmoid(co_context *ctx, co_value *x);
CO_API co_value *co_relu(co_context *ctx, co_value *x);
CO_API co_value *co_abs(co_context *ctx, co_value *x);
/** -1, 0 or 1. */
CO_API co_value *co_sign(co_context *ctx, co_value *x);
CO_API co_value *co_rsqrt(co_context *ctx, co_value *x);
CO_API co_value *co_reciprocal(co_context *ctx, co_value *x);
CO_API co_value *co_log1p(co_context *ctx, co_value *x);
CO_API co_value *co_expm1(co_context *ctx, co_value *x);
CO_API co_value *co_sin(co_context *ctx, co_value *x);
CO_API co_value *co_cos(co_context *ctx, co_value *x);
CO_API co_value *co_tan(co_context *ctx, co_value *x);
/** The largest integer not above x, the smallest not below x, and the nearest (of two, the even
 * one), in the dtype of x. No gradient passes. */
CO_API co_value *co_floor(co_context *ctx, co_value *x);
CO_API co_value *co_ceil(co_context *ctx, co_value *x);
CO_API co_value *co_round(co_context *ctx, co_value *x);
CO_API co_value *co_erf(co_context *ctx, co_value *x);
CO_API co_value *co_relu6(co_context *ctx, co_value *x);
CO_API co_value *co_elu(co_context *ctx, co_value *x);
CO_API co_value *co_selu(co_context *ctx, co_value *x);
/** x where it is above zero, else alpha * x; alpha is rounded to float32 for every dtype. */
CO_API co_value *co_leaky_relu(co_context *ctx, co_value *x, double alpha);
CO_API co_value *co_softplus(co_context *ctx, co_value *x);
CO_API co_value *co_softsign(co_context *ctx, co_value *x);
CO_API co_value *co_silu(co_context *ctx, co_value *x);
CO_API co_value *co_log_sigmoid(co_context *ctx, co_value *x);
/** x times the distribution function of the normal distribution; approximate: the formula with
 * tanh. */
CO_API co_value *co_gelu(co_context *ctx, co_value *x, bool approximate);
/** Tests, as bool. */
CO_API co_value *co_isnan(co_context *ctx, co_value *x);
CO_API co_value *co_isinf(co_context *ctx, co_value *x);
CO_API co_value *co_isfinite(co_context *ctx, co_value *x);
CO_API co_value *co_logical_not(co_context *ctx, co_value *x);
CO_API co_value *co_identity(co_context *ctx, co_value *x);
/** The value of x; gradients do not pass. */
CO_API co_value *co_stop_gradient(co_context *ctx, co_value *x);
/** Convert to another dtype: floats to integers truncate; numbers to bool are x != 0. */
CO_API co_value *co_cast(co_context *ctx, co_value *x, co_dtype dtype);

/* Element-wise, two operands of one dtype, with broadcasting. */

CO_API co_value *co_add(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_sub(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_mul(co_context *ctx, co_value *x, co_value *y);
/** True division: integers up to 16 bits give float32, larger ones float64. */
CO_API co_value *co_div(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_maximum(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_minimum(co_context *ctx, co_value *x, co_value *y);
/** x / y towards minus infinity, and what it leaves, which has the sign of y. Integers: y must not
 * be 0. */
CO_API co_value *co_floordiv(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_mod(co_context *ctx, co_value *x, co_value *y);
/** Integers: y must not be negative. */
CO_API co_value *co_pow(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_squared_difference(co_context *ctx, co_value *x, co_value *y);
/** Comparisons, as bool. equal and not_equal take any dtype, the logical ones bool. */
CO_API co_value *co_equal(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_not_equal(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_less(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_less_equal(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_greater(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_greater_equal(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_logical_and(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_logical_or(co_context *ctx, co_value *x, co_value *y);
CO_API co_value *co_logical_xor(co_context *ctx, co_value *x, co_value *y);
/** x where cond (bool) is true, else y; the three broadcast. A host number takes the other's
 * dtype. */
CO_API co_value *co_where(co_context *ctx, co_value *cond, co_value *x, co_value *y);
/** At most max, then at least min; where min is above max that is min. NaN stays. For integers both
 * must be whole and fit. */
CO_API co_value *co_clip_by_value(co_context *ctx, co_value *x, double min, double max);
/** The sum of a list or tuple of tensors of one shape and dtype. */
CO_API co_value *co_add_n(co_context *ctx, co_value *xs);

/* Linear algebra. */

/** a x b over the last two dimensions; the others broadcast. */
CO_API co_value *co_matmul(co_context *ctx, co_value *a, co_value *b);
CO_API co_value *co_matmul_transposed(co_context *ctx, co_value *a, co_value *b, bool transpose_a,
                                      bool transpose_b);
/** What layers apply to their sums. */
typedef enum co_activation {
    CO_ACTIVATION_NONE = 0,
    CO_ACTIVATION_RELU,
    CO_ACTIVATION_RELU6,
    CO_ACTIVATION_ELU,
    CO_ACTIVATION_SELU,
    CO_ACTIVATION_TANH,
    CO_ACTIVATION_SIGMOID,
    CO_ACTIVATION_SOFTPLUS,
    CO_ACTIVATION_SOFTSIGN,
    CO_ACTIVATION_SILU,
    CO_ACTIVATION_GELU,
    CO_ACTIVATION_GELU_TANH
} co_activation;
/** A fully connected layer: activation(x w + b) of x [..., inputs], w [inputs, outputs], b
 * [outputs]. The same numbers as co_matmul, co_add and the activation one after the other, without
 * their passes over memory; half-precision results are rounded once, at the end. */
CO_API co_value *co_dense(co_context *ctx, co_value *x, co_value *w, co_value *b,
                          co_activation activation);
/** a [..., m, n] x b [..., n]. */
CO_API co_value *co_matvec(co_context *ctx, co_value *a, co_value *b, bool transpose_a);
/**
 * Sums of products over the labels that the result leaves out, of a list or tuple of up to 16
 * tensors:
 *
 *     scores = co_einsum(ctx, "bqhd,bkhd->bhqk", co_args(ctx, query, key));
 *
 * A label is a letter, '...' stands for any dimensions, which broadcast; a label that a term has
 * twice is its diagonal. Without "->" the result has the labels that occur once, in order. Operands
 * are combined from the left, each pair by a matrix product.
 */
CO_API co_value *co_einsum(co_context *ctx, const char *equation, co_value *xs);

/* Reductions. axes NULL reduces all; CO_AXES(0, 1) names some; negative counts from the end. */

CO_API co_value *co_reduce_sum(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
CO_API co_value *co_reduce_mean(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                bool keepdims);
CO_API co_value *co_reduce_max(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
CO_API co_value *co_reduce_min(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
CO_API co_value *co_reduce_prod(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                bool keepdims);
/** Of bools: whether all are true, whether one is. */
CO_API co_value *co_reduce_all(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
CO_API co_value *co_reduce_any(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
/** log(sum(exp(x))), whose exponentials do not overflow. */
CO_API co_value *co_reduce_logsumexp(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                     bool keepdims);
/** Variance and standard deviation of the elements themselves: divided by n, not by n - 1. */
CO_API co_value *co_reduce_variance(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                    bool keepdims);
CO_API co_value *co_reduce_std(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
CO_API co_value *co_reduce_euclidean_norm(co_context *ctx, co_value *x, const int *axes,
                                          size_t num_axes, bool keepdims);
/** A tuple: the mean and the variance. */
CO_API co_value *co_moments(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                            bool keepdims);
/** Index of the largest, and of the smallest, element along `axis`, the first of equals. The result
 * has `dtype`: CO_INT64 (also for CO_DTYPE_NONE) or CO_INT32; of co_argmax also CO_INT16 or
 * CO_UINT16. CO_INVALID_ARGUMENT for an axis that is too long for it. */
CO_API co_value *co_argmax(co_context *ctx, co_value *x, int axis, co_dtype dtype);
CO_API co_value *co_argmin(co_context *ctx, co_value *x, int axis, co_dtype dtype);
/** Running sums and products along an axis: element i is that of 0 to i, `exclusive` without i
 * itself, `reverse` from the end. */
CO_API co_value *co_cumsum(co_context *ctx, co_value *x, int axis, bool exclusive, bool reverse);
CO_API co_value *co_cumprod(co_context *ctx, co_value *x, int axis, bool exclusive, bool reverse);
/** A tuple: the k largest elements along the last axis, largest first, and their indices (int32).
 * Of equal ones the first comes first; NaN comes behind all numbers. */
CO_API co_value *co_top_k(co_context *ctx, co_value *x, int64_t k);
/** The elements along an axis in order, and the indices (int32) that bring them there. Equal
 * elements keep their order; NaN comes last in either direction. */
CO_API co_value *co_sort(co_context *ctx, co_value *x, int axis, bool descending);
CO_API co_value *co_argsort(co_context *ctx, co_value *x, int axis, bool descending);

/* Shapes. */

/** One dimension may be -1: it is computed. The data is shared, not copied. */
CO_API co_value *co_reshape(co_context *ctx, co_value *x, const int64_t *dims, int ndim);
/** perm NULL reverses the dimensions. */
CO_API co_value *co_transpose(co_context *ctx, co_value *x, const int *perm, size_t num_perm);
CO_API co_value *co_expand_dims(co_context *ctx, co_value *x, int axis);
CO_API co_value *co_broadcast_to(co_context *ctx, co_value *x, const int64_t *dims, int ndim);
/** `xs` is a list or tuple of tensors of one dtype. */
CO_API co_value *co_concat(co_context *ctx, co_value *xs, int axis);
/** The box that begins at `begin`; a size of -1 means to the end. */
CO_API co_value *co_slice(co_context *ctx, co_value *x, const int64_t *begin, const int64_t *size,
                          size_t n);
/** Dimensions of 1 taken out: those of axes, or all with CO_ALL_AXES. */
CO_API co_value *co_squeeze(co_context *ctx, co_value *x, const int *axes, size_t num_axes);
/** Tensors of one shape and dtype (a list or tuple) joined along a new axis. */
CO_API co_value *co_stack(co_context *ctx, co_value *xs, int axis);
/** A tuple of the slices of x along an axis, without that axis: the reverse of co_stack. */
CO_API co_value *co_unstack(co_context *ctx, co_value *x, int axis);
/** A tuple of `num` equal parts along an axis, or of up to 32 parts of these sizes. One of several
 * sizes may be -1: the rest. */
CO_API co_value *co_split(co_context *ctx, co_value *x, int64_t num, int axis);
CO_API co_value *co_split_sizes(co_context *ctx, co_value *x, const int64_t *sizes, size_t n,
                                int axis);

/** Masks of co_strided_slice. Bit i of each applies to entry i of begin, end and strides. */
typedef struct co_slice_masks {
    size_t   struct_size;
    uint32_t begin;       /* begin[i] is ignored: from the first element */
    uint32_t end;         /* end[i] is ignored: to the last element */
    uint32_t ellipsis;    /* "...": the entry stands for any number of whole dimensions */
    uint32_t new_axis;    /* the entry makes a new dimension of 1 */
    uint32_t shrink_axis; /* the entry is one element, begin[i]; its dimension is removed */
} co_slice_masks;
#define CO_SLICE_MASKS_INIT { sizeof(co_slice_masks), 0, 0, 0, 0, 0 }
/** x[begin:end:strides] as Python has it: negative numbers count from the end, ranges are cut to
 * what is there. strides NULL are 1; masks NULL are the initialiser's. */
CO_API co_value *co_strided_slice(co_context *ctx, co_value *x, const int64_t *begin,
                                  const int64_t *end, const int64_t *strides, size_t n,
                                  const co_slice_masks *masks);
/** The elements along axes from the last to the first. */
CO_API co_value *co_reverse(co_context *ctx, co_value *x, const int *axes, size_t num_axes);
/** Shifted by shift[i] along axes[i]; elements shifted out at one end come in at the other. */
CO_API co_value *co_roll(co_context *ctx, co_value *x, const int64_t *shift, const int *axes,
                         size_t n);
/** Repeated along every axis, multiples[i] times. */
CO_API co_value *co_tile(co_context *ctx, co_value *x, const int64_t *multiples, size_t n);
typedef enum co_pad_mode { CO_PAD_CONSTANT = 0, CO_PAD_REFLECT, CO_PAD_SYMMETRIC } co_pad_mode;
/** Elements before and behind each axis: paddings are pairs, n is twice the rank. REFLECT mirrors
 * at the outermost element, SYMMETRIC behind it, which is then there twice. Of bools the constant
 * 1 is true, of integers it must be whole and fit; strings get empty ones, by the constant 0. */
CO_API co_value *co_pad(co_context *ctx, co_value *x, const int64_t *paddings, size_t n,
                        co_pad_mode mode, double constant);
/** x with zeros outside num_lower diagonals below and num_upper above the main diagonal of each
 * matrix. A negative number keeps all diagonals on its side. */
CO_API co_value *co_band_part(co_context *ctx, co_value *x, int64_t num_lower, int64_t num_upper);
/** Rows of params by index along `axis`. The first batch_dims dimensions of both are batch
 * dimensions: each index refers to its own part of params. The gradient along axis 0 is indexed
 * slices; if the axis is given as a negative number, it is a tensor. */
CO_API co_value *co_gather(co_context *ctx, co_value *params, co_value *indices, int axis,
                           int batch_dims);
/** Rows of a table by id: co_gather along axis 0. The gradient is indexed slices. */
CO_API co_value *co_embedding_lookup(co_context *ctx, co_value *params, co_value *ids);
/** Elements, or slices, by the index vectors that the last dimension of indices holds. */
CO_API co_value *co_gather_nd(co_context *ctx, co_value *params, co_value *indices);
/** Zeros of a shape, to which updates are added at the index vectors. */
CO_API co_value *co_scatter_nd(co_context *ctx, co_value *indices, co_value *updates,
                               const int64_t *dims, int ndim);
/** tensor with updates added to its elements at the index vectors, or replacing them; if index
 * vectors are equal, the last one replaces. */
CO_API co_value *co_tensor_scatter_nd_add(co_context *ctx, co_value *tensor, co_value *indices,
                                          co_value *updates);
CO_API co_value *co_tensor_scatter_nd_update(co_context *ctx, co_value *tensor, co_value *indices,
                                             co_value *updates);
/** Row i of the result is the sum of the rows of data whose id is i; ids has the first dimensions
 * of data. Rows with a negative id are dropped. */
CO_API co_value *co_unsorted_segment_sum(co_context *ctx, co_value *data, co_value *ids,
                                         int64_t num_segments);
/** The coordinates of the nonzero elements, as int64 [n, rank]; x has rank 1 or more. */
CO_API co_value *co_where_index(co_context *ctx, co_value *x);
typedef struct co_one_hot_options {
    size_t   struct_size;
    double   on_value, off_value; /* for an integer dtype whole numbers that fit */
    int      axis;                /* the position of the new axis; -1: the last */
    co_dtype dtype;               /* of the result */
} co_one_hot_options;
#define CO_ONE_HOT_OPTIONS_INIT { sizeof(co_one_hot_options), 1, 0, -1, CO_FLOAT32 }
/**
 * A new axis of `depth` positions: on_value at the position of the index, off_value at the others.
 * An index outside 0 to depth - 1 has off_value everywhere. NULL options are the
 * initialiser's; this sets one field of them:
 *
 *     co_one_hot_options bits = CO_ONE_HOT_OPTIONS_INIT;
 *
 *     bits.dtype = CO_BOOL;
 *     labels = co_one_hot(ctx, digits, 10, &bits);
 */
CO_API co_value *co_one_hot(co_context *ctx, co_value *indices, int64_t depth,
                            const co_one_hot_options *options);

/* Making. */

/** start, start + delta, ... before limit. dtype CO_DTYPE_NONE: int32 for integers, float32
 * else. */
CO_API co_value *co_range(co_context *ctx, co_value *start, co_value *limit, co_value *delta,
                          co_dtype dtype);
CO_API co_value *co_fill(co_context *ctx, const int64_t *dims, int ndim, co_value *value);
CO_API co_value *co_zeros(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);
CO_API co_value *co_ones(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);
/** With the shape and dtype of x. */
CO_API co_value *co_zeros_like(co_context *ctx, co_value *x);
CO_API co_value *co_ones_like(co_context *ctx, co_value *x);
/** A matrix with ones on the diagonal; num_columns -1: as many as rows. */
CO_API co_value *co_eye(co_context *ctx, co_dtype dtype, int64_t num_rows, int64_t num_columns);
/** num evenly spaced numbers from start to stop, both included; dtype is a floating one. */
CO_API co_value *co_linspace(co_context *ctx, co_dtype dtype, double start, double stop,
                             int64_t num);
/** Shape, number of elements and number of dimensions as int32 tensors. */
CO_API co_value *co_shape(co_context *ctx, co_value *x);
CO_API co_value *co_size(co_context *ctx, co_value *x);
CO_API co_value *co_rank(co_context *ctx, co_value *x);

/* Neural networks. Layout is NHWC. */

CO_API co_value *co_softmax(co_context *ctx, co_value *logits, int axis);
CO_API co_value *co_log_softmax(co_context *ctx, co_value *logits, int axis);
/** Cross entropy of each row of logits [..., classes] with its integer label [...]. */
CO_API co_value *co_sparse_softmax_cross_entropy(co_context *ctx, co_value *labels,
                                                 co_value *logits);
/** Cross entropy of logits with labels that are probabilities, along `axis`; both have one shape.
 * Labels of another dtype, such as the 0 and 1 of integers, are cast to that of logits. Labels that
 * do not add up to 1 have the gradient of those that do, as in TensorFlow. */
CO_API co_value *co_softmax_cross_entropy(co_context *ctx, co_value *labels, co_value *logits,
                                          int axis);
/** Cross entropy of each logit with its label, a probability. */
CO_API co_value *co_sigmoid_cross_entropy(co_context *ctx, co_value *labels, co_value *logits);
/** The mean of squared differences over the last axis. */
CO_API co_value *co_mse(co_context *ctx, co_value *y_true, co_value *y_pred);
/** Half the sum of squares. */
CO_API co_value *co_l2_loss(co_context *ctx, co_value *x);

typedef struct co_layer_norm_options {
    size_t     struct_size;
    const int *axes;     /* the features of an example; NULL: the last axis */
    size_t     num_axes;
    double     epsilon;  /* added to the variance */
} co_layer_norm_options;
#define CO_LAYER_NORM_OPTIONS_INIT { sizeof(co_layer_norm_options), NULL, 0, 0.001 }
/** x normalised over the axes of each example, times gamma, plus beta, which broadcast to x. NULL
 * options are the initialiser's. */
CO_API co_value *co_layer_norm(co_context *ctx, co_value *x, co_value *gamma, co_value *beta,
                               const co_layer_norm_options *options);

/** Options of co_batch_norm_train, co_batch_norm_inference and co_sync_batch_norm_train (train.h).
 * */
typedef struct co_batch_norm_options {
    size_t     struct_size;
    const int *axes;     /* to reduce; NULL: all but the last, the channels */
    size_t     num_axes;
    double     momentum; /* of the moving averages, in [0, 1] */
    double     epsilon;  /* added to the variance, finite and not negative; inference uses only
                          * this field */
} co_batch_norm_options;
#define CO_BATCH_NORM_OPTIONS_INIT { sizeof(co_batch_norm_options), NULL, 0, 0.99, 0.001 }
/**
 * x normalised over axes (all but the channels), times gamma, plus beta. A tuple: that, the batch's
 * mean and variance, and the moving ones, each momentum * moving + (1 - momentum) * batch, without
 * gradient. momentum is in [0, 1]; epsilon of all norms here is finite and not negative.
 * A batch without rows does not change the moving ones; its own mean and variance are NaN, and the
 * gradients of gamma and beta are 0. The statistics are those of this replica only;
 * co_sync_batch_norm_train (train.h) uses those of all. NULL options mean the initialiser.
 */
CO_API co_value *co_batch_norm_train(co_context *ctx, co_value *x, co_value *gamma, co_value *beta,
                                     co_value *moving_mean, co_value *moving_variance,
                                     const co_batch_norm_options *options);
/** x normalised with a given mean and variance, which broadcast to x as gamma and beta do. */
CO_API co_value *co_batch_norm_inference(co_context *ctx, co_value *x, co_value *gamma,
                                         co_value *beta, co_value *mean, co_value *variance,
                                         const co_batch_norm_options *options);
/** Over all axes but the last. A tuple: x normalised, the mean, and the variance times n / (n -
 * 1). Both are NaN for a batch without rows, as in TensorFlow; moving averages leave such out. */
CO_API co_value *co_fused_batch_norm_train(co_context *ctx, co_value *x, co_value *scale,
                                           co_value *offset, double epsilon);
/** x / sqrt(max(sum(x * x), epsilon)) over axes. */
CO_API co_value *co_l2_normalize(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                 double epsilon);
/** x, scaled to clip_norm where its norm over axes is larger. */
CO_API co_value *co_clip_by_norm(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                 double clip_norm);
/** The norm of a list or tuple of tensors as one vector. */
CO_API co_value *co_global_norm(co_context *ctx, co_value *xs);
/** A tuple: the tensors of a list or tuple, scaled together to clip_norm where their norm is larger
 * (NaN where it is not finite), and behind them that norm. */
CO_API co_value *co_clip_by_global_norm(co_context *ctx, co_value *xs, double clip_norm);

typedef struct co_attention_options {
    size_t struct_size;
    bool   causal; /* query i sees keys 0 to i; the other keys should be finite too */
    double scale;  /* 0: 1 / sqrt(depth) */
} co_attention_options;
#define CO_ATTENTION_OPTIONS_INIT { sizeof(co_attention_options), false, 0 }
/**
 * Scaled dot-product attention: softmax(scale * q k') v of every head, where k' is k transposed.
 * Each query gets a mean of the values, weighed by how much it is like their keys.
 *
 * q is [..., queries, heads * depth], k [..., keys, heads * depth], v [..., keys, heads * width],
 * and the result [..., queries, heads * width]; the dimensions before the last two are equal. The
 * channels of head h lie together, from h * depth on, as a product with a matrix of weights leaves
 * them: nothing need be transposed. Tensors that have heads as a dimension, [batch, heads, time,
 * depth], are the same with heads = 1.
 *
 * Memory grows with the length, not with its square: probabilities are kept for the gradient if
 * they are not larger than the operands (keys <= 2 * (depth + width)), else computed again.
 * Incompatible shapes, or heads that do not divide the channels, are CO_INVALID_ARGUMENT; the
 * message has all three shapes. NULL options mean the initialiser.
 *
 *     co_attention_options causal = CO_ATTENTION_OPTIONS_INIT;
 *
 *     causal.causal = true;
 *     mixed = co_attention(ctx, co_matmul(ctx, x, wq), co_matmul(ctx, x, wk),
 *                          co_matmul(ctx, x, wv), 4, &causal);
 */
CO_API co_value *co_attention(co_context *ctx, co_value *q, co_value *k, co_value *v, int64_t heads,
                              const co_attention_options *options);

typedef enum co_padding { CO_PADDING_VALID = 0, CO_PADDING_SAME, CO_PADDING_EXPLICIT } co_padding;

typedef struct co_conv2d_options {
    size_t     struct_size;
    int64_t    strides[2]; /* height, width */
    int64_t    dilations[2];
    co_padding padding;
    int64_t    explicit_paddings[4]; /* top, bottom, left, right, with CO_PADDING_EXPLICIT */
} co_conv2d_options;
#define CO_CONV2D_OPTIONS_INIT                                                                     \
    { sizeof(co_conv2d_options), { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0, 0, 0, 0 } }
/** x [n, h, w, in] with filter w [kh, kw, in, out]. NULL options mean the initialiser. */
CO_API co_value *co_conv2d(co_context *ctx, co_value *x, co_value *w,
                           const co_conv2d_options *options);
/** A convolutional layer: activation(conv2d(x, w) + b), b [out]; see co_dense. */
CO_API co_value *co_conv2d_bias(co_context *ctx, co_value *x, co_value *w, co_value *b,
                                co_activation activation, const co_conv2d_options *options);
/** Every channel with filters of its own: w [kh, kw, in, m] gives in * m channels. Strides are
 * equal. */
CO_API co_value *co_depthwise_conv2d(co_context *ctx, co_value *x, co_value *w,
                                     const co_conv2d_options *options);
/** The transpose of co_conv2d with these options: its gradient with respect to its input. x has the
 * shape that co_conv2d would give a tensor of output_dims [n, h, w, out] with w [kh, kw, out, in].
 * */
CO_API co_value *co_conv2d_transpose(co_context *ctx, co_value *x, co_value *w,
                                     const int64_t            output_dims[4],
                                     const co_conv2d_options *options);

typedef struct co_pool2d_options {
    size_t     struct_size;
    int64_t    ksize[2];
    int64_t    strides[2];
    co_padding padding; /* VALID or SAME */
} co_pool2d_options;
#define CO_POOL2D_OPTIONS_INIT { sizeof(co_pool2d_options), { 2, 2 }, { 2, 2 }, CO_PADDING_VALID }
/**
 * The largest element of each window of x [n, h, w, c]. VALID has no window where x is smaller: as
 * in TensorFlow the result is empty then (a 1 x 1 image by 2 x 2 gives [n, 0, 0, c]), and a line of
 * the log says so (CO_LOG_WARNING). A window that is larger than x by two strides or more is
 * CO_INVALID_ARGUMENT. NULL options mean the initialiser.
 */
CO_API co_value *co_max_pool2d(co_context *ctx, co_value *x, const co_pool2d_options *options);
/** The mean of each window, without padding; windows as in co_max_pool2d. */
CO_API co_value *co_avg_pool2d(co_context *ctx, co_value *x, const co_pool2d_options *options);

/* Random numbers: Philox, keyed by the seed of the runtime, a counter of the context and the
 * replica. */

/** Restart the random streams of this context with a seed. Replicas take the seed of the context
 * that runs them. */
CO_API void co_set_seed(co_context *ctx, uint64_t seed);
/**
 * Numbers drawn uniformly from [low, high). dtype is a floating one, float16 to float64, or that of
 * integers, whose bounds are whole numbers of at most 2^53. CO_INVALID_ARGUMENT where a bound is not
 * finite, or is not when it is rounded to dtype, or low is above high; of integers also where they
 * are equal, or dtype cannot hold all numbers between them. The range itself may be larger than the
 * largest number.
 *
 * co_op_call takes one attribute more, here and for co_random_normal: with `op_seed` the numbers are
 * those of another stream, which depends on this seed, on that of the context and on the number of
 * the call.
 */
CO_API co_value *co_random_uniform(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                                   double low, double high);
/**
 * Numbers of the normal distribution, computed in double and rounded to dtype: those beyond its
 * largest number are infinite, as in TensorFlow (a stddev of 40000 makes every tenth float16 so).
 * CO_INVALID_ARGUMENT where mean or stddev is not finite in dtype, or stddev is negative.
 */
CO_API co_value *co_random_normal(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                                  double mean, double stddev);

typedef struct co_random_uniform_options {
    size_t struct_size;
    double low, high;
} co_random_uniform_options;
#define CO_RANDOM_UNIFORM_OPTIONS_INIT { sizeof(co_random_uniform_options), 0, 1 }
typedef struct co_random_normal_options {
    size_t struct_size;
    double mean, stddev;
} co_random_normal_options;
#define CO_RANDOM_NORMAL_OPTIONS_INIT { sizeof(co_random_normal_options), 0, 1 }
/**
 * The same without a state: the numbers are a function of the two seeds, dtype and position alone.
 * They are the same in every replica, on any number of threads, and for every call with these
 * seeds; no other stream advances. Another seed gives other numbers: `(int64_t[]){ 17, step }`.
 * A NULL seed is CO_INVALID_ARGUMENT. NULL options mean the initialiser.
 */
CO_API co_value *co_stateless_random_uniform(co_context *ctx, co_dtype dtype, const int64_t *dims,
                                             int ndim, const int64_t seed[2],
                                             const co_random_uniform_options *options);
CO_API co_value *co_stateless_random_normal(co_context *ctx, co_dtype dtype, const int64_t *dims,
                                            int ndim, const int64_t seed[2],
                                            const co_random_normal_options *options);

/** The rows of x (dimension 0) in a random order, drawn from the same streams. CO_INVALID_ARGUMENT for
 * a scalar. */
CO_API co_value *co_random_shuffle(co_context *ctx, co_value *x);

/** Zeros in the place of about `rate` (in [0, 1)) of the elements, drawn from the same streams; the
 * others are divided by 1 - rate, so that the mean stays. Gradients pass where elements do. */
CO_API co_value *co_dropout(co_context *ctx, co_value *x, double rate);

/* The table. */

/** One operator as the table describes it. Strings live as long as the library. */
typedef struct co_op_info {
    size_t             struct_size;
    const char        *name;       /* "matmul" */
    const char        *doc;        /* one line */
    const char *const *inputs;     /* their names, num_inputs of them */
    size_t             num_inputs;
    bool               variadic;   /* the one input stands for a list */
    const char *const *attrs;      /* "axis:int=-1": name, type and default; no default: required */
    size_t             num_attrs;
    bool               differentiable;
    bool               internal; /* made for gradients and training; not part of the stable set */
    uint32_t           dtypes;   /* 1 << dtype for each that the first input may have; 0: any */
    unsigned           reads, writes; /* bits of co_resource: variables, random counters, ... */
    bool               by_name;       /* co_op_call calls it; what acts on a variable, on replicas or on
                                         an iterator has a public call of its own, and some internal
                                         operators are started by the library alone */
} co_op_info;
#define CO_OP_INFO_INIT                                                                            \
    {                                                                                              \
        sizeof(co_op_info), NULL, NULL, NULL, 0, false, NULL, 0, false, false, 0, 0, 0, false      \
    }

CO_API size_t co_num_ops(void);
/** The i-th entry, in the info that began as CO_OP_INFO_INIT; false past the end. */
CO_API bool co_op_describe(size_t i, co_op_info *info);
/**
 * Call an operator by name: inputs a tuple or list in the order of the table, attrs a dict (or
 * NULL) of host values, lists of host integers, and strings. CO_NOT_FOUND for an unknown operator,
 * CO_TYPE_ERROR for an attribute that is unknown, missing or of the wrong kind. Returns a tensor,
 * or a tuple of tensors.
 */
CO_API co_value *co_op_call(co_context *ctx, const char *name, co_value *inputs, co_value *attrs);
/**
 * The type of what co_op_call would return, without running anything. Arguments and errors are
 * those of co_op_call, and inputs may be specs (co_spec), in which dimensions (-1) and the rank
 * (-1) may be unknown. A dimension of the result is unknown if it depends on an unknown dimension,
 * or on elements that a spec does not have. Returns a spec, a tuple of specs, or CO_KIND_NONE
 * if even the number of results is unknown (unstack along an unknown dimension). Shapes in
 * messages show "?" for an unknown dimension.
 */
CO_API co_value *co_op_infer(co_context *ctx, const char *name, co_value *inputs, co_value *attrs);

CO_EXTERN_C_END

#endif

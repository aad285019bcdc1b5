/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators. Each takes whatever converts to a tensor where it runs: a variable gives the component of
 * this replica, a per-replica value its part, a host number a scalar of the other operand's dtype. Shapes
 * broadcast as in NumPy. An operator that rejects a shape, dtype, axis, index or attribute records
 * CO_INVALID_ARGUMENT (GEN-ERR-4).
 *
 * Every operator is an entry of one table, which co_op_describe shows and co_op_call calls by name; the
 * functions below are the same entries with C arguments.
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
/** Integers of the same dtype; halves are rounded to the even one. No gradient passes. */
CO_API co_value *co_floor(co_context *ctx, co_value *x);
CO_API co_value *co_ceil(co_context *ctx, co_value *x);
CO_API co_value *co_round(co_context *ctx, co_value *x);
CO_API co_value *co_erf(co_context *ctx, co_value *x);
CO_API co_value *co_relu6(co_context *ctx, co_value *x);
CO_API co_value *co_elu(co_context *ctx, co_value *x);
CO_API co_value *co_selu(co_context *ctx, co_value *x);
/** x where it is above zero, else alpha * x. */
CO_API co_value *co_leaky_relu(co_context *ctx, co_value *x, double alpha);
CO_API co_value *co_softplus(co_context *ctx, co_value *x);
CO_API co_value *co_softsign(co_context *ctx, co_value *x);
CO_API co_value *co_silu(co_context *ctx, co_value *x);
CO_API co_value *co_log_sigmoid(co_context *ctx, co_value *x);
/** x times the distribution function of the normal distribution; approximate: the formula with tanh. */
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
/** x / y towards minus infinity, and what it leaves, which has the sign of y. Integers: y must not be 0. */
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

/* Linear algebra. */

/** a x b over the last two dimensions; the others broadcast. */
CO_API co_value *co_matmul(co_context *ctx, co_value *a, co_value *b);
CO_API co_value *co_matmul_transposed(co_context *ctx, co_value *a, co_value *b, bool transpose_a,
                                      bool transpose_b);

/* Reductions. axes NULL reduces all; CO_AXES(0, 1) names some; negative counts from the end. */

CO_API co_value *co_reduce_sum(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
CO_API co_value *co_reduce_mean(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                                bool keepdims);
CO_API co_value *co_reduce_max(co_context *ctx, co_value *x, const int *axes, size_t num_axes,
                               bool keepdims);
/** Index of the largest element along `axis`, the first of equals; `dtype` CO_INT64 (default), CO_INT32. */
CO_API co_value *co_argmax(co_context *ctx, co_value *x, int axis, co_dtype dtype);

/* Shapes. */

/** One dimension may be -1: it is computed. The data is shared, not copied. */
CO_API co_value *co_reshape(co_context *ctx, co_value *x, const int64_t *dims, size_t ndim);
/** perm NULL reverses the dimensions. */
CO_API co_value *co_transpose(co_context *ctx, co_value *x, const int *perm, size_t num_perm);
CO_API co_value *co_expand_dims(co_context *ctx, co_value *x, int axis);
CO_API co_value *co_broadcast_to(co_context *ctx, co_value *x, const int64_t *dims, size_t ndim);
/** `xs` is a list or tuple of tensors of one dtype. */
CO_API co_value *co_concat(co_context *ctx, co_value *xs, int axis);
/** The box that begins at `begin`; a size of -1 means to the end. */
CO_API co_value *co_slice(co_context *ctx, co_value *x, const int64_t *begin, const int64_t *size,
                          size_t n);
/** Rows of params by index along `axis`; the first batch_dims dimensions are matched, not crossed. */
CO_API co_value *co_gather(co_context *ctx, co_value *params, co_value *indices, int axis,
                           int batch_dims);
/** on where the index along the new `axis` equals, off elsewhere; dtype CO_DTYPE_NONE means float32. */
CO_API co_value *co_one_hot(co_context *ctx, co_value *indices, int64_t depth, double on, double off,
                            int axis, co_dtype dtype);

/* Making. */

/** start, start + delta, ... before limit. dtype CO_DTYPE_NONE: int32 for integers, float32 else. */
CO_API co_value *co_range(co_context *ctx, co_value *start, co_value *limit, co_value *delta,
                          co_dtype dtype);
CO_API co_value *co_fill(co_context *ctx, const int64_t *dims, size_t ndim, co_value *value);
CO_API co_value *co_zeros(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim);
CO_API co_value *co_ones(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim);

/* Neural networks. Layout is NHWC. */

CO_API co_value *co_softmax(co_context *ctx, co_value *logits, int axis);
/** Cross entropy of each row of logits [..., classes] with its integer label [...]. */
CO_API co_value *co_sparse_softmax_cross_entropy(co_context *ctx, co_value *labels, co_value *logits);

typedef enum co_padding { CO_PADDING_VALID = 0, CO_PADDING_SAME, CO_PADDING_EXPLICIT } co_padding;

typedef struct co_conv2d_options {
    size_t     struct_size;
    int64_t    strides[2]; /* height, width */
    int64_t    dilations[2];
    co_padding padding;
    int64_t    explicit_paddings[4]; /* top, bottom, left, right, with CO_PADDING_EXPLICIT */
} co_conv2d_options;
#define CO_CONV2D_OPTIONS_INIT                                                                               \
    { sizeof(co_conv2d_options), { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0, 0, 0, 0 } }
/** x [n, h, w, in] with filter w [kh, kw, in, out]. NULL options are the initialiser's. */
CO_API co_value *co_conv2d(co_context *ctx, co_value *x, co_value *w, const co_conv2d_options *options);

typedef struct co_pool2d_options {
    size_t     struct_size;
    int64_t    ksize[2];
    int64_t    strides[2];
    co_padding padding; /* VALID or SAME */
} co_pool2d_options;
#define CO_POOL2D_OPTIONS_INIT { sizeof(co_pool2d_options), { 2, 2 }, { 2, 2 }, CO_PADDING_VALID }
CO_API co_value *co_max_pool2d(co_context *ctx, co_value *x, const co_pool2d_options *options);

/* Random numbers: Philox, keyed by the seed of the runtime, a counter of the context and the replica. */

/** Start the random streams of this context anew. Replicas take the seed of the context that runs them. */
CO_API void co_set_seed(co_context *ctx, uint64_t seed);
CO_API co_value *co_random_uniform(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim,
                                   double low, double high);
CO_API co_value *co_random_normal(co_context *ctx, co_dtype dtype, const int64_t *dims, size_t ndim,
                                  double mean, double stddev);

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
    bool               internal; /* made for gradients; callable, but not part of the stable set */
} co_op_info;
#define CO_OP_INFO_INIT { sizeof(co_op_info), NULL, NULL, NULL, 0, false, NULL, 0, false, false }

CO_API size_t co_num_ops(void);
/** The i-th entry, in the info that began as CO_OP_INFO_INIT; false past the end. */
CO_API bool co_op_describe(size_t i, co_op_info *info);
/**
 * Call an operator by name: inputs a tuple or list in the order of the table, attrs a map (or NULL) of
 * host values, lists of host integers, and strings. CO_NOT_FOUND for an unknown operator, CO_TYPE for an
 * attribute that is unknown, missing or of the wrong kind. Returns a tensor, or a tuple of tensors.
 */
CO_API co_value *co_op_call(co_context *ctx, const char *name, co_value *inputs, co_value *attrs);

CO_EXTERN_C_END

#endif

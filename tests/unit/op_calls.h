/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator of ops.h, called once. Made by scripts/make-op-calls. */
#ifndef OP_CALLS_H
#define OP_CALLS_H

/* clang-format off */
static const int64_t zeros[4] = { 0, 0, 0, 0 }, ones[4] = { 1, 1, 1, 1 };
static const int     both_axes[2] = { 0, 1 };

static void
call_operators_0(co_context *ctx, const goods *g)
{
    NOTHING(co_neg(ctx, g->x));
    NOTHING(co_square(ctx, g->x));
    NOTHING(co_sqrt(ctx, g->x));
    NOTHING(co_exp(ctx, g->x));
    NOTHING(co_log(ctx, g->x));
    NOTHING(co_tanh(ctx, g->x));
    NOTHING(co_sigmoid(ctx, g->x));
    NOTHING(co_relu(ctx, g->x));
    NOTHING(co_abs(ctx, g->x));
    NOTHING(co_sign(ctx, g->x));
    NOTHING(co_rsqrt(ctx, g->x));
    NOTHING(co_reciprocal(ctx, g->x));
    NOTHING(co_log1p(ctx, g->x));
    NOTHING(co_expm1(ctx, g->x));
    NOTHING(co_sin(ctx, g->x));
    NOTHING(co_cos(ctx, g->x));
    NOTHING(co_tan(ctx, g->x));
    NOTHING(co_floor(ctx, g->x));
    NOTHING(co_ceil(ctx, g->x));
    NOTHING(co_round(ctx, g->x));
    NOTHING(co_erf(ctx, g->x));
    NOTHING(co_relu6(ctx, g->x));
    NOTHING(co_elu(ctx, g->x));
    NOTHING(co_selu(ctx, g->x));
    NOTHING(co_leaky_relu(ctx, g->x, 1));
    NOTHING(co_softplus(ctx, g->x));
    NOTHING(co_softsign(ctx, g->x));
    NOTHING(co_silu(ctx, g->x));
    NOTHING(co_log_sigmoid(ctx, g->x));
    NOTHING(co_gelu(ctx, g->x, false));
    NOTHING(co_isnan(ctx, g->x));
    NOTHING(co_isinf(ctx, g->x));
    NOTHING(co_isfinite(ctx, g->x));
    NOTHING(co_logical_not(ctx, g->x));
    NOTHING(co_identity(ctx, g->x));
    NOTHING(co_stop_gradient(ctx, g->x));
    NOTHING(co_cast(ctx, g->x, CO_FLOAT32));
    NOTHING(co_add(ctx, g->x, g->x));
    NOTHING(co_sub(ctx, g->x, g->x));
    NOTHING(co_mul(ctx, g->x, g->x));
    NOTHING(co_div(ctx, g->x, g->x));
    NOTHING(co_maximum(ctx, g->x, g->x));
    NOTHING(co_minimum(ctx, g->x, g->x));
    NOTHING(co_floordiv(ctx, g->x, g->x));
    NOTHING(co_mod(ctx, g->x, g->x));
    NOTHING(co_pow(ctx, g->x, g->x));
    NOTHING(co_squared_difference(ctx, g->x, g->x));
    NOTHING(co_equal(ctx, g->x, g->x));
    NOTHING(co_not_equal(ctx, g->x, g->x));
    NOTHING(co_less(ctx, g->x, g->x));
    NOTHING(co_less_equal(ctx, g->x, g->x));
    NOTHING(co_greater(ctx, g->x, g->x));
    NOTHING(co_greater_equal(ctx, g->x, g->x));
    NOTHING(co_logical_and(ctx, g->x, g->x));
    NOTHING(co_logical_or(ctx, g->x, g->x));
    NOTHING(co_logical_xor(ctx, g->x, g->x));
    NOTHING(co_where(ctx, g->x, g->x, g->x));
    NOTHING(co_clip_by_value(ctx, g->x, 1, 1));
    NOTHING(co_add_n(ctx, g->list));
    NOTHING(co_matmul(ctx, g->x, g->x));
    NOTHING(co_matmul_transposed(ctx, g->x, g->x, false, false));
    NOTHING(co_dense(ctx, g->x, g->x, g->x, (co_activation)0));
    NOTHING(co_matvec(ctx, g->x, g->x, false));
    NOTHING(co_einsum(ctx, "ij->ji", g->list));
    NOTHING(co_reduce_sum(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_mean(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_max(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_min(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_prod(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_all(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_any(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_logsumexp(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_variance(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_std(ctx, g->x, NULL, 0, false));
    NOTHING(co_reduce_euclidean_norm(ctx, g->x, NULL, 0, false));
    NOTHING(co_moments(ctx, g->x, NULL, 0, false));
    NOTHING(co_argmax(ctx, g->x, 0, CO_FLOAT32));
    NOTHING(co_argmin(ctx, g->x, 0, CO_FLOAT32));
    NOTHING(co_cumsum(ctx, g->x, 0, false, false));
    NOTHING(co_cumprod(ctx, g->x, 0, false, false));
    NOTHING(co_top_k(ctx, g->x, 1));
    NOTHING(co_sort(ctx, g->x, 0, false));
    NOTHING(co_argsort(ctx, g->x, 0, false));
    NOTHING(co_reshape(ctx, g->x, ones, 0));
    NOTHING(co_transpose(ctx, g->x, NULL, 0));
    NOTHING(co_expand_dims(ctx, g->x, 0));
    NOTHING(co_broadcast_to(ctx, g->x, ones, 0));
    NOTHING(co_concat(ctx, g->list, 0));
    NOTHING(co_slice(ctx, g->x, zeros, ones, 2));
    NOTHING(co_squeeze(ctx, g->x, NULL, 0));
    NOTHING(co_stack(ctx, g->list, 0));
    NOTHING(co_unstack(ctx, g->x, 0));
    NOTHING(co_split(ctx, g->x, 1, 0));
    NOTHING(co_split_sizes(ctx, g->x, ones, 2, 0));
    NOTHING(co_strided_slice(ctx, g->x, zeros, ones, ones, 2, NULL));
    NOTHING(co_reverse(ctx, g->x, NULL, 0));
    NOTHING(co_roll(ctx, g->x, ones, both_axes, 2));
    NOTHING(co_tile(ctx, g->x, ones, 2));
    NOTHING(co_pad(ctx, g->x, zeros, 4, (co_pad_mode)0, 1));
    NOTHING(co_band_part(ctx, g->x, 1, 1));
}

static void
call_operators_1(co_context *ctx, const goods *g)
{
    NOTHING(co_gather(ctx, g->x, g->i, 0, 0));
    NOTHING(co_embedding_lookup(ctx, g->x, g->i));
    NOTHING(co_gather_nd(ctx, g->x, g->i));
    NOTHING(co_scatter_nd(ctx, g->i, g->x, ones, 0));
    NOTHING(co_tensor_scatter_nd_add(ctx, g->x, g->i, g->x));
    NOTHING(co_tensor_scatter_nd_update(ctx, g->x, g->i, g->x));
    NOTHING(co_unsorted_segment_sum(ctx, g->x, g->i, 1));
    NOTHING(co_where_index(ctx, g->x));
    NOTHING(co_one_hot(ctx, g->i, 1, NULL));
    NOTHING(co_range(ctx, g->i, g->i, g->i, CO_FLOAT32));
    NOTHING(co_fill(ctx, ones, 0, g->i));
    NOTHING(co_zeros(ctx, CO_FLOAT32, ones, 0));
    NOTHING(co_ones(ctx, CO_FLOAT32, ones, 0));
    NOTHING(co_zeros_like(ctx, g->x));
    NOTHING(co_ones_like(ctx, g->x));
    NOTHING(co_eye(ctx, CO_FLOAT32, 1, 1));
    NOTHING(co_linspace(ctx, CO_FLOAT32, 1, 1, 1));
    NOTHING(co_shape(ctx, g->x));
    NOTHING(co_size(ctx, g->x));
    NOTHING(co_rank(ctx, g->x));
    NOTHING(co_softmax(ctx, g->x, 0));
    NOTHING(co_log_softmax(ctx, g->x, 0));
    NOTHING(co_sparse_softmax_cross_entropy(ctx, g->i, g->x));
    NOTHING(co_softmax_cross_entropy(ctx, g->i, g->x, 0));
    NOTHING(co_sigmoid_cross_entropy(ctx, g->i, g->x));
    NOTHING(co_mse(ctx, g->x, g->x));
    NOTHING(co_l2_loss(ctx, g->x));
    NOTHING(co_layer_norm(ctx, g->x, g->x, g->x, NULL));
    NOTHING(co_batch_norm_train(ctx, g->x, g->x, g->x, g->x, g->x, NULL));
    NOTHING(co_batch_norm_inference(ctx, g->x, g->x, g->x, g->x, g->x, NULL));
    NOTHING(co_fused_batch_norm_train(ctx, g->x, g->x, g->x, 1));
    NOTHING(co_l2_normalize(ctx, g->x, NULL, 0, 1));
    NOTHING(co_clip_by_norm(ctx, g->x, NULL, 0, 1));
    NOTHING(co_global_norm(ctx, g->list));
    NOTHING(co_clip_by_global_norm(ctx, g->list, 1));
    NOTHING(co_attention(ctx, g->x, g->x, g->x, 1, NULL));
    NOTHING(co_conv2d(ctx, g->x, g->x, NULL));
    NOTHING(co_conv2d_bias(ctx, g->x, g->x, g->x, (co_activation)0, NULL));
    NOTHING(co_depthwise_conv2d(ctx, g->x, g->x, NULL));
    NOTHING(co_conv2d_transpose(ctx, g->x, g->x, ones, NULL));
    NOTHING(co_max_pool2d(ctx, g->x, NULL));
    NOTHING(co_avg_pool2d(ctx, g->x, NULL));
    NOTHING(co_random_uniform(ctx, CO_FLOAT32, ones, 0, 1, 1));
    NOTHING(co_random_normal(ctx, CO_FLOAT32, ones, 0, 1, 1));
    NOTHING(co_stateless_random_uniform(ctx, CO_FLOAT32, ones, 0, ones, NULL));
    NOTHING(co_stateless_random_normal(ctx, CO_FLOAT32, ones, 0, ones, NULL));
    NOTHING(co_random_shuffle(ctx, g->x));
    NOTHING(co_dropout(ctx, g->x, 1));
    NOTHING(co_op_infer(ctx, "ij->ji", g->x, g->x));
}

static void
call_every_operator(co_context *ctx, const goods *g)
{
    call_operators_0(ctx, g);
    call_operators_1(ctx, g);
}
/* clang-format on */

#endif

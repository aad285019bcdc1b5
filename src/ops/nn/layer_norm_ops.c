/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm over the last axes and its gradient, each as one operator. The statistics of rows are
 * a second result, so that the gradient has none to compute. While a tape records the gradient, it
 * is a composite of other operators, which have gradients of any order. Kernels are in
 * ops/kernels/row_kernels.h, the plain version in ops/kernels/ref/ref_layer_norm.c.
 */
#include "ops/kernels/layer_norm.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/row_kernels.h"
#include "ops/kernels/softmax.h"
#include "ops/engine/type_rules.h"

static int64_t
dims_product(const co_value *x, int first, int end)
{
    int64_t product = 1;

    for (int d = first; d < end; ++d)
        product *= x->u.tensor.dims[d];
    return product;
}

static int64_t
row_elements(const co_value *x, const coi_norm_attrs *attrs)
{
    return dims_product(x, x->ndim - (int)attrs->num_axes, x->ndim);
}

/* Whether y is one row of x: its last dimensions are those of x, the others, if there are any,
 * are 1. */
static bool
is_one_row(const co_value *x, const co_value *y, int num_axes)
{
    bool is_one = y->ndim >= num_axes;

    for (int d = 1; is_one && d <= y->ndim; ++d)
        is_one = y->u.tensor.dims[y->ndim - d] ==
                 (d <= num_axes ? x->u.tensor.dims[x->ndim - d] : 1);
    return is_one;
}

bool
coi_norm_is_rows(co_value *const *in, int num_axes)
{
    return is_one_row(in[0], in[1], num_axes) && is_one_row(in[0], in[2], num_axes);
}

/* x, gamma, then beta or g. */
typedef struct job {
    const coi_row_kernels *kernels;
    size_t                 size; /* of an element */
    int64_t                num_rows, dim, rows_per_chunk;
    double                 epsilon;
    const char            *x, *gamma, *other;
    char                  *out, *statistics, *dgamma, *dbeta;
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    first = chunk * j->rows_per_chunk, n = j->num_rows - first;
    size_t     row_size = (size_t)j->dim * j->size, at = (size_t)first * row_size;
    char      *statistics = j->statistics + (size_t)(first * COI_NORM_STATISTICS) * j->size;

    n = n < j->rows_per_chunk ? n : j->rows_per_chunk;
    if (j->dgamma == NULL)
        j->kernels->norm(j->x + at, j->gamma, j->other, j->out + at, statistics, n, j->dim,
                         j->epsilon);
    else
        j->kernels->norm_grad(j->x + at, j->gamma, j->other + at, statistics, j->out + at,
                              j->dgamma + (size_t)chunk * row_size,
                              j->dbeta + (size_t)chunk * row_size, n, j->dim);
}

static co_code
norm_run(coi_call *call)
{
    const coi_norm_attrs *attrs = call->attrs;
    bool                  is_grad = call->num_in == 4;
    co_dtype              dtype = (co_dtype)call->in[0]->dtype;
    job                   j = { .kernels = coi_row_kernels_of(call->ctx->runtime->isa, dtype),
                                .size = coi_dtypes[dtype].size,
                                .dim = row_elements(call->in[0], attrs),
                                .epsilon = attrs->epsilon,
                                .x = COI_IN(call, 0, char),
                                .gamma = COI_IN(call, 1, char),
                                .other = COI_IN(call, 2, char),
                                .out = COI_OUT(call, 0, char),
                                .statistics = is_grad ? call->in[3]->u.tensor.data : call->out[1]->u.tensor.data };

    if (call->in[0]->u.tensor.num_elements == 0)
        return CO_OK;
    j.num_rows = call->in[0]->u.tensor.num_elements / j.dim;
    j.rows_per_chunk = coi_softmax_chunk_rows(j.dim);
    if (is_grad) {
        j.rows_per_chunk = coi_norm_chunk_rows(j.dim);
        j.dgamma = COI_OUT(call, 1, char);
        j.dbeta = COI_OUT(call, 2, char);
    }
    coi_parallel(call, (j.num_rows + j.rows_per_chunk - 1) / j.rows_per_chunk, run_chunk, &j);
    return CO_OK;
}

/* Statistics and partial sums of halves are floats. */
static co_dtype
wide_dtype(const co_value *x)
{
    return x->dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32;
}

/* A matrix of floats with a line for each `rows` rows of x. */
static coi_out
lines(const co_value *x, const coi_norm_attrs *attrs, int64_t rows, int64_t columns)
{
    int64_t num_rows = COI_UNKNOWN;

    if (coi_is_known_shape(x))
        num_rows = (dims_product(x, 0, x->ndim - (int)attrs->num_axes) + rows - 1) / rows;
    return (coi_out){ .dtype = wide_dtype(x), .ndim = 2, .dims = { num_rows, columns } };
}

static co_code
norm_infer(coi_call *call, coi_out *outs)
{
    outs[1] = lines(call->in[0], call->attrs, 1, COI_NORM_STATISTICS);
    return coi_rule_same(call, outs);
}

/* The gradient of x, and sums for those of gamma and beta, a row for each chunk. */
static co_code
norm_grad_infer(coi_call *call, coi_out *outs)
{
    bool    knows = coi_is_known_shape(call->in[0]);
    int64_t dim = knows ? row_elements(call->in[0], call->attrs) : COI_UNKNOWN;

    outs[1] = outs[2] = lines(call->in[0], call->attrs, knows ? coi_norm_chunk_rows(dim) : 1, dim);
    return coi_rule_same(call, outs);
}

static const coi_op norm_grad = {
    .name = "layer_norm_grad",
    .inputs = { "x", "gamma", "g", "statistics" },
    .num_inputs = 4,
    .num_outputs = 3,
    .attrs_rule.size = sizeof(coi_norm_attrs),
    .not_differentiable = true,
    .infer = norm_grad_infer,
    .upcasts = true,
    .ref = coi_ref_norm_grad,
    .run = norm_run,
};

/* Sums of chunks as the gradient of gamma or beta. */
static co_value *
total(co_context *ctx, co_value *parts, co_value *like)
{
    co_value *sum = co_reduce_sum(ctx, parts, CO_AXES(0), false);

    return coi_reshape_like(ctx, co_cast(ctx, sum, (co_dtype)like->dtype), like);
}

static co_value *
row_mean(co_context *ctx, co_value *x, const coi_norm_attrs *attrs)
{
    int axes[CO_MAX_DIMS];

    for (int i = 0; i < attrs->num_axes; ++i)
        axes[i] = -1 - i;
    return co_reduce_mean(ctx, x, axes, (size_t)attrs->num_axes, true);
}

/* The gradients as compositions, for gradients of them: with z the x that was normalised and h = g
 * gamma, those of x are (h - mean(h) - z mean(h z)) / deviation. */
static co_code
composed_gradient(coi_grad *grad)
{
    const coi_norm_attrs *attrs = grad->attrs;
    co_context           *ctx = grad->ctx;
    co_value             *x = grad->in[0], *gamma = grad->in[1], *g = grad->upstream[0];
    co_value             *z = co_sub(ctx, x, row_mean(ctx, x, attrs)), *h = co_mul(ctx, g, gamma);
    co_value             *scale = co_rsqrt(ctx, co_add(ctx, row_mean(ctx, co_square(ctx, z), attrs),
                                                       co_float(ctx, attrs->epsilon)));

    z = co_mul(ctx, z, scale);
    if (grad->needed[0]) {
        co_value *along = co_mul(ctx, z, row_mean(ctx, co_mul(ctx, h, z), attrs));

        grad->grads[0] = co_mul(ctx, co_sub(ctx, co_sub(ctx, h, row_mean(ctx, h, attrs)), along),
                                scale);
    }
    if (grad->needed[1])
        grad->grads[1] = coi_unbroadcast(ctx, co_mul(ctx, g, z), gamma);
    if (grad->needed[2])
        grad->grads[2] = coi_unbroadcast(ctx, g, grad->in[2]);
    return ctx->error.code;
}

static co_code
norm_gradient(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *in[4] = { grad->in[0], grad->in[1], grad->upstream[0], grad->out[1] }, *outs[3];

    if (ctx->recording)
        return composed_gradient(grad);
    if (coi_apply_many(ctx, &norm_grad, in, 4, grad->attrs, outs) != CO_OK)
        return ctx->error.code;
    grad->grads[0] = outs[0];
    for (int i = 1; i < 3; ++i)
        if (grad->needed[i])
            grad->grads[i] = total(ctx, outs[i], grad->in[i]);
    return ctx->error.code;
}

static const coi_op norm = {
    .name = "layer_norm",
    .inputs = { "x", "gamma", "beta" },
    .num_inputs = 3,
    .num_outputs = 2,
    .attrs_rule.size = sizeof(coi_norm_attrs),
    .infer = norm_infer,
    .upcasts = true,
    .ref = coi_ref_norm,
    .run = norm_run,
    .grad = norm_gradient,
};

co_value *
coi_norm_rows(co_context *ctx, co_value *const *in, int num_axes, double epsilon)
{
    coi_norm_attrs attrs = { .epsilon = epsilon, .num_axes = num_axes };
    co_value      *outs[2];

    return coi_apply_many(ctx, &norm, in, 3, &attrs, outs) == CO_OK ? outs[0] : NULL;
}

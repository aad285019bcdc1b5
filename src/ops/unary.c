/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of one operand, and identity and stop_gradient, which share the data of theirs.
 */
#include "ops/dtypes.h"
#include "ops/list.h"
#include "ops/ref/ref.h"
#include "ops/simd/loops.h"
#include "ops/walk.h"

static const coi_unary_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_unary_loops);

typedef struct unary_job {
    coi_unary_fn loop;
    char        *out;
    const char  *x;
    size_t       size; /* of an element; in and out have the same dtype */
    int64_t      n, per_chunk;
} unary_job;

static void
unary_chunk(void *arg, int64_t chunk)
{
    const unary_job *job = arg;
    int64_t          begin = chunk * job->per_chunk;
    int64_t          n = job->n - begin < job->per_chunk ? job->n - begin : job->per_chunk;

    job->loop(job->out + (size_t)begin * job->size, job->x + (size_t)begin * job->size, n);
}

static co_code
unary(coi_call *call, coi_unary_kind kind)
{
    const co_value *x = call->in[0];
    int64_t         n = x->u.tensor.num_elements;
    unary_job       job;

    job.loop = tables[call->ctx->runtime->isa]->at[kind][x->dtype];
    if (job.loop == NULL)
        job.loop = coi_unary_loops_rare.at[kind][x->dtype];
    if (n <= COI_PARALLEL_ELEMENTS) {
        job.loop(call->out[0]->u.tensor.data, x->u.tensor.data, n);
        return CO_OK;
    }
    job.out = COI_OUT(call, 0, char);
    job.x = COI_IN(call, 0, char);
    job.size = coi_dtypes[x->dtype].size;
    job.n = n;
    coi_parallel(call, coi_num_chunks(n, 1, &job.per_chunk), unary_chunk, &job);
    return CO_OK;
}

/* The parts that every operator of the family has. */
#define UNARY(name_, doc_, kind_, dtypes_)                                                         \
    static co_code name_##_run(coi_call *call)                                                     \
    {                                                                                              \
        return unary(call, kind_);                                                                 \
    }                                                                                              \
    const coi_op coi_op_##name_ = {                                                                \
        .name = #name_,                                                                            \
        .doc = doc_,                                                                               \
        .inputs = { "x" },                                                                         \
        .num_inputs = 1,                                                                           \
        .num_outputs = 1,                                                                          \
        .dtypes = dtypes_,                                                                         \
        .infer = coi_rule_same,                                                                    \
        .ref = coi_ref_##name_,                                                                    \
        .run = name_##_run,                                                                        \
        .grad = name_##_grad,                                                                      \
    };                                                                                             \
    co_value *co_##name_(co_context *ctx, co_value *x)                                             \
    {                                                                                              \
        return coi_apply1(ctx, &coi_op_##name_, x, NULL);                                          \
    }

static co_code
neg_grad(coi_grad *g)
{
    g->grads[0] = co_neg(g->ctx, g->upstream[0]);
    return g->ctx->error.code;
}

/* 2 x dy */
static co_code
square_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;

    g->grads[0] = co_mul(ctx, g->upstream[0], co_mul(ctx, g->in[0], co_float(ctx, 2)));
    return ctx->error.code;
}

/* dy / 2 / y */
static co_code
sqrt_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;

    g->grads[0] = co_div(ctx, co_mul(ctx, g->upstream[0], co_float(ctx, 0.5)), g->out[0]);
    return ctx->error.code;
}

static co_code
exp_grad(coi_grad *g)
{
    g->grads[0] = co_mul(g->ctx, g->upstream[0], g->out[0]);
    return g->ctx->error.code;
}

static co_code
log_grad(coi_grad *g)
{
    g->grads[0] = co_div(g->ctx, g->upstream[0], g->in[0]);
    return g->ctx->error.code;
}

/* These three are steps of every training loop, so they are operators of their own (binary.c). */

static co_code
tanh_grad(coi_grad *g)
{
    g->grads[0] = coi_apply2(g->ctx, &coi_op_tanh_grad, g->out[0], g->upstream[0], NULL);
    return g->ctx->error.code;
}

static co_code
sigmoid_grad(coi_grad *g)
{
    g->grads[0] = coi_apply2(g->ctx, &coi_op_sigmoid_grad, g->out[0], g->upstream[0], NULL);
    return g->ctx->error.code;
}

static co_code
relu_grad(coi_grad *g)
{
    g->grads[0] = coi_apply2(g->ctx, &coi_op_relu_grad, g->out[0], g->upstream[0], NULL);
    return g->ctx->error.code;
}

UNARY(neg, "The negative of x; integers wrap.", COI_NEG, COI_FLOATS | COI_SIGNED_INTEGERS)
UNARY(square, "x * x; integers wrap.", COI_SQUARE, COI_NUMBERS)
UNARY(sqrt, "The square root; NaN below zero.", COI_SQRT, COI_FLOATS)
UNARY(exp, "e to the power x.", COI_EXP, COI_FLOATS)
UNARY(log, "The natural logarithm; -inf at zero, NaN below.", COI_LOG, COI_FLOATS)
UNARY(tanh, "The hyperbolic tangent.", COI_TANH, COI_FLOATS)
UNARY(sigmoid, "1 / (1 + exp(-x))", COI_SIGMOID, COI_FLOATS)
UNARY(relu, "x where it is above zero, else 0.", COI_RELU, COI_NUMBERS)

static co_code
identity_grad(coi_grad *g)
{
    g->grads[0] = g->upstream[0];
    return CO_OK;
}

const coi_op coi_op_identity = {
    .name = "identity",
    .doc = "The same tensor; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .infer = coi_rule_same,
    .view = true,
    .grad = identity_grad,
};

co_value *
co_identity(co_context *ctx, co_value *x)
{
    return coi_apply1(ctx, &coi_op_identity, x, NULL);
}

const coi_op coi_op_stop_gradient = {
    .name = "stop_gradient",
    .doc = "The same tensor, through which no gradient passes; the data is shared.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .not_differentiable = true,
    .infer = coi_rule_same,
    .view = true,
};

co_value *
co_stop_gradient(co_context *ctx, co_value *x)
{
    return coi_apply1(ctx, &coi_op_stop_gradient, x, NULL);
}

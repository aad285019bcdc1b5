/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of one operand, and identity and stop_gradient, which share the data of
 * theirs.
 */
#include "ops/kernels/elementwise.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/ref/ref.h"

/* Entries of other files. */
COI_USES_OP(elu_grad)
COI_USES_OP(gelu)
COI_USES_OP(gelu_tanh_grad)
COI_USES_OP(relu6_grad)
COI_USES_OP(relu_grad)
COI_USES_OP(selu_grad)
COI_USES_OP(sigmoid_grad)
COI_USES_OP(tanh_grad)
COI_USES_OP(where_flowing)

static co_code
test_rule(coi_call *call, coi_out *outs)
{
    coi_rule_same(call, outs);
    outs[0].dtype = CO_BOOL;
    return CO_OK;
}

/*
 * Gradients. up is what flows in, x the operand, y the result; each is an expression of public
 * operators, so that it can be differentiated again.
 */
#define GRADIENT(name_, expression)                                                                \
    static co_code name_##_grad(coi_grad *g)                                                       \
    {                                                                                              \
        co_context *ctx = g->ctx;                                                                  \
        co_value   *x = g->in[0], *y = g->out[0], *up = g->upstream[0];                            \
                                                                                                   \
        (void)x, (void)y, (void)up;                                                                \
        g->grads[0] = (expression);                                                                \
        return ctx->error.code;                                                                    \
    }

static co_value *
one_plus(co_context *ctx, co_value *x)
{
    return co_add(ctx, x, co_int(ctx, 1));
}

static co_value *
one_minus(co_context *ctx, co_value *x)
{
    return co_sub(ctx, co_int(ctx, 1), x);
}

static co_value *
scaled(co_context *ctx, double factor, co_value *x)
{
    return co_mul(ctx, x, co_float(ctx, factor));
}

/* s (1 + x (1 - s)), s the sigmoid of x. */
static co_value *
silu_slope(co_context *ctx, co_value *x)
{
    co_value *s = co_sigmoid(ctx, x);

    return co_mul(ctx, s, one_plus(ctx, co_mul(ctx, x, one_minus(ctx, s))));
}

/* A gradient, but 0 where nothing flows in, as TensorFlow has it: the root of a zero that does not
 * count has no slope, and should not spoil the others. */
static co_value *
where_it_flows(co_context *ctx, co_value *up, co_value *gradient)
{
    return coi_apply2(ctx, &coi_op_where_flowing, gradient, up, NULL);
}

GRADIENT(neg, co_neg(ctx, up))
GRADIENT(square, co_mul(ctx, up, scaled(ctx, 2, x)))
GRADIENT(sqrt, where_it_flows(ctx, up, co_div(ctx, scaled(ctx, 0.5, up), y)))
GRADIENT(exp, co_mul(ctx, up, y))
GRADIENT(log, co_div(ctx, up, x))
GRADIENT(abs, co_mul(ctx, up, co_sign(ctx, x)))
GRADIENT(sign, coi_zeros_of(ctx, x))
GRADIENT(rsqrt,
         where_it_flows(ctx, up,
                        co_mul(ctx, scaled(ctx, -0.5, up), co_mul(ctx, co_square(ctx, y), y))))
GRADIENT(reciprocal, where_it_flows(ctx, up, co_neg(ctx, co_mul(ctx, up, co_square(ctx, y)))))
GRADIENT(log1p, co_div(ctx, up, one_plus(ctx, x)))
GRADIENT(expm1, co_mul(ctx, up, one_plus(ctx, y)))
GRADIENT(sin, co_mul(ctx, up, co_cos(ctx, x)))
GRADIENT(cos, co_neg(ctx, co_mul(ctx, up, co_sin(ctx, x))))
GRADIENT(tan, co_mul(ctx, up, co_square(ctx, co_reciprocal(ctx, co_cos(ctx, x)))))
GRADIENT(erf, co_mul(ctx, scaled(ctx, 1.1283791670955126, up), /* 2 / sqrt(pi) */
                     co_exp(ctx, co_neg(ctx, co_square(ctx, x)))))
GRADIENT(softplus, co_mul(ctx, up, co_sigmoid(ctx, x)))
GRADIENT(softsign, co_div(ctx, up, co_square(ctx, one_plus(ctx, co_abs(ctx, x)))))
GRADIENT(silu, co_mul(ctx, up, silu_slope(ctx, x)))
GRADIENT(log_sigmoid, co_mul(ctx, up, co_sigmoid(ctx, co_neg(ctx, x))))
/* Steps of every training loop, so they are operators of their own (binary_ops.c). */
GRADIENT(tanh, coi_apply_backward(g, &coi_op_tanh_grad, y))
GRADIENT(sigmoid, coi_apply_backward(g, &coi_op_sigmoid_grad, y))
GRADIENT(relu, coi_apply_backward(g, &coi_op_relu_grad, y))
GRADIENT(relu6, coi_apply_backward(g, &coi_op_relu6_grad, y))
GRADIENT(elu, coi_apply_backward(g, &coi_op_elu_grad, y))
GRADIENT(selu, coi_apply_backward(g, &coi_op_selu_grad, y))

/* The parts that every operator of the family has; what follows the documentation goes into the
 * initialiser. */
#define UNARY(name_, doc_, kind_, dtypes_, ...)                                                    \
    const coi_op coi_op_##name_ = { .name = #name_,                                                \
                                    .doc = doc_,                                                   \
                                    .inputs = { "x" },                                             \
                                    .num_inputs = 1,                                               \
                                    .num_outputs = 1,                                              \
                                    .kind = kind_,                                                 \
                                    .dtypes = dtypes_,                                             \
                                    .ref = coi_ref_unary,                                          \
                                    .run = coi_unary_run,                                          \
                                    __VA_ARGS__ };                                                 \
    co_value    *co_##name_(co_context *ctx, co_value *x)                                          \
    {                                                                                              \
        return coi_apply1(ctx, &coi_op_##name_, x, NULL);                                          \
    }
#define SMOOTH(name_, doc_, kind_, dtypes_)                                                        \
    UNARY(name_, doc_, kind_, dtypes_, .infer = coi_rule_same, .grad = name_##_grad)
/* Steps: no gradient flows. */
#define STEPS(name_, doc_, kind_, dtypes_)                                                         \
    UNARY(name_, doc_, kind_, dtypes_, .infer = coi_rule_same, .not_differentiable = true)
#define TEST(name_, doc_, kind_, dtypes_)                                                          \
    UNARY(name_, doc_, kind_, dtypes_, .infer = test_rule, .not_differentiable = true)

SMOOTH(neg, "The negative of x; integers wrap.", COI_NEG, COI_FLOATS | COI_SIGNED_INTEGERS)
SMOOTH(square, "x * x; integers wrap.", COI_SQUARE, COI_NUMBERS)
SMOOTH(sqrt, "The square root; NaN below zero.", COI_SQRT, COI_FLOATS)
SMOOTH(exp, "e to the power x.", COI_EXP, COI_FLOATS)
SMOOTH(log, "The natural logarithm; -inf at zero, NaN below.", COI_LOG, COI_FLOATS)
SMOOTH(tanh, "The hyperbolic tangent.", COI_TANH, COI_FLOATS)
SMOOTH(sigmoid, "1 / (1 + exp(-x))", COI_SIGMOID, COI_FLOATS)
SMOOTH(relu, "x if x > 0, else 0.", COI_RELU, COI_NUMBERS)
SMOOTH(abs, "The absolute value of x.", COI_ABS, COI_FLOATS | COI_SIGNED_INTEGERS)
SMOOTH(sign, "-1, 0 or 1; NaN stays.", COI_SIGN, COI_FLOATS | COI_SIGNED_INTEGERS)
SMOOTH(rsqrt, "1 / sqrt(x)", COI_RSQRT, COI_FLOATS)
SMOOTH(reciprocal, "1 / x", COI_RECIPROCAL, COI_FLOATS)
SMOOTH(log1p, "log(1 + x), accurate for small x.", COI_LOG1P, COI_FLOATS)
SMOOTH(expm1, "exp(x) - 1, accurate for small x.", COI_EXPM1, COI_FLOATS)
SMOOTH(sin, "The sine of x radians.", COI_SIN, COI_FLOATS)
SMOOTH(cos, "The cosine of x radians.", COI_COS, COI_FLOATS)
SMOOTH(tan, "The tangent of x radians.", COI_TAN, COI_FLOATS)
STEPS(floor, "The largest integer that is not above x.", COI_FLOOR, COI_FLOATS)
STEPS(ceil, "The smallest integer that is not below x.", COI_CEIL, COI_FLOATS)
STEPS(round, "The nearest integer; ties go to the even one.", COI_ROUND, COI_NUMBERS)
SMOOTH(erf, "The error function.", COI_ERF, COI_FLOATS)
SMOOTH(relu6, "x limited to the range 0 to 6.", COI_RELU6, COI_NUMBERS)
SMOOTH(elu, "x if x > 0, else exp(x) - 1.", COI_ELU, COI_FLOATS)
SMOOTH(selu, "elu, scaled so that activations of deep networks keep mean and variance.", COI_SELU,
       COI_FLOATS)
SMOOTH(softplus, "log(1 + exp(x)), without overflow.", COI_SOFTPLUS, COI_FLOATS)
SMOOTH(softsign, "x / (1 + |x|)", COI_SOFTSIGN, COI_FLOATS)
SMOOTH(silu, "x * sigmoid(x)", COI_SILU, COI_FLOATS)
SMOOTH(log_sigmoid, "log(sigmoid(x)), without overflow.", COI_LOG_SIGMOID, COI_FLOATS)
TEST(isnan, "Whether x is not a number, as bool.", COI_ISNAN, COI_FLOATS)
TEST(isinf, "Whether x is infinite, as bool.", COI_ISINF, COI_FLOATS)
TEST(isfinite, "Whether x is a finite number, as bool.", COI_ISFINITE, COI_FLOATS)
TEST(logical_not, "Whether x is false, as bool.", COI_LOGICAL_NOT, COI_DTYPE_BIT(CO_BOOL))

#define GELU_ATTRS(X) X(coi_gelu_attrs, approximate, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_gelu_attrs, GELU_ATTRS)

/* cdf(x) + x pdf(x) of the normal distribution, with the constants of the kernels. */
static co_value *
gelu_slope(co_context *ctx, co_value *x)
{
    const double r = (double)0.70710678118654752f;
    co_value    *z = scaled(ctx, r, x);
    co_value    *cdf = scaled(ctx, 0.5, one_plus(ctx, co_erf(ctx, z)));
    co_value    *bell = co_exp(ctx, co_neg(ctx, co_square(ctx, z)));

    return co_add(ctx, cdf, co_mul(ctx, x, scaled(ctx, r * 0.56418958354775629, bell)));
}

static co_code
gelu_grad(coi_grad *g)
{
    const coi_gelu_attrs *attrs = g->attrs;
    co_value             *x = g->in[0], *up = g->upstream[0];

    g->grads[0] = attrs->approximate ? coi_apply_backward(g, &coi_op_gelu_tanh_grad, x)
                                     : co_mul(g->ctx, up, gelu_slope(g->ctx, x));
    return g->ctx->error.code;
}

const coi_op coi_op_gelu = {
    .name = "gelu",
    .doc = "x times the normal distribution function of x; `approximate` uses tanh.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    COI_ATTRS(coi_gelu_attrs),
    .infer = coi_rule_same,
    .ref = coi_ref_gelu,
    .run = coi_gelu_run,
    .grad = gelu_grad,
};

co_value *
co_gelu(co_context *ctx, co_value *x, bool approximate)
{
    coi_gelu_attrs attrs = { approximate };

    return coi_apply1(ctx, &coi_op_gelu, x, &attrs);
}

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

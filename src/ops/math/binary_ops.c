/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of two operands, with broadcasting: rules and gradients.
 */
#include "ops/kernels/elementwise.h"

#include "ops/engine/dtype_sets.h"
#include "ops/kernels/compute_type.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

/* Entries of other files. */
COI_USES_OP(greater_equal)
COI_USES_OP(less_equal)

static co_code
div_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_rule_broadcast(call, outs);

    if (code == CO_OK && !coi_dtypes[outs[0].dtype].floating)
        outs[0].dtype = coi_dtypes[outs[0].dtype].size <= 2 ? CO_FLOAT32 : CO_FLOAT64;
    return code;
}

static co_code
compare_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_rule_broadcast(call, outs);

    outs[0].dtype = CO_BOOL;
    return code;
}

/* The first element of y that is 0, or below it; -1 if there is none. */
static int64_t
find_number(const co_value *y, bool is_negative)
{
    size_t  size = coi_dtypes[y->dtype].size;
    int64_t n = y->u.tensor.num_elements, block[COI_COMPUTE_BLOCK];

    for (int64_t i = 0; i < n; i += COI_COMPUTE_BLOCK) {
        int64_t m = n - i < COI_COMPUTE_BLOCK ? n - i : COI_COMPUTE_BLOCK;

        coi_convert((co_dtype)y->dtype, (const char *)coi_data_on_host(y) + (size_t)i * size,
                    CO_INT64, block, m);
        for (int64_t k = 0; k < m; ++k)
            if (is_negative ? block[k] < 0 : block[k] == 0)
                return i + k;
    }
    return -1;
}

/* Whether there are elements for certain. */
static bool
has_elements(const coi_out *out)
{
    for (int d = 0; d < out->ndim; ++d)
        if (out->dims[d] <= 0)
            return false;
    return out->ndim >= 0;
}

/* Integers are not divided by zero, nor raised to negative powers. */
static co_code
integer_rule(coi_call *call, coi_out *outs)
{
    co_value *y = call->in[1];
    bool      is_power = call->op->kind == COI_POW;
    co_code   code = coi_rule_broadcast(call, outs);
    int64_t   at;

    if (code != CO_OK || !coi_dtypes[y->dtype].integer || (is_power && y->dtype == CO_UINT64) ||
        !coi_has_data(y) || !has_elements(&outs[0]))
        return code;
    y = coi_host_value(call->ctx, y);
    if (y == NULL)
        return call->ctx->error.code;
    at = find_number(y, is_power);
    if (at < 0)
        return CO_OK;
    return is_power
               ? coi_invalid(call,
                             "element %lld of y is negative; an integer cannot be raised to "
                             "a negative power, cast x to a floating dtype",
                             (long long)at)
               : coi_invalid(call, "element %lld of y is 0; integer division by zero has no result",
                             (long long)at);
}

static co_code
add_grad(coi_grad *g)
{
    for (int i = 0; i < 2; ++i)
        if (g->needed[i])
            g->grads[i] = coi_unbroadcast(g->ctx, g->upstream[0], g->in[i]);
    return g->ctx->error.code;
}

static co_code
sub_grad(coi_grad *g)
{
    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(g->ctx, g->upstream[0], g->in[0]);
    if (g->needed[1])
        g->grads[1] = co_neg(g->ctx, coi_unbroadcast(g->ctx, g->upstream[0], g->in[1]));
    return g->ctx->error.code;
}

static co_code
mul_grad(coi_grad *g)
{
    for (int i = 0; i < 2; ++i)
        if (g->needed[i])
            g->grads[i] = coi_unbroadcast(g->ctx, co_mul(g->ctx, g->upstream[0], g->in[1 - i]),
                                          g->in[i]);
    return g->ctx->error.code;
}

/* dy / y and dy (-x / y) / y */
static co_code
div_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1], *dy = g->upstream[0];

    if (!coi_dtypes[x->dtype].floating) /* integers have no gradient */
        return CO_OK;
    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(ctx, co_div(ctx, dy, y), x);
    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(
            ctx, co_mul(ctx, dy, co_div(ctx, co_div(ctx, co_neg(ctx, x), y), y)), y);
    return ctx->error.code;
}

/* The gradient goes to x where it was chosen, which includes ties, and else to y. */
static co_code
choice_grad(coi_grad *g, const coi_op *chooses_x)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1], *dy = g->upstream[0];
    co_value   *zero = co_zeros(ctx, (co_dtype)dy->dtype, NULL, 0);
    co_value   *chosen = coi_apply2(ctx, chooses_x, x, y, NULL);

    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(ctx, co_where(ctx, chosen, dy, zero), x);
    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(ctx, co_where(ctx, chosen, zero, dy), y);
    return ctx->error.code;
}

static co_code
maximum_grad(coi_grad *g)
{
    return choice_grad(g, &coi_op_greater_equal);
}

static co_code
minimum_grad(coi_grad *g)
{
    return choice_grad(g, &coi_op_less_equal);
}

/* dy and -dy floor(x / y) */
static co_code
mod_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1], *up = g->upstream[0];

    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(ctx, up, x);
    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(ctx, co_neg(ctx, co_mul(ctx, up, co_floordiv(ctx, x, y))), y);
    return ctx->error.code;
}

/* dy y x^(y-1), and dy x^y log(x), the logarithm 0 where x is not positive. */
static co_code
pow_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1], *up = g->upstream[0];

    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(
            ctx, co_mul(ctx, co_mul(ctx, up, y), co_pow(ctx, x, co_sub(ctx, y, co_int(ctx, 1)))),
            x);
    if (g->needed[1]) {
        co_value *zero = co_zeros(ctx, (co_dtype)x->dtype, NULL, 0);
        co_value *is_positive = co_greater(ctx, x, zero);
        co_value *one = co_ones(ctx, (co_dtype)x->dtype, NULL, 0);
        co_value *log = co_log(ctx, co_where(ctx, is_positive, x, one));

        g->grads[1] = coi_unbroadcast(ctx, co_mul(ctx, co_mul(ctx, up, g->out[0]), log), y);
    }
    return ctx->error.code;
}

/* 2 dy (x - y) and its negative. */
static co_code
squared_difference_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1];
    co_value *slope = co_mul(ctx, co_float(ctx, 2), co_mul(ctx, g->upstream[0], co_sub(ctx, x, y)));

    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(ctx, slope, x);
    if (g->needed[1])
        g->grads[1] = co_neg(ctx, coi_unbroadcast(ctx, slope, y));
    return ctx->error.code;
}

/* Gradients of an operator that is linear in dy, given that for y, or NULL. Shapes broadcast here
 * too. */
static co_code
backward_grad(coi_grad *g, co_value *for_y)
{
    if (for_y != NULL)
        g->grads[0] = coi_unbroadcast(g->ctx, for_y, g->in[0]);
    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(g->ctx,
                                      coi_apply2(g->ctx, g->op, g->in[0], g->upstream[0], NULL),
                                      g->in[1]);
    return g->ctx->error.code;
}

/* Of dy times a step function of y: the step has no slope. */
static co_code
relu_grad_grad(coi_grad *g)
{
    return backward_grad(g, NULL);
}

/* Of dy (y + c) where y is below zero: c is 1 for elu, scale times alpha for selu. */
static co_code
elu_grad_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *y = g->in[0], *zero = co_zeros(ctx, (co_dtype)y->dtype, NULL, 0);

    return backward_grad(g, !g->needed[0] ? NULL
                                          : co_where(ctx, co_less(ctx, y, zero),
                                                     co_mul(ctx, g->upstream[0], g->in[1]), zero));
}

/* Of dy (1 - y y). */
static co_code
tanh_grad_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;

    return backward_grad(g, !g->needed[0] ? NULL
                                          : co_mul(ctx, co_mul(ctx, g->upstream[0], g->in[1]),
                                                   co_mul(ctx, g->in[0], co_float(ctx, -2))));
}

/* Of dy y (1 - y). */
static co_code
sigmoid_grad_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;

    return backward_grad(g, !g->needed[0]
                                ? NULL
                                : co_mul(ctx, co_mul(ctx, g->upstream[0], g->in[1]),
                                         co_sub(ctx, co_float(ctx, 1),
                                                co_mul(ctx, g->in[0], co_float(ctx, 2)))));
}

/* Of dy slope(x): the slope has the slope (1 - t t) (c (1 + 6 a x^2) - x t du^2), t = tanh(c (x + a
 * x^3)), du = c (1 + 3 a x^2). */
static co_code
gelu_tanh_grad_grad(coi_grad *g)
{
    const double c = 0.79788456080286536, a = (double)0.044715f;
    co_context  *ctx = g->ctx;
    co_value    *x = g->in[0], *xx, *t, *du, *bend, *one = co_float(ctx, 1);

    if (!g->needed[0])
        return backward_grad(g, NULL);
    xx = co_square(ctx, x);
    t = co_mul(ctx, x, co_add(ctx, co_float(ctx, c), co_mul(ctx, xx, co_float(ctx, c * a))));
    t = co_tanh(ctx, t);
    du = co_add(ctx, co_float(ctx, c), co_mul(ctx, xx, co_float(ctx, 3 * c * a)));
    bend = co_add(ctx, co_float(ctx, c), co_mul(ctx, xx, co_float(ctx, 6 * c * a)));
    bend = co_sub(ctx, bend, co_mul(ctx, co_mul(ctx, x, t), co_square(ctx, du)));
    bend = co_mul(ctx, bend, co_sub(ctx, one, co_square(ctx, t)));
    return backward_grad(g, co_mul(ctx, co_mul(ctx, g->upstream[0], g->in[1]), bend));
}

/* What flowed in is a condition here, not a factor. */
static co_code
where_flowing_grad(coi_grad *g)
{
    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(g->ctx,
                                      coi_apply2(g->ctx, g->op, g->upstream[0], g->in[1], NULL),
                                      g->in[0]);
    return g->ctx->error.code;
}

/* The parts that every operator of the family has; what follows the kind goes into the
 * initialiser. */
#define BINARY(name_, x_, y_, kind_, ...)                                                          \
    const coi_op coi_op_##name_ = { .name = #name_,                                                \
                                    .inputs = { x_, y_ },                                          \
                                    .num_inputs = 2,                                               \
                                    .num_outputs = 1,                                              \
                                    .same_dtype = true,                                            \
                                    .kind = kind_,                                                 \
                                    .ref = coi_ref_binary,                                         \
                                    __VA_ARGS__ };
#define ARITHMETIC(name_, kind_, doc_, rule_, ...)                                                 \
    BINARY(name_, "x", "y", kind_, .doc = doc_, .dtypes = COI_NUMBERS, .infer = rule_,             \
           .run = coi_binary_run, __VA_ARGS__)                                                     \
    FUNCTION(name_)
#define COMPARE(name_, kind_, doc_, dtypes_, run_)                                                 \
    BINARY(name_, "x", "y", kind_, .doc = doc_, .dtypes = dtypes_, .not_differentiable = true,     \
           .infer = compare_rule, .run = run_)                                                     \
    FUNCTION(name_)
#define BACKWARD(name_, kind_, doc_, grad_)                                                        \
    BINARY(name_, "y", "dy", kind_, .doc = doc_, .dtypes = COI_FLOATS, .internal = true,           \
           .infer = coi_rule_broadcast, .run = coi_binary_run, .grad = grad_)
#define FUNCTION(name_)                                                                            \
    co_value *co_##name_(co_context *ctx, co_value *x, co_value *y)                                \
    {                                                                                              \
        return coi_apply2(ctx, &coi_op_##name_, x, y, NULL);                                       \
    }

ARITHMETIC(add, COI_ADD, "x + y; integers wrap.", coi_rule_broadcast, .grad = add_grad)
ARITHMETIC(sub, COI_SUB, "x - y; integers wrap.", coi_rule_broadcast, .grad = sub_grad)
ARITHMETIC(mul, COI_MUL, "x * y; integers wrap.", coi_rule_broadcast, .grad = mul_grad)
ARITHMETIC(div, COI_DIV,
           "x / y, true division: integers of up to 16 bits give float32, larger integers float64.",
           div_rule, .grad = div_grad)
ARITHMETIC(maximum, COI_MAXIMUM, "The larger of x and y; NaN if either is NaN.", coi_rule_broadcast,
           .grad = maximum_grad)
ARITHMETIC(minimum, COI_MINIMUM, "The smaller of x and y; NaN if either is NaN.",
           coi_rule_broadcast, .grad = minimum_grad)
ARITHMETIC(floordiv, COI_FLOORDIV, "x / y, rounded towards minus infinity.", integer_rule,
           .not_differentiable = true)
ARITHMETIC(mod, COI_MOD, "The remainder of floordiv, x - y floor(x / y); it has the sign of y.",
           integer_rule, .grad = mod_grad)
ARITHMETIC(pow, COI_POW, "x to the power y; integers wrap.", integer_rule, .grad = pow_grad)
ARITHMETIC(squared_difference, COI_SQUARED_DIFFERENCE, "(x - y) * (x - y); integers wrap.",
           coi_rule_broadcast, .grad = squared_difference_grad)
COMPARE(equal, COI_EQUAL, "Whether x == y, as bool; any dtype.", 0, coi_equal_run)
COMPARE(not_equal, COI_EQUAL | COI_INVERTED, "Whether x != y, as bool; any dtype.", 0,
        coi_equal_run)
COMPARE(less, COI_LESS, "Whether x < y, as bool.", COI_NUMBERS, coi_binary_run)
COMPARE(less_equal, COI_LESS_EQUAL, "Whether x <= y, as bool.", COI_NUMBERS, coi_binary_run)
COMPARE(greater, COI_LESS | COI_SWAPPED, "Whether x > y, as bool.", COI_NUMBERS, coi_binary_run)
COMPARE(greater_equal, COI_LESS_EQUAL | COI_SWAPPED, "Whether x >= y, as bool.", COI_NUMBERS,
        coi_binary_run)
COMPARE(logical_and, COI_LOGICAL_AND, "Whether x and y are true.", COI_DTYPE_BIT(CO_BOOL),
        coi_binary_run)
COMPARE(logical_or, COI_LOGICAL_OR, "Whether x or y is true.", COI_DTYPE_BIT(CO_BOOL),
        coi_binary_run)
COMPARE(logical_xor, COI_LOGICAL_XOR, "Whether exactly one of x and y is true.",
        COI_DTYPE_BIT(CO_BOOL), coi_binary_run)
BACKWARD(relu_grad, COI_RELU_GRAD,
         "The gradient of relu from its result: dy where y > 0, else dy * 0.", relu_grad_grad)
BACKWARD(tanh_grad, COI_TANH_GRAD, "The gradient of tanh from its result: dy * (1 - y * y).",
         tanh_grad_grad)
BACKWARD(sigmoid_grad, COI_SIGMOID_GRAD,
         "The gradient of sigmoid from its result: dy * y * (1 - y).", sigmoid_grad_grad)
BACKWARD(relu6_grad, COI_RELU6_GRAD,
         "The gradient of relu6 from its result: dy where 0 < y < 6, else dy * 0.", relu_grad_grad)
BACKWARD(elu_grad, COI_ELU_GRAD,
         "The gradient of elu from its result: dy * (y + 1) where y < 0, else dy.", elu_grad_grad)
BACKWARD(selu_grad, COI_SELU_GRAD, "The gradient of selu from its result.", elu_grad_grad)
BACKWARD(gelu_tanh_grad, COI_GELU_TANH_GRAD, "The gradient of gelu by tanh, from its operand y.",
         gelu_tanh_grad_grad)
BACKWARD(where_flowing, COI_WHERE_FLOWING, "A gradient y where dy is not 0, else 0.",
         where_flowing_grad)

#define LEAKY_ATTRS(X) X(coi_leaky_attrs, alpha, FLOAT, "=0.2", NULL)
COI_ATTR_TABLE(coi_leaky_attrs, LEAKY_ATTRS)

static co_code
leaky_relu_grad(coi_grad *g)
{
    const coi_leaky_attrs *attrs = g->attrs;
    co_context            *ctx = g->ctx;
    co_value              *x = g->in[0], *up = g->upstream[0];
    co_value *is_above = co_greater(ctx, x, co_zeros(ctx, (co_dtype)x->dtype, NULL, 0));

    g->grads[0] = co_where(ctx, is_above, up, co_mul(ctx, up, co_float(ctx, (float)attrs->alpha)));
    return ctx->error.code;
}

const coi_op coi_op_leaky_relu = {
    .name = "leaky_relu",
    .doc = "x if x > 0, else alpha * x.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .kind = COI_LEAKY_RELU,
    COI_ATTRS(coi_leaky_attrs),
    .infer = coi_rule_same,
    .ref = coi_ref_leaky_relu,
    .run = coi_leaky_relu_run,
    .grad = leaky_relu_grad,
};

co_value *
co_leaky_relu(co_context *ctx, co_value *x, double alpha)
{
    coi_leaky_attrs attrs = { alpha };

    return coi_apply1(ctx, &coi_op_leaky_relu, x, &attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of one operand, by definition.
 */
#include "ops/kernels/elementwise.h"
#include "ops/kernels/ref/ref.h"

#include <float.h>
#include <math.h>

typedef coi_number (*unary_fn)(coi_number x);

static co_code
each(coi_call *call, unary_fn fn)
{
    const co_value *x = call->in[0];
    co_value       *out = call->out[0];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        coi_number_store((co_dtype)out->dtype, out->u.tensor.data, i,
                         fn(coi_number_load((co_dtype)x->dtype, x->u.tensor.data, i)));
    return CO_OK;
}

static coi_number
neg_of(coi_number x)
{
    return (coi_number){ x.cls, -x.f, 0 - x.u };
}

static coi_number
square_of(coi_number x)
{
    return (coi_number){ x.cls, x.f * x.f, x.u * x.u };
}

static coi_number
relu_of(coi_number x)
{
    coi_number zero = { x.cls, 0, 0 };

    return coi_number_less(zero, x) || isnan(x.f) ? x : zero;
}

static coi_number
relu6_of(coi_number x)
{
    coi_number six = { x.cls, 6, 6 };

    return coi_number_less(six, x) ? six : relu_of(x);
}

static coi_number
abs_of(coi_number x)
{
    bool is_negative = x.cls == COI_NUMBER_SIGNED && (int64_t)x.u < 0;

    return (coi_number){ x.cls, fabs(x.f), is_negative ? 0 - x.u : x.u };
}

static coi_number
sign_of(coi_number x)
{
    coi_number zero = { x.cls, 0, 0 };

    if (coi_number_less(zero, x))
        return (coi_number){ x.cls, 1, 1 };
    return coi_number_less(x, zero) ? (coi_number){ x.cls, -1, UINT64_MAX }
                                    : (coi_number){ x.cls, x.f + 0, 0 };
}

static coi_number
truth(bool value)
{
    return (coi_number){ COI_NUMBER_UNSIGNED, 0, value };
}

static coi_number
round_of(coi_number x)
{
    return (coi_number){ x.cls, rint(x.f), x.u };
}

/* Functions of real numbers: x in the expression. */
#define REAL(name, expression)                                                                     \
    static coi_number name##_of(coi_number number)                                                 \
    {                                                                                              \
        double x = number.f;                                                                       \
                                                                                                   \
        return (coi_number){ number.cls, (expression), 0 };                                        \
    }
REAL(sqrt, sqrt(x))
REAL(exp, exp(x))
REAL(log, log(x))
REAL(tanh, tanh(x))
REAL(sigmoid, 1 / (1 + exp(-x)))
REAL(rsqrt, 1 / sqrt(x))
REAL(reciprocal, 1 / x)
REAL(log1p, log1p(x))
REAL(expm1, expm1(x))
REAL(sin, sin(x))
REAL(cos, cos(x))
REAL(tan, tan(x))
REAL(floor, floor(x))
REAL(ceil, ceil(x))
REAL(erf, erf(x))
REAL(elu, x < 0 ? expm1(x) : x)
REAL(selu, x >= 0 ? 1.0507009873554804934 * x : x > -0x1p-54 ? 0 : 1.7580993408473768599 * expm1(x))
REAL(softplus, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
REAL(softsign, x / (1 + fabs(x)))
REAL(silu, x / (1 + exp(-x)))
REAL(log_sigmoid, x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)))
/* The reference's constants are floats, for doubles too. */
REAL(gelu, x / 2 * erfc(-x * (double)0.70710678118654752f))
REAL(gelu_tanh, x / 2 * (1 + tanh(0.79788456080286535588 * (x + (double)0.044715f * x * x * x))))

static coi_number
isnan_of(coi_number x)
{
    return truth(isnan(x.f));
}

static coi_number
isinf_of(coi_number x)
{
    return truth(isinf(x.f));
}

static coi_number
isfinite_of(coi_number x)
{
    return truth(isfinite(x.f));
}

static coi_number
logical_not_of(coi_number x)
{
    return truth(x.u == 0);
}

static const unary_fn functions[COI_NUM_UNARY] = {
    [COI_NEG] = neg_of,           [COI_SQUARE] = square_of,
    [COI_SQRT] = sqrt_of,         [COI_EXP] = exp_of,
    [COI_LOG] = log_of,           [COI_TANH] = tanh_of,
    [COI_SIGMOID] = sigmoid_of,   [COI_RELU] = relu_of,
    [COI_ABS] = abs_of,           [COI_SIGN] = sign_of,
    [COI_RSQRT] = rsqrt_of,       [COI_RECIPROCAL] = reciprocal_of,
    [COI_LOG1P] = log1p_of,       [COI_EXPM1] = expm1_of,
    [COI_SIN] = sin_of,           [COI_COS] = cos_of,
    [COI_TAN] = tan_of,           [COI_FLOOR] = floor_of,
    [COI_CEIL] = ceil_of,         [COI_ROUND] = round_of,
    [COI_ERF] = erf_of,           [COI_RELU6] = relu6_of,
    [COI_ELU] = elu_of,           [COI_SELU] = selu_of,
    [COI_SOFTPLUS] = softplus_of, [COI_SOFTSIGN] = softsign_of,
    [COI_SILU] = silu_of,         [COI_LOG_SIGMOID] = log_sigmoid_of,
    [COI_GELU] = gelu_of,         [COI_GELU_TANH] = gelu_tanh_of,
    [COI_ISNAN] = isnan_of,       [COI_ISINF] = isinf_of,
    [COI_ISFINITE] = isfinite_of, [COI_LOGICAL_NOT] = logical_not_of,
};

co_code
coi_ref_unary_of(coi_call *call, coi_unary_kind kind)
{
    return each(call, functions[kind]);
}

co_code
coi_ref_unary(coi_call *call)
{
    return coi_ref_unary_of(call, (coi_unary_kind)call->op->kind);
}

co_code
coi_ref_gelu(coi_call *call)
{
    return each(call, functions[coi_gelu_kind(call->attrs)]);
}

co_code
coi_ref_cast(coi_call *call)
{
    const co_value *x = call->in[0];
    co_value       *out = call->out[0];
    co_dtype        from = (co_dtype)x->dtype, to = (co_dtype)out->dtype;

    if (to != CO_BOOL || !coi_dtypes[from].floating) {
        coi_convert(from, x->u.tensor.data, to, out->u.tensor.data, x->u.tensor.num_elements);
        return CO_OK;
    }
    /* A subnormal number is false: TensorFlow's kernels take it for zero, but for half precision,
     * where they look at its bits. */
    for (int64_t i = 0; i < x->u.tensor.num_elements; ++i) {
        double value = fabs(coi_number_load(from, x->u.tensor.data, i).f);
        double least = from == CO_FLOAT64 ? DBL_MIN : from == CO_FLOAT32 ? (double)FLT_MIN : 0;

        COI_OUT(call, 0, uint8_t)[i] = value != 0 && !(value < least);
    }
    return CO_OK;
}

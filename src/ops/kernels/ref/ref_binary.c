/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of two and three operands, by definition. The operands of element i of the
 * output are found by taking its index apart.
 */
#include "ops/kernels/elementwise.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/ref/ref.h"

#include <math.h>
#include <string.h>

typedef coi_number (*binary_fn)(coi_number x, coi_number y);

static coi_number
operand(const coi_call *call, int k, int64_t i)
{
    const co_value *x = call->in[k];

    return coi_number_load((co_dtype)x->dtype, x->u.tensor.data,
                           coi_ref_broadcast_index(call->out[0], i, x));
}

static coi_number
truth(bool value)
{
    return (coi_number){ COI_NUMBER_UNSIGNED, 0, value };
}

static double
real(coi_number x)
{
    switch (x.cls) {
    case COI_NUMBER_FLOAT: return x.f;
    case COI_NUMBER_SIGNED: return (double)(int64_t)x.u;
    default: return (double)x.u;
    }
}

static coi_number
add_of(coi_number x, coi_number y)
{
    return (coi_number){ x.cls, x.f + y.f, x.u + y.u };
}

static coi_number
sub_of(coi_number x, coi_number y)
{
    return (coi_number){ x.cls, x.f - y.f, x.u - y.u };
}

static coi_number
mul_of(coi_number x, coi_number y)
{
    return (coi_number){ x.cls, x.f * y.f, x.u * y.u };
}

static coi_number
div_of(coi_number x, coi_number y)
{
    return (coi_number){ COI_NUMBER_FLOAT, real(x) / real(y), 0 };
}

static coi_number
maximum_of(coi_number x, coi_number y)
{
    return isnan(x.f) || !(coi_number_less(x, y) || isnan(y.f)) ? x : y;
}

static coi_number
minimum_of(coi_number x, coi_number y)
{
    return isnan(x.f) || !(coi_number_less(y, x) || isnan(y.f)) ? x : y;
}

static coi_number
equal_of(coi_number x, coi_number y)
{
    return truth(x.f == y.f && x.u == y.u);
}

static coi_number
less_of(coi_number x, coi_number y)
{
    return truth(coi_number_less(x, y));
}

static coi_number
less_equal_of(coi_number x, coi_number y)
{
    return truth(coi_number_less(x, y) || (x.f == y.f && x.u == y.u));
}

/* Towards minus infinity. Of signed numbers, from the quotient of their sizes. */
static coi_number
floordiv_of(coi_number x, coi_number y)
{
    uint64_t xs = x.u, ys = y.u, quotient;
    bool     is_negative = false;

    if (x.cls == COI_NUMBER_FLOAT)
        return (coi_number){ x.cls, floor(x.f / y.f), 0 };
    if (x.cls == COI_NUMBER_SIGNED) {
        is_negative = ((int64_t)x.u < 0) != ((int64_t)y.u < 0);
        xs = (int64_t)x.u < 0 ? 0 - x.u : x.u;
        ys = (int64_t)y.u < 0 ? 0 - y.u : y.u;
    }
    quotient = xs / ys;
    return (coi_number){ x.cls, 0, is_negative ? 0 - (quotient + (xs % ys != 0)) : quotient };
}

/* Of floats and halves the quotient is rounded to a float first, which may take it to the next
 * whole number. */
static coi_number
floordiv_float_of(coi_number x, coi_number y)
{
    return (coi_number){ x.cls, floor((double)(float)(x.f / y.f)), 0 };
}

static coi_number
mod_of(coi_number x, coi_number y)
{
    double rest;

    if (x.cls != COI_NUMBER_FLOAT)
        return (coi_number){ x.cls, 0, x.u - y.u * floordiv_of(x, y).u };
    rest = fmod(x.f, y.f);
    return (coi_number){ x.cls, rest != 0 && (rest < 0) != (y.f < 0) ? rest + y.f : rest, 0 };
}

static coi_number
pow_of(coi_number x, coi_number y)
{
    uint64_t power = 1;

    if (x.cls == COI_NUMBER_FLOAT)
        return (coi_number){ x.cls, pow(x.f, y.f), 0 };
    for (int bit = 63; bit >= 0; --bit)
        power = power * power * (y.u >> bit & 1 ? x.u : 1);
    return (coi_number){ x.cls, 0, power };
}

static coi_number
squared_difference_of(coi_number x, coi_number y)
{
    return mul_of(sub_of(x, y), sub_of(x, y));
}

static coi_number
leaky_relu_of(coi_number x, coi_number alpha)
{
    return (coi_number){ x.cls, x.f > 0 ? x.f : x.f * alpha.f, 0 };
}

static coi_number
relu_grad_of(coi_number y, coi_number dy)
{
    return (coi_number){ y.cls, dy.f * (y.f > 0 ? 1 : 0), 0 };
}

static coi_number
tanh_grad_of(coi_number y, coi_number dy)
{
    return (coi_number){ y.cls, dy.f * (1 - y.f * y.f), 0 };
}

static coi_number
sigmoid_grad_of(coi_number y, coi_number dy)
{
    return (coi_number){ y.cls, dy.f * y.f * (1 - y.f), 0 };
}

static coi_number
relu6_grad_of(coi_number y, coi_number dy)
{
    return (coi_number){ y.cls, dy.f * (y.f > 0 && y.f < 6 ? 1 : 0), 0 };
}

static coi_number
elu_grad_of(coi_number y, coi_number dy)
{
    return (coi_number){ y.cls, y.f < 0 ? dy.f * (y.f + 1) : dy.f, 0 };
}

static coi_number
selu_grad_of(coi_number y, coi_number dy)
{
    return (coi_number){ y.cls,
                         dy.f * (y.f < 0 ? y.f + 1.7580993408473768599 : 1.0507009873554804934),
                         0 };
}

static coi_number
where_flowing_of(coi_number gradient, coi_number dy)
{
    return dy.f == 0 ? (coi_number){ dy.cls, 0, 0 } : gradient;
}

static coi_number
gelu_tanh_grad_of(coi_number x, coi_number dy)
{
    const double c = 0.79788456080286535588, a = (double)0.044715f;
    double       t = tanh(c * (x.f + a * x.f * x.f * x.f)), du = c * (1 + 3 * a * x.f * x.f);

    return (coi_number){ x.cls, dy.f * ((1 + t) / 2 + x.f / 2 * du * (1 - t * t)), 0 };
}

static coi_number
logical_and_of(coi_number x, coi_number y)
{
    return truth(x.u != 0 && y.u != 0);
}

static coi_number
logical_or_of(coi_number x, coi_number y)
{
    return truth(x.u != 0 || y.u != 0);
}

static coi_number
logical_xor_of(coi_number x, coi_number y)
{
    return truth((x.u != 0) != (y.u != 0));
}

static const binary_fn functions[COI_NUM_BINARY] = {
    [COI_ADD] = add_of,
    [COI_SUB] = sub_of,
    [COI_MUL] = mul_of,
    [COI_DIV] = div_of,
    [COI_MAXIMUM] = maximum_of,
    [COI_MINIMUM] = minimum_of,
    [COI_FLOORDIV] = floordiv_of,
    [COI_MOD] = mod_of,
    [COI_POW] = pow_of,
    [COI_SQUARED_DIFFERENCE] = squared_difference_of,
    [COI_RELU_GRAD] = relu_grad_of,
    [COI_TANH_GRAD] = tanh_grad_of,
    [COI_SIGMOID_GRAD] = sigmoid_grad_of,
    [COI_RELU6_GRAD] = relu6_grad_of,
    [COI_ELU_GRAD] = elu_grad_of,
    [COI_SELU_GRAD] = selu_grad_of,
    [COI_GELU_TANH_GRAD] = gelu_tanh_grad_of,
    [COI_WHERE_FLOWING] = where_flowing_of,
    [COI_EQUAL] = equal_of,
    [COI_LESS] = less_of,
    [COI_LESS_EQUAL] = less_equal_of,
    [COI_LOGICAL_AND] = logical_and_of,
    [COI_LOGICAL_OR] = logical_or_of,
    [COI_LOGICAL_XOR] = logical_xor_of,
};

/* Byte strings are equal when lengths and bytes are. */
static bool
equal_strings(const coi_call *call, int64_t i)
{
    const coi_text *x = COI_IN(call, 0, coi_text) +
                        coi_ref_broadcast_index(call->out[0], i, call->in[0]);
    const coi_text *y = COI_IN(call, 1, coi_text) +
                        coi_ref_broadcast_index(call->out[0], i, call->in[1]);

    return x->nbytes == y->nbytes && memcmp(x->data, y->data, x->nbytes) == 0;
}

co_code
coi_ref_binary(coi_call *call)
{
    co_value *out = call->out[0];
    binary_fn fn = functions[COI_KIND(call->op->kind)];
    int       first = (call->op->kind & COI_SWAPPED) != 0;

    if (fn == floordiv_of && coi_dtypes[out->dtype].floating && out->dtype != CO_FLOAT64)
        fn = floordiv_float_of;
    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        coi_number result = call->in[0]->dtype == CO_STRING
                                ? truth(equal_strings(call, i))
                                : fn(operand(call, first, i), operand(call, 1 - first, i));

        result.u ^= (call->op->kind & COI_INVERTED) != 0;
        coi_number_store((co_dtype)out->dtype, out->u.tensor.data, i, result);
    }
    return CO_OK;
}

co_code
coi_ref_leaky_relu(coi_call *call)
{
    const co_value        *x = call->in[0];
    co_value              *out = call->out[0];
    const coi_leaky_attrs *attrs = call->attrs;
    coi_number             alpha = { COI_NUMBER_FLOAT, (float)attrs->alpha, 0 };
    char                   rounded[8];

    coi_number_store((co_dtype)x->dtype, rounded, 0, alpha);
    alpha = coi_number_load((co_dtype)x->dtype, rounded, 0);
    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        coi_number_store((co_dtype)out->dtype, out->u.tensor.data, i,
                         leaky_relu_of(coi_number_load((co_dtype)x->dtype, x->u.tensor.data, i),
                                       alpha));
    return CO_OK;
}

co_code
coi_ref_where(coi_call *call)
{
    co_value *out = call->out[0];
    size_t    size = coi_element_size((co_dtype)out->dtype);

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        bool            chosen = operand(call, 0, i).u != 0;
        const co_value *from = call->in[chosen ? 1 : 2];
        int64_t         at = coi_ref_broadcast_index(out, i, from);

        memcpy(COI_OUT(call, 0, char) + (size_t)i * size,
               (const char *)from->u.tensor.data + (size_t)at * size, size);
    }
    return coi_own_texts(call);
}

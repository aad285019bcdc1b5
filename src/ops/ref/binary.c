/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of two and three operands, by definition. The operands of element i of the output are found by
 * taking its index apart.
 */
#include "ops/ref/ref.h"

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

static co_code
each(coi_call *call, binary_fn fn)
{
    co_value *out = call->out[0];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        coi_number_store((co_dtype)out->dtype, out->u.tensor.data, i,
                         fn(operand(call, 0, i), operand(call, 1, i)));
    return CO_OK;
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
greater_equal_of(coi_number x, coi_number y)
{
    return truth(coi_number_less(y, x) || (x.f == y.f && x.u == y.u));
}

static coi_number
less_equal_of(coi_number x, coi_number y)
{
    return greater_equal_of(y, x);
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

co_code
coi_ref_add(coi_call *call)
{
    return each(call, add_of);
}

co_code
coi_ref_sub(coi_call *call)
{
    return each(call, sub_of);
}

co_code
coi_ref_mul(coi_call *call)
{
    return each(call, mul_of);
}

co_code
coi_ref_div(coi_call *call)
{
    return each(call, div_of);
}

co_code
coi_ref_maximum(coi_call *call)
{
    return each(call, maximum_of);
}

co_code
coi_ref_minimum(coi_call *call)
{
    return each(call, minimum_of);
}

/* Byte strings are equal when lengths and bytes are. */
static co_code
equal_strings(coi_call *call)
{
    co_value *out = call->out[0];

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        const coi_text *x = COI_IN(call, 0, coi_text) +
                            coi_ref_broadcast_index(out, i, call->in[0]);
        const coi_text *y = COI_IN(call, 1, coi_text) +
                            coi_ref_broadcast_index(out, i, call->in[1]);

        COI_OUT(call, 0, uint8_t)
        [i] = x->nbytes == y->nbytes && memcmp(x->data, y->data, x->nbytes) == 0;
    }
    return CO_OK;
}

co_code
coi_ref_equal(coi_call *call)
{
    return call->in[0]->dtype == CO_STRING ? equal_strings(call) : each(call, equal_of);
}

co_code
coi_ref_greater_equal(coi_call *call)
{
    return each(call, greater_equal_of);
}

co_code
coi_ref_less_equal(coi_call *call)
{
    return each(call, less_equal_of);
}

co_code
coi_ref_relu_grad(coi_call *call)
{
    return each(call, relu_grad_of);
}

co_code
coi_ref_tanh_grad(coi_call *call)
{
    return each(call, tanh_grad_of);
}

co_code
coi_ref_sigmoid_grad(coi_call *call)
{
    return each(call, sigmoid_grad_of);
}

co_code
coi_ref_where(coi_call *call)
{
    co_value *out = call->out[0];
    size_t    size = coi_dtypes[out->dtype].size;

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i) {
        bool            chosen = operand(call, 0, i).u != 0;
        const co_value *from = call->in[chosen ? 1 : 2];
        int64_t         at = coi_ref_broadcast_index(out, i, from);

        memcpy(COI_OUT(call, 0, char) + (size_t)i * size,
               (const char *)from->u.tensor.data + (size_t)at * size, size);
    }
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of one operand, by definition.
 */
#include "ops/ref/ref.h"

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
sqrt_of(coi_number x)
{
    return (coi_number){ x.cls, sqrt(x.f), 0 };
}

static coi_number
exp_of(coi_number x)
{
    return (coi_number){ x.cls, exp(x.f), 0 };
}

static coi_number
log_of(coi_number x)
{
    return (coi_number){ x.cls, log(x.f), 0 };
}

static coi_number
tanh_of(coi_number x)
{
    return (coi_number){ x.cls, tanh(x.f), 0 };
}

static coi_number
sigmoid_of(coi_number x)
{
    return (coi_number){ x.cls, 1 / (1 + exp(-x.f)), 0 };
}

static coi_number
relu_of(coi_number x)
{
    coi_number zero = { x.cls, 0, 0 };

    return coi_number_less(zero, x) || isnan(x.f) ? x : zero;
}

co_code
coi_ref_neg(coi_call *call)
{
    return each(call, neg_of);
}

co_code
coi_ref_square(coi_call *call)
{
    return each(call, square_of);
}

co_code
coi_ref_sqrt(coi_call *call)
{
    return each(call, sqrt_of);
}

co_code
coi_ref_exp(coi_call *call)
{
    return each(call, exp_of);
}

co_code
coi_ref_log(coi_call *call)
{
    return each(call, log_of);
}

co_code
coi_ref_tanh(coi_call *call)
{
    return each(call, tanh_of);
}

co_code
coi_ref_sigmoid(coi_call *call)
{
    return each(call, sigmoid_of);
}

co_code
coi_ref_relu(coi_call *call)
{
    return each(call, relu_of);
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
    /* A subnormal number is false: TensorFlow's kernels take it for zero. Those of float16 are none as float. */
    for (int64_t i = 0; i < x->u.tensor.num_elements; ++i) {
        double value = fabs(coi_number_load(from, x->u.tensor.data, i).f);

        COI_OUT(call, 0, uint8_t)[i] = !(value < (from == CO_FLOAT64 ? DBL_MIN : (double)FLT_MIN));
    }
    return CO_OK;
}

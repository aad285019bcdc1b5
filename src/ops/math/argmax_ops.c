/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the largest element along an axis is.
 */
#include "ops/kernels/reduction.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/strided_iterator.h"

#include <math.h>

/* Entries of other files. */
COI_USES_OP(argmax)

#define ARGMAX_ATTRS(X)                                                                            \
    X(coi_argmax_attrs, axis, INT, "=0", NULL)                                                     \
    X(coi_argmax_attrs, output_type, DTYPE, "=int64", NULL)
COI_ATTR_TABLE(coi_argmax_attrs, ARGMAX_ATTRS)

/* TensorFlow's argmax has short indices too, its argmin has not. */
static uint32_t
index_dtypes(const coi_op *op)
{
    uint32_t both = COI_DTYPE_BIT(CO_INT64) | COI_DTYPE_BIT(CO_INT32);

    return op == &coi_op_argmax ? both | COI_DTYPE_BIT(CO_INT16) | COI_DTYPE_BIT(CO_UINT16) : both;
}

co_code
coi_argmax_rule(coi_call *call, coi_out *outs)
{
    const coi_argmax_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0];
    char                    text[COI_SHAPE_TEXT];
    int64_t                 none, last;
    int                     axis;
    co_code                 code = coi_rule_axis(call, attrs->axis, x->ndim, &axis);

    if (code != CO_OK)
        return code;
    if ((index_dtypes(call->op) & COI_DTYPE_BIT(attrs->output_type)) == 0)
        return coi_invalid(call, "output_type is %s; it must be %s",
                           co_dtype_name((co_dtype)attrs->output_type),
                           call->op == &coi_op_argmax ? "int64, int32, int16 or uint16"
                                                      : "int64 or int32");
    coi_out_unknown(outs, (co_dtype)attrs->output_type);
    if (axis < 0) /* of an unknown rank */
        return CO_OK;
    if (x->u.tensor.dims[axis] == 0)
        return coi_invalid(call, "axis %d of shape %s is empty; it must have an element", axis,
                           coi_shape_text(x->u.tensor.dims, x->ndim, text));
    coi_integer_limits((co_dtype)attrs->output_type, &none, &last);
    if (x->u.tensor.dims[axis] - 1 > last)
        return coi_invalid(
            call, "axis %d has %lld elements; output_type %s counts up to %lld, give a wider one",
            axis, (long long)x->u.tensor.dims[axis], co_dtype_name((co_dtype)attrs->output_type),
            (long long)last + 1);
    outs[0].ndim = x->ndim - 1;
    for (int d = 0; d < x->ndim - 1; ++d)
        outs[0].dims[d] = x->u.tensor.dims[d < axis ? d : d + 1];
    return CO_OK;
}

/* x is [outer, n, inner]; a unit is one of outer * inner. */
typedef struct argmax_job {
    const void *x;
    void       *out;
    size_t      size; /* of a result */
    int64_t     n, inner, num_units, per_chunk;
} argmax_job;

static void
store_index(const argmax_job *job, int64_t unit, int64_t index)
{
    switch (job->size) {
    case 2: ((uint16_t *)job->out)[unit] = (uint16_t)index; break;
    case 4: ((int32_t *)job->out)[unit] = (int32_t)index; break;
    default: ((int64_t *)job->out)[unit] = index; break;
    }
}

/* NaN is never larger than anything, so it is passed over. The first of equals stays. */
#define ARGMAX(name, type, lowest)                                                                 \
    static void name(void *arg, int64_t chunk)                                                     \
    {                                                                                              \
        const argmax_job *job = arg;                                                               \
        int64_t           u = chunk * job->per_chunk, n = job->n, inner = job->inner;              \
        int64_t           end = u + job->per_chunk;                                                \
                                                                                                   \
        for (end = end < job->num_units ? end : job->num_units; u < end; ++u) {                    \
            const type *x = (const type *)job->x + u / inner * n * inner + u % inner;              \
            type        best = lowest;                                                             \
            int64_t     at = 0;                                                                    \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i)                                                        \
                if (x[i * inner] > best) {                                                         \
                    best = x[i * inner];                                                           \
                    at = i;                                                                        \
                }                                                                                  \
            store_index(job, u, at);                                                               \
        }                                                                                          \
    }
ARGMAX(argmax_f32, float, -INFINITY)
ARGMAX(argmax_f64, double, -INFINITY)
ARGMAX(argmax_i8, int8_t, INT8_MIN)
ARGMAX(argmax_i16, int16_t, INT16_MIN)
ARGMAX(argmax_i32, int32_t, INT32_MIN)
ARGMAX(argmax_i64, int64_t, INT64_MIN)
ARGMAX(argmax_u8, uint8_t, 0)
ARGMAX(argmax_u16, uint16_t, 0)
ARGMAX(argmax_u32, uint32_t, 0)
ARGMAX(argmax_u64, uint64_t, 0)

static const coi_chunk_fn kernels[CO_NUM_DTYPES] = {
    [CO_BOOL] = argmax_u8,     [CO_INT8] = argmax_i8,     [CO_INT16] = argmax_i16,
    [CO_INT32] = argmax_i32,   [CO_INT64] = argmax_i64,   [CO_UINT8] = argmax_u8,
    [CO_UINT16] = argmax_u16,  [CO_UINT32] = argmax_u32,  [CO_UINT64] = argmax_u64,
    [CO_FLOAT32] = argmax_f32, [CO_FLOAT64] = argmax_f64,
};

static co_code
argmax_run(coi_call *call)
{
    const coi_argmax_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0];
    int64_t                 axis = attrs->axis < 0 ? attrs->axis + x->ndim : attrs->axis;
    argmax_job              job = { x->u.tensor.data,
                                    call->out[0]->u.tensor.data,
                                    coi_dtypes[attrs->output_type].size,
                                    x->u.tensor.dims[axis],
                                    1,
                                    call->out[0]->u.tensor.num_elements,
                                    0 };

    if (kernels[x->dtype] == NULL) /* half precision */
        return coi_ref_argmax(call);
    if (job.num_units == 0)
        return CO_OK;
    for (int64_t d = axis + 1; d < x->ndim; ++d)
        job.inner *= x->u.tensor.dims[d];
    coi_parallel(call, coi_num_chunks(job.num_units, job.n, &job.per_chunk), kernels[x->dtype],
                 &job);
    return CO_OK;
}

const coi_op coi_op_argmax = {
    .name = "argmax",
    .doc = "The index of the largest element along an axis, the first of equals; NaN is skipped.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    .not_differentiable = true,
    COI_ATTRS(coi_argmax_attrs),
    .infer = coi_argmax_rule,
    .ref = coi_ref_argmax,
    .run = argmax_run,
};

co_value *
co_argmax(co_context *ctx, co_value *x, int axis, co_dtype dtype)
{
    coi_argmax_attrs attrs = { axis, coi_dtype_attr(dtype == CO_DTYPE_NONE ? CO_INT64 : dtype) };

    return coi_apply1(ctx, &coi_op_argmax, x, &attrs);
}

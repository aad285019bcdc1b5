/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of the largest element along an axis.
 */
#include "ops/kernels/reduction.h"

#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/strided_iterator.h"

#include <math.h>

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

co_code
coi_argmax_run(coi_call *call)
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

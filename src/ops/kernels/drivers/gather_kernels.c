/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a tensor by index, and back.
 */
#include "ops/kernels/gather.h"

#include "ops/engine/type_rules.h"
#include "ops/kernels/strided_copy.h"

#include <string.h>

#define INDEX_DTYPES (COI_DTYPE_BIT(CO_INT16) | COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64))

static int64_t
product(const int64_t *dims, int n)
{
    int64_t total = 1;

    for (int i = 0; i < n; ++i)
        total *= dims[i];
    return total;
}

static co_code
check_batch(coi_call *call, const int64_t *dims, const co_value *indices, int axis,
            int64_t batch_dims, int *out)
{
    int64_t b = batch_dims < 0 ? batch_dims + indices->ndim : batch_dims;

    if (b < 0 || b > indices->ndim || b > axis)
        return coi_invalid(
            call, "batch_dims is %lld; it must be at most axis, %d, and the rank of indices, %d",
            (long long)batch_dims, axis, indices->ndim);
    for (int d = 0; d < b; ++d)
        if (!coi_dims_fit(dims[d], indices->u.tensor.dims[d]))
            return coi_invalid(
                call,
                "dimension %d is %lld in params and %lld in indices; the first batch_dims = "
                "%lld must be equal",
                d, (long long)dims[d], (long long)indices->u.tensor.dims[d], (long long)b);
    *out = (int)b;
    return CO_OK;
}

co_code
coi_gather_make_plan(coi_call *call, const int64_t *dims, int ndim, const co_value *indices,
                     int64_t axis, int64_t batch_dims, coi_gather_plan *plan, coi_out *gathered)
{
    int     a = 0, b = 0, rank;
    co_code code;

    if ((INDEX_DTYPES & COI_DTYPE_BIT(indices->dtype)) == 0)
        return coi_invalid(call, "indices have dtype %s; it must be int16, int32 or int64",
                           co_dtype_name((co_dtype)indices->dtype));
    if (ndim < 0 || coi_is_unknown_rank(indices)) { /* a rule alone comes here */
        gathered->ndim = COI_UNKNOWN;
        return ndim < 0 ? CO_OK : coi_rule_axis(call, axis, ndim, &a);
    }
    code = coi_rule_axis(call, axis, ndim, &a);
    if (code == CO_OK)
        code = check_batch(call, dims, indices, a, batch_dims, &b);
    if (code != CO_OK)
        return code;
    rank = ndim - 1 + indices->ndim - b;
    if (rank > CO_MAX_DIMS)
        return coi_invalid(call, "the result would have %d dimensions; at most %d are allowed",
                           rank, CO_MAX_DIMS);
    *plan = (coi_gather_plan){ .batch = product(dims, b),
                               .outer = product(dims + b, a - b),
                               .n = dims[a],
                               .inner = product(dims + a + 1, ndim - a - 1),
                               .m = product(indices->u.tensor.dims + b, indices->ndim - b) };
    if (gathered == NULL)
        return CO_OK;
    gathered->ndim = 0;
    for (int d = 0; d < a; ++d) {
        gathered->dims[gathered->ndim] = dims[d];
        if (d < b)
            coi_merge_dim(&gathered->dims[gathered->ndim], indices->u.tensor.dims[d]);
        ++gathered->ndim;
    }
    for (int d = b; d < indices->ndim; ++d)
        gathered->dims[gathered->ndim++] = indices->u.tensor.dims[d];
    for (int d = a + 1; d < ndim; ++d)
        gathered->dims[gathered->ndim++] = dims[d];
    return CO_OK;
}

co_code
coi_check_indices(coi_call *call, const co_value *indices, int64_t n)
{
    for (int64_t i = 0; i < indices->u.tensor.num_elements; ++i) {
        int64_t index = coi_index_at(indices, i);

        if (index < 0 || index >= n)
            return coi_invalid(call, "indices[%lld] is %lld; it must be in [0, %lld)", (long long)i,
                               (long long)index, (long long)n);
    }
    return CO_OK;
}

typedef struct gather_job {
    coi_gather_plan plan;
    const co_value *indices;
    const char     *params;
    char           *out;
    size_t          row; /* bytes */
    int64_t         num_units, per_chunk;
} gather_job;

/* A unit is one row of the result. */
static void
gather_chunk(void *arg, int64_t chunk)
{
    const gather_job *job = arg;
    int64_t           m = job->plan.m, u = chunk * job->per_chunk, end = u + job->per_chunk;

    for (end = end < job->num_units ? end : job->num_units; u < end; ++u) {
        int64_t     outer = u / m, batch = outer / job->plan.outer;
        int64_t     index = coi_index_at(job->indices, batch * m + u % m);
        const char *from = job->params + (size_t)(outer * job->plan.n + index) * job->row;
        char       *to = job->out + (size_t)u * job->row;

        if (job->row == 4)
            memcpy(to, from, 4);
        else if (job->row == 8)
            memcpy(to, from, 8);
        else
            memcpy(to, from, job->row);
    }
}

co_code
coi_gather_run(coi_call *call)
{
    const coi_gather_attrs *attrs = call->attrs;
    const co_value         *params = call->in[0];
    gather_job              job;
    co_code code = coi_gather_make_plan(call, params->u.tensor.dims, params->ndim, call->in[1],
                                        coi_gather_axis(attrs), attrs->batch_dims, &job.plan, NULL);

    if (code == CO_OK)
        code = coi_check_indices(call, call->in[1], job.plan.n);
    if (code != CO_OK || call->out[0]->u.tensor.num_elements == 0)
        return code;
    job.indices = call->in[1];
    job.params = COI_IN(call, 0, char);
    job.out = COI_OUT(call, 0, char);
    job.row = (size_t)job.plan.inner * coi_element_size((co_dtype)params->dtype);
    job.num_units = job.plan.batch * job.plan.outer * job.plan.m;
    coi_parallel(call, coi_num_chunks(job.num_units, job.plan.inner, &job.per_chunk), gather_chunk,
                 &job);
    return coi_own_texts(call);
}

/* In the order of the indices, so that equal ones always add up alike. */
co_code
coi_scatter_add_run(coi_call *call)
{
    const coi_scatter_attrs *attrs = call->attrs;
    co_value                *out = call->out[0];
    size_t                   size = coi_dtypes[out->dtype].size;
    coi_gather_plan          plan;
    co_code code = coi_gather_make_plan(call, attrs->shape.at, attrs->shape.n, call->in[1],
                                        attrs->axis, attrs->batch_dims, &plan, NULL);

    if (code == CO_OK)
        code = coi_check_indices(call, call->in[1], plan.n);
    if (code != CO_OK)
        return code;
    memset(out->u.tensor.data, 0, (size_t)out->u.tensor.num_elements * size);
    if (call->in[0]->u.tensor.num_elements == 0)
        return CO_OK;
    for (int64_t outer = 0; outer < plan.batch * plan.outer; ++outer)
        for (int64_t k = 0; k < plan.m; ++k) {
            int64_t index = coi_index_at(call->in[1], outer / plan.outer * plan.m + k);

            coi_add_elements(
                (co_dtype)out->dtype,
                COI_OUT(call, 0, char) + (size_t)((outer * plan.n + index) * plan.inner) * size,
                COI_IN(call, 0, char) + (size_t)((outer * plan.m + k) * plan.inner) * size,
                plan.inner);
        }
    return CO_OK;
}

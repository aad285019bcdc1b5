/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows by index: gather, and scatter_add, which is its gradient and its opposite. The gradient of
 * rows gathered from axis 0 stays a list of rows (indexed slices), since a table of embeddings is
 * far larger than what one step reads of it.
 */
#include "ops/kernels/gather.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/gradient.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(scatter_add)

#define GATHER_ATTRS(X)                                                                            \
    X(coi_gather_attrs, axis, INT, "=null", NULL)                                                  \
    X(coi_gather_attrs, batch_dims, INT, "=0", NULL)
COI_ATTR_TABLE(coi_gather_attrs, GATHER_ATTRS)
#define SCATTER_ATTRS(X)                                                                           \
    X(coi_scatter_attrs, shape, INTS, "", NULL)                                                    \
    X(coi_scatter_attrs, axis, INT, "=0", NULL)                                                    \
    X(coi_scatter_attrs, batch_dims, INT, "=0", NULL)
COI_ATTR_TABLE(coi_scatter_attrs, SCATTER_ATTRS)

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

static co_code
gather_rule(coi_call *call, coi_out *outs)
{
    const coi_gather_attrs *attrs = call->attrs;
    const co_value         *params = call->in[0];
    coi_gather_plan         plan;

    outs[0].dtype = (co_dtype)params->dtype;
    return coi_gather_make_plan(call, params->u.tensor.dims, params->ndim, call->in[1],
                                coi_gather_axis(attrs), attrs->batch_dims, &plan, &outs[0]);
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

static co_code
gather_run(coi_call *call)
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

static co_value *
rows_as_slices(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *indices = g->in[1];
    int         ndim = indices->ndim;

    if (indices->dtype == CO_INT16) /* slices have int32 or int64 */
        indices = co_cast(ctx, indices, CO_INT32);
    return co_slices(ctx, coi_merge_dims(ctx, g->upstream[0], 0, ndim),
                     coi_merge_dims(ctx, indices, 0, ndim), coi_shape_of(ctx, g->in[0]));
}

static co_code
gather_grad(coi_grad *g)
{
    const coi_gather_attrs *attrs = g->attrs;
    int64_t                 axis = coi_gather_axis(attrs);
    coi_scatter_attrs       back = { { 0, { 0 } }, axis, attrs->batch_dims };
    coi_sized_op    add = { &coi_op_scatter_add, &back, offsetof(coi_scatter_attrs, shape), 0 };
    co_value *const given[2] = { g->upstream[0], g->in[1] };

    if (!g->needed[0])
        return CO_OK;
    /* batch_dims is at most axis. The same axis counted from the end gives a tensor, as in
     * TensorFlow. */
    if (axis == 0) {
        g->grads[0] = rows_as_slices(g);
        return g->ctx->error.code;
    }
    g->grads[0] = coi_apply_like(g->ctx, &add, given, 2, g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_gather = {
    .name = "gather",
    .doc =
        "Slices of params along an axis by index; the first batch_dims dimensions are batch dimensions.",
    .inputs = { "params", "indices" },
    .num_inputs = 2,
    .num_outputs = 1,
    COI_ATTRS(coi_gather_attrs),
    .infer = gather_rule,
    .ref = coi_ref_gather,
    .run = gather_run,
    .grad = gather_grad,
};

co_value *
co_gather(co_context *ctx, co_value *params, co_value *indices, int axis, int batch_dims)
{
    coi_gather_attrs attrs = { axis, batch_dims };

    return coi_apply2(ctx, &coi_op_gather, params, indices, &attrs);
}

static co_code
scatter_add_rule(coi_call *call, coi_out *outs)
{
    const coi_scatter_attrs *attrs = call->attrs;
    const co_value          *updates = call->in[0];
    coi_gather_plan          plan;
    coi_out                  gathered;
    co_code                  code;
    char                     a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    for (int d = 0; d < attrs->shape.n; ++d)
        if (attrs->shape.at[d] < 0)
            return coi_invalid(call, "shape %s: dimensions must be at least 0",
                               coi_ints_text(&attrs->shape, a));
    if (attrs->shape.n < 1)
        return coi_invalid(call, "shape must have at least one dimension");
    code = coi_gather_make_plan(call, attrs->shape.at, attrs->shape.n, call->in[1], attrs->axis,
                                attrs->batch_dims, &plan, &gathered);
    if (code != CO_OK)
        return code;
    if (!coi_merge_shape(&gathered, updates->u.tensor.dims, updates->ndim))
        return coi_invalid(call, "updates have shape %s; for these indices it must be %s",
                           coi_shape_text(updates->u.tensor.dims, updates->ndim, a),
                           coi_shape_text(gathered.dims, gathered.ndim, b));
    outs[0].dtype = (co_dtype)updates->dtype;
    outs[0].ndim = attrs->shape.n;
    memcpy(outs[0].dims, attrs->shape.at, (size_t)attrs->shape.n * sizeof(int64_t));
    return CO_OK;
}

/* In the order of the indices, so that equal ones always add up alike. */
static co_code
scatter_add_run(coi_call *call)
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

static co_code
scatter_add_grad(coi_grad *g)
{
    const coi_scatter_attrs *attrs = g->attrs;

    if (g->needed[0])
        g->grads[0] = co_gather(g->ctx, g->upstream[0], g->in[1], (int)attrs->axis,
                                (int)attrs->batch_dims);
    return g->ctx->error.code;
}

const coi_op coi_op_scatter_add = {
    .name = "scatter_add",
    .doc = "Zeros of shape `shape` to which updates are added by index: the gradient of gather.",
    .inputs = { "updates", "indices" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_NUMBERS,
    .internal = true,
    COI_ATTRS(coi_scatter_attrs),
    .infer = scatter_add_rule,
    .ref = coi_ref_scatter_add,
    .run = scatter_add_run,
    .grad = scatter_add_grad,
};

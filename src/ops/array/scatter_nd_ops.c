/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements and slices by index vectors: gather_nd, scatter_nd and what is like them. The vectors
 * become indices of rows of [rows, inner], and gather and scatter_add do the rest. embedding_lookup
 * and unsorted_segment_sum have one index per row from the start.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/gather.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/type_rules.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(scatter_add)
COI_USES_OP(gather)
COI_USES_OP(scatter_nd)

#define INDEX_DTYPES (COI_DTYPE_BIT(CO_INT16) | COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64))

typedef struct scatter_nd_attrs {
    coi_ints shape;
} scatter_nd_attrs;

/* A tensor of shape `dims` seen through index vectors of `depth` numbers. */
typedef struct nd_plan {
    int64_t num;          /* vectors */
    int64_t rows, inner;  /* product of the dimensions that are indexed, and of the others */
    int     depth, outer; /* numbers of a vector, dimensions before them */
    coi_out picked;       /* shape of what the vectors pick */
} nd_plan;

/* What the vectors pick: of an unknown rank, where that or the length of the vectors is not
 * known. */
static co_code
pick(coi_call *call, const int64_t *dims, int ndim, const co_value *indices, coi_out *picked)
{
    int64_t depth;
    int     outer = indices->ndim - 1;

    picked->ndim = COI_UNKNOWN;
    if ((INDEX_DTYPES & COI_DTYPE_BIT(indices->dtype)) == 0)
        return coi_invalid(call, "indices have dtype %s; it must be int16, int32 or int64",
                           co_dtype_name((co_dtype)indices->dtype));
    if (indices->ndim == 0)
        return coi_invalid(call,
                           "indices are a scalar; their last dimension holds the index vectors");
    depth = coi_is_unknown_rank(indices) ? COI_UNKNOWN : indices->u.tensor.dims[outer];
    if (depth < 0 || ndim < 0)
        return CO_OK;
    if (depth > ndim)
        return coi_invalid(call, "index vectors have %lld number%s; the rank that they index is %d",
                           (long long)depth, COI_S(depth), ndim);
    if (outer + ndim - (int)depth > CO_MAX_DIMS)
        return coi_invalid(call, "the slices would have %d dimensions; at most %d are allowed",
                           outer + ndim - (int)depth, CO_MAX_DIMS);
    picked->ndim = 0;
    for (int d = 0; d < outer; ++d)
        picked->dims[picked->ndim++] = indices->u.tensor.dims[d];
    for (int d = (int)depth; d < ndim; ++d)
        picked->dims[picked->ndim++] = dims[d];
    return CO_OK;
}

/* Everything is known. */
static co_code
make_plan(coi_call *call, const int64_t *dims, int ndim, const co_value *indices, nd_plan *plan)
{
    co_code code;

    *plan = (nd_plan){ .num = 1, .rows = 1, .inner = 1, .outer = indices->ndim - 1 };
    code = pick(call, dims, ndim, indices, &plan->picked);
    if (code != CO_OK)
        return code;
    plan->depth = (int)indices->u.tensor.dims[plan->outer];
    for (int d = 0; d < plan->outer; ++d)
        plan->num *= indices->u.tensor.dims[d];
    for (int d = 0; d < ndim; ++d)
        *(d < plan->depth ? &plan->rows : &plan->inner) *= dims[d];
    return CO_OK;
}

static co_code
refuse_vector(coi_call *call, const co_value *indices, const nd_plan *plan, int64_t v,
              const int64_t *dims, int ndim)
{
    coi_ints vector = { .n = plan->depth };
    char     a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    for (int d = 0; d < plan->depth; ++d)
        vector.at[d] = coi_index_at(indices, v * plan->depth + d);
    return coi_invalid(call, "index vector %lld is %s, which is not in the shape %s", (long long)v,
                       coi_ints_text(&vector, a), coi_shape_text(dims, ndim, b));
}

/* The row of each vector, as a tensor of [num] on the host; NULL with an error that names the first
 * vector that is outside. */
static co_value *
row_indices(coi_call *call, const int64_t *dims, int ndim, co_value *indices, const nd_plan *plan)
{
    co_value *rows = coi_host_zeros(call->ctx, CO_INT64, &plan->num, 1);

    indices = rows != NULL ? coi_host_value(call->ctx, indices) : NULL;
    if (indices == NULL)
        return NULL;
    for (int64_t v = 0; rows != NULL && v < plan->num; ++v) {
        int64_t row = 0;

        for (int d = 0; d < plan->depth; ++d) {
            int64_t index = coi_index_at(indices, v * plan->depth + d);

            if (index < 0 || index >= dims[d]) {
                refuse_vector(call, indices, plan, v, dims, ndim);
                return NULL;
            }
            row = row * dims[d] + index;
        }
        ((int64_t *)coi_data_on_host(rows))[v] = row;
    }
    return rows;
}

/* TensorFlow asks for elements where something is gathered. */
static co_code
check_params(coi_call *call, const co_value *params, const nd_plan *plan)
{
    char text[COI_SHAPE_TEXT];

    if (params->u.tensor.num_elements > 0 || plan->num == 0)
        return CO_OK;
    return coi_invalid(call, "params have shape %s; they must have an axis and elements",
                       coi_shape_text(params->u.tensor.dims, params->ndim, text));
}

static co_code
gather_nd_rule(coi_call *call, coi_out *outs)
{
    const co_value *params = call->in[0];

    outs[0].dtype = (co_dtype)params->dtype;
    if (params->ndim == 0)
        return coi_invalid(call, "params have shape []; they must have an axis and elements");
    return pick(call, params->u.tensor.dims, params->ndim, call->in[1], &outs[0]);
}

static co_value *
gather_nd_composite(coi_call *call)
{
    co_context    *ctx = call->ctx;
    co_value      *params = call->in[0], *indices = call->in[1], *rows, *picked;
    const int64_t *dims = params->u.tensor.dims;
    nd_plan        plan;

    if (make_plan(call, dims, params->ndim, indices, &plan) != CO_OK ||
        check_params(call, params, &plan) != CO_OK ||
        (rows = row_indices(call, dims, params->ndim, indices, &plan)) == NULL)
        return NULL;
    picked = co_reshape(ctx, params, (const int64_t[]){ plan.rows, plan.inner }, 2);
    picked = co_gather(ctx, picked, rows, 0, 0);
    return co_reshape(ctx, picked, plan.picked.dims, plan.picked.ndim);
}

/* The shape of params as int64 beside indices of that dtype, else as coi_shape_of has it. */
static co_value *
shape_as(co_context *ctx, co_value *params, co_dtype dtype)
{
    int64_t ndim = params->ndim;

    if (dtype != CO_INT64)
        return coi_shape_of(ctx, params);
    return coi_is_known_shape(params) ? co_tensor(ctx, CO_INT64, &ndim, 1, params->u.tensor.dims)
                                      : co_cast(ctx, co_shape(ctx, params), CO_INT64);
}

/* By a list of vectors of one number it stays a list of rows, whose shape has the dtype of the
 * indices, as TensorFlow's has here. */
static co_code
gather_nd_grad(coi_grad *g)
{
    scatter_nd_attrs none = { { 0, { 0 } } };
    coi_sized_op     add = { &coi_op_scatter_nd, &none, COI_SHAPE_AT(scatter_nd_attrs, shape), 1 };
    co_context      *ctx = g->ctx;
    co_value        *params = g->in[0], *given[2] = { g->in[1], g->upstream[0] }, *shape;
    int              ndim = given[0]->ndim;
    int64_t          depth = given[0]->u.tensor.dims[ndim - 1];

    if (!g->needed[0])
        return CO_OK;
    if (ndim == 2 && depth == 1) {
        shape = shape_as(ctx, params, (co_dtype)given[0]->dtype);
        if (given[0]->dtype == CO_INT16) /* slices have int32 or int64 */
            given[0] = co_cast(ctx, given[0], CO_INT32);
        g->grads[0] = co_slices(ctx, given[1], co_squeeze(ctx, given[0], CO_AXES(1)), shape);
    } else if (ndim == 1 && depth == 0) { /* all of params, of any rank */
        g->grads[0] = given[1];
    } else {
        for (int i = 0; i < 2 && ndim == 1; ++i) /* scatter_nd asks for a list of vectors */
            given[i] = co_expand_dims(ctx, given[i], 0);
        g->grads[0] = coi_apply_like(ctx, &add, given, 2, params);
    }
    return ctx->error.code;
}

const coi_op coi_op_gather_nd = {
    COI_COMPOSITE("gather_nd",
                  "Elements or slices of params by the index vectors in the last dimension.",
                  "params", "indices"),
    .infer = gather_nd_rule,
    .grad = gather_nd_grad,
    .composite = gather_nd_composite,
};

co_value *
co_gather_nd(co_context *ctx, co_value *params, co_value *indices)
{
    co_value *const given[2] = { params, indices };

    return coi_apply_composite(ctx, &coi_op_gather_nd, given, 2, NULL);
}

/* Updates have the shape of what the vectors pick. */
static co_code
check_updates(coi_call *call, const co_value *updates, const nd_plan *plan)
{
    char a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    if (plan->outer == 0)
        return coi_invalid(call, "indices are one vector; they must be a list of vectors");
    if (plan->rows * plan->inner == 0 && plan->num * plan->depth > 0)
        return coi_invalid(call, "there are %lld index vectors into a shape without elements",
                           (long long)plan->num);
    if (updates->ndim == plan->picked.ndim && memcmp(updates->u.tensor.dims, plan->picked.dims,
                                                     (size_t)updates->ndim * sizeof(int64_t)) == 0)
        return CO_OK;
    return coi_invalid(call, "updates have shape %s; for these indices it must be %s",
                       coi_shape_text(updates->u.tensor.dims, updates->ndim, a),
                       coi_shape_text(plan->picked.dims, plan->picked.ndim, b));
}

/* The same for types: what is known of the updates may be the shape of what is picked. */
static co_code
updates_fit(coi_call *call, const int64_t *dims, int ndim, const co_value *indices,
            const co_value *updates)
{
    coi_out picked;
    co_code code = pick(call, dims, ndim, indices, &picked);
    char    a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    if (code == CO_OK && indices->ndim == 1)
        return coi_invalid(call, "indices are one vector; they must be a list of vectors");
    if (code == CO_OK && !coi_merge_shape(&picked, updates->u.tensor.dims, updates->ndim))
        return coi_invalid(call, "updates have shape %s; for these indices it must be %s",
                           coi_shape_text(updates->u.tensor.dims, updates->ndim, a),
                           coi_shape_text(picked.dims, picked.ndim, b));
    return code;
}

/* Zeros of a shape, with updates added at their vectors. */
static co_value *
scattered(coi_call *call, const coi_ints *shape, co_value *indices, co_value *updates)
{
    co_context       *ctx = call->ctx;
    coi_scatter_attrs attrs = { .axis = 0 };
    co_value         *rows, *sum;
    nd_plan           plan;

    if (make_plan(call, shape->at, shape->n, indices, &plan) != CO_OK ||
        check_updates(call, updates, &plan) != CO_OK ||
        (rows = row_indices(call, shape->at, shape->n, indices, &plan)) == NULL)
        return NULL;
    attrs.shape = (coi_ints){ 2, { plan.rows, plan.inner } };
    sum = co_reshape(ctx, updates, (const int64_t[]){ plan.num, plan.inner }, 2);
    sum = coi_apply2(ctx, &coi_op_scatter_add, sum, rows, &attrs);
    return co_reshape(ctx, sum, shape->at, shape->n);
}

#define SCATTER_ND_ATTRS(X) X(scatter_nd_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(scatter_nd_attrs, SCATTER_ND_ATTRS)

static co_code
scatter_nd_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *shape = &((const scatter_nd_attrs *)call->attrs)->shape;
    char            text[COI_SHAPE_TEXT];
    int64_t         count;

    if (((COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL)) & COI_DTYPE_BIT(call->in[1]->dtype)) == 0)
        return coi_invalid(call, "updates have dtype %s; it must be bool or one of numbers",
                           co_dtype_name((co_dtype)call->in[1]->dtype));
    for (int d = 0; d < shape->n; ++d)
        if (shape->at[d] < 0)
            return coi_invalid(call, "shape %s: dimensions must be at least 0",
                               coi_ints_text(shape, text));
    if (coi_shape_check(shape->at, (size_t)(shape->n > 0 ? shape->n : 0), 8, &count,
                        coi_err(call->ctx)) != CO_OK)
        return coi_failed(call->ctx);
    coi_out_shape(outs, (co_dtype)call->in[1]->dtype, shape);
    return updates_fit(call, shape->at, outs[0].ndim, call->in[0], call->in[1]);
}

/* Bools are counted: what one of them makes true is true. */
static co_value *
scatter_nd_composite(coi_call *call)
{
    const coi_ints *shape = &((const scatter_nd_attrs *)call->attrs)->shape;
    co_value       *updates = call->in[1];
    co_context     *ctx = call->ctx;

    if (updates->dtype != CO_BOOL)
        return scattered(call, shape, call->in[0], updates);
    updates = co_cast(ctx, updates, CO_INT64);
    return updates != NULL ? co_cast(ctx, scattered(call, shape, call->in[0], updates), CO_BOOL)
                           : NULL;
}

/* The rows are in the elements of the indices. */
static bool
scatter_nd_is_known(const coi_call *call)
{
    return coi_has_data(call->in[0]) && coi_is_known_shape(call->in[1]);
}

const coi_op coi_op_scatter_nd = {
    COI_COMPOSITE(
        "scatter_nd",
        "Zeros of shape `shape` with updates added at the index vectors; equal indices add up.",
        "indices", "updates"),
    .dtypes = INDEX_DTYPES,
    COI_ATTRS(scatter_nd_attrs),
    .infer = scatter_nd_rule,
    .composite = scatter_nd_composite,
    .parts_are_known = scatter_nd_is_known,
};

co_value *
co_scatter_nd(co_context *ctx, co_value *indices, co_value *updates, const int64_t *dims, int ndim)
{
    scatter_nd_attrs attrs;
    co_value *const  given[2] = { indices, updates };

    COI_ENTER(ctx, "scatter_nd", NULL);
    if (!coi_ints_from_dims(ctx, "scatter_nd: dims", dims, (size_t)ndim, &attrs.shape))
        return NULL;
    return coi_apply_composite(ctx, &coi_op_scatter_nd, given, 2, &attrs);
}

/* What updates that fit say of the tensor: its dimensions behind those that are indexed. */
static void
merge_updates(coi_out *out, const co_value *indices, const co_value *updates)
{
    int     outer = indices->ndim - 1;
    int64_t depth = outer < 0 ? COI_UNKNOWN : indices->u.tensor.dims[outer];
    coi_out tensor = { .ndim = 0 };

    if (depth < 0 && outer >= 0 && out->ndim >= 0 && updates->ndim >= 0)
        depth = out->ndim - (updates->ndim - outer);
    if (depth < 0 || updates->ndim < outer || depth + updates->ndim - outer > CO_MAX_DIMS)
        return;
    for (int d = 0; d < depth; ++d)
        coi_out_insert(&tensor, d, COI_UNKNOWN);
    for (int d = outer; d < updates->ndim; ++d)
        coi_out_insert(&tensor, tensor.ndim, updates->u.tensor.dims[d]);
    coi_merge_shape(out, tensor.dims, tensor.ndim);
}

static co_code
tensor_scatter_rule(coi_call *call, coi_out *outs)
{
    const co_value *tensor = call->in[0];

    coi_out_like(outs, tensor);
    if (tensor->dtype == call->in[2]->dtype) {
        co_code code = updates_fit(call, tensor->u.tensor.dims, tensor->ndim, call->in[1],
                                   call->in[2]);

        if (code == CO_OK)
            merge_updates(outs, call->in[1], call->in[2]);
        return code;
    }
    return coi_invalid(call, "tensor has dtype %s and updates %s; they must be the same",
                       co_dtype_name((co_dtype)call->in[0]->dtype),
                       co_dtype_name((co_dtype)call->in[2]->dtype));
}

/* Into a copy, in the order of the vectors: what none of them names stays as it is, -0 too. */
static co_value *
tensor_scatter_nd_add_composite(coi_call *call)
{
    co_value      *tensor = call->in[0], *at, *sum, *from;
    const int64_t *dims = tensor->u.tensor.dims;
    co_dtype       dtype = (co_dtype)tensor->dtype;
    size_t         size = coi_dtypes[dtype].size;
    nd_plan        plan;

    if (make_plan(call, dims, tensor->ndim, call->in[1], &plan) != CO_OK ||
        check_updates(call, call->in[2], &plan) != CO_OK ||
        (at = row_indices(call, dims, tensor->ndim, call->in[1], &plan)) == NULL ||
        (sum = coi_host_zeros(call->ctx, dtype, dims, tensor->ndim)) == NULL ||
        (from = coi_host_value(call->ctx, call->in[2])) == NULL ||
        coi_download(call->ctx, tensor, coi_data_on_host(sum)) != CO_OK)
        return coi_give(call->ctx, NULL);
    for (int64_t v = 0; v < plan.num; ++v)
        coi_add_elements(
            dtype,
            (char *)coi_data_on_host(sum) + (size_t)(coi_index_at(at, v) * plan.inner) * size,
            (const char *)coi_data_on_host(from) + (size_t)(v * plan.inner) * size, plan.inner);
    return coi_place_here(call->ctx, sum);
}

static co_code
tensor_scatter_nd_add_grad(coi_grad *g)
{
    if (g->needed[0])
        g->grads[0] = g->upstream[0];
    if (g->needed[2])
        g->grads[2] = co_gather_nd(g->ctx, g->upstream[0], g->in[1]);
    return g->ctx->error.code;
}

/* Rows of `tensor` and of `updates` in one, and for every row of the result where it comes from;
 * the last update stays. */
static co_value *
tensor_scatter_nd_update_composite(coi_call *call)
{
    co_context    *ctx = call->ctx;
    co_value      *tensor = call->in[0], *both[2], *at, *from;
    const int64_t *dims = tensor->u.tensor.dims;
    nd_plan        plan;

    if (make_plan(call, dims, tensor->ndim, call->in[1], &plan) != CO_OK ||
        check_updates(call, call->in[2], &plan) != CO_OK ||
        (at = row_indices(call, dims, tensor->ndim, call->in[1], &plan)) == NULL)
        return NULL;
    from = coi_host_zeros(ctx, CO_INT64, &plan.rows, 1);
    for (int64_t r = 0; from != NULL && r < plan.rows; ++r)
        ((int64_t *)coi_data_on_host(from))[r] = r;
    for (int64_t v = 0; from != NULL && v < plan.num; ++v)
        ((int64_t *)coi_data_on_host(from))[coi_index_at(at, v)] = plan.rows + v;
    both[0] = co_reshape(ctx, tensor, (const int64_t[]){ plan.rows, plan.inner }, 2);
    both[1] = co_reshape(ctx, call->in[2], (const int64_t[]){ plan.num, plan.inner }, 2);
    return co_reshape(ctx, co_gather(ctx, co_concat(ctx, co_tuple(ctx, both, 2), 0), from, 0, 0),
                      dims, tensor->ndim);
}

/* What was replaced has no gradient; every update has that of its place, also one that another
 * replaced. */
static co_code
tensor_scatter_nd_update_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *dy = g->upstream[0], *updates = g->in[2];

    if (g->needed[0])
        g->grads[0] = co_tensor_scatter_nd_update(ctx, dy, g->in[1], coi_zeros_of(ctx, updates));
    if (g->needed[2])
        g->grads[2] = co_gather_nd(ctx, dy, g->in[1]);
    return ctx->error.code;
}

const coi_op coi_op_tensor_scatter_nd_add = {
    COI_COMPOSITE("tensor_scatter_nd_add", "tensor with updates added at the index vectors.",
                  "tensor", "indices", "updates"),
    .dtypes = COI_NUMBERS,
    .infer = tensor_scatter_rule,
    .grad = tensor_scatter_nd_add_grad,
    .composite = tensor_scatter_nd_add_composite,
};

const coi_op coi_op_tensor_scatter_nd_update = {
    COI_COMPOSITE("tensor_scatter_nd_update",
                  "tensor with its elements at the index vectors replaced by updates.", "tensor",
                  "indices", "updates"),
    .infer = tensor_scatter_rule,
    .grad = tensor_scatter_nd_update_grad,
    .composite = tensor_scatter_nd_update_composite,
};

co_value *
co_tensor_scatter_nd_add(co_context *ctx, co_value *tensor, co_value *indices, co_value *updates)
{
    co_value *const given[3] = { tensor, indices, updates };

    return coi_apply_composite(ctx, &coi_op_tensor_scatter_nd_add, given, 3, NULL);
}

co_value *
co_tensor_scatter_nd_update(co_context *ctx, co_value *tensor, co_value *indices, co_value *updates)
{
    co_value *const given[3] = { tensor, indices, updates };

    return coi_apply_composite(ctx, &coi_op_tensor_scatter_nd_update, given, 3, NULL);
}

typedef struct segment_attrs {
    int64_t num_segments;
} segment_attrs;
#define SEGMENT_ATTRS(X) X(segment_attrs, num_segments, INT, "", NULL)
COI_ATTR_TABLE(segment_attrs, SEGMENT_ATTRS)

static co_code
segment_rule(coi_call *call, coi_out *outs)
{
    int64_t         n = ((const segment_attrs *)call->attrs)->num_segments;
    const co_value *data = call->in[0];
    co_value       *ids = call->in[1];
    bool            knows = !coi_is_unknown_rank(data) && !coi_is_unknown_rank(ids);
    bool            fits = !knows || ids->ndim <= data->ndim;
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    if ((INDEX_DTYPES & COI_DTYPE_BIT(ids->dtype)) == 0)
        return coi_invalid(call, "ids have dtype %s; it must be int16, int32 or int64",
                           co_dtype_name((co_dtype)ids->dtype));
    for (int d = 0; knows && fits && d < ids->ndim; ++d)
        fits = coi_dims_fit(ids->u.tensor.dims[d], data->u.tensor.dims[d]);
    if (!fits)
        return coi_invalid(call, "ids have shape %s, which the shape of data, %s, must begin with",
                           coi_shape_text(ids->u.tensor.dims, ids->ndim, a),
                           coi_shape_text(data->u.tensor.dims, data->ndim, b));
    if (n < 0 || n > INT64_MAX / 16)
        return coi_invalid(call, "num_segments is %lld; it must be in [0, 2^59)", (long long)n);
    if (coi_has_data(ids) && (ids = coi_host_value(call->ctx, ids)) == NULL)
        return call->ctx->error.code;
    for (int64_t i = 0; coi_has_data(ids) && i < ids->u.tensor.num_elements; ++i)
        if (coi_index_at(ids, i) >= n)
            return coi_invalid(call, "ids[%lld] is %lld; it must be below num_segments, %lld",
                               (long long)i, (long long)coi_index_at(ids, i), (long long)n);
    coi_out_unknown(outs, (co_dtype)data->dtype);
    if (!knows)
        return CO_OK;
    if (1 + data->ndim - ids->ndim > CO_MAX_DIMS)
        return coi_invalid(call, "the result would have more than %d dimensions", CO_MAX_DIMS);
    coi_out_vector(outs, (co_dtype)data->dtype, n);
    for (int d = ids->ndim; d < data->ndim; ++d)
        coi_out_insert(outs, outs[0].ndim, data->u.tensor.dims[d]);
    return CO_OK;
}

/* Rows of negative ids go to a segment of their own behind the others, which is cut off. */
static co_value *
unsorted_segment_sum_composite(coi_call *call)
{
    int64_t           n = ((const segment_attrs *)call->attrs)->num_segments;
    co_context       *ctx = call->ctx;
    co_value         *data = call->in[0], *ids = call->in[1], *sum;
    int64_t           num = coi_known_elements(ids), inner = 1, dims[CO_MAX_DIMS] = { n };
    int               ndim = 1;
    coi_scatter_attrs attrs = { .axis = 0 };

    for (int d = ids->ndim; d < data->ndim; ++d) {
        inner *= data->u.tensor.dims[d];
        dims[ndim++] = data->u.tensor.dims[d];
    }
    attrs.shape = (coi_ints){ 2, { n + 1, inner } };
    ids = co_cast(ctx, co_reshape(ctx, ids, &num, 1), CO_INT64);
    ids = co_where(ctx, co_less(ctx, ids, co_int(ctx, 0)), co_scalar_int64(ctx, n), ids);
    sum = co_reshape(ctx, data, (const int64_t[]){ num, inner }, 2);
    sum = coi_apply2(ctx, &coi_op_scatter_add, sum, ids, &attrs);
    sum = co_slice(ctx, sum, (const int64_t[]){ 0, 0 }, (const int64_t[]){ n, -1 }, 2);
    return co_reshape(ctx, sum, dims, ndim);
}

const coi_op coi_op_unsorted_segment_sum = {
    COI_COMPOSITE("unsorted_segment_sum",
                  "Rows of data summed by id, in order; rows with negative ids are dropped.",
                  "data", "ids"),
    .dtypes = COI_NUMBERS,
    COI_ATTRS(segment_attrs),
    .infer = segment_rule,
    .composite = unsorted_segment_sum_composite,
};

co_value *
co_unsorted_segment_sum(co_context *ctx, co_value *data, co_value *ids, int64_t num_segments)
{
    segment_attrs   attrs = { num_segments };
    co_value *const given[2] = { data, ids };

    return coi_apply_composite(ctx, &coi_op_unsorted_segment_sum, given, 2, &attrs);
}

static co_code
embedding_lookup_rule(coi_call *call, coi_out *outs)
{
    coi_gather_attrs rows = { .axis = 0, .batch_dims = 0 };
    coi_call         gather = *call;

    gather.attrs = &rows;
    return coi_op_gather.infer(&gather, outs);
}

static co_value *
embedding_lookup_composite(coi_call *call)
{
    return co_gather(call->ctx, call->in[0], call->in[1], 0, 0);
}

const coi_op coi_op_embedding_lookup = {
    COI_COMPOSITE("embedding_lookup", "Rows of a table by id; the gradient is indexed slices.",
                  "params", "ids"),
    .infer = embedding_lookup_rule,
    .composite = embedding_lookup_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_embedding_lookup(co_context *ctx, co_value *params, co_value *ids)
{
    co_value *const given[2] = { params, ids };

    return coi_apply_composite(ctx, &coi_op_embedding_lookup, given, 2, NULL);
}

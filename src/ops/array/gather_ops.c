/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows by index: gather, and scatter_add, which is its gradient and its opposite. The gradient of
 * rows gathered from axis 0 stays a list of rows (indexed slices), since a table of embeddings is
 * far larger than what one step reads of it.
 */
#include "ops/kernels/gather.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/engine/like_ops.h"
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

static co_value *
rows_as_slices(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *indices = g->in[1];
    int         ndim = indices->ndim;

    if (indices->dtype == CO_INT16) /* slices have int32 or int64 */
        indices = co_cast(ctx, indices, CO_INT32);
    if (ndim < 0)
        return co_slices(ctx, coi_rows_like(ctx, g->upstream[0], indices, g->in[0]),
                         co_reshape(ctx, indices, CO_SHAPE(-1)), coi_shape_of(ctx, g->in[0]));
    return co_slices(ctx, coi_merge_dims(ctx, g->upstream[0], 0, ndim),
                     coi_merge_dims(ctx, indices, 0, ndim), coi_shape_of(ctx, g->in[0]));
}

static co_code
gather_grad(coi_grad *g)
{
    const coi_gather_attrs *attrs = g->attrs;
    int64_t                 axis = coi_gather_axis(attrs);
    coi_scatter_attrs       back = { { 0, { 0 } }, axis, attrs->batch_dims };
    coi_sized_op    add = { &coi_op_scatter_add, &back, COI_SHAPE_AT(coi_scatter_attrs, shape), 0 };
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
    .run = coi_gather_run,
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
    .run = coi_scatter_add_run,
    .grad = scatter_add_grad,
};

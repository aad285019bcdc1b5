/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexed slices: rows of a tensor that is zero elsewhere, and their indices, which may repeat. The
 * gradient of a table of embeddings is one. The plain conversion to a tensor is in
 * value/indexed_slices.c.
 */
#include "ops/engine/composite.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/gather.h"
#include "ops/engine/execute.h"

/* Entries of other files. */
COI_USES_OP(scatter_add)

/* Dimensions of specs, and their ranks, may be unknown. */
static bool
may_be_equal(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}

static bool
check_slices(co_context *ctx, const co_value *values, const co_value *indices,
             const co_value *dense_shape)
{
    char text[COI_SHAPE_TEXT];

    if ((indices->dtype != CO_INT32 && indices->dtype != CO_INT64) || indices->ndim != 1)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (indices) of slices is %s %s; it must be a vector of int32 or int64",
                 co_dtype_name((co_dtype)indices->dtype),
                 coi_shape_text(indices->u.tensor.dims, indices->ndim, text));
    else if (values->ndim == 0 || (values->ndim > 0 && !may_be_equal(values->u.tensor.dims[0],
                                                                     indices->u.tensor.dims[0])))
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 2 (values) of slices has shape %s; it must have one row for each of %lld "
            "indices",
            coi_shape_text(values->u.tensor.dims, values->ndim, text),
            (long long)indices->u.tensor.dims[0]);
    else if (dense_shape != NULL &&
             ((dense_shape->dtype != CO_INT32 && dense_shape->dtype != CO_INT64) ||
              dense_shape->ndim != 1 || !may_be_equal(dense_shape->u.tensor.dims[0], values->ndim)))
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 4 (dense_shape) of slices is %s %s; it must be a vector of int32 or "
                 "int64 with %d elements, the rank of the values",
                 co_dtype_name((co_dtype)dense_shape->dtype),
                 coi_shape_text(dense_shape->u.tensor.dims, dense_shape->ndim, text), values->ndim);
    return ctx->error.code == CO_OK;
}

/* A tensor; while gradients are taken of types, a spec too. */
static bool
check_part(co_context *ctx, co_value *value, int position, const char *name)
{
    return (ctx->infers_types && value != NULL && coi_is_live(&ctx->heap, value) &&
            coi_is_type(value)) ||
           coi_check_kind(ctx, value, CO_KIND_TENSOR, position, name);
}

co_value *
co_slices(co_context *ctx, co_value *values, co_value *indices, co_value *dense_shape)
{
    COI_ENTER(ctx, "slices", NULL);
    if (!check_part(ctx, values, 2, "values") || !check_part(ctx, indices, 3, "indices") ||
        (dense_shape != NULL && !check_part(ctx, dense_shape, 4, "dense_shape")) ||
        !check_slices(ctx, values, indices, dense_shape))
        return NULL;
    return coi_give(ctx, coi_composite_new(&ctx->heap, CO_KIND_SLICES,
                                           (co_value *[]){ values, indices, dense_shape },
                                           coi_err(ctx)));
}

/* A component as a value of the block. */
static co_value *
slices_part(co_context *ctx, co_value *slices, int part)
{
    if (!coi_check_kind(ctx, slices, CO_KIND_SLICES, 2, "slices") ||
        slices->u.components[part] == NULL)
        return NULL;
    return coi_own_ref(ctx, slices->u.components[part]);
}

co_value *
co_slices_values(co_context *ctx, co_value *slices)
{
    COI_ENTER(ctx, "slices_values", NULL);
    return slices_part(ctx, slices, 0);
}

co_value *
co_slices_indices(co_context *ctx, co_value *slices)
{
    COI_ENTER(ctx, "slices_indices", NULL);
    return slices_part(ctx, slices, 1);
}

co_value *
co_slices_dense_shape(co_context *ctx, co_value *slices)
{
    COI_ENTER(ctx, "slices_dense_shape", NULL);
    return slices_part(ctx, slices, 2);
}

/* --- the row of the kind --- */

static co_value *
scatter_rows(co_context *ctx, co_value *values, co_value *indices, co_value *shape)
{
    coi_scatter_attrs attrs = { .axis = 0 };

    if (shape == NULL || shape->kind != CO_KIND_TENSOR || shape->ndim != 1 ||
        shape->u.tensor.num_elements > CO_MAX_DIMS || !coi_dtypes[shape->dtype].integer) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "indexed slices without a dense shape cannot become a tensor; give co_slices one");
        return NULL;
    }
    shape = coi_host_value(ctx, shape);
    if (shape == NULL)
        return NULL;
    attrs.shape.n = (int32_t)shape->u.tensor.num_elements;
    coi_convert((co_dtype)shape->dtype, coi_data_on_host(shape), CO_INT64, attrs.shape.at,
                attrs.shape.n);
    return coi_apply2(ctx, &coi_op_scatter_add, values, indices, &attrs);
}

/* The dense shape is in elements: of its rank no more is known than that of the values. */
static co_code
slices_to_tensor_rule(coi_call *call, coi_out *outs)
{
    coi_out_like(outs, call->in[0]);
    if (outs[0].ndim > 0)
        outs[0].dims[0] = COI_UNKNOWN;
    return CO_OK;
}

static co_value *
slices_to_tensor_composite(coi_call *call)
{
    return scatter_rows(call->ctx, call->in[0], call->in[1], call->in[2]);
}

static co_code
slices_to_tensor_grad(coi_grad *g)
{
    if (g->needed[0])
        g->grads[0] = co_gather(g->ctx, g->upstream[0], g->in[1], 0, 0);
    return g->ctx->error.code;
}

/* Stands for slices whose shape is not known yet where a tensor is wanted. */
const coi_op coi_op_slices_of_types_to_tensor = {
    COI_COMPOSITE("slices_to_tensor", "Zeros of a shape with rows added at their indices.",
                  "values", "indices", "dense_shape"),
    .entry = "slices_of_types_to_tensor",
    .internal = true,
    .not_by_name = true,
    .infer = slices_to_tensor_rule,
    .grad = slices_to_tensor_grad,
    .composite = slices_to_tensor_composite,
};

static co_value *
by_operators(co_context *ctx, co_value *slices)
{
    co_value *const *parts = slices->u.components;

    return ctx->infers_types && parts[2] != NULL && coi_is_type(parts[2])
               ? coi_apply_composite(ctx, &coi_op_slices_of_types_to_tensor, parts, 3, NULL)
               : scatter_rows(ctx, parts[0], parts[1], parts[2]);
}

typedef struct densifying {
    co_value *slices, *dense;
} densifying;

static bool
densify(co_context *ctx, void *arg)
{
    densifying *d = arg;

    d->dense = coi_slices_dense(&ctx->heap, d->slices, coi_err(ctx));
    return d->dense != NULL;
}

const coi_op coi_op_slices_to_tensor = {
    COI_EFFECT("slices_to_tensor", "Converts indexed slices to a tensor; co_to_tensor.",
               coi_body_effect, 0, 0)
};

static co_value *
as_tensor(co_context *ctx, co_value *slices, co_dtype dtype)
{
    densifying d = { slices, NULL };
    coi_effect shown = { .in = slices->u.components,
                         .num_in = coi_kind_of(slices)->composite->n,
                         .out = &d.dense,
                         .num_out = 1 };

    (void)dtype;
    coi_execute_body(ctx, &coi_op_slices_to_tensor, shown, densify, &d);
    return d.dense;
}

static co_value *
no_type(coi_heap *heap, co_value *slices, co_error_info *err)
{
    (void)heap;
    (void)slices;
    coi_error(err, CO_TYPE_ERROR, "indexed slices have no spec; ask for that of their values");
    return NULL;
}

/* How many numbers two vectors of int32 or int64 have in common before they differ; both lengths
 * where they are the same. */
static int64_t
common_numbers(const co_value *x, const co_value *y)
{
    int64_t n = x->u.tensor.num_elements, m = y->u.tensor.num_elements, i = 0;

    while (i < n && i < m && coi_index_at(x, i) == coi_index_at(y, i))
        ++i;
    return i;
}

static const char *
numbers_text(const co_value *vector, char *text)
{
    int64_t dims[CO_MAX_DIMS];

    coi_convert((co_dtype)vector->dtype, coi_data_on_host(vector), CO_INT64, dims,
                vector->u.tensor.num_elements);
    return coi_shape_text(dims, (int)vector->u.tensor.num_elements, text);
}

/* Whether slices are of the rows of the target, and of a tensor of its shape where both say
 * which. */
static bool
check_rows(co_context *ctx, size_t i, const co_value *given, const co_value *target)
{
    const co_value *at = coi_host_value(ctx, given->u.slices.indices);
    const co_value *wanted = coi_host_value(ctx, target->u.slices.indices);
    co_value       *shape = given->u.slices.dense_shape;
    co_value       *wanted_shape = target->u.slices.dense_shape;
    int64_t         n, m, common;
    char            text[COI_SHAPE_TEXT], wanted_text[COI_SHAPE_TEXT];

    if (shape != NULL && wanted_shape != NULL) {
        shape = coi_host_value(ctx, shape);
        wanted_shape = coi_host_value(ctx, wanted_shape);
    }
    if (ctx->error.code != CO_OK)
        return false;
    n = at->u.tensor.num_elements;
    m = wanted->u.tensor.num_elements;
    common = common_numbers(at, wanted);
    if (common < n || common < m)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "output gradient %zu has slices of other rows than its target: its %lld ind%s "
                 "and the target's %lld differ from indices[%lld] on; give slices with the same "
                 "indices, or a tensor in the shape of the target's values",
                 i, (long long)n, COI_ICES(n), (long long)m, (long long)common);
    else if (shape != NULL && wanted_shape != NULL &&
             (shape->u.tensor.num_elements != wanted_shape->u.tensor.num_elements ||
              common_numbers(shape, wanted_shape) < shape->u.tensor.num_elements))
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "output gradient %zu has slices of a tensor of shape %s, its target of %s; give "
                 "slices with the dense shape of the target, or without one",
                 i, numbers_text(shape, text), numbers_text(wanted_shape, wanted_text));
    return ctx->error.code == CO_OK;
}

/* Rows of two replicas with one index add up, so concatenating is a sum. */
static const coi_composite components = {
    .type_name = "IndexedSlices",
    .n = 3,
    .components = { { "values", COI_CONCAT_SCALED, false },
                    { "indices", COI_CONCAT, false },
                    { "dense_shape", COI_TAKE_FIRST, true } },
    .sum_alone = "two replicas may hold one row, and nothing tells whose counts",
    .by_operators = by_operators,
    .check_gradient = check_rows,
};

const coi_kind_ops coi_slices_kind = {
    .name = "indexed slices",
    .a_name = "indexed slices",
    .composite = &components,
    .destroy = coi_composite_destroy,
    .print = coi_composite_print,
    .type = no_type,
    .as_tensor = as_tensor,
};

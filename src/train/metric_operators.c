/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small compositions of operators that several families of metrics use.
 */
#include "train/metric.h"

#include "ops/engine/like_ops.h"

co_value *
coi_metric_cast(co_context *ctx, co_value *x, co_dtype dtype)
{
    return x == NULL || co_value_dtype(ctx, x) == dtype ? x : co_cast(ctx, x, dtype);
}

bool
coi_check_known_rank(co_context *ctx, const char *name, co_value *x)
{
    if (x->ndim >= 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "the rank of %s is not known while the function is captured; give the function a "
             "signature with a rank, or use co_ensure_shape",
             name);
    return false;
}

/* `longer` has one dimension more. */
static void
match(co_context *ctx, co_value **longer, co_value **shorter, bool expands)
{
    int64_t last = (*longer)->u.tensor.dims[(*longer)->ndim - 1];

    if (last < 0)
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "operands of a metric have %d and %d dimensions, and whether the last of %d is 1 is "
            "not known while the function is captured; give the function a signature with it",
            (*longer)->ndim, (*shorter)->ndim, (*longer)->ndim);
    if (last != 1)
        return;
    if ((*shorter)->ndim == 1 && expands)
        *shorter = co_expand_dims(ctx, *shorter, -1);
    else
        *longer = co_squeeze(ctx, *longer, CO_AXES(-1));
}

bool
coi_match_ranks(co_context *ctx, co_value **a, co_value **b, bool expands)
{
    if ((*a)->ndim == (*b)->ndim + 1)
        match(ctx, a, b, expands);
    else if ((*b)->ndim == (*a)->ndim + 1)
        match(ctx, b, a, expands);
    return ctx->error.code == CO_OK;
}

co_value *
coi_flat(co_context *ctx, co_value *x)
{
    return x == NULL || x->ndim == 1 ? x : co_reshape(ctx, x, CO_SHAPE(-1));
}

co_value *
coi_reduce_from(co_context *ctx, co_value *x, int first, bool mean)
{
    int    axes[CO_MAX_DIMS];
    size_t n = 0;

    if (x == NULL || x->ndim <= first)
        return x;
    for (int axis = first; axis < x->ndim; ++axis)
        axes[n++] = axis;
    return mean ? co_reduce_mean(ctx, x, axes, n, false) : co_reduce_sum(ctx, x, axes, n, false);
}

co_value *
coi_divide_no_nan(co_context *ctx, co_value *x, co_value *y)
{
    co_value *is_zero = co_equal(ctx, y, co_int(ctx, 0));

    return co_where(ctx, is_zero, co_int(ctx, 0),
                    co_div(ctx, x, co_where(ctx, is_zero, co_int(ctx, 1), y)));
}

/* Whether what is known of the shapes allows it. */
static bool
may_broadcast(const co_value *x, const co_value *like)
{
    int more = like->ndim - x->ndim;

    for (int d = 0; more >= 0 && d < x->ndim; ++d) {
        int64_t mine = x->u.tensor.dims[d], its = like->u.tensor.dims[d + more];

        if (mine != 1 && mine != its && mine >= 0 && its >= 0)
            return false;
    }
    return more >= 0;
}

co_value *
coi_metric_broadcast(co_context *ctx, const char *what, co_value *x, co_value *like)
{
    char mine[COI_SHAPE_TEXT], its[COI_SHAPE_TEXT];

    if (x == NULL || like == NULL)
        return NULL;
    if (may_broadcast(x, like))
        return coi_broadcast_like(ctx, x, like);
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "%s have shape %s, which does not broadcast to the values of shape %s; give a number "
             "for each example, or for each value",
             what, coi_shape_text(x->u.tensor.dims, x->ndim, mine),
             coi_shape_text(like->u.tensor.dims, like->ndim, its));
    return NULL;
}

co_value *
coi_metric_numbers(co_context *ctx, co_dtype dtype, const double *numbers, size_t n)
{
    return coi_metric_cast(ctx, co_tensor(ctx, CO_FLOAT64, CO_SHAPE((int64_t)n), numbers), dtype);
}

co_value *
coi_batch_weight(co_context *ctx, const coi_metric_batch *batch, co_dtype dtype)
{
    co_value *weight = coi_metric_cast(ctx, batch->weight, dtype), *mask = batch->mask;

    if (mask == NULL)
        return weight;
    mask = coi_metric_cast(ctx, coi_metric_cast(ctx, mask, CO_BOOL), dtype);
    if (weight == NULL || mask == NULL)
        return mask;
    return coi_match_ranks(ctx, &mask, &weight, true) ? co_mul(ctx, weight, mask) : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See composite.h. */
#include "ops/engine/composite.h"
#include "ops/engine/type_rules.h"

#include <math.h>
#include <string.h>

coi_split_shape
coi_split_at(const co_value *x, int axis)
{
    coi_split_shape shape = { 1, x->u.tensor.dims[axis], 1 };

    for (int d = 0; d < axis; ++d)
        shape.outer *= x->u.tensor.dims[d];
    for (int d = axis + 1; d < x->ndim; ++d)
        shape.inner *= x->u.tensor.dims[d];
    return shape;
}

co_value *
coi_as_three(co_context *ctx, co_value *x, const coi_split_shape *shape)
{
    return co_reshape(ctx, x, (const int64_t[]){ shape->outer, shape->n, shape->inner }, 3);
}

co_value *
coi_from_three(co_context *ctx, co_value *three, const co_value *like, int axis, int64_t n)
{
    int64_t dims[CO_MAX_DIMS];

    memcpy(dims, like->u.tensor.dims, (size_t)like->ndim * sizeof(int64_t));
    dims[axis] = n;
    return co_reshape(ctx, three, dims, like->ndim);
}

bool
coi_knows_axis(const co_value *x, int64_t axis)
{
    return !coi_is_unknown_rank(x) && x->u.tensor.dims[coi_axis_of(axis, x->ndim)] >= 0;
}

void
coi_axes_of(const coi_ints *axis, coi_axes *out)
{
    out->axes = axis->n < 0 ? NULL : out->at;
    out->n = axis->n < 0 ? 0 : (size_t)axis->n;
    for (size_t i = 0; i < out->n; ++i)
        out->at[i] = (int)axis->at[i];
}

co_value *
coi_reversed_order(co_context *ctx, co_value *x)
{
    const uint64_t ones = UINT64_MAX;

    if (coi_dtypes[x->dtype].floating)
        return co_neg(ctx, x);
    if (x->dtype == CO_BOOL)
        return co_logical_not(ctx, x);
    return co_sub(ctx, co_tensor(ctx, (co_dtype)x->dtype, NULL, 0, &ones), x);
}

coi_scalar
coi_scalar_of(double number)
{
    if (number == floor(number) && fabs(number) < 0x1p63)
        return (coi_scalar){ CO_KIND_INT, (int64_t)number, 0 };
    return (coi_scalar){ CO_KIND_FLOAT, 0, number };
}

co_value *
coi_scalar_value(co_context *ctx, const coi_scalar *scalar)
{
    return scalar->kind == CO_KIND_FLOAT ? co_float(ctx, scalar->f) : co_int(ctx, scalar->i);
}

co_value *
coi_shape_tensor(co_context *ctx, const co_value *x)
{
    int64_t        ndim = x->ndim;
    const int64_t *dims = x->u.tensor.dims;
    int32_t        narrow[CO_MAX_DIMS];

    for (int d = 0; d < ndim; ++d) {
        if (dims[d] > INT32_MAX)
            return co_tensor(ctx, CO_INT64, &ndim, 1, dims);
        narrow[d] = (int32_t)dims[d];
    }
    return co_tensor(ctx, CO_INT32, &ndim, 1, narrow);
}

co_value *
coi_shape_of(co_context *ctx, co_value *x)
{
    return coi_is_known_shape(x) ? coi_shape_tensor(ctx, x) : co_shape(ctx, x);
}

static size_t
parts_room(size_t n)
{
    return (n + 1) * sizeof(co_value *);
}

co_value **
coi_parts(co_context *ctx, const char *op, size_t n)
{
    co_value **parts = coi_small_alloc(&ctx->heap, parts_room(n));

    if (parts == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for %zu results", op, n);
    return parts;
}

void
coi_free_parts(co_context *ctx, co_value **parts, size_t n)
{
    coi_small_free(&ctx->heap, parts, parts_room(n));
}

co_value *
coi_tuple_of_parts(co_context *ctx, co_value **parts, size_t n)
{
    co_value *tuple = co_tuple(ctx, parts, n); /* nothing while there is an error */

    coi_free_parts(ctx, parts, n);
    return tuple;
}

co_value *
coi_div_no_nan(co_context *ctx, co_value *x, co_value *y)
{
    co_value *zero = co_zeros(ctx, (co_dtype)y->dtype, NULL, 0);
    co_value *is_zero = co_equal(ctx, y, zero);
    co_value *safe = co_where(ctx, is_zero, co_ones(ctx, (co_dtype)y->dtype, NULL, 0), y);

    return co_where(ctx, is_zero, zero, co_div(ctx, x, safe));
}

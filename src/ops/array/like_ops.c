/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors made from a shape or from what is in another one: shape, size, rank, zeros_like,
 * ones_like, where_index, eye, linspace. None has a gradient.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/gather.h"
#include "ops/engine/type_rules.h"

#include <string.h>

static co_value *
shape_composite(coi_call *call)
{
    return coi_shape_tensor(call->ctx, call->in[0]);
}

static co_value *
size_composite(coi_call *call)
{
    int64_t n = call->in[0]->u.tensor.num_elements;

    return n > INT32_MAX ? co_scalar_int64(call->ctx, n) : co_scalar_int32(call->ctx, (int32_t)n);
}

static co_value *
rank_composite(coi_call *call)
{
    return co_scalar_int32(call->ctx, call->in[0]->ndim);
}

static co_value *
zeros_like_composite(coi_call *call)
{
    const co_value *x = call->in[0];

    return co_zeros(call->ctx, (co_dtype)x->dtype, x->u.tensor.dims, x->ndim);
}

static co_value *
ones_like_composite(coi_call *call)
{
    const co_value *x = call->in[0];

    return co_ones(call->ctx, (co_dtype)x->dtype, x->u.tensor.dims, x->ndim);
}

/* Coordinates of what is not zero, as a cast to bool decides: NaN is not, a subnormal number is in
 * float32 and float64. */
static co_value *
where_index_composite(coi_call *call)
{
    co_context    *ctx = call->ctx;
    co_value      *x = call->in[0], *out;
    const uint8_t *chosen;
    int64_t        dims[2] = { 0, x->ndim }, *at;

    x = co_cast(ctx, x, CO_BOOL);
    if (x != NULL)
        x = coi_host_value(ctx, x);
    if (x == NULL)
        return NULL;
    chosen = coi_data_on_host(x);
    for (int64_t i = 0; i < x->u.tensor.num_elements; ++i)
        dims[0] += chosen[i] != 0;
    out = coi_host_zeros(ctx, CO_INT64, dims, 2);
    if (out == NULL)
        return NULL;
    at = coi_data_on_host(out);
    for (int64_t i = 0; i < x->u.tensor.num_elements; ++i) {
        int64_t rest = i;

        for (int d = x->ndim - 1; chosen[i] != 0 && d >= 0; --d) {
            at[d] = rest % x->u.tensor.dims[d];
            rest /= x->u.tensor.dims[d];
        }
        at += chosen[i] != 0 ? x->ndim : 0;
    }
    return coi_place_here(ctx, out);
}

/* Dimensions of more than 2^31 - 1 need int64; one that is unknown is taken to be smaller. */
static co_code
shape_rule(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0];

    coi_out_vector(outs, CO_INT32, x->ndim);
    for (int d = 0; d < x->ndim; ++d)
        if (x->u.tensor.dims[d] > INT32_MAX)
            outs[0].dtype = CO_INT64;
    return CO_OK;
}

static co_code
size_rule(coi_call *call, coi_out *outs)
{
    coi_out_scalar(outs, coi_known_elements(call->in[0]) > INT32_MAX ? CO_INT64 : CO_INT32);
    return CO_OK;
}

static co_code
rank_rule(coi_call *call, coi_out *outs)
{
    (void)call;
    coi_out_scalar(outs, CO_INT32);
    return CO_OK;
}

#define zeros_like_rule coi_rule_same
#define ones_like_rule  coi_rule_same

/* How many are not zero is in the elements. */
static co_code
where_index_rule(coi_call *call, coi_out *outs)
{
    if (call->in[0]->ndim == 0)
        return coi_invalid(call, "x is a scalar; it must have an axis");
    outs[0] = (coi_out){ CO_INT64, 2, { COI_UNKNOWN, call->in[0]->ndim } };
    return CO_OK;
}

#define LIKE(name_, function_, dtypes_, doc_)                                                      \
    const coi_op coi_op_##name_ = {                                                                \
        COI_COMPOSITE(#name_, doc_, "x"), .dtypes = dtypes_,                                       \
        .not_differentiable = true,       .infer = name_##_rule,                                   \
        .composite = name_##_composite,                                                            \
    };                                                                                             \
    co_value *function_(co_context *ctx, co_value *x)                                              \
    {                                                                                              \
        return coi_apply_composite(ctx, &coi_op_##name_, &x, 1, NULL);                             \
    }

LIKE(shape, co_shape, 0, "The shape of x, as int32.")
LIKE(size, co_size, 0, "The number of elements of x, as int32.")
LIKE(rank, co_rank, 0, "The number of dimensions of x, as int32.")
LIKE(zeros_like, co_zeros_like, 0, "Zeros with the shape and dtype of x.")
LIKE(ones_like, co_ones_like, COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
     "Ones with the shape and dtype of x.")
LIKE(where_index, co_where_index, COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
     "The coordinates of the elements of x that are not zero, as int64 [n, rank].")

typedef struct eye_attrs {
    int64_t  num_rows, num_columns; /* -1: as many as rows */
    coi_ints batch_shape;
    uint8_t  dtype;
} eye_attrs;
#define EYE_ATTRS(X)                                                                               \
    X(eye_attrs, num_rows, INT, "", NULL)                                                          \
    X(eye_attrs, num_columns, INT, "=-1", NULL)                                                    \
    X(eye_attrs, batch_shape, INTS, "=null", NULL)                                                 \
    X(eye_attrs, dtype, DTYPE, "=float32", NULL)
COI_ATTR_TABLE(eye_attrs, EYE_ATTRS)

static co_code
eye_rule(coi_call *call, coi_out *outs)
{
    const eye_attrs *attrs = call->attrs;
    co_dtype         dtype = (co_dtype)attrs->dtype;
    const coi_ints  *batch = &attrs->batch_shape;
    int64_t rows = attrs->num_rows, columns = attrs->num_columns == -1 ? rows : attrs->num_columns;
    bool    fits = rows >= 0 && columns >= 0;
    char    text[COI_SHAPE_TEXT];

    for (int i = 0; i < batch->n; ++i)
        fits = fits && batch->at[i] >= 0;
    if (dtype == CO_DTYPE_NONE || dtype >= CO_STRING)
        return coi_invalid(call, "dtype is %s; it must be bool or a dtype of numbers",
                           co_dtype_name(dtype));
    if (!fits)
        return coi_invalid(
            call, "num_rows is %lld, num_columns %lld, batch_shape %s; all must be at least 0",
            (long long)rows, (long long)columns, coi_ints_text(batch, text));
    if (batch->n > CO_MAX_DIMS - 2)
        return coi_invalid(call,
                           "batch_shape has %d dimensions; with rows and columns at most %d fit",
                           batch->n, CO_MAX_DIMS - 2);
    coi_out_shape(outs, dtype, batch);
    coi_out_insert(outs, outs[0].ndim, rows);
    coi_out_insert(outs, outs[0].ndim, columns);
    return CO_OK;
}

static co_value *
eye_composite(coi_call *call)
{
    static const coi_scalar one = { CO_KIND_INT, 1, 0 };
    co_dtype                dtype = (co_dtype)((const eye_attrs *)call->attrs)->dtype;
    int64_t                 rows, columns;
    char                    element[8];
    coi_out                 out;
    co_value               *x;

    if (eye_rule(call, &out) != CO_OK)
        return NULL;
    rows = out.dims[out.ndim - 2];
    columns = out.dims[out.ndim - 1];
    x = coi_host_zeros(call->ctx, dtype, out.dims, out.ndim);
    if (x == NULL)
        return NULL;
    coi_scalar_store(&one, dtype, element);
    for (int64_t first = 0; first < x->u.tensor.num_elements; first += rows * columns)
        for (int64_t i = 0; i < rows && i < columns; ++i)
            memcpy((char *)coi_data_on_host(x) +
                       (size_t)(first + i * columns + i) * coi_dtypes[dtype].size,
                   element, coi_dtypes[dtype].size);
    return coi_place_here(call->ctx, x);
}

const coi_op coi_op_eye = {
    .name = "eye",
    .doc = "Matrices with ones on the diagonal and zeros elsewhere.",
    .num_outputs = 1,
    .not_differentiable = true,
    COI_ATTRS(eye_attrs),
    .infer = eye_rule,
    .composite = eye_composite,
    .composes_checked = true,
};

co_value *
co_eye(co_context *ctx, co_dtype dtype, int64_t num_rows, int64_t num_columns)
{
    eye_attrs attrs = { num_rows, num_columns, { .n = -1 }, coi_dtype_attr(dtype) };

    return coi_apply_composite(ctx, &coi_op_eye, NULL, 0, &attrs);
}

typedef struct linspace_attrs {
    double  start, stop;
    int64_t num;
    uint8_t dtype;
} linspace_attrs;
#define LINSPACE_ATTRS(X)                                                                          \
    X(linspace_attrs, start, FLOAT, "", NULL)                                                      \
    X(linspace_attrs, stop, FLOAT, "", NULL)                                                       \
    X(linspace_attrs, num, INT, "", NULL)                                                          \
    X(linspace_attrs, dtype, DTYPE, "=float32", NULL)
COI_ATTR_TABLE(linspace_attrs, LINSPACE_ATTRS)

static co_code
linspace_rule(coi_call *call, coi_out *outs)
{
    const linspace_attrs *attrs = call->attrs;

    if (attrs->num < 0 || attrs->dtype >= CO_NUM_DTYPES || !coi_dtypes[attrs->dtype].floating)
        return coi_invalid(call,
                           "num is %lld and dtype %s; num is at least 0, and dtype one of floats",
                           (long long)attrs->num, co_dtype_name((co_dtype)attrs->dtype));
    coi_out_vector(outs, (co_dtype)attrs->dtype, attrs->num);
    return CO_OK;
}

static co_value *
linspace_composite(coi_call *call)
{
    const linspace_attrs *attrs = call->attrs;
    co_context           *ctx = call->ctx;
    int64_t               n = attrs->num;
    co_value             *x;
    double               *at;

    x = coi_host_zeros(ctx, CO_FLOAT64, &n, 1);
    if (x == NULL)
        return NULL;
    at = coi_data_on_host(x);
    for (int64_t i = 0; i < n; ++i)
        at[i] = attrs->start + (double)i * ((attrs->stop - attrs->start) / (double)(n - 1));
    if (n > 0)
        at[0] = attrs->start;
    if (n > 1)
        at[n - 1] = attrs->stop;
    return co_cast(ctx, x, (co_dtype)attrs->dtype);
}

const coi_op coi_op_linspace = {
    .name = "linspace",
    .doc = "num evenly spaced numbers from start to stop, both included.",
    .num_outputs = 1,
    .not_differentiable = true,
    COI_ATTRS(linspace_attrs),
    .infer = linspace_rule,
    .composite = linspace_composite,
};

co_value *
co_linspace(co_context *ctx, co_dtype dtype, double start, double stop, int64_t num)
{
    linspace_attrs attrs = { start, stop, num, coi_dtype_attr(dtype) };

    return coi_apply_composite(ctx, &coi_op_linspace, NULL, 0, &attrs);
}

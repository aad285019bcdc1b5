/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules that many operators share: shapes, axes, and undoing broadcasting in a backward step.
 */
#include "ops/engine/op.h"
#include "ops/engine/type_rules.h"

#include <stdio.h>
#include <string.h>

/* Entries of other files. */
COI_USES_OP(sum_to_like)

co_code
coi_rule_same(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0];

    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; ++d) /* a scalar copies nothing, and pays for no call */
        outs[0].dims[d] = x->u.tensor.dims[d];
    return CO_OK;
}

/* What is unknown beside a dimension that is not 1 must be that or 1. */
static inline bool
broadcast_dim(int64_t p, int64_t q, int64_t *out)
{
    if (p == q || q == 1 || (q < 0 && p != 1))
        *out = p;
    else if (p == 1 || p < 0)
        *out = q;
    else
        return false;
    return true;
}

bool
coi_broadcast(const int64_t *a, int na, const int64_t *b, int nb, coi_out *out)
{
    int ndim = na > nb ? na : nb;

    out->ndim = na < 0 || nb < 0 ? -1 : ndim;
    for (int i = 1; i <= out->ndim; ++i) /* from the last dimension on */
        if (!broadcast_dim(i <= na ? a[na - i] : 1, i <= nb ? b[nb - i] : 1, &out->dims[ndim - i]))
            return false;
    return true;
}

co_code
coi_rule_broadcast(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *y = call->in[1];
    char            xs[COI_SHAPE_TEXT], ys[COI_SHAPE_TEXT];

    if (coi_same_shape(x, y))
        return coi_rule_same(call, outs);
    outs[0].dtype = (co_dtype)x->dtype;
    if (coi_broadcast(x->u.tensor.dims, x->ndim, y->u.tensor.dims, y->ndim, &outs[0]))
        return CO_OK;
    return coi_invalid(
        call,
        "shapes %s of %s and %s of %s do not fit; counted from the last, dimensions must be "
        "equal or 1",
        coi_shape_text(x->u.tensor.dims, x->ndim, xs), call->op->inputs[0],
        coi_shape_text(y->u.tensor.dims, y->ndim, ys), call->op->inputs[1]);
}

co_code
coi_rule_axis(coi_call *call, int64_t axis, int ndim, int *out)
{
    if (axis < -ndim || axis >= ndim) {
        if (ndim < 0) { /* unknown */
            *out = -1;
            return CO_OK;
        }
        if (ndim == 0)
            return coi_invalid(call, "axis %lld for a tensor of rank 0, which has no axes",
                               (long long)axis);
        return coi_invalid(call, "axis %lld is not in [%d, %d), the axes of a tensor of rank %d",
                           (long long)axis, -ndim, ndim, ndim);
    }
    *out = (int)(axis < 0 ? axis + ndim : axis);
    return CO_OK;
}

co_code
coi_rule_number(coi_call *call, const char *name, const coi_scalar *scalar, co_dtype dtype)
{
    bool    is_float = scalar->kind == CO_KIND_FLOAT;
    char    text[40];
    int64_t low, high;

    coi_integer_limits(dtype, &low, &high);
    if (coi_dtypes[dtype].floating || (!is_float && scalar->i >= low && scalar->i <= high))
        return CO_OK;
    if (is_float) /* 1.0 is shown as 1 */
        snprintf(text, sizeof(text), "a float, %g", scalar->f);
    else
        snprintf(text, sizeof(text), "%lld", (long long)scalar->i);
    return coi_invalid(call, "%s is %s; for dtype %s it must be an integer from %lld to %lld", name,
                       text, co_dtype_name(dtype), (long long)low, (long long)high);
}

static bool
check_array(co_context *ctx, const char *argument, const void *array, size_t n)
{
    if (n > CO_MAX_DIMS) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s has %lld entries; it must have 0 to %d", argument,
                 (long long)n, CO_MAX_DIMS);
        return false;
    }
    if (array == NULL && n > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s is NULL with %zu entr%s; give the entries or 0",
                 argument, n, COI_IES(n));
        return false;
    }
    return true;
}

bool
coi_ints_from_dims(co_context *ctx, const char *argument, const int64_t *dims, size_t n,
                   coi_ints *out)
{
    if (!check_array(ctx, argument, dims, n))
        return false;
    memset(out, 0, sizeof(*out));
    out->n = (int32_t)n;
    for (size_t i = 0; i < n; ++i)
        out->at[i] = dims[i];
    return true;
}

bool
coi_ints_from_axes(co_context *ctx, const char *argument, const int *axes, size_t n, coi_ints *out)
{
    if (!check_array(ctx, argument, axes, n))
        return false;
    memset(out, 0, sizeof(*out));
    out->n = axes == NULL ? -1 : (int32_t)n;
    for (size_t i = 0; i < n; ++i)
        out->at[i] = axes[i];
    return true;
}

const char *
coi_ints_text(const coi_ints *ints, char out[COI_SHAPE_TEXT])
{
    size_t at = 0;

    out[at++] = '[';
    for (int i = 0; i < ints->n; ++i)
        at += (size_t)snprintf(out + at, COI_SHAPE_TEXT - at, "%s%lld", i > 0 ? "," : "",
                               (long long)ints->at[i]);
    memcpy(out + at, "]", 2); /* eight numbers of 20 digits leave room */
    return out;
}

co_value *
coi_unbroadcast(co_context *ctx, co_value *grad, co_value *like)
{
    if (grad == NULL || coi_is_known_same_shape(grad, like))
        return grad;
    return coi_apply2(ctx, &coi_op_sum_to_like, grad, like, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax and its gradient. Kernels are in ops/kernels/simd/simd_softmax.c, the plain ones in
 * ops/kernels/ref/ref_softmax.c.
 */
#include "ops/kernels/softmax.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/loops.h"
#include "ops/engine/type_rules.h"

/* Entries of other files. */
COI_USES_OP(softmax)
COI_USES_OP(softmax_grad)

extern const coi_softmax_kernels coi_softmax_f64_once, coi_softmax_f32_base, coi_softmax_f32_v3,
    coi_softmax_f32_v4;
static const coi_softmax_kernels *const of_floats[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_softmax_f32);

#define SOFTMAX_ATTRS(X) X(coi_softmax_attrs, axis, INT, "=-1", NULL)
COI_ATTR_TABLE(coi_softmax_attrs, SOFTMAX_ATTRS)

/* Columns that one chunk takes. */
enum { CHUNK_COLUMNS = 256 };

const coi_softmax_kernels *
coi_softmax_kernels_of(coi_isa isa, co_dtype dtype)
{
    return dtype == CO_FLOAT64 ? &coi_softmax_f64_once : of_floats[isa];
}

void
coi_softmax_view_of(const coi_call *call, coi_softmax_view *view)
{
    const coi_softmax_attrs *attrs = call->attrs;
    const co_value          *x = call->in[0];
    int                      axis = (int)(attrs->axis < 0 ? attrs->axis + x->ndim : attrs->axis);

    view->outer = view->inner = 1;
    view->dim = x->u.tensor.dims[axis];
    for (int i = 0; i < axis; ++i)
        view->outer *= x->u.tensor.dims[i];
    for (int i = axis + 1; i < x->ndim; ++i)
        view->inner *= x->u.tensor.dims[i];
}

void
coi_softmax_rows(const coi_softmax_kernels *kernels, size_t element_size, const char *x,
                 const char *g, char *y, int64_t num_rows, int64_t dim, int64_t stride)
{
    double max[COI_SOFTMAX_ROWS], sum[COI_SOFTMAX_ROWS]; /* of either type */

    for (int64_t row = 0; row < num_rows; row += COI_SOFTMAX_ROWS) {
        int64_t n = num_rows - row < COI_SOFTMAX_ROWS ? num_rows - row : COI_SOFTMAX_ROWS;
        size_t  at = (size_t)(row * stride) * element_size;

        kernels->exps(x + at, y + at, max, sum, n, dim, stride);
        kernels->scale(y + at, sum, g != NULL ? g + (size_t)row * element_size : NULL, y + at, n,
                       dim, stride);
    }
}

static co_code
softmax_infer(coi_call *call, coi_out *outs)
{
    const coi_softmax_attrs *attrs = call->attrs;
    int                      axis;
    co_code                  rc = coi_rule_axis(call, attrs->axis, call->in[0]->ndim, &axis);

    return rc == CO_OK ? coi_rule_same(call, outs) : rc;
}

static co_code
softmax_grad_infer(coi_call *call, coi_out *outs)
{
    const co_value *y = call->in[0], *g = call->in[1];
    char            y_text[COI_SHAPE_TEXT], g_text[COI_SHAPE_TEXT];
    co_code         rc = softmax_infer(call, outs);

    if (rc == CO_OK && !coi_merge_shape(outs, g->u.tensor.dims, g->ndim))
        return coi_invalid(call, "y has shape %s and g %s; they must be equal",
                           coi_shape_text(y->u.tensor.dims, y->ndim, y_text),
                           coi_shape_text(g->u.tensor.dims, g->ndim, g_text));
    return rc;
}

/* One call, cut into chunks of rows or of columns. x is input 0 (y for the gradient), g is NULL for
 * softmax itself. */
typedef struct job {
    const coi_softmax_kernels *kernels;
    coi_softmax_view           view;
    size_t                     element_size;
    const char                *x, *g;
    char                      *out;
    int64_t                    rows_per_chunk, chunks_per_outer;
} job;

static void
rows_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    first = chunk * j->rows_per_chunk, n = j->view.outer - first;
    size_t     at = (size_t)(first * j->view.dim) * j->element_size;

    if (n > j->rows_per_chunk)
        n = j->rows_per_chunk;
    if (j->g == NULL)
        coi_softmax_rows(j->kernels, j->element_size, j->x + at, NULL, j->out + at, n, j->view.dim,
                         j->view.dim);
    else
        j->kernels->grad_rows(j->x + at, j->g + at, j->out + at, n, j->view.dim, j->view.dim);
}

static void
columns_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    outer = chunk / j->chunks_per_outer;
    int64_t    first = chunk % j->chunks_per_outer * CHUNK_COLUMNS, last = first + CHUNK_COLUMNS;
    size_t     at = (size_t)(outer * j->view.dim * j->view.inner) * j->element_size;

    if (last > j->view.inner)
        last = j->view.inner;
    if (j->g == NULL)
        j->kernels->columns(j->x + at, j->out + at, j->view.dim, j->view.inner, first, last);
    else
        j->kernels->grad_columns(j->x + at, j->g + at, j->out + at, j->view.dim, j->view.inner,
                                 first, last);
}

static co_code
softmax_run(coi_call *call)
{
    co_dtype dtype = (co_dtype)call->out[0]->dtype;
    job      j = { .kernels = coi_softmax_kernels_of(call->ctx->runtime->isa, dtype),
                   .element_size = coi_dtypes[dtype].size,
                   .x = COI_IN(call, 0, char),
                   .g = call->num_in == 2 ? COI_IN(call, 1, char) : NULL,
                   .out = COI_OUT(call, 0, char) };

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    coi_softmax_view_of(call, &j.view);
    if (j.view.inner == 1) {
        j.rows_per_chunk = coi_softmax_chunk_rows(j.view.dim);
        coi_parallel(call, (j.view.outer + j.rows_per_chunk - 1) / j.rows_per_chunk, rows_chunk,
                     &j);
    } else {
        j.chunks_per_outer = (j.view.inner + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
        coi_parallel(call, j.view.outer * j.chunks_per_outer, columns_chunk, &j);
    }
    return CO_OK;
}

static co_code
softmax_gradient(coi_grad *grad)
{
    grad->grads[0] = coi_apply2(grad->ctx, &coi_op_softmax_grad, grad->out[0], grad->upstream[0],
                                grad->attrs);
    return grad->ctx->error.code;
}

/* y (g - sum(g y)) with upstream u: the same form again for g; u (g - sum(g y)) - g sum(u y) for
 * y. */
static co_code
softmax_grad_gradient(coi_grad *grad)
{
    const coi_softmax_attrs *attrs = grad->attrs;
    co_context              *ctx = grad->ctx;
    co_value                *y = grad->in[0], *g = grad->in[1], *u = grad->upstream[0];
    int                      axis = (int)attrs->axis;

    if (grad->needed[1])
        grad->grads[1] = coi_apply2(ctx, &coi_op_softmax_grad, y, u, attrs);
    if (grad->needed[0]) {
        co_value *gy = co_reduce_sum(ctx, co_mul(ctx, g, y), &axis, 1, true);
        co_value *uy = co_reduce_sum(ctx, co_mul(ctx, u, y), &axis, 1, true);

        grad->grads[0] = co_sub(ctx, co_mul(ctx, u, co_sub(ctx, g, gy)), co_mul(ctx, g, uy));
    }
    return ctx->error.code;
}

const coi_op coi_op_softmax = {
    .name = "softmax",
    .doc = "exp(x) divided by its sum along an axis.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    COI_ATTRS(coi_softmax_attrs),
    .infer = softmax_infer,
    .upcasts = true,
    .ref = coi_ref_softmax,
    .run = softmax_run,
    .grad = softmax_gradient,
};

const coi_op coi_op_softmax_grad = {
    .name = "softmax_grad",
    .doc = "The gradient of softmax from its result y and the gradient g of y.",
    .inputs = { "y", "g" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    .internal = true,
    COI_ATTRS(coi_softmax_attrs),
    .infer = softmax_grad_infer,
    .upcasts = true,
    .ref = coi_ref_softmax_grad,
    .run = softmax_run,
    .grad = softmax_grad_gradient,
};

co_value *
co_softmax(co_context *ctx, co_value *logits, int axis)
{
    coi_softmax_attrs attrs = { .axis = axis };

    return coi_apply1(ctx, &coi_op_softmax, logits, &attrs);
}

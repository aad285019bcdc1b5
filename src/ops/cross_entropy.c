/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross entropy of logits with integer labels, and its gradient as one operator: softmax, minus the label, times the
 * upstream gradient. Kernels are those of softmax; the plain version is in ops/ref/softmax.c.
 */
#include "ops/softmax.h"

#include "ops/list.h"
#include "ops/widen.h"

#include <string.h>

static bool
is_floating(const co_value *x)
{
    return coi_dtypes[x->dtype].floating;
}

co_code
coi_check_labels(coi_call *call, const co_value *labels, int64_t num_classes)
{
    for (int64_t row = 0; row < labels->u.tensor.num_elements; ++row) {
        int64_t label = coi_label(labels, row);

        if (label < 0 || label >= num_classes)
            return coi_invalid(
                call, "label %lld at position %lld is not in [0, %lld), the classes of logits",
                (long long)label, (long long)row, (long long)num_classes);
    }
    return CO_OK;
}

/* labels and logits; fills outs with the shape of labels and the dtype of logits. */
static co_code
cross_entropy_infer(coi_call *call, coi_out *outs)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    bool            fits;

    if (!is_floating(logits))
        return coi_invalid(call,
                           "logits are %s; they must be float16, bfloat16, float32 or float64",
                           coi_dtypes[logits->dtype].name);
    fits = labels->ndim == logits->ndim - 1;
    for (int i = 0; fits && i < labels->ndim; ++i)
        fits = labels->u.tensor.dims[i] == logits->u.tensor.dims[i];
    if (!fits)
        return coi_invalid(
            call,
            "labels have shape %s and logits %s; labels must have the shape of logits "
            "without its last dimension, the classes",
            coi_shape_text(labels->u.tensor.dims, labels->ndim, a),
            coi_shape_text(logits->u.tensor.dims, logits->ndim, b));
    coi_rule_same(call, outs);
    outs->dtype = (co_dtype)logits->dtype;
    return CO_OK;
}

static co_code
cross_entropy_grad_infer(coi_call *call, coi_out *outs)
{
    const co_value *labels = call->in[0], *logits = call->in[1], *g = call->in[2];
    char            a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];
    co_code         rc = cross_entropy_infer(call, outs);

    if (rc != CO_OK)
        return rc;
    if (g->dtype != logits->dtype || !coi_same_shape(labels, g))
        return coi_invalid(
            call, "g is %s %s; it must have the dtype of logits (%s) and the shape of labels %s",
            coi_dtypes[g->dtype].name, coi_shape_text(g->u.tensor.dims, g->ndim, a),
            coi_dtypes[logits->dtype].name, coi_shape_text(labels->u.tensor.dims, labels->ndim, b));
    outs->ndim = logits->ndim;
    memcpy(outs->dims, logits->u.tensor.dims, (size_t)logits->ndim * sizeof(int64_t));
    return CO_OK;
}

typedef struct job {
    const coi_softmax_kernels *kernels;
    const co_value            *labels;
    bool                       is_double;
    int64_t                    num_rows, dim, rows_per_chunk;
    const char                *logits, *g;
    char                      *out; /* losses, or the gradient of logits */
    char                      *max; /* scratch: a number per row */
} job;

/* Rows [first, last) of a chunk; returns whether there are any. */
static int64_t
chunk_rows(const job *j, int64_t chunk, int64_t *last)
{
    int64_t first = chunk * j->rows_per_chunk;

    *last = first + j->rows_per_chunk < j->num_rows ? first + j->rows_per_chunk : j->num_rows;
    return first;
}

static void
loss_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    last, first = chunk_rows(j, chunk, &last);
    size_t     size = j->is_double ? sizeof(double) : sizeof(float);

    j->kernels->log_sums(j->logits + (size_t)(first * j->dim) * size, j->max + (size_t)first * size,
                         j->out + (size_t)first * size, last - first, j->dim);
    for (int64_t row = first; row < last; ++row) {
        int64_t at = row * j->dim + coi_label(j->labels, row);

        if (j->is_double)
            ((double *)j->out)[row] -= ((const double *)j->logits)[at] - ((double *)j->max)[row];
        else
            ((float *)j->out)[row] -= ((const float *)j->logits)[at] - ((float *)j->max)[row];
    }
}

static void
grad_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    last, first = chunk_rows(j, chunk, &last);
    size_t     size = j->is_double ? sizeof(double) : sizeof(float);
    size_t     at = (size_t)(first * j->dim) * size;

    j->kernels->rows(j->logits + at, j->g + (size_t)first * size, j->out + at, last - first,
                     j->dim);
    for (int64_t row = first; row < last; ++row) {
        int64_t hit = row * j->dim + coi_label(j->labels, row);

        if (j->is_double)
            ((double *)j->out)[hit] -= ((const double *)j->g)[row];
        else
            ((float *)j->out)[hit] -= ((const float *)j->g)[row];
    }
}

static co_code
run_floats(coi_call *call)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    co_dtype        dtype = (co_dtype)logits->dtype;
    bool            is_grad = call->num_in == 3;
    coi_buffer     *scratch = NULL;
    job             j = { .kernels = coi_softmax_kernels_of(call->ctx->runtime->isa, dtype),
                          .labels = labels,
                          .is_double = dtype == CO_FLOAT64,
                          .num_rows = labels->u.tensor.num_elements,
                          .dim = logits->u.tensor.dims[logits->ndim - 1],
                          .logits = COI_IN(call, 1, char),
                          .g = is_grad ? COI_IN(call, 2, char) : NULL,
                          .out = COI_OUT(call, 0, char) };
    co_code         rc = coi_check_labels(call, labels, j.dim);

    if (rc != CO_OK || j.num_rows == 0)
        return rc;
    if (!is_grad) {
        scratch = coi_buffer_alloc(call->device, (size_t)j.num_rows * coi_dtypes[dtype].size);
        if (scratch == NULL)
            return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                            "%s: no memory for the maxima of %lld rows", call->op->name,
                            (long long)j.num_rows);
        j.max = scratch->data;
    }
    j.rows_per_chunk = coi_softmax_chunk_rows(j.dim);
    coi_parallel(call, (j.num_rows + j.rows_per_chunk - 1) / j.rows_per_chunk,
                 is_grad ? grad_chunk : loss_chunk, &j);
    if (scratch != NULL)
        coi_buffer_unref(scratch);
    return CO_OK;
}

static co_code
cross_entropy_run(coi_call *call)
{
    return coi_run_widened(call, run_floats);
}

static co_code
cross_entropy_gradient(coi_grad *grad)
{
    co_value *in[3] = { grad->in[0], grad->in[1], grad->upstream[0] };

    if (grad->needed[1])
        grad->grads[1] = coi_apply(grad->ctx, &coi_op_sparse_softmax_cross_entropy_grad, in, 3,
                                   NULL);
    return grad->ctx->error.code;
}

/* (p - hot) g with p = softmax(logits) and upstream u: g p (u - sum(u p)) for logits, sum(u (p - hot)) for g. */
static co_code
cross_entropy_grad_gradient(coi_grad *grad)
{
    co_context *ctx = grad->ctx;
    co_value   *labels = grad->in[0], *logits = grad->in[1], *g = grad->in[2];
    co_value   *u = grad->upstream[0], *p = co_softmax(ctx, logits, -1);
    int         last = -1;

    if (grad->needed[1])
        grad->grads[1] = co_mul(ctx, co_expand_dims(ctx, g, -1),
                                coi_apply2(ctx, &coi_op_softmax_grad, p, u,
                                           &(coi_softmax_attrs){ .axis = -1 }));
    if (grad->needed[2]) {
        int64_t   num_classes = logits->u.tensor.dims[logits->ndim - 1];
        co_value *hot = co_one_hot(ctx, labels, num_classes, 1, 0, -1, (co_dtype)logits->dtype);

        grad->grads[2] = co_reduce_sum(ctx, co_mul(ctx, u, co_sub(ctx, p, hot)), &last, 1, false);
    }
    return ctx->error.code;
}

const coi_op coi_op_sparse_softmax_cross_entropy_with_logits = {
    .name = "sparse_softmax_cross_entropy_with_logits",
    .doc = "Cross entropy of softmax(logits) with integer labels, along the last dimension.",
    .inputs = { "labels", "logits" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64),
    .infer = cross_entropy_infer,
    .ref = coi_ref_cross_entropy,
    .run = cross_entropy_run,
    .grad = cross_entropy_gradient,
};

const coi_op coi_op_sparse_softmax_cross_entropy_grad = {
    .name = "sparse_softmax_cross_entropy_grad",
    .doc =
        "The gradient of sparse_softmax_cross_entropy_with_logits for logits, given that of its result.",
    .inputs = { "labels", "logits", "g" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64),
    .internal = true,
    .infer = cross_entropy_grad_infer,
    .ref = coi_ref_cross_entropy_grad,
    .run = cross_entropy_run,
    .grad = cross_entropy_grad_gradient,
};

co_value *
co_sparse_softmax_cross_entropy(co_context *ctx, co_value *labels, co_value *logits)
{
    return coi_apply2(ctx, &coi_op_sparse_softmax_cross_entropy_with_logits, labels, logits, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross entropy of logits with integer labels or probabilities, and its gradient. Loops are those
 * of softmax; the plain version is in ops/kernels/ref/ref_softmax.c.
 */
#include "ops/kernels/softmax.h"

#include "ops/engine/op.h"
#include "ops/kernels/row_kernels.h"

#include <string.h>

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

typedef struct job {
    const coi_softmax_kernels *kernels;
    const co_value            *labels; /* indices; or, where rows are there, probabilities */
    const coi_row_kernels     *rows;
    size_t                     size; /* of an element */
    int64_t                    num_rows, dim, rows_per_chunk;
    const char                *logits, *g;
    char                      *out;         /* losses, or the gradient of logits */
    char                      *exps, *sums; /* kept, or NULL */
} job;

/* Where a row's number is, and where its elements begin. */
static size_t
at_row(const job *j, int64_t row)
{
    return (size_t)row * j->size;
}
static size_t
at_element(const job *j, int64_t row)
{
    return (size_t)(row * j->dim) * j->size;
}

static const char *
soft_labels(const job *j, int64_t row)
{
    return (const char *)j->labels->u.tensor.data + at_element(j, row);
}

/* Rows [first, last) of a chunk; returns the first. */
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
    double     max[COI_SOFTMAX_ROWS], own_sum[COI_SOFTMAX_ROWS]; /* of either type */

    for (int64_t row = first; row < last; row += COI_SOFTMAX_ROWS) {
        int64_t n = last - row < COI_SOFTMAX_ROWS ? last - row : COI_SOFTMAX_ROWS;
        void   *sum = j->exps != NULL ? (void *)(j->sums + at_row(j, row)) : own_sum;

        j->kernels->exps(j->logits + at_element(j, row),
                         j->exps != NULL ? j->exps + at_element(j, row) : NULL, max, sum, n, j->dim,
                         j->dim);
        j->kernels->logs(sum, j->out + at_row(j, row), n);
        if (j->rows != NULL)
            j->rows->losses(soft_labels(j, row), j->logits + at_element(j, row), max,
                            j->out + at_row(j, row), n, j->dim);
        for (int64_t i = 0; j->rows == NULL && i < n; ++i) {
            int64_t at = (row + i) * j->dim + coi_label(j->labels, row + i);

            if (j->size == sizeof(double))
                ((double *)j->out)[row + i] -= ((const double *)j->logits)[at] - max[i];
            else
                ((float *)j->out)[row + i] -= ((const float *)j->logits)[at] -
                                              ((const float *)(const void *)max)[i];
        }
    }
}

static void
grad_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    last, first = chunk_rows(j, chunk, &last);
    size_t     at = at_element(j, first);

    if (j->exps != NULL)
        j->kernels->scale(j->exps + at, j->sums + at_row(j, first), j->g + at_row(j, first),
                          j->out + at, last - first, j->dim, j->dim);
    else
        coi_softmax_rows(j->kernels, j->size, j->logits + at, j->g + at_row(j, first), j->out + at,
                         last - first, j->dim, j->dim);
    if (j->rows != NULL)
        j->rows->take_labels(soft_labels(j, first), j->g + at_row(j, first), j->out + at,
                             last - first, j->dim);
    for (int64_t row = first; j->rows == NULL && row < last; ++row) {
        int64_t hit = row * j->dim + coi_label(j->labels, row);

        if (j->size == sizeof(double))
            ((double *)j->out)[hit] -= ((const double *)j->g)[row];
        else
            ((float *)j->out)[hit] -= ((const float *)j->g)[row];
    }
}

/* Rows of what is [..., classes], which may be none of them. */
static int64_t
rows_of(const co_value *logits)
{
    int64_t rows = 1;

    for (int d = 0; d < logits->ndim - 1; ++d)
        rows *= logits->u.tensor.dims[d];
    return rows;
}

co_code
coi_cross_entropy_run(coi_call *call)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    co_dtype        dtype = (co_dtype)logits->dtype;
    bool            is_grad = call->num_in > 2;
    job             j = { .kernels = coi_softmax_kernels_of(call->ctx->runtime->isa, dtype),
                          .labels = labels,
                          .size = coi_dtypes[dtype].size,
                          .num_rows = labels->u.tensor.num_elements,
                          .dim = logits->u.tensor.dims[logits->ndim - 1],
                          .logits = COI_IN(call, 1, char),
                          .g = is_grad ? COI_IN(call, 2, char) : NULL,
                          .out = COI_OUT(call, 0, char) };
    co_code         rc = CO_OK;

    if (coi_dtypes[labels->dtype].floating) {
        j.rows = coi_row_kernels_of(call->ctx->runtime->isa, dtype);
        j.num_rows = rows_of(logits);
    } else {
        rc = coi_check_labels(call, labels, j.dim);
    }
    if (rc != CO_OK || j.num_rows * j.dim == 0) {
        memset(j.out, 0, j.rows == NULL || is_grad ? 0 : at_row(&j, j.num_rows)); /* of nothing */
        return rc;
    }
    if (call->num_in == 5) {
        j.exps = call->in[3]->u.tensor.data;
        j.sums = call->in[4]->u.tensor.data;
    } else if (call->num_out == 3 && call->out[1]->u.tensor.num_elements > 0) {
        j.exps = call->out[1]->u.tensor.data;
        j.sums = call->out[2]->u.tensor.data;
    }
    coi_parallel_for(call, coi_softmax_chunks(j.num_rows, j.dim, &j.rows_per_chunk),
                     j.num_rows * j.dim, is_grad ? grad_chunk : loss_chunk, &j);
    return CO_OK;
}

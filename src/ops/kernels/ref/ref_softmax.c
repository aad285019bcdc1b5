/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, cross entropy and their gradients, one row after the other, summed in double.
 */
#include "ops/kernels/softmax.h"
#include "ops/kernels/ref/ref.h"

#include <math.h>

/* Largest of dim elements that begin at `at` and are `step` apart, and the sum of exp(x - max). */
static double
row_max_and_sum(const co_value *x, int64_t at, int64_t step, int64_t dim, double *sum)
{
    double max = -INFINITY;

    for (int64_t d = 0; d < dim; ++d)
        if (coi_ref_get(x, at + d * step) > max)
            max = coi_ref_get(x, at + d * step);
    *sum = 0;
    for (int64_t d = 0; d < dim; ++d)
        *sum += exp(coi_ref_get(x, at + d * step) - max);
    return max;
}

co_code
coi_ref_softmax(coi_call *call)
{
    const co_value  *x = call->in[0];
    coi_softmax_view v;

    coi_softmax_view_of(call, &v);
    for (int64_t outer = 0; outer < v.outer; ++outer)
        for (int64_t inner = 0; inner < v.inner; ++inner) {
            int64_t at = outer * v.dim * v.inner + inner;
            double  sum, max = row_max_and_sum(x, at, v.inner, v.dim, &sum);

            for (int64_t d = 0; d < v.dim; ++d)
                coi_ref_put(call->out[0], at + d * v.inner,
                            exp(coi_ref_get(x, at + d * v.inner) - max) / sum);
        }
    return CO_OK;
}

co_code
coi_ref_softmax_grad(coi_call *call)
{
    const co_value  *y = call->in[0], *g = call->in[1];
    coi_softmax_view v;

    coi_softmax_view_of(call, &v);
    for (int64_t outer = 0; outer < v.outer; ++outer)
        for (int64_t inner = 0; inner < v.inner; ++inner) {
            int64_t at = outer * v.dim * v.inner + inner;
            double  dot = 0;

            for (int64_t d = 0; d < v.dim; ++d)
                dot += coi_ref_get(y, at + d * v.inner) * coi_ref_get(g, at + d * v.inner);
            for (int64_t d = 0; d < v.dim; ++d)
                coi_ref_put(call->out[0], at + d * v.inner,
                            coi_ref_get(y, at + d * v.inner) *
                                (coi_ref_get(g, at + d * v.inner) - dot));
        }
    return CO_OK;
}

co_code
coi_ref_cross_entropy(coi_call *call)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    int64_t         dim = logits->u.tensor.dims[logits->ndim - 1];
    co_code         rc = coi_check_labels(call, labels, dim);

    for (int64_t row = 0; rc == CO_OK && row < labels->u.tensor.num_elements; ++row) {
        double sum, max = row_max_and_sum(logits, row * dim, 1, dim, &sum);

        coi_ref_put(call->out[0], row,
                    log(sum) - (coi_ref_get(logits, row * dim + coi_label(labels, row)) - max));
        if (call->num_out == 1 || call->out[1]->u.tensor.num_elements == 0)
            continue;
        coi_ref_put(call->out[2], row, sum); /* what is kept for the gradient */
        for (int64_t d = 0; d < dim; ++d)
            coi_ref_put(call->out[1], row * dim + d, exp(coi_ref_get(logits, row * dim + d) - max));
    }
    return rc;
}

co_code
coi_ref_cross_entropy_grad(coi_call *call)
{
    const co_value *labels = call->in[0], *logits = call->in[1], *g = call->in[2];
    int64_t         dim = logits->u.tensor.dims[logits->ndim - 1];
    co_code         rc = coi_check_labels(call, labels, dim);

    for (int64_t row = 0; rc == CO_OK && row < labels->u.tensor.num_elements; ++row) {
        double sum, max = row_max_and_sum(logits, row * dim, 1, dim, &sum);

        for (int64_t d = 0; d < dim; ++d)
            coi_ref_put(call->out[0], row * dim + d,
                        (exp(coi_ref_get(logits, row * dim + d) - max) / sum -
                         (d == coi_label(labels, row))) *
                            coi_ref_get(g, row));
    }
    return rc;
}

/* Labels are probabilities; rows are those of logits. */
co_code
coi_ref_soft_cross_entropy(coi_call *call)
{
    const co_value *labels = call->in[0], *logits = call->in[1];
    int64_t         dim = logits->u.tensor.dims[logits->ndim - 1];

    for (int64_t row = 0; row < call->out[0]->u.tensor.num_elements; ++row) {
        double sum, max = row_max_and_sum(logits, row * dim, 1, dim, &sum), loss = 0;

        for (int64_t i = row * dim; i < (row + 1) * dim; ++i)
            loss += coi_ref_get(labels, i) * (log(sum) - (coi_ref_get(logits, i) - max));
        coi_ref_put(call->out[0], row, loss);
        if (call->num_out == 3)
            coi_ref_put(call->out[2], row, sum);
        for (int64_t i = row * dim; call->num_out == 3 && i < (row + 1) * dim; ++i)
            coi_ref_put(call->out[1], i, exp(coi_ref_get(logits, i) - max));
    }
    return CO_OK;
}

co_code
coi_ref_soft_cross_entropy_grad(coi_call *call)
{
    const co_value *labels = call->in[0], *logits = call->in[1], *g = call->in[2];
    int64_t         dim = logits->u.tensor.dims[logits->ndim - 1];

    for (int64_t row = 0; row < g->u.tensor.num_elements; ++row) {
        double sum, max = row_max_and_sum(logits, row * dim, 1, dim, &sum);

        for (int64_t i = row * dim; i < (row + 1) * dim; ++i)
            coi_ref_put(call->out[0], i,
                        (exp(coi_ref_get(logits, i) - max) / sum - coi_ref_get(labels, i)) *
                            coi_ref_get(g, row));
    }
    return CO_OK;
}

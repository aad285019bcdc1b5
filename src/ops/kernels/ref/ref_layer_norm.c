/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm over the last axes and its gradient, one row after the other, in double.
 */
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/row_kernels.h"

#include <math.h>
#include <string.h>

/* What the gradient keeps is computed again: mean and 1 / deviation of the row at `at`. */
static double
measure(const co_value *x, int64_t at, int64_t dim, double epsilon, double *scale)
{
    double mean = 0, variance = 0;

    for (int64_t i = 0; i < dim; ++i)
        mean += coi_ref_get(x, at + i);
    mean /= (double)dim;
    for (int64_t i = 0; i < dim; ++i)
        variance += (coi_ref_get(x, at + i) - mean) * (coi_ref_get(x, at + i) - mean) / (double)dim;
    *scale = 1 / sqrt(variance + epsilon);
    return mean;
}

co_code
coi_ref_norm(coi_call *call)
{
    const co_value *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    co_value       *y = call->out[0], *statistics = call->out[1];
    int64_t         dim = gamma->u.tensor.num_elements;

    for (int64_t row = 0; row < x->u.tensor.num_elements; row += dim) {
        double scale,
            mean = measure(x, row, dim, ((const coi_norm_attrs *)call->attrs)->epsilon, &scale);
        int64_t at = row / dim * COI_NORM_STATISTICS;

        coi_ref_put(statistics, at, mean);
        coi_ref_put(statistics, at + 1, mean - coi_ref_get(statistics, at));
        coi_ref_put(statistics, at + 2, scale);
        for (int64_t i = 0; i < dim; ++i)
            coi_ref_put(y, row + i,
                        (coi_ref_get(x, row + i) - mean) * scale * coi_ref_get(gamma, i) +
                            coi_ref_get(beta, i));
    }
    return CO_OK;
}

static void
add_to(co_value *sums, int64_t i, double value)
{
    coi_ref_put(sums, i, coi_ref_get(sums, i) + value);
}

/* The sums for gamma and beta all go to the first line. */
co_code
coi_ref_norm_grad(coi_call *call)
{
    const co_value *x = call->in[0], *gamma = call->in[1], *g = call->in[2];
    int64_t         dim = gamma->u.tensor.num_elements;
    double          n = (double)dim;

    for (int i = 1; i < 3; ++i)
        memset(call->out[i]->u.tensor.data, 0,
               (size_t)call->out[i]->u.tensor.num_elements * coi_dtypes[call->out[i]->dtype].size);
    for (int64_t row = 0; row < x->u.tensor.num_elements; row += dim) {
        double scale, sum = 0, product = 0;
        double mean = measure(x, row, dim, ((const coi_norm_attrs *)call->attrs)->epsilon, &scale);

        for (int64_t i = 0; i < dim; ++i) {
            double z = (coi_ref_get(x, row + i) - mean) * scale,
                   h = coi_ref_get(g, row + i) * coi_ref_get(gamma, i);

            sum += h / n;
            product += h * z / n;
            add_to(call->out[1], i, coi_ref_get(g, row + i) * z);
            add_to(call->out[2], i, coi_ref_get(g, row + i));
        }
        for (int64_t i = 0; i < dim; ++i) {
            double z = (coi_ref_get(x, row + i) - mean) * scale,
                   h = coi_ref_get(g, row + i) * coi_ref_get(gamma, i);

            coi_ref_put(call->out[0], row + i, (h - sum - z * product) * scale);
        }
    }
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm over the last axes, and its gradient: the cut over workers. Loops are in
 * ops/kernels/row_kernels.h, the plain version in ops/kernels/ref/ref_layer_norm.c.
 */
#include "ops/kernels/layer_norm.h"

#include "ops/kernels/fused_elementwise.h"
#include "ops/kernels/row_kernels.h"
#include "ops/kernels/softmax.h"

/* x, gamma, then beta or g. */
typedef struct job {
    const coi_row_kernels *kernels;
    size_t                 size; /* of an element */
    int64_t                num_rows, dim, rows_per_chunk;
    double                 epsilon;
    const char            *x, *gamma, *other;
    char                  *out, *statistics, *dgamma, *dbeta;
    const coi_fused       *chain; /* that goes on with the rows of a chunk; NULL: none */
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    first = chunk * j->rows_per_chunk, n = j->num_rows - first;
    size_t     row_size = (size_t)j->dim * j->size, at = (size_t)first * row_size;
    char      *statistics = j->statistics + (size_t)(first * COI_NORM_STATISTICS) * j->size;

    n = n < j->rows_per_chunk ? n : j->rows_per_chunk;
    if (j->dgamma == NULL)
        j->kernels->norm(j->x + at, j->gamma, j->other, j->out + at, statistics, n, j->dim,
                         j->epsilon);
    else
        j->kernels->norm_grad(j->x + at, j->gamma, j->other + at, statistics, j->out + at,
                              j->dgamma + (size_t)chunk * row_size,
                              j->dbeta + (size_t)chunk * row_size, n, j->dim);
    if (j->chain != NULL)
        coi_fused_rows(j->chain, first * j->dim, j->dim, n, j->dim);
}

co_code
coi_norm_run(coi_call *call)
{
    const coi_norm_attrs *attrs = call->attrs;
    bool                  is_grad = call->num_in == 4;
    co_dtype              dtype = (co_dtype)call->in[0]->dtype;
    job                   j = { .kernels = coi_row_kernels_of(call->ctx->runtime->isa, dtype),
                                .size = coi_dtypes[dtype].size,
                                .dim = coi_norm_row_elements(call->in[0], attrs),
                                .epsilon = attrs->epsilon,
                                .x = COI_IN(call, 0, char),
                                .gamma = COI_IN(call, 1, char),
                                .other = COI_IN(call, 2, char),
                                .out = COI_OUT(call, 0, char),
                                .chain = call->epilogue,
                                .statistics = is_grad ? call->in[3]->u.tensor.data : call->out[1]->u.tensor.data };

    if (call->in[0]->u.tensor.num_elements == 0)
        return CO_OK;
    j.num_rows = call->in[0]->u.tensor.num_elements / j.dim;
    j.rows_per_chunk = coi_softmax_chunk_rows(j.dim);
    if (is_grad) {
        j.rows_per_chunk = coi_norm_chunk_rows(j.dim);
        j.dgamma = COI_OUT(call, 1, char);
        j.dbeta = COI_OUT(call, 2, char);
    }
    coi_parallel(call, (j.num_rows + j.rows_per_chunk - 1) / j.rows_per_chunk, run_chunk, &j);
    return CO_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax and its gradient: the cut over workers. Loops are in ops/kernels/simd/simd_softmax.c, the
 * plain ones in ops/kernels/ref/ref_softmax.c.
 */
#include "ops/kernels/softmax.h"

#include "ops/engine/op.h"
#include "ops/kernels/loops.h"

extern const coi_softmax_kernels coi_softmax_f64_once, coi_softmax_f32_base, coi_softmax_f32_v3,
    coi_softmax_f32_v4;
static const coi_softmax_kernels *const of_floats[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_softmax_f32);

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

co_code
coi_softmax_run(coi_call *call)
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
        coi_parallel_for(call, coi_softmax_chunks(j.view.outer, j.view.dim, &j.rows_per_chunk),
                         j.view.outer * j.view.dim, rows_chunk, &j);
    } else {
        j.chunks_per_outer = (j.view.inner + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
        coi_parallel(call, j.view.outer * j.chunks_per_outer, columns_chunk, &j);
    }
    return CO_OK;
}

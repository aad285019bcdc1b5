/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where: elements of one operand or the other.
 */
#include "ops/kernels/elementwise.h"

#include "ops/engine/op.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/strided_iterator.h"

typedef struct where_job {
    coi_strided_iterator iter;
    size_t               size;
    const uint8_t       *cond;
    const char          *x, *y;
    char                *out;
    int64_t              rows, per_chunk;
} where_job;

#define CHOOSE(type)                                                                               \
    do {                                                                                           \
        const type *x = (const type *)(const void *)job->x + at[1];                                \
        const type *y = (const type *)(const void *)job->y + at[2];                                \
        type       *z = (type *)(void *)job->out + out;                                            \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i)                                                            \
            z[i] = cond[i * steps[0]] ? x[i * steps[1]] : y[i * steps[2]];                         \
    } while (0)

static void
choose_row(const where_job *job, const int64_t *at, const int64_t *steps, int64_t out, int64_t n)
{
    const uint8_t *cond = job->cond + at[0];

    switch (job->size) {
    case 1: CHOOSE(uint8_t); break;
    case 2: CHOOSE(uint16_t); break;
    case 4: CHOOSE(uint32_t); break;
    case 8: CHOOSE(uint64_t); break;
    default: CHOOSE(coi_text); break;
    }
}

static void
where_chunk(void *arg, int64_t chunk)
{
    const where_job            *job = arg;
    const coi_strided_iterator *iter = &job->iter;
    int                         last = iter->ndim - 1;
    int64_t                     steps[3], row = chunk * job->per_chunk;
    int64_t            end = row + job->per_chunk < job->rows ? row + job->per_chunk : job->rows;
    coi_strided_cursor cursor;

    for (int k = 0; k < 3; ++k)
        steps[k] = iter->strides[k][last];
    coi_strided_seek(iter, row, &cursor);
    for (; row < end; ++row) {
        choose_row(job, cursor.at, steps, row * iter->dims[last], iter->dims[last]);
        coi_strided_next(iter, &cursor);
    }
}

co_code
coi_where_run(coi_call *call)
{
    where_job job;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    coi_strided_broadcast(&job.iter, call->out[0], call->in, 3);
    job.size = coi_element_size((co_dtype)call->out[0]->dtype);
    job.cond = COI_IN(call, 0, uint8_t);
    job.x = COI_IN(call, 1, char);
    job.y = COI_IN(call, 2, char);
    job.out = COI_OUT(call, 0, char);
    job.rows = coi_strided_rows(&job.iter);
    coi_parallel(call, coi_num_chunks(job.rows, job.iter.dims[job.iter.ndim - 1], &job.per_chunk),
                 where_chunk, &job);
    return coi_own_texts(call);
}

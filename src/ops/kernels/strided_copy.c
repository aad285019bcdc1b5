/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See strided_copy.h.
 */
#include "ops/kernels/strided_copy.h"

#include <string.h>

typedef struct copy_job {
    const coi_strided_iterator *iter;
    char                       *dst;
    const char                 *src;
    size_t                      size;
    int64_t                     rows, per_chunk;
    bool                        to_dense;
} copy_job;

void
coi_fill_elements(void *out, int64_t n, const void *element, size_t size)
{
    size_t nbytes = (size_t)n * size, done = size;

    if (n == 0)
        return;
    memcpy(out, element, size);
    while (done <
           nbytes) { /* what is there is copied behind itself: the copies double, up to a page */
        size_t step = done < 4096 ? done : 4096 / size * size;

        step = step < nbytes - done ? step : nbytes - done;
        memcpy((char *)out + done, out, step);
        done += step;
    }
}

#define STRIDED(type)                                                                              \
    do {                                                                                           \
        type       *z = (type *)dst;                                                               \
        const type *x = (const type *)src;                                                         \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i)                                                            \
            z[i * to] = x[i * from];                                                               \
    } while (0)

/* n elements of `size` bytes with steps of `to` and `from` elements. */
static void
copy_row(void *dst, int64_t to, const void *src, int64_t from, int64_t n, size_t size)
{
    if (to == 1 && from == 1) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
    if (to == 1 && from == 0) {
        coi_fill_elements(dst, n, src, size);
        return;
    }
    switch (size) {
    case 1: STRIDED(uint8_t); break;
    case 2: STRIDED(uint16_t); break;
    case 4: STRIDED(uint32_t); break;
    case 8: STRIDED(uint64_t); break;
    default: STRIDED(coi_text); break;
    }
}

/* The rows of a chunk, contiguous on the dense side, by the strided iterator on the other. */
static void
copy_rows(void *arg, int64_t chunk)
{
    const copy_job             *job = arg;
    const coi_strided_iterator *iter = job->iter;
    int64_t            width = iter->dims[iter->ndim - 1], step = iter->strides[0][iter->ndim - 1];
    int64_t            row = chunk * job->per_chunk;
    int64_t            end = row + job->per_chunk < job->rows ? row + job->per_chunk : job->rows;
    coi_strided_cursor cursor;

    coi_strided_seek(iter, row, &cursor);
    for (; row < end; ++row) {
        size_t  dense = (size_t)(row * width) * job->size;
        int64_t walked = cursor.at[0] * (int64_t)job->size; /* steps may lead back */

        if (job->to_dense)
            copy_row(job->dst + dense, 1, job->src + walked, step, width, job->size);
        else
            copy_row(job->dst + walked, step, job->src + dense, 1, width, job->size);
        coi_strided_next(iter, &cursor);
    }
}

static void
copy(coi_call *call, const coi_strided_iterator *iter, void *dst, const void *src, size_t size,
     bool to_dense)
{
    copy_job job = { iter, dst, src, size, coi_strided_rows(iter), 0, to_dense };

    if (job.rows == 0 || iter->dims[iter->ndim - 1] == 0)
        return;
    coi_parallel(call, coi_num_chunks(job.rows, iter->dims[iter->ndim - 1], &job.per_chunk),
                 copy_rows, &job);
}

void
coi_copy_to_dense(coi_call *call, const coi_strided_iterator *iter, void *dst, const void *src,
                  size_t size)
{
    copy(call, iter, dst, src, size, true);
}

void
coi_copy_from_dense(coi_call *call, const coi_strided_iterator *iter, void *dst, const void *src,
                    size_t size)
{
    copy(call, iter, dst, src, size, false);
}

co_code
coi_own_texts(coi_call *call)
{
    co_value *out = call->out[0], *owner;

    if (out->dtype != CO_STRING)
        return CO_OK;
    owner = coi_tensor_strings(&call->ctx->heap, call->device, out->u.tensor.dims, out->ndim,
                               out->u.tensor.num_elements, out->u.tensor.data, coi_err(call->ctx));
    if (owner == NULL)
        return coi_failed(call->ctx);
    coi_unref(&call->ctx->heap, out);
    call->out[0] = owner;
    return CO_OK;
}

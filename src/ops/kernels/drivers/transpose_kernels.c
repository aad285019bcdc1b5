/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permuting dimensions. Where the last dimension stays last, rows are copied whole; else the plane
 * of the dimension that is last in x and the one that is last in the result is copied in tiles,
 * which keeps both sides in the cache.
 */
#include "ops/kernels/strided_copy.h"

#include "ops/engine/op.h"

#define TILE 16

/* The iterator over the result, with the strides of x. */
static void
transpose_iterator(const coi_call *call, coi_strided_iterator *iter)
{
    const coi_ints *perm = &((const coi_perm_attrs *)call->attrs)->perm;
    const co_value *x = call->in[0];
    int64_t         strides[CO_MAX_DIMS], stride = 1;

    for (int d = x->ndim - 1; d >= 0; --d) {
        strides[d] = stride;
        stride *= x->u.tensor.dims[d];
    }
    iter->num_operands = 1;
    iter->ndim = x->ndim;
    for (int d = 0; d < x->ndim; ++d) {
        int64_t from = perm->n < 0 ? x->ndim - 1 - d : perm->at[d];

        from += from < 0 ? x->ndim : 0;
        iter->dims[d] = x->u.tensor.dims[from];
        iter->strides[0][d] = strides[from];
    }
    coi_strided_merge(iter);
}

/* Planes of a x b: x has a step of 1 along a, the result along b. A unit is a strip of TILE along
 * a. */
typedef struct plane_job {
    const char *x;
    char       *out;
    size_t      size;
    int64_t     a, b;
    int64_t     out_step; /* of the result along a */
    int64_t     x_step;   /* of x along b */
    int64_t     num_strips, num_units, per_chunk;
    int         num_outer;
    int64_t     outer[CO_MAX_DIMS], outer_x[CO_MAX_DIMS], outer_out[CO_MAX_DIMS];
} plane_job;

#define STRIP(type)                                                                                \
    do {                                                                                           \
        const type *x = (const type *)(const void *)job->x + x_at + low;                           \
        type       *z = (type *)(void *)job->out + out_at + low * job->out_step;                   \
                                                                                                   \
        for (int64_t j = 0; j < job->b; j += TILE) {                                               \
            int64_t m = job->b - j < TILE ? job->b - j : TILE;                                     \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i)                                                        \
                for (int64_t k = 0; k < m; ++k)                                                    \
                    z[i * job->out_step + j + k] = x[(j + k) * job->x_step + i];                   \
        }                                                                                          \
    } while (0)

static void
plane_chunk(void *arg, int64_t chunk)
{
    const plane_job *job = arg;
    int64_t          unit = chunk * job->per_chunk, end = unit + job->per_chunk;

    for (end = end < job->num_units ? end : job->num_units; unit < end; ++unit) {
        int64_t low = unit % job->num_strips * TILE, plane = unit / job->num_strips;
        int64_t n = job->a - low < TILE ? job->a - low : TILE;
        int64_t x_at = 0, out_at = 0;

        for (int d = 0; d < job->num_outer; ++d) {
            x_at += plane % job->outer[d] * job->outer_x[d];
            out_at += plane % job->outer[d] * job->outer_out[d];
            plane /= job->outer[d];
        }
        switch (job->size) {
        case 1: STRIP(uint8_t); break;
        case 2: STRIP(uint16_t); break;
        case 4: STRIP(uint32_t); break;
        case 8: STRIP(uint64_t); break;
        default: STRIP(coi_text); break;
        }
    }
}

static void
transpose_planes(coi_call *call, const coi_strided_iterator *iter)
{
    int       last = iter->ndim - 1, a = 0;
    int64_t   out_step = 1, planes = 1;
    plane_job job = { COI_IN(call, 0, char), COI_OUT(call, 0, char),
                      coi_element_size((co_dtype)call->in[0]->dtype), .num_outer = 0 };

    while (iter->strides[0][a] != 1) /* the last dimension of x is somewhere */
        ++a;
    job.b = iter->dims[last];
    job.x_step = iter->strides[0][last];
    for (int d = last; d >= 0; --d) {
        if (d == a) {
            job.a = iter->dims[a];
            job.out_step = out_step;
        } else if (d != last) {
            job.outer[job.num_outer] = iter->dims[d];
            job.outer_x[job.num_outer] = iter->strides[0][d];
            job.outer_out[job.num_outer++] = out_step;
            planes *= iter->dims[d];
        }
        out_step *= iter->dims[d];
    }
    job.num_strips = (job.a + TILE - 1) / TILE;
    job.num_units = planes * job.num_strips;
    coi_parallel(call, coi_num_chunks(job.num_units, TILE * job.b, &job.per_chunk), plane_chunk,
                 &job);
}

co_code
coi_transpose_run(coi_call *call)
{
    coi_strided_iterator iter;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    transpose_iterator(call, &iter);
    if (iter.strides[0][iter.ndim - 1] == 1)
        coi_copy_to_dense(call, &iter, call->out[0]->u.tensor.data, call->in[0]->u.tensor.data,
                          coi_element_size((co_dtype)call->in[0]->dtype));
    else
        transpose_planes(call, &iter);
    return coi_own_texts(call);
}

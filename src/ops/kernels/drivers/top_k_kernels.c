/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements along the last axis. Elements become keys of 64 bits that are compared as
 * unsigned numbers, so one loop serves every dtype. A heap of k entries is kept while a row is
 * read, with the worst of them on top; its order is total (of equal keys the lower index is
 * better).
 */
#include "ops/kernels/top_k.h"

#include "ops/kernels/compute_type.h"
#include "ops/kernels/strided_iterator.h"

#include <string.h>

typedef struct entry {
    uint64_t key;
    int32_t  index;
} entry;

/* a comes before b in the result. */
static inline bool
is_better(entry a, entry b)
{
    return a.key > b.key || (a.key == b.key && a.index < b.index);
}

/* The bits of a float in the order of floats: NaN below all numbers, -0 as 0. */
static inline uint64_t
float_key(double value)
{
    uint64_t bits;

    if (value != value)
        return 0;
    value += 0.0; /* one zero */
    memcpy(&bits, &value, sizeof(bits));
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

typedef struct top_k_job {
    co_dtype    own, wide; /* wide: float64, int64 or uint64 */
    coi_isa     isa;
    const char *x;
    char       *values;
    int32_t    *indices;
    entry      *heaps; /* k for each chunk */
    int64_t     n, k, num_rows, per_chunk;
} top_k_job;

static uint64_t
key_of(const top_k_job *job, const coi_compute_block *block, int64_t i)
{
    const uint64_t *bits = (const uint64_t *)(const void *)block->bytes;

    if (job->wide == CO_FLOAT64)
        return float_key(((const double *)(const void *)block->bytes)[i]);
    return job->wide == CO_INT64 ? bits[i] ^ UINT64_C(1) << 63 : bits[i];
}

/* Entry `at` goes down until no child is worse than it. */
static void
sift(entry *heap, int64_t n, int64_t at)
{
    entry moving = heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= n)
            break;
        if (child + 1 < n && is_better(heap[child], heap[child + 1]))
            ++child;
        if (is_better(heap[child], moving))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static void
fill_heap(const top_k_job *job, entry *heap, const char *x)
{
    size_t            size = coi_dtypes[job->own].size;
    coi_compute_block block;

    for (int64_t i = 0; i < job->n; ++i) {
        entry next;

        if (i % COI_COMPUTE_BLOCK == 0) {
            int64_t m = job->n - i < COI_COMPUTE_BLOCK ? job->n - i : COI_COMPUTE_BLOCK;

            coi_cast_elements(job->isa, job->own, x + (size_t)i * size, job->wide, block.bytes, m);
        }
        next = (entry){ key_of(job, &block, i % COI_COMPUTE_BLOCK), (int32_t)i };
        if (i < job->k) {
            heap[i] = next;
            for (int64_t top = job->k / 2; i + 1 == job->k && top > 0; --top)
                sift(heap, job->k, top - 1);
        } else if (is_better(next, heap[0])) {
            heap[0] = next;
            sift(heap, job->k, 0);
        }
    }
}

static void
top_k_row(const top_k_job *job, entry *heap, int64_t row)
{
    size_t      size = coi_dtypes[job->own].size;
    const char *x = job->x + (size_t)(row * job->n) * size;
    char       *values = job->values + (size_t)(row * job->k) * size;

    fill_heap(job, heap, x);
    for (int64_t left = job->k; left > 0; --left) { /* the worst one first */
        int64_t from = heap[0].index, to = left - 1;

        memcpy(values + (size_t)to * size, x + (size_t)from * size, size);
        job->indices[row * job->k + to] = (int32_t)from;
        heap[0] = heap[left - 1];
        sift(heap, left - 1, 0);
    }
}

static void
top_k_chunk(void *arg, int64_t chunk)
{
    const top_k_job *job = arg;
    int64_t          row = chunk * job->per_chunk, end = row + job->per_chunk;

    for (end = end < job->num_rows ? end : job->num_rows; row < end; ++row)
        top_k_row(job, job->heaps + chunk * (job->k + 1), row);
}

co_code
coi_top_k_run(coi_call *call)
{
    const co_value       *x = call->in[0];
    const coi_dtype_info *info = &coi_dtypes[x->dtype];
    top_k_job             job = { .own = (co_dtype)x->dtype,
                                  .wide = info->floating    ? CO_FLOAT64
                                          : info->is_signed ? CO_INT64
                                                            : CO_UINT64,
                                  .isa = call->ctx->runtime->isa,
                                  .x = COI_IN(call, 0, char),
                                  .values = COI_OUT(call, 0, char),
                                  .indices = COI_OUT(call, 1, int32_t),
                                  .n = x->u.tensor.dims[x->ndim - 1],
                                  .k = ((const coi_top_k_attrs *)call->attrs)->k };
    coi_buffer           *buffer;
    int64_t               chunks;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    job.num_rows = x->u.tensor.num_elements / job.n;
    chunks = coi_num_chunks(job.num_rows, 8 * job.n, &job.per_chunk);
    buffer = coi_buffer_alloc(call->device, (size_t)(chunks * (job.k + 1)) * sizeof(entry),
                              coi_err(call->ctx));
    if (buffer == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "%s: no memory for %lld times %lld candidates", call->op->name,
                        (long long)chunks, (long long)job.k);
    job.heaps = buffer->data;
    coi_parallel(call, chunks, top_k_chunk, &job);
    coi_buffer_unref(buffer);
    return CO_OK;
}

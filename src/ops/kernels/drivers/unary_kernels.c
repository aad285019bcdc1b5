/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise loops of one operand.
 */
#include "ops/kernels/elementwise.h"

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/compute_type.h"
#include "ops/kernels/fused_elementwise.h"
#include "ops/kernels/streaming_store.h"
#include "ops/kernels/strided_iterator.h"

static const coi_unary_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_unary_loops);

typedef struct unary_job {
    coi_unary_fn loop;
    coi_isa      isa;
    co_dtype     dtype, out_dtype;      /* of the tensors */
    co_dtype     compute_dtype, result; /* of the loop */
    const char  *x;
    char        *out;
    int64_t      n, per_chunk;
    bool         streams;
} unary_job;

/* Through the compute type, block by block. */
static void
convert_span(const unary_job *job, const char *x, char *out, int64_t n)
{
    size_t size = coi_dtypes[job->dtype].size, out_size = coi_dtypes[job->out_dtype].size;
    coi_compute_block in, result;

    for (int64_t i = 0; i < n; i += COI_COMPUTE_BLOCK) {
        int64_t     m = n - i < COI_COMPUTE_BLOCK ? n - i : COI_COMPUTE_BLOCK;
        char       *to = out + (size_t)i * out_size;
        const void *from = coi_to_compute_type(job->isa, job->dtype, x + (size_t)i * size,
                                               job->compute_dtype, &in, m);

        if (job->result == job->out_dtype) {
            job->loop(to, from, m);
        } else {
            job->loop(result.bytes, from, m);
            coi_cast_elements(job->isa, job->result, result.bytes, job->out_dtype, to, m);
        }
    }
}

/* Past the cache, block by block. */
static void
stream_span(const unary_job *job, const char *x, char *out, int64_t n)
{
    size_t          size = coi_dtypes[job->dtype].size;
    coi_stream_fn   stream = coi_stream_of(job->isa);
    coi_stream_area area;

    for (int64_t m; n > 0; n -= m) {
        char  *block = coi_stream_block(&area, out);
        size_t nbytes;

        m = coi_stream_elements(out, size, n);
        nbytes = (size_t)m * size;
        if ((size_t)n * size >= COI_PREFETCH_BYTES + COI_STREAM_BLOCK)
            coi_stream_prefetch(x + COI_PREFETCH_BYTES, NULL);
        job->loop(block, x, m);
        stream(out, block, nbytes);
        x += nbytes;
        out += nbytes;
    }
    coi_stream_end();
}

static void
unary_chunk(void *arg, int64_t chunk)
{
    const unary_job *job = arg;
    int64_t          begin = chunk * job->per_chunk;
    int64_t          n = job->n - begin < job->per_chunk ? job->n - begin : job->per_chunk;
    const char      *x = job->x + (size_t)begin * coi_dtypes[job->dtype].size;
    char            *out = job->out + (size_t)begin * coi_dtypes[job->out_dtype].size;

    if (job->streams)
        stream_span(job, x, out, n);
    else if (job->dtype == job->compute_dtype)
        job->loop(out, x, n);
    else
        convert_span(job, x, out, n);
}

static inline coi_unary_fn
loop_for(coi_isa isa, coi_unary_kind kind, coi_compute_type_entry compute)
{
    coi_unary_fn loop = tables[isa]->at[kind][compute.type];

    return loop != NULL ? loop : coi_unary_loops_rare.at[kind][compute.type];
}

static inline co_dtype
result_of(coi_unary_kind kind, coi_compute_type_entry compute)
{
    return kind >= COI_ISNAN ? CO_BOOL : (co_dtype)compute.dtype;
}

bool
coi_unary_step_of(const coi_call *call, coi_unary_kind kind, coi_fused_step *step)
{
    const co_value        *x = call->in[0], *out = call->out[0];
    coi_compute_type_entry compute = coi_compute_types[x->dtype];

    if (compute.dtype != x->dtype || result_of(kind, compute) != (co_dtype)out->dtype)
        return false;
    *step = (coi_fused_step){ .unary = loop_for(call->ctx->runtime->isa, kind, compute),
                              .in = { { .size = coi_dtypes[x->dtype].size } },
                              .out.size = coi_dtypes[out->dtype].size };
    return true;
}

static co_code
unary(coi_call *call, coi_unary_kind kind)
{
    const co_value        *x = call->in[0];
    coi_compute_type_entry compute = coi_compute_types[x->dtype];
    int64_t                n = x->u.tensor.num_elements;
    unary_job              job;

    job.isa = call->ctx->runtime->isa;
    job.loop = loop_for(job.isa, kind, compute);
    if (n < 2 * COI_SHARED_ELEMENTS && compute.dtype == x->dtype) {
        job.loop(call->out[0]->u.tensor.data, x->u.tensor.data, n);
        return CO_OK;
    }
    job.dtype = (co_dtype)x->dtype;
    job.out_dtype = (co_dtype)call->out[0]->dtype;
    job.compute_dtype = (co_dtype)compute.dtype;
    job.result = result_of(kind, compute);
    job.out = COI_OUT(call, 0, char);
    job.x = COI_IN(call, 0, char);
    job.n = n;
    job.streams = job.dtype == job.compute_dtype && job.dtype == job.out_dtype &&
                  (size_t)n * coi_dtypes[job.dtype].size >= COI_STREAM_BYTES;
    coi_parallel_for(call, coi_share_elements(n, &job.per_chunk), n / COI_ELEMENTS_PER_NS,
                     unary_chunk, &job);
    return CO_OK;
}

co_code
coi_unary_run(coi_call *call)
{
    return unary(call, (coi_unary_kind)call->op->kind);
}

coi_unary_kind
coi_gelu_kind(const void *attrs)
{
    return ((const coi_gelu_attrs *)attrs)->approximate ? COI_GELU_TANH : COI_GELU;
}

co_code
coi_gelu_run(coi_call *call)
{
    return unary(call, coi_gelu_kind(call->attrs));
}

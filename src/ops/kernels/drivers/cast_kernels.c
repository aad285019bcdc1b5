/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements from one dtype to another.
 */
#include "ops/kernels/cast.h"

#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/strided_iterator.h"

static const coi_cast_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_cast_loops);

static coi_unary_fn
loop_for(coi_isa isa, co_dtype from, co_dtype to)
{
    coi_unary_fn loop = tables[isa]->at[from][to];

    return loop != NULL ? loop : coi_cast_loops_rare.at[from][to];
}

static void
convert(coi_unary_fn loop, co_dtype from, const void *x, co_dtype to, void *out, int64_t n)
{
    if (loop != NULL)
        loop(out, x, n);
    else
        coi_convert(from, x, to, out, n);
}

void
coi_cast_elements(coi_isa isa, co_dtype from, const void *x, co_dtype to, void *out, int64_t n)
{
    convert(loop_for(isa, from, to), from, x, to, out, n);
}

typedef struct cast_job {
    coi_unary_fn loop; /* NULL: coi_convert */
    co_dtype     from, to;
    const char  *x;
    char        *out;
    int64_t      n, per_chunk;
} cast_job;

static void
cast_chunk(void *arg, int64_t chunk)
{
    const cast_job *job = arg;
    int64_t         begin = chunk * job->per_chunk;
    int64_t         n = job->n - begin < job->per_chunk ? job->n - begin : job->per_chunk;
    const char     *x = job->x + (size_t)begin * coi_dtypes[job->from].size;
    char           *out = job->out + (size_t)begin * coi_dtypes[job->to].size;

    convert(job->loop, job->from, x, job->to, out, n);
}

co_code
coi_cast_run(coi_call *call)
{
    cast_job job = { .from = (co_dtype)call->in[0]->dtype, .to = (co_dtype)call->out[0]->dtype };

    job.loop = loop_for(call->ctx->runtime->isa, job.from, job.to);
    if (job.loop == NULL && job.to == CO_BOOL) /* where subnormal numbers need care */
        return coi_ref_cast(call);
    job.x = COI_IN(call, 0, char);
    job.out = COI_OUT(call, 0, char);
    job.n = call->out[0]->u.tensor.num_elements;
    coi_parallel(call, coi_num_chunks(job.n, 1, &job.per_chunk), cast_chunk, &job);
    return CO_OK;
}

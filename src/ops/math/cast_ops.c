/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converting to another dtype.
 */
#include "ops/kernels/cast.h"

#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/simd/loops.h"
#include "ops/kernels/strided_iterator.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(identity)

#define CAST_ATTRS(X) X(coi_cast_attrs, dtype, DTYPE, "", NULL)
COI_ATTR_TABLE(coi_cast_attrs, CAST_ATTRS)

static const coi_cast_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_cast_loops);

static co_code
cast_rule(coi_call *call, coi_out *outs)
{
    const coi_cast_attrs *attrs = call->attrs;

    if (attrs->dtype == CO_DTYPE_NONE || attrs->dtype >= CO_STRING)
        return coi_invalid(call, "dtype is %s; it must be bool or a dtype of numbers",
                           co_dtype_name((co_dtype)attrs->dtype));
    coi_rule_same(call, outs);
    outs[0].dtype = (co_dtype)attrs->dtype;
    return CO_OK;
}

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

static co_code
cast_run(coi_call *call)
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

/* Back to the dtype of x; integers have no gradient. */
static co_code
cast_grad(coi_grad *g)
{
    co_dtype dtype = (co_dtype)g->in[0]->dtype;

    if (coi_dtypes[dtype].floating)
        g->grads[0] = co_cast(g->ctx, g->upstream[0], dtype);
    return g->ctx->error.code;
}

const coi_op coi_op_cast = {
    .name = "cast",
    .doc = "Conversion to a dtype: floats to integers truncate, numbers to bool are x != 0.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_NUMBERS | COI_DTYPE_BIT(CO_BOOL),
    COI_ATTRS(coi_cast_attrs),
    .infer = cast_rule,
    .ref = coi_ref_cast,
    .run = cast_run,
    .grad = cast_grad,
};

co_value *
co_cast(co_context *ctx, co_value *x, co_dtype dtype)
{
    coi_cast_attrs attrs = { coi_dtype_attr(dtype) };

    /* Nothing to convert: the data can be shared. */
    if (x != NULL && x->kind == CO_KIND_TENSOR && x->dtype == attrs.dtype && x->dtype != CO_STRING)
        return coi_apply1(ctx, &coi_op_identity, x, NULL);
    return coi_apply1(ctx, &coi_op_cast, x, &attrs);
}

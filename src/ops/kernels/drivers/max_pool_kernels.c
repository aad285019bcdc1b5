/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_pool2d, its gradient and the gradient of that: the cut over workers. Loops are in
 * ops/kernels/simd/simd_pool2d.c, the plain ones in ops/kernels/ref/ref_pool2d.c.
 */
#include "ops/kernels/pool2d.h"

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/window2d.h"

extern const coi_pool_kernels coi_pool_f32_base, coi_pool_f32_v3, coi_pool_f32_v4;
extern const coi_pool_kernels coi_pool_f64_once;

static const coi_pool_kernels *const kernels_f32[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_pool_f32);

/* One call of any of the three: chunks of output rows, or of images for the gradient, whose windows
 * overlap. */
typedef struct job {
    coi_pool                p;
    const coi_pool_kernels *kernels;
    coi_pool_kind           kind;
    co_dtype                dtype;
    const void             *x, *y, *g;
    void                   *out;
    int64_t                 total, per_chunk, chunks;
    bool from_last; /* one thread finds in its cache what the layer before wrote last; of several
                       each has its range, and goes on with it */
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t    first = (j->from_last ? j->chunks - 1 - chunk : chunk) * j->per_chunk;
    int64_t    last = first + j->per_chunk;

    if (last > j->total)
        last = j->total;
    if (!coi_dtypes[j->dtype].floating) /* rare: a loop for each of eight dtypes is not worth it */
        coi_ref_max_pool_whole(&j->p, j->dtype, j->x, j->out, first, last);
    else if (j->kind == COI_POOL)
        j->kernels->forward(&j->p, j->x, j->out, first, last);
    else if (j->kind == COI_POOL_GRAD)
        j->kernels->grad(&j->p, j->x, j->y, j->g, j->out, first, last);
    else
        j->kernels->grad_grad(&j->p, j->x, j->y, j->g, j->out, first, last);
}

static co_code
run_with(coi_call *call, const coi_pool_kernels *kernels)
{
    job     j = { .kernels = kernels,
                  .kind = (coi_pool_kind)call->op->kind,
                  .dtype = (co_dtype)call->out[0]->dtype,
                  .out = call->out[0]->u.tensor.data };
    int64_t elements; /* read per row or image */
    co_code rc = coi_pool_read(call, &j.p);

    if (rc == CO_OK && (j.p.oh == 0 || j.p.ow == 0) && j.kind == COI_POOL)
        coi_warn_no_window(call, j.p.kh, j.p.kw, j.p.h, j.p.w);
    if (rc != CO_OK || call->out[0]->u.tensor.num_elements == 0)
        return rc;
    j.x = call->in[0]->u.tensor.data;
    if (call->num_in == 3) {
        j.y = call->in[1]->u.tensor.data;
        j.g = call->in[2]->u.tensor.data;
    }
    elements = j.p.ow * j.p.c * j.p.kh * j.p.kw;
    j.total = j.p.n * j.p.oh;
    if (j.kind == COI_POOL_GRAD) {
        elements *= j.p.oh;
        j.total = j.p.n;
    }
    j.per_chunk = elements >= COI_PARALLEL_POOLED
                      ? 1
                      : COI_PARALLEL_POOLED / (elements > 0 ? elements : 1);
    j.chunks = (j.total + j.per_chunk - 1) / j.per_chunk;
    j.from_last = j.kind == COI_POOL && coi_team_size(call->device->team) == 1;
    coi_parallel(call, j.chunks, run_chunk, &j);
    return CO_OK;
}

co_code
coi_max_pool_run(coi_call *call)
{
    return run_with(call, call->out[0]->dtype == CO_FLOAT64 ? &coi_pool_f64_once
                                                            : kernels_f32[call->ctx->runtime->isa]);
}

co_code
coi_max_pool_ref(coi_call *call)
{
    return run_with(call, coi_ref_pool_kernels((co_dtype)call->out[0]->dtype));
}

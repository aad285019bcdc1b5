/* SPDX-License-Identifier: Apache-2.0 */
/* See fused_elementwise.h. */
#include "ops/kernels/fused_elementwise.h"

#include "ops/kernels/elementwise.h"
#include "ops/kernels/streaming_store.h"
#include "ops/kernels/strided_iterator.h"

/* Elements of a tile: 1 KiB of floats, so that eight tiles and as many operands fit the first cache
 * of all machines; at half of it the calls of loops cost more, at the double nothing is gained. */
#define TILE 256

typedef struct tiles {
    _Alignas(64) char bytes[COI_FUSED_TILES][TILE * 8];
} tiles;

typedef struct fused_job {
    const coi_fused *fused;
    coi_stream_fn    stream;
    int64_t          per_chunk;
} fused_job;

bool
coi_fused_step_of(const coi_call *call, coi_fused_step *step)
{
    if (call->op->run == coi_unary_run)
        return coi_unary_step_of(call, (coi_unary_kind)call->op->kind, step);
    if (call->op->run == coi_gelu_run)
        return coi_unary_step_of(call, coi_gelu_kind(call->attrs), step);
    return call->op->run == coi_binary_run && coi_binary_step_of(call, step);
}

bool
coi_fused_streams(size_t nbytes)
{
    return nbytes >= COI_STREAM_BYTES;
}

static inline char *
place_at(const coi_fused_place *place, tiles *between, int64_t at)
{
    if (place->tile >= 0)
        return between->bytes[place->tile];
    return (char *)place->tensor->u.tensor.data + (place->is_one ? 0 : (size_t)at * place->size);
}

static inline void
take_step(const fused_job *job, const coi_fused_step *step, tiles *between, int64_t at, int64_t n)
{
    char       *out = place_at(&step->out, between, at);
    const char *x = place_at(&step->in[0], between, at);

    if (step->unary != NULL)
        step->unary(out, x, n);
    else
        step->binary(out, x, place_at(&step->in[1], between, at), n, step->pairing);
    if (step->out.tile >= 0 && step->out.tensor != NULL)
        job->stream((char *)step->out.tensor->u.tensor.data + (size_t)at * step->out.size, out,
                    (size_t)n * step->out.size);
}

static void
run_span(const fused_job *job, int64_t begin, int64_t end)
{
    const coi_fused *fused = job->fused;
    tiles            between;

    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = end - at < TILE ? end - at : TILE;

        for (size_t i = 0; i < fused->num_steps; ++i)
            take_step(job, &fused->steps[i], &between, at, n);
    }
}

static void
fused_chunk(void *arg, int64_t chunk)
{
    const fused_job *job = arg;
    int64_t          begin = chunk * job->per_chunk, n = job->fused->num_elements;

    run_span(job, begin, n - begin < job->per_chunk ? n : begin + job->per_chunk);
    coi_stream_end();
}

void
coi_fused_run(const coi_fused *fused, const co_device *device)
{
    fused_job job = { fused, coi_stream_of(fused->isa), 0 };

    if (fused->num_elements <= COI_PARALLEL_ELEMENTS) {
        run_span(&job, 0, fused->num_elements);
    } else {
        int64_t n = coi_num_chunks(fused->num_elements, 1, &job.per_chunk);

        coi_team_run(device->team, n, fused_chunk, &job);
    }
}

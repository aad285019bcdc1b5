/* SPDX-License-Identifier: Apache-2.0 */
/* See fused_elementwise.h. */
#include "ops/kernels/fused_elementwise.h"

#include "ops/engine/parallel.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/matmul.h"
#include "ops/kernels/streaming_store.h"
#include "ops/kernels/strided_iterator.h"

/* Elements of a tile: 1 KiB of floats, so that eight tiles and as many operands fit the first cache
 * of all machines; at half of it the calls of loops cost more, at the double nothing is gained. */
#define TILE 256

typedef struct tiles {
    _Alignas(64) char bytes[COI_FUSED_TILES][TILE * 8];
} tiles;

/*
 * Operands in memory. A tile is computed from the cache for longer than it is loaded, and a
 * processor foresees loads of the same tile alone. So those of a later tile are prefetched
 * meanwhile, some lines with each step.
 */
#define PREFETCH_ELEMENTS ((int64_t)1 << 18) /* smaller operands are in a cache */
#define PREFETCH_TILES    2
#define MOST_PREFETCHED   8

typedef struct operands {
    const char *data[MOST_PREFETCHED];
    size_t      size[MOST_PREFETCHED]; /* of an element */
    int         n;
} operands;

typedef struct fused_job {
    const coi_fused *fused;
    coi_stream_fn    stream;
    int64_t          per_chunk;
    const operands  *later; /* NULL: they are in a cache, as is what an epilogue goes on with */
    atomic_ullong   *progress;
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

/* A product with more columns than a tile of it has parts of rows as its parts, far from each
 * other: a chain over them takes longer than a pass of its own over all rows. */
#define MOST_COLUMNS 128

bool
coi_takes_epilogue(const coi_call *call)
{
    co_code (*run)(coi_call *) = call->op->run;
    const co_value *out = call->out[0];

    if (out->dtype != CO_FLOAT32 && out->dtype != CO_FLOAT64)
        return false;
    return run == coi_norm_run || ((run == coi_matmul_run || run == coi_dense_run) &&
                                   out->u.tensor.dims[out->ndim - 1] <= MOST_COLUMNS);
}

/* Where a tile is: from which element on, and in which row, at which column. */
typedef struct position {
    int64_t at, row, column;
} position;

static inline char *
place_at(const coi_fused_place *place, tiles *between, const position *p)
{
    int64_t element[] = { [COI_FUSED_DENSE] = p->at,
                          [COI_FUSED_ONE] = 0,
                          [COI_FUSED_ROW] = p->column,
                          [COI_FUSED_PER_ROW] = p->row };

    if (place->tile >= 0)
        return between->bytes[place->tile];
    return (char *)place->tensor->u.tensor.data + (size_t)element[place->layout] * place->size;
}

static inline void
take_step(const fused_job *job, const coi_fused_step *step, tiles *between, const position *p,
          int64_t n)
{
    char       *out = place_at(&step->out, between, p);
    const char *x = place_at(&step->in[0], between, p);

    if (step->unary != NULL)
        step->unary(out, x, n);
    else
        step->binary(out, x, place_at(&step->in[1], between, p), n, step->pairing);
    if (step->out.tile >= 0 && step->out.tensor != NULL)
        job->stream((char *)step->out.tensor->u.tensor.data + (size_t)p->at * step->out.size, out,
                    (size_t)n * step->out.size);
}

static void
add_operand(operands *all, const coi_fused_place *place)
{
    const char *data = place->tensor != NULL ? place->tensor->u.tensor.data : NULL;

    if (data == NULL || place->layout != COI_FUSED_DENSE || all->n == MOST_PREFETCHED)
        return;
    for (int i = 0; i < all->n; ++i)
        if (all->data[i] == data)
            return;
    all->data[all->n] = data;
    all->size[all->n++] = place->size;
}

static void
find_operands(const coi_fused *fused, operands *all)
{
    all->n = 0;
    for (size_t i = 0; i < fused->num_steps; ++i)
        for (int k = 0; k < (fused->steps[i].unary != NULL ? 1 : 2); ++k)
            if (fused->steps[i].in[k].tile < 0)
                add_operand(all, &fused->steps[i].in[k]);
}

/* The share of step i in the lines of the tile that begins at element `at`. */
static inline void
prefetch_operands(const operands *all, int64_t at, size_t i, size_t num_steps)
{
    for (int k = 0; k < all->n; ++k) {
        uintptr_t tile = (uintptr_t)all->data[k] + (size_t)at * all->size[k];

        for (size_t line = 64 * i; line < TILE * all->size[k]; line += 64 * num_steps)
            __builtin_prefetch((const void *)(tile + line));
    }
}

static inline void
take_steps(const fused_job *job, tiles *between, const position *p, int64_t n)
{
    const coi_fused *fused = job->fused;

    for (size_t i = 0; i < fused->num_steps; ++i)
        take_step(job, &fused->steps[i], between, p, n);
}

static void
take_steps_and_prefetch(const fused_job *job, tiles *between, const position *p, int64_t n)
{
    const coi_fused *fused = job->fused;

    for (size_t i = 0; i < fused->num_steps; ++i) {
        prefetch_operands(job->later, p->at + PREFETCH_TILES * TILE, i, fused->num_steps);
        take_step(job, &fused->steps[i], between, p, n);
    }
}

/* One step without a tile needs none: it has no other step to stay in the cache for. */
static int64_t
tile_elements(const coi_fused *fused)
{
    return fused->num_steps == 1 && fused->steps[0].out.tile < 0 ? INT64_MAX : TILE;
}

static void
run_span(const fused_job *job, int64_t begin, int64_t end)
{
    const coi_fused *fused = job->fused;
    int64_t          row = fused->row, most = tile_elements(fused), n;
    position         p = { begin, row > 0 ? begin / row : 0, row > 0 ? begin % row : 0 };
    tiles            between;

    for (; p.at < end; p.at += n) {
        n = end - p.at < most ? end - p.at : most;
        if (row > 0 && row - p.column < n)
            n = row - p.column;
        if (job->later == NULL)
            take_steps(job, &between, &p, n);
        else
            take_steps_and_prefetch(job, &between, &p, n);
        p.column += n;
        if (p.column == row) {
            p.column = 0;
            ++p.row;
        }
    }
}

void
coi_fused_rows(const coi_fused *fused, int64_t at, int64_t stride, int64_t rows, int64_t columns)
{
    fused_job job = { fused, coi_stream_of(fused->isa), 0, NULL, NULL };

    if (columns == stride)
        run_span(&job, at, at + rows * columns);
    else
        for (int64_t i = 0; i < rows; ++i, at += stride)
            run_span(&job, at, at + columns);
    /* A fence waits for all stores, so there is one only where results of some dtype stream. */
    if (coi_fused_streams((size_t)fused->num_elements * sizeof(double)))
        coi_stream_end();
}

static void
fused_chunk(void *arg, int64_t chunk)
{
    const fused_job *job = arg;
    int64_t          begin = chunk * job->per_chunk, n = job->fused->num_elements;

    run_span(job, begin, n - begin < job->per_chunk ? n : begin + job->per_chunk);
    coi_stream_end();
    atomic_fetch_add_explicit(job->progress, 1, memory_order_relaxed);
}

static void
run_chunks(const coi_fused *fused, const co_device *device, fused_job *job)
{
    int64_t  n = coi_share_elements(fused->num_elements, &job->per_chunk);
    int64_t  steps = (int64_t)fused->num_steps;
    operands later;

    if (fused->num_elements >= PREFETCH_ELEMENTS) {
        find_operands(fused, &later);
        job->later = &later;
    }
    coi_team_run_for(device->team, n, steps * fused->num_elements / COI_ELEMENTS_PER_NS,
                     fused_chunk, job);
}

void
coi_fused_run(const coi_fused *fused, const co_device *device, atomic_ullong *progress)
{
    fused_job job = { fused, coi_stream_of(fused->isa), 0, NULL, progress };

    if (fused->num_elements < 2 * COI_SHARED_ELEMENTS)
        run_span(&job, 0, fused->num_elements);
    else
        run_chunks(fused, device, &job);
}

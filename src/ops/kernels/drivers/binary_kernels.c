/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of two operands, with broadcasting. Equal shapes and single elements, by
 * far the most common, are one call of an inner loop; other shapes go row by row through a strided
 * iterator, or in tiles.
 */
#include "ops/kernels/elementwise.h"

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/compute_type.h"
#include "ops/kernels/fused_elementwise.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/streaming_store.h"
#include "ops/kernels/strided_iterator.h"

#include <string.h>

static const coi_binary_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_binary_loops);

typedef struct binary_job {
    coi_binary_fn        loop;
    coi_isa              isa;
    co_dtype             dtype, out_dtype;      /* of the tensors */
    co_dtype             compute_dtype, result; /* of the loop */
    bool                 is_direct;             /* they are the same */
    bool                 inverted;
    bool                 streams;
    char                *out;
    const char          *x, *y;
    size_t               size, out_size; /* of elements */
    coi_pairing          pairing;
    int64_t              n, per_chunk; /* elements, or rows */
    coi_strided_iterator iter;
} binary_job;

/* Through the compute type, block by block. */
static void
convert_span(const binary_job *job, char *out, const char *x, const char *y, int64_t n,
             coi_pairing pairing)
{
    coi_compute_block xs, ys, result;
    const void       *p = NULL, *q = NULL;

    if (pairing == COI_PAIR_ONE_X)
        p = coi_to_compute_type(job->isa, job->dtype, x, job->compute_dtype, &xs, 1);
    if (pairing == COI_PAIR_ONE_Y)
        q = coi_to_compute_type(job->isa, job->dtype, y, job->compute_dtype, &ys, 1);
    for (int64_t i = 0; i < n; i += COI_COMPUTE_BLOCK) {
        int64_t m = n - i < COI_COMPUTE_BLOCK ? n - i : COI_COMPUTE_BLOCK;
        size_t  at = (size_t)i * job->size;
        char   *to = out + (size_t)i * job->out_size;

        if (pairing != COI_PAIR_ONE_X)
            p = coi_to_compute_type(job->isa, job->dtype, x + at, job->compute_dtype, &xs, m);
        if (pairing != COI_PAIR_ONE_Y)
            q = coi_to_compute_type(job->isa, job->dtype, y + at, job->compute_dtype, &ys, m);
        if (job->result == job->out_dtype) {
            job->loop(to, p, q, m, pairing);
        } else {
            job->loop(result.bytes, p, q, m, pairing);
            coi_cast_elements(job->isa, job->result, result.bytes, job->out_dtype, to, m);
        }
    }
}

/* Onto the second operand: loops are promised that their result is elsewhere. */
static void
span_onto(const binary_job *job, char *out, const char *x, int64_t n)
{
    coi_compute_block result;

    for (int64_t i = 0; i < n; i += COI_COMPUTE_BLOCK) {
        int64_t m = n - i < COI_COMPUTE_BLOCK ? n - i : COI_COMPUTE_BLOCK;
        size_t  at = (size_t)i * job->size;

        job->loop(result.bytes, x + at, out + at, m, COI_PAIR_BOTH);
        memcpy(out + at, result.bytes, (size_t)m * job->size);
    }
}

/* Past the cache, block by block. */
static void
stream_span(const binary_job *job, char *out, const char *x, const char *y, int64_t n,
            coi_pairing pairing)
{
    size_t          step_x = pairing == COI_PAIR_ONE_X ? 0 : job->size;
    size_t          step_y = pairing == COI_PAIR_ONE_Y ? 0 : job->size;
    coi_stream_fn   stream = coi_stream_of(job->isa);
    coi_stream_area area;

    for (int64_t m; n > 0; n -= m) {
        char       *block = coi_stream_block(&area, out);
        const char *one = step_x > 0 ? x : y;

        m = coi_stream_elements(out, job->out_size, n);
        if ((size_t)n * job->size >= COI_PREFETCH_BYTES + COI_STREAM_BLOCK)
            coi_stream_prefetch(one + COI_PREFETCH_BYTES,
                                step_x > 0 && step_y > 0 ? y + COI_PREFETCH_BYTES : NULL);
        job->loop(block, x, y, m, pairing);
        stream(out, block, (size_t)m * job->out_size);
        x += (size_t)m * step_x;
        y += (size_t)m * step_y;
        out += (size_t)m * job->out_size;
    }
}

/* The end of a chunk. */
static void
finish_chunk(const binary_job *job)
{
    if (job->streams)
        coi_stream_end();
}

/* n elements one after the other. */
static void
span(const binary_job *job, char *out, const char *x, const char *y, int64_t n, coi_pairing pairing)
{
    if (job->is_direct && out == y && pairing == COI_PAIR_BOTH)
        span_onto(job, out, x, n);
    else if (job->streams)
        stream_span(job, out, x, y, n, pairing);
    else if (job->is_direct)
        job->loop(out, x, y, n, pairing);
    else
        convert_span(job, out, x, y, n, pairing);
    for (int64_t i = 0; job->inverted && i < n; ++i)
        out[i] ^= 1;
}

static void
flat_chunk(void *arg, int64_t chunk)
{
    const binary_job *job = arg;
    int64_t           begin = chunk * job->per_chunk;
    int64_t           n = job->n - begin < job->per_chunk ? job->n - begin : job->per_chunk;
    const char       *x = job->x + (job->pairing == COI_PAIR_ONE_X ? 0 : (size_t)begin * job->size);
    const char       *y = job->y + (job->pairing == COI_PAIR_ONE_Y ? 0 : (size_t)begin * job->size);

    span(job, job->out + (size_t)begin * job->out_size, x, y, n, job->pairing);
    finish_chunk(job);
}

static co_code
flat(coi_call *call, binary_job *job, coi_pairing pairing)
{
    job->n = call->out[0]->u.tensor.num_elements;
    if (job->n < 2 * COI_SHARED_ELEMENTS) {
        span(job, job->out, job->x, job->y, job->n, pairing);
        return CO_OK;
    }
    job->pairing = pairing;
    coi_parallel_for(call, coi_share_elements(job->n, &job->per_chunk),
                     job->n / COI_ELEMENTS_PER_NS, flat_chunk, job);
    return CO_OK;
}

static void
row_chunk(void *arg, int64_t chunk)
{
    const binary_job           *job = arg;
    const coi_strided_iterator *iter = &job->iter;
    int64_t                     width = iter->dims[iter->ndim - 1], row = chunk * job->per_chunk;
    int64_t                     end = row + job->per_chunk < job->n ? row + job->per_chunk : job->n;
    coi_strided_cursor          cursor;

    coi_strided_seek(iter, row, &cursor);
    for (; row < end; ++row) {
        span(job, job->out + (size_t)(row * width) * job->out_size,
             job->x + (size_t)cursor.at[0] * job->size, job->y + (size_t)cursor.at[1] * job->size,
             width, job->pairing);
        coi_strided_next(iter, &cursor);
    }
    finish_chunk(job);
}

/*
 * Short rows against one row, as adding ten biases to every example: the row is written out several
 * times, so that the loop sees long stretches.
 */
#define TILE_BYTES 2048
#define TILE_WIDTH 64

static bool
can_tile(const binary_job *job)
{
    const coi_strided_iterator *iter = &job->iter;

    return iter->ndim == 2 && job->pairing == COI_PAIR_BOTH && iter->dims[1] <= TILE_WIDTH &&
           iter->dims[0] >= 4 && (iter->strides[0][0] == 0 || iter->strides[1][0] == 0);
}

static void
tile_chunk(void *arg, int64_t chunk)
{
    const binary_job *job = arg;
    bool              repeats_x = job->iter.strides[0][0] == 0;
    int64_t           width = job->iter.dims[1], row = chunk * job->per_chunk, step;
    int64_t           end = row + job->per_chunk < job->n ? row + job->per_chunk : job->n;
    size_t            row_bytes = (size_t)width * job->size;
    char              tile[TILE_BYTES];

    step = (int64_t)(TILE_BYTES / row_bytes);
    step = step < end - row ? step : end - row;
    for (int64_t i = 0; i < step; ++i)
        memcpy(tile + (size_t)i * row_bytes, repeats_x ? job->x : job->y, row_bytes);
    for (; row < end; row += step) {
        int64_t     n = end - row < step ? end - row : step;
        const char *x = repeats_x ? tile : job->x + (size_t)row * row_bytes;
        const char *y = repeats_x ? job->y + (size_t)row * row_bytes : tile;

        span(job, job->out + (size_t)(row * width) * job->out_size, x, y, n * width, COI_PAIR_BOTH);
    }
    finish_chunk(job);
}

static co_code
broadcast(coi_call *call, binary_job *job)
{
    coi_strided_iterator *iter = &job->iter;
    int                   last;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    coi_strided_broadcast(iter, call->out[0], call->in, 2);
    last = iter->ndim - 1;
    job->pairing = iter->strides[0][last] == 0   ? COI_PAIR_ONE_X
                   : iter->strides[1][last] == 0 ? COI_PAIR_ONE_Y
                                                 : COI_PAIR_BOTH;
    job->n = coi_strided_rows(iter);
    coi_parallel(call, coi_num_chunks(job->n, iter->dims[last], &job->per_chunk),
                 can_tile(job) ? tile_chunk : row_chunk, job);
    return CO_OK;
}

static co_dtype
result_of(coi_binary_kind kind, coi_compute_type_entry compute)
{
    if (kind >= COI_EQUAL)
        return CO_BOOL;
    return kind == COI_DIV && compute.type >= COI_I32 ? CO_FLOAT64 : (co_dtype)compute.dtype;
}

static inline coi_binary_fn
loop_for(coi_isa isa, coi_binary_kind kind, coi_compute_type_entry compute)
{
    coi_binary_fn loop = tables[isa]->at[kind][compute.type];

    return loop != NULL ? loop : coi_binary_loops_rare.at[kind][compute.type];
}

static void
fill_job(coi_call *call, binary_job *job)
{
    const co_value        *x = call->in[0];
    coi_compute_type_entry compute = coi_compute_types[x->dtype];
    coi_binary_kind        kind = COI_KIND(call->op->kind);

    job->isa = call->ctx->runtime->isa;
    job->loop = loop_for(job->isa, kind, compute);
    job->inverted = (call->op->kind & COI_INVERTED) != 0;
    job->dtype = (co_dtype)x->dtype;
    job->out_dtype = (co_dtype)call->out[0]->dtype;
    job->compute_dtype = (co_dtype)compute.dtype;
    job->result = result_of(kind, compute);
    job->is_direct = job->dtype == job->compute_dtype && job->out_dtype == job->result;
    job->out = COI_OUT(call, 0, char);
    job->x = COI_IN(call, 0, char);
    job->y = COI_IN(call, 1, char);
    job->size = coi_dtypes[job->dtype].size;
    job->out_size = coi_dtypes[job->out_dtype].size;
    job->streams = job->is_direct && kind < COI_EQUAL && /* a bool is a quarter of its operand */
                   (size_t)call->out[0]->u.tensor.num_elements * job->out_size >= COI_STREAM_BYTES;
}

/* An operand of as many elements as the result has its layout: broadcasting would have made more of
 * them. */
static co_code
pair(coi_call *call)
{
    int64_t    nx = call->in[0]->u.tensor.num_elements, ny = call->in[1]->u.tensor.num_elements;
    int64_t    n = call->out[0]->u.tensor.num_elements;
    binary_job job;

    fill_job(call, &job);
    if (nx == n) {
        if (ny == n)
            return flat(call, &job, COI_PAIR_BOTH);
        if (ny == 1)
            return flat(call, &job, COI_PAIR_ONE_Y);
    } else if (nx == 1 && ny == n) {
        return flat(call, &job, COI_PAIR_ONE_X);
    }
    return broadcast(call, &job);
}

static co_code
pair_swapped(coi_call *call)
{
    co_value *other_way[2] = { call->in[1], call->in[0] };
    coi_call  swapped = *call;

    swapped.in = other_way;
    return pair(&swapped);
}

/* The layouts of two operands, if they have one, and the elements of a row. */
static bool
find_layouts(const co_value *out, co_value *const operands[2], uint8_t layouts[2], int64_t *row)
{
    static const uint8_t by_strides[2][2] = { { COI_FUSED_ONE, COI_FUSED_ROW },
                                              { COI_FUSED_PER_ROW, COI_FUSED_DENSE } };
    coi_strided_iterator iter;
    bool                 has_rows = false;

    if (out->u.tensor.num_elements == 0) {
        layouts[0] = layouts[1] = COI_FUSED_DENSE;
        return true;
    }
    coi_strided_broadcast(&iter, out, operands, 2);
    if (iter.ndim > 2)
        return false;
    for (int k = 0; k < 2; ++k) {
        int64_t outer = iter.strides[k][0], inner = iter.strides[k][iter.ndim - 1];

        layouts[k] = by_strides[outer != 0][inner != 0];
        if (iter.ndim == 1)
            layouts[k] = inner != 0 ? COI_FUSED_DENSE : COI_FUSED_ONE;
        has_rows = has_rows || layouts[k] == COI_FUSED_ROW || layouts[k] == COI_FUSED_PER_ROW;
    }
    *row = has_rows ? iter.dims[1] : 0;
    return !has_rows || *row >= COI_FUSED_SHORTEST_ROW;
}

static bool
is_single(uint8_t layout)
{
    return layout == COI_FUSED_ONE || layout == COI_FUSED_PER_ROW;
}

bool
coi_binary_step_of(const coi_call *call, coi_fused_step *step)
{
    unsigned               kind = call->op->kind, swapped = (kind & COI_SWAPPED) != 0;
    co_value *const        operands[2] = { call->in[swapped], call->in[1 - swapped] };
    const co_value        *out = call->out[0];
    coi_compute_type_entry compute = coi_compute_types[operands[0]->dtype];
    uint8_t                size = coi_dtypes[operands[0]->dtype].size, layouts[2];
    int64_t                row = 0;

    if ((kind & COI_INVERTED) != 0 || compute.dtype != operands[0]->dtype ||
        result_of(COI_KIND(kind), compute) != (co_dtype)out->dtype ||
        !find_layouts(out, operands, layouts, &row) ||
        (layouts[0] != COI_FUSED_DENSE && layouts[1] != COI_FUSED_DENSE))
        return false;
    *step = (coi_fused_step){ .binary = loop_for(call->ctx->runtime->isa, COI_KIND(kind), compute),
                              .pairing = is_single(layouts[0])   ? COI_PAIR_ONE_X
                                         : is_single(layouts[1]) ? COI_PAIR_ONE_Y
                                                                 : COI_PAIR_BOTH,
                              .in = { { .size = size, .layout = layouts[0] },
                                      { .size = size, .layout = layouts[1] } },
                              .out.size = coi_dtypes[out->dtype].size,
                              .order = { (uint8_t)swapped, (uint8_t)(1 - swapped) },
                              .row = row };
    return true;
}

/* The second operand of a loop, where it is large enough to be taken block by block (span_onto). */
int
coi_binary_overwrites(const coi_call *call)
{
    coi_fused_step step;

    return call->op->run == coi_binary_run && coi_binary_step_of(call, &step) && step.row == 0 &&
                   step.pairing == COI_PAIR_BOTH && step.in[1].size == step.out.size &&
                   call->out[0]->u.tensor.num_elements > COI_PARALLEL_ELEMENTS
               ? step.order[1]
               : -1;
}

/* A few floats, as often as not a single one, are worth a way of their own: the preparations would
 * cost more. */
co_code
coi_binary_run(coi_call *call)
{
    const co_value *x = call->in[0], *y = call->in[1];
    int64_t         n = x->u.tensor.num_elements;
    unsigned        kind = call->op->kind;

    if (kind < COI_SWAPPED && x->dtype == CO_FLOAT32 && n == y->u.tensor.num_elements &&
        n == call->out[0]->u.tensor.num_elements && n < 2 * COI_SHARED_ELEMENTS) {
        loop_for(call->ctx->runtime->isa, (coi_binary_kind)kind, coi_compute_types[CO_FLOAT32])(
            call->out[0]->u.tensor.data, x->u.tensor.data, y->u.tensor.data, n, COI_PAIR_BOTH);
        return CO_OK;
    }
    return kind & COI_SWAPPED ? pair_swapped(call) : pair(call);
}

/* Strings have no fast loop. */
co_code
coi_equal_run(coi_call *call)
{
    return call->in[0]->dtype == CO_STRING ? coi_ref_binary(call) : coi_binary_run(call);
}

/* The slope is a second operand of one element. */
co_code
coi_leaky_relu_run(coi_call *call)
{
    const coi_leaky_attrs *attrs = call->attrs;
    binary_job             job;
    char                   alpha[8];
    co_value              *both[2] = { call->in[0], call->in[0] };
    coi_call               with_slope = *call;

    with_slope.in = both;
    fill_job(&with_slope, &job);
    coi_convert(CO_FLOAT32, &(float){ (float)attrs->alpha }, job.dtype, alpha, 1);
    job.y = alpha;
    return flat(call, &job, COI_PAIR_ONE_Y);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of attention, which call those of gemm.h and softmax.h. A worker computes one head of
 * one item at a time: a group of queries times the keys that it may see, softmax, times the values.
 * A matrix of all scores never exists. Where probabilities are not
 * kept, the gradient computes them again, with the same bits.
 *
 * The operands of a head are packed first: the queries, scaled, and the keys as panels of the GEMM.
 * Everything is cut by shape alone, and every sum has one order.
 */
#include "ops/kernels/attention.h"

#include "ops/kernels/gemm.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/softmax.h"

#include <math.h>
#include <string.h>

static const coi_binary_loops *const loops[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_binary_loops);

/* Queries (at most) and scores (about) of a block of the gradient: they stay in the L2 cache. */
enum { BLOCK_ROWS = 192, BLOCK_SCORES = 65536 };

void
coi_attention_view_of(co_value *const *in, const coi_attention_attrs *attrs,
                      coi_attention_view *view)
{
    const co_value *q = in[0];

    *view = (coi_attention_view){ .items = 1,
                                  .heads = attrs->heads,
                                  .num_queries = q->u.tensor.dims[q->ndim - 2],
                                  .num_keys = in[1]->u.tensor.dims[in[1]->ndim - 2],
                                  .depth = q->u.tensor.dims[q->ndim - 1] / attrs->heads,
                                  .width = in[2]->u.tensor.dims[in[2]->ndim - 1] / attrs->heads,
                                  .causal = attrs->causal,
                                  .scale = attrs->scale };
    for (int d = 0; d < q->ndim - 2; ++d)
        view->items *= q->u.tensor.dims[d];
    if (view->scale == 0)
        view->scale = view->depth > 0 ? 1 / sqrt((double)view->depth) : 1;
}

/* Rows that are `row` elements apart. */
typedef struct matrix {
    char   *at;
    int64_t row;
} matrix;

/* What a worker has of the head that it is at. */
typedef struct head {
    matrix q, v;          /* q times scale */
    matrix k, g;          /* for the gradient: k times scale, and that of the result */
    char  *key_panels;    /* k as the right operand of q k' */
    char  *value_panels;  /* v as that of g v' */
    matrix scores, p, dp; /* dp: that of p; scores become the gradient of scores */
    matrix kept;          /* the probabilities of all queries, instead of p */
    matrix out, dk, dv;   /* where results go; out is the gradient of q where g is there */
} head;

typedef struct job {
    coi_attention_view         view;
    const coi_gemm_kernels    *gemm;
    const coi_softmax_kernels *softmax;
    coi_binary_fn              times;
    size_t                     size; /* of an element */
    co_device                 *device;
    matrix                     q, k, v, g; /* g: the gradient of the result, or nothing */
    matrix                     out, dk, dv;
    char                      *kept;  /* probabilities of all heads, or NULL */
    int64_t                    group; /* queries that are taken together */
    int64_t                    block; /* queries whose scores are there at a time */
    int64_t                    items_per_chunk;
    size_t                     room; /* bytes that a worker needs */
    atomic_bool                no_memory;
} job;

static int64_t
smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* Element (row, column) of a matrix. */
static char *
place(const job *j, matrix m, int64_t row, int64_t column)
{
    return m.at + (size_t)(row * m.row + column) * j->size;
}

/* The matrix of a head in a tensor with so many rows for each item and channels for each head. */
static matrix
part_of(const job *j, matrix whole, int64_t rows, int64_t channels, int64_t at)
{
    whole.at = place(j, whole, at / j->view.heads * rows, at % j->view.heads * channels);
    return whole;
}

/* A tensor as rows of its last dimension; `number` counts operands, then results. */
static matrix
rows_of(const coi_call *call, int number)
{
    const co_value *tensor = number < call->num_in ? call->in[number]
                                                   : call->out[number - call->num_in];
    int64_t         stride = call->row_strides != NULL ? call->row_strides[number] : 0;

    return (matrix){ tensor->u.tensor.data,
                     stride != 0 ? stride : tensor->u.tensor.dims[tensor->ndim - 1] };
}

/* Room for a matrix, of which *used is taken. Without room, only that is counted. */
static matrix
take(const job *j, char *room, size_t *used, int64_t rows, int64_t columns)
{
    matrix m = { room != NULL ? room + *used : NULL, columns };

    *used += (size_t)round_up(rows * columns * (int64_t)j->size, COI_ALIGNMENT);
    return m;
}

static void
copy_scaled(const job *j, matrix from, matrix to, int64_t rows, double scale)
{
    float narrow = (float)scale;

    for (int64_t r = 0; r < rows; ++r) {
        const void *x = place(j, from, r, 0);
        void       *y = place(j, to, r, 0);

        if (scale == 1)
            memcpy(y, x, (size_t)to.row * j->size);
        else
            j->times(y, x, j->size == sizeof(double) ? (const void *)&scale : &narrow, to.row,
                     COI_PAIR_ONE_Y);
    }
}

/* c = a b, or c += a b, with operands read where they lie. */
static void
multiply(const job *j, const coi_gemm *g)
{
    coi_gemm_plan plan = { .g = *g, .k1 = g->k };

    for (int64_t i = 0; g->k == 0 && !g->accumulate && i < g->m; ++i)
        memset((char *)g->c + (size_t)(i * g->c_row) * j->size, 0, (size_t)g->n * j->size);
    j->gemm->tile(&plan, 0, g->m, 0, g->n);
}

/* The transpose of a matrix of num_keys rows, as panels. */
static void
pack(const job *j, matrix m, int64_t channels, char *panels)
{
    coi_gemm_plan plan = {
        .g = { .n = j->view.num_keys, .k = channels, .b = m.at, .b_row = 1, .b_col = m.row },
        .k1 = channels,
        .pack_b = true,
        .packed_b = panels
    };

    for (int64_t panel = 0; panel * j->gemm->nr < j->view.num_keys; ++panel)
        j->gemm->pack_b(&plan, panel);
}

/* c = a b' for the first n rows of a b that was packed. */
static void
multiply_packed(const job *j, matrix a, int64_t m, int64_t channels, char *panels, matrix c,
                int64_t n)
{
    coi_gemm_plan plan = { .g = { .m = m,
                                  .n = j->view.num_keys,
                                  .k = channels,
                                  .a = a.at,
                                  .a_row = a.row,
                                  .a_col = 1,
                                  .c = c.at,
                                  .c_row = c.row },
                           .k1 = channels,
                           .pack_b = true,
                           .packed_b = panels };

    for (int64_t i = 0; channels == 0 && i < m; ++i)
        memset(place(j, c, i, 0), 0, (size_t)n * j->size);
    j->gemm->tile(&plan, 0, m, 0, n);
}

/* Queries [i, i + rows) see no key behind their own place. */
static void
hide(const job *j, matrix scores, int64_t i, int64_t rows, int64_t num_seen)
{
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = i + r + 1; c < num_seen; ++c)
            if (j->size == sizeof(double))
                *(double *)(void *)place(j, scores, r, c) = -(double)INFINITY;
            else
                *(float *)(void *)place(j, scores, r, c) = -INFINITY;
}

static matrix
from_row(const job *j, matrix m, int64_t row)
{
    return (matrix){ place(j, m, row, 0), m.row };
}

/* Where the probabilities of query i are, in a block that begins at i0. */
static matrix
weights_of(const job *j, const head *h, int64_t i0, int64_t i)
{
    return j->kept != NULL ? from_row(j, h->kept, i) : from_row(j, h->p, i - i0);
}

/* The probabilities of queries [i, i + rows) in p, by way of scores. Returns how many keys they
 * see. */
static int64_t
weigh(const job *j, const head *h, int64_t i, int64_t rows, matrix scores, matrix p)
{
    int64_t num_seen = coi_attention_seen(&j->view, i + rows);

    if (num_seen == 0 || (j->kept != NULL && j->g.at != NULL)) /* nothing, or there already */
        return num_seen;
    multiply_packed(j, from_row(j, h->q, i), rows, j->view.depth, h->key_panels, scores, num_seen);
    if (j->view.causal)
        hide(j, scores, i, rows, num_seen);
    coi_softmax_rows(j->softmax, j->size, scores.at, NULL, p.at, rows, num_seen, p.row);
    return num_seen;
}

/* out = weights b: for each of the rows, the sum of the first num_seen rows of b, of n channels, by
 * its weights. */
static void
weighted_sums(const job *j, matrix weights, int64_t rows, int64_t num_seen, matrix b, int64_t n,
              matrix out)
{
    multiply(j, &(coi_gemm){ .m = rows,
                             .n = n,
                             .k = num_seen,
                             .a = weights.at,
                             .a_row = weights.row,
                             .a_col = 1,
                             .b = b.at,
                             .b_row = b.row,
                             .b_col = 1,
                             .c = out.at,
                             .c_row = out.row });
}

static void
forward(const job *j, const head *h)
{
    const coi_attention_view *v = &j->view;

    for (int64_t i = 0; i < v->num_queries; i += j->group) {
        int64_t rows = smaller(j->group, v->num_queries - i);
        matrix  p = weights_of(j, h, i, i);
        int64_t num_seen = weigh(j, h, i, rows, h->scores, p);

        weighted_sums(j, p, rows, num_seen, h->v, v->width, from_row(j, h->out, i));
    }
}

/* A block of queries, [i0, i1): their probabilities, the gradients of their scores, and those of
 * the queries. */
static void
back_to_queries(const job *j, const head *h, int64_t i0, int64_t i1)
{
    const coi_attention_view *v = &j->view;

    for (int64_t i = i0; i < i1; i += j->group) {
        int64_t rows = smaller(j->group, i1 - i);
        matrix  scores = from_row(j, h->scores, i - i0), p = weights_of(j, h, i0, i);
        int64_t num_seen = weigh(j, h, i, rows, scores, p);

        if (num_seen > 0) {
            multiply_packed(j, from_row(j, h->g, i), rows, v->width, h->value_panels, h->dp,
                            num_seen);
            j->softmax->grad_rows(p.at, h->dp.at, scores.at, rows, num_seen, p.row);
        }
        weighted_sums(j, scores, rows, num_seen, h->k, v->depth, from_row(j, h->out, i));
    }
}

/* What queries [i0, i1) give to the keys or values: c += weights' b, where the first query that
 * sees a key is known. */
static void
back_to_keys(const job *j, int64_t i0, int64_t i1, matrix weights, matrix b, int64_t n, matrix c)
{
    const coi_attention_view *v = &j->view;
    int64_t                   end = v->causal ? smaller(v->num_queries, v->num_keys) : v->num_keys;

    for (int64_t key = 0; key < end; key += j->group) {
        int64_t first = v->causal && key > i0 ? smaller(key, i1) : i0;

        multiply(j, &(coi_gemm){ .m = smaller(j->group, end - key),
                                 .n = n,
                                 .k = i1 - first,
                                 .a = place(j, weights, first - i0, key),
                                 .a_row = 1,
                                 .a_col = weights.row,
                                 .b = place(j, b, first, 0),
                                 .b_row = b.row,
                                 .b_col = 1,
                                 .c = place(j, c, key, 0),
                                 .c_row = c.row,
                                 .accumulate = i0 > 0 });
    }
    for (int64_t key = end; i0 == 0 && key < v->num_keys; ++key) /* seen by nobody */
        memset(place(j, c, key, 0), 0, (size_t)n * j->size);
}

static void
backward(const job *j, const head *h)
{
    const coi_attention_view *v = &j->view;

    for (int64_t i0 = 0; i0 == 0 || i0 < v->num_queries; i0 += j->block) {
        int64_t i1 = smaller(i0 + j->block, v->num_queries);

        back_to_queries(j, h, i0, i1);
        back_to_keys(j, i0, i1, h->scores, h->q, v->depth, h->dk);
        back_to_keys(j, i0, i1, weights_of(j, h, i0, i0), h->g, v->width, h->dv);
    }
}

/* Where everything of a head is in `room`; returns how many bytes that takes. */
static size_t
lay_out(const job *j, char *room, head *h)
{
    const coi_attention_view *v = &j->view;
    size_t                    used = 0;
    int64_t                   panels = round_up(v->num_keys, j->gemm->nr);
    int64_t                   row = coi_attention_row(v);

    *h = (head){ .q = take(j, room, &used, v->num_queries, v->depth),
                 .scores = take(j, room, &used, j->block, row) };
    if (j->kept == NULL)
        h->p = take(j, room, &used, j->block, row);
    if (j->kept == NULL || j->g.at == NULL)
        h->key_panels = take(j, room, &used, panels, v->depth).at;
    if (j->g.at == NULL) {
        h->v = take(j, room, &used, v->num_keys, v->width);
    } else {
        h->k = take(j, room, &used, v->num_keys, v->depth);
        h->g = take(j, room, &used, v->num_queries, v->width);
        h->value_panels = take(j, room, &used, panels, v->width).at;
        h->dp = take(j, room, &used, j->group, row);
    }
    return used;
}

static void
run_head(const job *j, head *h, int64_t at)
{
    const coi_attention_view *v = &j->view;
    matrix                    k = part_of(j, j->k, v->num_keys, v->depth, at);
    matrix                    values = part_of(j, j->v, v->num_keys, v->width, at);

    copy_scaled(j, part_of(j, j->q, v->num_queries, v->depth, at), h->q, v->num_queries, v->scale);
    if (h->key_panels != NULL)
        pack(j, k, v->depth, h->key_panels);
    if (j->kept != NULL) {
        h->kept = (matrix){ j->kept, coi_attention_row(v) };
        h->kept.at = place(j, h->kept, at * v->num_queries, 0);
    }
    if (j->g.at == NULL) {
        copy_scaled(j, values, h->v, v->num_keys, 1);
        h->out = part_of(j, j->out, v->num_queries, v->width, at);
        forward(j, h);
        return;
    }
    copy_scaled(j, k, h->k, v->num_keys, v->scale);
    copy_scaled(j, part_of(j, j->g, v->num_queries, v->width, at), h->g, v->num_queries, 1);
    pack(j, values, v->width, h->value_panels);
    h->out = part_of(j, j->out, v->num_queries, v->depth, at);
    h->dk = part_of(j, j->dk, v->num_keys, v->depth, at);
    h->dv = part_of(j, j->dv, v->num_keys, v->width, at);
    backward(j, h);
}

static void
run_chunk(void *arg, int64_t chunk)
{
    job        *j = arg;
    int64_t     first = chunk * j->items_per_chunk;
    int64_t     last = smaller(first + j->items_per_chunk, j->view.items * j->view.heads);
    coi_buffer *buffer = coi_buffer_alloc(j->device, j->room, NULL);
    head        h;

    if (buffer == NULL) {
        atomic_store(&j->no_memory, true);
        return;
    }
    lay_out(j, buffer->data, &h);
    for (int64_t at = first; at < last; ++at)
        run_head(j, &h, at);
    coi_buffer_unref(buffer);
}

/* Few queries see nearly the same keys, which leaves little to compute in vain where attention is
 * causal; many queries use what is read of the keys more often. */
static int64_t
group_of(const coi_attention_view *v)
{
    return !v->causal || v->num_queries > 512 ? 48 : v->num_queries > 192 ? 24 : 12;
}

co_code
coi_attention_run(coi_call *call)
{
    co_dtype  dtype = (co_dtype)call->out[0]->dtype;
    bool      is_grad = call->num_in > 3;
    matrix    nothing = { NULL, 0 };
    job       j = { .gemm = coi_gemm_kernels_of(call->ctx->runtime->isa, dtype),
                    .softmax = coi_softmax_kernels_of(call->ctx->runtime->isa, dtype),
                    .times = loops[call->ctx->runtime->isa]->at[COI_MUL][dtype == CO_FLOAT64],
                    .size = coi_dtypes[dtype].size,
                    .device = call->device,
                    .q = rows_of(call, 0),
                    .k = rows_of(call, 1),
                    .v = rows_of(call, 2),
                    .g = is_grad ? rows_of(call, 3) : nothing,
                    .out = rows_of(call, call->num_in),
                    .dk = is_grad ? rows_of(call, call->num_in + 1) : nothing,
                    .dv = is_grad ? rows_of(call, call->num_in + 2) : nothing };
    co_value *p = is_grad ? call->in[4] : call->num_out > 1 ? call->out[1] : NULL;
    head      nowhere;
    int64_t   num_heads;
    double    work; /* which may be more than a whole number holds */

    coi_attention_view_of(call->in, call->attrs, &j.view);
    num_heads = j.view.items * j.view.heads;
    if (num_heads == 0 || coi_attention_is_empty(call))
        return CO_OK;
    if (p != NULL && p->u.tensor.num_elements > 0)
        j.kept = p->u.tensor.data;
    j.group = j.block = group_of(&j.view);
    if (is_grad)
        j.block = round_up(smaller(smaller(BLOCK_ROWS, j.view.num_queries + 1),
                                   BLOCK_SCORES / (j.view.num_keys + 1) + 1),
                           j.group);
    j.room = lay_out(&j, NULL, &nowhere);
    work = (double)j.view.num_queries * (double)j.view.num_keys *
               (double)(j.view.depth + j.view.width) +
           1;
    j.items_per_chunk = work >= COI_PARALLEL_GEMM ? 1 : (int64_t)(COI_PARALLEL_GEMM / work);
    coi_parallel(call, (num_heads + j.items_per_chunk - 1) / j.items_per_chunk, run_chunk, &j);
    if (atomic_load(&j.no_memory))
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "attention: no memory for the %zu bytes that a worker needs", j.room);
    return CO_OK;
}

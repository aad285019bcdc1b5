/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements along the last axis, and sorting, which is top_k of all of them. Elements
 * become keys of 64 bits that are compared as unsigned numbers, so one loop serves every dtype. A
 * heap of k entries is kept while a row is read, with the worst of them on top; its order is total
 * (of equal keys the lower index is better).
 */
#include "ops/kernels/top_k.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/gather.h"
#include "ops/kernels/compute_type.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"
#include "ops/kernels/strided_iterator.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(scatter_add)
COI_USES_OP(argsort)

#define TOP_K_ATTRS(X)                                                                             \
    X(coi_top_k_attrs, k, INT, "=1", NULL)                                                         \
    X(coi_top_k_attrs, sorted, BOOL, "=true", NULL)
COI_ATTR_TABLE(coi_top_k_attrs, TOP_K_ATTRS)

static co_code
top_k_rule(coi_call *call, coi_out *outs)
{
    int64_t         k = ((const coi_top_k_attrs *)call->attrs)->k, last;
    const co_value *x = call->in[0];
    co_code         code;

    if (x->ndim == 0)
        return coi_invalid(call, "x is a scalar; it must have an axis");
    last = coi_is_unknown_rank(x) ? COI_UNKNOWN : x->u.tensor.dims[x->ndim - 1];
    if (k < 0 || (last >= 0 && k > last) || k > INT32_MAX)
        return coi_invalid(call, "k is %lld; it must be in [0, %lld], the last dimension of x",
                           (long long)k, (long long)(last < 0 ? INT32_MAX : last));
    code = coi_rule_same(call, outs);
    if (x->ndim > 0)
        outs[0].dims[x->ndim - 1] = k;
    outs[1] = outs[0];
    outs[1].dtype = CO_INT32;
    return code;
}

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

static co_code
top_k_run(coi_call *call)
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
    buffer = coi_buffer_alloc(call->device, (size_t)(chunks * (job.k + 1)) * sizeof(entry));
    if (buffer == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "%s: no memory for %lld times %lld candidates", call->op->name,
                        (long long)chunks, (long long)job.k);
    job.heaps = buffer->data;
    coi_parallel(call, chunks, top_k_chunk, &job);
    coi_buffer_unref(buffer);
    return CO_OK;
}

/* Back to where the values came from. */
static co_code
top_k_grad(coi_grad *g)
{
    int               last = g->in[0]->ndim - 1;
    coi_scatter_attrs back = { { 0, { 0 } }, last, last };
    coi_sized_op      add = { &coi_op_scatter_add, &back, offsetof(coi_scatter_attrs, shape), 0 };
    co_value *const   given[2] = { g->upstream[0], g->out[1] };

    if (g->upstream[0] == NULL)
        return CO_OK;
    g->grads[0] = coi_apply_like(g->ctx, &add, given, 2, g->in[0]);
    return g->ctx->error.code;
}

const coi_op coi_op_top_k = {
    .name = "top_k",
    .doc =
        "The k largest elements along the last axis, in order, and their indices; of equals the first.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 2,
    .dtypes = COI_NUMBERS,
    COI_ATTRS(coi_top_k_attrs),
    .infer = top_k_rule,
    .ref = coi_ref_top_k,
    .run = top_k_run,
    .grad = top_k_grad,
    .grad_is_known = coi_grad_with_ranks,
};

co_value *
co_top_k(co_context *ctx, co_value *x, int64_t k)
{
    coi_top_k_attrs attrs = { k, true };
    co_value       *outs[2];

    COI_ENTER(ctx, "top_k", NULL);
    if (coi_apply_many(ctx, &coi_op_top_k, &x, 1, &attrs, outs) != CO_OK)
        return NULL;
    return co_tuple(ctx, outs, 2);
}

static const char *const directions[] = { "ASCENDING", "DESCENDING", NULL };

typedef struct sort_attrs {
    int64_t axis;
    int32_t direction; /* 1: descending */
    bool    stable;    /* the result always is */
} sort_attrs;
#define SORT_ATTRS(X)                                                                              \
    X(sort_attrs, axis, INT, "=-1", NULL)                                                          \
    X(sort_attrs, direction, CHOICE, "=ASCENDING", directions)
COI_ATTR_TABLE(sort_attrs, SORT_ATTRS)
typedef sort_attrs argsort_attrs;
#define ARGSORT_ATTRS(X) SORT_ATTRS(X) X(sort_attrs, stable, BOOL, "=false", NULL)
COI_ATTR_TABLE(argsort_attrs, ARGSORT_ATTRS)

static co_code
sort_rule(coi_call *call, coi_out *outs)
{
    int axis;

    coi_out_like(outs, call->in[0]);
    if (call->op == &coi_op_argsort)
        outs[0].dtype = CO_INT32;
    return coi_rule_axis(call, ((const sort_attrs *)call->attrs)->axis, call->in[0]->ndim, &axis);
}

/* The axis is exchanged with the last one before and after. */
static co_value *
swap_with_last(co_context *ctx, co_value *x, int axis)
{
    int perm[CO_MAX_DIMS];

    if (x == NULL || axis == x->ndim - 1)
        return x;
    for (int d = 0; d < x->ndim; ++d)
        perm[d] = d;
    perm[axis] = x->ndim - 1;
    perm[x->ndim - 1] = axis;
    return co_transpose(ctx, x, perm, (size_t)x->ndim);
}

/* Output `which` of top_k of everything along the axis, in the direction that is asked for. */
static co_value *
sorted(coi_call *call, int which)
{
    const sort_attrs *attrs = call->attrs;
    co_context       *ctx = call->ctx;
    co_value         *x = call->in[0], *outs[2];
    int               axis = coi_axis_of(attrs->axis, x->ndim);
    coi_top_k_attrs   all = { x->u.tensor.dims[axis], true };

    x = swap_with_last(ctx, x, axis);
    if (attrs->direction == 0 && x != NULL)
        x = coi_reversed_order(ctx, x);
    if (x == NULL || coi_apply_many(ctx, &coi_op_top_k, &x, 1, &all, outs) != CO_OK)
        return NULL;
    if (attrs->direction == 0 && which == 0)
        outs[0] = coi_reversed_order(ctx, outs[0]);
    return swap_with_last(ctx, outs[which], axis);
}

static co_value *
sort_composite(coi_call *call)
{
    return sorted(call, 0);
}

static co_value *
argsort_composite(coi_call *call)
{
    return sorted(call, 1);
}

static bool
sort_is_known(const coi_call *call)
{
    return coi_knows_axis(call->in[0], ((const sort_attrs *)call->attrs)->axis);
}

const coi_op coi_op_sort = {
    COI_COMPOSITE("sort", "The elements along an axis in order.", "x"),
    .dtypes = COI_NUMBERS,
    COI_ATTRS(sort_attrs),
    .infer = sort_rule,
    .composite = sort_composite,
    .parts_are_known = sort_is_known,
};

const coi_op coi_op_argsort = {
    COI_COMPOSITE("argsort",
                  "The indices that sort x along an axis; equal elements keep their order.", "x"),
    .dtypes = COI_NUMBERS,
    .not_differentiable = true,
    COI_ATTRS(argsort_attrs),
    .infer = sort_rule,
    .composite = argsort_composite,
};

co_value *
co_sort(co_context *ctx, co_value *x, int axis, bool descending)
{
    sort_attrs attrs = { axis, descending, true };

    return coi_apply_composite(ctx, &coi_op_sort, &x, 1, &attrs);
}

co_value *
co_argsort(co_context *ctx, co_value *x, int axis, bool descending)
{
    sort_attrs attrs = { axis, descending, true };

    return coi_apply_composite(ctx, &coi_op_argsort, &x, 1, &attrs);
}

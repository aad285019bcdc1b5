/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running sums and products along an axis. x is [outer, n, inner]; one chain runs along n for each
 * of outer * inner. Chains are independent, so cutting them over workers changes nothing. The plain
 * kernel is in ops/kernels/ref/ref_cumulative.c.
 */
#include "ops/kernels/cumulative.h"

#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/compute_type.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/strided_iterator.h"

/* Entries of other files. */
COI_USES_OP(cumprod)

#define SCAN_ATTRS(X)                                                                              \
    X(coi_scan_attrs, axis, INT, "=0", NULL)                                                       \
    X(coi_scan_attrs, exclusive, BOOL, "=false", NULL)                                             \
    X(coi_scan_attrs, reverse, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_scan_attrs, SCAN_ATTRS)

static co_code
scan_rule(coi_call *call, coi_out *outs)
{
    int     axis;
    co_code code = coi_rule_axis(call, ((const coi_scan_attrs *)call->attrs)->axis,
                                 call->in[0]->ndim, &axis);

    return code == CO_OK ? coi_rule_same(call, outs) : code;
}

/* w chains side by side, one step: z is what they come to with x, or what they were before it if
 * exclusive. */
typedef void (*step_fn)(void *acc, const void *x, void *z, int64_t w, bool exclusive);
#define STEP(name, type, op)                                                                       \
    static void name(void *acc, const void *x, void *z, int64_t w, bool exclusive)                 \
    {                                                                                              \
        type       *a = acc, *out = z;                                                             \
        const type *in = x;                                                                        \
                                                                                                   \
        for (int64_t i = 0; i < w; ++i) {                                                          \
            type before = a[i], after = (type)(before op in[i]);                                   \
                                                                                                   \
            a[i] = after;                                                                          \
            out[i] = exclusive ? before : after;                                                   \
        }                                                                                          \
    }
/* Integers as unsigned: they wrap, and the bits are those of the signed ones. */
STEP(sum_f32, float, +)
STEP(sum_f64, double, +)
STEP(sum_32, uint32_t, +)
STEP(sum_64, uint64_t, +)
STEP(prod_f32, float, *)
STEP(prod_f64, double, *)
STEP(prod_32, uint32_t, *)
STEP(prod_64, uint64_t, *)
static const step_fn steps[2][COI_NUM_COMPUTE_TYPES] = {
    { [COI_F32] = sum_f32, [COI_F64] = sum_f64, [COI_I32] = sum_32, sum_64, sum_64 },
    { [COI_F32] = prod_f32, [COI_F64] = prod_f64, [COI_I32] = prod_32, prod_64, prod_64 },
};

/* One chain whose elements lie side by side, n steps at a time, forwards or backwards. */
static void
run_chain(step_fn step, void *acc, const char *x, char *z, size_t size, int64_t n, bool exclusive,
          bool reverse)
{
    for (int64_t i = 0; i < n; ++i) {
        int64_t at = reverse ? n - 1 - i : i;

        step(acc, x + (size_t)at * size, z + (size_t)at * size, 1, exclusive);
    }
}

typedef struct scan_job {
    const coi_scan_attrs *attrs;
    coi_split_shape       shape;
    coi_isa               isa;
    co_dtype              own, lane;
    step_fn               step;
    bool                  is_prod;
    const char           *x;
    char                 *out;
    int64_t               num_blocks, num_units, per_chunk; /* blocks of chains in inner */
} scan_job;

static void
begin_chains(const scan_job *job, coi_compute_block *acc)
{
    static const double one = 1;
    char                first[8] = { 0 };

    if (job->is_prod)
        coi_convert(CO_FLOAT64, &one, job->lane, first, 1);
    for (int64_t i = 0; i < COI_COMPUTE_BLOCK; ++i)
        for (size_t b = 0; b < coi_dtypes[job->lane].size; ++b)
            acc->bytes[(size_t)i * coi_dtypes[job->lane].size + b] = first[b];
}

/* Elements [at, at + w) in their compute type. `along`: one chain runs through them, else w chains
 * take a step each. */
static void
scan_block(const scan_job *job, coi_compute_block *acc, int64_t at, int64_t w, bool along)
{
    size_t            own = coi_dtypes[job->own].size;
    char             *to = job->out + (size_t)at * own;
    coi_compute_block in, out;
    const char *x = coi_to_compute_type(job->isa, job->own, job->x + (size_t)at * own, job->lane,
                                        &in, w);
    char       *z = job->own == job->lane ? to : out.bytes;

    if (along)
        run_chain(job->step, acc->bytes, x, z, coi_dtypes[job->lane].size, w, job->attrs->exclusive,
                  job->attrs->reverse);
    else
        job->step(acc->bytes, x, z, w, job->attrs->exclusive);
    if (z != to)
        coi_cast_elements(job->isa, job->lane, z, job->own, to, w);
}

/* A unit is a block of neighbouring chains: all steps of it. */
static void
scan_unit(const scan_job *job, int64_t unit)
{
    int64_t           outer = unit / job->num_blocks, n = job->shape.n, inner = job->shape.inner;
    int64_t           first = unit % job->num_blocks * COI_COMPUTE_BLOCK;
    int64_t           w = inner - first < COI_COMPUTE_BLOCK ? inner - first : COI_COMPUTE_BLOCK;
    coi_compute_block acc;

    begin_chains(job, &acc);
    if (inner > 1) {
        for (int64_t i = 0; i < n; ++i) {
            int64_t row = job->attrs->reverse ? n - 1 - i : i;

            scan_block(job, &acc, (outer * n + row) * inner + first, w, false);
        }
        return;
    }
    for (int64_t done = 0; done < n; done += COI_COMPUTE_BLOCK) {
        int64_t m = n - done < COI_COMPUTE_BLOCK ? n - done : COI_COMPUTE_BLOCK;

        scan_block(job, &acc, outer * n + (job->attrs->reverse ? n - done - m : done), m, true);
    }
}

static void
scan_chunk(void *arg, int64_t chunk)
{
    const scan_job *job = arg;
    int64_t         u = chunk * job->per_chunk, end = u + job->per_chunk;

    for (end = end < job->num_units ? end : job->num_units; u < end; ++u)
        scan_unit(job, u);
}

static co_code
scan_run(coi_call *call)
{
    const co_value *x = call->in[0];
    scan_job        job = { .attrs = call->attrs };

    if (x->u.tensor.num_elements == 0)
        return CO_OK;
    job.shape = coi_split_at(x, coi_axis_of(job.attrs->axis, x->ndim));
    job.isa = call->ctx->runtime->isa;
    job.own = (co_dtype)x->dtype;
    job.lane = (co_dtype)coi_compute_types[job.own].dtype;
    job.is_prod = call->op == &coi_op_cumprod;
    job.step = steps[job.is_prod][coi_compute_types[job.own].lane];
    job.x = COI_IN(call, 0, char);
    job.out = COI_OUT(call, 0, char);
    job.num_blocks = (job.shape.inner + COI_COMPUTE_BLOCK - 1) / COI_COMPUTE_BLOCK;
    job.num_units = job.shape.outer * job.num_blocks;
    coi_parallel(call,
                 coi_num_chunks(job.num_units, x->u.tensor.num_elements / job.num_units,
                                &job.per_chunk),
                 scan_chunk, &job);
    return CO_OK;
}

/* Every element went into the sums from its own on: the sums of their gradients, from the other
 * end. */
static co_code
cumsum_grad(coi_grad *g)
{
    const coi_scan_attrs *attrs = g->attrs;

    g->grads[0] = co_cumsum(g->ctx, g->upstream[0], (int)attrs->axis, attrs->exclusive,
                            !attrs->reverse);
    return g->ctx->error.code;
}

/* The sum of y dy from the other end, over x; 0 where x is 0, as TensorFlow has it. */
static co_code
cumprod_grad(coi_grad *g)
{
    co_context           *ctx = g->ctx;
    const coi_scan_attrs *attrs = g->attrs;
    co_value             *x = g->in[0];
    co_value *y = co_cumprod(ctx, x, (int)attrs->axis, attrs->exclusive, attrs->reverse);
    co_value *sums = co_cumsum(ctx, co_mul(ctx, y, g->upstream[0]), (int)attrs->axis,
                               attrs->exclusive, !attrs->reverse);

    g->grads[0] = coi_div_no_nan(ctx, sums, x);
    return ctx->error.code;
}

#define SCAN(name_, doc_)                                                                          \
    const coi_op coi_op_##name_ = {                                                                \
        .name = #name_,                                                                            \
        .doc = doc_,                                                                               \
        .inputs = { "x" },                                                                         \
        .num_inputs = 1,                                                                           \
        .num_outputs = 1,                                                                          \
        .dtypes = COI_NUMBERS,                                                                     \
        COI_ATTRS(coi_scan_attrs),                                                                 \
        .infer = scan_rule,                                                                        \
        .ref = coi_ref_scan,                                                                       \
        .run = scan_run,                                                                           \
        .grad = name_##_grad,                                                                      \
    };                                                                                             \
    co_value *co_##name_(co_context *ctx, co_value *x, int axis, bool exclusive, bool reverse)     \
    {                                                                                              \
        coi_scan_attrs attrs = { axis, exclusive, reverse };                                       \
                                                                                                   \
        return coi_apply1(ctx, &coi_op_##name_, x, &attrs);                                        \
    }

SCAN(
    cumsum,
    "Cumulative sums along an axis, each with its own element or, if `exclusive`, without; integers wrap.")
SCAN(cumprod, "Cumulative products along an axis, like cumsum.")

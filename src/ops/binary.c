/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators of two operands, with broadcasting. Equal shapes and single elements, by far the most common,
 * are one call of an inner loop; other shapes are walked row by row.
 */
#include "ops/binary.h"

#include "ops/dtypes.h"
#include "ops/list.h"
#include "ops/ref/ref.h"
#include "ops/simd/loops.h"
#include "ops/walk.h"

#include <string.h>

static const coi_binary_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_binary_loops);

typedef struct binary_job {
    coi_binary_fn loop;
    char         *out;
    const char   *x, *y;
    size_t        size, out_size; /* of elements */
    coi_pairing   pairing;
    int64_t       n, per_chunk; /* elements, or rows */
    coi_walk      walk;
} binary_job;

static coi_binary_fn
loop_for(const coi_call *call, coi_binary_kind kind, co_dtype dtype)
{
    coi_binary_fn loop = tables[call->ctx->runtime->isa]->at[kind][dtype];

    return loop != NULL ? loop : coi_binary_loops_rare.at[kind][dtype];
}

static void
flat_chunk(void *arg, int64_t chunk)
{
    const binary_job *job = arg;
    int64_t           begin = chunk * job->per_chunk;
    int64_t           n = job->n - begin < job->per_chunk ? job->n - begin : job->per_chunk;
    const char       *x = job->x + (job->pairing == COI_PAIR_ONE_X ? 0 : (size_t)begin * job->size);
    const char       *y = job->y + (job->pairing == COI_PAIR_ONE_Y ? 0 : (size_t)begin * job->size);

    job->loop(job->out + (size_t)begin * job->out_size, x, y, n, job->pairing);
}

static void
fill_job(coi_call *call, binary_job *job, coi_binary_fn loop)
{
    job->loop = loop;
    job->out = COI_OUT(call, 0, char);
    job->x = COI_IN(call, 0, char);
    job->y = COI_IN(call, 1, char);
    job->size = coi_dtypes[call->in[0]->dtype].size;
    job->out_size = coi_dtypes[call->out[0]->dtype].size;
}

static co_code
flat(coi_call *call, coi_binary_fn loop, coi_pairing pairing)
{
    int64_t    n = call->out[0]->u.tensor.num_elements;
    binary_job job;

    if (n <= COI_PARALLEL_ELEMENTS) {
        loop(call->out[0]->u.tensor.data, call->in[0]->u.tensor.data, call->in[1]->u.tensor.data, n,
             pairing);
        return CO_OK;
    }
    fill_job(call, &job, loop);
    job.pairing = pairing;
    job.n = n;
    coi_parallel(call, coi_num_chunks(n, 1, &job.per_chunk), flat_chunk, &job);
    return CO_OK;
}

static void
row_chunk(void *arg, int64_t chunk)
{
    const binary_job *job = arg;
    const coi_walk   *walk = &job->walk;
    int64_t           width = walk->dims[walk->ndim - 1], row = chunk * job->per_chunk;
    int64_t           end = row + job->per_chunk < job->n ? row + job->per_chunk : job->n;
    coi_cursor        cursor;

    coi_cursor_seek(walk, row, &cursor);
    for (; row < end; ++row) {
        job->loop(job->out + (size_t)(row * width) * job->out_size,
                  job->x + (size_t)cursor.at[0] * job->size,
                  job->y + (size_t)cursor.at[1] * job->size, width, job->pairing);
        coi_cursor_next(walk, &cursor);
    }
}

/*
 * Short rows against one row, as adding ten biases to every example: the row is written out several times, so that the
 * loop sees long stretches.
 */
#define TILE_BYTES 2048
#define TILE_WIDTH 64

static bool
can_tile(const binary_job *job)
{
    const coi_walk *walk = &job->walk;

    return walk->ndim == 2 && job->pairing == COI_PAIR_BOTH && walk->dims[1] <= TILE_WIDTH &&
           walk->dims[0] >= 4 && (walk->strides[0][0] == 0 || walk->strides[1][0] == 0);
}

static void
tile_chunk(void *arg, int64_t chunk)
{
    const binary_job *job = arg;
    bool              repeats_x = job->walk.strides[0][0] == 0;
    int64_t           width = job->walk.dims[1], row = chunk * job->per_chunk, step;
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

        job->loop(job->out + (size_t)(row * width) * job->out_size, x, y, n * width, COI_PAIR_BOTH);
    }
}

static co_code
broadcast(coi_call *call, coi_binary_fn loop)
{
    binary_job job;
    coi_walk  *walk = &job.walk;
    int        last;

    if (call->out[0]->u.tensor.num_elements == 0)
        return CO_OK;
    fill_job(call, &job, loop);
    coi_walk_broadcast(walk, call->out[0], call->in, 2);
    last = walk->ndim - 1;
    job.pairing = walk->strides[0][last] == 0   ? COI_PAIR_ONE_X
                  : walk->strides[1][last] == 0 ? COI_PAIR_ONE_Y
                                                : COI_PAIR_BOTH;
    job.n = coi_walk_rows(walk);
    coi_parallel(call, coi_num_chunks(job.n, walk->dims[last], &job.per_chunk),
                 can_tile(&job) ? tile_chunk : row_chunk, &job);
    return CO_OK;
}

/* An operand of as many elements as the result has its layout: broadcasting would have made more of them. */
static co_code
binary(coi_call *call, coi_binary_kind kind)
{
    const co_value *x = call->in[0], *y = call->in[1];
    int64_t         n = call->out[0]->u.tensor.num_elements;
    coi_binary_fn   loop = loop_for(call, kind, (co_dtype)x->dtype);

    if (x->u.tensor.num_elements == n) {
        if (y->u.tensor.num_elements == n)
            return flat(call, loop, COI_PAIR_BOTH);
        if (y->u.tensor.num_elements == 1)
            return flat(call, loop, COI_PAIR_ONE_Y);
    } else if (x->u.tensor.num_elements == 1 && y->u.tensor.num_elements == n) {
        return flat(call, loop, COI_PAIR_ONE_X);
    }
    return broadcast(call, loop);
}

static co_code
div_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_rule_broadcast(call, outs);

    if (code == CO_OK && !coi_dtypes[outs[0].dtype].floating)
        outs[0].dtype = coi_dtypes[outs[0].dtype].size <= 2 ? CO_FLOAT32 : CO_FLOAT64;
    return code;
}

static co_code
compare_rule(coi_call *call, coi_out *outs)
{
    co_code code = coi_rule_broadcast(call, outs);

    outs[0].dtype = CO_BOOL;
    return code;
}

static co_code
add_grad(coi_grad *g)
{
    for (int i = 0; i < 2; ++i)
        if (g->needed[i])
            g->grads[i] = coi_unbroadcast(g->ctx, g->upstream[0], g->in[i]);
    return g->ctx->error.code;
}

static co_code
sub_grad(coi_grad *g)
{
    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(g->ctx, g->upstream[0], g->in[0]);
    if (g->needed[1])
        g->grads[1] = co_neg(g->ctx, coi_unbroadcast(g->ctx, g->upstream[0], g->in[1]));
    return g->ctx->error.code;
}

static co_code
mul_grad(coi_grad *g)
{
    for (int i = 0; i < 2; ++i)
        if (g->needed[i])
            g->grads[i] = coi_unbroadcast(g->ctx, co_mul(g->ctx, g->upstream[0], g->in[1 - i]),
                                          g->in[i]);
    return g->ctx->error.code;
}

/* dy / y and dy (-x / y) / y */
static co_code
div_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1], *dy = g->upstream[0];

    if (!coi_dtypes[x->dtype].floating) /* integers have no gradient */
        return CO_OK;
    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(ctx, co_div(ctx, dy, y), x);
    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(
            ctx, co_mul(ctx, dy, co_div(ctx, co_div(ctx, co_neg(ctx, x), y), y)), y);
    return ctx->error.code;
}

/* The gradient goes to x where it was chosen, which includes ties, and else to y. */
static co_code
choice_grad(coi_grad *g, const coi_op *chooses_x)
{
    co_context *ctx = g->ctx;
    co_value   *x = g->in[0], *y = g->in[1], *dy = g->upstream[0];
    co_value   *zero = co_zeros(ctx, (co_dtype)dy->dtype, NULL, 0);
    co_value   *chosen = coi_apply2(ctx, chooses_x, x, y, NULL);

    if (g->needed[0])
        g->grads[0] = coi_unbroadcast(ctx, coi_where(ctx, chosen, dy, zero), x);
    if (g->needed[1])
        g->grads[1] = coi_unbroadcast(ctx, coi_where(ctx, chosen, zero, dy), y);
    return ctx->error.code;
}

static co_code
maximum_grad(coi_grad *g)
{
    return choice_grad(g, &coi_op_greater_equal);
}

static co_code
minimum_grad(coi_grad *g)
{
    return choice_grad(g, &coi_op_less_equal);
}

static co_code
relu_grad_grad(coi_grad *g)
{
    if (g->needed[1])
        g->grads[1] = coi_apply2(g->ctx, g->op, g->in[0], g->upstream[0], NULL);
    return g->ctx->error.code;
}

/* Of dy (1 - y y). */
static co_code
tanh_grad_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *y = g->in[0], *dy = g->in[1], *up = g->upstream[0];

    if (g->needed[0])
        g->grads[0] = co_mul(ctx, co_mul(ctx, up, dy), co_mul(ctx, y, co_float(ctx, -2)));
    if (g->needed[1])
        g->grads[1] = coi_apply2(ctx, g->op, y, up, NULL);
    return ctx->error.code;
}

/* Of dy y (1 - y). */
static co_code
sigmoid_grad_grad(coi_grad *g)
{
    co_context *ctx = g->ctx;
    co_value   *y = g->in[0], *dy = g->in[1], *up = g->upstream[0];

    if (g->needed[0])
        g->grads[0] = co_mul(ctx, co_mul(ctx, up, dy),
                             co_sub(ctx, co_float(ctx, 1), co_mul(ctx, y, co_float(ctx, 2))));
    if (g->needed[1])
        g->grads[1] = coi_apply2(ctx, g->op, y, up, NULL);
    return ctx->error.code;
}

/* Strings have no fast loop. */
static co_code
equal_run(coi_call *call)
{
    return call->in[0]->dtype == CO_STRING ? coi_ref_equal(call) : binary(call, COI_EQUAL);
}

#define KERNEL(name_, kind_)                                                                       \
    static co_code name_##_run(coi_call *call)                                                     \
    {                                                                                              \
        return binary(call, kind_);                                                                \
    }
KERNEL(add, COI_ADD)
KERNEL(sub, COI_SUB)
KERNEL(mul, COI_MUL)
KERNEL(div, COI_DIV)
KERNEL(maximum, COI_MAXIMUM)
KERNEL(minimum, COI_MINIMUM)
KERNEL(greater_equal, COI_GREATER_EQUAL)
KERNEL(less_equal, COI_LESS_EQUAL)
KERNEL(relu_grad, COI_RELU_GRAD)
KERNEL(tanh_grad, COI_TANH_GRAD)
KERNEL(sigmoid_grad, COI_SIGMOID_GRAD)

/* The parts that every operator of the family has; what follows the name goes into the initialiser. */
#define BINARY(name_, x_, y_, ...)                                                                 \
    const coi_op coi_op_##name_ = { .name = #name_,                                                \
                                    .inputs = { x_, y_ },                                          \
                                    .num_inputs = 2,                                               \
                                    .num_outputs = 1,                                              \
                                    .same_dtype = true,                                            \
                                    .ref = coi_ref_##name_,                                        \
                                    .run = name_##_run,                                            \
                                    __VA_ARGS__ };
#define FUNCTION(name_)                                                                            \
    co_value *co_##name_(co_context *ctx, co_value *x, co_value *y)                                \
    {                                                                                              \
        return coi_apply2(ctx, &coi_op_##name_, x, y, NULL);                                       \
    }

BINARY(add, "x", "y", .doc = "x + y; integers wrap.", .dtypes = COI_NUMBERS,
       .infer = coi_rule_broadcast, .grad = add_grad)
BINARY(sub, "x", "y", .doc = "x - y; integers wrap.", .dtypes = COI_NUMBERS,
       .infer = coi_rule_broadcast, .grad = sub_grad)
BINARY(mul, "x", "y", .doc = "x * y; integers wrap.", .dtypes = COI_NUMBERS,
       .infer = coi_rule_broadcast, .grad = mul_grad)
BINARY(div, "x", "y",
       .doc = "x / y, true division: integers up to 16 bits give float32, larger ones float64.",
       .dtypes = COI_NUMBERS, .infer = div_rule, .grad = div_grad)
BINARY(maximum, "x", "y", .doc = "The larger of x and y; NaN if either is.", .dtypes = COI_NUMBERS,
       .infer = coi_rule_broadcast, .grad = maximum_grad)
BINARY(minimum, "x", "y", .doc = "The smaller of x and y; NaN if either is.", .dtypes = COI_NUMBERS,
       .infer = coi_rule_broadcast, .grad = minimum_grad)
BINARY(equal, "x", "y", .doc = "Whether x == y, as bool; any dtype.", .not_differentiable = true,
       .infer = compare_rule)
BINARY(greater_equal, "x", "y", .doc = "Whether x >= y, as bool.", .dtypes = COI_NUMBERS,
       .internal = true, .not_differentiable = true, .infer = compare_rule)
BINARY(less_equal, "x", "y", .doc = "Whether x <= y, as bool.", .dtypes = COI_NUMBERS,
       .internal = true, .not_differentiable = true, .infer = compare_rule)
BINARY(relu_grad, "y", "dy",
       .doc = "The gradient of relu from its result: dy where y > 0, else dy * 0.",
       .dtypes = COI_FLOATS, .internal = true, .infer = coi_rule_broadcast, .grad = relu_grad_grad)
BINARY(tanh_grad, "y", "dy", .doc = "The gradient of tanh from its result: dy * (1 - y * y).",
       .dtypes = COI_FLOATS, .internal = true, .infer = coi_rule_broadcast, .grad = tanh_grad_grad)
BINARY(sigmoid_grad, "y", "dy", .doc = "The gradient of sigmoid from its result: dy * y * (1 - y).",
       .dtypes = COI_FLOATS, .internal = true, .infer = coi_rule_broadcast,
       .grad = sigmoid_grad_grad)

FUNCTION(add)
FUNCTION(sub)
FUNCTION(mul)
FUNCTION(div)
FUNCTION(maximum)
FUNCTION(minimum)
FUNCTION(equal)

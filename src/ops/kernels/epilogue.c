/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue, bias and activation: the table of activations, the pass over rows, the gradient.
 */
#include "ops/kernels/epilogue.h"

#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(elu)
COI_USES_OP(gelu)
COI_USES_OP(relu)
COI_USES_OP(relu6)
COI_USES_OP(selu)
COI_USES_OP(sigmoid)
COI_USES_OP(silu)
COI_USES_OP(softplus)
COI_USES_OP(softsign)
COI_USES_OP(tanh)

static const coi_unary_loops *const  unary_tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_unary_loops);
static const coi_binary_loops *const binary_tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_binary_loops);

typedef void      epilogue_function(void *c, int64_t stride, int64_t rows, const void *bias,
                                    int64_t columns);
epilogue_function coi_epilogue_bias_base, coi_epilogue_bias_v3, coi_epilogue_bias_v4;
epilogue_function coi_epilogue_relu_base, coi_epilogue_relu_v3, coi_epilogue_relu_v4;

/* Of float, in one pass. */
static const coi_epilogue_fn whole_epilogues[][COI_NUM_ISAS] = {
    [CO_ACTIVATION_NONE] = COI_LOOP_ISAS(coi_epilogue_bias),
    [CO_ACTIVATION_RELU] = COI_LOOP_ISAS(coi_epilogue_relu),
};

const char *const coi_activation_names[] = { "none", "relu",      "relu6",    "elu",      "selu",
                                             "tanh", "sigmoid",   "softplus", "softsign", "silu",
                                             "gelu", "gelu_tanh", NULL };

/* gelu has an attribute of one bool. */
static const bool exactly = false, by_tanh = true;

/* The operator that an activation is when it stands alone, and whether its gradient does without
 * its operand. */
typedef struct activation {
    const coi_op *op;
    const void   *attrs;
    uint8_t       kind; /* of its loop */
    bool          from_result;
} activation;

static const activation activations[] = {
    [CO_ACTIVATION_NONE] = { NULL, NULL, 0, true },
    [CO_ACTIVATION_RELU] = { &coi_op_relu, NULL, COI_RELU, true },
    [CO_ACTIVATION_RELU6] = { &coi_op_relu6, NULL, COI_RELU6, true },
    [CO_ACTIVATION_ELU] = { &coi_op_elu, NULL, COI_ELU, true },
    [CO_ACTIVATION_SELU] = { &coi_op_selu, NULL, COI_SELU, true },
    [CO_ACTIVATION_TANH] = { &coi_op_tanh, NULL, COI_TANH, true },
    [CO_ACTIVATION_SIGMOID] = { &coi_op_sigmoid, NULL, COI_SIGMOID, true },
    [CO_ACTIVATION_SOFTPLUS] = { &coi_op_softplus, NULL, COI_SOFTPLUS, false },
    [CO_ACTIVATION_SOFTSIGN] = { &coi_op_softsign, NULL, COI_SOFTSIGN, false },
    [CO_ACTIVATION_SILU] = { &coi_op_silu, NULL, COI_SILU, false },
    [CO_ACTIVATION_GELU] = { &coi_op_gelu, &exactly, COI_GELU, false },
    [CO_ACTIVATION_GELU_TANH] = { &coi_op_gelu, &by_tanh, COI_GELU_TANH, false },
};
enum { NUM_ACTIVATIONS = sizeof(activations) / sizeof(*activations) };

static bool
is_activation(int32_t which)
{
    return which >= 0 && which < NUM_ACTIVATIONS;
}

co_code
coi_epilogue_rule(coi_call *call, int32_t which, int64_t *columns)
{
    const co_value *bias = call->in[COI_BIAS];
    int64_t         room[CO_MAX_DIMS];
    const int64_t  *dims = coi_dims_of_rank(bias, 1, room);
    char            text[COI_SHAPE_TEXT];

    if (dims == NULL || !coi_merge_dim(columns, dims[0]))
        return coi_invalid(call,
                           "b has shape %s; it must have one element for each of %lld column%s",
                           coi_shape_text(bias->u.tensor.dims, bias->ndim, text),
                           (long long)*columns, COI_S(*columns));
    if (!is_activation(which))
        return coi_invalid(call, "activation is %d; give a CO_ACTIVATION_... (0 to %d)", (int)which,
                           NUM_ACTIVATIONS - 1);
    return CO_OK;
}

void
coi_epilogue_of(const coi_call *call, int32_t which, coi_epilogue *epilogue)
{
    coi_isa            isa = call->ctx->runtime->isa;
    const co_value    *bias = call->in[COI_BIAS];
    coi_compute_type   lane = bias->dtype == CO_FLOAT64 ? COI_F64 : COI_F32;
    const activation  *a = &activations[which];
    const coi_unary_fn loop = unary_tables[isa]->at[a->kind][lane];
    const coi_unary_fn rare = coi_unary_loops_rare.at[a->kind][lane];

    epilogue->whole = lane == COI_F32 && which <= CO_ACTIVATION_RELU ? whole_epilogues[which][isa]
                                                                     : NULL;
    epilogue->bias = bias->u.tensor.data;
    epilogue->size = coi_dtypes[bias->dtype].size;
    epilogue->add = binary_tables[isa]->at[COI_ADD][lane];
    if (epilogue->add == NULL)
        epilogue->add = coi_binary_loops_rare.at[COI_ADD][lane];
    epilogue->activation = a->op == NULL ? NULL : loop != NULL ? loop : rare;
}

/* Elements at a time: the data between the two loops stays in the L1 cache. */
enum { BLOCK = 512 };
typedef struct block {
    _Alignas(64) char bytes[BLOCK * sizeof(double)];
} block;

/* n elements, at most a block, from c over the sums with the bias back to c. */
static void
epilogue_span(const coi_epilogue *f, char *c, const char *bias, int64_t n)
{
    block sums;

    f->add(sums.bytes, c, bias, n, COI_PAIR_BOTH);
    if (f->activation != NULL)
        f->activation(c, sums.bytes, n);
    else
        memcpy(c, sums.bytes, (size_t)n * f->size);
}

static void
epilogue_row(const coi_epilogue *f, char *c, const char *bias, int64_t columns)
{
    for (int64_t i = 0; i < columns; i += BLOCK)
        epilogue_span(f, c + (size_t)i * f->size, bias + (size_t)i * f->size,
                      columns - i < BLOCK ? columns - i : BLOCK);
}

/* Short rows that follow one another: many at a time, against a bias that is repeated. */
static void
epilogue_short_rows(const coi_epilogue *f, char *c, const char *bias, int64_t rows, int64_t columns)
{
    int64_t at_once = BLOCK / columns < rows ? BLOCK / columns : rows, total = rows * columns;
    size_t  row = (size_t)columns * f->size;
    block   repeated;

    for (int64_t i = 0; i < at_once; ++i)
        memcpy(repeated.bytes + (size_t)i * row, bias, row);
    for (int64_t i = 0, n = at_once * columns; i < total; i += n)
        epilogue_span(f, c + (size_t)i * f->size, repeated.bytes, total - i < n ? total - i : n);
}

void
coi_epilogue_rows(const coi_epilogue *f, void *c, int64_t stride, int64_t rows, int64_t first,
                  int64_t columns)
{
    const char *bias = f->bias + (size_t)first * f->size;

    if (rows == 0 || columns == 0)
        return;
    if (f->whole != NULL && columns % COI_EPILOGUE_LANES == 0)
        f->whole(c, stride, rows, bias, columns);
    else if (stride == columns && columns <= BLOCK / 2)
        epilogue_short_rows(f, c, bias, rows, columns);
    else
        for (int64_t i = 0; i < rows; ++i)
            epilogue_row(f, (char *)c + (size_t)(i * stride) * f->size, bias, columns);
}

co_code
coi_ref_epilogue(coi_call *call, int32_t which)
{
    const co_value *bias = call->in[COI_BIAS];
    co_value       *out = call->out[0];
    int64_t         columns = bias->u.tensor.num_elements;
    coi_call        alone = *call;

    for (int64_t i = 0; i < out->u.tensor.num_elements; ++i)
        if (out->dtype == CO_FLOAT64)
            COI_OUT(call, 0, double)[i] += COI_IN(call, COI_BIAS, double)[i % columns];
        else
            COI_OUT(call, 0, float)[i] += COI_IN(call, COI_BIAS, float)[i % columns];
    if (which == CO_ACTIVATION_NONE)
        return CO_OK;
    alone.op = activations[which].op;
    alone.attrs = activations[which].attrs;
    alone.in = &out;
    alone.num_in = 1;
    return alone.op->ref(&alone);
}

/* What flows into the sums before the activation. */
static co_value *
through_activation(coi_grad *grad, int32_t which, const void *bare)
{
    const activation *a = &activations[which];
    co_value         *result = grad->out[0], *operand = result, *into = NULL;
    bool              needed = true;
    coi_grad          step = { .ctx = grad->ctx,
                               .op = a->op,
                               .attrs = a->attrs,
                               .in = &operand,
                               .num_in = 1,
                               .out = &result,
                               .num_out = 1,
                               .upstream = grad->upstream,
                               .owns_upstream = grad->owns_upstream,
                               .needed = &needed,
                               .grads = &into };

    if (a->op == NULL)
        return grad->upstream[0];
    if (!a->from_result)
        operand = coi_apply(grad->ctx, grad->op, grad->in, grad->num_in, bare);
    return operand != NULL && a->op->grad(&step) == CO_OK ? into : NULL;
}

co_code
coi_epilogue_grad(coi_grad *grad, int32_t which, const void *bare,
                  co_code (*product)(coi_grad *grad))
{
    co_context *ctx = grad->ctx;
    co_value *up = through_activation(grad, which, bare), *const upstream[1] = { up };
    coi_grad step = *grad;

    if (up == NULL)
        return ctx->error.code;
    if (grad->needed[COI_BIAS]) {
        int axes[CO_MAX_DIMS];

        for (int i = 0; i < up->ndim - 1; ++i)
            axes[i] = i;
        grad->grads[COI_BIAS] = co_reduce_sum(ctx, up, axes, (size_t)(up->ndim - 1), false);
    }
    step.attrs = bare;
    step.num_in = COI_BIAS;
    step.upstream = upstream;
    return product(&step);
}

/* Halves are rounded once, tape or not: what would be kept for the gradient is rounded before the
 * activation. */
static bool
is_half(const co_context *ctx, const co_value *x)
{
    co_dtype dtype;

    if (x == NULL || !coi_is_live(&ctx->heap, x))
        return false;
    dtype = (co_dtype)(coi_is_variable(x) ? x->u.variable->dtype : x->dtype);
    return dtype == CO_FLOAT16 || dtype == CO_BFLOAT16;
}

co_value *
coi_apply_epilogue(co_context *ctx, const coi_op *op, co_value *const given[3], const void *attrs,
                   const void *bare, int32_t which)
{
    const activation *a = &activations[is_activation(which) ? which : 0];
    co_value         *sums;

    if (!ctx->recording || a->from_result || is_half(ctx, given[0]))
        return coi_apply(ctx, op, given, 3, attrs);
    sums = coi_apply(ctx, op, given, 3, bare);
    return sums != NULL ? coi_apply1(ctx, a->op, sums, a->attrs) : NULL;
}

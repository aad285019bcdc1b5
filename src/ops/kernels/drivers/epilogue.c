/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue, bias and activation: the loops of activations, and the pass over rows.
 */
#include "ops/kernels/epilogue.h"

#include "ops/engine/op.h"
#include "ops/kernels/ref/ref.h"

#include <string.h>

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

/* The loop that each activation is. */
static const uint8_t kinds[] = {
    [CO_ACTIVATION_RELU] = COI_RELU,
    [CO_ACTIVATION_RELU6] = COI_RELU6,
    [CO_ACTIVATION_ELU] = COI_ELU,
    [CO_ACTIVATION_SELU] = COI_SELU,
    [CO_ACTIVATION_TANH] = COI_TANH,
    [CO_ACTIVATION_SIGMOID] = COI_SIGMOID,
    [CO_ACTIVATION_SOFTPLUS] = COI_SOFTPLUS,
    [CO_ACTIVATION_SOFTSIGN] = COI_SOFTSIGN,
    [CO_ACTIVATION_SILU] = COI_SILU,
    [CO_ACTIVATION_GELU] = COI_GELU,
    [CO_ACTIVATION_GELU_TANH] = COI_GELU_TANH,
};

void
coi_epilogue_of(const coi_call *call, int32_t which, coi_epilogue *epilogue)
{
    coi_isa            isa = call->ctx->runtime->isa;
    const co_value    *bias = call->in[COI_BIAS];
    coi_compute_type   type = bias->dtype == CO_FLOAT64 ? COI_F64 : COI_F32;
    const coi_unary_fn loop = unary_tables[isa]->at[kinds[which]][type];
    const coi_unary_fn rare = coi_unary_loops_rare.at[kinds[which]][type];

    epilogue->whole = type == COI_F32 && which <= CO_ACTIVATION_RELU ? whole_epilogues[which][isa]
                                                                     : NULL;
    epilogue->bias = bias->u.tensor.data;
    epilogue->size = coi_dtypes[bias->dtype].size;
    epilogue->add = binary_tables[isa]->at[COI_ADD][type];
    if (epilogue->add == NULL)
        epilogue->add = coi_binary_loops_rare.at[COI_ADD][type];
    epilogue->activation = which == CO_ACTIVATION_NONE ? NULL : loop != NULL ? loop : rare;
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
    alone.in = &out;
    alone.num_in = 1;
    return coi_ref_unary_of(&alone, (coi_unary_kind)kinds[which]);
}

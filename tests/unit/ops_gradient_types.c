/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients over types with unknown dimensions and ranks. What the first and second gradients of a
 * row of every differentiable operator put on the tape is taken with its operands as specs, of
 * which dimensions or the rank are unknown. The gradients must be such as their operands may have.
 * The entries that the gradient started are then run with the tensors of the tape: a dimension that
 * got into an attribute, or a choice by something unknown, shows as other bits than the eager
 * gradient has.
 */
#include "ops_rows.h"
#include "type_program.h"

#include "context/tape.h"
#include "ops/kernels/conv2d.h"
#include "ops/kernels/gather.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/strided_copy.h"

/* Entries of other files. */
COI_USES_OP(conv2d_backprop_input)
COI_USES_OP(scatter_add)
COI_USES_OP(scatter_nd)
COI_USES_OP(slice_grad)

enum { MOST_INPUTS = 16, MOST_ATTRS = 512 };

/* A record, on its own. */
typedef struct record {
    const coi_op *op;
    int           num_in, num_out;
    co_value     *in[MOST_INPUTS];
    co_value     *out[COI_MAX_OUTPUTS];
    _Alignas(16) char attrs[MOST_ATTRS];
} record;

static program recorded;

static void
copy_record(const coi_tape_log *log, size_t i, record *out)
{
    const coi_record *from = &log->records[i];

    out->op = from->op;
    out->num_in = from->num_in;
    out->num_out = from->num_out;
    memcpy(out->in, &log->values[from->values], from->num_in * sizeof(co_value *));
    memcpy(out->out, &log->values[from->values + from->num_in], from->num_out * sizeof(co_value *));
    if (from->op->attrs_rule.size > 0)
        memcpy(out->attrs, log->attrs + from->attrs, from->op->attrs_rule.size);
}

static bool
is_floating(const co_value *x)
{
    return coi_dtypes[x->dtype].floating;
}

static struct {
    int dims, ranks, replays, gradients;
} counts;

static void
complain(const record *r, const type_unknowns *u, const char *what, int i)
{
    test_fail(TEST_AT, "%s, unknown dimensions %llx, ranks %x%s: %s, input %d", r->op->name,
              (unsigned long long)u->dims, u->ranks, u->recording ? ", recorded" : "", what, i);
}

static bool
fits(const co_value *a, const co_value *b)
{
    if (a->dtype != b->dtype)
        return false;
    for (int d = 0; d < a->ndim && d < b->ndim; ++d)
        if (a->u.tensor.dims[d] != b->u.tensor.dims[d] && a->u.tensor.dims[d] >= 0 &&
            b->u.tensor.dims[d] >= 0)
            return false;
    return a->ndim == b->ndim || a->ndim < 0 || b->ndim < 0;
}

/* A gradient for an operand: its type, or rows of it. */
static bool
fits_operand(const co_value *gradient, const co_value *operand)
{
    const co_value *values;

    if (gradient->kind != CO_KIND_SLICES)
        return fits(gradient, operand);
    values = gradient->u.slices.values;
    if (values->ndim != operand->ndim)
        return values->ndim < 0 || operand->ndim < 0;
    for (int d = 1; d < values->ndim; ++d)
        if (values->u.tensor.dims[d] != operand->u.tensor.dims[d] &&
            values->u.tensor.dims[d] >= 0 && operand->u.tensor.dims[d] >= 0)
            return false;
    return true;
}

/* What is known of the operand is known of its gradient. */
static bool
knows_operand(const co_value *gradient, const co_value *operand)
{
    bool knows = gradient->kind == CO_KIND_SLICES || operand->ndim < 0 || gradient->ndim >= 0;

    for (int d = 0; knows && gradient->kind == CO_KIND_SPEC && d < operand->ndim; ++d)
        knows = operand->u.tensor.dims[d] < 0 || gradient->u.tensor.dims[d] >= 0;
    return knows;
}

/* The results as specs; those that flow back get a gradient like them. */
static bool
make_results(co_context *ctx, const record *r, co_value **specs, co_value **outs,
             co_value **upstream)
{
    bool before = ctx->infers_types;
    int  n = r->op->composite != NULL ? 1 : r->num_out;

    ctx->infers_types = true;
    if (r->op->composite != NULL)
        outs[0] = coi_infer(ctx, r->op, specs, r->num_in, r->attrs);
    else
        coi_infer_many(ctx, r->op, specs, r->num_in, r->attrs, outs);
    ctx->infers_types = before;
    for (int i = 0; co_ok(ctx) && i < n; ++i) {
        if (!fits(outs[i], r->out[i]))
            test_fail(TEST_AT, "%s: the type of result %d is wrong", r->op->name, i);
        upstream[i] = is_floating(outs[i]) ? co_spec(ctx, (co_dtype)outs[i]->dtype,
                                                     outs[i]->u.tensor.dims, outs[i]->ndim)
                                           : NULL;
    }
    return co_ok(ctx);
}

/* What flows in, and the gradients, with tensors. */
typedef struct eager_gradient {
    co_value *upstream[COI_MAX_OUTPUTS], *grads[MOST_INPUTS];
    bool      needed[MOST_INPUTS];
} eager_gradient;

static coi_grad
grad_of(co_context *ctx, const record *r, co_value *const *in, co_value *const *out,
        co_value *const *upstream, co_value **grads, const bool *needed)
{
    return (coi_grad){ .ctx = ctx,
                       .op = r->op,
                       .attrs = r->attrs,
                       .in = in,
                       .num_in = r->num_in,
                       .out = out,
                       .num_out = r->num_out,
                       .upstream = upstream,
                       .needed = needed,
                       .grads = grads };
}

static void
take_eager(co_context *ctx, const record *r, bool recording, eager_gradient *e)
{
    coi_grad grad = grad_of(ctx, r, r->in, r->out, e->upstream, e->grads, e->needed);

    memset(e, 0, sizeof(*e));
    for (int i = 0; i < r->num_out; ++i)
        if (is_floating(r->out[i])) {
            ops_random random = { (uint64_t)i + 9 };

            e->upstream[i] = ops_tensor(ctx, &random, (co_dtype)r->out[i]->dtype,
                                        r->out[i]->u.tensor.dims, r->out[i]->ndim, OPS_ORDINARY);
        }
    for (int i = 0; i < r->num_in; ++i)
        e->needed[i] = is_floating(r->in[i]);
    ctx->recording = recording;
    r->op->grad(&grad);
    ctx->recording = true;
    CO_EXPECT_OK(ctx);
}

/* The entries that the gradient over types started do with tensors what the eager gradient did. */
static void
replay(co_context *ctx, const record *r, const type_unknowns *u, const coi_grad *grad,
       const eager_gradient *e)
{
    ctx->recording = u->recording;
    for (int i = 0; i < r->num_in; ++i)
        program_bind(&recorded, grad->in[i], r->in[i]);
    for (int i = 0; i < r->num_out; ++i) {
        program_bind(&recorded, grad->out[i], r->out[i]);
        if (e->upstream[i] != NULL)
            program_bind(&recorded, grad->upstream[i], e->upstream[i]);
    }
    if (!program_run(&recorded))
        complain(r, u, "the entries do not run", -1);
    else
        for (int i = 0; i < r->num_in; ++i)
            if (!program_agrees(&recorded, grad->grads[i], e->grads[i]))
                complain(r, u, "other bits than the eager gradient", i);
    ctx->recording = true;
    co_clear(ctx);
    ++counts.replays;
}

static void
check_types(const record *r, const type_unknowns *u, const coi_grad *grad)
{
    for (int i = 0; i < r->num_in; ++i) {
        if (grad->grads[i] == NULL)
            continue;
        ++counts.gradients;
        if (!knows_operand(grad->grads[i], grad->in[i]))
            complain(r, u, "the gradient knows less than its operand", i);
        if (!fits_operand(grad->grads[i], grad->in[i]))
            complain(r, u, "the gradient has another type", i);
    }
}

static void
take_gradient(co_context *ctx, const record *r, const type_unknowns *u, const eager_gradient *e)
{
    co_value *in[MOST_INPUTS] = { NULL }, *out[COI_MAX_OUTPUTS] = { NULL };
    co_value *upstream[COI_MAX_OUTPUTS] = { NULL }, *grads[MOST_INPUTS] = { NULL };
    coi_grad  grad = grad_of(ctx, r, in, out, upstream, grads, e->needed);

    type_specs(ctx, r->in, r->num_in, u, in);
    ctx->recording = u->recording;
    if (make_results(ctx, r, in, out, upstream)) {
        program_start(ctx, &recorded);
        coi_infer_gradient(&grad);
        program_pause(&recorded);
    }
    ctx->recording = true;
    if (!co_ok(ctx)) {
        complain(r, u, co_error(ctx)->message, -1);
        co_clear(ctx);
    } else {
        check_types(r, u, &grad);
        replay(ctx, r, u, &grad, e);
    }
    program_drop(&recorded);
}

/* Dimensions in up to 64 combinations; then ranks, each alone, and all with all dimensions. */
static void
check_record(co_context *ctx, const record *r)
{
    eager_gradient e;
    int            n = 0, num_dims;

    for (int i = 0; i < r->num_in; ++i)
        n += r->in[i]->ndim;
    num_dims = type_num_combinations(n);
    for (int recording = 0; recording < 2; ++recording)
        CO_BLOCK(ctx) {
            take_eager(ctx, r, recording != 0, &e);
            for (int i = 0; i < num_dims; ++i, ++counts.dims)
                CO_BLOCK(ctx)
                    take_gradient(ctx, r,
                                  &(type_unknowns){ type_combination(i, n), 0, recording != 0 },
                                  &e);
            for (int i = 0; i <= r->num_in; ++i, ++counts.ranks) {
                uint32_t ranks = i < r->num_in ? UINT32_C(1) << i : UINT32_MAX;

                CO_BLOCK(ctx)
                    take_gradient(ctx, r, &(type_unknowns){ 0, ranks, recording != 0 }, &e);
            }
        }
}

/* First and second gradients of a row, on the tape that stays open. */
static void
record_row(co_context *ctx, const ops_row *row)
{
    co_value    *real[ROW_MOST_INPUTS], *outs[ROW_MOST_INPUTS], *grads;
    ops_row_call call;
    size_t       n = 0, num_outs;

    ops_row_inputs(ctx, row, CO_FLOAT32, &call);
    for (size_t i = 0; i < call.num_in; ++i)
        if (ops_is_real(call.in[i]))
            real[n++] = call.in[i];
    co_watch(ctx, co_tuple(ctx, real, n));
    co_tape_begin(ctx);
    co_watch(ctx, co_tuple(ctx, real, n));
    co_set_seed(ctx, 5);
    num_outs = ops_row_real(ctx, row, ops_row_results(ctx, row, &call), outs, ROW_MOST_INPUTS);
    grads = co_gradient(ctx, co_tuple(ctx, outs, num_outs), co_tuple(ctx, real, n));
    for (size_t i = 0; i < n; ++i)
        if (co_value_kind(co_at(ctx, grads, i)) == CO_KIND_SLICES)
            co_to_tensor(ctx, co_at(ctx, grads, i), CO_DTYPE_NONE);
    CO_EXPECT_OK(ctx);
}

static bool
is_differentiable(const co_op_info *info)
{
    return info->differentiable;
}

/* Recorded only where shapes are unknown or by the gradient of a layer, never by a call by name. */
static bool
is_recorded_elsewhere(const coi_op *op)
{
    static const char *const names[] = { "conv2d_pooled_grad_flow", "rows_like", "sized_like",
                                         "slices_of_types_to_tensor", "unless_empty" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if (strcmp(names[i], coi_entry_name(op)) == 0)
            return true;
    return false;
}

static ops_rows rows;

CO_TEST(gradients_of_every_operator_work_on_unknown_dimensions_and_ranks, "")
{
    bool seen[400] = { false };

    ops_rows_fill(&rows, ops_small, is_differentiable);
    for (size_t i = 0; i < rows.num; ++i)
        CO_BLOCK(ctx) {
            record r;
            size_t num_records;

            co_tape_begin(ctx);
            record_row(ctx, &rows.at[i]);
            num_records = ctx->tapes->num_records; /* eager gradients record more */
            for (size_t k = 0; k < num_records; ++k) {
                copy_record(ctx->tapes, k, &r);
                for (size_t op = 0; op < coi_num_ops; ++op)
                    seen[op] = seen[op] || coi_op_table[op] == r.op ||
                               coi_op_table[op]->training == r.op;
                if (r.op->grad != NULL)
                    check_record(ctx, &r);
            }
            co_tape_end(ctx);
        }
    printf(
        "gradients over types: %d combinations of dimensions, %d of ranks, %d gradients that know "
        "what their operands know; %d replays with the bits of eager gradients\n",
        counts.dims, counts.ranks, counts.gradients, counts.replays);
    CO_EXPECT_MORE(counts.dims, 10000);
    CO_EXPECT_MORE(counts.ranks, 1000);
    CO_EXPECT_INT(counts.replays, counts.dims + counts.ranks);
    for (size_t op = 0; op < coi_num_ops; ++op)
        if (coi_op_table[op]->grad != NULL && coi_op_table[op]->effect == NULL &&
            !coi_op_table[op]->not_differentiable &&
            seen[op] == is_recorded_elsewhere(coi_op_table[op]))
            test_fail(TEST_AT, "no gradient of %s was checked", coi_entry_name(coi_op_table[op]));
}

/* --- the operators that stand where shapes are unknown, with tensors --- */

static co_value *
noise(co_context *ctx, uint64_t seed, const int64_t *dims, int ndim)
{
    ops_random random = { seed };

    return ops_tensor(ctx, &random, CO_FLOAT32, dims, ndim, OPS_ORDINARY);
}
#define NOISE(seed, ...)                                                                           \
    noise(ctx, seed, (const int64_t[]){ __VA_ARGS__ },                                             \
          (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

/* Results and gradients of both forms have the same bits. */
static void
expect_same(co_context *ctx, const coi_sized_op *sized, co_value *const *given, int n,
            co_value *like)
{
    co_value *results[2], *grads[2];

    for (int i = 0; i < 2; ++i) {
        co_tape_begin(ctx);
        co_watch(ctx, given[sized->dtype_of]);
        results[i] = (i == 0 ? coi_apply_like : coi_apply_sized_like)(ctx, sized, given, n, like);
        grads[i] = co_gradient(ctx, co_square(ctx, results[i]), given[sized->dtype_of]);
    }
    CO_EXPECT_TRUE(same_bits(results[0], results[1]));
    CO_EXPECT_TRUE(same_bits(grads[0], grads[1]));
    CO_EXPECT_TRUE(results[0] != NULL && coi_same_shape(results[0], like));
}

CO_TEST(sized_like_does_what_its_operator_does, "")
{
    coi_slice_grad_attrs slice = { { 2, { 1, 0 } }, { 0, { 0 } } };
    coi_conv2d_attrs     conv = { .strides = { -1, { 0 } },
                                  .dilations = { -1, { 0 } },
                                  .padding = CO_PADDING_VALID,
                                  .explicit_paddings = { -1, { 0 } } };
    coi_scatter_attrs    scatter = { { 0, { 0 } }, 0, 0 };
    coi_shape_attrs      scatter_nd = { { 0, { 0 } } };
    co_value            *index = co_tensor(ctx, CO_INT32, CO_SHAPE(3), (int32_t[]){ 2, 0, 2 });

    expect_same(ctx,
                &(coi_sized_op){ &coi_op_slice_grad, &slice, offsetof(coi_slice_grad_attrs, shape),
                                 0 },
                (co_value *[]){ NOISE(1, 2, 2) }, 1, NOISE(2, 3, 4));
    expect_same(ctx,
                &(coi_sized_op){ &coi_op_conv2d_backprop_input, &conv,
                                 offsetof(coi_conv2d_attrs, sizes), 0 },
                (co_value *[]){ NOISE(3, 3, 2, 2, 2), NOISE(4, 1, 3, 3, 2) }, 2,
                NOISE(5, 1, 5, 4, 2));
    expect_same(ctx,
                &(coi_sized_op){ &coi_op_scatter_add, &scatter, offsetof(coi_scatter_attrs, shape),
                                 0 },
                (co_value *[]){ NOISE(6, 3, 2), index }, 2, NOISE(7, 4, 2));
    expect_same(ctx,
                &(coi_sized_op){ &coi_op_scatter_nd, &scatter_nd, offsetof(coi_shape_attrs, shape),
                                 1 },
                (co_value *[]){ co_expand_dims(ctx, index, 1), NOISE(8, 3, 2) }, 2, NOISE(9, 4, 2));
}

CO_TEST(like_operators_do_what_attributes_did, "")
{
    co_value *x = NOISE(1, 4, 1, 3), *g = NOISE(2, 5, 4, 2, 3), *flat;

    CO_EXPECT_TRUE(
        same_bits(coi_unbroadcast(ctx, g, x),
                  co_reshape(ctx, co_reduce_sum(ctx, g, CO_AXES(0, 2), false), CO_SHAPE(4, 1, 3))));
    CO_EXPECT_PTR(coi_unbroadcast(ctx, g, g), g);
    CO_EXPECT_TRUE(
        same_bits(coi_broadcast_like(ctx, x, g), co_broadcast_to(ctx, x, CO_SHAPE(5, 4, 2, 3))));
    flat = co_reshape(ctx, g, CO_SHAPE(-1));
    CO_EXPECT_TRUE(same_bits(coi_reshape_like(ctx, flat, g), g));
    CO_EXPECT_TRUE(same_bits(coi_merge_dims(ctx, g, 0, 4), flat));
    CO_EXPECT_TRUE(same_bits(coi_merge_dims(ctx, g, 1, 2), co_reshape(ctx, g, CO_SHAPE(5, 8, 3))));
    CO_EXPECT_TRUE(same_bits(coi_merge_dims(ctx, x, 3, 0), co_expand_dims(ctx, x, -1)));
    CO_EXPECT_NULL(coi_reshape_like(ctx, x, g));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "as many elements");
    CO_EXPECT_NULL(coi_broadcast_like(ctx, g, x));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the shape of like");
    CO_EXPECT_NULL(coi_unbroadcast(ctx, x, g));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "does not broadcast");
}

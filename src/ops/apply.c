/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where operators run: convert the operands, apply the shape rule, make room for the outputs, run a kernel,
 * record on the tape. An eager call of a scalar operator takes some tens of nanoseconds, so the common case, operands that
 * are tensors on the current device already, takes no detour.
 */
#include "ops/gradient.h"
#include "ops/op.h"

#include <stdio.h>
#include <string.h>

#define FEW_OPERANDS 8

typedef struct operands {
    co_value *few[FEW_OPERANDS];
    uint32_t  few_nodes[FEW_OPERANDS];
    uint32_t *nodes;
    size_t    room; /* bytes taken from the heap when there are many */
} operands;

co_code
coi_invalid(coi_call *call, const char *format, ...)
{
    char    text[900];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return coi_fail(call->ctx, CO_INVALID_ARGUMENT, "%s: %s", call->op->name, text);
}

static bool
is_host(const co_value *value)
{
    return value->kind >= CO_KIND_INT && value->kind <= CO_KIND_STRING;
}

static const char *
input_name(const coi_op *op, int i)
{
    return op->variadic ? op->inputs[0] : op->inputs[i];
}

/* Room for many operands; few need none. */
static bool
make_room(coi_call *call, operands *o)
{
    size_t n = (size_t)call->num_in;

    call->in = o->few;
    o->nodes = o->few_nodes;
    o->room = 0;
    if (n <= FEW_OPERANDS)
        return true;
    if (n > UINT16_MAX - COI_MAX_OUTPUTS) {
        coi_invalid(call, "%zu inputs; at most %d", n, UINT16_MAX - COI_MAX_OUTPUTS);
        return false;
    }
    o->room = n * (sizeof(*call->in) + sizeof(*o->nodes));
    call->in = coi_small_alloc(&call->ctx->heap, o->room);
    if (call->in == NULL) {
        coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for %zu inputs", call->op->name,
                 n);
        return false;
    }
    o->nodes = (uint32_t *)(void *)(call->in + n);
    return true;
}

/* An operand that needed no conversion is the caller's own, who holds it: counting it here would cost two locked
 * operations. */
static void
drop_operands(coi_call *call, operands *o, co_value *const *given)
{
    coi_heap *heap = &call->ctx->heap;

    for (int i = 0; i < call->num_in; ++i)
        if (call->in[i] != given[i])
            coi_unref(heap, call->in[i]);
    if (o->room > 0)
        coi_small_free(heap, call->in, o->room);
}

/* The dtype that host numbers among the operands take: that of the first tensor, or what all host numbers have alone. */
static co_dtype
host_dtype(co_value *const *given, int n, co_value *const *converted)
{
    bool wide = false, has_float = false;

    for (int i = 0; i < n; ++i)
        if (converted[i] != NULL)
            return (co_dtype)converted[i]->dtype;
    for (int i = 0; i < n; ++i) {
        has_float = has_float || given[i]->kind == CO_KIND_FLOAT;
        wide = wide || (given[i]->kind == CO_KIND_INT &&
                        (given[i]->u.i < INT32_MIN || given[i]->u.i > INT32_MAX));
        if (given[i]->kind != CO_KIND_FLOAT && given[i]->kind != CO_KIND_INT)
            return CO_DTYPE_NONE;
    }
    return has_float ? CO_FLOAT32 : wide ? CO_INT64 : CO_INT32;
}

/* A tensor on the device that the operator runs on, in place of `tensor`. */
static co_value *
to_device(coi_call *call, co_value *tensor)
{
    co_value *moved;

    if (tensor->u.tensor.device == call->device)
        return tensor;
    moved = coi_tensor_to(&call->ctx->heap, tensor, call->device, coi_err(call->ctx));
    coi_unref(&call->ctx->heap, tensor);
    if (moved == NULL)
        coi_failed(call->ctx);
    return moved;
}

/* Convert operands [begin, n) in two passes: what has a dtype first, then host values, which take it from the others. */
static bool
convert(coi_call *call, operands *o, co_value *const *given)
{
    co_context *ctx = call->ctx;
    int         n = call->num_in, hosts = 0;
    co_dtype    dtype = CO_DTYPE_NONE;

    for (int i = 0; i < n; ++i)
        call->in[i] = NULL;
    for (int i = 0; i < n; ++i) {
        co_value *source = given[i], *tensor;

        if (!coi_check_value(ctx, source, i + 2, input_name(call->op, i)))
            return false;
        o->nodes[i] = COI_NO_NODE;
        if (source->kind == CO_KIND_TENSOR && source->u.tensor.device == call->device) {
            if (ctx->recording)
                o->nodes[i] = coi_tape_node(ctx, source, source);
            call->in[i] = source;
            continue;
        }
        if (is_host(source)) {
            ++hosts;
            continue;
        }
        if (source->kind == CO_KIND_SLICES) /* by an operator, so that gradients pass */
            source = coi_densify(ctx, source);
        tensor = source != NULL ? coi_as_tensor(ctx, source, CO_DTYPE_NONE) : NULL;
        if (tensor == NULL)
            return false;
        if (ctx->recording)
            o->nodes[i] = coi_tape_node(ctx, source, tensor);
        call->in[i] = to_device(call, tensor);
        if (call->in[i] == NULL)
            return false;
    }
    if (hosts == 0)
        return true;
    if (call->op->same_dtype)
        dtype = host_dtype(given, n, call->in);
    for (int i = 0; i < n; ++i)
        if (call->in[i] == NULL && (call->in[i] = coi_as_tensor(ctx, given[i], dtype)) == NULL)
            return false;
    return true;
}

static bool
check_dtypes(coi_call *call)
{
    const coi_op *op = call->op;
    co_dtype      dtype;

    if (call->num_in == 0)
        return true;
    dtype = (co_dtype)call->in[0]->dtype;
    if (op->dtypes != 0 && (op->dtypes & COI_DTYPE_BIT(dtype)) == 0) {
        char   text[200] = "";
        size_t at = 0;

        for (int d = CO_BOOL; d < CO_NUM_DTYPES; ++d)
            if ((op->dtypes & COI_DTYPE_BIT(d)) != 0 && at < sizeof(text) - 16)
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at > 0 ? ", " : "",
                                       coi_dtypes[d].name);
        coi_invalid(call, "%s has dtype %s; it must be one of %s", input_name(op, 0),
                    co_dtype_name(dtype), text);
        return false;
    }
    for (int i = 1; op->same_dtype && i < call->num_in; ++i)
        if (call->in[i]->dtype != dtype) {
            coi_invalid(
                call,
                "%s has dtype %s and %s has dtype %s; they must be the same (co_cast converts)",
                input_name(op, 0), co_dtype_name(dtype), input_name(op, i),
                co_dtype_name((co_dtype)call->in[i]->dtype));
            return false;
        }
    return true;
}

/* Elements of an output; false if the shape cannot be. */
static bool
count_elements(coi_call *call, const coi_out *out, int64_t *count)
{
    int64_t total = 1;
    size_t  size = coi_dtypes[out->dtype].size;

    /* Up to 2^40 elements in all, no step can overflow; anything larger takes the careful way. */
    for (int i = 0; i < out->ndim; ++i) {
        if (out->dims[i] < 0 || out->dims[i] > INT64_C(1) << 20 || total > INT64_C(1) << 20) {
            if (coi_shape_check(out->dims, (size_t)out->ndim, size > 0 ? size : sizeof(coi_text),
                                count, coi_err(call->ctx)) == CO_OK)
                return true;
            coi_failed(call->ctx);
            return false;
        }
        total *= out->dims[i];
    }
    *count = total;
    return true;
}

static bool
make_outputs(coi_call *call, const coi_out *outs)
{
    co_context *ctx = call->ctx;

    for (int i = 0; i < call->num_out; ++i) {
        int64_t count;

        if (!count_elements(call, &outs[i], &count))
            return false;
        call->out[i] = call->op->view
                           ? coi_tensor_view(&ctx->heap, call->in[0], outs[i].dims, outs[i].ndim,
                                             count, 0, coi_err(ctx))
                           : coi_tensor_new(&ctx->heap, call->device, outs[i].dtype, outs[i].dims,
                                            outs[i].ndim, count, coi_err(ctx));
        if (call->out[i] == NULL) {
            coi_failed(ctx);
            return false;
        }
    }
    return true;
}

static bool
record(coi_call *call, const operands *o)
{
    bool watched = false, floating = false;

    for (int i = 0; i < call->num_in; ++i)
        watched = watched || o->nodes[i] != COI_NO_NODE;
    for (int i = 0; i < call->num_out; ++i)
        floating = floating || coi_dtypes[call->out[i]->dtype].floating;
    if (!watched || !floating)
        return true;
    return coi_tape_record(call->ctx, call->op, call->attrs, call->op->attrs_size, call->in,
                           o->nodes, call->num_in, call->out, call->num_out);
}

static bool
run(coi_call *call, const operands *o)
{
    co_context   *ctx = call->ctx;
    const coi_op *op = call->op;
    coi_out       outs[COI_MAX_OUTPUTS];

    if (!check_dtypes(call) || op->infer(call, outs) != CO_OK || !make_outputs(call, outs))
        return false;
    if (!op->view) {
        co_code (*kernel)(coi_call *) = op->run != NULL && !ctx->reference_kernels ? op->run
                                                                                   : op->ref;

        if (kernel(call) != CO_OK)
            return false;
    }
    return !ctx->recording || op->not_differentiable || record(call, o);
}

static bool
check_count(coi_call *call)
{
    const coi_op *op = call->op;

    if (op->variadic ? call->num_in >= 1 : call->num_in == op->num_inputs)
        return true;
    coi_invalid(call, "%d inputs; it takes %s%d", call->num_in, op->variadic ? "at least " : "",
                op->variadic ? 1 : op->num_inputs);
    return false;
}

co_code
coi_apply_many(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
               const void *attrs, co_value **outs)
{
    coi_call call;
    operands o;
    bool     ok;

    COI_ENTER(ctx, op->name, ctx != NULL ? ctx->error.code : CO_INVALID_ARGUMENT);
    call.ctx = ctx;
    call.op = op;
    call.num_in = num_given;
    call.num_out = op->num_outputs;
    call.attrs = attrs;
    call.device = ctx->device != NULL ? ctx->device : coi_current_device(ctx);
    if (call.device == NULL || !check_count(&call) || !make_room(&call, &o))
        return ctx->error.code;
    for (int i = 0; i < op->num_outputs; ++i)
        call.out[i] = NULL;
    ok = convert(&call, &o, given) && run(&call, &o);
    drop_operands(&call, &o, given);
    for (int i = 0; i < op->num_outputs; ++i) {
        if (!ok)
            coi_unref(&ctx->heap, call.out[i]);
        else if ((outs[i] = coi_own(ctx, call.out[i])) == NULL)
            ok = false;
    }
    return ctx->error.code;
}

co_value *
coi_apply(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
          const void *attrs)
{
    co_value *out = NULL;

    return coi_apply_many(ctx, op, given, num_given, attrs, &out) == CO_OK ? out : NULL;
}

co_value *
coi_apply1(co_context *ctx, const coi_op *op, co_value *x, const void *attrs)
{
    return coi_apply(ctx, op, &x, 1, attrs);
}

co_value *
coi_apply2(co_context *ctx, const coi_op *op, co_value *x, co_value *y, const void *attrs)
{
    co_value *const given[2] = { x, y };

    return coi_apply(ctx, op, given, 2, attrs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where operators run: convert the operands, apply the shape rule, make room for the
 * outputs, run a kernel, record on the tape. An eager call of a scalar operator takes some tens of
 * nanoseconds, so the common case, operands that are tensors on the current device already, takes
 * no detour.
 */
#include "ops/engine/execute.h"
#include "base/text.h"
#include "ops/engine/gradient.h"
#include "ops/engine/kernel_lookup.h"
#include "ops/engine/kernel_recording.h"
#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/engine/upcast.h"

#include <stdio.h>
#include <string.h>

/* Entries of other files. */
COI_USES_OP(identity)

#define FEW_OPERANDS 8
/* For what is worth a copy in each of its callers. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

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
    coi_text_line_va(text, sizeof(text), format, args);
    va_end(args);
    return coi_fail(call->ctx, CO_INVALID_ARGUMENT, "%s: %s", call->op->name, text);
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

static void
drop_operands(coi_call *call, const operands *o, co_value *const *given)
{
    coi_heap *heap = &call->ctx->heap;

    /* An operand that was a tensor in place is the caller's; what became one is ours. */
    for (int i = 0; i < call->num_in; ++i)
        if (call->in[i] != given[i])
            coi_unref(heap, call->in[i]);
    if (o->room > 0)
        coi_small_free(heap, call->in, o->room);
}

/* The dtype that host numbers take: that of the first operand that has one, or the widest that they
 * have themselves. */
co_dtype
coi_dtype_beside(co_value *const *given, int n, co_value *const *converted)
{
    co_dtype dtype = CO_DTYPE_NONE;

    for (int i = 0; i < n; ++i)
        if (converted[i] != NULL)
            return (co_dtype)converted[i]->dtype;
    for (int i = 0; i < n; ++i)
        dtype = coi_wider_dtype(dtype, coi_host_dtype(given[i]));
    return dtype;
}

/* Arithmetic on a per-replica value is an error of type; everywhere else its conversion is refused,
 * as a value (DV-USE-5). */
bool
coi_may_be_operand(const coi_call *call, const co_value *value)
{
    co_context *ctx = call->ctx;
    bool        is_binary = call->op->num_inputs == 2 && !call->op->variadic;

    if (!coi_is_per_replica(value) || !is_binary || coi_in_replica(ctx) || ctx->mode.update_id >= 0)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR,
             "%s: a per-replica value is no operand outside a replica; pass it to co_run, or take "
             "its parts with co_local_results",
             call->op->name);
    return false;
}

/* An operand that has a dtype as a tensor: a reference, and its node. */
static co_value *
as_operand(coi_call *call, co_value *value, uint32_t *node)
{
    co_context *ctx = call->ctx;
    co_value   *tensor;

    if (!coi_may_be_operand(call, value))
        return NULL;
    /* By operators, so that gradients pass. */
    if (coi_is_composite(value))
        value = coi_densify(ctx, value);
    else if (ctx->recording && coi_is_structure(value))
        value = coi_stack(ctx, value);
    tensor = value != NULL ? coi_as_tensor(ctx, value, CO_DTYPE_NONE) : NULL;
    if (tensor != NULL && ctx->recording)
        *node = coi_tape_node(ctx, value, tensor);
    return tensor;
}

/* The same on the device of the call; an operand that is in place stays what it is, without a
 * reference. */
static bool
convert_one(coi_call *call, co_value *value, co_value **out, uint32_t *node)
{
    co_context *ctx = call->ctx;
    co_value   *tensor = as_operand(call, value, node), *copy = tensor;

    if (tensor == NULL)
        return false;
    if (tensor->u.tensor.device != call->device)
        copy = coi_copy_tensor(ctx, tensor, call->device);
    else if (coi_is_variable(value) && *node != COI_NO_NODE &&
             coi_tape_is_differentiated(ctx->tapes))
        copy = coi_tensor_view(&ctx->heap, tensor, tensor->u.tensor.dims, tensor->ndim,
                               tensor->u.tensor.num_elements, 0, coi_err(ctx));
    if (copy == NULL)
        coi_failed(ctx);
    else if (copy != tensor && ctx->recording)
        coi_tape_mark(ctx->tapes, copy, *node);
    coi_note_operand(ctx, value, tensor);
    coi_note_operand(ctx, tensor, copy);
    if (copy != tensor || tensor == value)
        coi_unref(&ctx->heap, tensor);
    *out = copy;
    return copy != NULL;
}

/* In two passes: what has a dtype first, then host values, which take it from the others. */
static bool
convert(coi_call *call, operands *o, co_value *const *given)
{
    co_context *ctx = call->ctx;
    int         n = call->num_in, hosts = 0;
    co_dtype    dtype = CO_DTYPE_NONE;

    for (int i = 0; i < n; ++i)
        call->in[i] = NULL;
    for (int i = 0; i < n; ++i) {
        if (!coi_check_value(ctx, given[i], i + 2, input_name(call->op, i)))
            return false;
        o->nodes[i] = COI_NO_NODE;
        if (coi_host_dtype(given[i]) != CO_DTYPE_NONE)
            ++hosts;
        else if (!convert_one(call, given[i], &call->in[i], &o->nodes[i]))
            return false;
    }
    if (hosts > 0 && call->op->same_dtype)
        dtype = coi_dtype_beside(given, n, call->in);
    for (int i = 0; hosts > 0 && i < n; ++i) {
        if (call->in[i] != NULL)
            continue;
        call->in[i] = coi_as_tensor(ctx, given[i], dtype);
        if (call->in[i] == NULL)
            return false;
        coi_note_host_made(ctx, call->in[i]);
    }
    return true;
}

static bool
refuse_dtype(coi_call *call)
{
    const coi_op *op = call->op;
    char          text[200] = "";
    size_t        at = 0;

    for (int d = CO_BOOL; d < CO_NUM_DTYPES; ++d)
        if ((op->dtypes & COI_DTYPE_BIT(d)) != 0 && at < sizeof(text) - 16)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at > 0 ? ", " : "",
                                   coi_dtypes[d].name);
    coi_invalid(call, "%s has dtype %s; it must be one of %s", input_name(op, 0),
                co_dtype_name((co_dtype)call->in[0]->dtype), text);
    return false;
}

static bool
refuse_mixture(coi_call *call, int i)
{
    bool is_one_of_many = call->op->variadic;
    char at[16] = "";

    if (is_one_of_many)
        snprintf(at, sizeof(at), "[%d]", i);
    coi_invalid(call,
                "%s%s has dtype %s and %s%s has dtype %s; they must be the same (co_cast converts)",
                input_name(call->op, 0), is_one_of_many ? "[0]" : "",
                co_dtype_name((co_dtype)call->in[0]->dtype), input_name(call->op, i), at,
                co_dtype_name((co_dtype)call->in[i]->dtype));
    return false;
}

static inline bool
check_dtypes(coi_call *call, int num_in)
{
    const coi_op *op = call->op;
    co_value    **in = call->in;

    if (num_in > 0 && op->dtypes != 0 && (op->dtypes & COI_DTYPE_BIT(in[0]->dtype)) == 0)
        return refuse_dtype(call);
    if (op->same_dtype)
        for (int i = 1; i < num_in; ++i)
            if (in[i]->dtype != in[0]->dtype)
                return refuse_mixture(call, i);
    return true;
}

bool
coi_check_dtypes(coi_call *call)
{
    return check_dtypes(call, call->num_in);
}

/* Elements of an output; -1, with the error, if its shape cannot be. */
static inline int64_t
count_elements(co_context *ctx, const coi_out *out)
{
    int64_t total = 1;

    /* Up to 2^40 elements in all, no step can overflow; anything larger takes the careful way, and
     * what is empty does, whose other dimensions may be anything. */
    for (int i = 0, ndim = out->ndim; i < ndim; ++i) {
        if ((uint64_t)out->dims[i] - 1 >= UINT64_C(1) << 20 || total > INT64_C(1) << 20) {
            size_t size = coi_dtypes[out->dtype].size;

            if (coi_shape_check(out->dims, (size_t)ndim, size > 0 ? size : sizeof(coi_text), &total,
                                coi_err(ctx)) == CO_OK)
                return total;
            coi_failed(ctx);
            return -1;
        }
        total *= out->dims[i];
    }
    return total;
}

static inline co_value *
make_output(coi_call *call, const coi_out *out)
{
    co_context *ctx = call->ctx;
    int64_t     count = count_elements(ctx, out);
    co_value   *made;

    if (count < 0)
        return NULL;
    made = call->op->view ? coi_tensor_view(&ctx->heap, call->in[0], out->dims, out->ndim, count, 0,
                                            coi_err(ctx))
                          : coi_tensor_new(&ctx->heap, call->device, out->dtype, out->dims,
                                           out->ndim, count, coi_err(ctx));
    if (made == NULL)
        coi_failed(ctx);
    return made;
}

/* The results of a kernel that is recorded, and run only if the recorder wants it. */
static bool
make_recorded_outputs(coi_call *call, const coi_out *outs)
{
    co_context          *ctx = call->ctx;
    coi_kernel_recorder *recorder = ctx->kernel_recorder;
    bool                 is_real = call->op->view || recorder->is_computed(recorder, call, outs);

    for (int i = 0; i < call->num_out; ++i) {
        int64_t count = is_real ? 0 : count_elements(ctx, &outs[i]);

        if (is_real)
            call->out[i] = make_output(call, &outs[i]);
        else if (count >= 0 &&
                 (call->out[i] = coi_meta_tensor(&ctx->heap, call->device, outs[i].dtype,
                                                 outs[i].dims, outs[i].ndim, count,
                                                 coi_err(ctx))) == NULL)
            coi_failed(ctx);
        if (call->out[i] == NULL)
            return false;
    }
    return true;
}

/* What is computed from something watched goes on the tape. */
static bool
record(coi_call *call, const uint32_t *nodes)
{
    bool watched = false, floating = false;

    for (int i = 0; i < call->num_in; ++i)
        watched = watched || nodes[i] != COI_NO_NODE;
    for (int i = 0; i < call->num_out; ++i)
        floating = floating || coi_dtypes[call->out[i]->dtype].floating;
    if (!watched || !floating)
        return true;
    return coi_tape_record(call->ctx, call->op, call->attrs, call->op->attrs_rule.size, call->in,
                           nodes, call->num_in, call->out, call->num_out);
}

/* The same for operands that are tensors in place. */
static bool
record_in_place(coi_call *call)
{
    uint32_t nodes[FEW_OPERANDS];

    for (int i = 0; i < call->num_in; ++i)
        nodes[i] = coi_tape_node(call->ctx, call->in[i], call->in[i]);
    return record(call, nodes);
}

/* One line for a kernel: operator, operands, which kernel, and the call that asked for it. */
static void
say_kernel(const coi_call *call, bool is_reference)
{
    const co_context *ctx = call->ctx;
    char              operands_text[400] = "", shape[COI_SHAPE_TEXT], site[120] = "";
    coi_prose         list = { operands_text, sizeof(operands_text), 0 };

    for (int i = 0; i < call->num_in && list.at < sizeof(operands_text); ++i)
        coi_put(&list, " %s%s", co_dtype_name((co_dtype)call->in[i]->dtype),
                coi_shape_text(call->in[i]->u.tensor.dims, call->in[i]->ndim, shape));
    coi_put_end(&list);
    if (ctx->site.file != NULL)
        snprintf(site, sizeof(site), ", for %s:%d", coi_path_end(ctx->site.file, 100),
                 ctx->site.line);
    coi_log_line(&ctx->runtime->log, CO_LOG_DEBUG, "%s%s: kernel %s%s on %s%s", call->op->name,
                 operands_text, is_reference ? "reference" : coi_isa_name(ctx->runtime->isa),
                 call->op->upcasts && coi_is_half(call->out[0]) ? " of float32" : "",
                 call->device->name, site);
}

static co_code
run_host_kernel(coi_call *call)
{
    const coi_op *op = call->op;
    bool is_reference = op->run == NULL || (call->ctx->special & COI_SPECIAL_REFERENCE) != 0;
    co_code (*kernel)(coi_call *) = is_reference ? op->ref : op->run;
    const char  *name = op->view       ? "view"
                        : is_reference ? "reference"
                                       : coi_isa_name(call->ctx->runtime->isa);
    coi_observed start;
    co_code      rc;

    if ((call->ctx->special & COI_SPECIAL_LOG) != 0 && !op->view)
        say_kernel(call, is_reference);
    coi_observe_begin(call, name, &start);
    rc = op->view ? CO_OK : op->upcasts ? coi_run_upcast(call, kernel) : kernel(call);
    coi_observe_end(call, name, &start, rc);
    return rc;
}

bool
coi_show_host_read(co_context *ctx, const co_value *tensor)
{
    return ctx->kernel_recorder->host_read(ctx->kernel_recorder, tensor);
}

void
coi_show_host_made(co_context *ctx, co_value *tensor)
{
    ctx->kernel_recorder->constant(ctx->kernel_recorder, tensor);
}

/* No observer is told: the kernel of a meta tensor does not run, and that of a constant runs for
 * the recorder. */
static co_code
record_kernel(coi_call *call)
{
    const coi_op        *op = call->op;
    coi_kernel_recorder *recorder = call->ctx->kernel_recorder;
    co_code (*kernel)(coi_call *) = op->run != NULL ? op->run : op->ref;
    co_code rc = CO_OK;

    if (!call->device->cpu_kernels && !op->view)
        return coi_end_recording(call->ctx, "a kernel of a backend");
    if (!op->view && !coi_is_meta(call->out[0]))
        rc = op->upcasts ? coi_run_upcast(call, kernel) : kernel(call);
    if (rc != CO_OK)
        return rc;
    recorder->kernel(recorder, call);
    return call->ctx->error.code;
}

static co_code
run_kernel_specially(coi_call *call)
{
    if (coi_records_kernels(call->ctx))
        return record_kernel(call);
    return call->device->cpu_kernels || call->op->view ? run_host_kernel(call)
                                                       : coi_run_on_device(call, run_host_kernel);
}

/* All kernels start here. A view has no kernel; its start is still shown to observers. */
ALWAYS_INLINE co_code
run_kernel(coi_call *call)
{
    if (coi_is_special(call->ctx) || !call->device->cpu_kernels)
        return run_kernel_specially(call);
    if (call->op->view)
        return CO_OK;
    if (call->op->upcasts && coi_is_half(call->out[0]))
        return coi_run_upcast(call, call->op->run != NULL ? call->op->run : call->op->ref);
    return call->op->run != NULL ? call->op->run(call) : call->op->ref(call);
}

/* Rule, outputs, kernel, tape. The numbers are the call's; where they are constants, loops
 * vanish. */
ALWAYS_INLINE bool
run(coi_call *call, int num_in, int num_out, const uint32_t *nodes)
{
    co_context   *ctx = call->ctx;
    const coi_op *op = call->op;
    coi_out       outs[COI_MAX_OUTPUTS];

    if (!check_dtypes(call, num_in) || op->infer(call, outs) != CO_OK)
        return false;
    if (coi_records_kernels(ctx)) {
        if (!make_recorded_outputs(call, outs))
            return false;
    } else {
        for (int i = 0; i < num_out; ++i)
            if ((call->out[i] = make_output(call, &outs[i])) == NULL)
                return false;
    }
    if (run_kernel(call) != CO_OK)
        return false;
    return !ctx->recording || op->not_differentiable ||
           (nodes != NULL ? record(call, nodes) : record_in_place(call));
}

bool
coi_check_count(coi_call *call)
{
    const coi_op *op = call->op;

    if (op->variadic ? call->num_in >= 1 : call->num_in == op->num_inputs)
        return true;
    coi_invalid(call, "%d input%s; it takes %s%d", call->num_in, COI_S(call->num_in),
                op->variadic ? "at least " : "", op->variadic ? 1 : op->num_inputs);
    return false;
}

/* Any call: the operands may be whatever converts. */
static co_code
apply(co_context *ctx, const coi_op *op, co_value *const *given, int num_given, const void *attrs,
      co_value **outs)
{
    coi_call call = { .ctx = ctx,
                      .op = op,
                      .device = coi_current_device(ctx),
                      .num_in = num_given,
                      .num_out = op->num_outputs,
                      .attrs = attrs };
    operands o;
    bool     ok;

    if (ctx->infers_types && coi_are_types(ctx, given, num_given))
        return coi_infer_many(ctx, op, given, num_given, attrs, outs);
    if (call.device == NULL || !coi_check_count(&call) || !make_room(&call, &o))
        return ctx->error.code;
    ok = convert(&call, &o, given) && run(&call, num_given, call.num_out, o.nodes);
    drop_operands(&call, &o, given);
    for (int i = 0; i < call.num_out; ++i)
        if (!ok)
            coi_unref(&ctx->heap, call.out[i]);
        else if ((outs[i] = coi_own(ctx, call.out[i])) == NULL)
            ok = false;
    return ctx->error.code;
}

co_code
coi_apply_many(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
               const void *attrs, co_value **outs)
{
    co_value *all[COI_MAX_OUTPUTS];

    COI_ENTER_CODE(ctx, op->name);
    if (op->training == NULL || !ctx->recording)
        return apply(ctx, op, given, num_given, attrs, outs);
    if (apply(ctx, op->training, given, num_given, attrs, all) == CO_OK)
        memcpy(outs, all, op->num_outputs * sizeof(*outs));
    return ctx->error.code;
}

static inline bool
are_in_place(const co_context *ctx, const co_device *device, co_value *const *given, int n)
{
    for (int i = 0; i < n; ++i)
        if (given[i] == NULL || !coi_is_live(&ctx->heap, given[i]) ||
            given[i]->kind != CO_KIND_TENSOR || given[i]->u.tensor.device != device)
            return false;
    return n > 0 ||
           device != NULL; /* operands are somewhere; without any the device may not be there */
}

/* The straight way to one result: the operands are few, and tensors in place, which most are.
 * Others take the long way. */
ALWAYS_INLINE co_value *
apply_one(co_context *ctx, const coi_op *op, co_value *const *given, int n, const void *attrs)
{
    coi_call  call;
    co_value *out = NULL;

    COI_ENTER(ctx, op->name, NULL);
    call.device = ctx->device;
    if (op->num_inputs != n || n > FEW_OPERANDS || ctx->infers_types ||
        !are_in_place(ctx, call.device, given, n))
        return apply(ctx, op, given, n, attrs, &out) == CO_OK ? out : NULL;
    call.ctx = ctx;
    call.op = op;
    call.in = (co_value **)(uintptr_t)given;
    call.num_in = n;
    call.attrs = attrs;
    call.num_out = 1;
    call.out[0] = NULL;
    call.row_strides = NULL;
    call.epilogue = NULL;
    if (run(&call, n, 1, NULL))
        return coi_own(ctx, call.out[0]);
    coi_unref(&ctx->heap, call.out[0]);
    return NULL;
}

co_value *
coi_apply(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
          const void *attrs)
{
    return apply_one(ctx, op, given, num_given, attrs);
}

co_value *
coi_apply1(co_context *ctx, const coi_op *op, co_value *x, const void *attrs)
{
    return apply_one(ctx, op, &x, 1, attrs);
}

co_value *
coi_apply2(co_context *ctx, const coi_op *op, co_value *x, co_value *y, const void *attrs)
{
    co_value *const given[2] = { x, y };

    return apply_one(ctx, op, given, 2, attrs);
}

/* Memory that is new has to be brought into the cache before it is written, which for little of it
 * does not count. */
static bool
may_take(const coi_grad *grad, co_value *const given[2])
{
    const co_context *ctx = grad->ctx;
    co_value         *from = given[1];

    return grad->owns_upstream && !ctx->recording && (ctx->special & COI_SPECIAL_REFERENCE) == 0 &&
           are_in_place(ctx, ctx->device, given, 2) && ctx->device->cpu_kernels &&
           given[0]->dtype == from->dtype && from->u.tensor.num_elements > COI_PARALLEL_ELEMENTS &&
           coi_same_shape(given[0], from) && coi_is_private(from);
}

co_value *
coi_apply_backward(const coi_grad *grad, const coi_op *op, co_value *x)
{
    co_context     *ctx = grad->ctx;
    co_value       *given[2] = { x, grad->upstream[0] };
    const co_value *from = given[1];
    coi_call call = { .ctx = ctx, .op = op, .device = ctx->device, .in = given, .num_in = 2 };

    if (!may_take(grad, given))
        return coi_apply2(ctx, op, given[0], given[1], NULL);
    COI_ENTER(ctx, op->name, NULL);
    call.num_out = 1;
    call.out[0] = coi_tensor_view(&ctx->heap, given[1], from->u.tensor.dims, from->ndim,
                                  from->u.tensor.num_elements, 0, coi_err(ctx));
    if (call.out[0] == NULL)
        coi_failed(ctx);
    else if (check_dtypes(&call, 2) && run_kernel(&call) == CO_OK)
        return coi_own(ctx, call.out[0]);
    coi_unref(&ctx->heap, call.out[0]);
    return NULL;
}

bool
coi_convert_host_operands(coi_call *call, co_value *const *given)
{
    co_context *ctx = call->ctx;
    co_dtype    dtype = call->op->same_dtype ? coi_dtype_beside(given, call->num_in, call->in)
                                             : CO_DTYPE_NONE;

    for (int i = 0; i < call->num_in; ++i) {
        if (call->in[i] != NULL)
            continue;
        call->in[i] = coi_give(ctx, coi_as_tensor(ctx, given[i], dtype));
        if (call->in[i] == NULL)
            return false;
        coi_note_host_made(ctx, call->in[i]);
    }
    return true;
}

/* A variable on the device of the call as a tensor that leads to its node, without an operator
 * between them: gradients that are slices stay so. NULL without an error: it is elsewhere. */
static co_value *
read_in_place(coi_call *call, co_value *variable)
{
    co_context *ctx = call->ctx;
    co_value   *tensor = coi_as_tensor(ctx, variable, CO_DTYPE_NONE), *view;

    coi_note_operand(ctx, variable, tensor);
    if (tensor == NULL || !ctx->recording || tensor->u.tensor.device != call->device) {
        bool is_there = tensor != NULL && tensor->u.tensor.device == call->device;

        if (is_there)
            return coi_give(ctx, tensor);
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    view = coi_tensor_view(&ctx->heap, tensor, tensor->u.tensor.dims, tensor->ndim,
                           tensor->u.tensor.num_elements, 0, coi_err(ctx));
    if (view != NULL)
        coi_tape_mark(ctx->tapes, view, coi_tape_node(ctx, variable, tensor));
    coi_note_operand(ctx, tensor, view);
    coi_unref(&ctx->heap, tensor);
    return coi_give(ctx, view);
}

/* Operands as tensors in place that lead to their nodes, values of the block. What is no tensor is
 * read by an operator. */
static bool
place(coi_call *call, co_value *const *given)
{
    co_context *ctx = call->ctx;

    for (int i = 0; i < call->num_in; ++i) {
        co_value *value = given[i];

        if (!coi_check_value(ctx, value, i + 2, input_name(call->op, i)) ||
            !coi_may_be_operand(call, value))
            return false;
        call->in[i] = NULL;
        if (coi_host_dtype(value) != CO_DTYPE_NONE)
            continue;
        if (are_in_place(ctx, call->device, &value, 1))
            call->in[i] = value;
        else if (coi_is_variable(value))
            call->in[i] = read_in_place(call, value);
        if (call->in[i] == NULL && ctx->error.code == CO_OK)
            call->in[i] = coi_apply1(ctx, &coi_op_identity, value, NULL);
        if (call->in[i] == NULL)
            return false;
    }
    return coi_convert_host_operands(call, given);
}

/* Checks, parts, and the record of an operator that has a gradient of its own. */
static co_value *
composite(coi_call *call, const uint32_t *nodes)
{
    co_context   *ctx = call->ctx;
    const coi_op *op = call->op;
    bool          recording = ctx->recording;
    coi_out       outs[COI_MAX_OUTPUTS];

    if (!check_dtypes(call, call->num_in) ||
        (!op->composes_checked && op->infer(call, outs) != CO_OK))
        return NULL;
    call->num_out = 1; /* a rule may have counted the parts of a tuple */
    ctx->recording = recording && op->grad == NULL && !op->not_differentiable;
    call->out[0] = op->composite(call);
    ctx->recording = recording;
    if (call->out[0] == NULL || ctx->error.code != CO_OK)
        return NULL;
    if (recording && op->grad != NULL && !record(call, nodes))
        return NULL;
    return call->out[0];
}

/* Its parts are shown inside it. */
static co_value *
composite_observed(coi_call *call, const uint32_t *nodes)
{
    coi_observed start;
    co_value    *result;

    coi_observe_begin(call, "composite", &start);
    ++call->ctx->depth;
    result = composite(call, nodes);
    --call->ctx->depth;
    call->out[0] = result;
    coi_observe_end(call, "composite", &start, call->ctx->error.code);
    return result;
}

co_value *
coi_apply_composite(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
                    const void *attrs)
{
    coi_call  call = { .ctx = ctx, .op = op, .num_in = num_given, .num_out = 1, .attrs = attrs };
    operands  o;
    co_value *result = NULL;

    COI_ENTER(ctx, op->name, NULL);
    if (ctx->infers_types && coi_are_types(ctx, given, num_given))
        return coi_infer_composite(ctx, op, given, num_given, attrs);
    call.device = coi_current_device(ctx);
    if (call.device == NULL || !coi_check_count(&call) || !make_room(&call, &o))
        return NULL;
    co_block_begin(ctx); /* the parts go with it */
    ctx->call = op->name;
    if (ctx->error.code == CO_OK && place(&call, given)) {
        ctx->call = op->name;
        for (int i = 0; ctx->recording && i < num_given; ++i)
            o.nodes[i] = coi_tape_node(ctx, call.in[i], call.in[i]);
        result = coi_is_observed(ctx) ? composite_observed(&call, o.nodes)
                                      : composite(&call, o.nodes);
        if (result != NULL)
            coi_ref(result);
    }
    co_block_end(ctx);
    if (o.room > 0)
        coi_small_free(&ctx->heap, call.in, o.room);
    if (ctx->error.code != CO_OK)
        ctx->error.call = op->name; /* what was called, and not the part that failed */
    return result != NULL ? coi_own(ctx, result) : NULL;
}

co_value *
coi_apply_composite_list(co_context *ctx, const coi_op *op, co_value *xs, const void *attrs)
{
    COI_ENTER(ctx, op->name, NULL);
    if (!coi_check_value(ctx, xs, 2, op->inputs[0]))
        return NULL;
    if (!coi_is_sequence(xs)) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s: %s is %s; it must be a list or tuple of tensors",
                 op->name, op->inputs[0], coi_a_kind(xs->kind));
        return NULL;
    }
    return coi_apply_composite(ctx, op, xs->u.items.items, (int)xs->u.items.n, attrs);
}

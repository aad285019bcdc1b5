/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of an operator's results from those of its operands, by its rule alone: nothing runs,
 * and nothing goes on the tape. Host numbers and tensors may stand among the specs; a rule may then
 * look at their elements.
 */
#include "ops/engine/call_recording.h"
#include "ops/engine/composite.h"
#include "ops/engine/gradient.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/type_rules.h"

static co_value *
spec_of(co_context *ctx, const coi_out *out)
{
    return coi_spec(ctx, out->dtype, out->dims, out->ndim);
}

/* What indexed slices are as a tensor: how many rows it has is in their dense shape, if anywhere.
 */
static co_value *
slices_spec(co_context *ctx, const co_value *slices)
{
    const co_value *values = slices->u.slices.values;
    coi_out         out;

    coi_out_like(&out, values);
    if (out.ndim > 0)
        out.dims[0] = COI_UNKNOWN;
    return spec_of(ctx, &out);
}

/* A spec, or one that stands for a value of the function that is being captured: a spec of the user
 * is no value of it, but those are that steps of the library give while nothing is recorded. */
static co_value *
operand_type(coi_call *call, co_value *value)
{
    co_context *ctx = call->ctx;

    if (value->kind == CO_KIND_SYMBOLIC && value->dtype == CO_DTYPE_NONE) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s: an operation has no value, so it is no operand",
                 call->op->name);
        return NULL;
    }
    if (value->kind == CO_KIND_SYMBOLIC)
        return coi_own_symbol(ctx, value);
    if (value->kind == CO_KIND_SPEC &&
        (value->dtype == CO_DTYPE_NONE || (coi_is_capturing(ctx) && ctx->type_recorder != NULL))) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s: a spec%s is no operand", call->op->name,
                 value->dtype == CO_DTYPE_NONE ? " without a dtype" : "");
        return NULL;
    }
    return value;
}

/* The type of a variable, which leads to its node on the tape. */
static co_value *
variable_type(co_context *ctx, co_value *variable)
{
    co_value *spec = coi_fresh_type(ctx, variable);

    if (spec != NULL && ctx->recording)
        coi_tape_mark(ctx->tapes, spec, coi_tape_variable(ctx, variable));
    return spec;
}

/* A spec or a tensor, of the block; NULL with an error. */
static co_value *
type_of(coi_call *call, co_value *value)
{
    co_context *ctx = call->ctx;

    if (coi_is_distributed(value) && coi_is_capturing(ctx))
        value = coi_may_be_operand(call, value) ? coi_component_here(ctx, value) : NULL;
    if (value == NULL)
        return NULL;
    if (value->kind == CO_KIND_TENSOR)
        return value;
    if (coi_is_type(value))
        return operand_type(call, value);
    if (coi_is_variable(value))
        return variable_type(ctx, value);
    if (value->kind == CO_KIND_SLICES)
        return slices_spec(ctx, value);
    return coi_give(ctx, coi_as_tensor(ctx, value, CO_DTYPE_NONE));
}

static const char *
input_name(const coi_op *op, int i)
{
    return op->inputs[op->variadic ? 0 : i];
}

/* As apply.c converts operands: what has a dtype first, then host numbers, which take it from the
 * others. */
static bool
read_operands(coi_call *call, co_value *const *given)
{
    co_context *ctx = call->ctx;

    for (int i = 0; i < call->num_in; ++i) {
        if (!coi_check_value(ctx, given[i], i + 2, input_name(call->op, i)))
            return false;
        call->in[i] = NULL;
        if (coi_host_dtype(given[i]) == CO_DTYPE_NONE &&
            (call->in[i] = type_of(call, given[i])) == NULL)
            return false;
    }
    return coi_convert_host_operands(call, given);
}

static co_value *
tuple_of_results(coi_call *call)
{
    co_context *ctx = call->ctx;
    co_value  **specs;
    coi_out     out;

    if (call->num_out < 0 && ctx->infers_types && ctx->type_recorder != NULL) {
        coi_invalid(call, "the number of results depends on an unknown dimension; "
                          "give x a type with this dimension");
        return NULL;
    }
    if (call->num_out < 0)
        return co_none(ctx);
    specs = coi_parts(ctx, call->op->name, (size_t)call->num_out);
    for (int i = 0; specs != NULL && i < call->num_out; ++i) {
        call->op->infer_result(call, i, &out);
        specs[i] = spec_of(ctx, &out);
    }
    return specs != NULL ? coi_tuple_of_parts(ctx, specs, (size_t)call->num_out) : NULL;
}

/* The recorder decides what the result is. */
static co_value *
show_recorder(const coi_call *call, co_value *const *given, co_value *result)
{
    const coi_type_recorder *recorder = call->ctx->type_recorder;

    return recorder != NULL && call->ctx->infers_types
               ? recorder->record(call->ctx, recorder->data, call->op, call->attrs, given,
                                  call->num_in, result)
               : result;
}

static bool
are_plain(const coi_call *call, co_value *const *given)
{
    for (int i = 0; i < call->num_in; ++i)
        if (given[i] != call->in[i] && coi_host_dtype(given[i]) == CO_DTYPE_NONE)
            return false;
    return true;
}

static bool
all_shapes_are_known(const coi_call *call)
{
    for (int i = 0; i < call->num_in; ++i)
        if (!coi_is_known_shape(call->in[i]))
            return false;
    return true;
}

static bool
has_known_parts(const coi_call *call)
{
    const coi_op *op = call->op;

    return op->composite != NULL && op->grad == NULL && !op->not_differentiable &&
           (op->parts_are_known != NULL ? op->parts_are_known : all_shapes_are_known)(call);
}

/* Parts are recorded with the operands themselves, which variables and the like are not. */
static bool
is_taken_apart(const coi_call *call, co_value *const *given)
{
    return call->ctx->type_recorder != NULL && !coi_is_capturing(call->ctx) &&
           are_plain(call, given) && has_known_parts(call);
}

/* What the rule says; the results are of the block. */
static co_value *
infer_results(coi_call *call, const coi_out *outs, co_value **specs)
{
    const coi_op *op = call->op;

    if (op->infer_result != NULL)
        return tuple_of_results(call);
    for (int i = 0; i < op->num_outputs; ++i)
        if ((specs[i] = spec_of(call->ctx, &outs[i])) == NULL)
            return NULL;
    return op->num_outputs == 1 ? specs[0] : co_tuple(call->ctx, specs, op->num_outputs);
}

static uint32_t
node_of(co_context *ctx, const co_value *in)
{
    const coi_tape_log *log = ctx->tapes;

    if (in->tape_epoch == log->epoch)
        return in->tape_node;
    return log->num_watched > 0 ? coi_tape_watched(log, in) : COI_NO_NODE;
}

/* A tape of types: what a captured function's gradients are of. The operator is on it as a tensor's
 * is, so that gradients know what they reach and which of them are slices. */
static bool
record_types(coi_call *call, co_value *const *results, int num_results)
{
    co_context *ctx = call->ctx;
    bool        watched = false, floating = false;
    uint32_t    few[COI_MAX_INPUT_NAMES], *nodes = few;
    size_t      nbytes = (size_t)call->num_in * sizeof(*nodes);
    bool        ok;

    if (call->num_in > COI_MAX_INPUT_NAMES &&
        (nodes = coi_small_alloc(&ctx->heap, nbytes)) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradient tape");
        return false;
    }
    for (int i = 0; i < call->num_in; ++i) {
        nodes[i] = node_of(ctx, call->in[i]);
        watched = watched || nodes[i] != COI_NO_NODE;
    }
    for (int i = 0; i < num_results; ++i)
        floating = floating || coi_dtypes[results[i]->dtype].floating;
    ok = !watched || !floating ||
         coi_tape_record(ctx, call->op, call->attrs, call->op->attrs_rule.size, call->in, nodes,
                         call->num_in, results, num_results);
    if (nodes != few)
        coi_small_free(&ctx->heap, nodes, nbytes);
    return ok;
}

/* The results of a composite operator by its parts, which the tape sees and the recorder does not:
 * the function holds the whole. */
static co_value *
infer_by_parts(coi_call *call)
{
    co_context                     *ctx = call->ctx;
    const struct coi_type_recorder *recorder = ctx->type_recorder;
    co_value                       *result;

    ctx->type_recorder = NULL;
    result = call->op->composite(call);
    ctx->type_recorder = recorder;
    return ctx->error.code == CO_OK ? result : NULL;
}

/* Of an operator of a captured function. */
static co_value *
infer_captured(coi_call *call, const coi_out *outs)
{
    co_context *ctx = call->ctx;
    co_value   *specs[COI_MAX_OUTPUTS], *result;
    bool        is_recorded = ctx->recording && !call->op->not_differentiable;

    if (is_recorded && has_known_parts(call))
        return infer_by_parts(call);
    result = infer_results(call, outs, specs);
    if (result == NULL || !is_recorded)
        return result;
    return record_types(call, coi_is_structure(result) ? result->u.items.items : &result,
                        coi_is_structure(result) ? (int)result->u.items.n : 1)
               ? result
               : NULL;
}

static co_value *
infer(coi_call *call, co_value *const *given, bool may_take_apart)
{
    const coi_op *op = call->op;
    co_value     *specs[COI_MAX_OUTPUTS], *result;
    coi_out       outs[COI_MAX_OUTPUTS];

    if (!coi_check_count(call) || !read_operands(call, given) || !coi_check_dtypes(call) ||
        op->infer(call, outs) != CO_OK)
        return NULL;
    if (may_take_apart && is_taken_apart(call, given))
        return op->composite(call);
    result = coi_is_capturing(call->ctx) ? infer_captured(call, outs)
                                         : infer_results(call, outs, specs);
    return result != NULL ? show_recorder(call, given, result) : NULL;
}

/* Composite values and lists of symbolic tensors as operands: tensors by operators, which the
 * function and its tapes see. */
static bool
convert_structures(co_context *ctx, co_value *const *given, int n, co_value **plain)
{
    for (int i = 0; i < n; ++i) {
        co_value *value = given[i];

        if (value != NULL && coi_is_live(&ctx->heap, value) && coi_is_composite(value))
            value = coi_densify(ctx, value);
        else if (value != NULL && coi_is_live(&ctx->heap, value) && coi_is_structure(value) &&
                 coi_host_dtype(value) == CO_DTYPE_NONE)
            value = coi_stack(ctx, value);
        if (ctx->error.code != CO_OK)
            return false;
        plain[i] = value;
    }
    return true;
}

static bool
has_structures(const co_context *ctx, co_value *const *given, int n)
{
    for (int i = 0; i < n; ++i)
        if (given[i] != NULL && coi_is_live(&ctx->heap, given[i]) &&
            (coi_is_composite(given[i]) || coi_is_structure(given[i])))
            return true;
    return false;
}

static co_value *
infer_plain(coi_call *call, co_value *const *given, bool may_take_apart)
{
    co_context *ctx = call->ctx;
    size_t      n = (size_t)call->num_in;
    co_value  **plain, *result = NULL;

    if (!coi_is_capturing(ctx) || !has_structures(ctx, given, call->num_in))
        return infer(call, given, may_take_apart);
    plain = coi_parts(ctx, call->op->name, n);
    if (plain != NULL && convert_structures(ctx, given, call->num_in, plain)) {
        ctx->call = call->op->name;
        result = infer(call, plain, may_take_apart);
    }
    if (plain != NULL)
        coi_free_parts(ctx, plain, n);
    return result;
}

static co_value *
infer_in_block(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
               const void *attrs, bool may_take_apart)
{
    co_value *few[COI_MAX_INPUT_NAMES];
    coi_call  call = { .ctx = ctx, .op = op, .in = few, .num_in = num_given, .attrs = attrs };
    bool      is_many = num_given > COI_MAX_INPUT_NAMES;
    co_value *result = NULL;

    COI_ENTER(ctx, op->name, NULL);
    call.num_out = op->num_outputs;
    if (is_many && (call.in = coi_parts(ctx, op->name, (size_t)num_given)) == NULL)
        return NULL;
    co_block_begin(ctx); /* what operands become goes with it */
    ctx->call = op->name;
    if (ctx->error.code == CO_OK && (result = infer_plain(&call, given, may_take_apart)) != NULL)
        coi_ref(result);
    co_block_end(ctx);
    if (is_many)
        coi_free_parts(ctx, call.in, (size_t)num_given);
    if (ctx->error.code != CO_OK)
        ctx->error.call = op->name;
    return result != NULL ? coi_own(ctx, result) : NULL;
}

co_value *
coi_infer(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
          const void *attrs)
{
    return infer_in_block(ctx, op, given, num_given, attrs, false);
}

co_value *
coi_infer_composite(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
                    const void *attrs)
{
    return infer_in_block(ctx, op, given, num_given, attrs, true);
}

co_code
coi_infer_many(co_context *ctx, const coi_op *op, co_value *const *given, int num_given,
               const void *attrs, co_value **outs)
{
    co_value *result = coi_infer(ctx, op, given, num_given, attrs);

    for (int i = 0; result != NULL && i < op->num_outputs; ++i)
        outs[i] = op->num_outputs == 1 ? result : co_at(ctx, result, (size_t)i);
    return ctx->error.code;
}

bool
coi_are_types(const co_context *ctx, co_value *const *given, int num_given)
{
    if (coi_is_capturing(ctx))
        return true;
    for (int i = 0; i < num_given; ++i)
        if (given[i] != NULL && coi_is_live(&ctx->heap, given[i]) && given[i]->kind == CO_KIND_SPEC)
            return true;
    return false;
}

static bool
have_ranks(co_value *const *values, int n)
{
    for (int i = 0; i < n; ++i)
        if (values[i] != NULL && coi_is_unknown_rank(values[i]))
            return false;
    return true;
}

bool
coi_grad_with_ranks(const coi_grad *grad)
{
    return have_ranks(grad->in, grad->num_in) && have_ranks(grad->upstream, grad->num_out);
}

bool
coi_parts_of_any(const coi_call *call)
{
    (void)call;
    return true;
}

bool
coi_parts_with_ranks(const coi_call *call)
{
    return have_ranks(call->in, call->num_in);
}

/* Whether a gradient, which has the shape of its operand, knows less of it than the operand. */
static bool
knows_less(const co_value *gradient, const co_value *operand)
{
    bool less = operand->ndim >= 0 && gradient->ndim < 0;

    for (int d = 0; !less && d < gradient->ndim && d < operand->ndim; ++d)
        less = gradient->u.tensor.dims[d] < 0 && operand->u.tensor.dims[d] >= 0;
    return less;
}

/* A view with the type of the operand takes the place of such a gradient. */
static void
know_operands(coi_grad *grad)
{
    for (int i = 0; i < grad->num_in; ++i) {
        co_value *gradient = grad->grads[i];

        if (gradient != NULL && coi_is_type(gradient) && knows_less(gradient, grad->in[i]))
            grad->grads[i] = coi_reshape_like(grad->ctx, gradient, grad->in[i]);
    }
}

co_code
coi_infer_gradient(coi_grad *grad)
{
    const coi_op *op = grad->op;
    co_context   *ctx = grad->ctx;
    bool          before = ctx->infers_types;
    bool    is_known = op->grad != NULL && (op->grad_is_known == NULL || op->grad_is_known(grad));
    co_code code;

    ctx->infers_types = true;
    code = is_known ? op->grad(grad) : coi_defer_gradient(grad);
    if (code == CO_OK)
        know_operands(grad);
    ctx->infers_types = before;
    return ctx->error.code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See call_recording.h. */
#include "ops/engine/call_recording.h"

#include "base/text.h"

co_code
coi_recorded_effect(co_context *ctx, coi_effect *effect)
{
    (void)effect;
    return coi_fail(ctx, CO_RUNTIME_ERROR, "an entry of captured functions was started by itself");
}

co_value *
coi_record_call(co_context *ctx, const coi_op *op, const void *attrs, co_value *const *in,
                int num_in, co_value *result)
{
    const coi_type_recorder *recorder = ctx->type_recorder;

    if (result == NULL || recorder == NULL)
        return result; /* types alone are asked for */
    return recorder->record(ctx, recorder->data, op, attrs, in, num_in, result);
}

bool
coi_check_host_state(co_context *ctx, const char *what)
{
    if (!coi_is_capturing(ctx) || ctx->capture->is_graph)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR,
             "%s asks the host for %s while a function is captured, and all calls of the function "
             "would have the answer of now; ask outside of it, and give what depends on it to the "
             "function as an argument, or keep a count of your own in a variable",
             ctx->call, what);
    return false;
}

co_value *
coi_own_symbol(co_context *ctx, co_value *symbol)
{
    coi_capture *capture = ctx->capture;

    if (capture == NULL) {
        coi_fail_symbolic(ctx, symbol);
        return NULL;
    }
    return symbol->u.symbol.program == capture->program ? symbol
                                                        : capture->adopt(ctx, capture, symbol);
}

static co_value *
own_leaf(co_context *ctx, co_value *leaf, void *user)
{
    (void)user;
    return leaf->kind == CO_KIND_SYMBOLIC ? coi_own_symbol(ctx, leaf) : leaf;
}

co_value *
coi_own_symbols(co_context *ctx, co_value *value)
{
    return coi_is_structure(value) ? coi_map_leaves(ctx, value, own_leaf, NULL)
                                   : own_leaf(ctx, value, NULL);
}

static co_value *
fresh_leaf(co_context *ctx, co_value *leaf, void *user)
{
    const coi_kind_ops *row = coi_kind_of(leaf);
    coi_shape           shape;
    co_dtype            dtype;

    (void)user;
    if (row->describe == NULL)
        return leaf;
    row->describe(leaf, &shape, &dtype);
    return coi_give(ctx, coi_tensor_spec(&ctx->heap, dtype, shape.dims, shape.ndim, coi_err(ctx)));
}

co_value *
coi_fresh_type(co_context *ctx, co_value *value)
{
    return coi_is_structure(value) ? coi_map_leaves(ctx, value, fresh_leaf, NULL)
                                   : fresh_leaf(ctx, value, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public conversions to a tensor, here or on another device. While a tape is open they are made of
 * operators, so that gradients pass: a variable is read by identity, composite values as their kind
 * says, lists are concatenated. The plain conversion is in context/convert.c.
 */
#include "ops/engine/call_recording.h"
#include "ops/engine/composite_values.h"
#include "ops/engine/gradient.h"
#include "ops/engine/op.h"

/* Entries of other files. */
COI_USES_OP(identity)

/* The leaves of a list as vectors of one dtype, joined. */
static co_value *
join_leaves(co_context *ctx, co_value *list, co_dtype dtype)
{
    size_t     n = coi_count_leaves(list), nbytes = (n + 1) * sizeof(co_value *);
    co_value **leaves = coi_small_alloc(&ctx->heap, nbytes), *joined = NULL;

    if (leaves == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu leaves", n);
        return NULL;
    }
    coi_collect_leaves(list, leaves);
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        leaves[i] = co_to_tensor(ctx, leaves[i], dtype);
        leaves[i] = co_reshape(ctx, leaves[i], (const int64_t[]){ -1 }, 1);
    }
    if (ctx->error.code == CO_OK)
        joined = co_concat(ctx, co_list(ctx, leaves, n), 0);
    coi_small_free(&ctx->heap, leaves, nbytes);
    return joined;
}

/* While a function is captured: level by level, of operators. */
static co_value *
stack_captured(co_context *ctx, co_value *list)
{
    size_t     n = list->u.items.n, nbytes = (n + 1) * sizeof(co_value *);
    co_value **items = coi_small_alloc(&ctx->heap, nbytes), *whole = NULL;

    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu items", n);
        return NULL;
    }
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        items[i] = list->u.items.items[i];
        if (coi_is_sequence(items[i]) && coi_host_dtype(items[i]) == CO_DTYPE_NONE)
            items[i] = stack_captured(ctx, items[i]);
    }
    if (ctx->error.code == CO_OK)
        whole = co_stack(ctx, co_list(ctx, items, n), 0);
    coi_small_free(&ctx->heap, items, nbytes);
    return whole;
}

co_value *
coi_stack(co_context *ctx, co_value *list)
{
    co_value *whole;

    if (coi_is_capturing(ctx) && coi_is_sequence(list) && list->u.items.n > 0)
        return stack_captured(ctx, list);
    whole = coi_give(ctx, coi_as_tensor(ctx, list, CO_DTYPE_NONE));

    if (whole == NULL || whole->u.tensor.num_elements == 0)
        return whole;
    return co_reshape(ctx, join_leaves(ctx, list, (co_dtype)whole->dtype), whole->u.tensor.dims,
                      whole->ndim);
}

/* The conversion by operators for what needs one, else by copying: a value of the block. */
static co_value *
convert(co_context *ctx, co_value *value, co_dtype dtype)
{
    bool by_operators = ctx->recording || coi_is_capturing(ctx);

    if (coi_is_capturing(ctx) && coi_is_distributed(value) &&
        (value = coi_component_here(ctx, value)) == NULL)
        return NULL;
    if (value->kind == CO_KIND_SYMBOLIC)
        return coi_own_symbol(ctx, value);
    if (by_operators && coi_is_variable(value))
        return co_identity(ctx, value);
    if (by_operators && coi_is_composite(value))
        return coi_densify(ctx, value);
    if (by_operators && coi_is_structure(value) && coi_host_dtype(value) == CO_DTYPE_NONE)
        return coi_stack(ctx, value);
    return coi_give(ctx, coi_as_tensor(ctx, value, dtype));
}

co_value *
co_to_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    co_value *tensor;

    COI_ENTER(ctx, "to_tensor", NULL);
    if (!coi_check_value(ctx, value, 2, "value"))
        return NULL;
    if ((unsigned)dtype >= CO_NUM_DTYPES) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (dtype) of to_tensor is %d, which is no dtype", (int)dtype);
        return NULL;
    }
    tensor = convert(ctx, value, dtype);
    if (tensor != NULL && dtype != CO_DTYPE_NONE && tensor->dtype != dtype) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "a %s tensor is asked for as %s; use co_cast",
                 co_dtype_name((co_dtype)tensor->dtype), co_dtype_name(dtype));
        return NULL;
    }
    return tensor;
}

/* A tensor, or the components of a composite value (EXT-BC-3), on the device of ctx. */
static co_value *
copy_here(co_context *ctx, co_value *value)
{
    co_value *components[COI_MAX_COMPONENTS] = { NULL };

    if (!coi_is_composite(value))
        return coi_apply1(ctx, &coi_op_identity, value, NULL);
    for (size_t i = 0; i < coi_kind_of(value)->composite->n; ++i)
        if (value->u.components[i] != NULL)
            components[i] = coi_apply1(ctx, &coi_op_identity, value->u.components[i], NULL);
    return ctx->error.code == CO_OK ? coi_composite_give(ctx, value, components) : NULL;
}

co_value *
co_copy_to(co_context *ctx, co_value *value, const char *device)
{
    coi_device_name id;
    co_device      *target, *here;

    COI_ENTER(ctx, "copy_to", NULL);
    if (!coi_check_value(ctx, value, 2, "value") || coi_resolve_name(ctx, device, &id) != CO_OK)
        return NULL;
    if (coi_devices_find(ctx->runtime->devices, &id, &target, coi_err(ctx)) != CO_OK)
        return coi_give(ctx, NULL);
    if (ctx->capture != NULL && target != ctx->device) {
        coi_fail(
            ctx, CO_UNIMPLEMENTED,
            "copy_to another device cannot be captured in a function; use CO_DEVICE around what "
            "is to run there, or copy outside");
        return NULL;
    }
    if (coi_is_distributed(value))
        value = coi_component_here(ctx, value);
    if (value != NULL && !coi_is_composite(value))
        value = convert(ctx, value, CO_DTYPE_NONE);
    if (value == NULL)
        return NULL;
    here = ctx->device;
    ctx->device = target;
    value = copy_here(ctx, value);
    ctx->device = here;
    return value;
}

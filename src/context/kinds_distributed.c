/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of values with a part for each local replica: per-replica and mirrored ones. Where a
 * tensor is wanted, they give the part that the context sees (DV-USE-1 to DV-USE-3).
 */
#include "context/context.h"

co_value *
coi_component_here(co_context *ctx, co_value *value)
{
    size_t n = value->u.per_replica.n;

    if (ctx->mode.update_id >= 0 && (size_t)ctx->mode.update_id < n)
        return value->u.per_replica.items[ctx->mode.update_id];
    if (coi_in_replica(ctx)) { /* mirrored parts are equal: an unused part is no loss */
        if ((size_t)ctx->mode.local_replica < n &&
            (!coi_is_per_replica(value) || n <= (size_t)ctx->mode.num_local))
            return value->u.per_replica.items[ctx->mode.local_replica];
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s of %zu component%s is used in a step of %d replica%s here; make it with "
                 "the strategy that runs the step, or use its parts: co_local_results",
                 coi_a_kind(value->kind), n, COI_S(n), ctx->mode.num_local,
                 COI_S(ctx->mode.num_local));
        return NULL;
    }
    if (coi_is_per_replica(value)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "a per-replica value is used as a tensor outside a replica; pass it to co_run, or "
                 "take its parts with co_local_results");
        return NULL;
    }
    for (size_t i = 0; i < n && ctx->mode.cross; ++i) {
        co_value *item = value->u.per_replica.items[i];

        if (item->kind == CO_KIND_TENSOR && item->u.tensor.device == ctx->device)
            return item;
    }
    return value->u.per_replica.items[0];
}

static co_value *
component_tensor(co_context *ctx, co_value *value, co_dtype dtype)
{
    co_value *part = coi_component_here(ctx, value);

    return part != NULL ? coi_as_tensor(ctx, part, dtype) : NULL;
}

static const char *
component_device(co_context *ctx, co_value *value)
{
    co_value   *tensor = coi_as_tensor(ctx, value, CO_DTYPE_NONE);
    const char *name;

    if (tensor == NULL)
        return "";
    name = tensor->u.tensor.device->name;
    coi_unref(&ctx->heap, tensor);
    return name;
}

static coi_values
items(const co_value *value)
{
    return (coi_values){ value->u.per_replica.items, value->u.per_replica.n };
}

static coi_values
parts_of_replicas(const co_value *value, bool *equal)
{
    *equal = coi_kind_of(value)->is_mirrored;
    return items(value);
}

static void
destroy(coi_heap *heap, co_value *value)
{
    coi_items_free(heap, value->u.per_replica.items, value->u.per_replica.n,
                   value->u.per_replica.room);
}

static void
print_per_replica(coi_printer *out, const co_value *value)
{
    coi_print_components(out, "PerReplica", items(value));
}

static void
print_mirrored(coi_printer *out, const co_value *value)
{
    coi_print_components(out, "Mirrored", items(value));
}

/* The type of a part, which may be a structure. */
static co_value *
part_type(coi_heap *heap, co_value *part, co_error_info *err)
{
    co_value *type;

    if (!coi_is_structure(part))
        return coi_type_of(heap, part, err);
    type = coi_structure_like(heap, part, err);
    for (size_t i = 0; type != NULL && i < type->u.items.n; ++i) {
        type->u.items.items[i] = part_type(heap, part->u.items.items[i], err);
        if (type->u.items.items[i] == NULL) {
            coi_unref(heap, type);
            return NULL;
        }
    }
    if (type != NULL)
        coi_structure_seal(type, err); /* no deeper than what it describes */
    return type;
}

/* DV-SPEC-1: the same kind, of the types of the parts. */
static co_value *
type(coi_heap *heap, co_value *value, co_error_info *err)
{
    co_value *made = coi_per_replica_new(heap, (co_kind)value->kind, value->u.per_replica.n, err);

    for (size_t i = 0; made != NULL && i < value->u.per_replica.n; ++i) {
        made->u.per_replica.items[i] = part_type(heap, value->u.per_replica.items[i], err);
        if (made->u.per_replica.items[i] == NULL) {
            coi_unref(heap, made);
            return NULL;
        }
    }
    if (made != NULL)
        coi_structure_seal(made, err);
    return made;
}

const coi_kind_ops coi_per_replica_kind = {
    .name = "per-replica value",
    .a_name = "a per-replica value",
    .is_distributed = true,
    .destroy = destroy,
    .print = print_per_replica,
    .type = type,
    .as_tensor = component_tensor,
    .device = component_device,
    .items = items,
    .replicas = parts_of_replicas,
};

const coi_kind_ops coi_mirrored_kind = {
    .name = "mirrored value",
    .a_name = "a mirrored value",
    .is_distributed = true,
    .is_mirrored = true,
    .destroy = destroy,
    .print = print_mirrored,
    .type = type,
    .as_tensor = component_tensor,
    .device = component_device,
    .items = items,
    .replicas = parts_of_replicas,
};

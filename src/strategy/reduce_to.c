/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reducing and copying to places: reduce_to, batch_reduce_to, broadcast_to. Sections 13.2, 13.3
 * and 13.7.
 */
#include <cohort/extended.h>

#include "function/function.h"
#include "strategy/comm_options.h"
#include "strategy/cross_replica_reduce.h"

#include <string.h>

/* The devices a destination stands for. */
typedef struct places {
    co_device *devices[COI_MAX_LOCAL_REPLICAS];
    size_t     n;
} places;

static bool
add_place(co_context *ctx, places *where, const coi_device_name *id)
{
    co_device *device;

    if (coi_devices_find(ctx->runtime->devices, id, &device, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    for (size_t i = 0; i < where->n; ++i)
        if (where->devices[i] == device)
            return true;
    where->devices[where->n++] = device;
    return true;
}

static bool
add_named(co_context *ctx, places *where, const char *text)
{
    coi_device_name id;

    if (*text == '\0') {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the destination is an empty string; name a device, or give a tensor or variable");
        return false;
    }
    return coi_resolve_name(ctx, text, &id) == CO_OK && add_place(ctx, where, &id);
}

/* A leaf that lives somewhere; a symbolic tensor of a captured function will live on `later`. */
static bool
add_value(co_context *ctx, places *where, co_value *value, const coi_device_name *later)
{
    if (value->kind == CO_KIND_TENSOR)
        return add_place(ctx, where, &value->u.tensor.device->id);
    if (value->kind == CO_KIND_SYMBOLIC)
        return add_place(ctx, where, later);
    for (size_t i = 0; coi_is_composite(value) && i < coi_kind_of(value)->composite->n; ++i)
        if (value->u.components[i] != NULL) /* the first that it has (EXT-RT-6) */
            return add_value(ctx, where, value->u.components[i], later);
    if (coi_is_variable(value) && value->u.variable->components == NULL)
        return add_named(ctx, where, value->u.variable->ops->device(ctx, value));
    coi_fail(
        ctx, CO_VALUE_ERROR,
        "%s is not a destination; it must be a device name, a tensor, indexed slices, a variable or a distributed value",
        coi_a_kind(value->kind));
    return false;
}

static bool
add_values(co_context *ctx, const co_strategy *strategy, places *where, coi_values parts)
{
    for (size_t i = 0; i < parts.n; ++i)
        if (!add_value(ctx, where, parts.items[i],
                       i < (size_t)strategy->num_local ? &strategy->devices[i] : &ctx->device_id))
            return false;
    return true;
}

/* NULL stands for none. A list is refused before anything else is looked at (EXT-RT-2,
 * OD-EXT-1). */
static bool
check_destination(co_context *ctx, co_value *destination, int position)
{
    if (destination == NULL)
        return true;
    if (!coi_check_value(ctx, destination, position, "destination"))
        return false;
    if (!coi_is_sequence(destination))
        return true;
    coi_fail(ctx, CO_ASSERTION_ERROR,
             "the destination is %s; give one device name or value at a time",
             coi_a_kind(destination->kind));
    return false;
}

static bool
find_places(co_context *ctx, const co_strategy *strategy, co_value *destination, places *where)
{
    coi_values parts;

    where->n = 0;
    if (destination == NULL || destination->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the destination is none; name a device, or give a tensor or variable");
        return false;
    }
    if (destination->kind == CO_KIND_STRING)
        return add_named(ctx, where, destination->u.string.data);
    parts = coi_replicas_of(destination, NULL);
    return parts.items != NULL ? add_values(ctx, strategy, where, parts)
                               : add_value(ctx, where, destination, &ctx->device_id);
}

/* A tensor, or a composite of tensors, on one device, or mirrored over several: a value of the
 * block. Other leaves live nowhere. */
static co_value *
put(co_context *ctx, co_value *leaf, const places *where)
{
    co_value *per_replica;

    if (leaf->kind != CO_KIND_TENSOR && !coi_is_composite(leaf))
        return coi_own_ref(ctx, leaf);
    if (where->n == 1 && coi_is_on(leaf, where->devices[0]))
        return coi_own_ref(ctx, leaf);
    if (where->n == 1)
        return coi_give(ctx, coi_copy_value(ctx, leaf, where->devices[0]));
    per_replica = coi_per_replica_new(&ctx->heap, CO_KIND_MIRRORED, where->n, coi_err(ctx));
    for (size_t i = 0; per_replica != NULL && i < where->n; ++i) {
        per_replica->u.per_replica.items[i] = coi_copy_value(ctx, leaf, where->devices[i]);
        if (per_replica->u.per_replica.items[i] == NULL) {
            coi_unref(&ctx->heap, per_replica);
            per_replica = NULL;
        }
    }
    return coi_give(ctx, per_replica);
}

typedef struct placing {
    co_strategy                    *strategy;
    co_reduce_op                    op;
    const places                   *where;
    const co_communication_options *options;
} placing;

/* EXT-RT-5: the mean of a mirrored value is itself; everything else is reduced, then put. */
static co_value *
reduce_and_put(co_context *ctx, co_value *leaf, void *user)
{
    const placing *p = user;
    co_value      *reduced;

    if (coi_kind_of(leaf)->is_mirrored && p->op == CO_REDUCE_MEAN)
        return coi_own_ref(ctx, leaf);
    reduced = coi_reduce_leaf(ctx, p->strategy, p->op, leaf);
    if (reduced != NULL && coi_is_variable(reduced))
        reduced = co_to_tensor(ctx, reduced, CO_DTYPE_NONE);
    return reduced != NULL ? put(ctx, reduced, p->where) : NULL;
}

/* --- while a function is captured --- */

typedef struct place_attrs {
    co_strategy             *strategy; /* a reference in a program */
    co_reduce_op             op;
    bool                     broadcasts;
    co_communication_options options;
} place_attrs;

static bool
hold_strategy(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const place_attrs *)from)->strategy);
    return true;
}

static void
drop_strategy(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((place_attrs *)attrs)->strategy);
}

static co_value *
replay_place(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const place_attrs *given = attrs;

    (void)num_in;
    return given->broadcasts
               ? co_broadcast_to_devices(ctx, given->strategy, in[0], in[1])
               : co_reduce_to_with(ctx, given->strategy, given->op, in[0], in[1], &given->options);
}

static bool
same_place(co_context *ctx, const void *a, const void *b)
{
    const place_attrs *first = a, *second = b;

    (void)ctx;
    return first->strategy == second->strategy && first->op == second->op &&
           first->broadcasts == second->broadcasts &&
           coi_is_same_communication(&first->options, &second->options);
}

const coi_op coi_op_place_captured = {
    COI_RECORDED("place_captured",
                 "Reduces or copies a value to devices; co_reduce_to, co_broadcast_to_devices.",
                 replay_place, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS),
    .attrs_rule = { COI_ATTRS_SIZE(place_attrs), hold_strategy, drop_strategy },
    .same_attrs = same_place,
};

/* The type of what put gives. */
static co_value *
put_type(co_context *ctx, co_value *type, size_t num_places)
{
    co_value *mirrored;

    if ((type->kind != CO_KIND_TENSOR && !coi_is_type(type) && !coi_is_composite(type)) ||
        num_places == 1)
        return coi_own_ref(ctx, type);
    mirrored = coi_give(ctx, coi_per_replica_new(&ctx->heap, CO_KIND_MIRRORED, num_places,
                                                 coi_err(ctx)));
    for (size_t i = 0; mirrored != NULL && i < num_places; ++i) {
        co_value *mine = coi_is_composite(type) ? coi_types_of_args(ctx, type)
                                                : coi_fresh_type(ctx, type);

        if (mine == NULL)
            return NULL;
        coi_ref(mine);
        mirrored->u.per_replica.items[i] = mine;
    }
    return mirrored;
}

static co_value *
placed_leaf(co_context *ctx, co_value *leaf, void *user)
{
    const placing *p = user;
    co_value      *type;

    if (coi_kind_of(leaf)->is_mirrored && p->op == CO_REDUCE_MEAN)
        return coi_own_ref(ctx, leaf);
    type = coi_reduced_type(ctx, p->strategy, p->op, leaf);
    if (type != NULL && coi_is_variable(type))
        type = coi_fresh_type(ctx, type);
    return type != NULL ? put_type(ctx, type, p->where->n) : NULL;
}

/* Records reduce_to; options are those of the call. */
static co_value *
capture_reduce_to(co_context *ctx, const placing *p, co_value *value, co_value *destination)
{
    place_attrs attrs = { p->strategy, p->op, false, CO_COMMUNICATION_OPTIONS_INIT };
    placing     asked = *p;

    if (p->options != NULL)
        attrs.options = *p->options;
    return coi_record_call(ctx, &coi_op_place_captured, &attrs,
                           (co_value *[]){ value, destination }, 2,
                           coi_map_leaves(ctx, value, placed_leaf, &asked));
}

static bool
check_op(co_context *ctx, co_reduce_op op)
{
    if ((unsigned)op <= CO_REDUCE_PROD)
        return true;
    coi_fail(
        ctx, CO_ASSERTION_ERROR,
        "argument 3 (op) of %s is %d, which is not a reduce operation; give one from CO_REDUCE_SUM (0) to CO_REDUCE_PROD (4)",
        ctx->call, (int)op);
    return false;
}

static co_value *
reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
          co_value *destination, const co_communication_options *options)
{
    places  where;
    placing p = { strategy, op, &where, options };

    if (!check_destination(ctx, destination, 5))
        return NULL;
    if (!strategy->policy
             ->wraps_values) /* one device: nothing to combine, nowhere to go (OD-EXT-1) */
        return coi_own_ref(ctx, value);
    if (!find_places(ctx, strategy, destination, &where))
        return NULL;
    return coi_is_capturing(ctx) ? capture_reduce_to(ctx, &p, value, destination)
                                 : coi_map_leaves(ctx, value, reduce_and_put, &p);
}

co_value *
co_reduce_to_with(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
                  co_value *destination, const co_communication_options *options)
{
    co_communication_options all;
    coi_comm_options         comm;

    COI_ENTER(ctx, "reduce_to", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !check_op(ctx, op) ||
        !coi_check_value(ctx, value, 4, "value") || !coi_check_cross(ctx, strategy) ||
        !coi_take_communication(ctx, &all, options, 6))
        return NULL;
    coi_comm_options_begin(ctx, strategy, &all, &comm);
    value = reduce_to(ctx, strategy, op, value, destination, &all);
    coi_comm_options_end(ctx);
    return value;
}

co_value *
co_reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
             co_value *destination)
{
    return co_reduce_to_with(ctx, strategy, op, value, destination, NULL);
}

static co_value *
reduce_pair(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *pair, size_t i,
            const co_communication_options *options)
{
    if (pair->kind != CO_KIND_TUPLE || pair->u.items.n != 2) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "item %zu is %s; every item must be a tuple of a value and a destination", i,
                 coi_a_kind(pair->kind));
        return NULL;
    }
    return reduce_to(ctx, strategy, op, pair->u.items.items[0], pair->u.items.items[1], options);
}

co_value *
co_batch_reduce_to_with(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *pairs,
                        const co_communication_options *options)
{
    co_communication_options all;
    coi_comm_options         comm;
    co_value               **results, *list = NULL;
    size_t                   n, nbytes;

    COI_ENTER(ctx, "batch_reduce_to", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !check_op(ctx, op) ||
        !coi_check_value(ctx, pairs, 4, "pairs") || !coi_check_cross(ctx, strategy) ||
        !coi_take_communication(ctx, &all, options, 5))
        return NULL;
    if (!coi_is_sequence(pairs)) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument 4 (pairs) of batch_reduce_to is %s, not a list; give a list of tuples, each of a value and a destination",
            coi_a_kind(pairs->kind));
        return NULL;
    }
    n = pairs->u.items.n;
    nbytes = (n + 1) * sizeof(*results);
    results = coi_small_alloc(&ctx->heap, nbytes);
    if (results == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu results", n);
        return NULL;
    }
    coi_comm_options_begin(ctx, strategy, &all, &comm);
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i)
        results[i] = reduce_pair(ctx, strategy, op, pairs->u.items.items[i], i, &all);
    coi_comm_options_end(ctx);
    if (ctx->error.code == CO_OK)
        list = co_list(ctx, results, n);
    coi_small_free(&ctx->heap, results, nbytes);
    return list;
}

co_value *
co_batch_reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *pairs)
{
    return co_batch_reduce_to_with(ctx, strategy, op, pairs, NULL);
}

co_value *
co_broadcast_to_devices(co_context *ctx, co_strategy *strategy, co_value *tensor,
                        co_value *destination)
{
    places where;

    COI_ENTER(ctx, "broadcast_to_devices", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_value(ctx, tensor, 3, "tensor") ||
        !coi_check_cross(ctx, strategy) || !check_destination(ctx, destination, 4))
        return NULL;
    if (destination == NULL || destination->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_ASSERTION_ERROR,
                 "the destination is none; name a device, or give a tensor or variable");
        return NULL;
    }
    if (!coi_check_offered(ctx, strategy))
        return NULL;
    if (!strategy->policy->wraps_values || tensor->kind == CO_KIND_INT ||
        tensor->kind == CO_KIND_FLOAT)
        return coi_own_ref(ctx, tensor);
    if (!find_places(ctx, strategy, destination, &where))
        return NULL;
    if (coi_is_distributed(tensor))
        tensor = coi_component_here(ctx, tensor);
    if (tensor != NULL && !coi_is_composite(tensor)) /* EXT-BC-3: slices stay slices */
        tensor = co_to_tensor(ctx, tensor, CO_DTYPE_NONE);
    if (tensor != NULL && coi_is_capturing(ctx))
        return coi_record_call(
            ctx, &coi_op_place_captured,
            &(place_attrs){ strategy, CO_REDUCE_MEAN, true, CO_COMMUNICATION_OPTIONS_INIT },
            (co_value *[]){ tensor, destination }, 2, put_type(ctx, tensor, where.n));
    return tensor != NULL ? put(ctx, tensor, &where) : NULL;
}

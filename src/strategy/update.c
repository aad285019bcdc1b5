/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updating variables component by component, and colocation. Sections 13.4 to 13.6 and 13.8.
 */
#include <cohort/extended.h>
#include <cohort/v1.h>

#include "base/text.h"
#include "function/function.h"
#include "strategy/distributed_variables.h"
#include "strategy/regroup.h"
#include "strategy/rendezvous.h"
#include "variable/variable.h"

#include <string.h>

/* What is called for each component or device. */
typedef struct updating {
    co_value    *variable; /* NULL: non-slot */
    co_update_fn fn;
    co_fn        plain;
    co_value    *devices;
    void        *user;
    bool         group;
} updating;

/* Enter cross-replica context with an update id, on a device; pop with coi_pop_to. */
static bool
enter_update(co_context *ctx, co_strategy *strategy, int id, const coi_device_name *device)
{
    if (coi_push(ctx, COI_ENTRY_UPDATE, strategy) == NULL)
        return false;
    ctx->mode.strategy = coi_current(strategy);
    ctx->mode.cross = true;
    ctx->mode.num_replicas = strategy->num_replicas;
    ctx->mode.update_id = id;
    if (device != NULL)
        coi_enter_device(ctx, device);
    return true;
}

/* One call: a value of the block, none for NULL. */
static co_value *
call_one(co_context *ctx, co_strategy *strategy, const updating *u, int i, co_value *args)
{
    size_t          entries = ctx->num_entries, floor;
    co_value       *mine, *result = NULL, *variable = u->variable;
    coi_device_name device;

    if (strategy->policy->wraps_values &&
        variable != NULL) /* it is distributed: co_update checked */
        variable = variable->u.variable->components[i];
    if (u->devices != NULL) {
        if (coi_resolve_name(ctx, u->devices->u.items.items[i]->u.string.data, &device) != CO_OK)
            return NULL;
    } else if (strategy->policy->hooks != NULL && variable != NULL) { /* it may be elsewhere */
        if (coi_resolve_name(ctx, variable->u.variable->ops->device(ctx, variable), &device) !=
            CO_OK)
            return NULL;
    } else if (strategy->policy->has_devices) {
        device = strategy->devices[i];
    }
    mine = strategy->policy->wraps_values ? coi_give(ctx, coi_select_all(ctx, strategy, args, i))
                                          : args;
    if (mine == NULL)
        return NULL;
    floor = coi_function_begin(ctx);
    if (enter_update(ctx, strategy, i, strategy->policy->has_devices ? &device : NULL))
        result = u->fn != NULL ? u->fn(ctx, variable, mine, u->user) : u->plain(ctx, mine, u->user);
    coi_function_end(ctx, floor);
    coi_pop_to(ctx, entries);
    if (result == NULL && ctx->error.code == CO_OK)
        result = co_none(ctx);
    return ctx->error.code == CO_OK &&
                   coi_check_result(ctx, result, u->fn != NULL ? "update" : "update_non_slot",
                                    "update function")
               ? result
               : NULL;
}

/* EXT-UPD-3: a result that differs between components and is not a tensor has no meaning as one
 * value. */
static co_value *
grouped_leaf(co_context *ctx, co_value *leaf, void *unused)
{
    (void)unused;
    for (size_t i = 0; coi_kind_of(leaf)->is_mirrored && i < leaf->u.per_replica.n; ++i)
        if (leaf->u.per_replica.items[i]->kind != CO_KIND_TENSOR &&
            !coi_is_type(leaf->u.per_replica.items[i]) &&
            !coi_is_variable(leaf->u.per_replica.items[i]))
            return co_none(ctx);
    return coi_own_ref(ctx, leaf);
}

/* Without grouping every leaf becomes the tuple of what the components gave. */
static co_value *
tuple_leaf(co_context *ctx, co_value *leaf, void *unused)
{
    coi_values parts = coi_replicas_of(leaf, NULL); /* of a variable: they gave its components */

    (void)unused;
    return co_tuple(ctx, parts.items, parts.n);
}

static co_value *
merge_results(co_context *ctx, const co_strategy *strategy, const updating *u,
              co_value *const *results, size_t n)
{
    co_value *merged = coi_give(ctx, coi_regroup(ctx, strategy, results, (int)n, CO_KIND_MIRRORED,
                                                 !u->group));

    if (merged == NULL || (u->group && n == 1))
        return merged;
    return coi_map_leaves(ctx, merged, u->group ? grouped_leaf : tuple_leaf, NULL);
}

/* The functions may release what they are called for. */
static void
hold(const updating *u, co_strategy *strategy, co_value *args)
{
    coi_ref(strategy);
    coi_ref(args);
    if (u->variable != NULL)
        coi_ref(u->variable);
    if (u->devices != NULL)
        coi_ref(u->devices);
}

static void
let_go(co_context *ctx, const updating *u, co_strategy *strategy, co_value *args)
{
    coi_unref(&ctx->heap, u->devices);
    coi_unref(&ctx->heap, u->variable);
    coi_unref(&ctx->heap, args);
    coi_unref(&ctx->heap, strategy);
}

static co_value *
update_all(co_context *ctx, co_strategy *strategy, const updating *u, co_value *args)
{
    co_value *results[COI_MAX_LOCAL_REPLICAS], *merged;
    size_t    n = u->devices != NULL               ? u->devices->u.items.n
                  : strategy->policy->wraps_values ? (size_t)strategy->num_local
                                                   : 1;

    if (n > COI_MAX_LOCAL_REPLICAS || n == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (devices) of update_non_slot holds %zu device%s; give from 1 to %d", n,
                 COI_S(n), COI_MAX_LOCAL_REPLICAS);
        return NULL;
    }
    hold(u, strategy, args);
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i)
        results[i] = call_one(ctx, strategy, u, (int)i, args);
    merged = ctx->error.code == CO_OK ? merge_results(ctx, strategy, u, results, n) : NULL;
    let_go(ctx, u, strategy, args);
    return merged;
}

static co_value *
update_merged(co_context *ctx, co_strategy *strategy, co_value *args, void *arg)
{
    return update_all(ctx, strategy, arg, args);
}

/* Replica 0's update is carried out for all. */
static bool
same_update(co_context *ctx, coi_step *step, void *unused)
{
    const updating *a = step->slots[0].detail;

    (void)unused;
    for (int i = 1; i < step->n; ++i) {
        const updating *b = step->slots[i].detail;

        if (a->variable == b->variable)
            continue;
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "replicas disagree: replica %d updates variable '%.*s%s' and replica %d '%.*s%s'; all replicas must make the same updates in the same order",
            step->strategy->first_local, COI_CUT(100, a->variable->u.variable->name),
            step->strategy->first_local + i, COI_CUT(100, b->variable->u.variable->name));
        return false;
    }
    return true;
}

static bool
check_update(co_context *ctx, co_strategy *strategy, const void *fn, co_value *args)
{
    if (!coi_check_strategy(ctx, strategy, 2))
        return false;
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR, "argument 4 (fn) of %s is NULL; it must be a function",
                 ctx->call);
        return false;
    }
    return coi_check_value(ctx, args, 5, "args");
}

/* --- while a function is captured --- */

typedef struct update_attrs {
    co_strategy *strategy; /* both are references in a program */
    co_function *function;
    bool         group, non_slot;
} update_attrs;

static bool
hold_update(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const update_attrs *)from)->strategy);
    coi_ref(((const update_attrs *)from)->function);
    return true;
}

static void
drop_update(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((update_attrs *)attrs)->function);
    coi_unref(heap, ((update_attrs *)attrs)->strategy);
}

static co_value *
call_captured(co_context *ctx, co_value *variable, co_value *args, void *function)
{
    return co_call(ctx, function, co_args(ctx, variable, args));
}

/* The function of co_update as one of a variable and an argument, that of co_update_non_slot as one
 * of a single argument. */
typedef struct update_closure {
    coi_object   object;
    co_update_fn fn;
    co_fn        plain; /* instead of fn */
    void        *user;
} update_closure;

static void
destroy_closure(coi_heap *heap, void *object)
{
    coi_object_free(heap, object, sizeof(update_closure));
}

static const coi_class closure_class = { "update function", destroy_closure, NULL };

static co_value *
call_closure(co_context *ctx, co_value *args, void *closure)
{
    const update_closure *c = closure;
    co_value *const      *items = args->u.items.items;

    return c->fn != NULL ? c->fn(ctx, items[0], items[1], c->user)
                         : c->plain(ctx, items[0], c->user);
}

/* A value of the block, or NULL with an error. */
static co_function *
function_of_update(co_context *ctx, const updating *u)
{
    update_closure *closure = coi_object_new(&ctx->heap, &closure_class, sizeof(*closure));
    co_function    *function;

    if (closure == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to capture an update function");
        return NULL;
    }
    closure->fn = u->fn;
    closure->plain = u->plain;
    closure->user = u->user;
    function = coi_function_of_closure(ctx, call_closure, closure, "update function");
    coi_unref(&ctx->heap, closure);
    return function;
}

static co_value *
call_captured_plain(co_context *ctx, co_value *args, void *function)
{
    return co_call(ctx, function, co_args(ctx, args));
}

static co_value *
replay_update(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const update_attrs *given = attrs;
    co_update_options   options = CO_UPDATE_OPTIONS_INIT;

    (void)num_in;
    options.group = given->group;
    return given->non_slot ? co_update_non_slot(ctx, given->strategy, in[0], call_captured_plain,
                                                in[1], given->function, &options)
                           : co_update(ctx, given->strategy, in[0], call_captured, in[1],
                                       given->function, &options);
}

static bool
same_attrs(co_context *ctx, const void *a, const void *b)
{
    const update_attrs *first = a, *second = b;

    return first->strategy == second->strategy && first->group == second->group &&
           first->non_slot == second->non_slot &&
           coi_check_same_function(ctx, first->function, second->function);
}

#define UPDATE_RESOURCES (CO_RESOURCE_VARIABLE | CO_RESOURCE_REPLICAS)
const coi_op coi_op_update_captured = {
    COI_RECORDED("update_captured",
                 "Calls a captured function for each component of a variable; co_update.",
                 replay_update, UPDATE_RESOURCES, UPDATE_RESOURCES),
    .attrs_rule = { COI_ATTRS_SIZE(update_attrs), hold_update, drop_update },
    .same_attrs = same_attrs,
};

/* The type of what the function gives for one component: captured for it. */
static co_value *
result_type(co_context *ctx, co_function *function, co_value *args)
{
    coi_program *program = args != NULL ? coi_function_program(ctx, function, args) : NULL;
    co_value    *type = program != NULL ? coi_program_result_type(ctx, program, args) : NULL;

    coi_unref(&ctx->heap, program);
    return type;
}

static co_value *
type_of_update(co_context *ctx, co_value *variable, co_value *args, void *function)
{
    return result_type(ctx, function, co_args(ctx, variable, args));
}

static co_value *
type_of_plain(co_context *ctx, co_value *args, void *function)
{
    return result_type(ctx, function, co_args(ctx, args));
}

/* The type of the whole call; in a step the other replicas are taken to bring what this one
 * brings. */
static co_value *
update_type(co_context *ctx, co_strategy *strategy, const updating *u, co_value *args)
{
    size_t    entries = ctx->num_entries;
    int       replica = ctx->mode.local_replica;
    co_value *type;

    if (!coi_in_replica(ctx) || ctx->mode.strategy != strategy || !strategy->policy->wraps_values)
        return update_all(ctx, strategy, u, args);
    args = coi_merged_types(ctx, args);
    if (args == NULL || coi_push(ctx, COI_ENTRY_MERGE, NULL) == NULL)
        return NULL;
    ctx->mode.cross = true;
    type = update_all(ctx, strategy, u, args);
    coi_pop_to(ctx, entries);
    return type != NULL ? coi_give(ctx, coi_select_all(ctx, strategy, type, replica)) : NULL;
}

static co_value *
capture_update(co_context *ctx, co_strategy *strategy, const updating *u, co_value *target,
               co_value *args)
{
    update_attrs attrs = { strategy, NULL, u->group, u->plain != NULL };
    updating     types = *u;
    const char  *call = ctx->call;
    co_value    *type;

    attrs.function = function_of_update(ctx, u);
    if (attrs.function == NULL)
        return NULL;
    types.fn = u->fn != NULL ? type_of_update : NULL;
    types.plain = u->plain != NULL ? type_of_plain : NULL;
    types.user = attrs.function;
    type = update_type(ctx, strategy, &types, args);
    coi_function_outlives(ctx, attrs.function, u->user);
    ctx->call = call;
    return coi_record_call(ctx, &coi_op_update_captured, &attrs, (co_value *[]){ target, args }, 2,
                           type);
}

co_value *
co_update(co_context *ctx, co_strategy *strategy, co_value *variable, co_update_fn fn,
          co_value *args, void *user, const co_update_options *options)
{
    co_update_options all = CO_UPDATE_OPTIONS_INIT;
    updating          u = { .variable = variable, .fn = fn, .user = user };
    co_value         *result;

    COI_ENTER(ctx, "update", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 7))
        return NULL;
    u.group = all.group;
    if (!check_update(ctx, strategy, fn != NULL ? &u : NULL, args) ||
        !coi_check_value(ctx, variable, 3, "variable"))
        return NULL;
    if (strategy->policy->wraps_values && !coi_is_distributed_variable(variable)) {
        coi_fail(ctx, CO_ASSERTION_ERROR,
                 "argument 3 (variable) of update is not a distributed variable; only those that "
                 "were made under the strategy have components to update");
        return NULL;
    }
    if (strategy->policy->wraps_values && !coi_check_owner(ctx, variable->u.variable, strategy))
        return NULL;
    if (!coi_in_replica(ctx) || ctx->mode.strategy != strategy || !strategy->policy->wraps_values) {
        if (strategy->policy->wraps_values && !coi_check_cross(ctx, strategy))
            return NULL;
        return coi_is_capturing(ctx) ? capture_update(ctx, strategy, &u, variable, args)
                                     : update_all(ctx, strategy, &u, args);
    }
    if (coi_is_capturing(ctx))
        return capture_update(ctx, strategy, &u, variable, args);
    result = coi_merge(ctx, COI_RENDEZVOUS_UPDATE, args, same_update, update_merged,
                       &u); /* EXT-UPD-6 */
    return result != NULL ? coi_own(ctx, result) : NULL;
}

static bool
check_devices(co_context *ctx, const co_strategy *strategy, const co_value *devices)
{
    if (!strategy->policy->wraps_values)
        return true; /* ignored (OD-EXT-5) */
    if (devices->kind != CO_KIND_TUPLE) {
        coi_fail(
            ctx, CO_ASSERTION_ERROR,
            "argument 3 (devices) of update_non_slot is %s; it must be a tuple of names, as co_non_slot_devices gives it",
            coi_a_kind(devices->kind));
        return false;
    }
    for (size_t i = 0; i < devices->u.items.n; ++i)
        if (devices->u.items.items[i]->kind != CO_KIND_STRING) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "device %zu of argument 3 (devices) of update_non_slot is %s; it must be the name of a device, as co_worker_devices gives them",
                i, coi_a_kind(devices->u.items.items[i]->kind));
            return false;
        }
    return true;
}

co_value *
co_update_non_slot(co_context *ctx, co_strategy *strategy, co_value *devices, co_fn fn,
                   co_value *args, void *user, const co_update_options *options)
{
    co_update_options all = CO_UPDATE_OPTIONS_INIT;
    updating          u = { .plain = fn, .user = user };

    COI_ENTER(ctx, "update_non_slot", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 7))
        return NULL;
    u.group = all.group;
    if (!check_update(ctx, strategy, fn != NULL ? &u : NULL, args) ||
        !coi_check_value(ctx, devices, 3, "devices") || !coi_check_cross(ctx, strategy) ||
        !check_devices(ctx, strategy, devices))
        return NULL;
    if (strategy->policy->wraps_values)
        u.devices = devices;
    return coi_is_capturing(ctx) ? capture_update(ctx, strategy, &u, devices, args)
                                 : update_all(ctx, strategy, &u, args);
}

/* --- containers --- */

co_value *
co_value_container(co_context *ctx, co_strategy *strategy, co_value *value)
{
    COI_ENTER(ctx, "value_container", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_value(ctx, value, 3, "value"))
        return NULL;
    if (coi_is_variable(value)) {
        co_value *container = coi_container_of(&ctx->heap, value);

        if (container != NULL)
            return coi_own(ctx, container);
    }
    return coi_own_ref(ctx, value);
}

bool
co_variable_created_in_scope(co_context *ctx, const co_strategy *strategy, const co_value *variable)
{
    COI_ENTER(ctx, "variable_created_in_scope", false);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_variable(ctx, variable, 3))
        return false;
    return variable->u.variable->strategy == (strategy->policy->changes_mode ? strategy : NULL);
}

co_value *
co_read_var(co_context *ctx, co_strategy *strategy, co_value *variable)
{
    COI_ENTER(ctx, "read_var", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_variable(ctx, variable, 3))
        return NULL;
    return co_to_tensor(ctx, variable, CO_DTYPE_NONE);
}

/* --- colocation: variables of a strategy that has devices live on all of them anyway, so only the
 * checks remain; without devices the device of the variable becomes the current one --- */

static bool
check_colocate(co_context *ctx, co_strategy *strategy, co_value *variable)
{
    char text[COI_STRATEGY_TEXT];

    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_value(ctx, variable, 3, "variable"))
        return false;
    if (ctx->mode.strategy != coi_current(strategy)) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "colocate_begin of %s is called where another strategy is current; enter its scope",
            coi_strategy_text(strategy, text));
        return false;
    }
    if (!coi_is_variable(variable) || variable->u.variable->strategy != ctx->mode.strategy) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument 3 (variable) of colocate_begin is not a variable of %s; give one that was made under it",
            coi_strategy_text(strategy, text));
        return false;
    }
    return true;
}

void
co_colocate_begin(co_context *ctx, co_strategy *strategy, co_value *variable)
{
    coi_device_name id;

    if (!coi_is_usable(ctx))
        return;
    ctx->call = "colocate_begin";
    /* The entry is pushed even after an error, or a failed push is counted, so that every end finds
     * its begin. */
    if (ctx->unpushed_colocations > 0 || coi_push(ctx, COI_ENTRY_COLOCATE, NULL) == NULL) {
        ++ctx->unpushed_colocations;
        return;
    }
    if (ctx->error.code != CO_OK || !check_colocate(ctx, strategy, variable))
        return;
    if (!strategy->policy->has_devices &&
        coi_resolve_name(ctx, variable->u.variable->ops->device(ctx, variable), &id) == CO_OK)
        coi_enter_device(ctx, &id);
}

void
co_colocate_end(co_context *ctx)
{
    if (!coi_is_usable(ctx))
        return;
    ctx->call = "colocate_end";
    if (ctx->unpushed_colocations > 0) {
        --ctx->unpushed_colocations;
        return;
    }
    if (ctx->num_entries == 0 || ctx->entries[ctx->num_entries - 1].kind != COI_ENTRY_COLOCATE) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "no colocation is innermost here; scopes are left in the reverse order of entering");
        return;
    }
    coi_pop(ctx);
}

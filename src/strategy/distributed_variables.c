/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables under a strategy: one ordinary variable per local replica behind a container whose
 * policy decides what reading and assigning mean in each context (section 18 of the specification).
 * Mirrored variables are kept equal by writes, sync-on-read variables are combined by reads.
 */
#include "strategy/distributed_variables.h"

#include "base/text.h"
#include "ops/engine/call_recording.h"
#include "strategy/cross_replica_reduce.h"
#include "strategy/regroup.h"
#include "strategy/rendezvous.h"
#include "strategy/workers.h"
#include "variable/variable.h"

#include <cohort/ops.h>

#include <string.h>

static void
destroy(coi_heap *heap, coi_variable *variable)
{
    for (size_t i = 0; i < variable->num_components; ++i)
        coi_unref(heap, variable->components[i]);
    coi_free(heap->store->memory, variable->components,
             variable->num_components * sizeof(co_value *));
    coi_variable_clear(heap, variable);
    coi_free(heap->store->memory, variable, sizeof(*variable));
}

bool
coi_check_owner(co_context *ctx, const coi_variable *variable, const co_strategy *used_by)
{
    char who[COI_VARIABLE_TEXT], other[COI_STRATEGY_TEXT];

    if (variable->strategy == used_by)
        return true;
    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "mixing strategies: variable %s is used with %s; use it in the scope or the steps of its "
        "own strategy, or outside any",
        coi_variable_text(ctx, variable, who), coi_strategy_text(used_by, other));
    return false;
}

static bool
check_owner(co_context *ctx, const coi_variable *variable)
{
    return ctx->mode.strategy == NULL || coi_check_owner(ctx, variable, ctx->mode.strategy);
}

/* Which component a context uses: of the replica, of the update, or -1 for all of them. An update
 * of devices (update_non_slot) may have more of them than there are components. */
static int
component_index(const co_context *ctx, const coi_variable *variable)
{
    if (ctx->mode.update_id >= 0)
        return (size_t)ctx->mode.update_id < variable->num_components ? ctx->mode.update_id : -1;
    if (ctx->mode.strategy == variable->strategy && coi_in_replica(ctx))
        return ctx->mode.local_replica;
    return -1;
}

static co_value *
read_component(co_context *ctx, const coi_variable *variable, int i)
{
    co_value *component = variable->components[i];

    return component->u.variable->ops->read(ctx, component);
}

/* The component on the current device, else the first. */
static int
nearest(co_context *ctx, const coi_variable *variable)
{
    const char *here = coi_current_device_name(ctx);

    for (size_t i = 0; i < variable->num_components; ++i)
        if (strcmp(variable->components[i]->u.variable->ops->device(ctx, variable->components[i]),
                   here) == 0)
            return (int)i;
    return 0;
}

static const char *
device(co_context *ctx, co_value *value)
{
    const coi_variable *variable = value->u.variable;
    int                 i = component_index(ctx, variable);
    co_value           *component = variable->components[i >= 0            ? i
                                                         : ctx->mode.cross ? nearest(ctx, variable)
                                                                           : 0];

    return component->u.variable->ops->device(ctx, component);
}

/* --- mirrored --- */

static co_value *
mirrored_read(co_context *ctx, co_value *value)
{
    const coi_variable *variable = value->u.variable;
    int                 i = component_index(ctx, variable);

    if (!check_owner(ctx, variable))
        return NULL;
    return read_component(ctx, variable, i >= 0 ? i : nearest(ctx, variable));
}

/* Assign to one component: a reference to its new value. */
static co_value *
assign_component(co_context *ctx, const coi_variable *variable, int i, int verb, co_value *value)
{
    co_value *component = variable->components[i];

    return component->u.variable->ops->assign(ctx, component, verb, value);
}

/* What component i gets of a value. */
static co_value *
part_for(co_value *value, size_t i)
{
    coi_values parts = coi_replicas_of(value, NULL);

    return i < parts.n ? parts.items[i] : value;
}

/* All values checked before any component changes (VAR-MIR-7): references to tensors, or to slices,
 * in `parts`. */
static bool
check_all(co_context *ctx, const coi_variable *variable, int verb, co_value *value,
          co_value **parts)
{
    if (!coi_check_per_replica(ctx, variable->strategy, value))
        return false;
    for (size_t i = 0; i < variable->num_components; ++i) {
        co_value *mine = part_for(value, i);

        if (verb < COI_SCATTER_UPDATE) {
            parts[i] = coi_assignable(ctx, variable, mine);
        } else if (coi_check_slices(ctx, variable, verb, mine)) {
            parts[i] = mine;
            coi_ref(mine);
        } else {
            parts[i] = NULL;
        }
        if (parts[i] == NULL) {
            while (i > 0)
                coi_unref(&ctx->heap, parts[--i]);
            return false;
        }
    }
    return true;
}

/* The same (or component-wise) assignment to every component or to none; returns a mirrored value
 * of the new ones: a reference. */
static co_value *
assign_all(co_context *ctx, const coi_variable *variable, int verb, co_value *value)
{
    co_value *parts[COI_MAX_LOCAL_REPLICAS], *per_replica;
    size_t    n = variable->num_components;
    bool      ok = false;

    if (!check_all(ctx, variable, verb, value, parts))
        return NULL;
    per_replica = coi_per_replica_new(&ctx->heap, CO_KIND_MIRRORED, n, coi_err(ctx));
    if (per_replica == NULL)
        coi_failed(ctx);
    else
        ok = (verb < COI_SCATTER_UPDATE ? coi_plain_update : coi_plain_scatter)(
            ctx, variable->components, n, verb, parts, per_replica->u.per_replica.items);
    for (size_t i = 0; i < n; ++i)
        coi_unref(&ctx->heap, parts[i]);
    if (ok)
        return per_replica;
    coi_unref(&ctx->heap, per_replica);
    return NULL;
}

/* What a rendezvous of replicas at an assignment does. */
typedef struct assigning {
    co_value *variable;
    int       verb;
} assigning;

static bool
is_shared(const co_value *value)
{
    return !coi_is_per_replica(value);
}

/* Worker 0's slices, on all workers: the others do not know how many there are and give none. */
static co_value *
first_slices(co_context *ctx, co_strategy *strategy, co_value *mine)
{
    co_value *values = mine->u.slices.values, *indices = mine->u.slices.indices;

    if (strategy->worker != 0) {
        int64_t dims[CO_MAX_DIMS], none = 0;

        memcpy(dims, values->u.tensor.dims, (size_t)values->ndim * sizeof(*dims));
        dims[0] = 0;
        values = co_zeros(ctx, (co_dtype)values->dtype, dims, values->ndim);
        indices = co_zeros(ctx, (co_dtype)indices->dtype, &none, 1);
        if (ctx->error.code != CO_OK)
            return NULL;
    }
    values = coi_workers_concat(ctx, strategy, COI_RENDEZVOUS_BROADCAST, values, 0);
    if (values != NULL)
        indices = coi_workers_concat(ctx, strategy, COI_RENDEZVOUS_BROADCAST, indices, 0);
    return co_slices(ctx, values, indices, NULL);
}

/* Replica 0's value; it lives on worker 0. */
static co_value *
first_value(co_context *ctx, co_strategy *strategy, const coi_variable *variable, int verb,
            co_value *value)
{
    co_value *first = coi_select(value, 0);

    if (strategy->group == NULL)
        return first;
    if (verb >= COI_SCATTER_UPDATE)
        return first_slices(ctx, strategy, first);
    first = coi_give(ctx, coi_assignable(ctx, variable, first));
    return first != NULL ? coi_workers_broadcast(ctx, strategy, first) : NULL;
}

/* The value that all components get: a value of ctx's block. */
static co_value *
aggregate(co_context *ctx, co_strategy *strategy, const coi_variable *variable, int verb,
          co_value *value)
{
    char who[COI_VARIABLE_TEXT];

    if (variable->aggregation == CO_AGGREGATION_ONLY_FIRST_REPLICA)
        return first_value(ctx, strategy, variable, verb, value);
    if (is_shared(value) && strategy->num_workers == 1) {
        if (variable->aggregation == CO_AGGREGATION_MEAN)
            return value;
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "variable %s has aggregation SUM and every replica assigns the same %s; the sum is "
            "not defined. Give each replica a tensor of its own, or use MEAN or "
            "ONLY_FIRST_REPLICA",
            coi_variable_text(ctx, variable, who), co_kind_name((co_kind)value->kind));
        return NULL;
    }
    return coi_reduce(ctx, strategy,
                      variable->aggregation == CO_AGGREGATION_SUM ? CO_REDUCE_SUM : CO_REDUCE_MEAN,
                      value, NULL, 0);
}

static co_value *
assign_merged(co_context *ctx, co_strategy *strategy, co_value *args, void *arg)
{
    const assigning *a = arg;
    co_value        *value = aggregate(ctx, strategy, a->variable->u.variable, a->verb, args),
             *per_replica;

    if (value == NULL)
        return NULL;
    per_replica = assign_all(ctx, a->variable->u.variable, a->verb, value);
    return per_replica != NULL ? coi_own(ctx, per_replica) : NULL;
}

/* Replica 0's assignment is carried out for all, so all must have asked for the same. */
static bool
same_assignment(co_context *ctx, coi_step *step, void *unused)
{
    static const char *const verbs[] = { "assigns to",         "adds to",
                                         "subtracts from",     "scatters rows to",
                                         "scatter-adds to",    "scatter-subtracts from",
                                         "scatter-multiplies", "scatter-divides",
                                         "scatter-minimises",  "scatter-maximises" };
    const assigning         *a = step->slots[0].detail;
    int                      first = step->strategy->first_local;
    char                     one[COI_VARIABLE_TEXT], other[COI_VARIABLE_TEXT];

    (void)unused;
    for (int i = 1; i < step->n; ++i) {
        const assigning *b = step->slots[i].detail;

        if (a->variable == b->variable && a->verb == b->verb)
            continue;
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "replicas disagree: replica %d %s variable %s and replica %d %s variable %s; all "
                 "replicas must make the same assignments in the same order",
                 first, verbs[a->verb], coi_variable_text(ctx, a->variable->u.variable, one),
                 first + i, verbs[b->verb], coi_variable_text(ctx, b->variable->u.variable, other));
        return false;
    }
    return true;
}

/* In a replica: alone for NONE (VAR-MIR-5), otherwise together. */
static co_value *
assign_in_replica(co_context *ctx, co_value *value, int i, int verb, co_value *what)
{
    const coi_variable *variable = value->u.variable;
    assigning           together = { value, verb };

    if (variable->aggregation == CO_AGGREGATION_NONE || variable->strategy->num_replicas == 1)
        return assign_component(ctx, variable, i, verb, what);
    what = coi_select(what, i);
    if (verb >= COI_SCATTER_UPDATE && !coi_check_slices(ctx, variable, verb, what))
        return NULL;
    /* Between processes a number is combined with tensors that others may have, so it becomes one
     * here. */
    if (coi_is_variable(what) ||
        (variable->strategy->num_workers > 1 && coi_host_dtype(what) != CO_DTYPE_NONE)) {
        what = coi_give(ctx, coi_as_tensor(ctx, what,
                                           coi_is_variable(what) ? CO_DTYPE_NONE
                                                                 : (co_dtype)variable->dtype));
        if (what == NULL)
            return NULL;
    }
    return coi_merge(ctx, COI_RENDEZVOUS_ASSIGN, what, same_assignment, assign_merged, &together);
}

/* VAR-MIR-8: the least of sums and the sum of replacements have no meaning. */
static bool
may_scatter(co_context *ctx, const coi_variable *variable, int verb)
{
    char who[COI_VARIABLE_TEXT];

    if ((verb != COI_SCATTER_UPDATE && verb != COI_SCATTER_MIN && verb != COI_SCATTER_MAX) ||
        (variable->aggregation != CO_AGGREGATION_SUM &&
         variable->aggregation != CO_AGGREGATION_MEAN))
        return true;
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "%s is not defined for variable %s, whose aggregation is %s; make it with aggregation "
             "NONE or ONLY_FIRST_REPLICA",
             ctx->call, coi_variable_text(ctx, variable, who),
             variable->aggregation == CO_AGGREGATION_SUM ? "SUM" : "MEAN");
    return false;
}

static co_value *
mirrored_assign(co_context *ctx, co_value *value, int verb, co_value *what)
{
    const coi_variable *variable = value->u.variable;
    int                 i = component_index(ctx, variable);

    if (!check_owner(ctx, variable) || !may_scatter(ctx, variable, verb))
        return NULL;
    if (i >= 0 && ctx->mode.update_id >= 0)
        return assign_component(ctx, variable, i, verb, what);
    if (i >= 0)
        return assign_in_replica(ctx, value, i, verb, what);
    return assign_all(ctx, variable, verb, what);
}

/* Outside replicas and updates a mirrored value (VAR-MIR-2). */
static co_value *
mirrored_assigned(co_context *ctx, co_value *value, int verb)
{
    const coi_variable *variable = value->u.variable;
    co_value           *types;

    if (!check_owner(ctx, variable) || !may_scatter(ctx, variable, verb))
        return NULL;
    if (component_index(ctx, variable) >= 0)
        return coi_fresh_type(ctx, value);
    types = coi_give(ctx, coi_per_replica_new(&ctx->heap, CO_KIND_MIRRORED,
                                              variable->num_components, coi_err(ctx)));
    for (size_t i = 0; types != NULL && i < variable->num_components; ++i) {
        co_value *type = coi_fresh_type(ctx, value);

        if (type == NULL)
            return NULL;
        coi_ref(type);
        types->u.per_replica.items[i] = type;
    }
    return types;
}

static const coi_variable_ops mirrored_ops = {
    "MirroredVariable", mirrored_read, mirrored_assign, device, destroy, NULL, mirrored_assigned
};

/* --- sync on read --- */

/* The parts of a sync-on-read variable over all replicas: a reference. */
static co_value *
combine_parts(co_context *ctx, const coi_variable *variable, co_value *const *parts)
{
    co_strategy *strategy = variable->strategy;
    co_value    *first = parts[0];

    if (variable->aggregation != CO_AGGREGATION_ONLY_FIRST_REPLICA && strategy->num_replicas > 1)
        return coi_reduce_tensors(ctx, strategy, COI_RENDEZVOUS_READ,
                                  variable->aggregation == CO_AGGREGATION_SUM ? CO_REDUCE_SUM
                                                                              : CO_REDUCE_MEAN,
                                  parts);
    first = coi_workers_broadcast(ctx, strategy, first);
    if (first != NULL)
        coi_ref(first);
    return first;
}

/* Whether it has a value outside replicas; CO_VALUE_ERROR if not. */
static bool
has_combined(co_context *ctx, const coi_variable *variable)
{
    char who[COI_VARIABLE_TEXT];

    if (variable->aggregation != CO_AGGREGATION_NONE)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "variable %s is synchronised on read and has no aggregation, so it has no value "
             "outside a replica; give it one when it is made, or read it in a step",
             coi_variable_text(ctx, variable, who));
    return false;
}

/* VAR-SOR-2: a reference. */
static co_value *
read_combined(co_context *ctx, const coi_variable *variable)
{
    co_value *parts[COI_MAX_LOCAL_REPLICAS], *result = NULL;
    size_t    n = variable->num_components, got = 0;

    if (!has_combined(ctx, variable))
        return NULL;
    while (got < n && (parts[got] = read_component(ctx, variable, (int)got)) != NULL)
        ++got;
    if (got == n)
        result = combine_parts(ctx, variable, parts);
    while (got > 0)
        coi_unref(&ctx->heap, parts[--got]);
    return result;
}

static co_value *
on_read_read(co_context *ctx, co_value *value)
{
    const coi_variable *variable = value->u.variable;
    int                 i = component_index(ctx, variable);

    if (!check_owner(ctx, variable))
        return NULL;
    return i >= 0 ? read_component(ctx, variable, i) : read_combined(ctx, variable);
}

/* x / n, cast to the dtype (integers truncate: VAR-SOR-3, VAR-SOR-7): a value of ctx's block. */
static co_value *
share_of(co_context *ctx, const coi_variable *variable, co_value *what)
{
    co_value *tensor = coi_give(ctx, coi_assignable(ctx, variable, what));
    co_value *n = co_int(ctx, variable->strategy->num_replicas);

    return co_cast(ctx, co_div(ctx, tensor, n), (co_dtype)variable->dtype);
}

/* VAR-SOR-3, VAR-SOR-4: a value outside a step into all components. */
static bool
on_read_set(co_context *ctx, const coi_variable *variable, int verb, co_value *what)
{
    co_value *per_replica;
    char      who[COI_VARIABLE_TEXT];

    if (coi_is_per_replica(what)) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "a per-replica value is assigned to variable %s outside a replica; assign it in a step",
            coi_variable_text(ctx, variable, who));
        return false;
    }
    if (variable->aggregation == CO_AGGREGATION_SUM) {
        if (verb != COI_ASSIGN) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "variable %s is a sum over replicas: it can be assigned outside a replica, but not "
                "added to; add in a step",
                coi_variable_text(ctx, variable, who));
            return false;
        }
        what = share_of(ctx, variable, what);
        if (what == NULL)
            return false;
    }
    per_replica = assign_all(ctx, variable, verb, what);
    coi_unref(&ctx->heap, per_replica);
    return per_replica != NULL;
}

/* VAR-SOR-5. */
static bool
may_assign_on_read(co_context *ctx, const coi_variable *variable, int verb)
{
    char who[COI_VARIABLE_TEXT];

    if (verb < COI_SCATTER_UPDATE)
        return true;
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "%s is not defined for variable %s, which is synchronised on read; make it with "
             "synchronization ON_WRITE, or use co_assign",
             ctx->call, coi_variable_text(ctx, variable, who));
    return false;
}

static co_value *
on_read_assign(co_context *ctx, co_value *value, int verb, co_value *what)
{
    const coi_variable *variable = value->u.variable;
    int                 i = component_index(ctx, variable);

    if (!check_owner(ctx, variable) || !may_assign_on_read(ctx, variable, verb))
        return NULL;
    if (i >= 0)
        return assign_component(ctx, variable, i, verb, coi_select(what, i));
    return on_read_set(ctx, variable, verb, what) ? read_combined(ctx, variable) : NULL;
}

/* VAR-SOR-3: outside replicas the result is the value read, which not every variable has. While a
 * function is captured this is an error at once, so that nothing has changed (FN-10). */
static co_value *
on_read_assigned(co_context *ctx, co_value *value, int verb)
{
    const coi_variable *variable = value->u.variable;

    if (!check_owner(ctx, variable) || !may_assign_on_read(ctx, variable, verb))
        return NULL;
    if (component_index(ctx, variable) < 0 && !has_combined(ctx, variable))
        return NULL;
    return coi_fresh_type(ctx, value);
}

static const coi_variable_ops on_read_ops = {
    "SyncOnReadVariable", on_read_read, on_read_assign, device, destroy, NULL, on_read_assigned
};

/* --- making --- */

co_value *
coi_distributed_variable(co_context *ctx, const coi_variable_spec *spec,
                         co_value *const *components, size_t n)
{
    coi_memory         *memory = &ctx->runtime->memory;
    const coi_variable *first = components[0]->u.variable;
    coi_variable_spec   whole = *spec;
    coi_variable       *variable = coi_calloc(memory, sizeof(*variable));
    co_value           *value;

    whole.name = first->name;
    whole.trainable = first->trainable;
    if (variable == NULL ||
        !coi_variable_init(ctx, variable,
                           spec->synchronization == CO_SYNC_ON_READ ? &on_read_ops : &mirrored_ops,
                           &whole, (co_dtype)first->dtype, first->shape.dims, first->shape.ndim)) {
        coi_free(memory, variable, sizeof(*variable));
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for variable '%.*s%s'",
                 COI_CUT(100, spec->name));
        return NULL;
    }
    value = coi_value_new(&ctx->heap, CO_KIND_VARIABLE);
    variable->components = value != NULL ? coi_calloc(memory, n * sizeof(co_value *)) : NULL;
    if (variable->components == NULL) {
        destroy(&ctx->heap, variable);
        if (value != NULL) {
            value->u.variable = NULL;
            coi_unref(&ctx->heap, value);
        }
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu components of '%.*s%s'", n,
                 COI_CUT(100, spec->name));
        return NULL;
    }
    value->u.variable = variable;
    variable->num_components = n;
    for (size_t i = 0; i < n; ++i) {
        coi_ref(components[i]);
        variable->components[i] = components[i];
    }
    for (size_t i = 0; i < n; ++i)
        if (!coi_container_join(&ctx->heap, value, components[i])) {
            char who[COI_VARIABLE_TEXT];

            coi_fail(ctx, CO_TYPE_ERROR,
                     "variable %s is component %zu of '%.*s%s' and of another at the same time; a "
                     "creator must give an ordinary variable that is part of no other",
                     coi_variable_text(ctx, components[i]->u.variable, who), i,
                     COI_CUT(100, spec->name));
            coi_unref(&ctx->heap, value);
            return NULL;
        }
    return value;
}

/* --- what any variable answers --- */

static bool
has_value(co_context *ctx, const co_value *component)
{
    co_value *locked = (co_value *)(uintptr_t)component; /* as it is again afterwards */
    bool      has = *coi_plain_lock(locked) != NULL;

    coi_plain_unlock(ctx, locked, NULL);
    return has;
}

bool
co_variable_is_initialized(co_context *ctx, const co_value *value)
{
    const coi_variable *variable;
    int                 only;

    COI_ENTER(ctx, "variable_is_initialized", false);
    if (!coi_check_variable(ctx, value, 2) ||
        !coi_check_host_state(ctx, "whether a variable has a value"))
        return false;
    variable = value->u.variable;
    if (variable->components == NULL)
        return has_value(ctx, value);
    only = component_index(ctx, variable);
    for (size_t i = 0; i < variable->num_components; ++i)
        if ((only < 0 || (int)i == only) && !has_value(ctx, variable->components[i]))
            return false;
    return true;
}

co_value *
co_variable_handle(co_context *ctx, co_value *value)
{
    const coi_variable *variable;
    char                who[COI_VARIABLE_TEXT];
    int                 i;

    COI_ENTER(ctx, "variable_handle", NULL);
    if (!coi_check_variable(ctx, value, 2))
        return NULL;
    variable = value->u.variable;
    if (variable->components != NULL) {
        if (!check_owner(ctx, variable))
            return NULL;
        i = component_index(ctx, variable);
        if (i < 0 && ctx->mode.cross) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "variable %s has %zu components, and none is meant in cross-replica context; take them "
                "with co_local_results, or ask in a step",
                coi_variable_text(ctx, variable, who), variable->num_components);
            return NULL;
        }
        value = variable->components[i >= 0 ? i : 0];
    }
    coi_ref(value);
    return coi_own(ctx, value);
}

/* Checkpoints are written and read for all replicas together. */
static bool
check_whole(co_context *ctx, co_value *value)
{
    char who[COI_VARIABLE_TEXT];

    if (!coi_check_variable(ctx, value, 2))
        return false;
    if (coi_in_replica(ctx)) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "%s of variable %s is called by replica %d; call it outside the step, or in co_merge_call",
            ctx->call, coi_variable_text(ctx, value->u.variable, who), ctx->mode.replica);
        return false;
    }
    return value->u.variable->components == NULL || check_owner(ctx, value->u.variable);
}

co_value *
co_variable_save(co_context *ctx, co_value *value)
{
    const coi_variable *variable;
    co_value           *saved;

    COI_ENTER(ctx, "variable_save", NULL);
    if (!check_whole(ctx, value))
        return NULL;
    variable = value->u.variable;
    if (variable->components == NULL)
        saved = variable->ops->read(ctx, value);
    else if (variable->ops == &on_read_ops)
        saved = read_combined(ctx, variable);
    else
        saved = read_component(ctx, variable, 0);
    return saved != NULL ? coi_own(ctx, saved) : NULL;
}

co_code
co_variable_restore(co_context *ctx, co_value *value, co_value *saved)
{
    const coi_variable *variable;

    COI_ENTER_CODE(ctx, "variable_restore");
    if (!check_whole(ctx, value) || !coi_check_value(ctx, saved, 3, "value"))
        return ctx->error.code;
    variable = value->u.variable;
    if (variable->ops == &on_read_ops)
        on_read_set(ctx, variable, COI_ASSIGN, saved);
    else
        coi_unref(&ctx->heap, variable->ops->assign(ctx, value, COI_ASSIGN, saved));
    return ctx->error.code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Custom strategies: a placement and hooks of the user become a strategy like the built-in ones.
 * The calls that have hooks pass through here; what they do in the engine is in the files of the
 * engine.
 */
#include "ops/engine/call_recording.h"
#include "strategy/strategy_hooks.h"

#include "base/text.h"
#include "strategy/process_group.h"
#include "strategy/strategy_state.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 64

typedef struct coi_custom_table {
    coi_policy             policy;
    co_strategy_definition hooks;
    char                   name[NAME_MAX_BYTES];
} coi_custom_table;

void
coi_custom_free(co_strategy *strategy)
{
    coi_custom_table *own = strategy->custom;

    if (own->hooks.destroy != NULL)
        own->hooks.destroy(own->hooks.data);
    coi_free(&strategy->runtime->memory, own, sizeof(*own));
}

/* --- calling hooks --- */

const coi_hook_call *
coi_hook_of(const co_context *ctx, const co_strategy *strategy, coi_hook hook)
{
    const coi_hook_call *call = coi_strategy_state_of(ctx)->hooks;

    while (call != NULL && (call->strategy != strategy || call->hook != hook))
        call = call->outer;
    return call;
}

bool
coi_hook_wanted(const co_context *ctx, const co_strategy *strategy, coi_hook hook)
{
    const co_strategy_definition *hooks = strategy->policy->hooks;
    const bool                    has[] = { [COI_HOOK_RUN] = hooks->run != NULL,
                                            [COI_HOOK_VARIABLE] = hooks->variable != NULL,
                                            [COI_HOOK_REDUCE] = hooks->reduce != NULL };

    return has[hook] && coi_hook_of(ctx, strategy, hook) == NULL;
}

void
coi_hook_begin(co_context *ctx, const co_strategy *strategy, coi_hook hook, coi_hook_call *call)
{
    *call = (coi_hook_call){ .outer = coi_strategy_state_of(ctx)->hooks,
                             .strategy = strategy,
                             .hook = hook,
                             .call = ctx->call,
                             .site = ctx->site,
                             .entries = ctx->num_entries,
                             .blocks = ctx->num_blocks,
                             .floor = coi_function_begin(ctx) };
    coi_strategy_state_of(ctx)->hooks = call;
    coi_ref((void *)(uintptr_t)strategy); /* the hook may release it */
}

co_value *
coi_hook_end(co_context *ctx, coi_hook_call *call, co_value *result)
{
    static const char *const names[] = { [COI_HOOK_RUN] = "run hook",
                                         [COI_HOOK_VARIABLE] = "variable hook",
                                         [COI_HOOK_REDUCE] = "reduce hook" };

    coi_strategy_state_of(ctx)->hooks = call->outer;
    ctx->call = call->call;
    ctx->site = call->site;
    coi_function_end(ctx, call->floor);
    coi_pop_to(ctx, call->entries);
    if (ctx->error.code == CO_OK && result == NULL) {
        if (call->hook == COI_HOOK_RUN)
            result = co_none(ctx);
        else
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "the %s of %s returned NULL without an error; return a value, or call co_fail",
                     names[call->hook], call->strategy->policy->name);
    }
    if (ctx->error.code != CO_OK || !coi_check_result(ctx, result, call->call, names[call->hook]))
        result = NULL;
    coi_unref(&ctx->heap, (void *)(uintptr_t)call->strategy);
    if (result != NULL && ctx->num_blocks > call->blocks) { /* it may be of a block that ends now */
        coi_ref(result);
        coi_blocks_unwind(ctx, call->blocks);
        return coi_own(ctx, result);
    }
    coi_blocks_unwind(ctx, call->blocks);
    return result;
}

bool
coi_variable_device(co_context *ctx, co_strategy *strategy, int i, const char *name,
                    coi_device_name *out)
{
    const co_strategy_definition *hooks = strategy->policy->hooks;
    const char                   *device = NULL;

    *out = strategy->devices[i];
    if (hooks == NULL || hooks->variable_device == NULL)
        return true;
    device = hooks->variable_device(ctx, strategy, name, strategy->first_local + i, hooks->data);
    if (ctx->error.code != CO_OK)
        return false;
    return device == NULL || coi_resolve_name(ctx, device, out) == CO_OK;
}

/* --- making --- */

static bool
check_name(co_context *ctx, const char *name)
{
    size_t length = 0;

    if (name == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR, "the strategy has no name; set name of the definition");
        return false;
    }
    while (length < NAME_MAX_BYTES && (isalnum((unsigned char)name[length]) || name[length] == '_'))
        ++length;
    if (length == 0 || length == NAME_MAX_BYTES || name[length] != '\0') {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the name of a strategy is '%.*s%s'; it must have 1 to %d letters, digits and _",
                 COI_CUT(80, name), NAME_MAX_BYTES - 1);
        return false;
    }
    if (coi_is_builtin(name)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s is a strategy of Cohort itself; choose a name of your own", name);
        return false;
    }
    return true;
}

/* The placement as the user gives it: a table, what the hook fills, or neither. */
static bool
take_placement(co_context *ctx, const co_strategy_definition *definition, int num_workers,
               co_placement *out)
{
    co_code code;

    if (definition->place == NULL)
        return coi_take_options(ctx, out, sizeof(*out), definition->placement, 0);
    if (definition->placement != NULL) {
        coi_fail(ctx, CO_VALUE_ERROR, "%s has both a placement and a place hook; set one of them",
                 definition->name);
        return false;
    }
    code = definition->place(ctx, num_workers, out, definition->data);
    if (ctx->error.code == CO_OK && code != CO_OK)
        coi_fail(
            ctx, code,
            "the place hook of %s returned this code and no message; call co_fail in it to say why",
            definition->name);
    /* A hook compiled with an older header may have set a shorter table: the fields it does not
     * know keep their defaults. */
    if (ctx->error.code == CO_OK &&
        (out->struct_size < sizeof(out->struct_size) || out->struct_size > sizeof(*out)))
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the place hook of %s left struct_size at %zu; begin with CO_PLACEMENT_INIT (%zu)",
                 definition->name, out->struct_size, sizeof(*out));
    return ctx->error.code == CO_OK;
}

/* How many replicas there are; CO_VALUE_ERROR where that cannot be. */
static bool
count_replicas(co_context *ctx, const co_placement *given, coi_placement *where)
{
    int most = where->num_workers * COI_MAX_LOCAL_REPLICAS;

    where->num_replicas = given->num_replicas;
    if (given->num_replicas == 0 && given->devices == NULL && given->workers == NULL &&
        given->weights == NULL)
        where->num_replicas = (int)where->num_devices * where->num_workers;
    if (where->num_replicas >= where->num_workers && where->num_replicas <= most)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "the placement has num_replicas %d; with %d process%s it must be from %d to %d, or 0 "
             "without columns (one for each device)",
             given->num_replicas, where->num_workers, where->num_workers == 1 ? "" : "es",
             where->num_workers, most);
    return false;
}

/* Whether a replica lives in this process. The column was not checked yet. */
static bool
is_here(const coi_placement *where, int replica)
{
    int64_t n = where->num_replicas, w = where->worker, all = where->num_workers;

    if (where->workers != NULL)
        return where->workers[replica] == where->worker;
    return replica >= n * w / all && replica < n * (w + 1) / all;
}

/* The placement as the engine wants it; ids has room for the devices of this process. */
static bool
place(co_context *ctx, const co_placement *given, coi_placement *where,
      coi_device_name ids[COI_MAX_LOCAL_REPLICAS])
{
    if (given->devices == NULL)
        where->num_devices = coi_choose_devices(ctx, NULL, 0, ids);
    if (!count_replicas(ctx, given, where))
        return false;
    where->devices = ids;
    where->workers = given->workers;
    where->weights = given->weights;
    where->num_weights = given->weights != NULL ? (size_t)where->num_replicas : 0;
    for (int i = 0; given->devices != NULL && i < where->num_replicas; ++i) {
        if (!is_here(where, i) || where->num_devices == COI_MAX_LOCAL_REPLICAS)
            continue;
        if (given->devices[i] == NULL) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "device %d of %d in the placement is NULL; name one for each replica, or leave the column out",
                i, where->num_replicas);
            return false;
        }
        if (coi_resolve_name(ctx, given->devices[i], &ids[where->num_devices++]) != CO_OK)
            return false;
    }
    return true;
}

static bool
check_definition(co_context *ctx, co_strategy_definition *definition)
{
    if (!check_name(ctx, definition->name) || !coi_check_deadline(ctx, &definition->deadline_ms))
        return false;
    if (definition->plain && definition->processes) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s is plain and has processes; plain strategies have one replica",
                 definition->name);
        return false;
    }
    return true;
}

/* The strategy, without what it keeps for itself. Takes the group over. */
static co_strategy *
make(co_context *ctx, const co_strategy_definition *definition, const coi_policy *policy,
     coi_group *group)
{
    coi_device_name ids[COI_MAX_LOCAL_REPLICAS];
    co_placement    given = CO_PLACEMENT_INIT;
    coi_placement   where = { .worker = group != NULL ? group->rank : 0,
                              .num_workers = group != NULL ? group->size : 1,
                              .deadline_ms = definition->deadline_ms };
    bool            ok = take_placement(ctx, definition, where.num_workers, &given) &&
              place(ctx, &given, &where, ids);

    if (ok && definition->plain && where.num_replicas != 1) {
        coi_fail(ctx, CO_VALUE_ERROR, "%s is plain and has %d replicas; it must have 1",
                 definition->name, where.num_replicas);
        ok = false;
    }
    if (ok)
        return group != NULL ? coi_strategy_join(ctx, policy, &where, group)
                             : coi_strategy_make(ctx, policy, &where);
    if (group != NULL)
        coi_group_close(group);
    return NULL;
}

static co_strategy *
define(co_context *ctx, const co_strategy_definition *definition)
{
    coi_memory       *memory = &ctx->runtime->memory;
    coi_custom_table *own;
    coi_group        *group = NULL;
    co_strategy      *strategy = NULL;

    if (definition->processes &&
        (group = coi_open_group(ctx, definition->transport, definition->communicator,
                                definition->deadline_ms)) == NULL)
        return NULL;
    own = coi_calloc(memory, sizeof(*own));
    if (own == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %s", definition->name);
        if (group != NULL)
            coi_group_close(group);
        return NULL;
    }
    own->hooks = *definition;
    snprintf(own->name, sizeof(own->name), "%s", definition->name);
    own->policy = (coi_policy){ .name = own->name,
                                .changes_mode = true,
                                .has_devices = true,
                                .distributes_input = true,
                                .wraps_values = !definition->plain,
                                .workers = definition->processes,
                                .hooks = &own->hooks };
    strategy = make(ctx, definition, &own->policy, group);
    if (strategy == NULL)
        coi_free(memory, own, sizeof(*own));
    else
        strategy->custom = own;
    return strategy;
}

static co_strategy *
define_checked(co_context *ctx, const co_strategy_definition *definition)
{
    co_strategy_definition all = CO_STRATEGY_DEFINITION_INIT;

    COI_ENTER(ctx, "define_strategy", NULL);
    if (definition == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (definition) of define_strategy is NULL; begin with "
                 "CO_STRATEGY_DEFINITION_INIT");
        return NULL;
    }
    if (!coi_take_options(ctx, &all, sizeof(all), definition, 2) || !check_definition(ctx, &all))
        return NULL;
    return define(ctx, &all);
}

/* Calls `destroy` whatever the failure: a strategy that was not made keeps no data. */
co_strategy *
co_define_strategy(co_context *ctx, const co_strategy_definition *definition)
{
    co_strategy *strategy = define_checked(ctx, definition);
    size_t       end = offsetof(co_strategy_definition, destroy) + sizeof(definition->destroy);

    if (strategy != NULL) /* the data goes with it */
        return coi_own(ctx, strategy);
    if (definition != NULL && definition->struct_size >= end && definition->destroy != NULL)
        definition->destroy(definition->data);
    return NULL;
}

/* --- looking --- */

void *
co_strategy_data(co_context *ctx, co_strategy *strategy)
{
    COI_ENTER(ctx, "strategy_data", NULL);
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return NULL;
    return strategy->custom != NULL ? strategy->custom->hooks.data : NULL;
}

int64_t
co_replica_weight(co_context *ctx, const co_strategy *strategy, int replica)
{
    COI_ENTER(ctx, "replica_weight", 0);
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return 0;
    if (replica < 0 || replica >= strategy->num_replicas) {
        coi_fail(ctx, CO_OUT_OF_RANGE, "replica %d of %s; it must be from 0 to %d", replica,
                 strategy->policy->name, strategy->num_replicas - 1);
        return 0;
    }
    return strategy->weights != NULL ? strategy->weights[replica] : 1;
}

int64_t
co_step_examples(co_context *ctx)
{
    return coi_is_usable(ctx) ? coi_examples_of(ctx).of_step : -1;
}

/* In a captured step. */
typedef struct examples_attrs {
    int64_t examples;
} examples_attrs;

static co_value *
replay_examples(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)in;
    (void)num_in;
    co_set_step_examples(ctx, ((const examples_attrs *)attrs)->examples);
    return co_none(ctx);
}

const coi_op coi_op_examples_captured = {
    COI_RECORDED("examples_captured",
                 "Says how many examples a step has on all replicas; co_set_step_examples.",
                 replay_examples, CO_RESOURCE_REPLICAS, CO_RESOURCE_REPLICAS),
    .attrs_rule.size = COI_ATTRS_SIZE(examples_attrs),
    .sets_context = true,
};

co_code
co_set_step_examples(co_context *ctx, int64_t examples)
{
    COI_ENTER_CODE(ctx, "set_step_examples");
    if (!coi_in_replica(ctx))
        return coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "set_step_examples is called outside a step; call it in the step or its hook");
    if (examples < -1)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "argument 2 (examples) is %lld; it must be 0 or more, or -1 (not known)",
                        (long long)examples);
    if (coi_is_capturing(ctx)) {
        coi_record_call(ctx, &coi_op_examples_captured, &(examples_attrs){ examples }, NULL, 0,
                        co_none(ctx));
        return ctx->error.code;
    }
    coi_strategy_state_of(ctx)->examples = (coi_examples){ examples, -1 };
    return CO_OK;
}

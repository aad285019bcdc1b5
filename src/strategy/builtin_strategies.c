/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The constructors of the built-in strategies, and the row of policies of each.
 */
#include "strategy/comm_options.h"
#include "strategy/process_group.h"

#include <string.h>

/* DEF-11: the variable whose name sorts first. */
static co_value *
smallest_variable(co_context *ctx, co_value *variables)
{
    co_value *first = NULL;

    if (!coi_check_value(ctx, variables, 3, "variables"))
        return NULL;
    for (size_t i = 0; coi_is_structure(variables) && i < variables->u.items.n; ++i) {
        co_value *variable = variables->u.items.items[i];

        if (coi_is_variable(variable) &&
            (first == NULL || strcmp(variable->u.variable->name, first->u.variable->name) < 0))
            first = variable;
    }
    if (first == NULL) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument 3 (variables) of non_slot_devices holds no variable; under the default strategy it "
            "chooses one of them");
        return NULL;
    }
    return coi_own_ref(ctx, first);
}

static const coi_refusal default_refusals[] = {
    { "worker_devices", CO_RUNTIME_ERROR,
      "the default strategy has no devices of its own; co_current_device tells" },
    { "parameter_devices", CO_RUNTIME_ERROR,
      "the default strategy has no devices of its own; co_current_device tells" },
    { "broadcast_to_devices", CO_UNIMPLEMENTED,
      "the default strategy does not copy to devices; use co_copy_to" },
    { "run_steps_on_iterator", CO_UNIMPLEMENTED,
      "the default strategy has no run_steps_on_iterator; call co_next and co_run in a loop, or "
      "use co_one_device_strategy" },
    { "should_init", CO_UNIMPLEMENTED,
      "the default strategy has no should_init; ask a strategy that you made" },
    { "between_graph", CO_UNIMPLEMENTED,
      "the default strategy has no between_graph; ask a strategy that you made" },
    { NULL, CO_OK, NULL },
};

/* Its mode is that of a context without a strategy (DEF-2, DEF-18). */
static const coi_policy default_policy = { .name = "DefaultStrategy",
                                           .has_both_flavours = true,
                                           .refusals = default_refusals,
                                           .non_slot_devices = smallest_variable };
static const coi_policy one_device_policy = { .name = "OneDeviceStrategy",
                                              .changes_mode = true,
                                              .has_devices = true,
                                              .distributes_input = true };
static const coi_policy mirrored_policy = { .name = "MirroredStrategy",
                                            .changes_mode = true,
                                            .has_devices = true,
                                            .distributes_input = true,
                                            .wraps_values = true };
static const coi_policy multi_worker_policy = { .name = "MultiWorkerMirroredStrategy",
                                                .changes_mode = true,
                                                .has_devices = true,
                                                .distributes_input = true,
                                                .wraps_values = true,
                                                .workers = true };

bool
coi_is_builtin(const char *name)
{
    const coi_policy *const all[] = { &default_policy, &one_device_policy, &mirrored_policy,
                                      &multi_worker_policy };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i)
        if (strcmp(name, all[i]->name) == 0)
            return true;
    return false;
}

/* One replica on one device. */
static co_strategy *
make_alone(co_context *ctx, const coi_policy *policy, const coi_device_name *device)
{
    coi_placement where = { .num_replicas = 1,
                            .num_workers = 1,
                            .devices = device,
                            .num_devices = 1,
                            .deadline_ms = ctx->runtime->settings.deadline_ms };

    return coi_strategy_make(ctx, policy, &where);
}

co_strategy *
coi_default_strategy(co_context *ctx, bool is_v1)
{
    coi_runtime *runtime;
    void       **place;
    co_strategy *strategy;

    if (ctx == NULL || ctx->runtime == NULL)
        return NULL;
    runtime = ctx->runtime;
    place = &runtime->extensions[COI_EXTENSION_STRATEGY][is_v1];
    if (coi_is_forked(&ctx->heap)) /* the lock may be held forever */
        return *place;
    pthread_mutex_lock(&runtime->lock);
    if (*place == NULL) {
        coi_device_name nowhere = { .replica = -1, .task = -1, .index = -1 };

        coi_device_complete(&nowhere, NULL);
        strategy = make_alone(ctx, &default_policy, &nowhere);
        if (strategy != NULL)
            strategy->is_v1 = is_v1;
        *place = strategy;
    }
    strategy = *place;
    pthread_mutex_unlock(&runtime->lock);
    return strategy;
}

co_strategy *
co_default_strategy(co_context *ctx)
{
    return coi_default_strategy(ctx, false);
}

co_strategy *
co_one_device_strategy(co_context *ctx, const char *device)
{
    coi_device_name id;
    co_strategy    *strategy;

    COI_ENTER(ctx, "one_device_strategy", NULL);
    if (coi_resolve_name(ctx, device, &id) != CO_OK)
        return NULL;
    strategy = make_alone(ctx, &one_device_policy, &id);
    return strategy != NULL ? coi_own(ctx, strategy) : NULL;
}

/* MIR-CDO-1. */
static bool
check_cross_device_ops(co_context *ctx, const co_mirrored_options *options)
{
    if ((unsigned)options->cross_device_ops > CO_CROSS_DEVICE_RING)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "cross_device_ops is %d; it must be CO_CROSS_DEVICE_AUTO or another of its kind",
                 (int)options->cross_device_ops);
    else if (options->num_packs < 0)
        coi_fail(ctx, CO_VALUE_ERROR, "num_packs is %d; it must be at least 0", options->num_packs);
    return ctx->error.code == CO_OK;
}

co_strategy *
co_mirrored_strategy(co_context *ctx, const char *const *devices, size_t num_devices,
                     const co_mirrored_options *options)
{
    co_mirrored_options all = CO_MIRRORED_OPTIONS_INIT;
    coi_device_name     ids[COI_MAX_LOCAL_REPLICAS];
    coi_placement       where = { .num_workers = 1, .devices = ids };
    co_strategy        *strategy;

    COI_ENTER(ctx, "mirrored_strategy", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) ||
        !coi_check_deadline(ctx, &all.deadline_ms) || !check_cross_device_ops(ctx, &all))
        return NULL;
    where.num_devices = coi_choose_devices(ctx, devices, num_devices, ids);
    if (where.num_devices == 0 ||
        !coi_check_replicas(ctx, all.num_replicas, where.num_devices, "device", 1))
        return NULL;
    if (all.num_replicas > COI_MAX_LOCAL_REPLICAS) {
        coi_fail(ctx, CO_VALUE_ERROR, "num_replicas is %d; one process has at most %d",
                 all.num_replicas, COI_MAX_LOCAL_REPLICAS);
        return NULL;
    }
    where.num_replicas = all.num_replicas > 0 ? all.num_replicas : (int)where.num_devices;
    where.weights = all.weights;
    where.num_weights = all.num_weights;
    where.deadline_ms = all.deadline_ms;
    strategy = coi_strategy_make(ctx, &mirrored_policy, &where);
    if (strategy == NULL)
        return NULL;
    strategy->cross_device_ops = all.cross_device_ops;
    return coi_own(ctx, strategy);
}

co_strategy *
co_multi_worker_mirrored_strategy(co_context *ctx, const co_multi_worker_mirrored_options *options)
{
    co_multi_worker_mirrored_options all = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_communication_options         communication;
    coi_device_name                  ids[COI_MAX_LOCAL_REPLICAS];
    coi_placement                    where = { .devices = ids };
    coi_group                       *group;
    co_strategy                     *strategy;

    COI_ENTER(ctx, "multi_worker_mirrored_strategy", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 2) ||
        !coi_check_deadline(ctx, &all.deadline_ms) ||
        !coi_take_communication(ctx, &communication, all.communication, 2) ||
        (group = coi_open_group(ctx, all.transport, all.communicator, all.deadline_ms)) == NULL)
        return NULL;
    where.num_devices = coi_choose_devices(ctx, all.devices, all.num_devices, ids);
    if (where.num_devices == 0 || !coi_check_replicas(ctx, all.num_replicas, (size_t)group->size,
                                                      "process", (size_t)group->size)) {
        coi_group_close(group);
        return NULL;
    }
    where.num_replicas = all.num_replicas > 0 ? all.num_replicas
                                              : (int)where.num_devices * group->size;
    where.worker = group->rank;
    where.num_workers = group->size;
    where.weights = all.weights;
    where.num_weights = all.num_weights;
    where.deadline_ms = all.deadline_ms;
    strategy = coi_strategy_join(ctx, &multi_worker_policy, &where, group);
    if (strategy == NULL)
        return NULL;
    coi_comm_options_set(&strategy->comm, &communication);
    return coi_own(ctx, strategy);
}

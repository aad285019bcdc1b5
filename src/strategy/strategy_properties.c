/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public questions about a strategy: replicas, workers, devices, flags.
 */
#include <cohort/extended.h>
#include <cohort/v1.h>

#include "strategy/strategy.h"

const char *
co_strategy_name(co_context *ctx, const co_strategy *strategy)
{
    COI_ENTER(ctx, "strategy_name", "");
    return coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy")
               ? strategy->policy->name
               : "";
}

static int
property(co_context *ctx, const co_strategy *strategy, const char *call, size_t offset)
{
    COI_ENTER(ctx, call, 0);
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return 0;
    return *(const int *)(const void *)((const char *)strategy + offset);
}

int
co_num_replicas_in_sync(co_context *ctx, const co_strategy *strategy)
{
    return property(ctx, strategy, "num_replicas_in_sync", offsetof(co_strategy, num_replicas));
}

int
co_num_local_replicas(co_context *ctx, const co_strategy *strategy)
{
    return property(ctx, strategy, "num_local_replicas", offsetof(co_strategy, num_local));
}

int
co_worker_id(co_context *ctx, const co_strategy *strategy)
{
    return property(ctx, strategy, "worker_id", offsetof(co_strategy, worker));
}

int
co_num_workers(co_context *ctx, const co_strategy *strategy)
{
    return property(ctx, strategy, "num_workers", offsetof(co_strategy, num_workers));
}

/* Whether a replica before this one is on the same device. */
static bool
is_earlier(const co_strategy *strategy, int replica)
{
    for (int i = 0; i < replica; ++i)
        if (coi_device_name_equal(&strategy->devices[i], &strategy->devices[replica]))
            return true;
    return false;
}

/* Each device once, in order: several replicas may share one. */
static co_value *
device_names(co_context *ctx, co_strategy *strategy, const char *call)
{
    co_value *names[COI_MAX_LOCAL_REPLICAS];
    size_t    n = 0;

    COI_ENTER(ctx, call, NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_offered(ctx, strategy))
        return NULL;
    for (int i = 0; i < strategy->num_local; ++i) {
        char text[CO_DEVICE_NAME_MAX];

        if (is_earlier(strategy, i))
            continue;
        coi_devices_format(ctx->runtime->devices, &strategy->devices[i], text); /* MW-6 */
        names[n] = co_string(ctx, coi_device_text_here(ctx, text));
        if (names[n++] == NULL)
            return NULL;
    }
    return co_tuple(ctx, names, n);
}

co_value *
co_worker_devices(co_context *ctx, co_strategy *strategy)
{
    return device_names(ctx, strategy, "worker_devices");
}

co_value *
co_parameter_devices(co_context *ctx, co_strategy *strategy)
{
    return device_names(ctx, strategy, "parameter_devices");
}

co_value *
co_non_slot_devices(co_context *ctx, co_strategy *strategy, co_value *variables)
{
    COI_ENTER(ctx, "non_slot_devices", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (strategy->policy->non_slot_devices != NULL)
        return strategy->policy->non_slot_devices(ctx, variables);
    return device_names(ctx, strategy, "non_slot_devices");
}

co_strategy *
co_extended(co_context *ctx, co_strategy *strategy)
{
    COI_ENTER(ctx, "extended", NULL);
    return coi_check_strategy(ctx, strategy, 2) ? strategy : NULL;
}

co_value *
co_cluster_resolver(co_context *ctx, co_strategy *strategy)
{
    static const char *const fields[] = { "task_type", "task_id", "num_workers" };

    co_value *items[3];

    COI_ENTER(ctx, "cluster_resolver", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (!strategy->policy->workers)
        return co_none(ctx);
    items[0] = co_string(ctx, "worker");
    items[1] = co_int(ctx, strategy->worker);
    items[2] = co_int(ctx, strategy->num_workers);
    return co_named_tuple(ctx, "ClusterResolver", fields, items, 3);
}

/* The flags of section 13.1. */
static bool
is_chief(co_context *ctx, const co_strategy *strategy, const char *call)
{
    COI_ENTER(ctx, call, false);
    return coi_check_strategy(ctx, strategy, 2) && strategy->worker == 0;
}

bool
co_should_checkpoint(co_context *ctx, const co_strategy *strategy)
{
    return is_chief(ctx, strategy, "should_checkpoint");
}

bool
co_should_save_summary(co_context *ctx, const co_strategy *strategy)
{
    return is_chief(ctx, strategy, "should_save_summary");
}

bool
co_require_static_shapes(co_context *ctx, const co_strategy *strategy)
{
    COI_ENTER(ctx, "require_static_shapes", false);
    coi_check_strategy(ctx, strategy, 2);
    return false;
}

/* Two flags of the older API. */
static bool
older_flag(co_context *ctx, const co_strategy *strategy, const char *call, bool with_workers)
{
    COI_ENTER(ctx, call, false);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_offered(ctx, strategy))
        return false;
    return !with_workers || strategy->policy->workers;
}

bool
co_should_init(co_context *ctx, const co_strategy *strategy)
{
    return older_flag(ctx, strategy, "should_init", false);
}

bool
co_between_graph(co_context *ctx, const co_strategy *strategy)
{
    return older_flag(ctx, strategy, "between_graph", true);
}

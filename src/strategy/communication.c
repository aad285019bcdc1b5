/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication options (section 21): checks, merging, and the names and selection of algorithms.
 * They take effect where values are combined: packs and rounds in collective/all_reduce.c, the work
 * of replicas in replica_collectives.c.
 */
#include "strategy/comm_options.h"

#include <cohort/extended.h>

#include "base/text.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static const char *const communication_names[] = { "AUTO", "RING", "NCCL" };
enum { NUM_COMMUNICATIONS = sizeof(communication_names) / sizeof(communication_names[0]) };

co_code
co_communication_from_name(co_context *ctx, const char *name, co_communication *out)
{
    COI_ENTER_CODE(ctx, "communication_from_name");
    if (name == NULL || out == NULL)
        return coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument %d (%s) of communication_from_name is NULL; give a name and where the result goes",
            name == NULL ? 2 : 3, name == NULL ? "name" : "out");
    for (int i = 0; i < NUM_COMMUNICATIONS; ++i)
        if (coi_text_same(name, strlen(name), communication_names[i])) {
            *out = (co_communication)i;
            return CO_OK;
        }
    return coi_fail(ctx, CO_VALUE_ERROR,
                    "'%s' is not an implementation; the names are AUTO, RING and NCCL", name);
}

bool
coi_take_communication(co_context *ctx, co_communication_options *all,
                       const co_communication_options *options, int position)
{
    *all = (co_communication_options)CO_COMMUNICATION_OPTIONS_INIT;
    if (!coi_take_options(ctx, all, sizeof(*all), options, position))
        return false;
    if (all->bytes_per_pack < 0)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "bytes_per_pack is %lld; it must be a number of bytes, or 0 for one pack",
                 (long long)all->bytes_per_pack);
    else if (!(all->timeout_seconds >= 0) && all->timeout_seconds != CO_TIMEOUT_OF_STRATEGY)
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "timeout_seconds is %g; it must be a time, 0 (wait forever) or CO_TIMEOUT_OF_STRATEGY",
            all->timeout_seconds);
    else if ((unsigned)all->implementation >= NUM_COMMUNICATIONS)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "implementation is %d; it must be CO_COMMUNICATION_AUTO, _RING or _NCCL",
                 (int)all->implementation);
    return ctx->error.code == CO_OK;
}

/* Rounded up, so that a short time does not become 0. */
static int
milliseconds(double seconds)
{
    double ms = ceil(seconds * 1000);

    return ms < INT_MAX ? (int)ms : INT_MAX;
}

void
coi_comm_options_set(coi_comm_options *comm, const co_communication_options *options)
{
    if (options->bytes_per_pack > 0)
        comm->bytes_per_pack = (size_t)options->bytes_per_pack;
    if (options->timeout_seconds >= 0)
        comm->timeout_ms = options->timeout_seconds > 0 ? milliseconds(options->timeout_seconds)
                                                        : -1;
    if (options->implementation != CO_COMMUNICATION_AUTO)
        comm->in_ring = options->implementation == CO_COMMUNICATION_RING;
}

void
coi_comm_options_begin(co_context *ctx, const co_strategy *strategy,
                       const co_communication_options *options, coi_comm_options *comm)
{
    *comm = strategy->comm;
    coi_comm_options_set(comm, options);
    coi_strategy_state_of(ctx)->comm = comm;
}

co_cross_device_ops
coi_cross_device_ops(const co_strategy *strategy)
{
    int num_cpus = 0;

    if (strategy->cross_device_ops != CO_CROSS_DEVICE_AUTO)
        return strategy->cross_device_ops;
    for (int i = 0; i < strategy->num_local; ++i)
        num_cpus += strcmp(strategy->devices[i].type, "CPU") == 0;
    return num_cpus == strategy->num_local ? CO_CROSS_DEVICE_RING
           : num_cpus == 0                 ? CO_CROSS_DEVICE_NCCL
                                           : CO_CROSS_DEVICE_REDUCE_TO_ONE;
}

co_cross_device_ops
co_strategy_cross_device_ops(co_context *ctx, const co_strategy *strategy)
{
    COI_ENTER(ctx, "strategy_cross_device_ops", CO_CROSS_DEVICE_AUTO);
    return coi_check_strategy(ctx, strategy, 2) ? coi_cross_device_ops(strategy)
                                                : CO_CROSS_DEVICE_AUTO;
}

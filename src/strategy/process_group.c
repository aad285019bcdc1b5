/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies of several processes: which group they form, and whether all agree on the placement.
 */
#include "strategy/process_group.h"

#include "strategy/workers.h"

#include <stdio.h>
#include <stdlib.h>

/* A program with TF_CONFIG expects the cluster in it (MW-1); without this line its processes would
 * train each by itself and not say so. */
static void
explain_cluster(coi_log *log, int num_processes)
{
    const char *config = secure_getenv("TF_CONFIG");

    if (config != NULL && config[0] != '\0')
        coi_log_line(
            log, num_processes == 1 ? CO_LOG_WARNING : CO_LOG_INFO,
            "TF_CONFIG is set but not read: the cluster comes from MPI, which has %d process%s here; "
            "start the program with 'mpirun -n PROCESSES PROGRAM'",
            num_processes, num_processes == 1 ? "" : "es");
}

coi_group *
coi_open_group(co_context *ctx, const char *transport, const void *communicator, int deadline_ms)
{
    coi_group_options how = { .communicator = communicator,
                              .memory = &ctx->runtime->memory,
                              .log = &ctx->runtime->log,
                              .waiting = &ctx->runtime->waiting,
                              .deadline_ms = deadline_ms };
    coi_group        *group;

    if (transport == NULL)
        transport = communicator != NULL || coi_mpi_launched() ? "mpi" : "self";
    if (coi_group_open(transport, &how, &group, coi_err(ctx)) == CO_OK) {
        if (group->size <= COI_MAX_WORKERS) {
            explain_cluster(&ctx->runtime->log, group->size);
            return group;
        }
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "the group has %d processes; a strategy has at most %d, start fewer or split the communicator",
            group->size, COI_MAX_WORKERS);
        coi_group_close(group);
        return NULL;
    }
    coi_failed(ctx);
    return NULL;
}

/* Every rank splits batches and sums by the whole table, so all must have the same. */
static bool
agree(co_context *ctx, co_strategy *strategy)
{
    char     text[64];
    uint64_t hash = coi_sign(COI_SIGNATURE, (uint64_t)strategy->num_replicas);

    for (int r = 0; r <= strategy->num_workers; ++r)
        hash = coi_sign(hash, (uint64_t)strategy->first[r]);
    for (int i = 0; strategy->weights != NULL && i < strategy->num_replicas; ++i)
        hash = coi_sign(hash, (uint64_t)strategy->weights[i]);
    snprintf(text, sizeof(text), "%d replica%s (%d here), %s %llx", strategy->num_replicas,
             COI_S(strategy->num_replicas), strategy->num_local,
             strategy->weights != NULL ? "weights" : "equal weights",
             (unsigned long long)hash & 0xffffff);
    return coi_workers_agree(ctx, strategy, COI_RENDEZVOUS_STRATEGY, hash, text, 0, NULL);
}

co_strategy *
coi_strategy_join(co_context *ctx, const coi_policy *policy, const coi_placement *where,
                  coi_group *group)
{
    co_strategy *strategy = coi_strategy_make(ctx, policy, where);

    if (strategy == NULL || group->size == 1) {
        coi_group_close(group);
        return strategy;
    }
    strategy->group = group;
    ctx->rank = group->rank;
    coi_devices_join(ctx->runtime->devices, "worker", group->rank);
    if (agree(ctx, strategy))
        return strategy;
    coi_unref(&ctx->heap, strategy);
    return NULL;
}

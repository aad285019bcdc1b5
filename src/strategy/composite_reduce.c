/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composite values of all replicas as one. Their components are concatenated, or taken from the
 * first replica, as the row of their kind says (RC-AR-11, S-REDUCE-20).
 */
#include <cohort/ops.h>

#include "ops/engine/composite_values.h"
#include "strategy/cross_replica_reduce.h"
#include "strategy/workers.h"

bool
coi_check_composite_op(co_context *ctx, const co_value *value, co_reduce_op op)
{
    const coi_kind_ops *row = coi_kind_of(value);

    if (op == CO_REDUCE_SUM || op == CO_REDUCE_MEAN)
        return true;
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "%s can be combined by SUM and MEAN only: %s; make them dense with co_to_tensor",
             row->a_name, row->composite->sum_alone);
    return false;
}

/* The parts of the other workers, and the division of a mean. */
static co_value *
finish_component(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind, co_reduce_op op,
                 coi_combining combining, co_value *component)
{
    if (component == NULL || combining == COI_TAKE_FIRST)
        return component;
    if (strategy->group != NULL)
        component = coi_workers_concat(ctx, strategy, kind, component, 0);
    if (component != NULL && op == CO_REDUCE_MEAN && combining == COI_CONCAT_SCALED)
        component = co_div(ctx, component, co_int(ctx, strategy->num_replicas));
    return component;
}

co_value *
coi_combine_composites(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind,
                       co_reduce_op op, co_value *const *values)
{
    const coi_composite *composite = coi_kind_of(values[0])->composite;
    co_value            *components[COI_MAX_COMPONENTS];

    /* Local components first, then other workers: local errors are found before a worker waits. */
    if (!coi_concat_components(ctx, values, (size_t)strategy->num_local, "replica", components))
        return NULL;
    for (size_t c = 0; c < composite->n && ctx->error.code == CO_OK; ++c)
        components[c] = finish_component(ctx, strategy, kind, op,
                                         composite->components[c].combining, components[c]);
    return ctx->error.code == CO_OK ? coi_composite_give(ctx, values[0], components) : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that go with another one. They have the strategy of that variable, not the one that is
 * current where they are made: the replica that needs a slot first makes it for all, and because
 * slots begin without a value, or with one that all know, there is nothing to agree on.
 */
#include "strategy/distributed_variables.h"
#include "variable/variable.h"

#include <stdio.h>
#include <string.h>

/* Component i is called as that of any variable (VAR-NEW-5). A reference. */
static co_value *
make_component(co_context *ctx, const coi_variable_spec *whole, co_value *beside, size_t i,
               co_value *type)
{
    coi_variable_spec spec = *whole;
    size_t            nbytes = strlen(whole->name) + 32;
    char             *name = coi_small_alloc(&ctx->heap, nbytes);
    co_value         *component;

    if (name == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for variable '%.100s'", whole->name);
        return NULL;
    }
    snprintf(name, nbytes, i > 0 ? "%s/replica_%zu" : "%s", whole->name, i);
    spec.name = name;
    component = coi_plain_variable(ctx, &spec, coi_plain_device(beside), type);
    coi_small_free(&ctx->heap, name, nbytes);
    return component;
}

static co_value *
make_distributed(co_context *ctx, const coi_variable_spec *spec, const coi_variable *like,
                 co_value *type)
{
    co_value *parts[COI_MAX_LOCAL_REPLICAS], *slot = NULL;
    size_t    n = like->num_components, made = 0;

    while (made < n &&
           (parts[made] = make_component(ctx, spec, like->components[made], made, type)) != NULL)
        ++made;
    if (made == n)
        slot = coi_distributed_variable(ctx, spec, parts, n);
    while (made > 0)
        coi_unref(&ctx->heap, parts[--made]);
    return slot;
}

co_value *
coi_slot_variable(co_context *ctx, co_value *variable, const char *name,
                  co_synchronization synchronization)
{
    const coi_variable *like = variable->u.variable;
    coi_variable_spec   spec = { .name = name, .strategy = like->strategy, .made_at = ctx->site };
    co_value           *type, *slot = NULL;

    co_block_begin(ctx);
    if (like->components != NULL) {
        spec.synchronization = synchronization;
        spec.aggregation = synchronization == CO_SYNC_ON_READ ? CO_AGGREGATION_SUM
                                                              : CO_AGGREGATION_NONE;
    }
    type = coi_spec(ctx, (co_dtype)like->dtype, like->shape.dims, like->shape.ndim);
    if (type != NULL)
        slot = like->components != NULL
                   ? make_distributed(ctx, &spec, like, type)
                   : coi_plain_variable(ctx, &spec, coi_plain_device(variable), type);
    co_block_end(ctx);
    return slot;
}

co_value *
coi_variable_beside(co_context *ctx, co_value *variable, const char *name, co_value *initial)
{
    const coi_variable *like = variable->u.variable;
    coi_variable_spec   spec = { .name = name,
                                 .synchronization = (co_synchronization)like->synchronization,
                                 .aggregation = (co_aggregation)like->aggregation,
                                 .strategy = like->strategy,
                                 .made_at = ctx->site };

    return like->components != NULL
               ? make_distributed(ctx, &spec, like, initial)
               : coi_plain_variable(ctx, &spec, coi_plain_device(variable), initial);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 flavour of strategies: its constructors, its members, one step on an iterator (S-V1-*,
 * S-EXPRUN-*). The flavour is a flag of an ordinary strategy; what v1 lacks is refused where it is
 * called (coi_check_v2). Iterators are in v1_iterator.c, configs in v1_config.c.
 */
#include <cohort/v1.h>

#include "data/dataset.h"
#include "strategy/placement.h"

#include <string.h>

static co_strategy *
as_v1(co_strategy *strategy)
{
    if (strategy != NULL)
        strategy->is_v1 = true;
    return strategy;
}

co_strategy *
co_v1_one_device_strategy(co_context *ctx, const char *device)
{
    return as_v1(co_one_device_strategy(ctx, device));
}

co_strategy *
co_v1_mirrored_strategy(co_context *ctx, const char *const *devices, size_t num_devices,
                        const co_mirrored_options *options)
{
    return as_v1(co_mirrored_strategy(ctx, devices, num_devices, options));
}

co_strategy *
co_v1_multi_worker_mirrored_strategy(co_context                             *ctx,
                                     const co_multi_worker_mirrored_options *options)
{
    return as_v1(co_multi_worker_mirrored_strategy(ctx, options));
}

co_strategy *
co_v1_default_strategy(co_context *ctx)
{
    return coi_default_strategy(ctx, true);
}

co_strategy *
co_v1_get_strategy(co_context *ctx)
{
    if (ctx == NULL)
        return NULL;
    return ctx->mode.strategy != NULL ? ctx->mode.strategy : coi_default_strategy(ctx, true);
}

enum { V1 = 1, V2 = 2, BOTH = V1 | V2 };

/* The members of the documents, by name, and who has them. */
static const struct {
    const char *name;
    int         who;
} members[] = {
    { "cluster_resolver", BOTH },
    { "distribute_datasets_from_function", BOTH },
    { "experimental_assign_to_logical_device", V2 },
    { "experimental_distribute_dataset", BOTH },
    { "experimental_distribute_datasets_from_function", BOTH },
    { "experimental_distribute_values_from_function", V2 },
    { "experimental_local_results", BOTH },
    { "experimental_make_numpy_dataset", BOTH },
    { "experimental_replicate_to_logical_devices", V2 },
    { "experimental_run", V1 },
    { "experimental_run_v2", V2 },
    { "experimental_split_to_logical_devices", V2 },
    { "extended", BOTH },
    { "gather", V2 },
    { "make_dataset_iterator", V1 },
    { "make_input_fn_iterator", V1 },
    { "num_replicas_in_sync", BOTH },
    { "reduce", BOTH },
    { "run", BOTH },
    { "scope", BOTH },
    { "update_config_proto", V1 },
};

bool
co_strategy_has_member(co_context *ctx, const co_strategy *strategy, const char *name)
{
    int flavour;

    COI_ENTER(ctx, "strategy_has_member", false);
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy") || name == NULL)
        return false;
    flavour = strategy->is_v1 ? V1 : strategy->policy->has_both_flavours ? BOTH : V2;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); ++i)
        if (strcmp(members[i].name, name) == 0)
            return (members[i].who & flavour) != 0;
    return false;
}

co_value *
co_experimental_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_iterator *input_iterator,
                    void *user)
{
    co_value *args, *element, *result = NULL;
    co_scope  scope;

    COI_ENTER(ctx, "experimental_run", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (fn == NULL) { /* before an element is taken */
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 3 (fn) of experimental_run is NULL; it must be a function");
        return NULL;
    }
    if ((input_iterator != NULL &&
         !coi_check_object(ctx, input_iterator, &coi_iterator_class, 4, "input_iterator")) ||
        !coi_check_enter(ctx, strategy))
        return NULL;
    scope = co_scope_begin(ctx, strategy);
    if (input_iterator == NULL)
        args = co_no_args(ctx);
    else
        args = (element = co_get_next(ctx, input_iterator)) != NULL ? co_tuple(ctx, &element, 1)
                                                                    : NULL;
    if (args != NULL)
        result = co_run(ctx, strategy, fn, args, user);
    co_scope_end(ctx, &scope);
    return result;
}

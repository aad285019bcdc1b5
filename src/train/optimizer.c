/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making optimizers, and the calls common to all of them.
 */
#include "train/optimizer.h"

#include "ops/engine/call_recording.h"

#include <string.h>

static size_t
size_of(const coi_optimizer_rule *rule)
{
    return sizeof(co_optimizer) + rule->options_size;
}

static void
destroy(coi_heap *heap, void *object)
{
    co_optimizer *optimizer = object;

    coi_slots_free(heap, optimizer);
    coi_object_free(heap, optimizer, size_of(optimizer->rule));
}

const coi_class coi_optimizer_class = { "optimizer", destroy, NULL };

co_optimizer *
coi_optimizer_new(co_context *ctx, const coi_optimizer_rule *rule, const void *options)
{
    co_optimizer *optimizer = coi_object_new(&ctx->heap, &coi_optimizer_class, size_of(rule));

    if (optimizer == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an optimizer");
        return NULL;
    }
    optimizer->rule = rule;
    optimizer->runtime = ctx->runtime;
    coi_lock_init(&optimizer->lock);
    memcpy(optimizer->options, rule->defaults, rule->options_size);
    if (!coi_take_options(ctx, optimizer->options, rule->options_size, options, 2) ||
        !rule->check(ctx, optimizer->options)) {
        coi_unref(&ctx->heap, optimizer);
        return NULL;
    }
    optimizer->num_slots = rule->num_slots(optimizer->options);
    return coi_own(ctx, optimizer);
}

bool
coi_check_optimizer(co_context *ctx, const co_optimizer *optimizer)
{
    return coi_check_object(ctx, optimizer, &coi_optimizer_class, 2, "optimizer");
}

bool
coi_check_trained(co_context *ctx, const coi_variable *variable)
{
    if (variable->dtype == CO_FLOAT32 || variable->dtype == CO_FLOAT64)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "variable '%.100s' is %s; optimizers update float32 and float64", variable->name,
             co_dtype_name((co_dtype)variable->dtype));
    return false;
}

int64_t
co_optimizer_iterations(co_context *ctx, const co_optimizer *optimizer)
{
    COI_ENTER(ctx, "optimizer_iterations", 0);
    return coi_check_optimizer(ctx, optimizer) && coi_check_host_state(ctx, "the number of updates")
               ? atomic_load(&optimizer->iterations)
               : 0;
}

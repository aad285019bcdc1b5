/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making optimizers, and checks common to all of them.
 */
#include "train/optimizer.h"

#include <math.h>
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
    coi_common_free(heap, optimizer);
    coi_free(heap->store->memory, optimizer->texts, optimizer->texts_size);
    coi_object_free(heap, optimizer, size_of(optimizer->rule));
}

const coi_class coi_optimizer_class = { "optimizer", destroy, NULL };

/* The learning rate is the first option of every rule. */
static double
first_rate(const co_optimizer *optimizer)
{
    double rate;

    memcpy(&rate, optimizer->options + sizeof(size_t), sizeof(rate));
    return rate;
}

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
    optimizer->name = rule->name;
    coi_lock_init(&optimizer->lock);
    coi_common_init(optimizer);
    memcpy(optimizer->options, rule->defaults, rule->options_size);
    if (!coi_take_options(ctx, optimizer->options, rule->options_size, options, 2) ||
        !rule->check(ctx, optimizer->options)) {
        coi_unref(&ctx->heap, optimizer);
        return NULL;
    }
    optimizer->num_rule_slots = rule->slots(optimizer->options, optimizer->slots);
    optimizer->num_slots = optimizer->num_rule_slots;
    if (rule->weight_decay != NULL)
        optimizer->common.weight_decay = rule->weight_decay(optimizer->options);
    for (int i = 0; i < COI_MAX_LOCAL_REPLICAS; ++i)
        optimizer->numbers[i] = (coi_numbers){ .learning_rate = first_rate(optimizer) };
    return coi_own(ctx, optimizer);
}

bool
coi_check_optimizer(co_context *ctx, const co_optimizer *optimizer)
{
    return coi_check_object(ctx, optimizer, &coi_optimizer_class, 2, "optimizer");
}

bool
coi_check_moments(co_context *ctx, double learning_rate, double beta_1, double beta_2,
                  double epsilon)
{
    if (isfinite(learning_rate) && isfinite(epsilon) && epsilon >= 0 && coi_is_share(beta_1) &&
        coi_is_share(beta_2))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "learning_rate is %g (it must be finite), beta_1 is %g and beta_2 %g (they must be in "
             "[0, 1)), epsilon is %g (it must be finite and not negative)",
             learning_rate, beta_1, beta_2, epsilon);
    return false;
}

bool
coi_check_trained(co_context *ctx, const coi_variable *variable)
{
    if (variable->dtype == CO_FLOAT32 || variable->dtype == CO_FLOAT64)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "variable '%.100s' is %s; optimizers update float32 and float64: keep the weights in "
             "float32, and use co_cast where the model computes with them",
             variable->name, co_dtype_name((co_dtype)variable->dtype));
    return false;
}

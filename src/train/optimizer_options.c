/* SPDX-License-Identifier: Apache-2.0 */
/*
 * co_optimizer_configure: what all optimizers have in common.
 */
#include "train/optimizer.h"

#include "variable/variable.h"

#include <math.h>
#include <string.h>

void
coi_common_init(co_optimizer *optimizer)
{
    optimizer->common = (coi_common){ .accumulation_steps = 1 };
    optimizer->accumulator = optimizer->average = -1;
}

static void
free_names(coi_memory *memory, coi_common *common)
{
    for (size_t i = 0; i < common->num_exclude_names && common->exclude_names != NULL; ++i)
        if (common->exclude_names[i] != NULL)
            coi_free(memory, common->exclude_names[i], strlen(common->exclude_names[i]) + 1);
    coi_free(memory, common->exclude_names, common->num_exclude_names * sizeof(char *));
}

static void
free_common(coi_heap *heap, coi_common *common)
{
    free_names(heap->store->memory, common);
    coi_unref(heap, common->schedule);
    coi_unref(heap, common->exclude_variables);
}

void
coi_common_free(coi_heap *heap, co_optimizer *optimizer)
{
    free_common(heap, &optimizer->common);
}

bool
coi_decays(const co_optimizer *optimizer, const co_value *variable)
{
    const coi_common *common = &optimizer->common;
    const co_value   *list = common->exclude_variables;

    for (size_t i = 0; i < common->num_exclude_names; ++i)
        if (strstr(variable->u.variable->name, common->exclude_names[i]) != NULL)
            return false;
    for (size_t i = 0; list != NULL && i < list->u.items.n; ++i)
        if (list->u.items.items[i]->u.variable == variable->u.variable)
            return false;
    return true;
}

/* --- checks --- */

static bool
check_clipping(co_context *ctx, const co_optimizer_options *o)
{
    if ((o->clip_value > 0) + (o->clip_norm > 0) + (o->clip_global_norm > 0) > 1)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "clip_value is %g, clip_norm %g and clip_global_norm %g; at most one may be set",
                 o->clip_value, o->clip_norm, o->clip_global_norm);
    else if (!(o->clip_value >= 0 && o->clip_norm >= 0 && o->clip_global_norm >= 0))
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "clip_value is %g, clip_norm %g and clip_global_norm %g; limits are above 0, and 0 "
            "is none",
            o->clip_value, o->clip_norm, o->clip_global_norm);
    return ctx->error.code == CO_OK;
}

static bool
check_numbers(co_context *ctx, const co_optimizer_options *o)
{
    if (!isfinite(o->weight_decay))
        coi_fail(ctx, CO_VALUE_ERROR, "weight_decay is %g; it must be finite", o->weight_decay);
    else if (o->accumulation_steps < 0 || o->accumulation_steps == 1)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "accumulation_steps is %d; it must be 2 or more, or 0 for none",
                 o->accumulation_steps);
    else if (o->use_ema && (!coi_is_part(o->ema_momentum) || o->ema_overwrite_frequency < 0))
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "ema_momentum is %g (it must be in [0, 1]), ema_overwrite_frequency %d (it must be "
            "1 or more, or 0 for never)",
            o->ema_momentum, o->ema_overwrite_frequency);
    else if (!(o->loss_scale >= 0) || isinf(o->loss_scale) || o->loss_scale_growth_steps < 0)
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "loss_scale is %g and loss_scale_growth_steps %d; they must be finite and above 0, "
            "or 0 for none",
            o->loss_scale, o->loss_scale_growth_steps);
    return ctx->error.code == CO_OK && check_clipping(ctx, o);
}

static bool
check_references(co_context *ctx, const co_optimizer_options *o)
{
    const co_value *list = o->exclude_variables;

    if (o->schedule != NULL &&
        !coi_check_object(ctx, o->schedule, &coi_schedule_class, 3, "schedule"))
        return false;
    for (size_t i = 0; i < o->num_exclude_names; ++i)
        if (o->exclude_names == NULL || o->exclude_names[i] == NULL) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "exclude_names has %zu texts, but text %zu is NULL",
                     o->num_exclude_names, i);
            return false;
        }
    if (list == NULL)
        return true;
    if (!coi_check_value(ctx, list, 3, "exclude_variables"))
        return false;
    if (!coi_is_structure(list)) {
        coi_fail(ctx, CO_TYPE_ERROR, "exclude_variables is %s; it must be a list of variables",
                 coi_a_kind(list->kind));
        return false;
    }
    for (size_t i = 0; i < list->u.items.n; ++i)
        if (list->u.items.items[i]->kind != CO_KIND_VARIABLE) {
            coi_fail(ctx, CO_TYPE_ERROR,
                     "item %zu of exclude_variables is %s; it must be one that co_variable made", i,
                     coi_a_kind(list->u.items.items[i]->kind));
            return false;
        }
    return true;
}

/* --- taking them --- */

static bool
copy_names(co_context *ctx, const co_optimizer_options *o, coi_common *common)
{
    coi_memory *memory = &ctx->runtime->memory;

    if (o->num_exclude_names == 0)
        return true;
    common->exclude_names = coi_calloc(memory, o->num_exclude_names * sizeof(char *));
    if (common->exclude_names == NULL)
        return false;
    common->num_exclude_names = o->num_exclude_names;
    for (size_t i = 0; i < o->num_exclude_names; ++i) {
        const char *name = o->exclude_names[i];

        common->exclude_names[i] = coi_strndup(memory, name, strlen(name));
        if (common->exclude_names[i] == NULL)
            return false;
    }
    return true;
}

static coi_clipping
clipping_of(const co_optimizer_options *o)
{
    return o->clip_value > 0         ? COI_CLIP_VALUE
           : o->clip_norm > 0        ? COI_CLIP_NORM
           : o->clip_global_norm > 0 ? COI_CLIP_GLOBAL_NORM
                                     : COI_CLIP_NOTHING;
}

/* False without memory. */
static bool
make_common(co_context *ctx, const co_optimizer *optimizer, const co_optimizer_options *o,
            coi_common *out)
{
    const coi_optimizer_rule *rule = optimizer->rule;
    double of_rule = rule->weight_decay != NULL ? rule->weight_decay(optimizer->options) : 0;

    *out = (coi_common){ .weight_decay = o->weight_decay != 0 ? o->weight_decay : of_rule,
                         .clipping = clipping_of(o),
                         .clip = o->clip_value + o->clip_norm + o->clip_global_norm,
                         .clip_before_sum = o->clip_before_sum,
                         .accumulation_steps = o->accumulation_steps > 0 ? o->accumulation_steps
                                                                         : 1,
                         .use_ema = o->use_ema,
                         .ema_momentum = o->ema_momentum,
                         .ema_overwrite_frequency = o->ema_overwrite_frequency,
                         .loss_scale = o->loss_scale,
                         .loss_scale_growth_steps = o->loss_scale_growth_steps };
    if (!copy_names(ctx, o, out))
        return false;
    if (o->schedule != NULL)
        coi_ref(o->schedule);
    out->schedule = o->schedule;
    if (o->exclude_variables != NULL)
        coi_ref(o->exclude_variables);
    out->exclude_variables = o->exclude_variables;
    return true;
}

/* Slots that the options need, after those of the rule. */
static void
add_slots(co_optimizer *optimizer)
{
    int n = optimizer->num_rule_slots;

    optimizer->accumulator = optimizer->common.accumulation_steps > 1 ? n++ : -1;
    if (optimizer->accumulator >= 0)
        optimizer->slots[optimizer->accumulator] = (coi_slot_spec){ "gradient_accumulator", 0 };
    optimizer->average = optimizer->common.use_ema ? n++ : -1;
    if (optimizer->average >= 0)
        optimizer->slots[optimizer->average] = (coi_slot_spec){ "average", 0 };
    optimizer->num_slots = n;
}

static bool
may_configure(co_context *ctx, co_optimizer *optimizer)
{
    if (!coi_check_optimizer(ctx, optimizer))
        return false;
    if (!atomic_load(&optimizer->is_used))
        return true;
    coi_fail(
        ctx, CO_FAILED_PRECONDITION,
        "%s has been used by an update, a captured function or a call for its slots; configure "
        "it before",
        optimizer->name);
    return false;
}

co_code
co_optimizer_configure(co_context *ctx, co_optimizer *optimizer,
                       const co_optimizer_options *options)
{
    co_optimizer_options all = CO_OPTIMIZER_OPTIONS_INIT;
    coi_common           common;

    COI_ENTER_CODE(ctx, "optimizer_configure");
    if (!may_configure(ctx, optimizer) || !coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        !check_numbers(ctx, &all) || !check_references(ctx, &all))
        return ctx->error.code;
    if (!make_common(ctx, optimizer, &all, &common)) {
        free_common(&ctx->heap, &common);
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the options of an optimizer");
    }
    free_common(&ctx->heap, &optimizer->common);
    optimizer->common = common;
    add_slots(optimizer);
    coi_lock_take(&optimizer->lock);
    for (int i = 0; i < COI_MAX_LOCAL_REPLICAS; ++i)
        optimizer->numbers[i].loss_scale = common.loss_scale;
    coi_lock_give(&optimizer->lock);
    return CO_OK;
}

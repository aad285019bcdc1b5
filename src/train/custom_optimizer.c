/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers of users: a co_optimizer_rule is the options of a rule whose kernel is the user's
 * function.
 */
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

_Static_assert(CO_MAX_OPTIMIZER_SLOTS == COI_MAX_SLOTS, "CO_MAX_OPTIMIZER_SLOTS");
_Static_assert(CO_MAX_OPTIMIZER_SCALARS == COI_MAX_NUMBERS, "CO_MAX_OPTIMIZER_SCALARS");

/* Options of the rule: what the user gave, with texts of its own. */
typedef struct custom {
    size_t            struct_size;
    double            learning_rate;
    co_optimizer_rule rule;
} custom;

static const custom custom_defaults = { sizeof(custom), 0.001, CO_OPTIMIZER_RULE_INIT };

static bool
is_taken(const co_optimizer_rule *rule, size_t i)
{
    static const char *const common[] = { "gradient_accumulator", "average" };
    bool                     taken = false;

    for (size_t k = 0; k < i; ++k)
        taken = taken || strcmp(rule->slots[i], rule->slots[k]) == 0;
    for (size_t k = 0; k < sizeof(common) / sizeof(common[0]); ++k)
        taken = taken || strcmp(rule->slots[i], common[k]) == 0;
    return taken;
}

static bool
check_slots(co_context *ctx, const co_optimizer_rule *rule)
{
    for (size_t i = 0; i < rule->num_slots; ++i) {
        if (rule->slots[i] == NULL || rule->slots[i][0] == '\0')
            coi_fail(ctx, CO_INVALID_ARGUMENT, "slot %zu of %s has no name", i, rule->name);
        else if (is_taken(rule, i))
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "slot %zu of %s is called '%.60s' as another one; choose another name", i,
                     rule->name, rule->slots[i]);
        else if (!isfinite(rule->initial[i]))
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "slot '%.60s' of %s begins with %g; it must be finite", rule->slots[i],
                     rule->name, rule->initial[i]);
    }
    return ctx->error.code == CO_OK;
}

static bool
check(co_context *ctx, const void *options)
{
    const co_optimizer_rule *rule = &((const custom *)options)->rule;

    if (rule->name == NULL || rule->name[0] == '\0' || rule->update == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "the rule has no %s; an optimizer needs one",
                 rule->update == NULL ? "function `update`" : "name");
    else if (rule->num_slots > CO_MAX_OPTIMIZER_SLOTS ||
             rule->num_scalars > CO_MAX_OPTIMIZER_SCALARS)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "%.60s has %zu slots (%d are possible) and %zu scalars (%d are possible)",
                 rule->name, rule->num_slots, CO_MAX_OPTIMIZER_SLOTS, rule->num_scalars,
                 CO_MAX_OPTIMIZER_SCALARS);
    else if (!isfinite(rule->learning_rate))
        coi_fail(ctx, CO_VALUE_ERROR, "learning_rate is %g; it must be finite",
                 rule->learning_rate);
    return ctx->error.code == CO_OK && check_slots(ctx, rule);
}

static int
slots(const void *options, coi_slot_spec out[COI_MAX_SLOTS])
{
    const co_optimizer_rule *rule = &((const custom *)options)->rule;

    for (size_t i = 0; i < rule->num_slots; ++i)
        out[i] = (coi_slot_spec){ rule->slots[i], rule->initial[i] };
    return (int)rule->num_slots;
}

static void
prepare(const void *options, int64_t step, double learning_rate, co_dtype dtype, double *numbers)
{
    const co_optimizer_rule *rule = &((const custom *)options)->rule;

    (void)dtype;
    if (rule->prepare != NULL)
        rule->prepare(step, learning_rate, numbers, rule->user);
    else
        numbers[0] = learning_rate;
}

static void
update(const void *options, const double *numbers, const coi_update_arrays *arrays, co_dtype dtype,
       int64_t n)
{
    const co_optimizer_rule *rule = &((const custom *)options)->rule;
    co_optimizer_part        part = { .struct_size = sizeof(part),
                                      .dtype = dtype,
                                      .n = n,
                                      .gradient = arrays->gradient,
                                      .value = arrays->value };

    if (arrays->old != arrays->value)
        memcpy(arrays->value, arrays->old, (size_t)n * coi_dtypes[dtype].size);
    for (size_t i = 0; i < rule->num_slots; ++i)
        part.slots[i] = arrays->slots[i];
    rule->update(numbers, &part, rule->user);
}

const coi_op coi_op_custom_update = COI_UPDATE_ENTRY("custom_update", "a rule of the user");

static const coi_optimizer_rule custom_rule = {
    .name = "a custom optimizer",
    .op = &coi_op_custom_update,
    .defaults = &custom_defaults,
    .options_size = sizeof(custom),
    .check = check,
    .slots = slots,
    .prepare = prepare,
    .update = update,
};

/* The optimizer gets the texts of its rule, whose own may be gone tomorrow. */
static bool
copy_texts(co_context *ctx, co_optimizer *optimizer)
{
    co_optimizer_rule *rule = &((custom *)(void *)optimizer->options)->rule;
    size_t             nbytes = strlen(rule->name) + 1;
    char              *at;

    for (size_t i = 0; i < rule->num_slots; ++i)
        nbytes += strlen(rule->slots[i]) + 1;
    at = coi_calloc(&ctx->runtime->memory, nbytes);
    if (at == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of a rule");
        return false;
    }
    optimizer->texts = at;
    optimizer->texts_size = nbytes;
    optimizer->name = rule->name = strcpy(at, rule->name);
    for (size_t i = 0; i < rule->num_slots; ++i) {
        at += strlen(at) + 1;
        optimizer->slots[i].name = rule->slots[i] = strcpy(at, rule->slots[i]);
    }
    return true;
}

co_optimizer *
co_custom_optimizer(co_context *ctx, const co_optimizer_rule *rule)
{
    custom        options = custom_defaults;
    co_optimizer *optimizer;

    COI_ENTER(ctx, "custom_optimizer", NULL);
    if (rule == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (rule) of custom_optimizer is NULL; it must be a rule");
        return NULL;
    }
    if (!coi_take_options(ctx, &options.rule, sizeof(options.rule), rule, 2))
        return NULL;
    options.learning_rate = options.rule.learning_rate;
    optimizer = coi_optimizer_new(ctx, &custom_rule, &options);
    return optimizer != NULL && copy_texts(ctx, optimizer) ? optimizer : NULL;
}

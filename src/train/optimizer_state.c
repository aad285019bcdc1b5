/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All state of an optimizer by name, for checkpoints, and averages in place of weights.
 */
#include "train/optimizer.h"

#include "ops/engine/call_recording.h"
#include "variable/variable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- scalars --- */

/* A scalar of the state: a field of coi_numbers, int64 or double. */
typedef struct scalar {
    const char *name;
    size_t      at;
    bool        is_double;
    bool (*is_kept)(const co_optimizer *optimizer);
    bool (*is_right)(const co_optimizer *optimizer, double x);
    const char *must; /* be, for messages */
} scalar;

static bool
is_always_kept(const co_optimizer *optimizer)
{
    (void)optimizer;
    return true;
}

static bool
has_own_rate(const co_optimizer *optimizer)
{
    return optimizer->common.schedule == NULL;
}

static bool
accumulates(const co_optimizer *optimizer)
{
    return optimizer->common.accumulation_steps > 1;
}

static bool
scales_losses(const co_optimizer *optimizer)
{
    return optimizer->common.loss_scale > 0;
}

static bool
is_count(const co_optimizer *optimizer, double x)
{
    (void)optimizer;
    return x >= 0 && x < 0x1p53;
}

static bool
is_finite(const co_optimizer *optimizer, double x)
{
    (void)optimizer;
    return isfinite(x);
}

static bool
is_in_cycle(const co_optimizer *optimizer, double x)
{
    return x >= 0 && x < optimizer->common.accumulation_steps;
}

static bool
is_scale(const co_optimizer *optimizer, double x)
{
    (void)optimizer;
    return x > 0 && isfinite(x);
}

/* By name, as the dict has them. */
static const scalar scalars[] = {
    { "accumulated", offsetof(coi_numbers, accumulated), false, accumulates, is_in_cycle,
      "from 0 to accumulation_steps - 1" },
    { "good_steps", offsetof(coi_numbers, good_steps), false, scales_losses, is_count,
      "not negative" },
    { "iterations", offsetof(coi_numbers, iterations), false, is_always_kept, is_count,
      "not negative" },
    { "learning_rate", offsetof(coi_numbers, learning_rate), true, has_own_rate, is_finite,
      "finite" },
    { "loss_scale", offsetof(coi_numbers, loss_scale), true, scales_losses, is_scale,
      "above 0 and finite" },
};
enum { NUM_SCALARS = sizeof(scalars) / sizeof(scalars[0]) };

static co_value *
read_scalar(co_context *ctx, const scalar *s, const coi_numbers *numbers)
{
    const char *at = (const char *)numbers + s->at;

    return co_tensor(ctx, s->is_double ? CO_FLOAT64 : CO_INT64, NULL, 0, at);
}

/* False with an error. */
static bool
write_scalar(co_context *ctx, const co_optimizer *optimizer, const scalar *s, co_value *value,
             coi_numbers *numbers)
{
    const double x = s->is_double ? co_item_float(ctx, value) : (double)co_item_int(ctx, value);
    char        *at = (char *)numbers + s->at;

    if (ctx->error.code != CO_OK)
        return false;
    if (!s->is_right(optimizer, x)) {
        coi_fail(ctx, CO_VALUE_ERROR, "%s of the state of %s is %g; it must be %s", s->name,
                 optimizer->name, x, s->must);
        return false;
    }
    if (s->is_double)
        memcpy(at, &x, sizeof(x));
    else
        memcpy(at, &(int64_t){ (int64_t)x }, sizeof(int64_t));
    return true;
}

static const scalar *
scalar_named(const co_optimizer *optimizer, const char *name)
{
    for (int i = 0; i < NUM_SCALARS; ++i)
        if (scalars[i].is_kept(optimizer) && strcmp(scalars[i].name, name) == 0)
            return &scalars[i];
    return NULL;
}

/* --- all of it --- */

typedef struct named {
    const char *name;
    co_value   *value;
} named;

static int
compare_names(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static const coi_slot_entry *
entries_of(co_optimizer *optimizer, size_t *n)
{
    const coi_slot_entry *entries;

    coi_lock_take(&optimizer->lock);
    entries = optimizer->entries;
    *n = optimizer->num_entries;
    coi_lock_give(&optimizer->lock);
    return entries;
}

/* The slots that were made, by name; `all` has room for them. False with an error. */
static bool
collect_slots(co_context *ctx, const co_optimizer *optimizer, const coi_slot_entry *entry,
              named *all, size_t *n)
{
    for (; entry != NULL; entry = entry->next)
        for (int k = 0; k < optimizer->num_slots; ++k) {
            if (!coi_slot_fill(ctx, optimizer, entry, k))
                return false;
            all[*n].name = entry->slots[k]->u.variable->name;
            all[(*n)++].value = entry->slots[k];
        }
    return true;
}

static bool
check_names(co_context *ctx, const co_optimizer *optimizer, const named *all, size_t n)
{
    for (size_t i = 1; i < n; ++i)
        if (strcmp(all[i - 1].name, all[i].name) == 0) {
            coi_fail(
                ctx, CO_ALREADY_EXISTS,
                "%s has two states with the name '%.100s'; give the variables that they are of "
                "names of their own",
                optimizer->name, all[i].name);
            return false;
        }
    return true;
}

/* All states in the order of their names; `all` has room for them. 0 with an error. */
static size_t
collect(co_context *ctx, co_optimizer *optimizer, const coi_slot_entry *entries, named *all)
{
    const coi_numbers numbers = coi_numbers_get(ctx, optimizer);
    size_t            n = 0;

    for (int i = 0; i < NUM_SCALARS; ++i)
        if (scalars[i].is_kept(optimizer)) {
            all[n].name = scalars[i].name;
            all[n++].value = read_scalar(ctx, &scalars[i], &numbers);
        }
    if (!collect_slots(ctx, optimizer, entries, all, &n) || ctx->error.code != CO_OK)
        return 0;
    qsort(all, n, sizeof(*all), compare_names);
    return check_names(ctx, optimizer, all, n) ? n : 0;
}

static co_value *
dict_of(co_context *ctx, const named *all, size_t n)
{
    size_t       nbytes = n * (sizeof(char *) + sizeof(co_value *));
    const char **keys = coi_small_alloc(&ctx->heap, nbytes);
    co_value   **items = (co_value **)(void *)(keys + n), *dict;

    if (keys == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu states of an optimizer", n);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i) {
        keys[i] = all[i].name;
        items[i] = all[i].value;
    }
    dict = co_dict(ctx, keys, items, n);
    coi_small_free(&ctx->heap, keys, nbytes);
    return dict;
}

co_value *
co_optimizer_state(co_context *ctx, co_optimizer *optimizer)
{
    const coi_slot_entry *entries;
    size_t                n, nbytes;
    named                *all;
    co_value             *state = NULL;

    COI_ENTER(ctx, "optimizer_state", NULL);
    if (!coi_check_optimizer(ctx, optimizer) || !coi_may_set(ctx))
        return NULL;
    entries = entries_of(optimizer, &n);
    nbytes = (NUM_SCALARS + n * COI_ALL_SLOTS) * sizeof(*all);
    all = coi_small_alloc(&ctx->heap, nbytes);
    if (all == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the states of an optimizer");
        return NULL;
    }
    n = collect(ctx, optimizer, entries, all);
    if (n > 0)
        state = dict_of(ctx, all, n);
    coi_small_free(&ctx->heap, all, nbytes);
    return state;
}

/* --- setting it --- */

static co_value *
slot_named(const co_optimizer *optimizer, const coi_slot_entry *entry, const char *name)
{
    for (; entry != NULL; entry = entry->next)
        for (int k = 0; k < optimizer->num_slots; ++k)
            if (strcmp(entry->slots[k]->u.variable->name, name) == 0)
                return entry->slots[k];
    return NULL;
}

/* Whether every key is a state. */
static bool
check_keys(co_context *ctx, co_optimizer *optimizer, const coi_slot_entry *entries,
           const co_value *state)
{
    for (size_t i = 0; i < state->u.items.n; ++i) {
        const char *key = co_key(ctx, state, i);

        if (scalar_named(optimizer, key) != NULL || slot_named(optimizer, entries, key) != NULL)
            continue;
        coi_fail(ctx, CO_NOT_FOUND,
                 "%s with these options has no state '%.100s'; co_optimizer_build makes the slots "
                 "of variables, and co_optimizer_state tells names",
                 optimizer->name, key);
        return false;
    }
    return true;
}

static bool
set_slot(co_context *ctx, co_value *slot, co_value *value)
{
    if (value->kind == CO_KIND_VARIABLE)
        value = co_variable_save(ctx, value);
    return value != NULL && co_variable_restore(ctx, slot, value) == CO_OK;
}

/* Put the scalars of a state into `numbers`. False with an error. */
static bool
write_scalars(co_context *ctx, const co_optimizer *optimizer, const co_value *state,
              coi_numbers *numbers)
{
    bool ok = true;

    for (size_t i = 0; ok && i < state->u.items.n; ++i) {
        const scalar *s = scalar_named(optimizer, co_key(ctx, state, i));

        if (s != NULL)
            ok = write_scalar(ctx, optimizer, s, state->u.items.items[i], numbers);
    }
    return ok;
}

bool
coi_optimizer_check_scalars(co_context *ctx, co_optimizer *optimizer, co_value *state)
{
    coi_numbers numbers = coi_numbers_get(ctx, optimizer);

    return write_scalars(ctx, optimizer, state, &numbers);
}

static void
set_state(co_context *ctx, co_optimizer *optimizer, const coi_slot_entry *entries, co_value *state)
{
    coi_numbers numbers = coi_numbers_get(ctx, optimizer);
    bool        ok = write_scalars(ctx, optimizer, state, &numbers);

    for (size_t i = 0; ok && i < state->u.items.n; ++i) {
        const char *key = co_key(ctx, state, i);

        if (scalar_named(optimizer, key) == NULL)
            ok = set_slot(ctx, slot_named(optimizer, entries, key), state->u.items.items[i]);
    }
    if (ok)
        coi_numbers_set(ctx, optimizer, &numbers);
}

/* CO_RUNTIME_ERROR in a step, where each replica would do it. */
static bool
is_outside_steps(co_context *ctx)
{
    if (!coi_in_replica(ctx) && ctx->mode.update_id < 0)
        return coi_may_set(ctx);
    coi_fail(ctx, CO_RUNTIME_ERROR, "%s is called in a step; call it before or after", ctx->call);
    return false;
}

co_code
co_optimizer_set_state(co_context *ctx, co_optimizer *optimizer, co_value *state)
{
    const coi_slot_entry *entries;
    size_t                n;

    COI_ENTER_CODE(ctx, "optimizer_set_state");
    if (!coi_check_optimizer(ctx, optimizer) ||
        !coi_check_kind(ctx, state, CO_KIND_DICT, 3, "state") || !is_outside_steps(ctx))
        return ctx->error.code;
    entries = entries_of(optimizer, &n);
    if (check_keys(ctx, optimizer, entries, state))
        set_state(ctx, optimizer, entries, state);
    return ctx->error.code;
}

/* --- averages in place of weights --- */

typedef struct swapping {
    coi_effect  effect;
    const void *resources[2];
    co_value   *variable, *average;
} swapping;

static co_code
swap_effect(co_context *ctx, coi_effect *effect)
{
    const swapping *s = (const swapping *)(const void *)effect;
    co_value      **weight = coi_plain_lock(s->variable), **average = coi_plain_lock(s->average);
    co_value       *other = *weight;

    *weight = *average;
    *average = other;
    coi_plain_unlock(ctx, s->average, NULL);
    coi_plain_unlock(ctx, s->variable, NULL);
    return CO_OK;
}

const coi_op coi_op_swap_average = {
    COI_EFFECT("swap_average", "Exchanges a variable and its average; co_optimizer_swap_averages.",
               swap_effect, CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),
    .holds_locks = true
};

/* Components that have both. */
static bool
swap_components(co_context *ctx, const co_optimizer *optimizer, const coi_slot_entry *entry)
{
    const coi_variable *variable = entry->variable->u.variable;
    size_t              n = variable->components != NULL ? variable->num_components : 1;

    for (size_t i = 0; i < n; ++i) {
        swapping s = { .variable = coi_variable_component(entry->variable, i),
                       .average = coi_variable_component(entry->slots[optimizer->average], i) };

        if (!coi_plain_has_value(s.variable) || !coi_plain_has_value(s.average))
            continue;
        s.resources[0] = s.variable;
        s.resources[1] = s.average;
        s.effect = (coi_effect){ .resources = s.resources, .num_resources = 2 };
        if (coi_execute(ctx, &coi_op_swap_average, &s.effect) != CO_OK)
            return false;
    }
    return true;
}

co_code
co_optimizer_swap_averages(co_context *ctx, co_optimizer *optimizer)
{
    const coi_slot_entry *entry;
    size_t                n;
    bool                  ok = true;

    COI_ENTER_CODE(ctx, "optimizer_swap_averages");
    if (!coi_check_optimizer(ctx, optimizer) || !is_outside_steps(ctx))
        return ctx->error.code;
    entry = entries_of(optimizer, &n);
    if (optimizer->average < 0 || n == 0)
        return coi_fail(ctx, CO_FAILED_PRECONDITION,
                        "%s %s; set use_ema with co_optimizer_configure and apply an update",
                        optimizer->name,
                        optimizer->average < 0 ? "keeps no averages" : "has no average yet");
    for (; ok && entry != NULL; entry = entry->next)
        ok = swap_components(ctx, optimizer, entry);
    if (ok)
        atomic_store(&optimizer->is_swapped, !atomic_load(&optimizer->is_swapped));
    return ctx->error.code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a program, and the plans of a region: which calls can be planned together, which
 * plan is for the values of a run, and when a new one is recorded.
 */
#include "function/plan.h"
#include "function/value_tree.h"

#include <string.h>

/* After so many recordings of which no plan came, none is tried any more. Those that failed because
 * of types would fail again; others may have met values that are in the way this time alone. */
#define MOST_FAILURES 24
#define TYPE_FAILURE  8

COI_USES_OP(tape_begin)
COI_USES_OP(gradient)

/* --- which calls --- */

static bool
is_planned(const coi_program_step *step)
{
    return step->op->replay == NULL || step->op->is_planned;
}

/* --- slots --- */

typedef struct slot_use {
    const coi_program *program;
    uint32_t          *made, *last; /* by slot: the steps that make it and use it last */
    uint32_t           step;
    coi_region        *region; /* whose slots are collected */
    /* By slot: position of the region + 1 that has it in its list. */
    uint32_t *in, *taken, *dropped;
    uint32_t  number;
    bool      ok;
} slot_use;

static bool
is_slot(const slot_use *u, const co_value *leaf)
{
    return leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == u->program->serial;
}

static bool
note_made(const co_value *leaf, void *arg)
{
    slot_use *u = arg;

    if (is_slot(u, leaf))
        u->made[leaf->u.symbol.slot] = u->last[leaf->u.symbol.slot] = u->step;
    return true;
}

static bool
note_used(const co_value *leaf, void *arg)
{
    slot_use *u = arg;

    if (is_slot(u, leaf))
        u->last[leaf->u.symbol.slot] = u->step;
    return true;
}

bool
coi_number_add(coi_memory *memory, coi_number_list *list, uint32_t number)
{
    if (!coi_grow(memory, (void **)&list->at, &list->capacity, list->n + 1, sizeof(*list->at)))
        return false;
    list->at[list->n++] = number;
    return true;
}

void
coi_number_list_free(coi_memory *memory, const coi_number_list *list)
{
    coi_free(memory, list->at, list->capacity * sizeof(*list->at));
}

/* Add a slot to a list of the region, once. */
static bool
append(slot_use *u, coi_number_list *list, uint32_t *added, uint32_t slot)
{
    if (added != NULL && added[slot] == u->number)
        return true;
    if (added != NULL)
        added[slot] = u->number;
    u->ok = coi_number_add(u->program->memory, list, slot);
    return u->ok;
}

/* Whether the slot is made by a step from `first` on. */
static bool
is_made_since(const slot_use *u, uint32_t slot, size_t first)
{
    return u->made[slot] != UINT32_MAX && u->made[slot] >= first;
}

/* Whether it is made in the region, and not ahead. */
static bool
is_made_here(const slot_use *u, uint32_t slot)
{
    return is_made_since(u, slot, u->region->first) && !coi_is_ahead(u->region, u->made[slot]);
}

static bool
is_made_by_call(const slot_use *u, uint32_t slot)
{
    return u->program->steps[u->made[slot]].op->is_plan_call;
}

static bool
collect_input(const co_value *leaf, void *arg)
{
    slot_use *u = arg;

    return !is_slot(u, leaf) || is_made_here(u, (uint32_t)leaf->u.symbol.slot) ||
           append(u, &u->region->in, u->in, (uint32_t)leaf->u.symbol.slot);
}

/* What a call takes that the plan makes. */
static bool
collect_taken(const co_value *leaf, void *arg)
{
    slot_use *u = arg;
    uint32_t  slot;

    if (!is_slot(u, leaf))
        return true;
    slot = (uint32_t)leaf->u.symbol.slot;
    return !is_made_here(u, slot) || is_made_by_call(u, slot) ||
           append(u, &u->region->taken, u->taken, slot);
}

static bool
collect_output(const co_value *leaf, void *arg)
{
    slot_use *u = arg;
    uint32_t  slot;

    if (!is_slot(u, leaf))
        return true;
    slot = (uint32_t)leaf->u.symbol.slot;
    return u->last[slot] < u->region->end || u->taken[slot] == u->number ||
           append(u, &u->region->out, NULL, slot);
}

/* What the region finds in slots or puts there, and nothing uses after it. */
static bool
collect_dropped(const co_value *leaf, void *arg)
{
    slot_use *u = arg;
    uint32_t  slot;

    if (!is_slot(u, leaf))
        return true;
    slot = (uint32_t)leaf->u.symbol.slot;
    if (u->last[slot] >= u->region->end ||
        (is_made_here(u, slot) && u->taken[slot] != u->number && !is_made_by_call(u, slot)))
        return true;
    return append(u, &u->region->dropped, u->dropped, slot);
}

/* All calls with one function for their keys have the same key. */
static void
note_key(coi_region *region, const coi_op *op)
{
    if (op->plan_key == NULL)
        return;
    region->has_keys = region->has_keys || (region->key != NULL && region->key != op->plan_key);
    region->key = op->plan_key;
}

static void
collect_from(slot_use *u, const coi_program_step *step, coi_leaf_test collect)
{
    for (int k = 0; u->ok && k < step->num_in; ++k)
        coi_tree_all(step->in[k], collect, u);
}

/* A call for plans of the region to make or start. */
static void
add_call(slot_use *u, size_t step)
{
    coi_region *region = u->region;

    collect_from(u, &u->program->steps[step], collect_taken);
    u->ok = u->ok && coi_grow(u->program->memory, (void **)&region->calls, &region->cap_calls,
                              region->num_calls + 1, sizeof(*region->calls));
    if (u->ok)
        region->calls[region->num_calls++] = (coi_region_call){ step, region->taken.n };
}

static bool
is_made_before_end(const co_value *leaf, void *arg)
{
    const slot_use *u = arg;

    return !is_slot(u, leaf) || !is_made_since(u, (uint32_t)leaf->u.symbol.slot, u->region->end);
}

/* Whether plans of the region can start a call after it. */
static bool
can_start(slot_use *u, const coi_program_step *step)
{
    bool ok = step->op->start != NULL;

    for (int k = 0; ok && k < step->num_in; ++k)
        ok = coi_tree_all(step->in[k], is_made_before_end, u);
    return ok;
}

static bool
collect_slots(slot_use *u)
{
    coi_region             *region = u->region;
    const coi_program_step *steps = u->program->steps;

    for (size_t i = region->first; u->ok && i < region->end; ++i) {
        if (steps[i].op->is_plan_call)
            add_call(u, i);
        if (steps[i].op->is_plan_call || coi_is_ahead(region, i))
            continue;
        collect_from(u, &steps[i], collect_input);
        note_key(region, steps[i].op);
        region->has_tape = region->has_tape || steps[i].op == &coi_op_tape_begin;
    }
    for (size_t i = region->end; u->ok && i < u->program->num_steps && can_start(u, &steps[i]); ++i)
        add_call(u, i);
    for (size_t i = region->first; u->ok && i < region->end; ++i) {
        bool is_planned_here = !steps[i].op->is_plan_call && !coi_is_ahead(region, i);

        collect_from(u, &steps[i], collect_dropped);
        if (u->ok)
            coi_tree_all(steps[i].result, is_planned_here ? collect_output : collect_dropped, u);
    }
    return u->ok;
}

static void
find_uses(slot_use *u)
{
    const coi_program *program = u->program;

    for (uint32_t i = 0; i < program->num_slots; ++i)
        u->made[i] = UINT32_MAX; /* an argument */
    for (u->step = 0; u->step < program->num_steps; ++u->step) {
        const coi_program_step *step = &program->steps[u->step];

        for (int k = 0; k < step->num_in; ++k)
            coi_tree_all(step->in[k], note_used, u);
        coi_tree_all(step->result, note_made, u);
    }
    coi_tree_all(program->result, note_used, u);
}

/* --- regions --- */

/* Where the results of a call of a plan would be used by its kernels, from `first` on. */
typedef struct call_use {
    const slot_use *u;
    size_t          first;
} call_use;

static bool
is_no_call_result(const co_value *leaf, void *arg)
{
    const call_use *c = arg;
    uint32_t        slot;

    if (!is_slot(c->u, leaf))
        return true;
    slot = (uint32_t)leaf->u.symbol.slot;
    return !is_made_since(c->u, slot, c->first) || !is_made_by_call(c->u, slot);
}

/* Whether a plan that begins at `first` can have this step as kernels. */
static bool
is_planned_since(const slot_use *u, const coi_program_step *step, size_t first)
{
    bool is_free = is_planned(step);

    for (int k = 0; is_free && k < step->num_in; ++k)
        is_free = coi_tree_all(step->in[k], is_no_call_result, &(call_use){ u, first });
    return is_free;
}

/* The step after the one that ends the tape which begins at `begin`. `is_whole`: a plan can have
 * all of it. */
static size_t
end_of_tapes(const slot_use *u, size_t begin, bool *is_whole)
{
    const coi_program *program = u->program;
    size_t             depth = 0, i = begin;

    *is_whole = true;
    do {
        const coi_program_step *step = &program->steps[i++];

        *is_whole = *is_whole && (step->op->is_plan_call || is_planned_since(u, step, begin));
        if (step->op == &coi_op_tape_begin)
            ++depth;
        else if (step->ends_tape)
            --depth;
    } while (depth > 0 && i < program->num_steps);
    *is_whole = *is_whole && depth == 0;
    return i;
}

/* Whether steps, which a plan can have, can be in one that begins at `first`. */
static bool
continue_region(const slot_use *u, size_t first, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; ++i)
        if (!u->program->steps[i].op->is_plan_call &&
            !is_planned_since(u, &u->program->steps[i], first))
            return false;
    return true;
}

bool
coi_has_operator(const coi_program *program, size_t first, size_t end)
{
    for (size_t i = first; i < end; ++i)
        if (program->steps[i].op->replay == NULL || program->steps[i].op == &coi_op_gradient)
            return true;
    return false;
}

static bool
fill_region(slot_use *u, coi_region *region)
{
    coi_lock_init(&region->lock);
    u->region = region;
    ++u->number;
    return collect_slots(u);
}

static bool
add_region(coi_program *program, slot_use *u, size_t first, size_t end)
{
    coi_region *region;

    if (!coi_has_operator(program, first, end))
        return true;
    if (!coi_grow(program->memory, (void **)&program->regions, &program->cap_regions,
                  program->num_regions + 1, sizeof(*program->regions)))
        return false;
    region = &program->regions[program->num_regions++];
    memset(region, 0, sizeof(*region));
    region->first = first;
    region->end = end;
    return fill_region(u, region);
}

static bool
find_regions(coi_program *program, slot_use *u)
{
    size_t first = 0, i = 0, after;
    bool   is_whole;

    while (i < program->num_steps) {
        const coi_program_step *step = &program->steps[i];

        after = i + 1;
        is_whole = is_planned(step);
        if (step->op == &coi_op_tape_begin)
            after = end_of_tapes(u, i, &is_whole);
        if (!is_whole || !continue_region(u, first, i, after)) {
            if (!add_region(program, u, first, i))
                return false;
            first = is_whole ? i : after;
        }
        i = after;
    }
    return add_region(program, u, first, program->num_steps);
}

static size_t
use_bytes(const coi_program *program)
{
    return 5 * ((size_t)program->num_slots + 1) * sizeof(uint32_t);
}

/* Look at the uses of all slots; false without memory. */
static bool
open_uses(slot_use *u, const coi_program *program)
{
    size_t n = (size_t)program->num_slots + 1;

    *u = (slot_use){ .program = program, .ok = true };
    u->made = coi_calloc(program->memory, use_bytes(program));
    if (u->made == NULL)
        return false;
    u->last = u->made + n;
    u->in = u->last + n;
    u->taken = u->in + n;
    u->dropped = u->taken + n;
    find_uses(u);
    return true;
}

bool
coi_program_find_regions(co_context *ctx, coi_program *program)
{
    slot_use u;
    bool     ok = open_uses(&u, program) && find_regions(program, &u);

    coi_free(program->memory, u.made, use_bytes(program));
    if (!ok)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
    return ok;
}

bool
coi_regions_fill(const coi_program *program, coi_region *regions, size_t n)
{
    slot_use u;
    bool     ok = open_uses(&u, program);

    for (size_t i = 0; ok && i < n; ++i)
        ok = fill_region(&u, &regions[i]);
    coi_free(program->memory, u.made, use_bytes(program));
    return ok;
}

void
coi_region_clear(coi_heap *heap, coi_memory *memory, coi_region *region)
{
    coi_region_parts *parts = atomic_load(&region->parts);

    for (unsigned k = 0; k < atomic_load(&region->num_plans); ++k)
        coi_plan_destroy(heap, region->plans[k]);
    coi_number_list_free(memory, &region->ahead);
    coi_number_list_free(memory, &region->in);
    coi_number_list_free(memory, &region->taken);
    coi_number_list_free(memory, &region->out);
    coi_number_list_free(memory, &region->dropped);
    coi_free(memory, region->calls, region->cap_calls * sizeof(*region->calls));
    for (size_t i = 0; parts != NULL && i < parts->n; ++i)
        coi_region_clear(heap, memory, &parts->at[i]);
    coi_free(memory, parts, sizeof(*parts));
}

void
coi_regions_destroy(coi_heap *heap, coi_program *program)
{
    for (size_t i = 0; i < program->num_regions; ++i)
        coi_region_clear(heap, program->memory, &program->regions[i]);
    coi_free(program->memory, program->regions, program->cap_regions * sizeof(*program->regions));
}

/* --- plans of a region --- */

/* A context whose calls a plan can stand for. Tapes outside the function, observers and captures
 * want to see the calls. */
bool
coi_can_run_plans(const co_context *ctx)
{
    return !coi_is_special(ctx) && !ctx->recording && !ctx->infers_types && ctx->capture == NULL &&
           ctx->device != NULL && ctx->device->cpu_kernels && ctx->error.code == CO_OK;
}

static coi_plan_key
key_of(co_context *ctx, const coi_region *region)
{
    coi_plan_key key = { { 0 } };

    if (region->key != NULL)
        region->key(ctx, &key);
    return key;
}

/* A plan for these values that nobody else is running, taken; NULL if there is none. */
static coi_plan *
take_plan(const co_context *ctx, coi_region *region, const coi_plan_key *key,
          co_value *const *slots)
{
    unsigned n = atomic_load_explicit(&region->num_plans, memory_order_acquire);

    for (unsigned i = 0; i < n; ++i) {
        coi_plan *plan = region->plans[i];

        if (coi_plan_fits(plan, ctx, key, slots) &&
            !atomic_flag_test_and_set_explicit(&plan->is_busy, memory_order_acquire))
            return plan;
    }
    return NULL;
}

static void
give_back(coi_plan *plan, bool has_run)
{
    long long runs = atomic_load_explicit(&plan->num_runs, memory_order_relaxed);

    atomic_store_explicit(&plan->num_runs, runs + has_run, memory_order_relaxed);
    atomic_flag_clear_explicit(&plan->is_busy, memory_order_release);
}

/* Once for a region. A plan that is there stays: others may be looking at it. */
static void
say_most_plans(co_context *ctx, coi_region *region)
{
    if (!atomic_exchange_explicit(&region->said_most, true, memory_order_relaxed))
        coi_log_line(&ctx->runtime->log, CO_LOG_INFO,
                     "no plan of calls %zu to %zu for more shapes or threads than the first %d: "
                     "other calls are made one by one; pad to fewer shapes, or use a function of "
                     "its own for those that matter",
                     region->first, region->end - 1, COI_MOST_PLANS);
}

static bool
may_record(co_context *ctx, coi_region *region)
{
    if (atomic_load_explicit(&region->num_plans, memory_order_relaxed) == COI_MOST_PLANS) {
        say_most_plans(ctx, region);
        return false;
    }
    return atomic_load_explicit(&region->num_failures, memory_order_relaxed) < MOST_FAILURES;
}

static void
drop_slots(co_context *ctx, const coi_region *region, co_value **slots)
{
    for (size_t i = 0; i < region->dropped.n; ++i) {
        co_value **slot = &slots[region->dropped.at[i]];

        coi_unref(&ctx->heap, *slot);
        *slot = NULL;
    }
}

bool
coi_region_run(co_context *ctx, const coi_program *program, coi_region *region, co_value **slots,
               const coi_plan_caller *caller, coi_plan_recording **recording)
{
    bool         done, fits;
    coi_plan_key key;
    coi_plan    *plan;

    if (!coi_can_run_plans(ctx) || region->has_keys)
        return false;
    key = key_of(ctx, region);
    plan = take_plan(ctx, region, &key, slots);
    if (plan == NULL) {
        if (recording != NULL && may_record(ctx, region))
            *recording = coi_plan_record(ctx, program, region, slots, &key);
        return false;
    }
    done = coi_plan_run(ctx, plan, slots, caller, &fits);
    give_back(plan, done);
    if (done)
        drop_slots(ctx, region, slots);
    return done || ctx->error.code != CO_OK;
}

static size_t
count_needed(const coi_plan *plan)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->num_kernels; ++i)
        n += !plan->kernels[i].is_dead;
    return n;
}

static void
say_plan(co_context *ctx, const coi_plan *plan, const coi_no_plan *why, const coi_region *region)
{
    coi_log *log = &ctx->runtime->log;
    size_t   needed = plan != NULL ? count_needed(plan) : 0;

    if (plan != NULL)
        coi_log_line(log, CO_LOG_INFO,
                     "plan of calls %zu to %zu: %zu kernel%s in %zu start%s, %zu bytes for %zu "
                     "bytes of results that it drops",
                     region->first, region->end - 1, needed, COI_S(needed), plan->num_starts,
                     COI_S(plan->num_starts), plan->arena_bytes, plan->temporary_bytes);
    else if (why->step != UINT32_MAX)
        coi_log_line(log, CO_LOG_INFO, "no plan of calls %zu to %zu: %s in call %u", region->first,
                     region->end - 1, why->text, (unsigned)why->step);
    else
        coi_log_line(log, CO_LOG_INFO, "no plan of calls %zu to %zu: %s", region->first,
                     region->end - 1, why->text);
}

bool
coi_region_end(co_context *ctx, const coi_program *program, coi_region *region,
               co_value *const *slots, co_value *const *slots_of_run, coi_plan_recording *recording)
{
    coi_no_plan why = { NULL, UINT32_MAX, false };
    coi_plan   *plan = coi_plan_recorded(ctx, recording, region, slots, &why);
    bool        is_added = false;

    if (plan != NULL || why.text != NULL)
        say_plan(ctx, plan, &why, region);
    if (plan == NULL && why.text != NULL && !why.is_of_values && why.step != UINT32_MAX &&
        atomic_load(&region->num_plans) == 0 &&
        coi_region_cut(ctx, program, region, why.step, slots_of_run))
        return false;
    coi_lock_take(&region->lock);
    if (plan == NULL) {
        atomic_fetch_add(&region->num_failures, why.text == NULL   ? 0u
                                                : why.is_of_values ? 1u
                                                                   : TYPE_FAILURE);
    } else if (atomic_load(&region->num_plans) < COI_MOST_PLANS) {
        region->plans[atomic_load(&region->num_plans)] = plan;
        atomic_fetch_add_explicit(&region->num_plans, 1, memory_order_release);
        is_added = true;
    }
    coi_lock_give(&region->lock);
    if (plan != NULL && !is_added) /* others were faster */
        coi_plan_destroy(&ctx->heap, plan);
    return is_added;
}

static void
count_plans(coi_region *region, co_function_stats *stats)
{
    unsigned          n = atomic_load_explicit(&region->num_plans, memory_order_acquire);
    coi_region_parts *parts = atomic_load_explicit(&region->parts, memory_order_acquire);

    stats->plans += n;
    for (unsigned k = 0; k < n; ++k) {
        stats->plan_runs += atomic_load_explicit(&region->plans[k]->num_runs, memory_order_relaxed);
        stats->planned_bytes += (int64_t)region->plans[k]->arena_bytes;
        stats->temporary_bytes += (int64_t)region->plans[k]->temporary_bytes;
    }
    for (size_t i = 0; parts != NULL && i < parts->n; ++i)
        count_plans(&parts->at[i], stats);
}

void
coi_regions_count(coi_program *program, co_function_stats *stats)
{
    for (size_t i = 0; i < program->num_regions; ++i)
        count_plans(&program->regions[i], stats);
}

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

/* The call after the one that ends the tape which begins at `begin`. */
static size_t
end_of_tapes(const coi_program *program, size_t begin, bool *is_pure)
{
    size_t depth = 0, i = begin;

    *is_pure = true;
    do {
        const coi_program_step *step = &program->steps[i++];

        *is_pure = *is_pure && is_planned(step);
        if (step->op == &coi_op_tape_begin)
            ++depth;
        else if (step->ends_tape)
            --depth;
    } while (depth > 0 && i < program->num_steps);
    *is_pure = *is_pure && depth == 0;
    return i;
}

/* --- slots --- */

typedef struct slot_use {
    const coi_program *program;
    uint32_t          *made, *last; /* by slot: the steps that make it and use it last */
    uint32_t           step;
    coi_region        *region; /* whose inputs are collected */
    uint32_t          *seen;   /* by slot: position of the region + 1 that has it */
    uint32_t           number;
    bool               ok;
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

static bool
append(coi_memory *memory, uint32_t **list, size_t *n, size_t *capacity, uint32_t slot)
{
    if (!coi_grow(memory, (void **)list, capacity, *n + 1, sizeof(**list)))
        return false;
    (*list)[(*n)++] = slot;
    return true;
}

static bool
collect_input(const co_value *leaf, void *arg)
{
    slot_use   *u = arg;
    coi_region *region = u->region;
    uint32_t    slot;

    if (!is_slot(u, leaf))
        return true;
    slot = (uint32_t)leaf->u.symbol.slot;
    if ((u->made[slot] != UINT32_MAX && u->made[slot] >= region->first) ||
        u->seen[slot] == u->number)
        return true;
    u->seen[slot] = u->number;
    u->ok = append(u->program->memory, &region->in, &region->num_in, &region->cap_in, slot) &&
            (u->last[slot] >= region->end ||
             append(u->program->memory, &region->dropped, &region->num_dropped,
                    &region->cap_dropped, slot));
    return u->ok;
}

static bool
collect_output(const co_value *leaf, void *arg)
{
    slot_use   *u = arg;
    coi_region *region = u->region;

    if (is_slot(u, leaf) && u->last[leaf->u.symbol.slot] >= region->end)
        u->ok = append(u->program->memory, &region->out, &region->num_out, &region->cap_out,
                       (uint32_t)leaf->u.symbol.slot);
    return u->ok;
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

static bool
collect_slots(slot_use *u)
{
    for (size_t i = u->region->first; u->ok && i < u->region->end; ++i) {
        const coi_program_step *step = &u->program->steps[i];

        for (int k = 0; u->ok && k < step->num_in; ++k)
            coi_tree_all(step->in[k], collect_input, u);
        note_key(u->region, step->op);
        u->region->has_tape = u->region->has_tape || step->op == &coi_op_tape_begin;
        if (u->ok)
            coi_tree_all(step->result, collect_output, u);
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

static bool
has_operator(const coi_program *program, size_t first, size_t end)
{
    for (size_t i = first; i < end; ++i)
        if (program->steps[i].op->replay == NULL || program->steps[i].op == &coi_op_gradient)
            return true;
    return false;
}

static bool
add_region(coi_program *program, slot_use *u, size_t first, size_t end)
{
    coi_region *region;

    if (!has_operator(program, first, end))
        return true;
    if (!coi_grow(program->memory, (void **)&program->regions, &program->cap_regions,
                  program->num_regions + 1, sizeof(*program->regions)))
        return false;
    region = &program->regions[program->num_regions++];
    memset(region, 0, sizeof(*region));
    region->first = first;
    region->end = end;
    coi_lock_init(&region->lock);
    u->region = region;
    u->number = (uint32_t)program->num_regions;
    return collect_slots(u);
}

static bool
find_regions(coi_program *program, slot_use *u)
{
    size_t first = 0, i = 0, after;
    bool   is_pure;

    find_uses(u);
    while (i < program->num_steps) {
        const coi_program_step *step = &program->steps[i];

        after = i + 1;
        is_pure = is_planned(step);
        if (step->op == &coi_op_tape_begin)
            after = end_of_tapes(program, i, &is_pure);
        if (!is_pure) {
            if (!add_region(program, u, first, i))
                return false;
            first = after;
        }
        i = after;
    }
    return add_region(program, u, first, program->num_steps);
}

bool
coi_program_find_regions(co_context *ctx, coi_program *program)
{
    size_t   n = (size_t)program->num_slots + 1, nbytes = 3 * n * sizeof(uint32_t);
    slot_use u = { .program = program, .ok = true };
    bool     ok;

    u.made = coi_calloc(program->memory, nbytes);
    if (u.made != NULL) {
        u.last = u.made + n;
        u.seen = u.last + n;
    }
    ok = u.made != NULL && find_regions(program, &u);
    coi_free(program->memory, u.made, nbytes);
    if (!ok)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
    return ok;
}

void
coi_regions_destroy(coi_heap *heap, coi_program *program)
{
    coi_memory *memory = program->memory;

    for (size_t i = 0; i < program->num_regions; ++i) {
        coi_region *region = &program->regions[i];

        for (unsigned k = 0; k < atomic_load(&region->num_plans); ++k)
            coi_plan_destroy(heap, region->plans[k]);
        coi_free(memory, region->in, region->cap_in * sizeof(*region->in));
        coi_free(memory, region->out, region->cap_out * sizeof(*region->out));
        coi_free(memory, region->dropped, region->cap_dropped * sizeof(*region->dropped));
    }
    coi_free(memory, program->regions, program->cap_regions * sizeof(*program->regions));
}

/* --- plans of a region --- */

/* A context whose calls a plan can stand for. Tapes outside the function, observers and captures
 * want to see the calls. */
static bool
can_run(const co_context *ctx)
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

static bool
may_record(coi_region *region)
{
    return atomic_load_explicit(&region->num_plans, memory_order_relaxed) < COI_MOST_PLANS &&
           atomic_load_explicit(&region->num_failures, memory_order_relaxed) < MOST_FAILURES;
}

static void
drop_inputs(co_context *ctx, const coi_region *region, co_value **slots)
{
    for (size_t i = 0; i < region->num_dropped; ++i) {
        co_value **slot = &slots[region->dropped[i]];

        coi_unref(&ctx->heap, *slot);
        *slot = NULL;
    }
}

bool
coi_region_run(co_context *ctx, const coi_program *program, coi_region *region, co_value **slots,
               coi_plan_recording **recording)
{
    bool         done, fits;
    coi_plan_key key;
    coi_plan    *plan;

    if (!can_run(ctx) || region->has_keys)
        return false;
    key = key_of(ctx, region);
    plan = take_plan(ctx, region, &key, slots);
    if (plan == NULL) {
        if (recording != NULL && may_record(region))
            *recording = coi_plan_record(ctx, program, region, slots, &key);
        return false;
    }
    done = coi_plan_run(ctx, plan, slots, &fits);
    give_back(plan, done);
    if (done)
        drop_inputs(ctx, region, slots);
    return done || ctx->error.code != CO_OK;
}

static void
say_plan(co_context *ctx, const coi_plan *plan, const char *why, const coi_region *region)
{
    coi_log *log = &ctx->runtime->log;

    if (plan != NULL)
        coi_log_line(log, CO_LOG_INFO,
                     "plan of calls %zu to %zu: %zu kernels, %zu bytes for %zu bytes of results "
                     "that it drops",
                     region->first, region->end - 1, plan->num_kernels, plan->arena_bytes,
                     plan->temporary_bytes);
    else
        coi_log_line(log, CO_LOG_INFO, "no plan of calls %zu to %zu: %s", region->first,
                     region->end - 1, why);
}

bool
coi_region_end(co_context *ctx, coi_region *region, co_value **slots, coi_plan_recording *recording)
{
    coi_no_plan why = { NULL, false };
    coi_plan   *plan = coi_plan_recorded(ctx, recording, region, slots, &why);
    bool        is_added = false;

    if (plan != NULL || why.text != NULL)
        say_plan(ctx, plan, why.text, region);
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

void
coi_regions_count(coi_program *program, co_function_stats *stats)
{
    for (size_t i = 0; i < program->num_regions; ++i) {
        coi_region *region = &program->regions[i];

        unsigned n = atomic_load_explicit(&region->num_plans, memory_order_acquire);

        stats->plans += n;
        for (unsigned k = 0; k < n; ++k) {
            stats->plan_runs += atomic_load_explicit(&region->plans[k]->num_runs,
                                                     memory_order_relaxed);
            stats->planned_bytes += (int64_t)region->plans[k]->arena_bytes;
            stats->temporary_bytes += (int64_t)region->plans[k]->temporary_bytes;
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of sessions: which steps of the graph a run makes, and when their values are dropped. Of a
 * run on replicas as much as is needed (strategy/graph_run.h).
 */
#include "compat/v1_session.h"

#include "function/value_tree.h"
#include "strategy/graph_run.h"

#include <string.h>

bool
coi_slot_list_has(const coi_slot_list *slots, uint64_t slot)
{
    for (size_t i = 0; i < slots->n; ++i)
        if (slots->slots[i] == slot)
            return true;
    return false;
}

bool
coi_slot_list_add(co_context *ctx, coi_slot_list *slots, uint64_t slot)
{
    if (coi_slot_list_has(slots, slot))
        return true;
    if (!coi_grow(&ctx->runtime->memory, (void **)&slots->slots, &slots->cap, slots->n + 1,
                  sizeof(*slots->slots))) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu fetches", slots->n + 1);
        return false;
    }
    slots->slots[slots->n++] = slot;
    return true;
}

static void
free_slots(coi_memory *memory, coi_slot_list *slots)
{
    coi_free(memory, slots->slots, slots->cap * sizeof(*slots->slots));
    *slots = (coi_slot_list){ 0 };
}

void
coi_slot_list_free(co_context *ctx, coi_slot_list *slots)
{
    free_slots(&ctx->runtime->memory, slots);
}

static bool
same_slots(const coi_slot_list *a, const coi_slot_list *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->slots, b->slots, a->n * sizeof(*a->slots)) == 0);
}

/* --- making one --- */

/* The attributes of a run are the plan's own: which calls of its programs are made. */
typedef struct run_part {
    coi_graph_run_attrs attrs;
    size_t              num_calls;
} run_part;

static void
destroy(coi_heap *heap, void *object)
{
    coi_session_plan *plan = object;

    for (size_t i = 0; i < plan->num_steps; ++i)
        if (plan->steps[i].op == &coi_op_run_in_graph) {
            run_part *part = plan->steps[i].attrs;

            coi_free(plan->memory, (void *)(uintptr_t)part->attrs.is_needed, part->num_calls);
            coi_free(plan->memory, part, sizeof(*part));
        }
    coi_free(plan->memory, plan->steps, (plan->cap_steps + 1) * sizeof(*plan->steps));
    coi_free(plan->memory, plan->dropped, (plan->num_slots + 1) * sizeof(*plan->dropped));
    free_slots(plan->memory, &plan->fetched);
    free_slots(plan->memory, &plan->fed);
    coi_object_free(heap, plan, sizeof(*plan));
}

static const coi_class plan_class = { "plan of a session", destroy, NULL };

/* What is known while one is made. */
typedef struct making {
    const co_graph *graph;
    coi_needs       needs;
    uint32_t       *order; /* steps of the graph */
    uint32_t       *last;  /* by slot: the step of the plan that uses it last */
} making;

static bool
making_open(making *m, const co_graph *graph)
{
    m->graph = graph;
    if (!coi_needs_open(&m->needs, graph->program))
        return false;
    m->needs.has_later = graph->has_later;
    m->order = coi_calloc(graph->memory, (m->needs.num_steps + 1) * sizeof(*m->order));
    m->last = coi_calloc(graph->memory, (m->needs.num_slots + 1) * sizeof(*m->last));
    return m->order != NULL && m->last != NULL;
}

static void
making_close(making *m)
{
    coi_memory *memory = m->graph->memory;

    coi_free(memory, m->order, (m->needs.num_steps + 1) * sizeof(*m->order));
    coi_free(memory, m->last, (m->needs.num_slots + 1) * sizeof(*m->last));
    coi_needs_close(&m->needs);
}

static bool
all_are(const bool *flags, size_t n)
{
    size_t i = 0;

    while (i < n && flags[i])
        ++i;
    return i == n;
}

/* As much of a run as is needed. */
static bool
take_part(const coi_session_plan *plan, making *m, coi_program_step *copy)
{
    run_part *part = coi_alloc(plan->memory, sizeof(*part));
    bool     *is_needed;

    if (part == NULL)
        return false;
    part->attrs = *(const coi_graph_run_attrs *)copy->attrs;
    if (!coi_graph_run_needed(&m->needs, copy, &is_needed, &part->num_calls)) {
        coi_free(plan->memory, part, sizeof(*part));
        return false;
    }
    if (is_needed != NULL && all_are(is_needed, part->num_calls - 1)) {
        coi_free(plan->memory, is_needed, part->num_calls);
        is_needed = NULL; /* a program that runs whole has plans (function/plan.h) */
    }
    part->attrs.is_needed = is_needed;
    copy->attrs = part;
    return true;
}

static bool
copy_step(coi_session_plan *plan, making *m, size_t i)
{
    coi_program_step *copy = &plan->steps[plan->num_steps];

    *copy = m->graph->program->steps[i];
    copy->num_dropped = copy->first_dropped = 0;
    if (copy->op == &coi_op_run_in_graph && !take_part(plan, m, copy))
        return false;
    plan->has_examples = plan->has_examples || coi_has_examples(copy->result);
    ++plan->num_steps;
    return true;
}

static bool
copy_steps(coi_session_plan *plan, making *m)
{
    if (!coi_needs_order(&m->needs, m->order))
        return false;
    while (plan->num_steps < plan->cap_steps)
        if (!copy_step(plan, m, m->order[plan->num_steps]))
            return false;
    return true;
}

/* Each slot after the last step that uses it, unless it is fetched. */
static void
find_last_uses(const coi_session_plan *plan, const making *m)
{
    coi_last_uses uses = { m->graph->program->serial, plan->steps, plan->num_steps, plan->num_slots,
                           m->last };

    coi_last_uses_find(&uses);
    for (size_t i = 0; i < plan->fetched.n; ++i)
        m->last[plan->fetched.slots[i]] = 0;
    coi_last_uses_sort(&uses, plan->dropped);
}

static bool
fill(coi_session_plan *plan, making *m)
{
    coi_needs *needs = &m->needs;
    size_t     n = 0;

    for (size_t i = 0; i < plan->fetched.n; ++i)
        needs->wanted[plan->fetched.slots[i]] = true;
    for (size_t i = 0; i < plan->fed.n; ++i)
        needs->given[plan->fed.slots[i]] = true;
    if (!coi_needs_find(needs))
        return false;
    for (size_t i = 0; i < needs->num_steps; ++i)
        n += needs->is_needed[i];
    plan->num_slots = needs->num_slots;
    plan->steps = coi_calloc(plan->memory, (n + 1) * sizeof(*plan->steps));
    plan->cap_steps = n;
    plan->dropped = coi_calloc(plan->memory, (plan->num_slots + 1) * sizeof(*plan->dropped));
    if (plan->steps == NULL || plan->dropped == NULL || !copy_steps(plan, m))
        return false;
    find_last_uses(plan, m);
    return true;
}

/* Under the lock of the graph. */
static bool
make(coi_session_plan *plan, const co_graph *graph)
{
    making m = { 0 };
    bool   ok = making_open(&m, graph) && fill(plan, &m);

    plan->version = graph->version;
    making_close(&m);
    return ok;
}

static coi_session_plan *
plan_new(co_context *ctx, co_graph *graph, coi_slot_list *fetched, coi_slot_list *fed)
{
    coi_session_plan *plan = coi_object_new(&ctx->heap, &plan_class, sizeof(*plan));
    bool              ok = false;

    if (plan != NULL) {
        plan->memory = graph->memory;
        for (size_t i = 0; i < fetched->n; ++i)
            coi_slot_list_add(ctx, &plan->fetched, fetched->slots[i]);
        for (size_t i = 0; i < fed->n; ++i)
            coi_slot_list_add(ctx, &plan->fed, fed->slots[i]);
        coi_lock_take(&graph->lock);
        ok = ctx->error.code == CO_OK && make(plan, graph);
        coi_lock_give(&graph->lock);
    }
    if (ok)
        return plan;
    coi_unref(&ctx->heap, plan);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to plan the run of a session");
    return NULL;
}

/* --- keeping them --- */

static coi_session_plan *
find(const co_session *session, const coi_slot_list *fetched, const coi_slot_list *fed)
{
    for (size_t i = session->num_plans; i > 0; --i) {
        coi_session_plan *plan = session->plans[i - 1];

        if (plan->version == session->graph->version && same_slots(&plan->fetched, fetched) &&
            same_slots(&plan->fed, fed)) {
            coi_ref(plan);
            return plan;
        }
    }
    return NULL;
}

coi_session_plan *
coi_session_plan_for(co_context *ctx, co_session *session, coi_slot_list *fetched,
                     coi_slot_list *fed)
{
    coi_session_plan *plan, *dropped = NULL;

    coi_lock_take(&session->lock);
    plan = find(session, fetched, fed);
    coi_lock_give(&session->lock);
    if (plan != NULL || (plan = plan_new(ctx, session->graph, fetched, fed)) == NULL)
        return plan;
    coi_ref(plan);
    coi_lock_take(&session->lock); /* threads that were here at once keep one each */
    if (session->num_plans == COI_MAX_PLANS) {
        dropped = session->plans[0];
        memmove(&session->plans[0], &session->plans[1],
                --session->num_plans * sizeof(*session->plans));
    }
    session->plans[session->num_plans++] = plan;
    coi_lock_give(&session->lock);
    coi_unref(&ctx->heap, dropped);
    return plan;
}

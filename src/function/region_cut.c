/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cutting a region at a step that no plan can have: because the shape of its result depends on
 * data, or the host reads what a kernel computes. What is before the step and after it are regions
 * of their own; where the shape is known, the types of tensors choose the plan of the second.
 *
 * A tape is not cut, because its backward pass needs all of it. But what gradients cannot pass, the
 * mask of a loss and the places where it is set, does not have to be under the tape: such steps are
 * made ahead of the region, in which their results are tensors from outside.
 */
#include "function/plan.h"
#include "function/value_tree.h"

#include <string.h>

COI_USES_OP(tape_begin)

/* How often a region and its parts are cut: each cut makes a run one level deeper. */
#define MOST_CUTS 128

/* The tape around a step of a region, from `begin` to `end`; the step alone without one. */
typedef struct span {
    size_t begin, end;
} span;

static span
find_tape(const coi_program *program, const coi_region *region, size_t step)
{
    size_t depth = 0, begin = region->first;

    for (size_t i = region->first; i < region->end; ++i) {
        const coi_program_step *at = &program->steps[i];

        if (at->op == &coi_op_tape_begin && depth++ == 0)
            begin = i;
        else if (at->ends_tape && --depth == 0 && i >= step)
            return (span){ begin, i + 1 };
        if (depth == 0 && i >= step)
            break;
    }
    return (span){ step, step + 1 };
}

/* --- steps that can be made ahead --- */

typedef struct search {
    const coi_program *program;
    co_value *const   *slots;                                      /* of the run */
    bool              *wanted;                                     /* by slot */
    bool               finds_variable, may_be_taped, finds_wanted; /* in what was looked at */
} search;

static bool
is_slot(const search *s, const co_value *leaf)
{
    return leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == s->program->serial;
}

static bool
want(const co_value *leaf, void *arg)
{
    search         *s = arg;
    const co_value *given = leaf;

    if (is_slot(s, leaf)) {
        s->wanted[leaf->u.symbol.slot] = true;
        given = s->slots[leaf->u.symbol.slot];
    }
    s->finds_variable = s->finds_variable || (given != NULL && coi_is_variable(given));
    return true;
}

static bool
look_at_result(const co_value *leaf, void *arg)
{
    search *s = arg;

    s->finds_wanted = s->finds_wanted || (is_slot(s, leaf) && s->wanted[leaf->u.symbol.slot]);
    s->may_be_taped = s->may_be_taped || !coi_is_type(leaf) || coi_dtypes[leaf->dtype].floating;
    return true;
}

/* Want the operands of a step; whether it can be made ahead. No tape records it, it draws no random
 * numbers, and it reads no variable, which a call of the region may change. */
static bool
move(search *s, const coi_program_step *step)
{
    const coi_op *op = step->op;

    s->finds_variable = s->may_be_taped = false;
    coi_tree_all(step->result, look_at_result, s);
    for (int k = 0; k < step->num_in; ++k)
        coi_tree_all(step->in[k], want, s);
    return op->replay == NULL && op->renew == NULL && (op->reads | op->writes) == 0 &&
           !s->may_be_taped && !s->finds_variable;
}

/* Mark the steps of a tape that `step` takes, and itself: whether all of them can be made ahead. */
static bool
mark_ahead(search *s, span tape, size_t step, bool *is_ahead)
{
    if (!move(s, &s->program->steps[step]))
        return false;
    is_ahead[step - tape.begin] = true;
    for (size_t i = step; i-- > tape.begin;) {
        s->finds_wanted = false;
        coi_tree_all(s->program->steps[i].result, look_at_result, s);
        if (!s->finds_wanted)
            continue;
        if (!move(s, &s->program->steps[i]))
            return false;
        is_ahead[i - tape.begin] = true;
    }
    return true;
}

/* The steps to make ahead of a region that is this tape, which gets them. False where that cannot
 * be, or without memory. */
static bool
find_ahead(const coi_program *program, const coi_region *region, span tape, size_t step,
           co_value *const *slots, coi_number_list *ahead)
{
    size_t n = tape.end - tape.begin, nbytes = n + program->num_slots + 1;
    bool  *is_ahead = coi_calloc(program->memory, nbytes);
    search s = { .program = program, .slots = slots, .wanted = is_ahead + n };
    bool   ok = is_ahead != NULL && mark_ahead(&s, tape, step, is_ahead);

    for (size_t i = 0; ok && i < region->ahead.n; ++i)
        is_ahead[region->ahead.at[i] - tape.begin] = true;
    for (size_t i = 0; ok && i < n; ++i)
        ok = !is_ahead[i] || coi_number_add(program->memory, ahead, (uint32_t)(tape.begin + i));
    coi_free(program->memory, is_ahead, nbytes);
    return ok;
}

/* --- parts --- */

static void
add_part(coi_region_parts *parts, const coi_program *program, size_t first, size_t end)
{
    parts->at[parts->n].first = first;
    parts->at[parts->n].end = end;
    parts->n += coi_has_operator(program, first, end);
}

/* The parts of a region, of which `tape` is one only if something can be made ahead of it. */
static void
find_parts(coi_region_parts *parts, const coi_program *program, const coi_region *region, span tape,
           size_t step, co_value *const *slots)
{
    coi_region *middle;

    add_part(parts, program, region->first, tape.begin);
    middle = &parts->at[parts->n];
    if (tape.end > tape.begin + 1 &&
        find_ahead(program, region, tape, step, slots, &middle->ahead)) {
        add_part(parts, program, tape.begin, tape.end);
    } else {
        coi_number_list_free(program->memory, &middle->ahead);
        middle->ahead = (coi_number_list){ NULL, 0, 0 };
    }
    add_part(parts, program, tape.end, region->end);
    for (size_t i = 0; i < parts->n; ++i)
        parts->at[i].num_cuts = region->num_cuts + 1;
}

/* Whether they are the parts now. */
static bool
publish(coi_region *region, coi_region_parts *parts)
{
    bool is_first;

    coi_lock_take(&region->lock);
    is_first = atomic_load(&region->num_plans) == 0 && atomic_load(&region->parts) == NULL;
    if (is_first)
        atomic_store_explicit(&region->parts, parts, memory_order_release);
    coi_lock_give(&region->lock);
    return is_first;
}

bool
coi_region_cut(co_context *ctx, const coi_program *program, coi_region *region, size_t step,
               co_value *const *slots)
{
    coi_region_parts *parts;

    if (region->num_cuts >= MOST_CUTS ||
        (parts = coi_calloc(program->memory, sizeof(*parts))) == NULL)
        return false;
    find_parts(parts, program, region, find_tape(program, region, step), step, slots);
    if (coi_regions_fill(program, parts->at, parts->n) && publish(region, parts))
        return true;
    for (size_t i = 0; i < parts->n; ++i) /* no memory, or others were faster */
        coi_region_clear(&ctx->heap, program->memory, &parts->at[i]);
    coi_free(program->memory, parts, sizeof(*parts));
    return false;
}

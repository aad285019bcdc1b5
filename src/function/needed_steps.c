/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls of a program some of its values need: the calls that give their operands, and so on,
 * and those that they come after. A call that takes a tape needs what begins it; what watches for
 * a tape, or ends it, is needed where the tape is.
 */
#include "function/graph.h"
#include "function/value_tree.h"

bool
coi_needs_open(coi_needs *needs, const coi_program *program)
{
    size_t num_slots = program->num_slots + 1, num_steps = program->num_steps + 1;

    *needs = (coi_needs){ .program = program,
                          .num_slots = program->num_slots,
                          .num_steps = program->num_steps,
                          .nbytes = 2 * num_slots + num_steps };
    needs->wanted = coi_calloc(program->memory, needs->nbytes);
    if (needs->wanted == NULL)
        return false;
    needs->given = needs->wanted + num_slots;
    needs->is_needed = needs->given + num_slots;
    return true;
}

void
coi_needs_close(coi_needs *needs)
{
    coi_free(needs->program->memory, needs->wanted, needs->nbytes);
}

static bool
is_own(const coi_needs *needs, const co_value *leaf)
{
    return leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == needs->program->serial;
}

static bool
want_leaf(const co_value *leaf, void *arg)
{
    coi_needs *needs = arg;

    if (!is_own(needs, leaf))
        return true;
    needs->changed = needs->changed || !needs->wanted[leaf->u.symbol.slot];
    needs->wanted[leaf->u.symbol.slot] = true;
    return true;
}

void
coi_want_all(coi_needs *needs, const co_value *value)
{
    coi_tree_all(value, want_leaf, needs);
}

static bool
is_unwanted(const co_value *leaf, void *arg)
{
    const coi_needs *needs = arg;

    return !is_own(needs, leaf) || !needs->wanted[leaf->u.symbol.slot] ||
           needs->given[leaf->u.symbol.slot];
}

bool
coi_is_wanted(coi_needs *needs, const co_value *value)
{
    return !coi_tree_all(value, is_unwanted, needs);
}

/* Steps about a tape need the one that begins it, which is before them. */
static void
need_tape(coi_needs *needs, size_t at)
{
    const coi_program_step *steps = needs->program->steps;
    uint32_t                tape = steps[at].tape;

    for (size_t i = at; tape != 0 && i > 0; --i)
        if (steps[i - 1].tape == tape && steps[i - 1].op == &coi_op_tape_begin) {
            needs->is_needed[i - 1] = true;
            return;
        }
}

/* What a needed step needs; false without memory. */
static bool
want_operands(coi_needs *needs, size_t i)
{
    const coi_program_step *step = &needs->program->steps[i];

    if (step->after != NULL)
        coi_want_all(needs, step->after);
    if (step->tape != 0 && step->op != &coi_op_tape_begin)
        need_tape(needs, i);
    if (step->op->want_operands != NULL && !needs->is_whole)
        return step->op->want_operands(needs, step);
    for (int k = 0; k < step->num_in; ++k)
        coi_want_all(needs, step->in[k]);
    return true;
}

static bool
sweep(coi_needs *needs)
{
    for (size_t i = needs->num_steps; i > 0; --i) {
        if (!needs->is_needed[i - 1] && !coi_is_wanted(needs, needs->program->steps[i - 1].result))
            continue;
        needs->is_needed[i - 1] = true;
        if (!want_operands(needs, i - 1))
            return false;
    }
    return true;
}

/* What a watch lets watch is there anyway. */
static bool
is_there(const co_value *leaf, void *arg)
{
    const coi_needs *needs = arg;

    return !is_own(needs, leaf) || needs->wanted[leaf->u.symbol.slot];
}

/* Calls that others need for how they run, not for a value: in the order of the program. */
static void
need_surroundings(coi_needs *needs)
{
    bool  *is_needed = needs->is_needed;
    size_t last = needs->num_steps, open = 0;

    while (last > 0 && !is_needed[last - 1])
        --last;
    for (size_t i = 0; i < last; ++i) {
        const coi_program_step *step = &needs->program->steps[i];

        if (step->op->sets_context)
            is_needed[i] = true;
        else if (step->op == &coi_op_tape_begin)
            open += is_needed[i];
        else if (step->op == &coi_op_watch)
            is_needed[i] = is_needed[i] || (open > 0 && coi_tree_all(step->in[0], is_there, needs));
        else if (step->ends_tape)
            open -= is_needed[i];
    }
}

/* A tape that stays open after gradients ends where the program says so, also past the last call
 * that is needed. */
static void
need_ends(coi_needs *needs)
{
    const coi_program_step *steps = needs->program->steps;

    for (size_t i = 0; i < needs->num_steps; ++i) {
        if (steps[i].op != &coi_op_tape_end)
            continue;
        for (size_t k = i; k > 0 && steps[i].tape != 0; --k)
            if (steps[k - 1].op == &coi_op_tape_begin && steps[k - 1].tape == steps[i].tape)
                needs->is_needed[i] = needs->is_needed[i] || needs->is_needed[k - 1];
    }
}

bool
coi_needs_find(coi_needs *needs)
{
    do {
        needs->changed = false;
        if (!sweep(needs))
            return false;
    } while (needs->has_later && needs->changed);
    need_ends(needs);
    need_surroundings(needs);
    return true;
}

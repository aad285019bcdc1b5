/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls of a program some of its values need: the calls that give their operands, and so on,
 * and those that they come after. A call that takes a tape needs what begins it; what watches for
 * a tape, or ends it, is needed where the tape is.
 */
#include "function/graph.h"
#include "function/value_tree.h"

typedef struct needing {
    uint64_t    program;
    bool       *wanted;
    const bool *given;
    bool        changed; /* something was wanted that was not before */
} needing;

static bool
want_leaf(const co_value *leaf, void *arg)
{
    needing *n = arg;

    if (leaf->kind != CO_KIND_SYMBOLIC || leaf->u.symbol.program != n->program)
        return true;
    n->changed = n->changed || !n->wanted[leaf->u.symbol.slot];
    n->wanted[leaf->u.symbol.slot] = true;
    return true;
}

static bool
is_unwanted(const co_value *leaf, void *arg)
{
    const needing *n = arg;
    uint64_t       slot;

    if (leaf->kind != CO_KIND_SYMBOLIC || leaf->u.symbol.program != n->program)
        return true;
    slot = leaf->u.symbol.slot;
    return !n->wanted[slot] || (n->given != NULL && n->given[slot]);
}

/* The steps that take a tape need the one that begins it, which is before them. */
static void
need_tape(const coi_program *program, size_t at, bool *is_needed)
{
    uint32_t tape = program->steps[at].tape;

    for (size_t i = at; tape != 0 && i > 0; --i)
        if (program->steps[i - 1].tape == tape && program->steps[i - 1].op == &coi_op_tape_begin) {
            is_needed[i - 1] = true;
            return;
        }
}

static void
sweep(const coi_program *program, size_t num_steps, needing *n, bool *is_needed)
{
    for (size_t i = num_steps; i > 0; --i) {
        const coi_program_step *step = &program->steps[i - 1];

        if (!is_needed[i - 1] && coi_tree_all(step->result, is_unwanted, n))
            continue;
        is_needed[i - 1] = true;
        for (int k = 0; k < step->num_in; ++k)
            coi_tree_all(step->in[k], want_leaf, n);
        if (step->after != NULL)
            coi_tree_all(step->after, want_leaf, n);
        if (step->op->takes_tape)
            need_tape(program, i - 1, is_needed);
    }
}

/* What a watch lets watch is there anyway. */
static bool
is_there(const co_value *leaf, void *arg)
{
    const needing *n = arg;

    return leaf->kind != CO_KIND_SYMBOLIC || leaf->u.symbol.program != n->program ||
           n->wanted[leaf->u.symbol.slot];
}

/* Calls that others need for how they run, not for a value: in the order of the program. */
static void
need_surroundings(const coi_program *program, size_t num_steps, needing *n, bool *is_needed)
{
    size_t last = num_steps, open = 0;

    while (last > 0 && !is_needed[last - 1])
        --last;
    for (size_t i = 0; i < last; ++i) {
        const coi_program_step *step = &program->steps[i];

        if (step->op->sets_context)
            is_needed[i] = true;
        else if (step->op == &coi_op_tape_begin)
            open += is_needed[i];
        else if (step->op == &coi_op_watch)
            is_needed[i] = open > 0 && coi_tree_all(step->in[0], is_there, n);
        else if (step->ends_tape)
            open -= is_needed[i];
    }
}

/* A tape that stays open after gradients ends where the program says so, also past the last call
 * that is needed. */
static void
need_ends(const coi_program *program, size_t num_steps, bool *is_needed)
{
    for (size_t i = 0; i < num_steps; ++i) {
        const coi_program_step *step = &program->steps[i];

        if (step->op != &coi_op_tape_end)
            continue;
        is_needed[i] = false;
        for (size_t k = i; k > 0 && step->tape != 0; --k)
            if (program->steps[k - 1].op == &coi_op_tape_begin &&
                program->steps[k - 1].tape == step->tape)
                is_needed[i] = is_needed[k - 1];
    }
}

void
coi_want_all(const coi_program *program, const co_value *value, bool *wanted)
{
    needing n = { program->serial, wanted, NULL, false };

    coi_tree_all(value, want_leaf, &n);
}

void
coi_find_needed(const coi_program *program, size_t num_steps, bool *wanted, const bool *given,
                bool has_later, bool *is_needed)
{
    needing n = { program->serial, wanted, given, false };

    do {
        n.changed = false;
        sweep(program, num_steps, &n, is_needed);
    } while (has_later && n.changed);
    need_ends(program, num_steps, is_needed);
    need_surroundings(program, num_steps, &n, is_needed);
}

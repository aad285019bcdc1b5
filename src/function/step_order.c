/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which needed calls of a program run: that of the program, but for calls that others
 * before them were made to come after (co_add_control_input), which are brought forward. So a call
 * that waits stays where it is, between the begin and the end of its tape.
 *
 * The order is found from its end: of the calls that nothing left comes after, the one that the
 * program has last is taken.
 */
#include "function/graph.h"
#include "function/value_tree.h"

typedef struct ordering {
    const coi_needs *needs;
    uint32_t        *maker;   /* by slot: the call that gives it + 1 */
    uint32_t        *end;     /* by number of a tape: the call that ends it, or num_steps */
    uint32_t        *around;  /* calls that begin a tape or let one watch */
    uint32_t        *waiting; /* by call: how many of those that come after it are left */
    size_t           num_around;
    /* While the calls before one are counted (1), or let go (-1). */
    size_t step, next;
    int    sign;
} ordering;

static const coi_program_step *
step_at(const ordering *o, size_t i)
{
    return &o->needs->program->steps[i];
}

static bool
note_made(const co_value *leaf, void *arg)
{
    ordering *o = arg;

    if (leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == o->needs->program->serial)
        o->maker[leaf->u.symbol.slot] = (uint32_t)o->step + 1;
    return true;
}

static void
note_steps(ordering *o)
{
    size_t n = o->needs->num_steps;

    for (size_t tape = 0; tape <= n; ++tape)
        o->end[tape] = (uint32_t)n;
    for (o->step = 0; o->step < n; ++o->step) {
        const coi_program_step *step = step_at(o, o->step);

        if (!o->needs->is_needed[o->step])
            continue;
        coi_tree_all(step->result, note_made, o);
        if (step->op == &coi_op_tape_begin || step->op == &coi_op_watch)
            o->around[o->num_around++] = (uint32_t)o->step;
        if (step->ends_tape)
            o->end[step->tape] = (uint32_t)o->step;
    }
}

/* Call i comes before the one that is looked at. */
static void
is_before(ordering *o, size_t i)
{
    if (i == o->step)
        return;
    if (o->sign > 0)
        ++o->waiting[i];
    else if (--o->waiting[i] == 0 && i >= o->next)
        o->next = i + 1;
}

static bool
is_before_leaf(const co_value *leaf, void *arg)
{
    ordering *o = arg;
    uint64_t  slot;

    if (leaf->kind != CO_KIND_SYMBOLIC || leaf->u.symbol.program != o->needs->program->serial)
        return true;
    slot = leaf->u.symbol.slot;
    if (!o->needs->given[slot] && o->maker[slot] != 0)
        is_before(o, o->maker[slot] - 1);
    return true;
}

/* All calls that come before one: those that give what it takes, those that it was made after, and
 * what surrounds it. The end of a tape comes after all that is about the tape. */
static void
each_before(ordering *o, size_t i, int sign)
{
    const coi_program_step *step = step_at(o, i);

    o->step = i;
    o->sign = sign;
    for (int k = 0; k < step->num_in; ++k)
        coi_tree_all(step->in[k], is_before_leaf, o);
    if (step->after != NULL)
        coi_tree_all(step->after, is_before_leaf, o);
    for (size_t k = 0; k < o->num_around && o->around[k] < i; ++k)
        if (i <= o->end[step_at(o, o->around[k])->tape])
            is_before(o, o->around[k]);
    for (size_t k = 0; step->op == &coi_op_tape_end && k < i; ++k)
        if (o->needs->is_needed[k] && step_at(o, k)->tape == step->tape &&
            step_at(o, k)->op->takes_tape)
            is_before(o, k);
}

/* The call that runs last of those that are left, of which `is_left` says which they are. */
static size_t
take_last(ordering *o, bool *is_left)
{
    size_t i = o->next;

    while (i > 0 && !(is_left[i - 1] && o->waiting[i - 1] == 0))
        --i;
    if (i == 0) /* a call was made to come after one that its tape surrounds: they go as they are */
        for (i = o->needs->num_steps; !is_left[i - 1];)
            --i;
    is_left[i - 1] = false;
    o->next = i - 1;
    each_before(o, i - 1, -1);
    return i - 1;
}

static bool
ordering_open(ordering *o, const coi_needs *needs)
{
    coi_memory *memory = needs->program->memory;
    size_t      nbytes = (needs->num_steps + 1) * sizeof(uint32_t);

    *o = (ordering){ .needs = needs, .next = needs->num_steps };
    o->maker = coi_calloc(memory, (needs->num_slots + 1) * sizeof(uint32_t));
    o->end = coi_calloc(memory, nbytes);
    o->around = coi_calloc(memory, nbytes);
    o->waiting = coi_calloc(memory, nbytes);
    return o->maker != NULL && o->end != NULL && o->around != NULL && o->waiting != NULL;
}

static void
ordering_close(ordering *o)
{
    coi_memory *memory = o->needs->program->memory;
    size_t      nbytes = (o->needs->num_steps + 1) * sizeof(uint32_t);

    coi_free(memory, o->maker, (o->needs->num_slots + 1) * sizeof(uint32_t));
    coi_free(memory, o->end, nbytes);
    coi_free(memory, o->around, nbytes);
    coi_free(memory, o->waiting, nbytes);
}

static bool
bring_forward(const coi_needs *needs, uint32_t *order, size_t n)
{
    size_t   nbytes = needs->num_steps + 1;
    bool    *is_left = coi_calloc(needs->program->memory, nbytes);
    ordering o;
    bool     ok = ordering_open(&o, needs) && is_left != NULL;

    if (ok) {
        note_steps(&o);
        for (size_t i = 0; i < needs->num_steps; ++i)
            if ((is_left[i] = needs->is_needed[i]))
                each_before(&o, i, 1);
        o.next = needs->num_steps;
        while (n > 0)
            order[--n] = (uint32_t)take_last(&o, is_left);
    }
    ordering_close(&o);
    coi_free(needs->program->memory, is_left, nbytes);
    return ok;
}

bool
coi_needs_order(const coi_needs *needs, uint32_t *order)
{
    size_t n = 0;

    for (size_t i = 0; i < needs->num_steps; ++i)
        if (needs->is_needed[i])
            order[n++] = (uint32_t)i;
    return !needs->has_later || bring_forward(needs, order, n);
}
